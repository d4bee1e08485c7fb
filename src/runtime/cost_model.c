#include "runtime/cost_model.h"

#include <pthread.h>

#include "base/mem.h"
#include "proto/wire.h"

enum { FIRST_ID = 2 };

typedef struct output_cost {
  int64_t bytes; /* -1: not seen */
  int dtype, rank;
  int64_t *dims;    /* own; of the largest */
  const void *data; /* where its elements lay last */
} output_cost;

typedef struct node_cost {
  uint64_t time_us;
  output_cost *outputs; /* one per output of the node */
} node_cost;

struct td_cost_model {
  td_graph *graph; /* retained, immutable */
  pthread_mutex_t lock;
  node_cost *nodes; /* by node id; guarded by lock */
};

td_cost_model *td_cost_model_create(td_graph *g) {
  td_cost_model *m = td_new(td_cost_model);
  m->graph = td_graph_retain(g);
  m->nodes = td_new_array(node_cost, g->node_count);
  for (size_t i = 0; i < g->node_count; i++) {
    if (g->nodes[i]->is_removed) continue;
    m->nodes[i].outputs = td_new_array(output_cost, (size_t)g->nodes[i]->output_count);
    for (int k = 0; k < g->nodes[i]->output_count; k++) m->nodes[i].outputs[k].bytes = -1;
  }
  pthread_mutex_init(&m->lock, NULL);
  return m;
}

void td_cost_model_destroy(td_cost_model *m) {
  if (!m) return;
  for (size_t i = 0; i < m->graph->node_count; i++) {
    for (int k = 0; m->nodes[i].outputs && k < m->graph->nodes[i]->output_count; k++)
      td_free(m->nodes[i].outputs[k].dims);
    td_free(m->nodes[i].outputs);
  }
  td_free(m->nodes);
  td_graph_release(m->graph);
  pthread_mutex_destroy(&m->lock);
  td_free(m);
}

/* With the lock held. */
static void note(void *arg, const td_node_record *r) {
  td_cost_model *m = arg;
  const td_node *n = td_graph_find(m->graph, r->name);
  if (!n) return;
  node_cost *c = &m->nodes[n->id];
  uint64_t us = r->op_end_ns > r->op_start_ns ? (r->op_end_ns - r->op_start_ns) / 1000 : 0;
  c->time_us = TD_MAX(c->time_us, us);
  for (size_t i = 0; i < r->output_count; i++) {
    const td_output_record *from = &r->outputs[i];
    output_cost *o = &c->outputs[from->slot];
    o->data = from->data;
    if ((int64_t)from->bytes <= o->bytes) continue;
    o->bytes = (int64_t)from->bytes;
    o->dtype = from->dtype;
    o->rank = from->rank;
    td_free(o->dims);
    o->dims = td_new_array(int64_t, (size_t)from->rank);
    for (int k = 0; k < from->rank; k++) o->dims[k] = from->dims[k];
  }
}

void td_cost_model_update(td_cost_model *m, td_step_stats *stats, td_str device) {
  pthread_mutex_lock(&m->lock);
  td_step_stats_visit(stats, device, note, m);
  pthread_mutex_unlock(&m->lock);
}

static const void *data_of(const td_cost_model *m, const td_edge *e) {
  return e ? m->nodes[e->src->id].outputs[e->src_slot].data : NULL;
}

/* The input that shares its elements with an output; -1: none. */
static int alias_of(const td_cost_model *m, const td_node *n, const void *data) {
  for (int i = 0; data && i < n->input_count; i++)
    if (data_of(m, n->in[i]) == data) return i;
  return -1;
}

/* OutputInfo */
static void put_output(const td_cost_model *m, const td_node *n, int slot, td_strbuf *node) {
  const output_cost *o = &m->nodes[n->id].outputs[slot];
  td_strbuf info = {0}, shape = {0}, dim = {0};
  td_wire_put_uint(&info, 1, (uint64_t)o->bytes);
  td_wire_put_uint(&info, 2, (uint64_t)(int64_t)alias_of(m, n, o->data));
  for (int i = 0; i < o->rank; i++) {
    dim.size = 0;
    td_wire_put_uint(&dim, 1, (uint64_t)o->dims[i]);
    td_wire_put_bytes(&shape, 2, td_strbuf_view(&dim));
  }
  if (o->bytes < 0) td_wire_put_uint(&shape, 3, true); /* of unknown rank */
  td_wire_put_bytes(&info, 3, td_strbuf_view(&shape));
  td_wire_put_uint(&info, 4, (uint64_t)o->dtype);
  td_wire_put_bytes(node, 5, td_strbuf_view(&info));
  td_strbuf_deinit(&info);
  td_strbuf_deinit(&shape);
  td_strbuf_deinit(&dim);
}

/* CostGraphDef.Node */
static void put_node(const td_cost_model *m, const td_node *n, td_strbuf *node) {
  td_strbuf info = {0};
  td_wire_put_bytes(node, 1, n->def.name);
  td_wire_put_bytes(node, 2, n->device);
  td_wire_put_uint(node, 3, (uint64_t)n->id + FIRST_ID);
  for (int i = 0; i < n->input_count; i++) {
    const td_edge *e = n->in[i];
    if (!e) continue;
    info.size = 0;
    td_wire_put_uint(&info, 1, (uint64_t)e->src->id + FIRST_ID);
    td_wire_put_uint(&info, 2, (uint64_t)e->src_slot);
    td_wire_put_bytes(node, 4, td_strbuf_view(&info));
  }
  for (int i = 0; i < n->output_count; i++) put_output(m, n, i, node);
  td_wire_put_uint(node, 7, n->kind == TD_NODE_SEND);
  for (const td_edge *e = n->in_edges; e; e = e->next_in)
    if (e->dst_slot == TD_CONTROL_SLOT) {
      td_wire_put_tag(node, 8, TD_WIRE_VARINT);
      td_wire_put_varint(node, (uint64_t)e->src->id + FIRST_ID);
    }
  td_wire_put_uint(node, 9, m->nodes[n->id].time_us);
  td_strbuf_deinit(&info);
}

void td_cost_model_encode(td_cost_model *m, td_strbuf *out) {
  td_strbuf node = {0};
  pthread_mutex_lock(&m->lock);
  for (size_t i = 0; i < m->graph->node_count; i++) {
    if (m->graph->nodes[i]->is_removed) continue;
    node.size = 0;
    put_node(m, m->graph->nodes[i], &node);
    td_wire_put_bytes(out, 1, td_strbuf_view(&node));
  }
  pthread_mutex_unlock(&m->lock);
  td_strbuf_deinit(&node);
}

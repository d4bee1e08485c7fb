/* Small constants that other devices read: each gets its own, instead of receiving the same value in every step. */
#include "base/mem.h"
#include "graph/build.h"
#include "graph/optimize_internal.h"

enum { MAX_BYTES = 16 << 10 /* of a constant as a message */ };

typedef struct copier {
  td_optimizer *o;
  td_map copies; /* by device */
} copier;

/* What waits for nothing runs at the start wherever it is. */
static bool can_copy(const td_node *n) {
  if (!td_node_is_const(n) || n->in_edges || n->output_count != 1) return false;
  const Pb__AttrValue *v = td_attr_find(&n->def, "value");
  return v && protobuf_c_message_get_packed_size(&v->base) <= MAX_BYTES;
}

/* Control flow is placed by its inputs when the graph is cut: its readers stay together with them. What a client
 * fetches comes from where it was placed. */
static bool is_far(td_optimizer *o, const td_node *n, const td_edge *e) {
  return e->src_slot >= 0 && e->dst->kind == TD_NODE_PLAIN && e->dst->device.data != n->device.data &&
         !td_str_eq(e->dst->device, n->device) && td_optimizer_on_cpu(o, e->dst);
}

static td_node *copy_on(copier *c, const td_node *n, td_str device) {
  td_graph *g = c->o->g;
  td_node *copy = td_map_get(&c->copies, device), *made;
  if (copy) return copy;
  td_node_def def = n->def;
  def.name = td_graph_new_name(g, n->def.name);
  td_status s = td_graph_add_node(g, &def, n->op, &made);
  if (s) { /* its attributes were good enough for the first one */
    td_status_free(s);
    return NULL;
  }
  made->device = device;
  made->original = td_node_original(n);
  made->is_made = true;
  td_map_put(&c->copies, device, made);
  return made;
}

/* The device of the first reader, if none is where the constant is; empty otherwise. */
static td_str better_place(td_optimizer *o, const td_node *n) {
  if (td_optimizer_keeps(o, n)) return (td_str){0};
  for (const td_edge *e = n->out_edges; e; e = e->next_out)
    if (!is_far(o, n, e)) return (td_str){0};
  return n->out_edges ? n->out_edges->dst->device : (td_str){0};
}

static void spread(copier *c, td_node *n) {
  td_str place = better_place(c->o, n);
  if (place.size) n->device = place;
  for (td_edge *e = n->out_edges, *next; e; e = next) {
    next = e->next_out;
    td_node *dst = e->dst, *own;
    int slot = e->dst_slot;
    if (!is_far(c->o, n, e) || !(own = copy_on(c, n, dst->device))) continue;
    td_graph_remove_edge(c->o->g, e);
    td_graph_add_edge(c->o->g, own, 0, dst, slot);
  }
  td_map_clear(&c->copies);
}

void td_copy_constants(td_optimizer *o) {
  copier c = {.o = o};
  size_t count = o->g->node_count;
  for (size_t i = 0; i < count; i++)
    if (!o->g->nodes[i]->is_removed && can_copy(o->g->nodes[i])) spread(&c, o->g->nodes[i]);
  td_map_deinit(&c.copies);
}

/* Common subexpressions: of nodes that compute the same from the same inputs, on one device, after the same nodes, the
 * first one stays. As TensorFlow's optimizer_cse.cc: nodes are visited in order, so that the inputs of equal nodes are
 * one node by then; equal control inputs keep order, frame and deadness. */
#include <stdlib.h>

#include "base/mem.h"
#include "graph/optimize_internal.h"

enum { MAX_EDGES = 64, MAX_ATTR_BYTES = 4096 /* values larger than that are not compared */ };

typedef struct merger {
  td_optimizer *o;
  td_map seen; /* what describes a node -> the node */
  td_strbuf text;
} merger;

/* ---- what describes a node ---- */

static void put(merger *m, const void *data, size_t size) { td_strbuf_append(&m->text, td_str_n(data, size)); }

static void put_str(merger *m, td_str s) {
  put(m, &s.size, sizeof s.size);
  td_strbuf_append(&m->text, s);
}

/* False for a value that is too large. */
static bool put_value(merger *m, const Pb__AttrValue *v) {
  int kind = (int)v->value_case;
  put(m, &kind, sizeof kind);
  switch (v->value_case) {
    case PB__ATTR_VALUE__VALUE_S:
      if (v->s.len > MAX_ATTR_BYTES) return false;
      put_str(m, td_str_n(v->s.data, v->s.len));
      return true;
    case PB__ATTR_VALUE__VALUE_I:
      put(m, &v->i, sizeof v->i);
      return true;
    case PB__ATTR_VALUE__VALUE_B:
      put(m, &v->b, sizeof v->b);
      return true;
    case PB__ATTR_VALUE__VALUE_TYPE:
      put(m, &v->type, sizeof v->type);
      return true;
    default: {
      size_t size = protobuf_c_message_get_packed_size(&v->base);
      if (size > MAX_ATTR_BYTES) return false;
      uint8_t bytes[MAX_ATTR_BYTES];
      protobuf_c_message_pack(&v->base, bytes);
      put_str(m, td_str_n(bytes, size));
      return true;
    }
  }
}

/* Where a node has to sit, and what clients know of its shapes, is no part of what it computes. */
static bool is_note(td_str attr) {
  return td_str_is(attr, "_class") || td_str_is(attr, "_output_shapes") || td_str_starts(attr, TD_STR("_grappler"));
}

static int by_name(const void *a, const void *b) {
  return td_str_cmp(((const td_attr *)a)->name, ((const td_attr *)b)->name);
}

static bool put_attrs(merger *m, const td_node *n) {
  td_attr attrs[32];
  size_t count = 0;
  for (size_t i = 0; i < n->def.attr_count; i++) {
    if (is_note(n->def.attrs[i].name)) continue;
    if (count == TD_COUNT(attrs) || !n->def.attrs[i].value) return false;
    attrs[count++] = n->def.attrs[i];
  }
  qsort(attrs, count, sizeof *attrs, by_name); /* the client's order may differ from node to node */
  for (size_t i = 0; i < count; i++) {
    put_str(m, attrs[i].name);
    if (!put_value(m, attrs[i].value)) return false;
  }
  return true;
}

typedef struct source {
  int id, slot;
} source;

static int by_source(const void *a, const void *b) {
  const source *x = a, *y = b;
  if (x->id != y->id) return x->id < y->id ? -1 : 1;
  return (x->slot > y->slot) - (x->slot < y->slot);
}

static bool put_inputs(merger *m, const td_node *n) {
  source in[MAX_EDGES];
  int count = 0, data = n->input_count, last = -1;
  for (const td_edge *e = n->in_edges; e; e = e->next_in) {
    if (count == MAX_EDGES) return false;
    in[count++] = (source){e->src->id, e->src_slot};
  }
  if (n->op->flags & TD_OP_COMMUTATIVE && data == 2) qsort(in, 2, sizeof *in, by_source);
  put(m, in, (size_t)data * sizeof *in);
  qsort(in + data, (size_t)(count - data), sizeof *in, by_source);
  for (int i = data; i < count; i++) {
    if (in[i].id != last) put(m, &in[i], sizeof in[i]);
    last = in[i].id;
  }
  return true;
}

static bool describe(merger *m, const td_node *n) {
  m->text.size = 0;
  put_str(m, n->op->name);
  put_str(m, n->device);
  put(m, &n->output_count, sizeof n->output_count);
  return put_inputs(m, n) && put_attrs(m, n);
}

/* ---- merging ---- */

static void merge(merger *m, td_node *into, td_node *n) {
  td_graph_move_readers(m->o->g, n, TD_CONTROL_SLOT, into, TD_CONTROL_SLOT);
  for (int i = 0; i < n->output_count; i++) td_graph_move_readers(m->o->g, n, i, into, i);
  td_graph_remove_node(m->o->g, n);
}

static void visit(merger *m, td_node *n) {
  if (!n->input_count && !td_node_is_const(n)) return;
  if (!td_node_is_pure(m->o, n) || !describe(m, n)) return;
  td_str text = td_strbuf_view(&m->text);
  td_node *other = td_map_get(&m->seen, text);
  if (!other)
    td_map_put(&m->seen, td_arena_str(&m->o->scratch, text), n);
  else if (!td_optimizer_keeps(m->o, n))
    merge(m, other, n);
  else if (!td_optimizer_keeps(m->o, other)) {
    merge(m, n, other);
    td_map_put(&m->seen, td_arena_str(&m->o->scratch, text), n);
  }
}

void td_merge_common(td_optimizer *o) {
  merger m = {.o = o};
  size_t count;
  td_node **order = td_graph_order(o->g, &o->scratch, &count);
  for (size_t i = 0; i < count; i++) visit(&m, order[i]);
  td_map_deinit(&m.seen);
  td_strbuf_deinit(&m.text);
}

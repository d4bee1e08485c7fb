#include "graph/graph.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "graph/internal.h"

typedef struct td_arena_link {
  td_arena arena;
  struct td_arena_link *next;
} td_arena_link;

td_graph *td_graph_create(td_library *library) {
  td_graph *g = td_new(td_graph);
  g->refs = 1;
  g->library = library ? td_library_retain(library) : td_library_create();
  return g;
}

td_graph *td_graph_retain(td_graph *g) {
  atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
  return g;
}

void td_graph_release(td_graph *g) {
  while (g && atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1) {
    td_graph *origin = g->origin;
    for (td_arena_link *link = g->adopted, *next; link; link = next) {
      next = link->next; /* links lie in the graph's own arena */
      td_arena_deinit(&link->arena);
    }
    td_arena_deinit(&g->arena);
    td_map_deinit(&g->by_name);
    td_free(g->nodes);
    td_free(g->bad_consumers);
    td_library_release(g->library);
    td_free(g);
    g = origin; /* a loop, not a recursion: chains of origins may be long */
  }
}

void td_graph_adopt_arena(td_graph *g, td_arena *arena) {
  td_arena_link *link = td_arena_new(&g->arena, td_arena_link);
  link->arena = *arena;
  link->next = g->adopted;
  g->adopted = link;
  *arena = (td_arena){0};
}

td_node *td_graph_find(const td_graph *g, td_str name) { return td_map_get(&g->by_name, name); }

void td_graph_reserve(td_graph *g, size_t node_count) {
  td_map_reserve(&g->by_name, node_count);
  if (node_count <= g->node_capacity) return;
  g->nodes = td_realloc(g->nodes, node_count * sizeof *g->nodes);
  g->node_capacity = node_count;
}

void td_graph_copy_versions(td_graph *g, const td_graph *from) {
  g->producer = from->producer;
  g->min_consumer = from->min_consumer;
  td_free(g->bad_consumers);
  g->bad_consumers = td_new_array(int32_t, from->bad_consumer_count);
  g->bad_consumer_count = from->bad_consumer_count;
  if (g->bad_consumer_count)
    memcpy(g->bad_consumers, from->bad_consumers, g->bad_consumer_count * sizeof *g->bad_consumers);
}

/* ---- nodes ---- */

td_node_kind td_node_kind_of(td_str op) {
  static const struct {
    td_str name;
    td_node_kind kind;
  } kinds[] = {
      {TD_STR("Switch"), TD_NODE_SWITCH},
      {TD_STR("RefSwitch"), TD_NODE_SWITCH},
      {TD_STR("_SwitchN"), TD_NODE_SWITCH},
      {TD_STR("Merge"), TD_NODE_MERGE},
      {TD_STR("RefMerge"), TD_NODE_MERGE},
      {TD_STR("_XlaMerge"), TD_NODE_MERGE},
      {TD_STR("Enter"), TD_NODE_ENTER},
      {TD_STR("RefEnter"), TD_NODE_ENTER},
      {TD_STR("Exit"), TD_NODE_EXIT},
      {TD_STR("RefExit"), TD_NODE_EXIT},
      {TD_STR("NextIteration"), TD_NODE_NEXT_ITERATION},
      {TD_STR("RefNextIteration"), TD_NODE_NEXT_ITERATION},
      {TD_STR("LoopCond"), TD_NODE_LOOP_COND},
      {TD_STR("ControlTrigger"), TD_NODE_CONTROL_TRIGGER},
      {TD_STR("_Send"), TD_NODE_SEND},
      {TD_STR("_HostSend"), TD_NODE_SEND},
      {TD_STR("_Recv"), TD_NODE_RECV},
      {TD_STR("_HostRecv"), TD_NODE_RECV},
  };
  if (!op.size || !memchr("SR_MENLC", op.data[0], 8)) return TD_NODE_PLAIN;
  for (size_t i = 0; i < TD_COUNT(kinds); i++)
    if (td_str_eq(op, kinds[i].name)) return kinds[i].kind;
  return TD_NODE_PLAIN;
}

td_str td_node_original(const td_node *n) { return n->original.size ? n->original : n->def.name; }

bool td_node_is_generator(const td_node *n) {
  return n->input_count == 0 && n->output_count == 1 && !td_dtype_is_ref(n->output_types[0]);
}

void td_graph_put_node(td_graph *g, td_node *n) {
  TD_GROW(g->nodes, g->node_count, g->node_capacity);
  n->id = (int)g->node_count;
  g->nodes[g->node_count++] = n;
  if (n->is_removed) return; /* a copy of one that is gone */
  void *other = td_map_insert(&g->by_name, n->def.name, n);
  assert(!other && "node names are unique");
  (void)other;
}

td_status td_graph_add_node(td_graph *g, const td_node_def *def, const td_op_def *op, td_node **out) {
  td_node *n = td_arena_new(&g->arena, td_node);
  size_t inputs = 0, outputs = 0;
  int *types;
  n->def = *def;
  n->op = op;
  n->kind = td_node_kind_of(op->name);
  TD_TRY(td_node_input_types(def, op, &g->arena, &types, &inputs));
  n->input_types = types;
  TD_TRY(td_node_output_types(def, op, &g->arena, &types, &outputs));
  n->output_types = types;
  n->input_count = (int)inputs;
  n->output_count = (int)outputs;
  n->in = td_arena_array(&g->arena, td_edge *, inputs);
  td_graph_put_node(g, n);
  *out = n;
  return TD_STATUS_OK;
}

td_node *td_graph_clone_node(td_graph *g, const td_node *from) {
  td_node *n = td_arena_alloc(&g->arena, sizeof *n);
  *n = *from;
  n->in = td_arena_array(&g->arena, td_edge *, (size_t)from->input_count);
  n->in_edges = n->out_edges = n->last_in = n->last_out = NULL;
  td_graph_put_node(g, n);
  return n;
}

void td_graph_remove_node(td_graph *g, td_node *n) {
  while (n->in_edges) td_graph_remove_edge(g, n->in_edges);
  while (n->out_edges) td_graph_remove_edge(g, n->out_edges);
  td_map_remove(&g->by_name, n->def.name);
  n->is_removed = true;
}

void td_node_def_set_attr(td_node_def *def, td_arena *arena, td_str name, const Pb__AttrValue *value) {
  td_attr *attrs = td_arena_array(arena, td_attr, def->attr_count + 1);
  if (def->attr_count) memcpy(attrs, def->attrs, def->attr_count * sizeof *attrs);
  size_t i = 0;
  while (i < def->attr_count && !td_str_eq(attrs[i].name, name)) i++;
  attrs[i] = (td_attr){name, value};
  def->attrs = attrs;
  if (i == def->attr_count) def->attr_count++;
}

/* ---- edges ---- */

static void link_out(td_edge *e) {
  e->prev_out = e->src->last_out;
  *(e->prev_out ? &e->prev_out->next_out : &e->src->out_edges) = e;
  e->src->last_out = e;
}

/* Puts `e` behind `before`, or first when that is NULL. */
static void link_in(td_edge *e, td_edge *before) {
  td_node *dst = e->dst;
  e->prev_in = before;
  e->next_in = before ? before->next_in : dst->in_edges;
  *(before ? &before->next_in : &dst->in_edges) = e;
  *(e->next_in ? &e->next_in->prev_in : &dst->last_in) = e;
}

static td_edge *new_edge(td_graph *g, td_node *src, int src_slot, td_node *dst, int dst_slot) {
  td_edge *e = td_arena_alloc(&g->arena, sizeof *e);
  *e = (td_edge){.src = src, .dst = dst, .src_slot = src_slot, .dst_slot = dst_slot, .id = g->next_edge_id++};
  link_out(e);
  return e;
}

td_edge *td_graph_add_edge(td_graph *g, td_node *src, int src_slot, td_node *dst, int dst_slot) {
  assert(src_slot >= 0 && src_slot < src->output_count);
  assert(dst_slot >= 0 && dst_slot < dst->input_count && !dst->in[dst_slot]);
  td_edge *e = new_edge(g, src, src_slot, dst, dst_slot);
  int before = dst_slot - 1; /* edges come slot by slot: the neighbour is nearly always there */
  while (before >= 0 && !dst->in[before]) before--;
  link_in(e, before >= 0 ? dst->in[before] : NULL);
  dst->in[dst_slot] = e;
  return e;
}

td_edge *td_graph_add_control_edge(td_graph *g, td_node *src, td_node *dst) {
  td_edge *e = new_edge(g, src, TD_CONTROL_SLOT, dst, TD_CONTROL_SLOT);
  link_in(e, dst->last_in);
  return e;
}

void td_graph_remove_edge(td_graph *g, td_edge *e) {
  (void)g;
  *(e->prev_out ? &e->prev_out->next_out : &e->src->out_edges) = e->next_out;
  *(e->next_out ? &e->next_out->prev_out : &e->src->last_out) = e->prev_out;
  *(e->prev_in ? &e->prev_in->next_in : &e->dst->in_edges) = e->next_in;
  *(e->next_in ? &e->next_in->prev_in : &e->dst->last_in) = e->prev_in;
  if (e->dst_slot >= 0) e->dst->in[e->dst_slot] = NULL;
}

/* ---- attribute values ---- */

static Pb__AttrValue *new_value(td_arena *a, Pb__AttrValue__ValueCase kind) {
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  pb__attr_value__init(v);
  v->value_case = kind;
  return v;
}

Pb__AttrValue *td_attr_value_str(td_arena *a, td_str s) {
  Pb__AttrValue *v = new_value(a, PB__ATTR_VALUE__VALUE_S);
  td_str copy = td_arena_str(a, s);
  v->s = (ProtobufCBinaryData){copy.size, (uint8_t *)copy.data};
  return v;
}

Pb__AttrValue *td_attr_value_int(td_arena *a, int64_t i) {
  Pb__AttrValue *v = new_value(a, PB__ATTR_VALUE__VALUE_I);
  v->i = i;
  return v;
}

Pb__AttrValue *td_attr_value_bool(td_arena *a, bool b) {
  Pb__AttrValue *v = new_value(a, PB__ATTR_VALUE__VALUE_B);
  v->b = b;
  return v;
}

Pb__AttrValue *td_attr_value_type(td_arena *a, td_dtype t) {
  Pb__AttrValue *v = new_value(a, PB__ATTR_VALUE__VALUE_TYPE);
  v->type = t;
  return v;
}

/* ---- errors ---- */

td_status td_graph_attach(td_status s, td_str node) {
  if (!s) return s;
  if (strstr(td_status_message(s), "{{node ")) return td_status_append(s, "\n\t [[%.*s]]", TD_STR_ARG(node));
  return td_status_append(s, "\n\t [[{{node %.*s}}]]", TD_STR_ARG(node));
}

td_status td_graph_check_types(const td_node *dst, int dst_slot, td_str src, int src_slot, int got) {
  int expected = dst->input_types[dst_slot];
  if (got == expected || (int)td_dtype_base(got) == expected) return TD_STATUS_OK;
  return td_invalid_argument("Input %d of node %.*s was passed %s from %.*s:%d incompatible with expected %s.",
                             dst_slot, TD_STR_ARG(dst->def.name), td_dtype_name(got), TD_STR_ARG(src), src_slot,
                             td_dtype_name(expected));
}

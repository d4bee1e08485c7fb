/* Graphs and messages: copies into an arena, and a graph as a GraphDef. */
#include <stdio.h>

#include "base/mem.h"
#include "graph/graph.h"
#include "graph/internal.h"

static void *arena_alloc(void *arena, size_t size) { return td_arena_alloc(arena, size ? size : 1); }

static void arena_free(void *arena, void *p) {
  (void)arena;
  (void)p;
}

td_status td_graph_copy_message(const ProtobufCMessage *message, td_arena *arena, void *out) {
  ProtobufCAllocator allocator = {.alloc = arena_alloc, .free = arena_free, .allocator_data = arena};
  size_t size = protobuf_c_message_get_packed_size(message);
  uint8_t *bytes = td_try_malloc(size ? size : 1);
  if (!bytes) return td_resource_exhausted("no memory for a copy of a message of %zu bytes", size);
  protobuf_c_message_pack(message, bytes);
  *(ProtobufCMessage **)out = protobuf_c_message_unpack(message->descriptor, &allocator, size, bytes);
  td_free(bytes);
  if (!*(ProtobufCMessage **)out) return td_invalid_argument("Malformed %s message", message->descriptor->short_name);
  return TD_STATUS_OK;
}

/* ---- the reachable part of a library ---- */

typedef struct reach {
  const td_library *library;
  td_arena *arena;
  td_map found; /* name -> FunctionDef */
  const Pb__FunctionDef **queue;
  size_t count, capacity, depth;
} reach;

static void reach_name(reach *r, td_str name) {
  for (int hops = 0; hops < 2; hops++) { /* the function, then its gradient */
    const Pb__FunctionDef *f = td_library_find(r->library, name);
    if (f && !td_map_insert(&r->found, name, (void *)f)) {
      TD_GROW(r->queue, r->count, r->capacity);
      r->queue[r->count++] = f;
    }
    const Pb__GradientDef *g = td_map_get(&r->library->gradients, name);
    if (!g) return;
    name = td_str_of(g->gradient_func);
  }
}

static void reach_value(reach *r, const Pb__AttrValue *v);

static void reach_func(reach *r, const Pb__NameAttrList *f) {
  if (r->depth > 64) return; /* decoding bounds it already */
  r->depth++;
  reach_name(r, td_str_of(f->name));
  for (size_t i = 0; i < f->n_attr; i++) reach_value(r, f->attr[i]->value);
  r->depth--;
}

static void reach_value(reach *r, const Pb__AttrValue *v) {
  if (!v) return;
  if (v->value_case == PB__ATTR_VALUE__VALUE_FUNC && v->func) reach_func(r, v->func);
  if (v->value_case == PB__ATTR_VALUE__VALUE_LIST && v->list)
    for (size_t i = 0; i < v->list->n_func; i++) reach_func(r, v->list->func[i]);
}

/* What has been found and what that reaches, in the order in which it was found; NULL: nothing. Ends `r`. */
static Pb__FunctionDefLibrary *reach_rest(reach *r) {
  Pb__FunctionDefLibrary *out = NULL;
  for (size_t i = 0; i < r->count; i++) {
    const Pb__FunctionDef *f = r->queue[i];
    for (size_t k = 0; k < f->n_node_def; k++) {
      reach_name(r, td_str_of(f->node_def[k]->op));
      for (size_t a = 0; a < f->node_def[k]->n_attr; a++) reach_value(r, f->node_def[k]->attr[a]->value);
    }
  }
  if (r->count) {
    out = td_arena_new(r->arena, Pb__FunctionDefLibrary);
    pb__function_def_library__init(out);
    out->function = td_arena_array(r->arena, Pb__FunctionDef *, r->count);
    out->gradient = td_arena_array(r->arena, Pb__GradientDef *, r->count);
    for (size_t i = 0; i < r->count; i++) {
      Pb__GradientDef *gradient = td_map_get(&r->library->gradients, td_str_of(r->queue[i]->signature->name));
      out->function[out->n_function++] = (Pb__FunctionDef *)r->queue[i];
      if (gradient) out->gradient[out->n_gradient++] = gradient;
    }
  }
  td_free(r->queue);
  td_map_deinit(&r->found);
  return out;
}

/* Functions that nodes of `g` can call, directly or not, in the order in which they were found. */
static Pb__FunctionDefLibrary *reachable_library(const td_graph *g, td_arena *arena) {
  if (!g->library->functions.count) return NULL;
  reach r = {.library = g->library, .arena = arena};
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node *n = g->nodes[i];
    if (n->is_removed) continue;
    reach_name(&r, n->def.op);
    for (size_t k = 0; k < n->def.attr_count; k++) reach_value(&r, n->def.attrs[k].value);
  }
  return reach_rest(&r);
}

Pb__FunctionDefLibrary *td_library_reach(const td_library *l, const Pb__NameAttrList *const *calls, size_t count,
                                         td_arena *arena) {
  reach r = {.library = l, .arena = arena};
  for (size_t i = 0; i < count; i++) reach_func(&r, calls[i]);
  return reach_rest(&r);
}

/* ---- nodes ---- */

static char *cstr(td_arena *arena, td_str s) {
  return s.size ? td_arena_strndup(arena, s.data, s.size) : (char *)protobuf_c_empty_string;
}

static char *input_name(td_arena *arena, const td_edge *e) {
  td_str name = e->src->def.name;
  if (e->src_slot == 0) return cstr(arena, name);
  char *text = td_arena_alloc(arena, name.size + 16);
  if (e->src_slot == TD_CONTROL_SLOT)
    snprintf(text, name.size + 16, "^%.*s", TD_STR_ARG(name));
  else
    snprintf(text, name.size + 16, "%.*s:%d", TD_STR_ARG(name), e->src_slot);
  return text;
}

static void set_original(Pb__NodeDef *out, const td_node *n, td_arena *arena) {
  if (!n->original.size || td_str_eq(n->original, n->def.name)) return;
  Pb__NodeDef__ExperimentalDebugInfo *info = td_arena_new(arena, Pb__NodeDef__ExperimentalDebugInfo);
  pb__node_def__experimental_debug_info__init(info);
  info->original_node_names = td_arena_array(arena, char *, 1);
  info->original_node_names[0] = cstr(arena, n->original);
  info->n_original_node_names = 1;
  out->experimental_debug_info = info;
}

/* Whether the attribute was not written in the graph but filled in from the op's definition: an attribute that the
 * client's TensorFlow does not know yet (clients write all that they know), and a peer of its age would refuse. */
static bool is_filled_in(const td_op_def *op, const td_attr *a) {
  for (size_t i = 0; i < op->attr_count; i++)
    if (op->attrs[i].default_value == a->value) return true;
  return false;
}

static Pb__NodeDef *node_to_proto(const td_node *n, td_arena *arena) {
  Pb__NodeDef *out = td_arena_new(arena, Pb__NodeDef);
  pb__node_def__init(out);
  out->name = cstr(arena, n->def.name);
  out->op = cstr(arena, n->def.op);
  out->device = cstr(arena, n->device.size ? n->device : n->def.device);
  size_t inputs = 0;
  for (const td_edge *e = n->in_edges; e; e = e->next_in) inputs++;
  out->input = td_arena_array(arena, char *, inputs);
  for (const td_edge *e = n->in_edges; e; e = e->next_in) out->input[out->n_input++] = input_name(arena, e);
  out->attr = td_arena_array(arena, Pb__AttrEntry *, n->def.attr_count);
  Pb__AttrEntry *entries = td_arena_array(arena, Pb__AttrEntry, n->def.attr_count);
  for (size_t i = 0; i < n->def.attr_count; i++) {
    if (is_filled_in(n->op, &n->def.attrs[i])) continue;
    pb__attr_entry__init(&entries[i]);
    entries[i].key = cstr(arena, n->def.attrs[i].name);
    entries[i].value = (Pb__AttrValue *)n->def.attrs[i].value;
    out->attr[out->n_attr++] = &entries[i];
  }
  set_original(out, n, arena);
  return out;
}

Pb__GraphDef *td_graph_to_proto(const td_graph *g, td_arena *arena) {
  Pb__GraphDef *out = td_arena_new(arena, Pb__GraphDef);
  pb__graph_def__init(out);
  out->node = td_arena_array(arena, Pb__NodeDef *, g->node_count);
  for (size_t i = 0; i < g->node_count; i++)
    if (!g->nodes[i]->is_removed) out->node[out->n_node++] = node_to_proto(g->nodes[i], arena);
  out->versions = td_arena_new(arena, Pb__VersionDef);
  pb__version_def__init(out->versions);
  out->versions->producer = g->producer;
  out->versions->min_consumer = g->min_consumer;
  out->versions->bad_consumers = td_arena_array(arena, int32_t, g->bad_consumer_count);
  out->versions->n_bad_consumers = g->bad_consumer_count;
  if (g->bad_consumer_count)
    memcpy(out->versions->bad_consumers, g->bad_consumers, g->bad_consumer_count * sizeof *g->bad_consumers);
  out->library = reachable_library(g, arena);
  return out;
}

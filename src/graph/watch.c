#include "graph/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#include "base/mem.h"
#include "framework/kernel.h"
#include "graph/internal.h"

void td_watches_append_key(td_strbuf *b, const Pb__DebugOptions *o) {
  for (size_t i = 0; o && i < o->n_debug_tensor_watch_opts; i++) {
    const Pb__DebugTensorWatch *w = o->debug_tensor_watch_opts[i];
    td_strbuf_printf(b, "w%zu:%s:%d%s", strlen(w->node_name), w->node_name, w->output_slot,
                     w->tolerate_debug_op_creation_failures ? "t" : "");
    for (size_t k = 0; k < w->n_debug_ops; k++)
      td_strbuf_printf(b, "|%zu:%s", strlen(w->debug_ops[k]), w->debug_ops[k]);
    for (size_t k = 0; k < w->n_debug_urls; k++)
      td_strbuf_printf(b, "@%zu:%s", strlen(w->debug_urls[k]), w->debug_urls[k]);
  }
}

td_str *td_watches_urls(const Pb__DebugOptions *o, td_arena *arena, size_t *count) {
  size_t all = 0;
  for (size_t i = 0; i < o->n_debug_tensor_watch_opts; i++) all += o->debug_tensor_watch_opts[i]->n_debug_urls;
  td_str *urls = td_arena_array(arena, td_str, all + 1);
  td_map seen = {0};
  *count = 0;
  for (size_t i = 0; i < o->n_debug_tensor_watch_opts; i++)
    for (size_t k = 0; k < o->debug_tensor_watch_opts[i]->n_debug_urls; k++) {
      td_str url = td_str_of(o->debug_tensor_watch_opts[i]->debug_urls[k]);
      if (!td_map_insert(&seen, url, urls)) urls[(*count)++] = url;
    }
  td_map_deinit(&seen);
  return urls;
}

/* ---- names of debug ops: "DebugNumericSummary(mute_if_healthy=true; lower_bound=-1)" ---- */

typedef struct custom_attr {
  td_str name, value;
  bool is_used;
} custom_attr;

typedef struct debug_op {
  td_str name;
  custom_attr *attrs;
  size_t attr_count;
} debug_op;

static td_status malformed(td_str text) {
  return td_invalid_argument("Malformed attributes in debug op name \"%.*s\"", TD_STR_ARG(text));
}

static td_status add_custom_attr(debug_op *op, td_str text, td_str segment) {
  td_str value = segment, name = td_str_split(&value, '=');
  if (!name.size || !value.size) return malformed(text);
  for (size_t i = 0; i < op->attr_count; i++)
    if (td_str_eq(op->attrs[i].name, name))
      return td_invalid_argument("Duplicate attribute name \"%.*s\" found in the debug op: \"%.*s\"", TD_STR_ARG(name),
                                 TD_STR_ARG(text));
  op->attrs[op->attr_count++] = (custom_attr){name, value, false};
  return TD_STATUS_OK;
}

static td_status parse_debug_op(td_str text, td_arena *arena, debug_op *out) {
  const char *left = text.size ? memchr(text.data, '(', text.size) : NULL;
  const char *right = text.size ? memchr(text.data, ')', text.size) : NULL;
  *out = (debug_op){.name = text};
  if (!left && !right) return TD_STATUS_OK;
  if (!left || left == text.data || right != text.data + text.size - 1)
    return td_invalid_argument("Malformed debug op name \"%.*s\"", TD_STR_ARG(text));
  out->name = td_str_n(text.data, (size_t)(left - text.data));
  td_str rest = td_str_n(left + 1, (size_t)(right - left - 1));
  size_t most = 1;
  for (size_t i = 0; i < rest.size; i++) most += rest.data[i] == ';';
  out->attrs = td_arena_array(arena, custom_attr, most);
  while (rest.data) {
    td_str segment = td_str_trim(td_str_split(&rest, ';'));
    if (segment.size) TD_TRY(add_custom_attr(out, text, segment));
  }
  return TD_STATUS_OK;
}

static bool text_is(td_str s, const char *word) { return s.size == strlen(word) && !strncasecmp(s.data, word, s.size); }

static bool parse_bool(td_str s, bool *out) {
  *out = text_is(s, "true") || text_is(s, "t") || text_is(s, "1");
  return *out || text_is(s, "false") || text_is(s, "f") || text_is(s, "0");
}

static bool parse_float(td_str s, float *out) {
  char text[64], *end;
  if (!s.size || s.size >= sizeof text) return false;
  memcpy(text, s.data, s.size);
  text[s.size] = 0;
  *out = strtof(text, &end);
  return end == text + s.size;
}

/* ---- the rewrite ---- */

typedef struct rewrite {
  td_graph *g;
  td_str device;
  td_arena scratch;
  td_map watches;             /* "<node>:<slot>" -> const Pb__DebugTensorWatch * */
  td_str *any_ops, *any_urls; /* of the wildcard */
  size_t any_op_count, any_url_count;
} rewrite;

/* What is to be done with one output. */
typedef struct target {
  td_node *src;
  int slot;
  td_str tensor; /* "<node>:<slot>" */
  const td_str *ops, *urls;
  size_t op_count, url_count;
  bool is_tolerant;
} target;

static Pb__AttrValue *string_list(td_arena *a, const td_str *items, size_t count) {
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  pb__attr_value__init(v);
  v->value_case = PB__ATTR_VALUE__VALUE_LIST;
  v->list = td_arena_new(a, Pb__AttrValue__ListValue);
  pb__attr_value__list_value__init(v->list);
  v->list->s = td_arena_array(a, ProtobufCBinaryData, count + 1);
  v->list->n_s = count;
  for (size_t i = 0; i < count; i++) {
    td_str copy = td_arena_str(a, items[i]);
    v->list->s[i] = (ProtobufCBinaryData){copy.size, (uint8_t *)copy.data};
  }
  return v;
}

static Pb__AttrValue *float_value(td_arena *a, float f) {
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  pb__attr_value__init(v);
  v->value_case = PB__ATTR_VALUE__VALUE_F;
  v->f = f;
  return v;
}

static void set_attr(rewrite *r, td_node_def *def, const char *name, const Pb__AttrValue *value) {
  td_node_def_set_attr(def, &r->g->arena, td_str_of(name), value);
}

static td_str *strings_of(td_arena *a, char *const *items, size_t count) {
  td_str *out = td_arena_array(a, td_str, count + 1);
  for (size_t i = 0; i < count; i++) out[i] = td_str_of(items[i]);
  return out;
}

static void append_strings(td_arena *a, td_str **to, size_t *count, char *const *items, size_t n) {
  td_str *all = td_arena_array(a, td_str, *count + n + 1);
  if (*count) memcpy(all, *to, *count * sizeof *all);
  for (size_t i = 0; i < n; i++) all[*count + i] = td_str_of(items[i]);
  *to = all;
  *count += n;
}

static td_status index_watches(rewrite *r, const Pb__DebugOptions *o) {
  for (size_t i = 0; i < o->n_debug_tensor_watch_opts; i++) {
    Pb__DebugTensorWatch *w = o->debug_tensor_watch_opts[i];
    if (!w->n_debug_ops || !w->n_debug_urls) continue;
    if (!strcmp(w->node_name, "*")) {
      if (w->output_slot != -1)
        return td_failed_precondition("output_slot is expected to be -1 for wildcard node name (\"*\"), but got %d",
                                      w->output_slot);
      append_strings(&r->scratch, &r->any_ops, &r->any_op_count, w->debug_ops, w->n_debug_ops);
      append_strings(&r->scratch, &r->any_urls, &r->any_url_count, w->debug_urls, w->n_debug_urls);
      continue;
    }
    if (w->output_slot < 0)
      return td_failed_precondition(
          "A negative output_slot in DebugTensorWatch is valid only for the wildcard node name (\"*\"), but got node "
          "name %s",
          w->node_name);
    td_str tensor = td_str_of(td_arena_printf(&r->scratch, "%s:%d", w->node_name, w->output_slot));
    td_map_put(&r->watches, tensor, w);
  }
  return TD_STATUS_OK;
}

/* So that a node runs once at a time, and its values come in order. */
static void deparallelize(rewrite *r) {
  for (size_t i = 0; i < r->g->node_count; i++) {
    td_node *n = r->g->nodes[i];
    int64_t parallel = 0;
    if (n->is_removed || n->kind != TD_NODE_ENTER) continue;
    td_status s = td_attr_int(&n->def, "parallel_iterations", &parallel);
    td_status_free(s); /* an Enter without it runs as it is */
    if (!s && parallel > 1) set_attr(r, &n->def, "parallel_iterations", td_attr_value_int(&r->g->arena, 1));
  }
}

/* Adds a node of one input, of the type that it is given. */
static td_status add_node(rewrite *r, td_node_def *def, const td_op_def *op, int type, td_node **out) {
  td_node *n;
  int *types;
  size_t count;
  td_node_add_defaults(def, op, &r->g->arena);
  TD_TRY(td_node_validate(def, op, false));
  TD_TRY(td_node_input_types(def, op, &r->scratch, &types, &count));
  if (count != 1 || types[0] != type) return td_invalid_argument("Op %.*s takes other inputs", TD_STR_ARG(op->name));
  if (td_graph_find(r->g, def->name)) return td_error(TD_ALREADY_EXISTS, "There is a node %.*s", TD_STR_ARG(def->name));
  TD_TRY(td_graph_add_node(r->g, def, op, &n));
  n->device = def->device;
  *out = n;
  return TD_STATUS_OK;
}

/* ---- Copy ---- */

static td_status copy_specs(rewrite *r, const target *t, td_str **out) {
  td_str *specs = *out = td_arena_array(&r->scratch, td_str, t->op_count * t->url_count + 1);
  for (size_t i = 0; i < t->op_count; i++) {
    debug_op op;
    bool is_gated = false;
    TD_TRY(parse_debug_op(t->ops[i], &r->scratch, &op));
    for (size_t k = 0; k < op.attr_count; k++)
      if (td_str_is(op.attrs[k].name, "gated_grpc") && !parse_bool(op.attrs[k].value, &is_gated))
        return td_invalid_argument("Invalid string for bool value: %.*s", TD_STR_ARG(op.attrs[k].value));
    for (size_t k = 0; k < t->url_count; k++)
      *specs++ = td_str_of(
          td_arena_printf(&r->scratch, "%.*s;%.*s;%d", TD_STR_ARG(op.name), TD_STR_ARG(t->urls[k]), is_gated));
  }
  return TD_STATUS_OK;
}

static td_status make_copy(rewrite *r, const target *t, td_dtype type, td_node **out) {
  static const td_str op_name = TD_STR("Copy");
  td_arena *a = &r->g->arena;
  const td_op_def *op = td_op_find(op_name);
  td_str *specs;
  TD_TRY(copy_specs(r, t, &specs));
  td_node_def def = {.op = op_name, .device = r->device};
  def.name = td_str_of(td_arena_printf(a, "__copy_%.*s_%d", TD_STR_ARG(t->src->def.name), t->slot));
  set_attr(r, &def, "T", td_attr_value_type(a, type));
  set_attr(r, &def, "tensor_name", td_attr_value_str(a, t->tensor));
  set_attr(r, &def, "debug_ops_spec", string_list(a, specs, t->op_count * t->url_count));
  td_status s = op && td_kernel_find(&def, TD_STR("CPU"))
                    ? add_node(r, &def, op, type, out)
                    : td_failed_precondition("Failed to find kernel definition for copy op %.*s on watched tensor %.*s",
                                             TD_STR_ARG(def.name), TD_STR_ARG(t->tensor));
  return s;
}

/* ---- debug nodes ---- */

static td_status set_custom_attr(rewrite *r, td_node_def *def, const td_attr_def *attr, td_str value) {
  td_arena *a = &r->g->arena;
  const char *kind;
  Pb__AttrValue *v = NULL;
  int64_t number;
  float real;
  bool flag;
  switch (attr->is_list ? TD_ATTR_FUNC : attr->kind) {
    case TD_ATTR_STRING:
      kind = "string";
      v = td_attr_value_str(a, value);
      break;
    case TD_ATTR_FLOAT:
      kind = "float";
      if (parse_float(value, &real)) v = float_value(a, real);
      break;
    case TD_ATTR_INT:
      kind = "int";
      if (td_str_to_i64(value, &number)) v = td_attr_value_int(a, number);
      break;
    case TD_ATTR_BOOL:
      kind = "bool";
      if (parse_bool(value, &flag)) v = td_attr_value_bool(a, flag);
      break;
    default:
      return td_invalid_argument("Unsupported type of custom attribute for debug ops: %.*s", TD_STR_ARG(attr->name));
  }
  if (!v)
    return td_invalid_argument("Invalid value string for %s-type attribute %.*s of debug node %.*s: \"%.*s\"", kind,
                               TD_STR_ARG(attr->name), TD_STR_ARG(def->name), TD_STR_ARG(value));
  td_node_def_set_attr(def, a, attr->name, v);
  return TD_STATUS_OK;
}

static td_status set_custom_attrs(rewrite *r, td_node_def *def, const td_op_def *op, debug_op *parsed) {
  size_t unknown = 0;
  td_strbuf names = {0};
  for (size_t i = 0; i < parsed->attr_count; i++) {
    const td_attr_def *attr = td_op_attr(op, parsed->attrs[i].name);
    td_status s = attr ? set_custom_attr(r, def, attr, parsed->attrs[i].value) : TD_STATUS_OK;
    if (s) {
      td_strbuf_deinit(&names);
      return s;
    }
    if (attr) continue;
    td_strbuf_printf(&names, "%s%.*s", unknown++ ? ", " : "", TD_STR_ARG(parsed->attrs[i].name));
  }
  td_status s = TD_STATUS_OK;
  if (unknown)
    s = td_invalid_argument("%zu attribute key(s) were not valid for debug node %.*s: %s", unknown,
                            TD_STR_ARG(def->name), td_strbuf_cstr(&names));
  td_strbuf_deinit(&names);
  return s;
}

static td_status make_debug_node(rewrite *r, const target *t, size_t index, td_dtype type, td_node **out) {
  td_arena *a = &r->g->arena;
  debug_op parsed;
  TD_TRY(parse_debug_op(t->ops[index], &r->scratch, &parsed));
  const td_op_def *op = td_op_find(parsed.name);
  if (!op)
    return td_failed_precondition("Failed to create node definition for debug op %.*s on watched tensor %.*s",
                                  TD_STR_ARG(parsed.name), TD_STR_ARG(t->tensor));
  td_node_def def = {.op = op->name, .device = r->device};
  def.name =
      td_str_of(td_arena_printf(a, "__dbg_%.*s_%zu_%.*s", TD_STR_ARG(t->tensor), index, TD_STR_ARG(parsed.name)));
  set_attr(r, &def, "T", td_attr_value_type(a, type));
  set_attr(r, &def, "device_name", td_attr_value_str(a, r->device));
  set_attr(r, &def, "tensor_name", td_attr_value_str(a, t->tensor));
  set_attr(r, &def, "debug_urls", string_list(a, t->urls, t->url_count));
  if (!td_kernel_find(&def, TD_STR("CPU")))
    return td_failed_precondition("Failed to find kernel definition for debug op %.*s on watched tensor %.*s",
                                  TD_STR_ARG(parsed.name), TD_STR_ARG(t->tensor));
  TD_TRY(set_custom_attrs(r, &def, op, &parsed));
  return add_node(r, &def, op, type, out);
}

/* ---- one output ---- */

/* The debug nodes of a copy; *count of them could be made. */
static td_status make_debug_nodes(rewrite *r, const target *t, td_dtype type, td_node *copy, td_node **nodes,
                                  size_t *count) {
  *count = 0;
  for (size_t i = 0; i < t->op_count; i++) {
    td_node *n;
    td_status s = make_debug_node(r, t, i, type, &n);
    if (!s) {
      td_graph_add_edge(r->g, copy, 0, n, 0);
      nodes[(*count)++] = n;
    } else if (t->is_tolerant) {
      td_status_free(s);
    } else {
      td_status why = td_failed_precondition("Failed to create debug node %.*s for tensor %.*s, due to: %s",
                                             TD_STR_ARG(t->ops[i]), TD_STR_ARG(t->tensor), td_status_message(s));
      td_status_free(s);
      return why;
    }
  }
  return TD_STATUS_OK;
}

static td_status watch_output(rewrite *r, const target *t) {
  td_node *src = t->src, *copy;
  int full = src->output_types[t->slot];
  td_dtype type = td_dtype_base(full);
  size_t edge_count = 0, node_count = 0;
  for (td_edge *e = src->out_edges; e; e = e->next_out) edge_count += e->src_slot == t->slot;
  td_edge **edges = td_arena_array(&r->scratch, td_edge *, edge_count + 1);
  edge_count = 0;
  for (td_edge *e = src->out_edges; e; e = e->next_out)
    if (e->src_slot == t->slot) edges[edge_count++] = e;
  td_status s = make_copy(r, t, type, &copy);
  if (s) {
    td_status why = td_failed_precondition("Failed to create Copy/CopyHost node for tensor %.*s, due to: %s",
                                           TD_STR_ARG(t->tensor), td_status_message(s));
    td_status_free(s);
    return why;
  }
  td_graph_add_edge(r->g, src, t->slot, copy, 0);
  td_node **nodes = td_arena_array(&r->scratch, td_node *, t->op_count + 1);
  TD_TRY(make_debug_nodes(r, t, type, copy, nodes, &node_count));
  bool waits = src->kind != TD_NODE_ENTER && src->kind != TD_NODE_NEXT_ITERATION; /* a loop would never begin */
  for (size_t i = 0; i < edge_count; i++) {
    td_node *dst = edges[i]->dst;
    int dst_slot = edges[i]->dst_slot;
    if (!td_dtype_is_ref(full)) {
      td_graph_remove_edge(r->g, edges[i]);
      td_graph_add_edge(r->g, copy, 0, dst, dst_slot);
    }
    for (size_t k = 0; k < node_count && waits; k++) td_graph_add_control_edge(r->g, nodes[k], dst);
  }
  return TD_STATUS_OK;
}

static td_status watch_node(rewrite *r, td_node *n) {
  for (int slot = 0; slot < n->output_count; slot++) {
    target t = {.src = n, .slot = slot, .ops = r->any_ops, .urls = r->any_urls};
    t.op_count = r->any_op_count;
    t.url_count = r->any_url_count;
    t.tensor = td_str_of(td_arena_printf(&r->scratch, "%.*s:%d", TD_STR_ARG(n->def.name), slot));
    const Pb__DebugTensorWatch *w = td_map_get(&r->watches, t.tensor);
    if (w) {
      t.ops = strings_of(&r->scratch, w->debug_ops, t.op_count = w->n_debug_ops);
      t.urls = strings_of(&r->scratch, w->debug_urls, t.url_count = w->n_debug_urls);
      t.is_tolerant = w->tolerate_debug_op_creation_failures;
    }
    if (t.op_count) TD_TRY(watch_output(r, &t));
  }
  return TD_STATUS_OK;
}

td_status td_watches_insert(const Pb__DebugOptions *o, td_graph *g, td_str device) {
  rewrite r = {.g = g, .device = td_arena_str(&g->arena, device)};
  deparallelize(&r);
  td_status s = index_watches(&r, o);
  size_t count = g->node_count; /* nodes that are added now are not watched; nor is anything by a wildcard alone */
  for (size_t i = 0; !s && r.watches.count && i < count; i++)
    if (!g->nodes[i]->is_removed) s = watch_node(&r, g->nodes[i]);
  td_map_deinit(&r.watches);
  td_arena_deinit(&r.scratch);
  return s;
}

#include "graph/lower.h"

#include "base/log.h"
#include "base/mem.h"
#include "graph/internal.h"
#include "graph/lower_internal.h"

enum { MAX_DEPTH = 100 };

/* The functions inside which a node stands. */
typedef struct scope {
  const struct scope *outer;
  td_str function;
  int depth;
} scope;

typedef struct lowerer {
  td_graph *g;
  const td_lower_options *o;
  size_t first;
  bool has_control_flow;  /* loops or branches that the client wrote */
  const scope **scope_of; /* by node id - first */
  size_t scope_count, scope_capacity;
  td_arena scratch;
} lowerer;

/* ---- nodes ---- */

static td_str original_of(const td_node *n) { return n->original.size ? n->original : n->def.name; }

td_status td_lower_add(td_graph *g, td_node *n, const char *part, const char *op, const td_output *inputs,
                       size_t input_count, const td_attr *attrs, size_t attr_count, td_node **out) {
  td_arena scratch = {0};
  td_str prefix = td_str_of(td_arena_printf(&scratch, "%.*s/%s", TD_STR_ARG(n->def.name), part));
  td_new_node spec = {.name = td_graph_new_name(g, prefix),
                      .op = td_str_of(op),
                      .device = n->def.device,
                      .original = original_of(n),
                      .inputs = inputs,
                      .input_count = input_count,
                      .attrs = attrs,
                      .attr_count = attr_count};
  td_arena_deinit(&scratch);
  return td_graph_build_node(g, &spec, out);
}

static bool is_marked(const td_node *n, const char *attr) {
  const Pb__AttrValue *v = td_attr_find(&n->def, attr);
  return v && v->value_case == PB__ATTR_VALUE__VALUE_B && v->b;
}

static bool has_text(const td_node *n, const char *attr) {
  const Pb__AttrValue *v = td_attr_find(&n->def, attr);
  return v && v->value_case == PB__ATTR_VALUE__VALUE_S && v->s.len;
}

/* ---- functions ---- */

/* f's attributes as a node's. */
static td_node_def def_of(const Pb__NameAttrList *f, td_arena *arena) {
  td_node_def def = {.name = td_str_of(f->name), .op = td_str_of(f->name)};
  def.attrs = td_arena_array(arena, td_attr, f->n_attr);
  for (size_t i = 0; i < f->n_attr; i++)
    if (f->attr[i]->value) def.attrs[def.attr_count++] = (td_attr){td_str_of(f->attr[i]->key), f->attr[i]->value};
  return def;
}

static bool same_types(const int *a, size_t a_count, const int *b, size_t b_count) {
  bool same = a_count == b_count;
  for (size_t i = 0; same && i < a_count; i++) same = td_dtype_base(a[i]) == td_dtype_base(b[i]);
  return same;
}

bool td_function_fits(td_library *library, const Pb__NameAttrList *f, const int *inputs, size_t input_count,
                      const int *outputs, size_t output_count) {
  td_arena scratch = {0};
  const td_op_def *op =
      td_library_find(library, td_str_of(f->name)) ? td_library_op(library, td_str_of(f->name)) : NULL;
  int *types;
  size_t count;
  bool fits = false;
  if (op) {
    td_node_def def = def_of(f, &scratch);
    td_node_add_defaults(&def, op, &scratch);
    td_status s = td_node_validate(&def, op, true);
    if (!s) s = td_node_input_types(&def, op, &scratch, &types, &count);
    if (!s && same_types(types, count, inputs, input_count)) {
      s = td_node_output_types(&def, op, &scratch, &types, &count);
      fits = !s && same_types(types, count, outputs, output_count);
    }
    td_status_free(s);
  }
  td_arena_deinit(&scratch);
  return fits;
}

td_status td_lower_add_call(td_graph *g, td_node *n, const char *part, const Pb__NameAttrList *f,
                            const td_output *inputs, size_t input_count, td_node **out) {
  td_node_def def = def_of(f, &g->arena);
  td_attr *attrs = td_arena_array(&g->arena, td_attr, def.attr_count + 1);
  if (def.attr_count) memcpy(attrs, def.attrs, def.attr_count * sizeof *attrs);
  attrs[def.attr_count++] = (td_attr){TD_STR("_lower_as_multi_device_function"), td_attr_value_bool(&g->arena, true)};
  return td_lower_add(g, n, part, f->name, inputs, input_count, attrs, def.attr_count, out);
}

/* ---- replacing ---- */

static td_status add_substitute(td_graph *g, const td_node *n, const td_output *values, td_node *done) {
  td_node *substitute;
  td_new_node spec = {.name = n->def.name, .device = n->def.device, .original = n->original};
  spec.op = n->output_count ? TD_STR("IdentityN") : TD_STR("NoOp");
  spec.inputs = values;
  spec.input_count = (size_t)n->output_count;
  TD_TRY(td_graph_build_node(g, &spec, &substitute));
  substitute->is_lowered = true;
  substitute->is_made = false;
  td_graph_add_control_edge(g, done, substitute);
  return TD_STATUS_OK;
}

td_status td_lower_replace(td_graph *g, td_node *n, const td_output *values, td_node *done) {
  while (n->out_edges) {
    td_edge e = *n->out_edges;
    td_graph_remove_edge(g, n->out_edges);
    if (e.src_slot == TD_CONTROL_SLOT)
      td_graph_add_control_edge(g, done, e.dst);
    else
      td_graph_add_edge(g, values[e.src_slot].node, values[e.src_slot].slot, e.dst, e.dst_slot);
  }
  td_graph_remove_node(g, n);
  return n->is_made ? TD_STATUS_OK : add_substitute(g, n, values, done);
}

/* ---- calls ---- */

/* The function that a node calls, in *out; false when it calls none that could be inlined. */
static bool called_function(lowerer *l, const td_node *n, bool *is_partitioned, Pb__NameAttrList **out) {
  const Pb__NameAttrList *f;
  *is_partitioned = td_str_is(n->def.op, "PartitionedCall") || td_str_is(n->def.op, "StatefulPartitionedCall");
  if (*is_partitioned) {
    td_status s = td_attr_func(&n->def, "f", &f);
    *out = (Pb__NameAttrList *)f;
    td_status_free(s);
    return !s && f->name && td_library_find(l->g->library, td_str_of(f->name));
  }
  if (!td_library_find(l->g->library, n->def.op)) return false;
  *out = td_attr_value_func(&l->g->arena, n->def.op, n->def.attrs, n->def.attr_count)->func;
  return true;
}

static const scope *scope_at(const lowerer *l, const td_node *n) {
  size_t at = (size_t)n->id - l->first;
  return at < l->scope_count ? l->scope_of[at] : NULL;
}

/* All nodes that came since belong to `s`. */
static void enter_scope(lowerer *l, const scope *s) {
  while (l->scope_count < l->g->node_count - l->first) {
    TD_GROW(l->scope_of, l->scope_count, l->scope_capacity);
    l->scope_of[l->scope_count++] = s;
  }
}

static bool may_inline(const lowerer *l, const td_node *n, const Pb__FunctionDef *f) {
  td_str name = td_str_of(f->signature->name);
  const scope *at = scope_at(l, n);
  if (td_function_is_marked(f, "_noinline") || l->g->node_count > l->o->max_nodes || (at && at->depth >= MAX_DEPTH))
    return false;
  for (size_t i = 0; i < f->n_attr; i++)
    if (!strcmp(f->attr[i]->key, "api_implements")) return false;
  for (; at; at = at->outer)
    if (td_str_eq(at->function, name)) return false;
  return true;
}

static bool has_control_flow(const td_graph *g) {
  for (size_t i = 0; i < g->node_count; i++)
    if (g->nodes[i]->kind >= TD_NODE_SWITCH && g->nodes[i]->kind <= TD_NODE_LOOP_COND && !g->nodes[i]->is_made)
      return true;
  return false;
}

static td_status inline_call(lowerer *l, td_node *n) {
  bool is_partitioned, is_marked_call = is_marked(n, "_lower_as_multi_device_function");
  Pb__NameAttrList *function;
  td_function_body body;
  td_str executor = {0};
  if (!called_function(l, n, &is_partitioned, &function)) return TD_STATUS_OK;
  if (!is_partitioned && !is_marked_call && !l->o->inline_all) return TD_STATUS_OK;
  const Pb__FunctionDef *f = td_library_find(l->g->library, td_str_of(function->name));
  if (is_partitioned) td_status_free(td_attr_str(&n->def, "executor_type", &executor));
  if (executor.size || !may_inline(l, n, f)) return TD_STATUS_OK;
  if (!td_function_fits(l->g->library, function, n->input_types, (size_t)n->input_count, n->output_types,
                        (size_t)n->output_count))
    return TD_STATUS_OK;
  td_status s = td_function_body_create(l->g->library, f, function, &body);
  if (s) { /* an error only for those who run the call */
    td_debug("function %s is not inlined: %s", function->name, td_status_message(s));
    td_status_free(s);
    return TD_STATUS_OK;
  }
  const scope *outer = scope_at(l, n);
  scope *inner = td_arena_new(&l->scratch, scope);
  *inner = (scope){outer, td_str_of(f->signature->name), outer ? outer->depth + 1 : 1};
  td_inline_options o = {.is_multi_device = is_partitioned || is_marked_call,
                         .has_effects = is_partitioned && !is_marked_call};
  if (!l->has_control_flow) l->has_control_flow = has_control_flow(body.graph);
  o.is_in_control_flow = l->has_control_flow;
  s = td_graph_inline_call(l->g, n, &body, &o);
  enter_scope(l, inner);
  return s;
}

/* ---- the pass ---- */

static td_status lower_control_flow(lowerer *l, td_node *n) {
  bool did = false;
  if (td_str_is(n->def.op, "If") || td_str_is(n->def.op, "StatelessIf") || td_str_is(n->def.op, "Case") ||
      td_str_is(n->def.op, "StatelessCase"))
    TD_TRY(td_lower_branches(l->g, n, &did));
  else if (td_str_is(n->def.op, "While") || td_str_is(n->def.op, "StatelessWhile"))
    TD_TRY(td_lower_while(l->g, n, &did));
  if (did) enter_scope(l, scope_at(l, n));
  return TD_STATUS_OK;
}

static td_status lower_node(lowerer *l, td_node *n) {
  if (n->is_removed || n->is_lowered || has_text(n, "_tpu_replicate") || has_text(n, "_xla_compile_id"))
    return TD_STATUS_OK;
  return is_marked(n, "_lower_using_switch_merge") && l->g->node_count <= l->o->max_nodes ? lower_control_flow(l, n)
                                                                                          : inline_call(l, n);
}

td_status td_graph_lower(td_graph *g, size_t first, const td_lower_options *options) {
  if (!g->library->functions.count) return TD_STATUS_OK;
  lowerer l = {.g = g, .o = options, .first = first, .has_control_flow = has_control_flow(g)};
  td_status s = TD_STATUS_OK;
  scope outer = {.function = options->function};
  enter_scope(&l, options->function.size ? &outer : NULL);
  for (size_t i = first; i < g->node_count && !s; i++) s = lower_node(&l, g->nodes[i]); /* new ones come behind */
  td_free(l.scope_of);
  td_arena_deinit(&l.scratch);
  return s;
}

enum { MAX_BODY_NODES = 10000 };

td_status td_function_body_lower(td_function_body *body, td_str function) {
  td_graph *g = body->graph;
  td_lower_options options = {.inline_all = true, .function = function, .max_nodes = MAX_BODY_NODES + g->node_count};
  size_t before = g->node_count;
  TD_TRY(td_graph_lower(g, 0, &options));
  if (g->node_count == before) return TD_STATUS_OK;
  for (size_t i = 0; i < body->control_count; i++) /* a lowered node's name stands for it */
    if (body->controls[i]->is_removed) body->controls[i] = td_graph_find(g, body->controls[i]->def.name);
  td_function_body_prune(body);
  return TD_STATUS_OK;
}

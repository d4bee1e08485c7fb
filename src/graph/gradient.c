#include "graph/gradient.h"

#include "base/mem.h"

/* The gradients that have come in for one output of a node. */
typedef struct sum {
  td_output *items;
  size_t count, capacity;
} sum;

typedef struct builder {
  td_function_body *f; /* its graph grows */
  td_library *library;
  size_t node_count; /* of the function itself; what comes behind them are gradients */
  bool *is_reached;  /* by node id: an argument leads here and it leads to a result, along data edges */
  size_t *expected;  /* by node id: edges along which a gradient has yet to come */
  sum **sums;        /* by node id: one per output */
  td_node **ready;   /* a queue: nodes that got all */
  size_t head, tail;
  td_arena scratch;
} builder;

/* ---- which nodes take part ---- */

static bool is_data(const td_edge *e) { return e->src_slot != TD_CONTROL_SLOT; }

/* Follows data edges from `from`, with the current or against it, through nodes of `through` (NULL: all). */
static bool *spread(builder *b, td_node **from, size_t count, bool backwards, const bool *through) {
  bool *seen = td_arena_array(&b->scratch, bool, b->node_count);
  td_node **stack = td_arena_array(&b->scratch, td_node *, b->node_count);
  size_t depth = 0;
  for (size_t i = 0; i < count; i++) {
    if (seen[from[i]->id] || (through && !through[from[i]->id])) continue;
    seen[from[i]->id] = true;
    stack[depth++] = from[i];
  }
  while (depth) {
    const td_node *n = stack[--depth];
    for (const td_edge *e = backwards ? n->in_edges : n->out_edges; e; e = backwards ? e->next_in : e->next_out) {
      td_node *next = backwards ? e->src : e->dst;
      if (!is_data(e) || seen[next->id] || (through && !through[next->id])) continue;
      seen[next->id] = true;
      stack[depth++] = next;
    }
  }
  return seen;
}

static void prepare(builder *b) {
  td_function_body *f = b->f;
  b->node_count = f->graph->node_count;
  bool *from_args = spread(b, f->args, f->arg_count, false, NULL);
  b->is_reached = spread(b, f->results, f->result_count, true, from_args);
  b->expected = td_arena_array(&b->scratch, size_t, b->node_count);
  b->sums = td_arena_array(&b->scratch, sum *, b->node_count);
  b->ready = td_arena_array(&b->scratch, td_node *, b->node_count);
  for (size_t i = 0; i < b->node_count; i++) {
    const td_node *n = f->graph->nodes[i];
    if (!b->is_reached[i]) continue;
    b->sums[i] = td_arena_array(&b->scratch, sum, (size_t)n->output_count);
    for (const td_edge *e = n->out_edges; e; e = e->next_out)
      if (is_data(e) && b->is_reached[e->dst->id]) b->expected[i]++;
  }
}

/* ---- gradients along edges ---- */

/* `dy` comes in for the source of `e`; node NULL: a zero. */
static void flow(builder *b, const td_edge *e, td_output dy) {
  size_t src = (size_t)e->src->id;
  if (!b->is_reached[src]) return;
  sum *s = &b->sums[src][e->src_slot];
  if (dy.node) {
    if (s->count == s->capacity) {
      size_t capacity = s->capacity ? s->capacity * 2 : 2;
      td_output *items = td_arena_array(&b->scratch, td_output, capacity);
      if (s->count) memcpy(items, s->items, s->count * sizeof *items);
      s->items = items;
      s->capacity = capacity;
    }
    s->items[s->count++] = dy;
  }
  if (--b->expected[src] == 0) b->ready[b->tail++] = e->src;
}

static td_status total(builder *b, td_node *n, int slot, td_output *out) {
  td_graph *g = b->f->graph;
  const sum *s = b->sums[n->id] ? &b->sums[n->id][slot] : NULL;
  if (!s || !s->count || td_dtype_base(n->output_types[slot]) == TD_BOOL)
    return td_gradient_zeros(g, (td_output){n, slot}, out);
  *out = s->items[0];
  if (s->count == 1) return TD_STATUS_OK;
  td_new_node spec = {.name = td_graph_new_name(g, TD_STR("Func")),
                      .op = TD_STR("AddN"),
                      .device = n->def.device,
                      .inputs = s->items,
                      .input_count = s->count};
  out->slot = 0;
  return td_graph_build_node(g, &spec, &out->node);
}

/* ---- one node ---- */

/* The gradient of a call: another SymbolicGradient, of x… and dy…. */
static td_status call_gradient(builder *b, td_node *n, const td_output *dy, td_output *dx) {
  td_graph *g = b->f->graph;
  size_t x = (size_t)n->input_count, y = (size_t)n->output_count;
  td_output *inputs = td_arena_array(&b->scratch, td_output, x + y);
  int *types = td_arena_array(&b->scratch, int, x);
  for (size_t i = 0; i < x; i++) {
    inputs[i] = (td_output){n->in[i]->src, n->in[i]->src_slot};
    types[i] = n->input_types[i] == TD_RESOURCE ? TD_FLOAT : n->input_types[i];
  }
  if (y) memcpy(inputs + x, dy, y * sizeof *dy);
  td_attr attrs[] = {{TD_STR("Tout"), td_attr_value_types(&g->arena, types, x)},
                     {TD_STR("f"), td_attr_value_func(&g->arena, n->def.op, n->def.attrs, n->def.attr_count)}};
  td_new_node spec = {.name = td_graph_new_name(g, TD_STR("Func")),
                      .op = TD_STR("SymbolicGradient"),
                      .device = n->def.device,
                      .original = n->original.size ? n->original : n->def.name,
                      .inputs = inputs,
                      .input_count = x + y,
                      .attrs = attrs,
                      .attr_count = TD_COUNT(attrs)};
  td_node *call;
  TD_TRY(td_graph_build_node(g, &spec, &call));
  for (size_t i = 0; i < x; i++) dx[i] = (td_output){call, (int)i};
  return TD_STATUS_OK;
}

static td_status no_gradient(td_str op) { return td_not_found("No gradient defined for op: %.*s", TD_STR_ARG(op)); }

static td_status differentiate(builder *b, td_node *n) {
  bool is_call = td_library_find(b->library, n->def.op);
  const td_gradient_rule *rule = is_call ? NULL : td_gradient_rule_find(n->def.op);
  if (!is_call && !rule) return no_gradient(n->def.op);
  td_output *dx = td_arena_array(&b->scratch, td_output, (size_t)n->input_count);
  if (is_call || rule->args) {
    td_output *dy = td_arena_array(&b->scratch, td_output, (size_t)n->output_count);
    for (int i = 0; i < n->output_count; i++) TD_TRY(total(b, n, i, &dy[i]));
    TD_TRY(is_call ? call_gradient(b, n, dy, dx) : td_gradient_expand(b->f->graph, rule, n, dy, dx));
  }
  for (int i = 0; i < n->input_count; i++) flow(b, n->in[i], dx[i]);
  return TD_STATUS_OK;
}

/* ---- a body ---- */

static td_status add_end(td_function_body *f, bool is_arg, int type, size_t index, td_node **out) {
  td_str name = td_graph_new_name(f->graph, TD_STR("Func"));
  return td_function_body_add_end(f->graph, is_arg ? "_Arg" : "_Retval", name, type, (int64_t)index, out);
}

/* The arguments that bring the results' gradients, which start the flow. */
static td_status add_seeds(builder *b, td_node **args, size_t *arg_count) {
  td_function_body *f = b->f;
  for (size_t i = 0; i < f->result_count; i++) {
    const td_node *y = f->results[i];
    td_node *dy;
    TD_TRY(add_end(f, true, y->input_types[0], *arg_count, &dy));
    args[(*arg_count)++] = dy;
    if (b->is_reached[y->id]) flow(b, y->in[0], (td_output){dy, 0});
  }
  return TD_STATUS_OK;
}

static td_status replace_results(builder *b, td_node **args, size_t arg_count) {
  td_function_body *f = b->f;
  td_node **results = td_arena_array(&f->graph->arena, td_node *, f->arg_count);
  for (size_t i = 0; i < f->arg_count; i++) {
    td_output dx;
    TD_TRY(total(b, f->args[i], 0, &dx));
    TD_TRY(add_end(f, false, dx.node->output_types[dx.slot], i, &results[i]));
    td_graph_add_edge(f->graph, dx.node, dx.slot, results[i], 0);
  }
  for (size_t i = 0; i < f->result_count; i++) td_graph_remove_node(f->graph, f->results[i]);
  f->results = results;
  f->result_count = f->arg_count;
  f->args = args;
  f->arg_count = arg_count;
  f->control_count = 0;
  return TD_STATUS_OK;
}

static td_status differentiate_body(builder *b) {
  td_function_body *f = b->f;
  size_t arg_count = f->arg_count;
  td_node **args = td_arena_array(&f->graph->arena, td_node *, f->arg_count + f->result_count);
  if (f->arg_count) memcpy(args, f->args, f->arg_count * sizeof *args);
  prepare(b);
  TD_TRY(add_seeds(b, args, &arg_count));
  while (b->head < b->tail) {
    td_node *n = b->ready[b->head++];
    if (!td_str_is(n->def.op, "_Arg")) TD_TRY(differentiate(b, n));
  }
  TD_TRY(replace_results(b, args, arg_count));
  td_function_body_prune(f);
  return TD_STATUS_OK;
}

/* A body that consists of one op. */
static td_status op_body(td_library *library, const td_op_def *op, const Pb__NameAttrList *call,
                         td_function_body *out) {
  td_graph *g = td_graph_create(library);
  td_function_body f = {.graph = g};
  td_node_def def = {.name = TD_STR("op"), .op = op->name};
  def.attrs = td_arena_array(&g->arena, td_attr, call->n_attr);
  td_status s = TD_STATUS_OK;
  td_node *n = NULL;
  for (size_t i = 0; i < call->n_attr && !s; i++) {
    if (!call->attr[i]->value) s = td_invalid_argument("Attribute %s has no value", call->attr[i]->key);
    def.attrs[def.attr_count++] = (td_attr){td_str_of(call->attr[i]->key), call->attr[i]->value};
  }
  if (!s) {
    td_node_add_defaults(&def, op, &g->arena);
    s = td_node_validate(&def, op, true);
  }
  if (!s) s = td_graph_add_node(g, &def, op, &n);
  if (!s) {
    f.arg_count = (size_t)n->input_count;
    f.result_count = (size_t)n->output_count;
    f.args = td_arena_array(&g->arena, td_node *, f.arg_count);
    f.results = td_arena_array(&g->arena, td_node *, f.result_count);
  }
  for (size_t i = 0; i < f.arg_count && !s; i++) {
    s = add_end(&f, true, n->input_types[i], i, &f.args[i]);
    if (!s) td_graph_add_edge(g, f.args[i], 0, n, (int)i);
  }
  for (size_t i = 0; i < f.result_count && !s; i++) {
    s = add_end(&f, false, n->output_types[i], i, &f.results[i]);
    if (!s) td_graph_add_edge(g, n, (int)i, f.results[i], 0);
  }
  if (s)
    td_graph_release(g);
  else
    *out = f;
  return s;
}

td_status td_gradient_body_create(td_library *library, const Pb__NameAttrList *f, td_function_body *out) {
  td_str name = td_str_of(f->name);
  const Pb__FunctionDef *def = td_library_find(library, name);
  const td_op_def *op = def ? NULL : td_op_find(name);
  td_function_body body;
  if (def) {
    TD_TRY(td_function_body_create(library, def, f, &body));
  } else {
    const td_gradient_rule *rule = td_gradient_rule_find(name);
    if (!op || !rule) return no_gradient(name);
    if (!rule->args) return td_invalid_argument("No gradient is defined for %s", f->name);
    TD_TRY(op_body(library, op, f, &body));
  }
  builder b = {.f = &body, .library = library};
  td_status s = differentiate_body(&b);
  td_arena_deinit(&b.scratch);
  if (s)
    td_graph_release(body.graph);
  else
    *out = body;
  return s;
}

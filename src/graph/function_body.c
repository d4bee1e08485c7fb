#include "graph/function_body.h"

#include "base/mem.h"

enum { MAX_FUNC_DEPTH = 32 };

/* What a name in the body stands for: outputs [first, first + count) of a node, or `count` argument nodes. */
typedef struct item {
  td_node *node;  /* of an argument: the first one */
  td_node **args; /* NULL unless an argument */
  int first, count;
} item;

typedef struct builder {
  td_library *library;
  const Pb__FunctionDef *f;
  td_node_def call;    /* the call's attributes, with defaults */
  const td_op_def *op; /* the function's own definition */
  td_graph *g;
  td_function_body *body;
  td_node **nodes; /* of the body, as in f->node_def */
  td_map items;    /* name -> item */
  td_arena scratch;
} builder;

static td_status add_item(builder *b, td_str name, item value) {
  item *i = td_arena_new(&b->scratch, item);
  *i = value;
  if (td_map_insert(&b->items, name, i))
    return td_invalid_argument("Duplicated name %.*s in function %s", TD_STR_ARG(name), b->f->signature->name);
  return TD_STATUS_OK;
}

/* ---- attributes ---- */

static td_status substitute(builder *b, const Pb__AttrValue *v, int depth, const Pb__AttrValue **out);

static td_status substitute_func(builder *b, const Pb__NameAttrList *from, int depth, Pb__NameAttrList **out) {
  if (depth >= MAX_FUNC_DEPTH) return td_invalid_argument("Function attributes are nested too deeply");
  Pb__NameAttrList *f = td_arena_new(&b->g->arena, Pb__NameAttrList);
  *f = *from;
  f->attr = td_arena_array(&b->g->arena, Pb__AttrEntry *, from->n_attr);
  for (size_t i = 0; i < from->n_attr; i++) {
    const Pb__AttrValue *value;
    if (!from->attr[i]->value) return td_invalid_argument("Attribute %s has no value", from->attr[i]->key);
    TD_TRY(substitute(b, from->attr[i]->value, depth + 1, &value));
    f->attr[i] = td_arena_new(&b->g->arena, Pb__AttrEntry);
    *f->attr[i] = *from->attr[i];
    f->attr[i]->value = (Pb__AttrValue *)value;
  }
  *out = f;
  return TD_STATUS_OK;
}

static td_status substitute(builder *b, const Pb__AttrValue *v, int depth, const Pb__AttrValue **out) {
  *out = v;
  if (v->value_case == PB__ATTR_VALUE__VALUE_PLACEHOLDER) {
    *out = td_attr_find(&b->call, v->placeholder);
    if (!*out) return td_invalid_argument("Failed to bind all placeholders: %s is not given", v->placeholder);
  } else if (v->value_case == PB__ATTR_VALUE__VALUE_FUNC) {
    Pb__AttrValue *copy = td_arena_new(&b->g->arena, Pb__AttrValue);
    *copy = *v;
    TD_TRY(substitute_func(b, v->func, depth, &copy->func));
    *out = copy;
  } else if (v->value_case == PB__ATTR_VALUE__VALUE_LIST && v->list->n_func) {
    Pb__AttrValue *copy = td_arena_new(&b->g->arena, Pb__AttrValue);
    *copy = *v;
    copy->list = td_arena_new(&b->g->arena, Pb__AttrValue__ListValue);
    *copy->list = *v->list;
    copy->list->func = td_arena_array(&b->g->arena, Pb__NameAttrList *, v->list->n_func);
    for (size_t i = 0; i < v->list->n_func; i++)
      TD_TRY(substitute_func(b, v->list->func[i], depth, &copy->list->func[i]));
    *out = copy;
  }
  return TD_STATUS_OK;
}

/* ---- nodes ---- */

static td_status add_node(builder *b, const td_node_def *def, const td_op_def *op, td_node **out) {
  if (td_graph_find(b->g, def->name))
    return td_invalid_argument("Duplicated name %.*s in function %s", TD_STR_ARG(def->name), b->f->signature->name);
  return td_graph_add_node(b->g, def, op, out);
}

td_status td_function_body_add_end(td_graph *g, const char *op, td_str name, int type, int64_t index, td_node **out) {
  td_arena *a = &g->arena;
  const td_op_def *definition = td_op_find(td_str_of(op));
  if (!definition) return td_op_not_found(td_str_of(op));
  td_node_def def = {.name = td_arena_str(a, name), .op = definition->name, .attr_count = 2};
  def.attrs = td_arena_array(a, td_attr, 2);
  def.attrs[0] = (td_attr){TD_STR("T"), td_attr_value_type(a, td_dtype_base(type))};
  def.attrs[1] = (td_attr){TD_STR("index"), td_attr_value_int(a, index)};
  if (td_graph_find(g, def.name))
    return td_invalid_argument("Duplicated name %.*s in a function", TD_STR_ARG(def.name));
  return td_graph_add_node(g, &def, definition, out);
}

static td_status add_args(builder *b) {
  int *types;
  size_t total;
  TD_TRY(td_node_input_types(&b->call, b->op, &b->scratch, &types, &total));
  td_node **nodes = b->body->args = td_arena_array(&b->g->arena, td_node *, total);
  b->body->arg_count = total;
  for (size_t i = 0; i < b->op->input_count; i++) {
    td_str name = b->op->inputs[i].name;
    char *c_name = td_arena_strndup(&b->scratch, name.data, name.size);
    int begin, end;
    TD_TRY(td_node_input_range(&b->call, b->op, c_name, &begin, &end));
    for (int k = begin; k < end; k++) {
      const char *own = end - begin > 1 ? td_arena_printf(&b->scratch, "%s_%d", c_name, k - begin) : c_name;
      TD_TRY(td_function_body_add_end(b->g, "_Arg", td_str_of(own), types[k], k, &nodes[k]));
      const char *single = td_arena_printf(&b->scratch, "%s:%d", c_name, k - begin);
      TD_TRY(add_item(b, td_str_of(single), (item){.node = nodes[k], .args = &nodes[k], .count = 1}));
    }
    TD_TRY(add_item(b, td_str_of(c_name),
                    (item){.node = end > begin ? nodes[begin] : NULL, .args = nodes + begin, .count = end - begin}));
  }
  return TD_STATUS_OK;
}

static td_status make_def(builder *b, const Pb__NodeDef *from, const td_op_def *op, td_node_def *def) {
  *def = (td_node_def){.name = td_str_of(from->name), .op = td_str_of(from->op), .device = td_str_of(from->device)};
  def->attrs = td_arena_array(&b->g->arena, td_attr, from->n_attr);
  for (size_t i = 0; i < from->n_attr; i++) {
    if (!from->attr[i]->value) return td_invalid_argument("Attribute %s has no value", from->attr[i]->key);
    td_str name = td_str_of(from->attr[i]->key);
    if (!td_op_attr(op, name) && !td_str_starts(name, TD_STR("_"))) continue; /* of a newer op; peers refuse it */
    td_attr *attr = &def->attrs[def->attr_count++];
    attr->name = name;
    TD_TRY(substitute(b, from->attr[i]->value, 0, &attr->value));
  }
  td_node_add_defaults(def, op, &b->g->arena);
  return td_node_validate(def, op, true);
}

static td_status add_body_node(builder *b, size_t at) {
  const Pb__NodeDef *from = b->f->node_def[at];
  const td_op_def *op = td_library_op(b->library, td_str_of(from->op));
  if (!op) return td_op_not_found(td_str_of(from->op));
  td_node_def def;
  TD_TRY(make_def(b, from, op, &def));
  td_node *n;
  TD_TRY(add_node(b, &def, op, &n));
  b->nodes[at] = n;
  TD_TRY(add_item(b, n->def.name, (item){.node = n})); /* for control inputs */
  for (size_t i = 0; i < op->output_count; i++) {
    td_str out = op->outputs[i].name;
    char *c_name = td_arena_strndup(&b->scratch, out.data, out.size);
    int begin, end;
    TD_TRY(td_node_output_range(&n->def, op, c_name, &begin, &end));
    const char *all = td_arena_printf(&b->scratch, "%s:%s", from->name, c_name);
    TD_TRY(add_item(b, td_str_of(all), (item){.node = n, .first = begin, .count = end - begin}));
    for (int k = begin; k < end; k++) {
      const char *one = td_arena_printf(&b->scratch, "%s:%d", all, k - begin);
      TD_TRY(add_item(b, td_str_of(one), (item){.node = n, .first = k, .count = 1}));
    }
  }
  return TD_STATUS_OK;
}

/* ---- edges ---- */

static int type_of(const item *i, int k) {
  return i->args ? i->args[k]->output_types[0] : i->node->output_types[i->first + k];
}

/* Connects all that `name` stands for to inputs from `slot` on. */
static td_status connect(builder *b, const char *name, td_node *dst, int *slot) {
  const item *i = td_map_get(&b->items, td_str_of(name));
  if (!i) return td_invalid_argument("input %s is not found", name);
  if (i->count > dst->input_count - *slot) return td_invalid_argument("Input %s too long for inputs", name);
  for (int k = 0; k < i->count; k++, ++*slot) {
    int have = type_of(i, k), want = dst->input_types[*slot];
    if (have != want && (td_dtype_is_ref(want) || td_dtype_base(have) != td_dtype_base(want)))
      return td_invalid_argument("input %s[%d] expected type %s != %s, the type of the output it is connected to", name,
                                 k, td_dtype_name(want), td_dtype_name(have));
    if (i->args)
      td_graph_add_edge(b->g, i->args[k], 0, dst, *slot);
    else
      td_graph_add_edge(b->g, i->node, i->first + k, dst, *slot);
  }
  return TD_STATUS_OK;
}

static td_status connect_inputs(builder *b, size_t at) {
  const Pb__NodeDef *from = b->f->node_def[at];
  td_node *n = b->nodes[at];
  int slot = 0;
  for (size_t i = 0; i < from->n_input; i++) {
    const char *name = from->input[i];
    if (name[0] != '^') {
      TD_TRY(connect(b, name, n, &slot));
      continue;
    }
    const item *src = td_map_get(&b->items, td_str_of(name + 1));
    if (!src) return td_invalid_argument("input %s is not found", name);
    if (!src->args) {
      td_graph_add_control_edge(b->g, src->node, n);
      continue;
    }
    for (int k = 0; k < src->count; k++) td_graph_add_control_edge(b->g, src->args[k], n);
  }
  if (slot != n->input_count)
    return td_invalid_argument("node %s has %d inputs, its op takes %d", from->name, slot, n->input_count);
  return TD_STATUS_OK;
}

static const char *find_entry(Pb__StringEntry **entries, size_t n, td_str key) {
  for (size_t i = 0; i < n; i++)
    if (td_str_is(key, entries[i]->key)) return entries[i]->value;
  return NULL;
}

static td_status add_results(builder *b) {
  int *types;
  size_t total;
  TD_TRY(td_node_output_types(&b->call, b->op, &b->scratch, &types, &total));
  b->body->results = td_arena_array(&b->g->arena, td_node *, total);
  b->body->result_count = total;
  for (size_t i = 0; i < b->op->output_count; i++) {
    td_str name = b->op->outputs[i].name;
    char *c_name = td_arena_strndup(&b->scratch, name.data, name.size);
    int begin, end;
    TD_TRY(td_node_output_range(&b->call, b->op, c_name, &begin, &end));
    const char *source = find_entry(b->f->ret, b->f->n_ret, name);
    if (!source) return td_invalid_argument("Return %s missing.", c_name);
    const item *from = td_map_get(&b->items, td_str_of(source));
    if (!from) return td_invalid_argument("Return %s: %s is not found", c_name, source);
    if (from->count != end - begin)
      return td_invalid_argument("Return %s: %s has %d values, %d are declared", c_name, source, from->count,
                                 end - begin);
    for (int k = 0; k < from->count; k++) {
      int have = type_of(from, k);
      if (td_dtype_base(have) != td_dtype_base(types[begin + k]))
        return td_invalid_argument("Invalid ret types %s : %s vs. %s", c_name, td_dtype_name(types[begin + k]),
                                   td_dtype_name(have));
      const char *own = from->count > 1 ? td_arena_printf(&b->scratch, "%s_RetVal_%d", c_name, k)
                                        : td_arena_printf(&b->scratch, "%s_RetVal", c_name);
      td_node *n;
      TD_TRY(td_function_body_add_end(b->g, "_Retval", td_str_of(own), have, begin + k, &n));
      b->body->results[begin + k] = n;
      if (from->args)
        td_graph_add_edge(b->g, from->args[k], 0, n, 0);
      else
        td_graph_add_edge(b->g, from->node, from->first + k, n, 0);
    }
  }
  return TD_STATUS_OK;
}

/* ---- what need not run ---- */

static void find_controls(builder *b) {
  b->body->controls = td_arena_array(&b->g->arena, td_node *, b->f->n_control_ret);
  for (size_t i = 0; i < b->f->n_control_ret; i++) {
    td_node *n = td_graph_find(b->g, td_str_of(b->f->control_ret[i]->value));
    if (n) b->body->controls[b->body->control_count++] = n;
  }
}

void td_function_body_prune(td_function_body *body) {
  td_graph *g = body->graph;
  td_arena scratch = {0};
  bool *keep = td_arena_array(&scratch, bool, g->node_count);
  td_node **stack = td_arena_array(&scratch, td_node *, g->node_count);
  size_t top = 0;
  for (size_t i = 0; i < body->control_count; i++) keep[body->controls[i]->id] = true;
  for (size_t i = 0; i < g->node_count; i++) {
    if (g->nodes[i]->is_removed) continue;
    if (g->nodes[i]->op->flags & TD_OP_STATEFUL) keep[i] = true; /* arguments and results as well */
    if (keep[i]) stack[top++] = g->nodes[i];
  }
  while (top) {
    const td_node *n = stack[--top];
    for (const td_edge *e = n->in_edges; e; e = e->next_in) {
      if (keep[e->src->id]) continue;
      keep[e->src->id] = true;
      stack[top++] = e->src;
    }
  }
  for (size_t i = 0; i < g->node_count; i++)
    if (!keep[i] && !g->nodes[i]->is_removed) td_graph_remove_node(g, g->nodes[i]);
  td_arena_deinit(&scratch);
}

bool td_function_is_marked(const Pb__FunctionDef *f, const char *attr) {
  for (size_t i = 0; i < f->n_attr; i++) {
    const Pb__AttrValue *v = f->attr[i]->value;
    if (!strcmp(f->attr[i]->key, attr)) return v && v->value_case == PB__ATTR_VALUE__VALUE_B && v->b;
  }
  return false;
}

/* Only a loop's NextIteration leads back: what else waits for itself would never run. */
static td_status check_acyclic(builder *b) {
  size_t count = b->g->node_count, done = 0;
  int *pending = td_arena_array(&b->scratch, int, count);
  td_node **ready = td_arena_array(&b->scratch, td_node *, count);
  size_t ready_count = 0;
  for (size_t i = 0; i < count; i++) {
    for (const td_edge *e = b->g->nodes[i]->in_edges; e; e = e->next_in)
      pending[i] += e->src->kind != TD_NODE_NEXT_ITERATION;
    if (!pending[i]) ready[ready_count++] = b->g->nodes[i];
  }
  for (; done < ready_count; done++) {
    if (ready[done]->kind == TD_NODE_NEXT_ITERATION) continue;
    for (const td_edge *e = ready[done]->out_edges; e; e = e->next_out)
      if (--pending[e->dst->id] == 0) ready[ready_count++] = e->dst;
  }
  if (done == count) return TD_STATUS_OK;
  return td_invalid_argument("%zu nodes in a cycle in function %s", count - done, b->f->signature->name);
}

static td_status build(builder *b, const Pb__NameAttrList *call) {
  const char *name = b->f->signature->name;
  b->op = td_library_op(b->library, td_str_of(name));
  if (!b->op) return td_op_not_found(td_str_of(name));
  b->call = (td_node_def){.name = td_str_of(name), .op = td_str_of(name)};
  b->call.attrs = td_arena_array(&b->scratch, td_attr, call->n_attr);
  for (size_t i = 0; i < call->n_attr; i++) {
    if (!call->attr[i]->value) return td_invalid_argument("Attribute %s has no value", call->attr[i]->key);
    b->call.attrs[b->call.attr_count++] = (td_attr){td_str_of(call->attr[i]->key), call->attr[i]->value};
  }
  td_node_add_defaults(&b->call, b->op, &b->scratch);
  TD_TRY(add_args(b));
  b->nodes = td_arena_array(&b->scratch, td_node *, b->f->n_node_def);
  for (size_t i = 0; i < b->f->n_node_def; i++) {
    td_status s = add_body_node(b, i);
    if (s) return td_status_append(s, "\n\t [[{{node %s}}]]", b->f->node_def[i]->name);
  }
  for (size_t i = 0; i < b->f->n_node_def; i++) {
    td_status s = connect_inputs(b, i);
    if (s) return td_status_append(s, "\n\t [[{{node %s}}]]", b->f->node_def[i]->name);
  }
  TD_TRY(add_results(b));
  TD_TRY(check_acyclic(b));
  find_controls(b);
  td_function_body_prune(b->body);
  return TD_STATUS_OK;
}

td_status td_function_body_create(td_library *library, const Pb__FunctionDef *f, const Pb__NameAttrList *call,
                                  td_function_body *out) {
  if (!f->signature) return td_invalid_argument("A function without a signature");
  td_function_body body = {.graph = td_graph_create(library)};
  builder b = {.library = library, .f = f, .g = body.graph, .body = &body};
  td_status s = build(&b, call);
  td_map_deinit(&b.items);
  td_arena_deinit(&b.scratch);
  if (s)
    td_graph_release(body.graph);
  else
    *out = body;
  return s;
}

#include "graph/build.h"

#include "graph/internal.h"

/* ---- attribute values ---- */

Pb__AttrValue *td_attr_value_types(td_arena *arena, const int *types, size_t count) {
  Pb__AttrValue *v = td_arena_new(arena, Pb__AttrValue);
  pb__attr_value__init(v);
  v->value_case = PB__ATTR_VALUE__VALUE_LIST;
  v->list = td_arena_new(arena, Pb__AttrValue__ListValue);
  pb__attr_value__list_value__init(v->list);
  v->list->n_type = count;
  v->list->type = td_arena_array(arena, int32_t, count);
  for (size_t i = 0; i < count; i++) v->list->type[i] = td_dtype_base(types[i]);
  return v;
}

Pb__AttrValue *td_attr_value_func(td_arena *arena, td_str name, const td_attr *attrs, size_t attr_count) {
  Pb__AttrValue *v = td_arena_new(arena, Pb__AttrValue);
  pb__attr_value__init(v);
  v->value_case = PB__ATTR_VALUE__VALUE_FUNC;
  v->func = td_arena_new(arena, Pb__NameAttrList);
  pb__name_attr_list__init(v->func);
  v->func->name = td_arena_strndup(arena, name.data, name.size);
  v->func->attr = td_arena_array(arena, Pb__AttrEntry *, attr_count);
  for (size_t i = 0; i < attr_count; i++) {
    Pb__AttrEntry *entry = v->func->attr[i] = td_arena_new(arena, Pb__AttrEntry);
    pb__attr_entry__init(entry);
    entry->key = td_arena_strndup(arena, attrs[i].name.data, attrs[i].name.size);
    entry->value = (Pb__AttrValue *)attrs[i].value;
  }
  v->func->n_attr = attr_count;
  return v;
}

/* ---- what the inputs tell ---- */

typedef struct inference {
  td_graph *g;
  const td_new_node *spec;
  const td_op_def *op;
  td_node_def *def; /* room for all attributes */
} inference;

static const Pb__AttrValue *known(const inference *in, td_str name) {
  for (size_t i = 0; i < in->def->attr_count; i++)
    if (td_str_eq(in->def->attrs[i].name, name)) return in->def->attrs[i].value;
  return NULL;
}

static void learn(inference *in, td_str name, const Pb__AttrValue *value) {
  if (name.size && !known(in, name)) in->def->attrs[in->def->attr_count++] = (td_attr){name, value};
}

static int type_at(const inference *in, size_t i) {
  const td_output *o = &in->spec->inputs[i];
  return o->node->output_types[o->slot];
}

/* The length of an argument; -1 while nothing gives it. */
static int64_t length_of(const inference *in, const td_arg_def *arg) {
  td_str by = arg->number_attr.size ? arg->number_attr : arg->type_list_attr;
  if (!by.size) return 1;
  const Pb__AttrValue *v = known(in, by);
  if (!v) return -1;
  return arg->number_attr.size ? v->i : v->list ? (int64_t)v->list->n_type : 0;
}

/* Arguments of unknown length share what the others leave. */
static int64_t share_of_unknown(const inference *in) {
  int64_t left = (int64_t)in->spec->input_count, unknown = 0;
  for (size_t i = 0; i < in->op->input_count; i++) {
    int64_t length = length_of(in, &in->op->inputs[i]);
    if (length < 0)
      unknown++;
    else
      left -= length;
  }
  return unknown && left > 0 ? left / unknown : 0;
}

static td_status infer(inference *in) {
  td_arena *a = &in->g->arena;
  int64_t share = share_of_unknown(in);
  size_t at = 0, total = in->spec->input_count;
  for (size_t i = 0; i < in->op->input_count; i++) {
    const td_arg_def *arg = &in->op->inputs[i];
    int64_t length = length_of(in, arg);
    if (length < 0) length = share;
    if (length < 0 || (uint64_t)length > total - at)
      return td_invalid_argument("%.*s takes more inputs than the %zu given", TD_STR_ARG(in->op->name), total);
    learn(in, arg->number_attr, td_attr_value_int(a, length));
    if (arg->type_list_attr.size && !known(in, arg->type_list_attr)) {
      int *types = td_arena_array(a, int, (size_t)length);
      for (int64_t k = 0; k < length; k++) types[k] = type_at(in, at + (size_t)k);
      learn(in, arg->type_list_attr, td_attr_value_types(a, types, (size_t)length));
    } else if (length) {
      learn(in, arg->type_attr, td_attr_value_type(a, td_dtype_base(type_at(in, at))));
    }
    at += (size_t)length;
  }
  return TD_STATUS_OK;
}

/* As values of its own: what shares the definition's is not sent to peers, as something the client did not write. */
static void add_defaults(td_graph *g, td_node_def *def, const td_op_def *op) {
  size_t given = def->attr_count;
  td_node_add_defaults(def, op, &g->arena);
  for (size_t i = given; i < def->attr_count; i++) {
    Pb__AttrValue *own = td_arena_new(&g->arena, Pb__AttrValue);
    *own = *def->attrs[i].value;
    def->attrs[i].value = own;
  }
}

static td_status connect(td_graph *g, const td_new_node *spec, td_node *n) {
  if ((size_t)n->input_count != spec->input_count)
    return td_invalid_argument("%.*s takes %d inputs, %zu are given", TD_STR_ARG(spec->op), n->input_count,
                               spec->input_count);
  for (int i = 0; i < n->input_count; i++) {
    const td_output *o = &spec->inputs[i];
    TD_TRY(td_graph_check_types(n, i, o->node->def.name, o->slot, o->node->output_types[o->slot]));
    td_graph_add_edge(g, o->node, o->slot, n, i);
  }
  return TD_STATUS_OK;
}

td_status td_graph_build_node(td_graph *g, const td_new_node *spec, td_node **out) {
  const td_op_def *op = td_library_op(g->library, spec->op);
  if (!op) return td_op_not_found(spec->op);
  td_node_def def = {.name = spec->name, .op = op->name, .device = spec->device, .attr_count = spec->attr_count};
  def.attrs = td_arena_array(&g->arena, td_attr, spec->attr_count + op->attr_count + op->input_count * 2);
  if (spec->attr_count) memcpy(def.attrs, spec->attrs, spec->attr_count * sizeof *def.attrs);
  inference in = {.g = g, .spec = spec, .op = op, .def = &def};
  td_node *n;
  TD_TRY(infer(&in));
  add_defaults(g, &def, op);
  TD_TRY(td_node_validate(&def, op, true));
  TD_TRY(td_graph_add_node(g, &def, op, &n));
  n->original = spec->original;
  n->is_made = true;
  td_status s = connect(g, spec, n);
  if (s) {
    td_graph_remove_node(g, n);
    return td_graph_attach(s, spec->name);
  }
  *out = n;
  return TD_STATUS_OK;
}

td_str td_graph_new_name(td_graph *g, td_str prefix) {
  for (;;) {
    td_str name = td_str_of(td_arena_printf(&g->arena, "%.*s/_%lld", TD_STR_ARG(prefix), (long long)g->next_name++));
    if (!td_graph_find(g, name)) return name;
  }
}

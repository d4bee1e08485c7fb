/* A rule's text, made into nodes. */
#include <ctype.h>
#include <stdlib.h>

#include "graph/gradient.h"
#include "graph/internal.h"

typedef struct values {
  td_output *items;
  size_t count;
} values;

typedef struct reader {
  td_graph *g;
  const td_gradient_rule *rule;
  const td_node *n; /* what is differentiated */
  const char *p;
  td_map vars; /* name -> values */
  td_arena scratch;
} reader;

/* ---- characters ---- */

static void skip_blanks(reader *r) {
  while (*r->p == ' ') r->p++;
}

static bool take(reader *r, char c) {
  skip_blanks(r);
  if (*r->p != c) return false;
  r->p++;
  return true;
}

static td_str take_word(reader *r) {
  skip_blanks(r);
  const char *begin = r->p;
  while (isalnum((unsigned char)*r->p) || *r->p == '_') r->p++;
  return td_str_n(begin, (size_t)(r->p - begin));
}

static td_status mistake(const reader *r, const char *wanted) {
  return td_internal("The gradient of %s: %s expected at '%.20s'", r->rule->op, wanted, r->p);
}

/* ---- nodes ---- */

static td_status build(reader *r, td_str op, values inputs, const td_attr *attrs, size_t attr_count, td_node **out) {
  td_new_node spec = {.name = td_graph_new_name(r->g, TD_STR("Func")),
                      .op = op,
                      .device = r->n->def.device,
                      .original = r->n->original.size ? r->n->original : r->n->def.name,
                      .inputs = inputs.items,
                      .input_count = inputs.count,
                      .attrs = attrs,
                      .attr_count = attr_count};
  return td_graph_build_node(r->g, &spec, out);
}

static values one(reader *r, td_node *n) {
  td_output *o = td_arena_new(&r->scratch, td_output);
  o->node = n;
  return (values){o, 1};
}

static td_status number_type(const reader *r, td_dtype *out) {
  const Pb__AttrValue *t = td_attr_find(&r->n->def, "T");
  *out = t && t->value_case == PB__ATTR_VALUE__VALUE_TYPE ? (td_dtype)t->type : TD_FLOAT;
  return TD_STATUS_OK;
}

static td_status constant(reader *r, td_dtype type, double value, bool is_vector, values *out) {
  td_arena *a = &r->g->arena;
  Pb__TensorProto *t = td_arena_new(a, Pb__TensorProto);
  pb__tensor_proto__init(t);
  t->dtype = type;
  t->tensor_shape = td_arena_new(a, Pb__TensorShapeProto);
  pb__tensor_shape_proto__init(t->tensor_shape);
  if (is_vector) {
    t->tensor_shape->n_dim = 1;
    t->tensor_shape->dim = td_arena_array(a, Pb__TensorShapeProto__Dim *, 1);
    t->tensor_shape->dim[0] = td_arena_new(a, Pb__TensorShapeProto__Dim);
    pb__tensor_shape_proto__dim__init(t->tensor_shape->dim[0]);
    t->tensor_shape->dim[0]->size = 1;
  }
  if (type == TD_FLOAT) {
    t->n_float_val = 1;
    t->float_val = td_arena_array(a, float, 1);
    t->float_val[0] = (float)value;
  } else {
    t->n_int_val = 1;
    t->int_val = td_arena_array(a, int32_t, 1);
    t->int_val[0] = (int32_t)value;
  }
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  pb__attr_value__init(v);
  v->value_case = PB__ATTR_VALUE__VALUE_TENSOR;
  v->tensor = t;
  td_attr attrs[] = {{TD_STR("value"), v}, {TD_STR("dtype"), td_attr_value_type(a, type)}};
  td_node *n;
  TD_TRY(build(r, TD_STR("Const"), (values){0}, attrs, 2, &n));
  *out = one(r, n);
  return TD_STATUS_OK;
}

/* "3", "-1", "#-1", "0.5", "2." */
static td_status read_number(reader *r, values *out) {
  bool is_vector = take(r, '#');
  char *end;
  double value = strtod(r->p, &end);
  bool is_int = !memchr(r->p, '.', (size_t)(end - r->p));
  td_dtype type;
  if (end == r->p) return mistake(r, "a number");
  r->p = end;
  if (is_int) return constant(r, TD_INT32, value, is_vector, out);
  TD_TRY(number_type(r, &type));
  TD_TRY(constant(r, TD_FLOAT, value, false, out));
  if (type == TD_FLOAT) return TD_STATUS_OK;
  td_attr to = {TD_STR("DstT"), td_attr_value_type(&r->g->arena, type)};
  td_node *n;
  TD_TRY(build(r, TD_STR("Cast"), *out, &to, 1, &n));
  *out = one(r, n);
  return TD_STATUS_OK;
}

/* ---- expressions ---- */

static td_status read_expression(reader *r, values *out);

static td_status read_list(reader *r, char end, values *out) {
  *out = (values){0};
  while (!take(r, end)) {
    values v;
    TD_TRY(read_expression(r, &v));
    td_output *items = td_arena_array(&r->scratch, td_output, out->count + v.count);
    if (out->count) memcpy(items, out->items, out->count * sizeof *items);
    if (v.count) memcpy(items + out->count, v.items, v.count * sizeof *items);
    *out = (values){items, out->count + v.count};
    if (!take(r, ',') && *r->p != end) return mistake(r, "','");
  }
  return TD_STATUS_OK;
}

static td_status read_attr_value(reader *r, const Pb__AttrValue **out) {
  td_arena *a = &r->g->arena;
  bool is_own = take(r, '$');
  td_str word = take_word(r);
  if (is_own) {
    *out = td_attr_find(&r->n->def, td_arena_strndup(&r->scratch, word.data, word.size));
    return *out ? TD_STATUS_OK : mistake(r, "an attribute of the op");
  }
  if (td_str_is(word, "true") || td_str_is(word, "false")) {
    *out = td_attr_value_bool(a, td_str_is(word, "true"));
  } else if (td_str_is(word, "int32")) {
    *out = td_attr_value_type(a, TD_INT32);
  } else {
    return mistake(r, "an attribute's value");
  }
  return TD_STATUS_OK;
}

/* All attributes of the op at hand that `op` has too and that are not given. */
static size_t copy_attrs(const reader *r, const td_op_def *op, td_attr *attrs, size_t count) {
  for (size_t i = 0; i < r->n->def.attr_count; i++) {
    const td_attr *own = &r->n->def.attrs[i];
    bool is_given = !td_op_attr(op, own->name);
    for (size_t k = 0; k < count && !is_given; k++) is_given = td_str_eq(attrs[k].name, own->name);
    if (!is_given) attrs[count++] = *own;
  }
  return count;
}

static td_status read_attrs(reader *r, td_str op_name, td_attr **out, size_t *count) {
  const td_op_def *op = td_op_find(op_name);
  if (!op) return td_op_not_found(op_name);
  *out = td_arena_array(&r->scratch, td_attr, op->attr_count + r->n->def.attr_count + 4);
  *count = 0;
  if (!take(r, '{')) return TD_STATUS_OK;
  while (!take(r, '}')) {
    if (take(r, '*')) {
      *count = copy_attrs(r, op, *out, *count);
    } else {
      const td_attr_def *attr = td_op_attr(op, take_word(r));
      const Pb__AttrValue *value;
      if (!attr || *count >= op->attr_count || !take(r, '=')) return mistake(r, "an attribute");
      TD_TRY(read_attr_value(r, &value));
      (*out)[(*count)++] = (td_attr){attr->name, value};
    }
    if (!take(r, ',') && *r->p != '}') return mistake(r, "'}'");
  }
  return TD_STATUS_OK;
}

static td_status read_call(reader *r, td_str op, values *out) {
  values inputs;
  td_attr *attrs = NULL;
  size_t attr_count = 0;
  td_node *n;
  TD_TRY(read_list(r, ')', &inputs));
  TD_TRY(read_attrs(r, op, &attrs, &attr_count));
  TD_TRY(build(r, op, inputs, attrs, attr_count, &n));
  out->count = (size_t)n->output_count;
  out->items = td_arena_array(&r->scratch, td_output, out->count);
  for (int i = 0; i < n->output_count; i++) out->items[i] = (td_output){n, i};
  return TD_STATUS_OK;
}

static td_status read_variable(reader *r, td_str name, values *out) {
  const values *v = td_map_get(&r->vars, name);
  if (!v) return mistake(r, "a name");
  *out = *v;
  if (*r->p != '.') return TD_STATUS_OK;
  r->p++;
  char *end;
  size_t k = strtoul(r->p, &end, 10);
  if (k >= v->count) return mistake(r, "an index in range");
  r->p = end;
  *out = (values){v->items + k, 1};
  return TD_STATUS_OK;
}

static td_status read_expression(reader *r, values *out) {
  skip_blanks(r);
  if (*r->p == '#' || *r->p == '-' || isdigit((unsigned char)*r->p)) return read_number(r, out);
  if (take(r, '[')) return read_list(r, ']', out);
  td_str word = take_word(r);
  if (!word.size) return mistake(r, "an expression");
  return take(r, '(') ? read_call(r, word, out) : read_variable(r, word, out);
}

static void set_variable(reader *r, td_str name, values v) {
  values *kept = td_arena_new(&r->scratch, values);
  *kept = v;
  td_map_put(&r->vars, name, kept);
}

static td_status read_statements(reader *r) {
  do {
    skip_blanks(r);
    if (!*r->p) break;
    td_str name = take_word(r);
    values v;
    if (!name.size || !take(r, '=')) return mistake(r, "a statement");
    TD_TRY(read_expression(r, &v));
    set_variable(r, name, v);
  } while (take(r, ';'));
  return *r->p ? mistake(r, "';'") : TD_STATUS_OK;
}

/* ---- the op's ends ---- */

static td_status range_of(const reader *r, size_t arg, int *begin, int *end) {
  const td_op_def *op = r->n->op;
  bool is_input = arg < op->input_count;
  td_str name = is_input ? op->inputs[arg].name : op->outputs[arg - op->input_count].name;
  char text[256];
  if (name.size >= sizeof text) return td_internal("The argument %.*s has too long a name", TD_STR_ARG(name));
  memcpy(text, name.data, name.size);
  text[name.size] = '\0';
  return is_input ? td_node_input_range(&r->n->def, op, text, begin, end)
                  : td_node_output_range(&r->n->def, op, text, begin, end);
}

/* Calls fn for each name of the rule's arguments with the flat ends that it stands for. */
static td_status name_ends(reader *r, const td_output *dy) {
  td_str rest = td_str_of(r->rule->args);
  for (size_t arg = 0; rest.size; arg++) {
    td_str name = td_str_split(&rest, ' ');
    int begin, end;
    if (arg >= r->n->op->input_count + r->n->op->output_count) return mistake(r, "fewer arguments");
    TD_TRY(range_of(r, arg, &begin, &end));
    values v = {td_arena_array(&r->scratch, td_output, (size_t)(end - begin)), (size_t)(end - begin)};
    for (int k = begin; k < end; k++) {
      if (arg >= r->n->op->input_count)
        v.items[k - begin] = dy[k];
      else if (r->n->in[k])
        v.items[k - begin] = (td_output){r->n->in[k]->src, r->n->in[k]->src_slot};
      else
        return td_internal("%.*s lacks input %d", TD_STR_ARG(r->n->def.name), k);
    }
    set_variable(r, name, v);
  }
  return TD_STATUS_OK;
}

static td_status take_results(reader *r, td_output *dx) {
  td_str rest = td_str_of(r->rule->args);
  for (size_t arg = 0; arg < r->n->op->input_count; arg++) {
    td_str name = td_str_split(&rest, ' ');
    char *own = td_arena_printf(&r->scratch, "d%.*s", TD_STR_ARG(name));
    const values *v = name.size ? td_map_get(&r->vars, td_str_of(own)) : NULL;
    int begin, end;
    TD_TRY(range_of(r, arg, &begin, &end));
    if (v && v->count != (size_t)(end - begin))
      return td_internal("The gradient of %s has %zu values for %d inputs", r->rule->op, v->count, end - begin);
    for (int k = begin; k < end; k++) {
      td_output x = {r->n->in[k]->src, r->n->in[k]->src_slot};
      if (v)
        dx[k] = v->items[k - begin];
      else
        TD_TRY(td_gradient_zeros(r->g, x, &dx[k]));
    }
  }
  return TD_STATUS_OK;
}

td_status td_gradient_expand(td_graph *g, const td_gradient_rule *rule, td_node *n, const td_output *dy,
                             td_output *dx) {
  reader r = {.g = g, .rule = rule, .n = n};
  td_strbuf text = {0};
  td_status s = TD_STATUS_OK;
  if (rule->write)
    s = rule->write(n, &text);
  else
    td_strbuf_puts(&text, rule->text);
  r.p = td_strbuf_cstr(&text);
  if (!s) s = name_ends(&r, dy);
  if (!s) s = read_statements(&r);
  if (!s) s = take_results(&r, dx);
  td_strbuf_deinit(&text);
  td_map_deinit(&r.vars);
  td_arena_deinit(&r.scratch);
  return s;
}

td_status td_gradient_zeros(td_graph *g, td_output of, td_output *out) {
  td_node *n;
  td_attr dtype = {TD_STR("dtype"), td_attr_value_type(&g->arena, TD_FLOAT)};
  td_new_node spec = {.op = TD_STR("ZerosLike"), .device = of.node->def.device, .inputs = &of, .input_count = 1};
  if (td_dtype_base(of.node->output_types[of.slot]) == TD_RESOURCE) {
    td_new_node read = spec;
    read.name = td_graph_new_name(g, TD_STR("Read"));
    read.op = TD_STR("ReadVariableOp");
    read.attrs = &dtype;
    read.attr_count = 1;
    TD_TRY(td_graph_build_node(g, &read, &n));
    of = (td_output){n, 0};
  }
  spec.name = td_graph_new_name(g, TD_STR("Func"));
  TD_TRY(td_graph_build_node(g, &spec, &n));
  *out = (td_output){n, 0};
  return TD_STATUS_OK;
}

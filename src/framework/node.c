/* Nodes against their op's definition: types of edges, defaults, validation. */
#include <stdio.h>

#include "base/mem.h"
#include "framework/op.h"

enum { MAX_EDGES = 65536 };

const td_attr_def *td_op_attr(const td_op_def *op, td_str name) {
  for (size_t i = 0; i < op->attr_count; i++)
    if (td_str_eq(op->attrs[i].name, name)) return &op->attrs[i];
  return NULL;
}

static const Pb__AttrValue *find(const td_node_def *n, td_str name) {
  for (size_t i = 0; i < n->attr_count; i++)
    if (td_str_eq(n->attrs[i].name, name)) return n->attrs[i].value;
  return NULL;
}

/* How many edges an argument stands for, and their type (TD_INVALID: taken from *list). */
static td_status expand(const td_node_def *n, const td_op_def *op, const td_arg_def *arg, int64_t *count, int *type,
                        const Pb__AttrValue__ListValue **list) {
  *count = 1;
  *type = arg->type;
  *list = NULL;
  td_str attr = arg->number_attr;
  if (attr.size) {
    const Pb__AttrValue *v = find(n, attr);
    if (!v || v->value_case != PB__ATTR_VALUE__VALUE_I) goto missing;
    if (v->i < 0 || v->i > MAX_EDGES)
      return td_invalid_argument("Value for number_attr() %lld < 0 or too large; NodeDef: {{node %.*s}}",
                                 (long long)v->i, TD_STR_ARG(n->name));
    *count = v->i;
  }
  attr = arg->type_list_attr;
  if (attr.size) {
    const Pb__AttrValue *v = find(n, attr);
    if (!v || v->value_case != PB__ATTR_VALUE__VALUE_LIST) goto missing;
    if (v->list->n_type > MAX_EDGES)
      return td_invalid_argument("attr '%.*s' of node '%.*s' has too many types: %zu", TD_STR_ARG(attr),
                                 TD_STR_ARG(n->name), v->list->n_type);
    *list = v->list;
    *count = (int64_t)v->list->n_type;
  }
  attr = arg->type_attr;
  if (attr.size) {
    const Pb__AttrValue *v = find(n, attr);
    if (!v || v->value_case != PB__ATTR_VALUE__VALUE_TYPE) goto missing;
    *type = v->type;
  }
  return TD_STATUS_OK;
missing:
  return td_invalid_argument("NodeDef missing attr '%.*s' from Op<name=%.*s>; NodeDef: {{node %.*s}}", TD_STR_ARG(attr),
                             TD_STR_ARG(op->name), TD_STR_ARG(n->name));
}

static td_status expand_types(const td_node_def *n, const td_op_def *op, const td_arg_def *args, size_t arg_count,
                              td_arena *arena, int **out_types, size_t *out_count) {
  int64_t total = 0, count;
  int type;
  const Pb__AttrValue__ListValue *list;
  for (size_t i = 0; i < arg_count; i++) {
    TD_TRY(expand(n, op, &args[i], &count, &type, &list));
    total += count;
    if (total > MAX_EDGES)
      return td_invalid_argument("node '%.*s' has too many inputs or outputs", TD_STR_ARG(n->name));
  }
  int *types = td_arena_alloc(arena, (size_t)(total + 1) * sizeof *types);
  size_t k = 0;
  for (size_t i = 0; i < arg_count; i++) {
    TD_TRY(expand(n, op, &args[i], &count, &type, &list));
    for (int64_t j = 0; j < count; j++, k++) {
      int t = list ? list->type[j] : type;
      if (!td_dtype_valid(td_dtype_base(t)))
        return td_invalid_argument("node '%.*s' has an argument '%.*s' of the invalid type %d", TD_STR_ARG(n->name),
                                   TD_STR_ARG(args[i].name), t);
      types[k] = args[i].is_ref && !td_dtype_is_ref(t) ? t + TD_REF_OFFSET : t;
    }
  }
  *out_types = types;
  *out_count = k;
  return TD_STATUS_OK;
}

td_status td_node_input_types(const td_node_def *n, const td_op_def *op, td_arena *arena, int **out,
                              size_t *out_count) {
  return expand_types(n, op, op->inputs, op->input_count, arena, out, out_count);
}

td_status td_node_output_types(const td_node_def *n, const td_op_def *op, td_arena *arena, int **out,
                               size_t *out_count) {
  return expand_types(n, op, op->outputs, op->output_count, arena, out, out_count);
}

static td_status range(const td_node_def *n, const td_op_def *op, const td_arg_def *args, size_t arg_count,
                       const char *name, int *begin, int *end) {
  int64_t at = 0, count;
  int type;
  const Pb__AttrValue__ListValue *list;
  for (size_t i = 0; i < arg_count; i++, at += count) {
    TD_TRY(expand(n, op, &args[i], &count, &type, &list));
    if (!td_str_is(args[i].name, name)) continue;
    *begin = (int)at;
    *end = (int)(at + count);
    return TD_STATUS_OK;
  }
  return td_invalid_argument("op %.*s has no argument named '%s'", TD_STR_ARG(op->name), name);
}

td_status td_node_input_range(const td_node_def *n, const td_op_def *op, const char *name, int *begin, int *end) {
  return range(n, op, op->inputs, op->input_count, name, begin, end);
}

td_status td_node_output_range(const td_node_def *n, const td_op_def *op, const char *name, int *begin, int *end) {
  return range(n, op, op->outputs, op->output_count, name, begin, end);
}

void td_node_add_defaults(td_node_def *n, const td_op_def *op, td_arena *arena) {
  size_t missing = 0;
  for (size_t i = 0; i < op->attr_count; i++) missing += op->attrs[i].default_value && !find(n, op->attrs[i].name);
  if (!missing) return;
  td_attr *attrs = td_arena_array(arena, td_attr, n->attr_count + missing);
  if (n->attr_count) memcpy(attrs, n->attrs, n->attr_count * sizeof *attrs);
  size_t k = n->attr_count;
  for (size_t i = 0; i < op->attr_count; i++)
    if (op->attrs[i].default_value && !find(n, op->attrs[i].name))
      attrs[k++] = (td_attr){op->attrs[i].name, op->attrs[i].default_value};
  n->attrs = attrs;
  n->attr_count = k;
}

/* ---- validation ---- */

static td_status bad_value(const td_node_def *n, const td_attr_def *a, const char *value, const char *why) {
  return td_invalid_argument("Value for attr '%.*s' of %s %s\n\t; NodeDef: {{node %.*s}}; Op<name=%.*s>",
                             TD_STR_ARG(a->name), value, why, TD_STR_ARG(n->name), TD_STR_ARG(n->op));
}

static td_status check_type(const td_node_def *n, const td_attr_def *a, int type) {
  if (!td_dtype_valid(td_dtype_base(type))) return bad_value(n, a, "an unknown type", "is not a valid type");
  /* A kernel with such a type would take the variable on the edge for a tensor. */
  if (td_dtype_is_ref(type))
    return td_invalid_argument(
        "AttrValue must not have reference type value of %s\n\t for attr '%.*s'\n\t; NodeDef: "
        "{{node %.*s}}; Op<name=%.*s>",
        td_dtype_name(type), TD_STR_ARG(a->name), TD_STR_ARG(n->name), TD_STR_ARG(n->op));
  if (a->allowed_types && !td_dtype_in(td_dtype_base(type), a->allowed_types)) {
    td_strbuf list = {0};
    for (int t = 1; t < TD_DTYPE_LIMIT; t++)
      if (td_dtype_in((td_dtype)t, a->allowed_types))
        td_strbuf_printf(&list, "%s%s", list.size ? ", " : "is not in the list of allowed values: ", td_dtype_name(t));
    td_status s = bad_value(n, a, td_dtype_name(type), td_strbuf_cstr(&list));
    td_strbuf_deinit(&list);
    return s;
  }
  return TD_STATUS_OK;
}

static td_status check_string(const td_node_def *n, const td_attr_def *a, ProtobufCBinaryData v) {
  if (!a->allowed_string_count) return TD_STATUS_OK;
  td_strbuf list = {0};
  for (size_t i = 0; i < a->allowed_string_count; i++) {
    if (td_str_eq(a->allowed_strings[i], td_str_n(v.data, v.len))) {
      td_strbuf_deinit(&list);
      return TD_STATUS_OK;
    }
    td_strbuf_printf(&list, "%s\"%.*s\"",
                     list.size ? ", " : "is not in the list of allowed values: ", TD_STR_ARG(a->allowed_strings[i]));
  }
  char *text = td_asprintf("\"%.*s\"", (int)TD_MIN(v.len, (size_t)200), (const char *)v.data);
  td_status s = bad_value(n, a, text, td_strbuf_cstr(&list));
  td_free(text);
  td_strbuf_deinit(&list);
  return s;
}

static int case_of(td_attr_kind kind) {
  static const int cases[] = {PB__ATTR_VALUE__VALUE_S,      PB__ATTR_VALUE__VALUE_I,    PB__ATTR_VALUE__VALUE_F,
                              PB__ATTR_VALUE__VALUE_B,      PB__ATTR_VALUE__VALUE_TYPE, PB__ATTR_VALUE__VALUE_SHAPE,
                              PB__ATTR_VALUE__VALUE_TENSOR, PB__ATTR_VALUE__VALUE_FUNC};
  return cases[kind];
}

static td_status check_list(const td_node_def *n, const td_attr_def *a, const Pb__AttrValue__ListValue *l) {
  const size_t counts[] = {l->n_s, l->n_i, l->n_f, l->n_b, l->n_type, l->n_shape, l->n_tensor, l->n_func};
  size_t count = counts[a->kind], all = 0;
  for (size_t i = 0; i < TD_COUNT(counts); i++) all += counts[i];
  if (all != count) return bad_value(n, a, "a list", "holds values of another kind");
  if (a->has_minimum && (int64_t)count < a->minimum) {
    char text[64];
    snprintf(text, sizeof text, "is less than the minimum %lld", (long long)a->minimum);
    char length[64];
    snprintf(length, sizeof length, "length %zu", count);
    return bad_value(n, a, length, text);
  }
  for (size_t i = 0; i < l->n_type; i++) TD_TRY(check_type(n, a, l->type[i]));
  for (size_t i = 0; i < l->n_s; i++) TD_TRY(check_string(n, a, l->s[i]));
  return TD_STATUS_OK;
}

static td_status check_attr(const td_node_def *n, const td_attr_def *a, const Pb__AttrValue *v) {
  if (v->value_case == PB__ATTR_VALUE__VALUE_PLACEHOLDER)
    return td_invalid_argument("AttrValue of attr '%.*s' has an unbound placeholder '%s'; NodeDef: {{node %.*s}}",
                               TD_STR_ARG(a->name), v->placeholder, TD_STR_ARG(n->name));
  /* An empty list may come without its kind. */
  int wanted = a->is_list ? PB__ATTR_VALUE__VALUE_LIST : case_of(a->kind);
  if ((int)v->value_case != wanted)
    return td_invalid_argument(
        "AttrValue must not have a value of another kind than expected for attr '%.*s'; NodeDef: {{node %.*s}}; "
        "Op<name=%.*s>",
        TD_STR_ARG(a->name), TD_STR_ARG(n->name), TD_STR_ARG(n->op));
  if (a->is_list) return check_list(n, a, v->list);
  if (a->kind == TD_ATTR_TYPE) return check_type(n, a, v->type);
  if (a->kind == TD_ATTR_STRING) return check_string(n, a, v->s);
  if (a->kind == TD_ATTR_INT && a->has_minimum && v->i < a->minimum) {
    char value[32], why[64];
    snprintf(value, sizeof value, "%lld", (long long)v->i);
    snprintf(why, sizeof why, "must be at least minimum %lld", (long long)a->minimum);
    return bad_value(n, a, value, why);
  }
  return TD_STATUS_OK;
}

td_status td_node_validate(const td_node_def *n, const td_op_def *op, bool tolerate_unknown) {
  for (size_t i = 0; i < n->attr_count; i++) {
    td_str name = n->attrs[i].name;
    if (name.size && name.data[0] == '_') continue;
    const td_attr_def *a = td_op_attr(op, name);
    if (a) {
      TD_TRY(check_attr(n, a, n->attrs[i].value));
    } else if (!tolerate_unknown) {
      return td_invalid_argument(
          "NodeDef mentions attr '%.*s' not in Op<name=%.*s>; NodeDef: {{node %.*s}}. (Check whether your "
          "GraphDef-interpreting binary is up to date with your GraphDef-generating binary.).",
          TD_STR_ARG(name), TD_STR_ARG(op->name), TD_STR_ARG(n->name));
    }
  }
  for (size_t i = 0; i < op->attr_count; i++)
    if (!op->attrs[i].default_value && !find(n, op->attrs[i].name))
      return td_invalid_argument("NodeDef missing attr '%.*s' from Op<name=%.*s>; NodeDef: {{node %.*s}}",
                                 TD_STR_ARG(op->attrs[i].name), TD_STR_ARG(op->name), TD_STR_ARG(n->name));
  return TD_STATUS_OK;
}

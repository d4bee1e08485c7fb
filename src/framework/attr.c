/* Typed access to a node's attributes. */
#include "framework/op.h"

const Pb__AttrValue *td_attr_find(const td_node_def *n, const char *name) {
  for (size_t i = 0; i < n->attr_count; i++)
    if (td_str_is(n->attrs[i].name, name)) return n->attrs[i].value;
  return NULL;
}

static td_status get(const td_node_def *n, const char *name, int wanted, const char *kind, const Pb__AttrValue **out) {
  *out = td_attr_find(n, name);
  if (!*out) return td_not_found("No attr named '%s' in NodeDef:\n\t [[{{node %.*s}}]]", name, TD_STR_ARG(n->name));
  if ((int)(*out)->value_case != wanted)
    return td_invalid_argument("AttrValue of attr '%s' of node '%.*s' is not of the expected kind '%s'", name,
                               TD_STR_ARG(n->name), kind);
  return TD_STATUS_OK;
}

td_status td_attr_int(const td_node_def *n, const char *name, int64_t *out) {
  const Pb__AttrValue *v;
  TD_TRY(get(n, name, PB__ATTR_VALUE__VALUE_I, "int", &v));
  *out = v->i;
  return TD_STATUS_OK;
}

td_status td_attr_float(const td_node_def *n, const char *name, float *out) {
  const Pb__AttrValue *v;
  TD_TRY(get(n, name, PB__ATTR_VALUE__VALUE_F, "float", &v));
  *out = v->f;
  return TD_STATUS_OK;
}

td_status td_attr_bool(const td_node_def *n, const char *name, bool *out) {
  const Pb__AttrValue *v;
  TD_TRY(get(n, name, PB__ATTR_VALUE__VALUE_B, "bool", &v));
  *out = v->b;
  return TD_STATUS_OK;
}

td_status td_attr_type(const td_node_def *n, const char *name, td_dtype *out) {
  const Pb__AttrValue *v;
  TD_TRY(get(n, name, PB__ATTR_VALUE__VALUE_TYPE, "type", &v));
  if (!td_dtype_valid(td_dtype_base(v->type)))
    return td_invalid_argument("attr '%s' of node '%.*s' has the invalid type %d", name, TD_STR_ARG(n->name), v->type);
  *out = (td_dtype)v->type;
  return TD_STATUS_OK;
}

td_status td_attr_str(const td_node_def *n, const char *name, td_str *out) {
  const Pb__AttrValue *v;
  TD_TRY(get(n, name, PB__ATTR_VALUE__VALUE_S, "string", &v));
  *out = td_str_n(v->s.data, v->s.len);
  return TD_STATUS_OK;
}

td_status td_attr_shape(const td_node_def *n, const char *name, const Pb__TensorShapeProto **out) {
  const Pb__AttrValue *v;
  TD_TRY(get(n, name, PB__ATTR_VALUE__VALUE_SHAPE, "shape", &v));
  *out = v->shape;
  return TD_STATUS_OK;
}

td_status td_attr_tensor(const td_node_def *n, const char *name, const Pb__TensorProto **out) {
  const Pb__AttrValue *v;
  TD_TRY(get(n, name, PB__ATTR_VALUE__VALUE_TENSOR, "tensor", &v));
  *out = v->tensor;
  return TD_STATUS_OK;
}

td_status td_attr_func(const td_node_def *n, const char *name, const Pb__NameAttrList **out) {
  const Pb__AttrValue *v;
  TD_TRY(get(n, name, PB__ATTR_VALUE__VALUE_FUNC, "func", &v));
  *out = v->func;
  return TD_STATUS_OK;
}

td_status td_attr_list(const td_node_def *n, const char *name, const Pb__AttrValue__ListValue **out) {
  const Pb__AttrValue *v;
  TD_TRY(get(n, name, PB__ATTR_VALUE__VALUE_LIST, "list", &v));
  *out = v->list;
  return TD_STATUS_OK;
}

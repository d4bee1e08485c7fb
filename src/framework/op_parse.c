/* The compact notation of op definitions (framework/op.h). */
#include <ctype.h>
#include <stdlib.h>

#include "base/mem.h"
#include "framework/op.h"

typedef struct parser {
  td_arena *arena;
  const char *op;   /* for errors */
  const char *text; /* of the field being parsed */
  td_str rest;
} parser;

static td_status syntax(const parser *p, const char *what) {
  return td_internal("definition of op %s: %s at \"%.*s\" in \"%s\"", p->op, what, TD_STR_ARG(p->rest), p->text);
}

static void skip_blanks(parser *p) {
  while (p->rest.size && isspace((unsigned char)p->rest.data[0])) p->rest.data++, p->rest.size--;
}

static bool accept(parser *p, const char *token) {
  skip_blanks(p);
  td_str t = td_str_of(token);
  if (!td_str_starts(p->rest, t)) return false;
  p->rest.data += t.size;
  p->rest.size -= t.size;
  return true;
}

static td_str word(parser *p) {
  skip_blanks(p);
  td_str w = {p->rest.data, 0};
  while (w.size < p->rest.size && (isalnum((unsigned char)w.data[w.size]) || w.data[w.size] == '_')) w.size++;
  p->rest.data += w.size;
  p->rest.size -= w.size;
  return w;
}

static td_attr_def *find_attr(const td_op_def *op, td_str name) {
  for (size_t i = 0; i < op->attr_count; i++)
    if (td_str_eq(op->attrs[i].name, name)) return &op->attrs[i];
  return NULL;
}

/* One argument's type: a type name, a type attribute or a list(type) attribute, after an optional "N *". */
static td_status parse_arg_type(parser *p, const td_op_def *op, td_arg_def *arg) {
  arg->is_ref = accept(p, "Ref(");
  td_str w = word(p);
  if (accept(p, "*")) {
    arg->number_attr = w;
    w = word(p);
  }
  td_attr_def *attr = find_attr(op, w);
  if (!attr) {
    arg->type = td_dtype_parse(w);
    if (arg->type == TD_INVALID) return syntax(p, "unknown type before");
  } else if (attr->kind == TD_ATTR_TYPE && attr->is_list) {
    arg->type_list_attr = w;
  } else if (attr->kind == TD_ATTR_TYPE) {
    arg->type_attr = w;
  } else {
    return syntax(p, "argument typed by an attribute of another kind before");
  }
  if (arg->is_ref && !accept(p, ")")) return syntax(p, "expected ')'");
  return TD_STATUS_OK;
}

static td_status parse_args(parser *p, const char *text, const td_op_def *op, td_arg_def **out, size_t *out_count) {
  p->text = text ? text : "";
  p->rest = td_str_of(p->text);
  size_t n = 1;
  for (size_t i = 0; i < p->rest.size; i++) n += p->rest.data[i] == ';';
  *out = td_arena_array(p->arena, td_arg_def, n);
  *out_count = 0;
  skip_blanks(p);
  while (p->rest.size) {
    td_arg_def *arg = &(*out)[(*out_count)++];
    arg->name = word(p);
    if (!arg->name.size || !accept(p, ":")) return syntax(p, "expected 'name:'");
    TD_TRY(parse_arg_type(p, op, arg));
    if (!accept(p, ";") && p->rest.size) return syntax(p, "expected ';'");
    skip_blanks(p);
  }
  return TD_STATUS_OK;
}

static bool parse_kind(td_str w, td_attr_kind *out) {
  static const char *const names[] = {"string", "int", "float", "bool", "type", "shape", "tensor", "func"};
  for (int i = 0; i < (int)TD_COUNT(names); i++) {
    if (!td_str_is(w, names[i])) continue;
    *out = (td_attr_kind)i;
    return true;
  }
  return false;
}

/* A quoted string; the text has no escapes but \n, \\ and \'. */
static td_status parse_string(parser *p, td_str *out) {
  if (!accept(p, "'")) return syntax(p, "expected a quoted string");
  char *copy = td_arena_alloc(p->arena, p->rest.size + 1);
  size_t n = 0;
  while (p->rest.size && p->rest.data[0] != '\'') {
    char c = p->rest.data[0];
    if (c == '\\' && p->rest.size > 1) {
      p->rest.data++, p->rest.size--;
      c = p->rest.data[0] == 'n' ? '\n' : p->rest.data[0];
    }
    copy[n++] = c;
    p->rest.data++, p->rest.size--;
  }
  if (!accept(p, "'")) return syntax(p, "unfinished string");
  copy[n] = '\0';
  *out = (td_str){copy, n};
  return TD_STATUS_OK;
}

static td_str number_token(parser *p) {
  skip_blanks(p);
  td_str t = {p->rest.data, 0};
  while (t.size < p->rest.size && (isalnum((unsigned char)t.data[t.size]) || strchr("+-.", t.data[t.size]))) t.size++;
  p->rest.data += t.size;
  p->rest.size -= t.size;
  return t;
}

/* "unknown" or "[2, ?]" or "[]" */
static td_status parse_shape(parser *p, Pb__TensorShapeProto **out) {
  Pb__TensorShapeProto *s = td_arena_new(p->arena, Pb__TensorShapeProto);
  pb__tensor_shape_proto__init(s);
  *out = s;
  if (accept(p, "unknown")) {
    s->unknown_rank = 1;
    return TD_STATUS_OK;
  }
  if (!accept(p, "[")) return syntax(p, "expected a shape");
  s->dim = td_arena_array(p->arena, Pb__TensorShapeProto__Dim *, 16);
  while (!accept(p, "]")) {
    Pb__TensorShapeProto__Dim *d = td_arena_new(p->arena, Pb__TensorShapeProto__Dim);
    pb__tensor_shape_proto__dim__init(d);
    if (s->n_dim == 16) return syntax(p, "too many dimensions");
    if (accept(p, "?"))
      d->size = -1;
    else if (!td_str_to_i64(number_token(p), &d->size))
      return syntax(p, "bad dimension");
    s->dim[s->n_dim++] = d;
    accept(p, ",");
  }
  return TD_STATUS_OK;
}

static td_status parse_float(parser *p, float *out) {
  td_str t = number_token(p);
  char *text = td_arena_strndup(p->arena, t.data, t.size), *end;
  *out = strtof(text, &end);
  return t.size && !*end ? TD_STATUS_OK : syntax(p, "bad number before");
}

/* "uint8 [255, 0]": a vector of integers. */
static td_status parse_tensor(parser *p, Pb__TensorProto **out) {
  enum { CAPACITY = 32 };
  Pb__TensorProto *t = *out = td_arena_new(p->arena, Pb__TensorProto);
  Pb__TensorShapeProto *shape = td_arena_new(p->arena, Pb__TensorShapeProto);
  Pb__TensorShapeProto__Dim **dim = td_arena_array(p->arena, Pb__TensorShapeProto__Dim *, 1);
  pb__tensor_proto__init(t);
  pb__tensor_shape_proto__init(shape);
  t->tensor_shape = shape;
  shape->dim = dim;
  shape->n_dim = 1;
  dim[0] = td_arena_new(p->arena, Pb__TensorShapeProto__Dim);
  pb__tensor_shape_proto__dim__init(dim[0]);
  t->dtype = td_dtype_parse(word(p));
  t->int_val = td_arena_array(p->arena, int32_t, CAPACITY);
  if (!t->dtype || !accept(p, "[")) return syntax(p, "bad tensor before");
  for (int64_t value; !accept(p, "]"); accept(p, ",")) {
    if (t->n_int_val == CAPACITY || !td_str_to_i64(number_token(p), &value)) return syntax(p, "bad tensor before");
    t->int_val[t->n_int_val++] = (int32_t)value;
  }
  dim[0]->size = (int64_t)t->n_int_val;
  return TD_STATUS_OK;
}

static td_status parse_scalar_default(parser *p, td_attr_kind kind, Pb__AttrValue *v) {
  td_str s;
  switch (kind) {
    case TD_ATTR_STRING:
      TD_TRY(parse_string(p, &s));
      v->value_case = PB__ATTR_VALUE__VALUE_S;
      v->s = (ProtobufCBinaryData){s.size, (uint8_t *)s.data};
      return TD_STATUS_OK;
    case TD_ATTR_INT:
      v->value_case = PB__ATTR_VALUE__VALUE_I;
      return td_str_to_i64(number_token(p), &v->i) ? TD_STATUS_OK : syntax(p, "bad integer before");
    case TD_ATTR_FLOAT:
      v->value_case = PB__ATTR_VALUE__VALUE_F;
      return parse_float(p, &v->f);
    case TD_ATTR_BOOL:
      v->value_case = PB__ATTR_VALUE__VALUE_B;
      s = word(p);
      v->b = td_str_is(s, "true");
      return v->b || td_str_is(s, "false") ? TD_STATUS_OK : syntax(p, "bad bool before");
    case TD_ATTR_TYPE:
      v->value_case = PB__ATTR_VALUE__VALUE_TYPE;
      v->type = td_dtype_parse(word(p));
      return v->type ? TD_STATUS_OK : syntax(p, "bad type before");
    case TD_ATTR_SHAPE:
      v->value_case = PB__ATTR_VALUE__VALUE_SHAPE;
      return parse_shape(p, &v->shape);
    case TD_ATTR_FUNC:
      v->value_case = PB__ATTR_VALUE__VALUE_FUNC;
      v->func = td_arena_new(p->arena, Pb__NameAttrList);
      pb__name_attr_list__init(v->func);
      TD_TRY(parse_string(p, &s));
      v->func->name = (char *)s.data;
      return TD_STATUS_OK;
    case TD_ATTR_TENSOR:
      v->value_case = PB__ATTR_VALUE__VALUE_TENSOR;
      return parse_tensor(p, &v->tensor);
    default:
      return syntax(p, "no default of this kind is supported");
  }
}

/* Appends one parsed value to a list. `capacity` entries were laid out. */
static td_status append_to_list(parser *p, td_attr_kind kind, const Pb__AttrValue *one, Pb__AttrValue__ListValue *l) {
  switch (kind) {
    case TD_ATTR_STRING:
      l->s[l->n_s++] = one->s;
      return TD_STATUS_OK;
    case TD_ATTR_INT:
      l->i[l->n_i++] = one->i;
      return TD_STATUS_OK;
    case TD_ATTR_FLOAT:
      l->f[l->n_f++] = one->f;
      return TD_STATUS_OK;
    case TD_ATTR_BOOL:
      l->b[l->n_b++] = one->b;
      return TD_STATUS_OK;
    case TD_ATTR_TYPE:
      l->type[l->n_type++] = one->type;
      return TD_STATUS_OK;
    case TD_ATTR_SHAPE:
      l->shape[l->n_shape++] = one->shape;
      return TD_STATUS_OK;
    default:
      return syntax(p, "no list default of this kind is supported");
  }
}

static td_status parse_default(parser *p, td_attr_def *a) {
  Pb__AttrValue *v = a->default_value = td_arena_new(p->arena, Pb__AttrValue);
  pb__attr_value__init(v);
  if (!a->is_list) return parse_scalar_default(p, a->kind, v);
  if (!accept(p, "[")) return syntax(p, "expected '['");
  Pb__AttrValue__ListValue *l = td_arena_new(p->arena, Pb__AttrValue__ListValue);
  pb__attr_value__list_value__init(l);
  v->value_case = PB__ATTR_VALUE__VALUE_LIST;
  v->list = l;
  enum { CAPACITY = 32 };
  void *items = td_arena_calloc(p->arena, CAPACITY, sizeof(ProtobufCBinaryData));
  switch (a->kind) {
    case TD_ATTR_STRING:
      l->s = items;
      break;
    case TD_ATTR_INT:
      l->i = items;
      break;
    case TD_ATTR_FLOAT:
      l->f = items;
      break;
    case TD_ATTR_BOOL:
      l->b = items;
      break;
    case TD_ATTR_TYPE:
      l->type = items;
      break;
    default:
      l->shape = items;
      break;
  }
  for (int n = 0; !accept(p, "]"); n++) {
    Pb__AttrValue one;
    pb__attr_value__init(&one);
    if (n == CAPACITY) return syntax(p, "default list too long");
    TD_TRY(parse_scalar_default(p, a->kind, &one));
    TD_TRY(append_to_list(p, a->kind, &one, l));
    accept(p, ",");
  }
  return TD_STATUS_OK;
}

static td_status parse_allowed(parser *p, td_attr_def *a) {
  if (!accept(p, "{")) return syntax(p, "expected '{'");
  if (a->kind == TD_ATTR_STRING) a->allowed_strings = td_arena_array(p->arena, td_str, 32);
  while (!accept(p, "}")) {
    if (a->kind == TD_ATTR_TYPE) {
      td_dtype t = td_dtype_parse(word(p));
      if (t == TD_INVALID) return syntax(p, "unknown type before");
      a->allowed_types |= TD_SET(t);
    } else if (a->kind == TD_ATTR_STRING && a->allowed_string_count < 32) {
      TD_TRY(parse_string(p, &a->allowed_strings[a->allowed_string_count++]));
    } else {
      return syntax(p, "unexpected allowed values");
    }
    accept(p, ",");
  }
  return TD_STATUS_OK;
}

static td_status parse_attr(parser *p, td_attr_def *a) {
  a->name = word(p);
  if (!a->name.size || !accept(p, ":")) return syntax(p, "expected 'name:'");
  a->is_list = accept(p, "list(");
  if (!parse_kind(word(p), &a->kind)) return syntax(p, "unknown attribute kind before");
  if (a->is_list && !accept(p, ")")) return syntax(p, "expected ')'");
  if (accept(p, "in ")) TD_TRY(parse_allowed(p, a));
  if (accept(p, ">=")) {
    a->has_minimum = true;
    if (!td_str_to_i64(number_token(p), &a->minimum)) return syntax(p, "bad minimum before");
  }
  if (accept(p, "=")) TD_TRY(parse_default(p, a));
  return accept(p, ";") || !p->rest.size ? TD_STATUS_OK : syntax(p, "expected ';'");
}

td_status td_op_parse(const td_op_spec *spec, td_arena *arena, const td_op_def **out) {
  td_op_def *op = td_arena_new(arena, td_op_def);
  parser p = {.arena = arena, .op = spec->name, .text = spec->attrs ? spec->attrs : ""};
  p.rest = td_str_of(p.text);
  op->name = td_str_of(spec->name);
  op->flags = spec->flags;
  size_t n = 1;
  for (size_t i = 0; i < p.rest.size; i++) n += p.rest.data[i] == ';';
  op->attrs = td_arena_array(arena, td_attr_def, n);
  for (skip_blanks(&p); p.rest.size; skip_blanks(&p)) TD_TRY(parse_attr(&p, &op->attrs[op->attr_count++]));
  TD_TRY(parse_args(&p, spec->inputs, op, &op->inputs, &op->input_count));
  TD_TRY(parse_args(&p, spec->outputs, op, &op->outputs, &op->output_count));
  for (size_t i = 0; i < op->input_count + op->output_count; i++) {
    td_arg_def *arg = i < op->input_count ? &op->inputs[i] : &op->outputs[i - op->input_count];
    td_attr_def *number = arg->number_attr.size ? find_attr(op, arg->number_attr) : NULL;
    if (arg->number_attr.size && (!number || number->kind != TD_ATTR_INT))
      return syntax(&p, "unknown number attribute");
  }
  *out = op;
  return TD_STATUS_OK;
}

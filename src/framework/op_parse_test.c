#include "base/testing.h"
#include "framework/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"

static const td_op_def *parse(td_arena *a, const char *in, const char *out, const char *attrs) {
  const td_op_spec spec = {.name = "Op", .inputs = in, .outputs = out, .attrs = attrs, .flags = TD_OP_STATEFUL};
  const td_op_def *op = NULL;
  must(td_op_parse(&spec, a, &op));
  return op;
}

static void test_args(void **state) {
  td_arena a = {0};
  const td_op_def *op = parse(&a, "x: T; values: N * T;many:L; ref: Ref(T); handle: resource;", "y: int32",
                              "T: type; N: int >= 1; L: list(type) >= 0");
  assert_true(td_str_is(op->name, "Op") && op->flags == TD_OP_STATEFUL);
  assert_int_equal(op->input_count, 5);
  assert_int_equal(op->output_count, 1);
  assert_true(td_str_is(op->inputs[0].name, "x") && td_str_is(op->inputs[0].type_attr, "T"));
  assert_true(td_str_is(op->inputs[1].number_attr, "N") && td_str_is(op->inputs[1].type_attr, "T"));
  assert_true(td_str_is(op->inputs[2].type_list_attr, "L"));
  assert_true(op->inputs[3].is_ref && td_str_is(op->inputs[3].type_attr, "T"));
  assert_int_equal(op->inputs[4].type, TD_RESOURCE);
  assert_int_equal(op->outputs[0].type, TD_INT32);
  op = parse(&a, NULL, "", NULL);
  assert_int_equal(op->input_count + op->output_count + op->attr_count, 0);
  td_arena_deinit(&a);
}

static void test_attrs(void **state) {
  td_arena a = {0};
  const td_op_def *op =
      parse(&a, NULL, NULL,
            "T: type in {float, int32} = float; n: int >= -2 = 7; s: string in {'A b', ''} = '';"
            "l: list(int) >= 1 = [1, -2]; e: list(type) = []; sh: shape = [2, ?]; u: shape = unknown;"
            "f: float = -1.5e3; b: bool = true; fn: func; q: string = 'a\\'b\\n'; ls: list(string) = ['x', 'y']");
  assert_int_equal(op->attr_count, 12);
  const td_attr_def *t = td_op_attr(op, TD_STR("T"));
  assert_true(t->allowed_types == (TD_SET(TD_FLOAT) | TD_SET(TD_INT32)) && t->default_value->type == (int)TD_FLOAT);
  const td_attr_def *n = td_op_attr(op, TD_STR("n"));
  assert_true(n->has_minimum && n->minimum == -2 && n->default_value->i == 7);
  const td_attr_def *s = td_op_attr(op, TD_STR("s"));
  assert_true(s->allowed_string_count == 2 && td_str_is(s->allowed_strings[0], "A b") && s->default_value->s.len == 0);
  const td_attr_def *l = td_op_attr(op, TD_STR("l"));
  assert_true(l->is_list && l->minimum == 1 && l->default_value->list->n_i == 2 && l->default_value->list->i[1] == -2);
  assert_true(td_op_attr(op, TD_STR("e"))->default_value->list->n_type == 0);
  const Pb__TensorShapeProto *shape = td_op_attr(op, TD_STR("sh"))->default_value->shape;
  assert_true(shape->n_dim == 2 && shape->dim[0]->size == 2 && shape->dim[1]->size == -1);
  assert_true(td_op_attr(op, TD_STR("u"))->default_value->shape->unknown_rank);
  assert_true(td_op_attr(op, TD_STR("f"))->default_value->f == -1500.0f);
  assert_true(td_op_attr(op, TD_STR("b"))->default_value->b);
  assert_null(td_op_attr(op, TD_STR("fn"))->default_value);
  const ProtobufCBinaryData *q = &td_op_attr(op, TD_STR("q"))->default_value->s;
  assert_true(td_str_eq(td_str_n(q->data, q->len), TD_STR("a'b\n")));
  assert_true(td_op_attr(op, TD_STR("ls"))->default_value->list->n_s == 2);
  assert_null(td_op_attr(op, TD_STR("nope")));
  td_arena_deinit(&a);
}

static void test_refuses(void **state) {
  static const char *const args[] = {"x",         "x:",       ":T",       "x: Q",     "x: N",
                                     "x: T y: T", "x: Ref(T", "x: M * T", "x: T * T", "x: T;;"};
  static const char *const attrs[] = {
      "a",
      "a:",
      "a: what",
      "a: list(int",
      "a: int >= x",
      "a: int = ",
      "a: int = 1x",
      "a: int = 9223372036854775808",
      "a: type in {",
      "a: type in {float",
      "a: type in {flot}",
      "a: int in {1}",
      "a: string = 'x",
      "a: string = x",
      "a: bool = maybe",
      "a: float = 1.5x",
      "a: float = ",
      "a: shape = [",
      "a: shape = [x]",
      "a: list(int) = [1, 2",
      "a: list(int) = [x]",
      "a: tensor = 1",
      "a: list(tensor) = [1]",
      "a: int = 1 b: int",
      "a: shape = [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
      "a: list(int) = [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"};
  td_arena a = {0};
  const td_op_def *op;
  for (size_t i = 0; i < TD_COUNT(args) + TD_COUNT(attrs); i++) {
    bool is_arg = i < TD_COUNT(args);
    const td_op_spec spec = {.name = "Op",
                             .inputs = is_arg ? args[i] : NULL,
                             .attrs = is_arg ? "T: type; N: int" : attrs[i - TD_COUNT(args)]};
    td_status s = td_op_parse(&spec, &a, &op);
    if (td_status_code(s) != TD_INTERNAL) fail_msg("accepted: %s", is_arg ? spec.inputs : spec.attrs);
    td_status_free(s);
  }
  td_arena_deinit(&a);
}

/* ---- signatures of functions ---- */

static td_code from_proto(const char *attr_type, int arg_type, const char *arg_attr) {
  Pb__OpDef proto = PB__OP_DEF__INIT;
  Pb__OpDef__AttrDef attr = PB__OP_DEF__ATTR_DEF__INIT, *attrs = &attr;
  Pb__OpDef__ArgDef arg = PB__OP_DEF__ARG_DEF__INIT, *arg_list = &arg;
  char *control = "c";
  attr.name = "T";
  attr.type = (char *)attr_type;
  arg.name = "x";
  arg.type = arg_type;
  arg.type_attr = (char *)arg_attr;
  proto.name = "f";
  proto.n_attr = proto.n_input_arg = proto.n_output_arg = proto.n_control_output = 1;
  proto.attr = &attrs;
  proto.input_arg = proto.output_arg = &arg_list;
  proto.control_output = &control;
  proto.is_stateful = true;
  td_arena a = {0};
  const td_op_def *op = NULL;
  td_status s = td_op_from_proto(&proto, &a, &op);
  td_code code = td_status_code(s);
  if (!code)
    assert_true(td_str_is(op->name, "f") && op->flags == TD_OP_STATEFUL && td_str_is(op->control_outputs[0], "c") &&
                op->input_count == 1 && op->output_count == 1 && op->attr_count == 1);
  td_status_free(s);
  td_arena_deinit(&a);
  return code;
}

static void test_from_proto(void **state) {
  assert_int_equal(from_proto("type", 0, "T"), TD_OK);
  assert_int_equal(from_proto("list(func)", TD_FLOAT, ""), TD_OK);
  static const char *const kinds[] = {"", "list()", "list(", "list", ")", "list)", "types", "list(type))"};
  for (size_t i = 0; i < TD_COUNT(kinds); i++)
    assert_int_equal(from_proto(kinds[i], TD_FLOAT, ""), TD_INVALID_ARGUMENT);
  static const int types[] = {0, -1, 100, 31, 99, 1000, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < TD_COUNT(types); i++) assert_int_equal(from_proto("type", types[i], ""), TD_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_args),
      cmocka_unit_test(test_attrs),
      cmocka_unit_test(test_refuses),
      cmocka_unit_test(test_from_proto),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "base/testing.h"
#include "framework/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"

/* Attribute values by hand. */
static Pb__AttrValue int_value(int64_t i) {
  Pb__AttrValue v = PB__ATTR_VALUE__INIT;
  v.value_case = PB__ATTR_VALUE__VALUE_I;
  v.i = i;
  return v;
}

static Pb__AttrValue type_value(int type) {
  Pb__AttrValue v = PB__ATTR_VALUE__INIT;
  v.value_case = PB__ATTR_VALUE__VALUE_TYPE;
  v.type = type;
  return v;
}

static Pb__AttrValue string_value(const char *s) {
  Pb__AttrValue v = PB__ATTR_VALUE__INIT;
  v.value_case = PB__ATTR_VALUE__VALUE_S;
  v.s = (ProtobufCBinaryData){strlen(s), (uint8_t *)s};
  return v;
}

static Pb__AttrValue list_value(Pb__AttrValue__ListValue *l) {
  Pb__AttrValue v = PB__ATTR_VALUE__INIT;
  v.value_case = PB__ATTR_VALUE__VALUE_LIST;
  v.list = l;
  return v;
}

typedef struct fixture {
  td_arena arena;
  const td_op_def *op;
  td_node_def node;
  td_attr attrs[8];
} fixture;

static void setup(fixture *f, const char *inputs, const char *attrs) {
  *f = (fixture){.node = {.name = TD_STR("n"),
                          .op = TD_STR("Op"),
                          .attrs = f->attrs}}; /* the node's attributes lie in the fixture */
  const td_op_spec spec = {.name = "Op", .inputs = inputs, .outputs = inputs, .attrs = attrs};
  must(td_op_parse(&spec, &f->arena, &f->op));
}

static void add(fixture *f, const char *name, const Pb__AttrValue *v) {
  f->attrs[f->node.attr_count++] = (td_attr){td_str_of(name), v};
}

static void check(td_status s, const char *part) {
  if (!part) {
    if (s) fail_msg("%s", td_status_message(s));
    return;
  }
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  if (!strstr(td_status_message(s), part)) fail_msg("\"%s\" lacks \"%s\"", td_status_message(s), part);
  td_status_free(s);
}

static void test_access(void **state) {
  fixture f;
  setup(&f, NULL, NULL);
  Pb__AttrValue i = int_value(7), t = type_value(TD_FLOAT), bad = type_value(77), s = string_value("abc");
  Pb__AttrValue none = PB__ATTR_VALUE__INIT;
  add(&f, "i", &i);
  add(&f, "t", &t);
  add(&f, "bad", &bad);
  add(&f, "s", &s);
  add(&f, "none", &none);
  int64_t number;
  td_dtype type;
  td_str text;
  float x;
  bool b;
  assert_null(td_attr_int(&f.node, "i", &number));
  assert_int_equal(number, 7);
  assert_null(td_attr_type(&f.node, "t", &type));
  assert_int_equal(type, TD_FLOAT);
  assert_null(td_attr_str(&f.node, "s", &text));
  assert_true(td_str_is(text, "abc"));
  check(td_attr_type(&f.node, "bad", &type), "invalid type 77");
  check(td_attr_int(&f.node, "s", &number), "is not of the expected kind 'int'");
  check(td_attr_float(&f.node, "i", &x), "'float'");
  check(td_attr_bool(&f.node, "none", &b), "'bool'");
  td_status missing = td_attr_int(&f.node, "nope", &number);
  assert_int_equal(td_status_code(missing), TD_NOT_FOUND);
  assert_string_equal(td_status_message(missing), "No attr named 'nope' in NodeDef:\n\t [[{{node n}}]]");
  td_status_free(missing);
  td_arena_deinit(&f.arena);
}

static void check_types(fixture *f, const char *error, size_t count, const int *wanted) {
  int *types;
  size_t n;
  td_status s = td_node_input_types(&f->node, f->op, &f->arena, &types, &n);
  check(s, error);
  if (error) return;
  assert_int_equal(n, count);
  for (size_t i = 0; i < count; i++) assert_int_equal(types[i], wanted[i]);
}

static void test_types(void **state) {
  fixture f;
  int begin, end;
  setup(&f, "a: int32; b: N * T; c: L; d: Ref(T)", "T: type; N: int; L: list(type)");
  Pb__AttrValue__ListValue list = PB__ATTR_VALUE__LIST_VALUE__INIT;
  int32_t entries[3] = {TD_BOOL, TD_STRING, TD_INT64};
  list.type = entries;
  list.n_type = 3;
  Pb__AttrValue t = type_value(TD_FLOAT), n = int_value(2), l = list_value(&list);
  check_types(&f, "NodeDef missing attr 'N' from Op<name=Op>; NodeDef: {{node n}}", 0, NULL);
  add(&f, "T", &t);
  add(&f, "N", &n);
  add(&f, "L", &l);
  check_types(&f, NULL, 7,
              (int[]){TD_INT32, TD_FLOAT, TD_FLOAT, TD_BOOL, TD_STRING, TD_INT64, TD_FLOAT + TD_REF_OFFSET});
  assert_null(td_node_input_range(&f.node, f.op, "c", &begin, &end));
  assert_true(begin == 3 && end == 6);
  assert_null(td_node_output_range(&f.node, f.op, "d", &begin, &end));
  assert_true(begin == 6 && end == 7);
  check(td_node_input_range(&f.node, f.op, "z", &begin, &end), "no argument named 'z'");
  n.i = 0;
  list.n_type = 0;
  check_types(&f, NULL, 2, (int[]){TD_INT32, TD_FLOAT + TD_REF_OFFSET});
  /* counts and types from a hostile node */
  static const int64_t counts[] = {-1, INT64_MIN, INT64_MAX, 65537, 65536, 65535};
  for (size_t i = 0; i < TD_COUNT(counts); i++) {
    n.i = counts[i];
    check_types(&f, counts[i] == 65536 || counts[i] == 65535 ? "too many inputs or outputs" : "< 0 or too large", 0,
                NULL);
  }
  n.i = 1;
  list.n_type = SIZE_MAX; /* the entries are not looked at */
  check_types(&f, "too many types", 0, NULL);
  list.n_type = 3;
  static const int types[] = {0, -1, 31, 100, 177, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < TD_COUNT(types); i++) {
    entries[1] = types[i];
    check_types(&f, "invalid type", 0, NULL);
  }
  entries[1] = TD_BOOL;
  t.value_case = PB__ATTR_VALUE__VALUE_I; /* an attribute of another kind counts as missing */
  check_types(&f, "NodeDef missing attr 'T'", 0, NULL);
  td_arena_deinit(&f.arena);
}

static void test_defaults(void **state) {
  fixture f;
  setup(&f, NULL, "T: type = float; n: int = 3; must: int; s: string = 'x'");
  Pb__AttrValue n = int_value(9);
  add(&f, "n", &n);
  td_node_add_defaults(&f.node, f.op, &f.arena);
  assert_int_equal(f.node.attr_count, 3);
  int64_t i;
  td_dtype type;
  assert_null(td_attr_int(&f.node, "n", &i));
  assert_int_equal(i, 9); /* what was there stays */
  assert_null(td_attr_type(&f.node, "T", &type));
  assert_int_equal(type, TD_FLOAT);
  assert_null(td_attr_find(&f.node, "must"));
  const td_attr *before = f.node.attrs;
  td_node_add_defaults(&f.node, f.op, &f.arena);
  assert_ptr_equal(f.node.attrs, before);
  td_arena_deinit(&f.arena);
}

/* One attribute "a" of the given definition with a value; NULL: accepted. */
static void validate(const char *definition, const Pb__AttrValue *v, const char *error) {
  fixture f;
  setup(&f, NULL, definition);
  add(&f, "a", v);
  check(td_node_validate(&f.node, f.op, false), error);
  td_arena_deinit(&f.arena);
}

static void test_validate(void **state) {
  Pb__AttrValue v = int_value(2), none = PB__ATTR_VALUE__INIT;
  validate("a: int >= 2", &v, NULL);
  validate("a: int >= 3", &v, "Value for attr 'a' of 2 must be at least minimum 3");
  validate("a: float", &v, "AttrValue must not have a value of another kind");
  validate("a: int", &none, "AttrValue must not have a value of another kind");
  v = type_value(TD_FLOAT);
  validate("a: type in {float, double}", &v, NULL);
  validate("a: type in {int32, int64}", &v,
           "Value for attr 'a' of float is not in the list of allowed values: int32, int64");
  static const int types[] = {0, -1, 31, 100, 177, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < TD_COUNT(types); i++) {
    v = type_value(types[i]);
    validate("a: type", &v, "is not a valid type");
  }
  /* a ref type would make a kernel take a variable for a tensor */
  v = type_value(TD_FLOAT + TD_REF_OFFSET);
  validate("a: type", &v, "AttrValue must not have reference type value of float_ref");
  v = string_value("SAME");
  validate("a: string in {'SAME', 'VALID'}", &v, NULL);
  validate("a: string in {'x'}", &v, "Value for attr 'a' of \"SAME\" is not in the list of allowed values: \"x\"");
  v = none;
  v.value_case = PB__ATTR_VALUE__VALUE_PLACEHOLDER;
  v.placeholder = "p";
  validate("a: int", &v, "unbound placeholder 'p'");
}

static void test_validate_lists(void **state) {
  Pb__AttrValue__ListValue l = PB__ATTR_VALUE__LIST_VALUE__INIT;
  int32_t types[2] = {TD_FLOAT, TD_INT32};
  int64_t ints[2] = {1, 2};
  Pb__AttrValue v = list_value(&l);
  validate("a: list(type)", &v, NULL);
  validate("a: list(type) >= 1", &v, "length 0 is less than the minimum 1");
  validate("a: type", &v, "another kind");
  l.type = types;
  l.n_type = 2;
  validate("a: list(type) >= 2", &v, NULL);
  validate("a: list(int)", &v, "holds values of another kind");
  validate("a: list(type) in {float}", &v, "Value for attr 'a' of int32 is not in the list");
  types[1] = TD_INT32 + TD_REF_OFFSET;
  validate("a: list(type)", &v, "AttrValue must not have reference type value of int32_ref");
  types[1] = 55;
  validate("a: list(type)", &v, "is not a valid type");
  l.n_type = 1;
  l.i = ints;
  l.n_i = 2;
  validate("a: list(type)", &v, "holds values of another kind");
}

static void test_validate_names(void **state) {
  fixture f;
  Pb__AttrValue v = int_value(1), hidden = string_value("anything");
  setup(&f, NULL, "a: int; b: int = 3; c: int");
  add(&f, "a", &v);
  add(&f, "_hidden", &hidden);
  check(td_node_validate(&f.node, f.op, false), "NodeDef missing attr 'c' from Op<name=Op>; NodeDef: {{node n}}");
  add(&f, "c", &v);
  check(td_node_validate(&f.node, f.op, false), NULL);
  add(&f, "", &v);
  check(td_node_validate(&f.node, f.op, false), "NodeDef mentions attr '' not in Op<name=Op>");
  check(td_node_validate(&f.node, f.op, true), NULL);
  td_arena_deinit(&f.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_access),   cmocka_unit_test(test_types),          cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_validate), cmocka_unit_test(test_validate_lists), cmocka_unit_test(test_validate_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

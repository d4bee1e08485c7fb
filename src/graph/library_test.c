/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "base/testing.h"
#include "graph/testing.h"

static td_arena arena;

static Pb__FunctionDef *function(const char *name, const char *body) {
  Pb__FunctionDef *f = td_arena_new(&arena, Pb__FunctionDef);
  pb__function_def__init(f);
  f->signature = td_arena_new(&arena, Pb__OpDef);
  pb__op_def__init(f->signature);
  f->signature->name = td_arena_strdup(&arena, name);
  Pb__GraphDef *nodes = td_graph_test_def(&arena, body);
  f->node_def = nodes->node;
  f->n_node_def = nodes->n_node;
  return f;
}

static void add_ret(Pb__FunctionDef *f, const char *key, const char *value) {
  Pb__StringEntry *e = td_arena_new(&arena, Pb__StringEntry);
  pb__string_entry__init(e);
  e->key = td_arena_strdup(&arena, key);
  e->value = td_arena_strdup(&arena, value);
  if (!f->ret) f->ret = td_arena_array(&arena, Pb__StringEntry *, 8);
  f->ret[f->n_ret++] = e;
}

static Pb__GradientDef *gradient(const char *of, const char *is) {
  Pb__GradientDef *g = td_arena_new(&arena, Pb__GradientDef);
  pb__gradient_def__init(g);
  g->function_name = td_arena_strdup(&arena, of);
  g->gradient_func = td_arena_strdup(&arena, is);
  return g;
}

static td_status merge(const td_library *base, Pb__FunctionDef *f, Pb__GradientDef *g, td_library **out) {
  Pb__FunctionDefLibrary add = PB__FUNCTION_DEF_LIBRARY__INIT;
  add.function = &f;
  add.n_function = f != NULL;
  add.gradient = &g;
  add.n_gradient = g != NULL;
  return td_library_merge(base, &add, out);
}

static void assert_fails(td_status s, const char *text) { must_say(s, TD_INVALID_ARGUMENT, text); }

static void test_order_of_maps_means_nothing(void **state) {
  td_library *l, *same;
  Pb__FunctionDef *a = function("f", "n = Add(x, y) {T: float; _a: 1; _b: func g}\nm = NoOp()");
  Pb__FunctionDef *b = function("f", "m = NoOp()\nn = Add(x, y) {_b: func g; T: float; _a: 1}");
  add_ret(a, "p", "n:z:0");
  add_ret(a, "q", "n:z:0");
  add_ret(b, "q", "n:z:0");
  add_ret(b, "p", "n:z:0");
  assert_null(merge(NULL, a, NULL, &l));
  assert_null(merge(l, b, NULL, &same));
  assert_ptr_equal(l, same);
  td_library_release(same);
  b->ret[0]->value = "m:z:0";
  assert_fails(merge(l, b, NULL, &same),
               "Cannot add function 'f' because a different function with the same name already exists.");
  td_library_release(l);
}

static void test_a_library_never_changes(void **state) {
  td_library *first, *second, *third;
  assert_null(merge(NULL, function("f", "n = NoOp()"), NULL, &first));
  assert_null(merge(first, function("g", "n = NoOp()"), NULL, &second));
  assert_null(td_library_find(first, TD_STR("g")));
  const td_op_def *f = td_library_op(first, TD_STR("f"));
  assert_ptr_equal(td_library_op(second, TD_STR("f")), f);
  td_library_release(first); /* the second keeps it */
  assert_null(merge(second, function("h", "n = NoOp()"), NULL, &third));
  td_library_release(second);
  assert_ptr_equal(td_library_op(third, TD_STR("f")), f);
  assert_true(td_str_is(f->name, "f"));
  td_library_release(third);
}

static void test_gradients(void **state) {
  td_library *l, *other;
  assert_null(merge(NULL, function("f", "n = NoOp()"), gradient("f", "df"), &l));
  assert_null(merge(l, NULL, gradient("f", "df"), &other));
  assert_ptr_equal(l, other);
  td_library_release(other);
  assert_fails(merge(l, NULL, gradient("f", "dg"), &other),
               "Cannot assign gradient function 'dg' to 'f' because it already has gradient function 'df'");
  td_library_release(l);
}

static void test_names(void **state) {
  td_library *l;
  assert_fails(merge(NULL, function("Add", ""), NULL, &l),
               "Cannot add function 'Add' because an op with the same name already exists.");
  assert_fails(merge(NULL, function("", ""), NULL, &l), "A function of the library has no name");
}

/* A broken signature hurts only those who call it. */
static void test_broken_signature(void **state) {
  td_library *l;
  Pb__FunctionDef *f = function("f", "");
  Pb__OpDef__AttrDef attr = PB__OP_DEF__ATTR_DEF__INIT, *attrs = &attr;
  attr.name = "T";
  attr.type = "nonsense";
  f->signature->attr = &attrs;
  f->signature->n_attr = 1;
  assert_null(merge(NULL, f, NULL, &l));
  assert_non_null(td_library_find(l, TD_STR("f")));
  assert_null(td_library_op(l, TD_STR("f")));
  td_library_release(l);
}

static void test_reachable_part(void **state) {
  td_arena out = {0};
  td_library *l = NULL, *next;
  assert_null(merge(l, function("a", "n = PartitionedCall() {f: func b}"), gradient("a", "da"), &l));
  assert_null(merge(l, function("b", "n = c()"), NULL, &next));
  td_library_release(l);
  assert_null(merge(next, function("c", "n = NoOp()"), NULL, &l));
  td_library_release(next);
  assert_null(merge(l, function("da", "n = d()"), NULL, &next));
  td_library_release(l);
  assert_null(merge(next, function("d", "n = NoOp()"), NULL, &l));
  td_library_release(next);
  assert_null(merge(l, function("unused", "n = NoOp()"), NULL, &next));
  td_library_release(l);
  td_graph *g = td_graph_create(next);
  td_library_release(next);
  Pb__GraphDef *call = td_graph_test_def(&arena, "n = PartitionedCall() {f: func a; Tin: []; Tout: []}");
  td_node_def def = {.name = TD_STR("n"), .op = TD_STR("PartitionedCall")};
  def.attrs = td_arena_array(&g->arena, td_attr, 3);
  for (size_t i = 0; i < 3; i++)
    def.attrs[def.attr_count++] = (td_attr){td_str_of(call->node[0]->attr[i]->key), call->node[0]->attr[i]->value};
  td_node *n;
  assert_null(td_graph_add_node(g, &def, td_op_find(def.op), &n));
  Pb__GraphDef *proto = td_graph_to_proto(g, &out);
  assert_int_equal(proto->library->n_function, 5);
  assert_int_equal(proto->library->n_gradient, 1);
  assert_string_equal(proto->library->function[0]->signature->name, "a");
  td_arena_deinit(&out);
  td_graph_release(g);
}

static int setup(void **state) {
  td_graph_test_register();
  return 0;
}

static int reset(void **state) {
  td_arena_deinit(&arena);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order_of_maps_means_nothing),
      cmocka_unit_test(test_a_library_never_changes),
      cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_broken_signature),
      cmocka_unit_test(test_reachable_part),
  };
  return cmocka_run_group_tests(tests, setup, reset);
}

#include "runtime/evaluator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/testing/graphs.h"

static td_status evaluate(const char *text, const char *node, td_tensor **in, size_t max_bytes, td_tensor **out) {
  test_env e;
  test_env_init(&e, 0);
  td_graph *g = test_graph(text);
  td_evaluator *evaluator = td_evaluator_create(e.device);
  td_status s = evaluator->compute(evaluator, td_graph_find(g, td_str_of(node)), in, max_bytes, out);
  td_evaluator_destroy(evaluator);
  td_graph_release(g);
  test_env_deinit(&e);
  return s;
}

static void expect_refused(const char *text, const char *node, int inputs, size_t max_bytes, td_code code) {
  td_tensor *x, *out[2] = {0};
  assert_null(td_tensor_create_dims(TD_INT32, 0, NULL, &x));
  *TD_DATA(x, int32_t) = 1;
  td_tensor *in[] = {x, x};
  assert_true(inputs <= 2);
  td_status s = evaluate(text, node, in, max_bytes, out);
  assert_int_equal(td_status_code(s), code);
  assert_null(out[0]);
  td_status_free(s);
  assert_int_equal(x->refs, 1);
  td_tensor_release(x);
}

#define CONST "a = Const() value:5 dtype:int32\n"

static void computes(void **state) {
  td_tensor *five, *in[2], *ten;
  assert_null(evaluate(CONST, "a", NULL, 4, &five));
  in[0] = in[1] = five;
  assert_null(evaluate(CONST "b = TestAdd(a, a)\n", "b", in, 4, &ten));
  assert_int_equal(*TD_DATA(five, int32_t), 5); /* not in place */
  assert_int_equal(*TD_DATA(ten, int32_t), 10);
  td_tensor_release(ten);
  assert_null(evaluate(CONST "b = Identity(a) T:int32\n", "b", in, 4, &ten));
  assert_ptr_equal(ten, five);
  td_tensor_release(ten);
  td_tensor_release(five);
}

static void refuses(void **state) {
  expect_refused(CONST "b = TestFail(a) message:no\n", "b", 1, 4, TD_OUT_OF_RANGE);
  expect_refused(CONST "b = TestAsync(a)\n", "b", 1, 4, TD_UNIMPLEMENTED);
  expect_refused("b = TestWrongType()\n", "b", 0, 4, TD_INTERNAL);
  expect_refused("b = TestMissing()\n", "b", 0, 4, TD_INTERNAL);
  expect_refused("v = TestVariable()\n", "v", 0, 4, TD_UNIMPLEMENTED);
  expect_refused(CONST "b = TestWide(a)\n", "b", 1, 3999, TD_RESOURCE_EXHAUSTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(computes), cmocka_unit_test(refuses)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

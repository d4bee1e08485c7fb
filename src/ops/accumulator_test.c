#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "framework/cancellation.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/testing.h"

static td_device *device;

static int setup(void **state) {
  device = td_test_device();
  return 0;
}

static int teardown(void **state) {
  td_device_release(device);
  return 0;
}

static td_tensor *make(const char *attrs) {
  td_op_run run = {.op = "ResourceConditionalAccumulator", .attrs = attrs, .device = device};
  assert_null(td_op_test_run(&run));
  return run.out[0];
}

static td_tensor *step_of(int64_t step) {
  td_tensor *t = td_test_tensor(TD_INT64, "[]", "0");
  *TD_DATA(t, int64_t) = step;
  return t;
}

static td_status apply(td_tensor *a, int64_t step, td_dtype type, const char *shape, const char *values) {
  td_tensor *in[] = {a, step_of(step), td_test_tensor(type, shape, values)};
  char attrs[64];
  snprintf(attrs, sizeof attrs, "dtype: %s", td_dtype_name(type));
  td_op_run run = {.op = "ResourceAccumulatorApplyGradient", .attrs = attrs, .device = device, .in = in, .in_count = 3};
  td_status s = td_op_test_run(&run);
  td_tensor_release(in[1]);
  td_tensor_release(in[2]);
  return s;
}

static td_status take(td_tensor *a, const char *required, td_step *step, td_tensor **out) {
  td_tensor *in[] = {a, td_test_tensor(TD_INT32, "[]", required)};
  td_op_run run = {.op = "ResourceAccumulatorTakeGradient",
                   .attrs = "dtype: float",
                   .device = device,
                   .step = step,
                   .in = in,
                   .in_count = 2};
  td_status s = td_op_test_run(&run);
  td_tensor_release(in[1]);
  *out = run.out[0];
  return s;
}

static void expect_take(td_tensor *a, const char *required, const char *shape, const char *values) {
  td_tensor *t;
  assert_null(take(a, required, NULL, &t));
  td_assert_tensor(t, TD_FLOAT, shape, values, 1e-6);
  td_tensor_release(t);
}

static void expect_count(td_tensor *a, int n) {
  td_op_run run = {.op = "ResourceAccumulatorNumAccumulated", .device = device, .in = &a, .in_count = 1};
  assert_null(td_op_test_run(&run));
  assert_int_equal(*TD_DATA(run.out[0], int32_t), n);
  td_tensor_release(run.out[0]);
}

static void dense(void **state) {
  td_tensor *a = make("dtype: float; shape: [2]; shared_name: 'mean'"), *none;
  assert_null(apply(a, 0, TD_FLOAT, "[2]", "1 2"));
  assert_null(apply(a, 3, TD_FLOAT, "[2]", "2 5"));
  expect_count(a, 2);
  expect_take(a, "2", "[2]", "1.5 3.5");
  expect_count(a, 0);
  assert_null(apply(a, 0, TD_FLOAT, "[2]", "1 2")); /* stale by now: dropped, whatever its shape */
  assert_null(apply(a, 0, TD_FLOAT, "[7]", "1 2 3 4 5 6 7"));
  expect_count(a, 0);
  assert_null(apply(a, 1, TD_FLOAT, "[2]", "4 8"));
  expect_take(a, "1", "[2]", "4 8");
  must_fail(apply(a, 9, TD_FLOAT, "[3]", "1 2 3"), TD_INVALID_ARGUMENT, "Shape mismatch: expected [2], got [3]");
  must_fail(apply(a, 9, TD_DOUBLE, "[2]", "1 2"), TD_INVALID_ARGUMENT,
            "Signature mismatch, have: resource, int64, double-> expected: resource, int64, float->");
  must_fail(take(a, "0", NULL, &none), TD_INVALID_ARGUMENT, "Argument num_required must be positive, but was 0");
  td_tensor_release(a);

  a = make("dtype: float; shape: [?]; shared_name: 'sum'; reduction_type: 'SUM'");
  assert_null(apply(a, 0, TD_FLOAT, "[1]", "1"));
  must_fail(apply(a, 0, TD_FLOAT, "[2]", "1 2"), TD_INVALID_ARGUMENT, "Shape mismatch: expected [1], got [2]");
  must_fail(apply(a, 0, TD_FLOAT, "[]", "1"), TD_INVALID_ARGUMENT, "Shape mismatch: expected [1], got []");
  assert_null(apply(a, 0, TD_FLOAT, "[1]", "2"));
  expect_take(a, "2", "[1]", "3");
  assert_null(apply(a, 1, TD_FLOAT, "[0]", "")); /* any vector again */
  expect_take(a, "1", "[0]", "");
  td_tensor_release(a);
}

static void global_step(void **state) {
  td_tensor *a = make("dtype: float; shape: []; shared_name: 'step'"), *in[] = {a, step_of(5)};
  td_op_run run = {.op = "ResourceAccumulatorSetGlobalStep", .device = device, .in = in, .in_count = 2};
  assert_null(td_op_test_run(&run));
  assert_null(apply(a, 4, TD_FLOAT, "[]", "1"));
  expect_count(a, 0);
  assert_null(apply(a, 5, TD_FLOAT, "[]", "1"));
  expect_count(a, 1);
  td_tensor_release(in[1]);
  td_tensor_release(a);
}

/* ---- sparse ---- */

static td_variable *make_sparse(const char *attrs, td_kernel **k) {
  td_op_run run = {.op = "SparseConditionalAccumulator", .attrs = attrs, .device = device, .kernel = k};
  assert_null(td_op_test_run(&run));
  return run.out_refs[0];
}

static td_status apply_sparse(td_variable *a, const char *n, const char *indices, const char *shape, const char *values,
                              const char *known) {
  td_tensor *in[] = {NULL, step_of(100), td_test_tensor(TD_INT64, n, indices), td_test_tensor(TD_FLOAT, shape, values),
                     known ? td_test_tensor(TD_INT64, "[2]", known) : td_test_tensor(TD_INT64, "[0]", "")};
  td_op_run run = {.op = "SparseAccumulatorApplyGradient",
                   .attrs = known ? "dtype: float; has_known_shape: true" : "dtype: float; has_known_shape: false",
                   .device = device,
                   .refs = &a,
                   .in = in,
                   .in_count = 5};
  td_status s = td_op_test_run(&run);
  for (int i = 1; i < 5; i++) td_tensor_release(in[i]);
  return s;
}

static void expect_sparse(td_variable *a, const char *n, const char *indices, const char *shape, const char *values,
                          const char *dims) {
  td_tensor *in[] = {NULL, td_test_tensor(TD_INT32, "[]", "1")};
  td_op_run run = {.op = "SparseAccumulatorTakeGradient",
                   .attrs = "dtype: float",
                   .device = device,
                   .refs = &a,
                   .in = in,
                   .in_count = 2};
  assert_null(td_op_test_run(&run));
  td_assert_tensor(run.out[0], TD_INT64, n, indices, 0);
  td_assert_tensor(run.out[1], TD_FLOAT, shape, values, 1e-6);
  td_assert_tensor(run.out[2], TD_INT64, "[2]", dims, 0);
  for (int i = 0; i < 3; i++) td_tensor_release(run.out[i]);
  td_tensor_release(in[1]);
}

static void sparse(void **state) {
  td_kernel *k = NULL, *sum = NULL;
  td_variable *a = make_sparse("dtype: float; shape: [4, ?]", &k);
  assert_null(apply_sparse(a, "[2]", "0 2", "[2,2]", "1 2 3 4", NULL));
  assert_null(apply_sparse(a, "[3]", "1 2 3", "[3,2]", "5 6 7 8 9 1", "4 2"));
  assert_null(apply_sparse(a, "[0]", "", "[0,2]", "", NULL));
  expect_sparse(a, "[4]", "0 1 2 3", "[4,2]", "1 2 5 6 5 6 9 1", "4 2"); /* each row over those that have it */
  assert_null(apply_sparse(a, "[0]", "", "[0,3]", "", NULL));
  assert_null(apply_sparse(a, "[1]", "3", "[1,3]", "1 2 3", NULL));
  expect_sparse(a, "[1]", "3", "[1,3]", "1 2 3", "4 3");
  must_fail(apply_sparse(a, "[1]", "4", "[1,2]", "1 2", NULL), TD_INVALID_ARGUMENT,
            "index of slice 0 exceeded limits of shape; index is 4 exceeded 4");
  must_fail(apply_sparse(a, "[1]", "1", "[1,2]", "1 2", "5 2"), TD_INVALID_ARGUMENT,
            "Shape mismatch: expected shape dim 0 to be 4, got 5");
  must_fail(apply_sparse(a, "[1,1]", "1", "[1,2]", "1 2", NULL), TD_INVALID_ARGUMENT,
            "Input indices should be vector but received shape: [1,1]");
  must_fail(apply_sparse(a, "[1]", "1", "[]", "1", NULL), TD_INVALID_ARGUMENT, "Values cannot be 0-dimensional.");
  must_fail(apply_sparse(a, "[1]", "1", "[2,1]", "1 2", NULL), TD_INVALID_ARGUMENT,
            "Expected 1 non-empty input values, got 2");
  must_fail(apply_sparse(a, "[1]", "1", "[1]", "1", NULL), TD_INVALID_ARGUMENT,
            "Shape mismatch: expected values rank at least 2, got 1");
  td_variable_release(a);
  a = make_sparse("dtype: float; shape: unknown; reduction_type: 'SUM'", &sum);
  assert_null(apply_sparse(a, "[1]", "7", "[1,1]", "1", NULL));
  assert_null(apply_sparse(a, "[2]", "7 9", "[2,1]", "2 3", NULL));
  must_fail(apply_sparse(a, "[1]", "1", "[1,2]", "1 2", NULL), TD_INVALID_ARGUMENT,
            "Shape mismatch: expected values dim 1 to be 1, got 2");
  expect_sparse(a, "[2]", "7 9", "[2,1]", "3 3", "-1 1");
  td_variable_release(a);
  td_kernel_release(k);
  td_kernel_release(sum);
}

/* ---- waiting ---- */

typedef struct taker {
  td_tensor *a;
  const char *required;
  td_step step;
  td_status status;
  td_tensor *value;
  pthread_t thread;
} taker;

static void *take_main(void *arg) {
  taker *t = arg;
  t->status = take(t->a, t->required, &t->step, &t->value);
  return NULL;
}

static void start(taker *t, td_tensor *a, const char *required) {
  *t = (taker){.a = a, .required = required, .step = {.id = 1, .cancellation = td_cancellation_create()}};
  assert_int_equal(pthread_create(&t->thread, NULL, take_main, t), 0);
}

static void cancellation(void **state) {
  td_tensor *a = make("dtype: float; shape: []; shared_name: 'cancel'");
  taker t;
  assert_null(apply(a, 0, TD_FLOAT, "[]", "6"));
  start(&t, a, "2");
  td_cancellation_cancel(t.step.cancellation);
  pthread_join(t.thread, NULL);
  must_fail(t.status, TD_CANCELLED, "TakeGrad operation was cancelled");
  td_cancellation_release(t.step.cancellation);
  expect_take(a, "1", "[]", "6"); /* nothing is lost */
  td_tensor_release(a);
}

enum { PARTIES = 16, ROUNDS = 50, EACH = 4 };

static void *apply_main(void *arg) {
  for (int i = 0; i < ROUNDS; i++) assert_null(apply(arg, 1000000, TD_FLOAT, "[3]", "1 2 4"));
  return NULL;
}

/* All gradients come out, each once. */
static void many_at_once(void **state) {
  td_tensor *a = make("dtype: float; shape: [3]; shared_name: 'many'; reduction_type: 'SUM'");
  pthread_t threads[PARTIES];
  float total = 0;
  for (int i = 0; i < PARTIES; i++) assert_int_equal(pthread_create(&threads[i], NULL, apply_main, a), 0);
  while (total < PARTIES * ROUNDS) {
    td_tensor *t;
    char required[16];
    snprintf(required, sizeof required, "%d", TD_MIN(EACH, (int)(PARTIES * ROUNDS - total)));
    assert_null(take(a, required, NULL, &t));
    const float *v = t->data;
    assert_true(v[0] >= 1 && v[1] == 2 * v[0] && v[2] == 4 * v[0]);
    total += v[0];
    td_tensor_release(t);
  }
  for (int i = 0; i < PARTIES; i++) pthread_join(threads[i], NULL);
  assert_true(total == PARTIES * ROUNDS);
  expect_count(a, 0);
  td_tensor_release(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dense),        cmocka_unit_test(global_step),  cmocka_unit_test(sparse),
      cmocka_unit_test(cancellation), cmocka_unit_test(many_at_once),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}

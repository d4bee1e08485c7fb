/* Gamma, Poisson and generators in variables: TensorFlow's streams (1.15.5 and 2.15.1 agree), and hostile inputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "framework/device.h"
#include "ops/testing.h"

#define SEEDS "seed: 5; seed2: 7; "

static td_status run(td_device *d, td_kernel **k, const char *op, const char *attrs, td_tensor **in, int count,
                     td_tensor **out) {
  td_op_run r = {.op = op, .attrs = attrs, .device = d, .kernel = k, .in = in, .in_count = count};
  td_status s = td_op_test_run(&r);
  *out = r.out[0];
  return s;
}

typedef struct sample {
  const char *op, *attrs, *shape;
  td_dtype type;
  const char *parameter_shape, *parameters;
  td_dtype out;
  const char *out_shape, *values;
} sample;

static void expect(td_kernel **k, const sample *c) {
  td_tensor *in[] = {td_test_tensor(TD_INT32, "[1]", c->shape),
                     td_test_tensor(c->type, c->parameter_shape, c->parameters)};
  td_tensor *t;
  td_status s = run(NULL, k, c->op, c->attrs, in, 2, &t);
  if (s) fail_msg("%s: %s", c->op, td_status_message(s));
  td_assert_tensor(t, c->out, c->out_shape, c->values, 1e-5);
  td_tensor_release(t);
  td_tensor_release(in[0]);
  td_tensor_release(in[1]);
}

static void gamma_streams(void **state) {
  static const char *const values[] = {
      "1.03836906 1.59664094 5.01149607 0.00384614291 0.302932203 3.26354957 0.119956627 1.72938871 2.6946826",
      "0.135481298 1.27683759 7.32703257 0.434279233 0.758228779 3.10365605 0.185604885 1.87776947 3.0489006"};
  td_kernel *k = NULL;
  for (int i = 0; i < 2; i++)
    expect(&k, &(sample){"RandomGamma", SEEDS "S: int32; T: float", "3", TD_FLOAT, "[3]", "0.5 1 4", TD_FLOAT, "[3,3]",
                         values[i]});
  td_kernel_release(k);
}

static void poisson_streams(void **state) {
  static const char *const values[] = {"0 17 1 24 2 16 3 16", "3 23 3 20 3 25 1 19"};
  td_kernel *k = NULL;
  for (int i = 0; i < 2; i++)
    expect(&k, &(sample){"RandomPoissonV2", SEEDS "S: int32; R: double; dtype: int64", "4", TD_DOUBLE, "[2]", "2 20",
                         TD_INT64, "[4,2]", values[i]});
  td_kernel_release(k);
}

/* Every draw ends, whatever the parameter. */
static void hostile_parameters(void **state) {
  sample c = {.op = "RandomPoissonV2",
              .attrs = SEEDS "S: int32; R: double; dtype: int32",
              .shape = "1",
              .type = TD_DOUBLE,
              .parameter_shape = "[5]",
              .parameters = "nan inf -inf -3 1e300",
              .out = TD_INT32,
              .out_shape = "[1,5]",
              .values = "0 0 0 0 2147483647"};
  expect(NULL, &c);
  c.shape = "0";
  c.out_shape = "[0,5]";
  c.values = "";
  expect(NULL, &c);
  td_tensor *in[] = {td_test_tensor(TD_INT32, "[1]", "2"), td_test_tensor(TD_DOUBLE, "[6]", "nan inf -inf -1 0 1e300")};
  td_tensor *t;
  assert_null(run(NULL, NULL, "RandomGamma", "S: int32; T: double", in, 2, &t));
  td_tensor_release(t);
  td_tensor_release(in[1]);
  in[1] = td_test_tensor(TD_DOUBLE, "[0]", "");
  td_op_run r = {.op = "RandomGamma", .attrs = "S: int32; T: double", .in = in, .in_count = 2};
  td_assert_run_fails(&r, TD_INVALID_ARGUMENT, "Input alpha should have non-zero element count, got: 0");
  td_tensor_release(in[0]);
  in[0] = td_test_tensor(TD_INT32, "[1]", "-2");
  td_assert_run_fails(&r, TD_INVALID_ARGUMENT, "-2");
  td_tensor_release(in[0]);
  td_tensor_release(in[1]);
}

/* ---- generators in variables ---- */

static td_tensor *make_variable(td_device *d, const char *shape, const char *values) {
  td_tensor *h, *none;
  assert_null(run(d, NULL, "VarHandleOp", "dtype: int64; shape: unknown; shared_name: 'rng'", NULL, 0, &h));
  td_tensor *in[] = {h, td_test_tensor(TD_INT64, shape, values)};
  assert_null(run(d, NULL, "AssignVariableOp", "dtype: int64", in, 2, &none));
  td_tensor_release(in[1]);
  return h;
}

static void expect_variable(td_device *d, td_tensor *h, const char *values) {
  td_tensor *t;
  assert_null(run(d, NULL, "ReadVariableOp", "dtype: int64", &h, 1, &t));
  td_assert_tensor(t, TD_INT64, "[3]", values, 0);
  td_tensor_release(t);
}

static void generators(void **state) {
  td_device *d = td_test_device();
  td_tensor *h = make_variable(d, "[3]", "11 22 33"), *t;
  td_tensor *one = td_test_tensor(TD_INT64, "[]", "1"), *three = td_test_tensor(TD_INT64, "[1]", "3");
  td_tensor *two = td_test_tensor(TD_INT64, "[1]", "2"), *delta = td_test_tensor(TD_INT64, "[]", "3");
  td_tensor *low = td_test_tensor(TD_INT64, "[]", "-7"), *high = td_test_tensor(TD_INT64, "[]", "100");
  assert_null(run(d, NULL, "StatefulUniform", "dtype: float", (td_tensor *[]){h, one, three}, 3, &t));
  td_assert_tensor(t, TD_FLOAT, "[3]", "0.30921948 0.698034286 0.738177776", 1e-7);
  td_tensor_release(t);
  expect_variable(d, h, "779 22 33");
  assert_null(run(d, NULL, "RngSkip", "", (td_tensor *[]){h, one, delta}, 3, &t));
  expect_variable(d, h, "1547 22 33");
  assert_null(run(d, NULL, "StatefulUniformInt", "dtype: int64", (td_tensor *[]){h, one, two, low, high}, 5, &t));
  td_assert_tensor(t, TD_INT64, "[2]", "49 42", 0);
  td_tensor_release(t);
  expect_variable(d, h, "2059 22 33");
  td_op_run bad = {.op = "StatefulUniform",
                   .attrs = "dtype: float",
                   .device = d,
                   .in = (td_tensor *[]){h, delta, two},
                   .in_count = 3};
  td_assert_run_fails(&bad, TD_INVALID_ARGUMENT, "Unsupported algorithm id: 3");
  bad.in = (td_tensor *[]){h, two, two};
  td_assert_run_fails(&bad, TD_INVALID_ARGUMENT, "input 1 (0-based) must have shape [], not [1]");
  td_tensor *all[] = {one, three, two, delta, low, high};
  td_tensor_release(h);
  h = make_variable(d, "[2]", "11 22");
  bad.in = (td_tensor *[]){h, one, two};
  td_assert_run_fails(&bad, TD_INVALID_ARGUMENT, "the size of state must be at least 3; got 2");
  for (size_t i = 0; i < TD_COUNT(all); i++) td_tensor_release(all[i]);
  td_tensor_release(h);
  td_device_release(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gamma_streams), cmocka_unit_test(poisson_streams),
                                     cmocka_unit_test(hostile_parameters), cmocka_unit_test(generators)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "framework/debug.h"

#include "base/mem.h"
#include "framework/variable.h"
#include "ops/testing.h"

/* A sink that keeps what comes. */
typedef struct test_sink {
  td_debug_sink base;
  const char *open; /* the watch whose gate is open; NULL: none is */
  int published;
  td_tensor *tensor;
  char watch[128], node[64], device[64], url[64];
  int slot;
  size_t url_count;
  td_code fails; /* with this code, if it is one */
} test_sink;

static bool is_open(td_debug_sink *s, td_str url, td_str watch) {
  test_sink *t = (test_sink *)s;
  return !td_str_starts(url, TD_STR("grpc://")) || (t->open && td_str_is(watch, t->open));
}

static void publish(td_debug_sink *s, td_debug_publication *p) {
  test_sink *t = (test_sink *)s;
  t->published++;
  td_tensor_release(t->tensor);
  t->tensor = td_tensor_retain(p->tensor);
  snprintf(t->watch, sizeof t->watch, "%.*s", TD_STR_ARG(p->key->watch));
  snprintf(t->node, sizeof t->node, "%.*s", TD_STR_ARG(p->key->node));
  snprintf(t->device, sizeof t->device, "%.*s", TD_STR_ARG(p->key->device));
  snprintf(t->url, sizeof t->url, "%.*s", TD_STR_ARG(p->urls[0]));
  t->slot = p->key->slot;
  t->url_count = p->url_count;
  p->done(p, t->fails ? td_error(t->fails, "no") : TD_STATUS_OK);
}

static const td_debug_sink_ops sink_ops = {is_open, publish};
static test_sink sink;
static td_step step;

static int fresh(void **state) {
  sink = (test_sink){.base.ops = &sink_ops};
  step = (td_step){.id = 1, .debug = &sink.base};
  return 0;
}

static int forget(void **state) {
  td_tensor_release(sink.tensor);
  return 0;
}

/* Runs the op on `in`, which it releases. */
static td_op_run run_on(const char *op, const char *attrs, td_tensor *in) {
  td_op_run run = {.op = op, .attrs = attrs, .in = &in, .in_count = 1, .step = &step};
  td_assert_runs(&run);
  td_tensor_release(in);
  return run;
}

static void assert_output(const char *op, const char *attrs, td_tensor *in, td_dtype type, const char *shape,
                          const char *values) {
  td_op_run run = run_on(op, attrs, in);
  td_assert_tensor(run.out[0], type, shape, values, 1e-12);
  td_tensor_release(run.out[0]);
}

#define FILE_ATTRS "T: float; debug_urls: ['file:///x']; tensor_name: 'n/a:1'; device_name: '/d'"

static void test_identity(void **state) {
  assert_output("DebugIdentity", FILE_ATTRS, td_test_tensor(TD_FLOAT, "[2]", "1 nan"), TD_FLOAT, "[2]", "1 nan");
  assert_int_equal(sink.published, 1);
  assert_string_equal(sink.watch, "n/a:1:DebugIdentity");
  assert_string_equal(sink.node, "n/a");
  assert_string_equal(sink.device, "/d");
  assert_string_equal(sink.url, "file:///x");
  assert_int_equal(sink.slot, 1);
  td_assert_tensor(sink.tensor, TD_FLOAT, "[2]", "1 nan", 0);
  /* without URLs there is nothing to publish, nor a need for a debugger */
  step.debug = NULL;
  assert_output("DebugIdentity", "T: string", td_test_tensor(TD_STRING, "[2]", "x y"), TD_STRING, "[2]", "x y");
}

static void test_nan_count(void **state) {
  assert_output("DebugNanCount", FILE_ATTRS, td_test_tensor(TD_FLOAT, "[4]", "1 nan inf nan"), TD_INT64, "[1]", "2");
  td_assert_tensor(sink.tensor, TD_INT64, "[1]", "2", 0);
  assert_output("DebugNanCount", "T: double", td_test_tensor(TD_DOUBLE, "[0]", ""), TD_INT64, "[1]", "0");
}

static void test_summary(void **state) {
  /* initialised, elements, nans, -infs, negatives, zeros, positives, infs, min, max, mean, variance, dtype, rank, dims
   */
  assert_output("DebugNumericSummary", FILE_ATTRS, td_test_tensor(TD_FLOAT, "[2,4]", "-1 0 3 -2 nan inf -inf 5"),
                TD_DOUBLE, "[16]", "1 8 1 1 2 1 2 1 -2 5 1 6.8 1 2 2 4");
  assert_output("DebugNumericSummary", "T: bool", td_test_tensor(TD_BOOL, "[3]", "true false true"), TD_DOUBLE, "[15]",
                "1 3 0 0 0 1 2 0 0 1 0.66666666666666663 0.22222222222222221 10 1 3");
  assert_output("DebugNumericSummary", "T: int64", td_test_tensor(TD_INT64, "[]", "-7"), TD_DOUBLE, "[14]",
                "1 1 0 0 1 0 0 0 -7 -7 -7 0 9 0");
  assert_output("DebugNumericSummary", "T: uint8", td_test_tensor(TD_UINT8, "[0]", ""), TD_DOUBLE, "[15]",
                "1 0 0 0 0 0 0 0 inf -inf nan nan 4 1 0");
  assert_output("DebugNumericSummary", "T: float", td_test_tensor(TD_FLOAT, "[2]", "nan inf"), TD_DOUBLE, "[15]",
                "1 2 1 0 0 0 0 1 inf -inf nan nan 1 1 2");
}

static void test_bounds(void **state) {
  assert_output("DebugNumericSummary", "T: float; lower_bound: -1.0; upper_bound: 2.0",
                td_test_tensor(TD_FLOAT, "[5]", "-3 -1 0 1 2"), TD_DOUBLE, "[15]",
                "1 5 0 2 0 1 1 1 -3 2 -0.2 2.96 1 1 5");
}

static void test_mute(void **state) {
#define MUTE FILE_ATTRS "; mute_if_healthy: true"
  td_op_run run = run_on("DebugNumericSummary", MUTE, td_test_tensor(TD_FLOAT, "[2]", "1 2"));
  td_tensor_release(run.out[0]);
  assert_int_equal(sink.published, 0);
  run = run_on("DebugNumericSummary", MUTE, td_test_tensor(TD_FLOAT, "[2]", "1 inf"));
  td_tensor_release(run.out[0]);
  assert_int_equal(sink.published, 1);
}

/* Larger ones are digested on the pool. */
static void test_pool(void **state) {
  int64_t n = 100000;
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_INT32, 1, &n, &t));
  for (int64_t i = 0; i < n; i++) TD_DATA(t, int32_t)[i] = (int32_t)i;
  step.pool = td_pool_create("test", NULL, 2);
  assert_output("DebugNumericSummary", "T: int32", t, TD_DOUBLE, "[15]",
                "1 100000 0 0 0 1 99999 0 0 99999 49999.5 833333333.25 3 1 100000");
  td_pool_destroy(step.pool);
}

#define GATED "T: float; debug_urls: ['grpc://h:1']; tensor_name: 'a:0'; gated_grpc: true"

static void test_gate(void **state) {
  static const char *const ops[] = {"DebugIdentity", "DebugNanCount", "DebugNumericSummary"};
  for (int i = 0; i < 3; i++) {
    char watch[64];
    sink.open = NULL;
    sink.published = 0;
    td_op_run run = run_on(ops[i], GATED, td_test_tensor(TD_FLOAT, "[2]", "1 2"));
    assert_int_equal(run.out[0]->count, 0);
    assert_int_equal(run.out[0]->rank, 1);
    assert_int_equal(sink.published, 0);
    td_tensor_release(run.out[0]);
    snprintf(watch, sizeof watch, "a:0:%s", ops[i]);
    sink.open = watch;
    run = run_on(ops[i], GATED, td_test_tensor(TD_FLOAT, "[2]", "1 2"));
    assert_int_equal(sink.published, 1);
    td_tensor_release(run.out[0]);
  }
}

static void test_uninitialized(void **state) {
  td_variable *v = td_variable_create(&td_ref_variable_type, TD_FLOAT, TD_STR("v"));
  td_variable_declare_shape(v, 2, (const int64_t[]){2, 3});
  td_op_run run = {.op = "Copy", .attrs = "T: float", .refs = &v, .in_count = 1, .is_ref = true, .step = &step};
  assert_null(td_op_test_run(&run));
  assert_int_equal(run.out[0]->has_value, 0);
  assert_int_equal(run.out[0]->count, 6);
  td_tensor *copy = run.out[0];
  assert_output("DebugNumericSummary", FILE_ATTRS, td_tensor_retain(copy), TD_DOUBLE, "[16]",
                "0 0 0 0 0 0 0 0 inf -inf nan nan 1 2 2 3");
  assert_output("DebugNanCount", FILE_ATTRS, td_tensor_retain(copy), TD_INT64, "[1]", "0");
  run = run_on("DebugIdentity", FILE_ATTRS, copy);
  assert_int_equal(sink.tensor->has_value, 0);
  td_tensor_release(run.out[0]);
  td_variable_release(v);
}

/* A copy of a variable does not see what is written into it later. */
static void test_copy(void **state) {
  td_variable *v = td_variable_create(&td_ref_variable_type, TD_FLOAT, TD_STR("v"));
  td_variable_set(v, td_test_tensor(TD_FLOAT, "[2]", "1 2"));
  td_op_run run = {.op = "Copy",
                   .attrs = "T: float; tensor_name: 'v:0'; debug_ops_spec: ['DebugIdentity;file:///x;0']",
                   .refs = &v,
                   .in_count = 1,
                   .is_ref = true,
                   .step = &step};
  assert_null(td_op_test_run(&run));
  TD_DATA(v->value, float)[0] = 7;
  td_assert_tensor(run.out[0], TD_FLOAT, "[2]", "1 2", 0);
  td_tensor_release(run.out[0]);
  /* nobody looks: handed on as it is */
  run.attrs = "T: float; tensor_name: 'v:0'; debug_ops_spec: ['DebugIdentity;grpc://h:1;1']";
  assert_null(td_op_test_run(&run));
  assert_ptr_equal(run.out[0], v->value);
  td_tensor_release(run.out[0]);
  sink.open = "v:0:DebugIdentity";
  assert_null(td_op_test_run(&run));
  assert_ptr_not_equal(run.out[0], v->value);
  td_tensor_release(run.out[0]);
  td_variable_release(v);
}

static void test_errors(void **state) {
  td_tensor *t = td_test_tensor(TD_FLOAT, "[]", "1");
  td_op_run run = {.op = "DebugIdentity", .in = &t, .in_count = 1, .step = &step};
  run.attrs = "T: float; tensor_name: 'a:b:c'";
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Failed to parse tensor name: \"a:b:c\"");
  run.attrs = "T: float; tensor_name: 'a:b'";
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Invalid string value for output_slot: \"b\"");
  sink.fails = TD_RESOURCE_EXHAUSTED;
  run.attrs = FILE_ATTRS;
  td_assert_run_fails(&run, TD_RESOURCE_EXHAUSTED, "no");
  step.debug = NULL;
  td_assert_run_fails(&run, TD_FAILED_PRECONDITION, "not run under the debugger");
  step.debug = &sink.base;
  run.op = "Copy";
  run.attrs = "T: float; debug_ops_spec: ['DebugIdentity;file:///x']";
  td_assert_run_fails(&run, TD_INTERNAL, "Unexpected number of semicolons in debug_ops_spec element");
  run.op = "DebugNanCount";
  run.attrs = "T: int32";
  td_tensor_release(t);
  t = td_test_tensor(TD_INT32, "[]", "1");
  td_assert_run_fails(&run, TD_NOT_FOUND, "No OpKernel was registered to support Op 'DebugNanCount'");
  td_tensor_release(t);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fresh, forget)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_identity), TEST(test_nan_count), TEST(test_summary),       TEST(test_bounds), TEST(test_mute),
      TEST(test_pool),     TEST(test_gate),      TEST(test_uninitialized), TEST(test_copy),   TEST(test_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

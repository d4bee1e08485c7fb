#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "framework/device.h"
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

typedef struct sparse {
  const char *index_shape, *indices, *value_shape, *values, *rank, *dims;
} sparse;

static td_status add(const char *op, const sparse *s, td_tensor **out) {
  td_tensor *in[] = {td_test_tensor(TD_INT64, s->index_shape, s->indices),
                     td_test_tensor(TD_STRING, s->value_shape, s->values), td_test_tensor(TD_INT64, s->rank, s->dims)};
  td_op_run run = {.op = op, .attrs = "T: string; shared_name: 'm'", .device = device, .in = in, .in_count = 3};
  td_status status = td_op_test_run(&run);
  for (int i = 0; i < 3; i++) td_tensor_release(in[i]);
  *out = run.out[0];
  return status;
}

static void expect_add(const char *op, const sparse *s, const char *shape, const char *handles) {
  td_tensor *t;
  must(add(op, s, &t));
  td_assert_tensor(t, TD_INT64, shape, handles, 0);
  td_tensor_release(t);
}

static void expect_bad(const char *op, const sparse *s, const char *text) {
  td_tensor *t;
  td_status status = add(op, s, &t);
  assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
  if (!strstr(td_status_message(status), text)) fail_msg("\"%s\" lacks \"%s\"", td_status_message(status), text);
  td_status_free(status);
}

static void take_run(td_op_run *run, td_tensor **handles, const char *attrs) {
  *run =
      (td_op_run){.op = "TakeManySparseFromTensorsMap", .attrs = attrs, .device = device, .in = handles, .in_count = 1};
}

static void expect_take(const char *shape, const char *handles, const sparse *s) {
  td_tensor *in = td_test_tensor(TD_INT64, shape, handles);
  td_op_run run;
  take_run(&run, &in, "dtype: string; shared_name: 'm'");
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_INT64, s->index_shape, s->indices, 0);
  td_assert_tensor(run.out[1], TD_STRING, s->value_shape, s->values, 0);
  td_assert_tensor(run.out[2], TD_INT64, s->rank, s->dims, 0);
  for (int i = 0; i < 3; i++) td_tensor_release(run.out[i]);
  td_tensor_release(in);
}

static void expect_bad_take(const char *shape, const char *handles, const char *attrs, const char *text) {
  td_tensor *in = td_test_tensor(TD_INT64, shape, handles);
  td_op_run run;
  take_run(&run, &in, attrs);
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, text);
  td_tensor_release(in);
}

#define STRINGS "dtype: string; shared_name: 'm'"

static void round_trip(void **state) {
  expect_add("AddSparseToTensorsMap", &(sparse){"[2,1]", "0 3", "[2]", "a b", "[1]", "5"}, "[]", "0");
  expect_add("AddSparseToTensorsMap", &(sparse){"[0,1]", "", "[0]", "", "[1]", "9"}, "[]", "1");
  /* rows in any order, one of them empty */
  expect_add("AddManySparseToTensorsMap", &(sparse){"[3,2]", "2 1 0 4 2 0", "[3]", "x y z", "[2]", "3 6"}, "[3]",
             "2 3 4");
  expect_take("[4]", "4 0 2 3", &(sparse){"[5,2]", "0 1 0 0 1 0 1 3 2 4", "[5]", "x z a b y", "[2]", "4 6"});
  expect_take("[1]", "1", &(sparse){"[0,2]", "", "[0]", "", "[2]", "1 9"});
  expect_bad_take("[1]", "0", STRINGS, "Unable to find SparseTensor: 0 in map: m");
}

static void refuses(void **state) {
  const char *one = "AddSparseToTensorsMap", *many = "AddManySparseToTensorsMap";
  expect_bad(one, &(sparse){"[2]", "0 3", "[2]", "a b", "[1]", "5"}, "Input indices should be a matrix");
  expect_bad(one, &(sparse){"[2,1]", "0 3", "[2,1]", "a b", "[1]", "5"}, "Input values should be a vector");
  expect_bad(one, &(sparse){"[2,1]", "0 3", "[2]", "a b", "[]", "5"}, "Input shape should be a vector");
  expect_bad(one, &(sparse){"[2,1]", "0 3", "[1]", "a", "[1]", "5"}, "Got 1 values, indices shape: [2,1]");
  expect_bad(one, &(sparse){"[2,1]", "0 3", "[2]", "a b", "[2]", "5 5"}, "Got 2 dimensions, indices shape: [2,1]");
  expect_bad(one, &(sparse){"[0,1]", "", "[0]", "", "[1]", "-5"}, "-5");
  expect_bad(many, &(sparse){"[1,1]", "0", "[1]", "a", "[1]", "5"}, "should be > 1, but saw rank: 1");
  expect_bad(many, &(sparse){"[1,2]", "5 0", "[1]", "a", "[2]", "5 5"}, "column 0 value in input SparseTensor: 5");
  expect_bad(many, &(sparse){"[1,2]", "-1 0", "[1]", "a", "[2]", "5 5"}, "column 0 value in input SparseTensor: -1");
  expect_bad_take("[]", "0", STRINGS, "sparse_handles should be a vector");
  expect_bad_take("[0]", "", STRINGS, "Must have at least 1 serialized SparseTensor");
  td_tensor *a, *b;
  assert_null(add(one, &(sparse){"[1,1]", "0", "[1]", "a", "[1]", "5"}, &a));
  assert_null(add(one, &(sparse){"[1,2]", "0 0", "[1]", "a", "[2]", "5 5"}, &b));
  char handles[64];
  long long first = *TD_DATA(a, int64_t), second = *TD_DATA(b, int64_t);
  snprintf(handles, sizeof handles, "%lld %lld", first, first);
  expect_bad_take("[2]", handles, STRINGS, "Unable to find SparseTensor"); /* the first one is put back */
  snprintf(handles, sizeof handles, "%lld %lld", first, second);
  expect_bad_take("[2]", handles, STRINGS, "rank prior to SparseTensor[1] was: 2 but rank of SparseTensor[1] is: 3");
  td_tensor_release(a);
  td_tensor_release(b);
  assert_null(add(one, &(sparse){"[1,1]", "0", "[1]", "a", "[1]", "5"}, &a));
  snprintf(handles, sizeof handles, "%lld", (long long)*TD_DATA(a, int64_t));
  expect_bad_take("[1]", handles, "dtype: float; shared_name: 'm'",
                  "Requested SparseTensor of type float but SparseTensor[0].values.dtype() == string");
  td_tensor_release(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip), cmocka_unit_test(refuses)};
  return cmocka_run_group_tests(tests, setup, teardown);
}

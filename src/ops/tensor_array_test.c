#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/testing.h"

/* One step for all runs of a test. */
static td_device *device;
static td_step step;
static td_tensor *flow;

static int setup(void **state) {
  device = td_test_device();
  step = (td_step){.id = 1, .step_resources = td_resource_mgr_create(TD_STR("__per_step_1"))};
  flow = td_test_tensor(TD_FLOAT, "[]", "0");
  return 0;
}

static int teardown(void **state) {
  td_tensor_release(flow);
  td_resource_mgr_release(step.step_resources);
  td_device_release(device);
  return 0;
}

static td_op_run op(const char *name, const char *attrs, td_tensor **in, int count) {
  return (td_op_run){.op = name, .attrs = attrs, .in = in, .in_count = count, .device = device, .step = &step};
}

static td_tensor *ints(const char *shape, const char *values) { return td_test_tensor(TD_INT32, shape, values); }

static void release(td_tensor **t, int n) {
  for (int i = 0; i < n; i++) td_tensor_release(t[i]);
}

static td_tensor *make(const char *size, const char *attrs) {
  td_tensor *n = ints("[]", size);
  td_op_run run = op("TensorArrayV3", attrs, &n, 1);
  assert_null(td_op_test_run(&run));
  td_tensor_release(n);
  td_tensor_release(run.out[1]);
  return run.out[0];
}

static td_status write(td_tensor *a, const char *index, const char *shape, const char *values) {
  td_tensor *in[] = {a, ints("[]", index), ints(shape, values), flow};
  td_op_run run = op("TensorArrayWriteV3", "T: int32", in, 4);
  td_status s = td_op_test_run(&run);
  td_tensor_release(run.out[0]);
  release(in + 1, 2);
  return s;
}

static td_status read(td_tensor *a, const char *index, td_tensor **out) {
  td_tensor *in[] = {a, ints("[]", index), flow};
  td_op_run run = op("TensorArrayReadV3", "dtype: int32", in, 3);
  td_status s = td_op_test_run(&run);
  *out = run.out[0];
  td_tensor_release(in[1]);
  return s;
}

static void expect_read(td_tensor *a, const char *index, const char *shape, const char *values) {
  td_tensor *t;
  assert_null(read(a, index, &t));
  td_assert_tensor(t, TD_INT32, shape, values, 0);
  td_tensor_release(t);
}

static void expect_fails(td_status s, const char *text) { must_fail(s, TD_INVALID_ARGUMENT, text); }

static void elements(void **state) {
  td_tensor *a = make("3", "dtype: int32"), *none;
  assert_null(write(a, "0", "[2]", "1 2"));
  expect_fails(write(a, "0", "[2]", "1 2"),
               "Could not write to TensorArray index 0 because it has already been written to.");
  expect_fails(write(a, "3", "[]", "1"), "Tried to write to index 3 but array is not resizeable and size is: 3");
  expect_fails(write(a, "-1", "[]", "1"), "Tried to write to index -1");
  expect_read(a, "0", "[2]", "1 2");
  expect_fails(read(a, "0", &none), "Could not read index 0 twice because it was cleared after a previous read");
  expect_fails(write(a, "0", "[2]", "1 2"), "because it has already been read.");
  expect_fails(read(a, "1", &none), "Could not read from TensorArray index 1.");
  expect_fails(read(a, "3", &none), "Tried to read from index 3 but array size is: 3");
  td_op_run close = op("TensorArrayCloseV3", "", &a, 1);
  assert_null(td_op_test_run(&close));
  expect_fails(read(a, "1", &none), "has already been closed.");
  td_tensor_release(a);
  /* zeros where nobody wrote; growth; a size that would not fit into memory */
  a = make("0", "dtype: int32; dynamic_size: true; element_shape: [2]; clear_after_read: false");
  assert_null(write(a, "1000", "[2]", "5 6"));
  expect_read(a, "1000", "[2]", "5 6");
  expect_read(a, "1000", "[2]", "5 6");
  expect_read(a, "7", "[2]", "0 0");
  expect_fails(
      write(a, "1", "[3]", "1 2 3"),
      "because the value shape is [3] which is incompatible with the TensorArray's inferred element shape: [2]");
  td_status s = write(a, "2147483647", "[2]", "1 2");
  assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
  td_status_free(s);
  td_tensor_release(a);
}

static void many(void **state) {
  td_tensor *a = make("3", "dtype: int32; clear_after_read: false");
  td_tensor *in[] = {a, ints("[3]", "2 0 1"), ints("[3,2]", "1 2 3 4 5 6"), flow};
  td_op_run scatter = op("TensorArrayScatterV3", "T: int32", in, 4);
  assert_null(td_op_test_run(&scatter));
  td_tensor_release(scatter.out[0]);
  release(in + 1, 2);
  expect_read(a, "2", "[2]", "1 2");
  td_tensor *from[] = {a, ints("[2]", "0 2"), flow};
  td_op_run gather = op("TensorArrayGatherV3", "dtype: int32", from, 3);
  assert_null(td_op_test_run(&gather));
  td_assert_tensor(gather.out[0], TD_INT32, "[2,2]", "3 4 1 2", 0);
  release(gather.out, 1);
  td_tensor_release(from[1]);
  td_op_run concat = op("TensorArrayConcatV3", "dtype: int32", (td_tensor *[]){a, flow}, 2);
  assert_null(td_op_test_run(&concat));
  td_assert_tensor(concat.out[0], TD_INT32, "[6]", "3 4 5 6 1 2", 0);
  td_assert_tensor(concat.out[1], TD_INT64, "[3]", "2 2 2", 0);
  release(concat.out, 2);
  td_tensor_release(a);
  a = make("2", "dtype: int32");
  td_tensor *parts[] = {a, ints("[3]", "1 2 3"), td_test_tensor(TD_INT64, "[2]", "-1 4"), flow};
  td_op_run split = op("TensorArraySplitV3", "T: int32", parts, 4);
  td_assert_run_fails(&split, TD_INVALID_ARGUMENT, "lengths[0] is -1");
  TD_DATA(parts[2], int64_t)[0] = 1;
  TD_DATA(parts[2], int64_t)[1] = 2;
  assert_null(td_op_test_run(&split));
  release(split.out, 1);
  release(parts + 1, 2);
  expect_read(a, "0", "[1]", "1");
  expect_read(a, "1", "[2]", "2 3");
  td_tensor_release(a);
}

static void gradients(void **state) {
  td_tensor *a = make("2", "dtype: int32");
  assert_null(write(a, "0", "[2]", "1 2"));
  td_op_run grad = op("TensorArrayGradV3", "source: 'g'", (td_tensor *[]){a, flow}, 2);
  assert_null(td_op_test_run(&grad));
  td_tensor *g = grad.out[0];
  td_tensor_release(grad.out[1]);
  assert_null(td_op_test_run(&grad)); /* the same one again */
  assert_string_equal(TD_DATA(g, td_resource_handle *)[0]->name, TD_DATA(grad.out[0], td_resource_handle *)[0]->name);
  release(grad.out, 2);
  assert_null(write(g, "0", "[2]", "1 2"));
  assert_null(write(g, "0", "[2]", "10 20"));
  assert_null(write(g, "0", "[2]", "100 200"));
  expect_fails(
      write(g, "0", "[3]", "1 2 3"),
      "Could not aggregate to TensorArray index 0 because the existing shape is [2] but the new input shape is [3].");
  expect_read(g, "0", "[2]", "111 222");
  td_tensor_release(g);
  td_tensor_release(a);
}

static void first_generation(void **state) {
  td_tensor *n = ints("[]", "1");
  td_op_run make_run = op("TensorArray", "dtype: int32", &n, 1);
  assert_null(td_op_test_run(&make_run));
  td_tensor_release(n);
  td_op_run size = op("TensorArraySize", "", (td_tensor *[]){NULL, flow}, 2);
  size.refs = make_run.out_refs;
  assert_null(td_op_test_run(&size));
  td_assert_tensor(size.out[0], TD_INT32, "[]", "1", 0);
  release(size.out, 1);
  td_variable_release(make_run.out_refs[0]);
}

static void stacks(void **state) {
  td_tensor *n = ints("[]", "2"), *x = ints("[]", "7");
  td_op_run make_run = op("StackV2", "elem_type: int32", &n, 1);
  assert_null(td_op_test_run(&make_run));
  td_tensor *s = make_run.out[0];
  td_op_run push = op("StackPushV2", "T: int32", (td_tensor *[]){s, x}, 2),
            pop = op("StackPopV2", "elem_type: int32", &s, 1);
  for (int i = 0; i < 2; i++) {
    assert_null(td_op_test_run(&push));
    release(push.out, 1);
  }
  td_assert_run_fails(&push, TD_INVALID_ARGUMENT, "overflowed its max_size (2)");
  for (int i = 0; i < 2; i++) {
    assert_null(td_op_test_run(&pop));
    td_assert_tensor(pop.out[0], TD_INT32, "[]", "7", 0);
    release(pop.out, 1);
  }
  td_assert_run_fails(&pop, TD_INVALID_ARGUMENT, "is empty when calling Pop().");
  td_op_run close = op("StackCloseV2", "", &s, 1);
  assert_null(td_op_test_run(&close));
  td_assert_run_fails(&push, TD_INVALID_ARGUMENT, "has already been closed.");
  td_tensor_release(s);
  td_tensor_release(n);
  td_tensor_release(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(elements, setup, teardown),
      cmocka_unit_test_setup_teardown(many, setup, teardown),
      cmocka_unit_test_setup_teardown(gradients, setup, teardown),
      cmocka_unit_test_setup_teardown(first_generation, setup, teardown),
      cmocka_unit_test_setup_teardown(stacks, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

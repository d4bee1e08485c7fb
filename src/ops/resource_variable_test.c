#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/testing.h"

static int setup(void **state) {
  *state = td_test_device();
  return 0;
}
static int teardown(void **state) {
  td_device_release(*state);
  return 0;
}

/* Runs an op on up to two inputs, the second of which it releases; its first output or NULL. */
static td_tensor *run(td_device *d, const char *op, const char *attrs, td_tensor *a, td_tensor *b) {
  td_op_run r = {.op = op, .attrs = attrs, .in = (td_tensor *[]){a, b}, .in_count = b ? 2 : a ? 1 : 0, .device = d};
  td_assert_runs(&r);
  td_tensor_release(b);
  return r.out[0];
}

static void fails(td_device *d, const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_code code,
                  const char *text) {
  td_op_run r = {.op = op, .attrs = attrs, .in = (td_tensor *[]){a, b}, .in_count = b ? 2 : 1, .device = d};
  td_assert_run_fails(&r, code, text);
  td_tensor_release(b);
}

static td_tensor *handle(td_device *d, const char *name) {
  char attrs[128];
  snprintf(attrs, sizeof attrs, "dtype: float; shape: [2]; shared_name: '%s'", name);
  return run(d, "VarHandleOp", attrs, NULL, NULL);
}

static td_tensor *floats(const char *shape, const char *values) { return td_test_tensor(TD_FLOAT, shape, values); }

static bool is_initialized(td_device *d, td_tensor *h) {
  td_tensor *t = run(d, "VarIsInitializedOp", "", h, NULL);
  bool result = TD_DATA(t, bool)[0];
  td_tensor_release(t);
  return result;
}

static void holds(td_device *d, td_tensor *h, const char *shape, const char *values) {
  td_tensor *t = run(d, "ReadVariableOp", "dtype: float", h, NULL);
  td_assert_tensor(t, TD_FLOAT, shape, values, 0);
  td_tensor_release(t);
}

static void test_life(void **state) {
  td_device *d = *state;
  td_tensor *h = handle(d, "v");
  td_resource_handle *rh = TD_DATA(h, td_resource_handle *)[0];
  assert_string_equal(rh->container, "test");
  assert_string_equal(rh->name, "v");
  assert_string_equal(rh->device, d->name);
  assert_false(is_initialized(d, h));
  fails(d, "ReadVariableOp", "dtype: float", h, NULL, TD_FAILED_PRECONDITION,
        "Error while reading resource variable v from Container: test. This could mean that the variable was "
        "uninitialized. Not found: Container test does not exist. (Could not find resource: test/v)");
  fails(d, "AssignAddVariableOp", "dtype: float", h, floats("[2]", "1"), TD_NOT_FOUND, "test/v");
  fails(d, "VariableShape", "", h, NULL, TD_NOT_FOUND, "test/v");
  fails(d, "DisableCopyOnRead", "", h, NULL, TD_NOT_FOUND, "test/v");
  run(d, "AssignVariableOp", "dtype: float", h, floats("[2]", "1 2"));
  assert_true(is_initialized(d, h));
  run(d, "AssignAddVariableOp", "dtype: float", h, floats("[2]", "10 20"));
  run(d, "AssignSubVariableOp", "dtype: float", h, floats("[2]", "1 1"));
  holds(d, h, "[2]", "10 21");
  fails(d, "AssignAddVariableOp", "dtype: float", h, floats("[]", "1"), TD_INVALID_ARGUMENT,
        "Cannot update variable with shape [2] using a Tensor with shape [], shapes must be equal.");
  fails(d, "ReadVariableOp", "dtype: int32", h, NULL, TD_INVALID_ARGUMENT,
        "Trying to read variable with wrong dtype. Expected int32 got float");
  fails(d, "AssignVariableOp", "dtype: int32", h, td_test_tensor(TD_INT32, "[2]", "1"), TD_INVALID_ARGUMENT,
        "Trying to assign variable with wrong dtype. Expected float got int32");
  fails(d, "AssignVariableOp", "dtype: float; validate_shape: true", h, floats("[3]", "1"), TD_INVALID_ARGUMENT,
        "Trying to assign to variable with tensor with wrong shape. Expected [2] got [3]");
  run(d, "AssignVariableOp", "dtype: float", h, floats("[1,3]", "1 2 3"));
  td_tensor *shape = run(d, "VariableShape", "out_type: int64", h, NULL);
  td_assert_tensor(shape, TD_INT64, "[2]", "1 3", 0);
  td_tensor_release(shape);
  shape = run(d, "VariableShape", "", h, NULL);
  td_assert_tensor(shape, TD_INT32, "[2]", "1 3", 0);
  td_tensor_release(shape);
  run(d, "DestroyResourceOp", "", h, NULL);
  assert_false(is_initialized(d, h));
  run(d, "DestroyResourceOp", "", h, NULL);
  fails(d, "DestroyResourceOp", "ignore_lookup_error: false", h, NULL, TD_NOT_FOUND, "");
  td_tensor_release(h);
}

static void test_reads_are_snapshots(void **state) {
  td_device *d = *state;
  td_tensor *h = handle(d, "v"), *constant = floats("[2]", "1 2");
  run(d, "AssignVariableOp", "dtype: float", h, td_tensor_retain(constant));
  td_tensor *before = run(d, "ReadVariableOp", "dtype: float", h, NULL);
  run(d, "AssignAddVariableOp", "dtype: float", h, floats("[2]", "1"));
  td_assert_tensor(before, TD_FLOAT, "[2]", "1 2", 0);
  td_assert_tensor(constant, TD_FLOAT, "[2]", "1 2", 0);
  holds(d, h, "[2]", "2 3");
  td_tensor_release(before);
  td_tensor_release(constant);
  td_tensor_release(h);
}

static void test_several(void **state) {
  td_device *d = *state;
  td_op_run make = {.op = "_VarHandlesOp",
                    .device = d,
                    .attrs =
                        "containers: ['', 'c']; shared_names: ['a', 'b']; N: 2; dtypes: [float, float]; "
                        "shapes: [[], []]"};
  assert_null(td_op_test_run(&make));
  assert_int_equal(make.out_count, 2);
  assert_string_equal(TD_DATA(make.out[1], td_resource_handle *)[0]->container, "c");
  run(d, "AssignVariableOp", "dtype: float", make.out[0], floats("[]", "1"));
  td_op_run read = {
      .op = "_ReadVariablesOp", .attrs = "N: 2; dtypes: [float, float]", .in = make.out, .in_count = 2, .device = d};
  td_assert_run_fails(&read, TD_FAILED_PRECONDITION, "Error while reading resource variable b from Container: c");
  run(d, "AssignVariableOp", "dtype: float", make.out[1], floats("[]", "2"));
  assert_null(td_op_test_run(&read));
  td_assert_tensor(read.out[1], TD_FLOAT, "[]", "2", 0);
  for (int i = 0; i < 2; i++) {
    td_tensor_release(read.out[i]);
    td_tensor_release(make.out[i]);
  }
}

static void test_foreign_handles(void **state) {
  td_device *d = *state, *other;
  td_device_name name;
  assert_true(td_device_name_parse(TD_STR("/job:test/replica:0/task:1/device:CPU:0"), &name));
  other = td_device_create(&name, 2, d->resources);
  td_tensor *h = handle(other, "v");
  fails(d, "ReadVariableOp", "dtype: float", h, NULL, TD_INVALID_ARGUMENT,
        "Trying to access resource v located in device");
  fails(d, "AssignVariableOp", "dtype: float", h, floats("[]", "1"), TD_INVALID_ARGUMENT, "Trying to access resource");
  td_tensor_release(h);
  td_device_release(other);
  td_tensor *none = td_test_tensor(TD_RESOURCE, "[0]", "");
  fails(d, "VarIsInitializedOp", "", none, NULL, TD_INVALID_ARGUMENT, "");
  td_tensor_release(none);
}

static void test_copies_are_turned_off(void **state) {
  td_device *d = *state;
  td_tensor *h = handle(d, "copied"), *before, *after;
  void *found;
  run(d, "AssignVariableOp", "dtype: float", h, floats("[2]", "1 2"));
  assert_null(td_handle_lookup(h, d, &td_resource_variable_type, &found));
  td_variable *v = found;
  assert_null(td_variable_prepare_sparse(v));
  run(d, "DisableCopyOnRead", "", h, NULL);
  assert_null(td_variable_read(v, &before));
  assert_ptr_equal(before, v->value);
  assert_null(td_variable_prepare_sparse(v)); /* and on again: what was read stays as it was */
  assert_ptr_not_equal(before, v->value);
  assert_null(td_variable_read(v, &after));
  assert_ptr_not_equal(after, v->value);
  td_assert_tensor(after, TD_FLOAT, "[2]", "1 2", 0);
  td_tensor_release(before);
  td_tensor_release(after);
  td_variable_release(v);
  td_tensor_release(h);
}

static void test_count_up_to(void **state) {
  td_device *d = *state;
  td_tensor *h = run(d, "VarHandleOp", "dtype: int32; shape: []; shared_name: 'n'", NULL, NULL);
  run(d, "AssignVariableOp", "dtype: int32", h, td_test_tensor(TD_INT32, "[]", "0"));
  for (int i = 0; i < 2; i++) {
    td_tensor *t = run(d, "ResourceCountUpTo", "T: int32; limit: 2", h, NULL);
    assert_int_equal(TD_DATA(t, int32_t)[0], i);
    td_tensor_release(t);
  }
  fails(d, "ResourceCountUpTo", "T: int32; limit: 2", h, NULL, TD_OUT_OF_RANGE, "Reached limit of 2");
  fails(d, "ResourceCountUpTo", "T: int64; limit: 2", h, NULL, TD_INVALID_ARGUMENT, "");
  td_tensor_release(h);
}

/* ---- several threads ---- */

enum { ROUNDS = 200 };

typedef struct hammer {
  td_device *d;
  td_tensor *h, *value;
  const char *op, *attrs;
} hammer;

static void *hammer_main(void *arg) {
  const hammer *h = arg;
  td_kernel *k = NULL;
  td_op_run r = {.op = h->op,
                 .attrs = h->attrs,
                 .in = (td_tensor *[]){h->h, h->value},
                 .in_count = h->value ? 2 : 1,
                 .device = h->d,
                 .kernel = &k};
  for (int i = 0; i < ROUNDS; i++) {
    if (td_op_test_run(&r)) abort();
    for (int64_t e = 1; r.out[0] && e < r.out[0]->count; e++)
      if (TD_DATA(r.out[0], float)[e] != TD_DATA(r.out[0], float)[0]) abort();
    td_tensor_release(r.out[0]);
  }
  td_kernel_release(k);
  return NULL;
}

static void test_concurrent(void **state) {
  td_device *d = *state;
  td_tensor *h = handle(d, "v"), *one = floats("[100]", "1");
  run(d, "AssignVariableOp", "dtype: float", h, floats("[100]", "0"));
  hammer jobs[] = {{d, h, one, "AssignAddVariableOp", "dtype: float"},
                   {d, h, one, "AssignAddVariableOp", "dtype: float"},
                   {d, h, NULL, "ReadVariableOp", "dtype: float"},
                   {d, h, NULL, "ReadVariableOp", "dtype: float"}};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, hammer_main, &jobs[i]), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  td_tensor *t = run(d, "ReadVariableOp", "dtype: float", h, NULL);
  for (int i = 0; i < 100; i++) assert_true(TD_DATA(t, float)[i] == 2 * ROUNDS);
  td_tensor_release(t);
  td_tensor_release(h);
  td_tensor_release(one);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_life),
      TEST(test_reads_are_snapshots),
      TEST(test_several),
      TEST(test_foreign_handles),
      TEST(test_copies_are_turned_off),
      TEST(test_count_up_to),
      TEST(test_concurrent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

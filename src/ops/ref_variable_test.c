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
#include "framework/cancellation.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/testing.h"

static td_device *make_device(void) {
  td_device *d = td_test_device();
  return d;
}

static td_variable *make_variable(td_device *d, const char *attrs, const char *name) {
  td_op_run run = {.op = "VariableV2", .attrs = attrs, .name = name, .device = d};
  td_assert_runs(&run);
  assert_non_null(run.out_refs[0]);
  return run.out_refs[0];
}

/* Runs an op with a ref and a value; takes the value. Asserts that it hands the ref on. */
static void update(const char *op, const char *attrs, td_variable *v, td_tensor *value) {
  td_op_run run = {
      .op = op, .attrs = attrs, .in = (td_tensor *[]){NULL, value}, .in_count = 2, .refs = (td_variable *[]){v, NULL}};
  td_assert_runs(&run);
  assert_ptr_equal(run.out_refs[0], v);
  td_variable_release(run.out_refs[0]);
  td_tensor_release(value);
}

static void update_fails(const char *op, const char *attrs, td_variable *v, td_tensor *value, td_code code,
                         const char *text) {
  td_op_run run = {
      .op = op, .attrs = attrs, .in = (td_tensor *[]){NULL, value}, .in_count = 2, .refs = (td_variable *[]){v, NULL}};
  td_assert_run_fails(&run, code, text);
  td_tensor_release(value);
}

static bool is_initialized(td_variable *v) {
  td_op_run run = {
      .op = "IsVariableInitialized", .attrs = "dtype: float", .in = (td_tensor *[]){NULL}, .in_count = 1, .refs = &v};
  td_assert_runs(&run);
  bool result = TD_DATA(run.out[0], bool)[0];
  td_tensor_release(run.out[0]);
  return result;
}

static void test_life(void **state) {
  td_device *d = make_device();
  td_variable *v = make_variable(d, "dtype: float; shape: [2]", "v");
  assert_false(is_initialized(v));
  update_fails("Assign", "T: float", v, td_test_tensor(TD_FLOAT, "[3]", "1"), TD_INVALID_ARGUMENT,
               "Assign requires shapes of both tensors to match. lhs shape= [2] rhs shape= [3]");
  update_fails("AssignAdd", "T: float", v, td_test_tensor(TD_FLOAT, "[2]", "1"), TD_FAILED_PRECONDITION,
               "Attempting to use uninitialized");
  update("Assign", "T: float", v, td_test_tensor(TD_FLOAT, "[2]", "1 2"));
  assert_true(is_initialized(v));
  update("AssignAdd", "T: float", v, td_test_tensor(TD_FLOAT, "[2]", "10 20"));
  update("AssignSub", "T: float; use_locking: true", v, td_test_tensor(TD_FLOAT, "[2]", "1 1"));
  td_assert_tensor(v->value, TD_FLOAT, "[2]", "10 21", 0);
  update_fails("AssignAdd", "T: float", v, td_test_tensor(TD_FLOAT, "[1]", "1"), TD_INVALID_ARGUMENT,
               "Parameters and update must be the same size");
  update_fails("Assign", "T: float", v, td_test_tensor(TD_FLOAT, "[1,2]", "1"), TD_INVALID_ARGUMENT,
               "lhs shape= [2] rhs shape= [1,2]");
  update("Assign", "T: float; validate_shape: false", v, td_test_tensor(TD_FLOAT, "[1,3]", "1 2 3"));
  td_assert_tensor(v->value, TD_FLOAT, "[1,3]", "1 2 3", 0);
  /* the same name on the same device is the same variable, until its container is cleared */
  td_variable *again = make_variable(d, "dtype: float; shape: [2]", "v");
  assert_ptr_equal(again, v);
  td_variable_release(again);
  td_resource_mgr_cleanup(d->resources, TD_STR(""));
  again = make_variable(d, "dtype: float; shape: [2]", "v");
  assert_ptr_not_equal(again, v);
  assert_false(is_initialized(again));
  td_variable_release(again);
  td_variable_release(v);
  td_device_release(d);
}

static void test_cleared_under_one_kernel(void **state) {
  td_device *d = make_device();
  td_kernel *k = NULL;
  td_op_run run = {.op = "VariableV2", .attrs = "dtype: float; shape: []", .name = "v", .device = d, .kernel = &k};
  td_assert_runs(&run);
  td_variable *first = run.out_refs[0];
  td_resource_mgr_cleanup(d->resources, TD_STR("test"));
  td_assert_runs(&run);
  assert_ptr_not_equal(run.out_refs[0], first);
  td_variable_release(run.out_refs[0]);
  td_variable_release(first);
  td_kernel_release(k);
  td_device_release(d);
}

static void test_names(void **state) {
  td_device *d = make_device();
  td_variable *a = make_variable(d, "dtype: float; shape: []; shared_name: 's'", "a");
  td_variable *b = make_variable(d, "dtype: float; shape: []; shared_name: 's'", "b");
  td_variable *c = make_variable(d, "dtype: float; shape: []; shared_name: 's'; container: 'other'", "b");
  assert_ptr_equal(a, b);
  assert_ptr_not_equal(a, c);
  td_op_run run = {.op = "VariableV2", .attrs = "dtype: float; shape: []; shared_name: '_s'", .device = d};
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "shared_name cannot start with '_'");
  run.attrs = "dtype: float; shape: []; container: 'a b'";
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "container contains invalid characters");
  run.attrs = "dtype: int32; shape: []; shared_name: 's'";
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "of type float as type int32");
  td_variable_release(a);
  td_variable_release(b);
  td_variable_release(c);
  td_device_release(d);
}

static void test_assign_owns_its_elements(void **state) {
  td_device *d = make_device();
  td_variable *v = make_variable(d, "dtype: float; shape: [2]", "v");
  td_tensor *shared = td_test_tensor(TD_FLOAT, "[2]", "1 2"); /* as a constant would be */
  update("Assign", "T: float", v, td_tensor_retain(shared));
  assert_ptr_not_equal(v->value->data, shared->data);
  update("AssignAdd", "T: float", v, td_test_tensor(TD_FLOAT, "[2]", "1"));
  td_assert_tensor(shared, TD_FLOAT, "[2]", "1 2", 0);
  /* a value that a reader holds stays as it was */
  td_tensor *snapshot;
  assert_null(td_variable_read(v, &snapshot));
  assert_ptr_equal(snapshot, v->value);
  update("AssignAdd", "T: float", v, td_test_tensor(TD_FLOAT, "[2]", "1"));
  update("Assign", "T: float", v, td_tensor_retain(shared));
  td_assert_tensor(snapshot, TD_FLOAT, "[2]", "2 3", 0);
  td_assert_tensor(v->value, TD_FLOAT, "[2]", "1 2", 0);
  /* a slice of something large is copied, not kept alive */
  td_tensor *large = td_test_tensor(TD_FLOAT, "[1000,2]", "7");
  td_tensor *slice = td_tensor_slice(large, 1, 2), *row = td_tensor_reshape(slice, 1, &(int64_t){2});
  td_tensor_release(large);
  td_tensor_release(slice);
  update("Assign", "T: float", v, row);
  assert_null(v->value->base);
  td_tensor_release(snapshot);
  td_tensor_release(shared);
  td_variable_release(v);
  td_device_release(d);
}

static void test_other_types(void **state) {
  td_device *d = make_device();
  td_variable *s = make_variable(d, "dtype: string; shape: [2]", "s");
  update("Assign", "T: string", s, td_test_tensor(TD_STRING, "[2]", "a b"));
  td_tensor *snapshot;
  assert_null(td_variable_read(s, &snapshot));
  update("Assign", "T: string", s, td_test_tensor(TD_STRING, "[2]", "c d"));
  td_assert_tensor(snapshot, TD_STRING, "[2]", "a b", 0);
  td_assert_tensor(s->value, TD_STRING, "[2]", "c d", 0);
  td_tensor_release(snapshot);
  td_variable_release(s);
  static const struct {
    td_dtype t;
    const char *start, *by, *sum;
  } cases[] = {{TD_INT8, "127", "1", "-128"},
               {TD_UINT8, "255", "2", "1"},
               {TD_INT16, "32767", "1", "-32768"},
               {TD_INT32, "2147483647", "1", "-2147483648"},
               {TD_INT64, "9223372036854775807", "1", "-9223372036854775808"},
               {TD_UINT64, "5", "6", "11"},
               {TD_HALF, "1.5", "2.25", "3.75"},
               {TD_BFLOAT16, "1.5", "2", "3.5"},
               {TD_DOUBLE, "0.5", "0.25", "0.75"},
               {TD_COMPLEX64, "1,2", "3,-1", "4,1"},
               {TD_COMPLEX128, "1,2", "3,-1", "4,1"},
               {TD_FLOAT, "nan", "1", "nan"}};
  for (size_t i = 0; i < TD_COUNT(cases); i++) {
    char attrs[64];
    snprintf(attrs, sizeof attrs, "dtype: %s; shape: [1]", td_dtype_name(cases[i].t));
    td_variable *v = make_variable(d, attrs, td_dtype_name(cases[i].t));
    snprintf(attrs, sizeof attrs, "T: %s", td_dtype_name(cases[i].t));
    update("Assign", attrs, v, td_test_tensor(cases[i].t, "[1]", cases[i].start));
    update("AssignAdd", attrs, v, td_test_tensor(cases[i].t, "[1]", cases[i].by));
    td_assert_tensor(v->value, cases[i].t, "[1]", cases[i].sum, 0);
    update("AssignSub", attrs, v, td_test_tensor(cases[i].t, "[1]", cases[i].by));
    td_assert_tensor(v->value, cases[i].t, "[1]", cases[i].start, 0);
    td_variable_release(v);
  }
  td_variable *empty = make_variable(d, "dtype: float; shape: [0]", "empty");
  update("Assign", "T: float", empty, td_test_tensor(TD_FLOAT, "[0]", ""));
  update("AssignAdd", "T: float", empty, td_test_tensor(TD_FLOAT, "[0]", ""));
  assert_true(is_initialized(empty));
  td_variable_release(empty);
  td_device_release(d);
}

static void test_count_up_to(void **state) {
  td_device *d = make_device();
  td_variable *v = make_variable(d, "dtype: int64; shape: []", "v");
  update("Assign", "T: int64", v, td_test_tensor(TD_INT64, "[]", "1"));
  td_op_run run = {
      .op = "CountUpTo", .attrs = "T: int64; limit: 3", .in = (td_tensor *[]){NULL}, .in_count = 1, .refs = &v};
  for (int i = 1; i < 3; i++) {
    td_assert_runs(&run);
    assert_int_equal(TD_DATA(run.out[0], int64_t)[0], i);
    td_tensor_release(run.out[0]);
  }
  td_assert_run_fails(&run, TD_OUT_OF_RANGE, "Reached limit of 3");
  update("Assign", "T: int64; validate_shape: false", v, td_test_tensor(TD_INT64, "[1]", "1"));
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "input is not a scalar: [1]");
  td_variable_release(v);
  td_device_release(d);
}

static void test_temporary(void **state) {
  td_step step = {
      .id = 1, .cancellation = td_cancellation_create(), .step_resources = td_resource_mgr_create(TD_STR("s"))};
  td_op_run make = {.op = "TemporaryVariable", .attrs = "shape: [2]; dtype: float; var_name: 't'", .step = &step};
  td_assert_runs(&make);
  td_variable *v = make.out_refs[0];
  td_assert_run_fails(&make, TD_ALREADY_EXISTS, "");
  update("Assign", "T: float", v, td_test_tensor(TD_FLOAT, "[2]", "4 5"));
  td_op_run end = {.op = "DestroyTemporaryVariable",
                   .attrs = "T: float; var_name: 't'",
                   .step = &step,
                   .in = (td_tensor *[]){NULL},
                   .in_count = 1,
                   .refs = &v};
  td_assert_runs(&end);
  td_assert_tensor(end.out[0], TD_FLOAT, "[2]", "4 5", 0);
  td_tensor_release(end.out[0]);
  td_assert_run_fails(&end, TD_NOT_FOUND, "");
  td_variable_release(v);
  td_cancellation_release(step.cancellation);
  td_resource_mgr_release(step.step_resources);
}

/* ---- several threads ---- */

enum { WRITERS = 3, ROUNDS = 300, ELEMENTS = 1000 };

static void *write_main(void *arg) {
  td_variable *v = arg;
  td_tensor *one = td_test_tensor(TD_FLOAT, "[1000]", "1");
  td_kernel *k = NULL;
  td_op_run run = {.op = "AssignAdd",
                   .attrs = "T: float",
                   .in = (td_tensor *[]){NULL, one},
                   .in_count = 2,
                   .refs = (td_variable *[]){v, NULL},
                   .kernel = &k};
  for (int i = 0; i < ROUNDS; i++) {
    td_status s = td_op_test_run(&run);
    if (s) abort();
    td_variable_release(run.out_refs[0]);
  }
  td_kernel_release(k);
  td_tensor_release(one);
  return NULL;
}

/* Every snapshot is whole: all its elements are equal. */
static void *read_main(void *arg) {
  td_variable *v = arg;
  for (int i = 0; i < ROUNDS; i++) {
    td_tensor *t;
    if (td_variable_read(v, &t)) abort();
    for (int64_t e = 1; e < t->count; e++)
      if (TD_DATA(t, float)[e] != TD_DATA(t, float)[0]) abort();
    td_tensor_release(t);
  }
  return NULL;
}

static void test_concurrent(void **state) {
  td_variable *v = td_variable_create(&td_ref_variable_type, TD_FLOAT, TD_STR("v"));
  v->value = td_test_tensor(TD_FLOAT, "[1000]", "0");
  pthread_t threads[WRITERS + 1];
  for (int i = 0; i <= WRITERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, i ? write_main : read_main, v), 0);
  for (int i = 0; i <= WRITERS; i++) pthread_join(threads[i], NULL);
  for (int e = 0; e < ELEMENTS; e++) assert_true(TD_DATA(v->value, float)[e] == WRITERS * ROUNDS);
  td_variable_release(v);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_life),        cmocka_unit_test(test_cleared_under_one_kernel),
      cmocka_unit_test(test_names),       cmocka_unit_test(test_assign_owns_its_elements),
      cmocka_unit_test(test_other_types), cmocka_unit_test(test_count_up_to),
      cmocka_unit_test(test_temporary),   cmocka_unit_test(test_concurrent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

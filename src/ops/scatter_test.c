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
#include "base/pool.h"
#include "framework/cancellation.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/testing.h"

/* Results of TensorFlow 2.15.1. */
static const struct {
  const char *op; /* of the ref form */
  td_dtype dtype;
  const char *shape, *before;
  td_dtype index_type;
  const char *index_shape, *indices, *update_shape, *updates, *after;
} cases[] = {
    {"ScatterUpdate", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "3 2 3 4 4 5 7 8"},
    {"ScatterUpdate", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[1,1]", "3", "[]", "2.5", "1 2 3 4 5 6 2.5 2.5"},
    {"ScatterUpdate", TD_INT32, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "3 2 3 4 4 5 7 8"},
    {"ScatterAdd", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "4 4 3 4 19 31 7 8"},
    {"ScatterAdd", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[1,1]", "3", "[]", "2.5", "1 2 3 4 5 6 9.5 10.5"},
    {"ScatterAdd", TD_INT32, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "4 4 3 4 19 31 7 8"},
    {"ScatterSub", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "-2 0 3 4 -9 -19 7 8"},
    {"ScatterSub", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[1,1]", "3", "[]", "2.5", "1 2 3 4 5 6 4.5 5.5"},
    {"ScatterSub", TD_INT32, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "-2 0 3 4 -9 -19 7 8"},
    {"ScatterMul", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "3 4 3 4 200 600 7 8"},
    {"ScatterMul", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[1,1]", "3", "[]", "2.5", "1 2 3 4 5 6 17.5 20"},
    {"ScatterMul", TD_INT32, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "3 4 3 4 200 600 7 8"},
    {"ScatterDiv", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "0.333333343 1 3 4 0.125 0.0600000024 7 8"},
    {"ScatterDiv", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[1,1]", "3", "[]", "2.5",
     "1 2 3 4 5 6 2.79999995 3.20000005"},
    {"ScatterDiv", TD_INT32, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "0 1 3 4 0 0 7 8"},
    {"ScatterMin", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "1 2 3 4 4 5 7 8"},
    {"ScatterMin", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[1,1]", "3", "[]", "2.5", "1 2 3 4 5 6 2.5 2.5"},
    {"ScatterMin", TD_INT32, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "1 2 3 4 4 5 7 8"},
    {"ScatterMax", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "3 2 3 4 10 20 7 8"},
    {"ScatterMax", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[1,1]", "3", "[]", "2.5", "1 2 3 4 5 6 7 8"},
    {"ScatterMax", TD_INT32, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3]", "2 0 2", "[3,2]", "10 20 3 2 4 5",
     "3 2 3 4 10 20 7 8"},
    {"ScatterAdd", TD_HALF, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -2 103"},
    {"ScatterMul", TD_HALF, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -8 300"},
    {"ScatterDiv", TD_HALF, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -0.5 33.34375"},
    {"ScatterAdd", TD_BFLOAT16, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -2 103"},
    {"ScatterMul", TD_BFLOAT16, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -8 300"},
    {"ScatterDiv", TD_BFLOAT16, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -0.5 33.25"},
    {"ScatterAdd", TD_DOUBLE, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -2 103"},
    {"ScatterMul", TD_DOUBLE, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -8 300"},
    {"ScatterDiv", TD_DOUBLE, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -0.5 33.3333333"},
    {"ScatterAdd", TD_INT8, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -2 103"},
    {"ScatterMul", TD_INT8, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -8 44"},
    {"ScatterDiv", TD_INT8, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 0 33"},
    {"ScatterAdd", TD_UINT8, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 250", "1 252 103"},
    {"ScatterMul", TD_UINT8, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 250", "1 244 44"},
    {"ScatterDiv", TD_UINT8, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 250", "1 0 33"},
    {"ScatterAdd", TD_UINT16, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 250", "1 252 103"},
    {"ScatterMul", TD_UINT16, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 250", "1 500 300"},
    {"ScatterDiv", TD_UINT16, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 250", "1 0 33"},
    {"ScatterAdd", TD_INT64, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -2 103"},
    {"ScatterMul", TD_INT64, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 -8 300"},
    {"ScatterDiv", TD_INT64, "[3]", "1 2 100", TD_INT32, "[2]", "2 1", "[2]", "3 -4", "1 0 33"},
    {"ScatterAdd", TD_COMPLEX64, "[3]", "1,0 2,0 100,0", TD_INT32, "[2]", "2 1", "[2]", "3,0 -4,0", "1,0 -2,0 103,0"},
    {"ScatterMul", TD_COMPLEX64, "[3]", "1,0 2,0 100,0", TD_INT32, "[2]", "2 1", "[2]", "3,0 -4,0", "1,0 -8,0 300,0"},
    {"ScatterDiv", TD_COMPLEX64, "[3]", "1,0 2,0 100,0", TD_INT32, "[2]", "2 1", "[2]", "3,0 -4,0",
     "1,0 -0.5,-0 33.3333321,0"},
    {"ScatterUpdate", TD_UINT8, "[3]", "1 2 3", TD_INT32, "[2]", "1 1", "[2]", "9 8", "1 8 3"},
    {"ScatterNdUpdate", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[2,1]", "1 3", "[2,2]", "1 9 9 1",
     "1 2 1 9 5 6 9 1"},
    {"ScatterNdUpdate", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3,2]", "1 1 3 0 1 1", "[3]", "5 6 7",
     "1 2 3 7 5 6 6 8"},
    {"ScatterNdAdd", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[2,1]", "1 3", "[2,2]", "1 9 9 1",
     "1 2 4 13 5 6 16 9"},
    {"ScatterNdAdd", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3,2]", "1 1 3 0 1 1", "[3]", "5 6 7",
     "1 2 3 16 5 6 13 8"},
    {"ScatterNdSub", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[2,1]", "1 3", "[2,2]", "1 9 9 1",
     "1 2 2 -5 5 6 -2 7"},
    {"ScatterNdSub", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3,2]", "1 1 3 0 1 1", "[3]", "5 6 7",
     "1 2 3 -8 5 6 1 8"},
    {"ScatterNdMin", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[2,1]", "1 3", "[2,2]", "1 9 9 1",
     "1 2 1 4 5 6 7 1"},
    {"ScatterNdMin", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3,2]", "1 1 3 0 1 1", "[3]", "5 6 7",
     "1 2 3 4 5 6 6 8"},
    {"ScatterNdMax", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[2,1]", "1 3", "[2,2]", "1 9 9 1",
     "1 2 3 9 5 6 9 8"},
    {"ScatterNdMax", TD_FLOAT, "[4,2]", "1 2 3 4 5 6 7 8", TD_INT64, "[3,2]", "1 1 3 0 1 1", "[3]", "5 6 7",
     "1 2 3 7 5 6 7 8"},
    {"ScatterNdUpdate", TD_INT64, "[2,2,2]", "1 2 3 4 5 6 7 8", TD_INT32, "[2,1,2]", "0 1 1 0", "[2,1,2]", "9 9 8 8",
     "1 2 9 9 8 8 7 8"},
    {"ScatterNdAdd", TD_HALF, "[3]", "1 2 3", TD_INT32, "[1,1]", "0", "[1]", "0.5", "1.5 2 3"},
};

static td_device *make_device(void) {
  td_device *d = td_test_device();
  return d;
}

/* A variable, and a run that scatters into it. */
typedef struct fixture {
  td_device *device;
  td_variable *v, *refs[3];
  td_tensor *in[3];
  char op[64], attrs[160];
  td_op_run run;
} fixture;

/* Takes the tensors. */
static void setup(fixture *f, const char *op, bool resource, td_tensor *value, td_tensor *indices, td_tensor *updates,
                  const char *more) {
  *f = (fixture){.device = make_device(), .in = {NULL, indices, updates}};
  f->v = td_variable_create(resource ? &td_resource_variable_type : &td_ref_variable_type, (td_dtype)value->dtype,
                            TD_STR("v"));
  f->v->value = value;
  snprintf(f->op, sizeof f->op, "%s%s", resource ? "Resource" : "", op);
  snprintf(f->attrs, sizeof f->attrs, "%s: %s; Tindices: %s%s", resource && !strstr(op, "Nd") ? "dtype" : "T",
           td_dtype_name(value->dtype), td_dtype_name(indices->dtype), more);
  if (resource) {
    assert_null(td_resource_add(f->device->resources, TD_STR(""), TD_STR("v"), &f->v->resource));
    assert_null(td_handle_create(f->device, TD_STR(""), TD_STR("v"), &td_resource_variable_type, &f->in[0]));
  } else {
    f->refs[0] = f->v;
  }
  f->run =
      (td_op_run){.op = f->op, .attrs = f->attrs, .in = f->in, .in_count = 3, .refs = f->refs, .device = f->device};
}

static void teardown(fixture *f) {
  for (int i = 0; i < 3; i++) td_tensor_release(f->in[i]);
  td_variable_release(f->v);
  td_device_release(f->device);
}

static void run_ok(fixture *f) {
  td_assert_runs(&f->run);
  if (f->refs[0]) assert_ptr_equal(f->run.out_refs[0], f->v);
  td_variable_release(f->run.out_refs[0]);
}

static void test_against_tensorflow(void **state) {
  for (size_t i = 0; i < TD_COUNT(cases); i++)
    for (int resource = 0; resource < 2; resource++) {
      fixture f;
      setup(&f, cases[i].op, resource, td_test_tensor(cases[i].dtype, cases[i].shape, cases[i].before),
            td_test_tensor(cases[i].index_type, cases[i].index_shape, cases[i].indices),
            td_test_tensor(cases[i].dtype, cases[i].update_shape, cases[i].updates), "");
      assert_null(td_ops_register());
      const td_attr_def *t =
          td_op_attr(td_op_find(td_str_of(f.op)), td_str_n(f.attrs, (size_t)(strchr(f.attrs, ':') - f.attrs)));
      if (!t->allowed_types || td_dtype_in(cases[i].dtype, t->allowed_types)) {
        run_ok(&f);
        td_assert_tensor(f.v->value, cases[i].dtype, cases[i].shape, cases[i].after, 1e-7);
      }
      teardown(&f);
    }
}

static td_tensor *ints(const char *shape, const char *values) { return td_test_tensor(TD_INT32, shape, values); }
static td_tensor *floats(const char *shape, const char *values) { return td_test_tensor(TD_FLOAT, shape, values); }

static void test_strings(void **state) {
  for (int resource = 0; resource < 2; resource++) {
    fixture f;
    setup(&f, "ScatterUpdate", resource, td_test_tensor(TD_STRING, "[3]", "a b c"), ints("[2]", "2 0"),
          td_test_tensor(TD_STRING, "[2]", "x y"), "");
    td_tensor *snapshot;
    assert_null(td_variable_read(f.v, &snapshot));
    run_ok(&f);
    td_assert_tensor(f.v->value, TD_STRING, "[3]", "y b x", 0);
    td_assert_tensor(snapshot, TD_STRING, "[3]", "a b c", 0); /* elements that own memory are never changed in place */
    td_tensor_release(snapshot);
    teardown(&f);
  }
}

/* Runs that must fail, in both forms, without changing anything. */
static void fails(const char *op, const char *shape, td_tensor *indices, td_tensor *updates, const char *more,
                  const char *ref_text, const char *resource_text) {
  for (int resource = 0; resource < 2; resource++) {
    const char *text = resource ? resource_text : ref_text;
    if (!text) continue;
    fixture f;
    setup(&f, op, resource, td_test_tensor((td_dtype)updates->dtype, shape, "1"), td_tensor_retain(indices),
          td_tensor_retain(updates), more);
    td_assert_run_fails(&f.run, TD_INVALID_ARGUMENT, text);
    td_assert_tensor(f.v->value, (td_dtype)updates->dtype, shape, "1", 0);
    teardown(&f);
  }
  td_tensor_release(indices);
  td_tensor_release(updates);
}

static void test_errors(void **state) {
  const char *text = "indices[0,1] = 2 is not in [0, 2)";
  fails("ScatterAdd", "[2]", ints("[1,2]", "0 2"), floats("[1,2]", "1"), "", text, text);
  text = "indices[1] = -1 is not in [0, 2)";
  fails("ScatterAdd", "[2]", ints("[2]", "0 -1"), floats("[2]", "1"), "", text, text);
  text = "indices = 5 is not in [0, 2)";
  fails("ScatterUpdate", "[2]", ints("[]", "5"), floats("[]", "1"), "", text, text);
  fails("ScatterAdd", "[2]", ints("[2]", "0 1"), floats("[3]", "1"), "",
        "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape [3], "
        "indices.shape [2], params.shape [2]",
        "The shape of indices ([2]) must be a prefix of the shape of updates ([3])");
  fails("ScatterAdd", "[2,2]", ints("[2]", "0 1"), floats("[2,1]", "1"), "", "Must have updates.shape",
        "Must have updates.shape");
  fails("ScatterAdd", "[]", ints("[1]", "0"), floats("[1]", "1"), "", "params must be at least 1-D, got shape []",
        "params must be at least 1-D, got shape []");
  fails("ScatterDiv", "[2]", ints("[1]", "0"), ints("[1]", "0"), "", "updates must not contain 0",
        "updates must not contain 0");
  fails("ScatterDiv", "[2]", ints("[1]", "0"), floats("[1]", "0"), "", NULL, "updates must not contain 0");
  text = "indices[1] = [3] does not index into shape [2]";
  fails("ScatterNdAdd", "[2]", ints("[2,1]", "0 3"), floats("[2]", "1"), "", text, text);
  text = "indices[0] = [0, 2] does not index into shape [1,2]";
  fails("ScatterNdUpdate", "[1,2]", ints("[1,2]", "0 2"), floats("[1]", "1"), "", text, text);
  text = "The outermost dimension of updates and indices must match. Got indices.shape [2,1], updates.shape [3]";
  fails("ScatterNdAdd", "[2]", ints("[2,1]", "0 1"), floats("[3]", "1"), "", text, text);
  text = "got updates.shape: [1,3], indices.shape: [1,1], params_shape: [1,2], slice_dim: 1, and batch_dim: 1";
  fails("ScatterNdAdd", "[1,2]", ints("[1,1]", "0"), floats("[1,3]", "1"), "", text, text);
  fails("ScatterNdAdd", "[2]", ints("[1,2]", "0 0"), floats("[1]", "1"), "", "slice_dim: 2", "slice_dim: 2");
  fails("ScatterNdAdd", "[2]", ints("[]", "0"), floats("[]", "1"), "", "at least 1-D", "at least 1-D");
  fails("ScatterNdAdd", "[2]", ints("[1,1]", "0"), floats("[1]", "1"), "; bad_indices_policy: 'x'", "Bad indices",
        "Bad indices");
}

static void test_odd_sizes(void **state) {
  for (int resource = 0; resource < 2; resource++) {
    fixture f;
    setup(&f, "ScatterAdd", resource, floats("[2,0]", ""), ints("[3]", "0 1 1"), floats("[3,0]", ""), "");
    run_ok(&f);
    teardown(&f);
    setup(&f, "ScatterAdd", resource, floats("[0]", ""), ints("[0]", ""), floats("[0]", ""), "");
    run_ok(&f);
    teardown(&f);
    setup(&f, "ScatterNdAdd", resource, floats("[0]", ""), ints("[0,1]", ""), floats("[0]", ""), "");
    run_ok(&f);
    teardown(&f);
    setup(&f, "ScatterDiv", resource, td_test_tensor(TD_INT32, "[1]", "-2147483648"), ints("[1]", "0"),
          ints("[1]", "-1"), "");
    run_ok(&f);
    assert_int_equal(TD_DATA(f.v->value, int32_t)[0], INT32_MIN);
    teardown(&f);
    setup(&f, "ScatterNdAdd", resource, floats("[2]", "1 1"), ints("[2,1]", "7 1"), floats("[2]", "1"),
          "; bad_indices_policy: 'IGNORE'");
    run_ok(&f);
    td_assert_tensor(f.v->value, TD_FLOAT, "[2]", "1 2", 0);
    teardown(&f);
  }
}

/* A snapshot of the variable that serves as its own updates keeps its values. */
static void test_updates_by_itself(void **state) {
  for (int resource = 0; resource < 2; resource++) {
    fixture f;
    td_tensor *value = floats("[3,2]", "1 2 3 4 5 6");
    setup(&f, "ScatterAdd", resource, value, ints("[3]", "1 2 2"), td_tensor_retain(value), "");
    run_ok(&f);
    td_assert_tensor(f.v->value, TD_FLOAT, "[3,2]", "1 2 4 6 13 16", 0);
    td_assert_tensor(value, TD_FLOAT, "[3,2]", "1 2 3 4 5 6", 0);
    teardown(&f);
  }
}

static void test_missing_and_uninitialised(void **state) {
  fixture f;
  setup(&f, "ScatterAdd", true, floats("[1]", "1"), ints("[1]", "0"), floats("[1]", "1"), "");
  td_variable_set(f.v, NULL);
  td_assert_run_fails(&f.run, TD_FAILED_PRECONDITION, "uninitialized");
  assert_null(td_resource_delete(f.device->resources, TD_STR(""), TD_STR("v"), &td_resource_variable_type));
  td_assert_run_fails(&f.run, TD_NOT_FOUND, "");
  teardown(&f);
}

/* Wide rows are done by several threads, column by column, with the same result. */
static void test_parallel(void **state) {
  td_pool *pool = td_pool_create("test", NULL, 3);
  td_step step = {.id = 1,
                  .pool = pool,
                  .cancellation = td_cancellation_create(),
                  .step_resources = td_resource_mgr_create(TD_STR("step"))};
  enum { ROWS = 10, WIDTH = 1000, N = 500 };
  td_tensor *var = floats("[10,1000]", "0"), *index = ints("[500]", "0"), *update = floats("[500,1000]", "0");
  for (int i = 0; i < N; i++) TD_DATA(index, int32_t)[i] = i * 7 % ROWS;
  for (int64_t i = 0; i < update->count; i++) TD_DATA(update, float)[i] = (float)(i % 1013) * 1e-3f;
  float *want = td_calloc(ROWS * WIDTH, sizeof *want);
  for (int i = 0; i < N; i++)
    for (int c = 0; c < WIDTH; c++) want[i * 7 % ROWS * WIDTH + c] += TD_DATA(update, float)[i * WIDTH + c];
  fixture f;
  setup(&f, "ScatterAdd", true, var, index, update, "");
  f.run.step = &step;
  run_ok(&f);
  assert_memory_equal(f.v->value->data, want, ROWS * WIDTH * sizeof *want);
  teardown(&f);
  td_free(want);
  td_pool_destroy(pool);
  td_cancellation_release(step.cancellation);
  td_resource_mgr_release(step.step_resources);
}

/* ---- several threads: no update is lost; resource variables show whole updates only ---- */

enum { ROUNDS = 200 };

static void *scatter_main(void *arg) {
  fixture *f = arg;
  td_op_run run = f->run;
  td_kernel *k = NULL;
  run.kernel = &k;
  for (int i = 0; i < ROUNDS; i++) {
    if (td_op_test_run(&run)) abort();
    td_variable_release(run.out_refs[0]);
  }
  td_kernel_release(k);
  return NULL;
}

static void *read_main(void *arg) {
  fixture *f = arg;
  float sum = 0;
  for (int i = 0; i < ROUNDS; i++) {
    td_tensor *t;
    if (td_variable_read(f->v, &t)) abort();
    for (int64_t e = 0; e < t->count; e++) sum += TD_DATA(t, float)[e];
    if (!f->refs[0])
      for (int64_t e = 1; e < t->count; e++)
        if (TD_DATA(t, float)[e] != TD_DATA(t, float)[0]) abort();
    td_tensor_release(t);
  }
  return (void *)(uintptr_t)(sum == -1);
}

static void test_concurrent(void **state) {
  for (int resource = 0; resource < 2; resource++) {
    fixture f;
    setup(&f, "ScatterAdd", resource, floats("[2,100]", "0"), ints("[2]", "1 0"), floats("[2,100]", "1"), "");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, i % 2 ? read_main : scatter_main, &f), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 200; i++) assert_true(TD_DATA(f.v->value, float)[i] == 2 * ROUNDS);
    teardown(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_against_tensorflow),
      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_odd_sizes),
      cmocka_unit_test(test_updates_by_itself),
      cmocka_unit_test(test_missing_and_uninitialised),
      cmocka_unit_test(test_parallel),
      cmocka_unit_test(test_concurrent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

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

typedef struct fixture {
  td_device *device;
  td_kernel *kernel;
  td_variable *barrier;
} fixture;

#define FLOAT_AND_INT "component_types: [float, int32]; shapes: [[], [2]]"

static fixture open_barrier(void) {
  fixture f = {0};
  f.device = td_test_device();
  td_op_run run = {.op = "Barrier", .attrs = FLOAT_AND_INT, .name = "b", .device = f.device, .kernel = &f.kernel};
  assert_null(td_op_test_run(&run));
  f.barrier = run.out_refs[0];
  return f;
}

static void close_fixture(fixture *f) {
  td_variable_release(f->barrier);
  td_kernel_release(f->kernel);
  td_device_release(f->device);
}

static td_status insert(fixture *f, int component, const char *n, const char *keys, td_tensor *values) {
  char attrs[64];
  snprintf(attrs, sizeof attrs, "T: %s; component_index: %d", td_dtype_name(values->dtype), component);
  td_tensor *in[] = {NULL, td_test_tensor(TD_STRING, n, keys), values};
  td_op_run run = {
      .op = "BarrierInsertMany", .attrs = attrs, .device = f->device, .refs = &f->barrier, .in = in, .in_count = 3};
  td_status s = td_op_test_run(&run);
  td_tensor_release(in[1]);
  td_tensor_release(values);
  return s;
}

static td_status insert_floats(fixture *f, const char *n, const char *keys, const char *values) {
  return insert(f, 0, n, keys, td_test_tensor(TD_FLOAT, n, values));
}

static td_status take(fixture *f, const char *count, const char *small, td_step *step, td_op_run *run) {
  static const char attrs[] = "component_types: [float, int32]; allow_small_batch: ";
  char text[128];
  snprintf(text, sizeof text, "%s%s", attrs, small);
  td_tensor *in[] = {NULL, td_test_tensor(TD_INT32, "[]", count)};
  *run = (td_op_run){.op = "BarrierTakeMany",
                     .attrs = text,
                     .device = f->device,
                     .step = step,
                     .refs = &f->barrier,
                     .in = in,
                     .in_count = 2};
  td_status s = td_op_test_run(run);
  td_tensor_release(in[1]);
  return s;
}

static void expect_take(fixture *f, const char *count, const char *small, const char *n, const char *keys,
                        const char *floats) {
  td_op_run run;
  assert_null(take(f, count, small, NULL, &run));
  td_assert_tensor(run.out[1], TD_STRING, n, keys, 0);
  td_assert_tensor(run.out[2], TD_FLOAT, n, floats, 0);
  for (int i = 0; i < run.out_count; i++) td_tensor_release(run.out[i]);
}

static void expect_size(fixture *f, const char *op, int n) {
  td_op_run run = {.op = op, .device = f->device, .refs = &f->barrier, .in = &(td_tensor *){NULL}, .in_count = 1};
  assert_null(td_op_test_run(&run));
  assert_int_equal(*TD_DATA(run.out[0], int32_t), n);
  td_tensor_release(run.out[0]);
}

static td_status close_barrier(fixture *f, const char *cancel) {
  char attrs[64];
  snprintf(attrs, sizeof attrs, "cancel_pending_enqueues: %s", cancel);
  td_op_run run = {.op = "BarrierClose",
                   .attrs = attrs,
                   .device = f->device,
                   .refs = &f->barrier,
                   .in = &(td_tensor *){NULL},
                   .in_count = 1};
  return td_op_test_run(&run);
}

/* Elements come out when both components are in, in the order of the insertions that began them. */
static void completes(void **state) {
  fixture f = open_barrier();
  assert_null(insert_floats(&f, "[1]", "a", "1"));
  assert_null(insert_floats(&f, "[2]", "b c", "2 3"));
  expect_size(&f, "BarrierIncompleteSize", 3);
  assert_null(insert(&f, 1, "[2]", "c a", td_test_tensor(TD_INT32, "[2,2]", "7 7 5 5")));
  expect_size(&f, "BarrierIncompleteSize", 1);
  expect_size(&f, "BarrierReadySize", 2);
  td_op_run run;
  assert_null(take(&f, "2", "false", NULL, &run));
  td_assert_tensor(run.out[0], TD_INT64, "[2]", "-9223372036854775808 -9223372036854775807", 0);
  td_assert_tensor(run.out[1], TD_STRING, "[2]", "a c", 0);
  td_assert_tensor(run.out[2], TD_FLOAT, "[2]", "1 3", 0);
  td_assert_tensor(run.out[3], TD_INT32, "[2,2]", "5 5 7 7", 0);
  for (int i = 0; i < 4; i++) td_tensor_release(run.out[i]);
  close_fixture(&f);
}

static void refuses(void **state) {
  fixture f = open_barrier();
  td_op_run run;
  assert_null(insert_floats(&f, "[1]", "a", "1"));
  must_fail(insert_floats(&f, "[1]", "a", "1"), TD_INVALID_ARGUMENT,
            "Key a already has a value for component 0 in barrier _0_b");
  must_fail(insert_floats(&f, "[2]", "d d", "1 2"), TD_INVALID_ARGUMENT, "Key d already has a value");
  must_fail(insert(&f, 2, "[1]", "a", td_test_tensor(TD_FLOAT, "[1]", "1")), TD_INVALID_ARGUMENT,
            "The component ID is out of range 2 > num_components (= 2)");
  must_fail(insert(&f, 1, "[1]", "a", td_test_tensor(TD_FLOAT, "[1]", "1")), TD_INVALID_ARGUMENT, "Signature mismatch");
  must_fail(insert(&f, 1, "[1]", "a", td_test_tensor(TD_INT32, "[1,3]", "1 2 3")), TD_INVALID_ARGUMENT,
            "Shape mismatch in tuple component 3. Expected [2], got [3]");
  must_fail(insert(&f, 0, "[1]", "a", td_test_tensor(TD_FLOAT, "[1,0]", "")), TD_INVALID_ARGUMENT,
            "Tensors with no elements are not supported _0_b: received shape [1,0]");
  must_fail(insert(&f, 0, "[2]", "x y", td_test_tensor(TD_FLOAT, "[1]", "1")), TD_INVALID_ARGUMENT, "[1]");
  must_fail(take(&f, "-1", "false", NULL, &run), TD_INVALID_ARGUMENT, "-1");
  close_fixture(&f);
}

static void closing(void **state) {
  fixture f = open_barrier();
  td_op_run run;
  assert_null(insert_floats(&f, "[3]", "a b c", "1 2 3"));
  assert_null(insert(&f, 1, "[2]", "b a", td_test_tensor(TD_INT32, "[2,2]", "1 1 2 2")));
  assert_null(close_barrier(&f, "false"));
  must_fail(close_barrier(&f, "false"), TD_CANCELLED, "Barrier '_0_b' is already closed.");
  must_fail(insert_floats(&f, "[1]", "new", "1"), TD_CANCELLED, "attempted to insert a brand new key: new");
  must_fail(take(&f, "4", "false", NULL, &run), TD_OUT_OF_RANGE,
            "Barrier '_0_b' is closed and has insufficient elements (requested 4, total size 3)");
  assert_null(insert(&f, 1, "[1]", "c", td_test_tensor(TD_INT32, "[1,2]", "3 3")));
  expect_take(&f, "1", "false", "[1]", "b", "2"); /* all began at once: in order of completion */
  expect_take(&f, "9", "true", "[2]", "a c", "1 3");
  must_fail(take(&f, "1", "true", NULL, &run), TD_OUT_OF_RANGE, "insufficient elements");
  must_fail(insert_floats(&f, "[1]", "x", "1"), TD_CANCELLED, "is closed");
  close_fixture(&f);

  f = open_barrier();
  assert_null(insert_floats(&f, "[1]", "a", "1"));
  assert_null(close_barrier(&f, "false"));
  assert_null(close_barrier(&f, "true"));
  expect_size(&f, "BarrierIncompleteSize", 0);
  must_fail(insert_floats(&f, "[1]", "a", "1"), TD_CANCELLED, "is closed.  Pending enqueues cancelled: 1.");
  close_fixture(&f);
}

typedef struct taker {
  fixture *f;
  td_step step;
  td_status status;
} taker;

static void *take_main(void *arg) {
  taker *t = arg;
  td_op_run run;
  t->status = take(t->f, "2", "false", &t->step, &run);
  for (int i = 0; i < run.out_count; i++) td_tensor_release(run.out[i]);
  return NULL;
}

/* A take that waits ends when the last element of a closed barrier is not enough, or when its step is cancelled. */
static void waiting(void **state) {
  for (int cancel = 0; cancel < 2; cancel++) {
    fixture f = open_barrier();
    taker t = {.f = &f, .step = {.id = 1, .cancellation = td_cancellation_create()}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_main, &t), 0);
    assert_null(insert_floats(&f, "[1]", "a", "1"));
    if (cancel)
      td_cancellation_cancel(t.step.cancellation);
    else
      assert_null(close_barrier(&f, "false"));
    assert_null(insert(&f, 1, "[1]", "a", td_test_tensor(TD_INT32, "[1,2]", "3 3")));
    pthread_join(thread, NULL);
    assert_int_equal(td_status_code(t.status), cancel ? TD_CANCELLED : TD_OUT_OF_RANGE);
    td_status_free(t.status);
    expect_size(&f, "BarrierReadySize", 1); /* what it held came back */
    td_cancellation_release(t.step.cancellation);
    close_fixture(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(completes), cmocka_unit_test(refuses), cmocka_unit_test(closing),
                                     cmocka_unit_test(waiting)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

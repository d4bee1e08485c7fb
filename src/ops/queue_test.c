#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

static td_tensor *make(const char *op, const char *attrs) {
  td_op_run run = {.op = op, .attrs = attrs, .device = device};
  assert_null(td_op_test_run(&run));
  return run.out[0];
}

static td_status enqueue(const char *op, td_tensor *q, td_dtype type, const char *shape, const char *values) {
  td_tensor *in[] = {q, td_test_tensor(type, shape, values)};
  char attrs[64];
  snprintf(attrs, sizeof attrs, "Tcomponents: [%s]", td_dtype_name(type));
  td_op_run run = {.op = op, .attrs = attrs, .device = device, .in = in, .in_count = 2};
  td_status s = td_op_test_run(&run);
  td_tensor_release(in[1]);
  return s;
}

static td_status dequeue(const char *op, td_tensor *q, const char *type, int n, td_tensor **out) {
  td_tensor *count = td_test_tensor(TD_INT32, "[]", "0"), *in[] = {q, count};
  *TD_DATA(count, int32_t) = n;
  char attrs[64];
  snprintf(attrs, sizeof attrs, "component_types: [%s]", type);
  td_op_run run = {.op = op, .attrs = attrs, .device = device, .in = in, .in_count = n < 0 ? 1 : 2};
  td_status s = td_op_test_run(&run);
  td_tensor_release(count);
  *out = run.out[0];
  return s;
}

static void expect_dequeue(td_tensor *q, const char *op, int n, const char *shape, const char *values) {
  td_tensor *t;
  assert_null(dequeue(op, q, "int32", n, &t));
  td_assert_tensor(t, TD_INT32, shape, values, 0);
  td_tensor_release(t);
}

static void close_queue(td_tensor *q, bool cancel) {
  td_op_run run = {.op = "QueueCloseV2",
                   .device = device,
                   .in = &q,
                   .in_count = 1,
                   .attrs = cancel ? "cancel_pending_enqueues: true" : ""};
  assert_null(td_op_test_run(&run));
}

#define OF_INTS "component_types: [int32]; shapes: [[]]; "

static void fifo(void **state) {
  td_tensor *q = make("FIFOQueueV2", OF_INTS "capacity: 10; shared_name: 'fifo'"), *none;
  assert_null(enqueue("QueueEnqueueV2", q, TD_INT32, "[]", "1"));
  assert_null(enqueue("QueueEnqueueManyV2", q, TD_INT32, "[5]", "2 3 4 5 6"));
  assert_null(enqueue("QueueEnqueueManyV2", q, TD_INT32, "[0]", ""));
  expect_dequeue(q, "QueueDequeueV2", -1, "[]", "1");
  expect_dequeue(q, "QueueDequeueManyV2", 3, "[3]", "2 3 4");
  expect_dequeue(q, "QueueDequeueManyV2", 0, "[0]", "");
  must_fail(enqueue("QueueEnqueueV2", q, TD_INT32, "[1]", "1"), TD_INVALID_ARGUMENT,
            "Shape mismatch in tuple component 0. Expected [], got [1]");
  must_fail(enqueue("QueueEnqueueV2", q, TD_FLOAT, "[]", "1"), TD_INVALID_ARGUMENT,
            "Type mismatch in tuple component 0. Expected int32, got float");
  must_fail(dequeue("QueueDequeueManyV2", q, "int32", -1 - 1, &none), TD_INVALID_ARGUMENT, "");
  close_queue(q, false);
  must_fail(enqueue("QueueEnqueueV2", q, TD_INT32, "[]", "1"), TD_CANCELLED, "FIFOQueue 'fifo' is closed.");
  must_fail(dequeue("QueueDequeueManyV2", q, "int32", 3, &none), TD_OUT_OF_RANGE,
            "FIFOQueue 'fifo' is closed and has insufficient elements (requested 3, current size 2)");
  expect_dequeue(q, "QueueDequeueUpToV2", 3, "[2]", "5 6"); /* what was refused is still there, in order */
  must_fail(dequeue("QueueDequeueV2", q, "int32", -1, &none), TD_OUT_OF_RANGE, "(requested 1, current size 0)");
  td_tensor_release(q);
}

static void sharing(void **state) {
  td_tensor *a = make("FIFOQueueV2", OF_INTS "capacity: 10; shared_name: 'shared'");
  td_tensor *b = make("FIFOQueueV2", OF_INTS "capacity: 10; shared_name: 'shared'");
  assert_null(enqueue("QueueEnqueueV2", a, TD_INT32, "[]", "7"));
  expect_dequeue(b, "QueueDequeueV2", -1, "[]", "7");
  td_tensor_release(a);
  td_tensor_release(b);
  td_op_run other = {.op = "FIFOQueueV2", .device = device, .attrs = OF_INTS "capacity: 11; shared_name: 'shared'"};
  td_assert_run_fails(&other, TD_INVALID_ARGUMENT,
                      "Shared queue 'shared' has capacity 10 but requested capacity was 11");
  other.attrs = "component_types: [float]; capacity: 10; shared_name: 'shared'";
  td_assert_run_fails(&other, TD_INVALID_ARGUMENT,
                      "Shared queue 'shared' has component types int32 but requested component types were float");
  other.op = "PaddingFIFOQueueV2";
  td_assert_run_fails(&other, TD_INVALID_ARGUMENT, "");
}

/* The queue of a node without shared_name goes with the kernel. */
static void private_queues(void **state) {
  td_kernel *k = NULL;
  td_op_run run = {.op = "FIFOQueue", .name = "nq", .device = device, .attrs = OF_INTS, .kernel = &k};
  assert_null(td_op_test_run(&run));
  td_assert_tensor(run.out_refs[0]->value, TD_STRING, "[2]", "test _0_nq", 0);
  td_op_run size = {
      .op = "QueueSize", .device = device, .refs = run.out_refs, .in = &(td_tensor *){NULL}, .in_count = 1};
  assert_null(td_op_test_run(&size));
  td_assert_tensor(size.out[0], TD_INT32, "[]", "0", 0);
  td_tensor_release(size.out[0]);
  td_kernel_release(k);
  td_assert_run_fails(&size, TD_NOT_FOUND, "_0_nq");
  td_variable_release(run.out_refs[0]);
}

static void padding(void **state) {
  td_tensor *q = make("PaddingFIFOQueueV2", "component_types: [int32]; shapes: [[?, 2]]; shared_name: 'padding'");
  assert_null(enqueue("QueueEnqueueV2", q, TD_INT32, "[1,2]", "1 2"));
  assert_null(enqueue("QueueEnqueueV2", q, TD_INT32, "[0,2]", ""));
  assert_null(enqueue("QueueEnqueueV2", q, TD_INT32, "[2,2]", "3 4 5 6"));
  must_fail(enqueue("QueueEnqueueV2", q, TD_INT32, "[2,1]", "1 2"), TD_INVALID_ARGUMENT, "Expected [?,2], got [2,1]");
  expect_dequeue(q, "QueueDequeueManyV2", 3, "[3,2,2]", "1 2 0 0 0 0 0 0 3 4 5 6");
  td_tensor_release(q);
}

static void shuffling(void **state) {
  td_tensor *q = make("RandomShuffleQueueV2", OF_INTS "min_after_dequeue: 2; seed: 5; shared_name: 'shuffle'"), *t;
  assert_null(enqueue("QueueEnqueueManyV2", q, TD_INT32, "[8]", "0 1 2 3 4 5 6 7"));
  assert_null(dequeue("QueueDequeueManyV2", q, "int32", 6, &t));
  close_queue(q, false);
  td_tensor *rest;
  assert_null(dequeue("QueueDequeueManyV2", q, "int32", 2, &rest));
  int seen = 0;
  for (int i = 0; i < 8; i++) seen |= 1 << (i < 6 ? TD_DATA(t, int32_t)[i] : TD_DATA(rest, int32_t)[i - 6]);
  assert_int_equal(seen, 255);
  td_tensor_release(t);
  td_tensor_release(rest);
  td_tensor_release(q);
  td_op_run bad = {
      .op = "RandomShuffleQueueV2", .device = device, .attrs = OF_INTS "capacity: 2; min_after_dequeue: 2"};
  td_assert_run_fails(&bad, TD_INVALID_ARGUMENT, "min_after_dequeue 2 must be < capacity 2");
}

static void priorities(void **state) {
  td_tensor *q = make("PriorityQueueV2", "shapes: []; shared_name: 'priority'");
  const char *values[] = {"5", "-1", "9", "2", "7"};
  for (size_t i = 0; i < TD_COUNT(values); i++) assert_null(enqueue("QueueEnqueueV2", q, TD_INT64, "[]", values[i]));
  td_tensor *t;
  assert_null(dequeue("QueueDequeueV2", q, "int64", -1, &t));
  td_assert_tensor(t, TD_INT64, "[]", "-1", 0);
  td_tensor_release(t);
  assert_null(dequeue("QueueDequeueManyV2", q, "int64", 4, &t));
  td_assert_tensor(t, TD_INT64, "[4]", "2 5 7 9", 0);
  td_tensor_release(t);
  td_tensor_release(q);
}

/* ---- waiting ---- */

typedef struct waiter {
  td_tensor *q;
  td_step step;
  const char *op;
  int n;
  td_status status;
  td_tensor *value;
} waiter;

static void *wait_main(void *arg) {
  waiter *w = arg;
  bool many = w->n >= 0, takes = !strncmp(w->op, "QueueDequeue", 12);
  td_tensor *in[] = {w->q, td_test_tensor(TD_INT32, "[]", "0")};
  *TD_DATA(in[1], int32_t) = w->n;
  td_op_run run = {.op = w->op,
                   .device = device,
                   .step = &w->step,
                   .in = in,
                   .in_count = takes && !many ? 1 : 2,
                   .attrs = takes ? "component_types: [int32]" : "Tcomponents: [int32]"};
  w->status = td_op_test_run(&run);
  w->value = run.out[0];
  td_tensor_release(in[1]);
  return NULL;
}

static void cancellation(void **state) {
  td_tensor *q = make("FIFOQueueV2", OF_INTS "capacity: 2; shared_name: 'cancel'");
  assert_null(enqueue("QueueEnqueueV2", q, TD_INT32, "[]", "1"));
  waiter w = {.q = q, .op = "QueueDequeueManyV2", .n = 2, .step = {.id = 1, .cancellation = td_cancellation_create()}};
  pthread_t thread;
  pthread_create(&thread, NULL, wait_main, &w);
  usleep(20000); /* it has taken the one */
  td_cancellation_cancel(w.step.cancellation);
  pthread_join(thread, NULL);
  must_fail(w.status, TD_CANCELLED, "Dequeue operation was cancelled");
  expect_dequeue(q, "QueueDequeueV2", -1, "[]", "1"); /* and given it back */
  wait_main(&w);
  must_fail(w.status, TD_CANCELLED, "Dequeue operation was cancelled");
  td_cancellation_release(w.step.cancellation);
  /* closing cancels what waits to get in */
  assert_null(enqueue("QueueEnqueueManyV2", q, TD_INT32, "[2]", "1 2"));
  w = (waiter){.q = q, .op = "QueueEnqueueV2", .step = {.id = 1, .cancellation = td_cancellation_create()}};
  pthread_create(&thread, NULL, wait_main, &w);
  usleep(20000);
  close_queue(q, true);
  pthread_join(thread, NULL);
  assert_int_equal(td_status_code(w.status), TD_CANCELLED);
  td_status_free(w.status);
  td_cancellation_release(w.step.cancellation);
  td_tensor_release(q);
}

enum { PARTIES = 32, ROUNDS = 100 };
static _Atomic int64_t total;

static void *party(void *arg) {
  waiter w = *(waiter *)arg;
  w.step.cancellation = td_cancellation_create();
  for (int i = 0; i < ROUNDS; i++) {
    w.n = w.n < 0 ? w.n : i;
    wait_main(&w);
    assert_null(w.status);
    if (w.value) atomic_fetch_add(&total, *TD_DATA(w.value, int32_t));
    td_tensor_release(w.value);
  }
  td_cancellation_release(w.step.cancellation);
  return NULL;
}

/* 64 threads through a small queue: every element comes out once. */
static void nothing_is_lost(void **state) {
  td_tensor *q = make("FIFOQueueV2", OF_INTS "capacity: 5; shared_name: 'stress'");
  pthread_t threads[2 * PARTIES];
  waiter in = {.q = q, .op = "QueueEnqueueV2", .step = {.id = 1}},
         out = {.q = q, .op = "QueueDequeueV2", .n = -1, .step = {.id = 1}};
  atomic_store(&total, 0);
  for (int i = 0; i < 2 * PARTIES; i++) pthread_create(&threads[i], NULL, party, i % 2 ? &in : &out);
  for (int i = 0; i < 2 * PARTIES; i++) pthread_join(threads[i], NULL);
  assert_int_equal(total, PARTIES * (ROUNDS * (ROUNDS - 1) / 2));
  td_tensor_release(q);
}

static void *cancel_main(void *arg) {
  usleep(200);
  td_cancellation_cancel(arg);
  return NULL;
}

/* Cancelled while elements come: whoever ended well has one, the others took none. */
static void cancelled_or_served(void **state) {
  td_tensor *q = make("FIFOQueueV2", OF_INTS "shared_name: 'race'");
  int served = 0;
  enum { N = 50 };
  for (int i = 0; i < N; i++) {
    waiter w = {.q = q, .op = "QueueDequeueV2", .n = -1, .step = {.id = 1, .cancellation = td_cancellation_create()}};
    pthread_t waiting, cancelling;
    pthread_create(&waiting, NULL, wait_main, &w);
    pthread_create(&cancelling, NULL, cancel_main, w.step.cancellation);
    assert_null(enqueue("QueueEnqueueV2", q, TD_INT32, "[]", "1"));
    pthread_join(waiting, NULL);
    pthread_join(cancelling, NULL);
    served += !w.status;
    td_status_free(w.status);
    td_tensor_release(w.value);
    td_cancellation_release(w.step.cancellation);
  }
  td_op_run size = {.op = "QueueSizeV2", .device = device, .in = &q, .in_count = 1};
  assert_null(td_op_test_run(&size));
  assert_int_equal(*TD_DATA(size.out[0], int32_t), N - served);
  td_tensor_release(size.out[0]);
  td_tensor_release(q);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fifo),         cmocka_unit_test(sharing),         cmocka_unit_test(private_queues),
      cmocka_unit_test(padding),      cmocka_unit_test(shuffling),       cmocka_unit_test(priorities),
      cmocka_unit_test(cancellation), cmocka_unit_test(nothing_is_lost), cmocka_unit_test(cancelled_or_served),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}

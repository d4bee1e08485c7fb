/* Master sessions: timeouts, requests that come twice, extensions and closes while steps run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/testing.h"
#include "ops/testing.h"

static const char graph[] =
    "one Const - - dtype: float; value: float [] 1\n"
    "queue FIFOQueueV2 /job:ps/task:0 - component_types: [float]\n"
    "never QueueDequeueV2 /job:ps/task:0 queue component_types: [float]\n"
    "enqueue QueueEnqueueV2 /job:ps/task:0 queue,one Tcomponents: [float]";

TD_TEST_CLUSTER("ps 1 worker 1");

static td_status run(const char *handle, const char *fetch, int64_t run_timeout_ms, int64_t request_id,
                     td_tensor **out) {
  td_test_step step = {.handle = handle,
                       .fetches = fetch,
                       .targets = fetch[0] == '-' ? "one" : "-",
                       .run_timeout_ms = run_timeout_ms,
                       .request_id = request_id};
  return td_test_run_step(&cluster, 1, &step, out);
}

/* The server ends a step by itself, with the text of TensorFlow's local session; the client here has no deadline. */
static void test_timeouts(void **state) {
  td_arena a = {0};
  char *s;
  td_tensor *t;
  must(td_test_create_session(&cluster, 1, graph, NULL, &a, &s));
  must_fail(run(s, "never:0", 30, 0, &t), TD_DEADLINE_EXCEEDED, "Timed out waiting for notification");
  must(run(s, "one:0", TD_TEST_PATIENCE_MS, 0, &t));
  td_tensor_release(t);
  must(td_test_close_session(&cluster, 1, s));
  Pb__ConfigProto config = PB__CONFIG_PROTO__INIT;
  config.operation_timeout_in_ms = 30;
  must(td_test_create_session(&cluster, 1, graph, &config, &a, &s));
  must_fail(run(s, "never:0", 0, 0, &t), TD_DEADLINE_EXCEEDED, "Timed out waiting for notification");
  must(td_test_close_session(&cluster, 1, s));
  assert_int_equal(td_test_step_count(&cluster, 0), 0);
  td_arena_deinit(&a);
}

static void test_a_request_that_comes_twice(void **state) {
  td_arena a = {0};
  char *s;
  td_tensor *t;
  must(td_test_create_session(&cluster, 1, graph, NULL, &a, &s));
  must(run(s, "-", 0, 4711, &t));
  must_fail(run(s, "-", 0, 4711, &t), TD_ABORTED, "The same RunStep (Master) request was received twice.");
  must(run(s, "-", 0, 4712, &t));
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
}

/* A step that waits in a queue on another task. */
typedef struct waiter {
  char *session;
  td_tensor *out;
  td_status status;
  pthread_t thread;
} waiter;

static void *wait_in_queue(void *arg) {
  waiter *w = arg;
  w->status = run(w->session, "never:0", 0, 0, &w->out);
  return NULL;
}

static void start_waiting(waiter *w) {
  pthread_create(&w->thread, NULL, wait_in_queue, w);
  while (!td_test_step_count(&cluster, 0)) usleep(1000);
}

static void test_extended_while_a_step_runs(void **state) {
  td_arena a = {0};
  waiter w = {0};
  td_tensor *t;
  must(td_test_create_session(&cluster, 1, graph, NULL, &a, &w.session));
  start_waiting(&w);
  Pb__ExtendSessionRequest request = PB__EXTEND_SESSION_REQUEST__INIT;
  request.session_handle = w.session;
  request.graph_def = td_test_graph(&a, "two Neg /job:ps/task:0 one T: float");
  must(td_test_call(cluster.channels[1], "/tensorflow.MasterService/ExtendSession", &request.base, TD_TEST_PATIENCE_MS,
                    NULL, NULL, NULL));
  must(run(w.session, "two:0", 0, 0, &t));
  td_assert_tensor(t, TD_FLOAT, "[]", "-1", 0);
  td_tensor_release(t);
  must(td_test_run(&cluster, 1, w.session, "-", "enqueue", NULL, NULL, TD_TEST_PATIENCE_MS,
                   NULL)); /* lets the first step end */
  pthread_join(w.thread, NULL);
  must(w.status);
  td_assert_tensor(w.out, TD_FLOAT, "[]", "1", 0);
  td_tensor_release(w.out);
  must(td_test_close_session(&cluster, 1, w.session));
  td_arena_deinit(&a);
}

static void test_closed_while_a_step_runs(void **state) {
  td_arena a = {0};
  waiter w = {0};
  must(td_test_create_session(&cluster, 1, graph, NULL, &a, &w.session));
  start_waiting(&w);
  must(td_test_close_session(&cluster, 1, w.session));
  pthread_join(w.thread, NULL);
  must_fail(w.status, TD_CANCELLED, "Step was cancelled by an explicit call to `Session::Close()`.");
  assert_int_equal(td_test_step_count(&cluster, 0), 0);
  assert_int_equal(td_test_step_count(&cluster, 1), 0);
  td_arena_deinit(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_timeouts),
      cmocka_unit_test(test_a_request_that_comes_twice),
      cmocka_unit_test(test_extended_while_a_step_runs),
      cmocka_unit_test(test_closed_while_a_step_runs),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

/* Servers (TensorFlow's server_lib): clusters inside one process, through their real sockets: sessions, steps over
 * tasks, errors, cancellation, faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/testing.h"
#include "cluster/testing.h"
#include "ops/testing.h"

#define PS "/job:ps/task:0"
#define W0 "/job:worker/task:0"
#define W1 "/job:worker/task:1"

/* A variable on ps; y = v * 2 on worker 0; up adds to it from worker 1. */
static const char variable_graph[] = "v VariableV2 " PS
                                     " - shape: [2]; dtype: float; container: ''; shared_name: ''\n"
                                     "zero Const " PS
                                     " - dtype: float; value: float [2] 1 2\n"
                                     "init Assign " PS
                                     " v,zero T: float; validate_shape: true; use_locking: true\n"
                                     "read Identity " PS
                                     " v T: float\n"
                                     "two Const " W0
                                     " - dtype: float; value: float [] 2\n"
                                     "y Mul " W0
                                     " read,two T: float\n"
                                     "one Const " W1
                                     " - dtype: float; value: float [2] 1 1\n"
                                     "up AssignAdd " PS
                                     " v,one T: float; use_locking: true\n"
                                     "x Placeholder " W0
                                     " - dtype: float; shape: unknown\n"
                                     "z Add " W1
                                     " x,y T: float\n"
                                     "bad Reshape " PS
                                     " read,seven T: float; Tshape: int32\n"
                                     "seven Const " PS
                                     " - dtype: int32; value: int32 [1] 7\n"
                                     "after Add " W1 " bad,one T: float";

/* while (i < n) i += 1, its body on worker 1, its condition on worker 0. */
static const char loop_graph[] = "i0 Const " W0
                                 " - dtype: int32; value: int32 [] 0\n"
                                 "n Placeholder " W0
                                 " - dtype: int32; shape: unknown\n"
                                 "enter Enter " W0
                                 " i0 T: int32; frame_name: 'loop'; is_constant: false; parallel_iterations: 10\n"
                                 "enter_n Enter " W0
                                 " n T: int32; frame_name: 'loop'; is_constant: true; parallel_iterations: 10\n"
                                 "merge Merge " W0
                                 " enter,next T: int32; N: 2\n"
                                 "less Less " W0
                                 " merge,enter_n T: int32\n"
                                 "cond LoopCond " W0
                                 " less\n"
                                 "switch Switch " W0
                                 " merge,cond T: int32\n"
                                 "exit Exit " W0
                                 " switch T: int32\n"
                                 "id Identity " W1
                                 " switch:1 T: int32\n"
                                 "one Const " W1
                                 " ^id dtype: int32; value: int32 [] 1\n"
                                 "add Add " W1
                                 " id,one T: int32\n"
                                 "next NextIteration " W0 " add T: int32";

TD_TEST_CLUSTER("ps 1 worker 2");

static void expect(const char *handle, int task, const char *fetch, td_dtype type, const char *shape,
                   const char *values) {
  td_tensor *t;
  must(td_test_run(&cluster, task, handle, fetch, "-", NULL, NULL, TD_TEST_PATIENCE_MS, &t));
  td_assert_tensor(t, type, shape, values, 1e-6);
  td_tensor_release(t);
}

static void test_variable_over_tasks(void **state) {
  td_arena a = {0};
  char *s;
  must(td_test_create_session(&cluster, 1, variable_graph, NULL, &a, &s));
  must_fail(td_test_run(&cluster, 1, s, "y:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}),
            TD_FAILED_PRECONDITION, "Attempting to use uninitialized value");
  must(td_test_run(&cluster, 1, s, "-", "init", NULL, NULL, TD_TEST_PATIENCE_MS, NULL));
  expect(s, 1, "y:0", TD_FLOAT, "[2]", "2 4");
  expect(s, 1, "up:0", TD_FLOAT, "[2]", "2 3");
  expect(s, 1, "y", TD_FLOAT, "[2]", "4 6");
  td_tensor *x = td_test_tensor(TD_FLOAT, "[2]", "10 20"), *z;
  must(td_test_run(&cluster, 1, s, "z:0", "-", "x:0", x, TD_TEST_PATIENCE_MS, &z));
  td_assert_tensor(z, TD_FLOAT, "[2]", "14 26", 1e-6);
  td_tensor_release(x);
  td_tensor_release(z);
  must(td_test_close_session(&cluster, 1, s));
  must_fail(td_test_close_session(&cluster, 1, s), TD_ABORTED, "is not found");
  must_fail(td_test_run(&cluster, 1, s, "y:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}), TD_ABORTED,
            "is not found");
  td_arena_deinit(&a);
}

static void test_errors_name_task_and_node(void **state) {
  td_arena a = {0};
  char *s;
  must(td_test_create_session(&cluster, 2, variable_graph, NULL, &a, &s));
  must(td_test_run(&cluster, 2, s, "-", "init", NULL, NULL, TD_TEST_PATIENCE_MS, NULL));
  td_status e = td_test_run(&cluster, 2, s, "after:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0});
  assert_non_null(strstr(td_status_message(e), "From /job:ps/replica:0/task:0:\n"));
  assert_null(strstr(td_status_message(e), "_Derived_"));
  must_fail(e, TD_INVALID_ARGUMENT, "[[{{node bad}}]]");
  must_fail(td_test_run(&cluster, 2, s, "z:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}),
            TD_INVALID_ARGUMENT, "You must feed a value for placeholder tensor 'x'");
  must_fail(td_test_run(&cluster, 2, s, "nope:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}),
            TD_NOT_FOUND, "nope");
  must_fail(td_test_run(&cluster, 2, s, "y:3", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}),
            TD_INVALID_ARGUMENT, "output index too large");
  must_fail(td_test_run(&cluster, 2, s, "-", "-", NULL, NULL, TD_TEST_PATIENCE_MS, NULL), TD_INVALID_ARGUMENT,
            "Must specify at least one target to fetch or execute.");
  must(td_test_close_session(&cluster, 2, s));
  td_arena_deinit(&a);
}

static void test_loop_over_tasks(void **state) {
  td_arena a = {0};
  char *s;
  td_tensor *n = td_test_tensor(TD_INT32, "[]", "25"), *i;
  must(td_test_create_session(&cluster, 0, loop_graph, NULL, &a, &s));
  for (int k = 0; k < 3; k++) {
    must(td_test_run(&cluster, 0, s, "exit:0", "-", "n:0", n, TD_TEST_PATIENCE_MS, &i));
    td_assert_tensor(i, TD_INT32, "[]", "25", 0);
    td_tensor_release(i);
  }
  td_tensor_release(n);
  must(td_test_close_session(&cluster, 0, s));
  td_arena_deinit(&a);
}

static void test_endless_loop_is_cancelled(void **state) {
  td_arena a = {0};
  char *s;
  td_tensor *n = td_test_tensor(TD_INT32, "[]", "2000000000"), *i;
  must(td_test_create_session(&cluster, 1, loop_graph, NULL, &a, &s));
  must_fail(td_test_run(&cluster, 1, s, "exit:0", "-", "n:0", n, 300, &i), TD_DEADLINE_EXCEEDED, "");
  td_tensor_release(n);
  must(td_test_close_session(&cluster, 1, s)); /* waits for the step's end */
  td_arena_deinit(&a);
}

typedef struct runner {
  const char *handle;
  td_status status;
} runner;

static void *run_endless(void *arg) {
  runner *r = arg;
  td_tensor *n = td_test_tensor(TD_INT32, "[]", "2000000000"), *i;
  r->status = td_test_run(&cluster, 1, r->handle, "exit:0", "-", "n:0", n, TD_TEST_PATIENCE_MS, &i);
  td_tensor_release(n);
  return NULL;
}

static void test_close_cancels_running_steps(void **state) {
  td_arena a = {0};
  char *s;
  pthread_t thread;
  must(td_test_create_session(&cluster, 1, loop_graph, NULL, &a, &s));
  runner r = {.handle = s};
  pthread_create(&thread, NULL, run_endless, &r);
  td_test_await_steps(&cluster, 1, 1);
  must(td_test_close_session(&cluster, 1, s));
  pthread_join(thread, NULL);
  must_fail(r.status, TD_CANCELLED, "Session::Close");
  td_arena_deinit(&a);
}

static void test_extend(void **state) {
  td_arena a = {0};
  char *s;
  must(td_test_create_session(&cluster, 1, "c Const " W0 " - dtype: float; value: float [] 3", NULL, &a, &s));
  Pb__ExtendSessionRequest request = PB__EXTEND_SESSION_REQUEST__INIT;
  Pb__ExtendSessionResponse *reply;
  request.session_handle = s;
  const char *path = "/tensorflow.MasterService/ExtendSession";
  request.graph_def = td_test_graph(&a, "d Square /job:nowhere c T: float");
  must_fail(td_test_call(cluster.channels[1], path, &request.base, TD_TEST_PATIENCE_MS, NULL, NULL, NULL),
            TD_INVALID_ARGUMENT, "nowhere");
  request.graph_def = td_test_graph(&a, "d Square " W1 " c T: float"); /* the failed one left nothing behind */
  must(td_test_call(cluster.channels[1], path, &request.base, TD_TEST_PATIENCE_MS,
                    &pb__extend_session_response__descriptor, &a, (ProtobufCMessage **)&reply));
  assert_int_equal(reply->new_graph_version, 1);
  expect(s, 1, "d:0", TD_FLOAT, "[]", "9");
  request.graph_def = td_test_graph(&a, "e Square " W1 " c T: float");
  must_fail(td_test_call(cluster.channels[1], path, &request.base, TD_TEST_PATIENCE_MS, NULL, NULL, NULL), TD_ABORTED,
            "Current version is 1 but caller expected 0.");
  request.current_graph_version = 1;
  request.graph_def = td_test_graph(&a, "d Square " W1 " c T: float");
  must_fail(td_test_call(cluster.channels[1], path, &request.base, TD_TEST_PATIENCE_MS, NULL, NULL, NULL),
            TD_INVALID_ARGUMENT, "which was created by a previous call to Create or Extend in this session.");
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
}

static void test_reset_clears_containers_and_sessions(void **state) {
  td_arena a = {0};
  char *s, *again;
  must(td_test_create_session(&cluster, 1, variable_graph, NULL, &a, &s));
  must(td_test_run(&cluster, 1, s, "-", "init", NULL, NULL, TD_TEST_PATIENCE_MS, NULL));
  Pb__ResetRequest reset = PB__RESET_REQUEST__INIT;
  must(td_test_call(cluster.channels[1], "/tensorflow.MasterService/Reset", &reset.base, TD_TEST_PATIENCE_MS, NULL,
                    NULL, NULL));
  must_fail(td_test_run(&cluster, 1, s, "y:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}), TD_ABORTED,
            "is not found");
  must(td_test_create_session(&cluster, 1, variable_graph, NULL, &a, &again));
  must_fail(td_test_run(&cluster, 1, again, "y:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}),
            TD_FAILED_PRECONDITION, "uninitialized");
  must(td_test_close_session(&cluster, 1, again));
  td_arena_deinit(&a);
}

static void test_isolated_state(void **state) {
  td_arena a = {0};
  char *shared, *isolated;
  Pb__ConfigProto config = PB__CONFIG_PROTO__INIT;
  config.isolate_session_state = true;
  must(td_test_create_session(&cluster, 1, variable_graph, NULL, &a, &shared));
  must(td_test_create_session(&cluster, 1, variable_graph, &config, &a, &isolated));
  must(td_test_run(&cluster, 1, shared, "-", "init", NULL, NULL, TD_TEST_PATIENCE_MS, NULL));
  must_fail(td_test_run(&cluster, 1, isolated, "y:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}),
            TD_FAILED_PRECONDITION, "uninitialized");
  must(td_test_close_session(&cluster, 1, isolated));
  must(td_test_close_session(&cluster, 1, shared));
  td_arena_deinit(&a);
}

static td_status recv_tensor(int task, int64_t step, const char *key, uint64_t timeout_ms) {
  Pb__RecvTensorRequest r = PB__RECV_TENSOR_REQUEST__INIT;
  r.step_id = step;
  r.rendezvous_key = (char *)key;
  r.request_id = (int64_t)(td_random_fast_u64() >> 1) | 1;
  return td_test_call(cluster.channels[task], "/tensorflow.WorkerService/RecvTensor", &r.base, timeout_ms, NULL, NULL,
                      NULL);
}

static void cleanup(int task, int64_t step) {
  Pb__CleanupGraphRequest r = PB__CLEANUP_GRAPH_REQUEST__INIT;
  r.step_id = step;
  must(td_test_call(cluster.channels[task], "/tensorflow.WorkerService/CleanupGraph", &r.base, TD_TEST_PATIENCE_MS,
                    NULL, NULL, NULL));
}

static void *cleanup_later(void *arg) {
  usleep(100000);
  cleanup(0, 4242);
  return NULL;
}

static void test_recv_tensor_early_late_and_wrong(void **state) {
  td_arena a = {0};
  Pb__GetStatusRequest request = PB__GET_STATUS_REQUEST__INIT;
  Pb__GetStatusResponse *status;
  must(td_test_call(cluster.channels[0], "/tensorflow.WorkerService/GetStatus", &request.base, TD_TEST_PATIENCE_MS,
                    &pb__get_status_response__descriptor, &a, (ProtobufCMessage **)&status));
  assert_int_equal(status->n_device_attributes, 1);
  unsigned long long incarnation = status->device_attributes[0]->incarnation;
  assert_true(incarnation != 0);
  char *good = td_arena_printf(&a, "%s;%016llx;/job:worker/replica:0/task:0/device:CPU:0;e;0:0",
                               status->device_attributes[0]->name, incarnation);
  char *old = td_arena_printf(&a, "%s;%016llx;/job:worker/replica:0/task:0/device:CPU:0;e;0:0",
                              status->device_attributes[0]->name, incarnation ^ 1);
  must_fail(recv_tensor(0, 1, old, TD_TEST_PATIENCE_MS), TD_ABORTED, "was probably restarted");
  must_fail(recv_tensor(0, 1, "nonsense", TD_TEST_PATIENCE_MS), TD_INVALID_ARGUMENT,
            "Invalid  rendezvous key: nonsense");
  must_fail(recv_tensor(0, 1, "/job:other/replica:0/task:0/device:CPU:0;1;/job:a;e;0:0", TD_TEST_PATIENCE_MS),
            TD_INVALID_ARGUMENT, "Invalid rendezvous key (src)");
  must_fail(recv_tensor(0, 1, "/job:ps/replica:0/task:0/device:CPU:7;1;/job:a;e;0:0", TD_TEST_PATIENCE_MS),
            TD_INVALID_ARGUMENT, "unknown device");
  /* nobody will ever send it */
  must_fail(recv_tensor(0, 777, good, 200), TD_DEADLINE_EXCEEDED, "");
  pthread_t thread;
  pthread_create(&thread, NULL, cleanup_later, NULL);
  must_fail(recv_tensor(0, 4242, good, TD_TEST_PATIENCE_MS), TD_ABORTED, "Cleanup 4242");
  pthread_join(thread, NULL);
  must_fail(recv_tensor(0, 4242, good, TD_TEST_PATIENCE_MS), TD_ABORTED, "Cleanup 4242"); /* late */
  cleanup(0, 777);
  td_arena_deinit(&a);
}

static void test_malformed_requests(void **state) {
  static const char *const paths[] = {
      "/tensorflow.MasterService/CreateSession", "/tensorflow.MasterService/RunStep",
      "/tensorflow.MasterService/MakeCallable",  "/tensorflow.WorkerService/RegisterGraph",
      "/tensorflow.WorkerService/RunGraph",      "/tensorflow.WorkerService/RecvTensor"};
  static const char bytes[] = "\x0a\xff\xff\xff\xff\x0fgarbage";
  for (size_t i = 0; i < TD_COUNT(paths); i++) {
    td_status s =
        td_test_call_bytes(cluster.channels[1], paths[i], td_str_n(bytes, sizeof bytes - 1), TD_TEST_PATIENCE_MS);
    must_fail(s, TD_INVALID_ARGUMENT, "");
  }
  must_fail(
      td_test_call_bytes(cluster.channels[1], "/tensorflow.WorkerService/RecvBuf", TD_STR(""), TD_TEST_PATIENCE_MS),
      TD_INVALID_ARGUMENT, "unknown device");
  must_fail(
      td_test_call_bytes(cluster.channels[1], "/tensorflow.EagerService/Enqueue", TD_STR(""), TD_TEST_PATIENCE_MS),
      TD_UNIMPLEMENTED, "");
}

static void test_restarted_task_aborts_then_works(void **state) {
  td_arena a = {0};
  char *s;
  must(td_test_create_session(&cluster, 1, variable_graph, NULL, &a, &s));
  must(td_test_run(&cluster, 1, s, "-", "init", NULL, NULL, TD_TEST_PATIENCE_MS, NULL));
  td_test_cluster_stop_task(&cluster, 0);
  must_fail(td_test_run(&cluster, 1, s, "y:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}),
            TD_UNAVAILABLE, "");
  td_test_cluster_restart(&cluster, 0);
  /* The first calls may still see the connection that broke. */
  td_status status;
  for (int i = 0;; i++) {
    status = td_test_run(&cluster, 1, s, "y:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0});
    if (td_status_code(status) != TD_UNAVAILABLE || i == 2000) break;
    td_status_free(status);
    usleep(50000);
  }
  must_fail(status, TD_ABORTED, "");
  must(td_test_close_session(&cluster, 1, s));
  must(td_test_create_session(&cluster, 1, variable_graph, NULL, &a, &s));
  must(td_test_run(&cluster, 1, s, "-", "init", NULL, NULL, TD_TEST_PATIENCE_MS, NULL));
  expect(s, 1, "y:0", TD_FLOAT, "[2]", "2 4");
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
}

/* Clients that run, give up and close at random, all at once, on all masters. */
static void *stress(void *arg) {
  uint64_t random = (uintptr_t)arg * 0x9E3779B97F4A7C15ull + 1;
  int task = (int)((uintptr_t)arg % 3);
  for (int round = 0; round < 4; round++) {
    td_arena a = {0};
    char *s, *loop;
    must(td_test_create_session(&cluster, task, variable_graph, NULL, &a, &s));
    must(td_test_create_session(&cluster, task, loop_graph, NULL, &a, &loop));
    must(td_test_run(&cluster, task, s, "-", "init", NULL, NULL, TD_TEST_PATIENCE_MS, NULL));
    for (int i = 0; i < 25; i++) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      td_tensor *out[2] = {0};
      td_status status;
      if (random >> 61) {
        status = td_test_run(&cluster, task, s, "y:0 up:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, out);
        must(status);
      } else {
        td_tensor *n = td_test_tensor(TD_INT32, "[]", "1000000");
        status = td_test_run(&cluster, task, loop, "exit:0", "-", "n:0", n, 1 + (random >> 50 & 15), out);
        td_tensor_release(n);
        td_status_free(status);
      }
      td_tensor_release(out[0]);
      td_tensor_release(out[1]);
    }
    must(td_test_close_session(&cluster, task, s));
    must(td_test_close_session(&cluster, task, loop));
    td_arena_deinit(&a);
  }
  return NULL;
}

static void test_many_clients(void **state) {
  pthread_t threads[6];
  for (uintptr_t i = 0; i < TD_COUNT(threads); i++) pthread_create(&threads[i], NULL, stress, (void *)i);
  for (size_t i = 0; i < TD_COUNT(threads); i++) pthread_join(threads[i], NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_variable_over_tasks),
      cmocka_unit_test(test_errors_name_task_and_node),
      cmocka_unit_test(test_loop_over_tasks),
      cmocka_unit_test(test_endless_loop_is_cancelled),
      cmocka_unit_test(test_close_cancels_running_steps),
      cmocka_unit_test(test_extend),
      cmocka_unit_test(test_reset_clears_containers_and_sessions),
      cmocka_unit_test(test_isolated_state),
      cmocka_unit_test(test_recv_tensor_early_late_and_wrong),
      cmocka_unit_test(test_malformed_requests),
      cmocka_unit_test(test_many_clients),
      cmocka_unit_test(test_restarted_task_aborts_then_works),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

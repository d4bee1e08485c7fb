/* Clusters whose tasks have several loop threads and several devices: steps over all of them, propagated cluster
 * specifications, many receives at once, and sessions that wait for a task. */
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
#include "base/testing.h"
#include "cluster/control.h"
#include "cluster/testing.h"
#include "ops/testing.h"
#include "proto/message.h"

enum { LOOPS = 2, DEVICES = 2, CHANNELS = 4, RECEIVES = 200 };

/* Back and forth between two devices of each of two tasks. */
static const char path_graph[] =
    "x Placeholder /job:worker/task:0/device:CPU:0 - dtype: float; shape: unknown\n"
    "a Square /job:worker/task:0/device:CPU:1 x T: float\n"
    "b Square /job:ps/task:0/device:CPU:0 a T: float\n"
    "c Neg /job:ps/task:0/device:CPU:1 b T: float\n"
    "d Neg /job:worker/task:0/device:CPU:1 c T: float\n"
    "e Add /job:worker/task:0/device:CPU:0 d,x T: float";

static const char forever_graph[] =
    "i0 Const /job:ps/task:0/device:CPU:1 - dtype: int32; value: int32 [] 0\n"
    "enter Enter /job:ps/task:0/device:CPU:1 i0 T: int32; frame_name: 'f'; is_constant: false; parallel_iterations: "
    "10\n"
    "merge Merge /job:ps/task:0/device:CPU:1 enter,next T: int32; N: 2\n"
    "yes Const /job:ps/task:0/device:CPU:1 ^merge dtype: bool; value: bool [] true\n"
    "cond LoopCond /job:ps/task:0/device:CPU:1 yes\n"
    "switch Switch /job:ps/task:0/device:CPU:1 merge,cond T: int32\n"
    "exit Exit /job:ps/task:0/device:CPU:1 switch T: int32\n"
    "id Identity /job:worker/task:0/device:CPU:1 switch:1 T: int32\n"
    "next NextIteration /job:ps/task:0/device:CPU:1 id T: int32";

static td_test_cluster cluster;

static int start(void **state) {
  td_test_cluster_start_with(&cluster, "ps 1 worker 1", LOOPS, DEVICES);
  return 0;
}

static int stop(void **state) {
  td_test_cluster_stop(&cluster);
  return 0;
}

/* Connections are dealt to the loops in turn: clients of their own reach all of them. */
static void *run_path(void *arg) {
  td_test_cluster mine = cluster;
  td_channel_options o = {0};
  td_arena a = {0};
  char *s;
  must(td_channel_create(cluster.loop, cluster.spec->tasks[1].address, &o, &mine.channels[1]));
  must(td_test_create_session(&mine, 1, path_graph, NULL, &a, &s));
  for (int i = 0; i < 100; i++) {
    td_tensor *x = td_test_tensor(TD_FLOAT, "[]", "3"), *e;
    must(td_test_run(&mine, 1, s, "e:0", "-", "x:0", x, TD_TEST_PATIENCE_MS, &e));
    td_assert_tensor(e, TD_FLOAT, "[]", "84", 1e-6);
    td_tensor_release(x);
    td_tensor_release(e);
  }
  must(td_test_close_session(&mine, 1, s));
  td_channel_destroy(mine.channels[1]);
  td_arena_deinit(&a);
  return NULL;
}

static void test_steps_over_devices_and_loops(void **state) {
  pthread_t threads[CHANNELS];
  for (size_t i = 0; i < CHANNELS; i++) pthread_create(&threads[i], NULL, run_path, NULL);
  for (size_t i = 0; i < CHANNELS; i++) pthread_join(threads[i], NULL);
}

static void *run_forever(void *arg) {
  td_test_cluster mine = cluster;
  td_channel_options o = {0};
  td_arena a = {0};
  char *s;
  must(td_channel_create(cluster.loop, cluster.spec->tasks[1].address, &o, &mine.channels[1]));
  must(td_test_create_session(&mine, 1, forever_graph, NULL, &a, &s));
  for (int i = 0; i < 10; i++)
    must_fail(td_test_run(&mine, 1, s, "exit:0", "-", NULL, NULL, 20 + (uint64_t)i * 5, (td_tensor *[1]){0}),
              TD_DEADLINE_EXCEEDED, "");
  must(td_test_close_session(&mine, 1, s));
  td_channel_destroy(mine.channels[1]);
  td_arena_deinit(&a);
  return NULL;
}

static void test_endless_steps_end_on_every_loop(void **state) {
  pthread_t threads[CHANNELS];
  for (size_t i = 0; i < CHANNELS; i++) pthread_create(&threads[i], NULL, run_forever, NULL);
  for (size_t i = 0; i < CHANNELS; i++) pthread_join(threads[i], NULL);
}

/* ---- cluster-spec propagation ---- */

static td_status create_propagated(const char *jobs, const char *graph, const char *target, td_arena *a,
                                   char **handle) {
  td_cluster_spec *spec;
  Pb__ConfigProto config = PB__CONFIG_PROTO__INIT;
  Pb__CreateSessionRequest request = PB__CREATE_SESSION_REQUEST__INIT;
  Pb__CreateSessionResponse *reply;
  must(td_cluster_spec_parse(td_str_of(jobs), &spec));
  config.cluster_def = td_cluster_spec_to_proto(spec, a);
  td_cluster_spec_release(spec);
  request.graph_def = td_test_graph(a, graph);
  request.config = &config;
  request.target = (char *)target;
  TD_TRY(td_test_call(cluster.channels[1], "/tensorflow.MasterService/CreateSession", &request.base,
                      TD_TEST_PATIENCE_MS, &pb__create_session_response__descriptor, a, (ProtobufCMessage **)&reply));
  *handle = reply->session_handle;
  return TD_STATUS_OK;
}

static void test_propagated_cluster(void **state) {
  static const char graph[] =
      "x Placeholder /job:neu/task:1/device:CPU:0 - dtype: float; shape: unknown\n"
      "a Square /job:neu/task:0/device:CPU:1 x T: float\n"
      "e Add /job:neu/task:1/device:CPU:1 a,x T: float";
  td_arena a = {0};
  char *s, *own = cluster.spec->tasks[1].address;
  char *jobs = td_arena_printf(&a, "neu|%s;%s", cluster.spec->tasks[0].address, own);
  char *target = td_arena_printf(&a, "grpc://%s", own);
  must(create_propagated(jobs, graph, target, &a, &s));
  for (int i = 0; i < 3; i++) {
    td_tensor *x = td_test_tensor(TD_FLOAT, "[2]", "3 4"), *e;
    must(td_test_run(&cluster, 1, s, "e:0", "-", "x:0", x, TD_TEST_PATIENCE_MS, &e));
    td_assert_tensor(e, TD_FLOAT, "[2]", "12 20", 1e-6);
    td_tensor_release(x);
    td_tensor_release(e);
  }
  Pb__ListDevicesRequest list = PB__LIST_DEVICES_REQUEST__INIT;
  Pb__ListDevicesResponse *devices;
  list.session_handle = s;
  must(td_test_call(cluster.channels[1], "/tensorflow.MasterService/ListDevices", &list.base, TD_TEST_PATIENCE_MS,
                    &pb__list_devices_response__descriptor, &a, (ProtobufCMessage **)&devices));
  assert_int_equal(devices->n_local_device, DEVICES);
  assert_int_equal(devices->n_remote_device, DEVICES);
  assert_string_equal(devices->local_device[0]->name, "/job:neu/replica:0/task:1/device:CPU:0");
  assert_string_equal(devices->remote_device[0]->name, "/job:neu/replica:0/task:0/device:CPU:0");
  must(td_test_close_session(&cluster, 1, s));
  must_fail(create_propagated(jobs, graph, "grpc://elsewhere:1", &a, &s), TD_INVALID_ARGUMENT,
            "is not included in the provided cluster_def");
  must_fail(create_propagated(td_arena_printf(&a, "worker|%s", own), graph, target, &a, &s), TD_INVALID_ARGUMENT,
            "same names that were provided when the server booted");
  td_arena_deinit(&a);
}

/* ---- many receives ---- */

typedef struct waiter {
  td_latch *latch;
  td_client_call *call;
  atomic_int *cancelled, *aborted;
} waiter;

static void received(void *arg, td_status status, td_str reply, td_str details) {
  waiter *w = arg;
  atomic_fetch_add(w->cancelled, td_status_code(status) == TD_CANCELLED);
  atomic_fetch_add(w->aborted, td_status_code(status) == TD_ABORTED);
  td_status_free(status);
  td_latch_done(w->latch, TD_STATUS_OK);
}

static void start_receive(waiter *w, int64_t step, unsigned long long incarnation, int i) {
  Pb__RecvTensorRequest r = PB__RECV_TENSOR_REQUEST__INIT;
  td_arena a = {0};
  td_strbuf b = {0};
  td_payload message = {0};
  r.step_id = step;
  r.rendezvous_key = td_arena_printf(
      &a, "/job:ps/replica:0/task:0/device:CPU:1;%016llx;/job:worker/replica:0/task:0/device:CPU:0;e%d;0:0",
      incarnation, i);
  must(td_message_encode(&r.base, &b));
  td_payload_copy(&message, b.data, b.size);
  td_call_options o = {
      .path = "/tensorflow.WorkerService/RecvTensor", .deadline_ns = TD_NO_DEADLINE, .done = received, .arg = w};
  w->call = td_channel_call(cluster.channels[0], &o, &message);
  td_strbuf_deinit(&b);
  td_arena_deinit(&a);
}

/* A small limit of streams would shut the step and the clean-up out. */
static void test_many_blocked_receives(void **state) {
  td_arena a = {0};
  Pb__GetStatusRequest request = PB__GET_STATUS_REQUEST__INIT;
  Pb__GetStatusResponse *status;
  must(td_test_call(cluster.channels[0], "/tensorflow.WorkerService/GetStatus", &request.base, TD_TEST_PATIENCE_MS,
                    &pb__get_status_response__descriptor, &a, (ProtobufCMessage **)&status));
  assert_int_equal(status->n_device_attributes, DEVICES);
  waiter waiters[RECEIVES];
  td_latch latch;
  atomic_int cancelled = 0, aborted = 0;
  td_latch_init(&latch, RECEIVES);
  for (int i = 0; i < RECEIVES; i++) {
    waiters[i] = (waiter){.latch = &latch, .cancelled = &cancelled, .aborted = &aborted};
    start_receive(&waiters[i], 1000 + i % 2, status->device_attributes[1]->incarnation, i);
  }
  run_path(NULL);
  for (int i = 0; i < RECEIVES; i += 2) td_client_call_cancel(waiters[i].call);
  Pb__CleanupGraphRequest cleanup = PB__CLEANUP_GRAPH_REQUEST__INIT;
  cleanup.step_id = 1001;
  must(td_test_call(cluster.channels[0], "/tensorflow.WorkerService/CleanupGraph", &cleanup.base, TD_TEST_PATIENCE_MS,
                    NULL, NULL, NULL));
  must(td_latch_wait(&latch));
  assert_int_equal(cancelled, RECEIVES / 2);
  assert_int_equal(aborted, RECEIVES / 2);
  for (int i = 0; i < RECEIVES; i++) td_client_call_release(waiters[i].call);
  td_latch_deinit(&latch);
  td_arena_deinit(&a);
}

/* ---- absent tasks ---- */

static td_status create_within(uint64_t timeout_ms, td_arena *a, char **handle) {
  Pb__CreateSessionRequest request = PB__CREATE_SESSION_REQUEST__INIT;
  Pb__CreateSessionResponse *reply;
  request.graph_def = td_test_graph(a, path_graph);
  TD_TRY(td_test_call(cluster.channels[1], "/tensorflow.MasterService/CreateSession", &request.base, timeout_ms,
                      &pb__create_session_response__descriptor, a, (ProtobufCMessage **)&reply));
  *handle = reply->session_handle;
  return TD_STATUS_OK;
}

typedef struct creator {
  uint64_t timeout_ms;
  td_status status;
  td_arena arena;
  char *handle;
} creator;

static void *create_patiently(void *arg) {
  creator *c = arg;
  c->status = create_within(c->timeout_ms, &c->arena, &c->handle);
  return NULL;
}

static void test_create_session_waits_for_a_task(void **state) {
  td_arena a = {0};
  char *s;
  td_test_cluster_stop_task(&cluster, 0);
  for (int i = 0; i < 3; i++) must_fail(create_within(150, &a, &s), TD_DEADLINE_EXCEEDED, "");
  Pb__ListDevicesRequest list = PB__LIST_DEVICES_REQUEST__INIT; /* waits, too */
  must_fail(
      td_test_call(cluster.channels[1], "/tensorflow.MasterService/ListDevices", &list.base, 150, NULL, NULL, NULL),
      TD_DEADLINE_EXCEEDED, "");
  creator c = {.timeout_ms = TD_TEST_PATIENCE_MS};
  pthread_t thread;
  pthread_create(&thread, NULL, create_patiently, &c);
  usleep(300000);
  td_test_cluster_restart(&cluster, 0);
  pthread_join(thread, NULL);
  must(c.status);
  must(td_test_close_session(&cluster, 1, c.handle));
  td_arena_deinit(&c.arena);
  td_arena_deinit(&a);
}

/* A server ends although a client waits for a session that cannot be made. */
enum { LATE_MS = 30000 }; /* a call that comes when the server is gone ends by itself */

static void *list_devices(void *arg) {
  Pb__ListDevicesRequest list = PB__LIST_DEVICES_REQUEST__INIT;
  td_status s =
      td_test_call(cluster.channels[1], "/tensorflow.MasterService/ListDevices", &list.base, LATE_MS, NULL, NULL, NULL);
  assert_non_null(s);
  td_status_free(s);
  return NULL;
}

static void test_a_server_ends_while_a_session_is_created(void **state) {
  td_test_cluster_stop_task(&cluster, 0);
  creator c = {.timeout_ms = LATE_MS};
  pthread_t thread, other;
  pthread_create(&thread, NULL, create_patiently, &c);
  pthread_create(&other, NULL, list_devices, NULL);
  usleep(200000);
  td_test_cluster_stop_task(&cluster, 1);
  pthread_join(thread, NULL);
  pthread_join(other, NULL);
  assert_non_null(c.status);
  td_status_free(c.status);
  td_arena_deinit(&c.arena);
  td_test_cluster_restart(&cluster, 0);
  td_test_cluster_restart(&cluster, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_steps_over_devices_and_loops),
      cmocka_unit_test(test_endless_steps_end_on_every_loop),
      cmocka_unit_test(test_propagated_cluster),
      cmocka_unit_test(test_many_blocked_receives),
      cmocka_unit_test(test_create_session_waits_for_a_task),
      cmocka_unit_test(test_a_server_ends_while_a_session_is_created),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

/* A master whose peer is stuck, fails or is slow to say why: nothing waits for ever, and the cause is what clients see.
 * The peer is a stub that speaks the worker service. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/testing.h"
#include "cluster/messages.h"
#include "cluster/testing.h"

static const char graph[] =
    "a Const /job:ps/task:0 - dtype: float; value: float [] 1\n"
    "b Identity /job:worker/task:0 a T: float";

enum { REGISTER_OK, REGISTER_HANGS, REGISTER_FAILS };

typedef struct stub {
  td_loop *loop;
  td_rpc_server *rpc;
  atomic_int mode, registrations;
  atomic_bool tells_cause;      /* RecvTensor fails at once, derived; RunGraph later, with the cause */
  td_call *_Atomic late_answer; /* the RunGraph that waits for tell_cause() */
} stub;

static td_test_cluster cluster;
static stub ps;

/* ---- the stub ---- */

static void reply(td_call *call, const ProtobufCMessage *m) {
  td_payload p = {0};
  if (m) must(td_payload_add_message(&p, m));
  td_call_reply(call, &p);
}

static void get_status(void *service, td_call *call, td_str request) {
  Pb__DeviceAttributes cpu = PB__DEVICE_ATTRIBUTES__INIT, *one = &cpu;
  Pb__GetStatusResponse r = PB__GET_STATUS_RESPONSE__INIT;
  cpu.name = "/job:ps/replica:0/task:0/device:CPU:0";
  cpu.device_type = "CPU";
  cpu.incarnation = 77;
  r.n_device_attributes = 1;
  r.device_attributes = &one;
  reply(call, &r.base);
}

static void empty(void *service, td_call *call, td_str request) { reply(call, NULL); }

static void give_up(void *call) { td_call_fail(call, td_cancelled("the caller gave up"), (td_str){0}); }

static void hold(td_call *call) { td_call_on_cancel(call, give_up, call); }

static void register_graph(void *service, td_call *call, td_str request) {
  Pb__RegisterGraphResponse r = PB__REGISTER_GRAPH_RESPONSE__INIT;
  atomic_fetch_add(&ps.registrations, 1);
  r.graph_handle = "0000000000000001";
  switch (atomic_load(&ps.mode)) {
    case REGISTER_HANGS:
      hold(call);
      break;
    case REGISTER_FAILS:
      td_call_fail(call, td_error(TD_UNAVAILABLE, "not now"), (td_str){0});
      break;
    default:
      reply(call, &r.base);
  }
}

static void run_graph(void *service, td_call *call, td_str request) {
  if (atomic_load(&ps.tells_cause))
    atomic_store(&ps.late_answer, call);
  else
    hold(call);
}

static void recv_tensor(void *service, td_call *call, td_str request) {
  if (atomic_load(&ps.tells_cause))
    td_call_fail_peer(call, td_status_derive(td_aborted("a consequence")));
  else
    hold(call);
}

#define WORKER(name) "/tensorflow.WorkerService/" name
static const td_method methods[] = {
    {.path = WORKER("GetStatus"), .handle = get_status},
    {.path = WORKER("CreateWorkerSession"), .handle = empty},
    {.path = WORKER("DeleteWorkerSession"), .handle = empty},
    {.path = WORKER("RegisterGraph"), .handle = register_graph},
    {.path = WORKER("DeregisterGraph"), .handle = empty},
    {.path = WORKER("RunGraph"), .handle = run_graph},
    {.path = WORKER("RecvTensor"), .handle = recv_tensor},
    {.path = WORKER("CleanupGraph"), .handle = empty},
};

static int start(void **state) {
  td_test_cluster_start(&cluster, "ps 1 worker 1");
  td_test_cluster_stop_task(&cluster, 0);
  must(td_loop_create("stub", NULL, &ps.loop));
  td_rpc_server_options o = {
      .loops = &ps.loop, .loop_count = 1, .methods = methods, .method_count = TD_COUNT(methods), .service = &ps};
  must(td_rpc_server_create(&o, &ps.rpc));
  int port;
  must(td_rpc_server_listen(ps.rpc, cluster.spec->tasks[0].address, &port));
  td_rpc_server_start(ps.rpc);
  return 0;
}

static int stop(void **state) {
  td_test_cluster_stop(&cluster);
  td_rpc_server_stop_accepting(ps.rpc);
  td_rpc_server_drain(ps.rpc, td_now_ns());
  td_rpc_server_destroy(ps.rpc);
  td_loop_stop(ps.loop);
  td_loop_destroy(ps.loop);
  return 0;
}

/* ---- the tests ---- */

typedef struct runner {
  const char *handle;
  uint64_t timeout_ms;
  td_status status;
  pthread_t thread;
} runner;

static void *run_b(void *arg) {
  runner *r = arg;
  r->status = td_test_run(&cluster, 1, r->handle, "b:0", "-", NULL, NULL, r->timeout_ms, (td_tensor *[1]){0});
  return NULL;
}

static char *create(td_arena *a, int mode) {
  char *s;
  atomic_store(&ps.mode, mode);
  atomic_store(&ps.registrations, 0);
  must(td_test_create_session(&cluster, 1, graph, NULL, a, &s));
  return s;
}

static void test_close_while_a_plan_is_built(void **state) {
  td_arena a = {0};
  char *s = create(&a, REGISTER_HANGS);
  runner runners[4];
  for (size_t i = 0; i < TD_COUNT(runners); i++) {
    runners[i] = (runner){.handle = s, .timeout_ms = TD_TEST_PATIENCE_MS};
    pthread_create(&runners[i].thread, NULL, run_b, &runners[i]);
  }
  td_test_await_steps(&cluster, 1, TD_COUNT(runners));
  while (!atomic_load(&ps.registrations)) usleep(1000);
  must(td_test_close_session(&cluster, 1, s));
  for (size_t i = 0; i < TD_COUNT(runners); i++) {
    pthread_join(runners[i].thread, NULL);
    must_fail(runners[i].status, TD_CANCELLED, "Session::Close");
  }
  assert_int_equal(atomic_load(&ps.registrations), 1); /* they waited for one plan */
  td_arena_deinit(&a);
}

static void test_give_up_while_a_plan_is_built(void **state) {
  td_arena a = {0};
  char *s = create(&a, REGISTER_HANGS);
  for (int i = 0; i < 3; i++)
    must_fail(td_test_run(&cluster, 1, s, "b:0", "-", NULL, NULL, 100, (td_tensor *[1]){0}), TD_DEADLINE_EXCEEDED, "");
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
}

static void test_plan_that_failed_is_tried_again(void **state) {
  td_arena a = {0};
  char *s = create(&a, REGISTER_FAILS);
  for (int i = 0; i < 3; i++)
    must_fail(td_test_run(&cluster, 1, s, "b:0", "-", NULL, NULL, TD_TEST_PATIENCE_MS, (td_tensor *[1]){0}),
              TD_UNAVAILABLE, "From /job:ps/replica:0/task:0:\nnot now");
  assert_int_equal(atomic_load(&ps.registrations), 3);
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
}

static void test_a_step_whose_peer_hangs_is_cancelled(void **state) {
  td_arena a = {0};
  char *s = create(&a, REGISTER_OK);
  must_fail(td_test_run(&cluster, 1, s, "b:0", "-", NULL, NULL, 200, (td_tensor *[1]){0}), TD_DEADLINE_EXCEEDED, "");
  td_test_await_no_steps(&cluster, 1);
  runner r = {.handle = s, .timeout_ms = TD_TEST_PATIENCE_MS};
  pthread_create(&r.thread, NULL, run_b, &r);
  td_test_await_steps(&cluster, 1, 1);
  must(td_test_close_session(&cluster, 1, s));
  pthread_join(r.thread, NULL);
  must_fail(r.status, TD_CANCELLED, "Session::Close");
  td_arena_deinit(&a);
}

typedef struct closer {
  char *handle;
  useconds_t delay_us;
  pthread_t thread;
} closer;

static void *close_later(void *arg) {
  closer *c = arg;
  usleep(c->delay_us);
  must(td_test_close_session(&cluster, 1, c->handle));
  return NULL;
}

/* False if the session was closed before MakeCallable came to it. */
static bool try_callable(useconds_t delay_us) {
  td_arena a = {0};
  char *s = create(&a, REGISTER_HANGS), *fetches[] = {"b:0"};
  runner r = {.handle = s, .timeout_ms = TD_TEST_PATIENCE_MS};
  pthread_create(&r.thread, NULL, run_b, &r);
  while (!atomic_load(&ps.registrations)) usleep(1000);
  Pb__MakeCallableRequest make = PB__MAKE_CALLABLE_REQUEST__INIT;
  Pb__CallableOptions options = PB__CALLABLE_OPTIONS__INIT;
  make.session_handle = s;
  make.options = &options;
  options.n_fetch = 1;
  options.fetch = fetches;
  closer c = {.handle = s, .delay_us = delay_us};
  pthread_create(&c.thread, NULL, close_later, &c);
  td_status made = td_test_call(cluster.channels[1], "/tensorflow.MasterService/MakeCallable", &make.base,
                                TD_TEST_PATIENCE_MS, NULL, NULL, NULL);
  pthread_join(c.thread, NULL);
  pthread_join(r.thread, NULL);
  must_fail(r.status, TD_CANCELLED, "Session::Close");
  bool was_in_time = td_status_code(made) != TD_ABORTED;
  if (was_in_time)
    must_fail(made, TD_FAILED_PRECONDITION, "Session is closed.");
  else
    must_fail(made, TD_ABORTED, "is not found");
  td_arena_deinit(&a);
  return was_in_time;
}

/* MakeCallable joins a plan that a step has asked for, and does not wait for it once the session closes. */
static void test_callable_of_a_plan_that_hangs(void **state) {
  useconds_t delay_us = 100000;
  while (!try_callable(delay_us)) assert_true((delay_us *= 2) < 100000000);
}

/* The consequence arrives before the cause. False if that took so long that the consequence may pass for the cause. */
static bool try_the_cause(void) {
  td_arena a = {0};
  uint64_t begun = td_now_ns();
  char *s = create(&a, REGISTER_OK);
  atomic_store(&ps.tells_cause, true);
  runner r = {.handle = s, .timeout_ms = TD_TEST_PATIENCE_MS};
  pthread_create(&r.thread, NULL, run_b, &r);
  while (!atomic_load(&ps.late_answer)) usleep(1000);
  usleep(20000);
  td_call_fail(atomic_exchange(&ps.late_answer, NULL), td_invalid_argument("the cause"), (td_str){0});
  pthread_join(r.thread, NULL);
  bool was_in_time = td_now_ns() - begun < 1000000000;
  if (was_in_time)
    must_fail(r.status, TD_INVALID_ARGUMENT, "From /job:ps/replica:0/task:0:\nthe cause");
  else
    td_status_free(r.status);
  atomic_store(&ps.tells_cause, false);
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
  return was_in_time;
}

static void test_the_cause_is_waited_for(void **state) {
  for (int i = 0; !try_the_cause(); i++) assert_true(i < 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_close_while_a_plan_is_built),
      cmocka_unit_test(test_give_up_while_a_plan_is_built),
      cmocka_unit_test(test_plan_that_failed_is_tried_again),
      cmocka_unit_test(test_a_step_whose_peer_hangs_is_cancelled),
      cmocka_unit_test(test_the_cause_is_waited_for),
      cmocka_unit_test(test_callable_of_a_plan_that_hangs),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

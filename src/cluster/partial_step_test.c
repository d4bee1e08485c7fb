/* Partial runs over two tasks: what TensorFlow answers to each call, and that nothing stays of those that do not end.
 */
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

#define PS "/job:ps/task:0"
#define W0 "/job:worker/task:0"

/* sum = a + b on ps, product = sum * c here; bad fails on ps once it is fed, never waits there for ever. */
static const char graph[] = "a Placeholder " W0
                            " - dtype: float; shape: unknown\n"
                            "b Placeholder " W0
                            " - dtype: float; shape: unknown\n"
                            "c Placeholder " W0
                            " - dtype: float; shape: unknown\n"
                            "sum Add " PS
                            " a,b T: float\n"
                            "product Mul " W0
                            " sum,c T: float\n"
                            "seven Const " PS
                            " - dtype: int32; value: int32 [1] 7\n"
                            "bad Reshape " PS
                            " a,seven T: float; Tshape: int32\n"
                            "queue FIFOQueueV2 " PS
                            " - component_types: [float]\n"
                            "never QueueDequeueV2 " PS " queue component_types: [float]";

static td_test_cluster cluster;
static td_tensor *one, *two;

static int start(void **state) {
  td_test_cluster_start(&cluster, "ps 1 worker 1");
  one = td_test_tensor(TD_FLOAT, "[]", "1");
  two = td_test_tensor(TD_FLOAT, "[]", "2");
  return 0;
}

static int stop(void **state) {
  td_tensor_release(one);
  td_tensor_release(two);
  td_test_cluster_stop(&cluster);
  return 0;
}

/* The texts of wrong names: nothing may follow them. */
static void is_invalid(td_status s, const char *text) { must_say(s, TD_INVALID_ARGUMENT, text); }

static char *session(td_arena *a) {
  char *s;
  must(td_test_create_session(&cluster, 1, graph, NULL, a, &s));
  return s;
}

/* Sets up feeds a, b, c. */
static td_status set_up(const char *s, char *const *fetches, size_t count, td_arena *a, const char **handle) {
  char *feeds[] = {"a:0", "b:0", "c:0"};
  Pb__PartialRunSetupRequest request = PB__PARTIAL_RUN_SETUP_REQUEST__INIT;
  Pb__PartialRunSetupResponse *reply;
  request.session_handle = (char *)s;
  request.feed = feeds;
  request.n_feed = TD_COUNT(feeds);
  request.fetch = (char **)fetches;
  request.n_fetch = count;
  TD_TRY(td_test_call(cluster.channels[1], "/tensorflow.MasterService/PartialRunSetup", &request.base,
                      TD_TEST_PATIENCE_MS, &pb__partial_run_setup_response__descriptor, a,
                      (ProtobufCMessage **)&reply));
  *handle = reply->partial_run_handle;
  return TD_STATUS_OK;
}

static const char *both(const char *s, td_arena *a) {
  char *fetches[] = {"sum:0", "product:0"};
  const char *handle;
  must(set_up(s, fetches, 2, a, &handle));
  return handle;
}

static td_status run(const char *s, const char *handle, const char *fetches, const char *feed1, const char *feed2,
                     td_tensor **out) {
  td_test_step step = {.handle = s,
                       .partial = handle,
                       .fetches = fetches,
                       .targets = "-",
                       .feed_names = {feed1, feed2},
                       .feeds = {one, two},
                       .timeout_ms = TD_TEST_PATIENCE_MS};
  return td_test_run_step(&cluster, 1, &step, out);
}

static void expect(td_tensor *t, const char *value) {
  td_assert_tensor(t, TD_FLOAT, "[]", value, 0);
  td_tensor_release(t);
}

static void test_feeds_and_fetches_in_parts(void **state) {
  td_arena a = {0};
  td_tensor *t;
  char *s = session(&a);
  const char *h = both(s, &a), *other = both(s, &a);
  assert_string_equal(h, "0");
  assert_string_equal(other, "1");
  must(run(s, h, "-", "a:0", NULL, NULL));
  must(run(s, h, "sum:0", "b", NULL, &t)); /* b = 1; another spelling */
  expect(t, "2");
  must(run(s, other, "sum:0", "b:0", "a:0", &t)); /* two at once */
  expect(t, "3");
  must(run(s, h, "product:0", "c:0", NULL, &t));
  expect(t, "2");
  is_invalid(run(s, h, "sum:0", NULL, NULL, &t), "Must run PartialRunSetup before performing partial runs");
  must(run(s, other, "product:0", "c:0", NULL, &t));
  expect(t, "3");
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
}

static void test_wrong_names(void **state) {
  td_arena a = {0};
  td_tensor *t;
  char *s = session(&a);
  const char *h;
  must_fail(set_up(s, NULL, 0, &a, &h), TD_INVALID_ARGUMENT, "Must specify at least one target to fetch or execute.");
  is_invalid(run(s, "7", "sum:0", NULL, NULL, &t), "Must run PartialRunSetup before performing partial runs");
  h = both(s, &a);
  is_invalid(run(s, h, "sum:0", "a:0", "bad:0", &t), "The feed bad:0 was not specified in partial_run_setup.");
  is_invalid(run(s, h, "bad:0", "a:0", NULL, &t), "The fetch bad:0 was not specified in partial_run_setup.");
  is_invalid(run(s, h, "sum:0", "b:0", NULL, &t),
             "Fetch a:0 can't be computed from the feeds that have been fed so far.");
  must(run(s, h, "sum:0", "a:0", "b:0", &t)); /* what failed has taken nothing */
  expect(t, "3");
  is_invalid(run(s, h, "product:0", "a:0", "c:0", &t), "The feed a:0 has already been fed.");
  is_invalid(run(s, h, "sum", "c:0", NULL, &t), "The fetch sum has already been fetched.");
  td_test_step collective = {.handle = s,
                             .partial = h,
                             .fetches = "-",
                             .targets = "-",
                             .collective_graph_key = 1,
                             .timeout_ms = TD_TEST_PATIENCE_MS};
  is_invalid(td_test_run_step(&cluster, 1, &collective, NULL),
             "PartialRun does not support Collective ops.  collective_graph_key must be kNoCollectiveGraphKey.");
  must(run(s, h, "product:0", "c:0", NULL, &t));
  expect(t, "3");
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
}

static void test_a_failure_ends_it(void **state) {
  td_arena a = {0};
  td_tensor *t[2];
  char *s = session(&a), *fetches[] = {"sum:0", "bad:0"};
  const char *h;
  must(set_up(s, fetches, 2, &a, &h));
  td_status e = run(s, h, "bad:0", "a:0", NULL, t);
  assert_non_null(strstr(td_status_message(e), "From /job:"));
  must_fail(e, TD_INVALID_ARGUMENT, "[[{{node bad}}]]");
  is_invalid(run(s, h, "sum:0", "b:0", NULL, t), "Must run PartialRunSetup before performing partial runs");
  must(td_test_close_session(&cluster, 1, s));
  assert_int_equal(td_test_step_count(&cluster, 0), 0);
  assert_int_equal(td_test_step_count(&cluster, 1), 0);
  td_arena_deinit(&a);
}

/* Half way, with a call that waits for ever, and never begun. */
static void test_close_ends_what_was_left(void **state) {
  td_arena a = {0};
  td_tensor *t;
  char *s = session(&a), *fetches[] = {"never:0", "sum:0"};
  const char *h = both(s, &a), *waiting;
  both(s, &a);
  must(run(s, h, "sum:0", "a:0", "b:0", &t));
  expect(t, "3");
  must(set_up(s, fetches, 2, &a, &waiting));
  must(run(s, waiting, "-", "a:0", NULL, NULL));
  assert_int_equal(td_test_step_count(&cluster, 0), 2);
  must(td_test_close_session(&cluster, 1, s));
  assert_int_equal(td_test_step_count(&cluster, 0), 0);
  assert_int_equal(td_test_step_count(&cluster, 1), 0);
  td_arena_deinit(&a);
}

static void test_a_call_that_waits_can_be_given_up(void **state) {
  td_arena a = {0};
  td_tensor *t;
  char *s = session(&a), *fetches[] = {"never:0", "sum:0"};
  const char *h;
  must(set_up(s, fetches, 2, &a, &h));
  td_test_step step = {.handle = s, .partial = h, .fetches = "never:0", .targets = "-", .timeout_ms = 50};
  bool is_over = false;
  for (; !is_over; step.timeout_ms *= 2) { /* the server may hear of it later, or never */
    td_status e = td_test_run_step(&cluster, 1, &step, &t);
    if (!strstr(td_status_message(e), "already"))
      must_fail(e, TD_DEADLINE_EXCEEDED, "");
    else
      td_status_free(e);
    for (uint64_t i = 0; i < step.timeout_ms && !is_over; i++) {
      e = run(s, h, "-", "bad:0", NULL, NULL);
      is_over = strstr(td_status_message(e), "Must run PartialRunSetup before performing partial runs");
      must_fail(e, TD_INVALID_ARGUMENT, "");
      usleep(1000);
    }
  }
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
}

typedef struct waiter {
  char *session;
  const char *handle;
  td_status status;
} waiter;

static void *wait_for_never(void *arg) {
  waiter *w = arg;
  td_tensor *t;
  w->status = run(w->session, w->handle, "never:0", NULL, NULL, &t);
  return NULL;
}

static void test_close_ends_a_call_that_waits(void **state) {
  td_arena a = {0};
  char *fetches[] = {"never:0", "sum:0"};
  waiter w = {.session = session(&a)};
  pthread_t thread;
  must(set_up(w.session, fetches, 2, &a, &w.handle));
  pthread_create(&thread, NULL, wait_for_never, &w);
  while (!td_test_step_count(&cluster, 0)) usleep(1000);
  must(td_test_close_session(&cluster, 1, w.session));
  pthread_join(thread, NULL);
  must_fail(w.status, TD_CANCELLED, "Session::Close");
  assert_int_equal(td_test_step_count(&cluster, 0), 0);
  td_arena_deinit(&a);
}

static void test_a_worker_dies_half_way(void **state) {
  td_arena a = {0};
  td_tensor *t;
  char *s = session(&a);
  const char *h = both(s, &a);
  must(run(s, h, "-", "a:0", NULL, NULL));
  td_test_cluster_stop_task(&cluster, 0);
  must_fail(run(s, h, "sum:0", "b:0", NULL, &t), TD_UNAVAILABLE, "");
  is_invalid(run(s, h, "sum:0", "b:0", NULL, &t), "Must run PartialRunSetup before performing partial runs");
  must(td_test_close_session(&cluster, 1, s));
  td_test_cluster_restart(&cluster, 0);
  td_arena_deinit(&a);
}

static void test_a_master_restarts_half_way(void **state) {
  td_arena a = {0};
  char *s = session(&a);
  must(run(s, both(s, &a), "-", "a:0", NULL, NULL));
  td_test_cluster_stop_task(&cluster, 1);
  td_test_cluster_restart(&cluster, 1);
  s = session(&a); /* of its successor, which makes ps drop what the other left */
  assert_int_equal(td_test_step_count(&cluster, 0), 0);
  must(td_test_close_session(&cluster, 1, s));
  td_arena_deinit(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_feeds_and_fetches_in_parts),
      cmocka_unit_test(test_wrong_names),
      cmocka_unit_test(test_a_failure_ends_it),
      cmocka_unit_test(test_close_ends_what_was_left),
      cmocka_unit_test(test_a_call_that_waits_can_be_given_up),
      cmocka_unit_test(test_close_ends_a_call_that_waits),
      cmocka_unit_test(test_a_worker_dies_half_way),
      cmocka_unit_test(test_a_master_restarts_half_way),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

/* Traced steps over two tasks, many at once and cancelled ones; waits in the status meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/testing.h"
#include "cluster/testing.h"
#include "ops/testing.h"

#define PS "/job:ps/task:0"
#define W0 "/job:worker/task:0"

static const char graph[] = "a Const " PS
                            " - dtype: float; value: float [2] 1 2\n"
                            "there Square " W0
                            " a T: float\n"
                            "back Neg " PS
                            " there T: float\n"
                            "queue FIFOQueueV2 " PS
                            " - component_types: [float]\n"
                            "never QueueDequeueV2 " PS
                            " queue component_types: [float]\n"
                            "after Square " W0 " never T: float";

static td_test_cluster cluster;

static int start(void **state) {
  td_test_cluster_start_with(&cluster, "ps 1 worker 1", 2, 1);
  return 0;
}

static int stop(void **state) {
  td_test_cluster_stop(&cluster);
  return 0;
}

static td_status run_traced(td_channel *ch, char *session, const char *fetch, uint64_t timeout_ms, td_arena *a,
                            Pb__RunStepResponse **reply) {
  Pb__RunStepRequest request = PB__RUN_STEP_REQUEST__INIT;
  Pb__RunOptions options = PB__RUN_OPTIONS__INIT;
  options.trace_level = 3;
  request.session_handle = session;
  request.options = &options;
  request.fetch = (char *[]){(char *)fetch};
  request.n_fetch = 1;
  return td_test_call(ch, "/tensorflow.MasterService/RunStep", &request.base, timeout_ms,
                      &pb__run_step_response__descriptor, a, (ProtobufCMessage **)reply);
}

/* How many nodes of that name the devices of a job tell of. */
static int count(const Pb__RunStepResponse *reply, const char *job, const char *node) {
  int n = 0;
  const Pb__StepStats *s = reply->metadata->step_stats;
  assert_non_null(s);
  for (size_t d = 0; d < s->n_dev_stats; d++)
    for (size_t i = 0; strstr(s->dev_stats[d]->device, job) && i < s->dev_stats[d]->n_node_stats; i++)
      if (!strcmp(s->dev_stats[d]->node_stats[i]->node_name, node)) n++;
  return n;
}

static void *trace_main(void *arg) {
  td_channel_options o = {0};
  td_channel *ch;
  td_arena a = {0};
  char *s;
  td_test_cluster mine = cluster;
  must(td_channel_create(cluster.loop, cluster.spec->tasks[1].address, &o, &ch));
  mine.channels[1] = ch;
  must(td_test_create_session(&mine, 1, graph, NULL, &a, &s));
  for (int i = 0; i < 20; i++) {
    Pb__RunStepResponse *reply;
    must(run_traced(ch, s, "back:0", TD_TEST_PATIENCE_MS, &a, &reply));
    assert_int_equal(count(reply, "/job:worker", "there"), 1);
    assert_int_equal(count(reply, "/job:ps", "there"), 0);
    assert_int_equal(count(reply, "/job:ps", "back"), 1);
    assert_int_equal(count(reply, "/job:ps", "RecvTensor"), 1);
    assert_int_equal(count(reply, "/job:worker", "RecvTensor"), 2); /* of `a`, and of what is fetched */
  }
  must(td_test_close_session(&mine, 1, s));
  td_channel_destroy(ch);
  td_arena_deinit(&a);
  return NULL;
}

static void test_traces(void **state) {
  pthread_t threads[3];
  for (size_t i = 0; i < TD_COUNT(threads); i++) pthread_create(&threads[i], NULL, trace_main, NULL);
  for (size_t i = 0; i < TD_COUNT(threads); i++) pthread_join(threads[i], NULL);
}

typedef struct hung {
  char *session;
  td_status status;
} hung;

static void *hang_main(void *arg) {
  hung *h = arg;
  td_arena a = {0};
  Pb__RunStepResponse *reply;
  h->status = run_traced(cluster.channels[1], h->session, "after:0", TD_TEST_PATIENCE_MS, &a, &reply);
  td_arena_deinit(&a);
  return NULL;
}

static void wait_for(int task, const char *text) {
  uint64_t end_ns = td_now_ns() + TD_TEST_PATIENCE_MS * 1000000ull;
  for (;;) {
    td_strbuf status = {0};
    td_test_status(&cluster, task, &status);
    bool found = strstr(td_strbuf_cstr(&status), text);
    if (!found && td_now_ns() >= end_ns) fail_msg("%s is not in %s", text, td_strbuf_cstr(&status));
    td_strbuf_deinit(&status);
    if (found) return;
    usleep(50000);
  }
}

/* Traced or not, what hangs shows, and ends with its session. */
static void test_waits(void **state) {
  td_arena a = {0};
  pthread_t thread;
  hung h = {0};
  must(td_test_create_session(&cluster, 1, graph, NULL, &a, &h.session));
  pthread_create(&thread, NULL, hang_main, &h);
  wait_for(0, "QueueDequeueV2 \\\"never\\\"");
  wait_for(0, "\"kind\":\"recv\"");
  wait_for(1, "\"kind\":\"recv_tensor\"");
  wait_for(1, "/job:ps/replica:0/task:0 to run its part");
  must(td_test_close_session(&cluster, 1, h.session));
  pthread_join(thread, NULL);
  assert_int_equal(td_status_code(h.status), TD_CANCELLED);
  td_status_free(h.status);
  td_arena_deinit(&a);
}

static void test_logging_calls(void **state) {
  static const char bytes[][8] = {"\x08\x01", "\x1a\x02\x05\x06", "\x18\x05", "\x10\x01", "\x20\x01", "", "\x1a\x7f"};
  static const int sizes[] = {2, 4, 2, 2, 2, 0, 2};
  for (size_t i = 0; i < TD_COUNT(bytes); i++) {
    td_status s = td_test_call_bytes(cluster.channels[0], "/tensorflow.WorkerService/Logging",
                                     td_str_n(bytes[i], (size_t)sizes[i]), TD_TEST_PATIENCE_MS);
    assert_int_equal(td_status_code(s), i == TD_COUNT(bytes) - 1 ? TD_INVALID_ARGUMENT : TD_OK);
    td_status_free(s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_traces), cmocka_unit_test(test_waits),
                                     cmocka_unit_test(test_logging_calls)};
  return cmocka_run_group_tests(tests, start, stop);
}

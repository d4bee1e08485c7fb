/* Master (TensorFlow's master): the table of sessions; those that nobody uses end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/testing.h"

static const char graph[] =
    "one Const - - dtype: float; value: float [] 1\n"
    "queue FIFOQueueV2 - - component_types: [float]\n"
    "never QueueDequeueV2 - queue component_types: [float]";

TD_TEST_CLUSTER("worker 1");

static td_status run(const char *handle, const char *target) {
  return td_test_run(&cluster, 0, handle, "-", target, NULL, NULL, TD_TEST_PATIENCE_MS, NULL);
}

static void test_unknown_sessions(void **state) {
  must_say(run("nope", "one"), TD_ABORTED, "Session nope is not found.");
  must_say(td_test_close_session(&cluster, 0, "nope"), TD_ABORTED,
           "Session nope is not found. Possibly, this master has restarted.");
}

static void test_idle_sessions_end(void **state) {
  td_arena a = {0};
  char *s;
  td_test_cluster_stop_task(&cluster, 0);
  cluster.session_gc_ms = 50;
  td_test_cluster_restart(&cluster, 0);
  must(td_test_create_session(&cluster, 0, graph, NULL, &a, &s));
  /* under load it may have ended before the step comes */
  td_status status = run(s, "never");
  if (td_status_code(status) == TD_CANCELLED)
    must_say(status, TD_CANCELLED, "Step was cancelled because the session was garbage collected due to inactivity.");
  else
    td_status_free(status);
  assert_int_equal(td_status_code(status = run(s, "one")), TD_ABORTED);
  td_status_free(status);
  td_arena_deinit(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_unknown_sessions),
      cmocka_unit_test(test_idle_sessions_end),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

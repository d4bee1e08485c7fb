/* Registered graphs (TensorFlow's graph_mgr): compiled once, run with feeds and fetches, let go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/graph_mgr.h"
#include "cluster/testing.h"

static const char graph[] = TD_TEST_FEED("x", "x:0") "y Neg " TD_TEST_DEVICE " x T: float\n" TD_TEST_FETCH("y", "y:0");

TD_TEST_CLUSTER("worker 1");

static void end(td_worker_session *s, int64_t step) {
  td_step_table_cleanup(td_task_of(cluster.servers[0])->steps, step);
  td_worker_sessions_close(td_task_of(cluster.servers[0])->sessions, td_str_of(s->handle));
  td_worker_session_release(s);
}

static void test_registered_found_run(void **state) {
  td_worker_session *s = td_test_worker_session(cluster.servers[0], "a");
  td_registered_graph *g, *found;
  td_test_call_graph call;
  float y;
  must(td_test_register(s, graph, &g));
  must(td_graph_mgr_find(s, td_str_of(td_registered_graph_handle(g)), &found));
  assert_ptr_equal(found, g);
  td_registered_graph_release(found);
  for (int64_t step = 1; step <= 2; step++) {
    td_test_graph_start(&call, g, step, "x:0", "y:0", false, false);
    must(td_test_graph_wait(&call, &y));
    assert_true(y == -1);
    td_step_table_cleanup(td_task_of(cluster.servers[0])->steps, step);
  }
  td_test_graph_start(&call, g, 1, "x:0", "y:0", false, false); /* a step that was cleaned up does not come back */
  must_fail(td_test_graph_wait(&call, NULL), TD_ABORTED, "Cleanup 1");
  td_registered_graph_release(g);
  end(s, 2);
}

static void test_deregistered_while_it_runs(void **state) {
  td_worker_session *s = td_test_worker_session(cluster.servers[0], "b");
  td_registered_graph *g;
  td_test_call_graph call;
  must(td_test_register(s, graph, &g));
  td_str handle = td_str_of(td_registered_graph_handle(g));
  td_test_graph_start(&call, g, 11, "-", "y:0", false, false); /* waits for x */
  must(td_graph_mgr_deregister(s, handle));
  must_fail(td_graph_mgr_find(s, handle, &(td_registered_graph *){NULL}), TD_ABORTED, "Graph handle is not found: ");
  must_fail(td_graph_mgr_deregister(s, handle), TD_ABORTED, "Possibly, this worker just restarted.");
  assert_false(td_test_graph_is_done(&call));
  td_step_table_cancel(td_task_of(cluster.servers[0])->steps, 11);
  td_status status = td_test_graph_wait(&call, NULL);
  assert_non_null(status);
  td_status_free(status);
  td_registered_graph_release(g);
  end(s, 11);
}

static void test_what_cannot_be_registered(void **state) {
  td_worker_session *s = td_test_worker_session(cluster.servers[0], "c");
  td_registered_graph *g = NULL;
  must_fail(td_test_register(s, "a NoOp /job:worker/replica:0/task:0/device:CPU:9 -", &g), TD_INVALID_ARGUMENT,
            "/job:worker/replica:0/task:0/device:CPU:9 unknown device.");
  must_fail(td_test_register(s, "a NoOp - -", &g), TD_INVALID_ARGUMENT, "missing a device specification");
  td_worker_sessions_close(td_task_of(cluster.servers[0])->sessions, TD_STR("c"));
  must_fail(td_test_register(s, graph, &g), TD_ABORTED, "Session handle is not found: c.");
  assert_null(g);
  td_worker_session_release(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_registered_found_run),
      cmocka_unit_test(test_deregistered_while_it_runs),
      cmocka_unit_test(test_what_cannot_be_registered),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

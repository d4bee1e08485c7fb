/* Worker sessions (TensorFlow's session_mgr and worker_session): made, found, closed; devices of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/testing.h"

TD_TEST_CLUSTER("worker 1");

static td_worker_sessions *sessions(void) { return td_task_of(cluster.servers[0])->sessions; }

static td_status open(const char *handle, bool isolated, Pb__ServerDef *def, td_worker_session **out) {
  Pb__CreateWorkerSessionRequest request = PB__CREATE_WORKER_SESSION_REQUEST__INIT;
  request.session_handle = (char *)handle;
  request.isolate_session_state = isolated;
  request.server_def = def;
  TD_TRY(td_worker_sessions_open(sessions(), &request));
  return td_worker_sessions_find(sessions(), td_str_of(handle), false, out);
}

static void test_made_found_closed(void **state) {
  td_worker_session *a, *again;
  must(open("a", false, NULL, &a));
  must(open("a", false, NULL, &again)); /* as it is */
  assert_ptr_equal(a, again);
  assert_int_equal(td_worker_sessions_count(sessions()), 1);
  assert_ptr_equal(a->devices[0], td_task_of(cluster.servers[0])->devices[0]); /* shared */
  td_worker_sessions_close(sessions(), TD_STR("a"));
  td_worker_sessions_close(sessions(), TD_STR("a")); /* nothing */
  must_fail(td_worker_sessions_find(sessions(), TD_STR("a"), false, &again), TD_ABORTED,
            "Session handle is not found: a. Possibly this worker (\"/job:worker/replica:0/task:0\") just restarted.");
  assert_true(a->is_closed);
  td_worker_session_release(a);
  td_worker_session_release(a);
}

static void test_masters_without_sessions_share_one(void **state) {
  td_worker_session *one, *two;
  must(td_worker_sessions_find(sessions(), TD_STR("whatever"), true, &one));
  must(td_worker_sessions_find(sessions(), TD_STR(""), true, &two));
  assert_ptr_equal(one, two);
  td_worker_session_release(one);
  td_worker_session_release(two);
  must_fail(open("", false, NULL, &one), TD_INVALID_ARGUMENT, "Session must be non-empty.");
}

static void test_isolated_and_renamed_ones_have_devices_of_their_own(void **state) {
  td_worker_session *isolated, *renamed;
  td_device *own = td_task_of(cluster.servers[0])->devices[0];
  must(open("isolated", true, NULL, &isolated));
  assert_string_equal(isolated->devices[0]->name, own->name);
  assert_ptr_not_equal(isolated->devices[0]->resources, own->resources);
  Pb__JobDef__TaskEntry entry = PB__JOB_DEF__TASK_ENTRY__INIT, *entries[] = {&entry};
  Pb__JobDef job = PB__JOB_DEF__INIT, *jobs[] = {&job};
  Pb__ClusterDef def = PB__CLUSTER_DEF__INIT;
  Pb__ServerDef server = PB__SERVER_DEF__INIT;
  entry.key = 3;
  entry.value = "127.0.0.1:1";
  job.name = "other";
  job.n_tasks = 1;
  job.tasks = entries;
  def.n_job = 1;
  def.job = jobs;
  server.cluster = &def;
  server.job_name = "other";
  server.task_index = 3;
  must(open("renamed", false, &server, &renamed));
  assert_string_equal(renamed->devices[0]->name, "/job:other/replica:0/task:3/device:CPU:0");
  assert_true(renamed->devices[0]->incarnation == own->incarnation);
  assert_ptr_equal(renamed->devices[0]->resources, own->resources);
  server.task_index = 4;
  must_fail(open("wrong", false, &server, &renamed), TD_INVALID_ARGUMENT, "Task 4 was not defined in job \"other\"");
  td_worker_session_release(isolated);
  td_worker_session_release(renamed);
  td_worker_sessions_close(sessions(), TD_STR("isolated"));
  td_worker_sessions_close(sessions(), TD_STR("renamed"));
}

static void test_a_master_that_comes_back_ends_its_old_sessions(void **state) {
  Pb__CreateWorkerSessionRequest request = PB__CREATE_WORKER_SESSION_REQUEST__INIT;
  request.master_task = "/job:master/replica:0/task:0";
  request.master_incarnation = 1;
  request.session_handle = "old";
  must(td_worker_sessions_open(sessions(), &request));
  request.session_handle = "sibling";
  must(td_worker_sessions_open(sessions(), &request));
  assert_int_equal(td_worker_sessions_count(sessions()), 2);
  request.master_incarnation = 2;
  request.session_handle = "new";
  must(td_worker_sessions_open(sessions(), &request));
  assert_int_equal(td_worker_sessions_count(sessions()), 1);
  td_worker_sessions_close(sessions(), TD_STR("new"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_made_found_closed),
      cmocka_unit_test(test_masters_without_sessions_share_one),
      cmocka_unit_test(test_isolated_and_renamed_ones_have_devices_of_their_own),
      cmocka_unit_test(test_a_master_that_comes_back_ends_its_old_sessions),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

/* Peers (TensorFlow's worker_cache): tasks by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cluster/peers.h"
#include "cluster/testing.h"

static void test_tasks_by_name(void **state) {
  td_cluster_spec *spec;
  td_task task = {.loop_count = 2};
  assert_null(td_cluster_spec_parse(TD_STR("ps|h:1;h:2,worker|h:3"), &spec));
  td_peers *p = td_peers_create(&task, spec, "/job:ps/replica:0/task:1");
  td_worker *self = td_peers_find(p, TD_STR("/job:ps/replica:0/task:1"));
  assert_ptr_equal(self, td_peers_self(p));
  assert_true(self->is_self);
  td_worker *other = td_peers_find(p, TD_STR("/job:worker/replica:0/task:0"));
  assert_false(other->is_self);
  assert_string_equal(other->task_name, "/job:worker/replica:0/task:0");
  assert_ptr_equal(td_peers_find(p, TD_STR("/job:worker/replica:0/task:0")), other); /* made once */
  assert_null(td_peers_find(p, TD_STR("/job:worker/replica:0/task:1")));
  assert_null(td_peers_find(p, TD_STR("")));
  td_peers_release(td_peers_retain(p));
  assert_string_equal(td_peers_own_name(p), "/job:ps/replica:0/task:1");
  td_peers_release(p);
  td_cluster_spec_release(spec);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tasks_by_name)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Device discovery (TensorFlow's remote_device): who is asked, what they have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/discovery.h"
#include "cluster/testing.h"

TD_TEST_CLUSTER("ps 1 worker 2");

static td_task *first_worker(void) { return td_task_of(cluster.servers[1]); }

/* The tasks that filters let through, as "ps0 worker1". */
static td_status targets(char *const *filters, size_t count, td_strbuf *out) {
  td_arena a = {0};
  td_worker **workers;
  size_t n;
  td_status s = td_discover_targets(first_worker()->peers, filters, count, &a, &workers, &n);
  for (size_t i = 0; !s && i < n; i++) {
    char job[32];
    int index;
    assert_int_equal(sscanf(workers[i]->task_name, "/job:%31[a-z]/replica:0/task:%d", job, &index), 2);
    td_strbuf_printf(out, "%s%d ", job, index);
  }
  td_arena_deinit(&a);
  return s;
}

static void expect_targets(const char *expected, char *const *filters, size_t count) {
  td_strbuf text = {0};
  must(targets(filters, count, &text));
  assert_string_equal(td_strbuf_cstr(&text), expected);
  td_strbuf_deinit(&text);
}

static void test_filters(void **state) {
  char *ps[] = {"/job:ps"}, *other[] = {"/job:worker/task:1"}, *both[] = {"/job:ps", "/job:worker/task:1"};
  char *bad[] = {"/job:ps", "/jo:x"};
  expect_targets("worker0 ps0 worker1 ", NULL, 0); /* the own one first, and always */
  expect_targets("worker0 ps0 ", ps, 1);
  expect_targets("worker0 worker1 ", other, 1);
  expect_targets("worker0 ps0 worker1 ", both, 2);
  must_fail(targets(bad, 2, NULL), TD_INVALID_ARGUMENT, "/jo:x");
}

static void test_devices(void **state) {
  td_arena a = {0};
  td_found_devices found;
  char *ps[] = {"/job:ps"};
  must(td_discover_devices(first_worker(), first_worker()->peers, ps, 1, NULL, &a, &found));
  assert_int_equal(found.count, 2);
  assert_string_equal(found.items[0].attributes.name, "/job:worker/replica:0/task:0/device:CPU:0");
  assert_true(found.items[0].worker->is_self);
  assert_string_equal(found.items[1].attributes.name, "/job:ps/replica:0/task:0/device:CPU:0");
  assert_true(found.items[1].attributes.incarnation == td_task_of(cluster.servers[0])->devices[0]->incarnation);
  td_arena_deinit(&a);
}

static void test_given_up(void **state) {
  td_arena a = {0};
  td_found_devices found;
  atomic_bool gave_up = true;
  td_test_cluster_stop_task(&cluster, 0);
  must_fail(td_discover_devices(first_worker(), first_worker()->peers, NULL, 0, &gave_up, &a, &found), TD_CANCELLED,
            "");
  td_test_cluster_restart(&cluster, 0);
  td_arena_deinit(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_filters),
      cmocka_unit_test(test_devices),
      cmocka_unit_test(test_given_up),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

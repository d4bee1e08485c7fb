/* Partial runs on a worker: when a call ends, and what ends the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/partial_run_mgr.h"
#include "cluster/testing.h"

static const char graph[] = TD_TEST_FEED("a", "a:0") TD_TEST_FEED("b", "b:0")
    TD_TEST_FEED("c", "c:0") "sum Add " TD_TEST_DEVICE
                             " a,b T: float\n"
                             "product Mul " TD_TEST_DEVICE " sum,c T: float\n" TD_TEST_FETCH("sum", "sum:0")
                                 TD_TEST_FETCH("product", "product:0");

static const char failing[] = TD_TEST_FEED("a", "a:0")
    TD_TEST_FEED("b", "b:0") "seven Const " TD_TEST_DEVICE
                             " - dtype: int32; value: int32 [1] 7\n"
                             "bad Reshape " TD_TEST_DEVICE
                             " a,seven T: float; Tshape: int32\n"
                             "also Neg " TD_TEST_DEVICE " b T: float\n" TD_TEST_FETCH("bad", "bad:0")
                                 TD_TEST_FETCH("also", "also:0");

TD_TEST_CLUSTER("worker 1");

static td_step_table *steps(void) { return td_task_of(cluster.servers[0])->steps; }

/* One session and graph a test. */
static td_worker_session *session;
static td_registered_graph *g;

static int begin(void **state) {
  session = td_test_worker_session(cluster.servers[0], "s");
  must(td_test_register(session, graph, &g));
  return 0;
}

static int end(void **state) {
  td_registered_graph_release(g);
  td_worker_sessions_close(td_task_of(cluster.servers[0])->sessions, TD_STR("s"));
  td_worker_session_release(session);
  assert_int_equal(td_step_table_count(steps()), 0);
  return 0;
}

static void test_fed_and_fetched_in_parts(void **state) {
  td_test_call_graph one, two;
  float sum, product;
  td_test_graph_start(&one, g, 1, "a:0 b:0", "sum:0", true, false);
  must(td_test_graph_wait(&one, &sum));
  assert_true(sum == 3);
  td_test_graph_start(&two, g, 1, "c:0", "product:0", true, true);
  must(td_test_graph_wait(&two, &product));
  assert_true(product == 3);
  td_step_table_cleanup(steps(), 1);
}

static void test_the_last_call_waits_for_the_programs(void **state) {
  td_test_call_graph last, other;
  float sum, product;
  td_test_graph_start(&last, g, 2, "a:0 b:0", "sum:0", true, true);
  assert_false(td_test_graph_is_done(&last));
  td_test_graph_start(&other, g, 2, "c:0", "product:0", true, false); /* on its way when the last one came */
  must(td_test_graph_wait(&other, &product));
  must(td_test_graph_wait(&last, &sum));
  assert_true(sum == 3 && product == 3);
  td_step_table_cleanup(steps(), 2);
}

static void test_a_failed_call_says_why(void **state) {
  td_registered_graph *f;
  td_test_call_graph call;
  must(td_test_register(session, failing, &f));
  td_test_graph_start(&call, f, 3, "a:0", "bad:0", true, false);
  td_status s = td_test_graph_wait(&call, NULL);
  assert_false(td_status_is_derived(s));
  must_fail(s, TD_INVALID_ARGUMENT, "[[{{node bad}}]]");
  td_test_graph_start(&call, f, 3, "b:0", "also:0", true, false); /* the step has failed */
  must_fail(td_test_graph_wait(&call, NULL), TD_INVALID_ARGUMENT, "[[{{node bad}}]]");
  td_step_table_cleanup(steps(), 3);
  td_registered_graph_release(f);
}

static void test_cleanup_ends_a_call_that_waits(void **state) {
  td_test_call_graph call;
  td_test_graph_start(&call, g, 4, "a:0", "product:0", true, false);
  assert_false(td_test_graph_is_done(&call));
  td_step_table_cleanup(steps(), 4);
  td_status s = td_test_graph_wait(&call, NULL);
  assert_true(td_status_is_derived(s));
  td_status_free(s);
}

static void test_the_end_of_the_session_ends_what_is_half_way(void **state) {
  td_test_call_graph call;
  td_test_graph_start(&call, g, 5, "a:0", "-", true, false);
  must(td_test_graph_wait(&call, NULL));
  assert_int_equal(td_step_table_count(steps()), 1); /* end() sees that nothing stays */
}

static void test_one_graph_a_step(void **state) {
  td_registered_graph *other;
  td_test_call_graph call, second;
  must(td_test_register(session, graph, &other));
  td_test_graph_start(&call, g, 6, "a:0", "-", true, false);
  must(td_test_graph_wait(&call, NULL));
  td_test_graph_start(&second, other, 6, "-", "-", true, false);
  must_fail(td_test_graph_wait(&second, NULL), TD_INVALID_ARGUMENT, "step 6 runs another graph in parts already");
  td_step_table_cleanup(steps(), 6);
  td_registered_graph_release(other);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(test_fed_and_fetched_in_parts),
      TEST(test_the_last_call_waits_for_the_programs),
      TEST(test_a_failed_call_says_why),
      TEST(test_cleanup_ends_a_call_that_waits),
      TEST(test_the_end_of_the_session_ends_what_is_half_way),
      TEST(test_one_graph_a_step),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

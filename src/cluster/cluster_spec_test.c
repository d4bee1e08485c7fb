#include "cluster/cluster_spec.h"
#include "base/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"

static td_cluster_spec *parse(const char *text) {
  td_cluster_spec *c;
  must(td_cluster_spec_parse(td_str_of(text), &c));
  return c;
}

static void fails(td_status s, const char *text) { must_fail(s, TD_INVALID_ARGUMENT, text); }

static void parse_fails(const char *text, const char *message) {
  td_cluster_spec *c;
  fails(td_cluster_spec_parse(td_str_of(text), &c), message);
}

static void json_fails(const char *text, const char *message) {
  td_cluster_spec *c;
  char *job;
  int index;
  fails(td_cluster_spec_from_json(td_str_of(text), &c, &job, &index), message);
  assert_null(job);
}

static void test_flag(void **state) {
  td_cluster_spec *c = parse("ps|host:1; host:2 ,worker|[::1]:3");
  assert_int_equal(c->task_count, 3);
  assert_string_equal(c->tasks[1].name, "/job:ps/replica:0/task:1");
  assert_string_equal(c->tasks[1].address, "host:2");
  assert_string_equal(c->tasks[2].address, "[::1]:3");
  assert_ptr_equal(td_cluster_spec_task(c, "worker", 0), &c->tasks[2]);
  assert_null(td_cluster_spec_task(c, "worker", 1));
  assert_ptr_equal(td_cluster_spec_find(c, TD_STR("/job:ps/replica:0/task:0")), &c->tasks[0]);
  assert_null(td_cluster_spec_find(c, TD_STR("/job:ps/replica:0/task:2")));
  assert_ptr_equal(td_cluster_spec_retain(c), c);
  td_cluster_spec_release(c);
  td_cluster_spec_release(c);
}

static void test_gaps_and_order(void **state) {
  td_cluster_spec *c = parse("w|7=a:1;3=b:2;c:3");
  assert_int_equal(c->tasks[0].index, 3);
  assert_int_equal(c->tasks[1].index, 4); /* the next after 3 */
  assert_string_equal(c->tasks[1].address, "c:3");
  assert_int_equal(c->tasks[2].index, 7);
  td_cluster_spec_release(c);
}

static void test_flag_errors(void **state) {
  parse_fails("", "names no task");
  parse_fails("ps", "expected \"job|host:port;host:port\", got \"ps\"");
  parse_fails("ps|", "Could not interpret \"\" as a host-port pair.");
  parse_fails("ps|host", "Could not interpret \"host\"");
  parse_fails("ps|host:99999", "host:99999");
  parse_fails("ps|a/b:1", "a/b:1");
  parse_fails("1ps|host:1", "\"1ps\" is no job name");
  parse_fails("p-s|host:1", "\"p-s\" is no job name");
  parse_fails("|host:1", "is no job name");
  parse_fails("ps|x=host:1", "\"x\" is no task index");
  parse_fails("ps|-1=host:1", "task index -1");
  parse_fails("ps|9223372036854775807=host:1", "task index 9223372036854775807");
  parse_fails("ps|1=a:1;1=b:2", "specified two addresses for task \"1\": a:1 and b:2");
  parse_fails("ps|a:1,ps|b:2", "Duplicate job ID in cluster specification: ps");
  parse_fails("ps|a:1,", "expected");
}

static void test_json(void **state) {
  td_cluster_spec *c;
  char *job;
  int index;
  td_status s = td_cluster_spec_from_json(
      TD_STR("{\"cluster\": {\"chief\": \"h:0\", \"ps\": [\"h:1\", \"h:2\"], \"worker\": {\"5\": \"h:3\"}},"
             " \"task\": {\"type\": \"worker\", \"index\": \"5\"}, \"environment\": \"cloud\"}"),
      &c, &job, &index);
  assert_null(s);
  assert_int_equal(c->task_count, 4);
  assert_string_equal(job, "worker");
  assert_int_equal(index, 5);
  assert_string_equal(td_cluster_spec_task(c, "worker", 5)->address, "h:3");
  assert_string_equal(td_cluster_spec_task(c, "chief", 0)->address, "h:0");
  td_free(job);
  td_cluster_spec_release(c);
  assert_null(td_cluster_spec_from_json(TD_STR("{\"cluster\": {\"ps\": [\"h:1\"]}}"), &c, &job, &index));
  assert_null(job);
  assert_int_equal(index, -1);
  td_cluster_spec_release(c);
}

static void test_json_errors(void **state) {
  json_fails("", "JSON, line");
  json_fails("{", "JSON, line 1");
  json_fails("[]", "no \"cluster\" object");
  json_fails("{\"cluster\": 1}", "no \"cluster\" object");
  json_fails("{\"cluster\": {}}", "names no task");
  json_fails("{\"cluster\": {\"ps\": []}}", "job \"ps\" has no tasks");
  json_fails("{\"cluster\": {\"ps\": [1]}}", "task 0 of job \"ps\" is no string");
  json_fails("{\"cluster\": {\"ps\": 7}}", "is no list of addresses");
  json_fails("{\"cluster\": {\"ps\": {\"a\": \"h:1\"}}}", "task \"a\" of job \"ps\"");
  json_fails("{\"cluster\": {\"ps\": [\"h:1\"]}, \"task\": {}}", "no \"type\"");
  json_fails("{\"cluster\": {\"ps\": [\"h:1\"]}, \"task\": {\"type\": \"ps\", \"index\": -1}}", "task index -1");
  json_fails("{\"cluster\": {\"ps\": [\"h:1\"]}, \"task\": {\"type\": \"ps\", \"index\": 1.5}}", "is no number");
  json_fails("{\"cluster\": {\"ps\": [\"h:1\"], \"ps\": [\"h:2\"]}}", "JSON, line");
}

static void test_message(void **state) {
  td_arena a = {0};
  td_cluster_spec *c = parse("ps|1=h:1;4=h:2,worker|h:3"), *again;
  Pb__ClusterDef *def = td_cluster_spec_to_proto(c, &a);
  assert_int_equal(def->n_job, 2);
  assert_int_equal(def->job[0]->n_tasks, 2);
  assert_int_equal(def->job[0]->tasks[1]->key, 4);
  assert_null(td_cluster_spec_from_proto(def, &again));
  assert_int_equal(again->task_count, 3);
  for (size_t i = 0; i < 3; i++) {
    assert_string_equal(again->tasks[i].name, c->tasks[i].name);
    assert_string_equal(again->tasks[i].address, c->tasks[i].address);
  }
  td_cluster_spec_release(again);
  def->job[0]->tasks[1]->key = 1;
  fails(td_cluster_spec_from_proto(def, &again), "two addresses for task \"1\"");
  def->job[0]->tasks[1]->key = -3;
  fails(td_cluster_spec_from_proto(def, &again), "task index -3");
  def->job[0]->n_tasks = 0;
  fails(td_cluster_spec_from_proto(def, &again), "has no tasks");
  def->n_job = 0;
  fails(td_cluster_spec_from_proto(def, &again), "names no task");
  td_cluster_spec_release(c);
  td_arena_deinit(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flag), cmocka_unit_test(test_gaps_and_order), cmocka_unit_test(test_flag_errors),
      cmocka_unit_test(test_json), cmocka_unit_test(test_json_errors),    cmocka_unit_test(test_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tools/daemon_options.h"
#include "base/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

enum { MAX_ARGS = 16 };

static td_status parse(const char *tf_config, td_daemon_options *out, const char *const *args) {
  char *argv[MAX_ARGS + 2] = {td_strdup("tensord")};
  int argc = 1;
  for (; *args && argc < MAX_ARGS; args++) argv[argc++] = td_strdup(*args);
  td_status s = td_daemon_options_parse(argc, argv, tf_config, out);
  /* bind is borrowed: the tests only ask whether it is there */
  for (int i = 0; i < argc; i++) td_free(argv[i]);
  return s;
}

#define PARSE(tf_config, out, ...) parse(tf_config, out, (const char *const[]){__VA_ARGS__, NULL})

static void expect_error(td_status s, const char *part) { must_fail(s, TD_INVALID_ARGUMENT, part); }

static void takes_both_spellings(void **state) {
  td_daemon_options o;
  assert_null(PARSE(NULL, &o, "--cluster_spec=ps|h:1;h:2,worker|h:3", "--job_name=ps", "--task_index=1"));
  assert_string_equal(o.job, "ps");
  assert_int_equal(o.task_index, 1);
  assert_int_equal(o.cluster->task_count, 3);
  td_daemon_options_deinit(&o);
  assert_null(PARSE(NULL, &o, "--cluster_spec", "ps|h:1", "--job_name", "ps", "--task_index", "0", "--threads", "3",
                    "--bind", "::", "--grace_ms=7", "--log_level=error", "--config=", "--session_gc_seconds=60"));
  assert_int_equal(o.session_gc_seconds, 60);
  assert_int_equal(o.threads, 3);
  assert_int_equal(o.grace_ms, 7);
  assert_int_equal(o.log_level, TD_LOG_ERROR);
  assert_non_null(o.bind);
  assert_int_equal(o.config_size, 0);
  td_daemon_options_deinit(&o);
}

static void fills_in_what_is_clear(void **state) {
  td_daemon_options o;
  assert_null(PARSE(NULL, &o, "--cluster_spec=local|3=h:1"));
  assert_string_equal(o.job, "local");
  assert_int_equal(o.task_index, 3);
  td_daemon_options_deinit(&o);
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1,worker|h:2"), "--job_name is needed");
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1;h:2"), "--task_index is needed");
}

static void reads_tf_config(void **state) {
  static const char json[] =
      "{\"cluster\": {\"ps\": [\"h:1\"], \"worker\": [\"h:2\", \"h:3\"]}, \"task\": {\"type\": \"worker\", \"index\": "
      "1}}";
  td_daemon_options o;
  assert_null(PARSE(json, &o, NULL));
  assert_string_equal(o.job, "worker");
  assert_int_equal(o.task_index, 1);
  td_daemon_options_deinit(&o);
  assert_null(PARSE(json, &o, "--job_name=ps", "--task_index=0"));
  assert_string_equal(o.job, "ps");
  assert_int_equal(o.task_index, 0);
  td_daemon_options_deinit(&o);
  assert_null(PARSE("garbage", &o, "--cluster_spec=ps|h:1"));
  td_daemon_options_deinit(&o);
  expect_error(PARSE("garbage", &o, NULL), "TF_CONFIG");
  expect_error(PARSE(NULL, &o, NULL), "no cluster");
  expect_error(PARSE("", &o, NULL), "no cluster");
}

static void reads_files(void **state) {
  char path[] = "/tmp/tensord-options-XXXXXX";
  int fd = mkstemp(path);
  static const char json[] = "{\"cluster\": {\"ps\": {\"4\": \"h:1\"}}, \"task\": {\"type\": \"ps\", \"index\": 4}}";
  assert_int_equal(write(fd, json, sizeof json - 1), sizeof json - 1);
  close(fd);
  char *file = td_asprintf("--cluster_file=%s", path), *config = td_asprintf("--config=%s", path);
  td_daemon_options o;
  assert_null(PARSE(NULL, &o, file, config));
  assert_int_equal(o.task_index, 4);
  assert_int_equal(o.config_size, sizeof json - 1);
  assert_memory_equal(o.config, json, sizeof json - 1);
  td_daemon_options_deinit(&o);
  expect_error(PARSE(NULL, &o, file, "--cluster_spec=ps|h:1"), "only one of them");
  unlink(path);
  expect_error(PARSE(NULL, &o, file), path);
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1", config), path);
  td_free(file);
  td_free(config);
}

static void reads_switches(void **state) {
  td_daemon_options o;
  assert_null(PARSE(NULL, &o, "--cluster_spec=ps|h:1"));
  assert_false(o.no_optimizer || o.no_neighbours);
  td_daemon_options_deinit(&o);
  assert_null(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "--optimize=off", "--neighbours=on"));
  assert_true(o.no_optimizer && !o.no_neighbours);
  assert_false(o.saves_wait_for_disk);
  td_daemon_options_deinit(&o);
  assert_null(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "--sync_saves=on"));
  assert_true(o.saves_wait_for_disk);
  td_daemon_options_deinit(&o);
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "--optimize=no"), "--optimize=no: expected on or off");
}

static void refuses_what_it_does_not_know(void **state) {
  td_daemon_options o;
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "--nonsense"), "--nonsense");
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "--job_name"), "--job_name");
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "word"), "\"word\"");
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "--task_index=x"), "--task_index=x");
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "--task_index=-1"), "--task_index=-1");
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "--threads=99999999999"), "--threads");
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps|h:1", "--log_level=loud"), "loud");
  expect_error(PARSE(NULL, &o, "--cluster_spec=ps"), "--cluster_spec");
}

static void help_and_version_need_no_cluster(void **state) {
  td_daemon_options o;
  assert_null(PARSE(NULL, &o, "--help"));
  assert_true(o.show_help);
  td_daemon_options_deinit(&o);
  assert_null(PARSE("garbage", &o, "--version", "--nonsense"));
  assert_true(o.show_version);
  td_daemon_options_deinit(&o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(takes_both_spellings),
      cmocka_unit_test(fills_in_what_is_clear),
      cmocka_unit_test(reads_tf_config),
      cmocka_unit_test(reads_files),
      cmocka_unit_test(reads_switches),
      cmocka_unit_test(refuses_what_it_does_not_know),
      cmocka_unit_test(help_and_version_need_no_cluster),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

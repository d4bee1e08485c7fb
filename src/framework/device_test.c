#include "framework/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/mem.h"

static td_device_name parse(const char *text) {
  td_device_name n;
  assert_true(td_device_name_parse(td_str_of(text), &n));
  return n;
}

static void check_text(const td_device_name *n, const char *wanted) {
  char text[TD_DEVICE_NAME_MAX];
  td_device_name_format(n, text);
  assert_string_equal(text, wanted);
}

static void test_parse(void **state) {
  static const char *const pairs[][2] = {
      {"/job:ps/replica:0/task:1/device:CPU:0", "/job:ps/replica:0/task:1/device:CPU:0"},
      {"/job:ps/replica:0/task:1/cpu:0", "/job:ps/replica:0/task:1/device:CPU:0"},
      {"/GPU:3", "/device:GPU:3"},
      {"/task:2147483647/job:a_1", "/job:a_1/task:2147483647"},
      {"/job:*/replica:*/task:*/device:*:*", ""},
      {"/device:CPU", "/device:CPU:*"},
      {"/device:CPU:*", "/device:CPU:*"},
      {"/device:*:2", "/device:*:2"},
      {"/cpu:*", "/device:CPU:*"},
      {"/device:XLA_CPU:0", "/device:XLA_CPU:0"},
      {"", ""},
      {"/", ""},
  };
  for (size_t i = 0; i < TD_COUNT(pairs); i++) {
    td_device_name n = parse(pairs[i][0]), again;
    check_text(&n, pairs[i][1]);
    again = parse(pairs[i][1]);
    check_text(&again, pairs[i][1]);
  }
}

static void test_parse_refuses(void **state) {
  char long_job[200] = "/job:";
  memset(long_job + 5, 'j', 128);
  static const char *const bad[] = {
      "job:ps",
      "//",
      "/job:ps/",
      "/job",
      "/job:",
      "/job:1a",
      "/job:a b",
      "/job:a:b",
      "/task:-1",
      "/task:",
      "/task:x",
      "/task:2147483648",
      "/replica:99999999999999999999",
      "/device:",
      "/device:CPU:",
      "/device:CPU:x",
      "/device:CPU:-1",
      "/device:CPU:0:0",
      "/device:1CPU:0",
      "/cpu",
      "/cpu:",
      "/cpus:0",
      "/tpu:0",
      "/job:ps;x",
      "CPU:0",
  };
  td_device_name n;
  for (size_t i = 0; i < TD_COUNT(bad); i++) assert_false(td_device_name_parse(td_str_of(bad[i]), &n));
  assert_false(td_device_name_parse(td_str_of(long_job), &n)); /* one more than fits */
  long_job[132] = '\0';
  assert_true(td_device_name_parse(td_str_of(long_job), &n));
  assert_int_equal(strlen(n.job), 127);
  assert_false(td_device_name_parse(TD_STR("/job:a\0b"), &n));
  /* the longest name there can be fits its text */
  n.replica = n.task = n.id = INT32_MAX;
  memset(n.type, 'T', sizeof n.type - 1);
  char text[TD_DEVICE_NAME_MAX];
  td_device_name_format(&n, text);
  td_device_name again = parse(text);
  assert_int_equal(again.id, INT32_MAX);
}

static void test_matches(void **state) {
  td_device_name full = parse("/job:ps/replica:0/task:1/device:CPU:0"), p;
  static const char *const yes[] = {"",       "/job:ps",       "/task:1",
                                    "/cpu:0", "/device:CPU:*", "/job:ps/replica:0/task:1/cpu:0"};
  static const char *const no[] = {"/job:p", "/task:0", "/gpu:0", "/cpu:1", "/replica:1", "/job:ps/task:2"};
  for (size_t i = 0; i < TD_COUNT(yes); i++) assert_true((p = parse(yes[i]), td_device_name_matches(&p, &full)));
  for (size_t i = 0; i < TD_COUNT(no); i++) assert_false((p = parse(no[i]), td_device_name_matches(&p, &full)));
  assert_true(td_device_name_is_complete(&full));
  p = parse("/job:ps/replica:0/task:1/device:CPU:*");
  assert_false(td_device_name_is_complete(&p));
  assert_true(td_device_name_same_task(&p, &full));
  p = parse("/job:ps/replica:0/task:2/device:CPU:0");
  assert_false(td_device_name_same_task(&p, &full));
}

static void merge(const char *a, const char *b, bool soft, const char *wanted) {
  td_device_name x = parse(a), y = parse(b);
  td_status s = td_device_name_merge(&x, &y, soft);
  if (s) {
    assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    assert_string_equal(td_status_message(s), wanted);
    td_status_free(s);
    wanted = a; /* left as it was */
  }
  check_text(&x, wanted);
}

#define CONFLICT "Cannot merge devices with incompatible "
static void test_merge(void **state) {
  merge("", "/job:a/task:1", false, "/job:a/task:1");
  merge("/job:a", "/task:1/device:CPU:0", false, "/job:a/task:1/device:CPU:0");
  merge("/job:a/device:CPU:0", "/job:a", false, "/job:a/device:CPU:0");
  merge("/job:a", "/job:b", true, CONFLICT "jobs: '/job:a' and '/job:b'");
  merge("/replica:0", "/replica:1", true, CONFLICT "replicas: '/replica:0' and '/replica:1'");
  merge("/task:0", "/task:1", true, CONFLICT "tasks: '/task:0' and '/task:1'");
  merge("/device:CPU:0", "/device:GPU:0", false, CONFLICT "types: '/device:CPU:0' and '/device:GPU:0'");
  merge("/device:CPU:0", "/device:CPU:1", false, CONFLICT "ids: '/device:CPU:0' and '/device:CPU:1'");
  merge("/job:a/device:CPU:0", "/device:GPU:0", true, "/job:a");
  merge("/device:CPU:0", "/device:CPU:1", true, "/device:CPU:*");
}

static void test_device(void **state) {
  td_resource_mgr *m = td_resource_mgr_create(TD_STR("ps"));
  td_device_name n = parse("/job:ps/replica:0/task:1/cpu:0");
  td_device *d = td_device_create(&n, 77, m);
  td_resource_mgr_release(m);
  assert_string_equal(d->name, "/job:ps/replica:0/task:1/device:CPU:0");
  assert_true(d->incarnation == 77);
  assert_true(td_str_is(td_resource_mgr_default_container(d->resources), "ps"));
  td_device_release(td_device_retain(d));
  td_device_release(d);
  td_device_release(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parse), cmocka_unit_test(test_parse_refuses), cmocka_unit_test(test_matches),
      cmocka_unit_test(test_merge), cmocka_unit_test(test_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Standard error goes into a file while `capture` runs. */
static int saved_stderr;
static FILE *captured;

static void begin_capture(void) {
  captured = tmpfile();
  saved_stderr = dup(STDERR_FILENO);
  dup2(fileno(captured), STDERR_FILENO);
}

static size_t end_capture(char *out, size_t size) {
  dup2(saved_stderr, STDERR_FILENO);
  close(saved_stderr);
  rewind(captured);
  size_t n = fread(out, 1, size - 1, captured);
  out[n] = '\0';
  fclose(captured);
  return n;
}

static void test_lines(void **state) {
  char text[4096];
  begin_capture();
  td_debug("not shown");
  td_info("a %d", 1);
  td_log_set_task("/job:ps/task:0");
  td_warn("b");
  td_log_set_task(NULL);
  end_capture(text, sizeof text);
  char *second = strchr(text, '\n') + 1;
  assert_non_null(strstr(text, "Z info a 1\n"));
  assert_non_null(strstr(second, "Z warning /job:ps/task:0: b\n"));
  assert_null(strstr(text, "not shown"));
  assert_int_equal(strspn(text, "0123456789-T:."), 23);
  assert_string_equal(td_log_task(), "");
}

/* A peer's text cannot make a second line; what is too long is cut; the longest task leaves room. */
static void test_hostile(void **state) {
  static char text[16384], big[4000];
  memset(big, 'x', sizeof big - 1);
  begin_capture();
  td_warn("%s", "bad\n2026-01-01 error forged\r\x1b[31m\x7f");
  td_warn("%s", big);
  td_log_set_task(big);
  td_warn("end");
  td_warn("%s", big);
  td_log_set_task(NULL);
  size_t n = end_capture(text, sizeof text);
  int lines = 0;
  for (size_t i = 0; i < n; i++) {
    lines += text[i] == '\n';
    assert_true(text[i] == '\n' || ((unsigned char)text[i] >= ' ' && text[i] != 0x7f));
  }
  assert_int_equal(lines, 4);
  assert_non_null(strstr(text, "x: end\n"));
  assert_int_equal(text[n - 1], '\n');
}

static void test_levels(void **state) {
  td_log_level level = TD_LOG_INFO;
  assert_true(td_log_level_parse("ERROR", &level) && level == TD_LOG_ERROR);
  assert_true(td_log_level_parse("debug", &level) && level == TD_LOG_DEBUG);
  assert_false(td_log_level_parse("", &level) || td_log_level_parse("warn", &level));
  td_log_set_level(TD_LOG_ERROR);
  assert_false(td_log_enabled(TD_LOG_WARNING));
  td_log_set_level(TD_LOG_DEBUG);
  assert_true(td_log_enabled(TD_LOG_DEBUG));
  td_log_set_level(TD_LOG_INFO);
  assert_false(td_log_enabled(TD_LOG_DEBUG));
}

static void *write_lines(void *arg) {
  td_log_set_task(arg);
  for (int i = 0; i < 200; i++) td_info("%d", i);
  return NULL;
}

static void test_threads(void **state) {
  static char text[1 << 17];
  pthread_t threads[4];
  begin_capture();
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, write_lines, "t");
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  end_capture(text, sizeof text);
  int lines = 0;
  for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
    *end = '\0';
    int number;
    char *at = strstr(line, "Z info t: ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "Z info t: %d", &number), 1);
    assert_int_equal(at - line, 23);
  }
  assert_int_equal(lines, 800);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lines),
      cmocka_unit_test(test_hostile),
      cmocka_unit_test(test_levels),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

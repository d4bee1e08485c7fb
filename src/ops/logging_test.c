#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ops/testing.h"

static void release(td_tensor **in, int n) {
  for (int i = 0; i < n; i++) td_tensor_release(in[i]);
}

static void test_assert(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_BOOL, "[]", "false"), td_test_tensor(TD_FLOAT, "[4]", "1 2 3 4"),
                     td_test_tensor(TD_STRING, "[]", "hi"), td_test_tensor(TD_INT32, "[]", "7")};
  td_op_run run = {.op = "Assert", .attrs = "T: [float, string, int32]", .in = in, .in_count = 4};
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "assertion failed: [1 2 3...] [hi] [7]");
  TD_DATA(in[0], bool)[0] = true;
  assert_null(td_op_test_run(&run));
  td_tensor_release(in[0]);
  in[0] = td_test_tensor(TD_BOOL, "[2]", "true");
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "In[0] should be a scalar: [2]");
  td_tensor_release(in[0]);
  in[0] = td_test_tensor(TD_BOOL, "[0]", "");
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "In[0] should be a scalar: [0]");
  release(in, 4);
}

/* What a run writes to a file descriptor. */
static void capture(td_op_run *run, int fd, int times, char *out, size_t size) {
  int ends[2], keep = dup(fd);
  assert_int_equal(pipe(ends), 0);
  dup2(ends[1], fd);
  close(ends[1]);
  td_status s = TD_STATUS_OK;
  for (int i = 0; i < times && !s; i++) {
    s = td_op_test_run(run);
    td_tensor_release(run->out[0]);
  }
  dup2(keep, fd);
  close(keep);
  ssize_t n = 0, got;
  while ((size_t)n + 1 < size && (got = read(ends[0], out + n, size - 1 - (size_t)n)) > 0) n += got;
  out[n] = '\0';
  close(ends[0]);
  if (s) fail_msg("%s", td_status_message(s));
}

static void test_print(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_FLOAT, "[]", "5"), td_test_tensor(TD_FLOAT, "[4]", "1 2 3 4"),
                     td_test_tensor(TD_STRING, "[]", "hi")};
  char text[256];
  td_kernel *k = NULL;
  td_op_run run = {.op = "Print",
                   .attrs = "T: float; U: [float, string]; message: 'm: '; first_n: 2",
                   .in = in,
                   .in_count = 3,
                   .kernel = &k};
  capture(&run, STDERR_FILENO, 3, text, sizeof text);
  assert_string_equal(text, "m: [1 2 3...][hi]\nm: [1 2 3...][hi]\n");
  td_kernel_release(k);
  run.kernel = NULL;
  assert_null(td_op_test_run(&run));
  td_assert_tensor(run.out[0], TD_FLOAT, "[]", "5", 0);
  td_tensor_release(run.out[0]);
  release(in, 3);
}

static void test_print2(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_STRING, "[]", "hello")};
  char text[256];
  td_op_run run = {.op = "PrintV2", .in = in, .in_count = 1};
  capture(&run, STDERR_FILENO, 1, text, sizeof text);
  assert_string_equal(text, "hello\n");
  run.attrs = "output_stream: 'stdout'; end: '!'";
  fflush(stdout);
  capture(&run, STDOUT_FILENO, 1, text, sizeof text);
  assert_string_equal(text, "hello!");
  run.attrs = "output_stream: 'log(warning)'";
  capture(&run, STDERR_FILENO, 1, text, sizeof text);
  assert_non_null(strstr(text, "hello"));
  run.attrs = "output_stream: 'nowhere'";
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Unknown output stream: nowhere, Valid streams are:");
  run.attrs = "output_stream: 'file:///tmp/x'";
  td_assert_run_fails(&run, TD_PERMISSION_DENIED, "file:///tmp/x");
  release(in, 1);
}

static void test_timestamp(void **state) {
  td_op_run run = {.op = "Timestamp"};
  double now = (double)td_wall_us() / 1e6;
  assert_null(td_op_test_run(&run));
  double t = TD_DATA(run.out[0], double)[0];
  assert_true(t >= now && t < now + 60);
  td_tensor_release(run.out[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_assert),
      cmocka_unit_test(test_print),
      cmocka_unit_test(test_print2),
      cmocka_unit_test(test_timestamp),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

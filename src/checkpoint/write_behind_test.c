/* Files written in pieces behind their caller. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/testing.h"
#include "checkpoint/write_behind.h"

static char dir[] = "/tmp/td-write-behind-XXXXXX";
static char path[64];

static int make_dir(void **state) {
  if (!mkdtemp(dir)) return -1;
  snprintf(path, sizeof path, "%s/file", dir);
  return 0;
}

static int remove_dir(void **state) { return rmdir(dir); }

static uint8_t byte_at(size_t i) { return (uint8_t)(i * 2654435761u >> 24); }

/* Appends bytes that tell where they belong, at most `most` at once. */
static td_status fill(td_write_behind *w, size_t size, size_t most) {
  for (size_t at = 0; at < size;) {
    char *to;
    size_t n;
    TD_TRY(td_write_behind_room(w, &to, &n));
    assert_true(n > 0);
    n = TD_MIN(TD_MIN(n, most), size - at);
    for (size_t i = 0; i < n; i++) to[i] = (char)byte_at(at + i);
    TD_TRY(td_write_behind_take(w, n));
    at += n;
  }
  return TD_STATUS_OK;
}

static void check_file(size_t size) {
  uint8_t *content = td_malloc(size + 1);
  int fd = open(path, O_RDONLY);
  assert_true(fd >= 0);
  size_t got = 0;
  for (ssize_t n = 1; n > 0; got += (size_t)n) {
    n = read(fd, content + got, size + 1 - got);
    assert_true(n >= 0);
  }
  close(fd);
  assert_int_equal(got, size);
  for (size_t i = 0; i < size; i++)
    if (content[i] != byte_at(i)) fail_msg("byte %zu is %d", i, content[i]);
  td_free(content);
}

static void check_size(size_t size, size_t most) {
  td_new_file file;
  must(td_new_file_open(&file, path, TD_SYNC_BEHIND));
  td_write_behind *w = td_write_behind_create(&file);
  must(fill(w, size, most));
  must(td_write_behind_finish(w));
  td_write_behind_destroy(w);
  assert_int_equal(file.size, size);
  must(td_new_file_sync(&file));
  must(td_new_file_publish(&file));
  td_new_file_deinit(&file);
  check_file(size);
  unlink(path);
}

/* Nothing, part of a piece, a piece, several times round all of them, in bits and at once. */
static void test_all_bytes_in_order(void **state) {
  static const size_t sizes[] = {0, 1, 1000, 512 << 10, (512 << 10) + 1, 2 << 20, (9 << 20) + 77};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    check_size(sizes[i], SIZE_MAX);
    check_size(sizes[i], 65537);
  }
}

static void test_abandoned(void **state) {
  for (int i = 0; i < 20; i++) {
    td_new_file file;
    must(td_new_file_open(&file, path, TD_SYNC_FIRST));
    td_write_behind *w = td_write_behind_create(&file);
    must(fill(w, (size_t)i << 18, SIZE_MAX));
    td_write_behind_destroy(w);
    td_new_file_deinit(&file);
    assert_int_equal(access(path, F_OK), -1);
  }
}

/* A disk that is full, wherever the caller is when it turns out. */
static void test_failure(void **state) {
  struct rlimit old, limit;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  for (size_t allowed = 0; allowed <= 4 << 20; allowed += 1 << 20) {
    td_new_file file;
    must(td_new_file_open(&file, path, TD_SYNC_BEHIND));
    limit = (struct rlimit){allowed, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    td_write_behind *w = td_write_behind_create(&file);
    td_status status = fill(w, (4 << 20) + 1, SIZE_MAX);
    if (!status) status = td_write_behind_finish(w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    must_fail(status, TD_OUT_OF_RANGE, "File too large");
    td_write_behind_destroy(w);
    td_new_file_deinit(&file);
    assert_int_equal(access(path, F_OK), -1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_bytes_in_order),
      cmocka_unit_test(test_abandoned),
      cmocka_unit_test(test_failure),
  };
  return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

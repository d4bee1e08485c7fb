#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"

/* Blocks of many sizes: aligned, disjoint, alive until the end. */
static void test_blocks(void **state) {
  enum { N = 3000 };
  static unsigned char *blocks[N];
  td_arena a;
  td_arena_init(&a);
  for (size_t i = 0; i < N; i++) {
    size_t size = i % 500 == 499 ? 3u << 20 : i % 97 * 13;
    blocks[i] = td_arena_alloc(&a, size);
    assert_int_equal((uintptr_t)blocks[i] % 16, 0);
    memset(blocks[i], (int)(i & 255), size);
  }
  for (size_t i = 0; i < N; i++) {
    size_t size = i % 500 == 499 ? 3u << 20 : i % 97 * 13;
    if (size) assert_int_equal(blocks[i][0], i & 255);
    if (size) assert_int_equal(blocks[i][size - 1], i & 255);
  }
  assert_true(a.allocated >= 6 * (3u << 20));
  td_arena_deinit(&a);
  assert_int_equal(a.allocated, 0);
  td_arena_deinit(&a);
}

static void test_empty(void **state) {
  td_arena a = {0};
  assert_non_null(td_arena_alloc(&a, 0));
  assert_non_null(td_arena_array(&a, int, 0));
  assert_string_equal(td_arena_strndup(&a, NULL, 0), "");
  assert_string_equal(td_arena_str(&a, (td_str){NULL, 0}).data, "");
  td_arena_deinit(&a);
  td_arena_reset(&a);
  td_arena_deinit(&a);
}

static void test_strings(void **state) {
  td_arena a = {0};
  assert_string_equal(td_arena_strdup(&a, "abc"), "abc");
  td_str s = td_arena_str(&a, TD_STR("a\0b"));
  assert_int_equal(s.size, 3);
  assert_memory_equal(s.data, "a\0b", 4);
  assert_string_equal(td_arena_printf(&a, "%s %d", "x", 5), "x 5");
  char *wide = td_arena_printf(&a, "%100000d", 5);
  assert_int_equal(strlen(wide), 100000);
  int *zeros = td_arena_array(&a, int, 5000);
  for (int i = 0; i < 5000; i++) assert_int_equal(zeros[i], 0);
  td_arena_deinit(&a);
}

static void test_reset(void **state) {
  td_arena a = {0};
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 200; i++) memset(td_arena_alloc(&a, 1000), round, 1000);
    td_arena_reset(&a);
    assert_true(a.allocated >= 4096);
  }
  size_t settled = a.allocated;
  for (int i = 0; i < 50; i++) td_arena_alloc(&a, 1000);
  assert_int_equal(a.allocated, settled); /* the chunk it kept serves again */
  char *zeros = td_arena_calloc(&a, 100, 10);
  for (int i = 0; i < 1000; i++) assert_int_equal(zeros[i], 0);
  td_arena_deinit(&a);
}

static void test_own_memory(void **state) {
  __attribute__((aligned(16))) char memory[256];
  td_arena a;
  td_arena_init_with(&a, memory, sizeof memory);
  assert_ptr_equal(td_arena_alloc(&a, 100), memory);
  assert_ptr_equal(td_arena_alloc(&a, 144), memory + 112);
  assert_int_equal(a.allocated, 0);
  char *p = td_arena_alloc(&a, 1);
  assert_true(p < memory || p >= memory + sizeof memory);
  td_arena_deinit(&a);
}

/* What asks for more than there can be ends the process; it never gets a smaller block. */
static void arena_overflow(void) {
  td_arena a = {0};
  td_arena_alloc(&a, 1);
  td_arena_alloc(&a, SIZE_MAX - 3);
}
static void arena_huge(void) {
  td_arena a = {0};
  td_arena_alloc(&a, SIZE_MAX / 2 - 8);
}
static void calloc_overflow(void) {
  td_arena a = {0};
  td_arena_calloc(&a, SIZE_MAX / 8, 16);
}
static void plain_overflow(void) { free(td_calloc(SIZE_MAX / 8, 16)); }
static void map_overflow(void) {
  td_map m = {0};
  td_map_reserve(&m, SIZE_MAX);
}

static bool ends(void (*fn)(void)) {
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    if (!freopen("/dev/null", "w", stderr)) _exit(0);
    alarm(30);
    fn();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

static void test_overflow(void **state) {
  assert_true(ends(arena_overflow));
  assert_true(ends(arena_huge));
  assert_true(ends(calloc_overflow));
  assert_true(ends(plain_overflow));
  assert_true(ends(map_overflow));
  void *p = td_try_malloc(0);
  assert_non_null(p);
  td_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_blocks), cmocka_unit_test(test_empty),      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_reset),  cmocka_unit_test(test_own_memory), cmocka_unit_test(test_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

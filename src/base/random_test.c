#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void check_distinct(uint64_t *v, size_t n) {
  uint64_t all_or = 0, all_and = UINT64_MAX;
  qsort(v, n, sizeof *v, compare);
  for (size_t i = 0; i < n; i++) {
    if (i) assert_true(v[i] != v[i - 1]);
    all_or |= v[i];
    all_and &= v[i];
  }
  assert_true(all_or == UINT64_MAX && all_and == 0); /* every bit moves */
}

static void test_distinct(void **state) {
  static uint64_t v[3000];
  for (int i = 0; i < 1000; i++) {
    v[i] = td_random_u64();
    v[1000 + i] = td_random_u64_nonzero();
    v[2000 + i] = td_random_fast_u64();
    assert_true(v[1000 + i] != 0);
  }
  check_distinct(v, 3000);
}

static void *draw(void *arg) {
  for (int i = 0; i < 1000; i++) ((uint64_t *)arg)[i] = td_random_fast_u64();
  return NULL;
}

static void test_threads_differ(void **state) {
  static uint64_t v[4000];
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, draw, v + 1000 * i), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  check_distinct(v, 4000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_distinct), cmocka_unit_test(test_threads_differ)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/memory.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { REUSES = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { REUSES = 0 };
#else
enum { REUSES = 1 };
#endif
#else
enum { REUSES = 1 };
#endif

static void blocks_of_every_size(void **state) {
  for (size_t size = 0; size <= TD_MEMORY_LARGEST_BLOCK; size += size < 2048 ? 1 : 61) {
    char *a = td_memory_block_alloc(size), *b = td_memory_block_alloc(size);
    assert_int_equal((uintptr_t)a % TD_MEMORY_ALIGN, 0);
    memset(a, 1, size);
    memset(b, 2, size);
    if (size) assert_int_equal(a[size - 1], 1);
    td_memory_block_free(a, size);
    td_memory_block_free(b, size);
  }
  td_memory_trim(0);
}

static void buffers_of_many_sizes(void **state) {
  td_memory_stats stats;
  for (size_t size = 1; size < (size_t)40 << 20; size += size / 3 + 1) {
    bool zeroed;
    char *p = td_memory_buffer_alloc(size, &zeroed);
    assert_int_equal((uintptr_t)p % TD_MEMORY_ALIGN, 0);
    if (zeroed) assert_int_equal(p[size - 1] | p[0], 0);
    p[0] = p[size - 1] = 1;
    td_memory_get_stats(&stats);
    assert_true(stats.buffers_in_use >= size);
    assert_true(stats.buffers_in_use <= TD_MAX(size + size / 8 + 1, (size_t)64 << 10));
    td_memory_buffer_free(p, size);
  }
  td_memory_get_stats(&stats);
  assert_int_equal(stats.buffers_in_use, 0);
  td_memory_trim(0);
  td_memory_get_stats(&stats);
  assert_int_equal(stats.buffers_idle, 0);
}

static void buffers_are_used_again(void **state) {
  if (!REUSES) skip();
  bool zeroed;
  char *p = td_memory_buffer_alloc(5 << 20, &zeroed);
  assert_true(zeroed);
  td_memory_buffer_free(p, 5 << 20);
  td_memory_trim(60000); /* too young */
  char *q = td_memory_buffer_alloc((5 << 20) - 1000, &zeroed);
  assert_ptr_equal(p, q);
  assert_false(zeroed);
  td_memory_buffer_free(q, (5 << 20) - 1000);
  td_memory_trim(0);
}

static void limit(void **state) {
  bool zeroed;
  td_memory_set_limit(1 << 20);
  char *p = td_memory_buffer_alloc(600 << 10, &zeroed);
  assert_non_null(p);
  assert_null(td_memory_buffer_alloc(600 << 10, &zeroed));
  td_memory_buffer_free(p, 600 << 10);
  p = td_memory_buffer_alloc(600 << 10, &zeroed);
  assert_non_null(p);
  td_memory_buffer_free(p, 600 << 10);
  td_memory_set_limit(0);
  assert_null(td_memory_buffer_alloc((size_t)1 << 62, &zeroed));
  assert_null(td_memory_buffer_alloc((size_t)1 << 50, &zeroed));
  td_memory_trim(0);
}

/* Threads take, pass on and release, as loops and pools do. */
enum { SLOTS = 64, TURNS = 20000 };
static struct {
  pthread_mutex_t lock;
  char *data[SLOTS];
  size_t size[SLOTS];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void release(char *p, size_t size) {
  if (!p) return;
  assert_int_equal(p[0], (char)size);
  if (size > TD_MEMORY_LARGEST_BLOCK) {
    td_memory_buffer_free(p, size);
  } else {
    td_memory_block_free(p, size);
  }
}

static void *churn(void *arg) {
  unsigned seed = (unsigned)(uintptr_t)arg;
  for (int i = 0; i < TURNS; i++) {
    size_t size = (size_t)rand_r(&seed) % (i % 16 ? 3000 : 200000) + 1;
    bool zeroed;
    char *p = size > TD_MEMORY_LARGEST_BLOCK ? td_memory_buffer_alloc(size, &zeroed) : td_memory_block_alloc(size);
    p[0] = (char)size;
    int slot = rand_r(&seed) % SLOTS;
    pthread_mutex_lock(&table.lock);
    char *old = table.data[slot];
    size_t old_size = table.size[slot];
    table.data[slot] = p;
    table.size[slot] = size;
    pthread_mutex_unlock(&table.lock);
    release(old, old_size);
    if (i % 5000 == 0) td_memory_trim(0);
  }
  return NULL;
}

static void threads(void **state) {
  pthread_t t[4];
  for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, churn, (void *)(uintptr_t)(i + 1));
  for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
  for (int i = 0; i < SLOTS; i++) release(table.data[i], table.size[i]);
  td_memory_stats stats;
  td_memory_get_stats(&stats);
  assert_int_equal(stats.buffers_in_use, 0);
  td_memory_trim(0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_of_every_size),
      cmocka_unit_test(buffers_of_many_sizes),
      cmocka_unit_test(buffers_are_used_again),
      cmocka_unit_test(limit),
      cmocka_unit_test(threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

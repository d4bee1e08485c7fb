/* Ids of requests that came lately (TensorFlow's recent_request_ids). */
#include "cluster/request_ids.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_forgets_the_oldest(void **state) {
  td_request_ids *r = td_request_ids_create(3);
  for (int64_t id = 1; id <= 3; id++) assert_true(td_request_ids_insert(r, id));
  for (int64_t id = 1; id <= 3; id++) assert_false(td_request_ids_insert(r, id));
  assert_true(td_request_ids_insert(r, -4)); /* forgets 1 */
  assert_false(td_request_ids_insert(r, 2));
  assert_true(td_request_ids_insert(r, 1)); /* forgets 2 */
  assert_false(td_request_ids_insert(r, -4));
  assert_true(td_request_ids_insert(r, 2));
  td_request_ids_destroy(r);
}

static void test_zero_is_not_tracked(void **state) {
  td_request_ids *r = td_request_ids_create(2);
  for (int i = 0; i < 5; i++) assert_true(td_request_ids_insert(r, 0));
  td_request_ids_destroy(r);
  td_request_ids_destroy(NULL);
}

static void test_status(void **state) {
  td_request_ids *r = td_request_ids_create(8);
  assert_null(td_request_ids_track(r, 42, "RunStep"));
  td_status s = td_request_ids_track(r, 42, "RunStep");
  assert_int_equal(td_status_code(s), TD_ABORTED);
  assert_string_equal(td_status_message(s), "The same RunStep request was received twice. request_id: 42");
  td_status_free(s);
  td_request_ids_destroy(r);
}

/* Against a plain list of the last ids, with ids that meet in the table. */
static void test_like_a_list(void **state) {
  enum { CAPACITY = 37, STEPS = 20000 };
  td_request_ids *r = td_request_ids_create(CAPACITY);
  int64_t last[CAPACITY] = {0};
  size_t inserted = 0;
  uint64_t x = 1;
  for (int i = 0; i < STEPS; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    int64_t id = 1 + (int64_t)(x >> 33) % 80 * (x >> 40 & 1 ? 1 : INT64_C(1) << 40);
    bool known = false;
    for (size_t k = 0; k < CAPACITY; k++) known |= last[k] == id;
    assert_int_equal(td_request_ids_insert(r, id), !known);
    if (!known) last[inserted++ % CAPACITY] = id;
  }
  td_request_ids_destroy(r);
}

typedef struct shared {
  td_request_ids *ids;
  atomic_int fresh;
} shared;

static void *insert_all(void *arg) {
  shared *s = arg;
  for (int64_t id = 1; id <= 5000; id++)
    if (td_request_ids_insert(s->ids, id)) atomic_fetch_add(&s->fresh, 1);
  return NULL;
}

static void test_threads(void **state) {
  shared s = {.ids = td_request_ids_create(10000)};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, insert_all, &s), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&s.fresh), 5000);
  td_request_ids_destroy(s.ids);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_forgets_the_oldest),
      cmocka_unit_test(test_zero_is_not_tracked),
      cmocka_unit_test(test_status),
      cmocka_unit_test(test_like_a_list),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

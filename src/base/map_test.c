#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

static void test_empty(void **state) {
  td_map m = {0};
  size_t i = 0;
  assert_null(td_map_get(&m, TD_STR("a")));
  assert_null(td_map_remove(&m, TD_STR("a")));
  assert_false(td_map_next(&m, &i, NULL, NULL));
  td_map_clear(&m);
  td_map_reserve(&m, 0);
  td_map_deinit(&m);
  td_map_deinit(&m);
}

static void test_put_insert(void **state) {
  td_map m = {0};
  int a, b;
  assert_null(td_map_put(&m, TD_STR("k"), &a));
  assert_ptr_equal(td_map_insert(&m, TD_STR("k"), &b), &a); /* the one there stays */
  assert_ptr_equal(td_map_get(&m, TD_STR("k")), &a);
  assert_ptr_equal(td_map_put(&m, TD_STR("k"), &b), &a);
  assert_ptr_equal(td_map_get(&m, TD_STR("k")), &b);
  assert_int_equal(m.count, 1);
  /* the empty key and keys with NULs are keys like others */
  assert_null(td_map_insert(&m, (td_str){NULL, 0}, &a));
  assert_ptr_equal(td_map_get(&m, TD_STR("")), &a);
  assert_null(td_map_insert(&m, TD_STR("k\0"), &a));
  assert_null(td_map_get(&m, TD_STR("k\0\0")));
  assert_int_equal(m.count, 3);
  assert_ptr_equal(td_map_remove(&m, TD_STR("")), &a);
  assert_null(td_map_remove(&m, TD_STR("")));
  td_map_clear(&m);
  assert_int_equal(m.count, 0);
  assert_null(td_map_get(&m, TD_STR("k")));
  td_map_deinit(&m);
}

/* A replaced entry's key is the new one: the old one's bytes may go with its value. */
static void test_put_takes_new_key(void **state) {
  td_map m = {0};
  int a, b;
  char *first = td_strdup("key"), *second = td_strdup("key");
  td_map_put(&m, td_str_of(first), &a);
  td_map_put(&m, td_str_of(second), &b);
  td_free(first);
  assert_ptr_equal(td_map_get(&m, TD_STR("key")), &b);
  td_map_deinit(&m);
  td_free(second);
}

/* Random puts and removals against a plain table; probing runs cross the table's end, too. */
static void test_random(void **state) {
  enum { KEYS = 300, ROUNDS = 60000 };
  static char keys[KEYS][8];
  static bool present[KEYS];
  td_map m = {0};
  uint32_t random = 12345;
  size_t count = 0;
  for (int i = 0; i < KEYS; i++) snprintf(keys[i], sizeof keys[i], "%d", i);
  for (int round = 0; round < ROUNDS; round++) {
    random = random * 1664525u + 1013904223u;
    size_t range = round % 20000 < 10000 ? 12 : KEYS; /* small: nearly full tables of 16 slots */
    size_t i = (random >> 8) % range;
    td_str key = td_str_of(keys[i]);
    if (random >> 31) {
      assert_ptr_equal(td_map_insert(&m, key, keys[i]), present[i] ? keys[i] : NULL);
      count += !present[i];
      present[i] = true;
    } else {
      assert_ptr_equal(td_map_remove(&m, key), present[i] ? keys[i] : NULL);
      count -= present[i];
      present[i] = false;
    }
    assert_int_equal(m.count, count);
    if (round % 64) continue;
    for (int k = 0; k < KEYS; k++) assert_ptr_equal(td_map_get(&m, td_str_of(keys[k])), present[k] ? keys[k] : NULL);
  }
  size_t seen = 0;
  td_str key;
  void *value;
  for (size_t i = 0; td_map_next(&m, &i, &key, &value); seen++) assert_ptr_equal(key.data, value);
  assert_int_equal(seen, count);
  td_map_deinit(&m);
}

static void test_reserve(void **state) {
  static char keys[1000][8];
  td_map m = {0};
  td_map_reserve(&m, 1000);
  td_map_entry *entries = m.entries;
  for (int i = 0; i < 1000; i++) {
    snprintf(keys[i], sizeof keys[i], "%d", i);
    td_map_put(&m, td_str_of(keys[i]), keys[i]);
  }
  assert_ptr_equal(m.entries, entries); /* it did not grow again */
  assert_true(m.capacity - m.capacity / 4 >= 1000);
  td_map_deinit(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_empty),  cmocka_unit_test(test_put_insert), cmocka_unit_test(test_put_takes_new_key),
      cmocka_unit_test(test_random), cmocka_unit_test(test_reserve),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

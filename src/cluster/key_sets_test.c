/* Sets of keys known by number: what is found, and what is forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/key_sets.h"
#include "cluster/testing.h"
#include "proto/wire.h"

static td_test_cluster cluster;

static int start(void **state) {
  td_test_cluster_start(&cluster, "worker 1");
  return 0;
}

static int stop(void **state) {
  td_test_cluster_stop(&cluster);
  return 0;
}

/* A message of `count` keys that tell which set this is. */
static td_key_set *set_of(int which, size_t count, size_t name_size) {
  td_task *task = td_task_of(cluster.servers[0]);
  td_strbuf b = {0}, key = {0};
  td_wire_put_uint(&b, 1, 7);
  for (size_t i = 0; i < count; i++) {
    key.size = 0;
    td_strbuf_printf(&key, "%s;%016llx;%s;e%d_%zu_%0*d;0:%zu", task->devices[0]->name,
                     (unsigned long long)task->devices[0]->incarnation, task->devices[0]->name, which, i,
                     (int)name_size, 0, i);
    td_wire_put_bytes(&b, 2, td_strbuf_view(&key));
  }
  td_key_set *set;
  must(td_key_set_parse(task, td_strbuf_view(&b), count, &set));
  td_strbuf_deinit(&b);
  td_strbuf_deinit(&key);
  return set;
}

static void test_sets_are_found(void **state) {
  td_key_sets *all = td_key_sets_create();
  td_key_set *a = set_of(1, 3, 1), *b = set_of(2, 1, 1);
  assert_null(td_key_sets_find(all, 0));
  td_key_sets_keep(all, a);
  td_key_sets_keep(all, b);
  td_key_sets_keep(all, a); /* has its number */
  assert_int_equal(td_key_sets_count(all), 2);
  assert_true(a->number && b->number && a->number != b->number);
  td_key_set *found = td_key_sets_find(all, a->number);
  assert_ptr_equal(found, a);
  assert_int_equal(found->count, 3);
  assert_int_equal(found->keys[2].frame.iter, 2);
  assert_true(td_str_is(found->keys[1].key.edge, "e1_1_0"));
  assert_null(td_key_sets_find(all, a->number + 1));
  td_key_set_release(found);
  td_key_set_release(a);
  td_key_set_release(b);
  td_key_sets_destroy(all);
}

static void test_the_oldest_are_forgotten(void **state) {
  td_key_sets *all = td_key_sets_create();
  uint64_t first = 0, last = 0;
  for (int i = 0; i < 1100; i++) {
    td_key_set *s = set_of(i, 2, 1);
    td_key_sets_keep(all, s);
    last = s->number;
    if (!i) first = last;
    td_key_set_release(s);
  }
  assert_int_equal(td_key_sets_count(all), 1024);
  assert_null(td_key_sets_find(all, first));
  td_key_set *s = td_key_sets_find(all, last);
  assert_non_null(s);
  td_key_set_release(s);
  s = set_of(0, 4000, 300); /* over a megabyte: not kept */
  td_key_sets_keep(all, s);
  assert_int_equal(s->number, 0);
  td_key_set_release(s);
  for (int i = 0; i < 200; i++) { /* many large ones: bytes are bounded, too */
    s = set_of(i, 1000, 300);
    td_key_sets_keep(all, s);
    assert_true(s->number);
    td_key_set_release(s);
  }
  assert_in_range(td_key_sets_count(all), 50, 200);
  td_key_sets_destroy(all);
}

static void test_what_a_peer_knows(void **state) {
  td_known_sets *k = td_known_sets_create();
  bool asks;
  assert_int_equal(td_known_sets_find(k, 77, TD_STR("ab"), &asks), 0);
  assert_false(asks); /* seen once */
  assert_int_equal(td_known_sets_find(k, 77, TD_STR("ab"), &asks), 0);
  assert_true(asks);
  td_known_sets_learn(k, 77, TD_STR("ab"), 5);
  assert_int_equal(td_known_sets_find(k, 77, TD_STR("ab"), &asks), 5);
  assert_int_equal(td_known_sets_find(k, 77, TD_STR("ac"), &asks), 0); /* the same hash, other keys */
  assert_true(asks);
  td_known_sets_learn(k, 77, TD_STR("ac"), 6);
  assert_int_equal(td_known_sets_find(k, 77, TD_STR("ac"), &asks), 6);
  td_known_sets_forget(k, 6);
  assert_int_equal(td_known_sets_find(k, 77, TD_STR("ac"), &asks), 0);
  assert_false(asks);
  td_known_sets_learn(k, 77, TD_STR("ac"), 8);
  assert_int_equal(td_known_sets_find(k, 77 + 256, TD_STR("x"), &asks), 0); /* takes the place */
  assert_int_equal(td_known_sets_find(k, 77, TD_STR("ac"), &asks), 0);
  assert_false(asks);
  td_known_sets_destroy(k);
}

static void test_what_a_connection_remembers_is_bounded(void **state) {
  td_known_sets *k = td_known_sets_create();
  size_t size = 1 << 20;
  char *keys = td_calloc(1, size);
  bool asks;
  for (uint64_t hash = 1; hash <= 16; hash++) td_known_sets_learn(k, hash, td_str_n(keys, size), hash);
  assert_int_equal(td_known_sets_find(k, 1, td_str_n(keys, size), &asks), 1);
  td_known_sets_learn(k, 17, td_str_n(keys, size), 17); /* over 16 MB: the others go */
  assert_int_equal(td_known_sets_find(k, 1, td_str_n(keys, size), &asks), 0);
  assert_int_equal(td_known_sets_find(k, 17, td_str_n(keys, size), &asks), 17);
  td_free(keys);
  td_known_sets_destroy(k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sets_are_found),
      cmocka_unit_test(test_the_oldest_are_forgotten),
      cmocka_unit_test(test_what_a_peer_knows),
      cmocka_unit_test(test_what_a_connection_remembers_is_bounded),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

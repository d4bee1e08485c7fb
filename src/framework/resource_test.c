#include "framework/resource.h"
#include "base/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "framework/device.h"

typedef struct thing {
  td_resource resource;
  atomic_int *alive;
} thing;

static void destroy(td_resource *r) {
  thing *t = (thing *)r;
  atomic_fetch_sub(t->alive, 1);
  td_free(t);
}

static const td_resource_type type_a = {"A", destroy}, type_b = {"B", destroy};

static thing *make(const td_resource_type *type, atomic_int *alive) {
  thing *t = td_new(thing);
  td_resource_init(&t->resource, type);
  t->alive = alive;
  atomic_fetch_add(alive, 1);
  return t;
}

static void test_lookup(void **state) {
  atomic_int alive = 0;
  void *got = NULL;
  td_str none = {NULL, 0};
  td_resource_mgr *m = td_resource_mgr_create(TD_STR("ps"));
  thing *t = make(&type_a, &alive);
  must_say(td_resource_lookup(m, none, TD_STR("x"), &type_a, &got), TD_NOT_FOUND,
           "Container ps does not exist. (Could not find resource: ps/x)");
  assert_null(td_resource_add(m, none, TD_STR("x"), &t->resource));
  must_say(td_resource_add(m, TD_STR("ps"), TD_STR("x"), &t->resource), TD_ALREADY_EXISTS, "Resource ps/x/A");
  td_resource_release(t);
  assert_null(td_resource_lookup(m, TD_STR("ps"), TD_STR("x"), &type_a, &got)); /* the default one by name, too */
  assert_ptr_equal(got, t);
  must_say(td_resource_lookup(m, none, TD_STR("x"), &type_b, &got), TD_NOT_FOUND, "Resource ps/x/B does not exist.");
  must_say(td_resource_lookup(m, none, TD_STR("y"), &type_a, &got), TD_NOT_FOUND, "Resource ps/y/A does not exist.");
  must_say(td_resource_delete(m, none, TD_STR("x"), &type_b), TD_NOT_FOUND, "Resource ps/x/B does not exist.");
  assert_null(td_resource_delete(m, none, TD_STR("x"), &type_a));
  assert_int_equal(alive, 1); /* a holder keeps it alive */
  td_resource_release(got);
  assert_int_equal(alive, 0);
  must_say(td_resource_delete_by_type_name(m, none, TD_STR("x"), TD_STR("A")), TD_NOT_FOUND,
           "Container ps does not exist. (Could not find resource: ps/x)");
  td_resource_release(NULL);
  td_resource_mgr_release(td_resource_mgr_retain(m));
  td_resource_mgr_release(m);
  td_resource_mgr_release(NULL);
}

/* Names are a client's bytes: empty, with NULs, longer than any buffer. */
static void test_names(void **state) {
  atomic_int alive = 0;
  void *got;
  static char big[5000];
  memset(big, 'n', sizeof big);
  const td_str names[] = {{NULL, 0},  TD_STR("x"), TD_STR("x\0A"), TD_STR("x\0"), TD_STR("\0"), {big, sizeof big},
                          {big, 505}, {big, 506},  {big, 507},     {big, 508},    {big, 509}};
  thing *things[TD_COUNT(names)];
  td_resource_mgr *m = td_resource_mgr_create(TD_STR("c"));
  for (size_t i = 0; i < TD_COUNT(names); i++) {
    things[i] = make(&type_a, &alive);
    assert_null(td_resource_add(m, TD_STR(""), names[i], &things[i]->resource));
    td_resource_release(things[i]);
  }
  for (size_t i = 0; i < TD_COUNT(names); i++) {
    assert_null(td_resource_lookup(m, TD_STR(""), names[i], &type_a, &got));
    assert_ptr_equal(got, things[i]);
    td_resource_release(got);
  }
  assert_int_equal(alive, TD_COUNT(names));
  td_resource_mgr_release(m);
  assert_int_equal(alive, 0);
}

static void test_cleanup(void **state) {
  atomic_int alive = 0;
  void *got;
  td_resource_mgr *m = td_resource_mgr_create(TD_STR("ps"));
  static char names[100][8];
  for (int i = 0; i < 100; i++) {
    snprintf(names[i], sizeof names[i], "%d", i);
    thing *t = make(i % 2 ? &type_a : &type_b, &alive);
    assert_null(td_resource_add(m, i < 40 ? TD_STR("other") : TD_STR(""), td_str_of(names[i]), &t->resource));
    td_resource_release(t);
  }
  td_resource_mgr_cleanup(m, TD_STR("unknown"));
  assert_int_equal(alive, 100);
  td_resource_mgr_cleanup(m, TD_STR("other"));
  assert_int_equal(alive, 60);
  must_say(td_resource_lookup(m, TD_STR("other"), TD_STR("1"), &type_a, &got), TD_NOT_FOUND,
           "Container other does not exist. (Could not find resource: other/1)");
  td_resource_mgr_cleanup(m, TD_STR(""));
  assert_int_equal(alive, 0);
  td_resource_mgr_release(m);
}

static td_status create_thing(void *arg, td_resource **out) {
  *out = &make(&type_a, arg)->resource;
  return TD_STATUS_OK;
}

static td_status create_nothing(void *arg, td_resource **out) { return td_internal("no"); }

static void test_lookup_or_create(void **state) {
  atomic_int alive = 0;
  void *a, *b;
  td_resource_mgr *m = td_resource_mgr_create(TD_STR("ps"));
  must_say(td_resource_lookup_or_create(m, TD_STR(""), TD_STR("x"), &type_a, create_nothing, NULL, &a), TD_INTERNAL,
           "no");
  assert_null(td_resource_lookup_or_create(m, TD_STR(""), TD_STR("x"), &type_a, create_thing, &alive, &a));
  assert_null(td_resource_lookup_or_create(m, TD_STR(""), TD_STR("x"), &type_a, create_nothing, NULL, &b));
  assert_ptr_equal(a, b);
  td_resource_release(a);
  td_resource_release(b);
  assert_int_equal(alive, 1);
  td_resource_mgr_release(m);
  assert_int_equal(alive, 0);
}

typedef struct shared {
  td_resource_mgr *m;
  atomic_int alive;
} shared;

static void *use(void *arg) {
  shared *s = arg;
  for (int i = 0; i < 1000; i++) {
    char name[2] = {(char)('a' + i % 3), 0};
    void *r;
    td_status st =
        td_resource_lookup_or_create(s->m, TD_STR(""), td_str_of(name), &type_a, create_thing, &s->alive, &r);
    if (st || ((thing *)r)->alive != &s->alive) abort();
    td_resource_release(r);
    if (i % 5 == 0) td_status_free(td_resource_delete(s->m, TD_STR(""), td_str_of(name), &type_a));
    if (i % 100 == 0) td_resource_mgr_cleanup(s->m, TD_STR(""));
  }
  return NULL;
}

static void test_threads(void **state) {
  shared s = {.m = td_resource_mgr_create(TD_STR("ps"))};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, use, &s), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_true(s.alive <= 3);
  td_resource_mgr_release(s.m);
  assert_int_equal(s.alive, 0);
}

static void test_container_info(void **state) {
  td_resource_mgr *m = td_resource_mgr_create(TD_STR("ps"));
  td_str c, n;
  assert_null(td_container_info(m, TD_STR(""), TD_STR(""), TD_STR("node"), &c, &n));
  assert_true(td_str_is(c, "ps") && td_str_is(n, "node"));
  assert_null(td_container_info(m, TD_STR("a.B-1/x"), TD_STR("shared"), TD_STR("node"), &c, &n));
  assert_true(td_str_is(c, "a.B-1/x") && td_str_is(n, "shared"));
  static const char *const bad[] = {"_a", "a_b", "-a", "/a", "a b", "a\n", "\xc3\xa9"};
  for (size_t i = 0; i < TD_COUNT(bad); i++) {
    td_status s = td_container_info(m, td_str_of(bad[i]), TD_STR(""), TD_STR("n"), &c, &n);
    assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    td_status_free(s);
  }
  td_status s = td_container_info(m, TD_STR("a\0b"), TD_STR(""), TD_STR("n"), &c, &n);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  td_status_free(s);
  must_say(td_container_info(m, TD_STR(""), TD_STR("_x"), TD_STR("n"), &c, &n), TD_INVALID_ARGUMENT,
           "shared_name cannot start with '_':_x");
  td_resource_mgr_release(m);
}

static void test_handles(void **state) {
  atomic_int alive = 0;
  td_resource_mgr *m = td_resource_mgr_create(TD_STR("ps"));
  td_device_name name;
  assert_true(td_device_name_parse(TD_STR("/job:ps/replica:0/task:0/cpu:0"), &name));
  td_device *d = td_device_create(&name, 1, m);
  name.task = 1;
  td_device *elsewhere = td_device_create(&name, 2, m);
  td_tensor *h, *empty, *number;
  void *got;
  thing *t = make(&type_a, &alive);
  assert_null(td_resource_add(m, TD_STR(""), TD_STR("x"), &t->resource));
  td_resource_release(t);
  assert_null(td_handle_create(d, TD_STR(""), TD_STR("x"), &type_a, &h));
  assert_null(td_handle_lookup(h, d, &type_a, &got));
  assert_ptr_equal(got, t);
  td_resource_release(got);
  td_status s = td_handle_lookup(h, d, &type_b, &got);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  td_status_free(s);
  must_say(td_handle_lookup(h, elsewhere, &type_a, &got), TD_INVALID_ARGUMENT,
           "Trying to access resource x located in device /job:ps/replica:0/task:0/device:CPU:0 from device "
           "/job:ps/replica:0/task:1/device:CPU:0");
  /* what a peer may send in a handle's place */
  assert_null(td_tensor_create_dims(TD_RESOURCE, 1, (int64_t[]){0}, &empty));
  assert_null(td_tensor_create_dims(TD_FLOAT, 0, NULL, &number));
  must_say(td_handle_lookup(empty, d, &type_a, &got), TD_INVALID_ARGUMENT, "Input is not a resource handle");
  must_say(td_handle_lookup(number, d, &type_a, &got), TD_INVALID_ARGUMENT, "Input is not a resource handle");
  must_say(td_handle_lookup(NULL, d, &type_a, &got), TD_INVALID_ARGUMENT, "Input is not a resource handle");
  td_tensor_release(empty);
  assert_null(td_tensor_create_dims(TD_RESOURCE, 1, (int64_t[]){1}, &empty)); /* its element is NULL */
  must_say(td_handle_lookup(empty, d, &type_a, &got), TD_INVALID_ARGUMENT, "Input is not a resource handle");
  td_tensor_release(empty);
  td_tensor_release(number);
  td_tensor_release(h);
  td_device_release(elsewhere);
  td_device_release(d);
  td_resource_mgr_release(m);
  assert_int_equal(alive, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lookup),  cmocka_unit_test(test_names),          cmocka_unit_test(test_cleanup),
      cmocka_unit_test(test_threads), cmocka_unit_test(test_container_info), cmocka_unit_test(test_lookup_or_create),
      cmocka_unit_test(test_handles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "framework/cancellation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

typedef struct probe {
  td_cancel_callback callback;
  td_cancellation *c;
  atomic_int runs;
  atomic_bool go_on, inside;
} probe;

static void count_run(td_cancel_callback *cb) { atomic_fetch_add(&TD_CONTAINER_OF(cb, probe, callback)->runs, 1); }

static void test_basic(void **state) {
  td_cancellation *c = td_cancellation_create();
  probe a = {.callback.cancelled = count_run}, b = a, late = a;
  assert_false(td_cancellation_is_cancelled(c) || td_cancellation_is_cancelled(NULL));
  assert_true(td_cancellation_register(c, &a.callback));
  assert_true(td_cancellation_register(c, &b.callback));
  assert_true(td_cancellation_unregister(c, &b.callback));
  assert_false(td_cancellation_unregister(c, &b.callback)); /* nothing left to withdraw */
  assert_true(td_cancellation_register(c, &b.callback));    /* and again */
  assert_true(td_cancellation_try_unregister(c, &b.callback));
  td_cancellation_cancel(c);
  td_cancellation_cancel(c);
  assert_true(td_cancellation_is_cancelled(c));
  assert_int_equal(a.runs, 1);
  assert_int_equal(b.runs, 0);
  assert_false(td_cancellation_unregister(c, &a.callback));
  assert_false(td_cancellation_register(c, &late.callback));
  assert_false(td_cancellation_unregister(c, &late.callback));
  assert_int_equal(late.runs, 0);
  td_cancellation_release(td_cancellation_retain(c));
  td_cancellation_release(c);
  td_cancellation_release(NULL);
}

/* A callback may withdraw others, drop the last reference and free itself. */
static void drop_all(td_cancel_callback *cb) {
  probe *p = TD_CONTAINER_OF(cb, probe, callback);
  td_cancellation_release(p->c);
  td_free(p);
}

static void withdraw_next(td_cancel_callback *cb) {
  probe *p = TD_CONTAINER_OF(cb, probe, callback);
  p->runs++;
  if (!td_cancellation_unregister(p->c, &p[1].callback)) abort();
  if (td_cancellation_register(p->c, &p[1].callback)) abort();
  td_cancellation_cancel(p->c);
}

static void test_callback_acts(void **state) {
  td_cancellation *c = td_cancellation_create();
  probe two[2] = {{.callback.cancelled = withdraw_next, .c = c}, {.callback.cancelled = count_run, .c = c}};
  probe *own = td_new(probe);
  *own = (probe){.callback.cancelled = drop_all, .c = c};
  for (int i = 0; i < 2; i++) assert_true(td_cancellation_register(c, &two[i].callback));
  assert_true(td_cancellation_register(c, &own->callback));
  td_cancellation_cancel(c); /* the last callback drops the only reference */
  assert_int_equal(two[0].runs, 1);
  assert_int_equal(two[1].runs, 0);
}

static void linger(td_cancel_callback *cb) {
  probe *p = TD_CONTAINER_OF(cb, probe, callback);
  atomic_store(&p->inside, true);
  while (!atomic_load(&p->go_on)) sched_yield();
  usleep(20000);
  p->runs++;
}

static void *cancel_main(void *arg) {
  td_cancellation_cancel(arg);
  return NULL;
}

static void test_unregister_waits(void **state) {
  td_cancellation *c = td_cancellation_create();
  probe a = {.callback.cancelled = linger};
  assert_true(td_cancellation_register(c, &a.callback));
  pthread_t thread;
  pthread_create(&thread, NULL, cancel_main, c);
  while (!atomic_load(&a.inside)) sched_yield();
  assert_false(td_cancellation_try_unregister(c, &a.callback)); /* does not wait for it */
  assert_int_equal(a.runs, 0);
  atomic_store(&a.go_on, true);
  assert_false(td_cancellation_unregister(c, &a.callback)); /* does */
  assert_int_equal(a.runs, 1);
  pthread_join(thread, NULL);
  td_cancellation_release(c);
}

/* Threads register and withdraw while others cancel: each callback runs at most once, and never after unregister. */
static void *register_main(void *arg) {
  td_cancellation *c = arg;
  for (int i = 0; i < 300; i++) {
    probe *p = td_new(probe);
    p->callback.cancelled = count_run;
    if (td_cancellation_register(c, &p->callback)) {
      if (i % 3 == 0) sched_yield();
      bool withdrawn = td_cancellation_unregister(c, &p->callback);
      if (p->runs != !withdrawn) abort();
    } else if (p->runs) {
      abort();
    }
    td_free(p);
  }
  td_cancellation_release(c);
  return NULL;
}

static void test_threads(void **state) {
  for (int round = 0; round < 50; round++) {
    td_cancellation *c = td_cancellation_create();
    pthread_t threads[4];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, register_main, td_cancellation_retain(c));
    for (int i = 2; i < 4; i++) pthread_create(&threads[i], NULL, cancel_main, c);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    td_cancellation_release(c);
  }
}

static void say(const td_cancel_callback *cb, td_strbuf *out, uint64_t *since_ns) {
  td_strbuf_printf(out, "probe");
  *since_ns = 7;
}

static void count_said(void *arg, td_str what, uint64_t since_ns) {
  assert_true(td_str_is(what, "probe") && since_ns == 7);
  ++*(int *)arg;
}

static void test_visit(void **state) {
  td_cancellation *c = td_cancellation_create();
  probe a = {.callback = {.cancelled = count_run, .describe = say}}, b = a, silent = {.callback.cancelled = count_run};
  int n = 0;
  td_cancellation_visit(c, count_said, &n);
  assert_true(td_cancellation_register(c, &a.callback) && td_cancellation_register(c, &silent.callback) &&
              td_cancellation_register(c, &b.callback));
  td_cancellation_visit(c, count_said, &n);
  assert_int_equal(n, 2);
  assert_true(td_cancellation_unregister(c, &a.callback));
  td_cancellation_visit(c, count_said, &n);
  assert_int_equal(n, 3);
  td_cancellation_cancel(c);
  td_cancellation_visit(c, count_said, &n);
  assert_int_equal(n, 3);
  td_cancellation_release(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_basic),   cmocka_unit_test(test_callback_acts), cmocka_unit_test(test_unregister_waits),
      cmocka_unit_test(test_threads), cmocka_unit_test(test_visit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Steps of this task (TensorFlow's base_rendezvous_mgr). */
#include "cluster/step_table.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cluster/remote_rendezvous.h"
#include "cluster/task.h"

static td_step_entry *get(td_step_table *t, int64_t id, uint64_t starter) {
  td_step_entry *e;
  assert_null(td_step_table_get(t, id, starter, &e));
  return e;
}

static void test_an_entry_is_shared_until_cleaned(void **state) {
  td_task task = {0};
  td_step_table *t = td_step_table_create(&task);
  td_step_entry *early = get(t, 7, 0), *run = get(t, 7, 1), *none;
  assert_ptr_equal(early, run);
  assert_int_equal(td_step_table_count(t), 1);
  td_step_table_cleanup(t, 7);
  assert_int_equal(td_step_table_count(t), 0);
  td_status s = td_step_table_get(t, 7, 0, &none);
  assert_int_equal(td_status_code(s), TD_ABORTED);
  assert_string_equal(td_status_message(s), "Cleanup 7");
  assert_true(td_status_is_derived(s));
  td_status_free(s);
  td_step_entry_release(early);
  td_step_entry_release(run);
  td_step_table_cleanup(t, 8); /* never heard of */
  td_step_table_cancel(t, 9);
  td_step_table_destroy(t);
}

static void test_who_waits_in_vain_leaves_nothing(void **state) {
  td_task task = {0};
  td_step_table *t = td_step_table_create(&task);
  td_step_entry *one = get(t, 1, 0), *two = get(t, 1, 0);
  td_step_table_abandon(t, one);
  assert_int_equal(td_step_table_count(t), 1); /* the other still waits */
  td_step_table_abandon(t, two);
  assert_int_equal(td_step_table_count(t), 0);
  one = get(t, 1, 0); /* not remembered as cleaned */
  td_step_entry_release(get(t, 1, 1));
  td_step_table_abandon(t, one);
  assert_int_equal(td_step_table_count(t), 1); /* it runs */
  one = get(t, 2, 0);
  td_step_table_cleanup(t, 2);
  td_step_table_abandon(t, one);
  assert_int_equal(td_step_table_count(t), 1);
  td_step_table_destroy(t);
}

static void test_steps_of_a_master_that_is_gone(void **state) {
  td_task task = {0};
  td_step_table *t = td_step_table_create(&task);
  td_step_entry *running = get(t, 1, 5);
  td_step_entry_release(get(t, 2, 5));
  td_step_entry_release(get(t, 3, 6)); /* another's */
  td_step_entry_release(get(t, 4, 0)); /* nobody's yet */
  td_step_table_cleanup_of(t, 5);
  assert_int_equal(td_step_table_count(t), 2);
  assert_true(td_cancellation_is_cancelled(running->cancellation));
  td_step_entry_release(running);
  td_step_table_cleanup_of(t, 5);
  assert_int_equal(td_step_table_count(t), 2);
  td_step_table_destroy(t);
}

static void test_waiting_steps_are_capped(void **state) {
  td_task task = {0};
  td_step_table *t = td_step_table_create(&task);
  td_step_entry *refused;
  for (int64_t id = 1; id <= 65536; id++) td_step_entry_release(get(t, id, 0));
  td_status s = td_step_table_get(t, 70000, 0, &refused);
  assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
  td_status_free(s);
  td_step_entry_release(get(t, 70000, 1)); /* a RunGraph is let in */
  td_step_table_cleanup(t, 1);
  td_step_entry_release(get(t, 70001, 0));
  td_step_table_destroy(t);
}

static void test_the_oldest_cleaned_step_is_forgotten_first(void **state) {
  td_task task = {0};
  td_step_table *t = td_step_table_create(&task);
  for (int64_t id = 1; id <= 8193; id++) td_step_table_cleanup(t, id);
  td_step_entry *e = get(t, 1, 0);
  td_step_entry_release(e);
  td_status s = td_step_table_get(t, 2, 0, &e);
  assert_int_equal(td_status_code(s), TD_ABORTED);
  td_status_free(s);
  td_step_table_destroy(t);
}

/* ---- a receive that waits in a step ---- */

typedef struct waiting {
  td_recv recv;
  atomic_int calls;
  td_status status;
} waiting;

static void recv_done(td_recv *r, td_status status, td_tensor *t, bool is_dead) {
  waiting *w = TD_CONTAINER_OF(r, waiting, recv);
  td_tensor_release(t);
  w->status = status;
  atomic_fetch_add(&w->calls, 1);
}

static void wait_in(td_step_entry *e, waiting *w) {
  static const char text[] =
      "/job:a/replica:0/task:0/device:CPU:0;0000000000000001;/job:a/replica:0/task:0/device:CPU:0;x;0:0";
  td_rendezvous_key key;
  td_frame_id frame;
  assert_null(td_rendezvous_key_parse(td_str_of(text), &key, &frame));
  *w = (waiting){.recv.done = recv_done};
  td_rendezvous_recv(td_step_rendezvous_local(e->rendezvous), &key, frame, &w->recv);
}

static void ended_with(waiting *w, const char *text) {
  assert_int_equal(atomic_load(&w->calls), 1);
  if (!strstr(td_status_message(w->status), text)) fail_msg("%s", td_status_message(w->status));
  assert_true(td_status_is_derived(w->status));
  td_status_free(w->status);
}

static void test_what_waits_ends(void **state) {
  td_task task = {0};
  td_step_table *t = td_step_table_create(&task);
  waiting w[3];
  for (int64_t id = 1; id <= 3; id++) {
    td_step_entry *e = get(t, id, 0);
    wait_in(e, &w[id - 1]);
    td_step_entry_release(e);
  }
  td_step_table_cleanup(t, 1);
  ended_with(&w[0], "Cleanup 1");
  td_step_entry *e = get(t, 2, 0);
  td_step_table_cancel(t, 2);
  assert_true(td_cancellation_is_cancelled(e->cancellation));
  td_step_entry_release(e);
  ended_with(&w[1], "Step 2 cancelled");
  assert_int_equal(atomic_load(&w[2].calls), 0);
  td_step_table_destroy(t);
  ended_with(&w[2], "shutting down");
}

typedef struct shared {
  td_step_table *t;
  int64_t first;
} shared;

static void *churn(void *arg) {
  shared *s = arg;
  for (int64_t id = 1; id <= 2000; id++) {
    td_step_entry *e;
    td_status status = td_step_table_get(s->t, id, id % 2, &e);
    if (!status) td_step_entry_release(e);
    td_status_free(status);
    if (id % 3 == s->first) td_step_table_cancel(s->t, id);
    td_step_table_cleanup(s->t, id - s->first);
  }
  return NULL;
}

static void test_threads(void **state) {
  td_task task = {0};
  td_step_table *t = td_step_table_create(&task);
  pthread_t threads[4];
  shared s[4];
  for (int i = 0; i < 4; i++) {
    s[i] = (shared){.t = t, .first = i};
    assert_int_equal(pthread_create(&threads[i], NULL, churn, &s[i]), 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  td_step_table_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_entry_is_shared_until_cleaned),
      cmocka_unit_test(test_who_waits_in_vain_leaves_nothing),
      cmocka_unit_test(test_steps_of_a_master_that_is_gone),
      cmocka_unit_test(test_waiting_steps_are_capped),
      cmocka_unit_test(test_the_oldest_cleaned_step_is_forgotten_first),
      cmocka_unit_test(test_what_waits_ends),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "cluster/control.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"

typedef struct job {
  td_work work;
  sem_t *started, *go;
  atomic_int *done;
} job;

static void run(td_work *w) {
  job *j = TD_CONTAINER_OF(w, job, work);
  if (j->started) sem_post(j->started);
  if (j->go) sem_wait(j->go);
  atomic_fetch_add(j->done, 1);
}

static void test_runs_and_stops(void **state) {
  td_control *c = td_control_create("t", 4);
  atomic_int done = 0;
  job jobs[100];
  int accepted = 0;
  for (int i = 0; i < 100; i++) {
    jobs[i] = (job){.work.run = run, .done = &done};
    accepted += td_control_run(c, &jobs[i].work);
  }
  assert_true(accepted >= 4);
  td_control_stop(c);
  assert_int_equal(atomic_load(&done), accepted); /* what was accepted has run */
  assert_false(td_control_run(c, &jobs[0].work));
  td_control_destroy(c);
  td_control_destroy(NULL);
}

static void test_refuses_when_busy(void **state) {
  td_control *c = td_control_create("t", 2);
  atomic_int done = 0;
  sem_t started, go;
  sem_init(&started, 0, 0);
  sem_init(&go, 0, 0);
  job jobs[3];
  for (int i = 0; i < 3; i++) jobs[i] = (job){.work.run = run, .started = &started, .go = &go, .done = &done};
  assert_true(td_control_run(c, &jobs[0].work));
  assert_true(td_control_run(c, &jobs[1].work));
  sem_wait(&started);
  sem_wait(&started);
  assert_false(td_control_run(c, &jobs[2].work)); /* both threads wait */
  sem_post(&go);
  sem_post(&go);
  while (atomic_load(&done) < 2) sched_yield();
  sem_post(&go);
  while (!td_control_run(c, &jobs[2].work)) sched_yield(); /* a thread is free again */
  td_control_stop(c);
  assert_int_equal(atomic_load(&done), 3);
  td_control_destroy(c);
  sem_destroy(&started);
  sem_destroy(&go);
}

static void test_latch(void **state) {
  td_latch l;
  td_latch_init(&l, 3);
  td_latch_done(&l, TD_STATUS_OK);
  td_latch_done(&l, td_status_derive(td_cancelled("consequence")));
  uint64_t begin = td_now_ns();
  assert_false(td_latch_wait_until(&l, begin + 20000000));
  assert_true(td_now_ns() - begin >= 20000000);
  td_latch_done(&l, td_internal("cause"));
  assert_true(td_latch_wait_until(&l, TD_NO_DEADLINE));
  td_status s = td_latch_wait(&l);
  assert_string_equal(td_status_message(s), "cause"); /* the root error is preferred */
  td_status_free(s);
  assert_null(td_latch_take(&l)); /* it was handed over */
  td_latch_deinit(&l);
  td_latch_init(&l, 1);
  td_latch_done(&l, td_internal("nobody asks"));
  td_latch_deinit(&l);
}

typedef struct counted {
  td_work work;
  td_latch *latch;
} counted;

static void count_down(td_work *w) { td_latch_done(TD_CONTAINER_OF(w, counted, work)->latch, TD_STATUS_OK); }

/* The waiter lets go of the latch at once: nobody may touch it then. */
static void test_latch_is_free_after_wait(void **state) {
  td_control *c = td_control_create("t", 4);
  for (int i = 0; i < 300; i++) {
    td_latch *l = td_new(td_latch);
    counted work[3];
    td_latch_init(l, 3);
    for (int k = 0; k < 3; k++) {
      work[k] = (counted){.work.run = count_down, .latch = l};
      if (!td_control_run(c, &work[k].work)) td_latch_done(l, TD_STATUS_OK);
    }
    assert_null(td_latch_wait(l));
    td_latch_deinit(l);
    td_free(l);
  }
  td_control_stop(c);
  td_control_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_runs_and_stops),
      cmocka_unit_test(test_refuses_when_busy),
      cmocka_unit_test(test_latch),
      cmocka_unit_test(test_latch_is_free_after_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

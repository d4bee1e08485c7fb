#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/turn.h"
#include "rpc/loop.h"

typedef struct counter_work {
  td_work work;
  int *counter, value;
} counter_work;

static void count_run(td_work *w) {
  counter_work *c = TD_CONTAINER_OF(w, counter_work, work);
  assert_int_equal(*c->counter, c->value); /* in the order of posting */
  ++*c->counter;
}

static void posts_run_in_order(void **state) {
  td_loop *l;
  assert_null(td_loop_create("test", NULL, &l));
  enum { N = 10000 };
  counter_work *items = td_new_array(counter_work, N);
  int counter = 0;
  for (int i = 0; i < N; i++) {
    items[i] = (counter_work){.work.run = count_run, .counter = &counter, .value = i};
    td_loop_post(l, &items[i].work);
    if (i % 1000 == 0) usleep(200); /* sometimes asleep, sometimes spinning */
  }
  td_loop_stop(l); /* what was posted has run */
  assert_int_equal(counter, N);
  td_loop_destroy(l);
  td_free(items);
}

typedef struct many_poster {
  td_loop *loop;
  sem_t *done;
} many_poster;

typedef struct sem_work {
  td_work work;
  sem_t *done;
  td_loop *loop;
} sem_work;

static void sem_run(td_work *w) {
  sem_work *s = TD_CONTAINER_OF(w, sem_work, work);
  assert_true(td_loop_is_current(s->loop));
  assert_ptr_equal(td_loop_current(), s->loop);
  sem_post(s->done);
}

static void *ping_pong(void *arg) {
  many_poster *p = arg;
  sem_t done;
  sem_init(&done, 0, 0);
  for (int i = 0; i < 3000; i++) { /* each waits for its own: a lost wake-up hangs here */
    sem_work w = {.work.run = sem_run, .done = &done, .loop = p->loop};
    td_loop_post(p->loop, &w.work);
    sem_wait(&done);
  }
  sem_destroy(&done);
  return NULL;
}

static void no_wake_up_is_lost(void **state) {
  td_loop *l;
  assert_null(td_loop_create("test", NULL, &l));
  many_poster p = {.loop = l};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, ping_pong, &p), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  td_loop_stop(l);
  td_loop_destroy(l);
}

enum { TIMERS = 500 };
typedef struct timers {
  td_work work;
  td_loop *loop;
  td_timer timers[TIMERS];
  uint64_t last_ns;
  int fired, expected;
  sem_t done;
} timers;

static timers *all_timers;

static void fire(td_timer *t) {
  timers *a = all_timers;
  assert_true(t->at_ns >= a->last_ns);
  assert_true(td_now_ns() >= t->at_ns);
  a->last_ns = t->at_ns;
  if (++a->fired == a->expected) sem_post(&a->done);
}

static void timers_start(td_work *w) {
  timers *a = TD_CONTAINER_OF(w, timers, work);
  uint64_t now = td_now_ns();
  for (int i = 0; i < TIMERS; i++) {
    a->timers[i].fire = fire;
    td_timer_start(a->loop, &a->timers[i], now + (uint64_t)(i * 7919 % TIMERS) * 50000);
  }
  for (int i = 0; i < TIMERS; i += 3) td_timer_stop(a->loop, &a->timers[i]);
  for (int i = 1; i < TIMERS; i += 3) td_timer_start(a->loop, &a->timers[i], now + (uint64_t)(i * 31 % 97) * 100000);
  for (int i = 0; i < TIMERS; i++) a->expected += a->timers[i].slot != 0;
  td_timer_stop(a->loop, &a->timers[0]); /* twice is fine */
}

static void timers_fire_in_order(void **state) {
  td_loop *l;
  assert_null(td_loop_create("test", NULL, &l));
  timers *a = td_new(timers);
  all_timers = a;
  a->loop = l;
  a->work.run = timers_start;
  sem_init(&a->done, 0, 0);
  td_loop_post(l, &a->work);
  sem_wait(&a->done);
  usleep(20000);
  td_loop_stop(l);
  assert_int_equal(a->fired, a->expected);
  assert_true(a->fired < TIMERS);
  sem_destroy(&a->done);
  td_loop_destroy(l);
  td_free(a);
}

typedef struct pipes {
  td_work work;
  td_loop *loop;
  td_watch watches[2];
  int ends[2][2];
  int calls;
  sem_t ready;
} pipes;

static void pipe_ready(td_watch *w, uint32_t events);

/* Both are ready in one batch; whoever runs first stops both: the other must not run. */
static pipes *both_pipes;
static void pipe_ready(td_watch *w, uint32_t events) {
  pipes *p = both_pipes;
  p->calls++;
  td_watch_stop(p->loop, &p->watches[0]);
  td_watch_stop(p->loop, &p->watches[1]);
  sem_post(&p->ready);
}

static void pipes_start(td_work *w) {
  pipes *p = TD_CONTAINER_OF(w, pipes, work);
  for (int i = 0; i < 2; i++) {
    p->watches[i] = (td_watch){.ready = pipe_ready, .fd = p->ends[i][0]};
    assert_null(td_watch_start(p->loop, &p->watches[i], EPOLLIN));
  }
}

static void stopped_watches_do_not_run(void **state) {
  pipes p = {.work.run = pipes_start};
  both_pipes = &p;
  sem_init(&p.ready, 0, 0);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(pipe(p.ends[i]), 0);
    assert_int_equal(write(p.ends[i][1], "x", 1), 1);
  }
  assert_null(td_loop_create("test", NULL, &p.loop));
  td_loop_post(p.loop, &p.work);
  sem_wait(&p.ready);
  td_loop_stop(p.loop);
  assert_int_equal(p.calls, 1);
  td_loop_destroy(p.loop);
  for (int i = 0; i < 2; i++) close(p.ends[i][0]), close(p.ends[i][1]);
  sem_destroy(&p.ready);
}

typedef struct long_work {
  td_work work, other;
  td_loop *loop;
  int ends[2];
  bool alone, posted, readable; /* the answers: with nobody else, with a post, with something to read */
  td_watch watch;
  sem_t done;
} long_work;

static void do_nothing(td_work *w) {}
static void drain_pipe(td_watch *w, uint32_t events) {
  char c;
  long_work *l = TD_CONTAINER_OF(w, long_work, watch);
  if (read(w->fd, &c, 1) == 1) sem_post(&l->done);
}

static void compute_long(td_work *w) {
  long_work *l = TD_CONTAINER_OF(w, long_work, work);
  l->alone = td_turn_is_wanted();
  l->watch = (td_watch){.ready = drain_pipe, .fd = l->ends[0]};
  assert_null(td_watch_start(l->loop, &l->watch, EPOLLIN));
  assert_int_equal(write(l->ends[1], "x", 1), 1);
  l->readable = td_turn_is_wanted();
  l->other.run = do_nothing;
  td_loop_post(l->loop, &l->other);
  l->posted = td_turn_is_wanted();
}

static void long_work_sees_who_waits(void **state) {
  long_work l = {.work.run = compute_long};
  sem_init(&l.done, 0, 0);
  assert_int_equal(pipe(l.ends), 0);
  assert_null(td_loop_create("test", NULL, &l.loop));
  td_loop_post(l.loop, &l.work);
  sem_wait(&l.done); /* asking takes nothing away: the pipe was read */
  td_loop_stop(l.loop);
  assert_false(l.alone);
  assert_true(l.readable);
  assert_true(l.posted);
  assert_true(td_turn_is_wanted()); /* of a thread that nobody owns: turns end */
  td_loop_destroy(l.loop);
  close(l.ends[0]), close(l.ends[1]);
  sem_destroy(&l.done);
}

static void an_idle_loop_sleeps(void **state) {
  td_loop *l;
  assert_null(td_loop_create("test", NULL, &l));
  uint64_t spent = UINT64_MAX;
  for (int i = 0; i < 50 && spent >= 20000000; i++) { /* at first it starts, which may take long */
    uint64_t before = td_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    usleep(200000);
    spent = td_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before;
  }
  assert_true(spent < 20000000);
  td_loop_stop(l);
  td_loop_destroy(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(posts_run_in_order),   cmocka_unit_test(no_wake_up_is_lost),
      cmocka_unit_test(timers_fire_in_order), cmocka_unit_test(stopped_watches_do_not_run),
      cmocka_unit_test(an_idle_loop_sleeps),  cmocka_unit_test(long_work_sees_who_waits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

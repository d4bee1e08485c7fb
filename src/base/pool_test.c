#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

static const double MS = 1e6; /* a unit's cost, in nanoseconds: every unit is worth a thread */

/* ---- submitted work ---- */

typedef struct counted {
  td_work work;
  atomic_int *count;
  td_pool *pool;
  int children;
} counted;

static void run_counted(td_work *w) {
  counted *c = TD_CONTAINER_OF(w, counted, work);
  for (int i = 0; i < c->children; i++) {
    counted *child = td_new(counted);
    *child = (counted){.work.run = run_counted, .count = c->count, .pool = c->pool};
    td_pool_submit(c->pool, &child->work);
  }
  atomic_fetch_add(c->count, 1);
  td_free(c); /* a work item may free itself */
}

static td_work *make_counted(td_pool *p, atomic_int *count, int children) {
  counted *c = td_new(counted);
  *c = (counted){.work.run = run_counted, .count = count, .pool = p, .children = children};
  return &c->work;
}

static void submit_counted(td_pool *p, atomic_int *count, int children) {
  td_pool_submit(p, make_counted(p, count, children));
}

static void submit_three(td_pool *p, atomic_int *count, int children) {
  td_work *first = make_counted(p, count, children);
  first->next = make_counted(p, count, children);
  first->next->next = make_counted(p, count, children);
  td_pool_submit_all(p, first);
}

static void test_submit(void **state) {
  atomic_int count = 0;
  td_pool *p = td_pool_create("test", "/job:a/task:0", 3);
  assert_int_equal(td_pool_threads(p), 3);
  for (int i = 0; i < 500; i++) submit_counted(p, &count, 3);
  td_pool_stop(p); /* everything submitted runs, also what items submit meanwhile */
  assert_int_equal(count, 2000);
  submit_counted(p, &count, 2); /* inline now */
  assert_int_equal(count, 2003);
  submit_three(p, &count, 1);
  assert_int_equal(count, 2009);
  td_pool_stop(p);
  td_pool_destroy(p);
  td_pool_destroy(NULL);
  assert_int_equal(td_pool_threads(NULL), 1);
}

typedef struct seen {
  td_work work;
  td_pool *pool;
  const char *task;
  int order, *next;
  bool on_pool, out_of_order;
} seen;

static void run_seen(td_work *w) {
  seen *s = TD_CONTAINER_OF(w, seen, work);
  s->on_pool = td_pool_current() == s->pool;
  s->task = td_log_task();
  s->out_of_order = s->order != (*s->next)++;
}

static void test_order_and_thread(void **state) {
  enum { N = 50 };
  seen items[N];
  int next = 0;
  td_pool *p = td_pool_create("a name longer than a thread's", "/job:a/task:0", 1);
  for (int i = 0; i < N; i++) {
    items[i] = (seen){.work.run = run_seen, .pool = p, .order = i, .next = &next};
    td_pool_submit(p, &items[i].work);
  }
  td_pool_destroy(p);
  for (int i = 0; i < N; i++) {
    assert_true(items[i].on_pool);
    assert_false(items[i].out_of_order);
    assert_string_equal(items[i].task, "/job:a/task:0");
  }
  assert_null(td_pool_current());
}

typedef struct member {
  td_work work;
  pthread_barrier_t *meeting;
} member;

/* Twice: then `w` may be gone. */
static void run_member(td_work *w) {
  pthread_barrier_t *meeting = TD_CONTAINER_OF(w, member, work)->meeting;
  pthread_barrier_wait(meeting);
  pthread_barrier_wait(meeting);
}

static void test_submit_all(void **state) {
  enum { N = 3 };
  pthread_barrier_t meeting;
  pthread_barrier_init(&meeting, NULL, N + 1);
  td_pool *p = td_pool_create("test", NULL, N);
  for (int round = 0; round < 200; round++) {
    member members[N];
    for (int i = 0; i < N; i++) {
      td_work *next = i + 1 < N ? &members[i + 1].work : NULL;
      members[i] = (member){.work = {.run = run_member, .next = next}, .meeting = &meeting};
    }
    td_pool_submit_all(p, &members[0].work);
    pthread_barrier_wait(&meeting); /* each has a thread of its own */
    pthread_barrier_wait(&meeting);
  }
  td_pool_destroy(p);
  pthread_barrier_destroy(&meeting);
}

static void test_default_size(void **state) {
  td_pool *p = td_pool_create("test", NULL, 0);
  assert_true(td_pool_threads(p) >= 1);
  td_pool_destroy(p);
}

/* ---- parallel loops ---- */

typedef struct marks {
  atomic_int *hits;
  int64_t n;
  atomic_bool outside;
} marks;

static void mark(void *arg, int64_t begin, int64_t end) {
  marks *m = arg;
  if (begin < 0 || begin >= end || end > m->n) atomic_store(&m->outside, true);
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&m->hits[i], 1);
}

static void check_covers(td_pool *p, int64_t n, double unit_ns) {
  marks m = {.hits = td_new_array(atomic_int, (size_t)n), .n = n};
  td_pool_parallel_for(p, n, unit_ns, mark, &m);
  for (int64_t i = 0; i < n; i++) assert_int_equal(m.hits[i], 1);
  assert_false(m.outside);
  td_free(m.hits);
}

static void test_covers_each_once(void **state) {
  td_pool *p = td_pool_create("test", NULL, 4);
  for (int64_t n = 0; n < 70; n++) {
    check_covers(p, n, MS);
    check_covers(p, n, 1000);
    check_covers(p, n, 0);
    check_covers(p, n, __builtin_inf());
    check_covers(p, n, __builtin_nan(""));
    check_covers(p, n, -1);
    check_covers(NULL, n, MS);
  }
  check_covers(p, 100003, 1000);
  td_pool_stop(p);
  check_covers(p, 100, MS); /* a stopped pool: inline */
  td_pool_destroy(p);
}

typedef struct extent {
  pthread_mutex_t lock;
  int64_t total, n;
  bool bad;
} extent;

static void add_extent(void *arg, int64_t begin, int64_t end) {
  extent *e = arg;
  pthread_mutex_lock(&e->lock);
  e->bad |= begin < 0 || begin >= end || end > e->n;
  e->total += end - begin;
  pthread_mutex_unlock(&e->lock);
}

/* Ranges so long that a sum past the end would overflow. */
static void test_huge_range(void **state) {
  td_pool *p = td_pool_create("test", NULL, 3);
  const int64_t sizes[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX / 2 + 7};
  for (size_t i = 0; i < TD_COUNT(sizes); i++) {
    extent e = {.n = sizes[i]};
    pthread_mutex_init(&e.lock, NULL);
    td_pool_parallel_for(p, sizes[i], 1, add_extent, &e);
    assert_true(e.total == sizes[i]);
    assert_false(e.bad);
    pthread_mutex_destroy(&e.lock);
  }
  td_pool_destroy(p);
}

/* Each piece waits until all threads are inside one: passes only if `threads` run at once. */
typedef struct meeting {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int inside, wanted;
  bool met, timed_out;
} meeting;

static void meet(void *arg, int64_t begin, int64_t end) {
  meeting *m = arg;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 400;
  pthread_mutex_lock(&m->lock);
  if (++m->inside == m->wanted) {
    m->met = true;
    pthread_cond_broadcast(&m->changed);
  }
  while (!m->met && !m->timed_out)
    if (pthread_cond_timedwait(&m->changed, &m->lock, &until)) m->timed_out = true;
  pthread_mutex_unlock(&m->lock);
}

static bool meets(td_pool *p, int threads) {
  meeting m = {.wanted = threads};
  pthread_mutex_init(&m.lock, NULL);
  pthread_cond_init(&m.changed, NULL);
  td_pool_parallel_for(p, 64, MS, meet, &m);
  pthread_cond_destroy(&m.changed);
  pthread_mutex_destroy(&m.lock);
  return m.met && !m.timed_out;
}

/* Loops that follow each other at once, from the pool's first moment on: a helper that has just finished one counts
 * for the next although it has not gone to sleep again. */
static void test_uses_its_threads(void **state) {
  for (int round = 0; round < 20; round++) {
    td_pool *p = td_pool_create("test", NULL, 3);
    for (int i = 0; i < 20; i++) assert_true(meets(p, 3));
    td_pool_destroy(p);
  }
}

static void nested(void *arg, int64_t begin, int64_t end) {
  td_pool *p = arg;
  for (int64_t i = begin; i < end; i++) check_covers(p, 9, MS);
}

static void twice_nested(void *arg, int64_t begin, int64_t end) {
  td_pool *p = arg;
  for (int64_t i = begin; i < end; i++) td_pool_parallel_for(p, 5, MS, nested, p);
}

typedef struct loop_work {
  td_work work;
  td_pool *pool;
  atomic_int *left;
} loop_work;

static void run_loop(td_work *w) {
  loop_work *l = TD_CONTAINER_OF(w, loop_work, work);
  td_pool_parallel_for(l->pool, 7, MS, nested, l->pool);
  atomic_fetch_sub(l->left, 1);
}

/* Loops inside loops and from every pool thread at once: nobody waits for a helper that no thread will start. */
static void test_nested_and_from_pool(void **state) {
  enum { ITEMS = 64 };
  loop_work items[ITEMS];
  atomic_int left = ITEMS;
  td_pool *p = td_pool_create("test", NULL, 3);
  for (int i = 0; i < ITEMS; i++) {
    items[i] = (loop_work){.work.run = run_loop, .pool = p, .left = &left};
    td_pool_submit(p, &items[i].work);
  }
  td_pool_parallel_for(p, 6, MS, twice_nested, p);
  while (left) usleep(1000);
  assert_true(meets(p, 3)); /* the count of free threads is still right: */
  td_pool_destroy(p);
}

static void hold(td_work *w) {
  counted *c = TD_CONTAINER_OF(w, counted, work);
  atomic_fetch_add(c->count, 1);
  while (atomic_load(c->count) < 100) usleep(500);
}

/* Threads that work on something else are not waited for, and a loop does not queue behind them. */
static void test_busy_pool(void **state) {
  atomic_int count = 0;
  td_pool *p = td_pool_create("test", NULL, 2);
  counted items[3];
  for (int i = 0; i < 3; i++) {
    items[i] = (counted){.work.run = hold, .count = &count};
    td_pool_submit(p, &items[i].work);
  }
  while (atomic_load(&count) < 2) usleep(500);
  for (int i = 0; i < 100; i++) check_covers(p, 8, MS);
  atomic_store(&count, 100);
  td_pool_destroy(p);
}

typedef struct tiny {
  td_work work;
  float factor, product;
} tiny;

static void multiply(td_work *w) {
  tiny *t = TD_CONTAINER_OF(w, tiny, work);
  volatile float small = 1e-30f;
  t->product = small * t->factor;
}

static void test_flushes_denormals(void **state) {
  tiny t = {.work.run = multiply, .factor = 1e-10f};
  td_pool *p = td_pool_create("test", NULL, 1);
  td_pool_submit(p, &t.work);
  td_pool_stop(p);
  assert_true(t.product == 0);
  td_pool_destroy(p);
}

static void *call_loops(void *arg) {
  for (int i = 0; i < 100; i++) check_covers(arg, 16, MS);
  return NULL;
}

static void test_many_callers(void **state) {
  td_pool *p = td_pool_create("test", NULL, 2);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, call_loops, p), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_true(meets(p, 2));
  td_pool_destroy(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_submit),
      cmocka_unit_test(test_order_and_thread),
      cmocka_unit_test(test_submit_all),
      cmocka_unit_test(test_default_size),
      cmocka_unit_test(test_covers_each_once),
      cmocka_unit_test(test_huge_range),
      cmocka_unit_test(test_uses_its_threads),
      cmocka_unit_test(test_nested_and_from_pool),
      cmocka_unit_test(test_busy_pool),
      cmocka_unit_test(test_many_callers),
      cmocka_unit_test(test_flushes_denormals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/denormals.h"
#include "base/log.h"
#include "base/mem.h"

enum { MAX_THREADS = 1024 };
static const double PIECE_NS = 20000;

struct td_pool {
  int thread_count;
  const char *task;
  char name[12];
  pthread_t *threads;
  pthread_mutex_t lock;
  pthread_cond_t wake, helper_done;
  /* guarded by lock */
  td_work *head, **tail;
  int queued; /* items in the queue */
  int idle;   /* threads that wait on `wake` (or were signalled and have not come back yet) */
  int busy;   /* threads with an item */
  bool stopping, joined;
};

static int usable_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set)) return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? n : 1;
}

static _Thread_local td_pool *current_pool;

td_pool *td_pool_current(void) { return current_pool; }

/* One parallel loop. It lives on the caller's stack until every helper that took a work item has left it; helpers
 * that were never started are withdrawn from the queue. */
typedef struct parallel_loop {
  void (*fn)(void *arg, int64_t begin, int64_t end);
  void *arg;
  int64_t n, piece, pieces;
  _Atomic int64_t next; /* the next piece, counted in pieces: a sum of units could overflow */
} parallel_loop;

typedef struct loop_helper {
  td_work work;
  parallel_loop *loop;
  enum { QUEUED, RUNNING, DONE } state; /* guarded by the pool's lock */
} loop_helper;

static void run_pieces(parallel_loop *l) {
  for (;;) {
    /* relaxed: only the numbers must differ; what the pieces wrote is published by the pool's lock */
    int64_t k = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed);
    if (k >= l->pieces) return;
    int64_t begin = k * l->piece;
    l->fn(l->arg, begin, begin + TD_MIN(l->piece, l->n - begin));
  }
}

/* Only marks a work item as a loop's helper: thread_main() runs those itself. */
static void helper_run(td_work *w) { (void)w; }

/* Computation that becomes ready does not take the core from whoever runs there (the event loop that handed it over,
 * most of all, which has more to send): it starts where a core is idle, or when that thread sleeps. Shares of cores
 * stay as they are. Where the system refuses, threads preempt as usual. */
static void wake_without_preempting(void) {
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){0});
}

/* A helper is free again in the same critical section in which it reports: the next loop, which often follows at
 * once, counts on it although its thread has not gone back to sleep. */
static void *thread_main(void *arg) {
  td_pool *p = arg;
  current_pool = p;
  td_log_set_task(p->task);
  td_flush_denormals();
  wake_without_preempting();
  pthread_mutex_lock(&p->lock);
  for (;;) {
    while (!p->head && !p->stopping) {
      p->idle++;
      pthread_cond_wait(&p->wake, &p->lock);
      p->idle--;
    }
    td_work *w = p->head;
    if (!w) break;
    p->head = w->next;
    if (!p->head) p->tail = &p->head;
    p->queued--;
    p->busy++;
    loop_helper *h = w->run == helper_run ? TD_CONTAINER_OF(w, loop_helper, work) : NULL;
    if (h) h->state = RUNNING;
    pthread_mutex_unlock(&p->lock);
    if (h)
      run_pieces(h->loop);
    else
      w->run(w);
    pthread_mutex_lock(&p->lock);
    p->busy--;
    if (!h) continue;
    h->state = DONE; /* the caller may return, and `h` be gone, once the lock is released */
    pthread_cond_broadcast(&p->helper_done);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

td_pool *td_pool_create(const char *name, const char *task, int threads) {
  td_pool *p = td_new(td_pool);
  if (threads <= 0) threads = usable_cores();
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  p->task = task;
  snprintf(p->name, sizeof p->name, "%s", name);
  p->tail = &p->head;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->helper_done, NULL);
  p->threads = td_new_array(pthread_t, (size_t)threads);
  for (int i = 0; i < threads; i++) {
    if (pthread_create(&p->threads[i], NULL, thread_main, p)) break;
    pthread_setname_np(p->threads[i], p->name);
    p->thread_count++;
  }
  return p;
}

void td_pool_stop(td_pool *p) {
  pthread_mutex_lock(&p->lock);
  bool first = !p->joined;
  p->stopping = p->joined = true;
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
  if (!first) return;
  for (int i = 0; i < p->thread_count; i++) pthread_join(p->threads[i], NULL);
}

void td_pool_destroy(td_pool *p) {
  if (!p) return;
  td_pool_stop(p);
  pthread_cond_destroy(&p->wake);
  pthread_cond_destroy(&p->helper_done);
  pthread_mutex_destroy(&p->lock);
  td_free(p->threads);
  td_free(p);
}

int td_pool_threads(const td_pool *p) { return p ? p->thread_count : 1; }

void td_pool_submit_all(td_pool *p, td_work *first) {
  int count = 1;
  td_work *last = first;
  for (; last->next; last = last->next) count++;
  pthread_mutex_lock(&p->lock);
  bool runs = p->thread_count && !p->stopping;
  int sleepers = runs ? TD_MIN(p->idle, count) : 0;
  if (runs) {
    *p->tail = first;
    p->tail = &last->next;
    p->queued += count;
  }
  pthread_mutex_unlock(&p->lock);
  /* not before: a thread that wakes on this core would take its place, only to wait for the lock */
  for (int i = 0; i < sleepers; i++) pthread_cond_signal(&p->wake);
  for (td_work *w = runs ? NULL : first, *next; w; w = next) {
    next = w->next;
    w->run(w);
  }
}

void td_pool_submit(td_pool *p, td_work *w) {
  w->next = NULL;
  td_pool_submit_all(p, w);
}

/* Takes `w` out of the queue if it still waits there. */
static bool withdraw(td_pool *p, td_work *w) {
  for (td_work **at = &p->head; *at; at = &(*at)->next) {
    if (*at != w) continue;
    *at = w->next;
    if (!*at) p->tail = at;
    p->queued--;
    return true;
  }
  return false;
}

void td_pool_parallel_for(td_pool *p, int64_t n, double unit_ns, void (*fn)(void *arg, int64_t begin, int64_t end),
                          void *arg) {
  if (n <= 0) return;
  double total = unit_ns * (double)n;
  int threads = td_pool_threads(p);
  if (!p || threads < 2 || n < 2 || !(total >= 2 * PIECE_NS)) {
    fn(arg, 0, n);
    return;
  }
  double pieces = TD_MIN(total / PIECE_NS, (double)threads * 4);
  parallel_loop loop = {.fn = fn, .arg = arg, .n = n, .piece = (int64_t)((double)n / pieces)};
  if ((double)loop.piece * pieces < (double)n) loop.piece++;
  loop.pieces = (n - 1) / loop.piece + 1;
  loop_helper helpers[64];
  int want = TD_MIN(threads - 1, (int)TD_COUNT(helpers));
  if (want > loop.pieces - 1) want = (int)loop.pieces - 1; /* the caller takes one itself */
  pthread_mutex_lock(&p->lock);
  /* Threads that neither work nor have work waiting for them; not only sleeping ones: see thread_main(). */
  int spare = p->stopping ? 0 : p->thread_count - p->busy - p->queued;
  if (want > spare) want = TD_MAX(spare, 0);
  int sleepers = TD_MIN(want, p->idle);
  for (int i = 0; i < want; i++) {
    helpers[i] = (loop_helper){.work.run = helper_run, .loop = &loop, .state = QUEUED};
    *p->tail = &helpers[i].work;
    p->tail = &helpers[i].work.next;
    p->queued++;
  }
  pthread_mutex_unlock(&p->lock);
  for (int i = 0; i < sleepers; i++) pthread_cond_signal(&p->wake);
  run_pieces(&loop);
  if (!want) return;
  pthread_mutex_lock(&p->lock);
  for (int i = 0; i < want; i++) {
    if (helpers[i].state == QUEUED && withdraw(p, &helpers[i].work)) continue;
    while (helpers[i].state != DONE) pthread_cond_wait(&p->helper_done, &p->lock);
  }
  pthread_mutex_unlock(&p->lock);
}

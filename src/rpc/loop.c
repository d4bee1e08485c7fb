#include "rpc/loop.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/denormals.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/turn.h"
#include "rpc/loop_internal.h"

enum {
  BATCH = 128,            /* events taken at once */
  SPIN_NS = 20 * 1000,    /* after the last byte: about what falling asleep and being woken costs */
  CROWDED_NS = 15 * 1000, /* a yield that took so long gave the core to another task */
  SCORE_MAX = 16,         /* see spin_pays() */
  PROBE_EVERY = 64,
  LAST_TURNS = 16, /* for what turn ends leave behind when the loop stops */
};

struct td_loop {
  /* immutable */
  int epoll_fd, event_fd;
  pthread_t thread;
  const char *task;
  char name[16];

  /* any thread */
  _Atomic(td_work *) posted; /* a stack, newest first */
  _Atomic bool sleeping;     /* the loop sleeps, or is about to: a post has to wake it */

  /* loop thread only */
  bool stopping;
  uint64_t now_ns;
  td_timer **heap;
  uint32_t timer_count, timer_capacity;
  td_work *ends, **ends_tail;
  struct epoll_event batch[BATCH];
  int batch_at, batch_count;
  char *scratch;
  bool touched;
  int spin_score, since_probe;
};

static _Thread_local td_loop *current;

td_loop *td_loop_current(void) { return current; }
bool td_loop_is_current(const td_loop *l) { return current == l; }
char *td_loop_scratch(td_loop *l) { return l->scratch; }
void td_loop_touch(td_loop *l) { l->touched = true; }
uint64_t td_loop_now_ns(const td_loop *l) { return l->now_ns; }

/* ---- posts ------------------------------------------------------------------------------------------------ */

void td_loop_post(td_loop *l, td_work *work) {
  td_work *head = atomic_load_explicit(&l->posted, memory_order_relaxed);
  do {
    work->next = head;
  } while (!atomic_compare_exchange_weak(&l->posted, &head, work));
  /* Pairs with sleep_until(): either we see `sleeping`, or the loop sees the work before it sleeps. */
  if (atomic_load(&l->sleeping) && atomic_exchange(&l->sleeping, false)) {
    uint64_t one = 1;
    ssize_t n = write(l->event_fd, &one, sizeof one);
    (void)n; /* a full counter wakes as well */
  }
}

static void run_posted(td_loop *l) {
  if (!atomic_load_explicit(&l->posted, memory_order_relaxed)) return;
  td_work *newest = atomic_exchange_explicit(&l->posted, NULL, memory_order_acquire), *oldest = NULL;
  while (newest) {
    td_work *next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest) {
    td_work *w = oldest;
    oldest = w->next;
    w->run(w);
  }
}

/* ---- turn ends -------------------------------------------------------------------------------------------- */

void td_loop_at_turn_end(td_loop *l, td_work *work) {
  work->next = NULL;
  *l->ends_tail = work;
  l->ends_tail = &work->next;
}

static void run_turn_ends(td_loop *l) {
  td_work *w = l->ends;
  l->ends = NULL;
  l->ends_tail = &l->ends;
  while (w) {
    td_work *next = w->next;
    w->run(w);
    w = next;
  }
}

/* ---- timers: a binary heap with places kept in the timers -------------------------------------------------- */

static void heap_set(td_loop *l, uint32_t i, td_timer *t) {
  l->heap[i] = t;
  t->slot = i + 1;
}

static void heap_up(td_loop *l, uint32_t i) {
  td_timer *t = l->heap[i];
  while (i && l->heap[(i - 1) / 2]->at_ns > t->at_ns) {
    heap_set(l, i, l->heap[(i - 1) / 2]);
    i = (i - 1) / 2;
  }
  heap_set(l, i, t);
}

static void heap_down(td_loop *l, uint32_t i) {
  td_timer *t = l->heap[i];
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= l->timer_count) break;
    if (child + 1 < l->timer_count && l->heap[child + 1]->at_ns < l->heap[child]->at_ns) child++;
    if (l->heap[child]->at_ns >= t->at_ns) break;
    heap_set(l, i, l->heap[child]);
    i = child;
  }
  heap_set(l, i, t);
}

void td_timer_start(td_loop *l, td_timer *t, uint64_t at_ns) {
  if (t->slot) {
    t->at_ns = at_ns;
    heap_up(l, t->slot - 1);
    heap_down(l, t->slot - 1);
    return;
  }
  TD_GROW(l->heap, l->timer_count, l->timer_capacity);
  t->at_ns = at_ns;
  heap_set(l, l->timer_count++, t);
  heap_up(l, l->timer_count - 1);
}

void td_timer_stop(td_loop *l, td_timer *t) {
  if (!t->slot) return;
  uint32_t i = t->slot - 1;
  t->slot = 0;
  td_timer *last = l->heap[--l->timer_count];
  if (last == t) return;
  heap_set(l, i, last);
  heap_up(l, i);
  heap_down(l, last->slot - 1);
}

static void run_timers(td_loop *l) {
  while (l->timer_count && l->heap[0]->at_ns <= l->now_ns) {
    td_timer *t = l->heap[0];
    td_timer_stop(l, t);
    t->fire(t);
  }
}

/* ---- watches ---------------------------------------------------------------------------------------------- */

td_status td_watch_start(td_loop *l, td_watch *w, uint32_t events) {
  struct epoll_event e = {.events = events, .data.ptr = w};
  w->events = events;
  if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, w->fd, &e))
    return td_internal("Cannot watch file descriptor %d: %s", w->fd, strerror(errno));
  return TD_STATUS_OK;
}

void td_watch_change(td_loop *l, td_watch *w, uint32_t events) {
  if (w->events == events) return;
  struct epoll_event e = {.events = events, .data.ptr = w};
  w->events = events;
  epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, w->fd, &e);
}

void td_watch_stop(td_loop *l, td_watch *w) {
  epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
  for (int i = l->batch_at; i < l->batch_count; i++)
    if (l->batch[i].data.ptr == w) l->batch[i].data.ptr = NULL; /* taken with this batch, not yet run */
}

/* ---- waiting ---------------------------------------------------------------------------------------------- */

static bool has_work(td_loop *l) {
  return l->ends || atomic_load_explicit(&l->posted, memory_order_relaxed) || l->stopping;
}

/* Somebody waits for this thread, in the middle of a turn (base/turn.h). */
static bool is_wanted(void *arg) {
  td_loop *l = arg;
  if (has_work(l) || l->batch_at < l->batch_count) return true;
  if (l->timer_count && l->heap[0]->at_ns <= td_now_ns()) return true;
  struct pollfd p = {.fd = l->epoll_fd, .events = POLLIN}; /* tells of events without taking them */
  return poll(&p, 1, 0) != 0;
}

static int poll_events(td_loop *l, int timeout_ms) {
  int n = epoll_wait(l->epoll_fd, l->batch, BATCH, timeout_ms);
  return n < 0 ? 0 : n;
}

/* Spinning burns a core, so it must pay: it goes on while at least about one in three spins met a part of a call. When
 * it does not, a probe now and then finds out whether that has changed. */
static bool spin_pays(td_loop *l) {
  if (!l->touched) return false;
  l->touched = false;
  if (l->spin_score > 0) return true;
  if (++l->since_probe < PROBE_EVERY) return false;
  l->since_probe = 0;
  return true;
}

/* Polls for a short while; the core is offered to others each time round, and given up when somebody takes it. Spinning
 * has to earn its score anew then: a thread that yields stays in this core's queue, behind a long computation perhaps,
 * where one that sleeps would have been woken on an idle core. */
static int spin(td_loop *l) {
  uint64_t start = td_now_ns(), before = start;
  for (;;) {
    int n = poll_events(l, 0);
    uint64_t now = td_now_ns();
    bool crowded = now - before > CROWDED_NS;
    if (crowded) l->spin_score = 0;
    if (n || has_work(l)) return n;
    if (now - start > SPIN_NS || crowded) break;
    if (l->timer_count && l->heap[0]->at_ns <= now) return 0;
    before = now;
    sched_yield();
  }
  return 0;
}

static void learn(td_loop *l, bool met) {
  l->spin_score = met ? TD_MIN(l->spin_score + 2, SCORE_MAX) : TD_MAX(l->spin_score - 1, 0);
}

static int sleep_until(td_loop *l) {
  int timeout_ms = -1;
  if (l->timer_count) {
    uint64_t now = td_now_ns(), at = l->heap[0]->at_ns;
    uint64_t ms = at <= now ? 0 : (at - now + 999999) / 1000000;
    timeout_ms = ms > 3600000 ? 3600000 : (int)ms;
  }
  atomic_store(&l->sleeping, true);
  int n = 0;
  if (!atomic_load(&l->posted)) n = poll_events(l, timeout_ms);
  atomic_store_explicit(&l->sleeping, false, memory_order_relaxed);
  return n;
}

static void turn(td_loop *l) {
  int n = 0;
  bool spun = false, met = false;
  if (has_work(l)) {
    n = poll_events(l, 0);
  } else {
    spun = spin_pays(l);
    if (spun) n = spin(l);
    met = n || has_work(l);
    if (!met) n = sleep_until(l);
  }
  bool posted = atomic_load_explicit(&l->posted, memory_order_relaxed);
  l->now_ns = td_now_ns();
  l->batch_count = n;
  for (l->batch_at = 0; l->batch_at < l->batch_count;) {
    struct epoll_event *e = &l->batch[l->batch_at++];
    td_watch *w = e->data.ptr;
    if (w) w->ready(w, e->events);
  }
  l->batch_count = 0;
  if (spun) learn(l, met && (l->touched || posted));
  run_posted(l);
  run_timers(l);
  run_turn_ends(l);
}

static void woken(td_watch *w, uint32_t events) {
  uint64_t count;
  ssize_t n = read(w->fd, &count, sizeof count);
  (void)n;
}

static void *thread_main(void *arg) {
  td_loop *l = arg;
  current = l;
  td_log_set_task(l->task);
  td_flush_denormals();
  td_turn_set_owner(is_wanted, l);
  td_watch wake = {.ready = woken, .fd = l->event_fd};
  td_status s = td_watch_start(l, &wake, EPOLLIN);
  if (s) td_warn("%s", td_status_message(s));
  td_status_free(s);
  l->now_ns = td_now_ns();
  while (!l->stopping || atomic_load(&l->posted)) turn(l);
  for (int i = 0; i < LAST_TURNS && (l->ends || atomic_load(&l->posted)); i++) turn(l);
  current = NULL;
  return NULL;
}

/* ---- life ------------------------------------------------------------------------------------------------- */

td_status td_loop_create(const char *name, const char *task, td_loop **out) {
  td_loop *l = td_new(td_loop);
  l->task = task;
  snprintf(l->name, sizeof l->name, "%s", name);
  l->ends_tail = &l->ends;
  l->spin_score = SCORE_MAX / 2;
  l->scratch = td_malloc(TD_LOOP_SCRATCH);
  l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int error = l->epoll_fd < 0 || l->event_fd < 0 ? errno : 0;
  if (!error) {
    sigset_t all, old; /* signals are the main thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&l->thread, NULL, thread_main, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
  }
  if (error) {
    td_loop_destroy(l);
    return td_error(TD_RESOURCE_EXHAUSTED, "Cannot start event loop %s: %s", name, strerror(error));
  }
  pthread_setname_np(l->thread, l->name);
  *out = l;
  return TD_STATUS_OK;
}

typedef struct stop_work {
  td_work work;
  td_loop *loop;
} stop_work;

static void stop_run(td_work *w) { TD_CONTAINER_OF(w, stop_work, work)->loop->stopping = true; }

void td_loop_stop(td_loop *l) {
  stop_work stop = {.work.run = stop_run, .loop = l};
  td_loop_post(l, &stop.work);
  pthread_join(l->thread, NULL);
}

void td_loop_destroy(td_loop *l) {
  if (!l) return;
  if (l->epoll_fd >= 0) close(l->epoll_fd);
  if (l->event_fd >= 0) close(l->event_fd);
  td_free(l->heap);
  td_free(l->scratch);
  td_free(l);
}

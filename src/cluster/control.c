#include "cluster/control.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/denormals.h"
#include "base/log.h"
#include "base/mem.h"

enum { IDLE_SECONDS = 5 };

struct td_control {
  const char *task;
  int max_threads;
  pthread_mutex_t lock;
  pthread_cond_t wake, ended;
  /* guarded by lock */
  td_work *head, **tail;
  int threads, idle, queued;
  bool stopping;
};

static void *thread_main(void *arg) {
  td_control *c = arg;
  td_log_set_task(c->task);
  td_flush_denormals();
  pthread_mutex_lock(&c->lock);
  for (;;) {
    td_work *w = c->head;
    if (w) {
      c->head = w->next;
      if (!c->head) c->tail = &c->head;
      c->queued--;
      pthread_mutex_unlock(&c->lock);
      w->run(w);
      pthread_mutex_lock(&c->lock);
      continue;
    }
    if (c->stopping) break;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    c->idle++;
    int rc = pthread_cond_timedwait(&c->wake, &c->lock, &until);
    c->idle--;
    if (rc == ETIMEDOUT && !c->head) break;
  }
  c->threads--;
  pthread_cond_broadcast(&c->ended);
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

static void cond_init_monotonic(pthread_cond_t *cond) {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(cond, &attr);
  pthread_condattr_destroy(&attr);
}

td_control *td_control_create(const char *task, int max_threads) {
  td_control *c = td_new(td_control);
  c->task = task;
  c->max_threads = max_threads;
  c->tail = &c->head;
  pthread_mutex_init(&c->lock, NULL);
  cond_init_monotonic(&c->wake);
  cond_init_monotonic(&c->ended);
  return c;
}

static bool start_thread(td_control *c) {
  pthread_attr_t attr;
  pthread_t thread;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  bool ok = !pthread_create(&thread, &attr, thread_main, c);
  pthread_attr_destroy(&attr);
  if (ok) pthread_setname_np(thread, "control");
  return ok;
}

bool td_control_run(td_control *c, td_work *w) {
  w->next = NULL;
  pthread_mutex_lock(&c->lock);
  bool ok = !c->stopping;
  if (ok && c->queued >= c->idle) { /* nobody is free for it */
    ok = c->threads < c->max_threads && start_thread(c);
    if (ok) c->threads++;
  }
  if (ok) {
    *c->tail = w;
    c->tail = &w->next;
    c->queued++;
    pthread_cond_signal(&c->wake);
  }
  pthread_mutex_unlock(&c->lock);
  return ok;
}

void td_control_stop(td_control *c) {
  pthread_mutex_lock(&c->lock);
  c->stopping = true;
  pthread_cond_broadcast(&c->wake);
  while (c->threads) pthread_cond_wait(&c->ended, &c->lock);
  pthread_mutex_unlock(&c->lock);
}

void td_control_destroy(td_control *c) {
  if (!c) return;
  pthread_cond_destroy(&c->wake);
  pthread_cond_destroy(&c->ended);
  pthread_mutex_destroy(&c->lock);
  td_free(c);
}

void td_latch_init(td_latch *l, int pending) {
  pthread_mutex_init(&l->lock, NULL);
  cond_init_monotonic(&l->changed);
  l->pending = pending;
  l->status = TD_STATUS_OK;
}

void td_latch_done(td_latch *l, td_status status) {
  pthread_mutex_lock(&l->lock);
  td_status_merge(&l->status, status);
  l->pending--;
  pthread_cond_broadcast(&l->changed); /* under the lock: the waiter may free the latch as soon as it is released */
  pthread_mutex_unlock(&l->lock);
}

bool td_latch_wait_until(td_latch *l, uint64_t deadline_ns) {
  pthread_mutex_lock(&l->lock);
  int rc = 0;
  while (l->pending > 0 && rc != ETIMEDOUT) {
    if (deadline_ns == TD_NO_DEADLINE) {
      rc = pthread_cond_wait(&l->changed, &l->lock);
      continue;
    }
    struct timespec until = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    rc = pthread_cond_timedwait(&l->changed, &l->lock, &until);
  }
  bool done = l->pending <= 0;
  pthread_mutex_unlock(&l->lock);
  return done;
}

td_status td_latch_take(td_latch *l) {
  pthread_mutex_lock(&l->lock);
  td_status s = l->status;
  l->status = TD_STATUS_OK;
  pthread_mutex_unlock(&l->lock);
  return s;
}

td_status td_latch_wait(td_latch *l) {
  td_latch_wait_until(l, TD_NO_DEADLINE);
  return td_latch_take(l);
}

void td_latch_deinit(td_latch *l) {
  td_status_free(l->status);
  pthread_cond_destroy(&l->changed);
  pthread_mutex_destroy(&l->lock);
}

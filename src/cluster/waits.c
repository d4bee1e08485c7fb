#include "cluster/waits.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/master.h"
#include "cluster/master_step.h"
#include "cluster/remote_rendezvous.h"
#include "cluster/step_table.h"
#include "runtime/local_rendezvous.h"

static const uint64_t SCAN_NS = 2000000000u, LOG_AFTER_NS = 10000000000u;

/* A loop's timer. Loop only. */
typedef struct watch {
  td_timer timer;
  td_work start;
  td_waits *waits;
  td_loop *loop;
  uint64_t before_ns; /* what has waited since then was looked at */
} watch;

struct td_waits {
  td_task *task;
  pthread_mutex_t lock;
  td_control_wait operations; /* ring head; guarded by lock */
  watch *watches;             /* by loop */
};

/* ---- lists ---- */

void td_wait_list_add(td_wait_list *l, const char *kind, int64_t step_id, uint64_t since_ns, const char *fmt, ...) {
  if (since_ns >= l->before_ns || since_ns < l->after_ns) return;
  if (l->count == TD_MAX_WAITS) {
    l->left_out++;
    return;
  }
  td_strbuf text = {0};
  va_list args;
  va_start(args, fmt);
  td_strbuf_vprintf(&text, fmt, args);
  va_end(args);
  TD_GROW(l->items, l->count, l->capacity);
  l->items[l->count++] =
      (td_wait){.kind = kind, .step_id = step_id, .since_ns = since_ns, .what = td_strbuf_take(&text)};
}

void td_wait_list_deinit(td_wait_list *l) {
  for (size_t i = 0; i < l->count; i++) td_free(l->items[i].what);
  td_free(l->items);
  *l = (td_wait_list){0};
}

/* ---- control operations ---- */

void td_control_wait_begin(td_waits *w, td_control_wait *c) {
  c->since_ns = td_now_ns();
  pthread_mutex_lock(&w->lock);
  c->prev = w->operations.prev;
  c->next = &w->operations;
  c->prev->next = c->next->prev = c;
  pthread_mutex_unlock(&w->lock);
}

void td_control_wait_end(td_waits *w, td_control_wait *c) {
  pthread_mutex_lock(&w->lock);
  c->prev->next = c->next;
  c->next->prev = c->prev;
  pthread_mutex_unlock(&w->lock);
}

typedef struct operation_visit {
  td_wait_list *list;
  const td_control_wait *wait;
} operation_visit;

static void add_operation(void *arg, const char *task) {
  operation_visit *v = arg;
  td_wait_list_add(v->list, v->wait->kind, 0, v->wait->since_ns, "%s %s", task, v->wait->what);
}

/* ---- steps that this task takes part in ---- */

typedef struct step_visit {
  td_wait_list *list;
  int64_t id;
} step_visit;

static void add_recv(void *arg, td_str key, uint64_t since_ns) {
  step_visit *v = arg;
  td_str src = td_str_split(&key, ';');
  td_str_split(&key, ';'); /* the incarnation */
  td_str dst = td_str_split(&key, ';');
  td_wait_list_add(v->list, "recv", v->id, since_ns, "%.*s from %.*s for %.*s", TD_STR_ARG(key), TD_STR_ARG(src),
                   TD_STR_ARG(dst));
}

static void add_remote_recv(void *arg, td_str key, uint64_t since_ns) {
  step_visit *v = arg;
  td_str src = td_str_split(&key, ';');
  td_str_split(&key, ';');
  td_str_split(&key, ';');
  td_wait_list_add(v->list, "recv_tensor", v->id, since_ns, "%.*s from %.*s", TD_STR_ARG(key), TD_STR_ARG(src));
}

static void add_op(void *arg, td_str what, uint64_t since_ns) {
  step_visit *v = arg;
  td_wait_list_add(v->list, "op", v->id, since_ns, "%.*s", TD_STR_ARG(what));
}

static void add_step(void *arg, td_step_entry *e) {
  step_visit v = {.list = arg, .id = e->id};
  td_local_rendezvous_visit_waiting(td_step_rendezvous_local(e->rendezvous), add_recv, &v);
  td_step_rendezvous_visit_waiting(e->rendezvous, add_remote_recv, &v);
  td_cancellation_visit(e->cancellation, add_op, &v);
}

static void collect_worker(td_waits *w, td_wait_list *list) {
  td_step_table_visit(w->task->steps, add_step, list);
  pthread_mutex_lock(&w->lock);
  for (td_control_wait *c = w->operations.next; c != &w->operations; c = c->next)
    c->each(c, add_operation, &(operation_visit){list, c});
  pthread_mutex_unlock(&w->lock);
}

/* ---- steps that this task drives ---- */

typedef struct loop_visit {
  td_wait_list *list;
  const td_loop *loop;
} loop_visit;

/* The partitions that a step of this loop waits for. */
static void add_master_step(const td_master_step *st, td_wait_list *list) {
  for (size_t i = 0; i < st->part_count; i++) {
    const td_worker *w = st->view->plan->partitions[i].worker;
    if (!st->parts[i].is_done)
      td_wait_list_add(list, "run", st->id, st->started_ns, "%s to run its part", w->task_name);
  }
}

static void add_session(void *arg, td_master_session *s) {
  loop_visit *v = arg;
  pthread_mutex_lock(&s->lock);
  for (const td_master_step *st = s->steps; st; st = st->next)
    if (st->loop == v->loop) add_master_step(st, v->list);
  pthread_mutex_unlock(&s->lock);
}

/* On that loop. */
static void collect_loop(td_waits *w, const td_loop *loop, td_wait_list *list) {
  loop_visit v = {list, loop};
  td_master_visit_sessions(w->task->master, add_session, &v);
}

typedef struct loop_work {
  td_work work;
  td_waits *waits;
  td_loop *loop;
  td_wait_list *list;
  td_latch latch;
} loop_work;

static void collect_on_loop(td_work *work) {
  loop_work *l = TD_CONTAINER_OF(work, loop_work, work);
  collect_loop(l->waits, l->loop, l->list);
  td_latch_done(&l->latch, TD_STATUS_OK);
}

static int by_age(const void *a, const void *b) {
  const td_wait *x = a, *y = b;
  return x->since_ns < y->since_ns ? -1 : x->since_ns > y->since_ns;
}

void td_waits_collect(td_waits *w, td_wait_list *out) {
  collect_worker(w, out);
  for (int i = 0; i < w->task->loop_count; i++) {
    loop_work l = {.work.run = collect_on_loop, .waits = w, .loop = w->task->loops[i], .list = out};
    td_latch_init(&l.latch, 1);
    td_loop_post(l.loop, &l.work);
    td_status_free(td_latch_wait(&l.latch));
    td_latch_deinit(&l.latch);
  }
  if (out->count > 1) qsort(out->items, out->count, sizeof *out->items, by_age);
}

/* ---- the log ---- */

/* Each wait becomes 10 s old between two looks once, and is logged then. */
static void look(td_timer *t) {
  watch *me = TD_CONTAINER_OF(t, watch, timer);
  td_waits *w = me->waits;
  uint64_t now = td_now_ns();
  td_wait_list list = {.after_ns = me->before_ns, .before_ns = now > LOG_AFTER_NS ? now - LOG_AFTER_NS : 0};
  me->before_ns = list.before_ns;
  if (me == w->watches) collect_worker(w, &list);
  if (td_log_enabled(TD_LOG_DEBUG)) collect_loop(w, me->loop, &list);
  for (size_t i = 0; i < list.count; i++) {
    const td_wait *x = &list.items[i];
    double seconds = (double)(now - x->since_ns) / 1e9;
    bool is_quiet = !strcmp(x->kind, "op") || !strcmp(x->kind, "run");
    td_log_level level = is_quiet ? TD_LOG_DEBUG : TD_LOG_INFO;
    if (x->step_id)
      td_log(level, "step %lld has waited for %.0f s (%s): %s", (long long)x->step_id, seconds, x->kind, x->what);
    else if (strcmp(x->kind, "task")) /* discovery says that itself, again and again */
      td_log(level, "has waited for %.0f s (%s): %s", seconds, x->kind, x->what);
  }
  if (list.left_out) td_info("%zu more wait", list.left_out);
  td_wait_list_deinit(&list);
  td_timer_start(me->loop, &me->timer, now + SCAN_NS);
}

static void start_watch(td_work *work) {
  watch *me = TD_CONTAINER_OF(work, watch, start);
  me->timer.fire = look;
  td_timer_start(me->loop, &me->timer, td_now_ns() + SCAN_NS);
}

void td_waits_start(td_waits *w) {
  /* What the other loops have to say is of level debug. */
  int looking = td_log_enabled(TD_LOG_DEBUG) ? w->task->loop_count : 1;
  for (int i = 0; i < looking; i++) {
    watch *me = &w->watches[i];
    *me = (watch){.waits = w, .loop = w->task->loops[i], .start.run = start_watch};
    td_loop_post(me->loop, &me->start);
  }
}

typedef struct stop_work {
  td_work work;
  watch *watch;
  td_latch latch;
} stop_work;

static void stop_watch(td_work *work) {
  stop_work *s = TD_CONTAINER_OF(work, stop_work, work);
  td_timer_stop(s->watch->loop, &s->watch->timer);
  td_latch_done(&s->latch, TD_STATUS_OK);
}

void td_waits_stop(td_waits *w) {
  for (int i = 0; i < w->task->loop_count; i++) {
    if (!w->watches[i].loop) continue;
    stop_work s = {.work.run = stop_watch, .watch = &w->watches[i]};
    td_latch_init(&s.latch, 1);
    td_loop_post(s.watch->loop, &s.work);
    td_status_free(td_latch_wait(&s.latch));
    td_latch_deinit(&s.latch);
  }
}

td_waits *td_waits_create(td_task *task) {
  td_waits *w = td_new(td_waits);
  w->task = task;
  w->operations.prev = w->operations.next = &w->operations;
  w->watches = td_new_array(watch, (size_t)task->loop_count);
  pthread_mutex_init(&w->lock, NULL);
  return w;
}

void td_waits_destroy(td_waits *w) {
  if (!w) return;
  pthread_mutex_destroy(&w->lock);
  td_free(w->watches);
  td_free(w);
}

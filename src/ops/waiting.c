#include "ops/waiting.h"

#include "base/clock.h"
#include "base/mem.h"

struct td_waiter {
  td_room *room; /* retained */
  td_kernel_ctx *ctx;
  td_attempt_fn attempt;
  td_continue_fn then;    /* NULL: the run ends */
  td_waiter *prev, *next; /* next also chains those that are let go */
  td_cancel_callback cancel;
  td_work work;
  td_status status;
  uint64_t since_ns;
};

void td_room_init(td_room *r, const td_resource_type *type, const char *cancelled_text) {
  td_resource_init(&r->resource, type);
  pthread_mutex_init(&r->lock, NULL);
  r->first = r->last = NULL;
  r->cancelled_text = cancelled_text;
}

void td_room_deinit(td_room *r) { pthread_mutex_destroy(&r->lock); }

static void append(td_room *r, td_waiter *w) {
  w->next = NULL;
  w->prev = r->last;
  *(r->last ? &r->last->next : &r->first) = w;
  r->last = w;
}

static void unlink_waiter(td_room *r, td_waiter *w) {
  *(w->prev ? &w->prev->next : &r->first) = w->next;
  *(w->next ? &w->next->prev : &r->last) = w->prev;
  w->prev = w->next = NULL;
}

static void get_on(td_room *r, td_kernel_ctx *ctx, td_status status, td_continue_fn then) {
  if (then && !status)
    then(r, ctx);
  else
    td_kernel_done(ctx, status);
}

static void end_waiter(td_work *work) {
  td_waiter *w = TD_CONTAINER_OF(work, td_waiter, work);
  td_waiter own = *w;
  td_free(w);
  get_on(own.room, own.ctx, own.status, own.then);
  td_resource_release(own.room);
}

static void hand_over(td_waiter *w) {
  td_pool *pool = w->ctx->step->pool;
  w->work.run = end_waiter;
  if (pool)
    td_pool_submit(pool, &w->work);
  else
    end_waiter(&w->work);
}

/* With the lock held: makes the waiting attempts until none gets on; appends those that ended to *ended. */
static void retry(td_room *r, td_waiter **ended) {
  td_waiter **end = ended;
  while (*end) end = &(*end)->next;
  for (bool changed = true; changed;) {
    changed = false;
    for (td_waiter *w = r->first, *next; w; w = next) {
      next = w->next;
      if (!w->attempt(r, w->ctx, &w->status, &changed)) continue;
      unlink_waiter(r, w);
      *end = w;
      end = &w->next;
    }
  }
}

/* Without the lock. */
static void let_go(td_waiter *ended) {
  while (ended) {
    td_waiter *w = ended;
    ended = w->next;
    /* A cancellation that runs right now finds the waiter gone from the list; its callback must have returned before
     * the waiter is freed. */
    if (w->ctx->step->cancellation) td_cancellation_unregister(w->ctx->step->cancellation, &w->cancel);
    hand_over(w);
  }
}

static void cancelled(td_cancel_callback *c) {
  td_waiter *w = TD_CONTAINER_OF(c, td_waiter, cancel);
  td_room *r = td_resource_retain(w->room); /* the waiter, and its reference, may end before the lock is let go */
  td_waiter *ended = NULL;
  pthread_mutex_lock(&r->lock);
  bool waits = w->prev || r->first == w;
  if (waits) {
    unlink_waiter(r, w);
    retry(r, &ended); /* whoever stood behind it */
  }
  pthread_mutex_unlock(&r->lock);
  if (waits) {
    w->status = td_cancelled("%s", r->cancelled_text);
    hand_over(w);
  }
  let_go(ended);
  td_resource_release(r);
}

bool td_room_is_behind(const td_room *r, const td_kernel_ctx *ctx, td_attempt_fn attempt) {
  for (const td_waiter *w = r->first; w && w->ctx != ctx; w = w->next)
    if (w->attempt == attempt) return true;
  return false;
}

static void describe(const td_cancel_callback *c, td_strbuf *out, uint64_t *since_ns) {
  const td_waiter *w = TD_CONTAINER_OF(c, td_waiter, cancel);
  td_ctx_describe(w->ctx, out);
  *since_ns = w->since_ns;
}

void td_room_run(td_room *r, td_kernel_ctx *ctx, td_attempt_fn attempt) { td_room_run_then(r, ctx, attempt, NULL); }

void td_room_run_then(td_room *r, td_kernel_ctx *ctx, td_attempt_fn attempt, td_continue_fn then) {
  td_cancellation *c = ctx->step->cancellation;
  td_status status = TD_STATUS_OK;
  td_waiter *ended = NULL;
  bool changed = false, over = true;
  if (td_cancellation_is_cancelled(c)) {
    td_kernel_done(ctx, td_cancelled("%s", r->cancelled_text));
    td_resource_release(r);
    return;
  }
  pthread_mutex_lock(&r->lock);
  if (!attempt(r, ctx, &status, &changed)) {
    td_waiter *w = td_new(td_waiter);
    *w = (td_waiter){.room = r,
                     .ctx = ctx,
                     .attempt = attempt,
                     .then = then,
                     .cancel = {.cancelled = cancelled, .describe = describe},
                     .since_ns = td_now_coarse_ns()};
    /* Under the lock: a callback that comes at once waits for it and then finds the waiter in the list. */
    if (!c || td_cancellation_register(c, &w->cancel)) {
      append(r, w);
      td_resource_retain(r);
      over = false;
    } else {
      status = td_cancelled("%s", r->cancelled_text);
      td_free(w);
    }
  }
  if (changed) retry(r, &ended);
  pthread_mutex_unlock(&r->lock);
  if (over) get_on(r, ctx, status, then);
  let_go(ended);
  td_resource_release(r);
}

void td_room_change(td_room *r, void (*change)(td_room *r)) {
  td_waiter *ended = NULL;
  pthread_mutex_lock(&r->lock);
  change(r);
  retry(r, &ended);
  pthread_mutex_unlock(&r->lock);
  let_go(ended);
}

/* Drivers: what runs a tree of iterators (iterator.h). */
#include "base/clock.h"
#include "base/mem.h"
#include "ops/data/archive.h"

static const uint64_t LOOP_TURN_NS = 50 * 1000, POOL_TURN_NS = 1000 * 1000;
enum { PULLS_PER_LOOK = 16, COSTLY_BYTES = 32 * 1024 };

enum driver_state {
  IDLE,      /* nothing asked for; the next request starts at the root */
  RUNNING,   /* somebody runs it, or has put it into the pool */
  PARKED,    /* an iterator waits; with or without a request */
  SUSPENDED, /* the request was cancelled on the way: the next one goes on where it stood */
  ENDED,
};

struct td_driver {
  _Atomic int refs, watchers; /* all who retain it are one watcher */
  td_pool *pool;
  int depth;             /* of its root's parent */
  td_iterator *consumer; /* while its tree is being made */
  td_iterator *root;
  pthread_mutex_t lock;
  /* guarded by lock */
  enum driver_state state;
  bool is_woken; /* while it was RUNNING */
  bool is_using; /* RUNNING: td_request.use runs; PARKED: it is that which waits */
  td_request *active, *first, *last;
  td_cancellation *parked_on; /* of the call it waits for, retained; NULL: it waits for something else */
  /* of whoever runs it */
  td_iterator *at;
  td_data_call *calling;
  bool has_hopped; /* for costly work that has not begun yet */
  /* The root's result that came to rest before somebody wanted to use the tree: the next request's. */
  bool has_kept;
  td_element *kept;
  td_status kept_status;
  td_work work;
};

td_driver *td_driver_create(td_pool *pool) {
  td_driver *d = td_new(td_driver);
  atomic_init(&d->refs, 1);
  atomic_init(&d->watchers, 1);
  d->pool = pool;
  pthread_mutex_init(&d->lock, NULL);
  return d;
}

td_driver *td_driver_retain(td_driver *d) {
  atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
  return d;
}

td_driver *td_driver_watch(td_driver *d) {
  atomic_fetch_add_explicit(&d->watchers, 1, memory_order_relaxed);
  return d;
}

void td_driver_unwatch(td_driver *d) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!d || atomic_fetch_sub_explicit(&d->watchers, 1, memory_order_acq_rel) != 1) return;
  td_cancellation_release(d->parked_on);
  td_element_free(d->kept);
  td_status_free(d->kept_status);
  pthread_mutex_destroy(&d->lock);
  td_free(d);
}

void td_driver_release(td_driver *d) {
  if (!d || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1) return; /* as above */
  pthread_mutex_lock(&d->lock);
  d->state = ENDED;
  pthread_mutex_unlock(&d->lock);
  td_iterator_destroy(d->root);
  td_driver_unwatch(d);
}

td_pool *td_driver_pool(const td_driver *d) { return d->pool; }

int td_driver_depth(const td_driver *d) { return d->depth; }

td_dataset *td_driver_dataset(const td_driver *d) { return d->root->dataset; }

td_status td_driver_archive(td_driver *d, td_archive *a) {
  TD_TRY(td_archive_bool(a, &d->has_kept));
  if (d->has_kept) {
    TD_TRY(td_archive_error(a, &d->kept_status));
    TD_TRY(td_archive_element(a, &d->root->dataset->spec, &d->kept));
  }
  return td_archive_iterator(a, d->root);
}

td_status td_driver_set_root(td_driver *d, td_dataset *dataset, td_iterator *consumer) {
  d->depth = consumer ? consumer->depth : 0;
  d->consumer = consumer;
  td_status s = td_iterator_create(dataset, NULL, d, &d->root);
  d->consumer = NULL;
  return s;
}

const td_iterator *td_iterator_consumer(const td_iterator *it) {
  return it->parent ? it->parent : it->driver->consumer;
}

/* ---- requests ---- */

static void request_release(td_request *r) {
  /* acq_rel: as above */
  if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  td_driver *d = r->driver;
  r->destroy(r);
  td_driver_release(d);
}

/* Without the lock; `r` is no longer the driver's. */
static void complete(td_request *r, td_status s, td_element *e) {
  if (r->is_registered && td_cancellation_try_unregister(r->cancellation, &r->cancel)) request_release(r);
  r->done(r, s, e);
  request_release(r);
}

static void unlink_request(td_driver *d, td_request *r) {
  *(r->prev ? &r->prev->next : &d->first) = r->next;
  *(r->next ? &r->next->prev : &d->last) = r->prev;
  r->prev = r->next = NULL;
}

static void cancelled(td_cancel_callback *c);

/* With the lock held. False: it is cancelled already. */
static bool watch(td_request *r) {
  if (!r->cancellation) return true;
  if (r->is_registered) return !td_cancellation_is_cancelled(r->cancellation);
  r->cancel.cancelled = cancelled;
  if (!td_cancellation_register(r->cancellation, &r->cancel)) return false;
  r->is_registered = true;
  atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed); /* the callback's */
  return true;
}

static void activate_next(td_driver *d) {
  td_request *r = d->first;
  d->active = r;
  if (!r) return;
  unlink_request(d, r);
  r->state = TD_REQUEST_ACTIVE;
}

static td_status cancelled_status(void) { return td_cancelled("GetNext() was cancelled"); }

/* The active request of a driver that is parked is cancelled. With the lock held, which it lets go of. */
static void cancel_parked(td_driver *d) {
  if (d->parked_on) { /* the call's end will end the request */
    td_cancellation *c = td_cancellation_retain(d->parked_on);
    pthread_mutex_unlock(&d->lock);
    td_cancellation_cancel(c);
    td_cancellation_release(c);
    return;
  }
  td_request *gone = NULL, **end = &gone;
  do {
    td_request *r = d->active;
    r->state = TD_REQUEST_DONE;
    *end = r;
    end = &r->next;
    activate_next(d);
  } while (d->active && !watch(d->active));
  pthread_mutex_unlock(&d->lock);
  while (gone) {
    td_request *r = gone;
    gone = r->next;
    r->next = NULL;
    complete(r, cancelled_status(), NULL);
  }
}

static void cancelled(td_cancel_callback *c) {
  td_request *r = TD_CONTAINER_OF(c, td_request, cancel);
  td_driver *d = r->driver;
  pthread_mutex_lock(&d->lock);
  if (r->state == TD_REQUEST_QUEUED) {
    unlink_request(d, r);
    r->state = TD_REQUEST_DONE;
    pthread_mutex_unlock(&d->lock);
    complete(r, cancelled_status(), NULL);
  } else if (r->state == TD_REQUEST_ACTIVE && d->state == PARKED) {
    cancel_parked(d);
  } else { /* it is over, or whoever runs it will look */
    pthread_mutex_unlock(&d->lock);
  }
  request_release(r);
}

/* ---- running ---- */

static void run(td_driver *d);
static void run_work(td_work *w) { run(TD_CONTAINER_OF(w, td_driver, work)); }

static void submit(td_driver *d) {
  d->work.run = run_work;
  if (d->pool)
    td_pool_submit(d->pool, &d->work);
  else
    run(d);
}

/* Ends the active request; true when there is another one to go on with. */
static bool end_request(td_driver *d, enum driver_state state, td_status s, td_element *e) {
  pthread_mutex_lock(&d->lock);
  td_request *r = d->active;
  r->state = TD_REQUEST_DONE;
  if (d->is_using) d->is_using = d->is_woken = false; /* a wake that came too late */
  activate_next(d);
  bool goes_on = d->active;
  d->state = goes_on ? RUNNING : state;
  pthread_mutex_unlock(&d->lock);
  complete(r, s, e);
  return goes_on;
}

/* True: what it waits for is there already. */
static bool park(td_driver *d) {
  pthread_mutex_lock(&d->lock);
  if (d->is_woken) {
    d->is_woken = false;
    d->calling = NULL;
    pthread_mutex_unlock(&d->lock);
    return true;
  }
  d->state = PARKED;
  if (d->calling) d->parked_on = td_cancellation_retain(d->calling->cancellation);
  d->calling = NULL;
  if (watch(d->active))
    pthread_mutex_unlock(&d->lock);
  else
    cancel_parked(d);
  return false;
}

/* The tree rests: serves what needs no iterator to advance. TD_NEXT_PULL: the root has to; TD_NEXT_READY: another
 * request may have begun; TD_NEXT_WAIT: all is done for now. */
static td_next serve_at_rest(td_driver *d) {
  td_status s = NULL;
  td_element *e = NULL;
  if (d->active->use) {
    pthread_mutex_lock(&d->lock);
    d->is_using = true;
    pthread_mutex_unlock(&d->lock);
    switch (d->active->use(d->active, d, &s)) {
      case TD_NEXT_WAIT:
        return park(d) ? TD_NEXT_READY : TD_NEXT_WAIT;
      case TD_NEXT_HOP:
        d->has_hopped = true;
        submit(d);
        return TD_NEXT_WAIT;
      default:
        break;
    }
  } else if (d->has_kept) {
    d->has_kept = false;
    e = d->kept;
    s = d->kept_status;
    d->kept = NULL;
    d->kept_status = NULL;
  } else {
    return TD_NEXT_PULL;
  }
  return end_request(d, IDLE, s, e) ? TD_NEXT_READY : TD_NEXT_WAIT;
}

/* The root has a result; true when there is a request to go on with. */
static bool root_ready(td_driver *d) {
  td_element *e = td_iterator_take(d->root);
  td_status s = d->root->status;
  d->root->status = NULL;
  if (!d->active->use) return end_request(d, IDLE, s, e);
  d->has_kept = true; /* it was on its way for a request that was cancelled */
  d->kept = e;
  d->kept_status = s;
  return true;
}

static void run(td_driver *d) {
  uint64_t ends = 0;
  unsigned pulls = 0;
  for (;;) {
    if (!d->at) {
      td_next next = serve_at_rest(d);
      if (next == TD_NEXT_WAIT) return;
      if (next == TD_NEXT_READY) continue;
      d->at = d->root;
    }
    td_iterator *it = d->at;
    switch (it->dataset->ops->advance(it)) {
      case TD_NEXT_PULL:
        d->at = it->pulls;
        td_status_free(d->at->status); /* an error that nobody took */
        d->at->status = NULL;
        if (td_cancellation_is_cancelled(d->active->cancellation)) {
          if (!end_request(d, SUSPENDED, cancelled_status(), NULL)) return;
        } else if (d->pool && pulls++ % PULLS_PER_LOOK == 0) {
          uint64_t now = td_now_ns();
          if (!ends) {
            ends = now + (td_pool_current() == d->pool ? POOL_TURN_NS : LOOP_TURN_NS);
          } else if (now >= ends) {
            submit(d);
            return;
          }
        }
        break;
      case TD_NEXT_READY:
        d->at = it->parent;
        if (!d->at && !root_ready(d)) return;
        break;
      case TD_NEXT_WAIT:
        if (!park(d)) return;
        break;
      case TD_NEXT_HOP:
        d->has_hopped = true;
        submit(d);
        return;
    }
  }
}

void td_driver_next(td_driver *d, td_request *r) {
  r->driver = td_driver_retain(d);
  atomic_init(&r->refs, 1);
  r->is_registered = false;
  r->prev = r->next = NULL;
  pthread_mutex_lock(&d->lock);
  bool is_busy = d->active, runs = !is_busy && d->state != PARKED;
  r->state = is_busy ? TD_REQUEST_QUEUED : TD_REQUEST_ACTIVE;
  bool ok = runs || watch(r);
  if (!ok) {
    r->state = TD_REQUEST_DONE;
  } else if (is_busy) {
    r->prev = d->last;
    *(d->last ? &d->last->next : &d->first) = r;
    d->last = r;
  } else {
    d->active = r;
    if (runs) d->state = RUNNING;
  }
  pthread_mutex_unlock(&d->lock);
  if (!ok)
    complete(r, cancelled_status(), NULL);
  else if (runs)
    run(d);
}

/* `inline_`: on this thread, if the driver has to go on. */
static void wake(td_driver *d, bool inline_, bool for_use) {
  pthread_mutex_lock(&d->lock);
  bool unparks = d->state == PARKED && (!for_use || d->is_using), goes_on = unparks && d->active;
  if (d->state == RUNNING && (!for_use || d->is_using)) d->is_woken = true;
  td_cancellation *c = d->parked_on;
  if (unparks) {
    d->parked_on = NULL;
    d->is_using = false;
    d->state = goes_on ? RUNNING : SUSPENDED;
  } else {
    c = NULL;
  }
  pthread_mutex_unlock(&d->lock);
  td_cancellation_release(c);
  if (!goes_on) return;
  if (inline_)
    run(d);
  else
    submit(d);
}

void td_driver_wake(td_driver *d) { wake(d, false, false); }
void td_driver_wake_use(td_driver *d) { wake(d, false, true); }

/* ---- calls ---- */

/* The executor never runs one call inside another one's end, so going on here does not nest. */
static void call_ended(td_data_call *call) { wake(call->owner, true, false); }

td_next td_iterator_call(td_iterator *it, td_data_call *call, const td_captured *c, td_element *e) {
  td_driver *d = it->driver;
  if (td_cancellation_is_cancelled(call->cancellation)) { /* by its own failure, or with an earlier request */
    td_cancellation_release(call->cancellation);
    call->cancellation = NULL;
  }
  call->ended = call_ended;
  call->owner = d;
  d->calling = call;
  if (!td_data_call_start(call, c, d->pool, e)) return TD_NEXT_WAIT;
  d->calling = NULL;
  return TD_NEXT_READY;
}

td_next td_iterator_costs(const td_iterator *it, size_t bytes) { return td_driver_costs(it->driver, bytes); }

td_next td_driver_costs(td_driver *d, size_t bytes) {
  td_pool *pool = d->pool;
  if (d->has_hopped) { /* a pool that has stopped runs what it is given on the giver's thread */
    d->has_hopped = false;
    return TD_NEXT_READY;
  }
  return pool && bytes > COSTLY_BYTES && td_pool_current() != pool ? TD_NEXT_HOP : TD_NEXT_READY;
}

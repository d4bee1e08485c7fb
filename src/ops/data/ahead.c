#include "ops/data/ahead.h"

#include "base/mem.h"

/* A place in the buffer: an element in work or done. */
typedef struct slot {
  td_data_call call;
  td_work work;
  td_ahead *ahead;
  struct slot *next;
  td_element *element; /* first the input, then the result */
  td_status status;
  bool is_done;
} slot;

struct td_ahead {
  _Atomic int refs; /* the consumer's, each slot in work, each fetch */
  td_driver *driver;
  td_dataset *owner; /* retained: it holds f */
  const td_captured *f;
  td_pool *pool;
  int64_t limit;
  bool any_order;
  td_cancellation *cancellation; /* of fetches */
  pthread_mutex_t lock;
  /* guarded by lock */
  slot *first, **last;
  int64_t count;
  bool is_fetching, has_ended, is_stopped, has_begun;
  int pauses;           /* archives that hold it still */
  td_driver *archivist; /* that waits until it is still; watched */
  td_driver *consumer;  /* that waits; watched */
  /* of who set is_fetching */
  td_work work;
  _Atomic int fetch_state;
};

static void slot_free(slot *s) {
  td_data_call_deinit(&s->call);
  td_element_free(s->element);
  td_status_free(s->status);
  td_free(s);
}

static void release(td_ahead *a) {
  /* acq_rel: the last owner sees every use before it frees */
  if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1) return;
  for (slot *s = a->first, *next; s; s = next) {
    next = s->next;
    slot_free(s);
  }
  td_driver_release(a->driver);
  td_dataset_release(a->owner);
  td_cancellation_release(a->cancellation);
  pthread_mutex_destroy(&a->lock);
  td_free(a);
}

static td_ahead *retain(td_ahead *a) {
  atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
  return a;
}

td_status td_ahead_create(const td_ahead_options *o, td_pool *pool, td_ahead **out) {
  td_ahead *a = td_new(td_ahead);
  atomic_init(&a->refs, 1);
  a->driver = td_driver_create(pool);
  a->owner = td_dataset_retain(o->owner);
  a->f = o->f;
  a->pool = pool;
  a->limit = TD_MAX(o->limit, 1);
  a->any_order = o->any_order;
  a->cancellation = td_cancellation_create();
  a->last = &a->first;
  pthread_mutex_init(&a->lock, NULL);
  td_status s = td_driver_set_root(a->driver, o->source, o->consumer);
  if (s)
    release(a);
  else
    *out = a;
  return s;
}

/* With the lock held: who is to be woken now. */
static td_driver *take_consumer(td_ahead *a) {
  bool ready = a->has_ended && !a->count;
  for (slot *s = a->first; s && !ready; s = a->any_order ? s->next : NULL) ready = s->is_done;
  if (!ready) return NULL;
  td_driver *d = a->consumer;
  a->consumer = NULL;
  return d;
}

static void wake(td_driver *consumer) {
  if (!consumer) return;
  td_driver_wake(consumer);
  td_driver_unwatch(consumer);
}

static void wake_archivist(td_driver *d) {
  if (!d) return;
  td_driver_wake_use(d);
  td_driver_unwatch(d);
}

/* With the lock held: whether an element is being fetched or in work. */
static bool is_at_work(const td_ahead *a) {
  if (a->is_fetching) return true;
  for (const slot *s = a->first; s; s = s->next)
    if (!s->is_done) return true;
  return false;
}

/* With the lock held: who waited for it to be still is to be woken now. */
static td_driver *take_archivist(td_ahead *a) {
  if (!a->archivist || is_at_work(a)) return NULL;
  td_driver *d = a->archivist;
  a->archivist = NULL;
  return d;
}

/* ---- the function ---- */

static void slot_done(slot *s, td_status status, td_element *e) {
  td_ahead *a = s->ahead;
  pthread_mutex_lock(&a->lock);
  s->status = status;
  s->element = e;
  s->is_done = true;
  td_driver *d = take_consumer(a), *archivist = take_archivist(a);
  pthread_mutex_unlock(&a->lock);
  wake(d);
  wake_archivist(archivist);
  release(a);
}

static void call_finished(slot *s) {
  td_status status;
  td_element *e = td_data_call_take(&s->call, &status);
  slot_done(s, status, e);
}

static void call_ended(td_data_call *call) { call_finished(TD_CONTAINER_OF(call, slot, call)); }

static void call_work(td_work *w) {
  slot *s = TD_CONTAINER_OF(w, slot, work);
  td_element *e = s->element;
  s->element = NULL;
  s->call.ended = call_ended;
  if (td_data_call_start(&s->call, s->ahead->f, s->ahead->pool, e)) call_finished(s);
}

static void submit(td_ahead *a, td_work *w) {
  if (a->pool)
    td_pool_submit(a->pool, w);
  else
    w->run(w);
}

/* ---- fetching: one at a time; who sets is_fetching holds a reference until it is unset ---- */

typedef struct fetch {
  td_request request;
  td_ahead *ahead; /* retained */
} fetch;

enum { STARTED, RETURNED, ENDED };
enum { FETCHES_PER_TURN = 64 };

static void fetch_work(td_work *w);

/* With the lock held: claims the right to fetch. */
static bool claim(td_ahead *a) {
  if (a->is_fetching || a->has_ended || a->is_stopped || a->pauses || a->count >= a->limit) return false;
  a->is_fetching = a->has_begun = true;
  a->work.run = fetch_work;
  retain(a);
  return true;
}

/* After a fetch: keeps the right, or lets go of it. */
static bool goes_on(td_ahead *a) {
  pthread_mutex_lock(&a->lock);
  a->is_fetching = false;
  bool yes = claim(a);
  td_driver *archivist = take_archivist(a);
  pthread_mutex_unlock(&a->lock);
  wake_archivist(archivist);
  release(a); /* the old claim's */
  return yes;
}

/* Buffers what was fetched, and starts its call. */
static void add(td_ahead *a, td_status status, td_element *e) {
  slot *s = NULL;
  pthread_mutex_lock(&a->lock);
  if (!status && !e) {
    a->has_ended = true;
  } else {
    s = td_new(slot);
    *s = (slot){.ahead = a, .element = e, .status = status, .is_done = !a->f || status};
    *a->last = s;
    a->last = &s->next;
    a->count++;
  }
  bool calls = s && !s->is_done;
  if (calls) {
    retain(a);
    s->call.cancellation = td_cancellation_create();
    if (a->is_stopped) td_cancellation_cancel(s->call.cancellation);
  }
  td_driver *d = take_consumer(a);
  pthread_mutex_unlock(&a->lock);
  wake(d);
  if (!calls) return;
  s->work.run = call_work;
  submit(a, &s->work);
}

static void fetched(td_request *r, td_status status, td_element *e) {
  td_ahead *a = TD_CONTAINER_OF(r, fetch, request)->ahead;
  add(a, status, e);
  /* acq_rel: whoever comes second, this or the loop, sees what the first did, and goes on */
  if (atomic_exchange_explicit(&a->fetch_state, ENDED, memory_order_acq_rel) == RETURNED && goes_on(a))
    submit(a, &a->work);
}

static void fetch_destroy(td_request *r) {
  fetch *f = TD_CONTAINER_OF(r, fetch, request);
  release(f->ahead);
  td_free(f);
}

static void fetch_work(td_work *w) {
  td_ahead *a = TD_CONTAINER_OF(w, td_ahead, work);
  for (int i = 0;; i++) {
    if (i == FETCHES_PER_TURN && a->pool) {
      td_pool_submit(a->pool, &a->work);
      return;
    }
    fetch *f = td_new(fetch);
    f->ahead = retain(a);
    f->request = (td_request){.cancellation = a->cancellation, .done = fetched, .destroy = fetch_destroy};
    atomic_store_explicit(&a->fetch_state, STARTED, memory_order_relaxed);
    td_driver_next(a->driver, &f->request);
    if (atomic_exchange_explicit(&a->fetch_state, RETURNED, memory_order_acq_rel) != ENDED) return;
    if (!goes_on(a)) return;
  }
}

/* ---- the consumer's side ---- */

static slot *take_slot(td_ahead *a) {
  for (slot **at = &a->first; *at; at = &(*at)->next) {
    slot *s = *at;
    if (s->is_done) {
      *at = s->next;
      if (!s->next) a->last = at;
      a->count--;
      return s;
    }
    if (!a->any_order) break;
  }
  return NULL;
}

td_next td_ahead_next(td_ahead *a, td_driver *consumer, td_element **out, td_status *status) {
  *out = NULL;
  *status = NULL;
  pthread_mutex_lock(&a->lock);
  slot *s = take_slot(a);
  bool waits = !s && (a->count || !a->has_ended);
  if (waits && !a->consumer) a->consumer = td_driver_watch(consumer);
  bool fetches = claim(a);
  pthread_mutex_unlock(&a->lock);
  if (fetches) submit(a, &a->work);
  if (!s) return waits ? TD_NEXT_WAIT : TD_NEXT_READY;
  *out = s->element;
  *status = s->status;
  s->element = NULL;
  s->status = NULL;
  slot_free(s);
  return TD_NEXT_READY;
}

void td_ahead_begin(td_ahead *a) {
  pthread_mutex_lock(&a->lock);
  bool fetches = claim(a);
  pthread_mutex_unlock(&a->lock);
  if (fetches) submit(a, &a->work);
}

void td_ahead_stop(td_ahead *a) {
  if (!a) return;
  td_cancellation **calls = NULL;
  size_t count = 0, capacity = 0;
  pthread_mutex_lock(&a->lock);
  a->is_stopped = true;
  td_driver *consumer = a->consumer;
  a->consumer = NULL;
  for (slot *s = a->first; s; s = s->next) {
    if (s->is_done) continue;
    TD_GROW(calls, count, capacity);
    calls[count++] = td_cancellation_retain(s->call.cancellation);
  }
  td_driver *archivist = a->archivist;
  a->archivist = NULL;
  pthread_mutex_unlock(&a->lock);
  td_driver_unwatch(consumer);
  td_driver_unwatch(archivist);
  td_cancellation_cancel(a->cancellation);
  for (size_t i = 0; i < count; i++) {
    td_cancellation_cancel(calls[i]);
    td_cancellation_release(calls[i]);
  }
  td_free(calls);
  release(a);
}

/* ---- archives ---- */

/* Holds it still; true when it is. */
static bool pause_for(td_ahead *a, td_archive *archive) {
  bool is_known = false;
  for (size_t i = 0; i < archive->paused_count && !is_known; i++) is_known = archive->paused[i] == a;
  pthread_mutex_lock(&a->lock);
  if (!is_known) {
    TD_GROW(archive->paused, archive->paused_count, archive->paused_capacity);
    archive->paused[archive->paused_count++] = retain(a);
    a->pauses++;
  }
  bool still = !is_at_work(a);
  if (!still && !a->archivist) a->archivist = td_driver_watch(archive->waiter);
  pthread_mutex_unlock(&a->lock);
  return still;
}

void td_ahead_resume(td_ahead *a) {
  pthread_mutex_lock(&a->lock);
  a->pauses--;
  td_driver *archivist = a->archivist;
  a->archivist = NULL;
  bool fetches = (a->has_begun || a->consumer) && claim(a); /* who came meanwhile waits */
  pthread_mutex_unlock(&a->lock);
  wake_archivist(archivist);
  if (fetches) submit(a, &a->work);
  release(a);
}

static td_status archive_slot(td_ahead *a, td_archive *archive, slot *s) {
  TD_TRY(td_archive_error(archive, &s->status));
  return td_archive_element(archive, &a->owner->spec, &s->element);
}

static td_status read_slots(td_ahead *a, td_archive *archive, size_t n) {
  for (size_t i = 0; i < n; i++) {
    slot *s = td_new(slot);
    *s = (slot){.ahead = a, .is_done = true};
    td_status status = archive_slot(a, archive, s);
    if (status) {
      slot_free(s);
      return status;
    }
    *a->last = s;
    a->last = &s->next;
    a->count++;
  }
  return TD_STATUS_OK;
}

/* Nobody else touches one that is held still, nor one that has not begun. */
td_status td_ahead_archive(td_ahead *a, td_archive *archive) {
  if (archive->is_writing && !pause_for(a, archive)) {
    archive->is_busy = true;
    return TD_STATUS_OK;
  }
  size_t n = (size_t)a->count;
  TD_TRY(td_archive_bool(archive, &a->has_ended));
  TD_TRY(td_archive_count(archive, &n));
  if (archive->is_writing) {
    for (slot *s = a->first; s; s = s->next) TD_TRY(archive_slot(a, archive, s));
  } else {
    TD_TRY(read_slots(a, archive, n));
  }
  return td_driver_archive(a->driver, archive);
}

#include "framework/cancellation.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"

enum { IDLE, REGISTERED };

struct td_cancellation {
  atomic_uint refs;
  atomic_bool cancelled;
  pthread_mutex_t lock;
  pthread_cond_t returned;
  /* guarded by lock */
  td_cancel_callback list;     /* ring head */
  td_cancel_callback *running; /* the one that cancel() is calling */
};

td_cancellation *td_cancellation_create(void) {
  td_cancellation *c = td_new(td_cancellation);
  atomic_init(&c->refs, 1);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->returned, NULL);
  c->list.prev = c->list.next = &c->list;
  return c;
}

td_cancellation *td_cancellation_retain(td_cancellation *c) {
  atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
  return c;
}

void td_cancellation_release(td_cancellation *c) {
  /* acq_rel: the last owner sees what the others did */
  if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
  pthread_cond_destroy(&c->returned);
  pthread_mutex_destroy(&c->lock);
  td_free(c);
}

bool td_cancellation_is_cancelled(const td_cancellation *c) {
  /* relaxed: a hint; who acts on it takes the lock or ends by the step's own status */
  return c && atomic_load_explicit(&c->cancelled, memory_order_relaxed);
}

static void unlink_callback(td_cancel_callback *cb) {
  cb->prev->next = cb->next;
  cb->next->prev = cb->prev;
  cb->prev = cb->next = NULL;
  cb->state = IDLE;
}

void td_cancellation_cancel(td_cancellation *c) {
  td_cancellation_retain(c); /* a callback may drop the last reference */
  pthread_mutex_lock(&c->lock);
  bool first = !atomic_exchange_explicit(&c->cancelled, true, memory_order_relaxed);
  while (first && c->list.next != &c->list) {
    td_cancel_callback *cb = c->list.next;
    unlink_callback(cb);
    c->running = cb; /* an address only: the callback may free what it is embedded in */
    pthread_mutex_unlock(&c->lock);
    cb->cancelled(cb);
    pthread_mutex_lock(&c->lock);
    c->running = NULL;
    pthread_cond_broadcast(&c->returned);
  }
  pthread_mutex_unlock(&c->lock);
  td_cancellation_release(c);
}

bool td_cancellation_register(td_cancellation *c, td_cancel_callback *cb) {
  pthread_mutex_lock(&c->lock);
  bool ok = !atomic_load_explicit(&c->cancelled, memory_order_relaxed);
  cb->state = IDLE;
  if (ok) {
    cb->prev = c->list.prev;
    cb->next = &c->list;
    cb->prev->next = cb->next->prev = cb;
    cb->state = REGISTERED;
  }
  pthread_mutex_unlock(&c->lock);
  return ok;
}

static bool unregister(td_cancellation *c, td_cancel_callback *cb, bool wait) {
  pthread_mutex_lock(&c->lock);
  bool withdrawn = cb->state == REGISTERED;
  if (withdrawn) unlink_callback(cb);
  while (wait && c->running == cb) pthread_cond_wait(&c->returned, &c->lock);
  pthread_mutex_unlock(&c->lock);
  return withdrawn;
}

void td_cancellation_visit(td_cancellation *c, void (*visit)(void *arg, td_str what, uint64_t since_ns), void *arg) {
  td_strbuf what = {0};
  pthread_mutex_lock(&c->lock);
  for (const td_cancel_callback *cb = c->list.next; cb != &c->list; cb = cb->next) {
    uint64_t since_ns = 0;
    if (!cb->describe) continue;
    what.size = 0;
    cb->describe(cb, &what, &since_ns);
    visit(arg, td_strbuf_view(&what), since_ns);
  }
  pthread_mutex_unlock(&c->lock);
  td_strbuf_deinit(&what);
}

bool td_cancellation_unregister(td_cancellation *c, td_cancel_callback *cb) { return unregister(c, cb, true); }

bool td_cancellation_try_unregister(td_cancellation *c, td_cancel_callback *cb) { return unregister(c, cb, false); }

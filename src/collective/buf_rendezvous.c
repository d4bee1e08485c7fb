#include "collective/buf_rendezvous.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "base/mem.h"

/* One side that waits for the other; its key's bytes lie behind it. */
typedef struct hook {
  td_buf_offer *offer; /* one of the two */
  td_buf_want *want;
  td_str key;
} hook;

struct td_buf_rendezvous {
  atomic_uint refs;
  int64_t id;
  td_cancellation *cancellation; /* retained */
  td_cancel_callback on_cancel;
  pthread_mutex_t lock;
  /* guarded by lock */
  td_map hooks;
  td_status aborted;
};

static void cancelled(td_cancel_callback *c) {
  td_buf_rendezvous *r = TD_CONTAINER_OF(c, td_buf_rendezvous, on_cancel);
  td_status s = td_status_derive(td_aborted("Step %lld has ended; its collectives are aborted.", (long long)r->id));
  td_buf_rendezvous_abort(r, s);
  td_status_free(s);
  td_buf_rendezvous_release(r); /* the registration's */
}

td_buf_rendezvous *td_buf_rendezvous_create(int64_t id, td_cancellation *cancellation) {
  td_buf_rendezvous *r = td_new(td_buf_rendezvous);
  atomic_init(&r->refs, 1);
  r->id = id;
  pthread_mutex_init(&r->lock, NULL);
  r->cancellation = td_cancellation_retain(cancellation);
  r->on_cancel.cancelled = cancelled;
  td_buf_rendezvous_retain(r);
  if (!td_cancellation_register(cancellation, &r->on_cancel)) cancelled(&r->on_cancel);
  return r;
}

td_buf_rendezvous *td_buf_rendezvous_retain(td_buf_rendezvous *r) {
  atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
  return r;
}

void td_buf_rendezvous_release(td_buf_rendezvous *r) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  td_cancellation_release(r->cancellation);
  td_map_deinit(&r->hooks);
  td_status_free(r->aborted);
  pthread_mutex_destroy(&r->lock);
  td_free(r);
}

void td_buf_rendezvous_close(td_buf_rendezvous *r) {
  if (!r) return;
  if (td_cancellation_try_unregister(r->cancellation, &r->on_cancel)) td_buf_rendezvous_release(r);
  td_buf_rendezvous_release(r);
}

static void add_hook(td_buf_rendezvous *r, td_str key, td_buf_offer *o, td_buf_want *w) {
  hook *h = td_calloc(1, sizeof *h + key.size);
  h->offer = o;
  h->want = w;
  h->key = td_str_n(memcpy(h + 1, key.data, key.size), key.size);
  td_map_put(&r->hooks, h->key, h);
}

/* The other side's hook, taken out; NULL when this side now waits, or has *status. With the lock held. */
static hook *meet(td_buf_rendezvous *r, td_str key, td_buf_offer *o, td_buf_want *w, td_status *status) {
  hook *h = td_map_get(&r->hooks, key);
  if (r->aborted)
    *status = td_status_derive(td_status_retain(r->aborted));
  else if (h && o && h->offer)
    *status = td_internal("BufRendezvous::ProvideBuf already called for key %.*s", TD_STR_ARG(key));
  else if (h && w && h->want)
    *status = td_internal("Second consumer arrived for key %.*s", TD_STR_ARG(key));
  else if (h)
    return td_map_remove(&r->hooks, key);
  else
    add_hook(r, key, o, w);
  return NULL;
}

void td_buf_rendezvous_offer(td_buf_rendezvous *r, td_str key, td_buf_offer *o) {
  td_status s = TD_STATUS_OK;
  pthread_mutex_lock(&r->lock);
  hook *h = meet(r, key, o, NULL, &s);
  pthread_mutex_unlock(&r->lock);
  if (h) h->want->done(h->want, TD_STATUS_OK, o);
  if (s) o->done(o, s);
  td_free(h);
}

void td_buf_rendezvous_want(td_buf_rendezvous *r, td_str key, td_buf_want *w) {
  td_status s = TD_STATUS_OK;
  pthread_mutex_lock(&r->lock);
  hook *h = meet(r, key, NULL, w, &s);
  pthread_mutex_unlock(&r->lock);
  if (h) w->done(w, TD_STATUS_OK, h->offer);
  if (s) w->done(w, s, NULL);
  td_free(h);
}

bool td_buf_rendezvous_withdraw(td_buf_rendezvous *r, td_str key, td_buf_want *w) {
  pthread_mutex_lock(&r->lock);
  hook *h = td_map_get(&r->hooks, key);
  bool waits = h && h->want == w;
  if (waits) td_map_remove(&r->hooks, key);
  pthread_mutex_unlock(&r->lock);
  if (waits) td_free(h);
  return waits;
}

void td_buf_rendezvous_abort(td_buf_rendezvous *r, td_status status) {
  void *v;
  td_buf_rendezvous_retain(r); /* who waited may have been the last to hold it */
  pthread_mutex_lock(&r->lock);
  if (!r->aborted) r->aborted = td_status_retain(status);
  td_map hooks = r->hooks;
  r->hooks = (td_map){0};
  pthread_mutex_unlock(&r->lock);
  for (size_t i = 0; td_map_next(&hooks, &i, NULL, &v);) {
    hook *h = v;
    if (h->want)
      h->want->done(h->want, td_status_retain(status), NULL);
    else
      h->offer->done(h->offer, td_status_retain(status));
    td_free(h);
  }
  td_map_deinit(&hooks);
  td_buf_rendezvous_release(r);
}

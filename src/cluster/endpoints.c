#include "cluster/endpoints.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"

/* What is fed: a TensorHandle of TensorFlow's client is a resource handle with that container. One reference. */
static td_status fed_tensor(td_tensor *t, td_session_state *state, td_tensor **out) {
  const td_resource_handle *handle =
      t->dtype == TD_RESOURCE && td_tensor_is_scalar(t) ? TD_DATA(t, td_resource_handle *)[0] : NULL;
  if (handle && !strcmp(handle->container, "TensorHandle"))
    return td_session_state_get(state, td_str_of(handle->name), out);
  *out = td_tensor_retain(t);
  return TD_STATUS_OK;
}

td_status td_feeds_offer(td_run_graph *r, td_session_state *state, td_rendezvous *rendezvous) {
  for (int i = 0; i < r->send_count; i++) {
    td_tensor *t;
    TD_TRY(fed_tensor(r->sends[i], state, &t));
    TD_TRY(td_rendezvous_send(rendezvous, &r->send_keys[i], (td_frame_id){0}, t, false));
  }
  return TD_STATUS_OK;
}

typedef struct fetch {
  td_recv recv;
  struct fetches *all;
  int index;
} fetch;

typedef struct fetches {
  td_run_graph *r;
  void (*done)(void *arg, td_status status);
  void *arg;
  atomic_int pending;
  pthread_mutex_t lock;
  td_status status; /* guarded by lock until pending is 0 */
  fetch items[];
} fetches;

static void finish(fetches *f) {
  void (*done)(void *, td_status) = f->done;
  void *arg = f->arg;
  td_status status = f->status;
  pthread_mutex_destroy(&f->lock);
  td_free(f);
  done(arg, status);
}

static void fetched(td_recv *recv, td_status status, td_tensor *t, bool dead) {
  fetch *item = TD_CONTAINER_OF(recv, fetch, recv);
  fetches *f = item->all;
  td_run_graph *r = f->r;
  if (!status && dead) {
    td_tensor_release(t);
    t = NULL;
    status = td_internal(
        "Failed to fetch outputs for step %lld. (Original error message: Invalid argument: The tensor returned for "
        "%.*s was not valid.)",
        (long long)r->step_id, TD_STR_ARG(r->recv_keys[item->index].text));
  }
  r->recvs[item->index] = t;
  if (status) {
    pthread_mutex_lock(&f->lock);
    td_status_merge(&f->status, status);
    pthread_mutex_unlock(&f->lock);
  }
  /* acq_rel: who comes last sees what the others stored */
  if (atomic_fetch_sub_explicit(&f->pending, 1, memory_order_acq_rel) == 1) finish(f);
}

void td_fetches_take(td_run_graph *r, td_rendezvous *local, void (*done)(void *, td_status), void *arg) {
  int n = r->recv_count;
  const td_rendezvous_key *keys = r->recv_keys;
  if (!n) {
    done(arg, TD_STATUS_OK);
    return;
  }
  fetches *f = td_malloc(sizeof *f + (size_t)n * sizeof *f->items);
  *f = (fetches){.r = r, .done = done, .arg = arg};
  pthread_mutex_init(&f->lock, NULL);
  atomic_store_explicit(&f->pending, n, memory_order_relaxed);
  for (int i = 0; i < n; i++) f->items[i] = (fetch){.recv.done = fetched, .all = f, .index = i};
  td_rendezvous_retain(local);
  /* After the last one completes nothing of `f` may be touched. */
  for (int i = 0; i < n; i++) td_rendezvous_recv(local, &keys[i], (td_frame_id){0}, &f->items[i].recv);
  td_rendezvous_release(local);
}

void td_fetches_drop(td_run_graph *r) {
  for (int i = 0; i < r->recv_count; i++) {
    td_tensor_release(r->recvs[i]);
    r->recvs[i] = NULL;
  }
}

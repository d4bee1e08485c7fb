#include "cluster/remote_rendezvous.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "runtime/local_rendezvous.h"
#include "tensor/memory.h"

/* A tensor asked of another task: by a call of its own, or in a batch with what else is asked of that task before the
 * loop's turn ends. Lives until it is done and, with a call of its own, the call's handle was handed over. An abort
 * completes the kernel's request itself and does not wait for the peer. */
typedef struct remote_recv remote_recv;
struct remote_recv {
  td_recv recv;                  /* what the peer completes */
  struct step_rendezvous *owner; /* retained */
  struct remote_recv *prev, *next;
  /* guarded by owner->lock */
  td_recv *request;     /* the kernel's; NULL once abort() took it */
  td_client_call *call; /* NULL until started, and once abort() took it */
  td_recv_batch *batch; /* retained; NULL until it starts, or with a call of its own */
  bool is_done;         /* completed before its handle was known */
  bool is_started;
  td_worker *worker;        /* while it waits to be batched, */
  remote_recv *next_queued; /* and then nobody else completes it */
  uint64_t since_ns;
  td_str key; /* canonical; its bytes lie behind this */
  uint64_t hash;
  td_frame_id frame;
};

typedef struct step_rendezvous {
  td_rendezvous base;
  int64_t step_id;
  td_rendezvous *local;
  pthread_mutex_t lock;
  /* guarded by lock */
  td_peers *peers;     /* NULL until attached */
  td_loop *home;       /* the loop that attached them; NULL: another thread did */
  remote_recv pending; /* ring head */
  remote_recv *queued, **queued_last;
  bool flushes; /* `flush` is on its way to a loop */
  td_status aborted;
  td_work flush;
} step_rendezvous;

static td_status send(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, td_tensor *t, bool dead) {
  return td_rendezvous_send(((step_rendezvous *)r)->local, key, frame, t, dead);
}

static td_status send_variable(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, td_variable *v) {
  return td_rendezvous_send_variable(((step_rendezvous *)r)->local, key, frame, v);
}

/* "/job:j/replica:0/task:t" of a full device name. */
static td_str task_of(td_str device) {
  const char *at = device.size ? memrchr(device.data, '/', device.size) : NULL;
  return at ? td_str_n(device.data, (size_t)(at - device.data)) : device;
}

static void remote_recv_free(remote_recv *p) { td_memory_object_free(p, sizeof *p + p->key.size); }

static void unlink_recv(remote_recv *p) {
  p->prev->next = p->next;
  p->next->prev = p->prev;
}

static void remote_done(td_recv *recv, td_status status, td_tensor *t, bool dead) {
  remote_recv *p = TD_CONTAINER_OF(recv, remote_recv, recv);
  step_rendezvous *r = p->owner;
  pthread_mutex_lock(&r->lock);
  unlink_recv(p);
  td_client_call *call = p->call;
  td_recv_batch *batch = p->batch;
  bool frees = p->is_started; /* else recv() is still on its way out and frees it */
  p->is_done = true;
  /* An aborted step reports why it was aborted, not that its calls were cancelled. */
  if (status && r->aborted) {
    td_status_free(status);
    status = td_status_retain(r->aborted);
  }
  td_recv *request = p->request;
  pthread_mutex_unlock(&r->lock);
  if (call) td_client_call_release(call);
  td_recv_batch_release(batch);
  if (frees) remote_recv_free(p);
  if (request) {
    request->done(request, status, t, dead);
  } else {
    td_status_free(status);
    td_tensor_release(t);
  }
  td_rendezvous_release(&r->base);
}

static remote_recv *remote_recv_create(step_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame,
                                       td_recv *request) {
  remote_recv *p = td_memory_object_alloc(sizeof *p + key->text.size);
  *p = (remote_recv){0};
  p->key = td_str_n(memcpy(p + 1, key->text.data, key->text.size), key->text.size);
  p->hash = key->hash;
  p->frame = frame;
  p->since_ns = td_now_coarse_ns();
  p->recv.done = remote_done;
  p->request = request;
  p->owner = (step_rendezvous *)td_rendezvous_retain(&r->base);
  return p;
}

/* With the lock held: `p` can be aborted from now on. False: the step was, and nothing else knows of `p`. */
static bool link_recv(step_rendezvous *r, remote_recv *p) {
  if (r->aborted) return false;
  p->prev = r->pending.prev;
  p->next = &r->pending;
  p->prev->next = p->next->prev = p;
  return true;
}

static void refuse(remote_recv *p) {
  step_rendezvous *r = p->owner;
  td_recv *request = p->request;
  remote_recv_free(p);
  request->done(request, td_status_retain(r->aborted), NULL, false); /* set once */
  td_rendezvous_release(&r->base);
}

static void recv_remote(step_rendezvous *r, td_worker *w, const td_rendezvous_key *key, td_frame_id frame,
                        td_recv *request) {
  remote_recv *p = remote_recv_create(r, key, frame, request);
  pthread_mutex_lock(&r->lock);
  bool is_linked = link_recv(r, p);
  pthread_mutex_unlock(&r->lock);
  if (!is_linked) {
    refuse(p);
    return;
  }
  td_status aborted = TD_STATUS_OK;
  td_rendezvous_retain(&r->base); /* for the part below: `p` may be done at any time now */
  td_client_call *call = w->ops->recv_tensor(w, r->step_id, key, frame, &p->recv);
  pthread_mutex_lock(&r->lock);
  bool done = p->is_done, cancel = !done && r->aborted;
  p->is_started = true;
  if (cancel) {
    p->request = NULL;
    aborted = td_status_retain(r->aborted);
  } else if (!done) {
    p->call = call;
  }
  pthread_mutex_unlock(&r->lock);
  if (cancel) td_client_call_cancel(call);
  if (call && (cancel || done)) td_client_call_release(call);
  if (done) remote_recv_free(p);
  if (cancel) request->done(request, aborted, NULL, false);
  td_rendezvous_release(&r->base);
}

/* ---- batches ---- */

typedef struct starting {
  td_worker *worker;
  td_recv_batch *batch;
} starting;

/* With the lock held: takes those that are asked of the first one's worker out of the list. */
static starting make_batch(const step_rendezvous *r, remote_recv **list) {
  td_worker *worker = (*list)->worker;
  size_t count = 0;
  for (remote_recv *p = *list; p; p = p->next_queued) count += p->worker == worker;
  starting s = {worker, td_recv_batch_create(r->step_id, count)};
  for (remote_recv **at = list, *p; (p = *at);) {
    if (p->worker != worker) {
      at = &p->next_queued;
      continue;
    }
    *at = p->next_queued;
    p->batch = td_recv_batch_retain(s.batch);
    p->is_started = true;
    td_recv_batch_add(s.batch, p->key, p->hash, p->frame, &p->recv);
  }
  return s;
}

/* With the lock held: those whose request an abort took are not asked for; a list of them. */
static remote_recv *drop_aborted(remote_recv **list) {
  remote_recv *dropped = NULL;
  for (remote_recv **at = list, *p; (p = *at);) {
    if (p->request) {
      at = &p->next_queued;
      continue;
    }
    *at = p->next_queued;
    unlink_recv(p);
    p->next_queued = dropped;
    dropped = p;
  }
  return dropped;
}

static void flush(td_work *w) {
  step_rendezvous *r = TD_CONTAINER_OF(w, step_rendezvous, flush);
  starting *all = NULL;
  size_t count = 0, capacity = 0;
  pthread_mutex_lock(&r->lock);
  remote_recv *dropped = drop_aborted(&r->queued);
  while (r->queued) {
    TD_GROW(all, count, capacity);
    all[count++] = make_batch(r, &r->queued);
  }
  r->queued_last = &r->queued;
  r->flushes = false;
  pthread_mutex_unlock(&r->lock);
  for (remote_recv *p = dropped, *next; p; p = next) {
    next = p->next_queued;
    remote_recv_free(p);
    td_rendezvous_release(&r->base);
  }
  for (size_t i = 0; i < count; i++) {
    all[i].worker->ops->recv_tensors(all[i].worker, all[i].batch);
    td_recv_batch_release(all[i].batch);
  }
  td_free(all);
  td_rendezvous_release(&r->base);
}

/* What a step asks of a task in one turn of the loop goes out together. */
static void recv_batched(step_rendezvous *r, td_worker *w, const td_rendezvous_key *key, td_frame_id frame,
                         td_recv *request) {
  remote_recv *p = remote_recv_create(r, key, frame, request);
  p->worker = w;
  pthread_mutex_lock(&r->lock);
  td_loop *home = r->home;
  bool is_linked = link_recv(r, p), posts = is_linked && !r->flushes;
  if (is_linked) {
    *r->queued_last = p;
    r->queued_last = &p->next_queued;
  }
  if (posts) {
    r->flushes = true;
    td_rendezvous_retain(&r->base);
  }
  pthread_mutex_unlock(&r->lock);
  if (posts) td_loop_post(w->ops->loop(w, home), &r->flush);
  if (!is_linked) refuse(p);
}

static void recv(td_rendezvous *base, const td_rendezvous_key *key, td_frame_id frame, td_recv *request) {
  step_rendezvous *r = (step_rendezvous *)base;
  pthread_mutex_lock(&r->lock);
  td_peers *peers = r->peers; /* attached once, lives as long as the step */
  pthread_mutex_unlock(&r->lock);
  td_worker *w = peers ? td_peers_find(peers, task_of(key->src_device)) : NULL;
  if (w && !w->is_self && !request->is_large && w->ops->takes_batches(w, frame)) {
    recv_batched(r, w, key, frame, request);
  } else if (w && !w->is_self) {
    recv_remote(r, w, key, frame, request);
  } else if (w || !peers) {
    td_rendezvous_recv(r->local, key, frame, request);
  } else {
    request->done(request,
                  td_invalid_argument("No worker known as %.*s (key %.*s)", TD_STR_ARG(task_of(key->src_device)),
                                      TD_STR_ARG(key->text)),
                  NULL, false);
  }
}

/* What an abort has to end, once the lock is let go. */
typedef struct ending {
  td_recv *request;
  td_client_call *call;
  td_recv_batch *batch;
} ending;

static void abort_step(td_rendezvous *base, td_status status) {
  step_rendezvous *r = (step_rendezvous *)base;
  td_rendezvous_retain(base);
  td_rendezvous_abort(r->local, status);
  ending *endings = NULL;
  size_t count = 0, capacity = 0;
  pthread_mutex_lock(&r->lock);
  if (!r->aborted) r->aborted = td_status_retain(status);
  for (remote_recv *p = r->pending.next; p != &r->pending; p = p->next) {
    if (!p->request || (!p->is_started && !p->worker)) continue; /* recv_remote(), on its way out, ends it */
    TD_GROW(endings, count, capacity);
    endings[count++] = (ending){p->request, p->call, p->batch ? td_recv_batch_retain(p->batch) : NULL};
    p->request = NULL;
    p->call = NULL;
  }
  pthread_mutex_unlock(&r->lock);
  for (size_t i = 0; i < count; i++) {
    if (endings[i].call) {
      td_client_call_cancel(endings[i].call);
      td_client_call_release(endings[i].call);
    }
    if (endings[i].batch) td_recv_batch_cancel(endings[i].batch);
    td_recv_batch_release(endings[i].batch);
    endings[i].request->done(endings[i].request, td_status_retain(status), NULL, false);
  }
  td_free(endings);
  td_rendezvous_release(base);
}

static void destroy(td_rendezvous *base) {
  step_rendezvous *r = (step_rendezvous *)base;
  td_rendezvous_release(r->local);
  td_peers_release(r->peers);
  td_status_free(r->aborted);
  pthread_mutex_destroy(&r->lock);
  td_free(r);
}

static const td_rendezvous_ops ops = {
    .send = send, .send_variable = send_variable, .recv = recv, .abort = abort_step, .destroy = destroy};

td_rendezvous *td_step_rendezvous_create(int64_t step_id) {
  step_rendezvous *r = td_new(step_rendezvous);
  r->base.ops = &ops;
  atomic_init(&r->base.refs, 1);
  r->step_id = step_id;
  r->local = td_local_rendezvous_create();
  pthread_mutex_init(&r->lock, NULL);
  r->pending.prev = r->pending.next = &r->pending;
  r->queued_last = &r->queued;
  r->flush.run = flush;
  return &r->base;
}

void td_step_rendezvous_attach(td_rendezvous *base, td_peers *peers) {
  step_rendezvous *r = (step_rendezvous *)base;
  pthread_mutex_lock(&r->lock);
  if (!r->peers) {
    r->peers = td_peers_retain(peers);
    r->home = td_loop_current();
  }
  pthread_mutex_unlock(&r->lock);
}

void td_step_rendezvous_visit_waiting(td_rendezvous *base, void (*visit)(void *arg, td_str key, uint64_t since_ns),
                                      void *arg) {
  step_rendezvous *r = (step_rendezvous *)base;
  pthread_mutex_lock(&r->lock);
  for (const remote_recv *p = r->pending.next; p != &r->pending; p = p->next)
    if (p->request) visit(arg, p->key, p->since_ns);
  pthread_mutex_unlock(&r->lock);
}

td_rendezvous *td_step_rendezvous_local(td_rendezvous *r) { return ((step_rendezvous *)r)->local; }

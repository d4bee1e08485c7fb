#include "cluster/remote_rendezvous.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "runtime/local_rendezvous.h"

/* A tensor asked of another task. Lives from recv() until both its completion and the hand-over of the call's handle
 * have happened. An abort completes the kernel's request itself and does not wait for the peer. */
typedef struct remote_recv {
  td_recv recv;                  /* what the peer completes */
  struct step_rendezvous *owner; /* retained */
  struct remote_recv *prev, *next;
  /* guarded by owner->lock */
  td_recv *request;     /* the kernel's; NULL once abort() took it */
  td_client_call *call; /* NULL until started, and once abort() took it */
  bool is_done;         /* completed before its handle was known */
  bool is_started;
  uint64_t since_ns;
  td_str key; /* its bytes lie behind this */
} remote_recv;

typedef struct step_rendezvous {
  td_rendezvous base;
  int64_t step_id;
  td_rendezvous *local;
  pthread_mutex_t lock;
  /* guarded by lock */
  td_peers *peers;     /* NULL until attached */
  remote_recv pending; /* ring head */
  td_status aborted;
} step_rendezvous;

static td_status send(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, td_tensor *t, bool dead) {
  return td_rendezvous_send(((step_rendezvous *)r)->local, key, frame, t, dead);
}

static td_status send_variable(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, td_variable *v) {
  return td_rendezvous_send_variable(((step_rendezvous *)r)->local, key, frame, v);
}

/* "/job:j/replica:0/task:t" of a full device name. */
static td_str task_of(td_str device) {
  const char *at = memmem(device.data, device.size, "/device:", 8);
  return at ? td_str_n(device.data, (size_t)(at - device.data)) : device;
}

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
  if (frees) td_free(p);
  if (request) {
    request->done(request, status, t, dead);
  } else {
    td_status_free(status);
    td_tensor_release(t);
  }
  td_rendezvous_release(&r->base);
}

static void recv_remote(step_rendezvous *r, td_worker *w, const td_rendezvous_key *key, td_frame_id frame,
                        td_recv *request) {
  remote_recv *p = td_calloc(1, sizeof *p + key->text.size);
  p->key = td_str_n(memcpy(p + 1, key->text.data, key->text.size), key->text.size);
  p->since_ns = td_now_coarse_ns();
  p->recv.done = remote_done;
  p->request = request;
  p->owner = (step_rendezvous *)td_rendezvous_retain(&r->base);
  pthread_mutex_lock(&r->lock);
  td_status aborted = td_status_retain(r->aborted);
  if (!aborted) {
    p->prev = r->pending.prev;
    p->next = &r->pending;
    p->prev->next = p->next->prev = p;
  }
  pthread_mutex_unlock(&r->lock);
  if (aborted) {
    td_free(p);
    td_rendezvous_release(&r->base);
    request->done(request, aborted, NULL, false);
    return;
  }
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
  if (done) td_free(p);
  if (cancel) request->done(request, aborted, NULL, false);
  td_rendezvous_release(&r->base);
}

static void recv(td_rendezvous *base, const td_rendezvous_key *key, td_frame_id frame, td_recv *request) {
  step_rendezvous *r = (step_rendezvous *)base;
  pthread_mutex_lock(&r->lock);
  td_peers *peers = r->peers; /* attached once, lives as long as the step */
  pthread_mutex_unlock(&r->lock);
  td_worker *w = peers ? td_peers_find(peers, task_of(key->src_device)) : NULL;
  if (w && !w->is_self) {
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
    if (!p->is_started || !p->request) continue; /* recv_remote(), on its way out, ends it */
    TD_GROW(endings, count, capacity);
    endings[count++] = (ending){p->request, p->call};
    p->request = NULL;
    p->call = NULL;
  }
  pthread_mutex_unlock(&r->lock);
  for (size_t i = 0; i < count; i++) {
    if (endings[i].call) {
      td_client_call_cancel(endings[i].call);
      td_client_call_release(endings[i].call);
    }
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
  return &r->base;
}

void td_step_rendezvous_attach(td_rendezvous *base, td_peers *peers) {
  step_rendezvous *r = (step_rendezvous *)base;
  pthread_mutex_lock(&r->lock);
  if (!r->peers) r->peers = td_peers_retain(peers);
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

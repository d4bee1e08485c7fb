/* RecvTensors: a peer wants several tensors that are made here (recv_batch.h). */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "cluster/messages.h"
#include "cluster/recv_batch.h"
#include "cluster/recv_batch_writer.h"
#include "cluster/remote_rendezvous.h"
#include "cluster/request_ids.h"
#include "cluster/services.h"
#include "cluster/step_table.h"
#include "proto/wire.h"
#include "runtime/local_rendezvous.h"
#include "tensor/loan.h"

enum { MAX_KEYS = 65536 };
static const size_t REPLY_BYTES = 1 << 20; /* a reply ends with the tensor that passes this */

typedef struct batch batch;

/* One tensor that is wanted. */
typedef struct want {
  td_recv recv;
  batch *batch;                    /* retained until the receive is done */
  const struct td_framed_key *key; /* of the batch's set */
  td_tensor *tensor;               /* once it is there */
  bool is_dead;
  struct want *next;
} want;

/* One reference each: the table's, the step's cancellation's, the waiting call's, a posted flush's, and of each want
 * that waits. */
struct batch {
  atomic_uint refs;
  td_task *task;
  td_step_entry *entry; /* retained */
  uint64_t id;
  td_key_set *keys;
  td_cancel_callback on_cancel;
  pthread_mutex_t lock;
  /* guarded by lock */
  want *ready, **ready_last; /* what came and was not sent */
  size_t left;               /* not sent yet */
  td_status failure;
  td_call *call;  /* waits for the next tensor, */
  pid_t borrower; /* and is this process's, which can be lent tensors; 0: it cannot */
  bool gave_up;
  bool tells_number; /* the next reply says what the set is known by */
  bool flushes;      /* `flush` is on its way to the call's loop */
  td_work flush;
  size_t count;
  want wants[];
};

/* ---- the table: batches of which some tensors are still to be sent ---- */

struct td_recv_batches {
  pthread_mutex_t lock;
  /* guarded by lock */
  td_map batches; /* id (its eight bytes) -> batch */
  uint64_t next_id;
};

td_recv_batches *td_recv_batches_create(void) {
  td_recv_batches *t = td_new(td_recv_batches);
  pthread_mutex_init(&t->lock, NULL);
  return t;
}

void td_recv_batches_destroy(td_recv_batches *t) {
  if (!t) return;
  td_map_deinit(&t->batches);
  pthread_mutex_destroy(&t->lock);
  td_free(t);
}

size_t td_recv_batches_count(td_recv_batches *t) {
  pthread_mutex_lock(&t->lock);
  size_t n = t->batches.count;
  pthread_mutex_unlock(&t->lock);
  return n;
}

static td_str key_of(const uint64_t *id) { return td_str_n(id, sizeof *id); }

static void release(batch *b) {
  /* acq_rel: the last owner sees what the others wrote */
  if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
  for (want *w = b->ready; w; w = w->next) td_tensor_release(w->tensor);
  if (b->gave_up)
    td_step_table_abandon(b->task->steps, b->entry);
  else
    td_step_entry_release(b->entry);
  td_status_free(b->failure);
  pthread_mutex_destroy(&b->lock);
  td_key_set_release(b->keys);
  td_free(b);
}

static batch *retain(batch *b) {
  atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
  return b;
}

static void enter(td_recv_batches *t, batch *b) {
  pthread_mutex_lock(&t->lock);
  b->id = ++t->next_id;
  td_map_put(&t->batches, key_of(&b->id), retain(b));
  pthread_mutex_unlock(&t->lock);
}

static bool leave(td_recv_batches *t, batch *b) {
  pthread_mutex_lock(&t->lock);
  batch *found = td_map_remove(&t->batches, key_of(&b->id));
  pthread_mutex_unlock(&t->lock);
  if (found) release(found);
  return found;
}

static batch *find(td_recv_batches *t, uint64_t id) {
  pthread_mutex_lock(&t->lock);
  batch *b = td_map_get(&t->batches, key_of(&id));
  if (b) retain(b);
  pthread_mutex_unlock(&t->lock);
  return b;
}

/* Nothing is left to send: nobody finds the batch any more. The caller has a reference. */
static void end(batch *b) {
  if (leave(b->task->batches, b) && td_cancellation_try_unregister(b->entry->cancellation, &b->on_cancel)) release(b);
}

/* ---- replies ---- */

/* What the waiting call gets. With the lock held; NULL: it waits on. */
typedef struct answer {
  td_call *call;
  td_status failure;
  want *first;
  uint64_t rest, number;
  pid_t borrower;
} answer;

static bool take_answer(batch *b, answer *a) {
  if (!b->call || (!b->ready && !b->failure)) return false;
  *a = (answer){.call = b->call, .borrower = b->borrower, .failure = td_status_retain(b->failure)};
  b->call = NULL;
  if (a->failure) return true;
  size_t bytes = 0;
  want **at = &b->ready;
  for (; *at && bytes < REPLY_BYTES; at = &(*at)->next) {
    if ((*at)->tensor && (*at)->tensor->size <= TD_RECV_SHARED_MAX) bytes += (*at)->tensor->size;
    b->left--;
  }
  a->first = b->ready;
  b->ready = *at;
  *at = NULL;
  if (!b->ready) b->ready_last = &b->ready;
  a->rest = b->left ? b->id : 0;
  a->number = b->tells_number ? b->keys->number : 0;
  b->tells_number = false;
  return true;
}

/* Takes the tensor. One that is too large and not lent goes back to where RecvTensor finds it. */
static td_status put_tensor(const batch *b, want *w, td_recv_batch_writer *out) {
  td_tensor *t = w->tensor;
  bool is_left = false;
  td_status s = TD_STATUS_OK;
  w->tensor = NULL;
  if (w->is_dead)
    td_recv_batch_writer_put_dead(out, (uint64_t)(w - b->wants));
  else
    s = td_recv_batch_writer_put(out, (uint64_t)(w - b->wants), t, &is_left);
  if (is_left)
    return td_rendezvous_send(td_step_rendezvous_local(b->entry->rendezvous), &w->key->key, w->key->frame, t, false);
  td_tensor_release(t);
  return s;
}

static void give_answer(batch *b, const answer *a) {
  td_status s = a->failure;
  td_recv_batch_writer out;
  td_recv_batch_head head = {.sent_us = td_wall_us(), .rest = a->rest, .number = a->number};
  td_recv_batch_writer_init(&out, &head, a->borrower, b->entry);
  for (const want *w = a->first; w; w = w->next)
    if (!w->is_dead) td_recv_batch_writer_announce(&out, w->tensor);
  for (want *w = a->first; w; w = w->next) {
    if (!s) s = put_tensor(b, w, &out);
    td_tensor_release(w->tensor);
  }
  td_recv_batch_writer_end(&out);
  if (out.lends) atomic_store_explicit(&b->entry->lends, true, memory_order_relaxed); /* b holds the entry */
  if (s || !a->rest) end(b);
  if (s) {
    td_payload_deinit(&out.message);
    td_call_fail_peer(a->call, s);
  } else {
    td_call_reply(a->call, &out.message);
  }
}

static void answer_if_due(batch *b) {
  answer a;
  pthread_mutex_lock(&b->lock);
  b->flushes = false;
  bool has_answer = take_answer(b, &a);
  pthread_mutex_unlock(&b->lock);
  if (has_answer) give_answer(b, &a);
}

static void flush(td_work *w) {
  batch *b = TD_CONTAINER_OF(w, batch, flush);
  answer_if_due(b);
  release(b);
}

/* What comes before the call's loop gets to it goes out in one reply. */
static void want_done(td_recv *recv, td_status status, td_tensor *t, bool is_dead) {
  want *w = TD_CONTAINER_OF(recv, want, recv);
  batch *b = w->batch;
  pthread_mutex_lock(&b->lock);
  if (status && !b->failure) b->failure = td_status_retain(status);
  if (b->failure) {
    td_tensor_release(t);
  } else {
    w->tensor = t;
    w->is_dead = is_dead;
    *b->ready_last = w;
    b->ready_last = &w->next;
  }
  bool ends = status && !b->call;
  td_loop *posts = b->call && !b->flushes ? td_call_loop(b->call) : NULL;
  if (posts) {
    b->flushes = true;
    retain(b);
  }
  pthread_mutex_unlock(&b->lock);
  td_status_free(status);
  if (posts) td_loop_post(posts, &b->flush);
  if (ends) end(b); /* who asks for the rest hears that there is none */
  release(b);
}

/* ---- ends that come from elsewhere ---- */

static void fail(batch *b, td_status status) {
  answer a;
  pthread_mutex_lock(&b->lock);
  if (!b->failure) b->failure = td_status_retain(status);
  bool has_answer = take_answer(b, &a);
  pthread_mutex_unlock(&b->lock);
  td_status_free(status);
  if (has_answer) give_answer(b, &a);
}

/* The step ended here while the peer was not waiting, or has not asked for the rest. */
static void step_cancelled(td_cancel_callback *c) {
  batch *b = TD_CONTAINER_OF(c, batch, on_cancel);
  leave(b->task->batches, b);
  fail(b, td_status_derive(td_aborted("Cleanup %lld", (long long)b->entry->id)));
  release(b);
}

typedef struct waiting {
  batch *batch; /* retained */
  td_call *call;
} waiting;

/* The peer no longer waits; the step goes on. */
static void call_cancelled(void *arg) {
  waiting *w = arg;
  batch *b = w->batch;
  pthread_mutex_lock(&b->lock);
  bool mine = b->call == w->call;
  if (mine) {
    b->call = NULL;
    b->gave_up = true;
    if (!b->failure) b->failure = td_cancelled("RecvTensors was cancelled by the caller");
  }
  pthread_mutex_unlock(&b->lock);
  if (!mine) return;
  for (size_t i = 0; i < b->count; i++)
    if (td_local_rendezvous_cancel_recv(td_step_rendezvous_local(b->entry->rendezvous), &b->wants[i].recv)) release(b);
  end(b);
  td_call_fail_peer(w->call, td_cancelled("RecvTensors was cancelled by the caller"));
}

static void waiting_free(void *arg) {
  release(((waiting *)arg)->batch);
  td_free(arg);
}

static void on_call_cancel(batch *b, td_call *call) {
  waiting *w = td_new(waiting);
  *w = (waiting){retain(b), call};
  td_call_on_cancel_owned(call, call_cancelled, w, waiting_free);
}

/* ---- requests ---- */

typedef struct request {
  int64_t step_id, id;
  uint64_t rest, set, memory;
  size_t key_count;
  bool wants_number;
} request;

static td_status parse(td_str bytes, request *out) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  *out = (request){0};
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == 1 && f.type == TD_WIRE_VARINT) out->step_id = (int64_t)f.value;
    if (f.number == 2 && f.type == TD_WIRE_BYTES) out->key_count++;
    if (f.number == 3 && f.type == TD_WIRE_VARINT) out->rest = f.value;
    if (f.number == 6 && f.type == TD_WIRE_VARINT) out->wants_number = f.value;
    if (f.number == 7 && f.type == TD_WIRE_VARINT) out->id = (int64_t)f.value;
    if (f.number == 8 && f.type == TD_WIRE_VARINT) out->set = f.value;
    if (f.number == 9 && f.type == TD_WIRE_VARINT) out->memory = f.value;
  }
  if (bad || (!out->rest && !out->key_count && !out->set)) return td_invalid_argument("malformed RecvTensorsRequest");
  if (out->key_count > MAX_KEYS)
    return td_invalid_argument("%zu keys in one RecvTensorsRequest, more than %d", out->key_count, MAX_KEYS);
  return TD_STATUS_OK;
}

/* *out is NULL if the request names a set that is not known here. */
static td_status batch_create(td_task *task, const request *r, td_str bytes, batch **out) {
  td_key_set *keys;
  if (r->set) {
    keys = td_key_sets_find(task->key_sets, r->set);
    if (!keys) return TD_STATUS_OK;
  } else {
    TD_TRY(td_key_set_parse(task, bytes, r->key_count, &keys));
    if (r->wants_number) td_key_sets_keep(task->key_sets, keys);
  }
  batch *b = td_calloc(1, sizeof *b + keys->count * sizeof b->wants[0]);
  atomic_init(&b->refs, 1);
  pthread_mutex_init(&b->lock, NULL);
  b->task = task;
  b->keys = keys;
  b->tells_number = r->wants_number;
  b->on_cancel.cancelled = step_cancelled;
  b->ready_last = &b->ready;
  b->flush.run = flush;
  b->left = b->count = keys->count;
  for (size_t i = 0; i < b->count; i++) b->wants[i] = (want){.batch = b, .recv.done = want_done, .key = &keys->keys[i]};
  td_status s = td_step_table_get(task->steps, r->step_id, 0, &b->entry);
  if (s)
    release(b);
  else
    *out = b;
  return s;
}

static void say_unknown(td_call *call) {
  td_strbuf text = {0};
  td_payload message = {0};
  td_wire_put_uint(&text, 8, 1);
  td_payload_copy(&message, text.data, text.size);
  td_strbuf_deinit(&text);
  td_call_reply(call, &message);
}

/* The process that the request comes from, if it has mapped our memory. */
static pid_t borrower_of(const td_call *call, const request *r) {
  return r->memory && r->memory == td_loan_memory() ? td_call_neighbour(call).pid : 0;
}

/* Waits for each tensor. Those that are there come at once, and go out together: no flush is posted while `flushes`. */
static void start(batch *b, td_call *call, pid_t borrower) {
  b->call = call;
  b->borrower = borrower;
  b->flushes = true;
  on_call_cancel(b, call);
  enter(b->task->batches, b);
  retain(b);
  if (!td_cancellation_register(b->entry->cancellation, &b->on_cancel)) step_cancelled(&b->on_cancel);
  for (size_t i = 0; i < b->count; i++) {
    retain(b);
    td_rendezvous_recv(td_step_rendezvous_local(b->entry->rendezvous), &b->wants[i].key->key, b->wants[i].key->frame,
                       &b->wants[i].recv);
  }
  answer_if_due(b);
}

static void await_rest(batch *b, td_call *call, pid_t borrower) {
  answer a;
  pthread_mutex_lock(&b->lock);
  bool is_free = !b->call, has_answer = false;
  if (is_free) {
    b->call = call;
    b->borrower = borrower;
    has_answer = take_answer(b, &a);
  }
  pthread_mutex_unlock(&b->lock);
  if (has_answer) give_answer(b, &a);
  if (!is_free) td_call_fail_peer(call, td_invalid_argument("RecvTensors: another call waits for this batch"));
}

void td_recv_tensors_method(void *service, td_call *call, td_str bytes) {
  td_task *task = service;
  batch *b = NULL;
  request r;
  td_status s = parse(bytes, &r);
  if (!s) s = td_request_ids_track(task->worker_ids, r.id, "RecvTensors (GrpcWorker)");
  if (!s && r.rest) {
    b = find(task->batches, r.rest);
    if (!b || b->entry->id != r.step_id)
      s = td_status_derive(
          td_aborted("Step %lld has no batch %llu: it has ended", (long long)r.step_id, (unsigned long long)r.rest));
  } else if (!s) {
    s = batch_create(task, &r, bytes, &b);
  }
  if (s) {
    if (b) release(b);
    td_call_fail_peer(call, s);
    return;
  }
  if (!b) {
    say_unknown(call);
    return;
  }
  if (r.rest) {
    on_call_cancel(b, call);
    await_rest(b, call, borrower_of(call, &r));
  } else {
    start(b, call, borrower_of(call, &r));
  }
  release(b);
}

#include "cluster/recv_batch.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/messages.h"
#include "cluster/recv_batch_reply.h"
#include "proto/wire.h"

typedef struct item {
  td_recv *request; /* NULL once its done() was called, or RecvTensor asks for it */
  td_str key;       /* without the frame */
  uint64_t hash;
  td_frame_id frame;
  td_transfer *transfer; /* NULL: transfers are not logged */
  td_client_call *alone; /* guarded by the batch's lock: the RecvTensor of one that was too large */
} item;

struct td_recv_batch {
  atomic_uint refs; /* its users', and one while a call is in flight */
  int64_t step_id;
  size_t count, left; /* left: loop thread */
  td_channel *ch;
  td_recv_batch_peer peer;
  /* loop thread: what the keys are known by, and whether a number was asked for, or used */
  uint64_t keys_hash, number;
  bool asks_number;
  td_recv_batch_reply *reply; /* loop thread: of the call in flight */
  pthread_mutex_t lock;
  /* guarded by lock */
  td_client_call *call;
  bool is_cancelled;
  item items[];
};

td_recv_batch *td_recv_batch_create(int64_t step_id, size_t count) {
  td_recv_batch *b = td_calloc(1, sizeof *b + count * sizeof b->items[0]);
  atomic_init(&b->refs, 1);
  b->step_id = step_id;
  pthread_mutex_init(&b->lock, NULL);
  return b;
}

td_recv_batch *td_recv_batch_retain(td_recv_batch *b) {
  atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
  return b;
}

void td_recv_batch_release(td_recv_batch *b) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; i < b->count; i++)
    if (b->items[i].alone) td_client_call_release(b->items[i].alone);
  if (b->call) td_client_call_release(b->call);
  td_lender_release(b->peer.lender);
  pthread_mutex_destroy(&b->lock);
  td_free(b);
}

void td_recv_batch_add(td_recv_batch *b, td_str key, uint64_t hash, td_frame_id frame, td_recv *request) {
  b->items[b->count++] = (item){.request = request, .key = key, .hash = hash, .frame = frame};
  b->left++;
}

/* Keeps the handle of a call that was just started, for a cancel. Takes it; may be NULL. */
static void keep_call(td_recv_batch *b, td_client_call **place, td_client_call *call) {
  pthread_mutex_lock(&b->lock);
  td_client_call *before = *place;
  *place = call;
  bool cancel = b->is_cancelled;
  pthread_mutex_unlock(&b->lock);
  if (cancel && call) td_client_call_cancel(call);
  if (before) td_client_call_release(before);
}

void td_recv_batch_cancel(td_recv_batch *b) {
  pthread_mutex_lock(&b->lock);
  b->is_cancelled = true;
  if (b->call) td_client_call_cancel(b->call);
  for (size_t i = 0; i < b->count; i++)
    if (b->items[i].alone) td_client_call_cancel(b->items[i].alone);
  pthread_mutex_unlock(&b->lock);
}

/* ---- what comes ---- */

static void deliver(td_recv_batch *b, item *it, td_status status, td_tensor *t, bool is_dead, int64_t sent_us) {
  td_recv *request = it->request;
  it->request = NULL;
  b->left--;
  td_transfer_end(it->transfer, !status, sent_us, t ? t->size : 0);
  request->done(request, status, t, is_dead);
}

void td_recv_batch_fail(td_recv_batch *b, td_status status) {
  td_recv_batch_retain(b); /* its last user may go with its last request */
  for (size_t i = 0; i < b->count; i++)
    if (b->items[i].request) deliver(b, &b->items[i], td_status_retain(status), NULL, false, 0);
  td_status_free(status);
  td_recv_batch_release(b);
}

/* As it goes over the wire. */
static td_str full_key(const item *it, td_strbuf *out) {
  out->size = 0;
  td_rendezvous_key_format(it->key, it->frame, false, out);
  return td_strbuf_view(out);
}

static void ask_alone(td_recv_batch *b, item *it) {
  td_strbuf key = {0};
  td_recv *request = it->request;
  it->request = NULL;
  b->left--;
  td_transfer_end(it->transfer, false, 0, 0); /* the call has one of its own */
  keep_call(b, &it->alone, b->peer.recv_tensor(b->peer.arg, b->ch, b->step_id, full_key(it, &key), request));
  td_strbuf_deinit(&key);
}

static td_status take_one(td_recv_batch *b, td_recv_batch_entry *e, int64_t sent_us) {
  if (e->place >= b->count || !b->items[e->place].request)
    return td_internal("RecvTensors answered with number %llu of %zu, which it was not asked for",
                       (unsigned long long)e->place, b->count);
  item *it = &b->items[e->place];
  if (e->tensor) {
    td_tensor *t = e->tensor;
    e->tensor = NULL;
    deliver(b, it, TD_STATUS_OK, t, false, sent_us);
  } else if (e->number == TD_BATCH_DEAD) {
    deliver(b, it, TD_STATUS_OK, NULL, true, sent_us);
  } else if (e->number == TD_BATCH_TOO_LARGE) {
    ask_alone(b, it);
  } else {
    return td_internal("RecvTensors answered %llu where 1 or 2 is known", (unsigned long long)e->number);
  }
  return TD_STATUS_OK;
}

/* ---- calls ---- */

static void ask(td_recv_batch *b, td_strbuf *body);

/* The keys as fields of a request. */
static void put_keys(const td_recv_batch *b, td_strbuf *body) {
  td_strbuf key = {0};
  for (size_t i = 0; i < b->count; i++) td_wire_put_bytes(body, 2, full_key(&b->items[i], &key));
  td_strbuf_deinit(&key);
}

/* Asks by number if the peer knows these keys. */
static void ask_for_all(td_recv_batch *b) {
  td_strbuf body = {0};
  uint64_t hash = b->count;
  for (size_t i = 0; i < b->count; i++)
    hash = (hash ^ b->items[i].hash ^ (uint64_t)b->items[i].frame.iter) * 0x9e3779b97f4a7c15u;
  put_keys(b, &body);
  b->keys_hash = hash;
  b->number = td_known_sets_find(b->peer.known, hash, td_strbuf_view(&body), &b->asks_number);
  if (b->number) {
    body.size = 0;
    td_wire_put_uint(&body, 8, b->number);
  } else if (b->asks_number) {
    td_wire_put_uint(&body, 6, 1);
  }
  ask(b, &body);
}

/* The number it gave to the keys, or that it has forgotten. */
static void learn(td_recv_batch *b, const td_recv_batch_head *h) {
  if (h->is_unknown) td_known_sets_forget(b->peer.known, b->number);
  if (!h->number || !b->asks_number) return;
  td_strbuf keys = {0};
  put_keys(b, &keys);
  td_known_sets_learn(b->peer.known, b->keys_hash, td_strbuf_view(&keys), h->number);
  td_strbuf_deinit(&keys);
  b->asks_number = false;
}

/* The peer knows RecvTensors, and this is its answer. Consumes `status`. */
static void take_answer(td_recv_batch *b, td_recv_batch_reply *reply, td_status status) {
  td_recv_batch_head head = {0};
  td_recv_batch_entry *entries;
  size_t count = 0;
  if (!status) status = td_recv_batch_reply_end(reply, &head, &entries, &count);
  learn(b, &head);
  if (head.is_unknown && b->number) { /* once: it is not known here either any more */
    ask_for_all(b);
    return;
  }
  if (head.rest) { /* first, so that it is on its way while kernels run */
    td_strbuf body = {0};
    td_wire_put_uint(&body, 3, head.rest);
    ask(b, &body);
  }
  for (size_t i = 0; i < count && !status; i++) status = take_one(b, &entries[i], head.sent_us);
  if (!status && !head.rest && b->left)
    status = td_internal("RecvTensors left out %zu of %zu tensors", b->left, b->count);
  if (status && head.rest) td_recv_batch_cancel(b);
  if (status) td_recv_batch_fail(b, status);
}

static void answered(void *arg, td_status status, td_str reply_bytes, td_str details) {
  td_recv_batch *b = arg;
  td_recv_batch_reply *reply = b->reply;
  b->reply = NULL;
  if (status && td_status_code(status) == TD_UNIMPLEMENTED) {
    td_status_free(status);
    b->peer.is_unknown(b->peer.arg);
    for (size_t i = 0; i < b->count; i++)
      if (b->items[i].request) ask_alone(b, &b->items[i]);
  } else {
    take_answer(b, reply, td_status_from_call(status, details));
  }
  td_recv_batch_reply_release(reply);
  td_recv_batch_release(b);
}

/* One call; takes the body's buffer. The call holds a reference. */
static void ask(td_recv_batch *b, td_strbuf *body) {
  td_wire_put_uint(body, 1, (uint64_t)b->step_id);
  td_wire_put_uint(body, 7, td_random_fast_u64() >> 1 | 1);
  if (b->peer.lender) td_wire_put_uint(body, 9, td_lender_memory(b->peer.lender));
  td_payload message = {0};
  size_t size = body->size;
  td_payload_take(&message, td_strbuf_take(body), size);
  b->reply = td_recv_batch_reply_create(b->count, b->peer.lender);
  td_call_options options = {
      .path = TD_RECV_TENSORS_PATH,
      .deadline_ns = TD_NO_DEADLINE,
      .wait_for_ready = false,
      .is_small = true,
      .receiver = td_recv_batch_reply_receiver(b->reply),
      .done = answered,
      .arg = td_recv_batch_retain(b),
  };
  keep_call(b, &b->call, td_channel_call(b->ch, &options, &message));
}

void td_recv_batch_start(td_recv_batch *b, td_channel *ch, const td_recv_batch_peer *peer) {
  b->ch = ch;
  b->peer = *peer;
  if (b->peer.lender) td_lender_retain(b->peer.lender);
  td_strbuf key = {0};
  for (size_t i = 0; i < b->count && td_transfer_log_is_on(peer->transfers); i++)
    b->items[i].transfer = td_transfer_begin(peer->transfers, b->step_id, full_key(&b->items[i], &key));
  td_strbuf_deinit(&key);
  ask_for_all(b);
}

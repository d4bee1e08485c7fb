/* A peer: a tensord or TensorFlow server, over its channel. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/devices.h"
#include "cluster/messages.h"
#include "cluster/peers.h"
#include "cluster/transfer_log.h"
#include "proto/message.h"
#include "proto/wire.h"
#include "tensor/loan.h"

static const uint64_t LOGGING_NS = 10000000000u; /* a traced step waits for a peer's log no longer */

enum { DIALECT_UNKNOWN = -1 };

typedef struct remote_worker {
  td_worker base;
  td_task *task;
  int lane_shift; /* 0 … loop_count - 1 */
  char *name, *address;
  pthread_mutex_t lock;
  td_channel **channels; /* by loop; guarded by lock until set */
  td_known_sets **known; /* by loop: the keys that the peer knows by number; each is its loop's, NULL until used */
  struct known_lender {
    uint64_t connection; /* its number, by which it was looked at */
    td_lender *lender;   /* NULL: it lends nothing */
  } * lenders;           /* by loop; each is its loop's */
  atomic_int dialect;    /* td_frame_dialect, or DIALECT_UNKNOWN */
  atomic_bool is_single; /* it does not know RecvTensors */
} remote_worker;

static const char CLEANUP_GRAPH[] = "/tensorflow.WorkerService/CleanupGraph";

static const char *const method_paths[] = {
    [TD_WORKER_GET_STATUS] = "/tensorflow.WorkerService/GetStatus",
    [TD_WORKER_CREATE_SESSION] = "/tensorflow.WorkerService/CreateWorkerSession",
    [TD_WORKER_DELETE_SESSION] = "/tensorflow.WorkerService/DeleteWorkerSession",
    [TD_WORKER_REGISTER_GRAPH] = "/tensorflow.WorkerService/RegisterGraph",
    [TD_WORKER_DEREGISTER_GRAPH] = "/tensorflow.WorkerService/DeregisterGraph",
    [TD_WORKER_CLEANUP_ALL] = "/tensorflow.WorkerService/CleanupAll",
};

static const ProtobufCMessageDescriptor *reply_type(td_worker_method m) {
  switch (m) {
    case TD_WORKER_GET_STATUS:
      return &pb__get_status_response__descriptor;
    case TD_WORKER_CREATE_SESSION:
      return &pb__create_worker_session_response__descriptor;
    case TD_WORKER_DELETE_SESSION:
      return &pb__delete_worker_session_response__descriptor;
    case TD_WORKER_REGISTER_GRAPH:
      return &pb__register_graph_response__descriptor;
    case TD_WORKER_DEREGISTER_GRAPH:
      return &pb__deregister_graph_response__descriptor;
    default:
      return &pb__cleanup_all_response__descriptor;
  }
}

/* -1: it is none of the task's. */
static int index_of(const td_task *task, const td_loop *loop) {
  for (int i = 0; i < task->loop_count; i++)
    if (task->loops[i] == loop) return i;
  return -1;
}

/* The calling loop; the first one on other threads. */
static int loop_index(const remote_worker *w) { return TD_MAX(index_of(w->task, td_loop_current()), 0); }

static td_loop *loop_of(const td_worker *base, td_loop *home) {
  const td_task *task = ((const remote_worker *)base)->task;
  int current = index_of(task, td_loop_current());
  return task->loops[TD_MAX(current >= 0 ? current : index_of(task, home), 0)];
}

/* That loop's channel. */
static td_status channel(remote_worker *w, td_channel **out) {
  int i = loop_index(w);
  td_status s = TD_STATUS_OK;
  pthread_mutex_lock(&w->lock);
  if (!w->channels[i]) {
    int lane = (i + w->lane_shift) % w->task->loop_count;
    td_channel_options options = {.neighbours = !w->task->no_neighbours, .lane = lane, .trunks = true};
    s = td_channel_create(w->task->loops[i], w->address, &options, &w->channels[i]);
  }
  *out = w->channels[i];
  pthread_mutex_unlock(&w->lock);
  return s;
}

/* ---- plain calls ---- */

static void learn_dialect(remote_worker *w, const Pb__GetStatusResponse *reply) {
  int dialect = TD_FRAMES_1X;
  for (size_t i = 0; i < reply->n_device_attributes; i++) {
    const Pb__DeviceAttributes *d = reply->device_attributes[i];
    if (td_str_starts(td_str_of(d->physical_device_desc), TD_STR(TD_DEVICE_DESC)))
      dialect = TD_FRAMES_ANY;
    else if (d->xla_global_id)
      dialect = TD_FRAMES_2X;
  }
  atomic_store_explicit(&w->dialect, dialect, memory_order_relaxed);
}

static void call_done(void *arg, td_status status, td_str reply, td_str details) {
  td_worker_call *call = arg;
  remote_worker *w = call->impl;
  td_arena arena = {0};
  ProtobufCMessage *message = NULL;
  status = td_status_from_call(status, details);
  if (!status) status = td_message_decode(reply_type(call->method), reply, &arena, &message);
  if (!status && call->method == TD_WORKER_GET_STATUS) learn_dialect(w, (Pb__GetStatusResponse *)message);
  call->done(call, status, message);
  td_arena_deinit(&arena);
}

static void call_peer(td_worker *base, td_worker_call *call) {
  remote_worker *w = (remote_worker *)base;
  td_channel *ch;
  td_payload message = {0};
  td_status s = channel(w, &ch);
  if (!s) s = td_payload_add_message(&message, call->request);
  if (s) {
    td_payload_deinit(&message);
    call->done(call, s, NULL);
    return;
  }
  call->impl = w;
  td_call_options options = {
      .path = method_paths[call->method],
      .deadline_ns = call->deadline_ns,
      /* Only discovery waits for a task that is not there; all else tells at once, so that a client can recover. */
      .wait_for_ready = call->method == TD_WORKER_GET_STATUS,
      .done = call_done,
      .arg = call,
  };
  call->handle = td_channel_call(ch, &options, &message);
}

/* ---- RunGraph ---- */

/* Belongs to the master step's loop, whose channel it uses: done() comes after run_graph() has returned. */
typedef struct graph_call {
  td_run_graph *r;
  td_client_call *handle;
} graph_call;

/* Puts the reply's tensors where the caller wants them, by key. */
static td_status take_results(td_run_graph *r, td_str reply) {
  td_wire w = td_wire_of(reply);
  td_wire_field f;
  bool bad = false;
  int code = 0;
  td_str message = {0};
  td_status s = TD_STATUS_OK;
  td_strbuf key = {0};
  while (!s && td_wire_next(&w, &f, &bad)) {
    if (f.number == 5 && f.type == TD_WIRE_VARINT) code = (int)f.value;
    if (f.number == 6 && f.type == TD_WIRE_BYTES) message = f.bytes;
    if (f.number == 2 && f.type == TD_WIRE_BYTES) td_strbuf_append(&r->step_stats, f.bytes);
    if (f.number == 3 && f.type == TD_WIRE_BYTES && f.bytes.size) td_strbuf_append(&r->cost_graph, f.bytes);
    if (f.number == 4 && f.type == TD_WIRE_BYTES) td_wire_put_bytes(&r->metadata, 3, f.bytes);
    if (f.number == 1 && f.type == TD_WIRE_BYTES) {
      td_arena arena = {0};
      td_named_tensors one;
      s = td_named_tensor_decode(f.bytes, &arena, &one);
      for (int i = 0; !s && i < r->recv_count; i++) {
        key.size = 0;
        td_rendezvous_key_format(r->recv_keys[i].text, (td_frame_id){0}, false, &key);
        if (!r->recvs[i] && td_str_eq(td_strbuf_view(&key), one.items[0].name)) {
          r->recvs[i] = one.items[0].tensor;
          one.items[0].tensor = NULL;
        }
      }
      if (!s) td_named_tensors_release(&one);
      td_arena_deinit(&arena);
    }
  }
  td_strbuf_deinit(&key);
  if (!s && bad) s = td_internal("malformed RunGraphResponse");
  if (!s && code) s = td_status_from_peer(code, message);
  for (int i = 0; !s && i < r->recv_count; i++)
    if (!r->recvs[i]) s = td_internal("The worker returned no value for %.*s", TD_STR_ARG(r->recv_keys[i].text));
  return s;
}

static void graph_done(void *arg, td_status status, td_str reply, td_str details) {
  graph_call *c = arg;
  td_run_graph *r = c->r;
  status = td_status_from_call(status, details);
  if (!status) status = take_results(r, reply);
  td_client_call_release(c->handle);
  td_free(c);
  r->impl = NULL;
  r->done(r, status);
}

static void put_ended_step(void *arg, td_str message) {
  td_wire w = td_wire_of(message);
  td_wire_field f;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad))
    if (f.number == 1 && f.type == TD_WIRE_VARINT) td_wire_put_varint(arg, f.value);
}

/* A tensord peer hears of steps that have ended in the next RunGraph, instead of in calls of their own. */
static void put_ended_steps(const remote_worker *w, td_channel *ch, td_payload *message) {
  if (atomic_load_explicit(&w->dialect, memory_order_relaxed) != TD_FRAMES_ANY) return;
  td_strbuf ids = {0}, field = {0};
  td_channel_withdraw(ch, CLEANUP_GRAPH, put_ended_step, &ids);
  if (ids.size) td_wire_put_bytes(&field, TD_RUN_GRAPH_ENDED_STEPS, td_strbuf_view(&ids));
  td_payload_copy(message, field.data, field.size);
  td_strbuf_deinit(&ids);
  td_strbuf_deinit(&field);
}

static td_status encode_run_graph(const td_run_graph *r, td_payload *out) {
  td_strbuf b = {0}, key = {0};
  td_wire_put_bytes(&b, 1, r->graph_handle);
  td_wire_put_uint(&b, 2, (uint64_t)r->step_id);
  for (int i = 0; i < r->recv_count; i++) {
    key.size = 0;
    td_rendezvous_key_format(r->recv_keys[i].text, (td_frame_id){0}, false, &key);
    td_wire_put_bytes(&b, 4, td_strbuf_view(&key));
  }
  if (r->record_costs || r->record_timeline || r->record_partition_graphs) {
    td_strbuf opts = {0};
    td_wire_put_uint(&opts, 1, r->record_costs);
    td_wire_put_uint(&opts, 3, r->record_timeline);
    td_wire_put_uint(&opts, 4, r->record_partition_graphs);
    td_wire_put_bytes(&b, 5, td_strbuf_view(&opts));
    td_strbuf_deinit(&opts);
  }
  if (r->is_partial) {
    td_wire_put_uint(&b, 6, true);
    td_wire_put_uint(&b, 7, r->is_last_partial_run);
  }
  td_wire_put_bytes(&b, 8, r->session);
  td_wire_put_uint(&b, 9, true);
  td_wire_put_uint(&b, 10, true);
  td_wire_put_uint(&b, 11, td_random_fast_u64() >> 1 | 1);
  td_payload_copy(out, b.data, b.size);
  td_strbuf_deinit(&b);
  td_status s = TD_STATUS_OK;
  for (int i = 0; !s && i < r->send_count; i++) {
    key.size = 0;
    td_rendezvous_key_format(r->send_keys[i].text, (td_frame_id){0}, false, &key);
    s = td_payload_add_named_tensor(out, 3, td_strbuf_view(&key), r->sends[i]);
  }
  td_strbuf_deinit(&key);
  return s;
}

static void run_graph(td_worker *base, td_run_graph *r) {
  remote_worker *w = (remote_worker *)base;
  td_channel *ch;
  td_payload message = {0};
  td_status s = channel(w, &ch);
  if (!s) s = encode_run_graph(r, &message);
  if (s) {
    td_payload_deinit(&message);
    r->done(r, s);
    return;
  }
  put_ended_steps(w, ch, &message);
  graph_call *c = td_new(graph_call);
  c->r = r;
  r->impl = c;
  td_call_options options = {
      .path = "/tensorflow.WorkerService/RunGraph",
      .deadline_ns = TD_NO_DEADLINE,
      .wait_for_ready = false,
      .is_small = !r->recv_count,
      .done = graph_done,
      .arg = c,
  };
  c->handle = td_channel_call(ch, &options, &message);
}

static void cancel_run_graph(td_worker *base, td_run_graph *r) {
  graph_call *c = r->impl;
  if (c) td_client_call_cancel(c->handle);
}

/* ---- CleanupGraph ---- */

typedef struct cleanup_call {
  void (*done)(void *arg);
  void *arg;
} cleanup_call;

static void cleanup_done(void *arg, td_status status, td_str reply, td_str details) {
  cleanup_call *c = arg;
  td_status_free(status); /* a peer that is gone has forgotten the step */
  if (c->done) c->done(c->arg);
  td_free(c);
}

static void cleanup_graph(td_worker *base, int64_t step_id, void (*done)(void *), void *arg) {
  remote_worker *w = (remote_worker *)base;
  td_channel *ch;
  td_status s = channel(w, &ch);
  if (s) {
    td_status_free(s);
    if (done) done(arg);
    return;
  }
  cleanup_call *c = td_new(cleanup_call);
  *c = (cleanup_call){done, arg};
  td_strbuf b = {0};
  td_wire_put_uint(&b, 1, (uint64_t)step_id);
  td_payload message = {0};
  td_payload_copy(&message, b.data, b.size);
  td_strbuf_deinit(&b);
  td_call_options options = {
      .path = CLEANUP_GRAPH,
      .deadline_ns = td_now_ns() + 10000000000u, /* the session must not wait for a peer that is gone */
      .wait_for_ready = false,
      .is_patient = true, /* the next step's RunGraph takes it along */
      .is_small = true,
      .done = cleanup_done,
      .arg = c,
  };
  td_client_call_release(td_channel_call(ch, &options, &message));
}

/* ---- Logging ---- */

/* Takes the StepStats out of LoggingResponse{step{step_id, step_stats}}. */
static void logging_done(void *arg, td_status status, td_str reply, td_str details) {
  td_logging *l = arg;
  td_wire w = td_wire_of(reply);
  td_wire_field f, g;
  bool bad = false;
  while (!status && td_wire_next(&w, &f, &bad)) {
    if (f.number != 1 || f.type != TD_WIRE_BYTES) continue;
    td_wire step = td_wire_of(f.bytes);
    int64_t id = 0;
    td_str stats = {0};
    while (td_wire_next(&step, &g, &bad)) {
      if (g.number == 1 && g.type == TD_WIRE_VARINT) id = (int64_t)g.value;
      if (g.number == 2 && g.type == TD_WIRE_BYTES) stats = g.bytes;
    }
    if (!bad && id == l->fetch_step) td_strbuf_append(&l->step_stats, stats);
  }
  td_status_free(status);
  l->done(l);
}

static void logging(td_worker *base, td_logging *l) {
  remote_worker *w = (remote_worker *)base;
  td_channel *ch;
  td_status s = channel(w, &ch);
  if (s) {
    td_status_free(s);
    l->done(l);
    return;
  }
  td_strbuf b = {0}, ids = {0};
  td_wire_put_uint(&b, 1, l->enable);
  if (l->fetch_step) {
    td_wire_put_varint(&ids, (uint64_t)l->fetch_step);
    td_wire_put_bytes(&b, 3, td_strbuf_view(&ids));
  }
  td_wire_put_uint(&b, 4, l->disable);
  td_payload message = {0};
  td_payload_copy(&message, b.data, b.size);
  td_strbuf_deinit(&b);
  td_strbuf_deinit(&ids);
  td_call_options options = {
      .path = "/tensorflow.WorkerService/Logging",
      .deadline_ns = td_now_ns() + LOGGING_NS,
      .wait_for_ready = false,
      .done = logging_done,
      .arg = l,
  };
  l->handle = td_channel_call(ch, &options, &message);
}

/* ---- RecvTensor ---- */

typedef struct recv_call {
  td_recv *request;
  td_recv_tensor_receiver *receiver;
  td_transfer *transfer; /* NULL: transfers are not logged */
} recv_call;

static void recv_done(void *arg, td_status status, td_str reply, td_str details) {
  recv_call *c = arg;
  td_recv *request = c->request;
  td_tensor *t = NULL;
  bool dead = false;
  status = td_status_from_call(status, details);
  if (!status) status = td_recv_tensor_receiver_take(c->receiver, &t, &dead);
  td_transfer_end(c->transfer, !status, td_recv_tensor_receiver_sent_us(c->receiver), t ? t->size : 0);
  td_recv_tensor_receiver_release(c->receiver);
  td_free(c);
  request->done(request, status, t, dead);
}

static td_client_call *start_recv(remote_worker *w, td_channel *ch, int64_t step_id, td_str key, td_recv *request) {
  recv_call *c = td_new(recv_call);
  c->request = request;
  c->receiver = td_recv_tensor_receiver_create();
  c->transfer = td_transfer_begin(w->task->transfers, step_id, key);
  td_strbuf b = {0};
  td_wire_put_uint(&b, 1, (uint64_t)step_id);
  td_wire_put_bytes(&b, 2, key);
  td_wire_put_uint(&b, 7, td_random_fast_u64() >> 1 | 1);
  td_payload message = {0};
  size_t size = b.size;
  td_payload_take(&message, td_strbuf_take(&b), size);
  td_call_options options = {
      .path = "/tensorflow.WorkerService/RecvTensor",
      .deadline_ns = TD_NO_DEADLINE,
      .wait_for_ready = false,
      .receiver = td_recv_tensor_receiver_base(c->receiver),
      .done = recv_done,
      .arg = c,
  };
  return td_channel_call(ch, &options, &message);
}

/* A receive inside a loop from a peer whose dialect is not known yet: GetStatus tells. The handle given to the caller
 * is that of the GetStatus call; a RecvTensor that followed it ends when the peer cleans the step up. */
typedef struct dialect_call {
  remote_worker *w;
  int64_t step_id;
  td_str key_1x, key_2x; /* own copies */
  td_recv *request;
} dialect_call;

static void dialect_done(void *arg, td_status status, td_str reply, td_str details) {
  dialect_call *c = arg;
  remote_worker *w = c->w;
  td_arena arena = {0};
  Pb__GetStatusResponse *message = NULL;
  td_channel *ch = NULL;
  status = td_status_from_call(status, details);
  if (!status)
    status = td_message_decode(&pb__get_status_response__descriptor, reply, &arena, (ProtobufCMessage **)&message);
  if (!status) {
    learn_dialect(w, message);
    status = channel(w, &ch);
  }
  bool is_2x = atomic_load_explicit(&w->dialect, memory_order_relaxed) == TD_FRAMES_2X;
  if (status)
    c->request->done(c->request, status, NULL, false);
  else
    td_client_call_release(start_recv(w, ch, c->step_id, is_2x ? c->key_2x : c->key_1x, c->request));
  td_free((char *)c->key_1x.data);
  td_free((char *)c->key_2x.data);
  td_free(c);
  td_arena_deinit(&arena);
}

static td_str key_text(const td_rendezvous_key *key, td_frame_id frame, bool is_2x) {
  td_strbuf b = {0};
  td_rendezvous_key_format(key->text, frame, is_2x, &b);
  size_t size = b.size;
  return (td_str){td_strbuf_take(&b), size};
}

static td_client_call *ask_dialect(remote_worker *w, td_channel *ch, int64_t step_id, const td_rendezvous_key *key,
                                   td_frame_id frame, td_recv *request) {
  dialect_call *c = td_new(dialect_call);
  *c = (dialect_call){w, step_id, key_text(key, frame, false), key_text(key, frame, true), request};
  td_payload message = {0};
  td_call_options options = {
      .path = method_paths[TD_WORKER_GET_STATUS],
      .deadline_ns = TD_NO_DEADLINE,
      .wait_for_ready = false,
      .done = dialect_done,
      .arg = c,
  };
  return td_channel_call(ch, &options, &message);
}

static td_client_call *recv_tensor(td_worker *base, int64_t step_id, const td_rendezvous_key *key, td_frame_id frame,
                                   td_recv *request) {
  remote_worker *w = (remote_worker *)base;
  td_channel *ch;
  td_status s = channel(w, &ch);
  if (s) {
    request->done(request, s, NULL, false);
    return NULL;
  }
  int dialect = atomic_load_explicit(&w->dialect, memory_order_relaxed);
  if (dialect == DIALECT_UNKNOWN && frame.id_1x != frame.id_2x) return ask_dialect(w, ch, step_id, key, frame, request);
  td_str text = key_text(key, frame, dialect == TD_FRAMES_2X);
  td_client_call *call = start_recv(w, ch, step_id, text, request);
  td_free((char *)text.data);
  return call;
}

/* ---- others ---- */

static td_client_call *unary(td_worker *base, const char *path, td_payload *message, td_receiver *receiver,
                             uint64_t deadline_ns,
                             void (*done)(void *arg, td_status status, td_str reply, td_str details), void *arg) {
  td_channel *ch;
  td_status s = channel((remote_worker *)base, &ch);
  if (s) {
    td_payload_deinit(message);
    if (receiver) receiver->ops->destroy(receiver);
    done(arg, s, TD_STR(""), TD_STR(""));
    return NULL;
  }
  td_call_options options = {
      .path = path,
      .deadline_ns = deadline_ns,
      .wait_for_ready = false,
      .receiver = receiver,
      .done = done,
      .arg = arg,
  };
  return td_channel_call(ch, &options, message);
}

/* ---- RecvTensors ---- */

/* Keys go out as tensord takes them, in either dialect; to other peers only those that read the same in both. */
static bool takes_batches(const td_worker *base, td_frame_id frame) {
  const remote_worker *w = (const remote_worker *)base;
  int dialect = atomic_load_explicit(&w->dialect, memory_order_relaxed);
  if (atomic_load_explicit(&w->is_single, memory_order_relaxed)) return false;
  return dialect == TD_FRAMES_ANY || (dialect == DIALECT_UNKNOWN && frame.id_1x == frame.id_2x);
}

static td_client_call *recv_one(void *arg, td_channel *ch, int64_t step_id, td_str key, td_recv *request) {
  return start_recv(arg, ch, step_id, key, request);
}

static void knows_no_batches(void *arg) {
  atomic_store_explicit(&((remote_worker *)arg)->is_single, true, memory_order_relaxed);
}

/* The peer's memory, if it lends any to this connection. On loop i. */
static td_lender *lender(remote_worker *w, int i, td_channel *ch) {
  td_neighbour n = td_channel_neighbour(ch);
  struct known_lender *known = &w->lenders[i];
  if (!n.pid || n.memory < 0) return NULL;
  if (known->connection != n.connection) {
    td_lender_release(known->lender);
    *known = (struct known_lender){n.connection, td_lender_open(n.pid, n.memory)};
  }
  return known->lender;
}

static void recv_tensors(td_worker *base, td_recv_batch *b) {
  remote_worker *w = (remote_worker *)base;
  td_channel *ch;
  td_status s = channel(w, &ch);
  if (s) {
    td_recv_batch_fail(b, s);
    return;
  }
  int i = loop_index(w);
  if (!w->known[i]) w->known[i] = td_known_sets_create();
  td_recv_batch_peer peer = {
      recv_one, knows_no_batches, w, w->task->transfers, w->known[i], lender(w, i, ch),
  };
  td_recv_batch_start(b, ch, &peer);
}

static td_frame_dialect dialect_of(const td_worker *base) {
  int d = atomic_load_explicit(&((const remote_worker *)base)->dialect, memory_order_relaxed);
  return d == DIALECT_UNKNOWN ? TD_FRAMES_ANY : (td_frame_dialect)d;
}

/* ---- life ---- */

static const td_worker_ops ops = {
    .call = call_peer,
    .run_graph = run_graph,
    .cancel_run_graph = cancel_run_graph,
    .cleanup_graph = cleanup_graph,
    .logging = logging,
    .recv_tensor = recv_tensor,
    .unary = unary,
    .takes_batches = takes_batches,
    .recv_tensors = recv_tensors,
    .loop = loop_of,
    .dialect = dialect_of,
};

td_worker *td_remote_worker_create(td_task *task, const td_cluster_task *peer, int lane_shift) {
  remote_worker *w = td_new(remote_worker);
  w->task = task;
  w->lane_shift = (lane_shift % task->loop_count + task->loop_count) % task->loop_count;
  w->name = td_strdup(peer->name);
  w->address = td_strdup(peer->address);
  w->base = (td_worker){.ops = &ops, .task_name = w->name};
  atomic_init(&w->dialect, DIALECT_UNKNOWN);
  w->channels = td_new_array(td_channel *, (size_t)task->loop_count);
  w->known = td_new_array(td_known_sets *, (size_t)task->loop_count);
  w->lenders = td_new_array(struct known_lender, (size_t)task->loop_count);
  pthread_mutex_init(&w->lock, NULL);
  return &w->base;
}

void td_remote_worker_destroy(td_worker *base) {
  remote_worker *w = (remote_worker *)base;
  for (int i = 0; i < w->task->loop_count; i++)
    if (w->channels[i]) td_channel_destroy(w->channels[i]);
  for (int i = 0; i < w->task->loop_count; i++) td_known_sets_destroy(w->known[i]);
  for (int i = 0; i < w->task->loop_count; i++) td_lender_release(w->lenders[i].lender);
  td_free(w->lenders);
  td_free(w->known);
  td_free(w->channels);
  pthread_mutex_destroy(&w->lock);
  td_free(w->name);
  td_free(w->address);
  td_free(w);
}

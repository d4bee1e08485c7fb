#include "cluster/collective_calls.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/messages.h"
#include "cluster/recv_buf_receiver.h"
#include "proto/message.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

struct td_collective_net {
  td_net base; /* first */
  atomic_uint refs;
  td_peers *peers; /* retained */
  pthread_mutex_t lock;
  td_map devices; /* guarded by lock: full name -> known_device */
};

typedef struct known_device {
  uint64_t incarnation;
  char name[];
} known_device;

typedef struct call call;

typedef struct calls {
  td_net_calls base; /* first */
  atomic_uint refs;
  td_collective_net *net; /* retained */
  pthread_mutex_t lock;
  /* guarded by lock */
  call *first;
  bool is_cancelled;
} calls;

/* One call; it may need two requests, one after the other. Held by what is under way for it, and by starts and cancels
 * that have not returned. */
struct call {
  atomic_uint refs;
  calls *set; /* retained */
  td_worker *worker;
  /* guarded by set->lock */
  call *previous, *next;
  td_client_call *handles[2]; /* of its requests, once their starts have returned; released with it */
  /* what it asks */
  td_recv_buf what; /* `device`, `to_device` and `key` are copies */
  td_recv_buf_receiver *receiver;
  int32_t group_key;
  void (*done)(void *arg, td_status status);
  void (*group_done)(void *arg, td_status status, td_group *group);
  void (*instance_done)(void *arg, td_status status, int source_rank);
  void *arg;
};

/* ---- the net ---- */

static const td_net_ops ops;

td_collective_net *td_collective_net_create(td_peers *peers) {
  td_collective_net *n = td_new(td_collective_net);
  n->base.ops = &ops;
  atomic_init(&n->refs, 1);
  n->peers = td_peers_retain(peers);
  pthread_mutex_init(&n->lock, NULL);
  return n;
}

void td_collective_net_release(td_collective_net *n) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!n || atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1) return;
  void *d;
  for (size_t i = 0; td_map_next(&n->devices, &i, NULL, &d);) td_free(d);
  td_map_deinit(&n->devices);
  td_peers_release(n->peers);
  pthread_mutex_destroy(&n->lock);
  td_free(n);
}

td_net *td_collective_net_base(td_collective_net *n) { return &n->base; }

static uint64_t incarnation_of(td_collective_net *n, td_str device) {
  pthread_mutex_lock(&n->lock);
  const known_device *d = td_map_get(&n->devices, device);
  uint64_t incarnation = d ? d->incarnation : 0;
  pthread_mutex_unlock(&n->lock);
  return incarnation;
}

static void learn_device(td_collective_net *n, td_str name, uint64_t incarnation) {
  known_device *d = td_malloc(sizeof *d + name.size);
  d->incarnation = incarnation;
  memcpy(d->name, name.data, name.size);
  pthread_mutex_lock(&n->lock);
  known_device *old = td_map_remove(&n->devices, name);
  td_map_put(&n->devices, td_str_n(d->name, name.size), d);
  pthread_mutex_unlock(&n->lock);
  td_free(old);
}

static void forget_device(td_collective_net *n, td_str name) {
  pthread_mutex_lock(&n->lock);
  known_device *old = td_map_remove(&n->devices, name);
  pthread_mutex_unlock(&n->lock);
  td_free(old);
}

/* ---- sets ---- */

static td_net_calls *open_calls(td_net *base) {
  calls *c = td_new(calls);
  c->base.ops = &ops;
  atomic_init(&c->refs, 1);
  c->net = (td_collective_net *)base;
  atomic_fetch_add_explicit(&c->net->refs, 1, memory_order_relaxed);
  pthread_mutex_init(&c->lock, NULL);
  return &c->base;
}

static void release_calls(td_net_calls *base) {
  calls *c = (calls *)base;
  /* acq_rel: the last owner sees every use before it frees */
  if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
  td_collective_net_release(c->net);
  pthread_mutex_destroy(&c->lock);
  td_free(c);
}

static td_status cancelled(void) { return td_status_derive(td_cancelled("A collective's call was cancelled.")); }

static void release_call(call *k) {
  /* acq_rel: the last owner sees every use before it frees */
  if (atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; i < TD_COUNT(k->handles); i++)
    if (k->handles[i]) td_client_call_release(k->handles[i]);
  if (k->receiver) td_recv_buf_receiver_release(k->receiver);
  td_free((char *)k->what.device);
  td_free((char *)k->what.to_device);
  td_free((char *)k->what.key.data);
  release_calls(&k->set->base);
  td_free(k);
}

static void cancel_calls(td_net_calls *base) {
  calls *c = (calls *)base;
  call **all = NULL;
  size_t count = 0, capacity = 0;
  pthread_mutex_lock(&c->lock);
  if (!c->is_cancelled)
    for (call *k = c->first; k; k = k->next) {
      TD_GROW(all, count, capacity);
      atomic_fetch_add_explicit(&k->refs, 1, memory_order_relaxed);
      all[count++] = k;
    }
  c->is_cancelled = true; /* from here on starts see to what they started */
  pthread_mutex_unlock(&c->lock);
  for (size_t i = 0; i < count; i++) {
    td_client_call *handles[2];
    pthread_mutex_lock(&c->lock);
    memcpy(handles, all[i]->handles, sizeof handles);
    pthread_mutex_unlock(&c->lock);
    for (size_t k = 0; k < TD_COUNT(handles); k++)
      if (handles[k]) td_client_call_cancel(handles[k]);
    release_call(all[i]);
  }
  td_free(all);
}

/* A new call to a task, in the set; NULL, with *status, when there is no such task or the set was cancelled. */
static call *begin(td_net_calls *base, const char *task, void *arg, td_status *status) {
  calls *c = (calls *)base;
  td_worker *w = td_peers_find(c->net->peers, td_str_of(task));
  if (!w || w->is_self) {
    *status = td_internal("No worker known as %s", task);
    return NULL;
  }
  call *k = td_new(call);
  atomic_init(&k->refs, 1);
  k->set = c;
  k->worker = w;
  k->arg = arg;
  atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
  pthread_mutex_lock(&c->lock);
  bool refused = c->is_cancelled;
  if (!refused) {
    k->next = c->first;
    if (k->next) k->next->previous = k;
    c->first = k;
  }
  pthread_mutex_unlock(&c->lock);
  if (!refused) return k;
  release_call(k);
  *status = cancelled();
  return NULL;
}

/* The call has ended: out of the set, before its end is told. */
static void leave(call *k) {
  calls *c = k->set;
  pthread_mutex_lock(&c->lock);
  if (k->previous) k->previous->next = k->next;
  if (c->first == k) c->first = k->next;
  if (k->next) k->next->previous = k->previous;
  pthread_mutex_unlock(&c->lock);
}

/* Sends request number `i` of the call; done() may have been called when this returns. */
static void send(call *k, int i, const char *path, td_payload *message, td_receiver *receiver,
                 void (*done)(void *arg, td_status status, td_str reply, td_str details)) {
  calls *c = k->set;
  atomic_fetch_add_explicit(&k->refs, 1, memory_order_relaxed);
  td_client_call *handle = k->worker->ops->unary(k->worker, path, message, receiver, TD_NO_DEADLINE, done, k);
  pthread_mutex_lock(&c->lock);
  k->handles[i] = handle;
  bool cancel = c->is_cancelled;
  pthread_mutex_unlock(&c->lock);
  if (cancel && handle) td_client_call_cancel(handle);
  release_call(k);
}

static td_str copy_of(td_str s) { return td_str_n(td_strndup(s.data, s.size), s.size); }

/* ---- RecvBuf ---- */

static void end_recv(call *k, td_status status) {
  if (td_status_code(status) == TD_FAILED_PRECONDITION) forget_device(k->set->net, td_str_of(k->what.device));
  leave(k);
  k->done(k->arg, status);
  release_call(k);
}

static void buf_received(void *arg, td_status status, td_str reply, td_str details) {
  call *k = arg;
  status = td_status_from_call(status, details);
  if (!status) status = td_recv_buf_receiver_check(k->receiver);
  end_recv(k, status);
}

static void ask_for_buf(call *k, uint64_t incarnation) {
  const td_recv_buf *b = &k->what;
  td_strbuf m = {0};
  td_payload message = {0};
  td_wire_put_uint(&m, 1, (uint64_t)b->step_id);
  td_wire_put_bytes(&m, 2, b->key);
  td_wire_put_uint(&m, 3, b->size);
  td_wire_put_bytes(&m, 8, td_str_of(b->device));
  td_wire_put_bytes(&m, 9, td_str_of(b->to_device));
  td_wire_put_uint(&m, 10, td_random_fast_u64() >> 1 | 1);
  td_wire_put_uint(&m, 11, incarnation);
  size_t size = m.size;
  td_payload_take(&message, td_strbuf_take(&m), size);
  k->receiver = td_recv_buf_receiver_create(b->into, b->size);
  send(k, 1, "/tensorflow.WorkerService/RecvBuf", &message, td_recv_buf_receiver_base(k->receiver), buf_received);
}

static void status_told(void *arg, td_status status, td_str reply, td_str details) {
  call *k = arg;
  td_arena arena = {0};
  Pb__GetStatusResponse *message = NULL;
  status = td_status_from_call(status, details);
  if (!status)
    status = td_message_decode(&pb__get_status_response__descriptor, reply, &arena, (ProtobufCMessage **)&message);
  for (size_t i = 0; !status && i < message->n_device_attributes; i++)
    learn_device(k->set->net, td_str_of(message->device_attributes[i]->name),
                 message->device_attributes[i]->incarnation);
  td_arena_deinit(&arena);
  uint64_t incarnation = status ? 0 : incarnation_of(k->set->net, td_str_of(k->what.device));
  if (!status && !incarnation) status = td_not_found("%s has no device %s", k->what.task, k->what.device);
  if (status)
    end_recv(k, status);
  else
    ask_for_buf(k, incarnation);
}

static void recv_buf(td_net_calls *base, const td_recv_buf *what, void (*done)(void *arg, td_status status),
                     void *arg) {
  td_status s = TD_STATUS_OK;
  call *k = begin(base, what->task, arg, &s);
  if (!k) {
    done(arg, s);
    return;
  }
  k->what = *what;
  k->what.task = k->worker->task_name;
  k->what.device = td_strdup(what->device);
  k->what.to_device = td_strdup(what->to_device);
  k->what.key = copy_of(what->key);
  k->done = done;
  uint64_t incarnation = incarnation_of(k->set->net, td_str_of(what->device));
  td_payload nothing = {0};
  if (incarnation)
    ask_for_buf(k, incarnation);
  else
    send(k, 0, "/tensorflow.WorkerService/GetStatus", &nothing, NULL, status_told);
}

/* ---- the leader ---- */

static td_status group_of(const call *k, td_str reply, td_group **out) {
  td_arena arena = {0};
  Pb__CompleteGroupResponse *message;
  td_status status = TD_STATUS_OK;
  TD_TRY_GOTO(
      td_message_decode(&pb__complete_group_response__descriptor, reply, &arena, (ProtobufCMessage **)&message));
  td_str *devices = td_arena_array(&arena, td_str, message->n_device_name + 1);
  for (size_t i = 0; i < message->n_device_name; i++) devices[i] = td_str_of(message->device_name[i]);
  if (message->group_key != k->group_key || (size_t)message->group_size != message->n_device_name)
    status = td_internal("CompleteGroupResponse for group %d is of group %d: group_size %d doesn't match %zu devices",
                         k->group_key, message->group_key, message->group_size, message->n_device_name);
  else
    status = td_group_create(message->group_key, td_str_of(message->device_type), devices, message->n_device_name, out);
cleanup:
  td_arena_deinit(&arena);
  return status;
}

static void group_told(void *arg, td_status status, td_str reply, td_str details) {
  call *k = arg;
  td_group *group = NULL;
  status = td_status_from_call(status, details);
  if (!status) status = group_of(k, reply, &group);
  leave(k);
  k->group_done(k->arg, status, group);
  td_group_release(group);
  release_call(k);
}

static void complete_group(td_net_calls *base, const char *leader, const td_group_member *m,
                           void (*done)(void *arg, td_status status, td_group *group), void *arg) {
  td_status s = TD_STATUS_OK;
  call *k = begin(base, leader, arg, &s);
  if (!k) {
    done(arg, s, NULL);
    return;
  }
  k->group_done = done;
  k->group_key = m->key;
  td_strbuf b = {0};
  td_payload message = {0};
  td_wire_put_uint(&b, 1, (uint64_t)(int64_t)m->key);
  td_wire_put_uint(&b, 2, (uint64_t)m->size);
  td_wire_put_bytes(&b, 3, m->device_type);
  td_wire_put_bytes(&b, 4, m->device);
  size_t size = b.size;
  td_payload_take(&message, td_strbuf_take(&b), size);
  send(k, 0, "/tensorflow.WorkerService/CompleteGroup", &message, NULL, group_told);
}

static void instance_told(void *arg, td_status status, td_str reply, td_str details) {
  call *k = arg;
  td_arena arena = {0};
  Pb__CompleteInstanceResponse *message = NULL;
  status = td_status_from_call(status, details);
  if (!status)
    status =
        td_message_decode(&pb__complete_instance_response__descriptor, reply, &arena, (ProtobufCMessage **)&message);
  leave(k);
  k->instance_done(k->arg, status, status ? -1 : message->source_rank);
  td_arena_deinit(&arena);
  release_call(k);
}

static void complete_instance(td_net_calls *base, const char *leader, const td_group *g, const td_instance_member *m,
                              const td_collective_spec *spec,
                              void (*done)(void *arg, td_status status, int source_rank), void *arg) {
  td_status s = TD_STATUS_OK;
  call *k = begin(base, leader, arg, &s);
  if (!k) {
    done(arg, s, -1);
    return;
  }
  k->instance_done = done;
  td_strbuf b = {0}, shape = {0};
  td_payload message = {0};
  td_shape_encode(m->shape->rank, m->shape->dims, &shape);
  td_wire_put_bytes(&b, 1, spec->name);
  td_wire_put_uint(&b, 2, m->type);
  td_wire_put_uint(&b, 3, m->dtype);
  td_wire_put_bytes(&b, 4, td_strbuf_view(&shape));
  td_wire_put_uint(&b, 5, (uint64_t)(int64_t)g->key);
  td_wire_put_uint(&b, 6, (uint64_t)g->size);
  td_wire_put_uint(&b, 7, (uint64_t)(int64_t)m->key);
  td_wire_put_bytes(&b, 8, td_str_of(g->device_type));
  for (int i = 0; i < spec->subdiv_count; i++) { /* written even when 0 */
    td_wire_put_tag(&b, 9, TD_WIRE_VARINT);
    td_wire_put_varint(&b, (uint64_t)(int64_t)spec->subdiv_offsets[i]);
  }
  td_wire_put_bytes(&b, 10, m->device);
  td_wire_put_uint(&b, 11, m->is_source);
  size_t size = b.size;
  td_payload_take(&message, td_strbuf_take(&b), size);
  td_strbuf_deinit(&shape);
  send(k, 0, "/tensorflow.WorkerService/CompleteInstance", &message, NULL, instance_told);
}

static const td_net_ops ops = {
    .open = open_calls,
    .cancel = cancel_calls,
    .release = release_calls,
    .recv_buf = recv_buf,
    .complete_group = complete_group,
    .complete_instance = complete_instance,
};

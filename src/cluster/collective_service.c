/* The worker service's part in collectives: bytes for the members on other tasks, and, where this task leads, who takes
 * part and which step comes next. */
#include "base/mem.h"
#include "cluster/messages.h"
#include "cluster/recv_buf_receiver.h"
#include "cluster/services.h"
#include "cluster/step_sequence.h"
#include "cluster/step_table.h"
#include "collective/resolver.h"
#include "proto/message.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

enum { MAX_REQUEST = 64 * 1024 }; /* what is decoded on the loop */

/* ---- RecvBuf ---- */

/* A peer waiting for bytes. Held by the wait and by the call's cancellation. */
typedef struct buf_request {
  td_buf_want want;
  atomic_uint refs;
  td_task *task;
  td_call *call;
  td_step_entry *entry;    /* retained */
  td_buf_rendezvous *bufs; /* retained */
  td_str key;              /* of the request, valid until the answer */
  bool gave_up;
} buf_request;

static void buf_request_release(void *arg) {
  buf_request *r = arg;
  /* acq_rel: the last owner sees what the other wrote */
  if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  td_buf_rendezvous_release(r->bufs);
  if (r->gave_up)
    td_step_table_abandon(r->task->steps, r->entry);
  else
    td_step_entry_release(r->entry);
  td_free(r);
}

static void buf_offered(td_buf_want *want, td_status status, td_buf_offer *offer) {
  buf_request *r = TD_CONTAINER_OF(want, buf_request, want);
  td_payload message = {0};
  if (status) {
    td_call_fail_peer(r->call, status);
  } else {
    /* The bytes go out from where they lie. Their owner overwrites none before the peer has read them all: what it
     * receives next into that place has been made of them. */
    td_recv_buf_response_encode(offer->owner, offer->data, offer->size, &message);
    td_call_reply(r->call, &message);
    td_buf_taken(offer);
  }
  buf_request_release(r);
}

static void buf_cancelled(void *arg) {
  buf_request *r = arg;
  if (!td_buf_rendezvous_withdraw(r->bufs, r->key, &r->want)) return;
  r->gave_up = true;
  td_call_fail_peer(r->call, td_cancelled("RecvBuf was cancelled by the caller"));
  buf_request_release(r);
}

/* Requests name the device that has the bytes: one of this task, of this incarnation. */
static td_status check_source(const td_task *task, td_str device, uint64_t incarnation) {
  for (int i = 0; i < task->device_count; i++)
    if (task->devices[i]->incarnation == incarnation) return TD_STATUS_OK;
  for (int i = 0; i < task->device_count; i++)
    if (td_str_is(device, task->devices[i]->name))
      return td_failed_precondition(
          "RecvBuf expects a different device incarnation: %llu vs. %llu. Your worker job that contains the device "
          "(\"%s\") was probably restarted. Check your worker job for the reason why it was restarted.",
          (unsigned long long)incarnation, (unsigned long long)task->devices[i]->incarnation, task->devices[i]->name);
  return td_invalid_argument("%.*s unknown device.", (int)TD_MIN(device.size, (size_t)256), device.data);
}

static td_status prepare_buf(td_task *task, td_str bytes, td_str *key, td_step_entry **entry) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  int64_t step_id = 0, request_id = 0;
  uint64_t incarnation = 0;
  td_str device = {0};
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == 1 && f.type == TD_WIRE_VARINT) step_id = (int64_t)f.value;
    if (f.number == 2 && f.type == TD_WIRE_BYTES) *key = f.bytes;
    if (f.number == 8 && f.type == TD_WIRE_BYTES) device = f.bytes;
    if (f.number == 10 && f.type == TD_WIRE_VARINT) request_id = (int64_t)f.value;
    if (f.number == 11 && f.type == TD_WIRE_VARINT) incarnation = f.value;
  }
  if (bad) return td_invalid_argument("malformed RecvBufRequest");
  TD_TRY(td_request_ids_track(task->worker_ids, request_id, "RecvBuf (GrpcWorker)"));
  TD_TRY(check_source(task, device, incarnation));
  return td_step_table_get(task->steps, step_id, 0, entry);
}

void td_recv_buf_method(void *service, td_call *call, td_str request) {
  td_step_entry *entry;
  td_str key = TD_STR("");
  td_status s = prepare_buf(service, request, &key, &entry);
  if (s) {
    td_call_fail_peer(call, s);
    return;
  }
  buf_request *r = td_new(buf_request);
  atomic_init(&r->refs, 2);
  r->want.done = buf_offered;
  r->task = service;
  r->call = call;
  r->entry = entry;
  r->bufs = td_step_entry_bufs(entry);
  r->key = key;
  td_call_on_cancel_owned(call, buf_cancelled, r, buf_request_release);
  td_buf_rendezvous_want(r->bufs, key, &r->want);
}

/* ---- CompleteGroup, CompleteInstance ---- */

/* A peer waiting for the others. Held by the question and by the call's cancellation. */
typedef struct group_request {
  td_membership q;
  atomic_uint refs;
  td_call *call;
  td_shape shape;
  td_arena arena; /* the request */
} group_request;

static void group_request_release(void *arg) {
  group_request *r = arg;
  /* acq_rel: the last owner sees what the other wrote */
  if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  td_arena_deinit(&r->arena);
  td_free(r);
}

static void group_request_cancelled(void *arg) { td_membership_cancel(&((group_request *)arg)->q); }

static void group_complete(td_membership *q, td_status status, td_group *group, int source_rank) {
  group_request *r = TD_CONTAINER_OF(q, group_request, q);
  if (status) {
    td_call_fail_peer(r->call, status);
  } else {
    Pb__CompleteGroupResponse reply = PB__COMPLETE_GROUP_RESPONSE__INIT;
    reply.group_key = group->key;
    reply.group_size = group->size;
    reply.device_type = group->device_type;
    reply.num_tasks = group->task_count;
    reply.n_device_name = reply.n_task_name = (size_t)group->size;
    reply.device_name = group->devices;
    reply.task_name = group->tasks;
    td_call_reply_message(r->call, &reply.base);
  }
  group_request_release(r);
}

static void instance_complete(td_membership *q, td_status status, td_group *group, int source_rank) {
  group_request *r = TD_CONTAINER_OF(q, group_request, q);
  if (status) {
    td_call_fail_peer(r->call, status);
  } else {
    Pb__CompleteInstanceResponse reply = PB__COMPLETE_INSTANCE_RESPONSE__INIT;
    reply.instance_key = q->instance.key;
    reply.source_rank = source_rank;
    td_call_reply_message(r->call, &reply.base);
  }
  group_request_release(r);
}

static td_status check_leads(const td_task *task, const char *method) {
  const char *leader = td_configured_leader(task);
  if (!leader[0] || !strcmp(leader, task->name)) return TD_STATUS_OK;
  return td_internal("%s called at non-group-leader %s, whose leader is %s", method, task->name, leader);
}

static td_status decode(const ProtobufCMessageDescriptor *type, td_str bytes, td_arena *arena, ProtobufCMessage **out) {
  if (bytes.size > MAX_REQUEST)
    return td_invalid_argument("%s of %zu bytes; at most %d are allowed", type->name, bytes.size, MAX_REQUEST);
  return td_message_decode(type, bytes, arena, out);
}

static td_status prepare_group(td_task *task, td_str bytes, group_request *r) {
  Pb__CompleteGroupRequest *m;
  TD_TRY(check_leads(task, "CompleteGroup"));
  TD_TRY(decode(&pb__complete_group_request__descriptor, bytes, &r->arena, (ProtobufCMessage **)&m));
  if (!m->n_device_name || !m->device_name[0][0])
    return td_invalid_argument("CompleteGroupRequest for group %d names no device", m->group_key);
  r->q.only_group = true;
  r->q.group = (td_group_member){.key = m->group_key,
                                 .size = m->group_size,
                                 .device_type = td_str_of(m->device_type),
                                 .device = td_str_of(m->device_name[0]),
                                 .name = TD_STR("")};
  r->q.done = group_complete;
  return TD_STATUS_OK;
}

static td_status prepare_instance(td_task *task, td_str bytes, group_request *r) {
  Pb__CompleteInstanceRequest *m;
  bool unknown = false;
  TD_TRY(check_leads(task, "CompleteInstance"));
  TD_TRY(decode(&pb__complete_instance_request__descriptor, bytes, &r->arena, (ProtobufCMessage **)&m));
  if (m->shape) TD_TRY(td_shape_from_proto(m->shape, &r->shape, &unknown));
  if (unknown) return td_invalid_argument("CompleteInstanceRequest for instance %d has no full shape", m->instance_key);
  r->q.group = (td_group_member){.key = m->group_key,
                                 .size = m->group_size,
                                 .device_type = td_str_of(m->device_type),
                                 .device = td_str_of(m->device),
                                 .name = td_str_of(m->name)};
  r->q.instance = (td_instance_member){.key = m->instance_key,
                                       .type = (td_collective_type)m->type,
                                       .dtype = (td_dtype)m->data_type,
                                       .shape = &r->shape,
                                       .device = td_str_of(m->device),
                                       .is_source = m->is_source};
  r->q.done = instance_complete;
  return TD_STATUS_OK;
}

static void start(td_task *task, td_call *call, td_str request,
                  td_status (*prepare)(td_task *task, td_str bytes, group_request *r)) {
  group_request *r = td_new(group_request);
  atomic_init(&r->refs, 2);
  r->call = call;
  td_status s = prepare(task, request, r);
  if (s) {
    td_arena_deinit(&r->arena);
    td_free(r);
    td_call_fail_peer(call, s);
    return;
  }
  td_membership_init(task->collectives, &r->q);
  td_call_on_cancel_owned(call, group_request_cancelled, r, group_request_release);
  td_membership_start(&r->q);
}

void td_complete_group_method(void *service, td_call *call, td_str request) {
  start(service, call, request, prepare_group);
}

void td_complete_instance_method(void *service, td_call *call, td_str request) {
  start(service, call, request, prepare_instance);
}

/* ---- GetStepSequence ---- */

void td_get_step_sequence_method(void *service, td_call *call, td_str request) {
  td_task *task = service;
  td_arena arena = {0};
  Pb__GetStepSequenceRequest *m;
  Pb__GetStepSequenceResponse reply = PB__GET_STEP_SEQUENCE_RESPONSE__INIT;
  const char *leader = td_configured_leader(task);
  td_status s = leader[0] && strcmp(leader, task->name)
                    ? td_internal("GetStepSequenceAsync called at non-group-leader")
                    : decode(&pb__get_step_sequence_request__descriptor, request, &arena, (ProtobufCMessage **)&m);
  if (!s) {
    reply.step_sequence = td_arena_array(&arena, Pb__StepSequence *, m->n_graph_key + 1);
    for (size_t i = 0; !s && i < m->n_graph_key; i++) {
      Pb__StepSequence *q = reply.step_sequence[reply.n_step_sequence++] = td_arena_new(&arena, Pb__StepSequence);
      pb__step_sequence__init(q);
      q->graph_key = m->graph_key[i];
      s = td_step_sequences_peek(task->sequences, q->graph_key, &q->next_step_id);
    }
  }
  if (s)
    td_call_fail_peer(call, s);
  else
    td_call_reply_message(call, &reply.base);
  td_arena_deinit(&arena);
}

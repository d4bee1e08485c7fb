/* RecvTensor: a peer wants a tensor that is made here. */
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/messages.h"
#include "cluster/remote_rendezvous.h"
#include "cluster/services.h"
#include "cluster/step_table.h"
#include "framework/device.h"
#include "proto/wire.h"
#include "runtime/local_rendezvous.h"

/* A peer waiting for a tensor. Held by the receive and by the call's cancellation. */
typedef struct recv_request {
  td_recv recv;
  _Atomic uint32_t refs;
  td_task *task;
  td_call *call;
  td_step_entry *entry; /* retained */
  bool gave_up;
} recv_request;

static void recv_request_release(recv_request *r) {
  /* acq_rel: the last owner sees what the other wrote */
  if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  if (r->gave_up)
    td_step_table_abandon(r->task->steps, r->entry);
  else
    td_step_entry_release(r->entry);
  td_free(r);
}

static void recv_done(td_recv *recv, td_status status, td_tensor *t, bool dead) {
  recv_request *r = TD_CONTAINER_OF(recv, recv_request, recv);
  td_payload message = {0};
  if (!status) status = td_recv_tensor_response_encode(dead ? NULL : t, dead, &message);
  td_tensor_release(t);
  if (status) {
    td_payload_deinit(&message);
    td_call_fail_peer(r->call, status);
  } else {
    td_call_reply(r->call, &message);
  }
  recv_request_release(r);
}

/* The peer no longer waits; the step goes on. */
static void recv_cancelled(void *arg) {
  recv_request *r = arg;
  if (!td_local_rendezvous_cancel_recv(td_step_rendezvous_local(r->entry->rendezvous), &r->recv)) return;
  r->gave_up = true;
  td_call_fail_peer(r->call, td_cancelled("RecvTensor was cancelled by the caller"));
  recv_request_release(r);
}

static void recv_request_free(void *arg) { recv_request_release(arg); }

/* Keys name the device they come from: one of this task, of this incarnation. */
static td_status check_source(const td_task *task, td_str text, const td_rendezvous_key *key) {
  for (int i = 0; i < task->device_count; i++)
    if (task->devices[i]->incarnation == key->src_incarnation) return TD_STATUS_OK;
  td_device_name name;
  if (!td_device_name_parse(key->src_device, &name) || strcmp(name.job, task->self->job) ||
      name.task != task->self->index)
    return td_invalid_argument("Invalid rendezvous key (src): %.*s @ %s", TD_STR_ARG(text), task->name);
  for (int i = 0; i < task->device_count; i++)
    if (td_str_is(key->src_device, task->devices[i]->name))
      return td_aborted(
          "RecvTensor expects a different device incarnation: %llu vs. %llu. Your worker job (\"%s\") was probably "
          "restarted. Check your worker job for the reason why it was restarted.",
          (unsigned long long)key->src_incarnation, (unsigned long long)task->devices[i]->incarnation, task->name);
  return td_invalid_argument("%.*s unknown device.", TD_STR_ARG(key->src_device));
}

td_status td_recv_key_parse(const td_task *task, td_str text, td_rendezvous_key *key, td_frame_id *frame) {
  TD_TRY(td_rendezvous_key_parse(text, key, frame));
  return check_source(task, text, key);
}

static td_status prepare_recv(td_task *task, td_str bytes, td_rendezvous_key *key, td_frame_id *frame,
                              td_step_entry **entry) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  int64_t step_id = 0, request_id = 0;
  td_str text = {0};
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == 1 && f.type == TD_WIRE_VARINT) step_id = (int64_t)f.value;
    if (f.number == 2 && f.type == TD_WIRE_BYTES) text = f.bytes;
    if (f.number == 7 && f.type == TD_WIRE_VARINT) request_id = (int64_t)f.value;
  }
  if (bad) return td_invalid_argument("malformed RecvTensorRequest");
  TD_TRY(td_request_ids_track(task->worker_ids, request_id, "RecvTensor (GrpcWorker)"));
  TD_TRY(td_recv_key_parse(task, text, key, frame));
  return td_step_table_get(task->steps, step_id, 0, entry);
}

void td_recv_tensor_method(void *service, td_call *call, td_str request) {
  td_rendezvous_key key;
  td_frame_id frame;
  td_step_entry *entry;
  td_status s = prepare_recv(service, request, &key, &frame, &entry);
  if (s) {
    td_call_fail_peer(call, s);
    return;
  }
  recv_request *r = td_new(recv_request);
  atomic_init(&r->refs, 2);
  r->recv.done = recv_done;
  r->task = service;
  r->call = call;
  r->entry = entry;
  td_call_on_cancel_owned(call, recv_cancelled, r, recv_request_free);
  td_rendezvous_recv(td_step_rendezvous_local(entry->rendezvous), &key, frame, &r->recv);
}

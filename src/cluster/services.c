#include "cluster/services.h"

#include "base/mem.h"
#include "cluster/messages.h"

static void run_request(td_work *w) {
  td_request *r = TD_CONTAINER_OF(w, td_request, work);
  r->run(r);
}

static void request_release(void *arg) {
  td_request *r = arg;
  /* acq_rel: the last owner sees what the other wrote */
  if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1) td_free(r);
}

static void request_given_up(void *arg) { atomic_store(&((td_request *)arg)->gave_up, true); }

void td_request_start(td_task *task, td_call *call, td_str bytes, td_request_fn run) {
  td_request *r = td_new(td_request);
  r->work.run = run_request;
  r->task = task;
  r->call = call;
  r->bytes = bytes;
  r->run = run;
  atomic_init(&r->refs, 2);
  td_call_on_cancel_owned(call, request_given_up, r, request_release);
  if (td_control_run(task->control, &r->work)) return;
  td_call_fail_client(
      call, td_resource_exhausted("too many control operations run at %s, or it is shutting down", task->name));
  request_release(r);
}

void td_call_reply_message(td_call *call, const ProtobufCMessage *reply) {
  td_payload message = {0};
  td_status s = td_payload_add_message(&message, reply);
  if (s) {
    td_payload_deinit(&message);
    td_call_fail_client(call, s);
    return;
  }
  td_call_reply(call, &message);
}

void td_request_reply(td_request *r, td_status status, const ProtobufCMessage *reply) {
  if (status)
    td_call_fail_client(r->call, status);
  else
    td_call_reply_message(r->call, reply);
  td_arena_deinit(&r->arena);
  request_release(r);
}

void td_request_reply_bytes(td_request *r, td_payload *reply) {
  td_call_reply(r->call, reply);
  td_arena_deinit(&r->arena);
  request_release(r);
}

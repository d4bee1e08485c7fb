/* The master service (TensorFlow's grpc_master_service): what clients ask of this task. */
#include "base/clock.h"
#include "base/mem.h"
#include "cluster/callable.h"
#include "cluster/master.h"
#include "cluster/master_step.h"
#include "cluster/partial_step.h"
#include "cluster/services.h"
#include "proto/message.h"

#define DECODE(type, out) td_message_decode(&pb__##type##__descriptor, r->bytes, &r->arena, (ProtobufCMessage **)(out))

/* ---- the blocking ones ---- */

/* May wait for tasks for hours. */
static void run_create_session(td_request *r) {
  Pb__CreateSessionRequest *request;
  Pb__CreateSessionResponse reply = PB__CREATE_SESSION_RESPONSE__INIT;
  td_master_session *session = NULL;
  td_status s = DECODE(create_session_request, &request);
  if (!s) s = td_master_session_create(r->task, &r->arena, request, &r->gave_up, &session);
  if (!s) {
    s = atomic_load(&r->gave_up) ? td_cancelled("The call was given up by the client")
                                 : td_master_add(r->task->master, session);
    if (s) td_master_session_close(session, td_now_ns() + TD_CLOSE_NS);
  }
  if (!s) reply.session_handle = session->handle;
  td_request_reply(r, s, &reply.base);
  td_master_session_release(session);
}

static void run_extend_session(td_request *r) {
  Pb__ExtendSessionRequest *request;
  Pb__ExtendSessionResponse reply = PB__EXTEND_SESSION_RESPONSE__INIT;
  td_master_session *session = NULL;
  td_status s = DECODE(extend_session_request, &request);
  if (!s) s = td_master_find(r->task->master, td_str_of(request->session_handle), &session);
  if (!s) s = td_master_session_extend(session, &r->arena, request, &reply.new_graph_version);
  td_master_session_release(session);
  td_request_reply(r, s, &reply.base);
}

static void run_close_session(td_request *r) {
  Pb__CloseSessionRequest *request;
  Pb__CloseSessionResponse reply = PB__CLOSE_SESSION_RESPONSE__INIT;
  td_status s = DECODE(close_session_request, &request);
  if (!s) s = td_master_close(r->task->master, td_str_of(request->session_handle));
  td_request_reply(r, s, &reply.base);
}

static void run_list_devices(td_request *r) {
  Pb__ListDevicesRequest *request;
  Pb__ListDevicesResponse reply = PB__LIST_DEVICES_RESPONSE__INIT;
  td_status s = DECODE(list_devices_request, &request);
  if (!s)
    s = td_master_list_devices(r->task->master, td_str_of(request->session_handle), &r->arena, &r->gave_up, &reply);
  td_request_reply(r, s, &reply.base);
}

static void run_reset(td_request *r) {
  Pb__ResetRequest *request;
  Pb__ResetResponse reply = PB__RESET_RESPONSE__INIT;
  td_status s = DECODE(reset_request, &request);
  if (!s) s = td_master_reset(r->task->master, request, &r->gave_up);
  td_request_reply(r, s, &reply.base);
}

static void run_make_callable(td_request *r) {
  Pb__MakeCallableRequest *request;
  Pb__MakeCallableResponse reply = PB__MAKE_CALLABLE_RESPONSE__INIT;
  td_master_session *session = NULL;
  td_status s = DECODE(make_callable_request, &request);
  if (!s) s = td_request_ids_track(r->task->master_ids, request->request_id, "MakeCallable (Master)");
  if (!s) s = td_master_find(r->task->master, td_str_of(request->session_handle), &session);
  if (!s) s = td_callable_make(session, request, &reply.handle);
  td_master_session_release(session);
  td_request_reply(r, s, &reply.base);
}

static void run_partial_run_setup(td_request *r) {
  Pb__PartialRunSetupRequest *request;
  Pb__PartialRunSetupResponse reply = PB__PARTIAL_RUN_SETUP_RESPONSE__INIT;
  td_master_session *session = NULL;
  td_status s = DECODE(partial_run_setup_request, &request);
  if (!s) s = td_request_ids_track(r->task->master_ids, request->request_id, "PartialRunSetup (Master)");
  if (!s) s = td_master_find(r->task->master, td_str_of(request->session_handle), &session);
  if (!s) s = td_partial_step_set_up(session, request, &r->arena, &reply.partial_run_handle);
  td_master_session_release(session);
  td_request_reply(r, s, &reply.base);
}

static void run_release_callable(td_request *r) {
  Pb__ReleaseCallableRequest *request;
  Pb__ReleaseCallableResponse reply = PB__RELEASE_CALLABLE_RESPONSE__INIT;
  td_master_session *session = NULL;
  td_status s = DECODE(release_callable_request, &request);
  if (!s) s = td_master_find(r->task->master, td_str_of(request->session_handle), &session);
  if (!s) td_callable_release(session, request->handle);
  td_master_session_release(session);
  td_request_reply(r, s, &reply.base);
}

#define ON_CONTROL_THREAD(name) \
  static void name(void *service, td_call *call, td_str bytes) { td_request_start(service, call, bytes, run_##name); }
ON_CONTROL_THREAD(create_session)
ON_CONTROL_THREAD(extend_session)
ON_CONTROL_THREAD(close_session)
ON_CONTROL_THREAD(list_devices)
ON_CONTROL_THREAD(reset)
ON_CONTROL_THREAD(make_callable)
ON_CONTROL_THREAD(release_callable)
ON_CONTROL_THREAD(partial_run_setup)

/* ---- steps ---- */

static void run_step(void *service, td_call *call, td_str bytes) { td_master_step_start(service, call, bytes, false); }

static void run_callable(void *service, td_call *call, td_str bytes) {
  td_master_step_start(service, call, bytes, true);
}

#define MASTER(name) "/tensorflow.MasterService/" name
const td_method td_master_service_methods[] = {
    {.path = MASTER("CreateSession"), .handle = create_session},
    {.path = MASTER("ExtendSession"), .handle = extend_session},
    {.path = MASTER("PartialRunSetup"), .handle = partial_run_setup},
    {.path = MASTER("RunStep"), .handle = run_step},
    {.path = MASTER("CloseSession"), .handle = close_session},
    {.path = MASTER("ListDevices"), .handle = list_devices},
    {.path = MASTER("Reset"), .handle = reset},
    {.path = MASTER("MakeCallable"), .handle = make_callable},
    {.path = MASTER("RunCallable"), .handle = run_callable},
    {.path = MASTER("ReleaseCallable"), .handle = release_callable},
};
const int td_master_service_method_count = TD_COUNT(td_master_service_methods);

/* This task itself, called directly. Plain calls run on the caller's thread (a control thread). */
#include "base/mem.h"
#include "cluster/devices.h"
#include "cluster/graph_mgr.h"
#include "cluster/partial_run_mgr.h"
#include "cluster/peers.h"
#include "cluster/step_table.h"
#include "cluster/transfer_log.h"
#include "cluster/worker_session.h"

typedef struct local_worker {
  td_worker base;
  td_task *task;
  char *name;
} local_worker;

static td_status register_graph(td_task *task, td_worker_call *call, Pb__RegisterGraphResponse *reply) {
  const Pb__RegisterGraphRequest *request = (const Pb__RegisterGraphRequest *)call->request;
  td_worker_session *session;
  TD_TRY(td_worker_sessions_find(task->sessions, td_str_of(request->session_handle), false, &session));
  td_graph_debug debug = {.watches = request->debug_options, .run = call->debug};
  td_status s = td_graph_mgr_register(session, call->graph, request->graph_options, &debug, &call->registered);
  td_worker_session_release(session);
  if (!s) reply->graph_handle = (char *)td_registered_graph_handle(call->registered);
  return s;
}

static td_status deregister_graph(td_task *task, const Pb__DeregisterGraphRequest *request) {
  td_worker_session *session;
  TD_TRY(td_worker_sessions_find(task->sessions, td_str_of(request->session_handle), false, &session));
  td_status s = td_graph_mgr_deregister(session, td_str_of(request->graph_handle));
  td_worker_session_release(session);
  return s;
}

static void call_self(td_worker *base, td_worker_call *call) {
  td_task *task = ((local_worker *)base)->task;
  td_status s = TD_STATUS_OK;
  td_arena arena = {0};
  Pb__GetStatusResponse devices = PB__GET_STATUS_RESPONSE__INIT;
  Pb__RegisterGraphResponse registered = PB__REGISTER_GRAPH_RESPONSE__INIT;
  Pb__CleanupAllResponse empty = PB__CLEANUP_ALL_RESPONSE__INIT;
  const ProtobufCMessage *reply = &empty.base;
  switch (call->method) {
    case TD_WORKER_GET_STATUS:
      td_devices_to_proto(task->devices, task->device_count, &arena, &devices);
      reply = &devices.base;
      break;
    case TD_WORKER_CREATE_SESSION:
      s = td_worker_sessions_open(task->sessions, (const Pb__CreateWorkerSessionRequest *)call->request);
      break;
    case TD_WORKER_DELETE_SESSION:
      td_worker_sessions_close(task->sessions,
                               td_str_of(((const Pb__DeleteWorkerSessionRequest *)call->request)->session_handle));
      break;
    case TD_WORKER_REGISTER_GRAPH:
      s = register_graph(task, call, &registered);
      reply = &registered.base;
      break;
    case TD_WORKER_DEREGISTER_GRAPH:
      s = deregister_graph(task, (const Pb__DeregisterGraphRequest *)call->request);
      break;
    case TD_WORKER_CLEANUP_ALL: {
      const Pb__CleanupAllRequest *request = (const Pb__CleanupAllRequest *)call->request;
      td_worker_sessions_cleanup(task->sessions, (const char *const *)request->container, request->n_container);
      break;
    }
  }
  call->done(call, s, s ? NULL : reply);
  td_arena_deinit(&arena);
}

static void run_graph(td_worker *base, td_run_graph *r) {
  if (r->is_partial)
    td_partial_run_call(r->graph, r);
  else
    td_graph_mgr_run(r->graph, r);
}

static void cancel_run_graph(td_worker *base, td_run_graph *r) {
  td_step_table_cancel(((local_worker *)base)->task->steps, r->step_id);
}

static void cleanup_graph(td_worker *base, int64_t step_id, void (*done)(void *), void *arg) {
  td_task *task = ((local_worker *)base)->task;
  td_step_table_cleanup(task->steps, step_id);
  td_transfer_log_forget(task->transfers, step_id);
  if (done) done(arg);
}

static td_frame_dialect dialect(const td_worker *base) { return TD_FRAMES_ANY; }

static void logging(td_worker *base, td_logging *l) {
  td_transfer_log *log = ((local_worker *)base)->task->transfers;
  if (l->enable) td_transfer_log_set(log, true);
  if (l->disable) td_transfer_log_set(log, false);
  if (l->fetch_step) td_transfer_log_take(log, l->fetch_step, &l->step_stats);
  l->done(l);
}

static const td_worker_ops ops = {
    .call = call_self,
    .run_graph = run_graph,
    .cancel_run_graph = cancel_run_graph,
    .cleanup_graph = cleanup_graph,
    .dialect = dialect,
    .logging = logging,
};

td_worker *td_local_worker_create(td_task *task, const char *name) {
  local_worker *w = td_new(local_worker);
  w->task = task;
  w->name = td_strdup(name);
  w->base = (td_worker){.ops = &ops, .task_name = w->name, .is_self = true};
  return &w->base;
}

void td_local_worker_destroy(td_worker *base) {
  local_worker *w = (local_worker *)base;
  td_free(w->name);
  td_free(w);
}

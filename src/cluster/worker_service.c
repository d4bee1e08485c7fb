/* The worker service (TensorFlow's grpc_worker_service): what masters and other tasks ask of this one. */
#include <stdalign.h>

#include "base/mem.h"
#include "cluster/devices.h"
#include "cluster/graph_mgr.h"
#include "cluster/messages.h"
#include "cluster/partial_run_mgr.h"
#include "cluster/services.h"
#include "cluster/step_table.h"
#include "cluster/transfer_log.h"
#include "graph/import.h"
#include "proto/message.h"
#include "proto/wire.h"

/* ---- status and sessions ---- */

static void get_status(void *service, td_call *call, td_str request) {
  td_task *task = service;
  td_arena arena = {0};
  Pb__GetStatusResponse reply = PB__GET_STATUS_RESPONSE__INIT;
  td_devices_to_proto(task->devices, task->device_count, &arena, &reply);
  td_call_reply_message(call, &reply.base);
  td_arena_deinit(&arena);
}

static void run_create_session(td_request *r) {
  Pb__CreateWorkerSessionRequest *request;
  Pb__CreateWorkerSessionResponse reply = PB__CREATE_WORKER_SESSION_RESPONSE__INIT;
  td_status s = td_message_decode(&pb__create_worker_session_request__descriptor, r->bytes, &r->arena,
                                  (ProtobufCMessage **)&request);
  if (!s) s = td_worker_sessions_open(r->task->sessions, request);
  td_request_reply(r, s, &reply.base);
}

static void create_session(void *service, td_call *call, td_str request) {
  td_request_start(service, call, request, run_create_session);
}

static void run_delete_session(td_request *r) {
  Pb__DeleteWorkerSessionRequest *request;
  Pb__DeleteWorkerSessionResponse reply = PB__DELETE_WORKER_SESSION_RESPONSE__INIT;
  td_status s = td_message_decode(&pb__delete_worker_session_request__descriptor, r->bytes, &r->arena,
                                  (ProtobufCMessage **)&request);
  if (!s) td_worker_sessions_close(r->task->sessions, td_str_of(request->session_handle));
  td_request_reply(r, s, &reply.base);
}

static void delete_session(void *service, td_call *call, td_str request) {
  td_request_start(service, call, request, run_delete_session);
}

/* ---- graphs ---- */

static td_status register_graph(td_request *r, td_registered_graph **out) {
  Pb__RegisterGraphRequest *request;
  td_worker_session *session = NULL;
  td_graph *graph = NULL;
  td_status status =
      td_message_decode(&pb__register_graph_request__descriptor, r->bytes, &r->arena, (ProtobufCMessage **)&request);
  if (status) return status;
  TD_TRY_GOTO(td_worker_sessions_find(r->task->sessions, td_str_of(request->session_handle),
                                      !request->create_worker_session_called, &session));
  static const Pb__GraphDef empty = PB__GRAPH_DEF__INIT;
  TD_TRY_GOTO(td_graph_import(request->graph_def ? request->graph_def : &empty, NULL,
                              &(td_import_options){.is_partition = true}, &graph));
  td_graph_debug debug = {.watches = request->debug_options, .gave_up = &r->gave_up};
  TD_TRY_GOTO(td_graph_mgr_register(session, graph, request->graph_options, &debug, out));
cleanup:
  td_graph_release(graph);
  td_worker_session_release(session);
  return status;
}

static void run_register_graph(td_request *r) {
  Pb__RegisterGraphResponse reply = PB__REGISTER_GRAPH_RESPONSE__INIT;
  td_registered_graph *graph = NULL;
  td_status s = register_graph(r, &graph);
  if (graph) reply.graph_handle = td_arena_strdup(&r->arena, td_registered_graph_handle(graph));
  td_registered_graph_release(graph);
  td_request_reply(r, s, &reply.base);
}

static void register_graph_method(void *service, td_call *call, td_str request) {
  td_request_start(service, call, request, run_register_graph);
}

static void run_deregister_graph(td_request *r) {
  Pb__DeregisterGraphRequest *request;
  Pb__DeregisterGraphResponse reply = PB__DEREGISTER_GRAPH_RESPONSE__INIT;
  td_worker_session *session = NULL;
  td_status s =
      td_message_decode(&pb__deregister_graph_request__descriptor, r->bytes, &r->arena, (ProtobufCMessage **)&request);
  if (!s)
    s = td_worker_sessions_find(r->task->sessions, td_str_of(request->session_handle),
                                !request->create_worker_session_called, &session);
  if (!s) s = td_graph_mgr_deregister(session, td_str_of(request->graph_handle));
  td_worker_session_release(session);
  td_request_reply(r, s, &reply.base);
}

static void deregister_graph(void *service, td_call *call, td_str request) {
  td_request_start(service, call, request, run_deregister_graph);
}

/* ---- steps ---- */

/* A RunGraph call of a peer in progress. Two hold it: the run, and the call's cancellation, both on the way until the
 * answer is given; it is freed with the answer. */
typedef struct graph_request {
  td_run_graph run;
  td_task *task;
  td_call *call;
  td_arena arena; /* begins with `memory` */
  td_run_graph_request in;
  td_worker_session *session;
  alignas(16) char memory[256]; /* enough for a step without feeds and fetches */
} graph_request;

static void reply_run_graph(graph_request *g, td_status status) {
  td_payload message = {0};
  td_strbuf head = {0};
  if (!status) {
    if (g->run.step_stats.size) td_wire_put_bytes(&head, 2, td_strbuf_view(&g->run.step_stats));
    td_wire_put_bytes(&head, 3, td_strbuf_view(&g->run.cost_graph)); /* present even when empty */
    /* what a run leaves as RunMetadata.partition_graphs (3) is field 4 here */
    td_wire w = td_wire_of(td_strbuf_view(&g->run.metadata));
    td_wire_field f;
    bool bad = false;
    while (td_wire_next(&w, &f, &bad)) td_wire_put_bytes(&head, 4, f.bytes);
  }
  td_strbuf_deinit(&g->run.metadata);
  td_strbuf_deinit(&g->run.step_stats);
  td_strbuf_deinit(&g->run.cost_graph);
  if (status && g->in.store_errors_in_body) {
    char *text = td_status_marked_message(status);
    td_wire_put_uint(&head, 5, (uint64_t)td_status_code(status));
    td_wire_put_bytes(&head, 6, td_str_of(text));
    td_free(text);
    td_status_free(status);
    status = TD_STATUS_OK;
  }
  td_payload_copy(&message, head.data, head.size);
  td_strbuf_deinit(&head);
  for (int i = 0; i < g->run.recv_count; i++) {
    if (!status && g->run.recvs[i])
      status = td_payload_add_named_tensor(&message, 1, g->in.recv_keys[i], g->run.recvs[i]);
    td_tensor_release(g->run.recvs[i]);
  }
  if (status) {
    td_payload_deinit(&message);
    td_call_fail_peer(g->call, status);
  } else {
    td_call_reply(g->call, &message);
  }
}

static void end_graph_request(graph_request *g, td_status status) {
  reply_run_graph(g, status);
  td_named_tensors_release(&g->in.sends);
  td_registered_graph_release(g->run.graph);
  td_worker_session_release(g->session);
  td_arena_deinit(&g->arena);
  td_free(g);
}

static void graph_request_done(td_run_graph *r, td_status status) {
  end_graph_request(TD_CONTAINER_OF(r, graph_request, run), status);
}

/* What a cancelled call needs; it may outlive the request. */
typedef struct step_cancel {
  td_task *task;
  int64_t step_id;
} step_cancel;

static void cancel_step(void *arg) {
  step_cancel *c = arg;
  td_step_table_cancel(c->task->steps, c->step_id);
}

static step_cancel *step_cancel_create(td_task *task, int64_t step_id) {
  step_cancel *c = td_new(step_cancel);
  *c = (step_cancel){task, step_id};
  return c;
}

/* Keys of the caller's sends and receives, parsed. */
static td_status parse_keys(graph_request *g) {
  td_run_graph *r = &g->run;
  td_frame_id frame;
  size_t sends = g->in.sends.count, recvs = g->in.recv_key_count;
  td_rendezvous_key *keys = td_arena_array(&g->arena, td_rendezvous_key, sends + recvs + 1);
  td_tensor **tensors = td_arena_array(&g->arena, td_tensor *, sends + recvs + 1);
  for (size_t i = 0; i < sends; i++) {
    TD_TRY(td_rendezvous_key_parse(g->in.sends.items[i].name, &keys[i], &frame));
    tensors[i] = g->in.sends.items[i].tensor;
  }
  for (size_t i = 0; i < recvs; i++) TD_TRY(td_rendezvous_key_parse(g->in.recv_keys[i], &keys[sends + i], &frame));
  r->send_keys = keys;
  r->sends = tensors;
  r->send_count = (int)sends;
  r->recv_keys = keys + sends;
  r->recvs = tensors + sends;
  r->recv_count = (int)recvs;
  return TD_STATUS_OK;
}

static td_status clean_up(td_task *task, td_str ids) {
  td_wire w = td_wire_of(ids);
  uint64_t id;
  while (td_wire_left(&w)) {
    if (!td_wire_read_varint(&w, &id)) return td_invalid_argument("malformed ids of ended steps in a RunGraphRequest");
    td_step_table_cleanup(task->steps, (int64_t)id);
  }
  return TD_STATUS_OK;
}

static td_status prepare_run_graph(graph_request *g, td_str bytes) {
  TD_TRY(td_run_graph_request_decode(bytes, &g->arena, &g->in));
  TD_TRY(td_request_ids_track(g->task->worker_ids, g->in.request_id,
                              g->in.is_partial ? "PartialRunGraph (Worker)" : "RunGraph (Worker)"));
  TD_TRY(clean_up(g->task, g->in.ended_steps));
  TD_TRY(td_worker_sessions_find(g->task->sessions, g->in.session, !g->in.create_worker_session_called, &g->session));
  TD_TRY(td_graph_mgr_find(g->session, g->in.graph_handle, &g->run.graph));
  g->run.step_id = g->in.step_id;
  g->run.record_costs = g->in.record_costs;
  g->run.is_partial = g->in.is_partial;
  g->run.is_last_partial_run = g->in.is_last_partial_run;
  g->run.record_timeline = g->in.record_timeline;
  g->run.record_partition_graphs = g->in.record_partition_graphs;
  g->run.done = graph_request_done;
  return parse_keys(g);
}

static void run_graph(void *service, td_call *call, td_str request) {
  graph_request *g = td_new(graph_request);
  td_arena_init_with(&g->arena, g->memory, sizeof g->memory);
  g->task = service;
  g->call = call;
  td_status s = prepare_run_graph(g, request);
  if (s) {
    end_graph_request(g, s);
    return;
  }
  td_call_on_cancel_owned(call, cancel_step, step_cancel_create(g->task, g->in.step_id), td_free);
  if (g->run.is_partial)
    td_partial_run_call(g->run.graph, &g->run);
  else
    td_graph_mgr_run(g->run.graph, &g->run);
}

static void cleanup_graph(void *service, td_call *call, td_str request) {
  td_task *task = service;
  td_wire w = td_wire_of(request);
  td_wire_field f;
  bool bad = false;
  int64_t id = 0;
  while (td_wire_next(&w, &f, &bad))
    if (f.number == 1 && f.type == TD_WIRE_VARINT) id = (int64_t)f.value;
  if (bad) {
    td_call_fail_peer(call, td_invalid_argument("malformed CleanupGraphRequest"));
    return;
  }
  td_step_table_cleanup(task->steps, id);
  td_transfer_log_forget(task->transfers, id);
  td_payload empty = {0};
  td_call_reply(call, &empty);
}

static void run_cleanup_all(td_request *r) {
  Pb__CleanupAllRequest *request;
  Pb__CleanupAllResponse reply = PB__CLEANUP_ALL_RESPONSE__INIT;
  td_status s =
      td_message_decode(&pb__cleanup_all_request__descriptor, r->bytes, &r->arena, (ProtobufCMessage **)&request);
  if (!s) td_worker_sessions_cleanup(r->task->sessions, (const char *const *)request->container, request->n_container);
  td_request_reply(r, s, &reply.base);
}

static void cleanup_all(void *service, td_call *call, td_str request) {
  td_request_start(service, call, request, run_cleanup_all);
}

/* ---- Logging ---- */

/* LabeledStepStats{step_id, step_stats} as a field of the reply. */
static void put_logged_step(td_task *task, int64_t id, td_strbuf *reply) {
  td_strbuf stats = {0}, step = {0};
  if (td_transfer_log_take(task->transfers, id, &stats)) {
    td_wire_put_uint(&step, 1, (uint64_t)id);
    td_wire_put_bytes(&step, 2, td_strbuf_view(&stats));
    td_wire_put_bytes(reply, 1, td_strbuf_view(&step));
  }
  td_strbuf_deinit(&stats);
  td_strbuf_deinit(&step);
}

static void logging(void *service, td_call *call, td_str request) {
  td_task *task = service;
  td_wire w = td_wire_of(request);
  td_wire_field f;
  bool bad = false, enable = false, disable = false, clear = false, fetches = false;
  td_strbuf reply = {0};
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == 1 && f.type == TD_WIRE_VARINT) enable = f.value;
    if (f.number == 2 && f.type == TD_WIRE_VARINT) clear = f.value;
    if (f.number == 4 && f.type == TD_WIRE_VARINT) disable = f.value;
    if (f.number != 3) continue;
    td_wire ids = td_wire_of(f.bytes);
    uint64_t id = f.value;
    fetches = true;
    if (f.type == TD_WIRE_VARINT) put_logged_step(task, (int64_t)id, &reply);
    while (f.type == TD_WIRE_BYTES && td_wire_read_varint(&ids, &id)) put_logged_step(task, (int64_t)id, &reply);
  }
  if (bad) {
    td_strbuf_deinit(&reply);
    td_call_fail_peer(call, td_invalid_argument("malformed LoggingRequest"));
    return;
  }
  if (enable) td_transfer_log_set(task->transfers, true);
  /* masters before there was a field for it turn it off by not turning it on */
  if (disable || (!enable && !fetches)) td_transfer_log_set(task->transfers, false);
  if (clear) td_transfer_log_clear(task->transfers);
  td_payload message = {0};
  size_t size = reply.size;
  td_payload_take(&message, td_strbuf_take(&reply), size);
  td_call_reply(call, &message);
}

/* ---- the rest ---- */

static void empty_reply(void *service, td_call *call, td_str request) {
  td_payload empty = {0};
  td_call_reply(call, &empty);
}

static void tracing(void *service, td_call *call, td_str request) {
  td_call_fail_peer(call, td_unimplemented("Tracing"));
}

#define WORKER(name) "/tensorflow.WorkerService/" name
const td_method td_worker_service_methods[] = {
    {.path = WORKER("GetStatus"), .handle = get_status},
    {.path = WORKER("CreateWorkerSession"), .handle = create_session},
    {.path = WORKER("DeleteWorkerSession"), .handle = delete_session},
    {.path = WORKER("RegisterGraph"), .handle = register_graph_method},
    {.path = WORKER("DeregisterGraph"), .handle = deregister_graph},
    {.path = WORKER("RunGraph"), .handle = run_graph},
    {.path = WORKER("CleanupGraph"), .handle = cleanup_graph},
    {.path = WORKER("CleanupAll"), .handle = cleanup_all},
    {.path = WORKER("RecvTensor"), .handle = td_recv_tensor_method},
    {.path = TD_RECV_TENSORS_PATH, .handle = td_recv_tensors_method},
    {.path = WORKER("MarkRecvFinished"), .handle = empty_reply},
    {.path = WORKER("Logging"), .handle = logging},
    {.path = WORKER("Tracing"), .handle = tracing},
    {.path = WORKER("RecvBuf"), .handle = td_recv_buf_method},
    {.path = WORKER("CompleteGroup"), .handle = td_complete_group_method},
    {.path = WORKER("CompleteInstance"), .handle = td_complete_instance_method},
    {.path = WORKER("GetStepSequence"), .handle = td_get_step_sequence_method},
};
const int td_worker_service_method_count = TD_COUNT(td_worker_service_methods);

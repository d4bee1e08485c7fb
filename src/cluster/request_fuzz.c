/* Request bytes to running servers: a worker and a parameter server in this process, over real sockets.
 *
 * The first byte chooses the method (bits 0-4), the task that is asked (bit 5) and whether the bytes go as they are
 * (bit 6). Otherwise they are decoded, and handles in them are put right: of a live session, a live registered graph, a
 * live callable, so that the code behind the look-up is reached; a handle that begins with 'x' stays.
 *
 * Whatever comes must be answered within the deadline and leave servers that serve the next request. Every few thousand
 * runs the servers are stopped and started anew: nothing may be left then.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cluster/recv_batch.h"
#include "cluster/testing.h"
#include "proto/message.h"
#include "tensor/memory.h"

enum { DEADLINE_MS = 200, PATIENCE_MS = 20000, RUNS_OF_A_CLUSTER = 2000, MOST_MEMORY = 64 << 20 };

#define MASTER(name, type) \
  { "/tensorflow.MasterService/" name, &pb__##type##_request__descriptor }
#define WORKER(name, type) \
  { "/tensorflow.WorkerService/" name, &pb__##type##_request__descriptor }
static const struct {
  const char *path;
  const ProtobufCMessageDescriptor *type;
} methods[] = {
    MASTER("CreateSession", create_session),
    MASTER("ExtendSession", extend_session),
    MASTER("PartialRunSetup", partial_run_setup),
    MASTER("RunStep", run_step),
    MASTER("CloseSession", close_session),
    MASTER("ListDevices", list_devices),
    MASTER("Reset", reset),
    MASTER("MakeCallable", make_callable),
    MASTER("RunCallable", run_callable),
    MASTER("ReleaseCallable", release_callable),
    WORKER("GetStatus", get_status),
    WORKER("CreateWorkerSession", create_worker_session),
    WORKER("DeleteWorkerSession", delete_worker_session),
    WORKER("RegisterGraph", register_graph),
    WORKER("DeregisterGraph", deregister_graph),
    WORKER("RunGraph", run_graph),
    WORKER("CleanupGraph", cleanup_graph),
    WORKER("CleanupAll", cleanup_all),
    WORKER("RecvTensor", recv_tensor),
    WORKER("MarkRecvFinished", mark_recv_finished),
    WORKER("Logging", logging),
    WORKER("Tracing", tracing),
    WORKER("RecvBuf", recv_buf),
    WORKER("CompleteGroup", complete_group),
    WORKER("CompleteInstance", complete_instance),
    WORKER("GetStepSequence", get_step_sequence),
    {TD_RECV_TENSORS_PATH, NULL}, /* tensord's own, no protobuf */
};

static const char graph_text[] =
    "v VariableV2 /job:ps/task:0 - shape: [2]; dtype: float; container: ''; shared_name: ''\n"
    "c Const /job:ps/task:0 - dtype: float; value: float [2] 1 2\n"
    "init Assign /job:ps/task:0 v,c T: float; validate_shape: true; use_locking: true\n"
    "r Identity /job:ps/task:0 v T: float\n"
    "x Placeholder /job:worker/task:0 - dtype: float; shape: unknown\n"
    "y Add /job:worker/task:0 r,x T: float\n"
    "i Identity /job:worker/task:0 x T: float\n";
#define CPU "/job:worker/replica:0/task:0/device:CPU:0"
static const char local_graph_text[] =
    "k Const " CPU " - dtype: float; value: float [2] 1 2\nj Identity " CPU " k T: float\n";

static struct {
  bool is_running;
  td_test_cluster cluster;
  unsigned runs;
  char *session, *worker_session, *graph; /* handles of what lives on task 0 */
  int64_t callable;
  char incarnation[17]; /* of its device, as rendezvous keys have it */
} live;

static void must(td_status s) {
  if (!s) return;
  fprintf(stderr, "%s: %s\n", td_code_name(td_status_code(s)), td_status_message(s));
  abort();
}

/* ---- what lives ---- */

static void forget(void) {
  td_free(live.session);
  td_free(live.worker_session);
  td_free(live.graph);
  live.session = live.worker_session = live.graph = NULL;
}

static void stop(void) {
  if (live.is_running) td_test_cluster_stop(&live.cluster);
  live.is_running = false;
  forget();
}

static ProtobufCMessage *ask(const char *path, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
                             td_arena *a) {
  ProtobufCMessage *reply;
  must(td_test_call(live.cluster.channels[0], path, request, PATIENCE_MS, type, a, &reply));
  return reply;
}

/* A session with a callable, and a worker session with a graph. */
static void make_handles(void) {
  td_arena a = {0};
  char *handle, *feed = td_arena_strdup(&a, "x"), *fetch = td_arena_strdup(&a, "y");
  forget();
  must(td_test_create_session(&live.cluster, 0, graph_text, NULL, &a, &handle));
  live.session = td_strdup(handle);
  must(td_test_run(&live.cluster, 0, handle, "-", "init", NULL, NULL, PATIENCE_MS, NULL));
  Pb__CallableOptions options = PB__CALLABLE_OPTIONS__INIT;
  options.n_feed = options.n_fetch = 1;
  options.feed = &feed;
  options.fetch = &fetch;
  Pb__MakeCallableRequest make = PB__MAKE_CALLABLE_REQUEST__INIT;
  make.session_handle = handle;
  make.options = &options;
  live.callable =
      ((Pb__MakeCallableResponse *)ask(methods[7].path, &make.base, &pb__make_callable_response__descriptor, &a))
          ->handle;

  Pb__GetStatusRequest get = PB__GET_STATUS_REQUEST__INIT;
  Pb__GetStatusResponse *status =
      (Pb__GetStatusResponse *)ask(methods[10].path, &get.base, &pb__get_status_response__descriptor, &a);
  snprintf(live.incarnation, sizeof live.incarnation, "%016llx",
           (unsigned long long)status->device_attributes[0]->incarnation);

  live.worker_session = td_strdup("w");
  Pb__CreateWorkerSessionRequest create = PB__CREATE_WORKER_SESSION_REQUEST__INIT;
  create.session_handle = live.worker_session;
  ask(methods[11].path, &create.base, NULL, &a);
  Pb__RegisterGraphRequest graph = PB__REGISTER_GRAPH_REQUEST__INIT;
  graph.session_handle = live.worker_session;
  graph.create_worker_session_called = true;
  graph.graph_def = td_test_graph(&a, local_graph_text);
  live.graph = td_strdup(
      ((Pb__RegisterGraphResponse *)ask(methods[13].path, &graph.base, &pb__register_graph_response__descriptor, &a))
          ->graph_handle);
  td_arena_deinit(&a);
}

static void prepare(void) {
  static bool is_set_up;
  if (!is_set_up) {
    signal(SIGPIPE, SIG_IGN);
    td_log_set_level(TD_LOG_ERROR);
    td_memory_set_limit(MOST_MEMORY);
    atexit(stop);
    is_set_up = true;
  }
  if (live.runs++ % RUNS_OF_A_CLUSTER == 0) stop();
  if (!live.is_running) td_test_cluster_start(&live.cluster, "worker 1 ps 1");
  live.is_running = true;
  if (!live.session) make_handles();
}

/* ---- one request ---- */

static const char placeholder[] = ";0000000000000001;"; /* an incarnation in a rendezvous key */

static void put_keys_right(char *bytes, size_t size) {
  char *end = bytes + size;
  for (char *at = bytes; (at = memmem(at, (size_t)(end - at), placeholder, 18)); at += 18)
    memcpy(at + 1, live.incarnation, 16);
}

static void put_handles_right(ProtobufCMessage *m, bool of_master) {
  for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
    const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
    char *at = (char *)m + f->offset;
    if (f->type == PROTOBUF_C_TYPE_STRING && f->label != PROTOBUF_C_LABEL_REPEATED) {
      char **text = (char **)at;
      if (*text && **text == 'x') continue;
      if (!strcmp(f->name, "session_handle")) *text = of_master ? live.session : live.worker_session;
      if (!strcmp(f->name, "graph_handle")) *text = live.graph;
      if (!strcmp(f->name, "rendezvous_key")) put_keys_right(*text, strlen(*text));
    } else if (f->type == PROTOBUF_C_TYPE_BOOL && !strcmp(f->name, "create_worker_session_called")) {
      *(protobuf_c_boolean *)at = true;
    } else if (f->type == PROTOBUF_C_TYPE_INT64 && !strcmp(f->name, "handle")) {
      *(int64_t *)at = live.callable;
    } else if (f->type == PROTOBUF_C_TYPE_INT64 && !strcmp(f->name, "request_id")) {
      *(int64_t *)at = 0; /* a repeated one ends the request at once */
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  prepare();
  size_t method = (data[0] & 31) % TD_COUNT(methods);
  td_channel *channel = live.cluster.channels[data[0] >> 5 & 1];
  td_str bytes = td_str_n(data + 1, size - 1);
  td_arena arena = {0};
  td_strbuf encoded = {0};
  if (!(data[0] & 64) && !methods[method].type) {
    td_strbuf_append(&encoded, bytes);
    if (encoded.size) put_keys_right(encoded.data, encoded.size);
    bytes = td_strbuf_view(&encoded);
  } else if (!(data[0] & 64)) {
    ProtobufCMessage *m;
    td_status s = td_message_decode(methods[method].type, bytes, &arena, &m);
    if (!s) {
      put_handles_right(m, method < 10);
      must(td_message_encode(m, &encoded));
      bytes = td_strbuf_view(&encoded);
    }
    td_status_free(s);
  }
  td_status s = td_test_call_bytes(channel, methods[method].path, bytes, DEADLINE_MS);
  if (getenv("TD_FUZZ_VERBOSE"))
    fprintf(stderr, "%s: %s %s\n", methods[method].path, td_code_name(td_status_code(s)), td_status_message(s));
  td_status_free(s);
  /* what these end is made anew */
  static const char *const ending[] = {"CloseSession",        "Reset",           "DeleteWorkerSession",
                                       "CreateWorkerSession", "DeregisterGraph", "ReleaseCallable",
                                       "CleanupAll"};
  for (size_t i = 0; i < TD_COUNT(ending); i++) {
    if (!strstr(methods[method].path, ending[i])) continue;
    Pb__CloseSessionRequest close = PB__CLOSE_SESSION_REQUEST__INIT;
    close.session_handle = live.session;
    td_status_free(td_test_call(live.cluster.channels[0], methods[4].path, &close.base, PATIENCE_MS, NULL, NULL, NULL));
    Pb__DeleteWorkerSessionRequest delete = PB__DELETE_WORKER_SESSION_REQUEST__INIT;
    delete.session_handle = live.worker_session;
    td_status_free(
        td_test_call(live.cluster.channels[0], methods[12].path, &delete.base, PATIENCE_MS, NULL, NULL, NULL));
    forget();
  }
  if (live.runs % 64 == 0) { /* does it still serve? */
    td_arena a = {0};
    Pb__GetStatusRequest request = PB__GET_STATUS_REQUEST__INIT;
    for (int i = 0; i < 2; i++)
      must(td_test_call(live.cluster.channels[i], methods[10].path, &request.base, PATIENCE_MS,
                        &pb__get_status_response__descriptor, &a, NULL));
    td_arena_deinit(&a);
  }
  td_strbuf_deinit(&encoded);
  td_arena_deinit(&arena);
  return 0;
}

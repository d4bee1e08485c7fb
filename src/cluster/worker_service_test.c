/* The worker service (TensorFlow's worker and grpc_worker_service) as a TensorFlow master calls it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/messages.h"
#include "cluster/testing.h"
#include "proto/wire.h"

static const char graph[] = TD_TEST_FEED("a", "a:0")
    TD_TEST_FEED("b", "b:0") "sum Add " TD_TEST_DEVICE
                             " a,b T: float\n"
                             "twice Add " TD_TEST_DEVICE " a,a T: float\n" TD_TEST_FETCH("sum", "sum:0")
                                 TD_TEST_FETCH("twice", "twice:0");

TD_TEST_CLUSTER("worker 1");

#define KEY(tensor) TD_TEST_DEVICE ";0000000000000001;" TD_TEST_DEVICE ";" tensor ";0:0"

/* A session and a graph, registered over the wire. */
typedef struct master {
  td_arena arena;
  char *session, *graph;

} master;

static td_status call(const char *method, const ProtobufCMessage *request, td_arena *a,
                      const ProtobufCMessageDescriptor *type, void *reply) {
  char path[64];
  snprintf(path, sizeof path, "/tensorflow.WorkerService/%s", method);
  return td_test_call(cluster.channels[0], path, request, TD_TEST_PATIENCE_MS, type, a, reply);
}

static master connect_master(const char *session) {
  master m = {.session = (char *)session};
  Pb__CreateWorkerSessionRequest create = PB__CREATE_WORKER_SESSION_REQUEST__INIT;
  Pb__RegisterGraphRequest reg = PB__REGISTER_GRAPH_REQUEST__INIT;
  Pb__RegisterGraphResponse *registered;
  create.session_handle = m.session;
  must(call("CreateWorkerSession", &create.base, &m.arena, NULL, NULL));
  reg.session_handle = m.session;
  reg.create_worker_session_called = true;
  reg.graph_def = td_test_graph(&m.arena, graph);
  must(call("RegisterGraph", &reg.base, &m.arena, &pb__register_graph_response__descriptor, &registered));
  m.graph = registered->graph_handle;
  return m;
}

static void leave(master *m, int64_t step) {
  Pb__CleanupGraphRequest cleanup = PB__CLEANUP_GRAPH_REQUEST__INIT;
  Pb__DeleteWorkerSessionRequest delete = PB__DELETE_WORKER_SESSION_REQUEST__INIT;
  cleanup.step_id = step;
  must(call("CleanupGraph", &cleanup.base, &m->arena, NULL, NULL));
  delete.session_handle = m->session;
  must(call("DeleteWorkerSession", &delete.base, &m->arena, NULL, NULL));
  assert_int_equal(td_test_step_count(&cluster, 0), 0);
  td_arena_deinit(&m->arena);
}

/* Feeds 2 as `feed` (NULL: nothing), gives what `fetch` is (NULL: nothing). */
static td_status run_graph(master *m, Pb__RunGraphRequest *r, const char *feed, const char *fetch, float *out) {
  Pb__TensorProto tensor = PB__TENSOR_PROTO__INIT;
  Pb__NamedTensorProto named = PB__NAMED_TENSOR_PROTO__INIT, *sends[] = {&named};
  char *keys[] = {(char *)fetch};
  float two = 2;
  Pb__RunGraphResponse *reply;
  if (!r->session_handle[0]) r->session_handle = m->session;
  if (!r->graph_handle[0]) r->graph_handle = m->graph;
  r->create_worker_session_called = true;
  r->store_errors_in_response_body = true;
  tensor.dtype = TD_FLOAT;
  tensor.n_float_val = 1;
  tensor.float_val = &two;
  named.name = (char *)feed;
  named.tensor = &tensor;
  r->send = sends;
  r->n_send = feed != NULL;
  r->recv_key = keys;
  r->n_recv_key = fetch != NULL;
  TD_TRY(call("RunGraph", &r->base, &m->arena, &pb__run_graph_response__descriptor, &reply));
  if (reply->status_code)
    return td_error_bytes((td_code)reply->status_code, (const char *)reply->status_error_message.data,
                          reply->status_error_message.len);
  assert_int_equal(reply->n_recv, fetch != NULL);
  if (fetch) memcpy(out, reply->recv[0]->tensor->tensor_content.data, sizeof *out);
  return TD_STATUS_OK;
}

static void test_partial_calls_on_the_wire(void **state) {
  master m = connect_master("partial");
  Pb__RunGraphRequest r = PB__RUN_GRAPH_REQUEST__INIT;
  float twice, sum;
  r.step_id = 1;
  r.is_partial = true;
  must(run_graph(&m, &r, KEY("a:0"), KEY("twice:0"), &twice));
  assert_true(twice == 4);
  r.is_last_partial_run = true;
  must(run_graph(&m, &r, KEY("b:0"), KEY("sum:0"), &sum));
  assert_true(sum == 4);
  leave(&m, 1);
}

/* A tensord master says in its next RunGraph which steps have ended. */
static void test_ended_steps_come_with_the_next(void **state) {
  master m = connect_master("ended");
  Pb__RunGraphRequest r = PB__RUN_GRAPH_REQUEST__INIT;
  float twice;
  r.is_partial = true;
  for (r.step_id = 5; r.step_id <= 6; r.step_id++) must(run_graph(&m, &r, KEY("a:0"), KEY("twice:0"), &twice));
  assert_int_equal(td_test_step_count(&cluster, 0), 2);
  td_strbuf b = {0}, ids = {0};
  td_wire_put_varint(&ids, 5);
  td_wire_put_varint(&ids, 6);
  td_wire_put_varint(&ids, 1000);
  td_wire_put_bytes(&b, TD_RUN_GRAPH_ENDED_STEPS, td_strbuf_view(&ids));
  td_wire_put_bytes(&b, 8, TD_STR("nowhere")); /* heard even if the step itself cannot be run */
  td_wire_put_uint(&b, 10, true);
  must_fail(td_test_call_bytes(cluster.channels[0], "/tensorflow.WorkerService/RunGraph", td_strbuf_view(&b), 9000),
            TD_ABORTED, "Session handle is not found: nowhere.");
  assert_int_equal(td_test_step_count(&cluster, 0), 0);
  ids.data[ids.size - 1] = (char)0x80; /* cut off */
  b.size = 0;
  td_wire_put_bytes(&b, TD_RUN_GRAPH_ENDED_STEPS, td_strbuf_view(&ids));
  must_fail(td_test_call_bytes(cluster.channels[0], "/tensorflow.WorkerService/RunGraph", td_strbuf_view(&b), 9000),
            TD_INVALID_ARGUMENT, "malformed ids of ended steps");
  td_strbuf_deinit(&b);
  td_strbuf_deinit(&ids);
  leave(&m, 7);
}

static void test_a_session_that_ends_ends_partial_runs(void **state) {
  master m = connect_master("abandoned");
  Pb__RunGraphRequest r = PB__RUN_GRAPH_REQUEST__INIT;
  r.step_id = 2;
  r.is_partial = true;
  must(run_graph(&m, &r, KEY("a:0"), NULL, NULL));
  assert_int_equal(td_test_step_count(&cluster, 0), 1);
  leave(&m, 99); /* cleans up another step only */
}

static void test_requests_that_come_twice(void **state) {
  master m = connect_master("twice");
  Pb__RunGraphRequest r = PB__RUN_GRAPH_REQUEST__INIT;
  r.step_id = 3;
  r.is_partial = true;
  r.request_id = 17;
  must(run_graph(&m, &r, KEY("a:0"), NULL, NULL));
  must_fail(run_graph(&m, &r, KEY("a:0"), NULL, NULL), TD_ABORTED,
            "The same PartialRunGraph (Worker) request was received twice.");
  Pb__RecvTensorRequest recv = PB__RECV_TENSOR_REQUEST__INIT;
  recv.step_id = 3;
  recv.rendezvous_key = "nonsense";
  recv.request_id = 18;
  must_fail(call("RecvTensor", &recv.base, &m.arena, NULL, NULL), TD_INVALID_ARGUMENT, "Invalid  rendezvous key");
  must_fail(call("RecvTensor", &recv.base, &m.arena, NULL, NULL), TD_ABORTED,
            "The same RecvTensor (GrpcWorker) request was received twice.");
  leave(&m, 3);
}

static void test_what_is_not_there(void **state) {
  master m = connect_master("there");
  Pb__RunGraphRequest r = PB__RUN_GRAPH_REQUEST__INIT;
  r.step_id = 4;
  r.session_handle = "nowhere";
  must_fail(run_graph(&m, &r, NULL, NULL, NULL), TD_ABORTED, "Session handle is not found: nowhere.");
  r.session_handle = "there";
  r.graph_handle = "none";
  must_fail(run_graph(&m, &r, NULL, NULL, NULL), TD_ABORTED, "Graph handle is not found: none");
  r.graph_handle = m.graph;
  must_fail(run_graph(&m, &r, "nonsense", NULL, NULL), TD_INVALID_ARGUMENT, "Invalid  rendezvous key");
  leave(&m, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_partial_calls_on_the_wire),
      cmocka_unit_test(test_ended_steps_come_with_the_next),
      cmocka_unit_test(test_a_session_that_ends_ends_partial_runs),
      cmocka_unit_test(test_requests_that_come_twice),
      cmocka_unit_test(test_what_is_not_there),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

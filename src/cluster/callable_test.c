/* Callables over two tasks: made once, run by handle; tensors connected to others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/testing.h"
#include "tensor/dtype.h"

#define W0 "/job:worker/task:0"
#define W1 "/job:worker/task:1"

static const char graph[] = "x Placeholder " W0
                            " - dtype: float; shape: unknown\n"
                            "four Const " W1
                            " - dtype: float; value: float [] 4\n"
                            "z Square " W1
                            " x T: float\n"
                            "sum Add " W0 " z,four T: float";

TD_TEST_CLUSTER("worker 2");

/* A session and what is asked of it. */
typedef struct caller {
  td_arena arena;
  char *session;
} caller;

static caller open_session(void) {
  caller c = {0};
  must(td_test_create_session(&cluster, 0, graph, NULL, &c.arena, &c.session));
  return c;
}

static void close_session(caller *c) {
  must(td_test_close_session(&cluster, 0, c->session));
  td_arena_deinit(&c->arena);
}

static td_status make(caller *c, Pb__CallableOptions *options, int64_t *out_handle) {
  Pb__MakeCallableRequest request = PB__MAKE_CALLABLE_REQUEST__INIT;
  Pb__MakeCallableResponse *reply;
  request.session_handle = c->session;
  request.options = options;
  TD_TRY(td_test_call(cluster.channels[0], "/tensorflow.MasterService/MakeCallable", &request.base, TD_TEST_PATIENCE_MS,
                      &pb__make_callable_response__descriptor, &c->arena, (ProtobufCMessage **)&reply));
  *out_handle = reply->handle;
  return TD_STATUS_OK;
}

/* With one feed, or without (NULL); the callables here fetch one float. */
static td_status run(caller *c, int64_t handle, const float *feed, float *out) {
  Pb__RunCallableRequest request = PB__RUN_CALLABLE_REQUEST__INIT;
  Pb__RunCallableResponse *reply;
  Pb__TensorProto proto = PB__TENSOR_PROTO__INIT, *one = &proto;
  request.session_handle = c->session;
  request.handle = handle;
  proto.dtype = TD_FLOAT;
  proto.n_float_val = 1;
  proto.float_val = (float *)feed;
  request.feed = &one;
  request.n_feed = feed != NULL;
  TD_TRY(td_test_call(cluster.channels[0], "/tensorflow.MasterService/RunCallable", &request.base, TD_TEST_PATIENCE_MS,
                      &pb__run_callable_response__descriptor, &c->arena, (ProtobufCMessage **)&reply));
  assert_int_equal(reply->n_fetch, 1);
  memcpy(out, reply->fetch[0]->tensor_content.data, sizeof *out);
  return TD_STATUS_OK;
}

static void release(caller *c, int64_t handle) {
  Pb__ReleaseCallableRequest request = PB__RELEASE_CALLABLE_REQUEST__INIT;
  request.session_handle = c->session;
  request.handle = handle;
  must(td_test_call(cluster.channels[0], "/tensorflow.MasterService/ReleaseCallable", &request.base,
                    TD_TEST_PATIENCE_MS, NULL, NULL, NULL));
}

static void test_made_run_and_released(void **state) {
  caller c = open_session();
  char *feeds[] = {"x:0"}, *fetches[] = {"z:0"};
  Pb__CallableOptions options = PB__CALLABLE_OPTIONS__INIT;
  int64_t handle;
  float three = 3, result;
  options.n_feed = options.n_fetch = 1;
  options.feed = feeds;
  options.fetch = fetches;
  must(make(&c, &options, &handle));
  must_fail(run(&c, handle, NULL, &result), TD_INVALID_ARGUMENT, "takes 1 feeds");
  must(run(&c, handle, &three, &result));
  assert_true(result == 9);
  release(&c, handle);
  release(&c, 77); /* unknown is fine */
  must_fail(run(&c, handle, &three, &result), TD_INVALID_ARGUMENT,
            "Attempted to run callable after handle was released");
  must_fail(run(&c, 77, &three, &result), TD_INVALID_ARGUMENT, "No such callable handle: 77");
  close_session(&c);
}

static void test_tensor_connections(void **state) {
  caller c = open_session();
  char *fetches[] = {"sum:0"}, *others[] = {"x:0"};
  Pb__CallableOptions options = PB__CALLABLE_OPTIONS__INIT;
  Pb__TensorConnection connection = PB__TENSOR_CONNECTION__INIT, *one = &connection;
  int64_t handle, plain;
  float three = 3, result;
  options.n_fetch = 1;
  options.fetch = fetches;
  options.n_tensor_connection = 1;
  options.tensor_connection = &one;
  connection.from_tensor = "four"; /* as a name without its output */
  connection.to_tensor = "x:0";
  must(make(&c, &options, &handle));
  options.n_tensor_connection = 0;
  options.n_feed = 1;
  options.feed = others;
  must(make(&c, &options, &plain)); /* the same fetch, another graph */
  must(run(&c, handle, NULL, &result));
  assert_true(result == 4 * 4 + 4);
  must(run(&c, plain, &three, &result));
  assert_true(result == 3 * 3 + 4);
  options.n_tensor_connection = 1;
  must_fail(make(&c, &options, &handle), TD_INVALID_ARGUMENT, "Endpoint \"x:0\" fed more than once.");
  options.n_feed = 0;
  connection.from_tensor = "sum:0";
  must_fail(make(&c, &options, &handle), TD_INVALID_ARGUMENT, "would create a cycle.");
  close_session(&c);
}

static void test_what_is_refused(void **state) {
  caller c = open_session();
  char *fetches[] = {"z:0"};
  Pb__CallableOptions options = PB__CALLABLE_OPTIONS__INIT;
  int64_t handle;
  must_fail(make(&c, &options, &handle), TD_INVALID_ARGUMENT, "Must specify at least one target to fetch or execute.");
  must_fail(make(&c, NULL, &handle), TD_INVALID_ARGUMENT, "");
  Pb__StringEntry entry = PB__STRING_ENTRY__INIT, *device = &entry;
  options.n_fetch = 1;
  options.fetch = fetches;
  entry.key = "z:0";
  entry.value = "/job:worker/replica:0/task:0/device:CPU:0";
  options.n_fetch_devices = 1;
  options.fetch_devices = &device;
  must_fail(make(&c, &options, &handle), TD_UNIMPLEMENTED, "CallableOptions::feed_devices");
  close_session(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_made_run_and_released),
      cmocka_unit_test(test_tensor_connections),
      cmocka_unit_test(test_what_is_refused),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

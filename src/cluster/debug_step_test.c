/* Watched steps over two tasks, with a listener of the test's own that may be deaf, mute or away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/testing.h"
#include "ops/testing.h"
#include "proto/wire.h"
#include "rpc/testing.h"

#define PS "/job:ps/task:0"
#define W0 "/job:worker/task:0"

/* doubled on ps, root here; bad fails on ps after doubled. */
static const char graph[] = "a Const " PS
                            " - dtype: float; value: float [2] 1 2\n"
                            "doubled Add " PS
                            " a,a T: float\n"
                            "root Neg " W0
                            " doubled T: float\n"
                            "seven Const " PS
                            " - dtype: int32; value: int32 [1] 7\n"
                            "bad Reshape " PS " doubled,seven T: float; Tshape: int32";

static td_test_cluster cluster;
static char address[64], url[80];

/* ---- the listener ---- */

typedef struct listener {
  td_stream_server *server; /* NULL: away */
  bool is_mute;             /* about graphs: it hears them and does not reply */
  bool is_endless;
  pthread_mutex_t lock;
  int metadata, graphs, doubled, roots; /* guarded by lock: events that came */
} listener;
static listener ears;

static bool holds(td_str s, const char *text) { return memmem(s.data, s.size, text, strlen(text)) != NULL; }

static bool heard(void *arg, td_server_stream *s, td_str message) {
  td_wire w = td_wire_of(message);
  td_wire_field f;
  bool bad = false;
  pthread_mutex_lock(&ears.lock);
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == 6) ears.metadata++;
    if (f.number == 4) ears.graphs++;
    if (f.number == 5 && holds(f.bytes, "doubled:0:DebugIdentity")) ears.doubled++;
    if (f.number == 5 && holds(f.bytes, "root:0:DebugIdentity")) ears.roots++;
    if (f.number == 6 || (f.number == 4 && !ears.is_mute)) td_server_stream_reply(s, TD_STR(""));
  }
  pthread_mutex_unlock(&ears.lock);
  return !bad;
}

static bool ended(void *arg, td_server_stream *s) { return !ears.is_endless; }

static void listen_now(void) {
  ears.server =
      td_stream_server_start(&(td_stream_server_options){.address = address, .message = heard, .ended = ended});
}

static void assert_heard(int metadata, int graphs, int doubled, int roots) {
  pthread_mutex_lock(&ears.lock);
  assert_int_equal(ears.metadata, metadata);
  assert_int_equal(ears.graphs, graphs);
  assert_int_equal(ears.doubled, doubled);
  assert_int_equal(ears.roots, roots);
  pthread_mutex_unlock(&ears.lock);
}

/* ---- steps ---- */

/* Watches of doubled and root. */
typedef struct watches {
  Pb__DebugOptions options;
  Pb__DebugTensorWatch watch[2], *list[2];
  char *ops[1], *urls[1];
} watches;

static const Pb__DebugOptions *watch_both(watches *w) {
  static const char *const nodes[] = {"doubled", "root"};
  pb__debug_options__init(&w->options);
  w->ops[0] = "DebugIdentity";
  w->urls[0] = url;
  for (int i = 0; i < 2; i++) {
    w->list[i] = &w->watch[i];
    pb__debug_tensor_watch__init(&w->watch[i]);
    w->watch[i].node_name = (char *)nodes[i];
    w->watch[i].debug_ops = w->ops;
    w->watch[i].debug_urls = w->urls;
    w->watch[i].n_debug_ops = w->watch[i].n_debug_urls = 1;
  }
  w->options.debug_tensor_watch_opts = w->list;
  w->options.n_debug_tensor_watch_opts = 2;
  return &w->options;
}

static td_status run(const char *session, const char *fetch, bool is_watched, uint64_t timeout_ms) {
  watches w;
  td_tensor *out[1] = {NULL};
  td_test_step step = {.handle = session, .fetches = fetch, .targets = "-", .timeout_ms = timeout_ms};
  if (is_watched) step.watches = watch_both(&w);
  td_status s = td_test_run_step(&cluster, 1, &step, out);
  if (!s) td_assert_tensor(out[0], TD_FLOAT, "[2]", "-2 -4", 0);
  td_tensor_release(out[0]);
  return s;
}

static char *session(td_arena *a) {
  char *s;
  must(td_test_create_session(&cluster, 1, graph, NULL, a, &s));
  return s;
}

/* No step and no stream stays, and the session is as good as before. */
static void assert_clean(const char *s) {
  must(run(s, "root", false, TD_TEST_PATIENCE_MS));
  must(td_test_close_session(&cluster, 1, s));
  for (int i = 0; i < 2; i++)
    while (td_test_step_count(&cluster, i)) usleep(1000);
  while (ears.server && td_stream_server_open(ears.server)) usleep(1000);
}

/* ---- tests ---- */

static void test_watched_and_unwatched(void **state) {
  td_arena a = {0};
  char *s = session(&a);
  listen_now();
  must(run(s, "root", false, TD_TEST_PATIENCE_MS));
  assert_heard(0, 0, 0, 0);
  must(run(s, "root", true, TD_TEST_PATIENCE_MS));
  assert_heard(1, 2, 1, 1);
  must(run(s, "root", true, TD_TEST_PATIENCE_MS)); /* of the same plan: its graphs are known */
  assert_heard(2, 2, 2, 2);
  must(run(s, "root", false, TD_TEST_PATIENCE_MS));
  assert_heard(2, 2, 2, 2);
  assert_clean(s);
  td_arena_deinit(&a);
}

/* What was seen before an error gets to the listener. */
static void test_error(void **state) {
  td_arena a = {0};
  char *s = session(&a);
  listen_now();
  must_fail(run(s, "bad", true, TD_TEST_PATIENCE_MS), TD_INVALID_ARGUMENT, "{{node bad}}");
  for (bool came = false; !came; usleep(1000)) {
    pthread_mutex_lock(&ears.lock);
    came = ears.doubled == 1;
    pthread_mutex_unlock(&ears.lock);
  }
  assert_clean(s);
  td_arena_deinit(&a);
}

static void test_nobody_there(void **state) {
  td_arena a = {0};
  char *s = session(&a);
  for (int i = 0; i < 2; i++) must_fail(run(s, "root", true, 100), TD_DEADLINE_EXCEEDED, "");
  assert_clean(s);
  td_arena_deinit(&a);
}

/* It takes the metadata and leaves those waiting who register graphs, here and on ps. */
static void test_mute(void **state) {
  td_arena a = {0};
  char *s = session(&a);
  ears.is_mute = true;
  listen_now();
  must_fail(run(s, "root", true, 100), TD_DEADLINE_EXCEEDED, "");
  assert_clean(s);
  td_arena_deinit(&a);
}

static void test_endless(void **state) {
  td_arena a = {0};
  char *s = session(&a);
  ears.is_endless = true;
  listen_now();
  must_fail(run(s, "root", true, 300), TD_DEADLINE_EXCEEDED, "");
  assert_clean(s);
  td_arena_deinit(&a);
}

/* Values that nobody takes hold the step until it is given up. */
static void test_deaf(void **state) {
  td_arena a = {0};
  char *s = session(&a);
  ears.server = td_stream_server_start(&(td_stream_server_options){.address = address, .is_deaf = true});
  must_fail(run(s, "root", true, 100), TD_DEADLINE_EXCEEDED, "");
  assert_clean(s);
  td_arena_deinit(&a);
}

typedef struct runner {
  const char *session;
  td_status status;
} runner;

static void *run_watched(void *arg) {
  runner *r = arg;
  r->status = run(r->session, "root", true, TD_TEST_PATIENCE_MS);
  return NULL;
}

static void test_close_ends_the_wait(void **state) {
  td_arena a = {0};
  runner r = {.session = session(&a)};
  pthread_t thread;
  ears.is_mute = true;
  listen_now();
  pthread_create(&thread, NULL, run_watched, &r);
  for (bool waits = false; !waits; usleep(1000)) {
    pthread_mutex_lock(&ears.lock);
    waits = ears.graphs > 0;
    pthread_mutex_unlock(&ears.lock);
  }
  must(td_test_close_session(&cluster, 1, r.session));
  pthread_join(thread, NULL);
  must_fail(r.status, TD_CANCELLED, "Session::Close()");
  while (td_stream_server_open(ears.server)) usleep(1000);
  td_arena_deinit(&a);
}

/* A callable's watches: no metadata, but graphs and values. */
static void test_callable(void **state) {
  td_arena a = {0};
  watches w;
  char *fetch[] = {"root"};
  char *s = session(&a);
  listen_now();
  Pb__MakeCallableRequest make = PB__MAKE_CALLABLE_REQUEST__INIT;
  Pb__CallableOptions options = PB__CALLABLE_OPTIONS__INIT;
  Pb__RunOptions run_options = PB__RUN_OPTIONS__INIT;
  Pb__MakeCallableResponse *made;
  run_options.debug_options = (Pb__DebugOptions *)watch_both(&w);
  options.run_options = &run_options;
  options.fetch = fetch;
  options.n_fetch = 1;
  make.session_handle = s;
  make.options = &options;
  must(td_test_call(cluster.channels[1], "/tensorflow.MasterService/MakeCallable", &make.base, TD_TEST_PATIENCE_MS,
                    &pb__make_callable_response__descriptor, &a, (ProtobufCMessage **)&made));
  assert_heard(0, 2, 0, 0);
  Pb__RunCallableRequest call = PB__RUN_CALLABLE_REQUEST__INIT;
  call.session_handle = s;
  call.handle = made->handle;
  must(td_test_call(cluster.channels[1], "/tensorflow.MasterService/RunCallable", &call.base, TD_TEST_PATIENCE_MS, NULL,
                    NULL, NULL));
  assert_heard(0, 2, 1, 1);
  assert_clean(s);
  td_arena_deinit(&a);
}

/* ---- */

static int setup(void **state) {
  ears = (listener){0};
  pthread_mutex_init(&ears.lock, NULL);
  snprintf(address, sizeof address, "127.0.0.1:%d", td_stream_server_free_port());
  snprintf(url, sizeof url, "grpc://%s", address);
  td_test_cluster_start(&cluster, "ps 1 worker 1");
  return 0;
}

static int teardown(void **state) {
  td_test_cluster_stop(&cluster);
  if (ears.server) td_stream_server_stop(ears.server);
  pthread_mutex_destroy(&ears.lock);
  return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_watched_and_unwatched),
      TEST(test_error),
      TEST(test_nobody_there),
      TEST(test_mute),
      TEST(test_endless),
      TEST(test_deaf),
      TEST(test_close_ends_the_wait),
      TEST(test_callable),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

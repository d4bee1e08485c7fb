/* Files and listeners as a run sees them; the listener is a server of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/testing.h"
#include "debug/debugger.h"
#include "proto/wire.h"
#include "rpc/testing.h"

#define DEVICE "/job:a/replica:0/task:0/device:CPU:0"
#define FOLDER "_tfdbg_device_,job_a,replica_0,task_0,device_CPU_0"

static td_loop *loop;
static td_pool *pool;
static td_debugger *debugger;
static char root[64], file_url[80], grpc_url[80], address[64];
static const td_debug_key KEY = {.device = TD_STR(DEVICE),
                                 .node = TD_STR("scope/n"),
                                 .op = TD_STR("DebugIdentity"),
                                 .slot = 1,
                                 .watch = TD_STR("scope/n:1:DebugIdentity")};

/* ---- the listener ---- */

typedef struct listener {
  pthread_mutex_t lock;
  td_strbuf seen; /* guarded by lock: "M;" metadata, "G;" a graph's chunk, "T<count>/<index>;" a value's, "E;" an end */
  const char *change; /* an encoded EventReply for metadata; NULL: an empty one */
  size_t change_size;
  bool replies_to_values, holds_end, refuses;
} listener;
static listener ears;
static td_stream_server *server;

static void saw(const char *what) {
  pthread_mutex_lock(&ears.lock);
  td_strbuf_puts(&ears.seen, what);
  pthread_mutex_unlock(&ears.lock);
}

static bool holds(td_str s, const char *text) { return memmem(s.data, s.size, text, strlen(text)) != NULL; }

static bool heard(void *arg, td_server_stream *s, td_str message) {
  td_wire w = td_wire_of(message);
  td_wire_field f;
  bool bad = false;
  if (ears.refuses) return false;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == 6) {
      saw(holds(f.bytes, "\"global_step\":7,\"session_run_index\":3") ? "M;" : "?;");
      if (holds(f.bytes, "\"grpc_path\":\"/some/path\"")) saw("P;");
      td_server_stream_reply(s, td_str_n(ears.change ? ears.change : "", ears.change_size));
    } else if (f.number == 4) {
      saw("G;");
      if (holds(td_str_n(f.bytes.data, TD_MIN(f.bytes.size, (size_t)200)), "|1|2|"))
        td_server_stream_reply(s, TD_STR(""));
    } else if (f.number == 5) {
      const char *at = memmem(f.bytes.data, f.bytes.size, "numChunks\":", 11);
      char text[64];
      int count, index;
      snprintf(text, sizeof text, "%.30s", at ? at : "");
      if (sscanf(text, "numChunks\":%d,\"chunkIndex\":%d", &count, &index) != 2) count = index = -1;
      snprintf(text, sizeof text, "T%d/%d;", count, index);
      saw(text);
      if (ears.replies_to_values) td_server_stream_reply(s, TD_STR(""));
    }
  }
  return !bad;
}

static bool ended(void *arg, td_server_stream *s) {
  saw("E;");
  return !ears.holds_end;
}

static void listen_now(void) {
  td_stream_server_options o = {.address = address, .message = heard, .ended = ended};
  server = td_stream_server_start(&o);
}

static void assert_seen(const char *expected) {
  pthread_mutex_lock(&ears.lock);
  assert_string_equal(td_strbuf_cstr(&ears.seen), expected);
  pthread_mutex_unlock(&ears.lock);
}

/* ---- the run ---- */

typedef struct outcome {
  td_debug_publication publication;
  td_debug_report report;
  sem_t done;
  td_status status;
} outcome;

static void published(td_debug_publication *p, td_status status) {
  outcome *o = TD_CONTAINER_OF(p, outcome, publication);
  o->status = status;
  sem_post(&o->done);
}

static void reported(td_debug_report *r, td_status status) {
  outcome *o = TD_CONTAINER_OF(r, outcome, report);
  o->status = status;
  sem_post(&o->done);
}

static void begin_publish(outcome *o, td_debug_run *r, td_tensor *t, const td_str *urls, size_t count, bool is_gated) {
  *o = (outcome){.publication = {&KEY, t, urls, count, is_gated, published}};
  sem_init(&o->done, 0, 0);
  td_debug_sink *s = td_debug_run_sink(r);
  s->ops->publish(s, &o->publication);
}

static void begin_report(outcome *o, td_debug_run *r, const td_str *url, const td_debug_metadata *m, td_str graph) {
  *o = (outcome){.report = {url, 1, m, TD_STR(DEVICE), graph, reported}};
  sem_init(&o->done, 0, 0);
  td_debug_run_report(r, &o->report);
}

static td_status await(outcome *o) {
  sem_wait(&o->done);
  sem_destroy(&o->done);
  return o->status;
}

static td_status publish(td_debug_run *r, td_tensor *t, const char *url, bool is_gated) {
  outcome o;
  td_str u = td_str_of(url);
  begin_publish(&o, r, t, &u, 1, is_gated);
  return await(&o);
}

static td_status report(td_debug_run *r, const char *url, const td_debug_metadata *m, td_str graph) {
  outcome o;
  td_str u = td_str_of(url);
  begin_report(&o, r, &u, m, graph);
  return await(&o);
}

static void was_closed(void *arg) { sem_post(arg); }

static void close_run(td_debug_run *r) {
  sem_t done;
  sem_init(&done, 0, 0);
  td_debug_run_close(r, was_closed, &done);
  sem_wait(&done);
  sem_destroy(&done);
  td_debug_run_release(r);
}

static td_tensor *floats(int64_t n) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_FLOAT, 1, &n, &t));
  for (int64_t i = 0; i < n; i++) TD_DATA(t, float)[i] = (float)i;
  return t;
}

static td_tensor *text(const char *value) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_STRING, 0, NULL, &t));
  assert_null(td_string_set(TD_DATA(t, td_string), td_str_of(value)));
  return t;
}

static const td_debug_metadata METADATA = {.global_step = 7, .run_index = 3, .outputs = &KEY.node, .output_count = 1};

/* ---- files ---- */

/* The names in a folder that start with `prefix`; the last one's size. */
static int count_files(const char *folder, const char *prefix, size_t *size) {
  char path[512];
  int n = 0;
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    struct stat st;
    if (strncmp(e->d_name, prefix, strlen(prefix))) continue;
    n++;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    assert_int_equal(stat(path, &st), 0);
    if (size) *size = (size_t)st.st_size;
  }
  if (d) closedir(d);
  return n;
}

static void test_files(void **state) {
  td_debug_run *r = td_debug_run_create(debugger);
  td_tensor *t = floats(1000), *s = text("abc");
  char folder[256];
  size_t size;
  for (int i = 0; i < 5; i++) assert_null(publish(r, t, file_url, false));
  snprintf(folder, sizeof folder, "%s/" FOLDER "/scope", root);
  assert_int_equal(count_files(folder, "n_1_DebugIdentity_", &size), 5); /* also within one microsecond */
  assert_in_range(size, 4000, 4400);
  assert_null(publish(r, s, file_url, false));
  assert_null(report(r, file_url, &METADATA, (td_str){0}));
  assert_int_equal(count_files(root, "_tfdbg_core_metadata_sessionrun00000000000003_", &size), 1);
  assert_in_range(size, 100, 400);
  assert_null(report(r, file_url, NULL, TD_STR("a graph")));
  snprintf(folder, sizeof folder, "%s/" FOLDER, root);
  assert_int_equal(count_files(folder, "_tfdbg_graph_hash", &size), 1);
  td_tensor_release(t);
  td_tensor_release(s);
  close_run(r);
}

static void test_file_errors(void **state) {
  td_debug_run *r = td_debug_run_create(debugger);
  td_tensor *t = floats(4);
  char url[160];
  snprintf(url, sizeof url, "%s/in_the_way", file_url);
  FILE *f = fopen(url + 7, "w");
  fclose(f);
  must_fail(publish(r, t, url, false), TD_INTERNAL,
            "Publishing to 1 of 1 debug target URLs failed, due to the following errors: Failed to create directory");
  must_fail(publish(r, t, "memcbk://x", false), TD_FAILED_PRECONDITION, "No callback registered for: memcbk://x");
  must_fail(publish(r, t, "http://x", false), TD_UNAVAILABLE, "Invalid debug target URL: http://x");
  outcome o;
  td_str urls[] = {td_str_of(url), td_str_of(file_url)}; /* one of two */
  begin_publish(&o, r, t, urls, 2, false);
  must_fail(await(&o), TD_INTERNAL, "Publishing to 1 of 2 debug target URLs failed");
  td_str with_nul = TD_STR("grpc://h\0:1");
  begin_publish(&o, r, t, &with_nul, 1, false);
  must_fail(await(&o), TD_UNAVAILABLE, "Invalid debug target URL");
  td_tensor_release(t);
  close_run(r);
}

static void test_disk_limit(void **state) {
  td_debugger_options o = {
      .loops = &loop, .loop_count = 1, .pool = pool, .disk_bytes_limit = 10000, .connect_ns = 1000000};
  td_debugger *d = td_debugger_create(&o);
  td_debug_run *r = td_debug_run_create(d);
  td_tensor *t = floats(1000), *empty = floats(0);
  assert_null(publish(r, t, file_url, false));
  assert_null(publish(r, t, file_url, false));
  must_fail(
      publish(r, t, file_url, false), TD_RESOURCE_EXHAUSTED,
      "TensorFlow Debugger has exhausted file-system byte-size allowance (10000), therefore it cannot dump an "
      "additional 4000 byte(s) of tensor data for the debug tensor scope/n:1. You may use the environment variable "
      "TFDBG_DISK_BYTES_LIMIT to set a higher limit.");
  assert_null(publish(r, empty, file_url, false));
  td_debugger_reset_disk_bytes(d);
  assert_null(publish(r, t, file_url, false));
  td_tensor_release(t);
  td_tensor_release(empty);
  close_run(r);
  td_debugger_destroy(d);
}

/* ---- listeners ---- */

static void test_listener(void **state) {
  listen_now();
  td_debug_run *r = td_debug_run_create(debugger);
  td_tensor *small = floats(3), *large = floats(3 * 1000 * 1000), *s = text("abc");
  char url[160];
  snprintf(url, sizeof url, "%s/some/path", grpc_url);
  char *graph = td_calloc(1, 5000000);
  assert_null(report(r, url, &METADATA, (td_str){0}));
  assert_null(report(r, url, NULL, td_str_n(graph, 5000000)));
  assert_null(publish(r, small, url, false));
  assert_null(publish(r, large, url, false));
  assert_null(publish(r, s, url, false));
  close_run(r);
  assert_seen("M;P;G;G;T1/0;T3/0;T3/1;T3/2;T1/0;E;");
  assert_int_equal(td_stream_server_opened(server), 1);
  td_free(graph);
  td_tensor_release(small);
  td_tensor_release(large);
  td_tensor_release(s);
}

/* EventReply{debug_op_state_changes{state, node_name "scope/n", output_slot 1, debug_op "DebugIdentity"}} */
#define CHANGE(state)               \
  "\x0a\x1c\x08" state              \
  "\x12\x07scope/n\x18\x01\x22\x0d" \
  "DebugIdentity"

static void run_gated(const char *change, size_t size, const char *expected) {
  td_debug_run *r = td_debug_run_create(debugger);
  td_debug_sink *s = td_debug_run_sink(r);
  td_tensor *t = floats(3);
  ears.change = change;
  ears.change_size = size;
  ears.seen.size = 0;
  assert_null(report(r, grpc_url, &METADATA, (td_str){0}));
  bool open = strchr(expected, 'T');
  assert_int_equal(s->ops->is_open(s, td_str_of(grpc_url), KEY.watch), open);
  assert_false(s->ops->is_open(s, td_str_of(grpc_url), TD_STR("scope/n:0:DebugIdentity")));
  assert_true(s->ops->is_open(s, td_str_of(file_url), TD_STR("scope/n:0:DebugIdentity")));
  assert_null(publish(r, t, grpc_url, true));
  close_run(r);
  assert_seen(expected);
  td_tensor_release(t);
}

static void test_gates(void **state) {
  listen_now();
  run_gated(NULL, 0, "M;E;");
  run_gated(CHANGE("\2"), sizeof CHANGE("\2") - 1, "M;T1/0;E;"); /* READ_ONLY */
  run_gated(NULL, 0, "M;T1/0;E;");                               /* it lasts */
  run_gated(CHANGE("\1"), sizeof CHANGE("\1") - 1, "M;E;");      /* DISABLED */
  ears.replies_to_values = true;
  run_gated(CHANGE("\3"), sizeof CHANGE("\3") - 1, "M;T1/0;E;"); /* READ_WRITE: the value's reply is awaited */
  run_gated(CHANGE("\1"), sizeof CHANGE("\1") - 1, "M;E;");
}

/* A breakpoint holds the value's node until the listener answers, or the run is cancelled. */
static void test_breakpoint(void **state) {
  listen_now();
  td_debug_run *r = td_debug_run_create(debugger);
  td_tensor *t = floats(3);
  ears.change = CHANGE("\3");
  ears.change_size = sizeof CHANGE("\3") - 1;
  assert_null(report(r, grpc_url, &METADATA, (td_str){0}));
  outcome o;
  td_str url = td_str_of(grpc_url);
  begin_publish(&o, r, t, &url, 1, true);
  for (bool arrived = false; !arrived; usleep(1000)) {
    pthread_mutex_lock(&ears.lock);
    arrived = strchr(td_strbuf_cstr(&ears.seen), 'T');
    pthread_mutex_unlock(&ears.lock);
  }
  assert_int_not_equal(sem_trywait(&o.done), 0);
  td_debug_run_cancel(r, 0);
  must_fail(await(&o), TD_INTERNAL, "Write event to stream URL");
  must_fail(publish(r, t, grpc_url, false), TD_INTERNAL, "Write event to stream URL");
  close_run(r);
  ears.change = CHANGE("\1"); /* gates are the task's: the next test begins with closed ones */
  r = td_debug_run_create(debugger);
  assert_null(report(r, grpc_url, &METADATA, (td_str){0}));
  close_run(r);
  td_tensor_release(t);
}

static void test_refusing_listener(void **state) {
  listen_now();
  ears.refuses = true;
  td_debug_run *r = td_debug_run_create(debugger);
  td_tensor *t = floats(3);
  must_fail(report(r, grpc_url, &METADATA, (td_str){0}), TD_CANCELLED, "Write event to stream URL grpc://127.0.0.1:");
  must_fail(publish(r, t, grpc_url, false), TD_INTERNAL, "Write event to stream URL");
  close_run(r);
  td_tensor_release(t);
}

static void test_malformed_reply(void **state) {
  listen_now();
  ears.change = "\x0a\x7f";
  ears.change_size = 2;
  td_debug_run *r = td_debug_run_create(debugger);
  must_fail(report(r, grpc_url, &METADATA, (td_str){0}), TD_CANCELLED, "Write event to stream URL");
  close_run(r);
}

static void test_nobody_there(void **state) {
  td_debugger_options o = {.loops = &loop, .loop_count = 1, .pool = pool, .connect_ns = 50 * 1000000};
  td_debugger *d = td_debugger_create(&o);
  td_debug_run *r = td_debug_run_create(d);
  must_fail(report(r, grpc_url, &METADATA, (td_str){0}), TD_FAILED_PRECONDITION,
            "Failed to connect to gRPC channel at");
  close_run(r);
  td_debugger_destroy(d);
}

static void test_late_listener(void **state) {
  td_debug_run *r = td_debug_run_create(debugger);
  outcome o;
  td_str url = td_str_of(grpc_url);
  begin_report(&o, r, &url, &METADATA, (td_str){0});
  listen_now();
  assert_null(await(&o));
  close_run(r);
  assert_seen("M;E;");
}

/* One that takes no bytes holds the value; a cancel with a grace ends it. */
static void test_deaf_listener(void **state) {
  td_stream_server_options o = {.address = address, .is_deaf = true};
  server = td_stream_server_start(&o);
  td_debug_run *r = td_debug_run_create(debugger);
  td_tensor *t = floats(1000000);
  outcome out;
  td_str url = td_str_of(grpc_url);
  begin_publish(&out, r, t, &url, 1, false);
  while (!td_stream_server_open(server)) usleep(1000);
  assert_int_not_equal(sem_trywait(&out.done), 0);
  td_debug_run_cancel(r, 20 * 1000000);
  must_fail(await(&out), TD_INTERNAL, "Write event to stream URL");
  close_run(r);
  td_tensor_release(t);
}

/* One that does not end its side holds the close; a cancel ends it. */
static void test_endless_listener(void **state) {
  listen_now();
  ears.holds_end = true;
  td_debug_run *r = td_debug_run_create(debugger);
  sem_t done;
  sem_init(&done, 0, 0);
  assert_null(report(r, grpc_url, &METADATA, (td_str){0}));
  td_debug_run_close(r, was_closed, &done);
  td_debug_run_cancel(r, 0);
  sem_wait(&done);
  sem_destroy(&done);
  td_debug_run_release(r);
}

/* A run that goes without a close leaves no stream behind. */
static void test_dropped_run(void **state) {
  listen_now();
  td_debug_run *r = td_debug_run_create(debugger);
  assert_null(report(r, grpc_url, &METADATA, (td_str){0}));
  td_debug_run_release(r);
  while (td_stream_server_open(server)) usleep(1000);
}

/* ---- */

static int setup(void **state) {
  td_log_set_level(TD_LOG_ERROR);
  ears = (listener){0};
  pthread_mutex_init(&ears.lock, NULL);
  snprintf(root, sizeof root, "/tmp/td_debugger_test_XXXXXX");
  assert_non_null(mkdtemp(root));
  snprintf(file_url, sizeof file_url, "file://%s", root);
  snprintf(address, sizeof address, "127.0.0.1:%d", td_stream_server_free_port());
  snprintf(grpc_url, sizeof grpc_url, "grpc://%s", address);
  assert_null(td_loop_create("debugger", NULL, &loop));
  pool = td_pool_create("test", NULL, 2);
  debugger = td_debugger_create(&(td_debugger_options){.loops = &loop, .loop_count = 1, .pool = pool});
  return 0;
}

static int teardown(void **state) {
  char command[128];
  td_pool_destroy(pool);
  td_loop_stop(loop);
  td_loop_destroy(loop);
  td_debugger_destroy(debugger);
  if (server) td_stream_server_stop(server);
  server = NULL;
  td_strbuf_deinit(&ears.seen);
  pthread_mutex_destroy(&ears.lock);
  snprintf(command, sizeof command, "rm -rf %s", root);
  return system(command);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_files),        TEST(test_file_errors),   TEST(test_disk_limit),        TEST(test_listener),
      TEST(test_gates),        TEST(test_breakpoint),    TEST(test_refusing_listener), TEST(test_malformed_reply),
      TEST(test_nobody_there), TEST(test_late_listener), TEST(test_deaf_listener),     TEST(test_endless_listener),
      TEST(test_dropped_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

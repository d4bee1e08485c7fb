#include "cluster/testing.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/testing.h"
#include "cluster/control.h"
#include "cluster/graph_mgr.h"
#include "cluster/partial_run_mgr.h"
#include "cluster/status_service.h"
#include "graph/import.h"
#include "ops/families.h"
#include "ops/testing.h"
#include "proto/message.h"
#include "tensor/tensor_proto.h"

/* ---- cluster ---- */

/* The port stays held by the socket, beside which a server may listen: the system gives it to nobody else, also while a
 * task is down. */
static int free_port(int *fd) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
  assert_int_equal(bind(*fd, (struct sockaddr *)&a, size), 0);
  assert_int_equal(getsockname(*fd, (struct sockaddr *)&a, &size), 0);
  return ntohs(a.sin_port);
}

static void start_task(td_test_cluster *c, int i) {
  Pb__ConfigProto config = PB__CONFIG_PROTO__INIT;
  Pb__ConfigProto__DeviceCountEntry cpus = PB__CONFIG_PROTO__DEVICE_COUNT_ENTRY__INIT, *one = &cpus;
  td_strbuf bytes = {0};
  cpus.key = "CPU";
  cpus.value = c->devices;
  config.n_device_count = 1;
  config.device_count = &one;
  must(td_message_encode(&config.base, &bytes));
  td_server_options o = {.cluster = c->spec,
                         .job = c->spec->tasks[i].job,
                         .task_index = c->spec->tasks[i].index,
                         .config = td_strbuf_view(&bytes),
                         .threads = 2,
                         .loops = c->loops,
                         .no_optimizer = true, /* what a test writes crosses the wire */
                         .session_gc_ms = c->session_gc_ms};
  must(td_server_create(&o, &c->servers[i]));
  td_server_start(c->servers[i]);
  td_strbuf_deinit(&bytes);
}

void td_test_cluster_start(td_test_cluster *c, const char *jobs) { td_test_cluster_start_with(c, jobs, 1, 1); }

void td_test_cluster_start_with(td_test_cluster *c, const char *jobs, int loops, int devices) {
  *c = (td_test_cluster){.loops = loops, .devices = devices};
  must(td_ops_register());
  td_strbuf spec = {0};
  int n = 0, count, used;
  char job[32];
  for (const char *p = jobs; sscanf(p, "%31s %d%n", job, &count, &used) == 2; p += used) {
    td_strbuf_printf(&spec, "%s%s|", spec.size ? "," : "", job);
    for (int i = 0; i < count; i++, n++) {
      assert_true(n < TD_TEST_TASKS);
      td_strbuf_printf(&spec, "%s127.0.0.1:%d", i ? ";" : "", free_port(&c->held[n]));
    }
  }
  must(td_cluster_spec_parse(td_strbuf_view(&spec), &c->spec));
  td_strbuf_deinit(&spec);
  c->count = n;
  must(td_loop_create("client", NULL, &c->loop));
  for (int i = 0; i < n; i++) {
    start_task(c, i);
    td_channel_options o = {0};
    must(td_channel_create(c->loop, c->spec->tasks[i].address, &o, &c->channels[i]));
  }
}

void td_test_cluster_stop_task(td_test_cluster *c, int i) {
  td_server_stop(c->servers[i], 0);
  td_server_destroy(c->servers[i]);
  c->servers[i] = NULL;
}

void td_test_cluster_restart(td_test_cluster *c, int i) {
  /* a call that went out on the old connection would be lost with it */
  while (td_channel_is_connected(c->channels[i])) usleep(1000);
  start_task(c, i);
}

void td_test_cluster_stop(td_test_cluster *c) {
  for (int i = 0; i < c->count; i++) {
    td_channel_destroy(c->channels[i]);
    if (c->servers[i]) td_test_cluster_stop_task(c, i);
  }
  td_loop_stop(c->loop);
  td_loop_destroy(c->loop);
  for (int i = 0; i < c->count; i++) close(c->held[i]);
  td_cluster_spec_release(c->spec);
}

/* ---- calls ---- */

typedef struct waiting_call {
  td_latch latch;
  td_strbuf *text; /* the reply as it is; NULL: not wanted */
  const ProtobufCMessageDescriptor *type;
  td_arena *arena;
  ProtobufCMessage *reply;
} waiting_call;

static void call_done(void *arg, td_status status, td_str reply, td_str details) {
  waiting_call *w = arg;
  if (!status && w->text) td_strbuf_append(w->text, reply);
  if (!status && w->type) status = td_message_decode(w->type, reply, w->arena, &w->reply);
  td_latch_done(&w->latch, status);
}

static td_status call(td_channel *ch, const char *path, td_payload *message, uint64_t timeout_ms, waiting_call *w) {
  td_latch_init(&w->latch, 1);
  td_call_options o = {.path = path,
                       .deadline_ns = timeout_ms ? td_now_ns() + timeout_ms * 1000000u : TD_NO_DEADLINE,
                       .wait_for_ready = true,
                       .done = call_done,
                       .arg = w};
  td_client_call *handle = td_channel_call(ch, &o, message);
  td_status s = td_latch_wait(&w->latch);
  td_client_call_release(handle);
  td_latch_deinit(&w->latch);
  return s;
}

td_status td_test_call_bytes(td_channel *ch, const char *path, td_str request, uint64_t timeout_ms) {
  td_payload message = {0};
  waiting_call w = {0};
  td_payload_copy(&message, request.data, request.size);
  return call(ch, path, &message, timeout_ms, &w);
}

td_status td_test_call(td_channel *ch, const char *path, const ProtobufCMessage *request, uint64_t timeout_ms,
                       const ProtobufCMessageDescriptor *type, td_arena *arena, ProtobufCMessage **reply) {
  td_strbuf b = {0};
  td_payload message = {0};
  waiting_call w = {.type = type, .arena = arena};
  must(td_message_encode(request, &b));
  td_payload_copy(&message, b.data, b.size);
  td_strbuf_deinit(&b);
  td_status s = call(ch, path, &message, timeout_ms, &w);
  if (reply) *reply = w.reply;
  return s;
}

void td_test_status(td_test_cluster *c, int task, td_strbuf *out) {
  td_payload empty = {0};
  waiting_call w = {.text = out};
  must(call(c->channels[task], TD_STATUS_METHOD, &empty, TD_TEST_PATIENCE_MS, &w));
}

/* A number of the task's status; `key` as '"steps":'. */
static int status_number(td_test_cluster *c, int task, const char *key) {
  td_strbuf text = {0};
  td_test_status(c, task, &text);
  const char *at = strstr(td_strbuf_cstr(&text), key);
  assert_non_null(at);
  int n = atoi(at + strlen(key));
  td_strbuf_deinit(&text);
  return n;
}

int td_test_step_count(td_test_cluster *c, int task) { return status_number(c, task, "\"steps\":"); }

void td_test_await_steps(td_test_cluster *c, int task, int count) {
  while (status_number(c, task, "\"master_steps\":") < count) usleep(1000);
}

void td_test_await_no_steps(td_test_cluster *c, int task) {
  while (status_number(c, task, "\"master_steps\":")) usleep(1000);
}

/* ---- graphs ---- */

static td_str word(const char **p) {
  while (**p == ' ') (*p)++;
  const char *begin = *p;
  while (**p && **p != ' ' && **p != '\n') (*p)++;
  return td_str_n(begin, (size_t)(*p - begin));
}

static char *text_or_empty(td_arena *a, td_str w) {
  return td_str_is(w, "-") ? (char *)"" : td_arena_strndup(a, w.data, w.size);
}

/* "float [2] 1 2" */
static Pb__TensorProto *tensor_value(td_arena *a, td_str text) {
  char type[32], shape[64], *copy = td_arena_strndup(a, text.data, text.size);
  int used;
  assert_int_equal(sscanf(copy, "%31s %63s %n", type, shape, &used), 2);
  td_tensor *t = td_test_tensor(td_dtype_parse(td_str_of(type)), shape, copy + used);
  td_strbuf b = {0};
  Pb__TensorProto *proto;
  must(td_tensor_encode(t, &b));
  must(td_message_decode(&pb__tensor_proto__descriptor, td_strbuf_view(&b), a, (ProtobufCMessage **)&proto));
  td_strbuf_deinit(&b);
  td_tensor_release(t);
  return proto;
}

static Pb__AttrValue *attr_value(td_arena *a, const char *op, td_str name, td_str text) {
  static const char *const kinds[] = {"string", "int", "float", "bool", "type", "shape", "tensor", "func"};
  const td_op_def *def = td_op_find(td_str_of(op));
  const td_attr_def *attr = def ? td_op_attr(def, name) : NULL;
  if (!attr) fail_msg("op %s has no attribute %.*s", op, TD_STR_ARG(name));
  if (attr->kind == TD_ATTR_TENSOR) {
    Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
    pb__attr_value__init(v);
    v->value_case = PB__ATTR_VALUE__VALUE_TENSOR;
    v->tensor = tensor_value(a, text);
    return v;
  }
  td_op_spec spec = {.name = "attribute in a test",
                     .attrs = td_arena_printf(a, attr->is_list ? "a: list(%s) = %.*s" : "a: %s = %.*s",
                                              kinds[attr->kind], TD_STR_ARG(text))};
  const td_op_def *parsed;
  must(td_op_parse(&spec, a, &parsed));
  return parsed->attrs[0].default_value;
}

static void add_attrs(td_arena *a, Pb__NodeDef *n, td_str text) {
  n->attr = td_arena_array(a, Pb__AttrEntry *, 16);
  while (text.data) {
    td_str item = td_str_split(&text, ';'), value = item, name = td_str_trim(td_str_split(&value, ':'));
    if (!name.size) continue;
    Pb__AttrEntry *e = n->attr[n->n_attr++] = td_arena_new(a, Pb__AttrEntry);
    pb__attr_entry__init(e);
    e->key = td_arena_strndup(a, name.data, name.size);
    e->value = attr_value(a, n->op, name, td_str_trim(value));
  }
}

Pb__GraphDef *td_test_graph(td_arena *a, const char *text) {
  Pb__GraphDef *g = td_arena_new(a, Pb__GraphDef);
  pb__graph_def__init(g);
  g->versions = td_arena_new(a, Pb__VersionDef);
  pb__version_def__init(g->versions);
  g->versions->producer = 134;
  g->node = td_arena_array(a, Pb__NodeDef *, 256);
  for (const char *p = text; *p;) {
    const char *end = strchrnul(p, '\n');
    Pb__NodeDef *n = g->node[g->n_node++] = td_arena_new(a, Pb__NodeDef);
    pb__node_def__init(n);
    n->name = text_or_empty(a, word(&p));
    n->op = text_or_empty(a, word(&p));
    n->device = text_or_empty(a, word(&p));
    td_str inputs = word(&p);
    n->input = td_arena_array(a, char *, 16);
    while (inputs.data && !td_str_is(inputs, "-")) {
      td_str input = td_str_split(&inputs, ',');
      n->input[n->n_input++] = td_arena_strndup(a, input.data, input.size);
    }
    add_attrs(a, n, td_str_n(p, (size_t)(end - p)));
    p = *end ? end + 1 : end;
  }
  return g;
}

/* ---- sessions ---- */

td_status td_test_create_session(td_test_cluster *c, int task, const char *graph, const Pb__ConfigProto *config,
                                 td_arena *a, char **handle) {
  Pb__CreateSessionRequest request = PB__CREATE_SESSION_REQUEST__INIT;
  Pb__CreateSessionResponse *reply;
  request.graph_def = td_test_graph(a, graph);
  request.config = (Pb__ConfigProto *)config;
  TD_TRY(td_test_call(c->channels[task], "/tensorflow.MasterService/CreateSession", &request.base, TD_TEST_PATIENCE_MS,
                      &pb__create_session_response__descriptor, a, (ProtobufCMessage **)&reply));
  *handle = reply->session_handle;
  return TD_STATUS_OK;
}

static char **split(td_arena *a, const char *text, size_t *count) {
  char **out = td_arena_array(a, char *, 64), *save = NULL, *copy = td_arena_strdup(a, text);
  *count = 0;
  for (char *w = strtok_r(copy, " ", &save); w && strcmp(text, "-"); w = strtok_r(NULL, " ", &save))
    out[(*count)++] = w;
  return out;
}

static Pb__TensorProto *to_proto(td_tensor *t, td_arena *a) {
  td_strbuf b = {0};
  Pb__TensorProto *out;
  must(td_tensor_encode(t, &b));
  must(td_message_decode(&pb__tensor_proto__descriptor, td_strbuf_view(&b), a, (ProtobufCMessage **)&out));
  td_strbuf_deinit(&b);
  return out;
}

td_status td_test_run(td_test_cluster *c, int task, const char *handle, const char *fetches, const char *targets,
                      const char *feed_name, td_tensor *feed, uint64_t timeout_ms, td_tensor **out) {
  td_test_step step = {.handle = handle,
                       .fetches = fetches,
                       .targets = targets,
                       .feed_names = {feed ? feed_name : NULL},
                       .feeds = {feed},
                       .timeout_ms = timeout_ms};
  return td_test_run_step(c, task, &step, out);
}

td_status td_test_run_step(td_test_cluster *c, int task, const td_test_step *step, td_tensor **out) {
  td_arena a = {0};
  td_status s;
  Pb__RunStepRequest request = PB__RUN_STEP_REQUEST__INIT;
  Pb__RunStepResponse *reply = NULL;
  Pb__NamedTensorProto named[4], *feeds[4];
  Pb__RunOptions options = PB__RUN_OPTIONS__INIT;
  Pb__RunOptions__Experimental experimental = PB__RUN_OPTIONS__EXPERIMENTAL__INIT;
  experimental.collective_graph_key = step->collective_graph_key;
  options.experimental = &experimental;
  options.debug_options = (Pb__DebugOptions *)step->watches;
  options.timeout_in_ms = step->run_timeout_ms;
  request.request_id = step->request_id;
  request.options = &options;
  request.session_handle = (char *)step->handle;
  if (step->partial) request.partial_run_handle = (char *)step->partial;
  request.fetch = split(&a, step->fetches, &request.n_fetch);
  request.target = split(&a, step->targets, &request.n_target);
  request.store_errors_in_response_body = true;
  request.feed = feeds;
  for (size_t i = 0; i < TD_COUNT(named) && step->feed_names[i]; i++, request.n_feed++) {
    pb__named_tensor_proto__init(&named[i]);
    named[i].name = (char *)step->feed_names[i];
    named[i].tensor = to_proto(step->feeds[i], &a);
    feeds[i] = &named[i];
  }
  s = td_test_call(c->channels[task], "/tensorflow.MasterService/RunStep", &request.base, step->timeout_ms,
                   &pb__run_step_response__descriptor, &a, (ProtobufCMessage **)&reply);
  if (!s && reply->status_code)
    s = td_error_bytes((td_code)reply->status_code, (const char *)reply->status_error_message.data,
                       reply->status_error_message.len);
  for (size_t i = 0; !s && i < request.n_fetch; i++) {
    out[i] = NULL;
    for (size_t k = 0; k < reply->n_tensor; k++)
      if (!strcmp(reply->tensor[k]->name, request.fetch[i]))
        s = td_tensor_from_proto(reply->tensor[k]->tensor, &out[i]);
    if (!s && !out[i]) fail_msg("no reply for fetch %s", request.fetch[i]);
  }
  td_arena_deinit(&a);
  return s;
}

td_status td_test_close_session(td_test_cluster *c, int task, const char *handle) {
  Pb__CloseSessionRequest request = PB__CLOSE_SESSION_REQUEST__INIT;
  request.session_handle = (char *)handle;
  return td_test_call(c->channels[task], "/tensorflow.MasterService/CloseSession", &request.base, TD_TEST_PATIENCE_MS,
                      NULL, NULL, NULL);
}

/* ---- a worker's parts ---- */

td_worker_session *td_test_worker_session(td_server *server, const char *handle) {
  td_task *task = td_task_of(server);
  td_worker_session *s;
  Pb__CreateWorkerSessionRequest request = PB__CREATE_WORKER_SESSION_REQUEST__INIT;
  request.session_handle = (char *)handle;
  must(td_worker_sessions_open(task->sessions, &request));
  must(td_worker_sessions_find(task->sessions, td_str_of(handle), false, &s));
  return s;
}

td_status td_test_register(td_worker_session *s, const char *text, td_registered_graph **out) {
  td_arena a = {0};
  td_graph *g = NULL;
  td_status status = td_graph_import(td_test_graph(&a, text), NULL, &(td_import_options){.is_partition = true}, &g);
  if (!status) status = td_graph_mgr_register(s, g, NULL, &(td_graph_debug){0}, out);
  td_graph_release(g);
  td_arena_deinit(&a);
  return status;
}

static void graph_call_done(td_run_graph *r, td_status status) {
  td_latch_done(&TD_CONTAINER_OF(r, td_test_call_graph, run)->latch, status);
}

static td_rendezvous_key *keys_of(td_arena *a, char **names, size_t count) {
  td_rendezvous_key *keys = td_arena_array(a, td_rendezvous_key, count + 1);
  for (size_t i = 0; i < count; i++)
    td_rendezvous_key_make(a, TD_STR(TD_TEST_DEVICE), 1, TD_STR(TD_TEST_DEVICE), td_str_of(names[i]), &keys[i]);
  return keys;
}

void td_test_graph_start(td_test_call_graph *c, td_registered_graph *g, int64_t step_id, const char *feeds,
                         const char *fetches, bool is_partial, bool is_last) {
  *c = (td_test_call_graph){.run = {.graph = g,
                                    .step_id = step_id,
                                    .is_partial = is_partial,
                                    .is_last_partial_run = is_last,
                                    .done = graph_call_done}};
  size_t sends, recvs;
  char **feed_names = split(&c->arena, feeds, &sends), **fetch_names = split(&c->arena, fetches, &recvs);
  c->run.send_keys = keys_of(&c->arena, feed_names, sends);
  c->run.recv_keys = keys_of(&c->arena, fetch_names, recvs);
  c->run.send_count = (int)sends;
  c->run.recv_count = (int)recvs;
  c->run.sends = td_arena_array(&c->arena, td_tensor *, sends + 1);
  c->run.recvs = td_arena_array(&c->arena, td_tensor *, recvs + 1);
  for (size_t i = 0; i < sends; i++)
    c->run.sends[i] = td_test_tensor(TD_FLOAT, "[]", td_arena_printf(&c->arena, "%zu", i + 1));
  td_latch_init(&c->latch, 1);
  if (is_partial)
    td_partial_run_call(g, &c->run);
  else
    td_graph_mgr_run(g, &c->run);
}

bool td_test_graph_is_done(td_test_call_graph *c) { return td_latch_wait_until(&c->latch, td_now_ns()); }

td_status td_test_graph_wait(td_test_call_graph *c, float *out) {
  td_status s = td_latch_wait(&c->latch);
  if (!s && out) *out = TD_DATA(c->run.recvs[0], float)[0];
  for (int i = 0; i < c->run.send_count; i++) td_tensor_release(c->run.sends[i]);
  for (int i = 0; i < c->run.recv_count; i++) td_tensor_release(c->run.recvs[i]);
  td_strbuf_deinit(&c->run.metadata);
  td_latch_deinit(&c->latch);
  td_arena_deinit(&c->arena);
  return s;
}

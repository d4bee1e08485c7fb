/* tensorctl bench: a load of steps for the servers of a cluster, TensorFlow's or ours. One session, whose graph is a
 * variable on the first task and trivial nodes dealt to all tasks; clients with a connection each run steps of it, one
 * after another.
 */
#include <getopt.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/control.h"
#include "proto/master.pb-c.h"
#include "proto/message.h"
#include "rpc/rpc.h"
#include "tools/commands.h"

enum { MAX_CLIENTS = 65536, MAX_NODES = 1000000, MAX_TASKS = 65536, SET_UP_S = 60, LAST_STEP_S = 60 };
enum { DT_FLOAT = 1, DT_INT32 = 3, GRAPH_VERSION = 134 };

typedef struct bench {
  /* the command line's */
  const char *address;
  int nodes, tasks, clients; /* tasks 0: all */
  int64_t elements;          /* floats of the variable */
  double seconds;
  bool chain, as_json;

  td_loop *loop;
  td_channel *channel; /* for everything but the steps */
  td_arena arena;
  char **devices; /* the first of each task */
  int device_count;
  char *session;
  td_strbuf step; /* RunStepRequest */
  uint64_t began_ns, ended_ns;
  td_latch latch;
} bench;

/* One after another: steps of one connection. Loop thread only while the load runs. */
typedef struct client {
  bench *bench;
  td_channel *channel;
  uint64_t sent_ns;
  uint32_t *latencies_us;
  size_t count, capacity;
  td_status failure; /* ended it */
} client;

/* ---- calls ---- */

typedef struct waiting {
  td_latch latch;
  td_arena *arena;
  const ProtobufCMessageDescriptor *type;
  ProtobufCMessage *reply;
} waiting;

static void answered(void *arg, td_status status, td_str reply, td_str details) {
  waiting *w = arg;
  if (!status) status = td_message_decode(w->type, reply, w->arena, &w->reply);
  td_latch_done(&w->latch, status);
}

#define METHOD(name) "/tensorflow.MasterService/" name

static td_status call(bench *b, const char *method, const ProtobufCMessage *request,
                      const ProtobufCMessageDescriptor *type, void *reply) {
  td_strbuf bytes = {0};
  td_payload message = {0};
  TD_TRY(td_message_encode(request, &bytes));
  td_payload_copy(&message, bytes.data, bytes.size);
  td_strbuf_deinit(&bytes);
  waiting w = {.arena = &b->arena, .type = type};
  td_latch_init(&w.latch, 1);
  td_call_options o = {
      .path = method, .deadline_ns = td_now_ns() + (uint64_t)SET_UP_S * 1000000000u, .done = answered, .arg = &w};
  td_client_call_release(td_channel_call(b->channel, &o, &message));
  td_status s = td_latch_wait(&w.latch);
  td_latch_deinit(&w.latch);
  if (!s) *(ProtobufCMessage **)reply = w.reply;
  return s;
}

/* ---- graph ---- */

static Pb__AttrValue *add_attr(bench *b, Pb__NodeDef *n, const char *name, int kind) {
  enum { MOST = 4 };
  if (!n->attr) n->attr = td_arena_array(&b->arena, Pb__AttrEntry *, MOST);
  Pb__AttrEntry *e = n->attr[n->n_attr++] = td_arena_new(&b->arena, Pb__AttrEntry);
  pb__attr_entry__init(e);
  e->key = td_arena_strdup(&b->arena, name);
  e->value = td_arena_new(&b->arena, Pb__AttrValue);
  pb__attr_value__init(e->value);
  e->value->value_case = kind;
  return e->value;
}

static void add_type(bench *b, Pb__NodeDef *n, const char *name, int type) {
  add_attr(b, n, name, PB__ATTR_VALUE__VALUE_TYPE)->type = type;
}

static Pb__NodeDef *add_node(bench *b, Pb__GraphDef *g, const char *name, const char *op, int device) {
  Pb__NodeDef *n = g->node[g->n_node++] = td_arena_new(&b->arena, Pb__NodeDef);
  pb__node_def__init(n);
  n->name = td_arena_strdup(&b->arena, name);
  n->op = td_arena_strdup(&b->arena, op);
  n->device = b->devices[device % b->device_count];
  return n;
}

static void add_input(bench *b, Pb__NodeDef *n, const char *name, size_t most) {
  if (!n->input) n->input = td_arena_array(&b->arena, char *, most);
  n->input[n->n_input++] = td_arena_strdup(&b->arena, name);
}

static void add_const(bench *b, Pb__GraphDef *g, const char *name, int type, int64_t vector, int value) {
  Pb__NodeDef *n = add_node(b, g, name, "Const", 0);
  add_type(b, n, "dtype", type);
  Pb__TensorProto *t = add_attr(b, n, "value", PB__ATTR_VALUE__VALUE_TENSOR)->tensor =
      td_arena_new(&b->arena, Pb__TensorProto);
  pb__tensor_proto__init(t);
  t->dtype = type;
  t->tensor_shape = td_arena_new(&b->arena, Pb__TensorShapeProto);
  pb__tensor_shape_proto__init(t->tensor_shape);
  if (vector) {
    Pb__TensorShapeProto__Dim *d = td_arena_new(&b->arena, Pb__TensorShapeProto__Dim);
    pb__tensor_shape_proto__dim__init(d);
    d->size = vector;
    t->tensor_shape->n_dim = 1;
    t->tensor_shape->dim = td_arena_array(&b->arena, Pb__TensorShapeProto__Dim *, 1);
    t->tensor_shape->dim[0] = d;
  }
  if (type == DT_INT32) {
    t->n_int_val = 1;
    t->int_val = td_arena_array(&b->arena, int32_t, 1);
    t->int_val[0] = value;
  } else {
    t->n_float_val = 1;
    t->float_val = td_arena_array(&b->arena, float, 1);
    t->float_val[0] = (float)value;
  }
}

/* value = variable on task 0; n0 … each reads it (fan) or the one before (chain), on task i; all: their end. */
static Pb__GraphDef *build_graph(bench *b) {
  char name[32], before[32] = "value";
  Pb__GraphDef *g = td_arena_new(&b->arena, Pb__GraphDef);
  pb__graph_def__init(g);
  g->versions = td_arena_new(&b->arena, Pb__VersionDef);
  pb__version_def__init(g->versions);
  g->versions->producer = GRAPH_VERSION;
  g->node = td_arena_array(&b->arena, Pb__NodeDef *, (size_t)b->nodes + 6);
  add_const(b, g, "dims", DT_INT32, 1, (int)b->elements);
  add_const(b, g, "one", DT_FLOAT, 0, 1);
  Pb__NodeDef *fill = add_node(b, g, "fill", "Fill", 0);
  add_input(b, fill, "dims", 2);
  add_input(b, fill, "one", 2);
  add_type(b, fill, "T", DT_FLOAT);
  add_type(b, fill, "index_type", DT_INT32);
  Pb__NodeDef *value = add_node(b, g, "value", "VariableV2", 0);
  add_type(b, value, "dtype", DT_FLOAT);
  Pb__TensorShapeProto *shape = add_attr(b, value, "shape", PB__ATTR_VALUE__VALUE_SHAPE)->shape =
      td_arena_new(&b->arena, Pb__TensorShapeProto);
  pb__tensor_shape_proto__init(shape);
  shape->unknown_rank = true;
  Pb__NodeDef *assign = add_node(b, g, "assign", "Assign", 0);
  add_input(b, assign, "value", 2);
  add_input(b, assign, "fill", 2);
  add_type(b, assign, "T", DT_FLOAT);
  add_attr(b, assign, "validate_shape", PB__ATTR_VALUE__VALUE_B)->b = false;
  Pb__NodeDef *all = add_node(b, g, "all", "NoOp", 0);
  for (int i = 0; i < b->nodes; i++) {
    snprintf(name, sizeof name, "n%d", i);
    Pb__NodeDef *n = add_node(b, g, name, "Identity", i);
    add_input(b, n, before, 1);
    add_type(b, n, "T", DT_FLOAT);
    if (b->chain) memcpy(before, name, sizeof before);
    if (b->chain && i + 1 < b->nodes) continue;
    snprintf(name, sizeof name, "^n%d", i);
    add_input(b, all, name, (size_t)b->nodes);
  }
  return g;
}

/* ---- session ---- */

static bool is_on_the_same_task(const char *device, const char *other) {
  const char *end = strstr(device, "/device:");
  size_t size = end ? (size_t)(end - device) : strlen(device);
  return !strncmp(device, other, size) && !strncmp(other + size, "/device:", 8);
}

static void add_devices(bench *b, Pb__DeviceAttributes **found, size_t count) {
  for (size_t i = 0; i < count && b->device_count < (b->tasks ? b->tasks : MAX_TASKS); i++) {
    bool known = strcmp(found[i]->device_type, "CPU") != 0;
    for (int k = 0; k < b->device_count && !known; k++) known = is_on_the_same_task(b->devices[k], found[i]->name);
    if (!known) b->devices[b->device_count++] = found[i]->name;
  }
}

static td_status find_tasks(bench *b) {
  Pb__ListDevicesRequest request = PB__LIST_DEVICES_REQUEST__INIT;
  Pb__ListDevicesResponse *reply;
  TD_TRY(call(b, METHOD("ListDevices"), &request.base, &pb__list_devices_response__descriptor, &reply));
  b->devices = td_arena_array(&b->arena, char *, reply->n_local_device + reply->n_remote_device + 1);
  add_devices(b, reply->local_device, reply->n_local_device);
  add_devices(b, reply->remote_device, reply->n_remote_device);
  if (b->device_count < TD_MAX(b->tasks, 1))
    return td_invalid_argument("--tasks=%d: the cluster has %d", b->tasks, b->device_count);
  return TD_STATUS_OK;
}

/* No node is to be optimised away, and the variable is to be gone with the session. */
static Pb__ConfigProto *session_config(bench *b) {
  Pb__ConfigProto *c = td_arena_new(&b->arena, Pb__ConfigProto);
  pb__config_proto__init(c);
  c->isolate_session_state = true;
  c->graph_options = td_arena_new(&b->arena, Pb__GraphOptions);
  pb__graph_options__init(c->graph_options);
  c->graph_options->optimizer_options = td_arena_new(&b->arena, Pb__OptimizerOptions);
  pb__optimizer_options__init(c->graph_options->optimizer_options);
  c->graph_options->optimizer_options->opt_level = -1;
  c->graph_options->rewrite_options = td_arena_new(&b->arena, Pb__RewriterConfig);
  pb__rewriter_config__init(c->graph_options->rewrite_options);
  c->graph_options->rewrite_options->disable_meta_optimizer = true;
  return c;
}

static void step_request(bench *b, const char *target, Pb__RunStepRequest *out) {
  pb__run_step_request__init(out);
  out->session_handle = b->session;
  out->n_target = 1;
  out->target = td_arena_array(&b->arena, char *, 1);
  out->target[0] = td_arena_strdup(&b->arena, target);
}

/* Creates the session, gives the variable its value, and runs one step, which compiles it. */
static td_status set_up(bench *b) {
  Pb__CreateSessionRequest create = PB__CREATE_SESSION_REQUEST__INIT;
  Pb__CreateSessionResponse *created;
  Pb__RunStepRequest step;
  Pb__RunStepResponse *ran;
  TD_TRY(find_tasks(b));
  create.graph_def = build_graph(b);
  create.config = session_config(b);
  TD_TRY(call(b, METHOD("CreateSession"), &create.base, &pb__create_session_response__descriptor, &created));
  b->session = created->session_handle;
  step_request(b, "assign", &step);
  TD_TRY(call(b, METHOD("RunStep"), &step.base, &pb__run_step_response__descriptor, &ran));
  step_request(b, "all", &step);
  TD_TRY(call(b, METHOD("RunStep"), &step.base, &pb__run_step_response__descriptor, &ran));
  return td_message_encode(&step.base, &b->step);
}

static void close_session(bench *b) {
  Pb__CloseSessionRequest request = PB__CLOSE_SESSION_REQUEST__INIT;
  Pb__CloseSessionResponse *reply;
  if (!b->session) return;
  request.session_handle = b->session;
  td_status_free(call(b, METHOD("CloseSession"), &request.base, &pb__close_session_response__descriptor, &reply));
}

/* ---- load ---- */

static void next_step(client *c);

static void step_done(void *arg, td_status status, td_str reply, td_str details) {
  client *c = arg;
  uint64_t now = td_now_ns();
  if (status) {
    c->failure = status;
    td_latch_done(&c->bench->latch, TD_STATUS_OK);
    return;
  }
  TD_GROW(c->latencies_us, c->count, c->capacity);
  c->latencies_us[c->count++] = (uint32_t)TD_MIN((now - c->sent_ns + 500) / 1000, (uint64_t)UINT32_MAX);
  if (now < c->bench->ended_ns)
    next_step(c);
  else
    td_latch_done(&c->bench->latch, TD_STATUS_OK);
}

static void next_step(client *c) {
  td_payload message = {0};
  td_payload_add(&message, c->bench->step.data, c->bench->step.size, NULL, NULL);
  c->sent_ns = td_now_ns();
  td_call_options o = {.path = METHOD("RunStep"),
                       .deadline_ns = c->bench->ended_ns + (uint64_t)LAST_STEP_S * 1000000000u,
                       .wait_for_ready = true,
                       .done = step_done,
                       .arg = c};
  td_client_call_release(td_channel_call(c->channel, &o, &message));
}

static void run_load(bench *b, client *clients) {
  td_latch_init(&b->latch, b->clients);
  b->began_ns = td_now_ns();
  b->ended_ns = b->began_ns + (uint64_t)(b->seconds * 1e9);
  for (int i = 0; i < b->clients; i++) next_step(&clients[i]);
  td_status_free(td_latch_wait(&b->latch));
  td_latch_deinit(&b->latch);
  b->ended_ns = td_now_ns();
}

/* ---- report ---- */

static int compare(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static double quantile_ms(const uint32_t *sorted, size_t count, double q) {
  return count ? sorted[(size_t)((double)(count - 1) * q)] / 1e3 : 0;
}

static void report(const bench *b, const client *clients) {
  size_t count = 0, at = 0;
  for (int i = 0; i < b->clients; i++) count += clients[i].count;
  uint32_t *all = td_new_array(uint32_t, count + 1);
  for (int i = 0; i < b->clients; i++) {
    if (clients[i].count) memcpy(all + at, clients[i].latencies_us, clients[i].count * sizeof *all);
    at += clients[i].count;
  }
  qsort(all, count, sizeof *all, compare);
  double s = (double)(b->ended_ns - b->began_ns) / 1e9, rate = (double)count / s;
  double p50 = quantile_ms(all, count, 0.5), p90 = quantile_ms(all, count, 0.9), p99 = quantile_ms(all, count, 0.99),
         worst = quantile_ms(all, count, 1);
  if (b->as_json)
    printf(
        "{\"steps\": %zu, \"seconds\": %.3f, \"steps_per_s\": %.1f, \"p50_ms\": %.3f, \"p90_ms\": %.3f, "
        "\"p99_ms\": %.3f, \"max_ms\": %.3f, \"clients\": %d, \"tasks\": %d, \"nodes\": %d}\n",
        count, s, rate, p50, p90, p99, worst, b->clients, b->device_count, b->nodes);
  else
    printf(
        "%d clients, %d nodes (%s) on %d tasks, %lld floats: %zu steps in %.1f s\n"
        "%.0f steps/s   p50 %.3f ms   p90 %.3f ms   p99 %.3f ms   max %.3f ms\n",
        b->clients, b->nodes, b->chain ? "chain" : "fan", b->device_count, (long long)b->elements, count, s, rate, p50,
        p90, p99, worst);
  td_free(all);
}

/* ---- the command ---- */

static td_status run(bench *b, client *clients) {
  td_channel_options options = {0};
  TD_TRY(td_loop_create("bench", NULL, &b->loop));
  TD_TRY(td_channel_create(b->loop, b->address, &options, &b->channel));
  for (int i = 0; i < b->clients; i++) {
    clients[i].bench = b;
    TD_TRY(td_channel_create(b->loop, b->address, &options, &clients[i].channel));
  }
  TD_TRY(set_up(b));
  run_load(b, clients);
  for (int i = 0; i < b->clients; i++)
    if (clients[i].failure) return td_status_retain(clients[i].failure);
  report(b, clients);
  return TD_STATUS_OK;
}

static int run_bench(bench *b) {
  client *clients = td_new_array(client, (size_t)b->clients);
  td_status s = run(b, clients);
  if (s) fprintf(stderr, "tensorctl: %s: %s\n", b->address, td_status_message(s));
  if (b->channel) close_session(b);
  for (int i = 0; i < b->clients; i++) {
    if (clients[i].channel) td_channel_destroy(clients[i].channel);
    td_status_free(clients[i].failure);
    td_free(clients[i].latencies_us);
  }
  if (b->channel) td_channel_destroy(b->channel);
  if (b->loop) td_loop_stop(b->loop), td_loop_destroy(b->loop);
  td_free(clients);
  td_strbuf_deinit(&b->step);
  td_arena_deinit(&b->arena);
  int code = s ? TD_EXIT_FAILED : TD_EXIT_OK;
  td_status_free(s);
  return code;
}

static void print_help(FILE *out) {
  fputs(
      "Usage: tensorctl bench grpc://HOST:PORT [options]\n"
      "\n"
      "Runs steps as fast as the cluster takes them, through the master at HOST:PORT (tensord's or TensorFlow's), and\n"
      "prints their rate and latencies. A step runs trivial nodes, dealt to the tasks, that hand on a vector.\n"
      "\n"
      "  --nodes=N         nodes of a step (default: 10)\n"
      "  --tasks=N         tasks to use (default: all of the cluster)\n"
      "  --clients=N       steps in flight, each on a connection of its own (default: 1)\n"
      "  --floats=N        length of the vector (default: 1)\n"
      "  --graph=fan|chain each node reads the vector from the first task, or from the node before (default: fan)\n"
      "  --seconds=S       how long (default: 5)\n"
      "  --json            one JSON object\n"
      "\n"
      "Exit status: 0, 1 if a step failed, 2 for wrong arguments.\n",
      out);
}

static int usage_error(const char *option, const char *value) {
  fprintf(stderr, "tensorctl bench: %s%.100s: not understood, or out of range\n", option, value);
  print_help(stderr);
  return TD_EXIT_USAGE;
}

static bool parse(const char *text, int64_t lowest, int64_t highest, int64_t *out) {
  return td_str_to_i64(td_str_of(text), out) && *out >= lowest && *out <= highest;
}

static bool take_option(bench *b, int option, const char *value) {
  int64_t n = 0;
  char *end;
  switch (option) {
    case 'n':
      return parse(value, 1, MAX_NODES, &n) && (b->nodes = (int)n);
    case 't':
      return parse(value, 1, MAX_TASKS, &n) && (b->tasks = (int)n);
    case 'c':
      return parse(value, 1, MAX_CLIENTS, &n) && (b->clients = (int)n);
    case 'f':
      return parse(value, 1, INT32_MAX, &b->elements);
    case 'g':
      b->chain = !strcmp(value, "chain");
      return b->chain || !strcmp(value, "fan");
    case 's':
      b->seconds = strtod(value, &end);
      return !*end && end != value && b->seconds > 0 && b->seconds <= 86400;
    case 'j':
      b->as_json = true;
      return true;
    default:
      return false;
  }
}

int td_bench_command(int argc, char **argv) {
  static const struct option options[] = {{"nodes", required_argument, NULL, 'n'},
                                          {"tasks", required_argument, NULL, 't'},
                                          {"clients", required_argument, NULL, 'c'},
                                          {"floats", required_argument, NULL, 'f'},
                                          {"graph", required_argument, NULL, 'g'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
  bench b = {.nodes = 10, .clients = 1, .elements = 1, .seconds = 5};
  for (int option, at; (option = getopt_long(argc, argv, "", options, &at)) >= 0;) {
    if (option == '?') return TD_EXIT_USAGE;
    if (option == 'h') {
      print_help(stdout);
      return TD_EXIT_OK;
    }
    if (!take_option(&b, option, optarg)) return usage_error("an option's value: ", optarg);
  }
  if (optind + 1 != argc) return usage_error("expected one target", "");
  b.address = !strncmp(argv[optind], "grpc://", 7) ? argv[optind] + 7 : argv[optind];
  return run_bench(&b);
}

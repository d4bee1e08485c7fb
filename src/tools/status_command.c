/* tensorctl status: asks one task for its cluster, then all tasks of that for their state. Tasks that are
 * TensorFlow's own servers are asked what those know: their devices.
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
#include "cluster/status_service.h"
#include "proto/message.h"
#include "proto/worker.pb-c.h"
#include "rpc/rpc.h"
#include "tools/commands.h"

enum { MAX_TASKS = 65536, DEFAULT_TIMEOUT_S = 5, MAX_REPLY_BYTES = 64 << 20 };

#define GET_STATUS "/tensorflow.WorkerService/GetStatus"

/* ---- asking ---- */

/* What is known of one task. */
typedef struct entry {
  char *address, *name;
  json_t *status;  /* as the status service gave it, or made from a GetStatus reply; NULL: no answer */
  td_status error; /* why there is none */
  td_channel *channel;
  struct client *client;
} entry;

typedef struct client {
  td_loop *loop;
  td_latch latch;
  uint64_t deadline_ns;
} client;

static void ask(entry *e, const char *method, void (*done)(void *, td_status, td_str, td_str)) {
  td_payload empty = {0};
  td_call_options options = {.path = method, .deadline_ns = e->client->deadline_ns, .done = done, .arg = e};
  td_client_call_release(td_channel_call(e->channel, &options, &empty));
}

/* A TensorFlow server's devices in the shape of the status service's reply. */
static json_t *devices_reply(td_str bytes, td_status *error) {
  td_arena arena = {0};
  Pb__GetStatusResponse *reply;
  *error = td_message_decode(&pb__get_status_response__descriptor, bytes, &arena, (ProtobufCMessage **)&reply);
  json_t *devices = *error ? NULL : json_array();
  for (size_t i = 0; devices && i < reply->n_device_attributes; i++) {
    const Pb__DeviceAttributes *a = reply->device_attributes[i];
    char incarnation[20];
    snprintf(incarnation, sizeof incarnation, "%016llx", (unsigned long long)a->incarnation);
    json_array_append_new(
        devices, json_pack("{s:s, s:s, s:I, s:s}", "name", a->name, "type", a->device_type, "memory_limit_bytes",
                           (json_int_t)a->memory_limit, "incarnation", incarnation));
  }
  td_arena_deinit(&arena);
  return devices ? json_pack("{s:s, s:o}", "version", "TensorFlow", "devices", devices) : NULL;
}

static void got_devices(void *arg, td_status status, td_str reply, td_str details) {
  entry *e = arg;
  e->error = status;
  if (!status) e->status = devices_reply(reply, &e->error);
  td_latch_done(&e->client->latch, TD_STATUS_OK);
}

static void got_status(void *arg, td_status status, td_str reply, td_str details) {
  entry *e = arg;
  if (td_status_code(status) == TD_UNIMPLEMENTED) {
    td_status_free(status);
    ask(e, GET_STATUS, got_devices);
    return;
  }
  e->error = status;
  if (!status) {
    json_error_t error;
    e->status = json_loadb(reply.data, reply.size, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(e->status)) {
      json_decref(e->status);
      e->status = NULL;
      e->error = td_invalid_argument("%s answered with a malformed status", e->address);
    }
  }
  td_latch_done(&e->client->latch, TD_STATUS_OK);
}

/* Asks all entries at once and waits for every answer; their channels end here. */
static void ask_all(td_loop *loop, double timeout_s, entry *entries, size_t count) {
  client c = {.loop = loop, .deadline_ns = td_now_ns() + (uint64_t)(timeout_s * 1e9)};
  td_channel_options options = {.max_message_bytes = MAX_REPLY_BYTES};
  td_latch_init(&c.latch, (int)count);
  for (size_t i = 0; i < count; i++) {
    entry *e = &entries[i];
    e->client = &c;
    e->error = td_channel_create(loop, e->address, &options, &e->channel);
    if (e->error)
      td_latch_done(&c.latch, TD_STATUS_OK);
    else
      ask(e, TD_STATUS_METHOD, got_status);
  }
  td_status_free(td_latch_wait(&c.latch));
  td_latch_deinit(&c.latch);
  for (size_t i = 0; i < count; i++)
    if (entries[i].channel) td_channel_destroy(entries[i].channel);
}

/* ---- the cluster ---- */

typedef struct cluster {
  entry *items;
  size_t count, capacity;
} cluster;

static entry *add_entry(cluster *c, const char *address, const char *name) {
  TD_GROW(c->items, c->count, c->capacity);
  entry *e = &c->items[c->count++];
  *e = (entry){.address = td_strdup(address), .name = td_strdup(name)};
  return e;
}

static void cluster_deinit(cluster *c) {
  for (size_t i = 0; i < c->count; i++) {
    td_free(c->items[i].address);
    td_free(c->items[i].name);
    json_decref(c->items[i].status);
    td_status_free(c->items[i].error);
  }
  td_free(c->items);
}

/* "/job:ps/replica:0/task:0/device:CPU:0" -> "/job:ps/replica:0/task:0" */
static char *task_of_device(const char *device) {
  const char *end = strstr(device, "/device:");
  return td_strndup(device, end ? (size_t)(end - device) : strlen(device));
}

static void name_entry(entry *e) {
  const char *name = json_string_value(json_object_get(e->status, "task"));
  const char *device =
      json_string_value(json_object_get(json_array_get(json_object_get(e->status, "devices"), 0), "name"));
  if (*e->name || (!name && !device)) return;
  td_free(e->name);
  e->name = name ? td_strdup(name) : task_of_device(device);
}

/* The tasks of the cluster that the first one named, but itself. */
static void add_peers(cluster *c) {
  char *own = td_strdup(c->items[0].name);
  json_t *jobs = json_incref(json_object_get(c->items[0].status, "cluster")), *tasks, *address;
  const char *job, *index;
  json_object_foreach(jobs, job, tasks) {
    json_object_foreach(tasks, index, address) {
      char *name = td_asprintf("/job:%s/replica:0/task:%s", job, index);
      if (strcmp(name, own) && json_is_string(address) && c->count < MAX_TASKS)
        add_entry(c, json_string_value(address), name);
      td_free(name);
    }
  }
  json_decref(jobs);
  td_free(own);
}

/* ---- output ---- */

static json_t *entry_json(const entry *e) {
  json_t *j = json_object();
  if (*e->name) json_object_set_new(j, "task", json_string(e->name));
  json_object_set_new(j, "address", json_string(e->address));
  json_object_set_new(j, "up", json_boolean(e->status));
  if (e->status) json_object_update_missing(j, e->status);
  json_object_del(j, "cluster");
  if (e->error) json_object_set_new(j, "error", json_string(td_status_message(e->error)));
  return j;
}

static void print_json(const cluster *c) {
  json_t *root = json_object(), *tasks = json_array(), *jobs = json_object_get(c->items[0].status, "cluster");
  for (size_t i = 0; i < c->count; i++) json_array_append_new(tasks, entry_json(&c->items[i]));
  if (jobs) json_object_set(root, "cluster", jobs);
  json_object_set_new(root, "tasks", tasks);
  json_dumpf(root, stdout, JSON_INDENT(2));
  putchar('\n');
  json_decref(root);
}

static void format_seconds(double s, char *out, size_t size) {
  long n = (long)s;
  if (n < 120)
    snprintf(out, size, "%lds", n);
  else if (n < 7200)
    snprintf(out, size, "%ldm%02lds", n / 60, n % 60);
  else if (n < 172800)
    snprintf(out, size, "%ldh%02ldm", n / 3600, n / 60 % 60);
  else
    snprintf(out, size, "%ldd%02ldh", n / 86400, n / 3600 % 24);
}

static void print_entry(const entry *e) {
  json_t *s = e->status, *devices = json_object_get(s, "devices"), *d;
  char task[64], uptime[24] = "-", sessions[32] = "-", memory[24] = "-";
  snprintf(task, sizeof task, "%.60s", *e->name ? e->name : "-");
  if (!s) {
    printf("%-36s %-22s %-12s %s\n", task, e->address, "down", td_status_message(e->error));
    return;
  }
  if (json_object_get(s, "uptime_s")) {
    format_seconds(json_number_value(json_object_get(s, "uptime_s")), uptime, sizeof uptime);
    snprintf(sessions, sizeof sessions, "%lld/%lld",
             (long long)json_integer_value(json_object_get(s, "master_sessions")),
             (long long)json_integer_value(json_object_get(s, "worker_sessions")));
    snprintf(memory, sizeof memory, "%.1f MB",
             (double)json_integer_value(json_object_get(json_object_get(s, "memory"), "resident_bytes")) / 1e6);
  }
  const char *version = json_string_value(json_object_get(s, "version"));
  printf("%-36s %-22s %-12s %-9s %-9s %-10s", task, e->address, version ? version : "-", uptime, sessions, memory);
  size_t i;
  json_array_foreach(devices, i, d) {
    const char *name = json_string_value(json_object_get(d, "name")), *device = name ? strstr(name, "/device:") : NULL;
    printf("%s%s", i ? "," : " ", device ? device + strlen("/device:") : "?");
  }
  putchar('\n');
}

enum { SHOWN_WAITS = 20 }; /* of a task; --json has all */

static void print_waits(const entry *e) {
  json_t *waits = json_object_get(e->status, "waits"), *w;
  size_t i, more = (size_t)json_integer_value(json_object_get(e->status, "more_waits"));
  if (!json_array_size(waits)) return;
  printf("\n%s waits:\n", e->name);
  json_array_foreach(waits, i, w) {
    if (i == SHOWN_WAITS) break;
    char since[24];
    const char *step = json_string_value(json_object_get(w, "step"));
    const char *kind = json_string_value(json_object_get(w, "kind"));
    const char *what = json_string_value(json_object_get(w, "for"));
    format_seconds(json_number_value(json_object_get(w, "since_s")), since, sizeof since);
    printf("  %-7s %-20s %-12s %s\n", since, step ? step : "-", kind ? kind : "-", what ? what : "-");
  }
  more += json_array_size(waits) - i;
  if (more) printf("  and %zu more\n", more);
}

static void print_table(const cluster *c) {
  printf("%-36s %-22s %-12s %-9s %-9s %-10s %s\n", "TASK", "ADDRESS", "VERSION", "UPTIME", "SESSIONS", "MEMORY",
         "DEVICES");
  for (size_t i = 0; i < c->count; i++) print_entry(&c->items[i]);
  for (size_t i = 0; i < c->count; i++) print_waits(&c->items[i]);
}

/* ---- the command ---- */

static void print_help(FILE *out) {
  fputs(
      "Usage: tensorctl status grpc://HOST:PORT [--json] [--timeout=SECONDS]\n"
      "\n"
      "Asks a task for its cluster and all tasks of that for their state: version, uptime, sessions (as master/as\n"
      "worker), resident memory, devices, and what has waited for a second or more: since when, in which step, for\n"
      "what. Of a TensorFlow server only the devices can be told.\n"
      "\n"
      "  --json              everything that is known, as one JSON object\n"
      "  --timeout=SECONDS   how long to wait for answers (default: 5)\n"
      "\n"
      "Exit status: 0 if the task answered, 1 if not, 2 for wrong arguments.\n",
      out);
}

static int run_status(const char *address, double timeout_s, bool as_json) {
  cluster c = {0};
  td_loop *loop;
  td_status s = td_loop_create("status", NULL, &loop);
  if (s) {
    fprintf(stderr, "tensorctl: %s\n", td_status_message(s));
    td_status_free(s);
    return TD_EXIT_FAILED;
  }
  add_entry(&c, address, "");
  ask_all(loop, timeout_s, c.items, 1);
  bool is_up = c.items[0].status != NULL;
  if (is_up) {
    name_entry(&c.items[0]);
    add_peers(&c);
    if (c.count > 1) ask_all(loop, timeout_s, c.items + 1, c.count - 1);
  } else {
    fprintf(stderr, "tensorctl: %s: %s\n", address, td_status_message(c.items[0].error));
  }
  td_loop_stop(loop);
  td_loop_destroy(loop);
  if (as_json)
    print_json(&c);
  else if (is_up)
    print_table(&c);
  cluster_deinit(&c);
  return is_up ? TD_EXIT_OK : TD_EXIT_FAILED;
}

static int usage_error(const char *what) {
  fprintf(stderr, "tensorctl status: %s\n", what);
  print_help(stderr);
  return TD_EXIT_USAGE;
}

int td_status_command(int argc, char **argv) {
  static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                          {"timeout", required_argument, NULL, 't'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
  double timeout_s = DEFAULT_TIMEOUT_S;
  bool as_json = false;
  char *end;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
    switch (option) {
      case 'j':
        as_json = true;
        break;
      case 't':
        timeout_s = strtod(optarg, &end);
        if (*end || end == optarg || !(timeout_s > 0 && timeout_s <= 86400))
          return usage_error("--timeout: expected seconds");
        break;
      case 'h':
        print_help(stdout);
        return TD_EXIT_OK;
      default:
        return TD_EXIT_USAGE;
    }
  }
  if (optind + 1 != argc) return usage_error("expected one target");
  const char *target = argv[optind];
  return run_status(!strncmp(target, "grpc://", 7) ? target + 7 : target, timeout_s, as_json);
}

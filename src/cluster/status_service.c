#include "cluster/status_service.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/devices.h"
#include "cluster/master.h"
#include "cluster/messages.h"
#include "cluster/services.h"
#include "cluster/step_table.h"
#include "cluster/waits.h"
#include "cluster/worker_session.h"
#include "tensor/memory.h"

static const uint64_t SHOWN_AFTER_NS = 1000000000u; /* shorter waits are the ordinary way of things */

/* A field of /proc/self/status in bytes ("VmRSS:"); 0 when it cannot be read. */
static json_int_t process_bytes(const char *field) {
  FILE *f = fopen("/proc/self/status", "re");
  if (!f) return 0;
  char line[256];
  json_int_t kib = 0;
  while (fgets(line, sizeof line, f))
    if (!strncmp(line, field, strlen(field))) kib = strtoll(line + strlen(field), NULL, 10);
  fclose(f);
  return kib * 1024;
}

static json_t *memory_json(void) {
  td_memory_stats m;
  td_memory_get_stats(&m);
  return json_pack("{s:I, s:I, s:I, s:I}", "resident_bytes", process_bytes("VmRSS:"), "peak_resident_bytes",
                   process_bytes("VmHWM:"), "tensor_bytes", (json_int_t)m.buffers_in_use, "idle_tensor_bytes",
                   (json_int_t)m.buffers_idle);
}

static json_t *cluster_json(const td_cluster_spec *c) {
  json_t *jobs = json_object();
  for (size_t i = 0; i < c->task_count; i++) {
    json_t *job = json_object_get(jobs, c->tasks[i].job);
    char index[16];
    if (!job) {
      job = json_object();
      json_object_set_new(jobs, c->tasks[i].job, job);
    }
    snprintf(index, sizeof index, "%d", c->tasks[i].index);
    json_object_set_new(job, index, json_string(c->tasks[i].address));
  }
  return jobs;
}

static json_t *devices_json(const td_task *t) {
  td_arena arena = {0};
  Pb__GetStatusResponse found = PB__GET_STATUS_RESPONSE__INIT;
  td_devices_to_proto(t->devices, t->device_count, &arena, &found);
  json_t *devices = json_array();
  for (size_t i = 0; i < found.n_device_attributes; i++) {
    const Pb__DeviceAttributes *a = found.device_attributes[i];
    char incarnation[20]; /* text: JSON's numbers lose bits in many readers */
    snprintf(incarnation, sizeof incarnation, "%016llx", (unsigned long long)a->incarnation);
    json_array_append_new(
        devices, json_pack("{s:s, s:s, s:I, s:s}", "name", a->name, "type", a->device_type, "memory_limit_bytes",
                           (json_int_t)a->memory_limit, "incarnation", incarnation));
  }
  td_arena_deinit(&arena);
  return devices;
}

/* What has waited for a second or more, oldest first. */
static json_t *waits_json(const td_task *t, size_t *left_out) {
  json_t *waits = json_array();
  uint64_t now = td_now_ns();
  td_wait_list list = {.before_ns = now - SHOWN_AFTER_NS};
  td_waits_collect(t->waits, &list);
  for (size_t i = 0; i < list.count; i++) {
    const td_wait *x = &list.items[i];
    char step[24]; /* text: JSON's numbers lose bits in many readers */
    snprintf(step, sizeof step, "%lld", (long long)x->step_id);
    json_t *wait = json_pack("{s:s, s:s%, s:f}", "kind", x->kind, "for", x->what, strlen(x->what), "since_s",
                             (double)(now - x->since_ns) / 1e9);
    if (!wait) continue; /* not UTF-8 */
    if (x->step_id) json_object_set_new(wait, "step", json_string(step));
    json_array_append_new(waits, wait);
  }
  *left_out = list.left_out;
  td_wait_list_deinit(&list);
  return waits;
}

static json_t *task_json(const td_task *t) {
  size_t left_out;
  json_t *waits = waits_json(t, &left_out);
  return json_pack(
      "{s:s, s:s, s:i, s:f, s:o, s:o, s:I, s:I, s:I, s:I, s:i, s:i, s:o, s:o, s:I}", "task", t->name, "version",
      TD_VERSION, "pid", (int)getpid(), "uptime_s", (double)(td_now_ns() - t->started_ns) / 1e9, "cluster",
      cluster_json(t->cluster), "devices", devices_json(t), "master_sessions",
      (json_int_t)td_master_session_count(t->master), "master_steps", (json_int_t)td_master_step_count(t->master),
      "worker_sessions", (json_int_t)td_worker_sessions_count(t->sessions), "steps",
      (json_int_t)td_step_table_count(t->steps), "compute_threads", td_pool_threads(t->pool), "loop_threads",
      t->loop_count, "memory", memory_json(), "waits", waits, "more_waits", (json_int_t)left_out);
}

static void run_get(td_request *r) {
  json_t *status = task_json(r->task);
  char *text = status ? json_dumps(status, JSON_COMPACT) : NULL;
  json_decref(status);
  if (!text) {
    td_request_reply(r, td_resource_exhausted("no memory for the status"), NULL);
    return;
  }
  td_payload reply = {0};
  td_payload_copy(&reply, text, strlen(text));
  free(text);
  td_request_reply_bytes(r, &reply);
}

static void get(void *service, td_call *call, td_str request) { td_request_start(service, call, request, run_get); }

const td_method td_status_service_methods[] = {{.path = TD_STATUS_METHOD, .handle = get}};
const int td_status_service_method_count = TD_COUNT(td_status_service_methods);

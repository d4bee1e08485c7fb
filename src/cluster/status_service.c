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
#include "cluster/step_table.h"
#include "cluster/worker_session.h"
#include "tensor/memory.h"

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

static json_t *task_json(const td_task *t) {
  return json_pack(
      "{s:s, s:s, s:i, s:f, s:o, s:o, s:I, s:I, s:I, s:i, s:i, s:o}", "task", t->name, "version", TD_VERSION, "pid",
      (int)getpid(), "uptime_s", (double)(td_now_ns() - t->started_ns) / 1e9, "cluster", cluster_json(t->cluster),
      "devices", devices_json(t), "master_sessions", (json_int_t)td_master_session_count(t->master), "worker_sessions",
      (json_int_t)td_worker_sessions_count(t->sessions), "steps", (json_int_t)td_step_table_count(t->steps),
      "compute_threads", td_pool_threads(t->pool), "loop_threads", t->loop_count, "memory", memory_json());
}

static void get(void *service, td_call *call, td_str request) {
  json_t *status = task_json(service);
  char *text = status ? json_dumps(status, JSON_COMPACT) : NULL;
  json_decref(status);
  if (!text) {
    td_call_fail_client(call, td_resource_exhausted("no memory for the status"));
    return;
  }
  td_payload reply = {0};
  td_payload_copy(&reply, text, strlen(text));
  free(text);
  td_call_reply(call, &reply);
}

const td_method td_status_service_methods[] = {{.path = TD_STATUS_METHOD, .handle = get}};
const int td_status_service_method_count = TD_COUNT(td_status_service_methods);

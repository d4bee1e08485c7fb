#include "cluster/server.h"

#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/master.h"
#include "cluster/peers.h"
#include "cluster/recv_batch.h"
#include "cluster/services.h"
#include "cluster/status_service.h"
#include "cluster/step_sequence.h"
#include "cluster/step_table.h"
#include "cluster/transfer_log.h"
#include "cluster/waits.h"
#include "cluster/worker_session.h"
#include "collective/resolver.h"
#include "debug/debugger.h"
#include "proto/message.h"
#include "tensor/shared_memory.h"

enum {
  MAX_CONTROL_THREADS = 512,
  WORKER_IDS = 100000, /* request ids remembered, as TensorFlow does */
  MASTER_IDS = 10000,
  MAX_DEVICES = 256,
};

struct td_server {
  td_task task;
  td_arena arena; /* the default configuration */
  td_rpc_server *rpc;
  td_method *methods;
  char target[64];
};

static bool is_loopback(td_str host) {
  return td_str_is(host, "localhost") || td_str_starts(host, TD_STR("127.")) || td_str_is(host, "[::1]") ||
         td_str_is(host, "::1");
}

/* "<bind>:<port of the own address>" */
static td_status listen_address(const td_server_options *o, const td_cluster_task *self, char *out, size_t size) {
  if (o->bind && !strncmp(o->bind, "unix:", 5)) {
    snprintf(out, size, "%s", o->bind);
    return TD_STATUS_OK;
  }
  const char *colon = strrchr(self->address, ':');
  uint64_t port;
  if (!colon || !td_str_to_u64(td_str_of(colon + 1), &port) || port > 65535)
    return td_invalid_argument("Could not parse port for local server from \"%s\".", self->address);
  td_str host = td_str_n(self->address, (size_t)(colon - self->address));
  const char *bind = o->bind ? o->bind : is_loopback(host) ? "127.0.0.1" : "0.0.0.0";
  snprintf(out, size, strchr(bind, ':') && bind[0] != '[' ? "[%s]:%llu" : "%s:%llu", bind, (unsigned long long)port);
  return TD_STATUS_OK;
}

static td_status read_config(td_server *s, td_str bytes) {
  Pb__ConfigProto *config;
  TD_TRY(td_message_decode(&pb__config_proto__descriptor, bytes, &s->arena, (ProtobufCMessage **)&config));
  s->task.default_config = config;
  return TD_STATUS_OK;
}

static td_status create_devices(td_task *t, bool saves_wait_for_disk) {
  int count = 1;
  for (size_t i = 0; i < t->default_config->n_device_count; i++)
    if (!strcmp(t->default_config->device_count[i]->key, "CPU")) count = t->default_config->device_count[i]->value;
  if (count < 1 || count > MAX_DEVICES)
    return td_invalid_argument("invalid argument: device_count[\"CPU\"] is %d; 1 to %d devices can be made", count,
                               MAX_DEVICES);
  t->resources = td_resource_mgr_create(td_str_of(t->self->job));
  t->devices = td_new_array(td_device *, (size_t)count);
  td_device_name name = {.replica = 0, .task = t->self->index, .type = "CPU"};
  snprintf(name.job, sizeof name.job, "%s", t->self->job);
  for (int i = 0; i < count; i++) {
    name.id = i;
    t->devices[i] = td_device_create(&name, td_random_u64_nonzero(), t->resources);
    t->devices[i]->saves_wait_for_disk = saves_wait_for_disk;
    t->device_count++;
  }
  return TD_STATUS_OK;
}

/* Two even on small machines: a parameter server reads one worker's gradients while another waits for its weights. */
static int default_loops(int cores) { return cores < 2 ? 1 : TD_MIN(TD_MAX(cores / 4, 2), 8); }

static td_status create_threads(td_task *t, const td_server_options *o) {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
  int loops = o->loops > 0 ? o->loops : default_loops(cores);
  t->pool = td_pool_create("compute", t->name, o->threads);
  t->control = td_control_create(t->name, MAX_CONTROL_THREADS);
  t->loops = td_new_array(td_loop *, (size_t)loops);
  for (int i = 0; i < loops; i++) {
    TD_TRY(td_loop_create("loop", t->name, &t->loops[i]));
    t->loop_count++;
  }
  return TD_STATUS_OK;
}

static td_status create_rpc(td_server *s, const td_server_options *o) {
  td_task *t = &s->task;
  char address[512];
  TD_TRY(listen_address(o, t->self, address, sizeof address));
  int workers = td_worker_service_method_count, masters = td_master_service_method_count;
  int count = workers + masters + td_status_service_method_count;
  s->methods = td_new_array(td_method, (size_t)count);
  memcpy(s->methods, td_worker_service_methods, (size_t)workers * sizeof *s->methods);
  memcpy(s->methods + workers, td_master_service_methods, (size_t)masters * sizeof *s->methods);
  memcpy(s->methods + workers + masters, td_status_service_methods,
         (size_t)td_status_service_method_count * sizeof *s->methods);
  td_rpc_server_options options = {
      .loops = t->loops,
      .loop_count = t->loop_count,
      .methods = s->methods,
      .method_count = count,
      .service = t,
      .neighbours = !t->no_neighbours,
      .memory = td_shared_memory_fd,
  };
  TD_TRY(td_rpc_server_create(&options, &s->rpc));
  TD_TRY(td_rpc_server_listen(s->rpc, address, &t->bound_port));
  snprintf(s->target, sizeof s->target, "grpc://localhost:%d", t->bound_port);
  return TD_STATUS_OK;
}

static td_status find_self(td_task *t, const td_server_options *o) {
  t->cluster = td_cluster_spec_retain(o->cluster);
  if (!td_cluster_spec_task(o->cluster, o->job, -1))
    return td_error(TD_INTERNAL, "invalid argument: Job \"%s\" was not defined in cluster", o->job);
  t->self = o->task_index < 0 ? NULL : td_cluster_spec_task(o->cluster, o->job, o->task_index);
  if (!t->self)
    return td_invalid_argument("invalid argument: Task %d was not defined in job \"%s\"", o->task_index, o->job);
  t->name = t->self->name;
  return TD_STATUS_OK;
}

static td_status init(td_server *s, const td_server_options *o) {
  td_task *t = &s->task;
  t->started_ns = td_now_ns();
  t->no_neighbours = o->no_neighbours;
  t->no_optimizer = o->no_optimizer;
  TD_TRY(find_self(t, o));
  TD_TRY(read_config(s, o->config));
  TD_TRY(create_devices(t, o->saves_wait_for_disk));
  TD_TRY(create_threads(t, o));
  t->debugger =
      td_debugger_create(&(td_debugger_options){.loops = t->loops, .loop_count = t->loop_count, .pool = t->pool});
  TD_TRY(create_rpc(s, o));
  t->worker_ids = td_request_ids_create(WORKER_IDS);
  t->master_ids = td_request_ids_create(MASTER_IDS);
  t->peers = td_peers_create(t, t->cluster, t->name);
  t->steps = td_step_table_create(t);
  t->batches = td_recv_batches_create();
  t->key_sets = td_key_sets_create();
  t->transfers = td_transfer_log_create();
  t->waits = td_waits_create(t);
  t->collectives = td_resolver_create(NULL);
  t->sequences = td_step_sequences_create(t);
  t->sessions = td_worker_sessions_create(t);
  t->master = td_master_create(t);
  if (o->session_gc_ms > 0) td_master_collect_idle(t->master, (uint64_t)o->session_gc_ms * 1000000u);
  return TD_STATUS_OK;
}

td_status td_server_create(const td_server_options *options, td_server **out) {
  td_server *s = td_new(td_server);
  td_status status = init(s, options);
  if (status)
    td_server_destroy(s);
  else
    *out = s;
  return status;
}

void td_server_start(td_server *s) {
  td_waits_start(s->task.waits);
  td_rpc_server_start(s->rpc);
}

const char *td_server_target(const td_server *s) { return s->target; }

td_task *td_task_of(td_server *s) { return &s->task; }

const char *td_server_task(const td_server *s) { return s->task.name; }

void td_server_stop(td_server *s, int grace_ms) {
  td_rpc_server_stop_accepting(s->rpc);
  td_rpc_server_drain(s->rpc, td_now_ns() + (uint64_t)TD_MAX(grace_ms, 0) * 1000000u);
}

void td_server_destroy(td_server *s) {
  if (!s) return;
  td_task *t = &s->task;
  if (t->master) td_master_close_all(t->master);
  if (s->rpc) {
    td_rpc_server_stop_accepting(s->rpc);
    td_rpc_server_drain(s->rpc, td_now_ns());
  }
  if (t->control) td_control_stop(t->control);
  if (t->waits) td_waits_stop(t->waits);
  if (s->rpc) td_rpc_server_destroy(s->rpc);
  td_step_table_destroy(t->steps);
  if (t->sessions) td_worker_sessions_stop(t->sessions); /* iterators that work ahead do so on the pool */
  if (t->pool) td_pool_stop(t->pool);
  td_worker_sessions_destroy(t->sessions);
  td_peers_release(t->peers);
  for (int i = 0; i < t->loop_count; i++) td_loop_stop(t->loops[i]);
  for (int i = 0; i < t->loop_count; i++) td_loop_destroy(t->loops[i]);
  td_free(t->loops);
  td_debugger_destroy(t->debugger);
  td_pool_destroy(t->pool);
  td_control_destroy(t->control);
  td_master_destroy(t->master);
  td_resolver_release(t->collectives);
  td_step_sequences_destroy(t->sequences);
  td_recv_batches_destroy(t->batches);
  td_key_sets_destroy(t->key_sets);
  td_transfer_log_destroy(t->transfers);
  td_waits_destroy(t->waits);
  td_request_ids_destroy(t->worker_ids);
  td_request_ids_destroy(t->master_ids);
  for (int i = 0; i < t->device_count; i++) td_device_release(t->devices[i]);
  td_free(t->devices);
  td_resource_mgr_release(t->resources);
  td_cluster_spec_release(t->cluster);
  td_free(s->methods);
  td_arena_deinit(&s->arena);
  td_free(s);
}

#include "cluster/master_session.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/master_step.h"
#include "cluster/partial_step.h"
#include "graph/import.h"
#include "graph/lower.h"
#include "graph/place.h"

enum { MAX_INLINED_NODES = 200000 };

td_master_session *td_master_session_retain(td_master_session *s) {
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  return s;
}

void td_master_session_release(td_master_session *s) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  void *p;
  td_map_deinit(&s->views);
  for (size_t i = 0; td_map_next(&s->plans, &i, NULL, &p);) td_plan_release(p);
  td_map_deinit(&s->plans);
  for (size_t i = 0; i < s->callable_count; i++) td_plan_release(s->callables[i].view->plan);
  td_free(s->callables);
  td_graph_release(s->graph);
  td_peers_release(s->peers);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  pthread_mutex_destroy(&s->graph_lock);
  td_arena_deinit(&s->arena);
  td_free(s);
}

/* ---- configuration ---- */

/* The server's defaults first, the client's over them; lists concatenate. */
static void merge_config(td_session_config *out, const Pb__ConfigProto *c, td_arena *arena) {
  if (!c) return;
  if (c->allow_soft_placement) out->allow_soft_placement = true;
  if (c->log_device_placement) out->log_device_placement = true;
  if (c->isolate_session_state) out->isolate_session_state = true;
  if (c->operation_timeout_in_ms) out->operation_timeout_ms = c->operation_timeout_in_ms;
  if (c->cluster_def) out->cluster = c->cluster_def;
  if (c->graph_options) out->graph_options = c->graph_options;
  if (c->experimental) {
    if (c->experimental->share_session_state_in_clusterspec_propagation) out->share_session_state = true;
    if (c->experimental->optimize_for_static_graph) out->static_graph = true;
    if (c->experimental->collective_group_leader[0]) out->collective_leader = c->experimental->collective_group_leader;
  }
  char **filters = td_arena_array(arena, char *, out->device_filter_count + c->n_device_filters + 1);
  if (out->device_filter_count) memcpy(filters, out->device_filters, out->device_filter_count * sizeof *filters);
  for (size_t i = 0; i < c->n_device_filters; i++) filters[out->device_filter_count + i] = c->device_filters[i];
  out->device_filters = filters;
  out->device_filter_count += c->n_device_filters;
}

static td_status check_config(const Pb__ConfigProto *c) {
  if (c && (c->use_per_session_threads || c->n_session_inter_op_thread_pool))
    return td_invalid_argument("Distributed session does not support session thread pool options.");
  if (c && c->graph_options && c->graph_options->place_pruned_graph)
    td_warn("Distributed session does not support the place_pruned_graph option.");
  return TD_STATUS_OK;
}

/* ---- cluster-spec propagation ---- */

/* Which task of the client's cluster this server is: the one whose address the client used. */
static td_status find_self(td_task *task, const td_cluster_spec *cluster, const char *target,
                           const td_cluster_task **out) {
  td_str address = td_str_of(target);
  if (td_str_starts(address, TD_STR("grpc://"))) address = td_str_n(address.data + 7, address.size - 7);
  const td_cluster_task *self = NULL;
  for (size_t i = 0; i < cluster->task_count; i++) {
    if (!td_str_is(address, cluster->tasks[i].address)) continue;
    if (self)
      return td_invalid_argument(
          "Found multiple matching tasks that correspond to to the master. Master target: '%s'. ClusterDef: %s and %s",
          target, self->name, cluster->tasks[i].name);
    self = &cluster->tasks[i];
  }
  if (!self)
    return td_invalid_argument(
        "The master (current machine) is not included in the provided cluster_def. Master target: '%s', %zu tasks",
        target, cluster->task_count);
  if (!strcmp(self->job, task->self->job) && self->index == task->self->index)
    return td_invalid_argument(
        "The ClusterSpec names the job and task index to be the same names that were provided when the server booted. "
        "This "
        "is currently not allowed. Job: %s, task index: %d",
        self->job, self->index);
  *out = self;
  return TD_STATUS_OK;
}

static td_status choose_peers(td_master_session *s, const char *target) {
  if (!s->config.cluster) {
    s->peers = td_peers_retain(s->task->peers);
    return TD_STATUS_OK;
  }
  td_cluster_spec *cluster;
  const td_cluster_task *self = NULL;
  TD_TRY(td_cluster_spec_from_proto(s->config.cluster, &cluster));
  td_status status = find_self(s->task, cluster, target, &self);
  if (!status) s->peers = td_peers_create(s->task, cluster, self->name);
  td_cluster_spec_release(cluster);
  return status;
}

/* Makes the worker session on every task; with propagation each is told who it is. */
static td_status open_worker_sessions(td_master_session *s, const atomic_bool *gave_up) {
  td_status status = TD_STATUS_OK;
  Pb__CreateWorkerSessionRequest request = PB__CREATE_WORKER_SESSION_REQUEST__INIT;
  request.session_handle = s->handle;
  request.isolate_session_state = s->config.isolate_session_state;
  Pb__ServerDef def = PB__SERVER_DEF__INIT;
  Pb__ConfigProto config = PB__CONFIG_PROTO__INIT;
  Pb__ConfigProto__Experimental experimental = PB__CONFIG_PROTO__EXPERIMENTAL__INIT;
  if (s->config.collective_leader) { /* whom to ask; TensorFlow's workers have it from their own configuration */
    experimental.collective_group_leader = (char *)s->config.collective_leader;
    config.experimental = &experimental;
    def.default_session_config = &config;
    request.server_def = &def;
  }
  if (!s->config.cluster) {
    /* A worker that knew this task by another incarnation drops what that one left. In a propagated cluster the name is
     * the client's choice, and another cluster's master may have the same. */
    request.master_task = (char *)td_peers_own_name(s->peers);
    request.master_incarnation = (int64_t)s->client_incarnation;
    return td_call_all(s->task, s->devices.workers, s->devices.worker_count, TD_WORKER_CREATE_SESSION, &request.base,
                       TD_NO_DEADLINE, gave_up);
  }
  request.isolate_session_state = !s->config.share_session_state;
  def.cluster = (Pb__ClusterDef *)s->config.cluster;
  def.protocol = "grpc";
  request.server_def = &def;
  for (size_t i = 0; !status && i < s->devices.worker_count; i++) {
    const td_cluster_task *t =
        td_cluster_spec_find(td_peers_cluster(s->peers), td_str_of(s->devices.workers[i]->task_name));
    def.job_name = t->job;
    def.task_index = t->index;
    status = td_call_all(s->task, &s->devices.workers[i], 1, TD_WORKER_CREATE_SESSION, &request.base, TD_NO_DEADLINE,
                         gave_up);
  }
  return status;
}

static void close_worker_sessions(td_master_session *s, uint64_t deadline_ns) {
  Pb__DeleteWorkerSessionRequest request = PB__DELETE_WORKER_SESSION_REQUEST__INIT;
  request.session_handle = s->handle;
  td_status status = td_call_all(s->task, s->devices.workers, s->devices.worker_count, TD_WORKER_DELETE_SESSION,
                                 &request.base, deadline_ns, NULL);
  if (status) td_debug("session %s: deleting worker sessions: %s", s->handle, td_status_message(status));
  td_status_free(status); /* a worker that is gone has no session */
}

/* ---- graph ---- */

/* Nodes from `first` on: what functions do is placed where it has to run. */
static td_status lower(td_master_session *s, td_graph *g, size_t first) {
  const Pb__GraphOptions *o = s->config.graph_options;
  td_lower_options options = {.inline_all = o && o->optimizer_options && o->optimizer_options->do_function_inlining,
                              .max_nodes = MAX_INLINED_NODES + 4 * g->node_count};
  return td_graph_lower(g, first, &options);
}

/* Every node that may move is placed again. */
static td_status place(td_master_session *s, td_graph *g) {
  td_arena arena = {0};
  td_place_device *devices = td_arena_array(&arena, td_place_device, s->devices.count + 1);
  size_t n = 0;
  for (size_t i = 0; i < s->devices.count; i++) {
    const Pb__DeviceAttributes *a = &s->devices.items[i].attributes;
    td_place_device *d = &devices[n];
    if (!td_device_name_parse(td_str_of(a->name), &d->parsed)) continue;
    d->name = td_str_of(a->name);
    d->type = td_str_of(a->device_type);
    d->incarnation = a->incarnation;
    n++;
  }
  td_place_options options = {
      .devices = devices,
      .device_count = n,
      .own_task_device = s->client_device,
      .allow_soft_placement = s->config.allow_soft_placement,
      .log_placement = s->config.log_device_placement,
  };
  td_status status = td_graph_place(g, &options);
  td_arena_deinit(&arena);
  return status;
}

static td_status take_client_device(td_master_session *s) {
  for (size_t i = 0; i < s->devices.count; i++) {
    const td_found_device *d = &s->devices.items[i];
    if (!d->worker->is_self) continue;
    s->client_device = td_str_of(d->attributes.name);
    s->client_incarnation = d->attributes.incarnation;
    return TD_STATUS_OK;
  }
  return td_internal("this task has no device");
}

static td_status create(td_master_session *s, const Pb__CreateSessionRequest *request, const atomic_bool *gave_up) {
  static const Pb__GraphDef empty = PB__GRAPH_DEF__INIT;
  TD_TRY(check_config(request->config));
  merge_config(&s->config, s->task->default_config, &s->arena);
  merge_config(&s->config, request->config, &s->arena);
  TD_TRY(choose_peers(s, request->target));
  /* The graph is read before anyone is waited for: a bad one fails at once. It takes over the arena in which all of the
   * request lies, the configuration too, and the session keeps the graph to its end. */
  TD_TRY(
      td_graph_import(request->graph_def ? request->graph_def : &empty, &s->arena, &(td_import_options){0}, &s->graph));
  TD_TRY(td_discover_devices(s->task, s->peers, s->config.device_filters, s->config.device_filter_count, gave_up,
                             &s->arena, &s->devices));
  TD_TRY(take_client_device(s));
  TD_TRY(lower(s, s->graph, 0));
  TD_TRY(place(s, s->graph));
  td_status status = open_worker_sessions(s, gave_up);
  if (status) close_worker_sessions(s, td_now_ns() + TD_CLOSE_NS);
  return status;
}

td_status td_master_session_create(td_task *task, td_arena *arena, const Pb__CreateSessionRequest *request,
                                   const atomic_bool *gave_up, td_master_session **out) {
  td_master_session *s = td_new(td_master_session);
  atomic_init(&s->refs, 1);
  s->task = task;
  s->arena = *arena;
  *arena = (td_arena){0};
  snprintf(s->handle, sizeof s->handle, "%016llx", (unsigned long long)td_random_u64_nonzero());
  pthread_mutex_init(&s->graph_lock, NULL);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  td_status status = create(s, request, gave_up);
  if (status)
    td_master_session_release(s);
  else
    *out = s;
  return status;
}

bool td_master_session_is_closed(td_master_session *s) {
  pthread_mutex_lock(&s->lock);
  bool is_closed = s->is_closed;
  pthread_mutex_unlock(&s->lock);
  return is_closed;
}

/* ---- ExtendSession ---- */

/* What an extension changes, to put it back. */
typedef struct undo {
  size_t node_count;
  td_str *devices;
  td_library *library;
  int32_t producer, min_consumer;
} undo;

static undo remember(td_graph *g, td_arena *arena) {
  undo u = {g->node_count, td_arena_array(arena, td_str, g->node_count + 1), td_library_retain(g->library), g->producer,
            g->min_consumer};
  for (size_t i = 0; i < g->node_count; i++) u.devices[i] = g->nodes[i]->device;
  return u;
}

static void put_back(td_graph *g, const undo *u) {
  for (size_t i = u->node_count; i < g->node_count; i++)
    if (!g->nodes[i]->is_removed) td_graph_remove_node(g, g->nodes[i]);
  for (size_t i = 0; i < u->node_count; i++) g->nodes[i]->device = u->devices[i];
  if (g->library != u->library) {
    td_library_release(g->library);
    g->library = td_library_retain(u->library);
  }
  g->producer = u->producer;
  g->min_consumer = u->min_consumer;
}

static td_status extend(td_master_session *s, td_arena *arena, const Pb__ExtendSessionRequest *request) {
  static const Pb__GraphDef empty = PB__GRAPH_DEF__INIT;
  if (td_master_session_is_closed(s)) return td_failed_precondition("Session is closed.");
  if (s->config.static_graph)
    return td_failed_precondition("Extending the graph is not supported when `optimize_for_static_graph` is true.");
  if (request->current_graph_version != s->graph_version)
    return td_aborted("Current version is %lld but caller expected %lld.", (long long)s->graph_version,
                      (long long)request->current_graph_version);
  td_graph *g = s->graph;
  td_arena scratch = {0};
  undo u = remember(g, &scratch);
  td_status status = td_graph_extend(g, request->graph_def ? request->graph_def : &empty, arena);
  if (!status) {
    status = lower(s, g, u.node_count);
    if (status) put_back(g, &u);
  }
  if (!status) {
    for (size_t i = 0; i < u.node_count; i++)
      if (!g->nodes[i]->is_removed && !(g->nodes[i]->op->flags & TD_OP_STATEFUL)) g->nodes[i]->device = (td_str){0};
    status = place(s, g);
    if (status) put_back(g, &u);
  }
  if (!status) s->graph_version++;
  td_library_release(u.library);
  td_arena_deinit(&scratch);
  return status;
}

td_status td_master_session_extend(td_master_session *s, td_arena *arena, const Pb__ExtendSessionRequest *request,
                                   int64_t *out_version) {
  pthread_mutex_lock(&s->graph_lock);
  td_status status = extend(s, arena, request);
  *out_version = s->graph_version;
  pthread_mutex_unlock(&s->graph_lock);
  return status;
}

/* ---- the end ---- */

void td_master_session_stop(td_master_session *s) {
  pthread_mutex_lock(&s->lock);
  s->is_closed = true;
  for (td_master_step *st = s->steps; st; st = st->next) td_master_step_close(st);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

void td_master_session_collect(td_master_session *s) {
  pthread_mutex_lock(&s->lock);
  s->is_collected = true;
  pthread_mutex_unlock(&s->lock);
  td_master_session_stop(s);
}

void td_master_session_close(td_master_session *s, uint64_t deadline_ns) {
  td_master_session_stop(s);
  pthread_mutex_lock(&s->lock);
  while (s->running) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
  td_partial_steps_end(s);
  close_worker_sessions(s, deadline_ns);
}

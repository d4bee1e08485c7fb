#include "cluster/graph_mgr.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/mem.h"
#include "cluster/endpoints.h"
#include "cluster/remote_function.h"
#include "cluster/remote_rendezvous.h"
#include "cluster/step_sequence.h"
#include "cluster/step_table.h"
#include "collective/op.h"
#include "framework/session_state.h"
#include "graph/partition.h"
#include "proto/message.h"
#include "runtime/cost_model.h"
#include "runtime/executor.h"
#include "runtime/function_runtime.h"
#include "runtime/step_stats.h"

enum { MAX_GRAPHS = 100000 }; /* of a session */
static const uint64_t DEBUG_GRACE_NS = 2000000000u;

struct td_registered_graph {
  atomic_uint refs;
  td_worker_session *session; /* retained */
  char handle[20];
  td_partition *partitions; /* one per device; programs[i] is partitions[i] compiled */
  td_program **programs;
  size_t count;
  td_cost_model **costs;          /* likewise; NULL: none are kept */
  td_function_runtime *functions; /* NULL when the graph's library is empty */
  bool is_watched, has_collectives;
};

const char *td_registered_graph_handle(const td_registered_graph *g) { return g->handle; }

td_registered_graph *td_registered_graph_retain(td_registered_graph *g) {
  atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
  return g;
}

void td_registered_graph_release(td_registered_graph *g) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; g->programs && i < g->count; i++) td_program_release(g->programs[i]);
  td_free(g->programs);
  for (size_t i = 0; g->costs && i < g->count; i++) td_cost_model_destroy(g->costs[i]);
  td_free(g->costs);
  if (g->functions) td_function_runtime_destroy(g->functions);
  td_partitions_free(g->partitions, g->count);
  td_worker_session_release(g->session);
  td_free(g);
}

static td_device *find_device(const td_worker_session *s, td_str name) {
  for (int i = 0; i < s->device_count; i++)
    if (td_str_is(name, s->devices[i]->name)) return s->devices[i];
  return NULL;
}

/* Incarnations of this task's own devices; others are not cut apart here. */
static uint64_t incarnation_of(void *arg, td_str device) {
  td_device *d = find_device(arg, device);
  return d ? d->incarnation : 0;
}

static td_status check_devices(const td_worker_session *s, const td_graph *g) {
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node *n = g->nodes[i];
    if (!n->is_removed && !n->device.size)
      return td_invalid_argument("Node '%.*s' is missing a device specification", TD_STR_ARG(n->def.name));
    if (!n->is_removed && !find_device(s, n->device))
      return td_invalid_argument("%.*s unknown device.", TD_STR_ARG(n->device));
  }
  return TD_STATUS_OK;
}

/* Also a graph without functions of its own may be given some, by a dataset's graph. */
static bool calls_functions(const td_graph *g) {
  if (g->library && g->library->functions.count) return true;
  for (size_t i = 0; i < g->node_count; i++)
    if (!g->nodes[i]->is_removed && td_str_is(g->nodes[i]->def.op, "DatasetFromGraph")) return true;
  return false;
}

static td_status compile(td_registered_graph *g, td_graph *whole, const td_graph_debug *debug) {
  td_worker_session *s = g->session;
  TD_TRY(check_devices(s, whole));
  g->has_collectives = td_collective_graph_key(whole) != 0;
  pthread_mutex_lock(&s->lock);
  int64_t suffix = s->next_suffix;
  s->next_suffix += (int64_t)whole->node_count; /* more than one cut can use */
  pthread_mutex_unlock(&s->lock);
  td_partition_options options = {.suffix = 'G', .next_suffix = &suffix, .incarnation = incarnation_of, .arg = s};
  TD_TRY(td_graph_partition(whole, &options, &g->partitions, &g->count));
  g->is_watched = td_watches_any(debug->watches);
  TD_TRY(td_graph_debug_prepare(s, debug, g->partitions, g->count));
  g->programs = td_new_array(td_program *, g->count);
  if (calls_functions(whole)) {
    td_function_places places = td_session_places(s);
    g->functions = td_function_runtime_create(whole->library, td_str_of(s->handle), &places);
  }
  for (size_t i = 0; i < g->count; i++) {
    td_program_options o = {
        .device = find_device(s, g->partitions[i].location),
        .kernels = s->kernels,
        .functions = g->functions,
        .session = td_str_of(s->handle),
    };
    if (!o.device) return td_invalid_argument("%.*s unknown device.", TD_STR_ARG(g->partitions[i].location));
    TD_TRY(td_program_create(g->partitions[i].graph, &o, &g->programs[i]));
  }
  return TD_STATUS_OK;
}

static void keep_costs(td_registered_graph *g) {
  g->costs = td_new_array(td_cost_model *, g->count);
  for (size_t i = 0; i < g->count; i++) g->costs[i] = td_cost_model_create(g->partitions[i].graph);
}

td_status td_graph_mgr_register(td_worker_session *s, td_graph *whole, const Pb__GraphOptions *options,
                                const td_graph_debug *debug, td_registered_graph **out) {
  td_registered_graph *g = td_new(td_registered_graph);
  atomic_init(&g->refs, 1);
  g->session = td_worker_session_retain(s);
  td_status status = compile(g, whole, debug);
  if (!status && options && options->build_cost_model > 0) keep_costs(g);
  if (!status) {
    pthread_mutex_lock(&s->lock);
    snprintf(g->handle, sizeof g->handle, "%016llx", (unsigned long long)s->next_graph++);
    if (s->is_closed)
      status = td_aborted("Session handle is not found: %s. It was closed meanwhile.", s->handle);
    else if (s->graphs.count >= MAX_GRAPHS)
      status = td_resource_exhausted("session %s has %d graphs already", s->handle, MAX_GRAPHS);
    else
      td_map_put(&s->graphs, td_str_of(g->handle), td_registered_graph_retain(g));
    pthread_mutex_unlock(&s->lock);
  }
  if (status)
    td_registered_graph_release(g);
  else
    *out = g;
  return status;
}

td_status td_graph_mgr_find(td_worker_session *s, td_str handle, td_registered_graph **out) {
  pthread_mutex_lock(&s->lock);
  td_registered_graph *g = td_map_get(&s->graphs, handle);
  if (g) td_registered_graph_retain(g);
  pthread_mutex_unlock(&s->lock);
  if (!g) return td_aborted("Graph handle is not found: %.*s", (int)TD_MIN(handle.size, (size_t)64), handle.data);
  *out = g;
  return TD_STATUS_OK;
}

td_status td_graph_mgr_deregister(td_worker_session *s, td_str handle) {
  pthread_mutex_lock(&s->lock);
  td_registered_graph *g = td_map_remove(&s->graphs, handle);
  pthread_mutex_unlock(&s->lock);
  if (!g)
    return td_aborted("Graph handle is not found: %.*s. Possibly, this worker just restarted.",
                      (int)TD_MIN(handle.size, (size_t)64), handle.data);
  td_registered_graph_release(g);
  return TD_STATUS_OK;
}

/* ---- running ---- */

typedef struct graph_run {
  td_run_graph *r;
  td_registered_graph *graph; /* retained */
  td_step_entry *entry;       /* retained */
  td_step step;
  td_collective_step collectives;
  atomic_int pending; /* programs */
  pthread_mutex_t lock;
  td_status status;             /* guarded by lock until pending is 0 */
  td_debug_run *debug;          /* of a watched graph whose master is elsewhere: the run's own */
  td_cancel_callback on_cancel; /* of that one */
} graph_run;

/* The partitions as RunMetadata.partition_graphs. */
static td_status put_partition_graphs(graph_run *run) {
  td_arena arena = {0};
  td_status s = TD_STATUS_OK;
  for (size_t i = 0; !s && i < run->graph->count; i++)
    s = td_message_encode_field(&td_graph_to_proto(run->graph->partitions[i].graph, &arena)->base, 3,
                                &run->r->metadata);
  td_arena_deinit(&arena);
  return s;
}

/* ---- a run of its own for the debugger ---- */

/* An error of the step cancels it, too: what was seen by then gets a chance to reach its listener. */
static void debug_cancelled(td_cancel_callback *c) {
  td_debug_run_cancel(TD_CONTAINER_OF(c, graph_run, on_cancel)->debug, DEBUG_GRACE_NS);
}

static void start_debug(graph_run *run) {
  if (!run->graph->is_watched) return;
  if (run->r->debug) {
    run->step.debug = td_debug_run_sink(run->r->debug);
    return;
  }
  run->debug = td_debug_run_create(run->graph->session->task->debugger);
  run->step.debug = td_debug_run_sink(run->debug);
  run->on_cancel.cancelled = debug_cancelled;
  if (!td_cancellation_register(run->entry->cancellation, &run->on_cancel)) td_debug_run_cancel(run->debug, 0);
}

static void finish(graph_run *run);

static void debug_closed(void *arg) {
  graph_run *run = arg;
  td_cancellation_unregister(run->entry->cancellation, &run->on_cancel);
  td_debug_run_release(run->debug);
  run->debug = NULL;
  finish(run);
}

static void put_stats(graph_run *run) {
  td_run_graph *r = run->r;
  const td_registered_graph *g = run->graph;
  for (size_t i = 0; g->costs && i < g->count; i++) {
    td_cost_model_update(g->costs[i], run->step.stats, g->partitions[i].location);
    td_cost_model_encode(g->costs[i], &r->cost_graph);
  }
  if (r->record_timeline) td_step_stats_encode(run->step.stats, &r->step_stats);
}

/* A tensor whose handle the client gets stays in the session. */
static bool is_fetched(void *arg, td_str node) {
  const td_run_graph *r = arg;
  for (int i = 0; i < r->recv_count; i++) {
    td_str edge = r->recv_keys[i].edge;
    if (edge.size > node.size && edge.data[node.size] == ':' && !memcmp(edge.data, node.data, node.size)) return true;
  }
  return false;
}

static bool is_not_kept(void *arg, td_str node) { return false; }

static void finish(graph_run *run) {
  td_run_graph *r = run->r;
  if (run->debug) { /* a cancel must still reach it */
    td_debug_run_close(run->debug, debug_closed, run);
    return;
  }
  td_status status = run->status;
  if (!status && r->record_partition_graphs) status = put_partition_graphs(run);
  if (!status && run->step.stats) put_stats(run);
  if (status) td_fetches_drop(r);
  td_session_state_end_step(run->graph->session->state, r->step_id, status ? is_not_kept : is_fetched, r);
  td_step_stats_destroy(run->step.stats);
  td_step_entry_release(run->entry);
  td_registered_graph_release(run->graph);
  pthread_mutex_destroy(&run->lock);
  td_free(run);
  r->done(r, status);
}

static void merge_status(graph_run *run, td_status s) {
  if (!s) return;
  pthread_mutex_lock(&run->lock);
  td_status_merge(&run->status, s);
  pthread_mutex_unlock(&run->lock);
}

static bool last_one(graph_run *run) {
  /* acq_rel: who comes last sees what the others stored */
  return atomic_fetch_sub_explicit(&run->pending, 1, memory_order_acq_rel) == 1;
}

static void fetched(void *arg, td_status status) {
  graph_run *run = arg;
  merge_status(run, status);
  finish(run);
}

static void fetch_all(graph_run *run) {
  if (run->status)
    finish(run);
  else
    td_fetches_take(run->r, td_step_rendezvous_local(run->entry->rendezvous), fetched, run);
}

static void program_done(void *arg, td_status status, td_tensor **results, int result_count) {
  graph_run *run = arg;
  for (int i = 0; i < result_count; i++) td_tensor_release(results[i]);
  merge_status(run, status);
  if (last_one(run)) fetch_all(run);
}

td_status td_graph_mgr_join(td_registered_graph *g, int64_t step_id, td_step_entry **out) {
  td_worker_session *session = g->session;
  if (g->has_collectives) td_step_table_reopen(session->task->steps, step_id);
  TD_TRY(td_step_table_get(session->task->steps, step_id, session->id, out));
  td_step_rendezvous_attach((*out)->rendezvous, session->peers);
  return TD_STATUS_OK;
}

td_session_state *td_registered_graph_session_state(const td_registered_graph *g) { return g->session->state; }

static td_buf_rendezvous *bufs_of(td_collective_step *s) {
  return td_step_entry_bufs(TD_CONTAINER_OF(s, graph_run, collectives)->entry);
}

static void prepare_collectives(graph_run *run) {
  const td_worker_session *session = run->graph->session;
  run->collectives = (td_collective_step){
      .step_id = run->entry->id,
      .task = td_peers_own_name(session->peers),
      .resolver = session->collectives,
      .bufs = bufs_of,
      .cancellation = run->entry->cancellation,
      .pool = session->task->pool,
      .net = td_collective_net_base(session->collective_net),
  };
  td_collective_step_init(&run->collectives);
}

void td_graph_mgr_run(td_registered_graph *g, td_run_graph *r) {
  td_step_entry *entry;
  td_status s = td_graph_mgr_join(g, r->step_id, &entry);
  if (s) {
    r->done(r, s);
    return;
  }
  graph_run *run = td_new(graph_run);
  run->r = r;
  run->graph = td_registered_graph_retain(g);
  run->entry = entry;
  pthread_mutex_init(&run->lock, NULL);
  prepare_collectives(run);
  run->step = (td_step){
      .id = r->step_id,
      .rendezvous = entry->rendezvous,
      .cancellation = entry->cancellation,
      .step_resources = entry->step_resources,
      .pool = g->session->task->pool,
      .functions = g->functions,
      .session = td_str_of(g->session->handle),
      .session_state = g->session->state,
      .collectives = &run->collectives.base,
      .stats = r->record_timeline || r->record_costs ? td_step_stats_create() : NULL,
  };
  start_debug(run);
  run->status = td_feeds_offer(r, g->session->state, entry->rendezvous);
  if (run->status || !g->count) {
    fetch_all(run);
    return;
  }
  size_t n = g->count; /* `run` may be gone once the last program was started */
  td_program **programs = g->programs;
  atomic_store_explicit(&run->pending, (int)n, memory_order_relaxed);
  td_registered_graph_retain(g);
  for (size_t i = 0; i < n; i++) {
    td_run_options options = {.step = &run->step, .done = program_done, .arg = run};
    td_executor_run(programs[i], &options);
  }
  td_registered_graph_release(g);
}

#include "cluster/plan.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/graph_mgr.h"
#include "cluster/master_step.h"
#include "cluster/step_sequence.h"
#include "cluster/waits.h"
#include "graph/optimize.h"
#include "graph/partition.h"
#include "graph/prune.h"
#include "graph/scheduler.h"
#include "graph/watch.h"
#include "proto/message.h"
#include "runtime/evaluator.h"

enum { POLL_MS = 100, MAX_VIEWS = 100000 };

td_plan *td_plan_retain(td_plan *p) {
  atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
  return p;
}

void td_plan_release(td_plan *p) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; i < p->partition_count; i++) {
    td_registered_graph_release(p->partitions[i].graph);
    td_free(p->partitions[i].graph_handle);
  }
  td_free(p->partitions);
  td_status_free(p->status);
  td_arena_deinit(&p->arena);
  td_free(p);
}

/* ---- names ---- */

static int by_bytes(const void *a, const void *b) { return td_str_cmp(*(const td_str *)a, *(const td_str *)b); }

/* Canonical ("a" is "a:0"), sorted, unique, in `arena`. Malformed names stay: pruning reports them. */
static td_str *canonical(td_arena *arena, const td_str *names, size_t *count, bool tensors) {
  td_str *out = td_arena_array(arena, td_str, *count + 1);
  for (size_t i = 0; i < *count; i++) {
    td_str node;
    int index;
    out[i] = tensors && td_tensor_name_parse(names[i], &node, &index)
                 ? td_str_of(td_arena_printf(arena, "%.*s:%d", TD_STR_ARG(node), index))
                 : td_arena_str(arena, names[i]);
  }
  qsort(out, *count, sizeof *out, by_bytes);
  size_t n = 0;
  for (size_t i = 0; i < *count; i++)
    if (!n || !td_str_eq(out[n - 1], out[i])) out[n++] = out[i];
  *count = n;
  return out;
}

static td_str canonical_name(td_arena *arena, td_str name) {
  size_t one = 1;
  return canonical(arena, &name, &one, true)[0];
}

/* With sizes: a name may hold any byte, and no two lists may look alike. */
static void append_list(td_strbuf *b, char kind, const td_str *names, size_t count) {
  for (size_t i = 0; i < count; i++) {
    td_strbuf_putc(b, kind);
    td_strbuf_append(b, td_str_n((const char *)&names[i].size, sizeof names[i].size));
    td_strbuf_append(b, names[i]);
  }
}

static void append_key(td_strbuf *b, const td_names *n) {
  append_list(b, 'i', n->feeds, n->feed_count);
  append_list(b, 'o', n->fetches, n->fetch_count);
  append_list(b, 't', n->targets, n->target_count);
  for (size_t i = 0; i < n->connection_count; i++) {
    append_list(b, 'f', &n->connections[i].from, 1);
    append_list(b, 'c', &n->connections[i].to, 1);
  }
  td_watches_append_key(b, n->watches);
}

static td_plan *create_plan(td_master_session *s, const td_names *n) {
  td_plan *p = td_new(td_plan);
  atomic_init(&p->refs, 1);
  p->session = s;
  p->own = -1;
  p->feed_count = n->feed_count;
  p->fetch_count = n->fetch_count;
  p->target_count = n->target_count;
  p->feeds = canonical(&p->arena, n->feeds, &p->feed_count, true);
  p->fetches = canonical(&p->arena, n->fetches, &p->fetch_count, true);
  p->targets = canonical(&p->arena, n->targets, &p->target_count, false);
  p->watches = td_arena_str(&p->arena, n->watch_bytes);
  p->connection_count = n->connection_count;
  p->connections = td_arena_array(&p->arena, td_connection, n->connection_count + 1);
  for (size_t i = 0; i < n->connection_count; i++)
    p->connections[i] = (td_connection){canonical_name(&p->arena, n->connections[i].from),
                                        canonical_name(&p->arena, n->connections[i].to)};
  td_names sorted = {p->feeds,        p->fetches, p->targets, p->feed_count,  p->fetch_count,
                     p->target_count, n->watches, p->watches, p->connections, p->connection_count};
  td_strbuf key = {0};
  append_key(&key, &sorted);
  p->signature = td_arena_str(&p->arena, td_strbuf_view(&key));
  td_strbuf_deinit(&key);
  return p;
}

static td_rendezvous_key client_key(td_master_session *s, td_arena *arena, td_str edge) {
  td_rendezvous_key key;
  td_rendezvous_key_make(arena, s->client_device, s->client_incarnation, s->client_device, edge, &key);
  return key;
}

td_plan_view *td_plan_view_of_part(td_master_session *s, td_plan *p, const td_names *n, td_arena *a) {
  td_plan_view *v = td_arena_new(a, td_plan_view);
  v->plan = p;
  v->feed_count = n->feed_count;
  v->feed_keys = td_arena_array(a, td_rendezvous_key, n->feed_count + 1);
  for (size_t i = 0; i < n->feed_count; i++) v->feed_keys[i] = client_key(s, a, canonical_name(a, n->feeds[i]));
  v->fetch_keys = td_arena_array(a, td_rendezvous_key, n->fetch_count + 1);
  v->fetch_names = td_arena_array(a, td_str, n->fetch_count + 1);
  v->fetch_slots = td_arena_array(a, int, n->fetch_count + 1);
  td_map spelt = {0}, tensors = {0};
  for (size_t i = 0; i < n->fetch_count; i++) {
    if (td_map_get(&spelt, n->fetches[i])) continue;
    td_str name = td_arena_str(a, n->fetches[i]), tensor = canonical_name(a, name);
    td_rendezvous_key *key = td_map_get(&tensors, tensor);
    if (!key) {
      key = &v->fetch_keys[v->fetch_key_count++];
      *key = client_key(s, a, tensor);
      td_map_put(&tensors, tensor, key);
    }
    td_map_put(&spelt, name, v);
    v->fetch_slots[v->fetch_count] = (int)(key - v->fetch_keys);
    v->fetch_names[v->fetch_count++] = name;
  }
  td_map_deinit(&spelt);
  td_map_deinit(&tensors);
  return v;
}

int td_plan_find_name(const td_str *names, size_t count, td_str name) {
  td_arena scratch = {0};
  td_str canon = canonical_name(&scratch, name);
  const td_str *found = bsearch(&canon, names, count, sizeof canon, by_bytes);
  td_arena_deinit(&scratch);
  return found ? (int)(found - names) : -1;
}

static td_str *strs_of(td_arena *arena, char *const *names, size_t count) {
  td_str *out = td_arena_array(arena, td_str, count + 1);
  for (size_t i = 0; i < count; i++) out[i] = td_str_of(names[i]);
  return out;
}

td_names td_names_of(td_arena *arena, char *const *feeds, size_t feed_count, char *const *fetches, size_t fetch_count,
                     char *const *targets, size_t target_count) {
  return (td_names){.feeds = strs_of(arena, feeds, feed_count),
                    .fetches = strs_of(arena, fetches, fetch_count),
                    .targets = strs_of(arena, targets, target_count),
                    .feed_count = feed_count,
                    .fetch_count = fetch_count,
                    .target_count = target_count};
}

td_status td_plan_view_get(td_master_session *s, const td_names *n, td_plan_view **out, bool *is_new) {
  td_strbuf key = {0};
  *is_new = false;
  append_key(&key, n);
  td_plan_view *v = td_map_get(&s->views, td_strbuf_view(&key));
  td_status status = TD_STATUS_OK;
  if (!v && !n->fetch_count && !n->target_count) {
    status = td_invalid_argument("Must specify at least one target to fetch or execute.");
  } else if (!v && s->views.count >= MAX_VIEWS) {
    status = td_resource_exhausted("session %s has seen %d signatures of feeds, fetches and targets already", s->handle,
                                   MAX_VIEWS);
  } else if (!v) {
    td_plan *fresh = create_plan(s, n), *p = td_map_get(&s->plans, fresh->signature);
    if (fresh->feed_count != n->feed_count) { /* the same tensor twice, perhaps spelt differently */
      td_str twice = {0};
      for (size_t i = 0; i < n->feed_count; i++)
        for (size_t k = 0; k < i && !twice.data; k++)
          if (td_str_eq(canonical_name(&fresh->arena, n->feeds[i]), canonical_name(&fresh->arena, n->feeds[k])))
            twice = n->feeds[i];
      status = td_invalid_argument("Duplicated feeds: %.*s", TD_STR_ARG(twice));
      td_plan_release(fresh);
    } else {
      *is_new = !p;
      if (p)
        td_plan_release(fresh);
      else
        td_map_put(&s->plans, fresh->signature, p = fresh);
      /* The plan's arena is touched only with the session's lock held once the plan is in the table, and building uses
       * arenas of its own. */
      v = td_plan_view_of_part(s, p, n, &p->arena);
      v->key = td_arena_str(&p->arena, td_strbuf_view(&key));
      td_map_put(&s->views, v->key, v);
    }
  }
  td_strbuf_deinit(&key);
  *out = v;
  return status;
}

/* ---- building ---- */

static uint64_t incarnation_of(void *arg, td_str device) {
  td_master_session *s = arg;
  for (size_t i = 0; i < s->devices.count; i++)
    if (td_str_is(device, s->devices.items[i].attributes.name)) return s->devices.items[i].attributes.incarnation;
  return 0;
}

static td_frame_dialect dialect_of(void *arg, td_str task) {
  td_master_session *s = arg;
  td_worker *w = td_peers_find(s->peers, task);
  return w ? w->ops->dialect(w) : TD_FRAMES_ANY;
}

/* Nodes that are watched have to be there: such a plan runs as it was written. */
static void optimize(const td_plan *p, td_graph *client) {
  const td_master_session *s = p->session;
  td_optimize_options o = td_optimize_options_of(s->config.graph_options);
  if (s->task->no_optimizer || p->watches.size || !td_optimize_wants_any(&o)) return;
  o.targets = p->targets;
  o.target_count = p->target_count;
  o.evaluator = td_evaluator_create(s->task->devices[0]);
  td_graph_optimize(client, &o);
  td_evaluator_destroy(o.evaluator);
}

/* Prunes, optimises and cuts the session's graph. */
static td_status cut(td_plan *p, td_partition **parts, size_t *count) {
  td_master_session *s = p->session;
  td_graph *client = NULL;
  td_prune_options prune = {
      .feeds = p->feeds,
      .fetches = p->fetches,
      .targets = p->targets,
      .feed_count = p->feed_count,
      .fetch_count = p->fetch_count,
      .target_count = p->target_count,
      .client_device = s->client_device,
      .client_incarnation = s->client_incarnation,
      .connections = p->connections,
      .connection_count = p->connection_count,
  };
  td_partition_options partition = {.by_task = true,
                                    .suffix = 'S',
                                    .next_suffix = &s->next_suffix,
                                    .incarnation = incarnation_of,
                                    .dialect = dialect_of,
                                    .relay = s->client_device,
                                    .arg = s};
  pthread_mutex_lock(&s->graph_lock);
  td_status status = td_graph_prune(s->graph, &prune, &client);
  if (!status) p->collective_key = td_collective_graph_key(client);
  if (!status) optimize(p, client);
  if (!status && s->config.graph_options && s->config.graph_options->enable_recv_scheduling) td_graph_schedule(client);
  if (!status) status = td_graph_partition(client, &partition, parts, count);
  td_graph_release(client);
  pthread_mutex_unlock(&s->graph_lock);
  return status;
}

typedef struct registration {
  td_worker_call call;
  Pb__RegisterGraphRequest request;
  td_plan_partition *partition;
  td_latch *latch;
  atomic_bool is_done;
} registration;

static void registered(td_worker_call *call, td_status status, const ProtobufCMessage *reply) {
  registration *r = TD_CONTAINER_OF(call, registration, call);
  if (status) {
    status = td_status_prepend(status, "From %s:\n", r->partition->worker->task_name);
  } else if (call->registered) {
    r->partition->graph = call->registered;
  } else {
    r->partition->graph_handle = td_strdup(((const Pb__RegisterGraphResponse *)reply)->graph_handle);
  }
  atomic_store(&r->is_done, true);
  td_latch_done(r->latch, status);
}

/* Those who still compile, for `tensorctl status`. */
typedef struct registrations {
  td_control_wait wait;
  const registration *items;
  size_t count;
} registrations;

static void each_compiling(td_control_wait *w, void (*visit)(void *arg, const char *task), void *arg) {
  const registrations *r = TD_CONTAINER_OF(w, registrations, wait);
  for (size_t i = 0; i < r->count; i++)
    if (!atomic_load(&r->items[i].is_done)) visit(arg, r->items[i].partition->worker->task_name);
}

/* Waits; gives up on the peers when the session closes, so that a task that is stuck does not hold it open. */
static td_status wait_registered(td_master_session *s, td_latch *latch, registration *regs, size_t count) {
  bool all;
  registrations wait = {.wait = {.kind = "plan", .what = "to compile its part of a graph", .each = each_compiling},
                        .items = regs,
                        .count = count};
  td_control_wait_begin(s->task->waits, &wait.wait);
  while (!(all = td_latch_wait_until(latch, td_now_ns() + POLL_MS * 1000000ull)) && !td_master_session_is_closed(s))
    ;
  for (size_t i = 0; !all && i < count; i++)
    if (regs[i].call.handle) td_client_call_cancel(regs[i].call.handle);
  td_status status = td_latch_wait(latch);
  td_control_wait_end(s->task->waits, &wait.wait);
  for (size_t i = 0; i < count; i++)
    if (regs[i].call.handle) td_client_call_release(regs[i].call.handle);
  return status;
}

/* Everyone compiles at the same time: requests go out to the others before this task does its own. */
static td_status register_all(td_plan *p, td_partition *parts, Pb__DebugOptions *watches, td_debug_run *debug) {
  td_master_session *s = p->session;
  td_arena arena = {0};
  td_latch latch;
  registration *regs = td_arena_array(&arena, registration, p->partition_count);
  td_latch_init(&latch, (int)p->partition_count);
  for (int own = 0; own < 2; own++) {
    for (size_t i = 0; i < p->partition_count; i++) {
      registration *r = &regs[i];
      td_worker *w = p->partitions[i].worker;
      if (w->is_self != (bool)own) continue;
      pb__register_graph_request__init(&r->request);
      r->request.session_handle = s->handle;
      r->request.create_worker_session_called = true;
      r->request.graph_options = (Pb__GraphOptions *)s->config.graph_options;
      r->request.debug_options = watches;
      r->request.collective_graph_key = p->collective_key;
      if (!own) {
        r->request.graph_def = td_graph_to_proto(parts[i].graph, &arena);
        td_graph_def_trim(r->request.graph_def, &arena);
      }
      r->partition = &p->partitions[i];
      r->latch = &latch;
      r->call = (td_worker_call){.method = TD_WORKER_REGISTER_GRAPH,
                                 .request = &r->request.base,
                                 .deadline_ns = TD_NO_DEADLINE,
                                 .graph = parts[i].graph,
                                 .debug = debug,
                                 .done = registered};
      w->ops->call(w, &r->call);
    }
  }
  td_status status = wait_registered(s, &latch, regs, p->partition_count);
  td_latch_deinit(&latch);
  td_arena_deinit(&arena);
  return status;
}

/* Takes back what other tasks have registered of a plan that failed: it may be tried again any number of times. */
static void deregister_all(td_plan *p) {
  for (size_t i = 0; i < p->partition_count; i++) {
    const td_plan_partition *part = &p->partitions[i];
    if (!part->graph && !part->graph_handle) continue;
    Pb__DeregisterGraphRequest request = PB__DEREGISTER_GRAPH_REQUEST__INIT;
    request.session_handle = p->session->handle;
    request.create_worker_session_called = true;
    request.graph_handle = part->graph ? (char *)td_registered_graph_handle(part->graph) : part->graph_handle;
    td_status_free(td_call_all(p->session->task, &part->worker, 1, TD_WORKER_DEREGISTER_GRAPH, &request.base,
                               td_now_ns() + TD_CLOSE_NS, NULL));
  }
}

static td_status build(td_plan *p, td_debug_run *debug) {
  td_master_session *s = p->session;
  td_partition *parts = NULL;
  size_t count = 0;
  td_arena arena = {0};
  Pb__DebugOptions *watches = NULL;
  td_status status = TD_STATUS_OK;
  if (p->watches.size)
    TD_TRY_GOTO(td_message_decode(&pb__debug_options__descriptor, p->watches, &arena, (ProtobufCMessage **)&watches));
  TD_TRY_GOTO(cut(p, &parts, &count));
  p->partitions = td_new_array(td_plan_partition, count);
  p->partition_count = count;
  for (size_t i = 0; i < count; i++) {
    td_worker *w = p->partitions[i].worker = td_peers_find(s->peers, parts[i].location);
    if (!w) {
      p->partition_count = i;
      TD_TRY_GOTO(td_internal("No worker known as %.*s", TD_STR_ARG(parts[i].location)));
    }
    if (w->is_self) p->own = (int)i;
  }
  status = register_all(p, parts, watches, debug);
  if (status) deregister_all(p);
cleanup:
  td_partitions_free(parts, count);
  td_arena_deinit(&arena);
  return status;
}

/* A plan that failed leaves the tables, so that the signature can be tried again (a worker may be back by then). Who
 * waits still holds it. With the lock held. */
static void forget(td_master_session *s, td_plan *p) {
  td_map_remove(&s->plans, p->signature);
  bool again;
  do {
    void *v;
    again = false;
    for (size_t i = 0; td_map_next(&s->views, &i, NULL, &v);) {
      if (((td_plan_view *)v)->plan != p) continue;
      td_map_remove(&s->views, ((td_plan_view *)v)->key);
      again = true;
      break;
    }
  } while (again);
}

/* The plan is ready, or has failed with `status` (consumed). */
static void settle(td_plan *p, td_status status) {
  td_master_session *s = p->session;
  p->status = status;
  td_plan_retain(p);
  pthread_mutex_lock(&s->lock);
  p->is_ready = true;
  td_master_step *waiting = p->waiting;
  p->waiting = NULL;
  if (p->status) forget(s, p);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  while (waiting) {
    td_master_step *next = waiting->next_waiting;
    td_master_step_plan_ready(waiting);
    waiting = next;
  }
  if (p->status) td_plan_release(p); /* the tables' reference */
  td_plan_release(p);
}

void td_plan_build(td_plan *p, td_debug_run *debug) { settle(p, build(p, debug)); }

void td_plan_fail(td_plan *p, td_status status) { settle(p, status); }

typedef struct build_work {
  td_work work;
  td_master_session *session;
  td_plan *plan;
  td_debug_run *debug;
} build_work;

static void run_build(td_work *w) {
  build_work *b = TD_CONTAINER_OF(w, build_work, work);
  td_plan_build(b->plan, b->debug);
  td_debug_run_release(b->debug);
  td_plan_release(b->plan);
  td_master_session_release(b->session);
  td_free(b);
}

void td_plan_start_build(td_plan *p, td_debug_run *debug) {
  td_master_session *s = p->session;
  build_work *b = td_new(build_work);
  b->work.run = run_build;
  b->session = td_master_session_retain(s);
  b->plan = td_plan_retain(p);
  b->debug = debug ? td_debug_run_retain(debug) : NULL;
  if (td_control_run(s->task->control, &b->work)) return;
  td_plan_fail(p,
               td_resource_exhausted("too many control operations run at %s, or it is shutting down", s->task->name));
  td_plan_release(p);
  td_debug_run_release(b->debug);
  td_master_session_release(s);
  td_free(b);
}

td_status td_plan_view_wait(td_master_session *s, const td_names *names, td_plan_view **out) {
  td_plan_view *view;
  bool is_new;
  pthread_mutex_lock(&s->lock);
  td_status status =
      s->is_closed ? td_failed_precondition("Session is closed.") : td_plan_view_get(s, names, &view, &is_new);
  td_plan *plan = status ? NULL : td_plan_retain(view->plan);
  pthread_mutex_unlock(&s->lock);
  if (status) return status;
  if (is_new) td_plan_build(plan, NULL);
  pthread_mutex_lock(&s->lock); /* it may be in the making for a step that came before */
  while (!plan->is_ready && !s->is_closed) pthread_cond_wait(&s->changed, &s->lock);
  status = plan->is_ready ? td_status_retain(plan->status) : td_failed_precondition("Session is closed.");
  pthread_mutex_unlock(&s->lock);
  if (status)
    td_plan_release(plan);
  else
    *out = view;
  return status;
}

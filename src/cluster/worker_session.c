#include "cluster/worker_session.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "cluster/graph_mgr.h"
#include "cluster/step_table.h"
#include "framework/session_state.h"

enum { MAX_SESSIONS = 65536, MAX_HANDLE = 256 };

struct td_worker_sessions {
  td_task *task;
  td_worker_session *shared; /* of masters without worker sessions */
  pthread_rwlock_t lock;
  td_map sessions; /* guarded by lock: handle -> td_worker_session */
};

/* Devices with this session's task name and, if isolated, resources of its own. */
static void own_devices(td_worker_session *s, const char *job, int index, bool isolated) {
  td_task *task = s->task;
  td_resource_mgr *resources =
      isolated ? td_resource_mgr_create(td_str_of(job)) : td_resource_mgr_retain(task->resources);
  for (int i = 0; i < s->device_count; i++) {
    td_device_name name = task->devices[i]->parsed;
    snprintf(name.job, sizeof name.job, "%s", job);
    name.task = index;
    s->devices[i] = td_device_create(&name, task->devices[i]->incarnation, resources);
    s->devices[i]->saves_wait_for_disk = task->devices[i]->saves_wait_for_disk;
  }
  if (isolated)
    s->own_resources = resources;
  else
    td_resource_mgr_release(resources);
}

/* The groups of a session: found out by the task that leads (ConfigProto.experimental.collective_group_leader), among
 * sessions that have none by each for itself. */
static td_resolver *choose_resolver(const td_worker_session *s, const Pb__ConfigProto *config) {
  const Pb__ConfigProto__Experimental *e = config ? config->experimental : NULL;
  if (!e || !e->collective_group_leader[0]) e = s->task->default_config->experimental;
  const char *leader = e ? e->collective_group_leader : "";
  if (leader[0] && !strcmp(leader, td_peers_own_name(s->peers))) return td_resolver_retain(s->task->collectives);
  return td_resolver_create(leader[0] ? leader : NULL);
}

/* Takes `peers`. */
static td_worker_session *create_session(td_task *task, const char *handle, td_peers *peers, const char *job, int index,
                                         bool isolated, bool renamed, const Pb__ConfigProto *config) {
  td_worker_session *s = td_new(td_worker_session);
  atomic_init(&s->refs, 1);
  static _Atomic uint64_t last_id;
  s->task = task;
  s->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
  s->handle = td_strdup(handle);
  s->peers = peers;
  s->collectives = choose_resolver(s, config);
  s->collective_net = td_collective_net_create(peers);
  s->kernels = td_kernel_cache_create();
  s->state = td_session_state_create();
  s->master_task = td_strdup("");
  s->next_graph = 1;
  pthread_mutex_init(&s->lock, NULL);
  s->device_count = task->device_count;
  s->devices = td_new_array(td_device *, (size_t)s->device_count);
  if (isolated || renamed) {
    own_devices(s, job, index, isolated);
  } else {
    for (int i = 0; i < s->device_count; i++) s->devices[i] = td_device_retain(task->devices[i]);
  }
  return s;
}

/* A graph retains its session, so a session that ends lets go of its graphs first. */
static void end_session(td_worker_session *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  td_map graphs = s->graphs;
  s->graphs = (td_map){0};
  s->is_closed = true;
  pthread_mutex_unlock(&s->lock);
  void *g;
  for (size_t i = 0; td_map_next(&graphs, &i, NULL, &g);) td_registered_graph_release(g);
  td_map_deinit(&graphs);
  td_worker_session_release(s);
}

/* The master is gone or closes the session: nobody will clean up what it left: steps, partial runs half way. */
static void end_with_steps(td_worker_session *s) {
  td_step_table_cleanup_of(s->task->steps, s->id);
  end_session(s);
}

td_worker_session *td_worker_session_retain(td_worker_session *s) {
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  return s;
}

void td_worker_session_release(td_worker_session *s) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  td_map_deinit(&s->graphs);
  td_kernel_cache_destroy(s->kernels);
  td_session_state_destroy(s->state);
  if (s->own_resources) td_resource_mgr_clear(s->own_resources);
  td_resource_mgr_release(s->own_resources);
  for (int i = 0; i < s->device_count; i++) td_device_release(s->devices[i]);
  td_free(s->devices);
  td_resolver_release(s->collectives);
  td_collective_net_release(s->collective_net);
  td_peers_release(s->peers);
  pthread_mutex_destroy(&s->lock);
  td_free(s->master_task);
  td_free(s->handle);
  td_free(s);
}

td_worker_sessions *td_worker_sessions_create(td_task *task) {
  td_worker_sessions *m = td_new(td_worker_sessions);
  m->task = task;
  pthread_rwlock_init(&m->lock, NULL);
  m->shared =
      create_session(task, "", td_peers_retain(task->peers), task->self->job, task->self->index, false, false, NULL);
  return m;
}

void td_worker_sessions_stop(td_worker_sessions *m) {
  void *v;
  pthread_rwlock_rdlock(&m->lock);
  for (size_t i = 0; td_map_next(&m->sessions, &i, NULL, &v);)
    if (((td_worker_session *)v)->own_resources) td_resource_mgr_clear(((td_worker_session *)v)->own_resources);
  pthread_rwlock_unlock(&m->lock);
  td_resource_mgr_clear(m->task->resources);
}

void td_worker_sessions_destroy(td_worker_sessions *m) {
  if (!m) return;
  void *s;
  for (size_t i = 0; td_map_next(&m->sessions, &i, NULL, &s);) end_session(s);
  td_map_deinit(&m->sessions);
  end_session(m->shared);
  pthread_rwlock_destroy(&m->lock);
  td_free(m);
}

/* The peers of a propagated cluster, in which this task has the name that the request gives it. */
static td_status propagated_peers(td_task *task, const Pb__ServerDef *def, td_peers **out) {
  td_cluster_spec *cluster;
  TD_TRY(td_cluster_spec_from_proto(def->cluster, &cluster));
  const td_cluster_task *self =
      td_cluster_spec_task(cluster, def->job_name, def->task_index < 0 ? INT32_MAX : def->task_index);
  td_status s = TD_STATUS_OK;
  if (!self)
    s = td_invalid_argument("Task %d was not defined in job \"%s\"", def->task_index, def->job_name);
  else
    *out = td_peers_create(task, cluster, self->name);
  td_cluster_spec_release(cluster);
  return s;
}

/* A new incarnation of a master has no use for what its predecessor left. With the lock held exclusively; the caller
 * ends what comes back (linked by td_worker_session.next_ended) once it has let go of the lock. */
static td_worker_session *take_sessions_of_predecessor(td_worker_sessions *m, const Pb__CreateWorkerSessionRequest *r) {
  td_worker_session *all = NULL;
  void *v;
  if (!r->master_task[0]) return NULL;
  for (size_t i = 0; td_map_next(&m->sessions, &i, NULL, &v);) {
    td_worker_session *s = v;
    if (strcmp(s->master_task, r->master_task) || s->master_incarnation == r->master_incarnation) continue;
    s->next_ended = all;
    all = s;
  }
  for (td_worker_session *s = all; s; s = s->next_ended) td_map_remove(&m->sessions, td_str_of(s->handle));
  return all;
}

td_status td_worker_sessions_open(td_worker_sessions *m, const Pb__CreateWorkerSessionRequest *r) {
  if (!r->session_handle[0]) return td_invalid_argument("Session must be non-empty.");
  if (strlen(r->session_handle) > MAX_HANDLE)
    return td_invalid_argument("Session handle of %zu bytes; at most %d are allowed", strlen(r->session_handle),
                               MAX_HANDLE);
  const Pb__ServerDef *def = r->server_def;
  bool propagated = def && def->cluster && def->cluster->n_job;
  td_peers *peers = NULL;
  if (propagated)
    TD_TRY(propagated_peers(m->task, def, &peers));
  else
    peers = td_peers_retain(m->task->peers);
  td_worker_session *s =
      create_session(m->task, r->session_handle, peers, propagated ? def->job_name : m->task->self->job,
                     propagated ? def->task_index : m->task->self->index, r->isolate_session_state, propagated,
                     def ? def->default_session_config : NULL);
  td_free(s->master_task);
  s->master_task = td_strdup(r->master_task);
  s->master_incarnation = r->master_incarnation;
  pthread_rwlock_wrlock(&m->lock);
  td_worker_session *old = take_sessions_of_predecessor(m, r);
  bool is_full = m->sessions.count >= MAX_SESSIONS;
  bool is_new = !is_full && !td_map_insert(&m->sessions, td_str_of(s->handle), s);
  pthread_rwlock_unlock(&m->lock);
  if (!is_new) td_worker_session_release(s);
  for (td_worker_session *next; old; old = next) {
    next = old->next_ended;
    td_info("session %s is dropped: its master %s has restarted", old->handle, old->master_task);
    end_with_steps(old);
  }
  return is_full ? td_resource_exhausted("%s has %d worker sessions already", m->task->name, MAX_SESSIONS)
                 : TD_STATUS_OK;
}

void td_worker_sessions_close(td_worker_sessions *m, td_str handle) {
  pthread_rwlock_wrlock(&m->lock);
  td_worker_session *s = td_map_remove(&m->sessions, handle);
  pthread_rwlock_unlock(&m->lock);
  if (s) end_with_steps(s);
}

td_status td_worker_sessions_find(td_worker_sessions *m, td_str handle, bool legacy, td_worker_session **out) {
  pthread_rwlock_rdlock(&m->lock);
  td_worker_session *s = legacy ? m->shared : td_map_get(&m->sessions, handle);
  if (s) td_worker_session_retain(s);
  pthread_rwlock_unlock(&m->lock);
  if (!s)
    return td_aborted("Session handle is not found: %.*s. Possibly this worker (\"%s\") just restarted.",
                      (int)TD_MIN(handle.size, (size_t)64), handle.data, m->task->name);
  *out = s;
  return TD_STATUS_OK;
}

void td_worker_sessions_cleanup(td_worker_sessions *m, const char *const *containers, size_t count) {
  if (!count) td_resource_mgr_cleanup(m->task->resources, (td_str){0});
  for (size_t i = 0; i < count; i++) td_resource_mgr_cleanup(m->task->resources, td_str_of(containers[i]));
}

size_t td_worker_sessions_count(td_worker_sessions *m) {
  pthread_rwlock_rdlock(&m->lock);
  size_t n = m->sessions.count;
  pthread_rwlock_unlock(&m->lock);
  return n;
}

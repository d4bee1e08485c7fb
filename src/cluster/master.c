#include "cluster/master.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum { MAX_SESSIONS = 10000 };
static const uint64_t RESET_TIMEOUT_NS = 60000000000u; /* a task that is stuck must not hold a reset for ever */

struct td_master {
  td_task *task;
  pthread_rwlock_t lock;
  /* guarded by lock */
  td_map sessions; /* handle -> td_master_session */
  bool is_closed;
  /* collecting idle sessions */
  uint64_t idle_ns; /* immutable; 0: they are kept */
  td_work collector;
  pthread_mutex_t collector_lock;
  pthread_cond_t collector_ends; /* is_stopping, guarded by collector_lock */
  bool is_stopping;
};

td_master *td_master_create(td_task *task) {
  td_master *m = td_new(td_master);
  m->task = task;
  pthread_rwlock_init(&m->lock, NULL);
  pthread_mutex_init(&m->collector_lock, NULL);
  pthread_condattr_t monotonic; /* td_now_ns()'s clock */
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&m->collector_ends, &monotonic);
  pthread_condattr_destroy(&monotonic);
  return m;
}

void td_master_destroy(td_master *m) {
  if (!m) return;
  td_map_deinit(&m->sessions);
  pthread_cond_destroy(&m->collector_ends);
  pthread_mutex_destroy(&m->collector_lock);
  pthread_rwlock_destroy(&m->lock);
  td_free(m);
}

td_status td_master_find(td_master *m, td_str handle, td_master_session **out) {
  pthread_rwlock_rdlock(&m->lock);
  td_master_session *s = td_map_get(&m->sessions, handle);
  if (s) td_master_session_retain(s);
  pthread_rwlock_unlock(&m->lock);
  if (!s) return td_aborted("Session %.*s is not found.", (int)TD_MIN(handle.size, (size_t)64), handle.data);
  /* relaxed: when it was, to a few milliseconds */
  if (m->idle_ns) atomic_store_explicit(&s->last_used_ns, td_now_ns(), memory_order_relaxed);
  *out = s;
  return TD_STATUS_OK;
}

td_status td_master_add(td_master *m, td_master_session *s) {
  td_status status = TD_STATUS_OK;
  pthread_rwlock_wrlock(&m->lock);
  if (m->is_closed)
    status = td_error(TD_UNAVAILABLE, "%s is shutting down", m->task->name);
  else if (m->sessions.count >= MAX_SESSIONS)
    status = td_resource_exhausted("%s has %d sessions already", m->task->name, MAX_SESSIONS);
  else
    td_map_put(&m->sessions, td_str_of(s->handle), td_master_session_retain(s));
  atomic_store_explicit(&s->last_used_ns, td_now_ns(), memory_order_relaxed);
  pthread_rwlock_unlock(&m->lock);
  return status;
}

td_status td_master_close(td_master *m, td_str handle) {
  pthread_rwlock_wrlock(&m->lock);
  td_master_session *s = td_map_remove(&m->sessions, handle);
  pthread_rwlock_unlock(&m->lock);
  if (!s)
    return td_aborted("Session %.*s is not found. Possibly, this master has restarted.",
                      (int)TD_MIN(handle.size, (size_t)64), handle.data);
  td_master_session_close(s, td_now_ns() + TD_CLOSE_NS);
  td_master_session_release(s);
  return TD_STATUS_OK;
}

/* Takes all sessions out of the table; they pass to the caller. */
static td_master_session **take_all(td_master *m, size_t *count) {
  void *v;
  pthread_rwlock_wrlock(&m->lock);
  td_master_session **all = td_new_array(td_master_session *, m->sessions.count);
  *count = 0;
  for (size_t i = 0; td_map_next(&m->sessions, &i, NULL, &v);) all[(*count)++] = v;
  td_map_clear(&m->sessions);
  pthread_rwlock_unlock(&m->lock);
  return all;
}

/* All stop first, so that what they wait for goes on at the same time. */
static void close_all(td_master_session **sessions, size_t count) {
  uint64_t deadline_ns = td_now_ns() + TD_CLOSE_NS;
  for (size_t i = 0; i < count; i++) td_master_session_stop(sessions[i]);
  for (size_t i = 0; i < count; i++) {
    td_master_session_close(sessions[i], deadline_ns);
    td_master_session_release(sessions[i]);
  }
  td_free(sessions);
}

void td_master_close_all(td_master *m) {
  size_t count;
  pthread_rwlock_wrlock(&m->lock);
  m->is_closed = true;
  pthread_rwlock_unlock(&m->lock);
  pthread_mutex_lock(&m->collector_lock);
  m->is_stopping = true;
  pthread_cond_signal(&m->collector_ends);
  pthread_mutex_unlock(&m->collector_lock);
  td_master_session **all = take_all(m, &count);
  close_all(all, count);
}

/* ---- idle sessions ---- */

static void collect(td_master *m) {
  void *v;
  size_t count = 0;
  uint64_t now = td_now_ns();
  pthread_rwlock_wrlock(&m->lock);
  td_master_session **idle = td_new_array(td_master_session *, m->sessions.count + 1);
  for (size_t i = 0; td_map_next(&m->sessions, &i, NULL, &v);) {
    td_master_session *s = v;
    if (now - TD_MIN(now, atomic_load_explicit(&s->last_used_ns, memory_order_relaxed)) > m->idle_ns) idle[count++] = s;
  }
  for (size_t i = 0; i < count; i++) td_map_remove(&m->sessions, td_str_of(idle[i]->handle));
  pthread_rwlock_unlock(&m->lock);
  for (size_t i = 0; i < count; i++) {
    td_info("session %s ends: it was not used for %.1f s", idle[i]->handle, (double)m->idle_ns / 1e9);
    td_master_session_collect(idle[i]);
  }
  close_all(idle, count);
}

static void run_collector(td_work *w) {
  td_master *m = TD_CONTAINER_OF(w, td_master, collector);
  pthread_mutex_lock(&m->collector_lock);
  while (!m->is_stopping) {
    uint64_t at = td_now_ns() + m->idle_ns / 4 + 1000000;
    struct timespec until = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
    pthread_cond_timedwait(&m->collector_ends, &m->collector_lock, &until);
    if (m->is_stopping) break;
    pthread_mutex_unlock(&m->collector_lock);
    collect(m);
    pthread_mutex_lock(&m->collector_lock);
  }
  pthread_mutex_unlock(&m->collector_lock);
}

void td_master_collect_idle(td_master *m, uint64_t idle_ns) {
  m->idle_ns = idle_ns;
  m->collector.run = run_collector;
  if (!td_control_run(m->task->control, &m->collector)) td_warn("idle sessions are kept: no thread to end them");
}

td_status td_master_reset(td_master *m, const Pb__ResetRequest *request, const atomic_bool *gave_up) {
  size_t count, worker_count;
  td_worker **workers;
  td_arena arena = {0};
  td_status status = td_discover_targets(m->task->peers, request->device_filters, request->n_device_filters, &arena,
                                         &workers, &worker_count);
  if (!status) {
    td_master_session **old = take_all(m, &count);
    Pb__CleanupAllRequest cleanup = PB__CLEANUP_ALL_REQUEST__INIT;
    cleanup.n_container = request->n_container;
    cleanup.container = request->container;
    status = td_call_all(m->task, workers, worker_count, TD_WORKER_CLEANUP_ALL, &cleanup.base,
                         td_now_ns() + RESET_TIMEOUT_NS, gave_up);
    if (status) td_warn("Reset: %s", td_status_message(status));
    close_all(old, count);
  }
  td_arena_deinit(&arena);
  return status;
}

static void put_devices(const td_found_devices *found, bool own_and_others, td_arena *arena,
                        Pb__ListDevicesResponse *out) {
  out->local_device = td_arena_array(arena, Pb__DeviceAttributes *, found->count + 1);
  out->remote_device = td_arena_array(arena, Pb__DeviceAttributes *, found->count + 1);
  for (size_t i = 0; i < found->count; i++) {
    Pb__DeviceAttributes *a = td_arena_alloc(arena, sizeof *a);
    *a = found->items[i].attributes;
    if (own_and_others && !found->items[i].worker->is_self)
      out->remote_device[out->n_remote_device++] = a;
    else
      out->local_device[out->n_local_device++] = a;
  }
}

td_status td_master_list_devices(td_master *m, td_str handle, td_arena *arena, const atomic_bool *gave_up,
                                 Pb__ListDevicesResponse *out) {
  if (!handle.size) {
    td_found_devices found;
    TD_TRY(td_discover_devices(m->task, m->task->peers, NULL, 0, gave_up, arena, &found));
    put_devices(&found, true, arena, out);
    return TD_STATUS_OK;
  }
  td_master_session *s;
  td_status status = td_master_find(m, handle, &s);
  if (status) {
    td_status_free(status);
    return td_invalid_argument("Session %.*s is not found. Possibly, this master has restarted.",
                               (int)TD_MIN(handle.size, (size_t)64), handle.data);
  }
  put_devices(&s->devices, s->config.cluster != NULL, arena, out);
  /* the attributes' strings lie in the session's arena, which a close may free: copy them */
  for (size_t i = 0; i < out->n_local_device + out->n_remote_device; i++) {
    Pb__DeviceAttributes *a =
        i < out->n_local_device ? out->local_device[i] : out->remote_device[i - out->n_local_device];
    a->name = td_arena_strdup(arena, a->name);
    a->device_type = td_arena_strdup(arena, a->device_type);
    a->physical_device_desc = td_arena_strdup(arena, a->physical_device_desc);
    a->locality = NULL;
  }
  td_master_session_release(s);
  return TD_STATUS_OK;
}

void td_master_visit_sessions(td_master *m, void (*visit)(void *arg, td_master_session *s), void *arg) {
  void *v;
  pthread_rwlock_rdlock(&m->lock);
  for (size_t i = 0; td_map_next(&m->sessions, &i, NULL, &v);) visit(arg, v);
  pthread_rwlock_unlock(&m->lock);
}

static void add_running(void *arg, td_master_session *s) {
  pthread_mutex_lock(&s->lock);
  *(size_t *)arg += (size_t)s->running;
  pthread_mutex_unlock(&s->lock);
}

size_t td_master_step_count(td_master *m) {
  size_t n = 0;
  td_master_visit_sessions(m, add_running, &n);
  return n;
}

size_t td_master_session_count(td_master *m) {
  pthread_rwlock_rdlock(&m->lock);
  size_t n = m->sessions.count;
  pthread_rwlock_unlock(&m->lock);
  return n;
}

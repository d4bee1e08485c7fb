#include "cluster/discovery.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/waits.h"
#include "proto/message.h"

enum { POLL_MS = 100, LOG_EVERY_S = 10 };

static td_status parse_filters(char *const *filters, size_t count, td_arena *arena, td_device_name **out) {
  *out = td_arena_array(arena, td_device_name, count + 1);
  for (size_t i = 0; i < count; i++)
    if (!td_device_name_parse(td_str_of(filters[i]), &(*out)[i]))
      return td_invalid_argument("device_filters: \"%.100s\" is no device name", filters[i]);
  return TD_STATUS_OK;
}

static bool matches_any(const td_device_name *filters, size_t count, const td_device_name *name) {
  for (size_t i = 0; i < count; i++) {
    const td_device_name *f = &filters[i];
    if ((!f->job[0] || !name->job[0] || !strcmp(f->job, name->job)) &&
        (f->replica < 0 || name->replica < 0 || f->replica == name->replica) &&
        (f->task < 0 || name->task < 0 || f->task == name->task) &&
        (!f->type[0] || !name->type[0] || !strcmp(f->type, name->type)) &&
        (f->id < 0 || name->id < 0 || f->id == name->id))
      return true;
  }
  return !count;
}

td_status td_discover_targets(td_peers *peers, char *const *filters, size_t filter_count, td_arena *arena,
                              td_worker ***out, size_t *out_count) {
  const td_cluster_spec *c = td_peers_cluster(peers);
  td_device_name *parsed;
  TD_TRY(parse_filters(filters, filter_count, arena, &parsed));
  *out = td_arena_array(arena, td_worker *, c->task_count + 1);
  size_t n = 0;
  (*out)[n++] = td_peers_self(peers);
  for (size_t i = 0; i < c->task_count; i++) {
    td_device_name name;
    if (!strcmp(c->tasks[i].name, td_peers_own_name(peers)) ||
        !td_device_name_parse(td_str_of(c->tasks[i].name), &name))
      continue;
    if (matches_any(parsed, filter_count, &name)) (*out)[n++] = td_peers_find(peers, td_str_of(c->tasks[i].name));
  }
  *out_count = n;
  return TD_STATUS_OK;
}

/* ---- asking ---- */

typedef struct question {
  td_worker_call call;
  td_worker *worker;
  td_latch *latch;
  pthread_mutex_t *lock; /* guards arena and devices */
  td_arena *arena;
  Pb__GetStatusResponse *reply; /* copied */
  atomic_bool answered;
} question;

static void answered(td_worker_call *call, td_status status, const ProtobufCMessage *reply) {
  question *q = TD_CONTAINER_OF(call, question, call);
  if (!status && q->arena) {
    td_strbuf bytes = {0};
    pthread_mutex_lock(q->lock);
    status = td_message_encode(reply, &bytes);
    if (!status)
      status = td_message_decode(&pb__get_status_response__descriptor, td_strbuf_view(&bytes), q->arena,
                                 (ProtobufCMessage **)&q->reply);
    pthread_mutex_unlock(q->lock);
    td_strbuf_deinit(&bytes);
  }
  atomic_store(&q->answered, true);
  td_latch_done(q->latch, status);
}

static void log_missing(const question *questions, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!atomic_load(&questions[i].answered))
      td_info("CreateSession still waiting for response from worker: %s", questions[i].worker->task_name);
}

/* Those who have not answered, for `tensorctl status`. */
typedef struct unanswered {
  td_control_wait base;
  const question *questions;
  size_t count;
} unanswered;

static void each_unanswered(td_control_wait *w, void (*visit)(void *arg, const char *task), void *arg) {
  const unanswered *u = TD_CONTAINER_OF(w, unanswered, base);
  for (size_t i = 0; i < u->count; i++)
    if (!atomic_load(&u->questions[i].answered)) visit(arg, u->questions[i].worker->task_name);
}

/* Waits until everything is answered. Once `gave_up`, or when `stop_early` and some task answered with an error, the
 * other calls are cancelled. The merged status passes to the caller. */
static td_status wait_for_answers(td_task *task, td_latch *latch, question *questions, size_t count, bool stop_early,
                                  const atomic_bool *gave_up) {
  uint64_t next_log = td_now_ns() + LOG_EVERY_S * 1000000000ull;
  bool all, stop = false;
  unanswered wait = {
      .base = {.kind = "task", .what = "to answer", .each = each_unanswered}, .questions = questions, .count = count};
  td_control_wait_begin(task->waits, &wait.base);
  while (!(all = td_latch_wait_until(latch, td_now_ns() + POLL_MS * 1000000ull)) && !stop) {
    pthread_mutex_lock(&latch->lock);
    stop = stop_early && latch->status;
    pthread_mutex_unlock(&latch->lock);
    stop = stop || (gave_up && atomic_load(gave_up));
    if (td_now_ns() < next_log) continue;
    log_missing(questions, count);
    next_log += LOG_EVERY_S * 1000000000ull;
  }
  for (size_t i = 0; !all && i < count; i++)
    if (questions[i].call.handle) td_client_call_cancel(questions[i].call.handle);
  td_status s = td_latch_wait(latch);
  td_control_wait_end(task->waits, &wait.base);
  for (size_t i = 0; i < count; i++)
    if (questions[i].call.handle) td_client_call_release(questions[i].call.handle);
  if (!gave_up || !atomic_load(gave_up)) return s;
  td_status_free(s);
  return td_cancelled("The call was given up by the client");
}

/* Takes the reply's devices, named after the task that was asked: propagated clusters rename tasks. */
static void add_devices(const question *q, td_arena *arena, td_found_devices *out) {
  td_device_name task, name;
  if (!q->reply || !td_device_name_parse(td_str_of(q->worker->task_name), &task)) return;
  for (size_t i = 0; i < q->reply->n_device_attributes; i++) {
    const Pb__DeviceAttributes *a = q->reply->device_attributes[i];
    if (!td_device_name_parse(td_str_of(a->name), &name) || !td_device_name_is_complete(&name)) continue;
    memcpy(name.job, task.job, sizeof name.job);
    name.replica = task.replica;
    name.task = task.task;
    char text[TD_DEVICE_NAME_MAX];
    td_device_name_format(&name, text);
    td_found_device *d = &out->items[out->count++];
    d->worker = q->worker;
    d->attributes = *a;
    d->attributes.name = td_arena_strdup(arena, text);
  }
}

td_status td_discover_devices(td_task *task, td_peers *peers, char *const *filters, size_t filter_count,
                              const atomic_bool *gave_up, td_arena *arena, td_found_devices *out) {
  *out = (td_found_devices){0};
  TD_TRY(td_discover_targets(peers, filters, filter_count, arena, &out->workers, &out->worker_count));
  size_t n = out->worker_count, devices = 0;
  question *questions = td_new_array(question, n);
  pthread_mutex_t lock;
  td_latch latch;
  pthread_mutex_init(&lock, NULL);
  td_latch_init(&latch, (int)n);
  static const Pb__GetStatusRequest request = PB__GET_STATUS_REQUEST__INIT;
  for (size_t i = 0; i < n; i++) {
    question *q = &questions[i];
    q->call = (td_worker_call){
        .method = TD_WORKER_GET_STATUS, .request = &request.base, .deadline_ns = TD_NO_DEADLINE, .done = answered};
    q->worker = out->workers[i];
    q->latch = &latch;
    q->lock = &lock;
    q->arena = arena;
    q->worker->ops->call(q->worker, &q->call);
  }
  td_status s = wait_for_answers(task, &latch, questions, n, true, gave_up);
  for (size_t i = 0; i < n; i++) devices += questions[i].reply ? questions[i].reply->n_device_attributes : 0;
  if (!s) {
    out->items = td_arena_array(arena, td_found_device, devices + 1);
    for (size_t i = 0; i < n; i++) add_devices(&questions[i], arena, out);
  }
  td_latch_deinit(&latch);
  pthread_mutex_destroy(&lock);
  td_free(questions);
  return s;
}

td_status td_call_all(td_task *task, td_worker *const *workers, size_t count, td_worker_method method,
                      const ProtobufCMessage *request, uint64_t deadline_ns, const atomic_bool *gave_up) {
  question *questions = td_new_array(question, count);
  td_latch latch;
  td_latch_init(&latch, (int)count);
  for (size_t i = 0; i < count; i++) {
    question *q = &questions[i];
    q->call = (td_worker_call){.method = method, .request = request, .deadline_ns = deadline_ns, .done = answered};
    q->worker = workers[i];
    q->latch = &latch;
    q->worker->ops->call(q->worker, &q->call);
  }
  td_status s = wait_for_answers(task, &latch, questions, count, false, gave_up);
  td_latch_deinit(&latch);
  td_free(questions);
  return s;
}

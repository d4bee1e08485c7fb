#include "cluster/master_step.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/master.h"
#include "cluster/step_reply.h"
#include "cluster/step_trace.h"

enum { DECODE_INLINE = 64 * 1024 }; /* larger requests are decoded on the pool */
/* An error that follows from another task's cancels the rest only after so long: the cause is on its way, and a
 * cancelled call would lose it. */
static const uint64_t CAUSE_NS = 1000000000u;
static const int64_t MAX_TIMEOUT_MS = (int64_t)1 << 40; /* longer is for ever */

static void step_release(td_master_step *st) {
  /* acq_rel: the last owner sees what the other wrote */
  if (atomic_fetch_sub_explicit(&st->refs, 1, memory_order_acq_rel) != 1) return;
  td_status_free(st->status);
  td_arena_deinit(&st->arena);
  td_free(st);
}

/* ---- the end ---- */

/* Everything of the step has ended, clean-up included. */
static void retire(td_master_step *st) {
  td_master_session *s = st->session;
  if (s) {
    pthread_mutex_lock(&s->lock);
    if (st->previous) st->previous->next = st->next;
    if (s->steps == st) s->steps = st->next;
    if (st->next) st->next->previous = st->previous;
    if (--s->running == 0) pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
  }
  td_step_debug_deinit(st->debug);
  st->debug = NULL;
  if (st->view) td_plan_release(st->view->plan);
  st->view = NULL;
  td_partial_step_release(st->partial);
  if (s) td_master_session_release(s);
  st->session = NULL;
  step_release(st);
}

static void drop_tensors(td_master_step *st) {
  td_named_tensors_release(&st->feeds);
  for (size_t i = 0; i < st->part_count; i++) {
    td_strbuf_deinit(&st->parts[i].run.step_stats);
    td_strbuf_deinit(&st->parts[i].run.cost_graph);
    td_strbuf_deinit(&st->parts[i].run.metadata);
  }
  td_plan *p = st->view ? st->view->plan : NULL;
  if (!st->parts || !p || p->own < 0) return;
  td_run_graph *r = &st->parts[p->own].run;
  for (int i = 0; i < r->recv_count; i++) td_tensor_release(r->recvs[i]);
}

static void stop_timers(td_master_step *st) {
  td_timer_stop(st->loop, &st->timeout);
  td_timer_stop(st->loop, &st->cause);
}

static void cleaned_up(void *arg);

/* Tells every partition to forget the step; the client has its answer by now. */
static void clean_up(td_master_step *st) {
  td_plan *p = st->view->plan;
  size_t n = p->partition_count;
  st->pending = n;
  for (size_t i = 0; i < n; i++) {
    td_worker *w = p->partitions[i].worker;
    w->ops->cleanup_graph(w, st->id, cleaned_up, st);
  }
}

static void cleaned_up(void *arg) {
  td_master_step *st = arg;
  if (--st->pending == 0) retire(st);
}

/* A step that never started its parts. Consumes `status`. */
static void end_early(td_master_step *st, td_status status) {
  if (td_step_debug_close(st, status, end_early)) return;
  stop_timers(st);
  if (st->partial) {
    pthread_mutex_lock(&st->session->lock);
    td_partial_step_undo(st->partial, &st->names);
    pthread_mutex_unlock(&st->session->lock);
  }
  td_step_answer(st, status);
  drop_tensors(st);
  retire(st);
}

/* ---- all parts are back ---- */

/* Consumes `status`; nothing if the answer was given before. */
static void finish(td_master_step *st, td_status status) {
  bool cleans = true;
  if (st->has_sequence)
    td_step_sequences_release(st->task->sequences, &st->sequence, status ? TD_SEQUENCE_FAILED : TD_SEQUENCE_DONE);
  if (st->partial) {
    pthread_mutex_lock(&st->session->lock);
    cleans = td_partial_step_leave(st->session, st->partial, status != TD_STATUS_OK);
    pthread_mutex_unlock(&st->session->lock);
  }
  td_step_answer(st, status);
  if (st->trace) td_step_trace_deinit(st->trace);
  drop_tensors(st);
  for (size_t i = 0; i < st->part_count; i++) {
    td_status_free(st->parts[i].status);
    st->parts[i].status = NULL;
  }
  if (cleans)
    clean_up(st);
  else
    retire(st);
}

static void transfers_fetched(td_master_step *st) {
  finish(st, st->status ? td_status_retain(st->status) : TD_STATUS_OK);
}

/* A step that failed is answered at once, a traced one has its transfers fetched first. Consumes `status`. */
static void answer_all_done(td_master_step *st, td_status status) {
  stop_timers(st);
  if (st->status) { /* it may have come while the debugger's streams were closed */
    td_status_free(status);
    status = td_status_retain(st->status);
  }
  if (!st->trace) {
    finish(st, status);
    return;
  }
  if (status) td_step_answer(st, status);
  st->pending = 1; /* a cancel meanwhile must not come here again */
  td_step_trace_end(st->trace, transfers_fetched);
}

static void all_done(td_master_step *st) {
  td_timer_stop(st->loop, &st->cause);
  td_status status = td_step_combine(st);
  if (!td_step_debug_close(st, status, answer_all_done)) answer_all_done(st, status);
}

static void cancel_parts(td_master_step *st) {
  if (st->is_cancelled) return;
  st->is_cancelled = true;
  st->pending++; /* a part may end inside its cancel: the last one must not end the step under this loop */
  for (size_t i = 0; i < st->part_count; i++) {
    td_step_part *part = &st->parts[i];
    td_worker *w = st->view->plan->partitions[i].worker;
    if (!part->is_done) w->ops->cancel_run_graph(w, &part->run);
  }
  if (st->trace) td_step_trace_cancel(st->trace);
  if (--st->pending == 0) all_done(st);
}

static void cause_never_came(td_timer *t) { cancel_parts(TD_CONTAINER_OF(t, td_master_step, cause)); }

/* On the loop. Consumes nothing: the status lies in the part. */
static void part_ended(td_step_part *part) {
  td_master_step *st = part->step;
  part->is_done = true;
  if (part->status) {
    td_worker *w = st->view->plan->partitions[part - st->parts].worker;
    bool is_derived = td_status_is_derived(part->status);
    part->status = td_status_prepend(part->status, "From %s:\n", w->task_name);
    if (!is_derived) {
      cancel_parts(st);
    } else if (!st->is_cancelled && !st->cause.fire) {
      st->cause.fire = cause_never_came;
      td_timer_start(st->loop, &st->cause, td_now_ns() + CAUSE_NS);
    }
  }
  if (--st->pending == 0) all_done(st);
}

static void part_arrived(td_work *w) { part_ended(TD_CONTAINER_OF(w, td_step_part, arrived)); }

static void part_done(td_run_graph *r, td_status status) {
  td_step_part *part = TD_CONTAINER_OF(r, td_step_part, run);
  part->status = status;
  if (td_loop_is_current(part->step->loop)) {
    part_ended(part);
  } else {
    part->arrived.run = part_arrived;
    td_loop_post(part->step->loop, &part->arrived);
  }
}

/* ---- running ---- */

/* Every build_cost_model-th run of a plan, counted from build_cost_model_after on (and backwards, as TensorFlow does).
 */
static bool records_costs(td_master_step *st) {
  const Pb__GraphOptions *o = st->session->config.graph_options;
  if (!o || o->build_cost_model <= 0) return false;
  int64_t count = atomic_fetch_add_explicit(&st->view->plan->runs, 1, memory_order_relaxed) + 1;
  return (int64_t)((uint64_t)count - (uint64_t)o->build_cost_model_after) % o->build_cost_model == 0;
}

/* Feeds and fetches live on this task's own partition. */
static void lay_out_parts(td_master_step *st) {
  td_plan_view *v = st->view;
  td_plan *p = v->plan;
  bool record_costs = !st->partial && records_costs(st);
  st->part_count = p->partition_count;
  st->parts = td_arena_array(&st->arena, td_step_part, p->partition_count + 1);
  for (size_t i = 0; i < p->partition_count; i++) {
    td_step_part *part = &st->parts[i];
    part->step = st;
    part->run = (td_run_graph){
        .session = td_str_of(st->session->handle),
        .graph_handle = td_str_of(p->partitions[i].graph_handle),
        .graph = p->partitions[i].graph,
        .step_id = st->id,
        .record_costs = record_costs,
        .record_timeline = st->options.trace_level == 3,
        .record_partition_graphs = st->options.output_partition_graphs,
        .debug = st->debug ? st->debug->run : NULL,
        .is_partial = st->partial != NULL,
        .is_last_partial_run = st->is_last,
        .done = part_done,
    };
    if ((int)i != p->own) continue;
    td_tensor **tensors = td_arena_array(&st->arena, td_tensor *, st->feeds.count + v->fetch_key_count + 1);
    for (size_t k = 0; k < st->feeds.count; k++) tensors[k] = st->feeds.items[k].tensor;
    part->run.send_keys = v->feed_keys;
    part->run.sends = tensors;
    part->run.send_count = (int)st->feeds.count;
    part->run.recv_keys = v->fetch_keys;
    part->run.recvs = tensors + st->feeds.count;
    part->run.recv_count = (int)v->fetch_key_count;
  }
}

/* The others first, so that they work while this task does; all but the last call may end the step only through
 * `pending`, which counts them all. */
static void start_parts(td_master_step *st) {
  td_plan *p = st->view->plan;
  size_t n = p->partition_count;
  for (int own = 0; own < 2; own++)
    for (size_t i = 0; i < n; i++) {
      td_worker *w = p->partitions[i].worker;
      if (w->is_self == (bool)own && !st->is_cancelled) {
        w->ops->run_graph(w, &st->parts[i].run);
      } else if (w->is_self == (bool)own) { /* an earlier one has failed already */
        st->parts[i].is_done = true;
        st->pending--;
      }
    }
  if (--st->pending == 0) all_done(st);
}

int64_t td_master_step_new_id(void) { return (int64_t)((td_random_fast_u64() & ((1ull << 56) - 1)) | 1ull << 56); }

static void run_with_id(td_master_step *st, int64_t id) {
  size_t n = st->view->plan->partition_count;
  st->id = id;
  if (st->partial) {
    pthread_mutex_lock(&st->session->lock);
    st->is_last = td_partial_step_start(st->session, st->partial);
    pthread_mutex_unlock(&st->session->lock);
  }
  st->started_ns = td_now_coarse_ns();
  lay_out_parts(st);
  st->pending = n + 1;
  if (st->options.trace_level == 3 && n > 1 && !st->partial) {
    st->trace = td_step_trace_create(st);
    td_step_trace_begin(st->trace, start_parts);
  } else {
    start_parts(st);
  }
}

/* ---- steps with collectives: the leader says which id comes next ---- */

static void turn_arrived(td_work *w) {
  td_master_step *st = TD_CONTAINER_OF(w, td_master_step, turn);
  if (st->sequence_status) {
    end_early(st, st->sequence_status);
  } else if (st->status) { /* cancelled meanwhile */
    td_step_sequences_release(st->task->sequences, &st->sequence, TD_SEQUENCE_UNUSED);
    end_early(st, td_status_retain(st->status));
  } else {
    st->has_sequence = true;
    run_with_id(st, st->id);
  }
}

static void turn_came(td_sequence_wait *wait, td_status status, int64_t id) {
  td_master_step *st = TD_CONTAINER_OF(wait, td_master_step, sequence);
  st->sequence_status = status;
  st->id = id;
  st->turn.run = turn_arrived;
  td_loop_post(st->loop, &st->turn);
}

static void run(td_master_step *st) {
  const td_plan *p = st->view->plan;
  const char *leader = st->session->config.collective_leader;
  int64_t key = st->options.collective_graph_key ? st->options.collective_graph_key : p->collective_key;
  if (!p->partition_count) {
    end_early(st, TD_STATUS_OK);
  } else if (leader && key && !st->partial) {
    st->sequence.ready = turn_came;
    td_step_sequences_acquire(st->task->sequences, st->session->peers, leader, key, &st->sequence);
  } else {
    run_with_id(st, st->partial ? st->partial->id : td_master_step_new_id());
  }
}

static void start_with_plan(td_master_step *st) {
  if (st->status) /* cancelled while it waited */
    end_early(st, td_status_retain(st->status));
  else if (st->view->plan->status)
    end_early(st, td_status_retain(st->view->plan->status));
  else
    run(st);
}

static void plan_arrived(td_work *w) { start_with_plan(TD_CONTAINER_OF(w, td_master_step, work)); }

void td_master_step_plan_ready(td_master_step *st) {
  st->work.run = plan_arrived;
  td_loop_post(st->loop, &st->work);
}

/* Finds the view for a RunStep. With session->lock held. */
static td_status find_step_view(td_master_step *st, bool *is_new) {
  td_run_step_request *r = &st->request;
  td_str *feeds = td_arena_array(&st->arena, td_str, st->feeds.count + 1);
  for (size_t i = 0; i < st->feeds.count; i++) feeds[i] = st->feeds.items[i].name;
  st->names = (td_names){.feeds = feeds,
                         .fetches = r->fetches,
                         .targets = r->targets,
                         .feed_count = st->feeds.count,
                         .fetch_count = r->fetch_count,
                         .target_count = r->target_count};
  if (st->debug) {
    st->names.watches = st->debug->watches;
    st->names.watch_bytes = st->debug->bytes;
  }
  if (!r->partial_run_handle.size) return td_plan_view_get(st->session, &st->names, &st->view, is_new);
  TD_TRY(td_partial_step_enter(st->session, r->partial_run_handle, &st->names, &st->partial));
  st->view = td_plan_view_of_part(st->session, st->partial->plan, &st->names, &st->arena);
  return TD_STATUS_OK;
}

/* ---- partial runs: what can be computed is looked up in the session's graph, whose lock is held for long ---- */

typedef struct check_work {
  td_work work;
  td_master_step *step;
  td_status status;
} check_work;

static void checked(td_work *w) {
  check_work *c = TD_CONTAINER_OF(w, check_work, work);
  if (c->status)
    end_early(c->step, c->status);
  else
    start_with_plan(c->step);
  td_free(c);
}

static void check(td_work *w) {
  check_work *c = TD_CONTAINER_OF(w, check_work, work);
  td_master_step *st = c->step;
  c->status = td_partial_step_check(st->session, st->partial, &st->names);
  c->work.run = checked;
  td_loop_post(st->loop, &c->work);
}

static void start_partial(td_master_step *st) {
  check_work *c = td_new(check_work);
  c->work.run = check;
  c->step = st;
  if (td_control_run(st->task->control, &c->work)) return;
  td_free(c);
  end_early(st, td_resource_exhausted("too many control operations run at %s, or it is shutting down", st->task->name));
}

/* With session->lock held. */
static td_status find_callable_view(td_master_step *st, int64_t handle) {
  td_master_session *s = st->session;
  if (handle < 0 || (uint64_t)handle >= s->callable_count)
    return td_invalid_argument("No such callable handle: %lld", (long long)handle);
  td_callable *c = &s->callables[handle];
  if (c->is_released)
    return td_invalid_argument("Attempted to run callable after handle was released: %lld", (long long)handle);
  if (st->feeds.count != c->view->feed_count)
    return td_invalid_argument("Callable %lld takes %zu feeds, got %zu", (long long)handle, c->view->feed_count,
                               st->feeds.count);
  st->view = c->view;
  st->options = c->options;
  return TD_STATUS_OK;
}

/* Whether the plan is ready; if not, the step waits for it. With session->lock held. */
static bool join_plan(td_master_step *st) {
  td_plan *p = st->view->plan;
  if (p->is_ready) return true;
  st->next_waiting = p->waiting;
  p->waiting = st;
  return false;
}

/* The debug URLs know of the run: it goes on as any other. Consumes `status`. */
static void debug_begun(td_master_step *st, td_status status) {
  td_master_session *s = st->session;
  td_plan *build = st->debug->new_plan;
  bool ready = false;
  st->debug->new_plan = NULL;
  if (!status && st->status) status = td_status_retain(st->status); /* cancelled meanwhile */
  if (!status) {
    pthread_mutex_lock(&s->lock);
    ready = join_plan(st);
    pthread_mutex_unlock(&s->lock);
  }
  if (build && status)
    td_plan_fail(build, td_status_retain(status)); /* for who waits for it by now */
  else if (build)
    td_plan_start_build(build, st->debug->run);
  td_plan_release(build);
  if (status)
    end_early(st, status);
  else if (ready)
    start_with_plan(st);
}

/* Joins the session and starts, or waits for the plan. */
static void enter_session(td_master_step *st, td_master_session *s, int64_t callable) {
  bool is_new = false, ready = false;
  int64_t watched_runs = 0;
  td_status status;
  st->session = s;
  pthread_mutex_lock(&s->lock);
  if (s->is_closed) {
    pthread_mutex_unlock(&s->lock);
    st->session = NULL;
    td_master_session_release(s);
    end_early(st, td_failed_precondition("Session is closed."));
    return;
  }
  s->running++;
  st->next = s->steps;
  if (st->next) st->next->previous = st;
  s->steps = st;
  status = st->is_callable ? find_callable_view(st, callable) : find_step_view(st, &is_new);
  if (!status) {
    td_plan *p = td_plan_retain(st->view->plan);
    if (st->debug)
      watched_runs = p->watched_runs++;
    else
      ready = join_plan(st);
  } else {
    st->view = NULL;
  }
  td_plan *build = is_new && !status ? td_plan_retain(st->view->plan) : NULL;
  pthread_mutex_unlock(&s->lock);
  if (!status && st->debug) {
    st->debug->new_plan = build;
    td_step_debug_begin(st, watched_runs, debug_begun);
  } else if (build) {
    td_plan_start_build(build, NULL);
    td_plan_release(build);
  } else if (status) {
    end_early(st, status);
  } else if (ready && st->partial) {
    start_partial(st);
  } else if (ready) {
    start_with_plan(st);
  }
}

/* ---- cancellation ---- */

/* Takes the step out of those that wait for its plan; false when it does not wait, or is being told already. */
static bool leave_plan(td_master_step *st) {
  if (!st->session || !st->view) return false;
  pthread_mutex_lock(&st->session->lock);
  td_master_step **at = &st->view->plan->waiting;
  while (*at && *at != st) at = &(*at)->next_waiting;
  bool waited = *at == st;
  if (waited) *at = st->next_waiting;
  pthread_mutex_unlock(&st->session->lock);
  return waited;
}

/* The step ends with `status` (consumed) unless it has ended. On the loop. */
static void stop(td_master_step *st, td_status status) {
  if (st->status || st->is_answered) {
    td_status_free(status);
    return;
  }
  st->status = status;
  if (st->debug) td_step_debug_cancel(st->debug);
  if (st->debug && st->debug->is_closing && !st->debug->is_closed) return; /* all but its streams has ended */
  if (st->parts)
    cancel_parts(st);
  else if (leave_plan(st) || td_step_sequences_leave(st->task->sequences, &st->sequence))
    /* a plan may take long: a task that is stuck compiles it */
    end_early(st, td_status_retain(status));
  /* else start_with_plan() or proceed() sees the status */
}

static void call_cancelled(void *arg) { stop(arg, td_cancelled("RunManyGraphs")); }

static void call_released(void *arg) { step_release(arg); }

static void timed_out(td_timer *t) {
  stop(TD_CONTAINER_OF(t, td_master_step, timeout),
       td_error(TD_DEADLINE_EXCEEDED, "Timed out waiting for notification"));
}

static void closed(td_work *w) {
  td_master_step *st = TD_CONTAINER_OF(w, td_master_step, close);
  /* is_collected is set before the session closes */
  stop(st, td_cancelled(st->session && st->session->is_collected
                            ? "Step was cancelled because the session was garbage collected due to inactivity."
                            : "Step was cancelled by an explicit call to `Session::Close()`."));
  step_release(st);
}

void td_master_step_close(td_master_step *st) {
  if (st->is_closing) return;
  st->is_closing = true;
  atomic_fetch_add_explicit(&st->refs, 1, memory_order_relaxed);
  st->close.run = closed;
  td_loop_post(st->loop, &st->close);
}

/* ---- the request ---- */

static void start_timeout(td_master_step *st) {
  int64_t ms = st->options.timeout_ms ? st->options.timeout_ms
               : st->session          ? st->session->config.operation_timeout_ms
                                      : 0;
  if (ms <= 0 || ms > MAX_TIMEOUT_MS || td_call_deadline_ns(st->call) != TD_NO_DEADLINE)
    return; /* a deadline of the call's own cancels it */
  st->timeout.fire = timed_out;
  td_timer_start(st->loop, &st->timeout, td_now_ns() + (uint64_t)ms * 1000000u);
}

static td_status decode(td_master_step *st, td_run_callable_request *callable) {
  td_status s;
  if (st->is_callable) {
    s = td_run_callable_request_decode(st->bytes, &st->arena, callable);
    st->feeds = callable->feeds;
    return s;
  }
  s = td_run_step_request_decode(st->bytes, &st->arena, &st->request);
  st->feeds = st->request.feeds;
  if (!s) s = td_run_options_decode(st->request.options, &st->options);
  if (!s && st->request.partial_run_handle.size) /* as in TensorFlow, nothing is recorded or watched */
    st->options = (td_run_options_view){.timeout_ms = st->options.timeout_ms,
                                        .collective_graph_key = st->options.collective_graph_key};
  if (!s && st->options.debug.size) s = td_step_debug_create(st, st->options.debug);
  return s;
}

static td_status check_request(td_master_step *st, const td_run_callable_request *callable) {
  if (st->request.partial_run_handle.size && st->options.collective_graph_key)
    return td_invalid_argument(
        "PartialRun does not support Collective ops.  collective_graph_key must be kNoCollectiveGraphKey.");
  return td_request_ids_track(st->task->master_ids, st->is_callable ? callable->request_id : st->request.request_id,
                              st->is_callable ? "RunCallable (Master)" : "RunStep (Master)");
}

/* Decoded or not: what the loop does next. */
static void proceed(td_master_step *st, td_status status, const td_run_callable_request *callable) {
  td_master_session *s = NULL;
  if (!status) status = check_request(st, callable);
  if (!status) status = td_master_find(st->task->master, st->is_callable ? callable->session : st->request.session, &s);
  if (!status && st->status) status = td_status_retain(st->status); /* cancelled meanwhile */
  if (status) {
    td_master_session_release(s);
    end_early(st, status);
    return;
  }
  atomic_fetch_add_explicit(&st->refs, 1, memory_order_relaxed);
  enter_session(st, s, callable->handle);
  if (st->session && !st->is_answered) start_timeout(st);
  step_release(st);
}

typedef struct decode_work {
  td_work work;
  td_master_step *step;
  td_run_callable_request callable;
  td_status status;
} decode_work;

static void decoded(td_work *w) {
  decode_work *d = TD_CONTAINER_OF(w, decode_work, work);
  proceed(d->step, d->status, &d->callable);
  td_free(d);
}

static void decode_on_pool(td_work *w) {
  decode_work *d = TD_CONTAINER_OF(w, decode_work, work);
  d->status = decode(d->step, &d->callable);
  d->work.run = decoded;
  td_loop_post(d->step->loop, &d->work);
}

void td_master_step_start(td_task *task, td_call *call, td_str bytes, bool is_callable) {
  td_master_step *st = td_new(td_master_step);
  atomic_init(&st->refs, 2);
  st->task = task;
  st->call = call;
  st->loop = td_call_loop(call);
  st->bytes = bytes;
  st->is_callable = is_callable;
  td_call_on_cancel_owned(call, call_cancelled, st, call_released);
  if (bytes.size > DECODE_INLINE) {
    decode_work *d = td_new(decode_work);
    d->work.run = decode_on_pool;
    d->step = st;
    td_pool_submit(task->pool, &d->work);
    return;
  }
  td_run_callable_request callable = {0};
  td_status s = decode(st, &callable);
  proceed(st, s, &callable);
}

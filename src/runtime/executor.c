#include "runtime/executor.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/turn.h"
#include "runtime/executor_internal.h"

/* The inbox: a stack of tasks that came back, with two marks at its bottom. IDLE: nobody drains the run, who pushes
 * becomes the drainer. OPEN: somebody drains it and will look here again. One word, so that pushing and asking
 * "am I the drainer?" is one step. */
static const char open_mark;
#define IDLE ((td_task *)NULL)
#define OPEN ((td_task *)(uintptr_t)&open_mark)

static const uint64_t LOOP_TURN_NS = 50 * 1000;   /* a loop thread has others to serve */
static const uint64_t POOL_TURN_NS = 1000 * 1000; /* so that endless loops share the pool with others */
static const double COSTLY_NS = 10 * 1000;        /* about what it takes to hand a kernel over, and its result back */
enum {
  LONG_MESSAGE = 4096,
  TASK_OUTPUTS = 8,
  SPARE_RUNS = 4,
  CHEAP_BYTES = 32 * 1024,
  EXPENSIVE_BYTES = 2 * 1024,
  TINY_BYTES = 256
};

/* The runs that this thread drains: one at a time. A run that becomes ready while another one is drained (a Send
 * that meets the other's Recv, a function call) waits here instead of running on the first one's stack. */
typedef struct td_scope {
  td_run *first, **last;
  uint64_t turn_ends_ns; /* 0: not known yet. One turn for all of them: a chain of runs is as long as a long run */
} td_scope;
static _Thread_local td_scope *current_scope;

static void drain(td_run *r, td_scope *scope);

static void enter_drain(td_run *r) {
  if (current_scope) {
    r->next = NULL;
    *current_scope->last = r;
    current_scope->last = &r->next;
    return;
  }
  td_scope scope = {.last = &scope.first};
  current_scope = &scope;
  for (;;) {
    drain(r, &scope);
    r = scope.first;
    if (!r) break;
    scope.first = r->next;
    if (!scope.first) scope.last = &scope.first;
  }
  current_scope = NULL;
}

static void drain_work(td_work *w) { enter_drain(TD_CONTAINER_OF(w, td_run, work)); }

/* Puts a task into the inbox. True: the caller is now the drainer. */
static bool post(td_run *r, td_task *t) {
  td_task *head = atomic_load_explicit(&r->inbox, memory_order_relaxed);
  do {
    t->next = head == IDLE ? OPEN : head;
    /* release: the drainer's exchange sees the task's results; acquire: a new drainer sees the old one's state */
  } while (!atomic_compare_exchange_weak_explicit(&r->inbox, &head, t, memory_order_acq_rel, memory_order_relaxed));
  return head == IDLE;
}

/* ---- tasks ---- */

static td_task *task_create(td_run *r, const td_pnode *n, td_value *in, td_iteration *it, bool is_dead) {
  td_task *t = r->free_tasks;
  if (n->output_count <= TASK_OUTPUTS && t) {
    r->free_tasks = t->next;
  } else {
    uint32_t capacity = TD_MAX(n->output_count, (uint32_t)TASK_OUTPUTS);
    t = td_malloc(sizeof *t + capacity * sizeof t->out[0]);
    t->capacity = capacity;
  }
  memset(t->out, 0, n->output_count * sizeof t->out[0]);
  t->run = r;
  t->node = n;
  t->iteration = it;
  t->status = NULL;
  t->event = NULL;
  if (r->trace) {
    t->event = r->trace->current;
    r->trace->current = NULL;
  }
  t->ctx = (td_kernel_ctx){.kernel = n->kernel,
                           .state = n->kernel->state,
                           .step = r->step,
                           .device = r->program->device,
                           .in = in,
                           .out = t->out,
                           .is_dead = is_dead};
  t->ctx.is_ref = n->flags & TD_PN_KEEPS_REF;
  if (it) t->ctx.frame = it->id;
  r->outstanding++;
  return t;
}

static void task_free(td_run *r, td_task *t) {
  if (t->capacity != TASK_OUTPUTS) {
    td_free(t);
    return;
  }
  t->next = r->free_tasks;
  r->free_tasks = t;
}

static void task_compute(td_task *t) {
  if (t->event) td_event_started(t->event);
  t->status = t->ctx.kernel->compute(&t->ctx);
  if (t->event) td_event_ended(t->event);
}

static void task_work(td_work *w) {
  td_task *t = TD_CONTAINER_OF(w, td_task, work);
  td_run *r = t->run;
  task_compute(t);
  if (post(r, t)) enter_drain(r);
}

/* Kernels that get ready together go to the pool together: a thread that wakes for each would take this one's core in
 * turn with it. They wait here until this thread computes itself, looks at the clock or has nothing else to do. */
static void hand_over(td_run *r, td_task *t) {
  t->work = (td_work){.run = task_work};
  if (!r->handed) r->handed_end = &r->handed;
  *r->handed_end = &t->work;
  r->handed_end = &t->work.next;
}

void td_run_submit_handed(td_run *r) {
  td_work *first = r->handed;
  if (!first) return;
  r->handed = NULL;
  td_pool_submit_all(r->pool, first);
}

static void task_done(td_kernel_ctx *ctx, td_status status) {
  td_task *t = TD_CONTAINER_OF(ctx, td_task, ctx);
  td_run *r = t->run;
  t->status = status;
  if (t->event) td_event_ended(t->event);
  if (post(r, t)) enter_drain(r);
}

/* ---- errors ---- */

static td_str label_of(const td_run *r, const td_pnode *n) { return td_pnode_info_of(r->program, n)->label; }

static td_status at_node(const td_run *r, const td_pnode *n, td_status s) {
  td_str label = label_of(r, n);
  if (strlen(td_status_message(s)) > LONG_MESSAGE) return s; /* from deep inside functions */
  if (strstr(td_status_message(s), "{{node ")) return td_status_append(s, "\n\t [[%.*s]]", TD_STR_ARG(label));
  if (td_str_starts(label, TD_STR("{{"))) return td_status_append(s, "\n\t [[%.*s]]", TD_STR_ARG(label));
  return td_status_append(s, "\n\t [[{{node %.*s}}]]", TD_STR_ARG(label));
}

void td_run_fail(td_run *r, td_status status) {
  bool is_first = !r->status;
  td_status_merge(&r->status, status);
  if (!is_first) return;
  if (r->program->has_frames)
    td_framed_drop_ready(r);
  else
    td_flat_drop_ready(r);
  if (r->rendezvous) {
    td_status derived = td_status_derive(td_status_retain(r->status));
    td_rendezvous_abort(r->rendezvous, derived);
    td_status_free(derived);
  }
  if (r->cancellation) td_cancellation_cancel(r->cancellation);
}

static td_status cancelled_status(void) { return td_status_derive(td_cancelled("Step was cancelled")); }

bool td_run_is_over(td_run *r) {
  if (!r->status && atomic_load_explicit(&r->is_cancelled, memory_order_relaxed)) td_run_fail(r, cancelled_status());
  return r->status != NULL;
}

static void run_release(td_run *r);

/* On the cancelling thread. Ends what waits at the rendezvous; cheap nodes end by the flag. */
static void on_cancel(td_cancel_callback *c) {
  td_run *r = TD_CONTAINER_OF(c, td_run, on_cancel);
  atomic_store_explicit(&r->is_cancelled, true, memory_order_relaxed);
  if (r->rendezvous) {
    td_status status = cancelled_status();
    td_rendezvous_abort(r->rendezvous, status);
    td_status_free(status);
  }
  run_release(r);
}

/* ---- kernels ---- */

static td_status wrong_output(const td_run *r, const td_pnode *n, uint32_t i, const td_tensor *t) {
  td_str label = label_of(r, n);
  if (!t) return td_internal("Missing %u-th output from {{node %.*s}}", i, TD_STR_ARG(label));
  return td_internal("Output %u of type %s does not match declared output type %s for node {{node %.*s}}", i,
                     td_dtype_name(t->dtype), td_dtype_name(n->kernel->output_types[i]), TD_STR_ARG(label));
}

void td_run_fail_at(td_run *r, const td_pnode *n, td_status status) { td_run_fail(r, at_node(r, n, status)); }

bool td_run_check_outputs(td_run *r, const td_pnode *n, td_kernel_ctx *ctx) {
  uint32_t mask = ctx->out_live_mask;
  for (uint32_t i = 0; i < n->output_count; i++) {
    int type = n->kernel->output_types[i];
    td_tensor *t = ctx->out[i].tensor;
    if (t ? td_dtype_is_ref(type) || t->dtype == type : ctx->out_dead || (mask && i < 32 && !(mask >> i & 1))) continue;
    td_status status = wrong_output(r, n, i, t);
    td_release_outputs(n, ctx->out);
    td_run_fail(r, status);
    return false;
  }
  return true;
}

/* After a kernel: checks its outputs, releases its inputs. False: the run has failed, outputs are released. */
static bool settle(td_run *r, const td_pnode *n, td_kernel_ctx *ctx, td_status status) {
  td_release_inputs(n, ctx->in);
  if (__builtin_expect(!status, 1)) return td_run_check_outputs(r, n, ctx);
  td_release_outputs(n, ctx->out);
  td_run_fail_at(r, n, status);
  return false;
}

bool td_run_is_costly(const td_kernel *k, const td_pnode *n, const td_value *in, int *out_fuel) {
  *out_fuel = TD_KERNEL_FUEL;
  if (k->def->work_ns) return k->def->work_ns(k, in) >= COSTLY_NS;
  if (k->cost == TD_COST_CHEAP) return false;
  size_t limit = k->cost == TD_COST_EXPENSIVE ? EXPENSIVE_BYTES : CHEAP_BYTES, bytes = 0;
  for (uint32_t i = 0; i < n->input_count; i++)
    if (in[i].tensor && !(n->in_refs && n->in_refs[i] == TD_IN_REF)) bytes += in[i].tensor->size;
  if (bytes <= TINY_BYTES) *out_fuel = TD_TINY_FUEL;
  return bytes >= limit;
}

td_outcome td_run_kernel(td_run *r, const td_pnode *n, td_value *in, td_iteration *it, bool is_dead, bool is_last) {
  if (td_run_is_over(r)) {
    if (is_dead)
      td_release_raw_inputs(n, in);
    else
      td_release_inputs(n, in);
    return TD_OUTCOME_FAILED;
  }
  const td_kernel *k = n->kernel;
  bool is_async = n->exec == TD_EXEC_ASYNC;
  int fuel = TD_KERNEL_FUEL;
  if (!is_async && r->pool && td_run_is_costly(k, n, in, &fuel)) {
    r->fuel -= TD_HAND_OVER_FUEL;
    td_task *t = task_create(r, n, in, it, is_dead);
    if (is_last && !r->scope->first && td_pool_current() == r->pool)
      r->inline_task = t;
    else
      hand_over(r, t);
    return TD_OUTCOME_LATER;
  }
  r->fuel -= fuel;
  td_run_submit_handed(r);
  if (is_async) {
    td_task *t = task_create(r, n, in, it, is_dead);
    t->ctx.done = task_done;
    k->compute_async(&t->ctx);
    return TD_OUTCOME_LATER;
  }
  td_kernel_ctx *ctx = td_run_context(r, n, in, is_dead);
  if (it) ctx->frame = it->id;
  return settle(r, n, ctx, k->compute(ctx)) ? TD_OUTCOME_DONE : TD_OUTCOME_FAILED;
}

td_outcome td_run_argument(td_run *r, const td_pnode *n) {
  td_tensor *t = n->index < r->arg_count ? r->args[n->index] : NULL;
  td_status s = NULL;
  if (!t)
    s = td_invalid_argument("Retrieving argument %lld of %d, which has no value", (long long)n->index, r->arg_count);
  else if (t->dtype != n->kernel->output_types[0])
    s = td_invalid_argument("Type mismatch: actual %s vs. expect %s", td_dtype_name(t->dtype),
                            td_dtype_name(n->kernel->output_types[0]));
  if (s) {
    td_run_fail(r, at_node(r, n, s));
    return TD_OUTCOME_FAILED;
  }
  r->out[0].tensor = td_tensor_retain(t);
  return TD_OUTCOME_DONE;
}

td_outcome td_run_result(td_run *r, const td_pnode *n, td_value *in) {
  td_tensor_release(r->results[n->index]);
  r->results[n->index] = in[0].tensor;
  in[0].tensor = NULL;
  return TD_OUTCOME_DONE;
}

static bool is_initialized(td_variable *v) {
  pthread_rwlock_rdlock(&v->lock);
  bool yes = v->value != NULL;
  pthread_rwlock_unlock(&v->lock);
  return yes;
}

/* The value of a variable for node `n`: one reference, NULL when there is none yet. */
static td_status dereference(const td_pnode *n, td_variable *v, td_tensor **out) {
  td_tensor *value;
  *out = NULL;
  TD_TRY(td_variable_read(v, &value));
  if (!value || !(n->flags & TD_PN_COPY)) {
    *out = value;
    return TD_STATUS_OK;
  }
  td_status s = td_tensor_copy(value, out);
  td_tensor_release(value);
  return s;
}

td_outcome td_run_prepare_refs(td_run *r, const td_pnode *n, td_value *in) {
  for (uint32_t i = 0; i < n->input_count; i++) {
    if (!in[i].ref || !n->in_refs[i]) continue;
    td_variable *v = in[i].ref;
    bool is_ready = true;
    td_status s = NULL;
    if (n->in_refs[i] & TD_IN_DEREF) {
      s = dereference(n, v, &in[i].tensor);
      is_ready = in[i].tensor != NULL;
      td_variable_release(v);
    } else if (!(n->flags & TD_PN_MAY_BE_UNINITIALIZED)) {
      is_ready = is_initialized(v);
    }
    if (is_ready && !s) continue;
    if (!s)
      s = td_failed_precondition("Attempting to use uninitialized value %.*s",
                                 TD_STR_ARG(td_pnode_info_of(r->program, n)->input_names[i]));
    /* inputs before i are as the kernel wants them, those after it as they came */
    for (uint32_t k = 0; k < n->input_count; k++) {
      td_value_release(in[k], k <= i ? n->in_refs[k] == TD_IN_REF : n->in_refs[k] & TD_IN_REF);
      in[k].tensor = NULL;
    }
    td_run_fail(r, at_node(r, n, s));
    return TD_OUTCOME_FAILED;
  }
  return TD_OUTCOME_DONE;
}

/* A task is back. */
static void task_settle(td_run *r, td_task *t) {
  const td_pnode *n = t->node;
  r->outstanding--;
  bool ok = settle(r, n, &t->ctx, t->status);
  if (ok && td_run_is_over(r)) {
    td_release_outputs(n, t->out);
    ok = false;
  }
  if (ok && t->event) td_trace_add(r->trace, t->event, t->out);
  if (ok && t->iteration)
    td_framed_deliver(r, n, t->iteration, t->out, t->ctx.out_dead);
  else if (ok)
    td_flat_deliver(r, n, t->out, t->ctx.out_dead);
  task_free(r, t);
}

td_outcome td_run_traced(td_run *r, const td_pnode *n, td_value *in, td_iteration *it, bool is_dead, bool is_last) {
  td_trace *t = r->trace;
  td_event *e = is_dead || n->flags & TD_PN_TRANSFER ? NULL : td_trace_begin(t, n, in);
  t->current = e;
  td_outcome o = td_node_execute(r, n, in, it, is_dead, is_last);
  t->current = NULL; /* what comes back later has it */
  if (o == TD_OUTCOME_DONE && e) {
    td_event_ended(e);
    td_trace_add(t, e, r->out);
  }
  t->idle_ns = td_clock_ns(CLOCK_REALTIME);
  return o;
}

/* ---- the drain ---- */

/* Ends with somebody else's need of the thread: an owner that has nothing else to do gives one more turn. */
static bool turn_ended(td_scope *scope) {
  uint64_t now = td_now_ns();
  if (!scope->turn_ends_ns) {
    scope->turn_ends_ns = now + (td_pool_current() ? POOL_TURN_NS : LOOP_TURN_NS);
  } else if (now >= scope->turn_ends_ns) {
    if (td_turn_is_wanted()) return true;
    scope->turn_ends_ns = now + LOOP_TURN_NS;
  }
  return false;
}

bool td_run_turn_ended(td_run *r) {
  td_run_submit_handed(r);
  r->fuel = TD_FUEL;
  r->turn_ended = r->pool && turn_ended(r->scope);
  return r->turn_ended;
}

static bool collect(td_run *r) {
  if (atomic_load_explicit(&r->inbox, memory_order_relaxed) == OPEN) return false;
  /* acquire: pairs with post() */
  td_task *t = atomic_exchange_explicit(&r->inbox, OPEN, memory_order_acquire);
  td_task *in_order = NULL;
  while (t != OPEN) {
    td_task *older = t->next;
    t->next = in_order;
    in_order = t;
    t = older;
  }
  while (in_order) {
    td_task *next = in_order->next;
    task_settle(r, in_order);
    in_order = next;
  }
  return true;
}

static void finish(td_run *r);

static bool has_ready(const td_run *r) {
  return r->program->has_frames ? r->ring_count : r->ready_head < r->ready_tail;
}

static void drain(td_run *r, td_scope *scope) {
  r->scope = scope;
  r->fuel = TD_FUEL;
  r->turn_ended = false;
  if (r->pool && turn_ended(scope)) {
    td_pool_submit(r->pool, &r->work);
    return;
  }
  for (;;) {
    collect(r);
    /* tasks that come back at once use the turn up, too */
    bool is_done = !r->turn_ended || !has_ready(r);
    if (is_done) is_done = td_run_is_over(r) || (r->program->has_frames ? td_framed_run(r) : td_flat_run(r));
    td_run_submit_handed(r);
    if (!is_done) {
      td_pool_submit(r->pool, &r->work);
      return;
    }
    if (!r->outstanding) {
      finish(r);
      return;
    }
    td_task *t = r->inline_task;
    r->inline_task = NULL;
    td_task *expected = OPEN;
    /* release: the next drainer sees this one's state */
    if (atomic_compare_exchange_strong_explicit(&r->inbox, &expected, IDLE, memory_order_release,
                                                memory_order_relaxed)) {
      if (!t) return;
      task_compute(t);
      if (!post(r, t)) return;
      r->scope = scope;
      r->turn_ended = false;
      scope->turn_ends_ns = td_now_ns() + POOL_TURN_NS;
    } else if (t) {
      t->work.run = task_work;
      td_pool_submit(r->pool, &t->work);
    }
  }
}

/* ---- a run's life ---- */

static void run_free(td_run *r) {
  for (td_task *t = r->free_tasks, *next; t; t = next) {
    next = t->next;
    td_free(t);
  }
  td_free(r);
}

void td_executor_free_spares(td_program *p) {
  for (td_run *r = p->spare_runs, *next; r; r = next) {
    next = r->next;
    run_free(r);
  }
}

/* One block of memory: the run, its outputs and results, and, without frames, its slots, counts and ready list. */
static td_run *run_create(td_program *p) {
  pthread_mutex_lock(&p->lock);
  td_run *r = p->spare_runs;
  if (r) {
    p->spare_runs = r->next;
    p->spare_count--;
  }
  pthread_mutex_unlock(&p->lock);
  if (r) return r;
  const td_pframe *root = &p->frames[0];
  size_t values = (size_t)p->max_outputs + (p->has_frames ? 0 : root->slot_count);
  size_t words = p->has_frames ? 0 : 2 * (size_t)root->count + root->merge_count;
  size_t size = sizeof *r + values * sizeof(td_value) + (size_t)p->result_count * sizeof(td_tensor *) + words * 4;
  size = (size + 63) & ~(size_t)63;
  r = aligned_alloc(64, size);
  if (!r) return NULL;
  memset(r, 0, sizeof *r);
  char *at = (char *)(r + 1);
  r->out = (td_value *)at;
  at += p->max_outputs * sizeof(td_value);
  r->results = (td_tensor **)at;
  at += (size_t)p->result_count * sizeof(td_tensor *);
  memset(r->out, 0, (size_t)(at - (char *)r->out));
  if (p->has_frames) return r;
  r->slots = (td_value *)at;
  at += root->slot_count * sizeof(td_value);
  memset(r->slots, 0, (size_t)(at - (char *)r->slots));
  r->pending = (uint32_t *)at;
  r->ready = r->pending + root->count;
  r->merge_dead = r->ready + root->count;
  return r;
}

/* The last reference: its memory may serve the next run (slots, outputs and results are all NULL again). */
static void run_release(td_run *r) {
  /* acq_rel: the last owner sees what the other did */
  if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  td_program *p = r->program;
  if (r->rendezvous) td_rendezvous_release(r->rendezvous);
  td_cancellation_release(r->cancellation);
  pthread_mutex_lock(&p->lock);
  bool is_kept = p->spare_count < SPARE_RUNS;
  if (is_kept) {
    r->next = p->spare_runs;
    p->spare_runs = r;
    p->spare_count++;
  }
  pthread_mutex_unlock(&p->lock);
  if (!is_kept) run_free(r);
  td_program_release(p);
}

static void finish(td_run *r) {
  td_program *p = r->program;
  if (r->is_registered && td_cancellation_try_unregister(r->cancellation, &r->on_cancel)) run_release(r);
  if (p->has_frames)
    td_framed_end(r);
  else
    td_flat_end(r);
  td_status status = r->status;
  r->status = NULL;
  if (r->trace) td_trace_end(r->trace);
  for (int i = 0; i < p->result_count; i++)
    if (!status && !r->results[i]) status = td_internal("Retval[%d] does not have value", i);
  for (int i = 0; status && i < p->result_count; i++) {
    td_tensor_release(r->results[i]);
    r->results[i] = NULL;
  }
  r->done(r->arg, status, r->results, p->result_count);
  memset(r->results, 0, (size_t)p->result_count * sizeof *r->results);
  run_release(r);
}

void td_executor_run(td_program *p, const td_run_options *o) {
  td_run *r = run_create(p);
  if (!r) {
    o->done(o->arg, td_resource_exhausted("No memory to run a graph of %u nodes", p->node_count), NULL, 0);
    return;
  }
  r->program = td_program_retain(p);
  r->step = o->step;
  r->rendezvous = o->step->rendezvous ? td_rendezvous_retain(o->step->rendezvous) : NULL;
  r->cancellation = o->step->cancellation ? td_cancellation_retain(o->step->cancellation) : NULL;
  r->pool = o->step->pool;
  r->args = o->args;
  r->arg_count = o->arg_count;
  r->done = o->done;
  r->arg = o->arg;
  r->work.run = drain_work;
  r->ctx = (td_kernel_ctx){.step = o->step, .device = p->device};
  r->outstanding = 0;
  r->handed = NULL;
  r->inline_task = NULL;
  r->trace = o->step->stats ? td_trace_create(o->step->stats, p) : NULL;
  atomic_store_explicit(&r->inbox, OPEN, memory_order_relaxed); /* this thread drains first */
  atomic_store_explicit(&r->is_cancelled, false, memory_order_relaxed);
  atomic_store_explicit(&r->refs, 1, memory_order_relaxed);
  if (p->has_frames)
    td_framed_init(r);
  else
    td_flat_init(r);
  r->is_registered = false;
  if (r->cancellation) {
    r->on_cancel.cancelled = on_cancel;
    atomic_store_explicit(&r->refs, 2, memory_order_relaxed);
    r->is_registered = td_cancellation_register(r->cancellation, &r->on_cancel);
    if (!r->is_registered) {
      atomic_store_explicit(&r->refs, 1, memory_order_relaxed);
      atomic_store_explicit(&r->is_cancelled, true, memory_order_relaxed);
    }
  }
  enter_drain(r);
}

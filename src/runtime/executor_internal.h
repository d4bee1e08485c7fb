/* A run in progress; for the runtime room only. See README.md for the model. */
#ifndef TD_RUNTIME_EXECUTOR_INTERNAL_H_
#define TD_RUNTIME_EXECUTOR_INTERNAL_H_

#include <stdatomic.h>

#include "framework/cancellation.h"
#include "framework/rendezvous.h"
#include "framework/variable.h"
#include "runtime/executor.h"
#include "runtime/program_internal.h"
#include "runtime/trace.h"

typedef struct td_run td_run;
typedef struct td_task td_task;
typedef struct td_frame td_frame;
typedef struct td_iteration td_iteration;

/* A kernel's run outside the drainer's stack: asynchronous, or on the pool. It is its own message in the inbox. */
struct td_task {
  td_kernel_ctx ctx;
  td_work work;
  td_task *next; /* in the inbox, or among the free ones */
  td_run *run;
  const td_pnode *node;
  td_iteration *iteration; /* NULL in a program without frames */
  td_event *event;         /* NULL: the step is not recorded */
  td_status status;
  uint32_t capacity; /* entries of out */
  td_value out[];
};

/* Ready nodes of a program with frames: a ring. */
typedef struct td_ready {
  uint32_t node; /* the high bit: dead */
  td_iteration *iteration;
} td_ready;

/* One instance of a frame. Drainer only. */
struct td_frame {
  const td_pframe *layout;
  uint32_t index;           /* of the static frame */
  td_iteration *parent;     /* the iteration that entered it; NULL: the root */
  td_frame *next_child;     /* of the parent iteration */
  td_frame *next, *prev;    /* all frames of the run, for its end; `next` also links spare ones */
  td_strbuf path;           /* the frame's name as TensorFlow 1.x hashes it */
  td_frame_id id;           /* of iteration 0 */
  uint32_t pending_enters;  /* that have not arrived */
  uint32_t iteration_count; /* of those that exist */
  td_iteration *first, *last;
  struct td_frame_value {
    const td_pnode *node;
    td_value value;
  } * invariants, *deferred;
  uint32_t invariant_count, deferred_count, dead_exit_count;
  const td_pnode **dead_exits; /* Exits that were dead in the last iteration */
  td_tensor **numbered;        /* while it is walked: invariants by number, borrowed */
  bool is_walked;              /* may be, as far as is known: iterations run one after the other */
};

/* One iteration of a frame instance: its window of slots and counts. Drainer only. */
struct td_iteration {
  td_frame *frame;
  td_iteration *prev, *next; /* `next` also links spare ones */
  td_frame_id id;
  uint32_t outstanding; /* ready or running nodes */
  td_frame *children;
  uint32_t *pending, *merge_dead;
  td_value *slots;
  uint32_t walk_at; /* while it is walked: the next op; */
  bool *walk_dead;  /* by node of the frame that is_told: it was dead */
};

struct td_run {
  /* immutable while it runs */
  td_program *program;           /* retained */
  td_step *step;                 /* the caller's, until done() */
  td_rendezvous *rendezvous;     /* the step's, retained; NULL: none */
  td_cancellation *cancellation; /* likewise */
  td_pool *pool;                 /* borrowed from the step */
  td_tensor **args;
  int arg_count;
  void (*done)(void *arg, td_status status, td_tensor **results, int result_count);
  void *arg;

  /* any thread */
  _Atomic(td_task *) inbox __attribute__((aligned(64))); /* see executor.c */
  atomic_bool is_cancelled;                              /* relaxed: a hint that the drainer polls */
  atomic_uint refs;                                      /* the run itself; the cancel callback */
  td_cancel_callback on_cancel;

  /* the drainer's */
  td_status status __attribute__((aligned(64)));
  bool is_registered;     /* on_cancel */
  uint32_t outstanding;   /* tasks not back yet */
  int fuel;               /* until the next look at the clock */
  bool turn_ended;        /* seen when the fuel was used up */
  struct td_scope *scope; /* of the draining thread */
  td_run *next;           /* in a scope, or among the program's spare runs */
  td_work work;           /* carries the drain to the pool */
  td_task *free_tasks;
  td_work *handed, **handed_end; /* tasks for the pool, submitted together: see hand_over() */
  td_task *inline_task;          /* costly, to be run by this thread once it has let go of the drain */
  td_kernel_ctx ctx;             /* of kernels that run on the drainer's stack */
  td_value *out;                 /* their outputs */
  td_tensor **results;
  int result_count;
  td_trace *trace; /* NULL: the step is not recorded */

  /* without frames */
  uint32_t *pending, *merge_dead;
  td_value *slots;
  uint32_t *ready; /* each node gets ready once: no ring */
  uint32_t ready_head, ready_tail;

  /* with frames */
  td_ready *ring;
  uint32_t ring_head, ring_count, ring_capacity; /* capacity: a power of two */
  td_frame *frames;                              /* all instances */
  td_frame **spare_frames;                       /* by static frame */
  td_iteration **spare_iterations;
};

enum { TD_FUEL = 256, TD_KERNEL_FUEL = 32, TD_TINY_FUEL = 8, TD_HAND_OVER_FUEL = 8 };

typedef enum td_outcome {
  TD_OUTCOME_DONE,   /* outputs are in run->out */
  TD_OUTCOME_LATER,  /* a task will come back */
  TD_OUTCOME_FAILED, /* the run has failed; inputs and outputs are released */
} td_outcome;

/* ---- executor.c ---- */

/* Ends the run with an error (consumed) once everything outstanding is back. */
void td_run_fail(td_run *r, td_status status);
/* Fails the run if it was cancelled. True: it has failed, for whatever reason. */
bool td_run_is_over(td_run *r);
/* Called when the fuel is used up: true when the drainer's turn has ended. */
bool td_run_turn_ended(td_run *r);
/* Runs a node's kernel; `is_last`: nothing else is ready. */
td_outcome td_run_kernel(td_run *r, const td_pnode *n, td_value *in, td_iteration *it, bool is_dead, bool is_last);
td_outcome td_run_argument(td_run *r, const td_pnode *n);
td_outcome td_run_result(td_run *r, const td_pnode *n, td_value *in);
/* Replaces variables by their values where the kernel wants values, checks that they are initialised. */
td_outcome td_run_prepare_refs(td_run *r, const td_pnode *n, td_value *in);

/* Whether a kernel is worth a hand-over to the pool. Otherwise *out_fuel says what it uses up. */
bool td_run_is_costly(const td_kernel *k, const td_pnode *n, const td_value *in, int *out_fuel);
/* Submits what waits to be handed over: before this thread computes. */
void td_run_submit_handed(td_run *r);
/* Ends the run with a kernel's error (consumed), which gets the node's name. */
void td_run_fail_at(td_run *r, const td_pnode *n, td_status status);
/* Checks that a kernel's outputs are there as they must be. False: the run has failed, outputs are released. */
bool td_run_check_outputs(td_run *r, const td_pnode *n, td_kernel_ctx *ctx);

/* The run's own context, ready for a kernel that computes at once. */
static inline td_kernel_ctx *td_run_context(td_run *r, const td_pnode *n, td_value *in, bool is_dead) {
  td_kernel_ctx *ctx = &r->ctx;
  ctx->kernel = n->kernel;
  ctx->state = n->kernel->state;
  ctx->in = in;
  ctx->out = r->out;
  ctx->is_dead = is_dead;
  ctx->is_ref = n->flags & TD_PN_KEEPS_REF;
  ctx->out_dead = false;
  ctx->out_live_mask = 0;
  return ctx;
}

/* td_node_execute(), recorded. */
td_outcome td_run_traced(td_run *r, const td_pnode *n, td_value *in, td_iteration *it, bool is_dead, bool is_last);

/* ---- the two engines ---- */

void td_flat_init(td_run *r);
/* Runs what is ready; false: the turn ended before the work did. */
bool td_flat_run(td_run *r);
void td_flat_deliver(td_run *r, const td_pnode *n, td_value *out, bool is_dead);
void td_flat_drop_ready(td_run *r);
void td_flat_end(td_run *r); /* releases what lies in slots */

void td_framed_init(td_run *r);
bool td_framed_run(td_run *r);
void td_framed_deliver(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead);
void td_framed_drop_ready(td_run *r);
void td_framed_end(td_run *r);
/* For walk.c: a node got ready; a node's outputs go along its edges within `it`; one that was ready has ended. */
void td_framed_push(td_run *r, uint32_t node, td_iteration *it);
void td_framed_pass(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead);
void td_framed_ended(td_run *r, td_iteration *it);

/* ---- walk.c: frames that have a plan (walk.h) ---- */

/* Begins to walk the iteration after `it`, which has ended and whose slots are NULL, in its window: what was deferred
 * goes into it, and it lies in the ready ring as TD_WALK_ITEM. False: it cannot be walked, nothing has changed. */
bool td_walk_begin(td_run *r, td_iteration *it);
/* Walks until the fuel is used up and others are ready, or the turn ends, or the loop. */
void td_walk_run(td_run *r, td_iteration *it);
enum { TD_WALK_ITEM = (1u << 31) - 1 };

/* ---- values ---- */

static inline void td_value_retain(td_value v, bool is_ref) {
  if (is_ref)
    td_variable_retain(v.ref);
  else
    td_tensor_retain(v.tensor);
}

static inline void td_value_release(td_value v, bool is_ref) {
  if (!v.tensor) return;
  if (is_ref)
    td_variable_release(v.ref);
  else
    td_tensor_release(v.tensor);
}

/* Releases inputs as their edges brought them (nothing was dereferenced). */
static inline void td_release_raw_inputs(const td_pnode *n, td_value *in) {
  for (uint32_t i = 0; i < n->input_count; i++) {
    if (!in[i].tensor) continue;
    td_value_release(in[i], n->in_refs && n->in_refs[i] & TD_IN_REF);
    in[i].tensor = NULL;
  }
}

/* Releases inputs as the kernel saw them. */
static inline void td_release_inputs(const td_pnode *n, td_value *in) {
  for (uint32_t i = 0; i < n->input_count; i++) {
    if (!in[i].tensor) continue;
    td_value_release(in[i], n->in_refs && n->in_refs[i] == TD_IN_REF);
    in[i].tensor = NULL;
  }
}

static inline void td_release_outputs(const td_pnode *n, td_value *out) {
  for (uint32_t i = 0; i < n->output_count; i++) {
    if (!out[i].tensor) continue;
    td_value_release(out[i], td_dtype_is_ref(n->kernel->output_types[i]));
    out[i].tensor = NULL;
  }
}

/* Brings one edge's value (owned; NULL: dead, or a control edge) to its destination. `is_dead`: the source is dead.
 * True: the destination became ready, *dead says how. */
static inline bool td_edge_deliver(const td_program *p, const td_pedge *e, uint32_t *pending, uint32_t *merge_dead,
                                   td_value *slots, td_value v, bool is_dead, bool from_enter, bool *dead) {
  uint32_t count = pending[e->pend];
  bool is_control = e->flags & TD_PE_CONTROL;
  if (__builtin_expect(!(e->flags & TD_PE_MERGE), 1)) {
    count--;
    if (is_control) {
      if (is_dead) count |= TD_PENDING_DEAD;
    } else if (v.tensor) {
      slots[e->slot] = v;
    } else {
      count |= TD_PENDING_DEAD;
    }
    pending[e->pend] = count;
    *dead = count & TD_PENDING_DEAD;
    return !(count & TD_PENDING_COUNT);
  }
  const td_pnode *m = &p->nodes[e->dst];
  if (count & TD_PENDING_FIRED) {
    td_value_release(v, e->flags & TD_PE_REF);
    return false;
  }
  bool ready;
  if (is_control) {
    count -= 2;
    *dead = merge_dead[m->merge] >= m->input_count;
    ready = count == 0 || (count == 1 && *dead);
  } else if (v.tensor) {
    ready = count == 1;
    *dead = false;
    if (count & 1)
      slots[e->slot] = v;
    else
      td_value_release(v, e->flags & TD_PE_REF); /* an earlier one won */
    count &= ~1u;
  } else {
    merge_dead[m->merge]++;
    *dead = merge_dead[m->merge] >= m->input_count || from_enter;
    ready = count == 1 && *dead;
  }
  if (ready) {
    count |= TD_PENDING_FIRED;
    *dead = *dead && count & 1; /* a live input came before the last dead one */
  }
  pending[e->pend] = count;
  return ready;
}

/* The value that edge `e` takes out of `out`. */
static inline td_value td_edge_take(const td_pedge *e, td_value *out) {
  td_value v = {0};
  if (e->flags & TD_PE_CONTROL) return v;
  v = out[e->out];
  if (!v.tensor) return v;
  if (e->flags & TD_PE_LAST)
    out[e->out].tensor = NULL;
  else
    td_value_retain(v, e->flags & TD_PE_REF);
  return v;
}

/* Runs one live (or dead-aware) node whose inputs are in `in`, unrecorded. */
static inline td_outcome td_node_execute(td_run *r, const td_pnode *n, td_value *in, td_iteration *it, bool is_dead,
                                         bool is_last) {
  td_value *out = r->out;
  if (__builtin_expect(n->flags & TD_PN_REFS, 0) && !is_dead) {
    td_outcome o = td_run_prepare_refs(r, n, in);
    if (o) return o;
  }
  switch (n->exec) {
    case TD_EXEC_NOTHING:
      return TD_OUTCOME_DONE;
    case TD_EXEC_FORWARD:
      out[0] = in[0];
      in[0].tensor = NULL;
      return TD_OUTCOME_DONE;
    case TD_EXEC_CONSTANT:
      out[0].tensor = td_tensor_retain(n->value);
      return TD_OUTCOME_DONE;
    case TD_EXEC_MERGE:
      for (uint32_t i = 0; i < n->input_count; i++) {
        if (!in[i].tensor) continue;
        out[0] = in[i];
        in[i].tensor = NULL;
        if (n->flags & TD_PN_INDEXED)
          out[1].tensor = td_tensor_retain(td_pnode_info_of(r->program, n)->merge_indices[i]);
        break;
      }
      return TD_OUTCOME_DONE;
    case TD_EXEC_SWITCH: {
      const td_tensor *pred = in[1].tensor;
      if (!td_tensor_is_scalar(pred)) return td_run_kernel(r, n, in, it, is_dead, is_last); /* which says so */
      out[*TD_DATA(pred, uint8_t) != 0] = in[0];
      in[0].tensor = NULL;
      td_tensor_release(in[1].tensor);
      in[1].tensor = NULL;
      return TD_OUTCOME_DONE;
    }
    case TD_EXEC_ARG:
      return td_run_argument(r, n);
    case TD_EXEC_RETVAL:
      return td_run_result(r, n, in);
    default:
      return td_run_kernel(r, n, in, it, is_dead, is_last);
  }
}

static inline td_outcome td_node_run(td_run *r, const td_pnode *n, td_value *in, td_iteration *it, bool is_dead,
                                     bool is_last) {
  if (__builtin_expect(r->trace != NULL, 0)) return td_run_traced(r, n, in, it, is_dead, is_last);
  return td_node_execute(r, n, in, it, is_dead, is_last);
}

#endif /* TD_RUNTIME_EXECUTOR_INTERNAL_H_ */

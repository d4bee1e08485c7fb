/* Walks loops: see walk.h. */
#include "runtime/walk.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/executor_internal.h"

typedef struct walk {
  td_run *run;
  td_iteration *it;
  const td_walk_plan *plan;
  td_value *slots;
} walk;

static uint32_t within(const td_run *r, const td_frame *f, const td_pnode *n) {
  return (uint32_t)(n - r->program->nodes) - f->layout->first;
}

/* ---- references ---- */

/* `n` more references. A count of one is the caller's own: nobody else can change it. */
static inline void retain_more(td_tensor *t, uint32_t n) {
  if (atomic_load_explicit(&t->refs, memory_order_relaxed) == 1)
    atomic_store_explicit(&t->refs, 1 + n, memory_order_relaxed);
  else
    atomic_fetch_add_explicit(&t->refs, n, memory_order_relaxed);
}

/* Releases a tensor of which another slot holds a reference, too: two are both the caller's own. */
static inline void release_shared(td_tensor *t) {
  if (atomic_load_explicit(&t->refs, memory_order_acquire) == 2) /* acquire: as td_tensor_release() */
    atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
  else
    td_tensor_release(t);
}

static td_tensor *fixed_value(const walk *w, const td_walk_fixed *x) {
  const td_frame *f = w->it->frame;
  if (x->invariant != (uint32_t)TD_NO_NODE) return f->numbered[x->invariant];
  return w->run->program->nodes[f->layout->first + x->node].value;
}

static int by_slot(const void *slot, const void *x) {
  uint32_t a = *(const uint32_t *)slot, b = ((const td_walk_fixed *)x)->slot;
  return a < b ? -1 : a > b;
}

/* A kernel took what is fixed in `slot`. */
static void __attribute__((noinline)) fix_again(const walk *w, uint32_t slot) {
  const td_walk_fixed *x = bsearch(&slot, w->plan->fixed, w->plan->fixed_count, sizeof *x, by_slot);
  w->slots[slot].tensor = td_tensor_retain(fixed_value(w, x));
}

static inline void release_inputs(const walk *w, const td_walk_op *op) {
  const uint8_t *kept = w->plan->kept + op->slot;
  td_value *in = w->slots + op->slot;
  for (uint32_t i = 0; i < op->input_count; i++) {
    td_tensor *t = in[i].tensor;
    if (kept[i] == TD_WALK_FIXED) {
      if (__builtin_expect(!t, 0)) fix_again(w, op->slot + i);
      continue;
    }
    if (!t) continue;
    in[i].tensor = NULL;
    if (kept[i] == TD_WALK_SHARED)
      release_shared(t);
    else
      td_tensor_release(t);
  }
}

/* Takes what is left in a walk's window between two iterations: what is fixed. */
static void release_fixed(const walk *w) {
  for (uint32_t i = 0; i < w->plan->fixed_count; i++) {
    td_value *slot = &w->slots[w->plan->fixed[i].slot];
    td_tensor_release(slot->tensor);
    slot->tensor = NULL;
  }
}

/* ---- delivery ---- */

static inline void send(const walk *w, const td_walk_op *op, td_value *out) {
  const td_walk_edge *e = w->plan->edges + op->edge, *end = e + op->edge_count;
  for (; e < end; e++) {
    td_value v = out[e->out];
    if (e->more && v.tensor) retain_more(v.tensor, e->more);
    w->slots[e->slot] = v;
  }
}

/* After a kernel or another node with several outputs. */
static inline void send_all(const walk *w, const td_walk_op *op, td_value *out) {
  send(w, op, out);
  if (op->has_unused) { /* outputs that no edge took, between those that one did */
    const td_walk_edge *e = w->plan->edges + op->edge;
    for (uint32_t i = 0; i < op->edge_count; i++) out[e[i].out].tensor = NULL;
    td_release_outputs(op->node, out);
  }
  for (uint32_t i = 0; i < op->output_count; i++) out[i].tensor = NULL;
}

/* A NextIteration's value goes into the next iteration. */
static inline void carry(const walk *w, const td_walk_op *op, td_value v) {
  if (op->edge_count)
    send(w, op, &v);
  else
    td_tensor_release(v.tensor);
}

static void refill(const walk *w) {
  for (uint32_t i = 0; i < w->plan->refill_count; i++) {
    const td_walk_fixed *x = &w->plan->refills[i];
    w->slots[x->slot].tensor = td_tensor_retain(fixed_value(w, x));
  }
}

/* ---- nodes ---- */

static inline bool controls_are_dead(const walk *w, td_walk_controls c) {
  for (uint32_t i = 0; i < c.count; i++)
    if (w->it->walk_dead[w->plan->controls[c.first + i]]) return true;
  return false;
}

static inline bool is_dead(const walk *w, const td_walk_op *op) {
  const td_value *in = w->slots + op->slot;
  if (op->kind == TD_WALK_MERGE) {
    for (uint32_t i = 0; i < op->input_count; i++)
      if (in[i].tensor) return false;
    return true;
  }
  for (uint32_t i = 0; i < op->input_count; i++)
    if (!in[i].tensor) return true;
  return op->controls.count && controls_are_dead(w, op->controls);
}

static void run_exit(const walk *w, const td_walk_op *op, bool dead) {
  td_frame *f = w->it->frame;
  if (dead) {
    if (f->dead_exit_count < f->layout->exit_count) f->dead_exits[f->dead_exit_count++] = op->node;
    return;
  }
  td_value v = w->slots[op->slot];
  w->slots[op->slot].tensor = NULL;
  td_framed_pass(w->run, op->node, f->parent, &v, false);
}

static inline void run_merge(const walk *w, const td_walk_op *op) {
  td_value *in = w->slots + op->slot, first = {0};
  uint32_t which = 0;
  for (uint32_t i = 0; i < op->input_count; i++) {
    if (!in[i].tensor) continue;
    if (first.tensor) { /* another one came before */
      td_tensor_release(in[i].tensor);
    } else {
      first = in[i];
      which = i;
    }
    in[i].tensor = NULL;
  }
  if (!(op->node->flags & TD_PN_INDEXED)) {
    carry(w, op, first);
    return;
  }
  td_value *out = w->run->out;
  out[0] = first;
  out[1].tensor = td_tensor_retain(td_pnode_info_of(w->run->program, op->node)->merge_indices[which]);
  send_all(w, op, out);
}

/* False: the run has failed. */
static inline bool run_switch(const walk *w, const td_walk_op *op) {
  td_value *in = w->slots + op->slot, v = in[0];
  td_tensor *pred = in[1].tensor;
  if (__builtin_expect(!td_tensor_is_scalar(pred), 0)) /* the kernel says so */
    return td_run_kernel(w->run, op->node, in, w->it, false, false) == TD_OUTCOME_DONE;
  uint32_t side = *TD_DATA(pred, uint8_t) != 0;
  in[0].tensor = NULL;
  release_inputs(w, op);
  bool is_taken = false;
  const td_walk_edge *e = w->plan->edges + op->edge, *end = e + op->edge_count;
  for (; e < end; e++) {
    if (e->out != side) continue;
    if (e->more) retain_more(v.tensor, e->more);
    w->slots[e->slot] = v;
    is_taken = true;
  }
  if (!is_taken) td_tensor_release(v.tensor);
  return true;
}

typedef enum outcome { GO_ON, FAILED, COSTLY } outcome;

static inline outcome run_kernel(const walk *w, const td_walk_op *op) {
  td_run *r = w->run;
  td_kernel *k = op->node->kernel;
  td_value *in = w->slots + op->slot;
  int fuel;
  if (td_run_is_costly(k, op->node, in, &fuel) && r->pool) return COSTLY;
  r->fuel -= fuel;
  td_kernel_ctx *ctx = td_run_context(r, op->node, in, false);
  td_status status = k->compute(ctx);
  release_inputs(w, op);
  if (__builtin_expect(status != NULL, 0)) {
    td_release_outputs(op->node, ctx->out);
    td_run_fail_at(r, op->node, status);
    return FAILED;
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    const td_tensor *t = ctx->out[i].tensor;
    if (t && t->dtype == k->output_types[i]) continue;
    if (!td_run_check_outputs(r, op->node, ctx)) return FAILED;
    break;
  }
  send_all(w, op, r->out);
  return GO_ON;
}

static inline outcome run_op(const walk *w, const td_walk_op *op) {
  bool dead = is_dead(w, op);
  if (op->is_told) w->it->walk_dead[op->id] = dead;
  if (op->kind == TD_WALK_EXIT) {
    run_exit(w, op, dead);
    if (dead) release_inputs(w, op);
    return GO_ON;
  }
  if (dead) {
    release_inputs(w, op);
    return GO_ON;
  }
  td_value *in = w->slots + op->slot;
  switch (op->kind) {
    case TD_WALK_NOTHING:
      return GO_ON;
    case TD_WALK_FORWARD: {
      td_value v = in[0];
      in[0].tensor = NULL;
      carry(w, op, v);
      return GO_ON;
    }
    case TD_WALK_CONSTANT: {
      td_value v = {td_tensor_retain(op->node->value)};
      carry(w, op, v);
      return GO_ON;
    }
    case TD_WALK_MERGE:
      run_merge(w, op);
      return GO_ON;
    case TD_WALK_SWITCH:
      return run_switch(w, op) ? GO_ON : FAILED;
    default:
      return run_kernel(w, op);
  }
}

/* ---- back to the usual way ---- */

static bool has_run(const walk *w, uint32_t id) { return w->plan->ran_at[id] <= w->it->walk_at; }

/* An edge of a node that has run counts for one that has not. */
static void count_edge(const walk *w, const td_pedge *e, bool source_is_dead) {
  const td_pframe *layout = w->it->frame->layout;
  const td_pnode *n = &w->run->program->nodes[e->dst];
  bool is_control = e->flags & TD_PE_CONTROL, dead = is_control ? source_is_dead : !w->slots[e->slot].tensor;
  if (has_run(w, e->dst - layout->first)) return;
  uint32_t *count = &w->it->pending[e->pend];
  if (!(e->flags & TD_PE_MERGE))
    *count = (*count - 1) | (dead ? TD_PENDING_DEAD : 0);
  else if (is_control)
    *count -= 2;
  else if (dead)
    w->it->merge_dead[n->merge]++;
  else
    *count &= ~1u;
}

static void count_edges(const walk *w, const td_pnode *n, bool dead) {
  const td_program *p = w->run->program;
  for (const td_pedge *e = p->edges + n->edge, *end = e + n->edge_count; e < end; e++) count_edge(w, e, dead);
}

/* Makes node `id` ready if it is. */
static void wake(const walk *w, uint32_t id) {
  td_iteration *it = w->it;
  const td_pframe *layout = it->frame->layout;
  const td_pnode *n = &w->run->program->nodes[layout->first + id];
  uint32_t count = it->pending[id];
  bool dead = count & TD_PENDING_DEAD, ready = !(count & TD_PENDING_COUNT);
  if (n->exec == TD_EXEC_MERGE) {
    dead = count == 1 && it->merge_dead[n->merge] >= n->input_count;
    ready = ready || dead;
    if (ready) it->pending[id] = count | TD_PENDING_FIRED;
  }
  if (ready) td_framed_push(w->run, (layout->first + id) | (dead ? TD_PENDING_DEAD : 0), it);
}

/* Fixed constants came by no edge: those that have not run go, those that died have never come. `dead`: by node. */
static void settle_constants(const walk *w, bool *dead) {
  for (uint32_t i = 0; i < w->plan->fixed_count; i++) {
    const td_walk_fixed *x = &w->plan->fixed[i];
    if (x->invariant != (uint32_t)TD_NO_NODE) continue;
    if (has_run(w, x->node)) dead[x->node] = controls_are_dead(w, x->controls);
    if (has_run(w, x->node) && !dead[x->node]) continue;
    td_tensor_release(w->slots[x->slot].tensor);
    w->slots[x->slot].tensor = NULL;
  }
}

/* Gives the iteration to the engine of frames.c, in front of the op at walk_at: counts what has run. */
static void __attribute__((noinline)) stop(const walk *w) {
  td_iteration *it = w->it;
  td_frame *f = it->frame;
  const td_pframe *layout = f->layout;
  const td_pnode *nodes = w->run->program->nodes + layout->first;
  f->is_walked = false;
  memcpy(it->pending, layout->pending, layout->count * sizeof *it->pending);
  memset(it->merge_dead, 0, layout->merge_count * sizeof *it->merge_dead);
  settle_constants(w, it->walk_dead);
  for (uint32_t i = 0; i < f->invariant_count; i++) count_edges(w, f->invariants[i].node, false);
  for (uint32_t i = 0; i < layout->count; i++) {
    bool is_next = nodes[i].flags & TD_PN_NEXT; /* the last iteration's */
    if (is_next || (has_run(w, i) && !(nodes[i].flags & TD_PN_EXIT)))
      count_edges(w, &nodes[i], !is_next && it->walk_dead[i]);
  }
  for (uint32_t i = 0; i < layout->count; i++)
    if (!has_run(w, i)) wake(w, i);
}

/* ---- iterations ---- */

/* At the end of an iteration: true when another one has begun. */
static bool next(const walk *w) {
  td_iteration *it = w->it;
  td_frame *f = it->frame;
  const td_walk_op *nexts = w->plan->ops + w->plan->op_count;
  uint32_t live = 0;
  for (uint32_t i = 0; i < w->plan->next_count; i++) {
    if (is_dead(w, &nexts[i]))
      release_inputs(w, &nexts[i]);
    else
      live++;
  }
  bool goes_on = live == w->plan->next_count;
  for (uint32_t i = 0; live && i < w->plan->next_count; i++) {
    td_value v = w->slots[nexts[i].slot];
    if (!v.tensor) continue;
    w->slots[nexts[i].slot].tensor = NULL;
    if (goes_on)
      carry(w, &nexts[i], v);
    else
      f->deferred[f->deferred_count++] = (struct td_frame_value){nexts[i].node, v};
  }
  if (!goes_on) return false;
  it->id.iter++;
  f->dead_exit_count = 0;
  refill(w);
  return true;
}

bool td_walk_begin(td_run *r, td_iteration *it) {
  td_frame *f = it->frame;
  walk w = {r, it, f->layout->walk, it->slots};
  f->is_walked = f->deferred_count == w.plan->next_count;
  for (uint32_t i = 0; i < f->invariant_count; i++) {
    td_tensor *t = f->invariants[i].value.tensor;
    if (!t) f->is_walked = false;
    f->numbered[f->invariants[i].node->next] = t;
  }
  if (!f->is_walked || f->invariant_count < f->layout->invariant_count) return f->is_walked = false;
  for (uint32_t i = 0; i < w.plan->fixed_count; i++)
    w.slots[w.plan->fixed[i].slot].tensor = td_tensor_retain(fixed_value(&w, &w.plan->fixed[i]));
  for (uint32_t i = 0; i < f->deferred_count; i++)
    carry(&w, &w.plan->ops[w.plan->ran_at[within(r, f, f->deferred[i].node)] - 1], f->deferred[i].value);
  f->deferred_count = 0;
  f->dead_exit_count = 0;
  it->id.iter++;
  it->walk_at = 0;
  refill(&w);
  td_framed_push(r, TD_WALK_ITEM, it);
  return true;
}

/* The fuel is used up. True: others' turn. */
static bool must_yield(td_run *r) { return td_run_is_over(r) || td_run_turn_ended(r) || r->ring_count; }

void td_walk_run(td_run *r, td_iteration *it) {
  const walk w = {r, it, it->frame->layout->walk, it->slots};
  const td_walk_op *ops = w.plan->ops;
  uint32_t at = it->walk_at, count = w.plan->op_count;
  td_run_submit_handed(r);
  r->ctx.frame = it->id;
  for (;;) {
    for (; at < count; at++) {
      if (__builtin_expect(--r->fuel <= 0, 0)) {
        it->walk_at = at;
        if (must_yield(r)) goto yielded;
      }
      outcome o = run_op(&w, &ops[at]);
      if (__builtin_expect(o == GO_ON, 1)) continue;
      if (o == FAILED) return;
      it->walk_at = at;
      stop(&w);
      td_framed_ended(r, it);
      return;
    }
    if (!next(&w)) break;
    r->ctx.frame = it->id;
    at = 0;
    if (!count && --r->fuel <= 0 && must_yield(r)) {
      it->walk_at = 0;
      goto yielded;
    }
  }
  release_fixed(&w);
  td_framed_ended(r, it);
  return;
yielded:
  if (r->status) return;
  td_framed_push(r, TD_WALK_ITEM, it);
  it->outstanding--; /* of the item that ran */
}

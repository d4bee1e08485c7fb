/* The engine for programs without loops: one set of slots and counts, each node runs once. */
#include <string.h>

#include "base/mem.h"
#include "runtime/executor_internal.h"

enum { DEAD = TD_PENDING_DEAD }; /* on the list, too */

void td_flat_init(td_run *r) {
  const td_pframe *root = &r->program->frames[0];
  if (root->count) memcpy(r->pending, root->pending, root->count * sizeof *r->pending);
  if (root->merge_count) memset(r->merge_dead, 0, root->merge_count * sizeof *r->merge_dead);
  if (root->root_count) memcpy(r->ready, root->roots, root->root_count * sizeof *r->ready);
  r->ready_head = 0;
  r->ready_tail = root->root_count;
}

void td_flat_drop_ready(td_run *r) { r->ready_head = r->ready_tail; }

/* Tells the nodes behind `n`; returns the list's new end. */
static inline uint32_t deliver(td_run *r, const td_pnode *n, td_value *out, bool is_dead, uint32_t tail) {
  const td_program *p = r->program;
  uint32_t *ready = r->ready;
  for (const td_pedge *e = p->edges + n->edge, *end = e + n->edge_count; e < end; e++) {
    bool dead;
    td_value v = td_edge_take(e, out);
    if (td_edge_deliver(p, e, r->pending, r->merge_dead, r->slots, v, is_dead, false, &dead))
      ready[tail++] = e->dst | (dead ? DEAD : 0);
  }
  if (n->flags & TD_PN_UNUSED) td_release_outputs(n, out);
  return tail;
}

void td_flat_deliver(td_run *r, const td_pnode *n, td_value *out, bool is_dead) {
  r->ready_tail = deliver(r, n, out, is_dead, r->ready_tail);
}

/* Walks down a chain from live node `at`, with nothing else ready: nodes that only pass on what they get, each of which
 * makes the next one ready. Such a walk needs neither the list nor the counts. Returns where it ends, to be run as
 * usual; the nodes before it have run. */
static uint32_t follow(td_run *r, uint32_t at) {
  const td_pnode *nodes = r->program->nodes;
  const uint32_t *signals = r->program->signals;
  td_value *slots = r->slots;
  uint32_t passed = 0, limit = (uint32_t)r->fuel;
  while (passed < limit) {
    if (signals[at] != (uint32_t)TD_NO_NODE) {
      at = signals[at];
    } else {
      const td_pnode *n = &nodes[at];
      if (n->exec != TD_EXEC_FORWARD || !(n->flags & TD_PN_SOLE_EDGE) || n->flags & (TD_PN_REFS | TD_PN_UNUSED)) break;
      td_value v = slots[n->slot];
      slots[n->slot].tensor = NULL;
      slots[nodes[n->next].slot] = v; /* the only input that it waits for */
      at = n->next;
    }
    passed++;
  }
  r->fuel -= (int)passed;
  r->ready_head += passed; /* as if they had been on the list */
  r->ready_tail += passed;
  return at;
}

/* Runs live nodes that have nothing to run and nothing to give, from the list's head on, while there are any. */
static void run_signals(td_run *r) {
  const td_pnode *nodes = r->program->nodes;
  uint32_t head = r->ready_head, tail = r->ready_tail, *ready = r->ready, *pending = r->pending;
  uint32_t end = head + (uint32_t)TD_MAX(r->fuel, 0);
  for (; head < tail && head < end; head++) {
    const td_pnode *n = &nodes[ready[head] & ~DEAD];
    if (n->exec != TD_EXEC_NOTHING || ready[head] & DEAD) break;
    if (!(n->flags & TD_PN_ONE_EDGE)) {
      tail = deliver(r, n, NULL, false, tail);
      continue;
    }
    uint32_t count = --pending[n->next];
    if (!(count & TD_PENDING_COUNT)) ready[tail++] = n->next | (count & TD_PENDING_DEAD);
  }
  r->fuel -= (int)(head - r->ready_head);
  r->ready_head = head;
  r->ready_tail = tail;
}

bool td_flat_run(td_run *r) {
  const td_pnode *nodes = r->program->nodes;
  while (r->ready_head < r->ready_tail) {
    uint32_t item = r->ready[r->ready_head++];
    if (r->ready_head == r->ready_tail && !(item & DEAD) && !r->trace) item = follow(r, item);
    const td_pnode *n = &nodes[item & ~DEAD];
    if (r->ready_head < r->ready_tail) td_kernel_prefetch(nodes[r->ready[r->ready_head] & ~DEAD].kernel);
    bool is_dead = item & DEAD && !(n->flags & TD_PN_NEVER_DEAD);
    td_value *in = r->slots + n->slot;
    if (__builtin_expect(is_dead && !(n->flags & TD_PN_DEAD_AWARE), 0)) {
      td_release_raw_inputs(n, in);
      td_flat_deliver(r, n, r->out, true);
    } else {
      bool is_last = r->ready_head == r->ready_tail;
      if (td_node_run(r, n, in, NULL, is_dead, is_last) == TD_OUTCOME_DONE)
        td_flat_deliver(r, n, r->out, n->exec == TD_EXEC_KERNEL && r->ctx.out_dead);
      if (n->exec == TD_EXEC_NOTHING && !r->trace) run_signals(r); /* they come in droves */
    }
    if (__builtin_expect(--r->fuel <= 0, 0)) {
      if (td_run_is_over(r)) return true;
      if (td_run_turn_ended(r) && r->ready_head < r->ready_tail) return false;
    }
  }
  return true;
}

void td_flat_end(td_run *r) {
  if (!r->status && r->ready_head == r->program->node_count) return; /* every node ran, every value was taken */
  const td_pframe *root = &r->program->frames[0];
  for (uint32_t i = 0; i < root->slot_count; i++) {
    td_value_release(r->slots[i], root->slot_refs && root->slot_refs[i]);
    r->slots[i].tensor = NULL;
  }
}

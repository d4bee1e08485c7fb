/* The engine for programs without loops: one set of slots and counts, each node runs once. */
#include <string.h>

#include "base/mem.h"
#include "runtime/executor_internal.h"

enum { DEAD = 1u << 31 };

void td_flat_init(td_run *r) {
  const td_pframe *root = &r->program->frames[0];
  if (root->count) memcpy(r->pending, root->pending, root->count * sizeof *r->pending);
  if (root->merge_count) memset(r->merge_dead, 0, root->merge_count * sizeof *r->merge_dead);
  if (root->root_count) memcpy(r->ready, root->roots, root->root_count * sizeof *r->ready);
  r->ready_head = 0;
  r->ready_tail = root->root_count;
}

void td_flat_drop_ready(td_run *r) { r->ready_head = r->ready_tail; }

void td_flat_deliver(td_run *r, const td_pnode *n, td_value *out, bool is_dead) {
  const td_program *p = r->program;
  r->executed++;
  for (const td_pedge *e = p->edges + n->edge, *end = e + n->edge_count; e < end; e++) {
    bool dead;
    td_value v = td_edge_take(e, out);
    if (td_edge_deliver(p, e, r->pending, r->merge_dead, r->slots, v, is_dead, false, &dead))
      r->ready[r->ready_tail++] = e->dst | (dead ? DEAD : 0);
  }
  if (n->flags & TD_PN_UNUSED) td_release_outputs(n, out);
}

bool td_flat_run(td_run *r) {
  const td_pnode *nodes = r->program->nodes;
  while (r->ready_head < r->ready_tail) {
    uint32_t item = r->ready[r->ready_head++];
    const td_pnode *n = &nodes[item & ~DEAD];
    bool is_dead = item & DEAD && !(n->flags & TD_PN_NEVER_DEAD);
    td_value *in = r->slots + n->slot;
    if (__builtin_expect(is_dead && !(n->flags & TD_PN_DEAD_AWARE), 0)) {
      td_release_raw_inputs(n, in);
      td_flat_deliver(r, n, r->out, true);
    } else {
      bool is_last = r->ready_head == r->ready_tail;
      if (td_node_run(r, n, in, NULL, is_dead, is_last) == TD_OUTCOME_DONE)
        td_flat_deliver(r, n, r->out, n->exec == TD_EXEC_KERNEL && r->ctx.out_dead);
    }
    if (__builtin_expect(--r->fuel <= 0, 0)) {
      if (td_run_is_over(r)) return true;
      if (td_run_turn_ended(r) && r->ready_head < r->ready_tail) return false;
    }
  }
  return true;
}

void td_flat_end(td_run *r) {
  if (!r->status && r->executed == r->program->node_count) return; /* every value was taken */
  const td_pframe *root = &r->program->frames[0];
  for (uint32_t i = 0; i < root->slot_count; i++) {
    td_value_release(r->slots[i], root->slot_refs && root->slot_refs[i]);
    r->slots[i].tensor = NULL;
  }
}

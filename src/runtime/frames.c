/* The engine for programs with loops: frame instances and their windows of iterations.
 *
 * A frame instance belongs to one iteration of its parent. Its iterations form a list, oldest first; at most
 * parallel_iterations of them exist, later NextIterations are deferred. An iteration that has ended gives its window
 * back for the next one. An iteration has ended when none of its nodes is ready or running, no child frame lives in
 * it, and all before it have ended (the first one: all Enters of the frame have arrived).
 */
#include <string.h>

#include "base/mem.h"
#include "runtime/executor_internal.h"

enum { DEAD = 1u << 31 };

/* ---- the ready ring ---- */

static void __attribute__((noinline)) grow_ring(td_run *r) {
  uint32_t capacity = r->ring_capacity ? r->ring_capacity * 2 : 64;
  td_ready *ring = td_malloc(capacity * sizeof *ring);
  for (uint32_t i = 0; i < r->ring_count; i++) ring[i] = r->ring[(r->ring_head + i) & (r->ring_capacity - 1)];
  td_free(r->ring);
  r->ring = ring;
  r->ring_head = 0;
  r->ring_capacity = capacity;
}

static inline void push_ready(td_run *r, uint32_t node, td_iteration *it) {
  if (__builtin_expect(r->ring_count == r->ring_capacity, 0)) grow_ring(r);
  r->ring[(r->ring_head + r->ring_count++) & (r->ring_capacity - 1)] = (td_ready){node, it};
  it->outstanding++;
}

void td_framed_drop_ready(td_run *r) { r->ring_count = 0; }

void td_framed_push(td_run *r, uint32_t node, td_iteration *it) { push_ready(r, node, it); }

/* ---- iterations ---- */

static td_iteration *iteration_create(td_run *r, td_frame *f) {
  const td_pframe *layout = f->layout;
  td_iteration *it = r->spare_iterations[f->index];
  if (it) {
    r->spare_iterations[f->index] = it->next;
  } else {
    it = td_malloc(sizeof *it + layout->slot_count * sizeof(td_value) +
                   ((size_t)layout->count + layout->merge_count) * 4 + (layout->walk ? layout->count : 0));
    it->slots = (td_value *)(it + 1);
    it->pending = (uint32_t *)(it->slots + layout->slot_count);
    it->merge_dead = it->pending + layout->count;
    it->walk_dead = (bool *)(it->merge_dead + layout->merge_count);
    memset(it->slots, 0, layout->slot_count * sizeof *it->slots);
    if (layout->walk) memset(it->walk_dead, 0, layout->count);
  }
  if (layout->count) memcpy(it->pending, layout->pending, layout->count * sizeof *it->pending);
  if (layout->merge_count) memset(it->merge_dead, 0, layout->merge_count * sizeof *it->merge_dead);
  it->frame = f;
  it->outstanding = 0;
  it->children = NULL;
  it->id = f->id;
  if (f->last) it->id.iter = f->last->id.iter + 1;
  it->prev = f->last;
  it->next = NULL;
  if (f->last)
    f->last->next = it;
  else
    f->first = it;
  f->last = it;
  f->iteration_count++;
  return it;
}

static void release_slots(td_iteration *it) {
  const td_pframe *layout = it->frame->layout;
  for (uint32_t i = 0; i < layout->slot_count; i++) {
    if (!it->slots[i].tensor) continue;
    td_value_release(it->slots[i], layout->slot_refs && layout->slot_refs[i]);
    it->slots[i].tensor = NULL;
  }
}

/* The oldest iteration of its frame has ended. */
static void iteration_end(td_run *r, td_iteration *it) {
  td_frame *f = it->frame;
  f->first = it->next;
  if (it->next)
    it->next->prev = NULL;
  else
    f->last = NULL;
  f->iteration_count--;
  release_slots(it);
  it->next = r->spare_iterations[f->index];
  r->spare_iterations[f->index] = it;
}

/* ---- delivery within one iteration ---- */

static inline void deliver_to(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead) {
  const td_program *p = r->program;
  bool from_enter = n->flags & TD_PN_ENTER;
  for (const td_pedge *e = p->edges + n->edge, *end = e + n->edge_count; e < end; e++) {
    bool dead;
    td_value v = td_edge_take(e, out);
    if (td_edge_deliver(p, e, it->pending, it->merge_dead, it->slots, v, is_dead, from_enter, &dead))
      push_ready(r, e->dst | (dead ? DEAD : 0), it);
  }
  if (n->flags & TD_PN_UNUSED) td_release_outputs(n, out);
}

void td_framed_pass(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead) {
  deliver_to(r, n, it, out, is_dead);
}

/* A loop invariant goes into one more iteration: `value` stays the frame's. */
static void deliver_invariant(td_run *r, const td_pnode *n, td_iteration *it, td_value value) {
  td_value out = value;
  if (out.tensor) td_value_retain(out, td_dtype_is_ref(n->kernel->output_types[0]));
  deliver_to(r, n, it, &out, !value.tensor);
}

/* ---- frames ---- */

static td_frame *frame_create(td_run *r, uint32_t index, td_iteration *parent) {
  const td_pframe *layout = &r->program->frames[index];
  td_frame *f = r->spare_frames[index];
  if (f) {
    r->spare_frames[index] = f->next;
  } else {
    size_t values = (size_t)layout->invariant_count + layout->next_count;
    size_t pointers = (size_t)layout->exit_count + layout->invariant_count;
    f = td_calloc(1, sizeof *f + values * sizeof *f->invariants + pointers * sizeof(void *));
    f->layout = layout;
    f->index = index;
    f->invariants = (struct td_frame_value *)(f + 1);
    f->deferred = f->invariants + layout->invariant_count;
    f->dead_exits = (const td_pnode **)(f->deferred + layout->next_count);
    f->numbered = (td_tensor **)(f->dead_exits + layout->exit_count);
  }
  f->is_walked = layout->walk && !r->trace;
  f->parent = parent;
  f->pending_enters = layout->enter_count;
  f->iteration_count = f->invariant_count = f->deferred_count = f->dead_exit_count = 0;
  f->first = f->last = NULL;
  f->path.size = 0;
  f->id = (td_frame_id){0};
  if (parent) {
    f->id = td_frame_child(parent->id, td_strbuf_view(&parent->frame->path), layout->name, &f->path);
    f->next_child = parent->children;
    parent->children = f;
  }
  f->prev = NULL;
  f->next = r->frames;
  if (f->next) f->next->prev = f;
  r->frames = f;
  iteration_create(r, f);
  return f;
}

static td_frame *child_frame(td_run *r, uint32_t index, td_iteration *parent) {
  for (td_frame *f = parent->children; f; f = f->next_child)
    if (f->index == index) return f;
  return frame_create(r, index, parent);
}

static void release_frame_values(td_frame *f) {
  for (uint32_t i = 0; i < f->invariant_count; i++)
    td_value_release(f->invariants[i].value, td_dtype_is_ref(f->invariants[i].node->kernel->output_types[0]));
  for (uint32_t i = 0; i < f->deferred_count; i++)
    td_value_release(f->deferred[i].value, td_dtype_is_ref(f->deferred[i].node->kernel->output_types[0]));
  f->invariant_count = f->deferred_count = 0;
}

/* A frame has ended: its dead exits reach the parent, and it goes. */
static void frame_end(td_run *r, td_frame *f) {
  td_iteration *parent = f->parent;
  for (uint32_t i = 0; i < f->dead_exit_count; i++) {
    td_value none = {0};
    deliver_to(r, f->dead_exits[i], parent, &none, true);
  }
  release_frame_values(f);
  for (td_frame **at = &parent->children; *at; at = &(*at)->next_child) {
    if (*at != f) continue;
    *at = f->next_child;
    break;
  }
  if (f->prev)
    f->prev->next = f->next;
  else
    r->frames = f->next;
  if (f->next) f->next->prev = f->prev;
  f->next = r->spare_frames[f->index];
  r->spare_frames[f->index] = f;
}

/* Opens the next iteration: what was deferred and the invariants go into it. */
static td_iteration *next_iteration(td_run *r, td_frame *f) {
  td_iteration *it = iteration_create(r, f);
  f->dead_exit_count = 0;
  for (uint32_t i = 0; i < f->deferred_count; i++) deliver_to(r, f->deferred[i].node, it, &f->deferred[i].value, false);
  f->deferred_count = 0;
  for (uint32_t i = 0; i < f->invariant_count; i++)
    deliver_invariant(r, f->invariants[i].node, it, f->invariants[i].value);
  return it;
}

static bool has_ended(const td_iteration *it) {
  if (it->outstanding || it->children || it->prev) return false;
  return it->id.iter || !it->frame->pending_enters;
}

/* Ends what has ended, from `it` on and upwards. */
static void clean_up(td_run *r, td_iteration *it) {
  for (;;) {
    td_frame *f = it->frame;
    if (!f->parent) return;
    while (it && has_ended(it)) {
      td_iteration *next = it->next;
      if (f->deferred_count && f->is_walked) {
        release_slots(it);
        if (td_walk_begin(r, it)) return;
      }
      /* the deferred values open the next window before this one goes, so that it knows its number */
      if (f->deferred_count) {
        td_iteration *opened = next_iteration(r, f);
        if (!next) next = opened;
      }
      iteration_end(r, it);
      it = next;
    }
    if (f->iteration_count || f->pending_enters) return;
    it = f->parent;
    frame_end(r, f);
  }
}

static void op_ended(td_run *r, td_iteration *it) {
  if (!--it->outstanding) clean_up(r, it);
}

void td_framed_ended(td_run *r, td_iteration *it) { op_ended(r, it); }

/* ---- nodes that change the frame ---- */

static void deliver_enter(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead) {
  if (n->child_frame < 0) {
    td_release_outputs(n, out);
    return;
  }
  td_frame *f = child_frame(r, (uint32_t)n->child_frame, it);
  if (n->flags & TD_PN_INVARIANT) {
    if (f->invariant_count < f->layout->invariant_count) {
      f->invariants[f->invariant_count++] = (struct td_frame_value){n, out[0]};
      for (td_iteration *i = f->first; i; i = i->next) deliver_invariant(r, n, i, out[0]);
      out[0].tensor = NULL;
    }
  } else {
    deliver_to(r, n, f->first, out, is_dead);
  }
  f->pending_enters--;
  if (!f->first->outstanding) clean_up(r, f->first);
}

static void deliver_exit(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead) {
  td_frame *f = it->frame;
  if (!is_dead)
    deliver_to(r, n, f->parent, out, false);
  else if (it == f->last && f->dead_exit_count < f->layout->exit_count)
    f->dead_exits[f->dead_exit_count++] = n;
}

static void deliver_next(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead) {
  if (is_dead) return; /* deadness ends here */
  td_frame *f = it->frame;
  if (it == f->last) {
    if (f->is_walked || f->iteration_count >= f->layout->parallel_iterations) {
      if (f->deferred_count < f->layout->next_count) {
        f->deferred[f->deferred_count++] = (struct td_frame_value){n, out[0]};
        out[0].tensor = NULL;
      }
      return;
    }
    next_iteration(r, f);
  }
  deliver_to(r, n, it->next, out, false);
}

static void __attribute__((noinline))
change_frame(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead) {
  is_dead = is_dead || !out[0].tensor;
  if (n->flags & TD_PN_ENTER)
    deliver_enter(r, n, it, out, is_dead);
  else if (n->flags & TD_PN_EXIT)
    deliver_exit(r, n, it, out, is_dead);
  else
    deliver_next(r, n, it, out, is_dead);
  td_release_outputs(n, out);
}

static inline void deliver(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead) {
  if (__builtin_expect(!(n->flags & TD_PN_FRAME_CHANGE), 1))
    deliver_to(r, n, it, out, is_dead);
  else
    change_frame(r, n, it, out, is_dead);
  op_ended(r, it);
}

void td_framed_deliver(td_run *r, const td_pnode *n, td_iteration *it, td_value *out, bool is_dead) {
  deliver(r, n, it, out, is_dead);
}

/* ---- the engine ---- */

void td_framed_init(td_run *r) {
  const td_program *p = r->program;
  r->ring_head = r->ring_count = 0;
  r->frames = NULL;
  if (!r->spare_frames) {
    r->spare_frames = td_new_array(td_frame *, p->frame_count);
    r->spare_iterations = td_new_array(td_iteration *, p->frame_count);
  }
  td_frame *root = frame_create(r, 0, NULL);
  for (uint32_t i = 0; i < p->frames[0].root_count; i++) push_ready(r, p->frames[0].roots[i], root->first);
}

bool td_framed_run(td_run *r) {
  const td_pnode *nodes = r->program->nodes;
  while (r->ring_count) {
    td_ready item = r->ring[r->ring_head];
    r->ring_head = (r->ring_head + 1) & (r->ring_capacity - 1);
    r->ring_count--;
    td_iteration *it = item.iteration;
    if (item.node == TD_WALK_ITEM) {
      td_walk_run(r, it);
      if (r->turn_ended && r->ring_count) return false;
      continue;
    }
    const td_pnode *n = &nodes[item.node & ~DEAD];
    bool is_dead = item.node & DEAD && !(n->flags & TD_PN_NEVER_DEAD);
    td_value *in = it->slots + n->slot;
    if (__builtin_expect(is_dead && !(n->flags & TD_PN_DEAD_AWARE), 0)) {
      td_release_raw_inputs(n, in);
      deliver(r, n, it, r->out, true);
    } else {
      td_outcome o = td_node_run(r, n, in, it, is_dead, !r->ring_count);
      if (o == TD_OUTCOME_DONE)
        deliver(r, n, it, r->out, n->exec == TD_EXEC_KERNEL && r->ctx.out_dead);
      else if (o == TD_OUTCOME_LATER && it->frame->is_walked)
        it->frame->is_walked = false; /* its iterations overlap from now on, as far as they may */
    }
    if (__builtin_expect(--r->fuel <= 0, 0)) {
      if (td_run_is_over(r)) return true;
      if (td_run_turn_ended(r) && r->ring_count) return false;
    }
  }
  return true;
}

static void free_spares(td_run *r) {
  for (uint32_t i = 0; i < r->program->frame_count; i++) {
    for (td_iteration *it = r->spare_iterations[i], *next; it; it = next) {
      next = it->next;
      td_free(it);
    }
    for (td_frame *f = r->spare_frames[i], *next; f; f = next) {
      next = f->next;
      td_strbuf_deinit(&f->path);
      td_free(f);
    }
  }
  td_free(r->spare_iterations);
  td_free(r->spare_frames);
  r->spare_iterations = NULL;
  r->spare_frames = NULL;
}

void td_framed_end(td_run *r) {
  for (td_frame *f = r->frames, *next; f; f = next) {
    next = f->next;
    release_frame_values(f);
    while (f->first) iteration_end(r, f->first);
    f->next = r->spare_frames[f->index];
    r->spare_frames[f->index] = f;
  }
  r->frames = NULL;
  free_spares(r);
  td_free(r->ring);
  r->ring = NULL;
  r->ring_capacity = r->ring_count = 0;
}

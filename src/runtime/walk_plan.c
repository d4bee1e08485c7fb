/* Orders the nodes of a frame for walk.c. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/walk.h"

/* Forwards in a row that vanish into their source's edges; controls that a constant may have to be fixed. */
enum { MAX_VANISHED = 8, MAX_FIXED_CONTROLS = 4 };

/* An edge's end within the frame, behind the nodes that vanish. */
typedef struct target {
  uint32_t slot, dst, out;
} target;

typedef struct control {
  uint32_t src;
  struct control *next;
} control;

/* What is found out about a node of the frame. */
typedef struct place {
  target *targets;
  uint32_t target_count;
  control *controls; /* as they are found; */
  uint32_t *sources; /* then each once */
  uint32_t source_count;
  uint32_t seen;    /* the last node in whose sources it was noted, plus one */
  uint32_t missing; /* inputs not ordered yet */
  uint8_t vanished; /* 0, or how many in a row */
  bool is_fixed, is_told, takes_next;
} place;

typedef struct maker {
  td_program *p;
  td_pframe *frame;
  td_arena *scratch;
  const uint32_t *enters; /* nodes of the program; enter_count of the frame */
  const td_pnode *nodes;  /* of the frame */
  place *places;
  uint32_t *order; /* NextIterations last */
  uint32_t *ran_at;
  td_walk_op *ops;
  uint8_t *kept;
  td_walk_fixed *fixed, *refills;
  uint32_t op_count, fixed_count, refill_count;
  size_t edge_count, control_count, fixed_limit, refill_limit;
} maker;

static bool is_next(const td_pnode *n) { return n->flags & TD_PN_NEXT; }
static const td_pedge *edges_of(const maker *m, const td_pnode *n) { return m->p->edges + n->edge; }
static uint32_t within(const maker *m, const td_pedge *e) { return e->dst - m->frame->first; }

/* ---- which frames ---- */

static bool has_ref(const td_pnode *n) {
  if (n->flags & TD_PN_REFS) return true;
  for (uint32_t i = 0; i < n->output_count; i++)
    if (td_dtype_is_ref(n->kernel->output_types[i])) return true;
  return false;
}

static bool can_walk_node(const maker *m, const td_pnode *n) {
  const uint32_t no = TD_PN_DEAD_AWARE | TD_PN_ENTER | TD_PN_TRANSFER | TD_PN_COPY | TD_PN_KEEPS_REF;
  if (n->exec == TD_EXEC_ARG || n->exec == TD_EXEC_RETVAL || n->exec == TD_EXEC_ASYNC || n->flags & no) return false;
  if (n->flags & (TD_PN_EXIT | TD_PN_NEXT) && n->exec != TD_EXEC_FORWARD) return false;
  if (has_ref(n)) return false;
  for (uint32_t i = 0; is_next(n) && i < n->edge_count; i++)
    if (edges_of(m, n)[i].flags & TD_PE_CONTROL) return false;
  return true;
}

/* From the second iteration on, an Enter that is no invariant brings nothing: only a Merge that gets a NextIteration
 * in its place may read it. */
static bool can_walk_enter(const maker *m, const td_pnode *n) {
  if (has_ref(n)) return false;
  for (uint32_t i = 0; !(n->flags & TD_PN_INVARIANT) && i < n->edge_count; i++) {
    const td_pedge *e = &edges_of(m, n)[i];
    if (e->flags & TD_PE_CONTROL || !(e->flags & TD_PE_MERGE) || !m->places[within(m, e)].takes_next) return false;
  }
  return true;
}

static bool can_walk(maker *m) {
  if (!m->frame->next_count) return false;
  for (uint32_t i = 0; i < m->frame->count; i++) {
    const td_pnode *n = &m->nodes[i];
    if (!can_walk_node(m, n)) return false;
    for (uint32_t k = 0; is_next(n) && k < n->edge_count; k++)
      m->places[within(m, &edges_of(m, n)[k])].takes_next = true;
  }
  for (uint32_t i = 0; i < m->frame->enter_count; i++)
    if (!can_walk_enter(m, &m->p->nodes[m->enters[i]])) return false;
  return true;
}

/* ---- order ---- */

/* False: some cycle has no NextIteration. */
static bool order_nodes(maker *m) {
  uint32_t count = m->frame->count, head = 0, tail = 0, last = count;
  for (uint32_t i = 0; i < count; i++) {
    const td_pnode *n = &m->nodes[i];
    if (n->flags & TD_PN_FRAME_CHANGE) continue;
    for (uint32_t k = 0; k < n->edge_count; k++) m->places[within(m, &edges_of(m, n)[k])].missing++;
  }
  for (uint32_t i = count; i-- > 0;)
    if (is_next(&m->nodes[i])) m->order[--last] = i;
  for (uint32_t i = 0; i < count; i++)
    if (!m->places[i].missing && !is_next(&m->nodes[i])) m->order[tail++] = i;
  while (head < tail) {
    const td_pnode *n = &m->nodes[m->order[head++]];
    if (n->flags & TD_PN_FRAME_CHANGE) continue;
    for (uint32_t k = 0; k < n->edge_count; k++) {
      uint32_t dst = within(m, &edges_of(m, n)[k]);
      if (!--m->places[dst].missing && !is_next(&m->nodes[dst])) m->order[tail++] = dst;
    }
  }
  return tail == last;
}

/* ---- edges ---- */

/* All it does is to pass its only input on to others: its source can send there itself. */
static bool may_vanish(const maker *m, const td_pnode *n) {
  if (n->exec != TD_EXEC_FORWARD || n->flags & (TD_PN_FRAME_CHANGE | TD_PN_UNUSED)) return false;
  if (m->frame->pending[n - m->nodes] != 1) return false;
  for (uint32_t i = 0; i < n->edge_count; i++)
    if (edges_of(m, n)[i].flags & TD_PE_CONTROL) return false;
  return true;
}

static int by_output(const void *a, const void *b) {
  const target *x = a, *y = b;
  return x->out != y->out ? (x->out < y->out ? -1 : 1) : x->slot < y->slot ? -1 : x->slot > y->slot;
}

static target *find_targets(const maker *m, const td_pnode *n, uint32_t *out_count) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < n->edge_count; i++) {
    const td_pedge *e = &edges_of(m, n)[i];
    if (e->flags & TD_PE_CONTROL) continue;
    const place *dst = &m->places[within(m, e)];
    count += dst->vanished ? dst->target_count : 1;
  }
  target *targets = td_arena_array(m->scratch, target, count), *t = targets;
  for (uint32_t i = 0; i < n->edge_count; i++) {
    const td_pedge *e = &edges_of(m, n)[i];
    if (e->flags & TD_PE_CONTROL) continue;
    const place *dst = &m->places[within(m, e)];
    if (!dst->vanished) *t++ = (target){e->slot, within(m, e), e->out};
    for (uint32_t k = 0; dst->vanished && k < dst->target_count; k++)
      *t++ = (target){dst->targets[k].slot, dst->targets[k].dst, e->out};
  }
  qsort(targets, count, sizeof *targets, by_output);
  *out_count = count;
  return targets;
}

/* From the last node to the first, so that what vanishes knows its targets before its source asks for them. */
static void follow_edges(maker *m) {
  for (uint32_t i = m->frame->count; i-- > 0;) {
    const td_pnode *n = &m->nodes[m->order[i]];
    place *at = &m->places[m->order[i]];
    if (n->flags & (TD_PN_EXIT | TD_PN_NEXT)) continue;
    at->targets = find_targets(m, n, &at->target_count);
    m->edge_count += at->target_count;
    uint8_t deepest = 0;
    for (uint32_t k = 0; k < n->edge_count; k++)
      if (!(edges_of(m, n)[k].flags & TD_PE_CONTROL))
        deepest = TD_MAX(deepest, m->places[within(m, &edges_of(m, n)[k])].vanished);
    if (may_vanish(m, n) && deepest < MAX_VANISHED) at->vanished = (uint8_t)(deepest + 1);
  }
  for (uint32_t i = 0; i < m->frame->count; i++) {
    if (!is_next(&m->nodes[i])) continue;
    m->places[i].targets = find_targets(m, &m->nodes[i], &m->places[i].target_count);
    m->edge_count += m->places[i].target_count;
  }
}

/* ---- what nodes die of, beside their inputs ---- */

static void add_control(maker *m, uint32_t dst, uint32_t src) {
  const td_pnode *n = &m->nodes[dst];
  if (n->exec == TD_EXEC_MERGE || n->flags & TD_PN_NEVER_DEAD) return; /* its controls only say when */
  control *c = td_arena_new(m->scratch, control);
  *c = (control){src, m->places[dst].controls};
  m->places[dst].controls = c;
}

static void collect_sources(maker *m, uint32_t id) {
  place *at = &m->places[id];
  uint32_t count = 0;
  for (const control *c = at->controls; c; c = c->next) count++;
  at->sources = td_arena_array(m->scratch, uint32_t, count);
  for (const control *c = at->controls; c; c = c->next) {
    if (m->places[c->src].seen == id + 1) continue;
    m->places[c->src].seen = id + 1;
    at->sources[at->source_count++] = c->src;
  }
}

/* A constant that only kernels read can stay in their slots: they die of its controls themselves. */
static bool may_be_fixed(const maker *m, const td_pnode *n, const place *at) {
  if (n->exec != TD_EXEC_CONSTANT || n->flags & TD_PN_UNUSED || at->source_count > MAX_FIXED_CONTROLS) return false;
  for (uint32_t i = 0; i < at->target_count; i++)
    if (m->nodes[at->targets[i].dst].exec != TD_EXEC_KERNEL) return false;
  return true;
}

static void find_controls(maker *m) {
  for (uint32_t i = 0; i < m->frame->count; i++) {
    uint32_t id = m->order[i];
    const td_pnode *n = &m->nodes[id];
    place *at = &m->places[id];
    collect_sources(m, id);
    m->control_count += at->source_count;
    for (uint32_t k = 0; k < at->source_count; k++) m->places[at->sources[k]].is_told = true;
    at->is_fixed = may_be_fixed(m, n, at);
    if (at->is_fixed) m->fixed_limit += at->target_count;
    if (n->flags & TD_PN_FRAME_CHANGE) continue;
    for (uint32_t k = 0; k < n->edge_count; k++) {
      const td_pedge *e = &edges_of(m, n)[k];
      if (!(e->flags & TD_PE_CONTROL)) continue;
      if (!at->is_fixed) add_control(m, within(m, e), id);
      for (uint32_t s = 0; at->is_fixed && s < at->source_count; s++) add_control(m, within(m, e), at->sources[s]);
    }
    for (uint32_t t = 0; at->is_fixed && t < at->target_count; t++)
      for (uint32_t s = 0; s < at->source_count; s++) add_control(m, at->targets[t].dst, at->sources[s]);
  }
}

/* ---- the plan ---- */

static td_walk_kind kind_of(const td_pnode *n) {
  if (n->flags & TD_PN_EXIT) return TD_WALK_EXIT;
  switch (n->exec) {
    case TD_EXEC_NOTHING:
      return TD_WALK_NOTHING;
    case TD_EXEC_FORWARD:
      return TD_WALK_FORWARD;
    case TD_EXEC_CONSTANT:
      return TD_WALK_CONSTANT;
    case TD_EXEC_MERGE:
      return TD_WALK_MERGE;
    case TD_EXEC_SWITCH:
      return TD_WALK_SWITCH;
    default:
      return TD_WALK_KERNEL;
  }
}

/* Writes a node's edges and controls behind those before. */
static void make_op(maker *m, uint32_t id, td_walk_edge *edges, uint32_t *controls, uint32_t *edge, uint32_t *control) {
  const td_pnode *n = &m->nodes[id];
  const place *at = &m->places[id];
  m->ops[m->op_count] = (td_walk_op){.node = n,
                                     .id = id,
                                     .slot = n->slot,
                                     .edge = *edge,
                                     .edge_count = at->target_count,
                                     .controls = {*control, at->source_count},
                                     .input_count = n->input_count,
                                     .output_count = n->output_count,
                                     .kind = (uint8_t)kind_of(n),
                                     .is_told = at->is_told,
                                     .has_unused = n->flags & TD_PN_UNUSED};
  for (uint32_t i = 0, first = 0; i < at->target_count; i++) {
    if (at->targets[i].out != at->targets[first].out) first = i;
    edges[*edge + i] = (td_walk_edge){at->targets[i].slot, at->targets[i].out, 0};
    edges[*edge + first].more = i - first;
  }
  *edge += at->target_count;
  for (uint32_t i = 0; i < at->source_count; i++) controls[(*control)++] = at->sources[i];
  m->ran_at[id] = ++m->op_count;
}

static void make_fixed(maker *m, uint32_t id, uint32_t *controls, uint32_t *control) {
  const place *at = &m->places[id];
  td_walk_controls own = {*control, at->source_count};
  for (uint32_t i = 0; i < at->source_count; i++) {
    controls[(*control)++] = at->sources[i];
    m->ran_at[id] = TD_MAX(m->ran_at[id], m->ran_at[at->sources[i]]);
  }
  for (uint32_t i = 0; i < at->target_count; i++) {
    m->kept[at->targets[i].slot] = TD_WALK_FIXED;
    m->fixed[m->fixed_count++] = (td_walk_fixed){at->targets[i].slot, id, (uint32_t)TD_NO_NODE, own};
  }
}

/* Whether a node hands the input in `slot` back when it has run. */
static bool may_share(const td_pnode *n, uint32_t slot) {
  return n->exec == TD_EXEC_KERNEL || (n->exec == TD_EXEC_SWITCH && slot == n->slot + 1);
}

/* A node that is not the last to read a tensor leaves it to others. */
static void find_shared(maker *m) {
  for (uint32_t i = 0; i < m->op_count; i++) {
    const place *at = &m->places[m->ops[i].id];
    for (uint32_t from = 0, to; from < at->target_count; from = to) {
      uint32_t last = 0;
      for (to = from; to < at->target_count && at->targets[to].out == at->targets[from].out; to++)
        last = TD_MAX(last, m->ran_at[at->targets[to].dst]);
      for (uint32_t k = from; k < to; k++) {
        const target *t = &at->targets[k];
        if (may_share(&m->nodes[t->dst], t->slot) && m->ran_at[t->dst] < last) m->kept[t->slot] = TD_WALK_SHARED;
      }
    }
  }
}

/* Numbers the invariants and says where they go. */
static void make_invariants(maker *m) {
  uint32_t number = 0;
  for (int pass = 0; pass < 2; pass++) { /* first what there is to hold */
    for (uint32_t i = 0; i < m->frame->enter_count; i++) {
      td_pnode *n = &m->p->nodes[m->enters[i]];
      if (!(n->flags & TD_PN_INVARIANT)) continue;
      if (pass) n->next = number++;
      uint32_t count;
      target *targets = find_targets(m, n, &count);
      for (uint32_t k = 0; k < count; k++) {
        bool is_fixed = m->nodes[targets[k].dst].exec == TD_EXEC_KERNEL;
        if (!pass) {
          ++*(is_fixed ? &m->fixed_limit : &m->refill_limit);
          continue;
        }
        td_walk_fixed value = {targets[k].slot, 0, n->next, {0}};
        if (is_fixed) m->kept[value.slot] = TD_WALK_FIXED;
        *(is_fixed ? &m->fixed[m->fixed_count++] : &m->refills[m->refill_count++]) = value;
      }
    }
    if (pass) continue;
    m->fixed = td_arena_array(&m->p->arena, td_walk_fixed, m->fixed_limit);
    m->refills = td_arena_array(&m->p->arena, td_walk_fixed, m->refill_limit);
  }
}

static int by_slot(const void *a, const void *b) {
  const td_walk_fixed *x = a, *y = b;
  return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static const td_walk_plan *make(maker *m) {
  td_arena *arena = &m->p->arena;
  td_walk_edge *edges = td_arena_array(arena, td_walk_edge, m->edge_count);
  uint32_t *controls = td_arena_array(arena, uint32_t, m->control_count), edge = 0, control = 0;
  m->ops = td_arena_array(arena, td_walk_op, m->frame->count);
  m->kept = td_arena_array(arena, uint8_t, m->frame->slot_count);
  make_invariants(m);
  for (uint32_t i = 0; i < m->frame->count; i++) {
    uint32_t id = m->order[i];
    const place *at = &m->places[id];
    const td_pnode *n = &m->nodes[id];
    if (at->is_fixed)
      make_fixed(m, id, controls, &control);
    else if (!at->vanished)
      make_op(m, id, edges, controls, &edge, &control);
    for (uint32_t k = 0; !(n->flags & TD_PN_FRAME_CHANGE) && k < n->edge_count; k++) {
      uint32_t dst = within(m, &edges_of(m, n)[k]);
      if (m->places[dst].vanished) m->ran_at[dst] = m->ran_at[id]; /* together with its source */
    }
  }
  find_shared(m);
  qsort(m->fixed, m->fixed_count, sizeof *m->fixed, by_slot);
  td_walk_plan *plan = td_arena_new(arena, td_walk_plan);
  *plan = (td_walk_plan){.ops = m->ops,
                         .op_count = m->op_count - m->frame->next_count,
                         .next_count = m->frame->next_count,
                         .edges = edges,
                         .controls = controls,
                         .kept = m->kept,
                         .fixed = m->fixed,
                         .fixed_count = m->fixed_count,
                         .refills = m->refills,
                         .refill_count = m->refill_count,
                         .ran_at = m->ran_at};
  return plan;
}

static const td_walk_plan *make_plan(td_program *p, td_pframe *frame, const uint32_t *enters, td_arena *scratch) {
  maker m = {.p = p,
             .frame = frame,
             .scratch = scratch,
             .enters = enters,
             .nodes = p->nodes + frame->first,
             .places = td_arena_array(scratch, place, frame->count)};
  if (!can_walk(&m)) return NULL;
  m.order = td_arena_array(scratch, uint32_t, frame->count);
  m.ran_at = td_arena_array(&p->arena, uint32_t, frame->count);
  if (!order_nodes(&m)) return NULL;
  follow_edges(&m);
  find_controls(&m);
  return make(&m);
}

void td_walk_make_plans(td_program *p, td_arena *scratch) {
  uint32_t total = 0, *first = td_arena_array(scratch, uint32_t, p->frame_count);
  for (uint32_t f = 1; f < p->frame_count; f++) {
    first[f] = total;
    total += p->frames[f].enter_count;
  }
  uint32_t *enters = td_arena_array(scratch, uint32_t, total),
           *next = td_arena_array(scratch, uint32_t, p->frame_count);
  memcpy(next, first, p->frame_count * sizeof *next);
  for (uint32_t i = 0; total && i < p->node_count; i++)
    if (p->nodes[i].flags & TD_PN_ENTER && p->nodes[i].child_frame >= 0) enters[next[p->nodes[i].child_frame]++] = i;
  for (uint32_t f = 1; f < p->frame_count; f++)
    p->frames[f].walk = make_plan(p, &p->frames[f], enters + first[f], scratch);
}

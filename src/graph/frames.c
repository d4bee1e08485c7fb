/* Which control-flow frame each node runs in. */
#include <string.h>

#include "base/mem.h"
#include "graph/internal.h"
#include "graph/partition.h"

typedef struct frame_builder {
  const td_graph *g;
  td_arena *arena, scratch;
  td_frames *out;
  td_map by_name; /* frame name -> its number in .numbers */
  size_t capacity;
  int *first_src; /* by node: the node from which it was reached first; -1: it has no inputs */
  int *queue;
} frame_builder;

static td_str frame_name(const frame_builder *b, int frame) { return b->out->frames[frame].frame_name; }

static td_status enter_attrs(const td_node *n, td_str *name, int64_t *parallel_iterations) {
  TD_TRY(td_attr_str(&n->def, "frame_name", name));
  TD_TRY(td_attr_int(&n->def, "parallel_iterations", parallel_iterations));
  if (!name->size)
    return td_invalid_argument("The Enter {{node %.*s}} must have a frame name.", TD_STR_ARG(n->def.name));
  return TD_STATUS_OK;
}

/* The frame that the outputs of `n`, which runs in `frame`, belong to. */
static td_status output_frame(frame_builder *b, const td_node *n, int frame, int *out) {
  *out = frame;
  if (n->kind == TD_NODE_EXIT) {
    *out = b->out->frames[frame].parent;
    if (*out >= 0) return TD_STATUS_OK;
    return td_invalid_argument("Invalid Exit op: Cannot find a corresponding Enter op.\n\t [[{{node %.*s}}]]",
                               TD_STR_ARG(n->def.name));
  }
  if (n->kind != TD_NODE_ENTER) return TD_STATUS_OK;
  td_str name;
  int64_t parallel_iterations;
  TD_TRY(enter_attrs(n, &name, &parallel_iterations));
  td_frame_info *known = td_map_get(&b->by_name, name);
  if (known) {
    *out = (int)(known - b->out->frames);
    if (known->parent == frame) return TD_STATUS_OK;
    return td_internal(
        "Invalid loop structure: Mismatched parent frames for \"%.*s\": \"%.*s\" vs \"%.*s\". The node giving this "
        "error: "
        "{{node %.*s}}. This is an internal bug, please file a bug report with instructions on how to reproduce the "
        "error.",
        TD_STR_ARG(name), TD_STR_ARG(frame_name(b, frame)), TD_STR_ARG(frame_name(b, known->parent)),
        TD_STR_ARG(n->def.name));
  }
  *out = (int)b->out->count++;
  b->out->frames[*out] = (td_frame_info){name, frame, parallel_iterations, NULL};
  td_map_put(&b->by_name, name, &b->out->frames[*out]);
  return TD_STATUS_OK;
}

static td_status note_loop_cond(frame_builder *b, td_node *n, int frame) {
  td_frame_info *f = &b->out->frames[frame];
  if (f->loop_cond && !strstr(f->loop_cond->def.name.data, "LoopCounter") && !strstr(n->def.name.data, "LoopCounter"))
    return td_invalid_argument(
        "Invalid loop structure: Loop \"%.*s\" has more than one LoopCond node: {{node %.*s}} and {{node %.*s}}. This "
        "is "
        "an internal bug, please file a bug report with instructions on how to reproduce the error.",
        TD_STR_ARG(f->frame_name), TD_STR_ARG(n->def.name), TD_STR_ARG(f->loop_cond->def.name));
  f->loop_cond = n;
  return TD_STATUS_OK;
}

static td_status different_frames(frame_builder *b, const td_node *n, const td_node *src, int frame) {
  int other = b->first_src[n->id];
  td_str first = other >= 0 ? b->g->nodes[other]->def.name : TD_STR("_SOURCE");
  return td_invalid_argument(
      "{{node %.*s}} has inputs from different frames. The input {{node %.*s}} is in frame '%.*s'. The input {{node "
      "%.*s}} is in frame '%.*s'.",
      TD_STR_ARG(n->def.name), TD_STR_ARG(src->def.name), TD_STR_ARG(frame_name(b, frame)), TD_STR_ARG(first),
      TD_STR_ARG(frame_name(b, b->out->of_node[n->id])));
}

static td_status walk(frame_builder *b) {
  const td_graph *g = b->g;
  int *of_node = b->out->of_node;
  size_t head = 0, tail = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    of_node[i] = -1;
    if (g->nodes[i]->is_removed || g->nodes[i]->in_edges) continue;
    of_node[i] = 0;
    b->first_src[i] = -1;
    b->queue[tail++] = (int)i;
  }
  while (head < tail) {
    td_node *n = g->nodes[b->queue[head++]];
    int frame;
    if (n->kind == TD_NODE_LOOP_COND) TD_TRY(note_loop_cond(b, n, of_node[n->id]));
    TD_TRY(output_frame(b, n, of_node[n->id], &frame));
    for (const td_edge *e = n->out_edges; e; e = e->next_out) {
      int dst = e->dst->id;
      if (of_node[dst] < 0) {
        of_node[dst] = frame;
        b->first_src[dst] = n->id;
        b->queue[tail++] = dst;
      } else if (of_node[dst] != frame) {
        return different_frames(b, e->dst, n, frame);
      }
    }
  }
  for (size_t i = 0; i < g->node_count; i++)
    if (of_node[i] < 0) of_node[i] = 0; /* nothing leads there: it will never run */
  return TD_STATUS_OK;
}

td_status td_graph_frames(const td_graph *g, td_arena *arena, td_frames *out) {
  frame_builder b = {.g = g, .arena = arena, .out = out};
  size_t enters = 0;
  for (size_t i = 0; i < g->node_count; i++) enters += g->nodes[i]->kind == TD_NODE_ENTER;
  *out = (td_frames){.count = 1};
  out->frames = td_arena_array(arena, td_frame_info, enters + 1);
  out->frames[0] = (td_frame_info){.frame_name = TD_STR(""), .parent = -1};
  out->of_node = td_arena_array(arena, int, g->node_count);
  b.first_src = td_arena_array(&b.scratch, int, g->node_count);
  b.queue = td_arena_array(&b.scratch, int, g->node_count);
  td_status status = walk(&b);
  td_map_deinit(&b.by_name);
  td_arena_deinit(&b.scratch);
  return status;
}

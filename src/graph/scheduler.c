#include "graph/scheduler.h"

#include <stdlib.h>

#include "base/mem.h"
#include "framework/kernel.h"
#include "graph/internal.h"

enum { COPY_US = 10 /* TensorFlow's guess */, CHEAP_US = 1, BY_SIZE_US = 2, EXPENSIVE_US = 20 };

static int64_t cost_of(const td_node *n) {
  const td_kernel_def *k = td_kernel_find(&n->def, TD_STR("CPU"));
  if (!k || k->cost == TD_COST_CHEAP) return CHEAP_US;
  return k->cost == TD_COST_EXPENSIVE ? EXPENSIVE_US : BY_SIZE_US;
}

static int64_t copy_time(const td_edge *e) {
  return e->src_slot >= 0 && !td_str_eq(e->src->device, e->dst->device) ? COPY_US : 0;
}

void td_schedule_analyze(const td_graph *g, td_arena *arena, td_schedule *out) {
  size_t count;
  td_node **order = td_graph_order(g, arena, &count);
  int64_t *cost = td_arena_array(arena, int64_t, g->node_count);
  out->earliest = td_arena_array(arena, int64_t, g->node_count);
  out->latest = td_arena_array(arena, int64_t, g->node_count);
  out->makespan = 0;
  for (size_t i = 0; i < count; i++) {
    const td_node *n = order[i];
    cost[n->id] = cost_of(n);
    int64_t end = out->earliest[n->id] + cost[n->id];
    out->makespan = TD_MAX(out->makespan, end);
    for (const td_edge *e = n->out_edges; e; e = e->next_out) {
      int64_t *start = &out->earliest[e->dst->id];
      if (!td_edge_goes_back(e)) *start = TD_MAX(*start, end + copy_time(e));
    }
  }
  for (size_t i = 0; i < g->node_count; i++) out->latest[i] = out->makespan;
  for (size_t i = count; i-- > 0;) {
    const td_node *n = order[i];
    int64_t end = out->makespan;
    for (const td_edge *e = n->out_edges; e; e = e->next_out)
      if (!td_edge_goes_back(e)) end = TD_MIN(end, out->latest[e->dst->id] - copy_time(e));
    out->latest[n->id] = end - cost[n->id];
  }
}

typedef struct ranked {
  td_node *node;
  int64_t latest; /* those that are removed come last */
} ranked;

static int by_urgency(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->latest != y->latest) return x->latest < y->latest ? -1 : 1;
  return (x->node->id > y->node->id) - (x->node->id < y->node->id);
}

void td_graph_schedule(td_graph *g) {
  td_arena arena = {0};
  td_schedule s;
  td_schedule_analyze(g, &arena, &s);
  ranked *nodes = td_arena_array(&arena, ranked, g->node_count);
  for (size_t i = 0; i < g->node_count; i++)
    nodes[i] = (ranked){g->nodes[i], g->nodes[i]->is_removed ? INT64_MAX : s.latest[i]};
  qsort(nodes, g->node_count, sizeof *nodes, by_urgency);
  for (size_t i = 0; i < g->node_count; i++) {
    g->nodes[i] = nodes[i].node;
    g->nodes[i]->id = (int)i;
  }
  td_arena_deinit(&arena);
}

#include "graph/internal.h"

bool td_edge_goes_back(const td_edge *e) {
  return e->src->kind == TD_NODE_NEXT_ITERATION && e->dst->kind == TD_NODE_MERGE;
}

td_node **td_graph_order(const td_graph *g, td_arena *arena, size_t *count) {
  uint32_t *pending = td_arena_array(arena, uint32_t, g->node_count);
  td_node **order = td_arena_array(arena, td_node *, g->node_count);
  size_t head = 0, tail = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    if (g->nodes[i]->is_removed) continue;
    for (const td_edge *e = g->nodes[i]->in_edges; e; e = e->next_in) pending[i] += !td_edge_goes_back(e);
    if (!pending[i]) order[tail++] = g->nodes[i];
  }
  while (head < tail)
    for (const td_edge *e = order[head++]->out_edges; e; e = e->next_out)
      if (!td_edge_goes_back(e) && !--pending[e->dst->id]) order[tail++] = e->dst;
  *count = tail;
  return order;
}

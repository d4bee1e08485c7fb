#include "runtime/late_reads.h"

static bool is_read(const td_node *n) {
  if (n->is_removed || !td_str_is(n->def.op, "Identity") || n->input_count != 1 || !n->in[0]) return false;
  const td_edge *e = n->in[0];
  return td_dtype_is_ref(e->src->output_types[e->src_slot]);
}

static bool may_update(const td_node *n) {
  for (int i = 0; i < n->input_count; i++)
    if (td_dtype_is_ref(n->input_types[i])) return true;
  return false;
}

/* Marks, by id, everything that runs after some node with a ref input. */
static bool *find_late(const td_graph *g, td_arena *scratch) {
  bool *late = td_arena_array(scratch, bool, g->node_count);
  td_node **stack = td_arena_array(scratch, td_node *, g->node_count);
  size_t count = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    if (g->nodes[i]->is_removed || !may_update(g->nodes[i]) || late[i]) continue;
    stack[count++] = g->nodes[i];
    while (count) {
      for (const td_edge *e = stack[--count]->out_edges; e; e = e->next_out) {
        if (late[e->dst->id]) continue;
        late[e->dst->id] = true;
        stack[count++] = e->dst;
      }
    }
  }
  return late;
}

static void rewire(td_graph *g, td_node *read, td_edge *e) {
  td_node *reader = e->dst, *variable = read->in[0]->src;
  int slot = e->dst_slot, from = read->in[0]->src_slot;
  td_graph_remove_edge(g, e);
  td_graph_add_edge(g, variable, from, reader, slot);
  td_graph_add_control_edge(g, read, reader); /* what the read waits for, the reader waits for */
}

void td_graph_read_late(td_graph *g, td_arena *scratch) {
  bool *late = NULL;
  for (size_t i = 0; i < g->node_count; i++) {
    td_node *read = g->nodes[i];
    if (!is_read(read)) continue;
    if (!late) late = find_late(g, scratch);
    for (td_edge *e = read->out_edges, *next; e; e = next) {
      next = e->next_out;
      if (e->src_slot != TD_CONTROL_SLOT && e->dst->kind == TD_NODE_PLAIN && late[e->dst->id]) rewire(g, read, e);
    }
  }
}

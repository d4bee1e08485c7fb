#include "graph/reach.h"

#include "graph/prune.h"
#include "graph/tensor_set.h"

typedef struct walk {
  const td_graph *g;
  td_arena scratch;
  td_tensor_set pending;
  bool *is_seen;
  int *stack;
  size_t stack_size;
} walk;

static td_node *find(const td_graph *g, td_str tensor, int *slot) {
  td_str node;
  return td_tensor_name_parse(tensor, &node, slot) ? td_graph_find(g, node) : NULL;
}

static td_status mark_pending(walk *w, const td_str *pending, size_t count) {
  int slot;
  td_tensor_set_init(&w->pending, &w->scratch, w->g, count);
  for (size_t i = 0; i < count; i++) {
    td_node *n = find(w->g, pending[i], &slot);
    if (!n) return td_not_found("Feed %.*s: not found", TD_STR_ARG(pending[i]));
    td_tensor_set_add(&w->pending, n, slot);
  }
  return TD_STATUS_OK;
}

static void visit(walk *w, const td_node *n) {
  if (w->is_seen[n->id]) return;
  w->is_seen[n->id] = true;
  w->stack[w->stack_size++] = n->id;
}

static td_status check(walk *w, const td_str *fetches, size_t count) {
  for (size_t i = 0; i < count; i++) {
    int slot;
    td_node *n = find(w->g, fetches[i], &slot);
    if (!n) return td_not_found("Fetch %.*s: not found", TD_STR_ARG(fetches[i]));
    visit(w, n);
  }
  while (w->stack_size) {
    const td_node *n = w->g->nodes[w->stack[--w->stack_size]];
    for (const td_edge *e = n->in_edges; e; e = e->next_in) {
      if (td_tensor_set_find(&w->pending, e->src, e->src_slot) >= 0)
        return td_invalid_argument("Fetch %.*s:%d can't be computed from the feeds that have been fed so far.",
                                   TD_STR_ARG(e->src->def.name), e->src_slot);
      visit(w, e->src);
    }
  }
  return TD_STATUS_OK;
}

td_status td_graph_check_computable(const td_graph *g, const td_str *fetches, size_t fetch_count, const td_str *pending,
                                    size_t pending_count) {
  walk w = {.g = g};
  w.is_seen = td_arena_array(&w.scratch, bool, g->node_count + 1);
  w.stack = td_arena_array(&w.scratch, int, g->node_count + 1);
  td_status status = mark_pending(&w, pending, pending_count);
  if (!status) status = check(&w, fetches, fetch_count);
  td_arena_deinit(&w.scratch);
  return status;
}

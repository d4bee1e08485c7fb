#include "graph/tensor_set.h"

void td_tensor_set_init(td_tensor_set *s, td_arena *arena, const td_graph *g, size_t capacity) {
  *s = (td_tensor_set){.of_node = td_arena_array(arena, int, g->node_count + 1),
                       .members = td_arena_array(arena, struct td_tensor_set_member, capacity + 1)};
  for (size_t i = 0; i < g->node_count; i++) s->of_node[i] = -1;
}

void td_tensor_set_add(td_tensor_set *s, const td_node *n, int slot) {
  s->members[s->count] = (struct td_tensor_set_member){slot, s->of_node[n->id]};
  s->of_node[n->id] = s->count++;
}

int td_tensor_set_find(const td_tensor_set *s, const td_node *n, int slot) {
  int i = s->of_node[n->id];
  while (i >= 0 && s->members[i].slot != slot) i = s->members[i].next;
  return i;
}

/* A set of a graph's tensors: outputs by node and slot. */
#ifndef TD_GRAPH_TENSOR_SET_H_
#define TD_GRAPH_TENSOR_SET_H_

#include "graph/graph.h"

/* Lies in an arena. Each member has the number of its addition. */
typedef struct td_tensor_set {
  int *of_node; /* by node: its first member; -1: none */
  struct td_tensor_set_member {
    int slot, next; /* of the same node; -1: none */
  } * members;
  int count;
} td_tensor_set;

void td_tensor_set_init(td_tensor_set *s, td_arena *arena, const td_graph *g, size_t capacity);
/* Once per tensor, at most `capacity` times. */
void td_tensor_set_add(td_tensor_set *s, const td_node *n, int slot);
/* Its number, from 0 on; -1: not in the set. */
int td_tensor_set_find(const td_tensor_set *s, const td_node *n, int slot);

#endif /* TD_GRAPH_TENSOR_SET_H_ */

/* Nodes that the server itself puts into a graph: their attributes follow from their inputs. */
#ifndef TD_GRAPH_BUILD_H_
#define TD_GRAPH_BUILD_H_

#include "graph/graph.h"

typedef struct td_output {
  td_node *node;
  int slot;
} td_output;

typedef struct td_new_node {
  td_str name;     /* new in the graph; lives as long as the graph */
  td_str op;       /* of an op, or of a function of the graph's library */
  td_str device;   /* requested; empty: none */
  td_str original; /* the user's node that it stands for; empty: itself */
  const td_output *inputs;
  size_t input_count;
  const td_attr *attrs; /* what the inputs do not tell; values live as long as the graph */
  size_t attr_count;
} td_new_node;

/* Adds the node with its input edges. Attributes that give types and counts of inputs are taken from these where
 * `attrs` has none, all others from the definition's defaults. NOT_FOUND for an unknown op; INVALID_ARGUMENT when the
 * inputs do not fit. */
td_status td_graph_build_node(td_graph *g, const td_new_node *spec, td_node **out) TD_MUST_USE;

/* "<prefix>/_<k>", which no node of the graph has; in the graph's arena. */
td_str td_graph_new_name(td_graph *g, td_str prefix);

/* Types as an attribute value, in `arena`; refs as their base types. */
Pb__AttrValue *td_attr_value_types(td_arena *arena, const int *types, size_t count);
/* The reference to a function: a name and its attributes, which are shared. */
Pb__AttrValue *td_attr_value_func(td_arena *arena, td_str name, const td_attr *attrs, size_t attr_count);

#endif /* TD_GRAPH_BUILD_H_ */

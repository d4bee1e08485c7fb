/* GraphDef in: syntax, versions, ops, attributes, types, edges, with TensorFlow's error texts. */
#ifndef TD_GRAPH_IMPORT_H_
#define TD_GRAPH_IMPORT_H_

#include "graph/graph.h"

enum { TD_GRAPH_VERSION = 2000 }; /* the GraphDef version this build announces (min_consumer is checked against it) */

typedef struct td_import_options {
  /* Nodes of a registered partition: every node must name a device (INVALID_ARGUMENT "Node '<n>' is missing a device
   * specification"); its device becomes the assigned one; internal ops ("_Send") are allowed. */
  bool is_partition;
} td_import_options;

/* Builds a graph from a decoded GraphDef. The graph copies what it keeps, except when `arena_of_def` is given: then
 * `def` lies in that arena, which the graph takes over (on success and failure) instead of copying. */
td_status td_graph_import(const Pb__GraphDef *def, td_arena *arena_of_def, const td_import_options *options,
                          td_graph **out) TD_MUST_USE;

/* Adds the nodes of `def` to `g` (Extend). All or nothing: on an error `g` is as before. Takes the arena over. A node
 * that exists: INVALID_ARGUMENT "GraphDef argument to Extend includes node '<n>', which was created by a previous
 * call to Create or Extend in this session." Library and versions merge as spec/session.md §3 says. */
td_status td_graph_extend(td_graph *g, const Pb__GraphDef *def, td_arena *arena_of_def) TD_MUST_USE;

#endif /* TD_GRAPH_IMPORT_H_ */

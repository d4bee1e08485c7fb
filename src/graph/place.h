/* Placement: a device for every node. */
#ifndef TD_GRAPH_PLACE_H_
#define TD_GRAPH_PLACE_H_

#include "graph/graph.h"

typedef struct td_place_device {
  td_str name; /* full */
  td_device_name parsed;
  td_str type; /* "CPU"; nodes are never placed on types other than CPU unless asked for by name */
  uint64_t incarnation;
} td_place_device;

typedef struct td_place_options {
  const td_place_device *devices;
  size_t device_count;
  td_str own_task_device; /* a device of the task that places: kernels are known for ops here; elsewhere they are
                             assumed to exist for types of foreign servers */
  bool allow_soft_placement, log_placement;
} td_place_options;

/* Assigns node->device for all nodes that have none yet (assigned nodes stay: an extended graph keeps its stateful
 * nodes' devices; the caller clears the others'). All or nothing. Rules and texts: spec/graph.md §4. */
td_status td_graph_place(td_graph *g, const td_place_options *options) TD_MUST_USE;

#endif /* TD_GRAPH_PLACE_H_ */

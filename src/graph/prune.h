/* The client graph: feeds and fetches rewritten to receives and sends, everything else that no fetch or target
 * needs left out. */
#ifndef TD_GRAPH_PRUNE_H_
#define TD_GRAPH_PRUNE_H_

#include "graph/graph.h"

/* "node:index"; "node" is "node:0"; "^node" is refused. False when malformed. */
bool td_tensor_name_parse(td_str text, td_str *out_node, int *out_index);

/* Whoever reads `to` reads `from` instead. Names as of feeds. */
typedef struct td_connection {
  td_str from, to;
} td_connection;

typedef struct td_prune_options {
  /* Tensor names as the client wrote them (kept as the tensor_name of the _Recv/_Send: rendezvous edge names), and
   * target nodes. Sorted and unique is not required; duplicates of fetches make one send. */
  const td_str *feeds, *fetches, *targets;
  size_t feed_count, fetch_count, target_count;
  td_str client_device; /* full name: where feeds and fetches live */
  uint64_t client_incarnation;
  const td_connection *connections; /* graph/connect.h */
  size_t connection_count;
} td_prune_options;

/* A new graph with copies of the nodes that are needed (definitions, attributes and edge ids' order shared with
 * `base`, which stays unchanged and is retained as origin). Errors: spec/graph.md §3. */
td_status td_graph_prune(td_graph *base, const td_prune_options *options, td_graph **out) TD_MUST_USE;

#endif /* TD_GRAPH_PRUNE_H_ */

/* Tensor connections of callables: other tensors put in the place of some, before the graph is pruned. */
#ifndef TD_GRAPH_CONNECT_H_
#define TD_GRAPH_CONNECT_H_

#include "graph/prune.h"

/* A copy of `base`, which is retained, in which every reader of a connection's `to` reads an Identity of its `from`, on
 * the device of `to`. The Identities are the nodes from *out_first on; they read what is computed, also where `from` is
 * fed. A connection made later leads on to one made earlier. Errors, all INVALID_ARGUMENT but for the last:
 * "Requested tensor connection from unknown node: \"<to>\".", "… from unknown edge: …", "Endpoint \"<to>\" fed more
 * than once.", "<to> is both fed and fetched.", "Requested Tensor connection between nodes … would create a cycle.",
 * NOT_FOUND "FeedInputs: unable to find feed output <to>". */
td_status td_graph_connect(td_graph *base, const td_prune_options *options, td_graph **out, int *out_first) TD_MUST_USE;

#endif /* TD_GRAPH_CONNECT_H_ */

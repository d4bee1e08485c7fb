/* What a tensor is computed from, for partial runs. */
#ifndef TD_GRAPH_REACH_H_
#define TD_GRAPH_REACH_H_

#include "graph/graph.h"

/* Fails when a fetch cannot be computed while these feeds are pending: INVALID_ARGUMENT "Fetch <pending tensor> can't
 * be computed from the feeds that have been fed so far." As in TensorFlow, what lies behind a tensor that was fed
 * counts too. NOT_FOUND "Feed <f>: not found", "Fetch <f>: not found". Reads the graph only; linear in its size. */
td_status td_graph_check_computable(const td_graph *g, const td_str *fetches, size_t fetch_count, const td_str *pending,
                                    size_t pending_count) TD_MUST_USE;

#endif /* TD_GRAPH_REACH_H_ */

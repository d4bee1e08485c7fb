/* Lowering: what a session's graph goes through before it is placed.
 *
 * Calls of functions are replaced by the functions' bodies, and If, Case and While marked "_lower_using_switch_merge"
 * by Switch and Merge nodes and loops, so that device annotations inside take effect wherever they point. Follows
 * TensorFlow's lower_functional_ops.cc, lower_{if,case,while,function_call}_op.cc and InlineFunctionBody().
 */
#ifndef TD_GRAPH_LOWER_H_
#define TD_GRAPH_LOWER_H_

#include "graph/graph.h"

typedef struct td_lower_options {
  bool inline_all;  /* optimizer_options.do_function_inlining: calls by a function's name too, on the call's device */
  td_str function;  /* whose body the graph is, so that it is not inlined into itself; empty: none */
  size_t max_nodes; /* calls that would be inlined into a graph of more nodes stay calls */
} td_lower_options;

/* Lowers the nodes of `g` from id `first` on, and what comes of them. A lowered node's name stays: an IdentityN of its
 * outputs (is_lowered), or a NoOp, that has run when all effects of the original have happened. What cannot be lowered
 * (a function that calls itself, is marked "_noinline", does not fit, or whose body is broken) stays a call. On an
 * error, only nodes from `first` on have changed. */
td_status td_graph_lower(td_graph *g, size_t first, const td_lower_options *options) TD_MUST_USE;

#endif /* TD_GRAPH_LOWER_H_ */

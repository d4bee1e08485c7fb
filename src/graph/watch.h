/* Watches of the debugger (TensorFlow's tfdbg): what RunOptions.debug_options asks to see, and the nodes that a
 * partition gets for it. Not thread-safe. */
#ifndef TD_GRAPH_WATCH_H_
#define TD_GRAPH_WATCH_H_

#include "graph/graph.h"
#include "proto/config.pb-c.h"

static inline bool td_watches_any(const Pb__DebugOptions *o) { return o && o->n_debug_tensor_watch_opts; }

/* Appends what tells one set of watches from another: plans with different watches are different plans. */
void td_watches_append_key(td_strbuf *b, const Pb__DebugOptions *o);

/* The distinct debug URLs of all watches, in order; in `arena`, the bytes borrowed from `o`. */
td_str *td_watches_urls(const Pb__DebugOptions *o, td_arena *arena, size_t *count);

/* Behind each watched output of `g`, all of whose nodes sit on `device`: a Copy node "__copy_<node>_<slot>", through
 * which the output's consumers then read (those of a ref output keep their edge), and a node
 * "__dbg_<node>:<slot>_<i>_<op>" per debug op, which the consumers wait for. Loops get one iteration at a time. The
 * node name "*" stands for every output that no other watch names. FAILED_PRECONDITION in TensorFlow's words for
 * watches that cannot be; then the graph is of no more use. */
td_status td_watches_insert(const Pb__DebugOptions *o, td_graph *g, td_str device) TD_MUST_USE;

#endif /* TD_GRAPH_WATCH_H_ */

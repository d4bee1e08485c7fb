/* Watches of the debugger on a registered graph: its partitions rewritten and published. */
#ifndef TD_CLUSTER_GRAPH_DEBUG_H_
#define TD_CLUSTER_GRAPH_DEBUG_H_

#include <stdatomic.h>

#include "cluster/worker_session.h"
#include "debug/debugger.h"
#include "graph/partition.h"
#include "graph/watch.h"

typedef struct td_graph_debug {
  const Pb__DebugOptions *watches; /* NULL or without any: nothing is watched */
  td_debug_run *run;               /* where the partitions' graphs are published; NULL: a run for this alone */
  const atomic_bool *gave_up;      /* who asks has gone; NULL: never */
} td_graph_debug;

/* Inserts the watches into each partition (graph/watch.h) and publishes it to every debug URL. Blocking: listeners are
 * waited for until the session is closed. FAILED_PRECONDITION and what publishing finds. */
td_status td_graph_debug_prepare(td_worker_session *s, const td_graph_debug *debug, td_partition *partitions,
                                 size_t count) TD_MUST_USE;

#endif /* TD_CLUSTER_GRAPH_DEBUG_H_ */

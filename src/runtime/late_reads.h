/* When a ref variable is read. Internal to runtime. */
#ifndef TD_RUNTIME_LATE_READS_H_
#define TD_RUNTIME_LATE_READS_H_

#include "graph/graph.h"

/* TensorFlow's Identity of a ref variable shares the variable's memory: a node behind it that runs after an update of
 * the variable computes with what the update wrote, and programs rely on it (SyncReplicasOptimizer's tokens). Here an
 * Identity is a snapshot; therefore nodes that run after some update get their edge from the variable itself and read
 * it when they run. Changes edges only. */
void td_graph_read_late(td_graph *g, td_arena *scratch);

#endif /* TD_RUNTIME_LATE_READS_H_ */

/* Scheduler: when the nodes of a step should start, by the critical path (TensorFlow's scheduler.cc). With
 * graph_options.enable_recv_scheduling a plan's receives and sends start in that order where several are ready. */
#ifndef TD_GRAPH_SCHEDULER_H_
#define TD_GRAPH_SCHEDULER_H_

#include "graph/graph.h"

/* Starts in microseconds since the step's, by node id. */
typedef struct td_schedule {
  int64_t *earliest; /* as soon as all inputs can be there */
  int64_t *latest;   /* without making the step longer; the slack is the difference */
  int64_t makespan;
} td_schedule;

/* Both starts of every node of a placed graph, from `arena`: as if each op took what its kernel's cost class suggests,
 * and each value 10 µs from device to device. Loops count as one iteration. Linear. */
void td_schedule_analyze(const td_graph *g, td_arena *arena, td_schedule *out);

/* Numbers the nodes anew, the most urgent (latest start) first: cutting a graph, sending its parts and compiling them
 * all keep that order. */
void td_graph_schedule(td_graph *g);

#endif /* TD_GRAPH_SCHEDULER_H_ */

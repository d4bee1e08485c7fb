/* Registered graphs of a worker session: a task's partition, cut by device, compiled, and run. Thread-safe. */
#ifndef TD_CLUSTER_GRAPH_MGR_H_
#define TD_CLUSTER_GRAPH_MGR_H_

#include "cluster/graph_debug.h"
#include "cluster/step_table.h"
#include "cluster/worker.h"
#include "cluster/worker_session.h"

/* Compiles `g` (all nodes assigned to devices of this session) and adds it to the session. One reference; the handle
 * lives as long as the graph. `options` may be NULL; build_cost_model is honoured. `debug`: what is watched in it.
 * INVALID_ARGUMENT "<device> unknown device." and whatever import, partitioning and kernel creation find. Takes long: a
 * control thread. */
td_status td_graph_mgr_register(td_worker_session *s, td_graph *g, const Pb__GraphOptions *options,
                                const td_graph_debug *debug, td_registered_graph **out) TD_MUST_USE;
const char *td_registered_graph_handle(const td_registered_graph *g);
td_registered_graph *td_registered_graph_retain(td_registered_graph *g);
void td_registered_graph_release(td_registered_graph *g);

/* ABORTED "Graph handle is not found: <h>"; one reference. */
td_status td_graph_mgr_find(td_worker_session *s, td_str handle, td_registered_graph **out) TD_MUST_USE;
/* ABORTED "Graph handle is not found: <h>. Possibly, this worker just restarted." */
td_status td_graph_mgr_deregister(td_worker_session *s, td_str handle) TD_MUST_USE;

/* The entry of a step that the graph takes part in, one reference; errors as of td_step_table_get(). */
td_status td_graph_mgr_join(td_registered_graph *g, int64_t step_id, td_step_entry **out) TD_MUST_USE;

td_session_state *td_registered_graph_session_state(const td_registered_graph *g); /* of its session; borrowed */

/* Runs a step of the graph; r->done() exactly once, when everything of the step on this task has ended. Never blocks.
 * td_step_table_cancel() cancels it. */
void td_graph_mgr_run(td_registered_graph *g, td_run_graph *r);

#endif /* TD_CLUSTER_GRAPH_MGR_H_ */

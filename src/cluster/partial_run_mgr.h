/* Partial runs on a worker: one step whose feeds come and whose fetches go in several RunGraph calls. The programs are
 * started by the first call and run until everything is fed; what is fed and computed waits in the step's rendezvous.
 *
 * A partial run belongs to its step's entry. It ends with its last call, or when the step is cancelled or cleaned up,
 * which the master's error, close or death brings about; then its programs end, too. */
#ifndef TD_CLUSTER_PARTIAL_RUN_MGR_H_
#define TD_CLUSTER_PARTIAL_RUN_MGR_H_

#include "cluster/graph_mgr.h"
#include "cluster/step_table.h"

/* One call (r->is_partial). r->done() exactly once: when the fetches of this call are there; of the last call
 * (r->is_last_partial_run) when all programs have ended, too. A call that fails because the step has failed reports why
 * the step has. INVALID_ARGUMENT when the step runs another graph. Never blocks; td_step_table_cancel() cancels it. */
void td_partial_run_call(td_registered_graph *g, td_run_graph *r);

void td_partial_run_destroy(td_partial_run *p); /* by its entry; NULL: nothing */

#endif /* TD_CLUSTER_PARTIAL_RUN_MGR_H_ */

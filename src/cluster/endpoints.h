/* Feeds and fetches of a RunGraph: into its step's rendezvous, out of it. */
#ifndef TD_CLUSTER_ENDPOINTS_H_
#define TD_CLUSTER_ENDPOINTS_H_

#include "cluster/worker.h"
#include "framework/session_state.h"

/* Puts r->sends into the rendezvous; what is a session handle's resource form, as the tensor that `state` keeps for it
 * (INVALID_ARGUMENT when there is none). Fails when the step has been aborted. */
td_status td_feeds_offer(td_run_graph *r, td_session_state *state, td_rendezvous *rendezvous) TD_MUST_USE;

/* Asks for r->recv_keys; r->recvs holds what came, one reference each, when done() is called: exactly once, on any
 * thread, possibly before this returns. `local`: the task's own meeting point. A dead tensor is INTERNAL "Failed to
 * fetch outputs for step …". */
void td_fetches_take(td_run_graph *r, td_rendezvous *local, void (*done)(void *arg, td_status status), void *arg);

/* Releases what was fetched, of a run that fails. */
void td_fetches_drop(td_run_graph *r);

#endif /* TD_CLUSTER_ENDPOINTS_H_ */

/* The rendezvous of a step on this task (TensorFlow's rpc_rendezvous_mgr): what is made here is kept in a local
 * rendezvous, where kernels of this task and the RecvTensor calls of others find it; what is made on another task is
 * asked of that task.
 */
#ifndef TD_CLUSTER_REMOTE_RENDEZVOUS_H_
#define TD_CLUSTER_REMOTE_RENDEZVOUS_H_

#include "cluster/peers.h"
#include "framework/rendezvous.h"

/* One reference. */
td_rendezvous *td_step_rendezvous_create(int64_t step_id);
/* Where to ask for remote tensors; from the session of the first RunGraph, later calls change nothing. What pool
 * threads ask for in batches goes out on the loop that calls this, with the step's other messages. */
void td_step_rendezvous_attach(td_rendezvous *r, td_peers *peers);
/* What is asked of other tasks and has not come, for status pages and logs: calls visit(arg, key text, asked since)
 * with a lock held. */
void td_step_rendezvous_visit_waiting(td_rendezvous *r, void (*visit)(void *arg, td_str key, uint64_t since_ns),
                                      void *arg);
/* The local part, for RecvTensor calls of others. Borrowed. */
td_rendezvous *td_step_rendezvous_local(td_rendezvous *r);

#endif /* TD_CLUSTER_REMOTE_RENDEZVOUS_H_ */

/* Peers (TensorFlow's worker cache): the workers of a cluster by task name, this task's own among them. Channels are
 * made on first use, one per peer and loop thread. Reference-counted; thread-safe.
 */
#ifndef TD_CLUSTER_PEERS_H_
#define TD_CLUSTER_PEERS_H_

#include "cluster/cluster_spec.h"
#include "cluster/task.h"
#include "cluster/worker.h"

/* `own_name`: which task of `cluster` this process is (with cluster-spec propagation not its name at start). */
td_peers *td_peers_create(td_task *task, td_cluster_spec *cluster, const char *own_name);
td_peers *td_peers_retain(td_peers *p);
void td_peers_release(td_peers *p);

/* NULL when the cluster has no such task. Lives as long as the table. */
td_worker *td_peers_find(td_peers *p, td_str task_name);
td_worker *td_peers_self(td_peers *p);
const td_cluster_spec *td_peers_cluster(const td_peers *p);
const char *td_peers_own_name(const td_peers *p);

/* The two implementations. */
td_worker *td_local_worker_create(td_task *task, const char *name);
void td_local_worker_destroy(td_worker *w);
/* `lane_shift`: a neighbour's loop serves our loop i that is as many further. Where both sides see the opposite shift,
 * a step and what its tasks ask each other for stay on one pair of loops. */
td_worker *td_remote_worker_create(td_task *task, const td_cluster_task *peer, int lane_shift);
void td_remote_worker_destroy(td_worker *w);

#endif /* TD_CLUSTER_PEERS_H_ */

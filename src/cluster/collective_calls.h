/* What collectives ask of other tasks (TensorFlow's collective_rma_distributed and device_resolver_distributed):
 * collective/net.h over a session's peers. */
#ifndef TD_CLUSTER_COLLECTIVE_CALLS_H_
#define TD_CLUSTER_COLLECTIVE_CALLS_H_

#include "cluster/peers.h"
#include "collective/net.h"

/* Reference-counted; knows the incarnations of the peers' devices once it has asked. Thread-safe. */
typedef struct td_collective_net td_collective_net;
td_collective_net *td_collective_net_create(td_peers *peers);
void td_collective_net_release(td_collective_net *n);
td_net *td_collective_net_base(td_collective_net *n);

#endif /* TD_CLUSTER_COLLECTIVE_CALLS_H_ */

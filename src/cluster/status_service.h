/* The status service, tensord's own: /tensord.Status/Get answers with JSON, for tensorctl and people.
 *
 *   {"task", "version", "pid", "uptime_s", "cluster": {job: {index: address}}, "devices": [{"name", "type",
 *    "memory_limit_bytes", "incarnation"}], "master_sessions", "worker_sessions", "compute_threads", "loop_threads",
 *    "memory": {"resident_bytes", "peak_resident_bytes", "tensor_bytes", "idle_tensor_bytes"},
 *    "waits": [{"kind", "step", "for", "since_s"}], "more_waits"}
 *
 * "waits" are those of a second or more, oldest first, at most 1,000; "more_waits" counts the others. Kinds: "op" (a
 * queue, an accumulator: op and node), "recv" (a value made on this task), "recv_tensor" (one of another task), "run"
 * (this task's clients wait for a partition), "plan" (a task compiles a graph), "task" (a task does not answer). "step"
 * is there where there is one. The request is empty.
 */
#ifndef TD_CLUSTER_STATUS_SERVICE_H_
#define TD_CLUSTER_STATUS_SERVICE_H_

#include "rpc/rpc.h"

#define TD_STATUS_METHOD "/tensord.Status/Get"

extern const td_method td_status_service_methods[]; /* `service` is the td_task */
extern const int td_status_service_method_count;

#endif /* TD_CLUSTER_STATUS_SERVICE_H_ */

/* The status service, tensord's own: /tensord.Status/Get answers with JSON, for tensorctl and people.
 *
 *   {"task", "version", "pid", "uptime_s", "cluster": {job: {index: address}}, "devices": [{"name", "type",
 *    "memory_limit_bytes", "incarnation"}], "master_sessions", "worker_sessions", "compute_threads", "loop_threads",
 *    "memory": {"resident_bytes", "peak_resident_bytes", "tensor_bytes", "idle_tensor_bytes"}}
 *
 * The request is empty. The service never blocks.
 */
#ifndef TD_CLUSTER_STATUS_SERVICE_H_
#define TD_CLUSTER_STATUS_SERVICE_H_

#include "rpc/rpc.h"

#define TD_STATUS_METHOD "/tensord.Status/Get"

extern const td_method td_status_service_methods[]; /* `service` is the td_task */
extern const int td_status_service_method_count;

#endif /* TD_CLUSTER_STATUS_SERVICE_H_ */

/* Device discovery: asks the tasks of a cluster for their devices. Blocking; control threads. */
#ifndef TD_CLUSTER_DISCOVERY_H_
#define TD_CLUSTER_DISCOVERY_H_

#include <stdatomic.h>

#include "cluster/peers.h"
#include "proto/framework.pb-c.h"

typedef struct td_found_device {
  Pb__DeviceAttributes attributes; /* strings in the arena; named after the task that was asked */
  td_worker *worker;
} td_found_device;

typedef struct td_found_devices {
  td_found_device *items; /* own ones first, then by task in the cluster's order */
  size_t count;
  td_worker **workers; /* every task that was asked, this one first */
  size_t worker_count;
} td_found_devices;

/* The tasks that match any of the filters (all, without filters), and always this one. INVALID_ARGUMENT for a filter
 * that is no device name. */
td_status td_discover_targets(td_peers *peers, char *const *filters, size_t filter_count, td_arena *arena,
                              td_worker ***out, size_t *out_count) TD_MUST_USE;

/* Asks all at once and waits for as long as it takes, logging every 10 s who is missing, until `gave_up` becomes true
 * (CANCELLED). Any error that a task answers with ends it. */
td_status td_discover_devices(td_task *task, td_peers *peers, char *const *filters, size_t filter_count,
                              const atomic_bool *gave_up, td_arena *arena, td_found_devices *out) TD_MUST_USE;

/* Sends one plain request to every worker at once and waits; the first error. `gave_up` (may be NULL) as above. */
td_status td_call_all(td_task *task, td_worker *const *workers, size_t count, td_worker_method method,
                      const ProtobufCMessage *request, uint64_t deadline_ns, const atomic_bool *gave_up) TD_MUST_USE;

#endif /* TD_CLUSTER_DISCOVERY_H_ */

/* Master: the sessions that clients have with this task. Thread-safe. */
#ifndef TD_CLUSTER_MASTER_H_
#define TD_CLUSTER_MASTER_H_

#include "cluster/master_session.h"
#include "cluster/task.h"
#include "proto/master.pb-c.h"

td_master *td_master_create(td_task *task);
/* From now on sessions that no request names for so long end, their running steps with CANCELLED "Step was cancelled
 * because the session was garbage collected due to inactivity." Once, before requests come. Takes one control thread.
 */
void td_master_collect_idle(td_master *m, uint64_t idle_ns);
void td_master_destroy(td_master *m); /* after td_master_close_all() */
/* Takes every session out of the table, cancels its steps and waits for them; no session is added any more. */
void td_master_close_all(td_master *m);

/* One reference. ABORTED "Session <h> is not found." */
td_status td_master_find(td_master *m, td_str handle, td_master_session **out) TD_MUST_USE;

/* The blocking operations; on control threads. */

/* Registers a session that was created; UNAVAILABLE once the server stops, RESOURCE_EXHAUSTED over the cap. */
td_status td_master_add(td_master *m, td_master_session *s) TD_MUST_USE;
/* CloseSession: out of the table first, then cancel, wait, end the worker sessions. */
td_status td_master_close(td_master *m, td_str handle) TD_MUST_USE;
/* Reset: all sessions of this master end, and containers are cleared on the tasks that the filters let through. */
td_status td_master_reset(td_master *m, const Pb__ResetRequest *request, const atomic_bool *gave_up) TD_MUST_USE;
/* ListDevices, with or without a session; the reply's parts lie in `arena`. */
td_status td_master_list_devices(td_master *m, td_str handle, td_arena *arena, const atomic_bool *gave_up,
                                 Pb__ListDevicesResponse *out) TD_MUST_USE;

/* What `tensorctl status` shows. visit() runs with the table's lock held, which comes before the sessions'. */
void td_master_visit_sessions(td_master *m, void (*visit)(void *arg, td_master_session *s), void *arg);
size_t td_master_session_count(td_master *m);
/* Of all sessions; steps that wait for their plan or are cleaned up included. */
size_t td_master_step_count(td_master *m);

#endif /* TD_CLUSTER_MASTER_H_ */

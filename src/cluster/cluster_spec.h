/* Cluster spec: jobs, their tasks, and each task's address.
 *
 * Comes from the command line ("ps|host:1;host:2,worker|host:3", gaps as "job|1=host:port"), from JSON (TF_CONFIG, a
 * cluster file) or from a message. Immutable, reference-counted.
 */
#ifndef TD_CLUSTER_CLUSTER_SPEC_H_
#define TD_CLUSTER_CLUSTER_SPEC_H_

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"
#include "proto/config.pb-c.h"

typedef struct td_cluster_task {
  char *job, *address; /* "host:port" */
  int index;
  char *name; /* "/job:<job>/replica:0/task:<index>" */
} td_cluster_task;

typedef struct td_cluster_spec {
  _Atomic uint32_t refs;
  td_cluster_task *tasks; /* in the order given: jobs, then indices ascending */
  size_t task_count;
} td_cluster_spec;

/* All return INVALID_ARGUMENT with the offending part. */
td_status td_cluster_spec_parse(td_str flag, td_cluster_spec **out) TD_MUST_USE;
td_status td_cluster_spec_from_proto(const Pb__ClusterDef *def, td_cluster_spec **out) TD_MUST_USE;

/* TF_CONFIG: {"cluster": {"ps": ["host:port", …] or {"1": "host:port"}, …}, "task": {"type": "ps", "index": 0}}. *job
 * (td_free()d by the caller) and *index are NULL and -1 when there is no task. */
td_status td_cluster_spec_from_json(td_str text, td_cluster_spec **out, char **job, int *index) TD_MUST_USE;

td_cluster_spec *td_cluster_spec_retain(td_cluster_spec *c);
void td_cluster_spec_release(td_cluster_spec *c);

/* By job and index (-1: any task of the job), or by "/job:j/replica:0/task:i". NULL when there is no such task; lives
 * as long as the spec. */
const td_cluster_task *td_cluster_spec_task(const td_cluster_spec *c, const char *job, int index);
const td_cluster_task *td_cluster_spec_find(const td_cluster_spec *c, td_str task_name);

/* As a message that lies in `arena`. */
Pb__ClusterDef *td_cluster_spec_to_proto(const td_cluster_spec *c, td_arena *arena);

#endif /* TD_CLUSTER_CLUSTER_SPEC_H_ */

/* Server: one task of a cluster. Several may live in one process.
 *
 *   td_server_create -> td_server_start -> … -> td_server_stop -> td_server_destroy
 */
#ifndef TD_CLUSTER_SERVER_H_
#define TD_CLUSTER_SERVER_H_

#include "base/status.h"
#include "base/str.h"
#include "cluster/cluster_spec.h"

typedef struct td_server td_server;

typedef struct td_server_options {
  td_cluster_spec *cluster; /* retained */
  const char *job;
  int task_index;
  td_str config;            /* serialized ConfigProto: the server's defaults; empty: none */
  const char *bind;         /* host or address to listen on, or "unix:PATH"; NULL: the loopback address when the task's
                               own address is a loopback name, else all */
  int threads;              /* compute threads; 0: one per core */
  int loops;                /* loop threads; 0: by the number of cores */
  int session_gc_ms;        /* sessions that clients do not use for so long end; 0: never */
  bool saves_wait_for_disk; /* checkpoints are on disk before a save is answered, not soon after */
  bool no_neighbours; /* no shortcut through memory between tasks of this machine and user: TCP, as between machines */
  bool no_optimizer;  /* graphs of this task's sessions run as they were written (graph/optimize.h) */
} td_server_options;

/* Binds; nothing is accepted yet. INVALID_ARGUMENT for an unknown job or task ("Task <i> was not defined in job
 * \"<j>\"", "Job \"<j>\" was not defined in cluster") or a malformed address or config; UNKNOWN "Could not start gRPC
 * server: …" when the port is in use. */
td_status td_server_create(const td_server_options *options, td_server **out) TD_MUST_USE;
void td_server_start(td_server *s);
const char *td_server_target(const td_server *s); /* "grpc://localhost:<port>" */
const char *td_server_task(const td_server *s);   /* "/job:<j>/replica:0/task:<i>" */
/* Stops accepting, lets running calls end within the grace time, cancels the rest. Blocks; not from a loop thread. */
void td_server_stop(td_server *s, int grace_ms);
void td_server_destroy(td_server *s);

#endif /* TD_CLUSTER_SERVER_H_ */

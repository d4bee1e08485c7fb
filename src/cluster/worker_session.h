/* Worker sessions (TensorFlow's session_mgr): what a master's session is on this task. Thread-safe. */
#ifndef TD_CLUSTER_WORKER_SESSION_H_
#define TD_CLUSTER_WORKER_SESSION_H_

#include <pthread.h>

#include "base/map.h"
#include "cluster/collective_calls.h"
#include "cluster/peers.h"
#include "cluster/task.h"
#include "collective/resolver.h"
#include "proto/worker.pb-c.h"
#include "runtime/program.h"

typedef struct td_worker_session {
  _Atomic uint32_t refs;
  /* immutable */
  td_task *task;
  uint64_t id;         /* of this task's sessions, from 1 on */
  char *handle;        /* "" for the session that masters without worker sessions share */
  td_peers *peers;     /* names this task as the session knows it */
  td_device **devices; /* own ones if isolated or renamed, else the task's; one reference each */
  int device_count;
  td_resource_mgr *own_resources; /* of isolated devices; cleared at the end */
  td_kernel_cache *kernels;
  td_session_state *state;  /* tensors kept between steps */
  td_resolver *collectives; /* who takes part in them */
  td_collective_net *collective_net;
  char *master_task; /* 2.x masters say who they are; "" otherwise */
  int64_t master_incarnation;
  struct td_worker_session *next_ended; /* once out of the table */
  pthread_mutex_t lock;
  /* guarded by lock */
  td_map graphs; /* handle -> td_registered_graph */
  uint64_t next_graph;
  bool is_closed;
  int64_t next_suffix; /* of nodes that partitioning by device adds */
} td_worker_session;

td_worker_sessions *td_worker_sessions_create(td_task *task);
/* Drops all resources, so that nothing works on; before the pool ends. */
void td_worker_sessions_stop(td_worker_sessions *m);
void td_worker_sessions_destroy(td_worker_sessions *m);

/* CreateWorkerSession. INVALID_ARGUMENT "Session must be non-empty."; an existing handle is left as it is. */
td_status td_worker_sessions_open(td_worker_sessions *m, const Pb__CreateWorkerSessionRequest *request) TD_MUST_USE;
void td_worker_sessions_close(td_worker_sessions *m, td_str handle);
/* One reference. `legacy`: the caller has made no session: the shared one. ABORTED "Session handle is not found …". */
td_status td_worker_sessions_find(td_worker_sessions *m, td_str handle, bool legacy,
                                  td_worker_session **out) TD_MUST_USE;
td_worker_session *td_worker_session_retain(td_worker_session *s);
void td_worker_session_release(td_worker_session *s);
/* CleanupAll on every device that sessions share. */
void td_worker_sessions_cleanup(td_worker_sessions *m, const char *const *containers, size_t count);
size_t td_worker_sessions_count(td_worker_sessions *m);

#endif /* TD_CLUSTER_WORKER_SESSION_H_ */

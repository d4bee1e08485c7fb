/* Master session: a client's graph, where its nodes run, and the plans of the steps it asked for.
 *
 * A plan is made once per signature (feeds, fetches, targets): pruned, cut by task, registered with the workers. A
 * step of a known plan touches no lock but the session's short one.
 */
#ifndef TD_CLUSTER_MASTER_SESSION_H_
#define TD_CLUSTER_MASTER_SESSION_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "cluster/discovery.h"
#include "cluster/messages.h"
#include "cluster/task.h"
#include "graph/graph.h"
#include "proto/master.pb-c.h"

typedef struct td_plan td_plan;
typedef struct td_plan_view td_plan_view;
typedef struct td_master_step td_master_step;

/* The client's ConfigProto over the server's, as far as it matters here. */
typedef struct td_session_config {
  bool allow_soft_placement, log_device_placement, isolate_session_state, share_session_state;
  bool static_graph; /* optimize_for_static_graph: cannot be extended */
  int64_t operation_timeout_ms;
  char **device_filters;
  size_t device_filter_count;
  const Pb__ClusterDef *cluster;         /* of cluster-spec propagation; NULL: the server's own */
  const Pb__GraphOptions *graph_options; /* NULL: none */
  const char *collective_leader;         /* the task that leads collectives; NULL: none */
} td_session_config;

typedef struct td_callable {
  td_plan_view *view;
  td_run_options_view options;
  bool is_released;
} td_callable;

typedef struct td_master_session {
  _Atomic uint32_t refs;
  _Atomic uint64_t last_used_ns; /* the master's (master.c) */
  /* immutable once created */
  td_task *task;
  char handle[17];
  td_arena arena;
  td_session_config config;
  td_peers *peers;
  td_found_devices devices;
  td_str client_device; /* where feeds and fetches live: this task's first device */
  uint64_t client_incarnation;
  /* guarded by graph_lock, which is held for long: control threads only */
  pthread_mutex_t graph_lock;
  td_graph *graph;
  int64_t graph_version, next_suffix;
  /* guarded by lock, which is held briefly */
  pthread_mutex_t lock;
  pthread_cond_t changed; /* no step runs any more; a plan is ready or has failed; closed */
  td_map views;           /* the names as requested -> td_plan_view */
  td_map plans;           /* the names, canonical -> td_plan */
  td_map partial_steps;   /* handle -> td_partial_step: partial runs that have not ended */
  uint64_t next_partial;
  td_callable *callables; /* by handle */
  size_t callable_count, callable_capacity;
  td_master_step *steps; /* running ones, linked */
  int running;
  bool is_closed, is_collected; /* the latter: because nobody used it */
} td_master_session;

td_master_session *td_master_session_retain(td_master_session *s);
void td_master_session_release(td_master_session *s);

bool td_master_session_is_closed(td_master_session *s);

/* CreateSession, all of it: discovery, import, placement, worker sessions. Takes `arena`, in which the request lies
 * (its graph_def is taken over). Blocking. */
td_status td_master_session_create(td_task *task, td_arena *arena, const Pb__CreateSessionRequest *request,
                                   const atomic_bool *gave_up, td_master_session **out) TD_MUST_USE;

/* ExtendSession; all or nothing. Takes `arena` over. Blocking. */
td_status td_master_session_extend(td_master_session *s, td_arena *arena, const Pb__ExtendSessionRequest *request,
                                   int64_t *out_version) TD_MUST_USE;

/* Refuses new steps and cancels the running ones. Does not block. */
void td_master_session_stop(td_master_session *s);
/* The same, of a session that nobody has used for long. */
void td_master_session_collect(td_master_session *s);
/* Stops it, waits for the steps and their clean-up, then ends the worker sessions until `deadline_ns` (TD_CLOSE_NS from
 * now for one session; one deadline for all when many end). Blocking; once. */
void td_master_session_close(td_master_session *s, uint64_t deadline_ns);
#define TD_CLOSE_NS 10000000000ull

#endif /* TD_CLUSTER_MASTER_SESSION_H_ */

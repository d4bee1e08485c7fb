/* Task: what everything of one server shares. Created and torn down by the server (server.h). */
#ifndef TD_CLUSTER_TASK_H_
#define TD_CLUSTER_TASK_H_

#include "base/pool.h"
#include "cluster/cluster_spec.h"
#include "cluster/control.h"
#include "cluster/request_ids.h"
#include "framework/device.h"
#include "proto/config.pb-c.h"
#include "rpc/loop.h"

typedef struct td_debugger td_debugger;
typedef struct td_master td_master;
typedef struct td_peers td_peers;
typedef struct td_key_sets td_key_sets; /* key_sets.h */
typedef struct td_recv_batches td_recv_batches;
typedef struct td_resolver td_resolver;
typedef struct td_step_sequences td_step_sequences;
typedef struct td_step_table td_step_table;
typedef struct td_transfer_log td_transfer_log;
typedef struct td_waits td_waits;
typedef struct td_worker_sessions td_worker_sessions;

/* All immutable once the server accepts; what is pointed to guards itself. */
typedef struct td_task {
  td_cluster_spec *cluster;
  const td_cluster_task *self;
  const char *name; /* self->name */
  int bound_port;
  td_resource_mgr *resources;
  td_device **devices; /* CPU:0 … */
  int device_count;
  const Pb__ConfigProto *default_config; /* never NULL */
  td_pool *pool;
  td_control *control;
  td_loop **loops;
  int loop_count;
  bool no_neighbours; /* tasks of this machine are reached by TCP like all others */
  bool no_optimizer;  /* every node that a client wrote runs */
  td_debugger *debugger;
  td_peers *peers; /* of the own cluster */
  td_step_table *steps;
  td_recv_batches *batches; /* of tensors that peers receive */
  td_key_sets *key_sets;    /* that peers know by number */
  td_transfer_log *transfers;
  td_waits *waits;
  td_worker_sessions *sessions;
  td_resolver *collectives; /* the groups that this task leads */
  td_step_sequences *sequences;
  td_request_ids *worker_ids, *master_ids;
  td_master *master;
  uint64_t started_ns;
} td_task;

/* The task that a server runs: for tests of this room's parts, which no call reaches from outside. Borrowed. */
struct td_server;
td_task *td_task_of(struct td_server *s);

#endif /* TD_CLUSTER_TASK_H_ */

/* For the tests of this room: clusters inside one process, graphs from text, and calls that wait. */
#ifndef TD_CLUSTER_TESTING_H_
#define TD_CLUSTER_TESTING_H_

#include "cluster/server.h"
#include "proto/master.pb-c.h"
#include "proto/worker.pb-c.h"
#include "rpc/rpc.h"
#include "tensor/tensor.h"

/* ---- a cluster ---- */
enum { TD_TEST_TASKS = 8 };
typedef struct td_test_cluster {
  int count, loops, devices; /* per task */
  int session_gc_ms;         /* of tasks that are started from now on; 0: off */
  td_cluster_spec *spec;
  td_server *servers[TD_TEST_TASKS]; /* in the order of the spec; NULL: not running */
  td_loop *loop;                     /* the client's */
  td_channel *channels[TD_TEST_TASKS];
  int held[TD_TEST_TASKS]; /* sockets that hold the tasks' ports */
} td_test_cluster;

/* "ps 1 worker 2": jobs with their numbers of tasks, on free ports. Asserts on failure. */
void td_test_cluster_start(td_test_cluster *c, const char *jobs);
/* The same with several loop threads and CPU devices per task. */
void td_test_cluster_start_with(td_test_cluster *c, const char *jobs, int loops, int devices);
void td_test_cluster_restart(td_test_cluster *c, int task); /* as a new incarnation, on the same port */
void td_test_cluster_stop_task(td_test_cluster *c, int task);
void td_test_cluster_stop(td_test_cluster *c);

/* One call that waits for its end. `reply` (decoded into `arena`) may be NULL. */
td_status td_test_call(td_channel *ch, const char *path, const ProtobufCMessage *request, uint64_t timeout_ms,
                       const ProtobufCMessageDescriptor *reply_type, td_arena *arena, ProtobufCMessage **reply);
td_status td_test_call_bytes(td_channel *ch, const char *path, td_str request, uint64_t timeout_ms);

/* ---- graphs ---- */
/* Lines "name Op device inputs attrs", with '-' for nothing; attributes as in ops/testing.h, tensors as
 * "value: float [2] 1 2". Lies in `arena`. */
Pb__GraphDef *td_test_graph(td_arena *arena, const char *text);

/* ---- sessions ---- */
/* Creates a session on `task` and returns its handle (in `arena`). */
td_status td_test_create_session(td_test_cluster *c, int task, const char *graph, const Pb__ConfigProto *config,
                                 td_arena *arena, char **handle);
/* One step: space-separated fetches and targets ("-": none), one optional feed. Fetched tensors in order (one
 * reference each). */
td_status td_test_run(td_test_cluster *c, int task, const char *handle, const char *fetches, const char *targets,
                      const char *feed_name, td_tensor *feed, uint64_t timeout_ms, td_tensor **out);
/* The same, with everything that a RunStep can say. */
typedef struct td_test_step {
  const char *handle, *partial; /* the session's; of a partial run: NULL: none */
  const char *fetches, *targets;
  const char *feed_names[4]; /* NULL: no more */
  td_tensor *feeds[4];
  int64_t collective_graph_key;
  const Pb__DebugOptions *watches; /* NULL: none */
  uint64_t timeout_ms;
} td_test_step;
td_status td_test_run_step(td_test_cluster *c, int task, const td_test_step *step, td_tensor **out);
/* Waits until at least so many steps run with `task` as their master. */
void td_test_await_steps(td_test_cluster *c, int task, int count);
td_status td_test_close_session(td_test_cluster *c, int task, const char *handle);

/* How many steps a task takes part in, as its status tells. */
int td_test_step_count(td_test_cluster *c, int task);

#endif /* TD_CLUSTER_TESTING_H_ */

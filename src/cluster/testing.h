/* For the tests of this room: clusters inside one process, graphs from text, and calls that wait. */
#ifndef TD_CLUSTER_TESTING_H_
#define TD_CLUSTER_TESTING_H_

#include "cluster/control.h"
#include "cluster/server.h"
#include "cluster/worker_session.h"
#include "proto/master.pb-c.h"
#include "proto/worker.pb-c.h"
#include "rpc/rpc.h"
#include "tensor/tensor.h"

/* ---- a cluster ---- */
enum {
  TD_TEST_TASKS = 8,
  TD_TEST_PATIENCE_MS = 400000 /* for what must come; how long that takes is the machine's affair */
};
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

/* A file's `cluster`, for all of its tests, with the `start` and `stop` of their group. */
#define TD_TEST_CLUSTER(jobs)              \
  static td_test_cluster cluster;          \
  static int start(void **state) {         \
    td_test_cluster_start(&cluster, jobs); \
    return 0;                              \
  }                                        \
  static int stop(void **state) {          \
    td_test_cluster_stop(&cluster);        \
    return 0;                              \
  }                                        \
  _Static_assert(true, "ends with a semicolon")

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
  const Pb__DebugOptions *watches;                          /* NULL: none */
  int64_t collective_graph_key, run_timeout_ms, request_id; /* 0: none */
  uint64_t timeout_ms;
} td_test_step;
td_status td_test_run_step(td_test_cluster *c, int task, const td_test_step *step, td_tensor **out);
/* Waits until at least so many steps run with `task` as their master. One that has been answered may still be among
 * them: td_test_await_no_steps() before those that are meant. */
void td_test_await_steps(td_test_cluster *c, int task, int count);
void td_test_await_no_steps(td_test_cluster *c, int task);
td_status td_test_close_session(td_test_cluster *c, int task, const char *handle);

/* ---- a worker's parts ---- */
#define TD_TEST_DEVICE "/job:worker/replica:0/task:0/device:CPU:0"
/* Nodes that take what is fed and give what is fetched as `tensor`, a quoted name. */
#define TD_TEST_FEED(name, tensor) \
  name " _Recv " TD_TEST_DEVICE " - tensor_type: float; tensor_name: '" tensor "'; " TD_TEST_ENDS
#define TD_TEST_FETCH(node, tensor) \
  node "_send _Send " TD_TEST_DEVICE " " node " T: float; tensor_name: '" tensor "'; " TD_TEST_ENDS
#define TD_TEST_ENDS                                                                             \
  "send_device: '" TD_TEST_DEVICE "'; send_device_incarnation: 1; recv_device: '" TD_TEST_DEVICE \
  "'; client_terminated: true\n"
/* A new session of a task of job worker, and a partition of that text registered with it. */
td_worker_session *td_test_worker_session(td_server *server, const char *handle);
td_status td_test_register(td_worker_session *s, const char *text, td_registered_graph **out) TD_MUST_USE;
/* One RunGraph call: start it, wait for it. Fetched scalars are in `fetched`. */
typedef struct td_test_call_graph {
  td_run_graph run;
  td_latch latch;
  td_arena arena;
} td_test_call_graph;
/* `feeds` and `fetches`: names of tensors, separated by blanks; the feeds are the scalars 1, 2, … */
void td_test_graph_start(td_test_call_graph *c, td_registered_graph *g, int64_t step_id, const char *feeds,
                         const char *fetches, bool is_partial, bool is_last);
bool td_test_graph_is_done(td_test_call_graph *c);
/* Waits; the scalar that was fetched first goes to *out (may be NULL). */
td_status td_test_graph_wait(td_test_call_graph *c, float *out) TD_MUST_USE;

/* A task's status, as JSON text. */
void td_test_status(td_test_cluster *c, int task, td_strbuf *out);
/* How many steps a task takes part in, as its status tells. */
int td_test_step_count(td_test_cluster *c, int task);

#endif /* TD_CLUSTER_TESTING_H_ */

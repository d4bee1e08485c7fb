/* Worker: what a master asks of a task, and what tasks ask of each other. One interface, two implementations: this
 * task, directly (local_worker.c), and a peer over a channel (remote_worker.c), which may be a TensorFlow server.
 */
#ifndef TD_CLUSTER_WORKER_H_
#define TD_CLUSTER_WORKER_H_

#include "base/status.h"
#include "cluster/recv_batch.h"
#include "framework/rendezvous.h"
#include "graph/partition.h"
#include "proto/worker.pb-c.h"
#include "rpc/rpc.h"

typedef struct td_worker td_worker;
typedef struct td_registered_graph td_registered_graph; /* on this task (graph_mgr.h) */
typedef struct td_debug_run td_debug_run;               /* debug/debugger.h */

/* One partition's part of a step. The caller owns it until done(). */
typedef struct td_run_graph td_run_graph;
struct td_run_graph {
  td_str session; /* worker session's handle */
  td_str graph_handle;
  td_registered_graph *graph; /* this task's own: the graph itself */
  int64_t step_id;
  const td_rendezvous_key *send_keys; /* feeds: put into the step's rendezvous before it runs */
  td_tensor **sends;                  /* borrowed until done() */
  int send_count;
  const td_rendezvous_key *recv_keys; /* fetches: taken from it afterwards */
  td_tensor **recvs;                  /* out: one reference each, on success */
  int recv_count;
  bool record_costs, record_timeline, record_partition_graphs;
  td_debug_run *debug; /* of this task's own master: where a watched graph publishes; NULL: a run of its own */
  bool is_partial, is_last_partial_run; /* one of several calls of the step (partial_run_mgr.h); the last of them */
  /* out, encoded, the caller frees them: a StepStats; a CostGraphDef; fields of RunMetadata (partition graphs) */
  td_strbuf step_stats, cost_graph, metadata;
  /* Exactly once; any thread; no lock held. */
  void (*done)(td_run_graph *r, td_status status);
  void *impl; /* the worker's */
};

/* A plain call on the control plane. */
typedef enum td_worker_method {
  TD_WORKER_GET_STATUS,
  TD_WORKER_CREATE_SESSION,
  TD_WORKER_DELETE_SESSION,
  TD_WORKER_REGISTER_GRAPH,
  TD_WORKER_DEREGISTER_GRAPH,
  TD_WORKER_CLEANUP_ALL,
} td_worker_method;

typedef struct td_worker_call td_worker_call;
struct td_worker_call {
  td_worker_method method;
  const ProtobufCMessage *request; /* borrowed until done() */
  uint64_t deadline_ns;
  td_graph *graph;                 /* RegisterGraph on this task: the partition itself, request->graph_def is absent */
  td_registered_graph *registered; /* out, of the same; one reference */
  td_debug_run *debug;             /* of the same: where a watched graph is published; NULL: a run of its own */
  /* Exactly once; any thread. `reply` (decoded) is valid only inside it; NULL on error. */
  void (*done)(td_worker_call *call, td_status status, const ProtobufCMessage *reply);
  void *arg;              /* the caller's */
  td_client_call *handle; /* out, of a call to a peer: for td_client_call_cancel(); the caller releases it */
  void *impl;             /* the worker's */
};

/* A Logging call. The caller owns it until done(). */
typedef struct td_logging td_logging;
struct td_logging {
  bool enable, disable; /* the log of transfers */
  int64_t fetch_step;   /* 0: none */
  td_strbuf step_stats; /* out: what was logged of fetch_step, an encoded StepStats; the caller frees it */
  /* Exactly once, on the loop that called, possibly before logging() returns. Errors are dropped: without its
   * transfers a timeline is still one. */
  void (*done)(td_logging *l);
  void *arg;              /* the caller's */
  td_client_call *handle; /* out, of a call to a peer: as in td_worker_call */
};

typedef struct td_worker_ops {
  void (*call)(td_worker *w, td_worker_call *call);
  void (*run_graph)(td_worker *w, td_run_graph *r);        /* these two: on one loop thread, the step's */
  void (*cancel_run_graph)(td_worker *w, td_run_graph *r); /* before done() only */
  /* Forgets the step; nobody waits for the reply but `done` (may be NULL). To a peer it may leave up to 2 ms later, and
   * to a tensord peer inside the next RunGraph instead (td_channel_withdraw()). */
  void (*cleanup_graph)(td_worker *w, int64_t step_id, void (*done)(void *arg), void *arg);
  void (*logging)(td_worker *w, td_logging *l); /* on a loop thread */
  /* Asks a peer for a tensor of a step; request->done as in framework/rendezvous.h, possibly before this returns. The
   * result is for td_client_call_cancel() and must be released (rpc/rpc.h). Only of peers. */
  td_client_call *(*recv_tensor)(td_worker *w, int64_t step_id, const td_rendezvous_key *key, td_frame_id frame,
                                 td_recv *request);
  /* A call of the worker service by its path, for what has no member of its own. The message passes; `receiver` may be
   * NULL. Fails at once when the task is not there. done() exactly once, possibly before this returns (then the result
   * may be NULL); its strings are valid inside it. The result is as of recv_tensor. Only of peers. */
  td_client_call *(*unary)(td_worker *w, const char *path, td_payload *message, td_receiver *receiver,
                           uint64_t deadline_ns,
                           void (*done)(void *arg, td_status status, td_str reply, td_str details), void *arg);
  /* Whether peers that are asked for several tensors at once understand that, as far as is known; a frame's too. */
  bool (*takes_batches)(const td_worker *w, td_frame_id frame);
  /* Starts a batch, or fails it. On loop(), where the rest of it runs, too. Only of peers. */
  void (*recv_tensors)(td_worker *w, td_recv_batch *b);
  /* The calling loop if it is one of this task, else `home` if that is one, else the task's first. */
  td_loop *(*loop)(const td_worker *w, td_loop *home);
  /* How the task names frames of loops; TD_FRAMES_ANY also for a peer that has not answered a GetStatus yet. */
  td_frame_dialect (*dialect)(const td_worker *w);
} td_worker_ops;

struct td_worker { /* embed it first; lives as long as its peers table */
  const td_worker_ops *ops;
  const char *task_name; /* "/job:j/replica:0/task:t" */
  bool is_self;
};

#endif /* TD_CLUSTER_WORKER_H_ */

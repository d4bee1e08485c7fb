/* One RunStep or RunCallable on its master: partitions started, awaited, answered, cleaned up. Belongs to the loop
 * thread of its call. */
#ifndef TD_CLUSTER_MASTER_STEP_H_
#define TD_CLUSTER_MASTER_STEP_H_

#include "cluster/partial_step.h"
#include "cluster/step_debug.h"
#include "cluster/step_sequence.h"
#include "rpc/rpc.h"

typedef struct td_step_part {
  td_run_graph run;
  td_master_step *step;
  td_work arrived; /* the completion on its way to the loop */
  td_status status;
  bool is_done;
} td_step_part;

struct td_master_step {
  _Atomic uint32_t refs; /* the run's own, and the call's cancellation */
  td_task *task;
  td_call *call;
  td_loop *loop;
  td_master_session *session; /* retained */
  td_arena arena;
  td_work work;
  /* the request */
  td_str bytes;
  bool is_callable;
  td_run_step_request request;
  td_run_options_view options;
  td_step_debug *debug; /* NULL: nothing is watched */
  td_named_tensors feeds;
  /* the run; loop only */
  td_plan_view *view;       /* its plan is retained */
  td_partial_step *partial; /* retained; NULL: not a call of a partial run */
  td_names names;           /* the request's */
  bool is_last;             /* call of the partial run */
  int64_t id;
  td_sequence_wait sequence; /* of a step with collectives whose id a leader gives */
  td_status sequence_status;
  td_work turn;
  bool has_sequence;
  uint64_t started_ns;
  td_step_part *parts;
  size_t part_count, pending;
  struct td_step_trace *trace; /* of transfers; NULL: they are not asked for */
  td_tensor **results;
  td_status status; /* what ends the step, whatever its parts say (a timeout, a close) */
  bool is_cancelled, is_answered;
  td_timer timeout, cause;
  /* guarded by session->lock */
  td_master_step *next_waiting;
  td_master_step *previous, *next; /* in session->steps */
  td_work close;                   /* the session's close on its way to the loop */
  bool is_closing;
};

/* A RunStep or RunCallable request; `bytes` are valid until the call is answered. On the call's loop thread. */
void td_master_step_start(td_task *task, td_call *call, td_str bytes, bool is_callable);

/* The plan that the step waits for is ready. Any thread; no lock held. */
void td_master_step_plan_ready(td_master_step *step);

/* A random id; as in TensorFlow the highest byte is 1. */
int64_t td_master_step_new_id(void);

/* Cancels the step because its session closes. With session->lock held; returns at once. */
void td_master_step_close(td_master_step *step);

#endif /* TD_CLUSTER_MASTER_STEP_H_ */

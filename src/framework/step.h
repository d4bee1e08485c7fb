/* Step: one run of a program on one task, as kernels see it. */
#ifndef TD_FRAMEWORK_STEP_H_
#define TD_FRAMEWORK_STEP_H_

#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "base/str.h"

typedef struct td_device td_device;
typedef struct td_rendezvous td_rendezvous;
typedef struct td_cancellation td_cancellation;
typedef struct td_resource_mgr td_resource_mgr;
typedef struct td_function_runtime td_function_runtime;
typedef struct td_session_state td_session_state;
typedef struct td_collectives td_collectives; /* collective.h */
typedef struct td_step_stats td_step_stats;   /* runtime/step_stats.h */
typedef struct td_debug_sink td_debug_sink;

/* Which frame instance and iteration. The two hashes name the same frame in the two dialects that peers speak
 * (TensorFlow 1.x and 2.x hash frame ids differently); both are 0 outside loops. */
typedef struct td_frame_id {
  uint64_t id_1x, id_2x;
  int64_t iter;
} td_frame_id;

/* Shared by all partitions of a step on this task. Immutable while the step runs. */
typedef struct td_step {
  int64_t id;
  td_rendezvous *rendezvous;
  td_cancellation *cancellation;
  td_resource_mgr *step_resources; /* what lives as long as the step: TensorArrays, stacks, temporary variables */
  td_pool *pool;                   /* NULL: everything inline */
  td_function_runtime *functions;
  td_str session;                  /* handle */
  td_step_stats *stats;            /* where the step is recorded; NULL: nowhere */
  td_debug_sink *debug;            /* NULL: nothing is watched */
  td_session_state *session_state; /* tensors that stay between steps; NULL: none */
  td_collectives *collectives;     /* NULL: no collective can run */
  size_t max_output_bytes;         /* what td_out_alloc() makes at most; 0: no limit */
} td_step;

/* The ids (iteration 0) of a child frame that `parent`, at its iteration, enters by `frame_name`. TensorFlow 1.x hashes
 * the whole path, so each frame instance keeps its path text: `parent_path` is the parent's ("" at the root), and the
 * child's is appended to *out_path. */
td_frame_id td_frame_child(td_frame_id parent, td_str parent_path, td_str frame_name, td_strbuf *out_path);

#endif /* TD_FRAMEWORK_STEP_H_ */

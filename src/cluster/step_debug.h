/* The debugger's part of a master's step: its watches, what is told about the run before it begins, its streams' end.
 * Belongs to the step's loop. */
#ifndef TD_CLUSTER_STEP_DEBUG_H_
#define TD_CLUSTER_STEP_DEBUG_H_

#include "cluster/plan.h"
#include "debug/debugger.h"

typedef void (*td_step_debug_fn)(td_master_step *st, td_status status);

typedef struct td_step_debug {
  td_master_step *step;
  const Pb__DebugOptions *watches;
  td_str bytes;      /* of them, borrowed from the request */
  td_debug_run *run; /* NULL before it begins */
  td_plan *new_plan; /* retained: the step has it built */
  td_debug_metadata metadata;
  td_debug_report report;
  td_work arrived;  /* what was waited for, on its way to the loop */
  td_status status; /* of it, or how the step ends once the streams are closed */
  td_step_debug_fn then, closed;
  bool is_closing, is_closed;
} td_step_debug;

/* Decodes the encoded DebugOptions into the step's arena; the step is watched from then on. */
td_status td_step_debug_create(td_master_step *st, td_str bytes) TD_MUST_USE;

/* Tells every debug URL about the run, which is the `run_index`-th of its plan; then(st, status) on the loop. */
void td_step_debug_begin(td_master_step *st, int64_t run_index, td_step_debug_fn then);

/* Closes the streams, then calls then(st, status), on the loop, with the status given: true. False (nothing done) when
 * there are none, or none any more. */
bool td_step_debug_close(td_master_step *st, td_status status, td_step_debug_fn then);

/* Ends what waits for listeners. */
void td_step_debug_cancel(td_step_debug *d);
void td_step_debug_deinit(td_step_debug *d);

#endif /* TD_CLUSTER_STEP_DEBUG_H_ */

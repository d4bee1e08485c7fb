/* The log of transfers around a traced step (RunOptions.trace_level FULL_TRACE): turned on at every task of the step
 * before it runs, fetched from them afterwards. On the step's loop. */
#ifndef TD_CLUSTER_STEP_TRACE_H_
#define TD_CLUSTER_STEP_TRACE_H_

#include "cluster/master_step.h"

typedef struct td_step_trace td_step_trace;

/* Turns logging on; then() once all tasks have answered (within 10 s), possibly before this returns. In st->arena. */
td_step_trace *td_step_trace_create(td_master_step *st);
void td_step_trace_begin(td_step_trace *t, void (*then)(td_master_step *st));
/* Turns it off and fetches what was logged; the same. */
void td_step_trace_end(td_step_trace *t, void (*then)(td_master_step *st));
/* The step is cancelled: then() does not wait any longer. */
void td_step_trace_cancel(td_step_trace *t);
/* Appends what was fetched as fields of a RunMetadata. */
void td_step_trace_put(const td_step_trace *t, td_strbuf *out);
void td_step_trace_deinit(td_step_trace *t);

#endif /* TD_CLUSTER_STEP_TRACE_H_ */

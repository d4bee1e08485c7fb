/* The end of a master's step towards its client: one status out of many, and the answer. On the step's loop. */
#ifndef TD_CLUSTER_STEP_REPLY_H_
#define TD_CLUSTER_STEP_REPLY_H_

#include "cluster/master_step.h"

/* One root error of the parts alone is the step's error; several are listed; if all are derived, the first one. The
 * caller's. */
td_status td_step_combine(td_master_step *st) TD_MUST_USE;

/* Answers the client, once: later calls do nothing. Consumes `status`. */
void td_step_answer(td_master_step *st, td_status status);

#endif /* TD_CLUSTER_STEP_REPLY_H_ */

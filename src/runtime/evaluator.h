/* Evaluator: single nodes computed outside any step, from values that are known; for graph/optimize.h. */
#ifndef TD_RUNTIME_EVALUATOR_H_
#define TD_RUNTIME_EVALUATOR_H_

#include "framework/device.h"
#include "graph/optimize.h"

/* Its kernels run on the caller's thread, one at a time. Asynchronous ones, and those of other devices than CPUs, are
 * refused (UNIMPLEMENTED); outputs over the limit are RESOURCE_EXHAUSTED. Retains the device. Not thread-safe. */
td_evaluator *td_evaluator_create(td_device *device);
void td_evaluator_destroy(td_evaluator *e);

#endif /* TD_RUNTIME_EVALUATOR_H_ */

/* Kernels that block on files: they run on the step's pool, never on a loop thread. */
#ifndef TD_OPS_BLOCKING_H_
#define TD_OPS_BLOCKING_H_

#include "framework/kernel.h"

/* Runs compute(ctx) on the step's pool (at once when called there, or when the step has none) and ends the run with
 * its status. What a compute_async does when all its work blocks. */
void td_run_blocking(td_kernel_ctx *ctx, td_compute_fn compute);

/* Defines NAME_async, which runs NAME so. */
#define TD_BLOCKING(name) \
  static void name##_async(td_kernel_ctx *ctx) { td_run_blocking(ctx, name); }

#endif /* TD_OPS_BLOCKING_H_ */

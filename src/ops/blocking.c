#include "ops/blocking.h"

#include "base/mem.h"

typedef struct pool_run {
  td_work work;
  td_kernel_ctx *ctx;
  td_compute_fn compute;
} pool_run;

static void run_on_pool(td_work *work) {
  pool_run *r = TD_CONTAINER_OF(work, pool_run, work);
  td_kernel_ctx *ctx = r->ctx;
  td_compute_fn compute = r->compute;
  td_free(r);
  td_kernel_done(ctx, compute(ctx));
}

void td_run_blocking(td_kernel_ctx *ctx, td_compute_fn compute) {
  if (!ctx->step->pool || td_pool_current() == ctx->step->pool) {
    td_kernel_done(ctx, compute(ctx));
    return;
  }
  pool_run *r = td_new(pool_run);
  *r = (pool_run){.work.run = run_on_pool, .ctx = ctx, .compute = compute};
  td_pool_submit(ctx->step->pool, &r->work);
}

/* The 2-D convolutions themselves: forward, to the input and to the filter; NHWC input, HWIO filter.
 *
 * float goes to oneDNN where it has a fast way; everything else gathers input windows into the rows of a matrix and
 * multiplies (which serves every type). Work is split over images or output positions and run on the step's pool;
 * what the pieces are depends on the shapes alone, so results do not depend on the number of threads.
 */
#ifndef TD_OPS_CONV_RUN_H_
#define TD_OPS_CONV_RUN_H_

#include "ops/epilogue.h"
#include "ops/gemm.h"
#include "ops/window.h"

typedef struct td_conv {
  td_dtype dtype; /* what it is computed in: float, double, int32, … */
  int64_t batch, in_c, out_c, groups;
  td_window_dim dim[2]; /* rows, columns */
  const td_heavy_ops *heavy;
  const td_epilogue *epilogue; /* forward only, over output positions x channels; NULL: none */
} td_conv;

/* Checks that the sizes multiply without overflow. */
td_status td_conv_check(const td_conv *c) TD_MUST_USE;
td_status td_conv_forward(td_kernel_ctx *ctx, const td_conv *c, const void *input, const void *filter,
                          void *output) TD_MUST_USE;
td_status td_conv_backward_input(td_kernel_ctx *ctx, const td_conv *c, const void *grad, const void *filter,
                                 void *input_grad) TD_MUST_USE;
td_status td_conv_backward_filter(td_kernel_ctx *ctx, const td_conv *c, const void *input, const void *grad,
                                  void *filter_grad) TD_MUST_USE;

#endif /* TD_OPS_CONV_RUN_H_ */

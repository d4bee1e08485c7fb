/* Sparse tensors as three tensors (indices [n, rank], values [n], shape [rank]), apart and together: a batch's rows as
 * sparse tensors of their own, several sparse tensors as one batch. What comes in is checked; indices are not held
 * against the shape, as in TensorFlow. Plain functions, thread-safe.
 */
#ifndef TD_OPS_SPARSE_BATCH_H_
#define TD_OPS_SPARSE_BATCH_H_

#include "framework/kernel.h"

typedef struct td_sparse {
  td_tensor *indices, *values, *shape;
} td_sparse;

void td_sparse_retain(td_sparse *s);
void td_sparse_release(td_sparse *s); /* NULLs are fine */

/* Ranks, types and sizes fit; INVALID_ARGUMENT in TensorFlow's words. */
td_status td_sparse_check(const td_sparse *s, td_shape *shape) TD_MUST_USE;
/* Inputs 0, 1, 2, borrowed, checked. */
td_status td_in_sparse(td_kernel_ctx *ctx, td_sparse *out, td_shape *shape) TD_MUST_USE;

/* The rows (first dimension) of a batch: which entries each one has, in order. */
typedef struct td_sparse_rows {
  int64_t n, columns;
  int64_t *begins;  /* n + 1 */
  int64_t *entries; /* positions, row by row */
} td_sparse_rows;
/* Inputs 0, 1, 2 as a batch, borrowed. To be deinitialised also after a failure. */
td_status td_in_sparse_rows(td_kernel_ctx *ctx, td_sparse *out, td_sparse_rows *rows) TD_MUST_USE;
void td_sparse_rows_deinit(td_sparse_rows *rows);
/* One row as a sparse tensor of new tensors; all rows share the shape. */
td_status td_sparse_row(const td_sparse *batch, const td_sparse_rows *rows, int64_t row, td_tensor *shape,
                        td_sparse *out) TD_MUST_USE;
td_status td_sparse_row_shape(const td_sparse *batch, td_tensor **out) TD_MUST_USE;

/* `n` >= 1 sparse tensors, which have been checked, as outputs 0, 1, 2: dimensions `lead`, whose product is n, then
 * those of the largest. INVALID_ARGUMENT when types or ranks differ. */
td_status td_out_sparse_joined(td_kernel_ctx *ctx, const td_sparse *all, int64_t n, int lead_rank,
                               const int64_t *lead) TD_MUST_USE;

#endif /* TD_OPS_SPARSE_BATCH_H_ */

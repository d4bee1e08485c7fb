/* Conditional accumulators: sums of gradients that count what went into them and refuse what is stale.
 *
 * A gradient counts if its local step is not below the accumulator's step, else it is dropped. Who takes the sum waits
 * until enough gradients are in it, first come, first served; taking empties the accumulator and advances its step.
 *
 * Runs work on the sum in turns, outside of the room's lock: no thread waits while another one adds. Thread-safe.
 */
#ifndef TD_OPS_ACCUMULATOR_H_
#define TD_OPS_ACCUMULATOR_H_

#include "ops/loops/loops.h"
#include "ops/partial_shape.h"
#include "ops/waiting.h"

typedef struct td_accumulator td_accumulator;
extern const td_resource_type td_accumulator_type;

/* How gradients of one kind are summed. All run in a turn. */
typedef struct td_sum_ops {
  int gradient_inputs, outputs; /* an apply op's inputs past local_step; a take op's outputs */
  int values;                   /* which of both are the values, of the accumulator's type */
  /* INVALID_ARGUMENT unless the gradient in the inputs from 2 on can be added. */
  td_status (*check)(const td_accumulator *a, td_kernel_ctx *ctx);
  td_status (*add)(td_accumulator *a, td_kernel_ctx *ctx); /* on an error the sum is as it was */
  td_status (*take)(td_accumulator *a, td_kernel_ctx *ctx);
} td_sum_ops;
extern const td_sum_ops td_dense_sum, td_sparse_sum;

struct td_accumulator {
  td_room room; /* first */
  /* immutable */
  const td_sum_ops *ops;
  td_dtype dtype;
  td_partial_shape shape;
  bool is_mean;
  td_map add, divide;
  /* guarded by the room's lock; written in a turn only */
  int64_t global_step, count;
  td_kernel_ctx *turn; /* the run whose turn it is; NULL: nobody's */
  /* the sum; belongs to the run whose turn it is. No other reference to these tensors exists. */
  td_tensor *values;  /* NULL: nothing yet */
  td_tensor *indices; /* sparse: of the rows of `values`, int64 */
  td_tensor *counts;  /* sparse: how many gradients are in each row, int32 */
};

typedef struct td_accumulator_spec {
  bool is_sparse, is_mean;
  td_dtype dtype; /* half, float or double */
  td_partial_shape shape;
} td_accumulator_spec;
/* INVALID_ARGUMENT for a type that has no sums. The shape is copied. */
td_status td_accumulator_create(const td_accumulator_spec *spec, td_accumulator **out) TD_MUST_USE;

/* The two end the run, at once or later; they take the caller's reference. Apply: inputs 1 local_step, then a gradient;
 * the kernel's state begins with a bool, whether a sparse gradient's shape is known. Take: input 1 num_required. */
void td_accumulator_apply(td_accumulator *a, td_kernel_ctx *ctx);
void td_accumulator_take(td_accumulator *a, td_kernel_ctx *ctx);
int64_t td_accumulator_count(td_accumulator *a);
void td_accumulator_set_global_step(td_accumulator *a, int64_t step);

/* For sums: input `i` as a tensor that nobody else refers to, moved if it is one, else copied. */
td_status td_accumulator_own(td_kernel_ctx *ctx, int i, td_tensor **out) TD_MUST_USE;
/* The number `n` as the accumulator's type, into 8 bytes at `out`. */
void td_accumulator_number(const td_accumulator *a, int64_t n, void *out);

#endif /* TD_OPS_ACCUMULATOR_H_ */

/* Broadcasting: several operands walked together over one output shape.
 *
 * Neighbouring dimensions that an operand crosses in the same way are merged, dimensions of one element vanish, so
 * that most cases come down to one or two dimensions: same shape and scalar operands to one, rows and columns to two.
 */
#ifndef TD_OPS_BCAST_H_
#define TD_OPS_BCAST_H_

#include "base/status.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

enum { TD_BCAST_OPERANDS = 3 };

typedef struct td_bcast {
  int operands, rank;                  /* merged rank, at least 1 */
  int64_t count;                       /* elements of the output */
  int64_t *dims;                       /* merged, outermost first; point into `memory` */
  int64_t *strides[TD_BCAST_OPERANDS]; /* in elements; 0 where the operand is repeated. Innermost: 0 or 1 */
  td_shape shape;                      /* of the output, all dimensions */
  int64_t memory[(1 + TD_BCAST_OPERANDS) * TD_MAX_RANK];
} td_bcast;

/* Prepares the walk over `n` operands (at most TD_BCAST_OPERANDS). INVALID_ARGUMENT "Incompatible shapes: [2,3] vs.
 * [4]" when they do not fit together. */
td_status td_bcast_init(td_bcast *b, int n, const td_tensor *const *operands) TD_MUST_USE;
/* The same for shapes. */
td_status td_bcast_init_shapes(td_bcast *b, int n, const int *ranks, const int64_t *const *dims) TD_MUST_USE;

/* Calls fn(arg, offsets, at, n) for each run of the output's elements [begin, end): the run begins at output element
 * `at`, at offsets[k] in operand k, and advances by the operand's innermost stride (b->strides[k][b->rank - 1]). */
typedef void (*td_bcast_fn)(void *arg, const int64_t offsets[TD_BCAST_OPERANDS], int64_t at, int64_t n);
void td_bcast_run(const td_bcast *b, int64_t begin, int64_t end, td_bcast_fn fn, void *arg);
static inline int td_bcast_inner_stride(const td_bcast *b, int operand) {
  return (int)b->strides[operand][b->rank - 1];
}

#endif /* TD_OPS_BCAST_H_ */

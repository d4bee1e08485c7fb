/* Element-wise updates in place: dst[i] = dst[i] <op> src[i], as variables' dense and sparse updates need them. */
#ifndef TD_OPS_ROWS_H_
#define TD_OPS_ROWS_H_

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"
#include "tensor/tensor.h"

#if defined(__SANITIZE_THREAD__)
#define TD_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TD_TSAN 1
#endif
#endif
#ifndef TD_TSAN
#define TD_TSAN 0
#endif

/* For functions that write elements which a reader may be reading, as TensorFlow allows for sparse updates of ref
 * variables. All of them have names that start with td_racy_; they are: the racy row updates here and the sparse
 * rules of training_rules.inc. */
#if TD_TSAN
#define TD_RACY __attribute__((no_sanitize("thread")))
#else
#define TD_RACY
#endif

typedef enum td_rows_op {
  TD_ROWS_SET,
  TD_ROWS_ADD,
  TD_ROWS_SUB,
  TD_ROWS_MUL,
  TD_ROWS_DIV,
  TD_ROWS_MIN,
  TD_ROWS_MAX,
} td_rows_op;

/* Updates n elements; `src` holds n elements, or one if `scalar`. The two do not overlap. Integers wrap around;
 * what is divided by an integer zero becomes zero (callers refuse it before, td_rows_has_zero()). */
typedef void td_rows_fn(void *dst, const void *src, int64_t n, bool scalar);

/* The update for an element type; NULL when there is none: SET takes every plain type, the arithmetic numbers (ADD
 * and SUB also bool), MIN and MAX real numbers. */
td_rows_fn *td_rows(td_rows_op op, td_dtype t);
/* The same for elements that may be read meanwhile. */
td_rows_fn *td_racy_rows(td_rows_op op, td_dtype t);

bool td_rows_has_zero(const td_tensor *t); /* of numbers: some element is zero */

#endif /* TD_OPS_ROWS_H_ */

/* Inner loops of reductions.
 *
 * A reduction keeps one wide accumulator per result (double for floats, 64-bit integers, complex double): rounding
 * errors do not grow with the length, and half is summed as float. Blocks of elements are combined in the element's
 * own type, in vectors, and each block is then added to the accumulator.
 */
#ifndef TD_OPS_LOOPS_REDUCE_H_
#define TD_OPS_LOOPS_REDUCE_H_

#include "ops/loops/loops.h"

typedef enum td_reduce {
  TD_RED_SUM,
  TD_RED_PROD,
  TD_RED_MAX,
  TD_RED_MIN,
  TD_RED_SQUARES, /* sum of x * conj(x) */
  TD_RED_COUNT,
} td_reduce;

/* Which member: d for floats, pair for complex, i for signed and u for unsigned integers. */
typedef union td_wide {
  double d;
  int64_t i;
  uint64_t u;
  double pair[2];
} td_wide;

/* Combines each of `rows` rows of n elements, `stride` elements apart, into acc[0..rows). */
typedef void (*td_reduce_inner_fn)(const void *x, int64_t rows, int64_t stride, int64_t n, td_wide *acc);
/* Combines `rows` rows of n elements, `stride` elements apart, into acc[0..n). n <= TD_REDUCE_COLUMNS. */
typedef void (*td_reduce_outer_fn)(const void *x, int64_t rows, int64_t stride, int64_t n, td_wide *acc);
enum { TD_REDUCE_COLUMNS = 512 };

typedef struct td_reducer {
  td_reduce op;
  td_dtype type;      /* of the tensor */
  td_dtype loop_type; /* of the loops: float for half and bfloat16 */
  td_reduce_inner_fn inner;
  td_reduce_outer_fn outer;
  td_convert_fn widen; /* NULL: elements are the loops' own */
  uint8_t size;        /* bytes of an element */
  td_wide identity;
} td_reducer;

bool td_reducer_init(td_reducer *r, td_reduce op, td_dtype t);
void td_reducer_inner(const td_reducer *r, const void *x, int64_t rows, int64_t stride, int64_t n, td_wide *acc);
void td_reducer_outer(const td_reducer *r, const void *x, int64_t rows, int64_t stride, int64_t n, td_wide *acc);
/* *acc = *acc op *other. */
void td_reducer_merge(const td_reducer *r, td_wide *acc, const td_wide *other);

td_reduce_inner_fn td_reduce_inner_loop_base(int op, td_dtype t);
td_reduce_inner_fn td_reduce_inner_loop_avx2(int op, td_dtype t);
td_reduce_inner_fn td_reduce_inner_loop_avx512(int op, td_dtype t);
td_reduce_outer_fn td_reduce_outer_loop_base(int op, td_dtype t);
td_reduce_outer_fn td_reduce_outer_loop_avx2(int op, td_dtype t);
td_reduce_outer_fn td_reduce_outer_loop_avx512(int op, td_dtype t);

#endif /* TD_OPS_LOOPS_REDUCE_H_ */

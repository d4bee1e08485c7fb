/* Conversions between element types. */
#ifndef TD_OPS_LOOPS_CAST_H_
#define TD_OPS_LOOPS_CAST_H_

#include "ops/loops/loops.h"

typedef struct td_cast {
  td_convert_fn widen, convert, narrow; /* NULL: not needed. widen makes floats, narrow takes floats */
  uint8_t in_size, out_size;
  int cleared_bits; /* Truncate: mantissa bits of the source that are dropped first */
} td_cast;

/* False when there is no such conversion. `truncate`: towards zero where the target has a shorter mantissa. */
bool td_cast_init(td_cast *c, td_dtype from, td_dtype to, bool truncate);
/* `x` and `z` must not overlap. */
void td_cast_run(const td_cast *c, const void *x, void *z, int64_t n);

td_convert_fn td_cast_loop_base(td_dtype from, td_dtype to);
td_convert_fn td_cast_loop_avx2(td_dtype from, td_dtype to);
td_convert_fn td_cast_loop_avx512(td_dtype from, td_dtype to);

#endif /* TD_OPS_LOOPS_CAST_H_ */

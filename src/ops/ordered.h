/* For op families that compare numbers: one line a real type. */
#ifndef TD_OPS_ORDERED_H_
#define TD_OPS_ORDERED_H_

#include "tensor/dtype.h"

#define TD_KEY_SAME(v) (v)

/* X(dtype, C type of an element, C type to compare, conversion) */
#define TD_ORDERED_TYPES(X)                             \
  X(FLOAT, float, float, TD_KEY_SAME)                   \
  X(DOUBLE, double, double, TD_KEY_SAME)                \
  X(HALF, td_half, float, td_half_to_float)             \
  X(BFLOAT16, td_bfloat16, float, td_bfloat16_to_float) \
  X(INT8, int8_t, int8_t, TD_KEY_SAME)                  \
  X(INT16, int16_t, int16_t, TD_KEY_SAME)               \
  X(INT32, int32_t, int32_t, TD_KEY_SAME)               \
  X(INT64, int64_t, int64_t, TD_KEY_SAME)               \
  X(UINT8, uint8_t, uint8_t, TD_KEY_SAME)               \
  X(UINT16, uint16_t, uint16_t, TD_KEY_SAME)            \
  X(UINT32, uint32_t, uint32_t, TD_KEY_SAME)            \
  X(UINT64, uint64_t, uint64_t, TD_KEY_SAME)

#endif /* TD_OPS_ORDERED_H_ */

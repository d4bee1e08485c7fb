/* Data types: TensorFlow's numbers, sizes and names. */
#ifndef TD_TENSOR_DTYPE_H_
#define TD_TENSOR_DTYPE_H_

#include <complex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

typedef enum td_dtype {
  TD_INVALID = 0,
  TD_FLOAT = 1,
  TD_DOUBLE = 2,
  TD_INT32 = 3,
  TD_UINT8 = 4,
  TD_INT16 = 5,
  TD_INT8 = 6,
  TD_STRING = 7,
  TD_COMPLEX64 = 8,
  TD_INT64 = 9,
  TD_BOOL = 10,
  TD_QINT8 = 11,
  TD_QUINT8 = 12,
  TD_QINT32 = 13,
  TD_BFLOAT16 = 14,
  TD_QINT16 = 15,
  TD_QUINT16 = 16,
  TD_UINT16 = 17,
  TD_COMPLEX128 = 18,
  TD_HALF = 19,
  TD_RESOURCE = 20,
  TD_VARIANT = 21,
  TD_UINT32 = 22,
  TD_UINT64 = 23,
  TD_FLOAT8_E5M2 = 24,
  TD_FLOAT8_E4M3FN = 25,
  TD_INT4 = 29,
  TD_UINT4 = 30,
  TD_DTYPE_LIMIT = 32, /* one past the largest base type */
  TD_REF_OFFSET = 100, /* a ref type is its base type + 100; never on the wire */
} td_dtype;

/* A set of base types, as kernels' constraints use it. */
typedef uint64_t td_dtype_set;
#define TD_SET(t)       ((td_dtype_set)1 << (t))
#define TD_SET_FLOATING (TD_SET(TD_HALF) | TD_SET(TD_BFLOAT16) | TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE))
#define TD_SET_COMPLEX  (TD_SET(TD_COMPLEX64) | TD_SET(TD_COMPLEX128))
#define TD_SET_SIGNED   (TD_SET(TD_INT8) | TD_SET(TD_INT16) | TD_SET(TD_INT32) | TD_SET(TD_INT64))
#define TD_SET_UNSIGNED (TD_SET(TD_UINT8) | TD_SET(TD_UINT16) | TD_SET(TD_UINT32) | TD_SET(TD_UINT64))
#define TD_SET_INTEGER  (TD_SET_SIGNED | TD_SET_UNSIGNED)
#define TD_SET_REAL     (TD_SET_FLOATING | TD_SET_INTEGER)
#define TD_SET_NUMBER   (TD_SET_REAL | TD_SET_COMPLEX)
#define TD_SET_QUANTIZED \
  (TD_SET(TD_QINT8) | TD_SET(TD_QUINT8) | TD_SET(TD_QINT32) | TD_SET(TD_QINT16) | TD_SET(TD_QUINT16))
#define TD_SET_POD /* plain bytes, may be copied with memcpy */                                             \
  (TD_SET_NUMBER | TD_SET_QUANTIZED | TD_SET(TD_BOOL) | TD_SET(TD_FLOAT8_E5M2) | TD_SET(TD_FLOAT8_E4M3FN) | \
   TD_SET(TD_INT4) | TD_SET(TD_UINT4))
#define TD_SET_ALL (TD_SET_POD | TD_SET(TD_STRING) | TD_SET(TD_RESOURCE) | TD_SET(TD_VARIANT))

static inline td_dtype td_dtype_base(int t) { return (td_dtype)(t > TD_REF_OFFSET ? t - TD_REF_OFFSET : t); }
static inline bool td_dtype_is_ref(int t) { return t > TD_REF_OFFSET; }
static inline bool td_dtype_in(td_dtype t, td_dtype_set set) { return (unsigned)t < 64 && (set >> t & 1); }
static inline bool td_dtype_is_pod(td_dtype t) { return td_dtype_in(t, TD_SET_POD); }

bool td_dtype_valid(int t);           /* a known base type */
size_t td_dtype_size(td_dtype t);     /* bytes of an element in memory; 0 for an invalid type */
const char *td_dtype_name(int t);     /* "float", "int32_ref", …; "invalid" */
td_dtype td_dtype_parse(td_str name); /* a name of ops.tsv or of td_dtype_name(); TD_INVALID if unknown */

/* Element types in C. half and bfloat16 are their bits; use the conversions. */
typedef struct td_half {
  uint16_t bits;
} td_half;
typedef struct td_bfloat16 {
  uint16_t bits;
} td_bfloat16;
typedef float _Complex td_complex64;
typedef double _Complex td_complex128;

/* Round to nearest even; NaN stays NaN. Hardware conversion where the compiler may use it. */
float td_half_to_float(td_half h);
td_half td_half_from_float(float f);
static inline float td_bfloat16_to_float(td_bfloat16 b) {
  uint32_t u = (uint32_t)b.bits << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
static inline td_bfloat16 td_bfloat16_from_float(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  if (f != f) return (td_bfloat16){(uint16_t)(u >> 16 | 0x40)};
  return (td_bfloat16){(uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}

#endif /* TD_TENSOR_DTYPE_H_ */

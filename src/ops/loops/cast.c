/* Conversions between plain types. Compiled once per instruction set. A float that does not fit the integer becomes
 * what x86's conversion gives: the least 32-bit (or 64-bit) integer, then cut to the narrower type. */
#include "ops/loops/cast.h"

#include <complex.h>

static inline int32_t f_to_i32(float f) { return f >= -0x1p31f && f < 0x1p31f ? (int32_t)f : INT32_MIN; }
static inline int32_t d_to_i32(double d) { return d > -2147483649.0 && d < 0x1p31 ? (int32_t)d : INT32_MIN; }
static inline int64_t f_to_i64(float f) { return f >= -0x1p63f && f < 0x1p63f ? (int64_t)f : INT64_MIN; }
static inline int64_t d_to_i64(double d) { return d >= -0x1p63 && d < 0x1p63 ? (int64_t)d : INT64_MIN; }
static inline uint64_t f_to_u64(float f) {
  return f >= 0x1p63f ? (uint64_t)f_to_i64(f - 0x1p63f) ^ (uint64_t)INT64_MIN : (uint64_t)f_to_i64(f);
}
static inline uint64_t d_to_u64(double d) {
  return d >= 0x1p63 ? (uint64_t)d_to_i64(d - 0x1p63) ^ (uint64_t)INT64_MIN : (uint64_t)d_to_i64(d);
}

/* From one source type to every target, given what makes a bool, an integer of 8 or 16 bits, an int32, an int64 (and
 * uint32), an uint64 and a real number of `a`. */
#define TARGETS(X, from, c, to_bool, short_, i32, i64, u64, real) \
  X(from, c, BOOL, uint8_t, to_bool)                              \
  X(from, c, INT8, int8_t, (int8_t)(short_))                      \
  X(from, c, INT16, int16_t, (int16_t)(short_))                   \
  X(from, c, INT32, int32_t, (int32_t)(i32))                      \
  X(from, c, INT64, int64_t, (int64_t)(i64))                      \
  X(from, c, UINT8, uint8_t, (uint8_t)(short_))                   \
  X(from, c, UINT16, uint16_t, (uint16_t)(short_))                \
  X(from, c, UINT32, uint32_t, (uint32_t)(i64))                   \
  X(from, c, UINT64, uint64_t, (uint64_t)(u64))                   \
  X(from, c, FLOAT, float, (float)(real))                         \
  X(from, c, DOUBLE, double, (double)(real))

#define INTEGER(X, from, c)                     \
  TARGETS(X, from, c, a != 0, a, a, a, a, a)    \
  X(from, c, COMPLEX64, td_complex64, (float)a) \
  X(from, c, COMPLEX128, td_complex128, (double)a)

#define CASTS(X)                                                                                                     \
  INTEGER(X, BOOL, uint8_t)                                                                                          \
  INTEGER(X, INT8, int8_t)                                                                                           \
  INTEGER(X, INT16, int16_t)                                                                                         \
  INTEGER(X, INT32, int32_t)                                                                                         \
  INTEGER(X, INT64, int64_t)                                                                                         \
  INTEGER(X, UINT8, uint8_t)                                                                                         \
  INTEGER(X, UINT16, uint16_t)                                                                                       \
  INTEGER(X, UINT32, uint32_t)                                                                                       \
  INTEGER(X, UINT64, uint64_t)                                                                                       \
  TARGETS(X, FLOAT, float, a != 0, f_to_i32(a), f_to_i32(a), f_to_i64(a), f_to_u64(a), a)                            \
  X(FLOAT, float, COMPLEX64, td_complex64, a)                                                                        \
  X(FLOAT, float, COMPLEX128, td_complex128, a)                                                                      \
  TARGETS(X, DOUBLE, double, a != 0, d_to_i32(a), d_to_i32(a), d_to_i64(a), d_to_u64(a), a)                          \
  X(DOUBLE, double, COMPLEX64, td_complex64, (float)a)                                                               \
  X(DOUBLE, double, COMPLEX128, td_complex128, a)                                                                    \
  TARGETS(X, COMPLEX64, td_complex64, crealf(a) != 0, f_to_i32(crealf(a)), f_to_i32(crealf(a)), f_to_i64(crealf(a)), \
          f_to_u64(crealf(a)), crealf(a))                                                                            \
  X(COMPLEX64, td_complex64, COMPLEX64, td_complex64, a)                                                             \
  X(COMPLEX64, td_complex64, COMPLEX128, td_complex128, a)                                                           \
  TARGETS(X, COMPLEX128, td_complex128, creal(a) != 0, d_to_i32(creal(a)), d_to_i32(creal(a)), d_to_i64(creal(a)),   \
          d_to_u64(creal(a)), creal(a))                                                                              \
  X(COMPLEX128, td_complex128, COMPLEX64, td_complex64, (td_complex64)a)                                             \
  X(COMPLEX128, td_complex128, COMPLEX128, td_complex128, a)

#define DEFINE(from, c, to, out, value)                             \
  static void from##_to_##to(const void *xv, void *zv, int64_t n) { \
    const c *x = xv;                                                \
    out *z = zv;                                                    \
    TD_VECTOR_LOOP                                                  \
    for (int64_t i = 0; i < n; i++) {                               \
      c a = x[i];                                                   \
      z[i] = value;                                                 \
    }                                                               \
  }
CASTS(DEFINE)

td_convert_fn TD_ISA_NAME(td_cast_loop)(td_dtype from, td_dtype to) {
  switch ((int)from * 32 + (int)to) {
#define CASE(from, c, to, out, value) \
  case TD_##from * 32 + TD_##to:      \
    return from##_to_##to;
    CASTS(CASE)
    default:
      return NULL;
  }
}

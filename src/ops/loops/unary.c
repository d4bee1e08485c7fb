/* Unary loops that vectorise. Compiled once per instruction set. */
#include <math.h>

#include "ops/loops/loops.h"
#include "ops/loops/vmath.h"
#ifdef __AVX512F__
#include "ops/loops/rsqrt.h"
#endif

/* One line an op and element type: name, dtype, C types in and out, the value as a function of `a` (and `p`). */
#define FLOATS(X, t, c, f)                              \
  X(Abs, t, c, c, f(fabs)(a))                           \
  X(Neg, t, c, c, -a)                                   \
  X(Inv, t, c, c, 1 / a)                                \
  X(Square, t, c, c, a *a)                              \
  X(Sqrt, t, c, c, f(sqrt)(a))                          \
  X(Sign, t, c, c, a != a ? a : (c)((a > 0) - (a < 0))) \
  X(Floor, t, c, c, f(floor)(a))                        \
  X(Ceil, t, c, c, f(ceil)(a))                          \
  X(Rint, t, c, c, f(rint)(a))                          \
  X(IsNan, t, c, uint8_t, a != a)                       \
  X(IsInf, t, c, uint8_t, f(fabs)(a) == (c)INFINITY)    \
  X(IsFinite, t, c, uint8_t, f(fabs)(a) < (c)INFINITY)  \
  X(Relu, t, c, c, a < 0 ? 0 : a)                       \
  X(Relu6, t, c, c, a < 0 ? 0 : (a > 6 ? 6 : a))        \
  X(LeakyRelu, t, c, c, a > 0 ? a : a * (c)p)           \
  X(Softsign, t, c, c, a / (1 + f(fabs)(a)))

#define F_SUFFIX(name) __builtin_##name##f
#define D_SUFFIX(name) __builtin_##name

#define FLOAT_MATH(X)                                                                                \
  X(Exp, FLOAT, float, float, vm_expf(a))                                                            \
  X(Expm1, FLOAT, float, float, vm_expm1f(a))                                                        \
  X(Log, FLOAT, float, float, vm_logf(a))                                                            \
  X(Log1p, FLOAT, float, float, vm_log1pf(a))                                                        \
  X(Tanh, FLOAT, float, float, vm_tanhf(a))                                                          \
  X(Sigmoid, FLOAT, float, float, vm_sigmoidf(a))                                                    \
  X(Erf, FLOAT, float, float, vm_erff(a))                                                            \
  X(Elu, FLOAT, float, float, a < 0 ? vm_expm1f(a) : a)                                              \
  X(Selu, FLOAT, float, float, a < 0 ? 1.7580993408473766f * vm_expm1f(a) : 1.0507009873554805f * a) \
  X(Softplus, FLOAT, float, float, vm_softplusf(a))

#define SIGNED(X, t, c, u)                         \
  X(Abs, t, c, c, (c)(a < 0 ? (u)0 - (u)a : (u)a)) \
  X(Neg, t, c, c, (c)((u)0 - (u)a))                \
  X(Sign, t, c, c, (c)((a > 0) - (a < 0)))         \
  X(Relu, t, c, c, a > 0 ? a : 0)                  \
  X(Relu6, t, c, c, a < 0 ? 0 : (a > 6 ? 6 : a))

#define UNSIGNED(X, t, c)                  \
  X(Relu6, t, c, c, a > 6 ? 6 : a)         \
  X(Square, t, c, c, (c)((uint64_t)a * a)) \
  X(Invert, t, c, c, (c)~a)                \
  X(PopulationCount, t, c, uint8_t, (uint8_t)__builtin_popcountll(a))

#define LOOPS(X)                                          \
  FLOATS(X, FLOAT, float, F_SUFFIX)                       \
  FLOATS(X, DOUBLE, double, D_SUFFIX)                     \
  FLOAT_MATH(X)                                           \
  SIGNED(X, INT8, int8_t, uint8_t)                        \
  SIGNED(X, INT16, int16_t, uint16_t)                     \
  SIGNED(X, INT32, int32_t, uint32_t)                     \
  SIGNED(X, INT64, int64_t, uint64_t)                     \
  UNSIGNED(X, UINT8, uint8_t)                             \
  UNSIGNED(X, UINT16, uint16_t)                           \
  UNSIGNED(X, UINT32, uint32_t)                           \
  UNSIGNED(X, UINT64, uint64_t)                           \
  X(Rsqrt, DOUBLE, double, double, 1 / __builtin_sqrt(a)) \
  X(LogicalNot, BOOL, uint8_t, uint8_t, !a)

#define DEFINE(name, t, in, out, value)                                   \
  static void name##_##t(const void *xv, void *zv, int64_t n, double p) { \
    const in *x = xv;                                                     \
    out *z = zv;                                                          \
    (void)p;                                                              \
    TD_VECTOR_LOOP                                                        \
    for (int64_t i = 0; i < n; i++) {                                     \
      in a = x[i];                                                        \
      z[i] = (value);                                                     \
    }                                                                     \
  }
LOOPS(DEFINE)

/* The vector form is right up to a limit; a block with anything larger goes through the C library. */
static void sincos_FLOAT(const float *x, float *z, int64_t n, int32_t quarter) {
  enum { BLOCK = 256 };
  for (int64_t at = 0; at < n; at += BLOCK, x += BLOCK, z += BLOCK) {
    int64_t m = n - at < BLOCK ? n - at : BLOCK;
    int large = 0;
    for (int64_t i = 0; i < m; i++) large |= !(__builtin_fabsf(x[i]) <= VM_SINCOS_LIMIT);
    if (!large) {
      TD_VECTOR_LOOP
      for (int64_t i = 0; i < m; i++) z[i] = vm_sincosf(x[i], quarter);
    } else if (quarter) {
      for (int64_t i = 0; i < m; i++) z[i] = cosf(x[i]);
    } else {
      for (int64_t i = 0; i < m; i++) z[i] = sinf(x[i]);
    }
  }
}
static void Sin_FLOAT(const void *x, void *z, int64_t n, double p) { sincos_FLOAT(x, z, n, 0); }
static void Cos_FLOAT(const void *x, void *z, int64_t n, double p) { sincos_FLOAT(x, z, n, 1); }

#ifdef __AVX512F__
static void Rsqrt_FLOAT(const void *xv, void *zv, int64_t n, double p) {
  const float *x = xv;
  float *z = zv;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(z + i, td_rsqrt_16(_mm512_loadu_ps(x + i)));
  __mmask16 tail = (__mmask16)((1u << (n - i)) - 1);
  _mm512_mask_storeu_ps(z + i, tail, td_rsqrt_16(_mm512_maskz_loadu_ps(tail, x + i)));
}
#else
DEFINE(Rsqrt, FLOAT, float, float, 1 / __builtin_sqrtf(a))
#endif

td_unary_fn TD_ISA_NAME(td_unary_loop)(int op, td_dtype t) {
  switch (op * 32 + (int)t) {
#define CASE(name, t, in, out, value) \
  case TD_UN_##name * 32 + TD_##t:    \
    return name##_##t;
    LOOPS(CASE)
    CASE(Sin, FLOAT, , , )
    CASE(Cos, FLOAT, , , )
    CASE(Rsqrt, FLOAT, , , )
    default:
      return NULL;
  }
}

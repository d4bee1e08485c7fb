/* Binary loops that vectorise. Compiled once per instruction set. Integers wrap: sums and products of signed types
 * run as unsigned (td_binary_loop() maps them). */
#include <float.h>
#include <math.h>

#include "ops/loops/loops.h"
#include "ops/loops/vmath.h"

/* One line an op and element type: name, dtype, C types in and out, the value as a function of a, b (and p). */
#define COMPARE(X, t, c)             \
  X(Equal, t, c, uint8_t, a == b)    \
  X(NotEqual, t, c, uint8_t, a != b) \
  X(Less, t, c, uint8_t, a < b)      \
  X(LessEqual, t, c, uint8_t, a <= b)

/* Eigen's max and min give the first operand when either is NaN; TensorFlow 2 propagates NaN. */
#define FLOATS(X, t, c, f)                                                                  \
  X(Add, t, c, c, a + b)                                                                    \
  X(Sub, t, c, c, a - b)                                                                    \
  X(Mul, t, c, c, a *b)                                                                     \
  X(Div, t, c, c, a / b)                                                                    \
  X(DivNoNan, t, c, c, b == 0 ? 0 : a / b)                                                  \
  X(MulNoNan, t, c, c, b == 0 ? 0 : a * b)                                                  \
  X(FloorDiv, t, c, c, f(floor)(a / b))                                                     \
  X(Maximum, t, c, c, a != a || a > b ? a : b)                                              \
  X(Minimum, t, c, c, a != a || a < b ? a : b)                                              \
  X(SquaredDifference, t, c, c, (a - b) * (a - b))                                          \
  X(ApproximateEqual, t, c, uint8_t, f(fabs)(a - b) < (c)p)                                 \
  X(SigmoidGrad, t, c, c, b *a *(1 - a))                                                    \
  X(TanhGrad, t, c, c, b *(1 - a * a))                                                      \
  X(SqrtGrad, t, c, c, (c)0.5 * b / a)                                                      \
  X(RsqrtGrad, t, c, c, (c)-0.5 * b * a * (a * a))                                          \
  X(InvGrad, t, c, c, -b *a *a)                                                             \
  X(ReluGrad, t, c, c, b > 0 ? a : 0)                                                       \
  X(Relu6Grad, t, c, c, ((b > 0) & (b < 6)) ? a : 0)                                        \
  X(EluGrad, t, c, c, b < 0 ? (b + 1) * a : a)                                              \
  X(SeluGrad, t, c, c, b < 0 ? a * (b + (c)1.7580993408473768) : a * (c)1.0507009873554805) \
  X(LeakyReluGrad, t, c, c, b > 0 ? a : a * (c)p)                                           \
  X(SoftsignGrad, t, c, c, a / ((1 + f(fabs)(b)) * (1 + f(fabs)(b))))                       \
  COMPARE(X, t, c)

#define F_SUFFIX(name) __builtin_##name##f
#define D_SUFFIX(name) __builtin_##name

#define UNSIGNED(X, t, c)                                                                    \
  X(Add, t, c, c, (c)(a + b))                                                                \
  X(Sub, t, c, c, (c)(a - b))                                                                \
  X(Mul, t, c, c, (c)((uint64_t)a * b))                                                      \
  X(SquaredDifference, t, c, c, (c)((uint64_t)(c)(a - b) * (c)(a - b)))                      \
  X(And, t, c, c, a &b)                                                                      \
  X(Or, t, c, c, a | b)                                                                      \
  X(Xor, t, c, c, a ^ b)                                                                     \
  X(LeftShift, t, c, c, (c)((uint64_t)a << (b > 8 * sizeof(c) - 1 ? 8 * sizeof(c) - 1 : b))) \
  X(RightShift, t, c, c, (c)(a >> (b > 8 * sizeof(c) - 1 ? 8 * sizeof(c) - 1 : b)))          \
  INTEGERS(X, t, c)                                                                          \
  COMPARE(X, t, c)

#define INTEGERS(X, t, c)             \
  X(Maximum, t, c, c, a > b ? a : b)  \
  X(Minimum, t, c, c, a < b ? a : b)  \
  X(ReluGrad, t, c, c, b > 0 ? a : 0) \
  X(Relu6Grad, t, c, c, ((b > 0) & (b < 6)) ? a : 0)

#define SIGNED(X, t, c)         \
  INTEGERS(X, t, c)             \
  X(Less, t, c, uint8_t, a < b) \
  X(LessEqual, t, c, uint8_t, a <= b)

#define LOOPS(X)                                              \
  FLOATS(X, FLOAT, float, F_SUFFIX)                           \
  FLOATS(X, DOUBLE, double, D_SUFFIX)                         \
  X(SoftplusGrad, FLOAT, float, float, a / (vm_expf(-b) + 1)) \
  SIGNED(X, INT8, int8_t)                                     \
  SIGNED(X, INT16, int16_t)                                   \
  SIGNED(X, INT32, int32_t)                                   \
  SIGNED(X, INT64, int64_t)                                   \
  UNSIGNED(X, UINT8, uint8_t)                                 \
  UNSIGNED(X, UINT16, uint16_t)                               \
  UNSIGNED(X, UINT32, uint32_t)                               \
  UNSIGNED(X, UINT64, uint64_t)                               \
  X(And, BOOL, uint8_t, uint8_t, a &b)                        \
  X(Or, BOOL, uint8_t, uint8_t, a | b)

#define DEFINE(name, t, in, out, value)                                                  \
  static int name##_##t(const void *xv, const void *yv, void *zv, int64_t n, double p) { \
    const in *x = xv, *y = yv;                                                           \
    out *z = zv;                                                                         \
    (void)p;                                                                             \
    TD_VECTOR_LOOP                                                                       \
    for (int64_t i = 0; i < n; i++) {                                                    \
      in a = x[i], b = y[i];                                                             \
      z[i] = (value);                                                                    \
    }                                                                                    \
    return TD_LOOP_OK;                                                                   \
  }
LOOPS(DEFINE)

#ifdef __AVX2__
/* A block with a zero, an infinity or a NaN goes through the C library. */
static int Pow_FLOAT(const void *xv, const void *yv, void *zv, int64_t n, double p) {
  enum { BLOCK = 256 };
  const float *x = xv, *y = yv;
  float *z = zv;
  for (int64_t at = 0; at < n; at += BLOCK, x += BLOCK, y += BLOCK, z += BLOCK) {
    int64_t m = n - at < BLOCK ? n - at : BLOCK;
    int special = 0;
    for (int64_t i = 0; i < m; i++)
      special |= (x[i] == 0) | !(__builtin_fabsf(x[i]) <= FLT_MAX) | !(__builtin_fabsf(y[i]) <= FLT_MAX);
    if (special) {
      for (int64_t i = 0; i < m; i++) z[i] = powf(x[i], y[i]);
    } else {
      TD_VECTOR_LOOP
      for (int64_t i = 0; i < m; i++) z[i] = vm_powf(x[i], y[i]);
    }
  }
  return TD_LOOP_OK;
}

/* Integer division has no vectors; double holds the quotient of two int32 exactly enough to cut it off. The divisors 0,
 * an error (the result is 0), and -1, whose quotient may not fit, divide as 1 does. */
#define DIVIDE_INT32(name, value)                                                                           \
  static int name##_INT32(const void *xv, const void *yv, void *zv, int64_t n, double p) {                  \
    const int32_t *x = xv, *y = yv;                                                                         \
    int32_t *z = zv, zeros = 0;                                                                             \
    (void)p;                                                                                                \
    for (int64_t i = 0; i < n; i++) zeros |= y[i] == 0;                                                     \
    TD_VECTOR_LOOP                                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                                       \
      int32_t a = y[i] ? x[i] : 0, b = ((y[i] == 0) | (y[i] == -1)) ? 1 : y[i], sign = y[i] == -1;          \
      int32_t q = (int32_t)((double)a / (double)b), r = (int32_t)((uint32_t)a - (uint32_t)q * (uint32_t)b); \
      int32_t is_below = (r != 0) & ((r ^ b) < 0);                                                          \
      (void)sign, (void)is_below;                                                                           \
      z[i] = (int32_t)(value);                                                                              \
    }                                                                                                       \
    return zeros ? TD_LOOP_DIVIDES_BY_ZERO : TD_LOOP_OK;                                                    \
  }
DIVIDE_INT32(Div, sign ? 0 - (uint32_t)a : (uint32_t)q)
DIVIDE_INT32(FloorDiv, sign ? 0 - (uint32_t)a : (uint32_t)(q - is_below))
DIVIDE_INT32(TruncateMod, r)
DIVIDE_INT32(FloorMod, is_below ? r + b : r)
#define DIVISIONS(X)          \
  X(Div, INT32, , , )         \
  X(FloorDiv, INT32, , , )    \
  X(TruncateMod, INT32, , , ) \
  X(FloorMod, INT32, , , )
#else /* two lanes of double are no match for the C library, nor for the divider */
DEFINE(Pow, FLOAT, float, float, powf(a, b))
#define DIVISIONS(X)
#endif

td_binary_fn TD_ISA_NAME(td_binary_loop)(int op, td_dtype t) {
  switch (op * 32 + (int)t) {
#define CASE(name, t, in, out, value) \
  case TD_BIN_##name * 32 + TD_##t:   \
    return name##_##t;
    LOOPS(CASE)
    CASE(Pow, FLOAT, , , )
    DIVISIONS(CASE)
    default:
      return NULL;
  }
}

#define SUM(t, c)                                                             \
  static void sum_##t(const void *const *x, int count, void *zv, int64_t n) { \
    const c *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[count - 1];           \
    c *z = zv;                                                                \
    if (count == 3) {                                                         \
      TD_VECTOR_LOOP                                                          \
      for (int64_t i = 0; i < n; i++) z[i] = x0[i] + x1[i] + x2[i];           \
    } else {                                                                  \
      TD_VECTOR_LOOP                                                          \
      for (int64_t i = 0; i < n; i++) z[i] = x0[i] + x1[i] + x2[i] + x3[i];   \
    }                                                                         \
  }
SUM(FLOAT, float)
SUM(DOUBLE, double)

td_sum_fn TD_ISA_NAME(td_sum_loop)(td_dtype t) {
  return t == TD_FLOAT ? sum_FLOAT : t == TD_DOUBLE ? sum_DOUBLE : NULL;
}

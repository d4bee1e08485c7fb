/* Loops that gain nothing from wider vectors (C library calls, integer division, complex numbers), compiled once. */
#include <complex.h>
#include <math.h>

#include "ops/loops/loops.h"
#include "ops/loops/special.h"

/* ---- unary ---- */

#define REALS(X, t, c, s)             \
  X(Tan, t, c, c, tan##s(a))          \
  X(Sinh, t, c, c, sinh##s(a))        \
  X(Cosh, t, c, c, cosh##s(a))        \
  X(Asin, t, c, c, asin##s(a))        \
  X(Acos, t, c, c, acos##s(a))        \
  X(Atan, t, c, c, atan##s(a))        \
  X(Asinh, t, c, c, asinh##s(a))      \
  X(Acosh, t, c, c, acosh##s(a))      \
  X(Atanh, t, c, c, atanh##s(a))      \
  X(Erf, t, c, c, erf##s(a))          \
  X(Erfc, t, c, c, erfc##s(a))        \
  X(Erfinv, t, c, c, (c)td_erfinv(a)) \
  X(Ndtri, t, c, c, (c)td_ndtri(a))   \
  X(Lgamma, t, c, c, td_lgamma##s(a)) \
  X(Digamma, t, c, c, (c)td_digamma(a))

#define DOUBLES(X)                                                                                      \
  X(Exp, DOUBLE, double, double, exp(a))                                                                \
  X(Expm1, DOUBLE, double, double, expm1(a))                                                            \
  X(Log, DOUBLE, double, double, log(a))                                                                \
  X(Log1p, DOUBLE, double, double, log1p(a))                                                            \
  X(Sin, DOUBLE, double, double, sin(a))                                                                \
  X(Cos, DOUBLE, double, double, cos(a))                                                                \
  X(Tanh, DOUBLE, double, double, tanh(a))                                                              \
  X(Sigmoid, DOUBLE, double, double, 1 / (1 + exp(-a)))                                                 \
  X(Elu, DOUBLE, double, double, a < 0 ? expm1(a) : a)                                                  \
  X(Selu, DOUBLE, double, double, a < 0 ? 1.7580993408473768599 * expm1(a) : 1.0507009873554804935 * a) \
  X(Softplus, DOUBLE, double, double, a > 34.0 ? a : log1p(exp(a)))

#define COMPLEXES(X, t, c, r, rt, s)                         \
  X(Abs, t, c, r, cabs##s(a))                                \
  X(Neg, t, c, c, -a)                                        \
  X(Inv, t, c, c, td_complex_div##s(1, a))                   \
  X(Square, t, c, c, td_complex_mul##s(a, a))                \
  X(Sqrt, t, c, c, csqrt##s(a))                              \
  X(Rsqrt, t, c, c, td_complex_div##s(1, csqrt##s(a)))       \
  X(Exp, t, c, c, cexp##s(a))                                \
  X(Expm1, t, c, c, td_complex_expm1##s(a))                  \
  X(Log, t, c, c, clog##s(a))                                \
  X(Log1p, t, c, c, td_complex_log1p##s(a))                  \
  X(Sin, t, c, c, csin##s(a))                                \
  X(Cos, t, c, c, ccos##s(a))                                \
  X(Tan, t, c, c, ctan##s(a))                                \
  X(Sinh, t, c, c, csinh##s(a))                              \
  X(Cosh, t, c, c, ccosh##s(a))                              \
  X(Tanh, t, c, c, ctanh##s(a))                              \
  X(Asin, t, c, c, casin##s(a))                              \
  X(Acos, t, c, c, cacos##s(a))                              \
  X(Atan, t, c, c, catan##s(a))                              \
  X(Asinh, t, c, c, casinh##s(a))                            \
  X(Acosh, t, c, c, cacosh##s(a))                            \
  X(Atanh, t, c, c, catanh##s(a))                            \
  X(Sigmoid, t, c, c, td_complex_div##s(1, 1 + cexp##s(-a))) \
  X(Sign, t, c, c, a == 0 ? 0 : a / cabs##s(a))              \
  X(Conj, t, c, c, conj##s(a))                               \
  X(Real, t, c, r, creal##s(a))                              \
  X(Imag, t, c, r, cimag##s(a))                              \
  X(Angle, t, c, r, carg##s(a))

#define UNARY(X)                                         \
  REALS(X, FLOAT, float, f)                              \
  REALS(X, DOUBLE, double, )                             \
  DOUBLES(X)                                             \
  COMPLEXES(X, COMPLEX64, td_complex64, float, FLOAT, f) \
  COMPLEXES(X, COMPLEX128, td_complex128, double, DOUBLE, )

#define DEFINE_UNARY(name, t, in, out, value)                             \
  static void name##_##t(const void *xv, void *zv, int64_t n, double p) { \
    const in *x = xv;                                                     \
    out *z = zv;                                                          \
    for (int64_t i = 0; i < n; i++) {                                     \
      in a = x[i];                                                        \
      z[i] = (value);                                                     \
    }                                                                     \
  }
UNARY(DEFINE_UNARY)

td_unary_fn td_unary_loop_plain(int op, td_dtype t) {
  switch (op * 32 + (int)t) {
#define CASE_UNARY(name, t, in, out, value) \
  case TD_UN_##name * 32 + TD_##t:          \
    return name##_##t;
    UNARY(CASE_UNARY)
    default:
      return NULL;
  }
}

/* ---- binary ---- */

#define REALS_2(X, t, c, s)                         \
  X(TruncateDiv, t, c, c, trunc##s(a / b))          \
  X(TruncateMod, t, c, c, fmod##s(a, b))            \
  X(FloorMod, t, c, c, td_floor_mod##s(a, b))       \
  X(Atan2, t, c, c, atan2##s(a, b))                 \
  X(NextAfter, t, c, c, nextafter##s(a, b))         \
  X(Xdivy, t, c, c, a == 0 ? 0 : a / b)             \
  X(Xlogy, t, c, c, a == 0 ? 0 : a * log##s(b))     \
  X(Xlog1py, t, c, c, a == 0 ? 0 : a * log1p##s(b)) \
  X(Igamma, t, c, c, (c)td_igamma(a, b))            \
  X(Igammac, t, c, c, (c)td_igammac(a, b))          \
  X(Zeta, t, c, c, (c)td_zeta(a, b))                \
  X(Polygamma, t, c, c, (c)td_polygamma(a, b))

#define COMPLEXES_2(X, t, c, s)                                                                                     \
  X(Add, t, c, c, a + b)                                                                                            \
  X(Sub, t, c, c, a - b)                                                                                            \
  X(Mul, t, c, c, td_complex_mul##s(a, b))                                                                          \
  X(Div, t, c, c, td_complex_div##s(a, b))                                                                          \
  X(MulNoNan, t, c, c, b == 0 ? 0 : td_complex_mul##s(a, b))                                                        \
  X(DivNoNan, t, c, c, b == 0 ? 0 : td_complex_div##s(a, b))                                                        \
  X(SquaredDifference, t, c, c, td_complex_mul##s(conj##s(a - b), a - b))                                           \
  X(Pow, t, c, c, td_complex_pow##s(a, b))                                                                          \
  X(Xdivy, t, c, c, a == 0 ? 0 : td_complex_div##s(a, b))                                                           \
  X(Xlogy, t, c, c, a == 0 ? 0 : td_complex_mul##s(a, clog##s(b)))                                                  \
  X(Xlog1py, t, c, c, a == 0 ? 0 : td_complex_mul##s(a, td_complex_log1p##s(b)))                                    \
  X(Equal, t, c, uint8_t, a == b)                                                                                   \
  X(NotEqual, t, c, uint8_t, !(a == b))                                                                             \
  X(SigmoidGrad, t, c, c, td_complex_mul##s(b, td_complex_mul##s(a, 1 - a)))                                        \
  X(TanhGrad, t, c, c, td_complex_mul##s(b, 1 - td_complex_mul##s(a, a)))                                           \
  X(SqrtGrad, t, c, c, td_complex_div##s(b / 2, conj##s(a)))                                                        \
  X(RsqrtGrad, t, c, c, td_complex_mul##s(b / -2, td_complex_mul##s(conj##s(a), conj##s(td_complex_mul##s(a, a))))) \
  X(InvGrad, t, c, c, td_complex_mul##s(b, -conj##s(td_complex_mul##s(a, a))))

/* Only a zero divisor and the quotient by -1, which may not fit, differ from C's division. */
#define BY_ZERO (bad |= TD_LOOP_DIVIDES_BY_ZERO, 0)
#define SIGNED_2(X, t, c, u)                                                                                       \
  X(Div, t, c, c, b == 0 ? BY_ZERO : b == -1 ? (c)((u)0 - (u)a) : (c)(a / b))                                      \
  X(FloorDiv, t, c, c,                                                                                             \
    b == 0    ? BY_ZERO                                                                                            \
    : b == -1 ? (c)((u)0 - (u)a)                                                                                   \
              : (c)(a / b - (a % b != 0 && (a < 0) != (b < 0))))                                                   \
  X(TruncateMod, t, c, c, b == 0 ? BY_ZERO : b == -1 ? 0 : (c)(a % b))                                             \
  X(FloorMod, t, c, c, b == 0 ? BY_ZERO : b == -1 ? 0 : (c)(a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b)) \
  X(RightShift, t, c, c, (c)(a >> SHIFT_BY(b, c)))                                                                 \
  X(LeftShift, t, c, c, (c)((u)a << SHIFT_BY(b, c)))                                                               \
  X(Pow, t, c, c, b < 0 ? (bad |= TD_LOOP_NEGATIVE_POWER, 0) : (c)td_int_pow((uint64_t)(int64_t)a, (uint64_t)b))
#define SHIFT_BY(b, c) ((b) < 0 ? 0 : (b) > (c)(8 * sizeof(c) - 1) ? (c)(8 * sizeof(c) - 1) : (b))

#define UNSIGNED_2(X, t, c)                              \
  X(Div, t, c, c, b == 0 ? BY_ZERO : (c)(a / b))         \
  X(FloorDiv, t, c, c, b == 0 ? BY_ZERO : (c)(a / b))    \
  X(TruncateMod, t, c, c, b == 0 ? BY_ZERO : (c)(a % b)) \
  X(FloorMod, t, c, c, b == 0 ? BY_ZERO : (c)(a % b))

#define BINARY(X)                                            \
  REALS_2(X, FLOAT, float, f)                                \
  REALS_2(X, DOUBLE, double, )                               \
  X(Pow, DOUBLE, double, double, pow(a, b))                  \
  X(SoftplusGrad, DOUBLE, double, double, a / (exp(-b) + 1)) \
  COMPLEXES_2(X, COMPLEX64, td_complex64, f)                 \
  COMPLEXES_2(X, COMPLEX128, td_complex128, )                \
  X(Complex, FLOAT, float, td_complex64, CMPLXF(a, b))       \
  X(Complex, DOUBLE, double, td_complex128, CMPLX(a, b))     \
  SIGNED_2(X, INT8, int8_t, uint8_t)                         \
  SIGNED_2(X, INT16, int16_t, uint16_t)                      \
  SIGNED_2(X, INT32, int32_t, uint32_t)                      \
  SIGNED_2(X, INT64, int64_t, uint64_t)                      \
  UNSIGNED_2(X, UINT8, uint8_t)                              \
  UNSIGNED_2(X, UINT16, uint16_t)                            \
  UNSIGNED_2(X, UINT32, uint32_t)                            \
  UNSIGNED_2(X, UINT64, uint64_t)

#define DEFINE_BINARY(name, t, in, out, value)                                             \
  static int name##_2_##t(const void *xv, const void *yv, void *zv, int64_t n, double p) { \
    const in *x = xv, *y = yv;                                                             \
    out *z = zv;                                                                           \
    int bad = TD_LOOP_OK;                                                                  \
    for (int64_t i = 0; i < n; i++) {                                                      \
      in a = x[i], b = y[i];                                                               \
      z[i] = (value);                                                                      \
    }                                                                                      \
    return bad;                                                                            \
  }
BINARY(DEFINE_BINARY)

td_binary_fn td_binary_loop_plain(int op, td_dtype t) {
  switch (op * 32 + (int)t) {
#define CASE_BINARY(name, t, in, out, value) \
  case TD_BIN_##name * 32 + TD_##t:          \
    return name##_2_##t;
    BINARY(CASE_BINARY)
    default:
      return NULL;
  }
}

/* Elementary functions on floats, without branches, so that loops over them vectorise. Errors are against the exact
 * value, measured over all floats by loops_test.c. Algorithms: range reduction by a power of two and a minimax
 * polynomial (the coefficients are those of the Cephes library, S. L. Moshier, public domain). */
#ifndef TD_OPS_LOOPS_VMATH_H_
#define TD_OPS_LOOPS_VMATH_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __FMA__
#define VM_MADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define VM_MADD(a, b, c) ((a) * (b) + (c))
#endif

static inline float vm_from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static inline uint32_t vm_to_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

/* e^r - 1 - r over r^2, for |r| <= ln(2)/2. */
static inline float vm_exp_tail(float r) {
  float p = 1.9875691500e-4f;
  p = VM_MADD(p, r, 1.3981999507e-3f);
  p = VM_MADD(p, r, 8.3334519073e-3f);
  p = VM_MADD(p, r, 4.1665795894e-2f);
  p = VM_MADD(p, r, 1.6666665459e-1f);
  return VM_MADD(p, r, 5.0000001201e-1f);
}

/* n = round(x / ln 2) and r = x - n ln 2. Adding 1.5 * 2^23 rounds to an integer in the low bits. */
static inline float vm_exp_reduce(float x, int32_t *n) {
  const float magic = 12582912.0f;
  float shifted = VM_MADD(x, 1.44269504088896341f, magic);
  float k = shifted - magic;
  *n = (int32_t)(vm_to_bits(shifted) - vm_to_bits(magic));
  float r = VM_MADD(k, -0.693359375f, x);
  return VM_MADD(k, 2.12194440e-4f, r);
}

/* Within 1.5 ULP, denormal results included; NaN stays NaN. */
static inline float vm_expf(float x) {
  float c = x > 89.0f ? 89.0f : x; /* NaN passes both comparisons unchanged */
  c = c < -104.0f ? -104.0f : c;
  int32_t n;
  float r = vm_exp_reduce(c, &n);
  float p = VM_MADD(vm_exp_tail(r), r * r, r) + 1.0f;
  /* 2^n in two factors, so that results past the normal range are right */
  int32_t half = n >> 1;
  float a = vm_from_bits((uint32_t)(half + 127) << 23), b = vm_from_bits((uint32_t)(n - half + 127) << 23);
  return x != x ? x : p * a * b;
}

/* Within 2 ULP. */
static inline float vm_logf(float x) {
  /* denormals are scaled up first */
  int small = x < 1.17549435e-38f;
  float s = small ? x * 8388608.0f : x;
  uint32_t u = vm_to_bits(s);
  int32_t e = (int32_t)(u >> 23 & 0xff) - 126 - (small ? 23 : 0);
  float m = vm_from_bits((u & 0x007fffff) | 0x3f000000); /* [0.5, 1) */
  int low = m < 0.707106781186547524f;
  float t = (low ? m + m : m) - 1.0f;
  float k = (float)(low ? e - 1 : e);
  float z = t * t;
  float p = 7.0376836292e-2f;
  p = VM_MADD(p, t, -1.1514610310e-1f);
  p = VM_MADD(p, t, 1.1676998740e-1f);
  p = VM_MADD(p, t, -1.2420140846e-1f);
  p = VM_MADD(p, t, 1.4249322787e-1f);
  p = VM_MADD(p, t, -1.6668057665e-1f);
  p = VM_MADD(p, t, 2.0000714765e-1f);
  p = VM_MADD(p, t, -2.4999993993e-1f);
  p = VM_MADD(p, t, 3.3333331174e-1f);
  float y = p * t * z;
  y = VM_MADD(k, -2.12194440e-4f, y);
  y = VM_MADD(z, -0.5f, y);
  float r = VM_MADD(k, 0.693359375f, t + y);
  r = x == INFINITY ? INFINITY : r;
  r = x == 0.0f ? -INFINITY : r;
  return x < 0.0f || x != x ? NAN : r;
}

/* e^x - 1 within 2 ULP for |x| of any size. */
static inline float vm_expm1f(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -30.0f ? -30.0f : c;
  int32_t n;
  float r = vm_exp_reduce(c, &n);
  float em = VM_MADD(vm_exp_tail(r), r * r, r); /* e^r - 1 */
  int32_t half = n >> 1;
  float a = vm_from_bits((uint32_t)(half + 127) << 23), b = vm_from_bits((uint32_t)(n - half + 127) << 23);
  float scaled = n >= 127 ? (em + 1.0f) * a * b : VM_MADD(em, a * b, a * b - 1.0f);
  scaled = n == 0 ? em : scaled;
  return x != x || x == 0.0f ? x : (x > 88.8f ? INFINITY : scaled);
}

/* e / (e + 2) for e = e^2|x| - 1; what the sum and the quotient lost is made good. Within 1.7 ULP, 2.4 without FMA. */
static inline float vm_tanhf(float x) {
  float a = __builtin_fabsf(x);
  float c = a > 10.0f ? 10.0f : a;
  int32_t n;
  float r = vm_exp_reduce(c + c, &n);
  float em = VM_MADD(vm_exp_tail(r), r * r, r); /* e^r - 1 */
  float s = vm_from_bits((uint32_t)(n + 127) << 23);
  float e = VM_MADD(em, s, s - 1.0f);
  float d = e + 2.0f, lost = (2.0f - d) + e, inverse = 1.0f / d;
  float t = e * inverse;
  float rest = VM_MADD(-t, lost, VM_MADD(-t, d, e));
  return __builtin_copysignf(VM_MADD(rest, inverse, t), x);
}

static inline float vm_sigmoidf(float x) { return 1.0f / (1.0f + vm_expf(-x)); }

/* Within 3 ULP. */
static inline float vm_erff(float x) {
  float a = __builtin_fabsf(x);
  float z = x * x;
  float p = 7.853861353153693e-5f;
  p = VM_MADD(p, z, -8.010193625184903e-4f);
  p = VM_MADD(p, z, 5.188327685732524e-3f);
  p = VM_MADD(p, z, -2.685381193529856e-2f);
  p = VM_MADD(p, z, 1.128358514861418e-1f);
  p = VM_MADD(p, z, -3.761262582423300e-1f);
  p = VM_MADD(p, z, 1.128379165726710f);
  float near = p * x;
  float c = a > 5.0f ? 5.0f : a; /* 1 from 4 on */
  float q = 1.0f / c, y = q * q;
  float t = 2.326819970068386e-2f;
  t = VM_MADD(t, y, -1.387039388740657e-1f);
  t = VM_MADD(t, y, 3.687424674597105e-1f);
  t = VM_MADD(t, y, -5.824733027278666e-1f);
  t = VM_MADD(t, y, 6.210004621745983e-1f);
  t = VM_MADD(t, y, -4.944515323274145e-1f);
  t = VM_MADD(t, y, 3.404879937665872e-1f);
  t = VM_MADD(t, y, -2.741127028184656e-1f);
  t = VM_MADD(t, y, 5.638259427386472e-1f);
  float far = __builtin_copysignf(1.0f - vm_expf(-c * c) * q * t, x);
  float r = a <= 1.0f ? near : far;
  return x != x ? x : r;
}

/* log(1 + x): the rounding error of 1 + x is corrected to first order. Within 3 ULP. */
static inline float vm_log1pf(float x) {
  float u = 1.0f + x;
  float d = u - 1.0f;
  float r = vm_logf(u) + (x - d) / u;
  r = u == INFINITY ? u : r;
  return d == 0.0f ? x : r;
}

static inline float vm_softplusf(float x) {
  /* where 1 + e^x rounds to 1 or e^x to itself plus 1 no longer matters */
  const float threshold = 13.942385f; /* -log(epsilon) - 2 */
  float e = vm_expf(x > 20.0f ? 20.0f : x);
  float r = x < -threshold ? e : vm_log1pf(e);
  return x > threshold || x != x ? x : r;
}

/* Sine (quarter = 0) and cosine (quarter = 1), reduced in double; good for |x| <= VM_SINCOS_LIMIT. */
#define VM_SINCOS_LIMIT 1.0e5f
static inline float vm_sincosf(float x, int32_t quarter) {
  double d = (double)x;
  const double magic = 6755399441055744.0;
  double k = d * 0.63661977236758134308 + magic;
  int64_t bits;
  memcpy(&bits, &k, 8);
  k -= magic;
  /* pi/2 in two parts, the first of 33 bits so that its product with k is exact */
  double r = d - k * 1.57079632673412561417e+00;
  r -= k * 6.07710050650619224932e-11;
  uint32_t q = (uint32_t)bits + (uint32_t)quarter;
  float f = (float)r, z = f * f;
  float s = -1.9515295891e-4f;
  s = VM_MADD(s, z, 8.3321608736e-3f);
  s = VM_MADD(s, z, -1.6666654611e-1f);
  s = VM_MADD(s * z, f, f);
  float c = 2.443315711809948e-5f;
  c = VM_MADD(c, z, -1.388731625493765e-3f);
  c = VM_MADD(c, z, 4.166664568298827e-2f);
  c = VM_MADD(c * z, z, VM_MADD(z, -0.5f, 1.0f));
  float v = q & 1 ? c : s;
  return vm_from_bits(vm_to_bits(v) ^ (q & 2) << 30);
}

/* ---- powers, in double: a logarithm times a large exponent needs more digits than a float has ---- */

#ifdef __FMA__
#define VM_MADD_DOUBLE(a, b, c) __builtin_fma(a, b, c)
#else
#define VM_MADD_DOUBLE(a, b, c) ((a) * (b) + (c))
#endif

static inline uint64_t vm_to_bits_double(double d) {
  uint64_t u;
  memcpy(&u, &d, 8);
  return u;
}
static inline double vm_from_bits_double(uint64_t u) {
  double d;
  memcpy(&d, &u, 8);
  return d;
}

#define VM_ROUND 6755399441055744.0 /* 1.5 * 2^52: adding it rounds to an integer in the low bits */

/* log2 of a positive normal number, to 2e-12: the series of the area hyperbolic tangent. */
static inline double vm_log2_double(double x) {
  uint64_t bits = vm_to_bits_double(x), one = UINT64_C(1) << 52;
  /* mantissa in [sqrt(1/2), sqrt(2)) and the exponent that goes with it, counted from -1024 */
  uint64_t e = (bits - UINT64_C(0x3fe6a09e667f3bcd) + 1024 * one) >> 52;
  double m = vm_from_bits_double(bits - (e - 1024) * one);
  double k = vm_from_bits_double(vm_to_bits_double(VM_ROUND) + e - 1024) - VM_ROUND;
  double s = (m - 1) / (m + 1), z = s * s;
  double p = 1.0 / 13;
  p = VM_MADD_DOUBLE(p, z, 1.0 / 11);
  p = VM_MADD_DOUBLE(p, z, 1.0 / 9);
  p = VM_MADD_DOUBLE(p, z, 1.0 / 7);
  p = VM_MADD_DOUBLE(p, z, 1.0 / 5);
  p = VM_MADD_DOUBLE(p, z, 1.0 / 3);
  p = VM_MADD_DOUBLE(p, z, 1.0);
  return VM_MADD_DOUBLE(p, s * 2.8853900817779268, k); /* 2 / ln 2 */
}

/* 2^x to 1e-11, |x| <= 1000: the exponential's series. */
static inline double vm_exp2_double(double x) {
  double shifted = x + VM_ROUND, r = (x - (shifted - VM_ROUND)) * 0.69314718055994531;
  double p = 1.0 / 362880;
  p = VM_MADD_DOUBLE(p, r, 1.0 / 40320);
  p = VM_MADD_DOUBLE(p, r, 1.0 / 5040);
  p = VM_MADD_DOUBLE(p, r, 1.0 / 720);
  p = VM_MADD_DOUBLE(p, r, 1.0 / 120);
  p = VM_MADD_DOUBLE(p, r, 1.0 / 24);
  p = VM_MADD_DOUBLE(p, r, 1.0 / 6);
  p = VM_MADD_DOUBLE(p, r, 0.5);
  p = VM_MADD_DOUBLE(p, r, 1.0);
  p = VM_MADD_DOUBLE(p, r, 1.0);
  return vm_from_bits_double(vm_to_bits_double(p) + (vm_to_bits_double(shifted) << 52));
}

/* a^b for finite operands, a not 0: within 0.51 ULP. */
static inline float vm_powf(float a, float b) {
  double base = (double)a, power = (double)b, half = power * 0.5;
  double t = power * vm_log2_double(__builtin_fabs(base));
  t = t > 300 ? 300 : t < -300 ? -300 : t;
  double size = vm_exp2_double(t);
  int is_whole = __builtin_floor(power) == power, is_odd = __builtin_floor(half) != half;
  double of_negative = is_whole ? (is_odd ? -size : size) : (double)NAN;
  return (float)(base < 0 ? of_negative : size);
}

#endif /* TD_OPS_LOOPS_VMATH_H_ */

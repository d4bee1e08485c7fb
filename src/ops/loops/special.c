#include "ops/loops/special.h"

#include <complex.h>
#include <math.h>

/* Recurrence up to 10, then the asymptotic series; reflection below zero. */
double td_digamma(double x) {
  if (x == 0 || (x < 0 && floor(x) == x)) return x == 0 ? -INFINITY : NAN;
  double result = 0;
  if (x < 0) {
    double fraction = x - floor(x);
    result = -M_PI / tan(M_PI * fraction);
    x = 1 - x;
  }
  for (; x < 10; x++) result -= 1 / x;
  if (x > 1e17) return result + log(x);
  double z = 1 / (x * x);
  double series =
      z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * 691.0 / 32760)))));
  return result + log(x) - 0.5 / x - series;
}

/* Acklam's rational approximation (relative error 1.2e-9), then one step of Halley's method on the exact function. */
double td_ndtri(double p) {
  static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                             1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                             6.680131188771972e+01, -1.328068155288572e+01};
  static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                             -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                             3.754408661907416e+00};
  if (!(p >= 0 && p <= 1)) return NAN;
  if (p == 0) return -INFINITY;
  if (p == 1) return INFINITY;
  double x;
  double tail = p < 0.5 ? p : 1 - p;
  if (tail < 0.02425) {
    double q = sqrt(-2 * log(tail));
    x = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
        ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  } else {
    double q = tail - 0.5, r = q * q;
    x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
        (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
  }
  for (int i = 0; i < 2; i++) {
    double e = 0.5 * erfc(-x / M_SQRT2) - tail;
    double u = e * 2.50662827463100050242 * exp(x * x / 2);
    if (isfinite(u)) x -= u / (1 + x * u / 2);
  }
  return p < 0.5 ? x : -x;
}

double td_erfinv(double x) {
  if (!(fabs(x) <= 1)) return NAN;
  if (fabs(x) == 1) return copysign(INFINITY, x);
  if (fabs(x) < 1e-4) return x * (0.88622692545275801365 + x * x * 0.23201366653465449);
  double y = fabs(x) < 0.5 ? td_ndtri((x + 1) / 2) / M_SQRT2 : copysign(td_ndtri((1 - fabs(x)) / 2) / M_SQRT2, 1) * -1;
  y = copysign(fabs(y), x);
  /* one Newton step, exact near the ends through erfc */
  double e = fabs(x) < 0.5 ? erf(y) - x : copysign((1 - fabs(x)) - erfc(fabs(y)), x);
  double step = e * 0.88622692545275801365 * exp(y * y);
  return isfinite(step) ? y - step : y;
}

float td_lgammaf(float x) {
  int sign;
  return x == -INFINITY ? INFINITY : lgammaf_r(x, &sign);
}

double td_lgamma(double x) {
  int sign;
  return x == -INFINITY ? INFINITY : lgamma_r(x, &sign);
}

/* x^a e^-x / Gamma(a) */
static double gamma_factor(double a, double x) {
  double t = a * log(x) - x - td_lgamma(a);
  return exp(t);
}

/* Both sums below need about 6 sqrt(a) terms where x is near a; beyond this `a` they give way to the normal
 * distribution that the gamma distribution then is (Wilson and Hilferty). */
#define LARGEST_SUMMED 1e6
enum { GAMMA_TERMS = 10000 };

static double gamma_normal(double a, double x, bool upper) {
  double z = 3 * sqrt(a) * (cbrt(x / a) - 1 + 1 / (9 * a));
  return erfc((upper ? z : -z) * M_SQRT1_2) / 2;
}

static double gamma_series(double a, double x) { /* lower, for x < a + 1 */
  if (a > LARGEST_SUMMED) return gamma_normal(a, x, false);
  double term = 1 / a, sum = term;
  for (int i = 1; fabs(term) > fabs(sum) * 1e-17 && i < GAMMA_TERMS; i++) {
    term *= x / (a + i);
    sum += term;
  }
  return sum * gamma_factor(a, x);
}

static double gamma_fraction(double a, double x) { /* upper, Lentz's continued fraction */
  if (a > LARGEST_SUMMED) return gamma_normal(a, x, true);
  const double tiny = 1e-300;
  double b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;
  for (int i = 1; i < GAMMA_TERMS; i++) {
    double an = -i * (i - a);
    b += 2;
    d = an * d + b;
    if (fabs(d) < tiny) d = tiny;
    c = b + an / c;
    if (fabs(c) < tiny) c = tiny;
    d = 1 / d;
    double delta = d * c;
    h *= delta;
    if (fabs(delta - 1) < 1e-16) break;
  }
  return h * gamma_factor(a, x);
}

double td_igamma(double a, double x) {
  if (isnan(a) || isnan(x) || x < 0 || a <= 0) return NAN;
  if (x == 0) return 0;
  if (isinf(a)) return isinf(x) ? NAN : 0;
  if (isinf(x)) return 1;
  return x > 1 && x > a ? 1 - gamma_fraction(a, x) : gamma_series(a, x);
}

double td_igammac(double a, double x) {
  if (isnan(a) || isnan(x) || x < 0 || a <= 0) return NAN;
  if (x == 0) return 1;
  if (isinf(a)) return isinf(x) ? NAN : 1;
  if (isinf(x)) return 0;
  return x < 1 || x < a ? 1 - gamma_series(a, x) : gamma_fraction(a, x);
}

/* Euler-Maclaurin. */
double td_zeta(double x, double q) {
  static const double factors[] = {/* (2k)! / B2k */
                                   12.0,
                                   -720.0,
                                   30240.0,
                                   -1209600.0,
                                   47900160.0,
                                   -1.8924375803183791606e9,
                                   7.47242496e10,
                                   -2.950130727918164224e12,
                                   1.1646782814350067249e14,
                                   -4.5979787224074726105e15,
                                   1.8152105401943546773e17,
                                   -7.1661652561756670113e18};
  if (isnan(x) || isnan(q)) return NAN;
  if (x == 1) return INFINITY;
  if (x < 1) return NAN;
  if (q <= 0) {
    if (q == floor(q)) return INFINITY;
    if (x != floor(x)) return NAN;
    if (q < -1000) { /* the terms left of zero as a difference of two sums right of it: no walk up from q */
      double terms = ceil(-q), least = -q - (terms - 1);
      double left = td_zeta(x, least) - td_zeta(x, least + terms);
      return (fmod(x, 2) == 0 ? left : -left) + td_zeta(x, q + terms);
    }
  }
  double sum = pow(q, -x), a = q, b = 0;
  int i = 0;
  while (i < 9 || a <= 9) {
    i++;
    a += 1;
    b = pow(a, -x);
    sum += b;
    if (fabs(b / sum) < 1.1e-16) return sum;
  }
  double w = a;
  sum += b * w / (x - 1);
  sum -= 0.5 * b;
  double factor = 1, k = 0;
  for (int j = 0; j < 12; j++) {
    factor *= x + k;
    b /= w;
    double t = factor * b / factors[j];
    sum += t;
    if (fabs(t / sum) < 1.1e-16) return sum;
    k++;
    factor *= x + k;
    b /= w;
    k++;
  }
  return sum;
}

double td_polygamma(double n, double x) {
  if (n != floor(n) || n < 0) return NAN;
  if (n == 0) return td_digamma(x);
  double factorial = exp(td_lgamma(n + 1));
  return (fmod(n, 2) == 0 ? -1 : 1) * factorial * td_zeta(n + 1, x);
}

float td_floor_modf(float a, float b) {
  float r = fmodf(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double td_floor_mod(double a, double b) {
  double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

uint64_t td_int_pow(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

td_complex64 td_complex_mulf(td_complex64 a, td_complex64 b) {
  float ar = crealf(a), ai = cimagf(a), br = crealf(b), bi = cimagf(b);
  return CMPLXF(ar * br - ai * bi, ar * bi + ai * br);
}
td_complex128 td_complex_mul(td_complex128 a, td_complex128 b) {
  double ar = creal(a), ai = cimag(a), br = creal(b), bi = cimag(b);
  return CMPLX(ar * br - ai * bi, ar * bi + ai * br);
}
td_complex64 td_complex_divf(td_complex64 a, td_complex64 b) { return a / b; }
td_complex128 td_complex_div(td_complex128 a, td_complex128 b) { return a / b; }

td_complex128 td_complex_pow(td_complex128 a, td_complex128 b) {
  if (a == 0 && b == 0) return 1;
  return cpow(a, b);
}
td_complex64 td_complex_powf(td_complex64 a, td_complex64 b) { return (td_complex64)td_complex_pow(a, b); }

/* e^z - 1 = (e^x cos y - 1) + i e^x sin y, with 1 - cos y = 2 sin^2(y/2) against cancellation. */
td_complex128 td_complex_expm1(td_complex128 a) {
  double x = creal(a), y = cimag(a), e = exp(x), s = sin(y / 2);
  if (!isfinite(x) || !isfinite(y)) return cexp(a) - 1;
  return CMPLX(expm1(x) - 2 * e * s * s, y == 0 ? y : e * sin(y));
}
td_complex64 td_complex_expm1f(td_complex64 a) { return (td_complex64)td_complex_expm1(a); }

td_complex128 td_complex_log1p(td_complex128 a) {
  double x = creal(a), y = cimag(a);
  if (hypot(x, y) > 0.5 || !isfinite(x) || !isfinite(y)) return clog(1 + a);
  return CMPLX(0.5 * log1p(x * (2 + x) + y * y), atan2(y, 1 + x));
}
td_complex64 td_complex_log1pf(td_complex64 a) { return (td_complex64)td_complex_log1p(a); }

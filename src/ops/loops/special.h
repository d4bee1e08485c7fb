/* Special functions that the C library lacks, in double precision, and complex arithmetic as TensorFlow has it. */
#ifndef TD_OPS_LOOPS_SPECIAL_H_
#define TD_OPS_LOOPS_SPECIAL_H_

#include <complex.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* Clang lacks the C library's CMPLX. */
#ifndef CMPLX
#define CMPLX(re, im)  __builtin_complex((double)(re), (double)(im))
#define CMPLXF(re, im) __builtin_complex((float)(re), (float)(im))
#endif

double td_digamma(double x);
double td_erfinv(double x);           /* NaN outside [-1, 1] */
double td_ndtri(double p);            /* inverse of the normal distribution function */
double td_igamma(double a, double x); /* regularised lower incomplete gamma function; NaN for a <= 0 or x < 0 */
double td_igammac(double a, double x);
double td_zeta(double x, double q); /* Hurwitz zeta */
double td_polygamma(double n, double x);
float td_lgammaf(float x); /* without the C library's global sign variable */
double td_lgamma(double x);
float td_floor_modf(float a, float b); /* the remainder with the divisor's sign */
double td_floor_mod(double a, double b);
uint64_t td_int_pow(uint64_t base, uint64_t exponent); /* modulo 2^64 */

td_complex64 td_complex_mulf(td_complex64 a, td_complex64 b);
td_complex128 td_complex_mul(td_complex128 a, td_complex128 b);
td_complex64 td_complex_divf(td_complex64 a, td_complex64 b);
td_complex128 td_complex_div(td_complex128 a, td_complex128 b);
td_complex64 td_complex_powf(td_complex64 a, td_complex64 b);
td_complex128 td_complex_pow(td_complex128 a, td_complex128 b);
td_complex64 td_complex_expm1f(td_complex64 a);
td_complex128 td_complex_expm1(td_complex128 a);
td_complex64 td_complex_log1pf(td_complex64 a);
td_complex128 td_complex_log1p(td_complex128 a);

#endif /* TD_OPS_LOOPS_SPECIAL_H_ */

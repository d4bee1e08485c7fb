/* Denormal numbers. */
#ifndef TD_BASE_DENORMALS_H_
#define TD_BASE_DENORMALS_H_

#ifdef __SSE__
#include <xmmintrin.h>
#endif
#ifdef __aarch64__
#include <stdint.h>
#endif

/* Makes the calling thread's arithmetic take denormal operands for zero and give zero for denormal results: what
 * TensorFlow sets on its threads, so part of its answers; and one denormal operand costs as much as a hundred others.
 * For every thread that runs kernels. Conversions of half are not affected: its denormals are ordinary floats. */
static inline void td_flush_denormals(void) {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, denormals are zero */
#elif defined(__aarch64__)
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | (uint64_t)1 << 24));
#endif
}

#endif /* TD_BASE_DENORMALS_H_ */

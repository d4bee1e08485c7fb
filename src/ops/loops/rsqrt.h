/* One over the square root, of sixteen floats at a time: what TensorFlow computes so, too, and for the same reason,
 * that divisions and roots take several times as long. */
#ifndef TD_OPS_LOOPS_RSQRT_H_
#define TD_OPS_LOOPS_RSQRT_H_

#include <immintrin.h>

/* The processor's estimate (14 bits) and a step of Newton's method: within 2 ULP. The step has no use at the ends. */
__attribute__((target("avx512f"))) static inline __m512 td_rsqrt_16(__m512 x) {
  const __m512 one = _mm512_set1_ps(1), half = _mm512_set1_ps(0.5f);
  __m512 y = _mm512_rsqrt14_ps(x), rest = _mm512_fnmadd_ps(_mm512_mul_ps(x, y), y, one);
  __mmask16 inside = _mm512_cmp_ps_mask(rest, rest, _CMP_ORD_Q); /* not where it is zero times infinity */
  return _mm512_mask3_fmadd_ps(_mm512_mul_ps(y, half), rest, y, inside);
}

#endif /* TD_OPS_LOOPS_RSQRT_H_ */

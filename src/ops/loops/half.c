/* Conversions between half, bfloat16 and float in blocks. Compiled once per instruction set. */
#include "ops/loops/loops.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

static void half_to_float(const void *xv, void *zv, int64_t n) {
  const td_half *x = xv;
  float *z = zv;
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(z + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
#endif
  for (; i < n; i++) z[i] = td_half_to_float(x[i]);
}

static void float_to_half(const void *xv, void *zv, int64_t n) {
  const float *x = xv;
  td_half *z = zv;
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((void *)(z + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; i < n; i++) z[i] = td_half_from_float(x[i]);
}

static void bfloat16_to_float(const void *xv, void *zv, int64_t n) {
  const uint16_t *x = xv;
  uint32_t *z = zv;
  TD_VECTOR_LOOP
  for (int64_t i = 0; i < n; i++) z[i] = (uint32_t)x[i] << 16;
}

static void float_to_bfloat16(const void *xv, void *zv, int64_t n) {
  const uint32_t *x = xv;
  uint16_t *z = zv;
  TD_VECTOR_LOOP
  for (int64_t i = 0; i < n; i++) {
    uint32_t u = x[i], quiet = u >> 16 | 0x40, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    z[i] = (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
  }
}

const td_half_loops TD_ISA_NAME(td_half_loops) = {half_to_float, float_to_half, bfloat16_to_float, float_to_bfloat16};

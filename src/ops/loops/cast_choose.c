#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/loops/cast.h"

static td_dtype plain_of(td_dtype t) {
  switch ((int)t) {
    case TD_QINT8:
    case TD_INT4:
      return TD_INT8;
    case TD_QUINT8:
    case TD_UINT4:
      return TD_UINT8;
    case TD_QINT16:
      return TD_INT16;
    case TD_QUINT16:
      return TD_UINT16;
    case TD_QINT32:
      return TD_INT32;
    default:
      return t;
  }
}

static td_convert_fn loop(td_dtype from, td_dtype to) {
#ifdef TD_HAVE_ISA_X86
  if (td_isa_best() == 2) return td_cast_loop_avx512(from, to);
  if (td_isa_best() == 1) return td_cast_loop_avx2(from, to);
#endif
  return td_cast_loop_base(from, to);
}

/* ---- 8-bit floats: sign, exponent of `exponent_bits`, fraction ---- */

static float float8_decode(uint8_t b, int exponent_bits, bool has_inf) {
  int fraction_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  int e = b >> fraction_bits & ((1 << exponent_bits) - 1), f = b & ((1 << fraction_bits) - 1);
  float v;
  if (has_inf && e == (1 << exponent_bits) - 1)
    v = f ? NAN : INFINITY;
  else if (!has_inf && (b & 0x7f) == 0x7f)
    v = NAN;
  else if (!e)
    v = ldexpf((float)f, 1 - bias - fraction_bits);
  else
    v = ldexpf((float)((1 << fraction_bits) + f), e - bias - fraction_bits);
  return b & 0x80 ? -v : v;
}

static uint8_t float8_encode(float x, int exponent_bits, bool has_inf) {
  int fraction_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  uint8_t sign = signbit(x) ? 0x80 : 0, inf = has_inf ? (uint8_t)(0x7f & ~((1 << fraction_bits) - 1)) : 0x7f;
  uint8_t nan = has_inf ? inf | 1 << (fraction_bits - 1) : 0x7f;
  if (isnan(x)) return sign | nan;
  float a = fabsf(x);
  if (isinf(a)) return sign | inf;
  if (a == 0) return sign;
  int e;
  frexpf(a, &e);
  e = TD_MAX(e - 1, 1 - bias);
  if (e > bias + 1) return sign | inf;
  float scaled = rintf(ldexpf(a, fraction_bits - e)); /* half to even */
  int bits = ((e + bias - 1) << fraction_bits) + (int)scaled;
  if (e == 1 - bias) bits = (int)scaled; /* denormal, or just rounded up to the least normal number */
  return sign | (bits >= inf ? inf : (uint8_t)bits);
}

#define FLOAT8(name, exponent_bits, has_inf)                                                                          \
  static void name##_decode(const void *x, void *z, int64_t n) {                                                      \
    for (int64_t i = 0; i < n; i++) ((float *)z)[i] = float8_decode(((const uint8_t *)x)[i], exponent_bits, has_inf); \
  }                                                                                                                   \
  static void name##_encode(const void *x, void *z, int64_t n) {                                                      \
    for (int64_t i = 0; i < n; i++) ((uint8_t *)z)[i] = float8_encode(((const float *)x)[i], exponent_bits, has_inf); \
  }
FLOAT8(e5m2, 5, true)
FLOAT8(e4m3fn, 4, false)

static td_convert_fn widener(td_dtype t) {
  switch ((int)t) {
    case TD_HALF:
      return td_half_loops_get()->half_to_float;
    case TD_BFLOAT16:
      return td_half_loops_get()->bfloat16_to_float;
    case TD_FLOAT8_E5M2:
      return e5m2_decode;
    case TD_FLOAT8_E4M3FN:
      return e4m3fn_decode;
    default:
      return NULL;
  }
}

static td_convert_fn narrower(td_dtype t) {
  switch ((int)t) {
    case TD_HALF:
      return td_half_loops_get()->float_to_half;
    case TD_BFLOAT16:
      return td_half_loops_get()->float_to_bfloat16;
    case TD_FLOAT8_E5M2:
      return e5m2_encode;
    case TD_FLOAT8_E4M3FN:
      return e4m3fn_encode;
    default:
      return NULL;
  }
}

static int cleared_bits(td_dtype from, td_dtype to) {
  int have = from == TD_FLOAT ? 23 : from == TD_DOUBLE ? 52 : 0;
  int keep = to == TD_HALF ? 10 : to == TD_BFLOAT16 ? 7 : to == TD_FLOAT ? 23 : 52;
  return have > keep ? have - keep : 0;
}

bool td_cast_init(td_cast *c, td_dtype from, td_dtype to, bool truncate) {
  *c = (td_cast){.in_size = (uint8_t)td_dtype_size(from), .out_size = (uint8_t)td_dtype_size(to)};
  if (truncate) c->cleared_bits = cleared_bits(from, to);
  c->widen = widener(from);
  c->narrow = narrower(to);
  from = c->widen ? TD_FLOAT : plain_of(from);
  to = c->narrow ? TD_FLOAT : plain_of(to);
  if (from == TD_FLOAT && to == TD_FLOAT && (c->widen || c->narrow)) return true;
  return (c->convert = loop(from, to)) != NULL;
}

enum { BLOCK = 512 };

static void clear_low_bits(const td_cast *c, const void *x, void *z, int64_t n) {
  if (c->in_size == 4)
    for (int64_t i = 0; i < n; i++) ((uint32_t *)z)[i] = ((const uint32_t *)x)[i] >> c->cleared_bits << c->cleared_bits;
  else
    for (int64_t i = 0; i < n; i++) ((uint64_t *)z)[i] = ((const uint64_t *)x)[i] >> c->cleared_bits << c->cleared_bits;
}

void td_cast_run(const td_cast *c, const void *x, void *z, int64_t n) {
  if (!c->cleared_bits) {
    if (!c->widen && !c->narrow) {
      c->convert(x, z, n);
      return;
    }
    if (!c->convert && !(c->widen && c->narrow)) {
      (c->widen ? c->widen : c->narrow)(x, z, n);
      return;
    }
  }
  _Alignas(64) uint64_t cleared[BLOCK];
  _Alignas(64) float wide[BLOCK], narrow[BLOCK];
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t k = TD_MIN(n - at, BLOCK);
    const void *from = (const char *)x + at * c->in_size;
    void *to = (char *)z + at * c->out_size;
    if (c->cleared_bits) {
      clear_low_bits(c, from, cleared, k);
      from = cleared;
    }
    if (c->widen) {
      c->widen(from, c->convert || c->narrow ? (void *)wide : to, k);
      from = wide;
    }
    if (c->convert) {
      c->convert(from, c->narrow ? (void *)narrow : to, k);
      from = narrow;
    }
    if (c->narrow) c->narrow(from, to, k);
  }
}

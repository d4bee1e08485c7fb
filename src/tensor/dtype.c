#include "tensor/dtype.h"

#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

typedef struct dtype_info {
  const char *name, *ref_name;
  size_t size; /* in memory */
} dtype_info;

#define INFO(n, s) \
  { n, n "_ref", s }
static const dtype_info infos[TD_DTYPE_LIMIT] = {
    [TD_FLOAT] = INFO("float", 4),
    [TD_DOUBLE] = INFO("double", 8),
    [TD_INT32] = INFO("int32", 4),
    [TD_UINT8] = INFO("uint8", 1),
    [TD_INT16] = INFO("int16", 2),
    [TD_INT8] = INFO("int8", 1),
    [TD_STRING] = INFO("string", 16), /* sizeof(td_string): pinned by tensor.c */
    [TD_COMPLEX64] = INFO("complex64", 8),
    [TD_INT64] = INFO("int64", 8),
    [TD_BOOL] = INFO("bool", 1),
    [TD_QINT8] = INFO("qint8", 1),
    [TD_QUINT8] = INFO("quint8", 1),
    [TD_QINT32] = INFO("qint32", 4),
    [TD_BFLOAT16] = INFO("bfloat16", 2),
    [TD_QINT16] = INFO("qint16", 2),
    [TD_QUINT16] = INFO("quint16", 2),
    [TD_UINT16] = INFO("uint16", 2),
    [TD_COMPLEX128] = INFO("complex128", 16),
    [TD_HALF] = INFO("half", 2),
    [TD_RESOURCE] = INFO("resource", sizeof(void *)),
    [TD_VARIANT] = INFO("variant", sizeof(void *)),
    [TD_UINT32] = INFO("uint32", 4),
    [TD_UINT64] = INFO("uint64", 8),
    [TD_FLOAT8_E5M2] = INFO("float8_e5m2", 1),
    [TD_FLOAT8_E4M3FN] = INFO("float8_e4m3fn", 1),
    [TD_INT4] = INFO("int4", 1),
    [TD_UINT4] = INFO("uint4", 1),
};

/* Other spellings that clients and ops.tsv use. */
static const struct {
  const char *name;
  td_dtype type;
} aliases[] = {{"float32", TD_FLOAT}, {"float64", TD_DOUBLE}, {"float16", TD_HALF}};

bool td_dtype_valid(int t) { return t > 0 && t < TD_DTYPE_LIMIT && infos[t].name; }

size_t td_dtype_size(td_dtype t) { return td_dtype_valid(t) ? infos[t].size : 0; }

const char *td_dtype_name(int t) {
  if (td_dtype_valid(t)) return infos[t].name;
  if (td_dtype_is_ref(t) && td_dtype_valid(t - TD_REF_OFFSET)) return infos[t - TD_REF_OFFSET].ref_name;
  return "invalid";
}

td_dtype td_dtype_parse(td_str name) {
  if (td_str_ends(name, TD_STR("_ref"))) {
    td_dtype base = td_dtype_parse((td_str){name.data, name.size - 4});
    return base == TD_INVALID || td_dtype_is_ref(base) ? TD_INVALID : (td_dtype)(base + TD_REF_OFFSET);
  }
  for (int t = 1; t < TD_DTYPE_LIMIT; t++) {
    if (infos[t].name && td_str_is(name, infos[t].name)) return (td_dtype)t;
  }
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
    if (td_str_is(name, aliases[i].name)) return aliases[i].type;
  }
  return TD_INVALID;
}

#ifdef __F16C__

float td_half_to_float(td_half h) { return _cvtsh_ss(h.bits); }
td_half td_half_from_float(float f) { return (td_half){_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT)}; }

#else

float td_half_to_float(td_half h) {
  uint32_t sign = (uint32_t)(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 0x1f, mantissa = h.bits & 0x3ff;
  uint32_t u;
  float f;
  if (exponent == 0x1f) {
    u = sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0); /* a signalling NaN becomes quiet */
  } else if (exponent) {
    u = sign | (exponent + 112) << 23 | mantissa << 13;
  } else {
    f = (float)mantissa * 0x1p-24f; /* zero and subnormals: exact */
    memcpy(&u, &f, 4);
    u |= sign;
  }
  memcpy(&f, &u, 4);
  return f;
}

td_half td_half_from_float(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
  u &= 0x7fffffff;
  if (u > 0x7f800000) return (td_half){(uint16_t)(sign | 0x7e00 | (u >> 13 & 0x3ff))};
  if (u >= 0x477ff000) return (td_half){(uint16_t)(sign | 0x7c00)}; /* rounds to 2^16 or more: infinity */
  if (u < 0x38800000) { /* below 2^-14: subnormal; adding 0.5 leaves the rounded mantissa in the low bits */
    float magnitude;
    memcpy(&magnitude, &u, 4);
    magnitude += 0.5f;
    uint32_t bits;
    memcpy(&bits, &magnitude, 4);
    return (td_half){(uint16_t)(sign | (bits - 0x3f000000))};
  }
  u += 0xfff + (u >> 13 & 1); /* to nearest, ties to even */
  return (td_half){(uint16_t)(sign | ((u >> 13) - (112u << 10)))};
}

#endif

/* QuantizeAndDequantizeV2, V3, V4: what becomes of numbers that are stored as integers of few bits, for training with
 * quantisation in mind (TensorFlow's quantize_and_dequantize_op). Zero stays zero; the range is that of the input, or
 * given; with an axis, each slice has its own. */
#include <float.h>
#include <math.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"

typedef struct qdq {
  bool is_signed, range_given, is_narrow, rounds_up;
  int64_t bits, axis; /* bits 0: an input (V3); axis -1: one range for all */
} qdq;

static td_status check_bits(int64_t bits, bool is_signed) {
  if (bits > 0 && bits < (is_signed ? 62 : 63)) return TD_STATUS_OK;
  return td_invalid_argument("num_bits is out of range: %lld with signed_input_ %d", (long long)bits, is_signed);
}

static td_status create(td_kernel_builder *b, void *state) {
  qdq *q = state;
  td_str mode;
  TD_TRY(td_attr_bool(b->node, "signed_input", &q->is_signed));
  TD_TRY(td_attr_bool(b->node, "range_given", &q->range_given));
  TD_TRY(td_attr_bool(b->node, "narrow_range", &q->is_narrow));
  TD_TRY(td_attr_int(b->node, "axis", &q->axis));
  if (q->axis < -1) return td_invalid_argument("Axis must be at least -1. Found %lld", (long long)q->axis);
  if (td_str_ends(b->node->op, TD_STR("V3"))) return TD_STATUS_OK;
  TD_TRY(td_attr_int(b->node, "num_bits", &q->bits));
  TD_TRY(td_attr_str(b->node, "round_mode", &mode));
  q->rounds_up = td_str_is(mode, "HALF_UP");
  return check_bits(q->bits, q->is_signed);
}

/* The largest scale under which the range fits the integers, and the range that these then stand for. */
#define QDQ(T, NAME, MAX, RINT, FLOOR)                                                                       \
  typedef struct NAME##_range {                                                                              \
    T min, max, scale, inverse;                                                                              \
  } NAME##_range;                                                                                            \
  static NAME##_range NAME##_fit(const qdq *q, int64_t bits, T min, T max) {                                 \
    int64_t half = INT64_C(1) << (bits - 1);                                                                 \
    T low = (T)(q->is_signed ? (q->is_narrow ? 1 - half : -half) : 0);                                       \
    T high = (T)(q->is_signed ? half - 1 : half * 2 - 1);                                                    \
    T from_min = low * min > 0 ? low / min : MAX, from_max = high * max > 0 ? high / max : MAX;              \
    if (from_min < from_max) {                                                                               \
      T inverse = min / low;                                                                                 \
      return (NAME##_range){min, high * inverse, from_min, inverse};                                         \
    }                                                                                                        \
    T inverse = max / high;                                                                                  \
    return (NAME##_range){low * inverse, max, from_max, inverse};                                            \
  }                                                                                                          \
  static void NAME##_run(const qdq *q, const NAME##_range *r, const T *x, T *z, int64_t n) {                 \
    for (int64_t i = 0; i < n; i++) {                                                                        \
      T v = x[i];                                                                                            \
      if (q->range_given) v = v > r->max ? r->max : v < r->min ? r->min : v;                                 \
      v *= r->scale;                                                                                         \
      z[i] = (q->rounds_up ? FLOOR(v + (T)0.5) : RINT(v)) * r->inverse;                                      \
    }                                                                                                        \
  }                                                                                                          \
  /* Slice `s` of `slices`: runs of `inner` elements, one in each of `outer`. */                             \
  static td_status NAME##_slice(td_kernel_ctx *ctx, int64_t bits, td_tensor *out, int64_t s, int64_t slices, \
                                int64_t outer, int64_t inner) {                                              \
    const qdq *q = ctx->state;                                                                               \
    const T *x = TD_DATA(td_in(ctx, 0), T);                                                                  \
    T min = 0, max = 0;                                                                                      \
    if (q->range_given) {                                                                                    \
      min = TD_DATA(td_in(ctx, 1), T)[s];                                                                    \
      max = TD_DATA(td_in(ctx, 2), T)[s];                                                                    \
    } else if (outer && inner) {                                                                             \
      min = max = x[s * inner];                                                                              \
      for (int64_t o = 0; o < outer; o++) {                                                                  \
        for (int64_t i = 0; i < inner; i++) {                                                                \
          T v = x[(o * slices + s) * inner + i];                                                             \
          if (v < min) min = v;                                                                              \
          if (v > max) max = v;                                                                              \
        }                                                                                                    \
      }                                                                                                      \
    }                                                                                                        \
    if (q->range_given && !(min <= max))                                                                     \
      return td_invalid_argument("Invalid range: input_min %g > input_max %g", (double)min, (double)max);    \
    NAME##_range r = NAME##_fit(q, bits, min, max);                                                          \
    for (int64_t o = 0; o < outer; o++) {                                                                    \
      int64_t at = (o * slices + s) * inner;                                                                 \
      NAME##_run(q, &r, x + at, TD_DATA(out, T) + at, inner);                                                \
    }                                                                                                        \
    return TD_STATUS_OK;                                                                                     \
  }
QDQ(float, f32, FLT_MAX, rintf, floorf)
QDQ(double, f64, DBL_MAX, rint, floor)

static td_status check_ranges(td_kernel_ctx *ctx, int64_t slices) {
  const qdq *q = ctx->state;
  for (int i = 1; i <= 2 && q->range_given; i++) {
    const td_tensor *t = td_in(ctx, i);
    const char *name = i == 1 ? "input_min" : "input_max";
    if (q->axis < 0 && t->rank) return td_invalid_argument("%s must be a scalar, got shape %s", name, TD_SHOW(t));
    if (q->axis >= 0 && (t->rank != 1 || t->count != slices))
      return td_invalid_argument("%s has incorrect size, was %s expected %lld dim %lld", name, TD_SHOW(t),
                                 (long long)slices, (long long)q->axis);
  }
  return TD_STATUS_OK;
}

static td_status compute(td_kernel_ctx *ctx) {
  const qdq *q = ctx->state;
  const td_tensor *x = td_in(ctx, 0);
  int64_t bits = q->bits, slices = 1, outer = 1, inner = x->count;
  td_tensor *out;
  if (!bits) {
    TD_TRY(td_check_scalar(td_in(ctx, 3), "num_bits"));
    bits = *TD_DATA(td_in(ctx, 3), int32_t);
    TD_TRY(check_bits(bits, q->is_signed));
  }
  if (q->axis >= x->rank && q->axis >= 0)
    return td_invalid_argument("Axis should be -1 or 0 or a positive value less than %d but given axis value was %lld",
                               x->rank, (long long)q->axis);
  if (q->axis >= 0) {
    slices = x->dims[q->axis];
    outer = td_dims_product(x->dims, 0, (int)q->axis);
    inner = td_dims_product(x->dims, (int)q->axis + 1, x->rank);
  }
  TD_TRY(check_ranges(ctx, slices));
  TD_TRY(td_out_alloc_like(ctx, 0, x, &out));
  if (!x->count) return TD_STATUS_OK;
  td_status s = TD_STATUS_OK;
  for (int64_t k = 0; k < slices && !s; k++)
    s = x->dtype == TD_FLOAT ? f32_slice(ctx, bits, out, k, slices, outer, inner)
                             : f64_slice(ctx, bits, out, k, slices, outer, inner);
  return s;
}

#define TYPES "T: type in {bfloat16, half, float, double}"
#define ATTRS                                                                       \
  "signed_input: bool = true; num_bits: int = 8; range_given: bool = false; " TYPES \
  "; round_mode: string in {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'; narrow_range: bool = false; axis: int = -1"
#define IN "input: T; input_min: T; input_max: T"

static const td_op_spec ops[] = {
    {"QuantizeAndDequantizeV2", IN, "output: T", ATTRS, 0},
    {"QuantizeAndDequantizeV3", IN "; num_bits: int32", "output: T",
     "signed_input: bool = true; range_given: bool = true; " TYPES "; narrow_range: bool = false; axis: int = -1", 0},
    {"QuantizeAndDequantizeV4", IN, "output: T", ATTRS, 0},
};

#define KERNEL(name)                                                                                                 \
  {                                                                                                                  \
    .op = name, .types = {{"T", TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE)}}, .state_size = sizeof(qdq), .create = create, \
    .compute = compute                                                                                               \
  }

static const td_kernel_def kernels[] = {
    KERNEL("QuantizeAndDequantizeV2"),
    KERNEL("QuantizeAndDequantizeV3"),
    KERNEL("QuantizeAndDequantizeV4"),
};

TD_FAMILY(quantize, ops, kernels);

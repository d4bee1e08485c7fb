/* Running sums and products along a dimension: Cumsum, Cumprod, CumulativeLogsumexp. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/loops/special.h"

static const td_op_spec ops[] = {
    {"Cumsum", "x: T; axis: Tidx", "out: T",
     "exclusive: bool = false; reverse: bool = false; T: type in {float, double, int32, uint8, int16, int8, "
     "complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, "
     "uint64}; Tidx: type in {int32, int64} = int32",
     0},
    {"Cumprod", "x: T; axis: Tidx", "out: T",
     "exclusive: bool = false; reverse: bool = false; T: type in {float, double, int32, uint8, int16, int8, "
     "complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, "
     "uint64}; Tidx: type in {int32, int64} = int32",
     0},
    {"CumulativeLogsumexp", "x: T; axis: Tidx", "out: T",
     "exclusive: bool = false; reverse: bool = false; T: type in {bfloat16, half, float, double}; Tidx: type in "
     "{int32, int64} = int32",
     0},
};

/* One line: n elements `stride` apart, in the given order. `step` is stride or -stride. */
typedef void (*scan_fn)(const void *x, void *z, int64_t n, int64_t step, bool exclusive);

#define SCAN(name, tag, c, acc, start, in, out, combine)                                        \
  static void name##_##tag(const void *xv, void *zv, int64_t n, int64_t step, bool exclusive) { \
    const c *x = xv;                                                                            \
    c *z = zv;                                                                                  \
    acc a = start;                                                                              \
    for (int64_t i = 0, at = 0; i < n; i++, at += step) {                                       \
      acc b = in(x[at]);                                                                        \
      acc next = combine(a, b);                                                                 \
      z[at] = out(exclusive ? a : next);                                                        \
      a = next;                                                                                 \
    }                                                                                           \
  }
#define SAME(v)     (v)
#define PLUS(a, b)  ((a) + (b))
#define TIMES(a, b) ((a) * (b))
#define OUT8(v)     ((uint8_t)(v))
#define OUT16(v)    ((uint16_t)(v))
#define TYPES(X)                                                                       \
  X(FLOAT, float, float, SAME, SAME, TIMES)                                            \
  X(DOUBLE, double, double, SAME, SAME, TIMES)                                         \
  X(HALF, td_half, float, td_half_to_float, td_half_from_float, TIMES)                 \
  X(BFLOAT16, td_bfloat16, float, td_bfloat16_to_float, td_bfloat16_from_float, TIMES) \
  X(UINT8, uint8_t, uint32_t, SAME, OUT8, TIMES)                                       \
  X(UINT16, uint16_t, uint32_t, SAME, OUT16, TIMES)                                    \
  X(UINT32, uint32_t, uint32_t, SAME, SAME, TIMES)                                     \
  X(UINT64, uint64_t, uint64_t, SAME, SAME, TIMES)                                     \
  X(COMPLEX64, td_complex64, td_complex64, SAME, SAME, td_complex_mulf)                \
  X(COMPLEX128, td_complex128, td_complex128, SAME, SAME, td_complex_mul)
#define SUM(tag, c, acc, in, out, times)  SCAN(sum, tag, c, acc, 0, in, out, PLUS)
#define PROD(tag, c, acc, in, out, times) SCAN(prod, tag, c, acc, 1, in, out, times)
TYPES(SUM)
TYPES(PROD)

/* log(e^a + e^b) */
static double log_plus(double a, double b) {
  double high = a > b ? a : b, low = a > b ? b : a;
  if (isinf(high) && high < 0) return high;
  if (isinf(high)) return isnan(low) ? low : high;
  return high + log1p(exp(low - high));
}
#define OUT_HALF(v)     td_half_from_float((float)(v))
#define OUT_BFLOAT16(v) td_bfloat16_from_float((float)(v))
#define OUT_FLOAT(v)    ((float)(v))
SCAN(logsum, FLOAT, float, double, -INFINITY, SAME, OUT_FLOAT, log_plus)
SCAN(logsum, DOUBLE, double, double, -INFINITY, SAME, SAME, log_plus)
SCAN(logsum, HALF, td_half, double, -INFINITY, td_half_to_float, OUT_HALF, log_plus)
SCAN(logsum, BFLOAT16, td_bfloat16, double, -INFINITY, td_bfloat16_to_float, OUT_BFLOAT16, log_plus)

typedef struct scan_state {
  scan_fn scan;
  bool exclusive, reverse;
} scan_state;

static scan_fn find_scan(td_str op, td_dtype t) {
  if (td_str_is(op, "CumulativeLogsumexp")) {
    switch ((int)t) {
      case TD_FLOAT:
        return logsum_FLOAT;
      case TD_DOUBLE:
        return logsum_DOUBLE;
      case TD_HALF:
        return logsum_HALF;
      case TD_BFLOAT16:
        return logsum_BFLOAT16;
      default:
        return NULL;
    }
  }
  bool sum = td_str_is(op, "Cumsum");
  switch ((int)t) { /* signed integers wrap like unsigned ones */
    case TD_INT8:
      t = TD_UINT8;
      break;
    case TD_INT16:
      t = TD_UINT16;
      break;
    case TD_INT32:
      t = TD_UINT32;
      break;
    case TD_INT64:
      t = TD_UINT64;
      break;
    default:
      break;
  }
  switch ((int)t) {
#define CASE(tag, ...) \
  case TD_##tag:       \
    return sum ? sum_##tag : prod_##tag;
    TYPES(CASE)
    default:
      return NULL;
  }
}

static td_status scan_create(td_kernel_builder *b, void *state) {
  scan_state *s = state;
  TD_TRY(td_attr_bool(b->node, "exclusive", &s->exclusive));
  TD_TRY(td_attr_bool(b->node, "reverse", &s->reverse));
  s->scan = find_scan(b->node->op, td_dtype_base(b->input_types[0]));
  return s->scan ? TD_STATUS_OK : td_internal("no scan of %s", td_dtype_name(b->input_types[0]));
}

typedef struct work {
  const scan_state *s;
  const char *x;
  char *z;
  int64_t n, inner, size;
} work;

static void run(void *arg, int64_t begin, int64_t end) {
  const work *w = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t at = i / w->inner * w->inner * w->n + i % w->inner;
    if (w->s->reverse) at += (w->n - 1) * w->inner;
    w->s->scan(w->x + at * w->size, w->z + at * w->size, w->n, w->s->reverse ? -w->inner : w->inner, w->s->exclusive);
  }
}

static td_status scan_compute(td_kernel_ctx *ctx) {
  td_tensor *x = td_in(ctx, 0), *axis_in = td_in(ctx, 1), *z;
  if (axis_in->rank) {
    char *text = td_tensor_shape_text(axis_in);
    td_status s = td_invalid_argument("ScanOp: axis must be a scalar, not %s", text);
    td_free(text);
    return s;
  }
  int64_t axis = td_tensor_int_at(axis_in, 0), given = axis;
  if (axis < 0) axis += x->rank;
  if (axis < 0 || axis >= x->rank)
    return td_invalid_argument("ScanOp: Expected scan axis in the range [%d, %d), but got %lld", -x->rank, x->rank,
                               (long long)given);
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &z));
  if (!z->count) return TD_STATUS_OK;
  work w = {.s = ctx->state,
            .x = x->data,
            .z = z->data,
            .n = x->dims[axis],
            .inner = 1,
            .size = (int64_t)td_dtype_size((td_dtype)x->dtype)};
  for (int d = (int)axis + 1; d < x->rank; d++) w.inner *= x->dims[d];
  td_ctx_parallel_for(ctx, z->count / w.n, 3 + 1.5 * (double)w.n, run, &w);
  return TD_STATUS_OK;
}

#define SCAN_OP(op_name, set)                                                                      \
  {                                                                                                \
    .op = op_name, .types = {{"T", set}}, .state_size = sizeof(scan_state), .create = scan_create, \
    .compute = scan_compute                                                                        \
  }
static const td_kernel_def kernels[] = {
    SCAN_OP("Cumsum", TD_SET_NUMBER),
    SCAN_OP("Cumprod", TD_SET_NUMBER),
    SCAN_OP("CumulativeLogsumexp", TD_SET_FLOATING),
};

TD_FAMILY(scan, ops, kernels);

/* Sequences of numbers: Range, LinSpace. */
#include <math.h>

#include "base/mem.h"
#include "ops/families.h"
#include "tensor/number.h"

static const td_op_spec ops[] = {
    {"Range", "start: Tidx; limit: Tidx; delta: Tidx", "output: Tidx",
     "Tidx: type in {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32, uint64} = int32", 0},
    {"LinSpace", "start: T; stop: T; num: Tidx", "output: T",
     "T: type in {bfloat16, half, float, double}; Tidx: type in {int32, int64} = int32", 0},
};

/* ---- Range ---- */

static td_status range_error(bool rising) {
  return rising ? td_invalid_argument("Requires start <= limit when delta > 0")
                : td_invalid_argument("Requires start >= limit when delta < 0");
}

#define FILL(bits)                                                                                  \
  static void fill_##bits(uint##bits##_t *out, int64_t n, uint##bits##_t v, uint##bits##_t delta) { \
    for (int64_t i = 0; i < n; i++, v = (uint##bits##_t)(v + delta)) out[i] = v;                    \
  }
FILL(8)
FILL(16)
FILL(32)
FILL(64)

static td_status range_ints(td_kernel_ctx *ctx, int64_t start, int64_t limit, int64_t delta) {
  td_tensor *z;
  if (!delta) return td_invalid_argument("Requires delta != 0: 0");
  if (delta > 0 ? start > limit : start < limit)
    return td_status_append(range_error(delta > 0), ": %lld/%lld", (long long)start, (long long)limit);
  /* in unsigned numbers, where the distance of any two int64 fits */
  uint64_t distance = delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
  uint64_t step = delta > 0 ? (uint64_t)delta : (uint64_t)0 - (uint64_t)delta;
  uint64_t n = distance / step + (distance % step != 0);
  if (n > INT64_MAX / 8)
    return td_invalid_argument("Requires ((limit - start) / delta) <= %lld", (long long)(INT64_MAX / 8));
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &(int64_t){(int64_t)n}, &z));
  switch (td_dtype_size((td_dtype)z->dtype)) { /* modulo the type's size, signed or not */
    case 1:
      fill_8(TD_DATA(z, uint8_t), z->count, (uint8_t)start, (uint8_t)delta);
      break;
    case 2:
      fill_16(TD_DATA(z, uint16_t), z->count, (uint16_t)start, (uint16_t)delta);
      break;
    case 4:
      fill_32(TD_DATA(z, uint32_t), z->count, (uint32_t)start, (uint32_t)delta);
      break;
    default:
      fill_64(TD_DATA(z, uint64_t), z->count, (uint64_t)start, (uint64_t)delta);
  }
  return TD_STATUS_OK;
}

/* Values are made by adding the step again and again, in the tensor's type, as TensorFlow makes them. */
static td_status range_floats(td_kernel_ctx *ctx, double start, double limit, double delta) {
  td_tensor *z;
  if (delta == 0) return td_invalid_argument("Requires delta != 0: 0");
  if (delta > 0 ? start > limit : start < limit)
    return td_status_append(range_error(delta > 0), ": %g/%g", start, limit);
  double n = td_out_type(ctx, 0) == TD_DOUBLE ? ceil(fabs((limit - start) / delta))
                                              : ceil(fabs((double)(((float)limit - (float)start) / (float)delta)));
  if (!(n < 9.2e17))
    return td_invalid_argument("Requires ((limit - start) / delta) <= %lld, not %g", (long long)(INT64_MAX / 8), n);
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &(int64_t){(int64_t)n}, &z));
  float f = (float)start, step = (float)delta;
  switch ((int)z->dtype) {
    case TD_FLOAT:
      for (int64_t i = 0; i < z->count; i++, f += step) TD_DATA(z, float)[i] = f;
      break;
    case TD_HALF:
      for (int64_t i = 0; i < z->count; i++, f += step) TD_DATA(z, td_half)[i] = td_half_from_float(f);
      break;
    case TD_BFLOAT16:
      for (int64_t i = 0; i < z->count; i++, f += step) TD_DATA(z, td_bfloat16)[i] = td_bfloat16_from_float(f);
      break;
    default:
      for (int64_t i = 0; i < z->count; i++, start += delta) TD_DATA(z, double)[i] = start;
      break;
  }
  return TD_STATUS_OK;
}

static td_status range_compute(td_kernel_ctx *ctx) {
  static const char *const names[] = {"start", "limit", "delta"};
  for (int i = 0; i < 3; i++) {
    const td_tensor *t = td_in(ctx, i);
    if (t->count == 1 && t->rank <= 1) continue; /* TensorFlow takes [x] for x here */
    char *text = td_tensor_shape_text(t);
    td_status s = td_invalid_argument("%s must be a scalar, not shape %s", names[i], text);
    td_free(text);
    return s;
  }
  const td_tensor *a = td_in(ctx, 0), *b = td_in(ctx, 1), *d = td_in(ctx, 2);
  if (td_dtype_in((td_dtype)a->dtype, TD_SET_FLOATING))
    return range_floats(ctx, td_tensor_real_at(a, 0), td_tensor_real_at(b, 0), td_tensor_real_at(d, 0));
  return range_ints(ctx, td_tensor_integer_at(a, 0), td_tensor_integer_at(b, 0), td_tensor_integer_at(d, 0));
}

/* ---- LinSpace ---- */

static td_status lin_space_compute(td_kernel_ctx *ctx) {
  static const char *const names[] = {"start", "stop", "num"};
  for (int i = 0; i < 3; i++) {
    if (!td_in(ctx, i)->rank) continue;
    char *text = td_tensor_shape_text(td_in(ctx, i));
    td_status s = td_invalid_argument("%s must be a scalar, not shape %s", names[i], text);
    td_free(text);
    return s;
  }
  td_tensor *z;
  int64_t n = td_tensor_int_at(td_in(ctx, 2), 0);
  if (n <= 0) return td_invalid_argument("Requires num > 0: %lld", (long long)n);
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &n, &z));
  double start = td_tensor_real_at(td_in(ctx, 0), 0), stop = td_tensor_real_at(td_in(ctx, 1), 0);
  if (z->dtype == TD_DOUBLE) {
    double *v = z->data, step = n > 1 ? (stop - start) / (double)(n - 1) : 0;
    for (int64_t i = 0; i < n; i++) v[i] = start + step * (double)i;
    if (n > 1) v[n - 1] = stop;
    return TD_STATUS_OK;
  }
  float from = (float)start, step = n > 1 ? ((float)stop - from) / (float)(n - 1) : 0;
  for (int64_t i = 0; i < n; i++) {
    float v = i && i == n - 1 ? (float)stop : from + step * (float)i;
    switch ((int)z->dtype) {
      case TD_FLOAT:
        TD_DATA(z, float)[i] = v;
        break;
      case TD_HALF:
        TD_DATA(z, td_half)[i] = td_half_from_float(v);
        break;
      default:
        TD_DATA(z, td_bfloat16)[i] = td_bfloat16_from_float(v);
        break;
    }
  }
  return TD_STATUS_OK;
}

static const td_kernel_def kernels[] = {
    {.op = "Range",
     .types = {{"Tidx", TD_SET_FLOATING | TD_SET_SIGNED | TD_SET(TD_UINT16) | TD_SET(TD_UINT32)}},
     .compute = range_compute},
    {.op = "LinSpace", .types = {{"T", TD_SET_FLOATING}}, .compute = lin_space_compute},
};

TD_FAMILY(sequence, ops, kernels);

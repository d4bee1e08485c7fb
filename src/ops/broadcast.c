/* Broadcasting as ops: BroadcastTo, BroadcastArgs, BroadcastGradientArgs. */
#include "base/mem.h"
#include "ops/bcast.h"
#include "ops/families.h"
#include "ops/move.h"

static const td_op_spec ops[] = {
    {"BroadcastTo", "input: T; shape: Tidx", "output: T", "T: type; Tidx: type in {int32, int64} = int32", 0},
    {"BroadcastArgs", "s0: T; s1: T", "r0: T", "T: type in {int32, int64} = int32", 0},
    {"BroadcastGradientArgs", "s0: T; s1: T", "r0: T; r1: T", "T: type in {int32, int64} = int32", 0},
};

static td_status broadcast_to_compute(td_kernel_ctx *ctx) {
  td_tensor *x = td_in(ctx, 0), *z;
  td_shape shape;
  TD_TRY(td_shape_from_tensor(td_in(ctx, 1), false, &shape));
  if (td_dims_eq(x->rank, x->dims, shape.rank, shape.dims)) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  int extra = shape.rank - x->rank;
  bool fits = extra >= 0;
  for (int i = 0; i < x->rank && fits; i++) fits = x->dims[i] == shape.dims[extra + i] || x->dims[i] == 1;
  if (!fits) {
    char *a = td_tensor_shape_text(x), *b = td_shape_text(&shape);
    td_status s = extra < 0
                      ? td_invalid_argument("Rank of input (%d) must be no greater than rank of output shape (%d).",
                                            x->rank, shape.rank)
                      : td_invalid_argument("Incompatible shapes: %s vs. %s", a, b);
    td_free(a);
    td_free(b);
    return s;
  }
  TD_TRY(td_out_alloc(ctx, 0, &shape, &z));
  if (!z->count) return TD_STATUS_OK;
  int64_t from[TD_MAX_RANK], to[TD_MAX_RANK];
  td_strides(x->rank, x->dims, from);
  td_strides(shape.rank, shape.dims, to);
  td_move m;
  m.rank = 0;
  for (int i = 0; i < shape.rank; i++)
    td_move_add(&m, shape.dims[i], i < extra || x->dims[i - extra] == 1 ? 0 : from[i - extra], to[i]);
  td_move_run(ctx, &m, x, 0, z, 0);
  return TD_STATUS_OK;
}

/* ---- shapes as values ---- */

static td_status read_shape(const td_tensor *t, int index, td_shape *out) {
  if (t->rank != 1) {
    char *text = td_tensor_shape_text(t);
    td_status s = td_invalid_argument("In[%d] must be a vector, got shape %s", index, text);
    td_free(text);
    return s;
  }
  if (t->count > TD_MAX_RANK)
    return td_invalid_argument("In[%d] has %lld dimensions, more than %d", index, (long long)t->count, TD_MAX_RANK);
  out->rank = (int)t->count;
  for (int i = 0; i < out->rank; i++) out->dims[i] = td_tensor_int_at(t, i);
  return TD_STATUS_OK;
}

static td_status write_ints(td_kernel_ctx *ctx, int output, const int64_t *values, int64_t n) {
  td_tensor *z;
  TD_TRY(td_out_alloc_dims(ctx, output, 1, &n, &z));
  for (int64_t i = 0; i < n; i++) {
    if (z->dtype == TD_INT32)
      TD_DATA(z, int32_t)[i] = (int32_t)values[i];
    else
      TD_DATA(z, int64_t)[i] = values[i];
  }
  return TD_STATUS_OK;
}

static int64_t dim_from_end(const td_shape *s, int i) { return i < s->rank ? s->dims[s->rank - 1 - i] : 1; }

static td_status incompatible(const td_shape *a, const td_shape *b) {
  char *x = td_shape_text(a), *y = td_shape_text(b);
  td_status s = td_invalid_argument("Incompatible shapes: %s vs. %s", x, y);
  td_free(x);
  td_free(y);
  return s;
}

static td_status broadcast_args_compute(td_kernel_ctx *ctx) {
  td_shape a, b;
  TD_TRY(read_shape(td_in(ctx, 0), 0, &a));
  TD_TRY(read_shape(td_in(ctx, 1), 1, &b));
  int rank = TD_MAX(a.rank, b.rank);
  int64_t out[TD_MAX_RANK];
  for (int i = 0; i < rank; i++) {
    int64_t x = dim_from_end(&a, i), y = dim_from_end(&b, i);
    if (x != y && x != 1 && y != 1) return incompatible(&a, &b);
    out[rank - 1 - i] = x == 1 ? y : x;
  }
  return write_ints(ctx, 0, out, rank);
}

/* The dimensions over which a gradient of the broadcast result must be summed for each operand. Where both have one
 * element, TensorFlow counts the dimension for both once either of them has broadcast; equal shapes sum nothing. */
static td_status broadcast_gradient_args_compute(td_kernel_ctx *ctx) {
  td_shape a, b;
  TD_TRY(read_shape(td_in(ctx, 0), 0, &a));
  TD_TRY(read_shape(td_in(ctx, 1), 1, &b));
  int rank = TD_MAX(a.rank, b.rank);
  int64_t from_a[TD_MAX_RANK], from_b[TD_MAX_RANK], na = 0, nb = 0;
  bool equal = td_shape_eq(&a, &b);
  for (int d = 0; d < rank && !equal; d++) {
    int i = rank - 1 - d;
    int64_t x = dim_from_end(&a, i), y = dim_from_end(&b, i);
    if (x != y && x != 1 && y != 1) return incompatible(&a, &b);
    if (x == y && x != 1) continue;
    if (x == 1) from_a[na++] = d;
    if (y == 1) from_b[nb++] = d;
  }
  TD_TRY(write_ints(ctx, 0, from_a, na));
  return write_ints(ctx, 1, from_b, nb);
}

static const td_kernel_def kernels[] = {
    {.op = "BroadcastTo", .compute = broadcast_to_compute},
    {.op = "BroadcastArgs", .cost = TD_COST_CHEAP, .compute = broadcast_args_compute},
    {.op = "BroadcastGradientArgs", .cost = TD_COST_CHEAP, .compute = broadcast_gradient_args_compute},
};

TD_FAMILY(broadcast, ops, kernels);

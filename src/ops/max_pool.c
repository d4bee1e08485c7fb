/* Max pooling, its gradients, and the forms that report where the maximum was. */
#include <float.h>
#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/gemm.h"
#include "ops/nn/loops.h"
#include "ops/window.h"

#define POOL_TYPES \
  "T: type in {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float; "
#define REAL_TYPES \
  "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"
#define SIZES      "ksize: list(int) >= 4; strides: list(int) >= 4; "
#define EXPLICIT   "padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; "
#define IMPLICIT   "padding: string in {'SAME', 'VALID'}; "
#define FORMAT     "data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; "
#define FORMAT_3   "data_format: string in {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
#define GRAD_INPUT "orig_input: T; orig_output: T; grad: T"
#define ARGMAX     "include_batch_in_index: bool = false; "

static const td_op_spec ops[] = {
    {"MaxPool", "input: T", "output: T", POOL_TYPES SIZES EXPLICIT FORMAT_3, 0},
    {"MaxPoolV2", "input: T; ksize: int32; strides: int32", "output: T", POOL_TYPES IMPLICIT FORMAT_3, 0},
    {"MaxPoolGrad", GRAD_INPUT, "output: T", SIZES EXPLICIT FORMAT REAL_TYPES " = float", 0},
    {"MaxPoolGradV2", GRAD_INPUT "; ksize: int32; strides: int32", "output: T", IMPLICIT FORMAT REAL_TYPES " = float",
     0},
    {"MaxPoolGradGrad", GRAD_INPUT, "output: T", SIZES IMPLICIT FORMAT REAL_TYPES, 0},
    {"MaxPoolGradGradV2", GRAD_INPUT "; ksize: int32; strides: int32", "output: T", IMPLICIT FORMAT REAL_TYPES, 0},
    {"MaxPoolWithArgmax", "input: T", "output: T; argmax: Targmax",
     SIZES "Targmax: type in {int32, int64} = int64; " IMPLICIT ARGMAX REAL_TYPES, 0},
    {"MaxPoolGradWithArgmax", "input: T; grad: T; argmax: Targmax", "output: T",
     SIZES IMPLICIT ARGMAX "Targmax: type in {int32, int64}; " REAL_TYPES, 0},
};

typedef struct state {
  td_window_attrs attrs;
  bool batch_in_index;
} state;

typedef td_pool_job job;
enum { BLOCK = 256 };

typedef td_pool_range range;
#define clip td_pool_clip

static inline void set_argmax(const job *j, int64_t i, int64_t value) {
  if (j->argmax_wide)
    ((int64_t *)j->argmax)[i] = value;
  else
    ((int32_t *)j->argmax)[i] = (int32_t)value;
}
static inline int64_t get_argmax(const job *j, int64_t i) {
  return j->argmax_wide ? ((const int64_t *)j->argmax)[i] : ((const int32_t *)j->argmax)[i];
}

#define TD_PASTE_(a, b) a##b
#define TD_PASTE(a, b)  TD_PASTE_(a, b)

#define TD_T      float
#define TD_SUM    float
#define TD_NAME   f32
#define TD_LOWEST (-FLT_MAX)
#include "ops/pool.inc"
#define TD_T      double
#define TD_SUM    double
#define TD_NAME   f64
#define TD_LOWEST (-DBL_MAX)
#include "ops/pool.inc"
#define TD_T      int8_t
#define TD_SUM    uint32_t
#define TD_NAME   i8
#define TD_LOWEST INT8_MIN
#include "ops/pool.inc"
#define TD_T      uint8_t
#define TD_SUM    uint32_t
#define TD_NAME   u8
#define TD_LOWEST 0
#include "ops/pool.inc"
#define TD_T      int16_t
#define TD_SUM    uint32_t
#define TD_NAME   i16
#define TD_LOWEST INT16_MIN
#include "ops/pool.inc"
#define TD_T      uint16_t
#define TD_SUM    uint32_t
#define TD_NAME   u16
#define TD_LOWEST 0
#include "ops/pool.inc"
#define TD_T      int32_t
#define TD_SUM    uint32_t
#define TD_NAME   i32
#define TD_LOWEST INT32_MIN
#include "ops/pool.inc"
#define TD_T      uint32_t
#define TD_SUM    uint32_t
#define TD_NAME   u32
#define TD_LOWEST 0
#include "ops/pool.inc"
#define TD_T      int64_t
#define TD_SUM    uint64_t
#define TD_NAME   i64
#define TD_LOWEST INT64_MIN
#include "ops/pool.inc"
#define TD_T      uint64_t
#define TD_SUM    uint64_t
#define TD_NAME   u64
#define TD_LOWEST 0
#include "ops/pool.inc"

typedef void (*loop)(void *, int64_t, int64_t);
typedef struct loops {
  loop max, images, depth, spread;
} loops;

static const loops *loops_of(td_dtype t) {
#define ENTRY(type, name) [type] = { max_##name, images_##name, depth_##name, spread_##name }
  static const loops all[TD_DTYPE_LIMIT] = {ENTRY(TD_FLOAT, f32),  ENTRY(TD_HALF, f32),   ENTRY(TD_BFLOAT16, f32),
                                            ENTRY(TD_DOUBLE, f64), ENTRY(TD_INT8, i8),    ENTRY(TD_UINT8, u8),
                                            ENTRY(TD_INT16, i16),  ENTRY(TD_UINT16, u16), ENTRY(TD_INT32, i32),
                                            ENTRY(TD_UINT32, u32), ENTRY(TD_INT64, i64),  ENTRY(TD_UINT64, u64)};
#undef ENTRY
  return &all[t];
}

/* ---- creation ---- */

static td_status create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  TD_TRY(td_window_parse_pool(b->node, &s->attrs));
  if (td_attr_find(b->node, "include_batch_in_index"))
    TD_TRY(td_attr_bool(b->node, "include_batch_in_index", &s->batch_in_index));
  if (s->attrs.format != TD_NHWC)
    return td_invalid_argument("Default MaxPoolingOp only supports NHWC on device type CPU");
  return TD_STATUS_OK;
}

static td_status grad_create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  TD_TRY(td_window_parse_pool(b->node, &s->attrs));
  if (s->attrs.format != TD_NHWC)
    return td_invalid_argument("Default MaxPoolingGradOp only supports NHWC on device type CPU");
  if (s->attrs.ksize_depth != 1 || s->attrs.stride_depth != 1)
    return td_unimplemented("MaxPoolingGrad is not yet supported on the depth dimension.");
  return TD_STATUS_OK;
}

/* ---- shapes ---- */

static td_status four(const td_tensor *t, const char *what, int64_t out[4]) {
  if (t->rank != 1 || t->count != 4)
    return td_invalid_argument("Sliding window %s field must specify 4 dimensions", what);
  for (int i = 0; i < 4; i++) out[i] = td_tensor_int_at(t, i);
  return TD_STATUS_OK;
}

/* Window sizes from the attributes, or from inputs `at` and `at + 1` of the V2 ops. */
static td_status sizes(td_kernel_ctx *ctx, int at, td_window_attrs *a) {
  *a = ((const state *)ctx->state)->attrs;
  if (ctx->kernel->input_count <= at) return TD_STATUS_OK;
  int64_t values[4];
  TD_TRY(four(td_in(ctx, at), "ksize", values));
  TD_TRY(td_window_set_ksize(a, values));
  TD_TRY(four(td_in(ctx, at + 1), "stride", values));
  TD_TRY(td_window_set_strides(a, values));
  if (a->ksize_batch != 1 || a->stride_batch != 1)
    return td_unimplemented("Pooling is not yet supported on the batch dimension.");
  return TD_STATUS_OK;
}

static td_status prepare(const td_window_attrs *a, const td_tensor *in, job *j) {
  if (in->rank != 4) return td_invalid_argument("tensor_in must be 4-dimensional");
  j->batch = in->dims[0];
  j->depth = in->dims[3];
  j->depth_window = a->ksize_depth;
  for (int i = 0; i < 2; i++) {
    j->dim[i] = (td_window_dim){.in = in->dims[1 + i],
                                .filter = a->ksize[i],
                                .stride = a->stride[i],
                                .dilation = 1,
                                .before = a->explicit_pad[i][0],
                                .after = a->explicit_pad[i][1]};
  }
  j->image = in->count ? in->dims[1] * in->dims[2] * j->depth : 0;
  if (in->count && in->dims[1] * in->dims[2] > INT32_MAX)
    return td_invalid_argument("pooling of images of %lld x %lld pixels is not supported", (long long)in->dims[1],
                               (long long)in->dims[2]);
  if (a->ksize_depth == 1) {
    for (int i = 0; i < 2; i++) TD_TRY(td_window_compute(a->padding, &j->dim[i]));
    return TD_STATUS_OK;
  }
  if (a->ksize[0] != 1 || a->ksize[1] != 1)
    return td_unimplemented("MaxPooling supports exactly one of pooling across depth or pooling across width/height.");
  if (j->depth % a->ksize_depth)
    return td_unimplemented("Depthwise max pooling requires the depth window to evenly divide the input depth");
  if (a->stride_depth != a->ksize_depth)
    return td_unimplemented("Depthwise max pooling requires the depth window to equal the depth stride");
  for (int i = 0; i < 2; i++) j->dim[i].out = j->dim[i].in;
  return TD_STATUS_OK;
}

static td_status shape_check(const job *j, const td_tensor *t, const char *what) {
  const int64_t want[4] = {j->batch, j->dim[0].out, j->dim[1].out, j->depth};
  if (td_dims_eq(4, want, t->rank, t->dims)) return TD_STATUS_OK;
  char *expected = td_dims_text(4, want), *got = td_tensor_shape_text(t);
  td_status s = td_invalid_argument("Expected %s shape to be %s, but got %s", what, expected, got);
  td_free(expected);
  td_free(got);
  return s;
}

static double window_ns(const job *j) {
  double area = (double)TD_MIN(j->dim[0].filter, j->dim[0].in) * (double)TD_MIN(j->dim[1].filter, j->dim[1].in);
  return area * (double)j->depth / 4 + 2;
}

/* ---- forward ---- */

static td_status max_pool(td_kernel_ctx *ctx) {
  td_window_attrs a;
  td_tensor *in = NULL, *work = NULL;
  job j = {0};
  TD_TRY(sizes(ctx, 1, &a));
  TD_TRY(prepare(&a, td_in(ctx, 0), &j));
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, (const int64_t[]){j.batch, j.dim[0].out, j.dim[1].out, j.depth / j.depth_window},
                            &work));
  if (work->count) {
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 0), &in));
    j.input = in->data;
    j.out = work->data;
    const loops *l = loops_of(td_in_type(ctx, 0));
    if (j.depth_window > 1)
      td_ctx_parallel_for(ctx, work->count, (double)j.depth_window, l->depth, &j);
    else
      td_ctx_parallel_for(ctx, j.batch * j.dim[0].out, window_ns(&j) * (double)j.dim[1].out,
                          work->dtype == TD_FLOAT ? td_nn_loops_get()->max_pool : l->max, &j);
  }
  td_floats_finish(ctx, 0, work);
  work = NULL;
  status = TD_STATUS_OK;
cleanup:
  td_tensor_release(in);
  td_tensor_release(work);
  return status;
}

static td_status with_argmax(td_kernel_ctx *ctx) {
  const state *s = ctx->state;
  td_tensor *in = NULL, *work = NULL, *argmax;
  job j = {.what = TD_POOL_ARGMAX, .batch_in_index = s->batch_in_index};
  TD_TRY(prepare(&s->attrs, td_in(ctx, 0), &j));
  if (j.depth_window != 1) return td_unimplemented("Pooling across depth with argmax is not supported");
  const int64_t dims[4] = {j.batch, j.dim[0].out, j.dim[1].out, j.depth};
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, dims, &work));
  TD_TRY_GOTO(td_out_alloc_dims(ctx, 1, 4, dims, &argmax));
  if (work->count) {
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 0), &in));
    j.input = in->data;
    j.out = work->data;
    j.argmax = argmax->data;
    j.argmax_wide = argmax->dtype == TD_INT64;
    if (!j.argmax_wide && in->count > INT32_MAX) {
      status = td_invalid_argument("argmax of %lld elements does not fit int32", (long long)in->count);
      goto cleanup;
    }
    td_ctx_parallel_for(ctx, j.batch, window_ns(&j) * (double)(j.dim[0].out * j.dim[1].out) * 2,
                        loops_of(td_in_type(ctx, 0))->images, &j);
  }
  td_floats_finish(ctx, 0, work);
  work = NULL;
  status = TD_STATUS_OK;
cleanup:
  td_tensor_release(in);
  td_tensor_release(work);
  return status;
}

/* ---- gradients ---- */

static loop grad_loop(const job *j, const td_tensor *in) {
  bool grouped = in->dtype == TD_FLOAT && j->what == TD_POOL_GRAD;
  return grouped && j->dim[0].filter <= 4 && j->dim[1].filter <= 4 ? td_nn_loops_get()->pool_grad
                                                                   : loops_of((td_dtype)in->dtype)->images;
}

/* The gradient to the input, or (`back`) of that gradient. */
static td_status grad_of(td_kernel_ctx *ctx, bool back) {
  td_window_attrs a;
  td_tensor *in = NULL, *grad = NULL, *work = NULL, *in0 = td_in(ctx, 0), *grad0 = td_in(ctx, 2);
  job j = {.what = back ? TD_POOL_GRAD_GRAD : TD_POOL_GRAD};
  TD_TRY(sizes(ctx, 3, &a));
  if (a.ksize_depth != 1 || a.stride_depth != 1)
    return td_unimplemented("MaxPoolingGrad is not yet supported on the depth dimension.");
  TD_TRY(prepare(&a, in0, &j));
  TD_TRY(shape_check(&j, td_in(ctx, 1), "orig_output"));
  if (!back)
    TD_TRY(shape_check(&j, grad0, "grad"));
  else if (!td_tensor_same_shape(grad0, in0))
    return td_invalid_argument("Expected grad shape to be that of orig_input");
  const td_tensor *like = back ? td_in(ctx, 1) : in0;
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, like->dims, &work));
  TD_TRY_GOTO(td_floats_of(in0, &in));
  TD_TRY_GOTO(td_floats_of(grad0, &grad));
  j.input = in->data;
  j.grad = grad->data;
  j.out = work->data;
  if (in->count && !(back && !work->count))
    td_ctx_parallel_for(ctx, j.batch, window_ns(&j) * (double)(j.dim[0].out * j.dim[1].out) * 2, grad_loop(&j, in), &j);
  else if (work->count)
    memset(work->data, 0, work->size);
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  td_tensor_release(in);
  td_tensor_release(grad);
  td_tensor_release(work);
  return status;
}

static td_status max_pool_grad(td_kernel_ctx *ctx) { return grad_of(ctx, false); }
static td_status max_pool_grad_grad(td_kernel_ctx *ctx) { return grad_of(ctx, true); }

static td_status check_argmax(const job *j, int64_t count, int64_t in_count) {
  int64_t windows = count / TD_MAX(j->batch, 1);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = get_argmax(j, i), begin = j->batch_in_index ? i / windows * j->image : 0;
    if (at < begin || at >= begin + j->image)
      return td_invalid_argument("Invalid input backprop index: %lld, %lld, %lld", (long long)at, (long long)begin,
                                 (long long)(begin + j->image));
  }
  return TD_STATUS_OK;
}

static td_status grad_with_argmax(td_kernel_ctx *ctx) {
  const state *s = ctx->state;
  td_tensor *grad = NULL, *work = NULL, *in = td_in(ctx, 0), *argmax = td_in(ctx, 2);
  job j = {.batch_in_index = s->batch_in_index, .argmax = argmax->data, .argmax_wide = argmax->dtype == TD_INT64};
  TD_TRY(prepare(&s->attrs, in, &j));
  if (j.depth_window != 1) return td_unimplemented("Pooling across depth with argmax is not supported");
  TD_TRY(shape_check(&j, td_in(ctx, 1), "grad"));
  TD_TRY(shape_check(&j, argmax, "argmax"));
  TD_TRY(check_argmax(&j, argmax->count, in->count));
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, in->dims, &work));
  TD_TRY_GOTO(td_floats_of(td_in(ctx, 1), &grad));
  j.grad = grad->data;
  j.out = work->data;
  if (work->count)
    td_ctx_parallel_for(ctx, j.batch, (double)j.image / 4 + (double)argmax->count / (double)j.batch,
                        loops_of(td_in_type(ctx, 0))->spread, &j);
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  td_tensor_release(grad);
  td_tensor_release(work);
  return status;
}

#define POOLED                                                                                                     \
  (TD_SET_FLOATING | TD_SET(TD_INT32) | TD_SET(TD_INT64) | TD_SET(TD_UINT8) | TD_SET(TD_INT16) | TD_SET(TD_INT8) | \
   TD_SET(TD_UINT16))
#define KERNEL(op_name, make, run, set) \
  { .op = op_name, .types = {{"T", set}}, .state_size = sizeof(state), .create = make, .compute = run }

static const td_kernel_def kernels[] = {
    KERNEL("MaxPool", create, max_pool, POOLED),
    KERNEL("MaxPoolV2", create, max_pool, POOLED),
    KERNEL("MaxPoolGrad", grad_create, max_pool_grad, TD_SET_REAL),
    KERNEL("MaxPoolGradV2", grad_create, max_pool_grad, TD_SET_REAL),
    KERNEL("MaxPoolGradGrad", grad_create, max_pool_grad_grad, TD_SET_REAL),
    KERNEL("MaxPoolGradGradV2", grad_create, max_pool_grad_grad, TD_SET_REAL),
    KERNEL("MaxPoolWithArgmax", create, with_argmax, TD_SET_REAL),
    KERNEL("MaxPoolGradWithArgmax", create, grad_with_argmax, TD_SET_REAL),
};

TD_FAMILY(max_pool, ops, kernels);

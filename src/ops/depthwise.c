/* Depthwise convolution and its gradients. As on TensorFlow's CPU, dilations are not applied here: its Python layer
 * rewrites dilated ones around the op. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ops/epilogue.h"
#include "ops/families.h"
#include "ops/gemm.h"
#include "ops/window.h"

#define ATTRS                                                                                                          \
  "T: type in {half, bfloat16, float, double}; strides: list(int); padding: string in {'SAME', 'VALID', 'EXPLICIT'}; " \
  "explicit_paddings: list(int) = []; data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, "   \
  "1, 1, 1]"

static const td_op_spec ops[] = {
    {"DepthwiseConv2dNative", "input: T; filter: T", "output: T", ATTRS, 0},
    {"_FusedDepthwiseConv2dNative", "input: T; filter: T; args: num_args * T", "output: T",
     "T: type in {half, bfloat16, float, double}; num_args: int >= 0; strides: list(int); padding: string in {'SAME', "
     "'VALID'}; data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]; fused_ops: "
     "list(string) = []; epsilon: float = 9.999999747378752e-05; leakyrelu_alpha: float = 0.20000000298023224",
     0},
    {"DepthwiseConv2dNativeBackpropInput", "input_sizes: int32; filter: T; out_backprop: T", "output: T", ATTRS, 0},
    {"DepthwiseConv2dNativeBackpropFilter", "input: T; filter_sizes: int32; out_backprop: T", "output: T", ATTRS, 0},
};

typedef struct job {
  const void *input, *filter, *grad;
  void *out; /* of the filter's gradient: a sum per piece of images */
  int64_t batch, in_c, multiplier, unit;
  td_window_dim dim[2];
} job;

typedef struct range {
  int64_t from, to; /* filter taps that fall inside the image */
} range;

static inline range taps(const td_window_dim *d, int64_t o) {
  int64_t start = o * d->stride - d->before;
  return (range){start < 0 ? -start : 0, TD_MIN(d->filter, d->in - start)};
}

/* Runs the body for every tap of output pixel `o` inside image `in_image`, with `f` the filter's and `p` the input's
 * channels at that tap. */
#define EACH_TAP(type, ...)                                                                                     \
  do {                                                                                                          \
    int64_t oy = o / w->out, ox = o % w->out;                                                                   \
    range ry = taps(h, oy), rx = taps(w, ox);                                                                   \
    for (int64_t fy = ry.from; fy < ry.to; fy++) {                                                              \
      int64_t y = oy * h->stride - h->before + fy;                                                              \
      for (int64_t fx = rx.from; fx < rx.to; fx++) {                                                            \
        int64_t pixel = (y * w->in + ox * w->stride - w->before + fx) * c, tap = (fy * w->filter + fx) * c * m; \
        __VA_ARGS__                                                                                             \
      }                                                                                                         \
    }                                                                                                           \
  } while (0)

#define LOOPS(name, type)                                                                                   \
  static void forward_##name(void *arg, int64_t begin, int64_t end) { /* output rows of the batch */        \
    const job *j = arg;                                                                                     \
    const td_window_dim *h = &j->dim[0], *w = &j->dim[1];                                                   \
    int64_t c = j->in_c, m = j->multiplier;                                                                 \
    for (int64_t r = begin; r < end; r++) {                                                                 \
      const type *image = (const type *)j->input + r / h->out * h->in * w->in * c;                          \
      for (int64_t x = 0; x < w->out; x++) {                                                                \
        int64_t o = r % h->out * w->out + x;                                                                \
        type *restrict out = (type *)j->out + (r * w->out + x) * c * m;                                     \
        memset(out, 0, (size_t)(c * m) * sizeof(type));                                                     \
        EACH_TAP(type, {                                                                                    \
          const type *p = image + pixel, *f = (const type *)j->filter + tap;                                \
          if (m == 1) {                                                                                     \
            for (int64_t i = 0; i < c; i++) out[i] += p[i] * f[i];                                          \
          } else {                                                                                          \
            for (int64_t i = 0; i < c; i++) {                                                               \
              for (int64_t k = 0; k < m; k++) out[i * m + k] += p[i] * f[i * m + k];                        \
            }                                                                                               \
          }                                                                                                 \
        });                                                                                                 \
      }                                                                                                     \
    }                                                                                                       \
  }                                                                                                         \
  static void to_input_##name(void *arg, int64_t begin, int64_t end) { /* images */                         \
    const job *j = arg;                                                                                     \
    const td_window_dim *h = &j->dim[0], *w = &j->dim[1];                                                   \
    int64_t c = j->in_c, m = j->multiplier, pixels = h->out * w->out;                                       \
    for (int64_t b = begin; b < end; b++) {                                                                 \
      type *image = (type *)j->out + b * h->in * w->in * c;                                                 \
      memset(image, 0, (size_t)(h->in * w->in * c) * sizeof(type));                                         \
      for (int64_t o = 0; o < pixels; o++) {                                                                \
        const type *g = (const type *)j->grad + (b * pixels + o) * c * m;                                   \
        EACH_TAP(type, {                                                                                    \
          type *restrict p = image + pixel;                                                                 \
          const type *f = (const type *)j->filter + tap;                                                    \
          if (m == 1) {                                                                                     \
            for (int64_t i = 0; i < c; i++) p[i] += g[i] * f[i];                                            \
          } else {                                                                                          \
            for (int64_t i = 0; i < c; i++) {                                                               \
              for (int64_t k = 0; k < m; k++) p[i] += g[i * m + k] * f[i * m + k];                          \
            }                                                                                               \
          }                                                                                                 \
        });                                                                                                 \
      }                                                                                                     \
    }                                                                                                       \
  }                                                                                                         \
  static void to_filter_##name(void *arg, int64_t begin, int64_t end) { /* pieces of images */              \
    const job *j = arg;                                                                                     \
    const td_window_dim *h = &j->dim[0], *w = &j->dim[1];                                                   \
    int64_t c = j->in_c, m = j->multiplier, pixels = h->out * w->out, size = h->filter * w->filter * c * m; \
    for (int64_t piece = begin; piece < end; piece++) {                                                     \
      type *sum = (type *)j->out + piece * size;                                                            \
      memset(sum, 0, (size_t)size * sizeof(type));                                                          \
      for (int64_t b = piece * j->unit; b < TD_MIN((piece + 1) * j->unit, j->batch); b++) {                 \
        const type *image = (const type *)j->input + b * h->in * w->in * c;                                 \
        for (int64_t o = 0; o < pixels; o++) {                                                              \
          const type *g = (const type *)j->grad + (b * pixels + o) * c * m;                                 \
          EACH_TAP(type, {                                                                                  \
            const type *p = image + pixel;                                                                  \
            type *restrict f = sum + tap;                                                                   \
            if (m == 1) {                                                                                   \
              for (int64_t i = 0; i < c; i++) f[i] += p[i] * g[i];                                          \
            } else {                                                                                        \
              for (int64_t i = 0; i < c; i++) {                                                             \
                for (int64_t k = 0; k < m; k++) f[i * m + k] += p[i] * g[i * m + k];                        \
              }                                                                                             \
            }                                                                                               \
          });                                                                                               \
        }                                                                                                   \
      }                                                                                                     \
    }                                                                                                       \
  }                                                                                                         \
  static void fold_##name(const void *parts, int64_t pieces, int64_t n, void *out) {                        \
    memcpy(out, parts, (size_t)n * sizeof(type));                                                           \
    for (int64_t p = 1; p < pieces; p++) {                                                                  \
      for (int64_t i = 0; i < n; i++) ((type *)out)[i] += ((const type *)parts)[p * n + i];                 \
    }                                                                                                       \
  }
LOOPS(f32, float)
LOOPS(f64, double)

typedef struct state {
  td_window_attrs attrs;
  td_fusion fusion; /* all false in the plain op */
} state;

static td_status create(td_kernel_builder *b, void *state_) {
  td_window_attrs *a = &((state *)state_)->attrs;
  TD_TRY(td_window_parse_conv(b->node, a));
  if (a->stride[0] != a->stride[1])
    return td_invalid_argument(
        "Current implementation only supports equal length strides in the row and column dimensions.");
  if (a->format != TD_NHWC) return td_unimplemented("Depthwise convolution on CPU is only supported for NHWC format");
  return TD_STATUS_OK;
}

static td_status fused_create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  TD_TRY(create(b, s));
  TD_TRY(td_fusion_parse(b->node, &s->fusion));
  if (!s->fusion.bias || b->input_count != (s->fusion.add ? 4 : 3))
    return td_invalid_argument("_FusedDepthwiseConv2dNative with %d extra inputs and without BiasAdd is not supported",
                               b->input_count - 2);
  return TD_STATUS_OK;
}

static td_status with_shape(const char *who, const char *text, const td_shape *shape) {
  char *shape_text = td_shape_text(shape);
  td_status s = td_invalid_argument("%s%s%s", who, text, shape_text);
  td_free(shape_text);
  return s;
}

static td_status prepare(const td_window_attrs *a, const td_shape *in, const td_shape *filter, const char *who,
                         job *j) {
  if (in->rank != 4) return with_shape(who, "input must be 4-dimensional", in);
  if (filter->rank != 4) return with_shape(who, "filter must be 4-dimensional: ", filter);
  for (int i = 0; i < 4; i++) {
    if (in->dims[i] > INT_MAX) return with_shape(who, "input too large: ", in);
    if (filter->dims[i] > INT_MAX) return with_shape(who, "filter too large: ", filter);
  }
  if (in->dims[3] != filter->dims[2])
    return td_invalid_argument(*who ? "%sinput and filter must have the same in_depth: %lld vs %lld"
                                    : "%sinput and filter must have the same depth: %lld vs %lld",
                               who, (long long)in->dims[3], (long long)filter->dims[2]);
  j->batch = in->dims[0];
  j->in_c = in->dims[3];
  j->multiplier = filter->dims[3];
  for (int i = 0; i < 2; i++) {
    j->dim[i] = (td_window_dim){.in = in->dims[1 + i],
                                .filter = filter->dims[i],
                                .stride = a->stride[i],
                                .dilation = 1,
                                .before = a->explicit_pad[i][0],
                                .after = a->explicit_pad[i][1]};
    TD_TRY(td_window_compute(a->padding, &j->dim[i]));
  }
  return TD_STATUS_OK;
}

static double ns(const job *j, int64_t pixels) {
  return (double)pixels * (double)(j->dim[0].filter * j->dim[1].filter) * (double)(j->in_c * j->multiplier) / 3 + 100;
}

/* Bias and activation of the fused op over the finished output. */
static td_status finish_fused(td_kernel_ctx *ctx, const td_fusion *f, td_tensor *work) {
  td_tensor *bias = NULL, *side = NULL, *bias0 = td_in(ctx, 2);
  int64_t channels = work->dims[3];
  if (bias0->rank != 1 || bias0->dims[0] != channels)
    return td_invalid_argument("bias must be a vector of %lld entries", (long long)channels);
  td_status status;
  TD_TRY_GOTO(td_floats_of(bias0, &bias));
  if (f->add) TD_TRY_GOTO(td_epilogue_side(td_in(ctx, 3), work, &side));
  td_epilogue e = {.dtype = (td_dtype)work->dtype,
                   .data = work->data,
                   .row_step = channels,
                   .add = bias->data,
                   .side = side ? side->data : NULL,
                   .activation = f->activation,
                   .alpha = f->alpha};
  td_epilogue_run(&e, 0, work->count / channels, 0, channels);
cleanup:
  td_tensor_release(bias);
  td_tensor_release(side);
  return status;
}

static td_status forward(td_kernel_ctx *ctx) {
  td_tensor *input = NULL, *filter = NULL, *work = NULL;
  td_shape in, fil;
  job j = {0};
  td_tensor_shape(td_in(ctx, 0), &in);
  td_tensor_shape(td_in(ctx, 1), &fil);
  const state *s = ctx->state;
  TD_TRY(prepare(&s->attrs, &in, &fil, "", &j));
  td_status status;
  int64_t channels;
  if (__builtin_mul_overflow(j.in_c, j.multiplier, &channels)) return with_shape("", "filter too large: ", &fil);
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, (const int64_t[]){j.batch, j.dim[0].out, j.dim[1].out, channels}, &work));
  if (work->count) {
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 0), &input));
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 1), &filter));
    j.input = input->data;
    j.filter = filter->data;
    j.out = work->data;
    td_ctx_parallel_for(ctx, j.batch * j.dim[0].out, ns(&j, j.dim[1].out),
                        work->dtype == TD_FLOAT ? forward_f32 : forward_f64, &j);
    if (s->fusion.bias) TD_TRY_GOTO(finish_fused(ctx, &s->fusion, work));
  }
  td_floats_finish(ctx, 0, work);
  work = NULL;
  status = TD_STATUS_OK;
cleanup:
  td_tensor_release(input);
  td_tensor_release(filter);
  td_tensor_release(work);
  return status;
}

static td_status check_gradient(const job *j, const td_tensor *grad, const char *who) {
  if (grad->rank != 4) return td_invalid_argument("%sout_backprop must be 4-dimensional", who);
  if (grad->dims[0] != j->batch)
    return td_invalid_argument("%sinput and out_backprop must have the same batch size: %lld vs %lld", who,
                               (long long)j->batch, (long long)grad->dims[0]);
  for (int i = 0; i < 2; i++) {
    if (grad->dims[1 + i] != j->dim[i].out)
      return td_invalid_argument(
          "%sNumber of %s of out_backprop doesn't match computed: actual = %lld, computed = %lld", who,
          i ? "cols" : "rows", (long long)grad->dims[1 + i], (long long)j->dim[i].out);
  }
  if (grad->dims[3] != j->in_c * j->multiplier)
    return td_invalid_argument("%sdepth_multiplier * in_depth not equal to out_depth: %lld vs %lld", who,
                               (long long)(j->in_c * j->multiplier), (long long)grad->dims[3]);
  return TD_STATUS_OK;
}

static td_status sizes(const td_tensor *t, const char *who, const char *what, td_shape *out) {
  if (t->rank != 1) return td_invalid_argument("%s%s input must be 1-dim, not %d", who, what, t->rank);
  return td_shape_from_tensor(t, false, out);
}

static td_status to_input(td_kernel_ctx *ctx) {
  static const char who[] = "DepthwiseConv2DBackpropInput: ";
  td_tensor *filter = NULL, *grad = NULL, *work = NULL;
  td_shape in, fil;
  job j = {0};
  TD_TRY(sizes(td_in(ctx, 0), who, "input_sizes", &in));
  td_tensor_shape(td_in(ctx, 1), &fil);
  TD_TRY(prepare(&((const state *)ctx->state)->attrs, &in, &fil, who, &j));
  TD_TRY(check_gradient(&j, td_in(ctx, 2), who));
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, in.dims, &work));
  TD_TRY_GOTO(td_floats_of(td_in(ctx, 1), &filter));
  TD_TRY_GOTO(td_floats_of(td_in(ctx, 2), &grad));
  j.filter = filter->data;
  j.grad = grad->data;
  j.out = work->data;
  if (work->count)
    td_ctx_parallel_for(ctx, j.batch, ns(&j, j.dim[0].out * j.dim[1].out),
                        work->dtype == TD_FLOAT ? to_input_f32 : to_input_f64, &j);
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  td_tensor_release(filter);
  td_tensor_release(grad);
  td_tensor_release(work);
  return status;
}

static td_status to_filter(td_kernel_ctx *ctx) {
  static const char who[] = "DepthwiseConv2DBackpropFilter: ";
  td_tensor *input = NULL, *grad = NULL, *work = NULL, *parts = NULL;
  td_shape in, fil;
  job j = {0};
  td_tensor_shape(td_in(ctx, 0), &in);
  TD_TRY(sizes(td_in(ctx, 1), who, "filter_sizes", &fil));
  TD_TRY(prepare(&((const state *)ctx->state)->attrs, &in, &fil, who, &j));
  TD_TRY(check_gradient(&j, td_in(ctx, 2), who));
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, fil.dims, &work));
  if (work->count && td_in(ctx, 2)->count) {
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 0), &input));
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 2), &grad));
    int64_t pieces = TD_MIN(j.batch, 16);
    if (work->count > 1 << 20) pieces = 1;
    j.unit = (j.batch + pieces - 1) / pieces;
    pieces = (j.batch + j.unit - 1) / j.unit;
    TD_TRY_GOTO(td_tensor_create_dims((td_dtype)work->dtype, 2, (const int64_t[]){pieces, work->count}, &parts));
    j.input = input->data;
    j.grad = grad->data;
    j.out = parts->data;
    td_ctx_parallel_for(ctx, pieces, ns(&j, j.unit * j.dim[0].out * j.dim[1].out),
                        work->dtype == TD_FLOAT ? to_filter_f32 : to_filter_f64, &j);
    (work->dtype == TD_FLOAT ? fold_f32 : fold_f64)(parts->data, pieces, work->count, work->data);
  } else {
    memset(work->data, 0, work->size);
  }
  td_floats_finish(ctx, 0, work);
  work = NULL;
  status = TD_STATUS_OK;
cleanup:
  td_tensor_release(input);
  td_tensor_release(grad);
  td_tensor_release(work);
  td_tensor_release(parts);
  return status;
}

#define KERNEL(op_name, make, run) \
  { .op = op_name, .cost = TD_COST_EXPENSIVE, .state_size = sizeof(state), .create = make, .compute = run }

static const td_kernel_def kernels[] = {
    KERNEL("DepthwiseConv2dNative", create, forward),
    KERNEL("_FusedDepthwiseConv2dNative", fused_create, forward),
    KERNEL("DepthwiseConv2dNativeBackpropInput", create, to_input),
    KERNEL("DepthwiseConv2dNativeBackpropFilter", create, to_filter),
};

TD_FAMILY(depthwise, ops, kernels);

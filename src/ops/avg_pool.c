/* Average pooling and its gradient. Averages are over the pixels inside the image. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/gemm.h"
#include "ops/window.h"

#define ATTRS                                                                                                     \
  "ksize: list(int) >= 4; strides: list(int) >= 4; padding: string in {'SAME', 'VALID'}; data_format: string in " \
  "{'NHWC', 'NCHW'} = 'NHWC'; T: type in {half, bfloat16, float, double}"

static const td_op_spec ops[] = {
    {"AvgPool", "value: T", "output: T", ATTRS, 0},
    {"AvgPoolGrad", "orig_input_shape: int32; grad: T", "output: T", ATTRS, 0},
};

typedef struct job {
  const void *from;
  void *to;
  int64_t batch, depth;
  td_window_dim dim[2];
} job;

typedef struct range {
  int64_t from, to;
} range;

static inline range clip(const td_window_dim *d, int64_t o) {
  int64_t from = o * d->stride - d->before, to = from + d->filter;
  return (range){TD_MAX(from, 0), TD_MIN(to, d->in)};
}

#define LOOPS(name, type)                                                                         \
  static void rows_##name(void *arg, int64_t begin, int64_t end) { /* output rows of the batch */ \
    const job *j = arg;                                                                           \
    const td_window_dim *h = &j->dim[0], *w = &j->dim[1];                                         \
    int64_t depth = j->depth;                                                                     \
    for (int64_t r = begin; r < end; r++) {                                                       \
      const type *image = (const type *)j->from + r / h->out * h->in * w->in * depth;             \
      range rows = clip(h, r % h->out);                                                           \
      for (int64_t x = 0; x < w->out; x++) {                                                      \
        range columns = clip(w, x);                                                               \
        type *out = (type *)j->to + (r * w->out + x) * depth;                                     \
        memset(out, 0, (size_t)depth * sizeof(type));                                             \
        for (int64_t y = rows.from; y < rows.to; y++) {                                           \
          const type *p = image + (y * w->in + columns.from) * depth;                             \
          for (int64_t c = columns.from; c < columns.to; c++, p += depth) {                       \
            for (int64_t d = 0; d < depth; d++) out[d] += p[d];                                   \
          }                                                                                       \
        }                                                                                         \
        type scale = 1 / (type)((rows.to - rows.from) * (columns.to - columns.from));             \
        for (int64_t d = 0; d < depth; d++) out[d] *= scale;                                      \
      }                                                                                           \
    }                                                                                             \
  }                                                                                               \
  static void images_##name(void *arg, int64_t begin, int64_t end) { /* the gradient */           \
    const job *j = arg;                                                                           \
    const td_window_dim *h = &j->dim[0], *w = &j->dim[1];                                         \
    int64_t depth = j->depth, size = h->in * w->in * depth;                                       \
    for (int64_t b = begin; b < end; b++) {                                                       \
      type *image = (type *)j->to + b * size;                                                     \
      memset(image, 0, (size_t)size * sizeof(type));                                              \
      for (int64_t o = 0; o < h->out * w->out; o++) {                                             \
        const type *g = (const type *)j->from + (b * h->out * w->out + o) * depth;                \
        range rows = clip(h, o / w->out), columns = clip(w, o % w->out);                          \
        type scale = 1 / (type)((rows.to - rows.from) * (columns.to - columns.from));             \
        for (int64_t y = rows.from; y < rows.to; y++) {                                           \
          type *p = image + (y * w->in + columns.from) * depth;                                   \
          for (int64_t c = columns.from; c < columns.to; c++, p += depth) {                       \
            for (int64_t d = 0; d < depth; d++) p[d] += g[d] * scale;                             \
          }                                                                                       \
        }                                                                                         \
      }                                                                                           \
    }                                                                                             \
  }
LOOPS(f32, float)
LOOPS(f64, double)

static td_status parse(td_kernel_builder *b, td_window_attrs *a, const char *op) {
  TD_TRY(td_window_parse_pool(b->node, a));
  if (a->format != TD_NHWC) return td_invalid_argument("Default %s only supports NHWC on device type CPU", op);
  if (a->ksize_depth != 1 || a->stride_depth != 1)
    return td_unimplemented("Non-spatial pooling is not yet supported. Volunteers? :)");
  return TD_STATUS_OK;
}

static td_status create(td_kernel_builder *b, void *state) { return parse(b, state, "AvgPoolingOp"); }
static td_status grad_create(td_kernel_builder *b, void *state) { return parse(b, state, "AvgPoolingGradOp"); }

static td_status prepare(const td_window_attrs *a, const int64_t in[4], job *j) {
  j->batch = in[0];
  j->depth = in[3];
  for (int i = 0; i < 2; i++) {
    j->dim[i] = (td_window_dim){.in = in[1 + i], .filter = a->ksize[i], .stride = a->stride[i], .dilation = 1};
    TD_TRY(td_window_compute(a->padding, &j->dim[i]));
  }
  return TD_STATUS_OK;
}

static double window_ns(const job *j) {
  double area = (double)TD_MIN(j->dim[0].filter, j->dim[0].in) * (double)TD_MIN(j->dim[1].filter, j->dim[1].in);
  return area * (double)j->depth / 4 + 2;
}

static td_status avg_pool(td_kernel_ctx *ctx) {
  td_tensor *in = NULL, *work = NULL, *value = td_in(ctx, 0);
  job j = {0};
  if (value->rank != 4) return td_invalid_argument("tensor_in must be 4-dimensional");
  TD_TRY(prepare(ctx->state, value->dims, &j));
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, (const int64_t[]){j.batch, j.dim[0].out, j.dim[1].out, j.depth}, &work));
  if (work->count) {
    TD_TRY_GOTO(td_floats_of(value, &in));
    j.from = in->data;
    j.to = work->data;
    td_ctx_parallel_for(ctx, j.batch * j.dim[0].out, window_ns(&j) * (double)j.dim[1].out,
                        work->dtype == TD_FLOAT ? rows_f32 : rows_f64, &j);
  }
  td_floats_finish(ctx, 0, work);
  work = NULL;
  status = TD_STATUS_OK;
cleanup:
  td_tensor_release(in);
  td_tensor_release(work);
  return status;
}

static td_status avg_pool_grad(td_kernel_ctx *ctx) {
  td_tensor *grad = NULL, *work = NULL, *sizes = td_in(ctx, 0), *grad0 = td_in(ctx, 1);
  job j = {0};
  td_shape shape;
  if (sizes->rank != 1 || sizes->count != 4)
    return td_invalid_argument("out_backprop must be 1-dimensional and 4 elements");
  if (grad0->rank != 4) return td_invalid_argument("out_backprop must be 4-dimensional");
  TD_TRY(td_shape_from_tensor(sizes, false, &shape));
  TD_TRY(prepare(ctx->state, shape.dims, &j));
  const int64_t want[4] = {j.batch, j.dim[0].out, j.dim[1].out, j.depth};
  if (!td_dims_eq(4, want, 4, grad0->dims)) {
    char *expected = td_dims_text(4, want), *got = td_tensor_shape_text(grad0);
    td_status s = td_invalid_argument("Expected grad shape to be %s, but got %s", expected, got);
    td_free(expected);
    td_free(got);
    return s;
  }
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, shape.dims, &work));
  TD_TRY_GOTO(td_floats_of(grad0, &grad));
  j.from = grad->data;
  j.to = work->data;
  if (work->count)
    td_ctx_parallel_for(ctx, j.batch, window_ns(&j) * (double)(j.dim[0].out * j.dim[1].out) + 100,
                        work->dtype == TD_FLOAT ? images_f32 : images_f64, &j);
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  td_tensor_release(grad);
  td_tensor_release(work);
  return status;
}

static const td_kernel_def kernels[] = {
    {.op = "AvgPool", .state_size = sizeof(td_window_attrs), .create = create, .compute = avg_pool},
    {.op = "AvgPoolGrad", .state_size = sizeof(td_window_attrs), .create = grad_create, .compute = avg_pool_grad},
};

TD_FAMILY(avg_pool, ops, kernels);

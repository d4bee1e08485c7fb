/* Local response normalisation across channels. */
#include <math.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/gemm.h"

#define ATTRS                                                                                                     \
  "depth_radius: int = 5; bias: float = 1.0; alpha: float = 1.0; beta: float = 0.5; T: type in {half, bfloat16, " \
  "float} = float"

static const td_op_spec ops[] = {
    {"LRN", "input: T", "output: T", ATTRS, 0},
    {"LRNGrad", "input_grads: T; input_image: T; output_image: T", "output: T", ATTRS, 0},
};

typedef struct state {
  int64_t radius;
  float bias, alpha, beta;
} state;

static td_status create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  TD_TRY(td_attr_int(b->node, "depth_radius", &s->radius));
  TD_TRY(td_attr_float(b->node, "bias", &s->bias));
  TD_TRY(td_attr_float(b->node, "alpha", &s->alpha));
  TD_TRY(td_attr_float(b->node, "beta", &s->beta));
  if (s->radius < 0 || s->radius > INT32_MAX)
    return td_invalid_argument("depth_radius = %lld larger than int max or negative", (long long)s->radius);
  return TD_STATUS_OK;
}

typedef struct job {
  const state *s;
  const float *x, *y, *dy; /* input, output, output's gradient */
  float *out;
  int64_t depth;
} job;

/* bias + alpha times the sum of squares around channel i. */
static float norm_at(const job *j, const float *x, int64_t i) {
  int64_t from = TD_MAX(i - j->s->radius, 0), to = TD_MIN(i + j->s->radius + 1, j->depth);
  float sum = 0;
  for (int64_t k = from; k < to; k++) sum += x[k] * x[k];
  return j->s->bias + j->s->alpha * sum;
}

static void forward_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t r = begin; r < end; r++) {
    const float *x = j->x + r * j->depth;
    for (int64_t i = 0; i < j->depth; i++) j->out[r * j->depth + i] = x[i] * powf(norm_at(j, x, i), -j->s->beta);
  }
}

static void gradient_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  float beta = j->s->beta, scale = -2 * j->s->alpha * beta;
  for (int64_t r = begin; r < end; r++) {
    const float *x = j->x + r * j->depth, *y = j->y + r * j->depth, *dy = j->dy + r * j->depth;
    float *dx = j->out + r * j->depth;
    for (int64_t i = 0; i < j->depth; i++) dx[i] = 0;
    for (int64_t i = 0; i < j->depth; i++) {
      int64_t from = TD_MAX(i - j->s->radius, 0), to = TD_MIN(i + j->s->radius + 1, j->depth);
      float norm = norm_at(j, x, i), common = scale * y[i] / norm * dy[i];
      for (int64_t k = from; k < to; k++) dx[k] += common * x[k];
      dx[i] += powf(norm, -beta) * dy[i];
    }
  }
}

static td_status run(td_kernel_ctx *ctx, int inputs, int x, void (*fn)(void *, int64_t, int64_t)) {
  td_tensor *in[3] = {0}, *work = NULL, *like = td_in(ctx, x);
  td_status status;
  for (int i = 0; i < inputs; i++) {
    if (td_in(ctx, i)->rank != 4) return td_invalid_argument("%s must be 4-dimensional", inputs == 1 ? "in" : "inputs");
    if (!td_tensor_same_shape(td_in(ctx, i), like))
      return td_invalid_argument("input_grads, input_image, and out_image should have the same shape");
  }
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, like->dims, &work));
  for (int i = 0; i < inputs; i++) TD_TRY_GOTO(td_floats_of(td_in(ctx, i), &in[i]));
  if (work->count) {
    job j = {.s = ctx->state, .x = TD_DATA(in[x], float), .out = TD_DATA(work, float), .depth = like->dims[3]};
    if (inputs == 3) {
      j.dy = TD_DATA(in[0], float);
      j.y = TD_DATA(in[2], float);
    }
    double window = (double)TD_MIN(2 * j.s->radius + 1, j.depth);
    td_ctx_parallel_for(ctx, work->count / j.depth, (double)j.depth * (window * 2 + 20), fn, &j);
  }
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  for (int i = 0; i < 3; i++) td_tensor_release(in[i]);
  td_tensor_release(work);
  return status;
}

static td_status lrn(td_kernel_ctx *ctx) { return run(ctx, 1, 0, forward_rows); }
static td_status lrn_grad(td_kernel_ctx *ctx) { return run(ctx, 3, 1, gradient_rows); }

static const td_kernel_def kernels[] = {
    {.op = "LRN", .state_size = sizeof(state), .create = create, .compute = lrn},
    {.op = "LRNGrad", .state_size = sizeof(state), .create = create, .compute = lrn_grad},
};

TD_FAMILY(lrn, ops, kernels);

/* Ops that appear in no program: a TensorFlow 2.x master with oneDNN puts them in place of small patterns. */
#include <math.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/gemm.h"

static const td_op_spec ops[] = {
    {"_MklSwish", "features: T", "activations: T", "T: type in {float, bfloat16, half} = float", 0},
    {"_MklFusedMish", "features: T", "activations: T", "T: type in {bfloat16, float, half}", 0},
    {"_MklLayerNorm", "x: T; scale: T; offset: T", "y: T",
     "T: type in {float, bfloat16, half}; epsilon: float = 0.0010000000474974513", 0},
};

typedef struct job {
  const float *x, *scale, *offset;
  float *y, epsilon;
  int64_t columns;
} job;

static void swish(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t i = begin; i < end; i++) j->y[i] = j->x[i] / (1 + expf(-j->x[i]));
}

static void mish(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    float x = j->x[i], softplus = x > 20 ? x : log1pf(expf(x));
    j->y[i] = x * tanhf(softplus);
  }
}

static void layer_norm_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t n = j->columns;
  for (int64_t r = begin; r < end; r++) {
    const float *x = j->x + r * n;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    float factor = (float)(1 / sqrt(squares / (double)n + (double)j->epsilon)), center = (float)mean;
    for (int64_t i = 0; i < n; i++) j->y[r * n + i] = (x[i] - center) * factor * j->scale[i] + j->offset[i];
  }
}

typedef struct state {
  bool mish;
  float epsilon;
} state;

static td_status activation_create(td_kernel_builder *b, void *state_) {
  ((state *)state_)->mish = td_str_is(b->node->op, "_MklFusedMish");
  return TD_STATUS_OK;
}

static td_status layer_norm_create(td_kernel_builder *b, void *state_) {
  return td_attr_float(b->node, "epsilon", &((state *)state_)->epsilon);
}

static td_status activate(td_kernel_ctx *ctx) {
  td_tensor *in = td_in(ctx, 0), *x = NULL, *work = NULL;
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, in->rank, in->dims, &work));
  TD_TRY_GOTO(td_floats_of(in, &x));
  job j = {.x = TD_DATA(x, float), .y = TD_DATA(work, float)};
  td_ctx_parallel_for(ctx, in->count, 10, ((const state *)ctx->state)->mish ? mish : swish, &j);
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  td_tensor_release(x);
  td_tensor_release(work);
  return status;
}

static td_status layer_norm(td_kernel_ctx *ctx) {
  td_tensor *in = td_in(ctx, 0), *t[3] = {0}, *work = NULL;
  td_status status;
  if (in->rank < 1) return td_invalid_argument("input must have rank 1 at least");
  int64_t columns = in->dims[in->rank - 1];
  for (int i = 1; i < 3; i++) {
    if (td_in(ctx, i)->count != columns)
      return td_invalid_argument("scale and offset of a layer norm must have %lld entries, got %lld",
                                 (long long)columns, (long long)td_in(ctx, i)->count);
  }
  TD_TRY_GOTO(td_floats_out(ctx, 0, in->rank, in->dims, &work));
  for (int i = 0; i < 3; i++) TD_TRY_GOTO(td_floats_of(td_in(ctx, i), &t[i]));
  job j = {.x = TD_DATA(t[0], float),
           .scale = TD_DATA(t[1], float),
           .offset = TD_DATA(t[2], float),
           .y = TD_DATA(work, float),
           .epsilon = ((const state *)ctx->state)->epsilon,
           .columns = columns};
  if (work->count) td_ctx_parallel_for(ctx, work->count / columns, (double)columns * 2, layer_norm_rows, &j);
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  for (int i = 0; i < 3; i++) td_tensor_release(t[i]);
  td_tensor_release(work);
  return status;
}

static const td_kernel_def kernels[] = {
    {.op = "_MklSwish", .state_size = sizeof(state), .create = activation_create, .compute = activate},
    {.op = "_MklFusedMish", .state_size = sizeof(state), .create = activation_create, .compute = activate},
    {.op = "_MklLayerNorm", .state_size = sizeof(state), .create = layer_norm_create, .compute = layer_norm},
};

TD_FAMILY(remapped, ops, kernels);

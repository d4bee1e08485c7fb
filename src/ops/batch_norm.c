/* Fused batch normalisation and its gradients.
 *
 * Sums over a channel are taken in pieces of rows (float) and folded in double: errors stay small and results do not
 * depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/gemm.h"

#define EPSILON  "epsilon: float = 9.999999747378752e-05; "
#define FACTOR   "exponential_avg_factor: float = 1.0; "
#define TRAINING "is_training: bool = true"
#define FORMAT_2 "data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; "
#define FORMAT_3 "data_format: string in {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'; "
#define INPUTS   "x: T; scale: U; offset: U; mean: U; variance: U"
#define OUTPUTS  "y: T; batch_mean: U; batch_variance: U; reserve_space_1: U; reserve_space_2: U"
#define GRAD_IN  "y_backprop: T; x: T; scale: float; reserve_space_1: U; reserve_space_2: U"
#define GRAD_OUT "x_backprop: T; scale_backprop: U; offset_backprop: U; "
#define TYPES    "T: type in {half, bfloat16, float}; "

static const td_op_spec ops[] = {
    {"FusedBatchNorm", "x: T; scale: T; offset: T; mean: T; variance: T",
     "y: T; batch_mean: T; batch_variance: T; reserve_space_1: T; reserve_space_2: T",
     "T: type in {float}; " EPSILON FACTOR FORMAT_2 TRAINING, 0},
    {"FusedBatchNormV2", INPUTS, OUTPUTS, TYPES "U: type in {float}; " EPSILON FACTOR FORMAT_2 TRAINING, 0},
    {"FusedBatchNormV3", INPUTS, OUTPUTS "; reserve_space_3: U",
     TYPES "U: type in {bfloat16, float}; " EPSILON FACTOR FORMAT_3 TRAINING, 0},
    {"_FusedBatchNormEx", INPUTS "; side_input: num_side_inputs * T", OUTPUTS "; reserve_space_3: U",
     "T: type in {half, float, bfloat16}; U: type in {float}; " EPSILON FACTOR
     "num_side_inputs: int >= 0 = 0; activation_mode: string = 'Identity'; " FORMAT_2 TRAINING,
     0},
    {"FusedBatchNormGrad", "y_backprop: T; x: T; scale: T; reserve_space_1: T; reserve_space_2: T",
     "x_backprop: T; scale_backprop: T; offset_backprop: T; reserve_space_3: T; reserve_space_4: T",
     "T: type in {float}; " EPSILON FORMAT_2 TRAINING, 0},
    {"FusedBatchNormGradV2", GRAD_IN, GRAD_OUT "reserve_space_3: U; reserve_space_4: U",
     TYPES "U: type in {float}; " EPSILON FORMAT_2 TRAINING, 0},
    {"FusedBatchNormGradV3", GRAD_IN "; reserve_space_3: U", GRAD_OUT "reserve_space_4: U; reserve_space_5: U",
     TYPES "U: type in {float}; " EPSILON FORMAT_3 TRAINING, 0},
};

typedef struct state {
  float epsilon, factor;
  bool is_training, channels_first, relu;
  int rank, side_inputs;
} state;

static td_status create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  td_str text = {0};
  s->factor = 1;
  TD_TRY(td_attr_float(b->node, "epsilon", &s->epsilon));
  TD_TRY(td_attr_bool(b->node, "is_training", &s->is_training));
  if (td_attr_find(b->node, "exponential_avg_factor"))
    TD_TRY(td_attr_float(b->node, "exponential_avg_factor", &s->factor));
  TD_TRY(td_attr_str(b->node, "data_format", &text));
  s->channels_first = td_str_starts(text, TD_STR("NC"));
  s->rank = (int)text.size;
  if (!td_attr_find(b->node, "activation_mode")) return TD_STATUS_OK;
  TD_TRY(td_attr_str(b->node, "activation_mode", &text));
  s->relu = td_str_is(text, "Relu");
  if (!s->relu && !td_str_is(text, "Identity"))
    return td_invalid_argument("Unsupported activation mode: %.*s", TD_STR_ARG(text));
  s->side_inputs = b->input_count - 5;
  if (s->side_inputs > 1) return td_invalid_argument("FusedBatchNorm accepts at most one side input.");
  return TD_STATUS_OK;
}

/* ---- loops ---- */

enum { PIECE_ROWS = 512 };

/* x seen as outer x channels x inner (inner is 1 for channels last). */
typedef struct job {
  const float *x, *dy, *side;
  float *out;
  int64_t outer, channels, inner;
  const float *mean;            /* NULL in the pass that takes the plain sum */
  const float *mul, *add, *dot; /* out = (x - mean) mul + add, or mul (dy - add - (x - mean) dot) */
  float *sums;                  /* a row of sums for each piece; twice as long for gradients */
  bool relu;
} job;

static int64_t pieces_of(const job *j) { return (j->outer + PIECE_ROWS - 1) / PIECE_ROWS; }

static void sum_rows(const job *j, const float *x, int64_t rows, float *restrict sums) {
  int64_t c = j->channels;
  const float *mean = j->mean;
  for (int64_t r = 0; r < rows; r++, x += c) {
    if (mean) {
      for (int64_t i = 0; i < c; i++) sums[i] += (x[i] - mean[i]) * (x[i] - mean[i]);
    } else {
      for (int64_t i = 0; i < c; i++) sums[i] += x[i];
    }
  }
}

/* Sums of x, or of squared distances from the mean. */
static void sum_pieces(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t c = j->channels, inner = j->inner;
  for (int64_t p = begin; p < end; p++) {
    int64_t from = p * PIECE_ROWS, rows = TD_MIN(PIECE_ROWS, j->outer - from);
    float *sums = j->sums + p * c;
    const float *x = j->x + from * c * inner;
    memset(sums, 0, (size_t)c * sizeof *sums);
    if (inner == 1) {
      sum_rows(j, x, rows, sums);
      continue;
    }
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t i = 0; i < c; i++, x += inner) {
        float s = 0, mean = j->mean ? j->mean[i] : 0;
        if (j->mean)
          for (int64_t k = 0; k < inner; k++) s += (x[k] - mean) * (x[k] - mean);
        else
          for (int64_t k = 0; k < inner; k++) s += x[k];
        sums[i] += s;
      }
    }
  }
}

/* Sums of dy and of dy (x - mean). */
static void grad_pieces(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t c = j->channels, inner = j->inner;
  for (int64_t p = begin; p < end; p++) {
    int64_t from = p * PIECE_ROWS, rows = TD_MIN(PIECE_ROWS, j->outer - from);
    float *restrict plain = j->sums + p * 2 * c, *restrict dots = plain + c;
    const float *x = j->x + from * c * inner, *dy = j->dy + from * c * inner, *mean = j->mean;
    memset(plain, 0, (size_t)(2 * c) * sizeof *plain);
    for (int64_t r = 0; r < rows; r++) {
      if (inner == 1) {
        for (int64_t i = 0; i < c; i++) {
          plain[i] += dy[i];
          dots[i] += dy[i] * (x[i] - mean[i]);
        }
        x += c, dy += c;
        continue;
      }
      for (int64_t i = 0; i < c; i++, x += inner, dy += inner) {
        float s = 0, d = 0, m = mean[i];
        for (int64_t k = 0; k < inner; k++) s += dy[k], d += dy[k] * (x[k] - m);
        plain[i] += s;
        dots[i] += d;
      }
    }
  }
}

/* Rows [begin, end) of the normalised output. */
static void normalize(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t c = j->channels, inner = j->inner;
  const float *mean = j->mean, *mul = j->mul, *add = j->add;
  for (int64_t r = begin; r < end; r++) {
    const float *x = j->x + r * c * inner;
    float *y = j->out + r * c * inner;
    if (inner == 1) {
      for (int64_t i = 0; i < c; i++) y[i] = (x[i] - mean[i]) * mul[i] + add[i];
    } else {
      for (int64_t i = 0; i < c; i++) {
        for (int64_t k = 0; k < inner; k++) y[i * inner + k] = (x[i * inner + k] - mean[i]) * mul[i] + add[i];
      }
    }
    if (j->side) {
      const float *side = j->side + r * c * inner;
      for (int64_t i = 0; i < c * inner; i++) y[i] += side[i];
    }
    if (j->relu) {
      for (int64_t i = 0; i < c * inner; i++) y[i] = y[i] < 0 ? 0 : y[i];
    }
  }
}

static void input_grad(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t c = j->channels, inner = j->inner;
  const float *mean = j->mean, *mul = j->mul, *add = j->add, *dot = j->dot;
  for (int64_t r = begin; r < end; r++) {
    const float *x = j->x + r * c * inner, *dy = j->dy + r * c * inner;
    float *dx = j->out + r * c * inner;
    if (inner == 1) {
      for (int64_t i = 0; i < c; i++) dx[i] = mul[i] * (dy[i] - add[i] - (x[i] - mean[i]) * dot[i]);
      continue;
    }
    for (int64_t i = 0; i < c; i++, x += inner, dy += inner, dx += inner) {
      for (int64_t k = 0; k < inner; k++) dx[k] = mul[i] * (dy[k] - add[i] - (x[k] - mean[i]) * dot[i]);
    }
  }
}

/* out[i] = scale times the sum over pieces of sums[piece * step + i]. */
static void fold(const job *j, const float *sums, int64_t step, double scale, float *out) {
  int64_t pieces = pieces_of(j);
  for (int64_t i = 0; i < j->channels; i++) {
    double s = 0;
    for (int64_t p = 0; p < pieces; p++) s += (double)sums[p * step + i];
    out[i] = (float)(s * scale);
  }
}

static void over_pieces(td_kernel_ctx *ctx, job *j, void (*fn)(void *, int64_t, int64_t)) {
  td_ctx_parallel_for(ctx, pieces_of(j), (double)TD_MIN(PIECE_ROWS, j->outer) * (double)(j->channels * j->inner) / 3,
                      fn, j);
}
static void over_rows(td_kernel_ctx *ctx, job *j, void (*fn)(void *, int64_t, int64_t)) {
  td_ctx_parallel_for(ctx, j->outer, (double)(j->channels * j->inner) / 3 + 1, fn, j);
}

/* ---- shapes ---- */

static td_status view(const state *s, const td_tensor *x, job *j) {
  if (x->rank != s->rank) {
    char *text = td_tensor_shape_text(x);
    td_status status = td_invalid_argument("input must be %d-dimensional%s", s->rank, text);
    td_free(text);
    return status;
  }
  int axis = s->channels_first ? 1 : x->rank - 1;
  j->channels = x->dims[axis];
  j->outer = j->inner = 1;
  if (!x->count) return TD_STATUS_OK;
  for (int i = 0; i < axis; i++) j->outer *= x->dims[i];
  for (int i = axis + 1; i < x->rank; i++) j->inner *= x->dims[i];
  return TD_STATUS_OK;
}

static td_status vector(const td_tensor *t, const char *what, int64_t channels, bool may_be_empty) {
  if (t->rank == 1 && (t->dims[0] == channels || (may_be_empty && !t->dims[0]))) return TD_STATUS_OK;
  char *text = td_tensor_shape_text(t);
  td_status s = t->rank != 1 ? td_invalid_argument("%s must be 1-dimensional%s", what, text)
                             : td_invalid_argument(
                                   "%s must have the same number of elements as the channels of x, got %lld and %lld",
                                   what, (long long)t->dims[0], (long long)channels);
  td_free(text);
  return s;
}

/* ---- forward ---- */

static td_status set_scalar(td_kernel_ctx *ctx, int i) {
  if (ctx->kernel->output_count <= i) return TD_STATUS_OK;
  td_tensor *t;
  TD_TRY(td_out_alloc_dims(ctx, i, 0, NULL, &t));
  memset(t->data, 0, t->size);
  return TD_STATUS_OK;
}

/* Mean and variance of the batch into outputs 1-4, and what normalises into `coefficients` (mean, mul, add). */
static td_status statistics(td_kernel_ctx *ctx, job *j, float *coefficients, float *out[4]) {
  const state *s = ctx->state;
  int64_t c = j->channels, rest = j->outer * j->inner;
  td_tensor *sums;
  TD_TRY(td_tensor_create_dims(TD_FLOAT, 2, (const int64_t[]){pieces_of(j), c}, &sums));
  j->sums = TD_DATA(sums, float);
  over_pieces(ctx, j, sum_pieces);
  fold(j, j->sums, c, 1.0 / (double)rest, out[2]);
  j->mean = out[2];
  over_pieces(ctx, j, sum_pieces);
  fold(j, j->sums, c, 1.0 / (double)rest, out[3]);
  td_tensor_release(sums);
  const float *old_mean = TD_DATA(td_in(ctx, 3), float), *old_variance = TD_DATA(td_in(ctx, 4), float);
  float unbias = (float)rest / (float)(rest > 1 ? rest - 1 : 1), f = s->factor;
  for (int64_t i = 0; i < c; i++) {
    bool blend = f != 1;
    out[0][i] = blend ? (1 - f) * old_mean[i] + f * out[2][i] : out[2][i];
    out[1][i] = blend ? (1 - f) * old_variance[i] + f * unbias * out[3][i] : unbias * out[3][i];
  }
  memcpy(coefficients, out[2], (size_t)c * sizeof(float));
  return TD_STATUS_OK;
}

static td_status run_forward(td_kernel_ctx *ctx, job *j, td_tensor *work, float *out[4]) {
  const state *s = ctx->state;
  int64_t c = j->channels;
  td_tensor *coefficients = NULL, *x = NULL, *side = NULL;
  td_status status;
  TD_TRY_GOTO(td_tensor_create_dims(TD_FLOAT, 2, (const int64_t[]){3, c}, &coefficients));
  TD_TRY_GOTO(td_floats_of(td_in(ctx, 0), &x));
  if (s->side_inputs) TD_TRY_GOTO(td_floats_of(td_in(ctx, 5), &side));
  float *mean = TD_DATA(coefficients, float), *mul = mean + c, *add = mul + c;
  j->x = TD_DATA(x, float);
  j->out = TD_DATA(work, float);
  j->side = side ? TD_DATA(side, float) : NULL;
  j->relu = s->relu;
  if (s->is_training) {
    TD_TRY_GOTO(statistics(ctx, j, mean, out));
  } else {
    for (int i = 0; i < 4; i++) memcpy(out[i], td_in(ctx, 3 + i % 2)->data, (size_t)c * sizeof(float));
    memcpy(mean, out[0], (size_t)c * sizeof(float));
  }
  const float *scale = TD_DATA(td_in(ctx, 1), float), *offset = TD_DATA(td_in(ctx, 2), float);
  const float *variance = s->is_training ? out[3] : out[1];
  for (int64_t i = 0; i < c; i++) {
    mul[i] = scale[i] / sqrtf(variance[i] + s->epsilon);
    add[i] = offset[i];
  }
  j->mean = mean;
  j->mul = mul;
  j->add = add;
  over_rows(ctx, j, normalize);
cleanup:
  td_tensor_release(coefficients);
  td_tensor_release(x);
  td_tensor_release(side);
  return status;
}

static td_status forward(td_kernel_ctx *ctx) {
  static const char *const names[] = {"x", "scale", "offset", "estimated_mean", "estimated_variance"};
  const state *s = ctx->state;
  td_tensor *x = td_in(ctx, 0), *work = NULL, *t;
  float *out[4];
  job j = {0};
  TD_TRY(view(s, x, &j));
  bool unused = s->is_training && s->factor == 1;
  for (int i = 1; i < 5; i++) TD_TRY(vector(td_in(ctx, i), names[i], j.channels, i > 2 && unused));
  if (s->side_inputs && !td_tensor_same_shape(td_in(ctx, 5), x))
    return td_invalid_argument("side_input shape must be equal to input shape");
  for (int i = 0; i < 4; i++) {
    TD_TRY(td_out_alloc_dims(ctx, 1 + i, 1, &j.channels, &t));
    out[i] = TD_DATA(t, float);
  }
  TD_TRY(set_scalar(ctx, 5));
  TD_TRY(td_floats_out(ctx, 0, x->rank, x->dims, &work));
  td_status status = TD_STATUS_OK;
  if (x->count) {
    status = run_forward(ctx, &j, work, out);
  } else {
    for (int64_t i = 0; i < 4 * j.channels; i++) out[i / j.channels][i % j.channels] = NAN;
  }
  td_floats_finish(ctx, 0, work);
  return status;
}

/* ---- gradient ---- */

static td_status run_gradient(td_kernel_ctx *ctx, job *j, td_tensor *work, float *dscale, float *doffset) {
  const state *s = ctx->state;
  int64_t c = j->channels, rest = j->outer * j->inner;
  td_tensor *coefficients = NULL, *x = NULL, *dy = NULL, *sums = NULL;
  td_status status;
  TD_TRY_GOTO(td_tensor_create_dims(TD_FLOAT, 2, (const int64_t[]){3, c}, &coefficients));
  TD_TRY_GOTO(td_tensor_create_dims(TD_FLOAT, 3, (const int64_t[]){pieces_of(j), 2, c}, &sums));
  TD_TRY_GOTO(td_floats_of(td_in(ctx, 0), &dy));
  TD_TRY_GOTO(td_floats_of(td_in(ctx, 1), &x));
  float *mul = TD_DATA(coefficients, float), *add = mul + c, *dot = add + c;
  const float *scale = TD_DATA(td_in(ctx, 2), float), *variance = TD_DATA(td_in(ctx, 4), float);
  j->x = TD_DATA(x, float);
  j->dy = TD_DATA(dy, float);
  j->mean = TD_DATA(td_in(ctx, 3), float);
  j->sums = TD_DATA(sums, float);
  j->out = TD_DATA(work, float);
  over_pieces(ctx, j, grad_pieces);
  fold(j, j->sums, 2 * c, 1, doffset);
  fold(j, j->sums + c, 2 * c, 1, dscale);
  for (int64_t i = 0; i < c; i++) {
    float inverse = 1 / sqrtf(variance[i] + s->epsilon);
    mul[i] = scale[i] * inverse;
    add[i] = s->is_training ? doffset[i] / (float)rest : 0;
    dot[i] = s->is_training ? dscale[i] / (float)rest * inverse * inverse : 0;
    dscale[i] *= inverse;
  }
  j->mul = mul;
  j->add = add;
  j->dot = dot;
  over_rows(ctx, j, input_grad);
cleanup:
  td_tensor_release(coefficients);
  td_tensor_release(sums);
  td_tensor_release(x);
  td_tensor_release(dy);
  return status;
}

static td_status gradient(td_kernel_ctx *ctx) {
  static const char *const names[] = {NULL, NULL, "scale", "saved mean", "saved variance"};
  const state *s = ctx->state;
  td_tensor *dy = td_in(ctx, 0), *x = td_in(ctx, 1), *work = NULL, *dscale, *doffset;
  job j = {0};
  TD_TRY(view(s, x, &j));
  if (!td_tensor_same_shape(dy, x)) {
    char *a = td_tensor_shape_text(x), *b = td_tensor_shape_text(dy);
    td_status status = td_invalid_argument(
        "x and y_backprop must have same shape, but x has shape %s and y_backprop has shape %s", a, b);
    td_free(a);
    td_free(b);
    return status;
  }
  for (int i = 2; i < 5; i++) TD_TRY(vector(td_in(ctx, i), names[i], j.channels, false));
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &j.channels, &dscale));
  TD_TRY(td_out_alloc_dims(ctx, 2, 1, &j.channels, &doffset));
  for (int i = 3; i < 5; i++) TD_TRY(set_scalar(ctx, i));
  TD_TRY(td_floats_out(ctx, 0, x->rank, x->dims, &work));
  td_status status = TD_STATUS_OK;
  if (x->count) {
    status = run_gradient(ctx, &j, work, TD_DATA(dscale, float), TD_DATA(doffset, float));
  } else {
    memset(dscale->data, 0, dscale->size);
    memset(doffset->data, 0, doffset->size);
  }
  td_floats_finish(ctx, 0, work);
  return status;
}

#define KERNEL(op_name, run) \
  { .op = op_name, .state_size = sizeof(state), .create = create, .compute = run }

static const td_kernel_def kernels[] = {
    KERNEL("FusedBatchNorm", forward),
    KERNEL("FusedBatchNormV2", forward),
    {.op = "FusedBatchNormV3",
     .types = {{"U", TD_SET(TD_FLOAT)}},
     .state_size = sizeof(state),
     .create = create,
     .compute = forward},
    KERNEL("_FusedBatchNormEx", forward),
    KERNEL("FusedBatchNormGrad", gradient),
    KERNEL("FusedBatchNormGradV2", gradient),
    KERNEL("FusedBatchNormGradV3", gradient),
};

TD_FAMILY(batch_norm, ops, kernels);

/* Samples of distributions that take a variable number of draws, for each element of a tensor of parameters:
 * RandomGamma, RandomPoisson, RandomPoissonV2 (TensorFlow's random_op, random_poisson_op).
 *
 * Each output has a region of the stream of its own, so that outputs can be made in any order. All is computed in
 * double and rounded once, whatever the types. */
#include <math.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/random_stream.h"
#include "tensor/number.h"

/* The draws of one output. Numbers come in pairs, of which TensorFlow uses the second one first. */
typedef struct draws {
  td_philox generator;
  double normals[2], uniforms[2];
  int normals_left, uniforms_left;
} draws;

static double next_uniform(draws *d) {
  if (!d->uniforms_left) {
    uint32_t x[TD_PHILOX_WORDS];
    td_philox_next(&d->generator, x);
    d->uniforms[0] = td_philox_double(x[0], x[1]);
    d->uniforms[1] = td_philox_double(x[2], x[3]);
    d->uniforms_left = 2;
  }
  return d->uniforms[--d->uniforms_left];
}

static double next_normal(draws *d) {
  if (!d->normals_left) {
    uint32_t x[TD_PHILOX_WORDS];
    td_philox_next(&d->generator, x);
    td_random_normal_pair_double(x, d->normals);
    d->normals_left = 2;
  }
  return d->normals[--d->normals_left];
}

/* ---- gamma: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000 ---- */

static double draw_gamma(draws *draw, double alpha) {
  if (alpha == 1) return -log1p(-next_uniform(draw)); /* exponential */
  bool below_one = alpha < 1;                         /* then of alpha + 1, scaled down */
  double d = alpha + (below_one ? 2.0 / 3 : -1.0 / 3), c = 1.0 / 3 / sqrt(d);
  for (;;) {
    double x = next_normal(draw), v = 1 + c * x;
    if (v <= 0) continue;
    v = v * v * v;
    double u = next_uniform(draw);
    bool accepted = u < 1 - 0.0331 * (x * x) * (x * x) || log(u) < 0.5 * x * x + d * (1 - v + log(v));
    if (!accepted) continue;
    return below_one ? d * v * pow(next_uniform(draw), 1 / alpha) : d * v;
  }
}

/* ---- Poisson: Knuth's product of uniforms for small rates, else Hörmann, "The transformed rejection method for
 * generating Poisson random variables", 1993 ---- */

static double draw_small_poisson(draws *draw, double rate) {
  double limit = exp(-rate), product = 1;
  for (double n = 0;; n++) {
    product *= next_uniform(draw);
    if (product <= limit) return n;
  }
}

static double draw_large_poisson(draws *draw, double rate) {
  double log_rate = log(rate), b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
  double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  for (;;) {
    double u = next_uniform(draw) - 0.5, v = next_uniform(draw), us = 0.5 - fabs(u);
    double k = floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    int sign;
    if (log(v * inverse_alpha / (a / (us * us) + b)) <= -rate + k * log_rate - lgamma_r(k + 1, &sign)) return k;
  }
}

static double draw_poisson(draws *draw, double rate) {
  if (!isfinite(rate)) return NAN; /* no draw would ever end */
  return rate < 10 ? draw_small_poisson(draw, rate) : draw_large_poisson(draw, rate);
}

/* ---- elements ---- */

static int64_t to_integer(double v, int64_t low, int64_t high) {
  if (isnan(v)) return 0;
  if (v <= (double)low) return low;
  return v >= (double)high ? high : (int64_t)v;
}

static void put(td_tensor *t, int64_t i, double v) {
  switch ((td_dtype)t->dtype) {
    case TD_INT32:
      TD_DATA(t, int32_t)[i] = (int32_t)to_integer(v, INT32_MIN, INT32_MAX);
      break;
    case TD_INT64:
      TD_DATA(t, int64_t)[i] = to_integer(v, INT64_MIN, INT64_MAX);
      break;
    default:
      td_tensor_set_complex(t, i, v, 0);
      break;
  }
}

/* ---- kernels ---- */

typedef struct samples_state {
  td_random_stream stream;
  double (*draw)(draws *draw, double parameter);
  const char *parameter; /* its name */
} samples_state;

static td_status create_samples(td_kernel_builder *b, void *state) {
  samples_state *st = state;
  bool gamma = td_str_is(b->node->op, "RandomGamma");
  st->draw = gamma ? draw_gamma : draw_poisson;
  st->parameter = gamma ? "alpha" : "rate";
  return td_random_stream_init(&st->stream, b);
}

static void destroy_samples(void *state) { td_random_stream_deinit(&((samples_state *)state)->stream); }

typedef struct job {
  const samples_state *state;
  const td_tensor *parameters;
  td_tensor *out;
  td_philox stream;
} job;

/* Output n is sample n % samples of parameter n / samples, and lies in memory the other way round. */
static void make_samples(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t parameters = j->parameters->count, samples = j->out->count / parameters;
  for (int64_t n = begin; n < end; n++) {
    draws d = {.generator = td_philox_at(&j->stream, (uint64_t)n * TD_RANDOM_STEPS_PER_OUTPUT)};
    put(j->out, n % samples * parameters + n / samples,
        j->state->draw(&d, td_tensor_real_at(j->parameters, n / samples)));
  }
}

static td_status run_samples(td_kernel_ctx *ctx) {
  samples_state *st = ctx->state;
  const td_tensor *parameters = td_in(ctx, 1);
  td_shape shape;
  td_tensor *out;
  TD_TRY(td_shape_from_tensor(td_in(ctx, 0), false, &shape));
  bool is_empty = false;
  for (int i = 0; i < shape.rank; i++) is_empty = is_empty || !shape.dims[i];
  for (int i = 0; i < parameters->rank; i++) TD_TRY(td_shape_append(&shape, parameters->dims[i]));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  if (is_empty) return TD_STATUS_OK;
  if (!parameters->count)
    return td_invalid_argument("Input %s should have non-zero element count, got: 0", st->parameter);
  job j = {st, parameters, out,
           td_random_stream_reserve(&st->stream, (uint64_t)out->count * TD_RANDOM_STEPS_PER_OUTPUT)};
  td_ctx_parallel_for(ctx, out->count, 150, make_samples, &j);
  return TD_STATUS_OK;
}

static void compute_samples(td_kernel_ctx *ctx) { td_random_run(ctx, 0, run_samples); }

/* ---- tables ---- */

#define SEEDS   "seed: int = 0; seed2: int = 0; S: type in {int32, int64}; "
#define NUMBERS "half, float, double, int32, int64"

static const td_op_spec ops[] = {
    {"RandomGamma", "shape: S; alpha: T", "output: T", SEEDS "T: type in {half, float, double}", TD_OP_STATEFUL},
    {"RandomPoisson", "shape: S; rate: dtype", "output: dtype", SEEDS "dtype: type in {half, float, double}",
     TD_OP_STATEFUL},
    {"RandomPoissonV2", "shape: S; rate: R", "output: dtype",
     SEEDS "R: type in {" NUMBERS "} = double; dtype: type in {" NUMBERS "} = int64", TD_OP_STATEFUL},
};

#define KERNEL(name)                                                                                      \
  {                                                                                                       \
    .op = name, .cost = TD_COST_EXPENSIVE, .state_size = sizeof(samples_state), .create = create_samples, \
    .destroy = destroy_samples, .compute_async = compute_samples                                          \
  }

static const td_kernel_def kernels[] = {KERNEL("RandomGamma"), KERNEL("RandomPoisson"), KERNEL("RandomPoissonV2")};

TD_FAMILY(random_samples, ops, kernels);

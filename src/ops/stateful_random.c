/* Random numbers whose generator is a variable: StatefulUniform and its kin, RngSkip (TensorFlow's
 * stateful_random_ops); and NonDeterministicInts.
 *
 * The variable is a vector of int64: counter (low, high), key; the oldest op finds the algorithm before them. */
#include "base/mem.h"
#include "base/random.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/random_stream.h"

enum { ALG_PHILOX = 1, STATE_WORDS = 3 };

typedef struct rng_state {
  td_random_spec spec;
  bool has_tag; /* the variable begins with the algorithm */
  int shape;    /* the input */
} rng_state;

static td_random_kind kind_of(td_str op) {
  if (td_str_is(op, "StatefulUniform")) return TD_RANDOM_UNIFORM;
  if (td_str_is(op, "StatefulUniformInt")) return TD_RANDOM_INT;
  if (td_str_is(op, "StatefulUniformFullInt") || td_str_is(op, "NonDeterministicInts")) return TD_RANDOM_FULL_INT;
  return td_str_is(op, "StatefulTruncatedNormal") ? TD_RANDOM_TRUNCATED : TD_RANDOM_NORMAL;
}

static td_status create_rng(td_kernel_builder *b, void *state) {
  rng_state *st = state;
  st->spec.kind = kind_of(b->node->op);
  st->has_tag = td_str_is(b->node->op, "StatefulStandardNormal");
  st->shape = td_str_is(b->node->op, "NonDeterministicInts") ? 0 : st->has_tag ? 1 : 2;
  return td_attr_type(b->node, "dtype", &st->spec.dtype);
}

/* ---- the generator ---- */

static td_status check_state(const td_tensor *t, int skip) {
  if (!t) return td_failed_precondition("The RNG state variable is not initialized");
  if (t->dtype != TD_INT64)
    return td_invalid_argument("dtype of RNG state variable must be int64, not %s", td_dtype_name(t->dtype));
  if (t->rank != 1) return td_invalid_argument("RNG state must have one and only one dimension, not %d", t->rank);
  if (t->count < skip + STATE_WORDS)
    return td_invalid_argument("For the Philox algorithm, the size of state must be at least %d; got %lld",
                               skip + STATE_WORDS, (long long)t->count);
  if (skip && TD_DATA(t, int64_t)[0] != ALG_PHILOX)
    return td_invalid_argument("Unsupported algorithm id: %lld", (long long)TD_DATA(t, int64_t)[0]);
  return TD_STATUS_OK;
}

/* With the variable's lock held: takes what `count` outputs may need. */
static td_status advance(td_variable *v, int skip, uint64_t count, td_philox *out) {
  TD_TRY(check_state(v->value, skip));
  TD_TRY(td_variable_make_exclusive(v, true));
  uint64_t *words = TD_DATA(v->value, uint64_t) + skip;
  *out = td_philox_from_key_counter(words[2], words[0], words[1]);
  td_philox next = td_philox_at(out, count * TD_RANDOM_STEPS_PER_OUTPUT);
  words[0] = next.counter[0] | (uint64_t)next.counter[1] << 32;
  words[1] = next.counter[2] | (uint64_t)next.counter[3] << 32;
  return TD_STATUS_OK;
}

static td_status take(td_kernel_ctx *ctx, int skip, uint64_t count, td_philox *out) {
  void *found;
  TD_TRY(td_handle_lookup(td_in(ctx, 0), ctx->device, &td_resource_variable_type, &found));
  td_variable *v = found;
  pthread_rwlock_wrlock(&v->lock);
  td_status s = advance(v, skip, count, out);
  pthread_rwlock_unlock(&v->lock);
  td_resource_release(v);
  return s;
}

/* "input 1 (0-based) must have shape [], not [..]" */
static td_status int_scalar(td_kernel_ctx *ctx, int i, int64_t *out) {
  const td_tensor *t = td_in(ctx, i);
  if (t->rank) {
    char *shape = td_tensor_shape_text(t);
    td_status s = td_invalid_argument("input %d (0-based) must have shape [], not %s", i, shape);
    td_free(shape);
    return s;
  }
  *out = TD_DATA(t, int64_t)[0];
  return TD_STATUS_OK;
}

static td_status check_algorithm(td_kernel_ctx *ctx) {
  int64_t algorithm = 0;
  TD_TRY(int_scalar(ctx, 1, &algorithm));
  if (algorithm == ALG_PHILOX) return TD_STATUS_OK;
  return td_invalid_argument("Unsupported algorithm id: %lld", (long long)algorithm);
}

/* ---- kernels ---- */

static td_status out_random(td_kernel_ctx *ctx, const td_random_spec *spec) {
  const rng_state *st = ctx->state;
  td_shape shape;
  td_tensor *out;
  td_philox stream;
  const td_tensor *dims = td_in(ctx, st->shape);
  if (dims->dtype != TD_INT32 && dims->dtype != TD_INT64)
    return td_invalid_argument("shape must be a vector of {int32,int64}, got %s", td_dtype_name(dims->dtype));
  TD_TRY(td_shape_from_tensor(dims, false, &shape));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  if (st->shape)
    TD_TRY(take(ctx, st->has_tag, (uint64_t)out->count, &stream));
  else
    stream = td_philox_from_seeds(td_random_u64(), td_random_u64());
  if (out->count) td_random_fill_tensor(ctx, spec, &stream, out);
  return TD_STATUS_OK;
}

static td_status run_rng(td_kernel_ctx *ctx) {
  const rng_state *st = ctx->state;
  td_random_spec spec = st->spec;
  if (st->shape == 2) TD_TRY(check_algorithm(ctx));
  if (spec.kind == TD_RANDOM_INT) TD_TRY(td_random_read_range(ctx, 3, &spec));
  return out_random(ctx, &spec);
}

static void compute_rng(td_kernel_ctx *ctx) {
  const rng_state *st = ctx->state;
  td_dtype t = (td_dtype)td_in(ctx, st->shape)->dtype;
  if (t == TD_INT32 || t == TD_INT64)
    td_random_run(ctx, st->shape, run_rng);
  else
    td_kernel_done(ctx, run_rng(ctx)); /* which refuses it */
}

static td_status compute_skip(td_kernel_ctx *ctx) {
  int64_t delta = 0;
  td_philox before;
  TD_TRY(check_algorithm(ctx));
  TD_TRY(int_scalar(ctx, 2, &delta));
  return take(ctx, 0, (uint64_t)delta, &before);
}

/* ---- tables ---- */

#define TYPES(type) "dtype: type = " type "; shape_dtype: type = int64"
#define RNG         "resource: resource; algorithm: int64; shape: shape_dtype"

static const td_op_spec ops[] = {
    {"NonDeterministicInts", "shape: shape_dtype", "output: dtype", TYPES("int64"), TD_OP_STATEFUL},
    {"RngSkip", "resource: resource; algorithm: int64; delta: int64", NULL, NULL, TD_OP_STATEFUL},
    {"StatefulStandardNormal", "resource: resource; shape: shape_dtype", "output: dtype", TYPES("float"),
     TD_OP_STATEFUL},
    {"StatefulStandardNormalV2", RNG, "output: dtype", TYPES("float"), TD_OP_STATEFUL},
    {"StatefulTruncatedNormal", RNG, "output: dtype", TYPES("float"), TD_OP_STATEFUL},
    {"StatefulUniform", RNG, "output: dtype", TYPES("float"), TD_OP_STATEFUL},
    {"StatefulUniformFullInt", RNG, "output: dtype", TYPES("uint64"), TD_OP_STATEFUL},
    {"StatefulUniformInt", RNG "; minval: dtype; maxval: dtype", "output: dtype", TYPES("int64"), TD_OP_STATEFUL},
};

#define INTS (TD_SET(TD_INT32) | TD_SET(TD_INT64) | TD_SET(TD_UINT32) | TD_SET(TD_UINT64))
#define KERNEL(name, set)                                                                          \
  {                                                                                                \
    .op = name, .types = {{"dtype", set}}, .cost = TD_COST_CHEAP, .state_size = sizeof(rng_state), \
    .create = create_rng, .compute_async = compute_rng                                             \
  }

static const td_kernel_def kernels[] = {
    KERNEL("NonDeterministicInts", INTS),
    {.op = "RngSkip", .cost = TD_COST_CHEAP, .compute = compute_skip},
    KERNEL("StatefulStandardNormal", TD_SET_FLOATING),
    KERNEL("StatefulStandardNormalV2", TD_SET_FLOATING),
    KERNEL("StatefulTruncatedNormal", TD_SET_FLOATING),
    KERNEL("StatefulUniform", TD_SET_FLOATING),
    KERNEL("StatefulUniformFullInt", INTS),
    KERNEL("StatefulUniformInt", INTS),
};

TD_FAMILY(stateful_random, ops, kernels);

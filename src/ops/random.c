/* Random numbers: the stateful ops, whose stream goes on from run to run, and the stateless ones, whose stream is
 * given by the run's seeds. Streams are TensorFlow's (random_op, stateless_random_ops, guarded_philox_random). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"
#include "ops/families.h"
#include "ops/random_stream.h"
#include "tensor/number.h"

typedef struct random_state {
  td_random_spec spec;
  td_compute_fn run; /* fills: the computation behind compute_fill() */
  td_random_stream stream;
} random_state;

/* ---- creation ---- */

static void set_kind(random_state *st, td_random_kind kind, td_dtype dtype) {
  st->spec.kind = kind;
  st->spec.dtype = dtype;
}

static void destroy(void *state) { td_random_stream_deinit(&((random_state *)state)->stream); }

/* The kind by the op's name. */
static td_random_kind kind_of(td_str op) {
  if (td_str_starts(op, TD_STR("Stateless"))) op = td_str_n(op.data + 9, op.size - 9);
  if (td_str_starts(op, TD_STR("Truncated"))) return TD_RANDOM_TRUNCATED;
  if (td_str_starts(op, TD_STR("RandomUniformFullInt"))) return TD_RANDOM_FULL_INT;
  if (td_str_starts(op, TD_STR("RandomUniformInt"))) return TD_RANDOM_INT;
  if (td_str_starts(op, TD_STR("RandomUniform"))) return TD_RANDOM_UNIFORM;
  return TD_RANDOM_NORMAL;
}

static td_status compute_stateful(td_kernel_ctx *ctx);
static td_status compute_stateless(td_kernel_ctx *ctx);
static td_status compute_stateless_v2(td_kernel_ctx *ctx);

static td_status create_stateful(td_kernel_builder *b, void *state) {
  random_state *st = state;
  st->run = compute_stateful;
  td_random_kind kind = kind_of(b->node->op);
  td_dtype dtype;
  TD_TRY(td_attr_type(b->node, kind == TD_RANDOM_INT ? "Tout" : "dtype", &dtype));
  set_kind(st, kind, dtype);
  return td_random_stream_init(&st->stream, b);
}

static td_status create_stateless(td_kernel_builder *b, void *state) {
  td_dtype dtype;
  ((random_state *)state)->run = td_str_ends(b->node->op, TD_STR("V2")) ? compute_stateless_v2 : compute_stateless;
  TD_TRY(td_attr_type(b->node, "dtype", &dtype));
  set_kind(state, kind_of(b->node->op), dtype);
  return TD_STATUS_OK;
}

/* ---- filling ---- */

static td_status alloc_shape(td_kernel_ctx *ctx, td_tensor **out) {
  td_shape shape;
  TD_TRY(td_shape_from_tensor(td_in(ctx, 0), false, &shape));
  return td_out_alloc(ctx, 0, &shape, out);
}

static td_status compute_stateful(td_kernel_ctx *ctx) {
  random_state *st = ctx->state;
  td_random_spec spec = st->spec;
  td_tensor *out;
  if (spec.kind == TD_RANDOM_INT && td_in(ctx, 1)->rank + td_in(ctx, 2)->rank)
    return td_random_read_range(ctx, 1, &spec);
  TD_TRY(alloc_shape(ctx, &out));
  if (!out->count) return TD_STATUS_OK; /* an impossible range is fine then */
  if (spec.kind == TD_RANDOM_INT) TD_TRY(td_random_read_range(ctx, 1, &spec));
  td_philox stream = td_random_stream_reserve(&st->stream, (uint64_t)out->count * TD_RANDOM_STEPS_PER_OUTPUT);
  td_random_fill_tensor(ctx, &spec, &stream, out);
  return TD_STATUS_OK;
}

/* ---- stateless ---- */

static td_status read_seeds(const td_tensor *t, td_philox *out) {
  if (t->rank != 1 || t->count != 2) {
    char *shape = td_tensor_shape_text(t);
    td_status s = td_invalid_argument("seed must have shape [2], not %s", shape);
    td_free(shape);
    return s;
  }
  uint64_t seeds[2];
  for (int i = 0; i < 2; i++) switch ((td_dtype)t->dtype) {
      case TD_INT32:
        seeds[i] = (uint64_t)(int64_t)TD_DATA(t, int32_t)[i];
        break;
      case TD_UINT32:
        seeds[i] = TD_DATA(t, uint32_t)[i];
        break;
      default:
        seeds[i] = TD_DATA(t, uint64_t)[i];
        break;
    }
  *out = td_philox_from_stateless_seeds(seeds[0], seeds[1]);
  return TD_STATUS_OK;
}

enum { ALG_PHILOX = 1, ALG_AUTO = 3 };

/* key, counter and algorithm of the V2 ops, inputs `at` to `at` + 2. */
static td_status read_key(td_kernel_ctx *ctx, int at, td_philox *out) {
  const td_tensor *key = td_in(ctx, at), *counter = td_in(ctx, at + 1), *alg = td_in(ctx, at + 2);
  if (key->rank != 1 || key->count != 1)
    return td_invalid_argument("key must have shape [1], not a tensor of rank %d with %lld elements", key->rank,
                               (long long)key->count);
  if (counter->rank != 1 || counter->count < 2)
    return td_invalid_argument("counter must be a vector with length at least 2, not of rank %d with %lld elements",
                               counter->rank, (long long)counter->count);
  if (alg->rank) return td_invalid_argument("algorithm must be of shape [], not of rank %d", alg->rank);
  int32_t a = TD_DATA(alg, int32_t)[0];
  if (a != ALG_PHILOX && a != ALG_AUTO) return td_invalid_argument("Unsupported algorithm id: %d", a);
  *out = td_philox_from_key_counter(TD_DATA(key, uint64_t)[0], TD_DATA(counter, uint64_t)[0],
                                    TD_DATA(counter, uint64_t)[1]);
  return TD_STATUS_OK;
}

static td_status stateless_into(td_kernel_ctx *ctx, const td_philox *stream, int range_at) {
  const random_state *st = ctx->state;
  td_random_spec spec = st->spec;
  td_tensor *out;
  if (spec.kind == TD_RANDOM_INT && td_in(ctx, range_at)->rank + td_in(ctx, range_at + 1)->rank)
    return td_random_read_range(ctx, range_at, &spec);
  TD_TRY(alloc_shape(ctx, &out));
  if (!out->count) return TD_STATUS_OK;
  if (spec.kind == TD_RANDOM_INT) TD_TRY(td_random_read_range(ctx, range_at, &spec));
  td_random_fill_tensor(ctx, &spec, stream, out);
  return TD_STATUS_OK;
}

static td_status compute_stateless(td_kernel_ctx *ctx) {
  td_philox stream;
  TD_TRY(read_seeds(td_in(ctx, 1), &stream));
  return stateless_into(ctx, &stream, 2);
}

static td_status compute_stateless_v2(td_kernel_ctx *ctx) {
  td_philox stream;
  TD_TRY(read_key(ctx, 1, &stream));
  return stateless_into(ctx, &stream, 4);
}

static void compute_fill(td_kernel_ctx *ctx) { td_random_run(ctx, 0, ((random_state *)ctx->state)->run); }

/* ---- keys ---- */

static td_status put_alg(td_kernel_ctx *ctx, int i) {
  td_tensor *alg;
  TD_TRY(td_out_alloc_dims(ctx, i, 0, NULL, &alg));
  TD_DATA(alg, int32_t)[0] = ALG_PHILOX;
  return TD_STATUS_OK;
}

/* StatelessRandomGetKeyCounter, …Alg */
static td_status compute_key_counter(td_kernel_ctx *ctx) {
  td_philox p;
  td_tensor *key, *counter;
  TD_TRY(read_seeds(td_in(ctx, 0), &p));
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &(int64_t){1}, &key));
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &(int64_t){2}, &counter));
  TD_DATA(key, uint64_t)[0] = p.key[0] | (uint64_t)p.key[1] << 32;
  TD_DATA(counter, uint64_t)[0] = p.counter[0] | (uint64_t)p.counter[1] << 32;
  TD_DATA(counter, uint64_t)[1] = p.counter[2] | (uint64_t)p.counter[3] << 32;
  return ctx->kernel->output_count > 2 ? put_alg(ctx, 2) : TD_STATUS_OK;
}

static td_status compute_alg(td_kernel_ctx *ctx) { return put_alg(ctx, 0); }

/* ---- shuffle ---- */

/* Rows of `in` in the order that swapping row i with one of those behind it gives. */
static td_status shuffle(td_kernel_ctx *ctx, const td_tensor *in, td_philox stream) {
  int64_t rows = in->dims[0], row = in->count / rows;
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, in, &out));
  size_t bytes;
  if (!td_mul_size((size_t)rows, sizeof(int64_t), &bytes))
    return td_resource_exhausted("shuffle of %lld rows", (long long)rows);
  int64_t *order = td_try_malloc(bytes);
  if (!order) return td_resource_exhausted("out of memory for the order of %lld rows", (long long)rows);
  for (int64_t i = 0; i < rows; i++) order[i] = i;
  td_philox_words words = td_philox_words_of(stream);
  for (int64_t i = 0; i + 1 < rows; i++) {
    uint32_t draw = td_philox_word(&words), left = (uint32_t)(rows - i); /* 32 bits, as TensorFlow */
    int64_t j = i + (left ? draw % left : 0), keep = order[i];
    order[i] = order[j];
    order[j] = keep;
  }
  size_t size = td_dtype_is_pod((td_dtype)in->dtype) ? td_dtype_size((td_dtype)in->dtype) * (size_t)row : 0;
  for (int64_t i = 0; i < rows; i++) {
    if (size)
      memcpy((char *)out->data + (size_t)i * size, (const char *)in->data + (size_t)order[i] * size, size);
    else
      td_tensor_copy_elements(out, i * row, in, order[i] * row, row);
  }
  td_free(order);
  return TD_STATUS_OK;
}

static bool nothing_to_shuffle(const td_tensor *t) { return t->count <= 1 || !t->rank || t->dims[0] <= 1; }

static td_status create_shuffle(td_kernel_builder *b, void *state) {
  return td_random_stream_init(&((random_state *)state)->stream, b);
}

static td_status compute_shuffle(td_kernel_ctx *ctx) {
  td_tensor *in = td_in(ctx, 0);
  if (nothing_to_shuffle(in)) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  return shuffle(ctx, in,
                 td_random_stream_reserve(&((random_state *)ctx->state)->stream, ((uint64_t)in->dims[0] - 1 + 3) / 4));
}

static td_status compute_stateless_shuffle(td_kernel_ctx *ctx) {
  td_tensor *in = td_in(ctx, 0);
  td_philox stream;
  TD_TRY(read_key(ctx, 1, &stream));
  if (nothing_to_shuffle(in)) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  return shuffle(ctx, in, stream);
}

/* ---- multinomial ---- */

typedef struct multinomial_job {
  const td_tensor *logits;
  td_tensor *out;
  const td_philox *stream;
  int64_t classes, samples;
  double *cdf; /* classes numbers a row */
} multinomial_job;

/* Unnormalised cumulative probabilities of a row; their total. Classes that are not finite never come. */
static double cumulate(const multinomial_job *j, int64_t b, double *cdf) {
  double top = -INFINITY, total = 0;
  for (int64_t c = 0; c < j->classes; c++) {
    double v = td_tensor_real_at(j->logits, b * j->classes + c);
    if (isfinite(v) && v > top) top = v;
  }
  for (int64_t c = 0; c < j->classes; c++) {
    double v = td_tensor_real_at(j->logits, b * j->classes + c);
    if (isfinite(v)) total += exp(v - top);
    cdf[c] = total;
  }
  return total;
}

/* A sample is two words of the stream, samples one behind the other from row to row. */
static void multinomial_rows(void *arg, int64_t begin, int64_t end) {
  const multinomial_job *j = arg;
  for (int64_t b = begin; b < end; b++) {
    double *cdf = j->cdf + b * j->classes, total = cumulate(j, b, cdf);
    uint64_t word = (uint64_t)b * (uint64_t)j->samples * 2;
    td_philox_words words = td_philox_words_of(td_philox_at(j->stream, word / TD_PHILOX_WORDS));
    for (uint64_t k = word % TD_PHILOX_WORDS; k; k--) td_philox_word(&words);
    for (int64_t s = 0; s < j->samples; s++) {
      uint32_t x0 = td_philox_word(&words), x1 = td_philox_word(&words);
      double find = td_philox_double(x0, x1) * total;
      int64_t low = 0, high = j->classes; /* the first class above */
      while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (find < cdf[middle])
          high = middle;
        else
          low = middle + 1;
      }
      if (j->out->dtype == TD_INT64)
        TD_DATA(j->out, int64_t)[b * j->samples + s] = low;
      else
        TD_DATA(j->out, int32_t)[b * j->samples + s] = (int32_t)low;
    }
  }
}

static td_status check_multinomial(const td_tensor *logits, const td_tensor *samples) {
  if (logits->rank != 2) {
    char *shape = td_tensor_shape_text(logits);
    td_status s = td_invalid_argument("logits should be a matrix, got shape %s", shape);
    td_free(shape);
    return s;
  }
  if (samples->rank) {
    char *shape = td_tensor_shape_text(samples);
    td_status s = td_invalid_argument("num_samples should be a scalar, got shape %s", shape);
    td_free(shape);
    return s;
  }
  if (TD_DATA(samples, int32_t)[0] < 0)
    return td_invalid_argument("num_samples should be nonnegative, got %d", TD_DATA(samples, int32_t)[0]);
  if (logits->dims[0] > INT32_MAX || logits->dims[1] > INT32_MAX)
    return td_invalid_argument("logits.shape = [%lld,%lld] too large for int", (long long)logits->dims[0],
                               (long long)logits->dims[1]);
  if (!logits->dims[1]) return td_invalid_argument("num_classes should be positive, got 0");
  return TD_STATUS_OK;
}

static td_status multinomial(td_kernel_ctx *ctx, random_state *st, td_philox stream) {
  const td_tensor *logits = td_in(ctx, 0);
  TD_TRY(check_multinomial(logits, td_in(ctx, 1)));
  int64_t rows = logits->dims[0], samples = TD_DATA(td_in(ctx, 1), int32_t)[0];
  td_tensor *out, *cdf;
  TD_TRY(td_out_alloc_dims(ctx, 0, 2, (int64_t[]){rows, samples}, &out));
  if (!out->count) return TD_STATUS_OK;
  if (st)
    stream = td_random_stream_reserve(
        &st->stream, (uint64_t)rows * (((uint64_t)samples + 3) / 4 * 4 * 2) * TD_RANDOM_STEPS_PER_OUTPUT);
  TD_TRY(td_tensor_create_dims(TD_DOUBLE, 2, logits->dims, &cdf));
  multinomial_job job = {logits, out, &stream, logits->dims[1], samples, cdf->data};
  td_ctx_parallel_for(ctx, rows, 20.0 * (double)logits->dims[1] + 50.0 * (double)samples, multinomial_rows, &job);
  td_tensor_release(cdf);
  return TD_STATUS_OK;
}

static td_status compute_multinomial(td_kernel_ctx *ctx) { return multinomial(ctx, ctx->state, (td_philox){0}); }

static td_status compute_stateless_multinomial(td_kernel_ctx *ctx) {
  td_philox stream;
  TD_TRY(read_seeds(td_in(ctx, 2), &stream));
  return multinomial(ctx, NULL, stream);
}

/* ---- tables ---- */

#define FLOATS "dtype: type in {half, bfloat16, float, double}"
#define SEEDS  "seed: int = 0; seed2: int = 0; "
#define STATELESS(NAME, MORE, TYPES) \
  { .name = NAME, .inputs = "shape: T; seed: Tseed" MORE, .outputs = "output: dtype", .attrs = TYPES }
#define STATELESS_V2(NAME, MORE, TYPES)                                                     \
  {                                                                                         \
    .name = NAME, .inputs = "shape: Tshape; key: uint64; counter: uint64; alg: int32" MORE, \
    .outputs = "output: dtype", .attrs = TYPES "; Tshape: type in {int32, int64} = int32"   \
  }
#define SEED_TYPE "; T: type in {int32, int64} = int32; Tseed: type in {int32, int64} = int64"

static const td_op_spec ops[] = {
    {.name = "RandomUniform",
     .inputs = "shape: T",
     .outputs = "output: dtype",
     .flags = TD_OP_STATEFUL,
     .attrs = SEEDS FLOATS "; T: type in {int32, int64}"},
    {.name = "RandomStandardNormal",
     .inputs = "shape: T",
     .outputs = "output: dtype",
     .flags = TD_OP_STATEFUL,
     .attrs = SEEDS FLOATS "; T: type in {int32, int64}"},
    {.name = "TruncatedNormal",
     .inputs = "shape: T",
     .outputs = "output: dtype",
     .flags = TD_OP_STATEFUL,
     .attrs = SEEDS FLOATS "; T: type in {int32, int64}"},
    {.name = "RandomUniformInt",
     .inputs = "shape: T; minval: Tout; maxval: Tout",
     .outputs = "output: Tout",
     .flags = TD_OP_STATEFUL,
     .attrs = SEEDS "Tout: type in {int32, int64}; T: type in {int32, int64}"},
    {.name = "RandomShuffle",
     .inputs = "value: T",
     .outputs = "output: T",
     .flags = TD_OP_STATEFUL,
     .attrs = SEEDS "T: type"},
    {.name = "Multinomial",
     .inputs = "logits: T; num_samples: int32",
     .outputs = "output: output_dtype",
     .flags = TD_OP_STATEFUL,
     .attrs = SEEDS "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
                    "uint64}; output_dtype: type in {int32, int64} = int64"},
    {.name = "StatelessMultinomial",
     .inputs = "logits: T; num_samples: int32; seed: Tseed",
     .outputs = "output: output_dtype",
     .attrs = "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}; "
              "Tseed: type in {int32, int64} = int64; output_dtype: type in {int32, int64} = int64"},
    STATELESS("StatelessRandomUniform", "", FLOATS " = float" SEED_TYPE),
    STATELESS("StatelessRandomNormal", "", FLOATS " = float" SEED_TYPE),
    STATELESS("StatelessTruncatedNormal", "", FLOATS " = float" SEED_TYPE),
    STATELESS("StatelessRandomUniformInt", "; minval: dtype; maxval: dtype",
              "dtype: type in {int32, int64}; T: type in {int32, int64}; Tseed: type in {int32, int64} = int64"),
    STATELESS("StatelessRandomUniformFullInt", "",
              "dtype: type in {int32, int64, uint32, uint64} = uint64; T: type in {int32, int64} = int32; "
              "Tseed: type in {int32, int64, uint32, uint64} = int64"),
    STATELESS_V2("StatelessRandomUniformV2", "", FLOATS " = float"),
    STATELESS_V2("StatelessRandomNormalV2", "", FLOATS " = float"),
    STATELESS_V2("StatelessTruncatedNormalV2", "", FLOATS " = float"),
    STATELESS_V2("StatelessRandomUniformIntV2", "; minval: dtype; maxval: dtype",
                 "dtype: type in {int32, int64, uint32, uint64}"),
    STATELESS_V2("StatelessRandomUniformFullIntV2", "", "dtype: type in {int32, int64, uint32, uint64} = uint64"),
    {.name = "StatelessRandomGetKeyCounter",
     .inputs = "seed: Tseed",
     .outputs = "key: uint64; counter: uint64",
     .attrs = "Tseed: type in {int32, int64} = int64"},
    {.name = "StatelessRandomGetKeyCounterAlg",
     .inputs = "seed: Tseed",
     .outputs = "key: uint64; counter: uint64; alg: int32",
     .attrs = "Tseed: type in {int32, int64} = int64"},
    {.name = "StatelessRandomGetAlg", .outputs = "alg: int32", .flags = TD_OP_STATEFUL},
    {.name = "StatelessShuffle",
     .inputs = "value: T; key: uint64; counter: uint64; alg: int32",
     .outputs = "output: T",
     .attrs = "T: type"},
};

#define INTS32_64 (TD_SET(TD_INT32) | TD_SET(TD_INT64))
#define INTS_ALL  (INTS32_64 | TD_SET(TD_UINT32) | TD_SET(TD_UINT64))
#define KERNEL(NAME, ATTR, TYPES, CREATE, COMPUTE)                                                                  \
  {                                                                                                                 \
    .op = NAME, .types = {{ATTR, TYPES}}, .state_size = sizeof(random_state), .create = CREATE, .destroy = destroy, \
    .compute = COMPUTE                                                                                              \
  }
#define FILL(NAME, ATTR, TYPES, CREATE)                                                                                \
  {                                                                                                                    \
    .op = NAME, .types = {{ATTR, TYPES}}, .cost = TD_COST_CHEAP, .state_size = sizeof(random_state), .create = CREATE, \
    .destroy = destroy, .compute_async = compute_fill                                                                  \
  }

static const td_kernel_def kernels[] = {
    FILL("RandomUniform", "dtype", TD_SET_FLOATING, create_stateful),
    FILL("RandomStandardNormal", "dtype", TD_SET_FLOATING, create_stateful),
    FILL("TruncatedNormal", "dtype", TD_SET_FLOATING, create_stateful),
    FILL("RandomUniformInt", "Tout", INTS32_64, create_stateful),
    KERNEL("RandomShuffle", "T", TD_SET_ALL, create_shuffle, compute_shuffle),
    KERNEL("Multinomial", "T", TD_SET_FLOATING, create_shuffle, compute_multinomial),
    KERNEL("StatelessMultinomial", "T", TD_SET_FLOATING, NULL, compute_stateless_multinomial),
    FILL("StatelessRandomUniform", "dtype", TD_SET_FLOATING, create_stateless),
    FILL("StatelessRandomNormal", "dtype", TD_SET_FLOATING, create_stateless),
    FILL("StatelessTruncatedNormal", "dtype", TD_SET_FLOATING, create_stateless),
    FILL("StatelessRandomUniformInt", "dtype", INTS32_64, create_stateless),
    FILL("StatelessRandomUniformFullInt", "dtype", INTS_ALL, create_stateless),
    FILL("StatelessRandomUniformV2", "dtype", TD_SET_FLOATING, create_stateless),
    FILL("StatelessRandomNormalV2", "dtype", TD_SET_FLOATING, create_stateless),
    FILL("StatelessTruncatedNormalV2", "dtype", TD_SET_FLOATING, create_stateless),
    FILL("StatelessRandomUniformIntV2", "dtype", INTS_ALL, create_stateless),
    FILL("StatelessRandomUniformFullIntV2", "dtype", INTS_ALL, create_stateless),
    {.op = "StatelessRandomGetKeyCounter", .cost = TD_COST_CHEAP, .compute = compute_key_counter},
    {.op = "StatelessRandomGetKeyCounterAlg", .cost = TD_COST_CHEAP, .compute = compute_key_counter},
    {.op = "StatelessRandomGetAlg", .cost = TD_COST_CHEAP, .compute = compute_alg},
    KERNEL("StatelessShuffle", "T", TD_SET_ALL, NULL, compute_stateless_shuffle),
};

TD_FAMILY(random, ops, kernels);

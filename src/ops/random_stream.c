#include "ops/random_stream.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/random.h"

td_status td_random_stream_init(td_random_stream *s, const td_kernel_builder *b) {
  int64_t seed, seed2;
  TD_TRY(td_attr_int(b->node, "seed", &seed));
  TD_TRY(td_attr_int(b->node, "seed2", &seed2));
  s->next = seed || seed2 ? td_philox_from_seeds((uint64_t)seed, (uint64_t)seed2)
                          : td_philox_from_seeds(td_random_u64(), td_random_u64());
  pthread_mutex_init(&s->lock, NULL);
  s->is_open = true;
  return TD_STATUS_OK;
}

void td_random_stream_deinit(td_random_stream *s) {
  if (s->is_open) pthread_mutex_destroy(&s->lock);
}

td_philox td_random_stream_reserve(td_random_stream *s, uint64_t steps) {
  pthread_mutex_lock(&s->lock);
  td_philox p = s->next;
  td_philox_skip(&s->next, steps);
  pthread_mutex_unlock(&s->lock);
  return p;
}

/* ---- integers ---- */

static uint64_t unsigned_scalar(const td_tensor *t) {
  switch ((td_dtype)t->dtype) {
    case TD_INT32:
      return (uint64_t)(int64_t)TD_DATA(t, int32_t)[0];
    case TD_UINT32:
      return TD_DATA(t, uint32_t)[0];
    default:
      return TD_DATA(t, uint64_t)[0]; /* int64, uint64 */
  }
}

td_status td_random_read_range(td_kernel_ctx *ctx, int at, td_random_spec *spec) {
  const td_tensor *low = td_in(ctx, at), *high = td_in(ctx, at + 1);
  const char *names[] = {"minval", "maxval"};
  for (int i = 0; i < 2; i++) {
    const td_tensor *t = i ? high : low;
    if (!t->rank) continue;
    char *shape = td_tensor_shape_text(t);
    td_status s = td_invalid_argument("%s must be 0-D, got shape %s", names[i], shape);
    td_free(shape);
    return s;
  }
  spec->low = unsigned_scalar(low);
  spec->range = unsigned_scalar(high) - spec->low; /* modulo 2^64, as TensorFlow */
  bool is_unsigned = td_dtype_in(spec->dtype, TD_SET_UNSIGNED);
  if (is_unsigned ? spec->low >= unsigned_scalar(high) : (int64_t)spec->low >= (int64_t)unsigned_scalar(high))
    return is_unsigned ? td_invalid_argument("Need minval < maxval, got %llu >= %llu", (unsigned long long)spec->low,
                                             (unsigned long long)unsigned_scalar(high))
                       : td_invalid_argument("Need minval < maxval, got %lld >= %lld", (long long)spec->low,
                                             (long long)unsigned_scalar(high));
  return TD_STATUS_OK;
}

/* ---- filling ---- */

typedef struct fill_job {
  const td_random_spec *spec;
  const td_philox *stream;
  td_tensor *out;
} fill_job;

static void fill_part(void *arg, int64_t begin, int64_t end) {
  const fill_job *j = arg;
  td_random_fill(j->spec, j->stream, j->out->data, j->out->count, begin, end);
}

/* Of a group. */
static double unit_ns(const td_random_spec *s) {
  if (s->kind == TD_RANDOM_TRUNCATED) return s->dtype == TD_DOUBLE ? 80 : 20;
  if (s->kind == TD_RANDOM_NORMAL) return s->dtype == TD_DOUBLE ? 80 : 10;
  return 5;
}

void td_random_fill_tensor(td_kernel_ctx *ctx, const td_random_spec *spec, const td_philox *stream, td_tensor *out) {
  fill_job job = {spec, stream, out};
  int group = td_random_group_size(spec);
  int64_t groups = out->count / group + (out->count % group != 0);
  td_ctx_parallel_for(ctx, groups, unit_ns(spec), fill_part, &job);
}

/* ---- where to run: the inputs are tiny, whatever the size of the output ---- */

enum { INLINE_ELEMENTS = 1 << 14 };

typedef struct pool_run {
  td_work work;
  td_kernel_ctx *ctx;
  td_compute_fn run;
} pool_run;

static void run_on_pool(td_work *work) {
  pool_run r = *TD_CONTAINER_OF(work, pool_run, work);
  td_free(TD_CONTAINER_OF(work, pool_run, work));
  td_kernel_done(r.ctx, r.run(r.ctx));
}

static bool is_small(const td_tensor *shape) {
  int64_t count = 1;
  for (int64_t i = 0; i < shape->count; i++)
    if (__builtin_mul_overflow(count, td_tensor_int_at(shape, i), &count) || count > INLINE_ELEMENTS) return false;
  return true;
}

void td_random_run(td_kernel_ctx *ctx, int shape, td_compute_fn run) {
  if (!ctx->step->pool || is_small(td_in(ctx, shape))) {
    td_kernel_done(ctx, run(ctx));
    return;
  }
  pool_run *r = td_new(pool_run);
  *r = (pool_run){.work.run = run_on_pool, .ctx = ctx, .run = run};
  td_pool_submit(ctx->step->pool, &r->work);
}

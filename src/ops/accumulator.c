#include "ops/accumulator.h"

#include "base/log.h"
#include "base/mem.h"
#include "ops/move.h"

/* ---- life ---- */

static void destroy(td_resource *r) {
  td_accumulator *a = (td_accumulator *)r;
  td_tensor_release(a->values);
  td_tensor_release(a->indices);
  td_tensor_release(a->counts);
  td_partial_shape_deinit(&a->shape);
  td_room_deinit(&a->room);
  td_free(a);
}

const td_resource_type td_accumulator_type = {.name = "N10tensorflow26ConditionalAccumulatorBaseE", .destroy = destroy};

td_status td_accumulator_create(const td_accumulator_spec *spec, td_accumulator **out) {
  td_accumulator *a = td_new(td_accumulator);
  td_room_init(&a->room, &td_accumulator_type, "TakeGrad operation was cancelled");
  a->ops = spec->is_sparse ? &td_sparse_sum : &td_dense_sum;
  a->dtype = spec->dtype;
  a->is_mean = spec->is_mean;
  a->shape = td_partial_shape_make(spec->shape.rank, spec->shape.dims);
  if (!td_map_init_binary(&a->add, TD_BIN_Add, a->dtype, a->dtype, 0) ||
      !td_map_init_binary(&a->divide, TD_BIN_Div, a->dtype, a->dtype, 0)) {
    td_resource_release(a);
    return td_invalid_argument("Accumulators of %s are not supported", td_dtype_name(spec->dtype));
  }
  *out = a;
  return TD_STATUS_OK;
}

td_status td_accumulator_own(td_kernel_ctx *ctx, int i, td_tensor **out) {
  td_tensor *t = td_in(ctx, i);
  if (!td_tensor_is_exclusive(t)) return td_tensor_copy(t, out);
  *out = t;
  ctx->in[i].tensor = NULL;
  return TD_STATUS_OK;
}

void td_accumulator_number(const td_accumulator *a, int64_t n, void *out) {
  if (a->dtype == TD_DOUBLE)
    *(double *)out = (double)n;
  else if (a->dtype == TD_FLOAT)
    *(float *)out = (float)n;
  else
    *(td_half *)out = td_half_from_float((float)n);
}

/* ---- turns ---- */

static void end_turn(td_room *r) { ((td_accumulator *)r)->turn = NULL; }

static void end_added(td_room *r) {
  td_accumulator *a = (td_accumulator *)r;
  a->count++;
  a->turn = NULL;
}

static void end_taken(td_room *r) {
  td_accumulator *a = (td_accumulator *)r;
  a->count = 0;
  if (a->global_step < INT64_MAX) a->global_step++;
  a->turn = NULL;
}

static bool has_turn(td_accumulator *a, const td_kernel_ctx *ctx) {
  pthread_mutex_lock(&a->room.lock);
  bool yes = a->turn == ctx;
  pthread_mutex_unlock(&a->room.lock);
  return yes;
}

static td_status check_argument(td_kernel_ctx *ctx, const char *name) {
  if (!td_in(ctx, 1)->rank) return TD_STATUS_OK;
  return td_invalid_argument("Argument %s must be scalar, but had bad shape %s", name, TD_SHOW(td_in(ctx, 1)));
}

/* ---- apply ---- */

static bool begin_apply(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  td_accumulator *a = (td_accumulator *)r;
  (void)status;
  (void)changed;
  if (a->turn) return false;
  if (*TD_DATA(td_in(ctx, 1), int64_t) >= a->global_step) a->turn = ctx; /* else it is stale: dropped */
  return true;
}

static void apply(td_room *r, td_kernel_ctx *ctx) {
  td_accumulator *a = (td_accumulator *)r;
  td_status s = TD_STATUS_OK;
  if (has_turn(a, ctx)) {
    s = a->ops->check(a, ctx);
    if (!s) s = a->ops->add(a, ctx);
    td_room_change(r, s ? end_turn : end_added);
  }
  td_kernel_done(ctx, s);
}

static td_status check_apply(const td_accumulator *a, td_kernel_ctx *ctx) {
  int want[8] = {ctx->kernel->input_types[0], TD_INT64}, n = 2 + a->ops->gradient_inputs;
  for (int i = 2; i < n; i++) want[i] = i - 2 == a->ops->values ? (int)a->dtype : TD_INT64;
  TD_TRY(td_check_signature(ctx, want, n, NULL, 0));
  return check_argument(ctx, "local_step");
}

void td_accumulator_apply(td_accumulator *a, td_kernel_ctx *ctx) {
  td_status s = check_apply(a, ctx);
  if (!s) {
    td_room_run_then(&a->room, ctx, begin_apply, apply);
    return;
  }
  td_resource_release(a);
  td_kernel_done(ctx, s);
}

/* ---- take ---- */

static bool begin_take(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  td_accumulator *a = (td_accumulator *)r;
  (void)status;
  (void)changed;
  if (a->turn || a->count < *TD_DATA(td_in(ctx, 1), int32_t) || td_room_is_behind(r, ctx, begin_take)) return false;
  a->turn = ctx;
  return true;
}

typedef struct take_work {
  td_work work;
  td_accumulator *accumulator; /* retained */
  td_kernel_ctx *ctx;
} take_work;

static void take(td_accumulator *a, td_kernel_ctx *ctx) {
  td_status s = a->ops->take(a, ctx);
  td_room_change(&a->room, s ? end_turn : end_taken);
  td_kernel_done(ctx, s);
}

static void run_take(td_work *work) {
  take_work own = *TD_CONTAINER_OF(work, take_work, work);
  td_free(TD_CONTAINER_OF(work, take_work, work));
  take(own.accumulator, own.ctx);
  td_resource_release(own.accumulator);
}

/* A mean of many elements is too long for a loop thread. */
static void take_somewhere(td_room *r, td_kernel_ctx *ctx) {
  enum { LARGE = 32 * 1024 };
  td_accumulator *a = (td_accumulator *)r;
  if (!a->is_mean || a->values->size < LARGE || !ctx->step->pool || td_pool_current() == ctx->step->pool) {
    take(a, ctx);
    return;
  }
  take_work *w = td_new(take_work);
  *w = (take_work){.work.run = run_take, .accumulator = td_resource_retain(a), .ctx = ctx};
  td_pool_submit(ctx->step->pool, &w->work);
}

static td_status check_take(const td_accumulator *a, td_kernel_ctx *ctx) {
  int want_in[2] = {ctx->kernel->input_types[0], TD_INT32}, want[4], n = a->ops->outputs;
  for (int i = 0; i < n; i++) want[i] = i == a->ops->values ? (int)a->dtype : TD_INT64;
  TD_TRY(td_check_signature(ctx, want_in, 2, want, n));
  TD_TRY(check_argument(ctx, "num_required"));
  int32_t required = *TD_DATA(td_in(ctx, 1), int32_t);
  return required > 0 ? TD_STATUS_OK
                      : td_invalid_argument("Argument num_required must be positive, but was %d", required);
}

void td_accumulator_take(td_accumulator *a, td_kernel_ctx *ctx) {
  td_status s = check_take(a, ctx);
  if (!s) {
    td_room_run_then(&a->room, ctx, begin_take, take_somewhere);
    return;
  }
  td_resource_release(a);
  td_kernel_done(ctx, s);
}

/* ---- count, step ---- */

int64_t td_accumulator_count(td_accumulator *a) {
  pthread_mutex_lock(&a->room.lock);
  int64_t n = a->count;
  pthread_mutex_unlock(&a->room.lock);
  return n;
}

void td_accumulator_set_global_step(td_accumulator *a, int64_t step) {
  pthread_mutex_lock(&a->room.lock);
  int64_t before = a->global_step;
  a->global_step = step;
  pthread_mutex_unlock(&a->room.lock);
  if (step < before)
    td_log(TD_LOG_WARNING, "an accumulator's global step goes back from %lld to %lld", (long long)before,
           (long long)step);
}

/* ---- dense sums ---- */

static td_status check_dense(const td_accumulator *a, td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 2);
  if (a->values && !td_tensor_same_shape(a->values, t))
    return td_invalid_argument("Shape mismatch: expected %s, got %s", TD_SHOW(a->values), TD_SHOW(t));
  if (td_partial_shape_fits(&a->shape, t->rank, t->dims)) return TD_STATUS_OK;
  char *want = td_partial_shape_text(&a->shape);
  td_status s = td_invalid_argument("Shape mismatch: expected %s, got %s", want, TD_SHOW(t));
  td_free(want);
  return s;
}

typedef struct loop {
  const td_map *map;
  char *sum;
  const char *other;
  int stride; /* of the other: 0 or 1 */
} loop;

static void run_loop(void *arg, int64_t begin, int64_t end) {
  const loop *l = arg;
  int64_t size = l->map->in_size;
  char *sum = l->sum + begin * size;
  td_map_binary(l->map, sum, 1, l->other + begin * size * l->stride, l->stride, sum, end - begin);
}

static td_status add_dense(td_accumulator *a, td_kernel_ctx *ctx) {
  if (!a->values) return td_accumulator_own(ctx, 2, &a->values);
  loop l = {&a->add, a->values->data, td_in(ctx, 2)->data, 1};
  td_ctx_parallel_for(ctx, a->values->count, 0.3, run_loop, &l);
  return TD_STATUS_OK;
}

static td_status take_dense(td_accumulator *a, td_kernel_ctx *ctx) {
  if (a->is_mean) {
    char number[8];
    td_accumulator_number(a, a->count, number);
    loop l = {&a->divide, a->values->data, number, 0};
    td_ctx_parallel_for(ctx, a->values->count, 0.3, run_loop, &l);
  }
  td_out_set(ctx, 0, a->values);
  a->values = NULL;
  return TD_STATUS_OK;
}

const td_sum_ops td_dense_sum = {
    .gradient_inputs = 1, .outputs = 1, .values = 0, .check = check_dense, .add = add_dense, .take = take_dense};

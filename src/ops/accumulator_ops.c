/* ConditionalAccumulator and its kin (TensorFlow's conditional_accumulator_op, sparse_conditional_accumulator_op);
 * accumulator.c has the accumulators. */
#include "base/mem.h"
#include "framework/device.h"
#include "ops/accumulator.h"
#include "ops/families.h"
#include "ops/named.h"

/* ---- the accumulators themselves ---- */

typedef struct accumulator_state {
  td_named named;
  td_accumulator_spec spec;
} accumulator_state;

static td_status create_accumulator(td_kernel_builder *b, void *state) {
  accumulator_state *st = state;
  td_str reduction;
  st->spec.shape = TD_PARTIAL_SHAPE_UNKNOWN;
  st->spec.is_sparse = td_str_starts(b->node->op, TD_STR("Sparse"));
  TD_TRY(td_attr_type(b->node, "dtype", &st->spec.dtype));
  TD_TRY(td_partial_shape_attr(b->node, "shape", &st->spec.shape));
  TD_TRY(td_attr_str(b->node, "reduction_type", &reduction));
  st->spec.is_mean = td_str_eq(reduction, TD_STR("MEAN"));
  return td_named_init(&st->named, b, &td_accumulator_type);
}

static void destroy_accumulator(void *state) {
  accumulator_state *st = state;
  td_named_deinit(&st->named);
  td_partial_shape_deinit(&st->spec.shape);
}

static td_status make_accumulator(void *arg, td_str name, td_resource **out) {
  td_accumulator *a;
  (void)name;
  TD_TRY(td_accumulator_create(arg, &a));
  *out = &a->room.resource;
  return TD_STATUS_OK;
}

static td_status compute_accumulator(td_kernel_ctx *ctx) {
  accumulator_state *st = ctx->state;
  return td_named_out(&st->named, ctx, make_accumulator, NULL, &st->spec);
}

/* ---- ops on them ---- */

static td_status find(td_kernel_ctx *ctx, td_accumulator **out) {
  void *found;
  TD_TRY(td_in_handle(ctx, ctx->device->resources, false, "Resource handle must have two elements",
                      &td_accumulator_type, &found));
  *out = found;
  return TD_STATUS_OK;
}

/* Finds the accumulator, or ends the run. */
static td_accumulator *find_async(td_kernel_ctx *ctx) {
  td_accumulator *a = NULL;
  td_status s = find(ctx, &a);
  if (s) td_kernel_done(ctx, s);
  return a;
}

typedef struct apply_state {
  bool has_known_shape; /* first: td_accumulator_apply() reads it */
} apply_state;

static td_status create_sparse_apply(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "has_known_shape", &((apply_state *)state)->has_known_shape);
}

static void compute_apply(td_kernel_ctx *ctx) {
  td_accumulator *a = find_async(ctx);
  if (a) td_accumulator_apply(a, ctx);
}

static void compute_take(td_kernel_ctx *ctx) {
  td_accumulator *a = find_async(ctx);
  if (a) td_accumulator_take(a, ctx);
}

static td_status compute_count(td_kernel_ctx *ctx) {
  td_accumulator *a;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_TRY(find(ctx, &a));
  *TD_DATA(out, int32_t) = (int32_t)TD_MIN(td_accumulator_count(a), INT32_MAX);
  td_resource_release(a);
  return TD_STATUS_OK;
}

static td_status compute_set_step(td_kernel_ctx *ctx) {
  td_accumulator *a;
  TD_TRY(td_check_scalar(td_in(ctx, 1), "Argument new_global_step"));
  TD_TRY(find(ctx, &a));
  td_accumulator_set_global_step(a, *TD_DATA(td_in(ctx, 1), int64_t));
  td_resource_release(a);
  return TD_STATUS_OK;
}

/* ---- tables ---- */

#define DTYPE                                                                                                     \
  "dtype: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, " \
  "qint16, quint16, uint16, complex128, half, uint32, uint64}"
#define MAKING                                                   \
  DTYPE                                                          \
  "; shape: shape; container: string = ''; shared_name: string " \
  "= ''; reduction_type: string in {'MEAN', 'SUM'} = 'MEAN'"

static const td_op_spec ops[] = {
    {"AccumulatorApplyGradient", "handle: Ref(string); local_step: int64; gradient: dtype", NULL, DTYPE, 0},
    {"AccumulatorNumAccumulated", "handle: Ref(string)", "num_accumulated: int32", NULL, 0},
    {"AccumulatorSetGlobalStep", "handle: Ref(string); new_global_step: int64", NULL, NULL, 0},
    {"AccumulatorTakeGradient", "handle: Ref(string); num_required: int32", "average: dtype", DTYPE, 0},
    {"ConditionalAccumulator", NULL, "handle: Ref(string)", MAKING, TD_OP_STATEFUL},
    {"ResourceAccumulatorApplyGradient", "handle: resource; local_step: int64; gradient: dtype", NULL, DTYPE,
     TD_OP_STATEFUL},
    {"ResourceAccumulatorNumAccumulated", "handle: resource", "num_accumulated: int32", NULL, TD_OP_STATEFUL},
    {"ResourceAccumulatorSetGlobalStep", "handle: resource; new_global_step: int64", NULL, NULL, TD_OP_STATEFUL},
    {"ResourceAccumulatorTakeGradient", "handle: resource; num_required: int32", "average: dtype", DTYPE,
     TD_OP_STATEFUL},
    {"ResourceConditionalAccumulator", NULL, "handle: resource", MAKING, TD_OP_STATEFUL},
    {"SparseAccumulatorApplyGradient",
     "handle: Ref(string); local_step: int64; gradient_indices: int64; gradient_values: dtype; gradient_shape: int64",
     NULL, DTYPE "; has_known_shape: bool", 0},
    {"SparseAccumulatorTakeGradient", "handle: Ref(string); num_required: int32",
     "indices: int64; values: dtype; shape: int64", DTYPE, 0},
    {"SparseConditionalAccumulator", NULL, "handle: Ref(string)", MAKING, TD_OP_STATEFUL},
};

#define SUMMED (TD_SET(TD_HALF) | TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE))
#define MAKE(name)                                                                                            \
  {                                                                                                           \
    .op = name, .types = {{"dtype", SUMMED}}, .cost = TD_COST_CHEAP, .state_size = sizeof(accumulator_state), \
    .create = create_accumulator, .destroy = destroy_accumulator, .compute = compute_accumulator              \
  }
#define APPLY(name) \
  { .op = name, .state_size = sizeof(apply_state), .compute_async = compute_apply }
#define TAKE(name) \
  { .op = name, .cost = TD_COST_CHEAP, .compute_async = compute_take }
#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }

static const td_kernel_def kernels[] = {
    MAKE("ConditionalAccumulator"),
    MAKE("ResourceConditionalAccumulator"),
    MAKE("SparseConditionalAccumulator"),
    APPLY("AccumulatorApplyGradient"),
    APPLY("ResourceAccumulatorApplyGradient"),
    {.op = "SparseAccumulatorApplyGradient",
     .state_size = sizeof(apply_state),
     .create = create_sparse_apply,
     .compute_async = compute_apply},
    TAKE("AccumulatorTakeGradient"),
    TAKE("ResourceAccumulatorTakeGradient"),
    TAKE("SparseAccumulatorTakeGradient"),
    PLAIN("AccumulatorNumAccumulated", compute_count),
    PLAIN("ResourceAccumulatorNumAccumulated", compute_count),
    PLAIN("AccumulatorSetGlobalStep", compute_set_step),
    PLAIN("ResourceAccumulatorSetGlobalStep", compute_set_step),
};

TD_FAMILY(accumulator_ops, ops, kernels);

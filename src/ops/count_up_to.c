/* CountUpTo: a scalar variable as a counter with an end, for ref and resource variables. */
#include "base/mem.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/update_set.h"

typedef struct count_state {
  int64_t limit;
  td_dtype dtype;
} count_state;

static td_status create_count(td_kernel_builder *b, void *state) {
  count_state *st = state;
  TD_TRY(td_attr_type(b->node, "T", &st->dtype));
  return td_attr_int(b->node, "limit", &st->limit);
}

static td_status compute_count(td_kernel_ctx *ctx) {
  const count_state *st = ctx->state;
  td_update_set set;
  td_status status = td_update_begin(ctx, 1, st->dtype, &set);
  if (status) goto cleanup;
  td_tensor *value = td_update_value(&set, 0);
  if (value->rank) {
    char *shape = td_tensor_shape_text(value);
    status = td_invalid_argument("input is not a scalar: %s", shape);
    td_free(shape);
    goto cleanup;
  }
  int64_t before = td_tensor_int_at(value, 0);
  if (before >= st->limit) {
    status = td_error(TD_OUT_OF_RANGE, "Reached limit of %lld", (long long)st->limit);
    goto cleanup;
  }
  td_tensor *next;
  TD_TRY_GOTO(td_tensor_create_dims(st->dtype, 0, NULL, &next));
  if (st->dtype == TD_INT64)
    TD_DATA(next, int64_t)[0] = before + 1;
  else
    TD_DATA(next, int32_t)[0] = (int32_t)((uint32_t)before + 1);
  td_out_set(ctx, 0, td_tensor_retain(value)); /* the old value is the result */
  td_variable_set(set.vars[0], next);
cleanup:
  td_update_end(&set);
  return status;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {.name = "CountUpTo",
     .inputs = "ref: Ref(T)",
     .outputs = "output: T",
     .attrs = "limit: int; T: type in {int32, int64}"},
    {.name = "ResourceCountUpTo",
     .inputs = "resource: resource",
     .outputs = "output: T",
     .attrs = "limit: int; T: type in {int32, int64}",
     .flags = TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "CountUpTo",
     .types = {{"T", TD_SET(TD_INT32) | TD_SET(TD_INT64)}},
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(count_state),
     .create = create_count,
     .compute = compute_count},
    {.op = "ResourceCountUpTo",
     .types = {{"T", TD_SET(TD_INT32) | TD_SET(TD_INT64)}},
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(count_state),
     .create = create_count,
     .compute = compute_count},
};

TD_FAMILY(count_up_to, ops, kernels);

/* Tensors kept in the session between steps: GetSessionHandle, GetSessionHandleV2, GetSessionTensor,
 * DeleteSessionTensor (TensorFlow's session_ops). */
#include "framework/session_state.h"

#include "framework/device.h"
#include "framework/resource.h"
#include "ops/families.h"
#include "ops/move.h"

static td_status session_of(td_kernel_ctx *ctx, td_session_state **out) {
  *out = ctx->step->session_state;
  return *out ? TD_STATUS_OK : td_failed_precondition("%.*s called on null session state", TD_STR_ARG(ctx->kernel->op));
}

/* Only a name: what it stands for is found by the session. */
static const td_resource_type handle_type = {.name = "TensorHandle"};

static td_status out_handle(td_kernel_ctx *ctx, td_str handle) {
  td_tensor *out;
  if (ctx->kernel->output_types[0] == TD_RESOURCE) {
    TD_TRY(td_handle_create(ctx->device, (td_str){0}, handle, &handle_type, &out));
    td_out_set(ctx, 0, out);
    return TD_STATUS_OK;
  }
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  return td_string_set(&TD_DATA(out, td_string)[0], handle);
}

static td_status get_handle(td_kernel_ctx *ctx) {
  td_session_state *s;
  td_strbuf handle = {0};
  TD_TRY(session_of(ctx, &s));
  td_status status = td_session_state_put(s, ctx->step->id, ctx->kernel->name, td_str_of(ctx->device->name),
                                          (td_tensor *)td_in(ctx, 0), &handle);
  if (!status) status = out_handle(ctx, td_strbuf_view(&handle));
  td_strbuf_deinit(&handle);
  return status;
}

static td_status in_handle(td_kernel_ctx *ctx, td_str *out) {
  const td_tensor *t = td_in(ctx, 0);
  if (t->rank) return td_invalid_argument("handle must be a scalar, saw shape: %s", TD_SHOW(t));
  *out = td_string_view(&TD_DATA(t, td_string)[0]);
  return TD_STATUS_OK;
}

static td_status get_tensor(td_kernel_ctx *ctx) {
  td_session_state *s;
  td_str handle;
  td_tensor *t;
  TD_TRY(session_of(ctx, &s));
  TD_TRY(in_handle(ctx, &handle));
  TD_TRY(td_session_state_get(s, handle, &t));
  if ((int)t->dtype != ctx->kernel->output_types[0]) {
    td_status status =
        td_invalid_argument("The tensor with handle '%.*s' is of type %s, not %s", TD_STR_ARG(handle),
                            td_dtype_name(t->dtype), td_dtype_name((td_dtype)ctx->kernel->output_types[0]));
    td_tensor_release(t);
    return status;
  }
  td_out_set(ctx, 0, t);
  return TD_STATUS_OK;
}

static td_status delete_tensor(td_kernel_ctx *ctx) {
  td_session_state *s;
  td_str handle;
  TD_TRY(session_of(ctx, &s));
  TD_TRY(in_handle(ctx, &handle));
  return td_session_state_delete(s, handle);
}

static const td_op_spec ops[] = {
    {"DeleteSessionTensor", "handle: string", NULL, NULL, TD_OP_STATEFUL},
    {"GetSessionHandle", "value: T", "handle: string", "T: type", TD_OP_STATEFUL},
    {"GetSessionHandleV2", "value: T", "handle: resource", "T: type", TD_OP_STATEFUL},
    {"GetSessionTensor", "handle: string", "value: dtype", "dtype: type", TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "DeleteSessionTensor", .cost = TD_COST_CHEAP, .compute = delete_tensor},
    {.op = "GetSessionHandle", .cost = TD_COST_CHEAP, .compute = get_handle},
    {.op = "GetSessionHandleV2", .cost = TD_COST_CHEAP, .compute = get_handle},
    {.op = "GetSessionTensor", .cost = TD_COST_CHEAP, .compute = get_tensor},
};

TD_FAMILY(session_tensor, ops, kernels);

/* Control flow by dead tensors and frames. control_flow_ops.cc. The executor knows the nodes of this family by their
 * kind and moves values between frames itself; kernels only choose or hand on. */
#include "base/mem.h"
#include "ops/families.h"

static void move(td_kernel_ctx *ctx, int in, int out) {
  ctx->out[out] = ctx->in[in]; /* a tensor or a variable */
  ctx->in[in].tensor = NULL;
}

static td_status forward_compute(td_kernel_ctx *ctx) {
  move(ctx, 0, 0);
  return TD_STATUS_OK;
}

static td_status not_scalar(const char *format, const td_tensor *t) {
  char *shape = td_tensor_shape_text(t);
  td_status s = td_invalid_argument(format, shape);
  td_free(shape);
  return s;
}

static td_status switch_compute(td_kernel_ctx *ctx) {
  const td_tensor *pred = td_in(ctx, 1);
  if (!td_tensor_is_scalar(pred)) return not_scalar("The second input must be a scalar, but it has shape %s", pred);
  int port = *TD_DATA(pred, uint8_t) != 0;
  ctx->out_live_mask = 1u << port;
  move(ctx, 0, port);
  return TD_STATUS_OK;
}

static td_status switch_n_create(td_kernel_builder *b, void *state) {
  if (b->output_count <= 32) return TD_STATUS_OK;
  return td_unimplemented("_SwitchN with %d outputs; at most 32 are supported", b->output_count);
}

static td_status switch_n_compute(td_kernel_ctx *ctx) {
  const td_tensor *index = td_in(ctx, 1);
  if (!td_tensor_is_scalar(index)) return not_scalar("The second input must be a scalar, but it has shape %s", index);
  int port = *TD_DATA(index, int32_t), n = ctx->kernel->output_count;
  if (port < 0 || port >= n) port = n - 1;
  ctx->out_live_mask = 1u << port;
  move(ctx, 0, port);
  return TD_STATUS_OK;
}

/* Only for a Merge run on its own: the executor hands values through Merges without a call. */
static td_status merge_compute(td_kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->input_count; i++) {
    if (!ctx->in[i].tensor) continue;
    td_tensor *index;
    TD_TRY(td_out_alloc_dims(ctx, 1, 0, NULL, &index));
    *TD_DATA(index, int32_t) = i;
    move(ctx, i, 0);
    return TD_STATUS_OK;
  }
  return td_internal("Merge op has no live inputs");
}

static td_status ref_select_compute(td_kernel_ctx *ctx) {
  const td_tensor *index = td_in(ctx, 0);
  int n = ctx->kernel->input_count - 1;
  if (!td_tensor_is_scalar(index)) return not_scalar("Index must be a scalar, but it has shape %s", index);
  int i = *TD_DATA(index, int32_t);
  if (i < 0 || i >= n) return td_invalid_argument("Index must be in the range [0, %d) but got %d", n, i);
  move(ctx, i + 1, 0);
  return TD_STATUS_OK;
}

#define ENTER_ATTRS "T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10"

static const td_op_spec ops[] = {
    {.name = "Enter", .inputs = "data: T", .outputs = "output: T", .attrs = ENTER_ATTRS},
    {.name = "Exit", .inputs = "data: T", .outputs = "output: T", .attrs = "T: type"},
    {.name = "LoopCond", .inputs = "input: bool", .outputs = "output: bool"},
    {.name = "Merge",
     .inputs = "inputs: N * T",
     .outputs = "output: T; value_index: int32",
     .attrs = "T: type; N: int >= 1"},
    {.name = "NextIteration", .inputs = "data: T", .outputs = "output: T", .attrs = "T: type"},
    {.name = "RefEnter", .inputs = "data: Ref(T)", .outputs = "output: Ref(T)", .attrs = ENTER_ATTRS},
    {.name = "RefExit", .inputs = "data: Ref(T)", .outputs = "output: Ref(T)", .attrs = "T: type"},
    {.name = "RefMerge",
     .inputs = "inputs: Ref(N * T)",
     .outputs = "output: Ref(T); value_index: int32",
     .attrs = "T: type; N: int >= 1"},
    {.name = "RefNextIteration", .inputs = "data: Ref(T)", .outputs = "output: Ref(T)", .attrs = "T: type"},
    {.name = "RefSelect",
     .inputs = "index: int32; inputs: Ref(N * T)",
     .outputs = "output: Ref(T)",
     .attrs = "T: type; N: int >= 1"},
    {.name = "RefSwitch",
     .inputs = "data: Ref(T); pred: bool",
     .outputs = "output_false: Ref(T); output_true: Ref(T)",
     .attrs = "T: type",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
    {.name = "Switch",
     .inputs = "data: T; pred: bool",
     .outputs = "output_false: T; output_true: T",
     .attrs = "T: type"},
    {.name = "_SwitchN",
     .inputs = "data: T; output_index: int32",
     .outputs = "outputs: num_outs * T",
     .attrs = "num_outs: int >= 1; T: type"},
};

#define FORWARD(name) \
  { .op = name, .cost = TD_COST_CHEAP, .flags = TD_KERNEL_FORWARDS, .compute = forward_compute }
#define KERNEL(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }

static const td_kernel_def kernels[] = {
    FORWARD("Enter"),
    FORWARD("Exit"),
    FORWARD("LoopCond"),
    FORWARD("NextIteration"),
    FORWARD("RefEnter"),
    FORWARD("RefExit"),
    FORWARD("RefNextIteration"),
    KERNEL("Merge", merge_compute),
    KERNEL("RefMerge", merge_compute),
    KERNEL("RefSelect", ref_select_compute),
    KERNEL("RefSwitch", switch_compute),
    KERNEL("Switch", switch_compute),
    {.op = "_SwitchN", .cost = TD_COST_CHEAP, .create = switch_n_create, .compute = switch_n_compute},
};

TD_FAMILY(control_flow, ops, kernels);

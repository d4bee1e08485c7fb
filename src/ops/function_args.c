/* A function body's ends, and regrouping of lists. function_ops.cc. The executor runs arguments and results itself;
 * the kernels here answer for nodes that stand outside a function. */
#include "ops/families.h"

static td_status outside_compute(td_kernel_ctx *ctx) {
  return td_internal("%.*s runs outside a function call", TD_STR_ARG(ctx->kernel->op));
}

static td_status regroup_create(td_kernel_builder *b, void *state) {
  bool fits = b->input_count == b->output_count;
  for (int i = 0; fits && i < b->input_count; i++) fits = b->input_types[i] == b->output_types[i];
  return fits ? TD_STATUS_OK : td_invalid_argument("%.*s: its input and output types differ", TD_STR_ARG(b->node->op));
}

static td_status regroup_compute(td_kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->input_count; i++) td_out_forward(ctx, i, i);
  return TD_STATUS_OK;
}

static const td_op_spec ops[] = {
    {.name = "_Arg", .outputs = "output: T", .attrs = "T: type; index: int >= 0", .flags = TD_OP_STATEFUL},
    {.name = "_ArrayToList",
     .inputs = "input: N * T",
     .outputs = "output: out_types",
     .attrs = "T: type; N: int >= 1; out_types: list(type) >= 1"},
    {.name = "_DeviceArg", .outputs = "output: T", .attrs = "T: type; index: int >= 0", .flags = TD_OP_STATEFUL},
    {.name = "_DeviceRetval", .inputs = "input: T", .attrs = "T: type; index: int >= 0", .flags = TD_OP_STATEFUL},
    {.name = "_ListToArray",
     .inputs = "input: Tin",
     .outputs = "output: N * T",
     .attrs = "Tin: list(type) >= 1; T: type; N: int >= 1"},
    {.name = "_Retval", .inputs = "input: T", .attrs = "T: type; index: int >= 0", .flags = TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "_Arg", .cost = TD_COST_CHEAP, .compute = outside_compute},
    {.op = "_ArrayToList", .cost = TD_COST_CHEAP, .create = regroup_create, .compute = regroup_compute},
    {.op = "_DeviceArg", .cost = TD_COST_CHEAP, .compute = outside_compute},
    {.op = "_DeviceRetval", .cost = TD_COST_CHEAP, .compute = outside_compute},
    {.op = "_ListToArray", .cost = TD_COST_CHEAP, .create = regroup_create, .compute = regroup_compute},
    {.op = "_Retval", .cost = TD_COST_CHEAP, .compute = outside_compute},
};

TD_FAMILY(function_args, ops, kernels);

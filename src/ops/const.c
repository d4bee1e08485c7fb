/* Values that are there from the start, and ops that hand their input on. array_ops.cc, no_op.cc. */
#include "base/mem.h"
#include "ops/families.h"
#include "tensor/tensor_proto.h"

/* ---- Const ---- */

typedef struct constant {
  td_tensor *value; /* first: TD_KERNEL_CONSTANT */
} constant;

static td_status const_create(td_kernel_builder *b, void *state) {
  constant *c = state;
  const Pb__TensorProto *proto;
  TD_TRY(td_attr_tensor(b->node, "value", &proto));
  TD_TRY(td_tensor_from_proto(proto, &c->value));
  if (c->value->dtype != b->output_types[0])
    return td_invalid_argument("DataType mismatch between value (%s) and dtype (%s)", td_dtype_name(c->value->dtype),
                               td_dtype_name(b->output_types[0]));
  return TD_STATUS_OK;
}

/* What a branch that makes no value gives in its place: nobody reads it. Unknown dimensions are 0. */
static td_status fake_create(td_kernel_builder *b, void *state) {
  const Pb__TensorShapeProto *proto;
  bool unknown_rank;
  TD_TRY(td_attr_shape(b->node, "shape", &proto));
  td_shape *shape = td_malloc(sizeof *shape);
  td_status s = td_shape_from_proto(proto, shape, &unknown_rank);
  if (!s && unknown_rank) shape->rank = 0;
  for (int i = 0; !s && i < shape->rank; i++) shape->dims[i] = TD_MAX(shape->dims[i], 0);
  if (!s) s = td_tensor_create_zeros(b->output_types[0], shape, &((constant *)state)->value);
  td_free(shape);
  return s;
}

static void const_destroy(void *state) { td_tensor_release(((constant *)state)->value); }

static td_status const_compute(td_kernel_ctx *ctx) {
  td_out_set(ctx, 0, td_tensor_retain(((constant *)ctx->state)->value));
  return TD_STATUS_OK;
}

/* ---- Placeholder ---- */

typedef struct placeholder {
  char *text; /* the error of whoever runs it unfed */
} placeholder;

static td_status placeholder_create(td_kernel_builder *b, void *state) {
  placeholder *p = state;
  const Pb__TensorShapeProto *proto = NULL;
  td_shape *shape = td_malloc(sizeof *shape);
  bool unknown_rank = true;
  td_status s = td_attr_find(b->node, "shape") ? td_attr_shape(b->node, "shape", &proto) : NULL;
  if (!s && proto) s = td_shape_from_proto(proto, shape, &unknown_rank);
  if (!s && (unknown_rank || !shape->rank)) {
    p->text = td_asprintf("You must feed a value for placeholder tensor '%.*s' with dtype %s",
                          TD_STR_ARG(b->node->name), td_dtype_name(b->output_types[0]));
  } else if (!s) {
    char *dims = td_shape_text(shape);
    p->text = td_asprintf("You must feed a value for placeholder tensor '%.*s' with dtype %s and shape %s",
                          TD_STR_ARG(b->node->name), td_dtype_name(b->output_types[0]), dims);
    td_free(dims);
  }
  td_free(shape);
  return s;
}

static void placeholder_destroy(void *state) { td_free(((placeholder *)state)->text); }

static td_status placeholder_compute(td_kernel_ctx *ctx) {
  return td_invalid_argument("%s", ((placeholder *)ctx->state)->text);
}

/* ---- handing on ---- */

static td_status forward_compute(td_kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->input_count; i++) {
    ctx->out[i] = ctx->in[i];
    ctx->in[i].tensor = NULL;
  }
  return TD_STATUS_OK;
}

static td_status nothing_compute(td_kernel_ctx *ctx) { return TD_STATUS_OK; }

static const td_op_spec ops[] = {
    {.name = "Const", .outputs = "output: dtype", .attrs = "value: tensor; dtype: type"},
    {.name = "ControlTrigger"},
    {.name = "DebugGradientIdentity",
     .inputs = "input: T",
     .outputs = "output: T",
     .attrs = "T: type",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
    {.name = "DebugGradientRefIdentity",
     .inputs = "input: Ref(T)",
     .outputs = "output: Ref(T)",
     .attrs = "T: type",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
    {.name = "FakeParam", .outputs = "output: dtype", .attrs = "dtype: type; shape: shape"},
    {.name = "HostConst", .outputs = "output: dtype", .attrs = "value: tensor; dtype: type"},
    {.name = "Identity", .inputs = "input: T", .outputs = "output: T", .attrs = "T: type"},
    {.name = "IdentityN", .inputs = "input: T", .outputs = "output: T", .attrs = "T: list(type) >= 1"},
    {.name = "NoOp"},
    {.name = "Placeholder", .outputs = "output: dtype", .attrs = "dtype: type; shape: shape = unknown"},
    {.name = "PlaceholderV2", .outputs = "output: dtype", .attrs = "dtype: type; shape: shape"},
    {.name = "PlaceholderWithDefault",
     .inputs = "input: dtype",
     .outputs = "output: dtype",
     .attrs = "dtype: type; shape: shape"},
    {.name = "PreventGradient", .inputs = "input: T", .outputs = "output: T", .attrs = "T: type; message: string = ''"},
    {.name = "RefIdentity",
     .inputs = "input: Ref(T)",
     .outputs = "output: Ref(T)",
     .attrs = "T: type",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
    {.name = "Snapshot", .inputs = "input: T", .outputs = "output: T", .attrs = "T: type"},
    {.name = "StopGradient", .inputs = "input: T", .outputs = "output: T", .attrs = "T: type"},
};

#define FORWARD(name) \
  { .op = name, .cost = TD_COST_CHEAP, .flags = TD_KERNEL_FORWARDS, .compute = forward_compute }
#define CONSTANT(name, create_fn)                                                                   \
  {                                                                                                 \
    .op = name, .cost = TD_COST_CHEAP, .flags = TD_KERNEL_CONSTANT, .state_size = sizeof(constant), \
    .create = create_fn, .destroy = const_destroy, .compute = const_compute                         \
  }
#define PLACEHOLDER(name)                                                                               \
  {                                                                                                     \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(placeholder), .create = placeholder_create, \
    .destroy = placeholder_destroy, .compute = placeholder_compute                                      \
  }

static const td_kernel_def kernels[] = {
    CONSTANT("Const", const_create),
    CONSTANT("FakeParam", fake_create),
    CONSTANT("HostConst", const_create),
    PLACEHOLDER("Placeholder"),
    PLACEHOLDER("PlaceholderV2"),
    FORWARD("PlaceholderWithDefault"),
    FORWARD("DebugGradientIdentity"),
    FORWARD("DebugGradientRefIdentity"),
    FORWARD("Identity"),
    FORWARD("PreventGradient"),
    FORWARD("RefIdentity"),
    FORWARD("Snapshot"),
    FORWARD("StopGradient"),
    {.op = "IdentityN", .cost = TD_COST_CHEAP, .compute = forward_compute},
    {.op = "NoOp", .cost = TD_COST_CHEAP, .flags = TD_KERNEL_NOTHING, .compute = nothing_compute},
    {.op = "ControlTrigger", .cost = TD_COST_CHEAP, .flags = TD_KERNEL_NOTHING, .compute = nothing_compute},
};

TD_FAMILY(const, ops, kernels);

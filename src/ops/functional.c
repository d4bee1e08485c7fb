/* Ops that call functions: PartitionedCall, If, Case, While, For, SymbolicGradient. functional_ops.cc, function_ops.cc,
 * partitioned_function_ops.cc.
 *
 * All are asynchronous: the nested program runs on its own, and its end ends the kernel. A While goes from its
 * condition to its body and back in the callbacks; the executor keeps these from nesting on the stack. */
#include "base/mem.h"
#include "framework/function.h"
#include "ops/families.h"

/* ---- creation ---- */

typedef struct functions {
  td_function_runtime *runtime;
  td_function_handle *handles; /* then/else; condition/body; branches */
  size_t count;
} functions;

static void destroy(void *state) { td_free(((functions *)state)->handles); }

static td_status add_function(td_kernel_builder *b, functions *f, const Pb__NameAttrList *function) {
  td_function_handle h;
  TD_TRY(f->runtime->ops->instantiate(f->runtime, function, b->device, &h));
  f->handles = td_realloc(f->handles, (f->count + 1) * sizeof *f->handles);
  f->handles[f->count++] = h;
  return TD_STATUS_OK;
}

static td_status create(td_kernel_builder *b, functions *f, const char *const *attrs) {
  f->runtime = b->functions;
  if (!f->runtime) return td_internal("No function library is provided.");
  for (; *attrs; attrs++) {
    const Pb__NameAttrList *function;
    TD_TRY(td_attr_func(b->node, *attrs, &function));
    TD_TRY(add_function(b, f, function));
  }
  return TD_STATUS_OK;
}

/* One executor serves for all that TensorFlow has. */
static td_status check_executor(td_kernel_builder *b) {
  td_str type = {0};
  if (td_attr_find(b->node, "executor_type")) TD_TRY(td_attr_str(b->node, "executor_type", &type));
  if (!type.size || td_str_is(type, "DEFAULT") || td_str_is(type, "SINGLE_THREADED_EXECUTOR")) return TD_STATUS_OK;
  return td_not_found("No executor factory registered for the given executor type: %.*s", TD_STR_ARG(type));
}

/* A function that is called by its own name has no attribute "config_proto": it runs on this device. */
static td_status call_create(td_kernel_builder *b, void *state) {
  functions *f = state;
  const Pb__NameAttrList *function;
  td_function_where where = {.is_multi_device = td_attr_find(b->node, "config_proto")};
  TD_TRY(check_executor(b));
  TD_TRY(create(b, f, (const char *const[]){NULL}));
  TD_TRY(td_attr_func(b->node, "f", &function));
  f->handles = td_new_array(td_function_handle, 1);
  f->count = 1;
  return f->runtime->ops->instantiate_on(f->runtime, function, b->device, &where, f->handles);
}

/* The gradient of `f` is instantiated as the function "SymbolicGradient" with the attribute f. */
static td_status gradient_create(td_kernel_builder *b, void *state) {
  TD_TRY(create(b, state, (const char *const[]){NULL}));
  Pb__AttrEntry entry = PB__ATTR_ENTRY__INIT, *entries = &entry;
  Pb__NameAttrList gradient = PB__NAME_ATTR_LIST__INIT;
  entry.key = "f";
  entry.value = (Pb__AttrValue *)td_attr_find(b->node, "f");
  gradient.name = "SymbolicGradient";
  gradient.attr = &entries;
  gradient.n_attr = 1;
  return add_function(b, state, &gradient);
}

static td_status for_create(td_kernel_builder *b, void *state) {
  return create(b, state, (const char *const[]){"body", NULL});
}

static td_status if_create(td_kernel_builder *b, void *state) {
  return create(b, state, (const char *const[]){"then_branch", "else_branch", NULL});
}

static td_status while_create(td_kernel_builder *b, void *state) {
  return create(b, state, (const char *const[]){"cond", "body", NULL});
}

static td_status case_create(td_kernel_builder *b, void *state) {
  const Pb__AttrValue__ListValue *branches;
  TD_TRY(create(b, state, (const char *const[]){NULL}));
  TD_TRY(td_attr_list(b->node, "branches", &branches));
  for (size_t i = 0; i < branches->n_func; i++) TD_TRY(add_function(b, state, branches->func[i]));
  return branches->n_func ? TD_STATUS_OK : td_invalid_argument("Case has no branches");
}

/* ---- one call ---- */

typedef struct call {
  td_function_call call;
  td_kernel_ctx *ctx;
} call;

static td_status take_results(td_kernel_ctx *ctx, td_status status, td_tensor **results, int count) {
  int want = ctx->kernel->output_count;
  if (!status && count != want)
    status =
        td_str_is(ctx->kernel->op, "SymbolicGradient")
            ? td_invalid_argument("SymGrad expects to return %d tensor(s), but get %d tensor(s) instead.", want, count)
            : td_internal("The function returns %d values, %d are expected", count, want);
  for (int i = 0; i < count; i++) {
    if (status)
      td_tensor_release(results[i]);
    else
      ctx->out[i].tensor = results[i];
  }
  return status;
}

static void call_done(td_function_call *fc, td_status status, td_tensor **results, int count) {
  call *c = TD_CONTAINER_OF(fc, call, call);
  td_kernel_ctx *ctx = c->ctx;
  td_free(c);
  td_kernel_done(ctx, take_results(ctx, status, results, count));
}

/* Calls function `which` with the inputs from `first` on, which stay where they are until it ends. */
static void start(td_kernel_ctx *ctx, size_t which, int first) {
  functions *f = ctx->state;
  call *c = td_new(call);
  c->ctx = ctx;
  c->call = (td_function_call){.function = f->handles[which],
                               .step = ctx->step,
                               .args = (td_tensor **)(ctx->in + first),
                               .arg_count = ctx->kernel->input_count - first,
                               .done = call_done};
  f->runtime->ops->run(f->runtime, &c->call);
}

static void call_compute(td_kernel_ctx *ctx) { start(ctx, 0, 0); }

/* ---- If, Case ---- */

#define TRUTH(type, c_type)          \
  case type:                         \
    *out = *TD_DATA(t, c_type) != 0; \
    return TD_STATUS_OK;

static td_status to_bool(const td_tensor *t, bool *out) {
  *out = t->count > 0;
  if (t->rank) return TD_STATUS_OK; /* a non-scalar is true when it is not empty */
  switch (t->dtype) {
    TRUTH(TD_FLOAT, float)
    TRUTH(TD_DOUBLE, double)
    TRUTH(TD_INT32, int32_t)
    TRUTH(TD_UINT8, uint8_t)
    TRUTH(TD_INT16, int16_t)
    TRUTH(TD_INT8, int8_t)
    TRUTH(TD_INT64, int64_t)
    TRUTH(TD_BOOL, uint8_t)
    case TD_STRING:
      *out = TD_DATA(t, td_string)->size > 0;
      return TD_STATUS_OK;
    default:
      return td_invalid_argument(
          "%s cannot be converted to a boolean. Expected a single scalar which can be converted to a "
          "boolean",
          td_dtype_name(t->dtype));
  }
}

static void if_compute(td_kernel_ctx *ctx) {
  bool yes;
  td_status s = to_bool(td_in(ctx, 0), &yes);
  if (s)
    td_kernel_done(ctx, s);
  else
    start(ctx, yes ? 0 : 1, 1);
}

static void case_compute(td_kernel_ctx *ctx) {
  const functions *f = ctx->state;
  const td_tensor *t = td_in(ctx, 0);
  if (!td_tensor_is_scalar(t)) {
    td_kernel_done(ctx, td_check_scalar(t, "branch_index"));
    return;
  }
  int32_t i = *TD_DATA(t, int32_t);
  start(ctx, i < 0 || (size_t)i >= f->count ? f->count - 1 : (size_t)i, 1);
}

/* ---- While, For ---- */

typedef struct loop {
  td_function_call call;
  td_kernel_ctx *ctx;
  int64_t at, limit, delta; /* of a For */
  int count;
  td_tensor *vars[];
} loop;

/* `count` loop variables from input `first` on, moved into the loop; `spare`: room in front of them. */
static loop *loop_new(td_kernel_ctx *ctx, int first, int spare) {
  int n = ctx->kernel->input_count - first;
  loop *l = td_malloc(sizeof *l + (size_t)(n + spare) * sizeof l->vars[0]);
  *l = (loop){.ctx = ctx, .count = n};
  for (int i = 0; i < n; i++) {
    l->vars[spare + i] = ctx->in[first + i].tensor;
    ctx->in[first + i].tensor = NULL;
  }
  return l;
}

static void loop_end(loop *l, td_status status) {
  td_kernel_ctx *ctx = l->ctx;
  status = take_results(ctx, status, l->vars, l->count);
  td_free(l);
  td_kernel_done(ctx, status);
}

static void condition_done(td_function_call *fc, td_status status, td_tensor **results, int count);

static void loop_call(loop *l, size_t which, void (*done)(td_function_call *, td_status, td_tensor **, int)) {
  functions *f = l->ctx->state;
  l->call = (td_function_call){
      .function = f->handles[which], .step = l->ctx->step, .args = l->vars, .arg_count = l->count, .done = done};
  f->runtime->ops->run(f->runtime, &l->call);
}

/* The body's results become the loop variables. */
static td_status take_variables(loop *l, td_tensor **vars, const char *kind, td_status status, td_tensor **results,
                                int count) {
  if (!status && count != l->count)
    status = td_invalid_argument("%s loop body returned %d arguments. Expected: %d", kind, count, l->count);
  for (int i = 0; i < count; i++) {
    if (status) {
      td_tensor_release(results[i]);
    } else {
      td_tensor_release(vars[i]);
      vars[i] = results[i];
    }
  }
  return status;
}

static void body_done(td_function_call *fc, td_status status, td_tensor **results, int count) {
  loop *l = TD_CONTAINER_OF(fc, loop, call);
  status = take_variables(l, l->vars, "While", status, results, count);
  if (status)
    loop_end(l, status);
  else
    loop_call(l, 0, condition_done);
}

static void condition_done(td_function_call *fc, td_status status, td_tensor **results, int count) {
  loop *l = TD_CONTAINER_OF(fc, loop, call);
  bool goes_on = false;
  if (!status && count != 1)
    status =
        td_invalid_argument("Expected a single scalar which can be converted to a boolean, got %d tensors.", count);
  if (!status) status = to_bool(results[0], &goes_on);
  for (int i = 0; i < count; i++) td_tensor_release(results[i]);
  if (status || !goes_on)
    loop_end(l, status);
  else
    loop_call(l, 1, body_done);
}

static void while_compute(td_kernel_ctx *ctx) { loop_call(loop_new(ctx, 0, 0), 0, condition_done); }

/* vars[0] is the counter, as the body gets it; the loop variables follow. */
static void for_end(loop *l, td_status status) {
  td_kernel_ctx *ctx = l->ctx;
  td_tensor_release(l->vars[0]);
  status = take_results(ctx, status, l->vars + 1, l->count);
  td_free(l);
  td_kernel_done(ctx, status);
}

static void for_done(td_function_call *fc, td_status status, td_tensor **results, int count);

static void for_next(loop *l) {
  functions *f = l->ctx->state;
  if (l->delta > 0 ? l->at >= l->limit : l->at <= l->limit) {
    for_end(l, TD_STATUS_OK);
    return;
  }
  td_tensor_release(l->vars[0]);
  l->vars[0] = NULL;
  td_status s = td_tensor_create_dims(TD_INT32, 0, NULL, &l->vars[0]);
  if (s) {
    for_end(l, s);
    return;
  }
  *TD_DATA(l->vars[0], int32_t) = (int32_t)l->at;
  l->call = (td_function_call){
      .function = f->handles[0], .step = l->ctx->step, .args = l->vars, .arg_count = l->count + 1, .done = for_done};
  f->runtime->ops->run(f->runtime, &l->call);
}

static void for_done(td_function_call *fc, td_status status, td_tensor **results, int count) {
  loop *l = TD_CONTAINER_OF(fc, loop, call);
  status = take_variables(l, l->vars + 1, "For", status, results, count);
  l->at += l->delta;
  if (status)
    for_end(l, status);
  else
    for_next(l);
}

static td_status for_bounds(td_kernel_ctx *ctx, int64_t bounds[3]) {
  static const char *const names[] = {"start", "limit", "delta"};
  for (int i = 0; i < 3; i++) {
    TD_TRY(td_check_scalar(td_in(ctx, i), names[i]));
    bounds[i] = *TD_DATA(td_in(ctx, i), int32_t);
  }
  int64_t start = bounds[0], limit = bounds[1], delta = bounds[2];
  if ((delta > 0 && start <= limit) || (delta < 0 && start >= limit) || (!delta && start == limit)) return TD_STATUS_OK;
  return td_invalid_argument("Invalid start/limit/delta: %lld %lld %lld", (long long)start, (long long)limit,
                             (long long)delta);
}

static void for_compute(td_kernel_ctx *ctx) {
  int64_t bounds[3];
  td_status s = for_bounds(ctx, bounds);
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  loop *l = loop_new(ctx, 3, 1);
  l->vars[0] = NULL;
  l->at = bounds[0];
  l->limit = bounds[1];
  l->delta = bounds[2];
  for_next(l);
}

#define IF_ATTRS                                                                                                    \
  "Tcond: type; Tin: list(type) >= 0; Tout: list(type) >= 0; then_branch: func; else_branch: func; output_shapes: " \
  "list(shape) = []"
#define CASE_ATTRS \
  "Tin: list(type) >= 0; Tout: list(type) >= 0; branches: list(func) >= 1; output_shapes: list(shape) = []"
#define WHILE_ATTRS \
  "T: list(type) >= 0; cond: func; body: func; output_shapes: list(shape) = []; parallel_iterations: int = 10"
#define CALL_ATTRS                                                                                         \
  "Tin: list(type) >= 0; Tout: list(type) >= 0; f: func; config: string = ''; config_proto: string = ''; " \
  "executor_type: "                                                                                        \
  "string = ''"

static const td_op_spec ops[] = {
    {.name = "Case",
     .inputs = "branch_index: int32; input: Tin",
     .outputs = "output: Tout",
     .attrs = CASE_ATTRS,
     .flags = TD_OP_STATEFUL},
    {.name = "For",
     .inputs = "start: int32; limit: int32; delta: int32; input: T",
     .outputs = "output: T",
     .attrs = "T: list(type) >= 0; body: func"},
    {.name = "If",
     .inputs = "cond: Tcond; input: Tin",
     .outputs = "output: Tout",
     .attrs = IF_ATTRS,
     .flags = TD_OP_STATEFUL},
    {.name = "PartitionedCall", .inputs = "args: Tin", .outputs = "output: Tout", .attrs = CALL_ATTRS},
    {.name = "StatefulPartitionedCall",
     .inputs = "args: Tin",
     .outputs = "output: Tout",
     .attrs = CALL_ATTRS,
     .flags = TD_OP_STATEFUL},
    {.name = "StatelessCase",
     .inputs = "branch_index: int32; input: Tin",
     .outputs = "output: Tout",
     .attrs = CASE_ATTRS},
    {.name = "StatelessIf", .inputs = "cond: Tcond; input: Tin", .outputs = "output: Tout", .attrs = IF_ATTRS},
    {.name = "StatelessWhile", .inputs = "input: T", .outputs = "output: T", .attrs = WHILE_ATTRS},
    {.name = "SymbolicGradient",
     .inputs = "input: Tin",
     .outputs = "output: Tout",
     .attrs = "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func"},
    {.name = "While", .inputs = "input: T", .outputs = "output: T", .attrs = WHILE_ATTRS, .flags = TD_OP_STATEFUL},
    {.name = "_If",
     .inputs = "cond: Tcond; input: Tin",
     .outputs = "output: Tout",
     .attrs = "Tcond: type; Tin: list(type) >= 1; Tout: list(type) >= 1; then_branch: func; else_branch: func",
     .flags = TD_OP_STATEFUL},
    {.name = "_While",
     .inputs = "input: T",
     .outputs = "output: T",
     .attrs = "T: list(type) >= 0; cond: func; body: func",
     .flags = TD_OP_STATEFUL},
};

#define KERNEL(name, create_fn, compute_fn)                                                                      \
  {                                                                                                              \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(functions), .create = create_fn, .destroy = destroy, \
    .compute_async = compute_fn                                                                                  \
  }

static const td_kernel_def kernels[] = {
    KERNEL("Case", case_create, case_compute),
    KERNEL("For", for_create, for_compute),
    KERNEL("If", if_create, if_compute),
    KERNEL("PartitionedCall", call_create, call_compute),
    KERNEL("StatefulPartitionedCall", call_create, call_compute),
    KERNEL("StatelessCase", case_create, case_compute),
    KERNEL("StatelessIf", if_create, if_compute),
    KERNEL("StatelessWhile", while_create, while_compute),
    KERNEL("SymbolicGradient", gradient_create, call_compute),
    KERNEL("While", while_create, while_compute),
    KERNEL("_If", if_create, if_compute),
    KERNEL("_While", while_create, while_compute),
};

TD_FAMILY(functional, ops, kernels);

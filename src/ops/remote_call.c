/* RemoteCall: a function on a device whose name is an input. function_ops.cc. */
#include "base/mem.h"
#include "base/pool.h"
#include "framework/function.h"
#include "ops/families.h"

typedef struct remote {
  td_function_runtime *runtime;
  const Pb__AttrValue *f; /* own copy, in arena */
  td_arena arena;
} remote;

static void *arena_alloc(void *arena, size_t size) { return td_arena_alloc(arena, size ? size : 1); }

static void arena_free(void *arena, void *p) {
  (void)arena;
  (void)p;
}

/* The attribute outlives the node that it came from. */
static td_status copy_function(remote *r, const Pb__AttrValue *f) {
  ProtobufCAllocator allocator = {.alloc = arena_alloc, .free = arena_free, .allocator_data = &r->arena};
  size_t size = pb__attr_value__get_packed_size(f);
  uint8_t *bytes = td_try_malloc(size + 1);
  if (!bytes) return td_resource_exhausted("No memory for a function's attributes of %zu bytes", size);
  r->f = pb__attr_value__unpack(&allocator, pb__attr_value__pack(f, bytes), bytes);
  td_free(bytes);
  return r->f ? TD_STATUS_OK : td_invalid_argument("Malformed attribute f");
}

static td_status remote_create(td_kernel_builder *b, void *state) {
  remote *r = state;
  const Pb__NameAttrList *function;
  r->runtime = b->functions;
  if (!r->runtime) return td_internal("No function library is provided.");
  TD_TRY(td_attr_func(b->node, "f", &function));
  return copy_function(r, td_attr_find(b->node, "f"));
}

static void remote_destroy(void *state) { td_arena_deinit(&((remote *)state)->arena); }

/* ---- one call ---- */

typedef struct call {
  td_function_call call;
  td_kernel_ctx *ctx;
  td_work work;
} call;

static void call_done(td_function_call *fc, td_status status, td_tensor **results, int count) {
  call *c = TD_CONTAINER_OF(fc, call, call);
  td_kernel_ctx *ctx = c->ctx;
  int want = ctx->kernel->output_count;
  td_free(c);
  if (!status && count != want) status = td_internal("The function returns %d values, %d are expected", count, want);
  for (int i = 0; i < count; i++) {
    if (status)
      td_tensor_release(results[i]);
    else
      ctx->out[i].tensor = results[i];
  }
  td_kernel_done(ctx, status);
}

/* The first call compiles the function: not on a loop thread. */
static void start(td_work *work) {
  call *c = TD_CONTAINER_OF(work, call, work);
  td_kernel_ctx *ctx = c->ctx;
  remote *r = ctx->state;
  const td_tensor *target = td_in(ctx, 0);
  td_status s = td_check_scalar(target, "target");
  if (!s) {
    const td_string *name = TD_DATA(target, td_string);
    td_function_where where = {.target = td_str_n(name->data, name->size)};
    s = r->runtime->ops->instantiate_on(r->runtime, r->f->func, ctx->device, &where, &c->call.function);
  }
  if (s)
    call_done(&c->call, s, NULL, 0);
  else
    r->runtime->ops->run(r->runtime, &c->call);
}

static void remote_compute(td_kernel_ctx *ctx) {
  call *c = td_new(call);
  c->ctx = ctx;
  c->call = (td_function_call){.step = ctx->step,
                               .args = (td_tensor **)(ctx->in + 1),
                               .arg_count = ctx->kernel->input_count - 1,
                               .done = call_done};
  c->work.run = start;
  if (ctx->step->pool)
    td_pool_submit(ctx->step->pool, &c->work);
  else
    start(&c->work);
}

static const td_op_spec ops[] = {
    {.name = "RemoteCall",
     .inputs = "target: string; args: Tin",
     .outputs = "output: Tout",
     .attrs = "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func",
     .flags = TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "RemoteCall",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(remote),
     .create = remote_create,
     .destroy = remote_destroy,
     .compute_async = remote_compute},
};

TD_FAMILY(remote_call, ops, kernels);

/* Stacks: tensors of a step, put aside and taken back in reverse order, as gradients of loops do (TensorFlow's
 * stack_ops). */
#include <inttypes.h>
#include <pthread.h>

#include "base/mem.h"
#include "base/random.h"
#include "framework/resource.h"
#include "ops/families.h"
#include "ops/handles.h"

#define STACKS TD_STR("_stacks")

typedef struct stack {
  td_resource resource;
  char *name;
  td_dtype dtype;
  int64_t max_size;
  pthread_mutex_t lock;
  /* guarded by lock */
  bool is_closed;
  td_tensor **items;
  size_t count, capacity;
} stack;

static void clear(stack *s) {
  for (size_t i = 0; i < s->count; i++) td_tensor_release(s->items[i]);
  td_free(s->items);
  s->items = NULL;
  s->count = s->capacity = 0;
}

static void destroy_stack(td_resource *r) {
  stack *s = (stack *)r;
  clear(s);
  pthread_mutex_destroy(&s->lock);
  td_free(s->name);
  td_free(s);
}

static const td_resource_type stack_type = {.name = "N10tensorflow5StackE", .destroy = destroy_stack};

static td_status closed(const stack *s) {
  return s->is_closed ? td_invalid_argument("Stack[%s] has already been closed.", s->name) : TD_STATUS_OK;
}

static td_status push(stack *s, td_tensor *value) {
  TD_TRY(closed(s));
  if ((int64_t)s->count >= s->max_size)
    return td_invalid_argument("Stack[%s] overflowed its max_size (%lld)", s->name, (long long)s->max_size);
  TD_GROW(s->items, s->count, s->capacity);
  s->items[s->count++] = td_tensor_retain(value);
  return TD_STATUS_OK;
}

static td_status pop(stack *s, td_tensor **out) {
  TD_TRY(closed(s));
  if (!s->count) return td_invalid_argument("Stack[%s] is empty when calling Pop().", s->name);
  *out = s->items[--s->count];
  return TD_STATUS_OK;
}

/* ---- kernels ---- */

typedef struct stack_state {
  char *name;
  td_dtype dtype;
} stack_state;

static td_status create_stack_kernel(td_kernel_builder *b, void *state) {
  stack_state *st = state;
  td_str name;
  TD_TRY(td_attr_type(b->node, "elem_type", &st->dtype));
  TD_TRY(td_attr_str(b->node, "stack_name", &name));
  if (!name.size) name = b->node->name;
  st->name = td_strndup(name.data, name.size);
  return TD_STATUS_OK;
}

static void destroy_stack_kernel(void *state) { td_free(((stack_state *)state)->name); }

static stack *make_stack(td_dtype dtype, int64_t max_size, const char *name) {
  stack *s = td_new(stack);
  td_resource_init(&s->resource, &stack_type);
  pthread_mutex_init(&s->lock, NULL);
  s->name = td_strdup(name);
  s->dtype = dtype;
  s->max_size = max_size;
  return s;
}

/* Under a name that no other stack of the step has. */
static td_status add_stack(td_kernel_ctx *ctx, int64_t max_size, td_strbuf *name) {
  stack_state *st = ctx->state;
  for (;;) {
    td_strbuf_deinit(name);
    td_strbuf_printf(name, "%s_%" PRIu64, st->name, td_random_fast_u64() >> 20);
    stack *s = make_stack(st->dtype, max_size, td_strbuf_cstr(name));
    td_strbuf key = {0};
    td_strbuf_append(&key, STACKS);
    td_strbuf_append(&key, td_strbuf_view(name));
    td_status status = td_resource_add(ctx->step->step_resources, (td_str){0}, td_strbuf_view(&key), &s->resource);
    td_strbuf_deinit(&key);
    td_resource_release(s);
    if (td_status_code(status) != TD_ALREADY_EXISTS) return status;
    td_status_free(status);
  }
}

static td_status compute_stack(td_kernel_ctx *ctx) {
  int64_t max_size = INT32_MAX;
  if (!ctx->step->step_resources) return td_internal("No step container.");
  if (ctx->kernel->input_count) {
    td_tensor *size = td_in(ctx, 0);
    if (size->rank) {
      char *text = td_tensor_shape_text(size);
      td_status s = td_invalid_argument("Stack size must be a scalar, but had shape: %s", text);
      td_free(text);
      return s;
    }
    if (*TD_DATA(size, int32_t) >= 0) max_size = *TD_DATA(size, int32_t);
  }
  td_strbuf name = {0};
  td_status s = add_stack(ctx, max_size, &name);
  if (!s)
    s = td_out_handle(
        ctx, 0,
        &(td_handle_parts){
            .m = ctx->step->step_resources, .prefix = STACKS, .name = td_strbuf_view(&name), .type = &stack_type});
  td_strbuf_deinit(&name);
  return s;
}

static td_status find(td_kernel_ctx *ctx, stack **out) {
  void *found;
  TD_TRY(
      td_in_handle(ctx, ctx->step->step_resources, true, "Stack handle must have two elements", &stack_type, &found));
  *out = found;
  return TD_STATUS_OK;
}

static td_status compute_push(td_kernel_ctx *ctx) {
  stack *st;
  td_status s = TD_STATUS_OK;
  TD_TRY(find(ctx, &st));
  if (td_in_type(ctx, 1) != st->dtype) {
    s = td_invalid_argument("Must have type %d but got %d", (int)st->dtype, (int)td_in_type(ctx, 1));
  } else {
    pthread_mutex_lock(&st->lock);
    s = push(st, td_in(ctx, 1));
    pthread_mutex_unlock(&st->lock);
  }
  td_resource_release(st);
  if (!s) td_out_forward(ctx, 1, 0);
  return s;
}

static td_status compute_pop(td_kernel_ctx *ctx) {
  stack *st;
  td_tensor *value = NULL;
  TD_TRY(find(ctx, &st));
  pthread_mutex_lock(&st->lock);
  td_status s = pop(st, &value);
  pthread_mutex_unlock(&st->lock);
  td_resource_release(st);
  if (!s) td_out_set(ctx, 0, value);
  return s;
}

static td_status compute_close(td_kernel_ctx *ctx) {
  stack *st;
  TD_TRY(find(ctx, &st));
  pthread_mutex_lock(&st->lock);
  clear(st);
  st->is_closed = true;
  pthread_mutex_unlock(&st->lock);
  td_resource_release(st);
  return TD_STATUS_OK;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {.name = "Stack",
     .outputs = "handle: Ref(string)",
     .attrs = "elem_type: type; stack_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "StackClose", .inputs = "handle: Ref(string)"},
    {.name = "StackCloseV2", .inputs = "handle: resource", .flags = TD_OP_STATEFUL},
    {.name = "StackPop", .inputs = "handle: Ref(string)", .outputs = "elem: elem_type", .attrs = "elem_type: type"},
    {.name = "StackPopV2",
     .inputs = "handle: resource",
     .outputs = "elem: elem_type",
     .attrs = "elem_type: type",
     .flags = TD_OP_STATEFUL},
    {.name = "StackPush",
     .inputs = "handle: Ref(string); elem: T",
     .outputs = "output: T",
     .attrs = "T: type; swap_memory: bool = false"},
    {.name = "StackPushV2",
     .inputs = "handle: resource; elem: T",
     .outputs = "output: T",
     .attrs = "T: type; swap_memory: bool = false",
     .flags = TD_OP_STATEFUL},
    {.name = "StackV2",
     .inputs = "max_size: int32",
     .outputs = "handle: resource",
     .attrs = "elem_type: type; stack_name: string = ''",
     .flags = TD_OP_STATEFUL},
};

#define STACK(name)                                                                                      \
  {                                                                                                      \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(stack_state), .create = create_stack_kernel, \
    .destroy = destroy_stack_kernel, .compute = compute_stack                                            \
  }
#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }

static const td_kernel_def kernels[] = {
    STACK("Stack"),
    STACK("StackV2"),
    PLAIN("StackPush", compute_push),
    PLAIN("StackPushV2", compute_push),
    PLAIN("StackPop", compute_pop),
    PLAIN("StackPopV2", compute_pop),
    PLAIN("StackClose", compute_close),
    PLAIN("StackCloseV2", compute_close),
};

TD_FAMILY(stack, ops, kernels);

/* Staging areas in order of arrival: Stage, Unstage, StagePeek, StageSize, StageClear (TensorFlow's stage_op). */
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/staging.h"

typedef struct area {
  td_room room;                    /* first */
  uint64_t capacity, memory_limit; /* immutable */
  /* guarded by the room's lock */
  td_staged **items; /* items[head .. head + count) */
  size_t head, count, allocated;
  uint64_t bytes;
} area;

static void clear_area(td_room *r) {
  area *a = (area *)r;
  for (size_t i = 0; i < a->count; i++) td_staged_free(a->items[a->head + i]);
  a->head = a->count = 0;
  a->bytes = 0;
}

static void destroy_area(td_resource *r) {
  area *a = (area *)r;
  clear_area(&a->room);
  td_free(a->items);
  td_room_deinit(&a->room);
  td_free(a);
}

static const td_resource_type area_type = {.name = "N10tensorflow12_GLOBAL__N_16BufferE", .destroy = destroy_area};

static td_status new_area(void *arg, td_resource **out) {
  const td_staging_state *st = arg;
  area *a = td_new(area);
  td_room_init(&a->room, &area_type, TD_STAGING_CANCELLED);
  a->capacity = st->capacity;
  a->memory_limit = st->memory_limit;
  *out = &a->room.resource;
  return TD_STATUS_OK;
}

static void push(area *a, td_staged *s) {
  if (a->head + a->count == a->allocated && a->head > a->count) {
    memmove(a->items, a->items + a->head, a->count * sizeof *a->items);
    a->head = 0;
  }
  size_t end = a->head + a->count;
  TD_GROW(a->items, end, a->allocated);
  a->items[end] = s;
  a->count++;
}

static td_staged *pop(area *a) {
  td_staged *s = a->items[a->head++];
  if (!--a->count) a->head = 0;
  return s;
}

static uint64_t staged_bytes(const td_staged *s) {
  uint64_t bytes = 0;
  for (int i = 0; i < s->count; i++) bytes += td_staged_tensor_bytes(s->tensors[i]);
  return bytes;
}

static bool put(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  area *a = (area *)r;
  uint64_t bytes = 0;
  int n = ctx->kernel->input_count;
  for (int i = 0; i < n; i++) bytes += td_staged_tensor_bytes(td_in(ctx, i));
  *status = td_staging_check_limit(bytes, a->memory_limit);
  if (*status) return true;
  if ((a->capacity && a->count >= a->capacity) || (a->memory_limit && a->bytes + bytes > a->memory_limit)) return false;
  td_staged *s = td_staged_create(n);
  for (int i = 0; i < n; i++) {
    s->tensors[i] = td_in(ctx, i);
    ctx->in[i].tensor = NULL;
  }
  push(a, s);
  a->bytes += bytes;
  *changed = true;
  return true;
}

/* Hands the tensors out; those of `s` that are handed out become NULL if `take`. */
static td_status out_all(td_kernel_ctx *ctx, td_staged *s, bool take) {
  if (s->count != ctx->kernel->output_count) {
    return td_invalid_argument("Mismatch stage/unstage: %d vs. %d", s->count, ctx->kernel->output_count);
  }
  for (int i = 0; i < s->count; i++) {
    td_tensor *t = s->tensors[i];
    if (take)
      s->tensors[i] = NULL;
    else
      td_tensor_retain(t);
    TD_TRY(td_staging_out(ctx, i, t));
  }
  return TD_STATUS_OK;
}

static bool get(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  area *a = (area *)r;
  if (!a->count) return false;
  td_staged *s = pop(a);
  a->bytes -= staged_bytes(s);
  *status = out_all(ctx, s, true);
  td_staged_free(s);
  *changed = true;
  return true;
}

static bool peek(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  area *a = (area *)r;
  const td_tensor *index = td_in(ctx, 0);
  (void)changed;
  *status = td_check_scalar(index, "index");
  if (*status) return true;
  int32_t at = TD_DATA(index, int32_t)[0];
  if (at < 0) {
    *status = td_invalid_argument("index must not be negative, got %d", at);
    return true;
  }
  if ((size_t)at >= a->count) return false;
  *status = out_all(ctx, a->items[a->head + (size_t)at], false);
  return true;
}

static bool size(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  (void)changed;
  *status = td_staging_out_size(ctx, ((area *)r)->count);
  return true;
}

static bool clear(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  (void)ctx;
  (void)status;
  clear_area(r);
  return *changed = true;
}

static void run(td_kernel_ctx *ctx, td_attempt_fn attempt) {
  const td_staging_state *st = ctx->state;
  void *a = NULL;
  td_status s = td_resource_lookup_or_create(ctx->device->resources, td_str_of(st->container), td_str_of(st->name),
                                             &area_type, new_area, ctx->state, &a);
  if (s)
    td_kernel_done(ctx, s);
  else
    td_room_run(a, ctx, attempt);
}

static void stage_async(td_kernel_ctx *ctx) { run(ctx, put); }
static void unstage_async(td_kernel_ctx *ctx) { run(ctx, get); }
static void peek_async(td_kernel_ctx *ctx) { run(ctx, peek); }
static void size_async(td_kernel_ctx *ctx) { run(ctx, size); }
static void clear_async(td_kernel_ctx *ctx) { run(ctx, clear); }

#define BOUNDS "capacity: int >= 0 = 0; memory_limit: int >= 0 = 0; "
#define PLACE  "; container: string = ''; shared_name: string = ''"

static const td_op_spec ops[] = {
    {"Stage", "values: dtypes", NULL, BOUNDS "dtypes: list(type) >= 1" PLACE, TD_OP_STATEFUL},
    {"StageClear", NULL, NULL, BOUNDS "dtypes: list(type)" PLACE, TD_OP_STATEFUL},
    {"StagePeek", "index: int32", "values: dtypes", BOUNDS "dtypes: list(type) >= 1" PLACE, TD_OP_STATEFUL},
    {"StageSize", NULL, "size: int32", BOUNDS "dtypes: list(type)" PLACE, TD_OP_STATEFUL},
    {"Unstage", NULL, "values: dtypes", BOUNDS "dtypes: list(type) >= 1" PLACE, TD_OP_STATEFUL},
};

#define KERNEL(name, fn)                                                                                            \
  {                                                                                                                 \
    .op = name, .state_size = sizeof(td_staging_state), .create = td_staging_create, .destroy = td_staging_destroy, \
    .compute_async = fn                                                                                             \
  }

static const td_kernel_def kernels[] = {
    KERNEL("Stage", stage_async),    KERNEL("StageClear", clear_async), KERNEL("StagePeek", peek_async),
    KERNEL("StageSize", size_async), KERNEL("Unstage", unstage_async),
};

TD_FAMILY(stage, ops, kernels);

/* Staging areas by key: MapStage, MapUnstage, MapPeek, MapUnstageNoKey, MapSize, MapIncompleteSize, MapClear and their
 * Ordered forms (TensorFlow's map_stage_op). Both kinds keep their entries sorted by key: which entry the unordered
 * form hands out first is not defined, so the smallest will do. */
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/staging.h"

/* Entries by key: items[head .. head + count). Taking the smallest and appending the largest are cheap. */
typedef struct shelf {
  td_staged **items;
  size_t head, count, allocated;
} shelf;

typedef struct area {
  td_room room;                    /* first */
  uint64_t capacity, memory_limit; /* immutable, like dtype_count */
  int dtype_count;
  /* guarded by the room's lock */
  shelf complete, incomplete;
  uint64_t bytes;
} area;

/* ---- shelves ---- */

static size_t shelf_find(const shelf *s, int64_t key, bool *found) { /* or where it would stand */
  size_t low = s->head, high = s->head + s->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (s->items[middle]->key < key)
      low = middle + 1;
    else
      high = middle;
  }
  *found = low < s->head + s->count && s->items[low]->key == key;
  return low;
}

static void shelf_insert(shelf *s, size_t at, td_staged *entry) {
  if (s->head + s->count == s->allocated && s->head > s->count) {
    memmove(s->items, s->items + s->head, s->count * sizeof *s->items);
    at -= s->head;
    s->head = 0;
  }
  size_t end = s->head + s->count;
  TD_GROW(s->items, end, s->allocated);
  memmove(s->items + at + 1, s->items + at, (end - at) * sizeof *s->items);
  s->items[at] = entry;
  s->count++;
}

static td_staged *shelf_remove(shelf *s, size_t at) {
  td_staged *entry = s->items[at];
  if (at == s->head)
    s->head++;
  else
    memmove(s->items + at, s->items + at + 1, (s->head + s->count - at - 1) * sizeof *s->items);
  if (!--s->count) s->head = 0;
  return entry;
}

static void shelf_clear(shelf *s) {
  for (size_t i = 0; i < s->count; i++) td_staged_free(s->items[s->head + i]);
  s->head = s->count = 0;
}

/* ---- areas ---- */

static void clear_area(area *a) {
  shelf_clear(&a->complete);
  shelf_clear(&a->incomplete);
  a->bytes = 0;
}

static void destroy_area(td_resource *r) {
  area *a = (area *)r;
  clear_area(a);
  td_free(a->complete.items);
  td_free(a->incomplete.items);
  td_room_deinit(&a->room);
  td_free(a);
}

static const td_resource_type unordered_type = {.name = "N10tensorflow12_GLOBAL__N_110StagingMapILb0EEE",
                                                .destroy = destroy_area};
static const td_resource_type ordered_type = {.name = "N10tensorflow12_GLOBAL__N_110StagingMapILb1EEE",
                                              .destroy = destroy_area};

typedef struct state {
  td_staging_state common; /* first */
  const td_resource_type *type;
} state;

static td_status create(td_kernel_builder *b, void *p) {
  ((state *)p)->type = td_str_starts(b->node->op, TD_STR("Ordered")) ? &ordered_type : &unordered_type;
  return td_staging_create(b, p);
}

static td_status new_area(void *arg, td_resource **out) {
  const state *st = arg;
  area *a = td_new(area);
  td_room_init(&a->room, st->type, TD_STAGING_CANCELLED);
  a->capacity = st->common.capacity;
  a->memory_limit = st->common.memory_limit;
  a->dtype_count = st->common.dtype_count;
  *out = &a->room.resource;
  return TD_STATUS_OK;
}

/* ---- checks ---- */

static td_status check_order(const td_tensor *indices) {
  const int32_t *at = TD_DATA(indices, int32_t);
  if (!indices->count) return td_invalid_argument("Indices are empty");
  for (int64_t i = 0; i + 1 < indices->count; i++) {
    if (at[i] >= at[i + 1]) return td_invalid_argument("Indices are not strictly ordered");
  }
  return TD_STATUS_OK;
}

static td_status check_index(const area *a, int64_t key, int32_t index) {
  if (index >= 0 && index < a->dtype_count) return TD_STATUS_OK;
  return td_invalid_argument("Index '%lld' for key '%lld' was out of bounds '%d'.", (long long)index, (long long)key,
                             a->dtype_count);
}

static td_status check_key(const td_tensor *key) {
  if (!key->count) return td_invalid_argument("key must not be empty");
  if (key->count == 1) return TD_STATUS_OK;
  return td_invalid_argument("key must be an int64 scalar, got tensor with shape: %s", TD_SHOW(key));
}

static bool must_wait(const area *a, uint64_t bytes, bool counts) {
  return (a->memory_limit && a->bytes + bytes > a->memory_limit) ||
         (counts && a->capacity && a->complete.count >= a->capacity);
}

/* ---- putting in ---- */

static td_status check_put(const area *a, td_kernel_ctx *ctx, uint64_t *bytes) {
  const td_tensor *indices = td_in(ctx, 1);
  int n = ctx->kernel->input_count - 2;
  TD_TRY(check_key(td_in(ctx, 0)));
  TD_TRY(check_order(indices));
  int64_t key = TD_DATA(td_in(ctx, 0), int64_t)[0];
  if (indices->count != n) {
    return td_invalid_argument("%lld indices do not fit %d values", (long long)indices->count, n);
  }
  for (int i = 0; i < n; i++) {
    TD_TRY(check_index(a, key, TD_DATA(indices, int32_t)[i]));
    *bytes += td_staged_tensor_bytes(td_in(ctx, i + 2));
  }
  return td_staging_check_limit(*bytes, a->memory_limit);
}

static void move_in(td_kernel_ctx *ctx, td_staged *entry) {
  const int32_t *at = TD_DATA(td_in(ctx, 1), int32_t);
  for (int i = 0; i < ctx->kernel->input_count - 2; i++) {
    entry->tensors[at[i]] = td_in(ctx, i + 2);
    ctx->in[i + 2].tensor = NULL;
  }
}

/* An entry of a key that is there already is dropped, as TensorFlow does. */
static void put_complete(area *a, td_staged *entry, uint64_t bytes) {
  bool found;
  size_t at = shelf_find(&a->complete, entry->key, &found);
  if (found) {
    td_staged_free(entry);
    return;
  }
  shelf_insert(&a->complete, at, entry);
  a->bytes += bytes;
}

static bool is_full(const td_staged *s) {
  for (int i = 0; i < s->count; i++) {
    if (!s->tensors[i]) return false;
  }
  return true;
}
static uint64_t staged_bytes(const td_staged *s) {
  uint64_t bytes = 0;
  for (int i = 0; i < s->count; i++) bytes += s->tensors[i] ? td_staged_tensor_bytes(s->tensors[i]) : 0;
  return bytes;
}

static td_status put_incomplete(area *a, td_kernel_ctx *ctx, int64_t key, uint64_t bytes) {
  bool found;
  size_t at = shelf_find(&a->incomplete, key, &found);
  if (!found) {
    td_staged *entry = td_staged_create(a->dtype_count);
    entry->key = key;
    shelf_insert(&a->incomplete, at, entry);
    at = shelf_find(&a->incomplete, key, &found);
  }
  td_staged *entry = a->incomplete.items[at];
  for (int i = 0; i < ctx->kernel->input_count - 2; i++) {
    int32_t index = TD_DATA(td_in(ctx, 1), int32_t)[i];
    if (entry->tensors[index]) {
      return td_invalid_argument("The tensor for index '%d' for key '%lld' was already initialized '%d'.", index,
                                 (long long)key, a->dtype_count);
    }
  }
  move_in(ctx, entry);
  a->bytes += bytes;
  if (!is_full(entry)) return TD_STATUS_OK;
  uint64_t all = staged_bytes(entry);
  shelf_remove(&a->incomplete, at);
  a->bytes -= all;
  put_complete(a, entry, all);
  return TD_STATUS_OK;
}

static bool put(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  area *a = (area *)r;
  uint64_t bytes = 0;
  *status = check_put(a, ctx, &bytes);
  if (*status) return true;
  bool whole = ctx->kernel->input_count - 2 == a->dtype_count;
  if (must_wait(a, bytes, whole)) return false;
  int64_t key = TD_DATA(td_in(ctx, 0), int64_t)[0];
  if (whole) {
    td_staged *entry = td_staged_create(a->dtype_count);
    entry->key = key;
    move_in(ctx, entry);
    put_complete(a, entry, bytes);
  } else {
    *status = put_incomplete(a, ctx, key, bytes);
  }
  return *changed = true;
}

/* ---- taking out ---- */

static td_status check_indices(td_kernel_ctx *ctx, int in, int first) {
  const td_tensor *indices = td_in(ctx, in);
  int outputs = ctx->kernel->output_count - first;
  TD_TRY(check_order(indices));
  if (indices->count == outputs) return TD_STATUS_OK;
  return td_invalid_argument("output/indices size mismatch: %d vs. %lld", outputs, (long long)indices->count);
}

/* The values at `indices` of an entry, as outputs from `first` on; nothing is taken if anything is wrong. */
static td_status hand_out(area *a, td_kernel_ctx *ctx, td_staged *entry, const td_tensor *indices, int first,
                          bool take) {
  const int32_t *at = TD_DATA(indices, int32_t);
  for (int64_t i = 0; i < indices->count; i++) {
    TD_TRY(check_index(a, entry->key, at[i]));
    if (!entry->tensors[at[i]]) {
      return td_invalid_argument("Tensor at index '%d' for key '%lld' has already been removed.", at[i],
                                 (long long)entry->key);
    }
  }
  for (int64_t i = 0; i < indices->count; i++) {
    td_tensor *t = entry->tensors[at[i]];
    if (take) {
      entry->tensors[at[i]] = NULL;
      a->bytes -= td_staged_tensor_bytes(t);
    } else {
      td_tensor_retain(t);
    }
    TD_TRY(td_staging_out(ctx, first + (int)i, t));
  }
  return TD_STATUS_OK;
}

static void drop_if_empty(area *a, size_t at) {
  td_staged *entry = a->complete.items[at];
  for (int i = 0; i < entry->count; i++) {
    if (entry->tensors[i]) return;
  }
  td_staged_free(shelf_remove(&a->complete, at));
}

static bool by_key(area *a, td_kernel_ctx *ctx, bool take, td_status *status, bool *changed) {
  bool found;
  *status = check_key(td_in(ctx, 0));
  if (!*status) *status = check_indices(ctx, 1, 0);
  if (*status) return true;
  size_t at = shelf_find(&a->complete, TD_DATA(td_in(ctx, 0), int64_t)[0], &found);
  if (!found) return false;
  *status = hand_out(a, ctx, a->complete.items[at], td_in(ctx, 1), 0, take);
  if (take) {
    drop_if_empty(a, at);
    *changed = true;
  }
  return true;
}

static bool take(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  return by_key((area *)r, ctx, true, status, changed);
}
static bool peek(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  return by_key((area *)r, ctx, false, status, changed);
}

static bool take_any(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  area *a = (area *)r;
  td_tensor *key;
  *status = check_indices(ctx, 0, 1);
  if (*status) return true;
  if (!a->complete.count) return false;
  size_t at = a->complete.head;
  *status = td_out_alloc_dims(ctx, 0, 0, NULL, &key);
  if (*status) return true;
  TD_DATA(key, int64_t)[0] = a->complete.items[at]->key;
  *status = hand_out(a, ctx, a->complete.items[at], td_in(ctx, 0), 1, true);
  drop_if_empty(a, at);
  return *changed = true;
}

static bool size(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  (void)changed;
  *status = td_staging_out_size(ctx, ((area *)r)->complete.count);
  return true;
}
static bool incomplete_size(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  (void)changed;
  *status = td_staging_out_size(ctx, ((area *)r)->incomplete.count);
  return true;
}
static bool clear(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  (void)ctx;
  (void)status;
  clear_area((area *)r);
  return *changed = true;
}

/* ---- kernels ---- */

static void run(td_kernel_ctx *ctx, td_attempt_fn attempt) {
  const state *st = ctx->state;
  void *a = NULL;
  td_status s = td_resource_lookup_or_create(ctx->device->resources, td_str_of(st->common.container),
                                             td_str_of(st->common.name), st->type, new_area, ctx->state, &a);
  if (s)
    td_kernel_done(ctx, s);
  else
    td_room_run(a, ctx, attempt);
}

static void stage_async(td_kernel_ctx *ctx) { run(ctx, put); }
static void unstage_async(td_kernel_ctx *ctx) { run(ctx, take); }
static void unstage_any_async(td_kernel_ctx *ctx) { run(ctx, take_any); }
static void peek_async(td_kernel_ctx *ctx) { run(ctx, peek); }
static void size_async(td_kernel_ctx *ctx) { run(ctx, size); }
static void incomplete_size_async(td_kernel_ctx *ctx) { run(ctx, incomplete_size); }
static void clear_async(td_kernel_ctx *ctx) { run(ctx, clear); }

#define BOUNDS "capacity: int >= 0 = 0; memory_limit: int >= 0 = 0; "
#define PLACE  "; container: string = ''; shared_name: string = ''"

#define OPS(prefix)                                                                                                   \
  {prefix "MapClear", NULL, NULL, BOUNDS "dtypes: list(type)" PLACE, TD_OP_STATEFUL},                                 \
      {prefix "MapIncompleteSize", NULL, "size: int32", BOUNDS "dtypes: list(type)" PLACE, TD_OP_STATEFUL},           \
      {prefix "MapPeek", "key: int64; indices: int32", "values: dtypes", BOUNDS "dtypes: list(type) >= 1" PLACE,      \
       TD_OP_STATEFUL},                                                                                               \
      {prefix "MapSize", NULL, "size: int32", BOUNDS "dtypes: list(type)" PLACE, TD_OP_STATEFUL},                     \
      {prefix "MapStage", "key: int64; indices: int32; values: fake_dtypes", NULL,                                    \
       BOUNDS "dtypes: list(type); fake_dtypes: list(type) >= 1" PLACE, TD_OP_STATEFUL},                              \
      {prefix "MapUnstage", "key: int64; indices: int32", "values: dtypes", BOUNDS "dtypes: list(type) >= 1" PLACE,   \
       TD_OP_STATEFUL},                                                                                               \
  {                                                                                                                   \
    prefix "MapUnstageNoKey", "indices: int32", "key: int64; values: dtypes", BOUNDS "dtypes: list(type) >= 1" PLACE, \
        TD_OP_STATEFUL                                                                                                \
  }

static const td_op_spec ops[] = {OPS(""), OPS("Ordered")};

#define KERNEL(name, fn) \
  { .op = name, .state_size = sizeof(state), .create = create, .destroy = td_staging_destroy, .compute_async = fn }
#define KERNELS(prefix)                                                                              \
  KERNEL(prefix "MapClear", clear_async), KERNEL(prefix "MapIncompleteSize", incomplete_size_async), \
      KERNEL(prefix "MapPeek", peek_async), KERNEL(prefix "MapSize", size_async),                    \
      KERNEL(prefix "MapStage", stage_async), KERNEL(prefix "MapUnstage", unstage_async),            \
      KERNEL(prefix "MapUnstageNoKey", unstage_any_async)

static const td_kernel_def kernels[] = {KERNELS(""), KERNELS("Ordered")};

TD_FAMILY(map_stage, ops, kernels);

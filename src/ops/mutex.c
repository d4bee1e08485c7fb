/* Mutexes: MutexV2, MutexLock, ConsumeMutexLock (TensorFlow's mutex_ops). A lock is held as long as the variant that
 * MutexLock hands out lives. */
#include "base/mem.h"
#include "framework/device.h"
#include "ops/families.h"
#include "ops/handles.h"
#include "ops/move.h"
#include "ops/waiting.h"

typedef struct mutex {
  td_room room; /* first */
  bool locked;  /* guarded by the room's lock */
} mutex;

static void destroy_mutex(td_resource *r) {
  td_room_deinit((td_room *)r);
  td_free(r);
}

static const td_resource_type mutex_type = {.name = "N10tensorflow12_GLOBAL__N_15MutexE", .destroy = destroy_mutex};

static td_status new_mutex(void *arg, td_resource **out) {
  (void)arg;
  mutex *m = td_new(mutex);
  td_room_init(&m->room, &mutex_type, "Lock acquisition cancelled.");
  *out = &m->room.resource;
  return TD_STATUS_OK;
}

/* ---- the lock, a variant ---- */

typedef struct held {
  td_variant variant; /* first */
  mutex *mutex;       /* retained */
} held;

static void unlock_mutex(td_room *r) { ((mutex *)r)->locked = false; }

static void destroy_held(td_variant *v) {
  held *h = (held *)v;
  td_room_change(&h->mutex->room, unlock_mutex);
  td_resource_release(h->mutex);
  td_free(h);
}

static const td_variant_ops held_ops = {
    .type_name = "tensorflow::(anonymous namespace)::Mutex::SharedLockReleaser",
    .destroy = destroy_held,
};

/* The output has been allocated before: under the lock nothing can fail. */
static bool take_lock(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  mutex *m = (mutex *)r;
  (void)status;
  (void)changed;
  if (m->locked) return false;
  m->locked = true;
  held *h = td_new(held);
  h->variant.ops = &held_ops;
  atomic_init(&h->variant.refs, 1);
  h->mutex = td_resource_retain(m);
  TD_DATA(ctx->out[0].tensor, td_variant *)[0] = &h->variant;
  return true;
}

static td_status find_mutex(td_kernel_ctx *ctx, void **out) {
  td_resource_handle *handle;
  td_tensor *lock;
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &handle));
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &lock));
  return td_resource_lookup_or_create(ctx->device->resources, td_str_of(handle->container), td_str_of(handle->name),
                                      &mutex_type, new_mutex, NULL, out);
}

static void lock_async(td_kernel_ctx *ctx) {
  void *m = NULL;
  td_status s = find_mutex(ctx, &m);
  if (s)
    td_kernel_done(ctx, s);
  else
    td_room_run(m, ctx, take_lock);
}

/* ---- MutexV2 ---- */

static td_status create_handle(td_kernel_builder *b, void *state) {
  return td_constant_handle_create(b, &mutex_type, state);
}

/* ---- ConsumeMutexLock ---- */

static td_status consume_lock(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  if (t->rank) return td_invalid_argument("Expected input to be a scalar, saw shape: %s", TD_SHOW(t));
  td_variant *v = TD_DATA(t, td_variant *)[0];
  if (!v || v->ops != &held_ops) {
    return td_invalid_argument("Expected input to contain a SharedLockReleaser object, but saw variant: '%s'",
                               v ? v->ops->type_name : "<empty>");
  }
  unsigned refs = atomic_load_explicit(&v->refs, memory_order_acquire);
  if (refs != 1) return td_invalid_argument("Expected use count of lock to be 1, but saw: %u", refs);
  return TD_STATUS_OK;
}

static const td_op_spec ops[] = {
    {"ConsumeMutexLock", "mutex_lock: variant", NULL, NULL, TD_OP_STATEFUL},
    {"MutexLock", "mutex: resource", "mutex_lock: variant", NULL, TD_OP_STATEFUL},
    {"MutexV2", NULL, "resource: resource", "container: string = ''; shared_name: string = ''", TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "ConsumeMutexLock", .cost = TD_COST_CHEAP, .compute = consume_lock},
    {.op = "MutexLock", .compute_async = lock_async},
    {.op = "MutexV2",
     .cost = TD_COST_CHEAP,
     .flags = TD_KERNEL_CONSTANT,
     .state_size = sizeof(td_constant_handle),
     .create = create_handle,
     .destroy = td_constant_handle_destroy,
     .compute = td_constant_handle_compute},
};

TD_FAMILY(mutex, ops, kernels);

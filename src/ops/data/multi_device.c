/* MultiDeviceIterator: one iterator whose elements go to several devices in turn. Each shard has a bounded queue; one
 * element is fetched at a time, on the pool. Who wants an element waits in the iterator's room (ops/waiting.h). */
#include "base/mem.h"
#include "framework/device.h"
#include "ops/data/iterator.h"
#include "ops/families.h"
#include "ops/handles.h"
#include "ops/waiting.h"

typedef struct item {
  struct item *next;
  td_element *element; /* neither it nor an error: the end */
  td_status status;
} item;

typedef struct shard {
  item *first, **last;
  int64_t count;
} shard;

/* One life of the iterator, from an Init on. */
typedef struct source {
  _Atomic int refs;     /* the iterator's, each fetch */
  pthread_mutex_t lock; /* held while a fetch touches the iterator; taken before the room's */
  struct multi *multi;  /* guarded by lock; NULL once it is gone: fetches do not keep it alive */
  td_driver *driver;
  td_cancellation *cancellation;
  td_work work;
  _Atomic int fetch_state;
} source;

typedef struct multi {
  td_room room; /* first */
  td_data_spec spec;
  int shard_count;
  /* guarded by the room's lock */
  source *source; /* NULL: not initialised */
  int64_t incarnation, max_buffer;
  shard *shards;
  int next_shard;
  bool is_fetching, has_ended;
} multi;

static void item_free(item *i) {
  td_element_free(i->element);
  td_status_free(i->status);
  td_free(i);
}

static void clear_shards(multi *m) {
  for (int k = 0; k < m->shard_count; k++) {
    for (item *i = m->shards[k].first, *next; i; i = next) {
      next = i->next;
      item_free(i);
    }
    m->shards[k] = (shard){.last = &m->shards[k].first};
  }
}

static void source_release(source *s) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  td_driver_release(s->driver);
  td_cancellation_release(s->cancellation);
  pthread_mutex_destroy(&s->lock);
  td_free(s);
}

static void source_stop(source *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->multi = NULL;
  pthread_mutex_unlock(&s->lock);
  td_cancellation_cancel(s->cancellation);
  source_release(s);
}

static void multi_destroy(td_resource *r) {
  multi *m = (multi *)r;
  source_stop(m->source);
  clear_shards(m);
  td_free(m->shards);
  td_data_spec_deinit(&m->spec);
  td_room_deinit(&m->room);
  td_free(m);
}

static const td_resource_type multi_type = {.name = "N10tensorflow4data12_GLOBAL__N_119MultiDeviceIteratorE",
                                            .destroy = multi_destroy};

static multi *multi_create(const td_data_spec *spec, int shards) {
  multi *m = td_new(multi);
  td_room_init(&m->room, &multi_type, "MultiDeviceIteratorGetNextFromShard was cancelled");
  td_data_spec_copy(spec, &m->spec);
  m->shard_count = shards;
  m->shards = td_new_array(shard, (size_t)shards);
  clear_shards(m);
  return m;
}

/* ---- fetching ---- */

typedef struct fetch {
  td_request request;
  source *source; /* retained */
} fetch;

enum { STARTED, RETURNED, ENDED };

static void fetch_work(td_work *w);

/* With the lock held: claims the right to fetch for the present source. */
static source *claim(multi *m) {
  if (!m->source || m->is_fetching || m->has_ended || m->shards[m->next_shard].count >= m->max_buffer) return NULL;
  m->is_fetching = true;
  source *s = m->source;
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  s->work.run = fetch_work;
  return s;
}

static void submit(source *s) {
  td_pool *pool = td_driver_pool(s->driver);
  if (pool)
    td_pool_submit(pool, &s->work);
  else
    fetch_work(&s->work);
}

static void pump(multi *m) {
  pthread_mutex_lock(&m->room.lock);
  source *s = claim(m);
  pthread_mutex_unlock(&m->room.lock);
  if (s) submit(s);
}

static void no_change(td_room *r) { (void)r; }

static void put(shard *s, td_status status, td_element *e) {
  item *i = td_new(item);
  *i = (item){.element = e, .status = status};
  *s->last = i;
  s->last = &i->next;
  s->count++;
}

static void buffer(multi *m, td_status status, td_element *e) {
  pthread_mutex_lock(&m->room.lock);
  if (status || e) {
    put(&m->shards[m->next_shard], status, e);
    m->next_shard = (m->next_shard + 1) % m->shard_count;
  } else {
    m->has_ended = true;
  }
  pthread_mutex_unlock(&m->room.lock);
  td_room_change(&m->room, no_change); /* who waits tries again */
}

static void fetched(td_request *r, td_status status, td_element *e) {
  source *s = TD_CONTAINER_OF(r, fetch, request)->source;
  pthread_mutex_lock(&s->lock);
  multi *m = s->multi;
  if (m) {
    buffer(m, status, e);
  } else { /* it is gone, or has been initialised again */
    td_status_free(status);
    td_element_free(e);
  }
  pthread_mutex_unlock(&s->lock);
  /* acq_rel: whoever comes second, this or the loop, goes on */
  if (atomic_exchange_explicit(&s->fetch_state, ENDED, memory_order_acq_rel) == RETURNED) submit(s);
}
static void fetch_destroy(td_request *r) {
  fetch *f = TD_CONTAINER_OF(r, fetch, request);
  source_release(f->source);
  td_free(f);
}

/* With the right to fetch: true when it goes on. */
static bool wants_more(source *s) {
  bool yes = false;
  pthread_mutex_lock(&s->lock);
  multi *m = s->multi;
  if (m) {
    pthread_mutex_lock(&m->room.lock);
    yes = m->is_fetching = !m->has_ended && m->shards[m->next_shard].count < m->max_buffer;
    pthread_mutex_unlock(&m->room.lock);
  }
  pthread_mutex_unlock(&s->lock);
  return yes;
}

static void fetch_work(td_work *w) {
  source *s = TD_CONTAINER_OF(w, source, work);
  while (wants_more(s)) {
    fetch *f = td_new(fetch);
    f->source = s;
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    f->request = (td_request){.cancellation = s->cancellation, .done = fetched, .destroy = fetch_destroy};
    atomic_store_explicit(&s->fetch_state, STARTED, memory_order_relaxed);
    td_driver_next(s->driver, &f->request);
    if (atomic_exchange_explicit(&s->fetch_state, RETURNED, memory_order_acq_rel) != ENDED) return;
  }
  source_release(s);
}

/* ---- ops ---- */

typedef struct multi_kernel {
  td_data_spec spec;
  int shards;
  td_resource_mgr *m; /* retained */
  char *container, *name;
  bool is_private;
  pthread_mutex_t lock;
  multi *resource; /* guarded by lock; retained; NULL: not made yet */
} multi_kernel;

static td_status create_multi(td_kernel_builder *b, void *state) {
  multi_kernel *k = state;
  const Pb__AttrValue__ListValue *devices;
  td_str container = {0}, shared_name = {0}, key_container, key_name;
  k->m = td_resource_mgr_retain(b->device->resources);
  pthread_mutex_init(&k->lock, NULL);
  TD_TRY(td_data_spec_attr(b->node, "output_types", &k->spec));
  TD_TRY(td_attr_list(b->node, "devices", &devices));
  if (!devices->n_s) return td_invalid_argument("A MultiDeviceIterator needs at least one device");
  k->shards = (int)devices->n_s;
  if (td_attr_find(b->node, "shared_name")) {
    TD_TRY(td_attr_str(b->node, "container", &container));
    TD_TRY(td_attr_str(b->node, "shared_name", &shared_name));
  }
  TD_TRY(td_container_info(k->m, container, shared_name, b->node->name, &key_container, &key_name));
  k->is_private = !shared_name.size;
  k->container = td_strndup(key_container.data, key_container.size);
  k->name = td_strndup(key_name.data, key_name.size);
  return TD_STATUS_OK;
}

static void destroy_multi(void *state) {
  multi_kernel *k = state;
  if (!k->m) return;
  if (k->resource && k->is_private)
    td_status_free(td_resource_delete(k->m, td_str_of(k->container), td_str_of(k->name), &multi_type));
  td_resource_release(k->resource);
  td_data_spec_deinit(&k->spec);
  td_free(k->container);
  td_free(k->name);
  pthread_mutex_destroy(&k->lock);
  td_resource_mgr_release(k->m);
}

static td_status make_multi(void *arg, td_resource **out) {
  const multi_kernel *k = arg;
  *out = &multi_create(&k->spec, k->shards)->room.resource;
  return TD_STATUS_OK;
}

static td_status open_multi(multi_kernel *k) {
  static _Atomic uint64_t next; /* relaxed: numbers only have to differ */
  void *found;
  if (k->resource) return TD_STATUS_OK;
  if (k->is_private) {
    char *name =
        td_asprintf("_%llu_%s", (unsigned long long)atomic_fetch_add_explicit(&next, 1, memory_order_relaxed), k->name);
    td_free(k->name);
    k->name = name;
  }
  TD_TRY(td_resource_lookup_or_create(k->m, td_str_of(k->container), td_str_of(k->name), &multi_type, make_multi, k,
                                      &found));
  k->resource = found;
  return td_data_spec_check(&k->spec, &k->resource->spec);
}

static td_status compute_multi(td_kernel_ctx *ctx) {
  multi_kernel *k = ctx->state;
  td_tensor *handle;
  pthread_mutex_lock(&k->lock);
  td_status s = open_multi(k);
  pthread_mutex_unlock(&k->lock);
  TD_TRY(s);
  TD_TRY(td_handle_create(ctx->device, td_str_of(k->container), td_str_of(k->name), &multi_type, &handle));
  td_out_set(ctx, 0, handle);
  return TD_STATUS_OK;
}

static td_status find_multi(td_kernel_ctx *ctx, int i, multi **out) {
  void *found;
  TD_TRY(td_handle_lookup(td_in(ctx, i), ctx->device, &multi_type, &found));
  *out = found;
  return TD_STATUS_OK;
}

static td_status start_source(multi *m, td_dataset *d, td_pool *pool, int64_t max_buffer, int64_t *incarnation) {
  TD_TRY(td_data_spec_check(&m->spec, &d->spec));
  source *s = td_new(source);
  atomic_init(&s->refs, 1);
  s->multi = m;
  pthread_mutex_init(&s->lock, NULL);
  s->driver = td_driver_create(pool);
  s->cancellation = td_cancellation_create();
  td_status status = td_driver_set_root(s->driver, d, NULL);
  if (status) {
    source_release(s);
    return status;
  }
  pthread_mutex_lock(&m->room.lock);
  source *old = m->source;
  m->source = NULL;
  pthread_mutex_unlock(&m->room.lock);
  source_stop(old); /* nothing of the old one comes in from here on */
  pthread_mutex_lock(&m->room.lock);
  m->source = s;
  m->max_buffer = max_buffer;
  m->next_shard = 0;
  m->is_fetching = m->has_ended = false;
  clear_shards(m);
  *incarnation = m->incarnation++;
  pthread_mutex_unlock(&m->room.lock);
  td_room_change(&m->room, no_change); /* who waits for the old one ends */
  return TD_STATUS_OK;
}

static td_status compute_init(td_kernel_ctx *ctx) {
  td_dataset *d;
  multi *m;
  int64_t max_buffer, incarnation;
  td_tensor *out;
  TD_TRY(td_in_dataset(ctx, 0, &d));
  TD_TRY(td_in_int(ctx, 2, "max_buffer_size", &max_buffer));
  if (max_buffer <= 0) return td_invalid_argument("max_buffer_size must be > 0, got %lld", (long long)max_buffer);
  TD_TRY(find_multi(ctx, 1, &m));
  td_status s = start_source(m, d, ctx->step->pool, max_buffer, &incarnation);
  if (!s) pump(m);
  td_resource_release(m);
  TD_TRY(s);
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  *TD_DATA(out, int64_t) = incarnation;
  return TD_STATUS_OK;
}

static td_status check_request(const multi *m, td_kernel_ctx *ctx, int64_t *shard_num) {
  int64_t incarnation;
  TD_TRY(td_in_int(ctx, 1, "shard_num", shard_num));
  TD_TRY(td_in_int(ctx, 2, "incarnation_id", &incarnation));
  if (!m->source) return td_failed_precondition("MultiDeviceIterator has not been initialized.");
  if (incarnation != m->incarnation - 1)
    return td_invalid_argument("Invalid incarnation id: %lld (current: %lld)", (long long)incarnation,
                               (long long)m->incarnation - 1);
  if (*shard_num < 0 || *shard_num >= m->shard_count)
    return td_invalid_argument("Shard %lld is out of range: there are %d", (long long)*shard_num, m->shard_count);
  return TD_STATUS_OK;
}

static bool attempt_next(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  multi *m = (multi *)r;
  int64_t k;
  (void)changed;
  *status = check_request(m, ctx, &k);
  if (*status) return true;
  shard *s = &m->shards[k];
  item *i = s->first;
  if (!i) {
    if (m->has_ended) *status = td_error(TD_OUT_OF_RANGE, "End of sequence");
    return m->has_ended;
  }
  s->first = i->next;
  if (!s->first) s->last = &s->first;
  s->count--;
  *status = i->status;
  i->status = NULL;
  if (!*status) {
    *status = td_out_element(ctx, i->element, "iterator");
    i->element = NULL;
  }
  item_free(i);
  return true;
}

static void compute_next(td_kernel_ctx *ctx) {
  multi *m;
  td_status s = find_multi(ctx, 0, &m);
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  td_room_run(td_resource_retain(m), ctx, attempt_next);
  pump(m);
  td_resource_release(m);
}

static td_status compute_to_string(td_kernel_ctx *ctx) {
  multi *m;
  td_resource_handle *h;
  TD_TRY(find_multi(ctx, 0, &m));
  td_resource_release(m);
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
  return td_out_handle_text(ctx, 0, h);
}

static td_status create_typed(td_kernel_builder *b, void *state) {
  return td_data_spec_attr(b->node, "output_types", state);
}
static void destroy_typed(void *state) { td_data_spec_deinit(state); }

static td_status check_from_string(td_kernel_ctx *ctx, const td_tensor *handle) {
  const td_data_spec *spec = ctx->state;
  void *found;
  TD_TRY(td_handle_lookup(handle, ctx->device, &multi_type, &found));
  td_status s = spec->width ? td_data_spec_check(spec, &((multi *)found)->spec) : TD_STATUS_OK;
  td_resource_release(found);
  return s;
}

static td_status compute_from_string(td_kernel_ctx *ctx) {
  td_tensor *handle;
  TD_TRY(td_in_handle_text(ctx, 0, &handle));
  td_status s = check_from_string(ctx, handle);
  if (s)
    td_tensor_release(handle);
  else
    td_out_set(ctx, 0, handle);
  return s;
}

#define OPTIONAL_TYPES "output_types: list(type) >= 0 = []; output_shapes: list(shape) >= 0 = []"

static const td_op_spec ops[] = {
    {"MultiDeviceIterator", NULL, "handle: resource",
     "devices: list(string) >= 1; shared_name: string; container: string; " TD_DATASET_TYPES, TD_OP_STATEFUL},
    {"MultiDeviceIteratorFromStringHandle", "string_handle: string", "multi_device_iterator: resource", OPTIONAL_TYPES,
     TD_OP_STATEFUL},
    {"MultiDeviceIteratorGetNextFromShard", "multi_device_iterator: resource; shard_num: int32; incarnation_id: int64",
     "components: output_types", TD_DATASET_TYPES, TD_OP_STATEFUL},
    {"MultiDeviceIteratorInit", "dataset: variant; multi_device_iterator: resource; max_buffer_size: int64",
     "incarnation_id: int64", NULL, TD_OP_STATEFUL},
    {"MultiDeviceIteratorToStringHandle", "multi_device_iterator: resource", "string_handle: string", NULL,
     TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "MultiDeviceIterator",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(multi_kernel),
     .create = create_multi,
     .destroy = destroy_multi,
     .compute = compute_multi},
    {.op = "MultiDeviceIteratorFromStringHandle",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(td_data_spec),
     .create = create_typed,
     .destroy = destroy_typed,
     .compute = compute_from_string},
    {.op = "MultiDeviceIteratorGetNextFromShard", .cost = TD_COST_CHEAP, .compute_async = compute_next},
    {.op = "MultiDeviceIteratorInit", .cost = TD_COST_CHEAP, .compute = compute_init},
    {.op = "MultiDeviceIteratorToStringHandle", .cost = TD_COST_CHEAP, .compute = compute_to_string},
};

TD_FAMILY(multi_device, ops, kernels);

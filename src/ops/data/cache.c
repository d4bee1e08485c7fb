/* Cache: the first iterator that reads its input to the end leaves the elements to all that come after it. */
#include "base/mem.h"
#include "framework/device.h"
#include "ops/data/archive.h"
#include "ops/data/file_cache.h"
#include "ops/data/held.h"
#include "ops/families.h"

typedef struct memory {
  td_resource resource;
  pthread_mutex_t lock;
  /* guarded by lock; immutable once is_complete */
  bool is_complete;
  td_element **elements;
  size_t count;
} memory;

static void memory_destroy(td_resource *r) {
  memory *m = (memory *)r;
  td_elements_free(m->elements, m->count);
  pthread_mutex_destroy(&m->lock);
  td_free(m);
}

static const td_resource_type memory_type = {.name = "N10tensorflow4data11MemoryCacheE", .destroy = memory_destroy};

static memory *memory_create(void) {
  memory *m = td_new(memory);
  td_resource_init(&m->resource, &memory_type);
  pthread_mutex_init(&m->lock, NULL);
  return m;
}

typedef struct cached {
  td_dataset base;
  memory *memory; /* retained */
} cached;

typedef struct cache_iterator {
  td_iterator base;
  td_iterator *input; /* NULL: it reads from the cache */
  td_element **elements;
  size_t count, capacity, next;
  bool is_asked;
} cache_iterator;

static void cached_destroy(td_dataset *d) { td_resource_release(((cached *)d)->memory); }

static bool is_complete(memory *m) {
  pthread_mutex_lock(&m->lock);
  bool yes = m->is_complete;
  pthread_mutex_unlock(&m->lock);
  return yes;
}

static td_status cache_start(td_iterator *it) {
  if (is_complete(((cached *)it->dataset)->memory)) return TD_STATUS_OK;
  return td_iterator_create_input(it, 0, &((cache_iterator *)it)->input);
}

static void cache_stop(td_iterator *it) {
  cache_iterator *c = (cache_iterator *)it;
  td_elements_free(c->elements, c->count);
  td_iterator_destroy(c->input);
}

/* These are all elements, unless another iterator was first. Takes them. */
static void complete(memory *m, td_element **elements, size_t count) {
  pthread_mutex_lock(&m->lock);
  bool is_first = !m->is_complete;
  if (is_first) {
    m->is_complete = true;
    m->elements = elements;
    m->count = count;
  }
  pthread_mutex_unlock(&m->lock);
  if (!is_first) td_elements_free(elements, count);
}

static void leave_to_others(td_iterator *it) {
  cache_iterator *c = (cache_iterator *)it;
  complete(((cached *)it->dataset)->memory, c->elements, c->count);
  c->next = c->count; /* this one is at the end */
  c->elements = NULL;
  c->count = c->capacity = 0;
  td_iterator_destroy(c->input);
  c->input = NULL;
}

static td_next cache_advance(td_iterator *it) {
  cache_iterator *c = (cache_iterator *)it;
  const memory *m = ((cached *)it->dataset)->memory;
  if (!c->input) return td_iterator_give(it, c->next < m->count ? td_element_copy(m->elements[c->next++]) : NULL);
  if (!c->is_asked) {
    c->is_asked = true;
    return td_iterator_pull(it, c->input);
  }
  c->is_asked = false;
  if (c->input->status) return td_iterator_pass(it, c->input);
  td_element *e = td_iterator_take(c->input);
  if (!e) {
    leave_to_others(it);
    return td_iterator_give(it, NULL);
  }
  TD_GROW(c->elements, c->count, c->capacity);
  c->elements[c->count++] = td_element_copy(e);
  return td_iterator_give(it, e);
}

/* The elements that others shall find; what is read counts unless there are some already. */
static td_status archive_memory(td_iterator *it, td_archive *a) {
  memory *m = ((cached *)it->dataset)->memory;
  size_t n = m->count, capacity = 0, count = 0;
  if (a->is_writing) return td_archive_elements(a, &it->dataset->spec, &m->elements, &n, &capacity);
  td_element **elements = NULL;
  td_status s = td_archive_elements(a, &it->dataset->spec, &elements, &count, &capacity);
  if (s)
    td_elements_free(elements, count);
  else
    complete(m, elements, count);
  return s;
}

static td_status cache_archive(td_iterator *it, td_archive *a) {
  cache_iterator *c = (cache_iterator *)it;
  bool is_writer = c->input;
  TD_TRY(td_archive_bool(a, &is_writer));
  if (is_writer) TD_TRY(td_archive_elements(a, &it->dataset->spec, &c->elements, &c->count, &c->capacity));
  TD_TRY(td_archive_input(a, it, 0, &c->input));
  if (is_writer != !!c->input) return td_archive_invalid("a cache's input is not as it says");
  if (is_writer) return TD_STATUS_OK;
  TD_TRY(archive_memory(it, a));
  return td_archive_size(a, &c->next, ((cached *)it->dataset)->memory->count);
}

static const td_dataset_ops cache_ops = {.name = "MemoryCacheImpl", /* the name in prefixes */
                                         .iterator_size = sizeof(cache_iterator),
                                         .start = cache_start,
                                         .advance = cache_advance,
                                         .stop = cache_stop,
                                         .archive = cache_archive,
                                         .destroy = cached_destroy,
                                         .cardinality = td_dataset_input_cardinality};

static td_status find_memory(td_kernel_ctx *ctx, memory **out) {
  td_resource_handle *h;
  void *found;
  if (ctx->kernel->input_count > 2) {
    TD_TRY(td_handle_of(td_in(ctx, 2), ctx->device, &h));
    if (!td_str_is(td_str_of(h->name), "dummy")) {
      TD_TRY(td_handle_lookup(td_in(ctx, 2), ctx->device, &memory_type, &found));
      *out = found;
      return TD_STATUS_OK;
    }
  }
  *out = memory_create();
  return TD_STATUS_OK;
}

static td_status compute_cache(td_kernel_ctx *ctx) {
  td_dataset *input, *d = NULL;
  td_str filename;
  memory *m;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_in_text(ctx, 1, "filename", &filename));
  const td_data_spec *spec = &((td_dataset_kernel *)ctx->state)->spec;
  if (filename.size) {
    td_status status = td_file_cache_create(spec, input, filename, &d);
    return td_out_dataset(ctx, status, d);
  }
  TD_TRY(find_memory(ctx, &m));
  td_status s = td_dataset_create(&cache_ops, sizeof(cached), spec, &input, 1, &d);
  if (s)
    td_resource_release(m);
  else
    ((cached *)d)->memory = m;
  return td_out_dataset(ctx, s, d);
}

static td_status compute_anonymous(td_kernel_ctx *ctx) {
  static _Atomic uint64_t next; /* relaxed: numbers only have to differ */
  char *name = td_asprintf("AnonymousMemoryCache%llu",
                           (unsigned long long)atomic_fetch_add_explicit(&next, 1, memory_order_relaxed));
  memory *m = memory_create();
  td_tensor *handle = NULL, *deleter = NULL;
  td_status s = td_resource_add(ctx->device->resources, TD_STR(""), td_str_of(name), &m->resource);
  if (!s) s = td_handle_create(ctx->device, TD_STR(""), td_str_of(name), &memory_type, &handle);
  if (!s) td_out_set(ctx, 0, handle);
  if (!s) s = td_tensor_create_dims(TD_VARIANT, 0, NULL, &deleter);
  if (!s) td_out_set(ctx, 1, deleter);
  td_resource_release(m);
  td_free(name);
  return s;
}

static td_status compute_dummy(td_kernel_ctx *ctx) {
  td_tensor *handle;
  TD_TRY(td_handle_create(ctx->device, TD_STR(""), TD_STR("dummy"), &memory_type, &handle));
  td_out_set(ctx, 0, handle);
  return TD_STATUS_OK;
}

static td_status compute_delete(td_kernel_ctx *ctx) {
  td_resource_handle *h;
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
  return td_resource_delete(ctx->device->resources, td_str_of(h->container), td_str_of(h->name), &memory_type);
}

static const td_op_spec ops[] = {
    {"AnonymousMemoryCache", NULL, "handle: resource; deleter: variant", NULL, TD_OP_STATEFUL},
    {"CacheDataset", "input_dataset: variant; filename: string", "handle: variant", TD_DATASET_TYPES TD_DATASET_META,
     0},
    {"CacheDatasetV2", "input_dataset: variant; filename: string; cache: resource", "handle: variant",
     TD_DATASET_TYPES TD_DATASET_META, TD_OP_STATEFUL},
    {"DeleteMemoryCache", "handle: resource; deleter: variant", NULL, NULL, TD_OP_STATEFUL},
    {"DummyMemoryCache", NULL, "handle: resource", NULL, TD_OP_STATEFUL},
};

#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }

static const td_kernel_def kernels[] = {
    PLAIN("AnonymousMemoryCache", compute_anonymous),
    TD_DATASET_KERNEL("CacheDataset", td_dataset_kernel_create, compute_cache),
    TD_DATASET_KERNEL("CacheDatasetV2", td_dataset_kernel_create, compute_cache),
    PLAIN("DeleteMemoryCache", compute_delete),
    PLAIN("DummyMemoryCache", compute_dummy),
};

TD_FAMILY(data_cache, ops, kernels);

/* Maps that hold sparse tensors under numbers, so that they can go through queues (TensorFlow's
 * sparse_tensors_map_ops). */
#include <pthread.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "framework/device.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/sparse_batch.h"

typedef struct sparse {
  int64_t handle;
  td_sparse parts; /* retained */
} sparse;

typedef struct sparse_map {
  td_resource resource;
  char *name;
  pthread_mutex_t lock;
  /* guarded by lock */
  int64_t next_handle;
  td_map entries; /* of sparse, by the bytes of their handles */
} sparse_map;

static void free_sparse(sparse *s) {
  td_sparse_release(&s->parts);
  td_free(s);
}

static void destroy(td_resource *r) {
  sparse_map *m = (sparse_map *)r;
  td_str key;
  void *s;
  for (size_t i = 0; td_map_next(&m->entries, &i, &key, &s);) free_sparse(s);
  td_map_deinit(&m->entries);
  pthread_mutex_destroy(&m->lock);
  td_free(m->name);
  td_free(m);
}

static const td_resource_type map_type = {.name = "N10tensorflow16SparseTensorsMapE", .destroy = destroy};

static td_str key_of(const int64_t *handle) { return (td_str){(const char *)handle, sizeof *handle}; }

/* Takes the tensors. */
static int64_t add(sparse_map *m, td_sparse parts) {
  sparse *s = td_new(sparse);
  s->parts = parts;
  pthread_mutex_lock(&m->lock);
  int64_t handle = s->handle = m->next_handle++;
  td_map_put(&m->entries, key_of(&s->handle), s);
  pthread_mutex_unlock(&m->lock);
  return handle;
}

/* All or none. */
static td_status take(sparse_map *m, const int64_t *handles, int64_t n, sparse **out) {
  td_status status = TD_STATUS_OK;
  int64_t i = 0;
  pthread_mutex_lock(&m->lock);
  for (; i < n && (out[i] = td_map_remove(&m->entries, key_of(&handles[i]))); i++) {
  }
  if (i < n) {
    status = td_invalid_argument("Unable to find SparseTensor: %lld in map: %s", (long long)handles[i], m->name);
    while (i--) td_map_put(&m->entries, key_of(&out[i]->handle), out[i]);
  }
  pthread_mutex_unlock(&m->lock);
  return status;
}

/* ---- finding the map ---- */

typedef struct map_state {
  char *container, *name;
} map_state;

static td_status create_map_kernel(td_kernel_builder *b, void *state) {
  map_state *st = state;
  td_str container, name, key_container, key_name;
  TD_TRY(td_attr_str(b->node, "container", &container));
  TD_TRY(td_attr_str(b->node, "shared_name", &name));
  TD_TRY(td_container_info(b->device->resources, container, name, b->node->name, &key_container, &key_name));
  st->container = td_strndup(key_container.data, key_container.size);
  st->name = td_strndup(key_name.data, key_name.size);
  return TD_STATUS_OK;
}

static void destroy_map_kernel(void *state) {
  map_state *st = state;
  td_free(st->container);
  td_free(st->name);
}

static td_status make_map(void *arg, td_resource **out) {
  sparse_map *m = td_new(sparse_map);
  td_resource_init(&m->resource, &map_type);
  pthread_mutex_init(&m->lock, NULL);
  m->name = td_strdup(arg);
  *out = &m->resource;
  return TD_STATUS_OK;
}

static td_status with_map(td_kernel_ctx *ctx, td_status (*fn)(td_kernel_ctx *, sparse_map *)) {
  const map_state *st = ctx->state;
  void *m;
  TD_TRY(td_resource_lookup_or_create(ctx->device->resources, td_str_of(st->container), td_str_of(st->name), &map_type,
                                      make_map, st->name, &m));
  td_status s = fn(ctx, m);
  td_resource_release(m);
  return s;
}

/* ---- adding ---- */

static td_status add_one(td_kernel_ctx *ctx, sparse_map *m) {
  td_sparse parts;
  td_shape shape;
  td_tensor *out;
  TD_TRY(td_in_sparse(ctx, &parts, &shape));
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  td_sparse_retain(&parts);
  *TD_DATA(out, int64_t) = add(m, parts);
  return TD_STATUS_OK;
}

static td_status add_one_compute(td_kernel_ctx *ctx) { return with_map(ctx, add_one); }

static td_status add_rows(td_kernel_ctx *ctx, sparse_map *m, const td_sparse *batch, const td_sparse_rows *rows) {
  td_tensor *out, *shape;
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &rows->n, &out));
  TD_TRY(td_sparse_row_shape(batch, &shape));
  td_status s = TD_STATUS_OK;
  for (int64_t i = 0; i < rows->n && !s; i++) {
    td_sparse row;
    s = td_sparse_row(batch, rows, i, shape, &row);
    if (!s) TD_DATA(out, int64_t)[i] = add(m, row);
  }
  td_tensor_release(shape);
  return s;
}

static td_status add_many(td_kernel_ctx *ctx, sparse_map *m) {
  td_sparse batch;
  td_sparse_rows rows;
  td_status s = td_in_sparse_rows(ctx, &batch, &rows);
  if (!s) s = add_rows(ctx, m, &batch, &rows);
  td_sparse_rows_deinit(&rows);
  return s;
}

static td_status add_many_compute(td_kernel_ctx *ctx) { return with_map(ctx, add_many); }

/* ---- taking ---- */

static td_status take_many(td_kernel_ctx *ctx, sparse_map *m) {
  const td_tensor *handles = td_in(ctx, 0);
  int64_t n = handles->count;
  if (handles->rank != 1)
    return td_invalid_argument("sparse_handles should be a vector but received shape %s", TD_SHOW(handles));
  if (!n) return td_invalid_argument("Must have at least 1 serialized SparseTensor, but input matrix has 0 rows");
  sparse **all = td_try_malloc((size_t)n * sizeof(sparse *));
  td_sparse *parts = td_try_malloc((size_t)n * sizeof *parts);
  td_status s = all && parts ? take(m, handles->data, n, all)
                             : td_resource_exhausted("No memory for %lld sparse tensors", (long long)n);
  if (!s) {
    for (int64_t i = 0; i < n; i++) parts[i] = all[i]->parts;
    s = td_out_sparse_joined(ctx, parts, n, 1, &n);
    for (int64_t i = 0; i < n; i++) free_sparse(all[i]);
  }
  td_free(all);
  td_free(parts);
  return s;
}

static td_status take_many_compute(td_kernel_ctx *ctx) { return with_map(ctx, take_many); }

/* ---- tables ---- */

#define SPARSE "sparse_indices: int64; sparse_values: T; sparse_shape: int64"
#define NAMES  "container: string = ''; shared_name: string = ''"

static const td_op_spec ops[] = {
    {"AddManySparseToTensorsMap", SPARSE, "sparse_handles: int64", "T: type; " NAMES, TD_OP_STATEFUL},
    {"AddSparseToTensorsMap", SPARSE, "sparse_handle: int64", "T: type; " NAMES, TD_OP_STATEFUL},
    {"TakeManySparseFromTensorsMap", "sparse_handles: int64",
     "sparse_indices: int64; sparse_values: dtype; sparse_shape: int64", "dtype: type; " NAMES, TD_OP_STATEFUL},
};

#define KERNEL(name, fn)                                                                                     \
  {                                                                                                          \
    .op = name, .state_size = sizeof(map_state), .create = create_map_kernel, .destroy = destroy_map_kernel, \
    .compute = fn                                                                                            \
  }

static const td_kernel_def kernels[] = {
    KERNEL("AddManySparseToTensorsMap", add_many_compute),
    KERNEL("AddSparseToTensorsMap", add_one_compute),
    KERNEL("TakeManySparseFromTensorsMap", take_many_compute),
};

TD_FAMILY(sparse_map, ops, kernels);

/* Maps that hold sparse tensors under numbers, so that they can go through queues (TensorFlow's
 * sparse_tensors_map_ops). */
#include <pthread.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "framework/device.h"
#include "ops/families.h"
#include "ops/move.h"

typedef struct sparse {
  int64_t handle;
  td_tensor *indices, *values, *shape; /* retained */
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
  td_tensor_release(s->indices);
  td_tensor_release(s->values);
  td_tensor_release(s->shape);
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

/* Retains the tensors. */
static int64_t add(sparse_map *m, td_tensor *indices, td_tensor *values, td_tensor *shape) {
  sparse *s = td_new(sparse);
  *s = (sparse){
      .indices = td_tensor_retain(indices), .values = td_tensor_retain(values), .shape = td_tensor_retain(shape)};
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

static td_status check_sparse(td_kernel_ctx *ctx, td_shape *shape) {
  const td_tensor *indices = td_in(ctx, 0), *values = td_in(ctx, 1), *dims = td_in(ctx, 2);
  if (indices->rank != 2)
    return td_invalid_argument("Input indices should be a matrix but received shape %s", TD_SHOW(indices));
  if (values->rank != 1)
    return td_invalid_argument("Input values should be a vector but received shape %s", TD_SHOW(values));
  if (dims->rank != 1)
    return td_invalid_argument("Input shape should be a vector but received shape %s", TD_SHOW(dims));
  if (values->count != indices->dims[0])
    return td_invalid_argument(
        "Number of values must match first dimension of indices. Got %lld values, indices shape: %s",
        (long long)values->count, TD_SHOW(indices));
  if (dims->count != indices->dims[1])
    return td_invalid_argument(
        "Number of dimensions must match second dimension of indices. Got %lld dimensions, indices shape: %s",
        (long long)dims->count, TD_SHOW(indices));
  return td_shape_from_tensor(dims, false, shape);
}

static td_status add_one(td_kernel_ctx *ctx, sparse_map *m) {
  td_shape shape;
  td_tensor *out;
  TD_TRY(check_sparse(ctx, &shape));
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  *TD_DATA(out, int64_t) = add(m, td_in(ctx, 0), td_in(ctx, 1), td_in(ctx, 2));
  return TD_STATUS_OK;
}

static td_status add_one_compute(td_kernel_ctx *ctx) { return with_map(ctx, add_one); }

/* The rows of a batch: where each one's entries begin, in order of rows, and which they are. */
typedef struct rows {
  int64_t n, columns;
  int64_t *begins;  /* n + 1 */
  int64_t *entries; /* positions in the inputs, row by row, in order */
} rows;

static td_status find_rows(const td_tensor *indices, rows *r) {
  int64_t count = indices->dims[0];
  const int64_t *at = indices->data;
  r->begins = td_try_malloc(((size_t)r->n + 2) * sizeof *r->begins);
  r->entries = td_try_malloc(((size_t)count + 1) * sizeof *r->entries);
  if (!r->begins || !r->entries) return td_resource_exhausted("No memory for %lld sparse tensors", (long long)r->n);
  memset(r->begins, 0, ((size_t)r->n + 2) * sizeof *r->begins);
  for (int64_t i = 0; i < count; i++) {
    int64_t row = at[i * r->columns];
    if (row < 0 || row >= r->n)
      return td_invalid_argument("Received unexpected column 0 value in input SparseTensor: %lld < 0 or >= N (= %lld)",
                                 (long long)row, (long long)r->n);
    r->begins[row + 2]++;
  }
  for (int64_t i = 2; i <= r->n; i++) r->begins[i] += r->begins[i - 1];
  for (int64_t i = 0; i < count; i++) r->entries[r->begins[at[i * r->columns] + 1]++] = i;
  return TD_STATUS_OK;
}

static td_status add_row(td_kernel_ctx *ctx, sparse_map *m, const rows *r, int64_t row, td_tensor *shape,
                         int64_t *handle) {
  td_tensor *from = td_in(ctx, 0), *indices, *values;
  int64_t n = r->begins[row + 1] - r->begins[row], dims[] = {n, r->columns - 1};
  TD_TRY(td_tensor_create_dims(TD_INT64, 2, dims, &indices));
  td_status s = td_tensor_create_dims(td_in(ctx, 1)->dtype, 1, &n, &values);
  if (s) {
    td_tensor_release(indices);
    return s;
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t entry = r->entries[r->begins[row] + i];
    memcpy(TD_DATA(indices, int64_t) + i * dims[1], TD_DATA(from, int64_t) + entry * r->columns + 1,
           (size_t)dims[1] * sizeof(int64_t));
    td_tensor_copy_elements(values, i, td_in(ctx, 1), entry, 1);
  }
  *handle = add(m, indices, values, shape);
  td_tensor_release(indices);
  td_tensor_release(values);
  return s;
}

static td_status add_rows(td_kernel_ctx *ctx, sparse_map *m, rows *r, td_tensor *out) {
  td_tensor *shape;
  int64_t rank = r->columns - 1;
  TD_TRY(find_rows(td_in(ctx, 0), r));
  TD_TRY(td_tensor_create_dims(TD_INT64, 1, &rank, &shape));
  memcpy(shape->data, TD_DATA(td_in(ctx, 2), int64_t) + 1, (size_t)rank * sizeof(int64_t));
  td_status s = TD_STATUS_OK;
  for (int64_t i = 0; !s && i < r->n; i++) s = add_row(ctx, m, r, i, shape, &TD_DATA(out, int64_t)[i]);
  td_tensor_release(shape);
  return s;
}

static td_status add_many(td_kernel_ctx *ctx, sparse_map *m) {
  enum { MOST = 1 << 24 }; /* rows cost memory, even those without entries */
  td_shape shape;
  td_tensor *out;
  TD_TRY(check_sparse(ctx, &shape));
  if (shape.rank < 2)
    return td_invalid_argument("Rank of input SparseTensor should be > 1, but saw rank: %d", shape.rank);
  rows r = {.n = shape.dims[0], .columns = shape.rank};
  if (r.n > MOST) return td_resource_exhausted("A batch of %lld sparse tensors is too large", (long long)r.n);
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &r.n, &out));
  td_status s = add_rows(ctx, m, &r, out);
  td_free(r.begins);
  td_free(r.entries);
  return s;
}

static td_status add_many_compute(td_kernel_ctx *ctx) { return with_map(ctx, add_many); }

/* ---- taking ---- */

static td_status check_taken(td_dtype type, sparse *const *all, int64_t n, td_shape *shape, int64_t *entries) {
  int64_t rank = all[0]->shape->count;
  td_shape_vector(shape, n);
  for (int64_t d = 0; d < rank; d++) TD_TRY(td_shape_append(shape, 0));
  *entries = 0;
  for (int64_t i = 0; i < n; i++) {
    const sparse *s = all[i];
    if (s->values->dtype != type)
      return td_invalid_argument("Requested SparseTensor of type %s but SparseTensor[%lld].values.dtype() == %s",
                                 td_dtype_name(type), (long long)i, td_dtype_name(s->values->dtype));
    if (s->shape->count != rank)
      return td_invalid_argument(
          "Inconsistent rank across SparseTensors: rank prior to SparseTensor[%lld] was: %lld but "
          "rank of SparseTensor[%lld] is: %lld",
          (long long)i, (long long)rank + 1, (long long)i, (long long)s->shape->count + 1);
    for (int64_t d = 0; d < rank; d++) shape->dims[d + 1] = TD_MAX(shape->dims[d + 1], TD_DATA(s->shape, int64_t)[d]);
    *entries += s->values->count;
  }
  return TD_STATUS_OK;
}

static void put_entries(td_tensor *indices, td_tensor *values, int64_t at, int64_t row, const sparse *s) {
  int64_t rank = s->shape->count;
  for (int64_t i = 0; i < s->values->count; i++) {
    int64_t *to = TD_DATA(indices, int64_t) + (at + i) * (rank + 1);
    to[0] = row;
    memcpy(to + 1, TD_DATA(s->indices, int64_t) + i * rank, (size_t)rank * sizeof *to);
  }
  if (s->values->count) td_tensor_copy_elements(values, at, s->values, 0, s->values->count);
}

static td_status out_taken(td_kernel_ctx *ctx, sparse *const *all, int64_t n) {
  td_tensor *indices, *values, *dims;
  td_shape shape;
  int64_t entries, at = 0;
  TD_TRY(check_taken(td_out_type(ctx, 1), all, n, &shape, &entries));
  int64_t rank = shape.rank;
  TD_TRY(td_out_alloc_dims(ctx, 0, 2, (int64_t[]){entries, rank}, &indices));
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &entries, &values));
  TD_TRY(td_out_alloc_dims(ctx, 2, 1, &rank, &dims));
  memcpy(dims->data, shape.dims, (size_t)rank * sizeof(int64_t));
  for (int64_t i = 0; i < n; i++) {
    put_entries(indices, values, at, i, all[i]);
    at += all[i]->values->count;
  }
  return TD_STATUS_OK;
}

static td_status take_many(td_kernel_ctx *ctx, sparse_map *m) {
  const td_tensor *handles = td_in(ctx, 0);
  int64_t n = handles->count;
  if (handles->rank != 1)
    return td_invalid_argument("sparse_handles should be a vector but received shape %s", TD_SHOW(handles));
  if (!n) return td_invalid_argument("Must have at least 1 serialized SparseTensor, but input matrix has 0 rows");
  sparse **all = td_try_malloc((size_t)n * sizeof(sparse *));
  if (!all) return td_resource_exhausted("No memory for %lld sparse tensors", (long long)n);
  td_status s = take(m, handles->data, n, all);
  if (!s) {
    s = out_taken(ctx, all, n);
    for (int64_t i = 0; i < n; i++) free_sparse(all[i]);
  }
  td_free(all);
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

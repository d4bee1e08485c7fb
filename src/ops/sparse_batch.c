#include "ops/sparse_batch.h"

#include <string.h>

#include "base/mem.h"
#include "ops/move.h"

void td_sparse_retain(td_sparse *s) {
  td_tensor_retain(s->indices);
  td_tensor_retain(s->values);
  td_tensor_retain(s->shape);
}

void td_sparse_release(td_sparse *s) {
  td_tensor_release(s->indices);
  td_tensor_release(s->values);
  td_tensor_release(s->shape);
  *s = (td_sparse){0};
}

td_status td_sparse_check(const td_sparse *s, td_shape *shape) {
  if (s->indices->rank != 2 || s->indices->dtype != TD_INT64)
    return td_invalid_argument("Input indices should be a matrix but received shape %s", TD_SHOW(s->indices));
  if (s->values->rank != 1)
    return td_invalid_argument("Input values should be a vector but received shape %s", TD_SHOW(s->values));
  if (s->shape->rank != 1 || s->shape->dtype != TD_INT64)
    return td_invalid_argument("Input shape should be a vector but received shape %s", TD_SHOW(s->shape));
  if (s->values->count != s->indices->dims[0])
    return td_invalid_argument(
        "Number of values must match first dimension of indices. Got %lld values, indices shape: %s",
        (long long)s->values->count, TD_SHOW(s->indices));
  if (s->shape->count != s->indices->dims[1])
    return td_invalid_argument(
        "Number of dimensions must match second dimension of indices. Got %lld dimensions, indices shape: %s",
        (long long)s->shape->count, TD_SHOW(s->indices));
  return td_shape_from_tensor(s->shape, false, shape);
}

td_status td_in_sparse(td_kernel_ctx *ctx, td_sparse *out, td_shape *shape) {
  *out = (td_sparse){td_in(ctx, 0), td_in(ctx, 1), td_in(ctx, 2)};
  return td_sparse_check(out, shape);
}

/* ---- rows ---- */

static td_status find_rows(const td_tensor *indices, td_sparse_rows *r) {
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

td_status td_in_sparse_rows(td_kernel_ctx *ctx, td_sparse *out, td_sparse_rows *rows) {
  enum { MOST = 1 << 24 }; /* rows cost memory, even those without entries */
  td_shape shape;
  *rows = (td_sparse_rows){0};
  TD_TRY(td_in_sparse(ctx, out, &shape));
  if (shape.rank < 2)
    return td_invalid_argument("Rank of input SparseTensor should be > 1, but saw rank: %d", shape.rank);
  *rows = (td_sparse_rows){.n = shape.dims[0], .columns = shape.rank};
  if (rows->n > MOST) return td_resource_exhausted("A batch of %lld sparse tensors is too large", (long long)rows->n);
  return find_rows(out->indices, rows);
}

void td_sparse_rows_deinit(td_sparse_rows *rows) {
  td_free(rows->begins);
  td_free(rows->entries);
}

td_status td_sparse_row_shape(const td_sparse *batch, td_tensor **out) {
  int64_t rank = batch->shape->count - 1;
  TD_TRY(td_tensor_create_dims(TD_INT64, 1, &rank, out));
  memcpy((*out)->data, TD_DATA(batch->shape, int64_t) + 1, (size_t)rank * sizeof(int64_t));
  return TD_STATUS_OK;
}

td_status td_sparse_row(const td_sparse *batch, const td_sparse_rows *r, int64_t row, td_tensor *shape,
                        td_sparse *out) {
  int64_t n = r->begins[row + 1] - r->begins[row], dims[] = {n, r->columns - 1};
  td_tensor *indices, *values;
  TD_TRY(td_tensor_create_dims(TD_INT64, 2, dims, &indices));
  td_status s = td_tensor_create_dims(batch->values->dtype, 1, &n, &values);
  if (s) {
    td_tensor_release(indices);
    return s;
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t entry = r->entries[r->begins[row] + i];
    memcpy(TD_DATA(indices, int64_t) + i * dims[1], TD_DATA(batch->indices, int64_t) + entry * r->columns + 1,
           (size_t)dims[1] * sizeof(int64_t));
    td_tensor_copy_elements(values, i, batch->values, entry, 1);
  }
  *out = (td_sparse){indices, values, td_tensor_retain(shape)};
  return TD_STATUS_OK;
}

/* ---- joining ---- */

static td_status joined_shape(td_dtype type, const td_sparse *all, int64_t n, int lead_rank, const int64_t *lead,
                              td_shape *shape, int64_t *entries) {
  int64_t rank = all[0].shape->count;
  *shape = (td_shape){0};
  for (int d = 0; d < lead_rank; d++) TD_TRY(td_shape_append(shape, lead[d]));
  for (int64_t d = 0; d < rank; d++) TD_TRY(td_shape_append(shape, 0));
  *entries = 0;
  for (int64_t i = 0; i < n; i++) {
    const td_sparse *s = &all[i];
    if (s->values->dtype != type)
      return td_invalid_argument("Requested SparseTensor of type %s but SparseTensor[%lld].values.dtype() == %s",
                                 td_dtype_name(type), (long long)i, td_dtype_name(s->values->dtype));
    if (s->shape->count != rank)
      return td_invalid_argument(
          "Inconsistent rank across SparseTensors: rank prior to SparseTensor[%lld] was: %lld but "
          "rank of SparseTensor[%lld] is: %lld",
          (long long)i, (long long)rank + lead_rank, (long long)i, (long long)s->shape->count + lead_rank);
    for (int64_t d = 0; d < rank; d++) {
      int64_t *most = &shape->dims[lead_rank + d];
      *most = TD_MAX(*most, TD_DATA(s->shape, int64_t)[d]);
    }
    *entries += s->values->count;
  }
  return TD_STATUS_OK;
}

/* The entries of sparse tensor `which`, from entry `at` on. */
static void put_entries(td_tensor *indices, td_tensor *values, int64_t at, int64_t which, const td_sparse *s,
                        int lead_rank, const int64_t *lead) {
  int64_t rank = s->shape->count;
  for (int64_t i = 0; i < s->values->count; i++) {
    int64_t *to = TD_DATA(indices, int64_t) + (at + i) * (lead_rank + rank), rest = which;
    for (int d = lead_rank - 1; d >= 0; d--) {
      to[d] = rest % lead[d];
      rest /= lead[d];
    }
    memcpy(to + lead_rank, TD_DATA(s->indices, int64_t) + i * rank, (size_t)rank * sizeof *to);
  }
  if (s->values->count) td_tensor_copy_elements(values, at, s->values, 0, s->values->count);
}

td_status td_out_sparse_joined(td_kernel_ctx *ctx, const td_sparse *all, int64_t n, int lead_rank,
                               const int64_t *lead) {
  td_tensor *indices, *values, *dims;
  td_shape shape;
  int64_t entries, at = 0;
  TD_TRY(joined_shape(td_out_type(ctx, 1), all, n, lead_rank, lead, &shape, &entries));
  int64_t rank = shape.rank;
  TD_TRY(td_out_alloc_dims(ctx, 0, 2, (int64_t[]){entries, rank}, &indices));
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &entries, &values));
  TD_TRY(td_out_alloc_dims(ctx, 2, 1, &rank, &dims));
  memcpy(dims->data, shape.dims, (size_t)rank * sizeof(int64_t));
  for (int64_t i = 0; i < n; i++) {
    put_entries(indices, values, at, i, &all[i], lead_rank, lead);
    at += all[i].values->count;
  }
  return TD_STATUS_OK;
}

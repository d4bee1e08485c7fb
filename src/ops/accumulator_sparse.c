/* Sums of sparse gradients: rows by index, ascending in each gradient; a row's mean is over the gradients that have
 * it. */
#include <string.h>

#include "base/mem.h"
#include "ops/accumulator.h"
#include "ops/move.h"

/* ---- checks ---- */

static td_status check_known_shape(const td_accumulator *a, const td_tensor *shape) {
  if (a->shape.rank > shape->count)
    return td_invalid_argument("Shape mismatch: expected shape rank at least %d, got %lld", a->shape.rank,
                               (long long)shape->count);
  for (int i = 0; i < a->shape.rank; i++) {
    int64_t want = a->shape.dims[i], have = TD_DATA(shape, int64_t)[i];
    if (want >= 0 && want != have)
      return td_invalid_argument("Shape mismatch: expected shape dim %d to be %lld, got %lld", i, (long long)want,
                                 (long long)have);
  }
  return TD_STATUS_OK;
}

static td_status check_indices(const td_accumulator *a, const td_tensor *indices) {
  if (a->shape.rank < 1 || a->shape.dims[0] < 0) return TD_STATUS_OK;
  for (int64_t i = 0; i < indices->count; i++) {
    int64_t index = TD_DATA(indices, int64_t)[i];
    if (index >= a->shape.dims[0])
      return td_invalid_argument(
          "Shape mismatch: index of slice %lld exceeded limits of shape; index is %lld exceeded %lld", (long long)i,
          (long long)index, (long long)a->shape.dims[0]);
  }
  return TD_STATUS_OK;
}

static td_status check_row_dims(int rank, const int64_t *want, const td_tensor *values) {
  for (int i = 1; i < rank; i++)
    if (want[i] >= 0 && want[i] != values->dims[i])
      return td_invalid_argument("Shape mismatch: expected values dim %d to be %lld, got %lld", i, (long long)want[i],
                                 (long long)values->dims[i]);
  return TD_STATUS_OK;
}

static td_status check_values(const td_accumulator *a, const td_tensor *values) {
  if (a->values) {
    if (a->values->rank != values->rank)
      return td_invalid_argument("Shape mismatch: expected values rank %d, got %d", a->values->rank, values->rank);
    return check_row_dims(values->rank, a->values->dims, values);
  }
  if (a->shape.rank > values->rank)
    return td_invalid_argument("Shape mismatch: expected values rank at least %d, got %d", a->shape.rank, values->rank);
  return check_row_dims(a->shape.rank, a->shape.dims, values);
}

static td_status check_sparse(const td_accumulator *a, td_kernel_ctx *ctx) {
  const td_tensor *indices = td_in(ctx, 2), *values = td_in(ctx, 3);
  const bool *has_known_shape = ctx->state;
  if (indices->rank != 1)
    return td_invalid_argument("Input indices should be vector but received shape: %s", TD_SHOW(indices));
  if (!values->rank) return td_invalid_argument("Values cannot be 0-dimensional.");
  if (values->dims[0] != indices->count)
    return td_invalid_argument("Expected %lld non-empty input values, got %lld", (long long)indices->count,
                               (long long)values->dims[0]);
  if (*has_known_shape) TD_TRY(check_known_shape(a, td_in(ctx, 4)));
  TD_TRY(check_indices(a, indices));
  return check_values(a, values);
}

/* ---- sums ---- */

static td_status first_gradient(td_accumulator *a, td_kernel_ctx *ctx) {
  td_tensor *values = NULL, *indices = NULL, *counts = NULL;
  int64_t n = td_in(ctx, 2)->count;
  td_status s = td_tensor_create_dims(TD_INT32, 1, &n, &counts);
  if (!s) s = td_accumulator_own(ctx, 2, &indices);
  if (!s) s = td_accumulator_own(ctx, 3, &values);
  if (s) {
    td_tensor_release(counts);
    td_tensor_release(indices);
    return s;
  }
  for (int64_t i = 0; i < n; i++) TD_DATA(counts, int32_t)[i] = 1;
  a->values = values;
  a->indices = indices;
  a->counts = counts;
  return s;
}

/* Where the rows of the new sum come from; -1: not from there. */
typedef struct source {
  int64_t sum, gradient;
} source;

typedef struct merging {
  const td_accumulator *a;
  const td_tensor *indices, *values; /* the gradient's */
  td_tensor *to_indices, *to_values, *to_counts;
  source *sources;
} merging;

static int64_t find_sources(const td_tensor *a, const td_tensor *b, source *out) {
  const int64_t *x = a->data, *y = b->data;
  int64_t i = 0, j = 0, n = 0;
  while (i < a->count || j < b->count) {
    bool from_a = j == b->count || (i < a->count && x[i] <= y[j]);
    bool from_b = i == a->count || (j < b->count && y[j] <= x[i]);
    out[n++] = (source){from_a ? i++ : -1, from_b ? j++ : -1};
  }
  return n;
}

static void merge_rows(void *arg, int64_t begin, int64_t end) {
  const merging *m = arg;
  const td_tensor *old = m->a->values;
  int64_t width = m->to_values->count / m->to_values->dims[0], row = width * m->a->add.in_size;
  for (int64_t i = begin; i < end; i++) {
    source s = m->sources[i];
    const char *x = s.sum < 0 ? NULL : TD_DATA(old, char) + s.sum * row;
    const char *y = s.gradient < 0 ? NULL : TD_DATA(m->values, char) + s.gradient * row;
    char *z = TD_DATA(m->to_values, char) + i * row;
    TD_DATA(m->to_indices, int64_t)
    [i] = x ? TD_DATA(m->a->indices, int64_t)[s.sum] : TD_DATA(m->indices, int64_t)[s.gradient];
    TD_DATA(m->to_counts, int32_t)[i] = (x ? TD_DATA(m->a->counts, int32_t)[s.sum] : 0) + (y ? 1 : 0);
    if (x && y)
      td_map_binary(&m->a->add, y, 1, x, 1, z, width);
    else
      memcpy(z, x ? x : y, (size_t)row);
  }
}

static td_status make_rows(merging *m, int64_t n) {
  td_shape shape;
  td_tensor_shape(m->values, &shape);
  shape.dims[0] = n;
  TD_TRY(td_tensor_create(m->a->dtype, &shape, &m->to_values));
  TD_TRY(td_tensor_create_dims(TD_INT64, 1, &n, &m->to_indices));
  return td_tensor_create_dims(TD_INT32, 1, &n, &m->to_counts);
}

static td_status add_sparse(td_accumulator *a, td_kernel_ctx *ctx) {
  if (!a->values) return first_gradient(a, ctx);
  merging m = {.a = a, .indices = td_in(ctx, 2), .values = td_in(ctx, 3)};
  size_t most = (size_t)(a->indices->count + m.indices->count);
  m.sources = td_try_malloc((most + 1) * sizeof *m.sources);
  if (!m.sources) return td_error(TD_RESOURCE_EXHAUSTED, "No memory for a sum of %zu rows", most);
  int64_t n = find_sources(a->indices, m.indices, m.sources);
  td_status s = make_rows(&m, n);
  if (s) {
    td_tensor_release(m.to_values);
    td_tensor_release(m.to_indices);
    td_tensor_release(m.to_counts);
  } else {
    double row_ns = n ? 5 + 0.3 * (double)m.to_values->count / (double)n : 0;
    td_ctx_parallel_for(ctx, n, row_ns, merge_rows, &m);
    td_tensor_release(a->values);
    td_tensor_release(a->indices);
    td_tensor_release(a->counts);
    a->values = m.to_values;
    a->indices = m.to_indices;
    a->counts = m.to_counts;
  }
  td_free(m.sources);
  return s;
}

/* ---- take ---- */

static void divide_rows(void *arg, int64_t begin, int64_t end) {
  const td_accumulator *a = arg;
  int64_t width = a->values->count / a->values->dims[0];
  for (int64_t i = begin; i < end; i++) {
    char number[8], *row = TD_DATA(a->values, char) + i * width * a->divide.in_size;
    td_accumulator_number(a, TD_DATA(a->counts, int32_t)[i], number);
    td_map_binary(&a->divide, row, 1, number, 0, row, width);
  }
}

static td_status take_sparse(td_accumulator *a, td_kernel_ctx *ctx) {
  td_tensor *shape;
  int64_t rank = a->values->rank, n = a->indices->count;
  TD_TRY(td_out_alloc_dims(ctx, 2, 1, &rank, &shape));
  TD_DATA(shape, int64_t)[0] = a->shape.rank > 0 ? a->shape.dims[0] : -1;
  for (int i = 1; i < rank; i++) TD_DATA(shape, int64_t)[i] = a->values->dims[i];
  if (a->is_mean && n) td_ctx_parallel_for(ctx, n, 5 + 0.3 * (double)a->values->count / (double)n, divide_rows, a);
  td_out_set(ctx, 0, a->indices);
  td_out_set(ctx, 1, a->values);
  td_tensor_release(a->counts);
  a->indices = a->values = a->counts = NULL;
  return TD_STATUS_OK;
}

const td_sum_ops td_sparse_sum = {
    .gradient_inputs = 3, .outputs = 3, .values = 1, .check = check_sparse, .add = add_sparse, .take = take_sparse};

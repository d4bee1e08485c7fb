/* Rows routed by integer tensors: OneHot, DynamicPartition, DynamicStitch, SparseToDense. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"

/* Another step may be writing an index that lies in a ref variable: each is read once, then checked. */
static inline int64_t index_at(const td_tensor *t, int64_t i) {
  switch (t->dtype) {
    case TD_INT64:
      return *(volatile const int64_t *)(TD_DATA(t, int64_t) + i);
    case TD_UINT8:
      return *(volatile const uint8_t *)(TD_DATA(t, uint8_t) + i);
    case TD_INT8:
      return *(volatile const int8_t *)(TD_DATA(t, int8_t) + i);
    default:
      return *(volatile const int32_t *)(TD_DATA(t, int32_t) + i);
  }
}

/* ---- OneHot ---- */

typedef struct one_hot {
  int64_t axis;
} one_hot;
static td_status one_hot_create(td_kernel_builder *b, void *state) {
  return td_attr_int(b->node, "axis", &((one_hot *)state)->axis);
}

static td_status one_hot_compute(td_kernel_ctx *ctx) {
  const td_tensor *indices = td_in(ctx, 0), *depth_in = td_in(ctx, 1), *on = td_in(ctx, 2), *off = td_in(ctx, 3);
  int64_t axis = ((const one_hot *)ctx->state)->axis;
  int rank = indices->rank + 1;
  if (axis != -1 && (axis < 0 || axis >= rank)) {
    return td_invalid_argument("Expected axis to be -1 or between [0, %d).  But received: %lld", rank, (long long)axis);
  }
  if (depth_in->rank) return td_invalid_argument("depth must be a scalar, but got: %s", TD_SHOW(depth_in));
  if (on->rank) return td_invalid_argument("on_value must be a scalar, but got: %s", TD_SHOW(on));
  if (off->rank) return td_invalid_argument("off_value must be a scalar, but got: %s", TD_SHOW(off));
  if (rank > TD_MAX_RANK) return td_invalid_argument("Too many dimensions: %d", rank);
  int64_t depth = td_tensor_int_at(depth_in, 0), total;
  if (depth < 0) return td_invalid_argument("depth must be non-negative, got: %lld", (long long)depth);
  if (__builtin_mul_overflow(indices->count, depth, &total)) {
    return td_invalid_argument("OneHot result would have shape %s + [%lld], which exceeds 2**63 - 1 elements",
                               TD_SHOW(indices), (long long)depth);
  }
  if (axis == -1) axis = rank - 1;
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < rank; d++) dims[d] = d < axis ? indices->dims[d] : d == axis ? depth : indices->dims[d - 1];
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, rank, dims, &out));
  td_fill_elements(out, 0, out->count, off, 0);
  if (!out->count) return TD_STATUS_OK;
  int64_t suffix = td_dims_product(indices->dims, (int)axis, indices->rank), prefix = indices->count / suffix;
  size_t size = td_dtype_size((td_dtype)out->dtype);
  bool is_float = size == 4 && td_dtype_is_pod((td_dtype)out->dtype);
  for (int64_t p = 0; p < prefix; p++) {
    for (int64_t s = 0; s < suffix; s++) {
      int64_t index = index_at(indices, p * suffix + s);
      if (index < 0 || index >= depth) continue;
      int64_t at = (p * depth + index) * suffix + s;
      if (is_float) {
        TD_DATA(out, uint32_t)[at] = *TD_DATA(on, uint32_t);
      } else {
        td_tensor_copy_elements(out, at, on, 0, 1);
      }
    }
  }
  return TD_STATUS_OK;
}

/* ---- DynamicPartition ---- */

static bool starts_with(const td_tensor *t, const td_tensor *prefix) {
  return t->rank >= prefix->rank && td_dims_eq(prefix->rank, t->dims, prefix->rank, prefix->dims);
}

static td_status partition_allocate(td_kernel_ctx *ctx, const td_tensor *data, const td_tensor *parts, int64_t *room) {
  int n = ctx->kernel->output_count;
  for (int64_t i = 0; i < parts->count; i++) {
    int64_t p = index_at(parts, i);
    if (p < 0 || p >= n) {
      td_show_buf b;
      return td_invalid_argument("partitions%s = %lld is not in [0, %d)",
                                 td_show_index(&b, parts->rank, parts->dims, i), (long long)p, n);
    }
    room[p]++;
  }
  td_shape shape;
  for (int p = 0; p < n; p++) {
    td_shape_vector(&shape, room[p]);
    for (int d = parts->rank; d < data->rank; d++) TD_TRY(td_shape_append(&shape, data->dims[d]));
    td_tensor *out;
    TD_TRY(td_out_alloc(ctx, p, &shape, &out));
  }
  return TD_STATUS_OK;
}

static td_status partition(td_kernel_ctx *ctx, int64_t *room, int64_t *used) {
  const td_tensor *data = td_in(ctx, 0), *parts = td_in(ctx, 1);
  TD_TRY(partition_allocate(ctx, data, parts, room));
  if (!data->count) return TD_STATUS_OK;
  int64_t row = data->count / parts->count;
  for (int64_t i = 0; i < parts->count; i++) {
    int64_t p = index_at(parts, i);
    if (p < 0 || p >= ctx->kernel->output_count || used[p] >= room[p]) { /* they changed since they were counted */
      return td_invalid_argument("indices[%lld] has been asynchronously overwritten and is no longer in range!",
                                 (long long)i);
    }
    td_tensor_copy_elements(ctx->out[p].tensor, used[p]++ * row, data, i * row, row);
  }
  return TD_STATUS_OK;
}

static td_status dynamic_partition_compute(td_kernel_ctx *ctx) {
  const td_tensor *data = td_in(ctx, 0), *parts = td_in(ctx, 1);
  if (!starts_with(data, parts)) {
    return td_invalid_argument(
        "data.shape must start with partitions.shape, got data.shape = %s, partitions.shape = %s", TD_SHOW(data),
        TD_SHOW(parts));
  }
  int64_t *counts = td_new_array(int64_t, 2 * (size_t)ctx->kernel->output_count);
  td_status status = partition(ctx, counts, counts + ctx->kernel->output_count);
  td_free(counts);
  return status;
}

/* ---- DynamicStitch ---- */

static td_status stitch_check(td_kernel_ctx *ctx, int n, int64_t *rows) {
  const td_tensor *i0 = td_in(ctx, 0), *d0 = td_in(ctx, n);
  int32_t highest = -1;
  for (int k = 0; k < n; k++) {
    const td_tensor *indices = td_in(ctx, k), *data = td_in(ctx, n + k);
    if (!starts_with(data, indices)) {
      return td_invalid_argument("data[%d].shape = %s does not start with indices[%d].shape = %s", k, TD_SHOW(data), k,
                                 TD_SHOW(indices));
    }
    if (!td_dims_eq(d0->rank - i0->rank, d0->dims + i0->rank, data->rank - indices->rank, data->dims + indices->rank)) {
      return td_invalid_argument(
          "Need data[0].shape[%d:] = data[%d].shape[%d:], got data[0].shape = %s, data[%d].shape = %s, "
          "indices[0].shape "
          "= %s, indices[%d].shape = %s",
          i0->rank, k, indices->rank, TD_SHOW(d0), k, TD_SHOW(data), TD_SHOW(i0), k, TD_SHOW(indices));
    }
    const int32_t *v = TD_DATA(indices, int32_t);
    for (int64_t i = 0; i < indices->count; i++) highest = TD_MAX(highest, v[i]);
  }
  *rows = (int64_t)highest + 1;
  return TD_STATUS_OK;
}

/* `count` rows of the source from row `from` on, to rows `to` and on. */
static void stitch_run(td_tensor *out, const td_tensor *data, int64_t row, int64_t to, int64_t from, int64_t count) {
  if (td_dtype_is_pod((td_dtype)out->dtype)) {
    size_t size = (size_t)row * td_dtype_size((td_dtype)out->dtype);
    memcpy((char *)out->data + (size_t)to * size, (const char *)data->data + (size_t)from * size, (size_t)count * size);
  } else {
    td_tensor_copy_elements(out, to * row, data, from * row, count * row);
  }
}

/* Copies every row to its place, rows that stay neighbours at once. `named`, a byte a row, gets which rows some index
 * named; not used for empty rows. */
static td_status stitch_rows(td_kernel_ctx *ctx, int n, td_tensor *out, int64_t row, uint8_t *named) {
  int64_t rows = out->dims[0];
  for (int k = 0; k < n; k++) {
    const td_tensor *indices = td_in(ctx, k), *data = td_in(ctx, n + k);
    int64_t begin = 0, first = 0; /* of the run: row of `data`, row of `out` */
    for (int64_t i = 0; i < indices->count; i++) {
      int64_t to = index_at(indices, i);
      if (to < 0 || to >= rows) return td_invalid_argument("indices[%lld] is out of range", (long long)i);
      if (!row) continue;
      named[to] = 1;
      if (to == first + (i - begin)) continue;
      stitch_run(out, data, row, first, begin, i - begin);
      begin = i, first = to;
    }
    if (row && indices->count) stitch_run(out, data, row, first, begin, indices->count - begin);
  }
  return TD_STATUS_OK;
}

static td_status dynamic_stitch_compute(td_kernel_ctx *ctx) {
  int n = ctx->kernel->input_count / 2;
  int64_t rows = 0;
  TD_TRY(stitch_check(ctx, n, &rows));
  const td_tensor *i0 = td_in(ctx, 0), *d0 = td_in(ctx, n);
  td_shape shape;
  td_shape_vector(&shape, rows);
  for (int d = i0->rank; d < d0->rank; d++) TD_TRY(td_shape_append(&shape, d0->dims[d]));
  td_tensor *out;
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  if (!rows) return TD_STATUS_OK;
  int64_t row = td_dims_product(d0->dims, i0->rank, d0->rank);
  uint8_t *named = row ? td_try_malloc((size_t)rows) : NULL;
  if (row && !named) return td_resource_exhausted("no memory for %lld rows", (long long)rows);
  if (named) memset(named, 0, (size_t)rows);
  td_status s = stitch_rows(ctx, n, out, row, named);
  /* rows that no index names: TensorFlow leaves there what was in memory */
  if (named && !s && memchr(named, 0, (size_t)rows))
    for (int64_t i = 0; i < rows; i++)
      if (!named[i]) td_zero_elements(out, i * row, row);
  td_free(named);
  return s;
}

/* ---- SparseToDense ---- */

typedef struct sparse {
  bool validate;
} sparse;
static td_status sparse_create(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "validate_indices", &((sparse *)state)->validate);
}

static td_status sparse_check(const td_tensor *indices, const td_tensor *shape, const td_tensor *values,
                              const td_tensor *fill) {
  if (indices->rank > 2) {
    return td_invalid_argument("sparse_indices should be a scalar, vector, or matrix, got shape %s", TD_SHOW(indices));
  }
  int64_t n = indices->rank > 0 ? indices->dims[0] : 1, nd = indices->rank > 1 ? indices->dims[1] : 1;
  if (shape->rank != 1) return td_invalid_argument("output_shape should be a vector, got shape %s", TD_SHOW(shape));
  if (shape->count != nd) {
    return td_invalid_argument("output_shape has incorrect number of elements: %lld should be: %lld",
                               (long long)shape->count, (long long)nd);
  }
  if (values->rank != 0 && (values->rank != 1 || values->count != n)) {
    return td_invalid_argument("sparse_values has incorrect shape %s, should be [] or [%lld]", TD_SHOW(values),
                               (long long)n);
  }
  if (fill->rank) return td_invalid_argument("default_value should be a scalar.");
  return TD_STATUS_OK;
}

/* -1, 0, 1: index vector `i` against the one before it. */
static int order_of(const td_tensor *indices, int64_t i, int nd) {
  for (int d = 0; d < nd; d++) {
    int64_t a = index_at(indices, (i - 1) * nd + d), b = index_at(indices, i * nd + d);
    if (a != b) return b < a ? -1 : 1;
  }
  return 0;
}

static td_status sparse_bad(const td_tensor *indices, int64_t i, int nd, const char *what, const td_tensor *out) {
  int64_t at[TD_MAX_RANK];
  for (int d = 0; d < nd; d++) at[d] = index_at(indices, i * nd + d);
  td_strbuf text = {0};
  for (int d = 0; d < nd; d++) td_strbuf_printf(&text, "%s%lld", d ? "," : "", (long long)at[d]);
  td_status s = out ? td_invalid_argument("indices[%lld] = [%s] is out of bounds: need 0 <= index < %s", (long long)i,
                                          td_strbuf_cstr(&text), TD_SHOW(out))
                    : td_invalid_argument("indices[%lld] = [%s] is %s", (long long)i, td_strbuf_cstr(&text), what);
  td_strbuf_deinit(&text);
  return s;
}

static td_status sparse_to_dense_compute(td_kernel_ctx *ctx) {
  const td_tensor *indices = td_in(ctx, 0), *shape_in = td_in(ctx, 1), *values = td_in(ctx, 2), *fill = td_in(ctx, 3);
  bool validate = ((const sparse *)ctx->state)->validate;
  TD_TRY(sparse_check(indices, shape_in, values, fill));
  td_shape shape;
  TD_TRY(td_shape_from_tensor(shape_in, false, &shape));
  td_tensor *out;
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  td_fill_elements(out, 0, out->count, fill, 0);
  int nd = shape.rank;
  int64_t strides[TD_MAX_RANK], n = indices->rank > 0 ? indices->dims[0] : 1;
  td_strides(out->rank, out->dims, strides);
  for (int64_t i = 0; i < n; i++) {
    int64_t to = 0;
    bool inside = true;
    for (int d = 0; d < nd && inside; d++) {
      int64_t index = index_at(indices, i * nd + d);
      inside = index >= 0 && index < out->dims[d];
      if (inside) to += index * strides[d];
    }
    if (!inside && validate) return sparse_bad(indices, i, nd, NULL, out);
    if (!inside) {
      return td_invalid_argument("Indices are not valid (out of bounds).  Shape: %s", TD_SHOW(out));
    }
    if (validate && i > 0) {
      int order = order_of(indices, i, nd);
      if (order < 0) return sparse_bad(indices, i, nd, "out of order", NULL);
      if (!order) return sparse_bad(indices, i, nd, "repeated", NULL);
    }
    td_tensor_copy_elements(out, to, values, values->rank ? i : 0, 1);
  }
  return TD_STATUS_OK;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {"DynamicPartition", "data: T; partitions: int32", "outputs: num_partitions * T",
     "num_partitions: int >= 1; T: type", 0},
    {"DynamicStitch", "indices: N * int32; data: N * T", "merged: T", "N: int >= 1; T: type", 0},
    {"OneHot", "indices: TI; depth: int32; on_value: T; off_value: T", "output: T",
     "axis: int = -1; T: type; TI: type in {uint8, int8, int32, int64} = int64", 0},
    {"ParallelDynamicStitch", "indices: N * int32; data: N * T", "merged: T", "N: int >= 1; T: type", 0},
    {"SparseToDense", "sparse_indices: Tindices; output_shape: Tindices; sparse_values: T; default_value: T",
     "dense: T", "validate_indices: bool = true; T: type; Tindices: type in {int32, int64}", 0},
};

static const td_kernel_def kernels[] = {
    {.op = "DynamicPartition", .compute = dynamic_partition_compute},
    {.op = "DynamicStitch", .compute = dynamic_stitch_compute},
    {.op = "OneHot", .state_size = sizeof(one_hot), .create = one_hot_create, .compute = one_hot_compute},
    {.op = "ParallelDynamicStitch", .compute = dynamic_stitch_compute},
    {.op = "SparseToDense", .state_size = sizeof(sparse), .create = sparse_create, .compute = sparse_to_dense_compute},
};

TD_FAMILY(route, ops, kernels);

/* Sparse tensors (indices, values, shape) in other shapes: SparseReshape, and SparseFillEmptyRows with its gradient. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"

static const td_op_spec ops[] = {
    {"SparseReshape", "input_indices: int64; input_shape: int64; new_shape: int64",
     "output_indices: int64; output_shape: int64", NULL, 0},
    {"SparseFillEmptyRows", "indices: int64; values: T; dense_shape: int64; default_value: T",
     "output_indices: int64; output_values: T; empty_row_indicator: bool; reverse_index_map: int64", "T: type", 0},
    {"SparseFillEmptyRowsGrad", "reverse_index_map: int64; grad_values: T", "d_values: T; d_default_value: T",
     "T: type", 0},
};

static td_status wrong_rank(const td_tensor *t, const char *what) {
  char *text = td_tensor_shape_text(t);
  td_status s = td_invalid_argument("%s, got shape %s", what, text);
  td_free(text);
  return s;
}

static const int64_t *longs(const td_tensor *t) { return TD_DATA(t, int64_t); }

/* ---- SparseReshape ---- */

/* The product of a dense shape; INVALID_ARGUMENT for negative sizes and for more elements than int64 counts. */
static td_status dense_size(const td_tensor *shape, int64_t *out) {
  *out = 1;
  for (int64_t i = 0; i < shape->count; i++) {
    int64_t size = longs(shape)[i];
    if (size < 0 || __builtin_mul_overflow(*out, size, out))
      return td_invalid_argument("input_shape[%lld] is %lld: no shape of a tensor", (long long)i, (long long)size);
  }
  return TD_STATUS_OK;
}

/* `target` with its -1, if it has one, made out. */
static td_status infer(const td_tensor *target, int64_t total, int64_t *dims) {
  int64_t known = 1, unknown = -1;
  for (int64_t i = 0; i < target->count; i++) {
    int64_t size = dims[i] = longs(target)[i];
    if (size == -1 && unknown >= 0)
      return td_invalid_argument("only one output dimension may be -1, not both %lld and %lld", (long long)unknown,
                                 (long long)i);
    if (size == -1) {
      unknown = i;
    } else if (size < 0) {
      return td_invalid_argument("size %lld must be non-negative, not %lld", (long long)i, (long long)size);
    } else if (__builtin_mul_overflow(known, size, &known)) {
      return td_invalid_argument("the requested shape has too many elements");
    }
  }
  if (unknown >= 0) {
    if (!known)
      return td_invalid_argument(
          "reshape cannot infer the missing input size for an empty tensor unless all specified input sizes are "
          "non-zero");
    dims[unknown] = total / known;
    if (total % known)
      return td_invalid_argument(
          "Input to reshape is a SparseTensor with %lld dense values, but the requested shape requires a multiple of "
          "%lld",
          (long long)total, (long long)known);
  } else if (known != total) {
    return td_invalid_argument("Input to reshape is a tensor with %lld dense values, but the requested shape has %lld",
                               (long long)total, (long long)known);
  }
  return TD_STATUS_OK;
}

static td_status renumber(const td_tensor *in, const td_tensor *shape, const int64_t *dims, int64_t rank,
                          td_tensor *out) {
  for (int64_t i = 0; i < in->dims[0]; i++) {
    const int64_t *index = longs(in) + i * shape->count;
    int64_t *to = TD_DATA(out, int64_t) + i * rank, at = 0;
    for (int64_t k = 0; k < shape->count; k++) {
      if (index[k] < 0 || index[k] >= longs(shape)[k])
        return td_invalid_argument("input_indices[%lld,%lld] is %lld, out of bounds: the size there is %lld",
                                   (long long)i, (long long)k, (long long)index[k], (long long)longs(shape)[k]);
      at = at * longs(shape)[k] + index[k];
    }
    for (int64_t k = rank - 1; k >= 0; k--) {
      to[k] = at % dims[k]; /* not zero: there is an element */
      at /= dims[k];
    }
  }
  return TD_STATUS_OK;
}

static td_status reshape_compute(td_kernel_ctx *ctx) {
  td_tensor *in = td_in(ctx, 0), *shape = td_in(ctx, 1), *target = td_in(ctx, 2), *indices, *dims;
  int64_t total;
  if (in->rank != 2) return wrong_rank(in, "Input indices should be a matrix");
  if (shape->rank != 1) return wrong_rank(shape, "Input shape should be a vector");
  if (target->rank != 1) return wrong_rank(target, "Target shape should be a vector");
  if (in->dims[1] != shape->count)
    return td_invalid_argument("Input tensor rank must match input shape length: %lld and %lld", (long long)in->dims[1],
                               (long long)shape->count);
  TD_TRY(dense_size(shape, &total));
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, target->dims, &dims));
  TD_TRY(infer(target, total, TD_DATA(dims, int64_t)));
  TD_TRY(td_out_alloc_dims(ctx, 0, 2, (int64_t[]){in->dims[0], target->count}, &indices));
  return renumber(in, shape, longs(dims), target->count, indices);
}

/* ---- SparseFillEmptyRows ---- */

static td_status check_fill(const td_tensor *indices, const td_tensor *values, const td_tensor *shape,
                            const td_tensor *none) {
  if (shape->rank != 1 || !shape->count) return wrong_rank(shape, "dense_shape must be a vector of at least one size");
  if (indices->rank != 2) return wrong_rank(indices, "indices must be a matrix");
  if (values->rank != 1) return wrong_rank(values, "values must be a vector");
  if (none->rank) return wrong_rank(none, "default_value must be a scalar");
  if (indices->dims[0] != values->count || indices->dims[1] != shape->count)
    return td_invalid_argument(
        "The length of `values` (%lld) must match the first dimension of `indices` (%lld), that of "
        "`dense_shape` (%lld) the second (%lld)",
        (long long)values->count, (long long)indices->dims[0], (long long)shape->count, (long long)indices->dims[1]);
  int64_t rows = longs(shape)[0];
  if (rows < 0) return td_invalid_argument("dense_shape[0] is %lld", (long long)rows);
  if (!rows && values->count)
    return td_invalid_argument("Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = %lld",
                               (long long)values->count);
  for (int64_t i = 0; i < values->count; i++) {
    int64_t row = longs(indices)[i * shape->count];
    if (row < 0 || row >= rows)
      return td_invalid_argument("indices(%lld, 0) is invalid: %lld %s", (long long)i, (long long)row,
                                 row < 0 ? "< 0" : ">= the number of rows");
  }
  return TD_STATUS_OK;
}

/* Where each row's entries begin in the output ([rows + 1]), and which rows are empty. */
static int64_t lay_out_rows(const td_tensor *indices, int64_t rank, int64_t rows, bool *is_empty, int64_t *next) {
  for (int64_t i = 0; i < indices->dims[0]; i++) next[longs(indices)[i * rank]]++;
  int64_t at = 0;
  for (int64_t r = 0; r < rows; r++) {
    int64_t count = next[r];
    is_empty[r] = !count;
    next[r] = at;
    at += count ? count : 1;
  }
  return at;
}

static td_status fill_compute(td_kernel_ctx *ctx) {
  td_tensor *in = td_in(ctx, 0), *values = td_in(ctx, 1), *shape = td_in(ctx, 2), *none = td_in(ctx, 3);
  td_tensor *indices, *out, *empty, *reverse, *next = NULL;
  TD_TRY(check_fill(in, values, shape, none));
  int64_t rank = shape->count, rows = longs(shape)[0];
  td_status status = TD_STATUS_OK;
  TD_TRY_GOTO(td_out_alloc_dims(ctx, 2, 1, &rows, &empty));
  TD_TRY_GOTO(td_out_alloc_dims(ctx, 3, 1, &values->count, &reverse));
  TD_TRY_GOTO(td_tensor_create_dims(TD_INT64, 1, &rows, &next)); /* of outside's size: no plain allocation */
  int64_t *at = TD_DATA(next, int64_t);
  if (rows) memset(at, 0, (size_t)rows * sizeof *at);
  int64_t total = lay_out_rows(in, rank, rows, TD_DATA(empty, bool), at);
  TD_TRY_GOTO(td_out_alloc_dims(ctx, 0, 2, (int64_t[]){total, rank}, &indices));
  TD_TRY_GOTO(td_out_alloc_dims(ctx, 1, 1, &total, &out));
  for (int64_t r = 0; r < rows; r++) {
    if (!TD_DATA(empty, bool)[r]) continue;
    int64_t *index = TD_DATA(indices, int64_t) + at[r] * rank;
    memset(index, 0, (size_t)rank * sizeof *index);
    index[0] = r;
    td_tensor_copy_elements(out, at[r], none, 0, 1);
  }
  for (int64_t i = 0; i < values->count; i++) {
    const int64_t *index = longs(in) + i * rank;
    int64_t to = at[index[0]]++;
    memcpy(TD_DATA(indices, int64_t) + to * rank, index, (size_t)rank * sizeof *index);
    td_tensor_copy_elements(out, to, values, i, 1);
    TD_DATA(reverse, int64_t)[i] = to;
  }
cleanup:
  td_tensor_release(next);
  return status;
}

#define SUM_REST(type)                                                    \
  {                                                                       \
    type sum = 0;                                                         \
    for (int64_t i = 0; i < grad->count; i++)                             \
      if (!TD_DATA(taken, bool)[i]) sum += ((const type *)grad->data)[i]; \
    TD_DATA(rest, type)[0] = sum;                                         \
  }

static td_status fill_grad_compute(td_kernel_ctx *ctx) {
  td_tensor *map = td_in(ctx, 0), *grad = td_in(ctx, 1), *values, *rest, *taken;
  if (map->rank != 1) return wrong_rank(map, "reverse_index_map must be a vector");
  if (grad->rank != 1) return wrong_rank(grad, "grad_values must be a vector");
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &map->count, &values));
  TD_TRY(td_out_alloc_dims(ctx, 1, 0, NULL, &rest));
  TD_TRY(td_tensor_create_dims(TD_BOOL, 1, &grad->count, &taken));
  td_status status = TD_STATUS_OK;
  if (grad->count) memset(TD_DATA(taken, bool), 0, (size_t)grad->count);
  for (int64_t i = 0; i < map->count; i++) {
    int64_t from = longs(map)[i];
    if (from < 0 || from >= grad->count)
      TD_TRY_GOTO(td_invalid_argument("Elements in reverse index must be in [0, %lld) but got %lld",
                                      (long long)grad->count, (long long)from));
    td_tensor_copy_elements(values, i, grad, from, 1);
    TD_DATA(taken, bool)[from] = true;
  }
  switch ((int)grad->dtype) {
    case TD_FLOAT:
      SUM_REST(float) break;
    case TD_DOUBLE:
      SUM_REST(double) break;
    case TD_INT32:
      SUM_REST(uint32_t) break;
    default:
      SUM_REST(uint64_t) break;
  }
cleanup:
  td_tensor_release(taken);
  return status;
}

static const td_kernel_def kernels[] = {
    {.op = "SparseReshape", .compute = reshape_compute},
    {.op = "SparseFillEmptyRows", .compute = fill_compute},
    {.op = "SparseFillEmptyRowsGrad",
     .types = {{"T", TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE) | TD_SET(TD_INT32) | TD_SET(TD_INT64)}},
     .compute = fill_grad_compute},
};

TD_FAMILY(sparse_shape, ops, kernels);

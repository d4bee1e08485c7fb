/* Lists made from nothing or from a tensor's rows (TensorFlow's list_ops). */
#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/tensor_list_io.h"

static td_status compute_empty(td_kernel_ctx *ctx) {
  int32_t max;
  td_partial_shape shape;
  td_dtype dtype = *(td_dtype *)ctx->state;
  TD_TRY(td_in_int32(ctx, 1, "max_num_elements", &max));
  TD_TRY(td_list_shape_from(td_in(ctx, 0), &shape));
  td_tensor_list *l = td_tensor_list_create(dtype, &shape, max);
  td_partial_shape_deinit(&shape);
  return td_out_list(ctx, l, TD_STATUS_OK);
}

static td_status compute_reserve(td_kernel_ctx *ctx) {
  int32_t n;
  td_partial_shape shape;
  TD_TRY(td_in_int32(ctx, 1, "num_elements", &n));
  if (n < 0) return td_invalid_argument("The num_elements to reserve must be a non negative number, but got %d", n);
  TD_TRY(td_list_shape_from(td_in(ctx, 0), &shape));
  td_tensor_list *l = td_tensor_list_create(*(td_dtype *)ctx->state, &shape, -1);
  td_partial_shape_deinit(&shape);
  return td_out_list(ctx, l, td_tensor_list_resize(l, n));
}

static td_status check_rows(const td_tensor *t) {
  return t->rank ? TD_STATUS_OK
                 : td_invalid_argument("Tensor must be at least a vector, but saw shape: %s", TD_SHOW(t));
}

/* A list for the rows of input 0, whose element shape is on input `shape_at`. */
static td_status list_for_rows(td_kernel_ctx *ctx, int shape_at, td_tensor_list **out) {
  td_tensor *t = td_in(ctx, 0);
  td_partial_shape shape;
  TD_TRY(check_rows(t));
  TD_TRY(td_list_shape_from(td_in(ctx, shape_at), &shape));
  td_status s = TD_STATUS_OK;
  if (!td_partial_shape_fits(&shape, t->rank - 1, t->dims + 1)) {
    char *want = td_partial_shape_text(&shape), *got = td_dims_text(t->rank - 1, t->dims + 1);
    s = td_invalid_argument("Specified a list with shape %s from a tensor with shape %s", want, got);
    td_free(want);
    td_free(got);
  } else {
    *out = td_tensor_list_create(t->dtype, &shape, -1);
  }
  td_partial_shape_deinit(&shape);
  return s;
}

static td_status compute_from_tensor(td_kernel_ctx *ctx) {
  td_tensor *t = td_in(ctx, 0);
  td_tensor_list *l;
  TD_TRY(list_for_rows(ctx, 1, &l));
  td_status s = td_tensor_list_resize(l, t->dims[0]);
  for (int64_t i = 0; i < t->dims[0] && !s; i++) l->items[i] = td_tensor_row(t, i);
  return td_out_list(ctx, l, s);
}

/* Puts the rows of `t` where `indices` say; the list grows as needed. */
static td_status scatter(td_tensor_list *l, td_tensor *t, const td_tensor *indices, int64_t limit) {
  int64_t size = l->count;
  for (int64_t k = 0; k < indices->count; k++) {
    int32_t i = TD_DATA(indices, int32_t)[k];
    if (i < 0) return td_invalid_argument("Indices in TensorListScatter must all be non-negative.");
    if (limit >= 0 && i >= limit)
      return td_invalid_argument("TensorListScatter: Trying to scatter at index %d in list with size %lld", i,
                                 (long long)limit);
    size = TD_MAX(size, (int64_t)i + 1);
  }
  TD_TRY(td_tensor_list_resize(l, size));
  for (int64_t k = 0; k < indices->count; k++) {
    td_tensor *row = td_tensor_row(t, k);
    td_tensor_list_set(l, TD_DATA(indices, int32_t)[k], row);
    td_tensor_release(row);
  }
  return TD_STATUS_OK;
}

static td_status compute_scatter(td_kernel_ctx *ctx) {
  td_tensor *t = td_in(ctx, 0), *indices = td_in(ctx, 1);
  int32_t n = -1;
  td_tensor_list *l;
  if (ctx->kernel->input_count > 3) TD_TRY(td_in_int32(ctx, 3, "num_elements", &n));
  if (n < -1) return td_invalid_argument("TensorListScatter expects num_elements >= -1, found: %d", n);
  TD_TRY(list_for_rows(ctx, 2, &l));
  td_status s = TD_STATUS_OK;
  if (indices->count != t->dims[0])
    s = td_invalid_argument("Invalid number of rows in input tensor. Expected: %lld Actual: %lld",
                            (long long)indices->count, (long long)t->dims[0]);
  if (!s && n > 0) s = td_tensor_list_resize(l, n);
  if (!s) s = scatter(l, t, indices, n);
  return td_out_list(ctx, l, s);
}

static td_status compute_scatter_existing(td_kernel_ctx *ctx) {
  td_tensor *t = td_in(ctx, 1), *indices = td_in(ctx, 2);
  td_tensor_list *l;
  TD_TRY(check_rows(t));
  if (indices->rank != 1)
    return td_invalid_argument("Expected indices to be a vector, but received shape: %s", TD_SHOW(indices));
  if (indices->count != t->dims[0])
    return td_invalid_argument("Expected len(indices) == tensor.shape[0], but saw: %lld vs. %lld",
                               (long long)indices->count, (long long)t->dims[0]);
  TD_TRY(td_in_list(ctx, 0, &l));
  if (t->dtype != l->dtype) {
    td_status s = td_invalid_argument("Invalid data types; input tensor type: %s list element_type: %s",
                                      td_dtype_name(t->dtype), td_dtype_name(l->dtype));
    td_tensor_list_release(l);
    return s;
  }
  l = td_list_own(ctx, l);
  return td_out_list(ctx, l, scatter(l, t, indices, -1));
}

static td_status split(td_tensor_list *l, td_tensor *t, const td_tensor *lengths) {
  int64_t at = 0;
  for (int64_t i = 0; i < lengths->count; i++) {
    int64_t n = TD_DATA(lengths, int64_t)[i];
    if (n < 0) return td_invalid_argument("Invalid value in lengths: %lld", (long long)n);
    if (n > t->dims[0] - at)
      return td_invalid_argument("Attempting to slice [%lld, %lld] from tensor with length %lld", (long long)at,
                                 (long long)((uint64_t)at + (uint64_t)n), (long long)t->dims[0]);
    td_tensor *part = td_tensor_slice(t, at, at + n);
    td_status s = td_tensor_list_push(l, part);
    td_tensor_release(part);
    if (s) return s;
    at += n;
  }
  if (at == t->dims[0]) return TD_STATUS_OK;
  return td_invalid_argument("Unused values in tensor. Length of tensor: %lld Values used: %lld", (long long)t->dims[0],
                             (long long)at);
}

static td_status compute_split(td_kernel_ctx *ctx) {
  td_tensor *t = td_in(ctx, 0), *lengths = td_in(ctx, 2);
  td_partial_shape shape;
  TD_TRY(td_list_shape_from(td_in(ctx, 1), &shape));
  td_status s = TD_STATUS_OK;
  if (!shape.rank)
    s = td_list_shape_error("TensorListSplit requires element_shape to be at least of rank 1, but saw: ", "", "",
                            &shape);
  else if (!t->rank)
    s = check_rows(t);
  else if (shape.rank > 0 &&
           !td_partial_shape_fits(&(td_partial_shape){shape.rank - 1, shape.dims + 1}, t->rank - 1, t->dims + 1))
    s = td_list_shape_error("tensor shape ", TD_SHOW(t), " is not compatible with element_shape ", &shape);
  else if (lengths->rank != 1)
    s = td_invalid_argument("Expected lengths to be a vector, received shape: %s", TD_SHOW(lengths));
  td_tensor_list *l = s ? NULL : td_tensor_list_create(t->dtype, &shape, -1);
  td_partial_shape_deinit(&shape);
  return s ? s : td_out_list(ctx, l, split(l, t, lengths));
}

/* ---- tables ---- */

static td_status create_typed(td_kernel_builder *b, void *state) {
  return td_attr_type(b->node, "element_dtype", state);
}

static const td_op_spec ops[] = {
    {.name = "EmptyTensorList",
     .inputs = "element_shape: shape_type; max_num_elements: int32",
     .outputs = "handle: variant",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListFromTensor",
     .inputs = "tensor: element_dtype; element_shape: shape_type",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListReserve",
     .inputs = "element_shape: shape_type; num_elements: int32",
     .outputs = "handle: variant",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListScatter",
     .inputs = "tensor: element_dtype; indices: int32; element_shape: shape_type",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListScatterIntoExistingList",
     .inputs = "input_handle: variant; tensor: element_dtype; indices: int32",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type"},
    {.name = "TensorListScatterV2",
     .inputs = "tensor: element_dtype; indices: int32; element_shape: shape_type; num_elements: int32",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListSplit",
     .inputs = "tensor: element_dtype; element_shape: shape_type; lengths: int64",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
};

#define TYPED(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(td_dtype), .create = create_typed, .compute = fn }
#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }
static const td_kernel_def kernels[] = {
    TYPED("EmptyTensorList", compute_empty),
    PLAIN("TensorListFromTensor", compute_from_tensor),
    TYPED("TensorListReserve", compute_reserve),
    PLAIN("TensorListScatter", compute_scatter),
    PLAIN("TensorListScatterIntoExistingList", compute_scatter_existing),
    PLAIN("TensorListScatterV2", compute_scatter),
    PLAIN("TensorListSplit", compute_split),
};

TD_FAMILY(tensor_list_make, ops, kernels);

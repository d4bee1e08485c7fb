/* Lists element by element (TensorFlow's list_ops). What makes them from tensors is in tensor_list_make.c, what makes
 * tensors from them in tensor_list_stack.c. */
#include <stdio.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/tensor_list_io.h"

/* ---- changing lists ---- */

/* `which`: "", or " at index <i>" among several lists. */
static td_status check_push(const td_tensor_list *l, td_dtype dtype, const td_tensor *t, const char *which) {
  if (!td_partial_shape_fits(&l->shape, t->rank, t->dims)) {
    td_status s = td_list_shape_error(" Op element shape: ", TD_SHOW(t), " list shape: ", &l->shape);
    return td_status_prepend(s, "Tried to append a tensor with incompatible shape to a list%s.", which);
  }
  TD_TRY(td_list_check_dtype(l, dtype));
  if (l->max_count != -1 && l->count >= l->max_count)
    return td_invalid_argument("Tried to push item into a full list list size: %lld max_num_elements: %d",
                               (long long)l->count, l->max_count);
  return TD_STATUS_OK;
}

static td_status compute_push(td_kernel_ctx *ctx) {
  td_tensor *t = td_in(ctx, 1);
  td_tensor_list *l;
  TD_TRY(td_in_list(ctx, 0, &l));
  td_status s = check_push(l, t->dtype, t, "");
  if (!s) {
    l = td_list_own(ctx, l);
    s = td_tensor_list_push(l, t);
  }
  return td_out_list(ctx, l, s);
}

/* One row to each list. */
static td_status compute_push_batch(td_kernel_ctx *ctx) {
  td_tensor *lists = td_in(ctx, 0), *t = td_in(ctx, 1), *out;
  if (!t->rank) return td_invalid_argument("Expected tensor to be at least a vector, but saw shape: %s", TD_SHOW(t));
  if (lists->rank != 1)
    return td_invalid_argument("Expected input_handles to be a vector, but saw shape: %s", TD_SHOW(lists));
  if (t->dims[0] != lists->count)
    return td_invalid_argument("Expected tensor.shape[0] == input_handles.size, but saw %lld vs. %lld",
                               (long long)t->dims[0], (long long)lists->count);
  TD_TRY(td_out_alloc_like(ctx, 0, lists, &out));
  for (int64_t i = 0; i < lists->count; i++) {
    td_tensor_list *l;
    TD_TRY(td_list_at(lists, i, &l));
    td_tensor *row = td_tensor_row(t, i);
    char which[32];
    snprintf(which, sizeof which, " at index %lld", (long long)i);
    td_status s = check_push(l, t->dtype, row, which);
    td_tensor_list *copy = td_tensor_list_copy(l);
    td_tensor_list_release(l);
    if (!s) s = td_tensor_list_push(copy, row);
    td_tensor_release(row);
    TD_DATA(out, td_variant *)[i] = &copy->variant;
    if (s) return s;
  }
  return TD_STATUS_OK;
}

/* The value of an element that is not set: zeros, if the shape can be told. Takes the shape's contents. */
static td_status unset_value(td_dtype dtype, td_partial_shape *shape, const char *note, td_tensor **out) {
  td_status s;
  if (td_partial_shape_is_full(shape))
    s = td_list_zeros(dtype, shape, out);
  else
    s = td_list_shape_error("Trying to read an uninitialized tensor but element_shape is not fully defined", note, "",
                            shape);
  td_partial_shape_deinit(shape);
  return s;
}

static td_status compute_pop(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  td_tensor *value = NULL;
  td_dtype dtype = td_out_type(ctx, 1);
  TD_TRY(td_in_typed_list(ctx, dtype, &l));
  td_status s = l->count ? TD_STATUS_OK : td_invalid_argument("Trying to pop from an empty list.");
  if (!s && l->items[l->count - 1]) {
    value = td_tensor_retain(l->items[l->count - 1]);
  } else if (!s) {
    td_partial_shape shape;
    s = td_list_merged_shape(ctx, 1, l, &shape);
    if (!s) s = unset_value(dtype, &shape, ".", &value);
  }
  if (!s) {
    td_out_set(ctx, 1, value);
    l = td_list_own(ctx, l);
    s = td_tensor_list_resize(l, l->count - 1);
  }
  return td_out_list(ctx, l, s);
}

typedef struct set_state {
  bool grows;
} set_state;

static td_status create_set(td_kernel_builder *b, void *state) {
  set_state *st = state;
  return td_attr_find(b->node, "resize_if_index_out_of_bounds")
             ? td_attr_bool(b->node, "resize_if_index_out_of_bounds", &st->grows)
             : TD_STATUS_OK;
}

static td_status compute_set(td_kernel_ctx *ctx) {
  const set_state *st = ctx->state;
  td_tensor *value = td_in(ctx, 2);
  td_tensor_list *l;
  int32_t i;
  TD_TRY(td_in_int32(ctx, 1, "index", &i));
  TD_TRY(td_in_typed_list(ctx, value->dtype, &l));
  td_status s = TD_STATUS_OK;
  if (i < 0 || (i >= l->count && !st->grows))
    s = td_invalid_argument("Trying to modify element %d in a list with %lld elements.", i, (long long)l->count);
  else if (!td_partial_shape_fits(&l->shape, value->rank, value->dims))
    s = td_list_shape_error("Tried to set a tensor with incompatible shape at a list index. Item element shape: ",
                            TD_SHOW(value), " list shape: ", &l->shape);
  if (!s) {
    l = td_list_own(ctx, l);
    s = td_tensor_list_resize(l, TD_MAX(l->count, (int64_t)i + 1));
  }
  if (!s) td_tensor_list_set(l, i, value);
  return td_out_list(ctx, l, s);
}

static td_status compute_resize(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  int32_t n;
  TD_TRY(td_in_int32(ctx, 1, "size", &n));
  if (n < 0) return td_invalid_argument("TensorListSlice expects size to be non-negative. Got: %d", n);
  TD_TRY(td_in_list(ctx, 0, &l));
  l = td_list_own(ctx, l);
  return td_out_list(ctx, l, td_tensor_list_resize(l, n));
}

static td_status join(const td_tensor_list *a, const td_tensor_list *b, int64_t at, td_dtype dtype,
                      td_tensor_list **out) {
  if (a->dtype != dtype || b->dtype != dtype)
    return td_invalid_argument("input_%c[%lld].dtype != element_dtype.  Saw: %s vs. %s", a->dtype != dtype ? 'a' : 'b',
                               (long long)at, td_dtype_name(a->dtype != dtype ? a->dtype : b->dtype),
                               td_dtype_name(dtype));
  if (!td_partial_shape_eq(&a->shape, &b->shape)) {
    char *x = td_partial_shape_text(&a->shape), *y = td_partial_shape_text(&b->shape);
    td_status s = td_invalid_argument(
        "input_a and input_b TensorList element shapes are not identical at index %lld.  Saw %s vs. %s", (long long)at,
        x, y);
    td_free(x);
    td_free(y);
    return s;
  }
  td_tensor_list *l = *out = td_tensor_list_copy(a);
  for (int64_t i = 0; i < b->count; i++) TD_TRY(td_tensor_list_push(l, b->items[i]));
  return TD_STATUS_OK;
}

static td_status compute_concat_lists(td_kernel_ctx *ctx) {
  td_tensor *a = td_in(ctx, 0), *b = td_in(ctx, 1), *out;
  if (!td_tensor_same_shape(a, b))
    return td_invalid_argument("Incompatible input TensorList tensor shapes: %s vs. %s", TD_SHOW(a), TD_SHOW(b));
  TD_TRY(td_out_alloc_like(ctx, 0, a, &out));
  for (int64_t i = 0; i < a->count; i++) {
    td_tensor_list *x = NULL, *y = NULL, *l = NULL;
    td_status s = td_list_at(a, i, &x);
    if (!s) s = td_list_at(b, i, &y);
    if (!s) s = join(x, y, i, *(td_dtype *)ctx->state, &l);
    td_tensor_list_release(x);
    td_tensor_list_release(y);
    TD_DATA(out, td_variant *)[i] = l ? &l->variant : NULL;
    if (s) return s;
  }
  return TD_STATUS_OK;
}

/* ---- looking at lists ---- */

static td_status compute_length(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_TRY(td_in_list(ctx, 0, &l));
  *TD_DATA(out, int32_t) = (int32_t)l->count;
  td_tensor_list_release(l);
  return TD_STATUS_OK;
}

static td_status compute_element_shape(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  td_tensor *out;
  TD_TRY(td_in_list(ctx, 0, &l));
  int64_t n = l->shape.rank;
  td_status s = td_out_alloc_dims(ctx, 0, n < 0 ? 0 : 1, &n, &out);
  for (int64_t i = 0; !s && i < out->count; i++) {
    int64_t dim = n < 0 ? -1 : l->shape.dims[i];
    if (out->dtype == TD_INT64)
      TD_DATA(out, int64_t)[i] = dim;
    else
      TD_DATA(out, int32_t)[i] = (int32_t)dim;
  }
  td_tensor_list_release(l);
  return s;
}

/* Merges the shapes of the elements that are set into `shape`. */
static td_status merge_elements(const td_tensor_list *l, td_partial_shape *shape) {
  for (int64_t i = 0; i < l->count; i++)
    if (l->items[i]) TD_TRY(td_partial_shape_merge(shape, l->items[i]->rank, l->items[i]->dims));
  return TD_STATUS_OK;
}

static td_status get_item(td_kernel_ctx *ctx, const td_tensor_list *l, int32_t i, td_tensor **out) {
  if (i < 0 || i >= l->count)
    return td_invalid_argument("Trying to access element %d in a list with %lld elements.", i, (long long)l->count);
  if (l->items[i]) {
    *out = td_tensor_retain(l->items[i]);
    return TD_STATUS_OK;
  }
  td_partial_shape shape;
  TD_TRY(td_list_merged_shape(ctx, 2, l, &shape));
  td_status s = td_partial_shape_is_full(&shape) ? TD_STATUS_OK : merge_elements(l, &shape);
  if (!s && !td_partial_shape_is_full(&shape)) {
    char *text = td_partial_shape_text(&shape);
    s = td_invalid_argument(
        "Trying to read an uninitialized tensor but element_shape is not fully defined: %s and no list element is set.",
        text);
    td_free(text);
  }
  if (!s) s = td_list_zeros(l->dtype, &shape, out);
  td_partial_shape_deinit(&shape);
  return s;
}

static td_status compute_get(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  td_tensor *value;
  int32_t i;
  TD_TRY(td_in_int32(ctx, 1, "index", &i));
  TD_TRY(td_in_typed_list(ctx, td_out_type(ctx, 0), &l));
  td_status s = get_item(ctx, l, i, &value);
  td_tensor_list_release(l);
  if (!s) td_out_set(ctx, 0, value);
  return s;
}

/* ---- tables ---- */

static td_status create_typed(td_kernel_builder *b, void *state) {
  return td_attr_type(b->node, "element_dtype", state);
}

static const td_op_spec ops[] = {
    {.name = "TensorListConcatLists",
     .inputs = "input_a: variant; input_b: variant",
     .outputs = "output: variant",
     .attrs = "element_dtype: type"},
    {.name = "TensorListElementShape",
     .inputs = "input_handle: variant",
     .outputs = "element_shape: shape_type",
     .attrs = "shape_type: type in {int32, int64}"},
    {.name = "TensorListGetItem",
     .inputs = "input_handle: variant; index: int32; element_shape: Tshape",
     .outputs = "item: element_dtype",
     .attrs = "element_dtype: type; Tshape: type in {int32, int64} = int32"},
    {.name = "TensorListLength", .inputs = "input_handle: variant", .outputs = "length: int32"},
    {.name = "TensorListPopBack",
     .inputs = "input_handle: variant; element_shape: int32",
     .outputs = "output_handle: variant; tensor: element_dtype",
     .attrs = "element_dtype: type"},
    {.name = "TensorListPushBack",
     .inputs = "input_handle: variant; tensor: element_dtype",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type"},
    {.name = "TensorListPushBackBatch",
     .inputs = "input_handles: variant; tensor: element_dtype",
     .outputs = "output_handles: variant",
     .attrs = "element_dtype: type"},
    {.name = "TensorListResize", .inputs = "input_handle: variant; size: int32", .outputs = "output_handle: variant"},
    {.name = "TensorListSetItem",
     .inputs = "input_handle: variant; index: int32; item: element_dtype",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type; resize_if_index_out_of_bounds: bool = false"},
};

#define TYPED(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(td_dtype), .create = create_typed, .compute = fn }
#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }
static const td_kernel_def kernels[] = {
    TYPED("TensorListConcatLists", compute_concat_lists),
    PLAIN("TensorListElementShape", compute_element_shape),
    PLAIN("TensorListGetItem", compute_get),
    PLAIN("TensorListLength", compute_length),
    PLAIN("TensorListPopBack", compute_pop),
    PLAIN("TensorListPushBack", compute_push),
    PLAIN("TensorListPushBackBatch", compute_push_batch),
    PLAIN("TensorListResize", compute_resize),
    {.op = "TensorListSetItem",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(set_state),
     .create = create_set,
     .compute = compute_set},
};

TD_FAMILY(tensor_list, ops, kernels);

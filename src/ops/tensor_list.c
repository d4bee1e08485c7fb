/* Ops on TensorLists (TensorFlow's list_ops), and the sums and zeros of variants. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ops/data/optional.h"
#include "ops/families.h"
#include "ops/loops/loops.h"
#include "ops/move.h"
#include "ops/tensor_list_data.h"
#include "ops/variant_math.h"

/* ---- inputs and outputs ---- */

/* Element `i` of a variant tensor, as a list: one reference. */
static td_status list_at(const td_tensor *t, int64_t i, td_tensor_list **out) {
  TD_TRY(td_tensor_list_of(TD_DATA(t, td_variant *)[i], out));
  if (*out) return TD_STATUS_OK;
  td_variant *v = TD_DATA(t, td_variant *)[i];
  return td_invalid_argument("Input handle is not a list. Saw: '%s'", v ? v->ops->type_name : "");
}

static td_status get_list(td_kernel_ctx *ctx, int i, td_tensor_list **out) {
  td_tensor *t = td_in(ctx, i);
  if (t->rank) return td_invalid_argument("Input list must be a scalar saw: %s", TD_SHOW(t));
  return list_at(t, 0, out);
}

static td_status check_dtype(const td_tensor_list *l, td_dtype t) {
  if (l->dtype == t) return TD_STATUS_OK;
  return td_invalid_argument("Invalid data types; op elements %s but list elements %s", td_dtype_name(t),
                             td_dtype_name(l->dtype));
}

/* The list on input 0, of the op's element type. */
static td_status get_typed(td_kernel_ctx *ctx, td_dtype t, td_tensor_list **out) {
  TD_TRY(get_list(ctx, 0, out));
  td_status s = check_dtype(*out, t);
  if (s) td_tensor_list_release(*out);
  return s;
}

/* A list to change, in place of *l, whose reference it takes: the same where only input 0 and the caller hold it. */
static td_tensor_list *own_list(td_kernel_ctx *ctx, td_tensor_list *l) {
  td_tensor *t = td_in(ctx, 0);
  bool is_there = TD_DATA(t, td_variant *)[0] == &l->variant;
  uint32_t refs = atomic_load_explicit(&l->variant.refs, memory_order_acquire);
  if (refs == 1) return l; /* just decoded */
  if (is_there && refs == 2 && td_tensor_is_exclusive(t)) {
    TD_DATA(t, td_variant *)[0] = NULL;
    td_variant_release(&l->variant);
    return l;
  }
  td_tensor_list *copy = td_tensor_list_copy(l);
  td_tensor_list_release(l);
  return copy;
}

/* Takes the list; sets nothing when `s` is an error, which it hands on. */
static td_status out_list(td_kernel_ctx *ctx, td_tensor_list *l, td_status s) {
  td_tensor *out;
  if (!s) s = td_out_alloc_dims(ctx, 0, 0, NULL, &out);
  if (s)
    td_tensor_list_release(l);
  else
    TD_DATA(out, td_variant *)[0] = &l->variant;
  return s;
}

static td_status get_int(td_kernel_ctx *ctx, int i, const char *what, int32_t *out) {
  TD_TRY(td_check_scalar(td_in(ctx, i), what));
  *out = *TD_DATA(td_in(ctx, i), int32_t);
  return TD_STATUS_OK;
}

/* An element shape from a tensor: a vector with -1 for unknown sizes, or the scalar -1 for an unknown rank. */
static td_status shape_from(const td_tensor *t, td_partial_shape *out) {
  if (!t->rank) {
    *out = TD_PARTIAL_SHAPE_UNKNOWN;
    if (td_tensor_int_at(t, 0) == -1) return TD_STATUS_OK;
    return td_invalid_argument("The only valid scalar shape tensor is the fully unknown shape specified as -1.");
  }
  td_shape shape;
  TD_TRY(td_shape_from_tensor(t, true, &shape));
  *out = td_partial_shape_make(shape.rank, shape.dims);
  return TD_STATUS_OK;
}

/* What the input says of the elements' shape, together with what the list knows. */
static td_status merged_shape(td_kernel_ctx *ctx, int i, const td_tensor_list *l, td_partial_shape *out) {
  TD_TRY(shape_from(td_in(ctx, i), out));
  td_status s = td_partial_shape_merge(out, l->shape.rank, l->shape.dims);
  if (s) td_partial_shape_deinit(out);
  return s;
}

/* "<before><shape><between><partial shape>" */
static td_status shape_error(const char *before, const char *shape, const char *between, const td_partial_shape *p) {
  char *text = td_partial_shape_text(p);
  td_status s = td_invalid_argument("%s%s%s%s", before, shape, between, text);
  td_free(text);
  return s;
}

static td_status check_rows(const td_tensor *t) {
  return t->rank ? TD_STATUS_OK
                 : td_invalid_argument("Tensor must be at least a vector, but saw shape: %s", TD_SHOW(t));
}

/* Row `i` as an element, a view. */
static td_tensor *row_of(td_tensor *t, int64_t i) {
  td_tensor *row = td_tensor_slice(t, i, i + 1), *element = td_tensor_reshape(row, t->rank - 1, t->dims + 1);
  td_tensor_release(row);
  return element;
}

static td_status zeros_of(td_dtype dtype, const td_partial_shape *p, td_tensor **out) {
  td_shape shape;
  td_shape_set(&shape, p->rank, p->dims);
  return td_tensor_create_zeros(dtype, &shape, out);
}

/* ---- making lists ---- */

static td_status compute_empty(td_kernel_ctx *ctx) {
  int32_t max;
  td_partial_shape shape;
  td_dtype dtype = *(td_dtype *)ctx->state;
  TD_TRY(get_int(ctx, 1, "max_num_elements", &max));
  TD_TRY(shape_from(td_in(ctx, 0), &shape));
  td_tensor_list *l = td_tensor_list_create(dtype, &shape, max);
  td_partial_shape_deinit(&shape);
  return out_list(ctx, l, TD_STATUS_OK);
}

static td_status compute_reserve(td_kernel_ctx *ctx) {
  int32_t n;
  td_partial_shape shape;
  TD_TRY(get_int(ctx, 1, "num_elements", &n));
  if (n < 0) return td_invalid_argument("The num_elements to reserve must be a non negative number, but got %d", n);
  TD_TRY(shape_from(td_in(ctx, 0), &shape));
  td_tensor_list *l = td_tensor_list_create(*(td_dtype *)ctx->state, &shape, -1);
  td_partial_shape_deinit(&shape);
  return out_list(ctx, l, td_tensor_list_resize(l, n));
}

/* A list for the rows of input 0, whose element shape is on input `shape_at`. */
static td_status list_for_rows(td_kernel_ctx *ctx, int shape_at, td_tensor_list **out) {
  td_tensor *t = td_in(ctx, 0);
  td_partial_shape shape;
  TD_TRY(check_rows(t));
  TD_TRY(shape_from(td_in(ctx, shape_at), &shape));
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
  for (int64_t i = 0; i < t->dims[0] && !s; i++) l->items[i] = row_of(t, i);
  return out_list(ctx, l, s);
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
    td_tensor *row = row_of(t, k);
    td_tensor_list_set(l, TD_DATA(indices, int32_t)[k], row);
    td_tensor_release(row);
  }
  return TD_STATUS_OK;
}

static td_status compute_scatter(td_kernel_ctx *ctx) {
  td_tensor *t = td_in(ctx, 0), *indices = td_in(ctx, 1);
  int32_t n = -1;
  td_tensor_list *l;
  if (ctx->kernel->input_count > 3) TD_TRY(get_int(ctx, 3, "num_elements", &n));
  if (n < -1) return td_invalid_argument("TensorListScatter expects num_elements >= -1, found: %d", n);
  TD_TRY(list_for_rows(ctx, 2, &l));
  td_status s = TD_STATUS_OK;
  if (indices->count != t->dims[0])
    s = td_invalid_argument("Invalid number of rows in input tensor. Expected: %lld Actual: %lld",
                            (long long)indices->count, (long long)t->dims[0]);
  if (!s && n > 0) s = td_tensor_list_resize(l, n);
  if (!s) s = scatter(l, t, indices, n);
  return out_list(ctx, l, s);
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
  TD_TRY(get_list(ctx, 0, &l));
  if (t->dtype != l->dtype) {
    td_status s = td_invalid_argument("Invalid data types; input tensor type: %s list element_type: %s",
                                      td_dtype_name(t->dtype), td_dtype_name(l->dtype));
    td_tensor_list_release(l);
    return s;
  }
  l = own_list(ctx, l);
  return out_list(ctx, l, scatter(l, t, indices, -1));
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
  TD_TRY(shape_from(td_in(ctx, 1), &shape));
  td_status s = TD_STATUS_OK;
  if (!shape.rank)
    s = shape_error("TensorListSplit requires element_shape to be at least of rank 1, but saw: ", "", "", &shape);
  else if (!t->rank)
    s = check_rows(t);
  else if (shape.rank > 0 &&
           !td_partial_shape_fits(&(td_partial_shape){shape.rank - 1, shape.dims + 1}, t->rank - 1, t->dims + 1))
    s = shape_error("tensor shape ", TD_SHOW(t), " is not compatible with element_shape ", &shape);
  else if (lengths->rank != 1)
    s = td_invalid_argument("Expected lengths to be a vector, received shape: %s", TD_SHOW(lengths));
  td_tensor_list *l = s ? NULL : td_tensor_list_create(t->dtype, &shape, -1);
  td_partial_shape_deinit(&shape);
  return s ? s : out_list(ctx, l, split(l, t, lengths));
}

/* ---- changing lists ---- */

/* `which`: "", or " at index <i>" among several lists. */
static td_status check_push(const td_tensor_list *l, td_dtype dtype, const td_tensor *t, const char *which) {
  if (!td_partial_shape_fits(&l->shape, t->rank, t->dims)) {
    td_status s = shape_error(" Op element shape: ", TD_SHOW(t), " list shape: ", &l->shape);
    return td_status_prepend(s, "Tried to append a tensor with incompatible shape to a list%s.", which);
  }
  TD_TRY(check_dtype(l, dtype));
  if (l->max_count != -1 && l->count >= l->max_count)
    return td_invalid_argument("Tried to push item into a full list list size: %lld max_num_elements: %d",
                               (long long)l->count, l->max_count);
  return TD_STATUS_OK;
}

static td_status compute_push(td_kernel_ctx *ctx) {
  td_tensor *t = td_in(ctx, 1);
  td_tensor_list *l;
  TD_TRY(get_list(ctx, 0, &l));
  td_status s = check_push(l, t->dtype, t, "");
  if (!s) {
    l = own_list(ctx, l);
    s = td_tensor_list_push(l, t);
  }
  return out_list(ctx, l, s);
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
    TD_TRY(list_at(lists, i, &l));
    td_tensor *row = row_of(t, i);
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
    s = zeros_of(dtype, shape, out);
  else
    s = shape_error("Trying to read an uninitialized tensor but element_shape is not fully defined", note, "", shape);
  td_partial_shape_deinit(shape);
  return s;
}

static td_status compute_pop(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  td_tensor *value = NULL;
  td_dtype dtype = td_out_type(ctx, 1);
  TD_TRY(get_typed(ctx, dtype, &l));
  td_status s = l->count ? TD_STATUS_OK : td_invalid_argument("Trying to pop from an empty list.");
  if (!s && l->items[l->count - 1]) {
    value = td_tensor_retain(l->items[l->count - 1]);
  } else if (!s) {
    td_partial_shape shape;
    s = merged_shape(ctx, 1, l, &shape);
    if (!s) s = unset_value(dtype, &shape, ".", &value);
  }
  if (!s) {
    td_out_set(ctx, 1, value);
    l = own_list(ctx, l);
    s = td_tensor_list_resize(l, l->count - 1);
  }
  return out_list(ctx, l, s);
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
  TD_TRY(get_int(ctx, 1, "index", &i));
  TD_TRY(get_typed(ctx, value->dtype, &l));
  td_status s = TD_STATUS_OK;
  if (i < 0 || (i >= l->count && !st->grows))
    s = td_invalid_argument("Trying to modify element %d in a list with %lld elements.", i, (long long)l->count);
  else if (!td_partial_shape_fits(&l->shape, value->rank, value->dims))
    s = shape_error("Tried to set a tensor with incompatible shape at a list index. Item element shape: ",
                    TD_SHOW(value), " list shape: ", &l->shape);
  if (!s) {
    l = own_list(ctx, l);
    s = td_tensor_list_resize(l, TD_MAX(l->count, (int64_t)i + 1));
  }
  if (!s) td_tensor_list_set(l, i, value);
  return out_list(ctx, l, s);
}

static td_status compute_resize(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  int32_t n;
  TD_TRY(get_int(ctx, 1, "size", &n));
  if (n < 0) return td_invalid_argument("TensorListSlice expects size to be non-negative. Got: %d", n);
  TD_TRY(get_list(ctx, 0, &l));
  l = own_list(ctx, l);
  return out_list(ctx, l, td_tensor_list_resize(l, n));
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
    td_status s = list_at(a, i, &x);
    if (!s) s = list_at(b, i, &y);
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
  TD_TRY(get_list(ctx, 0, &l));
  *TD_DATA(out, int32_t) = (int32_t)l->count;
  td_tensor_list_release(l);
  return TD_STATUS_OK;
}

static td_status compute_element_shape(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  td_tensor *out;
  TD_TRY(get_list(ctx, 0, &l));
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
  TD_TRY(merged_shape(ctx, 2, l, &shape));
  td_status s = td_partial_shape_is_full(&shape) ? TD_STATUS_OK : merge_elements(l, &shape);
  if (!s && !td_partial_shape_is_full(&shape)) {
    char *text = td_partial_shape_text(&shape);
    s = td_invalid_argument(
        "Trying to read an uninitialized tensor but element_shape is not fully defined: %s and no list element is set.",
        text);
    td_free(text);
  }
  if (!s) s = zeros_of(l->dtype, &shape, out);
  td_partial_shape_deinit(&shape);
  return s;
}

static td_status compute_get(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  td_tensor *value;
  int32_t i;
  TD_TRY(get_int(ctx, 1, "index", &i));
  TD_TRY(get_typed(ctx, td_out_type(ctx, 0), &l));
  td_status s = get_item(ctx, l, i, &value);
  td_tensor_list_release(l);
  if (!s) td_out_set(ctx, 0, value);
  return s;
}

/* Copies an element to position `at` of `out`; zeros for one that is not set. */
static void put(td_tensor *out, int64_t at, const td_tensor *element, int64_t n) {
  if (!n) return;
  if (element)
    td_tensor_copy_elements(out, at, element, 0, n);
  else if (td_dtype_is_pod(out->dtype))
    td_zero_elements(out, at, n);
}

/* Elements `indices` (all: NULL) as rows. `empty` and `unset` begin the errors about shapes that nothing tells. */
static td_status stack(td_kernel_ctx *ctx, const td_tensor_list *l, const td_tensor *indices, td_partial_shape *shape,
                       const char *empty, const char *unset) {
  int64_t n = indices ? indices->count : l->count;
  td_tensor *out;
  if (!n && !td_partial_shape_is_full(shape)) return shape_error(empty, "", "", shape);
  for (int64_t k = 0; k < n; k++) {
    int64_t i = indices ? TD_DATA(indices, int32_t)[k] : k;
    if (i < 0 || i >= l->count)
      return td_invalid_argument("Index %lld out o range; list only has %lld elements.", (long long)i,
                                 (long long)l->count);
    if (l->items[i]) TD_TRY(td_partial_shape_merge(shape, l->items[i]->rank, l->items[i]->dims));
  }
  if (!td_partial_shape_is_full(shape)) return shape_error(unset, "", "", shape);
  td_shape dims;
  td_shape_vector(&dims, n);
  for (int d = 0; d < shape->rank; d++) TD_TRY(td_shape_append(&dims, shape->dims[d]));
  TD_TRY(td_out_alloc(ctx, 0, &dims, &out));
  int64_t size = n ? out->count / n : 0;
  for (int64_t k = 0; k < n; k++) put(out, k * size, l->items[indices ? TD_DATA(indices, int32_t)[k] : k], size);
  return TD_STATUS_OK;
}

typedef struct stack_state {
  int64_t count;
} stack_state;

static td_status create_stack(td_kernel_builder *b, void *state) {
  return td_attr_int(b->node, "num_elements", &((stack_state *)state)->count);
}

static td_status compute_stack(td_kernel_ctx *ctx) {
  const stack_state *st = ctx->state;
  td_tensor_list *l;
  td_partial_shape shape = TD_PARTIAL_SHAPE_UNKNOWN;
  TD_TRY(get_typed(ctx, td_out_type(ctx, 0), &l));
  td_status s = TD_STATUS_OK;
  if (st->count != -1 && st->count != l->count)
    s = td_invalid_argument("Operation expected a list with %lld elements but got a list with %lld elements.",
                            (long long)st->count, (long long)l->count);
  if (!s) s = merged_shape(ctx, 1, l, &shape);
  if (!s)
    s = stack(
        ctx, l, NULL, &shape, "Tried to stack elements of an empty list with non-fully-defined element_shape: ",
        "Tried to stack list which only contains uninitialized tensors and has a non-fully-defined element_shape: ");
  td_partial_shape_deinit(&shape);
  td_tensor_list_release(l);
  return s;
}

static td_status compute_gather(td_kernel_ctx *ctx) {
  td_tensor_list *l;
  td_partial_shape shape = TD_PARTIAL_SHAPE_UNKNOWN;
  TD_TRY(get_typed(ctx, td_out_type(ctx, 0), &l));
  td_status s = merged_shape(ctx, 2, l, &shape);
  if (!s)
    s = stack(ctx, l, td_in(ctx, 1), &shape, "Tried to gather 0-elements from a list with non-fully-defined shape: ",
              "Tried to gather uninitialized tensors from a list with non-fully-defined element_shape: ");
  td_partial_shape_deinit(&shape);
  td_tensor_list_release(l);
  return s;
}

/* ---- Concat ---- */

typedef struct concat_state {
  td_partial_shape shape; /* of the elements, as the first generation says it */
} concat_state;

static td_status create_concat(td_kernel_builder *b, void *state) {
  concat_state *st = state;
  st->shape = TD_PARTIAL_SHAPE_UNKNOWN;
  return td_attr_find(b->node, "element_shape") ? td_partial_shape_attr(b->node, "element_shape", &st->shape)
                                                : TD_STATUS_OK;
}

static void destroy_concat(void *state) { td_partial_shape_deinit(&((concat_state *)state)->shape); }

/* The elements' shape without the first dimension, and that one: -1 if it differs or nothing tells. */
static td_status concat_shape(const td_tensor_list *l, const td_partial_shape *given, td_partial_shape *rest,
                              int64_t *first) {
  if (!given->rank)
    return td_invalid_argument("Concat requires elements to be at least vectors, found scalars instead.");
  *rest = given->rank < 0 ? TD_PARTIAL_SHAPE_UNKNOWN : td_partial_shape_make(given->rank - 1, given->dims + 1);
  int64_t wanted = given->rank < 0 ? -1 : given->dims[0], seen = -1;
  bool differs = false;
  if (!l->count && !td_partial_shape_is_full(rest))
    return shape_error(
        "All except the first dimension must be fully defined when concating an empty tensor list. element_shape: ", "",
        "", rest);
  for (int64_t i = 0; i < l->count; i++) {
    td_tensor *t = l->items[i];
    if (!t) continue;
    if (!t->rank)
      return td_invalid_argument("Concat saw a scalar shape at index %lld but requires at least vectors.",
                                 (long long)i);
    TD_TRY(td_partial_shape_merge(rest, t->rank - 1, t->dims + 1));
    if (wanted != -1 && wanted != t->dims[0])
      return td_invalid_argument(
          "First entry of element_shape input does not match the first dim of list element at index: %lld Expected: "
          "%lld "
          "Actual: %lld",
          (long long)i, (long long)wanted, (long long)t->dims[0]);
    differs = differs || (seen != -1 && seen != t->dims[0]);
    seen = t->dims[0];
  }
  *first = wanted != -1 ? wanted : differs ? -1 : seen;
  if (td_partial_shape_is_full(rest)) return TD_STATUS_OK;
  return shape_error(
      "Trying to concat list with only uninitialized tensors but element_shape_except_first_dim_ is not fully "
      "defined: ",
      "", "", rest);
}

/* How many rows element `i` has; `leading`: what the input says, or NULL. */
static td_status rows_of(const td_tensor_list *l, int64_t i, int64_t first, const td_tensor *leading, int64_t *out) {
  if (l->items[i]) {
    *out = l->items[i]->dims[0];
    return TD_STATUS_OK;
  }
  if ((!leading || i >= leading->count) && first != -1) {
    *out = first;
    return TD_STATUS_OK;
  }
  if (!leading)
    return td_invalid_argument(
        "Concating lists with uninitialized tensors is not supported in this version of TensorListConcat. Consider "
        "updating "
        "your GraphDef to run the newer version.");
  if (i >= leading->count)
    return td_invalid_argument(
        "List contains uninitialized tensor at index %lld but leading_dims has only %lld elements.", (long long)i,
        (long long)leading->count);
  *out = TD_DATA(leading, int64_t)[i];
  return *out >= 0 ? TD_STATUS_OK
                   : td_invalid_argument("leading_dims[%lld] is negative: %lld", (long long)i, (long long)*out);
}

static td_status concat(td_kernel_ctx *ctx, const td_tensor_list *l, const td_partial_shape *rest, int64_t first) {
  const td_tensor *leading = ctx->kernel->input_count > 2 ? td_in(ctx, 2) : NULL;
  td_tensor *lengths, *out;
  td_shape shape;
  td_shape_vector(&shape, 0);
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &l->count, &lengths));
  int64_t *rows = TD_DATA(lengths, int64_t);
  for (int64_t i = 0; i < l->count; i++) {
    TD_TRY(rows_of(l, i, first, leading, &rows[i]));
    if (__builtin_add_overflow(shape.dims[0], rows[i], &shape.dims[0]))
      return td_invalid_argument("The concatenation of %lld elements is too large", (long long)l->count);
  }
  for (int d = 0; d < rest->rank; d++) TD_TRY(td_shape_append(&shape, rest->dims[d]));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  int64_t width = out->count ? out->count / shape.dims[0] : 0, at = 0;
  for (int64_t i = 0; i < l->count; i++) {
    put(out, at, l->items[i], rows[i] * width);
    at += rows[i] * width;
  }
  return TD_STATUS_OK;
}

static td_status compute_concat(td_kernel_ctx *ctx) {
  const concat_state *st = ctx->state;
  td_tensor_list *l;
  td_partial_shape given = TD_PARTIAL_SHAPE_UNKNOWN, rest = TD_PARTIAL_SHAPE_UNKNOWN;
  int64_t first = -1;
  TD_TRY(get_typed(ctx, td_out_type(ctx, 0), &l));
  td_status s = ctx->kernel->input_count > 1 ? merged_shape(ctx, 1, l, &given) : TD_STATUS_OK;
  if (!s) s = concat_shape(l, ctx->kernel->input_count > 1 ? &given : &st->shape, &rest, &first);
  if (!s) s = concat(ctx, l, &rest, first);
  td_partial_shape_deinit(&given);
  td_partial_shape_deinit(&rest);
  td_tensor_list_release(l);
  return s;
}

/* ---- AddN, ZerosLike ---- */

static td_status too_deep(void) {
  return td_resource_exhausted("Variants are nested more than %d deep", TD_VARIANT_MAX_DEPTH);
}

static td_status add_list(td_tensor_list *sum, const td_tensor_list *b, int depth);

/* The sum of two variants of one kind, one reference. */
static td_status add_one(td_tensor *a, td_tensor *b, int64_t i, int depth, td_variant **out) {
  td_optional *m, *n = NULL;
  td_tensor_list *x, *y;
  TD_TRY(td_optional_of(TD_DATA(a, td_variant *)[i], &m));
  if (m) {
    td_optional *sum = NULL;
    td_status s = td_optional_of(TD_DATA(b, td_variant *)[i], &n);
    if (!s) s = n ? td_optional_add(m, n, depth, &sum) : td_invalid_argument("An optional is added to something else");
    td_variant_release(&m->variant);
    if (n) td_variant_release(&n->variant);
    if (!s) *out = &sum->variant;
    return s;
  }
  TD_TRY(list_at(a, i, &x));
  td_tensor_list *sum = td_tensor_list_copy(x);
  td_tensor_list_release(x);
  td_status s = list_at(b, i, &y);
  if (!s) {
    s = add_list(sum, y, depth);
    td_tensor_list_release(y);
  }
  if (s)
    td_tensor_list_release(sum);
  else
    *out = &sum->variant;
  return s;
}

td_status td_variant_add(td_tensor *a, td_tensor *b, int depth, td_tensor **out) {
  td_map add;
  if (depth > TD_VARIANT_MAX_DEPTH) return too_deep();
  if (!td_tensor_same_shape(a, b) || a->dtype != b->dtype)
    return td_invalid_argument(
        "Trying to add two tensors with incompatible element shapes. One is %s and the other is %s", TD_SHOW(a),
        TD_SHOW(b));
  if (a->dtype != TD_VARIANT &&
      (!td_dtype_in(a->dtype, TD_SET_NUMBER) || !td_map_init_binary(&add, TD_BIN_Add, a->dtype, a->dtype, 0)))
    return td_invalid_argument("Trying to add unsupported dtype %s", td_dtype_name(a->dtype));
  TD_TRY(td_tensor_create_dims(a->dtype, a->rank, a->dims, out));
  td_status s = TD_STATUS_OK;
  if (a->dtype != TD_VARIANT) td_map_binary(&add, a->data, 1, b->data, 1, (*out)->data, a->count);
  for (int64_t i = 0; a->dtype == TD_VARIANT && i < a->count && !s; i++)
    s = add_one(a, b, i, depth, &TD_DATA(*out, td_variant *)[i]);
  if (!s) return s;
  td_tensor_release(*out);
  *out = NULL;
  return s;
}

static td_status add_elements(td_tensor *a, td_tensor *b, int depth, td_tensor **out) {
  if (a && b) return td_variant_add(a, b, depth, out);
  td_tensor *set = a ? a : b;
  *out = set ? td_tensor_retain(set) : NULL;
  return TD_STATUS_OK;
}

/* Adds `b` to the list `sum`, which is the caller's alone. */
static td_status add_list(td_tensor_list *sum, const td_tensor_list *b, int depth) {
  if (depth > TD_VARIANT_MAX_DEPTH) return too_deep();
  if (sum->dtype != b->dtype)
    return td_invalid_argument("Trying to add two lists of tensors of different dtypes. One is %s and the other is %s",
                               td_dtype_name(sum->dtype), td_dtype_name(b->dtype));
  if (!td_partial_shape_fits(&sum->shape, b->shape.rank, b->shape.dims)) {
    char *y = td_partial_shape_text(&sum->shape);
    td_status s = shape_error("Trying to add two lists of tensors with incompatible element shapes. One is ", y,
                              " and the other is ", &b->shape);
    td_free(y);
    return s;
  }
  if (sum->count != b->count)
    return td_invalid_argument(
        "Trying to add two lists of tensors with different lengths. One is %lld and the other is %lld",
        (long long)sum->count, (long long)b->count);
  if (sum->dtype != TD_VARIANT && !td_dtype_in(sum->dtype, TD_SET_NUMBER))
    return td_invalid_argument("Trying to add unsupported dtype %s", td_dtype_name(sum->dtype));
  TD_TRY(td_partial_shape_merge(&sum->shape, b->shape.rank, b->shape.dims));
  for (int64_t i = 0; i < b->count; i++) {
    td_tensor *t = NULL;
    TD_TRY(add_elements(sum->items[i], b->items[i], depth + 1, &t));
    td_tensor_list_set(sum, i, t);
    td_tensor_release(t);
  }
  return TD_STATUS_OK;
}

static td_status add_optionals(td_kernel_ctx *ctx, td_optional *sum) {
  td_status s = TD_STATUS_OK;
  for (int i = 1; i < ctx->kernel->input_count && !s; i++) {
    td_optional *o = NULL, *next = NULL;
    if (!td_in(ctx, i)->rank) s = td_optional_of(TD_DATA(td_in(ctx, i), td_variant *)[0], &o);
    if (!s) s = o ? td_optional_add(sum, o, 0, &next) : td_invalid_argument("An optional is added to something else");
    if (o) td_variant_release(&o->variant);
    if (s) break;
    td_variant_release(&sum->variant);
    sum = next;
  }
  td_tensor *out;
  if (!s) s = td_out_alloc_dims(ctx, 0, 0, NULL, &out);
  if (s)
    td_variant_release(&sum->variant);
  else
    TD_DATA(out, td_variant *)[0] = &sum->variant;
  return s;
}

static td_status compute_add_n(td_kernel_ctx *ctx) {
  td_tensor_list *sum, *l;
  td_optional *first = NULL;
  if (!td_in(ctx, 0)->rank) TD_TRY(td_optional_of(TD_DATA(td_in(ctx, 0), td_variant *)[0], &first));
  if (first) return add_optionals(ctx, first);
  TD_TRY(get_list(ctx, 0, &sum));
  if (ctx->kernel->input_count > 1) sum = own_list(ctx, sum);
  td_status s = TD_STATUS_OK;
  for (int i = 1; i < ctx->kernel->input_count && !s; i++) {
    s = get_list(ctx, i, &l);
    if (s) break;
    s = add_list(sum, l, 0);
    td_tensor_list_release(l);
  }
  return out_list(ctx, sum, s);
}

static td_status zeros_like(const td_tensor_list *l, int depth, td_tensor_list **out) {
  if (depth > TD_VARIANT_MAX_DEPTH) return too_deep();
  if (l->dtype == TD_RESOURCE) return td_unimplemented("ZerosLike of a list of type resource is not supported");
  td_tensor_list *zeros = td_tensor_list_create(l->dtype, &l->shape, -1);
  td_status s = TD_STATUS_OK;
  for (int64_t i = 0; i < l->count && !s; i++) {
    td_tensor *zero = NULL;
    if (l->items[i]) s = td_variant_zeros_like(l->items[i], depth + 1, &zero);
    if (!s) s = td_tensor_list_push(zeros, zero);
    td_tensor_release(zero);
  }
  if (s)
    td_tensor_list_release(zeros);
  else
    *out = zeros;
  return s;
}

/* The zeros of element `i`, one reference. */
static td_status zeros_of_one(const td_tensor *t, int64_t i, int depth, td_variant **out) {
  td_optional *o, *no = NULL;
  td_tensor_list *l, *nl = NULL;
  TD_TRY(td_optional_of(TD_DATA(t, td_variant *)[i], &o));
  if (o) {
    td_status s = td_optional_zeros_like(o, depth, &no);
    td_variant_release(&o->variant);
    if (!s) *out = &no->variant;
    return s;
  }
  TD_TRY(list_at(t, i, &l));
  td_status s = zeros_like(l, depth, &nl);
  td_tensor_list_release(l);
  if (!s) *out = &nl->variant;
  return s;
}

td_status td_variant_zeros_like(const td_tensor *t, int depth, td_tensor **out) {
  if (depth > TD_VARIANT_MAX_DEPTH) return too_deep();
  if (t->dtype == TD_RESOURCE) return td_unimplemented("ZerosLike of a resource is not supported");
  if (t->dtype != TD_VARIANT) return zeros_of(t->dtype, &(td_partial_shape){t->rank, (int64_t *)t->dims}, out);
  TD_TRY(td_tensor_create_dims(TD_VARIANT, t->rank, t->dims, out));
  td_status s = TD_STATUS_OK;
  for (int64_t i = 0; i < t->count && !s; i++) s = zeros_of_one(t, i, depth, &TD_DATA(*out, td_variant *)[i]);
  if (!s) return s;
  td_tensor_release(*out);
  *out = NULL;
  return s;
}

static td_status compute_zeros_like(td_kernel_ctx *ctx) {
  td_tensor *zeros;
  if (td_in(ctx, 0)->rank)
    return td_invalid_argument("ZerosLike non-scalar Tensor with dtype=DT_VARIANT is not supported.");
  TD_TRY(td_variant_zeros_like(td_in(ctx, 0), 0, &zeros));
  td_out_set(ctx, 0, zeros);
  return TD_STATUS_OK;
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
    {.name = "TensorListConcat",
     .inputs = "input_handle: variant",
     .outputs = "tensor: element_dtype; lengths: int64",
     .attrs = "element_dtype: type; element_shape: shape = unknown"},
    {.name = "TensorListConcatLists",
     .inputs = "input_a: variant; input_b: variant",
     .outputs = "output: variant",
     .attrs = "element_dtype: type"},
    {.name = "TensorListConcatV2",
     .inputs = "input_handle: variant; element_shape: shape_type; leading_dims: int64",
     .outputs = "tensor: element_dtype; lengths: int64",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListElementShape",
     .inputs = "input_handle: variant",
     .outputs = "element_shape: shape_type",
     .attrs = "shape_type: type in {int32, int64}"},
    {.name = "TensorListFromTensor",
     .inputs = "tensor: element_dtype; element_shape: shape_type",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListGather",
     .inputs = "input_handle: variant; indices: int32; element_shape: int32",
     .outputs = "values: element_dtype",
     .attrs = "element_dtype: type"},
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
    {.name = "TensorListReserve",
     .inputs = "element_shape: shape_type; num_elements: int32",
     .outputs = "handle: variant",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListResize", .inputs = "input_handle: variant; size: int32", .outputs = "output_handle: variant"},
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
    {.name = "TensorListSetItem",
     .inputs = "input_handle: variant; index: int32; item: element_dtype",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type; resize_if_index_out_of_bounds: bool = false"},
    {.name = "TensorListSplit",
     .inputs = "tensor: element_dtype; element_shape: shape_type; lengths: int64",
     .outputs = "output_handle: variant",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListStack",
     .inputs = "input_handle: variant; element_shape: int32",
     .outputs = "tensor: element_dtype",
     .attrs = "element_dtype: type; num_elements: int = -1"},
};

#define TYPED(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(td_dtype), .create = create_typed, .compute = fn }
#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }
#define CONCAT(name)                                                                                \
  {                                                                                                 \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(concat_state), .create = create_concat, \
    .destroy = destroy_concat, .compute = compute_concat                                            \
  }

static const td_kernel_def kernels[] = {
    TYPED("EmptyTensorList", compute_empty),
    TYPED("TensorListReserve", compute_reserve),
    TYPED("TensorListConcatLists", compute_concat_lists),
    PLAIN("TensorListFromTensor", compute_from_tensor),
    PLAIN("TensorListScatter", compute_scatter),
    PLAIN("TensorListScatterV2", compute_scatter),
    PLAIN("TensorListScatterIntoExistingList", compute_scatter_existing),
    PLAIN("TensorListSplit", compute_split),
    PLAIN("TensorListPushBack", compute_push),
    PLAIN("TensorListPushBackBatch", compute_push_batch),
    PLAIN("TensorListPopBack", compute_pop),
    {.op = "TensorListSetItem",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(set_state),
     .create = create_set,
     .compute = compute_set},
    PLAIN("TensorListResize", compute_resize),
    PLAIN("TensorListLength", compute_length),
    PLAIN("TensorListElementShape", compute_element_shape),
    PLAIN("TensorListGetItem", compute_get),
    {.op = "TensorListStack",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(stack_state),
     .create = create_stack,
     .compute = compute_stack},
    PLAIN("TensorListGather", compute_gather),
    CONCAT("TensorListConcat"),
    CONCAT("TensorListConcatV2"),
    {.op = "AddN", .types = {{"T", TD_SET(TD_VARIANT)}}, .cost = TD_COST_CHEAP, .compute = compute_add_n},
    {.op = "ZerosLike",
     .types = {{"T", TD_SET(TD_VARIANT)}},
     .priority = 1,
     .cost = TD_COST_CHEAP,
     .compute = compute_zeros_like},
};

TD_FAMILY(tensor_list, ops, kernels);

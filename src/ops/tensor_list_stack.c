/* Tensors made from a list's elements (TensorFlow's list_ops): Stack, Gather, Concat. */
#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/tensor_list_io.h"

/* ---- Stack, Gather ---- */

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
  if (!n && !td_partial_shape_is_full(shape)) return td_list_shape_error(empty, "", "", shape);
  for (int64_t k = 0; k < n; k++) {
    int64_t i = indices ? TD_DATA(indices, int32_t)[k] : k;
    if (i < 0 || i >= l->count)
      return td_invalid_argument("Index %lld out o range; list only has %lld elements.", (long long)i,
                                 (long long)l->count);
    if (l->items[i]) TD_TRY(td_partial_shape_merge(shape, l->items[i]->rank, l->items[i]->dims));
  }
  if (!td_partial_shape_is_full(shape)) return td_list_shape_error(unset, "", "", shape);
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
  TD_TRY(td_in_typed_list(ctx, td_out_type(ctx, 0), &l));
  td_status s = TD_STATUS_OK;
  if (st->count != -1 && st->count != l->count)
    s = td_invalid_argument("Operation expected a list with %lld elements but got a list with %lld elements.",
                            (long long)st->count, (long long)l->count);
  if (!s) s = td_list_merged_shape(ctx, 1, l, &shape);
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
  TD_TRY(td_in_typed_list(ctx, td_out_type(ctx, 0), &l));
  td_status s = td_list_merged_shape(ctx, 2, l, &shape);
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
    return td_list_shape_error(
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
  return td_list_shape_error(
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
  TD_TRY(td_in_typed_list(ctx, td_out_type(ctx, 0), &l));
  td_status s = ctx->kernel->input_count > 1 ? td_list_merged_shape(ctx, 1, l, &given) : TD_STATUS_OK;
  if (!s) s = concat_shape(l, ctx->kernel->input_count > 1 ? &given : &st->shape, &rest, &first);
  if (!s) s = concat(ctx, l, &rest, first);
  td_partial_shape_deinit(&given);
  td_partial_shape_deinit(&rest);
  td_tensor_list_release(l);
  return s;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {.name = "TensorListConcat",
     .inputs = "input_handle: variant",
     .outputs = "tensor: element_dtype; lengths: int64",
     .attrs = "element_dtype: type; element_shape: shape = unknown"},
    {.name = "TensorListConcatV2",
     .inputs = "input_handle: variant; element_shape: shape_type; leading_dims: int64",
     .outputs = "tensor: element_dtype; lengths: int64",
     .attrs = "element_dtype: type; shape_type: type in {int32, int64}"},
    {.name = "TensorListGather",
     .inputs = "input_handle: variant; indices: int32; element_shape: int32",
     .outputs = "values: element_dtype",
     .attrs = "element_dtype: type"},
    {.name = "TensorListStack",
     .inputs = "input_handle: variant; element_shape: int32",
     .outputs = "tensor: element_dtype",
     .attrs = "element_dtype: type; num_elements: int = -1"},
};

#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }
#define CONCAT(name)                                                                                \
  {                                                                                                 \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(concat_state), .create = create_concat, \
    .destroy = destroy_concat, .compute = compute_concat                                            \
  }

static const td_kernel_def kernels[] = {
    CONCAT("TensorListConcat"),
    CONCAT("TensorListConcatV2"),
    PLAIN("TensorListGather", compute_gather),
    {.op = "TensorListStack",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(stack_state),
     .create = create_stack,
     .compute = compute_stack},
};

TD_FAMILY(tensor_list_stack, ops, kernels);

#include "ops/tensor_list_io.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "ops/move.h"

td_status td_list_at(const td_tensor *t, int64_t i, td_tensor_list **out) {
  TD_TRY(td_tensor_list_of(TD_DATA(t, td_variant *)[i], out));
  if (*out) return TD_STATUS_OK;
  td_variant *v = TD_DATA(t, td_variant *)[i];
  return td_invalid_argument("Input handle is not a list. Saw: '%s'", v ? v->ops->type_name : "");
}

td_status td_in_list(td_kernel_ctx *ctx, int i, td_tensor_list **out) {
  td_tensor *t = td_in(ctx, i);
  if (t->rank) return td_invalid_argument("Input list must be a scalar saw: %s", TD_SHOW(t));
  return td_list_at(t, 0, out);
}

td_status td_list_check_dtype(const td_tensor_list *l, td_dtype t) {
  if (l->dtype == t) return TD_STATUS_OK;
  return td_invalid_argument("Invalid data types; op elements %s but list elements %s", td_dtype_name(t),
                             td_dtype_name(l->dtype));
}

td_status td_in_typed_list(td_kernel_ctx *ctx, td_dtype t, td_tensor_list **out) {
  TD_TRY(td_in_list(ctx, 0, out));
  td_status s = td_list_check_dtype(*out, t);
  if (s) td_tensor_list_release(*out);
  return s;
}

td_tensor_list *td_list_own(td_kernel_ctx *ctx, td_tensor_list *l) {
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

td_status td_out_list(td_kernel_ctx *ctx, td_tensor_list *l, td_status s) {
  td_tensor *out;
  if (!s) s = td_out_alloc_dims(ctx, 0, 0, NULL, &out);
  if (s)
    td_tensor_list_release(l);
  else
    TD_DATA(out, td_variant *)[0] = &l->variant;
  return s;
}

td_status td_in_int32(td_kernel_ctx *ctx, int i, const char *what, int32_t *out) {
  TD_TRY(td_check_scalar(td_in(ctx, i), what));
  *out = *TD_DATA(td_in(ctx, i), int32_t);
  return TD_STATUS_OK;
}

td_status td_list_shape_from(const td_tensor *t, td_partial_shape *out) {
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

td_status td_list_merged_shape(td_kernel_ctx *ctx, int i, const td_tensor_list *l, td_partial_shape *out) {
  TD_TRY(td_list_shape_from(td_in(ctx, i), out));
  td_status s = td_partial_shape_merge(out, l->shape.rank, l->shape.dims);
  if (s) td_partial_shape_deinit(out);
  return s;
}

td_status td_list_shape_error(const char *before, const char *shape, const char *between, const td_partial_shape *p) {
  char *text = td_partial_shape_text(p);
  td_status s = td_invalid_argument("%s%s%s%s", before, shape, between, text);
  td_free(text);
  return s;
}

td_status td_list_zeros(td_dtype dtype, const td_partial_shape *p, td_tensor **out) {
  td_shape shape;
  td_shape_set(&shape, p->rank, p->dims);
  return td_tensor_create_zeros(dtype, &shape, out);
}

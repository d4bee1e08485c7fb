#include "ops/variant_math.h"

#include "base/mem.h"
#include "ops/data/optional.h"
#include "ops/families.h"
#include "ops/loops/loops.h"
#include "ops/move.h"
#include "ops/tensor_list_io.h"

/* ---- sums ---- */

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
  TD_TRY(td_list_at(a, i, &x));
  td_tensor_list *sum = td_tensor_list_copy(x);
  td_tensor_list_release(x);
  td_status s = td_list_at(b, i, &y);
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
    td_status s = td_list_shape_error("Trying to add two lists of tensors with incompatible element shapes. One is ", y,
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
  TD_TRY(td_in_list(ctx, 0, &sum));
  if (ctx->kernel->input_count > 1) sum = td_list_own(ctx, sum);
  td_status s = TD_STATUS_OK;
  for (int i = 1; i < ctx->kernel->input_count && !s; i++) {
    s = td_in_list(ctx, i, &l);
    if (s) break;
    s = add_list(sum, l, 0);
    td_tensor_list_release(l);
  }
  return td_out_list(ctx, sum, s);
}

/* ---- zeros ---- */

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
  TD_TRY(td_list_at(t, i, &l));
  td_status s = zeros_like(l, depth, &nl);
  td_tensor_list_release(l);
  if (!s) *out = &nl->variant;
  return s;
}

td_status td_variant_zeros_like(const td_tensor *t, int depth, td_tensor **out) {
  if (depth > TD_VARIANT_MAX_DEPTH) return too_deep();
  if (t->dtype == TD_RESOURCE) return td_unimplemented("ZerosLike of a resource is not supported");
  if (t->dtype != TD_VARIANT) return td_list_zeros(t->dtype, &(td_partial_shape){t->rank, (int64_t *)t->dims}, out);
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

/* ---- kernels: the ops are those of the other types ---- */

static const td_kernel_def kernels[] = {
    {.op = "AddN", .types = {{"T", TD_SET(TD_VARIANT)}}, .cost = TD_COST_CHEAP, .compute = compute_add_n},
    {.op = "ZerosLike",
     .types = {{"T", TD_SET(TD_VARIANT)}},
     .priority = 1,
     .cost = TD_COST_CHEAP,
     .compute = compute_zeros_like},
};

const td_op_family td_family_variant_math = {
    .name = "variant_math", .kernels = kernels, .kernel_count = TD_COUNT(kernels)};

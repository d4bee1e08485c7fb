/* Shapes as values, and ops that only change a tensor's shape or make a fresh one. Array ops of TensorFlow's
 * core/ops/array_ops.cc. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/rows.h"

/* ---- Shape, ShapeN, Rank, Size ---- */

static td_status shape_out(td_kernel_ctx *ctx, int i, const td_tensor *t, const char *what) {
  td_tensor *out;
  int64_t rank = t->rank;
  TD_TRY(td_out_alloc_dims(ctx, i, 1, &rank, &out));
  for (int d = 0; d < t->rank; d++) {
    if (out->dtype == TD_INT64) {
      TD_DATA(out, int64_t)[d] = t->dims[d];
    } else if (t->dims[d] > INT32_MAX) {
      return td_invalid_argument("%s is 32-bit  but dim %d is %lld", what, d, (long long)t->dims[d]);
    } else {
      TD_DATA(out, int32_t)[d] = (int32_t)t->dims[d];
    }
  }
  return TD_STATUS_OK;
}

static td_status shape_compute(td_kernel_ctx *ctx) { return shape_out(ctx, 0, td_in(ctx, 0), "Shape output type"); }

static td_status shape_n_compute(td_kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->input_count; i++) TD_TRY(shape_out(ctx, i, td_in(ctx, i), "ShapeN output type"));
  return TD_STATUS_OK;
}

static td_status rank_compute(td_kernel_ctx *ctx) {
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  *TD_DATA(out, int32_t) = td_in(ctx, 0)->rank;
  return TD_STATUS_OK;
}

static td_status size_compute(td_kernel_ctx *ctx) {
  td_tensor *out;
  int64_t n = td_in(ctx, 0)->count;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  if (out->dtype == TD_INT64) {
    *TD_DATA(out, int64_t) = n;
  } else if (n > INT32_MAX) {
    return td_invalid_argument("Number of elements was larger than representable by 32-bit output type");
  } else {
    *TD_DATA(out, int32_t) = (int32_t)n;
  }
  return TD_STATUS_OK;
}

/* ---- Reshape ---- */

/* The size that -1 stands for. With a zero among the sizes, zeros on both sides are left out of the reckoning. */
static td_status infer_missing(const td_tensor *t, td_shape *shape, int unknown, int64_t product, bool has_zero) {
  int64_t have = t->count;
  bool overflow = false;
  if (has_zero) {
    have = 1;
    for (int i = 0; i < t->rank; i++)
      if (t->dims[i]) overflow |= __builtin_mul_overflow(have, t->dims[i], &have);
  }
  if (overflow || (have % product && !(has_zero && !t->count))) {
    return td_invalid_argument(
        "Input to reshape is a tensor with %lld values, but the requested shape requires a multiple of %lld",
        (long long)have, (long long)product);
  }
  shape->dims[unknown] = have / product;
  return TD_STATUS_OK;
}

static td_status reshape_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *sizes = td_in(ctx, 1);
  if (sizes->rank != 1) return td_invalid_argument("sizes input must be 1-D, not %s", TD_SHOW(sizes));
  if (sizes->count > TD_MAX_RANK) return td_invalid_argument("Too many dimensions: %lld", (long long)sizes->count);
  td_shape shape;
  shape.rank = (int)sizes->count;
  int64_t product = 1, unknown = -1;
  bool has_zero = false, overflow = false;
  for (int d = 0; d < shape.rank; d++) {
    int64_t size = td_tensor_int_at(sizes, d);
    if (size == -1) {
      if (unknown >= 0)
        return td_invalid_argument("Only one input size may be -1, not both %d and %d", (int)unknown, d);
      unknown = d;
    } else if (size < 0) {
      return td_invalid_argument("Size %d must be non-negative, not %lld", d, (long long)size);
    } else if (!size) {
      has_zero = true; /* left out of the product, so that the other sizes can still be inferred */
    } else {
      overflow |= __builtin_mul_overflow(product, size, &product);
    }
    shape.dims[d] = size;
  }
  if (overflow) {
    return td_invalid_argument("Shape %s would have more than 2**63 - 1 elements",
                               td_show_dims(&(td_show_buf){.text = ""}, shape.rank, shape.dims));
  }
  if (unknown >= 0) TD_TRY(infer_missing(t, &shape, (int)unknown, product, has_zero));
  int64_t count;
  TD_TRY(td_shape_count(&shape, &count));
  if (count != t->count) {
    return td_invalid_argument("Input to reshape is a tensor with %lld values, but the requested shape has %lld",
                               (long long)t->count, (long long)count);
  }
  td_out_reshaped(ctx, 0, 0, shape.rank, shape.dims);
  return TD_STATUS_OK;
}

/* ---- ExpandDims, Squeeze, EnsureShape ---- */

static td_status expand_dims_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *dim = td_in(ctx, 1);
  if (dim->count != 1) return td_invalid_argument("'dim' must be a tensor with a single value");
  int64_t at = td_tensor_int_at(dim, 0);
  if (at < -1 - t->rank || at > t->rank) {
    return td_invalid_argument("Tried to expand dim index %lld for tensor with %d dimensions.", (long long)at, t->rank);
  }
  if (t->rank >= TD_MAX_RANK) return td_invalid_argument("Too many dimensions: %d", t->rank + 1);
  if (at < 0) at += t->rank + 1;
  int64_t dims[TD_MAX_RANK];
  for (int i = 0; i <= t->rank; i++) dims[i] = i < at ? t->dims[i] : i == at ? 1 : t->dims[i - 1];
  td_out_reshaped(ctx, 0, 0, t->rank + 1, dims);
  return TD_STATUS_OK;
}

typedef struct squeeze {
  size_t count;
  int64_t *dims;
} squeeze;

static td_status squeeze_create(td_kernel_builder *b, void *state) {
  squeeze *s = state;
  const Pb__AttrValue__ListValue *list;
  TD_TRY(td_attr_list(b->node, "squeeze_dims", &list));
  s->count = list->n_i;
  s->dims = td_new_array(int64_t, s->count + 1);
  for (size_t i = 0; i < s->count; i++) s->dims[i] = list->i[i];
  return TD_STATUS_OK;
}
static void squeeze_destroy(void *state) { td_free(((squeeze *)state)->dims); }

static td_status squeeze_compute(td_kernel_ctx *ctx) {
  const squeeze *s = ctx->state;
  const td_tensor *t = td_in(ctx, 0);
  bool chosen[TD_MAX_RANK + 1] = {false};
  for (size_t i = 0; i < s->count; i++) {
    int64_t d = s->dims[i];
    if (d < -t->rank || d >= t->rank) {
      return td_invalid_argument("Tried to squeeze dim index %lld for tensor with %d dimensions.", (long long)d,
                                 t->rank);
    }
    chosen[d < 0 ? d + t->rank : d] = true;
  }
  int64_t dims[TD_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < t->rank; i++) {
    if (chosen[i] && t->dims[i] != 1) {
      return td_invalid_argument("Can not squeeze dim[%d], expected a dimension of 1, got %lld", i,
                                 (long long)t->dims[i]);
    }
    if (s->count ? !chosen[i] : t->dims[i] != 1) dims[rank++] = t->dims[i];
  }
  td_out_reshaped(ctx, 0, 0, rank, dims);
  return TD_STATUS_OK;
}

typedef struct fixed_shape {
  bool unknown_rank;
  int rank;
  int64_t *dims; /* -1: unknown */
} fixed_shape;

static td_status shape_attr(td_kernel_builder *b, fixed_shape *s) {
  const Pb__TensorShapeProto *p;
  TD_TRY(td_attr_shape(b->node, "shape", &p));
  if (p->n_dim > TD_MAX_RANK) return td_invalid_argument("Shape attribute has %zu dimensions", p->n_dim);
  s->unknown_rank = p->unknown_rank;
  s->rank = p->unknown_rank ? 0 : (int)p->n_dim;
  s->dims = td_new_array(int64_t, (size_t)s->rank + 1);
  for (int i = 0; i < s->rank; i++) s->dims[i] = p->dim[i]->size;
  return TD_STATUS_OK;
}
static td_status fixed_shape_create(td_kernel_builder *b, void *state) { return shape_attr(b, state); }
static void fixed_shape_destroy(void *state) { td_free(((fixed_shape *)state)->dims); }

static td_status ensure_shape_compute(td_kernel_ctx *ctx) {
  const fixed_shape *s = ctx->state;
  const td_tensor *t = td_in(ctx, 0);
  bool fits = s->unknown_rank || s->rank == t->rank;
  for (int i = 0; fits && i < s->rank; i++) fits = s->dims[i] < 0 || s->dims[i] == t->dims[i];
  if (!fits) {
    return td_invalid_argument("Shape of tensor %.*s %s is not compatible with expected shape %s.",
                               TD_STR_ARG(ctx->kernel->name), TD_SHOW(t),
                               td_show_dims(&(td_show_buf){.text = ""}, s->rank, s->dims));
  }
  td_out_forward(ctx, 0, 0);
  return TD_STATUS_OK;
}

/* ---- Fill, ZerosLike, OnesLike, Empty, DeepCopy ---- */

static const double FILL_BYTE_NS = 0.04;

typedef struct fill_job {
  td_tensor *out;
  const td_tensor *value;
} fill_job;

static void fill_part(void *arg, int64_t begin, int64_t end) {
  const fill_job *j = arg;
  td_fill_elements(j->out, begin, end - begin, j->value, 0);
}

/* The inputs are tiny, whatever the size of the output. */
static double fill_work_ns(const td_kernel *k, const td_value *in) {
  const td_tensor *dims = in[0].tensor;
  double bytes = (double)td_dtype_size((td_dtype)in[1].tensor->dtype);
  for (int64_t i = 0; i < dims->count; i++) bytes *= (double)td_tensor_int_at(dims, i);
  return bytes * FILL_BYTE_NS;
}

static td_status fill_compute(td_kernel_ctx *ctx) {
  const td_tensor *dims = td_in(ctx, 0), *value = td_in(ctx, 1);
  if (dims->rank != 1) return td_invalid_argument("dims must be a vector, got shape %s", TD_SHOW(dims));
  if (!td_is_legacy_scalar(value)) return td_invalid_argument("value must be a scalar, got shape %s", TD_SHOW(value));
  td_shape shape;
  TD_TRY(td_shape_from_tensor(dims, false, &shape));
  td_tensor *out;
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  fill_job job = {out, value};
  td_ctx_parallel_for(ctx, out->count, FILL_BYTE_NS * (double)td_dtype_size((td_dtype)out->dtype), fill_part, &job);
  return TD_STATUS_OK;
}

static td_status zeros_like_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  if (t->dtype == TD_VARIANT || t->dtype == TD_RESOURCE) {
    if (t->dtype == TD_VARIANT && t->rank) {
      return td_invalid_argument("ZerosLike non-scalar Tensor with dtype=DT_VARIANT is not supported.");
    }
    return td_unimplemented("ZerosLike of type %s is not supported", td_dtype_name(t->dtype));
  }
  td_tensor *out;
  if (td_dtype_is_pod((td_dtype)t->dtype)) {
    TD_TRY(td_out_reuse_like(ctx, 0, 0, &out));
    td_zero_elements(out, 0, out->count);
  } else {
    TD_TRY(td_out_alloc_like(ctx, 0, t, &out));
  }
  return TD_STATUS_OK;
}

/* The number 1 of a type, as bits. False if it has none. */
static bool one_of(td_dtype type, unsigned char *bits) {
  union {
    float f;
    double d;
    uint16_t h;
    uint64_t i;
  } u = {.i = 0};
  switch (type) {
    case TD_FLOAT:
    case TD_COMPLEX64:
      u.f = 1;
      break;
    case TD_DOUBLE:
    case TD_COMPLEX128:
      u.d = 1;
      break;
    case TD_HALF:
      u.h = 0x3c00;
      break;
    case TD_BFLOAT16:
      u.h = 0x3f80;
      break;
    default:
      if (!td_dtype_in(type, TD_SET_INTEGER | TD_SET(TD_BOOL))) return false;
      u.i = 1; /* little-endian: the low bytes */
  }
  memset(bits, 0, 16);
  memcpy(bits, &u, sizeof u);
  return true;
}

static td_status ones_like_compute(td_kernel_ctx *ctx) {
  td_tensor *out;
  _Alignas(16) unsigned char one[16];
  if (!one_of((td_dtype)td_in(ctx, 0)->dtype, one)) {
    return td_unimplemented("OnesLike of type %s is not supported", td_dtype_name(td_in(ctx, 0)->dtype));
  }
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &out));
  const td_tensor value = {.dtype = out->dtype, .count = 1, .data = one};
  td_fill_elements(out, 0, out->count, &value, 0);
  return TD_STATUS_OK;
}

typedef struct empty {
  bool init;
} empty;
static td_status empty_create(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "init", &((empty *)state)->init);
}
static td_status empty_compute(td_kernel_ctx *ctx) {
  const td_tensor *dims = td_in(ctx, 0);
  if (dims->rank != 1) return td_invalid_argument("shape must be a vector of int32, got shape %s", TD_SHOW(dims));
  td_shape shape;
  TD_TRY(td_shape_from_tensor(dims, false, &shape));
  td_tensor *out;
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  td_zero_elements(out, 0, out->count); /* whatever `init` says: no peeking at freed memory */
  return TD_STATUS_OK;
}

static td_status forward_compute(td_kernel_ctx *ctx) {
  td_out_forward(ctx, 0, 0);
  return TD_STATUS_OK;
}

static td_status deep_copy_compute(td_kernel_ctx *ctx) {
  td_tensor *copy;
  TD_TRY(td_tensor_copy(td_in(ctx, 0), &copy));
  td_out_set(ctx, 0, copy);
  return TD_STATUS_OK;
}

/* ---- InplaceUpdate, InplaceAdd, InplaceSub ---- */

typedef struct inplace {
  td_rows_fn *combine; /* NULL: replace */
} inplace;

static td_status inplace_create(td_kernel_builder *b, void *state) {
  inplace *s = state;
  td_dtype type = td_dtype_base(b->input_types[0]);
  if (td_str_is(b->node->op, "InplaceUpdate")) return TD_STATUS_OK;
  s->combine = td_rows(td_str_is(b->node->op, "InplaceAdd") ? TD_ROWS_ADD : TD_ROWS_SUB, type);
  if (!s->combine) return td_invalid_argument("Unsupported data type: %s", td_dtype_name(type));
  return TD_STATUS_OK;
}

static td_status inplace_check(const td_tensor *x, const td_tensor *i, const td_tensor *v) {
  if (i->rank != 1) return td_invalid_argument("i must be a vector. %s", TD_SHOW(i));
  if (x->rank != v->rank || !x->rank) {
    return td_invalid_argument("x and v shape doesn't match (ranks differ): %s vs. %s", TD_SHOW(x), TD_SHOW(v));
  }
  for (int d = 1; d < x->rank; d++) {
    if (x->dims[d] != v->dims[d]) {
      return td_invalid_argument("x and v shape doesn't match at index %d : %s vs. %s", d, TD_SHOW(x), TD_SHOW(v));
    }
  }
  if (i->dims[0] != v->dims[0]) {
    return td_invalid_argument("i and x shape doesn't match at index 0: %s vs. %s", TD_SHOW(i), TD_SHOW(v));
  }
  return TD_STATUS_OK;
}

static td_status inplace_compute(td_kernel_ctx *ctx) {
  const inplace *s = ctx->state;
  const td_tensor *x = td_in(ctx, 0), *i = td_in(ctx, 1), *v = td_in(ctx, 2);
  TD_TRY(inplace_check(x, i, v));
  td_tensor *y;
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &y));
  if (y->data != x->data) td_move_flat(ctx, x, 0, y, 0, x->count);
  if (!x->count || !v->count) return TD_STATUS_OK;
  int64_t rows = x->dims[0], row = x->count / rows;
  for (int64_t k = 0; k < i->count; k++) {
    int64_t r = td_tensor_int_at(i, k) % rows; /* TensorFlow wraps the index */
    if (r < 0) r += rows;
    if (!s->combine) {
      td_tensor_copy_elements(y, r * row, v, k * row, row);
    } else {
      size_t size = td_dtype_size((td_dtype)y->dtype);
      s->combine((char *)y->data + (size_t)(r * row) * size, (const char *)v->data + (size_t)(k * row) * size, row,
                 false);
    }
  }
  return TD_STATUS_OK;
}

/* ---- ParallelConcat ---- */

static td_status parallel_start_compute(td_kernel_ctx *ctx) {
  const fixed_shape *s = ctx->state;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, s->rank, s->dims, &out));
  td_zero_elements(out, 0, out->count);
  return TD_STATUS_OK;
}

static td_status parallel_start_create(td_kernel_builder *b, void *state) {
  fixed_shape *s = state;
  TD_TRY(shape_attr(b, s));
  bool known = !s->unknown_rank;
  for (int i = 0; i < s->rank; i++) known &= s->dims[i] >= 0;
  if (!known) return td_invalid_argument("All shapes must be fully defined");
  return TD_STATUS_OK;
}

typedef struct parallel_update {
  int64_t loc;
} parallel_update;
static td_status parallel_update_create(td_kernel_builder *b, void *state) {
  return td_attr_int(b->node, "loc", &((parallel_update *)state)->loc);
}
/* Writes its row into the shared buffer: the updates of one concat touch different rows, and whoever reads the
 * buffer waits for all of them. */
static td_status parallel_update_compute(td_kernel_ctx *ctx) {
  int64_t loc = ((const parallel_update *)ctx->state)->loc;
  td_tensor *value = td_in(ctx, 0);
  const td_tensor *update = td_in(ctx, 1);
  if (!value->rank) return td_invalid_argument("value should be at least rank 1.");
  if (loc < 0 || value->dims[0] <= loc) {
    return td_invalid_argument("0th dimension of value = %lld is less than loc_=%lld", (long long)value->dims[0],
                               (long long)loc);
  }
  if (value->rank != update->rank) {
    return td_invalid_argument("value and update shape doesn't match: %s vs. %s", TD_SHOW(value), TD_SHOW(update));
  }
  for (int i = 1; i < value->rank; i++) {
    if (value->dims[i] != update->dims[i]) {
      return td_invalid_argument("value and update shape doesn't match %s vs. %s", TD_SHOW(value), TD_SHOW(update));
    }
  }
  if (update->dims[0] != 1) return td_invalid_argument("update shape doesn't match: %s", TD_SHOW(update));
  td_tensor_copy_elements(value, loc * update->count, update, 0, update->count);
  td_out_forward(ctx, 0, 0);
  return TD_STATUS_OK;
}

static td_status parallel_concat_compute(td_kernel_ctx *ctx) {
  const fixed_shape *s = ctx->state;
  const td_tensor *first = td_in(ctx, 0);
  int n = ctx->kernel->input_count;
  for (int i = 0; i < n; i++) {
    const td_tensor *t = td_in(ctx, i);
    if (!t->rank || t->dims[0] != 1 || !td_tensor_same_shape(t, first)) {
      return td_invalid_argument("Size of first dimension must be 1 and all shapes must match, but shape[%d] = %s", i,
                                 TD_SHOW(t));
    }
  }
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < first->rank; d++) dims[d] = d ? first->dims[d] : n;
  bool fits = s->unknown_rank || s->rank == first->rank;
  for (int d = 0; fits && d < s->rank; d++) fits = s->dims[d] < 0 || s->dims[d] == dims[d];
  if (!fits) {
    return td_invalid_argument("Shape attribute %s does not match the inputs, which give %s",
                               td_show_dims(&(td_show_buf){.text = ""}, s->rank, s->dims),
                               td_show_dims(&(td_show_buf){.text = ""}, first->rank, dims));
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, first->rank, dims, &out));
  for (int i = 0; i < n; i++) td_move_flat(ctx, td_in(ctx, i), 0, out, i * first->count, first->count);
  return TD_STATUS_OK;
}

/* ---- InvertPermutation, ConcatOffset ---- */

static td_status invert_permutation_compute(td_kernel_ctx *ctx) {
  const td_tensor *x = td_in(ctx, 0);
  if (x->rank != 1) return td_invalid_argument("invert_permutation expects a 1D vector.");
  if (x->count > INT32_MAX) {
    return td_invalid_argument("permutation of nonnegative int32s must have <= int32 max elements");
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, x, &out));
  memset(out->data, 0xff, out->size);
  for (int64_t i = 0; i < x->count; i++) {
    int64_t d = td_tensor_int_at(x, i);
    if (d < 0 || d >= x->count) {
      return td_invalid_argument("%lld is not between 0 and %lld", (long long)d, (long long)x->count);
    }
    if (td_tensor_int_at(out, d) != -1) return td_invalid_argument("%lld is duplicated in the input.", (long long)d);
    if (out->dtype == TD_INT64) {
      TD_DATA(out, int64_t)[d] = i;
    } else {
      TD_DATA(out, int32_t)[d] = (int32_t)i;
    }
  }
  return TD_STATUS_OK;
}

static td_status concat_offset_compute(td_kernel_ctx *ctx) {
  const td_tensor *axis_in = td_in(ctx, 0), *first = td_in(ctx, 1);
  int n = ctx->kernel->input_count - 1;
  if (axis_in->rank) {
    return td_invalid_argument("Concat dim tensor should be a scalar integer, but got shape %s", TD_SHOW(axis_in));
  }
  for (int i = 0; i < n; i++) {
    const td_tensor *t = td_in(ctx, i + 1);
    if (t->rank != 1) return td_invalid_argument("input %d should be a vector, but got shape %s", i + 1, TD_SHOW(t));
  }
  int64_t given = td_tensor_int_at(axis_in, 0), dims = first->count, offset = 0;
  int64_t axis = given < 0 ? given + dims : given;
  if (axis < 0 || axis >= dims) {
    return td_invalid_argument("Concat dim is out of range: %lld vs. %lld", (long long)axis, (long long)dims);
  }
  for (int i = 0; i < n; i++) {
    const td_tensor *t = td_in(ctx, i + 1);
    if (t->count != dims) {
      return td_invalid_argument("input %d should contain %lld elements, but got %lld", i, (long long)dims,
                                 (long long)t->count);
    }
    td_tensor *out;
    TD_TRY(td_out_alloc_like(ctx, i, t, &out));
    memset(out->data, 0, out->size);
    for (int64_t j = 0; j < dims; j++) {
      if (j == axis || td_tensor_int_at(t, j) == td_tensor_int_at(first, j)) continue;
      char *a = td_tensor_summarize(t, 10), *b = td_tensor_summarize(first, 10);
      td_status s = td_invalid_argument(
          "All dimensions except %lld must match. Input %d has shape [%s] and doesn't match input 0 with shape [%s].",
          (long long)axis, i, a, b);
      td_free(a);
      td_free(b);
      return s;
    }
    if (out->dtype == TD_INT64) {
      TD_DATA(out, int64_t)[axis] = offset;
    } else {
      TD_DATA(out, int32_t)[axis] = (int32_t)offset;
    }
    offset = (int64_t)((uint64_t)offset + (uint64_t)td_tensor_int_at(t, axis));
  }
  return TD_STATUS_OK;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {"ConcatOffset", "concat_dim: int32; shape: N * shape_type", "offset: N * shape_type",
     "N: int >= 2; shape_type: type in {int32, int64} = int32", 0},
    {"DeepCopy", "x: T", "y: T", "T: type", TD_OP_STATEFUL},
    {"Empty", "shape: int32", "output: dtype", "dtype: type; init: bool = false", TD_OP_STATEFUL},
    {"EnsureShape", "input: T", "output: T", "shape: shape; T: type", 0},
    {"ExpandDims", "input: T; dim: Tdim", "output: T", "T: type; Tdim: type in {int32, int64} = int32", 0},
    {"Fill", "dims: index_type; value: T", "output: T", "T: type; index_type: type in {int32, int64} = int32", 0},
    {"GuaranteeConst", "input: T", "output: T", "T: type", TD_OP_STATEFUL},
    {"InplaceAdd", "x: T; i: int32; v: T", "y: T", "T: type", 0},
    {"InplaceSub", "x: T; i: int32; v: T", "y: T", "T: type", 0},
    {"InplaceUpdate", "x: T; i: int32; v: T", "y: T", "T: type", 0},
    {"InvertPermutation", "x: T", "y: T", "T: type in {int32, int64} = int32", 0},
    {"OnesLike", "x: T", "y: T",
     "T: type in {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, complex64, "
     "complex128, bool}",
     0},
    {"ParallelConcat", "values: N * T", "output: T", "N: int >= 1; T: type; shape: shape", 0},
    {"Rank", "input: T", "output: int32", "T: type", 0},
    {"Reshape", "tensor: T; shape: Tshape", "output: T", "T: type; Tshape: type in {int32, int64} = int32", 0},
    {"Shape", "input: T", "output: out_type", "T: type; out_type: type in {int32, int64} = int32", 0},
    {"ShapeN", "input: N * T", "output: N * out_type", "N: int >= 1; T: type; out_type: type in {int32, int64} = int32",
     0},
    {"Size", "input: T", "output: out_type", "T: type; out_type: type in {int32, int64} = int32", 0},
    {"Squeeze", "input: T", "output: T", "T: type; squeeze_dims: list(int) >= 0 = []", 0},
    {"ZerosLike", "x: T", "y: T", "T: type", 0},
    {"_ParallelConcatStart", NULL, "output: dtype", "shape: shape; dtype: type", TD_OP_STATEFUL},
    {"_ParallelConcatUpdate", "value: T; update: T", "output: T", "T: type; loc: int", 0},
};

#define INPLACE(name) \
  { .op = name, .state_size = sizeof(inplace), .create = inplace_create, .compute = inplace_compute }
static const td_kernel_def kernels[] = {
    {.op = "ConcatOffset", .cost = TD_COST_CHEAP, .compute = concat_offset_compute},
    {.op = "DeepCopy", .compute = deep_copy_compute},
    {.op = "Empty", .state_size = sizeof(empty), .create = empty_create, .compute = empty_compute},
    {.op = "EnsureShape",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(fixed_shape),
     .create = fixed_shape_create,
     .destroy = fixed_shape_destroy,
     .compute = ensure_shape_compute},
    {.op = "ExpandDims", .cost = TD_COST_CHEAP, .compute = expand_dims_compute},
    {.op = "Fill", .work_ns = fill_work_ns, .compute = fill_compute},
    {.op = "GuaranteeConst", .cost = TD_COST_CHEAP, .flags = TD_KERNEL_FORWARDS, .compute = forward_compute},
    INPLACE("InplaceAdd"),
    INPLACE("InplaceSub"),
    INPLACE("InplaceUpdate"),
    {.op = "InvertPermutation", .compute = invert_permutation_compute},
    {.op = "OnesLike", .compute = ones_like_compute},
    {.op = "ParallelConcat",
     .state_size = sizeof(fixed_shape),
     .create = fixed_shape_create,
     .destroy = fixed_shape_destroy,
     .compute = parallel_concat_compute},
    {.op = "Rank", .cost = TD_COST_CHEAP, .compute = rank_compute},
    {.op = "Reshape", .cost = TD_COST_CHEAP, .compute = reshape_compute},
    {.op = "Shape", .cost = TD_COST_CHEAP, .compute = shape_compute},
    {.op = "ShapeN", .cost = TD_COST_CHEAP, .compute = shape_n_compute},
    {.op = "Size", .cost = TD_COST_CHEAP, .compute = size_compute},
    {.op = "Squeeze",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(squeeze),
     .create = squeeze_create,
     .destroy = squeeze_destroy,
     .compute = squeeze_compute},
    {.op = "ZerosLike", .compute = zeros_like_compute},
    {.op = "_ParallelConcatStart",
     .state_size = sizeof(fixed_shape),
     .create = parallel_start_create,
     .destroy = fixed_shape_destroy,
     .compute = parallel_start_compute},
    {.op = "_ParallelConcatUpdate",
     .state_size = sizeof(parallel_update),
     .create = parallel_update_create,
     .compute = parallel_update_compute},
};

TD_FAMILY(shape_ops, ops, kernels);

/* Slices: Slice, StridedSlice and its gradient, and assignment to a strided slice. */
#include "base/mem.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/move.h"

/* ---- Slice ---- */

static td_status slice_range(const td_tensor *t, const td_tensor *begin, const td_tensor *size, int i, int64_t *b,
                             int64_t *s) {
  int64_t dim = t->dims[i];
  *b = td_tensor_int_at(begin, i);
  *s = td_tensor_int_at(size, i);
  bool rest = *s == -1;
  if (rest && *b >= 0 && *b <= dim) *s = dim - *b;
  if (!dim) {
    if (*b || *s) {
      return td_invalid_argument(
          "Expected begin[%d] == 0 (got %lld) and size[%d] == 0 (got %lld) when "
          "input.dim_size(%d) == 0",
          i, (long long)*b, i, (long long)*s, i);
    }
    return TD_STATUS_OK;
  }
  if (*b < 0 || *b > dim) {
    return td_invalid_argument("Expected begin[%d] in [0, %lld], but got %lld", i, (long long)dim, (long long)*b);
  }
  if (*s < 0 || *s > dim - *b) {
    return td_invalid_argument("Expected size[%d] in [0, %lld], but got %lld", i, (long long)(dim - *b), (long long)*s);
  }
  return TD_STATUS_OK;
}

static td_status slice_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *begin = td_in(ctx, 1), *size = td_in(ctx, 2);
  if (begin->rank != 1 || size->rank != 1 || begin->count != t->rank || size->count != t->rank) {
    return td_invalid_argument(
        "Expected begin and size arguments to be 1-D tensors of size %d, but got shapes %s and %s instead.", t->rank,
        TD_SHOW(begin), TD_SHOW(size));
  }
  int64_t b[TD_MAX_RANK], s[TD_MAX_RANK], strides[TD_MAX_RANK], at = 0;
  bool rows = true, all = true;
  td_strides(t->rank, t->dims, strides);
  for (int i = 0; i < t->rank; i++) {
    TD_TRY(slice_range(t, begin, size, i, &b[i], &s[i]));
    bool whole = s[i] == t->dims[i];
    all &= whole;
    rows &= whole || i == 0;
  }
  if (all) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  if (rows) return td_out_rows(ctx, 0, 0, b[0], b[0] + s[0], t->rank, s);
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, t->rank, s, &out));
  if (!out->count) return TD_STATUS_OK;
  int64_t to[TD_MAX_RANK];
  td_strides(t->rank, s, to);
  td_move m;
  m.rank = 0;
  for (int i = 0; i < t->rank; i++) {
    at += b[i] * strides[i];
    td_move_add(&m, s[i], strides[i], to[i]);
  }
  td_move_run(ctx, &m, t, at, out, 0);
  return TD_STATUS_OK;
}

/* ---- the specification of a strided slice ---- */

typedef struct masks {
  uint32_t begin, end, ellipsis, new_axis, shrink;
} masks;

/* A slice of a concrete shape: per input dimension where it starts, its step and how many it takes; and the shape of
 * the result, in which new dimensions appear and shrunk ones are missing. */
typedef struct slicing {
  int rank; /* of the input */
  int64_t begin[TD_MAX_RANK], stride[TD_MAX_RANK], size[TD_MAX_RANK];
  int64_t count; /* elements taken */
  int final_rank;
  int64_t final[TD_MAX_RANK];
  bool is_identity, is_rows; /* takes everything; takes a range of rows of the first dimension */
} slicing;

static td_status masks_create(td_kernel_builder *b, void *state) {
  masks *m = state;
  static const char *const names[] = {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"};
  uint32_t *fields[] = {&m->begin, &m->end, &m->ellipsis, &m->new_axis, &m->shrink};
  for (size_t i = 0; i < TD_COUNT(names); i++) {
    int64_t v;
    TD_TRY(td_attr_int(b->node, names[i], &v));
    *fields[i] = (uint32_t)v;
  }
  return TD_STATUS_OK;
}

static int64_t index_at(const td_tensor *t, int64_t i) {
  return t->dtype == TD_INT16 ? TD_DATA(t, int16_t)[i] : td_tensor_int_at(t, i);
}

/* One entry of the specification, for input dimension `d` of `dim` elements. */
typedef struct entry {
  int64_t begin, end, stride;
  bool no_begin, no_end, shrink;
} entry;

static td_status resolve(slicing *s, int d, int64_t dim, const entry *e) {
  int64_t stride = e->stride, begin, end;
  if (!stride) return td_invalid_argument("strides[%d] must be non-zero", d);
  if (e->shrink && stride <= 0) return td_invalid_argument("only stride 1 allowed on non-range indexing.");
  int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? dim : dim - 1;
  if (e->shrink) {
    /* the end of foo[-1] would be 0: it is begin + 1, whatever was given */
    begin = e->begin < 0 ? dim + e->begin : e->begin;
    if (begin < 0 || begin >= dim) {
      return td_invalid_argument("slice index %lld of dimension %d out of bounds.", (long long)begin, d);
    }
    end = begin + 1;
  } else {
    begin = e->begin < 0 ? dim + e->begin : e->begin;
    end = e->end < 0 ? dim + e->end : e->end;
    begin = e->no_begin ? (stride > 0 ? low : high) : begin < low ? low : begin > high ? high : begin;
    end = e->no_end ? (stride > 0 ? high : low) : end < low ? low : end > high ? high : end;
  }
  uint64_t span = stride > 0 ? (uint64_t)end - (uint64_t)begin : (uint64_t)begin - (uint64_t)end;
  uint64_t step = stride > 0 ? (uint64_t)stride : 0 - (uint64_t)stride;
  bool empty = stride > 0 ? end <= begin : begin <= end;
  s->begin[d] = begin;
  s->stride[d] = stride;
  s->size[d] = empty ? 0 : (int64_t)((span - 1) / step + 1);
  bool whole = stride == 1 && begin == 0 && end == dim;
  s->is_identity &= whole;
  s->is_rows &= whole || (d == 0 && stride == 1);
  return TD_STATUS_OK;
}

static td_status check_spec(const td_tensor *begin, const td_tensor *end, const td_tensor *strides, const masks *m) {
  if (begin->rank != 1 || end->rank != 1 || strides->rank != 1 || begin->count != strides->count ||
      end->count != strides->count || strides->count >= 32 /* the masks have 32 bits */) {
    return td_invalid_argument(
        "Expected begin, end, and strides to be 1D equal size tensors, but got shapes %s, %s, "
        "and %s instead.",
        TD_SHOW(begin), TD_SHOW(end), TD_SHOW(strides));
  }
  if (m->ellipsis & (m->ellipsis - 1)) return td_invalid_argument("Multiple ellipses in slice spec not allowed");
  return TD_STATUS_OK;
}

static td_status final_append(slicing *s, int64_t dim) {
  if (s->final_rank >= TD_MAX_RANK) return td_invalid_argument("Too many dimensions: %d", s->final_rank + 1);
  s->final[s->final_rank++] = dim;
  return TD_STATUS_OK;
}

/* Applies begin/end/strides (inputs 1 to 3) and the masks to a shape, as TensorFlow's ValidateStridedSliceOp does. */
static td_status slicing_of(td_kernel_ctx *ctx, const masks *m, int rank, const int64_t *dims, slicing *s) {
  const td_tensor *begin = td_in(ctx, 1), *end = td_in(ctx, 2), *strides = td_in(ctx, 3);
  TD_TRY(check_spec(begin, end, strides, m));
  s->rank = rank;
  s->final_rank = 0;
  s->is_identity = s->is_rows = true;
  int entries = (int)strides->count, new_after = 0, ellipsis = entries, d = 0;
  for (int i = 0; i < entries; i++) {
    if (ellipsis < entries && m->new_axis >> i & 1) new_after++;
    if (m->ellipsis >> i & 1) ellipsis = i;
  }
  int total = ellipsis == entries ? entries + 1 : entries; /* without one, an ellipsis is implied at the end */
  for (int i = 0; i < total; i++) {
    if (i == ellipsis) {
      int next = TD_MIN(rank - (total - i) + 1 + new_after, rank);
      for (; d < next; d++) {
        TD_TRY(resolve(s, d, dims[d], &(entry){.stride = 1, .no_begin = true, .no_end = true}));
        TD_TRY(final_append(s, s->size[d]));
      }
    } else if (m->new_axis >> i & 1) {
      TD_TRY(final_append(s, 1));
    } else {
      if (d == rank)
        return td_invalid_argument("Index out of range using input dim %d; input has only %d dims", d, rank);
      entry e = {.begin = index_at(begin, i), .end = index_at(end, i), .stride = index_at(strides, i)};
      e.no_begin = m->begin >> i & 1;
      e.no_end = m->end >> i & 1;
      e.shrink = m->shrink >> i & 1;
      TD_TRY(resolve(s, d, dims[d], &e));
      if (!e.shrink) TD_TRY(final_append(s, s->size[d]));
      d++;
    }
  }
  s->count = td_dims_product(s->size, 0, rank);
  return TD_STATUS_OK;
}

/* The loops over the taken elements: distances in the uncut tensor and, row-major, in the slice. `at`: the first
 * element in the uncut one. The slice is not empty. */
static void slicing_loops(const slicing *s, const int64_t *dims, bool into_slice, td_move *m, int64_t *at) {
  int64_t strides[TD_MAX_RANK], packed[TD_MAX_RANK];
  td_strides(s->rank, dims, strides);
  td_strides(s->rank, s->size, packed);
  m->rank = 0;
  *at = 0;
  for (int i = 0; i < s->rank; i++) {
    /* one element: its stride is never used and may be anything */
    int64_t step = s->size[i] > 1 ? s->stride[i] * strides[i] : 0;
    *at += s->begin[i] * strides[i];
    if (into_slice) {
      td_move_add(m, s->size[i], step, packed[i]);
    } else {
      td_move_add(m, s->size[i], packed[i], step);
    }
  }
}

/* ---- StridedSlice, StridedSliceGrad ---- */

static td_status strided_slice_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  slicing s;
  TD_TRY(slicing_of(ctx, ctx->state, t->rank, t->dims, &s));
  if (s.is_identity) {
    td_out_reshaped(ctx, 0, 0, s.final_rank, s.final);
    return TD_STATUS_OK;
  }
  if (s.is_rows && s.size[0]) return td_out_rows(ctx, 0, 0, s.begin[0], s.begin[0] + s.size[0], s.final_rank, s.final);
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, s.final_rank, s.final, &out));
  if (!s.count) return TD_STATUS_OK;
  td_move m;
  int64_t at;
  slicing_loops(&s, t->dims, true, &m, &at);
  td_move_run(ctx, &m, t, at, out, 0);
  return TD_STATUS_OK;
}

static td_status strided_slice_grad_compute(td_kernel_ctx *ctx) {
  const td_tensor *shape_in = td_in(ctx, 0), *dy = td_in(ctx, 4);
  if (shape_in->rank != 1) return td_invalid_argument("shape must be 1-D, got shape.shape = %s", TD_SHOW(shape_in));
  td_shape shape;
  TD_TRY(td_shape_from_tensor(shape_in, false, &shape));
  slicing s;
  TD_TRY(slicing_of(ctx, ctx->state, shape.rank, shape.dims, &s));
  if (!td_dims_eq(dy->rank, dy->dims, s.final_rank, s.final)) {
    return td_invalid_argument("shape of dy was %s instead of %s", TD_SHOW(dy),
                               td_show_dims(&(td_show_buf){.text = ""}, s.final_rank, s.final));
  }
  if (s.is_identity) {
    td_out_reshaped(ctx, 4, 0, shape.rank, shape.dims);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  td_zero_elements(out, 0, out->count);
  if (!s.count) return TD_STATUS_OK;
  td_move m;
  int64_t at;
  slicing_loops(&s, shape.dims, false, &m, &at);
  td_move_run(ctx, &m, dy, 0, out, at);
  return TD_STATUS_OK;
}

/* ---- assignment ---- */

static td_status assign_check(const slicing *s, const td_tensor *value) {
  if (!s->count || td_dims_eq(value->rank, value->dims, s->final_rank, s->final)) return TD_STATUS_OK;
  return td_unimplemented(
      "sliced l-value shape %s does not match r-value shape %s. Automatic broadcasting not yet "
      "implemented.",
      td_show_dims(&(td_show_buf){.text = ""}, s->final_rank, s->final), TD_SHOW(value));
}

static void assign_slice(td_kernel_ctx *ctx, const slicing *s, td_tensor *into, const td_tensor *value) {
  if (!s->count) return;
  td_move m;
  int64_t at;
  slicing_loops(s, into->dims, false, &m, &at);
  td_move_run(ctx, &m, value, 0, into, at);
}

/* With the variable's lock held exclusively. */
static td_status assign_locked(td_kernel_ctx *ctx, td_variable *v) {
  const td_tensor *value = td_in(ctx, 4);
  if (!v->value) {
    return td_failed_precondition("Attempting to use uninitialized value %s", v->name);
  }
  if (v->dtype != (td_dtype)value->dtype) {
    return td_invalid_argument("l-value dtype %s does not match r-value dtype %s", td_dtype_name(v->dtype),
                               td_dtype_name(value->dtype));
  }
  slicing s;
  TD_TRY(slicing_of(ctx, ctx->state, v->value->rank, v->value->dims, &s));
  TD_TRY(assign_check(&s, value));
  if (!s.count) return TD_STATUS_OK;
  TD_TRY(td_variable_prepare_sparse(v));
  if ((uintptr_t)value->data < (uintptr_t)v->value->data + v->value->size &&
      (uintptr_t)v->value->data < (uintptr_t)value->data + value->size) {
    /* a view of the variable itself: source and destination must not overlap */
    td_tensor *copy;
    TD_TRY(td_tensor_copy(value, &copy));
    assign_slice(ctx, &s, v->value, copy);
    td_tensor_release(copy);
  } else {
    assign_slice(ctx, &s, v->value, value);
  }
  return TD_STATUS_OK;
}

static td_status strided_slice_assign_compute(td_kernel_ctx *ctx) {
  td_variable *v = td_in_ref(ctx, 0);
  pthread_rwlock_wrlock(&v->lock);
  td_status status = assign_locked(ctx, v);
  pthread_rwlock_unlock(&v->lock);
  TD_TRY(status);
  td_out_set_ref(ctx, 0, td_variable_retain(v));
  return TD_STATUS_OK;
}

static td_status resource_strided_slice_assign_compute(td_kernel_ctx *ctx) {
  td_variable *v;
  TD_TRY(td_handle_lookup(td_in(ctx, 0), ctx->device, &td_resource_variable_type, (void **)&v));
  pthread_rwlock_wrlock(&v->lock);
  td_status status = assign_locked(ctx, v);
  pthread_rwlock_unlock(&v->lock);
  td_variable_release(v);
  return status;
}

static td_status tensor_strided_slice_update_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *value = td_in(ctx, 4);
  slicing s;
  TD_TRY(slicing_of(ctx, ctx->state, t->rank, t->dims, &s));
  TD_TRY(assign_check(&s, value));
  td_tensor *out;
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &out));
  if (out->data != t->data) td_move_flat(ctx, t, 0, out, 0, t->count);
  assign_slice(ctx, &s, out, value);
  return TD_STATUS_OK;
}

/* ---- tables ---- */

#define MASKS                                                                                                  \
  "begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; new_axis_mask: int = 0; shrink_axis_mask: " \
  "int = 0"
#define ATTRS "T: type; Index: type in {int32, int64}; " MASKS
static const td_op_spec ops[] = {
    {"ResourceStridedSliceAssign", "ref: resource; begin: Index; end: Index; strides: Index; value: T", NULL, ATTRS,
     TD_OP_STATEFUL},
    {"Slice", "input: T; begin: Index; size: Index", "output: T", "T: type; Index: type in {int32, int64}", 0},
    {"StridedSlice", "input: T; begin: Index; end: Index; strides: Index", "output: T",
     "T: type; Index: type in {int16, int32, int64}; " MASKS, 0},
    {"StridedSliceAssign", "ref: Ref(T); begin: Index; end: Index; strides: Index; value: T", "output_ref: Ref(T)",
     ATTRS, 0},
    {"StridedSliceGrad", "shape: Index; begin: Index; end: Index; strides: Index; dy: T", "output: T", ATTRS, 0},
    {"TensorStridedSliceUpdate", "input: T; begin: Index; end: Index; strides: Index; value: T", "output: T", ATTRS, 0},
};

#define STRIDED(name, function) \
  { .op = name, .state_size = sizeof(masks), .create = masks_create, .compute = function }
static const td_kernel_def kernels[] = {
    STRIDED("ResourceStridedSliceAssign", resource_strided_slice_assign_compute),
    {.op = "Slice", .compute = slice_compute},
    STRIDED("StridedSlice", strided_slice_compute),
    STRIDED("StridedSliceAssign", strided_slice_assign_compute),
    STRIDED("StridedSliceGrad", strided_slice_grad_compute),
    STRIDED("TensorStridedSliceUpdate", tensor_strided_slice_update_compute),
};

TD_FAMILY(slice, ops, kernels);

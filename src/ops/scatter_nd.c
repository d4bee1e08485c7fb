/* Rows written to places given by index vectors, into a fresh tensor or a copy: ScatterNd, TensorScatter*. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/rows.h"

static inline int64_t index_at(const td_tensor *t, int64_t i) {
  switch (t->dtype) { /* volatile: another step may be writing; each index is read once, then checked */
    case TD_INT64:
      return *(volatile const int64_t *)(TD_DATA(t, int64_t) + i);
    case TD_INT16:
      return *(volatile const int16_t *)(TD_DATA(t, int16_t) + i);
    case TD_UINT16:
      return *(volatile const uint16_t *)(TD_DATA(t, uint16_t) + i);
    default:
      return *(volatile const int32_t *)(TD_DATA(t, int32_t) + i);
  }
}

typedef struct scatter {
  td_rows_fn *combine; /* NULL: replace, or append for strings that are added */
  bool append;
  bool skip_bad; /* leave out bad indices instead of failing */
} scatter;

static td_status scatter_create(td_kernel_builder *b, void *state) {
  static const struct {
    const char *op;
    td_rows_op how;
  } table[] = {
      {"ScatterNd", TD_ROWS_ADD},           {"ScatterNdNonAliasingAdd", TD_ROWS_ADD}, {"TensorScatterAdd", TD_ROWS_ADD},
      {"TensorScatterSub", TD_ROWS_SUB},    {"TensorScatterMin", TD_ROWS_MIN},        {"TensorScatterMax", TD_ROWS_MAX},
      {"TensorScatterUpdate", TD_ROWS_SET},
  };
  scatter *s = state;
  td_dtype type = td_dtype_base(b->output_types[0]);
  td_str policy;
  TD_TRY(td_attr_str(b->node, "bad_indices_policy", &policy));
  s->skip_bad = td_str_is(policy, "IGNORE");
  if (policy.size && !s->skip_bad && !td_str_is(policy, "ERROR") && !td_str_is(policy, "DEFAULT")) {
    return td_invalid_argument("Unknown bad indices handling attribute: %.*s", TD_STR_ARG(policy));
  }
  size_t i = 0;
  while (i + 1 < TD_COUNT(table) && !td_str_is(b->node->op, table[i].op)) i++;
  if (table[i].how == TD_ROWS_SET) return TD_STATUS_OK;
  s->append = type == TD_STRING && i == 0;
  if (s->append) return TD_STATUS_OK;
  s->combine = td_rows(table[i].how, type);
  if (!s->combine) return td_unimplemented("%s of type %s is not supported", table[i].op, td_dtype_name(type));
  return TD_STATUS_OK;
}

/* Nothing at all is fine, and so is something everywhere. */
static bool counts_fit(int64_t output, int64_t indices, int64_t updates) {
  return (!indices && !updates) || (output && indices && updates);
}

/* updates must be indices.shape[:-1] + output.shape[indices.shape[-1]:]. */
static td_status check_shapes(const td_tensor *indices, const td_tensor *updates, int rank, const int64_t *dims,
                              int64_t output) {
  if (!indices->rank) {
    return td_invalid_argument("Indices shape must have rank at least one. Found:%s", TD_SHOW(indices));
  }
  if (!updates->rank) {
    return td_invalid_argument("Updates shape must have rank at least one. Found:%s", TD_SHOW(updates));
  }
  if (!counts_fit(output, indices->count, updates->count)) {
    return td_invalid_argument("Indices and updates specified for empty output shape");
  }
  int outer = indices->rank - 1;
  int64_t nd = indices->dims[outer];
  for (int i = 0; i < outer; i++) {
    if (i >= updates->rank || indices->dims[i] != updates->dims[i]) {
      return td_invalid_argument(
          "Outer dimensions of indices and update must match. Indices shape: %s, updates shape:%s", TD_SHOW(indices),
          TD_SHOW(updates));
    }
  }
  if (updates->rank - outer != rank - nd) {
    return td_invalid_argument(
        "Inner dimensions of output shape must match inner dimensions of updates shape. Output: "
        "%s updates: %s",
        td_show_dims(&(td_show_buf){.text = ""}, rank, dims), TD_SHOW(updates));
  }
  for (int i = 0; i + outer < updates->rank; i++) {
    if (updates->dims[i + outer] != dims[nd + i]) {
      return td_invalid_argument(
          "The inner %lld dimensions of output.shape=%s must match the inner %d dimensions of "
          "updates.shape=%s",
          (long long)(rank - nd), td_show_dims(&(td_show_buf){.text = ""}, rank, dims), updates->rank - outer,
          TD_SHOW(updates));
    }
  }
  return TD_STATUS_OK;
}

static td_status bad_index(const td_tensor *indices, int64_t at, int nd, int rank, const int64_t *dims) {
  td_show_buf b;
  td_strbuf text = {0};
  for (int d = 0; d < nd; d++)
    td_strbuf_printf(&text, "%s%lld", d ? ", " : "", (long long)index_at(indices, at * nd + d));
  td_status s = td_invalid_argument("indices%s = [%s] does not index into shape %s",
                                    td_show_index(&b, indices->rank - 1, indices->dims, at), td_strbuf_cstr(&text),
                                    td_show_dims(&(td_show_buf){.text = ""}, rank, dims));
  td_strbuf_deinit(&text);
  return s;
}

static td_status append_strings(td_tensor *out, int64_t to, const td_tensor *updates, int64_t from, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    td_string *s = TD_DATA(out, td_string) + to + i;
    const td_string *u = TD_DATA(updates, td_string) + from + i;
    size_t size;
    char *data = td_add_size(s->size, u->size, &size) ? td_try_malloc(size + 1) : NULL;
    if (!data) return td_resource_exhausted("OOM when joining strings of %zu and %zu bytes", s->size, u->size);
    if (s->size) memcpy(data, s->data, s->size);
    if (u->size) memcpy(data + s->size, u->data, u->size);
    td_string_take(s, data, size);
  }
  return TD_STATUS_OK;
}

/* Writes the rows into `out`, which has the checked shape. */
static td_status scatter_rows(const scatter *s, const td_tensor *indices, const td_tensor *updates, td_tensor *out) {
  if (!counts_fit(out->count, indices->count, updates->count)) {
    return td_invalid_argument("Indices and updates specified for empty output.  indices shape: %s", TD_SHOW(indices));
  }
  if (!updates->count) return TD_STATUS_OK;
  int nd = (int)indices->dims[indices->rank - 1];
  int64_t n = indices->count / nd, row = td_dims_product(out->dims, nd, out->rank), strides[TD_MAX_RANK];
  td_strides(out->rank, out->dims, strides);
  size_t size = td_dtype_size((td_dtype)out->dtype);
  for (int64_t i = 0; i < n; i++) {
    int64_t to = 0;
    for (int d = 0; d < nd; d++) {
      int64_t index = index_at(indices, i * nd + d);
      bool bad = index < 0 || index >= out->dims[d];
      if (bad && !s->skip_bad) return bad_index(indices, i, nd, out->rank, out->dims);
      to = bad || to < 0 ? -1 : to + index * strides[d];
    }
    if (to < 0) continue;
    if (s->combine) {
      s->combine((char *)out->data + (size_t)to * size, (const char *)updates->data + (size_t)(i * row) * size, row,
                 false);
    } else if (s->append) {
      TD_TRY(append_strings(out, to, updates, i * row, row));
    } else {
      td_tensor_copy_elements(out, to, updates, i * row, row);
    }
  }
  return TD_STATUS_OK;
}

static td_status scatter_nd_compute(td_kernel_ctx *ctx) {
  const td_tensor *indices = td_in(ctx, 0), *updates = td_in(ctx, 1), *shape_in = td_in(ctx, 2);
  if (shape_in->rank != 1) return td_invalid_argument("Shape must be a vector");
  td_shape shape;
  if (shape_in->dtype == TD_INT16) {
    shape.rank = 0;
    for (int64_t i = 0; i < shape_in->count; i++) TD_TRY(td_shape_append(&shape, index_at(shape_in, i)));
  } else {
    TD_TRY(td_shape_from_tensor(shape_in, false, &shape));
  }
  TD_TRY(check_shapes(indices, updates, shape.rank, shape.dims, shape_in->count));
  td_tensor *out;
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  td_zero_elements(out, 0, out->count);
  return scatter_rows(ctx->state, indices, updates, out);
}

static td_status tensor_scatter_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *indices = td_in(ctx, 1), *updates = td_in(ctx, 2);
  TD_TRY(check_shapes(indices, updates, t->rank, t->dims, t->count));
  td_tensor *out;
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &out));
  if (out->data != t->data) td_move_flat(ctx, t, 0, out, 0, t->count);
  return scatter_rows(ctx->state, indices, updates, out);
}

/* ---- tables ---- */

#define POLICY "; bad_indices_policy: string = ''"
#define TENSOR_SCATTER(name)                                                                                           \
  {                                                                                                                    \
    name, "tensor: T; indices: Tindices; updates: T", "output: T", "T: type; Tindices: type in {int32, int64}" POLICY, \
        0                                                                                                              \
  }
static const td_op_spec ops[] = {
    {"ScatterNd", "indices: Tindices; updates: T; shape: Tindices", "output: T",
     "T: type; Tindices: type in {int16, int32, int64}" POLICY, 0},
    {"ScatterNdNonAliasingAdd", "input: T; indices: Tindices; updates: T", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, "
     "quint16, uint16, complex128, half, uint32, uint64, bool}; Tindices: type in {int32, int64}" POLICY,
     0},
    TENSOR_SCATTER("TensorScatterAdd"),
    TENSOR_SCATTER("TensorScatterMax"),
    TENSOR_SCATTER("TensorScatterMin"),
    TENSOR_SCATTER("TensorScatterSub"),
    {"TensorScatterUpdate", "tensor: T; indices: Tindices; updates: T", "output: T",
     "T: type; Tindices: type in {int16, int32, int64, uint16}" POLICY, 0},
};

#define SCATTER(name, types_, function) \
  { .op = name, .types = {{"T", types_}}, .state_size = sizeof(scatter), .create = scatter_create, .compute = function }
static const td_kernel_def kernels[] = {
    SCATTER("ScatterNd", TD_SET_NUMBER | TD_SET(TD_BOOL) | TD_SET(TD_STRING), scatter_nd_compute),
    SCATTER("ScatterNdNonAliasingAdd", TD_SET_NUMBER | TD_SET(TD_BOOL), tensor_scatter_compute),
    SCATTER("TensorScatterAdd", TD_SET_NUMBER | TD_SET(TD_BOOL), tensor_scatter_compute),
    SCATTER("TensorScatterMax", TD_SET_REAL, tensor_scatter_compute),
    SCATTER("TensorScatterMin", TD_SET_REAL, tensor_scatter_compute),
    SCATTER("TensorScatterSub", TD_SET_NUMBER | TD_SET(TD_BOOL), tensor_scatter_compute),
    SCATTER("TensorScatterUpdate", TD_SET_ALL, tensor_scatter_compute),
};

TD_FAMILY(scatter_nd, ops, kernels);

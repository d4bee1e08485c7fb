/* Sparse updates of variables: Scatter*, ScatterNd*, on ref and on resource variables (TensorFlow's scatter_op,
 * scatter_nd_op, resource_variable_ops). All checks come before the first write. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/rows.h"
#include "ops/update_set.h"

enum { MAX_DEPTH = 7, PARALLEL_ELEMENTS = 1 << 16, PARALLEL_COLUMNS = 64 };

typedef struct scatter_state {
  td_rows_op op;
  td_rows_fn *rows; /* NULL: not plain elements (SET only) */
  td_dtype dtype, index_dtype;
  bool is_ref, nd, ignore_bad;
} scatter_state;

/* One run: row i of the updates goes where index i points. An index is `depth` numbers, each below dims[d]. */
typedef struct scatter_job {
  const scatter_state *st;
  td_tensor *params;
  const td_tensor *indices, *updates;
  int depth;
  int64_t dims[MAX_DEPTH], strides[MAX_DEPTH]; /* strides in rows */
  int64_t n, row;                              /* indices; elements of a row */
  bool scalar;                                 /* one update element for all */
} scatter_job;

/* ---- creation ---- */

static td_status op_of_name(td_str name, scatter_state *st) {
  static const struct {
    const char *suffix;
    td_rows_op op;
  } suffixes[] = {{"Update", TD_ROWS_SET}, {"Add", TD_ROWS_ADD}, {"Sub", TD_ROWS_SUB}, {"Mul", TD_ROWS_MUL},
                  {"Div", TD_ROWS_DIV},    {"Min", TD_ROWS_MIN}, {"Max", TD_ROWS_MAX}};
  st->is_ref = !td_str_starts(name, TD_STR("Resource"));
  td_str rest = st->is_ref ? name : td_str_n(name.data + 8, name.size - 8);
  st->nd = td_str_starts(rest, TD_STR("ScatterNd"));
  for (size_t i = 0; i < TD_COUNT(suffixes); i++)
    if (td_str_ends(name, td_str_of(suffixes[i].suffix))) {
      st->op = suffixes[i].op;
      return TD_STATUS_OK;
    }
  return td_internal("%.*s is no scatter", TD_STR_ARG(name));
}

static td_status create(td_kernel_builder *b, void *state) {
  scatter_state *st = state;
  td_str policy = {0};
  TD_TRY(op_of_name(b->node->op, st));
  TD_TRY(td_attr_type(b->node, st->is_ref || st->nd ? "T" : "dtype", &st->dtype));
  TD_TRY(td_attr_type(b->node, "Tindices", &st->index_dtype));
  if (st->nd && td_attr_find(b->node, "bad_indices_policy"))
    TD_TRY(td_attr_str(b->node, "bad_indices_policy", &policy));
  if (td_str_is(policy, "IGNORE"))
    st->ignore_bad = true;
  else if (policy.size && !td_str_is(policy, "DEFAULT") && !td_str_is(policy, "ERROR"))
    return td_invalid_argument("Bad indices handling attribute value: %.*s", TD_STR_ARG(policy));
  st->rows = st->is_ref ? td_racy_rows(st->op, st->dtype) : td_rows(st->op, st->dtype);
  if (!st->rows && (st->op != TD_ROWS_SET || td_dtype_is_pod(st->dtype)))
    return td_unimplemented("%.*s of %s", TD_STR_ARG(b->node->op), td_dtype_name(st->dtype));
  return TD_STATUS_OK;
}

/* ---- checks ---- */

static td_status shape_error(const char *fmt, const td_tensor *a, const td_tensor *b, const td_tensor *c) {
  char *sa = td_tensor_shape_text(a), *sb = b ? td_tensor_shape_text(b) : NULL,
       *sc = c ? td_tensor_shape_text(c) : NULL;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  td_status s = td_invalid_argument(fmt, sa, sb ? sb : "", sc ? sc : "");
#pragma GCC diagnostic pop
  td_free(sa);
  td_free(sb);
  td_free(sc);
  return s;
}

static bool starts_with(const td_tensor *t, const td_tensor *prefix) {
  return t->rank >= prefix->rank && td_dims_eq(prefix->rank, t->dims, prefix->rank, prefix->dims);
}

static td_status check_index_range(const scatter_job *j) {
  if (j->st->index_dtype == TD_INT64) return TD_STATUS_OK;
  if (j->indices->count > INT32_MAX)
    return td_invalid_argument("indices has too many elements for int32 indexing: %lld > %d",
                               (long long)j->indices->count, INT32_MAX);
  if (j->params->rank && j->params->dims[0] > INT32_MAX)
    return td_invalid_argument("params.shape[0] too large for int32 indexing: %lld > %d", (long long)j->params->dims[0],
                               INT32_MAX);
  return TD_STATUS_OK;
}

static td_status setup_rows(scatter_job *j) {
  const td_tensor *p = j->params, *x = j->indices, *u = j->updates;
  if (!p->rank) return shape_error("params must be at least 1-D, got shape %s", p, NULL, NULL);
  j->scalar = !u->rank;
  j->n = x->count;
  j->depth = 1;
  j->dims[0] = p->dims[0];
  j->strides[0] = 1;
  j->row = 1;
  for (int d = 1; d < p->rank; d++) j->row *= p->dims[d];
  TD_TRY(check_index_range(j));
  if (j->scalar) return TD_STATUS_OK;
  bool fits = starts_with(u, x) && u->rank == x->rank + p->rank - 1 &&
              td_dims_eq(p->rank - 1, u->dims + x->rank, p->rank - 1, p->dims + 1);
  if (j->st->is_ref)
    return fits ? TD_STATUS_OK
                : shape_error(
                      "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got "
                      "updates.shape %s, indices.shape %s, params.shape %s",
                      u, x, p);
  if (!starts_with(u, x))
    return shape_error("The shape of indices (%s) must be a prefix of the shape of updates (%s)", x, u, NULL);
  if (fits || (j->n && u->count / j->n == j->row && u->count % j->n == 0)) return TD_STATUS_OK;
  if (!j->n) return TD_STATUS_OK; /* nothing to do */
  return shape_error(
      "Must have updates.shape = indices.shape + params.shape[1:], got updates.shape %s, "
      "indices.shape %s, params.shape %s",
      u, x, p);
}

static td_status nd_shape_error(const scatter_job *j, int batch_rank, int64_t depth) {
  char *u = td_tensor_shape_text(j->updates), *x = td_tensor_shape_text(j->indices),
       *p = td_tensor_shape_text(j->params);
  td_status s = td_invalid_argument(
      "Must have updates.shape = indices.shape[:batch_dim] + params_shape[slice_dim:], got updates.shape: %s, "
      "indices.shape: %s, params_shape: %s, slice_dim: %lld, and batch_dim: %d",
      u, x, p, (long long)depth, batch_rank);
  td_free(u);
  td_free(x);
  td_free(p);
  return s;
}

static td_status setup_nd(scatter_job *j) {
  const td_tensor *p = j->params, *x = j->indices, *u = j->updates;
  if (!p->rank) return shape_error("Output must be at least 1-D, got shape: %s", p, NULL, NULL);
  if (!x->rank || !u->rank)
    return shape_error("Indices and updates must be at least 1-D, got indices shape %s, updates shape %s", x, u, NULL);
  if (!p->count && x->count && u->count)
    return shape_error("Indices and updates specified for empty output.  indices shape: %s", x, NULL, NULL);
  if (u->dims[0] != x->dims[0])
    return shape_error(
        "The outermost dimension of updates and indices must match. Got indices.shape %s, "
        "updates.shape %s",
        x, u, NULL);
  int batch_rank = x->rank > 1 ? x->rank - 1 : 1;
  int64_t depth = x->rank > 1 ? x->dims[x->rank - 1] : 1;
  if (depth > p->rank || u->rank != batch_rank + p->rank - depth ||
      !td_dims_eq(batch_rank, u->dims, batch_rank, x->dims) ||
      !td_dims_eq(p->rank - (int)depth, u->dims + batch_rank, p->rank - (int)depth, p->dims + depth))
    return nd_shape_error(j, batch_rank, depth);
  TD_TRY(check_index_range(j));
  j->row = 1;
  for (int d = (int)depth; d < p->rank; d++) j->row *= p->dims[d];
  j->n = x->count && p->count ? x->count / depth : 0;
  if (!p->count) return TD_STATUS_OK;
  if (depth < 1 || depth > MAX_DEPTH)
    return td_invalid_argument(
        "Only indices.shape[-1] values between 1 and 5 are currently supported.  Requested rank: %lld",
        (long long)depth);
  j->depth = (int)depth;
  int64_t stride = 1;
  for (int d = j->depth; d-- > 0; stride *= j->dims[d]) {
    j->dims[d] = p->dims[d];
    j->strides[d] = stride;
  }
  return TD_STATUS_OK;
}

/* The row that index i points at; -1 if it is out of range. Each number is read once: a ref variable that serves
 * as indices may change meanwhile. */
static inline int64_t find_row(const scatter_job *j, int64_t i) {
  int64_t row = 0;
  for (int d = 0; d < j->depth; d++) {
    int64_t at = i * j->depth + d;
    int64_t v = j->st->index_dtype == TD_INT64 ? ((const volatile int64_t *)j->indices->data)[at]
                                               : ((const volatile int32_t *)j->indices->data)[at];
    if ((uint64_t)v >= (uint64_t)j->dims[d]) return -1;
    row += v * j->strides[d];
  }
  return row;
}

/* "[1,2]": the place of flat index i in the first `rank` dimensions. */
static void put_place(td_strbuf *b, const td_tensor *t, int rank, int64_t i) {
  if (!rank) return;
  int64_t below = 1;
  for (int d = 1; d < rank; d++) below *= t->dims[d];
  for (int d = 0; d < rank; d++) {
    td_strbuf_printf(b, "%s%lld", d ? "," : "[", (long long)(i / below));
    i %= below;
    if (d + 1 < rank) below /= t->dims[d + 1];
  }
  td_strbuf_putc(b, ']');
}

static td_status bad_index(const scatter_job *j, int64_t i) {
  td_strbuf b = {0};
  const td_tensor *x = j->indices;
  td_strbuf_puts(&b, "indices");
  if (!j->st->nd) {
    put_place(&b, x, x->rank, i);
    td_strbuf_printf(&b, " = %lld is not in [0, %lld)", (long long)td_tensor_int_at(x, i), (long long)j->dims[0]);
  } else {
    put_place(&b, x, x->rank > 1 ? x->rank - 1 : x->rank, i);
    for (int d = 0; d < j->depth; d++)
      td_strbuf_printf(&b, "%s%lld", d ? ", " : " = [", (long long)td_tensor_int_at(x, i * j->depth + d));
    char *shape = td_tensor_shape_text(j->params);
    td_strbuf_printf(&b, "] does not index into shape %s", shape);
    td_free(shape);
  }
  td_status s = td_error_bytes(TD_INVALID_ARGUMENT, td_strbuf_cstr(&b), b.size);
  td_strbuf_deinit(&b);
  return s;
}

static td_status check_values(const scatter_job *j) {
  if (j->st->op == TD_ROWS_DIV && (!j->st->is_ref || td_dtype_in(j->st->dtype, TD_SET_INTEGER)) &&
      td_rows_has_zero(j->updates))
    return td_invalid_argument("updates must not contain 0");
  if (j->st->ignore_bad) return TD_STATUS_OK;
  for (int64_t i = 0; i < j->n; i++)
    if (find_row(j, i) < 0) return bad_index(j, i);
  return TD_STATUS_OK;
}

/* ---- the update ---- */

/* Columns [begin, end) of every row: all indices in order, so that repeated ones give the same result whatever
 * the number of threads. */
static void scatter_columns(void *arg, int64_t begin, int64_t end) {
  const scatter_job *j = arg;
  size_t size = td_dtype_size(j->st->dtype);
  char *dst = j->params->data;
  const char *src = j->updates->data;
  for (int64_t i = 0; i < j->n; i++) {
    int64_t row = find_row(j, i);
    if (row < 0) continue;
    const char *from = j->scalar ? src : src + (size_t)(i * j->row + begin) * size;
    j->st->rows(dst + (size_t)(row * j->row + begin) * size, from, end - begin, j->scalar);
  }
}

static void copy_rows(const scatter_job *j) {
  for (int64_t i = 0; i < j->n; i++) {
    int64_t row = find_row(j, i);
    if (row < 0) continue;
    if (!j->scalar)
      td_tensor_copy_elements(j->params, row * j->row, j->updates, i * j->row, j->row);
    else
      for (int64_t e = 0; e < j->row; e++) td_tensor_copy_elements(j->params, row * j->row + e, j->updates, 0, 1);
  }
}

static td_status compute(td_kernel_ctx *ctx) {
  const scatter_state *st = ctx->state;
  td_update_set set;
  td_status status = td_update_begin(ctx, 1, st->dtype, &set);
  if (status) goto cleanup;
  scatter_job j = {.st = st, .params = td_update_value(&set, 0), .indices = td_in(ctx, 1), .updates = td_in(ctx, 2)};
  TD_TRY_GOTO(st->nd ? setup_nd(&j) : setup_rows(&j));
  TD_TRY_GOTO(check_values(&j));
  /* elements that own memory are never changed under a reader, and updates never under themselves */
  TD_TRY_GOTO(td_update_prepare(&set, st->rows && !td_update_overlaps(&set, j.updates)));
  j.params = td_update_value(&set, 0);
  if (!j.n || !j.row) goto cleanup;
  if (!st->rows)
    copy_rows(&j);
  else if (j.row >= PARALLEL_COLUMNS && j.n >= PARALLEL_ELEMENTS / j.row)
    td_ctx_parallel_for(ctx, j.row, (double)j.n * 0.5, scatter_columns, &j);
  else
    scatter_columns(&j, 0, j.row);
cleanup:
  td_update_end(&set);
  if (!status) td_update_forward_ref(ctx);
  return status;
}

/* ---- tables ---- */

#define NUMBERS                                                                                                     \
  "{float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, " \
  "uint16, complex128, half, uint32, uint64}"
#define INDICES "Tindices: type in {int32, int64}"
#define POLICY  "bad_indices_policy: string = ''"

#define REF_OP(NAME, TYPES, LOCKING)                                                                       \
  {                                                                                                        \
    .name = NAME, .inputs = "ref: Ref(T); indices: Tindices; updates: T", .outputs = "output_ref: Ref(T)", \
    .attrs = TYPES "; " INDICES "; use_locking: bool = " LOCKING                                           \
  }
#define RESOURCE_OP(NAME, TYPES)                                                                              \
  {                                                                                                           \
    .name = NAME, .inputs = "resource: resource; indices: Tindices; updates: dtype", .flags = TD_OP_STATEFUL, \
    .attrs = TYPES "; " INDICES                                                                               \
  }
#define RESOURCE_ND_OP(NAME)                                                                         \
  {                                                                                                  \
    .name = NAME, .inputs = "ref: resource; indices: Tindices; updates: T", .flags = TD_OP_STATEFUL, \
    .attrs = "T: type; " INDICES "; use_locking: bool = true; " POLICY                               \
  }

static const td_op_spec ops[] = {
    REF_OP("ScatterUpdate", "T: type", "true"),
    REF_OP("ScatterAdd", "T: type in " NUMBERS, "false"),
    REF_OP("ScatterSub", "T: type in " NUMBERS, "false"),
    REF_OP("ScatterMul", "T: type in " NUMBERS, "false"),
    REF_OP("ScatterDiv", "T: type in " NUMBERS, "false"),
    REF_OP("ScatterMin", "T: type in {half, bfloat16, float, double, int32, int64}", "false"),
    REF_OP("ScatterMax", "T: type in {half, bfloat16, float, double, int32, int64}", "false"),
    REF_OP("ScatterNdUpdate", "T: type", "true; " POLICY),
    REF_OP("ScatterNdAdd", "T: type in " NUMBERS, "false; " POLICY),
    REF_OP("ScatterNdSub", "T: type in " NUMBERS, "false; " POLICY),
    REF_OP("ScatterNdMin", "T: type in " NUMBERS, "false; " POLICY),
    REF_OP("ScatterNdMax", "T: type in " NUMBERS, "false; " POLICY),
    RESOURCE_OP("ResourceScatterUpdate", "dtype: type"),
    RESOURCE_OP("ResourceScatterAdd", "dtype: type in " NUMBERS),
    RESOURCE_OP("ResourceScatterSub", "dtype: type in " NUMBERS),
    RESOURCE_OP("ResourceScatterMul", "dtype: type in " NUMBERS),
    RESOURCE_OP("ResourceScatterDiv", "dtype: type in " NUMBERS),
    RESOURCE_OP("ResourceScatterMin", "dtype: type in " NUMBERS),
    RESOURCE_OP("ResourceScatterMax", "dtype: type in " NUMBERS),
    RESOURCE_ND_OP("ResourceScatterNdUpdate"),
    RESOURCE_ND_OP("ResourceScatterNdAdd"),
    RESOURCE_ND_OP("ResourceScatterNdSub"),
    RESOURCE_ND_OP("ResourceScatterNdMin"),
    RESOURCE_ND_OP("ResourceScatterNdMax"),
};

#define KERNEL(NAME, ATTR, TYPES) \
  { .op = NAME, .types = {{ATTR, TYPES}}, .state_size = sizeof(scatter_state), .create = create, .compute = compute }

static const td_kernel_def kernels[] = {
    KERNEL("ScatterUpdate", "T", TD_SET_ALL),
    KERNEL("ScatterAdd", "T", TD_SET_NUMBER),
    KERNEL("ScatterSub", "T", TD_SET_NUMBER),
    KERNEL("ScatterMul", "T", TD_SET_NUMBER),
    KERNEL("ScatterDiv", "T", TD_SET_NUMBER),
    KERNEL("ScatterMin", "T", TD_SET_REAL),
    KERNEL("ScatterMax", "T", TD_SET_REAL),
    KERNEL("ScatterNdUpdate", "T", TD_SET_ALL),
    KERNEL("ScatterNdAdd", "T", TD_SET_NUMBER | TD_SET(TD_BOOL)),
    KERNEL("ScatterNdSub", "T", TD_SET_NUMBER | TD_SET(TD_BOOL)),
    KERNEL("ScatterNdMin", "T", TD_SET_REAL),
    KERNEL("ScatterNdMax", "T", TD_SET_REAL),
    KERNEL("ResourceScatterUpdate", "dtype", TD_SET_ALL),
    KERNEL("ResourceScatterAdd", "dtype", TD_SET_NUMBER),
    KERNEL("ResourceScatterSub", "dtype", TD_SET_NUMBER),
    KERNEL("ResourceScatterMul", "dtype", TD_SET_NUMBER),
    KERNEL("ResourceScatterDiv", "dtype", TD_SET_NUMBER),
    KERNEL("ResourceScatterMin", "dtype", TD_SET_REAL),
    KERNEL("ResourceScatterMax", "dtype", TD_SET_REAL),
    KERNEL("ResourceScatterNdUpdate", "T", TD_SET_ALL),
    KERNEL("ResourceScatterNdAdd", "T", TD_SET_NUMBER | TD_SET(TD_BOOL)),
    KERNEL("ResourceScatterNdSub", "T", TD_SET_NUMBER | TD_SET(TD_BOOL)),
    KERNEL("ResourceScatterNdMin", "T", TD_SET_REAL),
    KERNEL("ResourceScatterNdMax", "T", TD_SET_REAL),
};

TD_FAMILY(scatter, ops, kernels);

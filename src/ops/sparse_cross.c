/* SparseCross, SparseCrossV2: every combination of the features of several columns, row by row, as strings joined by a
 * separator or as hashes (TensorFlow's sparse_cross_op). Columns are sparse, with any number of features in a row, or
 * dense matrices; the last column varies fastest. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/fingerprint.h"
#include "ops/move.h"

typedef struct column {
  const td_tensor *values;
  int64_t *begins; /* sparse: own, where each row's values begin; NULL: dense */
  int64_t width;   /* dense: features of a row */
} column;

typedef struct crosser {
  bool is_hashed;
  int64_t buckets;
  uint64_t key;
  int sparse; /* columns */
} crosser;

/* A crossing in progress. */
typedef struct crossing {
  const crosser *spec;
  column *columns;
  int count;
  int64_t rows;
  td_str separator;
} crossing;

static td_status create(td_kernel_builder *b, void *state) {
  crosser *c = state;
  int64_t key, sparse;
  TD_TRY(td_attr_int(b->node, "N", &sparse));
  c->sparse = (int)sparse;
  if (td_str_ends(b->node->op, TD_STR("V2"))) return TD_STATUS_OK;
  TD_TRY(td_attr_int(b->node, "num_buckets", &c->buckets));
  TD_TRY(td_attr_int(b->node, "hash_key", &key));
  c->key = (uint64_t)key;
  td_dtype out;
  TD_TRY(td_attr_type(b->node, "out_type", &out));
  c->is_hashed = out == TD_INT64;
  return TD_STATUS_OK;
}

/* ---- features ---- */

static int64_t begin_of(const column *c, int64_t row) { return c->begins ? c->begins[row] : row * c->width; }
static int64_t count_of(const column *c, int64_t row) {
  return c->begins ? c->begins[row + 1] - c->begins[row] : c->width;
}

static uint64_t shift_mix(uint64_t v) { return v ^ v >> 47; }

/* TensorFlow's FingerprintCat64. */
static uint64_t combine(uint64_t a, uint64_t b) {
  const uint64_t mul = UINT64_C(0xc6a4a7935bd1e995);
  uint64_t r = a ^ mul;
  r ^= shift_mix(b * mul) * mul;
  r *= mul;
  r = shift_mix(r) * mul;
  return shift_mix(r);
}

static uint64_t feature_hash(const td_tensor *values, int64_t i) {
  if (values->dtype == TD_INT64) return (uint64_t)TD_DATA(values, int64_t)[i];
  td_str s = td_string_view(TD_DATA(values, td_string) + i);
  return td_fingerprint64(s.data, s.size);
}

static int64_t cross_hash(const crossing *c, const int64_t *at) {
  uint64_t h = c->spec->key;
  for (int i = 0; i < c->count; i++) h = combine(h, feature_hash(c->columns[i].values, at[i]));
  return (int64_t)(h % (c->spec->buckets > 0 ? (uint64_t)c->spec->buckets : (uint64_t)INT64_MAX));
}

static td_status cross_text(const crossing *c, const int64_t *at, td_strbuf *text, td_string *out) {
  text->size = 0;
  for (int i = 0; i < c->count; i++) {
    const td_tensor *values = c->columns[i].values;
    if (i) td_strbuf_append(text, c->separator);
    if (values->dtype == TD_INT64)
      td_strbuf_printf(text, "%" PRId64, TD_DATA(values, int64_t)[at[i]]);
    else
      td_strbuf_append(text, td_string_view(TD_DATA(values, td_string) + at[i]));
  }
  return td_string_set(out, td_strbuf_view(text));
}

/* ---- inputs ---- */

static td_status read_sparse(td_kernel_ctx *ctx, crossing *c, int i) {
  int n = c->spec->sparse;
  const td_tensor *indices = td_in(ctx, i), *values = td_in(ctx, n + i), *shape = td_in(ctx, 2 * n + i);
  if (indices->rank != 2 || indices->dims[1] != 2)
    return td_invalid_argument("Expected D2 of index to be 2 got %s at position %d", TD_SHOW(indices), i);
  if (values->rank != 1)
    return td_invalid_argument("Input values should be a std::vector but received shape %s at position %d",
                               TD_SHOW(values), i);
  if (indices->dims[0] != values->count)
    return td_invalid_argument("Expected size of values to be %lld got %lld at position %d",
                               (long long)indices->dims[0], (long long)values->count, i);
  if (shape->rank != 1 || shape->count != 2)
    return td_invalid_argument("Expected shape of a rank 2 tensor, got %s at position %d", TD_SHOW(shape), i);
  int64_t rows = TD_DATA(shape, int64_t)[0];
  if (!i) c->rows = rows;
  if (rows != c->rows || rows < 0)
    return td_invalid_argument("Expected batch size %lld got %lld at position %d", (long long)c->rows, (long long)rows,
                               i);
  if (rows > INT32_MAX) return td_resource_exhausted("A batch of %lld rows is too large", (long long)rows);
  column *col = &c->columns[i];
  *col = (column){.values = values, .begins = td_try_malloc(((size_t)rows + 1) * sizeof(int64_t))};
  if (!col->begins) return td_resource_exhausted("No memory for %lld rows", (long long)rows);
  int64_t at = 0;
  for (int64_t row = 0; row < rows; row++) {
    col->begins[row] = at;
    while (at < values->count && TD_DATA(indices, int64_t)[at * 2] == row) at++;
  }
  col->begins[rows] = at;
  return at == values->count
             ? TD_STATUS_OK
             : td_invalid_argument("Expected indices in order of rows below %lld at position %d", (long long)rows, i);
}

static td_status read_dense(td_kernel_ctx *ctx, crossing *c, int i) {
  const td_tensor *t = td_in(ctx, 3 * c->spec->sparse + i);
  int at = c->spec->sparse + i;
  if (t->rank != 2)
    return td_invalid_argument("Dense inputs should be a matrix but received shape %s at position %d", TD_SHOW(t), i);
  if (!at) c->rows = t->dims[0];
  if (t->dims[0] != c->rows)
    return td_invalid_argument("Expected batch size %lld got %lld at dense tensor %d", (long long)c->rows,
                               (long long)t->dims[0], i);
  c->columns[at] = (column){.values = t, .width = t->dims[1]};
  return TD_STATUS_OK;
}

/* ---- outputs ---- */

/* How many crosses a row has; false when they are too many. */
static bool row_count(const crossing *c, int64_t row, int64_t *out) {
  *out = 1;
  for (int i = 0; i < c->count; i++)
    if (__builtin_mul_overflow(*out, count_of(&c->columns[i], row), out)) return false;
  return true;
}

/* The next combination; false after the last. */
static bool advance(const crossing *c, int64_t row, int64_t *at) {
  for (int i = c->count - 1; i >= 0; i--) {
    int64_t begin = begin_of(&c->columns[i], row);
    if (++at[i] < begin + count_of(&c->columns[i], row)) return true;
    at[i] = begin;
  }
  return false;
}

static td_status put_row(const crossing *c, int64_t row, int64_t n, int64_t *at, td_tensor *indices, td_tensor *values,
                         int64_t to) {
  td_strbuf text = {0};
  td_status s = TD_STATUS_OK;
  for (int i = 0; i < c->count; i++) at[i] = begin_of(&c->columns[i], row);
  for (int64_t k = 0; k < n && !s; k++) {
    TD_DATA(indices, int64_t)[(to + k) * 2] = row;
    TD_DATA(indices, int64_t)[(to + k) * 2 + 1] = k;
    if (c->spec->is_hashed)
      TD_DATA(values, int64_t)[to + k] = cross_hash(c, at);
    else
      s = cross_text(c, at, &text, TD_DATA(values, td_string) + to + k);
    advance(c, row, at);
  }
  td_strbuf_deinit(&text);
  return s;
}

static td_status put_all(td_kernel_ctx *ctx, const crossing *c, int64_t *at) {
  int64_t total = 0, most = 0, n, to = 0;
  td_tensor *indices, *values, *shape;
  for (int64_t row = 0; row < c->rows && c->count; row++) {
    if (!row_count(c, row, &n) || __builtin_add_overflow(total, n, &total))
      return td_resource_exhausted("There are too many crosses");
    most = TD_MAX(most, n);
  }
  TD_TRY(td_out_alloc_dims(ctx, 0, 2, (int64_t[]){total, 2}, &indices));
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &total, &values));
  TD_TRY(td_out_alloc_dims(ctx, 2, 1, (int64_t[]){2}, &shape));
  TD_DATA(shape, int64_t)[0] = c->rows;
  TD_DATA(shape, int64_t)[1] = most;
  for (int64_t row = 0; row < c->rows && total; row++, to += n) {
    (void)row_count(c, row, &n);
    TD_TRY(put_row(c, row, n, at, indices, values, to));
  }
  return TD_STATUS_OK;
}

static td_status compute(td_kernel_ctx *ctx) {
  const crosser *spec = ctx->state;
  bool is_v2 = td_str_ends(ctx->kernel->op, TD_STR("V2"));
  int dense = ctx->kernel->input_count - 3 * spec->sparse - is_v2;
  crossing c = {.spec = spec, .count = spec->sparse + dense, .separator = TD_STR("_X_")};
  if (is_v2) {
    const td_tensor *separator = td_in(ctx, ctx->kernel->input_count - 1);
    TD_TRY(td_check_scalar(separator, "Input separator"));
    c.separator = td_string_view(TD_DATA(separator, td_string));
  }
  c.columns = td_new_array(column, (size_t)c.count + 1);
  int64_t *at = td_new_array(int64_t, (size_t)c.count + 1);
  td_status s = TD_STATUS_OK;
  for (int i = 0; i < spec->sparse && !s; i++) s = read_sparse(ctx, &c, i);
  for (int i = 0; i < dense && !s; i++) s = read_dense(ctx, &c, i);
  if (!s) s = put_all(ctx, &c, at);
  for (int i = 0; i < c.count; i++) td_free(c.columns[i].begins);
  td_free(c.columns);
  td_free(at);
  return s;
}

#define CROSS_IN "indices: N * int64; values: sparse_types; shapes: N * int64; dense_inputs: dense_types"
#define TYPES    "sparse_types: list(type) in {int64, string} >= 0; dense_types: list(type) in {int64, string} >= 0"

static const td_op_spec ops[] = {
    {"SparseCross", CROSS_IN, "output_indices: int64; output_values: out_type; output_shape: int64",
     "N: int >= 0; hashed_output: bool; num_buckets: int >= 0; hash_key: int; " TYPES
     "; out_type: type in {int64, string}; internal_type: type in {int64, string}",
     0},
    {"SparseCrossV2", CROSS_IN "; sep: string", "output_indices: int64; output_values: string; output_shape: int64",
     "N: int >= 0; " TYPES, 0},
};

static const td_kernel_def kernels[] = {
    {.op = "SparseCross",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(crosser),
     .create = create,
     .compute = compute},
    {.op = "SparseCrossV2",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(crosser),
     .create = create,
     .compute = compute},
};

TD_FAMILY(sparse_cross, ops, kernels);

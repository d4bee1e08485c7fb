/* Diagonals and bands of matrices: Diag, DiagPart, MatrixDiag*, MatrixDiagPart*, MatrixSetDiag*, MatrixBandPart. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"

/* ---- Diag, DiagPart ---- */

static td_status diag_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  if (!t->rank) return td_invalid_argument("Input must be at least rank 1, got 0");
  if (2 * t->rank > TD_MAX_RANK) return td_invalid_argument("Too many dimensions: %d", 2 * t->rank);
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < t->rank; d++) dims[d] = dims[d + t->rank] = t->dims[d];
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 2 * t->rank, dims, &out));
  td_zero_elements(out, 0, out->count);
  td_move m;
  m.rank = 0;
  td_move_add(&m, t->count, 1, t->count + 1);
  td_move_run(ctx, &m, t, 0, out, 0);
  return TD_STATUS_OK;
}

static td_status diag_part_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  int half = t->rank / 2;
  if (t->rank % 2 || !t->rank) {
    return td_invalid_argument("The rank of the tensor should be even and positive, got shape %s", TD_SHOW(t));
  }
  for (int d = 0; d < half; d++) {
    if (t->dims[d] != t->dims[d + half]) {
      return td_invalid_argument("Invalid shape %s: dimensions %d and %d do not match.", TD_SHOW(t), d, d + half);
    }
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, half, t->dims, &out));
  td_move m;
  m.rank = 0;
  td_move_add(&m, out->count, out->count + 1, 1);
  td_move_run(ctx, &m, t, 0, out, 0);
  return TD_STATUS_OK;
}

/* ---- bands of diagonals ---- */

/* Diagonals lower..upper (0: the main one, positive above it) of batches of rows x cols matrices, packed into rows of
 * `width` elements: first the uppermost. */
typedef struct band {
  int64_t batch, rows, cols, lower, upper, width;
  bool right_above, right_below; /* diagonals shorter than `width` stand at the right */
} band;

typedef struct alignment {
  bool right_above, right_below;
} alignment;

static td_status align_create(td_kernel_builder *b, void *state) {
  alignment *a = state;
  if (!td_attr_find(b->node, "align")) return TD_STATUS_OK; /* the older versions: left */
  td_str align;
  TD_TRY(td_attr_str(b->node, "align", &align));
  a->right_above = td_str_starts(align, TD_STR("RIGHT_"));
  a->right_below = td_str_ends(align, TD_STR("_RIGHT"));
  return TD_STATUS_OK;
}

static int64_t diagonal_length(const band *b, int64_t k) {
  return TD_MIN(b->rows + TD_MIN(k, 0), b->cols - TD_MAX(k, 0));
}

/* Copies every diagonal between the matrices and their packed form. */
static void band_move(td_kernel_ctx *ctx, const band *b, const td_tensor *src, td_tensor *dst, bool to_matrix) {
  int64_t diagonals = b->upper - b->lower + 1;
  for (int64_t k = b->upper; k >= b->lower; k--) {
    int64_t n = diagonal_length(b, k);
    if (n <= 0) continue;
    bool right = k > 0 ? b->right_above : k < 0 ? b->right_below : b->right_above && b->right_below;
    int64_t packed = (b->upper - k) * b->width + (right ? b->width - n : 0);
    int64_t matrix = k >= 0 ? k : -k * b->cols;
    td_move m;
    m.rank = 0;
    int64_t size = b->rows * b->cols, room = diagonals * b->width;
    td_move_add(&m, b->batch, to_matrix ? room : size, to_matrix ? size : room);
    td_move_add(&m, n, to_matrix ? 1 : b->cols + 1, to_matrix ? b->cols + 1 : 1);
    td_move_run(ctx, &m, src, to_matrix ? packed : matrix, dst, to_matrix ? matrix : packed);
  }
}

/* Reads the input that says which diagonals. */
static td_status band_range(const td_tensor *k, band *b) {
  if (k->rank > 1) {
    return td_invalid_argument("diag_index must be a scalar or vector, received shape: %s", TD_SHOW(k));
  }
  if (!k->count) return td_invalid_argument("Expected diag_index to have at least 1 element");
  if (k->count > 2) {
    return td_invalid_argument("diag_index must have only one or two elements, received %lld elements.",
                               (long long)k->count);
  }
  b->lower = td_tensor_int_at(k, 0);
  b->upper = td_tensor_int_at(k, k->count - 1);
  if (b->lower > b->upper) {
    return td_invalid_argument("lower_diag_index must not be larger than upper_diag_index: %lld > %lld",
                               (long long)b->lower, (long long)b->upper);
  }
  return TD_STATUS_OK;
}

/* The matrices of `t`, and whether the diagonals lie inside them. */
static td_status band_matrices(const td_tensor *t, band *b) {
  if (t->rank < 2) return td_invalid_argument("input must be at least 2-dim, received shape: %s", TD_SHOW(t));
  b->rows = t->dims[t->rank - 2];
  b->cols = t->dims[t->rank - 1];
  b->batch = td_dims_product(t->dims, 0, t->rank - 2);
  if (b->lower && (b->lower <= -b->rows || b->lower >= b->cols)) {
    return td_invalid_argument("lower_diag_index is out of bound: %lld. It must be between %lld and %lld",
                               (long long)b->lower, (long long)-b->rows, (long long)b->cols);
  }
  if (b->upper && (b->upper <= -b->rows || b->upper >= b->cols)) {
    return td_invalid_argument("upper_diag_index is out of bound: %lld It must be between %lld and %lld",
                               (long long)b->upper, (long long)-b->rows, (long long)b->cols);
  }
  b->width = TD_MIN(b->rows + TD_MIN(b->upper, 0), b->cols - TD_MAX(b->lower, 0));
  return TD_STATUS_OK;
}

/* ---- MatrixDiag ---- */

static td_status one_element(const td_tensor *t, const char *what, int64_t *out) {
  if (t->count != 1) return td_invalid_argument("%s must be a scalar, received shape: %s", what, TD_SHOW(t));
  *out = td_tensor_int_at(t, 0);
  return TD_STATUS_OK;
}

/* Fills in what num_rows and num_cols (-1: unknown) leave open. */
static td_status band_size(band *b) {
  int64_t rows = b->width - TD_MIN(b->upper, 0), cols = b->width + TD_MAX(b->lower, 0);
  if (b->rows != -1 && b->rows < rows) return td_invalid_argument("The number of rows is too small.");
  if (b->cols != -1 && b->cols < cols) return td_invalid_argument("The number of columns is too small.");
  if (b->rows == -1 && b->cols == -1) {
    b->rows = b->cols = TD_MAX(rows, cols);
  } else if (b->rows == -1) {
    b->rows = rows;
  } else if (b->cols == -1) {
    b->cols = cols;
  }
  if (b->rows != rows && b->cols != cols) {
    return td_invalid_argument(
        "The number of rows or columns is not consistent with the specified d_lower, d_upper, and diagonal.");
  }
  return TD_STATUS_OK;
}

static td_status matrix_diag_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *padding = NULL;
  const alignment *a = ctx->state;
  band b = {.rows = -1, .cols = -1, .right_above = a->right_above, .right_below = a->right_below};
  if (ctx->kernel->input_count > 1) {
    TD_TRY(band_range(td_in(ctx, 1), &b));
    TD_TRY(one_element(td_in(ctx, 2), "num_rows", &b.rows));
    TD_TRY(one_element(td_in(ctx, 3), "num_cols", &b.cols));
    padding = td_in(ctx, 4);
    if (padding->count != 1)
      return td_invalid_argument("padding_value must be a scalar, received shape: %s", TD_SHOW(padding));
  }
  int64_t diagonals = b.upper - b.lower + 1;
  int lead = t->rank - (diagonals == 1 ? 1 : 2); /* batch dimensions */
  if (!t->rank) return td_invalid_argument("diagonal must be at least 1-dim, received shape: %s", TD_SHOW(t));
  if (lead < 0 || (diagonals > 1 && t->dims[lead] != diagonals)) {
    return td_invalid_argument(
        "The number of diagonals provided in the input does not match the lower_diag_index and "
        "upper_diag_index range.");
  }
  if (lead + 2 > TD_MAX_RANK) return td_invalid_argument("Too many dimensions: %d", lead + 2);
  b.width = t->dims[t->rank - 1];
  b.batch = td_dims_product(t->dims, 0, lead);
  TD_TRY(band_size(&b));
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < lead; d++) dims[d] = t->dims[d];
  dims[lead] = b.rows;
  dims[lead + 1] = b.cols;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, lead + 2, dims, &out));
  if (padding) {
    td_fill_elements(out, 0, out->count, padding, 0);
  } else {
    td_zero_elements(out, 0, out->count);
  }
  if (out->count && t->count) band_move(ctx, &b, t, out, true);
  return TD_STATUS_OK;
}

/* ---- MatrixDiagPart ---- */

static td_status matrix_diag_part_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *padding = NULL;
  const alignment *a = ctx->state;
  band b = {.right_above = a->right_above, .right_below = a->right_below};
  if (ctx->kernel->input_count > 1) {
    TD_TRY(band_range(td_in(ctx, 1), &b));
    padding = td_in(ctx, 2);
    if (padding->count != 1) return td_invalid_argument("Padding must be scalar.");
  }
  TD_TRY(band_matrices(t, &b));
  int64_t dims[TD_MAX_RANK];
  int rank = t->rank - 2;
  for (int d = 0; d < rank; d++) dims[d] = t->dims[d];
  if (b.upper != b.lower) dims[rank++] = b.upper - b.lower + 1;
  dims[rank++] = b.width;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, rank, dims, &out));
  if (padding) td_fill_elements(out, 0, out->count, padding, 0);
  if (out->count && t->count) band_move(ctx, &b, t, out, false);
  return TD_STATUS_OK;
}

/* ---- MatrixSetDiag ---- */

static td_status set_diag_check(const td_tensor *t, const td_tensor *diagonal, const band *b) {
  int64_t diagonals = b->upper - b->lower + 1;
  int rank = t->rank - 2;
  if (!diagonal->rank) {
    return td_invalid_argument("diagonal must be at least 1-dim, received shape: %s", TD_SHOW(diagonal));
  }
  if (diagonals > 1 && (diagonal->rank != t->rank || diagonal->dims[t->rank - 2] != diagonals)) {
    return td_invalid_argument(
        "The number of diagonals provided in `diag` is not consistent with `lower_diag_index` and "
        "`upper_diag_index`");
  }
  int64_t expected[TD_MAX_RANK];
  for (int d = 0; d < rank; d++) expected[d] = t->dims[d];
  if (diagonals > 1) expected[rank++] = diagonals;
  expected[rank++] = b->width;
  if (td_dims_eq(rank, expected, diagonal->rank, diagonal->dims)) return TD_STATUS_OK;
  return td_invalid_argument(
      "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] is not equal to the "
      "longests diagonal in range [lower_diag_index:upper_diag_index].\nInput shape: %s\nDiagonal shape: %s\nExpected "
      "diagonal shape: %s",
      TD_SHOW(t), TD_SHOW(diagonal), td_show_dims(&(td_show_buf){.text = ""}, rank, expected));
}

static td_status matrix_set_diag_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *diagonal = td_in(ctx, 1);
  const alignment *a = ctx->state;
  band b = {.right_above = a->right_above, .right_below = a->right_below};
  if (ctx->kernel->input_count > 2) TD_TRY(band_range(td_in(ctx, 2), &b));
  TD_TRY(band_matrices(t, &b));
  TD_TRY(set_diag_check(t, diagonal, &b));
  td_tensor *out;
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &out));
  if (out->data != t->data) td_move_flat(ctx, t, 0, out, 0, t->count);
  if (out->count && diagonal->count) band_move(ctx, &b, diagonal, out, true);
  return TD_STATUS_OK;
}

/* ---- MatrixBandPart ---- */

static td_status matrix_band_part_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *lower_in = td_in(ctx, 1), *upper_in = td_in(ctx, 2);
  if (t->rank < 2) return td_invalid_argument("input must be at least 2-dim, received shape: %s", TD_SHOW(t));
  int64_t rows = t->dims[t->rank - 2], cols = t->dims[t->rank - 1];
  if (lower_in->rank) return td_invalid_argument("num_lower must be scalar, got shape %s", TD_SHOW(lower_in));
  int64_t lower = td_tensor_int_at(lower_in, 0);
  if (lower > rows) {
    return td_invalid_argument("num_lower must be negative or less or equal to number of rows (%lld) got: %lld",
                               (long long)rows, (long long)lower);
  }
  if (upper_in->rank) return td_invalid_argument("num_upper must be scalar, got shape %s", TD_SHOW(upper_in));
  int64_t upper = td_tensor_int_at(upper_in, 0);
  if (upper > cols) {
    return td_invalid_argument("num_upper must be negative or less or equal to number of columns (%lld) got: %lld",
                               (long long)cols, (long long)upper);
  }
  if (!t->count || ((lower < 0 || lower == rows) && (upper < 0 || upper == cols))) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &out));
  if (out->data != t->data) td_move_flat(ctx, t, 0, out, 0, t->count);
  int64_t all = t->count / cols;
  for (int64_t r = 0; r < all; r++) {
    int64_t i = r % rows;
    int64_t begin = lower < 0 ? 0 : TD_MIN(cols, TD_MAX(0, i - lower));
    int64_t end = upper < 0 ? cols : TD_MIN(cols, i + upper + 1);
    if (begin >= end) begin = end = cols;
    td_zero_elements(out, r * cols, begin);
    td_zero_elements(out, r * cols + end, cols - end);
  }
  return TD_STATUS_OK;
}

/* ---- tables ---- */

#define NUMBERS     "T: type in {bfloat16, half, float, double, int32, int64, complex64, complex128}"
#define ALIGN       "T: type; align: string in {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"
#define DIAG_INPUTS "diagonal: T; k: int32; num_rows: int32; num_cols: int32; padding_value: T"
static const td_op_spec ops[] = {
    {"BatchMatrixBandPart", "input: T; num_lower: int64; num_upper: int64", "band: T", "T: type", 0},
    {"BatchMatrixDiag", "diagonal: T", "output: T", "T: type", 0},
    {"BatchMatrixDiagPart", "input: T", "diagonal: T", "T: type", 0},
    {"BatchMatrixSetDiag", "input: T; diagonal: T", "output: T", "T: type", 0},
    {"Diag", "diagonal: T", "output: T", NUMBERS, 0},
    {"DiagPart", "input: T", "diagonal: T", NUMBERS, 0},
    {"MatrixBandPart", "input: T; num_lower: Tindex; num_upper: Tindex", "band: T",
     "T: type; Tindex: type in {int32, int64} = int64", 0},
    {"MatrixDiag", "diagonal: T", "output: T", "T: type", 0},
    {"MatrixDiagPart", "input: T", "diagonal: T", "T: type", 0},
    {"MatrixDiagPartV2", "input: T; k: int32; padding_value: T", "diagonal: T", "T: type", 0},
    {"MatrixDiagPartV3", "input: T; k: int32; padding_value: T", "diagonal: T", ALIGN, 0},
    {"MatrixDiagV2", DIAG_INPUTS, "output: T", "T: type", 0},
    {"MatrixDiagV3", DIAG_INPUTS, "output: T", ALIGN, 0},
    {"MatrixSetDiag", "input: T; diagonal: T", "output: T", "T: type", 0},
    {"MatrixSetDiagV2", "input: T; diagonal: T; k: int32", "output: T", "T: type", 0},
    {"MatrixSetDiagV3", "input: T; diagonal: T; k: int32", "output: T", ALIGN, 0},
};

#define BAND(name, function)                                                                           \
  {                                                                                                    \
    .op = name, .types = {{"T", TD_SET_POD}}, .state_size = sizeof(alignment), .create = align_create, \
    .compute = function                                                                                \
  }
static const td_kernel_def kernels[] = {
    {.op = "BatchMatrixBandPart", .types = {{"T", TD_SET_POD}}, .compute = matrix_band_part_compute},
    BAND("BatchMatrixDiag", matrix_diag_compute),
    BAND("BatchMatrixDiagPart", matrix_diag_part_compute),
    BAND("BatchMatrixSetDiag", matrix_set_diag_compute),
    {.op = "Diag", .compute = diag_compute},
    {.op = "DiagPart", .compute = diag_part_compute},
    {.op = "MatrixBandPart", .types = {{"T", TD_SET_POD}}, .compute = matrix_band_part_compute},
    BAND("MatrixDiag", matrix_diag_compute),
    BAND("MatrixDiagPart", matrix_diag_part_compute),
    BAND("MatrixDiagPartV2", matrix_diag_part_compute),
    BAND("MatrixDiagPartV3", matrix_diag_part_compute),
    BAND("MatrixDiagV2", matrix_diag_compute),
    BAND("MatrixDiagV3", matrix_diag_compute),
    BAND("MatrixSetDiag", matrix_set_diag_compute),
    BAND("MatrixSetDiagV2", matrix_set_diag_compute),
    BAND("MatrixSetDiagV3", matrix_set_diag_compute),
};

TD_FAMILY(diag, ops, kernels);

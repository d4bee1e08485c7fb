/* LoadAndRemapMatrix: a matrix of a checkpoint (format V2) with its rows and columns in another order. */
#include <stdlib.h>

#include "base/mem.h"
#include "checkpoint/bundle.h"
#include "ops/blocking.h"
#include "ops/families.h"

static const td_op_spec ops[] = {
    {"LoadAndRemapMatrix",
     "ckpt_path: string; old_tensor_name: string; row_remapping: int64; col_remapping: int64; initializing_values: "
     "float",
     "output_matrix: float", "num_rows: int >= 0; num_cols: int >= 1; max_rows_in_memory: int = -1", TD_OP_STATEFUL},
};

typedef struct remap_state {
  int64_t rows, cols, max_rows;
} remap_state;

static td_status remap_create(td_kernel_builder *b, void *state) {
  remap_state *st = state;
  TD_TRY(td_attr_int(b->node, "num_rows", &st->rows));
  TD_TRY(td_attr_int(b->node, "num_cols", &st->cols));
  return td_attr_int(b->node, "max_rows_in_memory", &st->max_rows);
}

/* An old row (or column) and where it goes. */
typedef struct move {
  int64_t from, to;
} move;

static int by_from(const void *a, const void *b) {
  int64_t x = ((const move *)a)->from, y = ((const move *)b)->from;
  return (x > y) - (x < y);
}

/* What is there of `old_count` rows, sorted by where it comes from. *out is td_free()d by the caller. */
static td_status read_moves(const td_tensor *remapping, int64_t old_count, move **out, size_t *count) {
  move *m = *out = td_new_array(move, (size_t)remapping->count + 1);
  size_t n = 0;
  for (int64_t i = 0; i < remapping->count; i++) {
    int64_t from = TD_DATA(remapping, int64_t)[i];
    if (from >= old_count)
      return td_invalid_argument("remapping[%lld] is %lld, but there are only %lld in the checkpoint", (long long)i,
                                 (long long)from, (long long)old_count);
    if (from >= 0) m[n++] = (move){from, i};
  }
  qsort(m, n, sizeof *m, by_from);
  for (size_t i = 1; i < n; i++)
    if (m[i].from == m[i - 1].from)
      return td_unimplemented("Old ID %lld is mapped to both new ID %lld and %lld, which is not currently supported.",
                              (long long)m[i].from, (long long)m[i - 1].to, (long long)m[i].to);
  *count = n;
  return TD_STATUS_OK;
}

typedef struct remapping {
  td_bundle_reader *reader;
  td_str name;
  int64_t old_rows, old_cols;
  move *rows, *cols; /* cols NULL: as they are */
  size_t row_count, col_count;
  bool *has_row, *has_col; /* by new number; has_col NULL: all */
} remapping;

static td_status find_matrix(remapping *r, const remap_state *st, bool remaps_cols) {
  td_dtype dtype;
  td_shape shape;
  TD_TRY(td_bundle_lookup(r->reader, r->name, &dtype, &shape));
  if (dtype != TD_FLOAT)
    return td_invalid_argument("Tensor %.*s has invalid type %s instead of expected type float", TD_STR_ARG(r->name),
                               td_dtype_name(dtype));
  if (shape.rank != 2)
    return td_invalid_argument("Tensor %.*s has invalid rank %d instead of expected rank 2", TD_STR_ARG(r->name),
                               shape.rank);
  if (!remaps_cols && shape.dims[1] != st->cols)
    return td_invalid_argument("Tensor %.*s has %lld columns instead of num_cols=%lld", TD_STR_ARG(r->name),
                               (long long)shape.dims[1], (long long)st->cols);
  r->old_rows = shape.dims[0];
  r->old_cols = shape.dims[1];
  return TD_STATUS_OK;
}

static void place_row(const remapping *r, const float *from, float *to) {
  if (!r->cols) {
    memcpy(to, from, (size_t)r->old_cols * sizeof *to);
    return;
  }
  for (size_t k = 0; k < r->col_count; k++) to[r->cols[k].to] = from[r->cols[k].from];
}

/* Old rows [begin, end), of which moves [first, last) are wanted. */
static td_status load_block(const remapping *r, size_t first, size_t last, const remap_state *st, float *out) {
  int64_t begin = r->rows[first].from;
  td_slice slice = {.rank = 2, .start = {begin, 0}, .length = {r->rows[last - 1].from + 1 - begin, r->old_cols}};
  td_bundle_plan *plan = NULL;
  td_tensor *block = NULL;
  td_status status = td_bundle_plan_create(r->reader, r->name, &slice, &plan);
  if (!status) status = td_bundle_read(plan, &block);
  for (size_t i = first; !status && i < last; i++)
    place_row(r, TD_DATA(block, float) + (r->rows[i].from - begin) * r->old_cols, out + r->rows[i].to * st->cols);
  td_tensor_release(block);
  td_bundle_plan_destroy(plan);
  return status;
}

static td_status load(const remapping *r, const remap_state *st, float *out) {
  for (size_t first = 0, last; first < r->row_count; first = last) {
    last = first + 1;
    while (last < r->row_count && (st->max_rows <= 0 || r->rows[last].from - r->rows[first].from < st->max_rows))
      last++;
    TD_TRY(load_block(r, first, last, st, out));
  }
  return TD_STATUS_OK;
}

/* What the checkpoint does not have, row by row. */
static td_status fill_missing(const remapping *r, const remap_state *st, const td_tensor *values, float *out) {
  int64_t used = 0;
  for (int64_t i = 0; i < st->rows; i++) {
    for (int64_t j = 0; j < st->cols; j++) {
      if (r->has_row[i] && (!r->has_col || r->has_col[j])) continue;
      if (used == values->count)
        return td_invalid_argument("initializing_values contained %lld elements, but more missing values remain.",
                                   (long long)values->count);
      out[i * st->cols + j] = TD_DATA(values, float)[used++];
    }
  }
  if (used == values->count) return TD_STATUS_OK;
  return td_invalid_argument(
      "initializing_values contained %lld elements, but only %lld elements were used to fill in missing values.",
      (long long)values->count, (long long)used);
}

static td_status check_inputs(td_kernel_ctx *ctx) {
  const remap_state *st = ctx->state;
  const td_tensor *rows = td_in(ctx, 2), *cols = td_in(ctx, 3);
  if (td_in(ctx, 0)->count != 1 || td_in(ctx, 1)->count != 1)
    return td_invalid_argument("ckpt_path and old_tensor_name must have exactly one element each");
  if (rows->rank != 1 || rows->count != st->rows)
    return td_invalid_argument("Size of row_remapping is %lld instead of being equal to num_rows=%lld",
                               (long long)rows->count, (long long)st->rows);
  if (cols->count && (cols->rank != 1 || cols->count != st->cols))
    return td_invalid_argument("Provided col_remapping, but its size is %lld instead of being equal to num_cols=%lld",
                               (long long)cols->count, (long long)st->cols);
  return TD_STATUS_OK;
}

static bool *present(const move *moves, size_t count, int64_t all) {
  bool *has = td_new_array(bool, (size_t)all + 1);
  for (size_t i = 0; i < count; i++) has[moves[i].to] = true;
  return has;
}

static td_status remap_compute(td_kernel_ctx *ctx) {
  const remap_state *st = ctx->state;
  TD_TRY(check_inputs(ctx));
  bool remaps_cols = td_in(ctx, 3)->count;
  remapping r = {.name = td_string_view(TD_DATA(td_in(ctx, 1), td_string))};
  td_status status = TD_STATUS_OK;
  td_tensor *out;
  TD_TRY_GOTO(td_bundle_reader_open(td_string_view(TD_DATA(td_in(ctx, 0), td_string)), false, &r.reader));
  TD_TRY_GOTO(find_matrix(&r, st, remaps_cols));
  TD_TRY_GOTO(read_moves(td_in(ctx, 2), r.old_rows, &r.rows, &r.row_count));
  r.has_row = present(r.rows, r.row_count, st->rows);
  if (remaps_cols) {
    TD_TRY_GOTO(read_moves(td_in(ctx, 3), r.old_cols, &r.cols, &r.col_count));
    r.has_col = present(r.cols, r.col_count, st->cols);
  }
  TD_TRY_GOTO(td_out_alloc_dims(ctx, 0, 2, (int64_t[]){st->rows, st->cols}, &out));
  TD_TRY_GOTO(load(&r, st, TD_DATA(out, float)));
  TD_TRY_GOTO(fill_missing(&r, st, td_in(ctx, 4), TD_DATA(out, float)));
cleanup:
  td_free(r.rows);
  td_free(r.cols);
  td_free(r.has_row);
  td_free(r.has_col);
  td_bundle_reader_close(r.reader);
  return status;
}
TD_BLOCKING(remap_compute)

static const td_kernel_def kernels[] = {
    {.op = "LoadAndRemapMatrix",
     .state_size = sizeof(remap_state),
     .create = remap_create,
     .compute_async = remap_compute_async},
};

TD_FAMILY(remap_matrix, ops, kernels);

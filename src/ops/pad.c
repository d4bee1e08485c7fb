/* Tensors grown at their borders or repeated: Pad, PadV2, MirrorPad and its gradient, Tile and its gradient. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/rows.h"

/* ---- paddings ---- */

typedef struct borders {
  int64_t before[TD_MAX_RANK], after[TD_MAX_RANK];
} borders;

/* `grow`: adds them to the shape (Pad); else takes them away (MirrorPadGrad). */
static td_status paddings_of(const td_tensor *t, const td_tensor *paddings, bool grow, borders *b, int64_t *dims,
                             bool *any) {
  if (paddings->rank != 2 || paddings->dims[1] != 2) {
    return td_invalid_argument("paddings must be a matrix with 2 columns: %s", TD_SHOW(paddings));
  }
  if (paddings->dims[0] != t->rank) {
    return td_invalid_argument("The first dimension of paddings must be the rank of inputs%s %s", TD_SHOW(paddings),
                               TD_SHOW(t));
  }
  *any = false;
  for (int d = 0; d < t->rank; d++) {
    int64_t before = td_tensor_int_at(paddings, 2 * d), after = td_tensor_int_at(paddings, 2 * d + 1), sum;
    if (before < 0 || after < 0) {
      return td_invalid_argument("Paddings must be non-negative: %lld %lld", (long long)before, (long long)after);
    }
    if (__builtin_add_overflow(before, after, &sum) || (grow && __builtin_add_overflow(sum, t->dims[d], &dims[d]))) {
      return td_invalid_argument("Paddings %lld and %lld are too large for dimension %d of %s", (long long)before,
                                 (long long)after, d, TD_SHOW(t));
    }
    if (!grow) dims[d] = t->dims[d] - sum;
    b->before[d] = before;
    b->after[d] = after;
    *any |= sum != 0;
  }
  return TD_STATUS_OK;
}

/* Copies all of `t` to the place inside `out` that the borders leave. */
static void place_inside(td_kernel_ctx *ctx, const td_tensor *t, const borders *b, td_tensor *out) {
  int64_t from[TD_MAX_RANK], to[TD_MAX_RANK], at = 0;
  td_strides(t->rank, t->dims, from);
  td_strides(out->rank, out->dims, to);
  td_move m;
  m.rank = 0;
  for (int d = 0; d < t->rank; d++) {
    at += b->before[d] * to[d];
    td_move_add(&m, t->dims[d], from[d], to[d]);
  }
  td_move_run(ctx, &m, t, 0, out, at);
}

/* ---- Pad ---- */

static td_status pad(td_kernel_ctx *ctx, const td_tensor *value) {
  const td_tensor *t = td_in(ctx, 0);
  borders b;
  int64_t dims[TD_MAX_RANK];
  bool any = true;
  TD_TRY(paddings_of(t, td_in(ctx, 1), true, &b, dims, &any));
  if (!any) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, t->rank, dims, &out));
  if (value) {
    td_fill_elements(out, 0, out->count, value, 0);
  } else {
    td_zero_elements(out, 0, out->count);
  }
  if (t->count) place_inside(ctx, t, &b, out);
  return TD_STATUS_OK;
}

static td_status pad_compute(td_kernel_ctx *ctx) { return pad(ctx, NULL); }
static td_status pad_v2_compute(td_kernel_ctx *ctx) {
  const td_tensor *value = td_in(ctx, 2);
  if (value->rank) return td_invalid_argument("constant_values must be a scalar. Found: %s", TD_SHOW(value));
  return pad(ctx, value);
}

/* ---- MirrorPad ---- */

typedef struct mirror {
  int offset; /* 0: SYMMETRIC, the border element is repeated; 1: REFLECT, it is not */
} mirror;

static td_status mirror_create(td_kernel_builder *b, void *state) {
  td_str mode;
  TD_TRY(td_attr_str(b->node, "mode", &mode));
  bool reflect = td_str_is(mode, "REFLECT");
  if (!reflect && !td_str_is(mode, "SYMMETRIC"))
    return td_invalid_argument("mode must be either REFLECT or SYMMETRIC.");
  ((mirror *)state)->offset = reflect;
  return TD_STATUS_OK;
}

/* Mirrors can give no more than there is. `size`: of the dimension without its borders. */
static td_status mirror_check(const mirror *s, int64_t before, int64_t after, int64_t size, const char *what) {
  if (!s->offset && (before > size || after > size)) {
    return td_invalid_argument("paddings must be no greater than the %sdimension size: %lld, %lld greater than %lld",
                               what, (long long)before, (long long)after, (long long)size);
  }
  if (s->offset && (before >= size || after >= size)) {
    return td_invalid_argument("paddings must be less than the %sdimension size: %lld, %lld not less than %lld", what,
                               (long long)before, (long long)after, (long long)size);
  }
  return TD_STATUS_OK;
}

/* A border of dimension `d` and the elements it mirrors, in one padded tensor: `n` planes, from the inside out. */
typedef struct fold {
  int64_t n, border, source; /* elements: where the innermost border plane and its mirror image start */
} fold;

static fold fold_of(const mirror *s, const borders *b, const int64_t *dims, const int64_t *strides, int d, bool front) {
  int64_t first = b->before[d], last = dims[d] - b->after[d] - 1; /* of the inside */
  if (front) return (fold){b->before[d], (first - 1) * strides[d], (first + s->offset) * strides[d]};
  return (fold){b->after[d], (last + 1) * strides[d], (last - s->offset) * strides[d]};
}

static td_status mirror_pad_compute(td_kernel_ctx *ctx) {
  const mirror *s = ctx->state;
  const td_tensor *t = td_in(ctx, 0);
  borders b;
  int64_t dims[TD_MAX_RANK], strides[TD_MAX_RANK];
  bool any = true;
  TD_TRY(paddings_of(t, td_in(ctx, 1), true, &b, dims, &any));
  for (int d = 0; d < t->rank; d++) TD_TRY(mirror_check(s, b.before[d], b.after[d], t->dims[d], ""));
  if (!any) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, t->rank, dims, &out));
  if (!out->count) return TD_STATUS_OK;
  place_inside(ctx, t, &b, out);
  td_strides(t->rank, dims, strides);
  /* dimension by dimension from the last: later ones are complete already, earlier ones still only the inside */
  for (int d = t->rank - 1; d >= 0; d--) {
    for (int front = 0; front < 2; front++) {
      fold f = fold_of(s, &b, dims, strides, d, front);
      int64_t out_step = front ? -strides[d] : strides[d], at = 0;
      td_move m;
      m.rank = 0;
      for (int k = 0; k < t->rank; k++) {
        if (k < d) {
          at += b.before[k] * strides[k];
          td_move_add(&m, t->dims[k], strides[k], strides[k]);
        } else if (k == d) {
          td_move_add(&m, f.n, -out_step, out_step);
        } else {
          td_move_add(&m, dims[k], strides[k], strides[k]);
        }
      }
      td_move_run(ctx, &m, out, at + f.source, out, at + f.border);
    }
  }
  return TD_STATUS_OK;
}

/* Adds the border planes of dimension `d` onto what they mirror. */
static void fold_back(td_tensor *t, td_rows_fn *add, const borders *b, const int64_t *strides, int d, const fold *f,
                      bool front) {
  int64_t outer = 1, at[TD_MAX_RANK] = {0}, base = 0;
  size_t size = td_dtype_size((td_dtype)t->dtype);
  for (int k = 0; k < d; k++) {
    outer *= t->dims[k] - b->before[k] - b->after[k];
    base += b->before[k] * strides[k];
  }
  for (int64_t o = 0; o < outer; o++) {
    for (int64_t i = 0; i < f->n; i++) {
      int64_t step = (front ? -i : i) * strides[d];
      add((char *)t->data + (size_t)(base + f->source - step) * size,
          (const char *)t->data + (size_t)(base + f->border + step) * size, strides[d], false);
    }
    for (int k = d - 1; k >= 0; k--) {
      base += strides[k];
      int64_t inside = t->dims[k] - b->before[k] - b->after[k];
      if (++at[k] < inside) break;
      base -= inside * strides[k];
      at[k] = 0;
    }
  }
}

static td_status mirror_pad_grad_compute(td_kernel_ctx *ctx) {
  const mirror *s = ctx->state;
  const td_tensor *t = td_in(ctx, 0);
  borders b;
  int64_t dims[TD_MAX_RANK], strides[TD_MAX_RANK];
  bool any = true;
  TD_TRY(paddings_of(t, td_in(ctx, 1), false, &b, dims, &any));
  for (int d = 0; d < t->rank; d++) TD_TRY(mirror_check(s, b.before[d], b.after[d], dims[d], "output "));
  td_rows_fn *add = td_rows(TD_ROWS_ADD, (td_dtype)t->dtype);
  if (!add) return td_unimplemented("MirrorPadGrad of type %s is not supported", td_dtype_name(t->dtype));
  if (!any) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *out, *sums;
  TD_TRY(td_out_alloc_dims(ctx, 0, t->rank, dims, &out));
  if (!out->count) return TD_STATUS_OK;
  TD_TRY(td_tensor_copy(t, &sums));
  td_strides(t->rank, t->dims, strides);
  for (int d = 0; d < t->rank; d++) {
    for (int front = 1; front >= 0; front--) {
      fold f = fold_of(s, &b, t->dims, strides, d, front);
      fold_back(sums, add, &b, strides, d, &f, front);
    }
  }
  int64_t to[TD_MAX_RANK], at = 0;
  td_strides(t->rank, dims, to);
  td_move m;
  m.rank = 0;
  for (int d = 0; d < t->rank; d++) {
    at += b.before[d] * strides[d];
    td_move_add(&m, dims[d], strides[d], to[d]);
  }
  td_move_run(ctx, &m, sums, at, out, 0);
  td_tensor_release(sums);
  return TD_STATUS_OK;
}

/* ---- Tile ---- */

static td_status multiples_check(const td_tensor *t, const td_tensor *multiples) {
  if (multiples->rank != 1) {
    return td_invalid_argument("Expected multiples to be 1-D, but got shape %s", TD_SHOW(multiples));
  }
  if (multiples->count != t->rank) {
    return td_invalid_argument("Expected multiples argument to be a vector of length %d but got length %lld", t->rank,
                               (long long)multiples->count);
  }
  return TD_STATUS_OK;
}

static td_status tile_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *multiples = td_in(ctx, 1);
  TD_TRY(multiples_check(t, multiples));
  int64_t dims[TD_MAX_RANK], times[TD_MAX_RANK], from[TD_MAX_RANK], to[TD_MAX_RANK];
  bool once = true;
  for (int d = 0; d < t->rank; d++) {
    times[d] = td_tensor_int_at(multiples, d);
    if (times[d] < 0) {
      return td_invalid_argument("Expected multiples[%d] >= 0, but got %lld", d, (long long)times[d]);
    }
    if (__builtin_mul_overflow(t->dims[d], times[d], &dims[d])) {
      return td_invalid_argument("multiples[%d] = %lld makes dimension %d of %s exceed 2**63 - 1", d,
                                 (long long)times[d], d, TD_SHOW(t));
    }
    once &= times[d] == 1;
  }
  if (once) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, t->rank, dims, &out));
  if (!out->count) return TD_STATUS_OK;
  td_strides(t->rank, t->dims, from);
  td_strides(t->rank, dims, to);
  td_move m;
  m.rank = 0;
  for (int d = 0; d < t->rank; d++) {
    td_move_add(&m, times[d], 0, t->dims[d] * to[d]);
    td_move_add(&m, t->dims[d], from[d], to[d]);
  }
  td_move_run(ctx, &m, t, 0, out, 0);
  return TD_STATUS_OK;
}

/* Adds the tile that starts at element `at` of `t` to `out`, row by row. */
static void add_tile(const td_tensor *t, int64_t at, const int64_t *strides, td_rows_fn *add, td_tensor *out) {
  int last = t->rank - 1;
  int64_t row = out->dims[last], pos[TD_MAX_RANK] = {0};
  size_t size = td_dtype_size((td_dtype)t->dtype);
  for (int64_t to = 0; to < out->count; to += row) {
    add((char *)out->data + (size_t)to * size, (const char *)t->data + (size_t)at * size, row, false);
    for (int d = last - 1; d >= 0; d--) {
      at += strides[d];
      if (++pos[d] < out->dims[d]) break;
      at -= out->dims[d] * strides[d];
      pos[d] = 0;
    }
  }
}

static td_status tile_grad_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *multiples = td_in(ctx, 1);
  TD_TRY(multiples_check(t, multiples));
  td_rows_fn *add = td_rows(TD_ROWS_ADD, (td_dtype)t->dtype);
  if (!add) return td_unimplemented("TileGrad of type %s is not supported", td_dtype_name(t->dtype));
  int64_t dims[TD_MAX_RANK], times[TD_MAX_RANK], strides[TD_MAX_RANK], tile[TD_MAX_RANK] = {0}, at = 0;
  for (int d = 0; d < t->rank; d++) {
    times[d] = td_tensor_int_at(multiples, d);
    if (times[d] <= 0) return td_invalid_argument("Expected multiples[%d] > 0, but got %lld", d, (long long)times[d]);
    if (t->dims[d] % times[d]) {
      return td_invalid_argument("Expected input_dim[%d] to be divisible by multiples[%d], but %lld %% %lld != 0", d, d,
                                 (long long)t->dims[d], (long long)times[d]);
    }
    dims[d] = t->dims[d] / times[d];
  }
  if (!t->rank) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, t->rank, dims, &out));
  if (!out->count) return TD_STATUS_OK;
  td_zero_elements(out, 0, out->count);
  td_strides(t->rank, t->dims, strides);
  for (int64_t tiles = t->count / out->count; tiles > 0; tiles--) {
    add_tile(t, at, strides, add, out);
    for (int d = t->rank - 1; d >= 0; d--) {
      at += dims[d] * strides[d];
      if (++tile[d] < times[d]) break;
      at -= t->dims[d] * strides[d];
      tile[d] = 0;
    }
  }
  return TD_STATUS_OK;
}

/* ---- tables ---- */

#define PADDINGS "T: type; Tpaddings: type in {int32, int64} = int32"
static const td_op_spec ops[] = {
    {"MirrorPad", "input: T; paddings: Tpaddings", "output: T", PADDINGS "; mode: string in {'REFLECT', 'SYMMETRIC'}",
     0},
    {"MirrorPadGrad", "input: T; paddings: Tpaddings", "output: T",
     PADDINGS "; mode: string in {'REFLECT', 'SYMMETRIC'}", 0},
    {"Pad", "input: T; paddings: Tpaddings", "output: T", PADDINGS, 0},
    {"PadV2", "input: T; paddings: Tpaddings; constant_values: T", "output: T", PADDINGS, 0},
    {"Tile", "input: T; multiples: Tmultiples", "output: T", "T: type; Tmultiples: type in {int32, int64} = int32", 0},
    {"TileGrad", "input: T; multiples: int32", "output: T", "T: type", 0},
};

static const td_kernel_def kernels[] = {
    {.op = "MirrorPad", .state_size = sizeof(mirror), .create = mirror_create, .compute = mirror_pad_compute},
    {.op = "MirrorPadGrad",
     .types = {{"T", TD_SET_NUMBER}},
     .state_size = sizeof(mirror),
     .create = mirror_create,
     .compute = mirror_pad_grad_compute},
    {.op = "Pad", .compute = pad_compute},
    {.op = "PadV2", .compute = pad_v2_compute},
    {.op = "Tile", .compute = tile_compute},
    {.op = "TileGrad", .types = {{"T", TD_SET_NUMBER}}, .compute = tile_grad_compute},
};

TD_FAMILY(pad, ops, kernels);

/* The same elements in another order: Transpose, ConjugateTranspose, Reverse, ReverseV2, ReverseSequence, Roll. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"

/* ---- Transpose ---- */

static td_status missing_axis(const td_tensor *perm, int axis) {
  td_strbuf b = {0};
  for (int64_t i = 0; i < perm->count; i++)
    td_strbuf_printf(&b, "%s%lld", i ? "," : "", (long long)td_tensor_int_at(perm, i));
  td_status s = td_invalid_argument("%d is missing from {%s}.", axis, td_strbuf_cstr(&b));
  td_strbuf_deinit(&b);
  return s;
}

/* Checks the permutation. *plain: only dimensions of one element change places. */
static td_status permutation(const td_tensor *x, const td_tensor *perm, int *axes, bool *plain) {
  if (perm->rank != 1) return td_invalid_argument("perm must be a vector, not %s", TD_SHOW(perm));
  if (perm->count != x->rank) {
    return td_invalid_argument("transpose expects a vector of size %d. But input(1) is a vector of size %lld", x->rank,
                               (long long)perm->count);
  }
  bool used[TD_MAX_RANK + 1] = {false};
  int last = -1;
  *plain = true;
  for (int i = 0; i < x->rank; i++) {
    int64_t d = td_tensor_int_at(perm, i);
    if (d < -x->rank || d >= x->rank) {
      return td_invalid_argument("%lld is out of range [0 .. %d)", (long long)d, x->rank);
    }
    axes[i] = (int)(d < 0 ? d + x->rank : d);
    used[axes[i]] = true;
    if (x->dims[axes[i]] == 1) continue;
    *plain &= axes[i] > last;
    last = axes[i];
  }
  for (int i = 0; i < x->rank; i++)
    if (!used[i]) return missing_axis(perm, i);
  return TD_STATUS_OK;
}

static void conjugate(td_tensor *t) {
  if (t->dtype == TD_COMPLEX64) {
    float *f = TD_DATA(t, float);
    for (int64_t i = 0; i < t->count; i++) f[2 * i + 1] = -f[2 * i + 1];
  } else if (t->dtype == TD_COMPLEX128) {
    double *f = TD_DATA(t, double);
    for (int64_t i = 0; i < t->count; i++) f[2 * i + 1] = -f[2 * i + 1];
  }
}

static td_status transpose(td_kernel_ctx *ctx, bool conjugated) {
  const td_tensor *x = td_in(ctx, 0);
  int axes[TD_MAX_RANK];
  bool plain = false;
  TD_TRY(permutation(x, td_in(ctx, 1), axes, &plain));
  int64_t dims[TD_MAX_RANK], strides[TD_MAX_RANK], to[TD_MAX_RANK];
  for (int i = 0; i < x->rank; i++) dims[i] = x->dims[axes[i]];
  conjugated &= td_dtype_in((td_dtype)x->dtype, TD_SET_COMPLEX);
  if (plain && !conjugated) {
    td_out_reshaped(ctx, 0, 0, x->rank, dims);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, x->rank, dims, &out));
  td_strides(x->rank, x->dims, strides);
  td_strides(x->rank, dims, to);
  td_move m;
  m.rank = 0;
  for (int i = 0; i < x->rank; i++) td_move_add(&m, dims[i], strides[axes[i]], to[i]);
  td_move_run(ctx, &m, x, 0, out, 0);
  if (conjugated) conjugate(out);
  return TD_STATUS_OK;
}

static td_status transpose_compute(td_kernel_ctx *ctx) { return transpose(ctx, false); }
static td_status conjugate_transpose_compute(td_kernel_ctx *ctx) { return transpose(ctx, true); }

/* ---- Reverse ---- */

static td_status reverse(td_kernel_ctx *ctx, const bool *reversed) {
  const td_tensor *x = td_in(ctx, 0);
  bool any = false;
  for (int i = 0; i < x->rank; i++) any |= reversed[i] && x->dims[i] > 1;
  if (!any) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, x, &out));
  if (!out->count) return TD_STATUS_OK;
  int64_t strides[TD_MAX_RANK], at = 0;
  td_strides(x->rank, x->dims, strides);
  td_move m;
  m.rank = 0;
  for (int i = 0; i < x->rank; i++) {
    if (reversed[i]) at += (x->dims[i] - 1) * strides[i];
    td_move_add(&m, x->dims[i], reversed[i] ? -strides[i] : strides[i], strides[i]);
  }
  td_move_run(ctx, &m, x, at, out, 0);
  return TD_STATUS_OK;
}

static td_status reverse_compute(td_kernel_ctx *ctx) {
  const td_tensor *x = td_in(ctx, 0), *dims = td_in(ctx, 1);
  if (dims->rank != 1) return td_invalid_argument("'dims' must be 1-dimension, not %d", dims->rank);
  if (dims->count != x->rank) {
    return td_invalid_argument(
        "'dims' must have the same number of values as 'input' has dimensions. 'input' has %d'dims' "
        "has %lld values",
        x->rank, (long long)dims->count);
  }
  bool reversed[TD_MAX_RANK + 1];
  for (int i = 0; i < x->rank; i++) reversed[i] = TD_DATA(dims, uint8_t)[i] != 0;
  return reverse(ctx, reversed);
}

static td_status reverse_v2_compute(td_kernel_ctx *ctx) {
  const td_tensor *x = td_in(ctx, 0), *axes = td_in(ctx, 1);
  if (axes->rank != 1) return td_invalid_argument("'dims' must be 1-dimension, not %d", axes->rank);
  bool reversed[TD_MAX_RANK + 1] = {false};
  for (int64_t i = 0; i < axes->count; i++) {
    int64_t given = td_tensor_int_at(axes, i), axis = given < 0 ? given + x->rank : given;
    if (axis < 0 || axis >= x->rank) {
      return td_invalid_argument("'axis'[%lld] = %lld is out of valid range [0, %d", (long long)i, (long long)given,
                                 x->rank - 1);
    }
    if (reversed[axis]) return td_invalid_argument("axis %lld specified more than once.", (long long)axis);
    reversed[axis] = true;
  }
  return reverse(ctx, reversed);
}

/* ---- ReverseSequence ---- */

typedef struct sequence {
  int64_t seq_dim, batch_dim;
} sequence;

static td_status sequence_create(td_kernel_builder *b, void *state) {
  sequence *s = state;
  TD_TRY(td_attr_int(b->node, "seq_dim", &s->seq_dim));
  return td_attr_int(b->node, "batch_dim", &s->batch_dim);
}

static td_status sequence_check(const sequence *s, const td_tensor *x, const td_tensor *lengths) {
  if (lengths->rank != 1) return td_invalid_argument("seq_lens input must be 1-dim, not %d", lengths->rank);
  if (s->batch_dim == s->seq_dim) return td_invalid_argument("batch_dim == seq_dim == %lld", (long long)s->seq_dim);
  if (s->seq_dim < 0 || s->seq_dim >= x->rank) {
    return td_invalid_argument("seq_dim must be < input.dims()( %lld vs. %d)", (long long)s->seq_dim, x->rank);
  }
  if (s->batch_dim < 0 || s->batch_dim >= x->rank) {
    return td_invalid_argument("batch_dim must be < input.dims()( %lld vs. %d)", (long long)s->batch_dim, x->rank);
  }
  if (lengths->count != x->dims[s->batch_dim]) {
    return td_invalid_argument("len(seq_lens) != input.dims(%lld), (%lld vs. %lld)", (long long)s->batch_dim,
                               (long long)lengths->count, (long long)x->dims[s->batch_dim]);
  }
  for (int64_t i = 0; i < lengths->count; i++) {
    int64_t n = td_tensor_int_at(lengths, i);
    if (n < 0) return td_invalid_argument("seq_lens(%lld) < 0", (long long)i);
    if (n > x->dims[s->seq_dim]) {
      return td_invalid_argument("seq_lens(%lld) > input.dims(%lld)", (long long)i, (long long)s->seq_dim);
    }
  }
  return TD_STATUS_OK;
}

/* Copies positions [begin, begin + n) of one sequence, backwards if `reversed`. */
static void sequence_part(td_kernel_ctx *ctx, const sequence *s, const td_tensor *x, const int64_t *strides, int64_t b,
                          int64_t begin, int64_t n, bool reversed, td_tensor *out) {
  td_move m;
  m.rank = 0;
  for (int d = 0; d < x->rank; d++) {
    if (d == s->batch_dim) continue;
    if (d == s->seq_dim) {
      td_move_add(&m, n, reversed ? -strides[d] : strides[d], strides[d]);
    } else {
      td_move_add(&m, x->dims[d], strides[d], strides[d]);
    }
  }
  int64_t to = b * strides[s->batch_dim] + begin * strides[s->seq_dim];
  td_move_run(ctx, &m, x, reversed && n > 0 ? to + (n - 1) * strides[s->seq_dim] : to, out, to);
}

static td_status reverse_sequence_compute(td_kernel_ctx *ctx) {
  const sequence *s = ctx->state;
  const td_tensor *x = td_in(ctx, 0), *lengths = td_in(ctx, 1);
  TD_TRY(sequence_check(s, x, lengths));
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, x, &out));
  if (!out->count) return TD_STATUS_OK;
  int64_t strides[TD_MAX_RANK], length = x->dims[s->seq_dim];
  td_strides(x->rank, x->dims, strides);
  for (int64_t b = 0; b < lengths->count; b++) {
    int64_t n = td_tensor_int_at(lengths, b);
    n = n < 0 ? 0 : TD_MIN(n, length); /* checked, but the tensor may be a variable's */
    sequence_part(ctx, s, x, strides, b, 0, n, true, out);
    sequence_part(ctx, s, x, strides, b, n, length - n, false, out);
  }
  return TD_STATUS_OK;
}

/* ---- Roll ---- */

/* Sums the shifts of each axis into [0, dim). */
static td_status roll_shifts(const td_tensor *x, const td_tensor *shift, const td_tensor *axis, int64_t *by) {
  if (!x->rank) return td_invalid_argument("input must be 1-D or higher");
  if (shift->rank > 1) return td_invalid_argument("shift must be a scalar or a 1-D vector. Found: %s", TD_SHOW(shift));
  if (axis->rank > 1) return td_invalid_argument("axis must be a scalar or a 1-D vector. Found: %s", TD_SHOW(axis));
  if (!td_tensor_same_shape(shift, axis)) return td_invalid_argument("shift and axis must have the same size");
  for (int d = 0; d < x->rank; d++) by[d] = 0;
  for (int64_t i = 0; i < shift->count; i++) {
    int64_t given = td_tensor_int_at(axis, i), a = given < 0 ? given + x->rank : given;
    if (a < 0 || a >= x->rank) return td_invalid_argument("axis %lld is out of range", (long long)given);
    int64_t dim = TD_MAX(x->dims[a], 1), s = td_tensor_int_at(shift, i) % dim;
    if (s < 0) s += dim;
    by[a] += s;
    if (by[a] >= dim) by[a] -= dim;
  }
  return TD_STATUS_OK;
}

static td_status roll_compute(td_kernel_ctx *ctx) {
  const td_tensor *x = td_in(ctx, 0);
  int64_t by[TD_MAX_RANK], strides[TD_MAX_RANK];
  TD_TRY(roll_shifts(x, td_in(ctx, 1), td_in(ctx, 2), by));
  int rolled = 0;
  for (int d = 0; d < x->rank; d++) rolled += by[d] != 0;
  if (!rolled) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, x, &out));
  if (!out->count) return TD_STATUS_OK;
  td_strides(x->rank, x->dims, strides);
  /* each rolled dimension falls into two parts that trade places; it has two elements or more, so there are no more
   * combinations of parts than elements */
  for (uint64_t parts = 0; parts < (uint64_t)1 << rolled; parts++) {
    td_move m;
    m.rank = 0;
    int64_t from = 0, to = 0;
    int bit = 0;
    for (int d = 0; d < x->rank; d++) {
      int64_t n = x->dims[d];
      if (by[d]) {
        if (parts >> bit++ & 1) { /* the tail wraps around to the front */
          from += (n - by[d]) * strides[d];
          n = by[d];
        } else {
          to += by[d] * strides[d];
          n -= by[d];
        }
      }
      td_move_add(&m, n, strides[d], strides[d]);
    }
    td_move_run(ctx, &m, x, from, out, to);
  }
  return TD_STATUS_OK;
}

/* ---- tables ---- */

#define REVERSIBLE                                                                                              \
  "T: type in {uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, half, float, double, " \
  "complex64, complex128, string}"
static const td_op_spec ops[] = {
    {"ConjugateTranspose", "x: T; perm: Tperm", "y: T", "T: type; Tperm: type in {int32, int64} = int32", 0},
    {"Reverse", "tensor: T; dims: bool", "output: T", REVERSIBLE, 0},
    {"ReverseSequence", "input: T; seq_lengths: Tlen", "output: T",
     "seq_dim: int; batch_dim: int = 0; T: type; Tlen: type in {int32, int64} = int64", 0},
    {"ReverseV2", "tensor: T; axis: Tidx", "output: T", "Tidx: type in {int32, int64} = int32; " REVERSIBLE, 0},
    {"Roll", "input: T; shift: Tshift; axis: Taxis", "output: T",
     "T: type; Tshift: type in {int32, int64}; Taxis: type in {int32, int64}", 0},
    {"Transpose", "x: T; perm: Tperm", "y: T", "T: type; Tperm: type in {int32, int64} = int32", 0},
};

static const td_kernel_def kernels[] = {
    {.op = "ConjugateTranspose", .compute = conjugate_transpose_compute},
    {.op = "Reverse", .compute = reverse_compute},
    {.op = "ReverseSequence",
     .state_size = sizeof(sequence),
     .create = sequence_create,
     .compute = reverse_sequence_compute},
    {.op = "ReverseV2", .compute = reverse_v2_compute},
    {.op = "Roll", .compute = roll_compute},
    {.op = "Transpose", .compute = transpose_compute},
};

TD_FAMILY(transpose, ops, kernels);

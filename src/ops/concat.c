/* Joining and splitting tensors along a dimension: Concat, ConcatV2, Split, SplitV, Pack, Unpack. */
#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"

/* One part of a tensor that is cut along a dimension: `outer` rows of `width` elements, `whole` apart in the
 * uncut tensor and back to back in the part. */
typedef struct cut {
  int64_t outer, width, whole, at; /* at: where the part starts in a row of the uncut tensor */
} cut;

static void join_part(td_kernel_ctx *ctx, const cut *c, const td_tensor *part, td_tensor *whole) {
  td_move m;
  m.rank = 0;
  td_move_add(&m, c->outer, c->width, c->whole);
  td_move_add(&m, c->width, 1, 1);
  td_move_run(ctx, &m, part, 0, whole, c->at);
}

static void split_part(td_kernel_ctx *ctx, const cut *c, const td_tensor *whole, td_tensor *part) {
  td_move m;
  m.rank = 0;
  td_move_add(&m, c->outer, c->whole, c->width);
  td_move_add(&m, c->width, 1, 1);
  td_move_run(ctx, &m, whole, c->at, part, 0);
}

/* ---- Concat ---- */

static td_status concat_check(td_kernel_ctx *ctx, int begin, int n, int axis, int64_t *sum) {
  const td_tensor *first = td_in(ctx, begin);
  *sum = 0;
  for (int i = 0; i < n; i++) {
    const td_tensor *t = td_in(ctx, begin + i);
    if (t->rank != first->rank) {
      return td_invalid_argument("ConcatOp : Ranks of all input tensors should match: shape[0] = %s vs. shape[%d] = %s",
                                 TD_SHOW(first), i, TD_SHOW(t));
    }
    for (int d = 0; d < t->rank; d++) {
      if (d != axis && t->dims[d] != first->dims[d]) {
        return td_invalid_argument("ConcatOp : Dimensions of inputs should match: shape[0] = %s vs. shape[%d] = %s",
                                   TD_SHOW(first), i, TD_SHOW(t));
      }
    }
    if (__builtin_add_overflow(*sum, t->dims[axis], sum)) {
      return td_invalid_argument("ConcatOp : the concatenated dimension exceeds 2**63 - 1");
    }
  }
  return TD_STATUS_OK;
}

/* Inputs [begin, begin + n) joined along the axis in input `axis_at`. */
static td_status concat(td_kernel_ctx *ctx, int begin, int axis_at, const char *axis_name) {
  const td_tensor *axis_in = td_in(ctx, axis_at), *first = td_in(ctx, begin);
  int n = ctx->kernel->input_count - 1;
  if (!td_is_legacy_scalar(axis_in)) {
    return td_invalid_argument("%s tensor should be a scalar integer, but got shape %s", axis_name, TD_SHOW(axis_in));
  }
  int64_t given = td_tensor_int_at(axis_in, 0), sum;
  if (given < -first->rank || given >= first->rank) {
    return td_invalid_argument("ConcatOp : Expected concatenating dimensions in the range [%d, %d), but got %lld",
                               -first->rank, first->rank, (long long)given);
  }
  int axis = (int)(given < 0 ? given + first->rank : given);
  TD_TRY(concat_check(ctx, begin, n, axis, &sum));
  /* all but one empty: that one is the result */
  for (int i = 0; i < n; i++) {
    if (td_in(ctx, begin + i)->dims[axis] == sum) {
      td_out_forward(ctx, begin + i, 0);
      return TD_STATUS_OK;
    }
  }
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < first->rank; d++) dims[d] = d == axis ? sum : first->dims[d];
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, first->rank, dims, &out));
  if (!out->count) return TD_STATUS_OK;
  int64_t inner = td_dims_product(dims, axis + 1, first->rank);
  cut c = {.outer = td_dims_product(dims, 0, axis), .whole = sum * inner};
  for (int i = 0; i < n; i++) {
    const td_tensor *t = td_in(ctx, begin + i);
    c.width = t->dims[axis] * inner;
    join_part(ctx, &c, t, out);
    c.at += c.width;
  }
  return TD_STATUS_OK;
}

static td_status concat_compute(td_kernel_ctx *ctx) { return concat(ctx, 1, 0, "concat_dim"); }
static td_status concat_v2_compute(td_kernel_ctx *ctx) { return concat(ctx, 0, ctx->kernel->input_count - 1, "axis"); }

/* ---- Split, SplitV ---- */

/* Cuts input `in` along `axis`; part i has sizes(arg, i) rows. The sizes are valid. */
static td_status split(td_kernel_ctx *ctx, int in, int axis, int n, int64_t (*size_of)(const void *arg, int i),
                       const void *arg) {
  const td_tensor *t = td_in(ctx, in);
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < t->rank; d++) dims[d] = t->dims[d];
  int64_t inner = td_dims_product(dims, axis + 1, t->rank), at = 0;
  cut c = {.outer = td_dims_product(dims, 0, axis), .whole = t->dims[axis] * (t->count ? inner : 0)};
  for (int i = 0; i < n; i++) {
    dims[axis] = size_of(arg, i);
    if (axis == 0) { /* rows of the first dimension lie together */
      TD_TRY(td_out_rows(ctx, in, i, at, at + dims[0], t->rank, dims));
      at += dims[0];
      continue;
    }
    td_tensor *out;
    TD_TRY(td_out_alloc_dims(ctx, i, t->rank, dims, &out));
    if (!t->count) continue;
    c.width = dims[axis] * inner;
    split_part(ctx, &c, t, out);
    c.at += c.width;
  }
  return TD_STATUS_OK;
}

static td_status split_axis(const td_tensor *t, int64_t given, int *axis) {
  if (given < -t->rank || given >= t->rank) {
    return td_invalid_argument("-input rank(-%d) <= split_dim < input rank (%d), but got %lld", t->rank, t->rank,
                               (long long)given);
  }
  *axis = (int)(given < 0 ? given + t->rank : given);
  return TD_STATUS_OK;
}

static int64_t even_size(const void *arg, int i) { return *(const int64_t *)arg; }

static td_status split_compute(td_kernel_ctx *ctx) {
  const td_tensor *dim = td_in(ctx, 0), *t = td_in(ctx, 1);
  int n = ctx->kernel->output_count, axis = 0;
  if (dim->count != 1 || dim->rank > 1) {
    return td_invalid_argument("split_dim must be a scalar but has rank %d", dim->rank);
  }
  TD_TRY(split_axis(t, td_tensor_int_at(dim, 0), &axis));
  if (t->dims[axis] % n) {
    return td_invalid_argument(
        "Number of ways to split should evenly divide the split dimension, but got split_dim %d (size = %lld) and "
        "num_split %d",
        axis, (long long)t->dims[axis], n);
  }
  if (n == 1) {
    td_out_forward(ctx, 1, 0);
    return TD_STATUS_OK;
  }
  int64_t size = t->dims[axis] / n;
  return split(ctx, 1, axis, n, even_size, &size);
}

typedef struct split_sizes {
  const td_tensor *t;
  int64_t rest; /* what -1 stands for */
} split_sizes;

static int64_t int_at(const td_tensor *t, int64_t i) {
  return t->dtype == TD_INT8 ? TD_DATA(t, int8_t)[i] : td_tensor_int_at(t, i);
}
static int64_t given_size(const void *arg, int i) {
  const split_sizes *s = arg;
  int64_t n = int_at(s->t, i);
  return n == -1 ? s->rest : n;
}

static td_status split_v_check(split_sizes *s, int n, int64_t have) {
  int64_t sum = 0;
  int unknown = -1;
  for (int i = 0; i < n; i++) {
    int64_t size = int_at(s->t, i);
    if (size == -1) {
      if (unknown >= 0) return td_invalid_argument("There can only be one -1 in the input.");
      unknown = i;
    } else if (size < 0) {
      return td_invalid_argument("Split size at index %d must be >= 0. Got: %lld", i, (long long)size);
    } else if (__builtin_add_overflow(sum, size, &sum)) {
      return td_invalid_argument("Split sizes add up to more than 2**63 - 1");
    }
  }
  if (unknown < 0 ? sum != have : sum > have) {
    return td_invalid_argument(
        "Determined shape must either match input shape along split_dim exactly if fully specified, or be less than "
        "the size of the input along split_dim if not fully specified.  Got: %lld",
        (long long)sum);
  }
  s->rest = have - sum;
  return TD_STATUS_OK;
}

static td_status split_v_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0), *dim = td_in(ctx, 2);
  split_sizes s = {.t = td_in(ctx, 1)};
  int n = ctx->kernel->output_count, axis = 0;
  if (dim->count != 1) return td_invalid_argument("split_dim_tensor must have exactly one element.");
  if (s.t->rank != 1 || s.t->count != n) {
    return td_invalid_argument(
        "size of the split_tensor must be 1-D and have the same elements as outputs got %d -D and %lld elements",
        s.t->rank, (long long)s.t->count);
  }
  TD_TRY(split_axis(t, td_tensor_int_at(dim, 0), &axis));
  int64_t have = t->dims[axis], only = int_at(s.t, 0);
  if (n == 1) {
    if (only != have) {
      return td_invalid_argument(
          "If there is only one output, it must have the same size as the input. Input size: %lld output size: %lld",
          (long long)have, (long long)only);
    }
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  TD_TRY(split_v_check(&s, n, have));
  return split(ctx, 0, axis, n, given_size, &s);
}

/* ---- Pack, Unpack ---- */

typedef struct stack {
  int64_t axis;
} stack;
static td_status stack_create(td_kernel_builder *b, void *state) {
  return td_attr_int(b->node, "axis", &((stack *)state)->axis);
}

static td_status pack_compute(td_kernel_ctx *ctx) {
  const td_tensor *first = td_in(ctx, 0);
  int n = ctx->kernel->input_count, rank = first->rank + 1;
  int64_t axis = ((const stack *)ctx->state)->axis;
  for (int i = 1; i < n; i++) {
    if (!td_tensor_same_shape(first, td_in(ctx, i))) {
      return td_invalid_argument("Shapes of all inputs must match: values[0].shape = %s != values[%d].shape = %s",
                                 TD_SHOW(first), i, TD_SHOW(td_in(ctx, i)));
    }
  }
  if (axis < -rank || axis >= rank) {
    return td_invalid_argument("axis = %lld not in [%d, %d)", (long long)axis, -rank, rank);
  }
  if (rank > TD_MAX_RANK) return td_invalid_argument("Too many dimensions: %d", rank);
  if (axis < 0) axis += rank;
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < rank; d++) dims[d] = d < axis ? first->dims[d] : d == axis ? n : first->dims[d - 1];
  if (n == 1) {
    td_out_reshaped(ctx, 0, 0, rank, dims);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, rank, dims, &out));
  if (!out->count) return TD_STATUS_OK;
  int64_t inner = td_dims_product(first->dims, (int)axis, first->rank);
  cut c = {.outer = td_dims_product(first->dims, 0, (int)axis), .width = inner, .whole = inner * n};
  for (int i = 0; i < n; i++, c.at += inner) join_part(ctx, &c, td_in(ctx, i), out);
  return TD_STATUS_OK;
}

static td_status unpack_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  int n = ctx->kernel->output_count;
  int64_t axis = ((const stack *)ctx->state)->axis;
  if (axis < -t->rank || axis >= t->rank) {
    return td_invalid_argument("axis = %lld not in [%d, %d)", (long long)axis, -t->rank, t->rank);
  }
  if (axis < 0) axis += t->rank;
  if (t->dims[axis] != n) {
    return td_invalid_argument("Input shape axis %lld must equal %d, got shape %s", (long long)axis, n, TD_SHOW(t));
  }
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d + 1 < t->rank; d++) dims[d] = t->dims[d < axis ? d : d + 1];
  int64_t inner = td_dims_product(t->dims, (int)axis + 1, t->rank);
  cut c = {.outer = td_dims_product(t->dims, 0, (int)axis), .width = inner, .whole = inner * n};
  for (int i = 0; i < n; i++, c.at += inner) {
    if (axis == 0) {
      TD_TRY(td_out_rows(ctx, 0, i, i, i + 1, t->rank - 1, dims));
      continue;
    }
    td_tensor *out;
    TD_TRY(td_out_alloc_dims(ctx, i, t->rank - 1, dims, &out));
    if (out->count) split_part(ctx, &c, t, out);
  }
  return TD_STATUS_OK;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {"Concat", "concat_dim: int32; values: N * T", "output: T", "N: int >= 2; T: type", 0},
    {"ConcatV2", "values: N * T; axis: Tidx", "output: T", "N: int >= 2; T: type; Tidx: type in {int32, int64} = int32",
     0},
    {"Pack", "values: N * T", "output: T", "N: int >= 1; T: type; axis: int = 0", 0},
    {"Split", "split_dim: int32; value: T", "output: num_split * T", "num_split: int >= 1; T: type", 0},
    {"SplitV", "value: T; size_splits: Tlen; split_dim: int32", "output: num_split * T",
     "num_split: int >= 1; T: type; Tlen: type in {int8, int32, int64} = int64", 0},
    {"Unpack", "value: T", "output: num * T", "num: int >= 0; T: type; axis: int = 0", 0},
};

static const td_kernel_def kernels[] = {
    {.op = "Concat", .compute = concat_compute},
    {.op = "ConcatV2", .compute = concat_v2_compute},
    {.op = "Pack", .state_size = sizeof(stack), .create = stack_create, .compute = pack_compute},
    {.op = "Split", .compute = split_compute},
    {.op = "SplitV", .compute = split_v_compute},
    {.op = "Unpack", .state_size = sizeof(stack), .create = stack_create, .compute = unpack_compute},
};

TD_FAMILY(concat, ops, kernels);

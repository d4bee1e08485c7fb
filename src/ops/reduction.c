/* Reductions over dimensions: Sum, Mean, Prod, Max, Min, All, Any, EuclideanNorm; and L2Loss.
 *
 * The input's dimensions are merged into runs that are all kept or all reduced. If the innermost run is reduced, each
 * result is made from contiguous rows; if it is kept, rows are combined with each other, a strip of columns at a time.
 * Results do not depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/loops/reduce.h"

static const td_op_spec ops[] = {
    {"Sum", "input: T; reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, "
     "quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}; Tidx: type in {int32, "
     "int64} = int32",
     0},
    {"Mean", "input: T; reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, "
     "quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}; Tidx: type in {int32, "
     "int64} = int32",
     0},
    {"Prod", "input: T; reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, "
     "quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}; Tidx: type in {int32, "
     "int64} = int32",
     0},
    {"Max", "input: T; reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, "
     "half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: type in {int32, int64} = int32",
     0},
    {"Min", "input: T; reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, "
     "half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: type in {int32, int64} = int32",
     0},
    {"All", "input: bool; reduction_indices: Tidx", "output: bool",
     "keep_dims: bool = false; Tidx: type in {int32, int64} = int32", 0},
    {"Any", "input: bool; reduction_indices: Tidx", "output: bool",
     "keep_dims: bool = false; Tidx: type in {int32, int64} = int32", 0},
    {"EuclideanNorm", "input: T; reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, "
     "quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}; Tidx: type in {int32, "
     "int64} = int32",
     0},
    {"L2Loss", "t: T", "output: T", "T: type in {half, bfloat16, float, double}", 0},
};

typedef enum finish {
  FINISH_PLAIN,
  FINISH_MEAN,
  FINISH_SQRT,
  FINISH_HALF,
  FINISH_BOOL,
} finish;

typedef struct reduction_state {
  td_reducer r;
  finish finish;
  bool keep_dims;
} reduction_state;

static td_status reduction_create(td_kernel_builder *b, void *state) {
  static const struct {
    const char *op;
    td_reduce reduce;
    finish finish;
  } table[] = {
      {"Sum", TD_RED_SUM, FINISH_PLAIN},       {"Mean", TD_RED_SUM, FINISH_MEAN},
      {"Prod", TD_RED_PROD, FINISH_PLAIN},     {"Max", TD_RED_MAX, FINISH_PLAIN},
      {"Min", TD_RED_MIN, FINISH_PLAIN},       {"All", TD_RED_MIN, FINISH_BOOL},
      {"Any", TD_RED_MAX, FINISH_BOOL},        {"EuclideanNorm", TD_RED_SQUARES, FINISH_SQRT},
      {"L2Loss", TD_RED_SQUARES, FINISH_HALF},
  };
  reduction_state *s = state;
  size_t i = 0;
  while (i < TD_COUNT(table) && !td_str_is(b->node->op, table[i].op)) i++;
  if (i == TD_COUNT(table)) return td_internal("no reduction for %.*s", TD_STR_ARG(b->node->op));
  s->finish = table[i].finish;
  if (s->finish != FINISH_HALF) TD_TRY(td_attr_bool(b->node, "keep_dims", &s->keep_dims));
  td_dtype t = td_dtype_base(b->input_types[0]);
  if (!td_reducer_init(&s->r, table[i].reduce, t))
    return td_internal("no reduction loop for %.*s of %s", TD_STR_ARG(b->node->op), td_dtype_name(t));
  return TD_STATUS_OK;
}

/* ---- the plan of one reduction ---- */

/* Runs of dimensions: kept and reduced alternate. */
typedef struct plan {
  bool inner_reduced;
  int64_t inner;            /* elements of the innermost run */
  int64_t rows, row_stride; /* inner kept: the reduced run just outside it */
  int kept, reduced;        /* number of the other runs of each kind */
  int64_t kept_dims[TD_MAX_RANK], kept_strides[TD_MAX_RANK];
  int64_t reduced_dims[TD_MAX_RANK], reduced_strides[TD_MAX_RANK];
  int64_t units;      /* product of kept_dims */
  int64_t turns;      /* product of reduced_dims */
  int64_t per_result; /* elements that make one result */
} plan;

static td_status read_axes(const td_tensor *x, const td_tensor *axes, bool *reduced) {
  memset(reduced, 0, (size_t)x->rank * sizeof *reduced);
  for (int64_t i = 0; i < axes->count; i++) {
    int64_t axis = td_tensor_int_at(axes, i);
    if (axis < -x->rank || axis >= x->rank)
      return td_invalid_argument("Invalid reduction dimension (%lld for input with %d dimension(s)", (long long)axis,
                                 x->rank);
    reduced[axis < 0 ? axis + x->rank : axis] = true;
  }
  return TD_STATUS_OK;
}

static void make_plan(const td_tensor *x, const bool *reduced, plan *p) {
  /* runs, innermost first; dimensions of one element belong to whichever run they lie in */
  int64_t size[TD_MAX_RANK + 1];
  bool kind[TD_MAX_RANK + 1];
  int runs = 0;
  p->per_result = 1;
  for (int d = x->rank - 1; d >= 0; d--) {
    if (reduced[d]) p->per_result *= x->dims[d];
    if (x->dims[d] == 1) continue;
    if (runs && kind[runs - 1] == reduced[d]) {
      size[runs - 1] *= x->dims[d];
    } else {
      kind[runs] = reduced[d];
      size[runs++] = x->dims[d];
    }
  }
  if (!runs) {
    kind[0] = true;
    size[runs++] = 1;
  }
  p->inner_reduced = kind[0];
  p->inner = size[0];
  p->rows = 1;
  p->row_stride = p->inner;
  p->kept = p->reduced = 0;
  p->units = p->turns = 1;
  int64_t stride = p->inner;
  for (int i = 1; i < runs; i++) {
    if (i == 1 && !p->inner_reduced) {
      p->rows = size[1];
    } else if (kind[i]) {
      p->reduced_dims[p->reduced] = size[i];
      p->reduced_strides[p->reduced++] = stride;
      p->turns *= size[i];
    } else {
      p->kept_dims[p->kept] = size[i];
      p->kept_strides[p->kept++] = stride;
      p->units *= size[i];
    }
    stride *= size[i];
  }
}

/* Where run number `index` begins; dims are innermost first. */
static int64_t offset_of(int n, const int64_t *dims, const int64_t *strides, int64_t index) {
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    at += index % dims[i] * strides[i];
    index /= dims[i];
  }
  return at;
}

/* ---- results ---- */

static double finish_real(const reduction_state *s, double v, int64_t n) {
  switch (s->finish) {
    case FINISH_MEAN:
      return v / (double)n;
    case FINISH_SQRT:
      return sqrt(v);
    case FINISH_HALF:
      return v / 2;
    default:
      return v;
  }
}

#define STORE_INT(type, member)                                                                                      \
  {                                                                                                                  \
    type *z = (type *)out + i;                                                                                       \
    for (int64_t k = 0; k < count; k++) {                                                                            \
      type v = (type)acc[k].u;                                                                                       \
      if (s->finish == FINISH_MEAN) v = n > 0 ? (type)((__typeof__(acc->member))v / (__typeof__(acc->member))n) : 0; \
      if (s->finish == FINISH_SQRT) v = v > 0 ? (type)sqrt((double)v) : 0;                                           \
      z[k] = v;                                                                                                      \
    }                                                                                                                \
  }

/* Writes results [i, i + count), each made of n elements. */
static void store(const reduction_state *s, const td_wide *acc, int64_t count, int64_t n, void *out, int64_t i) {
  switch ((int)s->r.type) {
    case TD_FLOAT:
      for (int64_t k = 0; k < count; k++) ((float *)out)[i + k] = (float)finish_real(s, acc[k].d, n);
      break;
    case TD_DOUBLE:
      for (int64_t k = 0; k < count; k++) ((double *)out)[i + k] = finish_real(s, acc[k].d, n);
      break;
    case TD_HALF:
      for (int64_t k = 0; k < count; k++)
        ((td_half *)out)[i + k] = td_half_from_float((float)finish_real(s, acc[k].d, n));
      break;
    case TD_BFLOAT16:
      for (int64_t k = 0; k < count; k++)
        ((td_bfloat16 *)out)[i + k] = td_bfloat16_from_float((float)finish_real(s, acc[k].d, n));
      break;
    case TD_COMPLEX64:
      for (int64_t k = 0; k < count; k++) {
        ((float *)out)[2 * (i + k)] = (float)finish_real(s, acc[k].pair[0], n);
        ((float *)out)[2 * (i + k) + 1] = (float)finish_real(s, acc[k].pair[1], n);
      }
      break;
    case TD_COMPLEX128:
      for (int64_t k = 0; k < count; k++) {
        ((double *)out)[2 * (i + k)] = finish_real(s, acc[k].pair[0], n);
        ((double *)out)[2 * (i + k) + 1] = finish_real(s, acc[k].pair[1], n);
      }
      break;
    case TD_BOOL:
      for (int64_t k = 0; k < count; k++) ((uint8_t *)out)[i + k] = acc[k].u != 0;
      break;
    case TD_INT8:
      STORE_INT(int8_t, i) break;
    case TD_INT16:
      STORE_INT(int16_t, i) break;
    case TD_INT32:
      STORE_INT(int32_t, i) break;
    case TD_INT64:
      STORE_INT(int64_t, i) break;
    case TD_UINT8:
      STORE_INT(uint8_t, u) break;
    case TD_UINT16:
      STORE_INT(uint16_t, u) break;
    case TD_UINT32:
      STORE_INT(uint32_t, u) break;
    default:
      STORE_INT(uint64_t, u) break;
  }
}

/* ---- running ---- */

typedef struct work {
  const reduction_state *s;
  const plan *p;
  const char *x;
  void *out;
  int64_t base;  /* element where this unit's input begins (split runs) */
  int64_t piece; /* elements (or rows) a piece */
  int64_t pieces;
  td_wide *partial;
} work;

enum { ROWS = 64 };

static void inner_units(void *arg, int64_t begin, int64_t end) {
  const work *w = arg;
  const plan *p = w->p;
  const td_reducer *r = &w->s->r;
  while (p->kept == 1 && p->turns == 1 && begin < end) { /* plain rows */
    td_wide acc[ROWS];
    int64_t rows = TD_MIN(end - begin, ROWS), stride = p->kept_strides[0];
    for (int64_t i = 0; i < rows; i++) acc[i] = r->identity;
    td_reducer_inner(r, w->x + begin * stride * r->size, rows, stride, p->inner, acc);
    store(w->s, acc, rows, p->per_result, w->out, begin);
    begin += rows;
  }
  for (int64_t u = begin; u < end; u++) {
    td_wide acc = r->identity;
    int64_t at = offset_of(p->kept, p->kept_dims, p->kept_strides, u);
    for (int64_t t = 0; t < p->turns; t++)
      td_reducer_inner(r, w->x + (at + offset_of(p->reduced, p->reduced_dims, p->reduced_strides, t)) * r->size, 1, 0,
                       p->inner, &acc);
    store(w->s, &acc, 1, p->per_result, w->out, u);
  }
}

static void inner_pieces(void *arg, int64_t begin, int64_t end) {
  const work *w = arg;
  const td_reducer *r = &w->s->r;
  for (int64_t i = begin; i < end; i++) {
    w->partial[i] = r->identity;
    int64_t from = i * w->piece, n = TD_MIN(w->piece, w->p->inner - from);
    td_reducer_inner(r, w->x + (w->base + from) * r->size, 1, 0, n, &w->partial[i]);
  }
}

enum { PIECE = 1 << 16, MAX_PIECES = 512 };

/* Few and long results: each is made of pieces in parallel. */
static void inner_split(td_kernel_ctx *ctx, work *w, double unit_ns) {
  const plan *p = w->p;
  const td_reducer *r = &w->s->r;
  td_wide partial[MAX_PIECES];
  w->partial = partial;
  w->piece = TD_MAX(PIECE, (p->inner + MAX_PIECES - 1) / MAX_PIECES);
  w->pieces = (p->inner + w->piece - 1) / w->piece;
  for (int64_t u = 0; u < p->units; u++) {
    td_wide acc = r->identity;
    int64_t at = offset_of(p->kept, p->kept_dims, p->kept_strides, u);
    for (int64_t t = 0; t < p->turns; t++) {
      w->base = at + offset_of(p->reduced, p->reduced_dims, p->reduced_strides, t);
      td_ctx_parallel_for(ctx, w->pieces, unit_ns * (double)w->piece, inner_pieces, w);
      for (int64_t i = 0; i < w->pieces; i++) td_reducer_merge(r, &acc, &partial[i]);
    }
    store(w->s, &acc, 1, p->per_result, w->out, u);
  }
}

/* Unit: a strip of columns of one kept index. */
static void outer_strips(void *arg, int64_t begin, int64_t end) {
  const work *w = arg;
  const plan *p = w->p;
  const td_reducer *r = &w->s->r;
  int64_t strips = (p->inner + TD_REDUCE_COLUMNS - 1) / TD_REDUCE_COLUMNS;
  td_wide acc[TD_REDUCE_COLUMNS];
  for (int64_t i = begin; i < end; i++) {
    int64_t u = i / strips, column = i % strips * TD_REDUCE_COLUMNS, n = TD_MIN(p->inner - column, TD_REDUCE_COLUMNS);
    int64_t at = column + offset_of(p->kept, p->kept_dims, p->kept_strides, u);
    for (int64_t k = 0; k < n; k++) acc[k] = r->identity;
    for (int64_t t = 0; t < p->turns; t++)
      td_reducer_outer(r, w->x + (at + offset_of(p->reduced, p->reduced_dims, p->reduced_strides, t)) * r->size,
                       p->rows, p->row_stride, n, acc);
    store(w->s, acc, n, p->per_result, w->out, u * p->inner + column);
  }
}

static void outer_pieces(void *arg, int64_t begin, int64_t end) {
  const work *w = arg;
  const plan *p = w->p;
  const td_reducer *r = &w->s->r;
  for (int64_t i = begin; i < end; i++) {
    td_wide *acc = w->partial + i * p->inner;
    for (int64_t k = 0; k < p->inner; k++) acc[k] = r->identity;
    int64_t from = i * w->piece, n = TD_MIN(w->piece, p->rows - from);
    td_reducer_outer(r, w->x + (w->base + from * p->row_stride) * r->size, n, p->row_stride, p->inner, acc);
  }
}

/* Few columns under many rows: pieces of rows in parallel. */
static td_status outer_split(td_kernel_ctx *ctx, work *w, double unit_ns) {
  const plan *p = w->p;
  const td_reducer *r = &w->s->r;
  w->piece = TD_MAX(PIECE / p->inner, (p->rows + 63) / 64);
  w->pieces = (p->rows + w->piece - 1) / w->piece;
  w->partial = td_try_malloc((size_t)(w->pieces * p->inner) * sizeof(td_wide));
  if (!w->partial) return td_resource_exhausted("no memory for partial sums");
  for (int64_t u = 0; u < p->units; u++) {
    td_wide acc[TD_REDUCE_COLUMNS];
    for (int64_t k = 0; k < p->inner; k++) acc[k] = r->identity;
    int64_t at = offset_of(p->kept, p->kept_dims, p->kept_strides, u);
    for (int64_t t = 0; t < p->turns; t++) {
      w->base = at + offset_of(p->reduced, p->reduced_dims, p->reduced_strides, t);
      td_ctx_parallel_for(ctx, w->pieces, unit_ns * (double)(w->piece * p->inner), outer_pieces, w);
      for (int64_t i = 0; i < w->pieces; i++)
        for (int64_t k = 0; k < p->inner; k++) td_reducer_merge(r, &acc[k], &w->partial[i * p->inner + k]);
    }
    store(w->s, acc, p->inner, p->per_result, w->out, u * p->inner);
  }
  td_free(w->partial);
  return TD_STATUS_OK;
}

static td_status run_plan(td_kernel_ctx *ctx, const plan *p, const td_tensor *x, td_tensor *z) {
  const reduction_state *s = ctx->state;
  double unit_ns = td_dtype_in(s->r.type, TD_SET_COMPLEX) ? 1 : 0.15;
  work w = {.s = s, .p = p, .x = x->data, .out = z->data};
  if (!x->count) {
    for (int64_t i = 0; i < z->count; i++) store(s, &s->r.identity, 1, 0, z->data, i);
    return TD_STATUS_OK;
  }
  bool few = p->units <= 8;
  if (p->inner_reduced) {
    if (few && p->inner >= 2 * PIECE)
      inner_split(ctx, &w, unit_ns);
    else
      td_ctx_parallel_for(ctx, p->units, 5 + unit_ns * (double)(p->inner * p->turns), inner_units, &w);
    return TD_STATUS_OK;
  }
  if (few && p->inner <= TD_REDUCE_COLUMNS && p->rows * p->inner >= 2 * PIECE) return outer_split(ctx, &w, unit_ns);
  int64_t strips = (p->inner + TD_REDUCE_COLUMNS - 1) / TD_REDUCE_COLUMNS;
  double strip = (double)TD_MIN(p->inner, TD_REDUCE_COLUMNS) * (double)p->rows * (double)p->turns;
  td_ctx_parallel_for(ctx, p->units * strips, 20 + unit_ns * strip, outer_strips, &w);
  return TD_STATUS_OK;
}

static td_status reduction_compute(td_kernel_ctx *ctx) {
  const reduction_state *s = ctx->state;
  td_tensor *x = td_in(ctx, 0), *z;
  bool reduced[TD_MAX_RANK];
  TD_TRY(read_axes(x, td_in(ctx, 1), reduced));
  td_shape shape;
  shape.rank = 0;
  for (int d = 0; d < x->rank; d++) {
    if (!reduced[d])
      shape.dims[shape.rank++] = x->dims[d];
    else if (s->keep_dims)
      shape.dims[shape.rank++] = 1;
  }
  TD_TRY(td_out_alloc(ctx, 0, &shape, &z));
  plan p;
  if (x->count) make_plan(x, reduced, &p);
  return run_plan(ctx, &p, x, z);
}

static td_status l2_loss_compute(td_kernel_ctx *ctx) {
  td_tensor *x = td_in(ctx, 0), *z;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &z));
  plan p = {.inner_reduced = true, .inner = x->count, .rows = 1, .units = 1, .turns = 1, .per_result = x->count};
  return run_plan(ctx, &p, x, z);
}

#define REDUCTION(op_name, set)                                                                              \
  {                                                                                                          \
    .op = op_name, .types = {{"T", set}}, .state_size = sizeof(reduction_state), .create = reduction_create, \
    .compute = reduction_compute                                                                             \
  }
#define REDUCTION_BOOL(op_name) \
  { .op = op_name, .state_size = sizeof(reduction_state), .create = reduction_create, .compute = reduction_compute }

static const td_kernel_def kernels[] = {
    REDUCTION("Sum", TD_SET_NUMBER),
    REDUCTION("Mean", TD_SET_NUMBER),
    REDUCTION("Prod", TD_SET_NUMBER),
    REDUCTION("Max", TD_SET_REAL),
    REDUCTION("Min", TD_SET_REAL),
    REDUCTION_BOOL("All"),
    REDUCTION_BOOL("Any"),
    REDUCTION("EuclideanNorm", TD_SET_NUMBER),
    {.op = "L2Loss",
     .types = {{"T", TD_SET_FLOATING}},
     .state_size = sizeof(reduction_state),
     .create = reduction_create,
     .compute = l2_loss_compute},
};

TD_FAMILY(reduction, ops, kernels);

/* Sums, means, products and extremes of rows that share a segment number. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/loops/loops.h"
#include "ops/move.h"

static const td_op_spec ops[] = {
    {"SegmentSum", "data: T; segment_ids: Tindices", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
     "qint16, quint16, uint16, complex128, half, uint32, uint64}; Tindices: type in {int32, int64}",
     0},
    {"SegmentMean", "data: T; segment_ids: Tindices", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
     "qint16, quint16, uint16, complex128, half, uint32, uint64}; Tindices: type in {int32, int64}",
     0},
    {"SegmentProd", "data: T; segment_ids: Tindices", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
     "qint16, quint16, uint16, complex128, half, uint32, uint64}; Tindices: type in {int32, int64}",
     0},
    {"SegmentMin", "data: T; segment_ids: Tindices", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}; "
     "Tindices: type in {int32, int64}",
     0},
    {"SegmentMax", "data: T; segment_ids: Tindices", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}; "
     "Tindices: type in {int32, int64}",
     0},
    {"UnsortedSegmentSum", "data: T; segment_ids: Tindices; num_segments: Tnumsegments", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
     "qint16, quint16, uint16, complex128, half, uint32, uint64}; Tindices: type in {int16, int32, int64}; "
     "Tnumsegments: type in {int32, int64} = int32",
     0},
    {"UnsortedSegmentProd", "data: T; segment_ids: Tindices; num_segments: Tnumsegments", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
     "qint16, quint16, uint16, complex128, half, uint32, uint64}; Tindices: type in {int32, int64}; Tnumsegments: "
     "type in {int32, int64} = int32",
     0},
    {"UnsortedSegmentMin", "data: T; segment_ids: Tindices; num_segments: Tnumsegments", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}; "
     "Tindices: type in {int32, int64}; Tnumsegments: type in {int32, int64} = int32",
     0},
    {"UnsortedSegmentMax", "data: T; segment_ids: Tindices; num_segments: Tnumsegments", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}; "
     "Tindices: type in {int32, int64}; Tnumsegments: type in {int32, int64} = int32",
     0},
    {"SparseSegmentSum", "data: T; indices: Tidx; segment_ids: Tsegmentids", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}; Tidx: "
     "type in {int32, int64} = int32; Tsegmentids: type in {int32, int64} = int32; sparse_gradient: bool = false",
     0},
    {"SparseSegmentMean", "data: T; indices: Tidx; segment_ids: Tsegmentids", "output: T",
     "T: type in {bfloat16, half, float, double}; Tidx: type in {int32, int64} = int32; Tsegmentids: type in "
     "{int32, int64} = int32; sparse_gradient: bool = false",
     0},
    {"SparseSegmentSqrtN", "data: T; indices: Tidx; segment_ids: Tsegmentids", "output: T",
     "T: type in {bfloat16, half, float, double}; Tidx: type in {int32, int64} = int32; Tsegmentids: type in "
     "{int32, int64} = int32; sparse_gradient: bool = false",
     0},
    {"SparseSegmentSumWithNumSegments", "data: T; indices: Tidx; segment_ids: Tsegmentids; num_segments: Tnumsegments",
     "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}; Tidx: "
     "type in {int32, int64} = int32; Tnumsegments: type in {int32, int64} = int32; Tsegmentids: type in {int32, "
     "int64} = int32; sparse_gradient: bool = false",
     0},
    {"SparseSegmentMeanWithNumSegments", "data: T; indices: Tidx; segment_ids: Tsegmentids; num_segments: Tnumsegments",
     "output: T",
     "T: type in {bfloat16, half, float, double}; Tidx: type in {int32, int64} = int32; Tnumsegments: type in "
     "{int32, int64} = int32; Tsegmentids: type in {int32, int64} = int32; sparse_gradient: bool = false",
     0},
    {"SparseSegmentSqrtNWithNumSegments",
     "data: T; indices: Tidx; segment_ids: Tsegmentids; num_segments: Tnumsegments", "output: T",
     "T: type in {bfloat16, half, float, double}; Tidx: type in {int32, int64} = int32; Tnumsegments: type in "
     "{int32, int64} = int32; Tsegmentids: type in {int32, int64} = int32; sparse_gradient: bool = false",
     0},
    {"SparseSegmentSumGrad", "grad: T; indices: Tidx; segment_ids: Tsegmentids; output_dim0: int32", "output: T",
     "T: type in {bfloat16, half, float, double}; Tidx: type in {int32, int64} = int32; Tsegmentids: type in "
     "{int32, int64} = int32",
     0},
    {"SparseSegmentMeanGrad", "grad: T; indices: Tidx; segment_ids: Tsegmentids; output_dim0: int32", "output: T",
     "T: type in {bfloat16, half, float, double}; Tidx: type in {int32, int64} = int32; Tsegmentids: type in "
     "{int32, int64} = int32",
     0},
    {"SparseSegmentSqrtNGrad", "grad: T; indices: Tidx; segment_ids: Tsegmentids; output_dim0: int32", "output: T",
     "T: type in {bfloat16, half, float, double}; Tidx: type in {int32, int64} = int32; Tsegmentids: type in "
     "{int32, int64} = int32",
     0},
};

/* ---- state ---- */

typedef enum scale { SCALE_NONE, SCALE_MEAN, SCALE_SQRT } scale;

typedef struct segment_state {
  td_map combine; /* of two rows */
  td_map by;      /* of a row and a number: multiplication in gradients, division in means */
  scale scale;
  td_dtype type;
  td_binary op;
} segment_state;

static bool has(td_str s, const char *part) { return memmem(s.data, s.size, part, strlen(part)) != NULL; }

static td_status segment_create(td_kernel_builder *b, void *state) {
  segment_state *s = state;
  td_str op = b->node->op;
  s->op = has(op, "Prod") ? TD_BIN_Mul : has(op, "Max") ? TD_BIN_Maximum : has(op, "Min") ? TD_BIN_Minimum : TD_BIN_Add;
  s->scale = has(op, "Mean") ? SCALE_MEAN : has(op, "SqrtN") ? SCALE_SQRT : SCALE_NONE;
  s->type = td_dtype_base(b->input_types[0]);
  td_binary by = has(op, "Grad") ? TD_BIN_Mul : TD_BIN_Div;
  if (!td_map_init_binary(&s->combine, s->op, s->type, s->type, 0) ||
      !td_map_init_binary(&s->by, by, s->type, s->type, 0))
    return td_internal("no loop for %.*s of %s", TD_STR_ARG(op), td_dtype_name(s->type));
  return TD_STATUS_OK;
}

/* `v` as an element of type t, into 16 bytes. */
static void store_number(td_dtype t, double v, void *out) {
  switch ((int)t) {
    case TD_HALF:
      *(td_half *)out = td_half_from_float((float)v);
      break;
    case TD_BFLOAT16:
      *(td_bfloat16 *)out = td_bfloat16_from_float((float)v);
      break;
    case TD_FLOAT:
      *(float *)out = (float)v;
      break;
    case TD_DOUBLE:
      *(double *)out = v;
      break;
    case TD_COMPLEX64:
      *(td_complex64 *)out = (float)v;
      break;
    case TD_COMPLEX128:
      *(td_complex128 *)out = v;
      break;
    default: { /* the low bytes of a little-endian integer */
      int64_t i = (int64_t)v;
      memcpy(out, &i, td_dtype_size(t));
    }
  }
}

/* The worst value: what Max and Min of nothing give. */
static void store_extreme(td_dtype t, bool lowest, void *out) {
  size_t bits = 8 * td_dtype_size(t);
  switch ((int)t) {
    case TD_HALF:
      ((td_half *)out)->bits = lowest ? 0xfbff : 0x7bff;
      return;
    case TD_BFLOAT16:
      ((td_bfloat16 *)out)->bits = lowest ? 0xff7f : 0x7f7f;
      return;
    case TD_FLOAT:
      *(float *)out = lowest ? -FLT_MAX : FLT_MAX;
      return;
    case TD_DOUBLE:
      *(double *)out = lowest ? -DBL_MAX : DBL_MAX;
      return;
    default:
      break;
  }
  bool is_signed = td_dtype_in(t, TD_SET_SIGNED);
  uint64_t v = is_signed ? (uint64_t)1 << (bits - 1) : 0;
  if (!lowest) v = is_signed ? v - 1 : UINT64_MAX;
  memcpy(out, &v, bits / 8);
}

/* What is filled doubles with each copy. */
static void fill_row(char *z, const void *element, size_t size, int64_t n) {
  static const char zero[16];
  size_t all = size * (size_t)n, done = size;
  if (!all) return;
  if (memcmp(element, zero, size) == 0) {
    memset(z, 0, all);
    return;
  }
  memcpy(z, element, size);
  for (size_t more; done < all; done += more) {
    more = TD_MIN(TD_MIN(done, all - done), (size_t)4096);
    memcpy(z + done, z, more);
  }
}

static void divide_row(const segment_state *s, char *z, int64_t inner, int64_t count) {
  if (s->scale == SCALE_NONE || count <= 1) return;
  _Alignas(16) char by[16] = {0};
  store_number(s->type, s->scale == SCALE_MEAN ? (double)count : sqrt((double)count), by);
  if (!td_dtype_in(s->type, TD_SET_FLOATING | TD_SET_COMPLEX)) {
    int64_t divisor = 0;
    memcpy(&divisor, by, td_dtype_size(s->type));
    if (!divisor) return; /* a count that wrapped to nothing in a narrow type */
  }
  td_map_binary(&s->by, z, 1, by, 0, z, inner);
}

/* ---- checks ---- */

static td_status bad_index(const char *name, int64_t i, int64_t v, int64_t limit) {
  return td_invalid_argument("%s[%lld] = %lld is out of range [0, %lld)", name, (long long)i, (long long)v,
                             (long long)limit);
}

static td_status bad_segment_id(const td_tensor *ids, int64_t i, int64_t segments) {
  td_show_buf b;
  return td_invalid_argument("segment_ids%s = %lld is out of range [0, %lld)",
                             td_show_index(&b, ids->rank, ids->dims, i), (long long)td_tensor_int_at(ids, i),
                             (long long)segments);
}

/* Sorted, not negative. */
static td_status check_sorted(const td_tensor *ids) {
  int64_t last = 0;
  for (int64_t i = 0; i < ids->count; i++) {
    int64_t id = td_tensor_int_at(ids, i);
    if (id < 0) return td_invalid_argument("segment ids must be >= 0, got %lld", (long long)id);
    if (id < last) return td_invalid_argument("segment ids are not increasing");
    last = id;
  }
  return TD_STATUS_OK;
}

/* ---- sorted segments, with or without indices ---- */

typedef struct sorted_work {
  const segment_state *s;
  const char *data;
  char *z;
  const td_tensor *ids, *indices; /* indices NULL: rows in order */
  int64_t inner;
  size_t size;
  _Alignas(16) char empty[16]; /* an element of a segment without rows */
} sorted_work;

static int64_t first_at_least(const td_tensor *ids, int64_t id) {
  int64_t low = 0, high = ids->count;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (td_tensor_int_at(ids, middle) < id)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void run_sorted(void *arg, int64_t begin, int64_t end) {
  const sorted_work *w = arg;
  size_t row = (size_t)w->inner * w->size;
  int64_t at = first_at_least(w->ids, begin);
  for (int64_t id = begin; id < end; id++) {
    char *z = w->z + (size_t)id * row;
    int64_t count = 0;
    for (; at < w->ids->count && td_tensor_int_at(w->ids, at) == id; at++, count++) {
      const char *x = w->data + (size_t)(w->indices ? td_tensor_int_at(w->indices, at) : at) * row;
      if (count)
        td_map_binary(&w->s->combine, z, 1, x, 1, z, w->inner);
      else
        memcpy(z, x, row);
    }
    if (count)
      divide_row(w->s, z, w->inner, count);
    else
      fill_row(z, w->empty, w->size, w->inner);
  }
}

static td_status run_segments(td_kernel_ctx *ctx, sorted_work *w, const td_tensor *data, int64_t segments) {
  td_shape shape;
  td_tensor_shape(data, &shape);
  shape.dims[0] = segments;
  td_tensor *z;
  TD_TRY(td_out_alloc(ctx, 0, &shape, &z));
  if (!z->count) return TD_STATUS_OK;
  w->data = data->data;
  w->z = z->data;
  w->inner = z->count / segments;
  w->size = td_dtype_size((td_dtype)data->dtype);
  double rows = (double)w->ids->count / (double)segments + 1;
  td_ctx_parallel_for(ctx, segments, rows * (10 + 0.3 * (double)w->inner), run_sorted, w);
  return TD_STATUS_OK;
}

static td_status segment_compute(td_kernel_ctx *ctx) {
  td_tensor *data = td_in(ctx, 0), *ids = td_in(ctx, 1);
  if (!data->rank) return td_invalid_argument("Shape must be at least rank 1 but is rank 0");
  if (ids->rank != 1) return td_invalid_argument("segment_ids should be a vector.");
  if (ids->count != data->dims[0])
    return td_invalid_argument("segment_ids should be the same size as dimension 0 of input.");
  TD_TRY(check_sorted(ids));
  int64_t segments = ids->count ? td_tensor_int_at(ids, ids->count - 1) : -1;
  if (segments == INT64_MAX) return td_invalid_argument("segment id %lld is too large", (long long)segments);
  sorted_work w = {.s = ctx->state, .ids = ids};
  if (w.s->op == TD_BIN_Mul) store_number(w.s->type, 1, w.empty);
  return run_segments(ctx, &w, data, segments + 1);
}

static td_status sparse_compute(td_kernel_ctx *ctx) {
  td_tensor *data = td_in(ctx, 0), *indices = td_in(ctx, 1), *ids = td_in(ctx, 2);
  if (!data->rank) return td_invalid_argument("Shape must be at least rank 1 but is rank 0");
  if (indices->rank != 1) return td_invalid_argument("indices should be a vector.");
  if (ids->rank != 1) return td_invalid_argument("segment_ids should be a vector.");
  if (indices->count != ids->count) return td_invalid_argument("segment_ids and indices should have same size.");
  int64_t limit = -1;
  if (ctx->kernel->input_count == 4) {
    td_tensor *n = td_in(ctx, 3);
    if (n->rank) return td_invalid_argument("num_segments should be a scalar, not shape of rank %d", n->rank);
    limit = td_tensor_int_at(n, 0);
    if (limit < 0) return td_invalid_argument("segment ids must be >= 0");
  }
  TD_TRY(check_sorted(ids));
  for (int64_t i = 0; i < indices->count; i++) {
    int64_t v = td_tensor_int_at(indices, i);
    if (v < 0 || v >= data->dims[0]) return bad_index("indices", i, v, data->dims[0]);
  }
  int64_t last = ids->count ? td_tensor_int_at(ids, ids->count - 1) : -1;
  if (last == INT64_MAX) return td_invalid_argument("segment id %lld is too large", (long long)last);
  if (limit >= 0 && last >= limit) return td_invalid_argument("segment ids must be < num_segments");
  sorted_work w = {.s = ctx->state, .ids = ids, .indices = indices};
  return run_segments(ctx, &w, data, limit >= 0 ? limit : last + 1);
}

/* ---- unsorted segments ---- */

typedef struct unsorted_work {
  const segment_state *s;
  const char *data;
  char *z;
  const td_tensor *ids;
  int64_t inner, segments, parts; /* parts: of the segments, of about equal size */
  size_t size;
  _Alignas(16) char start[16];
  bool *is_started; /* by segment: it holds a row. NULL: a segment starts with `start`, not with its first row */
} unsorted_work;

static bool is_sum_or_product(const segment_state *s) { return s->op == TD_BIN_Add || s->op == TD_BIN_Mul; }

/* Parts [from, to) of the segments. It looks through all ids: the order of additions is that of the rows. */
static void run_parts(void *arg, int64_t from, int64_t to) {
  const unsorted_work *w = arg;
  int64_t begin = w->segments * from / w->parts, end = w->segments * to / w->parts;
  size_t row = (size_t)w->inner * w->size;
  if (!w->is_started) fill_row(w->z + (size_t)begin * row, w->start, w->size, (end - begin) * w->inner);
  for (int64_t i = 0; i < w->ids->count; i++) {
    int64_t id = td_tensor_int_at(w->ids, i);
    if (id < begin || id >= end) continue;
    char *z = w->z + (size_t)id * row;
    const char *x = w->data + (size_t)i * row;
    if (w->is_started && !w->is_started[id]) {
      w->is_started[id] = true;
      memcpy(z, x, row);
    } else {
      td_map_binary(&w->s->combine, z, 1, x, 1, z, w->inner);
    }
  }
  for (int64_t id = begin; w->is_started && id < end; id++)
    if (!w->is_started[id]) fill_row(w->z + (size_t)id * row, w->start, w->size, w->inner);
}

static td_status run_all_unsorted(td_kernel_ctx *ctx, unsorted_work *w, int64_t segments) {
  /* A sum or product of one row is the row. With fewer rows than segments most stay empty: all are filled at once. */
  bool takes_first = is_sum_or_product(w->s) && w->ids->count >= segments;
  if (takes_first) {
    w->is_started = td_try_malloc((size_t)segments);
    if (!w->is_started) return td_resource_exhausted("OOM when summing into %lld segments", (long long)segments);
    memset(w->is_started, 0, (size_t)segments);
  }
  double bytes = (double)w->inner * (double)w->size, rows = (double)w->ids->count / (double)segments;
  double unit_ns = takes_first ? 2 + TD_MAX(rows, 1.0) * (2 + bytes / 20) : (rows + 1) * (10 + bytes / 13);
  /* a part a thread, no more: each looks through all ids */
  w->segments = segments;
  w->parts = w->inner >= 16 ? TD_MIN((int64_t)td_ctx_threads(ctx), segments) : 1;
  td_ctx_parallel_for(ctx, w->parts, unit_ns * (double)segments / (double)w->parts, run_parts, w);
  td_free(w->is_started);
  return TD_STATUS_OK;
}

/* Whether each segment's first row comes no sooner than those of the segments before it, as Unique numbers them: then
 * row i goes to a row that has been read, or to its own. */
static bool starts_in_order(const td_tensor *ids, int64_t segments) {
  int64_t next = 0;
  for (int64_t i = 0; i < ids->count; i++) {
    int64_t id = td_tensor_int_at(ids, i);
    if (id < 0 || id > next) return false;
    next += id == next;
  }
  return next == segments;
}

/* Sums or products of rows whose segments start in order, into the first rows of the data itself. Worth it for what
 * fits a core's cache; more is better cut into pieces. The result keeps all of the data: it must be half of it. */
enum { IN_PLACE_BYTES = 1 << 20 };
static void run_in_place(const unsorted_work *w, char *data) {
  size_t row = (size_t)w->inner * w->size;
  int64_t next = 0;
  for (int64_t i = 0; i < w->ids->count; i++) {
    int64_t id = td_tensor_int_at(w->ids, i);
    char *z = data + (size_t)id * row, *x = data + (size_t)i * row;
    if (id < next) {
      td_map_binary(&w->s->combine, z, 1, x, 1, z, w->inner);
      continue;
    }
    next++;
    if (x != z) memcpy(z, x, row);
  }
}

static td_status unsorted_compute(td_kernel_ctx *ctx) {
  td_tensor *data = td_in(ctx, 0), *ids = td_in(ctx, 1), *n = td_in(ctx, 2), *z;
  if (n->rank) return td_invalid_argument("num_segments should be a scalar, not shape of rank %d", n->rank);
  if (ids->rank > data->rank || !td_dims_eq(ids->rank, ids->dims, ids->rank, data->dims)) {
    char *a = td_tensor_shape_text(data), *b = td_tensor_shape_text(ids);
    td_status s = td_invalid_argument("data.shape = %s does not start with segment_ids.shape = %s", a, b);
    td_free(a);
    td_free(b);
    return s;
  }
  int64_t segments = td_tensor_int_at(n, 0);
  if (segments < 0) return td_invalid_argument("Input num_segments == %lld must not be negative.", (long long)segments);
  for (int64_t i = 0; i < ids->count; i++) /* negative ids are dropped */
    if (td_tensor_int_at(ids, i) >= segments) return bad_segment_id(ids, i, segments);
  td_shape shape;
  shape.rank = 0;
  TD_TRY(td_shape_append(&shape, segments));
  for (int d = ids->rank; d < data->rank; d++) TD_TRY(td_shape_append(&shape, data->dims[d]));
  unsorted_work w = {.s = ctx->state, .data = data->data, .ids = ids, .size = td_dtype_size((td_dtype)data->dtype)};
  if (data->count && data->size <= IN_PLACE_BYTES && ids->rank == 1 && segments >= data->dims[0] - segments &&
      is_sum_or_product(w.s) && td_tensor_is_exclusive(data) && starts_in_order(ids, segments)) {
    w.inner = data->count / data->dims[0];
    run_in_place(&w, data->data);
    td_out_set(ctx, 0, td_tensor_slice(data, 0, segments));
    return TD_STATUS_OK;
  }
  TD_TRY(td_out_alloc(ctx, 0, &shape, &z));
  if (!z->count) return TD_STATUS_OK;
  w.z = z->data;
  w.inner = z->count / segments;
  if (w.s->op == TD_BIN_Mul) store_number(w.s->type, 1, w.start);
  if (w.s->op == TD_BIN_Maximum || w.s->op == TD_BIN_Minimum)
    store_extreme(w.s->type, w.s->op == TD_BIN_Maximum, w.start);
  return run_all_unsorted(ctx, &w, segments);
}

/* ---- gradients of sparse segments: row indices[i] of the result gains row segment_ids[i] of the gradient ---- */

static td_status sparse_grad_compute(td_kernel_ctx *ctx) {
  const segment_state *s = ctx->state;
  td_tensor *grad = td_in(ctx, 0), *indices = td_in(ctx, 1), *ids = td_in(ctx, 2), *n = td_in(ctx, 3), *z;
  if (!grad->rank) return td_invalid_argument("Shape must be at least rank 1 but is rank 0");
  if (indices->rank != 1) return td_invalid_argument("indices should be a vector.");
  if (ids->rank != 1) return td_invalid_argument("segment_ids should be a vector.");
  if (indices->count != ids->count) return td_invalid_argument("segment_ids and indices should have same size.");
  if (n->rank) return td_invalid_argument("output_dim0 should be a scalar, not shape of rank %d", n->rank);
  int64_t rows = td_tensor_int_at(n, 0), segments = grad->dims[0];
  td_shape shape;
  td_tensor_shape(grad, &shape);
  if (rows < 0) return td_invalid_argument("output_dim0 must not be negative, got %lld", (long long)rows);
  shape.dims[0] = rows;
  for (int64_t i = 0; i < ids->count; i++) {
    int64_t id = td_tensor_int_at(ids, i), at = td_tensor_int_at(indices, i);
    if (id < 0 || id >= segments)
      return td_invalid_argument("Segment id %lld out of range [0, %lld).", (long long)id, (long long)segments);
    if (at < 0 || at >= rows)
      return td_invalid_argument("Index %lld out of range [0, %lld).", (long long)at, (long long)rows);
  }
  TD_TRY(td_out_alloc(ctx, 0, &shape, &z));
  if (z->size) memset(z->data, 0, z->size);
  if (!z->count || !ids->count) return TD_STATUS_OK;
  int64_t *counts = td_try_malloc((size_t)segments * sizeof *counts);
  size_t row = z->size / (size_t)rows;
  int64_t inner = z->count / rows;
  char *scaled = td_try_malloc(row);
  if (!counts || !scaled) {
    td_free(counts);
    td_free(scaled);
    return td_resource_exhausted("no memory for %lld segment counts", (long long)segments);
  }
  memset(counts, 0, (size_t)segments * sizeof *counts);
  for (int64_t i = 0; i < ids->count; i++) counts[td_tensor_int_at(ids, i)]++;
  for (int64_t i = 0; i < ids->count; i++) {
    int64_t id = td_tensor_int_at(ids, i);
    const char *x = TD_DATA(grad, char) + (size_t)id * row;
    if (s->scale != SCALE_NONE && counts[id] > 1) {
      _Alignas(16) char by[16];
      store_number(s->type, 1 / (s->scale == SCALE_MEAN ? (double)counts[id] : sqrt((double)counts[id])), by);
      td_map_binary(&s->by, x, 1, by, 0, scaled, inner);
      x = scaled;
    }
    char *to = TD_DATA(z, char) + (size_t)td_tensor_int_at(indices, i) * row;
    td_map_binary(&s->combine, to, 1, x, 1, to, inner);
  }
  td_free(counts);
  td_free(scaled);
  return TD_STATUS_OK;
}

#define SEGMENT(op_name, set, fn) \
  { .op = op_name, .types = {{"T", set}}, .state_size = sizeof(segment_state), .create = segment_create, .compute = fn }
/* 16-bit ids are allowed by the op, but no kernel has them. */
#define UNSORTED(op_name, set)                                                                 \
  {                                                                                            \
    .op = op_name, .types = {{"T", set}, {"Tindices", TD_SET(TD_INT32) | TD_SET(TD_INT64)}},   \
    .state_size = sizeof(segment_state), .create = segment_create, .compute = unsorted_compute \
  }

static const td_kernel_def kernels[] = {
    SEGMENT("SegmentSum", TD_SET_NUMBER, segment_compute),
    SEGMENT("SegmentMean", TD_SET_NUMBER, segment_compute),
    SEGMENT("SegmentProd", TD_SET_NUMBER, segment_compute),
    SEGMENT("SegmentMin", TD_SET_REAL, segment_compute),
    SEGMENT("SegmentMax", TD_SET_REAL, segment_compute),
    UNSORTED("UnsortedSegmentSum", TD_SET_NUMBER),
    UNSORTED("UnsortedSegmentProd", TD_SET_NUMBER),
    UNSORTED("UnsortedSegmentMin", TD_SET_REAL),
    UNSORTED("UnsortedSegmentMax", TD_SET_REAL),
    SEGMENT("SparseSegmentSum", TD_SET_REAL, sparse_compute),
    SEGMENT("SparseSegmentMean", TD_SET_FLOATING, sparse_compute),
    SEGMENT("SparseSegmentSqrtN", TD_SET_FLOATING, sparse_compute),
    SEGMENT("SparseSegmentSumWithNumSegments", TD_SET_REAL, sparse_compute),
    SEGMENT("SparseSegmentMeanWithNumSegments", TD_SET_FLOATING, sparse_compute),
    SEGMENT("SparseSegmentSqrtNWithNumSegments", TD_SET_FLOATING, sparse_compute),
    SEGMENT("SparseSegmentSumGrad", TD_SET_FLOATING, sparse_grad_compute),
    SEGMENT("SparseSegmentMeanGrad", TD_SET_FLOATING, sparse_grad_compute),
    SEGMENT("SparseSegmentSqrtNGrad", TD_SET_FLOATING, sparse_grad_compute),
};

TD_FAMILY(segment, ops, kernels);

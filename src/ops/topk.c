/* The k largest: TopK, TopKV2; and InTopK, InTopKV2, which ask whether a class is among them. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/ordered.h"

static const td_op_spec ops[] = {
    {"TopK", "input: T", "values: T; indices: int32",
     "k: int >= 0; sorted: bool = true; T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, "
     "uint16, half, uint32, uint64}",
     0},
    {"TopKV2", "input: T; k: Tk", "values: T; indices: index_type",
     "sorted: bool = true; T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, "
     "uint32, uint64}; Tk: type in {int16, int32, int64} = int32; index_type: type in {int16, int32, int64} = int32",
     0},
    {"InTopK", "predictions: float; targets: T", "precision: bool", "k: int; T: type in {int32, int64} = int32", 0},
    {"InTopKV2", "predictions: float; targets: T; k: T", "precision: bool", "T: type in {int32, int64} = int32", 0},
};

/* Writes to heap[0..k) the indices of the k largest of n elements, largest first, the lower index first among equals.
 * The heap's root is the worst kept element; n >= k >= 1. */
typedef void (*top_fn)(const void *x, int64_t n, int64_t k, int64_t *heap);

/* NaN compares as less than any number, so that the order is total. */
#define BEFORE(a, ai, b, bi) ((a) > (b) || ((a) == (b) && (ai) < (bi)) || ((b) != (b) && ((a) == (a) || (ai) < (bi))))
#define TOP(tag, c, key, conv)                                                  \
  static void sift_##tag(const c *x, int64_t *heap, int64_t size, int64_t at) { \
    int64_t moving = heap[at];                                                  \
    key v = conv(x[moving]);                                                    \
    for (;;) {                                                                  \
      int64_t child = 2 * at + 1;                                               \
      if (child >= size) break;                                                 \
      key a = conv(x[heap[child]]);                                             \
      if (child + 1 < size) {                                                   \
        key b = conv(x[heap[child + 1]]);                                       \
        if (BEFORE(a, heap[child], b, heap[child + 1])) child++, a = b;         \
      }                                                                         \
      if (!BEFORE(v, moving, a, heap[child])) break;                            \
      heap[at] = heap[child];                                                   \
      at = child;                                                               \
    }                                                                           \
    heap[at] = moving;                                                          \
  }                                                                             \
  static void top_##tag(const void *xv, int64_t n, int64_t k, int64_t *heap) {  \
    const c *x = xv;                                                            \
    for (int64_t i = 0; i < k; i++) heap[i] = i;                                \
    for (int64_t i = k / 2 - 1; i >= 0; i--) sift_##tag(x, heap, k, i);         \
    key worst = conv(x[heap[0]]);                                               \
    for (int64_t i = k; i < n; i++) {                                           \
      key v = conv(x[i]);                                                       \
      if (!(v > worst || (worst != worst && v == v))) continue;                 \
      heap[0] = i;                                                              \
      sift_##tag(x, heap, k, 0);                                                \
      worst = conv(x[heap[0]]);                                                 \
    }                                                                           \
    for (int64_t size = k - 1; size > 0; size--) {                              \
      int64_t t = heap[0];                                                      \
      heap[0] = heap[size];                                                     \
      heap[size] = t;                                                           \
      sift_##tag(x, heap, size, 0);                                             \
    }                                                                           \
  }
#pragma GCC diagnostic ignored "-Wtautological-compare"
TD_ORDERED_TYPES(TOP)

static top_fn find_top(td_dtype t) {
  switch ((int)t) {
#define CASE(tag, c, key, conv) \
  case TD_##tag:                \
    return top_##tag;
    TD_ORDERED_TYPES(CASE)
    default:
      return NULL;
  }
}

typedef struct top_state {
  top_fn top;
  int64_t k; /* TopK's attribute */
  bool k_is_input;
} top_state;

static td_status top_create(td_kernel_builder *b, void *state) {
  top_state *s = state;
  s->top = find_top(td_dtype_base(b->input_types[0]));
  if (!s->top) return td_internal("no order of %s", td_dtype_name(b->input_types[0]));
  s->k_is_input = b->input_count == 2;
  if (!s->k_is_input) TD_TRY(td_attr_int(b->node, "k", &s->k));
  return TD_STATUS_OK;
}

typedef struct top_work {
  top_fn top;
  const td_tensor *x;
  td_tensor *values, *indices;
  int64_t *heaps;
  int64_t n, k;
} top_work;

static void run_top(void *arg, int64_t begin, int64_t end) {
  top_work *w = arg;
  int64_t size = (int64_t)td_dtype_size((td_dtype)w->x->dtype);
  for (int64_t row = begin; row < end; row++) {
    const char *x = TD_DATA(w->x, char) + row * w->n * size;
    char *values = TD_DATA(w->values, char) + row * w->k * size;
    int64_t *heap = w->heaps + row * w->k;
    w->top(x, w->n, w->k, heap);
    for (int64_t i = 0; i < w->k; i++) {
      memcpy(values + i * size, x + heap[i] * size, (size_t)size);
      switch ((int)w->indices->dtype) {
        case TD_INT16:
          TD_DATA(w->indices, int16_t)[row * w->k + i] = (int16_t)heap[i];
          break;
        case TD_INT32:
          TD_DATA(w->indices, int32_t)[row * w->k + i] = (int32_t)heap[i];
          break;
        default:
          TD_DATA(w->indices, int64_t)[row * w->k + i] = heap[i];
          break;
      }
    }
  }
}

static td_status top_compute(td_kernel_ctx *ctx) {
  const top_state *s = ctx->state;
  td_tensor *x = td_in(ctx, 0);
  top_work w = {.top = s->top, .x = x, .k = s->k};
  if (s->k_is_input) {
    const td_tensor *k = td_in(ctx, 1);
    TD_TRY(td_check_scalar(k, "k"));
    w.k = k->dtype == TD_INT16 ? *TD_DATA(k, int16_t) : td_tensor_int_at(k, 0);
  }
  if (w.k < 0) return td_invalid_argument("Need k >= 0, got %lld", (long long)w.k);
  if (!x->rank) return td_invalid_argument("input must be >= 1-D, got shape []");
  w.n = x->dims[x->rank - 1];
  if (w.n < w.k)
    return td_invalid_argument("input must have at least k columns. Had %lld, needed %lld", (long long)w.n,
                               (long long)w.k);
  td_shape shape;
  td_tensor_shape(x, &shape);
  shape.dims[shape.rank - 1] = w.k;
  TD_TRY(td_out_alloc(ctx, 0, &shape, &w.values));
  TD_TRY(td_out_alloc(ctx, 1, &shape, &w.indices));
  if (!w.values->count) return TD_STATUS_OK;
  w.heaps = w.values->count <= INT64_MAX / 16 ? td_try_malloc((size_t)w.values->count * sizeof *w.heaps) : NULL;
  if (!w.heaps) return td_resource_exhausted("no memory to sort %lld indices", (long long)w.values->count);
  td_ctx_parallel_for(ctx, w.values->count / w.k, 20 + 1.5 * (double)w.n + 10 * (double)w.k, run_top, &w);
  td_free(w.heaps);
  return TD_STATUS_OK;
}

/* ---- InTopK ---- */

static td_status in_top_create(td_kernel_builder *b, void *state) {
  top_state *s = state;
  s->k_is_input = b->input_count == 3;
  if (!s->k_is_input) TD_TRY(td_attr_int(b->node, "k", &s->k));
  return TD_STATUS_OK;
}

typedef struct in_top_work {
  const td_tensor *predictions, *targets;
  td_tensor *z;
  int64_t k;
} in_top_work;

/* False too where the answer is unknown: a target out of range, or any prediction infinite or NaN. */
static bool in_top(const float *p, int64_t n, int64_t target, int64_t k) {
  if (target < 0 || target >= n || !isfinite(p[target])) return false;
  int64_t better = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!isfinite(p[i])) return false;
    if (p[i] > p[target] && ++better > k) break;
  }
  return better < k;
}

static void run_in_top(void *arg, int64_t begin, int64_t end) {
  in_top_work *w = arg;
  int64_t n = w->predictions->dims[1];
  for (int64_t i = begin; i < end; i++) TD_DATA(w->z, uint8_t)
  [i] = in_top(TD_DATA(w->predictions, float) + i * n, n, td_tensor_int_at(w->targets, i), w->k);
}

static td_status in_top_compute(td_kernel_ctx *ctx) {
  const top_state *s = ctx->state;
  in_top_work w = {.predictions = td_in(ctx, 0), .targets = td_in(ctx, 1), .k = s->k};
  if (w.predictions->rank != 2) return td_invalid_argument("predictions must be 2-dimensional");
  if (w.targets->rank != 1) return td_invalid_argument("targets must be 1-dimensional");
  if (w.predictions->dims[0] != w.targets->count)
    return td_invalid_argument("First dimension of predictions %lld must match length of targets %lld",
                               (long long)w.predictions->dims[0], (long long)w.targets->count);
  if (s->k_is_input) {
    TD_TRY(td_check_scalar(td_in(ctx, 2), "k"));
    w.k = td_tensor_int_at(td_in(ctx, 2), 0);
  }
  TD_TRY(td_out_alloc_like(ctx, 0, w.targets, &w.z));
  td_ctx_parallel_for(ctx, w.targets->count, 5 + (double)w.predictions->dims[1], run_in_top, &w);
  return TD_STATUS_OK;
}

#define TOPK(op_name)                                                                                    \
  {                                                                                                      \
    .op = op_name, .types = {{"T", TD_SET_REAL}}, .state_size = sizeof(top_state), .create = top_create, \
    .compute = top_compute                                                                               \
  }
#define IN_TOPK(op_name) \
  { .op = op_name, .state_size = sizeof(top_state), .create = in_top_create, .compute = in_top_compute }
static const td_kernel_def kernels[] = {TOPK("TopK"), TOPK("TopKV2"), IN_TOPK("InTopK"), IN_TOPK("InTopKV2")};

TD_FAMILY(topk, ops, kernels);

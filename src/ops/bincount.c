/* Counts of small integers: Bincount, DenseBincount. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"

static const td_op_spec ops[] = {
    {"Bincount", "arr: int32; size: int32; weights: T", "bins: T", "T: type in {int32, int64, float, double}", 0},
    {"DenseBincount", "input: Tidx; size: Tidx; weights: T", "output: T",
     "Tidx: type in {int32, int64}; T: type in {int32, int64, float, double}; binary_output: bool = false", 0},
};

typedef struct bincount_state {
  bool binary_output;
} bincount_state;

static td_status dense_create(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "binary_output", &((bincount_state *)state)->binary_output);
}

#define COUNT(type)                                                    \
  {                                                                    \
    type *bins = (type *)z->data + bin_at;                             \
    const type *weight = w->count ? (const type *)w->data + at : NULL; \
    for (int64_t i = 0; i < n; i++) {                                  \
      int64_t v = td_tensor_int_at(x, at + i);                         \
      if (v >= size) continue;                                         \
      if (binary)                                                      \
        bins[v] = 1;                                                   \
      else                                                             \
        bins[v] += weight ? weight[i] : 1;                             \
    }                                                                  \
  }

/* Values at [at, at + n) into the bins from `bin_at` on. Integers wrap. */
static void count(const td_tensor *x, int64_t at, int64_t n, const td_tensor *w, bool binary, td_tensor *z,
                  int64_t bin_at, int64_t size) {
  switch ((int)z->dtype) {
    case TD_INT32:
      COUNT(uint32_t) break;
    case TD_INT64:
      COUNT(uint64_t) break;
    case TD_FLOAT:
      COUNT(float) break;
    default:
      COUNT(double) break;
  }
}

static td_status bincount_compute(td_kernel_ctx *ctx) {
  const bincount_state *s = ctx->state;
  td_tensor *x = td_in(ctx, 0), *size_in = td_in(ctx, 1), *w = td_in(ctx, 2), *z;
  bool dense = td_str_is(ctx->kernel->op, "DenseBincount");
  if (dense && x->rank > 2) return td_invalid_argument("Shape must be at most rank 2 but is rank %d", x->rank);
  if (size_in->count != 1) {
    char *text = td_tensor_shape_text(size_in);
    td_status bad = td_invalid_argument("Shape must be rank 0 but is rank %d: size has shape %s", size_in->rank, text);
    td_free(text);
    return bad;
  }
  int64_t size = td_tensor_int_at(size_in, 0);
  if (size < 0) return td_invalid_argument("size (%lld) must be non-negative", (long long)size);
  if (w->count && !td_tensor_same_shape(w, x)) {
    char *a = td_tensor_shape_text(w), *b = td_tensor_shape_text(x);
    td_status bad = td_invalid_argument(
        "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case "
        "it acts as all weights equal to 1. Received %s for input of shape %s",
        a, b);
    td_free(a);
    td_free(b);
    return bad;
  }
  for (int64_t i = 0; i < x->count; i++)
    if (td_tensor_int_at(x, i) < 0) return td_invalid_argument("Input arr must be non-negative!");
  bool rows = dense && x->rank == 2;
  int64_t row_count = rows ? x->dims[0] : 1, n = rows ? x->dims[1] : x->count;
  td_shape shape;
  shape.rank = 0;
  if (rows) TD_TRY(td_shape_append(&shape, row_count));
  TD_TRY(td_shape_append(&shape, size));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &z));
  if (z->size) memset(z->data, 0, z->size);
  for (int64_t r = 0; r < row_count && n; r++) count(x, r * n, n, w, s->binary_output, z, r * size, size);
  return TD_STATUS_OK;
}

#define WEIGHTS (TD_SET(TD_INT32) | TD_SET(TD_INT64) | TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE))
static const td_kernel_def kernels[] = {
    {.op = "Bincount", .types = {{"T", WEIGHTS}}, .state_size = sizeof(bincount_state), .compute = bincount_compute},
    {.op = "DenseBincount",
     .types = {{"T", WEIGHTS}},
     .state_size = sizeof(bincount_state),
     .create = dense_create,
     .compute = bincount_compute},
};

TD_FAMILY(bincount, ops, kernels);

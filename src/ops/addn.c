/* Sums of many tensors: AddN and AccumulateNV2. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/loops/loops.h"

static const td_op_spec ops[] = {
    {"AddN", "inputs: N * T", "sum: T",
     "N: int >= 1; T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
     "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, variant}",
     TD_OP_COMMUTATIVE | TD_OP_AGGREGATE},
    {"AccumulateNV2", "inputs: N * T", "sum: T",
     "N: int >= 1; T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
     "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}; shape: shape",
     TD_OP_COMMUTATIVE | TD_OP_AGGREGATE},
};

typedef struct state {
  td_map pair;
  td_sum_fn more; /* than two at once; or NULL */
} state;

static td_status add_n_create(td_kernel_builder *b, void *arg) {
  state *s = arg;
  td_dtype t = td_dtype_base(b->input_types[0]);
  if (!td_map_init_binary(&s->pair, TD_BIN_Add, t, t, 0)) return td_internal("no sum of %s", td_dtype_name(t));
  s->more = td_sum_loop(t);
  return TD_STATUS_OK;
}

typedef struct work {
  const state *s;
  td_kernel_ctx *ctx;
  char *z;
} work;

static void run(void *arg, int64_t begin, int64_t end) {
  enum { BLOCK = 4096 }; /* the running sum of a block stays in the cache */
  work *w = arg;
  int size = w->s->pair.in_size, n = w->ctx->kernel->input_count, most = w->s->more ? TD_MOST_SUMMED : 2;
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t k = TD_MIN(end - at, BLOCK), from = at * size;
    char *z = w->z + from;
    const void *x[TD_MOST_SUMMED] = {TD_DATA(td_in(w->ctx, 0), char) + from};
    for (int i = 1; i < n; x[0] = z) {
      int count = 1;
      while (count < most && i < n) x[count++] = TD_DATA(td_in(w->ctx, i++), char) + from;
      if (count == 2)
        td_map_binary(&w->s->pair, x[0], 1, x[1], 1, z, k);
      else
        w->s->more(x, count, z, k);
    }
  }
}

static td_status add_n_compute(td_kernel_ctx *ctx) {
  int n = ctx->kernel->input_count;
  td_tensor *first = td_in(ctx, 0), *z;
  for (int i = 1; i < n; i++) {
    if (td_tensor_same_shape(first, td_in(ctx, i))) continue;
    char *a = td_tensor_shape_text(first), *b = td_tensor_shape_text(td_in(ctx, i));
    td_status s = td_invalid_argument(
        "Inputs to operation %.*s of type %.*s must have the same size and shape.  "
        "Input 0: %s != input %d: %s",
        TD_STR_ARG(ctx->kernel->name), TD_STR_ARG(ctx->kernel->op), a, i, b);
    td_free(a);
    td_free(b);
    return s;
  }
  if (n == 1) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  /* only the first two are read before anything is written */
  TD_TRY(td_out_reuse_like(ctx, td_tensor_is_exclusive(first) ? 0 : 1, 0, &z));
  work w = {ctx->state, ctx, z->data};
  td_ctx_parallel_for(ctx, z->count, 0.2 * n, run, &w);
  return TD_STATUS_OK;
}

static const td_kernel_def kernels[] = {
    {.op = "AddN",
     .types = {{"T", TD_SET_NUMBER}},
     .state_size = sizeof(state),
     .create = add_n_create,
     .compute = add_n_compute},
    {.op = "AccumulateNV2",
     .types = {{"T", TD_SET_NUMBER}},
     .state_size = sizeof(state),
     .create = add_n_create,
     .compute = add_n_compute},
};

TD_FAMILY(addn, ops, kernels);

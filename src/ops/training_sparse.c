/* Training ops on sparse gradients: SparseApply*, ResourceSparseApply*. Row i of the gradient updates row
 * indices[i] of the variable and its slots; repeated indices are applied one after the other. */
#include <stdint.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/training.h"

enum { PARALLEL_COLUMNS = 64, PARALLEL_ELEMENTS = 1 << 15 };
enum { AHEAD = 16, LINE = 64, FETCHED_BYTES = 512 }; /* of rows: how many ahead, and how much of each variable's */

typedef struct sparse_job {
  const td_training *t;
  const td_rule_args *args;
  void *vars[TD_RULE_VARS];
  const char *grad;
  const td_tensor *indices;
  int64_t rows, row; /* rows of the variable; elements of a row */
  size_t size;
} sparse_job;

/* Read once: a ref variable that serves as indices may change meanwhile. */
static inline int64_t index_at(const td_tensor *t, int64_t i) {
  return t->dtype == TD_INT64 ? ((const volatile int64_t *)t->data)[i] : ((const volatile int32_t *)t->data)[i];
}

/* Brings a row's columns [begin, end) of all variables near: tables rarely fit the cache. To its second level, where
 * more lines can be under way than to the first. Inlined first of all: GCC takes a function that only prefetches for
 * one without effect, and drops its calls. */
__attribute__((always_inline)) static inline void fetch_row(const sparse_job *j, int64_t at, int64_t begin,
                                                            int64_t end) {
  size_t first = (size_t)(at * j->row + begin) * j->size;
  size_t last = first + TD_MIN((size_t)(end - begin) * j->size, (size_t)FETCHED_BYTES) - 1;
  for (int k = 0; k < j->t->vars; k++) {
    const char *v = j->vars[k];
    for (size_t b = first; b < last; b += LINE) __builtin_prefetch(v + b, 0, 2);
    __builtin_prefetch(v + last, 0, 2);
  }
}

/* Columns [begin, end) of every row, in the order of the indices. */
static void sparse_columns(void *arg, int64_t begin, int64_t end) {
  const sparse_job *j = arg;
  int64_t n = j->indices->count;
  for (int64_t i = 0; i < n; i++) {
    if (i + AHEAD < n) {
      int64_t next = index_at(j->indices, i + AHEAD);
      if ((uint64_t)next < (uint64_t)j->rows) fetch_row(j, next, begin, end);
    }
    int64_t at = index_at(j->indices, i);
    if ((uint64_t)at >= (uint64_t)j->rows) continue;
    j->t->fn(j->vars, (const void *const *)j->vars, j->grad + (size_t)(i * j->row + begin) * j->size,
             at * j->row + begin, at * j->row + end, j->args);
  }
}

static td_status check(const td_training *t, const td_tensor *var, const td_tensor *grad, const td_tensor *indices) {
  if (!var->rank) return td_invalid_argument("var must be at least 1 dimensional");
  if (indices->rank != 1) return td_invalid_argument("indices must be one-dimensional");
  if (grad->rank != var->rank)
    return td_invalid_argument("var and grad must have the same rank: %d and %d", var->rank, grad->rank);
  int64_t row = 1;
  for (int d = 1; d < var->rank; d++) {
    if (var->dims[d] != grad->dims[d]) return td_invalid_argument("var and grad must match in dimension %d", d);
    row *= var->dims[d];
  }
  if (grad->dims[0] != indices->count)
    return td_invalid_argument("grad must be the same size as indices in the first dimension.");
  if (!row && var->dims[0]) return td_invalid_argument("Inner dimension should be greater than zero.");
  for (int64_t i = 0; i < indices->count; i++) {
    int64_t at = index_at(indices, i);
    if ((uint64_t)at >= (uint64_t)var->dims[0])
      return td_invalid_argument("Index %lld at offset %lld in indices is out of range", (long long)at, (long long)i);
  }
  return TD_STATUS_OK;
}

static td_status compute(td_kernel_ctx *ctx) {
  const td_training *t = ctx->state;
  const td_tensor *grad = td_in(ctx, t->grad), *indices = td_in(ctx, t->indices);
  td_rule_args args;
  td_update_set set;
  td_status status = td_training_begin(ctx, t->may_race, &set);
  if (status) goto cleanup;
  /* What it reads, or others may have borrowed, must not change: it gets a copy to write to. */
  if (set.is_shared && (td_update_overlaps(&set, grad) || td_update_is_lendable(&set))) {
    td_update_end(&set);
    TD_TRY_GOTO(td_training_begin(ctx, false, &set));
  }
  TD_TRY_GOTO(td_training_read_args(ctx, &set, &args));
  TD_TRY_GOTO(check(t, td_update_value(&set, 0), grad, indices));
  TD_TRY_GOTO(td_update_prepare(&set, !td_update_overlaps(&set, grad)));
  const td_tensor *var = td_update_value(&set, 0);
  sparse_job job = {.t = t,
                    .args = &args,
                    .grad = grad->data,
                    .indices = indices,
                    .rows = var->dims[0],
                    .size = td_dtype_size(t->dtype)};
  for (int i = 0; i < t->vars; i++) job.vars[i] = td_update_value(&set, i)->data;
  job.row = var->dims[0] ? var->count / var->dims[0] : 0;
  if (!grad->count || !job.row) goto cleanup;
  if (job.row >= PARALLEL_COLUMNS && grad->count >= PARALLEL_ELEMENTS)
    td_ctx_parallel_for(ctx, job.row, (double)indices->count * t->rule->unit_ns, sparse_columns, &job);
  else
    sparse_columns(&job, 0, job.row);
cleanup:
  td_update_end(&set);
  if (!status) td_update_forward_ref(ctx);
  return status;
}

/* ---- tables ---- */

#define ATTRS_OF(EXTRA) TD_TRAINING_T "; Tindices: type in {int32, int64}; use_locking: bool = false" EXTRA
#define BOTH_OPS(NAME, VARS, REST, EXTRA)                              \
  TD_TRAINING_REF_OP("SparseApply" NAME, VARS, REST, ATTRS_OF(EXTRA)), \
      TD_TRAINING_RESOURCE_OP("ResourceSparseApply" NAME, VARS, REST, ATTRS_OF(EXTRA))
#define SLOTS    "; update_slots: bool = true"
#define LINEAR   "; multiply_linear_by_lr: bool = false"
#define NESTEROV "; use_nesterov: bool = false"
#define SPARSE   "grad: T; indices: Tindices"

static const td_op_spec ops[] = {
    BOTH_OPS("Adadelta", TD_VARS_ADADELTA, "lr: T; rho: T; epsilon: T; " SPARSE, ""),
    BOTH_OPS("Adagrad", TD_VARS_ACCUM, "lr: T; " SPARSE, SLOTS),
    BOTH_OPS("AdagradV2", TD_VARS_ACCUM, "lr: T; epsilon: T; " SPARSE, SLOTS),
    BOTH_OPS("AdagradDA", TD_VARS_DA, SPARSE "; lr: T; l1: T; l2: T; global_step: int64", ""),
    BOTH_OPS("ProximalAdagrad", TD_VARS_ACCUM, "lr: T; l1: T; l2: T; " SPARSE, ""),
    BOTH_OPS("ProximalGradientDescent", TD_VARS_1, "alpha: T; l1: T; l2: T; " SPARSE, ""),
    BOTH_OPS("Ftrl", TD_VARS_FTRL, SPARSE "; lr: T; l1: T; l2: T; lr_power: T", LINEAR),
    BOTH_OPS("FtrlV2", TD_VARS_FTRL, SPARSE "; lr: T; l1: T; l2: T; l2_shrinkage: T; lr_power: T", LINEAR),
    BOTH_OPS("Momentum", TD_VARS_ACCUM, "lr: T; " SPARSE "; momentum: T", NESTEROV),
    TD_TRAINING_RESOURCE_OP("ResourceSparseApplyKerasMomentum", TD_VARS_ACCUM, "lr: T; " SPARSE "; momentum: T",
                            ATTRS_OF(NESTEROV)),
    BOTH_OPS("RMSProp", TD_VARS_RMS, "lr: T; rho: T; momentum: T; epsilon: T; " SPARSE, ""),
    BOTH_OPS("CenteredRMSProp", TD_VARS_CENTERED, "lr: T; rho: T; momentum: T; epsilon: T; " SPARSE, ""),
};

#define BOTH_KERNELS(NAME, TYPES) \
  TD_TRAINING_KERNEL("SparseApply" NAME, TYPES, compute), TD_TRAINING_KERNEL("ResourceSparseApply" NAME, TYPES, compute)

static const td_kernel_def kernels[] = {
    BOTH_KERNELS("Adadelta", TD_TRAINING_ANY),
    BOTH_KERNELS("Adagrad", TD_TRAINING_ANY),
    BOTH_KERNELS("AdagradV2", TD_TRAINING_ANY),
    BOTH_KERNELS("AdagradDA", TD_TRAINING_REAL),
    BOTH_KERNELS("ProximalAdagrad", TD_TRAINING_REAL),
    BOTH_KERNELS("ProximalGradientDescent", TD_TRAINING_REAL),
    BOTH_KERNELS("Ftrl", TD_TRAINING_REAL),
    BOTH_KERNELS("FtrlV2", TD_TRAINING_REAL),
    BOTH_KERNELS("Momentum", TD_TRAINING_ANY),
    TD_TRAINING_KERNEL("ResourceSparseApplyKerasMomentum", TD_TRAINING_ANY, compute),
    BOTH_KERNELS("RMSProp", TD_TRAINING_ANY),
    BOTH_KERNELS("CenteredRMSProp", TD_TRAINING_ANY),
};

TD_FAMILY(training_sparse, ops, kernels);

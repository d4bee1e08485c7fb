/* Matrix products for the families that need them (MatMul, convolutions): every number type, one call.
 *
 * float, double and the complex types go to the plug-in (ops/heavy.h) unless they are small or it is missing; the
 * other types, and those cases, take plain blocked loops. half and bfloat16 are computed in float: convert first
 * (td_floats_of(), td_floats_to()).
 */
#ifndef TD_OPS_GEMM_H_
#define TD_OPS_GEMM_H_

#include "framework/kernel.h"
#include "ops/heavy.h"

/* C = op(A) op(B), or C += op(A) op(B) with `accumulate`. Row-major; lda, ldb, ldc: elements from one row to the
 * next of the matrices as they lie. */
typedef struct td_gemm {
  td_dtype dtype; /* a number type but half and bfloat16 */
  char ta, tb;    /* 'N', 'T', 'C' (conjugate transpose) */
  bool accumulate;
  int64_t m, n, k;
  const void *a, *b;
  void *c;
  int64_t lda, ldb, ldc;
} td_gemm;

/* On the calling thread. `heavy` may be NULL. */
void td_gemm_run(const td_heavy_ops *heavy, const td_gemm *g);
/* On the step's threads, split by rows or columns; then `after` (may be NULL) runs over each finished block of rows
 * [begin, end) x columns [from, to). */
typedef void (*td_gemm_after_fn)(void *arg, int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end);
void td_gemm_parallel(td_kernel_ctx *ctx, const td_heavy_ops *heavy, const td_gemm *g, td_gemm_after_fn after,
                      void *arg);
/* `count` products whose operands lie at a[i], b[i], c[i] (in elements from g's pointers; NULL: i times the stride). */
void td_gemm_batch(td_kernel_ctx *ctx, const td_heavy_ops *heavy, const td_gemm *g, int64_t count, const int64_t *a_at,
                   const int64_t *b_at, int64_t c_stride);

/* The plug-in, for kernels of these types; NULL for a type it has nothing for. Loads it: for create(). */
const td_heavy_ops *td_gemm_heavy_for(td_dtype dtype);

/* ---- half and bfloat16 ---- */

static inline td_dtype td_compute_type(td_dtype t) { return t == TD_HALF || t == TD_BFLOAT16 ? TD_FLOAT : t; }
/* `t` itself with one more reference, or for half and bfloat16 the same values as float. */
td_status td_floats_of(td_tensor *t, td_tensor **out) TD_MUST_USE;
/* Output `i` of that shape, and where to compute it: itself, or a tensor of float which td_floats_finish() converts. */
td_status td_floats_out(td_kernel_ctx *ctx, int i, int rank, const int64_t *dims, td_tensor **work) TD_MUST_USE;
void td_floats_finish(td_kernel_ctx *ctx, int i, td_tensor *work); /* releases `work`; NULL is fine */
void td_half_to_floats(const td_half *from, float *to, int64_t n);
void td_half_from_floats(const float *from, td_half *to, int64_t n);

#endif /* TD_OPS_GEMM_H_ */

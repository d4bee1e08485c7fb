#include "ops/heavy/heavy.h"

#include <cblas.h>
#include <dnnl.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

/* libgomp's, which oneDNN runs on: the setting is the calling thread's own. */
extern void omp_set_num_threads(int n);

void td_heavy_enter(void) { omp_set_num_threads(1); }

static bool sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                  int64_t ldb, float beta, float *c, int64_t ldc) {
  td_heavy_enter();
  return dnnl_sgemm(ta == 'N' ? 'N' : 'T', tb == 'N' ? 'N' : 'T', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc) ==
         dnnl_success;
}

/* ---- OpenBLAS ----
 *
 * The build with threads, told to start none: it has locks around the buffers that it packs matrices into. The build
 * without threads may give two callers the same one, so it is not called. */

static bool is_thread_safe; /* written once, by td_heavy_table() */

static CBLAS_TRANSPOSE transpose(char t) { return t == 'N' ? CblasNoTrans : t == 'T' ? CblasTrans : CblasConjTrans; }

/* CBLAS counts in int. A build on OpenMP, which a system may have in its place, asks for the thread's own setting. */
static bool enter_blas(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  td_heavy_enter();
  return is_thread_safe && m <= INT_MAX && n <= INT_MAX && k <= INT_MAX && lda <= INT_MAX && ldb <= INT_MAX &&
         ldc <= INT_MAX;
}

/* Row-major matrices are transposed column-major ones: B comes first. */
static bool sgemm_small(char ta, char tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                        int64_t ldb, float beta, float *c, int64_t ldc) {
  if (!enter_blas(m, n, k, lda, ldb, ldc)) return false;
  cblas_sgemm(CblasRowMajor, transpose(ta), transpose(tb), (int)m, (int)n, (int)k, 1.0f, a, (int)lda, b, (int)ldb, beta,
              c, (int)ldc);
  return true;
}

static bool dgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b,
                  int64_t ldb, double beta, double *c, int64_t ldc) {
  if (!enter_blas(m, n, k, lda, ldb, ldc)) return false;
  cblas_dgemm(CblasRowMajor, transpose(ta), transpose(tb), (int)m, (int)n, (int)k, 1.0, a, (int)lda, b, (int)ldb, beta,
              c, (int)ldc);
  return true;
}

static bool cgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                  int64_t ldb, float beta, void *c, int64_t ldc) {
  if (!enter_blas(m, n, k, lda, ldb, ldc)) return false;
  const float one[2] = {1, 0}, scale[2] = {beta, 0};
  cblas_cgemm(CblasRowMajor, transpose(ta), transpose(tb), (int)m, (int)n, (int)k, one, a, (int)lda, b, (int)ldb, scale,
              c, (int)ldc);
  return true;
}

static bool zgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                  int64_t ldb, double beta, void *c, int64_t ldc) {
  if (!enter_blas(m, n, k, lda, ldb, ldc)) return false;
  const double one[2] = {1, 0}, scale[2] = {beta, 0};
  cblas_zgemm(CblasRowMajor, transpose(ta), transpose(tb), (int)m, (int)n, (int)k, one, a, (int)lda, b, (int)ldb, scale,
              c, (int)ldc);
  return true;
}

static td_heavy_ops ops = {
    .abi = TD_HEAVY_ABI,
    .sgemm = sgemm,
    .dgemm = dgemm,
    .cgemm = cgemm,
    .zgemm = zgemm,
    .conv_forward = td_heavy_conv_forward,
    .conv_backward_input = td_heavy_conv_backward_input,
    .conv_backward_filter = td_heavy_conv_backward_filter,
};

/* Whether it has kernels that multiply small matrices where they lie. */
static bool has_small_kernels(void) {
  static const char *const cores[] = {"SkylakeX", "Cooperlake", "SapphireRapids"};
  const char *core = openblas_get_corename();
  for (size_t i = 0; core && i < sizeof cores / sizeof *cores; i++) {
    if (!strcasecmp(core, cores[i])) return true;
  }
  return false;
}

__attribute__((visibility("default"))) const td_heavy_ops *td_heavy_table(void) {
  openblas_set_num_threads(1);
  is_thread_safe = openblas_get_parallel() != OPENBLAS_SEQUENTIAL || strstr(openblas_get_config(), "USE_LOCKING");
  if (is_thread_safe && has_small_kernels()) ops.sgemm_small = sgemm_small;
  return &ops;
}

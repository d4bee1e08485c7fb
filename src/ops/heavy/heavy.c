#include "ops/heavy/heavy.h"

#include <cblas.h>
#include <dnnl.h>
#include <limits.h>
#include <pthread.h>
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
 * Built for one thread, as Debian's is, it hands out the buffers that it packs matrices into without a lock: two
 * threads may get the same one. So calls take turns, but for those that need no buffer, which it says itself: kernels
 * for small matrices that lie where they are, on processors with AVX-512. */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static bool takes_turns; /* written once, by td_heavy_table() */

static void begin(bool needs_buffer) {
  if (needs_buffer && takes_turns) pthread_mutex_lock(&turn);
}
static void end(bool needs_buffer) {
  if (needs_buffer && takes_turns) pthread_mutex_unlock(&turn);
}

/* Whether op(A) op(B) of that size, column-major, needs no buffer. */
typedef int (*small_float_fn)(int ta, int tb, long m, long n, long k, float alpha, float beta);
typedef int (*small_double_fn)(int ta, int tb, long m, long n, long k, double alpha, double beta);
static small_float_fn is_small_float; /* as takes_turns; NULL: no such kernels */
static small_double_fn is_small_double;

#define SMALL_KERNELS(X) X(SkylakeX, SKYLAKEX) X(Cooperlake, COOPERLAKE) X(SapphireRapids, SAPPHIRERAPIDS)
#define DECLARE(name, NAME)                                                                                    \
  extern int sgemm_small_matrix_permit_##NAME(int, int, long, long, long, float, float) __attribute__((weak)); \
  extern int dgemm_small_matrix_permit_##NAME(int, int, long, long, long, double, double) __attribute__((weak));
SMALL_KERNELS(DECLARE)

static void find_small_kernels(void) {
  const char *core = openblas_get_corename();
#define FIND(name, NAME)                                \
  if (core && !strcasecmp(core, #name)) {               \
    is_small_float = sgemm_small_matrix_permit_##NAME;  \
    is_small_double = dgemm_small_matrix_permit_##NAME; \
  }
  SMALL_KERNELS(FIND)
}

static CBLAS_TRANSPOSE transpose(char t) { return t == 'N' ? CblasNoTrans : t == 'T' ? CblasTrans : CblasConjTrans; }

/* CBLAS counts in int. */
static bool fits(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  return m <= INT_MAX && n <= INT_MAX && k <= INT_MAX && lda <= INT_MAX && ldb <= INT_MAX && ldc <= INT_MAX;
}

/* Row-major matrices are transposed column-major ones: B comes first. */
static bool sgemm_small(char ta, char tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                        int64_t ldb, float beta, float *c, int64_t ldc) {
  if (!fits(m, n, k, lda, ldb, ldc) || !is_small_float(tb != 'N', ta != 'N', n, m, k, 1, beta)) return false;
  cblas_sgemm(CblasRowMajor, transpose(ta), transpose(tb), (int)m, (int)n, (int)k, 1.0f, a, (int)lda, b, (int)ldb, beta,
              c, (int)ldc);
  return true;
}

static bool dgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b,
                  int64_t ldb, double beta, double *c, int64_t ldc) {
  if (!fits(m, n, k, lda, ldb, ldc)) return false;
  bool needs_buffer = !is_small_double || !is_small_double(tb != 'N', ta != 'N', n, m, k, 1, beta);
  begin(needs_buffer);
  cblas_dgemm(CblasRowMajor, transpose(ta), transpose(tb), (int)m, (int)n, (int)k, 1.0, a, (int)lda, b, (int)ldb, beta,
              c, (int)ldc);
  end(needs_buffer);
  return true;
}

static bool cgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                  int64_t ldb, float beta, void *c, int64_t ldc) {
  if (!fits(m, n, k, lda, ldb, ldc)) return false;
  const float one[2] = {1, 0}, scale[2] = {beta, 0};
  begin(true);
  cblas_cgemm(CblasRowMajor, transpose(ta), transpose(tb), (int)m, (int)n, (int)k, one, a, (int)lda, b, (int)ldb, scale,
              c, (int)ldc);
  end(true);
  return true;
}

static bool zgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                  int64_t ldb, double beta, void *c, int64_t ldc) {
  if (!fits(m, n, k, lda, ldb, ldc)) return false;
  const double one[2] = {1, 0}, scale[2] = {beta, 0};
  begin(true);
  cblas_zgemm(CblasRowMajor, transpose(ta), transpose(tb), (int)m, (int)n, (int)k, one, a, (int)lda, b, (int)ldb, scale,
              c, (int)ldc);
  end(true);
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

__attribute__((visibility("default"))) const td_heavy_ops *td_heavy_table(void) {
  takes_turns = openblas_get_parallel() == OPENBLAS_SEQUENTIAL && !strstr(openblas_get_config(), "USE_LOCKING");
  find_small_kernels();
  if (is_small_float) ops.sgemm_small = sgemm_small;
  return &ops;
}

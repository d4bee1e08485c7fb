#include "ops/gemm.h"

#include <complex.h>
#include <string.h>

#include "base/mem.h"
#include "ops/move.h"

#define TD_PASTE_(a, b) a##b
#define TD_PASTE(a, b)  TD_PASTE_(a, b)
#define SAME(x)         (x)

/* Integers wrap: computed unsigned. Small ones in 32 bits. */
#define TD_T    uint8_t
#define TD_ACC  uint32_t
#define TD_NAME plain_u8
#define TD_CONJ SAME
#define TD_ATTR
#include "ops/gemm_plain.inc"
#define TD_T    uint16_t
#define TD_ACC  uint32_t
#define TD_NAME plain_u16
#define TD_CONJ SAME
#define TD_ATTR
#include "ops/gemm_plain.inc"
#define TD_T    uint32_t
#define TD_ACC  uint32_t
#define TD_NAME plain_u32
#define TD_CONJ SAME
#define TD_ATTR
#include "ops/gemm_plain.inc"
#define TD_T    uint64_t
#define TD_ACC  uint64_t
#define TD_NAME plain_u64
#define TD_CONJ SAME
#define TD_ATTR
#include "ops/gemm_plain.inc"
#define TD_T    float
#define TD_ACC  float
#define TD_NAME plain_f32
#define TD_CONJ SAME
#define TD_ATTR
#include "ops/gemm_plain.inc"
#define TD_T    double
#define TD_ACC  double
#define TD_NAME plain_f64
#define TD_CONJ SAME
#define TD_ATTR
#include "ops/gemm_plain.inc"
#define TD_T    td_complex64
#define TD_ACC  td_complex64
#define TD_NAME plain_c64
#define TD_CONJ conjf
#define TD_ATTR
#include "ops/gemm_plain.inc"
#define TD_T    td_complex128
#define TD_ACC  td_complex128
#define TD_NAME plain_c128
#define TD_CONJ conj
#define TD_ATTR
#include "ops/gemm_plain.inc"
#ifdef __x86_64__
#define TD_T    float
#define TD_ACC  float
#define TD_NAME plain_f32_avx2
#define TD_CONJ SAME
#define TD_ATTR __attribute__((target("avx2,fma")))
#include "ops/gemm_plain.inc"
#endif

static void plain(const td_gemm *g) {
  switch (g->dtype) {
    case TD_INT8:
    case TD_UINT8:
      plain_u8(g);
      break;
    case TD_INT16:
    case TD_UINT16:
      plain_u16(g);
      break;
    case TD_INT32:
    case TD_UINT32:
      plain_u32(g);
      break;
    case TD_INT64:
    case TD_UINT64:
      plain_u64(g);
      break;
    case TD_DOUBLE:
      plain_f64(g);
      break;
    case TD_COMPLEX64:
      plain_c64(g);
      break;
    case TD_COMPLEX128:
      plain_c128(g);
      break;
    case TD_FLOAT:
#ifdef __x86_64__
      if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        plain_f32_avx2(g);
        break;
      }
#endif
      plain_f32(g);
      break;
    default:
      assert(!"no such product");
  }
}

/* Multiplications beyond which a call is faster than plain loops. */
enum { BLAS_PAYS = 128, ONEDNN_PAYS = 4096 };

/* Whether BLAS is faster than oneDNN, whose calls cost 0.5 us, and than plain loops: measured with AVX-512 over sides
 * of 1 to 1024. A transposed B gains least: only where little is packed, or the result is small. */
static bool suits_small(const td_gemm *g, double work) {
  enum { LONG = 256, LONG_VECTOR = 1024, MOST = 64 * 64 * 64, FEW = 16 * 16 * 16, SMALL_RESULT = 512 };
  int64_t longest = TD_MAX(TD_MAX(g->m, g->n), g->k);
  if (g->n == 1) return longest <= LONG_VECTOR && work <= MOST;
  if (g->m == 1) return longest <= LONG_VECTOR && work <= MOST && g->tb == 'N';
  if (longest > LONG || work > MOST) return false;
  return g->tb == 'N' || g->ta != 'N' || work <= FEW || g->m * g->n <= SMALL_RESULT;
}

/* A small transposed B pays for being turned round, given some rows to multiply it by: 13 to 40 % of the time less. */
enum { TURNED = 64 * 64, ROWS_TO_TURN = 16, LONGEST_TO_TURN = 256 };
static bool is_worth_turning(const td_gemm *g) {
  return g->ta == 'N' && g->tb != 'N' && g->m >= ROWS_TO_TURN && g->m <= LONGEST_TO_TURN && g->n > 1 && g->k > 1 &&
         g->n * g->k <= TURNED;
}

static bool small_turned(const td_heavy_ops *h, const td_gemm *g) {
  _Alignas(64) float b[TURNED];
  td_transpose_floats(g->b, g->ldb, b, g->n, g->k, g->n);
  return h->sgemm_small('N', 'N', g->m, g->n, g->k, g->a, g->lda, b, g->n, g->accumulate, g->c, g->ldc);
}

static bool small_float(const td_heavy_ops *h, const td_gemm *g, double work) {
  if (!h->sgemm_small) return false;
  if (is_worth_turning(g)) return small_turned(h, g);
  return suits_small(g, work) &&
         h->sgemm_small(g->ta, g->tb, g->m, g->n, g->k, g->a, g->lda, g->b, g->ldb, g->accumulate, g->c, g->ldc);
}

static bool by_plugin(const td_heavy_ops *h, const td_gemm *g, double work) {
  switch (g->dtype) {
    case TD_FLOAT:
      if (small_float(h, g, work)) return true;
      return work > ONEDNN_PAYS &&
             h->sgemm(g->ta, g->tb, g->m, g->n, g->k, g->a, g->lda, g->b, g->ldb, g->accumulate, g->c, g->ldc);
    case TD_DOUBLE:
      return h->dgemm(g->ta, g->tb, g->m, g->n, g->k, g->a, g->lda, g->b, g->ldb, g->accumulate, g->c, g->ldc);
    case TD_COMPLEX64:
      return h->cgemm(g->ta, g->tb, g->m, g->n, g->k, g->a, g->lda, g->b, g->ldb, g->accumulate, g->c, g->ldc);
    case TD_COMPLEX128:
      return h->zgemm(g->ta, g->tb, g->m, g->n, g->k, g->a, g->lda, g->b, g->ldb, g->accumulate, g->c, g->ldc);
    default:
      return false;
  }
}

/* A vector lies alike as a row and as a column. Rows are the faster way for all that multiply. */
static td_gemm with_rows(const td_gemm *g) {
  td_gemm r = *g;
  if (g->m == 1 && g->ta == 'T' && g->lda == 1) r.ta = 'N', r.lda = g->k;
  if (g->n == 1 && g->tb == 'N' && g->ldb == 1) r.tb = 'T', r.ldb = g->k;
  return r;
}

void td_gemm_run(const td_heavy_ops *heavy, const td_gemm *g) {
  if (!g->m || !g->n) return;
  double work = (double)g->m * (double)g->n * (double)g->k;
  td_gemm rows;
  if (g->m == 1 || g->n == 1) {
    rows = with_rows(g);
    g = &rows;
  }
  if (heavy && work > BLAS_PAYS && by_plugin(heavy, g, work)) return;
  plain(g);
}

static int work_per_ns(td_dtype t) { return t == TD_FLOAT ? 50 : t == TD_DOUBLE ? 25 : t == TD_COMPLEX64 ? 12 : 4; }

/* A product in tiles of rows x columns of C. */
typedef struct split {
  const td_heavy_ops *heavy;
  const td_gemm *g;
  td_gemm_after_fn after;
  void *arg;
  int64_t rows, columns; /* of a tile */
  int64_t down, across;  /* how many */
} split;

static void run_tile(const split *s, int64_t row, int64_t column) {
  td_gemm g = *s->g;
  size_t size = td_dtype_size(g.dtype);
  g.m = TD_MIN(s->rows, g.m - row);
  g.n = TD_MIN(s->columns, g.n - column);
  g.a = (const char *)g.a + (size_t)(g.ta == 'N' ? row * g.lda : row) * size;
  g.b = (const char *)g.b + (size_t)(g.tb == 'N' ? column : column * g.ldb) * size;
  g.c = (char *)g.c + (size_t)(row * g.ldc + column) * size;
  td_gemm_run(s->heavy, &g);
  if (s->after) s->after(s->arg, row, row + g.m, column, column + g.n);
}

static void run_split(void *arg, int64_t begin, int64_t end) {
  const split *s = arg;
  for (int64_t i = begin; i < end; i++) run_tile(s, i / s->across * s->rows, i % s->across * s->columns);
}

/* Halves the longer side of the tiles while there are not too many of them. The libraries pack both operands of every
 * tile, which costs a tile of 64 lines a third of its time, one of 256 a tenth: so large products get fewer and larger
 * tiles than the pool could balance. By the shape alone, that results do not depend on the number of threads. */
static void choose_tiles(split *s, double ns) {
  enum { LEAST_LINES = 128, LINES = 16 /* borders that suit the vectors */, FEW = 8, MOST = 64 };
  int64_t m = TD_MAX(s->g->m, 1), n = TD_MAX(s->g->n, 1);
  double most = TD_MAX(TD_MIN(ns / 100e3, FEW), TD_MIN(ns / 2e6, MOST));
  s->rows = m, s->columns = n;
  for (int64_t tiles = 1; (double)(2 * tiles) <= most; tiles *= 2) {
    int64_t *side = s->rows >= s->columns ? &s->rows : &s->columns;
    if (*side < 2 * LEAST_LINES) break;
    *side = ((*side + 1) / 2 + LINES - 1) / LINES * LINES;
  }
  s->down = (m + s->rows - 1) / s->rows;
  s->across = (n + s->columns - 1) / s->columns;
}

void td_gemm_parallel(td_kernel_ctx *ctx, const td_heavy_ops *heavy, const td_gemm *g, td_gemm_after_fn after,
                      void *arg) {
  double ns = (double)g->m * (double)g->n * (double)g->k / work_per_ns(g->dtype);
  split s = {.heavy = heavy, .g = g, .after = after, .arg = arg};
  choose_tiles(&s, ns);
  int64_t tiles = s.down * s.across;
  td_ctx_parallel_for(ctx, tiles, ns / (double)tiles, run_split, &s);
}

typedef struct batch {
  const td_heavy_ops *heavy;
  const td_gemm *g;
  const int64_t *a_at, *b_at;
  int64_t c_stride;
  size_t size;
} batch;

static td_gemm batch_item(const batch *b, int64_t i) {
  td_gemm g = *b->g;
  g.a = (const char *)g.a + (size_t)b->a_at[i] * b->size;
  g.b = (const char *)g.b + (size_t)b->b_at[i] * b->size;
  g.c = (char *)g.c + (size_t)(i * b->c_stride) * b->size;
  return g;
}

static void run_batch(void *arg, int64_t begin, int64_t end) {
  const batch *b = arg;
  for (int64_t i = begin; i < end; i++) {
    td_gemm g = batch_item(b, i);
    td_gemm_run(b->heavy, &g);
  }
}

void td_gemm_batch(td_kernel_ctx *ctx, const td_heavy_ops *heavy, const td_gemm *g, int64_t count, const int64_t *a_at,
                   const int64_t *b_at, int64_t c_stride) {
  batch b = {heavy, g, a_at, b_at, c_stride, td_dtype_size(g->dtype)};
  double ns = (double)g->m * (double)g->n * (double)g->k / work_per_ns(g->dtype);
  if (count < 16 && ns > 200000) { /* few and large */
    for (int64_t i = 0; i < count; i++) {
      td_gemm one = batch_item(&b, i);
      td_gemm_parallel(ctx, heavy, &one, NULL, NULL);
    }
    return;
  }
  td_ctx_parallel_for(ctx, count, ns + 20, run_batch, &b);
}

const td_heavy_ops *td_gemm_heavy_for(td_dtype dtype) {
  return td_dtype_in(dtype, TD_SET_FLOATING | TD_SET_COMPLEX) ? td_heavy_get() : NULL;
}

/* ---- half and bfloat16 ---- */

#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx2,f16c"))) static int64_t half_to_floats_f16c(const td_half *from, float *to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
  return i;
}
__attribute__((target("avx2,f16c"))) static int64_t half_from_floats_f16c(const float *from, td_half *to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}
#endif

void td_half_to_floats(const td_half *from, float *to, int64_t n) {
  int64_t i = 0;
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) i = half_to_floats_f16c(from, to, n);
#endif
  for (; i < n; i++) to[i] = td_half_to_float(from[i]);
}

void td_half_from_floats(const float *from, td_half *to, int64_t n) {
  int64_t i = 0;
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) i = half_from_floats_f16c(from, to, n);
#endif
  for (; i < n; i++) to[i] = td_half_from_float(from[i]);
}

td_status td_floats_of(td_tensor *t, td_tensor **out) {
  if (t->dtype != TD_HALF && t->dtype != TD_BFLOAT16) {
    *out = td_tensor_retain(t);
    return TD_STATUS_OK;
  }
  TD_TRY(td_tensor_create_dims(TD_FLOAT, t->rank, t->dims, out));
  float *to = TD_DATA(*out, float);
  if (t->dtype == TD_HALF) {
    td_half_to_floats(TD_DATA(t, td_half), to, t->count);
  } else {
    const td_bfloat16 *from = TD_DATA(t, td_bfloat16);
    for (int64_t i = 0; i < t->count; i++) to[i] = td_bfloat16_to_float(from[i]);
  }
  return TD_STATUS_OK;
}

td_status td_floats_out(td_kernel_ctx *ctx, int i, int rank, const int64_t *dims, td_tensor **work) {
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, i, rank, dims, &out));
  if (out->dtype == TD_HALF || out->dtype == TD_BFLOAT16) return td_tensor_create_dims(TD_FLOAT, rank, dims, work);
  *work = td_tensor_retain(out);
  return TD_STATUS_OK;
}

void td_floats_finish(td_kernel_ctx *ctx, int i, td_tensor *work) {
  if (!work) return;
  td_tensor *out = ctx->out[i].tensor;
  const float *from = TD_DATA(work, float);
  if (out->dtype == TD_HALF) {
    td_half_from_floats(from, TD_DATA(out, td_half), out->count);
  } else if (out->dtype == TD_BFLOAT16) {
    td_bfloat16 *to = TD_DATA(out, td_bfloat16);
    for (int64_t j = 0; j < out->count; j++) to[j] = td_bfloat16_from_float(from[j]);
  }
  td_tensor_release(work);
}

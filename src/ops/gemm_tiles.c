#include "ops/gemm_tiles.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "ops/loops/loops.h"
#include "ops/rows.h"
#include "tensor/memory.h"

/* The operands are read where a step may be writing (ref variables), as everywhere. */
#define VECTORS __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))) TD_RACY
#define TILES   __attribute__((target("amx-tile,amx-bf16,avx512f")))

enum {
  SIDE = 16,  /* rows of a tile; and its columns, of 4 bytes */
  WIDE = 32,  /* tiles are taken by two */
  DEPTH = 32, /* of k in a tile: two bfloat16 to 4 bytes */
  TILE_BYTES = 1024,
  PARTS = 3, /* bfloat16 to a float */
  STEP_BYTES = PARTS * TILE_BYTES,
};

/* ---- is there such a unit, and may we use it ---- */

static pthread_once_t usable_once = PTHREAD_ONCE_INIT;
static bool usable; /* written once */

static void find_out(void) {
  enum { BF16 = 1 << 22, TILE = 1 << 24, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  unsigned a, b, c, d;
  if (td_isa_best() < 2 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (BF16 | TILE)) != (BF16 | TILE)) return;
  usable = !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA); /* the process's, for all threads */
}

/* ---- packing: panels of 16 rows of A or columns of B; a panel is a row of steps along k, a step three tiles ---- */

/* One operand. Element (i, k), i along the panels, lies at i * i_step + k * k_step; one of the steps is 1. */
typedef struct operand {
  const float *data;
  int64_t n, k, i_step, k_step;
  bool pairs; /* a tile's rows are pairs of k (B) instead of panel rows (A) */
  int64_t steps;
} operand;

/* 16 x 16 words of 4 bytes, in place. */
VECTORS static void transpose(__m512i *r) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/* The three parts of 16 floats, each a float whose lower 16 bits are zero. Cut, not rounded: the differences are
 * exact, and the largest float stays one. */
VECTORS static inline void split(__m512 x, __m512i *parts) {
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
  parts[0] = _mm512_and_si512(_mm512_castps_si512(x), upper);
  __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(parts[0]));
  parts[1] = _mm512_and_si512(_mm512_castps_si512(rest), upper);
  parts[2] = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(parts[1])));
}

VECTORS static inline __m512i magnitude(__m512 x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* k is contiguous: row r of the words holds panel row r. largest[r]: the magnitudes met in row r. */
VECTORS static void words_along_k(const operand *o, int64_t i0, int64_t k0, __m512i (*words)[SIDE], __m512i *largest) {
  const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25,
                                       23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  int64_t rows = TD_MAX(TD_MIN(o->n - i0, (int64_t)SIDE), (int64_t)0), k = TD_MIN(o->k - k0, (int64_t)DEPTH);
  uint32_t mask = k == DEPTH ? UINT32_MAX : ((uint32_t)1 << k) - 1;
  for (int64_t r = 0; r < rows; r++) {
    const float *x = o->data + (i0 + r) * o->i_step + k0;
    __m512 low = _mm512_maskz_loadu_ps((__mmask16)mask, x);
    __m512 high = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), x + 16);
    __m512i l[PARTS], h[PARTS];
    split(low, l);
    split(high, h);
    for (int p = 0; p < PARTS; p++) words[p][r] = _mm512_permutex2var_epi16(l[p], odd, h[p]);
    largest[r] = _mm512_max_epu32(largest[r], _mm512_max_epu32(magnitude(low), magnitude(high)));
  }
  for (int64_t r = rows; r < SIDE; r++)
    for (int p = 0; p < PARTS; p++) words[p][r] = _mm512_setzero_si512();
}

/* Of 16 columns, rows k and k + 1 as pairs; what the masks leave out is zero. */
VECTORS static inline __m512i pair_rows(const float *x, int64_t next, __mmask16 first, __mmask16 second,
                                        __m512i *words) {
  __m512 even = _mm512_maskz_loadu_ps(first, x), odd = _mm512_maskz_loadu_ps(second, x + next);
  __m512i e[PARTS], d[PARTS];
  split(even, e);
  split(odd, d);
  for (int p = 0; p < PARTS; p++) words[p * SIDE] = _mm512_or_si512(_mm512_srli_epi32(e[p], 16), d[p]);
  return _mm512_max_epu32(magnitude(even), magnitude(odd));
}

/* The panel's side is contiguous: row r of the words holds the pair k0 + 2r, k0 + 2r + 1 of all 16. */
VECTORS static void words_across_k(const operand *o, int64_t i0, int64_t k0, __m512i (*words)[SIDE], __m512i *largest) {
  int64_t n = TD_MAX(TD_MIN(o->n - i0, (int64_t)SIDE), (int64_t)0), k = TD_MIN(o->k - k0, (int64_t)DEPTH);
  const float *x = o->data + i0 + k0 * o->k_step;
  __m512i most = *largest;
  if (n == SIDE && k == DEPTH) {
    for (int r = 0; r < SIDE; r++, x += 2 * o->k_step)
      most = _mm512_max_epu32(most, pair_rows(x, o->k_step, 0xffff, 0xffff, words[0] + r));
  } else {
    __mmask16 mask = (__mmask16)(((uint32_t)1 << n) - 1);
    for (int r = 0; r < SIDE; r++, x += 2 * o->k_step)
      most =
          _mm512_max_epu32(most, pair_rows(x, o->k_step, 2 * r < k ? mask : 0, 2 * r + 1 < k ? mask : 0, words[0] + r));
  }
  *largest = most;
}

enum { INFINITE = 0x7f800000 };
static const uint32_t TINY = (127 - 102) << 23; /* 2^-102: below, a lowest part would be denormal */

/* Whether the largest magnitudes of a panel's rows will do; *least: the least of those that are not zero. */
VECTORS static bool judge(__m512i largest, uint32_t *least) {
  __mmask16 some = _mm512_test_epi32_mask(largest, largest);
  *least = some ? _mm512_mask_reduce_min_epu32(some, largest) : INFINITE;
  return !_mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(INFINITE)) && *least >= TINY;
}

/* Panel `i`, to `to`. False: three bfloat16 do not hold it. */
VECTORS static bool pack_panel(const operand *o, int64_t i, char *to, uint32_t *least) {
  bool along = o->k_step == 1;
  __m512i largest[SIDE];
  for (int r = 0; r < SIDE; r++) largest[r] = _mm512_setzero_si512();
  for (int64_t s = 0; s < o->steps; s++, to += STEP_BYTES) {
    __m512i(*words)[SIDE] = (__m512i(*)[SIDE])to;
    if (along)
      words_along_k(o, i * SIDE, s * DEPTH, words, largest);
    else
      words_across_k(o, i * SIDE, s * DEPTH, words, largest);
    for (int p = 0; along == o->pairs && p < PARTS; p++) transpose(words[p]);
  }
  if (along) {
    uint32_t most[SIDE];
    for (int r = 0; r < SIDE; r++) most[r] = _mm512_reduce_max_epu32(largest[r]);
    largest[0] = _mm512_loadu_si512(most);
  }
  return judge(largest[0], least);
}

/* ---- the product of packed panels ---- */

typedef struct product {
  const td_heavy_ops *heavy;
  const td_gemm *g;
  operand a, b;
  char *packed;           /* all of A */
  _Atomic uint32_t least; /* the least magnitude among the largest of each row of A, as float bits */
  atomic_bool failed;     /* A does not fit */
} product;

/* Panels [begin, end) of A. */
static void pack_rows(void *arg, int64_t begin, int64_t end) {
  product *p = arg;
  uint32_t least, seen = atomic_load(&p->least);
  for (int64_t i = begin; i < end && !atomic_load(&p->failed); i++) {
    if (!pack_panel(&p->a, i, p->packed + i * p->a.steps * STEP_BYTES, &least)) atomic_store(&p->failed, true);
    while (least < seen && !atomic_compare_exchange_weak(&p->least, &seen, least)) {
    }
  }
}

/* Two panels by two: 32 x 32 of C. Four tiles of sums keep the unit busy. */
TILES static void multiply(const char *a, const char *b, int64_t panel, int64_t steps, float *c, int64_t ldc) {
  size_t row = (size_t)ldc * sizeof *c;
  float *below = c + SIDE * ldc;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
#define LOAD_A(part)                         \
  _tile_loadd(4, a + (part)*TILE_BYTES, 64); \
  _tile_loadd(5, a + panel + (part)*TILE_BYTES, 64)
#define LOAD_B(part)                         \
  _tile_loadd(6, b + (part)*TILE_BYTES, 64); \
  _tile_loadd(7, b + panel + (part)*TILE_BYTES, 64)
#define ADD_ALL            \
  _tile_dpbf16ps(0, 4, 6); \
  _tile_dpbf16ps(1, 4, 7); \
  _tile_dpbf16ps(2, 5, 6); \
  _tile_dpbf16ps(3, 5, 7)
  for (int64_t s = 0; s < steps; s++, a += STEP_BYTES, b += STEP_BYTES) {
    LOAD_A(0); /* each product shares a factor with the last one */
    LOAD_B(2);
    ADD_ALL;
    LOAD_B(1);
    ADD_ALL;
    LOAD_A(1);
    ADD_ALL;
    LOAD_B(0);
    ADD_ALL;
    LOAD_A(2);
    ADD_ALL;
    LOAD_A(0);
    ADD_ALL;
  }
#undef LOAD_A
#undef LOAD_B
#undef ADD_ALL
  _tile_stored(0, c, row);
  _tile_stored(1, c + SIDE, row);
  _tile_stored(2, below, row);
  _tile_stored(3, below + SIDE, row);
}

/* Sums for a part of C, m x n, to which they are added or which they become. */
static void put(const float *sums, float *c, int64_t ldc, int64_t m, int64_t n, bool add) {
  for (int64_t i = 0; i < m; i++, sums += WIDE, c += ldc) {
    if (add)
      for (int64_t j = 0; j < n; j++) c[j] += sums[j];
    else
      memcpy(c, sums, (size_t)n * sizeof *c);
  }
}

TILES static void shape_tiles(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shape = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    shape.row_bytes[i] = 64;
    shape.rows[i] = SIDE;
  }
  _tile_loadconfig(&shape);
}

/* All of A by two packed panels of B, columns j on. */
static void run_strip(const product *p, const char *strip, int64_t j) {
  const td_gemm *g = p->g;
  int64_t n = TD_MIN(g->n - j, (int64_t)WIDE), panel = p->a.steps * STEP_BYTES;
  _Alignas(64) float sums[WIDE * WIDE];
  for (int64_t i = 0; i < g->m; i += WIDE) {
    int64_t m = TD_MIN(g->m - i, (int64_t)WIDE);
    const char *a = p->packed + i / SIDE * panel;
    float *c = (float *)g->c + i * g->ldc + j;
    if (m == WIDE && n == WIDE && !g->accumulate) {
      multiply(a, strip, panel, p->a.steps, c, g->ldc);
    } else {
      multiply(a, strip, panel, p->a.steps, sums, WIDE);
      put(sums, c, g->ldc, m, n, g->accumulate);
    }
  }
}

/* A product of two operands is lost where it is denormal: none may come near. */
static bool far_from_denormal(uint32_t u, uint32_t v) {
  float x, y;
  memcpy(&x, &u, sizeof u);
  memcpy(&y, &v, sizeof v);
  return (double)x * (double)y >= 0x1p-100;
}

/* Strips [begin, end) of the columns, each packed when its turn comes: so it is still near. One that does not fit is
 * computed in vector registers. */
TILES static void run_strips(void *arg, int64_t begin, int64_t end) {
  product *p = arg;
  const td_gemm *g = p->g;
  int64_t panel = p->b.steps * STEP_BYTES;
  size_t size = (size_t)(2 * panel);
  bool zeroed;
  char *strip = td_memory_buffer_alloc(size, &zeroed);
  shape_tiles();
  for (int64_t i = begin; i < end; i++) {
    uint32_t least[2];
    bool fits = strip && pack_panel(&p->b, 2 * i, strip, &least[0]) &&
                pack_panel(&p->b, 2 * i + 1, strip + panel, &least[1]) &&
                far_from_denormal(atomic_load(&p->least), TD_MIN(least[0], least[1]));
    if (fits) {
      run_strip(p, strip, i * WIDE);
      continue;
    }
    td_gemm rest = *g;
    rest.n = TD_MIN(g->n - i * WIDE, (int64_t)WIDE);
    rest.b = (const float *)g->b + i * WIDE * p->b.i_step;
    rest.c = (float *)g->c + i * WIDE;
    _tile_release();
    td_gemm_run_vectors(p->heavy, &rest);
    shape_tiles();
  }
  _tile_release();
  if (strip) td_memory_buffer_free(strip, size);
}

static void share(td_kernel_ctx *ctx, int64_t n, double unit_ns, void (*fn)(void *arg, int64_t begin, int64_t end),
                  void *arg) {
  if (ctx)
    td_ctx_parallel_for(ctx, n, unit_ns, fn, arg);
  else
    fn(arg, 0, n);
}

bool td_gemm_tiles_suit(const td_gemm *g) {
  enum { LEAST_SIDE = 64, LEAST_WORK = 1 << 23 };
  if (g->dtype != TD_FLOAT || TD_MIN(g->m, g->n) < LEAST_SIDE || g->k < DEPTH) return false;
  if ((double)g->m * (double)g->n * (double)g->k < LEAST_WORK) return false;
  pthread_once(&usable_once, find_out);
  return usable;
}

bool td_gemm_tiles_run(td_kernel_ctx *ctx, const td_heavy_ops *heavy, const td_gemm *g) {
  assert(g->m <= TD_GEMM_TILES_SIDE && g->n <= TD_GEMM_TILES_SIDE && g->k <= TD_GEMM_TILES_DEPTH);
  const float *ad = g->a, *bd = g->b;
  int64_t steps = (g->k + DEPTH - 1) / DEPTH, strips = (g->n + WIDE - 1) / WIDE;
  int64_t panels = (g->m + WIDE - 1) / WIDE * 2; /* taken by two: what lies past m is zero */
  product p = {.heavy = heavy,
               .g = g,
               .a = {ad, g->m, g->k, g->ta == 'N' ? g->lda : 1, g->ta == 'N' ? 1 : g->lda, false, steps},
               .b = {bd, g->n, g->k, g->tb == 'N' ? 1 : g->ldb, g->tb == 'N' ? g->ldb : 1, true, steps}};
  atomic_init(&p.least, INFINITE);
  size_t size = (size_t)(panels * steps) * STEP_BYTES;
  bool zeroed;
  p.packed = td_memory_buffer_alloc(size, &zeroed);
  if (!p.packed) return false;
  double pack_ns = 0.35 * (double)g->k; /* a row or column */
  share(ctx, panels, SIDE * pack_ns, pack_rows, &p);
  bool fits = !atomic_load(&p.failed);
  if (fits) share(ctx, strips, WIDE * pack_ns + (double)(panels * SIDE * WIDE * g->k) / 200, run_strips, &p);
  td_memory_buffer_free(p.packed, size);
  return fits;
}

#else

bool td_gemm_tiles_suit(const td_gemm *g) { return false; }
bool td_gemm_tiles_run(td_kernel_ctx *ctx, const td_heavy_ops *heavy, const td_gemm *g) { return false; }

#endif

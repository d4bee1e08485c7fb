#include "ops/gemm_tiles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static td_pool *pool;
static td_step step;
static td_kernel_ctx ctx = {.step = &step};
static unsigned seed = 11;
static int64_t pick(int64_t n) { return rand_r(&seed) % n; }

enum { SIDE = 700, CAPACITY = SIDE * SIDE };
static float a[CAPACITY], b[CAPACITY], c[CAPACITY], again[CAPACITY], start[CAPACITY];

static void fill(float *x, float scale) {
  for (int64_t i = 0; i < CAPACITY; i++) x[i] = scale * ((float)pick(2000001) / 1e6f - 1);
}

/* A product of random sizes that suits, in matrices wider than it. */
static td_gemm random_product(int64_t limit) {
  td_gemm g = {.dtype = TD_FLOAT, .ta = "NT"[pick(2)], .tb = "NT"[pick(2)], .a = a, .b = b, .c = c};
  g.m = 64 + pick(limit - 64);
  g.n = 64 + pick(limit - 64);
  g.k = 300 + pick(limit - 300);
  g.lda = (g.ta == 'N' ? g.k : g.m) + pick(4);
  g.ldb = (g.tb == 'N' ? g.n : g.k) + pick(4);
  g.ldc = g.n + pick(4);
  return g;
}

static double factor(const td_gemm *g, bool first, int64_t row, int64_t column) {
  const float *x = first ? g->a : g->b;
  int64_t next = first ? g->lda : g->ldb;
  return (double)((first ? g->ta : g->tb) == 'N' ? x[row * next + column] : x[column * next + row]);
}

/* Compares every `every`-th element with a sum in double; `error` is relative to the sum of magnitudes. */
static void check(const td_gemm *g, int64_t every, double error) {
  for (int64_t at = 0; at < g->m * g->n; at += every) {
    int64_t i = at / g->n, j = at % g->n;
    double sum = g->accumulate ? (double)start[i * g->ldc + j] : 0, size = fabs(sum);
    for (int64_t k = 0; k < g->k; k++) {
      double p = factor(g, true, i, k) * factor(g, false, k, j);
      sum += p;
      size += fabs(p);
    }
    double got = (double)((const float *)g->c)[i * g->ldc + j];
    if (!(fabs(got - sum) <= error * size))
      fail_msg("%c%c %lldx%lldx%lld [%lld,%lld]: %g, not %g", g->ta, g->tb, (long long)g->m, (long long)g->n,
               (long long)g->k, (long long)i, (long long)j, got, sum);
  }
}

/* As exact as sums in float are, and the same whoever computes it. */
static void products(void **state) {
  for (int round = 0; round < 12; round++) {
    td_gemm g = random_product(round % 3 ? 512 : SIDE - 4);
    g.accumulate = pick(2);
    fill(a, round % 4 ? 1 : 1e-12f);
    fill(b, round % 4 ? 1 : 1e9f);
    fill(start, 1);
    memcpy(c, start, sizeof c);
    td_gemm_parallel(&ctx, td_heavy_get(), &g, NULL, NULL);
    check(&g, 37, 3e-7);
    for (int64_t i = 0; i + 1 < g.m; i++) /* nothing beside the result */
      for (int64_t j = g.n; j < g.ldc; j++) assert_true(c[i * g.ldc + j] == start[i * g.ldc + j]);
    if (!td_gemm_tiles_suit(&g)) continue;
    memcpy(again, c, sizeof c);
    memcpy(c, start, sizeof c);
    td_gemm_run(td_heavy_get(), &g);
    assert_memory_equal(c, again, sizeof c);
  }
}

static void after(void *arg, int64_t row_begin, int64_t row_end, int64_t from, int64_t to) {
  const td_gemm *g = arg;
  for (int64_t i = row_begin; i < row_end; i++)
    for (int64_t j = from; j < to; j++) ((float *)g->c)[i * g->ldc + j] += 100;
}

static void epilogues(void **state) {
  td_gemm g = random_product(SIDE - 4), plain = g;
  plain.c = again;
  fill(a, 1);
  fill(b, 1);
  td_gemm_parallel(&ctx, td_heavy_get(), &plain, NULL, NULL);
  td_gemm_parallel(&ctx, td_heavy_get(), &g, after, &g);
  for (int64_t i = 0; i < g.m; i++)
    for (int64_t j = 0; j < g.n; j++) assert_true(c[i * g.ldc + j] == again[i * g.ldc + j] + 100);
}

/* What three bfloat16 do not hold: infinities and NaN stay where they belong, tiny numbers keep their digits. */
static void unfit(void **state) {
  static const float odd[] = {INFINITY, -INFINITY, NAN, 3e38f, 1e-37f, 1e-41f};
  for (int round = 0; round < 24; round++) {
    float v = odd[round % 6], *x = round % 2 ? a : b;
    td_gemm g = random_product(512);
    g.accumulate = false;
    fill(a, fabsf(v) < 1 ? 1e3f : 1e-3f);
    fill(b, fabsf(v) < 1 ? 1e3f : 1e-3f);
    bool in_a = x == a, rows = in_a ? g.ta == 'N' : g.tb != 'N'; /* one element, or all of a row (column) of op(x) */
    int64_t line = pick(in_a ? g.m : g.n), next = in_a ? g.lda : g.ldb, at = pick(g.k);
    for (int64_t k = 0; k < g.k; k++)
      if (k == at || fabsf(v) < 1) x[rows ? line * next + k : k * next + line] = v;
    td_gemm_parallel(&ctx, td_heavy_get(), &g, NULL, NULL);
    for (int64_t i = 0; i < g.m; i++) {
      for (int64_t j = 0; j < g.n; j++) {
        float got = c[i * g.ldc + j];
        bool hit = (in_a ? i : j) == line && !(fabsf(v) <= 3e38f);
        if (hit ? isfinite(got) : !isfinite(got))
          fail_msg("%g: [%lld,%lld] is %g", (double)v, (long long)i, (long long)j, (double)got);
      }
    }
    if (fabsf(v) <= 3e38f && fabsf(v) > 1e-40f) check(&g, 1, fabsf(v) < 1 ? 1e-3 : 3e-7);
  }
}

int main(void) {
  pool = td_pool_create("test", NULL, 3);
  step.pool = pool;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products),
      cmocka_unit_test(epilogues),
      cmocka_unit_test(unfit),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  td_pool_destroy(pool);
  return failed;
}

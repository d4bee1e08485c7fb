#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <complex.h>
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/conv_run.h"
#include "ops/gemm.h"

static td_pool *pool;
static td_step step;
static td_kernel_ctx ctx = {.step = &step};
static unsigned seed = 5;
static int64_t pick(int64_t n) { return rand_r(&seed) % n; }

/* ---- products against a plain loop in double ---- */

enum { CAPACITY = 160 * 160 };
static td_complex128 want[CAPACITY];
static char a_data[CAPACITY * 16], b_data[CAPACITY * 16], c_data[CAPACITY * 16];

static td_complex128 get(td_dtype t, const void *p, int64_t i) {
  switch (t) {
    case TD_FLOAT:
      return ((const float *)p)[i];
    case TD_DOUBLE:
      return ((const double *)p)[i];
    case TD_INT32:
      return ((const int32_t *)p)[i];
    case TD_INT64:
      return (double)((const int64_t *)p)[i];
    case TD_COMPLEX64:
      return ((const td_complex64 *)p)[i];
    default:
      return ((const td_complex128 *)p)[i];
  }
}

static void fill(td_dtype t, void *p, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double x = (double)(pick(201) - 100), y = (double)(pick(201) - 100);
    switch (t) {
      case TD_FLOAT:
        ((float *)p)[i] = (float)x / 50;
        break;
      case TD_DOUBLE:
        ((double *)p)[i] = x / 50;
        break;
      case TD_INT32:
        ((int32_t *)p)[i] = (int32_t)x;
        break;
      case TD_INT64:
        ((int64_t *)p)[i] = (int64_t)x;
        break;
      case TD_COMPLEX64:
        ((td_complex64 *)p)[i] = (float)x / 50 + (float)y / 50 * I;
        break;
      default:
        ((td_complex128 *)p)[i] = x / 50 + y / 50 * I;
    }
  }
}

static td_complex128 element(const td_gemm *g, bool first, int64_t row, int64_t column) {
  char t = first ? g->ta : g->tb;
  int64_t step_ = first ? g->lda : g->ldb;
  td_complex128 v = get(g->dtype, first ? g->a : g->b, t == 'N' ? row * step_ + column : column * step_ + row);
  return t == 'C' ? conj(v) : v;
}

static void check(const td_gemm *g, double tolerance) {
  for (int64_t i = 0; i < g->m; i++) {
    for (int64_t j = 0; j < g->n; j++) {
      td_complex128 s = g->accumulate ? want[i * g->ldc + j] : 0;
      for (int64_t k = 0; k < g->k; k++) s += element(g, true, i, k) * element(g, false, k, j);
      td_complex128 got = get(g->dtype, g->c, i * g->ldc + j);
      if (!(cabs(got - s) <= tolerance * (1 + cabs(s))))
        fail_msg("%s %c%c %lldx%lldx%lld: [%lld,%lld] is %g, not %g", td_dtype_name(g->dtype), g->ta, g->tb,
                 (long long)g->m, (long long)g->n, (long long)g->k, (long long)i, (long long)j, creal(got), creal(s));
    }
  }
}

static void products(void **state) {
  static const td_dtype types[] = {TD_FLOAT, TD_DOUBLE, TD_INT32, TD_INT64, TD_COMPLEX64, TD_COMPLEX128};
  for (int round = 0; round < 600; round++) {
    td_dtype t = types[round % 6];
    int64_t limit = round % 5 ? 20 : 150;
    td_gemm g = {.dtype = t,
                 .ta = "NTC"[pick(3)],
                 .tb = "NTC"[pick(3)],
                 .accumulate = pick(2),
                 .m = pick(8) ? pick(limit) : 1,
                 .n = pick(8) ? pick(limit) : 1,
                 .k = pick(limit),
                 .a = a_data,
                 .b = b_data,
                 .c = c_data};
    g.lda = (g.ta == 'N' ? g.k : g.m) + pick(4);
    g.ldb = (g.tb == 'N' ? g.n : g.k) + pick(4);
    g.ldc = g.n + pick(4) + 1;
    fill(t, a_data, CAPACITY);
    fill(t, b_data, CAPACITY);
    fill(t, c_data, CAPACITY);
    for (int64_t i = 0; i < CAPACITY; i++) want[i] = get(t, c_data, i);
    const td_heavy_ops *heavy = pick(3) ? td_gemm_heavy_for(t) : NULL;
    if (pick(2))
      td_gemm_run(heavy, &g);
    else
      td_gemm_parallel(&ctx, heavy, &g, NULL, NULL);
    check(&g, t == TD_FLOAT || t == TD_COMPLEX64 ? 1e-4 : 1e-11);
  }
}

/* Products at the same time on several threads are what they are alone. */
enum { SHAPES = 24, SIDE = 48, TIMES = 200, THREADS = 4 };
typedef td_complex128 product[SIDE * SIDE]; /* of elements of any type */
static product alone[SHAPES];

static void product_at(int i, td_dtype t, void *c) {
  int64_t m = 1 + i * 7 % SIDE, n = 1 + i * 11 % SIDE, k = 1 + i * 13 % SIDE;
  td_gemm g = {.dtype = t, .ta = "NT"[i & 1], .tb = "NT"[i >> 1 & 1], .m = m, .n = n, .k = k, .a = a_data, .b = b_data};
  g.c = c;
  g.lda = g.ta == 'N' ? k : m;
  g.ldb = g.tb == 'N' ? n : k;
  g.ldc = n;
  td_gemm_run(td_gemm_heavy_for(t), &g);
}

static void *repeat_products(void *type) {
  product c;
  bool same = true;
  for (int i = 0; i < SHAPES * TIMES; i++) {
    memset(c, 0, sizeof c);
    product_at(i % SHAPES, *(td_dtype *)type, c);
    same = same && !memcmp(c, alone[i % SHAPES], sizeof c);
  }
  return same ? type : NULL;
}

static void products_on_threads(void **state) {
  static td_dtype types[] = {TD_FLOAT, TD_DOUBLE, TD_COMPLEX64, TD_COMPLEX128};
  for (size_t t = 0; t < TD_COUNT(types); t++) {
    pthread_t threads[THREADS];
    fill(types[t], a_data, SIDE * SIDE);
    fill(types[t], b_data, SIDE * SIDE);
    memset(alone, 0, sizeof alone);
    for (int i = 0; i < SHAPES; i++) product_at(i, types[t], alone[i]);
    for (int i = 0; i < THREADS; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, repeat_products, &types[t]), 0);
    for (int i = 0; i < THREADS; i++) {
      void *same;
      pthread_join(threads[i], &same);
      assert_non_null(same);
    }
  }
}

/* ---- convolutions ---- */

static td_tensor *floats(int64_t n) {
  td_tensor *t;
  td_status s = td_tensor_create_dims(TD_FLOAT, 1, &n, &t);
  assert_null(s);
  fill(TD_FLOAT, t->data, n);
  return t;
}

static double reference(const td_conv *c, const float *x, const float *f, int64_t b, int64_t oy, int64_t ox,
                        int64_t o) {
  const td_window_dim *h = &c->dim[0], *w = &c->dim[1];
  int64_t part = c->in_c / c->groups, group = o / (c->out_c / c->groups);
  double s = 0;
  for (int64_t fy = 0; fy < h->filter; fy++) {
    for (int64_t fx = 0; fx < w->filter; fx++) {
      int64_t y = oy * h->stride - h->before + fy * h->dilation, z = ox * w->stride - w->before + fx * w->dilation;
      if (y < 0 || y >= h->in || z < 0 || z >= w->in) continue;
      for (int64_t i = 0; i < part; i++)
        s += (double)x[((b * h->in + y) * w->in + z) * c->in_c + group * part + i] *
             (double)f[((fy * w->filter + fx) * part + i) * c->out_c + o];
    }
  }
  return s;
}

static double dot(const td_tensor *a, const td_tensor *b) {
  double s = 0;
  for (int64_t i = 0; i < a->count; i++) s += (double)TD_DATA(a, float)[i] * (double)TD_DATA(b, float)[i];
  return s;
}

static td_status random_conv(td_conv *c, const td_heavy_ops *heavy) {
  static const int64_t channels[] = {1, 2, 3, 8, 16, 24, 32};
  int64_t groups = 1 + pick(8) / 7;
  *c = (td_conv){.dtype = TD_FLOAT,
                 .batch = 1 + pick(6),
                 .in_c = groups * channels[pick(7)],
                 .out_c = groups * channels[pick(7)],
                 .groups = groups,
                 .heavy = heavy};
  td_padding padding = (td_padding)pick(3);
  for (int i = 0; i < 2; i++) {
    c->dim[i] = (td_window_dim){.in = 1 + pick(14),
                                .filter = 1 + pick(4),
                                .stride = 1 + pick(3),
                                .dilation = 1 + pick(4) / 3,
                                .before = pick(3),
                                .after = pick(3)};
    TD_TRY(td_window_compute(padding, &c->dim[i]));
  }
  return td_conv_check(c);
}

/* Forward against the reference; the gradients by <conv(x, f), g> = <x, to_input(g, f)> = <f, to_filter(x, g)>. */
static void convolutions(void **state) {
  for (int round = 0; round < 300; round++) {
    td_conv c;
    td_status s = random_conv(&c, pick(3) ? td_heavy_get() : NULL);
    if (s) {
      td_status_free(s);
      continue;
    }
    const td_window_dim *h = &c.dim[0], *w = &c.dim[1];
    int64_t in = c.batch * h->in * w->in * c.in_c, out = c.batch * h->out * w->out * c.out_c;
    td_tensor *x = floats(in), *f = floats(h->filter * w->filter * (c.in_c / c.groups) * c.out_c), *g = floats(out),
              *y = floats(out), *dx = floats(in), *df = floats(f->count);
    assert_null(td_conv_forward(&ctx, &c, x->data, f->data, y->data));
    assert_null(td_conv_backward_input(&ctx, &c, g->data, f->data, dx->data));
    assert_null(td_conv_backward_filter(&ctx, &c, x->data, g->data, df->data));
    for (int64_t i = 0; i < out; i++) {
      int64_t p = i / c.out_c, q = p / w->out;
      double r = reference(&c, x->data, f->data, q / h->out, q % h->out, p % w->out, i % c.out_c);
      if (!(r - (double)TD_DATA(y, float)[i] < 1e-3 && (double)TD_DATA(y, float)[i] - r < 1e-3))
        fail_msg("round %d: output %lld is %g, not %g", round, (long long)i, (double)TD_DATA(y, float)[i], r);
    }
    double straight = dot(y, g), limit = 1e-4 * (100 + (double)out);
    if (!(dot(x, dx) - straight < limit && straight - dot(x, dx) < limit)) fail_msg("round %d: to the input", round);
    if (!(dot(f, df) - straight < limit && straight - dot(f, df) < limit)) fail_msg("round %d: to the filter", round);
    td_tensor *all[] = {x, f, g, y, dx, df};
    for (size_t i = 0; i < TD_COUNT(all); i++) td_tensor_release(all[i]);
  }
}

static void windows(void **state) {
  td_window_dim d = {.in = 5, .filter = 3, .stride = 2, .dilation = 1};
  assert_null(td_window_compute(TD_PAD_SAME, &d));
  assert_int_equal(d.out, 3);
  assert_int_equal(d.before, 1);
  assert_int_equal(d.after, 1);
  d = (td_window_dim){.in = 4, .filter = 2, .stride = 1, .dilation = 1};
  assert_null(td_window_compute(TD_PAD_SAME, &d));
  assert_int_equal(d.before, 0); /* the odd one goes behind */
  assert_int_equal(d.after, 1);
  d = (td_window_dim){.in = INT64_MAX - 1, .filter = 3, .stride = 1, .dilation = 1, .before = 5};
  td_status s = td_window_compute(TD_PAD_EXPLICIT, &d);
  assert_non_null(s);
  td_status_free(s);
  d = (td_window_dim){.in = 3, .filter = INT32_MAX, .stride = 1, .dilation = INT32_MAX};
  s = td_window_compute(TD_PAD_VALID, &d);
  assert_non_null(s);
  td_status_free(s);
}

static int threads(void) {
  int n = 0;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  while (readdir(tasks)) n++;
  closedir(tasks);
  return n;
}

static void the_plugin_starts_no_threads(void **state) {
  int before = threads();
  assert_non_null(td_heavy_get());
  assert_int_equal(threads(), before);
}

int main(void) {
  td_heavy_prepare();
  pool = td_pool_create("test", NULL, 3);
  step.pool = pool;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_plugin_starts_no_threads),
      cmocka_unit_test(products),
      cmocka_unit_test(products_on_threads),
      cmocka_unit_test(convolutions),
      cmocka_unit_test(windows),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  td_pool_destroy(pool);
  return failed;
}

/* Element-wise ops, casts, reductions and their kin against results that TensorFlow gave (math_cases.inc), and against
 * hostile variations of the same cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/case_table.h"
#include "ops/testing.h"
#include "tensor/number.h"

static const td_case cases[] = {
#include "ops/math_cases.inc"
};

/* ---- hostile variations: whatever happens, nothing may break (the sanitizers watch) ---- */

static void put_random(td_tensor *t, int64_t i, uint64_t *seed) {
  size_t size = td_dtype_size((td_dtype)t->dtype);
  if (!td_dtype_is_pod((td_dtype)t->dtype)) return;
  char bytes[16];
  for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (char)td_case_random(seed);
  if (td_case_random(seed) % 2) { /* near the ends and zero */
    static const int64_t odd[] = {0, -1, 1, 2, -2, 5, 100, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX};
    memcpy(bytes, &odd[td_case_random(seed) % TD_COUNT(odd)], 8);
  }
  if (t->dtype == TD_BOOL) bytes[0] &= 1;
  memcpy((char *)t->data + (size_t)i * size, bytes, size);
}

/* All inputs but the first are shapes or counts: random ones would ask for memory without end, as all of Range's do. */
static bool sizes_its_output(const char *op) {
  return !strcmp(op, "LinSpace") || !strcmp(op, "BroadcastTo") || strstr(op, "incount") || strstr(op, "egment");
}

static void test_hostile(void **state) {
  uint64_t seed = 1;
  for (int round = 0; round < 8; round++) {
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
      const td_case *c = &cases[i];
      td_tensor *in[TD_COUNT(c->in)];
      if (!strcmp(c->op, "Range")) continue;
      bool whole = sizes_its_output(c->op);
      for (int k = 0; k < c->in_count; k++)
        in[k] = whole && k ? td_case_tensor(&c->in[k]) : td_case_mutated(&c->in[k], put_random, &seed);
      td_case_try(c, c->attrs, in);
    }
  }
}

/* ---- large tensors: the paths that small ones do not reach, against plain loops in double ---- */

static td_tensor *random_floats(td_dtype dtype, int rank, const int64_t *dims, uint64_t seed) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(dtype, rank, dims, &t));
  for (int64_t i = 0; i < t->count; i++) {
    float v = (float)(td_case_random(&seed) % 2000001) / 1e6f - 1;
    td_tensor_set_complex(t, i, v, 0);
  }
  return t;
}

static void check_reduction(td_dtype dtype, int64_t a, int64_t b, int64_t c, unsigned axes, const char *op) {
  int64_t dims[3] = {a, b, c}, out_dims[3], out_count = 1;
  int32_t list[3], n = 0;
  for (int d = 0; d < 3; d++) {
    out_dims[d] = axes >> d & 1 ? 1 : dims[d];
    out_count *= out_dims[d];
    if (axes >> d & 1) list[n++] = d;
  }
  td_tensor *in[2] = {random_floats(dtype, 3, dims, (uint64_t)(a + b))};
  int64_t count = n;
  assert_null(td_tensor_create_dims(TD_INT32, 1, &count, &in[1]));
  if (n) memcpy(in[1]->data, list, sizeof *list * (size_t)n);
  double *want = td_new_array(double, (size_t)out_count);
  bool largest = !strcmp(op, "Max");
  for (int64_t k = 0; largest && k < out_count; k++) want[k] = -INFINITY;
  for (int64_t i = 0; i < a; i++)
    for (int64_t j = 0; j < b; j++)
      for (int64_t k = 0; k < c; k++) {
        int64_t at = ((axes & 1 ? 0 : i) * out_dims[1] + (axes & 2 ? 0 : j)) * out_dims[2] + (axes & 4 ? 0 : k);
        double v = td_tensor_real_at(in[0], (i * b + j) * c + k);
        want[at] = largest ? fmax(want[at], v) : want[at] + v;
      }
  char attrs[32];
  snprintf(attrs, sizeof attrs, "T: %s", td_dtype_name(dtype));
  td_op_run run = {.op = op, .attrs = attrs, .in = in, .in_count = 2};
  td_assert_runs(&run);
  for (int64_t k = 0; k < out_count; k++) {
    double tolerance = dtype == TD_FLOAT ? 1e-6 : 1e-3;
    if (fabs(td_tensor_real_at(run.out[0], k) - want[k]) > tolerance * fmax(1, fabs(want[k])) + 1e-5)
      fail_msg("%s %lld %lld %lld axes %u at %lld: %g, want %g", op, (long long)a, (long long)b, (long long)c, axes,
               (long long)k, td_tensor_real_at(run.out[0], k), want[k]);
  }
  td_tensor_release(run.out[0]);
  td_tensor_release(in[0]);
  td_tensor_release(in[1]);
  td_free(want);
}

static void test_large_reductions(void **state) {
  static const int64_t sizes[][3] = {{3, 5, 7},     {1, 1, 300001}, {1, 200000, 3}, {2, 70000, 4}, {40, 50, 60},
                                     {2, 3, 70001}, {300, 2, 1030}, {5000, 1, 64},  {1, 2049, 130}};
  for (size_t i = 0; i < TD_COUNT(sizes); i++)
    for (unsigned axes = 0; axes < 8; axes++) {
      check_reduction(TD_FLOAT, sizes[i][0], sizes[i][1], sizes[i][2], axes, "Sum");
      check_reduction(TD_FLOAT, sizes[i][0], sizes[i][1], sizes[i][2], axes, "Max");
      check_reduction(TD_HALF, sizes[i][0], sizes[i][1], sizes[i][2], axes, "Sum");
    }
}

/* Each column of a row holds what counts once: no lane of a vector is passed over. */
static void check_extreme(const char *op, td_dtype dtype, double extreme) {
  enum { N = 201, DIGITS = 4 };
  static char text[N * N * DIGITS + 1];
  for (int i = 0; i < N * N; i++)
    snprintf(text + i * DIGITS, DIGITS + 1, "%3.0f ", i / N == i % N ? extreme : (double)(10 + i % 7));
  td_tensor *in[2] = {td_test_tensor(dtype, "[201,201]", text), td_test_tensor(TD_INT32, "[]", "1")};
  char attrs[32];
  snprintf(attrs, sizeof attrs, "T: %s", td_dtype_name(dtype));
  td_op_run run = {.op = op, .attrs = attrs, .in = in, .in_count = 2};
  td_assert_runs(&run);
  for (int64_t i = 0; i < N; i++) {
    double v = td_tensor_real_at(run.out[0], i);
    if (isnan(extreme) ? !isnan(v) : v != extreme)
      fail_msg("%s of %s at %lld: %g, want %g", op, td_dtype_name(dtype), (long long)i, v, extreme);
  }
  td_tensor_release(run.out[0]);
  td_tensor_release(in[0]);
  td_tensor_release(in[1]);
}

static void test_extremes(void **state) {
  static const td_dtype types[] = {TD_FLOAT, TD_DOUBLE, TD_HALF,  TD_INT8, TD_UINT8,
                                   TD_INT16, TD_UINT16, TD_INT32, TD_INT64};
  for (size_t i = 0; i < TD_COUNT(types); i++) {
    check_extreme("Max", types[i], 120);
    check_extreme("Min", types[i], 3);
    if (i > 2) continue;
    check_extreme("Max", types[i], NAN);
    check_extreme("Min", types[i], NAN);
  }
}

static void check_sum(int64_t rows, int64_t cols, bool row, bool column, td_dtype dtype) {
  int64_t x_dims[2] = {rows, column ? 1 : cols}, y_dims[2] = {row ? 1 : rows, cols};
  td_tensor *in[2] = {random_floats(dtype, 2, x_dims, 3), random_floats(dtype, 2, y_dims, 4)};
  td_op_run run = {.op = "Sub", .attrs = dtype == TD_FLOAT ? "T: float" : "T: half", .in = in, .in_count = 2};
  td_assert_runs(&run);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      float want = (float)(td_tensor_real_at(in[0], column ? i : i * cols + j) -
                           td_tensor_real_at(in[1], row ? j : i * cols + j));
      if (dtype == TD_HALF) want = td_half_to_float(td_half_from_float(want));
      assert_true(td_tensor_real_at(run.out[0], i * cols + j) == (double)want);
    }
  td_tensor_release(run.out[0]);
  td_tensor_release(in[0]);
  td_tensor_release(in[1]);
}

static void test_large_broadcasts(void **state) {
  static const int64_t sizes[][2] = {{1, 1}, {1, 100003}, {100003, 1}, {700, 513}, {3, 30000}, {30000, 3}};
  for (size_t i = 0; i < TD_COUNT(sizes); i++)
    for (int k = 0; k < 4; k++) {
      check_sum(sizes[i][0], sizes[i][1], k & 1, k & 2, TD_FLOAT);
      check_sum(sizes[i][0], sizes[i][1], k & 1, k & 2, TD_HALF);
    }
}

/* ---- ops that TensorFlow's Python cannot run one by one ---- */

static void test_composition(void **state) {
  td_tensor *in[1] = {td_test_tensor(TD_FLOAT, "[3]", "0.25 4 -9")};
  td_op_run run = {
      .op = "_UnaryOpsComposition", .attrs = "T: float; op_names: ['Abs', 'Sqrt', 'Neg']", .in = in, .in_count = 1};
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_FLOAT, "[3]", "-0.5 -2 -3", 0);
  td_tensor_release(run.out[0]);
  run = (td_op_run){
      .op = "_UnaryOpsComposition", .attrs = "T: float; op_names: ['Abs', 'Nothing']", .in = in, .in_count = 1};
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Do not have a compute function registered for op: Nothing");
  td_tensor_release(in[0]);
  in[0] = td_test_tensor(TD_HALF, "[2]", "4 16");
  run =
      (td_op_run){.op = "_UnaryOpsComposition", .attrs = "T: half; op_names: ['Sqrt', 'Inv']", .in = in, .in_count = 1};
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_HALF, "[2]", "0.5 0.25", 0);
  td_tensor_release(run.out[0]);
  td_tensor_release(in[0]);
}

static void test_accumulate(void **state) {
  td_tensor *in[3] = {td_test_tensor(TD_FLOAT, "[2]", "1 2"), td_test_tensor(TD_FLOAT, "[2]", "3 4"),
                      td_test_tensor(TD_FLOAT, "[2]", "5 6")};
  td_op_run run = {.op = "AccumulateNV2", .attrs = "T: float; N: 3; shape: [2]", .in = in, .in_count = 3};
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_FLOAT, "[2]", "9 12", 0);
  td_tensor_release(run.out[0]);
  for (int i = 0; i < 3; i++) td_tensor_release(in[i]);
}

/* From left to right, and past the end of a block. */
static void check_add_n(td_dtype dtype, int n) {
  enum { MOST = 9 };
  int64_t count = 4096 + 77;
  td_tensor *in[MOST];
  for (int i = 0; i < n; i++) in[i] = random_floats(dtype, 1, &count, (uint64_t)i + 1);
  char attrs[64];
  snprintf(attrs, sizeof attrs, "T: %s; N: %d", td_dtype_name(dtype), n);
  td_op_run run = {.op = "AddN", .attrs = attrs, .in = in, .in_count = n};
  td_assert_runs(&run);
  for (int64_t at = 0; at < count; at++) {
    double sum = td_tensor_real_at(in[0], at);
    for (int i = 1; i < n; i++) {
      sum += td_tensor_real_at(in[i], at);
      if (dtype == TD_FLOAT) sum = (float)sum;
    }
    assert_true(td_tensor_real_at(run.out[0], at) == sum);
  }
  td_tensor_release(run.out[0]);
  for (int i = 0; i < n; i++) td_tensor_release(in[i]);
}

static void test_add_n(void **state) {
  for (int n = 2; n <= 9; n++) {
    check_add_n(TD_FLOAT, n);
    check_add_n(TD_DOUBLE, n);
  }
}

/* Every 8-bit float survives the way to float and back. */
static void test_float8(void **state) {
  static const td_dtype types[] = {TD_FLOAT8_E5M2, TD_FLOAT8_E4M3FN};
  for (size_t k = 0; k < TD_COUNT(types); k++) {
    int64_t n = 256;
    td_tensor *in[1], *wide[1];
    assert_null(td_tensor_create_dims(types[k], 1, &n, &in[0]));
    for (int i = 0; i < 256; i++) TD_DATA(in[0], uint8_t)[i] = (uint8_t)i;
    char there[64], back[64];
    snprintf(there, sizeof there, "SrcT: %s; DstT: float", td_dtype_name(types[k]));
    snprintf(back, sizeof back, "SrcT: float; DstT: %s", td_dtype_name(types[k]));
    td_op_run run = {.op = "Cast", .attrs = there, .in = in, .in_count = 1};
    td_assert_runs(&run);
    wide[0] = run.out[0];
    run = (td_op_run){.op = "Cast", .attrs = back, .in = wide, .in_count = 1};
    td_assert_runs(&run);
    for (int i = 0; i < 256; i++)
      if (!isnan(TD_DATA(wide[0], float)[i])) assert_int_equal(TD_DATA(run.out[0], uint8_t)[i], i);
    td_tensor_release(run.out[0]);
    td_tensor_release(wide[0]);
    td_tensor_release(in[0]);
  }
}

/* ---- searches in long rows ---- */

static void check_search(const char *op, td_dtype dtype, const double *row, int64_t n, int64_t want) {
  int64_t dims[2] = {2, n}, found;
  char attrs[64];
  td_tensor *in[2];
  assert_null(td_tensor_create_dims(dtype, 2, dims, &in[0]));
  for (int64_t i = 0; i < 2 * n; i++) {
    td_tensor_set_complex(in[0], i, row[i % n], 0); /* floating types */
    if (dtype == TD_INT32) TD_DATA(in[0], int32_t)[i] = (int32_t)row[i % n];
    if (dtype == TD_INT64) TD_DATA(in[0], int64_t)[i] = (int64_t)row[i % n];
    if (dtype == TD_UINT8) TD_DATA(in[0], uint8_t)[i] = (uint8_t)row[i % n];
  }
  in[1] = td_test_tensor(TD_INT32, "[]", "1");
  snprintf(attrs, sizeof attrs, "T: %s; output_type: int64", td_dtype_name(dtype));
  td_op_run run = {.op = op, .attrs = attrs, .in = in, .in_count = 2};
  td_assert_runs(&run);
  for (int i = 0; i < 2; i++) {
    found = TD_DATA(run.out[0], int64_t)[i];
    if (found != want) fail_msg("%s of %s: %lld, want %lld", op, attrs, (long long)found, (long long)want);
  }
  td_tensor_release(run.out[0]);
  td_tensor_release(in[0]);
  td_tensor_release(in[1]);
}

static void test_long_searches(void **state) {
  static const td_dtype types[] = {TD_FLOAT, TD_DOUBLE, TD_INT32, TD_INT64, TD_HALF, TD_UINT8};
  enum { N = 203 };
  double row[N];
  for (size_t k = 0; k < TD_COUNT(types); k++) {
    for (int i = 0; i < N; i++) row[i] = 10 + i % 50;
    check_search("ArgMax", types[k], row, N, 49); /* the first of equals */
    check_search("ArgMin", types[k], row, N, 0);
    row[201] = 100, row[130] = 1;
    check_search("ArgMax", types[k], row, N, 201);
    check_search("ArgMin", types[k], row, N, 130);
    for (int i = 0; i < N; i++) row[i] = 7;
    check_search("ArgMax", types[k], row, N, 0);
  }
  for (int i = 0; i < N; i++) row[i] = -INFINITY;
  check_search("ArgMax", TD_FLOAT, row, N, 0);
  row[150] = NAN;
  check_search("ArgMax", TD_FLOAT, row, N, 0);
  row[90] = 3; /* a NaN is never better */
  check_search("ArgMax", TD_FLOAT, row, N, 90);
  check_search("ArgMin", TD_FLOAT, row, N, 0);
  for (int i = 0; i < N; i++) row[i] = NAN;
  row[170] = INFINITY;
  check_search("ArgMax", TD_DOUBLE, row, N, 170);
}

static void test_places_in_a_long_vector(void **state) {
  int64_t n = 10000, found = 0;
  uint64_t seed = 7;
  td_tensor *x;
  assert_null(td_tensor_create_dims(TD_BOOL, 1, &n, &x));
  for (int64_t i = 0; i < n; i++) TD_DATA(x, uint8_t)[i] = td_case_random(&seed) % 3 == 0;
  td_op_run run = {.op = "Where", .attrs = "T: bool", .in = &x, .in_count = 1};
  td_assert_runs(&run);
  for (int64_t i = 0; i < n; i++)
    if (TD_DATA(x, uint8_t)[i]) assert_int_equal(TD_DATA(run.out[0], int64_t)[found++], i);
  assert_int_equal(run.out[0]->count, found);
  td_tensor_release(run.out[0]);
  td_tensor_release(x);
}

static void test_erf(void **state) {
  int64_t n = 4001;
  td_tensor *x;
  assert_null(td_tensor_create_dims(TD_FLOAT, 1, &n, &x));
  for (int64_t i = 0; i < n; i++) TD_DATA(x, float)[i] = (float)(i - 2000) / 350;
  td_op_run run = {.op = "Erf", .attrs = "T: float", .in = &x, .in_count = 1};
  td_assert_runs(&run);
  for (int64_t i = 0; i < n; i++)
    assert_true(fabs(TD_DATA(run.out[0], float)[i] - erf((double)TD_DATA(x, float)[i])) < 2.5e-7);
  td_tensor_release(run.out[0]);
  td_tensor_release(x);
}

static double ulp_of(float v) { return (double)(nextafterf(fabsf(v), INFINITY) - fabsf(v)); }

/* Bases of both signs and all sizes; powers whole and broken; every block but the first with a special value. */
static void test_pow(void **state) {
  static const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1, -1, FLT_MIN / 8, FLT_MAX};
  int64_t n = 256 * (int64_t)(TD_COUNT(special) * TD_COUNT(special) + 2) + 77;
  td_tensor *in[2];
  for (int k = 0; k < 2; k++) assert_null(td_tensor_create_dims(TD_FLOAT, 1, &n, &in[k]));
  float *x = TD_DATA(in[0], float), *y = TD_DATA(in[1], float);
  for (int64_t i = 0; i < n; i++) {
    x[i] = ldexpf((float)(i * 7919 % 1000 + 1) / 500, (int)(i % 41) - 20) * (i % 3 ? 1 : -1);
    y[i] = i % 2 ? (float)(i % 19 - 9) : (float)(i * 31 % 1000) / 250 - 2;
  }
  for (size_t i = 0; i < TD_COUNT(special) * TD_COUNT(special); i++) {
    int64_t at = 256 * (int64_t)(i + 1) + (int64_t)i % 256;
    x[at] = special[i / TD_COUNT(special)];
    y[at] = special[i % TD_COUNT(special)];
  }
  td_op_run run = {.op = "Pow", .attrs = "T: float", .in = in, .in_count = 2};
  td_assert_runs(&run);
  for (int64_t i = 0; i < n; i++) {
    float got = TD_DATA(run.out[0], float)[i], want = powf(x[i], y[i]);
    if (isfinite(want) && want != 0)
      assert_true(fabs((double)got - pow((double)x[i], (double)y[i])) <= 1.5 * ulp_of(want));
    else
      assert_true(got == want || (isnan(got) && isnan(want)));
  }
  td_tensor_release(run.out[0]);
  for (int k = 0; k < 2; k++) td_tensor_release(in[k]);
}

/* Within 2 ULP, and right at the ends. */
static void test_rsqrt(void **state) {
  static const float ends[] = {0, -0.0f, INFINITY, NAN, -1, FLT_MAX, FLT_MIN, 4};
  int64_t n = 4001;
  td_tensor *x;
  assert_null(td_tensor_create_dims(TD_FLOAT, 1, &n, &x));
  for (int64_t i = 0; i < n; i++) TD_DATA(x, float)[i] = ldexpf(1 + (float)(i % 997) / 997, (int)(i % 250) - 125);
  memcpy(x->data, ends, sizeof ends);
  td_op_run run = {.op = "Rsqrt", .attrs = "T: float", .in = &x, .in_count = 1};
  td_assert_runs(&run);
  for (int64_t i = 0; i < n; i++) {
    float got = TD_DATA(run.out[0], float)[i], from = TD_DATA(x, float)[i], want = 1 / sqrtf(from);
    if (isfinite(want) && want != 0)
      assert_true(fabs((double)got - 1 / sqrt((double)from)) <= 2 * ulp_of(want));
    else
      assert_true(got == want || (isnan(got) && isnan(want)));
  }
  td_tensor_release(run.out[0]);
  td_tensor_release(x);
}

/* Within 1.7 ULP (2.4 without FMA) from denormals to where it is 1, which it never exceeds. */
static void test_tanh(void **state) {
  static const float ends[] = {0, -0.0f, INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MIN / 8, 8.66434f};
  int64_t n = 40001;
  td_tensor *x;
  assert_null(td_tensor_create_dims(TD_FLOAT, 1, &n, &x));
  for (int64_t i = 0; i < n; i++)
    TD_DATA(x, float)[i] = ldexpf(1 + (float)(i % 9973) / 9973, (int)(i % 32) - 26) * (i % 2 ? 1 : -1);
  memcpy(x->data, ends, sizeof ends);
  td_op_run run = {.op = "Tanh", .attrs = "T: float", .in = &x, .in_count = 1};
  td_assert_runs(&run);
  for (int64_t i = 0; i < n; i++) {
    float got = TD_DATA(run.out[0], float)[i], from = TD_DATA(x, float)[i];
    double want = tanh((double)from);
    assert_true(isnan(from) ? isnan(got) : fabs((double)got - want) <= 2.5 * ulp_of((float)want) && fabsf(got) <= 1);
    assert_true(isnan(from) || !signbit(got) == !signbit(from));
  }
  td_tensor_release(run.out[0]);
  td_tensor_release(x);
}

/* What op `i` makes of a by b; 64 bits hold all of it. */
static int32_t divided(int i, int64_t a, int64_t b) {
  int64_t rest = a % b, below = rest && (rest < 0) != (b < 0), quotient = a / b;
  return (int32_t)(uint32_t)(i == 0 ? quotient : i == 1 ? quotient - below : i == 2 ? rest : rest + below * b);
}

static void test_int32_divisions(void **state) {
  static const char *const ops[] = {"TruncateDiv", "FloorDiv", "TruncateMod", "FloorMod"};
  static const int32_t odd[] = {INT32_MIN, INT32_MIN + 1, -46341,        -7,       -2, -1, 1, 2, 3,
                                7,         65536,         INT32_MAX - 1, INT32_MAX};
  int64_t n = 20011;
  uint64_t seed = 3;
  td_tensor *in[2];
  for (int i = 0; i < 2; i++) assert_null(td_tensor_create_dims(TD_INT32, 1, &n, &in[i]));
  int32_t *a = TD_DATA(in[0], int32_t), *b = TD_DATA(in[1], int32_t);
  for (int64_t i = 0; i < n; i++) {
    a[i] = i % 3 ? (int32_t)td_case_random(&seed) : odd[td_case_random(&seed) % TD_COUNT(odd)];
    b[i] = i % 5 ? odd[td_case_random(&seed) % TD_COUNT(odd)] : (int32_t)(td_case_random(&seed) | 1);
  }
  for (int k = 0; k < 4; k++) {
    td_op_run run = {.op = ops[k], .attrs = "T: int32", .in = in, .in_count = 2};
    td_assert_runs(&run);
    for (int64_t i = 0; i < n; i++) assert_int_equal(TD_DATA(run.out[0], int32_t)[i], divided(k, a[i], b[i]));
    td_tensor_release(run.out[0]);
  }
  for (int i = 0; i < 2; i++) td_tensor_release(in[i]);
}

int main(void) {
  static const struct CMUnitTest others[] = {
      cmocka_unit_test(test_hostile),       cmocka_unit_test(test_large_reductions),
      cmocka_unit_test(test_extremes),      cmocka_unit_test(test_large_broadcasts),
      cmocka_unit_test(test_composition),   cmocka_unit_test(test_accumulate),
      cmocka_unit_test(test_add_n),         cmocka_unit_test(test_float8),
      cmocka_unit_test(test_long_searches), cmocka_unit_test(test_places_in_a_long_vector),
      cmocka_unit_test(test_erf),           cmocka_unit_test(test_pow),
      cmocka_unit_test(test_tanh),          cmocka_unit_test(test_int32_divisions),
      cmocka_unit_test(test_rsqrt)};
  return td_case_table_run(cases, TD_COUNT(cases), others, TD_COUNT(others));
}

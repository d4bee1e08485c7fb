/* The array families against results that TensorFlow gave (array_cases.inc), and what a table cannot say. */
/* cmocka.h needs the others before it */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "framework/resource.h"
#include "framework/variable.h"
#include "ops/case_table.h"

static const td_case cases[] = {
#include "ops/array_cases.inc"
};

/* ---- hostile variations of every case: whatever happens, nothing may break (the sanitizers watch) ---- */

static void put_random(td_tensor *t, int64_t i, uint64_t *seed) {
  static const int64_t odd[] = {0,  -1,   1,         2,     -2,        3,         7,
                                41, -100, INT32_MIN, 70000, INT64_MIN, INT64_MAX, (int64_t)1 << 50};
  int64_t v =
      td_case_random(seed) % 3 ? (int64_t)(td_case_random(seed) % 9) - 3 : odd[td_case_random(seed) % TD_COUNT(odd)];
  size_t size = td_dtype_size((td_dtype)t->dtype);
  if (t->dtype == TD_BOOL) v &= 1;
  if (td_dtype_is_pod((td_dtype)t->dtype)) memcpy((char *)t->data + (size_t)i * size, &v, TD_MIN(size, sizeof v));
}

/* The attributes with one integer (not a count of arguments) changed now and then. */
static void mutate_attrs(const char *attrs, char *out, size_t size, uint64_t *seed) {
  static const char *const values[] = {
      "-1", "0", "1", "3", "-4", "31", "-2147483648", "9223372036854775807", "-9223372036854775808"};
  size_t at = 0;
  bool done = td_case_random(seed) % 3 != 0;
  for (const char *p = attrs; *p && at + 32 < size;) {
    const char *colon = strstr(p, ": "), *end = strchr(p, ';');
    if (!end) end = p + strlen(p);
    bool number = colon && colon < end && (colon[2] == '-' || (colon[2] >= '0' && colon[2] <= '9'));
    bool is_count = !strncmp(p, "N:", 2) || !strncmp(p, "num", 3);
    if (!done && number && !is_count) {
      at += (size_t)snprintf(out + at, size - at, "%.*s%s", (int)(colon + 2 - p), p,
                             values[td_case_random(seed) % TD_COUNT(values)]);
      done = td_case_random(seed) % 2;
    } else {
      at += (size_t)snprintf(out + at, size - at, "%.*s", (int)(end - p), p);
    }
    for (p = end; *p == ';' || *p == ' '; p++) out[at++] = *p;
  }
  out[at] = 0;
}

static void test_hostile(void **state) {
  uint64_t seed = 1;
  for (int round = 0; round < 30; round++) {
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
      const td_case *c = &cases[i];
      td_tensor *in[TD_COUNT(c->in)];
      char attrs[512];
      mutate_attrs(c->attrs, attrs, sizeof attrs, &seed);
      for (int k = 0; k < c->in_count; k++) in[k] = td_case_mutated(&c->in[k], put_random, &seed);
      td_case_try(c, attrs, in);
    }
  }
}

/* ---- what a table cannot say ---- */

static td_op_run run_of(const char *op, const char *attrs, td_tensor **in, int n) {
  return (td_op_run){.op = op, .attrs = attrs, .in = in, .in_count = n};
}

static void release_all(td_tensor **in, int n) {
  for (int i = 0; i < n; i++) td_tensor_release(in[i]);
}

static void test_views(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_FLOAT, "[8,64]", "1"), td_test_tensor(TD_INT32, "[2]", "16 -1"), NULL};
  td_op_run run = run_of("Reshape", "T: float", in, 2);
  td_assert_runs(&run);
  assert_ptr_equal(run.out[0]->data, in[0]->data);
  td_tensor_release(run.out[0]);
  td_tensor_release(in[1]);
  in[1] = in[0];
  in[0] = td_test_tensor(TD_INT32, "[]", "0");
  run = run_of("Split", "T: float; num_split: 4", in, 2);
  td_assert_runs(&run);
  for (int i = 0; i < 4; i++) {
    assert_ptr_equal(run.out[i]->data, (float *)in[1]->data + i * 128);
    td_tensor_release(run.out[i]);
  }
  release_all(in, 2);
}

/* Transposes of every element size against the definition, at sizes around the tiles and past the pool's threshold. */
static void check_transpose(td_dtype dtype, int64_t rows, int64_t cols) {
  int64_t dims[] = {rows, cols}, two = 2;
  td_tensor *in[2];
  assert_null(td_tensor_create_dims(dtype, 2, dims, &in[0]));
  assert_null(td_tensor_create_dims(TD_INT32, 1, &two, &in[1]));
  TD_DATA(in[1], int32_t)[0] = 1;
  TD_DATA(in[1], int32_t)[1] = 0;
  size_t size = td_dtype_size(dtype);
  uint64_t seed = (uint64_t)rows;
  for (size_t i = 0; i < in[0]->size; i++) TD_DATA(in[0], uint8_t)[i] = (uint8_t)td_case_random(&seed);
  char attrs[64];
  snprintf(attrs, sizeof attrs, "T: %s", td_dtype_name(dtype));
  td_op_run run = run_of("Transpose", attrs, in, 2);
  td_assert_runs(&run);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      assert_memory_equal((char *)run.out[0]->data + (size_t)(j * rows + i) * size,
                          (char *)in[0]->data + (size_t)(i * cols + j) * size, size);
  td_tensor_release(run.out[0]);
  release_all(in, 2);
}

static void test_transpose_sizes(void **state) {
  static const td_dtype types[] = {TD_INT8, TD_INT16, TD_FLOAT, TD_DOUBLE, TD_COMPLEX128};
  static const int64_t sizes[][2] = {{1, 9}, {7, 8}, {8, 8}, {9, 17}, {64, 3}, {3, 64}, {33, 65}, {250, 301}};
  for (size_t t = 0; t < TD_COUNT(types); t++)
    for (size_t i = 0; i < TD_COUNT(sizes); i++) check_transpose(types[t], sizes[i][0], sizes[i][1]);
}

/* Large moves are cut into pieces for the pool: the result must not depend on that. */
static void same_on_pool(td_pool *pool, const char *op, const char *attrs, td_tensor **in, int n) {
  td_step step = {.id = 1, .pool = pool};
  td_op_run alone = run_of(op, attrs, in, n), pooled = run_of(op, attrs, in, n);
  pooled.step = &step;
  td_assert_runs(&alone);
  td_assert_runs(&pooled);
  assert_true(td_tensor_same_shape(alone.out[0], pooled.out[0]));
  assert_memory_equal(alone.out[0]->data, pooled.out[0]->data, alone.out[0]->size);
  td_tensor_release(alone.out[0]);
  td_tensor_release(pooled.out[0]);
  release_all(in + 1, n - 1);
}

/* Numbers from 0 to limit - 1, in no order. */
static td_tensor *numbers(const char *shape, int32_t limit) {
  td_tensor *t = td_test_tensor(TD_INT32, shape, "0");
  uint64_t seed = 5;
  for (int64_t i = 0; i < t->count; i++) TD_DATA(t, int32_t)[i] = (int32_t)(td_case_random(&seed) % (uint64_t)limit);
  return t;
}

static void test_pool(void **state) {
  td_pool *pool = td_pool_create("test", "", 3);
  td_tensor *t = td_test_tensor(TD_INT32, "[16,33,45,31]", "0");
  for (int64_t i = 0; i < t->count; i++) TD_DATA(t, int32_t)[i] = (int32_t)i;
#define SAME(op, attrs, ...)                              \
  do {                                                    \
    td_tensor *in[] = {t, __VA_ARGS__};                   \
    same_on_pool(pool, op, attrs, in, (int)TD_COUNT(in)); \
  } while (0)
  SAME("Transpose", "T: int32", td_test_tensor(TD_INT32, "[4]", "0 3 1 2"));
  SAME("Transpose", "T: int32", td_test_tensor(TD_INT32, "[4]", "3 2 1 0"));
  SAME("ReverseV2", "T: int32", td_test_tensor(TD_INT32, "[2]", "1 3"));
  SAME("Tile", "T: int32", td_test_tensor(TD_INT32, "[4]", "1 2 1 2"));
  SAME("Pad", "T: int32", td_test_tensor(TD_INT32, "[4,2]", "0 0 1 1 1 1 0 3"));
  SAME("Gather", "Tparams: int32; Tindices: int32", td_test_tensor(TD_INT32, "[6]", "1 15 0 3 3 9"));
  SAME("GatherNd", "Tparams: int32; Tindices: int32", td_test_tensor(TD_INT32, "[3000,2]", "7"));
#define GATHER "Tparams: int32; Tindices: int32; Taxis: int32; batch_dims: "
  SAME("GatherV2", GATHER "0", numbers("[1000]", 45), td_test_tensor(TD_INT32, "[]", "2"));
  SAME("GatherV2", GATHER "1", numbers("[16,37]", 45), td_test_tensor(TD_INT32, "[]", "2"));
  SAME("GatherV2", GATHER "2", numbers("[16,33,50]", 45), td_test_tensor(TD_INT32, "[]", "2"));
  static const char sum[] = "T: int32; Tindices: int32; Tnumsegments: int32";
  SAME("UnsortedSegmentSum", sum, numbers("[16,33]", 10), td_test_tensor(TD_INT32, "[]", "11"));
  SAME("UnsortedSegmentSum", sum, numbers("[16,33]", 700), td_test_tensor(TD_INT32, "[]", "700"));
  SAME("UnsortedSegmentSum", sum, numbers("[16,33]", 2), td_test_tensor(TD_INT32, "[]", "2"));
  SAME("UnsortedSegmentMax", sum, numbers("[16,33]", 10), td_test_tensor(TD_INT32, "[]", "12"));
#undef GATHER
#undef SAME
  td_tensor_release(t);
  td_pool_destroy(pool);
}

static void test_tile_grad(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_FLOAT, "[2,4]", "1 2 3 4 5 6 7 8"), td_test_tensor(TD_INT32, "[2]", "2 2")};
  td_op_run run = run_of("TileGrad", "T: float", in, 2);
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_FLOAT, "[1,2]", "16 20", 0);
  td_tensor_release(run.out[0]);
  release_all(in, 2);
}

static void test_parallel_concat(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_FLOAT, "[1,2]", "1 2"), td_test_tensor(TD_FLOAT, "[1,2]", "3 4")};
  td_op_run run = run_of("ParallelConcat", "T: float; N: 2; shape: [2,2]", in, 2);
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_FLOAT, "[2,2]", "1 2 3 4", 0);
  td_tensor_release(run.out[0]);
  release_all(in, 2);
  run = run_of("_ParallelConcatStart", "dtype: int32; shape: [2]", NULL, 0);
  td_assert_runs(&run);
  td_tensor *update[] = {run.out[0], td_test_tensor(TD_INT32, "[1]", "5")};
  td_op_run second = run_of("_ParallelConcatUpdate", "T: int32; loc: 1", update, 2);
  td_assert_runs(&second);
  td_assert_tensor(update[0], TD_INT32, "[2]", "0 5", 0);
  td_tensor_release(second.out[0]);
  second = run_of("_ParallelConcatUpdate", "T: int32; loc: 2", update, 2);
  td_assert_run_fails(&second, TD_INVALID_ARGUMENT, "0th dimension of value = 2 is less than loc_=2");
  release_all(update, 2);
}

/* What 2.21 gives; the table comes from an older release. */
static void test_bad_indices_ignored(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_INT32, "[2,2]", "1 2 3 4"), td_test_tensor(TD_INT32, "[3,1]", "1 5 0")};
  td_op_run run = run_of("GatherNd", "Tparams: int32; Tindices: int32; bad_indices_policy: 'IGNORE'", in, 2);
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_INT32, "[3,2]", "3 4 0 0 1 2", 0);
  td_tensor_release(run.out[0]);
  td_tensor *scatter[] = {in[1], td_test_tensor(TD_FLOAT, "[3]", "1 2 3"), td_test_tensor(TD_INT32, "[1]", "3")};
  run = run_of("ScatterNd", "T: float; Tindices: int32; bad_indices_policy: 'IGNORE'", scatter, 3);
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_FLOAT, "[3]", "3 1 0", 0);
  td_tensor_release(run.out[0]);
  run = run_of("ScatterNd", "T: float; Tindices: int32; bad_indices_policy: 'x'", scatter, 3);
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Unknown bad indices handling attribute: x");
  release_all(in, 2);
  release_all(scatter + 1, 2);
}

static void test_ensure_shape(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_FLOAT, "[2,3]", "1")};
  td_op_run run = run_of("EnsureShape", "T: float; shape: [2,?]", in, 1);
  td_assert_runs(&run);
  assert_ptr_equal(run.out[0], in[0]);
  td_tensor_release(run.out[0]);
  run = run_of("EnsureShape", "T: float; shape: [3,?]", in, 1);
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "[2,3] is not compatible with expected shape [3,?].");
  release_all(in, 1);
}

/* ---- variables ---- */

static td_device *make_device(void) {
  td_device *d = td_test_device();
  return d;
}

static void test_resource_variable(void **state) {
  td_device *d = make_device();
  td_variable *v = td_variable_create(&td_resource_variable_type, TD_FLOAT, TD_STR("v"));
  assert_null(td_resource_add(d->resources, TD_STR("c"), TD_STR("v"), &v->resource));
  td_tensor *handle;
  assert_null(td_handle_create(d, TD_STR("c"), TD_STR("v"), &td_resource_variable_type, &handle));
  td_tensor *in[] = {handle, td_test_tensor(TD_INT32, "[3]", "2 0 2")};
  td_op_run run = run_of("ResourceGather", "dtype: float; Tindices: int32", in, 2);
  run.device = d;
  td_assert_run_fails(&run, TD_FAILED_PRECONDITION, "Error while reading resource variable v");
  pthread_rwlock_wrlock(&v->lock);
  td_variable_set(v, td_test_tensor(TD_FLOAT, "[3,2]", "1 2 3 4 5 6"));
  pthread_rwlock_unlock(&v->lock);
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_FLOAT, "[3,2]", "5 6 1 2 5 6", 0);
  td_tensor_release(run.out[0]);
  td_tensor_release(in[1]);
  in[1] = td_test_tensor(TD_INT32, "[1]", "5");
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "indices[0] = 5 is not in [0, 3)");
  td_tensor_release(in[1]);
  in[1] = td_test_tensor(TD_INT32, "[1,2]", "1 1");
  run = run_of("ResourceGatherNd", "dtype: float; Tindices: int32", in, 2);
  run.device = d;
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_FLOAT, "[1]", "4", 0);
  td_tensor_release(run.out[0]);
  td_tensor_release(in[1]);

  td_tensor *before;
  assert_null(td_variable_read(v, &before));
  td_tensor *assign[] = {handle, td_test_tensor(TD_INT32, "[2]", "0 1"), td_test_tensor(TD_INT32, "[2]", "3 2"),
                         td_test_tensor(TD_INT32, "[2]", "2 1"), td_test_tensor(TD_FLOAT, "[2,1]", "20 60")};
  run = run_of("ResourceStridedSliceAssign", "T: float; Index: int32", assign, 5);
  run.device = d;
  td_assert_runs(&run);
  td_assert_tensor(before, TD_FLOAT, "[3,2]", "1 2 3 4 5 6", 0); /* who read before keeps what it read */
  td_assert_tensor(v->value, TD_FLOAT, "[3,2]", "1 20 3 4 5 60", 0);
  td_tensor_release(before);
  release_all(assign + 1, 4);
  td_tensor_release(handle);
  td_variable_release(v);
  td_device_release(d);
}

static void test_ref_variable(void **state) {
  td_variable *v = td_variable_create(&td_ref_variable_type, TD_INT32, TD_STR("v"));
  td_tensor *in[] = {NULL, td_test_tensor(TD_INT32, "[1]", "1"), td_test_tensor(TD_INT32, "[1]", "3"),
                     td_test_tensor(TD_INT32, "[1]", "1"), td_test_tensor(TD_INT32, "[2]", "8 9")};
  td_op_run run = run_of("StridedSliceAssign", "T: int32; Index: int32", in, 5);
  run.refs = (td_variable *[]){v, NULL, NULL, NULL, NULL};
  td_assert_run_fails(&run, TD_FAILED_PRECONDITION, "uninitialized value v");
  pthread_rwlock_wrlock(&v->lock);
  td_variable_set(v, td_test_tensor(TD_INT32, "[4]", "1 2 3 4"));
  pthread_rwlock_unlock(&v->lock);
  td_assert_runs(&run);
  assert_ptr_equal(run.out_refs[0], v);
  td_variable_release(run.out_refs[0]);
  td_assert_tensor(v->value, TD_INT32, "[4]", "1 8 9 4", 0);
  td_tensor_release(in[4]);
  in[4] = td_tensor_slice(v->value, 0, 2); /* a view of what is assigned to */
  td_assert_runs(&run);
  td_variable_release(run.out_refs[0]);
  td_assert_tensor(v->value, TD_INT32, "[4]", "1 1 8 4", 0);
  release_all(in + 1, 4);
  td_variable_release(v);
}

enum { MANY = 50000, MANY_DISTINCT = 30011 };

/* Tables that grow: the numbers of 50,000 integers, 30,011 of them distinct. Releases `x`, gives the numbers. */
static td_tensor *number_many(td_tensor *x, const char *attrs) {
  static int32_t number_of[MANY_DISTINCT];
  td_op_run run = run_of("Unique", attrs, &x, 1);
  td_assert_runs(&run);
  assert_int_equal(run.out[0]->count, MANY_DISTINCT);
  memset(number_of, 0, sizeof number_of);
  for (int64_t i = 0, distinct = 0; i < MANY; i++) {
    int32_t *number = &number_of[i * 7919 % MANY_DISTINCT];
    if (!*number) {
      *number = (int32_t)++distinct;
      assert_true(td_tensor_int_at(run.out[0], distinct - 1) == td_tensor_int_at(x, i));
    }
    assert_int_equal(TD_DATA(run.out[1], int32_t)[i], *number - 1);
  }
  release_all((td_tensor *[]){x, run.out[0]}, 2);
  return run.out[1];
}

static void test_unique_of_many(void **state) {
  const int64_t n = MANY;
  td_tensor *x;
  assert_null(td_tensor_create_dims(TD_INT32, 1, &n, &x));
  for (int64_t i = 0; i < MANY; i++) TD_DATA(x, int32_t)[i] = (int32_t)(i * 7919 % MANY_DISTINCT) * 65537;
  td_tensor_release(number_many(x, "T: int32"));
}

/* The same of 64-bit integers that agree in their lower halves, and the sums of rows that bear their numbers. */
static void test_sums_of_many(void **state) {
  enum { WIDTH = 20 };
  static float sums[MANY_DISTINCT][WIDTH];
  const int64_t dims[] = {MANY, WIDTH};
  td_tensor *x, *rows, *count = td_test_tensor(TD_INT32, "[]", "30012"); /* one segment stays empty */
  assert_null(td_tensor_create_dims(TD_INT64, 1, dims, &x));
  for (int64_t i = 0; i < MANY; i++) TD_DATA(x, int64_t)[i] = (i * 7919 % MANY_DISTINCT) << 33;
  td_tensor *number = number_many(x, "T: int64");
  assert_null(td_tensor_create_dims(TD_FLOAT, 2, dims, &rows));
  for (int64_t i = 0; i < rows->count; i++) TD_DATA(rows, float)[i] = (float)(i % 1001);
  memset(sums, 0, sizeof sums);
  for (int64_t i = 0; i < MANY; i++)
    for (int k = 0; k < WIDTH; k++) sums[TD_DATA(number, int32_t)[i]][k] += TD_DATA(rows, float)[i * WIDTH + k];
  td_op_run sum = run_of("UnsortedSegmentSum", "T: float; Tindices: int32; Tnumsegments: int32",
                         (td_tensor *[]){rows, number, count}, 3);
  td_assert_runs(&sum);
  assert_memory_equal(sum.out[0]->data, sums, sizeof sums);
  for (int k = 0; k < WIDTH; k++) assert_true(TD_DATA(sum.out[0], float)[MANY_DISTINCT * WIDTH + k] == 0);
  release_all(sum.out, sum.out_count);
  release_all((td_tensor *[]){rows, number, count}, 3);
}

int main(void) {
  static const struct CMUnitTest others[] = {
      cmocka_unit_test(test_views),
      cmocka_unit_test(test_transpose_sizes),
      cmocka_unit_test(test_pool),
      cmocka_unit_test(test_tile_grad),
      cmocka_unit_test(test_parallel_concat),
      cmocka_unit_test(test_ensure_shape),
      cmocka_unit_test(test_bad_indices_ignored),
      cmocka_unit_test(test_resource_variable),
      cmocka_unit_test(test_ref_variable),
      cmocka_unit_test(test_unique_of_many),
      cmocka_unit_test(test_sums_of_many),
      cmocka_unit_test(test_hostile),
  };
  return td_case_table_run(cases, TD_COUNT(cases), others, TD_COUNT(others));
}

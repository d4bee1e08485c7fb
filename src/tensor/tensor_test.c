#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/mem.h"
#include "base/testing.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

static td_tensor *create(td_dtype dtype, int rank, const int64_t *dims) {
  td_tensor *t = NULL;
  must(td_tensor_create_dims(dtype, rank, dims, &t));
  return t;
}

static void expect_error(td_dtype dtype, int rank, const int64_t *dims, td_code code, const char *text) {
  td_tensor *t = NULL;
  td_status s = td_tensor_create_dims(dtype, rank, dims, &t);
  assert_int_equal(td_status_code(s), code);
  assert_null(t);
  if (!strstr(td_status_message(s), text)) fail_msg("\"%s\" lacks \"%s\"", td_status_message(s), text);
  td_status_free(s);
}

static void every_type_and_size(void **state) {
  for (int type = 1; type < TD_DTYPE_LIMIT; type++) {
    if (!td_dtype_valid(type)) continue;
    for (int64_t n = 0; n < 300000; n = n * 2 + 1) {
      td_tensor *t = create((td_dtype)type, 1, &n);
      assert_int_equal(t->count, n);
      assert_int_equal(t->size, (size_t)n * td_dtype_size((td_dtype)type));
      assert_int_equal((uintptr_t)t->data % 64, 0);
      assert_non_null(t->data);
      assert_true(td_tensor_is_exclusive(t));
      if (td_dtype_is_pod((td_dtype)type)) memset(t->data, 0xff, t->size);
      td_tensor_release(t);
    }
  }
  int64_t dims[TD_MAX_RANK];
  for (int i = 0; i < TD_MAX_RANK; i++) dims[i] = 1;
  dims[200] = 7;
  td_tensor *t = create(TD_DOUBLE, TD_MAX_RANK, dims);
  assert_int_equal(t->count, 7);
  assert_int_equal(t->dims[200], 7);
  td_shape s;
  td_tensor_shape(t, &s);
  assert_int_equal(s.rank, TD_MAX_RANK);
  TD_DATA(t, double)[6] = 1;
  td_tensor_release(t);
}

static void bad_ones(void **state) {
  expect_error(TD_FLOAT, 2, (int64_t[]){2, -1}, TD_INVALID_ARGUMENT, "[2,?]");
  expect_error(TD_FLOAT, 2, (int64_t[]){INT64_MAX, 3}, TD_INVALID_ARGUMENT, "too large");
  expect_error(TD_FLOAT, 1, (int64_t[]){INT64_MAX}, TD_RESOURCE_EXHAUSTED,
               "OOM when allocating tensor with shape[9223372036854775807] and type float");
  expect_error(TD_STRING, 2, (int64_t[]){1 << 30, 1 << 30}, TD_RESOURCE_EXHAUSTED, "type string");
  expect_error(TD_DOUBLE, 1, (int64_t[]){(int64_t)1 << 50}, TD_RESOURCE_EXHAUSTED, "OOM");
  expect_error((td_dtype)0, 0, NULL, TD_INVALID_ARGUMENT, "type 0");
  expect_error((td_dtype)28, 0, NULL, TD_INVALID_ARGUMENT, "type 28");
  expect_error((td_dtype)101, 0, NULL, TD_INVALID_ARGUMENT, "type 101");
  expect_error(TD_FLOAT, TD_MAX_RANK + 1, NULL, TD_INVALID_ARGUMENT, "Too many dimensions");
}

static void zeros(void **state) {
  for (int64_t n = 1; n < 3 << 20; n = n * 5 + 3) {
    for (int again = 0; again < 2; again++) { /* the second one gets used memory */
      td_shape s;
      td_shape_vector(&s, n);
      td_tensor *t;
      assert_null(td_tensor_create_zeros(TD_INT32, &s, &t));
      for (int64_t i = 0; i < n; i++) assert_int_equal(TD_DATA(t, int32_t)[i], 0);
      memset(t->data, 1, t->size);
      td_tensor_release(t);
    }
  }
}

static void views(void **state) {
  td_tensor *t = create(TD_INT32, 2, (int64_t[]){4, 3});
  for (int i = 0; i < 12; i++) TD_DATA(t, int32_t)[i] = i;
  td_tensor *flat = td_tensor_reshape(t, 1, (int64_t[]){12});
  assert_ptr_equal(flat->data, t->data);
  assert_false(td_tensor_is_exclusive(t));
  assert_false(td_tensor_is_exclusive(flat));
  td_tensor *rows = td_tensor_slice(t, 1, 3);
  assert_int_equal(rows->count, 6);
  assert_int_equal(rows->dims[0], 2);
  assert_int_equal(TD_DATA(rows, int32_t)[0], 3);
  td_tensor *row = td_tensor_slice(rows, 1, 2); /* a view of a view holds the owner itself */
  assert_ptr_equal(row->base, t);
  assert_int_equal(TD_DATA(row, int32_t)[2], 8);
  td_tensor *none = td_tensor_slice(t, 4, 4);
  assert_int_equal(none->count, 0);
  td_tensor *bits = td_tensor_bitcast(t, TD_FLOAT, 1, (int64_t[]){12});
  assert_int_equal(bits->dtype, TD_FLOAT);
  td_tensor_release(bits);
  td_tensor_release(none);
  td_tensor_release(flat);
  td_tensor_release(rows);
  td_tensor_release(t);
  assert_true(td_tensor_is_exclusive(row)); /* the only way to these elements */
  assert_int_equal(TD_DATA(row, int32_t)[0], 6);
  td_tensor_release(row);
}

static void strings(void **state) {
  td_tensor *t = create(TD_STRING, 2, (int64_t[]){2, 2});
  td_string *s = TD_DATA(t, td_string);
  assert_int_equal(td_string_view(&s[3]).size, 0);
  assert_null(td_string_set(&s[0], TD_STR("a\0b")));
  assert_null(td_string_set(&s[1], TD_STR("x")));
  assert_null(td_string_set(&s[1], TD_STR("longer")));
  td_string_take(&s[2], td_strdup("taken"), 5);
  td_string_take(&s[3], td_strdup("dropped"), 0);
  td_tensor *copy;
  assert_null(td_tensor_copy(t, &copy));
  td_tensor_copy_elements(copy, 3, t, 1, 1);
  td_tensor_release(t);
  s = TD_DATA(copy, td_string);
  assert_true(td_str_eq(td_string_view(&s[0]), TD_STR("a\0b")));
  assert_true(td_str_eq(td_string_view(&s[2]), TD_STR("taken")));
  assert_true(td_str_eq(td_string_view(&s[3]), TD_STR("longer")));
  td_tensor *row = td_tensor_slice(copy, 1, 2);
  td_tensor_release(copy);
  assert_true(td_str_eq(td_string_view(&TD_DATA(row, td_string)[0]), TD_STR("taken")));
  td_tensor_release(row);
}

static int destroyed;
static void destroy_variant(td_variant *v) {
  destroyed++;
  td_free(v);
}
static const td_variant_ops variant_ops = {"test", destroy_variant, NULL};

static void handles_and_variants(void **state) {
  td_tensor *t = create(TD_RESOURCE, 1, (int64_t[]){2});
  td_resource_handle *h = td_resource_handle_create(TD_STR("/job:a"), TD_STR(""), TD_STR("v"), TD_STR("Var"), 7);
  TD_DATA(t, td_resource_handle *)[0] = h;
  td_tensor *copy;
  assert_null(td_tensor_copy(t, &copy));
  assert_int_equal(h->refs, 2);
  td_tensor_copy_elements(copy, 0, t, 1, 1); /* nothing over a handle */
  assert_int_equal(h->refs, 1);
  td_tensor_release(copy);
  td_tensor_release(t);

  td_variant *v = td_new(td_variant);
  v->ops = &variant_ops;
  v->refs = 1;
  t = create(TD_VARIANT, 0, NULL);
  TD_DATA(t, td_variant *)[0] = v;
  assert_null(td_tensor_copy(t, &copy));
  td_tensor_release(t);
  assert_int_equal(destroyed, 0);
  td_tensor_release(copy);
  assert_int_equal(destroyed, 1);
}

static void expect_summary(td_tensor *t, int64_t max, const char *expected) {
  char *text = td_tensor_summarize(t, max);
  assert_string_equal(text, expected);
  td_free(text);
}

static void summaries(void **state) {
  td_tensor *t = create(TD_FLOAT, 2, (int64_t[]){2, 3});
  const float values[] = {1, 1.0f / 3, 1e10f, -0.0f, INFINITY, NAN};
  memcpy(t->data, values, sizeof values);
  expect_summary(t, -1, "[1 0.333333343 1e+10][-0 inf nan]");
  expect_summary(t, 3, "[1 0.333333343 1e+10]...");
  expect_summary(t, 4, "[1 0.333333343 1e+10][-0...]...");
  expect_summary(t, 0, "...");
  td_tensor_release(t);
  t = create(TD_INT8, 1, (int64_t[]){3});
  memcpy(t->data, "\x01\xff\x80", 3);
  expect_summary(t, 10, "1 -1 -128");
  expect_summary(t, 2, "1 -1...");
  td_tensor_release(t);
  t = create(TD_STRING, 0, NULL);
  assert_null(td_string_set(TD_DATA(t, td_string), TD_STR("a\n\"\x01")));
  expect_summary(t, 3, "a\\n\\\"\\001");
  td_tensor_release(t);
  t = create(TD_BOOL, 1, (int64_t[]){0});
  expect_summary(t, 3, "");
  td_tensor_release(t);
}

static void nothing_is_left(void **state) {
  td_memory_stats stats;
  td_memory_get_stats(&stats);
  assert_int_equal(stats.buffers_in_use, 0);
  td_memory_trim(0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_and_size),
      cmocka_unit_test(bad_ones),
      cmocka_unit_test(zeros),
      cmocka_unit_test(views),
      cmocka_unit_test(strings),
      cmocka_unit_test(handles_and_variants),
      cmocka_unit_test(summaries),
      cmocka_unit_test(nothing_is_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

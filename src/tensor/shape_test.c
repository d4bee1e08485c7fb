#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tensor/shape.h"

static void expect_count(const td_shape *s, int64_t expected) {
  int64_t n = -1;
  assert_null(td_shape_count(s, &n));
  assert_int_equal(n, expected);
}

static void expect_bad(const td_shape *s, const char *text) {
  int64_t n;
  td_status status = td_shape_count(s, &n);
  assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
  assert_non_null(strstr(td_status_message(status), text));
  td_status_free(status);
}

static void counts(void **state) {
  td_shape s;
  td_shape_scalar(&s);
  expect_count(&s, 1);
  td_shape_vector(&s, 0);
  expect_count(&s, 0);
  td_shape_set(&s, 3, (int64_t[]){2, 3, 4});
  expect_count(&s, 24);
  td_shape_set(&s, 2, (int64_t[]){INT64_MAX, 1});
  expect_count(&s, INT64_MAX);
  td_shape_set(&s, 2, (int64_t[]){INT64_MAX, 2});
  expect_bad(&s, "Shape [9223372036854775807,2] is too large");
  td_shape_set(&s, 2, (int64_t[]){3, -1});
  expect_bad(&s, "Shape [3,?] is not fully defined");
}

static void appends(void **state) {
  td_shape s;
  td_shape_scalar(&s);
  for (int i = 0; i < TD_MAX_RANK; i++) assert_null(td_shape_append(&s, 1));
  td_status status = td_shape_append(&s, 1);
  assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
  td_status_free(status);
  td_shape_scalar(&s);
  status = td_shape_append(&s, -2);
  assert_string_equal(td_status_message(status), "Dimension -2 must be >= 0");
  td_status_free(status);
}

static void text_and_equality(void **state) {
  char *text = td_dims_text(3, (int64_t[]){2, -1, 0});
  assert_string_equal(text, "[2,?,0]");
  td_free(text);
  text = td_dims_text(0, NULL);
  assert_string_equal(text, "[]");
  td_free(text);
  td_shape a, b;
  td_shape_set(&a, 2, (int64_t[]){2, 3});
  td_shape_copy(&b, &a);
  assert_true(td_shape_eq(&a, &b));
  b.dims[1] = 4;
  assert_false(td_shape_eq(&a, &b));
  b.rank = 1;
  assert_false(td_shape_eq(&a, &b));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts),
      cmocka_unit_test(appends),
      cmocka_unit_test(text_and_equality),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

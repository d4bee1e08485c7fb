/* Elements as numbers: every plain type there and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <complex.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/number.h"

static td_tensor *vector_of(td_dtype dtype, const void *bytes, size_t size) {
  td_tensor *t;
  int64_t n = (int64_t)(size / td_dtype_size(dtype));
  assert_null(td_tensor_create_dims(dtype, 1, &n, &t));
  memcpy(t->data, bytes, size);
  return t;
}

#define CHECK_INTEGERS(dtype, type, low, high)                        \
  do {                                                                \
    type values[] = {low, high};                                      \
    td_tensor *t = vector_of(dtype, values, sizeof values);           \
    assert_true(td_tensor_integer_at(t, 0) == (int64_t)(low));        \
    assert_true(td_tensor_integer_at(t, 1) == (int64_t)(high));       \
    assert_true(td_tensor_real_at(t, 0) == (double)(low));            \
    assert_true(td_tensor_real_at(t, 1) == (double)(high));           \
    assert_true(creal(td_tensor_complex_at(t, 1)) == (double)(high)); \
    td_tensor_release(t);                                             \
  } while (0)

static void integers(void **state) {
  (void)state;
  CHECK_INTEGERS(TD_INT8, int8_t, INT8_MIN, INT8_MAX);
  CHECK_INTEGERS(TD_QINT8, int8_t, INT8_MIN, INT8_MAX);
  CHECK_INTEGERS(TD_UINT8, uint8_t, 0, UINT8_MAX);
  CHECK_INTEGERS(TD_BOOL, uint8_t, 0, 1);
  CHECK_INTEGERS(TD_INT16, int16_t, INT16_MIN, INT16_MAX);
  CHECK_INTEGERS(TD_UINT16, uint16_t, 0, UINT16_MAX);
  CHECK_INTEGERS(TD_INT32, int32_t, INT32_MIN, INT32_MAX);
  CHECK_INTEGERS(TD_QINT32, int32_t, INT32_MIN, INT32_MAX);
  CHECK_INTEGERS(TD_UINT32, uint32_t, 0, UINT32_MAX);
  CHECK_INTEGERS(TD_INT64, int64_t, INT64_MIN, INT64_MAX);
  CHECK_INTEGERS(TD_UINT64, uint64_t, 0, UINT64_MAX);
}

static void floating_and_complex(void **state) {
  static const td_dtype types[] = {TD_FLOAT, TD_DOUBLE, TD_HALF, TD_BFLOAT16, TD_COMPLEX64, TD_COMPLEX128};
  (void)state;
  for (size_t i = 0; i < TD_COUNT(types); i++) {
    td_tensor *t;
    assert_null(td_tensor_create_dims(types[i], 1, &(int64_t){2}, &t));
    td_tensor_set_complex(t, 0, 7, 9);
    td_tensor_set_complex(t, 1, -1.5, 0.25);
    td_complex128 z = td_tensor_complex_at(t, 1);
    assert_true(creal(z) == -1.5);
    assert_true(cimag(z) == (td_dtype_in(types[i], TD_SET_COMPLEX) ? 0.25 : 0));
    assert_true(creal(td_tensor_complex_at(t, 0)) == 7); /* left as it was */
    if (td_dtype_in(types[i], TD_SET_FLOATING)) assert_true(td_tensor_real_at(t, 1) == -1.5);
    td_tensor_release(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(integers), cmocka_unit_test(floating_and_complex)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

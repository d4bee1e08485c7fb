#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tensor/dtype.h"
#include "tensor/tensor.h"

static void names_round_trip(void **state) {
  int known = 0;
  for (int t = 0; t < 64; t++) {
    if (!td_dtype_valid(t)) {
      assert_string_equal(td_dtype_name(t), "invalid");
      assert_int_equal(td_dtype_size((td_dtype)t), 0);
      continue;
    }
    known++;
    assert_int_equal(td_dtype_parse(td_str_of(td_dtype_name(t))), t);
    assert_int_equal(td_dtype_parse(td_str_of(td_dtype_name(t + TD_REF_OFFSET))), t + TD_REF_OFFSET);
    assert_true(td_dtype_in((td_dtype)t, TD_SET_ALL));
    assert_true(td_dtype_size((td_dtype)t) > 0);
  }
  assert_int_equal(known, 27);
  assert_int_equal(td_dtype_size(TD_STRING), sizeof(td_string));
  assert_int_equal(td_dtype_parse(TD_STR("float32")), TD_FLOAT);
  assert_int_equal(td_dtype_parse(TD_STR("float_ref")), TD_FLOAT + TD_REF_OFFSET);
  const char *bad[] = {"", "flo", "float_ref_ref", "_ref", "floaty", "int33"};
  for (int i = 0; i < 6; i++) assert_int_equal(td_dtype_parse(td_str_of(bad[i])), TD_INVALID);
  assert_string_equal(td_dtype_name(-1), "invalid");
  assert_string_equal(td_dtype_name(1000), "invalid");
  assert_false(td_dtype_valid(-5));
}

/* Every half there is, and the borders between them. */
static void half_rounds_to_nearest_even(void **state) {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    td_half h = {(uint16_t)bits};
    float f = td_half_to_float(h);
    int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
    if (exponent == 31 && mantissa) {
      assert_true(isnan(f) && isnan(td_half_to_float(td_half_from_float(f))));
      continue;
    }
    double expected = exponent == 31 ? INFINITY
                      : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                     : ldexp(mantissa, -24);
    assert_true(f == (float)(bits & 0x8000 ? -expected : expected));
    assert_int_equal(td_half_from_float(f).bits, bits);
    if (bits >= 0x7bff) continue;
    float next = td_half_to_float((td_half){(uint16_t)(bits + 1)}), middle = (f + next) / 2;
    uint32_t even = bits & 1 ? bits + 1 : bits;
    assert_int_equal(td_half_from_float(middle).bits, even);
    assert_int_equal(td_half_from_float(nextafterf(middle, 0)).bits, bits);
    assert_int_equal(td_half_from_float(nextafterf(middle, INFINITY)).bits, bits + 1);
  }
  assert_int_equal(td_half_from_float(65519.996f).bits, 0x7bff);
  assert_int_equal(td_half_from_float(65520.0f).bits, 0x7c00);
  assert_int_equal(td_half_from_float(1e30f).bits, 0x7c00);
  assert_int_equal(td_half_from_float(-1e30f).bits, 0xfc00);
  assert_int_equal(td_half_from_float(1e-30f).bits, 0);
}

static void bfloat16_rounds_to_nearest_even(void **state) {
  assert_int_equal(td_bfloat16_from_float(1.0f).bits, 0x3f80);
  assert_int_equal(td_bfloat16_from_float(1.00390625f).bits, 0x3f80); /* a tie */
  assert_int_equal(td_bfloat16_from_float(1.01171875f).bits, 0x3f82);
  assert_true(isnan(td_bfloat16_to_float(td_bfloat16_from_float(NAN))));
  assert_true(isinf(td_bfloat16_to_float(td_bfloat16_from_float(3.4e38f))));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_round_trip),
      cmocka_unit_test(half_rounds_to_nearest_even),
      cmocka_unit_test(bfloat16_rounds_to_nearest_even),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

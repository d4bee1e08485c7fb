#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/testing.h"

static void expect(const char *op, const char *attrs, td_tensor **in, int n, const char *shape, const char *want) {
  td_op_run run = {.op = op, .attrs = attrs, .in = in, .in_count = n};
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_FLOAT, shape, want, 1e-6);
  td_tensor_release(run.out[0]);
}

static void release(td_tensor **in, int n) {
  for (int i = 0; i < n; i++) td_tensor_release(in[i]);
}

static void ranges(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_FLOAT, "[5]", "-1 -0.5 0 0.3 7"), td_test_tensor(TD_FLOAT, "[]", "-1"),
                     td_test_tensor(TD_FLOAT, "[]", "1"), td_test_tensor(TD_INT32, "[]", "8")};
  const char *want = "-1 -0.503937 0 0.299213 1";
  expect("QuantizeAndDequantizeV2", "T: float; range_given: true", in, 3, "[5]", want);
  expect("QuantizeAndDequantizeV3", "T: float", in, 4, "[5]", want);
  expect("QuantizeAndDequantizeV4", "T: float; num_bits: 3", in, 3, "[5]", "0 0 0 0 7"); /* of 7/3 */
  td_assert_run_fails(
      &(td_op_run){.op = "QuantizeAndDequantizeV2", .attrs = "T: float; num_bits: 62", .in = in, .in_count = 3},
      TD_INVALID_ARGUMENT, "num_bits is out of range: 62");
  td_tensor *swapped[] = {in[0], in[2], in[1]};
  td_assert_run_fails(
      &(td_op_run){
          .op = "QuantizeAndDequantizeV2", .attrs = "T: float; range_given: true", .in = swapped, .in_count = 3},
      TD_INVALID_ARGUMENT, "Invalid range: input_min 1 > input_max -1");
  release(in, 4);
}

static void slices(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_FLOAT, "[2,2]", "1 8 2 6"), td_test_tensor(TD_FLOAT, "[2]", "0 0"),
                     td_test_tensor(TD_FLOAT, "[2]", "2 8")};
  expect("QuantizeAndDequantizeV2", "T: float; axis: 1; num_bits: 2; signed_input: false; round_mode: 'HALF_UP'", in, 3,
         "[2,2]", "1.333333 8 2 5.333333");
  td_assert_run_fails(
      &(td_op_run){.op = "QuantizeAndDequantizeV2", .attrs = "T: float; axis: 2", .in = in, .in_count = 3},
      TD_INVALID_ARGUMENT, "given axis value was 2");
  td_tensor *short_range[] = {in[0], td_test_tensor(TD_FLOAT, "[1]", "0"), in[2]};
  td_assert_run_fails(&(td_op_run){.op = "QuantizeAndDequantizeV2",
                                   .attrs = "T: float; axis: 1; range_given: true",
                                   .in = short_range,
                                   .in_count = 3},
                      TD_INVALID_ARGUMENT, "input_min has incorrect size");
  td_tensor_release(short_range[1]);
  release(in, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ranges), cmocka_unit_test(slices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

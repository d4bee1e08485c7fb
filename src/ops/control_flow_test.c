/* Const and its kind, control flow, Send and Recv as single nodes; whole graphs are the executor's test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "framework/rendezvous.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/testing.h"

static void forwarding(void **state) {
  static const char *const names[] = {"Identity", "Snapshot", "StopGradient", "PreventGradient", "LoopCond"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    bool is_cond = i == 4;
    td_tensor *x = is_cond ? td_test_tensor(TD_BOOL, "[]", "1") : td_test_tensor(TD_DOUBLE, "[2]", "1 nan");
    td_op_run run = {.op = names[i], .attrs = is_cond ? "" : "T: double", .in = &x, .in_count = 1};
    assert_null(td_op_test_run(&run));
    assert_ptr_equal(run.out[0], x);
    td_tensor_release(run.out[0]);
    td_tensor_release(x);
  }
  td_tensor *two[] = {td_test_tensor(TD_INT32, "[2]", "1 2"), td_test_tensor(TD_STRING, "[]", "a")};
  td_op_run run = {.op = "IdentityN", .attrs = "T: [int32, string]", .in = two, .in_count = 2};
  assert_null(td_op_test_run(&run));
  td_assert_tensor(run.out[0], TD_INT32, "[2]", "1 2", 0);
  td_assert_tensor(run.out[1], TD_STRING, "[]", "a", 0);
  for (int i = 0; i < 2; i++) {
    td_tensor_release(run.out[i]);
    td_tensor_release(two[i]);
  }
}

/* Texts as TensorFlow 1.15.5 writes them. */
static void placeholders(void **state) {
  td_op_run run = {.op = "Placeholder", .attrs = "dtype: float", .name = "x"};
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "You must feed a value for placeholder tensor 'x' with dtype float");
  run.attrs = "dtype: int32; shape: [?,3]";
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT,
                      "You must feed a value for placeholder tensor 'x' with dtype int32 and shape [?,3]");
  run.attrs = "dtype: int32; shape: []";
  td_status s = td_op_test_run(&run);
  assert_string_equal(td_status_message(s), "You must feed a value for placeholder tensor 'x' with dtype int32");
  td_status_free(s);
}

static void switches(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_FLOAT, "[1]", "5"), td_test_tensor(TD_BOOL, "[]", "1")};
  td_op_run run = {.op = "Switch", .attrs = "T: float", .in = in, .in_count = 2};
  assert_null(td_op_test_run(&run));
  assert_null(run.out[0]);
  assert_ptr_equal(run.out[1], in[0]);
  td_tensor_release(run.out[1]);
  td_tensor_release(in[1]);
  in[1] = td_test_tensor(TD_BOOL, "[2]", "1 0");
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "The second input must be a scalar, but it has shape [2]");
  td_tensor_release(in[1]);
  for (int i = -1; i < 4; i++) { /* out of range: the last */
    in[1] = td_test_tensor(TD_INT32, "[]", (const char *[]){"-1", "0", "1", "2", "3"}[i + 1]);
    run = (td_op_run){.op = "_SwitchN", .attrs = "T: float; num_outs: 3", .in = in, .in_count = 2};
    assert_null(td_op_test_run(&run));
    for (int k = 0; k < 3; k++) assert_true((run.out[k] != NULL) == (k == (i < 0 || i > 2 ? 2 : i)));
    for (int k = 0; k < 3; k++) td_tensor_release(run.out[k]);
    td_tensor_release(in[1]);
  }
  td_tensor_release(in[0]);
}

static void ref_select(void **state) {
  td_variable *a = td_variable_create(&td_ref_variable_type, TD_FLOAT, TD_STR("a"));
  td_variable *b = td_variable_create(&td_ref_variable_type, TD_FLOAT, TD_STR("b"));
  td_variable *refs[] = {NULL, a, b};
  td_tensor *in[] = {td_test_tensor(TD_INT32, "[]", "1"), NULL, NULL};
  td_op_run run = {.op = "RefSelect", .attrs = "T: float; N: 2", .in = in, .in_count = 3, .refs = refs};
  assert_null(td_op_test_run(&run));
  assert_ptr_equal(run.out_refs[0], b);
  td_variable_release(run.out_refs[0]);
  *TD_DATA(in[0], int32_t) = 2;
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Index must be in the range [0, 2) but got 2");
  *TD_DATA(in[0], int32_t) = -1;
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Index must be in the range [0, 2) but got -1");
  td_tensor_release(in[0]);
  td_variable_release(a);
  td_variable_release(b);
}

static void transfers_need_a_rendezvous(void **state) {
  td_tensor *x = td_test_tensor(TD_FLOAT, "[1]", "5");
  td_op_run run = {.op = "_Send",
                   .attrs =
                       "T: float; tensor_name: 'e'; send_device: '/job:a/replica:0/task:0/device:CPU:0'; "
                       "send_device_incarnation: 1; recv_device: '/job:a/replica:0/task:0/device:CPU:0'",
                   .in = &x,
                   .in_count = 1};
  td_assert_run_fails(&run, TD_INTERNAL, "without a rendezvous");
  td_tensor_release(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forwarding),
      cmocka_unit_test(placeholders),
      cmocka_unit_test(switches),
      cmocka_unit_test(ref_select),
      cmocka_unit_test(transfers_need_a_rendezvous),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "framework/session_state.h"
#include "ops/testing.h"

static bool keep(void *arg, td_str node) { return true; }

static void test_kept_found_deleted(void **state) {
  td_step step = {.id = 1, .session_state = td_session_state_create()};
  td_tensor *value = td_test_tensor(TD_FLOAT, "[2]", "1 2");
  td_op_run put = {
      .op = "GetSessionHandle", .attrs = "T: float", .name = "h", .in = &value, .in_count = 1, .step = &step};
  assert_null(td_op_test_run(&put));
  td_tensor *handle = put.out[0];
  td_op_run get = {.op = "GetSessionTensor", .attrs = "dtype: float", .in = &handle, .in_count = 1, .step = &step};
  td_assert_run_fails(&get, TD_INVALID_ARGUMENT, "is not in the session store.");
  td_session_state_end_step(step.session_state, 1, keep, NULL);
  assert_null(td_op_test_run(&get));
  assert_ptr_equal(get.out[0], value); /* kept as it is */
  td_tensor_release(get.out[0]);
  get.attrs = "dtype: int32";
  td_assert_run_fails(&get, TD_INVALID_ARGUMENT, "is of type float, not int32");
  td_op_run delete = {.op = "DeleteSessionTensor", .attrs = "", .in = &handle, .in_count = 1, .step = &step};
  assert_null(td_op_test_run(&delete));
  td_assert_run_fails(&delete, TD_INVALID_ARGUMENT, "Failed to delete a tensor with handle 'h;0;");
  td_tensor_release(handle);
  td_tensor_release(value);
  td_session_state_destroy(step.session_state);
}

static void test_resource_handle_names_the_tensor(void **state) {
  td_step step = {.id = 1, .session_state = td_session_state_create()};
  td_tensor *value = td_test_tensor(TD_INT32, "[]", "7");
  td_op_run put = {
      .op = "GetSessionHandleV2", .attrs = "T: int32", .name = "h", .in = &value, .in_count = 1, .step = &step};
  assert_null(td_op_test_run(&put));
  const td_resource_handle *handle = TD_DATA(put.out[0], td_resource_handle *)[0];
  assert_string_equal(handle->type_name, "TensorHandle");
  assert_int_equal(strncmp(handle->name, "h;0;/job:", 9), 0);
  td_tensor_release(put.out[0]);
  td_tensor_release(value);
  td_session_state_destroy(step.session_state);
}

static void test_without_a_session(void **state) {
  td_tensor *handle = td_test_tensor(TD_STRING, "[1]", "h");
  td_step step = {.id = 1};
  td_op_run get = {.op = "GetSessionTensor", .attrs = "dtype: float", .in = &handle, .in_count = 1, .step = &step};
  td_assert_run_fails(&get, TD_FAILED_PRECONDITION, "GetSessionTensor called on null session state");
  step.session_state = td_session_state_create();
  td_assert_run_fails(&get, TD_INVALID_ARGUMENT, "handle must be a scalar, saw shape: [1]");
  td_session_state_destroy(step.session_state);
  td_tensor_release(handle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kept_found_deleted),
      cmocka_unit_test(test_resource_handle_names_the_tensor),
      cmocka_unit_test(test_without_a_session),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/testing.h"

static void release(td_tensor **in, int n) {
  for (int i = 0; i < n; i++) td_tensor_release(in[i]);
}

static void strings(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_INT64, "[3,2]", "0 0 0 1 2 0"), td_test_tensor(TD_STRING, "[3]", "a b c"),
                     td_test_tensor(TD_INT64, "[2]", "3 2"), td_test_tensor(TD_INT64, "[3,1]", "7 8 -9")};
  td_op_run run = {.op = "SparseCross",
                   .attrs =
                       "N: 1; hashed_output: false; num_buckets: 0; hash_key: 1; sparse_types: [string]; "
                       "dense_types: [int64]; out_type: string; internal_type: string",
                   .in = in,
                   .in_count = 4};
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_INT64, "[3,2]", "0 0 0 1 2 0", 0);
  td_assert_tensor(run.out[1], TD_STRING, "[3]", "a_X_7 b_X_7 c_X_-9", 0);
  td_assert_tensor(run.out[2], TD_INT64, "[2]", "3 2", 0);
  release(run.out, 3);
  td_tensor *bad[] = {td_test_tensor(TD_INT64, "[3,2]", "0 0 3 1 2 0"), in[1], in[2], in[3]};
  run.in = bad;
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Expected indices in order of rows below 3 at position 0");
  td_tensor_release(bad[0]);
  bad[0] = in[0];
  bad[3] = td_test_tensor(TD_INT64, "[2,1]", "7 8");
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Expected batch size 3 got 2");
  td_tensor_release(bad[3]);
  release(in, 4);
}

/* The value that TensorFlow's own test states. */
static void hashes(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_STRING, "[1,1]", "batch1-FC1-F1"),
                     td_test_tensor(TD_STRING, "[1,1]", "batch1-FC2-F1"),
                     td_test_tensor(TD_STRING, "[1,1]", "batch1-FC3-F1")};
  td_op_run run = {.op = "SparseCross",
                   .attrs =
                       "N: 0; hashed_output: true; num_buckets: 0; hash_key: 956888297470; sparse_types: []; "
                       "dense_types: [string, string, string]; out_type: int64; internal_type: string",
                   .in = in,
                   .in_count = 3};
  td_assert_runs(&run);
  td_assert_tensor(run.out[1], TD_INT64, "[1]", "1971693436396284976", 0);
  release(run.out, 3);
  release(in, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(strings), cmocka_unit_test(hashes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/testing.h"
#include "tensor/tensor_proto.h"

static void release(td_op_run *run) {
  for (int i = 0; i < run->out_count; i++) td_tensor_release(run->out[i]);
}

/* A tensor as a peer gets it. */
static td_tensor *sent(td_tensor *t) {
  td_strbuf bytes = {0};
  td_tensor *copy;
  assert_null(td_tensor_encode(t, &bytes));
  assert_null(td_tensor_decode(td_strbuf_view(&bytes), &copy));
  td_strbuf_deinit(&bytes);
  td_tensor_release(t);
  return copy;
}

static void batches_there_and_back(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_INT64, "[4,2]", "2 1 0 0 2 3 0 4"), td_test_tensor(TD_STRING, "[4]", "a b c d"),
                     td_test_tensor(TD_INT64, "[2]", "3 5")};
  for (int k = 0; k < 2; k++) {
    td_op_run many = {.op = "SerializeManySparse",
                      .attrs = k ? "T: string; out_type: variant" : "T: string; out_type: string",
                      .in = in,
                      .in_count = 3};
    td_assert_runs(&many);
    td_tensor *packed = sent(many.out[0]);
    td_op_run back = {.op = "DeserializeSparse",
                      .attrs = k ? "dtype: string; Tserialized: variant" : "dtype: string; Tserialized: string",
                      .in = &packed,
                      .in_count = 1};
    td_assert_runs(&back);
    td_assert_tensor(back.out[0], TD_INT64, "[4,2]", "0 0 0 4 2 1 2 3", 0);
    td_assert_tensor(back.out[1], TD_STRING, "[4]", "b d a c", 0);
    td_assert_tensor(back.out[2], TD_INT64, "[2]", "3 5", 0);
    release(&back);
    td_assert_run_fails(&(td_op_run){.op = "DeserializeSparse",
                                     .attrs = k ? "dtype: float; Tserialized: variant" : "dtype: float",
                                     .in = &packed,
                                     .in_count = 1},
                        TD_INVALID_ARGUMENT,
                        "Requested SparseTensor of type float but SparseTensor[0].values.dtype() == string");
    td_tensor_release(packed);
  }
  for (int i = 0; i < 3; i++) td_tensor_release(in[i]);
}

static void one_sparse_tensor(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_INT64, "[1,1]", "3"), td_test_tensor(TD_FLOAT, "[1]", "0.5"),
                     td_test_tensor(TD_INT64, "[1]", "9")};
  td_op_run run = {.op = "SerializeSparse", .attrs = "T: float; out_type: string", .in = in, .in_count = 3};
  td_assert_runs(&run);
  assert_int_equal(run.out[0]->count, 3);
  td_op_run back = {.op = "DeserializeSparse", .attrs = "dtype: float", .in = run.out, .in_count = 1};
  td_assert_runs(&back);
  td_assert_tensor(back.out[0], TD_INT64, "[1,1]", "3", 0);
  td_assert_tensor(back.out[1], TD_FLOAT, "[1]", "0.5", 0);
  td_assert_tensor(back.out[2], TD_INT64, "[1]", "9", 0);
  release(&back);
  release(&run);
  td_assert_run_fails(&(td_op_run){.op = "SerializeManySparse", .attrs = "T: float", .in = in, .in_count = 3},
                      TD_INVALID_ARGUMENT, "Rank of input SparseTensor should be > 1, but saw rank: 1");
  for (int i = 0; i < 3; i++) td_tensor_release(in[i]);
}

static void bad_messages(void **state) {
  td_tensor *bad = td_test_tensor(TD_STRING, "[1,3]", "x y z"), *narrow = td_test_tensor(TD_STRING, "[2]", "x y"),
            *none = td_test_tensor(TD_STRING, "[0,3]", "");
  td_op_run run = {.op = "DeserializeManySparse", .attrs = "dtype: float", .in = &bad, .in_count = 1};
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Could not parse serialized proto: serialized_sparse[0, 0]");
  run.in = &narrow;
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Serialized sparse should be a matrix but received shape [2]");
  run.op = "DeserializeSparse";
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Serialized sparse should have 3 as the last dimension");
  run.in = &none;
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, "Must have at least 1 serialized SparseTensor");
  td_tensor_release(bad);
  td_tensor_release(narrow);
  td_tensor_release(none);
}

static void reorder(void **state) {
  td_tensor *in[] = {td_test_tensor(TD_INT64, "[4,2]", "1 0 0 3 1 0 0 1"), td_test_tensor(TD_INT32, "[4]", "1 2 3 4"),
                     td_test_tensor(TD_INT64, "[2]", "2 5")};
  td_op_run run = {.op = "SparseReorder", .attrs = "T: int32", .in = in, .in_count = 3};
  td_assert_runs(&run);
  td_assert_tensor(run.out[0], TD_INT64, "[4,2]", "0 1 0 3 1 0 1 0", 0);
  td_assert_tensor(run.out[1], TD_INT32, "[4]", "4 2 1 3", 0);
  td_tensor *ordered[] = {run.out[0], run.out[1], in[2]};
  td_op_run again = {.op = "SparseReorder", .attrs = "T: int32", .in = ordered, .in_count = 3};
  td_assert_runs(&again);
  td_assert_tensor(again.out[1], TD_INT32, "[4]", "4 2 1 3", 0);
  release(&again);
  release(&run);
  for (int i = 0; i < 3; i++) td_tensor_release(in[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches_there_and_back),
      cmocka_unit_test(one_sparse_tensor),
      cmocka_unit_test(bad_messages),
      cmocka_unit_test(reorder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "base/mem.h"
#include "ops/families.h"
#include "ops/testing.h"

typedef struct inputs {
  td_tensor *t[5];
  int count;
} inputs;

static td_tensor *ints(const char *shape, const char *values) { return td_test_tensor(TD_INT64, shape, values); }

static void drop(inputs *in) {
  for (int i = 0; i < in->count; i++) td_tensor_release(in->t[i]);
}

static td_op_run run(const char *op, const char *attrs, inputs in) {
  td_op_run r = {.op = op, .attrs = attrs, .in = in.t, .in_count = in.count};
  td_assert_runs(&r);
  drop(&in);
  return r;
}

static void fails(const char *op, const char *attrs, inputs in, const char *text) {
  td_op_run r = {.op = op, .attrs = attrs, .in = in.t, .in_count = in.count};
  td_assert_run_fails(&r, TD_INVALID_ARGUMENT, text);
  drop(&in);
}

static void is(td_op_run *r, int i, td_dtype t, const char *shape, const char *values) {
  td_assert_tensor(r->out[i], t, shape, values, 0);
  td_tensor_release(r->out[i]);
}

#define RESHAPE(indices_shape, indices, shape_shape, shape, target_shape, target) \
  ((inputs){{ints(indices_shape, indices), ints(shape_shape, shape), ints(target_shape, target)}, 3})

static void test_reshape(void **state) {
  td_op_run r = run("SparseReshape", "", RESHAPE("[3,2]", "0 0 0 3 1 2", "[2]", "2 4", "[3]", "2 -1 2"));
  is(&r, 0, TD_INT64, "[3,3]", "0 0 0 0 1 1 1 1 0");
  is(&r, 1, TD_INT64, "[3]", "2 2 2");
  r = run("SparseReshape", "", RESHAPE("[0,1]", "", "[1]", "0", "[2]", "0 5"));
  is(&r, 0, TD_INT64, "[0,2]", "");
  is(&r, 1, TD_INT64, "[2]", "0 5");
  fails("SparseReshape", "", RESHAPE("[1,1]", "0", "[1]", "6", "[2]", "-1 -1"), "only one output dimension may be -1");
  fails("SparseReshape", "", RESHAPE("[1,1]", "0", "[1]", "6", "[2]", "-1 4"), "requires a multiple of 4");
  fails("SparseReshape", "", RESHAPE("[1,1]", "0", "[1]", "6", "[1]", "5"),
        "Input to reshape is a tensor with 6 dense values, but the requested shape has 5");
  fails("SparseReshape", "", RESHAPE("[1,1]", "0", "[1]", "6", "[1]", "-2"), "must be non-negative");
  fails("SparseReshape", "", RESHAPE("[0,1]", "", "[1]", "0", "[2]", "-1 0"), "cannot infer the missing input size");
  fails("SparseReshape", "", RESHAPE("[1,1]", "6", "[1]", "6", "[1]", "6"), "input_indices[0,0] is 6");
  fails("SparseReshape", "", RESHAPE("[1,1]", "0", "[2]", "2 3", "[1]", "6"), "must match input shape length");
  fails("SparseReshape", "", RESHAPE("[1]", "0", "[1]", "6", "[1]", "6"), "should be a matrix");
  fails("SparseReshape", "", RESHAPE("[1,2]", "0 0", "[2]", "4611686018427387904 4", "[1]", "6"),
        "no shape of a tensor");
}

#define FILL(n, indices, rows, cols)                                                                                \
  ((inputs){{ints("[" n ",2]", indices), td_test_tensor(TD_STRING, "[" n "]", "a b c"), ints("[2]", rows " " cols), \
             td_test_tensor(TD_STRING, "[]", "none")},                                                              \
            4})

static void test_fill_empty_rows(void **state) {
  td_op_run r = run("SparseFillEmptyRows", "T: string", FILL("3", "3 1 0 2 3 0", "5", "4"));
  is(&r, 0, TD_INT64, "[6,2]", "0 2 1 0 2 0 3 1 3 0 4 0");
  is(&r, 1, TD_STRING, "[6]", "b none none a c none");
  is(&r, 2, TD_BOOL, "[5]", "0 1 1 0 1");
  is(&r, 3, TD_INT64, "[3]", "3 0 4");
  fails("SparseFillEmptyRows", "T: string", FILL("3", "3 1 0 2 5 0", "5", "4"), "indices(2, 0) is invalid: 5");
  fails("SparseFillEmptyRows", "T: string", FILL("3", "3 1 0 2 -1 0", "5", "4"), "indices(2, 0) is invalid: -1");
  fails("SparseFillEmptyRows", "T: string", FILL("3", "0 0 0 0 0 0", "0", "4"), "dense_shape[0] = 0");
}

static void test_gradient(void **state) {
  inputs in = {{ints("[3]", "3 0 4"), td_test_tensor(TD_FLOAT, "[6]", "1 2 4 8 16 32")}, 2};
  td_op_run r = run("SparseFillEmptyRowsGrad", "T: float", in);
  is(&r, 0, TD_FLOAT, "[3]", "8 1 16");
  is(&r, 1, TD_FLOAT, "[]", "38");
  in = (inputs){{ints("[1]", "6"), td_test_tensor(TD_FLOAT, "[6]", "1")}, 2};
  fails("SparseFillEmptyRowsGrad", "T: float", in, "must be in [0, 6) but got 6");
}

static void test_bucketize(void **state) {
  inputs in = {{td_test_tensor(TD_FLOAT, "[2,3]", "-5 0 1.5 10 99.5 nan")}, 1};
  td_op_run r = run("Bucketize", "T: float; boundaries: [0.0, 10.0, 100.0]", in);
  is(&r, 0, TD_INT32, "[2,3]", "0 1 1 2 2 3");
  in = (inputs){{td_test_tensor(TD_INT64, "[2]", "-1 7")}, 1};
  r = run("Bucketize", "T: int64; boundaries: []", in);
  is(&r, 0, TD_INT32, "[2]", "0 0");
  in = (inputs){{td_test_tensor(TD_INT64, "[1]", "7")}, 1};
  fails("Bucketize", "T: int64; boundaries: [1.0, 0.0]", in, "Expected sorted boundaries");
}

int main(void) {
  if (td_ops_register()) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reshape),
      cmocka_unit_test(test_fill_empty_rows),
      cmocka_unit_test(test_gradient),
      cmocka_unit_test(test_bucketize),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

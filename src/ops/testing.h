/* For the unit tests of op families: runs one node. Not part of the server. */
#ifndef TD_OPS_TESTING_H_
#define TD_OPS_TESTING_H_

#include "framework/kernel.h"

/* Builds one node and runs it. `attrs` is text: "T: float; axis: 1; padding: 'SAME'; Tidx: int32; N: 2; b: true;
 * strides: [1, 2]; types: [float, int32]; shape: {2,?}" - each value by the kind in the op's definition; defaults are
 * added. `in`: one tensor per input (borrowed). `out`: up to `out_capacity` results (one reference each; NULL for a
 * dead or ref output); *out_count how many. Asynchronous kernels are waited for. */
typedef struct td_op_run {
  const char *op, *attrs, *name; /* name NULL: "node" */
  td_tensor **in;
  int in_count;
  td_variable **refs;             /* ref inputs, by input index; NULL: none */
  bool is_ref;                    /* value inputs are fed by refs, too, and stay variables (TD_KERNEL_TAKES_REF) */
  td_device *device;              /* NULL: one of its own for this run */
  td_step *step;                  /* NULL: a plain one, without rendezvous */
  td_function_runtime *functions; /* NULL: none */
  td_kernel **kernel;             /* not NULL: where a kernel is kept between runs (created when *kernel is NULL) */
  td_tensor *out[64];
  td_variable *out_refs[8];
  int out_count;
} td_op_run;
td_status td_op_test_run(td_op_run *run) TD_MUST_USE;
/* Asserts that it succeeds. */
void td_assert_runs(td_op_run *run);
/* Asserts that it fails with `code` and a message containing `text`. */
void td_assert_run_fails(td_op_run *run, td_code code, const char *text);
/* A device /job:test/replica:0/task:0/device:CPU:0 with resources of its own; one reference. */
td_device *td_test_device(void);

/* Tensors from literals: td_test_tensor(TD_FLOAT, "[2,2]", "1 2 3 nan"); strings are separated by blanks. */
td_tensor *td_test_tensor(td_dtype dtype, const char *shape, const char *values);
/* Asserts (cmocka) dtype, shape and values, floating types within `tolerance` relative to max(1, |expected|). */
void td_assert_tensor(const td_tensor *t, td_dtype dtype, const char *shape, const char *values, double tolerance);

#endif /* TD_OPS_TESTING_H_ */

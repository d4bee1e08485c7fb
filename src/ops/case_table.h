/* For unit tests: tables of cases that TensorFlow answered (…_cases.inc, written by tests/ops/cases.py). Each case is a
 * test of its own. Not part of the server. */
#ifndef TD_OPS_CASE_TABLE_H_
#define TD_OPS_CASE_TABLE_H_

#include "ops/testing.h"

typedef struct td_case_value {
  const char *dtype, *shape, *text; /* as td_test_tensor() reads them */
} td_case_value;

typedef struct td_case {
  const char *op, *attrs;
  td_code code;        /* not TD_OK: the run fails so, */
  const char *message; /* with a message that contains this */
  td_case_value in[16];
  int in_count;
  td_case_value out[8];
  int out_count;
} td_case;

/* Runs each case, and `others`, as tests of one cmocka group; its result. Each case runs with inputs that stay as they
 * were, then with inputs that nobody else holds, which the kernel may overwrite and forward. */
struct CMUnitTest;
int td_case_table_run(const td_case *cases, size_t count, const struct CMUnitTest *others, size_t other_count);

td_tensor *td_case_tensor(const td_case_value *v);

/* For hostile variations of cases: whatever happens, nothing may break (the sanitizers watch). */
uint64_t td_case_random(uint64_t *seed); /* 31 bits */
/* A copy of `v` with some elements, which put_random() sets, or its shape changed. */
td_tensor *td_case_mutated(const td_case_value *v, void (*put_random)(td_tensor *t, int64_t i, uint64_t *seed),
                           uint64_t *seed);
/* Runs the case's op on other attributes and inputs, and releases them. */
void td_case_try(const td_case *c, const char *attrs, td_tensor **in);

#endif /* TD_OPS_CASE_TABLE_H_ */

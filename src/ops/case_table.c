#include "ops/case_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"

td_tensor *td_case_tensor(const td_case_value *v) {
  return td_test_tensor(td_dtype_parse(td_str_of(v->dtype)), v->shape, v->text);
}

static double tolerance_of(td_dtype t) {
  switch ((int)t) {
    case TD_HALF:
      return 2e-3;
    case TD_BFLOAT16:
      return 1.6e-2;
    case TD_DOUBLE:
    case TD_COMPLEX128:
      return 1e-10;
    default:
      return 4e-6;
  }
}

static void check(const td_tensor *t, const td_case_value *v) {
  td_dtype dtype = td_dtype_parse(td_str_of(v->dtype));
  td_assert_tensor(t, dtype, v->shape, v->text, tolerance_of(dtype));
}

static void run_exclusive(const td_case *c, td_kernel *k) {
  td_value in[TD_COUNT(c->in)] = {0}, out[TD_COUNT(c->out)] = {0};
  td_step step = {.id = 1};
  td_kernel_ctx ctx = {.kernel = k, .state = k->state, .step = &step, .in = in, .out = out};
  if (!k->compute || k->output_count > (int)TD_COUNT(out)) return;
  for (int i = 0; i < c->in_count; i++) in[i].tensor = td_case_tensor(&c->in[i]);
  td_status s = k->compute(&ctx);
  if (s) fail_msg("%s: %s", c->op, td_status_message(s));
  for (int i = 0; i < c->in_count; i++) td_tensor_release(in[i].tensor);
  for (int i = 0; i < c->out_count; i++) check(out[i].tensor, &c->out[i]);
  for (int i = 0; i < k->output_count; i++) td_tensor_release(out[i].tensor);
}

static void test_case(void **state) {
  const td_case *c = *state;
  td_tensor *in[TD_COUNT(c->in)];
  td_kernel *kernel = NULL;
  td_op_run run = {.op = c->op, .attrs = c->attrs, .in = in, .in_count = c->in_count, .kernel = &kernel};
  for (int i = 0; i < c->in_count; i++) in[i] = td_case_tensor(&c->in[i]);
  if (c->code) {
    td_assert_run_fails(&run, c->code, c->message);
  } else {
    td_assert_runs(&run);
    for (int i = 0; i < c->out_count; i++) check(run.out[i], &c->out[i]);
    for (int i = 0; i < c->in_count; i++) check(in[i], &c->in[i]);
    for (int i = 0; i < run.out_count; i++) td_tensor_release(run.out[i]);
    run_exclusive(c, kernel);
  }
  td_kernel_release(kernel);
  for (int i = 0; i < c->in_count; i++) td_tensor_release(in[i]);
}

int td_case_table_run(const td_case *cases, size_t count, const struct CMUnitTest *others, size_t other_count) {
  struct CMUnitTest *tests = td_new_array(struct CMUnitTest, count + other_count);
  for (size_t i = 0; i < count; i++)
    tests[i] = (struct CMUnitTest){.name = td_asprintf("%zu %s %s", i, cases[i].op, cases[i].attrs),
                                   .test_func = test_case,
                                   .initial_state = (void *)(uintptr_t)&cases[i]};
  memcpy(tests + count, others, other_count * sizeof *others);
  int failed = _cmocka_run_group_tests("cases", tests, count + other_count, NULL, NULL);
  for (size_t i = 0; i < count; i++) td_free((void *)(uintptr_t)tests[i].name);
  td_free(tests);
  return failed;
}

/* ---- hostile variations ---- */

uint64_t td_case_random(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 33;
}

td_tensor *td_case_mutated(const td_case_value *v, void (*put_random)(td_tensor *t, int64_t i, uint64_t *seed),
                           uint64_t *seed) {
  td_tensor *t = td_case_tensor(v);
  uint64_t what = td_case_random(seed) % 4;
  if (what == 0) {
    int64_t dims[5];
    int rank = (int)(td_case_random(seed) % TD_COUNT(dims));
    for (int d = 0; d < rank; d++) dims[d] = (int64_t)(td_case_random(seed) % 5);
    td_dtype dtype = (td_dtype)t->dtype;
    td_tensor_release(t);
    assert_null(td_tensor_create_dims(dtype, rank, dims, &t));
    for (int64_t i = 0; i < t->count; i++) put_random(t, i, seed);
  } else if (what < 3 && t->count) {
    for (uint64_t n = td_case_random(seed) % 3; n < 3; n++)
      put_random(t, (int64_t)(td_case_random(seed) % (uint64_t)t->count), seed);
  }
  return t;
}

void td_case_try(const td_case *c, const char *attrs, td_tensor **in) {
  td_op_run run = {.op = c->op, .attrs = attrs, .in = in, .in_count = c->in_count};
  td_status s = td_op_test_run(&run);
  for (int i = 0; !s && i < run.out_count; i++) td_tensor_release(run.out[i]);
  td_status_free(s);
  for (int i = 0; i < c->in_count; i++) td_tensor_release(in[i]);
}

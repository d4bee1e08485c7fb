#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "base/mem.h"
#include "framework/cancellation.h"
#include "runtime/function_runtime.h"
#include "runtime/testing/graphs.h"

static const char library_text[] =
    "func twice(x:int32) -> (y:int32)\n"
    "  sum = TestAdd(x, x)\n"
    "  unused = TestFail(x)\n"
    "  ret y = sum:z:0\n"
    "end\n"
    "func four_times(x:int32) -> (y:int32, z:int32)\n"
    "  a = twice(x)\n"
    "  b = PartitionedCall(a:y:0) Tin:int32 Tout:int32 f:twice\n"
    "  ret y = b:output:0\n"
    "  ret z = x\n"
    "end\n"
    "func same(x:T) -> (y:T) attr:T\n"
    "  i = Identity(x) T:$T\n"
    "  ret y = i:output:0\n"
    "end\n"
    "func bad(x:int32) -> (y:int32)\n"
    "  f = TestFail(x) message:oops\n"
    "  ret y = f:y:0\n"
    "end\n"
    "func effects(x:int32) -> (y:int32)\n"
    "  f = TestFail(x) message:control\n"
    "  control f\n"
    "  ret y = x\n"
    "end\n"
    "func less(i:int32, n:int32) -> (c:bool)\n"
    "  l = TestLess(i, n)\n"
    "  ret c = l:z:0\n"
    "end\n"
    "func more(i:int32, n:int32) -> (i2:int32, n2:int32)\n"
    "  one = Const() value:1 dtype:int32\n"
    "  a = TestAdd(i, one:output:0)\n"
    "  ret i2 = a:z:0\n"
    "  ret n2 = n\n"
    "end\n"
    "func always(i:int32) -> (c:bool)\n"
    "  l = Const() value:true dtype:bool\n"
    "  ret c = l:output:0\n"
    "end\n"
    "func keep(i:int32) -> (i2:int32)\n"
    "  ret i2 = i\n"
    "end\n"
    /* counts down to 0, one call inside another */
    "func down(n:int32) -> (r:int32)\n"
    "  zero = Const() value:0 dtype:int32\n"
    "  l = TestLess(zero:output:0, n)\n"
    "  i = If(l:z:0, n) Tcond:bool Tin:int32 Tout:int32 then_branch:step_down else_branch:keep\n"
    "  ret r = i:output:0\n"
    "end\n"
    "func step_down(n:int32) -> (r:int32)\n"
    "  minus = Const() value:-1 dtype:int32\n"
    "  a = TestAdd(n, minus:output:0)\n"
    "  d = down(a:z:0)\n"
    "  ret r = d:r:0\n"
    "end\n"
    "func for_ever(n:int32) -> (r:int32)\n"
    "  d = for_ever(n)\n"
    "  ret r = d:r:0\n"
    "end\n"
    "func count(x:int32) -> (r:int32)\n"
    "  c = TestCount()\n"
    "  ret r = c:y:0\n"
    "end\n"
    "func broken(x:int32) -> (r:int32)\n"
    "  c = Identity(nothing) T:int32\n"
    "  ret r = c:output:0\n"
    "end\n";

typedef struct fixture {
  test_env env;
  td_library *library;
  td_function_runtime *functions;
} fixture;

static void init(fixture *f, int threads) {
  test_env_init(&f->env, threads);
  f->library = test_library(library_text);
  f->functions = td_function_runtime_create(f->library, TD_STR("session"), NULL);
  f->env.step.functions = f->functions;
}

static void deinit(fixture *f) {
  test_env_deinit(&f->env); /* first its threads */
  td_function_runtime_destroy(f->functions);
  td_library_release(f->library);
}

static void expect(const char *text, int count, const int32_t *values) {
  for (int threads = 0; threads < 3; threads += 2) {
    fixture f;
    init(&f, threads);
    td_program *p = test_program_with(&f.env, f.library, text, NULL);
    for (int round = 0; round < 2; round++) {
      test_result r;
      test_fresh_step(&f.env);
      test_run(&f.env, p, NULL, 0, &r);
      if (r.status) fail_msg("%s", td_status_message(r.status));
      assert_int_equal(r.count, count);
      for (int i = 0; i < count; i++) assert_int_equal(*TD_DATA(r.values[i], int32_t), values[i]);
      test_result_deinit(&r);
    }
    td_program_release(p);
    deinit(&f);
  }
}

static void expect_error(const char *text, td_code code, const char *message) {
  for (int threads = 0; threads < 3; threads += 2) {
    fixture f;
    init(&f, threads);
    td_program *p = test_program_with(&f.env, f.library, text, NULL);
    test_result r;
    test_run(&f.env, p, NULL, 0, &r);
    assert_int_equal(td_status_code(r.status), code);
    if (!strstr(td_status_message(r.status), message)) fail_msg("%s", td_status_message(r.status));
    test_result_deinit(&r);
    td_program_release(p);
    deinit(&f);
  }
}

#define VALUES(...) \
  (int32_t[]) { __VA_ARGS__ }

static void calls(void **state) {
  expect(
      "a = Const() value:3 dtype:int32\n"
      "c = four_times(a)\n"
      "d = StatefulPartitionedCall(c) Tin:int32 Tout:int32 f:twice\n"
      "e = same(d) T:int32\n"
      "r0 = _Retval(e) T:int32 index:0\n"
      "r1 = _Retval(c:1) T:int32 index:1\n",
      2, VALUES(24, 3));
}

static void branches(void **state) {
  expect(
      "a = Const() value:3 dtype:int32\n"
      "t = Const() value:true dtype:bool\n"
      "n = Const() value:0 dtype:int32\n"
      "x = If(t, a) Tcond:bool Tin:int32 Tout:int32 then_branch:twice else_branch:bad\n"
      "y = StatelessIf(n, a) Tcond:int32 Tin:int32 Tout:int32 then_branch:bad else_branch:keep\n"
      "z = Case(a, a) Tin:int32 Tout:int32 branches:bad+bad+twice\n"
      "r0 = _Retval(x) T:int32 index:0\n"
      "r1 = _Retval(y) T:int32 index:1\n"
      "r2 = _Retval(z) T:int32 index:2\n",
      3, VALUES(6, 3, 6));
}

static void loops(void **state) {
  expect(
      "a = Const() value:0 dtype:int32\n"
      "n = Const() value:2000 dtype:int32\n"
      "w = While(a, n) T:int32+int32 cond:less body:more\n"
      "r0 = _Retval(w) T:int32 index:0\n",
      1, VALUES(2000));
}

static void recursion(void **state) {
  expect("a = Const() value:3000 dtype:int32\nd = down(a)\nr0 = _Retval(d) T:int32 index:0\n", 1, VALUES(0));
  expect_error("a = Const() value:3 dtype:int32\nd = for_ever(a)\n", TD_RESOURCE_EXHAUSTED,
               "function calls are in progress at once, in function for_ever");
}

static void errors(void **state) {
  expect_error("a = Const() value:3 dtype:int32\nb = bad(a)\n", TD_OUT_OF_RANGE,
               "oops\n\t [[{{function_node bad}}{{node f}}]]\n\t [[b]]");
  expect_error("a = Const() value:3 dtype:int32\nb = effects(a)\n", TD_OUT_OF_RANGE, "control");
  fixture f;
  init(&f, 0);
  td_status s;
  test_program_with(&f.env, f.library, "a = Const() value:3 dtype:int32\nb = broken(a)\n", &s);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  assert_non_null(strstr(td_status_message(s), "nothing is not found"));
  td_status_free(s);
  test_program_with(&f.env, f.library, "a = PartitionedCall() f:nobody Tout:int32 Tin:\n", &s);
  assert_int_equal(td_status_code(s), TD_NOT_FOUND);
  td_status_free(s);
  deinit(&f);
}

static void state_is_kept_between_calls(void **state) {
  fixture f;
  init(&f, 0);
  const char *text = "a = Const() value:3 dtype:int32\nb = count(a)\nr0 = _Retval(b) T:int32 index:0\n";
  for (int i = 1; i <= 2; i++) {
    td_program *p = test_program_with(&f.env, f.library, text, NULL);
    test_result r;
    test_run(&f.env, p, NULL, 0, &r);
    assert_int_equal(*TD_DATA(r.values[0], int32_t), i);
    test_result_deinit(&r);
    td_program_release(p);
  }
  deinit(&f);
}

static void *cancel_later(void *arg) {
  usleep(20000);
  td_cancellation_cancel(arg);
  return NULL;
}

static void endless_while(void **state) {
  for (int threads = 0; threads < 3; threads += 2) {
    fixture f;
    init(&f, threads);
    td_program *p = test_program_with(
        &f.env, f.library, "a = Const() value:0 dtype:int32\nw = While(a) T:int32 cond:always body:keep\n", NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, cancel_later, f.env.cancellation);
    test_result r;
    test_run(&f.env, p, NULL, 0, &r);
    assert_int_equal(td_status_code(r.status), TD_CANCELLED);
    pthread_join(thread, NULL);
    test_result_deinit(&r);
    td_program_release(p);
    deinit(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls),         cmocka_unit_test(branches), cmocka_unit_test(loops),
      cmocka_unit_test(recursion),     cmocka_unit_test(errors),   cmocka_unit_test(state_is_kept_between_calls),
      cmocka_unit_test(endless_while),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

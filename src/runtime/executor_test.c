#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/turn.h"
#include "framework/cancellation.h"
#include "runtime/testing/graphs.h"

/* A loop: i from 0 while i < limit, sum += i. Results: i, sum. */
#define LOOP(limit, parallel)                                                                 \
  "zero = Const() value:0 dtype:int32\n"                                                      \
  "bound = Const() value:" limit                                                              \
  " dtype:int32\n"                                                                            \
  "one = Const() value:1 dtype:int32\n"                                                       \
  "e_i = Enter(zero) T:int32 frame_name:loop parallel_iterations:" parallel                   \
  "\n"                                                                                        \
  "e_s = Enter(zero) T:int32 frame_name:loop parallel_iterations:" parallel                   \
  "\n"                                                                                        \
  "e_b = Enter(bound) T:int32 frame_name:loop is_constant:true parallel_iterations:" parallel \
  "\n"                                                                                        \
  "e_1 = Enter(one) T:int32 frame_name:loop is_constant:true parallel_iterations:" parallel   \
  "\n"                                                                                        \
  "m_i = Merge(e_i, n_i) T:int32 N:2\n"                                                       \
  "m_s = Merge(e_s, n_s) T:int32 N:2\n"                                                       \
  "less = TestLess(m_i, e_b)\n"                                                               \
  "cond = LoopCond(less)\n"                                                                   \
  "s_i = Switch(m_i, cond) T:int32\n"                                                         \
  "s_s = Switch(m_s, cond) T:int32\n"                                                         \
  "add = TestAdd(s_i:1, e_1)\n"                                                               \
  "acc = TestAdd(s_s:1, s_i:1)\n"                                                             \
  "n_i = NextIteration(add) T:int32\n"                                                        \
  "n_s = NextIteration(acc) T:int32\n"                                                        \
  "x_i = Exit(s_i) T:int32\n"                                                                 \
  "x_s = Exit(s_s) T:int32\n"

/* The same through a kernel that is asynchronous, but done at once. */
#define ENDLESS_NOW                        \
  "a = Const() value:0 dtype:int32\n"      \
  "e = Enter(a) T:int32 frame_name:ever\n" \
  "m = Merge(e, n) T:int32 N:2\n"          \
  "i = TestNow(m)\n"                       \
  "n = NextIteration(i) T:int32\n"

#define ENDLESS                           \
  "t = Const() value:true dtype:bool\n"   \
  "e = Enter(t) T:bool frame_name:ever\n" \
  "m = Merge(e, n) T:bool N:2\n"          \
  "c = LoopCond(m)\n"                     \
  "s = Switch(m, c) T:bool\n"             \
  "i = Identity(s:1) T:bool\n"            \
  "n = NextIteration(i) T:bool\n"         \
  "x = Exit(s) T:bool\n"

static test_env plain, pooled;
static test_env *const envs[] = {&plain, &pooled};

static int set_up(void **state) {
  test_env_init(&plain, 0);
  test_env_init(&pooled, 3);
  return 0;
}

static int tear_down(void **state) {
  test_env_deinit(&plain);
  test_env_deinit(&pooled);
  return 0;
}

static void expect(const char *text, int count, const int32_t *values) {
  for (size_t i = 0; i < TD_COUNT(envs); i++) test_expect(envs[i], text, count, values);
}

static void expect_error(const char *text, td_code code, const char *message) {
  for (size_t i = 0; i < TD_COUNT(envs); i++) test_expect_error(envs[i], text, code, message);
}

#define VALUES(...) \
  (int32_t[]) { __VA_ARGS__ }

static void dataflow(void **state) {
  expect(
      "a = Const() value:2 dtype:int32\n"
      "b = Const() value:3 dtype:int32\n"
      "c = TestAdd(a, b)\n"
      "d = TestAdd(c, c)\n"
      "n = NoOp(^d)\n"
      "i = Identity(d, ^n) T:int32\n"
      "unused = TestAdd(i, i)\n"
      "r0 = _Retval(i) T:int32 index:0\n"
      "r1 = _Retval(c) T:int32 index:1\n",
      2, VALUES(10, 5));
  expect("", 0, NULL);
}

static void arguments(void **state) {
  td_program *p = test_program(&pooled,
                               "a = _Arg() T:int32 index:0\n"
                               "b = _Arg() T:int32 index:1\n"
                               "c = TestAdd(a, b)\n"
                               "r = _Retval(c) T:int32 index:0\n");
  assert_int_equal(td_program_arg_count(p), 2);
  assert_int_equal(td_program_result_count(p), 1);
  td_tensor *args[2] = {test_int(4), test_int(5)};
  test_result r;
  test_run(&pooled, p, args, 2, &r);
  assert_null(r.status);
  assert_int_equal(*TD_DATA(r.values[0], int32_t), 9);
  test_result_deinit(&r);
  test_fresh_step(&pooled);
  test_run(&pooled, p, args, 1, &r);
  assert_int_equal(td_status_code(r.status), TD_INVALID_ARGUMENT);
  assert_null(r.values[0]);
  test_result_deinit(&r);
  test_fresh_step(&pooled);
  td_tensor_release(args[0]);
  td_tensor_release(args[1]);
  td_program_release(p);
}

#define COND(value)                   \
  "p = Const() value:" value          \
  " dtype:bool\n"                     \
  "a = Const() value:7 dtype:int32\n" \
  "s = Switch(a, p) T:int32\n"        \
  "f = TestAdd(s, s)\n"               \
  "t = Identity(s:1) T:int32\n"       \
  "tt = Identity(t) T:int32\n"        \
  "m = Merge(f, tt) T:int32 N:2\n"    \
  "r0 = _Retval(m) T:int32 index:0\n" \
  "r1 = _Retval(m:1) T:int32 index:1\n"

static void conditional(void **state) {
  expect(COND("true"), 2, VALUES(7, 1));
  expect(COND("false"), 2, VALUES(14, 0));
}

static void dead_ends(void **state) {
  /* what hangs on the dead side does not run, over data and control edges; a ControlTrigger does */
  expect(
      "p = Const() value:true dtype:bool\n"
      "a = Const() value:7 dtype:int32\n"
      "s = Switch(a, p) T:int32\n"
      "dead = Identity(s) T:int32\n"
      "f1 = TestFail(dead)\n"
      "f2 = TestFail(a, ^dead)\n"
      "trigger = ControlTrigger(^dead, ^f2)\n"
      "r = Identity(a, ^trigger) T:int32\n"
      "ret = _Retval(r) T:int32 index:0\n",
      1, VALUES(7));
  /* both sides dead: the Merge too, and a result that nothing reaches is an error */
  expect_error(
      "p = Const() value:true dtype:bool\n"
      "a = Const() value:7 dtype:int32\n"
      "s = Switch(a, p) T:int32\n"
      "x = Identity(s) T:int32\n"
      "y = Identity(s) T:int32\n"
      "m = Merge(x, y) T:int32 N:2\n"
      "ret = _Retval(m) T:int32 index:0\n",
      TD_INTERNAL, "Retval[0] does not have value");
}

static void merge_takes_the_first(void **state) {
  /* the second live input is dropped; a control edge holds the Merge back */
  expect(
      "a = Const() value:1 dtype:int32\n"
      "b = TestAsync(a)\n"
      "n = NoOp(^b)\n"
      "m = Merge(a, b, ^n) T:int32 N:2\n"
      "r = _Retval(m:1) T:int32 index:0\n",
      1, VALUES(0));
}

static void loops(void **state) {
#define RESULTS "r0 = _Retval(x_i) T:int32 index:0\nr1 = _Retval(x_s) T:int32 index:1\n"
  expect(LOOP("0", "10") RESULTS, 2, VALUES(0, 0));
  expect(LOOP("1", "10") RESULTS, 2, VALUES(1, 0));
  expect(LOOP("1000", "10") RESULTS, 2, VALUES(1000, 499500));
  expect(LOOP("1000", "1") RESULTS, 2, VALUES(1000, 499500));
  expect(LOOP("100", "2") RESULTS, 2, VALUES(100, 4950));
}

/* outer: i < 4; inner: j < i, count += 1; so count = 0 + 1 + 2 + 3 */
#define NESTED(slow_op)                                                                  \
  "zero = Const() value:0 dtype:int32\n"                                                 \
  "one = Const() value:1 dtype:int32\n"                                                  \
  "four = Const() value:4 dtype:int32\n"                                                 \
  "e_i = Enter(zero) T:int32 frame_name:outer\n"                                         \
  "e_c = Enter(zero) T:int32 frame_name:outer\n"                                         \
  "e_0 = Enter(zero) T:int32 frame_name:outer is_constant:true\n"                        \
  "e_1 = Enter(one) T:int32 frame_name:outer is_constant:true\n"                         \
  "e_4 = Enter(four) T:int32 frame_name:outer is_constant:true\n"                        \
  "m_i = Merge(e_i, n_i) T:int32 N:2\n"                                                  \
  "m_c = Merge(e_c, n_c) T:int32 N:2\n"                                                  \
  "less = TestLess(m_i, e_4)\n"                                                          \
  "cond = LoopCond(less)\n"                                                              \
  "s_i = Switch(m_i, cond) T:int32\n"                                                    \
  "s_c = Switch(m_c, cond) T:int32\n"                                                    \
  "j_0 = Identity(e_0, ^s_i) T:int32\n"                                                  \
  "f_j = Enter(j_0) T:int32 frame_name:inner parallel_iterations:3\n"                    \
  "f_c = Enter(s_c:1) T:int32 frame_name:inner parallel_iterations:3\n"                  \
  "f_i = Enter(s_i:1) T:int32 frame_name:inner is_constant:true parallel_iterations:3\n" \
  "f_1 = Enter(e_1) T:int32 frame_name:inner is_constant:true parallel_iterations:3\n"   \
  "mm_j = Merge(f_j, nn_j) T:int32 N:2\n"                                                \
  "mm_c = Merge(f_c, nn_c) T:int32 N:2\n"                                                \
  "lless = TestLess(mm_j, f_i)\n"                                                        \
  "ccond = LoopCond(lless)\n"                                                            \
  "ss_j = Switch(mm_j, ccond) T:int32\n"                                                 \
  "ss_c = Switch(mm_c, ccond) T:int32\n"                                                 \
  "jj = TestAdd(ss_j:1, f_1)\n"                                                          \
  "cc = TestAdd(ss_c:1, f_1)\n"                                                          \
  "slow = " slow_op                                                                      \
  "\n"                                                                                   \
  "nn_j = NextIteration(jj) T:int32\n"                                                   \
  "nn_c = NextIteration(slow) T:int32\n"                                                 \
  "xx_c = Exit(ss_c) T:int32\n"                                                          \
  "ii = TestAdd(s_i:1, e_1)\n"                                                           \
  "n_i = NextIteration(ii) T:int32\n"                                                    \
  "n_c = NextIteration(xx_c) T:int32\n"                                                  \
  "x_c = Exit(s_c) T:int32\n"                                                            \
  "r = _Retval(x_c) T:int32 index:0\n"

static void nested_loops(void **state) {
  expect(NESTED("Identity(cc) T:int32"), 1, VALUES(6));
  expect(NESTED("TestAsync(cc)"), 1, VALUES(6));
  expect(NESTED("TestNow(cc)"), 1, VALUES(6));
}

static void loop_in_dead_branch(void **state) {
  /* the loop is never entered: its exits are dead, the Merge takes the other branch */
  expect(
      "p = Const() value:false dtype:bool\n"
      "z = Const() value:0 dtype:int32\n"
      "sw = Switch(z, p) T:int32\n"
      "b = Const() value:5 dtype:int32\n"
      "e = Enter(sw:1) T:int32 frame_name:loop\n"
      "e_b = Enter(b) T:int32 frame_name:loop is_constant:true\n"
      "m = Merge(e, n) T:int32 N:2\n"
      "less = TestLess(m, e_b)\n"
      "c = LoopCond(less)\n"
      "s = Switch(m, c) T:int32\n"
      "add = TestAdd(s:1, e_b)\n"
      "n = NextIteration(add) T:int32\n"
      "x = Exit(s) T:int32\n"
      "out = Merge(x, sw) T:int32 N:2\n"
      "r0 = _Retval(out) T:int32 index:0\n"
      "r1 = _Retval(out:1) T:int32 index:1\n",
      2, VALUES(0, 1));
}

static void async_kernels(void **state) {
  expect(
      "a = Const() value:2 dtype:int32\n"
      "b = TestAsync(a)\n"
      "c = TestAsync(a)\n"
      "d = TestNow(b)\n"
      "e = TestAdd(c, d)\n"
      "f = TestAsync(e)\n"
      "r = _Retval(f) T:int32 index:0\n",
      1, VALUES(4));
}

static void errors(void **state) {
  expect_error(
      "a = Const() value:2 dtype:int32\n"
      "bad = TestFail(a) message:oops\n"
      "r = _Retval(bad) T:int32 index:0\n",
      TD_OUT_OF_RANGE, "oops\n\t [[{{node bad}}]]");
  expect_error("w = TestWrongType()\n", TD_INTERNAL,
               "Output 0 of type float does not match declared output type int32 for node {{node w}}");
  expect_error("w = TestMissing()\n", TD_INTERNAL, "Missing 0-th output from {{node w}}");
  /* a root error wins over what its cancellation makes of others; nothing is left behind */
  expect_error(
      "a = Const() value:2 dtype:int32\n"
      "b = TestAsync(a)\n"
      "blocked = TestBlock()\n"
      "bad = TestFail(b) message:oops\n"
      "r = TestAdd(bad, blocked)\n",
      TD_OUT_OF_RANGE, "oops");
  expect_error(LOOP("1000", "10") "stop = TestFail(s_i:1)\n", TD_OUT_OF_RANGE, "failed");
  expect_error("p = Placeholder() dtype:float\n", TD_INVALID_ARGUMENT,
               "You must feed a value for placeholder tensor 'p' with dtype float\n\t [[{{node p}}]]");
}

static void failed_runs_leave_memory_clean(void **state) {
  td_program *p = test_program(&plain,
                               "a = _Arg() T:int32 index:0\n"
                               "b = _Arg() T:int32 index:1\n"
                               "c = TestAdd(a, b)\n"
                               "r = _Retval(c) T:int32 index:0\n");
  td_tensor *args[2] = {test_int(4), NULL};
  test_result r;
  test_fresh_step(&plain);
  test_run(&plain, p, args, 2, &r);
  assert_int_equal(td_status_code(r.status), TD_INVALID_ARGUMENT);
  test_result_deinit(&r);
  test_fresh_step(&plain);
  args[1] = test_int(5);
  test_run(&plain, p, args, 2, &r);
  assert_null(r.status);
  assert_int_equal(*TD_DATA(r.values[0], int32_t), 9);
  test_result_deinit(&r);
  td_tensor_release(args[0]);
  td_tensor_release(args[1]);
  td_program_release(p);
}

static void *cancel_later(void *arg) {
  usleep(20000);
  td_cancellation_cancel(arg);
  return NULL;
}

/* Cancelled from another thread while it runs: it has to end. */
static void cancel(test_env *e, const char *text, td_code code) {
  td_program *p = test_program(e, text);
  test_fresh_step(e);
  pthread_t thread;
  pthread_create(&thread, NULL, cancel_later, e->cancellation);
  test_result r;
  test_run(e, p, NULL, 0, &r);
  pthread_join(thread, NULL);
  assert_int_equal(td_status_code(r.status), code);
  test_result_deinit(&r);
  td_program_release(p);
}

static void cancellation(void **state) {
  for (size_t i = 0; i < TD_COUNT(envs); i++) {
    cancel(envs[i], ENDLESS, TD_CANCELLED);
    cancel(envs[i], ENDLESS_NOW, TD_CANCELLED);
    cancel(envs[i], "b = TestBlock()\n", TD_CANCELLED);
    cancel(envs[i],
           "r = _Recv() tensor_type:int32 tensor_name:x send_device:/job:a/replica:0/task:0/device:CPU:0 "
           "send_device_incarnation:1 recv_device:/job:b/replica:0/task:0/device:CPU:0\n",
           TD_CANCELLED);
    cancel(envs[i], LOOP("100000000", "10"), TD_CANCELLED);
  }
  /* cancelled before it starts */
  td_program *p = test_program(&plain, "a = Const() value:2 dtype:int32\n");
  test_result r;
  test_fresh_step(&plain);
  td_cancellation_cancel(plain.cancellation);
  test_run(&plain, p, NULL, 0, &r);
  assert_int_equal(td_status_code(r.status), TD_CANCELLED);
  test_result_deinit(&r);
  td_program_release(p);
}

static void count_done(void *arg, td_status status, td_tensor **results, int count) {
  assert(td_status_code(status) == TD_CANCELLED);
  td_status_free(status);
  atomic_fetch_add((_Atomic int *)arg, 1);
}

static void leaves_room(const char *endless) {
  /* more endless runs than pool threads; the caller gets its thread back, and another step still gets through */
  td_program *p = test_program(&pooled, endless);
  test_fresh_step(&pooled);
  _Atomic int ended = 0;
  td_step step = pooled.step;
  td_cancellation *cancellation = td_cancellation_create();
  step.cancellation = cancellation;
  step.rendezvous = NULL;
  td_run_options o = {.step = &step, .done = count_done, .arg = &ended};
  for (int i = 0; i < 5; i++) td_executor_run(p, &o);
  test_expect(
      &pooled,
      "a = Const() value:1 dtype:int32\nb = TestSlow(a) us:10\nc = TestAsync(b)\nr = _Retval(c) T:int32 index:0\n", 1,
      VALUES(1));
  assert_int_equal(ended, 0);
  td_cancellation_cancel(cancellation);
  while (ended < 5) usleep(1000);
  td_cancellation_release(cancellation);
  td_program_release(p);
}

static void endless_loops_leave_room(void **state) {
  leaves_room(ENDLESS);
  leaves_room(ENDLESS_NOW);
}

static bool is_wanted(void *arg) { return --*(int *)arg <= 0; }

static void note_thread(void *arg, td_status status, td_tensor **results, int count) {
  assert(!status);
  for (int i = 0; i < count; i++) td_tensor_release(results[i]);
  atomic_store((_Atomic uintptr_t *)arg, (uintptr_t)pthread_self());
}

/* A loop of many turns; `answers`: how often the thread's owner says that nobody waits. */
static uintptr_t thread_that_ends(int answers) {
  td_program *p = test_program(&pooled, LOOP("40000", "10"));
  test_fresh_step(&pooled);
  _Atomic uintptr_t thread = 0;
  td_turn_set_owner(is_wanted, &answers);
  td_run_options o = {.step = &pooled.step, .done = note_thread, .arg = (void *)&thread};
  td_executor_run(p, &o);
  td_turn_set_owner(NULL, NULL);
  while (!thread) usleep(1000);
  td_program_release(p);
  return thread;
}

static void turns_last_while_nobody_waits(void **state) {
  assert_true(thread_that_ends(INT_MAX) == (uintptr_t)pthread_self());
  assert_true(thread_that_ends(3) != (uintptr_t)pthread_self());
}

#define PORT                                                                                     \
  "tensor_name:edge send_device:/job:a/replica:0/task:0/device:CPU:0 send_device_incarnation:1 " \
  "recv_device:/job:b/replica:0/task:0/device:CPU:0\n"

static void refs(void **state) {
  expect(
      "v = TestVariable()\n"
      "x = Const() value:3 dtype:int32\n"
      "a = TestAssign(v, x)\n"
      "i = RefIdentity(v, ^a) T:int32\n"
      "y = TestAdd(i, a)\n"
      "r = _Retval(y) T:int32 index:0\n",
      1, VALUES(6));
  expect_error(
      "v = TestVariable()\n"
      "i = RefIdentity(v) T:int32\n"
      "y = TestAdd(v, v)\n"
      "z = TestAdd(i, y)\n",
      TD_FAILED_PRECONDITION, "Attempting to use uninitialized value v\n\t [[{{node y}}]]");
  /* through a conditional, and thrown away on the dead side */
  expect(
      "v = TestVariable()\n"
      "x = Const() value:3 dtype:int32\n"
      "p = Const() value:true dtype:bool\n"
      "a = TestAssign(v, x)\n"
      "s = RefSwitch(a, p) T:int32\n"
      "m = RefMerge(s, s:1) T:int32 N:2\n"
      "y = Identity(m) T:int32\n"
      "r0 = _Retval(y) T:int32 index:0\n"
      "r1 = _Retval(m:1) T:int32 index:1\n",
      2, VALUES(3, 1));
  expect_error(
      "v = TestVariable()\n"
      "w = TestVariable()\n"
      "k = Const() value:0 dtype:int32\n"
      "s = RefSelect(k, v, w) T:int32 N:2\n",
      TD_FAILED_PRECONDITION, "uninitialized value v");
  /* a variable that was sent is read when it is received: here after a later update */
  expect(
      "v = TestVariable()\n"
      "x = Const() value:3 dtype:int32\n"
      "y = Const() value:4 dtype:int32\n"
      "a = TestAssign(v, x)\n"
      "s = _Send(a) T:int32 " PORT
      "b = TestAssign(v, y, ^s)\n"
      "r = _Recv(^b) tensor_type:int32 " PORT "r0 = _Retval(r) T:int32 index:0\n",
      1, VALUES(4));
  /* what runs after an update sees it, through an Identity that ran before */
  expect(
      "v = TestVariable()\n"
      "x = Const() value:3 dtype:int32\n"
      "y = Const() value:4 dtype:int32\n"
      "a = TestAssign(v, x)\n"
      "i = Identity(a) T:int32\n"
      "b = TestAssign(a, y, ^i)\n"
      "n = NoOp(^b)\n"
      "z = Const(^n) value:0 dtype:int32\n"
      "j = TestAdd(i, z)\n"
      "r0 = _Retval(j) T:int32 index:0\n",
      1, VALUES(4));
  expect_error(
      "v = TestVariable()\n"
      "s = _Send(v) T:int32 " PORT,
      TD_FAILED_PRECONDITION, "Attempting to use uninitialized value v\n\t [[{{node s}}]]");
}

/* Costly kernels leave the caller's thread and run side by side; the last of them on a pool thread stays there. */
static void costly_kernels_go_to_the_pool(void **state) {
  td_program *p = test_program(&pooled,
                               "a = _Arg() T:int32 index:0\n"
                               "t = TestThread(a)\n"
                               "c = TestCheapThread(t)\n"
                               "d = TestCheapThread(a)\n"
                               "r0 = _Retval(t) T:int32 index:0\n"
                               "r1 = _Retval(c) T:int32 index:1\n"
                               "r2 = _Retval(d) T:int32 index:2\n");
  td_tensor *arg = test_vector(1, 1000);
  test_result r;
  test_fresh_step(&pooled);
  test_run(&pooled, p, &arg, 1, &r);
  assert_null(r.status);
  assert_int_equal(*TD_DATA(r.values[0], int32_t), 1);
  assert_int_equal(*TD_DATA(r.values[2], int32_t), 0);
  test_result_deinit(&r);
  td_program_release(p);

  /* a kernel that tells its work is judged by that */
  p = test_program(&pooled, "a = _Arg() T:int32 index:0\ne = TestEstimated(a)\nr0 = _Retval(e) T:int32 index:0\n");
  td_tensor *few = test_vector(1, 10), *args[] = {arg, few};
  for (int i = 0; i < 2; i++) {
    test_fresh_step(&pooled);
    test_run(&pooled, p, &args[i], 1, &r);
    assert_null(r.status);
    assert_int_equal(*TD_DATA(r.values[0], int32_t), args[i] == arg);
    test_result_deinit(&r);
  }
  td_tensor_release(few);
  td_program_release(p);

  p = test_program(&pooled,
                   "a = _Arg() T:int32 index:0\n"
                   "m1 = TestMeet(a)\n"
                   "m2 = TestMeet(a)\n"
                   "x = TestSum(m1, m2) N:2\n"
                   "r0 = _Retval(x) T:int32 index:0\n");
  test_run(&pooled, p, &arg, 1, &r);
  assert_null(r.status);
  assert_int_equal(*TD_DATA(r.values[0], int32_t), 2);
  test_result_deinit(&r);
  td_program_release(p);
  td_tensor_release(arg);
}

static void send_and_recv(void **state) {
  expect(
      "a = Const() value:2 dtype:int32\n"
      "s = _Send(a) T:int32 " PORT "r = _Recv() tensor_type:int32 " PORT "x = _Retval(r) T:int32 index:0\n",
      1, VALUES(2));
  /* dead values travel */
  expect(
      "p = Const() value:true dtype:bool\n"
      "a = Const() value:7 dtype:int32\n"
      "sw = Switch(a, p) T:int32\n"
      "s = _Send(sw) T:int32 " PORT "r = _Recv() tensor_type:int32 " PORT
      "m = Merge(r, a) T:int32 N:2\n"
      "x = _Retval(m:1) T:int32 index:0\n",
      1, VALUES(1));
  expect_error(
      "a = Const() value:true dtype:bool\n"
      "s = _Send(a) T:bool " PORT "r = _Recv() tensor_type:int32 " PORT,
      TD_INTERNAL, "Output 0 of type bool");
}

static void ignore(void *arg, td_status s, td_tensor **r, int n) {
  td_status_free(s);
  for (int i = 0; i < n; i++) td_tensor_release(r[i]);
  atomic_fetch_add((_Atomic int *)arg, 1);
}

/* Runs that feed each other thousands of times: no stack grows. */
static void long_chain_between_runs(void **state) {
  td_strbuf a = {0}, b = {0};
  td_strbuf_printf(&a, "c = Const() value:1 dtype:int32\n");
  const char *last = "c";
  char name[32];
  for (int i = 0; i < 3000; i++) {
    td_strbuf *own = i % 2 ? &b : &a, *other = i % 2 ? &a : &b;
    td_strbuf_printf(own,
                     "s%d = _Send(%s) T:int32 tensor_name:e%d send_device:/job:a/replica:0/task:0/device:CPU:0 "
                     "send_device_incarnation:1 recv_device:/job:b/replica:0/task:0/device:CPU:0\n",
                     i, last, i);
    td_strbuf_printf(other,
                     "r%d = _Recv() tensor_type:int32 tensor_name:e%d "
                     "send_device:/job:a/replica:0/task:0/device:CPU:0 send_device_incarnation:1 "
                     "recv_device:/job:b/replica:0/task:0/device:CPU:0\n",
                     i, i);
    snprintf(name, sizeof name, "r%d", i);
    last = name;
  }
  td_strbuf_printf(&a, "ret = _Retval(%s) T:int32 index:0\n", last);
  for (size_t i = 0; i < TD_COUNT(envs); i++) {
    td_program *pa = test_program(envs[i], a.data), *pb = test_program(envs[i], b.data);
    test_fresh_step(envs[i]);
    test_result ra;
    _Atomic int ended = 0;
    td_run_options o = {.step = &envs[i]->step, .arg = &ended, .done = ignore};
    td_executor_run(pb, &o);
    test_run(envs[i], pa, NULL, 0, &ra);
    assert_null(ra.status);
    while (!ended) usleep(100);
    test_result_deinit(&ra);
    td_program_release(pa);
    td_program_release(pb);
  }
  td_strbuf_deinit(&a);
  td_strbuf_deinit(&b);
}

/* ---- random graphs, run by several threads at once, some of them cancelled at a random moment ---- */

enum { RANDOM_NODES = 120, RANDOM_THREADS = 3, RANDOM_RUNS = 25 };

static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* Appends node `i`, made from earlier ones, and tells its value. */
static int32_t random_node(td_strbuf *b, int i, const int32_t *values, uint32_t *seed) {
  int x = i ? (int)(next_random(seed) % (uint32_t)i) : 0, y = i ? (int)(next_random(seed) % (uint32_t)i) : 0;
  switch (i ? next_random(seed) % 8 : 7) {
    case 0:
    case 1:
      td_strbuf_printf(b, "v%d = TestAdd(v%d, v%d)\n", i, x, y);
      return (int32_t)((uint32_t)values[x] + (uint32_t)values[y]);
    case 2:
      td_strbuf_printf(b, "v%d = TestNow(v%d, ^v%d)\n", i, x, y);
      return values[x];
    case 3:
      td_strbuf_printf(b, "w%d = TestWide(v%d)\nv%d = TestSlow(w%d, ^v%d) us:20\n", i, x, i, i, y);
      return values[x];
    case 4:
      td_strbuf_printf(b,
                       "p%d = Const() value:%s dtype:bool\ns%d = Switch(v%d, p%d) T:int32\n"
                       "f%d = TestNow(s%d)\nt%d = Identity(s%d:1, ^v%d) T:int32\nv%d = Merge(f%d, t%d) T:int32 N:2\n",
                       i, next_random(seed) % 2 ? "true" : "false", i, x, i, i, i, i, i, y, i, i, i);
      return values[x];
    case 5:
      td_strbuf_printf(b,
                       "e%d = Enter(v%d) T:int32 frame_name:f%d\nm%d = Merge(e%d, n%d) T:int32 N:2\n"
                       "b%d = Const() value:%d dtype:int32\neb%d = Enter(b%d) T:int32 frame_name:f%d is_constant:true\n"
                       "l%d = TestLess(m%d, eb%d)\nc%d = LoopCond(l%d)\ns%d = Switch(m%d, c%d) T:int32\n"
                       "o%d = Const(^s%d) value:1 dtype:int32\n"
                       "a%d = TestAdd(s%d:1, o%d)\nn%d = NextIteration(a%d) T:int32\nv%d = Exit(s%d) T:int32\n",
                       i, x, i, i, i, i, i, 5, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i);
      return values[x] < 5 ? 5 : values[x];
    case 6:
      td_strbuf_printf(b, "v%d = Identity(v%d, ^v%d) T:int32\n", i, x, y);
      return values[x];
    default:
      td_strbuf_printf(b, "v%d = Const() value:%d dtype:int32\n", i, i);
      return i;
  }
}

typedef struct crowd {
  td_program *program;
  td_pool *pool;
  int32_t expected;
  uint32_t seed;
  bool cancels;
} crowd;

static void *cancel_soon(void *arg) {
  static _Atomic uint32_t turns;
  for (volatile uint32_t i = 0; i < (turns++ % 16) * 2000; i++) {
  }
  td_cancellation_cancel(arg);
  return NULL;
}

static void *crowd_main(void *arg) {
  crowd *c = arg;
  test_env e = {.step.pool = c->pool};
  for (int i = 0; i < RANDOM_RUNS; i++) {
    test_result r;
    test_fresh_step(&e);
    pthread_t thread = 0;
    bool cancels = c->cancels && next_random(&c->seed) % 2;
    if (cancels) pthread_create(&thread, NULL, cancel_soon, e.cancellation);
    test_run(&e, c->program, NULL, 0, &r);
    if (cancels) pthread_join(thread, NULL);
    if (r.status)
      assert(cancels && td_status_code(r.status) == TD_CANCELLED);
    else
      assert(*TD_DATA(r.values[0], int32_t) == c->expected);
    test_result_deinit(&r);
  }
  td_rendezvous_release(e.rendezvous);
  td_cancellation_release(e.cancellation);
  return NULL;
}

static void random_graphs(void **state) {
  for (uint32_t round = 0; round < 20; round++) {
    uint32_t seed = round * 977 + 1;
    int32_t values[RANDOM_NODES], sum = 0;
    td_strbuf b = {0};
    for (int i = 0; i < RANDOM_NODES; i++) {
      values[i] = random_node(&b, i, values, &seed);
      sum = (int32_t)((uint32_t)sum + (uint32_t)values[i]);
    }
    td_strbuf_puts(&b, "sum = TestSum(v0");
    for (int i = 1; i < RANDOM_NODES; i++) td_strbuf_printf(&b, ", v%d", i);
    td_strbuf_printf(&b, ") N:%d\nr = _Retval(sum) T:int32 index:0\n", RANDOM_NODES);
    td_program *p = test_program(&pooled, b.data);
    pthread_t threads[RANDOM_THREADS];
    crowd crowds[RANDOM_THREADS];
    for (int i = 0; i < RANDOM_THREADS; i++) {
      crowds[i] = (crowd){p, i ? pooled.pool : NULL, sum, seed + (uint32_t)i, round % 2};
      pthread_create(&threads[i], NULL, crowd_main, &crowds[i]);
    }
    for (int i = 0; i < RANDOM_THREADS; i++) pthread_join(threads[i], NULL);
    td_program_release(p);
    td_strbuf_deinit(&b);
  }
}

/* ---- graphs that no client would make: control flow wired at random ---- */

static void hostile_node(td_strbuf *b, int i, int count, uint32_t *seed) {
  static const char *const frames[] = {"f0", "f1", "f2"};
  int x = (int)(next_random(seed) % (uint32_t)TD_MAX(i, 1)), y = (int)(next_random(seed) % (uint32_t)TD_MAX(i, 1));
  int later = (int)(next_random(seed) % (uint32_t)count);
  const char *frame = frames[next_random(seed) % 3];
  const char *flag = next_random(seed) % 2 ? "true" : "false";
  switch (i < 2 ? 0 : next_random(seed) % 16) {
    case 0:
      td_strbuf_printf(b, "v%d = Const() value:%d dtype:int32\n", i, i);
      break;
    case 1:
      td_strbuf_printf(b, "p%d = Const(^v%d) value:%s dtype:bool\nv%d = Switch(v%d, p%d) T:int32\n", i, x, flag, i, y,
                       i);
      break;
    case 2:
      td_strbuf_printf(b, "l%d = TestLess(v%d, v%d)\nv%d = Switch(v%d, l%d) T:int32\n", i, x, y, i, y, i);
      break;
    case 3:
    case 4:
    case 5:
      td_strbuf_printf(b, "v%d = Enter(v%d) T:int32 frame_name:%s is_constant:%s parallel_iterations:%u\n", i, x, frame,
                       flag, next_random(seed) % 4);
      break;
    case 6:
    case 7:
      td_strbuf_printf(b, "v%d = Exit(v%d%s) T:int32\n", i, x, "");
      break;
    case 8:
    case 9:
      td_strbuf_printf(b, "v%d = NextIteration(v%d) T:int32\n", i, x);
      break;
    case 10:
    case 11:
      td_strbuf_printf(b, "v%d = Merge(v%d, v%d) T:int32 N:2\n", i, x, later);
      break;
    case 12:
      td_strbuf_printf(b, "v%d = Merge(v%d, v%d, ^v%d) T:int32 N:2\n", i, later, x, y);
      break;
    case 13:
      td_strbuf_printf(b, "v%d = TestNow(v%d)\n", i, x);
      break;
    case 14:
      td_strbuf_printf(b, "t%d = ControlTrigger(^v%d)\nv%d = Identity(v%d, ^t%d) T:int32\n", i, x, i, y, i);
      break;
    default:
      td_strbuf_printf(b, "v%d = TestAdd(v%d, v%d)\n", i, x, y);
      break;
  }
}

static void hostile_graphs(void **state) {
  int ran = 0;
  for (uint32_t round = 0; round < 6000; round++) {
    uint32_t seed = round * 7919 + 3;
    td_strbuf b = {0};
    int count = 4 + (int)(next_random(&seed) % 16);
    for (int i = 0; i < count; i++) hostile_node(&b, i, count, &seed);
    td_graph *g = test_graph(b.data);
    td_program_options o = {.device = plain.device};
    td_program *p;
    td_status s = td_program_create(g, &o, &p);
    td_graph_release(g);
    td_status_free(s);
    if (!s) {
      ran++;
      _Atomic int ended = 0;
      test_fresh_step(&pooled);
      td_run_options ro = {.step = &pooled.step, .arg = &ended, .done = ignore};
      td_executor_run(p, &ro);
      for (int i = 0; i < 20 && !ended; i++) usleep(100);
      td_cancellation_cancel(pooled.cancellation); /* some never end */
      while (!ended) usleep(100);
      td_program_release(p);
    }
    td_strbuf_deinit(&b);
  }
  printf("%d of them ran\n", ran);
  assert_true(ran > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dataflow),
      cmocka_unit_test(arguments),
      cmocka_unit_test(conditional),
      cmocka_unit_test(dead_ends),
      cmocka_unit_test(merge_takes_the_first),
      cmocka_unit_test(loops),
      cmocka_unit_test(nested_loops),
      cmocka_unit_test(loop_in_dead_branch),
      cmocka_unit_test(async_kernels),
      cmocka_unit_test(errors),
      cmocka_unit_test(failed_runs_leave_memory_clean),
      cmocka_unit_test(cancellation),
      cmocka_unit_test(endless_loops_leave_room),
      cmocka_unit_test(turns_last_while_nobody_waits),
      cmocka_unit_test(refs),
      cmocka_unit_test(costly_kernels_go_to_the_pool),
      cmocka_unit_test(send_and_recv),
      cmocka_unit_test(long_chain_between_runs),
      cmocka_unit_test(random_graphs),
      cmocka_unit_test(hostile_graphs),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

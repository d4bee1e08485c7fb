/* How fast the executor gets through trivial nodes (loops: iterations) on one thread, what a run of an empty program
 * costs, and a first run. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "figure.h"
#include "runtime/function_runtime.h"
#include "runtime/testing/graphs.h"

enum { NODES = 20000, ITERATIONS = 100000 };

static void done(void *arg, td_status status, td_tensor **results, int count) {
  if (status) fprintf(stderr, "failed: %s\n", td_status_message(status));
  td_status_free(status);
  for (int i = 0; i < count; i++) td_tensor_release(results[i]);
}

static const char functions_text[] =
    "func less(i:int32, n:int32) -> (c:bool)\nl = TestLess(i, n)\nret c = l:z:0\nend\n"
    "func more(i:int32, n:int32) -> (i2:int32, n2:int32)\none = Const() value:1 dtype:int32\n"
    "a = TestAdd(i, one:output:0)\nret i2 = a:z:0\nret n2 = n\nend\n";

typedef struct runs {
  td_program *program;
  td_run_options options;
} runs;

static void run(void *arg) { td_executor_run(((runs *)arg)->program, &((runs *)arg)->options); }

static void measure(const char *what, const char *text, double units) {
  char name[64];
  snprintf(name, sizeof name, "executor/%s", what);
  if (!bench_is_wanted(name)) return;
  test_env e;
  test_env_init(&e, 0);
  td_library *library = test_library(functions_text);
  td_function_runtime *functions = td_function_runtime_create(library, TD_STR(""), NULL);
  e.step.functions = functions;
  runs r = {test_program_with(&e, library, text, NULL), {.step = &e.step, .done = done}};
  uint64_t start = td_now_ns();
  run(&r);
  double first_ms = (double)(td_now_ns() - start) / 1e6;
  bench_measure(&(bench_case){name, run, &r, units, units > 1 ? BENCH_MILLIONS : BENCH_NS});
  snprintf(name, sizeof name, "executor/%s, first run", what);
  if (units > 1) bench_print(name, first_ms, first_ms, "ms", false);
  td_program_release(r.program);
  test_env_deinit(&e);
  td_function_runtime_destroy(functions);
  td_library_release(library);
}

int main(int argc, char **argv) {
  bench_options(argc, argv);
  td_strbuf b = {0};
  measure("empty program", "", 1);
  td_strbuf_puts(&b, "n0 = NoOp()\n");
  for (int i = 1; i < NODES; i++) td_strbuf_printf(&b, "n%d = NoOp(^n%d)\n", i, i - 1);
  measure("control chain", b.data, NODES);
  b.size = 0;
  td_strbuf_puts(&b, "n0 = Const() value:1 dtype:int32\n");
  for (int i = 1; i < NODES; i++) td_strbuf_printf(&b, "n%d = Identity(n%d) T:int32\n", i, i - 1);
  measure("identity chain", b.data, NODES);
  b.size = 0;
  for (int i = 0; i < NODES; i++) td_strbuf_printf(&b, "n%d = NoOp()\n", i);
  td_strbuf_puts(&b, "all = NoOp(^n0");
  for (int i = 1; i < NODES; i++) td_strbuf_printf(&b, ", ^n%d", i);
  td_strbuf_puts(&b, ")\n");
  measure("control fan", b.data, NODES);
  b.size = 0;
  td_strbuf_puts(&b, "c = Const() value:1 dtype:int32\n");
  for (int i = 0; i < NODES; i++) td_strbuf_printf(&b, "n%d = Identity(c) T:int32\n", i);
  td_strbuf_printf(&b, "all = TestSum(n0");
  for (int i = 1; i < NODES; i++) td_strbuf_printf(&b, ", n%d", i);
  td_strbuf_printf(&b, ") N:%d\n", NODES);
  measure("data fan", b.data, NODES);
  b.size = 0;
  td_strbuf_puts(&b, "n0 = Const() value:1 dtype:int32\n");
  for (int i = 1; i < NODES; i++) td_strbuf_printf(&b, "n%d = TestAdd(n%d, n%d)\n", i, i - 1, i - 1);
  measure("add chain", b.data, NODES);
  b.size = 0;
  td_strbuf_printf(&b,
                   "zero = Const() value:0 dtype:int32\none = Const() value:1 dtype:int32\n"
                   "bound = Const() value:%d dtype:int32\n"
                   "e = Enter(zero) T:int32 frame_name:loop\n"
                   "e_b = Enter(bound) T:int32 frame_name:loop is_constant:true\n"
                   "e_1 = Enter(one) T:int32 frame_name:loop is_constant:true\n"
                   "m = Merge(e, n) T:int32 N:2\nless = TestLess(m, e_b)\ncond = LoopCond(less)\n"
                   "s = Switch(m, cond) T:int32\nadd = TestAdd(s:1, e_1)\nn = NextIteration(add) T:int32\n"
                   "x = Exit(s) T:int32\n",
                   ITERATIONS);
  measure("while loop", b.data, ITERATIONS);
  b.size = 0;
  td_strbuf_printf(&b,
                   "a = Const() value:0 dtype:int32\nn = Const() value:%d dtype:int32\n"
                   "w = While(a, n) T:int32+int32 cond:less body:more\n",
                   ITERATIONS);
  measure("functional while", b.data, ITERATIONS);
  td_strbuf_deinit(&b);
  return 0;
}

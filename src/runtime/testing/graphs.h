/* For the runtime's tests and benchmarks: graphs from lines of text, ops to fill them, runs that are waited for. */
#ifndef TD_RUNTIME_TESTING_GRAPHS_H_
#define TD_RUNTIME_TESTING_GRAPHS_H_

#include "framework/rendezvous.h"
#include "framework/variable.h"
#include "runtime/executor.h"

/* Registers the ops of this file and the families that come with the runtime's tests; later calls do nothing.
 *
 * int32 ops: TestAdd(x, y), TestLess(x, y) -> bool, TestSum(N x) ; TestAsync(x): the value, later, from another
 * thread; TestWide(x): a vector of 1,000 times x;
 * TestAddInPlace(x, y): may write into x; TestPass(x): hands x on itself;
 * TestMeet(x): x once two of its kind run at the same time; EXPENSIVE;
 * TestSlow(x): x after attribute `us` microseconds, of cost class EXPENSIVE when `costly` (on the pool for a wide x);
 * TestFail(x): fails with attribute `message`; TestWrongType, TestMissing: no proper output; TestBlock: waits until the
 * step is cancelled; TestVariable: a ref to the variable of that name; TestAssign(ref, x) -> ref; TestCount(x): counts
 * its runs in its state, and says so; TestThread: 1 when it runs on a pool's thread. */
void test_register(void);

/* A graph from lines "name = Op(inputs) attr:value attr:value", where inputs are "a", "a:1", "^a" separated by
 * commas. Values: numbers and true/false by the attribute's kind, type names, quoted strings; "value:5" makes an int32
 * scalar tensor (true/false: a bool). Back edges may name later nodes. */
td_graph *test_graph(const char *text);

/* A library from blocks of lines:
 *   func NAME(x:int32, y:T) -> (z:T) attr:T        inputs, outputs, type attributes
 *   n = Op(x, m:z:0, ^k) dtype:$T                  nodes as functions write them; $T: a placeholder
 *   c = Call(x) f:NAME                             a function-valued attribute
 *   ret z = n:z:0
 *   control n
 *   end */
td_library *test_library(const char *text);
td_graph *test_graph_with(td_library *library, const char *text); /* ops may be functions; attributes f:NAME */

/* Things a step needs, with defaults. */
typedef struct test_env {
  td_device *device;
  td_resource_mgr *resources;
  td_pool *pool;
  td_rendezvous *rendezvous;
  td_cancellation *cancellation;
  td_step step;
} test_env;
void test_env_init(test_env *e, int threads); /* 0 threads: no pool */
void test_env_deinit(test_env *e);

td_program *test_program(test_env *e, const char *text);
/* With functions of e->step.functions; fails the test unless `error` is given. */
td_program *test_program_with(test_env *e, td_library *library, const char *text, td_status *error);

typedef struct test_result {
  td_status status;
  td_tensor *values[16];
  int count;
} test_result;
/* Runs and waits for at most 20 s (then the test fails). */
void test_run(test_env *e, td_program *p, td_tensor **args, int arg_count, test_result *out);
void test_result_deinit(test_result *r);
/* Compiles, runs with fresh rendezvous and cancellation, expects int32 scalars as results. */
void test_expect(test_env *e, const char *text, int count, const int32_t *values);
/* The same, expects an error. */
void test_expect_error(test_env *e, const char *text, td_code code, const char *message);

td_tensor *test_int(int32_t v);
td_tensor *test_vector(int32_t v, int64_t n); /* n times v */
void test_fresh_step(test_env *e);            /* a new rendezvous and cancellation */

#endif /* TD_RUNTIME_TESTING_GRAPHS_H_ */

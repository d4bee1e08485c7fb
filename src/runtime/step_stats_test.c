#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "framework/device.h"
#include "proto/framework.pb-c.h"
#include "proto/message.h"
#include "runtime/function_runtime.h"
#include "runtime/step_stats.h"
#include "runtime/testing/graphs.h"

static td_arena arena;

/* Runs a graph with statistics; the decoded message lies in `arena`. */
static const Pb__StepStats *run(test_env *e, td_program *p, td_code code) {
  test_result r;
  td_strbuf bytes = {0};
  Pb__StepStats *stats;
  test_fresh_step(e);
  e->step.stats = td_step_stats_create();
  test_run(e, p, NULL, 0, &r);
  assert_int_equal(td_status_code(r.status), code);
  test_result_deinit(&r);
  td_step_stats_encode(e->step.stats, &bytes);
  td_step_stats_destroy(e->step.stats);
  e->step.stats = NULL;
  td_status s =
      td_message_decode(&pb__step_stats__descriptor, td_strbuf_view(&bytes), &arena, (ProtobufCMessage **)&stats);
  assert_null(s);
  td_strbuf_deinit(&bytes);
  return stats;
}

static const Pb__NodeExecStats *find(const Pb__StepStats *s, const char *name, int *count) {
  const Pb__NodeExecStats *found = NULL;
  *count = 0;
  for (size_t d = 0; d < s->n_dev_stats; d++)
    for (size_t i = 0; i < s->dev_stats[d]->n_node_stats; i++)
      if (!strcmp(s->dev_stats[d]->node_stats[i]->node_name, name)) {
        found = s->dev_stats[d]->node_stats[i];
        ++*count;
      }
  return found;
}

static int count_of(const Pb__StepStats *s, const char *name) {
  int n;
  find(s, name, &n);
  return n;
}

static void check_times(const Pb__StepStats *s) {
  for (size_t d = 0; d < s->n_dev_stats; d++)
    for (size_t i = 0; i < s->dev_stats[d]->n_node_stats; i++) {
      const Pb__NodeExecStats *n = s->dev_stats[d]->node_stats[i];
      assert_true(n->all_start_micros > 1500000000ll * 1000000 && n->scheduled_nanos <= n->all_start_nanos);
      assert_true(n->op_start_rel_nanos >= 0 && n->op_start_rel_nanos <= n->op_end_rel_nanos);
      assert_true(n->op_end_rel_nanos <= n->all_end_rel_nanos && n->thread_id);
    }
}

static void test_nodes(void **state) {
  for (int threads = 0; threads < 3; threads += 2) {
    test_env e;
    int n;
    test_env_init(&e, threads);
    td_program *p = test_program(&e,
                                 "a = Const() value:2 dtype:int32\n"
                                 "b = Const() value:3 dtype:int32\n"
                                 "w = TestWide(a, ^b)\n"
                                 "slow = TestSlow(w) us:10 costly:true\n"
                                 "later = TestAsync(b)\n"
                                 "sum = TestAdd(later, a)\n"
                                 "r = _Retval(sum) T:int32 index:0\n"
                                 "q = _Retval(slow) T:int32 index:1\n");
    const Pb__StepStats *s = run(&e, p, TD_OK);
    assert_int_equal(s->n_dev_stats, 1);
    assert_string_equal(s->dev_stats[0]->device, e.device->name);
    assert_int_equal(s->dev_stats[0]->n_node_stats, 8);
    assert_true(s->dev_stats[0]->n_thread_names >= 1);
    check_times(s);
    assert_string_equal(find(s, "w", &n)->timeline_label, "w = TestWide(a, ^b)");
    assert_string_equal(find(s, "sum", &n)->timeline_label, "sum = TestAdd(later, a)");
    assert_string_equal(find(s, "a", &n)->timeline_label, "a = Const()");
    const Pb__NodeExecStats *w = find(s, "w", &n);
    assert_int_equal(w->n_output, 1);
    const Pb__TensorDescription *t = w->output[0]->tensor_description;
    assert_int_equal(t->dtype, TD_INT32);
    assert_int_equal(t->shape->n_dim, 1);
    assert_int_equal(t->shape->dim[0]->size, 1000);
    assert_int_equal(t->allocation_description->requested_bytes, 4000);
    assert_string_equal(t->allocation_description->allocator_name, "cpu");
    assert_int_equal(w->n_memory, 1);
    assert_int_equal(w->memory[0]->total_bytes, 4000);
    assert_int_equal(find(s, "a", &n)->n_memory, 0); /* a constant is not made anew */
    /* a second step has the same labels; one that is not recorded has no effect */
    test_result r;
    test_fresh_step(&e);
    test_run(&e, p, NULL, 0, &r);
    test_result_deinit(&r);
    assert_int_equal(count_of(run(&e, p, TD_OK), "sum"), 1);
    td_program_release(p);
    test_env_deinit(&e);
  }
}

static void test_loops_and_branches(void **state) {
  test_env e;
  test_env_init(&e, 2);
  td_program *p = test_program(&e,
                               "zero = Const() value:0 dtype:int32\n"
                               "ten = Const() value:10 dtype:int32\n"
                               "one = Const() value:1 dtype:int32\n"
                               "e = Enter(zero) T:int32 frame_name:loop\n"
                               "e_n = Enter(ten) T:int32 frame_name:loop is_constant:true\n"
                               "e_1 = Enter(one) T:int32 frame_name:loop is_constant:true\n"
                               "m = Merge(e, n) T:int32 N:2\n"
                               "less = TestLess(m, e_n)\n"
                               "cond = LoopCond(less)\n"
                               "s = Switch(m, cond) T:int32\n"
                               "add = TestAdd(s:1, e_1)\n"
                               "n = NextIteration(add) T:int32\n"
                               "x = Exit(s) T:int32\n"
                               "r = _Retval(x) T:int32 index:0\n");
  const Pb__StepStats *s = run(&e, p, TD_OK);
  assert_int_equal(count_of(s, "add"), 10);
  assert_int_equal(count_of(s, "less"), 11);
  assert_int_equal(count_of(s, "x"), 1); /* dead ones are not recorded */
  check_times(s);
  td_program_release(p);
  test_env_deinit(&e);
}

static void test_functions(void **state) {
  test_env e;
  test_env_init(&e, 2);
  td_library *library = test_library(
      "func Twice(x:int32) -> (z:int32)\n"
      "inner = TestAdd(x, x)\n"
      "ret z = inner:z:0\n"
      "end\n");
  e.step.functions = td_function_runtime_create(library, TD_STR("s"), NULL);
  td_program *p = test_program_with(&e, library,
                                    "a = Const() value:2 dtype:int32\n"
                                    "call = Twice(a)\n"
                                    "r = _Retval(call) T:int32 index:0\n",
                                    NULL);
  const Pb__StepStats *s = run(&e, p, TD_OK);
  int n;
  assert_int_equal(count_of(s, "inner"), 1);
  assert_string_equal(find(s, "call", &n)->timeline_label, "call = Twice(a)");
  assert_int_equal(s->n_dev_stats, 1);
  td_program_release(p);
  td_function_runtime_destroy(e.step.functions);
  td_library_release(library);
  test_env_deinit(&e);
}

static void test_failures(void **state) {
  test_env e;
  test_env_init(&e, 2);
  td_program *p = test_program(&e,
                               "a = Const() value:2 dtype:int32\n"
                               "f = TestFail(a) message:\"no\"\n"
                               "r = _Retval(f) T:int32 index:0\n");
  const Pb__StepStats *s = run(&e, p, TD_OUT_OF_RANGE);
  assert_int_equal(count_of(s, "a"), 1);
  assert_int_equal(count_of(s, "f"), 0);
  td_program_release(p);
  test_env_deinit(&e);
}

static void note(void *arg, const td_node_record *n) {
  assert_true(n->op_end_ns >= n->op_start_ns);
  if (td_str_is(n->name, "w")) *(size_t *)arg += n->outputs[0].bytes;
}

static void test_visit(void **state) {
  test_env e;
  test_env_init(&e, 0);
  td_program *p = test_program(&e,
                               "a = Const() value:2 dtype:int32\n"
                               "w = TestWide(a)\n"
                               "r = _Retval(w) T:int32 index:0\n");
  test_result r;
  size_t bytes = 0;
  test_fresh_step(&e);
  e.step.stats = td_step_stats_create();
  test_run(&e, p, NULL, 0, &r);
  test_result_deinit(&r);
  td_step_stats_visit(e.step.stats, TD_STR("/no/such"), note, &bytes);
  assert_int_equal(bytes, 0);
  td_step_stats_visit(e.step.stats, td_str_of(e.device->name), note, &bytes);
  assert_int_equal(bytes, 4000);
  td_step_stats_destroy(e.step.stats);
  td_program_release(p);
  test_env_deinit(&e);
}

static int tear_down(void **state) {
  td_arena_deinit(&arena);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nodes),     cmocka_unit_test(test_loops_and_branches),
      cmocka_unit_test(test_functions), cmocka_unit_test(test_failures),
      cmocka_unit_test(test_visit),
  };
  test_register();
  return cmocka_run_group_tests(tests, NULL, tear_down);
}

#include "runtime/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/executor_internal.h"
#include "runtime/testing/graphs.h"

static td_status create(test_env *e, td_kernel_cache *cache, const char *text, td_program **out) {
  td_graph *g = test_graph(text);
  td_program_options o = {.device = e->device, .kernels = cache};
  td_status s = td_program_create(g, &o, out);
  td_graph_release(g);
  return s;
}

static void expect_error(const char *text, td_code code, const char *message) {
  test_env e;
  test_env_init(&e, 0);
  td_program *p;
  td_status s = create(&e, NULL, text, &p);
  assert_int_equal(td_status_code(s), code);
  if (!strstr(td_status_message(s), message)) fail_msg("%s", td_status_message(s));
  td_status_free(s);
  test_env_deinit(&e);
}

static void errors_name_the_node(void **state) {
  expect_error(
      "a = Const() value:1 dtype:int32\nbad = TestFail(a) message:at_creation\nb = Identity(a) T:int32\n"
      "c = Const() value:true dtype:int32\n",
      TD_INVALID_ARGUMENT, "DataType mismatch between value (bool) and dtype (int32)\n\t [[{{node c}}]]");
  expect_error("a = TestAdd()\n", TD_INVALID_ARGUMENT, "\n\t [[{{node a}}]]");
  expect_error("a = _Arg() T:int32 index:70000\n", TD_INVALID_ARGUMENT, "index 70000");
}

static void broken_loops_are_refused(void **state) {
  expect_error("a = Const() value:1 dtype:int32\nx = Exit(a) T:int32\n", TD_INVALID_ARGUMENT,
               "Cannot find a corresponding Enter op");
  expect_error("a = Const() value:1 dtype:int32\nn = NextIteration(a) T:int32\n", TD_INVALID_ARGUMENT, "{{node n}}");
  expect_error("a = Const() value:1 dtype:int32\ne = Enter(a) T:int32 frame_name:f\nb = TestAdd(a, e)\n",
               TD_INVALID_ARGUMENT, "has inputs from different frames");
}

static void layout(void **state) {
  test_env e;
  test_env_init(&e, 0);
  td_program *p = test_program(&e, "a = Const() value:1 dtype:int32\nb = TestAdd(a, a)\nn = NoOp(^a, ^b)\n");
  assert_int_equal(td_program_node_count(p), 3);
  assert_int_equal(p->edge_count, 4);
  assert_int_equal(p->frame_count, 1);
  assert_false(p->has_frames);
  assert_int_equal(p->frames[0].slot_count, 2);
  assert_int_equal(p->frames[0].root_count, 1);
  const td_pnode *a = &p->nodes[0];
  assert_int_equal(a->exec, TD_EXEC_CONSTANT);
  int moves = 0;
  for (uint32_t i = 0; i < a->edge_count; i++) moves += p->edges[a->edge + i].flags & TD_PE_LAST ? 1 : 0;
  assert_int_equal(moves, 1);
  assert_true(p->nodes[1].flags & TD_PN_UNUSED);
  td_program_release(p);
  test_env_deinit(&e);
}

static void hot_structures_stay_small(void **state) {
  assert_true(sizeof(td_pedge) == 16);
  assert_true(sizeof(td_pnode) <= 128);
  assert_true(sizeof(td_value) == 8);
  assert_true(sizeof(td_ready) == 16);
}

static int32_t count(test_env *e, td_program *p) {
  test_result r;
  test_fresh_step(e);
  test_run(e, p, NULL, 0, &r);
  assert_null(r.status);
  int32_t v = *TD_DATA(r.values[0], int32_t);
  test_result_deinit(&r);
  return v;
}

/* A stateful node's kernel goes on across the graphs of a session; another node of that name gets its own. */
static void kernels_are_kept_by_session(void **state) {
  test_env e;
  test_env_init(&e, 0);
  td_kernel_cache *first = td_kernel_cache_create(), *second = td_kernel_cache_create();
  const char *text = "c = TestCount()\nr = _Retval(c) T:int32 index:0\n";
  td_program *a, *b, *other_session, *other_op, *own;
  assert_null(create(&e, first, text, &a));
  assert_null(create(&e, first, "c = TestCount()\nx = Identity(c) T:int32\nr = _Retval(x) T:int32 index:0\n", &b));
  assert_null(create(&e, second, text, &other_session));
  assert_null(create(&e, first,
                     "v = Const() value:9 dtype:int32\nc = Identity(v) T:int32\nr = _Retval(c) T:int32 index:0\n",
                     &other_op));
  assert_null(create(&e, NULL, text, &own));
  assert_int_equal(count(&e, a), 1);
  assert_int_equal(count(&e, b), 2);
  assert_int_equal(count(&e, a), 3);
  assert_int_equal(count(&e, other_session), 1);
  assert_int_equal(count(&e, other_op), 9);
  assert_int_equal(count(&e, own), 1);
  td_program *variable;
  assert_null(create(&e, first, "c = TestVariable()\n", &variable));
  td_program_release(variable);
  td_program_release(a);
  assert_int_equal(count(&e, b), 4);
  td_program_release(b);
  td_program_release(other_session);
  td_program_release(other_op);
  td_program_release(own);
  td_kernel_cache_destroy(first);
  td_kernel_cache_destroy(second);
  test_env_deinit(&e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_name_the_node),
      cmocka_unit_test(broken_loops_are_refused),
      cmocka_unit_test(layout),
      cmocka_unit_test(hot_structures_stay_small),
      cmocka_unit_test(kernels_are_kept_by_session),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

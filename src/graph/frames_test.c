/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/partition.h"
#include "graph/testing.h"

static int frame_of(const td_graph *g, const td_frames *f, const char *node) {
  return f->of_node[td_graph_find(g, td_str_of(node))->id];
}

static void test_no_loops(void **state) {
  td_graph *g = td_graph_test_graph("a = Placeholder() {dtype: float}\nb = Neg(a) {T: float}");
  td_arena a = {0};
  td_frames f;
  assert_null(td_graph_frames(g, &a, &f));
  assert_int_equal(f.count, 1);
  assert_int_equal(frame_of(g, &f, "b"), 0);
  assert_int_equal(f.frames[0].parent, -1);
  td_arena_deinit(&a);
  td_graph_release(g);
}

#define NESTED                                                                 \
  "zero = Placeholder() {dtype: int32}\n"                                      \
  "e1 = Enter(zero) {T: int32; frame_name: 'outer'; parallel_iterations: 3}\n" \
  "m1 = Merge(e1, n1) {T: int32; N: 2}\n"                                      \
  "l1 = Less(m1, m1) {T: int32}\n"                                             \
  "c1 = LoopCond(l1)\n"                                                        \
  "s1 = Switch(m1, c1) {T: int32}\n"                                           \
  "e2 = Enter(s1:1) {T: int32; frame_name: 'inner'}\n"                         \
  "m2 = Merge(e2, n2) {T: int32; N: 2}\n"                                      \
  "l2 = Less(m2, m2) {T: int32}\n"                                             \
  "c2 = LoopCond(l2)\n"                                                        \
  "s2 = Switch(m2, c2) {T: int32}\n"                                           \
  "n2 = NextIteration(s2:1) {T: int32}\n"                                      \
  "x2 = Exit(s2) {T: int32}\n"                                                 \
  "n1 = NextIteration(x2) {T: int32}\n"                                        \
  "x1 = Exit(s1) {T: int32}\n"                                                 \
  "end = Neg(x1) {T: int32}\n"

static void test_nested(void **state) {
  td_graph *g = td_graph_test_graph(NESTED);
  td_arena a = {0};
  td_frames f;
  assert_null(td_graph_frames(g, &a, &f));
  assert_int_equal(f.count, 3);
  int outer = frame_of(g, &f, "m1"), inner = frame_of(g, &f, "m2");
  assert_true(td_str_is(f.frames[outer].frame_name, "outer"));
  assert_true(td_str_is(f.frames[inner].frame_name, "inner"));
  assert_int_equal(f.frames[outer].parallel_iterations, 3);
  assert_int_equal(f.frames[inner].parallel_iterations, 10);
  assert_int_equal(f.frames[inner].parent, outer);
  assert_int_equal(f.frames[outer].parent, 0);
  assert_int_equal(frame_of(g, &f, "e1"), 0); /* an Enter belongs to its parent frame, */
  assert_int_equal(frame_of(g, &f, "e2"), outer);
  assert_int_equal(frame_of(g, &f, "x2"), inner); /* an Exit to the inner one */
  assert_int_equal(frame_of(g, &f, "n1"), outer);
  assert_int_equal(frame_of(g, &f, "end"), 0);
  assert_true(td_str_is(f.frames[inner].loop_cond->def.name, "c2"));
  td_arena_deinit(&a);
  td_graph_release(g);
}

static void assert_fails(const char *graph, td_code code, const char *text) {
  td_graph *g = td_graph_test_graph(graph);
  td_arena a = {0};
  td_frames f;
  td_status s = td_graph_frames(g, &a, &f);
  assert_non_null(s);
  if (!strstr(td_status_message(s), text)) fail_msg("'%s' is not in '%s'", text, td_status_message(s));
  assert_int_equal(td_status_code(s), code);
  td_status_free(s);
  td_arena_deinit(&a);
  td_graph_release(g);
}

static void test_errors(void **state) {
  assert_fails(
      "a = Placeholder() {dtype: float}\ne = Enter(a) {T: float; frame_name: 'f'}\nb = Add(a, e) {T: float}",
      TD_INVALID_ARGUMENT,
      "{{node b}} has inputs from different frames. The input {{node e}} is in frame 'f'. The input {{node a}} is "
      "in frame ''.");
  assert_fails("a = Placeholder() {dtype: float}\nx = Exit(a) {T: float}", TD_INVALID_ARGUMENT,
               "Invalid Exit op: Cannot find a corresponding Enter op.");
  assert_fails("a = Placeholder() {dtype: float}\ne = Enter(a) {T: float; frame_name: ''}", TD_INVALID_ARGUMENT,
               "The Enter {{node e}} must have a frame name.");
  assert_fails(
      "a = Placeholder() {dtype: float}\ne = Enter(a) {T: float; frame_name: 'f'}\n"
      "e2 = Enter(e) {T: float; frame_name: 'f'}",
      TD_INTERNAL, "Invalid loop structure: Mismatched parent frames for \"f\"");
  assert_fails(
      "a = Placeholder() {dtype: bool}\ne = Enter(a) {T: bool; frame_name: 'f'}\nc = LoopCond(e)\nd = LoopCond(e)",
      TD_INVALID_ARGUMENT, "Invalid loop structure: Loop \"f\" has more than one LoopCond node");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_loops), cmocka_unit_test(test_nested),
                                     cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

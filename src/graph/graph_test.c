/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/internal.h"
#include "graph/testing.h"

static void assert_graph(const td_graph *g, const char *expected) {
  td_arena a = {0};
  assert_string_equal(td_graph_test_print(g, &a), expected);
  td_arena_deinit(&a);
}

/* Both lists of every node are linked in both directions and end where they say. */
static void assert_linked(const td_graph *g) {
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node *n = g->nodes[i];
    const td_edge *last = NULL;
    for (const td_edge *e = n->in_edges; e; last = e, e = e->next_in) {
      assert_ptr_equal(e->prev_in, last);
      assert_ptr_equal(e->dst, n);
      if (last) assert_true(e->dst_slot < 0 || (last->dst_slot >= 0 && last->dst_slot < e->dst_slot));
    }
    assert_ptr_equal(n->last_in, last);
    last = NULL;
    for (const td_edge *e = n->out_edges; e; last = e, e = e->next_out) assert_ptr_equal(e->prev_out, last);
    assert_ptr_equal(n->last_out, last);
  }
}

static td_graph *example(void) {
  return td_graph_test_graph(
      "a = Placeholder() {dtype: float}\nb = Neg(a) {T: float}\nc = Add(a, b, ^b) {T: float}\nd = NoOp(^c, ^a)");
}

static void test_remove_and_add_edges(void **state) {
  td_graph *g = example();
  td_node *a = td_graph_find(g, TD_STR("a")), *b = td_graph_find(g, TD_STR("b")), *c = td_graph_find(g, TD_STR("c"));
  assert_linked(g);
  td_graph_remove_edge(g, c->in[0]);
  assert_null(c->in[0]);
  assert_linked(g);
  td_graph_remove_edge(g, c->last_in);
  assert_linked(g);
  td_graph_add_control_edge(g, a, c);
  td_graph_add_edge(g, b, 0, c, 0); /* before the others, though it comes last */
  assert_linked(g);
  assert_graph(g, "a = Placeholder()\nb = Neg(a)\nc = Add(b, b, ^a)\nd = NoOp(^c, ^a)\n");
  td_graph_release(g);
}

static void test_remove_node(void **state) {
  td_graph *g = example();
  td_graph_remove_node(g, td_graph_find(g, TD_STR("c")));
  assert_linked(g);
  assert_null(td_graph_find(g, TD_STR("c")));
  assert_graph(g, "a = Placeholder()\nb = Neg(a)\nd = NoOp(^a)\n");
  td_graph_release(g);
}

static void test_set_attr(void **state) {
  td_graph *g = example();
  td_node *b = td_graph_find(g, TD_STR("b"));
  td_node_def copy = b->def;
  size_t before = copy.attr_count;
  int64_t i;
  td_node_def_set_attr(&copy, &g->arena, TD_STR("x"), td_attr_value_int(&g->arena, 7));
  td_node_def_set_attr(&copy, &g->arena, TD_STR("x"), td_attr_value_int(&g->arena, 8));
  assert_int_equal(copy.attr_count, before + 1);
  assert_null(td_attr_int(&copy, "x", &i));
  assert_int_equal(i, 8);
  assert_null(td_attr_find(&b->def, "x")); /* the one it was copied from is as before */
  td_graph_release(g);
}

static void test_long_chain_of_origins(void **state) {
  td_graph *g = td_graph_create(NULL);
  for (int i = 0; i < 100000; i++) { /* must not recurse */
    td_graph *next = td_graph_create(g->library);
    next->origin = g;
    g = next;
  }
  td_graph_release(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_remove_and_add_edges), cmocka_unit_test(test_remove_node),
                                     cmocka_unit_test(test_set_attr), cmocka_unit_test(test_long_chain_of_origins)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/internal.h"

static void test_node_names(void **state) {
  static const char *const good[] = {"a", "A9", ".a", "9", "a/b_c.d-e", "a>b", "a/b>c/d"};
  static const char *const bad[] = {"", "_a", "/a", "-a", "a b", "a:0", "^a", "a>", ">a", "a>_b", "a;b", "\xc3\xa9"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(td_node_name_is_valid(td_str_of(good[i]), false));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(td_node_name_is_valid(td_str_of(bad[i]), false));
  assert_true(td_node_name_is_valid(TD_STR("_a"), true));
  assert_false(td_node_name_is_valid(TD_STR("a\0b"), true));
}

static void assert_input(const char *text, const char *name, int slot) {
  td_str got;
  int got_slot;
  assert_true(td_input_parse(td_str_of(text), &got, &got_slot));
  assert_true(td_str_is(got, name));
  assert_int_equal(got_slot, slot);
}

static void test_inputs(void **state) {
  td_str name;
  int slot;
  assert_input("a", "a", 0);
  assert_input("a:0", "a", 0);
  assert_input("a/b:17", "a/b", 17);
  assert_input("^a", "a", TD_CONTROL_SLOT);
  assert_input("17", "17", 0);
  assert_input("a:b", "a:b", 0); /* no such node can exist */
  assert_false(td_input_parse(TD_STR("a:"), &name, &slot));
  assert_false(td_input_parse(TD_STR("a:2147483648"), &name, &slot));
  assert_false(td_input_parse(TD_STR("a:99999999999999999999"), &name, &slot));
}

static void test_attach(void **state) {
  td_status s = td_graph_attach(td_graph_attach(td_invalid_argument("oops"), TD_STR("n")), TD_STR("m"));
  assert_string_equal(td_status_message(s), "oops\n\t [[{{node n}}]]\n\t [[m]]");
  td_status_free(s);
  assert_null(td_graph_attach(TD_STATUS_OK, TD_STR("n")));
}

static void test_kinds(void **state) {
  assert_int_equal(td_node_kind_of(TD_STR("RefSwitch")), TD_NODE_SWITCH);
  assert_int_equal(td_node_kind_of(TD_STR("RefMerge")), TD_NODE_MERGE);
  assert_int_equal(td_node_kind_of(TD_STR("RefNextIteration")), TD_NODE_NEXT_ITERATION);
  assert_int_equal(td_node_kind_of(TD_STR("_HostRecv")), TD_NODE_RECV);
  assert_int_equal(td_node_kind_of(TD_STR("LoopCond")), TD_NODE_LOOP_COND);
  assert_int_equal(td_node_kind_of(TD_STR("MergeSummary")), TD_NODE_PLAIN);
  assert_int_equal(td_node_kind_of(TD_STR("")), TD_NODE_PLAIN);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_node_names), cmocka_unit_test(test_inputs),
                                     cmocka_unit_test(test_attach), cmocka_unit_test(test_kinds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

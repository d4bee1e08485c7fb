/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/prune.h"
#include "base/testing.h"

#include "graph/testing.h"

#define CLIENT "/job:w/replica:0/task:0/device:CPU:0"

typedef struct names {
  const char *feeds[4], *fetches[4], *targets[4];
} names;

static size_t to_views(const char *const *in, td_str *out) {
  size_t n = 0;
  for (; n < 4 && in[n]; n++) out[n] = td_str_of(in[n]);
  return n;
}

static td_status prune(td_graph *g, names n, td_graph **out) {
  td_str feeds[4], fetches[4], targets[4];
  td_prune_options o = {.feeds = feeds,
                        .fetches = fetches,
                        .targets = targets,
                        .client_device = TD_STR(CLIENT),
                        .client_incarnation = 0xfedcba9876543210u};
  o.feed_count = to_views(n.feeds, feeds);
  o.fetch_count = to_views(n.fetches, fetches);
  o.target_count = to_views(n.targets, targets);
  return td_graph_prune(g, &o, out);
}

static void assert_pruned(const char *graph, names n, const char *expected) {
  td_graph *g = td_graph_test_graph(graph), *p = NULL;
  td_arena a = {0};
  char *before = td_graph_test_print(g, &a);
  must(prune(g, n, &p));
  assert_string_equal(td_graph_test_print(g, &a), before);
  td_graph_release(g); /* the pruned one keeps it */
  assert_string_equal(td_graph_test_print(p, &a), expected);
  td_graph_release(p);
  td_arena_deinit(&a);
}

static void assert_fails(const char *graph, names n, td_code code, const char *text) {
  td_graph *g = td_graph_test_graph(graph), *p = NULL;
  td_status s = prune(g, n, &p);
  assert_non_null(s);
  assert_string_equal(td_status_message(s), text);
  assert_int_equal(td_status_code(s), code);
  td_status_free(s);
  td_graph_release(g);
}

#define GRAPH                                         \
  "a = Placeholder() {dtype: float}\n"                \
  "b = Neg(a) {T: float}\n"                           \
  "c = Add(b, a) {T: float}\n"                        \
  "d = NoOp(^c, ^a)\n"                                \
  "v = VariableV2() {dtype: float; shape: unknown}\n" \
  "unused = Neg(c) {T: float}\n"

static void test_feeds_and_fetches(void **state) {
  assert_pruned(GRAPH, (names){.feeds = {"a:0"}, .fetches = {"c:0"}},
                "_recv_a_0 = _Recv() @" CLIENT "\n_send_c_0 = _Send(c) @" CLIENT
                "\nb = Neg(_recv_a_0)\nc = Add(b, _recv_a_0)\n");
  assert_pruned(GRAPH, (names){.feeds = {"b:0"}, .fetches = {"c:0"}},
                "_recv_b_0 = _Recv() @" CLIENT "\n_send_c_0 = _Send(c) @" CLIENT
                "\na = Placeholder()\nc = Add(_recv_b_0, a)\n");
  assert_pruned(GRAPH, (names){.feeds = {"c"}, .fetches = {"b:0", "b:0"}},
                "_send_b_0 = _Send(b) @" CLIENT "\na = Placeholder()\nb = Neg(a)\n");
}

static void test_control_edges_of_fed_nodes(void **state) {
  /* those of a Placeholder move to the receive; those of other nodes stay */
  assert_pruned(GRAPH, (names){.feeds = {"a:0", "c:0"}, .targets = {"d"}},
                "_recv_a_0 = _Recv() @" CLIENT
                "\nb = Neg(_recv_a_0)\nc = Add(b, _recv_a_0)\nd = NoOp(^c, ^_recv_a_0)\n");
}

static void test_other_spelling(void **state) {
  assert_pruned(GRAPH, (names){.feeds = {"a:0"}, .fetches = {"a"}},
                "_recv_a_0 = _Recv() @" CLIENT "\n_send_a_0 = _Send(_recv_a_0) @" CLIENT "\n");
  assert_pruned(GRAPH, (names){.fetches = {"v", "v:0"}},
                "_send_v_0 = _Send(v) @" CLIENT "\n_send_v_0_1 = _Send(v) @" CLIENT "\nv = VariableV2()\n");
}

static void test_attributes(void **state) {
  td_graph *g = td_graph_test_graph(GRAPH), *p;
  assert_null(prune(g, (names){.feeds = {"a:0"}, .fetches = {"v:0", "b:0"}}, &p));
  td_node *recv = td_graph_find(p, TD_STR("_recv_a_0")), *send = td_graph_find(p, TD_STR("_send_v_0"));
  td_dtype type;
  td_str name;
  int64_t incarnation;
  bool client;
  assert_null(td_attr_type(&recv->def, "tensor_type", &type));
  assert_int_equal(type, TD_FLOAT);
  assert_null(td_attr_type(&send->def, "T", &type)); /* the base type of a ref */
  assert_int_equal(type, TD_FLOAT);
  assert_null(td_attr_str(&recv->def, "tensor_name", &name));
  assert_true(td_str_is(name, "a:0"));
  assert_null(td_attr_str(&recv->def, "send_device", &name));
  assert_true(td_str_is(name, CLIENT));
  assert_null(td_attr_int(&recv->def, "send_device_incarnation", &incarnation));
  assert_int_equal((uint64_t)incarnation, 0xfedcba9876543210u);
  assert_null(td_attr_bool(&recv->def, "client_terminated", &client));
  assert_true(client);
  assert_true(td_str_is(recv->original, "a"));
  td_graph_release(p);
  td_graph_release(g);
}

static void test_loops_are_followed(void **state) {
  assert_pruned(
      "zero = Placeholder() {dtype: int32}\n"
      "enter = Enter(zero) {T: int32; frame_name: 'loop'}\n"
      "merge = Merge(enter, next) {T: int32; N: 2}\n"
      "less = Less(merge, merge) {T: int32}\n"
      "cond = LoopCond(less)\n"
      "switch = Switch(merge, cond) {T: int32}\n"
      "next = NextIteration(switch:1) {T: int32}\n"
      "exit = Exit(switch) {T: int32}\n"
      "off = Neg(exit) {T: int32}\n",
      (names){.targets = {"exit"}},
      "cond = LoopCond(less)\nenter = Enter(zero)\nexit = Exit(switch)\nless = Less(merge, merge)\n"
      "merge = Merge(enter, next)\nnext = NextIteration(switch:1)\nswitch = Switch(merge, cond)\nzero = "
      "Placeholder()\n");
}

static void test_errors(void **state) {
  assert_fails(GRAPH, (names){.feeds = {"a:0"}}, TD_INVALID_ARGUMENT,
               "Must specify at least one target to fetch or execute.");
  assert_fails(GRAPH, (names){.feeds = {"a:0", "a:0"}, .targets = {"d"}}, TD_INVALID_ARGUMENT,
               "Endpoint \"a:0\" fed more than once.");
  assert_fails(GRAPH, (names){.feeds = {"a:0", "a"}, .targets = {"d"}}, TD_INVALID_ARGUMENT,
               "Endpoint \"a\" fed more than once.");
  assert_fails(GRAPH, (names){.feeds = {"a:0"}, .fetches = {"a:0"}}, TD_INVALID_ARGUMENT,
               "a:0 is both fed and fetched.");
  assert_fails(GRAPH, (names){.feeds = {"x:0"}, .targets = {"d"}}, TD_NOT_FOUND,
               "FeedInputs: unable to find feed output x:0");
  assert_fails(GRAPH, (names){.feeds = {"a:7"}, .targets = {"d"}}, TD_INVALID_ARGUMENT,
               "FeedInputs: a:7 should have output index < 1");
  assert_fails(GRAPH, (names){.fetches = {"x:0"}}, TD_NOT_FOUND, "FetchOutputs node x:0: not found");
  assert_fails(GRAPH, (names){.fetches = {"b:1"}}, TD_INVALID_ARGUMENT,
               "FetchOutputs b:1: output index too large, must be < 1");
  assert_fails(
      GRAPH, (names){.fetches = {"d:0"}}, TD_INVALID_ARGUMENT,
      "Tried to fetch data for 'd:0', which produces no output.  To run to a node but not fetch any data, pass "
      "'d:0' as an argument to the 'target_node_names' argument of the Session::Run API.");
  assert_fails("v = VariableV2() {dtype: float; shape: unknown}\na = AssignAdd(v, v) {T: float}",
               (names){.feeds = {"v:0"}, .targets = {"a"}}, TD_INVALID_ARGUMENT,
               "Input 0 of node a was passed float from _recv_v_0:0 incompatible with expected float_ref.");
  assert_fails(GRAPH, (names){.targets = {"x", "d", "^d"}}, TD_NOT_FOUND,
               "PruneForTargets: Some target nodes not found: x ^d ");
}

static void test_names(void **state) {
  td_str node;
  int index;
  assert_true(td_tensor_name_parse(TD_STR("a/b:12"), &node, &index));
  assert_true(td_str_is(node, "a/b") && index == 12);
  assert_true(td_tensor_name_parse(TD_STR("a"), &node, &index));
  assert_true(td_str_is(node, "a") && index == 0);
  assert_false(td_tensor_name_parse(TD_STR("^a"), &node, &index));
  assert_false(td_tensor_name_parse(TD_STR(""), &node, &index));
  assert_false(td_tensor_name_parse(TD_STR(":0"), &node, &index));
  assert_false(td_tensor_name_parse(TD_STR("a:"), &node, &index) && index != 0);
  assert_false(td_tensor_name_parse(TD_STR("a:4294967296"), &node, &index));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_feeds_and_fetches),
      cmocka_unit_test(test_control_edges_of_fed_nodes),
      cmocka_unit_test(test_other_spelling),
      cmocka_unit_test(test_attributes),
      cmocka_unit_test(test_loops_are_followed),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

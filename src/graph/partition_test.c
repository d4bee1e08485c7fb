/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/partition.h"
#include "base/testing.h"

#include "base/mem.h"
#include "graph/import.h"
#include "graph/testing.h"

static td_arena arena;

#define A    "/job:a/replica:0/task:0"
#define B    "/job:a/replica:0/task:1"
#define CPU0 "/device:CPU:0"
#define CPU1 "/device:CPU:1"

static td_graph_test_cluster cluster(void) { return td_graph_test_devices(&arena, "a", 2, 2); }

/* The text's devices are full; placement only has to accept them. */
static td_graph *placed(const char *text) {
  td_graph_test_cluster c = cluster();
  td_graph *g = td_graph_test_graph(text);
  td_place_options o = {.devices = c.devices, .device_count = c.count};
  must(td_graph_place(g, &o));
  return g;
}

static td_status partition(td_graph *g, bool by_task, td_partition **out, size_t *count) {
  td_graph_test_cluster c = cluster();
  int64_t k = 0;
  td_partition_options o = {.by_task = by_task,
                            .suffix = by_task ? 'S' : 'G',
                            .next_suffix = &k,
                            .incarnation = td_graph_test_incarnation,
                            .arg = &c};
  return td_graph_partition(g, &o, out, count);
}

static void assert_partitions(const char *text, bool by_task, const char *expected) {
  td_graph *g = placed(text);
  td_partition *parts;
  size_t count;
  char *before = td_graph_test_print(g, &arena);
  td_status s = partition(g, by_task, &parts, &count);
  if (s) fail_msg("%s", td_status_message(s));
  assert_string_equal(td_graph_test_print(g, &arena), before);
  td_graph_release(g); /* partitions keep what they need */
  td_strbuf b = {0};
  for (size_t i = 0; i < count; i++)
    td_strbuf_printf(&b, "== %.*s\n%s", TD_STR_ARG(parts[i].location), td_graph_test_print(parts[i].graph, &arena));
  td_partitions_free(parts, count);
  assert_string_equal(td_strbuf_cstr(&b), expected);
  td_strbuf_deinit(&b);
}

static void test_one_partition(void **state) {
  assert_partitions("a = Placeholder() @" A CPU0 " {dtype: float}\nb = Neg(a) @" A CPU1 " {T: float}", true,
                    "== " A "\na = Placeholder() @" A CPU0 "\nb = Neg(a) @" A CPU1 "\n");
}

static void test_data_edge_is_shared(void **state) {
  assert_partitions("a = Placeholder() @" A CPU0 " {dtype: float}\nb = Neg(a) @" B CPU0
                    " {T: float}\nc = Neg(a) @" B CPU1 " {T: float}",
                    true,
                    "== " A "\na = Placeholder() @" A CPU0 "\na_S0 = _Send(a) @" A CPU0
                    "\n"
                    "== " B "\na_S1 = _Recv() @" B CPU0 "\nb = Neg(a_S1) @" B CPU0 "\nc = Neg(a_S1) @" B CPU1 "\n");
}

static void test_by_device(void **state) {
  assert_partitions("a = Placeholder() @" A CPU0 " {dtype: float}\nb = Neg(a) @" A CPU1 " {T: float}", false,
                    "== " A CPU0 "\na = Placeholder() @" A CPU0 "\na_G0 = _Send(a) @" A CPU0
                    "\n"
                    "== " A CPU1 "\na_G1 = _Recv() @" A CPU1 "\nb = Neg(a_G1) @" A CPU1 "\n");
}

static void test_control_edge(void **state) {
  assert_partitions("a = NoOp() @" A CPU0 "\nb = NoOp(^a) @" B CPU0 "\nc = NoOp(^a) @" B CPU0, true,
                    "== " A "\na = NoOp() @" A CPU0 "\na_S0 = Const(^a) @" A CPU0 "\na_S1 = _Send(a_S0) @" A CPU0
                    "\n"
                    "== " B "\na_S2 = _Recv() @" B CPU0 "\na_S3 = Identity(a_S2) @" B CPU0 "\nb = NoOp(^a_S3) @" B CPU0
                    "\nc = NoOp(^a_S3) @" B CPU0 "\n");
}

static void test_remote_reads_of_variables(void **state) {
  /* They are not shared, and happen after the node's other inputs. */
  assert_partitions("v = VariableV2() @" A CPU0
                    " {dtype: float; shape: unknown}\n"
                    "b = Neg(v) @" B CPU0 " {T: float}\nc = Add(v, b) @" B CPU0 " {T: float}\n",
                    true,
                    "== " A "\nb_S6 = _Recv() @" A CPU0 "\nb_S7 = Identity(b_S6) @" A CPU0 "\nv = VariableV2() @" A CPU0
                    "\nv_S0 = _Send(v) @" A CPU0 "\nv_S2 = _Send(v, ^b_S7) @" A CPU0
                    "\n"
                    "== " B "\nb = Neg(v_S1) @" B CPU0 "\nb_S4 = Const(^b) @" B CPU0 "\nb_S5 = _Send(b_S4) @" B CPU0
                    "\nc = Add(v_S3, b) @" B CPU0 "\nv_S1 = _Recv() @" B CPU0 "\nv_S3 = _Recv(^b) @" B CPU0 "\n");
  /* An update where the variable is costs nothing extra. */
  assert_partitions("v = VariableV2() @" A CPU0 " {dtype: float; shape: unknown}\nx = Placeholder() @" A CPU0
                    " {dtype: float}\n"
                    "u = AssignAdd(v, x) @" A CPU0 " {T: float}\nr = Identity(v, ^u) @" B CPU0 " {T: float}\n",
                    true,
                    "== " A "\nu = AssignAdd(v, x) @" A CPU0 "\nu_S2 = Const(^u) @" A CPU0
                    "\nu_S3 = _Send(u_S2) @" A CPU0 "\nv = VariableV2() @" A CPU0 "\nv_S0 = _Send(v, ^u) @" A CPU0
                    "\nx = Placeholder() @" A CPU0
                    "\n"
                    "== " B "\nr = Identity(v_S1, ^u_S5) @" B CPU0 "\nu_S4 = _Recv() @" B CPU0
                    "\nu_S5 = Identity(u_S4) @" B CPU0 "\nv_S1 = _Recv(^u_S5) @" B CPU0 "\n");
}

static void test_attributes(void **state) {
  td_graph *g =
      placed("v = VariableV2() @" A CPU1 " {dtype: int32; shape: unknown}\nb = Neg(v) @" B CPU0 " {T: int32}");
  td_partition *parts;
  size_t count;
  assert_null(partition(g, true, &parts, &count));
  assert_int_equal(count, 2);
  td_node *pair[] = {td_graph_find(parts[0].graph, TD_STR("v_S0")), td_graph_find(parts[1].graph, TD_STR("v_S1"))};
  for (int i = 0; i < 2; i++) {
    td_str s;
    int64_t incarnation;
    bool client = true;
    td_dtype type;
    assert_int_equal(pair[i]->def.attr_count, 6);
    assert_null(td_attr_type(&pair[i]->def, i ? "tensor_type" : "T", &type));
    assert_int_equal(type, TD_INT32);
    assert_null(td_attr_str(&pair[i]->def, "tensor_name", &s));
    assert_true(td_str_is(s, "edge_0_v"));
    assert_null(td_attr_str(&pair[i]->def, "send_device", &s));
    assert_true(td_str_is(s, A CPU1));
    assert_null(td_attr_str(&pair[i]->def, "recv_device", &s));
    assert_true(td_str_is(s, B CPU0));
    assert_null(td_attr_int(&pair[i]->def, "send_device_incarnation", &incarnation));
    assert_int_equal(incarnation, 2);
    assert_null(td_attr_bool(&pair[i]->def, "client_terminated", &client));
    assert_false(client);
    assert_true(td_str_is(pair[i]->original, "v"));
  }
  Pb__GraphDef *def = td_graph_to_proto(parts[1].graph, &arena);
  for (size_t i = 0; i < def->n_node; i++) /* a peer names the user's node in its errors */
    if (!strcmp(def->node[i]->name, "v_S1"))
      assert_string_equal(def->node[i]->experimental_debug_info->original_node_names[0], "v");
  td_import_options o = {.is_partition = true};
  td_graph *again;
  assert_null(td_graph_import(def, NULL, &o, &again));
  assert_true(td_str_is(td_graph_find(again, TD_STR("v_S1"))->original, "v"));
  td_graph_release(again);
  td_partitions_free(parts, count);
  td_graph_release(g);
}

static void test_unknown_incarnation_is_filled_in(void **state) {
  td_graph *g = placed("r = _Recv() @" B CPU0 " {tensor_type: float; tensor_name: 'x'; send_device: '" A CPU1
                       "'; recv_device: '" B CPU0 "'; send_device_incarnation: 0}\nn = Neg(r) @" B CPU0 " {T: float}");
  td_partition *parts;
  size_t count;
  int64_t incarnation;
  assert_null(partition(g, false, &parts, &count));
  assert_null(td_attr_int(&td_graph_find(parts[0].graph, TD_STR("r"))->def, "send_device_incarnation", &incarnation));
  assert_int_equal(incarnation, 2);
  assert_null(td_attr_int(&td_graph_find(g, TD_STR("r"))->def, "send_device_incarnation", &incarnation));
  assert_int_equal(incarnation, 0);
  td_partitions_free(parts, count);
  td_graph_release(g);
}

static void test_conditional_goes_to_the_data(void **state) {
  /* the Switch moves to the variable, so that only the taken branch reads it remotely */
  assert_partitions("v = VariableV2() @" A CPU0 " {dtype: float; shape: unknown}\np = Placeholder() @" B CPU0
                    " {dtype: bool}\n"
                    "r = Identity(v) @" A CPU0 " {T: float}\ns = Switch(r, p) @" B CPU0
                    " {T: float}\nn = Neg(s:1) @" B CPU0 " {T: float}",
                    true,
                    "== " A "\np_S1 = _Recv() @" A CPU0 "\nr = Identity(v) @" A CPU0 "\ns = Switch(r, p_S1) @" A CPU0
                    "\ns_S2 = _Send(s:1) @" A CPU0 "\nv = VariableV2() @" A CPU0
                    "\n"
                    "== " B "\nn = Neg(s_S3) @" B CPU0 "\np = Placeholder() @" B CPU0 "\np_S0 = _Send(p) @" B CPU0
                    "\ns_S3 = _Recv() @" B CPU0 "\n");
}

#define LOOP(device)                      \
  "zero = Placeholder() @" A CPU0         \
  " {dtype: int32}\n"                     \
  "enter = Enter(zero) @" A CPU0          \
  " {T: int32; frame_name: 'loop'}\n"     \
  "merge = Merge(enter, next) @" A CPU0   \
  " {T: int32; N: 2}\n"                   \
  "less = Less(merge, merge) @" A CPU0    \
  " {T: int32}\n"                         \
  "cond = LoopCond(less) @" A CPU0        \
  "\n"                                    \
  "switch = Switch(merge, cond) @" A CPU0 \
  " {T: int32}\n"                         \
  "body = Neg(switch:1) @" device         \
  " {T: int32}\n"                         \
  "next = NextIteration(body) @" A CPU0   \
  " {T: int32}\n"                         \
  "exit = Exit(switch) @" A CPU0 " {T: int32}\n"

static void test_loop_across_tasks(void **state) {
  /* Both tasks receive once an iteration; task 1 runs a loop of its own, driven by the predicate of task 0. */
  assert_partitions(
      LOOP(B CPU0), true,
      "== " A
      "\n"
      "_cloopnext_S5 = Enter(next_S9) @" A CPU0 "\n_cloopnext_S6 = Merge(_cloopnext_S5, _cloopnext_S8) @" A CPU0
      "\n"
      "_cloopnext_S7 = Switch(_cloopnext_S6, cond) @" A CPU0 "\n_cloopnext_S8 = NextIteration(_cloopnext_S7:1) @" A CPU0
      "\n"
      "body_S13 = _Recv(^_cloopnext_S6) @" A CPU0
      "\n"
      "cond = LoopCond(less) @" A CPU0 "\ncond_S14 = _Send(cond) @" A CPU0 "\nenter = Enter(zero) @" A CPU0
      "\n"
      "exit = Exit(switch) @" A CPU0 "\nless = Less(merge, merge) @" A CPU0 "\nmerge = Merge(enter, next) @" A CPU0
      "\n"
      "next = NextIteration(body_S13) @" A CPU0 "\nnext_S9 = Const() @" A CPU0 "\nswitch = Switch(merge, cond) @" A CPU0
      "\n"
      "switch_S10 = _Send(switch:1) @" A CPU0 "\nzero = Placeholder() @" A CPU0
      "\n"
      "== " B
      "\n"
      "_cloopbody_S0 = Enter(body_S4) @" B CPU0 "\n_cloopbody_S1 = Merge(_cloopbody_S0, _cloopbody_S3) @" B CPU0
      "\n"
      "_cloopbody_S2 = Switch(_cloopbody_S1, cond_S15) @" B CPU0
      "\n"
      "_cloopbody_S3 = NextIteration(_cloopbody_S2:1) @" B CPU0
      "\n"
      "body = Neg(switch_S11) @" B CPU0 "\nbody_S12 = _Send(body) @" B CPU0 "\nbody_S4 = Const() @" B CPU0
      "\n"
      "cond_S15 = _Recv(^_cloopbody_S1) @" B CPU0 "\nswitch_S11 = _Recv(^_cloopbody_S1) @" B CPU0 "\n");
}

static void test_loop_across_devices_of_a_task(void **state) {
  /* The master adds the control loop but cuts nothing; the worker's split then finds the control edges. */
  td_graph *g = placed(LOOP(A CPU1));
  td_partition *by_task, *by_device;
  size_t tasks, devices;
  assert_null(partition(g, true, &by_task, &tasks));
  assert_int_equal(tasks, 1);
  td_graph_release(g);
  assert_null(partition(by_task[0].graph, false, &by_device, &devices));
  assert_int_equal(devices, 2);
  for (size_t d = 0; d < devices; d++) {
    td_frames frames;
    assert_null(td_graph_frames(by_device[d].graph, &arena, &frames));
    assert_int_equal(frames.count, 2);
    for (size_t i = 0; i < by_device[d].graph->node_count; i++) {
      const td_node *n = by_device[d].graph->nodes[i];
      if (n->kind != TD_NODE_RECV) continue;
      assert_non_null(n->in_edges); /* one receive per iteration */
      assert_int_equal(n->in_edges->src->kind, TD_NODE_MERGE);
    }
  }
  td_partitions_free(by_device, devices);
  td_partitions_free(by_task, tasks);
}

static void assert_fails(const char *text, bool by_task, td_code code, const char *message) {
  td_graph *g = placed(text);
  td_partition *parts;
  size_t count;
  td_status s = partition(g, by_task, &parts, &count);
  assert_non_null(s);
  if (!strstr(td_status_message(s), message)) fail_msg("'%s' is not in '%s'", message, td_status_message(s));
  assert_int_equal(td_status_code(s), code);
  td_status_free(s);
  td_graph_release(g);
}

static void test_errors(void **state) {
  assert_fails("a = Placeholder() @" A CPU0 " {dtype: float}\ne = Enter(a) @" A CPU0
               " {T: float; frame_name: 'f'}\n"
               "b = Neg(e) @" B CPU0 " {T: float}\nc = Neg(b) @" A CPU0 " {T: float}",
               true, TD_INVALID_ARGUMENT, "A cross-device loop must have a pivot predicate: f");
  assert_fails("a = Placeholder() @" A CPU0 " {dtype: float}\ne = Enter(a) @" A CPU0
               " {T: float; frame_name: 'f'}\n"
               "b = Add(a, e) @" A CPU0 " {T: float}",
               true, TD_INVALID_ARGUMENT,
               "{{node b}} has inputs from different frames. The input {{node e}} is in frame");
  td_graph *g = placed("a = Placeholder() {dtype: float}\nb = Neg(a) {T: float}");
  td_partition *parts;
  size_t count;
  td_graph_remove_edge(g, td_graph_find(g, TD_STR("b"))->in[0]);
  td_status s = partition(g, true, &parts, &count);
  assert_string_equal(td_status_message(s), "Incomplete graph, missing 1 inputs for b");
  td_status_free(s);
  td_graph_release(g);
}

static void test_user_names_are_not_taken(void **state) {
  assert_partitions("a = Placeholder() @" A CPU0 " {dtype: float}\na_S0 = Neg(a) @" B CPU0 " {T: float}", true,
                    "== " A "\na = Placeholder() @" A CPU0 "\na_S1 = _Send(a) @" A CPU0
                    "\n"
                    "== " B "\na_S0 = Neg(a_S2) @" B CPU0 "\na_S2 = _Recv() @" B CPU0 "\n");
}

static int reset(void **state) {
  td_arena_deinit(&arena);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_partition),
      cmocka_unit_test(test_data_edge_is_shared),
      cmocka_unit_test(test_by_device),
      cmocka_unit_test(test_control_edge),
      cmocka_unit_test(test_remote_reads_of_variables),
      cmocka_unit_test(test_attributes),
      cmocka_unit_test(test_unknown_incarnation_is_filled_in),
      cmocka_unit_test(test_conditional_goes_to_the_data),
      cmocka_unit_test(test_loop_across_tasks),
      cmocka_unit_test(test_loop_across_devices_of_a_task),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_user_names_are_not_taken),
  };
  return cmocka_run_group_tests(tests, NULL, reset);
}

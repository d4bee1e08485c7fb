/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/import.h"
#include "base/testing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "graph/testing.h"

static td_status import(const char *text, td_graph **out) {
  td_arena a = {0};
  td_graph_test_register();
  return td_graph_import(td_graph_test_def(&a, text), &a, NULL, out);
}

static void assert_import_fails(const char *graph, td_code code, const char *text) {
  td_graph *g = NULL;
  must_fail(import(graph, &g), code, text);
  assert_null(g);
}

static void assert_graph(const td_graph *g, const char *expected) {
  td_arena a = {0};
  assert_string_equal(td_graph_test_print(g, &a), expected);
  td_arena_deinit(&a);
}

static void test_nodes_and_edges(void **state) {
  td_graph *g = td_graph_test_graph(
      "p = Pair() {T: float}\n"
      "s = Add(p:1, p) @/job:ps {T: float}\n"
      "n = NoOp(^s, ^p, ^s)\n");
  assert_graph(g, "n = NoOp(^s, ^p)\np = Pair()\ns = Add(p:1, p)\n");
  td_node *s = td_graph_find(g, TD_STR("s"));
  assert_int_equal(s->input_count, 2);
  assert_int_equal(s->in[0]->src_slot, 1);
  assert_true(td_str_is(s->def.device, "/job:ps"));
  assert_int_equal(s->input_types[0], TD_FLOAT);
  td_graph_release(g);
}

static void test_defaults_are_added(void **state) {
  td_graph *g = td_graph_test_graph("p = Placeholder() {dtype: float}\nm = MatMul(p, p) {T: float}");
  bool transpose = true;
  assert_null(td_attr_bool(&td_graph_find(g, TD_STR("m"))->def, "transpose_a", &transpose));
  assert_false(transpose);
  td_graph_release(g);
}

static void test_last_of_equal_attributes_counts(void **state) {
  td_strbuf text = {0};
  td_strbuf_puts(&text, "a = NoOp() {_x: 1");
  for (int i = 0; i < 30; i++) td_strbuf_printf(&text, "; _y%d: 2", i);
  td_strbuf_puts(&text, "; _x: 3}\nb = NoOp() {_x: 4; _x: 5}");
  td_graph *g = td_graph_test_graph(td_strbuf_cstr(&text));
  int64_t x;
  assert_int_equal(g->nodes[0]->def.attr_count, 31);
  assert_null(td_attr_int(&g->nodes[0]->def, "_x", &x));
  assert_int_equal(x, 3);
  assert_null(td_attr_int(&g->nodes[1]->def, "_x", &x));
  assert_int_equal(x, 5);
  td_strbuf_deinit(&text);
  td_graph_release(g);
}

static void test_order_is_topological(void **state) {
  td_graph *g = td_graph_test_graph(
      "c = Add(b, a) {T: float}\n"
      "b = Neg(a) {T: float}\n"
      "a = Placeholder() {dtype: float}\n");
  assert_true(td_str_is(g->nodes[0]->def.name, "a"));
  assert_true(td_str_is(g->nodes[1]->def.name, "b"));
  assert_true(td_str_is(g->nodes[2]->def.name, "c"));
  td_graph_release(g);
}

#define WHILE_LOOP                                       \
  "zero = Placeholder() {dtype: int32}\n"                \
  "enter = Enter(zero) {T: int32; frame_name: 'loop'}\n" \
  "merge = Merge(enter, next) {T: int32; N: 2}\n"        \
  "less = Less(merge, merge) {T: int32}\n"               \
  "cond = LoopCond(less)\n"                              \
  "switch = Switch(merge, cond) {T: int32}\n"            \
  "body = Neg(switch:1) {T: int32}\n"                    \
  "next = NextIteration(body) {T: int32}\n"              \
  "exit = Exit(switch) {T: int32}\n"

static void test_back_edges(void **state) {
  td_graph *g = td_graph_test_graph(WHILE_LOOP);
  td_node *merge = td_graph_find(g, TD_STR("merge"));
  assert_int_equal(merge->in[1]->src->kind, TD_NODE_NEXT_ITERATION);
  assert_ptr_equal(merge->in[0]->next_in, merge->in[1]);
  td_graph_release(g);
  assert_import_fails("a = Neg(b) {T: float}\nb = Neg(a) {T: float}\nc = NoOp()", TD_INVALID_ARGUMENT,
                      "2 nodes in a cycle");
  assert_import_fails("m = Merge(n, n) {T: float; N: 2}\nn = NextIteration(m) {T: float}", TD_INVALID_ARGUMENT,
                      "2 nodes in a cycle");
}

static void test_texts(void **state) {
  assert_import_fails("_a = NoOp()", TD_INVALID_ARGUMENT, "Illegal op name '_a'\n\t [[{{node _a}}]]");
  assert_import_fails("a = NoOp()\na = NoOp()", TD_INVALID_ARGUMENT, "Node 'a' is not unique");
  assert_import_fails("a = Nonesuch()", TD_NOT_FOUND, "Op type not registered 'Nonesuch' in binary running on ");
  assert_import_fails("a = Neg(b) {T: float}", TD_INVALID_ARGUMENT, "Node 'a': Unknown input node 'b'");
  assert_import_fails("p = Placeholder() {dtype: float}\na = Neg(p:1) {T: float}", TD_INVALID_ARGUMENT,
                      "Node 'a': Connecting to invalid output 1 of source node p which has 1 outputs.");
  assert_import_fails("p = Placeholder() {dtype: int32}\na = Neg(p) {T: float}", TD_INVALID_ARGUMENT,
                      "Input 0 of node a was passed int32 from p:0 incompatible with expected float.");
  assert_import_fails("p = Placeholder() {dtype: float}\na = Add(p) {T: float}", TD_INVALID_ARGUMENT,
                      "NodeDef expected inputs 'float, float' do not match 1 inputs specified; ");
  assert_import_fails("p = Placeholder()", TD_INVALID_ARGUMENT,
                      "NodeDef missing attr 'dtype' from Op<name=Placeholder");
  assert_import_fails("p = NoOp() {x: 1}", TD_INVALID_ARGUMENT, "NodeDef mentions attr 'x' not in Op<name=NoOp");
  assert_import_fails("p = Placeholder() {dtype: float}\na = Assign(p, p) {T: float}", TD_INVALID_ARGUMENT,
                      "incompatible with expected float_ref");
  assert_import_fails("a = Neg(b:99999999999) {T: float}", TD_INVALID_ARGUMENT,
                      "Illegal op input name 'b:99999999999'");
  assert_import_fails("a = NoOp()\nb = Neg(^a, a) {T: float}", TD_INVALID_ARGUMENT,
                      "All control inputs must follow all data inputs");
}

static void test_ref_feeds_value(void **state) {
  td_graph *g = td_graph_test_graph("v = VariableV2() {dtype: float; shape: unknown}\nr = Identity(v) {T: float}");
  assert_int_equal(g->nodes[0]->output_types[0], TD_FLOAT + TD_REF_OFFSET);
  td_graph_release(g);
}

static void test_versions(void **state) {
  td_arena a = {0};
  Pb__VersionDef v = PB__VERSION_DEF__INIT;
  td_graph_test_register();
  Pb__GraphDef *def = td_graph_test_def(&a, "a = NoOp() {newer: 1}");
  td_graph *g = NULL;
  def->versions = &v;
  v.producer = 1645;
  v.min_consumer = 9999;
  must_fail(td_graph_import(def, NULL, NULL, &g), TD_INVALID_ARGUMENT,
            "GraphDef min consumer version 9999 above current version 2000 for TensorFlow");
  v.min_consumer = 12;
  must_fail(td_graph_import(def, NULL, NULL, &g), TD_INVALID_ARGUMENT, "mentions attr 'newer'");
  v.producer = 1800; /* newer than what is known here */
  assert_null(td_graph_import(def, NULL, NULL, &g));
  assert_int_equal(g->producer, 1800);
  assert_int_equal(g->min_consumer, 12);
  td_graph_release(g);
  int32_t bad = 2000;
  v.bad_consumers = &bad;
  v.n_bad_consumers = 1;
  must_fail(td_graph_import(def, NULL, NULL, &g), TD_INVALID_ARGUMENT, "disallows consumer version 2000");
  td_arena_deinit(&a);
}

static void test_partition_needs_devices(void **state) {
  td_arena a = {0};
  td_graph_test_register();
  td_import_options o = {.is_partition = true};
  td_graph *g = NULL;
  Pb__GraphDef *def = td_graph_test_def(&a, "_a = NoOp()");
  must_fail(td_graph_import(def, NULL, &o, &g), TD_INVALID_ARGUMENT, "Node '_a' is missing a device specification");
  def->node[0]->device = "/job:w";
  def->node[0]->input = (char *[]){"^_a:0"};
  def->node[0]->n_input = 1;
  must_fail(td_graph_import(def, NULL, &o, &g), TD_INVALID_ARGUMENT,
            "Control input '^_a:0' must not have ':' in NodeDef");
  def->node[0]->n_input = 0;
  def->node[0]->name = "a;b";
  must_fail(td_graph_import(def, NULL, &o, &g), TD_INVALID_ARGUMENT,
            "Node 'a;b': Node name contains invalid characters");
  def->node[0]->name = "_a";
  def->node[0]->device = "/job:w/replica:0/task:0/device:CPU:0";
  assert_null(td_graph_import(def, NULL, &o, &g));
  assert_true(td_str_is(g->nodes[0]->device, def->node[0]->device));
  td_graph_release(g);
  td_arena_deinit(&a);
}

/* ---- Extend ---- */

static td_status extend(td_graph *g, const char *text) {
  td_arena a = {0};
  return td_graph_extend(g, td_graph_test_def(&a, text), &a);
}

static void test_extend(void **state) {
  td_graph *g = td_graph_test_graph("a = Placeholder() {dtype: float}\nb = Neg(a) {T: float}");
  assert_null(extend(g, "c = Add(a, b) {T: float; _class: ['loc:@a']}\nd = NoOp(^c, ^b)"));
  assert_graph(g, "a = Placeholder()\nb = Neg(a)\nc = Add(a, b)\nd = NoOp(^c, ^b)\n");
  must_fail(extend(g, "e = NoOp()\nb = NoOp()"), TD_INVALID_ARGUMENT,
            "GraphDef argument to Extend includes node 'b', which was created by a previous call to Create or Extend "
            "in this session.");
  must_fail(extend(g, "e = Neg(a) {T: float}\nf = Neg(x) {T: float}"), TD_INVALID_ARGUMENT, "Unknown input node 'x'");
  must_fail(extend(g, "e = Neg(a) {T: float}\nf = Neg(e) {T: int32}"), TD_INVALID_ARGUMENT, "incompatible");
  assert_graph(g, "a = Placeholder()\nb = Neg(a)\nc = Add(a, b)\nd = NoOp(^c, ^b)\n");
  assert_null(extend(g, "e = Neg(c) {T: float}"));
  assert_int_equal(g->node_count, 5);
  td_graph_release(g);
}

/* ---- functions ---- */

static Pb__FunctionDef *function(td_arena *a, const char *name, const char *body) {
  Pb__FunctionDef *f = td_arena_new(a, Pb__FunctionDef);
  pb__function_def__init(f);
  f->signature = td_arena_new(a, Pb__OpDef);
  pb__op_def__init(f->signature);
  f->signature->name = td_arena_strdup(a, name);
  Pb__GraphDef *nodes = td_graph_test_def(a, body);
  f->node_def = nodes->node;
  f->n_node_def = nodes->n_node;
  return f;
}

static void set_library(td_arena *a, Pb__GraphDef *def, size_t count, Pb__FunctionDef **functions) {
  def->library = td_arena_new(a, Pb__FunctionDefLibrary);
  pb__function_def_library__init(def->library);
  def->library->n_function = count;
  def->library->function = functions;
}

static void test_functions(void **state) {
  td_arena a = {0};
  td_graph *g = NULL;
  td_graph_test_register();
  Pb__FunctionDef *functions[] = {function(&a, "f", "n = h()"), function(&a, "h", "n = NoOp()"),
                                  function(&a, "unused", "n = NoOp()")};
  Pb__GraphDef *def = td_graph_test_def(&a, "call = f()");
  set_library(&a, def, 3, functions);
  assert_null(td_graph_import(def, NULL, NULL, &g));
  assert_true(td_str_is(g->nodes[0]->op->name, "f"));
  td_arena out = {0};
  Pb__GraphDef *again = td_graph_to_proto(g, &out);
  assert_int_equal(again->library->n_function, 2); /* f and, through it, h */
  td_library *before = g->library;
  Pb__GraphDef *more = td_graph_test_def(&a, "call2 = h()");
  set_library(&a, more, 3, functions);
  assert_null(td_graph_extend(g, more, NULL));
  assert_ptr_equal(g->library, before); /* the same functions again */
  Pb__GraphDef *other = td_graph_test_def(&a, "call3 = h()");
  Pb__FunctionDef *changed[] = {function(&a, "h", "n = NoOp()\nm = NoOp()")};
  set_library(&a, other, 1, changed);
  must_fail(td_graph_extend(g, other, NULL), TD_INVALID_ARGUMENT,
            "Cannot add function 'h' because a different function with the same name already exists.");
  Pb__FunctionDef *fresh[] = {function(&a, "k", "n = NoOp()")};
  set_library(&a, other, 1, fresh);
  other->node[0]->op = "k";
  assert_null(td_graph_extend(g, other, NULL));
  assert_non_null(td_library_find(g->library, TD_STR("f")));
  td_graph_release(g);
  td_arena_deinit(&out);
  td_arena_deinit(&a);
}

/* ---- round trip, size ---- */

static void test_round_trip(void **state) {
  td_graph *g = td_graph_test_graph(WHILE_LOOP "n = NoOp(^exit) @/job:ps/task:1\n"), *again = NULL;
  td_arena a = {0};
  Pb__GraphDef *def = td_graph_to_proto(g, &a);
  assert_null(td_graph_import(def, NULL, NULL, &again));
  assert_string_equal(td_graph_test_print(g, &a), td_graph_test_print(again, &a));
  assert_true(td_str_is(td_graph_find(again, TD_STR("n"))->def.device, "/job:ps/task:1"));
  td_graph_release(again);
  td_graph_release(g);
  td_arena_deinit(&a);
}

/* A fan of 20,000: every part must stay linear. */
static void test_wide_fan(void **state) {
  td_strbuf text = {0};
  td_strbuf_puts(&text, "p = Placeholder() {dtype: float}\n");
  for (int i = 0; i < 20000; i++) td_strbuf_printf(&text, "n%d = Neg(p) {T: float}\n", i);
  td_strbuf_puts(&text, "all = NoOp(");
  for (int i = 0; i < 20000; i++) td_strbuf_printf(&text, "%s^n%d", i ? "," : "", i);
  td_strbuf_puts(&text, ")\n");
  td_arena a = {0};
  td_graph *g = NULL;
  td_graph_test_register();
  Pb__GraphDef *def = td_graph_test_def(&a, td_strbuf_cstr(&text));
  assert_null(td_graph_import(def, &a, NULL, &g));
  size_t inputs = 0;
  for (td_edge *e = td_graph_find(g, TD_STR("all"))->in_edges; e; e = e->next_in) inputs++;
  assert_int_equal(inputs, 20000);
  td_graph_release(g);
  td_strbuf_deinit(&text);
}

static void test_outputs_are_bounded(void **state) {
  td_strbuf text = {0};
  td_strbuf_puts(&text, "p = Placeholder() {dtype: float}\nd = Placeholder() {dtype: int32}\n");
  for (int i = 0; i < 300; i++) td_strbuf_printf(&text, "s%d = Split(d, p) {T: float; num_split: 65536}\n", i);
  assert_import_fails(td_strbuf_cstr(&text), TD_RESOURCE_EXHAUSTED, "outputs");
  td_strbuf_deinit(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nodes_and_edges),
      cmocka_unit_test(test_defaults_are_added),
      cmocka_unit_test(test_last_of_equal_attributes_counts),
      cmocka_unit_test(test_order_is_topological),
      cmocka_unit_test(test_back_edges),
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_ref_feeds_value),
      cmocka_unit_test(test_versions),
      cmocka_unit_test(test_partition_needs_devices),
      cmocka_unit_test(test_extend),
      cmocka_unit_test(test_functions),
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_wide_fan),
      cmocka_unit_test(test_outputs_are_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

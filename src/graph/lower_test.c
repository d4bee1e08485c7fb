/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/lower.h"
#include "base/testing.h"

#include "base/mem.h"
#include "graph/gradient.h"
#include "graph/import.h"
#include "graph/prune.h"
#include "graph/testing.h"

static td_arena arena;

/* ---- libraries ---- */

typedef struct function {
  const char *name, *args, *results; /* "x: float, y: bool" */
  const char *nodes;                 /* as td_graph_test_def() reads them */
  const char *ret, *controls;        /* "z=n:z:0, …"; "n, m" */
  const char *mark;                  /* an attribute that is true; NULL: none */
} function;

static size_t read_args(const char *text, Pb__OpDef__ArgDef ***out) {
  size_t count = 0;
  *out = td_arena_array(&arena, Pb__OpDef__ArgDef *, 8);
  for (td_str rest = td_str_of(text); rest.size;) {
    td_str type = td_str_trim(td_str_split(&rest, ',')), name = td_str_split(&type, ':');
    Pb__OpDef__ArgDef *arg = (*out)[count++] = td_arena_new(&arena, Pb__OpDef__ArgDef);
    pb__op_def__arg_def__init(arg);
    arg->name = td_arena_strndup(&arena, name.data, name.size);
    arg->type = (int)td_dtype_parse(td_str_trim(type));
  }
  return count;
}

static size_t read_entries(const char *text, Pb__StringEntry ***out) {
  size_t count = 0;
  *out = td_arena_array(&arena, Pb__StringEntry *, 8);
  for (td_str rest = td_str_of(text); rest.size;) {
    td_str value = td_str_trim(td_str_split(&rest, ',')), key = td_str_split(&value, '=');
    if (!value.data) value = key;
    Pb__StringEntry *e = (*out)[count++] = td_arena_new(&arena, Pb__StringEntry);
    pb__string_entry__init(e);
    e->key = td_arena_strndup(&arena, key.data, key.size);
    e->value = td_arena_strndup(&arena, value.data, value.size);
  }
  return count;
}

static Pb__FunctionDef *read_function(const function *from) {
  Pb__FunctionDef *f = td_arena_new(&arena, Pb__FunctionDef);
  pb__function_def__init(f);
  f->signature = td_arena_new(&arena, Pb__OpDef);
  pb__op_def__init(f->signature);
  f->signature->name = td_arena_strdup(&arena, from->name);
  f->signature->n_input_arg = read_args(from->args, &f->signature->input_arg);
  f->signature->n_output_arg = read_args(from->results, &f->signature->output_arg);
  Pb__GraphDef *nodes = td_graph_test_def(&arena, from->nodes);
  f->node_def = nodes->node;
  f->n_node_def = nodes->n_node;
  f->n_ret = read_entries(from->ret, &f->ret);
  f->n_control_ret = read_entries(from->controls, &f->control_ret);
  if (from->mark) {
    f->attr = td_arena_array(&arena, Pb__AttrEntry *, 1);
    f->attr[0] = td_arena_new(&arena, Pb__AttrEntry);
    pb__attr_entry__init(f->attr[0]);
    f->attr[0]->key = td_arena_strdup(&arena, from->mark);
    f->attr[0]->value = td_attr_value_bool(&arena, true);
    f->n_attr = 1;
  }
  return f;
}

static const function functions[] = {
    {"twice", "x: float", "z: float", "n = Add(x, x) {T: float}", "z=n:z:0", "", NULL},
    {"kept", "x: float", "z: float", "n = Add(x, x) {T: float}", "z=n:z:0", "", "_noinline"},
    {"nested", "x: float", "z: float",
     "c = PartitionedCall(x) {Tin: [float]; Tout: [float]; f: func twice}\nd = twice(c:output:0)", "z=d:z:0", "", NULL},
    {"placed", "x: float", "z: float",
     "k = Const() {dtype: float; value: empty}\n"
     "n = Add(x, k:output:0) @/job:ps/task:1/cpu:0 {T: float; _class: ['loc:@k', 'loc:@outside', 'loc:@nobody']}",
     "z=n:z:0", "", NULL},
    {"effects", "x: float", "z: float", "a = Effect(x) {T: float}\nb = Effect(x) {T: float}\nn = Neg(x) {T: float}",
     "z=n:y:0", "a", NULL},
    {"cycle", "x: float", "z: float", "a = Add(x, b:y:0) {T: float}\nb = Neg(a:z:0) {T: float}", "z=b:y:0", "", NULL},
    {"self", "x: float", "z: float", "n = self(x)", "z=n:z:0", "", NULL},
    {"broken", "x: float", "z: float", "n = Neg(y) {T: float}", "z=n:y:0", "", NULL},
    {"looped", "x: float", "z: float", "e = Enter(x) {T: float; frame_name: 'f'}\nn = Exit(e:output:0) {T: float}",
     "z=n:output:0", "", NULL},
    {"less", "x: float", "z: bool", "n = Less(x, x) {T: float}", "z=n:z:0", "", NULL},
    {"constant", "x: float", "z: float", "k = Const() {dtype: float; value: empty}", "z=k:output:0", "", NULL},
    {"product", "x: float, y: float", "z: float",
     "a = Mul(x, y) {T: float}\nb = twice(a:z:0)\nc = Add(b:z:0, a:z:0) {T: float}", "z=c:z:0", "", NULL},
};

static td_library *library(void) {
  Pb__FunctionDefLibrary all = PB__FUNCTION_DEF_LIBRARY__INIT;
  Pb__FunctionDef *list[TD_COUNT(functions)];
  td_library *out;
  td_graph_test_register();
  for (size_t i = 0; i < TD_COUNT(functions); i++) list[i] = read_function(&functions[i]);
  all.function = list;
  all.n_function = TD_COUNT(functions);
  must(td_library_merge(NULL, &all, &out));
  return out;
}

static td_graph *import(const char *text) {
  Pb__FunctionDefLibrary all = PB__FUNCTION_DEF_LIBRARY__INIT;
  td_graph_test_register();
  Pb__GraphDef *def = td_graph_test_def(&arena, text);
  td_graph *g;
  def->library = &all;
  all.function = td_arena_array(&arena, Pb__FunctionDef *, TD_COUNT(functions));
  for (size_t i = 0; i < TD_COUNT(functions); i++) all.function[all.n_function++] = read_function(&functions[i]);
  must(td_graph_import(def, NULL, NULL, &g));
  return g;
}

/* ---- lowering ---- */

static td_graph *lowered(const char *text, bool inline_all) {
  td_graph *g = import(text);
  td_lower_options o = {.inline_all = inline_all, .max_nodes = 1000};
  must(td_graph_lower(g, 0, &o));
  return g;
}

static void assert_lowered(const char *text, bool inline_all, const char *expected) {
  td_graph *g = lowered(text, inline_all);
  assert_string_equal(td_graph_test_print(g, &arena), expected);
  td_graph_release(g);
}

#define CALL(f) "{Tin: [float]; Tout: [float]; f: func " f "}\n"
#define CLIENT  "/job:w/replica:0/task:0/device:CPU:0"
#define X       "x = Placeholder() {dtype: float}\n"

static void test_calls(void **state) {
  assert_lowered(X "c = PartitionedCall(x) @/job:ps " CALL("twice") "y = Neg(c) {T: float}\nw = NoOp(^c)", false,

                 "Func/c/input/_0 = Identity(x)\n"
                 "Func/c/output/_1 = Identity(c/n)\n"
                 "Func/c/output_control_node/_2 = NoOp(^Func/c/output/_1)\n"
                 "c = IdentityN(Func/c/output/_1, ^Func/c/output_control_node/_2)\n"
                 "c/n = Add(Func/c/input/_0, Func/c/input/_0)\n"
                 "w = NoOp(^Func/c/output_control_node/_2)\n"
                 "x = Placeholder()\n"
                 "y = Neg(Func/c/output/_1)\n");
  assert_lowered(X "p = NoOp()\nc = PartitionedCall(x, ^p) " CALL("constant"), false,
                 "Func/c/input/_1 = Identity(x, ^Func/c/input_control_node/_0)\n"
                 "Func/c/input_control_node/_0 = NoOp(^p)\n"
                 "Func/c/output/_2 = Identity(c/k)\n"
                 "Func/c/output_control_node/_3 = NoOp(^Func/c/output/_2)\n"
                 "c = IdentityN(Func/c/output/_2, ^Func/c/output_control_node/_3)\n"
                 "c/k = Const(^Func/c/input_control_node/_0)\n"
                 "p = NoOp()\n"
                 "x = Placeholder()\n");
  assert_lowered(X "c = PartitionedCall(x) " CALL("nested"), false,
                 "Func/c/c/input/_3 = Identity(Func/c/input/_0)\n"
                 "Func/c/c/output/_4 = Identity(c/c/n)\n"
                 "Func/c/c/output_control_node/_5 = NoOp(^Func/c/c/output/_4)\n"
                 "Func/c/input/_0 = Identity(x)\n"
                 "Func/c/output/_1 = Identity(c/d)\n"
                 "Func/c/output_control_node/_2 = NoOp(^Func/c/output/_1)\n"
                 "c = IdentityN(Func/c/output/_1, ^Func/c/output_control_node/_2)\n"
                 "c/c/n = Add(Func/c/c/input/_3, Func/c/c/input/_3)\n"
                 "c/d = twice(Func/c/c/output/_4)\n"
                 "x = Placeholder()\n");
}

static void test_what_stays(void **state) {
  const char *texts[] = {X "c = PartitionedCall(x) " CALL("kept"),
                         X "c = PartitionedCall(x) " CALL("broken"),
                         X "c = PartitionedCall(x) " CALL("cycle"),
                         X "c = twice(x)",
                         X "c = PartitionedCall(x) {Tin: [float]; Tout: [float, float]; f: func twice}",
                         X "c = PartitionedCall(x) {Tin: [float]; Tout: [float]; f: func twice; _xla_compile_id: 'a'}"};
  for (size_t i = 0; i < TD_COUNT(texts); i++) {
    td_graph *g = lowered(texts[i], false);
    assert_int_equal(g->node_count, 2);
    assert_false(td_graph_find(g, TD_STR("c"))->is_lowered);
    td_graph_release(g);
  }
  td_graph *g = lowered(X "c = self(x)", true);
  assert_non_null(td_graph_find(g, TD_STR("c/n")));
  assert_true(td_str_is(td_graph_find(g, TD_STR("c/n"))->def.op, "self"));
  td_graph_release(g);
}

static void test_devices_groups_frames(void **state) {
  td_graph *g = lowered(X "outside = NoOp()\nc = PartitionedCall(x) @/job:worker/task:3 " CALL(
                            "placed") "d = PartitionedCall(x) " CALL("placed") "e = PartitionedCall(x) " CALL("looped"),
                        false);
  td_node *n = td_graph_find(g, TD_STR("c/n"));
  const Pb__AttrValue *groups = td_attr_find(&n->def, "_class");
  assert_true(td_str_is(n->def.device, "/job:worker/task:3/device:CPU:0"));
  assert_true(td_str_is(n->original, "n"));
  assert_int_equal(groups->list->n_s, 2);
  assert_memory_equal(groups->list->s[0].data, "loc:@c/k", 8);
  assert_memory_equal(groups->list->s[1].data, "loc:@outside", 12);
  assert_true(td_str_is(td_graph_find(g, TD_STR("c/k"))->def.device, "/job:worker/task:3"));
  assert_true(td_str_is(td_graph_find(g, TD_STR("d/n"))->def.device, "/job:ps/task:1/device:CPU:0"));
  td_str frame;
  assert_null(td_attr_str(&td_graph_find(g, TD_STR("e/e"))->def, "frame_name", &frame));
  assert_true(td_str_is(frame, "e/f"));
  td_graph_release(g);
}

static void test_effects_come_before_results(void **state) {
  assert_lowered(X "c = PartitionedCall(x) " CALL("effects"), false,
                 "Func/c/input/_0 = Identity(x)\n"
                 "Func/c/output/_1 = Identity(c/n, ^Func/c/output_control_node/_2)\n"
                 "Func/c/output_control_node/_2 = NoOp(^c/a, ^c/b)\n"
                 "c = IdentityN(Func/c/output/_1, ^Func/c/output_control_node/_2)\n"
                 "c/a = Effect(Func/c/input/_0)\n"
                 "c/b = Effect(Func/c/input/_0)\n"
                 "c/n = Neg(Func/c/input/_0)\n"
                 "x = Placeholder()\n");
}

#define IF(t, e) "{Tcond: bool; Tin: [float]; Tout: [float]; then_branch: func " t "; else_branch: func " e "; "

static void test_if(void **state) {
  assert_lowered(X "p = Placeholder() {dtype: bool}\nq = NoOp()\ni = If(p, x, ^q) " IF(
                     "twice", "constant") "_lower_using_switch_merge: true}\ny = Neg(i) {T: float}",
                 false,
                 "Func/i/else/_4/input/_9 = Identity(i/x/_3, ^Func/i/else/_4/input_control_node/_8)\n"
                 "Func/i/else/_4/input_control_node/_8 = NoOp(^i/pivot_f/_1)\n"
                 "Func/i/else/_4/output/_10 = Identity(i/else/_4/k)\n"
                 "Func/i/else/_4/output_control_node/_11 = NoOp(^Func/i/else/_4/input_control_node/_8)\n"
                 "Func/i/then/_5/input/_13 = Identity(i/x/_3:1, ^Func/i/then/_5/input_control_node/_12)\n"
                 "Func/i/then/_5/input_control_node/_12 = NoOp(^i/pivot_t/_2)\n"
                 "Func/i/then/_5/output/_14 = Identity(i/then/_5/n)\n"
                 "Func/i/then/_5/output_control_node/_15 = NoOp(^Func/i/then/_5/input_control_node/_12)\n"
                 "i = IdentityN(i/output/_6, ^i/branch_executed/_7)\n"
                 "i/branch_executed/_7 = Merge(i/pivot_f/_1, i/pivot_t/_2, ^Func/i/else/_4/output_control_node/_11, "
                 "^Func/i/then/_5/output_control_node/_15)\n"
                 "i/else/_4/k = Const(^Func/i/else/_4/input_control_node/_8)\n"
                 "i/output/_6 = Merge(Func/i/else/_4/output/_10, Func/i/then/_5/output/_14)\n"
                 "i/pivot_f/_1 = Identity(i/switch_pred/_0)\n"
                 "i/pivot_t/_2 = Identity(i/switch_pred/_0:1)\n"
                 "i/switch_pred/_0 = Switch(p, p, ^q)\n"
                 "i/then/_5/n = Add(Func/i/then/_5/input/_13, Func/i/then/_5/input/_13)\n"
                 "i/x/_3 = Switch(x, p)\n"
                 "p = Placeholder()\n"
                 "q = NoOp()\n"
                 "x = Placeholder()\n"
                 "y = Neg(i/output/_6)\n");
  assert_lowered(
      X "p = Placeholder() {dtype: bool}\ni = If(p, x) " IF("twice", "less") "_lower_using_switch_merge: true}", false,
      "i = If(p, x)\np = Placeholder()\nx = Placeholder()\n");
  assert_lowered(X "p = Placeholder() {dtype: bool}\ni = If(p, x) " IF("twice", "constant") "}", false,
                 "i = If(p, x)\np = Placeholder()\nx = Placeholder()\n");
}

static void test_while(void **state) {
  assert_lowered(
      X
      "w = While(x) {T: [float]; cond: func less; body: func twice; _lower_using_switch_merge: true}\n"
      "y = Neg(w) {T: float}",
      false,
      "Func/w/body/_5/input/_15 = Identity(w/x_switch/_4:1, ^Func/w/body/_5/input_control_node/_14)\n"
      "Func/w/body/_5/input_control_node/_14 = NoOp(^w/loop_body_control/_6)\n"
      "Func/w/body/_5/output/_16 = Identity(w/body/_5/n)\n"
      "Func/w/body/_5/output_control_node/_17 = NoOp(^Func/w/body/_5/input_control_node/_14)\n"
      "Func/w/cond/_2/input/_11 = Identity(w/merge/_1, ^Func/w/cond/_2/input_control_node/_10)\n"
      "Func/w/cond/_2/input_control_node/_10 = NoOp(^w/merge/_1)\n"
      "Func/w/cond/_2/output/_12 = Identity(w/cond/_2/n)\n"
      "Func/w/cond/_2/output_control_node/_13 = NoOp(^Func/w/cond/_2/input_control_node/_10)\n"
      "w = IdentityN(w/exit/_7, ^w/LoopExecuted/_9)\n"
      "w/LoopCond/_3 = LoopCond(Func/w/cond/_2/output/_12)\n"
      "w/LoopExecuted/_9 = NoOp(^w/exit/_7)\n"
      "w/body/_5/n = Add(Func/w/body/_5/input/_15, Func/w/body/_5/input/_15)\n"
      "w/cond/_2/n = Less(Func/w/cond/_2/input/_11, Func/w/cond/_2/input/_11)\n"
      "w/enter/_0 = Enter(x)\n"
      "w/exit/_7 = Exit(w/x_switch/_4)\n"
      "w/loop_body_control/_6 = Identity(w/x_switch/_4:1)\n"
      "w/merge/_1 = Merge(w/enter/_0, w/next_iteration/_8)\n"
      "w/next_iteration/_8 = NextIteration(Func/w/body/_5/output/_16, ^Func/w/body/_5/output_control_node/_17)\n"
      "w/x_switch/_4 = Switch(w/merge/_1, w/LoopCond/_3)\n"
      "x = Placeholder()\n"
      "y = Neg(w/exit/_7)\n");
}

static void test_calls_in_loops(void **state) {
  td_graph *g = lowered(X "e = Enter(x) {T: float; frame_name: 'f'}\nc = PartitionedCall(e) " CALL("constant"), false);
  const td_node *k = td_graph_find(g, TD_STR("c/k"));
  assert_non_null(k->in_edges);
  assert_true(td_str_is(k->in_edges->src->in_edges->src->def.name, "e"));
  td_graph_release(g);
}

static void test_feeds_reach_consumers(void **state) {
  td_graph *g = lowered(X "c = PartitionedCall(x) " CALL("twice") "y = Neg(c) {T: float}", false), *client;
  td_str feed = TD_STR("c"), fetch = TD_STR("y");
  td_prune_options o = {.feeds = &feed,
                        .fetches = &fetch,
                        .feed_count = 1,
                        .fetch_count = 1,
                        .client_device = TD_STR(CLIENT),
                        .client_incarnation = 1};
  assert_null(td_graph_prune(g, &o, &client));
  assert_string_equal(td_graph_test_print(client, &arena),
                      "_recv_c_0 = _Recv() @" CLIENT "\n_send_y_0 = _Send(y) @" CLIENT "\ny = Neg(_recv_c_0)\n");
  td_graph_release(client);
  td_graph_release(g);
}

static void test_made_nodes_give_way(void **state) {
  td_graph *g = lowered(X "c = PartitionedCall(x) " CALL("twice"), false);
  td_node *made = td_graph_find(g, TD_STR("c/n"));
  td_status s = td_graph_extend(g, td_graph_test_def(&arena, "c/n = Neg(c) {T: float}"), NULL);
  if (s) fail_msg("%s", td_status_message(s));
  assert_true(td_str_is(td_graph_find(g, TD_STR("c/n"))->def.op, "Neg"));
  assert_ptr_equal(td_graph_find(g, made->def.name), made);
  s = td_graph_extend(g, td_graph_test_def(&arena, "c = NoOp()"), NULL);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  td_status_free(s);
  td_graph_release(g);
}

/* ---- gradients ---- */

static void assert_gradient(const char *of, const char *expected) {
  td_library *l = library();
  Pb__NameAttrList f = PB__NAME_ATTR_LIST__INIT;
  td_function_body body;
  f.name = (char *)of;
  must(td_gradient_body_create(l, &f, &body));
  assert_string_equal(td_graph_test_print(body.graph, &arena), expected);
  td_graph_release(body.graph);
  td_library_release(l);
}

static void test_gradients(void **state) {
  assert_gradient("product",
                  "Func/_0 = _Arg()\n"
                  "Func/_1 = Shape(b)\n"
                  "Func/_10 = Mul(Func/_9, y)\n"
                  "Func/_11 = Mul(x, Func/_9)\n"
                  "Func/_12 = Shape(x)\n"
                  "Func/_13 = Shape(y)\n"
                  "Func/_14 = BroadcastGradientArgs(Func/_12, Func/_13)\n"
                  "Func/_15 = Sum(Func/_10, Func/_14)\n"
                  "Func/_16 = Reshape(Func/_15, Func/_12)\n"
                  "Func/_17 = Sum(Func/_11, Func/_14:1)\n"
                  "Func/_18 = Reshape(Func/_17, Func/_13)\n"
                  "Func/_19 = _Retval(Func/_16)\n"
                  "Func/_2 = Shape(a)\n"
                  "Func/_20 = _Retval(Func/_18)\n"
                  "Func/_3 = BroadcastGradientArgs(Func/_1, Func/_2)\n"
                  "Func/_4 = Sum(Func/_0, Func/_3)\n"
                  "Func/_5 = Reshape(Func/_4, Func/_1)\n"
                  "Func/_6 = Sum(Func/_0, Func/_3:1)\n"
                  "Func/_7 = Reshape(Func/_6, Func/_2)\n"
                  "Func/_8 = SymbolicGradient(a, Func/_5)\n"
                  "Func/_9 = AddN(Func/_7, Func/_8)\n"
                  "a = Mul(x, y)\n"
                  "b = twice(a)\n"
                  "x = _Arg()\n"
                  "y = _Arg()\n");
  assert_gradient("constant",
                  "Func/_0 = _Arg()\n"
                  "Func/_1 = ZerosLike(x)\n"
                  "Func/_2 = _Retval(Func/_1)\n"
                  "x = _Arg()\n");
}

static void test_gradient_errors(void **state) {
  td_library *l = library();
  Pb__NameAttrList f = PB__NAME_ATTR_LIST__INIT;
  td_function_body body;
  f.name = "looped";
  td_status s = td_gradient_body_create(l, &f, &body);
  assert_int_equal(td_status_code(s), TD_NOT_FOUND);
  assert_string_equal(td_status_message(s), "No gradient defined for op: Exit");
  td_status_free(s);
  f.name = "nobody";
  s = td_gradient_body_create(l, &f, &body);
  assert_string_equal(td_status_message(s), "No gradient defined for op: nobody");
  td_status_free(s);
  td_library_release(l);
}

static int tear_down(void **state) {
  td_arena_deinit(&arena);
  return 0;
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_calls),
      cmocka_unit_test(test_what_stays),
      cmocka_unit_test(test_devices_groups_frames),
      cmocka_unit_test(test_effects_come_before_results),
      cmocka_unit_test(test_if),
      cmocka_unit_test(test_while),
      cmocka_unit_test(test_calls_in_loops),
      cmocka_unit_test(test_feeds_reach_consumers),
      cmocka_unit_test(test_made_nodes_give_way),
      cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_gradient_errors),
  };
  return cmocka_run_group_tests(tests, NULL, tear_down);
}

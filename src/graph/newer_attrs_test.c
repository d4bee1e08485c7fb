/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "base/mem.h"
#include "framework/kernel.h"
#include "graph/graph.h"
#include "graph/internal.h"
#include "proto/message.h"

static td_arena arena;

static const td_op_spec specs[] = {
    {.name = "TopKV2", .inputs = "x: float", .outputs = "y: int32", .attrs = "k: int = 0; Tk: type = int32"},
};

static Pb__NodeDef *node(const char *op) {
  Pb__NodeDef *n = td_arena_new(&arena, Pb__NodeDef);
  pb__node_def__init(n);
  n->name = n->op = (char *)op;
  n->attr = td_arena_array(&arena, Pb__AttrEntry *, 8);
  return n;
}

static Pb__NodeDef *with(Pb__NodeDef *n, const char *name, Pb__AttrValue *value) {
  Pb__AttrEntry *e = n->attr[n->n_attr++] = td_arena_new(&arena, Pb__AttrEntry);
  pb__attr_entry__init(e);
  e->key = (char *)name;
  e->value = value;
  return n;
}

static Pb__AttrValue *type(td_dtype t) { return td_attr_value_type(&arena, t); }
static Pb__AttrValue *yes(void) { return td_attr_value_bool(&arena, true); }

static Pb__GraphDef *def_of(Pb__NodeDef **nodes, size_t count) {
  Pb__GraphDef *def = td_arena_new(&arena, Pb__GraphDef);
  pb__graph_def__init(def);
  def->node = nodes;
  def->n_node = count;
  return def;
}

static void test_what_may_go_goes(void **state) {
  Pb__NodeDef *original = with(with(node("MatMul"), "grad_a", yes()), "transpose_a", yes());
  Pb__NodeDef *nodes[] = {original, with(with(node("TopKV2"), "k", td_attr_value_int(&arena, 0)), "Tk", type(TD_INT32)),
                          with(node("TopKV2"), "Tk", type(TD_INT64)), with(node("Neg"), "grad_a", yes())};
  td_graph_def_trim(def_of(nodes, 4), &arena);
  assert_int_equal(nodes[0]->n_attr, 1); /* a hint, whatever its value */
  assert_string_equal(nodes[0]->attr[0]->key, "transpose_a");
  assert_int_equal(original->n_attr, 2);
  assert_int_equal(nodes[1]->n_attr, 1); /* the default of an attribute that 1.15 knows stays */
  assert_string_equal(nodes[1]->attr[0]->key, "k");
  assert_int_equal(nodes[2]->n_attr, 1); /* it means something that 1.15 cannot do: let it say so */
  assert_int_equal(nodes[3]->n_attr, 1);
}

static void test_bodies_of_functions(void **state) {
  Pb__NodeDef *body[] = {node("Neg"), with(node("VarHandleOp"), "debug_name", td_attr_value_str(&arena, TD_STR("v")))};
  Pb__FunctionDef plain, f, *functions[] = {&plain, &f};
  Pb__FunctionDefLibrary library;
  pb__function_def__init(&plain);
  pb__function_def__init(&f);
  pb__function_def_library__init(&library);
  f.node_def = body;
  f.n_node_def = 2;
  library.function = functions;
  library.n_function = 2;
  Pb__GraphDef *def = def_of(NULL, 0);
  def->library = &library;
  td_graph_def_trim(def, &arena);
  assert_ptr_equal(library.function[0], &plain);
  assert_int_equal(library.function[1]->node_def[1]->n_attr, 0);
  assert_int_equal(f.node_def[1]->n_attr, 1); /* the message that others share is as it was */
}

static int reset(void **state) {
  td_arena_deinit(&arena);
  return 0;
}

int main(void) {
  static const td_op_family family = {"newer_attrs_test", specs, TD_COUNT(specs), NULL, 0};
  td_status s = td_family_register(&family);
  if (s) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_may_go_goes),
      cmocka_unit_test(test_bodies_of_functions),
  };
  return cmocka_run_group_tests(tests, NULL, reset);
}

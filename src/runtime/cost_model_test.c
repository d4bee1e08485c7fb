#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "framework/device.h"
#include "proto/wire.h"
#include "runtime/cost_model.h"
#include "runtime/testing/graphs.h"

/* The node of that name in an encoded CostGraphDef. */
static td_wire find(td_str graph, const char *name) {
  td_wire w = td_wire_of(graph), node;
  td_wire_field f, g;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad)) {
    node = td_wire_of(f.bytes);
    if (td_wire_next(&node, &g, &bad) && td_str_is(g.bytes, name)) return td_wire_of(f.bytes);
  }
  fail_msg("no node %s", name);
  return node;
}

/* Field `number` of output 0. */
static int64_t output_field(td_str graph, const char *name, uint32_t number) {
  td_wire node = find(graph, name), output;
  td_wire_field f, g;
  bool bad = false;
  while (td_wire_next(&node, &f, &bad)) {
    if (f.number != 5) continue;
    output = td_wire_of(f.bytes);
    while (td_wire_next(&output, &g, &bad))
      if (g.number == number) return (int64_t)g.value;
    return 0;
  }
  fail_msg("no output of %s", name);
  return 0;
}

static int64_t field(td_str graph, const char *name, uint32_t number) {
  td_wire node = find(graph, name);
  td_wire_field f;
  bool bad = false;
  while (td_wire_next(&node, &f, &bad))
    if (f.number == number) return (int64_t)f.value;
  return 0;
}

static void test_costs(void **state) {
  static const char text[] =
      "a = Const() value:2 dtype:int32\n"
      "w = TestWide(a)\n"
      "i = Identity(w) T:int32\n"
      "slow = TestSlow(a, ^i) us:3000\n"
      "r = _Retval(i) T:int32 index:0\n";
  test_env e;
  test_env_init(&e, 0);
  td_graph *g = test_graph(text);
  td_program *p = test_program(&e, text);
  td_cost_model *m = td_cost_model_create(g);
  td_strbuf out = {0};
  td_cost_model_encode(m, &out);
  td_str empty = td_strbuf_view(&out);
  assert_int_equal(output_field(empty, "w", 1), -1);
  assert_int_equal(output_field(empty, "w", 2), -1);
  for (int i = 0; i < 2; i++) {
    test_result r;
    test_fresh_step(&e);
    e.step.stats = td_step_stats_create();
    test_run(&e, p, NULL, 0, &r);
    test_result_deinit(&r);
    td_cost_model_update(m, e.step.stats, td_str_of(e.device->name));
    td_step_stats_destroy(e.step.stats);
    e.step.stats = NULL;
  }
  out.size = 0;
  td_cost_model_encode(m, &out);
  td_str all = td_strbuf_view(&out);
  assert_int_equal(output_field(all, "w", 1), 4000);
  assert_int_equal(output_field(all, "w", 4), TD_INT32);
  assert_int_equal(output_field(all, "w", 2), -1);
  assert_int_equal(output_field(all, "i", 2), 0); /* shares its input's elements */
  assert_true(field(all, "slow", 9) >= 3000);
  int64_t id = field(all, "i", 3);
  assert_true(id >= 2);
  assert_int_equal(field(all, "slow", 8), id); /* its control input */
  td_strbuf_deinit(&out);
  td_cost_model_destroy(m);
  td_program_release(p);
  td_graph_release(g);
  test_env_deinit(&e);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_costs)};
  test_register();
  return cmocka_run_group_tests(tests, NULL, NULL);
}

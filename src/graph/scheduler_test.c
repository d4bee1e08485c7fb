/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/scheduler.h"
#include "base/testing.h"
#include "graph/partition.h"
#include "graph/testing.h"

#define ON           " @/job:a/replica:0/task:0/device:CPU:0"
#define OTHER        " @/job:b/replica:0/task:0/device:CPU:0"
#define CONST(place) "Const()" place " {dtype: float; value: empty}\n"

static td_graph *placed(const char *text) {
  td_graph *g = td_graph_test_graph(text);
  for (size_t i = 0; i < g->node_count; i++) g->nodes[i]->device = g->nodes[i]->def.device;
  return g;
}

static void assert_starts(const td_graph *g, const td_schedule *s, const char *name, int earliest, int latest) {
  const td_node *n = td_graph_find(g, td_str_of(name));
  assert_int_equal(s->earliest[n->id], earliest);
  assert_int_equal(s->latest[n->id], latest);
}

/* The kernels of the test's ops have costs by size: 2 µs. */
static void test_slack(void **state) {
  td_graph *g = placed("a = " CONST(ON) "b = Neg(a)" ON " {T: float}\nc = Neg(b)" OTHER " {T: float}\nd = Add(c, a)" ON
                                        " {T: float}\ne = Neg(a)" ON " {T: float}\nf = NoOp(^d, ^e)" OTHER "\n");
  td_arena arena = {0};
  td_schedule s;
  td_schedule_analyze(g, &arena, &s);
  assert_int_equal(s.makespan, 30); /* five nodes and two copies */
  assert_starts(g, &s, "a", 0, 0);
  assert_starts(g, &s, "b", 2, 2);
  assert_starts(g, &s, "c", 14, 14);
  assert_starts(g, &s, "d", 26, 26);
  assert_starts(g, &s, "e", 2, 26); /* nobody is in a hurry for it */
  assert_starts(g, &s, "f", 28, 28);
  td_graph_release(g);
  td_arena_deinit(&arena);
}

static void test_loops(void **state) {
  td_graph *g = placed("a = " CONST(ON) "e = Enter(a)" ON " {T: float; frame_name: 'f'}\nm = Merge(e, n)" ON
                                        " {T: float; N: 2}\nc = Less(m, m)" ON " {T: float}\np = LoopCond(c)" ON
                                        "\ns = Switch(m, p)" ON " {T: float}\nn = NextIteration(s:1)" ON
                                        " {T: float}\nx = Exit(s)" ON " {T: float}\n");
  td_arena arena = {0};
  td_schedule s;
  td_schedule_analyze(g, &arena, &s);
  assert_int_equal(s.makespan, 14);
  assert_starts(g, &s, "m", 4, 4);
  assert_starts(g, &s, "n", 12, 12);
  td_graph_release(g);
  td_arena_deinit(&arena);
}

static uint64_t no_incarnation(void *arg, td_str device) { return 1; }

/* Receives of job b, in the order in which they will start. */
static void assert_receives(const char *text, bool is_scheduled, const char *expected) {
  td_graph *g = placed(text);
  if (is_scheduled) td_graph_schedule(g);
  int64_t suffix = 0;
  td_partition_options o = {.by_task = true, .suffix = 'S', .next_suffix = &suffix, .incarnation = no_incarnation};
  td_partition *parts;
  size_t count;
  must(td_graph_partition(g, &o, &parts, &count));
  assert_int_equal(count, 2);
  td_strbuf names = {0};
  for (size_t i = 0; i < parts[1].graph->node_count; i++) {
    const td_node *n = parts[1].graph->nodes[i];
    if (n->kind == TD_NODE_RECV) td_strbuf_printf(&names, "%.1s ", n->def.name.data);
  }
  assert_string_equal(td_strbuf_cstr(&names), expected);
  td_strbuf_deinit(&names);
  td_partitions_free(parts, count);
  td_graph_release(g);
}

static void test_receives_follow_the_critical_path(void **state) {
  static const char text[] = "x = " CONST(ON) "y = " CONST(ON) "z = " CONST(
      ON) "c = Neg(z)" OTHER " {T: float}\nb = Neg(y)" OTHER " {T: float}\na = Neg(x)" OTHER
          " {T: float}\nd = Add(a, b)" OTHER " {T: float}\ne = Neg(d)" OTHER " {T: float}\nf = Neg(a)" OTHER
          " {T: float}\ng = Add(e, f)" OTHER " {T: float}\nh = Add(g, c)" OTHER " {T: float}\n";
  assert_receives(text, false, "z y x ");
  assert_receives(text, true, "y x z "); /* z is needed last; y and x alike, so they keep their order */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_slack),
      cmocka_unit_test(test_loops),
      cmocka_unit_test(test_receives_follow_the_critical_path),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

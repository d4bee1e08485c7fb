/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/relay.h"

#include "base/mem.h"
#include "graph/testing.h"

static td_arena arena;

#define OLD   "/job:a/replica:0/task:0/device:CPU:0"
#define NEW   "/job:a/replica:0/task:1/device:CPU:0"
#define ANY   "/job:a/replica:0/task:2/device:CPU:0"
#define TASKS 3

static td_frame_dialect dialect(void *arg, td_str task) {
  switch (task.data[task.size - 1]) {
    case '0':
      return TD_FRAMES_1X;
    case '1':
      return TD_FRAMES_2X;
    default:
      return TD_FRAMES_ANY;
  }
}

static void cut(const char *text, bool has_dialects, td_partition **parts, size_t *count) {
  td_graph_test_cluster c = td_graph_test_devices(&arena, "a", TASKS, 1);
  td_graph *g = td_graph_test_graph(text);
  td_place_options place = {.devices = c.devices, .device_count = c.count};
  td_status s = td_graph_place(g, &place);
  if (s) fail_msg("%s", td_status_message(s));
  int64_t k = 0;
  td_partition_options o = {.by_task = true,
                            .suffix = 'S',
                            .next_suffix = &k,
                            .incarnation = td_graph_test_incarnation,
                            .dialect = has_dialects ? dialect : NULL,
                            .relay = TD_STR(ANY),
                            .arg = &c};
  s = td_graph_partition(g, &o, parts, count);
  if (s) fail_msg("%s", td_status_message(s));
  td_graph_release(g);
}

static td_str attr(const td_node *n, const char *name) {
  td_str value;
  assert_null(td_attr_str(&n->def, name, &value));
  return value;
}

static td_frame_dialect dialect_of_device(td_str device) {
  return dialect(NULL, td_str_n(device.data, device.size - strlen("/device:CPU:0")));
}

/* Receives in frames: how many there are, and how many come from a task that names frames differently. */
static void count_recvs(const td_partition *parts, size_t count, int *all, int *impossible) {
  *all = *impossible = 0;
  for (size_t p = 0; p < count; p++) {
    td_frames frames;
    assert_null(td_graph_frames(parts[p].graph, &arena, &frames));
    for (size_t i = 0; i < parts[p].graph->node_count; i++) {
      const td_node *n = parts[p].graph->nodes[i];
      if (n->kind != TD_NODE_RECV || frames.of_node[i] <= 0) continue;
      td_frame_dialect from = dialect_of_device(attr(n, "send_device")), to = dialect_of_device(attr(n, "recv_device"));
      (*all)++;
      *impossible += from != to && from != TD_FRAMES_ANY && to != TD_FRAMES_ANY;
      assert_non_null(n->in_edges); /* once an iteration */
    }
  }
}

#define LOOP(device)                   \
  "zero = Placeholder() @" OLD         \
  " {dtype: int32}\n"                  \
  "enter = Enter(zero) @" OLD          \
  " {T: int32; frame_name: 'loop'}\n"  \
  "merge = Merge(enter, next) @" OLD   \
  " {T: int32; N: 2}\n"                \
  "less = Less(merge, merge) @" OLD    \
  " {T: int32}\n"                      \
  "cond = LoopCond(less) @" OLD        \
  "\n"                                 \
  "switch = Switch(merge, cond) @" OLD \
  " {T: int32}\n"                      \
  "body = Neg(switch:1) @" device      \
  " {T: int32}\n"                      \
  "more = Neg(body) @" device          \
  " {T: int32}\n"                      \
  "tick = NoOp(^switch) @" device      \
  "\n"                                 \
  "same = Neg(switch:1, ^tick) @" device " {T: int32}\n"

static void test_a_loop_goes_by_way_of_the_relay(void **state) {
  static const char text[] = LOOP(NEW) "next = NextIteration(more) @" OLD
                                       " {T: int32}\n"
                                       "exit = Exit(switch) @" OLD " {T: int32}\n";
  td_partition *parts;
  size_t count;
  int all, impossible;
  cut(text, false, &parts, &count);
  count_recvs(parts, count, &all, &impossible);
  assert_int_equal(count, 2);
  assert_true(impossible > 0 && impossible == all);
  td_partitions_free(parts, count);
  cut(text, true, &parts, &count);
  count_recvs(parts, count, &all, &impossible);
  assert_int_equal(count, 3);
  assert_int_equal(impossible, 0);
  /* into the relay: switch:1 (one for both readers), the control edge, more, the predicate; as many out of it; the
   * predicate for the relay's own control loop and, for the body's, the one through the relay */
  assert_true(all >= 8);
  td_partitions_free(parts, count);
}

static void test_who_understands_each_other_needs_none(void **state) {
  td_partition *parts, *plain;
  size_t count, plain_count;
  cut(LOOP(ANY) "next = NextIteration(more) @" OLD " {T: int32}\nexit = Exit(switch) @" OLD " {T: int32}\n", true,
      &parts, &count);
  cut(LOOP(ANY) "next = NextIteration(more) @" OLD " {T: int32}\nexit = Exit(switch) @" OLD " {T: int32}\n", false,
      &plain, &plain_count);
  assert_int_equal(count, plain_count);
  for (size_t i = 0; i < count; i++)
    assert_string_equal(td_graph_test_print(parts[i].graph, &arena), td_graph_test_print(plain[i].graph, &arena));
  td_partitions_free(parts, count);
  td_partitions_free(plain, plain_count);
}

static void test_outside_of_loops_everything_is_direct(void **state) {
  td_partition *parts;
  size_t count;
  cut("a = Placeholder() @" OLD " {dtype: float}\nb = Neg(a) @" NEW " {T: float}\nc = NoOp(^b) @" OLD, true, &parts,
      &count);
  assert_int_equal(count, 2);
  td_partitions_free(parts, count);
}

static int reset(void **state) {
  td_arena_deinit(&arena);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_loop_goes_by_way_of_the_relay),
      cmocka_unit_test(test_who_understands_each_other_needs_none),
      cmocka_unit_test(test_outside_of_loops_everything_is_direct),
  };
  return cmocka_run_group_tests(tests, NULL, reset);
}

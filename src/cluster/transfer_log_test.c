/* What is logged of transfers between tasks (TensorFlow's worker_cache_logger). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/transfer_log.h"
#include "proto/framework.pb-c.h"
#include "proto/message.h"

#define PS     "/job:ps/replica:0/task:0/device:CPU:0"
#define WORKER "/job:worker/replica:0/task:1/device:CPU:"

static void receive(td_transfer_log *l, int64_t step, const char *key, int64_t sent_us, size_t bytes) {
  td_transfer *t = td_transfer_begin(l, step, td_str_of(key));
  assert_non_null(t);
  td_transfer_end(t, true, sent_us, bytes);
}

/* Decoded into `arena`; NULL: nothing was logged. */
static Pb__StepStats *take(td_transfer_log *l, int64_t step, td_arena *arena) {
  td_strbuf bytes = {0};
  Pb__StepStats *stats = NULL;
  if (td_transfer_log_take(l, step, &bytes)) {
    td_status s =
        td_message_decode(&pb__step_stats__descriptor, td_strbuf_view(&bytes), arena, (ProtobufCMessage **)&stats);
    assert_null(s);
  }
  td_strbuf_deinit(&bytes);
  return stats;
}

static void test_log(void **state) {
  td_arena arena = {0};
  td_transfer_log *l = td_transfer_log_create();
  assert_null(td_transfer_begin(l, 7, TD_STR("any")));
  td_transfer_end(NULL, true, 0, 0);
  td_transfer_log_set(l, true);
  int64_t now = td_wall_us();
  receive(l, 7, PS ";0000000000000001;" WORKER "0;edge_3_w;0:0", 0, 8);
  receive(l, 7, PS ";0000000000000001;" WORKER "1;edge_4_v;0:0", now - 5000000, 3 << 20);
  receive(l, 7, PS ";0000000000000001;" WORKER "0;edge_5_u;0:0", now + 5000000, 0);
  receive(l, 8, PS ";0000000000000001;" WORKER "0;edge_3_w;0:0", 0, 8);
  td_transfer_end(td_transfer_begin(l, 7, TD_STR(PS ";0000000000000001;" WORKER "0;failed;0:0")), false, 0, 0);
  receive(l, 7, "no key at all", 0, 8);
  Pb__StepStats *s = take(l, 7, &arena);
  assert_int_equal(s->n_dev_stats, 2);
  assert_string_equal(s->dev_stats[0]->device, WORKER "0");
  assert_int_equal(s->dev_stats[0]->n_node_stats, 2);
  assert_int_equal(s->dev_stats[1]->n_node_stats, 1);
  const Pb__NodeExecStats *n = s->dev_stats[0]->node_stats[0];
  assert_string_equal(n->node_name, "RecvTensor");
  assert_int_equal(n->output[0]->tensor_description->allocation_description->requested_bytes, 8);
  assert_non_null(strstr(n->timeline_label, "[8B] ["));
  assert_non_null(strstr(n->timeline_label, "Mb/s] edge_3_w from " PS " to " WORKER "0"));
  n = s->dev_stats[1]->node_stats[0];
  assert_non_null(strstr(n->timeline_label, "[3.0MB] ["));
  for (size_t d = 0; d < 2; d++) /* whatever the sender's clock says */
    for (size_t i = 0; i < s->dev_stats[d]->n_node_stats; i++) {
      n = s->dev_stats[d]->node_stats[i];
      assert_true(n->all_start_micros >= now && n->op_end_rel_micros >= 1);
    }
  assert_null(take(l, 7, &arena)); /* taken */
  td_transfer_log_forget(l, 8);
  assert_null(take(l, 8, &arena));
  td_arena_deinit(&arena);
  td_transfer_log_destroy(l);
}

static void test_on_and_off(void **state) {
  td_transfer_log *l = td_transfer_log_create();
  td_arena arena = {0};
  td_transfer_log_set(l, false); /* one too many does no harm */
  td_transfer_log_set(l, true);
  td_transfer_log_set(l, true);
  td_transfer_log_set(l, false);
  receive(l, 1, PS ";0000000000000001;" WORKER "0;e;0:0", 0, 8);
  td_transfer_log_set(l, false);
  assert_null(td_transfer_begin(l, 1, TD_STR("k")));
  td_transfer_log_clear(l);
  assert_null(take(l, 1, &arena));
  td_transfer_log_destroy(l);
}

static void test_limits(void **state) {
  td_transfer_log *l = td_transfer_log_create();
  td_arena arena = {0};
  td_transfer_log_set(l, true);
  for (int64_t id = 1; id <= 5000; id++) receive(l, id, PS ";0000000000000001;" WORKER "0;e;0:0", 0, 8);
  assert_null(take(l, 1, &arena)); /* thrown away */
  assert_non_null(take(l, 5000, &arena));
  td_arena_deinit(&arena);
  td_transfer_log_destroy(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_log), cmocka_unit_test(test_on_and_off),
                                     cmocka_unit_test(test_limits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

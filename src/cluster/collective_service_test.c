/* Collectives over the tasks of a cluster within this process, and their part of the worker service (TensorFlow's
 * collective_rma and collective_param_resolver). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cluster/testing.h"

enum { PATIENCE_MS = 60000 };

static td_test_cluster cluster;

#define MEMBER(task, x)                                                                                              \
  "x" task " Const /job:worker/task:" task " - dtype: float; value: float [64] " x                                   \
  "\n"                                                                                                               \
  "r" task " CollectiveReduce /job:worker/task:" task " x" task                                                      \
  " T: float; group_size: 2; group_key: 1; instance_key: 2; merge_op: 'Add'; final_op: 'Div'; subdiv_offsets: [0]; " \
  "wait_for: []; communication_hint: 'auto'; timeout_seconds: 0\n"

static const char graph[] = MEMBER("0", "1") MEMBER("1", "3");

static void must(td_status s) {
  if (s) fail_msg("%s", td_status_message(s));
}

static void test_steps(void **state) {
  td_arena a = {0};
  Pb__ConfigProto config = PB__CONFIG_PROTO__INIT;
  Pb__ConfigProto__Experimental experimental = PB__CONFIG_PROTO__EXPERIMENTAL__INIT;
  experimental.collective_group_leader = "/job:worker/replica:0/task:0";
  config.experimental = &experimental;
  for (int master = 0; master < 2; master++) {
    char *s;
    must(td_test_create_session(&cluster, master, graph, &config, &a, &s));
    for (int i = 0; i < 20; i++) {
      td_tensor *out[2] = {0};
      must(td_test_run(&cluster, master, s, "r0:0 r1:0", "-", NULL, NULL, PATIENCE_MS, out));
      for (int k = 0; k < 2; k++) {
        assert_int_equal(out[k]->count, 64);
        assert_true(TD_DATA(out[k], float)[0] == 2);
        td_tensor_release(out[k]);
      }
    }
    /* alone, a member waits until its client gives up; then all goes on */
    td_tensor *out[1] = {0};
    td_status alone = td_test_run(&cluster, master, s, "r1:0", "-", NULL, NULL, 200, out);
    assert_int_equal(td_status_code(alone), TD_DEADLINE_EXCEEDED);
    td_status_free(alone);
    td_tensor *both[2] = {0};
    must(td_test_run(&cluster, master, s, "r0:0 r1:0", "-", NULL, NULL, PATIENCE_MS, both));
    for (int k = 0; k < 2; k++) td_tensor_release(both[k]);
    must(td_test_close_session(&cluster, master, s));
  }
  td_arena_deinit(&a);
}

static void test_requests(void **state) {
  static const struct {
    const char *method;
    td_str bytes;
    td_code code;
  } calls[] = {
      {"RecvBuf", TD_STR(""), TD_INVALID_ARGUMENT},
      {"RecvBuf", TD_STR("\x12\x7f"), TD_INVALID_ARGUMENT},
      {"CompleteGroup", TD_STR("\x08\x07\x10\x02"), TD_INVALID_ARGUMENT}, /* it names no device */
      {"CompleteGroup", TD_STR("\x10\x02\x22\x03no!"), TD_INVALID_ARGUMENT},
      {"CompleteInstance", TD_STR("\x30\x02\x52\x03no!"), TD_INVALID_ARGUMENT},
      {"CompleteInstance", TD_STR("\xff"), TD_INVALID_ARGUMENT},
      {"GetStepSequence", TD_STR("\x08\x05"), TD_OK},
      {"GetStepSequence", TD_STR("\x0a\xff"), TD_INVALID_ARGUMENT},
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    char *path = td_asprintf("/tensorflow.WorkerService/%s", calls[i].method);
    td_status s = td_test_call_bytes(cluster.channels[0], path, calls[i].bytes, PATIENCE_MS);
    if (td_status_code(s) != calls[i].code) fail_msg("%zu: %s", i, td_status_message(s));
    td_status_free(s);
    td_free(path);
  }
  /* a peer that waits for a group may give up */
  td_status s = td_test_call_bytes(cluster.channels[0], "/tensorflow.WorkerService/CompleteGroup",
                                   TD_STR("\x08\x09\x10\x02\x1a\x03"
                                          "CPU\x22)/job:worker/replica:0/task:1/device:CPU:0"),
                                   100);
  assert_int_equal(td_status_code(s), TD_DEADLINE_EXCEEDED);
  td_status_free(s);
}

static int start(void **state) {
  td_test_cluster_start(&cluster, "worker 2");
  return 0;
}

static int stop(void **state) {
  td_test_cluster_stop(&cluster);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_requests)};
  return cmocka_run_group_tests(tests, start, stop);
}

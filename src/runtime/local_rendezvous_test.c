#include "runtime/local_rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "runtime/testing/graphs.h"
#include "runtime/testing/rendezvous_suite.h"

static const td_frame_id root = {0};

static td_rendezvous *create(void *arg) { return td_local_rendezvous_create(); }

static void suite(void **state) { td_rendezvous_suite(create, NULL); }

static void a_receive_can_be_withdrawn(void **state) {
  td_arena a = {0};
  td_rendezvous *r = td_local_rendezvous_create();
  td_rendezvous_key x = test_key(&a, "x");
  test_recv got[4];
  for (int i = 0; i < 4; i++) test_recv_start(r, &x, root, &got[i]);
  assert_true(td_local_rendezvous_cancel_recv(r, &got[1].request)); /* inside the queue */
  assert_true(td_local_rendezvous_cancel_recv(r, &got[0].request)); /* its head */
  assert_true(td_local_rendezvous_cancel_recv(r, &got[3].request)); /* its end */
  assert_false(td_local_rendezvous_cancel_recv(r, &got[3].request));
  for (int i = 0; i < 2; i++) assert_null(td_rendezvous_send(r, &x, root, test_int(i), false));
  assert_int_equal(got[2].done, 1);
  assert_int_equal(*TD_DATA(got[2].value, int32_t), 0);
  test_recv_deinit(&got[2]);
  assert_false(td_local_rendezvous_cancel_recv(r, &got[2].request));
  assert_int_equal(got[0].done + got[1].done + got[3].done, 0);
  test_recv late;
  test_recv_start(r, &x, root, &late);
  assert_int_equal(*TD_DATA(late.value, int32_t), 1);
  test_recv_deinit(&late);
  assert_false(td_local_rendezvous_cancel_recv(r, &late.request));
  td_rendezvous_release(r);
  td_arena_deinit(&a);
}

static void count_waiting(void *arg, td_str key, uint64_t since_ns) {
  assert_true(td_str_ends(key, TD_STR(";x")));
  assert_true(since_ns && since_ns <= td_now_ns());
  ++*(int *)arg;
}

static void what_waits_is_visible(void **state) {
  td_arena a = {0};
  td_rendezvous *r = td_local_rendezvous_create();
  td_rendezvous_key x = test_key(&a, "x"), y = test_key(&a, "y");
  test_recv got[3];
  for (int i = 0; i < 3; i++) test_recv_start(r, &x, (td_frame_id){1, 2, i / 2}, &got[i]);
  assert_null(td_rendezvous_send(r, &y, root, test_int(1), false));
  int n = 0;
  td_local_rendezvous_visit_waiting(r, count_waiting, &n);
  assert_int_equal(n, 3);
  for (int i = 0; i < 3; i++) assert_true(td_local_rendezvous_cancel_recv(r, &got[i].request));
  td_rendezvous_release(r);
  td_arena_deinit(&a);
}

static void entries_are_capped(void **state) {
  td_arena a = {0};
  td_rendezvous *r = td_local_rendezvous_create();
  td_rendezvous_key x = test_key(&a, "x");
  td_tensor *t = test_int(1);
  td_status s = NULL;
  int64_t n = 0;
  for (; !s && n < 2 << 20; n++)
    s = td_rendezvous_send(r, &x, (td_frame_id){1, 2, n % 1000}, td_tensor_retain(t), false);
  assert_int_equal(n, (1 << 20) + 1);
  assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
  td_status_free(s);
  test_recv got;
  test_recv_start(r, &x, (td_frame_id){1, 2, 0}, &got);
  assert_int_equal(got.done, 1);
  assert_null(got.status);
  test_recv_deinit(&got);
  assert_null(td_rendezvous_send(r, &x, root, td_tensor_retain(t), false));
  td_tensor_release(t);
  td_rendezvous_release(r);
  td_arena_deinit(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(suite),
      cmocka_unit_test(a_receive_can_be_withdrawn),
      cmocka_unit_test(what_waits_is_visible),
      cmocka_unit_test(entries_are_capped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The rendezvous of a step (TensorFlow's rpc_rendezvous_mgr): what is made here, what another task makes, an abort. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/remote_rendezvous.h"
#include "cluster/step_table.h"
#include "cluster/testing.h"
#include "ops/testing.h"

TD_TEST_CLUSTER("ps 1 worker 1");

#define PS_DEVICE     "/job:ps/replica:0/task:0/device:CPU:0"
#define WORKER_DEVICE TD_TEST_DEVICE

typedef struct waiting {
  td_recv recv;
  td_latch latch;
  td_tensor *tensor;
  bool is_dead;
} waiting;

static void received(td_recv *r, td_status status, td_tensor *t, bool is_dead) {
  waiting *w = TD_CONTAINER_OF(r, waiting, recv);
  w->tensor = t;
  w->is_dead = is_dead;
  td_latch_done(&w->latch, status);
}

static void receive(td_rendezvous *r, const td_rendezvous_key *key, waiting *w) {
  *w = (waiting){.recv.done = received};
  td_latch_init(&w->latch, 1);
  td_rendezvous_recv(r, key, (td_frame_id){0}, &w->recv);
}

static td_status wait_for(waiting *w) {
  td_status s = td_latch_wait(&w->latch);
  td_latch_deinit(&w->latch);
  return s;
}

static td_task *task(int i) { return td_task_of(cluster.servers[i]); }

/* A key from ps to the worker, and the step on both sides. */
typedef struct both_sides {
  td_arena arena;
  td_rendezvous_key key;
  td_step_entry *ps, *worker;
} both_sides;

static both_sides open_step(int64_t id) {
  both_sides b = {0};
  td_rendezvous_key_make(&b.arena, TD_STR(PS_DEVICE), task(0)->devices[0]->incarnation, TD_STR(WORKER_DEVICE),
                         TD_STR("edge"), &b.key);
  must(td_step_table_get(task(0)->steps, id, 1, &b.ps));
  must(td_step_table_get(task(1)->steps, id, 1, &b.worker));
  td_step_rendezvous_attach(b.worker->rendezvous, task(1)->peers);
  return b;
}

static void close_step(both_sides *b) {
  td_step_table_cleanup(task(0)->steps, b->ps->id);
  td_step_table_cleanup(task(1)->steps, b->worker->id);
  td_step_entry_release(b->ps);
  td_step_entry_release(b->worker);
  td_arena_deinit(&b->arena);
}

static void test_a_tensor_of_another_task(void **state) {
  both_sides b = open_step(1);
  waiting w;
  receive(b.worker->rendezvous, &b.key, &w); /* asked for before it is made */
  td_tensor *t = td_test_tensor(TD_FLOAT, "[3]", "1 2 3");
  must(td_rendezvous_send(b.ps->rendezvous, &b.key, (td_frame_id){0}, t, false));
  must(wait_for(&w));
  td_assert_tensor(w.tensor, TD_FLOAT, "[3]", "1 2 3", 0);
  td_tensor_release(w.tensor);
  must(td_rendezvous_send(b.ps->rendezvous, &b.key, (td_frame_id){0}, NULL, true));
  receive(b.worker->rendezvous, &b.key, &w);
  must(wait_for(&w));
  assert_true(w.is_dead);
  close_step(&b);
}

static void test_a_tensor_of_this_task(void **state) {
  both_sides b = open_step(2);
  td_rendezvous_key key;
  waiting w;
  td_rendezvous_key_make(&b.arena, TD_STR(WORKER_DEVICE), 1, TD_STR(WORKER_DEVICE), TD_STR("own"), &key);
  td_tensor *t = td_test_tensor(TD_FLOAT, "[]", "5");
  must(td_rendezvous_send(b.worker->rendezvous, &key, (td_frame_id){0}, td_tensor_retain(t), false));
  receive(b.worker->rendezvous, &key, &w);
  must(wait_for(&w));
  assert_ptr_equal(w.tensor, t); /* handed over */
  td_tensor_release(w.tensor);
  td_tensor_release(t);
  close_step(&b);
}

static void test_an_abort_ends_what_waits_here(void **state) {
  both_sides b = open_step(3);
  waiting w;
  receive(b.worker->rendezvous, &b.key, &w);
  td_status why = td_invalid_argument("the reason");
  td_rendezvous_abort(b.worker->rendezvous, why);
  must_fail(wait_for(&w), TD_INVALID_ARGUMENT, "the reason"); /* not that its call was cancelled */
  receive(b.worker->rendezvous, &b.key, &w);
  must_fail(wait_for(&w), TD_INVALID_ARGUMENT, "the reason");
  td_status_free(why);
  close_step(&b);
}

static void test_an_abort_there_reaches_who_waits_here(void **state) {
  both_sides b = open_step(4);
  waiting w;
  receive(b.worker->rendezvous, &b.key, &w);
  td_step_table_cleanup(task(0)->steps, 4);
  td_status s = wait_for(&w);
  assert_true(td_status_is_derived(s));
  must_fail(s, TD_ABORTED, "Cleanup 4");
  close_step(&b);
}

static void test_a_task_that_is_not_there(void **state) {
  both_sides b = open_step(5);
  td_rendezvous_key key;
  waiting w;
  td_rendezvous_key_make(&b.arena, TD_STR("/job:ps/replica:0/task:7/device:CPU:0"), 1, TD_STR(WORKER_DEVICE),
                         TD_STR("edge"), &key);
  receive(b.worker->rendezvous, &key, &w);
  must_fail(wait_for(&w), TD_INVALID_ARGUMENT, "No worker known as /job:ps/replica:0/task:7");
  close_step(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_tensor_of_another_task),
      cmocka_unit_test(test_a_tensor_of_this_task),
      cmocka_unit_test(test_an_abort_ends_what_waits_here),
      cmocka_unit_test(test_an_abort_there_reaches_who_waits_here),
      cmocka_unit_test(test_a_task_that_is_not_there),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

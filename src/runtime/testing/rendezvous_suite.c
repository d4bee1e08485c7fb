#include "runtime/testing/rendezvous_suite.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "framework/variable.h"
#include "runtime/testing/graphs.h"

static const td_frame_id root = {0};

td_rendezvous_key test_key(td_arena *arena, const char *edge) {
  td_rendezvous_key key;
  td_rendezvous_key_make(arena, TD_STR("/job:a/replica:0/task:0/device:CPU:0"), 7,
                         TD_STR("/job:b/replica:0/task:0/device:CPU:0"), td_str_of(edge), &key);
  return key;
}

static void received(td_recv *request, td_status status, td_tensor *t, bool is_dead) {
  test_recv *r = (test_recv *)request;
  r->status = status;
  r->value = t;
  r->is_dead = is_dead;
  atomic_fetch_add(&r->done, 1);
}

void test_recv_start(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, test_recv *out) {
  *out = (test_recv){.request.done = received};
  td_rendezvous_recv(r, key, frame, &out->request);
}

void test_recv_deinit(test_recv *r) {
  td_status_free(r->status);
  td_tensor_release(r->value);
}

static void expect_received(test_recv *r, int32_t value) {
  for (int i = 0; i < 100000 && !r->done; i++) usleep(1000);
  assert_int_equal(r->done, 1);
  assert_null(r->status);
  assert_false(r->is_dead);
  assert_int_equal(*TD_DATA(r->value, int32_t), value);
  test_recv_deinit(r);
}

static void send(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, int32_t v) {
  assert_null(td_rendezvous_send(r, key, frame, test_int(v), false));
}

static void meets_in_both_orders(td_rendezvous *r, td_arena *a) {
  td_rendezvous_key x = test_key(a, "x"), y = test_key(a, "y");
  test_recv rx, ry;
  send(r, &x, root, 1);
  test_recv_start(r, &y, root, &ry);
  assert_int_equal(ry.done, 0);
  test_recv_start(r, &x, root, &rx);
  expect_received(&rx, 1);
  send(r, &y, root, 2);
  expect_received(&ry, 2);
  /* consumed: the next receive waits for the next value */
  test_recv_start(r, &x, root, &rx);
  assert_int_equal(rx.done, 0);
  send(r, &x, root, 3);
  expect_received(&rx, 3);
}

static void queues_in_order(td_rendezvous *r, td_arena *a) {
  td_rendezvous_key x = test_key(a, "queue");
  test_recv got[20];
  for (int i = 0; i < 20; i++) send(r, &x, root, i);
  for (int i = 0; i < 20; i++) {
    test_recv_start(r, &x, root, &got[i]);
    expect_received(&got[i], i);
  }
  for (int i = 0; i < 20; i++) test_recv_start(r, &x, root, &got[i]);
  for (int i = 0; i < 20; i++) send(r, &x, root, i);
  for (int i = 0; i < 20; i++) expect_received(&got[i], i);
}

static void carries_dead_values(td_rendezvous *r, td_arena *a) {
  td_rendezvous_key x = test_key(a, "dead");
  test_recv got;
  assert_null(td_rendezvous_send(r, &x, root, NULL, true));
  test_recv_start(r, &x, root, &got);
  assert_int_equal(got.done, 1);
  assert_null(got.status);
  assert_null(got.value);
  assert_true(got.is_dead);
}

static void set(td_variable *v, int32_t value) {
  pthread_rwlock_wrlock(&v->lock);
  td_variable_set(v, test_int(value));
  pthread_rwlock_unlock(&v->lock);
}

/* What is sent as a variable has the value of the moment in which the two ends meet. */
static void reads_variables_late(td_rendezvous *r, td_arena *a) {
  td_rendezvous_key x = test_key(a, "variable");
  td_variable *v = td_variable_create(&td_ref_variable_type, TD_INT32, TD_STR("v"));
  test_recv got;
  set(v, 1);
  assert_null(td_rendezvous_send_variable(r, &x, root, td_variable_retain(v)));
  set(v, 2);
  test_recv_start(r, &x, root, &got);
  expect_received(&got, 2);
  test_recv_start(r, &x, root, &got);
  set(v, 3);
  assert_null(td_rendezvous_send_variable(r, &x, root, td_variable_retain(v)));
  set(v, 4);
  expect_received(&got, 3);
  assert_null(td_rendezvous_send_variable(r, &x, root, v)); /* left behind */
}

static void tells_iterations_and_keys_apart(td_rendezvous *r, td_arena *a) {
  char edge[32];
  test_recv got;
  for (int i = 0; i < 300; i++) {
    snprintf(edge, sizeof edge, "edge_%d", i % 30);
    td_rendezvous_key k = test_key(a, edge);
    send(r, &k, (td_frame_id){5, 6, i / 30}, i);
  }
  for (int i = 299; i >= 0; i--) {
    snprintf(edge, sizeof edge, "edge_%d", i % 30);
    td_rendezvous_key k = test_key(a, edge);
    test_recv_start(r, &k, (td_frame_id){5, 6, i / 30}, &got);
    expect_received(&got, i);
  }
}

/* A key from the wire names its frame in one dialect. */
static void knows_frames_by_both_names(td_rendezvous *r, td_arena *a) {
  td_rendezvous_key x = test_key(a, "frame");
  td_frame_id own = {100, 200, 3}, from_1x = {100, 100, 3}, from_2x = {200, 200, 3}, other = {300, 300, 3};
  test_recv got, stranger;
  test_recv_start(r, &x, other, &stranger);
  send(r, &x, own, 1);
  test_recv_start(r, &x, from_1x, &got);
  expect_received(&got, 1);
  send(r, &x, own, 2);
  test_recv_start(r, &x, from_2x, &got);
  expect_received(&got, 2);
  test_recv_start(r, &x, from_2x, &got); /* consumed under either name */
  assert_int_equal(got.done, 0);
  send(r, &x, own, 3);
  expect_received(&got, 3);
  test_recv_start(r, &x, from_1x, &got);
  send(r, &x, own, 4);
  expect_received(&got, 4);
  assert_int_equal(stranger.done, 0);
  send(r, &x, other, 5);
  expect_received(&stranger, 5);
}

static void aborts(td_rendezvous *r, td_arena *a) {
  td_rendezvous_key x = test_key(a, "a"), y = test_key(a, "b");
  test_recv waiting[2], late;
  test_recv_start(r, &x, root, &waiting[0]);
  test_recv_start(r, &x, root, &waiting[1]);
  send(r, &y, root, 1);
  td_status why = td_error(TD_UNAVAILABLE, "gone");
  td_rendezvous_abort(r, why);
  td_status other = td_error(TD_INTERNAL, "a later reason");
  td_rendezvous_abort(r, other);
  test_recv_start(r, &y, root, &late);
  td_status s = td_rendezvous_send(r, &x, root, test_int(2), false);
  assert_int_equal(td_status_code(s), TD_UNAVAILABLE);
  td_status_free(s);
  for (int i = 0; i < 3; i++) {
    test_recv *t = i < 2 ? &waiting[i] : &late;
    assert_int_equal(t->done, 1);
    assert_int_equal(td_status_code(t->status), TD_UNAVAILABLE);
    assert_null(t->value);
    test_recv_deinit(t);
  }
  td_status_free(why);
  td_status_free(other);
}

static void drops_what_nobody_took(td_rendezvous *r, td_arena *a) {
  td_rendezvous_key x = test_key(a, "left");
  send(r, &x, root, 1);
  send(r, &x, root, 2);
}

/* ---- many threads ---- */

enum { THREADS = 4, VALUES = 2000 };
typedef struct party {
  td_rendezvous *r;
  int number;
  test_recv got[VALUES];
} party;

static void *party_main(void *arg) {
  party *p = arg;
  td_arena a = {0};
  char edge[32];
  for (int i = 0; i < VALUES; i++) { /* sends to the next one, receives from the one before */
    snprintf(edge, sizeof edge, "t%d", (p->number + 1) % THREADS);
    td_rendezvous_key to = test_key(&a, edge);
    send(p->r, &to, (td_frame_id){1, 2, i}, i);
    snprintf(edge, sizeof edge, "t%d", p->number);
    td_rendezvous_key from = test_key(&a, edge);
    test_recv_start(p->r, &from, (td_frame_id){1, 2, i}, &p->got[i]);
    td_arena_reset(&a);
  }
  td_arena_deinit(&a);
  return NULL;
}

static void serves_threads(td_rendezvous *r, td_arena *a) {
  pthread_t threads[THREADS];
  party *parties = test_calloc(THREADS, sizeof *parties);
  for (int i = 0; i < THREADS; i++) {
    parties[i].r = r;
    parties[i].number = i;
    pthread_create(&threads[i], NULL, party_main, &parties[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++)
    for (int k = 0; k < VALUES; k++) expect_received(&parties[i].got[k], k);
  test_free(parties);
}

static void *abort_main(void *arg) {
  usleep(500);
  td_status s = td_aborted("enough");
  td_rendezvous_abort(arg, s);
  td_status_free(s);
  return NULL;
}

static void aborts_once_among_threads(td_rendezvous *r, td_arena *a) {
  pthread_t thread;
  static test_recv got[VALUES];
  pthread_create(&thread, NULL, abort_main, r);
  td_rendezvous_key x = test_key(a, "race");
  for (int i = 0; i < VALUES; i++) {
    test_recv_start(r, &x, (td_frame_id){1, 2, i}, &got[i]);
    td_status_free(td_rendezvous_send(r, &x, (td_frame_id){1, 2, i / 2}, test_int(i), false));
  }
  pthread_join(thread, NULL);
  for (int i = 0; i < VALUES; i++) {
    assert_int_equal(got[i].done, 1);
    assert_true(!got[i].status == (got[i].value != NULL));
    test_recv_deinit(&got[i]);
  }
}

void td_rendezvous_suite(td_rendezvous *(*create)(void *arg), void *arg) {
  void (*const tests[])(td_rendezvous *, td_arena *) = {
      meets_in_both_orders,
      queues_in_order,
      carries_dead_values,
      reads_variables_late,
      tells_iterations_and_keys_apart,
      knows_frames_by_both_names,
      aborts,
      drops_what_nobody_took,
      serves_threads,
      aborts_once_among_threads,
  };
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    td_arena a = {0};
    td_rendezvous *r = create(arg);
    tests[i](r, &a);
    td_rendezvous_release(r);
    td_arena_deinit(&a);
  }
}

/* Several tensors of a step asked of a peer together: what is there, what comes later, what does not fit, and ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/peers.h"
#include "cluster/recv_batch.h"
#include "cluster/recv_batch_reply.h"
#include "cluster/remote_rendezvous.h"
#include "cluster/step_table.h"
#include "cluster/testing.h"
#include "ops/testing.h"
#include "proto/wire.h"
#include "tensor/shared_memory.h"
#include "tensor/tensor_proto.h"

enum { MANY = 40 };
#define PS_DEVICE     "/job:ps/replica:0/task:0/device:CPU:0"
#define WORKER_DEVICE TD_TEST_DEVICE

static td_test_cluster cluster;

static int start(void **state) {
  td_test_cluster_start(&cluster, "ps 1 worker 1");
  return 0;
}

static int stop(void **state) {
  td_test_cluster_stop(&cluster);
  return 0;
}

static td_task *task(int i) { return td_task_of(cluster.servers[i]); }

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

static td_status wait_for(waiting *w) {
  td_status s = td_latch_wait(&w->latch);
  td_latch_deinit(&w->latch);
  return s;
}

/* A step in which the worker wants MANY tensors of the ps. */
typedef struct exchange {
  td_arena arena;
  td_rendezvous_key keys[MANY];
  waiting wants[MANY];
  td_step_entry *ps;
  td_worker *peer;
  td_recv_batch *batch;
} exchange;

static void open_exchange(exchange *x, int64_t step) {
  *x = (exchange){0};
  must(td_step_table_get(task(0)->steps, step, 1, &x->ps));
  x->peer = td_peers_find(task(1)->peers, TD_STR("/job:ps/replica:0/task:0"));
  x->batch = td_recv_batch_create(step, MANY);
  for (int i = 0; i < MANY; i++) {
    td_rendezvous_key_make(&x->arena, TD_STR(PS_DEVICE), task(0)->devices[0]->incarnation, TD_STR(WORKER_DEVICE),
                           td_str_of(td_arena_printf(&x->arena, "edge_%d", i)), &x->keys[i]);
    x->wants[i].recv.done = received;
    td_latch_init(&x->wants[i].latch, 1);
    td_recv_batch_add(x->batch, x->keys[i].text, x->keys[i].hash, (td_frame_id){0}, &x->wants[i].recv);
  }
}

static void ask(exchange *x) { x->peer->ops->recv_tensors(x->peer, x->batch); }

static void close_exchange(exchange *x) {
  td_recv_batch_release(x->batch);
  td_step_table_cleanup(task(0)->steps, x->ps->id);
  td_step_entry_release(x->ps);
  td_arena_deinit(&x->arena);
}

static void send(exchange *x, int i, td_tensor *t, bool is_dead) {
  must(td_rendezvous_send(x->ps->rendezvous, &x->keys[i], (td_frame_id){0}, t, is_dead));
}

static td_tensor *number(int i) {
  char text[16];
  snprintf(text, sizeof text, "%d", i);
  return td_test_tensor(TD_FLOAT, "[]", text);
}

static void expect_number(exchange *x, int i) {
  char text[16];
  snprintf(text, sizeof text, "%d", i);
  must(wait_for(&x->wants[i]));
  assert_false(x->wants[i].is_dead);
  td_assert_tensor(x->wants[i].tensor, TD_FLOAT, "[]", text, 0);
  td_tensor_release(x->wants[i].tensor);
}

/* Batches end a little after their last tensor was received. */
static void expect_no_batch(void) {
  while (td_recv_batches_count(task(0)->batches)) usleep(1000);
}

static void test_what_is_there_and_what_comes_later(void **state) {
  exchange x;
  open_exchange(&x, 11);
  for (int i = 0; i < MANY; i += 2) send(&x, i, number(i), false);
  ask(&x);
  for (int i = 0; i < MANY; i += 2) expect_number(&x, i);
  assert_int_equal(td_recv_batches_count(task(0)->batches), 1);
  for (int i = MANY - 1; i > 0; i -= 2) send(&x, i, number(i), false); /* one by one, in another order */
  for (int i = 1; i < MANY; i += 2) expect_number(&x, i);
  expect_no_batch();
  close_exchange(&x);
}

static void test_dead_large_and_strings(void **state) {
  exchange x;
  open_exchange(&x, 12);
  ask(&x);
  td_tensor *large;
  td_shape shape = {.rank = 1, .dims = {TD_RECV_SHARED_MAX}};
  must(td_tensor_create(TD_INT64, &shape, &large));
  int64_t *values = large->data;
  for (int64_t i = 0; i < TD_RECV_SHARED_MAX; i++) values[i] = i * 7;
  send(&x, 0, large, false);
  send(&x, 1, NULL, true);
  send(&x, 2, td_test_tensor(TD_STRING, "[2]", "'ab' ''"), false);
  send(&x, 3, td_test_tensor(TD_FLOAT, "[0]", ""), false);
  for (int i = 4; i < MANY; i++) send(&x, i, number(i), false);
  must(wait_for(&x.wants[0]));
  assert_int_equal(x.wants[0].tensor->size, TD_RECV_SHARED_MAX * sizeof(int64_t));
  const int64_t *got = x.wants[0].tensor->data;
  for (int64_t i = 0; i < TD_RECV_SHARED_MAX; i++) assert_int_equal(got[i], i * 7);
  td_tensor_release(x.wants[0].tensor);
  must(wait_for(&x.wants[1]));
  assert_true(x.wants[1].is_dead);
  must(wait_for(&x.wants[2]));
  td_assert_tensor(x.wants[2].tensor, TD_STRING, "[2]", "'ab' ''", 0);
  td_tensor_release(x.wants[2].tensor);
  must(wait_for(&x.wants[3]));
  assert_int_equal(x.wants[3].tensor->size, 0);
  td_tensor_release(x.wants[3].tensor);
  for (int i = 4; i < MANY; i++) expect_number(&x, i);
  expect_no_batch();
  close_exchange(&x);
}

/* Asked until it is known that the peer lends, one is lent: read where it lies, and given back. */
static void test_large_ones_are_lent(void **state) {
  td_shape shape = {.rank = 2, .dims = {TD_RECV_SHARED_MAX, 2}};
  bool was_lent = false;
  for (int64_t step = 100; !was_lent; step++) {
    exchange x;
    open_exchange(&x, step);
    td_tensor *t;
    must(td_tensor_create(TD_FLOAT, &shape, &t));
    for (int64_t i = 0; i < t->count; i++) TD_DATA(t, float)[i] = (float)(i + step);
    send(&x, 0, t, false);
    for (int i = 1; i < MANY; i++) send(&x, i, number(i), false);
    ask(&x);
    must(wait_for(&x.wants[0]));
    td_tensor *got = x.wants[0].tensor;
    for (int i = 1; i < MANY; i++) expect_number(&x, i);
    expect_no_batch();
    close_exchange(&x); /* what is lent stays */
    was_lent = td_tensor_is_foreign(got);
    assert_int_equal(got->rank, 2);
    assert_int_equal(got->dims[0], TD_RECV_SHARED_MAX);
    for (int64_t i = 0; i < got->count; i++) assert_true(TD_DATA(got, float)[i] == (float)(i + step));
    assert_int_equal(td_loans_count(), was_lent);
    td_tensor_release(got);
    td_loans_collect();
    assert_int_equal(td_loans_count(), 0);
  }
}

static td_tensor *few_numbers(int64_t count, int64_t first) {
  td_tensor *t;
  must(td_tensor_create_dims(TD_INT64, 1, &count, &t));
  for (int64_t i = 0; i < count; i++) TD_DATA(t, int64_t)[i] = first + i;
  return t;
}

/* What the test sends of number `i`: too few for a parcel, enough for one, or so many that it is lent alone. */
static int64_t count_of(int i) { return i % 3 == 0 ? i : i % 10 == 7 ? TD_RECV_SHARED_MAX : 600 + i; }

/* Those that are worth it, in one loan or two, whatever stands between them; the others beside them in the message. */
static void test_small_ones_are_lent_together(void **state) {
  bool were_lent = false;
  for (int64_t step = 1000; !were_lent; step++) {
    exchange x;
    open_exchange(&x, step);
    for (int i = 0; i < MANY; i++) send(&x, i, few_numbers(count_of(i), step + i), false);
    ask(&x);
    td_tensor *got[MANY];
    for (int i = 0; i < MANY; i++) {
      must(wait_for(&x.wants[i]));
      got[i] = x.wants[i].tensor;
    }
    expect_no_batch();
    close_exchange(&x);
    were_lent = td_tensor_is_foreign(got[1]);
    td_loans_collect();
    size_t loans = 0, size = 0;
    for (int i = 0; i < MANY && were_lent; i++) {
      if (got[i]->size > TD_RECV_SHARED_MAX)
        loans++;
      else if (i % 3)
        size += got[i]->size;
    }
    assert_int_equal(td_loans_count(), loans + (size + (128 << 10) - 1) / (128 << 10));
    for (int i = 0; i < MANY; i++) {
      assert_int_equal(td_tensor_is_foreign(got[i]), were_lent && i % 3);
      assert_int_equal(got[i]->count, count_of(i));
      for (int64_t k = 0; k < got[i]->count; k++) assert_int_equal(TD_DATA(got[i], int64_t)[k], step + i + k);
      td_tensor_release(got[i]);
    }
    td_loans_collect();
    assert_int_equal(td_loans_count(), 0);
  }
}

/* Of a step that nobody has started here: nothing is left of it. */
static void test_who_gives_up_leaves_nothing(void **state) {
  exchange x;
  open_exchange(&x, 13);
  td_step_table_cleanup(task(0)->steps, 13);
  td_step_entry_release(x.ps);
  must(td_step_table_get(task(0)->steps, 14, 1, &x.ps)); /* only so that there is one to close */
  td_recv_batch_release(x.batch);
  x.batch = td_recv_batch_create(15, MANY);
  for (int i = 0; i < MANY; i++)
    td_recv_batch_add(x.batch, x.keys[i].text, x.keys[i].hash, (td_frame_id){0}, &x.wants[i].recv);
  ask(&x);
  while (!td_recv_batches_count(task(0)->batches)) usleep(1000);
  assert_int_equal(td_step_table_count(task(0)->steps), 2);
  td_recv_batch_cancel(x.batch);
  for (int i = 0; i < MANY; i++) must_fail(wait_for(&x.wants[i]), TD_CANCELLED, "");
  expect_no_batch();
  while (td_step_table_count(task(0)->steps) > 1) usleep(1000);
  close_exchange(&x);
}

static void test_an_end_there_reaches_who_waits_here(void **state) {
  exchange x;
  open_exchange(&x, 16);
  send(&x, 0, number(0), false);
  ask(&x);
  expect_number(&x, 0);
  td_step_table_cleanup(task(0)->steps, 16);
  for (int i = 1; i < MANY; i++) {
    td_status s = wait_for(&x.wants[i]);
    assert_true(td_status_is_derived(s));
    must_fail(s, TD_ABORTED, "");
  }
  expect_no_batch();
  close_exchange(&x);
}

/* Through the step's rendezvous, as kernels ask: some in one batch, an abort in the middle. */
static void test_the_steps_rendezvous(void **state) {
  exchange x;
  td_step_entry *worker;
  open_exchange(&x, 17);
  must(td_step_table_get(task(1)->steps, 17, 1, &worker));
  td_step_rendezvous_attach(worker->rendezvous, task(1)->peers);
  for (int i = 0; i < MANY; i++) td_rendezvous_recv(worker->rendezvous, &x.keys[i], (td_frame_id){0}, &x.wants[i].recv);
  for (int i = 0; i < MANY / 2; i++) send(&x, i, number(i), false);
  for (int i = 0; i < MANY / 2; i++) expect_number(&x, i);
  td_status why = td_invalid_argument("the reason");
  td_rendezvous_abort(worker->rendezvous, why);
  td_status_free(why);
  for (int i = MANY / 2; i < MANY; i++) must_fail(wait_for(&x.wants[i]), TD_INVALID_ARGUMENT, "the reason");
  td_step_table_cleanup(task(1)->steps, 17);
  td_step_entry_release(worker);
  close_exchange(&x);
  expect_no_batch(); /* the worker may have given up between two calls: the step's end is what frees it */
}

/* The second time a set of keys is needed it gets a number, with which it is asked for from then on. */
static void test_keys_known_by_number(void **state) {
  for (int round = 0; round < 6; round++) {
    exchange x;
    open_exchange(&x, 20 + round);
    if (round == 4) { /* what the other side has forgotten is told again */
      td_key_sets_destroy(task(0)->key_sets);
      task(0)->key_sets = td_key_sets_create();
    }
    for (int i = 0; i < MANY; i += 2) send(&x, i, number(i), false);
    ask(&x);
    for (int i = 0; i < MANY; i += 2) expect_number(&x, i);
    for (int i = 1; i < MANY; i += 2) send(&x, i, number(i), false);
    for (int i = 1; i < MANY; i += 2) expect_number(&x, i);
    expect_no_batch();
    close_exchange(&x);
    if (round) assert_int_equal(td_key_sets_count(task(0)->key_sets), round == 4 ? 0 : 1);
  }
}

static void test_wrong_requests(void **state) {
  td_strbuf b = {0};
  td_channel *ch = cluster.channels[0];
  must_fail(td_test_call_bytes(ch, TD_RECV_TENSORS_PATH, (td_str){0}, 9000), TD_INVALID_ARGUMENT, "malformed");
  td_wire_put_uint(&b, 1, 3);
  td_wire_put_uint(&b, 3, 12345);
  must_fail(td_test_call_bytes(ch, TD_RECV_TENSORS_PATH, td_strbuf_view(&b), 9000), TD_ABORTED, "no batch 12345");
  b.size = 0;
  td_wire_put_uint(&b, 1, 3);
  td_wire_put_bytes(&b, 2, TD_STR("nonsense"));
  must_fail(td_test_call_bytes(ch, TD_RECV_TENSORS_PATH, td_strbuf_view(&b), 9000), TD_INVALID_ARGUMENT,
            "Invalid  rendezvous key: nonsense");
  td_strbuf_putc(&b, (char)0xff);
  must_fail(td_test_call_bytes(ch, TD_RECV_TENSORS_PATH, td_strbuf_view(&b), 9000), TD_INVALID_ARGUMENT, "malformed");
  td_strbuf_deinit(&b);
  assert_int_equal(td_step_table_count(task(0)->steps), 0);
}

/* ---- a peer that is no tensord ---- */

static atomic_int unknown, alone;

static void is_unknown(void *arg) { atomic_fetch_add(&unknown, 1); }

static td_client_call *one(void *arg, td_channel *ch, int64_t step_id, td_str key, td_recv *request) {
  request->done(request, TD_STATUS_OK, number(atomic_fetch_add(&alone, 1)), false);
  return NULL;
}

static void test_a_peer_that_does_not_know_it(void **state) {
  td_loop *loop;
  td_rpc_server *server;
  td_channel *ch;
  exchange x;
  char address[64];
  int port;
  must(td_loop_create("other", NULL, &loop));
  must(td_rpc_server_create(&(td_rpc_server_options){.loops = &loop, .loop_count = 1}, &server));
  must(td_rpc_server_listen(server, "127.0.0.1:0", &port));
  td_rpc_server_start(server);
  snprintf(address, sizeof address, "127.0.0.1:%d", port);
  must(td_channel_create(loop, address, &(td_channel_options){0}, &ch));
  open_exchange(&x, 18);
  td_recv_batch_peer peer = {
      .recv_tensor = one, .is_unknown = is_unknown, .transfers = task(1)->transfers, .known = td_known_sets_create()};
  td_recv_batch_start(x.batch, ch, &peer);
  for (int i = 0; i < MANY; i++) expect_number(&x, i);
  assert_int_equal(atomic_load(&unknown), 1);
  close_exchange(&x);
  td_channel_destroy(ch);
  td_rpc_server_destroy(server);
  td_loop_stop(loop);
  td_loop_destroy(loop);
  td_known_sets_destroy(peer.known);
}

/* ---- replies in pieces ---- */

static void put_tensor(td_strbuf *b, uint64_t place, td_tensor *t) {
  td_strbuf proto = {0};
  td_wire_put_tag(b, 1, TD_WIRE_VARINT);
  td_wire_put_varint(b, place);
  must(td_tensor_encode(t, &proto));
  td_wire_put_bytes(b, 2, td_strbuf_view(&proto));
  td_strbuf_deinit(&proto);
  td_tensor_release(t);
}

static td_status feed(td_recv_batch_reply *r, td_str bytes, size_t piece) {
  td_receiver *to = td_recv_batch_reply_receiver(r);
  for (size_t at = 0; at < bytes.size; at += piece)
    TD_TRY(to->ops->bytes(to, bytes.data + at, TD_MIN(piece, bytes.size - at)));
  return TD_STATUS_OK;
}

static void close_reply(td_recv_batch_reply *r) {
  td_receiver *base = td_recv_batch_reply_receiver(r);
  base->ops->destroy(base);
  td_recv_batch_reply_release(r);
}

static void test_a_reply_in_pieces(void **state) {
  td_strbuf b = {0};
  td_recv_batch_head head;
  td_recv_batch_entry *all;
  size_t count;
  td_wire_put_uint(&b, 4, 1234567);
  td_wire_put_uint(&b, 5, 77);
  td_wire_put_fixed64(&b, 20, 1); /* of a later version */
  td_wire_put_bytes(&b, 21, TD_STR("unknown"));
  put_tensor(&b, 3, td_test_tensor(TD_FLOAT, "[2000]", "5"));
  put_tensor(&b, 1, td_test_tensor(TD_STRING, "[2]", "'ab' ''"));
  td_wire_put_uint(&b, 1, 9);
  td_wire_put_uint(&b, 3, TD_BATCH_DEAD);
  put_tensor(&b, 0, td_test_tensor(TD_FLOAT, "[]", "6"));
  for (size_t piece = 1; piece <= b.size; piece = piece < 50 ? piece + 1 : piece * 2 + 1) {
    td_recv_batch_reply *r = td_recv_batch_reply_create(4, NULL);
    must(feed(r, td_strbuf_view(&b), piece));
    must(td_recv_batch_reply_end(r, &head, &all, &count));
    assert_int_equal(head.sent_us, 1234567);
    assert_int_equal(head.rest, 77);
    assert_int_equal(count, 4);
    assert_int_equal(all[0].place, 3);
    assert_int_equal(all[0].tensor->count, 2000);
    assert_true(TD_DATA(all[0].tensor, float)[1999] == 5);
    td_assert_tensor(all[1].tensor, TD_STRING, "[2]", "'ab' ''", 0);
    assert_null(all[2].tensor);
    assert_int_equal(all[2].place, 9);
    assert_int_equal(all[2].number, TD_BATCH_DEAD);
    td_assert_tensor(all[3].tensor, TD_FLOAT, "[]", "6", 0);
    close_reply(r);
  }
  td_strbuf_deinit(&b);
}

static void put_loan(td_strbuf *b, const td_loan *loan, int64_t size, int rank) {
  td_wire_put_tag(b, 1, TD_WIRE_VARINT);
  td_wire_put_varint(b, 0);
  for (int i = 0; i < rank; i++) td_wire_put_uint(b, TD_LENT_SIZE, (uint64_t)size);
  td_wire_put_uint(b, TD_LENT_TYPE, TD_FLOAT);
  td_wire_put_uint(b, TD_LENT_OFFSET, loan->offset);
  td_wire_put_uint(b, TD_LENT_SLOT, loan->slot);
  td_wire_put_tag(b, TD_LENT_TICKET, TD_WIRE_VARINT);
  td_wire_put_varint(b, loan->ticket);
}

static void expect_bad_loan(td_lender *lender, const td_loan *loan, int64_t size, int rank, td_code code) {
  td_strbuf b = {0};
  td_recv_batch_reply *r = td_recv_batch_reply_create(3, lender);
  put_loan(&b, loan, size, rank);
  must_fail(feed(r, td_strbuf_view(&b), 3), code, "");
  close_reply(r);
  td_strbuf_deinit(&b);
}

static void test_replies_that_lend(void **state) {
  char step;
  td_loan first, second;
  td_tensor *t;
  td_strbuf b = {0};
  td_recv_batch_head head;
  td_recv_batch_entry *all;
  size_t count;
  td_lender *lender = td_lender_open(getpid(), td_shared_memory_fd());
  assert_non_null(lender);
  must(td_tensor_create_dims(TD_FLOAT, 2, (int64_t[]){300, 300}, &t));
  for (size_t piece = 1; piece < 60; piece += 7) {
    b.size = 0;
    assert_true(td_loan_offer(t, getpid(), &step, &first));
    assert_true(td_loan_offer(t, getpid(), &step, &second));
    put_loan(&b, &first, 300, 2);
    put_tensor(&b, 1, td_test_tensor(TD_FLOAT, "[]", "6"));
    put_loan(&b, &second, 90000, 1); /* nothing is left of the first one's sizes */
    td_loan part = second;
    part.offset += 64;
    put_loan(&b, &part, 16, 1);
    td_recv_batch_reply *r = td_recv_batch_reply_create(4, lender);
    must(feed(r, td_strbuf_view(&b), piece));
    must(td_recv_batch_reply_end(r, &head, &all, &count));
    assert_int_equal(count, 4);
    assert_int_equal(all[0].tensor->rank, 2);
    assert_int_equal(all[2].tensor->rank, 1);
    assert_int_equal(all[2].tensor->count, 90000);
    assert_ptr_equal(all[3].tensor->data, (char *)all[2].tensor->data + 64); /* of the same loan */
    assert_int_equal(all[3].tensor->count, 16);
    close_reply(r); /* the tensors with it */
  }
  assert_true(td_loan_offer(t, getpid(), &step, &first));
  expect_bad_loan(NULL, &first, 300, 2, TD_INTERNAL);
  expect_bad_loan(lender, &first, 1 << 20, 2, TD_INVALID_ARGUMENT);
  expect_bad_loan(lender, &first, 1, TD_MAX_RANK + 1, TD_INTERNAL);
  expect_bad_loan(lender, &(td_loan){first.offset, UINT32_MAX, first.ticket}, 300, 2, TD_INVALID_ARGUMENT);
  expect_bad_loan(lender, &(td_loan){first.offset, first.slot, first.ticket + 1}, 300, 2, TD_ABORTED);
  td_loans_withdraw(&step);
  td_loans_collect();
  assert_int_equal(td_loans_count(), 0);
  td_tensor_release(t);
  td_lender_release(lender);
  td_strbuf_deinit(&b);
}

static void test_bad_replies(void **state) {
  td_strbuf b = {0};
  td_recv_batch_head head;
  td_recv_batch_entry *all;
  size_t count;
  for (int i = 0; i < 3; i++) put_tensor(&b, 0, td_test_tensor(TD_FLOAT, "[100]", "5"));
  for (size_t size = 0; size <= b.size; size++) { /* cut anywhere, then damaged there */
    for (size_t piece = 1; piece < 500; piece += 100) {
      td_recv_batch_reply *r = td_recv_batch_reply_create(3, NULL);
      must(feed(r, td_str_n(b.data, size), piece));
      td_status_free(feed(r, TD_STR("\x0c\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), piece));
      close_reply(r);
    }
  }
  td_recv_batch_reply *r = td_recv_batch_reply_create(2, NULL);
  must_fail(feed(r, td_strbuf_view(&b), 1000), TD_INTERNAL, "more than the 2 tensors");
  close_reply(r);
  r = td_recv_batch_reply_create(3, NULL);
  must(feed(r, td_str_n(b.data, b.size - 1), 1000));
  must_fail(td_recv_batch_reply_end(r, &head, &all, &count), TD_INTERNAL, "middle of a field");
  close_reply(r);
  r = td_recv_batch_reply_create(3, NULL);
  must_fail(feed(r, TD_STR("\x12\xff\xff\xff\xff\x0f"), 2), TD_INTERNAL, "a field too long");
  close_reply(r);
  r = td_recv_batch_reply_create(3, NULL);
  must_fail(feed(r, TD_STR("\x12\x02\x08\x63"), 9), TD_INVALID_ARGUMENT, ""); /* a type that is none */
  close_reply(r);
  td_strbuf_deinit(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_there_and_what_comes_later),
      cmocka_unit_test(test_dead_large_and_strings),
      cmocka_unit_test(test_large_ones_are_lent),
      cmocka_unit_test(test_small_ones_are_lent_together),
      cmocka_unit_test(test_who_gives_up_leaves_nothing),
      cmocka_unit_test(test_an_end_there_reaches_who_waits_here),
      cmocka_unit_test(test_the_steps_rendezvous),
      cmocka_unit_test(test_keys_known_by_number),
      cmocka_unit_test(test_wrong_requests),
      cmocka_unit_test(test_a_peer_that_does_not_know_it),
      cmocka_unit_test(test_a_reply_in_pieces),
      cmocka_unit_test(test_replies_that_lend),
      cmocka_unit_test(test_bad_replies),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

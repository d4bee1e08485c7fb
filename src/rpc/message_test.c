/* Payloads, incoming messages, outgoing queue: bytes in, bytes out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "rpc/incoming.h"
#include "rpc/outgoing.h"

static void count_release(void *owner) { ++*(int *)owner; }

static void payload_releases_once(void **state) {
  int released = 0;
  td_payload p = {0};
  for (int i = 0; i < 20; i++) td_payload_add(&p, "abc", 3, count_release, &released);
  td_payload_copy(&p, "header", 6);
  td_payload_copy(&p, "", 0);
  td_payload_take(&p, td_malloc(4), 4);
  assert_int_equal(p.size, 70);
  td_payload_deinit(&p);
  assert_int_equal(released, 20);
  assert_int_equal(p.count, 0);
  td_payload_deinit(&p);
}

static void small_copies_share_segments(void **state) {
  td_payload p = {0};
  char bytes[2000], all[64 * 1024];
  size_t total = 0, at = 0;
  for (int i = 0; i < 300; i++) { /* what is copied in a row is one segment, as far as a chunk goes */
    size_t n = (size_t)i * 7 % 120 + 1;
    memset(bytes, i, n);
    td_payload_copy(&p, bytes, n);
    memset(all + total, i, n);
    total += n;
  }
  assert_in_range(p.count, 1, 10);
  td_payload_add(&p, "between", 7, NULL, NULL);
  memcpy(all + total, "between", 7);
  td_payload_copy(&p, "x", 1);
  all[total + 7] = 'x';
  memset(bytes, 'L', sizeof bytes);
  td_payload_copy(&p, bytes, sizeof bytes); /* large: of its own */
  memcpy(all + total + 8, bytes, sizeof bytes);
  total += 8 + sizeof bytes;
  assert_int_equal(p.size, total);
  for (size_t i = 0; i < p.count; i++) {
    assert_memory_equal(p.segments[i].data, all + at, p.segments[i].size);
    at += p.segments[i].size;
  }
  assert_int_equal(at, total);
  td_payload_deinit(&p);
}

static td_incoming *incoming(size_t max) {
  td_incoming *in = td_malloc(sizeof *in);
  td_incoming_init(in);
  in->max = max;
  return in;
}

static char *framed(const char *data, size_t size, int flag) {
  char *b = td_malloc(size + 5);
  b[0] = (char)flag;
  for (int i = 0; i < 4; i++) b[1 + i] = (char)(size >> (24 - 8 * i));
  memcpy(b + 5, data, size);
  return b;
}

static void gathers_in_any_pieces(void **state) {
  static const size_t SIZES[] = {0, 1, 511, 512, 513, 70000, 300000};
  char *data = td_malloc(300000);
  for (int i = 0; i < 300000; i++) data[i] = (char)(i * 31);
  for (size_t s = 0; s < TD_COUNT(SIZES); s++) {
    for (size_t piece = 1; piece < 200000; piece = piece * 7 + 1) {
      if (SIZES[s] / piece > 20000) continue;
      td_gather_budget budget = {.max = 1 << 20};
      td_incoming *in = incoming(1 << 20);
      in->budgets[0] = &budget;
      char *bytes = framed(data, SIZES[s], 0);
      for (size_t at = 0; at < SIZES[s] + 5; at += piece)
        assert_null(td_incoming_feed(in, bytes + at, TD_MIN(piece, SIZES[s] + 5 - at)));
      assert_null(td_incoming_check(in));
      assert_true(td_str_eq(td_incoming_message(in), td_str_n(data, SIZES[s])));
      assert_int_equal(budget.used, SIZES[s] > TD_INCOMING_INLINE ? SIZES[s] : 0);
      td_status extra = td_incoming_feed(in, "x", 1);
      assert_int_equal(td_status_code(extra), TD_INTERNAL);
      td_status_free(extra);
      td_incoming_deinit(in);
      assert_int_equal(budget.used, 0);
      td_free(in);
      td_free(bytes);
    }
  }
  td_free(data);
}

/* ---- messages of a stream, some of them diverted ---- */

typedef struct diversion {
  td_incoming in;
  td_receiver taker;
  char taken[70000];
  size_t taken_size;
  int gathered, diverted;
} diversion;

static td_status taker_bytes(td_receiver *r, const void *data, size_t size) {
  diversion *d = TD_CONTAINER_OF(r, diversion, taker);
  memcpy(d->taken + d->taken_size, data, size);
  d->taken_size += size;
  return TD_STATUS_OK;
}

/* Those that begin with 't'. */
static td_receiver *divert(td_incoming *in, td_str head) {
  assert_int_equal(head.size, TD_INCOMING_HEAD);
  return head.data[0] == 't' ? &TD_CONTAINER_OF(in, diversion, in)->taker : NULL;
}

static td_status diverted_or_gathered(td_incoming *in, td_str message) {
  diversion *d = TD_CONTAINER_OF(in, diversion, in);
  if (message.size == TD_INCOMING_HEAD) {
    assert_true(d->taken_size == 70000 - TD_INCOMING_HEAD || d->taken_size == 600 - TD_INCOMING_HEAD);
    for (size_t i = 0; i < d->taken_size; i++) assert_int_equal(d->taken[i], (char)(i + TD_INCOMING_HEAD));
    d->taken_size = 0;
    d->diverted++;
  } else if (message.size > 4) {
    assert_true(message.size == 600 || message.size == 70000);
    for (size_t i = 1; i < message.size; i++) assert_int_equal(message.data[i], (char)i);
    d->gathered++;
  }
  return TD_STATUS_OK;
}

static void messages_are_diverted(void **state) {
  static const td_receiver_ops ops = {.bytes = taker_bytes};
  static const size_t SIZES[] = {600, 70000, 4, 600, 70000, 0, 70000};
  static const char FIRST[] = "tgtgtgt";
  char *data = td_malloc(300000);
  size_t size = 0;
  for (size_t m = 0; m < TD_COUNT(SIZES); m++) {
    char bytes[70000];
    for (size_t i = 0; i < SIZES[m]; i++) bytes[i] = (char)i;
    bytes[0] = FIRST[m];
    char *with_prefix = framed(bytes, SIZES[m], 0);
    memcpy(data + size, with_prefix, SIZES[m] + 5);
    size += SIZES[m] + 5;
    td_free(with_prefix);
  }
  for (size_t piece = 1; piece < 300000; piece = piece * 3 + 1) {
    diversion *d = td_new(diversion);
    td_incoming_init(&d->in);
    d->in.max = 1 << 20;
    d->in.message = diverted_or_gathered;
    d->in.divert = divert;
    d->taker.ops = &ops;
    for (size_t at = 0; at < size; at += piece)
      assert_null(td_incoming_feed(&d->in, data + at, TD_MIN(piece, size - at)));
    assert_int_equal(d->diverted, 3);
    assert_int_equal(d->gathered, 2);
    assert_null(td_incoming_feed(&d->in, data, 100)); /* cut short within what is diverted */
    td_incoming_deinit(&d->in);
    assert_null(td_incoming_feed(&d->in, data + 100, 100)); /* over */
    td_free(d);
  }
  td_free(data);
}

static void fails_with(td_incoming *in, const char *bytes, size_t size, td_code code) {
  td_status s = td_incoming_feed(in, bytes, size);
  assert_int_equal(td_status_code(s), code);
  td_status_free(s);
  td_incoming_deinit(in);
  td_free(in);
}

static void hostile_prefixes(void **state) {
  fails_with(incoming(1000), "\x00\x00\x00\x03\xe9", 5, TD_RESOURCE_EXHAUSTED);
  fails_with(incoming(1000), "\x02\x00\x00\x00\x01", 5, TD_INTERNAL);
  fails_with(incoming(1000), "\x01\x00\x00\x00\x01", 5, TD_INTERNAL); /* compressed, but no encoding was named */
  td_gather_budget budget = {.max = (size_t)1 << 40};
  td_incoming *in = incoming(INT32_MAX);
  in->budgets[0] = &budget;
  assert_null(td_incoming_feed(in, "\x00\x7f\xff\xff\xff", 5)); /* 2 GiB announced, */
  assert_int_equal(budget.used, 0);                             /* nothing reserved, */
  assert_null(td_incoming_feed(in, "x", 1));
  assert_in_range(budget.used, 1, 64 * 1024); /* and little for the first byte */
  td_status s = td_incoming_check(in);
  assert_int_equal(td_status_code(s), TD_INTERNAL);
  td_status_free(s);
  td_incoming_deinit(in);
  assert_int_equal(budget.used, 0);
  td_free(in);
}

static void budgets_hold(void **state) {
  td_gather_budget own = {.max = 1 << 20}, all = {.max = 100000};
  td_incoming *in = incoming(1 << 20);
  in->budgets[0] = &own;
  in->budgets[1] = &all;
  char *data = td_calloc(1, 1 << 20), *bytes = framed(data, 1 << 20, 0);
  td_status s = td_incoming_feed(in, bytes, (1 << 20) + 5);
  assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(td_status_message(s), "1048576"));
  td_status_free(s);
  td_incoming_deinit(in);
  assert_int_equal(own.used, 0);
  assert_int_equal(all.used, 0);
  td_free(in);
  td_free(data);
  td_free(bytes);
}

/* A receiver that takes every second piece through a window, 7 bytes at most. */
typedef struct test_receiver {
  td_receiver base;
  char *data;
  size_t size, got, landed;
  bool destroyed;
  int turn;
} test_receiver;

static td_status tr_begin(td_receiver *r, size_t size) {
  test_receiver *t = (test_receiver *)r;
  t->size = size;
  t->data = td_malloc(size + 1);
  return TD_STATUS_OK;
}
static td_status tr_bytes(td_receiver *r, const void *data, size_t size) {
  test_receiver *t = (test_receiver *)r;
  if (t->got + size > t->size) return td_internal("too many");
  memcpy(t->data + t->got, data, size);
  t->got += size;
  return TD_STATUS_OK;
}
static void *tr_window(td_receiver *r, size_t *size) {
  test_receiver *t = (test_receiver *)r;
  if (t->turn++ % 2) return NULL;
  if (*size > 7) *size = 7;
  return t->data + t->got;
}
static td_status tr_landed(td_receiver *r, size_t size) {
  test_receiver *t = (test_receiver *)r;
  t->got += size;
  t->landed += size;
  return TD_STATUS_OK;
}
static void tr_destroy(td_receiver *r) { ((test_receiver *)r)->destroyed = true; }
static const td_receiver_ops TEST_RECEIVER = {tr_begin, tr_bytes, tr_window, tr_landed, tr_destroy};

static void receivers_get_windows_and_bytes(void **state) {
  char data[1000];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 3);
  test_receiver t = {.base.ops = &TEST_RECEIVER};
  td_incoming *in = incoming(1 << 20);
  in->receiver = &t.base;
  char *bytes = framed(data, sizeof data, 0);
  assert_null(td_incoming_feed(in, bytes, 9));
  size_t at = 4;
  while (at < sizeof data) {
    size_t room;
    char *window = td_incoming_window(in, &room);
    size_t n = TD_MIN(window ? room : 13, sizeof data - at);
    if (window) memcpy(window, data + at, n);
    assert_null(td_incoming_feed(in, window ? window : data + at, n));
    at += n;
  }
  assert_null(td_incoming_check(in));
  assert_memory_equal(t.data, data, sizeof data);
  assert_true(t.landed > 300);
  td_incoming_deinit(in);
  assert_true(t.destroyed);
  td_free(t.data);
  td_free(in);
  td_free(bytes);
}

/* Whatever the segments, what is written is the message; each segment is released once, and not before. */
static void queue_writes_messages(void **state) {
  srand(7);
  char *source = td_malloc(1 << 20), *wrote = td_malloc(1 << 21);
  for (int i = 0; i < 1 << 20; i++) source[i] = (char)(i * 131 >> 3);
  td_out_queue *q = td_malloc(sizeof *q);
  td_out_queue_init(q);
  for (int round = 0; round < 60; round++) {
    int released = 0, segments = rand() % 200;
    td_payload p = {0};
    size_t at = 0;
    for (int i = 0; i < segments; i++) {
      size_t n = rand() % 4 == 0 ? (size_t)rand() % 9000 : (size_t)rand() % 40;
      if (rand() % 5 == 0) n = 0;
      if (at + n > 1 << 20) break;
      td_payload_add(&p, source + at, n, count_release, &released);
      at += n;
    }
    size_t total = p.size + 5, count = p.count, got = 0;
    td_outgoing *o = td_outgoing_create(q, &p, true);
    while (got < total) {
      if (o && td_out_queue_has_room(q)) {
        size_t n = td_outgoing_frame(o, 1 + (size_t)rand() % 20000);
        assert_in_range(n, 1, 20000);
        td_out_queue_message(q, o, n);
        if (!o->left) {
          td_outgoing_end(q, o);
          o = NULL;
        }
      }
      struct iovec iov[TD_OUT_IOV];
      int n = td_out_queue_front(q, iov, 1 + (size_t)rand() % 30000);
      size_t taken = 0;
      for (int i = 0; i < n; i++) {
        memcpy(wrote + got, iov[i].iov_base, iov[i].iov_len);
        got += iov[i].iov_len;
        taken += iov[i].iov_len;
      }
      if (taken) td_out_queue_wrote(q, taken);
    }
    assert_int_equal(got, total);
    assert_memory_equal(wrote + 5, source, total - 5);
    assert_int_equal(released, count);
  }
  /* given up with bytes still queued: kept until they went */
  int released = 0;
  td_payload p = {0};
  td_payload_add(&p, source, 100000, count_release, &released);
  td_outgoing *o = td_outgoing_create(q, &p, true);
  td_out_queue_message(q, o, td_outgoing_frame(o, 50000));
  td_outgoing_end(q, o);
  assert_int_equal(released, 0);
  td_out_queue_wrote(q, 49999);
  assert_int_equal(released, 0);
  td_out_queue_wrote(q, 1);
  assert_int_equal(released, 1);
  /* abandoned */
  td_payload_add(&p, source, 100000, count_release, &released);
  o = td_outgoing_create(q, &p, true);
  td_out_queue_message(q, o, td_outgoing_frame(o, 50000));
  td_outgoing_end(q, o);
  td_out_queue_deinit(q);
  assert_int_equal(released, 2);
  td_free(q);
  td_free(source);
  td_free(wrote);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(payload_releases_once),
      cmocka_unit_test(small_copies_share_segments),
      cmocka_unit_test(gathers_in_any_pieces),
      cmocka_unit_test(messages_are_diverted),
      cmocka_unit_test(hostile_prefixes),
      cmocka_unit_test(budgets_hold),
      cmocka_unit_test(receivers_get_windows_and_bytes),
      cmocka_unit_test(queue_writes_messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

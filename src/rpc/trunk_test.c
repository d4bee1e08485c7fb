/* Trunks against peers that do not keep to the rules; rpc_test has the calls of those that do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/rpc.h"
#include "rpc/testing.h"
#include "rpc/trunk.h"

/* ---- the format ------------------------------------------------------------------------------------------- */

static void requests_are_read_as_written(void **state) {
  char bytes[TD_TRUNK_HEAD + 3];
  td_trunk_request r;
  size_t n = td_trunk_request_head(bytes, 63, TD_STR("/t/Echo"));
  memcpy(bytes + n, "abc", 3);
  assert_null(td_trunk_request_parse(td_str_n(bytes, n + 3), &r));
  assert_int_equal(r.slot, 63);
  assert_true(td_str_is(r.path, "/t/Echo") && td_str_is(r.message, "abc"));
  n = td_trunk_request_head(bytes, 1, (td_str){0});
  assert_null(td_trunk_request_parse(td_str_n(bytes, n), &r));
  assert_true(r.slot == 1 && !r.path.size && !r.message.size);
}

static void answers_are_read_as_written(void **state) {
  char bytes[TD_TRUNK_HEAD + 8];
  td_trunk_answer a;
  size_t n = td_trunk_answer_head(bytes, 7, TD_OK, 0);
  memcpy(bytes + n, "reply", 5);
  assert_null(td_trunk_answer_parse(td_str_n(bytes, n + 5), &a));
  assert_true(a.slot == 7 && !a.code && td_str_is(a.message, "reply"));
  n = td_trunk_answer_head(bytes, 7, TD_ABORTED, 3);
  memcpy(bytes + n, "whydeta", 7);
  assert_null(td_trunk_answer_parse(td_str_n(bytes, n + 7), &a));
  assert_true(a.code == TD_ABORTED && td_str_is(a.text, "why") && td_str_is(a.details, "deta"));
  bytes[4] = 99;
  assert_null(td_trunk_answer_parse(td_str_n(bytes, n + 7), &a));
  assert_int_equal(a.code, TD_UNKNOWN);
}

static bool fails(td_status s) {
  bool failed = td_status_code(s) == TD_INTERNAL;
  td_status_free(s);
  return failed;
}

static void what_is_malformed_is_refused(void **state) {
  td_trunk_request r;
  td_trunk_answer a;
  assert_true(fails(td_trunk_request_parse(TD_STR("\1\0\0"), &r)));
  assert_true(fails(td_trunk_request_parse(TD_STR("\1\0\0\0\5/t/E"), &r)));
  assert_true(fails(td_trunk_request_parse(TD_STR("\100\0\0\0\4/t/E"), &r)));
  assert_true(fails(td_trunk_request_parse(TD_STR("\0\0\0\200\4/t/E"), &r)));
  char large[300] = {0};
  large[4] = TD_TRUNK_PATH_MAX + 1;
  assert_true(fails(td_trunk_request_parse(td_str_n(large, sizeof large), &r)));
  assert_true(fails(td_trunk_answer_parse(TD_STR(""), &a)));
  assert_true(fails(td_trunk_answer_parse(TD_STR("\100\0\0\0\0"), &a)));
  assert_true(fails(td_trunk_answer_parse(TD_STR("\0\0\0\0\1"), &a)));
  assert_true(fails(td_trunk_answer_parse(TD_STR("\0\0\0\0\1\4\0\0\0abc"), &a)));
  assert_true(fails(td_trunk_answer_parse(TD_STR("\0\0\0\0\1\377\377\377\377abc"), &a)));
}

/* ---- a server, and a client that writes trunk messages by hand -------------------------------------------- */

static td_loop *loop, *client_loop;
static td_rpc_server *server;
static td_channel *channel;
static char address[64];
static atomic_int held, cancelled;
static td_call *stuck;

static void echo(void *service, td_call *call, td_str request) {
  td_payload reply = {0};
  td_payload_copy(&reply, request.data, request.size);
  td_call_reply(call, &reply);
}
static void hold_cancelled(void *arg) {
  atomic_fetch_add(&cancelled, 1);
  td_call_fail(arg, td_cancelled("held"), TD_STR("more"));
}
static void hold(void *service, td_call *call, td_str request) {
  td_call_on_cancel(call, hold_cancelled, call);
  atomic_fetch_add(&held, 1);
}
static void stick_cancelled(void *arg) { atomic_fetch_add(&cancelled, 1); }
static void stick(void *service, td_call *call, td_str request) {
  stuck = call;
  td_call_on_cancel(call, stick_cancelled, NULL);
  atomic_fetch_add(&held, 1);
}
/* Each ends the one before it. */
static void chain_cancelled(void *arg) {
  td_call *call = arg, *before = stuck;
  stuck = NULL;
  atomic_fetch_add(&cancelled, 1);
  if (before && before != call) td_call_fail(before, td_cancelled("by another"), (td_str){0});
  td_call_fail(call, td_cancelled("chain"), (td_str){0});
}
static void chain(void *service, td_call *call, td_str request) {
  if (!stuck)
    stuck = call; /* it has no on_cancel of its own */
  else
    td_call_on_cancel(call, chain_cancelled, call);
  atomic_fetch_add(&held, 1);
}
static const td_method METHODS[] = {
    {"/t/E", echo, NULL}, {"/t/H", hold, NULL}, {"/t/S", stick, NULL}, {"/t/C", chain, NULL}};

static int setup(void **state) {
  td_log_set_level(TD_LOG_ERROR);
  held = cancelled = 0;
  stuck = NULL;
  snprintf(address, sizeof address, "127.0.0.1:%d", td_stream_server_free_port());
  assert_null(td_loop_create("server", NULL, &loop));
  assert_null(td_loop_create("client", NULL, &client_loop));
  td_rpc_server_options o = {
      .loops = &loop, .loop_count = 1, .methods = METHODS, .method_count = TD_COUNT(METHODS), .max_streams = 40};
  assert_null(td_rpc_server_create(&o, &server));
  assert_null(td_rpc_server_listen(server, address, NULL));
  td_rpc_server_start(server);
  assert_null(td_channel_create(client_loop, address, NULL, &channel));
  return 0;
}

static int teardown(void **state) {
  td_channel_destroy(channel);
  if (server) {
    td_rpc_server_stop_accepting(server);
    td_rpc_server_drain(server, td_now_ns() + 10000000000u);
    td_rpc_server_destroy(server);
  }
  td_loop_stop(loop);
  td_loop_destroy(loop);
  td_loop_stop(client_loop);
  td_loop_destroy(client_loop);
  server = NULL;
  return 0;
}

typedef struct by_hand {
  td_client_call *call;
  td_work work;
  td_str message;
  sem_t wrote, came, done;
  int count; /* messages that came */
  td_strbuf last;
  td_status status;
} by_hand;

static void hand_message(void *arg, td_str message) {
  by_hand *h = arg;
  h->count++;
  h->last.size = 0;
  td_strbuf_append(&h->last, message);
  sem_post(&h->came);
}

static void hand_done(void *arg, td_status status, td_str reply, td_str details) {
  by_hand *h = arg;
  h->status = status;
  sem_post(&h->done);
}

static void await(sem_t *s) {
  while (sem_wait(s)) continue;
}

static void open_by_hand(by_hand *h) {
  *h = (by_hand){0};
  sem_init(&h->wrote, 0, 0);
  sem_init(&h->came, 0, 0);
  sem_init(&h->done, 0, 0);
  td_call_options o = {.path = TD_TRUNK_PATH,
                       .deadline_ns = TD_NO_DEADLINE,
                       .wait_for_ready = true,
                       .done = hand_done,
                       .message = hand_message,
                       .arg = h};
  h->call = td_channel_stream(channel, &o);
  await(&h->came);
  assert_int_equal(h->last.size, 0); /* the server knows trunks */
}

static void run_write(td_work *w) {
  by_hand *h = TD_CONTAINER_OF(w, by_hand, work);
  td_payload p = {0};
  td_payload_copy(&p, h->message.data, h->message.size);
  if (h->message.data)
    td_client_stream_write(h->call, &p);
  else
    td_client_stream_end(h->call);
  sem_post(&h->wrote);
}

/* NULL data: the end. */
static void write_by_hand(by_hand *h, td_str message) {
  h->message = message;
  h->work.run = run_write;
  td_loop_post(client_loop, &h->work);
  await(&h->wrote);
}

static td_code close_by_hand(by_hand *h) {
  await(&h->done);
  td_code code = td_status_code(h->status);
  td_client_call_release(h->call);
  td_status_free(h->status);
  td_strbuf_deinit(&h->last);
  return code;
}

static void eventually(atomic_int *value, int expected) {
  for (int i = 0; i < 100000 && atomic_load(value) != expected; i++) usleep(1000);
  assert_int_equal(atomic_load(value), expected);
}

static void assert_answer(by_hand *h, td_str expected) {
  await(&h->came);
  assert_int_equal(h->last.size, expected.size);
  assert_memory_equal(h->last.data, expected.data, expected.size);
}

static void a_slot_lasts_until_the_answer(void **state) {
  by_hand h;
  open_by_hand(&h);
  write_by_hand(&h, TD_STR("\2\0\0\0\4/t/Ehello"));
  assert_answer(&h, TD_STR("\2\0\0\0\0hello"));
  write_by_hand(&h, TD_STR("\2\0\0\0\4/t/Hx"));
  eventually(&held, 1);
  write_by_hand(&h, TD_STR("\3\0\0\0\0")); /* a free one's cancel crossed the answer */
  write_by_hand(&h, TD_STR("\2\0\0\0\0"));
  assert_answer(&h, TD_STR("\2\0\0\0\1\4\0\0\0heldmore"));
  write_by_hand(&h, TD_STR("\2\0\0\0\4/t/X"));
  await(&h.came);
  assert_int_equal(h.last.data[4], TD_UNIMPLEMENTED);
  write_by_hand(&h, TD_STR("\2\0\0\0\4/t/Eagain"));
  assert_answer(&h, TD_STR("\2\0\0\0\0again"));
  write_by_hand(&h, (td_str){0});
  assert_int_equal(close_by_hand(&h), TD_OK);
}

static void the_end_waits_for_the_answers(void **state) {
  by_hand h;
  open_by_hand(&h);
  write_by_hand(&h, TD_STR("\0\0\0\0\4/t/S"));
  eventually(&held, 1);
  write_by_hand(&h, TD_STR("\0\0\0\0\0"));
  eventually(&cancelled, 1); /* and is not answered yet */
  write_by_hand(&h, (td_str){0});
  usleep(10000);
  assert_int_equal(h.count, 1);
  td_payload reply = {0};
  td_payload_copy(&reply, "late", 4);
  td_call_reply(stuck, &reply);
  assert_answer(&h, TD_STR("\0\0\0\0\0late"));
  assert_int_equal(close_by_hand(&h), TD_OK);
}

static void who_breaks_the_rules_loses_the_trunk(void **state) {
  char large[TD_TRUNK_MESSAGE_MAX + 1] = {0};
  const td_str bad[] = {TD_STR(""),
                        TD_STR("\1\0\0\0"),
                        TD_STR("\1\0\0\0\5/t/E"),
                        TD_STR("\100\0\0\0\4/t/E"),
                        TD_STR("\1\0\0\0\4/t/Hx"),
                        td_str_n(large, sizeof large)};
  for (size_t i = 0; i < TD_COUNT(bad); i++) {
    by_hand h;
    held = cancelled = 0;
    open_by_hand(&h);
    write_by_hand(&h, TD_STR("\1\0\0\0\4/t/Hx"));
    eventually(&held, 1);
    write_by_hand(&h, bad[i]);
    assert_int_equal(close_by_hand(&h), TD_INTERNAL);
    eventually(&cancelled, 1); /* its calls with it */
  }
}

static void calls_count_as_the_connections(void **state) {
  by_hand h;
  open_by_hand(&h);
  char request[] = "\0\0\0\0\4/t/H";
  for (int i = 0; i < 39; i++) { /* beside the trunk's own */
    request[0] = (char)i;
    write_by_hand(&h, td_str_n(request, sizeof request - 1));
  }
  eventually(&held, 39);
  request[0] = 39;
  write_by_hand(&h, td_str_n(request, sizeof request - 1));
  await(&h.came);
  assert_int_equal(h.last.data[4], TD_UNAVAILABLE);
  assert_int_equal(cancelled, 0);
  td_client_call_cancel(h.call);
  assert_int_equal(close_by_hand(&h), TD_CANCELLED);
  eventually(&cancelled, 39);
}

static void begin_chain(by_hand *h) {
  char request[] = "\0\0\0\0\4/t/C";
  for (int i = 0; i < 3; i++) {
    request[0] = (char)i;
    write_by_hand(h, td_str_n(request, sizeof request - 1));
  }
  eventually(&held, 3);
}

static void calls_may_end_each_other(void **state) {
  by_hand h;
  open_by_hand(&h);
  begin_chain(&h);
  td_client_call_cancel(h.call);
  assert_int_equal(close_by_hand(&h), TD_CANCELLED);
  eventually(&cancelled, 2);
}

static void a_resting_trunk_does_not_hold_up_the_end(void **state) {
  by_hand h;
  open_by_hand(&h);
  write_by_hand(&h, TD_STR("\2\0\0\0\4/t/Ehello"));
  assert_answer(&h, TD_STR("\2\0\0\0\0hello"));
  td_rpc_server_stop_accepting(server);
  assert_true(td_rpc_server_drain(server, td_now_ns() + 300000000000u));
  td_rpc_server_destroy(server);
  server = NULL;
  assert_int_equal(close_by_hand(&h), TD_UNAVAILABLE);
}

static void a_drain_cancels_what_is_on_it(void **state) {
  by_hand h;
  open_by_hand(&h);
  begin_chain(&h);
  td_rpc_server_stop_accepting(server);
  assert_false(td_rpc_server_drain(server, td_now_ns()));
  assert_int_equal(cancelled, 2);
  td_rpc_server_destroy(server);
  server = NULL;
  close_by_hand(&h);
}

/* ---- a channel, and servers that do not keep to the rules ------------------------------------------------- */

typedef struct fake {
  td_str greeting; /* of a trunk; NULL data: none */
  td_str answer;   /* to each message on it */
} fake;

static bool is_trunk(td_server_stream *s) { return !strcmp(td_server_stream_path(s), TD_TRUNK_PATH); }

static void fake_begun(void *arg, td_server_stream *s) {
  const fake *f = arg;
  if (is_trunk(s) && f->greeting.data) td_server_stream_reply(s, f->greeting);
}

static bool fake_message(void *arg, td_server_stream *s, td_str message) {
  const fake *f = arg;
  td_server_stream_reply(s, is_trunk(s) ? f->answer : TD_STR("plain"));
  return true;
}

typedef struct outcome {
  sem_t done;
  td_status status;
  td_strbuf reply;
} outcome;

static void outcome_done(void *arg, td_status status, td_str reply, td_str details) {
  outcome *o = arg;
  o->status = status;
  td_strbuf_append(&o->reply, reply);
  sem_post(&o->done);
}

/* The reply, or its status code as a digit. */
static td_str call(td_channel *c, td_strbuf *out) {
  outcome o = {0};
  sem_init(&o.done, 0, 0);
  td_payload message = {0};
  td_call_options options = {.path = "/t/E",
                             .deadline_ns = TD_NO_DEADLINE,
                             .wait_for_ready = true,
                             .is_small = true,
                             .done = outcome_done,
                             .arg = &o};
  td_client_call_release(td_channel_call(c, &options, &message));
  await(&o.done);
  if (o.status) td_strbuf_printf(&o.reply, "%d", (int)td_status_code(o.status));
  td_status_free(o.status);
  td_strbuf_deinit(out);
  *out = o.reply;
  return td_strbuf_view(out);
}

/* The first call goes the plain way; one after the greeting has the outcome `expected` on the trunk. */
static void against(const fake *f, const char *expected) {
  char at[64];
  td_channel *c;
  td_strbuf got = {0};
  snprintf(at, sizeof at, "127.0.0.1:%d", td_stream_server_free_port());
  td_stream_server_options so = {.address = at, .begun = fake_begun, .message = fake_message, .arg = (void *)f};
  td_stream_server *s = td_stream_server_start(&so);
  assert_null(td_channel_create(client_loop, at, &(td_channel_options){.trunks = true}, &c));
  assert_true(td_str_is(call(c, &got), "plain"));
  if (f->greeting.data) {
    while (td_str_is(call(c, &got), "plain")) continue;
    assert_true(td_str_is(td_strbuf_view(&got), expected));
  }
  if (td_str_is(td_strbuf_view(&got), "13")) assert_true(td_str_is(call(c, &got), "plain")); /* the trunk is gone */
  td_strbuf_deinit(&got);
  td_channel_destroy(c);
  td_stream_server_stop(s);
}

static void servers_that_break_the_rules(void **state) {
  const td_str hello = {"", 0};
  against(&(fake){{0}, {0}}, NULL);
  against(&(fake){hello, TD_STR("\0\0\0\0\0yes")}, "yes");
  against(&(fake){hello, TD_STR("\0\0\0\0\12\1\0\0\0nwhat")}, "10");
  against(&(fake){hello, TD_STR("\1\0\0\0\0yes")}, "13");
  against(&(fake){hello, TD_STR("\377\0\0\0\0yes")}, "13");
  against(&(fake){hello, TD_STR("")}, "13");
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(requests_are_read_as_written),
      cmocka_unit_test(answers_are_read_as_written),
      cmocka_unit_test(what_is_malformed_is_refused),
      WITH_SERVER(a_slot_lasts_until_the_answer),
      WITH_SERVER(the_end_waits_for_the_answers),
      WITH_SERVER(who_breaks_the_rules_loses_the_trunk),
      WITH_SERVER(calls_count_as_the_connections),
      WITH_SERVER(calls_may_end_each_other),
      WITH_SERVER(a_resting_trunk_does_not_hold_up_the_end),
      WITH_SERVER(a_drain_cancels_what_is_on_it),
      WITH_SERVER(servers_that_break_the_rules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

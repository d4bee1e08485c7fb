/* Server and channel against each other in one process, over TCP and unix sockets; cancellation and deadlines of calls
 * (TensorFlow's call_options). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/rpc.h"

enum { MAX_MESSAGE = 20 << 20 };

typedef struct fixture {
  bool is_unix, neighbours, trunks;
  td_loop *loops[2], *client_loop;
  td_pool *pool;
  td_rpc_server *server;
  td_channel *channel;
  char address[128];
  int port_fd; /* bound, not listening: the port is nobody else's while the server is down */
  _Atomic int held, cancelled, admitted;
  td_call *stuck[4096]; /* held calls that ignore their cancel; answered by release_stuck() */
  _Atomic int stuck_count;
} fixture;

static _Atomic int begun, released; /* segments of requests, which may be let go of after the call has ended */

static uint64_t in_ms(uint64_t ms) { return td_now_ns() + ms * 1000000; }

/* ---- methods ---------------------------------------------------------------------------------------------- */

static void echo(void *service, td_call *call, td_str request) {
  td_payload reply = {0};
  td_payload_copy(&reply, request.data, request.size);
  td_call_reply(call, &reply);
}

typedef struct later_work {
  td_work work;
  td_call *call;
  td_str request;
} later_work;

static void later_run(td_work *w) {
  later_work *l = TD_CONTAINER_OF(w, later_work, work);
  if (td_str_is(l->request, "fail")) {
    td_call_fail(l->call, td_error(TD_DATA_LOSS, " lat\xc3\xa9r: "), TD_STR("d\0tails"));
  } else {
    echo(NULL, l->call, l->request);
  }
  td_free(l);
}

static void later(void *service, td_call *call, td_str request) {
  later_work *l = td_new(later_work);
  *l = (later_work){.work.run = later_run, .call = call, .request = request};
  td_pool_submit(((fixture *)service)->pool, &l->work);
}

static fixture *current_fixture;

typedef struct held_call {
  td_call *call;
  int cancelled;
} held_call;

static void hold_cancelled(void *arg) {
  held_call *h = arg;
  atomic_fetch_add(&current_fixture->cancelled, 1);
  td_call_fail(h->call, td_cancelled("held"), (td_str){0});
  h->cancelled++; /* what the call owns stays until this returns */
}

static void hold_release(void *arg) {
  assert_in_range(((held_call *)arg)->cancelled, 0, 1);
  td_free(arg);
}

static void hold(void *service, td_call *call, td_str request) {
  held_call *h = td_new(held_call);
  h->call = call;
  td_call_on_cancel_owned(call, hold_cancelled, h, hold_release);
  atomic_fetch_add(&((fixture *)service)->held, 1);
}

static void stick_cancelled(void *arg) { atomic_fetch_add(&current_fixture->cancelled, 1); }

static void stick(void *service, td_call *call, td_str request) {
  fixture *f = service;
  td_call_on_cancel(call, stick_cancelled, call);
  f->stuck[atomic_load(&f->stuck_count)] = call;
  atomic_fetch_add(&f->stuck_count, 1);
}

static void release_stuck(fixture *f) {
  for (int i = 0; i < f->stuck_count; i++) {
    td_payload reply = {0};
    td_payload_copy(&reply, "late", 4);
    td_call_reply(f->stuck[i], &reply);
  }
  f->stuck_count = 0;
}

static void give(void *service, td_call *call, td_str request) {
  uint64_t n = 0;
  td_str_to_u64(request, &n);
  char *bytes = td_malloc(n + 1);
  for (uint64_t i = 0; i < n; i++) bytes[i] = (char)(i * 7 >> 2);
  td_payload reply = {0};
  td_payload_take(&reply, bytes, n);
  td_call_reply(call, &reply);
}

static void about(void *service, td_call *call, td_str request) {
  char text[256];
  uint64_t deadline = td_call_deadline_ns(call);
  int n = snprintf(text, sizeof text, "%.*s|%.*s|%s|%s", TD_STR_ARG(td_call_path(call)),
                   TD_STR_ARG(td_call_metadata(call, "user-agent")), td_call_peer(call),
                   deadline == TD_NO_DEADLINE ? "none"
                   : deadline > td_now_ns()   ? "ahead"
                                              : "passed");
  td_payload reply = {0};
  td_payload_copy(&reply, text, (size_t)n);
  td_call_reply(call, &reply);
}

static td_status admit(void *service, td_call *call) {
  atomic_fetch_add(&((fixture *)service)->admitted, 1);
  if (td_str_is(td_call_path(call), "/t/Forbidden")) return td_error(TD_PERMISSION_DENIED, "not you");
  return TD_STATUS_OK;
}

/* Lands the message in one buffer and says how much of it came without a copy. */
typedef struct landing {
  td_receiver receiver;
  char *data;
  size_t size, got, direct;
  _Atomic int destroyed;
} landing;

static td_status landing_begin(td_receiver *r, size_t size) {
  landing *l = (landing *)r;
  if (size == 666) return td_invalid_argument("666 bytes are refused");
  l->size = size;
  l->data = td_malloc(size + 1);
  return TD_STATUS_OK;
}
static td_status landing_bytes(td_receiver *r, const void *data, size_t size) {
  landing *l = (landing *)r;
  assert_true(l->got + size <= l->size);
  memcpy(l->data + l->got, data, size);
  l->got += size;
  return TD_STATUS_OK;
}
static void *landing_window(td_receiver *r, size_t *size) { return ((landing *)r)->data + ((landing *)r)->got; }
static td_status landing_landed(td_receiver *r, size_t size) {
  ((landing *)r)->got += size;
  ((landing *)r)->direct += size;
  return TD_STATUS_OK;
}
static void landing_destroy(td_receiver *r) { atomic_fetch_add(&((landing *)r)->destroyed, 1); }
static void landing_destroy_free(td_receiver *r) {
  td_free(((landing *)r)->data);
  td_free(r);
}
static const td_receiver_ops LANDING = {landing_begin, landing_bytes, landing_window, landing_landed, landing_destroy};
static const td_receiver_ops OWNED = {landing_begin, landing_bytes, landing_window, landing_landed,
                                      landing_destroy_free};

static _Thread_local landing *last_landing;

static td_receiver *take_receiver(void *service, td_call *call) {
  last_landing = td_new(landing);
  last_landing->receiver.ops = &OWNED;
  return &last_landing->receiver;
}

static void take(void *service, td_call *call, td_str request) {
  assert_int_equal(request.size, 0);
  char text[64];
  int n = snprintf(text, sizeof text, "%zu", last_landing->got);
  td_payload reply = {0};
  td_payload_copy(&reply, text, (size_t)n);
  td_call_reply(call, &reply);
}

/* The number of the loop that serves it. */
static void which_loop(void *service, td_call *call, td_str request) {
  td_payload reply = {0};
  td_payload_copy(&reply, td_call_loop(call) == ((fixture *)service)->loops[0] ? "0" : "1", 1);
  td_call_reply(call, &reply);
}

static const td_method METHODS[] = {
    {"/t/Loop", which_loop, NULL}, {"/t/Echo", echo, NULL},      {"/t/Later", later, NULL},
    {"/t/Hold", hold, NULL},       {"/t/Stick", stick, NULL},    {"/t/Give", give, NULL},
    {"/t/About", about, NULL},     {"/t/Forbidden", echo, NULL}, {"/t/Take", take, take_receiver},
};

/* ---- fixture ---------------------------------------------------------------------------------------------- */

static void server_start(fixture *f, const char *address) {
  td_rpc_server_options o = {.loops = f->loops,
                             .loop_count = 2,
                             .methods = METHODS,
                             .method_count = TD_COUNT(METHODS),
                             .service = f,
                             .max_message_bytes = MAX_MESSAGE,
                             .neighbours = f->neighbours,
                             .admit = admit};
  int port = 0;
  assert_null(td_rpc_server_create(&o, &f->server));
  assert_null(td_rpc_server_listen(f->server, address, &port));
  if (!f->is_unix) assert_int_equal(port, atoi(strrchr(f->address, ':') + 1));
  td_rpc_server_start(f->server);
}

/* An address with a port that stays this process's. */
static void hold_port(fixture *f) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  f->port_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(setsockopt(f->port_fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
  assert_int_equal(bind(f->port_fd, (struct sockaddr *)&a, size), 0);
  assert_int_equal(getsockname(f->port_fd, (struct sockaddr *)&a, &size), 0);
  snprintf(f->address, sizeof f->address, "127.0.0.1:%d", ntohs(a.sin_port));
}

static int setup(void **state, bool is_unix, bool neighbours, bool trunks) {
  fixture *f = td_new(fixture);
  current_fixture = f;
  f->is_unix = is_unix;
  f->neighbours = neighbours;
  f->trunks = trunks;
  for (int i = 0; i < 2; i++) assert_null(td_loop_create("server", NULL, &f->loops[i]));
  assert_null(td_loop_create("client", NULL, &f->client_loop));
  f->pool = td_pool_create("pool", NULL, 2);
  if (is_unix)
    snprintf(f->address, sizeof f->address, "unix:/tmp/td_rpc_test_%d", (int)getpid());
  else
    hold_port(f);
  server_start(f, f->address);
  td_channel_options o = {.max_message_bytes = MAX_MESSAGE + 1000, .neighbours = neighbours, .trunks = trunks};
  assert_null(td_channel_create(f->client_loop, f->address, &o, &f->channel));
  *state = f;
  return 0;
}
static int setup_tcp(void **state) { return setup(state, false, false, false); }
static int setup_unix(void **state) { return setup(state, true, false, false); }
static int setup_neighbours(void **state) { return setup(state, false, true, false); }
static int setup_trunks(void **state);

static int teardown(void **state) {
  fixture *f = *state;
  release_stuck(f);
  td_channel_destroy(f->channel);
  if (f->server) {
    td_rpc_server_stop_accepting(f->server);
    td_rpc_server_drain(f->server, in_ms(1000));
    td_rpc_server_destroy(f->server);
  }
  td_pool_destroy(f->pool);
  for (int i = 0; i < 2; i++) td_loop_stop(f->loops[i]), td_loop_destroy(f->loops[i]);
  td_loop_stop(f->client_loop);
  td_loop_destroy(f->client_loop);
  assert_int_equal(released, begun);
  if (!f->is_unix) close(f->port_fd);
  td_free(f);
  return 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------ */

typedef struct result {
  sem_t done;
  int times;
  td_status status;
  td_strbuf reply, details;
  td_client_call *call;
} result;

static void result_done(void *arg, td_status status, td_str reply, td_str details) {
  result *r = arg;
  r->times++;
  r->status = status;
  td_strbuf_append(&r->reply, reply);
  td_strbuf_append(&r->details, details);
  sem_post(&r->done);
}

static void result_free(result *r) {
  assert_int_equal(r->times, 1);
  td_status_free(r->status);
  td_strbuf_deinit(&r->reply);
  td_strbuf_deinit(&r->details);
  sem_destroy(&r->done);
}

static void count_release(void *owner) { atomic_fetch_add((_Atomic int *)owner, 1); }

static void eventually(_Atomic int *value, int expected) {
  for (int i = 0; i < 100000 && atomic_load(value) != expected; i++) usleep(1000);
  assert_int_equal(atomic_load(value), expected);
}

static void begin_as(fixture *f, result *r, td_call_options o, td_str request) {
  memset(r, 0, sizeof *r);
  sem_init(&r->done, 0, 0);
  td_payload message = {0};
  td_payload_add(&message, request.data, request.size, count_release, &released);
  atomic_fetch_add(&begun, 1);
  o.done = result_done;
  o.is_small = f->trunks;
  o.arg = r;
  r->call = td_channel_call(f->channel, &o, &message);
  assert_int_equal(message.count, 0);
}

static void begin(fixture *f, result *r, const char *path, td_str request, uint64_t deadline_ns, bool wait,
                  td_receiver *receiver) {
  td_call_options o = {.path = path, .deadline_ns = deadline_ns, .wait_for_ready = wait, .receiver = receiver};
  begin_as(f, r, o, request);
}

static void wait_for(result *r) {
  while (sem_wait(&r->done)) continue;
  td_client_call_release(r->call);
}

/* Makes the call; its code, or -1 and a message when the reply is not the expected one. */
static int call_code(fixture *f, const char *path, td_str request, td_str expected) {
  result r;
  begin(f, &r, path, request, in_ms(300000), true, NULL);
  wait_for(&r);
  int code = (int)td_status_code(r.status);
  if (!code && !td_str_eq(td_strbuf_view(&r.reply), expected)) code = -1;
  result_free(&r);
  return code;
}

/* The first call connects; the answer to the second comes after the trunk is known. */
static int setup_trunks(void **state) {
  int rc = setup(state, false, false, true);
  for (int i = 0; i < 2; i++) assert_int_equal(call_code(*state, "/t/Echo", TD_STR("on"), TD_STR("on")), TD_OK);
  return rc;
}

/* ---- tests ------------------------------------------------------------------------------------------------ */

static void echoes_of_all_sizes(void **state) {
  fixture *f = *state;
  static const size_t SIZES[] = {0, 1, 500, 512, 513, 2048, 2049, 16384, 65536, 1 << 20, 10000000};
  char *data = td_malloc(10000000);
  for (size_t i = 0; i < 10000000; i++) data[i] = (char)(i * 13 >> 3);
  for (size_t i = 0; i < TD_COUNT(SIZES); i++) {
    td_str d = td_str_n(data, SIZES[i]);
    assert_int_equal(call_code(f, "/t/Echo", d, d), TD_OK);
    assert_int_equal(call_code(f, "/t/Later", d, d), TD_OK);
  }
  assert_true(td_channel_is_connected(f->channel));
  td_free(data);
}

static void errors_carry_text_and_details(void **state) {
  fixture *f = *state;
  result r;
  begin(f, &r, "/t/Later", TD_STR("fail"), TD_NO_DEADLINE, false, NULL);
  wait_for(&r);
  assert_int_equal(td_status_code(r.status), TD_DATA_LOSS);
  assert_string_equal(td_status_message(r.status), " lat\xc3\xa9r: ");
  assert_true(td_str_eq(td_strbuf_view(&r.details), TD_STR("d\0tails")));
  result_free(&r);
  assert_int_equal(call_code(f, "/t/Nope", TD_STR("x"), TD_STR("")), TD_UNIMPLEMENTED);
  int before = f->admitted;
  assert_int_equal(call_code(f, "/t/Forbidden", TD_STR("x"), TD_STR("")), TD_PERMISSION_DENIED);
  assert_int_equal(f->admitted, before + 1);
}

static void handlers_see_the_call(void **state) {
  fixture *f = *state;
  result r;
  begin(f, &r, "/t/About", TD_STR(""), in_ms(300000), false, NULL);
  wait_for(&r);
  char expected[200];
  snprintf(expected, sizeof expected, "/t/About|tensord/" TD_VERSION "|%s",
           f->is_unix || f->neighbours ? "unix:|ahead" : "ipv4:127.0.0.1:");
  /* the headers of a trunk's calls are the trunk's, and deadlines are the channel's affair */
  assert_true(td_str_starts(td_strbuf_view(&r.reply), td_str_of(expected)));
  const char *deadline = f->trunks ? "|none" : "|ahead";
  assert_true(td_str_ends(td_strbuf_view(&r.reply), td_str_of(deadline)));
  result_free(&r);
}

static void receivers_land_both_ways(void **state) {
  fixture *f = *state;
  enum { SIZE = 10000000 };
  landing l = {.receiver.ops = &LANDING};
  result r;
  begin(f, &r, "/t/Give", TD_STR("10000000"), TD_NO_DEADLINE, true, &l.receiver);
  wait_for(&r);
  assert_null(r.status);
  assert_int_equal(r.reply.size, 0);
  assert_int_equal(l.got, SIZE);
  for (size_t i = 0; i < SIZE; i++)
    if (l.data[i] != (char)(i * 7 >> 2)) fail_msg("byte %zu", i);
  assert_true(l.direct > SIZE / 2);
  eventually(&l.destroyed, 1);
  assert_int_equal(call_code(f, "/t/Take", td_str_n(l.data, SIZE), TD_STR("10000000")), TD_OK);
  assert_int_equal(call_code(f, "/t/Take", TD_STR(""), TD_STR("0")), TD_OK);
  assert_int_equal(call_code(f, "/t/Take", td_str_n(l.data, 666), TD_STR("")), TD_INVALID_ARGUMENT);
  td_free(l.data);
  result_free(&r);
  /* a receiver that refuses */
  landing bad = {.receiver.ops = &LANDING};
  begin(f, &r, "/t/Give", TD_STR("666"), TD_NO_DEADLINE, true, &bad.receiver);
  wait_for(&r);
  assert_int_equal(td_status_code(r.status), TD_INVALID_ARGUMENT);
  eventually(&bad.destroyed, 1);
  result_free(&r);
  assert_int_equal(call_code(f, "/t/Echo", TD_STR("on"), TD_STR("on")), TD_OK);
}

static void oversize_both_ways(void **state) {
  fixture *f = *state;
  char *data = td_calloc(1, MAX_MESSAGE + 2000);
  assert_int_equal(call_code(f, "/t/Take", td_str_n(data, MAX_MESSAGE), TD_STR("20971520")), TD_OK);
  assert_int_equal(call_code(f, "/t/Take", td_str_n(data, MAX_MESSAGE + 1), TD_STR("")), TD_RESOURCE_EXHAUSTED);
  assert_int_equal(call_code(f, "/t/Echo", td_str_n(data, MAX_MESSAGE + 1), TD_STR("")), TD_RESOURCE_EXHAUSTED);
  assert_int_equal(call_code(f, "/t/Echo", td_str_n(data, MAX_MESSAGE + 1001), TD_STR("")), TD_RESOURCE_EXHAUSTED);
  assert_int_equal(call_code(f, "/t/Give", TD_STR("20971521"), TD_STR("")), TD_RESOURCE_EXHAUSTED);
  assert_int_equal(call_code(f, "/t/Echo", TD_STR("on"), TD_STR("on")), TD_OK);
  td_free(data);
}

static void deadlines_end_both_sides(void **state) {
  fixture *f = *state;
  result r;
  for (int ms = 100; !atomic_load(&f->held); ms *= 2) { /* on a loaded machine it may pass before the server heard */
    uint64_t begun = td_now_ns();
    begin(f, &r, "/t/Hold", TD_STR("x"), in_ms(ms), false, NULL);
    wait_for(&r);
    assert_int_equal(td_status_code(r.status), TD_DEADLINE_EXCEEDED);
    assert_true(td_now_ns() - begun >= (uint64_t)(ms - 1) * 1000000);
    result_free(&r);
  }
  for (int i = 0; i < 100000 && atomic_load(&f->cancelled) != atomic_load(&f->held); i++) usleep(1000);
  assert_int_equal(f->cancelled, f->held); /* more than one if the server heard late */
  begin(f, &r, "/t/Hold", TD_STR("x"), td_now_ns(), false, NULL);
  wait_for(&r);
  assert_int_equal(td_status_code(r.status), TD_DEADLINE_EXCEEDED);
  result_free(&r);
}

static void cancels_reach_the_handler(void **state) {
  fixture *f = *state;
  result r;
  begin(f, &r, "/t/Hold", TD_STR("x"), TD_NO_DEADLINE, false, NULL);
  eventually(&f->held, 1);
  td_client_call_cancel(r.call);
  td_client_call_cancel(r.call); /* twice is fine */
  wait_for(&r);
  assert_int_equal(td_status_code(r.status), TD_CANCELLED);
  eventually(&f->cancelled, 1);
  result_free(&r);
  /* at once, before it can have been sent */
  begin(f, &r, "/t/Hold", TD_STR("x"), TD_NO_DEADLINE, false, NULL);
  td_client_call_cancel(r.call);
  wait_for(&r);
  assert_int_equal(td_status_code(r.status), TD_CANCELLED);
  result_free(&r);
  /* after the end */
  begin(f, &r, "/t/Echo", TD_STR("x"), TD_NO_DEADLINE, false, NULL);
  while (sem_wait(&r.done)) continue;
  td_client_call_cancel(r.call);
  td_client_call_release(r.call);
  assert_null(r.status);
  result_free(&r);
  /* in the middle of a large answer */
  landing l = {.receiver.ops = &LANDING};
  begin(f, &r, "/t/Give", TD_STR("20000000"), TD_NO_DEADLINE, false, &l.receiver);
  usleep(2000);
  td_client_call_cancel(r.call);
  wait_for(&r);
  result_free(&r);
  eventually(&l.destroyed, 1);
  td_free(l.data);
  assert_int_equal(call_code(f, "/t/Echo", TD_STR("on"), TD_STR("on")), TD_OK);
}

/* Blocked steps are many and long: two thousand calls wait, others still pass, all can be answered or cancelled. */
static void many_blocked_streams(void **state) {
  fixture *f = *state;
  enum { N = 2000 };
  result *r = td_new_array(result, N);
  for (int i = 0; i < N; i++) begin(f, &r[i], i % 2 ? "/t/Hold" : "/t/Stick", TD_STR("x"), TD_NO_DEADLINE, true, NULL);
  eventually(&f->held, N / 2);
  eventually(&f->stuck_count, N / 2);
  assert_int_equal(call_code(f, "/t/Echo", TD_STR("between"), TD_STR("between")), TD_OK);
  for (int i = 1; i < N; i += 2) td_client_call_cancel(r[i].call);
  release_stuck(f);
  for (int i = 0; i < N; i++) {
    wait_for(&r[i]);
    assert_int_equal(td_status_code(r[i].status), i % 2 ? TD_CANCELLED : TD_OK);
    assert_int_equal(r[i].reply.size, i % 2 ? 0 : 4);
    result_free(&r[i]);
  }
  eventually(&f->cancelled, N / 2);
  td_free(r);
}

/* Streams are opened and reset as fast as can be: handlers hear of it, and the connection lives. */
static void resets_in_a_row(void **state) {
  fixture *f = *state;
  enum { ROUNDS = 20, N = 200 };
  result *r = td_new_array(result, N);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < N; i++) {
      begin(f, &r[i], "/t/Hold", TD_STR("x"), TD_NO_DEADLINE, true, NULL);
      td_client_call_cancel(r[i].call);
    }
    for (int i = 0; i < N; i++) {
      wait_for(&r[i]);
      assert_int_equal(td_status_code(r[i].status), TD_CANCELLED);
      result_free(&r[i]);
    }
  }
  assert_int_equal(call_code(f, "/t/Echo", TD_STR("on"), TD_STR("on")), TD_OK);
  eventually(&f->cancelled, atomic_load(&f->held));
  td_free(r);
}

static void fails_fast_or_waits(void **state) {
  fixture *f = *state;
  assert_int_equal(call_code(f, "/t/Echo", TD_STR("a"), TD_STR("a")), TD_OK);
  result held, waiting, r;
  begin(f, &held, "/t/Hold", TD_STR("x"), TD_NO_DEADLINE, true, NULL);
  eventually(&f->held, 1);
  td_rpc_server_destroy(f->server);
  f->server = NULL;
  wait_for(&held); /* what was in flight is lost, even if it waits for connections */
  assert_int_equal(td_status_code(held.status), TD_UNAVAILABLE);
  result_free(&held);
  eventually(&f->cancelled, 1);
  begin(f, &r, "/t/Echo", TD_STR("x"), TD_NO_DEADLINE, false, NULL);
  wait_for(&r);
  assert_int_equal(td_status_code(r.status), TD_UNAVAILABLE);
  assert_non_null(strstr(td_status_message(r.status), f->address));
  result_free(&r);
  assert_false(td_channel_is_connected(f->channel));
  begin(f, &r, "/t/Echo", TD_STR("x"), in_ms(100), true, NULL);
  wait_for(&r);
  assert_int_equal(td_status_code(r.status), TD_DEADLINE_EXCEEDED);
  result_free(&r);
  begin(f, &waiting, "/t/Echo", TD_STR("back"), in_ms(300000), true, NULL);
  usleep(50000);
  char address[128];
  snprintf(address, sizeof address, "%s", f->address);
  server_start(f, address);
  wait_for(&waiting);
  assert_null(waiting.status);
  assert_string_equal(td_strbuf_cstr(&waiting.reply), "back");
  result_free(&waiting);
}

/* stop_accepting: what runs goes on and is answered, new calls do not come in; then drain is quick and clean. */
static void drains(void **state) {
  fixture *f = *state;
  result stuck, r;
  begin(f, &stuck, "/t/Stick", TD_STR("x"), TD_NO_DEADLINE, true, NULL);
  eventually(&f->stuck_count, 1);
  td_rpc_server_stop_accepting(f->server);
  for (td_code code = TD_OK; code != TD_UNAVAILABLE; usleep(1000)) { /* a call that comes before is answered */
    begin(f, &r, "/t/Echo", TD_STR("x"), TD_NO_DEADLINE, false, NULL);
    wait_for(&r);
    code = td_status_code(r.status);
    assert_true(code == TD_OK || code == TD_UNAVAILABLE);
    result_free(&r);
  }
  release_stuck(f);
  assert_true(td_rpc_server_drain(f->server, in_ms(300000)));
  wait_for(&stuck);
  assert_null(stuck.status);
  assert_string_equal(td_strbuf_cstr(&stuck.reply), "late");
  result_free(&stuck);
}

static void drain_cancels_at_its_deadline(void **state) {
  fixture *f = *state;
  result held;
  begin(f, &held, "/t/Hold", TD_STR("x"), TD_NO_DEADLINE, true, NULL);
  eventually(&f->held, 1);
  td_rpc_server_stop_accepting(f->server);
  assert_false(td_rpc_server_drain(f->server, in_ms(50)));
  assert_int_equal(f->cancelled, 1);
  wait_for(&held);
  assert_int_equal(td_status_code(held.status), TD_CANCELLED);
  result_free(&held);
}

/* The server goes while a handler still has the call, which answers after. */
static void late_answers_after_destroy(void **state) {
  fixture *f = *state;
  result r;
  begin(f, &r, "/t/Stick", TD_STR("x"), TD_NO_DEADLINE, true, NULL);
  eventually(&f->stuck_count, 1);
  td_rpc_server_destroy(f->server);
  f->server = NULL;
  eventually(&f->cancelled, 1);
  wait_for(&r);
  assert_int_equal(td_status_code(r.status), TD_UNAVAILABLE);
  result_free(&r);
  release_stuck(f);
}

static void channel_destroy_fails_calls(void **state) {
  fixture *f = *state;
  td_channel *own;
  assert_null(td_channel_create(f->client_loop, f->address, NULL, &own));
  td_channel *kept = f->channel;
  f->channel = own;
  result r;
  begin(f, &r, "/t/Hold", TD_STR("x"), TD_NO_DEADLINE, true, NULL);
  eventually(&f->held, 1);
  td_channel_destroy(own);
  wait_for(&r);
  assert_int_equal(td_status_code(r.status), TD_UNAVAILABLE);
  result_free(&r);
  f->channel = kept;
  eventually(&f->cancelled, 1);
}

static void a_port_in_use_says_so(void **state) {
  fixture *f = *state;
  td_rpc_server *second;
  td_rpc_server_options o = {.loops = f->loops, .loop_count = 1};
  assert_null(td_rpc_server_create(&o, &second));
  td_status s = td_rpc_server_listen(second, f->address, NULL);
  assert_int_equal(td_status_code(s), TD_UNKNOWN);
  assert_non_null(strstr(td_status_message(s), "Could not start gRPC server"));
  assert_non_null(strstr(td_status_message(s), f->address));
  td_status_free(s);
  s = td_rpc_server_listen(second, "nonsense", NULL);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  assert_string_equal(td_status_message(s), "Could not interpret \"nonsense\" as a host-port pair.");
  td_status_free(s);
  td_rpc_server_destroy(second);
}

static void unresolvable_names_fail(void **state) {
  fixture *f = *state;
  td_channel *own, *kept = f->channel;
  assert_null(td_channel_create(f->client_loop, "no-such-host.invalid:1", NULL, &own));
  f->channel = own;
  result r;
  begin(f, &r, "/t/Echo", TD_STR("x"), in_ms(15000), false, NULL);
  wait_for(&r);
  assert_true(td_status_code(r.status) == TD_UNAVAILABLE || td_status_code(r.status) == TD_DEADLINE_EXCEEDED);
  result_free(&r);
  f->channel = kept;
  td_channel_destroy(own);
}

/* Calls from callbacks, on the loop's own thread. */
typedef struct chain {
  fixture *f;
  int left;
  sem_t done;
  td_code code;
} chain;

static void chain_next(chain *c);
static void chain_done(void *arg, td_status status, td_str reply, td_str details) {
  chain *c = arg;
  c->code = td_status_code(status);
  td_status_free(status);
  if (c->code || !--c->left) {
    sem_post(&c->done);
  } else {
    chain_next(c);
  }
}
static void chain_next(chain *c) {
  td_payload message = {0};
  td_payload_copy(&message, "x", 1);
  td_call_options o = {
      .path = "/t/Echo", .deadline_ns = TD_NO_DEADLINE, .wait_for_ready = true, .done = chain_done, .arg = c};
  td_client_call_release(td_channel_call(c->f->channel, &o, &message));
}
static void calls_from_callbacks(void **state) {
  chain c = {.f = *state, .left = 2000};
  sem_init(&c.done, 0, 0);
  chain_next(&c);
  sem_wait(&c.done);
  assert_int_equal(c.code, TD_OK);
  assert_int_equal(c.left, 0);
  sem_destroy(&c.done);
}

/* Threads that call, cancel and give deadlines at random, on channels of their own. */
typedef struct storm {
  fixture *f;
  unsigned seed;
  pthread_t thread;
} storm;

static void *storm_main(void *arg) {
  storm *s = arg;
  static const char *const PATHS[] = {"/t/Echo", "/t/Later", "/t/Hold", "/t/Give", "/t/Take", "/t/Nope"};
  td_channel *own;
  assert_null(td_channel_create(s->f->client_loop, s->f->address, NULL, &own));
  enum { ROUNDS = 40, N = 12 };
  result *r = td_new_array(result, N);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < N; i++) {
      int which = (int)(rand_r(&s->seed) % TD_COUNT(PATHS)), ms = rand_r(&s->seed) % 20;
      fixture mine = {.channel = own};
      td_call_options o = {.path = PATHS[which],
                           .deadline_ns = which == 2 || ms < 5 ? in_ms((uint64_t)ms) : TD_NO_DEADLINE,
                           .wait_for_ready = true,
                           .is_patient = ms % 3 == 0};
      begin_as(&mine, &r[i], o, TD_STR("300000"));
      if (rand_r(&s->seed) % 3 == 0) td_client_call_cancel(r[i].call);
    }
    for (int i = 0; i < N; i++) {
      wait_for(&r[i]);
      result_free(&r[i]);
    }
  }
  td_free(r);
  td_channel_destroy(own);
  return NULL;
}

static void begin_patient(fixture *f, result *r, const char *path, td_str request) {
  td_call_options o = {.path = path, .deadline_ns = in_ms(600000), .is_patient = true, .wait_for_ready = true};
  begin_as(f, r, o, request);
}

/* Patient calls leave by themselves, or with another; they end like others while they wait for one. */
static void patient_calls(void **state) {
  fixture *f = *state;
  result a, b, c;
  for (int i = 0; i < 3; i++) { /* without a connection at first */
    begin_patient(f, &a, "/t/Echo", TD_STR("alone"));
    wait_for(&a);
    assert_null(a.status);
    assert_true(td_str_is(td_strbuf_view(&a.reply), "alone"));
    result_free(&a);
  }
  begin_patient(f, &a, "/t/Hold", TD_STR("first"));
  begin_patient(f, &b, "/t/Echo", TD_STR("second"));
  begin(f, &c, "/t/Echo", TD_STR("company"), TD_NO_DEADLINE, true, NULL);
  wait_for(&b);
  wait_for(&c);
  assert_null(b.status);
  assert_null(c.status);
  eventually(&f->held, 1);
  td_client_call_cancel(a.call);
  wait_for(&a);
  assert_int_equal(td_status_code(a.status), TD_CANCELLED);
  result_free(&a), result_free(&b), result_free(&c);
  begin_patient(f, &a, "/t/Echo", TD_STR("cancelled at once"));
  td_client_call_cancel(a.call);
  wait_for(&a);
  assert_true(!a.status || td_status_code(a.status) == TD_CANCELLED);
  result_free(&a);
  begin_patient(f, &a, "/t/Echo", TD_STR("and left behind"));
  td_channel_destroy(f->channel);
  f->channel = NULL;
  wait_for(&a);
  assert_true(!a.status || td_status_code(a.status) == TD_UNAVAILABLE);
  result_free(&a);
}

typedef struct withdrawal {
  td_work work;
  fixture *f;
  result a, b, c;
  td_strbuf taken;
  sem_t done;
} withdrawal;

static void take_back(void *arg, td_str message) { td_strbuf_append(arg, message); }

/* On the loop, so that nothing leaves meanwhile. */
static void withdraw_run(td_work *work) {
  withdrawal *w = TD_CONTAINER_OF(work, withdrawal, work);
  begin_patient(w->f, &w->a, "/t/Hold", TD_STR("one "));
  begin_patient(w->f, &w->b, "/t/Echo", TD_STR("stays"));
  begin_patient(w->f, &w->c, "/t/Hold", TD_STR("two"));
  td_channel_withdraw(w->f->channel, "/t/Hold", take_back, &w->taken);
  td_channel_withdraw(w->f->channel, "/t/Hold", take_back, &w->taken); /* there are none any more */
  sem_post(&w->done);
}

static void patient_calls_are_withdrawn(void **state) {
  withdrawal w = {.work.run = withdraw_run, .f = *state};
  sem_init(&w.done, 0, 0);
  begin(w.f, &w.a, "/t/Echo", TD_STR("connect"), TD_NO_DEADLINE, true, NULL);
  wait_for(&w.a);
  result_free(&w.a);
  td_loop_post(w.f->client_loop, &w.work);
  while (sem_wait(&w.done)) continue;
  wait_for(&w.a), wait_for(&w.b), wait_for(&w.c);
  assert_null(w.a.status);
  assert_null(w.b.status);
  assert_null(w.c.status);
  assert_int_equal(w.a.reply.size, 0);
  assert_true(td_str_is(td_strbuf_view(&w.b.reply), "stays"));
  assert_true(td_str_is(td_strbuf_view(&w.taken), "one two"));
  assert_int_equal(w.f->held, 0); /* they were never sent */
  result_free(&w.a), result_free(&w.b), result_free(&w.c);
  td_strbuf_deinit(&w.taken);
  sem_destroy(&w.done);
}

static void storms_pass(void **state) {
  storm s[4];
  for (int i = 0; i < 4; i++) {
    s[i] = (storm){.f = *state, .seed = (unsigned)i + 1};
    assert_int_equal(pthread_create(&s[i].thread, NULL, storm_main, &s[i]), 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(s[i].thread, NULL);
  assert_int_equal(call_code(*state, "/t/Echo", TD_STR("on"), TD_STR("on")), TD_OK);
}

/* Which loop serves a new channel to the server; the channel comes back, connected. */
static td_channel *expect_loop(fixture *f, bool neighbours, int lane, const char *loop) {
  td_channel *usual = f->channel, *c;
  td_channel_options o = {.neighbours = neighbours, .lane = lane};
  assert_null(td_channel_create(f->client_loop, f->address, &o, &c));
  f->channel = c;
  assert_int_equal(call_code(f, "/t/Loop", TD_STR(""), td_str_of(loop)), TD_OK);
  f->channel = usual;
  return c;
}

static void neighbours_choose_their_loop(void **state) {
  static const int lanes[] = {1, 1, 0, 1, 7}; /* there are two */
  for (size_t i = 0; i < TD_COUNT(lanes); i++)
    td_channel_destroy(expect_loop(*state, true, lanes[i], lanes[i] == 1 ? "1" : "0"));
}

static void others_go_where_fewest_are(void **state) {
  static const char *const loops[] = {"0", "0", "1", "1", "0", "1"}; /* where the first two asked to be */
  td_channel *open[TD_COUNT(loops)];
  for (size_t i = 0; i < TD_COUNT(loops); i++) open[i] = expect_loop(*state, i < 2, 0, loops[i]);
  for (size_t i = 0; i < TD_COUNT(loops); i++) td_channel_destroy(open[i]);
}

#define EACH_WAY(test)                                                                                    \
  {#test " (tcp)", test, setup_tcp, teardown, NULL}, {#test " (unix)", test, setup_unix, teardown, NULL}, \
      {#test " (neighbours)", test, setup_neighbours, teardown, NULL}, {                                  \
#test " (trunks)", test, setup_trunks, teardown, NULL                                                 \
  }

int main(void) {
  const struct CMUnitTest tests[] = {
      EACH_WAY(echoes_of_all_sizes),
      EACH_WAY(errors_carry_text_and_details),
      EACH_WAY(handlers_see_the_call),
      EACH_WAY(receivers_land_both_ways),
      EACH_WAY(oversize_both_ways),
      EACH_WAY(deadlines_end_both_sides),
      EACH_WAY(cancels_reach_the_handler),
      EACH_WAY(many_blocked_streams),
      EACH_WAY(resets_in_a_row),
      EACH_WAY(fails_fast_or_waits),
      EACH_WAY(drains),
      EACH_WAY(drain_cancels_at_its_deadline),
      EACH_WAY(late_answers_after_destroy),
      EACH_WAY(channel_destroy_fails_calls),
      EACH_WAY(a_port_in_use_says_so),
      EACH_WAY(calls_from_callbacks),
      EACH_WAY(storms_pass),
      EACH_WAY(patient_calls),
      EACH_WAY(patient_calls_are_withdrawn),
      cmocka_unit_test_setup_teardown(neighbours_choose_their_loop, setup_neighbours, teardown),
      cmocka_unit_test_setup_teardown(others_go_where_fewest_are, setup_neighbours, teardown),
      cmocka_unit_test_setup_teardown(unresolvable_names_fail, setup_tcp, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

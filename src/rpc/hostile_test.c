/* Peers that are no gRPC clients, or mean no good: raw bytes against a server on a unix socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/rpc.h"

enum { DATA = 0, HEADERS = 1, RST = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, CONTINUATION = 9 };
enum { END_STREAM = 1, END_HEADERS = 4 };
enum { PATIENCE_MS = 60000 }; /* for what must come; how long that takes is the machine's affair */

static td_loop *loop;
static td_rpc_server *server;
static char path[108];
static _Atomic int held, cancelled;

static void echo(void *service, td_call *call, td_str request) {
  td_payload reply = {0};
  td_payload_copy(&reply, request.data, request.size);
  td_call_reply(call, &reply);
}
static void hold_cancelled(void *arg) {
  atomic_fetch_add(&cancelled, 1);
  td_call_fail(arg, td_cancelled("held"), (td_str){0});
}
static void hold(void *service, td_call *call, td_str request) {
  atomic_fetch_add(&held, 1);
  td_call_on_cancel(call, hold_cancelled, call);
}
static const td_method METHODS[] = {{"/t/E", echo, NULL}, {"/t/H", hold, NULL}};

static int setup(void **state) {
  td_log_set_level(TD_LOG_ERROR);
  snprintf(path, sizeof path, "/tmp/td_hostile_test_%d", (int)getpid());
  char address[128];
  snprintf(address, sizeof address, "unix:%s", path);
  assert_null(td_loop_create("server", NULL, &loop));
  td_rpc_server_options o = {.loops = &loop,
                             .loop_count = 1,
                             .methods = METHODS,
                             .method_count = TD_COUNT(METHODS),
                             .max_message_bytes = 1 << 20};
  assert_null(td_rpc_server_create(&o, &server));
  assert_null(td_rpc_server_listen(server, address, NULL));
  td_rpc_server_start(server);
  return 0;
}

static int teardown(void **state) {
  td_rpc_server_destroy(server);
  td_loop_stop(loop);
  td_loop_destroy(loop);
  return 0;
}

/* ---- a raw peer ------------------------------------------------------------------------------------------- */

static void frame(td_strbuf *b, int type, int flags, uint32_t stream, td_str payload) {
  size_t n = payload.size;
  unsigned char head[9] = {(unsigned char)(n >> 16),      (unsigned char)(n >> 8),      (unsigned char)n,
                           (unsigned char)type,           (unsigned char)flags,         (unsigned char)(stream >> 24),
                           (unsigned char)(stream >> 16), (unsigned char)(stream >> 8), (unsigned char)stream};
  td_strbuf_append(b, td_str_n(head, sizeof head));
  td_strbuf_append(b, payload);
}

static void literal(td_strbuf *b, const char *name, const char *value) {
  td_strbuf_putc(b, 0);
  td_strbuf_putc(b, (char)strlen(name));
  td_strbuf_puts(b, name);
  td_strbuf_putc(b, (char)strlen(value));
  td_strbuf_puts(b, value);
}

static void headers(td_strbuf *b, uint32_t stream, const char *method, const char *to, const char *type,
                    const char *timeout, int flags) {
  td_strbuf h = {0};
  literal(&h, ":method", method);
  literal(&h, ":scheme", "http");
  literal(&h, ":path", to);
  literal(&h, ":authority", "a");
  if (type) literal(&h, "content-type", type);
  if (timeout) literal(&h, "grpc-timeout", timeout);
  frame(b, HEADERS, flags, stream, td_strbuf_view(&h));
  td_strbuf_deinit(&h);
}

static void request(td_strbuf *b, uint32_t stream, const char *to) {
  headers(b, stream, "POST", to, "application/grpc", NULL, END_HEADERS);
  frame(b, DATA, END_STREAM, stream, TD_STR("\0\0\0\0\5hello"));
}

static void preface(td_strbuf *b) {
  td_strbuf_puts(b, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  frame(b, SETTINGS, 0, 0, TD_STR(""));
}

static int dial(void) {
  struct sockaddr_un u = {.sun_family = AF_UNIX};
  memcpy(u.sun_path, path, sizeof path);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&u, sizeof u), 0);
  return fd;
}

/* Sends `bytes`, reading what comes meanwhile, until `until` was seen in it, the server closes (*closed), or three
 * seconds have passed without a byte. */
static td_strbuf talk(int fd, td_strbuf *bytes, td_str until, bool *closed) {
  td_strbuf got = {0};
  size_t sent = 0;
  *closed = false;
  for (;;) {
    if (until.size && got.size && memmem(got.data, got.size, until.data, until.size)) break;
    struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (sent < bytes->size ? POLLOUT : 0))};
    if (poll(&p, 1, PATIENCE_MS) <= 0) break;
    if (p.revents & (POLLIN | POLLHUP)) {
      char chunk[65536];
      ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN)) {
        *closed = true;
        break;
      }
      if (n > 0) td_strbuf_append(&got, td_str_n(chunk, (size_t)n));
    }
    if (p.revents & POLLOUT) {
      ssize_t n = send(fd, bytes->data + sent, bytes->size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) sent += (size_t)n;
    }
  }
  td_strbuf_deinit(bytes);
  return got;
}

/* The whole exchange on a connection of its own: whether `expected` came, and whether the server closed. */
static bool exchange(td_strbuf *bytes, td_str expected, bool *closed) {
  int fd = dial();
  td_strbuf got = talk(fd, bytes, expected, closed);
  bool found = got.size && memmem(got.data, got.size, expected.data, expected.size);
  td_strbuf_deinit(&got);
  close(fd);
  return found;
}

static void server_lives(void) {
  td_strbuf b = {0};
  bool closed;
  preface(&b);
  request(&b, 1, "/t/E");
  assert_true(exchange(&b, TD_STR("hello"), &closed));
}

/* ---- tests ------------------------------------------------------------------------------------------------ */

static void plain_http_gets_a_status(void **state) {
  static const struct {
    const char *method, *to, *type;
    td_str body;
  } CASES[] = {
      {"GET", "/", NULL, {"Not found", 9}},
      {"GET", "/t/E", NULL, {"Method not allowed", 18}},
      {"PUT", "/t/E", "application/grpc", {"Method not allowed", 18}},
      {"POST", "/t/E", "application/json", {"Unsupported media type", 22}},
      {"POST", "/t/E", "application/grpcx", {"Unsupported media type", 22}},
      {"POST", "/t/E", NULL, {"Unsupported media type", 22}},
  };
  for (size_t i = 0; i < TD_COUNT(CASES); i++) {
    td_strbuf b = {0};
    bool closed;
    preface(&b);
    headers(&b, 1, CASES[i].method, CASES[i].to, CASES[i].type, NULL, END_HEADERS | END_STREAM);
    assert_true(exchange(&b, CASES[i].body, &closed));
  }
  td_strbuf b = {0};
  bool closed;
  preface(&b);
  headers(&b, 1, "POST", "/t/E", "application/grpc+proto", NULL, END_HEADERS);
  frame(&b, DATA, END_STREAM, 1, TD_STR("\0\0\0\0\5hello"));
  assert_true(exchange(&b, TD_STR("hello"), &closed));
}

static void garbage_is_refused(void **state) {
  td_strbuf b = {0};
  bool closed;
  td_strbuf_puts(&b, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  exchange(&b, TD_STR("\xff\xff\xff\xff"), &closed);
  assert_true(closed);
  preface(&b);
  frame(&b, HEADERS, END_HEADERS | END_STREAM, 1, TD_STR("\xff\xff\xff\xff\xff\xff\xff\xff\xff")); /* no HPACK */
  exchange(&b, TD_STR("\xff\xff\xff\xff"), &closed);
  assert_true(closed);
  server_lives();
}

static const td_str CALM = {"\0\0\0\x0b", 4}; /* GOAWAY's ENHANCE_YOUR_CALM */

/* A flood of so many frames was ended, unless the machine was so slow that it kept to the budget, which grows with
 * time.
 */
static void assert_ended(bool closed, uint64_t begun_ns, uint64_t frames, uint64_t burst, uint64_t rate) {
  uint64_t ms = (td_now_ns() - begun_ns) / 1000000;
  if (!closed) assert_true(ms > PATIENCE_MS && burst + (ms - PATIENCE_MS) * rate / 1000 >= frames);
}

static void floods_end_the_connection(void **state) {
  static const struct {
    int type, flags;
    uint32_t stream;
    td_str payload;
  } KINDS[] = {{PING, 0, 0, {"12345678", 8}},
               {SETTINGS, 0, 0, {"", 0}},
               {DATA, 0, 1, {"", 0}},
               {77, 0, 0, {"unknown", 7}},
               {2, 0, 1, {"\0\0\0\0\x10", 5}}}; /* PRIORITY */
  for (size_t i = 0; i < TD_COUNT(KINDS); i++) {
    td_strbuf b = {0};
    bool closed;
    preface(&b);
    headers(&b, 1, "POST", "/t/E", "application/grpc", NULL, END_HEADERS);
    for (int k = 0; k < 50000; k++) frame(&b, KINDS[i].type, KINDS[i].flags, KINDS[i].stream, KINDS[i].payload);
    uint64_t begun = td_now_ns();
    exchange(&b, TD_STR("never comes"), &closed);
    assert_ended(closed, begun, 50000, 10000, 2000);
  }
  server_lives();
}

static void rapid_reset_ends_the_connection(void **state) {
  td_strbuf b = {0};
  bool closed;
  int before = held;
  preface(&b);
  for (uint32_t i = 0; i < 150000; i++) {
    request(&b, 2 * i + 1, "/t/H");
    frame(&b, RST, 0, 2 * i + 1, TD_STR("\0\0\0\x08"));
  }
  uint64_t begun = td_now_ns();
  exchange(&b, TD_STR("never comes"), &closed);
  assert_ended(closed, begun, 150000, 65536, 5000);
  server_lives();
  assert_true(!closed || held - before < 150000);
  for (int i = 0; i < PATIENCE_MS && cancelled != held; i++) usleep(1000);
  assert_int_equal(cancelled, held);
}

static void large_header_blocks_end_the_connection(void **state) {
  td_strbuf b = {0}, h = {0};
  bool closed;
  preface(&b);
  headers(&b, 1, "POST", "/t/E", "application/grpc", NULL, 0);
  char value[121];
  memset(value, 'v', 120);
  value[120] = 0;
  while (h.size < 15000) literal(&h, "x-long", value);
  for (int i = 0; i < 8; i++) frame(&b, CONTINUATION, i == 7 ? END_HEADERS : 0, 1, td_strbuf_view(&h));
  exchange(&b, CALM, &closed);
  td_strbuf_deinit(&h);
  /* small on the wire, large when decoded: one entry of the table, named again and again */
  preface(&b);
  memset(value, 'v', 120);
  td_strbuf_putc(&h, 0x40);
  td_strbuf_putc(&h, 6);
  td_strbuf_puts(&h, "x-long");
  td_strbuf_putc(&h, 120);
  td_strbuf_puts(&h, value);
  for (int i = 0; i < 10000; i++) td_strbuf_putc(&h, (char)0xbe);
  frame(&b, HEADERS, END_HEADERS | END_STREAM, 1, td_strbuf_view(&h));
  td_strbuf_deinit(&h);
  bool calm = exchange(&b, CALM, &closed);
  assert_true(calm || closed);
  server_lives();
}

/* As gRPC's own clients do when a call is cancelled as it starts: the connection's other calls go on. */
static void the_reset_of_a_call_that_never_began_is_nothing(void **state) {
  int fd = dial();
  td_strbuf b = {0};
  bool closed;
  preface(&b);
  request(&b, 1, "/t/E");
  frame(&b, RST, 0, 3, TD_STR("\0\0\0\x08"));
  td_strbuf got = talk(fd, &b, TD_STR("hello"), &closed);
  assert_false(closed);
  td_strbuf_deinit(&got);
  request(&b, 5, "/t/E");
  got = talk(fd, &b, TD_STR("hello"), &closed);
  assert_false(closed);
  td_strbuf_deinit(&got);
  close(fd);
}

static void a_request_without_end_meets_its_deadline(void **state) {
  td_strbuf b = {0};
  bool closed;
  uint64_t begun = td_now_ns();
  preface(&b);
  headers(&b, 1, "POST", "/t/E", "application/grpc", "60m", END_HEADERS);
  frame(&b, DATA, 0, 1, TD_STR("\0\0\0\0\5he"));
  assert_true(exchange(&b, TD_STR("\0\0\0\0"), &closed));
  int fd = dial();
  preface(&b);
  headers(&b, 1, "POST", "/t/E", "application/grpc", "60m", END_HEADERS);
  td_strbuf got = talk(fd, &b, TD_STR("\x03\0\0\0\0\1"), &closed); /* RST_STREAM on stream 1 behind the answer */
  assert_true(got.size && memmem(got.data, got.size, "\x03\0\0\0\0\1\0\0\0\0", 10));
  assert_true(td_now_ns() - begun >= 60000000);
  td_strbuf_deinit(&got);
  /* what the client sent before it knew is dropped, and the connection goes on */
  frame(&b, DATA, END_STREAM, 1, TD_STR("llo"));
  request(&b, 3, "/t/E");
  got = talk(fd, &b, TD_STR("hello"), &closed);
  assert_true(got.size && memmem(got.data, got.size, "hello", 5));
  td_strbuf_deinit(&got);
  close(fd);
}

static void compressed_request(td_strbuf *b, uint32_t stream, size_t size, const char *encoding) {
  char *text = td_malloc(size), *packed = td_malloc(size + 1000);
  memset(text, 'z', size);
  z_stream z = {.next_in = (Bytef *)text,
                .avail_in = (uInt)size,
                .next_out = (Bytef *)packed + 5,
                .avail_out = (uInt)(size + 995)};
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, *encoding == 'g' ? 31 : 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  packed[0] = 1;
  for (int i = 0; i < 4; i++) packed[1 + i] = (char)(z.total_out >> (24 - 8 * i));
  td_strbuf h = {0};
  literal(&h, ":method", "POST");
  literal(&h, ":scheme", "http");
  literal(&h, ":path", "/t/E");
  literal(&h, ":authority", "a");
  literal(&h, "content-type", "application/grpc");
  literal(&h, "grpc-encoding", encoding);
  frame(b, HEADERS, END_HEADERS, stream, td_strbuf_view(&h));
  for (size_t at = 0, all = z.total_out + 5; at < all; at += 16384)
    frame(b, DATA, at + 16384 >= all ? END_STREAM : 0, stream, td_str_n(packed + at, TD_MIN((size_t)16384, all - at)));
  deflateEnd(&z);
  td_strbuf_deinit(&h);
  td_free(text);
  td_free(packed);
}

/* Inflated, and capped while inflating: 1 MiB is the most this server takes. */
static void compressed_requests(void **state) {
  static const char *const ENCODINGS[] = {"gzip", "deflate"};
  for (size_t i = 0; i < TD_COUNT(ENCODINGS); i++) {
    td_strbuf b = {0};
    bool closed;
    preface(&b);
    compressed_request(&b, 1, 1000, ENCODINGS[i]);
    assert_true(exchange(&b, TD_STR("\0\0\0\3\xe8zzzzzzzzzzzzzzzz"), &closed));
    preface(&b);
    compressed_request(&b, 1, 40 << 20, ENCODINGS[i]);
    compressed_request(&b, 3, 100, ENCODINGS[i]);
    int fd = dial();
    td_strbuf got = talk(fd, &b, TD_STR("\0\0\0\0\x64zzzzzzzz"), &closed);
    assert_true(memmem(got.data, got.size, "\0\0\0\0\x64zzzzzzzz", 13));
    assert_true(got.size < 2000); /* the bomb was not echoed */
    td_strbuf_deinit(&got);
    close(fd);
  }
  td_strbuf b = {0};
  bool closed;
  preface(&b);
  compressed_request(&b, 1, 100, "snappy"); /* packed with zlib in truth, but not even tried */
  int fd = dial();
  td_strbuf got = talk(fd, &b, TD_STR("\x01\x05\0\0\0\1"), &closed); /* HEADERS that end stream 1: the status */
  assert_true(got.size && memmem(got.data, got.size, "\x01\x05\0\0\0\1", 6));
  assert_null(memmem(got.data, got.size, "zzzz", 4));
  td_strbuf_deinit(&got);
  close(fd);
  server_lives();
}

/* A peer that vanishes in the middle of everything. */
static void sudden_ends(void **state) {
  for (int i = 0; i < 50; i++) {
    td_strbuf b = {0};
    preface(&b);
    request(&b, 1, "/t/H");
    request(&b, 3, "/t/E");
    headers(&b, 5, "POST", "/t/E", "application/grpc", "1S", END_HEADERS);
    int fd = dial();
    assert_true(send(fd, b.data, b.size - (size_t)i, MSG_NOSIGNAL) > 0);
    if (i % 2) usleep(500);
    close(fd);
    td_strbuf_deinit(&b);
  }
  server_lives();
  for (int i = 0; i < PATIENCE_MS && cancelled != held; i++) usleep(1000);
  assert_int_equal(cancelled, held);
}

/* Keepalive: a peer that neither speaks nor answers pings is dropped, on either side. */
static void a_mute_client_is_dropped(void **state) {
  char address[128], own[108];
  snprintf(own, sizeof own, "/tmp/td_mute_test_%d", (int)getpid());
  snprintf(address, sizeof address, "unix:%s", own);
  td_rpc_server *s;
  td_rpc_server_options o = {.loops = &loop, .loop_count = 1, .keepalive_ns = 100000000};
  assert_null(td_rpc_server_create(&o, &s));
  assert_null(td_rpc_server_listen(s, address, NULL));
  td_rpc_server_start(s);
  char kept[sizeof path];
  memcpy(kept, path, sizeof path);
  memcpy(path, own, sizeof own);
  td_strbuf b = {0};
  bool closed;
  uint64_t begun = td_now_ns();
  preface(&b);
  exchange(&b, TD_STR("never comes"), &closed);
  assert_true(closed);
  assert_true(td_now_ns() - begun >= 150000000);
  memcpy(path, kept, sizeof path);
  td_rpc_server_destroy(s);
}

typedef struct outcome {
  _Atomic int ended;
  td_code code;
} outcome;

static void outcome_done(void *arg, td_status status, td_str reply, td_str details) {
  outcome *r = arg;
  r->code = td_status_code(status);
  td_status_free(status);
  atomic_store(&r->ended, 1);
}

static void a_mute_server_is_given_up(void **state) {
  char address[128];
  struct sockaddr_un u = {.sun_family = AF_UNIX};
  snprintf(u.sun_path, sizeof u.sun_path, "/tmp/td_mute_server_%d", (int)getpid());
  snprintf(address, sizeof address, "unix:%s", u.sun_path);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&u, sizeof u), 0);
  assert_int_equal(listen(listener, 8), 0);
  td_channel *c;
  td_channel_options o = {.keepalive_ns = 100000000};
  assert_null(td_channel_create(loop, address, &o, &c));
  outcome r = {0};
  td_call_options call = {.path = "/t/E", .deadline_ns = TD_NO_DEADLINE, .done = outcome_done, .arg = &r};
  td_payload message = {0};
  td_client_call_release(td_channel_call(c, &call, &message));
  int fd = accept(listener, NULL, NULL);
  assert_true(fd >= 0);
  td_strbuf b = {0};
  frame(&b, SETTINGS, 0, 0, TD_STR(""));
  assert_int_equal(send(fd, b.data, b.size, MSG_NOSIGNAL), b.size);
  td_strbuf_deinit(&b);
  for (int i = 0; i < PATIENCE_MS && !r.ended; i++) usleep(1000);
  assert_true(r.ended);
  assert_int_equal(r.code, TD_UNAVAILABLE);
  td_channel_destroy(c);
  close(fd);
  close(listener);
  unlink(u.sun_path);
}

/* gRPC's own servers name no limit of streams: hundreds of calls must be under way at once, or steps deadlock. */
static void no_stream_limit_means_none(void **state) {
  enum { CALLS = 1000 };
  char address[128];
  struct sockaddr_un u = {.sun_family = AF_UNIX};
  snprintf(u.sun_path, sizeof u.sun_path, "/tmp/td_no_limit_%d", (int)getpid());
  snprintf(address, sizeof address, "unix:%s", u.sun_path);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&u, sizeof u), 0);
  assert_int_equal(listen(listener, 8), 0);
  td_channel *c;
  assert_null(td_channel_create(loop, address, NULL, &c));
  outcome *r = td_new_array(outcome, CALLS);
  for (int i = 0; i < CALLS; i++) {
    td_call_options call = {.path = "/t/E", .deadline_ns = TD_NO_DEADLINE, .done = outcome_done, .arg = &r[i]};
    td_payload message = {0};
    td_client_call_release(td_channel_call(c, &call, &message));
  }
  int fd = accept(listener, NULL, NULL);
  td_strbuf b = {0}, got = {0};
  frame(&b, SETTINGS, 0, 0, TD_STR(""));
  assert_int_equal(send(fd, b.data, b.size, MSG_NOSIGNAL), b.size);
  td_strbuf_deinit(&b);
  int requests = 0;
  struct pollfd p = {.fd = fd, .events = POLLIN};
  size_t at = 24; /* behind the preface */
  while (requests < CALLS && poll(&p, 1, PATIENCE_MS) > 0) {
    char chunk[65536];
    ssize_t n = recv(fd, chunk, sizeof chunk, 0);
    if (n <= 0) break;
    td_strbuf_append(&got, td_str_n(chunk, (size_t)n));
    while (at + 9 <= got.size) {
      const unsigned char *h = (unsigned char *)got.data + at;
      size_t size = (size_t)h[0] << 16 | (size_t)h[1] << 8 | h[2];
      if (at + 9 + size > got.size) break;
      requests += h[3] == HEADERS;
      at += 9 + size;
    }
  }
  assert_int_equal(requests, CALLS);
  td_strbuf_deinit(&got);
  td_channel_destroy(c);
  for (int i = 0; i < CALLS; i++) {
    for (int k = 0; k < PATIENCE_MS && !r[i].ended; k++) usleep(1000);
    assert_int_equal(r[i].code, TD_UNAVAILABLE);
  }
  td_free(r);
  close(fd);
  close(listener);
  unlink(u.sun_path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_http_gets_a_status),
      cmocka_unit_test(garbage_is_refused),
      cmocka_unit_test(floods_end_the_connection),
      cmocka_unit_test(rapid_reset_ends_the_connection),
      cmocka_unit_test(large_header_blocks_end_the_connection),
      cmocka_unit_test(the_reset_of_a_call_that_never_began_is_nothing),
      cmocka_unit_test(a_request_without_end_meets_its_deadline),
      cmocka_unit_test(compressed_requests),
      cmocka_unit_test(sudden_ends),
      cmocka_unit_test(a_mute_client_is_dropped),
      cmocka_unit_test(a_mute_server_is_given_up),
      cmocka_unit_test(no_stream_limit_means_none),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}

/* Streams of messages that a channel opens, against a server on nghttp2 alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/rpc.h"
#include "rpc/testing.h"

static td_loop *loop;
static td_stream_server *server;
static td_channel *channel;
static char address[64];

/* One stream as its client sees it. */
typedef struct client {
  td_client_call *call;
  td_work work;
  void (*act)(struct client *c);
  sem_t acted, done;
  td_status status;
  td_strbuf got;       /* messages, each followed by ';'. On the loop until done */
  atomic_int released; /* segments */
  char *large;
} client;

static void on_message(void *arg, td_str message) {
  client *c = arg;
  td_strbuf_append(&c->got, message);
  td_strbuf_putc(&c->got, ';');
}

static void on_done(void *arg, td_status status, td_str reply, td_str details) {
  client *c = arg;
  c->status = status;
  assert_int_equal(reply.size, 0);
  sem_post(&c->done);
}

static void run_act(td_work *w) {
  client *c = TD_CONTAINER_OF(w, client, work);
  c->act(c);
  sem_post(&c->acted);
}

/* Runs `act` on the loop, and waits for it. */
static void on_loop(client *c, void (*act)(client *c)) {
  c->act = act;
  c->work.run = run_act;
  td_loop_post(loop, &c->work);
  sem_wait(&c->acted);
}

static void open_stream(client *c, const char *path) {
  *c = (client){0};
  sem_init(&c->acted, 0, 0);
  sem_init(&c->done, 0, 0);
  td_call_options o = {.path = path,
                       .deadline_ns = TD_NO_DEADLINE,
                       .wait_for_ready = true,
                       .done = on_done,
                       .message = on_message,
                       .arg = c};
  c->call = td_channel_stream(channel, &o);
}

static void close_stream(client *c) {
  sem_wait(&c->done);
  td_client_call_release(c->call);
  sem_destroy(&c->acted);
  sem_destroy(&c->done);
  td_strbuf_deinit(&c->got);
  td_status_free(c->status);
}

static void released(void *owner) { atomic_fetch_add(&((client *)owner)->released, 1); }

static void write_text(client *c, const char *text) {
  td_payload p = {0};
  td_payload_add(&p, text, strlen(text), released, c);
  td_client_stream_write(c->call, &p);
}

/* ---- the server's side ---- */

static bool echo(void *arg, td_server_stream *s, td_str message) {
  if (td_str_is(message, "die")) return false;
  if (message.size > 1000) {
    char text[32];
    td_server_stream_reply(s, td_str_n(text, (size_t)snprintf(text, sizeof text, "%zu", message.size)));
    return true;
  }
  td_server_stream_reply(s, message);
  return true;
}

static bool last_words(void *arg, td_server_stream *s) {
  td_server_stream_reply(s, td_str_of(td_server_stream_path(s)));
  return true;
}

static void start(bool listens) {
  snprintf(address, sizeof address, "127.0.0.1:%d", td_stream_server_free_port());
  assert_null(td_loop_create("client", NULL, &loop));
  td_channel_options o = {.max_message_bytes = 64 << 20};
  assert_null(td_channel_create(loop, address, &o, &channel));
  if (!listens) return;
  td_stream_server_options so = {.address = address, .message = echo, .ended = last_words};
  server = td_stream_server_start(&so);
}

static void stop(void) {
  td_channel_destroy(channel);
  td_loop_stop(loop);
  td_loop_destroy(loop);
  if (server) td_stream_server_stop(server);
  server = NULL;
}

/* ---- tests ---- */

static void say_three(client *c) {
  write_text(c, "one");
  write_text(c, "");
  write_text(c, "three");
}
static void end_it(client *c) { td_client_stream_end(c->call); }

static void test_messages(void **state) {
  start(true);
  client c;
  open_stream(&c, "/t/Talk");
  on_loop(&c, say_three); /* perhaps before there is a connection */
  on_loop(&c, end_it);
  sem_wait(&c.done);
  sem_post(&c.done);
  assert_null(c.status);
  assert_string_equal(td_strbuf_cstr(&c.got), "one;;three;/t/Talk;");
  assert_int_equal(atomic_load(&c.released), 3);
  close_stream(&c);
  stop();
}

static void say_late(client *c) { write_text(c, "late"); }

static void test_pauses(void **state) {
  start(true);
  client c;
  open_stream(&c, "/t/Talk");
  on_loop(&c, say_three);
  while (td_stream_server_opened(server) == 0) usleep(1000);
  on_loop(&c, say_late); /* after the stream had nothing more to send */
  on_loop(&c, end_it);
  on_loop(&c, say_late); /* after its end: dropped */
  sem_wait(&c.done);
  sem_post(&c.done);
  assert_string_equal(td_strbuf_cstr(&c.got), "one;;three;late;/t/Talk;");
  assert_int_equal(atomic_load(&c.released), 5);
  close_stream(&c);
  stop();
}

enum { LARGE = 9 * 1000 * 1000 };

static void say_large(client *c) {
  for (int i = 0; i < 3; i++) {
    td_payload p = {0};
    td_payload_add(&p, c->large, (size_t)LARGE + (size_t)i, released, c);
    td_client_stream_write(c->call, &p);
  }
  td_client_stream_end(c->call);
}

static void test_large_messages(void **state) {
  start(true);
  client c;
  open_stream(&c, "/t/L");
  c.large = td_calloc(1, LARGE + 3);
  on_loop(&c, say_large);
  sem_wait(&c.done);
  sem_post(&c.done);
  assert_null(c.status);
  assert_string_equal(td_strbuf_cstr(&c.got), "9000000;9000001;9000002;/t/L;");
  td_free(c.large);
  close_stream(&c);
  stop();
}

static void say_die(client *c) { write_text(c, "die"); }

static void test_reset_by_server(void **state) {
  start(true);
  client c;
  open_stream(&c, "/t/Talk");
  on_loop(&c, say_die);
  sem_wait(&c.done);
  sem_post(&c.done);
  assert_int_equal(td_status_code(c.status), TD_INTERNAL);
  on_loop(&c, say_late);
  assert_int_equal(atomic_load(&c.released), 2);
  close_stream(&c);
  stop();
}

static void test_cancel(void **state) {
  start(true);
  client c;
  open_stream(&c, "/t/Talk");
  on_loop(&c, say_three);
  td_client_call_cancel(c.call);
  sem_wait(&c.done);
  sem_post(&c.done);
  assert_int_equal(td_status_code(c.status), TD_CANCELLED);
  close_stream(&c);
  while (td_stream_server_open(server)) usleep(1000);
  stop();
}

/* Nobody listens: what was written waits, and is released. */
static void test_cancel_unconnected(void **state) {
  start(false);
  client c;
  open_stream(&c, "/t/Talk");
  on_loop(&c, say_three);
  on_loop(&c, end_it);
  assert_int_equal(atomic_load(&c.released), 0);
  td_client_call_cancel(c.call);
  sem_wait(&c.done);
  sem_post(&c.done);
  assert_int_equal(td_status_code(c.status), TD_CANCELLED);
  assert_int_equal(atomic_load(&c.released), 3);
  close_stream(&c);
  stop();
}

/* The server comes late, as a debugger may. */
static void test_late_server(void **state) {
  start(false);
  client c;
  open_stream(&c, "/t/Talk");
  on_loop(&c, say_three);
  on_loop(&c, end_it);
  td_stream_server_options so = {.address = address, .message = echo, .ended = last_words};
  server = td_stream_server_start(&so);
  sem_wait(&c.done);
  sem_post(&c.done);
  assert_null(c.status);
  assert_string_equal(td_strbuf_cstr(&c.got), "one;;three;/t/Talk;");
  close_stream(&c);
  stop();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_messages),        cmocka_unit_test(test_pauses), cmocka_unit_test(test_large_messages),
      cmocka_unit_test(test_reset_by_server), cmocka_unit_test(test_cancel), cmocka_unit_test(test_cancel_unconnected),
      cmocka_unit_test(test_late_server),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

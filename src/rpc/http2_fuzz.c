/* Bytes of a peer into a server connection, through the stream seam.
 *
 * The first byte chooses: how many bytes a read gives (bits 0-3), whether the preface and empty settings are put in
 * front (bit 4), whether writes are refused now and then (bit 5), whether the server starts to go away half-way
 * (bit 6), whether the bytes are messages of a trunk, each behind a byte with its size (bit 7).
 */
#include <errno.h>
#include <semaphore.h>

#include "base/log.h"
#include "base/mem.h"
#include "rpc/server_internal.h"
#include "rpc/trunk.h"

typedef struct memory_stream {
  td_stream base;
  const char *data;
  size_t size, piece;
  unsigned refuse, writes;
  bool *closed;
} memory_stream;

static ssize_t memory_readv(td_stream *s, const struct iovec *iov, int count) {
  memory_stream *m = (memory_stream *)s;
  if (!m->size) return 0;
  size_t left = TD_MIN(m->size, m->piece), n = 0;
  for (int i = 0; i < count && left; i++) {
    size_t k = TD_MIN(left, iov[i].iov_len);
    memcpy(iov[i].iov_base, m->data, k);
    m->data += k;
    m->size -= k;
    left -= k;
    n += k;
  }
  return (ssize_t)n;
}

static ssize_t memory_writev(td_stream *s, const struct iovec *iov, int count) {
  memory_stream *m = (memory_stream *)s;
  if (m->refuse && ++m->writes % 3 == 0) return -EAGAIN;
  static volatile char sum;
  size_t n = 0;
  for (int i = 0; i < count; i++) { /* touch them: they must be valid */
    for (size_t k = 0; k < iov[i].iov_len; k += 64) sum = (char)(sum ^ ((const char *)iov[i].iov_base)[k]);
    n += iov[i].iov_len;
  }
  return (ssize_t)(m->refuse && n > 100 ? n / 2 : n);
}

static void memory_close(td_stream *s) {
  *((memory_stream *)s)->closed = true;
  td_free(s);
}

static const td_stream_ops MEMORY = {.readv = memory_readv, .writev = memory_writev, .close = memory_close};

/* ---- a service -------------------------------------------------------------------------------------------- */

static void echo(void *service, td_call *call, td_str request) {
  td_payload reply = {0};
  td_payload_copy(&reply, request.data, request.size);
  td_call_reply(call, &reply);
}
static void hold_cancelled(void *arg) { td_call_fail(arg, td_cancelled("held"), (td_str){0}); }
static void hold(void *service, td_call *call, td_str request) { td_call_on_cancel(call, hold_cancelled, call); }
static void fail(void *service, td_call *call, td_str request) {
  td_call_fail(call, td_error_bytes(TD_ABORTED, request.data, request.size), request);
}

typedef struct window_receiver {
  td_receiver base;
  size_t size, got;
  char data[8192];
} window_receiver;
static td_status wr_begin(td_receiver *r, size_t size) {
  window_receiver *w = (window_receiver *)r;
  w->size = size;
  return size > sizeof w->data ? td_resource_exhausted("%zu bytes", size) : TD_STATUS_OK;
}
static td_status wr_bytes(td_receiver *r, const void *data, size_t size) {
  window_receiver *w = (window_receiver *)r;
  memcpy(w->data + w->got, data, size);
  w->got += size;
  return TD_STATUS_OK;
}
static void *wr_window(td_receiver *r, size_t *size) {
  return ((window_receiver *)r)->data + ((window_receiver *)r)->got;
}
static td_status wr_landed(td_receiver *r, size_t size) {
  ((window_receiver *)r)->got += size;
  return TD_STATUS_OK;
}
static void wr_destroy(td_receiver *r) { td_free(r); }
static const td_receiver_ops WINDOW = {wr_begin, wr_bytes, wr_window, wr_landed, wr_destroy};
static td_receiver *take_receiver(void *service, td_call *call) {
  window_receiver *w = td_malloc(sizeof *w);
  w->base.ops = &WINDOW;
  w->got = 0;
  return &w->base;
}
static void take(void *service, td_call *call, td_str request) { echo(service, call, TD_STR("taken")); }

static const td_method METHODS[] = {
    {"/t/E", echo, NULL}, {"/t/H", hold, NULL}, {"/t/F", fail, NULL}, {"/t/T", take, take_receiver}};

/* ---- one input -------------------------------------------------------------------------------------------- */

static td_loop *loop;
static td_rpc_server *server;

typedef struct input {
  td_work work;
  const uint8_t *data;
  size_t size;
  sem_t done;
} input;

/* A stream to TD_TRUNK_PATH, and the messages in frames of their own. */
static void put_trunk(td_strbuf *b, td_str messages) {
  static const char HEADERS[] =
      "\0\0\x47\1\4\0\0\0\1\x83\x86\4\x14" TD_TRUNK_PATH "\x41\1a\0\2te\10trailers\0\14content-type\20application/grpc";
  td_strbuf_append(b, td_str_n(HEADERS, sizeof HEADERS - 1));
  while (messages.size) {
    size_t n = TD_MIN((size_t)(unsigned char)messages.data[0], messages.size - 1);
    const char head[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, (char)n};
    size_t at = b->size;
    td_strbuf_append(b, td_str_n(head, sizeof head));
    b->data[at + 1] = (char)((n + 5) >> 8);
    b->data[at + 2] = (char)(n + 5);
    td_strbuf_append(b, td_str_n(messages.data + 1, n));
    messages = td_str_n(messages.data + 1 + n, messages.size - 1 - n);
  }
}

static void run_input(td_work *w) {
  static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
  input *in = TD_CONTAINER_OF(w, input, work);
  uint8_t how = in->data[0];
  td_str rest = td_str_n(in->data + 1, in->size - 1);
  td_strbuf bytes = {0};
  if (how & 16) td_strbuf_append(&bytes, td_str_n(PREFACE, sizeof PREFACE - 1));
  if (how & 128)
    put_trunk(&bytes, rest);
  else
    td_strbuf_append(&bytes, rest);
  bool closed = false;
  memory_stream *m = td_new(memory_stream);
  *m = (memory_stream){.base = {.ops = &MEMORY, .fd = -1},
                       .data = bytes.data,
                       .size = bytes.size,
                       .piece = (how & 15) == 15 ? SIZE_MAX : (size_t)1 << (how & 15),
                       .refuse = how & 32,
                       .closed = &closed};
  atomic_fetch_add(&server->shards[0].conn_count, 1); /* it was accepted */
  td_conn *c = td_server_conn_begin(&server->shards[0], &m->base, "fuzz");
  td_conn_retain(c);
  for (int turns = 0; !closed && m->size; turns++) {
    td_conn_drive(c);
    if (how & 64 && turns == 3) td_conn_go_away(c);
  }
  td_conn_close_now(c, td_cancelled("done"));
  td_conn_release(c);
  td_strbuf_deinit(&bytes);
  sem_post(&in->done);
}

static void initialize(void) {
  td_log_set_level(TD_LOG_ERROR);
  td_rpc_server_options o = {.loops = &loop,
                             .loop_count = 1,
                             .methods = METHODS,
                             .method_count = TD_COUNT(METHODS),
                             .max_message_bytes = 1 << 20,
                             .max_buffered_bytes = 1 << 22};
  if (td_loop_create("fuzz", NULL, &loop) || td_rpc_server_create(&o, &server)) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  if (!loop) initialize();
  input in = {.work.run = run_input, .data = data, .size = size};
  sem_init(&in.done, 0, 0);
  td_loop_post(loop, &in.work);
  while (sem_wait(&in.done)) continue;
  sem_destroy(&in.done);
  return 0;
}

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/codec.h"
#include "rpc/loop_internal.h"
#include "rpc/server_internal.h"
#include "rpc/trunk.h"

enum { SPARE_CALLS = 256 };

#define NV(name, value)                                                         \
  {                                                                             \
    (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1, \
        NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE            \
  }
#define NV_STATUS    NV(":status", "200")
#define NV_TYPE      NV("content-type", "application/grpc")
#define NV_ENCODINGS NV("grpc-accept-encoding", "identity,gzip,deflate")

static td_str rcbuf_str(nghttp2_rcbuf *b) {
  nghttp2_vec v = nghttp2_rcbuf_get_buf(b);
  return td_str_n(v.base, v.len);
}

static td_call *call_of(td_h2_stream *s) { return TD_CONTAINER_OF(s, td_call, stream); }

/* ---- life ------------------------------------------------------------------------------------------------- */

static void deadline_passed(td_timer *t);

td_call *td_call_begin(td_server_conn *conn, td_conn *h2) {
  td_server_shard *shard = conn->shard;
  if (conn->calls >= shard->server->options.max_streams) return NULL;
  td_call *call = shard->spare;
  if (call) {
    shard->spare = call->next;
    shard->spare_count--;
    td_incoming_init(&call->stream.in);
    memset(&call->stream, 0, offsetof(td_h2_stream, in));
    memset((char *)call + sizeof call->stream, 0, sizeof *call - sizeof call->stream);
  } else {
    call = td_new(td_call);
  }
  call->shard = shard;
  call->conn = conn;
  call->h2 = h2;
  td_conn_retain(h2);
  conn->calls++;
  call->deadline_ns = TD_NO_DEADLINE;
  call->deadline.fire = deadline_passed;
  call->stream.in.max = shard->server->options.max_message_bytes;
  call->stream.in.budgets[0] = td_conn_budget(h2);
  call->stream.in.budgets[1] = &shard->server->buffered;
  call->next = shard->calls;
  if (call->next) call->next->previous = call;
  shard->calls = call;
  return call;
}

static td_h2_stream *on_begin(td_conn *h2) {
  td_call *call = td_call_begin(td_conn_owner(h2), h2);
  return call ? &call->stream : NULL;
}

static void call_free(td_call *call) {
  td_server_shard *shard = call->shard;
  if (call->previous) call->previous->next = call->next;
  if (!call->previous) shard->calls = call->next;
  if (call->next) call->next->previous = call->previous;
  if (call->conn) call->conn->calls--;
  if (call->on_cancel_release) call->on_cancel_release(call->on_cancel_arg);
  td_incoming_deinit(&call->stream.in);
  td_payload_deinit(&call->stream.unsent);
  if (call->path) nghttp2_rcbuf_decref(call->path);
  for (int i = 0; i < call->header_count; i++) {
    nghttp2_rcbuf_decref(call->headers[i].name);
    nghttp2_rcbuf_decref(call->headers[i].value);
  }
  td_payload_deinit(&call->reply);
  td_status_free(call->error);
  td_free(call->details);
  td_conn_release(call->h2);
  if (shard->spare_count < SPARE_CALLS) {
    call->next = shard->spare;
    shard->spare = call;
    shard->spare_count++;
  } else {
    td_free(call);
  }
  td_server_shard_check(shard);
}

void td_call_spares_free(td_server_shard *shard) {
  while (shard->spare) {
    td_call *call = shard->spare;
    shard->spare = call->next;
    td_free(call);
  }
  shard->spare_count = 0;
}

static void free_if_done(td_call *call) {
  if (call->closed && !call->pending && !call->notifying && !call->shard->kept) call_free(call);
}

/* ---- answers ---------------------------------------------------------------------------------------------- */

static void responded(td_call *call) {
  call->responded = true;
  td_timer_stop(call->shard->loop, &call->deadline);
  if (call->complete) return;
  call->stream.discard = true;
  call->stream.reset_after = true;
}

/* Ends the call with an error alone. Consumes `status`. */
static void refuse(td_call *call, td_status status, td_str details) {
  if (call->responded || call->closed) {
    td_status_free(status);
    return;
  }
  if (call->trunk) {
    td_server_trunk_fail(call, status, details);
    responded(call);
    call->closed = true;
    td_status_free(status);
    return;
  }
  td_strbuf message = {0}, encoded = {0};
  td_percent_encode(&message, td_str_of(td_status_message(status)), TD_RPC_TRAILERS_MAX);
  if (details.size && message.size + details.size / 3 * 4 <= TD_RPC_TRAILERS_MAX) td_base64_encode(&encoded, details);
  char code[12];
  int digits = snprintf(code, sizeof code, "%d", (int)td_status_code(status));
  nghttp2_nv nv[6] = {NV_STATUS, NV_TYPE, NV_ENCODINGS};
  size_t n = 3;
  nv[n++] = (nghttp2_nv){(uint8_t *)"grpc-status", (uint8_t *)code, 11, (size_t)digits, NGHTTP2_NV_FLAG_NO_COPY_NAME};
  uint8_t flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX;
  if (message.size) nv[n++] = (nghttp2_nv){(uint8_t *)"grpc-message", (uint8_t *)message.data, 12, message.size, flags};
  if (encoded.size)
    nv[n++] = (nghttp2_nv){(uint8_t *)"grpc-status-details-bin", (uint8_t *)encoded.data, 23, encoded.size, flags};
  td_conn_respond(&call->stream, nv, n, NULL);
  responded(call);
  td_strbuf_deinit(&message);
  td_strbuf_deinit(&encoded);
  td_status_free(status);
}

static const nghttp2_nv HEADERS[] = {NV_STATUS, NV_TYPE, NV_ENCODINGS};

static void send_reply(td_call *call, td_payload *message) {
  size_t max = call->shard->server->options.max_message_bytes;
  if (call->responded || call->closed) {
    td_payload_deinit(message);
  } else if (message->size > max) {
    td_status s = td_resource_exhausted("Sent message larger than max (%zu vs. %zu)", message->size, max);
    td_payload_deinit(message);
    refuse(call, s, (td_str){0});
  } else if (call->trunk) {
    td_server_trunk_reply(call, message);
    responded(call);
    call->closed = true;
  } else {
    td_conn_respond(&call->stream, HEADERS, TD_COUNT(HEADERS), td_conn_outgoing(call->h2, message, true, true));
    responded(call);
  }
}

/* An answer from another thread has come to the loop. */
static void answer_arrived(td_work *w) {
  td_call *call = TD_CONTAINER_OF(w, td_call, work);
  call->pending = false;
  if (call->error) {
    td_status s = call->error;
    call->error = TD_STATUS_OK;
    refuse(call, s, td_str_n(call->details, call->details_size));
  } else {
    send_reply(call, &call->reply);
  }
  free_if_done(call);
}

void td_call_reply(td_call *call, td_payload *message) {
  atomic_store(&call->answered, true);
  if (td_loop_is_current(call->shard->loop)) {
    call->pending = false;
    send_reply(call, message);
    free_if_done(call);
    return;
  }
  call->reply = *message;
  *message = (td_payload){0};
  call->work.run = answer_arrived;
  td_loop_post(call->shard->loop, &call->work);
}

void td_call_fail(td_call *call, td_status status, td_str details) {
  if (!status) status = td_internal("A call failed without an error");
  atomic_store(&call->answered, true);
  if (td_loop_is_current(call->shard->loop)) {
    call->pending = false;
    refuse(call, status, details);
    free_if_done(call);
    return;
  }
  call->error = status;
  if (details.size) {
    call->details = td_strndup(details.data, details.size);
    call->details_size = details.size;
  }
  call->work.run = answer_arrived;
  td_loop_post(call->shard->loop, &call->work);
}

void td_call_notify_cancel(td_call *call) {
  void (*fn)(void *) = call->on_cancel;
  call->on_cancel = NULL;
  if (fn && !atomic_load(&call->answered)) {
    call->notifying = true; /* `fn` may answer, but what it was given stays until it has returned */
    fn(call->on_cancel_arg);
    call->notifying = false;
  }
  free_if_done(call);
}

static void deadline_passed(td_timer *t) {
  td_call *call = TD_CONTAINER_OF(t, td_call, deadline);
  refuse(call, td_error(TD_DEADLINE_EXCEEDED, "Deadline Exceeded"), (td_str){0});
  td_call_notify_cancel(call); /* may free the call */
}

/* on_cancel, then an error or a reset. */
static void cancel(td_call *call) {
  if (call->closed) return;
  if (call->responded) td_conn_reset(&call->stream, NGHTTP2_CANCEL); /* the peer does not take the answer */
  refuse(call, td_cancelled("The server is shutting down"), (td_str){0});
  td_call_notify_cancel(call);
}

void td_calls_keep(td_server_shard *shard) { shard->kept++; }

void td_calls_let_go(td_server_shard *shard) {
  if (--shard->kept) return;
  for (td_call *call = shard->calls, *next; call; call = next) {
    next = call->next;
    free_if_done(call);
  }
}

void td_calls_cancel(td_server_shard *shard) {
  td_calls_keep(shard);
  for (td_call *call = shard->calls; call; call = call->next) cancel(call);
  td_calls_let_go(shard);
}

bool td_calls_are_running(const td_server_shard *shard) {
  for (const td_call *call = shard->calls; call; call = call->next)
    if (!call->carries || !td_server_trunk_is_resting(call->carries)) return true;
  return false;
}

/* A request that is not gRPC gets an answer of plain HTTP. */
static void refuse_http(td_call *call) {
  static const struct {
    char status[4], *text;
  } ANSWERS[] = {{"404", "Not found: this is a gRPC server\n"},
                 {"405", "Method not allowed: gRPC calls are POSTs\n"},
                 {"415", "Unsupported media type: expected application/grpc\n"}};
  bool known = call->path && td_map_get(&call->shard->server->by_path, rcbuf_str(call->path));
  int which = call->post ? 2 : known ? 1 : 0;
  nghttp2_nv nv[] = {
      {(uint8_t *)":status", (uint8_t *)ANSWERS[which].status, 7, 3,
       NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE},
      NV("content-type", "text/plain; charset=utf-8"),
  };
  td_payload body = {0};
  if (!call->head) td_payload_add(&body, ANSWERS[which].text, strlen(ANSWERS[which].text), NULL, NULL);
  td_conn_respond(&call->stream, nv, TD_COUNT(nv), body.size ? td_conn_outgoing(call->h2, &body, false, false) : NULL);
  responded(call);
}

/* ---- requests --------------------------------------------------------------------------------------------- */

static void keep_header(td_call *call, nghttp2_rcbuf *name, nghttp2_rcbuf *value) {
  if (call->header_count == TD_CALL_HEADERS) return;
  nghttp2_rcbuf_incref(name);
  nghttp2_rcbuf_incref(value);
  call->headers[call->header_count].name = name;
  call->headers[call->header_count++].value = value;
}

static void on_header(td_h2_stream *s, nghttp2_rcbuf *name, nghttp2_rcbuf *value) {
  td_call *call = call_of(s);
  td_str n = rcbuf_str(name), v = rcbuf_str(value);
  if (call->headers_done) return; /* trailers say nothing to us */
  if (n.size && n.data[0] == ':') {
    if (td_str_is(n, ":path")) {
      nghttp2_rcbuf_incref(value);
      if (call->path) nghttp2_rcbuf_decref(call->path);
      call->path = value;
    } else if (td_str_is(n, ":method")) {
      call->post = td_str_is(v, "POST");
      call->head = td_str_is(v, "HEAD");
    }
  } else if (td_str_is(n, "content-type")) {
    static const td_str TYPE = {"application/grpc", 16};
    call->grpc = td_str_starts(v, TYPE) && (v.size == TYPE.size || strchr("+; ", v.data[TYPE.size]));
  } else if (td_str_is(n, "grpc-timeout")) {
    uint64_t timeout, now = td_now_ns();
    call->bad_timeout = !td_timeout_parse(v, &timeout);
    if (!call->bad_timeout && timeout < TD_NO_DEADLINE - now) call->deadline_ns = now + timeout;
  } else if (td_str_is(n, "grpc-encoding")) {
    call->bad_encoding = !td_encoding_parse(v, &s->in.encoding);
  } else if (!td_str_is(n, "te") && !td_str_is(n, "grpc-accept-encoding") && !td_str_is(n, "accept-encoding")) {
    keep_header(call, name, value);
  }
}

/* Finds the method and asks whether it may run now. */
static td_status find_method(td_call *call, td_str path) {
  td_rpc_server *server = call->shard->server;
  call->method = td_map_get(&server->by_path, path);
  if (!call->method) return td_unimplemented("Method not found: %.*s", (int)TD_MIN(path.size, (size_t)512), path.data);
  if (server->options.admit) TD_TRY(server->options.admit(server->options.service, call));
  if (call->method->receiver) call->stream.in.receiver = call->method->receiver(server->options.service, call);
  return TD_STATUS_OK;
}

/* What the headers alone decide. */
static td_status check_headers(td_call *call) {
  if (call->bad_encoding) return td_unimplemented("The request's grpc-encoding is not supported: only gzip, deflate");
  if (call->bad_timeout) return td_invalid_argument("The request's grpc-timeout is malformed");
  return find_method(call, td_call_path(call));
}

/* The call is no call, but the stream of others. Its first answer says that it is known here. */
static void open_trunk(td_call *call) {
  td_payload nothing = {0};
  td_server_trunk_open(call);
  td_conn_respond(&call->stream, HEADERS, TD_COUNT(HEADERS), NULL);
  td_conn_send(&call->stream, td_conn_outgoing(call->h2, &nothing, true, false));
  call->responded = true;
}

static void on_headers_end(td_h2_stream *s) {
  td_call *call = call_of(s);
  if (call->headers_done) return;
  call->headers_done = true;
  if (!call->grpc || !call->post) {
    s->discard = true; /* answered when the request has ended */
    return;
  }
  if (td_str_is(td_call_path(call), TD_TRUNK_PATH)) {
    open_trunk(call);
    return;
  }
  td_status status = check_headers(call);
  if (status) {
    s->discard = true;
    refuse(call, status, (td_str){0});
    return;
  }
  if (call->deadline_ns != TD_NO_DEADLINE) td_timer_start(call->shard->loop, &call->deadline, call->deadline_ns);
}

static void on_failed(td_h2_stream *s, td_status status) {
  td_call *call = call_of(s);
  if (call->carries) {
    td_warn("%s: %s", td_call_peer(call), td_status_message(status));
    td_conn_reset(s, NGHTTP2_INTERNAL_ERROR);
  }
  refuse(call, status, (td_str){0});
}

static void dispatch(td_call *call) {
  call->pending = true;
  call->method->handle(call->shard->server->options.service, call, td_incoming_message(&call->stream.in));
}

void td_call_start_on_trunk(td_call *call, td_str path, td_str message) {
  size_t n = message.size;
  char prefix[5] = {0, (char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n};
  call->complete = true;
  td_status status = find_method(call, path);
  if (!status) status = td_incoming_feed(&call->stream.in, prefix, sizeof prefix);
  if (!status) status = td_incoming_feed(&call->stream.in, message.data, n);
  if (status) {
    refuse(call, status, (td_str){0});
    free_if_done(call);
  } else {
    dispatch(call);
  }
}

/* ---- compressed requests: inflated on a thread of their own --------------------------------------------------- */

typedef struct inflate_job {
  td_work work;
  td_call *call;
  td_loop *loop;
  td_encoding encoding;
  td_str in;
  size_t max;
  td_status status;
  char *data;
  size_t size;
} inflate_job;

static void inflated(td_work *w) {
  inflate_job *job = TD_CONTAINER_OF(w, inflate_job, work);
  td_call *call = job->call;
  td_status status = job->status;
  call->pending = false;
  if (!status && !call->closed && !call->responded) {
    status = td_incoming_replace(&call->stream.in, job->data, job->size);
    job->data = NULL;
  }
  td_free(job->data);
  td_free(job);
  if (call->closed || call->responded || status) {
    refuse(call, status, (td_str){0});
    free_if_done(call);
  } else {
    dispatch(call);
  }
}

static void inflate_run(td_work *w) {
  inflate_job *job = TD_CONTAINER_OF(w, inflate_job, work);
  job->status = td_inflate(job->encoding, job->in, job->max, &job->data, &job->size);
  job->work.run = inflated;
  td_loop_post(job->loop, &job->work);
}

static void on_ended(td_h2_stream *s) {
  td_call *call = call_of(s);
  call->complete = true;
  if (call->carries) td_server_trunk_ended(call->carries);
  if (call->responded) return;
  if (!call->grpc || !call->post) {
    refuse_http(call);
    return;
  }
  td_status status = td_incoming_check(&s->in);
  if (status) {
    refuse(call, status, (td_str){0});
  } else if (td_incoming_is_compressed(&s->in)) {
    call->pending = true;
    inflate_job *job = td_new(inflate_job);
    *job = (inflate_job){.work.run = inflate_run,
                         .call = call,
                         .loop = call->shard->loop,
                         .encoding = s->in.encoding,
                         .in = td_incoming_message(&s->in),
                         .max = s->in.max};
    td_pool_submit(td_server_inflaters(call->shard->server), &job->work);
  } else {
    dispatch(call);
  }
}

void td_call_closed(td_call *call) {
  bool cancelled = call->pending && !call->responded;
  call->closed = true;
  td_timer_stop(call->shard->loop, &call->deadline);
  if (cancelled)
    td_call_notify_cancel(call); /* may free the call */
  else
    free_if_done(call);
}

static void on_closed(td_h2_stream *s, uint32_t error) {
  td_call *call = call_of(s);
  if (call->carries) td_server_trunk_close(call->carries);
  if (error == TD_H2_LOST) call->conn = NULL;
  td_call_closed(call);
}

static void on_lost(td_conn *h2, td_status why) {
  td_server_conn *conn = td_conn_owner(h2);
  if (conn->previous) conn->previous->next = conn->next;
  if (!conn->previous) conn->shard->conns = conn->next;
  if (conn->next) conn->next->previous = conn->previous;
  atomic_fetch_sub_explicit(&conn->shard->conn_count, 1, memory_order_relaxed);
  for (td_call *call = conn->shard->calls; call; call = call->next)
    if (call->conn == conn) call->conn = NULL;
  td_free(conn);
}

const td_conn_ops td_server_conn_ops = {
    .begin = on_begin,
    .header = on_header,
    .headers_end = on_headers_end,
    .failed = on_failed,
    .ended = on_ended,
    .closed = on_closed,
    .lost = on_lost,
};

/* ---- what handlers ask -------------------------------------------------------------------------------------- */

void td_call_on_cancel(td_call *call, void (*fn)(void *arg), void *arg) {
  td_call_on_cancel_owned(call, fn, arg, NULL);
}

void td_call_on_cancel_owned(td_call *call, void (*fn)(void *arg), void *arg, void (*release)(void *arg)) {
  call->on_cancel_arg = arg;
  call->on_cancel = fn;
  call->on_cancel_release = release;
}

td_loop *td_call_loop(const td_call *call) { return call->shard->loop; }
uint64_t td_call_deadline_ns(const td_call *call) { return call->deadline_ns; }
const char *td_call_peer(const td_call *call) { return td_conn_peer(call->h2); }
td_neighbour td_call_neighbour(const td_call *call) { return td_conn_neighbour(call->h2); }
td_str td_call_path(const td_call *call) {
  if (call->path) return rcbuf_str(call->path);
  return call->method ? td_str_of(call->method->path) : TD_STR("");
}

td_str td_call_metadata(const td_call *call, const char *name) {
  td_str n = td_str_of(name);
  if (call->trunk) call = td_server_trunk_stream(call->trunk);
  for (int i = 0; i < call->header_count; i++)
    if (td_str_eq(rcbuf_str(call->headers[i].name), n)) return rcbuf_str(call->headers[i].value);
  return TD_STR("");
}

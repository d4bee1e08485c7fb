#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/channel_internal.h"
#include "rpc/codec.h"
#include "rpc/loop_internal.h"

enum { MAX_RETRIES = 5 };
static const uint64_t PATIENCE_NS = 2 * 1000000ull;

#define NV(name, value)                                                         \
  {                                                                             \
    (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1, \
        NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE            \
  }

static td_client_call *call_of(td_h2_stream *s) { return TD_CONTAINER_OF(s, td_client_call, stream); }

static td_str rcbuf_str(nghttp2_rcbuf *b) {
  nghttp2_vec v = nghttp2_rcbuf_get_buf(b);
  return td_str_n(v.base, v.len);
}

/* ---- life ------------------------------------------------------------------------------------------------- */

static void call_unref(td_client_call *call) {
  if (atomic_fetch_sub(&call->references, 1) != 1) return;
  td_strbuf_deinit(&call->text);
  td_strbuf_deinit(&call->details);
  td_channel_release(call->channel);
  td_free(call);
}

void td_client_call_release(td_client_call *call) { call_unref(call); }

static void leave_queue(td_client_call *call) {
  td_channel *c = call->channel;
  if (!call->waiting) return;
  call->waiting = false;
  if (call->previous) call->previous->next = call->next;
  if (!call->previous) c->waiting = call->next;
  if (call->next) call->next->previous = call->previous;
  if (!call->next) c->waiting_last = call->previous;
}

void td_client_call_wait(td_client_call *call) {
  td_channel *c = call->channel;
  call->waiting = true;
  call->next = NULL;
  call->previous = c->waiting_last;
  if (call->previous) call->previous->next = call;
  if (!call->previous) c->waiting = call;
  c->waiting_last = call;
}

/* ---- the end ---------------------------------------------------------------------------------------------- */

static void drop_early(td_client_call *call) {
  for (size_t i = 0; i < call->early_count; i++) td_payload_deinit(&call->early[i]);
  td_free(call->early);
  call->early = NULL;
  call->early_count = call->early_capacity = 0;
}

static void finish_with(td_client_call *call, td_status status, td_str reply, td_str details) {
  td_payload_deinit(&call->message); /* never sent */
  drop_early(call);
  call->options.done(call->options.arg, status, reply, details);
  td_incoming_deinit(&call->stream.in);
  call_unref(call);
}

static void finish(td_client_call *call, td_status status) {
  bool has_reply = !status && !call->stream.in.receiver && !call->stream.streams;
  finish_with(call, status, has_reply ? td_incoming_message(&call->stream.in) : TD_STR(""),
              td_strbuf_view(&call->details));
}

/* What every end has in common, but for the callback. */
static void quit(td_client_call *call) {
  call->ended = true;
  td_timer_stop(call->channel->loop, &call->deadline);
  leave_queue(call);
  call->stream.discard = true;
}

void td_client_call_end(td_client_call *call, td_status status) {
  if (call->ended) {
    td_status_free(status);
    return;
  }
  quit(call);
  if (call->linked && call->stream.conn) td_conn_reset(&call->stream, NGHTTP2_CANCEL);
  if (call->trunk) td_client_trunk_leave(call);
  finish(call, status);
}

void td_client_call_answered(td_client_call *call, td_status status, td_str message, td_str details) {
  quit(call);
  finish_with(call, status, message, details);
}

static void finish_run(td_work *w) {
  td_client_call *call = TD_CONTAINER_OF(w, td_client_call, finish);
  finish(call, call->result);
}

/* An end inside td_channel_call(), whose caller may hold locks: the callback comes from the loop. */
static void end_later(td_client_call *call, td_status status) {
  quit(call);
  call->result = status;
  call->finish.run = finish_run;
  td_loop_post(call->channel->loop, &call->finish);
}

static void deadline_passed(td_timer *t) {
  td_client_call *call = TD_CONTAINER_OF(t, td_client_call, deadline);
  td_client_call_end(call, td_error(TD_DEADLINE_EXCEEDED, "Deadline Exceeded"));
}

static void cancel_run(td_work *w) {
  td_client_call *call = TD_CONTAINER_OF(w, td_client_call, cancel);
  td_client_call_end(call, td_cancelled("Cancelled"));
  call_unref(call);
}

void td_client_call_cancel(td_client_call *call) {
  if (atomic_exchange(&call->cancel_asked, true)) return;
  atomic_fetch_add(&call->references, 1);
  call->cancel.run = cancel_run;
  td_loop_post(call->channel->loop, &call->cancel);
}

/* ---- the beginning ---------------------------------------------------------------------------------------- */

static td_status submit(td_client_call *call) {
  td_channel *c = call->channel;
  char timeout[16];
  nghttp2_nv nv[8] = {
      NV(":method", "POST"),
      NV(":scheme", "http"),
      {(uint8_t *)":path", (uint8_t *)call->path, 5, strlen(call->path), NGHTTP2_NV_FLAG_NO_COPY_NAME},
      {(uint8_t *)":authority", (uint8_t *)c->authority, 10, strlen(c->authority), NGHTTP2_NV_FLAG_NO_COPY_NAME},
      NV("te", "trailers"),
      NV("content-type", "application/grpc"),
      {(uint8_t *)"user-agent", (uint8_t *)c->user_agent, 10, strlen(c->user_agent), NGHTTP2_NV_FLAG_NO_COPY_NAME},
  };
  size_t n = 7;
  if (call->options.deadline_ns != TD_NO_DEADLINE) {
    uint64_t now = td_now_ns(), deadline = call->options.deadline_ns;
    size_t size = td_timeout_format(deadline > now ? deadline - now : 1, timeout);
    nv[n++] = (nghttp2_nv){(uint8_t *)"grpc-timeout", (uint8_t *)timeout, 12, size,
                           NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX};
  }
  td_conn *h2 = c->current->h2;
  if (call->stream.streams) return td_conn_request(h2, &call->stream, nv, n, NULL);
  return td_conn_request(h2, &call->stream, nv, n, td_conn_outgoing(h2, &call->message, true, false));
}

static void write_now(td_client_call *call, td_payload *message) {
  td_conn_send(&call->stream, td_conn_outgoing(call->stream.conn, message, true, false));
}

/* On the current connection; the reference for the link is taken. */
static td_status send_now(td_client_call *call) {
  if (td_client_trunk_send(call->channel->current, call)) return TD_STATUS_OK;
  td_status status = submit(call);
  if (status) return status;
  call->linked = true;
  atomic_fetch_add(&call->references, 1);
  call->begun = true;
  for (size_t i = 0; i < call->early_count; i++) write_now(call, &call->early[i]);
  call->early_count = 0; /* the payloads are empty now */
  td_channel_check(call->channel);
  return TD_STATUS_OK;
}

void td_client_call_send(td_client_call *call) {
  leave_queue(call);
  td_status status = send_now(call);
  if (status) td_client_call_end(call, status);
}

/* Sends the patient calls: what follows in this turn of the loop shares their write, and often their read. */
static void send_patient(td_channel *c) {
  td_timer_stop(c->loop, &c->company);
  while (c->waiting && c->state == TD_CHANNEL_READY) {
    td_client_call *call = c->waiting;
    leave_queue(call);
    td_status status = send_now(call);
    if (status) end_later(call, status);
  }
}

void td_client_call_company_ended(td_timer *t) {
  td_channel *c = TD_CONTAINER_OF(t, td_channel, company);
  td_channel_check(c);
  send_patient(c);
}

void td_channel_withdraw(td_channel *c, const char *path, void (*take)(void *arg, td_str message), void *arg) {
  for (td_client_call *call = c->waiting, *next; call; call = next) {
    next = call->next;
    if (!call->options.is_patient || strcmp(call->path, path) != 0) continue;
    td_strbuf message = {0};
    for (size_t i = 0; i < call->message.count; i++)
      td_strbuf_append(&message, td_str_n(call->message.segments[i].data, call->message.segments[i].size));
    take(arg, td_strbuf_view(&message));
    td_strbuf_deinit(&message);
    end_later(call, TD_STATUS_OK);
  }
  if (!c->waiting) td_timer_stop(c->loop, &c->company);
}

static void start(td_client_call *call) {
  td_channel *c = call->channel;
  td_status status = TD_STATUS_OK;
  if (c->destroyed) {
    status = td_error(TD_UNAVAILABLE, "The channel to %s is closed", c->address);
  } else if (call->message.size > c->options.max_message_bytes) {
    status = td_resource_exhausted("Sent message larger than max (%zu vs. %zu)", call->message.size,
                                   c->options.max_message_bytes);
  } else if (call->options.deadline_ns != TD_NO_DEADLINE) {
    if (call->options.deadline_ns <= td_now_ns()) {
      status = td_error(TD_DEADLINE_EXCEEDED, "Deadline Exceeded");
    } else {
      td_timer_start(c->loop, &call->deadline, call->options.deadline_ns);
    }
  }
  td_channel_check(c);
  if (!status && c->state == TD_CHANNEL_READY && call->options.is_patient) {
    td_client_call_wait(call);
    if (!c->company.slot) td_timer_start(c->loop, &c->company, td_now_ns() + PATIENCE_NS);
    return;
  }
  if (!status && c->state == TD_CHANNEL_READY) {
    if (c->waiting) send_patient(c);
    status = send_now(call);
  } else if (!status && c->state == TD_CHANNEL_BACKOFF && !call->options.wait_for_ready) {
    status = td_status_retain(c->failure);
  } else if (!status) {
    td_client_call_wait(call);
    td_channel_connect(c); /* may end it, once the loop comes to it */
    return;
  }
  if (status) end_later(call, status);
}

static void start_run(td_work *w) { start(TD_CONTAINER_OF(w, td_client_call, start)); }

/* A call that is not yet started. */
static td_client_call *call_create(td_channel *c, const td_call_options *options) {
  size_t path_size = strlen(options->path) + 1;
  td_client_call *call = td_malloc(sizeof *call + path_size);
  memset(&call->stream, 0, offsetof(td_h2_stream, in));
  td_incoming_init(&call->stream.in);
  memset((char *)call + sizeof call->stream, 0, sizeof *call - sizeof call->stream);
  memcpy(call->path, options->path, path_size);
  atomic_init(&call->references, 2);
  atomic_fetch_add(&c->references, 1);
  call->channel = c;
  call->options = *options;
  call->options.path = call->path;
  call->stream.in.receiver = options->receiver;
  call->stream.in.max = c->options.max_message_bytes;
  call->grpc_status = -1;
  call->deadline.fire = deadline_passed;
  return call;
}

static td_client_call *start_from_here(td_client_call *call) {
  if (td_loop_is_current(call->channel->loop)) {
    start(call);
  } else {
    call->start.run = start_run;
    td_loop_post(call->channel->loop, &call->start);
  }
  return call;
}

td_client_call *td_channel_call(td_channel *c, const td_call_options *options, td_payload *message) {
  td_client_call *call = call_create(c, options);
  call->message = *message;
  *message = (td_payload){0};
  return start_from_here(call);
}

/* ---- streams ---------------------------------------------------------------------------------------------- */

static td_status stream_message(td_incoming *in, td_str message) {
  td_client_call *call = call_of(TD_CONTAINER_OF(in, td_h2_stream, in));
  if (!call->ended) call->options.message(call->options.arg, message);
  return TD_STATUS_OK;
}

td_client_call *td_channel_stream(td_channel *c, const td_call_options *options) {
  td_client_call *call = call_create(c, options);
  call->stream.streams = true;
  call->stream.in.message = stream_message;
  return start_from_here(call);
}

void td_client_stream_write(td_client_call *call, td_payload *message) {
  if (call->ended || call->stream.send_ended) {
    td_payload_deinit(message);
  } else if (call->begun) {
    write_now(call, message);
  } else {
    TD_GROW(call->early, call->early_count, call->early_capacity);
    call->early[call->early_count++] = *message;
    *message = (td_payload){0};
  }
}

void td_client_stream_end(td_client_call *call) {
  if (call->ended || call->stream.send_ended) return;
  if (call->begun)
    td_conn_send_end(&call->stream);
  else
    call->stream.send_ended = true;
}

/* ---- the answer ------------------------------------------------------------------------------------------- */

static int small_number(td_str s) {
  uint64_t n;
  return td_str_to_u64(s, &n) && n < 1000 ? (int)n : TD_UNKNOWN;
}

static void on_header(td_h2_stream *s, nghttp2_rcbuf *name, nghttp2_rcbuf *value) {
  td_client_call *call = call_of(s);
  if (call->ended) return;
  td_str n = rcbuf_str(name), v = rcbuf_str(value);
  call->headers = true;
  if (td_str_is(n, ":status")) {
    call->http_status = small_number(v);
    if (call->http_status >= 300) s->discard = true; /* whatever comes, it is no message */
  } else if (td_str_is(n, "grpc-status")) {
    call->grpc_status = small_number(v);
    if (call->grpc_status > TD_UNAUTHENTICATED) call->grpc_status = TD_UNKNOWN;
  } else if (td_str_is(n, "grpc-message") && !call->text.size) {
    td_percent_decode(&call->text, v);
  } else if (td_str_is(n, "grpc-status-details-bin") && !call->details.size) {
    if (!td_base64_decode(&call->details, v)) td_strbuf_deinit(&call->details);
  }
}

static td_code http_code(int http_status) {
  switch (http_status) {
    case 400:
      return TD_INTERNAL;
    case 401:
      return TD_UNAUTHENTICATED;
    case 403:
      return TD_PERMISSION_DENIED;
    case 404:
      return TD_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
      return TD_UNAVAILABLE;
    default:
      return TD_UNKNOWN;
  }
}

static td_code http2_code(uint32_t error) {
  switch (error) {
    case NGHTTP2_REFUSED_STREAM:
      return TD_UNAVAILABLE;
    case NGHTTP2_CANCEL:
      return TD_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
      return TD_RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY:
      return TD_PERMISSION_DENIED;
    default:
      return TD_INTERNAL;
  }
}

/* The call's outcome once its stream has ended, with `error` if it was reset. */
static td_status outcome(td_client_call *call, uint32_t error) {
  td_channel *c = call->channel;
  if (call->grpc_status == TD_OK) return td_incoming_check(&call->stream.in);
  if (call->grpc_status > TD_OK) {
    td_str text = td_strbuf_view(&call->text);
    return td_error_bytes((td_code)call->grpc_status, text.data, text.size);
  }
  if (call->http_status && call->http_status != 200)
    return td_error(http_code(call->http_status), "%s answered with HTTP status %d", c->address, call->http_status);
  if (error == TD_H2_LOST)
    return c->failure ? td_status_retain(c->failure) : td_error(TD_UNAVAILABLE, "Connection to %s is lost", c->address);
  if (error) return td_error(http2_code(error), "%s reset the call: %s", c->address, nghttp2_http2_strerror(error));
  return td_internal("%s ended the call without a grpc-status", c->address);
}

static void on_ended(td_h2_stream *s) {
  td_client_call *call = call_of(s);
  if (call->ended) return;
  quit(call);
  if (s->out || (s->streams && !s->send_ended)) td_conn_reset(s, NGHTTP2_CANCEL); /* it answered before it heard all */
  finish(call, outcome(call, 0));
}

static void on_failed(td_h2_stream *s, td_status status) { td_client_call_end(call_of(s), status); }

static bool may_retry(const td_client_call *call, uint32_t error, bool untouched) {
  if (!untouched || call->headers || call->channel->destroyed || call->retries >= MAX_RETRIES) return false;
  return error == NGHTTP2_REFUSED_STREAM || (error == TD_H2_LOST && call->options.wait_for_ready);
}

static void on_closed(td_h2_stream *s, uint32_t error) {
  td_client_call *call = call_of(s);
  td_channel *c = call->channel;
  bool untouched = s->returned;
  td_payload message = s->unsent;
  s->unsent = (td_payload){0};
  s->returned = false;
  call->linked = false;
  if (!call->ended && may_retry(call, error, untouched)) {
    call->retries++;
    call->message = message;
    td_client_call_wait(call);
    if (c->state == TD_CHANNEL_READY) {
      td_client_call_send(call);
    } else {
      td_channel_connect(c);
    }
  } else {
    td_payload_deinit(&message);
    if (!call->ended) {
      quit(call);
      finish(call, outcome(call, error));
    }
  }
  call_unref(call); /* the link's */
}

const td_conn_ops td_client_conn_ops = {
    .header = on_header,
    .headers_end = NULL,
    .failed = on_failed,
    .ended = on_ended,
    .closed = on_closed,
    .settled = td_channel_on_settled,
    .goaway = td_channel_on_goaway,
    .lost = td_channel_on_lost,
};

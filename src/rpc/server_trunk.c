/* A server's side of trunks (trunk.h). */
#include "base/mem.h"
#include "rpc/codec.h"
#include "rpc/server_internal.h"
#include "rpc/trunk.h"

/* Answers that a channel leaves unread may take so much; far more than its slots can ask for in earnest. */
static const size_t UNREAD_MAX = 256 << 20;

/* Lives until its stream is closed. */
struct td_server_trunk {
  td_call *stream;
  td_call *slots[TD_TRUNK_SLOTS];
  int running;
  bool ended; /* the channel sends no more */
};

bool td_server_trunk_is_resting(const td_server_trunk *t) { return !t->running; }
const td_call *td_server_trunk_stream(const td_server_trunk *t) { return t->stream; }

/* A connection whose trunks rest has nothing to do. */
static void count(td_server_trunk *t, int change) {
  td_server_conn *conn = t->stream->conn;
  if (conn) conn->resting -= !t->running;
  t->running += change;
  if (conn) conn->resting += !t->running;
}

static void end_if_unused(td_server_trunk *t) {
  if (t->ended && !t->running) td_conn_send_end(&t->stream->stream);
}

/* ---- answers ---------------------------------------------------------------------------------------------- */

static void send(td_server_trunk *t, const char *head, size_t head_size, td_payload *message) {
  td_h2_stream *s = &t->stream->stream;
  td_conn_send(s, td_conn_outgoing_headed(s->conn, td_str_n(head, head_size), message));
}

static void send_error(td_server_trunk *t, uint32_t slot, td_status status, td_str details) {
  char head[TD_TRUNK_HEAD];
  td_str text = td_str_of(td_status_message(status));
  text.size = TD_MIN(text.size, (size_t)TD_RPC_TRAILERS_MAX);
  td_payload message = {0};
  td_payload_copy(&message, text.data, text.size);
  td_payload_copy(&message, details.data, details.size);
  send(t, head, td_trunk_answer_head(head, slot, td_status_code(status), text.size), &message);
}

/* The call was answered. */
static void leave(td_call *call) {
  td_server_trunk *t = call->trunk;
  t->slots[call->slot] = NULL;
  call->trunk = NULL;
  count(t, -1);
  end_if_unused(t);
}

void td_server_trunk_reply(td_call *call, td_payload *message) {
  char head[TD_TRUNK_HEAD];
  send(call->trunk, head, td_trunk_answer_head(head, call->slot, TD_OK, 0), message);
  leave(call);
}

void td_server_trunk_fail(td_call *call, td_status status, td_str details) {
  send_error(call->trunk, call->slot, status, details);
  leave(call);
}

/* ---- requests --------------------------------------------------------------------------------------------- */

static td_status begin(td_server_trunk *t, const td_trunk_request *r) {
  if (t->slots[r->slot]) return td_internal("A request on a trunk is for slot %u, which is in use", r->slot);
  if (t->stream->stream.waiting > UNREAD_MAX)
    return td_resource_exhausted("%zu bytes of answers on a trunk were not read", t->stream->stream.waiting);
  td_call *call = t->stream->conn ? td_call_begin(t->stream->conn, t->stream->h2) : NULL;
  if (!call) {
    td_status status = td_error(TD_UNAVAILABLE, "Too many calls of one connection");
    send_error(t, r->slot, status, (td_str){0});
    td_status_free(status);
    return TD_STATUS_OK;
  }
  call->trunk = t;
  call->slot = r->slot;
  t->slots[r->slot] = call;
  count(t, 1);
  td_call_start_on_trunk(call, r->path, r->message);
  return TD_STATUS_OK;
}

static td_status take(td_incoming *in, td_str message) {
  td_h2_stream *s = TD_CONTAINER_OF(in, td_h2_stream, in);
  td_server_trunk *t = TD_CONTAINER_OF(s, td_call, stream)->carries;
  td_trunk_request r;
  TD_TRY(td_trunk_request_parse(message, &r));
  if (r.path.size) return begin(t, &r);
  if (t->slots[r.slot]) td_call_notify_cancel(t->slots[r.slot]); /* else the answer has crossed it */
  return TD_STATUS_OK;
}

/* ---- life ------------------------------------------------------------------------------------------------- */

void td_server_trunk_open(td_call *stream) {
  td_server_trunk *t = td_new(td_server_trunk);
  t->stream = stream;
  stream->carries = t;
  stream->stream.streams = true;
  stream->stream.in.message = take;
  stream->stream.in.max = TD_TRUNK_MESSAGE_MAX;
  stream->conn->resting++;
}

void td_server_trunk_ended(td_server_trunk *t) {
  t->ended = true;
  end_if_unused(t);
}

void td_server_trunk_close(td_server_trunk *t) {
  td_server_shard *shard = t->stream->shard;
  if (t->stream->conn) t->stream->conn->resting -= !t->running;
  t->stream->carries = NULL;
  td_calls_keep(shard);
  for (int i = 0; i < TD_TRUNK_SLOTS; i++) {
    if (!t->slots[i]) continue;
    t->slots[i]->trunk = NULL;
    t->slots[i]->closed = true;
  }
  for (int i = 0; i < TD_TRUNK_SLOTS; i++)
    if (t->slots[i]) td_call_closed(t->slots[i]);
  td_calls_let_go(shard);
  td_free(t);
}

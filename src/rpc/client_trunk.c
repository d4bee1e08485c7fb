/* A channel's side of trunks (trunk.h). */
#include "base/clock.h"
#include "base/mem.h"
#include "rpc/channel_internal.h"
#include "rpc/trunk.h"

/* Lives until its stream has ended. */
struct td_client_trunk {
  td_client_conn *conn; /* NULL: it takes no calls any more */
  td_client_call *stream;
  bool is_known;    /* the server has answered */
  int used;         /* slots */
  td_receiver rest; /* of an answer whose call has a receiver: passes that on what comes for slot `rest_slot` */
  uint32_t rest_slot;
  struct {
    bool is_used;
    td_client_call *call; /* counted; NULL: it did not wait for its answer */
  } slots[TD_TRUNK_SLOTS];
};

static td_client_call *take_from(td_client_trunk *t, uint32_t slot) {
  td_client_call *call = t->slots[slot].call;
  t->slots[slot].call = NULL;
  if (call) call->trunk = NULL;
  return call;
}

/* After the last answer, so that a call that is left can be cancelled till then. */
static void end_if_unused(td_client_trunk *t) {
  if (!t->conn && !t->used) td_client_stream_end(t->stream);
}

/* The stream has ended, and what waits on it will not be answered. */
static void stream_done(void *arg, td_status status, td_str reply, td_str details) {
  td_client_trunk *t = arg;
  td_client_call *left[TD_TRUNK_SLOTS];
  if (t->conn) t->conn->trunk = NULL;
  for (uint32_t i = 0; i < TD_TRUNK_SLOTS; i++) left[i] = take_from(t, i);
  for (uint32_t i = 0; i < TD_TRUNK_SLOTS; i++) {
    td_client_call *call = left[i];
    if (!call) continue;
    td_client_call_end(call, status ? td_status_retain(status)
                                    : td_error(TD_UNAVAILABLE, "%s ended the call's stream", call->channel->address));
    td_client_call_release(call);
  }
  td_status_free(status);
  td_client_call_release(t->stream);
  td_free(t);
}

static void answer(td_client_trunk *t, const td_trunk_answer *a) {
  td_client_call *call = take_from(t, a->slot);
  t->slots[a->slot].is_used = false;
  t->used--;
  end_if_unused(t);
  if (!call) return; /* below, `t` may go */
  td_status status = a->code ? td_error_bytes(a->code, a->text.data, a->text.size) : TD_STATUS_OK;
  td_client_call_answered(call, status, a->message, a->details);
  td_client_call_release(call);
}

static void stream_message(void *arg, td_str message) {
  td_client_trunk *t = arg;
  if (!t->is_known) {
    t->is_known = true;
    return;
  }
  td_trunk_answer a;
  td_status status = td_trunk_answer_parse(message, &a);
  if (!status && !t->slots[a.slot].is_used)
    status = td_internal("An answer on a trunk is for the free slot %u", a.slot);
  if (status)
    td_client_call_end(t->stream, status);
  else
    answer(t, &a);
}

/* A call that fails does not end the trunk: the rest of its answer is dropped. */
static void drop_if_failed(td_client_call *call, td_status status) {
  if (status) td_client_call_end(call, status);
}

static td_client_call *call_of_rest(const td_receiver *rest) {
  const td_client_trunk *t = TD_CONTAINER_OF(rest, td_client_trunk, rest);
  return t->slots[t->rest_slot].call;
}

static td_status take_rest(td_receiver *rest, const void *data, size_t size) {
  td_client_call *call = call_of_rest(rest);
  td_receiver *r = call ? call->stream.in.receiver : NULL;
  if (r) drop_if_failed(call, r->ops->bytes(r, data, size));
  return TD_STATUS_OK;
}

static void *window_of_rest(td_receiver *rest, size_t *size) {
  td_client_call *call = call_of_rest(rest);
  td_receiver *r = call ? call->stream.in.receiver : NULL;
  return r && r->ops->window ? r->ops->window(r, size) : NULL;
}

static td_status rest_landed(td_receiver *rest, size_t size) {
  td_client_call *call = call_of_rest(rest);
  td_receiver *r = call ? call->stream.in.receiver : NULL;
  if (r) drop_if_failed(call, r->ops->landed(r, size));
  return TD_STATUS_OK;
}

/* An answer to a call with a receiver goes there as it comes. */
static td_receiver *divert(td_incoming *in, td_str head) {
  td_client_trunk *t = TD_CONTAINER_OF(in, td_client_call, stream.in)->options.arg;
  td_trunk_answer a;
  if (!t->is_known || head.data[4]) return NULL;
  td_status malformed = td_trunk_answer_parse(head, &a);
  td_client_call *call = malformed ? NULL : t->slots[a.slot].call;
  td_status_free(malformed); /* stream_message() finds the same */
  td_receiver *r = call ? call->stream.in.receiver : NULL;
  if (!r) return NULL;
  t->rest_slot = a.slot;
  if (r->ops->begin) drop_if_failed(call, r->ops->begin(r, in->size - head.size));
  return &t->rest;
}

void td_client_trunk_open(td_client_conn *conn) {
  static const td_receiver_ops rest_ops = {.bytes = take_rest, .window = window_of_rest, .landed = rest_landed};
  td_client_trunk *t = td_new(td_client_trunk);
  t->rest.ops = &rest_ops;
  t->conn = conn;
  conn->trunk = t;
  td_call_options options = {
      .path = TD_TRUNK_PATH,
      .deadline_ns = TD_NO_DEADLINE,
      .done = stream_done,
      .message = stream_message,
      .arg = t,
  };
  t->stream = td_channel_stream(conn->channel, &options);
  t->stream->stream.in.divert = divert;
}

static bool find_free(const td_client_trunk *t, uint32_t *slot) {
  for (uint32_t i = 0; i < TD_TRUNK_SLOTS; i++) {
    if (t->slots[i].is_used) continue;
    *slot = i;
    return true;
  }
  return false;
}

bool td_client_trunk_send(td_client_conn *conn, td_client_call *call) {
  td_client_trunk *t = conn->trunk;
  td_str path = td_str_of(call->path);
  uint32_t slot;
  if (!t || !t->is_known || !call->options.is_small || path.size > TD_TRUNK_PATH_MAX ||
      call->message.size > TD_TRUNK_REQUEST_MAX || !find_free(t, &slot))
    return false;
  char head[TD_TRUNK_HEAD];
  td_str view = td_str_n(head, td_trunk_request_head(head, slot, path));
  td_h2_stream *s = &t->stream->stream;
  td_conn_send(s, td_conn_outgoing_headed(s->conn, view, &call->message));
  atomic_fetch_add(&call->references, 1);
  t->slots[slot].is_used = true;
  t->slots[slot].call = call;
  t->used++;
  call->trunk = t;
  call->slot = slot;
  return true;
}

void td_client_trunk_leave(td_client_call *call) {
  td_client_trunk *t = call->trunk;
  td_h2_stream *s = &t->stream->stream;
  char head[TD_TRUNK_HEAD];
  td_payload nothing = {0};
  td_str view = td_str_n(head, td_trunk_request_head(head, call->slot, (td_str){0}));
  td_conn_send(s, td_conn_outgoing_headed(s->conn, view, &nothing));
  take_from(t, call->slot);
  td_client_call_release(call);
}

void td_client_trunk_detach(td_client_conn *conn, bool is_lost) {
  td_client_trunk *t = conn->trunk;
  if (!t) return;
  conn->trunk = NULL;
  t->conn = NULL;
  if (!is_lost) end_if_unused(t);
}

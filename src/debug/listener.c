#include "debug/listener.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"

#define SEND_EVENTS "/tensorflow.EventListener/SendEvents"

enum { MAX_REPLY_BYTES = 64 * 1024 * 1024 }; /* and more than any event of ours */

typedef struct sending {
  td_work work; /* to the loop, and from there to its next look at itself */
  td_debug_listener *listener;
  td_debug_send send;
  int references; /* loop only from its start: the list's until it is reported, each message's, the post's */
  size_t unwritten;
  uint64_t reply; /* its number among the replies; 0: none is awaited */
  bool is_done, is_reported, is_posted;
  td_status status;
  struct sending *previous, *next; /* of those that are not done */
} sending;

struct td_debug_listener {
  _Atomic uint32_t references; /* the owners', each sending's, the call's, posts' */
  /* immutable */
  td_loop *loop;
  char *url;
  td_str address; /* in url */
  td_debug_gates *gates;
  uint64_t connect_ns;
  /* loop only */
  td_channel *channel;
  td_client_call *call; /* NULL: none yet, or none any more */
  bool is_over;         /* nothing can be sent any more */
  td_status failure;    /* why no connection came */
  sending *sends, *sends_last;
  uint64_t awaited, received; /* replies */
  td_timer patience;          /* for the connection */
  td_timer grace;             /* of a cancel */
  void (*closed)(void *arg);
  void *closed_arg;
};

td_debug_listener *td_debug_listener_create(td_loop *loop, td_str url, td_debug_gates *gates, uint64_t connect_ns) {
  td_debug_listener *l = td_new(td_debug_listener);
  atomic_init(&l->references, 1);
  l->loop = loop;
  l->url = td_strndup(url.data, url.size);
  l->address = td_debug_url_address(td_str_of(l->url));
  l->gates = gates;
  l->connect_ns = connect_ns;
  return l;
}

td_debug_listener *td_debug_listener_retain(td_debug_listener *l) {
  atomic_fetch_add_explicit(&l->references, 1, memory_order_relaxed);
  return l;
}

void td_debug_listener_release(td_debug_listener *l) {
  /* acq_rel: the last owner sees what the others did */
  if (atomic_fetch_sub_explicit(&l->references, 1, memory_order_acq_rel) != 1) return;
  td_status_free(l->failure);
  td_free(l->url);
  td_free(l);
}

td_str td_debug_listener_url(const td_debug_listener *l) { return td_str_of(l->url); }

/* ---- the end of a send ---- */

static void sending_unref(sending *s) {
  if (--s->references) return;
  td_debug_events_deinit(&s->send.events);
  td_tensor_release(s->send.tensor);
  td_strbuf_deinit(&s->send.bytes);
  td_debug_listener_release(s->listener);
  td_free(s);
}

static void mark_done(sending *s, td_status status) {
  td_debug_listener *l = s->listener;
  s->is_done = true;
  s->status = status;
  *(s->previous ? &s->previous->next : &l->sends) = s->next;
  *(s->next ? &s->next->previous : &l->sends_last) = s->previous;
}

/* Outside of any callback of the stream: messages are released also when they will never be written, and only then is
 * it known why. */
static void look(td_work *w) {
  sending *s = TD_CONTAINER_OF(w, sending, work);
  s->is_posted = false;
  if (!s->is_done && !s->unwritten && s->reply <= s->listener->received) mark_done(s, TD_STATUS_OK);
  if (s->is_done && !s->is_reported) {
    s->is_reported = true;
    s->send.done(s->send.arg, s->status);
    sending_unref(s);
  }
  sending_unref(s);
}

static void look_later(sending *s) {
  if (s->is_posted || s->is_reported) return;
  s->is_posted = true;
  s->references++;
  s->work.run = look;
  td_loop_post(s->listener->loop, &s->work);
}

/* Consumes `status`. */
static void fail(sending *s, td_status status) {
  mark_done(s, status);
  look_later(s);
}

static td_status write_failed(const td_debug_listener *l) {
  return l->failure ? td_status_retain(l->failure) : td_cancelled("Write event to stream URL %s failed.", l->url);
}

/* ---- the stream ---- */

static void on_reply(void *arg, td_str message) {
  td_debug_listener *l = arg;
  if (!td_debug_gates_apply(l->gates, l->address, message)) {
    td_client_call_cancel(l->call);
    return;
  }
  l->received++;
  for (sending *s = l->sends; s; s = s->next)
    if (s->reply && s->reply <= l->received) look_later(s);
}

static void tell_closed(td_debug_listener *l) {
  void (*closed)(void *arg) = l->closed;
  l->closed = NULL;
  if (closed) closed(l->closed_arg);
}

typedef struct closing {
  td_work work;
  td_debug_listener *listener;
  void (*done)(void *arg);
  void *arg;
  uint64_t grace_ns;
} closing;

static void closed_run(td_work *w) {
  closing *c = TD_CONTAINER_OF(w, closing, work);
  tell_closed(c->listener);
  td_debug_listener_release(c->listener);
  td_free(c);
}

/* The stream is over, or never came to be. */
static void end(td_debug_listener *l) {
  l->is_over = true;
  td_timer_stop(l->loop, &l->patience);
  td_timer_stop(l->loop, &l->grace);
  while (l->sends) fail(l->sends, write_failed(l));
  if (l->call) td_client_call_release(l->call);
  l->call = NULL;
  if (l->channel) td_channel_destroy(l->channel);
  l->channel = NULL;
  if (!l->closed) return;
  closing *c = td_new(closing); /* behind the sends' reports */
  c->work.run = closed_run;
  c->listener = td_debug_listener_retain(l);
  td_loop_post(l->loop, &c->work);
}

static void on_done(void *arg, td_status status, td_str reply, td_str details) {
  td_debug_listener *l = arg;
  td_status_free(status);
  end(l);
  td_debug_listener_release(l);
}

static void lost_patience(td_timer *t) {
  td_debug_listener *l = TD_CONTAINER_OF(t, td_debug_listener, patience);
  if (td_channel_is_connected(l->channel)) return;
  l->failure = td_failed_precondition("Failed to connect to gRPC channel at %.*s within a timeout of %g s.",
                                      TD_STR_ARG(l->address), (double)l->connect_ns / 1e9);
  td_client_call_cancel(l->call);
}

static td_status open_stream(td_debug_listener *l) {
  char *address = td_strndup(l->address.data, l->address.size);
  td_channel_options options = {.max_message_bytes = MAX_REPLY_BYTES};
  td_status s = td_channel_create(l->loop, address, &options, &l->channel);
  td_free(address);
  if (s) return s;
  td_call_options call = {.path = SEND_EVENTS,
                          .deadline_ns = TD_NO_DEADLINE,
                          .wait_for_ready = true,
                          .done = on_done,
                          .message = on_reply,
                          .arg = td_debug_listener_retain(l)};
  l->call = td_channel_stream(l->channel, &call);
  l->patience.fire = lost_patience;
  td_timer_start(l->loop, &l->patience, td_now_ns() + l->connect_ns);
  return TD_STATUS_OK;
}

/* ---- sending ---- */

static void written(void *owner) {
  sending *s = owner;
  if (!--s->unwritten) look_later(s);
  sending_unref(s);
}

static void write_event(sending *s, const td_debug_event *e) {
  td_payload message = {0};
  if (e->body.size) td_payload_add(&message, e->head.data, e->head.size, NULL, NULL);
  td_str last = e->body.size ? e->body : td_strbuf_view(&e->head);
  td_payload_add(&message, last.data, last.size, written, s);
  td_client_stream_write(s->listener->call, &message);
}

static void send_run(td_work *w) {
  sending *s = TD_CONTAINER_OF(w, sending, work);
  td_debug_listener *l = s->listener;
  s->references = 1 + (int)s->send.events.count;
  s->unwritten = s->send.events.count;
  s->previous = l->sends_last;
  *(s->previous ? &s->previous->next : &l->sends) = s;
  l->sends_last = s;
  td_status status = TD_STATUS_OK;
  if (l->is_over)
    status = write_failed(l);
  else if (!l->call)
    status = open_stream(l);
  if (status) {
    s->references = 1;
    fail(s, status);
    if (!l->is_over) end(l);
    return;
  }
  if (s->send.wants_reply) s->reply = ++l->awaited;
  s->references++; /* a message may be dropped at once */
  for (size_t i = 0; i < s->send.events.count; i++) write_event(s, &s->send.events.items[i]);
  sending_unref(s);
}

void td_debug_listener_send(td_debug_listener *l, const td_debug_send *send) {
  sending *s = td_new(sending);
  s->send = *send;
  s->listener = td_debug_listener_retain(l);
  s->work.run = send_run;
  td_loop_post(l->loop, &s->work);
}

/* ---- closing ---- */

static void close_run(td_work *w) {
  closing *c = TD_CONTAINER_OF(w, closing, work);
  td_debug_listener *l = c->listener;
  l->closed = c->done;
  l->closed_arg = c->arg;
  td_free(c);
  if (l->call)
    td_client_stream_end(l->call);
  else if (!l->is_over)
    end(l);
  else
    tell_closed(l);
  td_debug_listener_release(l);
}

void td_debug_listener_close(td_debug_listener *l, void (*done)(void *arg), void *arg) {
  closing *c = td_new(closing);
  *c = (closing){{.run = close_run}, td_debug_listener_retain(l), done, arg, 0};
  td_loop_post(l->loop, &c->work);
}

static void give_up(td_debug_listener *l) {
  if (l->is_over) return;
  if (l->call)
    td_client_call_cancel(l->call);
  else
    end(l);
}

static void grace_is_over(td_timer *t) { give_up(TD_CONTAINER_OF(t, td_debug_listener, grace)); }

static void cancel_run(td_work *w) {
  closing *c = TD_CONTAINER_OF(w, closing, work);
  td_debug_listener *l = c->listener;
  l->grace.fire = grace_is_over;
  if (!c->grace_ns || !l->call)
    give_up(l);
  else if (!l->grace.slot)
    td_timer_start(l->loop, &l->grace, td_now_ns() + c->grace_ns);
  td_free(c);
  td_debug_listener_release(l);
}

void td_debug_listener_cancel(td_debug_listener *l, uint64_t grace_ns) {
  closing *c = td_new(closing);
  *c = (closing){{.run = cancel_run}, td_debug_listener_retain(l), NULL, NULL, grace_ns};
  td_loop_post(l->loop, &c->work);
}

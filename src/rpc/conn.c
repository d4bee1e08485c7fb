#include "rpc/conn.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/frames.h"
#include "rpc/loop_internal.h"

enum {
  MAX_FRAME = 8 << 20,     /* large: fewer headers between a tensor's bytes */
  MAX_WINDOW = 2147483647, /* memory is capped where it is taken, not by windows */
  SEND_FRAME = 1 << 20,
  TURN_BYTES = 256 * 1024, /* written, and read, a turn and connection, so that nobody starves */
  DIRECT_MIN = 4096,       /* what is left of a frame that is worth a read of its own */
  BEHIND_DIRECT = 1024,
  RESETS_KEPT = 64,
  LAST_STREAM = INT32_MAX - 1000,
};
static const uint64_t SETTLE_NS = 20 * 1000000000ull; /* for the peer's first settings */
static const uint64_t LINGER_NS = 1000000000;

struct td_conn {
  int references;
  td_loop *loop;
  const td_conn_ops *ops;
  void *owner;
  char *peer;
  td_stream *io;
  size_t share; /* bytes that wait to be written, and that a turn writes, at most (and a frame more) */
  nghttp2_session *session;
  td_h2_stream *streams;
  uint32_t stream_count;
  bool server, settled, closing, lingering, lost, going_away;
  bool last_words; /* a GOAWAY is on its way that the peer should read */
  td_status why;
  td_gather_budget budget;

  td_watch watch;
  td_work flush, again;
  bool flush_queued, again_queued;
  bool peer_is_taking; /* bytes wait until the peer has copied others */
  td_out_queue out;

  td_frames frames;
  bool bulk;                      /* the last read landed in a message: its next frame is likely to follow */
  uint32_t header_bytes;          /* of the block that is being received */
  int32_t last_begun;             /* server: the highest stream so far */
  int32_t reset_ids[RESETS_KEPT]; /* streams that we reset: the peer may not know yet */
  uint32_t reset_count;
  uint32_t data_begun; /* DATA frames that nghttp2 took, */
  uint32_t data_fed;   /* and frames.data_seen when bytes were last fed */

  td_timer timer;
  uint64_t keepalive_ns, heard_ns;
  bool keepalive_idle, pinged;
};

static const unsigned char PING_KEEPALIVE[8] = "tdalive", PING_GOAWAY[8] = "tdgoawy";

void *td_conn_owner(const td_conn *c) { return c->owner; }
td_loop *td_conn_loop(const td_conn *c) { return c->loop; }
const char *td_conn_peer(const td_conn *c) { return c->peer; }
td_neighbour td_conn_neighbour(const td_conn *c) { return c->lost ? (td_neighbour){.memory = -1} : c->io->neighbour; }
td_gather_budget *td_conn_budget(td_conn *c) { return &c->budget; }
bool td_conn_is_going(const td_conn *c) { return c->going_away || c->closing || c->lost; }
bool td_conn_is_idle(const td_conn *c, uint32_t resting) {
  return c->lost || c->lingering || (c->stream_count <= resting && !c->out.size && !c->flush_queued);
}

static void schedule_flush(td_conn *c) {
  if (c->flush_queued || c->lost) return;
  c->flush_queued = true;
  td_conn_retain(c);
  td_loop_at_turn_end(c->loop, &c->flush);
}

static bool is_buffered(const td_conn *c) { return c->io->ops->buffered && c->io->ops->buffered(c->io); }
static bool is_unsent(const td_conn *c) { return c->io->ops->unsent && c->io->ops->unsent(c->io); }

/* ---- streams ---------------------------------------------------------------------------------------------- */

static void link_stream(td_conn *c, td_h2_stream *s, int32_t id) {
  s->conn = c;
  s->id = id;
  s->previous = NULL;
  s->next = c->streams;
  if (s->next) s->next->previous = s;
  c->streams = s;
  c->stream_count++;
}

/* The message at hand was sent, or will not be; a stream goes on with its next one. */
static void end_message(td_conn *c, td_h2_stream *s) {
  td_outgoing *next = s->out->next;
  if (s->streams) s->waiting -= s->out->prefix_size + s->out->payload.size;
  td_outgoing_end(&c->out, s->out);
  s->out = next;
}

static void close_stream(td_conn *c, td_h2_stream *s, uint32_t error) {
  if (s->previous) s->previous->next = s->next;
  if (!s->previous) c->streams = s->next;
  if (s->next) s->next->previous = s->previous;
  c->stream_count--;
  s->returned = s->out && !s->streams && td_outgoing_recover(s->out, &s->unsent);
  while (s->out) end_message(c, s);
  s->conn = NULL;
  c->ops->closed(s, error);
}

/* ---- sending ---------------------------------------------------------------------------------------------- */

static ssize_t on_send(nghttp2_session *session, const uint8_t *data, size_t size, int flags, void *user) {
  td_conn *c = user;
  size_t n = td_out_queue_copy(&c->out, data, size);
  return n ? (ssize_t)n : NGHTTP2_ERR_WOULDBLOCK;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t size,
                        nghttp2_data_source *source, void *user) {
  td_conn *c = user;
  td_h2_stream *s = source->ptr;
  if (c->out.size >= c->share || !td_out_queue_has_room(&c->out)) return NGHTTP2_ERR_WOULDBLOCK;
  td_out_queue_copy(&c->out, head, 9);
  td_out_queue_message(&c->out, s->out, size);
  if (!s->out->left) end_message(c, s); /* the bytes may go before the stream does */
  return 0;
}

static ssize_t on_frame_size(nghttp2_session *session, uint8_t type, int32_t id, int32_t session_window,
                             int32_t stream_window, uint32_t max_frame, void *user) {
  return max_frame < SEND_FRAME ? max_frame : SEND_FRAME;
}

static ssize_t on_read_data(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t size, uint32_t *flags,
                            nghttp2_data_source *source, void *user) {
  static const nghttp2_nv OK_TRAILERS[] = {
      {(uint8_t *)"grpc-status", (uint8_t *)"0", 11, 1, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE}};
  td_h2_stream *s = source->ptr;
  if (!s->out && !s->send_ended) {
    s->deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  size_t n = 0;
  bool trailers = ((td_conn *)user)->server;
  if (s->out) {
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    n = td_outgoing_frame(s->out, size);
    if (n < s->out->left || s->streams) return (ssize_t)n;
    trailers = s->out->trailers;
  }
  *flags |= NGHTTP2_DATA_FLAG_EOF;
  if (trailers) {
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    if (nghttp2_submit_trailer(session, id, OK_TRAILERS, 1)) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  return (ssize_t)n;
}

td_outgoing *td_conn_outgoing(td_conn *c, td_payload *payload, bool prefix, bool trailers) {
  td_outgoing *o = td_outgoing_create(&c->out, payload, prefix);
  o->trailers = trailers;
  return o;
}

td_outgoing *td_conn_outgoing_headed(td_conn *c, td_str head, td_payload *payload) {
  return td_outgoing_create_headed(&c->out, head, payload);
}

void td_conn_respond(td_h2_stream *s, const nghttp2_nv *headers, size_t count, td_outgoing *out) {
  td_conn *c = s->conn;
  s->out = s->out_last = out;
  nghttp2_data_provider provider = {.source.ptr = s, .read_callback = on_read_data};
  if (nghttp2_submit_response(c->session, s->id, headers, count, out || s->streams ? &provider : NULL))
    nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_INTERNAL_ERROR);
  schedule_flush(c);
}

td_status td_conn_request(td_conn *c, td_h2_stream *s, const nghttp2_nv *headers, size_t count, td_outgoing *out) {
  nghttp2_data_provider provider = {.source.ptr = s, .read_callback = on_read_data};
  int32_t id = nghttp2_submit_request(c->session, NULL, headers, count, out || s->streams ? &provider : NULL, s);
  if (id < 0) {
    td_outgoing_end(&c->out, out);
    return td_error(TD_UNAVAILABLE, "Cannot start a call to %s: %s", c->peer, nghttp2_strerror(id));
  }
  s->out = s->out_last = out;
  link_stream(c, s, id);
  if (id >= LAST_STREAM) td_conn_go_away(c); /* the protocol has no more numbers; td_conn_is_going() tells the owner */
  schedule_flush(c);
  return TD_STATUS_OK;
}

static void resume(td_h2_stream *s) {
  if (s->deferred) nghttp2_session_resume_data(s->conn->session, s->id); /* fails only if the stream is gone */
  s->deferred = false;
  schedule_flush(s->conn);
}

void td_conn_send(td_h2_stream *s, td_outgoing *out) {
  *(s->out ? &s->out_last->next : &s->out) = out;
  s->out_last = out;
  s->waiting += out->left;
  resume(s);
}

void td_conn_send_end(td_h2_stream *s) {
  s->send_ended = true;
  resume(s);
}

void td_conn_reset(td_h2_stream *s, uint32_t error) {
  s->discard = true;
  s->conn->reset_ids[s->conn->reset_count++ % RESETS_KEPT] = s->id;
  nghttp2_submit_rst_stream(s->conn->session, NGHTTP2_FLAG_NONE, s->id, error);
  schedule_flush(s->conn);
}

/* Closing a socket that has unread bytes resets it, and the peer may lose our last ones: nothing is written any more,
 * and what comes is dropped, until the peer has closed too. Consumes `why`. */
static void linger(td_conn *c, td_status why) {
  if (c->io->fd < 0 || !c->io->ops->finish) {
    td_conn_close_now(c, why);
    return;
  }
  td_status_free(c->why);
  c->why = why;
  c->lingering = c->closing = true;
  c->io->ops->finish(c->io);
  td_watch_change(c->loop, &c->watch, EPOLLIN);
  td_timer_start(c->loop, &c->timer, td_loop_now_ns(c->loop) + LINGER_NS);
  while (c->streams) close_stream(c, c->streams, TD_H2_LOST);
}

static void linger_on(td_conn *c) {
  struct iovec iov = {td_loop_scratch(c->loop), TD_LOOP_SCRATCH};
  ssize_t n = c->io->ops->readv(c->io, &iov, 1);
  if (n > 0 || n == -EAGAIN) return;
  td_status why = c->why;
  c->why = TD_STATUS_OK;
  td_conn_close_now(c, why);
}

static void await_room(td_conn *c, bool wanted) {
  uint32_t events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (c->io->fd >= 0 && c->watch.events != events) td_watch_change(c->loop, &c->watch, events);
}

/* Makes frames and writes them, up to the turn's share. */
static void write_out(td_conn *c) {
  size_t sent = 0;
  while (!c->lost) {
    int rc = nghttp2_session_send(c->session);
    if (rc) {
      td_conn_close_now(c, td_error(TD_UNAVAILABLE, "HTTP/2 to %s failed: %s", c->peer, nghttp2_strerror(rc)));
      return;
    }
    if (!c->out.size && !is_unsent(c)) break;
    if (sent >= c->share) {
      schedule_flush(c); /* the next turn's */
      return;
    }
    struct iovec iov[TD_OUT_IOV];
    int count = td_out_queue_front(&c->out, iov, c->share - sent);
    ssize_t n = c->io->ops->writev(c->io, iov, count);
    if (n == -EAGAIN || n == -EBUSY) {
      c->peer_is_taking = n == -EBUSY;
      await_room(c, n == -EAGAIN || is_unsent(c));
      return;
    }
    if (n < 0) {
      td_conn_close_now(c, td_error(TD_UNAVAILABLE, "Connection to %s is lost: %s", c->peer, strerror((int)-n)));
      return;
    }
    td_out_queue_wrote(&c->out, (size_t)n);
    sent += (size_t)n;
  }
  if (c->lost) return;
  await_room(c, false);
  if (!nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session)) {
    bool orderly = c->settled && c->going_away;
    linger(c,
           orderly ? TD_STATUS_OK : td_error(TD_UNAVAILABLE, "Connection to %s was ended by an HTTP/2 error", c->peer));
  }
}

static void end_turn(td_conn *c) {
  if (!c->lost && !c->lingering) write_out(c);
  if (!c->closing || c->lost || c->lingering) return;
  td_status why = c->why;
  c->why = TD_STATUS_OK;
  if (c->last_words && c->server) {
    linger(c, why);
  } else {
    td_conn_close_now(c, why);
  }
}

static void flush(td_work *w) {
  td_conn *c = TD_CONTAINER_OF(w, td_conn, flush);
  c->flush_queued = false;
  end_turn(c);
  td_conn_release(c);
}

/* ---- receiving -------------------------------------------------------------------------------------------- */

/* Where the rest of the current frame should land, if it is a large piece of a message that knows its place. */
static char *direct_window(td_conn *c, size_t *size) {
  const td_frames *f = &c->frames;
  if (f->left < DIRECT_MIN || f->head_size || f->type != NGHTTP2_DATA || f->flags & NGHTTP2_FLAG_PADDED) return NULL;
  td_h2_stream *s = nghttp2_session_get_stream_user_data(c->session, f->stream);
  if (!s || s->discard) return NULL;
  char *p = td_incoming_window(&s->in, size);
  if (p && *size > f->left) *size = f->left;
  return p;
}

static bool is_stray(td_conn *c, int32_t id) {
  if (id > c->last_begun || nghttp2_session_find_stream(c->session, id)) return false;
  for (int i = 0; i < RESETS_KEPT; i++)
    if (c->reset_ids[i] == id) return false;
  return true;
}

/* nghttp2, told not to remember closed streams, drops DATA on them; the peer is to hear that they are closed. */
static void answer_stray_data(td_conn *c) {
  const td_frames *f = &c->frames;
  uint32_t fresh = TD_MIN(f->data_seen - c->data_fed, (uint32_t)TD_FRAMES_DATA_KEPT);
  for (uint32_t i = 1; i <= fresh && c->server; i++) {
    int32_t id = f->data[(f->data_seen - i) % TD_FRAMES_DATA_KEPT];
    if (id && is_stray(c, id)) nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_STREAM_CLOSED);
  }
  c->data_begun = f->data_seen;
}

static bool feed(td_conn *c, const struct iovec *spans, int count) {
  ssize_t n = 0;
  for (int i = 0; i < count && n >= 0; i++)
    n = nghttp2_session_mem_recv(c->session, spans[i].iov_base, spans[i].iov_len);
  if (c->frames.data_seen != c->data_begun) answer_stray_data(c);
  c->data_fed = c->frames.data_seen;
  if (n >= 0) return true;
  c->last_words = true;
  td_conn_close(c, td_error(TD_UNAVAILABLE, "HTTP/2 from %s is broken: %s", c->peer, nghttp2_strerror((int)n)));
  return false;
}

static bool flooded(td_conn *c) {
  nghttp2_session_terminate_session(c->session, NGHTTP2_ENHANCE_YOUR_CALM);
  td_status why =
      td_error(TD_UNAVAILABLE, "Connection to %s is closed: too many or too large frames of type %d (%u bytes)",
               c->peer, c->frames.type, c->frames.left);
  td_warn("%s", td_status_message(why));
  c->last_words = true;
  td_conn_close(c, why);
  return false;
}

/* One read. Returns whether there may be more. */
static bool read_once(td_conn *c, size_t *total) {
  struct iovec iov[2];
  int count = 0;
  size_t direct = 0;
  char *window = direct_window(c, &direct);
  if (!window) direct = 0;
  if (direct > TURN_BYTES) direct = TURN_BYTES;
  char *scratch = td_loop_scratch(c->loop);
  if (direct) iov[count++] = (struct iovec){window, direct};
  /* Other bytes only behind the frame's end, and then few: what follows is most likely the next large frame. */
  size_t room = direct && direct < c->frames.left ? 0 : direct || c->bulk ? BEHIND_DIRECT : TD_LOOP_SCRATCH;
  if (room) iov[count++] = (struct iovec){scratch, room};
  ssize_t n = c->io->ops->readv(c->io, iov, count);
  if (n == -EAGAIN) return false;
  if (n <= 0) {
    td_conn_close(c, n == 0 && c->going_away && !c->streams
                         ? TD_STATUS_OK
                         : td_error(TD_UNAVAILABLE, "Connection to %s is lost: %s", c->peer,
                                    n ? strerror((int)-n) : "closed by the peer"));
    return false;
  }
  c->bulk = direct;
  size_t first = TD_MIN((size_t)n, direct), rest = (size_t)n - first;
  *total += (size_t)n;
  if (first) {
    td_frames_skip(&c->frames, first);
    if (!feed(c, &(struct iovec){window, first}, 1)) return false;
  }
  if (rest) {
    struct iovec spans[2];
    int whole = td_frames_follow(&c->frames, (unsigned char *)scratch, rest, td_loop_now_ns(c->loop), spans);
    if (whole < 0) return flooded(c);
    if (!feed(c, spans, whole)) return false;
  }
  return (size_t)n == direct + room;
}

static void read_again(td_work *w);

static void read_in(td_conn *c) {
  size_t total = 0;
  while (!c->closing && !c->lost && total < TURN_BYTES && (read_once(c, &total) || (!c->lost && is_buffered(c))))
    continue;
  if (c->closing || c->lost) return;
  if (c->peer_is_taking || is_unsent(c)) {
    c->peer_is_taking = false;
    schedule_flush(c);
  }
  if (total >= TURN_BYTES && is_buffered(c) && !c->again_queued) { /* the descriptor will not tell */
    c->again_queued = true;
    td_conn_retain(c);
    td_loop_at_turn_end(c->loop, &c->again);
  }
  if (!total) return;
  if (total >= DIRECT_MIN) td_loop_touch(c->loop); /* on_frame() sees to what is smaller */
  c->heard_ns = td_loop_now_ns(c->loop);
  schedule_flush(c);
}

static void read_again(td_work *w) {
  td_conn *c = TD_CONTAINER_OF(w, td_conn, again);
  c->again_queued = false;
  if (!c->lost && !c->lingering) read_in(c);
  td_conn_release(c);
}

static void ready(td_watch *w, uint32_t events) {
  td_conn *c = TD_CONTAINER_OF(w, td_conn, watch);
  td_conn_retain(c);
  if (c->lingering) {
    linger_on(c);
  } else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
    read_in(c);
  }
  if (events & EPOLLOUT && !c->lingering) schedule_flush(c);
  td_conn_release(c);
}

void td_conn_drive(td_conn *c) {
  td_conn_retain(c);
  read_in(c);
  end_turn(c);
  td_conn_release(c);
}

/* ---- nghttp2's callbacks ---------------------------------------------------------------------------------- */

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user) {
  td_conn *c = user;
  if (hd->type == NGHTTP2_DATA) {
    c->data_begun++;
  } else if (hd->type == NGHTTP2_HEADERS) {
    c->header_bytes = 0;
    if (c->server && is_stray(c, hd->stream_id))
      return nghttp2_session_terminate_session(session, NGHTTP2_STREAM_CLOSED);
  }
  return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  td_conn *c = user;
  if (!c->server || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  c->last_begun = frame->hd.stream_id;
  td_h2_stream *s = c->closing ? NULL : c->ops->begin(c);
  if (!s) {
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
    return 0;
  }
  link_stream(c, s, frame->hd.stream_id);
  nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s);
  return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                     uint8_t flags, void *user) {
  td_conn *c = user;
  c->header_bytes += (uint32_t)(nghttp2_rcbuf_get_buf(name).len + nghttp2_rcbuf_get_buf(value).len) + 32;
  if (c->header_bytes > TD_MAX_HEADER_BYTES) {
    nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  td_h2_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  if (s) c->ops->header(s, name, value);
  return 0;
}

static int on_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t size, void *user) {
  td_conn *c = user;
  td_h2_stream *s = nghttp2_session_get_stream_user_data(session, id);
  if (!s || s->discard) return 0;
  td_status status = td_incoming_feed(&s->in, (const char *)data, size);
  if (!status) return 0;
  s->discard = true;
  c->ops->failed(s, status);
  return 0;
}

static void first_settings(td_conn *c) {
  if (c->settled) return;
  c->settled = true;
  td_timer_stop(c->loop, &c->timer);
  if (c->keepalive_ns) td_timer_start(c->loop, &c->timer, td_loop_now_ns(c->loop) + c->keepalive_ns);
  if (c->ops->settled) c->ops->settled(c);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  td_conn *c = user;
  td_h2_stream *s = NULL;
  if (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) td_loop_touch(c->loop);
  switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
      s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
      if (s && c->ops->headers_end) c->ops->headers_end(s);
      /* the stream may be gone by now */
      s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
      break;
    case NGHTTP2_DATA:
      s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
      break;
    case NGHTTP2_SETTINGS:
      if (!(frame->hd.flags & NGHTTP2_FLAG_ACK)) first_settings(c);
      return 0;
    case NGHTTP2_GOAWAY:
      c->going_away = true;
      if (c->ops->goaway) c->ops->goaway(c, frame->goaway.last_stream_id, frame->goaway.error_code);
      return 0;
    case NGHTTP2_PING:
      if (frame->hd.flags & NGHTTP2_FLAG_ACK && !memcmp(frame->ping.opaque_data, PING_GOAWAY, 8))
        nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session),
                              NGHTTP2_NO_ERROR, NULL, 0);
      return 0;
    default:
      return 0;
  }
  if (s && frame->hd.flags & NGHTTP2_FLAG_END_STREAM) c->ops->ended(s);
  return 0;
}

static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  td_conn *c = user;
  if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code)
    td_warn("Connection to %s ends with %s: %.*s", c->peer, nghttp2_http2_strerror(frame->goaway.error_code),
            (int)frame->goaway.opaque_data_len, (const char *)frame->goaway.opaque_data);
  if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
  td_h2_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  if (s && s->reset_after) td_conn_reset(s, NGHTTP2_NO_ERROR);
  return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *user) {
  td_conn *c = user;
  td_h2_stream *s = nghttp2_session_get_stream_user_data(session, id);
  if (s && s->conn == c) close_stream(c, s, error);
  return 0;
}

/* ---- life ------------------------------------------------------------------------------------------------- */

static void tick(td_timer *t) {
  td_conn *c = TD_CONTAINER_OF(t, td_conn, timer);
  uint64_t now = td_loop_now_ns(c->loop);
  if (c->lingering) {
    td_status why = c->why;
    c->why = TD_STATUS_OK;
    td_conn_close_now(c, why);
    return;
  }
  if (!c->settled) {
    td_conn_close(c, td_error(TD_UNAVAILABLE, "%s does not speak HTTP/2: no settings within %d s", c->peer,
                              (int)(SETTLE_NS / 1000000000u)));
    return;
  }
  uint64_t quiet = now - c->heard_ns;
  if (quiet < c->keepalive_ns || (!c->streams && !c->keepalive_idle)) {
    c->pinged = false;
    td_timer_start(c->loop, t, quiet < c->keepalive_ns ? c->heard_ns + c->keepalive_ns : now + c->keepalive_ns);
    return;
  }
  if (c->pinged) {
    td_conn_close(c, td_error(TD_UNAVAILABLE, "Connection to %s is lost: no answer to a keepalive ping within %.3f s",
                              c->peer, (double)c->keepalive_ns / 1e9));
    return;
  }
  c->pinged = true;
  nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, PING_KEEPALIVE);
  td_timer_start(c->loop, t, now + c->keepalive_ns);
  schedule_flush(c);
}

static int session_create(td_conn *c) {
  nghttp2_session_callbacks *callbacks = NULL;
  nghttp2_option *option = NULL;
  int rc = nghttp2_session_callbacks_new(&callbacks);
  if (!rc) rc = nghttp2_option_new(&option);
  if (!rc) {
    nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, on_frame_size);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1); /* a grpc-message may end in a blank */
    nghttp2_option_set_stream_reset_rate_limit(option, 2 * TD_RESET_BURST, TD_RESET_RATE); /* ours comes first */
    rc = c->server ? nghttp2_session_server_new2(&c->session, callbacks, c, option)
                   : nghttp2_session_client_new2(&c->session, callbacks, c, option);
  }
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  return rc;
}

static int submit_settings(td_conn *c, uint32_t max_streams) {
  nghttp2_settings_entry e[4] = {
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, MAX_WINDOW},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, MAX_FRAME},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, c->server ? TD_MAX_HEADERS_FRAME : TD_MAX_HEADER_BYTES},
      {c->server ? NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS : NGHTTP2_SETTINGS_ENABLE_PUSH, c->server ? max_streams : 0},
  };
  int rc = nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, e, TD_COUNT(e));
  return rc ? rc : nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, MAX_WINDOW);
}

td_status td_conn_create(const td_conn_options *o, td_stream *io, td_conn **out) {
  td_conn *c = td_new(td_conn);
  c->references = 1;
  c->loop = o->loop;
  c->ops = o->ops;
  c->owner = o->owner;
  c->peer = td_strdup(o->peer);
  c->io = io;
  c->share = io->ahead ? io->ahead : TURN_BYTES;
  c->server = o->server;
  c->keepalive_ns = o->keepalive_ns;
  c->keepalive_idle = o->keepalive_idle;
  c->budget.max = o->max_buffered_bytes;
  c->flush.run = flush;
  c->again.run = read_again;
  c->timer.fire = tick;
  c->heard_ns = td_loop_now_ns(o->loop);
  td_frames_init(&c->frames, o->server, c->heard_ns);
  td_out_queue_init(&c->out);
  int rc = session_create(c);
  if (!rc) rc = submit_settings(c, o->max_streams);
  td_status status =
      rc ? td_resource_exhausted("Cannot start HTTP/2 with %s: %s", c->peer, nghttp2_strerror(rc)) : TD_STATUS_OK;
  c->watch = (td_watch){.ready = ready, .fd = io->fd};
  if (!status && io->fd >= 0) status = td_watch_start(c->loop, &c->watch, EPOLLIN);
  if (status) {
    c->lost = true;
    io->ops->close(io);
    c->io = NULL;
    td_conn_release(c);
    return status;
  }
  td_timer_start(c->loop, &c->timer, c->heard_ns + SETTLE_NS);
  *out = c;
  schedule_flush(c);
  return TD_STATUS_OK;
}

void td_conn_retain(td_conn *c) { c->references++; }

void td_conn_release(td_conn *c) {
  if (--c->references) return;
  nghttp2_session_del(c->session);
  td_out_queue_deinit(&c->out);
  td_status_free(c->why);
  td_free(c->peer);
  td_free(c);
}

void td_conn_close(td_conn *c, td_status why) {
  if (c->closing || c->lost) {
    td_status_free(why);
    return;
  }
  c->closing = true;
  c->why = why;
  schedule_flush(c);
}

void td_conn_close_now(td_conn *c, td_status why) {
  if (c->lost) {
    td_status_free(why);
    return;
  }
  c->lost = true; /* from here on nothing is sent, and a queued flush finds nothing to do */
  if (c->io->fd >= 0) td_watch_stop(c->loop, &c->watch);
  td_timer_stop(c->loop, &c->timer);
  c->io->ops->close(c->io);
  c->io = NULL;
  td_out_queue_abandon(&c->out);
  c->ops->lost(c, why);
  while (c->streams) close_stream(c, c->streams, TD_H2_LOST);
  td_status_free(why);
  td_conn_release(c);
}

void td_conn_go_away(td_conn *c) {
  if (c->lost || c->closing || c->going_away) return;
  c->going_away = true;
  if (!c->server) {
    nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
    schedule_flush(c);
    return;
  }
  /* Two steps: what the peer sent before it heard of the first still runs. */
  nghttp2_submit_shutdown_notice(c->session);
  nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, PING_GOAWAY);
  schedule_flush(c);
}

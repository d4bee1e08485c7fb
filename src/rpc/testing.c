#include "rpc/testing.h"

#include <arpa/inet.h>
#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

typedef struct connection connection;

struct td_server_stream {
  connection *c;
  td_server_stream *next;
  int32_t id;
  char path[128];
  td_strbuf in, out; /* frames of gRPC: what came and is not whole, what is to be sent */
  size_t sent;       /* of out */
  bool ends;
};

struct connection {
  td_stream_server *server;
  int fd;
  pthread_t thread;
  nghttp2_session *session;
  td_server_stream *streams;
  connection *next;
};

struct td_stream_server {
  td_stream_server_options options;
  int fd;
  pthread_t thread;
  pthread_mutex_t lock;
  connection *connections; /* guarded by lock */
  atomic_int opened, open;
};

static void check(bool ok, const char *what) {
  if (ok) return;
  perror(what);
  abort();
}

/* ---- streams ---- */

static ssize_t next_bytes(nghttp2_session *session, int32_t id, uint8_t *to, size_t size, uint32_t *flags,
                          nghttp2_data_source *source, void *user) {
  static const nghttp2_nv OK[] = {{(uint8_t *)"grpc-status", (uint8_t *)"0", 11, 1, NGHTTP2_NV_FLAG_NONE}};
  td_server_stream *s = source->ptr;
  size_t n = TD_MIN(size, s->out.size - s->sent);
  if (n) memcpy(to, s->out.data + s->sent, n);
  s->sent += n;
  if (s->sent < s->out.size) return (ssize_t)n;
  if (s->ends) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    check(!nghttp2_submit_trailer(session, id, OK, 1), "trailers");
    return (ssize_t)n;
  }
  return n ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

void td_server_stream_reply(td_server_stream *s, td_str message) {
  unsigned char prefix[5] = {0, (unsigned char)(message.size >> 24), (unsigned char)(message.size >> 16),
                             (unsigned char)(message.size >> 8), (unsigned char)message.size};
  td_strbuf_append(&s->out, td_str_n(prefix, sizeof prefix));
  td_strbuf_append(&s->out, message);
  nghttp2_session_resume_data(s->c->session, s->id);
}

const char *td_server_stream_path(const td_server_stream *s) { return s->path; }

static bool take_messages(td_server_stream *s) {
  const td_stream_server_options *o = &s->c->server->options;
  size_t at = 0;
  bool ok = true;
  while (ok && s->in.size - at >= 5) {
    const unsigned char *p = (const unsigned char *)s->in.data + at;
    size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    if (s->in.size - at - 5 < n) break;
    if (o->message) ok = o->message(o->arg, s, td_str_n(p + 5, n));
    at += 5 + n;
  }
  if (at) memmove(s->in.data, s->in.data + at, s->in.size - at);
  s->in.size -= at;
  return ok;
}

/* ---- nghttp2's callbacks ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  connection *c = user;
  td_server_stream *s = td_new(td_server_stream);
  s->c = c;
  s->id = frame->hd.stream_id;
  s->next = c->streams;
  c->streams = s;
  nghttp2_session_set_stream_user_data(session, s->id, s);
  atomic_fetch_add(&c->server->opened, 1);
  atomic_fetch_add(&c->server->open, 1);
  return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t size, uint8_t flags, void *user) {
  td_server_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  if (s && name_size == 5 && !memcmp(name, ":path", 5))
    snprintf(s->path, sizeof s->path, "%.*s", (int)size, (const char *)value);
  return 0;
}

static int on_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t size, void *user) {
  td_server_stream *s = nghttp2_session_get_stream_user_data(session, id);
  if (!s) return 0;
  td_strbuf_append(&s->in, td_str_n(data, size));
  if (!take_messages(s)) nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_INTERNAL_ERROR);
  return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  static const nghttp2_nv HEAD[] = {
      {(uint8_t *)":status", (uint8_t *)"200", 7, 3, NGHTTP2_NV_FLAG_NONE},
      {(uint8_t *)"content-type", (uint8_t *)"application/grpc", 12, 16, NGHTTP2_NV_FLAG_NONE}};
  td_server_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  if (!s) return 0;
  const td_stream_server_options *o = &s->c->server->options;
  if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
    nghttp2_data_provider provider = {.source.ptr = s, .read_callback = next_bytes};
    check(!nghttp2_submit_response(session, s->id, HEAD, 2, &provider), "response");
    if (o->begun) o->begun(o->arg, s);
  }
  if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
      frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
    s->ends = !o->ended || o->ended(o->arg, s);
    nghttp2_session_resume_data(session, s->id);
  }
  return 0;
}

static void stream_free(td_server_stream *s) {
  td_server_stream **at = &s->c->streams;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  atomic_fetch_sub(&s->c->server->open, 1);
  td_strbuf_deinit(&s->in);
  td_strbuf_deinit(&s->out);
  td_free(s);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t error, void *user) {
  td_server_stream *s = nghttp2_session_get_stream_user_data(session, id);
  nghttp2_session_set_stream_user_data(session, id, NULL);
  if (s) stream_free(s);
  return 0;
}

/* ---- connections ---- */

static bool write_out(connection *c) {
  for (;;) {
    const uint8_t *data;
    ssize_t n = nghttp2_session_mem_send(c->session, &data);
    if (n <= 0) return n == 0;
    while (n) {
      ssize_t sent = send(c->fd, data, (size_t)n, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data += sent;
      n -= sent;
    }
  }
}

static void *serve(void *arg) {
  connection *c = arg;
  nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, c->server->options.is_deaf ? 0 : 1 << 20};
  uint8_t buffer[16384];
  ssize_t n;
  nghttp2_session_callbacks *callbacks;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_chunk);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
  check(!nghttp2_session_server_new(&c->session, callbacks, c), "session");
  nghttp2_session_callbacks_del(callbacks);
  nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, &window, 1);
  while (write_out(c) && (n = recv(c->fd, buffer, sizeof buffer, 0)) > 0)
    if (nghttp2_session_mem_recv(c->session, buffer, (size_t)n) < 0) break;
  nghttp2_session_del(c->session);
  while (c->streams) stream_free(c->streams); /* no callback closed them */
  return NULL;
}

static void *accept_all(void *arg) {
  td_stream_server *s = arg;
  int fd;
  while ((fd = accept(s->fd, NULL, NULL)) >= 0) {
    connection *c = td_new(connection);
    c->server = s;
    c->fd = fd;
    pthread_mutex_lock(&s->lock);
    c->next = s->connections;
    s->connections = c;
    check(!pthread_create(&c->thread, NULL, serve, c), "pthread_create");
    pthread_mutex_unlock(&s->lock);
  }
  return NULL;
}

static int listen_on(int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  check(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 16), "listen");
  return fd;
}

/* The socket stays, bound and not listening: a server may listen beside it, and the system gives the port to nobody. */
int td_stream_server_free_port(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  check(fd >= 0 && !bind(fd, (struct sockaddr *)&a, size) && !getsockname(fd, (struct sockaddr *)&a, &size), "bind");
  return ntohs(a.sin_port);
}

td_stream_server *td_stream_server_start(const td_stream_server_options *options) {
  td_stream_server *s = td_new(td_stream_server);
  s->options = *options;
  s->fd = listen_on(atoi(strrchr(options->address, ':') + 1));
  pthread_mutex_init(&s->lock, NULL);
  check(!pthread_create(&s->thread, NULL, accept_all, s), "pthread_create");
  return s;
}

int td_stream_server_opened(td_stream_server *s) { return atomic_load(&s->opened); }
int td_stream_server_open(td_stream_server *s) { return atomic_load(&s->open); }

void td_stream_server_stop(td_stream_server *s) {
  shutdown(s->fd, SHUT_RDWR);
  pthread_join(s->thread, NULL);
  close(s->fd);
  for (connection *c = s->connections, *next; c; c = next) {
    next = c->next;
    shutdown(c->fd, SHUT_RDWR);
    pthread_join(c->thread, NULL);
    close(c->fd);
    td_free(c);
  }
  pthread_mutex_destroy(&s->lock);
  td_free(s);
}

#include "rpc/stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

static ssize_t socket_readv(td_stream *s, const struct iovec *iov, int count) {
  for (;;) {
    ssize_t n = readv(s->fd, iov, count);
    if (n >= 0) return n;
    if (errno != EINTR) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
  }
}

static ssize_t socket_writev(td_stream *s, const struct iovec *iov, int count) {
  struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
  for (;;) {
    ssize_t n = sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) return n;
    if (errno != EINTR) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
  }
}

static void socket_finish(td_stream *s) { shutdown(s->fd, SHUT_WR); }

static void socket_close(td_stream *s) {
  close(s->fd);
  td_free(s);
}

static const td_stream_ops SOCKET_OPS = {
    .readv = socket_readv, .writev = socket_writev, .finish = socket_finish, .close = socket_close};

void td_socket_tune(int fd) {
  int domain = 0, one = 1;
  socklen_t size = sizeof domain;
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  if (domain == AF_UNIX) {
    int bytes = 1 << 20; /* unix sockets have no autotuning */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    return;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  /* A peer whose machine or network is gone is noticed within a minute, whether it owes us bytes or we it. HTTP/2 pings
   * would do too, but gRPC's servers close connections that ping them often. */
  int idle_s = 20, interval_s = 10, probes = 4, timeout_ms = 60000;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
  /* bbr, where it is the default, paces loopback and short links to half their speed. Not being allowed is fine. */
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic"));
}

td_stream *td_socket_stream_create(int fd) {
  td_stream *s = td_new(td_stream);
  s->ops = &SOCKET_OPS;
  s->fd = fd;
  td_socket_tune(fd);
  return s;
}

/* What every td_stream_ops must do; run against each implementation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "rpc/stream.h"

typedef struct pair {
  td_stream *ends[2];
} pair;

static void nonblocking(int fd) { assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0); }

static int setup_unix(void **state) {
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  pair *p = td_new(pair);
  for (int i = 0; i < 2; i++) {
    nonblocking(fds[i]);
    p->ends[i] = td_socket_stream_create(fds[i]);
  }
  *state = p;
  return 0;
}

static int setup_tcp(void **state) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof in;
  int listener = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&in, sizeof in), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&in, &size), 0);
  assert_int_equal(connect(a, (struct sockaddr *)&in, sizeof in), 0);
  int b = accept(listener, NULL, NULL);
  assert_true(b >= 0);
  close(listener);
  nonblocking(a);
  nonblocking(b);
  pair *p = td_new(pair);
  p->ends[0] = td_socket_stream_create(a);
  p->ends[1] = td_socket_stream_create(b);
  *state = p;
  return 0;
}

static int teardown(void **state) {
  pair *p = *state;
  for (int i = 0; i < 2; i++)
    if (p->ends[i]) p->ends[i]->ops->close(p->ends[i]);
  td_free(p);
  return 0;
}

static void wait_readable(td_stream *s) {
  struct pollfd p = {.fd = s->fd, .events = POLLIN};
  if (s->ops->buffered && s->ops->buffered(s)) return;
  assert_int_equal(poll(&p, 1, 3000), 1);
}

/* Everything written comes out, in order, whatever the vectors; both directions; never a block. */
static void carries_bytes(void **state) {
  pair *p = *state;
  enum { SIZE = 8 << 20 };
  char *out = td_malloc(SIZE), *in = td_calloc(1, SIZE);
  for (int i = 0; i < SIZE; i++) out[i] = (char)(i * 7 >> 4);
  for (int way = 0; way < 2; way++) {
    td_stream *from = p->ends[way], *to = p->ends[!way];
    char byte;
    assert_int_equal(to->ops->readv(to, &(struct iovec){&byte, 1}, 1), -EAGAIN);
    size_t wrote = 0, got = 0;
    bool filled = false;
    while (got < SIZE) {
      while (wrote < SIZE) {
        size_t a = TD_MIN((size_t)1000, SIZE - wrote), b = TD_MIN((size_t)200000, SIZE - wrote - a);
        struct iovec iov[2] = {{out + wrote, a}, {out + wrote + a, b}};
        ssize_t n = from->ops->writev(from, iov, 2);
        if (n == -EAGAIN) filled = true;
        if (n == -EAGAIN) break;
        assert_in_range(n, 1, a + b);
        wrote += (size_t)n;
      }
      wait_readable(to);
      size_t a = TD_MIN((size_t)70000, SIZE - got), b = TD_MIN((size_t)333, SIZE - got - a);
      struct iovec iov[2] = {{in + got, a}, {in + got + a, b}};
      ssize_t n = to->ops->readv(to, iov, 2);
      if (n == -EAGAIN) continue;
      assert_in_range(n, 1, a + b);
      got += (size_t)n;
    }
    assert_true(filled);
    assert_memory_equal(in, out, SIZE);
    memset(in, 0, SIZE);
  }
  td_free(out);
  td_free(in);
}

static void ends_are_seen(void **state) {
  pair *p = *state;
  td_stream *a = p->ends[0], *b = p->ends[1];
  char bytes[16];
  struct iovec iov = {bytes, sizeof bytes};
  assert_int_equal(a->ops->writev(a, &(struct iovec){"last", 4}, 1), 4);
  if (a->ops->finish) { /* half-closed: the other direction goes on */
    a->ops->finish(a);
    wait_readable(b);
    assert_int_equal(b->ops->readv(b, &iov, 1), 4);
    wait_readable(b);
    assert_int_equal(b->ops->readv(b, &iov, 1), 0);
    assert_int_equal(b->ops->writev(b, &(struct iovec){"still", 5}, 1), 5);
    wait_readable(a);
    assert_int_equal(a->ops->readv(a, &iov, 1), 5);
  }
  a->ops->close(a);
  p->ends[0] = NULL;
  ssize_t n = 1;
  for (int i = 0; i < 100 && n > 0; i++) { /* broken, not a signal */
    n = b->ops->writev(b, &(struct iovec){"gone", 4}, 1);
    usleep(1000);
  }
  assert_true(n < 0 && n != -EAGAIN);
}

static void tcp_does_not_delay(void **state) {
  pair *p = *state;
  int on = 0;
  socklen_t size = sizeof on;
  assert_int_equal(getsockopt(p->ends[0]->fd, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
  assert_true(on);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      {"carries_bytes (tcp)", carries_bytes, setup_tcp, teardown, NULL},
      {"carries_bytes (unix)", carries_bytes, setup_unix, teardown, NULL},
      {"ends_are_seen (tcp)", ends_are_seen, setup_tcp, teardown, NULL},
      {"ends_are_seen (unix)", ends_are_seen, setup_unix, teardown, NULL},
      cmocka_unit_test_setup_teardown(tcp_does_not_delay, setup_tcp, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

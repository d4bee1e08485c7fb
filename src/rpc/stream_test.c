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
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "rpc/neighbour.h"
#include "rpc/stream.h"

typedef struct pair {
  td_stream *ends[2];
} pair;

static void nonblocking(int fd) { assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0); }

static int setup_pair(void **state, td_stream *(*create)(int fd)) {
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  pair *p = td_new(pair);
  for (int i = 0; i < 2; i++) {
    nonblocking(fds[i]);
    p->ends[i] = create(fds[i]);
    assert_non_null(p->ends[i]);
  }
  *state = p;
  return 0;
}

static int setup_unix(void **state) { return setup_pair(state, td_socket_stream_create); }

static td_stream *neighbour_stream(int fd) { return td_neighbour_stream_create(fd, 7); }

static int setup_neighbours(void **state) { return setup_pair(state, neighbour_stream); }

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
  assert_int_equal(poll(&p, 1, 60000), 1);
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
        if (n == -EAGAIN || n == -EBUSY) filled = true;
        if (n == -EAGAIN) break;
        if (n == -EBUSY) { /* the peer has to take what it was lent */
          if (from->ops->readv(from, &(struct iovec){&byte, 1}, 1) == -EAGAIN) break;
          fail();
        }
        assert_in_range(n, 1, a + b);
        wrote += (size_t)n;
      }
      if (from->ops->unsent && from->ops->unsent(from)) assert_in_range(-from->ops->writev(from, NULL, 0), 0, EAGAIN);
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

/* ---- neighbours ------------------------------------------------------------------------------------------- */

typedef struct frame {
  uint32_t kind, size;
  uint64_t address;
} frame;

enum { HELLO = 1, BYTES, LENT, TAKEN, LARGE = 1 << 20 };

/* A stream whose other end the test plays. */
static td_stream *with_bare_peer(int *peer) {
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  nonblocking(fds[0]);
  *peer = fds[1];
  return td_neighbour_stream_create(fds[0], -1);
}

static void say(int peer, uint32_t kind, uint32_t size, const void *address) {
  frame f = {kind, size, (uintptr_t)address};
  assert_int_equal(write(peer, &f, sizeof f), sizeof f);
}

static frame hear(int peer) {
  frame f;
  assert_int_equal(read(peer, &f, sizeof f), sizeof f);
  return f;
}

/* Lent bytes count as written once the peer says that it took them, and not before. */
static void lends_until_taken(void **state) {
  int peer;
  td_stream *s = with_bare_peer(&peer);
  char *data = td_calloc(1, LARGE), byte;
  struct iovec iov[2] = {{data, LARGE}, {"end", 3}}, in = {&byte, 1};
  say(peer, HELLO, 1, NULL);
  assert_int_equal(s->ops->readv(s, &in, 1), -EAGAIN);
  assert_int_equal(s->ops->writev(s, iov, 2), -EBUSY);
  assert_int_equal(hear(peer).kind, HELLO);
  frame f = hear(peer);
  assert_int_equal(f.kind, LENT);
  assert_int_equal(f.size, LARGE);
  assert_ptr_equal((void *)(uintptr_t)f.address, data);
  say(peer, TAKEN, 1000, NULL);
  assert_int_equal(s->ops->readv(s, &in, 1), -EAGAIN);
  assert_int_equal(s->ops->writev(s, iov, 2), 1000);
  iov[0] = (struct iovec){data + 1000, LARGE - 1000};
  assert_int_equal(s->ops->writev(s, iov, 2), -EBUSY);
  say(peer, TAKEN, LARGE - 1000, NULL);
  assert_int_equal(s->ops->readv(s, &in, 1), -EAGAIN);
  assert_int_equal(s->ops->writev(s, iov, 2), LARGE - 1000 + 3);
  s->ops->close(s);
  close(peer);
  td_free(data);
}

/* To a peer that cannot read our memory everything goes through the socket. */
static void lends_nothing_to_who_cannot_read(void **state) {
  int peer;
  td_stream *s = with_bare_peer(&peer);
  char *data = td_calloc(1, LARGE), byte;
  say(peer, HELLO, 0, NULL);
  assert_int_equal(s->ops->readv(s, &(struct iovec){&byte, 1}, 1), -EAGAIN);
  assert_in_range(s->ops->writev(s, &(struct iovec){data, LARGE}, 1), 1, LARGE);
  assert_int_equal(hear(peer).kind, HELLO);
  assert_int_equal(hear(peer).kind, BYTES);
  s->ops->close(s);
  close(peer);
  td_free(data);
}

/* While the stream sends on what it kept. */
static void hear_all(td_stream *s, int peer, void *to, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t n = read(peer, (char *)to + got, size - got);
    if (n > 0) got += (size_t)n;
    if (n < 0) assert_in_range(-s->ops->writev(s, NULL, 0), 0, EAGAIN);
  }
}

/* Pieces that lie apart leave as one frame, and what the socket does not take stays ours: the caller may reuse its
 * memory. */
static void gathers_what_is_small(void **state) {
  enum { PIECES = 100, PIECE = 3000 };
  int peer;
  td_stream *s = with_bare_peer(&peer);
  char *data = td_malloc(PIECES * PIECE), *got = td_malloc(PIECES * PIECE);
  struct iovec iov[PIECES];
  size_t total = 0, taken, heard = 0, frames = 0;
  nonblocking(peer);
  for (bool full = false; !full; total += taken) {
    for (int i = 0; i < PIECES; i++) {
      memset(data + i * PIECE, (int)(total / PIECE) + i, PIECE);
      iov[i] = (struct iovec){data + i * PIECE, PIECE};
    }
    ssize_t n = s->ops->writev(s, iov, PIECES);
    full = n < PIECES * PIECE;
    taken = n < 0 ? 0 : (size_t)n;
    if (n < 0) assert_int_equal(n, -EAGAIN);
    memset(data, 99, PIECES * PIECE);
  }
  assert_true(s->ops->unsent(s));
  assert_int_equal(hear(peer).kind, HELLO);
  for (; heard < total; frames++) {
    frame f = {0};
    hear_all(s, peer, &f, sizeof f);
    assert_int_equal(f.kind, BYTES);
    assert_in_range(f.size, 1, total - heard);
    hear_all(s, peer, got, f.size);
    for (uint32_t i = 0; i < f.size; i++) assert_int_equal(got[i], (char)((heard + i) / PIECE));
    heard += f.size;
  }
  assert_int_equal(heard, total);
  assert_in_range(frames, 1, total / PIECE / 10);
  assert_false(s->ops->unsent(s));
  s->ops->close(s);
  close(peer);
  td_free(data);
  td_free(got);
}

static size_t up_to(int most, size_t left) {
  size_t n = (size_t)(rand() % (most + 1));
  return TD_MIN(n, left);
}

/* Frames of every kind and size, cut anywhere, into vectors of any size. */
static void frames_come_in_any_pieces(void **state) {
  enum { FRAMES = 60, MOST = 20000 };
  char *sent = td_malloc(FRAMES * (MOST + 2 * sizeof(frame))), *in = td_malloc(FRAMES * MOST), lent[1000];
  for (int i = 0; i < 1000; i++) lent[i] = (char)(i * 3);
  srand(7);
  for (int round = 0; round < 40; round++) {
    int peer;
    td_stream *s = with_bare_peer(&peer);
    size_t size = 0, expected = 0, got = 0, at = 0;
    char *want = td_malloc(FRAMES * MOST);
    frame f = {HELLO, 1, 0};
    memcpy(sent, &f, sizeof f);
    size += sizeof f;
    for (int i = 0; i < FRAMES; i++) {
      static const uint32_t most[] = {1, 40, 5000, MOST};
      int kind = rand() % 8;
      f = kind == 0   ? (frame){TAKEN, 0, 0}
          : kind == 1 ? (frame){LENT, sizeof lent, (uintptr_t)lent}
                      : (frame){BYTES, (uint32_t)rand() % most[rand() % 4], 0};
      memcpy(sent + size, &f, sizeof f);
      size += sizeof f;
      for (uint32_t k = 0; k < f.size; k++) want[expected + k] = f.kind == LENT ? lent[k] : (char)rand();
      if (f.kind == BYTES) memcpy(sent + size, want + expected, f.size);
      if (f.kind == BYTES) size += f.size;
      expected += f.size;
    }
    while (got < expected) {
      size_t n = up_to(round % 2 ? 60 : 70000, size - at), a = up_to(30000, expected - got);
      size_t b = up_to(900, expected - got - a);
      ssize_t put = send(peer, sent + at, n, MSG_DONTWAIT);
      if (put > 0) at += (size_t)put;
      ssize_t r = s->ops->readv(s, (struct iovec[]){{in + got, a}, {in + got + a, b}}, 2);
      if (r < 0) assert_int_equal(r, -EAGAIN);
      if (a + b && !r) fail();
      if (r > 0) got += (size_t)r;
      while (recv(peer, &f, sizeof f, MSG_DONTWAIT) > 0) assert_true(f.kind == HELLO || f.kind == TAKEN);
    }
    assert_memory_equal(in, want, expected);
    assert_int_equal(send(peer, sent + at, size - at, 0), size - at); /* frames of nothing */
    shutdown(peer, SHUT_WR);
    assert_int_equal(s->ops->readv(s, &(struct iovec){in, 100}, 1), 0);
    s->ops->close(s);
    close(peer);
    td_free(want);
  }
  td_free(sent);
  td_free(in);
}

/* A peer that closes after lending may have freed the memory: what was copied is not trusted. */
static void distrusts_what_a_closed_peer_lent(void **state) {
  int peer;
  td_stream *s = with_bare_peer(&peer);
  char *data = td_calloc(1, LARGE), *in = td_malloc(LARGE);
  say(peer, HELLO, 1, NULL);
  say(peer, LENT, LARGE, data);
  close(peer);
  assert_in_range(-s->ops->readv(s, &(struct iovec){in, LARGE}, 1), 1, 4095);
  s->ops->close(s);
  td_free(data);
  td_free(in);
}

static void expect_broken(const frame *frames, int count) {
  int peer;
  char in[64];
  td_stream *s = with_bare_peer(&peer);
  assert_int_equal(write(peer, frames, (size_t)count * sizeof *frames), (size_t)count * sizeof *frames);
  shutdown(peer, SHUT_WR);
  ssize_t n = s->ops->readv(s, &(struct iovec){in, sizeof in}, 1);
  assert_true(n < 0 && n != -EAGAIN);
  s->ops->close(s);
  close(peer);
}

static void broken_frames_end_the_stream(void **state) {
  const frame cases[][2] = {
      {{BYTES, 8, 0}, {BYTES, 8, 0}},                                        /* no hello */
      {{HELLO, 1, 0}, {HELLO, 1, 0}},                                        /* twice */
      {{HELLO, 1, 0}, {TAKEN, 1, 0}},                                        /* nothing was lent */
      {{HELLO, 1, 0}, {99, 1, 0}},                                           /* unknown */
      {{HELLO, 1, 0}, {LENT, 100, 1}},                                       /* nothing lies there */
      {{HELLO, 1, 0}, {LENT, 100, ~0ull}}, {{HELLO, 1, 0}, {BYTES, 100, 0}}, /* cut short */
  };
  for (size_t i = 0; i < TD_COUNT(cases); i++) expect_broken(cases[i], 2);
}

static void strangers_are_no_neighbours(void **state) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(1)};
  td_address a = {.size = sizeof in};
  memcpy(&a.storage, &in, sizeof in);
  assert_null(td_neighbour_connect(&a, 1)); /* nobody listens */
  in.sin_addr.s_addr = htonl(0xc0000201);   /* 192.0.2.1: no address of this machine */
  memcpy(&a.storage, &in, sizeof in);
  assert_null(td_neighbour_connect(&a, 1));
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
      {"carries_bytes (neighbours)", carries_bytes, setup_neighbours, teardown, NULL},
      {"ends_are_seen (tcp)", ends_are_seen, setup_tcp, teardown, NULL},
      {"ends_are_seen (unix)", ends_are_seen, setup_unix, teardown, NULL},
      {"ends_are_seen (neighbours)", ends_are_seen, setup_neighbours, teardown, NULL},
      cmocka_unit_test(lends_until_taken),
      cmocka_unit_test(lends_nothing_to_who_cannot_read),
      cmocka_unit_test(gathers_what_is_small),
      cmocka_unit_test(frames_come_in_any_pieces),
      cmocka_unit_test(distrusts_what_a_closed_peer_lent),
      cmocka_unit_test(broken_frames_end_the_stream),
      cmocka_unit_test(strangers_are_no_neighbours),
      cmocka_unit_test_setup_teardown(tcp_does_not_delay, setup_tcp, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

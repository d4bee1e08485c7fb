#include "rpc/neighbour.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"

/* What travels over the socket: frames, each a head and, for BYTES, `size` bytes. Both ends are one machine's: host
 * byte order. */
typedef enum frame_kind {
  FRAME_HELLO = 1, /* first; size 1: you may lend me memory, 0: I cannot read it */
  FRAME_BYTES,
  FRAME_LENT,  /* the stream goes on with `size` bytes at `address` of the sender's memory */
  FRAME_TAKEN, /* `size` of the lent bytes were copied: the oldest first */
} frame_kind;

typedef struct frame {
  uint32_t kind, size;
  uint64_t address;
} frame;

enum {
  BUFFER = 64 * 1024,   /* of the socket's bytes, either way */
  LEND_MIN = 32 * 1024, /* smaller pieces are cheaper through the socket */
  LEND_MAX = 64 << 20,
  LENT_PIECES = 16,
  AHEAD = 4 << 20, /* the peer should find more to copy while it tells us what it copied */
};

typedef struct buffer {
  size_t begin, end;
  char bytes[BUFFER];
} buffer;

typedef struct neighbour {
  td_stream base;
  pid_t peer;
  bool greeted, may_lend; /* the peer's hello came; it can read our memory */
  /* Positions in the stream of what is written: described to the peer; told to the caller as taken. */
  uint64_t described, told;
  struct {
    uint64_t begin, end;
  } lent[LENT_PIECES]; /* a ring; what the peer has not yet copied */
  unsigned lent_first, lent_count;
  frame in_frame; /* being read; size: what is left of it */
  uint64_t owed;  /* bytes copied from the peer that it was not told yet */
  buffer out, in;
} neighbour;

/* ---- out -------------------------------------------------------------------------------------------------- */

static size_t out_room(const neighbour *n) { return BUFFER - n->out.end; }

static void put_frame(neighbour *n, frame_kind kind, size_t size, const void *address) {
  frame f = {.kind = kind, .size = (uint32_t)size, .address = (uintptr_t)address};
  memcpy(n->out.bytes + n->out.end, &f, sizeof f);
  n->out.end += sizeof f;
}

/* Sends what lies in the buffer, as far as the socket has room. 0, or a negative errno. */
static int send_out(neighbour *n) {
  for (;;) {
    if (n->out.begin == n->out.end) {
      n->out.begin = n->out.end = 0;
      if (!n->owed) return 0;
    }
    while (n->owed && out_room(n) >= sizeof(frame)) {
      size_t size = (size_t)TD_MIN(n->owed, (uint64_t)UINT32_MAX);
      put_frame(n, FRAME_TAKEN, size, NULL);
      n->owed -= size;
    }
    ssize_t sent =
        send(n->base.fd, n->out.bytes + n->out.begin, n->out.end - n->out.begin, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      n->out.begin += (size_t)sent;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return 0;
    } else if (errno != EINTR) {
      return -errno;
    }
  }
}

/* Describes a front part of the piece to the peer; its size, 0 when there is no room. */
static size_t describe(neighbour *n, const char *data, size_t size) {
  if (size >= LEND_MIN && n->may_lend) {
    if (n->lent_count == LENT_PIECES || out_room(n) < sizeof(frame)) return 0;
    size = TD_MIN(size, (size_t)LEND_MAX);
    put_frame(n, FRAME_LENT, size, data);
    unsigned last = (n->lent_first + n->lent_count++) % LENT_PIECES;
    n->lent[last].begin = n->described;
    n->lent[last].end = n->described + size;
  } else {
    if (out_room(n) <= sizeof(frame)) return 0;
    size = TD_MIN(size, out_room(n) - sizeof(frame));
    put_frame(n, FRAME_BYTES, size, NULL);
    memcpy(n->out.bytes + n->out.end, data, size);
    n->out.end += size;
  }
  n->described += size;
  return size;
}

static bool neighbour_unsent(const td_stream *s) {
  const neighbour *n = TD_CONTAINER_OF(s, neighbour, base);
  return n->out.begin < n->out.end;
}

static ssize_t neighbour_writev(td_stream *s, const struct iovec *iov, int count) {
  neighbour *n = TD_CONTAINER_OF(s, neighbour, base);
  int rc = send_out(n);
  if (rc) return rc;
  uint64_t known = n->described - n->told; /* of these vectors, from an earlier call */
  for (int i = 0; i < count; i++) {
    size_t skip = (size_t)TD_MIN(known, (uint64_t)iov[i].iov_len), at = skip;
    known -= skip;
    while (at < iov[i].iov_len) {
      size_t size = describe(n, (const char *)iov[i].iov_base + at, iov[i].iov_len - at);
      if (!size) break;
      at += size;
    }
    if (at < iov[i].iov_len) break;
  }
  rc = send_out(n);
  if (rc) return rc;
  if (!count) return neighbour_unsent(s) ? -EAGAIN : 0;
  uint64_t taken = n->lent_count ? n->lent[n->lent_first].begin : n->described;
  if (taken == n->told) return n->lent_count ? -EBUSY : -EAGAIN;
  ssize_t size = (ssize_t)(taken - n->told);
  n->told = taken;
  return size;
}

/* ---- in --------------------------------------------------------------------------------------------------- */

/* The peer has copied `size` lent bytes. */
static bool give_back(neighbour *n, uint64_t size) {
  while (size && n->lent_count) {
    uint64_t part = TD_MIN(size, n->lent[n->lent_first].end - n->lent[n->lent_first].begin);
    n->lent[n->lent_first].begin += part;
    size -= part;
    if (n->lent[n->lent_first].begin < n->lent[n->lent_first].end) continue;
    n->lent_first = (n->lent_first + 1) % LENT_PIECES;
    n->lent_count--;
  }
  return !size;
}

/* Reads from the socket into the buffer. > 0, 0 at the end, or a negative errno. */
static ssize_t fill(neighbour *n) {
  buffer *b = &n->in;
  memmove(b->bytes, b->bytes + b->begin, b->end - b->begin);
  b->end -= b->begin;
  b->begin = 0;
  for (;;) {
    ssize_t got = recv(n->base.fd, b->bytes + b->end, BUFFER - b->end, MSG_DONTWAIT);
    if (got > 0) b->end += (size_t)got;
    if (got >= 0) return got;
    if (errno != EINTR) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
  }
}

/* Takes the next frame's head from the buffer. 1, 0 if it is not all there, or a negative errno. */
static int next_frame(neighbour *n) {
  frame *f = &n->in_frame;
  if (n->in.end - n->in.begin < sizeof *f) return 0;
  memcpy(f, n->in.bytes + n->in.begin, sizeof *f);
  n->in.begin += sizeof *f;
  if ((f->kind == FRAME_HELLO) == n->greeted) return -EPROTO;
  switch (f->kind) {
    case FRAME_HELLO:
      n->greeted = true;
      n->may_lend = f->size == 1;
      break;
    case FRAME_TAKEN:
      if (!give_back(n, f->size)) return -EPROTO;
      break;
    case FRAME_BYTES:
    case FRAME_LENT:
      return 1;
    default:
      return -EPROTO;
  }
  f->size = 0;
  return 1;
}

/* Copies the frame's next bytes to `to`. > 0, 0 when none are there, or a negative errno. */
static ssize_t take(neighbour *n, void *to, size_t room) {
  frame *f = &n->in_frame;
  size_t size = TD_MIN(room, (size_t)f->size);
  if (f->kind == FRAME_BYTES) {
    size = TD_MIN(size, n->in.end - n->in.begin);
    memcpy(to, n->in.bytes + n->in.begin, size);
    n->in.begin += size;
  } else {
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)f->address, size};
    ssize_t got = process_vm_readv(n->peer, &local, 1, &remote, 1, 0);
    if (got <= 0) return got ? -errno : -EFAULT;
    size = (size_t)got;
    f->address += size;
    n->owed += size;
  }
  f->size -= (uint32_t)size;
  return (ssize_t)size;
}

/* Copies what comes next to `to`. > 0; 0 when nothing is there without another look at the socket; a negative errno. */
static ssize_t take_next(neighbour *n, void *to, size_t room) {
  while (!n->in_frame.size) {
    int rc = next_frame(n);
    if (rc <= 0) return rc;
  }
  return take(n, to, room);
}

/* Reads until the vectors are full, nothing is there, or the socket's bytes are followed by lent ones: whoever reads
 * may now know a better place for those. */
static ssize_t read_frames(neighbour *n, const struct iovec *iov, int count) {
  size_t total = 0, at = 0;
  bool lent = true; /* whether the last bytes were */
  while (count) {
    if (at == iov->iov_len) {
      iov++, count--, at = 0;
      continue;
    }
    if (!lent && n->in_frame.size && n->in_frame.kind == FRAME_LENT) break;
    ssize_t got = take_next(n, (char *)iov->iov_base + at, iov->iov_len - at);
    if (got < 0) return got;
    lent = n->in_frame.kind == FRAME_LENT;
    at += (size_t)got;
    total += (size_t)got;
    if (got) continue;
    if (total) break;
    got = fill(n);
    if (!got) return n->in_frame.size || n->in.begin < n->in.end ? -ECONNRESET : 0;
    if (got < 0) return got;
  }
  return (ssize_t)total;
}

static ssize_t neighbour_readv(td_stream *s, const struct iovec *iov, int count) {
  neighbour *n = TD_CONTAINER_OF(s, neighbour, base);
  ssize_t got = read_frames(n, iov, count);
  if (!n->owed) return got;
  /* The peer closes before it frees what it lent: bytes are good if it is still there to hear that they were copied. */
  int rc = send_out(n);
  return rc ? rc : got;
}

static bool neighbour_buffered(const td_stream *s) {
  const neighbour *n = TD_CONTAINER_OF(s, neighbour, base);
  if (n->in_frame.size) return n->in_frame.kind == FRAME_LENT || n->in.begin < n->in.end;
  return n->in.end - n->in.begin >= sizeof(frame);
}

static void neighbour_finish(td_stream *s) { shutdown(s->fd, SHUT_WR); }

static void neighbour_close(td_stream *s) {
  close(s->fd);
  td_free(TD_CONTAINER_OF(s, neighbour, base));
}

static const td_stream_ops NEIGHBOUR_OPS = {.readv = neighbour_readv,
                                            .writev = neighbour_writev,
                                            .buffered = neighbour_buffered,
                                            .unsent = neighbour_unsent,
                                            .finish = neighbour_finish,
                                            .close = neighbour_close};

/* ---- who the peer is -------------------------------------------------------------------------------------- */

/* The process at the other end, if it is one of our own user's and visible; 0 if not. */
static pid_t own_users_peer(int fd) {
  struct ucred c = {0};
  socklen_t size = sizeof c;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &size)) return 0;
  return c.uid == geteuid() ? c.pid : 0;
}

/* Asks for a byte at address 0: who may read learns that nothing lies there. */
static bool may_read(pid_t pid) {
  char byte;
  struct iovec local = {&byte, 1}, remote = {NULL, 1};
  return process_vm_readv(pid, &local, 1, &remote, 1, 0) < 0 && errno == EFAULT;
}

td_stream *td_neighbour_stream_create(int fd) {
  pid_t peer = own_users_peer(fd);
  if (!peer) {
    close(fd);
    return NULL;
  }
  neighbour *n = td_malloc(sizeof *n);
  memset(n, 0, offsetof(neighbour, out));
  n->out.begin = n->out.end = n->in.begin = n->in.end = 0;
  n->base.ops = &NEIGHBOUR_OPS;
  n->base.fd = fd;
  n->base.ahead = AHEAD;
  n->peer = peer;
  put_frame(n, FRAME_HELLO, may_read(peer), NULL);
  td_socket_tune(fd);
  return &n->base;
}

/* ---- addresses -------------------------------------------------------------------------------------------- */

static void abstract_address(const struct sockaddr *ip, td_address *out) {
  struct sockaddr_un *u = (struct sockaddr_un *)&out->storage;
  char *name = td_address_name(ip);
  memset(out, 0, sizeof *out);
  u->sun_family = AF_UNIX;
  int size = snprintf(u->sun_path + 1, sizeof u->sun_path - 1, "tensord/1/%s", name); /* at most 70 bytes */
  out->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
  td_free(name);
}

bool td_neighbour_address(const td_address *bound, td_address *out) {
  if (bound->storage.ss_family != AF_INET && bound->storage.ss_family != AF_INET6) return false;
  abstract_address((const struct sockaddr *)&bound->storage, out);
  return true;
}

/* The address as the server may have bound it, most exact first: itself, any of its family, any. False: no more. */
static bool bound_as(const td_address *address, int i, td_address *out) {
  if (i == 0) return td_neighbour_address(address, out);
  int port = td_address_port((const struct sockaddr *)&address->storage);
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  bool is_v4 = address->storage.ss_family == AF_INET;
  if (i > 2 - !is_v4) return false;
  abstract_address(is_v4 && i == 1 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6, out);
  return true;
}

/* Whether the address is one of this machine's: what would be sent there comes from there. Sends nothing. */
static bool is_own(const td_address *address) {
  struct sockaddr_storage own = {0};
  socklen_t size = sizeof own;
  int fd = socket(address->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool known = !connect(fd, (const struct sockaddr *)&address->storage, address->size) &&
               !getsockname(fd, (struct sockaddr *)&own, &size);
  close(fd);
  if (!known || own.ss_family != address->storage.ss_family) return false;
  if (own.ss_family == AF_INET)
    return ((struct sockaddr_in *)&own)->sin_addr.s_addr == ((struct sockaddr_in *)&address->storage)->sin_addr.s_addr;
  return !memcmp(&((struct sockaddr_in6 *)&own)->sin6_addr, &((struct sockaddr_in6 *)&address->storage)->sin6_addr,
                 sizeof(struct in6_addr));
}

static int connect_to(const td_address *a) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (!connect(fd, (const struct sockaddr *)&a->storage, a->size)) {
    pid_t peer = own_users_peer(fd);
    if (peer && may_read(peer)) return fd;
  }
  close(fd);
  return -1;
}

td_stream *td_neighbour_connect(const td_address *address) {
  td_address name;
  if ((address->storage.ss_family != AF_INET && address->storage.ss_family != AF_INET6) || !is_own(address))
    return NULL;
  for (int i = 0; bound_as(address, i, &name); i++) {
    int fd = connect_to(&name);
    if (fd >= 0) return td_neighbour_stream_create(fd);
  }
  return NULL;
}

#include "rpc/neighbour.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdatomic.h>
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
  FRAME_HELLO = 1, /* first; size 1: you may lend me memory, 0: I cannot read it; address: td_neighbour.memory + 1 */
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
  GATHER_HEADS = 32,
  GATHER_IOV = 128,
  DIRECT_MIN = 4096, /* bytes that are worth a read of their own */
  BEHIND_DIRECT = 1024,
  AHEAD = 4 << 20, /* the peer should find more to copy while it tells us what it copied */
};

typedef struct buffer {
  size_t begin, end;
  char bytes[BUFFER];
} buffer;

typedef struct neighbour {
  td_stream base;
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

static void put_frame(neighbour *n, frame_kind kind, size_t size, uint64_t address) {
  frame f = {.kind = kind, .size = (uint32_t)size, .address = address};
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
      put_frame(n, FRAME_TAKEN, size, 0);
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

/* One write: heads of frames, and the caller's bytes from where they lie. What the socket does not take is copied into
 * the buffer, which is empty and can hold all of it. */
typedef struct gathered {
  int head_count, count;
  size_t size;
  frame *open; /* the BYTES frame that the next piece continues */
  frame heads[GATHER_HEADS];
  struct iovec iov[GATHER_IOV];
} gathered;

static void gather(gathered *g, const void *data, size_t size) {
  g->iov[g->count++] = (struct iovec){(void *)data, size};
  g->size += size;
}

static frame *gather_head(gathered *g, frame_kind kind, const void *address) {
  frame *f = &g->heads[g->head_count++];
  *f = (frame){.kind = kind, .address = (uintptr_t)address};
  gather(g, f, sizeof *f);
  return f;
}

/* Describes a front part of the piece to the peer; its size, 0 when there is no room. */
static size_t describe(neighbour *n, gathered *g, const char *data, size_t size) {
  if (g->head_count == GATHER_HEADS || g->count > GATHER_IOV - 2 || g->size + sizeof(frame) >= BUFFER) return 0;
  if (size >= LEND_MIN && n->may_lend) {
    if (n->lent_count == LENT_PIECES) return 0;
    size = TD_MIN(size, (size_t)LEND_MAX);
    gather_head(g, FRAME_LENT, data)->size = (uint32_t)size;
    g->open = NULL;
    unsigned last = (n->lent_first + n->lent_count++) % LENT_PIECES;
    n->lent[last].begin = n->described;
    n->lent[last].end = n->described + size;
  } else {
    if (!g->open) g->open = gather_head(g, FRAME_BYTES, NULL);
    size = TD_MIN(size, BUFFER - g->size);
    gather(g, data, size);
    g->open->size += (uint32_t)size;
  }
  n->described += size;
  return size;
}

/* Describes what the vectors hold behind their first `known` bytes, as far as there is room. */
static void describe_all(neighbour *n, gathered *g, uint64_t known, const struct iovec *iov, int count) {
  g->head_count = g->count = 0;
  g->size = 0;
  g->open = NULL;
  for (int i = 0; i < count; i++) {
    size_t at = (size_t)TD_MIN(known, (uint64_t)iov[i].iov_len);
    known -= at;
    while (at < iov[i].iov_len) {
      size_t size = describe(n, g, (const char *)iov[i].iov_base + at, iov[i].iov_len - at);
      if (!size) return;
      at += size;
    }
  }
}

/* 0, or a negative errno. */
static int send_gathered(neighbour *n, gathered *g) {
  struct msghdr m = {.msg_iov = g->iov, .msg_iovlen = (size_t)g->count};
  ssize_t sent;
  do sent = sendmsg(n->base.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return -errno;
  size_t skip = sent > 0 ? (size_t)sent : 0;
  if (skip == g->size) return 0;
  for (int i = 0; i < g->count; i++) {
    size_t done = TD_MIN(skip, g->iov[i].iov_len), left = g->iov[i].iov_len - done;
    skip -= done;
    memcpy(n->out.bytes + n->out.end, (const char *)g->iov[i].iov_base + done, left);
    n->out.end += left;
  }
  return 0;
}

static bool neighbour_unsent(const td_stream *s) {
  const neighbour *n = TD_CONTAINER_OF(s, neighbour, base);
  return n->out.begin < n->out.end;
}

static ssize_t neighbour_writev(td_stream *s, const struct iovec *iov, int count) {
  neighbour *n = TD_CONTAINER_OF(s, neighbour, base);
  gathered g;
  int rc = send_out(n);
  while (!rc && !neighbour_unsent(s)) {
    describe_all(n, &g, n->described - n->told, iov, count); /* an earlier call knew a part of these vectors */
    if (!g.count) break;
    rc = send_gathered(n, &g);
  }
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
      n->base.neighbour.memory = f->address <= INT_MAX ? (int)f->address - 1 : -1;
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
    ssize_t got = process_vm_readv(n->base.neighbour.pid, &local, 1, &remote, 1, 0);
    if (got <= 0) return got ? -errno : -EFAULT;
    size = (size_t)got;
    f->address += size;
    n->owed += size;
  }
  f->size -= (uint32_t)size;
  return (ssize_t)size;
}

/* Finds the frame that the stream goes on with, as far as the buffer tells. 0, or a negative errno. */
static int find_frame(neighbour *n) {
  int rc = 1;
  while (rc > 0 && !n->in_frame.size) rc = next_frame(n);
  return TD_MIN(rc, 0);
}

/* One read from the socket into two places. > 0, 0 at the end, or a negative errno. */
static ssize_t receive(const neighbour *n, void *first, size_t first_size, void *second, size_t second_size) {
  struct iovec iov[2] = {{first, first_size}, {second, second_size}};
  struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
  for (;;) {
    ssize_t got = recvmsg(n->base.fd, &m, MSG_DONTWAIT);
    if (got >= 0) return got;
    if (errno != EINTR) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
  }
}

/* Within a BYTES frame of which the buffer holds nothing: reads on into `to`, and what follows the frame into the
 * buffer. As take(), but 0 at the end. */
static ssize_t read_on(neighbour *n, void *to, size_t room) {
  frame *f = &n->in_frame;
  buffer *b = &n->in;
  size_t direct = TD_MIN(room, (size_t)f->size);
  b->begin = b->end = 0;
  ssize_t got = receive(n, to, direct, b->bytes, direct < DIRECT_MIN ? BUFFER : BEHIND_DIRECT);
  if (got <= 0) return got;
  direct = TD_MIN(direct, (size_t)got);
  b->end = (size_t)got - direct;
  f->size -= (uint32_t)direct;
  return (ssize_t)direct;
}

/* Between frames, of which the buffer holds a part of a head at most: reads the head, and into `to` what is most likely
 * behind it. Bytes that do not belong there move to the buffer. As read_on(), but also 0 when only a head came: *ended
 * tells. */
static ssize_t read_head(neighbour *n, void *to, size_t room, bool *ended) {
  buffer *b = &n->in;
  memmove(b->bytes, b->bytes + b->begin, b->end - b->begin);
  b->end -= b->begin;
  b->begin = 0;
  size_t head = sizeof(frame) - b->end;
  ssize_t got = receive(n, b->bytes + b->end, head, to, TD_MIN(room, BUFFER - sizeof(frame)));
  *ended = !got;
  if (got <= 0) return got;
  head = TD_MIN(head, (size_t)got);
  b->end += head;
  size_t direct = 0, behind = (size_t)got - head;
  int rc = next_frame(n);
  if (rc < 0) return rc;
  if (rc && n->in_frame.kind == FRAME_BYTES) {
    direct = TD_MIN(behind, (size_t)n->in_frame.size);
    n->in_frame.size -= (uint32_t)direct;
  }
  memcpy(b->bytes + b->end, (char *)to + direct, behind - direct);
  b->end += behind - direct;
  return (ssize_t)direct;
}

/* Looks at the socket. > 0: bytes that are at `to`; 0: look at the frames again, or the stream has *ended; a negative
 * errno. */
static ssize_t look(neighbour *n, void *to, size_t room, bool *ended) {
  if (!n->in_frame.size) return read_head(n, to, room, ended);
  ssize_t got = read_on(n, to, room);
  *ended = !got;
  return got;
}

/* Reads until the vectors are full, nothing is there, or the socket's bytes are followed by lent ones: whoever reads
 * may now know a better place for those. */
static ssize_t read_frames(neighbour *n, const struct iovec *iov, int count) {
  const frame *f = &n->in_frame;
  size_t total = 0, at = 0;
  bool lent = true; /* whether the last bytes were */
  while (count) {
    if (at == iov->iov_len) {
      iov++, count--, at = 0;
      continue;
    }
    int rc = find_frame(n);
    if (rc) return rc;
    if (!lent && f->size && f->kind == FRAME_LENT) break;
    char *to = (char *)iov->iov_base + at;
    size_t room = iov->iov_len - at;
    ssize_t got = f->size ? take(n, to, room) : 0;
    if (!got) {
      bool follows = TD_MIN(room, (size_t)f->size) >= DIRECT_MIN; /* what it was written with */
      if (total && !follows) break;
      bool ended = false;
      got = look(n, to, room, &ended);
      if (total && (got == -EAGAIN || ended)) break;
      if (ended) return f->size || n->in.begin < n->in.end ? -ECONNRESET : 0;
    }
    if (got < 0) return got;
    if (got) lent = f->kind == FRAME_LENT;
    at += (size_t)got;
    total += (size_t)got;
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

td_stream *td_neighbour_stream_create(int fd, int memory) {
  static atomic_uint_fast64_t connections;
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
  n->base.neighbour = (td_neighbour){.pid = peer, .memory = -1, .connection = atomic_fetch_add(&connections, 1) + 1};
  put_frame(n, FRAME_HELLO, may_read(peer), (uint64_t)memory + 1);
  td_socket_tune(fd);
  return &n->base;
}

/* ---- addresses -------------------------------------------------------------------------------------------- */

static void abstract_address(const struct sockaddr *ip, int lane, td_address *out) {
  struct sockaddr_un *u = (struct sockaddr_un *)&out->storage;
  char *name = td_address_name(ip);
  memset(out, 0, sizeof *out);
  u->sun_family = AF_UNIX;
  int size = snprintf(u->sun_path + 1, sizeof u->sun_path - 1, "tensord/1/%s", name); /* 81 bytes with a lane */
  if (lane) size += snprintf(u->sun_path + 1 + size, sizeof u->sun_path - 1 - (size_t)size, "/%d", lane);
  out->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
  td_free(name);
}

bool td_neighbour_address(const td_address *bound, int lane, td_address *out) {
  if (bound->storage.ss_family != AF_INET && bound->storage.ss_family != AF_INET6) return false;
  abstract_address((const struct sockaddr *)&bound->storage, lane, out);
  return true;
}

/* The address as the server may have bound it, most exact first: itself, any of its family, any. False: no more. */
static bool bound_as(const td_address *address, int i, int lane, td_address *out) {
  if (i == 0) return td_neighbour_address(address, lane, out);
  int port = td_address_port((const struct sockaddr *)&address->storage);
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  bool is_v4 = address->storage.ss_family == AF_INET;
  if (i > 2 - !is_v4) return false;
  abstract_address(is_v4 && i == 1 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6, lane, out);
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

td_stream *td_neighbour_connect(const td_address *address, int lane) {
  td_address name;
  if ((address->storage.ss_family != AF_INET && address->storage.ss_family != AF_INET6) || !is_own(address))
    return NULL;
  for (int i = 0; bound_as(address, i, lane, &name); i++) {
    int fd = connect_to(&name);
    if (fd >= 0) return td_neighbour_stream_create(fd, -1);
  }
  return lane ? td_neighbour_connect(address, 0) : NULL;
}

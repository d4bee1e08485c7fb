/* A byte stream under HTTP/2: the seam below connections. Loop thread only; never blocks. */
#ifndef TD_RPC_STREAM_H_
#define TD_RPC_STREAM_H_

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/status.h"
#include "rpc/rpc.h"

typedef struct td_stream td_stream;

typedef struct td_stream_ops {
  /* Reads at most what the vectors hold, in order. > 0: bytes read; 0: the peer has closed; -EAGAIN: nothing now;
   * any other negative errno: broken. */
  ssize_t (*readv)(td_stream *s, const struct iovec *iov, int count);
  /* Writes a front part of the vectors, whose bytes stay where and as they are until they were taken. > 0: bytes taken;
   * -EAGAIN: no room now; -EBUSY: none before readv() has heard of the peer again; any other negative errno: broken. */
  ssize_t (*writev)(td_stream *s, const struct iovec *iov, int count);
  /* Whether readv() would return bytes that the descriptor does not announce. NULL: never. */
  bool (*buffered)(const td_stream *s);
  /* Whether the stream has bytes of its own to send, for which a writev() of nothing is due when there is room. NULL:
   * never. */
  bool (*unsent)(const td_stream *s);
  /* Says that nothing more will be written; reading goes on. Optional. */
  void (*finish)(td_stream *s);
  /* Closes the descriptor and frees the stream. */
  void (*close)(td_stream *s);
} td_stream_ops;

struct td_stream {
  const td_stream_ops *ops;
  td_neighbour neighbour; /* pid 0: the peer is none */
  int fd;                 /* what to watch; -1: nothing, the owner drives the connection itself */
  size_t ahead;           /* bytes worth offering to writev() at once; 0: as many as a turn may write */
};

/* A connected, non-blocking TCP or unix socket, which passes to the stream. */
td_stream *td_socket_stream_create(int fd);
/* The options every TCP socket gets, listening ones (whose connections inherit them) included. */
void td_socket_tune(int fd);

#endif /* TD_RPC_STREAM_H_ */

/* What passes before nghttp2 sees it: where frames begin and end in the bytes that are read, so that large payloads
 * can be read straight to their place, and whether the peer sends too many that cost us more than it.
 */
#ifndef TD_RPC_FRAMES_H_
#define TD_RPC_FRAMES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
  TD_FRAME_HEAD = 9,
  TD_FRAMES_DATA_KEPT = 32,
  TD_MAX_HEADERS_FRAME = 16 * 1024, /* a client's */
  TD_MAX_HEADER_BYTES = 64 * 1024,  /* of one block, decoded */
  TD_RESET_BURST = 65536,           /* as many as streams: all may be cancelled at once */
  TD_RESET_RATE = 5000,             /* and so many a second */
};

/* How many frames of a kind a peer may still send. */
typedef struct td_bucket {
  uint64_t at_ns;
  uint32_t tokens;
} td_bucket;

typedef struct td_frames {
  bool server;
  uint32_t magic_left; /* of the client's preface, before its first frame */
  /* the current frame: of its payload, `left` bytes are still to come */
  uint32_t left;
  uint8_t type, flags;
  int32_t stream;
  /* a header of which the rest is still to come; nghttp2 has seen none of it */
  unsigned char head[TD_FRAME_HEAD], carried[TD_FRAME_HEAD];
  uint32_t head_size;
  int32_t begun; /* the highest stream that HEADERS named */
  td_bucket control, resets;
  int32_t data[TD_FRAMES_DATA_KEPT]; /* the streams of the latest DATA frames */
  uint32_t data_seen;
} td_frames;

void td_frames_init(td_frames *f, bool server, uint64_t now_ns);

/* Follows the next `size` bytes, and says which nghttp2 is to have: returns how many spans (0 to 2, valid until the
 * next call), or -1 if the peer floods us, or sends too large headers: `type` and `left` tell of what frame.
 *
 * A RST_STREAM for a stream that was never opened, behind others that were, is turned into a frame that nothing
 * heeds: gRPC's own clients send that (they number a call when it starts, and write the reset of one that is cancelled
 * at once before its headers, which then never come), and all other calls of the connection would die of it. */
int td_frames_follow(td_frames *f, unsigned char *bytes, size_t size, uint64_t now_ns, struct iovec spans[2]);

/* `size` bytes of the current payload were read to where they belong. */
void td_frames_skip(td_frames *f, size_t size);

#endif /* TD_RPC_FRAMES_H_ */

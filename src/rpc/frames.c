#include "rpc/frames.h"

#include <nghttp2/nghttp2.h>
#include <string.h>

#include "base/mem.h"

enum {
  MAGIC = 24,
  CONTROL_BURST = 10000, /* frames that do nothing, at once and a second */
  CONTROL_RATE = 2000,
  UNHEEDED = 0xfa, /* a type that no frame has: such are ignored (RFC 9113, 4.1) */
};

void td_frames_init(td_frames *f, bool server, uint64_t now_ns) {
  *f = (td_frames){.server = server,
                   .magic_left = server ? MAGIC : 0,
                   .control = {now_ns, CONTROL_BURST},
                   .resets = {now_ns, TD_RESET_BURST}};
}

static bool spend(td_bucket *b, uint32_t burst, uint32_t rate, uint64_t now_ns) {
  if (!b->tokens) {
    uint64_t earned = (now_ns - b->at_ns) / (1000000000u / rate);
    b->at_ns = now_ns;
    b->tokens = (uint32_t)TD_MIN(earned, (uint64_t)burst);
  }
  if (!b->tokens) return false;
  b->tokens--;
  return true;
}

/* A frame's header is complete: is the peer flooding us? */
static bool is_fair(td_frames *f, uint64_t now_ns) {
  switch (f->type) {
    case NGHTTP2_DATA:
      f->data[f->data_seen++ % TD_FRAMES_DATA_KEPT] = f->stream;
      if (f->left || f->flags & NGHTTP2_FLAG_END_STREAM) return true;
      break;
    case NGHTTP2_HEADERS:
      f->begun = TD_MAX(f->begun, f->stream);
      return f->left <= (f->server ? TD_MAX_HEADERS_FRAME : TD_MAX_HEADER_BYTES); /* servers we chose ourselves */
    case NGHTTP2_CONTINUATION:
      if (f->left > TD_MAX_HEADERS_FRAME) return false;
      break;
    case NGHTTP2_RST_STREAM:
      return spend(&f->resets, TD_RESET_BURST, TD_RESET_RATE, now_ns);
    case NGHTTP2_GOAWAY:
    case NGHTTP2_WINDOW_UPDATE:
      return true;
    default:
      break;
  }
  return spend(&f->control, CONTROL_BURST, CONTROL_RATE, now_ns);
}

static bool resets_what_never_was(const td_frames *f) {
  return f->type == NGHTTP2_RST_STREAM && f->server && f->begun && f->stream > f->begun && f->stream & 1;
}

/* The current frame begins with `h`, which may be changed. */
static bool begin_frame(td_frames *f, unsigned char h[TD_FRAME_HEAD], uint64_t now_ns) {
  f->left = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | h[2];
  f->type = h[3];
  f->flags = h[4];
  f->stream = (int32_t)(((uint32_t)h[5] << 24 | (uint32_t)h[6] << 16 | (uint32_t)h[7] << 8 | h[8]) & INT32_MAX);
  if (resets_what_never_was(f)) h[3] = UNHEEDED;
  return is_fair(f, now_ns);
}

int td_frames_follow(td_frames *f, unsigned char *bytes, size_t size, uint64_t now_ns, struct iovec spans[2]) {
  int count = 0;
  unsigned char *p = bytes, *end = bytes + size;
  if (f->head_size) {
    size_t n = TD_MIN(size, sizeof f->head - f->head_size);
    memcpy(f->head + f->head_size, p, n);
    f->head_size += (uint32_t)n;
    p += n;
    if (f->head_size < sizeof f->head) return 0;
    f->head_size = 0;
    if (!begin_frame(f, f->head, now_ns)) return -1;
    memcpy(f->carried, f->head, sizeof f->head);
    spans[count++] = (struct iovec){f->carried, sizeof f->carried};
  }
  unsigned char *whole = p; /* from here to p nghttp2 may have all */
  while (p < end) {
    uint32_t *left = f->magic_left ? &f->magic_left : &f->left;
    size_t n = TD_MIN((size_t)(end - p), (size_t)*left);
    *left -= (uint32_t)n;
    p += n;
    if (n || f->magic_left) continue;
    if (end - p < TD_FRAME_HEAD) break;
    if (!begin_frame(f, p, now_ns)) return -1;
    p += TD_FRAME_HEAD;
  }
  f->head_size = (uint32_t)(end - p);
  memcpy(f->head, p, f->head_size);
  if (p > whole) spans[count++] = (struct iovec){whole, (size_t)(p - whole)};
  return count;
}

void td_frames_skip(td_frames *f, size_t size) { f->left -= (uint32_t)size; }

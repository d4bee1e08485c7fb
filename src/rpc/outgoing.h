/* Bytes on their way out of a connection: gathered frames, and messages sent from where they lie. */
#ifndef TD_RPC_OUTGOING_H_
#define TD_RPC_OUTGOING_H_

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "rpc/payload.h"

enum { TD_OUT_HEAD = 72, TD_OUT_PREFIX = 5 + TD_OUT_HEAD };

/* One message to send. Outlives its stream until its bytes were written. */
typedef struct td_outgoing td_outgoing;
struct td_outgoing {
  td_outgoing *next;
  td_payload payload;
  size_t segment, offset; /* what comes next */
  size_t left;            /* bytes not yet queued, prefix included */
  unsigned char prefix[TD_OUT_PREFIX], prefix_size, prefix_left;
  bool trailers; /* ends with grpc-status 0 */
  uint64_t end;  /* queue position behind its last borrowed byte */
};

enum {
  TD_OUT_ARENA = 32 * 1024, /* headers and small payloads of one turn */
  TD_OUT_IOV = 128,
  TD_OUT_COPY = 2048,         /* pieces up to this are copied, so that a turn of small calls is one piece */
  TD_OUT_FRAME_SEGMENTS = 32, /* pieces in one frame */
  TD_OUT_FRAME_COPIES = 8 * 1024,
};

/* The bytes that wait to be written, in order. */
typedef struct td_out_queue {
  struct iovec iov[TD_OUT_IOV];
  int head, tail;
  size_t size;              /* bytes waiting */
  uint64_t queued, written; /* positions since the connection began */
  size_t arena_size;
  td_outgoing *unwritten, **unwritten_tail; /* fully queued or given up; freed once written */
  td_outgoing *spare;
  int spare_count;
  char *arena; /* allocated while bytes wait */
} td_out_queue;

void td_out_queue_init(td_out_queue *q);
void td_out_queue_abandon(td_out_queue *q); /* nothing will be written any more: releases what waits */
void td_out_queue_deinit(td_out_queue *q);  /* releases what is left */

/* A message with (gRPC) or without its 5-byte prefix; takes the payload. */
td_outgoing *td_outgoing_create(td_out_queue *q, td_payload *payload, bool prefix);
/* A gRPC message that begins with `head`, at most TD_OUT_HEAD bytes, which are copied. */
td_outgoing *td_outgoing_create_headed(td_out_queue *q, td_str head, td_payload *payload);
/* The stream needs it no more: freed once what is queued of it was written. */
void td_outgoing_end(td_out_queue *q, td_outgoing *o);
/* Takes the payload back if none of the message was queued. */
bool td_outgoing_recover(td_outgoing *o, td_payload *out);
/* Bytes of the next DATA frame of at most `max`. */
size_t td_outgoing_frame(const td_outgoing *o, size_t max);

/* Whether a frame of td_outgoing_frame() size fits now. */
bool td_out_queue_has_room(const td_out_queue *q);
/* Copies a front part of `data` that fits; returns its size, 0 when there is no room. */
size_t td_out_queue_copy(td_out_queue *q, const void *data, size_t size);
/* Queues the next `size` bytes of the message. There is room. */
void td_out_queue_message(td_out_queue *q, td_outgoing *o, size_t size);
/* The front, at most `budget` bytes of it, for writev; the count. The last vector may be a copy that is cut. */
int td_out_queue_front(const td_out_queue *q, struct iovec *iov, size_t budget);
void td_out_queue_wrote(td_out_queue *q, size_t size);

#endif /* TD_RPC_OUTGOING_H_ */

/* Message bytes on their way: what is sent, and where what is received lands. */
#ifndef TD_RPC_PAYLOAD_H_
#define TD_RPC_PAYLOAD_H_

#include <stddef.h>

#include "base/status.h"
#include "base/str.h"

/* A message to send: segments in order, written by writev without a copy. A segment keeps its owner until the
 * bytes were written or the call has ended; release(owner) then runs once, on the loop's thread. */
typedef struct td_segment {
  const void *data;
  size_t size;
  void (*release)(void *owner); /* NULL: static bytes */
  void *owner;
} td_segment;

typedef struct td_payload {
  td_segment *segments;
  size_t count, capacity;
  size_t size;                    /* bytes of all segments */
  struct td_payload_chunk *chunk; /* where small copies go; the payload's */
} td_payload;

/* A zeroed td_payload is the empty message. */
void td_payload_add(td_payload *p, const void *data, size_t size, void (*release)(void *owner), void *owner);
/* Copies the bytes; what is small shares memory, and a segment with what was copied just before. */
void td_payload_copy(td_payload *p, const void *data, size_t size);
void td_payload_take(td_payload *p, void *data, size_t size); /* owns `data`, which is td_free()d */
void td_payload_deinit(td_payload *p);                        /* releases every segment */

/* Where a message that arrives goes. The default (a NULL receiver) gathers it in one buffer that grows with the
 * bytes that came, never with a length that was only announced. A receiver of one's own may have bytes land
 * straight in their final place (a tensor's buffer). All members run on the loop's thread, in order:
 * begin, then (bytes | window + landed)*, then destroy. An error ends the call with it. */
typedef struct td_receiver td_receiver;
typedef struct td_receiver_ops {
  /* A message of `size` bytes begins. Optional. */
  td_status (*begin)(td_receiver *r, size_t size);
  /* The next bytes of the message. */
  td_status (*bytes)(td_receiver *r, const void *data, size_t size);
  /* Where the next bytes should land: at most *size of them at the address returned; NULL: through bytes().
   * Optional. */
  void *(*window)(td_receiver *r, size_t *size);
  /* `size` bytes landed at the last window's start. */
  td_status (*landed)(td_receiver *r, size_t size);
  /* The call has ended and no byte will come any more. May be NULL. */
  void (*destroy)(td_receiver *r);
} td_receiver_ops;
struct td_receiver {
  const td_receiver_ops *ops;
};

#endif /* TD_RPC_PAYLOAD_H_ */

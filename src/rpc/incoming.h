/* The message that a stream receives: prefix, then bytes into a receiver or gathered. Loop thread only. */
#ifndef TD_RPC_INCOMING_H_
#define TD_RPC_INCOMING_H_

#include <stdatomic.h>

#include "rpc/inflate.h"
#include "rpc/payload.h"

enum { TD_INCOMING_INLINE = 512, TD_INCOMING_HEAD = 5 };

/* Bytes gathered on behalf of peers, and their cap. */
typedef struct td_gather_budget {
  _Atomic size_t used;
  size_t max;
} td_gather_budget;

typedef struct td_incoming td_incoming;
struct td_incoming {
  /* set by the owner at the start */
  td_receiver *receiver;        /* owned; NULL: gather */
  size_t max;                   /* bytes a message may have */
  td_encoding encoding;         /* what the compressed flag means */
  td_gather_budget *budgets[2]; /* of the connection and of the process; may be NULL */
  /* A stream of messages, gathered: each is handed over when it is whole, and the next one begins. NULL: one message.
   */
  td_status (*message)(td_incoming *in, td_str message);
  /* Of such a stream, optional: who takes what comes behind a message's first TD_INCOMING_HEAD bytes, which are all
   * that message() then gets. Not owned, and used until the message ends. NULL: nobody does. */
  td_receiver *(*divert)(td_incoming *in, td_str head);

  unsigned char prefix[5];
  unsigned char prefix_size;
  bool complete;
  bool began;
  bool is_decided; /* divert() was asked about the message */
  bool is_over;    /* deinitialised: what is still fed is dropped */
  td_receiver *diverted;
  size_t size, got; /* of the message as on the wire */
  char *data;       /* gathered bytes: `small` or heap */
  size_t capacity;
  char *window; /* where the receiver wants the next bytes */
  size_t window_size;
  char small[TD_INCOMING_INLINE];
};

/* Starts over; `small` is left as it is. The owner then sets the first members. */
void td_incoming_init(td_incoming *in);
/* Takes the next bytes of the stream. */
td_status td_incoming_feed(td_incoming *in, const char *data, size_t size) TD_MUST_USE;
/* Where the next bytes may be read to, and how many; NULL: nowhere in particular. Feeding them from there later
 * costs no copy. */
char *td_incoming_window(td_incoming *in, size_t *size);
/* Whether a whole message is there, compressed or not: INTERNAL with the reason if not. Of a stream: whether it ended
 * between messages. */
td_status td_incoming_check(const td_incoming *in) TD_MUST_USE;
bool td_incoming_is_compressed(const td_incoming *in);
/* Hands inflated bytes (owned) to the receiver, or makes them the gathered message. */
td_status td_incoming_replace(td_incoming *in, char *data, size_t size) TD_MUST_USE;
static inline td_str td_incoming_message(const td_incoming *in) { return td_str_n(in->data, in->data ? in->got : 0); }
/* Destroys the receiver and frees the bytes. */
void td_incoming_deinit(td_incoming *in);

#endif /* TD_RPC_INCOMING_H_ */

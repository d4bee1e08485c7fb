/* Small calls that share one HTTP/2 stream of their connection, so that none needs headers, trailers and a stream's
 * bookkeeping of its own. Between servers and channels of this room; to all others calls have streams.
 *
 * A channel that may (td_channel_options.trunks) opens a stream to TD_TRUNK_PATH on each new connection. A server that
 * knows trunks answers with an empty message; until then, and with one that does not know them, calls go the plain way.
 * After it messages are, integers little-endian:
 *
 *   to the server     u32 slot, u8 size of the path, path, the call's message; a path of 0 bytes: the slot's call is
 *                     cancelled
 *   to the channel    u32 slot, u8 grpc-status; if that is 0 the call's message, else u32 size of grpc-message,
 *                     grpc-message, grpc-status-details-bin
 *
 * A slot is its call's until the answer, of which there is exactly one, also to a cancelled call. Deadlines are the
 * channel's affair: it cancels. A message that breaks these rules ends the stream, and with it the calls on it.
 */
#ifndef TD_RPC_TRUNK_H_
#define TD_RPC_TRUNK_H_

#include "base/status.h"
#include "base/str.h"

#define TD_TRUNK_PATH "/tensord.Trunk/Calls"

enum {
  TD_TRUNK_SLOTS = 64,              /* calls at once; more have streams of their own */
  TD_TRUNK_REQUEST_MAX = 64 * 1024, /* bytes of a request that a channel sends this way, */
  TD_TRUNK_MESSAGE_MAX = 1 << 20,   /* and of a message that a server takes */
  TD_TRUNK_PATH_MAX = 64,
  TD_TRUNK_HEAD = 5 + TD_TRUNK_PATH_MAX,
};

typedef struct td_trunk_request {
  uint32_t slot;
  td_str path; /* empty: cancels */
  td_str message;
} td_trunk_request;

typedef struct td_trunk_answer {
  uint32_t slot;
  td_code code;
  td_str text, details; /* of an error */
  td_str message;
} td_trunk_answer;

/* What stands before a request's message; its size. */
size_t td_trunk_request_head(char out[TD_TRUNK_HEAD], uint32_t slot, td_str path);
/* What stands before an answer's message, or before the error's text if `code` is one. */
size_t td_trunk_answer_head(char out[TD_TRUNK_HEAD], uint32_t slot, td_code code, size_t text_size);
/* The parts borrow. INTERNAL: it is none. */
td_status td_trunk_request_parse(td_str bytes, td_trunk_request *out) TD_MUST_USE;
td_status td_trunk_answer_parse(td_str bytes, td_trunk_answer *out) TD_MUST_USE;

#endif /* TD_RPC_TRUNK_H_ */

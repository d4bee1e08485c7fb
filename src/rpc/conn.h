/* An HTTP/2 connection over a byte stream: what server and channel share. nghttp2 does frames, header compression
 * and flow control; this moves the bytes. Loop thread only.
 *
 * Out: frames gather over a turn of the loop and leave in one write; message bytes leave from where they lie.
 * In: one read a turn; the payload of large DATA frames is read straight to where its stream wants it.
 */
#ifndef TD_RPC_CONN_H_
#define TD_RPC_CONN_H_

#include <nghttp2/nghttp2.h>

#include "rpc/incoming.h"
#include "rpc/loop.h"
#include "rpc/outgoing.h"
#include "rpc/stream.h"

typedef struct td_conn td_conn;

/* One stream; embedded in the owner's call. */
typedef struct td_h2_stream td_h2_stream;
struct td_h2_stream {
  td_conn *conn; /* NULL once closed */
  td_h2_stream *previous, *next;
  int32_t id;
  bool discard;                /* what still arrives is dropped */
  td_outgoing *out, *out_last; /* what is sent; of a stream of messages: the first and the last that wait */
  bool streams;                /* sends any number of messages, until td_conn_send_end() */
  bool send_ended, deferred;   /* of such a stream; deferred: nghttp2 waits for more */
  size_t waiting;              /* of such a stream: bytes of the messages that wait to be sent */
  bool reset_after;            /* server: the request's rest is not wanted once the answer was sent */
  bool returned;               /* at closed(): none of the message went out, */
  td_payload unsent;           /* and this is it, the owner's again */
  td_incoming in;
};

/* Error code of td_conn_ops.closed when the whole connection went. */
enum { TD_H2_LOST = 0x10000 };

/* What the owner of a connection does. Members run inside the connection's callbacks: they may submit, answer and
 * reset, and nothing is written before the end of the turn. */
typedef struct td_conn_ops {
  /* Server: a request begins. Returns its stream, which the connection links; NULL refuses it. */
  td_h2_stream *(*begin)(td_conn *c);
  /* One header or trailer. */
  void (*header)(td_h2_stream *s, nghttp2_rcbuf *name, nghttp2_rcbuf *value);
  /* A header block is complete. Optional. */
  void (*headers_end)(td_h2_stream *s);
  /* The message cannot be taken (status consumed); the stream's further bytes are dropped. */
  void (*failed)(td_h2_stream *s, td_status status);
  /* The peer will send no more on this stream. */
  void (*ended)(td_h2_stream *s);
  /* The stream is closed and unlinked; `error`: an HTTP/2 error code or TD_H2_LOST. */
  void (*closed)(td_h2_stream *s, uint32_t error);
  /* Client: the peer's settings are here. Optional. */
  void (*settled)(td_conn *c);
  /* Client: the peer takes no more streams; those above `last` were not processed. Optional. */
  void (*goaway)(td_conn *c, int32_t last, uint32_t error);
  /* The connection is gone (`why` borrowed, OK after an orderly end); its streams are closed next, then the
   * owner's reference ends. */
  void (*lost)(td_conn *c, td_status why);
} td_conn_ops;

typedef struct td_conn_options {
  td_loop *loop;
  const td_conn_ops *ops;
  void *owner;
  const char *peer; /* copied */
  bool server;
  uint32_t max_streams;
  uint64_t keepalive_ns;     /* 0: never ping */
  bool keepalive_idle;       /* also when no stream is open */
  size_t max_buffered_bytes; /* of gathered messages */
} td_conn_options;

/* Takes `io`. The connection starts by itself; the owner has one reference until lost(). */
td_status td_conn_create(const td_conn_options *options, td_stream *io, td_conn **out) TD_MUST_USE;
void td_conn_retain(td_conn *c);
void td_conn_release(td_conn *c);

void *td_conn_owner(const td_conn *c);
td_loop *td_conn_loop(const td_conn *c);
const char *td_conn_peer(const td_conn *c);
td_neighbour td_conn_neighbour(const td_conn *c);
td_gather_budget *td_conn_budget(td_conn *c);
bool td_conn_is_going(const td_conn *c); /* takes no new streams */
/* No more than `resting` streams are open, and nothing is to be written. */
bool td_conn_is_idle(const td_conn *c, uint32_t resting);

/* Server: answers; `out` may be NULL (headers alone, or a stream's first message is still to come). The arrays are
 * copied, strings without NO_COPY flags too. */
void td_conn_respond(td_h2_stream *s, const nghttp2_nv *headers, size_t count, td_outgoing *out);
/* Client: begins a request on an unlinked stream; `out` may be NULL for one that streams. */
td_status td_conn_request(td_conn *c, td_h2_stream *s, const nghttp2_nv *headers, size_t count,
                          td_outgoing *out) TD_MUST_USE;
/* One more message of a stream, and its end; the stream is linked and not ended. */
void td_conn_send(td_h2_stream *s, td_outgoing *out);
void td_conn_send_end(td_h2_stream *s);
td_outgoing *td_conn_outgoing(td_conn *c, td_payload *payload, bool prefix, bool trailers);
/* A message of a stream that begins with `head`; as td_outgoing_create_headed(). */
td_outgoing *td_conn_outgoing_headed(td_conn *c, td_str head, td_payload *payload);
void td_conn_reset(td_h2_stream *s, uint32_t error);

void td_conn_go_away(td_conn *c);                  /* no new streams; those open go on, then the connection ends */
void td_conn_close(td_conn *c, td_status why);     /* at the end of the turn, after a last attempt to write; consumes */
void td_conn_close_now(td_conn *c, td_status why); /* at once; not from within a callback; consumes */

/* For a connection whose stream has no descriptor: reads what is there, then writes. */
void td_conn_drive(td_conn *c);

#endif /* TD_RPC_CONN_H_ */

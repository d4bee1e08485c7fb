/* What a server's parts share: shards (one per loop), connections, calls. Loop thread only unless said. */
#ifndef TD_RPC_SERVER_INTERNAL_H_
#define TD_RPC_SERVER_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "rpc/conn.h"
#include "rpc/rpc.h"

typedef struct td_server_shard td_server_shard;
typedef struct td_server_conn td_server_conn;
typedef struct td_listener td_listener;
typedef struct td_server_trunk td_server_trunk;

enum { TD_CALL_HEADERS = 16 };

struct td_call {
  td_h2_stream stream; /* first */
  td_server_shard *shard;
  td_server_conn *conn;     /* its calls are counted there; NULL once the connection is gone */
  td_conn *h2;              /* counted */
  td_call *previous, *next; /* of the shard's calls */
  td_server_trunk *trunk;   /* the one whose call this is, on `slot`; NULL: it has a stream of its own, */
  td_server_trunk *carries; /* or is a trunk's stream itself: this one's (NULL once closed) */
  uint32_t slot;
  const td_method *method;
  nghttp2_rcbuf *path;
  struct {
    nghttp2_rcbuf *name, *value;
  } headers[TD_CALL_HEADERS];
  int header_count;
  bool headers_done, post, head, grpc;
  bool bad_timeout, bad_encoding;
  bool complete;  /* the request has ended */
  bool pending;   /* a handler, or the inflater, has it */
  bool responded; /* something was submitted */
  bool closed;    /* the stream is gone */
  bool notifying; /* on_cancel is running */
  uint64_t deadline_ns;
  td_timer deadline;
  void (*on_cancel)(void *arg);
  void *on_cancel_arg;
  void (*on_cancel_release)(void *arg);

  /* the answer on its way to the loop */
  _Atomic bool answered; /* any thread */
  td_work work;
  td_payload reply;
  td_status error;
  char *details;
  size_t details_size;
};

struct td_server_conn {
  td_conn *h2;
  td_server_shard *shard;
  td_server_conn *previous, *next;
  uint32_t calls;   /* not yet both closed and answered: also those that the peer reset */
  uint32_t resting; /* trunks without a call */
};

struct td_server_shard {
  td_rpc_server *server;
  td_loop *loop;
  td_server_conn *conns;
  atomic_int conn_count; /* of those, and of those accepted for this loop that it has not begun */
  td_call *calls, *spare;
  int spare_count;
  bool stopping, closed;
  int kept; /* calls that are done stay in the list while somebody walks it */
};

struct td_rpc_server {
  /* immutable once started */
  td_rpc_server_options options;
  td_method *methods;
  td_map by_path;
  td_server_shard *shards;
  int shard_count;
  td_gather_budget buffered; /* atomic */
  td_listener *listeners;    /* loop 0 once started */
  _Atomic int references;    /* the owner, and each shard until it has no call */

  pthread_mutex_t lock;
  td_pool *inflaters; /* guarded by lock; made for the first compressed request */
};

extern const td_conn_ops td_server_conn_ops;

/* Serves `io`, which it takes. NULL when the server is closed. */
td_conn *td_server_conn_begin(td_server_shard *shard, td_stream *io, const char *peer);
void td_server_release(td_rpc_server *s);       /* any thread */
td_pool *td_server_inflaters(td_rpc_server *s); /* any thread */
/* A call is gone: was it the last of a closed shard? */
void td_server_shard_check(td_server_shard *shard);
void td_call_spares_free(td_server_shard *shard);
/* Cancels all of the shard's: on_cancel, then an error or a reset. */
void td_calls_cancel(td_server_shard *shard);
/* Between these no call is freed, though they end each other. */
void td_calls_keep(td_server_shard *shard);
void td_calls_let_go(td_server_shard *shard);
/* Whether a call waits for its answer, or has not sent it. */
bool td_calls_are_running(const td_server_shard *shard);

/* ---- between calls and trunks ---- */

/* A call of the connection; NULL: it has too many. */
td_call *td_call_begin(td_server_conn *conn, td_conn *h2);
/* The call on the trunk is whole: checks it, hands it to its method. */
void td_call_start_on_trunk(td_call *call, td_str path, td_str message);
/* It cannot be answered any more: frees it, or tells its handler. */
void td_call_closed(td_call *call);
/* Nobody waits for its answer. */
void td_call_notify_cancel(td_call *call);

/* The call's stream becomes a trunk. */
void td_server_trunk_open(td_call *stream);
/* Sends the answer of a call on a trunk; its slot is free. `details` may be empty; takes the message. */
void td_server_trunk_reply(td_call *call, td_payload *message);
void td_server_trunk_fail(td_call *call, td_status status, td_str details); /* borrows `status` */
/* The channel sends no more calls. */
void td_server_trunk_ended(td_server_trunk *t);
/* The stream has gone, and with it its calls. */
void td_server_trunk_close(td_server_trunk *t);
bool td_server_trunk_is_resting(const td_server_trunk *t);
const td_call *td_server_trunk_stream(const td_server_trunk *t);

#endif /* TD_RPC_SERVER_INTERNAL_H_ */

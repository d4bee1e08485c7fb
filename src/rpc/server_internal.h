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

enum { TD_CALL_HEADERS = 16 };

struct td_call {
  td_h2_stream stream; /* first */
  td_server_shard *shard;
  td_server_conn *conn;     /* its calls are counted there; NULL once the connection is gone */
  td_conn *h2;              /* counted */
  td_call *previous, *next; /* of the shard's calls */
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
  uint32_t calls; /* not yet both closed and answered: also those that the peer reset */
};

struct td_server_shard {
  td_rpc_server *server;
  td_loop *loop;
  td_server_conn *conns;
  td_call *calls, *spare;
  int spare_count;
  bool stopping, closed;
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
  unsigned next_shard;       /* loop 0 */
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
/* Fails what runs: on_cancel, then a reset. */
void td_call_cancel(td_call *call);
void td_call_spares_free(td_server_shard *shard);

#endif /* TD_RPC_SERVER_INTERNAL_H_ */

/* What a channel and its calls share. Loop thread only unless said. */
#ifndef TD_RPC_CHANNEL_INTERNAL_H_
#define TD_RPC_CHANNEL_INTERNAL_H_

#include <stdatomic.h>

#include "rpc/address.h"
#include "rpc/conn.h"
#include "rpc/rpc.h"

/* The stream that a connection's small calls share (trunk.h). */
typedef struct td_client_trunk td_client_trunk;

/* A connection of a channel: the current one, or one that the peer wants to see ended. */
typedef struct td_client_conn td_client_conn;
struct td_client_conn {
  td_client_conn *previous, *next;
  td_channel *channel;
  td_conn *h2;
  td_client_trunk *trunk; /* NULL: there is none */
  bool settled;
};

struct td_client_call {
  td_h2_stream stream;    /* first */
  _Atomic int references; /* the handle, the call until done() has run, its stream while linked */
  td_channel *channel;    /* counted */
  td_call_options options;
  td_payload message;
  td_client_call *previous, *next; /* of the waiting calls */
  bool waiting, ended, linked;
  td_client_trunk *trunk; /* on which it waits for its answer; NULL: none */
  uint32_t slot;          /* there */
  bool begun;             /* a stream: it was submitted */
  td_payload *early;      /* a stream's messages before that */
  size_t early_count, early_capacity;
  int retries;
  td_timer deadline;
  int http_status, grpc_status; /* 0 and -1: not seen */
  bool headers;
  td_strbuf text, details; /* grpc-message, grpc-status-details-bin; decoded */
  td_work start, cancel, finish;
  _Atomic bool cancel_asked; /* any thread */
  td_status result;
  char path[];
};

enum td_channel_state { TD_CHANNEL_IDLE, TD_CHANNEL_CONNECTING, TD_CHANNEL_READY, TD_CHANNEL_BACKOFF };

struct td_channel {
  /* immutable */
  td_loop *loop;
  td_channel_options options;
  char *address, *authority, *user_agent;

  _Atomic int references; /* the owner's, each call's */
  _Atomic bool connected;

  /* loop thread only */
  enum td_channel_state state;
  bool destroyed, attempting;
  td_client_conn *current, *conns;
  td_client_call *waiting, *waiting_last; /* for a connection; while there is one, only patient ones: for company */
  td_addresses found;
  int next_address;
  td_resolution *resolution;
  td_watch connecting; /* fd -1: none */
  td_timer timer;      /* of an attempt's begin and end, or of the backoff */
  td_timer company;    /* when the patience of waiting calls ends */
  uint64_t backoff_ns;
  td_status failure; /* why the last attempt or connection ended */
  td_work destroy;
};

extern const td_conn_ops td_client_conn_ops;

void td_channel_release(td_channel *c); /* any thread */
void td_channel_connect(td_channel *c); /* starts an attempt if none runs and no backoff holds it */
void td_channel_check(td_channel *c);   /* lets go of a connection that takes no more calls */
void td_channel_on_settled(td_conn *h2);
void td_channel_on_goaway(td_conn *h2, int32_t last, uint32_t error);
void td_channel_on_lost(td_conn *h2, td_status why);

void td_client_call_wait(td_client_call *call); /* puts it in the channel's queue */
void td_client_call_send(td_client_call *call); /* takes it out, and onto the current connection */
void td_client_call_company_ended(td_timer *t); /* of td_channel.company */
/* Ends the call if it has not ended; consumes `status`. */
void td_client_call_end(td_client_call *call, td_status status);
/* Its answer has come by another way than its stream; consumes `status`. */
void td_client_call_answered(td_client_call *call, td_status status, td_str message, td_str details);

/* Opens the connection's trunk; nothing goes over it before the server has answered. */
void td_client_trunk_open(td_client_conn *conn);
/* Sends the call on the connection's trunk, which then has a reference; false: it needs a stream. */
bool td_client_trunk_send(td_client_conn *conn, td_client_call *call);
/* The call, which is on a trunk, has ended before its answer. */
void td_client_trunk_leave(td_client_call *call);
/* No calls come any more: the trunk ends after those that are on it. The connection may be gone (`is_lost`). */
void td_client_trunk_detach(td_client_conn *conn, bool is_lost);

#endif /* TD_RPC_CHANNEL_INTERNAL_H_ */

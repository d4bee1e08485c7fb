/* gRPC over HTTP/2: server and channel. Calls are unary, but for streams that this process opens as a client. What
 * messages mean is not known here. */
#ifndef TD_RPC_RPC_H_
#define TD_RPC_RPC_H_

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "base/str.h"
#include "rpc/loop.h"
#include "rpc/payload.h"

/* A process of this machine and user at the other end of a connection (neighbour.h). */
typedef struct td_neighbour {
  pid_t pid;           /* 0: the peer is no neighbour, or not yet known to be one */
  int memory;          /* the descriptor, in that process, of memory that it lends; -1: none */
  uint64_t connection; /* a number of the connection's own */
} td_neighbour;

/* ---- server ---------------------------------------------------------------------------------------------- */

typedef struct td_rpc_server td_rpc_server;
typedef struct td_call td_call; /* one request being served */

typedef struct td_method {
  const char *path; /* "/tensorflow.MasterService/RunStep" */
  /* The request is complete. Runs on the connection's loop thread and must not block; `request` is valid until the
   * call is answered. Must lead to exactly one td_call_reply() or td_call_fail(), now or later, on any thread.
   * With a receiver, `request` is empty. */
  void (*handle)(void *service, td_call *call, td_str request);
  /* Optional: where the request's bytes go (kept by the call, destroyed with it); called at the headers. */
  td_receiver *(*receiver)(void *service, td_call *call);
} td_method;

typedef struct td_rpc_server_options {
  td_loop **loops; /* connections are dealt to these in turn */
  int loop_count;
  const td_method *methods;
  int method_count;
  void *service;             /* handed to the methods */
  size_t max_message_bytes;  /* 0: INT32_MAX; larger requests and replies fail with RESOURCE_EXHAUSTED */
  size_t max_buffered_bytes; /* cap of gathered request bytes per connection and of the process; 0: 4 GiB */
  uint32_t max_streams;      /* 0: 65,536 */
  uint64_t keepalive_ns;     /* ping a connection silent for so long; 0: never */
  bool neighbours;           /* also listen for channels of this machine and user (neighbour.h) */
  int (*memory)(void);       /* the descriptor of memory that neighbours are lent, or -1; NULL: none */
  /* Admission: at a request's headers, before its body is accepted. Optional. */
  td_status (*admit)(void *service, td_call *call);
} td_rpc_server_options;

/* Binds and listens; nothing is accepted before td_rpc_server_start(). `address`: "host:port", "[v6]:port", or
 * "unix:PATH"; port 0: any. A port in use is UNKNOWN "Could not start gRPC server" with the address and reason. */
td_status td_rpc_server_create(const td_rpc_server_options *options, td_rpc_server **out) TD_MUST_USE;
td_status td_rpc_server_listen(td_rpc_server *s, const char *address,
                               int *out_port) TD_MUST_USE; /* may be called repeatedly */
void td_rpc_server_start(td_rpc_server *s);
/* Stop accepting, send GOAWAY; running calls go on. Returns at once. */
void td_rpc_server_stop_accepting(td_rpc_server *s);
/* Waits until no call runs, at most until `deadline_ns` (td_now_ns()'s clock); then cancels what is left and waits
 * for it. False if something had to be cancelled. */
bool td_rpc_server_drain(td_rpc_server *s, uint64_t deadline_ns);
/* Closes every connection; no method runs after it. From a thread that is no loop's, before the loops stop. */
void td_rpc_server_destroy(td_rpc_server *s);

/* Answers with one message, whose segments pass to the call. Thread-safe; `call` is gone for the caller. */
void td_call_reply(td_call *call, td_payload *message);
/* Answers with an error (consumed). `details`: the bytes of grpc-status-details-bin, or empty. */
void td_call_fail(td_call *call, td_status status, td_str details);

/* `fn(arg)` runs once if the client cancels, its connection breaks, or its deadline passes before the answer, on
 * the call's loop thread, never after the answer was given on that thread. Set from within handle() only. The
 * call must still be answered (the answer is dropped). fn must not answer the call itself with a lock of the
 * caller's held. */
void td_call_on_cancel(td_call *call, void (*fn)(void *arg), void *arg);
/* The same with an argument of the call's own: `release(arg)` runs once on the loop thread when fn can no longer run,
 * whether it ran or not. */
void td_call_on_cancel_owned(td_call *call, void (*fn)(void *arg), void *arg, void (*release)(void *arg));
td_loop *td_call_loop(const td_call *call);
uint64_t td_call_deadline_ns(const td_call *call);              /* TD_NO_DEADLINE if the client set none */
td_str td_call_metadata(const td_call *call, const char *name); /* a request header ("user-agent"); empty if absent */
const char *td_call_peer(const td_call *call);                  /* "ipv4:1.2.3.4:5", "unix:" */
td_str td_call_path(const td_call *call);
td_neighbour td_call_neighbour(const td_call *call); /* from within handle() only */

/* ---- channel --------------------------------------------------------------------------------------------- */

typedef struct td_channel td_channel;         /* to one address; connects on first use, reconnects with backoff */
typedef struct td_client_call td_client_call; /* one call in flight */

typedef struct td_channel_options {
  size_t max_message_bytes; /* 0: INT32_MAX */
  uint64_t keepalive_ns;    /* ping after so much silence while calls are in flight; 0: never */
  uint64_t max_backoff_ns;  /* 0: 1 s, as TensorFlow's */
  bool neighbours;          /* a server of this machine and user is reached through memory, if it offers that */
  int lane;                 /* which of a neighbour's loops shall serve it, if it has so many */
  bool trunks;              /* small calls share a stream, with a server that knows how (trunk.h) */
  const char *user_agent;   /* NULL: "tensord/<version>" */
} td_channel_options;

/* `address`: "host:port" or "unix:PATH". Belongs to `loop`. Name resolution never blocks the loop. */
td_status td_channel_create(td_loop *loop, const char *address, const td_channel_options *options,
                            td_channel **out) TD_MUST_USE;
/* Fails what is in flight (UNAVAILABLE) and closes. Thread-safe; returns once it was posted. */
void td_channel_destroy(td_channel *c);
bool td_channel_is_connected(const td_channel *c);      /* a hint; any thread */
td_neighbour td_channel_neighbour(const td_channel *c); /* of its present connection; on its loop thread */

typedef struct td_call_options {
  const char *path;
  uint64_t deadline_ns;  /* TD_NO_DEADLINE: none; sent as grpc-timeout and kept locally */
  bool wait_for_ready;   /* wait for a connection instead of failing with UNAVAILABLE */
  bool is_patient;       /* nobody waits for it: it leaves with the channel's next other call, or after 2 ms */
  bool is_small;         /* its request and its answer are a MB at most: it may share a stream with others, and is not
                          * sent again then */
  td_receiver *receiver; /* where the reply goes; NULL: gathered. Destroyed with the call. */
  /* The call has ended: exactly once, on the channel's loop thread, with no lock held. `status` is the callback's
   * to free; `reply` (gathered) and `details` (grpc-status-details-bin, decoded) are valid only inside it. */
  void (*done)(void *arg, td_status status, td_str reply, td_str details);
  void (*message)(void *arg, td_str message); /* of td_channel_stream() only; on the loop thread */
  void *arg;
} td_call_options;

/* Starts a call with one message, whose segments pass to it. Thread-safe (posted when not on the channel's loop).
 * The result is for td_client_call_cancel() and must be released once. */
td_client_call *td_channel_call(td_channel *c, const td_call_options *options, td_payload *message);
/* Starts a call that sends and receives any number of messages. Each that comes is handed to options->message, valid
 * only inside it (it may write, end or cancel); done() gets no reply. Never sent again once it had a connection. */
td_client_call *td_channel_stream(td_channel *c, const td_call_options *options);
/* Sends one more message, whose segments pass to the call: they are released once it was written, or the call has
 * ended. Messages wait in order, as many as the caller gives. On the channel's loop thread. */
void td_client_stream_write(td_client_call *call, td_payload *message);
/* Nothing more will be sent (a half close). On the channel's loop thread. */
void td_client_stream_end(td_client_call *call);
/* Ends the call with CANCELLED (and RST_STREAM) if it has not ended; done() still runs exactly once. Thread-safe. */
void td_client_call_cancel(td_client_call *call);
void td_client_call_release(td_client_call *call); /* the handle only; the call goes on */
/* Takes back the patient calls to `path` that still wait for company, to say their messages in another way: `take` gets
 * each (valid only inside it), oldest first, and the call ends as if it had been answered with an empty message. On the
 * channel's loop thread; the callbacks come later. */
void td_channel_withdraw(td_channel *c, const char *path, void (*take)(void *arg, td_str message), void *arg);

#endif /* TD_RPC_RPC_H_ */

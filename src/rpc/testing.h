/* For unit tests: a gRPC server for bidirectional streams, on threads of its own. Not part of the server. */
#ifndef TD_RPC_TESTING_H_
#define TD_RPC_TESTING_H_

#include "base/str.h"

typedef struct td_stream_server td_stream_server;
typedef struct td_server_stream td_server_stream;

typedef struct td_stream_server_options {
  const char *address;                           /* "host:port" */
  void (*begun)(void *arg, td_server_stream *s); /* a stream was opened; on a thread of its connection. Optional. */
  /* On a thread of the stream's connection. A message came, whole; false resets the stream. Optional. */
  bool (*message)(void *arg, td_server_stream *s, td_str message);
  /* The client has sent its last message; false: the stream is left open. NULL: it ends with OK. */
  bool (*ended)(void *arg, td_server_stream *s);
  bool is_deaf; /* streams are opened, and no byte of a message is ever let through */
  void *arg;
} td_stream_server_options;

td_stream_server *td_stream_server_start(const td_stream_server_options *options); /* ends the process on an error */
/* A port of 127.0.0.1 that nobody listens on. */
int td_stream_server_free_port(void);
/* Sends a message; inside begun(), message() or ended() only. */
void td_server_stream_reply(td_server_stream *s, td_str message);
const char *td_server_stream_path(const td_server_stream *s);
/* Streams that have been opened, and that are open now. Thread-safe. */
int td_stream_server_opened(td_stream_server *s);
int td_stream_server_open(td_stream_server *s);
void td_stream_server_stop(td_stream_server *s); /* closes everything; blocks */

#endif /* TD_RPC_TESTING_H_ */

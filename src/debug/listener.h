/* A listener: one stream of Events to a debugger's EventListener service, and of its replies. Thread-safe but for what
 * is said; nothing blocks. */
#ifndef TD_DEBUG_LISTENER_H_
#define TD_DEBUG_LISTENER_H_

#include "debug/event.h"
#include "debug/gates.h"
#include "rpc/rpc.h"

typedef struct td_debug_listener td_debug_listener;

/* `url`: "grpc://host:port[/path]". The stream opens with its first events and waits `connect_ns` for the listener to
 * be there. Gates outlive it. One reference. */
td_debug_listener *td_debug_listener_create(td_loop *loop, td_str url, td_debug_gates *gates, uint64_t connect_ns);
td_debug_listener *td_debug_listener_retain(td_debug_listener *l);
void td_debug_listener_release(td_debug_listener *l);
td_str td_debug_listener_url(const td_debug_listener *l);

typedef struct td_debug_send {
  td_debug_events events; /* taken */
  td_tensor *tensor;      /* a reference, taken: what bodies point to. NULL: */
  td_strbuf bytes;        /* the bytes that they point to, taken */
  bool wants_reply;       /* done() waits for one more reply of the listener */
  /* Once, on the loop, outside of any callback of the stream: the bytes were handed to the socket, and the reply is
   * here. CANCELLED "Write event to stream URL <url> failed." when the stream has ended, FAILED_PRECONDITION "Failed to
   * connect to gRPC channel at <address> within a timeout of <s> s." */
  void (*done)(void *arg, td_status status);
  void *arg;
} td_debug_send;
/* Sends are sent in order; *send is copied. */
void td_debug_listener_send(td_debug_listener *l, const td_debug_send *send);

/* Ends the stream: what was sent goes out, and the listener's end is awaited; then `done(arg)`, once, on the loop. */
void td_debug_listener_close(td_debug_listener *l, void (*done)(void *arg), void *arg);
/* Ends it without, `grace_ns` from now: what waits, ends. */
void td_debug_listener_cancel(td_debug_listener *l, uint64_t grace_ns);

#endif /* TD_DEBUG_LISTENER_H_ */

/* Which gated watches the listeners have asked for, of the whole task. Thread-safe; no call blocks. */
#ifndef TD_DEBUG_GATES_H_
#define TD_DEBUG_GATES_H_

#include "base/str.h"

typedef enum td_debug_gate {
  TD_DEBUG_GATE_UNSPECIFIED = 0, /* of a message: nothing changes */
  TD_DEBUG_GATE_CLOSED = 1,
  TD_DEBUG_GATE_READ = 2,
  TD_DEBUG_GATE_READ_WRITE = 3, /* a breakpoint: after a value the listener's reply is awaited */
} td_debug_gate;

typedef struct td_debug_gates td_debug_gates;
td_debug_gates *td_debug_gates_create(void);
void td_debug_gates_destroy(td_debug_gates *g);

/* `address`: "host:port" of a listener. At most 100,000 gates of a task are open at a time; more are not opened. */
void td_debug_gates_set(td_debug_gates *g, td_str address, td_str watch, td_debug_gate state);
td_debug_gate td_debug_gates_get(td_debug_gates *g, td_str address, td_str watch);
/* Applies an EventReply; false when it is malformed. */
bool td_debug_gates_apply(td_debug_gates *g, td_str address, td_str reply);

/* "host:port" and "/path" (may be empty) of "grpc://host:port/path". */
td_str td_debug_url_address(td_str url);
td_str td_debug_url_path(td_str url);

#endif /* TD_DEBUG_GATES_H_ */

/* Cancellation: asks everything that waits on behalf of a step to end. Thread-safe. */
#ifndef TD_FRAMEWORK_CANCELLATION_H_
#define TD_FRAMEWORK_CANCELLATION_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct td_cancellation td_cancellation;

/* Intrusive registration. */
typedef struct td_cancel_callback td_cancel_callback;
struct td_cancel_callback {
  void (*cancelled)(td_cancel_callback *c); /* runs at most once, on the cancelling thread, without a lock held */
  /* Optional: what waits here, and since when. Any thread, while it is registered; takes no lock. */
  void (*describe)(const td_cancel_callback *c, td_strbuf *out, uint64_t *since_ns);
  td_cancel_callback *prev, *next; /* the manager's */
  int state;
};

td_cancellation *td_cancellation_create(void);
td_cancellation *td_cancellation_retain(td_cancellation *c);
void td_cancellation_release(td_cancellation *c);
bool td_cancellation_is_cancelled(const td_cancellation *c); /* one relaxed load; NULL: false */
/* Runs every callback that is registered, once; later registrations fail. */
void td_cancellation_cancel(td_cancellation *c);
/* False when already cancelled: nothing was registered, and the caller ends its work itself. */
bool td_cancellation_register(td_cancellation *c, td_cancel_callback *callback);
/* True: the callback was withdrawn and will not run. False: it has run or is running on another thread; then this
 * waits until it has returned (so do not call it from inside the callback, nor with a lock that the callback takes). */
bool td_cancellation_unregister(td_cancellation *c, td_cancel_callback *callback);
/* The same without waiting: false means that the callback has run or runs right now. */
bool td_cancellation_try_unregister(td_cancellation *c, td_cancel_callback *callback);
/* Calls visit() for each registered callback that describes itself; with a lock held: visit() must not come back. */
void td_cancellation_visit(td_cancellation *c, void (*visit)(void *arg, td_str what, uint64_t since_ns), void *arg);

#endif /* TD_FRAMEWORK_CANCELLATION_H_ */

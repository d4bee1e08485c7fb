/* Waiting rooms: a lock around some state, and the kernel runs that wait for that state to change.
 *
 * An asynchronous kernel hands each run to the room with an attempt: a function that, under the room's lock, either
 * finishes the run (setting outputs or an error) or says that it must wait. Whenever the state changes, the waiting
 * attempts are made again in their order of arrival until none of them gets on. A run that waits ends with CANCELLED
 * when its step is cancelled.
 *
 * Runs that waited go on upon their step's pool, never inside the call that let them go on. Thread-safe.
 */
#ifndef TD_OPS_WAITING_H_
#define TD_OPS_WAITING_H_

#include <pthread.h>

#include "framework/cancellation.h"
#include "framework/kernel.h"
#include "framework/resource.h"

typedef struct td_waiter td_waiter;

/* Embed it first: a room is a resource, so that runs that wait keep it. */
typedef struct td_room {
  td_resource resource;
  pthread_mutex_t lock;       /* guards the room's state and the list */
  td_waiter *first, *last;    /* in order of arrival */
  const char *cancelled_text; /* of the error of a run whose step is cancelled */
} td_room;

/* One reference, nobody waits. */
void td_room_init(td_room *r, const td_resource_type *type, const char *cancelled_text);
void td_room_deinit(td_room *r); /* nobody may wait any more: waiting runs hold references */

/* True: the run has ended, with *status; its outputs are set if that is OK. False: it must wait, and nothing has been
 * changed. May take the context's inputs. Sets *changed when the state changed so that others may get on. */
typedef bool (*td_attempt_fn)(td_room *r, td_kernel_ctx *ctx, td_status *status, bool *changed);

/* Runs an attempt for `ctx` and ends the run now or later; takes the caller's reference to the room. */
void td_room_run(td_room *r, td_kernel_ctx *ctx, td_attempt_fn attempt);
/* What follows an attempt that ended without an error but is too costly for the room's lock: ends the run. Called
 * without the lock, with a reference to the room; for runs that waited, on the pool. */
typedef void (*td_continue_fn)(td_room *r, td_kernel_ctx *ctx);
/* The same as td_room_run(), but a run that gets on without an error goes on in `then`. */
void td_room_run_then(td_room *r, td_kernel_ctx *ctx, td_attempt_fn attempt, td_continue_fn then);
/* For attempts: whether another run that makes the same attempt waits, and came before `ctx`. */
bool td_room_is_behind(const td_room *r, const td_kernel_ctx *ctx, td_attempt_fn attempt);
/* Changes the state outside of any run: change() runs under the lock; then whoever can goes on. */
void td_room_change(td_room *r, void (*change)(td_room *r));

#endif /* TD_OPS_WAITING_H_ */

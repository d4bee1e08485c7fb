/* Control threads: where operations run that are rare, long and may wait (creating a session, registering a graph,
 * closing): they are written as plain blocking code and never hold a loop thread or a compute thread.
 */
#ifndef TD_CLUSTER_CONTROL_H_
#define TD_CLUSTER_CONTROL_H_

#include <pthread.h>
#include <stdbool.h>

#include "base/pool.h"
#include "base/status.h"

typedef struct td_control td_control;

/* Threads start on demand and end after being idle for some seconds; at most `max_threads` at a time. */
td_control *td_control_create(const char *task, int max_threads);
/* Runs `work` on a control thread. False (nothing done) when all are busy or the control is stopping: the operation
 * is to be refused with RESOURCE_EXHAUSTED. Thread-safe. */
bool td_control_run(td_control *c, td_work *work) TD_MUST_USE;
/* Waits for everything that runs; later td_control_run() calls return false. */
void td_control_stop(td_control *c);
void td_control_destroy(td_control *c); /* after stop */

/* Waits for a number of completions. */
typedef struct td_latch {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int pending;      /* guarded by lock */
  td_status status; /* guarded by lock: the first error that is not derived, else the first */
} td_latch;

/* Waits for `pending` td_latch_done() calls; thread-safe but for init and deinit. */
void td_latch_init(td_latch *l, int pending);
void td_latch_done(td_latch *l, td_status status); /* consumes */
/* True when nothing is pending; false at `deadline_ns` (td_now_ns()'s clock). */
bool td_latch_wait_until(td_latch *l, uint64_t deadline_ns);
td_status td_latch_wait(td_latch *l) TD_MUST_USE; /* for as long as it takes; the merged status passes to the caller */
td_status td_latch_take(td_latch *l) TD_MUST_USE; /* the status so far */
void td_latch_deinit(td_latch *l);

#endif /* TD_CLUSTER_CONTROL_H_ */

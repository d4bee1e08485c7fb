/* What lasts: the waits of steps and of control operations, for `tensorctl status` and the log.
 *
 * Found by looking, not by keeping books: what waits in a step is seen in its rendezvous and among the callbacks of its
 * cancellation, a master's step on its loop. Only control operations, which are rare, enter themselves.
 */
#ifndef TD_CLUSTER_WAITS_H_
#define TD_CLUSTER_WAITS_H_

#include <pthread.h>

#include "cluster/task.h"

typedef struct td_wait {
  const char *kind; /* "recv", "recv_tensor", "op", "run", "plan", "task"; static */
  int64_t step_id;  /* 0: of no step */
  uint64_t since_ns;
  char *what; /* what is waited for */
} td_wait;

/* A list being made. Waits younger than `before_ns` or older than `after_ns` are left out, and so is what exceeds
 * TD_MAX_WAITS, but counted. */
typedef struct td_wait_list {
  uint64_t before_ns, after_ns;
  td_wait *items;
  size_t count, capacity, left_out;
} td_wait_list;
enum { TD_MAX_WAITS = 1000 };

/* Adds a wait, if it is among those that the list is for; the text is formatted as by printf(). */
void td_wait_list_add(td_wait_list *l, const char *kind, int64_t step_id, uint64_t since_ns, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void td_wait_list_deinit(td_wait_list *l);

/* ---- control operations ---- */

typedef struct td_waits td_waits;

/* A control operation that waits for other tasks; on its stack. */
typedef struct td_control_wait td_control_wait;
struct td_control_wait {
  const char *kind, *what; /* "<task> <what>"; static */
  /* Calls visit() with the name of every task that is still waited for. Any thread; takes no lock. */
  void (*each)(td_control_wait *w, void (*visit)(void *arg, const char *task), void *arg);
  /* the registry's */
  uint64_t since_ns;
  td_control_wait *prev, *next;
};
/* Around a wait; `c` lives from the one to the other. Thread-safe. */
void td_control_wait_begin(td_waits *w, td_control_wait *c);
void td_control_wait_end(td_waits *w, td_control_wait *c);

/* ---- looking ---- */

td_waits *td_waits_create(td_task *task);
/* From now on what has waited for 10 s is logged, once: waits for other tasks at level info, of ops and of whole
 * partitions, which may last by design, at level debug. */
void td_waits_start(td_waits *w);
void td_waits_stop(td_waits *w);    /* blocks until nothing looks any more; before what is looked at goes */
void td_waits_destroy(td_waits *w); /* after the loops have stopped */

/* Everything that this task waits for. Blocks briefly: a control thread, or a test's. */
void td_waits_collect(td_waits *w, td_wait_list *out);

#endif /* TD_CLUSTER_WAITS_H_ */

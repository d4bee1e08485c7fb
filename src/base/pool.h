/* The compute pool: threads that run what is too costly, or may block too long, for a loop thread.
 *
 * Work items are intrusive: embed a td_work in what you submit. Items run in submission order, each on one thread;
 * an item may submit others. Threads start with the pool and sleep when idle. Thread-safe.
 */
#ifndef TD_BASE_POOL_H_
#define TD_BASE_POOL_H_

#include <stddef.h>
#include <stdint.h>

typedef struct td_work td_work;
struct td_work {
  void (*run)(td_work *self); /* may free `self` */
  td_work *next;              /* the pool's */
};

typedef struct td_pool td_pool;

/* A pool of `threads` (0: one per core this process may use). `name` shows in thread listings; `task` is the
 * threads' log task (base/log.h), borrowed for the pool's life. */
td_pool *td_pool_create(const char *name, const char *task, int threads);
void td_pool_stop(td_pool *p);    /* runs what was submitted, then ends the threads; later submissions run inline */
void td_pool_destroy(td_pool *p); /* stops first if need be */
int td_pool_threads(const td_pool *p);
void td_pool_submit(td_pool *p, td_work *work);
/* Submits several, linked by `next` to a NULL, in their order; wakes a thread for each. Cheaper than one by one, where
 * every thread that wakes may take the caller's core. */
void td_pool_submit_all(td_pool *p, td_work *first);
td_pool *td_pool_current(void); /* the pool whose thread calls; NULL on any other thread */

/* Runs fn(arg, begin, end) over [0, n) in pieces, on the calling thread and on pool threads that are idle, and
 * returns when all is done. `unit_ns`: about what one unit costs, in nanoseconds; pieces are sized so that each is
 * worth a hand-over (≥ 20 µs), so a small range runs inline. May be called from a pool thread. The pieces'
 * borders depend on the thread count: results must not. A NULL pool runs everything inline. */
void td_pool_parallel_for(td_pool *p, int64_t n, double unit_ns, void (*fn)(void *arg, int64_t begin, int64_t end),
                          void *arg);

#endif /* TD_BASE_POOL_H_ */

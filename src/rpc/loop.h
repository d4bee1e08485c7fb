/* Event loop: one thread around epoll, with timers and a wake queue.
 *
 * Everything that belongs to a loop (connections, channels, timers) is touched on its thread only;
 * other threads reach it through td_loop_post(). The loop spins briefly before it sleeps (at most 20 µs after the
 * last byte, yielding), never while idle.
 */
#ifndef TD_RPC_LOOP_H_
#define TD_RPC_LOOP_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"

typedef struct td_loop td_loop;

/* Creates the loop and starts its thread. `name` shows in thread listings, `task` is the log task (borrowed). */
td_status td_loop_create(const char *name, const char *task, td_loop **out) TD_MUST_USE;
void td_loop_stop(td_loop *l);    /* ends the thread after what was posted has run; blocks; from another thread */
void td_loop_destroy(td_loop *l); /* after stop */
bool td_loop_is_current(const td_loop *l); /* whether the caller runs on this loop's thread */
td_loop *td_loop_current(void);            /* the loop of the calling thread, or NULL */

/* Runs `work` on the loop's thread, in order of posting. Thread-safe, does not block, one wake-up per batch. */
void td_loop_post(td_loop *l, td_work *work);

/* One-shot timer, intrusive; loop thread only. */
typedef struct td_timer td_timer;
struct td_timer {
  void (*fire)(td_timer *t); /* on the loop's thread; may restart or free `t` */
  uint64_t at_ns;            /* the loop's from here */
  uint32_t slot;             /* place in the heap + 1; 0: not running */
};
void td_timer_start(td_loop *l, td_timer *t, uint64_t at_ns); /* restarts a running one */
void td_timer_stop(td_loop *l, td_timer *t);                  /* no-op when not running */

/* A file descriptor that the loop watches, intrusive; loop thread only. Level-triggered. */
typedef struct td_watch td_watch;
struct td_watch {
  void (*ready)(td_watch *w, uint32_t epoll_events);
  int fd;
  uint32_t events; /* EPOLLIN, EPOLLOUT; the loop's */
};
td_status td_watch_start(td_loop *l, td_watch *w, uint32_t events) TD_MUST_USE;
void td_watch_change(td_loop *l, td_watch *w, uint32_t events);
void td_watch_stop(td_loop *l, td_watch *w); /* before close(fd) */

#endif /* TD_RPC_LOOP_H_ */

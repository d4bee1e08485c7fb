/* The debugger of a task, and its side of one run: where events of watched steps go. Thread-safe; nothing blocks. */
#ifndef TD_DEBUG_DEBUGGER_H_
#define TD_DEBUG_DEBUGGER_H_

#include "base/pool.h"
#include "debug/event.h"
#include "framework/debug.h"
#include "rpc/loop.h"

typedef struct td_debugger td_debugger;

typedef struct td_debugger_options {
  td_loop **loops; /* streams are dealt to them in turn; they outlive what runs, as does the pool */
  int loop_count;
  td_pool *pool;             /* writes files */
  uint64_t disk_bytes_limit; /* 0: TFDBG_DISK_BYTES_LIMIT of the environment, or 100 GiB */
  uint64_t connect_ns;       /* how long a listener is waited for; 0: 15 minutes, as TensorFlow does */
} td_debugger_options;

td_debugger *td_debugger_create(const td_debugger_options *options);
void td_debugger_destroy(td_debugger *d); /* after its runs have gone and the loops have ended */
void td_debugger_reset_disk_bytes(td_debugger *d);

/* A run: a step as its master or a worker sees it, or the registration of a graph. */
typedef struct td_debug_run td_debug_run;
td_debug_run *td_debug_run_create(td_debugger *d); /* one reference */
td_debug_run *td_debug_run_retain(td_debug_run *r);
void td_debug_run_release(td_debug_run *r);        /* the last one resets streams that were not closed */
td_debug_sink *td_debug_run_sink(td_debug_run *r); /* for td_step.debug */

/* Something about the run itself, for every URL. The caller owns it until done(). */
typedef struct td_debug_report td_debug_report;
struct td_debug_report {
  const td_str *urls;
  size_t url_count;
  const td_debug_metadata *metadata; /* before the run; NULL: */
  td_str device, graph;              /* a partition's GraphDef */
  /* Exactly once; any thread, possibly before this returns; no lock held. The first URL's error. */
  void (*done)(td_debug_report *r, td_status status);
};
/* Listeners have answered by then: what they enable holds for the run. */
void td_debug_run_report(td_debug_run *r, td_debug_report *report);

/* Closes the streams; done(arg) once every listener has ended its side, on any thread, possibly before this returns.
 * Nothing may be published any more. */
void td_debug_run_close(td_debug_run *r, void (*done)(void *arg), void *arg);
/* Ends every stream, `grace_ns` from now: what waits for listeners then ends with CANCELLED. No stream opens any more.
 */
void td_debug_run_cancel(td_debug_run *r, uint64_t grace_ns);

#endif /* TD_DEBUG_DEBUGGER_H_ */

/* Executor: runs a program once.
 *
 * All bookkeeping of one run is done by one thread at a time, without locks or atomics per node: whoever has
 * something new (the start, a kernel that finished on the pool, a tensor that arrived) puts it into the run's inbox;
 * if nobody drains the run at the moment, it becomes the drainer. Cheap kernels run inline in the drainer; costly
 * ones go to the pool when there is other work to do; asynchronous ones return at once. A drainer on a loop thread
 * has a budget of 50 µs, then the pool goes on in its place. A completion never runs the next node on its own stack.
 *
 * The first error ends the run: the step's rendezvous is aborted with it (as a derived error for those it reaches),
 * its cancellation fired, no further kernel starts, and done() reports when all that was running has ended. A
 * cancelled step ends the same way (within 10 ms, endless loops included).
 */
#ifndef TD_RUNTIME_EXECUTOR_H_
#define TD_RUNTIME_EXECUTOR_H_

#include "framework/step.h"
#include "runtime/program.h"

typedef struct td_run_options {
  td_step *step;    /* must live until done() */
  td_tensor **args; /* for _Arg nodes (functions), borrowed until done(); NULL: none */
  int arg_count;
  /* Exactly once, on any thread, no lock held. `results`: of _Retval nodes, one reference each (ownership passes;
   * the array itself is valid only inside the call); NULL entries where the run failed. */
  void (*done)(void *arg, td_status status, td_tensor **results, int result_count);
  void *arg;
} td_run_options;

/* Starts a run; never blocks; may call done() before it returns. Retains the program while it runs. */
void td_executor_run(td_program *p, const td_run_options *options);

#endif /* TD_RUNTIME_EXECUTOR_H_ */

/* The recording of one run for its step's statistics (step_stats.h); for the runtime room only. */
#ifndef TD_RUNTIME_TRACE_H_
#define TD_RUNTIME_TRACE_H_

#include "runtime/program_internal.h"
#include "runtime/step_stats.h"

typedef struct td_event td_event;
typedef struct td_trace td_trace;

typedef struct td_thread_name {
  int id;
  char name[16];
} td_thread_name;

/* One run of a node, in its trace's arena. The drainer's, but for what lies between td_event_started() and
 * td_event_ended(), which is the computing thread's. */
struct td_event {
  const td_pnode *node;
  td_event *next;
  uint64_t scheduled_ns, start_ns, op_start_ns, op_end_ns, end_ns; /* since the epoch */
  td_thread_name thread;
  const void **inputs; /* where the elements of the inputs lie */
  td_output_record *outputs;
  size_t output_count, allocated_bytes;
};

/* Everything of a run; the drainer's until td_trace_end(). */
struct td_trace {
  td_trace *next; /* in the step's statistics */
  td_step_stats *stats;
  td_program *program; /* retained */
  td_arena arena;
  td_event *first, **last;
  td_event *current; /* of the node that is being run; a task takes it over */
  uint64_t idle_ns;  /* when the node before was done */
};

/* For a run of `p`, which it retains; the statistics are the step's and outlive it. */
td_trace *td_trace_create(td_step_stats *s, td_program *p);
/* Counts one more record; false: there are too many. */
bool td_step_stats_may_add(td_step_stats *s);
/* A node is about to run. NULL: it is not recorded. */
td_event *td_trace_begin(td_trace *t, const td_pnode *n, const td_value *in);
/* The kernel begins and ends; on the thread that runs it. */
void td_event_started(td_event *e);
void td_event_ended(td_event *e);
/* The node is done; `out` before it is delivered. */
void td_trace_add(td_trace *t, td_event *e, const td_value *out);
/* The run has ended: hands the records over. */
void td_trace_end(td_trace *t);

#endif /* TD_RUNTIME_TRACE_H_ */

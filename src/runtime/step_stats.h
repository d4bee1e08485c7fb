/* Step statistics: what ran in a step on this task, when, where, and what it made.
 *
 * A step whose td_step.stats is set is recorded: every live node that its runs execute but Sends and Recvs, those of
 * functions included. Each run gathers its own records without a lock and hands them over when it ends. Where nothing
 * is recorded it costs the executor one test of a null pointer a node.
 */
#ifndef TD_RUNTIME_STEP_STATS_H_
#define TD_RUNTIME_STEP_STATS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "framework/step.h"

enum { TD_STEP_STATS_MAX_NODES = 1 << 18 }; /* records of one step; what comes later is not recorded */

td_step_stats *td_step_stats_create(void);
/* No run of the step may be in progress. */
void td_step_stats_destroy(td_step_stats *s);

/* Appends a StepStats message: a DeviceStepStats for each device, of the runs that have ended. */
void td_step_stats_encode(td_step_stats *s, td_strbuf *out);

/* One output of a recorded node. */
typedef struct td_output_record {
  int slot, dtype, rank;
  const int64_t *dims;
  size_t bytes;
  const void *data; /* only to be compared: the tensor may be gone */
  bool is_exclusive;
} td_output_record;

/* One run of a node. Times in nanoseconds since the epoch. */
typedef struct td_node_record {
  td_str name;
  uint64_t op_start_ns, op_end_ns;
  const td_output_record *outputs;
  size_t output_count, allocated_bytes;
} td_node_record;

/* Calls visit() for each record of a device's partition itself (not of functions it calls). */
void td_step_stats_visit(td_step_stats *s, td_str device, void (*visit)(void *arg, const td_node_record *n), void *arg);

#endif /* TD_RUNTIME_STEP_STATS_H_ */

/* The steps that this task takes part in: each one's rendezvous, cancellation and per-step resources, by step id.
 *
 * A step exists from the first that is heard of it (a RecvTensor may come before its RunGraph) until its
 * CleanupGraph; the ids of cleaned steps are remembered for a while, so that a late RecvTensor does not wait for ever.
 */
#ifndef TD_CLUSTER_STEP_TABLE_H_
#define TD_CLUSTER_STEP_TABLE_H_

#include "cluster/peers.h"
#include "collective/buf_rendezvous.h"
#include "framework/cancellation.h"
#include "framework/rendezvous.h"
#include "framework/resource.h"

typedef struct td_partial_run td_partial_run; /* partial_run_mgr.h */

typedef struct td_step_entry {
  int64_t id;
  _Atomic uint32_t refs;
  td_rendezvous *rendezvous; /* local meeting point; asks peers for what is made there (remote_rendezvous.h) */
  td_cancellation *cancellation;
  td_resource_mgr *step_resources;
  _Atomic(td_partial_run *) partial; /* set once, by its first call; goes with the entry */
  _Atomic(td_buf_rendezvous *) bufs; /* of its collectives; made when it is first needed */
  atomic_bool lends;                 /* a tensor of it was lent to another task */
  uint64_t starter;                  /* guarded by the table: the worker session whose RunGraph has come; 0: none yet */
} td_step_entry;

td_step_table *td_step_table_create(td_task *task);
void td_step_table_destroy(td_step_table *t); /* aborts what is left */

/* Finds or creates; one reference. `starter`: for a RunGraph, its worker session's id; else 0. ABORTED (derived)
 * "Cleanup <id>" for a step cleaned lately; RESOURCE_EXHAUSTED when too many steps wait that nobody has started
 * (65,536). */
td_status td_step_table_get(td_step_table *t, int64_t id, uint64_t starter, td_step_entry **out) TD_MUST_USE;
td_step_entry *td_step_entry_retain(td_step_entry *e);
void td_step_entry_release(td_step_entry *e);
/* Where its collectives meet; one reference. Aborted when the step is cancelled or cleaned up. */
td_buf_rendezvous *td_step_entry_bufs(td_step_entry *e);
/* Releases an entry for which its holder waited in vain: forgets a step that nobody has started and nobody else waits
 * in, so that peers that come and go leave nothing behind. */
void td_step_table_abandon(td_step_table *t, td_step_entry *e);
/* CleanupGraph: forgets the step; what waits in it ends with ABORTED "Cleanup <id>" (derived), what still runs (a
 * partial run half way) is cancelled. */
void td_step_table_cleanup(td_step_table *t, int64_t id);
/* The id may be used again: a step with collectives that failed is tried again with its id where TensorFlow leads. */
void td_step_table_reopen(td_step_table *t, int64_t id);
/* CleanupGraph of all steps that this worker session has started, running ones are cancelled: its master is gone and
 * will clean up none of them. */
void td_step_table_cleanup_of(td_step_table *t, uint64_t starter);
/* Cancels what runs in the step here; nothing if it is not known. */
void td_step_table_cancel(td_step_table *t, int64_t id);
/* Calls visit() for every step, with no lock held. */
void td_step_table_visit(td_step_table *t, void (*visit)(void *arg, td_step_entry *e), void *arg);
size_t td_step_table_count(td_step_table *t);

#endif /* TD_CLUSTER_STEP_TABLE_H_ */

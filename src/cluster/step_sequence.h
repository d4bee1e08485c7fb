/* Step ids of steps with collectives (TensorFlow's rpc_collective_executor_mgr). Masters whose steps meet in a
 * collective must give them one id: each graph key has a sequence, which begins where the group's leader says, and goes
 * up by one with each step that ends well. One step of a key runs at a time on a master. Thread-safe. */
#ifndef TD_CLUSTER_STEP_SEQUENCE_H_
#define TD_CLUSTER_STEP_SEQUENCE_H_

#include "cluster/peers.h"
#include "graph/graph.h"

/* The graph key of a graph whose run has none: a hash of its collectives' instance keys, as TensorFlow makes it; 0: it
 * has no collectives. */
int64_t td_collective_graph_key(const td_graph *g);

td_step_sequences *td_step_sequences_create(td_task *task);
void td_step_sequences_destroy(td_step_sequences *s);

/* The task that leads by the server's configuration (experimental.collective_group_leader); "": none is named. */
const char *td_configured_leader(const td_task *task);

/* What this task, leading, tells the others. RESOURCE_EXHAUSTED past 65,536 graph keys. */
td_status td_step_sequences_peek(td_step_sequences *s, int64_t graph_key, int64_t *out) TD_MUST_USE;

typedef struct td_sequence_wait td_sequence_wait;
struct td_sequence_wait { /* embed it */
  /* The wait's turn, or why it has none: exactly once unless it left, any thread, no lock held, possibly inside
   * acquire(). With an id the sequence is its own until it is released. */
  void (*ready)(td_sequence_wait *w, td_status status, int64_t id);
  td_sequence_wait *next; /* the sequence's */
  td_peers *peers;        /* likewise */
  void *sequence;         /* likewise */
};
/* `leader`: a task of `peers`. Asks it where the sequence is not known. UNAVAILABLE, or whatever the leader says. */
void td_step_sequences_acquire(td_step_sequences *s, td_peers *peers, const char *leader, int64_t graph_key,
                               td_sequence_wait *w);
bool td_step_sequences_leave(td_step_sequences *s, td_sequence_wait *w); /* true: ready() will not come */

typedef enum td_sequence_end {
  TD_SEQUENCE_DONE,   /* the step ended well: the next one follows it */
  TD_SEQUENCE_FAILED, /* others may have got on or not: the leader begins anew, who follows asks again */
  TD_SEQUENCE_UNUSED, /* the step did not run */
} td_sequence_end;
void td_step_sequences_release(td_step_sequences *s, td_sequence_wait *w, td_sequence_end end);

#endif /* TD_CLUSTER_STEP_SEQUENCE_H_ */

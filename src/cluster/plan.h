/* Plan: what a signature compiles to: partitions registered with their workers, and the rendezvous keys of feeds and
 * fetches. Immutable once ready; reference-counted. */
#ifndef TD_CLUSTER_PLAN_H_
#define TD_CLUSTER_PLAN_H_

#include "cluster/master_session.h"
#include "debug/debugger.h"
#include "graph/prune.h"

typedef struct td_plan_partition {
  td_worker *worker;
  td_registered_graph *graph; /* on this task; retained */
  char *graph_handle;         /* elsewhere */
} td_plan_partition;

struct td_plan {
  _Atomic uint32_t refs;
  td_master_session *session; /* borrowed: plans die with their session */
  td_arena arena;
  td_str *feeds, *fetches, *targets; /* canonical, sorted, unique */
  size_t feed_count, fetch_count, target_count;
  td_connection *connections; /* of callables */
  size_t connection_count;
  td_str watches;   /* an encoded DebugOptions; empty: nothing is watched */
  td_str signature; /* key in session->plans */
  /* immutable once is_ready */
  td_plan_partition *partitions;
  size_t partition_count;
  int64_t collective_key; /* 0: there are no collectives */
  int own;                /* index of this task's partition, which has the feeds and fetches; -1: none */
  td_status status;       /* why it cannot run */
  atomic_llong runs;      /* counted where the session builds cost models */
  /* guarded by session->lock */
  bool is_ready;
  td_master_step *waiting; /* steps that start when it is */
  int64_t watched_runs;
};

/* A plan as one spelling and order of names asks for it. Lives in its plan's arena. */
struct td_plan_view {
  td_plan *plan;
  td_str key; /* in session->views */
  size_t feed_count;
  td_rendezvous_key *feed_keys; /* in the order of the request */
  size_t fetch_count;
  td_str *fetch_names;           /* distinct, as spelt */
  int *fetch_slots;              /* index into fetch_keys: two spellings of one tensor share it */
  td_rendezvous_key *fetch_keys; /* one per tensor */
  size_t fetch_key_count;
};

typedef struct td_names {
  const td_str *feeds, *fetches, *targets;
  size_t feed_count, fetch_count, target_count;
  const Pb__DebugOptions *watches; /* NULL: none. A plan with other watches is another plan */
  td_str watch_bytes;              /* the same, encoded */
  const td_connection *connections;
  size_t connection_count;
} td_names;

/* Borrows the strings; the lists lie in `arena`. */
td_names td_names_of(td_arena *arena, char *const *feeds, size_t feed_count, char *const *fetches, size_t fetch_count,
                     char *const *targets, size_t target_count);

/* The view for these names. With the session's lock held. A new plan is not ready: *is_new is set, and the caller must
 * have it built (td_plan_build, td_plan_start_build). INVALID_ARGUMENT for names that are malformed or fed twice, or
 * when nothing is asked for. */
td_status td_plan_view_get(td_master_session *s, const td_names *names, td_plan_view **out, bool *is_new) TD_MUST_USE;

/* The same, and waits until the plan is ready, building it if need be. The plan is retained for the caller, unless it
 * has failed. FAILED_PRECONDITION "Session is closed." Blocking; no lock held. */
td_status td_plan_view_wait(td_master_session *s, const td_names *names, td_plan_view **out) TD_MUST_USE;
/* A view of some of a plan's names, in `arena`. Without a key, in no table. */
td_plan_view *td_plan_view_of_part(td_master_session *s, td_plan *p, const td_names *names, td_arena *arena);
/* Index of a tensor's name, however spelt, in a plan's feeds or fetches; -1: not there. */
int td_plan_find_name(const td_str *names, size_t count, td_str name);

/* Makes a new plan ready (or failed) and starts the steps that wait for it. `debug`: where watched graphs are
 * published; NULL: each task sees to it. Blocking. */
void td_plan_build(td_plan *p, td_debug_run *debug);
/* Has it built on a control thread; fails it if there is none. Does not block. */
void td_plan_start_build(td_plan *p, td_debug_run *debug);
/* Settles a new plan that cannot be built; consumes `status`. Does not block. */
void td_plan_fail(td_plan *p, td_status status);

td_plan *td_plan_retain(td_plan *p);
void td_plan_release(td_plan *p);

#endif /* TD_CLUSTER_PLAN_H_ */

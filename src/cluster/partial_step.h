/* Partial runs on their master: a step that is set up once, and whose feeds come and fetches go in several RunStep
 * calls. What the workers do with it: partial_run_mgr.h. */
#ifndef TD_CLUSTER_PARTIAL_STEP_H_
#define TD_CLUSTER_PARTIAL_STEP_H_

#include "cluster/plan.h"

typedef struct td_partial_step td_partial_step;

struct td_partial_step {
  _Atomic uint32_t refs;
  /* immutable */
  char handle[24];
  int64_t id;    /* the step's */
  td_plan *plan; /* retained; ready */
  /* guarded by session->lock */
  bool *is_fed, *is_fetched; /* by plan->feeds, plan->fetches */
  size_t pending;            /* neither fed nor fetched yet */
  int entering, active;      /* calls that have entered; that the workers have */
  bool is_started;           /* a call has reached the workers */
  bool is_over;              /* out of the session's table: failed, or the last call has come */
  bool is_cleaned;
};

void td_partial_step_release(td_partial_step *p);

/* PartialRunSetup; builds the plan. Blocking. The handle lies in `arena`. */
td_status td_partial_step_set_up(td_master_session *s, const Pb__PartialRunSetupRequest *request, td_arena *arena,
                                 char **out_handle) TD_MUST_USE;

/* ---- one call; with session->lock held ---- */

/* Finds the partial run and takes the call's feeds and fetches off what is pending; one reference. INVALID_ARGUMENT
 * with TensorFlow's texts for an unknown handle and for names that were not set up or have been used. */
td_status td_partial_step_enter(td_master_session *s, td_str handle, const td_names *names,
                                td_partial_step **out) TD_MUST_USE;
/* The call goes to the workers; true: it is the last one. */
bool td_partial_step_start(td_master_session *s, td_partial_step *p);
/* A call that has entered ends before it went anywhere: its names are pending again. */
void td_partial_step_undo(td_partial_step *p, const td_names *names);
/* The workers have answered the call. True: the caller must have the step cleaned up. */
bool td_partial_step_leave(td_master_session *s, td_partial_step *p, bool has_failed) TD_MUST_USE;

/* ---- without it ---- */

/* Whether the call's fetches can be computed from what has been fed (graph/reach.h). Blocking: waits for the session's
 * graph. */
td_status td_partial_step_check(td_master_session *s, td_partial_step *p, const td_names *names) TD_MUST_USE;

/* The session closes, no step of it runs: cleans up what was left half way. Blocking. */
void td_partial_steps_end(td_master_session *s);

#endif /* TD_CLUSTER_PARTIAL_STEP_H_ */

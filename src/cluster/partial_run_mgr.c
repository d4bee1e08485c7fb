#include "cluster/partial_run_mgr.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "cluster/endpoints.h"
#include "cluster/remote_rendezvous.h"

/* A RunGraph of a partial run in progress. */
typedef struct partial_call {
  td_run_graph *r;
  td_step_entry *entry; /* retained */
  td_status status;     /* of its own feeds and fetches */
  struct partial_call *next;
} partial_call;

struct td_partial_run {
  td_run_graph programs; /* the run of all programs, without feeds and fetches of its own */
  td_step_entry *entry;  /* retained while the programs run */
  pthread_mutex_t lock;
  /* guarded by lock */
  bool is_over; /* the programs have ended, with `status` */
  td_status status;
  partial_call *waiting; /* for that */
};

void td_partial_run_destroy(td_partial_run *p) {
  if (!p) return;
  td_status_free(p->status);
  pthread_mutex_destroy(&p->lock);
  td_free(p);
}

/* Ends a call; `why` (borrowed) is what ended the programs. */
static void finish(partial_call *c, td_status why) {
  td_run_graph *r = c->r;
  td_status status = c->status;
  td_status_merge(&status, td_status_retain(why));
  td_step_entry_release(c->entry);
  td_free(c);
  if (status) td_fetches_drop(r);
  r->done(r, status);
}

static void programs_ended(td_run_graph *r, td_status status) {
  td_partial_run *p = TD_CONTAINER_OF(r, td_partial_run, programs);
  td_step_entry *entry = p->entry;
  pthread_mutex_lock(&p->lock);
  p->is_over = true;
  p->status = status;
  partial_call *waiting = p->waiting;
  p->waiting = NULL;
  pthread_mutex_unlock(&p->lock);
  while (waiting) {
    partial_call *next = waiting->next;
    finish(waiting, status);
    waiting = next;
  }
  td_strbuf_deinit(&r->metadata);
  td_step_entry_release(entry);
}

/* The call's own part is done. The last one waits for the programs; so does one that fails because of them: they know
 * why, and an aborted step's programs end soon. */
static void fetched(void *arg, td_status status) {
  partial_call *c = arg;
  td_partial_run *p = atomic_load_explicit(&c->entry->partial, memory_order_relaxed);
  c->status = status;
  pthread_mutex_lock(&p->lock);
  bool waits = !p->is_over && (status ? td_status_is_derived(status) : c->r->is_last_partial_run);
  td_status why = td_status_retain(p->status);
  if (waits) {
    c->next = p->waiting;
    p->waiting = c;
  }
  pthread_mutex_unlock(&p->lock);
  if (!waits) finish(c, why);
  td_status_free(why);
}

/* The step's partial run; *is_new: this call has made it and must start it. */
static td_partial_run *find_or_create(td_step_entry *entry, td_registered_graph *g, bool *is_new) {
  /* acquire: pairs with the exchange below */
  td_partial_run *p = atomic_load_explicit(&entry->partial, memory_order_acquire);
  *is_new = false;
  if (p) return p;
  td_partial_run *fresh = td_new(td_partial_run);
  fresh->programs = (td_run_graph){.graph = g, .step_id = entry->id, .done = programs_ended};
  fresh->entry = entry;
  pthread_mutex_init(&fresh->lock, NULL);
  /* acq_rel: who finds it sees it whole */
  *is_new =
      atomic_compare_exchange_strong_explicit(&entry->partial, &p, fresh, memory_order_acq_rel, memory_order_acquire);
  if (*is_new) return fresh;
  td_partial_run_destroy(fresh);
  return p;
}

void td_partial_run_call(td_registered_graph *g, td_run_graph *r) {
  td_step_entry *entry;
  bool is_new;
  td_status s = td_graph_mgr_join(g, r->step_id, &entry);
  if (s) {
    r->done(r, s);
    return;
  }
  td_partial_run *p = find_or_create(entry, g, &is_new);
  if (p->programs.graph != g) {
    td_step_entry_release(entry);
    r->done(r, td_invalid_argument("step %lld runs another graph in parts already", (long long)r->step_id));
    return;
  }
  partial_call *c = td_new(partial_call);
  *c = (partial_call){.r = r, .entry = entry};
  td_step_entry_retain(entry); /* for this function */
  if (is_new) {
    td_step_entry_retain(entry); /* the programs' */
    td_graph_mgr_run(g, &p->programs);
  }
  s = td_feeds_offer(r, td_registered_graph_session_state(g), entry->rendezvous);
  if (s)
    fetched(c, s);
  else
    td_fetches_take(r, td_step_rendezvous_local(entry->rendezvous), fetched, c);
  td_step_entry_release(entry);
}

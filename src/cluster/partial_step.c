#include "cluster/partial_step.h"

#include <stdio.h>

#include "base/mem.h"
#include "cluster/control.h"
#include "cluster/master_step.h"
#include "graph/reach.h"

enum { MAX_OPEN = 10000 }; /* partial runs of a session that have not ended */

void td_partial_step_release(td_partial_step *p) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) return;
  td_plan_release(p->plan);
  td_free(p->is_fed);
  td_free(p->is_fetched);
  td_free(p);
}

/* ---- PartialRunSetup ---- */

/* Takes the plan. */
static td_partial_step *create(td_plan *plan) {
  td_partial_step *p = td_new(td_partial_step);
  atomic_init(&p->refs, 1);
  p->id = td_master_step_new_id();
  p->plan = plan;
  p->is_fed = td_new_array(bool, plan->feed_count + 1);
  p->is_fetched = td_new_array(bool, plan->fetch_count + 1);
  p->pending = plan->feed_count + plan->fetch_count;
  return p;
}

/* With the lock held. */
static td_status add(td_master_session *s, td_partial_step *p) {
  if (s->is_closed) return td_failed_precondition("Session is closed.");
  if (s->partial_steps.count >= MAX_OPEN)
    return td_resource_exhausted("session %s has %d partial runs already that have not ended", s->handle, MAX_OPEN);
  snprintf(p->handle, sizeof p->handle, "%llu", (unsigned long long)s->next_partial++);
  td_map_put(&s->partial_steps, td_str_of(p->handle), p);
  return TD_STATUS_OK;
}

td_status td_partial_step_set_up(td_master_session *s, const Pb__PartialRunSetupRequest *r, td_arena *arena,
                                 char **out_handle) {
  td_plan_view *view;
  td_names names = td_names_of(arena, r->feed, r->n_feed, r->fetch, r->n_fetch, r->target, r->n_target);
  TD_TRY(td_plan_view_wait(s, &names, &view));
  td_partial_step *p = create(view->plan);
  pthread_mutex_lock(&s->lock);
  td_status status = add(s, p);
  if (!status) *out_handle = td_arena_strdup(arena, p->handle);
  pthread_mutex_unlock(&s->lock);
  if (status) td_partial_step_release(p);
  return status;
}

/* ---- one call ---- */

/* Marks the names in `done`. None is marked unless all can be. */
static td_status take(const char *what, const char *already, const td_str *names, size_t count, const td_str *all,
                      size_t all_count, bool *done, td_arena *scratch) {
  int *slots = td_arena_array(scratch, int, count + 1);
  for (size_t i = 0; i < count; i++) {
    slots[i] = td_plan_find_name(all, all_count, names[i]);
    if (slots[i] < 0)
      return td_invalid_argument("The %s %.*s was not specified in partial_run_setup.", what, TD_STR_ARG(names[i]));
    if (done[slots[i]])
      return td_invalid_argument("The %s %.*s has already been %s.", what, TD_STR_ARG(names[i]), already);
  }
  for (size_t i = 0; i < count; i++) done[slots[i]] = true;
  return TD_STATUS_OK;
}

static void put_back(const td_str *names, size_t count, const td_str *all, size_t all_count, bool *done) {
  for (size_t i = 0; i < count; i++) done[td_plan_find_name(all, all_count, names[i])] = false;
}

static void count_pending(td_partial_step *p) {
  p->pending = 0;
  for (size_t i = 0; i < p->plan->feed_count; i++) p->pending += !p->is_fed[i];
  for (size_t i = 0; i < p->plan->fetch_count; i++) p->pending += !p->is_fetched[i];
}

td_status td_partial_step_enter(td_master_session *s, td_str handle, const td_names *n, td_partial_step **out) {
  td_partial_step *p = td_map_get(&s->partial_steps, handle);
  if (!p) return td_invalid_argument("Must run PartialRunSetup before performing partial runs");
  td_plan *plan = p->plan;
  td_arena scratch = {0};
  td_status status = take("feed", "fed", n->feeds, n->feed_count, plan->feeds, plan->feed_count, p->is_fed, &scratch);
  if (!status) {
    status =
        take("fetch", "fetched", n->fetches, n->fetch_count, plan->fetches, plan->fetch_count, p->is_fetched, &scratch);
    if (status) put_back(n->feeds, n->feed_count, plan->feeds, plan->feed_count, p->is_fed);
  }
  td_arena_deinit(&scratch);
  if (status) return status;
  count_pending(p);
  p->entering++;
  atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
  *out = p;
  return TD_STATUS_OK;
}

void td_partial_step_undo(td_partial_step *p, const td_names *n) {
  put_back(n->feeds, n->feed_count, p->plan->feeds, p->plan->feed_count, p->is_fed);
  put_back(n->fetches, n->fetch_count, p->plan->fetches, p->plan->fetch_count, p->is_fetched);
  count_pending(p);
  p->entering--;
}

/* Takes it out of the table. */
static void forget(td_master_session *s, td_partial_step *p) {
  if (p->is_over) return;
  p->is_over = true;
  td_map_remove(&s->partial_steps, td_str_of(p->handle));
  td_partial_step_release(p); /* the caller has one */
}

bool td_partial_step_start(td_master_session *s, td_partial_step *p) {
  p->is_started = true;
  p->entering--;
  p->active++;
  bool is_last = !p->pending && !p->entering; /* one that enters may yet go back */
  if (is_last) forget(s, p);
  return is_last;
}

/* A failure ends the step at once, which ends its other calls too; else the last one to leave cleans up. */
bool td_partial_step_leave(td_master_session *s, td_partial_step *p, bool has_failed) {
  p->active--;
  if (has_failed) forget(s, p);
  bool cleans = p->is_over && !p->is_cleaned && (has_failed || !p->active);
  if (cleans) p->is_cleaned = true;
  return cleans;
}

/* ---- what may wait ---- */

td_status td_partial_step_check(td_master_session *s, td_partial_step *p, const td_names *names) {
  td_plan *plan = p->plan;
  td_str *pending = td_new_array(td_str, plan->feed_count + 1);
  size_t count = 0;
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < plan->feed_count; i++)
    if (!p->is_fed[i]) pending[count++] = plan->feeds[i];
  pthread_mutex_unlock(&s->lock);
  pthread_mutex_lock(&s->graph_lock);
  td_status status = td_graph_check_computable(s->graph, names->fetches, names->fetch_count, pending, count);
  pthread_mutex_unlock(&s->graph_lock);
  td_free(pending);
  return status;
}

static void cleaned_up(void *latch) { td_latch_done(latch, TD_STATUS_OK); }

static void start_clean_up(td_partial_step *p, td_latch *latch) {
  for (size_t i = 0; i < p->plan->partition_count; i++) {
    td_worker *w = p->plan->partitions[i].worker;
    w->ops->cleanup_graph(w, p->id, cleaned_up, latch);
  }
}

void td_partial_steps_end(td_master_session *s) {
  void *v;
  int calls = 0;
  td_latch latch;
  pthread_mutex_lock(&s->lock);
  td_map all = s->partial_steps;
  s->partial_steps = (td_map){0};
  pthread_mutex_unlock(&s->lock);
  for (size_t i = 0; td_map_next(&all, &i, NULL, &v);)
    if (((td_partial_step *)v)->is_started) calls += (int)((td_partial_step *)v)->plan->partition_count;
  td_latch_init(&latch, calls);
  for (size_t i = 0; td_map_next(&all, &i, NULL, &v);)
    if (((td_partial_step *)v)->is_started) start_clean_up(v, &latch);
  td_status_free(td_latch_wait(&latch)); /* a peer that is stuck ends with the call's deadline */
  td_latch_deinit(&latch);
  for (size_t i = 0; td_map_next(&all, &i, NULL, &v);) td_partial_step_release(v);
  td_map_deinit(&all);
}

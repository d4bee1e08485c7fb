#include "cluster/step_table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/map.h"
#include "base/mem.h"
#include "cluster/partial_run_mgr.h"
#include "cluster/remote_rendezvous.h"
#include "tensor/loan.h"

enum { MAX_WAITING = 65536, REMEMBERED = 8192 };

struct td_step_table {
  td_task *task;
  pthread_mutex_t lock;
  /* guarded by lock */
  td_map steps;                /* id (its eight bytes) -> td_step_entry */
  size_t waiting;              /* entries without a RunGraph yet */
  int64_t cleaned[REMEMBERED]; /* ring of ids; 0: unused */
  td_map cleaned_set;          /* id -> its place in the ring */
  size_t cleaned_next;
};

static td_str key_of(const int64_t *id) { return td_str_n(id, sizeof *id); }

td_step_table *td_step_table_create(td_task *task) {
  td_step_table *t = td_new(td_step_table);
  t->task = task;
  pthread_mutex_init(&t->lock, NULL);
  return t;
}

static td_step_entry *create_entry(td_step_table *t, int64_t id) {
  td_step_entry *e = td_new(td_step_entry);
  char name[48];
  int n = snprintf(name, sizeof name, "__per_step_%lld", (long long)id);
  e->id = id;
  atomic_init(&e->refs, 1);
  e->rendezvous = td_step_rendezvous_create(id);
  e->cancellation = td_cancellation_create();
  e->step_resources = td_resource_mgr_create(td_str_n(name, (size_t)n));
  return e;
}

td_step_entry *td_step_entry_retain(td_step_entry *e) {
  atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
  return e;
}

void td_step_entry_release(td_step_entry *e) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!e || atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1) return;
  if (atomic_load_explicit(&e->lends, memory_order_relaxed)) td_loans_withdraw(e);
  td_partial_run_destroy(atomic_load_explicit(&e->partial, memory_order_relaxed));
  td_buf_rendezvous_close(atomic_load_explicit(&e->bufs, memory_order_relaxed));
  td_rendezvous_release(e->rendezvous);
  td_resource_mgr_release(e->step_resources);
  td_cancellation_release(e->cancellation);
  td_free(e);
}

td_buf_rendezvous *td_step_entry_bufs(td_step_entry *e) {
  td_buf_rendezvous *bufs = atomic_load(&e->bufs);
  if (!bufs) {
    td_buf_rendezvous *fresh = td_buf_rendezvous_create(e->id, e->cancellation);
    if (atomic_compare_exchange_strong(&e->bufs, &bufs, fresh))
      bufs = fresh;
    else
      td_buf_rendezvous_close(fresh);
  }
  return td_buf_rendezvous_retain(bufs);
}

td_status td_step_table_get(td_step_table *t, int64_t id, uint64_t starter, td_step_entry **out) {
  td_status s = TD_STATUS_OK;
  pthread_mutex_lock(&t->lock);
  td_step_entry *e = td_map_get(&t->steps, key_of(&id));
  if (!e && td_map_get(&t->cleaned_set, key_of(&id))) {
    s = td_status_derive(td_aborted("Cleanup %lld", (long long)id));
  } else if (!e && !starter && t->waiting >= MAX_WAITING) {
    s = td_resource_exhausted("%d steps wait for their RunGraph already; step %lld is refused", MAX_WAITING,
                              (long long)id);
  } else {
    if (!e) {
      e = create_entry(t, id);
      td_map_put(&t->steps, key_of(&e->id), e);
      t->waiting++;
    }
    if (starter && !e->starter) {
      e->starter = starter;
      t->waiting--;
    }
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    *out = e;
  }
  pthread_mutex_unlock(&t->lock);
  return s;
}

/* With the lock held. */
static void remember_cleaned(td_step_table *t, int64_t id) {
  if (td_map_get(&t->cleaned_set, key_of(&id))) return;
  int64_t *slot = &t->cleaned[t->cleaned_next++ % REMEMBERED];
  if (*slot) td_map_remove(&t->cleaned_set, key_of(slot));
  *slot = id;
  td_map_put(&t->cleaned_set, key_of(slot), slot);
}

void td_step_table_reopen(td_step_table *t, int64_t id) {
  pthread_mutex_lock(&t->lock);
  int64_t *slot = td_map_remove(&t->cleaned_set, key_of(&id));
  if (slot) *slot = 0;
  pthread_mutex_unlock(&t->lock);
}

void td_step_table_cleanup(td_step_table *t, int64_t id) {
  pthread_mutex_lock(&t->lock);
  td_step_entry *e = td_map_remove(&t->steps, key_of(&id));
  if (e && !e->starter) t->waiting--;
  if (id) remember_cleaned(t, id);
  pthread_mutex_unlock(&t->lock);
  if (!e) return;
  td_cancellation_cancel(e->cancellation); /* a partial run may be half way */
  td_status s = td_status_derive(td_aborted("Cleanup %lld", (long long)id));
  td_rendezvous_abort(e->rendezvous, s);
  td_status_free(s);
  td_step_entry_release(e);
}

void td_step_table_cleanup_of(td_step_table *t, uint64_t starter) {
  int64_t *ids = NULL;
  size_t count = 0, capacity = 0;
  void *v;
  pthread_mutex_lock(&t->lock);
  for (size_t i = 0; td_map_next(&t->steps, &i, NULL, &v);) {
    if (((td_step_entry *)v)->starter != starter) continue;
    TD_GROW(ids, count, capacity);
    ids[count++] = ((td_step_entry *)v)->id;
  }
  pthread_mutex_unlock(&t->lock);
  for (size_t i = 0; i < count; i++) {
    td_step_table_cancel(t, ids[i]);
    td_step_table_cleanup(t, ids[i]);
  }
  td_free(ids);
}

void td_step_table_abandon(td_step_table *t, td_step_entry *e) {
  pthread_mutex_lock(&t->lock);
  /* two references: the table's and the caller's; new ones are only made with the lock held */
  bool idle = !e->starter && atomic_load_explicit(&e->refs, memory_order_acquire) == 2 &&
              td_map_get(&t->steps, key_of(&e->id)) == e;
  if (idle) {
    td_map_remove(&t->steps, key_of(&e->id));
    t->waiting--;
  }
  pthread_mutex_unlock(&t->lock);
  if (idle) td_step_entry_release(e);
  td_step_entry_release(e);
}

void td_step_table_cancel(td_step_table *t, int64_t id) {
  pthread_mutex_lock(&t->lock);
  td_step_entry *e = td_map_get(&t->steps, key_of(&id));
  if (e) atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
  pthread_mutex_unlock(&t->lock);
  if (!e) return;
  td_cancellation_cancel(e->cancellation);
  td_status s = td_status_derive(td_aborted("Step %lld cancelled.  Cancelling rendezvous.", (long long)id));
  td_rendezvous_abort(e->rendezvous, s);
  td_status_free(s);
  td_step_entry_release(e);
}

void td_step_table_visit(td_step_table *t, void (*visit)(void *arg, td_step_entry *e), void *arg) {
  void *v;
  size_t count = 0;
  pthread_mutex_lock(&t->lock);
  td_step_entry **all = td_new_array(td_step_entry *, t->steps.count);
  for (size_t i = 0; td_map_next(&t->steps, &i, NULL, &v);) {
    all[count] = v;
    atomic_fetch_add_explicit(&all[count++]->refs, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&t->lock);
  for (size_t i = 0; i < count; i++) {
    visit(arg, all[i]);
    td_step_table_abandon(t, all[i]); /* its last receiver may have gone meanwhile */
  }
  td_free(all);
}

size_t td_step_table_count(td_step_table *t) {
  pthread_mutex_lock(&t->lock);
  size_t n = t->steps.count;
  pthread_mutex_unlock(&t->lock);
  return n;
}

void td_step_table_destroy(td_step_table *t) {
  if (!t) return;
  void *v;
  td_status s = td_status_derive(td_cancelled("The server is shutting down"));
  for (size_t i = 0; td_map_next(&t->steps, &i, NULL, &v);) {
    td_step_entry *e = v;
    td_cancellation_cancel(e->cancellation);
    td_rendezvous_abort(e->rendezvous, s);
    td_step_entry_release(e);
  }
  td_status_free(s);
  td_map_deinit(&t->steps);
  td_map_deinit(&t->cleaned_set);
  pthread_mutex_destroy(&t->lock);
  td_free(t);
}

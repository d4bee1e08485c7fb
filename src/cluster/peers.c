#include "cluster/peers.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "base/mem.h"

struct td_peers {
  atomic_uint refs;
  td_task *task;
  td_cluster_spec *cluster;
  char *own_name;
  td_worker *self;
  pthread_rwlock_t lock;
  td_map workers; /* guarded by lock: task name -> td_worker, remote ones */
};

td_peers *td_peers_create(td_task *task, td_cluster_spec *cluster, const char *own_name) {
  td_peers *p = td_new(td_peers);
  atomic_init(&p->refs, 1);
  p->task = task;
  p->cluster = td_cluster_spec_retain(cluster);
  p->own_name = td_strdup(own_name);
  p->self = td_local_worker_create(task, p->own_name);
  pthread_rwlock_init(&p->lock, NULL);
  return p;
}

td_peers *td_peers_retain(td_peers *p) {
  atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
  return p;
}

void td_peers_release(td_peers *p) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) return;
  void *w;
  for (size_t i = 0; td_map_next(&p->workers, &i, NULL, &w);) td_remote_worker_destroy(w);
  td_map_deinit(&p->workers);
  pthread_rwlock_destroy(&p->lock);
  td_local_worker_destroy(p->self);
  td_cluster_spec_release(p->cluster);
  td_free(p->own_name);
  td_free(p);
}

td_worker *td_peers_self(td_peers *p) { return p->self; }

const td_cluster_spec *td_peers_cluster(const td_peers *p) { return p->cluster; }

const char *td_peers_own_name(const td_peers *p) { return p->own_name; }

/* Tasks lie in the same order on both sides: what is the shift to the peer is minus the shift from it. Loops of several
 * tasks thus spread over those of a common peer. */
static int lane_shift(const td_peers *p, const td_cluster_task *peer) {
  const td_cluster_task *own = td_cluster_spec_find(p->cluster, td_str_of(p->own_name));
  return own ? (int)(own - peer) : 0;
}

td_worker *td_peers_find(td_peers *p, td_str name) {
  if (td_str_is(name, p->own_name)) return p->self;
  pthread_rwlock_rdlock(&p->lock);
  td_worker *w = td_map_get(&p->workers, name);
  pthread_rwlock_unlock(&p->lock);
  if (w) return w;
  const td_cluster_task *t = td_cluster_spec_find(p->cluster, name);
  if (!t) return NULL;
  pthread_rwlock_wrlock(&p->lock);
  w = td_map_get(&p->workers, name);
  if (!w) {
    w = td_remote_worker_create(p->task, t, lane_shift(p, t));
    td_map_put(&p->workers, td_str_of(t->name), w);
  }
  pthread_rwlock_unlock(&p->lock);
  return w;
}

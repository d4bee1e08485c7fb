#include <pthread.h>

#include "base/map.h"
#include "base/mem.h"
#include "collective/group.h"

enum { MAX_INSTANCES = 1 << 20 };

typedef struct record {
  int32_t key[2]; /* group, instance */
  td_collective_type type;
  td_dtype dtype;
  int rank;
  int64_t *dims;
  int size, known_count, source_rank;
  bool *known;             /* by rank; NULL: no broadcast, or all are known */
  td_instance_wait *waits; /* while not all are */
} record;

struct td_instances {
  pthread_mutex_t lock;
  td_map records; /* guarded by lock: key (its eight bytes) -> record */
};

static td_str key_of(const int32_t *key) { return td_str_n(key, 2 * sizeof *key); }

td_instances *td_instances_create(void) {
  td_instances *t = td_new(td_instances);
  pthread_mutex_init(&t->lock, NULL);
  return t;
}

static void free_record(record *r) {
  td_free(r->dims);
  td_free(r->known);
  td_free(r);
}

void td_instances_destroy(td_instances *t) {
  void *v;
  if (!t) return;
  for (size_t i = 0; td_map_next(&t->records, &i, NULL, &v);) free_record(v);
  td_map_deinit(&t->records);
  pthread_mutex_destroy(&t->lock);
  td_free(t);
}

/* With the lock held, as all below. */
static record *find(td_instances *t, int32_t group_key, int32_t key) {
  int32_t both[2] = {group_key, key};
  return td_map_get(&t->records, key_of(both));
}

static record *add(td_instances *t, const td_group *g, const td_instance_member *m) {
  record *r = td_new(record);
  r->key[0] = g->key;
  r->key[1] = m->key;
  r->type = m->type;
  r->dtype = m->dtype;
  r->rank = m->shape->rank;
  r->dims = td_new_array(int64_t, (size_t)r->rank + 1);
  memcpy(r->dims, m->shape->dims, (size_t)r->rank * sizeof *r->dims);
  r->size = g->size;
  r->source_rank = -1;
  td_map_put(&t->records, key_of(r->key), r);
  return r;
}

static td_status shape_mismatch(const record *r, const td_instance_member *m) {
  char *own = td_shape_text(m->shape), *others = td_dims_text(r->rank, r->dims);
  td_status s = td_invalid_argument(
      "Shape mismatch in the collective instance %d. Op at device %.*s expected shape %s but another member in the "
      "group expected shape %s. This is likely due to different input shapes at different members of the collective "
      "op.",
      m->key, TD_STR_ARG(m->device), own, others);
  td_free(own);
  td_free(others);
  return s;
}

static td_status check(const record *r, const td_instance_member *m) {
  static const char *const types[] = {"Reduce", "Broadcast", "Gather"};
  if (r->type != m->type || r->dtype != m->dtype)
    return td_internal("Collective instance %d expected type %s and data_type %s but got type %s and data_type %s",
                       m->key, types[r->type], td_dtype_name(r->dtype), types[m->type], td_dtype_name(m->dtype));
  return td_dims_eq(r->rank, r->dims, m->shape->rank, m->shape->dims) ? TD_STATUS_OK : shape_mismatch(r, m);
}

static td_status get(td_instances *t, td_group *g, const td_instance_member *m, record **out) {
  record *r = find(t, g->key, m->key);
  int64_t count;
  if ((unsigned)m->type > TD_COLLECTIVE_GATHER)
    return td_invalid_argument("Collective instance %d is of no known type: %d", m->key, (int)m->type);
  if (td_group_rank(g, m->device) < 0)
    return td_internal("Collective instance %d: group %d has no device %.*s", m->key, g->key, TD_STR_ARG(m->device));
  TD_TRY(td_shape_count(m->shape, &count));
  if (r) TD_TRY(check(r, m));
  if (!r && t->records.count >= MAX_INSTANCES)
    return td_resource_exhausted("there are %d collective instances already; instance_key %d is refused", MAX_INSTANCES,
                                 m->key);
  if (!r) {
    r = add(t, g, m);
    if (r->type == TD_COLLECTIVE_BROADCAST) r->known = td_new_array(bool, (size_t)r->size);
  }
  *out = r;
  return TD_STATUS_OK;
}

/* A member of a broadcast; an error is the whole instance's. */
static td_status know(record *r, int rank, bool is_source) {
  if (!r->known) return TD_STATUS_OK;
  if (!r->known[rank]) {
    r->known[rank] = true;
    r->known_count++;
    if (is_source && r->source_rank >= 0)
      return td_internal("Instance %d already has source %d, received second claim from %d", r->key[1], r->source_rank,
                         rank);
    if (is_source) r->source_rank = rank;
  }
  if (r->known_count == r->size && r->source_rank < 0)
    return td_internal(
        "Instance %d found no source for broadcast.  This could mean that there were group_size=%d BcastRecvs but no "
        "BcastSend.",
        r->key[1], r->known_count);
  return TD_STATUS_OK;
}

void td_instances_join(td_instances *t, td_group *g, const td_instance_member *m, td_instance_wait *w) {
  record *r = NULL;
  td_instance_wait *waits = NULL;
  int source = -1;
  pthread_mutex_lock(&t->lock);
  td_status own = w->cancelled && atomic_load(w->cancelled) ? td_group_cancelled() : get(t, g, m, &r);
  td_status all = TD_STATUS_OK;
  if (!own) {
    w->rank = td_group_rank(g, m->device);
    w->next = r->waits;
    r->waits = w;
    all = know(r, w->rank, m->is_source);
    source = r->source_rank;
    if (all || !r->known || r->known_count == r->size) {
      waits = r->waits;
      r->waits = NULL;
      td_free(r->known);
      r->known = NULL;
    }
    if (all) { /* so that it can be tried again */
      td_map_remove(&t->records, key_of(r->key));
      free_record(r);
    }
  }
  pthread_mutex_unlock(&t->lock);
  if (own) w->done(w, own, -1);
  for (td_instance_wait *next; waits; waits = next) {
    next = waits->next;
    waits->done(waits, td_status_retain(all), all ? -1 : source);
  }
  td_status_free(all);
}

bool td_instances_leave(td_instances *t, int32_t group_key, int32_t key, td_instance_wait *w) {
  pthread_mutex_lock(&t->lock);
  record *r = find(t, group_key, key);
  td_instance_wait **at = r ? &r->waits : NULL;
  while (at && *at && *at != w) at = &(*at)->next;
  bool waits = at && *at;
  if (waits) {
    bool others = false;
    *at = w->next;
    for (td_instance_wait *o = r->waits; o; o = o->next) others |= o->rank == w->rank;
    if (!others) {
      r->known[w->rank] = false;
      r->known_count--;
      if (r->source_rank == w->rank) r->source_rank = -1;
    }
    if (!r->waits) {
      td_map_remove(&t->records, key_of(r->key));
      free_record(r);
    }
  }
  pthread_mutex_unlock(&t->lock);
  return waits;
}

bool td_instances_has(td_instances *t, int32_t group_key, int32_t key) {
  pthread_mutex_lock(&t->lock);
  bool has = find(t, group_key, key);
  pthread_mutex_unlock(&t->lock);
  return has;
}

void td_instances_put(td_instances *t, const td_group *g, const td_instance_member *m, int source_rank) {
  pthread_mutex_lock(&t->lock);
  if (!find(t, g->key, m->key) && t->records.count < MAX_INSTANCES) {
    record *r = add(t, g, m);
    r->known_count = r->size;
    r->source_rank = source_rank;
  }
  pthread_mutex_unlock(&t->lock);
}

#include "collective/group.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/mem.h"
#include "framework/device.h"

enum { MAX_GROUPS = 65536, MAX_NAME = 1024 };

/* ---- a group ---- */

static int by_name(const void *a, const void *b) { return td_str_cmp(*(const td_str *)a, *(const td_str *)b); }

/* "/job:j/replica:0/task:t" of a full device name. */
static td_status task_of(td_str device, char **out) {
  td_device_name name;
  if (device.size > MAX_NAME || !td_device_name_parse(device, &name) || !td_device_name_is_complete(&name))
    return td_invalid_argument("\"%.*s\" is no full device name", (int)TD_MIN(device.size, (size_t)256), device.data);
  *out = td_asprintf("/job:%s/replica:%d/task:%d", name.job, name.replica, name.task);
  return TD_STATUS_OK;
}

td_status td_group_create(int32_t key, td_str device_type, const td_str *devices, size_t count, td_group **out) {
  if (!count || count > TD_MAX_GROUP_SIZE)
    return td_invalid_argument("Collective group %d of %zu devices; 1 to %d are allowed", key, count,
                               TD_MAX_GROUP_SIZE);
  td_group *g = td_new(td_group);
  td_str *sorted = td_new_array(td_str, count);
  td_status status = TD_STATUS_OK;
  atomic_init(&g->refs, 1);
  g->key = key;
  g->size = (int32_t)count;
  g->device_type = td_strndup(device_type.data, device_type.size);
  g->devices = td_new_array(char *, count);
  g->tasks = td_new_array(char *, count);
  memcpy(sorted, devices, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, by_name);
  for (size_t i = 0; i < count; i++) {
    g->devices[i] = td_strndup(sorted[i].data, sorted[i].size);
    TD_TRY_GOTO(task_of(sorted[i], &g->tasks[i]));
    if (i && td_str_eq(sorted[i], sorted[i - 1]))
      TD_TRY_GOTO(td_internal("Collective group %d has device %s twice", key, g->devices[i]));
    if (!i || strcmp(g->tasks[i], g->tasks[i - 1])) g->task_count++;
  }
  *out = g;
  g = NULL;
cleanup:
  td_group_release(g);
  td_free(sorted);
  return status;
}

td_group *td_group_retain(td_group *g) {
  atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
  return g;
}

void td_group_release(td_group *g) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
  for (int i = 0; i < g->size; i++) {
    td_free(g->devices[i]);
    td_free(g->tasks[i]);
  }
  td_free(g->devices);
  td_free(g->tasks);
  td_free(g->device_type);
  td_free(g);
}

int td_group_rank(const td_group *g, td_str device) {
  int low = 0, high = g->size;
  while (low < high) {
    int middle = low + (high - low) / 2, order = td_str_cmp(device, td_str_of(g->devices[middle]));
    if (!order) return middle;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return -1;
}

td_status td_group_cancelled(void) {
  return td_status_derive(td_cancelled("The step was cancelled while a collective waited for its group."));
}

/* ---- the table ---- */

typedef struct record {
  int32_t key, size;
  char *device_type;
  td_group *group;      /* once complete */
  td_map members;       /* while it is not: device -> how many wait for it (its bytes lie in a wait) */
  td_group_wait *waits; /* likewise */
} record;

struct td_groups {
  pthread_mutex_t lock;
  td_map records; /* guarded by lock: key (its four bytes) -> record */
};

static td_str key_of(const int32_t *key) { return td_str_n(key, sizeof *key); }

td_groups *td_groups_create(void) {
  td_groups *t = td_new(td_groups);
  pthread_mutex_init(&t->lock, NULL);
  return t;
}

static void free_record(record *r) {
  td_group_release(r->group);
  td_map_deinit(&r->members);
  td_free(r->device_type);
  td_free(r);
}

void td_groups_destroy(td_groups *t) {
  void *v;
  if (!t) return;
  for (size_t i = 0; td_map_next(&t->records, &i, NULL, &v);) free_record(v);
  td_map_deinit(&t->records);
  pthread_mutex_destroy(&t->lock);
  td_free(t);
}

/* With the lock held. */
static td_status get_record(td_groups *t, const td_group_member *m, record **out) {
  record *r = td_map_get(&t->records, key_of(&m->key));
  char *task = NULL;
  if (m->size < 1 || m->size > TD_MAX_GROUP_SIZE)
    return td_invalid_argument("Collective Op %.*s has group_size %d; 1 to %d are allowed", TD_STR_ARG(m->name),
                               m->size, TD_MAX_GROUP_SIZE);
  TD_TRY(task_of(m->device, &task));
  td_free(task);
  if (r && !td_str_is(m->device_type, r->device_type))
    return td_internal(
        "Collective Op %.*s is assigned to device %.*s with type %.*s and group_key %d but that group has type %s",
        TD_STR_ARG(m->name), TD_STR_ARG(m->device), TD_STR_ARG(m->device_type), m->key, r->device_type);
  if (r && m->size != r->size)
    return td_internal("Collective Op %.*s has group_size %d and group_key %d but that group has size %d",
                       TD_STR_ARG(m->name), m->size, m->key, r->size);
  if (r && r->group && td_group_rank(r->group, m->device) < 0)
    return td_internal(
        "Collective Op %.*s is assigned to device %.*s and group_key %d but that group doesn't contain that device.",
        TD_STR_ARG(m->name), TD_STR_ARG(m->device), m->key);
  if (!r && t->records.count >= MAX_GROUPS)
    return td_resource_exhausted("there are %d collective groups already; group_key %d is refused", MAX_GROUPS, m->key);
  if (!r) {
    r = td_new(record);
    r->key = m->key;
    r->size = m->size;
    r->device_type = td_strndup(m->device_type.data, m->device_type.size);
    td_map_put(&t->records, key_of(&r->key), r);
  }
  *out = r;
  return TD_STATUS_OK;
}

/* A wait of `r` for that device other than `but`. */
static td_group_wait *wait_for(const record *r, td_str device, const td_group_wait *but) {
  for (td_group_wait *w = r->waits; w; w = w->next)
    if (w != but && td_str_is(device, w->device)) return w;
  return NULL;
}

static void remove_record(td_groups *t, record *r) {
  td_map_remove(&t->records, key_of(&r->key));
  free_record(r);
}

/* All have come. With the lock held; *waits: who is to be told. */
static td_status complete(td_groups *t, record *r, td_group_wait **waits, td_group **out) {
  td_str *devices = td_new_array(td_str, r->members.count);
  size_t count = 0;
  void *v;
  for (size_t i = 0; td_map_next(&r->members, &i, &devices[count], &v);) count++;
  td_status s = td_group_create(r->key, td_str_of(r->device_type), devices, count, &r->group);
  td_free(devices);
  td_map_deinit(&r->members);
  r->members = (td_map){0};
  *waits = r->waits;
  r->waits = NULL;
  if (s)
    remove_record(t, r);
  else
    *out = td_group_retain(r->group);
  return s;
}

void td_groups_join(td_groups *t, const td_group_member *m, td_group_wait *w) {
  record *r = NULL;
  td_group *group = NULL;
  td_group_wait *waits = NULL;
  pthread_mutex_lock(&t->lock);
  td_status s = w->cancelled && atomic_load(w->cancelled) ? td_group_cancelled() : get_record(t, m, &r);
  w->device = NULL;
  if (!s && r->group) {
    group = td_group_retain(r->group);
  } else if (!s) {
    w->device = td_strndup(m->device.data, m->device.size);
    w->next = r->waits;
    r->waits = w;
    td_map_insert(&r->members, td_str_of(w->device), w);
    if (r->members.count == (size_t)r->size) s = complete(t, r, &waits, &group);
  }
  pthread_mutex_unlock(&t->lock);
  if (!waits && (s || group)) w->done(w, td_status_retain(s), group);
  for (td_group_wait *next; waits; waits = next) {
    next = waits->next;
    td_free(waits->device);
    waits->device = NULL;
    waits->done(waits, td_status_retain(s), group);
  }
  td_status_free(s);
  td_group_release(group);
}

bool td_groups_leave(td_groups *t, int32_t key, td_group_wait *w) {
  pthread_mutex_lock(&t->lock);
  record *r = td_map_get(&t->records, key_of(&key));
  td_group_wait **at = r ? &r->waits : NULL;
  while (at && *at && *at != w) at = &(*at)->next;
  bool waits = at && *at;
  if (waits) {
    td_str device = td_str_of(w->device);
    td_group_wait *other;
    *at = w->next;
    td_map_remove(&r->members, device);
    if ((other = wait_for(r, device, w))) td_map_put(&r->members, td_str_of(other->device), other);
    td_free(w->device);
    w->device = NULL;
    if (!r->waits) remove_record(t, r);
  }
  pthread_mutex_unlock(&t->lock);
  return waits;
}

td_group *td_groups_find(td_groups *t, int32_t key) {
  pthread_mutex_lock(&t->lock);
  record *r = td_map_get(&t->records, key_of(&key));
  td_group *g = r && r->group ? td_group_retain(r->group) : NULL;
  pthread_mutex_unlock(&t->lock);
  return g;
}

void td_groups_put(td_groups *t, td_group *g) {
  pthread_mutex_lock(&t->lock);
  if (!td_map_get(&t->records, key_of(&g->key)) && t->records.count < MAX_GROUPS) {
    record *r = td_new(record);
    r->key = g->key;
    r->size = g->size;
    r->device_type = td_strdup(g->device_type);
    r->group = td_group_retain(g);
    td_map_put(&t->records, key_of(&r->key), r);
  }
  pthread_mutex_unlock(&t->lock);
}

#include "cluster/request_ids.h"

#include <pthread.h>

#include "base/mem.h"

/* The set is an open-addressed table of ids, at most half full; the ring says which id to forget next. Memory is
 * taken when the first id comes. */
struct td_request_ids {
  pthread_mutex_t lock;
  uint32_t capacity, mask;
  /* guarded by lock */
  int64_t *ring, *table; /* 0: free */
  uint64_t inserted;
};

td_request_ids *td_request_ids_create(uint32_t capacity) {
  td_request_ids *r = td_new(td_request_ids);
  pthread_mutex_init(&r->lock, NULL);
  r->capacity = capacity;
  r->mask = 1;
  while (r->mask < capacity * 2) r->mask *= 2;
  r->mask--;
  return r;
}

void td_request_ids_destroy(td_request_ids *r) {
  if (!r) return;
  pthread_mutex_destroy(&r->lock);
  td_free(r->ring);
  td_free(r->table);
  td_free(r);
}

static uint32_t home(const td_request_ids *r, int64_t id) {
  return (uint32_t)(((uint64_t)id * 0x9E3779B97F4A7C15ull) >> 32) & r->mask;
}

static uint32_t find(const td_request_ids *r, int64_t id) {
  uint32_t i = home(r, id);
  while (r->table[i] && r->table[i] != id) i = (i + 1) & r->mask;
  return i;
}

/* Removes table[hole] and closes the gap. */
static void forget(td_request_ids *r, uint32_t hole) {
  r->table[hole] = 0;
  for (uint32_t i = (hole + 1) & r->mask; r->table[i]; i = (i + 1) & r->mask) {
    uint32_t h = home(r, r->table[i]);
    if (((i - h) & r->mask) < ((i - hole) & r->mask)) continue;
    r->table[hole] = r->table[i];
    r->table[i] = 0;
    hole = i;
  }
}

bool td_request_ids_insert(td_request_ids *r, int64_t id) {
  if (!id) return true;
  pthread_mutex_lock(&r->lock);
  if (!r->ring) {
    r->ring = td_new_array(int64_t, r->capacity);
    r->table = td_new_array(int64_t, (size_t)r->mask + 1);
  }
  uint32_t at = find(r, id);
  bool fresh = !r->table[at];
  if (fresh) {
    int64_t *slot = &r->ring[r->inserted++ % r->capacity];
    r->table[at] = id;
    if (*slot) forget(r, find(r, *slot));
    *slot = id;
  }
  pthread_mutex_unlock(&r->lock);
  return fresh;
}

td_status td_request_ids_track(td_request_ids *r, int64_t id, const char *method) {
  if (td_request_ids_insert(r, id)) return TD_STATUS_OK;
  return td_aborted("The same %s request was received twice. request_id: %lld", method, (long long)id);
}

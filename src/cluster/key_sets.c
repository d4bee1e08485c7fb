#include "cluster/key_sets.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/services.h"
#include "proto/wire.h"

enum {
  SETS_MAX = 1024, /* sets that a task keeps, */
  SLOTS = 256,     /* and that a connection remembers */
};
static const size_t SET_BYTES_MAX = 1 << 20, ALL_BYTES_MAX = 64 << 20, KNOWN_BYTES_MAX = 16 << 20;

/* ---- the side that is asked ---- */

struct td_key_sets {
  pthread_mutex_t lock;
  /* guarded by lock */
  td_map by_number;           /* its eight bytes -> set */
  td_key_set *ring[SETS_MAX]; /* one reference each, from oldest to newest */
  size_t first, count, bytes;
};

td_key_sets *td_key_sets_create(void) {
  td_key_sets *s = td_new(td_key_sets);
  pthread_mutex_init(&s->lock, NULL);
  return s;
}

static td_str number_key(const td_key_set *set) { return td_str_n(&set->number, sizeof set->number); }

static size_t weight(const td_key_set *set) { return sizeof *set + set->count * sizeof set->keys[0] + set->size; }

static void drop_oldest(td_key_sets *s) {
  td_key_set *set = s->ring[s->first];
  s->first = (s->first + 1) % SETS_MAX;
  s->count--;
  s->bytes -= weight(set);
  td_map_remove(&s->by_number, number_key(set));
  td_key_set_release(set);
}

void td_key_sets_destroy(td_key_sets *s) {
  if (!s) return;
  while (s->count) drop_oldest(s);
  td_map_deinit(&s->by_number);
  pthread_mutex_destroy(&s->lock);
  td_free(s);
}

td_status td_key_set_parse(const td_task *task, td_str message, size_t count, td_key_set **out) {
  td_key_set *set = td_calloc(1, sizeof *set + count * sizeof set->keys[0]);
  atomic_init(&set->refs, 1);
  set->bytes = td_malloc(message.size);
  set->size = message.size;
  if (message.size) memcpy(set->bytes, message.data, message.size);
  td_wire w = td_wire_of(td_str_n(set->bytes, set->size));
  td_wire_field f;
  bool bad = false;
  td_status status = TD_STATUS_OK;
  while (!status && set->count < count && td_wire_next(&w, &f, &bad)) {
    if (f.number != 2 || f.type != TD_WIRE_BYTES) continue;
    struct td_framed_key *k = &set->keys[set->count++];
    status = td_recv_key_parse(task, f.bytes, &k->key, &k->frame);
  }
  if (status)
    td_key_set_release(set);
  else
    *out = set;
  return status;
}

void td_key_sets_keep(td_key_sets *s, td_key_set *set) {
  size_t size = weight(set);
  if (set->number || size > SET_BYTES_MAX) return;
  pthread_mutex_lock(&s->lock);
  while (s->count && (s->count == SETS_MAX || s->bytes + size > ALL_BYTES_MAX)) drop_oldest(s);
  do {
    set->number = td_random_fast_u64();
  } while (!set->number || td_map_insert(&s->by_number, number_key(set), set));
  atomic_fetch_add_explicit(&set->refs, 1, memory_order_relaxed);
  s->ring[(s->first + s->count++) % SETS_MAX] = set;
  s->bytes += size;
  pthread_mutex_unlock(&s->lock);
}

td_key_set *td_key_sets_find(td_key_sets *s, uint64_t number) {
  pthread_mutex_lock(&s->lock);
  td_key_set *set = td_map_get(&s->by_number, td_str_n(&number, sizeof number));
  if (set) atomic_fetch_add_explicit(&set->refs, 1, memory_order_relaxed);
  pthread_mutex_unlock(&s->lock);
  return set;
}

size_t td_key_sets_count(td_key_sets *s) {
  pthread_mutex_lock(&s->lock);
  size_t n = s->count;
  pthread_mutex_unlock(&s->lock);
  return n;
}

void td_key_set_release(td_key_set *set) {
  /* acq_rel: the last owner frees what the others have read */
  if (!set || atomic_fetch_sub_explicit(&set->refs, 1, memory_order_acq_rel) != 1) return;
  td_free(set->bytes);
  td_free(set);
}

/* ---- the side that asks ---- */

struct td_known_sets {
  struct {
    uint64_t hash, number; /* hash 0: free; number 0: seen, not known */
    char *keys;            /* of a known one */
    size_t size;
  } slots[SLOTS]; /* by hash: the latest of those that would share one */
  size_t bytes;   /* of all keys */
};

td_known_sets *td_known_sets_create(void) { return td_new(td_known_sets); }

void td_known_sets_destroy(td_known_sets *k) {
  for (int i = 0; k && i < SLOTS; i++) td_free(k->slots[i].keys);
  td_free(k);
}

static void clear(td_known_sets *k, size_t i) {
  k->bytes -= k->slots[i].size;
  td_free(k->slots[i].keys);
  memset(&k->slots[i], 0, sizeof k->slots[i]);
}

uint64_t td_known_sets_find(td_known_sets *k, uint64_t hash, td_str keys, bool *asks) {
  size_t i = hash % SLOTS;
  *asks = false;
  if (k->slots[i].hash != hash) {
    clear(k, i);
    k->slots[i].hash = hash;
    return 0;
  }
  if (k->slots[i].number && k->slots[i].size == keys.size && !memcmp(k->slots[i].keys, keys.data, keys.size))
    return k->slots[i].number;
  *asks = keys.size <= SET_BYTES_MAX;
  return 0;
}

void td_known_sets_learn(td_known_sets *k, uint64_t hash, td_str keys, uint64_t number) {
  size_t i = hash % SLOTS;
  clear(k, i);
  if (k->bytes + keys.size > KNOWN_BYTES_MAX) /* those in use are soon learnt again */
    for (size_t j = 0; j < SLOTS; j++) clear(k, j);
  k->bytes += keys.size;
  k->slots[i].hash = hash;
  k->slots[i].number = number;
  k->slots[i].keys = td_malloc(keys.size);
  k->slots[i].size = keys.size;
  memcpy(k->slots[i].keys, keys.data, keys.size);
}

void td_known_sets_forget(td_known_sets *k, uint64_t number) {
  for (size_t i = 0; i < SLOTS; i++)
    if (k->slots[i].number == number) clear(k, i);
}

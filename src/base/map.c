#include "base/map.h"

#include "base/mem.h"

static td_map_entry *find(const td_map *m, td_str key, uint64_t hash) {
  size_t mask = m->capacity - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    td_map_entry *e = &m->entries[i];
    if (!e->value || (e->hash == hash && td_str_eq(e->key, key))) return e;
  }
}

void td_map_reserve(td_map *m, size_t count) {
  size_t capacity = m->capacity ? m->capacity : 16;
  while (capacity - capacity / 4 < count && capacity <= SIZE_MAX / 2) capacity *= 2; /* too many: td_calloc() ends it */
  if (capacity == m->capacity) return;
  td_map bigger = {.entries = td_new_array(td_map_entry, capacity), .count = m->count, .capacity = capacity};
  for (size_t i = 0; i < m->capacity; i++)
    if (m->entries[i].value) *find(&bigger, m->entries[i].key, m->entries[i].hash) = m->entries[i];
  td_free(m->entries);
  *m = bigger;
}

void *td_map_get(const td_map *m, td_str key) {
  if (!m->count) return NULL;
  return find(m, key, td_hash(key.data, key.size))->value;
}

static void *set(td_map *m, td_str key, void *value, bool replace) {
  td_map_reserve(m, m->count + 1);
  uint64_t hash = td_hash(key.data, key.size);
  td_map_entry *e = find(m, key, hash);
  void *old = e->value;
  if (old && !replace) return old;
  if (!old) m->count++;
  *e = (td_map_entry){key, hash, value};
  return old;
}

void *td_map_put(td_map *m, td_str key, void *value) { return set(m, key, value, true); }

void *td_map_insert(td_map *m, td_str key, void *value) { return set(m, key, value, false); }

void *td_map_remove(td_map *m, td_str key) {
  if (!m->count) return NULL;
  size_t mask = m->capacity - 1;
  td_map_entry *hole = find(m, key, td_hash(key.data, key.size));
  void *value = hole->value;
  if (!value) return NULL;
  hole->value = NULL;
  m->count--;
  /* Close the gap: entries behind the hole move up unless that would put them before their home slot. */
  for (size_t h = (size_t)(hole - m->entries), i = (h + 1) & mask; m->entries[i].value; i = (i + 1) & mask) {
    size_t home = m->entries[i].hash & mask;
    if (((i - home) & mask) < ((i - h) & mask)) continue;
    m->entries[h] = m->entries[i];
    m->entries[i].value = NULL;
    h = i;
  }
  return value;
}

bool td_map_next(const td_map *m, size_t *i, td_str *key, void **value) {
  for (; *i < m->capacity; (*i)++) {
    const td_map_entry *e = &m->entries[*i];
    if (!e->value) continue;
    if (key) *key = e->key;
    if (value) *value = e->value;
    (*i)++;
    return true;
  }
  return false;
}

void td_map_clear(td_map *m) {
  if (m->capacity) memset(m->entries, 0, m->capacity * sizeof *m->entries);
  m->count = 0;
}

void td_map_deinit(td_map *m) {
  td_free(m->entries);
  *m = (td_map){0};
}

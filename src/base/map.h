/* Hash table from strings to pointers. Open addressing, linear probing; removal leaves no tombstones.
 *
 * Keys are borrowed: their bytes must outlive the entry (they usually lie in the value or in an arena). Values
 * may not be NULL. Not thread-safe.
 */
#ifndef TD_BASE_MAP_H_
#define TD_BASE_MAP_H_

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

typedef struct td_map_entry {
  td_str key;
  uint64_t hash;
  void *value; /* NULL: free slot */
} td_map_entry;

typedef struct td_map {
  td_map_entry *entries;
  size_t count, capacity; /* capacity: 0 or a power of two */
} td_map;

/* A zeroed td_map is an empty map. */
void *td_map_get(const td_map *m, td_str key);           /* NULL when absent */
void *td_map_put(td_map *m, td_str key, void *value);    /* the value it replaced, or NULL */
void *td_map_insert(td_map *m, td_str key, void *value); /* only if absent; else returns the one there */
void *td_map_remove(td_map *m, td_str key);              /* the removed value, or NULL */
void td_map_reserve(td_map *m, size_t count);
void td_map_clear(td_map *m);
void td_map_deinit(td_map *m);

/* for (size_t i = 0; td_map_next(&m, &i, &key, &value);) — any order; the map must not change meanwhile. */
bool td_map_next(const td_map *m, size_t *i, td_str *key, void **value);

#endif /* TD_BASE_MAP_H_ */

/* A bundle's index while it is made: entries by key, then a file. Not thread-safe. */
#ifndef TD_CHECKPOINT_BUNDLE_INDEX_H_
#define TD_CHECKPOINT_BUNDLE_INDEX_H_

#include "base/arena.h"
#include "base/map.h"
#include "checkpoint/bundle_entry.h"
#include "checkpoint/file.h"

typedef struct bundle_index_item {
  td_str key, shape;
  int64_t dtype;
  size_t slice_count;
  td_strbuf message; /* a BundleEntryProto; slices come last in it */
} bundle_index_item;

typedef struct bundle_index { /* zeroed: empty */
  td_arena arena;
  td_map by_key;
  bundle_index_item **items;
  size_t count, capacity;
} bundle_index;

bundle_index_item *bundle_index_find(const bundle_index *x, td_str key); /* NULL when absent */
/* A new entry (the key must be absent); what it borrows is copied. */
bundle_index_item *bundle_index_put(bundle_index *x, td_str key, const bundle_entry *e);
void bundle_index_add_slice(bundle_index_item *item, td_str message);

/* Sorts the entries and writes them to a new file, on disk as `when` says, not yet published, which the caller deinits.
 */
td_status bundle_index_write(bundle_index *x, const bundle_header *header, const char *path, td_sync when,
                             td_new_file *out) TD_MUST_USE;
void bundle_index_deinit(bundle_index *x);

#endif /* TD_CHECKPOINT_BUNDLE_INDEX_H_ */

#include "checkpoint/bundle_index.h"

#include <stdlib.h>

#include "base/mem.h"
#include "checkpoint/table.h"
#include "proto/wire.h"

enum { ENTRY_SLICES = 7 };

bundle_index_item *bundle_index_find(const bundle_index *x, td_str key) { return td_map_get(&x->by_key, key); }

bundle_index_item *bundle_index_put(bundle_index *x, td_str key, const bundle_entry *e) {
  bundle_index_item *item = td_arena_new(&x->arena, bundle_index_item);
  td_str rest = e->slices, slice;
  item->key = td_arena_str(&x->arena, key);
  item->shape = td_arena_str(&x->arena, e->shape);
  item->dtype = e->dtype;
  while (bundle_next_slice(&rest, &slice)) item->slice_count++;
  bundle_entry_encode(e, &item->message);
  TD_GROW(x->items, x->count, x->capacity);
  x->items[x->count++] = item;
  td_map_put(&x->by_key, item->key, item);
  return item;
}

void bundle_index_add_slice(bundle_index_item *item, td_str message) {
  td_wire_put_bytes(&item->message, ENTRY_SLICES, message);
  item->slice_count++;
}

static int by_key(const void *a, const void *b) {
  return td_str_cmp((*(bundle_index_item *const *)a)->key, (*(bundle_index_item *const *)b)->key);
}

td_status bundle_index_write(bundle_index *x, const bundle_header *header, const char *path, td_sync when,
                             td_new_file *out) {
  td_table_builder b;
  td_strbuf message = {0};
  td_status status = td_new_file_open(out, path, when);
  if (status) return status;
  td_table_builder_init(&b, out);
  bundle_header_encode(header, &message);
  if (x->count) qsort(x->items, x->count, sizeof *x->items, by_key);
  status = td_table_builder_add(&b, TD_STR(""), td_strbuf_view(&message));
  for (size_t i = 0; i < x->count && !status; i++) {
    status = td_table_builder_add(&b, x->items[i]->key, td_strbuf_view(&x->items[i]->message));
  }
  if (!status) status = td_table_builder_finish(&b);
  if (!status) status = td_new_file_sync(out);
  td_table_builder_deinit(&b);
  td_strbuf_deinit(&message);
  return status;
}

void bundle_index_deinit(bundle_index *x) {
  for (size_t i = 0; i < x->count; i++) td_strbuf_deinit(&x->items[i]->message);
  td_free(x->items);
  td_map_deinit(&x->by_key);
  td_arena_deinit(&x->arena);
  *x = (bundle_index){0};
}

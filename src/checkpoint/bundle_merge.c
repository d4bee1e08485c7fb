#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/bundle.h"
#include "checkpoint/bundle_index.h"
#include "checkpoint/table.h"

enum { SHOWN = 512 };

typedef struct merge {
  bundle_index index;
  bundle_header header; /* of the merged bundle */
  char *version;        /* its bytes */
  bool has_header;
  td_map shards; /* path of a data file → its number + 1 */
  char **paths;  /* by number */
  size_t shard_count, shard_capacity;
  const char *prefix; /* the bundle being read, and */
  int64_t shards_of;  /* how many shards it says */
  bool is_first;      /* its header comes next */
} merge;

static td_status take_header(merge *m, td_str value) {
  bundle_header h;
  TD_TRY(bundle_header_decode(value, &h));
  m->shards_of = h.shards;
  if (!m->has_header) {
    m->has_header = true;
    m->version = td_strndup(h.version.data, h.version.size);
    m->header = h;
    m->header.version.data = m->version;
    return TD_STATUS_OK;
  }
  m->header.shards += h.shards;
  if (h.is_big_endian != m->header.is_big_endian) {
    return td_invalid_argument("Merging bundles with conflicting endianness; inputs corrupted?");
  }
  if (!td_str_eq(h.version, m->header.version)) {
    return td_invalid_argument("Merging bundles with different format versions: prefix %s", m->prefix);
  }
  return TD_STATUS_OK;
}

static int64_t shard_number(merge *m, int64_t shard) {
  char *path = bundle_data_path(m->prefix, shard, m->shards_of);
  uintptr_t known = (uintptr_t)td_map_get(&m->shards, td_str_of(path));
  if (known) {
    td_free(path);
    return (int64_t)known - 1;
  }
  TD_GROW(m->paths, m->shard_count, m->shard_capacity);
  m->paths[m->shard_count++] = path;
  td_map_put(&m->shards, td_str_of(path), (void *)m->shard_count);
  return (int64_t)m->shard_count - 1;
}

static td_status take_entry(void *arg, td_str key, td_str value) {
  merge *m = arg;
  bundle_entry e;
  if (m->is_first) {
    m->is_first = false;
    if (key.size) return td_error(TD_DATA_LOSS, "%s.index: failed to seek to header entry", m->prefix);
    return take_header(m, value);
  }
  TD_TRY(bundle_entry_decode(value, &e));
  int shown = (int)TD_MIN(key.size, (size_t)SHOWN);
  bundle_index_item *there = bundle_index_find(&m->index, key);
  td_str rest = e.slices, slice;
  if (!there) {
    /* an entry of slices alone has no data, and names no file */
    if (!bundle_next_slice(&rest, &slice)) e.shard = shard_number(m, e.shard);
    bundle_index_put(&m->index, key, &e);
    return TD_STATUS_OK;
  }
  if (!there->slice_count) {
    return td_invalid_argument("Duplicate tensor keyed by %.*s encountered, when merging prefix: %s", shown, key.data,
                               m->prefix);
  }
  if (!e.slices.size) {
    return td_internal("Duplicate tensor keyed by %.*s; attempting to merge in a non-slice bundle entry", shown,
                       key.data);
  }
  if (e.dtype != there->dtype || !td_str_eq(e.shape, there->shape)) {
    return td_invalid_argument("Slices of %.*s do not agree in type or shape, when merging prefix: %s", shown, key.data,
                               m->prefix);
  }
  while (bundle_next_slice(&rest, &slice)) bundle_index_add_slice(there, slice);
  return TD_STATUS_OK;
}

static td_status read_one(merge *m, const char *prefix) {
  td_table *table = NULL;
  char *path = bundle_index_path(prefix);
  m->prefix = prefix;
  m->is_first = true;
  td_status status = td_table_open(path, false, &table);
  if (!status) status = td_table_each(table, take_entry, m);
  if (!status && m->is_first) status = td_error(TD_DATA_LOSS, "%s: failed to seek to header entry", path);
  td_table_close(table);
  td_free(path);
  return status;
}

static td_status rename_data(const merge *m, const char *to) {
  td_status status = TD_STATUS_OK;
  for (size_t i = 0; i < m->shard_count && !status; i++) {
    char *path = bundle_data_path(to, (int64_t)i, (int64_t)m->shard_count);
    if (rename(m->paths[i], path)) status = td_file_error(errno, m->paths[i]);
    td_free(path);
  }
  return status;
}

/* Data first, index last. */
static td_status publish(merge *m, const char *to, td_sync when) {
  td_str dir = td_file_dir(td_str_of(to));
  td_new_file index = {0};
  char *path = bundle_index_path(to);
  td_status status;
  /* an entry says its shard, the files' names how many there are: what the header says must agree */
  m->header.shards = (int64_t)TD_MAX(m->shard_count, (size_t)1);
  TD_TRY_GOTO(td_file_make_dirs(dir));
  TD_TRY_GOTO(bundle_index_write(&m->index, &m->header, path, when, &index));
  unlink(path);
  TD_TRY_GOTO(rename_data(m, to));
  if (when == TD_SYNC_FIRST) td_file_sync_dir(dir, when); /* no index without its data */
  TD_TRY_GOTO(td_new_file_publish(&index));
  td_file_sync_dir(dir, when);
cleanup:
  td_new_file_deinit(&index);
  td_free(path);
  return status;
}

td_status td_bundle_merge(const td_str *prefixes, size_t count, bool allow_missing, td_str merged, td_sync when) {
  merge m = {0};
  char *to = NULL, **from = td_new_array(char *, count ? count : 1);
  td_status status = td_file_path(merged, &to);
  for (size_t i = 0; i < count && !status; i++) {
    status = td_file_path(prefixes[i], &from[i]);
    if (!status) status = read_one(&m, from[i]);
    if (allow_missing && td_status_code(status) == TD_NOT_FOUND && (m.has_header || i + 1 < count)) {
      td_status_free(status);
      status = TD_STATUS_OK;
    }
  }
  if (!status) status = publish(&m, to, when);
  for (size_t i = 0; i < count && !status; i++) {
    if (!strcmp(from[i], to)) continue;
    char *path = bundle_index_path(from[i]);
    unlink(path);
    td_free(path);
  }
  for (size_t i = 0; i < count; i++) td_free(from[i]);
  for (size_t i = 0; i < m.shard_count; i++) td_free(m.paths[i]);
  td_free(from);
  td_free(m.paths);
  td_free(m.version);
  td_free(to);
  td_map_deinit(&m.shards);
  bundle_index_deinit(&m.index);
  return status;
}

/* Checkpoints from hostile bytes: two bytes say how long the index is, the rest is the data; or, by the first bit, all
 * of it is a V1 file. Checksums of a bundle are not compared, so that the parsers are reached. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/bundle.h"
#include "checkpoint/checkpoint_v1.h"
#include "checkpoint/table.h"
#include "tensor/memory.h"

enum { MOST_KEYS = 64, KEY_LIMIT = 4096, TENSOR_LIMIT = 64 << 20 };

typedef struct keys {
  td_strbuf names[MOST_KEYS];
  int count;
} keys;

static bool drop(td_status s) {
  bool ok = !s;
  td_status_free(s);
  return ok;
}

static td_status note_key(void *arg, td_str key, td_str value) {
  keys *k = arg;
  if (k->count < MOST_KEYS && key.size < KEY_LIMIT) td_strbuf_append(&k->names[k->count++], key);
  return TD_STATUS_OK;
}

static void put(const char *path, const uint8_t *data, size_t size) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  close(fd);
}

static void read_tensor(td_bundle_reader *r, td_str key) {
  td_bundle_plan *p;
  td_tensor *t;
  td_dtype dtype;
  td_shape shape;
  td_slice slice;
  if (!drop(td_bundle_lookup(r, key, &dtype, &shape))) return;
  td_slice_full(&slice, shape.rank);
  for (int part = 0; part < 2; part++) {
    if (drop(td_bundle_plan_create(r, key, part ? &slice : NULL, &p))) {
      if (drop(td_bundle_read(p, &t))) td_tensor_release(t);
      td_bundle_plan_destroy(p);
    }
    if (!shape.rank || shape.dims[0] < 2) return;
    slice.start[0] = 1;
    slice.length[0] = 1;
  }
}

static void read_bundle(const char *prefix, const char *index) {
  td_bundle_reader *r;
  td_table *table;
  keys k = {0};
  if (drop(td_table_open(index, true, &table))) {
    drop(td_table_each(table, note_key, &k));
    td_table_close(table);
  }
  if (drop(td_bundle_reader_open(td_str_of(prefix), true, &r))) {
    for (int i = 0; i < k.count; i++) read_tensor(r, td_strbuf_view(&k.names[i]));
    td_bundle_reader_close(r);
  }
  for (int i = 0; i < k.count; i++) td_strbuf_deinit(&k.names[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const root = "/dev/shm";
  char prefix[64], index[96], shard[96];
  td_v1_reader *v1;
  size_t split;
  if (size < 2) return 0;
  td_memory_set_limit(TENSOR_LIMIT);
  split = data[0] >> 1 | (size_t)data[1] << 7;
  snprintf(prefix, sizeof prefix, "%s/td-fuzz-%d", root, (int)getpid());
  snprintf(index, sizeof index, "%s.index", prefix);
  snprintf(shard, sizeof shard, "%s.data-00000-of-00001", prefix);
  if (split > size - 2) split = size - 2;
  put(index, data + 2, split);
  put(shard, data + 2 + split, size - 2 - split);
  if (data[0] & 1) {
    if (drop(td_v1_reader_open(td_str_of(index), &v1))) td_v1_reader_close(v1);
  } else {
    read_bundle(prefix, index);
  }
  unlink(index);
  unlink(shard);
  return 0;
}

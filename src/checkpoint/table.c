#include "checkpoint/table.h"

#include "base/mem.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/snappy.h"
#include "checkpoint/table_format.h"
#include "proto/wire.h"

typedef struct block {
  uint64_t offset; /* in the file */
  char *data;
  size_t entries; /* bytes of them; the restart array follows */
  uint32_t restart_count;
} block;

struct td_table {
  td_file file;
  bool unchecked;
  block index, data; /* data: the block that was asked for last */
};

/* A place in a block. */
typedef struct cursor {
  const td_table *table;
  const block *block;
  size_t next; /* where the next entry begins */
  td_strbuf key;
  td_str value;
} cursor;

static td_status corrupt(const td_table *t, uint64_t offset, const char *what) {
  return td_error(TD_DATA_LOSS, "%s: %s at offset %llu", t->file.path, what, (unsigned long long)offset);
}

/* ---- blocks ---- */

static void block_deinit(block *b) {
  td_free(b->data);
  *b = (block){0};
}

static uint32_t load_u32(const char *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}

/* `size` bytes and their trailer, unpacked into *out. */
static td_status read_contents(const td_table *t, uint64_t offset, size_t size, char **out, size_t *out_size) {
  char *raw = td_try_malloc(size + TABLE_TRAILER_SIZE);
  if (!raw) return td_resource_exhausted("%s: no memory for a block of %zu bytes", t->file.path, size);
  td_status status = td_file_read_at(&t->file, offset, raw, size + TABLE_TRAILER_SIZE);
  if (!status && !t->unchecked && td_crc32c_unmask(load_u32(raw + size + 1)) != td_crc32c(raw, size + 1)) {
    status = corrupt(t, offset, "block checksum mismatch");
  }
  if (!status && raw[size] == TABLE_PLAIN) {
    *out = raw;
    *out_size = size;
    return TD_STATUS_OK;
  }
  if (!status && raw[size] != TABLE_SNAPPY) status = corrupt(t, offset, "bad block type");
  if (!status) {
    status = td_snappy_unpack(td_str_n(raw, size), out, out_size);
    if (status)
      status = td_status_append(status, " (%s, block at offset %llu)", t->file.path, (unsigned long long)offset);
  }
  td_free(raw);
  return status;
}

static td_status read_block(const td_table *t, uint64_t offset, uint64_t size, block *out) {
  uint64_t end;
  size_t content, tail;
  if (!td_add_size(offset, size, &end) || !td_add_size(end, TABLE_TRAILER_SIZE, &end) || end > t->file.size) {
    return corrupt(t, offset, "truncated block read: a block ends past the file");
  }
  block b = {.offset = offset};
  TD_TRY(read_contents(t, offset, (size_t)size, &b.data, &content));
  uint32_t count = content >= 4 ? load_u32(b.data + content - 4) : 0;
  if (content < 4 || !td_mul_size((size_t)count, (size_t)4, &tail) || tail > content - 4) {
    td_free(b.data);
    return corrupt(t, offset, "bad block contents (restart array)");
  }
  b.restart_count = count;
  b.entries = content - 4 - tail;
  *out = b;
  return TD_STATUS_OK;
}

/* A block handle: offset and size. */
static bool read_handle(td_wire *w, uint64_t *offset, uint64_t *size) {
  return td_wire_read_varint(w, offset) && td_wire_read_varint(w, size);
}

/* ---- entries ---- */

static cursor cursor_of(const td_table *t, const block *b) { return (cursor){.table = t, .block = b}; }
static void cursor_deinit(cursor *c) { td_strbuf_deinit(&c->key); }

/* The next entry: *more is false at the block's end. */
static td_status cursor_next(cursor *c, bool *more) {
  uint64_t shared = 0, rest = 0, size = 0;
  const block *b = c->block;
  *more = c->next < b->entries;
  if (!*more) return TD_STATUS_OK;
  td_wire w = td_wire_of(td_str_n(b->data + c->next, b->entries - c->next));
  if (!td_wire_read_varint(&w, &shared) || !td_wire_read_varint(&w, &rest) || !td_wire_read_varint(&w, &size) ||
      shared > c->key.size || rest > td_wire_left(&w) || size > td_wire_left(&w) - rest) {
    *more = false;
    return corrupt(c->table, b->offset + c->next, "bad entry in block");
  }
  c->key.size = (size_t)shared;
  td_strbuf_append(&c->key, td_str_n(w.next, (size_t)rest));
  c->value = td_str_n(w.next + rest, (size_t)size);
  c->next = (size_t)((const char *)c->value.data - b->data) + (size_t)size;
  return TD_STATUS_OK;
}

/* Moves to the first entry whose key is not less than `key`; *found: there is one. */
static td_status cursor_seek(cursor *c, td_str key, bool *found) {
  const block *b = c->block;
  uint32_t low = 0, high = b->restart_count;
  td_status status;
  *found = false;
  while (high > low + 1) { /* the last restart whose key is less */
    uint32_t middle = low + (high - low) / 2;
    c->next = load_u32(b->data + b->entries + 4 * (size_t)middle);
    c->key.size = 0; /* an entry that shares is malformed here */
    TD_TRY(cursor_next(c, found));
    if (!*found) return corrupt(c->table, b->offset, "bad restart in block");
    if (td_str_cmp(td_strbuf_view(&c->key), key) < 0) {
      low = middle;
    } else {
      high = middle;
    }
  }
  c->next = b->restart_count ? load_u32(b->data + b->entries + 4 * (size_t)low) : 0;
  c->key.size = 0;
  do {
    status = cursor_next(c, found);
  } while (!status && *found && td_str_cmp(td_strbuf_view(&c->key), key) < 0);
  return status;
}

/* ---- tables ---- */

static td_status open_index(td_table *t) {
  char footer[TABLE_FOOTER_SIZE];
  uint64_t magic, offset = 0, size = 0;
  if (t->file.size < TABLE_FOOTER_SIZE) return corrupt(t, t->file.size, "file is too short to be an sstable");
  TD_TRY(td_file_read_at(&t->file, t->file.size - TABLE_FOOTER_SIZE, footer, sizeof footer));
  memcpy(&magic, footer + sizeof footer - 8, 8);
  if (magic != TABLE_MAGIC) return corrupt(t, t->file.size - 8, "not an sstable (bad magic number)");
  td_wire w = td_wire_of(td_str_n(footer, sizeof footer - 8));
  bool has_handles = read_handle(&w, &offset, &size); /* of the meta index, which is not used */
  has_handles = has_handles && read_handle(&w, &offset, &size);
  if (!has_handles) {
    return corrupt(t, t->file.size - TABLE_FOOTER_SIZE, "bad block handle");
  }
  return read_block(t, offset, size, &t->index);
}

td_status td_table_open(const char *path, bool unchecked, td_table **out) {
  td_table *t = td_new(td_table);
  t->unchecked = unchecked;
  td_status status = td_file_open(&t->file, path);
  if (!status) status = open_index(t);
  if (status) {
    td_table_close(t);
    return status;
  }
  *out = t;
  return TD_STATUS_OK;
}

void td_table_close(td_table *t) {
  if (!t) return;
  block_deinit(&t->index);
  block_deinit(&t->data);
  td_file_deinit(&t->file);
  td_free(t);
}

/* The block that an index entry names, from the file unless it is the one at hand. */
static td_status load(td_table *t, td_str handle) {
  uint64_t offset = 0, size = 0;
  td_wire w = td_wire_of(handle);
  if (!read_handle(&w, &offset, &size)) return corrupt(t, t->index.offset, "bad block handle");
  if (t->data.data && t->data.offset == offset) return TD_STATUS_OK;
  block_deinit(&t->data);
  return read_block(t, offset, size, &t->data);
}

td_status td_table_get(td_table *t, td_str key, td_str *value, bool *found) {
  cursor c = cursor_of(t, &t->index);
  td_status status = cursor_seek(&c, key, found);
  if (!status && *found) status = load(t, c.value);
  cursor_deinit(&c);
  if (status || !*found) return status;
  c = cursor_of(t, &t->data);
  status = cursor_seek(&c, key, found);
  if (!status && *found) {
    *found = td_str_eq(td_strbuf_view(&c.key), key);
    *value = c.value;
  }
  cursor_deinit(&c);
  return status;
}

td_status td_table_each(td_table *t, td_table_visit_fn visit, void *arg) {
  cursor outer = cursor_of(t, &t->index);
  bool more = false;
  td_status status;
  while (!(status = cursor_next(&outer, &more)) && more) {
    status = load(t, outer.value);
    if (status) break;
    cursor inner = cursor_of(t, &t->data);
    while (!(status = cursor_next(&inner, &more)) && more) {
      status = visit(arg, td_strbuf_view(&inner.key), inner.value);
      if (status) break;
    }
    cursor_deinit(&inner);
    if (status) break;
  }
  cursor_deinit(&outer);
  return status;
}

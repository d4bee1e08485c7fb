#include <errno.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/bundle.h"
#include "checkpoint/bundle_entry.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/table.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

enum { SHOWN = 512, CHUNK = 1 << 20, MOST_SHARDS = 1 << 20 };

typedef struct shard {
  td_file file;
  int64_t number;
} shard;

struct td_bundle_reader {
  char *prefix;
  td_table *table;
  bundle_header header;
  bool unchecked;
  shard **shards; /* opened so far */
  size_t shard_count, shard_capacity;
};

/* Stored elements of one tensor. */
typedef struct piece {
  const td_file *file;
  uint64_t offset, size;
  uint32_t crc; /* unmasked */
  td_slice slice;
  td_shape shape;
} piece;

struct td_bundle_plan {
  const td_bundle_reader *reader;
  char *key;
  td_dtype dtype;
  td_slice wanted;
  td_shape full, shape; /* of the tensor, of what is wanted */
  piece **pieces;
  size_t count, capacity;
  bool is_plain; /* one piece is just what is wanted */
};

/* ---- opening ---- */

bool td_bundle_exists(td_str prefix) {
  char *path = NULL;
  td_status status = td_file_path(prefix, &path);
  char *index = status ? NULL : bundle_index_path(path);
  bool there = index && !access(index, F_OK);
  td_status_free(status);
  td_free(index);
  td_free(path);
  return there;
}

static td_status read_header(td_bundle_reader *r) {
  td_str value;
  bool found;
  TD_TRY(td_table_get(r->table, TD_STR(""), &value, &found));
  if (!found) {
    return td_error(TD_DATA_LOSS,
                    "Unable to read file (%s.index). Perhaps the file is corrupt or was produced by a newer version of "
                    "TensorFlow with format changes (failed to seek to header entry)",
                    r->prefix);
  }
  TD_TRY(bundle_header_decode(value, &r->header));
  r->header.version = TD_STR("");
  return TD_STATUS_OK;
}

td_status td_bundle_reader_open(td_str prefix, bool unchecked, td_bundle_reader **out) {
  td_bundle_reader *r = td_new(td_bundle_reader);
  char *path = NULL;
  td_status status;
  r->unchecked = unchecked;
  TD_TRY_GOTO(td_file_path(prefix, &r->prefix));
  path = bundle_index_path(r->prefix);
  TD_TRY_GOTO(td_table_open(path, unchecked, &r->table));
  TD_TRY_GOTO(read_header(r));
cleanup:
  td_free(path);
  if (status) {
    td_bundle_reader_close(r);
  } else {
    *out = r;
  }
  return status;
}

void td_bundle_reader_close(td_bundle_reader *r) {
  if (!r) return;
  for (size_t i = 0; i < r->shard_count; i++) {
    td_file_deinit(&r->shards[i]->file);
    td_free(r->shards[i]);
  }
  td_free(r->shards);
  td_table_close(r->table);
  td_free(r->prefix);
  td_free(r);
}

static td_status open_shard(td_bundle_reader *r, int64_t number, const td_file **out) {
  for (size_t i = 0; i < r->shard_count; i++) {
    if (r->shards[i]->number != number) continue;
    *out = &r->shards[i]->file;
    return TD_STATUS_OK;
  }
  if (number >= r->header.shards || r->header.shards > MOST_SHARDS) {
    return td_error(TD_DATA_LOSS, "%s.index: an entry names shard %lld of %lld", r->prefix, (long long)number,
                    (long long)r->header.shards);
  }
  shard *s = td_new(shard);
  char *path = bundle_data_path(r->prefix, number, r->header.shards);
  td_status status = td_file_open(&s->file, path);
  td_free(path);
  if (status) {
    td_free(s);
    return status;
  }
  s->number = number;
  TD_GROW(r->shards, r->shard_count, r->shard_capacity);
  r->shards[r->shard_count++] = s;
  *out = &s->file;
  return TD_STATUS_OK;
}

/* ---- entries ---- */

/* *value stays valid until the next look into the table. */
static td_status find(td_bundle_reader *r, td_str key, bundle_entry *e, td_shape *shape) {
  td_str value;
  bool found = false, unknown_rank = false;
  int64_t count;
  int shown = (int)TD_MIN(key.size, (size_t)SHOWN);
  if (key.size) TD_TRY(td_table_get(r->table, key, &value, &found));
  if (!found) return td_not_found("Key %.*s not found in checkpoint", shown, key.data);
  td_status status = bundle_entry_decode(value, e);
  if (!status && !td_dtype_valid((int)e->dtype)) {
    status = td_error(TD_DATA_LOSS, "Invalid data type %lld", (long long)e->dtype);
  }
  if (!status) {
    status = td_shape_decode(e->shape, shape, &unknown_rank);
    if (!status) status = td_shape_count(shape, &count);
    if (status || unknown_rank) {
      td_status_free(status);
      status = td_error(TD_DATA_LOSS, "Invalid tensor shape");
    }
  }
  return status ? td_status_append(status, ": %.*s (%s.index)", shown, key.data, r->prefix) : TD_STATUS_OK;
}

td_status td_bundle_lookup(td_bundle_reader *r, td_str key, td_dtype *dtype, td_shape *shape) {
  bundle_entry e;
  TD_TRY(find(r, key, &e, shape));
  *dtype = (td_dtype)e.dtype;
  return TD_STATUS_OK;
}

/* ---- plans ---- */

static td_status bad_size(const char *key, const bundle_entry *e, const char *what, uint64_t expected) {
  return td_error(TD_DATA_LOSS, "Invalid size in bundle entry: key %.*s; stored size %lld; expected size %s%llu", SHOWN,
                  key, (long long)e->size, what, (unsigned long long)expected);
}

/* Adds a piece whose size and place have been held against its shape and its file. */
static td_status add_piece(td_bundle_plan *p, td_bundle_reader *r, const bundle_entry *e, const td_shape *shape,
                           const td_slice *slice) {
  const td_file *file = NULL;
  int64_t count;
  uint64_t expected = 0;
  TD_TRY(td_shape_count(shape, &count));
  if (e->dtype == TD_STRING) {
    /* each length takes a byte or more, their checksum four */
    if ((uint64_t)e->size < 4 || (uint64_t)e->size - 4 < (uint64_t)count) {
      return bad_size(p->key, e, "is at least ", (uint64_t)count + 4);
    }
  } else if (e->dtype == TD_VARIANT) {
    if ((uint64_t)e->size / 5 < (uint64_t)count) return bad_size(p->key, e, "is at least ", (uint64_t)count * 5);
  } else if (!td_mul_size((uint64_t)count, (uint64_t)td_dtype_size((td_dtype)e->dtype), &expected) ||
             expected != (uint64_t)e->size) {
    return bad_size(p->key, e, "", expected);
  }
  TD_TRY(open_shard(r, e->shard, &file));
  if ((uint64_t)e->offset > file->size || (uint64_t)e->size > file->size - (uint64_t)e->offset) {
    return td_error(TD_DATA_LOSS, "%s: %lld bytes at offset %lld lie past its end at %llu (key %.*s)", file->path,
                    (long long)e->size, (long long)e->offset, (unsigned long long)file->size, SHOWN, p->key);
  }
  piece *part = td_malloc(sizeof *part);
  part->file = file;
  part->offset = (uint64_t)e->offset;
  part->size = (uint64_t)e->size;
  part->crc = td_crc32c_unmask(e->crc);
  td_slice_copy_extents(&part->slice, slice);
  td_shape_copy(&part->shape, shape);
  TD_GROW(p->pieces, p->count, p->capacity);
  p->pieces[p->count++] = part;
  return TD_STATUS_OK;
}

static td_status not_covered(const td_bundle_plan *p) {
  td_strbuf text = {0};
  td_slice_text(&p->wanted, &text);
  td_status status =
      td_invalid_argument("Does not have sufficient slices for partitioned tensor %.*s to restore in slice_spec: %s",
                          SHOWN, p->key, td_strbuf_cstr(&text));
  td_strbuf_deinit(&text);
  return status;
}

/* Looks up one stored slice, if it holds some of what is wanted; *count: how many elements of that. */
static td_status plan_slice(td_bundle_plan *p, td_bundle_reader *r, const td_slice *slice, int64_t *count) {
  td_slice part;
  td_shape shape, stored;
  bundle_entry e;
  td_strbuf key = {0};
  td_status status = td_slice_shape(slice, &p->full, &shape);
  if (status) {
    td_status_free(status);
    return td_error(TD_DATA_LOSS, "%s.index: a slice of %.*s does not fit the tensor's shape", r->prefix, SHOWN,
                    p->key);
  }
  *count = 0;
  if (!td_slice_intersect(slice, &p->wanted, &p->full, &part)) return TD_STATUS_OK;
  *count = 1;
  for (int i = 0; i < part.rank; i++) *count *= part.length[i]; /* at most the whole, whose count fits */
  td_slice_key(td_str_of(p->key), slice, &key);
  status = find(r, td_strbuf_view(&key), &e, &stored);
  td_strbuf_deinit(&key);
  if (status) return status;
  if (e.dtype != p->dtype || !td_shape_eq(&shape, &stored)) {
    return td_error(TD_DATA_LOSS, "%s.index: a slice of %.*s has another type or shape than the tensor says", r->prefix,
                    SHOWN, p->key);
  }
  return add_piece(p, r, &e, &shape, slice);
}

static td_status plan_slices(td_bundle_plan *p, td_bundle_reader *r, td_str messages) {
  td_str message;
  int64_t covered = 0, wanted;
  TD_TRY(td_shape_count(&p->shape, &wanted));
  while (bundle_next_slice(&messages, &message)) {
    td_slice slice;
    int64_t count = 0;
    TD_TRY(td_slice_decode(message, &slice));
    TD_TRY(plan_slice(p, r, &slice, &count));
    if (__builtin_add_overflow(covered, count, &covered)) return not_covered(p);
  }
  return covered == wanted ? TD_STATUS_OK : not_covered(p);
}

static td_status plan(td_bundle_plan *p, td_bundle_reader *r, td_str key, const td_slice *slice) {
  bundle_entry e;
  td_slice whole;
  TD_TRY(find(r, key, &e, &p->full));
  p->dtype = (td_dtype)e.dtype;
  if (!bundle_can_hold(p->dtype)) {
    return td_unimplemented("Restoring a tensor of type %s (%.*s)", td_dtype_name(p->dtype), SHOWN, p->key);
  }
  td_slice_full(&whole, p->full.rank);
  td_slice_copy_extents(&p->wanted, slice ? slice : &whole);
  TD_TRY(td_slice_shape(&p->wanted, &p->full, &p->shape));
  if (e.slices.size) {
    td_str messages =
        td_str_n(td_strndup(e.slices.data, e.slices.size), e.slices.size); /* looking up slices ends its life */
    td_status status = plan_slices(p, r, messages);
    td_free((char *)messages.data);
    TD_TRY(status);
  } else {
    TD_TRY(add_piece(p, r, &e, &p->full, &whole));
  }
  p->is_plain = p->count == 1 && td_shape_eq(&p->pieces[0]->shape, &p->shape);
  return TD_STATUS_OK;
}

td_status td_bundle_plan_create(td_bundle_reader *r, td_str key, const td_slice *slice, td_bundle_plan **out) {
  td_bundle_plan *p = td_new(td_bundle_plan);
  p->reader = r;
  p->key = td_strndup(key.data, key.size);
  td_status status = plan(p, r, key, slice);
  if (status) {
    td_bundle_plan_destroy(p);
  } else {
    *out = p;
  }
  return status;
}

void td_bundle_plan_destroy(td_bundle_plan *p) {
  if (!p) return;
  for (size_t i = 0; i < p->count; i++) td_free(p->pieces[i]);
  td_free(p->pieces);
  td_free(p->key);
  td_free(p);
}

/* ---- reading ---- */

static td_status check(const td_bundle_plan *p, const piece *part, uint32_t crc, const char *what) {
  if (crc == part->crc || p->reader->unchecked) return TD_STATUS_OK;
  return td_error(
      TD_DATA_LOSS,
      "Checksum does not match%s: stored %08u vs. calculated on the restored bytes %u (key %.*s, %s at offset %llu)",
      what, part->crc, crc, SHOWN, p->key, part->file->path, (unsigned long long)part->offset);
}

static void swap_bytes(td_tensor *t) {
  size_t unit = td_dtype_size((td_dtype)t->dtype);
  if (td_dtype_in((td_dtype)t->dtype, TD_SET_COMPLEX)) unit /= 2;
  for (uint8_t *p = t->data, *end = p + t->size; unit > 1 && p < end; p += unit) {
    for (size_t i = 0; i < unit / 2; i++) {
      uint8_t b = p[i];
      p[i] = p[unit - 1 - i];
      p[unit - 1 - i] = b;
    }
  }
}

static td_status read_plain(const td_bundle_plan *p, const piece *part, td_tensor *t) {
  uint32_t crc = 0;
  for (uint64_t at = 0; at < part->size;) {
    size_t n = (size_t)TD_MIN(part->size - at, (uint64_t)CHUNK); /* summed up while it is in the cache */
    TD_TRY(td_file_read_at(part->file, part->offset + at, (char *)t->data + at, n));
    crc = td_crc32c_extend(crc, (char *)t->data + at, n);
    at += n;
  }
  TD_TRY(check(p, part, crc, ""));
  if (p->reader->header.is_big_endian) swap_bytes(t);
  return TD_STATUS_OK;
}

static td_status decode_strings(const td_bundle_plan *p, const piece *part, td_str bytes, td_tensor *t) {
  td_wire w = td_wire_of(bytes), lengths = w;
  uint32_t crc = 0, stored;
  uint64_t n = 0;
  for (int64_t i = 0; i < t->count; i++) {
    if (!td_wire_read_varint(&w, &n)) return check(p, part, ~part->crc, " (lengths of strings)");
    crc = td_crc32c_extend(crc, &n, n > UINT32_MAX ? 8 : 4);
  }
  if (!td_wire_read_fixed32(&w, &stored) || (!p->reader->unchecked && td_crc32c_unmask(stored) != crc)) {
    return td_error(TD_DATA_LOSS,
                    "The length checksum does not match: expected %08u but actual is %u (key %.*s, %s at offset %llu)",
                    td_crc32c_unmask(stored), crc, SHOWN, p->key, part->file->path, (unsigned long long)part->offset);
  }
  crc = td_crc32c_extend(crc, &stored, 4);
  TD_TRY(check(p, part, td_crc32c_extend(crc, w.next, td_wire_left(&w)), ""));
  for (int64_t i = 0; i < t->count; i++) {
    if (!td_wire_read_varint(&lengths, &n) || n > td_wire_left(&w)) {
      return td_error(TD_DATA_LOSS, "%s: string %lld of %.*s has %llu bytes, %zu are left at offset %llu",
                      part->file->path, (long long)i, SHOWN, p->key, (unsigned long long)n, td_wire_left(&w),
                      (unsigned long long)(part->offset + part->size - td_wire_left(&w)));
    }
    TD_TRY(td_string_set(TD_DATA(t, td_string) + i, td_str_n(w.next, (size_t)n)));
    w.next += n;
  }
  return td_wire_left(&w)
             ? bad_size(p->key, &(bundle_entry){.size = (int64_t)part->size}, "", part->size - td_wire_left(&w))
             : TD_STATUS_OK;
}

static td_status decode_variants(const td_bundle_plan *p, const piece *part, td_str bytes, td_tensor *t) {
  td_wire w = td_wire_of(bytes);
  uint32_t crc = 0, stored;
  uint64_t n = 0;
  for (int64_t i = 0; i < t->count; i++) {
    if (!td_wire_read_varint(&w, &n) || n > td_wire_left(&w))
      return bad_size(p->key, &(bundle_entry){.size = (int64_t)part->size}, "is at least ", n);
    crc = td_crc32c_extend(td_crc32c_extend(crc, &n, 8), w.next, (size_t)n);
    td_str message = td_str_n(w.next, (size_t)n);
    w.next += n;
    if (!td_wire_read_fixed32(&w, &stored) || (!p->reader->unchecked && td_crc32c_unmask(stored) != crc))
      return check(p, part, ~part->crc, " (variants)");
    crc = td_crc32c_extend(crc, &stored, 4);
    TD_TRY(td_opaque_variant_decode(message, TD_DATA(t, td_variant *) + i));
  }
  TD_TRY(check(p, part, crc, ""));
  return td_wire_left(&w)
             ? bad_size(p->key, &(bundle_entry){.size = (int64_t)part->size}, "", part->size - td_wire_left(&w))
             : TD_STATUS_OK;
}

/* What has no fixed size. */
static td_status read_sized(const td_bundle_plan *p, const piece *part, td_tensor *t) {
  if (p->reader->header.is_big_endian)
    return td_unimplemented("%s: strings or variants in big-endian order", part->file->path);
  char *bytes = td_try_malloc((size_t)part->size);
  if (!bytes)
    return td_resource_exhausted("no memory for %llu bytes of %.*s", (unsigned long long)part->size, SHOWN, p->key);
  td_status status = td_file_read_at(part->file, part->offset, bytes, (size_t)part->size);
  if (!status)
    status =
        (p->dtype == TD_STRING ? decode_strings : decode_variants)(p, part, td_str_n(bytes, (size_t)part->size), t);
  td_free(bytes);
  return status;
}

static td_status read_piece(const td_bundle_plan *p, const piece *part, td_tensor **out) {
  td_tensor *t;
  TD_TRY(td_tensor_create(p->dtype, &part->shape, &t));
  bool is_plain = td_dtype_is_pod(p->dtype);
  td_status status = is_plain ? read_plain(p, part, t) : read_sized(p, part, t);
  if (status) {
    td_tensor_release(t);
  } else {
    *out = t;
  }
  return status;
}

td_status td_bundle_read(const td_bundle_plan *p, td_tensor **out) {
  td_tensor *t, *from;
  if (p->is_plain) return read_piece(p, p->pieces[0], out);
  /* zeroed: slices of a forged index may overlap and leave gaps */
  TD_TRY(td_tensor_create_zeros(p->dtype, &p->shape, &t));
  td_status status = TD_STATUS_OK;
  for (size_t i = 0; i < p->count && t->count && !status; i++) {
    td_slice part;
    const piece *stored = p->pieces[i];
    if (!td_slice_intersect(&stored->slice, &p->wanted, &p->full, &part)) continue;
    status = read_piece(p, stored, &from);
    if (status) break;
    td_slice_copy(&part, from, &stored->slice, t, &p->wanted);
    td_tensor_release(from);
  }
  if (status) {
    td_tensor_release(t);
  } else {
    *out = t;
  }
  return status;
}

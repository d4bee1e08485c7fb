#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/mem.h"
#include "checkpoint/bundle.h"
#include "checkpoint/bundle_entry.h"
#include "checkpoint/bundle_index.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/write_behind.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

enum { SHOWN = 512 };

struct td_bundle_writer {
  char *prefix;
  td_new_file data;
  td_write_behind *stream; /* into it */
  bundle_index index;
  uint64_t offset; /* of the data file's next byte */
};

td_status td_bundle_writer_create(td_str name, td_sync when, td_bundle_writer **out) {
  td_bundle_writer *w = td_new(td_bundle_writer);
  char *path = NULL;
  td_status status;
  TD_TRY_GOTO(td_file_path(name, &w->prefix));
  TD_TRY_GOTO(td_file_make_dirs(td_file_dir(td_str_of(w->prefix))));
  path = bundle_data_path(w->prefix, 0, 1);
  TD_TRY_GOTO(td_new_file_open(&w->data, path, when));
  w->stream = td_write_behind_create(&w->data);
cleanup:
  td_free(path);
  if (status) {
    td_bundle_writer_destroy(w);
  } else {
    *out = w;
  }
  return status;
}

void td_bundle_writer_destroy(td_bundle_writer *w) {
  if (!w) return;
  td_write_behind_destroy(w->stream);
  td_new_file_deinit(&w->data);
  bundle_index_deinit(&w->index);
  td_free(w->prefix);
  td_free(w);
}

/* ---- data ---- */

/* The checksum is of what was copied: another step may be writing the tensor. */
static td_status append(td_bundle_writer *w, const void *data, size_t size, uint32_t *crc) {
  const char *p = data;
  while (size) {
    char *to;
    size_t room;
    TD_TRY(td_write_behind_room(w->stream, &to, &room));
    size_t n = TD_MIN(size, room);
    memcpy(to, p, n);
    *crc = td_crc32c_extend(*crc, to, n);
    TD_TRY(td_write_behind_take(w->stream, n));
    w->offset += n;
    p += n;
    size -= n;
  }
  return TD_STATUS_OK;
}

/* Lengths as varints, a checksum of them as numbers of 4 (or, if large, 8) bytes, then the bytes. */
static td_status append_strings(td_bundle_writer *w, const td_tensor *t, uint32_t *out_crc) {
  const td_string *s = TD_DATA(t, td_string);
  uint32_t crc = 0, ignored = 0;
  for (int64_t i = 0; i < t->count; i++) {
    uint64_t n = s[i].size;
    uint8_t varint[TD_WIRE_MAX_VARINT];
    crc = td_crc32c_extend(crc, &n, n > UINT32_MAX ? 8 : 4);
    TD_TRY(append(w, varint, (size_t)(td_wire_write_varint(varint, n) - varint), &ignored));
  }
  uint32_t masked = td_crc32c_mask(crc);
  TD_TRY(append(w, &masked, 4, &crc));
  for (int64_t i = 0; i < t->count; i++) TD_TRY(append(w, s[i].data, s[i].size, &crc));
  *out_crc = crc;
  return TD_STATUS_OK;
}

/* Each as a length, a VariantTensorDataProto, and a checksum so far, into which lengths go as numbers of 8 bytes. */
static td_status append_variants(td_bundle_writer *w, const td_tensor *t, uint32_t *out_crc) {
  uint32_t crc = 0, ignored = 0;
  td_strbuf bytes = {0};
  td_status s = TD_STATUS_OK;
  for (int64_t i = 0; i < t->count && !s; i++) {
    uint8_t varint[TD_WIRE_MAX_VARINT];
    bytes.size = 0;
    s = td_variant_encode(TD_DATA(t, td_variant *)[i], &bytes);
    uint64_t n = bytes.size;
    crc = td_crc32c_extend(crc, &n, 8);
    if (!s) s = append(w, varint, (size_t)(td_wire_write_varint(varint, n) - varint), &ignored);
    if (!s) s = append(w, bytes.data, bytes.size, &crc);
    uint32_t masked = td_crc32c_mask(crc);
    if (!s) s = append(w, &masked, 4, &crc);
  }
  td_strbuf_deinit(&bytes);
  *out_crc = crc;
  return s;
}

static td_status append_elements(td_bundle_writer *w, const td_tensor *t, uint32_t *crc) {
  if (t->dtype == TD_STRING) return append_strings(w, t, crc);
  if (t->dtype == TD_VARIANT) return append_variants(w, t, crc);
  return append(w, t->data, t->size, crc);
}

td_status td_bundle_writer_add(td_bundle_writer *w, td_str key, const td_tensor *t) {
  if (!key.size) return td_invalid_argument("A tensor is to be saved without a name");
  if (!bundle_can_hold((td_dtype)t->dtype)) {
    return td_unimplemented("Saving a tensor of type %s (%.*s)", td_dtype_name(t->dtype),
                            (int)TD_MIN(key.size, (size_t)SHOWN), key.data);
  }
  if (bundle_index_find(&w->index, key)) {
    return td_invalid_argument("Adding duplicate key: %.*s", (int)TD_MIN(key.size, (size_t)SHOWN), key.data);
  }
  bundle_entry e = {.dtype = t->dtype, .offset = (int64_t)w->offset, .slices = TD_STR("")};
  uint32_t crc = 0;
  TD_TRY(append_elements(w, t, &crc));
  e.crc = td_crc32c_mask(crc);
  e.size = (int64_t)w->offset - e.offset;
  td_strbuf shape = {0};
  td_shape_encode(t->rank, t->dims, &shape);
  e.shape = td_strbuf_view(&shape);
  bundle_index_put(&w->index, key, &e);
  td_strbuf_deinit(&shape);
  return TD_STATUS_OK;
}

/* ---- slices ---- */

td_status td_bundle_writer_add_slice(td_bundle_writer *w, td_str key, const td_shape *full, const td_slice *slice,
                                     const td_tensor *t) {
  td_shape part;
  TD_TRY(td_slice_shape(slice, full, &part));
  if (td_shape_eq(&part, full)) return td_bundle_writer_add(w, key, t);
  td_strbuf shape = {0}, message = {0}, name = {0};
  td_status status = TD_STATUS_OK;
  td_shape_encode(full->rank, full->dims, &shape);
  td_slice_encode(slice, &message);
  td_slice_key(key, slice, &name);
  bundle_index_item *item = bundle_index_find(&w->index, key);
  if (!item) {
    bundle_entry e = {.dtype = t->dtype, .shape = td_strbuf_view(&shape), .slices = TD_STR("")};
    item = bundle_index_put(&w->index, key, &e);
  } else if (!item->slice_count) {
    status = td_invalid_argument("Adding duplicate key: %.*s", (int)TD_MIN(key.size, (size_t)SHOWN), key.data);
  } else if (item->dtype != t->dtype || !td_str_eq(item->shape, td_strbuf_view(&shape))) {
    status = td_invalid_argument("Slices of %.*s do not agree in the tensor's type or shape",
                                 (int)TD_MIN(key.size, (size_t)SHOWN), key.data);
  }
  if (!status) {
    bundle_index_add_slice(item, td_strbuf_view(&message));
    status = td_bundle_writer_add(w, td_strbuf_view(&name), t);
  }
  td_strbuf_deinit(&shape);
  td_strbuf_deinit(&message);
  td_strbuf_deinit(&name);
  return status;
}

/* ---- the end ---- */

td_status td_bundle_writer_finish(td_bundle_writer *w) {
  bundle_header header = {.shards = 1, .version = TD_STR("\x08\x01")}; /* producer 1 */
  td_new_file index = {0};
  char *path = bundle_index_path(w->prefix);
  td_status status;
  TD_TRY_GOTO(td_write_behind_finish(w->stream));
  TD_TRY_GOTO(td_new_file_sync(&w->data));
  TD_TRY_GOTO(bundle_index_write(&w->index, &header, path, w->data.when, &index));
  /* an older bundle of this name ends here: its index must not stand beside the new data */
  unlink(path);
  TD_TRY_GOTO(td_new_file_publish(&w->data));
  TD_TRY_GOTO(td_new_file_publish(&index));
  td_file_sync_dir(td_file_dir(td_str_of(w->prefix)), w->data.when);
cleanup:
  td_new_file_deinit(&index);
  td_free(path);
  return status;
}

#include "checkpoint/bundle_entry.h"

#include "proto/wire.h"

enum { HEADER_SHARDS = 1, HEADER_ENDIAN = 2, HEADER_VERSION = 3 };
enum { VERSION_PRODUCER = 1, VERSION_MIN_CONSUMER = 2, VERSION_BAD_CONSUMERS = 3 };
enum { ENTRY_DTYPE = 1, ENTRY_SHAPE, ENTRY_SHARD, ENTRY_OFFSET, ENTRY_SIZE, ENTRY_CRC, ENTRY_SLICES };

/* ---- header ---- */

static td_status check_version(td_str bytes) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  int64_t producer = 0, min_consumer = 0;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.type != TD_WIRE_VARINT) continue;
    if (f.number == VERSION_PRODUCER) producer = (int32_t)f.value;
    if (f.number == VERSION_MIN_CONSUMER) min_consumer = (int32_t)f.value;
    if (f.number == VERSION_BAD_CONSUMERS && f.value == BUNDLE_VERSION) {
      return td_invalid_argument(
          "Checkpoint disallows consumer version %d.  Please upgrade TensorFlow: this version is likely buggy.",
          BUNDLE_VERSION);
    }
  }
  if (bad) return td_invalid_argument("its version is malformed");
  if (min_consumer > BUNDLE_VERSION) {
    return td_invalid_argument(
        "Checkpoint min consumer version %lld above current version %d for TensorFlow %s.  "
        "Please upgrade TensorFlow.",
        (long long)min_consumer, BUNDLE_VERSION, TD_VERSION);
  }
  return producer < 0 ? td_invalid_argument(
                            "Checkpoint producer version %lld below min producer 0 supported by TensorFlow %s.  "
                            "Please regenerate your checkpoint.",
                            (long long)producer, TD_VERSION)
                      : TD_STATUS_OK;
}

td_status bundle_header_decode(td_str bytes, bundle_header *out) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  *out = (bundle_header){.version = TD_STR("")};
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == HEADER_SHARDS && f.type == TD_WIRE_VARINT) out->shards = (int32_t)f.value;
    if (f.number == HEADER_ENDIAN && f.type == TD_WIRE_VARINT) out->is_big_endian = f.value != 0;
    if (f.number == HEADER_VERSION && f.type == TD_WIRE_BYTES) out->version = f.bytes;
  }
  if (bad) return td_invalid_argument("the header is malformed");
  if (out->shards < 0) return td_invalid_argument("the header names %lld shards", (long long)out->shards);
  return check_version(out->version);
}

void bundle_header_encode(const bundle_header *h, td_strbuf *out) {
  td_wire_put_uint(out, HEADER_SHARDS, (uint64_t)h->shards);
  td_wire_put_uint(out, HEADER_ENDIAN, h->is_big_endian);
  td_wire_put_bytes(out, HEADER_VERSION, h->version);
}

/* ---- entry ---- */

td_status bundle_entry_decode(td_str bytes, bundle_entry *out) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  *out = (bundle_entry){.shape = TD_STR(""), .slices = TD_STR("")};
  for (const uint8_t *at = w.next; td_wire_next(&w, &f, &bad); at = w.next) {
    bool is_number = f.type == TD_WIRE_VARINT;
    if (f.number == ENTRY_DTYPE && is_number) out->dtype = (int32_t)f.value;
    if (f.number == ENTRY_SHAPE && f.type == TD_WIRE_BYTES) out->shape = f.bytes;
    if (f.number == ENTRY_SHARD && is_number) out->shard = (int32_t)f.value;
    if (f.number == ENTRY_OFFSET && is_number) out->offset = (int64_t)f.value;
    if (f.number == ENTRY_SIZE && is_number) out->size = (int64_t)f.value;
    if (f.number == ENTRY_CRC && f.type == TD_WIRE_FIXED32) out->crc = (uint32_t)f.value;
    if (f.number == ENTRY_SLICES && f.type == TD_WIRE_BYTES && !out->slices.size) {
      out->slices = td_str_n(at, (size_t)(w.end - at));
    }
  }
  if (bad)
    return td_error(TD_DATA_LOSS, "Entry is malformed at its byte %zu", (size_t)((const char *)w.next - bytes.data));
  if (out->shard < 0 || out->offset < 0 || out->size < 0) {
    return td_error(TD_DATA_LOSS, "Entry has shard %lld, offset %lld, size %lld", (long long)out->shard,
                    (long long)out->offset, (long long)out->size);
  }
  return TD_STATUS_OK;
}

void bundle_entry_encode(const bundle_entry *e, td_strbuf *out) {
  td_str rest = e->slices, slice;
  td_wire_put_uint(out, ENTRY_DTYPE, (uint64_t)e->dtype);
  td_wire_put_bytes(out, ENTRY_SHAPE, e->shape);
  td_wire_put_uint(out, ENTRY_SHARD, (uint64_t)e->shard);
  td_wire_put_uint(out, ENTRY_OFFSET, (uint64_t)e->offset);
  td_wire_put_uint(out, ENTRY_SIZE, (uint64_t)e->size);
  if (e->crc) td_wire_put_fixed32(out, ENTRY_CRC, e->crc);
  while (bundle_next_slice(&rest, &slice)) td_wire_put_bytes(out, ENTRY_SLICES, slice);
}

bool bundle_next_slice(td_str *rest, td_str *out) {
  td_wire w = td_wire_of(*rest);
  td_wire_field f;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number != ENTRY_SLICES || f.type != TD_WIRE_BYTES) continue;
    *rest = td_str_n(w.next, td_wire_left(&w));
    *out = f.bytes;
    return true;
  }
  return false;
}

/* ---- files ---- */

char *bundle_index_path(const char *prefix) { return td_asprintf("%s.index", prefix); }
char *bundle_data_path(const char *prefix, int64_t shard, int64_t shards) {
  return td_asprintf("%s.data-%05lld-of-%05lld", prefix, (long long)shard, (long long)shards);
}

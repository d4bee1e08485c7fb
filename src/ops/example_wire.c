#include "ops/example_wire.h"

#include <endian.h>
#include <string.h>

enum { MAP_ENTRIES = 1, ENTRY_KEY = 1, ENTRY_VALUE = 2, LIST_VALUES = 1 };
enum { FEATURE_BYTES = 1, FEATURE_FLOATS, FEATURE_INTS };

static bool count_varints(td_str s, int64_t *count) {
  size_t run = 0;
  for (size_t i = 0; i < s.size; i++) {
    run++;
    if ((unsigned char)s.data[i] & 0x80) continue;
    if (run > TD_WIRE_MAX_VARINT) return false;
    ++*count;
    run = 0;
  }
  return !run;
}

/* Adds what one field of a list holds; false if it does not fit the type. */
static bool count_field(td_dtype type, const td_wire_field *f, int64_t *count) {
  if (type == TD_STRING) {
    ++*count;
    return f->type == TD_WIRE_BYTES;
  }
  if (f->type == TD_WIRE_BYTES) {
    if (type == TD_INT64) return count_varints(f->bytes, count);
    *count += (int64_t)(f->bytes.size / 4);
    return f->bytes.size % 4 == 0;
  }
  ++*count;
  return f->type == (type == TD_FLOAT ? TD_WIRE_FIXED32 : TD_WIRE_VARINT);
}

bool td_feature_parse(td_str bytes, td_feature *out) {
  static const td_dtype types[] = {TD_INVALID, TD_STRING, TD_FLOAT, TD_INT64};
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  *out = (td_feature){.type = TD_INVALID};
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number < FEATURE_BYTES || f.number > FEATURE_INTS) continue;
    if (f.type != TD_WIRE_BYTES) return false;
    out->type = types[f.number];
    out->list = f.bytes;
  }
  if (bad) return false;
  w = td_wire_of(out->list);
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == LIST_VALUES && !count_field(out->type, &f, &out->count)) return false;
  }
  return !bad;
}

static void copy_floats(td_str s, float *to) {
  for (size_t i = 0; i < s.size / 4; i++) {
    uint32_t u;
    memcpy(&u, s.data + 4 * i, 4);
    u = le32toh(u);
    memcpy(to + i, &u, 4);
  }
}

static int64_t copy_ints(td_str s, int64_t *to) {
  td_wire w = td_wire_of(s);
  uint64_t v;
  int64_t n = 0;
  while (td_wire_left(&w) && td_wire_read_varint(&w, &v)) to[n++] = (int64_t)v;
  return n;
}

td_status td_feature_copy(const td_feature *f, td_tensor *t, int64_t at) {
  td_wire w = td_wire_of(f->list);
  td_wire_field v;
  bool bad = false;
  while (td_wire_next(&w, &v, &bad)) {
    if (v.number != LIST_VALUES) continue;
    if (f->type == TD_STRING) {
      TD_TRY(td_string_set(TD_DATA(t, td_string) + at++, v.bytes));
    } else if (v.type == TD_WIRE_BYTES && f->type == TD_FLOAT) {
      copy_floats(v.bytes, TD_DATA(t, float) + at);
      at += (int64_t)(v.bytes.size / 4);
    } else if (v.type == TD_WIRE_BYTES) {
      at += copy_ints(v.bytes, TD_DATA(t, int64_t) + at);
    } else if (f->type == TD_FLOAT) {
      TD_DATA(t, float)[at++] = td_wire_float(&v);
    } else {
      TD_DATA(t, int64_t)[at++] = (int64_t)v.value;
    }
  }
  return TD_STATUS_OK;
}

static bool walk_map(td_str map, bool (*each)(void *arg, td_str key, td_str value), void *arg) {
  td_wire w = td_wire_of(map), entry;
  td_wire_field f, part;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad)) {
    td_str key = TD_STR(""), value = TD_STR("");
    if (f.number != MAP_ENTRIES) continue;
    if (f.type != TD_WIRE_BYTES) return false;
    entry = td_wire_of(f.bytes);
    while (td_wire_next(&entry, &part, &bad)) {
      if (part.type == TD_WIRE_BYTES && part.number == ENTRY_KEY) key = part.bytes;
      if (part.type == TD_WIRE_BYTES && part.number == ENTRY_VALUE) value = part.bytes;
    }
    if (bad || !each(arg, key, value)) return false;
  }
  return !bad;
}

bool td_feature_map_walk(td_str bytes, uint32_t field, bool (*each)(void *arg, td_str key, td_str value), void *arg) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number != field) continue;
    if (f.type != TD_WIRE_BYTES || !walk_map(f.bytes, each, arg)) return false;
  }
  return !bad;
}

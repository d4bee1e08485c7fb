#include "checkpoint/snappy.h"

#include "base/mem.h"
#include "proto/wire.h"

enum { LITERAL, COPY_1, COPY_2, COPY_4 };
/* Two bytes... of a copy give at most 64: nothing packs better. */
enum { BEST_RATIO = 64 };

/* A literal of up to 2^32 bytes: its length stands in the tag or in the 1 to 4 bytes behind it. */
static bool literal_size(td_wire *w, uint8_t tag, uint64_t *out) {
  uint64_t n = tag >> 2, extra = n < 60 ? 0 : n - 59;
  if (td_wire_left(w) < extra) return false;
  if (extra) {
    n = 0;
    memcpy(&n, w->next, extra); /* little-endian */
    w->next += extra;
  }
  *out = n + 1;
  return true;
}

static bool copy_of(td_wire *w, uint8_t tag, uint64_t *size, uint64_t *distance) {
  size_t bytes = (tag & 3) == COPY_1 ? 1 : (tag & 3) == COPY_2 ? 2 : 4;
  if (td_wire_left(w) < bytes) return false;
  *distance = 0;
  memcpy(distance, w->next, bytes);
  w->next += bytes;
  *size = (tag >> 2) + 1u;
  if (bytes == 1) {
    *size = (tag >> 2 & 7) + 4u;
    *distance |= (uint64_t)(tag >> 5) << 8;
  }
  return true;
}

static bool unpack(td_wire *w, char *to, size_t size) {
  size_t at = 0;
  while (td_wire_left(w)) {
    uint8_t tag = *w->next++;
    uint64_t n, distance;
    if ((tag & 3) == LITERAL) {
      if (!literal_size(w, tag, &n) || n > td_wire_left(w) || n > size - at) return false;
      memcpy(to + at, w->next, n);
      w->next += n;
    } else {
      if (!copy_of(w, tag, &n, &distance) || !distance || distance > at || n > size - at) return false;
      for (uint64_t i = 0; i < n; i++) to[at + i] = to[at + i - distance]; /* may overlap: repeats */
    }
    at += n;
  }
  return at == size;
}

td_status td_snappy_unpack(td_str packed, char **out, size_t *out_size) {
  td_wire w = td_wire_of(packed);
  uint64_t size;
  if (!td_wire_read_varint(&w, &size) || size / BEST_RATIO > packed.size) {
    return td_error(TD_DATA_LOSS, "Snappy block of %zu bytes has a bad length", packed.size);
  }
  char *data = td_try_malloc(size ? size : 1);
  if (!data) return td_resource_exhausted("no memory to unpack %llu bytes", (unsigned long long)size);
  if (!unpack(&w, data, size)) {
    td_free(data);
    return td_error(TD_DATA_LOSS, "Snappy block is corrupt at its byte %zu",
                    (size_t)((const char *)w.next - packed.data));
  }
  *out = data;
  *out_size = size;
  return TD_STATUS_OK;
}

#include "rpc/payload.h"

#include "base/mem.h"

void td_payload_add(td_payload *p, const void *data, size_t size, void (*release)(void *owner), void *owner) {
  if (p->count == p->capacity) {
    p->capacity = p->capacity ? p->capacity * 2 : 4;
    p->segments = td_realloc(p->segments, p->capacity * sizeof *p->segments);
  }
  p->segments[p->count++] = (td_segment){data, size, release, owner};
  p->size += size;
}

void td_payload_copy(td_payload *p, const void *data, size_t size) {
  if (!size) return;
  char *copy = td_malloc(size);
  memcpy(copy, data, size);
  td_payload_take(p, copy, size);
}

void td_payload_take(td_payload *p, void *data, size_t size) { td_payload_add(p, data, size, td_free, data); }

void td_payload_deinit(td_payload *p) {
  for (size_t i = 0; i < p->count; i++)
    if (p->segments[i].release) p->segments[i].release(p->segments[i].owner);
  td_free(p->segments);
  *p = (td_payload){0};
}

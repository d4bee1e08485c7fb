#include "rpc/payload.h"

#include <stdalign.h>

#include "base/mem.h"

/* A message's own memory: its first segments, and small copies, one behind the other. Most messages have one chunk. */
typedef struct td_payload_chunk {
  struct td_payload_chunk *before;
  size_t used, size;
  alignas(16) char bytes[];
} chunk;

enum { FIRST_CHUNK = 464, CHUNK = 4064, SHARED_MAX = 1024, FIRST_SEGMENTS = 4 };

/* `size` bytes of a chunk, aligned if they are its first. */
static void *take_room(td_payload *p, size_t size) {
  chunk *c = p->chunk;
  if (!c || c->size - c->used < size) {
    size_t room = c || size > FIRST_CHUNK ? CHUNK : FIRST_CHUNK;
    c = td_malloc(sizeof *c + room);
    *c = (chunk){.before = p->chunk, .size = room};
    p->chunk = c;
  }
  c->used += size;
  return c->bytes + c->used - size;
}

static void add_room(td_payload *p) {
  size_t size = p->count * sizeof *p->segments;
  p->capacity = p->count ? p->count * 2 : FIRST_SEGMENTS;
  if (!p->count) {
    p->segments = take_room(p, FIRST_SEGMENTS * sizeof *p->segments);
  } else if (p->count == FIRST_SEGMENTS) {
    p->segments = memcpy(td_malloc(2 * size), p->segments, size);
  } else {
    p->segments = td_realloc(p->segments, 2 * size);
  }
}

void td_payload_add(td_payload *p, const void *data, size_t size, void (*release)(void *owner), void *owner) {
  if (p->count == p->capacity) add_room(p);
  p->segments[p->count++] = (td_segment){data, size, release, owner};
  p->size += size;
}

void td_payload_copy(td_payload *p, const void *data, size_t size) {
  if (!size) return;
  if (size > SHARED_MAX) {
    td_payload_take(p, memcpy(td_malloc(size), data, size), size);
    return;
  }
  if (p->count == p->capacity) add_room(p);
  char *to = memcpy(take_room(p, size), data, size);
  td_segment *last = p->count ? &p->segments[p->count - 1] : NULL;
  if (last && !last->release && (const char *)last->data + last->size == to) {
    last->size += size;
    p->size += size;
  } else {
    td_payload_add(p, to, size, NULL, NULL);
  }
}

void td_payload_take(td_payload *p, void *data, size_t size) { td_payload_add(p, data, size, td_free, data); }

void td_payload_deinit(td_payload *p) {
  for (size_t i = 0; i < p->count; i++)
    if (p->segments[i].release) p->segments[i].release(p->segments[i].owner);
  if (p->capacity > FIRST_SEGMENTS) td_free(p->segments);
  for (chunk *c = p->chunk, *before; c; c = before) {
    before = c->before;
    td_free(c);
  }
  *p = (td_payload){0};
}

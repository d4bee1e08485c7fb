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

/* ---- copies ---- */

enum { FIRST_CHUNK = 240, CHUNK = 4080, SHARED_MAX = 1024 };

/* Small copies, one behind the other. A message is on one thread at a time, so the count need not be atomic. */
typedef struct td_payload_chunk {
  uint32_t segments; /* that lie here */
  uint32_t used, size;
  char bytes[];
} chunk;

static void leave_chunk(void *owner) {
  chunk *c = owner;
  if (!--c->segments) td_free(c);
}

static chunk *chunk_for(td_payload *p, size_t size) {
  chunk *c = p->chunk;
  if (c && c->size - c->used >= size) return c;
  uint32_t room = c || size > FIRST_CHUNK ? CHUNK : FIRST_CHUNK;
  c = td_malloc(sizeof *c + room);
  *c = (chunk){.size = room};
  return p->chunk = c;
}

void td_payload_copy(td_payload *p, const void *data, size_t size) {
  if (!size) return;
  if (size > SHARED_MAX) {
    td_payload_take(p, memcpy(td_malloc(size), data, size), size);
    return;
  }
  chunk *c = chunk_for(p, size);
  char *to = memcpy(c->bytes + c->used, data, size);
  td_segment *last = p->count ? &p->segments[p->count - 1] : NULL;
  c->used += (uint32_t)size;
  if (last && last->owner == c) { /* what is in a chunk's last segment ends where the next copy begins */
    last->size += size;
    p->size += size;
  } else {
    c->segments++;
    td_payload_add(p, to, size, leave_chunk, c);
  }
}

void td_payload_take(td_payload *p, void *data, size_t size) { td_payload_add(p, data, size, td_free, data); }

void td_payload_deinit(td_payload *p) {
  for (size_t i = 0; i < p->count; i++)
    if (p->segments[i].release) p->segments[i].release(p->segments[i].owner);
  td_free(p->segments);
  *p = (td_payload){0};
}

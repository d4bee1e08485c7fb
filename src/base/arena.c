#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { ALIGN = 16, FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20 };

struct td_arena_chunk {
  td_arena_chunk *older;
  size_t size; /* of the memory behind this header */
} __attribute__((aligned(16)));

void td_arena_init(td_arena *a) { *a = (td_arena){0}; }

void td_arena_init_with(td_arena *a, void *memory, size_t size) {
  *a = (td_arena){.next = memory, .end = (char *)memory + size};
}

static void add_chunk(td_arena *a, size_t need) {
  size_t size = a->chunks ? TD_MIN(a->chunks->size * 2, (size_t)LARGEST_CHUNK) : FIRST_CHUNK;
  size = TD_MAX(size, need);
  td_arena_chunk *chunk = td_malloc(sizeof *chunk + size);
  chunk->older = a->chunks;
  chunk->size = size;
  a->chunks = chunk;
  a->next = (char *)(chunk + 1);
  a->end = a->next + size;
  a->allocated += size;
}

void *td_arena_alloc(td_arena *a, size_t size) {
  if (size > SIZE_MAX / 2) td_malloc(size); /* no such memory: ends the process, before the sums below wrap */
  size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
  if ((size_t)(a->end - a->next) < size || !a->next) add_chunk(a, size);
  void *p = a->next;
  a->next += size;
  return p;
}

void *td_arena_calloc(td_arena *a, size_t count, size_t size) {
  size_t bytes;
  if (!td_mul_size(count, size, &bytes)) bytes = SIZE_MAX / 2; /* fails in td_malloc */
  return memset(td_arena_alloc(a, bytes), 0, bytes);
}

char *td_arena_strndup(td_arena *a, const char *data, size_t size) {
  char *copy = td_arena_alloc(a, size + 1);
  if (size) memcpy(copy, data, size);
  copy[size] = '\0';
  return copy;
}

char *td_arena_strdup(td_arena *a, const char *s) { return td_arena_strndup(a, s, strlen(s)); }

td_str td_arena_str(td_arena *a, td_str s) { return (td_str){td_arena_strndup(a, s.data, s.size), s.size}; }

char *td_arena_printf(td_arena *a, const char *fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, fmt, args);
  char *text = td_arena_alloc(a, n < 0 ? 1 : (size_t)n + 1);
  if (n < 0 || vsnprintf(text, (size_t)n + 1, fmt, again) < 0) text[0] = '\0';
  va_end(again);
  va_end(args);
  return text;
}

void td_arena_reset(td_arena *a) {
  if (!a->chunks) return;
  for (td_arena_chunk *c = a->chunks->older, *older; c; c = older) {
    older = c->older;
    a->allocated -= c->size;
    td_free(c);
  }
  a->chunks->older = NULL;
  a->next = (char *)(a->chunks + 1);
  a->end = a->next + a->chunks->size;
}

void td_arena_deinit(td_arena *a) {
  for (td_arena_chunk *c = a->chunks, *older; c; c = older) {
    older = c->older;
    td_free(c);
  }
  *a = (td_arena){0};
}

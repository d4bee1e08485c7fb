/* Arena: many small allocations, one release.
 *
 * Allocation is a pointer bump in a chunk; chunks grow geometrically up to 1 MiB. Memory is not zeroed unless
 * asked for. Not thread-safe: an arena belongs to one request, one graph or one step. Sizes that come from outside
 * must be checked by the caller before they are asked for; small allocations end the process when memory is out
 * (base/mem.h).
 */
#ifndef TD_BASE_ARENA_H_
#define TD_BASE_ARENA_H_

#include <stddef.h>

#include "base/str.h"

typedef struct td_arena_chunk td_arena_chunk;

typedef struct td_arena {
  td_arena_chunk *chunks; /* newest first */
  char *next, *end;       /* free part of the newest chunk */
  size_t allocated;       /* bytes of all chunks */
} td_arena;

/* A zeroed td_arena is an empty arena. */
void td_arena_init(td_arena *a);
/* Gives an empty arena memory of the caller's to start with (e.g. on the stack), aligned to 16. */
void td_arena_init_with(td_arena *a, void *memory, size_t size);
void *td_arena_alloc(td_arena *a, size_t size);                     /* 16-byte aligned, never NULL */
void *td_arena_calloc(td_arena *a, size_t count, size_t size);      /* zeroed */
char *td_arena_strndup(td_arena *a, const char *data, size_t size); /* NUL-terminated copy */
char *td_arena_strdup(td_arena *a, const char *s);
td_str td_arena_str(td_arena *a, td_str s); /* copy; also NUL-terminated */
char *td_arena_printf(td_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void td_arena_reset(td_arena *a); /* frees everything but the newest chunk, which is used again */
void td_arena_deinit(td_arena *a);

#define td_arena_new(arena, type)      ((type *)td_arena_calloc((arena), 1, sizeof(type)))
#define td_arena_array(arena, type, n) ((type *)td_arena_calloc((arena), (n), sizeof(type)))

#endif /* TD_BASE_ARENA_H_ */

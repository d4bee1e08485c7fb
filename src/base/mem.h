/* Memory for control data.
 *
 * td_malloc() and its kin serve allocations whose size the program itself decides (a node, a session, a queue
 * entry): when the machine has no memory left for those the process ends with one clear line. Allocations whose
 * size comes from outside (a tensor, a message, a count in a graph) use td_try_malloc() and turn NULL into
 * RESOURCE_EXHAUSTED with the size.
 */
#ifndef TD_BASE_MEM_H_
#define TD_BASE_MEM_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *td_malloc(size_t size) __attribute__((malloc, returns_nonnull));
void *td_calloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *td_calloc_aligned(size_t align, size_t size) __attribute__((malloc, returns_nonnull)); /* a multiple of it */
void *td_realloc(void *p, size_t size) __attribute__((returns_nonnull));
char *td_strdup(const char *s) __attribute__((malloc, returns_nonnull));
char *td_strndup(const char *s, size_t size) __attribute__((malloc, returns_nonnull));
void *td_try_malloc(size_t size) __attribute__((malloc)); /* NULL when there is no such memory */
void td_free(void *p);
/* Ends the process with that line. */
void td_out_of_memory(size_t size) __attribute__((noreturn));

#define td_new(type)          ((type *)td_calloc(1, sizeof(type)))
#define td_new_array(type, n) ((type *)td_calloc((n), sizeof(type)))

/* Grows a vector {items, count, capacity} so that one more item fits. Amortised constant. */
#define TD_GROW(items, count, capacity)                                    \
  do {                                                                     \
    if ((count) == (capacity)) {                                           \
      (capacity) = (capacity) ? (capacity)*2 : 8;                          \
      (items) = td_realloc((items), (size_t)(capacity) * sizeof *(items)); \
    }                                                                      \
  } while (0)

/* Overflow-checked arithmetic: true when the result fits. */
#define td_mul_size(a, b, out) (!__builtin_mul_overflow((a), (b), (out)))
#define td_add_size(a, b, out) (!__builtin_add_overflow((a), (b), (out)))

#define TD_COUNT(array)                  (sizeof(array) / sizeof *(array))
#define TD_MIN(a, b)                     ((a) < (b) ? (a) : (b))
#define TD_MAX(a, b)                     ((a) > (b) ? (a) : (b))
#define TD_CONTAINER_OF(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

#endif /* TD_BASE_MEM_H_ */

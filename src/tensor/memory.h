/* Memory of tensors.
 *
 * Blocks (up to 64 KiB) come from size classes: per-thread free lists in front of shared ones, so that a step
 * allocates without a lock. Larger buffers are mappings of their own, kept for reuse in a pool: large ones are
 * aligned to and advised as huge pages; idle ones go back to the system after a while, or at once above a cap.
 *
 * In builds with a sanitizer nothing is reused: every allocation is the heap's own, so that a write past its end
 * and a use after its release are seen.
 *
 * Thread-safe; memory may be released on another thread than the one that took it. Never blocks for long.
 */
#ifndef TD_TENSOR_MEMORY_H_
#define TD_TENSOR_MEMORY_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  TD_MEMORY_ALIGN = 64,
  TD_MEMORY_LARGEST_BLOCK = 64 << 10,
};

/* A block of at least `size` (<= TD_MEMORY_LARGEST_BLOCK) bytes, 64-byte aligned; NULL when there is no memory.
 * td_memory_block_free() wants the same size. */
void *td_memory_block_alloc(size_t size);
void td_memory_block_free(void *p, size_t size);

/* As td_malloc() and td_free(), for what steps make by the hundred and threads hand to each other: a block if it is
 * small. Never NULL; free wants the same size. */
void *td_memory_object_alloc(size_t size);
void td_memory_object_free(void *p, size_t size);

/* A buffer of at least `size` bytes, 64-byte aligned (2 MiB from that size on); *zeroed says that it is all zero.
 * NULL when there is no memory, or when the process would hold more than its limit in buffers. */
void *td_memory_buffer_alloc(size_t size, bool *zeroed);
/* The same in memory that other processes can map (shared_memory.h); NULL, too, where there is none. */
void *td_memory_lendable_alloc(size_t size, bool *zeroed);
/* Moves the bytes of a lendable buffer to one that is not; the same buffer if that cannot be had. The pages go over a
 * few at a time: both together never take much more than one. */
void *td_memory_buffer_unshare(void *p, size_t size);
void td_memory_buffer_free(void *p, size_t size); /* of either kind */

/* Gives idle buffers back that nobody asked for within the last `age_ms`; 0: all, with this thread's and the shared
 * free blocks. A server calls it from a timer (age 2,000 every second) so that an idle process shrinks; buffers
 * released later trim as well. */
void td_memory_trim(int64_t age_ms);

/* The most bytes that buffers may hold in use; 0 restores the default: the machine's physical memory,
 * or the control group's limit where that is less. */
void td_memory_set_limit(size_t bytes);

typedef struct td_memory_stats {
  size_t buffers_in_use, buffers_idle; /* bytes */
  size_t peak_in_use;
} td_memory_stats;
void td_memory_get_stats(td_memory_stats *out);

#endif /* TD_TENSOR_MEMORY_H_ */

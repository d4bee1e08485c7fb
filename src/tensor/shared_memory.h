/* Memory of tensors that other processes of this machine can map: one range of addresses over one memfd, sparse, of
 * which memory.h takes buffers. What is lent of it, and to whom, is loan.h's business.
 *
 * The memory begins with a `td_shared_control`, which borrowers map writable; the rest they only read. It cannot
 * shrink, so what a borrower has mapped stays readable whatever happens to its owner.
 *
 * Thread-safe.
 */
#ifndef TD_TENSOR_SHARED_MEMORY_H_
#define TD_TENSOR_SHARED_MEMORY_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  TD_SHARED_SLOTS = 8192,
  TD_SHARED_CONTROL = 64 << 10, /* bytes before the first buffer */
};

typedef struct td_shared_control {
  uint64_t magic;
  uint64_t id;                             /* random: tells this memory from any other */
  _Atomic uint32_t slots[TD_SHARED_SLOTS]; /* states of loans, see loan.c */
} td_shared_control;

#define TD_SHARED_MAGIC 0x31746e656c647464ull /* "tdlent1" */

/* The memfd; makes it on the first call, from which on large buffers are taken from it. -1: there is none. */
int td_shared_memory_fd(void);
/* Its beginning; NULL: there is none (yet). */
td_shared_control *td_shared_memory_control(void);
/* `size` bytes (whole pages) that were never taken, all zero, at a multiple of `align` (a power of two) from the
 * beginning; NULL: all are taken, or there is none. */
void *td_shared_memory_take(size_t size, size_t align);
/* Gives the pages back to the system; the addresses stay taken, and read as zeros. */
void td_shared_memory_vacate(void *p, size_t size);

/* Whether the address lies in a buffer of it, */
bool td_shared_memory_holds(const void *p);
/* and where: the distance from the beginning. */
uint64_t td_shared_memory_offset(const void *p);

#endif /* TD_TENSOR_SHARED_MEMORY_H_ */

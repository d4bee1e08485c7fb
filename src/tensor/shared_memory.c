#include "tensor/shared_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/random.h"

static const size_t SIZE = (size_t)64 << 30; /* of addresses: memory is taken as pages are touched */

_Static_assert(sizeof(td_shared_control) <= TD_SHARED_CONTROL, "the control block fits before the buffers");

static struct {
  pthread_once_t once;
  int fd;
  _Atomic(char *) base; /* NULL: there is none */
  atomic_size_t next;   /* offset of what was never taken */
} memory = {.once = PTHREAD_ONCE_INIT, .fd = -1};

/* Where files may not become so large, trying it would end the process. */
static bool may_be_so_large(void) {
  struct rlimit limit;
  return !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur >= SIZE;
}

static void make(void) {
  if (!may_be_so_large()) return;
  int fd = memfd_create("tensord", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return;
  void *p = MAP_FAILED;
  if (!ftruncate(fd, (off_t)SIZE) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
    p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) {
    close(fd);
    return;
  }
  madvise(p, SIZE, MADV_HUGEPAGE); /* granted where the system's shmem_enabled is "advise" */
  td_shared_control *c = p;
  c->magic = TD_SHARED_MAGIC;
  c->id = td_random_u64_nonzero();
  memory.fd = fd;
  atomic_store(&memory.next, TD_SHARED_CONTROL);
  atomic_store_explicit(&memory.base, p, memory_order_release);
}

int td_shared_memory_fd(void) {
  pthread_once(&memory.once, make);
  return memory.fd;
}

static char *base(void) { return atomic_load_explicit(&memory.base, memory_order_acquire); }

td_shared_control *td_shared_memory_control(void) { return (td_shared_control *)base(); }

void *td_shared_memory_take(size_t size, size_t align) {
  char *b = base();
  size_t next = atomic_load_explicit(&memory.next, memory_order_relaxed), at;
  do {
    at = (next + align - 1) & ~(align - 1);
    if (!b || at > SIZE || size > SIZE - at) return NULL;
  } while (!atomic_compare_exchange_weak_explicit(&memory.next, &next, at + size, memory_order_relaxed,
                                                  memory_order_relaxed));
  return b + at;
}

void td_shared_memory_vacate(void *p, size_t size) {
  if (madvise(p, size, MADV_REMOVE)) memset(p, 0, size); /* it stays in memory, but reads as promised */
}

bool td_shared_memory_holds(const void *p) {
  const char *b = base();
  return b && (uintptr_t)p - (uintptr_t)b - TD_SHARED_CONTROL < SIZE - TD_SHARED_CONTROL;
}

uint64_t td_shared_memory_offset(const void *p) { return (uint64_t)((uintptr_t)p - (uintptr_t)base()); }

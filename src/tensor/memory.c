#include "tensor/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tensor/shared_memory.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIN_HEAP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define PLAIN_HEAP 1
#endif
#endif
#ifndef PLAIN_HEAP
#define PLAIN_HEAP 0
#endif

#define KIB       ((size_t)1 << 10)
#define MIB       ((size_t)1 << 20)
#define HUGE_PAGE (2 * MIB)

/* ---- blocks --------------------------------------------------------------------------------------------------- */

/* Classes: every multiple of 64 to 512, then four to a doubling up to 64 KiB: 36. */
enum { BLOCK_CLASSES = 8 + 4 * 7 };

static int block_class(size_t size) {
  if (size <= 512) return size ? (int)((size - 1) / 64) : 0;
  int shift = 61 - __builtin_clzl(size - 1); /* of a quarter of the power of two below size */
  return 8 + 4 * (shift - 7) + (int)(((size - 1) >> shift) & 3);
}

static size_t block_class_size(int c) {
  if (c < 8) return (size_t)(c + 1) * 64;
  int shift = 7 + (c - 8) / 4;
  return ((size_t)(c - 8) % 4 + 5) << shift;
}

typedef struct free_block free_block;
struct free_block {
  free_block *next;
};

typedef struct block_list {
  free_block *first;
  uint32_t count;
} block_list;

typedef struct thread_blocks {
  block_list lists[BLOCK_CLASSES];
  bool registered; /* with thread_key, whose destructor empties the lists */
} thread_blocks;

/* Free memory is the process's, whoever takes it: the one thing that several servers in a process share. */
static struct {
  pthread_mutex_t lock;
  block_list lists[BLOCK_CLASSES];
  size_t bytes; /* in all of them */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local thread_blocks mine;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;

/* A step that moves hundreds of small tensors finds them all again. */
enum { THREAD_LIST_BYTES = 128 << 10, SHARED_BYTES = 16 << 20 };

static uint32_t thread_limit(size_t size) {
  size_t n = THREAD_LIST_BYTES / size;
  return (uint32_t)TD_MIN(TD_MAX(n, (size_t)2), (size_t)64);
}

static void push(block_list *l, free_block *b) {
  b->next = l->first;
  l->first = b;
  l->count++;
}

static free_block *pop(block_list *l) {
  free_block *b = l->first;
  if (b) {
    l->first = b->next;
    l->count--;
  }
  return b;
}

static void free_list(block_list *l) {
  for (free_block *b; (b = pop(l));) free(b);
}

/* Moves blocks of class `c` to the shared list until `keep` are left; what that may not hold is freed. */
static void spill(thread_blocks *t, int c, uint32_t keep) {
  block_list rest = {0};
  size_t size = block_class_size(c);
  pthread_mutex_lock(&shared.lock);
  while (t->lists[c].count > keep) {
    free_block *b = pop(&t->lists[c]);
    bool fits = shared.bytes + size <= SHARED_BYTES;
    push(fits ? &shared.lists[c] : &rest, b);
    if (fits) shared.bytes += size;
  }
  pthread_mutex_unlock(&shared.lock);
  free_list(&rest);
}

static void thread_ends(void *arg) {
  thread_blocks *t = arg;
  for (int c = 0; c < BLOCK_CLASSES; c++) {
    if (t->lists[c].count) spill(t, c, 0);
  }
  t->registered = false; /* another destructor may yet release a tensor: it registers again */
}

static void make_thread_key(void) { (void)!pthread_key_create(&thread_key, thread_ends); }

static void register_thread(void) {
  pthread_once(&thread_once, make_thread_key);
  pthread_setspecific(thread_key, &mine);
  mine.registered = true;
}

static free_block *refill(int c, size_t size) {
  block_list *list = &mine.lists[c];
  uint32_t want = thread_limit(size) / 2;
  pthread_mutex_lock(&shared.lock);
  free_block *b = pop(&shared.lists[c]);
  if (b) shared.bytes -= size;
  while (b && list->count < want && shared.lists[c].first) {
    push(list, pop(&shared.lists[c]));
    shared.bytes -= size;
  }
  pthread_mutex_unlock(&shared.lock);
  return b;
}

void *td_memory_block_alloc(size_t size) {
  if (PLAIN_HEAP) return aligned_alloc(TD_MEMORY_ALIGN, TD_MAX((size + 63) & ~(size_t)63, (size_t)64));
  int c = block_class(size);
  free_block *b = pop(&mine.lists[c]);
  if (b) return b;
  size = block_class_size(c);
  b = refill(c, size);
  return b ? b : aligned_alloc(TD_MEMORY_ALIGN, size);
}

void td_memory_block_free(void *p, size_t size) {
  if (PLAIN_HEAP) {
    free(p);
    return;
  }
  if (!mine.registered) register_thread();
  int c = block_class(size);
  push(&mine.lists[c], p);
  uint32_t limit = thread_limit(block_class_size(c));
  if (mine.lists[c].count > limit) spill(&mine, c, limit / 2);
}

void *td_memory_object_alloc(size_t size) {
  if (size > TD_MEMORY_LARGEST_BLOCK) return td_malloc(size);
  void *p = td_memory_block_alloc(size);
  if (!p) td_out_of_memory(size);
  return p;
}

void td_memory_object_free(void *p, size_t size) {
  if (size > TD_MEMORY_LARGEST_BLOCK)
    td_free(p);
  else
    td_memory_block_free(p, size);
}

/* ---- buffers -------------------------------------------------------------------------------------------------- */

/* Classes: eight to a doubling from 64 KiB (2^16) on, in whole pages (huge ones from 16 MiB on). */
enum { BUFFER_STEPS = 8, BUFFER_CLASSES = 48 * BUFFER_STEPS };

static size_t buffer_class(size_t size, int *c) {
  int shift = 60 - __builtin_clzl(size - 1);
  size_t eighth = ((size - 1) >> shift) + 1; /* 9 … 16 eighths of the power of two below size */
  *c = (shift - 12) * BUFFER_STEPS + (int)eighth - 9;
  return eighth << shift;
}

/* An idle buffer is noted in a node of its own: writing into the buffer would touch a page. */
typedef struct idle_buffer idle_buffer;
struct idle_buffer {
  void *data;
  size_t size; /* of its class */
  uint64_t since_ns;
  idle_buffer *below;         /* in its class's stack */
  idle_buffer *older, *newer; /* in the list of all */
  idle_buffer **stack;        /* its class's */
};

static struct {
  pthread_mutex_t lock;
  idle_buffer *classes[BUFFER_CLASSES], *lendable[BUFFER_CLASSES];
  idle_buffer *vacant[BUFFER_CLASSES]; /* addresses of lendable ones whose pages went back */
  idle_buffer *oldest, *newest;
  size_t idle, in_use, peak, limit, physical;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const uint64_t KEEP_NS = 2000000000; /* an idle buffer's life while others come and go */

/* The control group's memory limit; SIZE_MAX when there is none, or none that this process may see. */
static size_t group_limit(void) {
  size_t limit = SIZE_MAX;
  FILE *f = fopen("/sys/fs/cgroup/memory.max", "re");
  if (!f) return limit;
  if (fscanf(f, "%zu", &limit) != 1 || !limit) limit = SIZE_MAX; /* "max" */
  fclose(f);
  return limit;
}

static size_t physical_memory(void) {
  if (!pool.physical) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t all = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX / 2;
    pool.physical = TD_MIN(all, group_limit());
  }
  return pool.physical;
}

static size_t idle_cap(void) { return TD_MAX(physical_memory() / 8, 64 * MIB); }

/* Takes `b` out of both lists. It need not be the top of its stack: the oldest is the bottom. */
static void unlink_idle(idle_buffer *b) {
  idle_buffer **at = b->stack;
  while (*at != b) at = &(*at)->below;
  *at = b->below;
  *(b->older ? &b->older->newer : &pool.oldest) = b->newer;
  *(b->newer ? &b->newer->older : &pool.newest) = b->older;
  pool.idle -= b->size;
}

/* Unlinks idle buffers older than `before_ns`, and older ones until the pool is within `cap`; chained by `below`. */
static idle_buffer *take_old(uint64_t before_ns, size_t cap) {
  idle_buffer *out = NULL;
  while (pool.oldest && (pool.oldest->since_ns <= before_ns || pool.idle > cap)) {
    idle_buffer *b = pool.oldest;
    unlink_idle(b);
    b->below = out;
    out = b;
  }
  return out;
}

/* Lendable addresses cannot go back, only their pages. */
static void vacate(idle_buffer *b) {
  idle_buffer **stack = &pool.vacant[b->stack - pool.lendable];
  td_shared_memory_vacate(b->data, b->size);
  pthread_mutex_lock(&pool.lock);
  b->below = *stack;
  *stack = b;
  pthread_mutex_unlock(&pool.lock);
}

static void unmap_all(idle_buffer *b) {
  for (idle_buffer *below; b; b = below) {
    below = b->below;
    if (td_shared_memory_holds(b->data)) {
      vacate(b);
    } else {
      munmap(b->data, b->size);
      free(b);
    }
  }
}

static void *map_lendable(size_t size, int c) {
  pthread_mutex_lock(&pool.lock);
  idle_buffer *b = pool.vacant[c];
  if (b) pool.vacant[c] = b->below;
  pthread_mutex_unlock(&pool.lock);
  if (!b) return td_shared_memory_take(size, size >= HUGE_PAGE ? HUGE_PAGE : TD_MEMORY_ALIGN);
  void *p = b->data;
  free(b);
  return p;
}

static void *map_buffer(size_t size) {
  size_t align = size >= HUGE_PAGE ? HUGE_PAGE : 0;
  char *p = mmap(NULL, size + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  if (!align) return p;
  char *start = (char *)(((uintptr_t)p + align - 1) & ~(uintptr_t)(align - 1));
  if (start > p) munmap(p, (size_t)(start - p));
  if (start + size < p + size + align) munmap(start + size, (size_t)(p + align - start));
  madvise(start, size, MADV_HUGEPAGE);
  return start;
}

/* Counts `size` bytes as in use; false when that would pass the limit. */
static bool reserve(size_t size) {
  size_t limit = pool.limit ? pool.limit : physical_memory();
  if (size > limit || pool.in_use > limit - size) return false;
  pool.in_use += size;
  if (pool.in_use > pool.peak) pool.peak = pool.in_use;
  return true;
}

static void unreserve(size_t size) {
  pthread_mutex_lock(&pool.lock);
  pool.in_use -= size;
  pthread_mutex_unlock(&pool.lock);
}

static void *buffer_alloc(size_t size, bool is_lendable, bool *zeroed) {
  *zeroed = false;
  size = TD_MAX(size, 64 * KIB);
  if (size > (size_t)1 << 60) return NULL;
  int c;
  size_t whole = buffer_class(size, &c);
  pthread_mutex_lock(&pool.lock);
  bool fits = reserve(whole);
  idle_buffer *b = fits ? (is_lendable ? pool.lendable : pool.classes)[c] : NULL;
  if (b) unlink_idle(b);
  pthread_mutex_unlock(&pool.lock);
  if (!fits) return NULL;
  void *p;
  if (b) {
    p = b->data;
    free(b);
    return p;
  }
  if (PLAIN_HEAP && !is_lendable) {
    p = aligned_alloc(TD_MEMORY_ALIGN, (size + 63) & ~(size_t)63);
  } else {
    p = is_lendable ? map_lendable(whole, c) : map_buffer(whole);
    *zeroed = p != NULL;
  }
  if (!p) unreserve(whole);
  return p;
}

void *td_memory_buffer_alloc(size_t size, bool *zeroed) { return buffer_alloc(size, false, zeroed); }

void *td_memory_lendable_alloc(size_t size, bool *zeroed) { return buffer_alloc(size, true, zeroed); }

/* Without a node to note it in: it cannot be kept. */
static void free_at_once(void *p, size_t size, bool is_lendable) {
  unreserve(size);
  if (is_lendable)
    td_shared_memory_vacate(p, size); /* the addresses are lost: they are many */
  else if (PLAIN_HEAP)
    free(p);
  else
    munmap(p, size);
}

void td_memory_buffer_free(void *p, size_t size) {
  size = TD_MAX(size, 64 * KIB);
  int c;
  size_t whole = buffer_class(size, &c);
  bool is_lendable = td_shared_memory_holds(p);
  idle_buffer *b = PLAIN_HEAP && !is_lendable ? NULL : malloc(sizeof *b);
  if (!b) {
    free_at_once(p, whole, is_lendable);
    return;
  }
  uint64_t now = td_now_ns();
  idle_buffer **stack = is_lendable ? &pool.lendable[c] : &pool.classes[c];
  pthread_mutex_lock(&pool.lock);
  pool.in_use -= whole;
  pool.idle += whole;
  *b = (idle_buffer){p, whole, now, *stack, pool.newest, NULL, stack};
  *stack = b;
  *(pool.newest ? &pool.newest->newer : &pool.oldest) = b;
  pool.newest = b;
  idle_buffer *old = take_old(now > KEEP_NS ? now - KEEP_NS : 0, idle_cap());
  pthread_mutex_unlock(&pool.lock);
  unmap_all(old);
}

void *td_memory_buffer_unshare(void *p, size_t size) {
  static const size_t PART = 16 * MIB;
  bool zeroed;
  char *from = p, *to = td_memory_buffer_alloc(size, &zeroed);
  if (!to) return p;
  for (size_t at = 0; at < size; at += PART) {
    size_t part = TD_MIN(PART, size - at);
    memcpy(to + at, from + at, part);
    if (size > PART) td_shared_memory_vacate(from + at, part);
  }
  td_memory_buffer_free(p, size);
  return to;
}

/* ---- upkeep --------------------------------------------------------------------------------------------------- */

static void trim_blocks(void) {
  for (int c = 0; c < BLOCK_CLASSES; c++) {
    free_list(&mine.lists[c]);
    pthread_mutex_lock(&shared.lock);
    block_list list = shared.lists[c];
    shared.bytes -= list.count * block_class_size(c);
    shared.lists[c] = (block_list){0};
    pthread_mutex_unlock(&shared.lock);
    free_list(&list);
  }
}

void td_memory_trim(int64_t age_ms) {
  if (age_ms <= 0) trim_blocks();
  uint64_t now = td_now_ns(), age_ns = age_ms > 0 ? (uint64_t)age_ms * 1000000 : 0;
  uint64_t before = !age_ns ? UINT64_MAX : now > age_ns ? now - age_ns : 0;
  pthread_mutex_lock(&pool.lock);
  idle_buffer *old = take_old(before, SIZE_MAX);
  pthread_mutex_unlock(&pool.lock);
  unmap_all(old);
}

void td_memory_set_limit(size_t bytes) {
  pthread_mutex_lock(&pool.lock);
  pool.limit = bytes;
  pthread_mutex_unlock(&pool.lock);
}

void td_memory_get_stats(td_memory_stats *out) {
  pthread_mutex_lock(&pool.lock);
  *out = (td_memory_stats){pool.in_use, pool.idle, pool.peak};
  pthread_mutex_unlock(&pool.lock);
}

#include "tensor/loan.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "tensor/memory.h"
#include "tensor/shared_memory.h"

/* A slot's word: the loan's ticket, which no other loan of that slot had lately, and its state. */
enum { UNUSED, OFFERED, TAKEN, RETURNED, STATE_BITS = 2, STATE_MASK = 3 };

static uint32_t word_of(uint32_t ticket, unsigned state) { return ticket << STATE_BITS | state; }

/* From one state to the next, if the loan is still that one and in that state. */
static bool move(_Atomic uint32_t *word, uint32_t ticket, unsigned from, unsigned to) {
  uint32_t expected = word_of(ticket, from);
  /* acq_rel: who takes back what was lent sees the borrower's last look at it before it writes there again */
  return atomic_compare_exchange_strong_explicit(word, &expected, word_of(ticket, to), memory_order_acq_rel,
                                                 memory_order_acquire);
}

static bool has_ended(int pidfd) {
  struct pollfd p = {.fd = pidfd, .events = POLLIN};
  return poll(&p, 1, 0) > 0;
}

/* ---- the side that lends ---- */

static const size_t COPY_MAX = 4 << 20; /* a copy is made on a loop thread */
static const size_t PARCELS_MAX = 64 << 20;
enum { LOOKS = 16, ENDED_AT_ONCE = 32 };

typedef struct borrower borrower;
struct borrower {
  pid_t pid;
  int pidfd;
  size_t loans;
  bool is_gone; /* its process; as td_loans_collect() last saw it */
  borrower *next;
};

typedef struct record {
  td_tensor *tensor; /* retained */
  borrower *borrower;
  const void *step; /* NULL: it has ended */
  bool is_parcel;
} record;

static struct {
  pthread_mutex_t lock;
  atomic_size_t count; /* loans; read without the lock */
  /* guarded by lock */
  borrower *borrowers;
  size_t parcels;                   /* bytes of those that are lent */
  uint32_t ticket, fresh;           /* the last one given; slots that were ever used */
  uint32_t active[TD_SHARED_SLOTS]; /* slots of the loans, in any order, */
  uint32_t spare[TD_SHARED_SLOTS];  /* and those that are free again */
  uint32_t spare_count, cursor;
  record records[TD_SHARED_SLOTS]; /* by slot */
} book = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint64_t td_loan_memory(void) {
  const td_shared_control *c = td_shared_memory_control();
  return c ? c->id : 0;
}

size_t td_loans_count(void) { return atomic_load_explicit(&book.count, memory_order_relaxed); }

/* Tensors whose loans have ended: released without the lock. */
typedef struct ended {
  td_tensor *items[ENDED_AT_ONCE];
  int count;
} ended;

static void release_all(ended *e) {
  for (int i = 0; i < e->count; i++) td_tensor_release(e->items[i]);
  e->count = 0;
}

/* With the lock held: the loan at `place` of the active ones has ended. */
static void end(uint32_t place, ended *e) {
  uint32_t slot = book.active[place];
  record *r = &book.records[slot];
  size_t count = atomic_load_explicit(&book.count, memory_order_relaxed) - 1;
  book.active[place] = book.active[count];
  atomic_store_explicit(&book.count, count, memory_order_relaxed);
  book.spare[book.spare_count++] = slot;
  e->items[e->count++] = r->tensor;
  r->borrower->loans--;
  if (r->is_parcel) book.parcels -= r->tensor->size;
  *r = (record){0};
}

typedef bool over_fn(record *r, _Atomic uint32_t *word, const void *arg);

/* With the lock held: ends the loan at `place` if `over` says so. */
static bool end_if(uint32_t place, over_fn *over, const void *arg, ended *e) {
  uint32_t slot = book.active[place];
  bool is_over = over(&book.records[slot], &td_shared_memory_control()->slots[slot], arg);
  if (is_over) end(place, e);
  return is_over;
}

static bool is_returned(record *r, _Atomic uint32_t *word, const void *arg) {
  return (atomic_load_explicit(word, memory_order_acquire) & STATE_MASK) == RETURNED;
}

/* Takes back what was returned, as far as a look in passing goes. */
static void look(void) {
  ended e = {.count = 0};
  pthread_mutex_lock(&book.lock);
  for (int i = 0; i < LOOKS && td_loans_count(); i++) {
    if (book.cursor >= td_loans_count()) book.cursor = 0;
    if (!end_if(book.cursor, is_returned, NULL, &e)) book.cursor++;
  }
  pthread_mutex_unlock(&book.lock);
  release_all(&e);
}

/* Ends every loan that is over. */
static void end_all(over_fn *over, const void *arg) {
  ended e = {.count = 0};
  bool is_whole = false;
  while (!is_whole) { /* from the start: others may have moved some meanwhile */
    pthread_mutex_lock(&book.lock);
    for (uint32_t at = 0; at < td_loans_count() && e.count < ENDED_AT_ONCE;)
      if (!end_if(at, over, arg, &e)) at++;
    is_whole = e.count < ENDED_AT_ONCE;
    pthread_mutex_unlock(&book.lock);
    release_all(&e);
  }
}

static bool is_void(record *r, _Atomic uint32_t *word, const void *step) {
  if (r->step != step) return false;
  uint32_t ticket = atomic_load_explicit(word, memory_order_acquire) >> STATE_BITS;
  if (move(word, ticket, OFFERED, RETURNED)) return true;
  r->step = NULL; /* its address may soon be another step's */
  return false;
}

void td_loans_withdraw(const void *step) {
  if (td_loans_count()) end_all(is_void, step);
}

static bool is_returned_or_lost(record *r, _Atomic uint32_t *word, const void *arg) {
  return r->borrower->is_gone || is_returned(r, word, NULL);
}

/* With the lock held: forgets processes that are gone. */
static void forget_gone(void) {
  for (borrower **at = &book.borrowers, *b; (b = *at);) {
    b->is_gone = has_ended(b->pidfd);
    if (!b->is_gone || b->loans) {
      at = &b->next;
      continue;
    }
    *at = b->next;
    close(b->pidfd);
    td_free(b);
  }
}

/* With the lock held; NULL: the process is gone, or cannot be watched. */
static borrower *find_borrower(pid_t pid) {
  for (borrower *b = book.borrowers; b; b = b->next)
    if (b->pid == pid && !has_ended(b->pidfd)) return b;
  forget_gone();
  int fd = pidfd_open(pid, 0);
  if (fd < 0) return NULL;
  borrower *b = td_new(borrower);
  *b = (borrower){.pid = pid, .pidfd = fd, .next = book.borrowers};
  book.borrowers = b;
  return b;
}

/* With the lock held: TD_SHARED_SLOTS if all are used. */
static uint32_t take_slot(void) {
  if (book.spare_count) return book.spare[--book.spare_count];
  return book.fresh < TD_SHARED_SLOTS ? book.fresh++ : TD_SHARED_SLOTS;
}

/* Takes the tensor if it is true. */
static bool enter(td_tensor *t, bool is_parcel, pid_t pid, const void *step, td_loan *out) {
  if (is_parcel && book.parcels + t->size > PARCELS_MAX) return false;
  borrower *b = find_borrower(pid);
  if (!b) return false;
  uint32_t slot = take_slot();
  if (slot == TD_SHARED_SLOTS) return false;
  book.ticket = (book.ticket + 1) & UINT32_MAX >> STATE_BITS;
  book.records[slot] = (record){t, b, step, is_parcel};
  if (is_parcel) book.parcels += t->size;
  book.active[td_loans_count()] = slot;
  atomic_fetch_add_explicit(&book.count, 1, memory_order_relaxed);
  b->loans++;
  atomic_store_explicit(&td_shared_memory_control()->slots[slot], word_of(book.ticket, OFFERED), memory_order_release);
  *out = (td_loan){td_shared_memory_offset(t->data), slot, book.ticket};
  return true;
}

/* One reference to a lendable tensor of the same elements; NULL: there can be none. */
static td_tensor *lendable(td_tensor *t) {
  if (td_tensor_is_lendable(t) && !((uintptr_t)t->data % TD_MEMORY_ALIGN)) return td_tensor_retain(t);
  td_tensor *copy = NULL;
  if (t->size > COPY_MAX || !(td_tensor_is_lendable(t) || td_tensor_could_be_lendable(t))) return NULL;
  td_status s = td_tensor_copy(t, &copy);
  if (!s && td_tensor_is_lendable(copy)) return copy;
  td_status_free(s);
  td_tensor_release(copy);
  return NULL;
}

/* Takes the tensor, which may be NULL. */
static bool offer(td_tensor *t, bool is_parcel, pid_t pid, const void *step, td_loan *out) {
  if (!t) return false;
  pthread_mutex_lock(&book.lock);
  bool is_entered = enter(t, is_parcel, pid, step, out);
  pthread_mutex_unlock(&book.lock);
  if (!is_entered) td_tensor_release(t);
  return is_entered;
}

bool td_loan_offer(td_tensor *t, pid_t pid, const void *step, td_loan *out) {
  if (!td_shared_memory_control()) return false;
  look(); /* a copy may use the memory */
  return offer(lendable(t), false, pid, step, out);
}

char *td_loan_offer_parcel(size_t size, pid_t pid, const void *step, td_loan *out) {
  td_tensor *t = NULL;
  if (!td_shared_memory_control() || size > PARCELS_MAX) return NULL;
  look();
  int64_t bytes = (int64_t)TD_MAX(size, (size_t)TD_MEMORY_LARGEST_BLOCK + 1); /* else it would not be lendable */
  td_status s = td_tensor_create_dims(TD_UINT8, 1, &bytes, &t);
  td_status_free(s);
  if (s) return NULL;
  char *data = t->data;
  if (!td_tensor_is_lendable(t)) {
    td_tensor_release(t);
    return NULL;
  }
  return offer(t, true, pid, step, out) ? data : NULL;
}

/* ---- the side that borrows ---- */

struct td_lender {
  atomic_uint refs;
  uint64_t id;
  dev_t device;
  ino_t file;
  size_t size;
  int pidfd;
  /* guarded by the list's lock */
  td_lender *next;
  size_t borrowed;            /* loans of it */
  const char *base;           /* read-only; NULL: its process is gone, and with it the mappings */
  td_shared_control *control; /* its beginning, writable */
};

static struct {
  pthread_mutex_t lock;
  td_lender *first; /* guarded by lock */
  atomic_size_t mapped;
} lenders = {.lock = PTHREAD_MUTEX_INITIALIZER};

size_t td_lenders_count(void) { return atomic_load_explicit(&lenders.mapped, memory_order_relaxed); }

/* Takes the pidfd if it succeeds. */
static td_lender *map_lender(int fd, const struct stat *st, int pidfd) {
  size_t size = (size_t)st->st_size;
  void *control = mmap(NULL, TD_SHARED_CONTROL, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (control == MAP_FAILED) return NULL;
  void *base = MAP_FAILED;
  if (((td_shared_control *)control)->magic == TD_SHARED_MAGIC && ((td_shared_control *)control)->id)
    base = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    munmap(control, TD_SHARED_CONTROL);
    return NULL;
  }
  td_lender *l = td_new(td_lender);
  *l = (td_lender){.id = ((td_shared_control *)control)->id,
                   .device = st->st_dev,
                   .file = st->st_ino,
                   .size = size,
                   .pidfd = pidfd,
                   .base = base,
                   .control = control};
  atomic_init(&l->refs, 1);
  atomic_fetch_add_explicit(&lenders.mapped, 1, memory_order_relaxed);
  return l;
}

/* With the lock held, or nobody else left. */
static void unmap_lender(td_lender *l) {
  if (!l->base) return;
  munmap((void *)l->base, l->size);
  munmap(l->control, TD_SHARED_CONTROL);
  l->base = NULL;
  l->control = NULL;
  atomic_fetch_sub_explicit(&lenders.mapped, 1, memory_order_relaxed);
}

/* A process's memory is freed when nobody has it mapped. */
static void unmap_gone(void) {
  pthread_mutex_lock(&lenders.lock);
  for (td_lender *l = lenders.first; l; l = l->next)
    if (!l->borrowed && l->base && has_ended(l->pidfd)) unmap_lender(l);
  pthread_mutex_unlock(&lenders.lock);
}

/* A memfd that cannot shrink under us. */
static bool is_shared_memory(int fd, struct stat *st) {
  int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, st) && st->st_size > TD_SHARED_CONTROL;
}

/* With the lock held: the mapping of that file. */
static td_lender *find_lender(const struct stat *st) {
  for (td_lender *l = lenders.first; l; l = l->next)
    if (l->device == st->st_dev && l->file == st->st_ino && l->base) return td_lender_retain(l);
  return NULL;
}

td_lender *td_lender_open(pid_t pid, int fd) {
  char path[64];
  struct stat st;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
  int pidfd = pidfd_open(pid, 0), own = pidfd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  td_lender *l = NULL, *fresh = NULL;
  pthread_mutex_lock(&lenders.lock);
  if (own >= 0 && is_shared_memory(own, &st)) {
    l = find_lender(&st);
    if (!l) l = fresh = map_lender(own, &st, pidfd);
    if (fresh) {
      fresh->next = lenders.first;
      lenders.first = fresh;
    }
  }
  pthread_mutex_unlock(&lenders.lock);
  if (own >= 0) close(own);
  if (pidfd >= 0 && !fresh) close(pidfd);
  return l;
}

td_lender *td_lender_retain(td_lender *l) {
  atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
  return l;
}

void td_lender_release(td_lender *l) {
  if (!l) return;
  unsigned refs = atomic_load_explicit(&l->refs, memory_order_relaxed);
  /* acq_rel: the last owner sees every use before it unmaps */
  while (refs > 1)
    if (atomic_compare_exchange_weak_explicit(&l->refs, &refs, refs - 1, memory_order_acq_rel, memory_order_relaxed))
      return;
  pthread_mutex_lock(&lenders.lock); /* the last one goes where nobody can find it meanwhile */
  bool is_last = atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1;
  td_lender **at = &lenders.first;
  while (is_last && *at != l) at = &(*at)->next;
  if (is_last) *at = l->next;
  pthread_mutex_unlock(&lenders.lock);
  if (!is_last) return;
  unmap_lender(l);
  close(l->pidfd);
  td_free(l);
}

uint64_t td_lender_memory(const td_lender *l) { return l->id; }

struct td_borrowed {
  td_foreign_memory memory;
  atomic_uint refs;  /* its taker's, and one for each tensor over it */
  td_lender *lender; /* retained */
  uint32_t slot, ticket;
};

/* Counts one more loan of the memory, which stays mapped then; false: it no longer is. */
static bool hold(td_lender *l) {
  pthread_mutex_lock(&lenders.lock);
  bool is_mapped = l->base;
  l->borrowed += is_mapped;
  pthread_mutex_unlock(&lenders.lock);
  if (is_mapped) td_lender_retain(l);
  return is_mapped;
}

static void let_go(td_lender *l) {
  pthread_mutex_lock(&lenders.lock);
  l->borrowed--;
  pthread_mutex_unlock(&lenders.lock);
  td_lender_release(l);
}

void td_borrowed_release(td_borrowed *b) {
  /* acq_rel: the last owner's return comes after every look at the memory */
  if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
  move(&b->lender->control->slots[b->slot], b->ticket, TAKEN, RETURNED);
  let_go(b->lender);
  td_memory_object_free(b, sizeof *b);
}

static void release_memory(td_foreign_memory *m) { td_borrowed_release(TD_CONTAINER_OF(m, td_borrowed, memory)); }

td_status td_lender_take(td_lender *l, const td_loan *loan, td_borrowed **out) {
  if (loan->slot >= TD_SHARED_SLOTS)
    return td_invalid_argument("No tensor can be lent with slot %u, of %d", loan->slot, (int)TD_SHARED_SLOTS);
  if (!hold(l)) return td_aborted("A tensor was offered by a process that has gone");
  if (!move(&l->control->slots[loan->slot], loan->ticket, OFFERED, TAKEN)) {
    let_go(l);
    return td_aborted("A tensor that was offered has been withdrawn: its step has ended");
  }
  td_borrowed *b = td_memory_object_alloc(sizeof *b);
  *b = (td_borrowed){.memory = {release_memory}, .lender = l, .slot = loan->slot, .ticket = loan->ticket};
  atomic_init(&b->refs, 1);
  *out = b;
  return TD_STATUS_OK;
}

bool td_borrowed_is(const td_borrowed *b, const td_loan *loan) {
  return b->slot == loan->slot && b->ticket == loan->ticket;
}

td_status td_borrowed_tensor(td_borrowed *b, uint64_t offset, td_dtype dtype, int rank, const int64_t *dims,
                             td_tensor **out) {
  const td_lender *l = b->lender;
  if (offset < TD_SHARED_CONTROL || offset >= l->size || offset % TD_MEMORY_ALIGN)
    return td_invalid_argument("No tensor can be lent at offset %llu", (unsigned long long)offset);
  TD_TRY(td_tensor_create_foreign(dtype, rank, dims, l->base + offset, l->size - offset, &b->memory, out));
  atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
  return TD_STATUS_OK;
}

void td_loans_collect(void) {
  pthread_mutex_lock(&book.lock);
  forget_gone();
  pthread_mutex_unlock(&book.lock);
  end_all(is_returned_or_lost, NULL);
  unmap_gone();
}

#include "checkpoint/write_behind.h"

#include <pthread.h>

#include "base/mem.h"

/* A piece stays in a core's cache between copying, checksum and write. Much larger ones also get the largest pages from
 * the system, which on a virtual machine are those that the host has to find first. */
enum { PIECE = 512 << 10, PIECES = 4 };

struct td_write_behind {
  td_new_file *file; /* the thread's while there is one, else the caller's */
  char *memory;      /* PIECES pieces, used in turn */

  /* the caller's */
  size_t filled; /* of the piece in the making, which is number `given` */
  pthread_t thread;
  bool has_thread;

  pthread_mutex_t lock;
  pthread_cond_t changed;
  /* guarded by lock */
  uint64_t given, written; /* pieces */
  bool is_last;            /* no more will be given */
  bool is_abandoned;       /* nor need those that were be written */
  bool has_failed;         /* the thread has ended */
  td_status failure;       /* until the caller has got it */
};

td_write_behind *td_write_behind_create(td_new_file *file) {
  td_write_behind *w = td_new(td_write_behind);
  w->file = file;
  w->memory = td_malloc((size_t)PIECE * PIECES);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->changed, NULL);
  return w;
}

/* By number; only its owner, the thread or the caller, knows that it may. */
static char *piece(const td_write_behind *w, uint64_t number) { return w->memory + number % PIECES * PIECE; }

static void *write_pieces(void *arg) {
  td_write_behind *w = arg;
  pthread_mutex_lock(&w->lock);
  while (!w->has_failed) {
    while (w->given == w->written && !w->is_last) pthread_cond_wait(&w->changed, &w->lock);
    if (w->given == w->written || w->is_abandoned) break;
    const char *data = piece(w, w->written);
    pthread_mutex_unlock(&w->lock);
    td_status status = td_new_file_write(w->file, data, PIECE);
    pthread_mutex_lock(&w->lock);
    w->failure = status;
    w->has_failed = status != TD_STATUS_OK;
    w->written++;
    pthread_cond_signal(&w->changed);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

/* The failure, once; a caller who goes on after it hears that there was one. */
static td_status take_failure(td_write_behind *w) {
  if (!w->has_failed) return TD_STATUS_OK;
  td_status status = w->failure ? w->failure : td_internal("%s: a write has failed before", w->file->path);
  w->failure = TD_STATUS_OK;
  return status;
}

td_status td_write_behind_room(td_write_behind *w, char **out, size_t *out_size) {
  if (!w->filled && w->has_thread) {
    pthread_mutex_lock(&w->lock);
    while (w->given - w->written == PIECES && !w->has_failed) pthread_cond_wait(&w->changed, &w->lock);
    td_status status = take_failure(w);
    pthread_mutex_unlock(&w->lock);
    if (status) return status;
  }
  *out = piece(w, w->given) + w->filled;
  *out_size = PIECE - w->filled;
  return TD_STATUS_OK;
}

td_status td_write_behind_take(td_write_behind *w, size_t size) {
  w->filled += size;
  if (w->filled < PIECE) return TD_STATUS_OK;
  w->filled = 0;
  if (!w->has_thread) w->has_thread = !pthread_create(&w->thread, NULL, write_pieces, w);
  if (!w->has_thread) return td_new_file_write(w->file, piece(w, w->given), PIECE);
  pthread_mutex_lock(&w->lock);
  w->given++;
  pthread_cond_signal(&w->changed);
  pthread_mutex_unlock(&w->lock);
  return TD_STATUS_OK;
}

static void end_thread(td_write_behind *w, bool is_abandoned) {
  if (!w->has_thread) return;
  pthread_mutex_lock(&w->lock);
  w->is_last = true;
  w->is_abandoned = is_abandoned;
  pthread_cond_signal(&w->changed);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  w->has_thread = false;
}

td_status td_write_behind_finish(td_write_behind *w) {
  end_thread(w, false);
  TD_TRY(take_failure(w));
  return td_new_file_write(w->file, piece(w, w->given), w->filled);
}

void td_write_behind_destroy(td_write_behind *w) {
  if (!w) return;
  end_thread(w, true);
  td_status_free(w->failure);
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  td_free(w->memory);
  td_free(w);
}

#include "checkpoint/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"

/* ---- errors ---- */

static td_code code_of(int error) {
  switch (error) {
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
    case EDESTADDRREQ:
    case EDOM:
    case EFAULT:
    case EILSEQ:
    case ENOPROTOOPT:
    case ENOSTR:
    case ENOTSOCK:
    case ENOTTY:
    case EPROTOTYPE:
    case ESPIPE:
      return TD_INVALID_ARGUMENT;
    case ETIMEDOUT:
    case ETIME:
      return TD_DEADLINE_EXCEEDED;
    case ENODEV:
    case ENOENT:
    case ENXIO:
    case ESRCH:
      return TD_NOT_FOUND;
    case EEXIST:
    case EADDRNOTAVAIL:
    case EALREADY:
      return TD_ALREADY_EXISTS;
    case EPERM:
    case EACCES:
    case EROFS:
      return TD_PERMISSION_DENIED;
    case ENOTEMPTY:
    case EISDIR:
    case ENOTDIR:
    case EADDRINUSE:
    case EBADF:
    case EBUSY:
    case ECHILD:
    case EISCONN:
    case ENOTBLK:
    case ENOTCONN:
    case EPIPE:
    case ESHUTDOWN:
    case ETXTBSY:
      return TD_FAILED_PRECONDITION;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case EMLINK:
    case ENFILE:
    case ENOBUFS:
    case ENODATA:
    case ENOMEM:
    case ENOSR:
    case EUSERS:
      return TD_RESOURCE_EXHAUSTED;
    case EFBIG:
    case EOVERFLOW:
    case ERANGE:
      return TD_OUT_OF_RANGE;
    case ENOSYS:
    case ENOTSUP:
    case EAFNOSUPPORT:
    case EPFNOSUPPORT:
    case EPROTONOSUPPORT:
    case ESOCKTNOSUPPORT:
    case EXDEV:
      return TD_UNIMPLEMENTED;
    case EAGAIN:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ECONNRESET:
    case EINTR:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENETUNREACH:
    case ENOLCK:
    case ENOLINK:
    case ENONET:
      return TD_UNAVAILABLE;
    case EDEADLK:
    case ESTALE:
      return TD_ABORTED;
    case ECANCELED:
      return TD_CANCELLED;
    default:
      return TD_UNKNOWN;
  }
}

td_status td_file_error(int error, const char *context) {
  char text[256];
  return td_error(code_of(error), "%s; %s", context, strerror_r(error, text, sizeof text));
}

/* ---- paths ---- */

static bool is_scheme(td_str s) {
  if (!s.size || !((s.data[0] | 32) >= 'a' && (s.data[0] | 32) <= 'z')) return false;
  for (size_t i = 1; i < s.size; i++) {
    char c = s.data[i];
    if (!((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9') && c != '.') return false;
  }
  return true;
}

td_status td_file_path(td_str name, char **out) {
  const char *mark = name.size >= 3 ? memmem(name.data, name.size, "://", 3) : NULL;
  if (mark && is_scheme(td_str_n(name.data, (size_t)(mark - name.data)))) {
    td_str scheme = td_str_n(name.data, (size_t)(mark - name.data));
    if (!td_str_is(scheme, "file")) {
      return td_unimplemented("File system scheme '%.*s' not implemented (file: '%.*s')", TD_STR_ARG(scheme),
                              (int)TD_MIN(name.size, (size_t)PATH_MAX), name.data);
    }
    name = td_str_n(mark + 3, name.size - scheme.size - 3);
  }
  if (name.size && memchr(name.data, 0, name.size)) return td_invalid_argument("A file name has a NUL byte");
  if (name.size >= PATH_MAX) return td_invalid_argument("A file name of %zu bytes is too long", name.size);
  *out = td_strndup(name.size ? name.data : "", name.size);
  return TD_STATUS_OK;
}

td_str td_file_dir(td_str path) {
  const char *slash = path.size ? memrchr(path.data, '/', path.size) : NULL;
  if (!slash) return TD_STR("");
  return slash == path.data ? td_str_n(path.data, 1) : td_str_n(path.data, (size_t)(slash - path.data));
}

td_status td_file_make_dirs(td_str path) {
  struct stat st;
  if (!path.size) return TD_STATUS_OK;
  char *copy = td_strndup(path.data, path.size);
  td_status status = TD_STATUS_OK;
  if (stat(copy, &st) || !S_ISDIR(st.st_mode)) {
    for (char *p = copy + 1; !status; p++) {
      if (*p && *p != '/') continue;
      char end = *p;
      *p = 0;
      if (mkdir(copy, 0777) && errno != EEXIST) status = td_file_error(errno, copy);
      *p = end;
      if (!end) break;
    }
  }
  td_free(copy);
  return status;
}

/* A pipe or a special file system cannot: then there is nothing to wait for. */
static td_status sync_and_close(int fd, const char *path) {
  td_status status = TD_STATUS_OK;
  if (fsync(fd) && errno != EINVAL && errno != EROFS) status = td_file_error(errno, path);
  if (close(fd) && errno != EINTR && !status) status = td_file_error(errno, path);
  return status;
}

/* What is to be synced behind its writers: by one thread, which lives while there is some, in the order of writing,
 * each LATER_NS after that. A file system's journal holds up who changes a folder while it commits that folder or a
 * file of it, and who has saved does change it: TensorFlow's client puts its `checkpoint` file beside the new one. */
static const uint64_t LATER_NS = 2000000000;
enum { MOST_LATE_SYNCS = 256 }; /* each holds a descriptor: beyond these the writer waits for its own */

typedef struct late_sync late_sync;
struct late_sync {
  late_sync *next;
  uint64_t due_ns;
  int fd;
  char path[];
};

static struct {
  pthread_mutex_t lock;
  late_sync *head, *last;
  int count;
  bool has_thread;
} late = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void sync_late(late_sync *l) {
  struct stat st;
  if (!fstat(l->fd, &st) && !st.st_nlink) { /* removed meanwhile */
    close(l->fd);
  } else {
    /* The bytes first: a journal that has to wait for them would hold up others. */
    sync_file_range(l->fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    td_status status = sync_and_close(l->fd, l->path);
    if (status) td_warn("A saved file may not survive the machine: %s", td_status_message(status));
    td_status_free(status);
  }
  td_free(l);
}

static late_sync *next_late_sync(void) {
  pthread_mutex_lock(&late.lock);
  late_sync *l = late.head;
  if (l) {
    late.head = l->next;
    late.count--;
  }
  late.has_thread = l;
  pthread_mutex_unlock(&late.lock);
  return l;
}

static void *sync_main(void *arg) {
  for (late_sync *l; (l = next_late_sync());) {
    uint64_t now = td_now_ns();
    uint64_t wait = l->due_ns > now ? l->due_ns - now : 0;
    nanosleep(&(struct timespec){(time_t)(wait / 1000000000), (long)(wait % 1000000000)}, NULL);
    sync_late(l);
  }
  return NULL;
}

static bool start_syncing(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, old; /* signals are the main thread's */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  bool ok = !pthread_create(&thread, &attributes, sync_main, NULL);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return ok;
}

/* Takes `fd`. */
static void sync_behind(int fd, const char *path) {
  size_t size = strlen(path) + 1;
  late_sync *l = td_malloc(sizeof *l + size);
  *l = (late_sync){.due_ns = td_now_ns() + LATER_NS, .fd = fd};
  memcpy(l->path, path, size);
  pthread_mutex_lock(&late.lock);
  if (!late.has_thread) late.has_thread = start_syncing(); /* it looks for work under the lock */
  bool is_mine = !late.has_thread || late.count == MOST_LATE_SYNCS;
  if (!is_mine) {
    if (late.head)
      late.last->next = l;
    else
      late.head = l;
    late.last = l;
    late.count++;
  }
  pthread_mutex_unlock(&late.lock);
  if (is_mine) sync_late(l);
}

void td_file_sync_dir(td_str path, td_sync when) {
  char *copy = path.size ? td_strndup(path.data, path.size) : td_strdup(".");
  int fd = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && when == TD_SYNC_BEHIND)
    sync_behind(fd, copy);
  else if (fd >= 0)
    td_status_free(sync_and_close(fd, copy));
  td_free(copy);
}

/* ---- writing ---- */

td_status td_new_file_open(td_new_file *f, const char *path, td_sync when) {
  *f = (td_new_file){.path = td_strdup(path),
                     .when = when,
                     .temporary = td_asprintf("%s.tempstate%llu", path, (unsigned long long)td_random_u64())};
  f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (f->fd < 0) {
    td_status status = td_file_error(errno, f->temporary);
    td_free(f->path);
    td_free(f->temporary);
    *f = (td_new_file){0};
    return status;
  }
  f->is_open = true;
  return TD_STATUS_OK;
}

static td_status write_all(int fd, const char *path, const void *data, size_t size, uint64_t *written) {
  const char *p = data;
  while (size) {
    ssize_t n = write(fd, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return td_file_error(errno, path);
    p += n;
    size -= (size_t)n;
    *written += (size_t)n;
  }
  return TD_STATUS_OK;
}

td_status td_new_file_write(td_new_file *f, const void *data, size_t size) {
  return write_all(f->fd, f->temporary, data, size, &f->size);
}

td_status td_new_file_sync(td_new_file *f) {
  int fd = f->fd;
  f->fd = -1;
  if (f->when == TD_SYNC_FIRST) return sync_and_close(fd, f->temporary);
  sync_behind(fd, f->path);
  return TD_STATUS_OK;
}

td_status td_new_file_publish(td_new_file *f) {
  if (rename(f->temporary, f->path)) return td_file_error(errno, f->path);
  td_free(f->temporary);
  f->temporary = NULL;
  return TD_STATUS_OK;
}

void td_new_file_deinit(td_new_file *f) {
  if (!f->is_open) return;
  if (f->fd >= 0) close(f->fd);
  if (f->temporary) unlink(f->temporary);
  td_free(f->temporary);
  td_free(f->path);
  *f = (td_new_file){0};
}

/* ---- reading, and writing files that are seen while they grow ---- */

/* Takes `fd` over if it is a regular file's. */
static td_status take_regular(td_file *f, int fd, const char *path) {
  struct stat st;
  if (fd < 0) return td_file_error(errno, path);
  int error = fstat(fd, &st) ? errno : S_ISDIR(st.st_mode) ? EISDIR : !S_ISREG(st.st_mode) ? EINVAL : 0;
  if (error) {
    close(fd);
    return td_file_error(error, path);
  }
  *f = (td_file){.fd = fd, .path = td_strdup(path), .size = (uint64_t)st.st_size, .is_open = true};
  return TD_STATUS_OK;
}

/* Opening a pipe must not wait for its other end. */
td_status td_file_open(td_file *f, const char *path) {
  return take_regular(f, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), path);
}

td_status td_file_create(td_file *f, const char *path) {
  return take_regular(f, open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666), path);
}

td_status td_file_append(td_file *f, const void *data, size_t size) {
  return write_all(f->fd, f->path, data, size, &f->size);
}

td_status td_file_read_some(const td_file *f, uint64_t offset, void *to, size_t size, size_t *got) {
  *got = 0;
  while (*got < size) {
    uint64_t at = offset + *got;
    ssize_t n = at > INT64_MAX ? 0 : pread(f->fd, (char *)to + *got, size - *got, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return td_file_error(errno, f->path);
    if (!n) break;
    *got += (size_t)n;
  }
  return TD_STATUS_OK;
}

td_status td_file_read_at(const td_file *f, uint64_t offset, void *to, size_t size) {
  size_t got;
  TD_TRY(td_file_read_some(f, offset, to, size, &got));
  if (got == size) return TD_STATUS_OK;
  return td_error(TD_DATA_LOSS, "%s: the file ends before offset %llu", f->path, (unsigned long long)offset + size);
}

void td_file_deinit(td_file *f) {
  if (!f->is_open) return;
  close(f->fd);
  td_free(f->path);
  *f = (td_file){0};
}

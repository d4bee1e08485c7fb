#include "debug/file_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/file.h"

enum { MOST_NAMESAKES = 1000000, FILE_MODE = 0644 };

static void append_device(td_strbuf *path, td_str root, td_str device) {
  td_strbuf_printf(path, "%.*s/_tfdbg_device_", TD_STR_ARG(root));
  for (size_t i = 0; i < device.size; i++)
    td_strbuf_putc(path, device.data[i] == ':' ? '_' : device.data[i] == '/' ? ',' : device.data[i]);
}

/* A new file under `path`, or under "<path>-<k>" with the first k that is free. */
static td_status open_new(td_strbuf *path, int *out) {
  size_t size = path->size;
  for (int k = 1;; k++) {
    *out = open(path->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    if (*out >= 0) return TD_STATUS_OK;
    if (errno != EEXIST || k > MOST_NAMESAKES) return td_file_error(errno, path->data);
    path->size = size;
    td_strbuf_printf(path, "-%d", k);
  }
}

static td_status write_all(int fd, const char *path, const td_debug_event *e) {
  struct iovec iov[2] = {{e->head.data, e->head.size}, {(void *)e->body.data, e->body.size}};
  int at = 0;
  while (at < 2) {
    ssize_t n = iov[at].iov_len ? writev(fd, iov + at, 2 - at) : 0;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return td_file_error(errno, path);
    for (; at < 2 && (size_t)n >= iov[at].iov_len; at++) n -= (ssize_t)iov[at].iov_len;
    if (at == 2) break;
    iov[at].iov_base = (char *)iov[at].iov_base + n;
    iov[at].iov_len -= (size_t)n;
  }
  return TD_STATUS_OK;
}

static td_status make_dir(td_str dir) {
  struct stat st;
  TD_TRY(td_file_make_dirs(dir));
  char *path = td_strndup(dir.data, dir.size);
  td_status s = dir.size && (stat(path, &st) || !S_ISDIR(st.st_mode)) ? td_file_error(ENOTDIR, path) : TD_STATUS_OK;
  td_free(path);
  return s;
}

static td_status write_event(td_strbuf *path, const td_debug_event *e) {
  td_str dir = td_file_dir(td_strbuf_view(path));
  td_status s = make_dir(dir);
  if (s) {
    td_status why =
        td_failed_precondition("Failed to create directory  %.*s, due to: %s", TD_STR_ARG(dir), td_status_message(s));
    td_status_free(s);
    return why;
  }
  int fd;
  TD_TRY(open_new(path, &fd));
  s = write_all(fd, path->data, e);
  if (close(fd) && !s) s = td_file_error(errno, path->data);
  if (s) unlink(path->data);
  return s;
}

/* Takes `path`. */
static td_status write_and_free(td_strbuf *path, const td_debug_event *e) {
  td_status s = memchr(path->data, 0, path->size)
                    ? td_invalid_argument("A debug URL's path has a NUL byte: %s", path->data)
                    : write_event(path, e);
  td_strbuf_deinit(path);
  return s;
}

td_status td_debug_file_tensor(td_str root, const td_debug_key *key, const td_tensor *t, int64_t wall_us) {
  td_debug_events events;
  td_strbuf path = {0};
  TD_TRY(td_debug_tensor_events(key, t, wall_us, 0, &events));
  append_device(&path, root, key->device);
  td_strbuf_printf(&path, "/%.*s_%d_%.*s_%lld", TD_STR_ARG(key->node), key->slot, TD_STR_ARG(key->op),
                   (long long)wall_us);
  td_status s = write_and_free(&path, events.items);
  td_debug_events_deinit(&events);
  return s;
}

td_status td_debug_file_graph(td_str root, td_str device, td_str graph, int64_t wall_us) {
  td_debug_event e;
  td_strbuf path = {0};
  td_debug_graph_event(graph, wall_us, &e);
  append_device(&path, root, device);
  td_strbuf_printf(&path, "/_tfdbg_graph_hash%llu_%lld", (unsigned long long)td_hash64(graph.data, graph.size),
                   (long long)wall_us);
  td_status s = write_and_free(&path, &e);
  td_strbuf_deinit(&e.head);
  return s;
}

td_status td_debug_file_metadata(td_str root, const td_debug_metadata *m, int64_t wall_us) {
  td_debug_event e;
  td_strbuf path = {0};
  td_debug_metadata_event(m, (td_str){0}, wall_us, &e);
  td_strbuf_printf(&path, "%.*s/_tfdbg_core_metadata_sessionrun%.14lld_%lld", TD_STR_ARG(root), (long long)m->run_index,
                   (long long)wall_us);
  td_status s = write_and_free(&path, &e);
  td_strbuf_deinit(&e.head);
  return s;
}

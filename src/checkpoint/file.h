/* Files as checkpoints need them: a new file appears under its name only when it is whole, and on disk where the caller
 * asks for that (td_sync).
 *
 * Paths are local; a "file://" in front is taken off. Errors of the system have TensorFlow's codes and form
 * ("<path>; No such file or directory"). Everything here blocks: never call it on a loop thread. A file belongs to
 * one thread, but td_file_read_at() may be called by several.
 */
#ifndef TD_CHECKPOINT_FILE_H_
#define TD_CHECKPOINT_FILE_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

/* A status from an errno value, with what it is about. */
td_status td_file_error(int error, const char *context) TD_MUST_USE;

/* A path of the local file system, td_free()d by the caller: UNIMPLEMENTED for another scheme, INVALID_ARGUMENT for a
 * NUL byte or more than PATH_MAX bytes. */
td_status td_file_path(td_str name, char **out) TD_MUST_USE;
td_str td_file_dir(td_str path); /* what stands before the last '/'; "" when there is none */

/* Makes a folder and those above it; one that exists is fine. "" is fine. */
td_status td_file_make_dirs(td_str path) TD_MUST_USE;

/* When the disk has what was written. */
typedef enum td_sync {
  TD_SYNC_BEHIND, /* two seconds after the caller went on, or when earlier files are done; a failure is logged */
  TD_SYNC_FIRST,  /* before the caller goes on */
} td_sync;

/* Writes a folder's entries to disk. Best effort: some file systems cannot. "" is the current folder. */
void td_file_sync_dir(td_str path, td_sync when);

/* ---- writing ---- */

typedef struct td_new_file { /* zeroed: none */
  int fd;
  char *path, *temporary; /* the temporary lies beside it */
  uint64_t size;          /* bytes written */
  bool is_open;
  td_sync when;
} td_new_file;

/* Creates the temporary file. After a failure nothing is open. */
td_status td_new_file_open(td_new_file *f, const char *path, td_sync when) TD_MUST_USE;
/* Appends. Blocks. */
td_status td_new_file_write(td_new_file *f, const void *data, size_t size) TD_MUST_USE;
/* All bytes are written, still under the temporary name; they are on disk, or on their way (td_sync). Nothing may be
 * written after it. */
td_status td_new_file_sync(td_new_file *f) TD_MUST_USE;
/* Gives a file its name, after td_new_file_sync(). The folder's entry is not yet on disk: td_file_sync_dir(). */
td_status td_new_file_publish(td_new_file *f) TD_MUST_USE;
void td_new_file_deinit(td_new_file *f); /* removes what was not published */

/* ---- reading, and writing files that are seen while they grow ---- */

typedef struct td_file { /* zeroed: none */
  int fd;
  char *path;
  uint64_t size; /* when it was opened; of a file that is written: by now */
  bool is_open;
} td_file;

/* Regular files only (INVALID_ARGUMENT; a folder: FAILED_PRECONDITION). */
td_status td_file_open(td_file *f, const char *path) TD_MUST_USE;
/* A new, empty file, or an old one emptied; for td_file_append(). */
td_status td_file_create(td_file *f, const char *path) TD_MUST_USE;
td_status td_file_append(td_file *f, const void *data, size_t size) TD_MUST_USE;
/* Up to `size` bytes; *got is less than that only where the file ends. */
td_status td_file_read_some(const td_file *f, uint64_t offset, void *to, size_t size, size_t *got) TD_MUST_USE;
/* Exactly `size` bytes: DATA_LOSS with path and offset when the file ends before. */
td_status td_file_read_at(const td_file *f, uint64_t offset, void *to, size_t size) TD_MUST_USE;
void td_file_deinit(td_file *f);

#endif /* TD_CHECKPOINT_FILE_H_ */

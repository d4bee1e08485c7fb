/* Checkpoints of the old format (V1): one sorted table a file, tensors as TensorProtos.
 *
 * A checkpoint may be several files, named by a pattern. As with bundles a file appears under its name only when it is
 * whole (with TD_SYNC_FIRST: and on disk). Everything blocks on files; nothing here is thread-safe.
 */
#ifndef TD_CHECKPOINT_CHECKPOINT_V1_H_
#define TD_CHECKPOINT_CHECKPOINT_V1_H_

#include <stdbool.h>

#include "base/status.h"
#include "base/str.h"
#include "checkpoint/file.h"
#include "checkpoint/slice.h"
#include "tensor/tensor.h"

/* ---- writing ---- */

typedef struct td_v1_writer td_v1_writer;

/* Nothing is written before finish(), and `when` says when the disk has it. INVALID_ARGUMENT and UNIMPLEMENTED for a
 * path as of td_file_path(). */
td_status td_v1_writer_create(td_str path, td_sync when, td_v1_writer **out) TD_MUST_USE;
/* A slice of a tensor of shape `full`. INVALID_ARGUMENT when it disagrees with an earlier slice, was added before, or
 * is too large for a message; UNIMPLEMENTED for a type that V1 lacks. The content is copied. */
td_status td_v1_writer_add(td_v1_writer *w, td_str name, const td_shape *full, const td_slice *slice,
                           const td_tensor *t) TD_MUST_USE;
/* Writes what was added to a temporary file and gives it its name; it is on disk then, or soon. The writer is still to
 * be destroyed. */
td_status td_v1_writer_finish(td_v1_writer *w) TD_MUST_USE;
void td_v1_writer_destroy(td_v1_writer *w); /* without finish(): nothing remains. NULL is fine */

/* ---- reading ---- */

typedef struct td_v1_reader td_v1_reader;

/* All files that match. NOT_FOUND "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for
 * <pattern>"; DATA_LOSS for what is no checkpoint. */
td_status td_v1_reader_open(td_str pattern, td_v1_reader **out) TD_MUST_USE;
void td_v1_reader_close(td_v1_reader *r); /* NULL is fine */
/* Type and full shape of a tensor; *found is false, without an error, for one that is not there. */
td_status td_v1_reader_lookup(td_v1_reader *r, td_str name, td_dtype *dtype, td_shape *shape, bool *found) TD_MUST_USE;
/* A slice of a tensor that is there, gathered from stored slices. INVALID_ARGUMENT "Error copying slice data" when they
 * do not cover it. */
td_status td_v1_reader_read(td_v1_reader *r, td_str name, const td_slice *slice, td_tensor **out) TD_MUST_USE;

#endif /* TD_CHECKPOINT_CHECKPOINT_V1_H_ */

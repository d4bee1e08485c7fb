/* Tensor bundles: TensorFlow's checkpoint format V2 (P.index and P.data-00000-of-0000N).
 *
 * What is written appears under its name only when all of it is there, the index last: a process that dies leaves no
 * checkpoint that looks whole; with TD_SYNC_FIRST, nor does a machine (checkpoint/file.h says when the disk has what
 * was written). What is read is not believed: sizes are held against the files' before memory is taken; errors name
 * file and offset, or the key. All functions block on files: never on a loop thread. No object here is thread-safe, but
 * a reader's td_bundle_read() may run in several threads at once.
 */
#ifndef TD_CHECKPOINT_BUNDLE_H_
#define TD_CHECKPOINT_BUNDLE_H_

#include <stdbool.h>

#include "base/pool.h"
#include "base/status.h"
#include "base/str.h"
#include "checkpoint/file.h"
#include "checkpoint/slice.h"
#include "tensor/tensor.h"

/* ---- writing ---- */

typedef struct td_bundle_writer td_bundle_writer;

/* Makes the prefix's folder. `when` finish() lets the caller go on: before or after the disk has the bundle. Errors of
 * the file system as checkpoint/file.h. */
td_status td_bundle_writer_create(td_str prefix, td_sync when, td_bundle_writer **out) TD_MUST_USE;
/* Appends a tensor's elements; its content may change meanwhile (then whatever was read is stored, with the right
 * checksum). INVALID_ARGUMENT "Adding duplicate key: <k>"; UNIMPLEMENTED for resources and for variants that cannot
 * travel. */
td_status td_bundle_writer_add(td_bundle_writer *w, td_str key, const td_tensor *t) TD_MUST_USE;
/* The same for a slice of a tensor of shape `full`. INVALID_ARGUMENT when dtype or shape differ from what earlier
 * slices of that tensor said. */
td_status td_bundle_writer_add_slice(td_bundle_writer *w, td_str key, const td_shape *full, const td_slice *slice,
                                     const td_tensor *t) TD_MUST_USE;
/* Publishes the bundle; the writer takes no more. */
td_status td_bundle_writer_finish(td_bundle_writer *w) TD_MUST_USE;
void td_bundle_writer_destroy(td_bundle_writer *w); /* without finish(): nothing remains. NULL is fine */

/* Makes one bundle `merged` of several, whose data files are renamed and whose indexes are removed.
 * INVALID_ARGUMENT "Duplicate tensor keyed by <k> encountered, when merging prefix: <p>" and for bundles that do not
 * fit together. `allow_missing`: bundles that are not there are passed over, as long as one is. `when`: of the merged
 * index and the folders' entries. */
td_status td_bundle_merge(const td_str *prefixes, size_t count, bool allow_missing, td_str merged,
                          td_sync when) TD_MUST_USE;

/* ---- reading ---- */

typedef struct td_bundle_reader td_bundle_reader;

bool td_bundle_exists(td_str prefix); /* there is an index file */

/* `unchecked`: checksums are not compared (for the fuzzer). */
td_status td_bundle_reader_open(td_str prefix, bool unchecked, td_bundle_reader **out) TD_MUST_USE;
void td_bundle_reader_close(td_bundle_reader *r); /* NULL is fine */
/* Type and full shape: NOT_FOUND "Key <k> not found in checkpoint". */
td_status td_bundle_lookup(td_bundle_reader *r, td_str key, td_dtype *dtype, td_shape *shape) TD_MUST_USE;

/* What is to be read for one tensor: found and checked by td_bundle_plan(), read by td_bundle_read(). */
typedef struct td_bundle_plan td_bundle_plan;
/* `slice` NULL: the whole tensor; however it was partitioned. INVALID_ARGUMENT "Does not have sufficient slices for
 * partitioned tensor <k> to restore in slice_spec: <s>". */
td_status td_bundle_plan_create(td_bundle_reader *r, td_str key, const td_slice *slice,
                                td_bundle_plan **out) TD_MUST_USE;
/* The tensor, one reference. DATA_LOSS "Checksum does not match: …". Thread-safe: the reader is only read. */
td_status td_bundle_read(const td_bundle_plan *p, td_tensor **out) TD_MUST_USE;
void td_bundle_plan_destroy(td_bundle_plan *p); /* NULL is fine */

#endif /* TD_CHECKPOINT_BUNDLE_H_ */

/* Archives: the state of iterators in bytes, for checkpoints.
 *
 * One function of each kind (td_dataset_ops.archive) names the parts of its iterators' state, one after the other; the
 * same calls write them or, when the archive is a reading one, replace them. What is read is not believed: numbers
 * are held against bounds, elements against the types of the dataset; DATA_LOSS says that bytes are no such state.
 * Only iterators at rest have a state: between two elements, nobody being at work. An archive belongs to one thread
 * at a time.
 */
#ifndef TD_OPS_DATA_ARCHIVE_H_
#define TD_OPS_DATA_ARCHIVE_H_

#include "base/philox.h"
#include "ops/data/iterator.h"
#include "proto/wire.h"

struct td_ahead;

struct td_archive {
  bool is_writing;
  td_strbuf out;
  td_wire in;
  int depth; /* of datasets within elements */
  /* Writing: what works ahead is paused; while some of it is still busy (is_busy), what has been written is worthless,
   * and `waiter` will be woken. */
  bool is_busy;
  td_driver *waiter;
  struct td_ahead **paused; /* retained; td_archive_deinit() lets them go on */
  size_t paused_count, paused_capacity;
};

/* Numbers in [least, most]. */
td_status td_archive_int(td_archive *a, int64_t *value, int64_t least, int64_t most) TD_MUST_USE;
td_status td_archive_size(td_archive *a, size_t *value, size_t most) TD_MUST_USE;
td_status td_archive_bool(td_archive *a, bool *value) TD_MUST_USE;
td_status td_archive_words(td_archive *a, td_philox_words *words) TD_MUST_USE; /* a random stream's place */
td_status td_archive_bytes(td_archive *a, td_strbuf *bytes) TD_MUST_USE;
td_status td_archive_error(td_archive *a, td_status *status) TD_MUST_USE; /* an error, or none */
/* How many of something follow, each at least one byte. */
td_status td_archive_count(td_archive *a, size_t *count) TD_MUST_USE;

/* An element (NULL: none) of a dataset with that spec (NULL: any). UNIMPLEMENTED for what cannot be saved. */
td_status td_archive_element(td_archive *a, const td_data_spec *spec, td_element **e) TD_MUST_USE;
/* A growing array of them, none NULL. */
td_status td_archive_elements(td_archive *a, const td_data_spec *spec, td_element ***elements, size_t *count,
                              size_t *capacity) TD_MUST_USE;

/* An iterator that there is: its kind and state. INVALID_ARGUMENT when what is read is of another kind. */
td_status td_archive_iterator(td_archive *a, td_iterator *it) TD_MUST_USE;
/* One over an input of it->dataset, which there may be or not (then *input is NULL). */
td_status td_archive_input(td_archive *a, td_iterator *it, int index, td_iterator **input) TD_MUST_USE;
/* One that can only be made by calling a function, so after reading it is not there yet (`it` NULL) and its state
 * stays in `bytes` until td_archive_apply(). */
td_status td_archive_later(td_archive *a, td_iterator *it, td_strbuf *bytes) TD_MUST_USE;
td_status td_archive_apply(td_strbuf *bytes, td_iterator *it) TD_MUST_USE; /* empties it */

void td_archive_deinit(td_archive *a);

/* DATA_LOSS "The saved state of an iterator is not valid: <what>". */
td_status td_archive_invalid(const char *what) TD_MUST_USE;

/* The whole of a driver's tree. */
td_status td_driver_archive(td_driver *d, td_archive *a) TD_MUST_USE;

#endif /* TD_OPS_DATA_ARCHIVE_H_ */

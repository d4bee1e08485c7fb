/* Working ahead: a tree of iterators with a driver of its own whose elements are fetched on the pool before they are
 * asked for, and, if there is a function, passed through it, several at once. In between is a bounded buffer, in order.
 *
 * Who consumes is an iterator of another driver. Errors are buffered like elements. After td_ahead_stop() nothing of
 * the consumer is touched; what still runs is cancelled and frees the rest at its end.
 */
#ifndef TD_OPS_DATA_AHEAD_H_
#define TD_OPS_DATA_AHEAD_H_

#include "ops/data/archive.h"

typedef struct td_ahead td_ahead;

typedef struct td_ahead_options {
  td_dataset *source;
  td_dataset *owner;    /* holds `f`; retained */
  const td_captured *f; /* NULL: elements as they come */
  int64_t limit;        /* elements in the buffer and in work, at least 1 */
  td_iterator *consumer;
  bool any_order; /* whichever is done first */
} td_ahead_options;

td_status td_ahead_create(const td_ahead_options *o, td_pool *pool, td_ahead **out) TD_MUST_USE;
void td_ahead_stop(td_ahead *a); /* NULL is fine */
/* For the consumer's advance(): TD_NEXT_READY with an element, an error, or neither (the end), which the caller takes;
 * or TD_NEXT_WAIT: `consumer` will be woken. Starts the work, and keeps it going. */
td_next td_ahead_next(td_ahead *a, td_driver *consumer, td_element **out, td_status *status);
/* Its state: the buffer and the tree below (archive.h). Writing pauses it, until td_archive_deinit(). */
td_status td_ahead_archive(td_ahead *a, td_archive *archive) TD_MUST_USE;
void td_ahead_resume(td_ahead *a); /* for td_archive_deinit() */
/* Begins to work before the first element is asked for. */
void td_ahead_begin(td_ahead *a);

#endif /* TD_OPS_DATA_AHEAD_H_ */

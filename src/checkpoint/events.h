/* Event files, as TensorBoard reads them: TFRecords of serialized Event messages (tensorflow/core/util/event.proto).
 * Blocks on the file when it is flushed. A writer belongs to one thread at a time. */
#ifndef TD_CHECKPOINT_EVENTS_H_
#define TD_CHECKPOINT_EVENTS_H_

#include "checkpoint/file.h"

/* Fields of Event that writers set. */
enum { TD_EVENT_GRAPH = 4, TD_EVENT_SUMMARY = 5 };

typedef struct td_events { /* zeroed: not open */
  td_file file;
  td_strbuf pending; /* what has not been written */
} td_events;

/* Makes the folder if there is none, and in it events.out.tfevents.<seconds>.<host><suffix>, which names the format's
 * version. */
td_status td_events_open(td_events *e, td_str dir, td_str suffix) TD_MUST_USE;
/* An Event of now: `field` (TD_EVENT_*) with `message`. Kept until the next flush, but not more than a megabyte.
 * RESOURCE_EXHAUSTED when there is no memory for it. */
td_status td_events_add(td_events *e, int64_t step, uint32_t field, td_str message) TD_MUST_USE;
td_status td_events_add_serialized(td_events *e, td_str event) TD_MUST_USE;
/* What could not be written is given up. */
td_status td_events_flush(td_events *e) TD_MUST_USE;
void td_events_close(td_events *e); /* flushes */

#endif /* TD_CHECKPOINT_EVENTS_H_ */

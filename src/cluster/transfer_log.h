/* Transfer log (TensorFlow's worker_cache_logger): which tensors this task received from others, by step, for the
 * timeline. Kept only while some master has logging on; otherwise a receive pays one relaxed load. Thread-safe.
 */
#ifndef TD_CLUSTER_TRANSFER_LOG_H_
#define TD_CLUSTER_TRANSFER_LOG_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "framework/rendezvous.h"

typedef struct td_transfer_log td_transfer_log;

td_transfer_log *td_transfer_log_create(void);
void td_transfer_log_destroy(td_transfer_log *l);

/* Masters turn it on and off independently: it is on until all who turned it on have turned it off. */
void td_transfer_log_set(td_transfer_log *l, bool on);

bool td_transfer_log_is_on(td_transfer_log *l);

/* A receive in progress. */
typedef struct td_transfer td_transfer;
/* A receive begins; `key` as it goes over the wire, copied. NULL when logging is off. */
td_transfer *td_transfer_begin(td_transfer_log *l, int64_t step_id, td_str key);
/* It has ended with `bytes` of elements; frees `t` (NULL: does nothing). `sent_us`: when the sender began to send, by
 * its clock, 0 if it did not tell. Not `ok`: nothing is logged. */
void td_transfer_end(td_transfer *t, bool ok, int64_t sent_us, size_t bytes);

/* Takes what was logged of a step: appends a StepStats message; false when there is nothing. */
bool td_transfer_log_take(td_transfer_log *l, int64_t step_id, td_strbuf *out);
void td_transfer_log_forget(td_transfer_log *l, int64_t step_id); /* the step is cleaned up */
void td_transfer_log_clear(td_transfer_log *l);

#endif /* TD_CLUSTER_TRANSFER_LOG_H_ */

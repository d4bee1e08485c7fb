/* Recent request ids: a retried request must not run twice. A ring and a set of fixed size; O(1); thread-safe. */
#ifndef TD_CLUSTER_REQUEST_IDS_H_
#define TD_CLUSTER_REQUEST_IDS_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct td_request_ids td_request_ids;

td_request_ids *td_request_ids_create(uint32_t capacity); /* how many ids are remembered, oldest forgotten first */
void td_request_ids_destroy(td_request_ids *r);
/* True when `id` was not seen among the last ones (it is now). 0 is not tracked: always true. */
bool td_request_ids_insert(td_request_ids *r, int64_t id);
/* ABORTED "The same <method> request was received twice. request_id: <id>" when it was. */
td_status td_request_ids_track(td_request_ids *r, int64_t id, const char *method) TD_MUST_USE;

#endif /* TD_CLUSTER_REQUEST_IDS_H_ */

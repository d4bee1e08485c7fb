/* A queue's elements in the order of its kind: as they came, at random, or by priority and then as they came. No limit
 * and no waiting: that is queue_data.h's. Not thread-safe. */
#ifndef TD_OPS_QUEUE_ITEMS_H_
#define TD_OPS_QUEUE_ITEMS_H_

#include "base/philox.h"
#include "ops/queue_data.h"

/* One element: as many tensors as the queue has components. */
typedef struct td_queue_tuple {
  int64_t priority;
  uint64_t number;    /* order of arrival */
  td_tensor *parts[]; /* one reference each, or NULL */
} td_queue_tuple;

typedef struct td_queue_items {
  td_queue_kind kind;
  int width;              /* components */
  td_queue_tuple **slots; /* a ring; for priorities a heap that begins at 0 */
  size_t head, count, capacity;
  uint64_t next_number;
  td_philox_words random;
} td_queue_items;

void td_queue_items_init(td_queue_items *q, const td_queue_spec *spec);
void td_queue_items_deinit(td_queue_items *q); /* and the elements in it */

td_queue_tuple *td_queue_tuple_create(const td_queue_items *q); /* no parts yet */
void td_queue_tuple_free(const td_queue_items *q, td_queue_tuple *t);

void td_queue_items_put(td_queue_items *q, td_queue_tuple *t);       /* takes it */
void td_queue_items_put_front(td_queue_items *q, td_queue_tuple *t); /* gives back what was taken last */
td_queue_tuple *td_queue_items_take(td_queue_items *q);              /* the next one, the caller's; count > 0 */

#endif /* TD_OPS_QUEUE_ITEMS_H_ */

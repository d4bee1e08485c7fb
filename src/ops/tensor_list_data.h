/* TensorList: the value of a variant that functional loops build up. A list is immutable while more than one can see
 * it; whoever holds the only reference may change it. Travels in TensorFlow's encoding. */
#ifndef TD_OPS_TENSOR_LIST_DATA_H_
#define TD_OPS_TENSOR_LIST_DATA_H_

#include "framework/kernel.h"
#include "ops/partial_shape.h"

enum { TD_TENSOR_LIST_MAX = 1 << 26 }; /* elements */

typedef struct td_tensor_list {
  td_variant variant;
  td_dtype dtype;
  td_partial_shape shape; /* of the elements */
  int32_t max_count;      /* -1: none */
  int64_t count, capacity;
  td_tensor **items; /* NULL: not set */
} td_tensor_list;

/* One reference, no elements; copies `shape`. */
td_tensor_list *td_tensor_list_create(td_dtype dtype, const td_partial_shape *shape, int32_t max_count);
td_tensor_list *td_tensor_list_copy(const td_tensor_list *l); /* the same elements */
static inline void td_tensor_list_release(td_tensor_list *l) {
  if (l) td_variant_release(&l->variant);
}
/* Cuts off elements or adds unset ones; RESOURCE_EXHAUSTED. */
td_status td_tensor_list_resize(td_tensor_list *l, int64_t count) TD_MUST_USE;
td_status td_tensor_list_push(td_tensor_list *l, td_tensor *t) TD_MUST_USE; /* retains; NULL: an unset one */
void td_tensor_list_set(td_tensor_list *l, int64_t i, td_tensor *t);        /* retains */

/* The list that `v` is, or, after a journey, encodes: one reference. NULL without an error when it is no list. */
td_status td_tensor_list_of(td_variant *v, td_tensor_list **out) TD_MUST_USE;

#endif /* TD_OPS_TENSOR_LIST_DATA_H_ */

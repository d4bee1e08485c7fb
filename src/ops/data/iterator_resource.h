/* The iterator that a handle names: what its elements look like, and the driver of its present tree, if it has been
 * initialised. Initialising it again replaces the tree; requests in progress end on the old one. Thread-safe. */
#ifndef TD_OPS_DATA_ITERATOR_RESOURCE_H_
#define TD_OPS_DATA_ITERATOR_RESOURCE_H_

#include "framework/resource.h"
#include "ops/data/iterator.h"

extern const td_resource_type td_iterator_resource_type;

typedef struct td_iterator_resource {
  td_resource resource;
  td_data_spec spec; /* immutable */
  pthread_mutex_t lock;
  td_driver *driver; /* guarded by lock; retained; NULL: not initialised */
} td_iterator_resource;

td_iterator_resource *td_iterator_resource_create(const td_data_spec *spec); /* one reference */
/* Starts over with `dataset`. INVALID_ARGUMENT when its elements do not fit. */
td_status td_iterator_resource_set(td_iterator_resource *r, td_dataset *dataset, td_pool *pool) TD_MUST_USE;
/* Its driver, retained. FAILED_PRECONDITION "<call>() failed because the iterator has not been initialized. Ensure that
 * you have run the initializer operation for this iterator before <what>." */
td_status td_iterator_resource_driver(td_iterator_resource *r, const char *call, const char *what,
                                      td_driver **out) TD_MUST_USE;
void td_iterator_resource_replace(td_iterator_resource *r, td_driver *d); /* goes on with that one, which it takes */
/* The iterator of a handle on this device; one reference. */
td_status td_iterator_resource_find(const td_tensor *handle, td_device *device, td_iterator_resource **out) TD_MUST_USE;

/* ---- for kernels that make named iterators: the resource's place, as container and shared_name say ---- */

typedef struct td_iterator_place {
  td_data_spec spec;
  td_resource_mgr *m; /* retained */
  char *container, *name;
  bool is_private; /* nobody else can name it: it goes with the kernel */
  pthread_mutex_t lock;
  /* guarded by lock */
  char *key;
  td_iterator_resource *resource; /* once made; retained */
} td_iterator_place;

td_status td_iterator_place_init(td_kernel_builder *b, td_iterator_place *p) TD_MUST_USE;
void td_iterator_place_deinit(td_iterator_place *p); /* also after a failed init */
/* Makes or finds the resource: p->resource, p->key. */
td_status td_iterator_place_open(td_iterator_place *p) TD_MUST_USE;
/* Its handle as output 0. */
td_status td_iterator_place_out(td_iterator_place *p, td_kernel_ctx *ctx) TD_MUST_USE;

#endif /* TD_OPS_DATA_ITERATOR_RESOURCE_H_ */

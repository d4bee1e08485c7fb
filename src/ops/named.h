/* Kernels that make a named data structure (a queue, a barrier, an accumulator) and hand out its handle: one shared by
 * its shared_name with whoever says the same, or a private one, which goes with the kernel.
 *
 * The part of such a kernel's state that all of them have. Thread-safe.
 */
#ifndef TD_OPS_NAMED_H_
#define TD_OPS_NAMED_H_

#include <pthread.h>

#include "ops/handles.h"

typedef struct td_named {
  td_resource_mgr *m;
  const td_resource_type *type;
  char *container, *name; /* the key of a shared one */
  bool is_private;
  pthread_mutex_t lock;
  /* guarded by lock; set once */
  char *key; /* its name in the manager */
  td_resource *resource;
} td_named;

/* In create(): reads `container` and `shared_name`. INVALID_ARGUMENT for malformed ones. */
td_status td_named_init(td_named *n, const td_kernel_builder *b, const td_resource_type *type) TD_MUST_USE;
/* In destroy(): a private structure leaves the manager; structures that are in use live on. Zeroes are fine. */
void td_named_deinit(td_named *n);

/* make() creates a structure of that name (one reference); it may run under the manager's lock. matches() says whether
 * one that somebody else may have made is what this kernel asks for; NULL: any is. */
typedef td_status (*td_named_make_fn)(void *arg, td_str name, td_resource **out);
typedef td_status (*td_named_matches_fn)(void *arg, td_resource *found);
/* In compute(): makes or finds the structure at the first run, and sets output 0 to its handle. */
td_status td_named_out(td_named *n, td_kernel_ctx *ctx, td_named_make_fn make, td_named_matches_fn matches,
                       void *arg) TD_MUST_USE;

#endif /* TD_OPS_NAMED_H_ */

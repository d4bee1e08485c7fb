/* The kernels of a session's stateful nodes; for the runtime room only. */
#ifndef TD_RUNTIME_KERNEL_CACHE_H_
#define TD_RUNTIME_KERNEL_CACHE_H_

#include "runtime/program.h"

/* The kernel kept under the node's name, or a new one, which is kept unless a different node owns the name. One
 * reference. Thread-safe. */
td_status td_kernel_cache_get(td_kernel_cache *c, const td_node *n, const td_kernel_options *options,
                              td_kernel **out) TD_MUST_USE;

#endif /* TD_RUNTIME_KERNEL_CACHE_H_ */

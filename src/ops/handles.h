/* Handles of named data structures in the three forms that ops know: a ref edge to a string vector {container, name}
 * (first generation), such a vector as a value, a resource handle.
 *
 * Structures of one step live in its own manager, under the container that is its default.
 */
#ifndef TD_OPS_HANDLES_H_
#define TD_OPS_HANDLES_H_

#include "framework/kernel.h"
#include "framework/resource.h"

/* What a handle says. */
typedef struct td_handle_parts {
  td_resource_mgr *m;
  td_str container;    /* empty: the manager's default */
  td_str prefix, name; /* the key is both, one after the other; prefix empty: string handles say the container */
  const td_resource_type *type;
} td_handle_parts;
/* Sets output `i`, in the form that its type asks for. */
td_status td_out_handle(td_kernel_ctx *ctx, int i, const td_handle_parts *parts) TD_MUST_USE;

/* Finds what the handle on input 0 names in `m`, one reference. A string handle's two parts are container and name, or,
 * for `per_step`, one key. `what` begins the text of errors about malformed ones. */
td_status td_in_handle(td_kernel_ctx *ctx, td_resource_mgr *m, bool per_step, const char *what,
                       const td_resource_type *type, void **out) TD_MUST_USE;
/* The same of input `i`. */
td_status td_in_handle_at(td_kernel_ctx *ctx, int i, td_resource_mgr *m, bool per_step, const char *what,
                          const td_resource_type *type, void **out) TD_MUST_USE;
/* The two strings of a string handle on input 0 (ref or value), td_free()d by the caller. */
td_status td_in_string_handle(td_kernel_ctx *ctx, const char *what, char **first, char **second) TD_MUST_USE;

/* Handles as text (a serialised ResourceHandleProto), by which a client passes them on. Sets output `i`, a scalar
 * string. */
td_status td_out_handle_text(td_kernel_ctx *ctx, int i, const td_resource_handle *h) TD_MUST_USE;
/* A scalar handle tensor from such a text on input `i`, one reference; what it names is not looked up.
 * INVALID_ARGUMENT for what is no scalar or no handle. */
td_status td_in_handle_text(td_kernel_ctx *ctx, int i, td_tensor **out) TD_MUST_USE;

/* Kernels that only name a structure, which other nodes make: a TD_KERNEL_CONSTANT's state, its create() but for the
 * type, destroy() and compute(). The name is the node's unless it has a shared_name. */
typedef struct td_constant_handle {
  td_tensor *handle;
} td_constant_handle;
td_status td_constant_handle_create(td_kernel_builder *b, const td_resource_type *type,
                                    td_constant_handle *out) TD_MUST_USE;
void td_constant_handle_destroy(void *state);
td_status td_constant_handle_compute(td_kernel_ctx *ctx) TD_MUST_USE;

#endif /* TD_OPS_HANDLES_H_ */

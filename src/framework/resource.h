/* Resources: what outlives a step, found by container, type and name. Thread-safe. */
#ifndef TD_FRAMEWORK_RESOURCE_H_
#define TD_FRAMEWORK_RESOURCE_H_

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/tensor.h"

typedef struct td_resource td_resource;
typedef struct td_resource_type {
  const char *name; /* shows in errors: "Resource <container>/<name>/<type> does not exist." */
  void (*destroy)(td_resource *r);
} td_resource_type;

struct td_resource { /* embed it first */
  const td_resource_type *type;
  _Atomic uint32_t refs;
};

static inline void td_resource_init(td_resource *r, const td_resource_type *type) { /* one reference */
  r->type = type;
  atomic_init(&r->refs, 1);
}
void *td_resource_retain(void *resource);
void td_resource_release(void *resource); /* NULL is fine */

typedef struct td_resource_mgr td_resource_mgr;

/* `default_container`: what an empty container name means (the job's name). */
td_resource_mgr *td_resource_mgr_create(td_str default_container);
td_resource_mgr *td_resource_mgr_retain(td_resource_mgr *m);
void td_resource_mgr_release(td_resource_mgr *m);
/* Drops everything. For the owner at the end: resources may hold, by ways of their own, the device that has `m`. */
void td_resource_mgr_clear(td_resource_mgr *m);
td_str td_resource_mgr_default_container(const td_resource_mgr *m);

/* All hand out one reference. NOT_FOUND in TensorFlow's words: "Container <c> does not exist. (Could not find
 * resource: <c>/<n>)" or "Resource <c>/<n>/<type> does not exist." */
td_status td_resource_lookup(td_resource_mgr *m, td_str container, td_str name, const td_resource_type *type,
                             void **out) TD_MUST_USE;
/* create(arg, out) makes a new one (one reference, which passes to the manager); it runs under the manager's lock,
 * so it must be short. */
td_status td_resource_lookup_or_create(td_resource_mgr *m, td_str container, td_str name, const td_resource_type *type,
                                       td_status (*create)(void *arg, td_resource **out), void *arg,
                                       void **out) TD_MUST_USE;
/* ALREADY_EXISTS if there is one; retains `r` on success. */
td_status td_resource_add(td_resource_mgr *m, td_str container, td_str name, td_resource *r) TD_MUST_USE;
/* NOT_FOUND, as above. */
td_status td_resource_delete(td_resource_mgr *m, td_str container, td_str name,
                             const td_resource_type *type) TD_MUST_USE;
td_status td_resource_delete_by_type_name(td_resource_mgr *m, td_str container, td_str name,
                                          td_str type_name) TD_MUST_USE;
void td_resource_mgr_cleanup(td_resource_mgr *m, td_str container); /* drops a container; empty: the default one */

/* Checks container and shared_name of a node (allowed characters, no leading '_') and tells the key to use:
 * container (default if empty) and shared_name, else `node_name`. INVALID_ARGUMENT else. */
td_status td_container_info(td_resource_mgr *m, td_str container, td_str shared_name, td_str node_name,
                            td_str *out_container, td_str *out_name) TD_MUST_USE;

/* A handle names a resource on the device it was made on. INVALID_ARGUMENT if `t` is no scalar handle, or
 * "Trying to access resource <name> located in device <d> from device <d2>". Borrowed. */
struct td_device;
td_status td_handle_of(const td_tensor *t, const struct td_device *device, td_resource_handle **out) TD_MUST_USE;
/* The resource behind a scalar handle tensor on this device; one reference. */
td_status td_handle_lookup(const td_tensor *t, struct td_device *device, const td_resource_type *type,
                           void **out) TD_MUST_USE;
/* A scalar handle tensor. */
td_status td_handle_create(struct td_device *device, td_str container, td_str name, const td_resource_type *type,
                           td_tensor **out) TD_MUST_USE;

#endif /* TD_FRAMEWORK_RESOURCE_H_ */

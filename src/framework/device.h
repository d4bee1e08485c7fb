/* Device: where kernels run. One CPU device is one td_device; a task may have several. */
#ifndef TD_FRAMEWORK_DEVICE_H_
#define TD_FRAMEWORK_DEVICE_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "framework/resource.h"
#include "framework/step.h"

/* A device name taken apart: "/job:ps/replica:0/task:1/device:CPU:0". Parts may be absent. */
typedef struct td_device_name {
  char job[128], type[64];   /* "" when absent */
  int32_t replica, task, id; /* -1 when absent */
} td_device_name;

/* Accepts full, partial, legacy ("/cpu:0") names, "*" parts, "" and "/". False when it is no device name. */
bool td_device_name_parse(td_str text, td_device_name *out);
/* Canonical text into a buffer of at least TD_DEVICE_NAME_MAX bytes; absent parts are left out. */
enum { TD_DEVICE_NAME_MAX = 320 };
void td_device_name_format(const td_device_name *n, char *out);
bool td_device_name_is_complete(const td_device_name *n);
/* Every part that `pattern` has equals that of `name`. */
bool td_device_name_matches(const td_device_name *pattern, const td_device_name *name);
bool td_device_name_same_task(const td_device_name *a, const td_device_name *b);
/* Fills the parts that `into` lacks from `other`. INVALID_ARGUMENT "Cannot merge devices with incompatible <jobs|
 * replicas|tasks|types|ids>: '<a>' and '<b>'" on a conflict; with `soft`, conflicting type and id are dropped. */
td_status td_device_name_merge(td_device_name *into, const td_device_name *other, bool soft) TD_MUST_USE;

struct td_device { /* immutable after creation; reference-counted */
  _Atomic uint32_t refs;
  char *name; /* full */
  td_device_name parsed;
  uint64_t incarnation; /* random, non-zero, new at every start */
  td_resource_mgr *resources;
  bool saves_wait_for_disk; /* what is saved is on disk before the op is done */
};

/* `resources` is retained. */
td_device *td_device_create(const td_device_name *name, uint64_t incarnation, td_resource_mgr *resources);
td_device *td_device_retain(td_device *d);
void td_device_release(td_device *d);

#endif /* TD_FRAMEWORK_DEVICE_H_ */

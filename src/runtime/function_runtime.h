/* Function runtime: functions of a graph's library, instantiated and run as nested programs.
 *
 * A function is compiled when it is instantiated (a kernel's creation), once for each name, attributes and device.
 * A function that is being instantiated already (it calls itself), or that is nested very deeply, is compiled on its
 * first run. A run is a program of its own inside the caller's step: own rendezvous, shared cancellation, step
 * resources and pool; it is asynchronous, and calls do not nest on the stack however deep they recurse.
 */
#ifndef TD_RUNTIME_FUNCTION_RUNTIME_H_
#define TD_RUNTIME_FUNCTION_RUNTIME_H_

#include "framework/function.h"
#include "graph/graph.h"

/* The devices that functions may run on besides the caller's. */
typedef struct td_function_places {
  td_device **devices; /* of this task */
  int device_count;
  /* Functions on other tasks; NULL: there are none. INVALID_ARGUMENT for an unknown device. */
  td_status (*remote)(void *arg, td_library *library, const Pb__NameAttrList *function, td_str device,
                      td_remote_function **out);
  void (*release)(void *arg); /* when the runtime ends; NULL: nothing to do */
  void *arg;
} td_function_places;

/* For kernels of graphs with this library. `library` and the devices are retained; places may be NULL. Thread-safe;
 * must outlive the programs and runs that use it. One reference, which td_function_runtime_destroy() drops; datasets
 * hold others. */
td_function_runtime *td_function_runtime_create(td_library *library, td_str session, const td_function_places *places);
void td_function_runtime_destroy(td_function_runtime *r);

#endif /* TD_RUNTIME_FUNCTION_RUNTIME_H_ */

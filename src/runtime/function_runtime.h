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

/* For kernels of graphs with this library. `library` is retained. Thread-safe; must outlive the programs and runs
 * that use it. One reference, which td_function_runtime_destroy() drops; datasets hold others. */
td_function_runtime *td_function_runtime_create(td_library *library, td_str session);
void td_function_runtime_destroy(td_function_runtime *r);

#endif /* TD_RUNTIME_FUNCTION_RUNTIME_H_ */

/* Calling a function from a kernel: the interface; the runtime implements it. */
#ifndef TD_FRAMEWORK_FUNCTION_H_
#define TD_FRAMEWORK_FUNCTION_H_

#include "framework/op.h"
#include "framework/step.h"
#include "tensor/tensor.h"

typedef uint64_t td_function_handle; /* of an instantiated function; never 0 */

typedef struct td_function_call {
  td_function_handle function;
  td_step *step;    /* the caller's: cancellation, rendezvous of the nested run are its own */
  td_tensor **args; /* borrowed until done */
  int arg_count;
  /* Exactly once, any thread. `results`: one reference each for the callee to take or release; NULLs on error. */
  void (*done)(struct td_function_call *call, td_status status, td_tensor **results, int result_count);
} td_function_call;

typedef struct td_function_runtime_ops {
  /* Instantiates a function of the graph's library with attributes; cached. NOT_FOUND when there is none. */
  td_status (*instantiate)(td_function_runtime *r, const Pb__NameAttrList *function, td_device *device,
                           td_function_handle *out);
  /* Runs it as a nested program; never blocks. */
  void (*run)(td_function_runtime *r, td_function_call *call);
  /* For who calls functions after the graph's end (datasets): the runtime lives on until released. */
  void (*retain)(td_function_runtime *r);
  void (*release)(td_function_runtime *r);
} td_function_runtime_ops;

struct td_function_runtime {
  const td_function_runtime_ops *ops;
};

#endif /* TD_FRAMEWORK_FUNCTION_H_ */

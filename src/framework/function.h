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

/* Where a function runs that is not bound to the caller's device. */
typedef struct td_function_where {
  bool is_multi_device; /* nodes with a device specification run there, as far as this task has the device */
  td_str target;        /* a device, also of another task; what its name lacks is the caller's. Empty: the caller's */
} td_function_where;

/* A function on another task; the cluster implements it. */
typedef struct td_remote_function td_remote_function;
struct td_remote_function {
  void (*run)(td_remote_function *f, td_function_call *call); /* never blocks; any thread */
  void (*release)(td_remote_function *f);                     /* no call is in progress */
};

typedef struct td_function_runtime_ops {
  /* Instantiates a function of the graph's library with attributes; cached. NOT_FOUND when there is none. */
  td_status (*instantiate)(td_function_runtime *r, const Pb__NameAttrList *function, td_device *device,
                           td_function_handle *out);
  /* The same for a function that runs elsewhere. INVALID_ARGUMENT for a target that is no device, or unknown. */
  td_status (*instantiate_on)(td_function_runtime *r, const Pb__NameAttrList *function, td_device *caller,
                              const td_function_where *where, td_function_handle *out);
  /* Runs it as a nested program; never blocks. */
  void (*run)(td_function_runtime *r, td_function_call *call);
  /* The functions that these calls reach, from `arena`, sharing messages with the runtime; NULL: none. */
  const Pb__FunctionDefLibrary *(*reach)(td_function_runtime *r, const Pb__NameAttrList *const *calls, size_t count,
                                         td_arena *arena);
  /* A runtime of the same session and devices for the functions of another library, which is copied; one reference. */
  td_status (*derive)(td_function_runtime *r, const Pb__FunctionDefLibrary *library, td_function_runtime **out);
  /* For who calls functions after the graph's end (datasets): the runtime lives on until released. */
  void (*retain)(td_function_runtime *r);
  void (*release)(td_function_runtime *r);
} td_function_runtime_ops;

struct td_function_runtime {
  const td_function_runtime_ops *ops;
};

#endif /* TD_FRAMEWORK_FUNCTION_H_ */

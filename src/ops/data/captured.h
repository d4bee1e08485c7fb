/* Functions of datasets: a function with the values it captures, and calls of it.
 *
 * A call is a step of its own: its error or cancellation touches neither the step that asked for an element nor other
 * calls. It never blocks; its end comes on any thread.
 */
#ifndef TD_OPS_DATA_CAPTURED_H_
#define TD_OPS_DATA_CAPTURED_H_

#include "framework/function.h"
#include "framework/kernel.h"
#include "ops/data/dataset.h"

/* A function as a kernel's attributes name it, and which inputs it captures. */
typedef struct td_data_function {
  td_function_runtime *runtime; /* borrowed: it outlives its kernels */
  td_function_handle handle;
  int begin, end; /* inputs [begin, end) */
} td_data_function;

void td_data_function_deinit(td_data_function *f);
/* For create(): adds the function of attribute `attr` that captures the op's argument `captures` (NULL: none). */
td_status td_dataset_kernel_add_function(td_kernel_builder *b, td_dataset_kernel *k, const char *attr,
                                         const char *captures) TD_MUST_USE;
/* create() of kernels with "f" (or "predicate") and "other_arguments". */
td_status td_dataset_kernel_create_f(td_kernel_builder *b, void *state) TD_MUST_USE;
td_status td_dataset_kernel_create_predicate(td_kernel_builder *b, void *state) TD_MUST_USE;

/* Bound to the values it captures; immutable. */
typedef struct td_captured {
  td_function_runtime *runtime; /* retained */
  td_function_handle handle;
  char *session;
  int count;
  td_tensor **values;
} td_captured;

void td_captured_init(td_captured *c, td_kernel_ctx *ctx, int which); /* function `which` of the kernel */
void td_captured_deinit(td_captured *c);

/* A call in progress, embedded in who makes it; zeroed before its first use, used for one call after the other. */
typedef struct td_data_call td_data_call;
struct td_data_call {
  void (*ended)(td_data_call *call); /* when td_data_call_start() said false; any thread, no lock held */
  void *owner;                       /* for ended() */
  td_cancellation *cancellation;     /* made by the first call if it is NULL; whoever wants to end a call retains it */
  /* private */
  td_status status;
  td_element *results;
  td_function_call call;
  td_step step;
  _Atomic int state;
};

/* Starts it with the values of `e` (which it takes; NULL: none) before the captured ones. True: it has ended already.
 * False: ended() will be called. `captured` must live until then. */
bool td_data_call_start(td_data_call *call, const td_captured *captured, td_pool *pool, td_element *e);
/* The results of a call that has ended, NULL with *status set when it failed. */
td_element *td_data_call_take(td_data_call *call, td_status *status);
void td_data_call_deinit(td_data_call *call); /* no call may be in progress */

#endif /* TD_OPS_DATA_CAPTURED_H_ */

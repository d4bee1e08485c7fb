/* A function's body, compiled: a program for each device that it runs on; for the runtime room only. */
#ifndef TD_RUNTIME_FUNCTION_PARTS_H_
#define TD_RUNTIME_FUNCTION_PARTS_H_

#include "graph/function_body.h"
#include "runtime/executor.h"
#include "runtime/function_runtime.h"

typedef struct td_function_parts {
  td_program **programs;
  size_t count;
  bool has_transfers; /* a run needs a rendezvous of its own */
  int result_count;
} td_function_parts;

/* Compiles `body`, which `name` names in errors. Everything runs on options->device; with `places`, nodes with a device
 * specification run on the device of this task that it names. INVALID_ARGUMENT as the placer's. */
td_status td_function_parts_create(td_function_body *body, td_str name, const td_program_options *options,
                                   const td_function_places *places, td_function_parts *out) TD_MUST_USE;
void td_function_parts_deinit(td_function_parts *p);

/* As td_executor_run(), for all parts together. */
void td_function_parts_run(td_function_parts *p, const td_run_options *options);

#endif /* TD_RUNTIME_FUNCTION_PARTS_H_ */

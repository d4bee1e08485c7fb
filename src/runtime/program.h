/* Program: the graph of one device, compiled once, run many times.
 *
 * Immutable after creation: nodes in one array, kernels bound, input slots and packed out-edges laid out, pending
 * counts in a template, rendezvous keys parsed by the Send/Recv kernels. Concurrent steps share it.
 */
#ifndef TD_RUNTIME_PROGRAM_H_
#define TD_RUNTIME_PROGRAM_H_

#include "framework/function.h"
#include "framework/kernel.h"
#include "graph/graph.h"

typedef struct td_program td_program;

/* Kernels of stateful ops, kept per session and node so that state (random streams, private queues) goes on across
 * graphs of a session. Thread-safe. */
typedef struct td_kernel_cache td_kernel_cache;
td_kernel_cache *td_kernel_cache_create(void);
void td_kernel_cache_destroy(td_kernel_cache *c);

typedef struct td_program_options {
  td_device *device;              /* retained */
  td_kernel_cache *kernels;       /* must outlive the program; NULL: every kernel is the program's own */
  td_function_runtime *functions; /* must outlive the program; NULL: none */
  td_str session;
} td_program_options;

/* Compiles a graph all of whose nodes sit on options->device. Errors name the node ("\n\t [[{{node n}}]]"). */
td_status td_program_create(td_graph *g, const td_program_options *options, td_program **out) TD_MUST_USE;
td_program *td_program_retain(td_program *p);
void td_program_release(td_program *p);
size_t td_program_node_count(const td_program *p);

/* The number of _Arg and _Retval nodes (functions). */
int td_program_arg_count(const td_program *p);
int td_program_result_count(const td_program *p);

#endif /* TD_RUNTIME_PROGRAM_H_ */

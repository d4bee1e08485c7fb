/* For the unit tests and the fuzzer of this room: a family of ops with kernels that do nothing, and graphs from text.
 * Not part of the server. */
#ifndef TD_GRAPH_TESTING_H_
#define TD_GRAPH_TESTING_H_

#include "graph/graph.h"
#include "graph/place.h"

/* Registers the family (once). "NoCpu" has no kernel at all, "FloatOnly" one for float only. */
void td_graph_test_register(void);

/* One node a line: "name = Op(in, in:1, ^control) @/job:ps {T: float; N: 2; _class: ['loc:@a']}". Attribute values:
 * type names, integers, true, false, 'text', [list of types or texts], empty (an empty float tensor). Lines that start
 * with '#' are left out. Ends the process on a mistake in the text. */
Pb__GraphDef *td_graph_test_def(td_arena *arena, const char *text);
td_graph *td_graph_test_graph(const char *text); /* imported; ends the process when that fails */

/* "a(b, c:1, ^d) @device" for every node, sorted by name, one a line, in `arena`: what a test compares. */
char *td_graph_test_print(const td_graph *g, td_arena *arena);

/* CPU devices "/job:<job>/replica:0/task:<t>/device:CPU:<d>", incarnations 1, 2, … In `arena`. */
typedef struct td_graph_test_cluster {
  td_place_device *devices;
  size_t count;
} td_graph_test_cluster;
td_graph_test_cluster td_graph_test_devices(td_arena *arena, const char *job, int tasks, int devices_per_task);
uint64_t td_graph_test_incarnation(void *cluster, td_str device);

#endif /* TD_GRAPH_TESTING_H_ */

/* Loops that span devices: what the partitioner adds to a graph before it cuts it. */
#ifndef TD_GRAPH_CONTROL_LOOP_H_
#define TD_GRAPH_CONTROL_LOOP_H_

#include "graph/partition.h"

/* The distinct devices of a graph, numbered, and what the partitioner needs to know of each. */
typedef struct td_device_table {
  td_arena *arena;
  td_map by_name;
  struct td_device_entry {
    td_str name;
    td_str task; /* "/job:j/replica:0/task:t" */
    uint64_t incarnation;
    bool is_incarnation_known;
  } * entries;
  size_t count, capacity;
} td_device_table;

/* INTERNAL "Malformed assigned device '<d>'". */
td_status td_device_table_add(td_device_table *t, td_str device, int *out) TD_MUST_USE;
void td_device_table_deinit(td_device_table *t);

/* Moves control-flow nodes to where their data is: device_of (by node id) is changed. */
void td_control_flow_colocate(const td_graph *g, int *device_of);

/* Names of nodes that the partitioner makes: "<of>_<suffix><k>". */
td_str td_partition_new_name(const td_partition_options *o, const td_graph *g, td_arena *arena, td_str of);
bool td_node_is_control_loop(const td_node *n); /* made by this or another master: "_cloop…" */

/* INVALID_ARGUMENT for a frame with an edge between devices but no LoopCond. When control loops are needed, *out is a
 * copy of `g` with them (which retains `g`) and with the relays that options->dialect asks for, and *device_of is
 * replaced; otherwise *out is `g`, retained. */
td_status td_control_loops_add(td_graph *g, const td_partition_options *options, td_device_table *devices,
                               td_arena *arena, int **device_of, td_graph **out) TD_MUST_USE;

/* An empty float Const. `after`: optional control input. */
td_status td_graph_add_empty_const(td_graph *g, td_str name, td_str device, td_node **out) TD_MUST_USE;
/* A node of a registered op with these attributes on a device. */
td_status td_graph_add_op(td_graph *g, const char *op, td_str name, td_str device, td_attr *attrs, size_t attr_count,
                          td_node **out) TD_MUST_USE;

#endif /* TD_GRAPH_CONTROL_LOOP_H_ */

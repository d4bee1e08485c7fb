/* Relays: TensorFlow 1.x and 2.x name the iterations of a loop differently, so that a value inside a loop cannot go
 * from a task of the one to a task of the other. It goes by way of a device whose task speaks both.
 */
#ifndef TD_GRAPH_RELAY_H_
#define TD_GRAPH_RELAY_H_

#include "graph/control_loop.h"

/* Whether a value in a frame needs a relay between these devices (indices into the table). Not thread-safe. */
bool td_relay_is_needed(const td_partition_options *o, const td_device_table *devices, int from, int to);

/* Puts a relay of src:slot (TD_CONTROL_SLOT: of its having run) on o->relay: an Identity or a NoOp, with its edge from
 * `src`. The new node lives as long as `g`. */
td_status td_relay_add(td_graph *g, const td_partition_options *o, td_node *src, int slot, td_node **out) TD_MUST_USE;

/* Sends every edge in a frame of `g` that needs it through a relay, one for each output. `frames` are those of `g`, and
 * device_of is by node id; of new nodes it is the caller's to note that they are on o->relay. */
td_status td_relays_insert(td_graph *g, const td_partition_options *o, const td_device_table *devices,
                           const td_frames *frames, const int *device_of) TD_MUST_USE;

#endif /* TD_GRAPH_RELAY_H_ */

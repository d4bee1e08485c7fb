/* Collectives: operations that the members of a group, each on a device of its own, run together. The interface that
 * kernels see; src/collective/ implements it.
 *
 * An instance of a collective is named by its group's key and its own; each member's node says the same group size,
 * element type and shape. Who comes first waits for the others, never on a thread.
 */
#ifndef TD_FRAMEWORK_COLLECTIVE_H_
#define TD_FRAMEWORK_COLLECTIVE_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "framework/device.h"
#include "framework/resource.h"
#include "framework/step.h"
#include "tensor/tensor.h"

/* TensorFlow's numbers, as they go over the wire. */
typedef enum td_collective_type {
  TD_COLLECTIVE_REDUCE = 0,
  TD_COLLECTIVE_BROADCAST = 1,
  TD_COLLECTIVE_GATHER = 2,
} td_collective_type;

/* What a node says of itself. Immutable. */
typedef struct td_collective_spec td_collective_spec;
struct td_collective_spec {
  td_collective_type type;
  int32_t group_key, group_size, instance_key;
  td_dtype dtype;
  bool is_source;                /* of a broadcast */
  const int32_t *subdiv_offsets; /* of a reduction: how many rings, and where each begins in a task; none: by size */
  int subdiv_count;
  td_str name; /* for errors: "node: Reduce(Add,Div)" */
  /* Of a reduction: into[i] = into[i] (+) from[i]; into[i] = into[i] / group_size, NULL: nothing is done at the end. */
  void (*merge)(const td_collective_spec *s, const void *from, void *into, int64_t n);
  void (*finish)(const td_collective_spec *s, void *into, int64_t n);
};

/* One run of a member. The kernel embeds it and owns it until done(). */
typedef struct td_collective td_collective;
struct td_collective {
  const td_collective_spec *spec;
  /* Where the kernel keeps what its first run found out of the group (NULL before): one reference. */
  td_resource *_Atomic *resolved;
  td_device *device;
  td_frame_id frame;
  int64_t step_id;
  td_shape shape;    /* that all members must agree on: of the output */
  td_tensor *input;  /* borrowed; NULL for the receiver of a broadcast */
  td_tensor *output; /* borrowed, of that shape; writable but at the source of a broadcast, which has none (NULL) */
  /* Exactly once; any thread; no lock held. */
  void (*done)(td_collective *c, td_status status);
};

/* The collectives of a step on this task. */
typedef struct td_collectives {
  /* Starts a run. Never blocks. It ends with CANCELLED (derived) when the step is cancelled; INTERNAL or
   * INVALID_ARGUMENT when members disagree; UNAVAILABLE when a peer is not there. */
  void (*run)(struct td_collectives *s, td_collective *c);
} td_collectives;

#endif /* TD_FRAMEWORK_COLLECTIVE_H_ */

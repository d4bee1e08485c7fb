/* Event messages of the debugger, as TensorFlow's tfdbg writes and reads them. Thread-safe: no state. */
#ifndef TD_DEBUG_EVENT_H_
#define TD_DEBUG_EVENT_H_

#include "framework/debug.h"

/* An encoded Event: `head`, then `body`, which is borrowed. */
typedef struct td_debug_event {
  td_strbuf head;
  td_str body;
} td_debug_event;

typedef struct td_debug_events {
  td_debug_event *items;
  size_t count;
} td_debug_events;
void td_debug_events_deinit(td_debug_events *e);

/* Bytes of a value (or of a graph) in one message to a listener. */
enum { TD_DEBUG_CHUNK_BYTES = 4000 * 1024 };

/* A tensor's value, its content cut into chunks of at most `chunk_bytes` (0: one event). Bodies point into `t`.
 * FAILED_PRECONDITION for a string that no chunk holds. */
td_status td_debug_tensor_events(const td_debug_key *key, const td_tensor *t, int64_t wall_us, size_t chunk_bytes,
                                 td_debug_events *out) TD_MUST_USE;

/* A partition's GraphDef, `graph`, to which bodies point. As one event for a file; for a listener in chunks, each
 * behind
 * "<hash>,<device>,<wall_us>|<index>|<count>|". */
void td_debug_graph_event(td_str graph, int64_t wall_us, td_debug_event *out);
void td_debug_graph_chunks(td_str graph, td_str device, int64_t wall_us, td_debug_events *out);

/* What is known of a run before it runs. */
typedef struct td_debug_metadata {
  int64_t global_step, run_index;
  const td_str *inputs, *outputs, *targets;
  size_t input_count, output_count, target_count;
} td_debug_metadata;
/* `grpc_path`: the path of the listener's URL; NULL data: a file's. */
void td_debug_metadata_event(const td_debug_metadata *m, td_str grpc_path, int64_t wall_us, td_debug_event *out);

#endif /* TD_DEBUG_EVENT_H_ */

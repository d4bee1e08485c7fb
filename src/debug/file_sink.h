/* Debug URLs of the form file://<folder>: a file per event, named as TensorFlow's Python client expects them.
 * Everything here blocks on files; thread-safe. */
#ifndef TD_DEBUG_FILE_SINK_H_
#define TD_DEBUG_FILE_SINK_H_

#include "debug/event.h"

/* "<root>/_tfdbg_device_<device>/<node>_<slot>_<op>_<wall_us>"; "-1" and so on behind it if that exists. */
td_status td_debug_file_tensor(td_str root, const td_debug_key *key, const td_tensor *t, int64_t wall_us) TD_MUST_USE;
/* "<root>/_tfdbg_device_<device>/_tfdbg_graph_hash<hash>_<wall_us>" */
td_status td_debug_file_graph(td_str root, td_str device, td_str graph, int64_t wall_us) TD_MUST_USE;
/* "<root>/_tfdbg_core_metadata_sessionrun<index, 14 digits>_<wall_us>" */
td_status td_debug_file_metadata(td_str root, const td_debug_metadata *m, int64_t wall_us) TD_MUST_USE;

#endif /* TD_DEBUG_FILE_SINK_H_ */

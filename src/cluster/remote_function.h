/* Functions on other tasks (TensorFlow's cluster_function_library_runtime): registered there as a graph on the first
 * call, run as a step of its own. */
#ifndef TD_CLUSTER_REMOTE_FUNCTION_H_
#define TD_CLUSTER_REMOTE_FUNCTION_H_

#include "cluster/worker_session.h"
#include "runtime/function_runtime.h"

/* The places where the functions of this session's graphs may run: its devices, and its peers'. The caller fills them
 * in a td_function_runtime_create(), which takes `arg` over. */
td_function_places td_session_places(td_worker_session *s);

#endif /* TD_CLUSTER_REMOTE_FUNCTION_H_ */

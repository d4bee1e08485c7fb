/* Session state: tensors that stay with a session between its steps, found by handle (GetSessionHandle). One per worker
 * session; thread-safe. */
#ifndef TD_FRAMEWORK_SESSION_STATE_H_
#define TD_FRAMEWORK_SESSION_STATE_H_

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/tensor.h"

typedef struct td_session_state td_session_state;

td_session_state *td_session_state_create(void);
void td_session_state_destroy(td_session_state *s);

/* Puts a node's tensor (retained) in, for now as long as the step runs; appends its handle, "<node>;<number>;<device>".
 * INVALID_ARGUMENT "Failed to add a tensor with name '<node>' to the tensor store." when the step has put one of that
 * node in before; RESOURCE_EXHAUSTED over a million. */
td_status td_session_state_put(td_session_state *s, int64_t step_id, td_str node, td_str device, td_tensor *t,
                               td_strbuf *out_handle) TD_MUST_USE;
/* The step has ended: what it put in stays if is_kept(arg, node) says so (the client has fetched the handle). Costs one
 * load when no step has put anything in. */
void td_session_state_end_step(td_session_state *s, int64_t step_id, bool (*is_kept)(void *arg, td_str node),
                               void *arg);

/* What a step that has ended has left. One reference. INVALID_ARGUMENT "The tensor with handle '<h>' is not in the
 * session store." */
td_status td_session_state_get(td_session_state *s, td_str handle, td_tensor **out) TD_MUST_USE;
/* INVALID_ARGUMENT "Failed to delete a tensor with handle '<h>' in the session store." */
td_status td_session_state_delete(td_session_state *s, td_str handle) TD_MUST_USE;

#endif /* TD_FRAMEWORK_SESSION_STATE_H_ */

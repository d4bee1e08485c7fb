/* Callables: signatures that a client names once and calls by handle. */
#ifndef TD_CLUSTER_CALLABLE_H_
#define TD_CLUSTER_CALLABLE_H_

#include "cluster/master_session.h"

/* MakeCallable; builds the plan. Blocking. UNIMPLEMENTED for feed_devices and fetch_devices. */
td_status td_callable_make(td_master_session *s, const Pb__MakeCallableRequest *request,
                           int64_t *out_handle) TD_MUST_USE;
/* ReleaseCallable; an unknown handle is fine. */
void td_callable_release(td_master_session *s, int64_t handle);

#endif /* TD_CLUSTER_CALLABLE_H_ */

/* The two gRPC services: requests in, replies out. */
#ifndef TD_CLUSTER_SERVICES_H_
#define TD_CLUSTER_SERVICES_H_

#include <stdatomic.h>

#include "cluster/task.h"
#include "framework/rendezvous.h"
#include "rpc/rpc.h"

/* `service` of each method is the td_task. */
extern const td_method td_worker_service_methods[];
extern const int td_worker_service_method_count;
extern const td_method td_master_service_methods[];
extern const int td_master_service_method_count;

/* Of collectives (collective_service.c). */
void td_recv_buf_method(void *service, td_call *call, td_str request);
void td_complete_group_method(void *service, td_call *call, td_str request);
void td_complete_instance_method(void *service, td_call *call, td_str request);
void td_get_step_sequence_method(void *service, td_call *call, td_str request);
/* RecvTensor, and tensord's own RecvTensors (recv_batch.h). */
void td_recv_tensor_method(void *service, td_call *call, td_str request);
void td_recv_tensors_method(void *service, td_call *call, td_str request);
/* A key of theirs; it must name a device of this task, and this incarnation of it. Parts borrow from `text`. */
td_status td_recv_key_parse(const td_task *task, td_str text, td_rendezvous_key *key, td_frame_id *frame) TD_MUST_USE;

/* Runs a request's handler on a control thread. The handler owns the call from then on; one that waits for others must
 * end when `gave_up` becomes true: the client has gone, or the server stops. */
typedef struct td_request td_request;
typedef void (*td_request_fn)(td_request *r);
struct td_request {
  td_work work;
  _Atomic uint32_t refs; /* the handler's, and the call's cancellation */
  atomic_bool gave_up;
  td_task *task;
  td_call *call;
  td_str bytes; /* valid until the call is answered */
  td_request_fn run;
  td_arena arena;
};
void td_request_start(td_task *task, td_call *call, td_str bytes, td_request_fn run);
/* Answers with a message or, if `status` is an error, with that; the handler's reference ends. */
void td_request_reply(td_request *r, td_status status, const ProtobufCMessage *reply);

/* Answers with bytes, which pass. */
void td_request_reply_bytes(td_request *r, td_payload *reply);

/* Answers with a message that needs no arena. */
void td_call_reply_message(td_call *call, const ProtobufCMessage *reply);

#endif /* TD_CLUSTER_SERVICES_H_ */

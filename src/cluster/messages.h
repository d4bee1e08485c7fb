/* Messages that carry tensors, framed by hand around payloads that are not copied, and statuses between servers. */
#ifndef TD_CLUSTER_MESSAGES_H_
#define TD_CLUSTER_MESSAGES_H_

#include "base/arena.h"
#include "proto/config.pb-c.h"
#include "rpc/rpc.h"
#include "tensor/tensor.h"

/* ---- tensors in messages ---- */

/* Appends `t` as the TensorProto field `number`; large contents by reference (the tensor is retained until sent). */
td_status td_payload_add_tensor(td_payload *p, uint32_t number, td_tensor *t) TD_MUST_USE;
/* Appends a NamedTensorProto{name, tensor} as field `number`. */
td_status td_payload_add_named_tensor(td_payload *p, uint32_t number, td_str name, td_tensor *t) TD_MUST_USE;
/* Appends an encoded message. */
td_status td_payload_add_message(td_payload *p, const ProtobufCMessage *m) TD_MUST_USE;

typedef struct td_named_tensor {
  td_str name;
  td_tensor *tensor; /* one reference; NULL if it could not be decoded */
} td_named_tensor;

/* A list of named tensors in an arena. */
typedef struct td_named_tensors {
  td_named_tensor *items;
  size_t count;
} td_named_tensors;
void td_named_tensors_release(td_named_tensors *t);
/* One NamedTensorProto, as a list of one. */
td_status td_named_tensor_decode(td_str bytes, td_arena *arena, td_named_tensors *out) TD_MUST_USE;

/* ---- RunStep ---- */
typedef struct td_run_step_request {
  td_str session, partial_run_handle;
  td_named_tensors feeds;
  td_str *fetches, *targets; /* as written, borrowed from the request */
  size_t fetch_count, target_count;
  td_str options; /* an encoded RunOptions */
  int64_t request_id;
  bool store_errors_in_body;
} td_run_step_request;
/* Strings borrow from `bytes`, lists lie in `arena`; feeds hold one reference each (released by the caller also on
 * an error). A feed that is no tensor: INVALID_ARGUMENT "Invalid TensorProto for feed value <i>". */
td_status td_run_step_request_decode(td_str bytes, td_arena *arena, td_run_step_request *out) TD_MUST_USE;

/* The fields of RunOptions that steps need; bytes are borrowed. */
typedef struct td_run_options_view {
  int trace_level;
  int64_t timeout_ms, collective_graph_key;
  bool output_partition_graphs;
  td_str debug; /* an encoded DebugOptions that has watches; else empty */
} td_run_options_view;
td_status td_run_options_decode(td_str bytes, td_run_options_view *out) TD_MUST_USE;

/* ---- RunCallable ---- */
typedef struct td_run_callable_request {
  td_str session;
  int64_t handle, request_id;
  td_named_tensors feeds; /* without names, in order */
} td_run_callable_request;
td_status td_run_callable_request_decode(td_str bytes, td_arena *arena, td_run_callable_request *out) TD_MUST_USE;

/* ---- RunGraph ---- */
enum { TD_RUN_GRAPH_ENDED_STEPS = 1000 }; /* a field that TensorFlow's RunGraphRequest has not */
typedef struct td_run_graph_request {
  td_str session, graph_handle;
  int64_t step_id, request_id;
  td_named_tensors sends;
  td_str *recv_keys;
  size_t recv_key_count;
  td_str ended_steps; /* of tensord masters, what CleanupGraph would say: ids as varints */
  bool record_costs, record_timeline, record_partition_graphs, is_partial, is_last_partial_run, store_errors_in_body,
      create_worker_session_called;
} td_run_graph_request;
td_status td_run_graph_request_decode(td_str bytes, td_arena *arena, td_run_graph_request *out) TD_MUST_USE;

/* ---- RecvTensor ---- */

/* The reply, in the layout that TensorFlow's fast parser takes. `t` may be NULL if dead. */
td_status td_recv_tensor_response_encode(td_tensor *t, bool is_dead, td_payload *out) TD_MUST_USE;

/* Receives a RecvTensorResponse, the tensor's elements straight into the tensor. */
typedef struct td_recv_tensor_receiver td_recv_tensor_receiver;
td_recv_tensor_receiver *td_recv_tensor_receiver_create(void);
td_receiver *td_recv_tensor_receiver_base(td_recv_tensor_receiver *r);
/* The whole message came: the tensor (one reference; NULL if dead). */
td_status td_recv_tensor_receiver_take(td_recv_tensor_receiver *r, td_tensor **out, bool *is_dead) TD_MUST_USE;
/* When the sender began to send, microseconds since the epoch by its clock; 0: it did not tell. */
int64_t td_recv_tensor_receiver_sent_us(const td_recv_tensor_receiver *r);
void td_recv_tensor_receiver_release(td_recv_tensor_receiver *r); /* the creator's hold; the call has its own */

/* ---- statuses between servers ---- */

/* What a peer reported in a message body: strips the mark of derived errors of TensorFlow 1.x and keeps it as the
 * status's own. */
td_status td_status_from_peer(int code, td_str message) TD_MUST_USE;
/* What a call to a peer ended with: also knows the mark of 2.x (`details`); consumes `status`. A cancelled call is
 * derived. */
td_status td_status_from_call(td_status status, td_str details) TD_MUST_USE;
/* Ends a peer's call with an error, marked in both dialects if derived; consumes `status`. */
void td_call_fail_peer(td_call *call, td_status status);
/* Ends a client's call: never marked; consumes `status`. */
void td_call_fail_client(td_call *call, td_status status);
/* The message with TensorFlow 1.x's mark if derived; td_free()d by the caller. */
char *td_status_marked_message(td_status status);

#endif /* TD_CLUSTER_MESSAGES_H_ */

/* RecvBuf's messages: bytes of a collective, in the form that TensorFlow gives them: RecvBufResponse.transport_options
 * is an Any of RecvBufRespExtra, whose tensor_content are pieces of one value. */
#ifndef TD_CLUSTER_RECV_BUF_RECEIVER_H_
#define TD_CLUSTER_RECV_BUF_RECEIVER_H_

#include "rpc/payload.h"
#include "tensor/tensor.h"

/* Takes a RecvBufResponse as it comes, the pieces straight to where they belong. Held by its creator and by the call.
 */
typedef struct td_recv_buf_receiver td_recv_buf_receiver;
td_recv_buf_receiver *td_recv_buf_receiver_create(void *into, size_t size);
td_receiver *td_recv_buf_receiver_base(td_recv_buf_receiver *r);
/* The whole message came. INTERNAL "RecvBufResponse returned <n> bytes where to_tensor expected <size>". */
td_status td_recv_buf_receiver_check(const td_recv_buf_receiver *r) TD_MUST_USE;
void td_recv_buf_receiver_release(td_recv_buf_receiver *r);

/* Appends the response with these bytes of `owner`, by reference. */
void td_recv_buf_response_encode(td_tensor *owner, const void *data, size_t size, td_payload *out);

#endif /* TD_CLUSTER_RECV_BUF_RECEIVER_H_ */

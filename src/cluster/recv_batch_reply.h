/* The reply of RecvTensors (recv_batch.h) as it comes: each tensor is made from the bytes as they pass, so that no
 * message is gathered, and bytes are copied once. Loop thread only. */
#ifndef TD_CLUSTER_RECV_BATCH_REPLY_H_
#define TD_CLUSTER_RECV_BATCH_REPLY_H_

#include "rpc/payload.h"
#include "tensor/loan.h"

/* What came for one key. */
typedef struct td_recv_batch_entry {
  uint64_t place;    /* of the key in the request, as the peer says */
  td_tensor *tensor; /* owned; NULL: `number` tells why */
  uint64_t number;
} td_recv_batch_entry;

typedef struct td_recv_batch_reply td_recv_batch_reply;

/* For a reply with at most `most` entries: INTERNAL if there are more. `lender`: who may lend tensors instead of
 * sending them; NULL: nobody. A reference for the creator and one for the call, which its receiver's destroy() ends. */
td_recv_batch_reply *td_recv_batch_reply_create(size_t most, td_lender *lender);
td_receiver *td_recv_batch_reply_receiver(td_recv_batch_reply *r);
void td_recv_batch_reply_release(td_recv_batch_reply *r);

/* What stands before the tensors. */
typedef struct td_recv_batch_head {
  int64_t sent_us; /* by the peer's clock */
  uint64_t rest;   /* the number to ask for the rest by; 0: there is none */
  uint64_t number; /* of the keys; 0: they got none */
  bool is_unknown; /* the number that the request gave */
} td_recv_batch_head;

/* The whole message came. The entries are the reply's; who takes a tensor leaves NULL. INTERNAL: it ends within a
 * field. */
td_status td_recv_batch_reply_end(td_recv_batch_reply *r, td_recv_batch_head *head, td_recv_batch_entry **entries,
                                  size_t *count) TD_MUST_USE;

#endif /* TD_CLUSTER_RECV_BATCH_REPLY_H_ */

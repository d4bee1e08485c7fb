/* The reply of RecvTensors (recv_batch.h) as it is made; recv_batch_reply.h reads it. What goes to a neighbour that may
 * borrow is lent if that is cheaper than sending it: large tensors where they lie, small ones that go together in
 * parcels (loan.h). One thread. */
#ifndef TD_CLUSTER_RECV_BATCH_WRITER_H_
#define TD_CLUSTER_RECV_BATCH_WRITER_H_

#include "cluster/recv_batch_reply.h"

typedef struct td_recv_batch_writer {
  td_payload message;
  bool lends; /* whether something was lent */
  /* private */
  td_strbuf fields; /* not yet in the message; */
  td_strbuf packed; /* those of the tensors in the open parcel, which stay together */
  pid_t borrower;
  const void *step;
  size_t due; /* room that announced tensors will take in parcels */
  char *room; /* of the parcel that is being filled, */
  size_t left;
  td_loan loan; /* and its place there */
} td_recv_batch_writer;

/* `borrower`: the process that the reply goes to, 0 if it cannot borrow; `step`: the loans' (loan.h). */
void td_recv_batch_writer_init(td_recv_batch_writer *w, const td_recv_batch_head *head, pid_t borrower,
                               const void *step);
/* The tensor will be put. Before the first is, that it be known what goes together. */
void td_recv_batch_writer_announce(td_recv_batch_writer *w, const td_tensor *t);
/* Puts the tensor of the key at `place`, borrowed for the call. *is_left: it is too large for a message and cannot be
 * lent, which the reply now says. */
td_status td_recv_batch_writer_put(td_recv_batch_writer *w, uint64_t place, td_tensor *t, bool *is_left) TD_MUST_USE;
/* Puts that the tensor is dead. */
void td_recv_batch_writer_put_dead(td_recv_batch_writer *w, uint64_t place);
/* Ends the use of all but the message, which is the caller's to send or deinit. */
void td_recv_batch_writer_end(td_recv_batch_writer *w);

#endif /* TD_CLUSTER_RECV_BATCH_WRITER_H_ */

/* Tensors of a step, one or many, asked of one peer together, where RecvTensor has a call for each.
 *
 * RecvTensors, between tensord tasks only (a TensorFlow server answers UNIMPLEMENTED, and is not asked again):
 *
 *   request   1 step_id, 7 request_id and the keys: 2 key (repeated), and 6 true to have this set of keys numbered, or
 *             8 a set's number (key_sets.h); or, for those that are left, 1 step_id, 3 batch, 7 request_id. Either
 *             with 9 the number of the memory of which tensors may be lent, if the asker has mapped it (loan.h)
 *   reply     sent in the turn of the loop in which one tensor is there, with all that are there by then. 4 sent_us;
 *             5 batch, if some are left; 6 the set's number, once, if that was asked for and granted; then of each
 *             tensor, in this order, 1 the place of its key in the request and one of 2 TensorProto, 3 a number: 1 it
 *             is dead, 2 it is too large to share a message: ask for it by RecvTensor; or, if it is lent, its sizes
 *             (10, repeated), 11 type, 12 offset, 13 slot, 14 ticket; tensors that follow each other may lie in one
 *             loan. Or only 8: true: the set's number is not known
 *
 * So tensors that are made one after the other gather while the reply before them is on its way: as the calls take
 * longer, they get fewer.
 */
#ifndef TD_CLUSTER_RECV_BATCH_H_
#define TD_CLUSTER_RECV_BATCH_H_

#include "cluster/key_sets.h"
#include "cluster/transfer_log.h"
#include "framework/rendezvous.h"
#include "rpc/rpc.h"
#include "tensor/loan.h"

#define TD_RECV_TENSORS_PATH "/tensord.WorkerService/RecvTensors"

enum { TD_BATCH_DEAD = 1, TD_BATCH_TOO_LARGE = 2 };
enum { TD_LENT_SIZE = 10, TD_LENT_TYPE, TD_LENT_OFFSET, TD_LENT_SLOT, TD_LENT_TICKET }; /* fields, in this order */

typedef struct td_recv_batch td_recv_batch;

/* What a batch needs of the peer's connection. */
typedef struct td_recv_batch_peer {
  /* RecvTensor of one key; as recv_tensor() in worker.h. */
  td_client_call *(*recv_tensor)(void *arg, td_channel *ch, int64_t step_id, td_str key, td_recv *request);
  void (*is_unknown)(void *arg); /* the peer does not know RecvTensors */
  void *arg;
  td_transfer_log *transfers;
  td_known_sets *known; /* the connection's; used on its loop only */
  td_lender *lender;    /* borrowed until the batch has started; NULL: the peer lends nothing */
} td_recv_batch_peer;

/* A batch that receives nothing yet; one reference. */
td_recv_batch *td_recv_batch_create(int64_t step_id, size_t count);
/* Before it starts. `key`: its canonical text and that text's hash; the text is borrowed until request->done(). */
void td_recv_batch_add(td_recv_batch *b, td_str key, uint64_t hash, td_frame_id frame, td_recv *request);
/* Asks. Each request's done() comes once, on the channel's loop thread. */
void td_recv_batch_start(td_recv_batch *b, td_channel *ch, const td_recv_batch_peer *peer);
/* Without a channel: every request ends with `status` (consumed). */
void td_recv_batch_fail(td_recv_batch *b, td_status status);
/* What has not come ends with CANCELLED. Thread-safe; also before the start. */
void td_recv_batch_cancel(td_recv_batch *b);
td_recv_batch *td_recv_batch_retain(td_recv_batch *b);
void td_recv_batch_release(td_recv_batch *b);

/* ---- the side that is asked ---- */

/* A task's batches of which some tensors were sent and others not yet. */
typedef struct td_recv_batches td_recv_batches;
td_recv_batches *td_recv_batches_create(void);
void td_recv_batches_destroy(td_recv_batches *t); /* once no step is left */
size_t td_recv_batches_count(td_recv_batches *t); /* thread-safe */

#endif /* TD_CLUSTER_RECV_BATCH_H_ */

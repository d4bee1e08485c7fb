/* One run of a member, to the files of this folder. An actor: its algorithm runs on one thread at a time, on the step's
 * pool; what comes back from elsewhere is put into its inbox. */
#ifndef TD_COLLECTIVE_INTERNAL_H_
#define TD_COLLECTIVE_INTERNAL_H_

#include <pthread.h>

#include "collective/layout.h"
#include "collective/op.h"

typedef struct td_collective_op td_collective_op;

/* Bytes on their way to or from another member. Belongs to the algorithm while it is not under way. */
typedef struct td_transfer {
  td_collective_op *op;
  struct td_transfer *next; /* the inbox's */
  td_status status;         /* how it ended */
  td_buf_offer offer;       /* of a send */
  td_buf_want want;         /* of a receive from a member of this task: */
  td_buf_offer *got;        /*   its bytes, until td_transfer_taken() */
  void *into;               /* of a receive from another task: where they came */
  int action;               /* the algorithm's */
} td_transfer;

typedef struct td_algorithm {
  td_status (*start)(td_collective_op *op);
  void (*advance)(td_collective_op *op, td_transfer *t); /* one came back; its status is OK */
  void (*destroy)(td_collective_op *op);
} td_algorithm;

struct td_collective_op {
  atomic_uint refs; /* the run's, and its cancellation's */
  td_collective *c; /* the kernel's, until it is told */
  td_collective_step *step;
  td_resolver *resolver;         /* retained */
  td_buf_rendezvous *bufs;       /* retained */
  td_cancellation *cancellation; /* retained */
  td_net_calls *calls;           /* NULL: there are no other tasks */
  td_cancel_callback on_cancel;
  uint64_t since_ns;
  td_membership resolution;
  td_member *member; /* once resolved */
  const td_algorithm *algorithm;
  void *state;  /* the algorithm's */
  td_work work; /* on the pool */
  pthread_mutex_t lock;
  /* guarded by lock */
  td_transfer *inbox, **inbox_end;
  bool is_scheduled;
  /* the actor's */
  bool is_started;
  td_status status; /* of the run, once it has failed */
  int pending;      /* transfers under way */
  int left;         /* what the algorithm has still to finish */
};

extern const td_algorithm td_ring_algorithm, td_tree_algorithm;

/* Sends `size` bytes of `owner` to whoever asks for `key`; asks rank `from` for `size` bytes, which come to `into` if
 * that is a member of another task. They come back through advance(). The key: what comes after the run's own. */
void td_transfer_send(td_transfer *t, td_str key, td_tensor *owner, const void *data, size_t size);
void td_transfer_recv(td_transfer *t, td_str key, int from, void *into, size_t size);
bool td_op_is_local(const td_collective_op *op, int rank);
/* What was received. INTERNAL when it is not of that size. */
td_status td_transfer_bytes(td_transfer *t, size_t size, const void **out) TD_MUST_USE;
void td_transfer_taken(td_transfer *t); /* they are not needed any more */
/* The run fails with `status` (consumed); what is under way comes back. */
void td_op_fail(td_collective_op *op, td_status status);

#endif /* TD_COLLECTIVE_INTERNAL_H_ */

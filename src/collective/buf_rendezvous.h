/* Where the members of a collective on one task leave what others take (TensorFlow's BufRendezvous): by key, once each.
 *
 * Whoever offers bytes keeps them as they are until they were taken; whoever wants them reads them where they lie. One
 * per step; reference-counted; thread-safe. No callback runs under a lock.
 */
#ifndef TD_COLLECTIVE_BUF_RENDEZVOUS_H_
#define TD_COLLECTIVE_BUF_RENDEZVOUS_H_

#include "base/status.h"
#include "base/str.h"
#include "framework/cancellation.h"
#include "tensor/tensor.h"

typedef struct td_buf_rendezvous td_buf_rendezvous;
typedef struct td_buf_offer td_buf_offer;
typedef struct td_buf_want td_buf_want;

struct td_buf_offer { /* embed it */
  const void *data;
  size_t size;
  td_tensor *owner; /* of the bytes; borrowed, alive until done() */
  /* Exactly once: the bytes were taken, or nobody will take them. */
  void (*done)(td_buf_offer *o, td_status status);
};

struct td_buf_want { /* embed it */
  /* Exactly once, possibly inside td_buf_rendezvous_want(), unless it was withdrawn. On OK the bytes of *offer are
   * there until the receiver calls td_buf_taken(). */
  void (*done)(td_buf_want *w, td_status status, td_buf_offer *offer);
};

/* Aborted when `cancellation` (of its step) fires. `id`: the step's, for the text of that. */
td_buf_rendezvous *td_buf_rendezvous_create(int64_t id, td_cancellation *cancellation);
td_buf_rendezvous *td_buf_rendezvous_retain(td_buf_rendezvous *r);
void td_buf_rendezvous_release(td_buf_rendezvous *r);
/* Its step goes: the creator's reference, and the cancellation's hold on it. */
void td_buf_rendezvous_close(td_buf_rendezvous *r);

/* INTERNAL "BufRendezvous::ProvideBuf already called for key <key>". */
void td_buf_rendezvous_offer(td_buf_rendezvous *r, td_str key, td_buf_offer *o);
/* INTERNAL "Second consumer arrived for key <key>". */
void td_buf_rendezvous_want(td_buf_rendezvous *r, td_str key, td_buf_want *w);
/* True: `w` waited, and its done() will not come. */
bool td_buf_rendezvous_withdraw(td_buf_rendezvous *r, td_str key, td_buf_want *w);
static inline void td_buf_taken(td_buf_offer *o) { o->done(o, TD_STATUS_OK); }
/* Ends all that waits and all that comes later with `status` (borrowed), the latter marked derived. The first wins. */
void td_buf_rendezvous_abort(td_buf_rendezvous *r, td_status status);

#endif /* TD_COLLECTIVE_BUF_RENDEZVOUS_H_ */

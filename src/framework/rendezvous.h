/* Rendezvous: where the producer of a tensor and its consumer on another device or task meet.
 *
 * A key is parsed once, when a graph is registered; at a step it is completed by frame and iteration. Each send is
 * consumed by one receive; repeated sends of one key queue up.
 */
#ifndef TD_FRAMEWORK_RENDEZVOUS_H_
#define TD_FRAMEWORK_RENDEZVOUS_H_

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"
#include "framework/step.h"
#include "tensor/tensor.h"

/* "src_device;incarnation;dst_device;edge_name", without the trailing ";frame:iter". */
typedef struct td_rendezvous_key {
  td_str text;   /* the whole, as above; canonical */
  uint64_t hash; /* td_hash of text */
  td_str src_device, dst_device, edge;
  uint64_t src_incarnation;
} td_rendezvous_key;

/* Builds the canonical key in `arena`. */
void td_rendezvous_key_make(td_arena *arena, td_str src_device, uint64_t src_incarnation, td_str dst_device,
                            td_str edge, td_rendezvous_key *out);
/* Parses a full key from the wire, "src;incarnation;dst;edge;frame:iter". `key`'s parts borrow from `text`.
 * The frame id goes into both members of *frame. INVALID_ARGUMENT "Invalid  rendezvous key: <key>". */
td_status td_rendezvous_key_parse(td_str text, td_rendezvous_key *key, td_frame_id *frame) TD_MUST_USE;
/* Appends the full key for the wire: `text`, the key's canonical one, with the frame id of one dialect (`is_2x`). */
void td_rendezvous_key_format(td_str text, td_frame_id frame, bool is_2x, td_strbuf *out);

enum { TD_RECV_SHARED_MAX = 64 * 1024 }; /* bytes of a tensor that may share a message with others */

/* A receive in progress, intrusive; embed it. */
typedef struct td_recv td_recv;
struct td_recv {
  /* Exactly once; no lock held; any thread (possibly inside recv()). On OK *t is one reference, the receiver's
   * (NULL if dead). */
  void (*done)(td_recv *r, td_status status, td_tensor *t, bool is_dead);
  bool is_large; /* in, a hint: it will be more than TD_RECV_SHARED_MAX bytes, and gets a message of its own */
  td_recv *next; /* the rendezvous's */
  void *impl;    /* the rendezvous's */
};

typedef struct td_variable td_variable; /* framework/variable.h */

typedef struct td_rendezvous_ops {
  /* Offers a tensor; takes the reference (NULL allowed if dead). The key is copied if it must be kept. */
  td_status (*send)(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, td_tensor *t, bool is_dead);
  /* Offers a variable: the receiver gets the value that it has when the two meet. Takes the reference. */
  td_status (*send_variable)(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, td_variable *v);
  /* Asks for one. */
  void (*recv)(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, td_recv *request);
  /* Fails everything that waits and all that comes later with `status` (retained as needed). Idempotent. */
  void (*abort)(td_rendezvous *r, td_status status);
  void (*destroy)(td_rendezvous *r);
} td_rendezvous_ops;

struct td_rendezvous { /* embed it first */
  const td_rendezvous_ops *ops;
  _Atomic uint32_t refs;
};

static inline td_status td_rendezvous_send(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame,
                                           td_tensor *t, bool is_dead) {
  return r->ops->send(r, key, frame, t, is_dead);
}
static inline td_status td_rendezvous_send_variable(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame,
                                                    td_variable *v) {
  return r->ops->send_variable(r, key, frame, v);
}
static inline void td_rendezvous_recv(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame,
                                      td_recv *request) {
  r->ops->recv(r, key, frame, request);
}
static inline void td_rendezvous_abort(td_rendezvous *r, td_status status) { r->ops->abort(r, status); } /* borrows */
td_rendezvous *td_rendezvous_retain(td_rendezvous *r);
void td_rendezvous_release(td_rendezvous *r);

#endif /* TD_FRAMEWORK_RENDEZVOUS_H_ */

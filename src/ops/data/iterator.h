/* Iterators: a tree of stateful objects made from a dataset, and the driver that runs it.
 *
 * An iterator is a small state machine (td_dataset_ops.advance) that never calls its inputs: it says which one it
 * needs, and the driver goes there and comes back with the result. So neither a deep tree nor a chain of completions
 * uses the stack, and the driver is the one place that knows turns, cancellation and waiting.
 *
 * A driver serves one request at a time, in order of arrival; the tree below it belongs to whoever runs it at the
 * moment and needs no locks. A part of a tree that works ahead (Prefetch, parallel maps) has a driver of its own.
 */
#ifndef TD_OPS_DATA_ITERATOR_H_
#define TD_OPS_DATA_ITERATOR_H_

#include <pthread.h>

#include "framework/cancellation.h"
#include "ops/data/captured.h"
#include "ops/data/dataset.h"

typedef struct td_driver td_driver;

struct td_iterator {
  td_dataset *dataset; /* retained */
  td_iterator *parent; /* NULL: its driver's root */
  td_driver *driver;   /* borrowed */
  int depth;
  td_iterator *pulls; /* what TD_NEXT_PULL asks for */
  /* The result: an element, an error, or the end (neither). Whoever uses it takes it. */
  td_element *element;
  td_status status;
};

/* An iterator over `d`, which it retains, below `parent` (NULL: the root) in `driver`'s tree. RESOURCE_EXHAUSTED when
 * the tree becomes too deep. */
td_status td_iterator_create(td_dataset *d, td_iterator *parent, td_driver *driver, td_iterator **out) TD_MUST_USE;
/* Its driver must not be running, or be at work outside this subtree. NULL is fine. */
void td_iterator_destroy(td_iterator *it);
/* An iterator over an input of it->dataset. */
td_status td_iterator_create_input(td_iterator *it, int input, td_iterator **out) TD_MUST_USE;

/* Who takes its elements, also across drivers; NULL: nobody. Only while `it` is being made. */
const td_iterator *td_iterator_consumer(const td_iterator *it);

/* ---- inside advance() ---- */

static inline td_next td_iterator_pull(td_iterator *it, td_iterator *input) {
  it->pulls = input;
  return TD_NEXT_PULL;
}
td_next td_iterator_give(td_iterator *it, td_element *e);        /* takes the element; NULL: the end */
td_next td_iterator_fail(td_iterator *it, td_status s);          /* takes the error */
td_next td_iterator_pass(td_iterator *it, td_iterator *input);   /* the input's result is its own */
td_element *td_iterator_take(td_iterator *input);                /* NULL: end or error */
static inline bool td_iterator_ended(const td_iterator *input) { /* or failed */
  return !input->element;
}
/* Calls a function on behalf of `it`; takes `e`. TD_NEXT_READY: it has ended already; else hand TD_NEXT_WAIT on, it has
 * ended when advance() is called again. Either way td_data_call_take() tells how. */
td_next td_iterator_call(td_iterator *it, td_data_call *call, const td_captured *c, td_element *e);
/* A function failed (takes the error): out of range is the end of the sequence, unless its length was promised. */
td_next td_iterator_call_failed(td_iterator *it, td_status s, bool preserves_cardinality);
/* TD_NEXT_HOP where work on that many bytes had better run on the pool, TD_NEXT_READY where it may go on here. */
td_next td_iterator_costs(const td_iterator *it, size_t bytes);

/* ---- drivers ---- */

/* Who asks it retains a driver; with the last of them (and of the requests) its tree goes. Who will wake it only
 * watches it: that keeps its memory, and a wake without effect is harmless. pool NULL: everything inline. */
td_driver *td_driver_create(td_pool *pool);
td_driver *td_driver_retain(td_driver *d);
void td_driver_release(td_driver *d);
td_driver *td_driver_watch(td_driver *d);
void td_driver_unwatch(td_driver *d);
td_pool *td_driver_pool(const td_driver *d);
int td_driver_depth(const td_driver *d); /* of its root's parent in another driver's tree; 0: none */
/* Makes it run an iterator over `dataset`, for an iterator of another driver's tree (NULL: none). Once. */
td_status td_driver_set_root(td_driver *d, td_dataset *dataset, td_iterator *consumer) TD_MUST_USE;

td_dataset *td_driver_dataset(const td_driver *d); /* its root's, borrowed */
/* As td_iterator_costs(), for td_request.use. */
td_next td_driver_costs(td_driver *d, size_t bytes);

typedef struct td_request td_request;
struct td_request {              /* embedded in what the owner allocates */
  td_cancellation *cancellation; /* NULL: never cancelled. Must live until done() */
  /* Exactly once, on any thread, no lock held; may be called before td_driver_next() returns. `element` (NULL: the end)
   * is the callee's. The request's memory is the owner's again, but for the callback that a cancellation may be
   * running: see `refs`. */
  void (*done)(td_request *r, td_status status, td_element *element);
  void (*destroy)(td_request *r); /* frees its memory, after done() */
  /* NULL: asks for the next element. Else: called in its turn, when every iterator rests between two elements, instead
   * of advancing. TD_NEXT_READY ends the request with *status; TD_NEXT_WAIT, TD_NEXT_HOP as in advance(): it is called
   * again. */
  td_next (*use)(td_request *r, td_driver *d, td_status *status);
  /* private */
  td_driver *driver;
  _Atomic int refs;
  td_cancel_callback cancel;
  bool is_registered;
  enum { TD_REQUEST_QUEUED, TD_REQUEST_ACTIVE, TD_REQUEST_DONE } state;
  td_request *prev, *next;
};

/* Asks for the next element. A request whose cancellation fires ends with CANCELLED; nothing of the sequence is lost by
 * that unless a function was being called for it. */
void td_driver_next(td_driver *d, td_request *r);

/* What a TD_NEXT_WAIT waited for is there. It goes on on the pool. Thread-safe; no lock that advance() takes may be
 * held. */
void td_driver_wake(td_driver *d);
/* The same for a request that uses the tree; it disturbs no other one, however late it comes. */
void td_driver_wake_use(td_driver *d);

#endif /* TD_OPS_DATA_ITERATOR_H_ */

/* Sets of rendezvous keys that two tasks know by number.
 *
 * What a step asks of a task in one call is mostly what the step before asked (recv_batch.h). The task that is asked
 * gives such a set a number, and keeps it parsed; the one that asks says the number instead of the keys. A number that
 * the asked task has forgotten (it keeps a bounded number of sets, the latest) is no error: it says so, and hears the
 * keys again. Numbers are drawn at random, so that one from before a restart names nothing.
 */
#ifndef TD_CLUSTER_KEY_SETS_H_
#define TD_CLUSTER_KEY_SETS_H_

#include "cluster/task.h"
#include "framework/rendezvous.h"

/* ---- the side that is asked: thread-safe ---- */

/* Immutable but for its references; each key with the frame that it stood with. */
typedef struct td_key_set {
  _Atomic uint32_t refs;
  uint64_t number; /* 0: it has none */
  size_t count;
  char *bytes; /* which the keys borrow */
  size_t size;
  struct td_framed_key {
    td_rendezvous_key key;
    td_frame_id frame;
  } keys[];
} td_key_set;

typedef struct td_key_sets td_key_sets; /* a task's */
td_key_sets *td_key_sets_create(void);
void td_key_sets_destroy(td_key_sets *s);

/* Parses the `count` keys in the fields 2 of `message`, whose bytes are copied; one reference. Errors are
 * td_recv_key_parse()'s. */
td_status td_key_set_parse(const td_task *task, td_str message, size_t count, td_key_set **out) TD_MUST_USE;
/* Gives a set that has none a number by which it is found from now on, unless it is too large to be kept. */
void td_key_sets_keep(td_key_sets *s, td_key_set *set);
/* One reference; NULL: no set has this number (any more). */
td_key_set *td_key_sets_find(td_key_sets *s, uint64_t number);
size_t td_key_sets_count(td_key_sets *s);
void td_key_set_release(td_key_set *set); /* NULL: nothing */

/* ---- the side that asks: not thread-safe; one for each connection ---- */

typedef struct td_known_sets td_known_sets;
td_known_sets *td_known_sets_create(void);
void td_known_sets_destroy(td_known_sets *k); /* NULL: nothing */

/* `keys`: the fields 2 as they would be sent; `hash`: any function of them. The number by which the peer knows just
 * these, or 0; then *asks says whether to ask it for one: not before the same keys were needed a second time. */
uint64_t td_known_sets_find(td_known_sets *k, uint64_t hash, td_str keys, bool *asks);
/* The peer answered with a number for `keys` (copied). */
void td_known_sets_learn(td_known_sets *k, uint64_t hash, td_str keys, uint64_t number);
/* The peer has forgotten it. */
void td_known_sets_forget(td_known_sets *k, uint64_t number);

#endif /* TD_CLUSTER_KEY_SETS_H_ */

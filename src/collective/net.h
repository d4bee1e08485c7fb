/* What collectives ask of other tasks: the interface; src/cluster/collective_calls.c implements it.
 *
 * The calls of one run form a set that is cancelled together. Every call ends exactly once, on any thread, possibly
 * inside the function that starts it, with no lock held; a cancelled one with CANCELLED (derived).
 */
#ifndef TD_COLLECTIVE_NET_H_
#define TD_COLLECTIVE_NET_H_

#include "collective/group.h"

typedef struct td_net_ops td_net_ops;

/* Where the other tasks are, as a session knows them. */
typedef struct td_net { /* embed it */
  const td_net_ops *ops;
} td_net;

/* A set of calls; reference-counted, each call holds it. */
typedef struct td_net_calls { /* embed it */
  const td_net_ops *ops;
} td_net_calls;

typedef struct td_recv_buf {
  int64_t step_id;
  const char *task;      /* whom to ask */
  const char *device;    /* whose bytes */
  const char *to_device; /* for whom */
  td_str key;
  void *into;  /* where they go; the caller's again from done() on */
  size_t size; /* of the bytes; another size is INTERNAL */
} td_recv_buf;

struct td_net_ops {
  td_net_calls *(*open)(td_net *net);
  void (*cancel)(td_net_calls *calls); /* also those that are started later */
  void (*release)(td_net_calls *calls);
  void (*recv_buf)(td_net_calls *calls, const td_recv_buf *what, void (*done)(void *arg, td_status status), void *arg);
  /* Of the leader. The group is borrowed. */
  void (*complete_group)(td_net_calls *calls, const char *leader, const td_group_member *m,
                         void (*done)(void *arg, td_status status, td_group *group), void *arg);
  void (*complete_instance)(td_net_calls *calls, const char *leader, const td_group *g, const td_instance_member *m,
                            const td_collective_spec *spec, void (*done)(void *arg, td_status status, int source_rank),
                            void *arg);
};

#endif /* TD_COLLECTIVE_NET_H_ */

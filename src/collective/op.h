/* The collectives of a step on one task: what a kernel's run becomes. */
#ifndef TD_COLLECTIVE_OP_H_
#define TD_COLLECTIVE_OP_H_

#include "base/pool.h"
#include "collective/buf_rendezvous.h"
#include "collective/net.h"
#include "collective/resolver.h"
#include "framework/cancellation.h"
#include "framework/collective.h"

/* What its runs need. Everything is borrowed and outlives the step's kernels; what a run needs longer it retains. */
typedef struct td_collective_step {
  td_collectives base; /* first */
  int64_t step_id;
  const char *task; /* this one, as the group's names know it */
  td_resolver *resolver;
  /* The step's meeting point, made when it is first needed: one reference. */
  td_buf_rendezvous *(*bufs)(struct td_collective_step *s);
  td_cancellation *cancellation;
  td_pool *pool; /* NULL: everything runs where it is triggered */
  td_net *net;   /* NULL: there are no other tasks */
} td_collective_step;

/* Sets the interface that kernels see (base). */
void td_collective_step_init(td_collective_step *s);

#endif /* TD_COLLECTIVE_OP_H_ */

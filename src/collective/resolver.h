/* Finds out who takes part in a collective: here, where this task leads (or no task does), or by asking the leader
 * (TensorFlow's CollectiveParamResolverDistributed). Thread-safe; reference-counted. */
#ifndef TD_COLLECTIVE_RESOLVER_H_
#define TD_COLLECTIVE_RESOLVER_H_

#include "collective/group.h"
#include "collective/net.h"

typedef struct td_resolver td_resolver;
/* `leader`: the task to ask; NULL: none, this one decides. */
td_resolver *td_resolver_create(const char *leader);
td_resolver *td_resolver_retain(td_resolver *r);
void td_resolver_release(td_resolver *r);

/* One member's question. Embed it; it, and the resolver, stay until done() and cancel() have returned. */
typedef struct td_membership td_membership;
struct td_membership {
  /* set by the caller */
  td_group_member group;       /* all that is borrowed lives until done() */
  td_instance_member instance; /* key etc.; unused if only_group */
  bool only_group;
  const td_collective_spec *spec; /* for the leader; NULL when this task leads */
  td_net_calls *calls;            /* likewise */
  /* Exactly once, with no lock held, possibly inside start(). The group is borrowed. */
  void (*done)(td_membership *q, td_status status, td_group *group, int source_rank);
  /* the resolver's */
  td_resolver *resolver;
  td_group *found; /* retained */
  td_group_wait group_wait;
  td_instance_wait instance_wait;
  atomic_bool is_cancelled;
};

void td_membership_init(td_resolver *r, td_membership *q);
void td_membership_start(td_membership *q);
/* Ends one that waits here, or will, with CANCELLED (derived); for what it asks of the leader, cancel its calls, too.
 * Any thread, at any time after td_membership_init(). */
void td_membership_cancel(td_membership *q);

#endif /* TD_COLLECTIVE_RESOLVER_H_ */

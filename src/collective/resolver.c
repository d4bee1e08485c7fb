#include "collective/resolver.h"

#include "base/mem.h"

struct td_resolver {
  atomic_uint refs;
  char *leader; /* NULL: this task */
  td_groups *groups;
  td_instances *instances;
};

td_resolver *td_resolver_create(const char *leader) {
  td_resolver *r = td_new(td_resolver);
  atomic_init(&r->refs, 1);
  r->leader = leader ? td_strdup(leader) : NULL;
  r->groups = td_groups_create();
  r->instances = td_instances_create();
  return r;
}

td_resolver *td_resolver_retain(td_resolver *r) {
  atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
  return r;
}

void td_resolver_release(td_resolver *r) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  td_groups_destroy(r->groups);
  td_instances_destroy(r->instances);
  td_free(r->leader);
  td_free(r);
}

static void end(td_membership *q, td_status status, int source_rank) {
  td_group *group = q->found;
  q->done(q, status, status ? NULL : group, source_rank); /* `q` may be gone */
  td_group_release(group);
}

/* ---- the instance ---- */

static void instance_done(td_instance_wait *w, td_status status, int source_rank) {
  end(TD_CONTAINER_OF(w, td_membership, instance_wait), status, source_rank);
}

static void join_instance(td_membership *q) {
  td_instances_join(q->resolver->instances, q->found, &q->instance, &q->instance_wait);
}

static void instance_told(void *arg, td_status status, int source_rank) {
  td_membership *q = arg;
  if (status) {
    end(q, status, -1);
    return;
  }
  td_instances_put(q->resolver->instances, q->found, &q->instance, source_rank);
  join_instance(q);
}

static void resolve_instance(td_membership *q) {
  td_resolver *r = q->resolver;
  if (q->only_group)
    end(q, TD_STATUS_OK, -1);
  else if (r->leader && !td_instances_has(r->instances, q->group.key, q->instance.key))
    q->calls->ops->complete_instance(q->calls, r->leader, q->found, &q->instance, q->spec, instance_told, q);
  else
    join_instance(q);
}

/* ---- the group ---- */

static void group_done(td_group_wait *w, td_status status, td_group *group) {
  td_membership *q = TD_CONTAINER_OF(w, td_membership, group_wait);
  if (status) {
    end(q, status, -1);
    return;
  }
  q->found = td_group_retain(group);
  resolve_instance(q);
}

static void group_told(void *arg, td_status status, td_group *group) {
  td_membership *q = arg;
  if (status) {
    end(q, status, -1);
    return;
  }
  td_groups_put(q->resolver->groups, group);
  td_groups_join(q->resolver->groups, &q->group, &q->group_wait); /* complete: it only checks */
}

void td_membership_init(td_resolver *r, td_membership *q) {
  q->resolver = r;
  q->found = NULL;
  q->group_wait.done = group_done;
  q->group_wait.cancelled = q->instance_wait.cancelled = &q->is_cancelled;
  q->instance_wait.done = instance_done;
  atomic_init(&q->is_cancelled, false);
}

void td_membership_start(td_membership *q) {
  td_resolver *r = q->resolver;
  td_group *known = r->leader ? td_groups_find(r->groups, q->group.key) : NULL;
  if (r->leader && !known)
    q->calls->ops->complete_group(q->calls, r->leader, &q->group, group_told, q);
  else
    td_groups_join(r->groups, &q->group, &q->group_wait);
  td_group_release(known);
}

void td_membership_cancel(td_membership *q) {
  atomic_store(&q->is_cancelled, true);
  td_resolver *r = q->resolver;
  if (td_groups_leave(r->groups, q->group.key, &q->group_wait) ||
      (!q->only_group && td_instances_leave(r->instances, q->group.key, q->instance.key, &q->instance_wait)))
    end(q, td_group_cancelled(), -1);
}

/* Groups and instances: who takes part in a collective, found out once (TensorFlow's CollectiveParamResolverLocal).
 *
 * A group is complete when as many devices as it has members have joined; its members' ranks are the order of their
 * names. An instance is a collective of a group: its members must agree on type and shape, and a broadcast waits until
 * all of them are known, for one must be the source. Thread-safe; callbacks run with no lock held, possibly inside the
 * call.
 */
#ifndef TD_COLLECTIVE_GROUP_H_
#define TD_COLLECTIVE_GROUP_H_

#include "base/status.h"
#include "base/str.h"
#include "framework/collective.h"

enum { TD_MAX_GROUP_SIZE = 65536 };

/* A complete group. Immutable; reference-counted. */
typedef struct td_group {
  atomic_uint refs;
  int32_t key, size;
  char *device_type;
  char **devices, **tasks; /* by rank: full device names, their tasks' names; a task's devices are neighbours */
  int task_count;
} td_group;
/* Takes copies. INVALID_ARGUMENT if a name is no full device name; INTERNAL if one comes twice. */
td_status td_group_create(int32_t key, td_str device_type, const td_str *devices, size_t count,
                          td_group **out) TD_MUST_USE;
td_group *td_group_retain(td_group *g);
void td_group_release(td_group *g);
int td_group_rank(const td_group *g, td_str device); /* -1: no member */

/* ---- the table of groups ---- */

typedef struct td_group_member {
  int32_t key, size;
  td_str device_type, device;
  td_str name; /* the op's, for errors */
} td_group_member;

typedef struct td_group_wait td_group_wait;
struct td_group_wait {                                               /* embed it */
  void (*done)(td_group_wait *w, td_status status, td_group *group); /* the group: borrowed */
  const atomic_bool *cancelled; /* set: joining ends with CANCELLED (derived); NULL: never */
  td_group_wait *next;          /* the table's */
  char *device;
};

typedef struct td_groups td_groups;
td_groups *td_groups_create(void);
void td_groups_destroy(td_groups *t); /* nobody waits any more */
/* Ends when the group is complete. INTERNAL in TensorFlow's words when the member does not fit; INVALID_ARGUMENT for a
 * bad size or device; RESOURCE_EXHAUSTED past 65,536 groups. */
void td_groups_join(td_groups *t, const td_group_member *m, td_group_wait *w);
/* True: `w` waited and its done() will not come; a member that nobody waits for has not joined. */
bool td_groups_leave(td_groups *t, int32_t key, td_group_wait *w);
td_group *td_groups_find(td_groups *t, int32_t key); /* a complete one: one reference; or NULL */
void td_groups_put(td_groups *t, td_group *g);       /* one that the leader told; retained unless there is one */

/* ---- the table of instances ---- */

typedef struct td_instance_member {
  int32_t key;
  td_collective_type type;
  td_dtype dtype;
  const td_shape *shape;
  td_str device; /* of the group */
  bool is_source;
} td_instance_member;

typedef struct td_instance_wait td_instance_wait;
struct td_instance_wait {                                               /* embed it */
  void (*done)(td_instance_wait *w, td_status status, int source_rank); /* -1: no broadcast */
  const atomic_bool *cancelled;                                         /* as of td_group_wait */
  td_instance_wait *next;                                               /* the table's */
  int rank;
};

/* CANCELLED (derived): the step of one who waited here ends. */
td_status td_group_cancelled(void) TD_MUST_USE;

typedef struct td_instances td_instances;
td_instances *td_instances_create(void);
void td_instances_destroy(td_instances *t); /* nobody waits any more */
/* INVALID_ARGUMENT "Shape mismatch in the collective instance …"; INTERNAL when type, source or device do not fit;
 * RESOURCE_EXHAUSTED past 1,048,576 instances. */
void td_instances_join(td_instances *t, td_group *g, const td_instance_member *m, td_instance_wait *w);
bool td_instances_leave(td_instances *t, int32_t group_key, int32_t key, td_instance_wait *w); /* as td_groups_leave */
bool td_instances_has(td_instances *t, int32_t group_key, int32_t key);
/* One that the leader told: joining it does not wait. Nothing if there is one. */
void td_instances_put(td_instances *t, const td_group *g, const td_instance_member *m, int source_rank);

#endif /* TD_COLLECTIVE_GROUP_H_ */

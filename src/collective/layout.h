/* Who talks to whom in an instance: rings and trees over a group's ranks, as TensorFlow lays them out (RingAlg,
 * HierarchicalTreeBroadcaster), so that its servers can be members. Pure functions. */
#ifndef TD_COLLECTIVE_LAYOUT_H_
#define TD_COLLECTIVE_LAYOUT_H_

#include "collective/group.h"

enum { TD_MAX_SUBDIVS = 1024 };

/* What a member knows of its instance after its first run. Immutable; a resource, kept by its kernel. */
typedef struct td_member {
  td_resource base; /* first */
  td_group *group;  /* retained */
  int rank, source_rank;
  int ring_count; /* of a reduction or gather; each is a permutation of the ranks */
  int *rings;     /* ring_count times group->size */
  int *places;    /* this member's place in each ring */
} td_member;

/* `size`: bytes of the tensor, for the number of rings where the node does not tell. INVALID_ARGUMENT for subdivisions
 * that a gather cannot have or past 1,024; INTERNAL as TensorFlow for an empty tensor without subdivisions. */
td_status td_member_create(td_group *group, int rank, int source_rank, const td_collective_spec *spec, size_t size,
                           td_member **out) TD_MUST_USE;

/* Elements of each of `chunks` chunks: an even share, rounded up past the next 64 bytes (TensorFlow's alignment) when
 * `align`. Chunk i begins at i times that, all within [0, count]. */
int64_t td_chunk_elements(int64_t count, size_t element_size, int64_t chunks, bool align);

/* A member's part in one of the trees of a broadcast: over the tasks first, then over each task's devices. */
typedef struct td_tree {
  int subdiv;      /* its number in keys */
  int size, place; /* members; this one's place among them */
  int from;        /* the place that it receives from; -1: it is the source here */
  int to[4], to_count;
  int ranks[5]; /* of `to`, and of `from` last */
} td_tree;
/* The trees that this member is in, in order; returns their number. */
int td_member_trees(const td_member *m, bool is_source, td_tree out[2]);

#endif /* TD_COLLECTIVE_LAYOUT_H_ */

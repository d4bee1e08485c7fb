/* Loops walked in a fixed order; for the runtime room only.
 *
 * From a frame's second iteration on, what arrives is known: every NextIteration's value and the loop's invariants. If
 * the frame holds nothing that could wait (no frame within it, no asynchronous or dead-aware kernel, no ref edge), its
 * nodes can run in one fixed order, in one window that serves all iterations, without counts and without the ready
 * ring. A plan is that order, made with the program. Values lie in the slots where the engine of frames.c has them, so
 * that it can go on at any node: where a kernel is worth a hand-over to the pool, or some NextIterations are dead and
 * others not.
 */
#ifndef TD_RUNTIME_WALK_H_
#define TD_RUNTIME_WALK_H_

#include "base/arena.h"
#include "runtime/program_internal.h"

typedef enum td_walk_kind {
  TD_WALK_NOTHING,
  TD_WALK_FORWARD,
  TD_WALK_CONSTANT,
  TD_WALK_MERGE,
  TD_WALK_SWITCH,
  TD_WALK_KERNEL,
  TD_WALK_EXIT,
} td_walk_kind;

/* Where an output goes. Edges of one output are neighbours. */
typedef struct td_walk_edge {
  uint32_t slot;
  uint32_t out;
  uint32_t more; /* the first of an output's edges: how many follow */
} td_walk_edge;

/* Nodes of the frame whose death is the node's, as its dead inputs are. */
typedef struct td_walk_controls {
  uint32_t first, count;
} td_walk_controls;

typedef struct td_walk_op {
  const td_pnode *node;
  uint32_t id; /* of the node, within its frame */
  uint32_t slot;
  uint32_t edge, edge_count;
  td_walk_controls controls;
  uint32_t input_count, output_count;
  uint8_t kind;
  bool is_told;    /* some node's controls name this one */
  bool has_unused; /* outputs without an edge */
} td_walk_op;

/* What a slot's reference is. Others than OWN: of kernels' inputs and of Switches' second ones, which only read them.
 */
enum {
  TD_WALK_OWN,    /* the usual: the slot's own, released after use */
  TD_WALK_FIXED,  /* a constant or an invariant: stays there for all iterations */
  TD_WALK_SHARED, /* a node that runs later holds the same tensor in its slot */
};

/* A slot that holds the same tensor in every iteration. */
typedef struct td_walk_fixed {
  uint32_t slot;
  uint32_t node;             /* CONSTANT: within its frame; */
  uint32_t invariant;        /* TD_NO_NODE, or the invariant's number */
  td_walk_controls controls; /* a constant's */
} td_walk_fixed;

/* All of it lies in the program's arena. */
typedef struct td_walk_plan {
  const td_walk_op *ops; /* in order, then the NextIterations */
  uint32_t op_count, next_count;
  const td_walk_edge *edges;
  const uint32_t *controls; /* nodes within the frame */
  const uint8_t *kept;      /* by slot */
  const td_walk_fixed *fixed;
  uint32_t fixed_count;
  const td_walk_fixed *refills; /* invariants that nodes other than kernels take: anew for each iteration */
  uint32_t refill_count;
  /* By node within the frame: it has run when so many ops have. An op's is its place, plus one. */
  const uint32_t *ran_at;
} td_walk_plan;

/* Makes the plans of a program whose nodes, edges and templates are complete: frames[].walk. */
void td_walk_make_plans(td_program *p, td_arena *scratch);

#endif /* TD_RUNTIME_WALK_H_ */

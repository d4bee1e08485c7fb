/* The layout of a compiled program; for the runtime room only. */
#ifndef TD_RUNTIME_PROGRAM_INTERNAL_H_
#define TD_RUNTIME_PROGRAM_INTERNAL_H_

#include <pthread.h>

#include "runtime/program.h"

/* How the executor runs a node. */
typedef enum td_exec {
  TD_EXEC_NOTHING,  /* just tells its successors */
  TD_EXEC_FORWARD,  /* moves input 0 to output 0 */
  TD_EXEC_CONSTANT, /* another reference to `value` */
  TD_EXEC_MERGE,    /* moves the input that came to output 0 */
  TD_EXEC_SWITCH,   /* moves input 0 to the output that input 1 names */
  TD_EXEC_ARG,      /* the run's argument `index` */
  TD_EXEC_RETVAL,   /* the run's result `index` */
  TD_EXEC_KERNEL,
  TD_EXEC_ASYNC,
} td_exec;

enum { /* td_pnode.flags */
       TD_PN_DEAD_AWARE = 1,
       TD_PN_NEVER_DEAD = 2, /* ControlTrigger */
       TD_PN_ENTER = 4,
       TD_PN_EXIT = 8,
       TD_PN_NEXT = 16,      /* NextIteration */
       TD_PN_INVARIANT = 32, /* Enter with is_constant */
       TD_PN_REFS = 64,      /* some input comes over a ref edge: `in_refs` is set */
       TD_PN_UNUSED = 128,   /* some output has no data edge: what is left after delivery must be released */
       TD_PN_MAY_BE_UNINITIALIZED = 256,
       TD_PN_COPY = 512, /* a Send to the client: what it reads from a variable is copied, so that later updates in
                            place do not show in what was fetched */
       TD_PN_KEEPS_REF = 1024,  /* the kernel takes variables where it declares values */
       TD_PN_TRANSFER = 2048,   /* Send, Recv */
       TD_PN_INDEXED = 4096,    /* a Merge whose value_index is read */
       TD_PN_ONE_EDGE = 8192,   /* one out-edge, within the frame, to `next`, which is no Merge */
       TD_PN_SOLE_EDGE = 16384, /* ONE_EDGE, and `next` waits for nothing else */
       TD_PN_FRAME_CHANGE = TD_PN_ENTER | TD_PN_EXIT | TD_PN_NEXT,
};

enum { /* td_pedge.flags */
       TD_PE_CONTROL = 1,
       TD_PE_LAST = 2,  /* the last edge of its output: the reference moves */
       TD_PE_REF = 4,   /* carries a td_variable */
       TD_PE_MERGE = 8, /* the destination is a Merge */
};

/* What `in_refs` says of an input. */
enum { TD_IN_REF = 1 /* the slot holds a td_variable */, TD_IN_DEREF = 2 /* the kernel wants its value */ };

typedef struct td_pedge {
  uint32_t dst;  /* node */
  uint32_t slot; /* input slot, counted within the destination's frame */
  uint32_t pend; /* pending count, counted within the destination's frame */
  uint16_t out;  /* output of the source */
  uint16_t flags;
} td_pedge;

/* What every run of a node reads; kept small, for a run streams through all of them. */
typedef struct td_pnode {
  td_kernel *kernel;
  union {
    td_tensor *value;    /* CONSTANT (borrowed from the kernel) */
    int64_t index;       /* ARG, RETVAL */
    uint32_t merge;      /* MERGE: which dead count, within its frame */
    int32_t child_frame; /* ENTER: the frame it enters; -1: nobody reads it */
  };
  const uint8_t *in_refs; /* per input; NULL: none */
  uint32_t slot;          /* first input slot, within its frame */
  uint32_t edge, edge_count;
  uint32_t next; /* PN_ONE_EDGE: the destination; PN_INVARIANT: its number, where its frame has a walk */
  uint32_t input_count, output_count;
  uint16_t flags;
  uint8_t exec; /* td_exec */
} td_pnode;

/* The rest, for errors, statistics and rare cases. */
typedef struct td_pnode_info {
  td_str label; /* the node of the user's graph that errors name */
  td_str name;
  const td_str *input_names; /* requested names, for errors about ref inputs; NULL unless PN_REFS */
  td_tensor **merge_indices; /* PN_INDEXED: value_index for each input */
  uint32_t frame;            /* static frame it runs in */
} td_pnode_info;

enum { TD_NO_NODE = -1 }; /* as uint32_t */

/* Pending counts: the count in the low bits (a Merge: 2 x controls + 1 while it waits for a live input). */
enum {
  TD_PENDING_DEAD = 1u << 31,  /* some input was dead */
  TD_PENDING_FIRED = 1u << 30, /* Merge: has fired */
  TD_PENDING_COUNT = TD_PENDING_FIRED - 1,
};

/* A static frame: the nodes [first, first + count) and the layout of one iteration. */
typedef struct td_pframe {
  uint32_t first, count;
  uint32_t slot_count, merge_count;
  const uint32_t *pending;  /* template, `count` entries */
  const uint8_t *slot_refs; /* per slot: TD_IN_REF where it holds a td_variable; NULL: none */
  const uint32_t *roots;    /* nodes without inputs */
  uint32_t root_count;
  td_str name;
  int32_t parent;
  uint32_t enter_count, invariant_count, next_count, exit_count;
  uint32_t parallel_iterations;
  const struct td_walk_plan *walk; /* NULL: it cannot be walked; walk.h */
} td_pframe;

struct td_program {
  _Atomic uint32_t refs;
  td_arena arena;
  td_device *device;
  td_pnode *nodes;
  td_pnode_info *infos; /* by node */
  /* By node: where its signal goes on, of those with TD_EXEC_NOTHING and PN_SOLE_EDGE; TD_NO_NODE of others. All that a
   * walk down a chain of them reads, so that long ones stay in the first cache. */
  uint32_t *signals;
  uint32_t node_count;
  td_pedge *edges;
  uint32_t edge_count;
  td_pframe *frames;
  uint32_t frame_count;
  bool has_frames, has_transfers; /* Send or Recv nodes */
  bool is_function;               /* the body of one */
  uint32_t max_outputs;
  int arg_count, result_count;
  pthread_mutex_t lock;
  /* guarded by lock: memory of runs that have ended, for the next ones */
  struct td_run *spare_runs;
  int spare_count;
  const td_str *labels; /* of nodes, for statistics; NULL: not made yet */
};

static inline const td_pnode_info *td_pnode_info_of(const td_program *p, const td_pnode *n) {
  return &p->infos[n - p->nodes];
}

/* td_program_create() for the body of the function `function`, which errors name; empty: no function. */
td_status td_program_create_for(td_graph *g, const td_program_options *options, td_str function,
                                td_program **out) TD_MUST_USE;

/* Frees what the executor keeps in program->spare_runs. */
void td_executor_free_spares(td_program *p);

#endif /* TD_RUNTIME_PROGRAM_INTERNAL_H_ */

/* What the passes over a client graph share. */
#ifndef TD_GRAPH_OPTIMIZE_INTERNAL_H_
#define TD_GRAPH_OPTIMIZE_INTERNAL_H_

#include "graph/internal.h"
#include "graph/optimize.h"

typedef struct td_optimizer {
  td_graph *g;
  const td_optimize_options *options;
  td_arena scratch;
  bool *is_kept;                         /* by id: a target, or fetched */
  size_t kept_count;                     /* nodes that the passes made have greater ids */
  const char *cpu_device, *other_device; /* the last names that were looked at, by address */
} td_optimizer;

/* The passes, in the order in which they run. */
void td_fold_constants(td_optimizer *o);
void td_merge_products(td_optimizer *o);
void td_merge_common(td_optimizer *o);
void td_drop_unread(td_optimizer *o);
void td_skip_identities(td_optimizer *o);
void td_copy_constants(td_optimizer *o);

/* A client names it: it stays in the graph under its name. */
bool td_optimizer_keeps(const td_optimizer *o, const td_node *n);
/* Sits on a device of type CPU, where every task computes the same. */
bool td_optimizer_on_cpu(td_optimizer *o, const td_node *n);
bool td_node_is_const(const td_node *n);
/* A function of its inputs' values alone: no state, effect, call, ref, resource or variant, and nothing that reads
 * files or marks a place. It has outputs. */
bool td_node_is_pure(const td_optimizer *o, const td_node *n);
/* Adds a Const with the tensor's value where `like` is, for which errors name what that stands for. The op must be
 * registered. */
td_status td_optimizer_add_const(td_optimizer *o, const td_node *like, const td_tensor *t, td_node **out) TD_MUST_USE;
/* Makes every reader of src:slot read to:to_slot. */
void td_graph_move_readers(td_graph *g, td_node *src, int slot, td_node *to, int to_slot);
/* An edge from `src` makes `dst` wait, as far as a short look at its edges tells: one more does no harm. */
bool td_graph_waits_for(const td_node *dst, const td_node *src);

#endif /* TD_GRAPH_OPTIMIZE_INTERNAL_H_ */

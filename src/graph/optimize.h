/* Optimisation of a client graph: pruned, placed, not yet cut. The answers stay what they were, and so do the codes of
 * errors, but for errors of what nobody reads; nodes become fewer. What has state, effects, refs, resources or variants
 * is left alone, and so is everything that a step could tell: names of what is fetched or a target, order along control
 * edges, deadness.
 *
 * Passes, each in a file of its own: fold_constants.c, merge_common.c, drop_unread.c, skip_identities.c,
 * copy_constants.c. All take time linear in the graph's size (and in the work of what they compute).
 */
#ifndef TD_GRAPH_OPTIMIZE_H_
#define TD_GRAPH_OPTIMIZE_H_

#include "graph/graph.h"
#include "proto/config.pb-c.h"
#include "tensor/tensor.h"

/* Who computes constants: this room knows no kernels. */
typedef struct td_evaluator td_evaluator;
struct td_evaluator {
  /* Computes a node from one tensor per input (borrowed). `out`: one reference per output. Fails for what cannot be
   * computed on its own, for what fails in a step too, and for outputs larger than `max_bytes`; then nothing is set. */
  td_status (*compute)(td_evaluator *self, const td_node *n, td_tensor *const *in, size_t max_bytes,
                       td_tensor **out) TD_MUST_USE;
};

typedef struct td_optimize_options {
  bool fold_constants;  /* needs an evaluator */
  bool merge_common;    /* of equal nodes one */
  bool drop_unread;     /* nodes that others only wait for need not compute */
  bool skip_identities; /* Identity and NoOp nodes that only hand on */
  bool copy_constants;  /* small ones go to the devices that read them */
  size_t max_folded_bytes;
  td_evaluator *evaluator; /* NULL: nothing is folded */
  const td_str *targets;   /* nodes that the client names, besides what it fetches */
  size_t target_count;
} td_optimize_options;

/* What a session's options ask for, in TensorFlow's terms: everything by default; nothing with
 * rewrite_options.disable_meta_optimizer; with optimizer_options.opt_level L0 only what do_constant_folding and
 * do_common_subexpression_elimination say; rewrite_options.{constant_folding, common_subgraph_elimination,
 * dependency_optimization} OFF switch off one pass each (the last: the two that it stands for). `o` may be NULL.
 * Evaluator and targets stay empty. */
td_optimize_options td_optimize_options_of(const Pb__GraphOptions *o);
bool td_optimize_wants_any(const td_optimize_options *o);

/* Changes `g`, which the caller alone holds; what it shares with its origin stays as it is. Never fails: what a pass
 * cannot do it leaves. */
void td_graph_optimize(td_graph *g, const td_optimize_options *options);

#endif /* TD_GRAPH_OPTIMIZE_H_ */

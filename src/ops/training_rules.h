/* Update rules of the training ops: one fused loop a rule and element type. Dense ops run a rule over whole
 * variables, sparse ops row by row.
 *
 * Formulas: TensorFlow's training_ops. Types of 16 bits are computed in float.
 */
#ifndef TD_OPS_TRAINING_RULES_H_
#define TD_OPS_TRAINING_RULES_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "tensor/dtype.h"

enum {
  TD_RULE_VARS = 4,   /* the variable and its slots, at most */
  TD_RULE_PARAMS = 8, /* scalar parameters, at most */
};

typedef struct td_rule_args {
  td_complex128 params[TD_RULE_PARAMS]; /* in the op's order, without grad, indices and global_step */
  int64_t step;                         /* global_step */
  bool nesterov, update_slots, linear_by_lr;
} td_rule_args;

/* Sets elements [begin, end) of the arrays vars[k] to what the update makes of those of old[k], the same array or one
 * apart from all others; gradient[0] belongs to element `begin`. */
typedef void td_rule_fn(void *const *vars, const void *const *old, const void *gradient, int64_t begin, int64_t end,
                        const td_rule_args *args);

typedef struct td_rule_info {
  const char *name; /* "Adam" of ApplyAdam, SparseApplyAdam, … */
  int vars, params;
  double unit_ns; /* about what a float element costs */
} td_rule_info;

/* NULL for an unknown name. */
const td_rule_info *td_rule_find(td_str name);
/* NULL where TensorFlow has no kernel for the type. `racy`: for elements that may be read meanwhile. */
td_rule_fn *td_rule_get(const td_rule_info *rule, td_dtype t, bool racy);

#endif /* TD_OPS_TRAINING_RULES_H_ */

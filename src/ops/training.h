/* What the dense and the sparse training ops share: the op's arguments by name, and their checks. */
#ifndef TD_OPS_TRAINING_H_
#define TD_OPS_TRAINING_H_

#include "framework/kernel.h"
#include "ops/training_rules.h"
#include "ops/update_set.h"

/* A kernel's state. */
typedef struct td_training {
  const td_rule_info *rule;
  td_rule_fn *fn;
  td_dtype dtype;
  int vars;                   /* inputs [0, vars) are the variables */
  int grad, indices, step;    /* inputs; -1: none */
  int params[TD_RULE_PARAMS]; /* inputs */
  int param_count;
  bool may_race;       /* a sparse update of ref variables without use_locking: others may write at the same time */
  const td_op_def *op; /* for the names of inputs */
  td_rule_args args;   /* flags set; params and step are the run's */
} td_training;

/* create() of every training kernel. */
td_status td_training_create(td_kernel_builder *b, void *state) TD_MUST_USE;
/* td_update_begin() on the op's variables, or td_update_begin_shared() where `is_shared`, with these ops' own error for
 * one that does not exist. */
td_status td_training_begin(td_kernel_ctx *ctx, bool is_shared, td_update_set *set) TD_MUST_USE;
/* Checks slots, scalars and their ranges, and reads them into *args. */
td_status td_training_read_args(td_kernel_ctx *ctx, const td_update_set *set, td_rule_args *args) TD_MUST_USE;

/* ---- tables: an op NAME in its ref and its resource form ---- */

#define TD_TRAINING_T                                                                                         \
  "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, " \
  "qint16, quint16, uint16, complex128, half, uint32, uint64}"

/* Variables of the op as a macro over their type ("Ref(T)", "resource"). */
#define TD_VARS_1(K)        "var: " K
#define TD_VARS_ACCUM(K)    "var: " K "; accum: " K
#define TD_VARS_M(K)        "var: " K "; m: " K
#define TD_VARS_MV(K)       "var: " K "; m: " K "; v: " K
#define TD_VARS_MV_HAT(K)   "var: " K "; m: " K "; v: " K "; vhat: " K
#define TD_VARS_ADADELTA(K) "var: " K "; accum: " K "; accum_update: " K
#define TD_VARS_DA(K)       "var: " K "; gradient_accumulator: " K "; gradient_squared_accumulator: " K
#define TD_VARS_FTRL(K)     "var: " K "; accum: " K "; linear: " K
#define TD_VARS_RMS(K)      "var: " K "; ms: " K "; mom: " K
#define TD_VARS_CENTERED(K) "var: " K "; mg: " K "; ms: " K "; mom: " K

#define TD_TRAINING_REF_OP(NAME, VARS, REST, ATTRS) \
  { .name = NAME, .inputs = VARS("Ref(T)") "; " REST, .outputs = "out: Ref(T)", .attrs = ATTRS }
#define TD_TRAINING_RESOURCE_OP(NAME, VARS, REST, ATTRS) \
  { .name = NAME, .inputs = VARS("resource") "; " REST, .attrs = ATTRS, .flags = TD_OP_STATEFUL }

#define TD_TRAINING_REAL (TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE) | TD_SET(TD_HALF) | TD_SET(TD_BFLOAT16))
#define TD_TRAINING_ANY  (TD_TRAINING_REAL | TD_SET_COMPLEX)
#define TD_TRAINING_KERNEL(NAME, TYPES, COMPUTE)                                                          \
  {                                                                                                       \
    .op = NAME, .types = {{"T", TYPES}}, .state_size = sizeof(td_training), .create = td_training_create, \
    .compute = COMPUTE                                                                                    \
  }

#endif /* TD_OPS_TRAINING_H_ */

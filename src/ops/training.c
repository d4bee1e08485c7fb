/* Training ops on dense gradients: Apply*, ResourceApply*. */
#include "ops/training.h"

#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "tensor/number.h"

/* ---- creation ---- */

static td_str rule_name(td_str op) {
  static const char *const prefixes[] = {"Resource", "Sparse", "Apply"};
  for (size_t i = 0; i < TD_COUNT(prefixes); i++) {
    td_str p = td_str_of(prefixes[i]);
    if (td_str_starts(op, p)) op = td_str_n(op.data + p.size, op.size - p.size);
  }
  return op;
}

/* What each input is: variables come first, the others are known by name. */
static td_status layout(td_training *t, const td_op_def *op) {
  t->grad = t->indices = t->step = -1;
  for (size_t i = 0; i < op->input_count; i++) {
    const td_arg_def *a = &op->inputs[i];
    if (a->is_ref || a->type == TD_RESOURCE)
      t->vars++;
    else if (td_str_is(a->name, "grad") || td_str_is(a->name, "delta"))
      t->grad = (int)i;
    else if (td_str_is(a->name, "indices"))
      t->indices = (int)i;
    else if (td_str_is(a->name, "global_step"))
      t->step = (int)i;
    else if (t->param_count < TD_RULE_PARAMS)
      t->params[t->param_count++] = (int)i;
  }
  if (t->vars == t->rule->vars && t->param_count == t->rule->params && t->grad >= 0) return TD_STATUS_OK;
  return td_internal("%.*s does not have the arguments of its rule", TD_STR_ARG(op->name));
}

static td_status read_flag(const td_node_def *n, const char *name, bool *out) {
  return td_attr_find(n, name) ? td_attr_bool(n, name, out) : TD_STATUS_OK;
}

td_status td_training_create(td_kernel_builder *b, void *state) {
  td_training *t = state;
  t->op = b->op;
  t->rule = td_rule_find(rule_name(b->node->op));
  if (!t->rule) return td_internal("%.*s has no rule", TD_STR_ARG(b->node->op));
  TD_TRY(td_attr_type(b->node, "T", &t->dtype));
  TD_TRY(layout(t, b->op));
  t->args.update_slots = true;
  TD_TRY(read_flag(b->node, "use_nesterov", &t->args.nesterov));
  TD_TRY(read_flag(b->node, "update_slots", &t->args.update_slots));
  TD_TRY(read_flag(b->node, "multiply_linear_by_lr", &t->args.linear_by_lr));
  bool is_ref = td_dtype_is_ref(b->input_types[0]), use_locking = false;
  TD_TRY(read_flag(b->node, "use_locking", &use_locking));
  t->may_race = is_ref && t->indices >= 0 && !use_locking;
  t->fn = td_rule_get(t->rule, t->dtype, is_ref && t->indices >= 0);
  if (!t->fn) return td_unimplemented("%.*s of %s", TD_STR_ARG(b->node->op), td_dtype_name(t->dtype));
  return TD_STATUS_OK;
}

/* ---- arguments of a run ---- */

static td_status not_scalar(td_str name, const td_tensor *t) {
  char *shape = td_tensor_shape_text(t);
  td_status s = td_invalid_argument("%.*s is not a scalar: %s", TD_STR_ARG(name), shape);
  td_free(shape);
  return s;
}

/* FTRL's own conditions, in the order lr, l1, l2, (l2_shrinkage,) lr_power. */
static td_status check_ftrl(const td_training *t, const td_rule_args *a) {
  double lr = creal(a->params[0]), power = creal(a->params[t->param_count - 1]);
  if (!(lr > 0 || (lr == 0 && a->linear_by_lr))) return td_invalid_argument("lr is not a positive scalar: %g", lr);
  for (int i = 1; i + 1 < t->param_count; i++)
    if (!(creal(a->params[i]) >= 0))
      return td_invalid_argument("%s regularization strength is not a non-negative scalar: %g",
                                 i == 1   ? "l1"
                                 : i == 2 ? "l2"
                                          : "l2 shrinkage",
                                 creal(a->params[i]));
  if (!(power <= 0)) return td_invalid_argument("lr_power is not a non-positive scalar: %g", power);
  return TD_STATUS_OK;
}

td_status td_training_begin(td_kernel_ctx *ctx, bool is_shared, td_update_set *set) {
  const td_training *t = ctx->state;
  td_status s =
      is_shared ? td_update_begin_shared(ctx, t->vars, t->dtype, set) : td_update_begin(ctx, t->vars, t->dtype, set);
  if (td_status_code(s) != TD_NOT_FOUND) return s;
  td_status named = td_internal("Invalid variable reference. %s", td_status_message(s));
  td_status_free(s);
  return named;
}

td_status td_training_read_args(td_kernel_ctx *ctx, const td_update_set *set, td_rule_args *args) {
  const td_training *t = ctx->state;
  *args = t->args;
  for (int i = 1; i < t->vars; i++) {
    if (td_tensor_same_shape(td_update_value(set, 0), td_update_value(set, i))) continue;
    char *a = td_tensor_shape_text(td_update_value(set, 0)), *b = td_tensor_shape_text(td_update_value(set, i));
    td_status s =
        td_invalid_argument("var and %.*s do not have the same shape%s %s", TD_STR_ARG(t->op->inputs[i].name), a, b);
    td_free(a);
    td_free(b);
    return s;
  }
  for (int i = 0; i < t->param_count; i++) {
    const td_tensor *p = td_in(ctx, t->params[i]);
    if (p->rank) return not_scalar(t->op->inputs[t->params[i]].name, p);
    args->params[i] = td_tensor_complex_at(p, 0);
  }
  if (t->step >= 0) {
    const td_tensor *step = td_in(ctx, t->step);
    if (step->rank) return not_scalar(TD_STR("global_step"), step);
    args->step = td_tensor_int_at(step, 0);
  }
  return !strncmp(t->rule->name, "Ftrl", 4) ? check_ftrl(t, args) : TD_STATUS_OK;
}

/* ---- dense ---- */

typedef struct dense_job {
  const td_training *t;
  const td_rule_args *args;
  void *vars[TD_RULE_VARS];
  const void *old[TD_RULE_VARS];
  const char *grad;
  size_t size;
} dense_job;

static void dense_part(void *arg, int64_t begin, int64_t end) {
  const dense_job *j = arg;
  j->t->fn(j->vars, j->old, j->grad + (size_t)begin * j->size, begin, end, j->args);
}

static td_status check_gradient(const td_training *t, const td_tensor *var, const td_tensor *grad) {
  if (td_tensor_same_shape(var, grad)) return TD_STATUS_OK;
  char *a = td_tensor_shape_text(var), *b = td_tensor_shape_text(grad);
  td_status s = td_invalid_argument("var and %.*s do not have the same shape%s %s",
                                    TD_STR_ARG(t->op->inputs[t->grad].name), a, b);
  td_free(a);
  td_free(b);
  return s;
}

static td_status compute(td_kernel_ctx *ctx) {
  const td_training *t = ctx->state;
  const td_tensor *grad = td_in(ctx, t->grad);
  td_rule_args args;
  td_update_set set;
  td_status status = td_training_begin(ctx, false, &set);
  if (status) goto cleanup;
  TD_TRY_GOTO(td_training_read_args(ctx, &set, &args));
  TD_TRY_GOTO(check_gradient(t, td_update_value(&set, 0), grad));
  TD_TRY_GOTO(td_update_prepare_dense(&set));
  dense_job job = {.t = t, .args = &args, .grad = grad->data, .size = td_dtype_size(t->dtype)};
  for (int i = 0; i < t->vars; i++) {
    job.vars[i] = td_update_value(&set, i)->data;
    job.old[i] = td_update_old(&set, i)->data;
  }
  td_ctx_parallel_for(ctx, grad->count, t->rule->unit_ns, dense_part, &job);
cleanup:
  td_update_end(&set);
  if (!status) td_update_forward_ref(ctx);
  return status;
}

/* ---- tables ---- */

#define BOTH_OPS(NAME, VARS, REST, ATTRS)                                                          \
  TD_TRAINING_REF_OP("Apply" NAME, VARS, REST, TD_TRAINING_T "; use_locking: bool = false" ATTRS), \
      TD_TRAINING_RESOURCE_OP("ResourceApply" NAME, VARS, REST, TD_TRAINING_T "; use_locking: bool = false" ATTRS)
#define RESOURCE_ONLY(NAME, VARS, REST, ATTRS) \
  TD_TRAINING_RESOURCE_OP("ResourceApply" NAME, VARS, REST, TD_TRAINING_T "; use_locking: bool = false" ATTRS)
#define NESTEROV "; use_nesterov: bool = false"
#define SLOTS    "; update_slots: bool = true"
#define LINEAR   "; multiply_linear_by_lr: bool = false"

static const td_op_spec ops[] = {
    BOTH_OPS("GradientDescent", TD_VARS_1, "alpha: T; delta: T", ""),
    BOTH_OPS("ProximalGradientDescent", TD_VARS_1, "alpha: T; l1: T; l2: T; delta: T", ""),
    BOTH_OPS("Adadelta", TD_VARS_ADADELTA, "lr: T; rho: T; epsilon: T; grad: T", ""),
    BOTH_OPS("Adagrad", TD_VARS_ACCUM, "lr: T; grad: T", SLOTS),
    BOTH_OPS("AdagradV2", TD_VARS_ACCUM, "lr: T; epsilon: T; grad: T", SLOTS),
    BOTH_OPS("ProximalAdagrad", TD_VARS_ACCUM, "lr: T; l1: T; l2: T; grad: T", ""),
    BOTH_OPS("AdagradDA", TD_VARS_DA, "grad: T; lr: T; l1: T; l2: T; global_step: int64", ""),
    BOTH_OPS("Ftrl", TD_VARS_FTRL, "grad: T; lr: T; l1: T; l2: T; lr_power: T", LINEAR),
    BOTH_OPS("FtrlV2", TD_VARS_FTRL, "grad: T; lr: T; l1: T; l2: T; l2_shrinkage: T; lr_power: T", LINEAR),
    BOTH_OPS("Momentum", TD_VARS_ACCUM, "lr: T; grad: T; momentum: T", NESTEROV),
    RESOURCE_ONLY("KerasMomentum", TD_VARS_ACCUM, "lr: T; grad: T; momentum: T", NESTEROV),
    BOTH_OPS("Adam", TD_VARS_MV, "beta1_power: T; beta2_power: T; lr: T; beta1: T; beta2: T; epsilon: T; grad: T",
             NESTEROV),
    RESOURCE_ONLY("AdamWithAmsgrad", TD_VARS_MV_HAT,
                  "beta1_power: T; beta2_power: T; lr: T; beta1: T; beta2: T; epsilon: T; grad: T", ""),
    BOTH_OPS("AdaMax", TD_VARS_MV, "beta1_power: T; lr: T; beta1: T; beta2: T; epsilon: T; grad: T", ""),
    BOTH_OPS("RMSProp", TD_VARS_RMS, "lr: T; rho: T; momentum: T; epsilon: T; grad: T", ""),
    BOTH_OPS("CenteredRMSProp", TD_VARS_CENTERED, "lr: T; rho: T; momentum: T; epsilon: T; grad: T", ""),
    BOTH_OPS("AddSign", TD_VARS_M, "lr: T; alpha: T; sign_decay: T; beta: T; grad: T", ""),
    BOTH_OPS("PowerSign", TD_VARS_M, "lr: T; logbase: T; sign_decay: T; beta: T; grad: T", ""),
};

#define BOTH_KERNELS(NAME, TYPES) \
  TD_TRAINING_KERNEL("Apply" NAME, TYPES, compute), TD_TRAINING_KERNEL("ResourceApply" NAME, TYPES, compute)

static const td_kernel_def kernels[] = {
    BOTH_KERNELS("GradientDescent", TD_TRAINING_ANY),
    BOTH_KERNELS("ProximalGradientDescent", TD_TRAINING_REAL),
    BOTH_KERNELS("Adadelta", TD_TRAINING_ANY),
    BOTH_KERNELS("Adagrad", TD_TRAINING_ANY),
    BOTH_KERNELS("AdagradV2", TD_TRAINING_ANY),
    BOTH_KERNELS("ProximalAdagrad", TD_TRAINING_REAL),
    BOTH_KERNELS("AdagradDA", TD_TRAINING_REAL),
    BOTH_KERNELS("Ftrl", TD_TRAINING_REAL),
    BOTH_KERNELS("FtrlV2", TD_TRAINING_REAL),
    BOTH_KERNELS("Momentum", TD_TRAINING_ANY),
    TD_TRAINING_KERNEL("ResourceApplyKerasMomentum", TD_TRAINING_ANY, compute),
    BOTH_KERNELS("Adam", TD_TRAINING_ANY),
    TD_TRAINING_KERNEL("ResourceApplyAdamWithAmsgrad", TD_TRAINING_REAL, compute),
    BOTH_KERNELS("AdaMax", TD_TRAINING_REAL),
    BOTH_KERNELS("RMSProp", TD_TRAINING_ANY),
    BOTH_KERNELS("CenteredRMSProp", TD_TRAINING_ANY),
    BOTH_KERNELS("AddSign", TD_TRAINING_REAL),
    BOTH_KERNELS("PowerSign", TD_TRAINING_REAL),
};

TD_FAMILY(training, ops, kernels);

/* Ref variables: VariableV2 and its kind, temporary variables, dense assignment (TensorFlow's variable_ops,
 * dense_update_ops, count_up_to_op). */
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/rows.h"
#include "ops/update_set.h"

/* ---- Variable, VariableV2 ---- */

typedef struct variable_state {
  char *container, *name;
  td_dtype dtype;
  int rank;
  int64_t *dims;
} variable_state;

/* The declared shape. An unknown rank counts as a scalar, an unknown size as 0: no value then matches by accident,
 * and clients assign such variables without validation. */
static td_status shape_of_attr(const td_node_def *n, int *rank, int64_t **dims) {
  const Pb__TensorShapeProto *p;
  TD_TRY(td_attr_shape(n, "shape", &p));
  if (p->unknown_rank || !p->n_dim) return TD_STATUS_OK;
  if (p->n_dim > TD_MAX_RANK) return td_invalid_argument("A shape of rank %zu is too large", p->n_dim);
  *rank = (int)p->n_dim;
  *dims = td_new_array(int64_t, p->n_dim);
  for (size_t i = 0; i < p->n_dim; i++) (*dims)[i] = p->dim[i]->size < 0 ? 0 : p->dim[i]->size;
  return TD_STATUS_OK;
}

static td_status create_variable_kernel(td_kernel_builder *b, void *state) {
  variable_state *st = state;
  td_str container, shared_name, key_container, key_name;
  TD_TRY(td_attr_str(b->node, "container", &container));
  TD_TRY(td_attr_str(b->node, "shared_name", &shared_name));
  TD_TRY(td_attr_type(b->node, "dtype", &st->dtype));
  TD_TRY(shape_of_attr(b->node, &st->rank, &st->dims));
  TD_TRY(td_container_info(b->device->resources, container, shared_name, b->node->name, &key_container, &key_name));
  st->container = td_strndup(key_container.data, key_container.size);
  st->name = td_strndup(key_name.data, key_name.size);
  return TD_STATUS_OK;
}

static void destroy_variable_kernel(void *state) {
  variable_state *st = state;
  td_free(st->dims);
  td_free(st->container);
  td_free(st->name);
}

static td_status new_variable(void *arg, td_resource **out) {
  const variable_state *st = arg;
  td_variable *v = td_variable_create(&td_ref_variable_type, st->dtype, td_str_of(st->name));
  td_variable_declare_shape(v, st->rank, st->dims);
  *out = &v->resource;
  return TD_STATUS_OK;
}

/* Looks the variable up at each run: a container may have been cleared since the last one. */
static td_status compute_variable(td_kernel_ctx *ctx) {
  const variable_state *st = ctx->state;
  void *found = NULL;
  TD_TRY(td_resource_lookup_or_create(ctx->device->resources, td_str_of(st->container), td_str_of(st->name),
                                      &td_ref_variable_type, new_variable, ctx->state, &found));
  td_variable *v = found;
  if (v->dtype != st->dtype) {
    td_status s = td_invalid_argument("Trying to share variable %s of type %s as type %s", v->name,
                                      td_dtype_name(v->dtype), td_dtype_name(st->dtype));
    td_variable_release(v);
    return s;
  }
  td_out_set_ref(ctx, 0, v);
  return TD_STATUS_OK;
}

/* ---- TemporaryVariable, DestroyTemporaryVariable ---- */

typedef struct temporary_state {
  char *name;
  td_dtype dtype;
  int rank;
  int64_t *dims;
} temporary_state;

#define PER_STEP TD_STR("temporary_variables") /* a container of the step's own manager */

static td_status create_temporary(td_kernel_builder *b, void *state) {
  temporary_state *st = state;
  td_str name;
  TD_TRY(td_attr_str(b->node, "var_name", &name));
  TD_TRY(td_attr_type(b->node, "dtype", &st->dtype));
  TD_TRY(shape_of_attr(b->node, &st->rank, &st->dims));
  if (!name.size) name = b->node->name;
  st->name = td_strndup(name.data, name.size);
  return TD_STATUS_OK;
}

static td_status create_destroy_temporary(td_kernel_builder *b, void *state) {
  temporary_state *st = state;
  td_str name;
  TD_TRY(td_attr_str(b->node, "var_name", &name));
  if (!name.size) return td_invalid_argument("Missing var_name attribute");
  st->name = td_strndup(name.data, name.size);
  return TD_STATUS_OK;
}

static void destroy_temporary_kernel(void *state) {
  temporary_state *st = state;
  td_free(st->dims);
  td_free(st->name);
}

static td_status compute_temporary(td_kernel_ctx *ctx) {
  temporary_state *st = ctx->state;
  if (!ctx->step->step_resources) return td_internal("No per-step resource manager.");
  td_tensor *value;
  TD_TRY(td_tensor_create_dims(st->dtype, st->rank, st->dims, &value));
  if (td_dtype_is_pod(st->dtype) && value->size) memset(value->data, 0, value->size); /* nobody else's old bytes */
  td_variable *v = td_variable_create(&td_ref_variable_type, st->dtype, td_str_of(st->name));
  v->value = value;
  td_status s = td_resource_add(ctx->step->step_resources, PER_STEP, td_str_of(st->name), &v->resource);
  if (s) {
    td_variable_release(v);
    return s;
  }
  td_out_set_ref(ctx, 0, v);
  return TD_STATUS_OK;
}

static td_status compute_destroy_temporary(td_kernel_ctx *ctx) {
  temporary_state *st = ctx->state;
  td_variable *v = td_in_ref(ctx, 0);
  td_tensor *value;
  if (!ctx->step->step_resources) return td_internal("No per-step resource manager.");
  TD_TRY(td_variable_read(v, &value));
  if (!value) return td_failed_precondition("Attempting to use uninitialized value %s", v->name);
  td_out_set(ctx, 0, value);
  return td_resource_delete(ctx->step->step_resources, PER_STEP, td_str_of(st->name), &td_ref_variable_type);
}

/* ---- IsVariableInitialized ---- */

static td_status compute_is_initialized(td_kernel_ctx *ctx) {
  td_variable *v = td_in_ref(ctx, 0);
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  pthread_rwlock_rdlock(&v->lock);
  TD_DATA(out, bool)[0] = v->value != NULL;
  pthread_rwlock_unlock(&v->lock);
  return TD_STATUS_OK;
}

/* ---- Assign ---- */

typedef struct assign_state {
  bool validate_shape;
} assign_state;

static td_status create_assign(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "validate_shape", &((assign_state *)state)->validate_shape);
}

static bool shape_matches(const td_variable *v, const td_tensor *t) {
  if (v->value) return td_tensor_same_shape(v->value, t);
  return td_dims_eq(v->declared_rank, v->declared_dims, t->rank, t->dims);
}

static td_status shapes_differ(const td_variable *v, const td_tensor *t) {
  char *lhs = td_variable_shape_text(v), *rhs = td_tensor_shape_text(t);
  td_status s =
      td_invalid_argument("Assign requires shapes of both tensors to match. lhs shape= %s rhs shape= %s", lhs, rhs);
  td_free(lhs);
  td_free(rhs);
  return s;
}

/* A value that nobody else holds becomes the variable's as it is, if it does not pin a larger buffer. */
static bool can_adopt(const td_tensor *t) {
  return td_tensor_is_exclusive(t) && (!t->base || (t->base->size == t->size && t->base->data == t->data));
}

/* With the lock held exclusively. The variable must own its elements alone (but for readers of the variable):
 * sparse updates write them in place. */
static td_status assign_locked(td_kernel_ctx *ctx, td_variable *v, td_tensor *value) {
  if (can_adopt(value)) {
    td_variable_set(v, value);
    ctx->in[1].tensor = NULL;
    return TD_STATUS_OK;
  }
  if (v->value && td_tensor_same_shape(v->value, value) && td_tensor_is_exclusive(v->value)) {
    if (v->value != value) td_move_flat(ctx, value, 0, v->value, 0, value->count);
    return TD_STATUS_OK;
  }
  td_tensor *copy;
  TD_TRY(td_tensor_create_dims(v->dtype, value->rank, value->dims, &copy));
  td_move_flat(ctx, value, 0, copy, 0, value->count);
  td_variable_set(v, copy);
  return TD_STATUS_OK;
}

static td_status compute_assign(td_kernel_ctx *ctx) {
  const assign_state *st = ctx->state;
  td_variable *v = td_in_ref(ctx, 0);
  td_tensor *value = td_in(ctx, 1);
  if (value->dtype != v->dtype)
    return td_invalid_argument("Trying to assign a value of type %s to variable %s of type %s",
                               td_dtype_name(value->dtype), v->name, td_dtype_name(v->dtype));
  pthread_rwlock_wrlock(&v->lock);
  td_status s = st->validate_shape && !shape_matches(v, value) ? shapes_differ(v, value) : assign_locked(ctx, v, value);
  pthread_rwlock_unlock(&v->lock);
  TD_TRY(s);
  td_update_forward_ref(ctx);
  return TD_STATUS_OK;
}

/* ---- AssignAdd, AssignSub ---- */

typedef struct dense_state {
  td_rows_fn *rows;
  td_dtype dtype;
} dense_state;

static td_status create_dense(td_kernel_builder *b, void *state) {
  dense_state *st = state;
  TD_TRY(td_attr_type(b->node, "T", &st->dtype));
  st->rows = td_rows(td_str_is(b->node->op, "AssignAdd") ? TD_ROWS_ADD : TD_ROWS_SUB, st->dtype);
  if (!st->rows) return td_unimplemented("%.*s of %s", TD_STR_ARG(b->node->op), td_dtype_name(st->dtype));
  return TD_STATUS_OK;
}

static td_status compute_dense(td_kernel_ctx *ctx) {
  const dense_state *st = ctx->state;
  const td_tensor *update = td_in(ctx, 1);
  td_update_set set;
  td_status status = td_update_begin(ctx, 1, st->dtype, &set);
  if (status) goto cleanup;
  if (!td_tensor_same_shape(td_update_value(&set, 0), update)) {
    status = td_invalid_argument("Parameters and update must be the same size");
    goto cleanup;
  }
  status = td_update_dense(ctx, &set, st->rows, update);
cleanup:
  td_update_end(&set);
  if (!status) td_update_forward_ref(ctx);
  return status;
}

/* ---- tables ---- */

#define NUMBERS                                                                                               \
  "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, " \
  "qint16, quint16, uint16, complex128, half, uint32, uint64}; use_locking: bool = false"

static const td_op_spec ops[] = {
    {.name = "Variable",
     .outputs = "ref: Ref(dtype)",
     .flags = TD_OP_STATEFUL,
     .attrs = "shape: shape; dtype: type; container: string = ''; shared_name: string = ''"},
    {.name = "VariableV2",
     .outputs = "ref: Ref(dtype)",
     .flags = TD_OP_STATEFUL,
     .attrs = "shape: shape; dtype: type; container: string = ''; shared_name: string = ''"},
    {.name = "TemporaryVariable",
     .outputs = "ref: Ref(dtype)",
     .flags = TD_OP_STATEFUL,
     .attrs = "shape: shape; dtype: type; var_name: string = ''"},
    {.name = "DestroyTemporaryVariable",
     .inputs = "ref: Ref(T)",
     .outputs = "value: T",
     .attrs = "T: type; var_name: string"},
    {.name = "IsVariableInitialized",
     .inputs = "ref: Ref(dtype)",
     .outputs = "is_initialized: bool",
     .attrs = "dtype: type",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
    {.name = "Assign",
     .inputs = "ref: Ref(T); value: T",
     .outputs = "output_ref: Ref(T)",
     .attrs = "T: type; validate_shape: bool = true; use_locking: bool = true",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
    {.name = "AssignAdd", .inputs = "ref: Ref(T); value: T", .outputs = "output_ref: Ref(T)", .attrs = NUMBERS},
    {.name = "AssignSub", .inputs = "ref: Ref(T); value: T", .outputs = "output_ref: Ref(T)", .attrs = NUMBERS},
};

static const td_kernel_def kernels[] = {
    {.op = "Variable",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(variable_state),
     .create = create_variable_kernel,
     .destroy = destroy_variable_kernel,
     .compute = compute_variable},
    {.op = "VariableV2",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(variable_state),
     .create = create_variable_kernel,
     .destroy = destroy_variable_kernel,
     .compute = compute_variable},
    {.op = "TemporaryVariable",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(temporary_state),
     .create = create_temporary,
     .destroy = destroy_temporary_kernel,
     .compute = compute_temporary},
    {.op = "DestroyTemporaryVariable",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(temporary_state),
     .create = create_destroy_temporary,
     .destroy = destroy_temporary_kernel,
     .compute = compute_destroy_temporary},
    {.op = "IsVariableInitialized", .cost = TD_COST_CHEAP, .compute = compute_is_initialized},
    {.op = "Assign", .state_size = sizeof(assign_state), .create = create_assign, .compute = compute_assign},
    {.op = "AssignAdd",
     .types = {{"T", TD_SET_NUMBER}},
     .state_size = sizeof(dense_state),
     .create = create_dense,
     .compute = compute_dense},
    {.op = "AssignSub",
     .types = {{"T", TD_SET_NUMBER}},
     .state_size = sizeof(dense_state),
     .create = create_dense,
     .compute = compute_dense},
};

TD_FAMILY(ref_variable, ops, kernels);

/* Resource variables: handles, reads, dense assignment (TensorFlow's resource_variable_ops). Scatters are in
 * scatter.c. */
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/rows.h"
#include "ops/update_set.h"

/* ---- VarHandleOp, _VarHandlesOp ---- */

typedef struct handle_state {
  td_tensor *handle; /* made once, shared by all runs; first, so that the executor may hand it out itself */
} handle_state;

typedef struct handles_state {
  int count;
  td_tensor **handles;
} handles_state;

static td_status make_handle(td_kernel_builder *b, td_str container, td_str name, td_tensor **out) {
  return td_handle_create(b->device, container, name.size ? name : b->node->name, &td_resource_variable_type, out);
}

static td_status create_handle(td_kernel_builder *b, void *state) {
  handle_state *st = state;
  td_str container, name;
  TD_TRY(td_attr_str(b->node, "container", &container));
  TD_TRY(td_attr_str(b->node, "shared_name", &name));
  return make_handle(b, container, name, &st->handle);
}

static void destroy_handle(void *state) { td_tensor_release(((handle_state *)state)->handle); }

static td_status compute_handle(td_kernel_ctx *ctx) {
  td_out_set(ctx, 0, td_tensor_retain(((handle_state *)ctx->state)->handle));
  return TD_STATUS_OK;
}

static td_status create_handles(td_kernel_builder *b, void *state) {
  handles_state *st = state;
  const Pb__AttrValue__ListValue *containers, *names;
  TD_TRY(td_attr_list(b->node, "containers", &containers));
  TD_TRY(td_attr_list(b->node, "shared_names", &names));
  size_t n = (size_t)b->output_count;
  if (containers->n_s != n || names->n_s != n)
    return td_invalid_argument("_VarHandlesOp with N=%zu has %zu containers and %zu names", n, containers->n_s,
                               names->n_s);
  st->handles = td_new_array(td_tensor *, n ? n : 1);
  st->count = (int)n;
  for (size_t i = 0; i < n; i++)
    TD_TRY(make_handle(b, td_str_n(containers->s[i].data, containers->s[i].len),
                       td_str_n(names->s[i].data, names->s[i].len), &st->handles[i]));
  return TD_STATUS_OK;
}

static void destroy_handles(void *state) {
  handles_state *st = state;
  for (int i = 0; i < st->count; i++) td_tensor_release(st->handles[i]);
  td_free(st->handles);
}

static td_status compute_handles(td_kernel_ctx *ctx) {
  const handles_state *st = ctx->state;
  for (int i = 0; i < st->count; i++) td_out_set(ctx, i, td_tensor_retain(st->handles[i]));
  return TD_STATUS_OK;
}

/* ---- reads ---- */

static td_status find_variable(td_kernel_ctx *ctx, int i, td_variable **out) {
  void *v = NULL;
  TD_TRY(td_handle_lookup(td_in(ctx, i), ctx->device, &td_resource_variable_type, &v));
  *out = v;
  return TD_STATUS_OK;
}

static td_status read_into(td_kernel_ctx *ctx, int i) {
  td_variable *v;
  td_tensor *value;
  td_dtype want = td_out_type(ctx, i);
  td_status s = td_update_variable(ctx, i, &v);
  if (s) return td_variable_not_readable(td_in(ctx, i), ctx->device, s);
  if (v->dtype != want)
    s = td_invalid_argument("Trying to read variable with wrong dtype. Expected %s got %s", td_dtype_name(want),
                            td_dtype_name(v->dtype));
  if (!s) s = td_variable_read(v, &value);
  td_variable_release(v);
  TD_TRY(s);
  if (!value) return td_variable_not_readable(td_in(ctx, i), ctx->device, NULL);
  td_out_set(ctx, i, value);
  return TD_STATUS_OK;
}

static td_status compute_read(td_kernel_ctx *ctx) { return read_into(ctx, 0); }

static td_status compute_read_several(td_kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->output_count; i++) TD_TRY(read_into(ctx, i));
  return TD_STATUS_OK;
}

static td_status create_read_several(td_kernel_builder *b, void *state) {
  if (b->input_count == b->output_count) return TD_STATUS_OK;
  return td_invalid_argument("Mismatched number of arguments to ReadVariablesOp (%d vs. %d)", b->input_count,
                             b->output_count);
}

static td_status compute_is_initialized(td_kernel_ctx *ctx) {
  td_variable *v = NULL;
  bool initialized = false;
  td_status s = find_variable(ctx, 0, &v);
  if (!s) {
    pthread_rwlock_rdlock(&v->lock);
    initialized = v->value != NULL;
    pthread_rwlock_unlock(&v->lock);
    td_variable_release(v);
  } else if (td_status_code(s) != TD_NOT_FOUND) {
    return s;
  }
  td_status_free(s);
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_DATA(out, bool)[0] = initialized;
  return TD_STATUS_OK;
}

/* Readers under copy-on-read hold copies, so that there is nothing of theirs to respect. */
static td_status compute_disable_copies(td_kernel_ctx *ctx) {
  td_variable *v;
  TD_TRY(td_update_variable(ctx, 0, &v));
  pthread_rwlock_wrlock(&v->lock);
  v->copy_on_read = false;
  pthread_rwlock_unlock(&v->lock);
  td_variable_release(v);
  return TD_STATUS_OK;
}

static td_status compute_shape(td_kernel_ctx *ctx) {
  td_variable *v;
  TD_TRY(td_update_variable(ctx, 0, &v));
  pthread_rwlock_rdlock(&v->lock);
  td_shape shape = {.rank = -1};
  if (v->value) td_tensor_shape(v->value, &shape);
  pthread_rwlock_unlock(&v->lock);
  td_variable_release(v);
  if (shape.rank < 0) return td_variable_not_readable(td_in(ctx, 0), ctx->device, NULL);
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &(int64_t){shape.rank}, &out));
  for (int i = 0; i < shape.rank; i++) {
    if (out->dtype == TD_INT64)
      TD_DATA(out, int64_t)[i] = shape.dims[i];
    else if (shape.dims[i] <= INT32_MAX)
      TD_DATA(out, int32_t)[i] = (int32_t)shape.dims[i];
    else
      return td_invalid_argument("VariableShape: dimension %d of size %lld does not fit int32", i,
                                 (long long)shape.dims[i]);
  }
  return TD_STATUS_OK;
}

/* ---- assignment ---- */

typedef struct assign_state {
  td_dtype dtype;
  bool validate_shape;
  td_rows_fn *rows; /* AssignAdd, AssignSub */
} assign_state;

static td_status create_assign(td_kernel_builder *b, void *state) {
  assign_state *st = state;
  TD_TRY(td_attr_type(b->node, "dtype", &st->dtype));
  return td_attr_bool(b->node, "validate_shape", &st->validate_shape);
}

typedef struct new_variable_arg {
  td_dtype dtype;
  td_str name;
} new_variable_arg;

static td_status new_variable(void *arg, td_resource **out) {
  const new_variable_arg *a = arg;
  *out = &td_variable_create(&td_resource_variable_type, a->dtype, a->name)->resource;
  return TD_STATUS_OK;
}

static td_status check_assign(const assign_state *st, const td_variable *v, const td_tensor *value) {
  if (v->dtype != st->dtype)
    return td_invalid_argument("Trying to assign variable with wrong dtype. Expected %s got %s",
                               td_dtype_name(v->dtype), td_dtype_name(st->dtype));
  if (!st->validate_shape || !v->value || td_tensor_same_shape(v->value, value)) return TD_STATUS_OK;
  char *want = td_tensor_shape_text(v->value), *got = td_tensor_shape_text(value);
  td_status s =
      td_invalid_argument("Trying to assign to variable with tensor with wrong shape. Expected %s got %s", want, got);
  td_free(want);
  td_free(got);
  return s;
}

/* The value may stay shared (with a constant, a reader): whoever writes in place looks first. Not in copy-on-read
 * mode: there writers count on being alone. A small view must not pin a large buffer, nor a variable what was lent. */
static td_status assign_locked(td_kernel_ctx *ctx, td_variable *v) {
  td_tensor *value = td_in(ctx, 1);
  bool whole = !value->base || (value->base->size == value->size && value->base->data == value->data);
  if (whole && !td_tensor_is_foreign(value) && (!v->copy_on_read || td_tensor_is_exclusive(value))) {
    ctx->in[1].tensor = NULL;
    td_variable_set(v, value);
    return TD_STATUS_OK;
  }
  td_tensor *copy;
  TD_TRY(td_tensor_copy(value, &copy));
  td_variable_set(v, copy);
  return TD_STATUS_OK;
}

static td_status compute_assign(td_kernel_ctx *ctx) {
  const assign_state *st = ctx->state;
  td_resource_handle *h;
  td_tensor *value = td_in(ctx, 1);
  if (value->dtype != st->dtype)
    return td_invalid_argument("Variable and value dtypes don't match; respectively, %s and %s",
                               td_dtype_name(st->dtype), td_dtype_name(value->dtype));
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
  if (h->type_name[0] && strcmp(h->type_name, td_resource_variable_type.name))
    return td_invalid_argument("Trying to assign a variable through a handle of type %s", h->type_name);
  new_variable_arg arg = {st->dtype, td_str_of(h->name)};
  void *found = NULL;
  TD_TRY(td_resource_lookup_or_create(ctx->device->resources, td_str_of(h->container), td_str_of(h->name),
                                      &td_resource_variable_type, new_variable, &arg, &found));
  td_variable *v = found;
  pthread_rwlock_wrlock(&v->lock);
  td_status s = check_assign(st, v, value);
  if (!s) s = assign_locked(ctx, v);
  pthread_rwlock_unlock(&v->lock);
  td_variable_release(v);
  return s;
}

static td_status create_update(td_kernel_builder *b, void *state) {
  assign_state *st = state;
  TD_TRY(td_attr_type(b->node, "dtype", &st->dtype));
  st->rows = td_rows(td_str_is(b->node->op, "AssignAddVariableOp") ? TD_ROWS_ADD : TD_ROWS_SUB, st->dtype);
  if (!st->rows) return td_unimplemented("%.*s of %s", TD_STR_ARG(b->node->op), td_dtype_name(st->dtype));
  return TD_STATUS_OK;
}

static td_status compute_update(td_kernel_ctx *ctx) {
  const assign_state *st = ctx->state;
  const td_tensor *update = td_in(ctx, 1);
  td_update_set set;
  td_status status = td_update_begin(ctx, 1, st->dtype, &set);
  if (status) goto cleanup;
  if (!td_tensor_same_shape(td_update_value(&set, 0), update)) {
    char *is = td_tensor_shape_text(td_update_value(&set, 0)), *by = td_tensor_shape_text(update);
    status = td_invalid_argument(
        "Cannot update variable with shape %s using a Tensor with shape %s, shapes must be equal.", is, by);
    td_free(is);
    td_free(by);
    goto cleanup;
  }
  status = td_update_dense(ctx, &set, st->rows, update);
cleanup:
  td_update_end(&set);
  return status;
}

/* ---- DestroyResourceOp ---- */

typedef struct destroy_state {
  bool ignore_lookup_error;
} destroy_state;

static td_status create_destroy(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "ignore_lookup_error", &((destroy_state *)state)->ignore_lookup_error);
}

static td_status compute_destroy(td_kernel_ctx *ctx) {
  const destroy_state *st = ctx->state;
  td_resource_handle *h;
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
  td_status s = td_resource_delete_by_type_name(ctx->device->resources, td_str_of(h->container), td_str_of(h->name),
                                                td_str_of(h->type_name));
  if (!s || !st->ignore_lookup_error || td_status_code(s) != TD_NOT_FOUND) return s;
  td_status_free(s);
  return TD_STATUS_OK;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {.name = "VarHandleOp",
     .outputs = "resource: resource",
     .flags = TD_OP_STATEFUL,
     .attrs = "container: string = ''; shared_name: string = ''; debug_name: string = ''; dtype: type; shape: shape; "
              "allowed_devices: list(string) = []"},
    {.name = "_VarHandlesOp",
     .outputs = "resources: N * resource",
     .flags = TD_OP_STATEFUL,
     .attrs = "containers: list(string); shared_names: list(string); N: int >= 0; dtypes: list(type); "
              "shapes: list(shape)"},
    {.name = "VarIsInitializedOp",
     .inputs = "resource: resource",
     .outputs = "is_initialized: bool",
     .flags = TD_OP_STATEFUL},
    {.name = "ReadVariableOp",
     .inputs = "resource: resource",
     .outputs = "value: dtype",
     .attrs = "dtype: type",
     .flags = TD_OP_STATEFUL},
    {.name = "_ReadVariablesOp",
     .inputs = "resources: N * resource",
     .outputs = "values: dtypes",
     .attrs = "N: int >= 0; dtypes: list(type) >= 1",
     .flags = TD_OP_STATEFUL},
    {.name = "DisableCopyOnRead", .inputs = "resource: resource", .flags = TD_OP_STATEFUL},
    {.name = "VariableShape",
     .inputs = "input: resource",
     .outputs = "output: out_type",
     .attrs = "out_type: type in {int32, int64} = int32",
     .flags = TD_OP_STATEFUL},
    {.name = "AssignVariableOp",
     .inputs = "resource: resource; value: dtype",
     .attrs = "dtype: type; validate_shape: bool = false",
     .flags = TD_OP_STATEFUL},
    {.name = "AssignAddVariableOp",
     .inputs = "resource: resource; value: dtype",
     .attrs = "dtype: type",
     .flags = TD_OP_STATEFUL},
    {.name = "AssignSubVariableOp",
     .inputs = "resource: resource; value: dtype",
     .attrs = "dtype: type",
     .flags = TD_OP_STATEFUL},
    {.name = "DestroyResourceOp",
     .inputs = "resource: resource",
     .attrs = "ignore_lookup_error: bool = true",
     .flags = TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "VarHandleOp",
     .cost = TD_COST_CHEAP,
     .flags = TD_KERNEL_CONSTANT,
     .state_size = sizeof(handle_state),
     .create = create_handle,
     .destroy = destroy_handle,
     .compute = compute_handle},
    {.op = "_VarHandlesOp",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(handles_state),
     .create = create_handles,
     .destroy = destroy_handles,
     .compute = compute_handles},
    {.op = "VarIsInitializedOp", .cost = TD_COST_CHEAP, .compute = compute_is_initialized},
    {.op = "ReadVariableOp", .cost = TD_COST_CHEAP, .compute = compute_read},
    {.op = "_ReadVariablesOp", .cost = TD_COST_CHEAP, .create = create_read_several, .compute = compute_read_several},
    {.op = "DisableCopyOnRead", .cost = TD_COST_CHEAP, .compute = compute_disable_copies},
    {.op = "VariableShape", .cost = TD_COST_CHEAP, .compute = compute_shape},
    {.op = "AssignVariableOp", .state_size = sizeof(assign_state), .create = create_assign, .compute = compute_assign},
    {.op = "AssignAddVariableOp",
     .types = {{"dtype", TD_SET_NUMBER}},
     .state_size = sizeof(assign_state),
     .create = create_update,
     .compute = compute_update},
    {.op = "AssignSubVariableOp",
     .types = {{"dtype", TD_SET_NUMBER}},
     .state_size = sizeof(assign_state),
     .create = create_update,
     .compute = compute_update},
    {.op = "DestroyResourceOp",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(destroy_state),
     .create = create_destroy,
     .compute = compute_destroy},
};

TD_FAMILY(resource_variable, ops, kernels);

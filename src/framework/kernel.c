#include "framework/kernel.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"

static td_status no_kernel(const td_node_def *n) {
  td_strbuf attrs = {0};
  for (size_t i = 0; i < n->attr_count; i++)
    if (n->attrs[i].value->value_case == PB__ATTR_VALUE__VALUE_TYPE)
      td_strbuf_printf(&attrs, "%s%.*s=%s", attrs.size ? ", " : "", TD_STR_ARG(n->attrs[i].name),
                       td_dtype_name(n->attrs[i].value->type));
  td_status s = td_not_found(
      "No OpKernel was registered to support Op '%.*s' used by {{node %.*s}} with these attrs: [%s]\n"
      "Registered devices: [CPU]",
      TD_STR_ARG(n->op), TD_STR_ARG(n->name), td_strbuf_cstr(&attrs));
  td_strbuf_deinit(&attrs);
  return s;
}

static td_status init(td_kernel *k, const td_kernel_options *o, const td_op_def *op) {
  int *in_types, *out_types;
  size_t in_count, out_count;
  TD_TRY(td_node_input_types(o->node, op, &k->arena, &in_types, &in_count));
  TD_TRY(td_node_output_types(o->node, op, &k->arena, &out_types, &out_count));
  k->input_types = in_types;
  k->output_types = out_types;
  k->input_count = (int)in_count;
  k->output_count = (int)out_count;
  if (k->def->state_size) k->state = td_arena_calloc(&k->arena, 1, k->def->state_size);
  k->name = td_arena_str(&k->arena, o->node->name);
  k->op = td_arena_str(&k->arena, o->node->op);
  k->is_stateful = op->flags & TD_OP_STATEFUL;
  td_kernel_builder b = {
      .node = o->node,
      .op = op,
      .input_types = in_types,
      .output_types = out_types,
      .input_count = k->input_count,
      .output_count = k->output_count,
      .device = o->device,
      .arena = &k->arena,
      .functions = o->functions,
      .session = o->session,
      .compute = k->def->compute,
      .compute_async = k->def->compute_async,
      .cost = k->def->cost,
  };
  if (k->def->create) TD_TRY(k->def->create(&b, k->state));
  if (!b.compute && !b.compute_async) return no_kernel(o->node);
  k->compute = b.compute;
  k->compute_async = b.compute_async;
  k->cost = (uint8_t)b.cost;
  return TD_STATUS_OK;
}

/* One block holds the usual kernel and all that its arena is asked for: TYPES for the edges' types, MORE for what its
 * create() takes (the key of a Send). */
static td_kernel *allocate(const td_kernel_def *def, const td_node_def *n) {
  enum { LINE = 64, TYPES = 64, MORE = 160, PADDING = 64 };
  _Static_assert(offsetof(td_kernel, compute) == LINE && sizeof(td_kernel) == 2 * LINE, "what runs read is one line");
  size_t room = TYPES + def->state_size + n->name.size + n->op.size + MORE + PADDING;
  size_t size = (sizeof(td_kernel) + room + LINE - 1) & ~(size_t)(LINE - 1);
  td_kernel *k = td_calloc_aligned(LINE, size);
  td_arena_init_with(&k->arena, k + 1, size - sizeof *k);
  atomic_init(&k->refs, 1);
  k->def = def;
  return k;
}

td_status td_kernel_create(const td_kernel_options *o, td_kernel **out) {
  const td_op_def *op = o->op ? o->op : td_op_find(o->node->op);
  if (!op) return td_op_not_found(o->node->op);
  const td_kernel_def *def = td_kernel_find(o->node, td_str_of(o->device ? o->device->parsed.type : "CPU"));
  if (!def) return no_kernel(o->node);
  td_kernel *k = allocate(def, o->node);
  td_status s = init(k, o, op);
  if (s)
    td_kernel_release(k);
  else
    *out = k;
  return s;
}

td_kernel *td_kernel_retain(td_kernel *k) {
  atomic_fetch_add_explicit(&k->refs, 1, memory_order_relaxed);
  return k;
}

void td_kernel_release(td_kernel *k) {
  /* acq_rel: the last owner sees every run's effects before it destroys */
  if (!k || atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1) return;
  if (k->def->destroy && k->state) k->def->destroy(k->state);
  td_arena_deinit(&k->arena);
  td_free(k);
}

td_status td_out_alloc(td_kernel_ctx *ctx, int i, const td_shape *shape, td_tensor **out) {
  return td_out_alloc_dims(ctx, i, shape->rank, shape->dims, out);
}

/* Whether an output fits the step's limit. Shapes that are none fail where the tensor is made. */
static td_status check_limit(const td_kernel_ctx *ctx, int i, int rank, const int64_t *dims) {
  size_t bytes = td_dtype_size(td_out_type(ctx, i)), limit = ctx->step->max_output_bytes;
  for (int d = 0; d < rank; d++)
    if (dims[d] >= 0 && __builtin_mul_overflow(bytes, (size_t)dims[d], &bytes)) bytes = SIZE_MAX;
  if (bytes <= limit) return TD_STATUS_OK;
  return td_resource_exhausted("output %d of %.*s would take %zu bytes, more than %zu", i, TD_STR_ARG(ctx->kernel->op),
                               bytes, limit);
}

td_status td_out_alloc_dims(td_kernel_ctx *ctx, int i, int rank, const int64_t *dims, td_tensor **out) {
  assert(!ctx->out[i].tensor);
  if (ctx->step && ctx->step->max_output_bytes) TD_TRY(check_limit(ctx, i, rank, dims));
  TD_TRY(td_tensor_create_dims(td_out_type(ctx, i), rank, dims, out));
  ctx->out[i].tensor = *out;
  return TD_STATUS_OK;
}

td_status td_out_alloc_like(td_kernel_ctx *ctx, int i, const td_tensor *like, td_tensor **out) {
  return td_out_alloc_dims(ctx, i, like->rank, like->dims, out);
}

static td_status reuse(td_kernel_ctx *ctx, int in, int i, int rank, const int64_t *dims, td_tensor **out) {
  td_tensor *t = ctx->in[in].tensor;
  td_dtype type = td_out_type(ctx, i);
  int64_t count = 1;
  for (int d = 0; d < rank; d++) /* an overflow cannot equal a count that exists; two negative sizes could */
    if (dims[d] < 0 || __builtin_mul_overflow(count, dims[d], &count))
      return td_out_alloc_dims(ctx, i, rank, dims, out);
  if (!t || count != t->count || !td_dtype_is_pod((td_dtype)t->dtype) || !td_dtype_is_pod(type) ||
      td_dtype_size((td_dtype)t->dtype) != td_dtype_size(type) || !td_tensor_is_exclusive(t))
    return td_out_alloc_dims(ctx, i, rank, dims, out);
  /* The output shares the input's elements: a second reference, or another header over them. */
  *out = t->dtype == (uint8_t)type && td_dims_eq(t->rank, t->dims, rank, dims) ? td_tensor_retain(t)
         : t->dtype == (uint8_t)type                                           ? td_tensor_reshape(t, rank, dims)
                                                                               : td_tensor_bitcast(t, type, rank, dims);
  ctx->out[i].tensor = *out;
  return TD_STATUS_OK;
}

td_status td_out_reuse(td_kernel_ctx *ctx, int in, int i, const td_shape *shape, td_tensor **out) {
  return reuse(ctx, in, i, shape->rank, shape->dims, out);
}

td_status td_out_reuse_like(td_kernel_ctx *ctx, int in, int i, td_tensor **out) {
  const td_tensor *t = ctx->in[in].tensor;
  return reuse(ctx, in, i, t->rank, t->dims, out);
}

int td_ctx_threads(const td_kernel_ctx *ctx) { return td_pool_threads(ctx->step ? ctx->step->pool : NULL); }

void td_ctx_parallel_for(td_kernel_ctx *ctx, int64_t n, double unit_ns, void (*fn)(void *, int64_t, int64_t),
                         void *arg) {
  td_pool_parallel_for(ctx->step ? ctx->step->pool : NULL, n, unit_ns, fn, arg);
}

td_status td_check_scalar(const td_tensor *t, const char *what) {
  if (t->rank == 0) return TD_STATUS_OK;
  char *shape = td_tensor_shape_text(t);
  td_status s = td_invalid_argument("%s must be a scalar, got shape %s", what, shape);
  td_free(shape);
  return s;
}

td_status td_check_vector(const td_tensor *t, const char *what) {
  if (t->rank == 1) return TD_STATUS_OK;
  char *shape = td_tensor_shape_text(t);
  td_status s = td_invalid_argument("%s must be a vector, got shape %s", what, shape);
  td_free(shape);
  return s;
}

td_status td_shape_from_tensor(const td_tensor *t, bool allow_unknown, td_shape *out) {
  if (t->dtype != TD_INT32 && t->dtype != TD_INT64)
    return td_invalid_argument("shape must be int32 or int64, got %s", td_dtype_name(t->dtype));
  TD_TRY(td_check_vector(t, "shape"));
  if (t->count > TD_MAX_RANK)
    return td_invalid_argument("shape must have at most %d dimensions, got %lld", TD_MAX_RANK, (long long)t->count);
  out->rank = (int)t->count;
  int64_t product = 1;
  for (int i = 0; i < out->rank; i++) {
    int64_t d = out->dims[i] = td_tensor_int_at(t, i);
    if (d < 0 && !(allow_unknown && d == -1)) return td_invalid_argument("Dimension %lld must be >= 0", (long long)d);
    if (d >= 0 && __builtin_mul_overflow(product, d, &product))
      return td_invalid_argument("shape has too many elements: dimension %d is %lld", i, (long long)d);
  }
  return TD_STATUS_OK;
}

static bool same_types(const int *a, int a_count, const int *b, int b_count) {
  return a_count == b_count && (!a_count || !memcmp(a, b, (size_t)a_count * sizeof *a));
}

static void put_signature(td_strbuf *b, const int *in, int in_count, const int *out, int out_count) {
  for (int i = 0; i < in_count; i++) td_strbuf_printf(b, "%s%s", i ? ", " : "", td_dtype_name(in[i]));
  td_strbuf_puts(b, "->");
  for (int i = 0; i < out_count; i++) td_strbuf_printf(b, "%s%s", i ? ", " : "", td_dtype_name(out[i]));
}

td_status td_check_signature(const td_kernel_ctx *ctx, const int *in, int in_count, const int *out, int out_count) {
  const td_kernel *k = ctx->kernel;
  if (same_types(k->input_types, k->input_count, in, in_count) &&
      same_types(k->output_types, k->output_count, out, out_count))
    return TD_STATUS_OK;
  td_strbuf b = {0};
  td_strbuf_puts(&b, "Signature mismatch, have: ");
  put_signature(&b, k->input_types, k->input_count, k->output_types, k->output_count);
  td_strbuf_puts(&b, " expected: ");
  put_signature(&b, in, in_count, out, out_count);
  td_status s = td_error_bytes(TD_INVALID_ARGUMENT, b.data, b.size);
  td_strbuf_deinit(&b);
  return s;
}

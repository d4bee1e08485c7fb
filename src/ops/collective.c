/* Collectives over a group of devices: CollectiveReduce, CollectiveGather, CollectiveBcastSend, CollectiveBcastRecv
 * (TensorFlow's collective_ops). How a group runs one is the business of framework/collective.h. */
#include "framework/collective.h"
#include "base/mem.h"
#include "ops/families.h"
#include "ops/loops/loops.h"
#include "ops/move.h"
#include "tensor/tensor_proto.h"

typedef struct member {
  td_collective_spec spec; /* first */
  td_map merge, finish;
  uint64_t group_size[1];     /* as an element of T */
  char *name;                 /* spec.name */
  int32_t *offsets;           /* spec.subdiv_offsets */
  td_shape *shape;            /* of a broadcast, as declared */
  td_resource *_Atomic group; /* what the first run found */
} member;

typedef struct run {
  td_collective c; /* first */
  td_kernel_ctx *ctx;
} run;

/* ---- attributes ---- */

static td_status int_attr(const td_node_def *n, const char *name, int32_t *out) {
  int64_t v;
  TD_TRY(td_attr_int(n, name, &v));
  if (v < INT32_MIN || v > INT32_MAX)
    return td_invalid_argument("Attr %s of %.*s is %lld, which is no int32", name, TD_STR_ARG(n->name), (long long)v);
  *out = (int32_t)v;
  return TD_STATUS_OK;
}

static td_status create(td_kernel_builder *b, member *m, td_collective_type type, char *what) {
  td_collective_spec *s = &m->spec;
  td_status status = TD_STATUS_OK;
  s->type = type;
  m->name = td_asprintf("%.*s: %s", TD_STR_ARG(b->node->name), what);
  s->name = td_str_of(m->name);
  td_free(what);
  status = int_attr(b->node, "group_size", &s->group_size);
  if (!status) status = int_attr(b->node, "group_key", &s->group_key);
  if (!status) status = int_attr(b->node, "instance_key", &s->instance_key);
  if (!status) status = td_attr_type(b->node, "T", &s->dtype);
  return status;
}

static void destroy(void *state) {
  member *m = state;
  td_resource_release(atomic_load(&m->group));
  td_free(m->name);
  td_free(m->offsets);
  td_free(m->shape);
}

/* ---- running ---- */

static void ended(td_collective *c, td_status status) {
  run *r = (run *)c;
  td_kernel_ctx *ctx = r->ctx;
  td_free(r);
  td_kernel_done(ctx, status);
}

/* `output` NULL: the input is the output. */
static void start(td_kernel_ctx *ctx, td_status status, const td_shape *shape, td_tensor *input, td_tensor *output) {
  member *m = ctx->state;
  if (!status && !ctx->step->collectives)
    status = td_internal("Failed to get CollectiveExecutor from OpKernelContext for Op %s", m->name);
  if (status) {
    td_kernel_done(ctx, status);
    return;
  }
  run *r = td_malloc(sizeof *r);
  r->ctx = ctx;
  r->c.spec = &m->spec;
  r->c.resolved = &m->group;
  r->c.device = ctx->device;
  r->c.frame = ctx->frame;
  r->c.step_id = ctx->step->id;
  td_shape_copy(&r->c.shape, shape);
  r->c.input = input;
  r->c.output = output;
  r->c.done = ended;
  ctx->step->collectives->run(ctx->step->collectives, &r->c);
}

/* ---- CollectiveReduce ---- */

static void merge(const td_collective_spec *s, const void *from, void *into, int64_t n) {
  const member *m = (const member *)s;
  td_map_binary(&m->merge, into, 1, from, 1, into, n);
}

static void divide(const td_collective_spec *s, void *into, int64_t n) {
  const member *m = (const member *)s;
  td_map_binary(&m->finish, into, 1, m->group_size, 0, into, n);
}

static void set_group_size(member *m) {
  float f = (float)m->spec.group_size;
  double d = m->spec.group_size;
  int64_t i = m->spec.group_size;
  const td_half_loops *h = td_half_loops_get();
  switch ((int)m->spec.dtype) {
    case TD_FLOAT:
      memcpy(m->group_size, &f, sizeof f);
      break;
    case TD_DOUBLE:
      memcpy(m->group_size, &d, sizeof d);
      break;
    case TD_HALF:
      h->float_to_half(&f, m->group_size, 1);
      break;
    case TD_BFLOAT16:
      h->float_to_bfloat16(&f, m->group_size, 1);
      break;
    case TD_INT32:
      memcpy(m->group_size, &m->spec.group_size, sizeof m->spec.group_size);
      break;
    default:
      memcpy(m->group_size, &i, sizeof i);
  }
}

static td_status subdivisions(td_kernel_builder *b, member *m) {
  const Pb__AttrValue__ListValue *list;
  TD_TRY(td_attr_list(b->node, "subdiv_offsets", &list));
  m->offsets = td_new_array(int32_t, list->n_i + 1);
  for (size_t i = 0; i < list->n_i; i++) {
    if (list->i[i] < INT32_MIN || list->i[i] > INT32_MAX)
      return td_invalid_argument("subdiv_offsets[%zu] of %s is %lld, which is no int32", i, m->name,
                                 (long long)list->i[i]);
    m->offsets[i] = (int32_t)list->i[i];
  }
  m->spec.subdiv_offsets = m->offsets;
  m->spec.subdiv_count = (int)TD_MIN(list->n_i, (size_t)INT32_MAX);
  return TD_STATUS_OK;
}

static td_status create_reduce(td_kernel_builder *b, void *state) {
  static const struct {
    const char *name;
    td_binary op;
  } merges[] = {{"Add", TD_BIN_Add}, {"Mul", TD_BIN_Mul}, {"Max", TD_BIN_Maximum}, {"Min", TD_BIN_Minimum}};
  member *m = state;
  td_str merge_op, final_op;
  TD_TRY(td_attr_str(b->node, "merge_op", &merge_op));
  TD_TRY(td_attr_str(b->node, "final_op", &final_op));
  TD_TRY(
      create(b, m, TD_COLLECTIVE_REDUCE, td_asprintf("Reduce(%.*s,%.*s)", TD_STR_ARG(merge_op), TD_STR_ARG(final_op))));
  TD_TRY(subdivisions(b, m));
  for (size_t i = 0; i < TD_COUNT(merges) && !m->spec.merge; i++)
    if (td_str_is(merge_op, merges[i].name) &&
        td_map_init_binary(&m->merge, merges[i].op, m->spec.dtype, m->spec.dtype, 0))
      m->spec.merge = merge;
  if (!m->spec.merge)
    return td_invalid_argument("merge_op must be one of {\"Add\", \"Mul\", \"Max\", \"Min\"} but got %.*s of %s",
                               TD_STR_ARG(merge_op), td_dtype_name(m->spec.dtype));
  if (td_str_is(final_op, "Id")) return TD_STATUS_OK;
  if (!td_str_is(final_op, "Div") || !td_map_init_binary(&m->finish, TD_BIN_Div, m->spec.dtype, m->spec.dtype, 0))
    return td_invalid_argument("final_op must be one of {\"Id\", \"Div\"} but got %.*s", TD_STR_ARG(final_op));
  if (m->spec.group_size < 1) return td_invalid_argument("group_size of %s is %d", m->name, m->spec.group_size);
  set_group_size(m);
  m->spec.finish = divide;
  return TD_STATUS_OK;
}

static void reduce(td_kernel_ctx *ctx) {
  td_tensor *input = td_in(ctx, 0), *output = NULL;
  td_shape shape;
  td_tensor_shape(input, &shape);
  td_status s = td_out_reuse_like(ctx, 0, 0, &output);
  start(ctx, s, &shape, td_in(ctx, 0), output);
}

/* ---- CollectiveGather ---- */

static td_status create_gather(td_kernel_builder *b, void *state) {
  return create(b, state, TD_COLLECTIVE_GATHER, td_strdup("Gather"));
}

static void gather(td_kernel_ctx *ctx) {
  const member *m = ctx->state;
  td_tensor *input = td_in(ctx, 0), *output = NULL;
  td_shape shape;
  td_status s = TD_STATUS_OK;
  td_tensor_shape(input, &shape);
  if (!shape.rank)
    s = td_invalid_argument("%s: a scalar cannot be gathered", m->name);
  else if (m->spec.group_size < 1 || __builtin_mul_overflow(shape.dims[0], m->spec.group_size, &shape.dims[0]))
    s = td_invalid_argument("%s: %s of %d members cannot be gathered", m->name, TD_SHOW(input), m->spec.group_size);
  if (!s) s = td_out_alloc(ctx, 0, &shape, &output);
  start(ctx, s, &shape, input, output);
}

/* ---- broadcasts ---- */

static td_status create_broadcast(td_kernel_builder *b, void *state, bool is_source) {
  member *m = state;
  const Pb__TensorShapeProto *proto;
  bool unknown;
  m->spec.is_source = is_source;
  TD_TRY(create(b, m, TD_COLLECTIVE_BROADCAST, td_asprintf("Broadcast(%d)", is_source)));
  TD_TRY(td_attr_shape(b->node, "shape", &proto));
  m->shape = td_new(td_shape);
  TD_TRY(td_shape_from_proto(proto, m->shape, &unknown));
  int64_t count;
  return unknown ? td_invalid_argument("%s: its shape is not fully known", m->name) : td_shape_count(m->shape, &count);
}

static td_status create_send(td_kernel_builder *b, void *state) { return create_broadcast(b, state, true); }

static td_status create_recv(td_kernel_builder *b, void *state) { return create_broadcast(b, state, false); }

static void broadcast_send(td_kernel_ctx *ctx) {
  const member *m = ctx->state;
  td_tensor *input = td_in(ctx, 0);
  td_status s = TD_STATUS_OK;
  if (!td_dims_eq(input->rank, input->dims, m->shape->rank, m->shape->dims))
    s = td_internal("Declared shape of op %s does not match shape of input", m->name);
  else
    td_out_set(ctx, 0, td_tensor_retain(input));
  start(ctx, s, m->shape, input, NULL);
}

static void broadcast_recv(td_kernel_ctx *ctx) {
  const member *m = ctx->state;
  td_tensor *output = NULL;
  td_status s = td_out_alloc(ctx, 0, m->shape, &output);
  start(ctx, s, m->shape, NULL, output);
}

#define GROUP "group_size: int; group_key: int; instance_key: int; "
#define HINTS "communication_hint: string = 'auto'; timeout_seconds: float = 0.0"
static const td_op_spec ops[] = {
    {"CollectiveBcastRecv", NULL, "data: T",
     "T: type in {bool, float, half, double, int32, int64}; " GROUP "shape: shape; " HINTS, TD_OP_STATEFUL},
    {"CollectiveBcastSend", "input: T", "data: T",
     "T: type in {bool, float, half, double, int32, int64}; " GROUP "shape: shape; " HINTS, TD_OP_STATEFUL},
    {"CollectiveGather", "input: T", "data: T",
     "T: type in {float, half, double, int32, int64}; " GROUP "shape: shape; " HINTS, TD_OP_STATEFUL},
    {"CollectiveReduce", "input: T", "data: T",
     "T: type in {bfloat16, float, half, double, int32, int64}; " GROUP
     "merge_op: string in {'Min', 'Max', 'Mul', 'Add'}; final_op: string in {'Id', 'Div'}; subdiv_offsets: list(int); "
     "wait_for: list(int) = []; " HINTS,
     TD_OP_STATEFUL},
};

#define KERNEL(name, creates, runs) \
  { .op = name, .state_size = sizeof(member), .create = creates, .destroy = destroy, .compute_async = runs }
static const td_kernel_def kernels[] = {
    KERNEL("CollectiveBcastRecv", create_recv, broadcast_recv),
    KERNEL("CollectiveBcastSend", create_send, broadcast_send),
    KERNEL("CollectiveGather", create_gather, gather),
    KERNEL("CollectiveReduce", create_reduce, reduce),
};

TD_FAMILY(collective, ops, kernels);

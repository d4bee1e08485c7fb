/* Queues and the ops that use them (TensorFlow's queue_ops, fifo_queue_op and its kin). */
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "ops/families.h"
#include "ops/named.h"
#include "ops/queue_data.h"

/* ---- the queues themselves ---- */

typedef struct queue_state {
  td_named named;
  td_queue_spec spec;
  char *op, *node;
} queue_state;

static void destroy_queue_kernel(void *state) {
  queue_state *st = state;
  td_named_deinit(&st->named);
  td_queue_spec_deinit(&st->spec);
  td_free(st->op);
  td_free(st->node);
}

/* A priority queue's own first component goes before those that the node names. */
static td_status read_components(const td_node_def *n, td_queue_spec *s) {
  const Pb__AttrValue__ListValue *types, *shapes;
  bool extra = s->kind == TD_QUEUE_PRIORITY;
  TD_TRY(td_attr_list(n, "component_types", &types));
  TD_TRY(td_attr_list(n, "shapes", &shapes));
  s->types = td_new_array(td_dtype, types->n_type + 1);
  s->shapes = td_new_array(td_partial_shape, shapes->n_shape + 1);
  if (extra) {
    s->types[s->type_count++] = TD_INT64;
    s->shapes[s->shape_count++] = td_partial_shape_make(0, NULL);
  }
  for (size_t i = 0; i < types->n_type; i++) s->types[s->type_count++] = (td_dtype)types->type[i];
  for (size_t i = 0; i < shapes->n_shape; i++) {
    TD_TRY(td_partial_shape_of(shapes->shape[i], &s->shapes[s->shape_count]));
    s->shape_count++;
  }
  return TD_STATUS_OK;
}

static td_status read_shuffling(const td_node_def *n, td_queue_spec *s) {
  TD_TRY(td_attr_int(n, "min_after_dequeue", &s->min_after_dequeue));
  TD_TRY(td_attr_int(n, "seed", &s->seed));
  TD_TRY(td_attr_int(n, "seed2", &s->seed2));
  if (s->min_after_dequeue < 0)
    return td_invalid_argument("min_after_dequeue %lld must be >= 0", (long long)s->min_after_dequeue);
  if (s->min_after_dequeue >= s->capacity)
    return td_invalid_argument("min_after_dequeue %lld must be < capacity %lld", (long long)s->min_after_dequeue,
                               (long long)s->capacity);
  return TD_STATUS_OK;
}

static td_queue_kind kind_of(td_str op) {
  if (td_str_starts(op, TD_STR("Random"))) return TD_QUEUE_SHUFFLE;
  if (td_str_starts(op, TD_STR("Padding"))) return TD_QUEUE_PADDING;
  return td_str_starts(op, TD_STR("Priority")) ? TD_QUEUE_PRIORITY : TD_QUEUE_FIFO;
}

static td_status create_queue_kernel(td_kernel_builder *b, void *state) {
  queue_state *st = state;
  st->spec.kind = kind_of(b->node->op);
  TD_TRY(td_attr_int(b->node, "capacity", &st->spec.capacity));
  if (st->spec.capacity < 0 || st->spec.capacity > INT32_MAX) st->spec.capacity = INT32_MAX;
  TD_TRY(read_components(b->node, &st->spec));
  if (st->spec.kind == TD_QUEUE_SHUFFLE) TD_TRY(read_shuffling(b->node, &st->spec));
  st->op = td_strndup(b->node->op.data, b->node->op.size);
  st->node = td_strndup(b->node->name.data, b->node->name.size);
  return td_named_init(&st->named, b, &td_queue_type);
}

/* What td_queue_create() takes, while the kernel keeps its own for comparison. */
static td_queue_spec copy_spec(const td_queue_spec *s) {
  td_queue_spec c = *s;
  c.types = td_new_array(td_dtype, (size_t)s->type_count + 1);
  memcpy(c.types, s->types, (size_t)s->type_count * sizeof *s->types);
  c.shapes = td_new_array(td_partial_shape, (size_t)s->shape_count + 1);
  for (int i = 0; i < s->shape_count; i++) c.shapes[i] = td_partial_shape_make(s->shapes[i].rank, s->shapes[i].dims);
  return c;
}

static td_status make_queue(void *arg, td_str name, td_resource **out) {
  const queue_state *st = arg;
  td_queue *q;
  td_queue_spec spec = copy_spec(&st->spec);
  td_status s = td_queue_create(&spec, name, &q);
  td_queue_spec_deinit(&spec);
  if (!s) *out = (td_resource *)q;
  return s;
}

static td_status check_queue(void *arg, td_resource *found) {
  const queue_state *st = arg;
  return td_queue_matches((td_queue *)found, &st->spec, td_str_of(st->node), td_str_of(st->op));
}

static td_status compute_queue(td_kernel_ctx *ctx) {
  queue_state *st = ctx->state;
  return td_named_out(&st->named, ctx, make_queue, check_queue, st);
}

/* ---- ops on queues ---- */

static td_status find(td_kernel_ctx *ctx, td_queue **out) {
  void *found;
  TD_TRY(
      td_in_handle(ctx, ctx->device->resources, false, "Input handle must have two elements", &td_queue_type, &found));
  *out = found;
  return TD_STATUS_OK;
}

static td_status check_timeout(td_kernel_builder *b, void *state) {
  int64_t ms;
  TD_TRY(td_attr_int(b->node, "timeout_ms", &ms));
  return ms == -1 ? TD_STATUS_OK : td_invalid_argument("Timeout not supported yet.");
}

/* Finds the queue, or ends the run. */
static td_queue *find_async(td_kernel_ctx *ctx) {
  td_queue *q = NULL;
  td_status s = find(ctx, &q);
  if (s) td_kernel_done(ctx, s);
  return q;
}

static void compute_enqueue(td_kernel_ctx *ctx) {
  td_queue *q = find_async(ctx);
  if (q) td_queue_enqueue(q, ctx, 1);
  td_resource_release(q);
}

static void compute_enqueue_many(td_kernel_ctx *ctx) {
  td_queue *q = find_async(ctx);
  if (q) td_queue_enqueue_many(q, ctx, 1);
  td_resource_release(q);
}

static void compute_dequeue(td_kernel_ctx *ctx) {
  td_queue *q = find_async(ctx);
  if (q) td_queue_dequeue(q, ctx);
  td_resource_release(q);
}

static void dequeue_many(td_kernel_ctx *ctx, const char *name, bool allow_small) {
  td_tensor *n = td_in(ctx, 1);
  td_status s = TD_STATUS_OK;
  if (!n->count)
    s = td_invalid_argument("%s: the number of elements must be a scalar", name);
  else if (*TD_DATA(n, int32_t) < 0)
    s = td_invalid_argument("%s requested %d < 0 elements", name, *TD_DATA(n, int32_t));
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  td_queue *q = find_async(ctx);
  if (q) td_queue_dequeue_many(q, ctx, *TD_DATA(n, int32_t), allow_small);
  td_resource_release(q);
}

static void compute_dequeue_many(td_kernel_ctx *ctx) { dequeue_many(ctx, "DequeueManyOp", false); }
static void compute_dequeue_up_to(td_kernel_ctx *ctx) { dequeue_many(ctx, "DequeueUpToOp", true); }

typedef struct close_state {
  bool cancel_pending;
} close_state;

static td_status create_close(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "cancel_pending_enqueues", &((close_state *)state)->cancel_pending);
}

static void compute_close(td_kernel_ctx *ctx) {
  const close_state *st = ctx->state;
  td_queue *q = find_async(ctx);
  if (q) td_queue_close(q, ctx, st->cancel_pending);
  td_resource_release(q);
}

static td_status compute_size(td_kernel_ctx *ctx) {
  td_queue *q;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_TRY(find(ctx, &q));
  *TD_DATA(out, int32_t) = (int32_t)td_queue_size(q);
  td_resource_release(q);
  return TD_STATUS_OK;
}

static td_status compute_is_closed(td_kernel_ctx *ctx) {
  td_queue *q;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_TRY(find(ctx, &q));
  *TD_DATA(out, bool) = td_queue_is_closed(q);
  td_resource_release(q);
  return TD_STATUS_OK;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {.name = "FIFOQueue",
     .outputs = "handle: Ref(string)",
     .attrs = "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
              "container: string = ''; shared_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "FIFOQueueV2",
     .outputs = "handle: resource",
     .attrs = "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
              "container: string = ''; shared_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "PaddingFIFOQueue",
     .outputs = "handle: Ref(string)",
     .attrs = "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
              "container: string = ''; shared_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "PaddingFIFOQueueV2",
     .outputs = "handle: resource",
     .attrs = "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
              "container: string = ''; shared_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "PriorityQueue",
     .outputs = "handle: Ref(string)",
     .attrs = "component_types: list(type) >= 0 = []; shapes: list(shape) >= 0; capacity: int = -1; "
              "container: string = ''; shared_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "PriorityQueueV2",
     .outputs = "handle: resource",
     .attrs = "component_types: list(type) >= 0 = []; shapes: list(shape) >= 0; capacity: int = -1; "
              "container: string = ''; shared_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "QueueClose", .inputs = "handle: Ref(string)", .attrs = "cancel_pending_enqueues: bool = false"},
    {.name = "QueueCloseV2",
     .inputs = "handle: resource",
     .attrs = "cancel_pending_enqueues: bool = false",
     .flags = TD_OP_STATEFUL},
    {.name = "QueueDequeue",
     .inputs = "handle: Ref(string)",
     .outputs = "components: component_types",
     .attrs = "component_types: list(type) >= 1; timeout_ms: int = -1"},
    {.name = "QueueDequeueMany",
     .inputs = "handle: Ref(string); n: int32",
     .outputs = "components: component_types",
     .attrs = "component_types: list(type) >= 1; timeout_ms: int = -1"},
    {.name = "QueueDequeueManyV2",
     .inputs = "handle: resource; n: int32",
     .outputs = "components: component_types",
     .attrs = "component_types: list(type) >= 1; timeout_ms: int = -1",
     .flags = TD_OP_STATEFUL},
    {.name = "QueueDequeueUpTo",
     .inputs = "handle: Ref(string); n: int32",
     .outputs = "components: component_types",
     .attrs = "component_types: list(type) >= 1; timeout_ms: int = -1"},
    {.name = "QueueDequeueUpToV2",
     .inputs = "handle: resource; n: int32",
     .outputs = "components: component_types",
     .attrs = "component_types: list(type) >= 1; timeout_ms: int = -1",
     .flags = TD_OP_STATEFUL},
    {.name = "QueueDequeueV2",
     .inputs = "handle: resource",
     .outputs = "components: component_types",
     .attrs = "component_types: list(type) >= 1; timeout_ms: int = -1",
     .flags = TD_OP_STATEFUL},
    {.name = "QueueEnqueue",
     .inputs = "handle: Ref(string); components: Tcomponents",
     .attrs = "Tcomponents: list(type) >= 1; timeout_ms: int = -1"},
    {.name = "QueueEnqueueMany",
     .inputs = "handle: Ref(string); components: Tcomponents",
     .attrs = "Tcomponents: list(type) >= 1; timeout_ms: int = -1"},
    {.name = "QueueEnqueueManyV2",
     .inputs = "handle: resource; components: Tcomponents",
     .attrs = "Tcomponents: list(type) >= 1; timeout_ms: int = -1",
     .flags = TD_OP_STATEFUL},
    {.name = "QueueEnqueueV2",
     .inputs = "handle: resource; components: Tcomponents",
     .attrs = "Tcomponents: list(type) >= 1; timeout_ms: int = -1",
     .flags = TD_OP_STATEFUL},
    {.name = "QueueIsClosed", .inputs = "handle: Ref(string)", .outputs = "is_closed: bool"},
    {.name = "QueueIsClosedV2", .inputs = "handle: resource", .outputs = "is_closed: bool", .flags = TD_OP_STATEFUL},
    {.name = "QueueSize", .inputs = "handle: Ref(string)", .outputs = "size: int32"},
    {.name = "QueueSizeV2", .inputs = "handle: resource", .outputs = "size: int32", .flags = TD_OP_STATEFUL},
    {.name = "RandomShuffleQueue",
     .outputs = "handle: Ref(string)",
     .attrs = "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
              "min_after_dequeue: int = 0; seed: int = 0; seed2: int = 0; container: string = ''; "
              "shared_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "RandomShuffleQueueV2",
     .outputs = "handle: resource",
     .attrs = "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
              "min_after_dequeue: int = 0; seed: int = 0; seed2: int = 0; container: string = ''; "
              "shared_name: string = ''",
     .flags = TD_OP_STATEFUL},
};

#define QUEUE(name)                                                                                      \
  {                                                                                                      \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(queue_state), .create = create_queue_kernel, \
    .destroy = destroy_queue_kernel, .compute = compute_queue                                            \
  }
#define ACCESS(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .create = check_timeout, .compute_async = fn }
#define CLOSE(name)                                                                               \
  {                                                                                               \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(close_state), .create = create_close, \
    .compute_async = compute_close                                                                \
  }
#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }

static const td_kernel_def kernels[] = {
    QUEUE("FIFOQueue"),
    QUEUE("FIFOQueueV2"),
    QUEUE("PaddingFIFOQueue"),
    QUEUE("PaddingFIFOQueueV2"),
    QUEUE("PriorityQueue"),
    QUEUE("PriorityQueueV2"),
    QUEUE("RandomShuffleQueue"),
    QUEUE("RandomShuffleQueueV2"),
    ACCESS("QueueEnqueue", compute_enqueue),
    ACCESS("QueueEnqueueV2", compute_enqueue),
    ACCESS("QueueEnqueueMany", compute_enqueue_many),
    ACCESS("QueueEnqueueManyV2", compute_enqueue_many),
    ACCESS("QueueDequeue", compute_dequeue),
    ACCESS("QueueDequeueV2", compute_dequeue),
    ACCESS("QueueDequeueMany", compute_dequeue_many),
    ACCESS("QueueDequeueManyV2", compute_dequeue_many),
    ACCESS("QueueDequeueUpTo", compute_dequeue_up_to),
    ACCESS("QueueDequeueUpToV2", compute_dequeue_up_to),
    CLOSE("QueueClose"),
    CLOSE("QueueCloseV2"),
    PLAIN("QueueSize", compute_size),
    PLAIN("QueueSizeV2", compute_size),
    PLAIN("QueueIsClosed", compute_is_closed),
    PLAIN("QueueIsClosedV2", compute_is_closed),
};

TD_FAMILY(queue, ops, kernels);

/* Barriers (TensorFlow's barrier_ops): elements of which each component is inserted under a key at its own time; those
 * that are complete are ready, in the order in which their keys were first seen.
 *
 * What is ready lies in a priority queue of index, key and components: its dequeues are the barrier's takes. */
#include <pthread.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "framework/device.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/named.h"
#include "ops/queue_data.h"

enum { INDEX, KEY, FIRST }; /* components of the ready queue: the barrier's follow */

/* An element that is not complete. */
typedef struct element {
  int missing;
  td_tensor *parts[]; /* as in the ready queue; NULL: missing */
} element;

typedef struct barrier {
  td_resource resource;
  /* immutable */
  td_queue_spec spec; /* of the components */
  char *name;
  td_queue *ready;
  pthread_mutex_t lock;
  /* guarded by lock; calls into the ready queue are made without it */
  bool is_closed, cancels; /* the latter: incomplete elements were dropped */
  bool is_shut;            /* the ready queue is closed or about to be */
  int64_t next_index;      /* of the elements that an insertion begins */
  int64_t moving;          /* complete elements on their way into the ready queue */
  td_map incomplete;       /* of elements, by key */
} barrier;

static int part_count(const barrier *b) { return FIRST + b->spec.type_count; }

static void free_element(const barrier *b, element *e) {
  for (int i = 0; i < part_count(b); i++) td_tensor_release(e->parts[i]);
  td_free(e);
}

static void drop_incomplete(barrier *b) {
  td_str key;
  void *e;
  for (size_t i = 0; td_map_next(&b->incomplete, &i, &key, &e);) free_element(b, e);
  td_map_deinit(&b->incomplete);
}

static void destroy(td_resource *r) {
  barrier *b = (barrier *)r;
  drop_incomplete(b);
  td_resource_release(b->ready);
  td_queue_spec_deinit(&b->spec);
  pthread_mutex_destroy(&b->lock);
  td_free(b->name);
  td_free(b);
}

static const td_resource_type barrier_type = {.name = "N10tensorflow7barrier7BarrierE", .destroy = destroy};

/* The components of `s`, after `before` others that the caller fills in. */
static td_queue_spec copy_spec(const td_queue_spec *s, int before) {
  td_queue_spec c = {.kind = TD_QUEUE_PRIORITY, .capacity = INT32_MAX};
  c.type_count = c.shape_count = before + s->type_count;
  c.types = td_new_array(td_dtype, (size_t)c.type_count + 1);
  c.shapes = td_new_array(td_partial_shape, (size_t)c.type_count + 1);
  for (int i = 0; i < s->type_count; i++) {
    c.types[before + i] = s->types[i];
    c.shapes[before + i] = td_partial_shape_make(s->shapes[i].rank, s->shapes[i].dims);
  }
  return c;
}

static td_status make_barrier(void *arg, td_str name, td_resource **out) {
  barrier *b = td_new(barrier);
  td_resource_init(&b->resource, &barrier_type);
  pthread_mutex_init(&b->lock, NULL);
  b->name = td_strndup(name.data, name.size);
  b->spec = copy_spec(arg, 0);
  b->next_index = INT64_MIN;
  td_queue_spec ready = copy_spec(arg, FIRST);
  ready.types[INDEX] = TD_INT64;
  ready.types[KEY] = TD_STRING;
  char *queue_name = td_asprintf("%s_queue", b->name);
  td_status s = td_queue_create(&ready, td_str_of(queue_name), &b->ready);
  td_free(queue_name);
  td_queue_spec_deinit(&ready);
  if (s)
    td_resource_release(b);
  else
    *out = &b->resource;
  return s;
}

/* ---- closing ---- */

/* With the lock held: whether the ready queue is to be shut now, by the caller, after it has let go of the lock. */
static bool is_over(barrier *b) {
  if (!b->is_closed || b->is_shut || b->incomplete.count || b->moving) return false;
  b->is_shut = true;
  return true;
}

static td_status close_barrier(barrier *b, bool cancel) {
  pthread_mutex_lock(&b->lock);
  bool again = b->is_closed && (b->cancels || !cancel), over = false;
  if (!again) {
    b->is_closed = true;
    b->cancels = cancel;
    if (cancel) drop_incomplete(b);
    over = is_over(b);
  }
  pthread_mutex_unlock(&b->lock);
  if (over) td_queue_shut(b->ready);
  return again ? td_cancelled("Barrier '%s' is already closed.", b->name) : TD_STATUS_OK;
}

/* ---- inserting ---- */

typedef struct insertion {
  barrier *b;
  const td_tensor *keys, *values;
  int component;
  bool is_first; /* some key is new */
  element **complete;
  int64_t complete_count;
} insertion;

static td_status check_insertion(const insertion *in) {
  const barrier *b = in->b;
  const td_tensor *v = in->values;
  if (in->keys->count && !v->count)
    return td_invalid_argument("Tensors with no elements are not supported %s: received shape %s", b->name, TD_SHOW(v));
  if (!v->rank || v->dims[0] != in->keys->count)
    return td_invalid_argument("Barrier %s was given %lld keys for values of shape %s", b->name,
                               (long long)in->keys->count, TD_SHOW(v));
  const td_partial_shape *want = &b->spec.shapes[in->component];
  if (td_partial_shape_fits(want, v->rank - 1, v->dims + 1) || !in->keys->count) return TD_STATUS_OK;
  char *text = td_partial_shape_text(want);
  td_status s = td_invalid_argument("Shape mismatch in tuple component %d. Expected %s, got %s", FIRST + in->component,
                                    text, td_show_dims(&(td_show_buf){.text = ""}, v->rank - 1, v->dims + 1));
  td_free(text);
  return s;
}

static td_status begin_element(insertion *in, td_str key, element **out) {
  barrier *b = in->b;
  element *e = td_calloc(1, sizeof *e + (size_t)part_count(b) * sizeof(td_tensor *));
  e->missing = b->spec.type_count;
  td_status s = td_tensor_create_dims(TD_INT64, 0, NULL, &e->parts[INDEX]);
  if (!s) s = td_tensor_create_dims(TD_STRING, 0, NULL, &e->parts[KEY]);
  if (!s) s = td_string_set(TD_DATA(e->parts[KEY], td_string), key);
  if (s) {
    free_element(b, e);
    return s;
  }
  *TD_DATA(e->parts[INDEX], int64_t) = b->next_index;
  td_map_put(&b->incomplete, td_string_view(TD_DATA(e->parts[KEY], td_string)), e);
  in->is_first = true;
  *out = e;
  return s;
}

/* With the lock held. */
static td_status insert_one(insertion *in, int64_t i) {
  barrier *b = in->b;
  td_str key = td_string_view(&TD_DATA(in->keys, td_string)[i]);
  element *e = td_map_get(&b->incomplete, key);
  if (!e && b->is_closed)
    return td_cancelled(
        "Barrier %s is closed, but attempted to insert a brand new key: %.*s.  Pending enqueues "
        "cancelled: %d.  Insertion index: %lld.  Number of incomplete keys: %zu.",
        b->name, TD_STR_ARG(key), b->cancels, (long long)i, b->incomplete.count);
  if (!e) TD_TRY(begin_element(in, key, &e));
  td_tensor **part = &e->parts[FIRST + in->component];
  if (*part)
    return td_invalid_argument("Key %.*s already has a value for component %d in barrier %s", TD_STR_ARG(key),
                               in->component, b->name);
  TD_TRY(td_tensor_create_dims(in->values->dtype, in->values->rank - 1, in->values->dims + 1, part));
  td_tensor_copy_elements(*part, 0, in->values, i * (*part)->count, (*part)->count);
  if (--e->missing) return TD_STATUS_OK;
  td_map_remove(&b->incomplete, key);
  in->complete[in->complete_count++] = e;
  return TD_STATUS_OK;
}

static td_status insert_all(insertion *in) {
  barrier *b = in->b;
  int64_t n = in->keys->count;
  if (b->is_closed && (b->cancels || (n && !b->incomplete.count)))
    return td_cancelled(
        "Barrier %s is closed.  Pending enqueues cancelled: %d.  Number of new insertions: %lld.  "
        "Number of incomplete keys: %zu.",
        b->name, b->cancels, (long long)n, b->incomplete.count);
  td_status s = TD_STATUS_OK;
  for (int64_t i = 0; !s && i < n; i++) s = insert_one(in, i);
  if (in->is_first) b->next_index++;
  return s;
}

/* Hands the complete elements over to the ready queue. */
static void move_complete(insertion *in) {
  barrier *b = in->b;
  for (int64_t i = 0; i < in->complete_count; i++) {
    td_queue_put(b->ready, in->complete[i]->parts);
    td_free(in->complete[i]);
  }
  pthread_mutex_lock(&b->lock);
  b->moving -= in->complete_count;
  bool over = is_over(b);
  pthread_mutex_unlock(&b->lock);
  if (over) td_queue_shut(b->ready);
}

/* Elements before one that cannot be inserted stay inserted. */
static td_status insert_many(barrier *b, int component, const td_tensor *keys, const td_tensor *values) {
  insertion in = {.b = b, .keys = keys, .values = values, .component = component};
  TD_TRY(check_insertion(&in));
  in.complete = td_new_array(element *, (size_t)keys->count + 1);
  pthread_mutex_lock(&b->lock);
  td_status s = insert_all(&in);
  b->moving += in.complete_count;
  pthread_mutex_unlock(&b->lock);
  move_complete(&in);
  td_free(in.complete);
  return s;
}

/* ---- taking ---- */

/* How many elements to ask the ready queue for. */
static td_status plan_take(barrier *b, bool allow_small, int32_t *n) {
  if (*n < 0) return td_invalid_argument("Barrier '%s' cannot deliver %d elements", b->name, *n);
  pthread_mutex_lock(&b->lock);
  bool closed = b->is_closed;
  int64_t available = td_queue_size(b->ready) + b->moving;
  if (allow_small)
    *n = closed ? (int32_t)TD_MIN(*n, available) : *n;
  else
    available += (int64_t)b->incomplete.count;
  pthread_mutex_unlock(&b->lock);
  if (!closed || available >= TD_MAX(*n, 1)) return TD_STATUS_OK;
  return td_error(TD_OUT_OF_RANGE,
                  "Barrier '%s' is closed and has insufficient elements (requested %d, total size %lld)", b->name, *n,
                  (long long)available);
}

/* ---- kernels ---- */

typedef struct barrier_state {
  td_named named;
  td_queue_spec spec;
} barrier_state;

static td_status read_spec(const td_node_def *n, td_queue_spec *s) {
  const Pb__AttrValue__ListValue *types, *shapes;
  TD_TRY(td_attr_list(n, "component_types", &types));
  TD_TRY(td_attr_list(n, "shapes", &shapes));
  if (shapes->n_shape != types->n_type) return td_invalid_argument("All of the component shapes must be specified");
  s->types = td_new_array(td_dtype, types->n_type + 1);
  s->shapes = td_new_array(td_partial_shape, types->n_type + 1);
  for (size_t i = 0; i < types->n_type; i++) {
    td_partial_shape *shape = &s->shapes[i];
    TD_TRY(td_partial_shape_of(shapes->shape[i], shape));
    s->types[i] = (td_dtype)types->type[i];
    s->type_count = s->shape_count = (int)i + 1;
    if (shape->rank < 0) *shape = td_partial_shape_make(0, NULL); /* as TensorFlow reads it: a scalar */
    if (!td_partial_shape_is_full(shape))
      return td_invalid_argument("The shape of component %zu is not fully known", i);
  }
  return TD_STATUS_OK;
}

static td_status create_barrier(td_kernel_builder *b, void *state) {
  barrier_state *st = state;
  int64_t capacity;
  TD_TRY(read_spec(b->node, &st->spec));
  TD_TRY(td_attr_int(b->node, "capacity", &capacity));
  if (capacity != -1)
    return td_invalid_argument(
        "Barrier only accepts capacity=-1, not %lld.  Feed the inputs to your Barrier through a "
        "queue to enforce a limited capacity.",
        (long long)capacity);
  return td_named_init(&st->named, b, &barrier_type);
}

static void destroy_barrier(void *state) {
  barrier_state *st = state;
  td_named_deinit(&st->named);
  td_queue_spec_deinit(&st->spec);
}

static td_status check_barrier(void *arg, td_resource *found) {
  const barrier *b = (barrier *)found;
  return td_queue_components_match(&b->spec, arg, "barrier", b->name);
}

static td_status compute_barrier(td_kernel_ctx *ctx) {
  barrier_state *st = ctx->state;
  return td_named_out(&st->named, ctx, make_barrier, check_barrier, &st->spec);
}

static td_status find(td_kernel_ctx *ctx, barrier **out) {
  void *found;
  TD_TRY(td_in_handle(ctx, ctx->device->resources, false, "Resource handle must have two elements", &barrier_type,
                      &found));
  *out = found;
  return TD_STATUS_OK;
}

static td_status create_insert(td_kernel_builder *b, void *state) {
  return td_attr_int(b->node, "component_index", state);
}

static td_status insert_into(barrier *b, td_kernel_ctx *ctx) {
  int64_t i = *(const int64_t *)ctx->state;
  if (i < 0 || i >= b->spec.type_count)
    return td_invalid_argument("The component ID is out of range %lld > num_components (= %d)", (long long)i,
                               b->spec.type_count);
  int want[] = {ctx->kernel->input_types[0], TD_STRING, (int)b->spec.types[i]};
  TD_TRY(td_check_signature(ctx, want, 3, NULL, 0));
  return insert_many(b, (int)i, td_in(ctx, 1), td_in(ctx, 2));
}

static td_status compute_insert(td_kernel_ctx *ctx) {
  barrier *b;
  TD_TRY(find(ctx, &b));
  td_status s = insert_into(b, ctx);
  td_resource_release(b);
  return s;
}

typedef struct take_state {
  bool allow_small;
} take_state;

static td_status create_take(td_kernel_builder *b, void *state) {
  int64_t ms;
  TD_TRY(td_attr_int(b->node, "timeout_ms", &ms));
  if (ms != -1) return td_invalid_argument("Timeout not supported yet.");
  return td_attr_bool(b->node, "allow_small_batch", &((take_state *)state)->allow_small);
}

static void compute_take(td_kernel_ctx *ctx) {
  const take_state *st = ctx->state;
  barrier *b = NULL;
  int32_t n = 0;
  td_status s = td_check_scalar(td_in(ctx, 1), "num_elements");
  if (!s) s = find(ctx, &b);
  if (!s) {
    n = *TD_DATA(td_in(ctx, 1), int32_t);
    s = plan_take(b, st->allow_small, &n);
  }
  if (s)
    td_kernel_done(ctx, s);
  else
    td_queue_dequeue_many(b->ready, ctx, n, st->allow_small);
  td_resource_release(b);
}

static td_status create_close(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "cancel_pending_enqueues", state);
}

static td_status compute_close(td_kernel_ctx *ctx) {
  barrier *b;
  TD_TRY(find(ctx, &b));
  td_status s = close_barrier(b, *(const bool *)ctx->state);
  td_resource_release(b);
  return s;
}

static td_status out_size(td_kernel_ctx *ctx, bool ready) {
  barrier *b;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_TRY(find(ctx, &b));
  pthread_mutex_lock(&b->lock);
  int64_t n = ready ? td_queue_size(b->ready) + b->moving : (int64_t)b->incomplete.count;
  pthread_mutex_unlock(&b->lock);
  *TD_DATA(out, int32_t) = (int32_t)TD_MIN(n, INT32_MAX);
  td_resource_release(b);
  return TD_STATUS_OK;
}

static td_status compute_ready(td_kernel_ctx *ctx) { return out_size(ctx, true); }
static td_status compute_incomplete(td_kernel_ctx *ctx) { return out_size(ctx, false); }

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {"Barrier", NULL, "handle: Ref(string)",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; container: string = ''; "
     "shared_name: string = ''",
     TD_OP_STATEFUL},
    {"BarrierClose", "handle: Ref(string)", NULL, "cancel_pending_enqueues: bool = false", 0},
    {"BarrierIncompleteSize", "handle: Ref(string)", "size: int32", NULL, 0},
    {"BarrierInsertMany", "handle: Ref(string); keys: string; values: T", NULL, "T: type; component_index: int", 0},
    {"BarrierReadySize", "handle: Ref(string)", "size: int32", NULL, 0},
    {"BarrierTakeMany", "handle: Ref(string); num_elements: int32",
     "indices: int64; keys: string; values: component_types",
     "component_types: list(type) >= 1; allow_small_batch: bool = false; wait_for_incomplete: bool = false; "
     "timeout_ms: int = -1",
     0},
};

static const td_kernel_def kernels[] = {
    {.op = "Barrier",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(barrier_state),
     .create = create_barrier,
     .destroy = destroy_barrier,
     .compute = compute_barrier},
    {.op = "BarrierClose",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(bool),
     .create = create_close,
     .compute = compute_close},
    {.op = "BarrierIncompleteSize", .cost = TD_COST_CHEAP, .compute = compute_incomplete},
    {.op = "BarrierInsertMany", .state_size = sizeof(int64_t), .create = create_insert, .compute = compute_insert},
    {.op = "BarrierReadySize", .cost = TD_COST_CHEAP, .compute = compute_ready},
    {.op = "BarrierTakeMany",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(take_state),
     .create = create_take,
     .compute_async = compute_take},
};

TD_FAMILY(barrier, ops, kernels);

/* Ops on iterators (TensorFlow's iterator_ops). */
#include "base/mem.h"
#include "framework/device.h"
#include "ops/data/iterator_resource.h"
#include "ops/data/optional.h"
#include "ops/families.h"
#include "ops/handles.h"

/* ---- handles ---- */

static td_status create_named(td_kernel_builder *b, void *state) { return td_iterator_place_init(b, state); }
static void destroy_named(void *state) { td_iterator_place_deinit(state); }

static td_status compute_named(td_kernel_ctx *ctx) {
  TD_TRY(td_iterator_place_open(ctx->state));
  return td_iterator_place_out(ctx->state, ctx);
}

typedef struct typed_state {
  td_data_spec spec;
} typed_state;

static td_status create_typed(td_kernel_builder *b, void *state) {
  return td_data_spec_attr(b->node, "output_types", state);
}
static void destroy_typed(void *state) { td_data_spec_deinit(state); }

/* A variant that deletes nothing by itself: DeleteIterator names the iterator. */
static td_status out_deleter(td_kernel_ctx *ctx, int i) {
  td_tensor *t;
  if (ctx->kernel->output_count <= i) return TD_STATUS_OK;
  TD_TRY(td_optional_tensor(td_optional_create_none(), &t));
  td_out_set(ctx, i, t);
  return TD_STATUS_OK;
}

static td_status compute_anonymous(td_kernel_ctx *ctx) {
  static _Atomic uint64_t next; /* relaxed: numbers only have to differ */
  td_resource_mgr *m = ctx->device->resources;
  char *name = td_asprintf("AnonymousIterator%llu",
                           (unsigned long long)atomic_fetch_add_explicit(&next, 1, memory_order_relaxed));
  td_iterator_resource *r = td_iterator_resource_create(&((typed_state *)ctx->state)->spec);
  td_tensor *handle = NULL;
  td_status s = td_resource_add(m, TD_STR(""), td_str_of(name), &r->resource);
  if (!s) s = td_handle_create(ctx->device, TD_STR(""), td_str_of(name), &td_iterator_resource_type, &handle);
  if (!s) td_out_set(ctx, 0, handle);
  if (!s) s = out_deleter(ctx, 1);
  td_resource_release(r);
  td_free(name);
  return s;
}

static td_status compute_delete(td_kernel_ctx *ctx) {
  td_resource_handle *h;
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
  return td_resource_delete(ctx->device->resources, td_str_of(h->container), td_str_of(h->name),
                            &td_iterator_resource_type);
}

/* ---- initialising ---- */

static td_status compute_make(td_kernel_ctx *ctx) {
  td_dataset *d;
  td_iterator_resource *r;
  TD_TRY(td_in_dataset(ctx, 0, &d));
  TD_TRY(td_iterator_resource_find(td_in(ctx, 1), ctx->device, &r));
  td_status s = td_iterator_resource_set(r, d, ctx->step->pool);
  td_resource_release(r);
  return s;
}

/* ---- elements ---- */

typedef struct get_next {
  td_request request;
  td_kernel_ctx *ctx;
  bool as_optional;
} get_next;

static td_status out_optional(td_kernel_ctx *ctx, td_element *e) {
  td_tensor *t;
  td_optional *o = e ? td_optional_create(e->count, e->values) : td_optional_create_none();
  td_free(e);
  TD_TRY(td_optional_tensor(o, &t));
  td_out_set(ctx, 0, t);
  return TD_STATUS_OK;
}

static td_status out_components(td_kernel_ctx *ctx, td_element *e) {
  return e ? td_out_element(ctx, e, "iterator") : td_error(TD_OUT_OF_RANGE, "End of sequence");
}

static void next_done(td_request *r, td_status status, td_element *e) {
  get_next *g = TD_CONTAINER_OF(r, get_next, request);
  if (!status) status = g->as_optional ? out_optional(g->ctx, e) : out_components(g->ctx, e);
  td_kernel_done(g->ctx, status);
}

static void next_destroy(td_request *r) { td_free(TD_CONTAINER_OF(r, get_next, request)); }

static void start_next(td_kernel_ctx *ctx, bool as_optional) {
  td_iterator_resource *r = NULL;
  td_driver *d = NULL;
  td_status s = td_iterator_resource_find(td_in(ctx, 0), ctx->device, &r);
  if (!s) s = td_iterator_resource_driver(r, "GetNext", "getting the next element", &d);
  td_resource_release(r);
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  get_next *g = td_new(get_next);
  g->ctx = ctx;
  g->as_optional = as_optional;
  g->request = (td_request){.cancellation = ctx->step->cancellation, .done = next_done, .destroy = next_destroy};
  td_driver_next(d, &g->request);
  td_driver_release(d);
}

static void compute_next(td_kernel_ctx *ctx) { start_next(ctx, false); }
static void compute_next_as_optional(td_kernel_ctx *ctx) { start_next(ctx, true); }

/* ---- handles as strings ---- */

static td_status compute_to_string(td_kernel_ctx *ctx) {
  td_iterator_resource *r;
  td_resource_handle *h;
  if (td_in(ctx, 0)->rank) return td_invalid_argument("resource_handle must be a scalar");
  TD_TRY(td_iterator_resource_find(td_in(ctx, 0), ctx->device, &r));
  td_resource_release(r);
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
  return td_out_handle_text(ctx, 0, h);
}

static td_status check_from_string(td_kernel_ctx *ctx, const td_tensor *handle) {
  const td_data_spec *spec = ctx->state;
  td_resource_handle *h = TD_DATA(handle, td_resource_handle *)[0];
  td_iterator_resource *r;
  if (strcmp(h->device, ctx->device->name))
    return td_invalid_argument("Attempted create an iterator on device \"%s\" from handle defined on device \"%s\"",
                               ctx->device->name, h->device);
  TD_TRY(td_iterator_resource_find(handle, ctx->device, &r));
  td_status s = spec->width ? td_data_spec_check(spec, &r->spec) : TD_STATUS_OK;
  td_resource_release(r);
  return s;
}

static td_status compute_from_string(td_kernel_ctx *ctx) {
  td_tensor *handle;
  TD_TRY(td_in_handle_text(ctx, 0, &handle));
  td_status s = check_from_string(ctx, handle);
  if (s)
    td_tensor_release(handle);
  else
    td_out_set(ctx, 0, handle);
  return s;
}

static td_status compute_get_device(td_kernel_ctx *ctx) {
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  return td_string_set(TD_DATA(out, td_string), td_str_of(ctx->device->name));
}

/* ---- tables ---- */

#define TYPES          "output_types: list(type) >= 1; output_shapes: list(shape) >= 1"
#define OPTIONAL_TYPES "output_types: list(type) >= 0 = []; output_shapes: list(shape) >= 0 = []"
#define NAMED          "shared_name: string; container: string; " TYPES

static const td_op_spec ops[] = {
    {"AnonymousIterator", NULL, "handle: resource", TYPES, TD_OP_STATEFUL},
    {"AnonymousIteratorV2", NULL, "handle: resource; deleter: variant", TYPES, TD_OP_STATEFUL},
    {"AnonymousIteratorV3", NULL, "handle: resource", TYPES, TD_OP_STATEFUL},
    {"DeleteIterator", "handle: resource; deleter: variant", NULL, NULL, TD_OP_STATEFUL},
    {"ExperimentalIteratorGetDevice", "resource: resource", "device: string", NULL, TD_OP_STATEFUL},
    {"Iterator", NULL, "handle: resource", NAMED, TD_OP_STATEFUL},
    {"IteratorFromStringHandle", "string_handle: string", "resource_handle: resource", OPTIONAL_TYPES, TD_OP_STATEFUL},
    {"IteratorFromStringHandleV2", "string_handle: string", "resource_handle: resource", OPTIONAL_TYPES,
     TD_OP_STATEFUL},
    {"IteratorGetDevice", "resource: resource", "device: string", NULL, TD_OP_STATEFUL},
    {"IteratorGetNext", "iterator: resource", "components: output_types", TYPES, TD_OP_STATEFUL},
    {"IteratorGetNextAsOptional", "iterator: resource", "optional: variant", TYPES, TD_OP_STATEFUL},
    {"IteratorGetNextSync", "iterator: resource", "components: output_types", TYPES, TD_OP_STATEFUL},
    {"IteratorToStringHandle", "resource_handle: resource", "string_handle: string", NULL, TD_OP_STATEFUL},
    {"IteratorV2", NULL, "handle: resource", NAMED, TD_OP_STATEFUL},
    {"MakeIterator", "dataset: variant; iterator: resource", NULL, NULL, TD_OP_STATEFUL},
};

#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }
#define TYPED(name, fn)                                                                           \
  {                                                                                               \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(typed_state), .create = create_typed, \
    .destroy = destroy_typed, .compute = fn                                                       \
  }
#define NAMED_KERNEL(name)                                                                              \
  {                                                                                                     \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(td_iterator_place), .create = create_named, \
    .destroy = destroy_named, .compute = compute_named                                                  \
  }

static const td_kernel_def kernels[] = {
    TYPED("AnonymousIterator", compute_anonymous),
    TYPED("AnonymousIteratorV2", compute_anonymous),
    TYPED("AnonymousIteratorV3", compute_anonymous),
    PLAIN("DeleteIterator", compute_delete),
    PLAIN("ExperimentalIteratorGetDevice", compute_get_device),
    NAMED_KERNEL("Iterator"),
    TYPED("IteratorFromStringHandle", compute_from_string),
    TYPED("IteratorFromStringHandleV2", compute_from_string),
    PLAIN("IteratorGetDevice", compute_get_device),
    {.op = "IteratorGetNext", .cost = TD_COST_CHEAP, .compute_async = compute_next},
    {.op = "IteratorGetNextAsOptional", .cost = TD_COST_CHEAP, .compute_async = compute_next_as_optional},
    {.op = "IteratorGetNextSync", .cost = TD_COST_CHEAP, .compute_async = compute_next},
    PLAIN("IteratorToStringHandle", compute_to_string),
    NAMED_KERNEL("IteratorV2"),
    PLAIN("MakeIterator", compute_make),
};

TD_FAMILY(iterator_ops, ops, kernels);

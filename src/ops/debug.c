/* The debugger's ops (TensorFlow's debug_ops): Copy and CopyHost take a snapshot of what is watched, DebugIdentity,
 * DebugNanCount and DebugNumericSummary publish it, or a digest of it, to debug URLs. */
#include "framework/debug.h"

#include <math.h>

#include "base/mem.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "tensor/number.h"

enum { INLINE_BYTES = 32 * 1024 }; /* digests of larger tensors are made on the pool */

/* ---- Copy, CopyHost ---- */

typedef struct copy_spec {
  td_str url, watch;
  bool is_gated;
} copy_spec;

typedef struct copy_state {
  td_arena arena;
  copy_spec *specs;
  size_t count;
} copy_state;

/* Each spec is "<debug op>;<url>;<0 or 1: gated>". */
static td_status create_copy(td_kernel_builder *b, void *state) {
  copy_state *st = state;
  const Pb__AttrValue__ListValue *list;
  td_str tensor;
  TD_TRY(td_attr_str(b->node, "tensor_name", &tensor));
  TD_TRY(td_attr_list(b->node, "debug_ops_spec", &list));
  st->specs = td_arena_array(&st->arena, copy_spec, list->n_s + 1);
  for (size_t i = 0; i < list->n_s; i++) {
    td_str spec = td_str_n(list->s[i].data, list->s[i].len), rest = spec;
    td_str op = td_str_split(&rest, ';'), url = td_str_split(&rest, ';'), gate = td_str_split(&rest, ';');
    if (!gate.data || rest.data)
      return td_internal("Unexpected number of semicolons in debug_ops_spec element: %.*s", TD_STR_ARG(spec));
    td_str watch =
        td_str_of(td_arena_printf(&st->arena, "%.*s:%.*s", TD_STR_ARG(tensor), (int)op.size, op.data ? op.data : ""));
    st->specs[st->count++] = (copy_spec){td_arena_str(&st->arena, url), watch, td_str_is(gate, "1")};
  }
  return TD_STATUS_OK;
}

static void destroy_copy(void *state) { td_arena_deinit(&((copy_state *)state)->arena); }

/* Whether anybody looks at the copy. */
static bool copy_is_wanted(td_kernel_ctx *ctx) {
  const copy_state *st = ctx->state;
  td_debug_sink *sink = ctx->step->debug;
  for (size_t i = 0; i < st->count; i++)
    if (!st->specs[i].is_gated || !sink || sink->ops->is_open(sink, st->specs[i].url, st->specs[i].watch)) return true;
  return false;
}

static td_status copy_variable(td_kernel_ctx *ctx) {
  td_variable *v = td_in_ref(ctx, 0);
  td_tensor *value;
  TD_TRY(td_variable_read(v, &value));
  if (!value) {
    TD_TRY(td_tensor_create_valueless(v->dtype, v->declared_rank, v->declared_dims, &value));
  } else if (copy_is_wanted(ctx) && td_dtype_is_pod((td_dtype)value->dtype)) {
    td_tensor *copy;
    td_status s = td_tensor_copy(value, &copy);
    td_tensor_release(value);
    if (s) return s;
    value = copy;
  }
  td_out_set(ctx, 0, value);
  return TD_STATUS_OK;
}

/* A value may alias a variable that is updated in place later: the debug ops are to see it as it is now. */
static td_status compute_copy(td_kernel_ctx *ctx) {
  if (ctx->is_ref) return copy_variable(ctx);
  td_tensor *t = td_in(ctx, 0), *copy;
  if (!td_dtype_is_pod((td_dtype)t->dtype) || !copy_is_wanted(ctx)) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  TD_TRY(td_tensor_copy(t, &copy));
  td_out_set(ctx, 0, copy);
  return TD_STATUS_OK;
}

/* ---- what all debug ops share ---- */

typedef struct debug_state {
  td_arena arena;
  td_debug_key key;
  td_str *urls;
  size_t url_count;
  bool is_gated;
  float lower_bound, upper_bound; /* DebugNumericSummary */
  bool mute_if_healthy;
} debug_state;

static td_status parse_tensor_name(debug_state *st, td_str name) {
  td_str rest = name, node = td_str_split(&rest, ':'), slot = rest;
  int64_t number = 0;
  if (slot.data && memchr(slot.data, ':', slot.size))
    return td_invalid_argument("Failed to parse tensor name: \"%.*s\"", TD_STR_ARG(name));
  if (slot.data && (!td_str_to_i64(slot, &number) || number < INT32_MIN || number > INT32_MAX))
    return td_invalid_argument("Invalid string value for output_slot: \"%.*s\"", TD_STR_ARG(slot));
  st->key.node = td_arena_str(&st->arena, node);
  st->key.slot = (int32_t)number;
  return TD_STATUS_OK;
}

static td_status create_debug(td_kernel_builder *b, void *state) {
  debug_state *st = state;
  const Pb__AttrValue__ListValue *urls;
  td_str device, tensor;
  TD_TRY(td_attr_list(b->node, "debug_urls", &urls));
  TD_TRY(td_attr_bool(b->node, "gated_grpc", &st->is_gated));
  TD_TRY(td_attr_str(b->node, "device_name", &device));
  TD_TRY(td_attr_str(b->node, "tensor_name", &tensor));
  st->urls = td_arena_array(&st->arena, td_str, urls->n_s + 1);
  for (size_t i = 0; i < urls->n_s; i++)
    st->urls[st->url_count++] = td_arena_str(&st->arena, td_str_n(urls->s[i].data, urls->s[i].len));
  TD_TRY(parse_tensor_name(st, tensor));
  td_debug_key *k = &st->key;
  k->device = td_arena_str(&st->arena, device);
  k->op = td_arena_str(&st->arena, b->node->op);
  k->watch = td_str_of(td_arena_printf(&st->arena, "%.*s:%d:%.*s", TD_STR_ARG(k->node), k->slot, TD_STR_ARG(k->op)));
  return TD_STATUS_OK;
}

static td_status create_summary(td_kernel_builder *b, void *state) {
  debug_state *st = state;
  TD_TRY(create_debug(b, state));
  TD_TRY(td_attr_float(b->node, "lower_bound", &st->lower_bound));
  TD_TRY(td_attr_float(b->node, "upper_bound", &st->upper_bound));
  return td_attr_bool(b->node, "mute_if_healthy", &st->mute_if_healthy);
}

static void destroy_debug(void *state) { td_arena_deinit(&((debug_state *)state)->arena); }

/* False: no listener wants this watch, and nothing need be computed. */
static bool gate_is_open(td_kernel_ctx *ctx) {
  const debug_state *st = ctx->state;
  td_debug_sink *sink = ctx->step->debug;
  if (!st->is_gated || !sink) return true;
  for (size_t i = 0; i < st->url_count; i++)
    if (sink->ops->is_open(sink, st->urls[i], st->key.watch)) return true;
  return false;
}

/* What a closed gate leaves: nothing, in the shape [0]. */
static void end_empty(td_kernel_ctx *ctx) {
  td_tensor *out;
  td_kernel_done(ctx, td_out_alloc_dims(ctx, 0, 1, (const int64_t[]){0}, &out));
}

typedef struct publication {
  td_debug_publication base;
  td_kernel_ctx *ctx;
} publication;

static void published(td_debug_publication *base, td_status status) {
  publication *p = TD_CONTAINER_OF(base, publication, base);
  td_kernel_ctx *ctx = p->ctx;
  td_free(p);
  td_kernel_done(ctx, status);
}

/* Publishes output 0, then ends the run. */
static void publish_output(td_kernel_ctx *ctx) {
  const debug_state *st = ctx->state;
  td_debug_sink *sink = ctx->step->debug;
  if (!st->url_count) {
    td_kernel_done(ctx, TD_STATUS_OK);
    return;
  }
  if (!sink) {
    td_kernel_done(ctx, td_failed_precondition("%.*s has debug URLs, but its graph is not run under the debugger",
                                               TD_STR_ARG(ctx->kernel->name)));
    return;
  }
  publication *p = td_new(publication);
  p->ctx = ctx;
  p->base = (td_debug_publication){.key = &st->key,
                                   .tensor = ctx->out[0].tensor,
                                   .urls = st->urls,
                                   .url_count = st->url_count,
                                   .is_gated = st->is_gated,
                                   .done = published};
  sink->ops->publish(sink, &p->base);
}

/* ---- DebugIdentity ---- */

static td_status take_input(td_kernel_ctx *ctx, td_tensor **out) {
  if (!ctx->is_ref) {
    *out = td_tensor_retain(td_in(ctx, 0));
    return TD_STATUS_OK;
  }
  td_variable *v = td_in_ref(ctx, 0);
  TD_TRY(td_variable_read(v, out));
  return *out ? TD_STATUS_OK : td_tensor_create_valueless(v->dtype, v->declared_rank, v->declared_dims, out);
}

static void identity_async(td_kernel_ctx *ctx) {
  if (!gate_is_open(ctx)) {
    end_empty(ctx);
    return;
  }
  td_tensor *t;
  td_status s = take_input(ctx, &t);
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  td_out_set(ctx, 0, t);
  publish_output(ctx);
}

/* ---- digests ---- */

static td_status nan_count(td_kernel_ctx *ctx, const td_tensor *t) {
  td_tensor *out;
  int64_t count = 0;
  for (int64_t i = 0; t->has_value && i < t->count; i++) count += isnan(td_tensor_real_at(t, i));
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, (const int64_t[]){1}, &out));
  TD_DATA(out, int64_t)[0] = count;
  return TD_STATUS_OK;
}

/* The summary's elements; behind them come the sizes of the dimensions. */
enum {
  IS_INITIALIZED,
  ELEMENTS,
  NANS,
  NEGATIVE_INFS, /* with what lies at or below lower_bound */
  NEGATIVES,
  ZEROS,
  POSITIVES,
  POSITIVE_INFS, /* with what lies at or above upper_bound */
  MINIMUM,       /* these four: of what is finite */
  MAXIMUM,
  MEAN,
  VARIANCE,
  DTYPE,
  RANK,
  SUMMARY_SIZE,
};

static int class_of(const debug_state *st, double x) {
  if (isnan(x)) return NANS;
  if (isinf(x)) return x < 0 ? NEGATIVE_INFS : POSITIVE_INFS;
  if (!isinf(st->lower_bound) && x <= st->lower_bound) return NEGATIVE_INFS;
  if (!isinf(st->upper_bound) && x >= st->upper_bound) return POSITIVE_INFS;
  return x < 0 ? NEGATIVES : x > 0 ? POSITIVES : ZEROS;
}

static void summarize(const debug_state *st, const td_tensor *t, double *to) {
  double sum = 0, finite = 0, squares = 0;
  for (int64_t i = 0; i < t->count; i++) {
    double x = td_tensor_real_at(t, i);
    to[class_of(st, x)]++;
    if (!isfinite(x)) continue;
    if (x < to[MINIMUM]) to[MINIMUM] = x;
    if (x > to[MAXIMUM]) to[MAXIMUM] = x;
    finite++;
    sum += x;
  }
  if (finite == 0) return;
  to[MEAN] = sum / finite;
  for (int64_t i = 0; i < t->count; i++) {
    double x = td_tensor_real_at(t, i);
    if (isfinite(x)) squares += (x - to[MEAN]) * (x - to[MEAN]);
  }
  to[VARIANCE] = squares / finite;
}

static td_status numeric_summary(td_kernel_ctx *ctx, const td_tensor *t) {
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, (const int64_t[]){SUMMARY_SIZE + t->rank}, &out));
  double *to = TD_DATA(out, double);
  for (int i = 0; i < SUMMARY_SIZE; i++) to[i] = 0;
  to[MINIMUM] = INFINITY;
  to[MAXIMUM] = -INFINITY;
  to[MEAN] = to[VARIANCE] = NAN;
  to[DTYPE] = t->dtype;
  to[RANK] = t->rank;
  for (int i = 0; i < t->rank; i++) to[SUMMARY_SIZE + i] = (double)t->dims[i];
  if (!t->has_value) return TD_STATUS_OK;
  to[IS_INITIALIZED] = 1;
  to[ELEMENTS] = (double)t->count;
  summarize(ctx->state, t, to);
  return TD_STATUS_OK;
}

static bool is_healthy(const td_tensor *summary) {
  const double *s = TD_DATA(summary, double);
  return s[NANS] == 0 && s[NEGATIVE_INFS] == 0 && s[POSITIVE_INFS] == 0;
}

typedef td_status (*digest_fn)(td_kernel_ctx *ctx, const td_tensor *t);

typedef struct digestion {
  td_work work;
  td_kernel_ctx *ctx;
  digest_fn make;
  td_tensor *input;
} digestion;

static void run_digest(td_kernel_ctx *ctx, digest_fn make, td_tensor *t) {
  const debug_state *st = ctx->state;
  td_status s = make(ctx, t);
  td_tensor_release(t);
  if (s || (st->mute_if_healthy && is_healthy(ctx->out[0].tensor)))
    td_kernel_done(ctx, s);
  else
    publish_output(ctx);
}

static void digest_on_pool(td_work *w) {
  digestion d = *TD_CONTAINER_OF(w, digestion, work);
  td_free(TD_CONTAINER_OF(w, digestion, work));
  run_digest(d.ctx, d.make, d.input);
}

static void digest(td_kernel_ctx *ctx, digest_fn make) {
  if (!gate_is_open(ctx)) {
    end_empty(ctx);
    return;
  }
  td_tensor *t;
  td_status s = take_input(ctx, &t);
  if (s) {
    td_kernel_done(ctx, s);
  } else if (t->size < INLINE_BYTES || !ctx->step->pool) {
    run_digest(ctx, make, t);
  } else {
    digestion *d = td_new(digestion);
    *d = (digestion){{.run = digest_on_pool}, ctx, make, t};
    td_pool_submit(ctx->step->pool, &d->work);
  }
}

static void nan_count_async(td_kernel_ctx *ctx) { digest(ctx, nan_count); }
static void summary_async(td_kernel_ctx *ctx) { digest(ctx, numeric_summary); }

/* ---- tables ---- */

#define COPY(op)                                                                                   \
  {                                                                                                \
    .name = op, .inputs = "input: T", .outputs = "output: T", .flags = TD_OP_ALLOWS_UNINITIALIZED, \
    .attrs = "T: type; tensor_name: string = ''; debug_ops_spec: list(string) = []"                \
  }
#define URLS "device_name: string = ''; tensor_name: string = ''; debug_urls: list(string) = []"

static const td_op_spec ops[] = {
    COPY("Copy"),
    COPY("CopyHost"),
    {.name = "DebugIdentity",
     .inputs = "input: T",
     .outputs = "output: T",
     .attrs = "T: type; " URLS "; gated_grpc: bool = false",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
    {.name = "DebugNanCount",
     .inputs = "input: T",
     .outputs = "output: int64",
     .attrs = "T: type; " URLS "; gated_grpc: bool = false",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
    {.name = "DebugNumericSummary",
     .inputs = "input: T",
     .outputs = "output: double",
     .attrs = "T: type; " URLS "; lower_bound: float = -inf; upper_bound: float = inf; mute_if_healthy: bool = false; "
              "gated_grpc: bool = false",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
};

#define COPY_KERNEL(op_name)                                                                              \
  {                                                                                                       \
    .op = op_name, .flags = TD_KERNEL_TAKES_REF, .state_size = sizeof(copy_state), .create = create_copy, \
    .destroy = destroy_copy, .compute = compute_copy                                                      \
  }
#define DEBUG_KERNEL(debug_op, make, fn)                                                           \
  .op = debug_op, .flags = TD_KERNEL_TAKES_REF, .state_size = sizeof(debug_state), .create = make, \
  .destroy = destroy_debug, .compute_async = fn

#define NAN_TYPES (TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE))
#define SUMMARY_TYPES                                                                                        \
  (NAN_TYPES | TD_SET(TD_BOOL) | TD_SET(TD_INT8) | TD_SET(TD_UINT8) | TD_SET(TD_INT16) | TD_SET(TD_UINT16) | \
   TD_SET(TD_INT32) | TD_SET(TD_INT64))

static const td_kernel_def kernels[] = {
    COPY_KERNEL("Copy"),
    COPY_KERNEL("CopyHost"),
    {DEBUG_KERNEL("DebugIdentity", create_debug, identity_async)},
    {DEBUG_KERNEL("DebugNanCount", create_debug, nan_count_async), .types = {{"T", NAN_TYPES}}},
    {DEBUG_KERNEL("DebugNumericSummary", create_summary, summary_async), .types = {{"T", SUMMARY_TYPES}}},
};

TD_FAMILY(debug, ops, kernels);

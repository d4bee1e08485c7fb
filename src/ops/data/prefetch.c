/* Datasets that work ahead: Prefetch, ParallelMap. */
#include "ops/data/prefetch.h"
#include "base/mem.h"
#include "ops/data/ahead.h"
#include "ops/families.h"

enum { AUTOTUNE = -1, AUTOTUNED_BUFFER = 4, MAX_PARALLEL = 1024 };

typedef struct working {
  td_dataset base;
  td_captured f; /* ParallelMap */
  int64_t limit; /* AUTOTUNE: as many as the pool has threads, or AUTOTUNED_BUFFER */
  bool any_order, preserves_cardinality;
} working;

typedef struct working_iterator {
  td_iterator base;
  td_ahead *ahead;
} working_iterator;

static void working_destroy(td_dataset *d) { td_captured_deinit(&((working *)d)->f); }

static td_status working_start(td_iterator *it) {
  working *d = (working *)it->dataset;
  bool calls = d->f.runtime;
  td_pool *pool = td_driver_pool(it->driver);
  td_ahead_options o = {.source = it->dataset->inputs[0],
                        .owner = it->dataset,
                        .f = calls ? &d->f : NULL,
                        .limit = d->limit,
                        .consumer = it,
                        .any_order = d->any_order};
  if (d->limit == AUTOTUNE) o.limit = calls ? td_pool_threads(pool) : AUTOTUNED_BUFFER;
  if (calls) o.limit = TD_MIN(o.limit, MAX_PARALLEL);
  return td_ahead_create(&o, pool, &((working_iterator *)it)->ahead);
}

static void working_stop(td_iterator *it) { td_ahead_stop(((working_iterator *)it)->ahead); }

static td_next working_advance(td_iterator *it) {
  td_element *e;
  td_status s;
  if (td_ahead_next(((working_iterator *)it)->ahead, it->driver, &e, &s) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
  if (!s) return td_iterator_give(it, e);
  const working *d = (const working *)it->dataset;
  return d->f.runtime ? td_iterator_call_failed(it, s, d->preserves_cardinality) : td_iterator_fail(it, s);
}

static td_status working_archive(td_iterator *it, td_archive *a) {
  return td_ahead_archive(((working_iterator *)it)->ahead, a);
}

#define WORKING(label)                                                                                            \
  {                                                                                                               \
    .name = label, .iterator_size = sizeof(working_iterator), .start = working_start, .advance = working_advance, \
    .stop = working_stop, .archive = working_archive, .destroy = working_destroy,                                 \
    .cardinality = td_dataset_input_cardinality                                                                   \
  }
static const td_dataset_ops prefetch_ops = WORKING("Prefetch"), parallel_map_ops = WORKING("ParallelMap");

td_status td_prefetch_create(td_dataset *input, int64_t limit, td_dataset **out) {
  TD_TRY(td_dataset_create(&prefetch_ops, sizeof(working), &input->spec, &input, 1, out));
  ((working *)*out)->limit = limit;
  return TD_STATUS_OK;
}

td_ahead *td_prefetch_ahead(td_iterator *it) {
  return it->dataset->ops == &prefetch_ops ? ((working_iterator *)it)->ahead : NULL;
}

static td_status compute_prefetch(td_kernel_ctx *ctx) {
  td_dataset *input, *d = NULL;
  int64_t size;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_in_int(ctx, 1, "buffer_size", &size));
  if (size < AUTOTUNE)
    return td_invalid_argument("buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning");
  if (!size) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_status s = td_prefetch_create(input, size, &d);
  return td_out_dataset(ctx, s, d);
}

typedef struct parallel_kernel {
  td_dataset_kernel common; /* first */
  bool any_order, preserves_cardinality;
} parallel_kernel;

static td_status create_parallel(td_kernel_builder *b, void *state) {
  parallel_kernel *k = state;
  td_str deterministic;
  TD_TRY(td_dataset_kernel_create_f(b, state));
  TD_TRY(td_attr_bool(b->node, "preserve_cardinality", &k->preserves_cardinality));
  if (td_attr_find(b->node, "sloppy")) return td_attr_bool(b->node, "sloppy", &k->any_order);
  TD_TRY(td_attr_str(b->node, "deterministic", &deterministic));
  k->any_order = td_str_is(deterministic, "false");
  return TD_STATUS_OK;
}

static td_status check_parallel(int64_t calls) {
  return calls > 0 || calls == AUTOTUNE ? TD_STATUS_OK
                                        : td_invalid_argument("num_parallel_calls must be greater than zero.");
}

td_status td_parallel_map_create(td_kernel_ctx *ctx, td_dataset *input, const td_data_spec *spec, int64_t calls,
                                 bool any_order, bool preserves_cardinality, td_dataset **out) {
  TD_TRY(check_parallel(calls));
  TD_TRY(td_dataset_create(&parallel_map_ops, sizeof(working), spec, &input, 1, out));
  working *d = (working *)*out;
  d->limit = calls;
  d->any_order = any_order;
  d->preserves_cardinality = preserves_cardinality;
  td_captured_init(&d->f, ctx, 0);
  return TD_STATUS_OK;
}

static td_status compute_parallel(td_kernel_ctx *ctx) {
  const parallel_kernel *k = ctx->state;
  td_dataset *input, *d = NULL;
  int64_t calls;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_in_int(ctx, ctx->kernel->input_count - 1, "num_parallel_calls", &calls));
  td_status s = td_parallel_map_create(ctx, input, &k->common.spec, calls, k->any_order, k->preserves_cardinality, &d);
  return td_out_dataset(ctx, s, d);
}

static const td_op_spec ops[] = {
    {"ParallelMapDataset", "input_dataset: variant; other_arguments: Targuments; num_parallel_calls: int32",
     "handle: variant",
     "f: func; Targuments: list(type) >= 0; " TD_DATASET_TYPES
     "; use_inter_op_parallelism: bool = true; sloppy: bool = false; preserve_cardinality: bool = "
     "false" TD_DATASET_META,
     0},
    {"ParallelMapDatasetV2", "input_dataset: variant; other_arguments: Targuments; num_parallel_calls: int64",
     "handle: variant",
     "f: func; Targuments: list(type) >= 0; " TD_DATASET_TYPES
     "; use_inter_op_parallelism: bool = true; deterministic: string = 'default'; preserve_cardinality: bool = false; "
     "use_unbounded_threadpool: bool = false" TD_DATASET_META,
     0},
    {"PrefetchDataset", "input_dataset: variant; buffer_size: int64", "handle: variant",
     TD_DATASET_TYPES "; slack_period: int = 0; legacy_autotune: bool = true; buffer_size_min: int = 0" TD_DATASET_META,
     0},
};

#define PARALLEL(name)                                                                                   \
  {                                                                                                      \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(parallel_kernel), .create = create_parallel, \
    .destroy = td_dataset_kernel_destroy, .compute = compute_parallel                                    \
  }

static const td_kernel_def kernels[] = {
    PARALLEL("ParallelMapDataset"),
    PARALLEL("ParallelMapDatasetV2"),
    TD_DATASET_KERNEL("PrefetchDataset", td_dataset_kernel_create, compute_prefetch),
};

TD_FAMILY(data_prefetch, ops, kernels);

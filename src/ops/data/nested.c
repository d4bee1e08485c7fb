/* Datasets of the elements of datasets that a function makes: FlatMap, Interleave and its parallel kinds.
 *
 * All are one algorithm: `cycle` open datasets take turns of `block` elements; an exhausted one is replaced by the next
 * that the function makes. FlatMap has a cycle of one. The parallel kinds open the whole cycle at once and fetch ahead
 * from each, which does not change the order. */
#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/data/prefetch.h"
#include "ops/families.h"

enum { AUTOTUNE = -1, MAX_OPEN = 1 << 16, MAX_AHEAD = 1024 };

typedef struct nested {
  td_dataset base;
  td_captured f;
  int64_t cycle, block; /* block 0: no limit */
  int64_t ahead;        /* elements fetched ahead from each open dataset; 0: none */
} nested;

/* A place in the cycle: an open dataset, or, where a cycle is opened ahead, what went wrong there, to be told in turn.
 */
typedef struct place {
  td_iterator *it;
  td_element *args; /* what the function made its dataset of */
  td_strbuf later;  /* not `it`, but its state: as after a checkpoint. The function makes the dataset again */
  td_status error;
} place;

typedef struct nested_iterator {
  td_iterator base;
  td_iterator *input;
  td_data_call call;
  place *open;
  int64_t allocated, seen, open_count;
  int64_t at, given; /* place in the cycle, elements of this turn */
  bool input_ended, is_filled;
  td_element *args; /* of the call */
  enum { CHOOSE, PULLED_INPUT, CALLED, PULLED_ELEMENT } phase;
} nested_iterator;

static void nested_destroy(td_dataset *d) { td_captured_deinit(&((nested *)d)->f); }

static td_status nested_start(td_iterator *it) {
  ((nested_iterator *)it)->is_filled = !((nested *)it->dataset)->ahead;
  return td_iterator_create_input(it, 0, &((nested_iterator *)it)->input);
}

static void nested_stop(td_iterator *it) {
  nested_iterator *n = (nested_iterator *)it;
  for (int64_t i = 0; i < n->seen; i++) {
    td_iterator_destroy(n->open[i].it);
    td_element_free(n->open[i].args);
    td_strbuf_deinit(&n->open[i].later);
    td_status_free(n->open[i].error);
  }
  td_free(n->open);
  td_iterator_destroy(n->input);
  td_element_free(n->args);
  td_data_call_deinit(&n->call);
}

static void next_place(td_iterator *it) {
  nested_iterator *n = (nested_iterator *)it;
  int64_t cycle = ((nested *)it->dataset)->cycle;
  if (n->input_ended) cycle = TD_MIN(cycle, TD_MAX(n->seen, 1)); /* places never used stay empty */
  n->given = 0;
  n->at = n->at + 1 >= cycle ? 0 : n->at + 1;
}

/* The present place, which may be a new one. */
static td_status use_place(nested_iterator *n, place **out) {
  if (n->at >= MAX_OPEN) return td_resource_exhausted("More than %d datasets of a cycle are open", MAX_OPEN);
  while (n->seen <= n->at) {
    TD_GROW(n->open, n->seen, n->allocated);
    n->open[n->seen++] = (place){0};
  }
  *out = &n->open[n->at];
  return TD_STATUS_OK;
}

/* The dataset that the function returned, opened at the present place. */
static td_status open_result(td_iterator *it, const td_element *e) {
  nested_iterator *n = (nested_iterator *)it;
  const nested *d = (const nested *)it->dataset;
  td_dataset *made, *source;
  place *at;
  TD_TRY(use_place(n, &at));
  if (e->count != 1 || e->values[0]->dtype != TD_VARIANT || e->values[0]->rank)
    return td_invalid_argument("Function must return a single scalar of dtype DT_VARIANT.");
  TD_TRY(td_dataset_of(e->values[0], &made));
  TD_TRY(td_data_spec_check(&d->base.spec, &made->spec));
  if (d->ahead)
    TD_TRY(td_prefetch_create(made, d->ahead, &source));
  else
    source = td_dataset_retain(made);
  td_status s = td_iterator_create(source, it, it->driver, &at->it);
  td_dataset_release(source);
  if (s) return s;
  if (at->later.size) {
    s = td_archive_apply(&at->later, at->it);
    if (!s) return s;
    td_iterator_destroy(at->it);
    at->it = NULL;
    return s;
  }
  at->args = n->args;
  n->args = NULL;
  n->open_count++;
  if (d->ahead) td_ahead_begin(td_prefetch_ahead(at->it));
  return TD_STATUS_OK;
}

/* While the first cycle is being opened: goes on to the next place, leaving an error here for its turn. */
static td_status fill_next(td_iterator *it, td_status s) {
  nested_iterator *n = (nested_iterator *)it;
  place *at;
  if (n->is_filled) return s;
  if (s) {
    td_status full = use_place(n, &at);
    if (full) {
      td_status_free(s);
      return full;
    }
    at->error = s;
    n->open_count++;
  }
  n->is_filled = n->at + 1 >= ((nested *)it->dataset)->cycle;
  n->at = n->is_filled ? 0 : n->at + 1;
  return TD_STATUS_OK;
}

static td_status called(td_iterator *it) {
  nested_iterator *n = (nested_iterator *)it;
  td_status s;
  td_element *e = td_data_call_take(&n->call, &s);
  if (!s) s = open_result(it, e);
  td_element_free(e);
  td_element_free(n->args);
  n->args = NULL;
  return fill_next(it, s);
}

static void close_place(nested_iterator *n, place *p) {
  td_iterator_destroy(p->it);
  td_element_free(p->args);
  td_strbuf_deinit(&p->later);
  td_status_free(p->error);
  *p = (place){0};
  n->open_count--;
}

/* Calls the function for an element, which it takes. */
static td_next call(td_iterator *it, td_element *args) {
  nested_iterator *n = (nested_iterator *)it;
  n->phase = CALLED;
  return td_iterator_call(it, &n->call, &((const nested *)it->dataset)->f, args);
}

/* A result to give now: true. */
static bool element_pulled(td_iterator *it) {
  nested_iterator *n = (nested_iterator *)it;
  td_iterator *from = n->open[n->at].it;
  if (!td_iterator_ended(from) || from->status) {
    bool is_element = !from->status;
    td_iterator_pass(it, from);
    int64_t block = ((nested *)it->dataset)->block;
    if (is_element && block && ++n->given >= block) next_place(it);
    return true;
  }
  close_place(n, &n->open[n->at]);
  if (((nested *)it->dataset)->cycle > 1) next_place(it);
  return false;
}

static td_next nested_advance(td_iterator *it) {
  nested_iterator *n = (nested_iterator *)it;
  td_status s;
  for (;;) {
    switch (n->phase) {
      case CHOOSE:
        if (n->is_filled && n->at < n->seen && n->open[n->at].error) {
          s = n->open[n->at].error;
          n->open[n->at].error = NULL;
          close_place(n, &n->open[n->at]);
          next_place(it);
          return td_iterator_call_failed(it, s, false);
        }
        if (n->is_filled && n->at < n->seen && n->open[n->at].it) {
          n->phase = PULLED_ELEMENT;
          return td_iterator_pull(it, n->open[n->at].it);
        }
        if (n->is_filled && n->at < n->seen && n->open[n->at].args) {
          if (call(it, td_element_copy(n->open[n->at].args)) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
          break;
        }
        if (!n->input_ended) {
          n->phase = PULLED_INPUT;
          return td_iterator_pull(it, n->input);
        }
        if (!n->open_count) return td_iterator_give(it, NULL);
        next_place(it);
        break;
      case PULLED_INPUT:
        n->phase = CHOOSE;
        if (n->input->status) {
          s = n->input->status;
          n->input->status = NULL;
          s = fill_next(it, s);
          if (s) return td_iterator_fail(it, s);
          break;
        }
        if (td_iterator_ended(n->input)) {
          n->input_ended = true;
          if (!n->is_filled) {
            n->is_filled = true;
            n->at = 0;
          }
          break;
        }
        n->args = td_iterator_take(n->input);
        if (call(it, td_element_copy(n->args)) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
        break;
      case CALLED:
        n->phase = CHOOSE;
        s = called(it);
        if (!s) break;
        if (n->at < n->seen && n->open[n->at].args && !n->open[n->at].it) { /* it cannot be made again */
          close_place(n, &n->open[n->at]);
          next_place(it);
        }
        return td_iterator_call_failed(it, s, false);
      case PULLED_ELEMENT:
        n->phase = CHOOSE;
        if (element_pulled(it)) return TD_NEXT_READY;
        break;
    }
  }
}

static td_status archive_place(td_iterator *it, td_archive *a, place *p) {
  TD_TRY(td_archive_error(a, &p->error));
  TD_TRY(td_archive_element(a, &it->dataset->inputs[0]->spec, &p->args));
  if (p->args) TD_TRY(td_archive_later(a, p->it, &p->later));
  if (!a->is_writing && p->args && !p->later.size) return td_archive_invalid("an open dataset has no state");
  if (!a->is_writing && (p->error || p->args)) ((nested_iterator *)it)->open_count++;
  return TD_STATUS_OK;
}

static td_status nested_archive(td_iterator *it, td_archive *a) {
  nested_iterator *n = (nested_iterator *)it;
  const nested *d = (const nested *)it->dataset;
  size_t seen = (size_t)n->seen;
  TD_TRY(td_archive_int(a, &n->at, 0, TD_MIN(d->cycle, (int64_t)MAX_OPEN) - 1));
  TD_TRY(td_archive_int(a, &n->given, 0, d->block));
  TD_TRY(td_archive_bool(a, &n->input_ended));
  TD_TRY(td_archive_bool(a, &n->is_filled));
  TD_TRY(td_archive_count(a, &seen));
  if ((int64_t)seen > (n->is_filled ? TD_MIN(d->cycle, (int64_t)MAX_OPEN) : 0))
    return td_archive_invalid("too many datasets are open");
  for (size_t i = 0; i < seen; i++) {
    if (!a->is_writing) {
      TD_GROW(n->open, n->seen, n->allocated);
      n->open[n->seen++] = (place){0};
    }
    TD_TRY(archive_place(it, a, &n->open[i]));
  }
  TD_TRY(td_archive_input(a, it, 0, &n->input));
  return n->input ? TD_STATUS_OK : td_archive_invalid("an input is missing");
}

#define NESTED(label)                                                                                          \
  {                                                                                                            \
    .name = label, .iterator_size = sizeof(nested_iterator), .start = nested_start, .advance = nested_advance, \
    .stop = nested_stop, .archive = nested_archive, .destroy = nested_destroy                                  \
  }
static const td_dataset_ops flat_map_ops = NESTED("FlatMap"), interleave_ops = NESTED("Interleave"),
                            parallel_ops = NESTED("ParallelInterleave");

/* ---- kernels ---- */

static td_status make(td_kernel_ctx *ctx, const td_dataset_ops *ops, int64_t cycle, int64_t block, int64_t ahead) {
  const td_dataset_kernel *k = ctx->state;
  td_dataset *input, *d;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_dataset_create(ops, sizeof(nested), &k->spec, &input, 1, &d));
  nested *n = (nested *)d;
  n->cycle = cycle;
  n->block = block;
  n->ahead = ahead;
  td_captured_init(&n->f, ctx, 0);
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

static td_status compute_flat_map(td_kernel_ctx *ctx) { return make(ctx, &flat_map_ops, 1, 0, 0); }

/* The arguments follow the captured ones. */
static td_status cycle_and_block(td_kernel_ctx *ctx, int64_t *cycle, int64_t *block, int *rest) {
  int at = ((td_dataset_kernel *)ctx->state)->functions[0].end;
  TD_TRY(td_in_int(ctx, at, "cycle_length", cycle));
  if (*cycle == AUTOTUNE) *cycle = td_ctx_threads(ctx);
  if (*cycle <= 0) return td_invalid_argument("cycle_length must be greater than zero.");
  TD_TRY(td_in_int(ctx, at + 1, "block_length", block));
  if (*block <= 0) return td_invalid_argument("block_length must be greater than zero.");
  *rest = at + 2;
  return TD_STATUS_OK;
}

static td_status compute_interleave(td_kernel_ctx *ctx) {
  int64_t cycle, block;
  int rest;
  TD_TRY(cycle_and_block(ctx, &cycle, &block, &rest));
  return make(ctx, &interleave_ops, cycle, block, 0);
}

static td_status check_calls(td_kernel_ctx *ctx, int64_t cycle) {
  int64_t calls;
  TD_TRY(td_in_int(ctx, ctx->kernel->input_count - 1, "num_parallel_calls", &calls));
  if (calls <= 0 && calls != AUTOTUNE) return td_invalid_argument("num_parallel_calls must be greater than zero.");
  if (calls > cycle && td_str_ends(ctx->kernel->op, TD_STR("V2")))
    return td_invalid_argument("num_parallel_calls must less than or equal to cycle_length.");
  return TD_STATUS_OK;
}

static td_status compute_parallel(td_kernel_ctx *ctx) {
  int64_t cycle, block;
  int rest;
  TD_TRY(cycle_and_block(ctx, &cycle, &block, &rest));
  TD_TRY(check_calls(ctx, cycle));
  return make(ctx, &parallel_ops, cycle, block, TD_MIN(block, MAX_AHEAD));
}

/* The first generation, and V4: with sizes of buffers. */
static td_status compute_buffered(td_kernel_ctx *ctx) {
  int64_t cycle, block, buffer, prefetch;
  int rest;
  TD_TRY(cycle_and_block(ctx, &cycle, &block, &rest));
  if (td_in(ctx, rest)->dtype == TD_BOOL) rest++; /* sloppy */
  TD_TRY(td_in_int(ctx, rest, "buffer_output_elements", &buffer));
  TD_TRY(td_in_int(ctx, rest + 1, "prefetch_input_elements", &prefetch));
  bool is_v4 = ctx->kernel->input_count > rest + 2;
  if (is_v4 ? buffer < AUTOTUNE : buffer <= 0 && buffer != AUTOTUNE)
    return td_invalid_argument("`buffer_output_elements` must be > 0");
  if (prefetch < AUTOTUNE) return td_invalid_argument("`prefetch_input_elements` must be >= 0");
  if (buffer <= 0) buffer = block;
  return make(ctx, &parallel_ops, cycle, block, TD_MIN(buffer, MAX_AHEAD));
}

#define F_ATTRS "f: func; Targuments: list(type) >= 0; " TD_DATASET_TYPES
#define D_ATTRS "f: func; deterministic: string = 'default'; Targuments: list(type) >= 0; " TD_DATASET_TYPES
#define IN      "input_dataset: variant; other_arguments: Targuments"
#define CYCLE   IN "; cycle_length: int64; block_length: int64"
#define BUFFERS "; buffer_output_elements: int64; prefetch_input_elements: int64"

static const td_op_spec ops[] = {
    {"ExperimentalParallelInterleaveDataset", CYCLE "; sloppy: bool" BUFFERS, "handle: variant", F_ATTRS, 0},
    {"FlatMapDataset", IN, "handle: variant", F_ATTRS TD_DATASET_META, 0},
    {"InterleaveDataset", CYCLE, "handle: variant", F_ATTRS TD_DATASET_META, 0},
    {"LegacyParallelInterleaveDatasetV2", CYCLE BUFFERS, "handle: variant", D_ATTRS TD_DATASET_META, 0},
    {"ParallelInterleaveDataset", CYCLE "; sloppy: bool" BUFFERS, "handle: variant", F_ATTRS TD_DATASET_META, 0},
    {"ParallelInterleaveDatasetV2", CYCLE "; num_parallel_calls: int64", "handle: variant",
     F_ATTRS "; sloppy: bool = false" TD_DATASET_META, 0},
    {"ParallelInterleaveDatasetV3", CYCLE "; num_parallel_calls: int64", "handle: variant", D_ATTRS TD_DATASET_META, 0},
    {"ParallelInterleaveDatasetV4", CYCLE BUFFERS "; num_parallel_calls: int64", "handle: variant",
     D_ATTRS TD_DATASET_META, 0},
};

#define KERNEL(name, fn) TD_DATASET_KERNEL(name, td_dataset_kernel_create_f, fn)

static const td_kernel_def kernels[] = {
    KERNEL("ExperimentalParallelInterleaveDataset", compute_buffered),
    KERNEL("FlatMapDataset", compute_flat_map),
    KERNEL("InterleaveDataset", compute_interleave),
    KERNEL("LegacyParallelInterleaveDatasetV2", compute_buffered),
    KERNEL("ParallelInterleaveDataset", compute_buffered),
    KERNEL("ParallelInterleaveDatasetV2", compute_parallel),
    KERNEL("ParallelInterleaveDatasetV3", compute_parallel),
    KERNEL("ParallelInterleaveDatasetV4", compute_buffered),
};

TD_FAMILY(data_nested, ops, kernels);

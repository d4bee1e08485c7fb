/* Rebatch: every batch cut into a given number of smaller ones, the last of which may be smaller or empty. */
#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/families.h"

typedef struct rebatched {
  td_dataset base;
  int64_t parts;
} rebatched;

typedef struct rebatch_iterator {
  td_iterator base;
  td_iterator *input;
  td_element *batch;
  int64_t next; /* part of it */
  bool is_asked;
} rebatch_iterator;

static td_status rebatch_start(td_iterator *it) {
  return td_iterator_create_input(it, 0, &((rebatch_iterator *)it)->input);
}

static void rebatch_stop(td_iterator *it) {
  td_element_free(((rebatch_iterator *)it)->batch);
  td_iterator_destroy(((rebatch_iterator *)it)->input);
}

/* Part `k` of the rows of `t`; components of one element may differ in their number. */
static td_status part(td_tensor *t, int64_t k, int64_t parts, td_tensor **out) {
  if (!t->rank) return td_invalid_argument("Cannot rebatch dataset: All components must have at least one dimension.");
  int64_t rows = t->dims[0], each = rows / parts + (rows % parts != 0), begin;
  if (__builtin_mul_overflow(each, k, &begin) || begin > rows) begin = rows;
  *out = td_tensor_slice(t, begin, begin + TD_MIN(each, rows - begin));
  return TD_STATUS_OK;
}

static td_next rebatch_advance(td_iterator *it) {
  rebatch_iterator *r = (rebatch_iterator *)it;
  int64_t parts = ((rebatched *)it->dataset)->parts;
  if (r->is_asked) {
    r->is_asked = false;
    if (td_iterator_ended(r->input)) return td_iterator_pass(it, r->input);
    r->batch = td_iterator_take(r->input);
    r->next = 0;
  }
  if (!r->batch) {
    r->is_asked = true;
    return td_iterator_pull(it, r->input);
  }
  td_element *e = td_element_create(r->batch->count);
  td_status s = TD_STATUS_OK;
  for (int i = 0; i < e->count && !s; i++) s = part(r->batch->values[i], r->next, parts, &e->values[i]);
  if (++r->next >= parts || s) {
    td_element_free(r->batch);
    r->batch = NULL;
  }
  if (!s) return td_iterator_give(it, e);
  td_element_free(e);
  return td_iterator_fail(it, s);
}

static td_status rebatch_archive(td_iterator *it, td_archive *a) {
  rebatch_iterator *r = (rebatch_iterator *)it;
  TD_TRY(td_archive_element(a, &it->dataset->inputs[0]->spec, &r->batch));
  TD_TRY(td_archive_int(a, &r->next, 0, ((rebatched *)it->dataset)->parts));
  return td_archive_input(a, it, 0, &r->input);
}

static int64_t rebatch_cardinality(const td_dataset *d) {
  int64_t n = td_dataset_input_cardinality(d), all;
  if (n < 0) return n;
  return __builtin_mul_overflow(n, ((const rebatched *)d)->parts, &all) ? TD_CARDINALITY_INFINITE : all;
}

static const td_dataset_ops rebatch_ops = {.name = "Rebatch",
                                           .iterator_size = sizeof(rebatch_iterator),
                                           .start = rebatch_start,
                                           .advance = rebatch_advance,
                                           .stop = rebatch_stop,
                                           .archive = rebatch_archive,
                                           .cardinality = rebatch_cardinality};

static td_status compute(td_kernel_ctx *ctx) {
  td_dataset *input, *d;
  int64_t parts;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_in_int(ctx, 1, "num_replicas", &parts));
  if (parts <= 0) return td_invalid_argument("num_replicas must be greater than zero, got %lld", (long long)parts);
  TD_TRY(td_dataset_create(&rebatch_ops, sizeof(rebatched), &((td_dataset_kernel *)ctx->state)->spec, &input, 1, &d));
  ((rebatched *)d)->parts = parts;
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

#define REBATCH(name)                                                       \
  {                                                                         \
    name, "input_dataset: variant; num_replicas: int64", "handle: variant", \
        TD_DATASET_TYPES "; use_fallback: bool = true", 0                   \
  }

static const td_op_spec ops[] = {REBATCH("ExperimentalRebatchDataset"), REBATCH("RebatchDataset")};

static const td_kernel_def kernels[] = {
    TD_DATASET_KERNEL("ExperimentalRebatchDataset", td_dataset_kernel_create, compute),
    TD_DATASET_KERNEL("RebatchDataset", td_dataset_kernel_create, compute),
};

TD_FAMILY(data_rebatch, ops, kernels);

/* Datasets that choose and order elements of others: Take, Skip, Repeat, Concatenate, Zip, Shard. */
#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/families.h"

/* Most keep one number, or two. */
typedef struct counted {
  td_dataset base;
  int64_t count, index;
} counted;

static const td_dataset_ops repeat_ops; /* may have no input at the moment */

typedef struct single { /* an iterator over one input */
  td_iterator base;
  td_iterator *input; /* NULL: none at the moment */
  int64_t done;
  bool is_asked, has_given;
} single;

static td_status single_start(td_iterator *it) { return td_iterator_create_input(it, 0, &((single *)it)->input); }
static void single_stop(td_iterator *it) { td_iterator_destroy(((single *)it)->input); }

static td_status single_archive(td_iterator *it, td_archive *a) {
  single *s = (single *)it;
  TD_TRY(td_archive_int(a, &s->done, 0, INT64_MAX));
  TD_TRY(td_archive_bool(a, &s->has_given));
  TD_TRY(td_archive_input(a, it, 0, &s->input));
  return s->input || it->dataset->ops == &repeat_ops ? TD_STATUS_OK : td_archive_invalid("an input is missing");
}

static td_status make_counted(td_kernel_ctx *ctx, const td_dataset_ops *ops, int64_t count, int64_t index) {
  const td_dataset_kernel *k = ctx->state;
  td_dataset *input, *d;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_dataset_create(ops, sizeof(counted), &k->spec, &input, 1, &d));
  ((counted *)d)->count = count;
  ((counted *)d)->index = index;
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

/* `nothing`: the count that makes no difference (below 0: any such), for which the input is handed on. */
static td_status compute_counted(td_kernel_ctx *ctx, const td_dataset_ops *ops, int64_t nothing) {
  int64_t count;
  td_dataset *input;
  TD_TRY(td_in_int(ctx, 1, "count", &count));
  if (nothing < 0 ? count >= 0 : count != nothing) return make_counted(ctx, ops, count, 0);
  TD_TRY(td_in_dataset(ctx, 0, &input));
  td_out_forward(ctx, 0, 0);
  return TD_STATUS_OK;
}

/* ---- Take ---- */

static td_next take_advance(td_iterator *it) {
  single *s = (single *)it;
  int64_t count = ((counted *)it->dataset)->count;
  if (!s->is_asked) {
    if (count >= 0 && s->done >= count) return td_iterator_give(it, NULL);
    s->is_asked = true;
    return td_iterator_pull(it, s->input);
  }
  s->is_asked = false;
  if (!td_iterator_ended(s->input)) s->done++;
  return td_iterator_pass(it, s->input);
}

static int64_t take_cardinality(const td_dataset *d) {
  int64_t n = td_dataset_input_cardinality(d), count = ((const counted *)d)->count;
  if (n == TD_CARDINALITY_UNKNOWN) return count ? n : 0;
  if (n == TD_CARDINALITY_INFINITE) return count < 0 ? n : count;
  return count < 0 ? n : TD_MIN(n, count);
}

static const td_dataset_ops take_ops = {.name = "Take",
                                        .iterator_size = sizeof(single),
                                        .start = single_start,
                                        .advance = take_advance,
                                        .stop = single_stop,
                                        .archive = single_archive,
                                        .cardinality = take_cardinality};

static td_status compute_take(td_kernel_ctx *ctx) { return compute_counted(ctx, &take_ops, -1); }

/* ---- Skip ---- */

static td_next skip_advance(td_iterator *it) {
  single *s = (single *)it;
  int64_t count = ((counted *)it->dataset)->count;
  if (count < 0) return td_iterator_give(it, NULL);
  if (s->is_asked) {
    if (td_iterator_ended(s->input) || s->done >= count) {
      s->is_asked = false;
      return td_iterator_pass(it, s->input);
    }
    s->done++;
    td_element_free(td_iterator_take(s->input));
  }
  s->is_asked = true;
  return td_iterator_pull(it, s->input);
}

static int64_t skip_cardinality(const td_dataset *d) {
  int64_t n = td_dataset_input_cardinality(d), count = ((const counted *)d)->count;
  if (n < 0) return count < 0 ? 0 : n;
  return count < 0 ? 0 : TD_MAX(n - count, 0);
}

static const td_dataset_ops skip_ops = {.name = "Skip",
                                        .iterator_size = sizeof(single),
                                        .start = single_start,
                                        .advance = skip_advance,
                                        .stop = single_stop,
                                        .archive = single_archive,
                                        .cardinality = skip_cardinality};

static td_status compute_skip(td_kernel_ctx *ctx) { return compute_counted(ctx, &skip_ops, 0); }

/* ---- Repeat: for ever if the count is negative, but not over an empty input ---- */

static td_next repeat_advance(td_iterator *it) {
  single *s = (single *)it;
  int64_t count = ((counted *)it->dataset)->count;
  if (s->is_asked) {
    s->is_asked = false;
    if (!td_iterator_ended(s->input) || s->input->status) {
      s->has_given = true;
      return td_iterator_pass(it, s->input);
    }
    s->done++;
    td_iterator_destroy(s->input);
    s->input = NULL;
    if (count < 0 && !s->has_given) return td_iterator_give(it, NULL);
    s->has_given = false;
  }
  if (count >= 0 && s->done >= count) return td_iterator_give(it, NULL);
  if (!s->input) {
    td_status status = single_start(it);
    if (status) return td_iterator_fail(it, status);
  }
  s->is_asked = true;
  return td_iterator_pull(it, s->input);
}

static int64_t repeat_cardinality(const td_dataset *d) {
  int64_t n = td_dataset_input_cardinality(d), count = ((const counted *)d)->count, all;
  if (!n || !count) return 0;
  if (count < 0) return n > 0 ? TD_CARDINALITY_INFINITE : n == TD_CARDINALITY_INFINITE ? n : TD_CARDINALITY_INFINITE;
  if (n < 0) return n;
  return __builtin_mul_overflow(n, count, &all) ? TD_CARDINALITY_INFINITE : all;
}

static const td_dataset_ops repeat_ops = {.name = "Repeat",
                                          .iterator_size = sizeof(single),
                                          .start = single_start,
                                          .advance = repeat_advance,
                                          .stop = single_stop,
                                          .archive = single_archive,
                                          .cardinality = repeat_cardinality};

static td_status compute_repeat(td_kernel_ctx *ctx) { return compute_counted(ctx, &repeat_ops, 1); }

/* ---- Shard: every count-th element ---- */

static td_next shard_advance(td_iterator *it) {
  single *s = (single *)it;
  const counted *d = (const counted *)it->dataset;
  if (s->is_asked) {
    if (td_iterator_ended(s->input) || s->done++ % d->count == d->index) {
      s->is_asked = false;
      return td_iterator_pass(it, s->input);
    }
    td_element_free(td_iterator_take(s->input));
  }
  s->is_asked = true;
  return td_iterator_pull(it, s->input);
}

static int64_t shard_cardinality(const td_dataset *d) {
  int64_t n = td_dataset_input_cardinality(d);
  const counted *c = (const counted *)d;
  return n < 0 ? n : n / c->count + (c->index < n % c->count);
}

static const td_dataset_ops shard_ops = {.name = "Shard",
                                         .iterator_size = sizeof(single),
                                         .start = single_start,
                                         .advance = shard_advance,
                                         .stop = single_stop,
                                         .archive = single_archive,
                                         .cardinality = shard_cardinality};

static td_status compute_shard(td_kernel_ctx *ctx) {
  int64_t shards, index;
  TD_TRY(td_in_int(ctx, 1, "num_shards", &shards));
  TD_TRY(td_in_int(ctx, 2, "index", &index));
  if (shards <= 0)
    return td_invalid_argument("Number of shards must be greater than zero (currently num_shards = %lld).",
                               (long long)shards);
  if (index < 0 || index >= shards)
    return td_invalid_argument("Index must be between 0 and %lld (currently index = %lld, num_shards = %lld).",
                               (long long)shards - 1, (long long)index, (long long)shards);
  return make_counted(ctx, &shard_ops, shards, index);
}

/* ---- Concatenate, Zip ---- */

typedef struct several {
  td_iterator base;
  td_iterator **inputs;
  int at;
  bool is_asked;
} several;

static td_status several_start(td_iterator *it) {
  several *s = (several *)it;
  s->inputs = td_new_array(td_iterator *, (size_t)it->dataset->input_count);
  for (int i = 0; i < it->dataset->input_count; i++) TD_TRY(td_iterator_create_input(it, i, &s->inputs[i]));
  return TD_STATUS_OK;
}

static void several_stop(td_iterator *it) {
  several *s = (several *)it;
  for (int i = 0; s->inputs && i < it->dataset->input_count; i++) td_iterator_destroy(s->inputs[i]);
  td_free(s->inputs);
}

static td_status several_archive(td_iterator *it, td_archive *a) {
  several *s = (several *)it;
  int64_t at = s->at;
  TD_TRY(td_archive_int(a, &at, 0, it->dataset->input_count));
  s->at = (int)at;
  for (int i = 0; i < it->dataset->input_count; i++) {
    TD_TRY(td_archive_input(a, it, i, &s->inputs[i]));
    if (!s->inputs[i]) return td_archive_invalid("an input is missing");
  }
  return TD_STATUS_OK;
}

static td_next concatenate_advance(td_iterator *it) {
  several *s = (several *)it;
  if (s->is_asked) {
    td_iterator *input = s->inputs[s->at];
    s->is_asked = false;
    if (!td_iterator_ended(input) || input->status) return td_iterator_pass(it, input);
    s->at++;
  }
  if (s->at >= it->dataset->input_count) return td_iterator_give(it, NULL);
  s->is_asked = true;
  return td_iterator_pull(it, s->inputs[s->at]);
}

static int64_t concatenate_cardinality(const td_dataset *d) {
  int64_t a = td_dataset_cardinality(d->inputs[0]), b = td_dataset_cardinality(d->inputs[1]), sum;
  if (a == TD_CARDINALITY_INFINITE || b == TD_CARDINALITY_INFINITE) return TD_CARDINALITY_INFINITE;
  if (a < 0 || b < 0) return TD_CARDINALITY_UNKNOWN;
  return __builtin_add_overflow(a, b, &sum) ? TD_CARDINALITY_INFINITE : sum;
}

static const td_dataset_ops concatenate_ops = {.name = "Concatenate",
                                               .iterator_size = sizeof(several),
                                               .start = several_start,
                                               .advance = concatenate_advance,
                                               .stop = several_stop,
                                               .archive = several_archive,
                                               .cardinality = concatenate_cardinality};

static td_status compute_concatenate(td_kernel_ctx *ctx) {
  const td_dataset_kernel *k = ctx->state;
  td_dataset *inputs[2], *d;
  TD_TRY(td_in_dataset(ctx, 0, &inputs[0]));
  TD_TRY(td_in_dataset(ctx, 1, &inputs[1]));
  const td_data_spec *a = &inputs[0]->spec, *b = &inputs[1]->spec;
  bool same = a->width == b->width;
  for (int i = 0; same && i < a->width; i++) same = a->types[i] == b->types[i];
  if (!same)
    return td_invalid_argument(
        "input dataset and dataset to concatenate have different output_types: %d and %d components", a->width,
        b->width);
  TD_TRY(td_dataset_create(&concatenate_ops, sizeof(td_dataset), &k->spec, inputs, 2, &d));
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

static td_next zip_end(td_iterator *it, td_next next) {
  several *s = (several *)it;
  for (int i = 0; i < it->dataset->input_count; i++) td_element_free(td_iterator_take(s->inputs[i]));
  s->at = 0;
  return next;
}

static td_next zip_advance(td_iterator *it) {
  several *s = (several *)it;
  if (s->is_asked) {
    td_iterator *input = s->inputs[s->at];
    s->is_asked = false;
    if (td_iterator_ended(input)) return zip_end(it, td_iterator_pass(it, input));
    s->at++;
  }
  if (s->at < it->dataset->input_count) {
    s->is_asked = true;
    return td_iterator_pull(it, s->inputs[s->at]);
  }
  td_element *e = td_element_create(it->dataset->spec.width);
  int n = 0;
  for (int i = 0; i < it->dataset->input_count; i++) {
    td_element *part = td_iterator_take(s->inputs[i]);
    for (int k = 0; k < part->count && n < e->count; k++) {
      e->values[n++] = part->values[k];
      part->values[k] = NULL;
    }
    td_element_free(part);
  }
  s->at = 0;
  return td_iterator_give(it, e);
}

static int64_t zip_cardinality(const td_dataset *d) {
  int64_t least = TD_CARDINALITY_INFINITE;
  for (int i = 0; i < d->input_count; i++) {
    int64_t n = td_dataset_cardinality(d->inputs[i]);
    if (n == TD_CARDINALITY_UNKNOWN) return n;
    if (n != TD_CARDINALITY_INFINITE) least = least == TD_CARDINALITY_INFINITE ? n : TD_MIN(n, least);
  }
  return least;
}

static const td_dataset_ops zip_ops = {.name = "Zip",
                                       .iterator_size = sizeof(several),
                                       .start = several_start,
                                       .advance = zip_advance,
                                       .stop = several_stop,
                                       .archive = several_archive,
                                       .cardinality = zip_cardinality};

static td_status compute_zip(td_kernel_ctx *ctx) {
  const td_dataset_kernel *k = ctx->state;
  int n = ctx->kernel->input_count, width = 0;
  td_dataset **inputs = td_new_array(td_dataset *, (size_t)n), *d = NULL;
  td_status s = TD_STATUS_OK;
  for (int i = 0; i < n && !s; i++) {
    s = td_in_dataset(ctx, i, &inputs[i]);
    if (!s) width += inputs[i]->spec.width;
  }
  if (!s && width != k->spec.width)
    s = td_invalid_argument("The zipped datasets have %d components, %d are expected", width, k->spec.width);
  if (!s) s = td_dataset_create(&zip_ops, sizeof(td_dataset), &k->spec, inputs, n, &d);
  td_free(inputs);
  return td_out_dataset(ctx, s, d);
}

#define COUNTED(name) \
  { name, "input_dataset: variant; count: int64", "handle: variant", TD_DATASET_TYPES TD_DATASET_META, 0 }

static const td_op_spec ops[] = {
    {"ConcatenateDataset", "input_dataset: variant; another_dataset: variant", "handle: variant",
     TD_DATASET_TYPES TD_DATASET_META, 0},
    COUNTED("RepeatDataset"),
    {"ShardDataset", "input_dataset: variant; num_shards: int64; index: int64", "handle: variant",
     "require_non_empty: bool = false; " TD_DATASET_TYPES TD_DATASET_META, 0},
    COUNTED("SkipDataset"),
    COUNTED("TakeDataset"),
    {"ZipDataset", "input_datasets: N * variant", "handle: variant", TD_DATASET_TYPES "; N: int >= 1" TD_DATASET_META,
     0},
};

static const td_kernel_def kernels[] = {
    TD_DATASET_KERNEL("ConcatenateDataset", td_dataset_kernel_create, compute_concatenate),
    TD_DATASET_KERNEL("RepeatDataset", td_dataset_kernel_create, compute_repeat),
    TD_DATASET_KERNEL("ShardDataset", td_dataset_kernel_create, compute_shard),
    TD_DATASET_KERNEL("SkipDataset", td_dataset_kernel_create, compute_skip),
    TD_DATASET_KERNEL("TakeDataset", td_dataset_kernel_create, compute_take),
    TD_DATASET_KERNEL("ZipDataset", td_dataset_kernel_create, compute_zip),
};

TD_FAMILY(data_select, ops, kernels);

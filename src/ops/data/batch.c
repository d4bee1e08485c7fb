/* Datasets that stack elements: Batch, PaddedBatch, MapAndBatch. */
#include <string.h>

#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/data/prefetch.h"
#include "ops/families.h"

typedef struct batched {
  td_dataset base;
  int64_t size;
  bool drops_remainder;
  td_element *padding;      /* PaddedBatch: a scalar a component; NULL: plain */
  td_partial_shape *shapes; /* PaddedBatch: of padded elements; -1: as large as the largest */
} batched;

typedef struct batch_iterator {
  td_iterator base;
  td_iterator *input;
  td_element **elements; /* collected so far */
  size_t count, capacity;
  size_t bytes;
  bool is_asked;
} batch_iterator;

static void batched_destroy(td_dataset *base) {
  batched *d = (batched *)base;
  td_element_free(d->padding);
  for (int i = 0; d->shapes && i < base->spec.width; i++) td_partial_shape_deinit(&d->shapes[i]);
  td_free(d->shapes);
}

static td_status batch_start(td_iterator *it) {
  return td_iterator_create_input(it, 0, &((batch_iterator *)it)->input);
}

static void drop(batch_iterator *b) {
  for (size_t i = 0; i < b->count; i++) td_element_free(b->elements[i]);
  b->count = b->bytes = 0;
}

static void batch_stop(td_iterator *it) {
  batch_iterator *b = (batch_iterator *)it;
  drop(b);
  td_free(b->elements);
  td_iterator_destroy(b->input);
}

/* ---- stacking component `i` ---- */

static td_status check_alike(const batch_iterator *b, int i) {
  const td_tensor *first = b->elements[0]->values[i];
  for (size_t k = 1; k < b->count; k++) {
    const td_tensor *t = b->elements[k]->values[i];
    if (t->dtype != first->dtype)
      return td_internal("Component %d of element %zu has type %s, the first one has %s", i, k, td_dtype_name(t->dtype),
                         td_dtype_name(first->dtype));
    if (td_tensor_same_shape(t, first)) continue;
    char *x = td_tensor_shape_text(first), *y = td_tensor_shape_text(t);
    td_status s = td_invalid_argument(
        "Cannot batch tensors with different shapes in component %d. First element had shape %s and element %zu had "
        "shape %s.",
        i, x, k, y);
    td_free(x);
    td_free(y);
    return s;
  }
  return TD_STATUS_OK;
}

static td_status stack(const batch_iterator *b, int i, td_tensor **out) {
  const td_tensor *first = b->elements[0]->values[i];
  td_shape shape;
  TD_TRY(check_alike(b, i));
  td_shape_vector(&shape, (int64_t)b->count);
  for (int d = 0; d < first->rank; d++) TD_TRY(td_shape_append(&shape, first->dims[d]));
  TD_TRY(td_tensor_create(first->dtype, &shape, out));
  for (size_t k = 0; k < b->count; k++)
    td_tensor_copy_elements(*out, (int64_t)k * first->count, b->elements[k]->values[i], 0, first->count);
  return TD_STATUS_OK;
}

/* ---- stacking with padding ---- */

static td_status padded_shape(const batch_iterator *b, int i, const td_partial_shape *want, td_shape *out) {
  td_shape_vector(out, (int64_t)b->count);
  for (int d = 0; d < want->rank; d++) TD_TRY(td_shape_append(out, TD_MAX(want->dims[d], 0)));
  for (size_t k = 0; k < b->count; k++) {
    const td_tensor *t = b->elements[k]->values[i];
    if (t->rank != want->rank)
      return td_invalid_argument(
          "All elements in a batch must have the same rank as the padded shape for component%d: expected rank %d but "
          "got element with rank %d",
          i, want->rank, t->rank);
    for (int d = 0; d < t->rank; d++) {
      if (want->dims[d] < 0)
        out->dims[d + 1] = TD_MAX(out->dims[d + 1], t->dims[d]);
      else if (t->dims[d] > want->dims[d])
        return td_error(TD_DATA_LOSS,
                        "Attempted to pad to a smaller size than the input element: component %d has size %lld in "
                        "dimension %d, the padded shape %lld",
                        i, (long long)t->dims[d], d, (long long)want->dims[d]);
    }
  }
  return TD_STATUS_OK;
}

static void fill(td_tensor *out, const td_tensor *value) {
  if (!out->count) return;
  td_tensor_copy_elements(out, 0, value, 0, 1);
  if (!td_dtype_in(out->dtype, TD_SET(TD_STRING) | TD_SET(TD_VARIANT) | TD_SET(TD_RESOURCE))) {
    size_t unit = value->size;
    for (size_t done = unit; done < out->size;) { /* doubling */
      size_t n = TD_MIN(done, out->size - done);
      memcpy((char *)out->data + done, out->data, n);
      done += n;
    }
    return;
  }
  for (int64_t k = 1; k < out->count; k++) td_tensor_copy_elements(out, k, value, 0, 1);
}

/* Copies `t` into the corner of row `k` of `out`. */
static void put_padded(td_tensor *out, int64_t k, const td_tensor *t) {
  if (!t->count) return;
  int64_t row = out->count / out->dims[0], run = t->rank ? t->dims[t->rank - 1] : 1, index[TD_MAX_RANK] = {0};
  for (int64_t from = 0; from < t->count; from += run) {
    int64_t to = 0;
    for (int d = 0; d < t->rank; d++) to = to * out->dims[d + 1] + index[d];
    td_tensor_copy_elements(out, k * row + to, t, from, run);
    for (int d = t->rank - 2; d >= 0 && ++index[d] == t->dims[d]; d--) index[d] = 0;
  }
}

static td_status stack_padded(const batch_iterator *b, int i, const batched *d, td_tensor **out) {
  td_shape shape;
  const td_tensor *value = d->padding->values[i];
  TD_TRY(padded_shape(b, i, &d->shapes[i], &shape));
  for (size_t k = 0; k < b->count; k++)
    if (b->elements[k]->values[i]->dtype != value->dtype)
      return td_internal("Component %d of element %zu has type %s, its padding value %s", i, k,
                         td_dtype_name(b->elements[k]->values[i]->dtype), td_dtype_name(value->dtype));
  TD_TRY(td_tensor_create(value->dtype, &shape, out));
  fill(*out, value);
  for (size_t k = 0; k < b->count; k++) put_padded(*out, (int64_t)k, b->elements[k]->values[i]);
  return TD_STATUS_OK;
}

/* ---- the iterator ---- */

static td_next give_batch(td_iterator *it) {
  batch_iterator *b = (batch_iterator *)it;
  const batched *d = (const batched *)it->dataset;
  td_element *e = td_element_create(b->elements[0]->count);
  td_status s = TD_STATUS_OK;
  for (size_t k = 1; k < b->count && !s; k++)
    if (b->elements[k]->count != e->count) s = td_internal("Elements of a batch differ in their number of components");
  if (!s && d->padding && e->count != it->dataset->spec.width)
    s = td_internal("Elements of a padded batch have %d components, %d are declared", e->count,
                    it->dataset->spec.width);
  for (int i = 0; i < e->count && !s; i++)
    s = d->padding ? stack_padded(b, i, d, &e->values[i]) : stack(b, i, &e->values[i]);
  drop(b);
  if (!s) return td_iterator_give(it, e);
  td_element_free(e);
  return td_iterator_fail(it, s);
}

static void collect(batch_iterator *b, td_element *e) {
  TD_GROW(b->elements, b->count, b->capacity);
  b->elements[b->count++] = e;
  for (int i = 0; i < e->count; i++) b->bytes += e->values[i]->size;
}

static td_next batch_advance(td_iterator *it) {
  batch_iterator *b = (batch_iterator *)it;
  const batched *d = (const batched *)it->dataset;
  bool is_over = false;
  if (b->is_asked) {
    b->is_asked = false;
    is_over = td_iterator_ended(b->input);
    if (is_over && (b->input->status || !b->count || d->drops_remainder)) {
      drop(b);
      return td_iterator_pass(it, b->input);
    }
    if (!is_over) collect(b, td_iterator_take(b->input));
  }
  if (!is_over && (int64_t)b->count < d->size) {
    b->is_asked = true;
    return td_iterator_pull(it, b->input);
  }
  /* the last, partial batch is small: only whole ones may go to another thread, and come here again */
  if (!is_over && td_iterator_costs(it, b->bytes) == TD_NEXT_HOP) return TD_NEXT_HOP;
  return give_batch(it);
}

static td_status batch_archive(td_iterator *it, td_archive *a) {
  batch_iterator *b = (batch_iterator *)it; /* what a cancelled request had collected was given to the one that saves */
  return td_archive_input(a, it, 0, &b->input);
}

static int64_t batch_cardinality(const td_dataset *base) {
  const batched *d = (const batched *)base;
  int64_t n = td_dataset_input_cardinality(base);
  return n < 0 ? n : n / d->size + (!d->drops_remainder && n % d->size);
}

#define BATCHED(label)                                                                                         \
  {                                                                                                            \
    .name = label, .iterator_size = sizeof(batch_iterator), .start = batch_start, .advance = batch_advance,    \
    .stop = batch_stop, .archive = batch_archive, .destroy = batched_destroy, .cardinality = batch_cardinality \
  }
static const td_dataset_ops batch_ops = BATCHED("Batch"), padded_ops = BATCHED("PaddedBatch");

/* ---- kernels ---- */

static td_status make(td_kernel_ctx *ctx, const td_dataset_ops *ops, td_dataset *input, int64_t size, bool drops,
                      batched **out) {
  td_dataset *d;
  TD_TRY(td_dataset_create(ops, sizeof(batched), &((td_dataset_kernel *)ctx->state)->spec, &input, 1, &d));
  *out = (batched *)d;
  (*out)->size = size;
  (*out)->drops_remainder = drops;
  return TD_STATUS_OK;
}

static td_status in_size(td_kernel_ctx *ctx, int i, const char *text, int64_t *out) {
  TD_TRY(td_in_int(ctx, i, "batch_size", out));
  return *out > 0 ? TD_STATUS_OK : td_invalid_argument("%s", text);
}

static td_status compute_batch(td_kernel_ctx *ctx) {
  td_dataset *input;
  batched *d;
  int64_t size;
  bool drops = false;
  int last = ctx->kernel->input_count - 1; /* ParallelBatch has a number of calls before it */
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(in_size(ctx, 1, "Batch size must be greater than zero.", &size));
  if (last > 1) TD_TRY(td_in_bool(ctx, last, "drop_remainder", &drops));
  TD_TRY(make(ctx, &batch_ops, input, size, drops, &d));
  return td_out_dataset(ctx, TD_STATUS_OK, &d->base);
}

static td_status create_padded(td_kernel_builder *b, void *state) {
  return td_dataset_kernel_init(b, state, "Toutput_types");
}

static td_status read_padding(td_kernel_ctx *ctx, batched *d) {
  int width = d->base.spec.width;
  d->shapes = td_new_array(td_partial_shape, (size_t)width);
  d->padding = td_element_create(width);
  for (int i = 0; i < width; i++) {
    td_tensor *shape = td_in(ctx, 2 + i), *value = td_in(ctx, 2 + width + i);
    td_shape dims;
    TD_TRY(td_check_vector(shape, "padded shape"));
    TD_TRY(td_shape_from_tensor(shape, true, &dims));
    d->shapes[i] = td_partial_shape_make(dims.rank, dims.dims);
    if (value->rank) return td_invalid_argument("All padding values must be scalars; but at component %d is not", i);
    d->padding->values[i] = td_tensor_retain(value);
  }
  return TD_STATUS_OK;
}

static td_status compute_padded(td_kernel_ctx *ctx) {
  int width = ((td_dataset_kernel *)ctx->state)->spec.width;
  td_dataset *input;
  batched *d;
  int64_t size;
  bool drops = false;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(in_size(ctx, 1, "Batch size must be greater than zero.", &size));
  int shapes = ctx->kernel->input_count - 2 - width - td_str_ends(ctx->kernel->op, TD_STR("V2"));
  if (shapes != input->spec.width || shapes != width)
    return td_invalid_argument(
        "Number of padded shapes (%d) must match the number of components in the input dataset's elements (%d)", shapes,
        input->spec.width);
  if (ctx->kernel->input_count > 2 + 2 * width) TD_TRY(td_in_bool(ctx, 2 + 2 * width, "drop_remainder", &drops));
  for (int i = 0; i < width; i++)
    if (td_in_type(ctx, 2 + width + i) != input->spec.types[i])
      return td_invalid_argument("Mismatched type between padding value %d and input dataset's component %d: %s vs. %s",
                                 i, i, td_dtype_name(td_in_type(ctx, 2 + width + i)),
                                 td_dtype_name(input->spec.types[i]));
  TD_TRY(make(ctx, &padded_ops, input, size, drops, &d));
  return td_out_dataset(ctx, read_padding(ctx, d), &d->base);
}

typedef struct fused_kernel {
  td_dataset_kernel common; /* first */
  bool preserves_cardinality;
} fused_kernel;

static td_status create_fused(td_kernel_builder *b, void *state) {
  TD_TRY(td_dataset_kernel_create_f(b, state));
  return td_attr_bool(b->node, "preserve_cardinality", &((fused_kernel *)state)->preserves_cardinality);
}

/* A batch of what a parallel map gives; the map's elements have one dimension less than is declared here. */
static td_status compute_fused(td_kernel_ctx *ctx) {
  const fused_kernel *k = ctx->state;
  int at = k->common.functions[0].end;
  td_dataset *input, *mapped;
  batched *d = NULL;
  int64_t size, calls;
  bool drops;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(in_size(ctx, at, "batch_size must be greater than zero.", &size));
  TD_TRY(td_in_int(ctx, at + 1, "num_parallel_calls", &calls));
  TD_TRY(td_in_bool(ctx, at + 2, "drop_remainder", &drops));
  td_data_spec spec;
  td_data_spec_copy(&k->common.spec, &spec);
  for (int i = 0; i < spec.width; i++) {
    if (spec.shapes[i].rank <= 0) continue;
    spec.shapes[i].rank--;
    memmove(spec.shapes[i].dims, spec.shapes[i].dims + 1, (size_t)spec.shapes[i].rank * sizeof(int64_t));
  }
  td_status s = td_parallel_map_create(ctx, input, &spec, calls, false, k->preserves_cardinality, &mapped);
  td_data_spec_deinit(&spec);
  TD_TRY(s);
  s = make(ctx, &batch_ops, mapped, size, drops, &d);
  td_dataset_release(mapped);
  return td_out_dataset(ctx, s, d ? &d->base : NULL);
}

#define BATCH_ATTRS  TD_DATASET_TYPES TD_DATASET_META
#define PADDED_IN    "input_dataset: variant; batch_size: int64; padded_shapes: N * int64; padding_values: Toutput_types"
#define PADDED_ATTRS "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1; N: int >= 1" TD_DATASET_META
#define FUSED_IN                                                                                        \
  "input_dataset: variant; other_arguments: Targuments; batch_size: int64; num_parallel_calls: int64; " \
  "drop_remainder: "                                                                                    \
  "bool"
#define FUSED_ATTRS "f: func; Targuments: list(type) >= 0; " TD_DATASET_TYPES "; preserve_cardinality: bool = false"

static const td_op_spec ops[] = {
    {"BatchDataset", "input_dataset: variant; batch_size: int64", "handle: variant", BATCH_ATTRS, 0},
    {"BatchDatasetV2", "input_dataset: variant; batch_size: int64; drop_remainder: bool", "handle: variant",
     "parallel_copy: bool = false; " BATCH_ATTRS, 0},
    {"ExperimentalMapAndBatchDataset", FUSED_IN, "handle: variant", FUSED_ATTRS, 0},
    {"MapAndBatchDataset", FUSED_IN, "handle: variant", FUSED_ATTRS TD_DATASET_META, 0},
    {"PaddedBatchDataset", PADDED_IN, "handle: variant", PADDED_ATTRS, 0},
    {"PaddedBatchDatasetV2", PADDED_IN "; drop_remainder: bool", "handle: variant",
     "parallel_copy: bool = false; " PADDED_ATTRS, 0},
    {"ParallelBatchDataset",
     "input_dataset: variant; batch_size: int64; num_parallel_calls: int64; drop_remainder: bool", "handle: variant",
     "parallel_copy: bool = false; " TD_DATASET_TYPES "; deterministic: string = 'default'" TD_DATASET_META, 0},
};

#define FUSED(name)                                                                                \
  {                                                                                                \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(fused_kernel), .create = create_fused, \
    .destroy = td_dataset_kernel_destroy, .compute = compute_fused                                 \
  }

static const td_kernel_def kernels[] = {
    TD_DATASET_KERNEL("BatchDataset", td_dataset_kernel_create, compute_batch),
    TD_DATASET_KERNEL("BatchDatasetV2", td_dataset_kernel_create, compute_batch),
    FUSED("ExperimentalMapAndBatchDataset"),
    FUSED("MapAndBatchDataset"),
    TD_DATASET_KERNEL("PaddedBatchDataset", create_padded, compute_padded),
    TD_DATASET_KERNEL("PaddedBatchDatasetV2", create_padded, compute_padded),
    TD_DATASET_KERNEL("ParallelBatchDataset", td_dataset_kernel_create, compute_batch),
};

TD_FAMILY(data_batch, ops, kernels);

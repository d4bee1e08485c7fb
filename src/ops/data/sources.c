/* Datasets without inputs: Range, Tensor, TensorSlice, SparseTensorSlice. */
#include <string.h>

#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/families.h"

/* ---- Range ---- */

typedef struct range {
  td_dataset base;
  int64_t start, stop, step;
} range;

typedef struct range_iterator {
  td_iterator base;
  int64_t next;
  bool is_over;
} range_iterator;

static td_status range_start(td_iterator *it) {
  ((range_iterator *)it)->next = ((range *)it->dataset)->start;
  return TD_STATUS_OK;
}

static td_status make_number(td_dtype type, int64_t value, td_tensor **out) {
  TD_TRY(td_tensor_create_dims(type, 0, NULL, out));
  switch (type) {
    case TD_INT64:
      *TD_DATA(*out, int64_t) = value;
      return TD_STATUS_OK;
    case TD_INT32:
      *TD_DATA(*out, int32_t) = (int32_t)value;
      return TD_STATUS_OK;
    case TD_FLOAT:
      *TD_DATA(*out, float) = (float)value;
      return TD_STATUS_OK;
    case TD_DOUBLE:
      *TD_DATA(*out, double) = (double)value;
      return TD_STATUS_OK;
    default:
      td_tensor_release(*out);
      return td_unimplemented("A range of %s is not supported", td_dtype_name(type));
  }
}

static td_next range_advance(td_iterator *it) {
  range_iterator *r = (range_iterator *)it;
  const range *d = (const range *)it->dataset;
  td_tensor *t;
  if (r->is_over || (d->step > 0 ? r->next >= d->stop : r->next <= d->stop)) return td_iterator_give(it, NULL);
  td_status s = make_number(d->base.spec.types[0], r->next, &t);
  if (s) return td_iterator_fail(it, s);
  if (__builtin_add_overflow(r->next, d->step, &r->next)) r->is_over = true;
  return td_iterator_give(it, td_element_of(1, &t));
}

static td_status range_archive(td_iterator *it, td_archive *a) {
  range_iterator *r = (range_iterator *)it;
  TD_TRY(td_archive_int(a, &r->next, INT64_MIN, INT64_MAX));
  return td_archive_bool(a, &r->is_over);
}

static int64_t range_cardinality(const td_dataset *base) {
  const range *d = (const range *)base;
  if (d->step > 0 ? d->start >= d->stop : d->start <= d->stop) return 0;
  uint64_t span = d->step > 0 ? (uint64_t)d->stop - (uint64_t)d->start : (uint64_t)d->start - (uint64_t)d->stop;
  uint64_t step = d->step > 0 ? (uint64_t)d->step : 0 - (uint64_t)d->step;
  uint64_t n = (span - 1) / step + 1;
  return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

static const td_dataset_ops range_ops = {.name = "Range",
                                         .iterator_size = sizeof(range_iterator),
                                         .start = range_start,
                                         .advance = range_advance,
                                         .archive = range_archive,
                                         .cardinality = range_cardinality};

static td_status compute_range(td_kernel_ctx *ctx) {
  const td_dataset_kernel *k = ctx->state;
  int64_t start, stop, step;
  td_dataset *d;
  TD_TRY(td_in_int(ctx, 0, "start", &start));
  TD_TRY(td_in_int(ctx, 1, "stop", &stop));
  TD_TRY(td_in_int(ctx, 2, "step", &step));
  if (!step) return td_invalid_argument("step must be a non-zero integer.");
  if (k->spec.width != 1) return td_invalid_argument("A range has 1 component, not %d", k->spec.width);
  TD_TRY(td_dataset_create(&range_ops, sizeof(range), &k->spec, NULL, 0, &d));
  range *r = (range *)d;
  r->start = start;
  r->stop = stop;
  r->step = step;
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

/* ---- Tensor, TensorSlice ---- */

typedef struct tensors {
  td_dataset base;
  td_element *values;
  int64_t count; /* elements */
} tensors;

typedef struct tensors_iterator {
  td_iterator base;
  int64_t next;
} tensors_iterator;

static void tensors_destroy(td_dataset *d) { td_element_free(((tensors *)d)->values); }

static td_next tensor_advance(td_iterator *it) {
  tensors_iterator *t = (tensors_iterator *)it;
  return td_iterator_give(it, t->next++ ? (t->next = 1, NULL) : td_element_copy(((tensors *)it->dataset)->values));
}

static td_next slice_advance(td_iterator *it) {
  tensors_iterator *t = (tensors_iterator *)it;
  const tensors *d = (const tensors *)it->dataset;
  if (t->next >= d->count) return td_iterator_give(it, NULL);
  td_element *e = td_element_create(d->values->count);
  for (int i = 0; i < e->count; i++) e->values[i] = td_tensor_row(d->values->values[i], t->next);
  t->next++;
  return td_iterator_give(it, e);
}

static td_status tensors_archive(td_iterator *it, td_archive *a) {
  return td_archive_int(a, &((tensors_iterator *)it)->next, 0, ((const tensors *)it->dataset)->count);
}

static int64_t tensors_cardinality(const td_dataset *d) { return ((const tensors *)d)->count; }

static const td_dataset_ops tensor_ops = {.name = "Tensor",
                                          .iterator_size = sizeof(tensors_iterator),
                                          .advance = tensor_advance,
                                          .archive = tensors_archive,
                                          .destroy = tensors_destroy,
                                          .cardinality = tensors_cardinality};
static const td_dataset_ops slice_ops = {.name = "TensorSlice",
                                         .iterator_size = sizeof(tensors_iterator),
                                         .advance = slice_advance,
                                         .archive = tensors_archive,
                                         .destroy = tensors_destroy,
                                         .cardinality = tensors_cardinality};

static td_status create_tensors(td_kernel_builder *b, void *state) {
  return td_dataset_kernel_init(b, state, "Toutput_types");
}

static td_status make_tensors(td_kernel_ctx *ctx, const td_dataset_ops *ops, int64_t count) {
  const td_dataset_kernel *k = ctx->state;
  td_dataset *d;
  TD_TRY(td_dataset_create(ops, sizeof(tensors), &k->spec, NULL, 0, &d));
  tensors *t = (tensors *)d;
  t->count = count;
  t->values = td_element_create(k->spec.width);
  for (int i = 0; i < k->spec.width; i++) t->values->values[i] = td_tensor_retain(td_in(ctx, i));
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

static td_status compute_tensor(td_kernel_ctx *ctx) { return make_tensors(ctx, &tensor_ops, 1); }

static td_status compute_slice(td_kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->input_count; i++)
    if (!td_in(ctx, i)->rank) return td_invalid_argument("All components must be at least 1-dimensional");
  for (int i = 1; i < ctx->kernel->input_count; i++)
    if (td_in(ctx, i)->dims[0] != td_in(ctx, 0)->dims[0])
      return td_invalid_argument("All components must have the same size in the 0th dimension");
  return make_tensors(ctx, &slice_ops, td_in(ctx, 0)->dims[0]);
}

/* ---- SparseTensorSlice: the rows of a sparse matrix as sparse tensors ---- */

typedef struct sparse {
  td_dataset base;
  td_tensor *indices, *values, *shape;
} sparse;

typedef struct sparse_iterator {
  td_iterator base;
  int64_t row, at; /* entry */
} sparse_iterator;

static void sparse_destroy(td_dataset *base) {
  sparse *d = (sparse *)base;
  td_tensor_release(d->indices);
  td_tensor_release(d->values);
  td_tensor_release(d->shape);
}

static td_status sparse_row(const sparse *d, int64_t begin, int64_t end, td_element *e) {
  int64_t rank = d->shape->dims[0], n = end - begin;
  const int64_t *from = TD_DATA(d->indices, int64_t);
  TD_TRY(td_tensor_create_dims(TD_INT64, 2, (int64_t[]){n, rank - 1}, &e->values[0]));
  TD_TRY(td_tensor_create_dims(d->values->dtype, 1, &n, &e->values[1]));
  TD_TRY(td_tensor_create_dims(TD_INT64, 1, (int64_t[]){rank - 1}, &e->values[2]));
  for (int64_t i = 0; i < n && rank > 1; i++)
    memcpy(TD_DATA(e->values[0], int64_t) + i * (rank - 1), from + (begin + i) * rank + 1,
           (size_t)(rank - 1) * sizeof *from);
  td_tensor_copy_elements(e->values[1], 0, d->values, begin, n);
  if (rank > 1)
    memcpy(TD_DATA(e->values[2], int64_t), TD_DATA(d->shape, int64_t) + 1, (size_t)(rank - 1) * sizeof *from);
  return TD_STATUS_OK;
}

static td_next sparse_advance(td_iterator *it) {
  sparse_iterator *p = (sparse_iterator *)it;
  const sparse *d = (const sparse *)it->dataset;
  const int64_t *indices = TD_DATA(d->indices, int64_t);
  int64_t rank = d->shape->dims[0], end = p->at;
  if (p->row >= TD_DATA(d->shape, int64_t)[0]) return td_iterator_give(it, NULL);
  while (end < d->values->count && indices[end * rank] == p->row) end++;
  td_element *e = td_element_create(3);
  td_status s = sparse_row(d, p->at, end, e);
  if (s) {
    td_element_free(e);
    return td_iterator_fail(it, s);
  }
  p->at = end;
  p->row++;
  return td_iterator_give(it, e);
}

static td_status sparse_archive(td_iterator *it, td_archive *a) {
  sparse_iterator *p = (sparse_iterator *)it;
  const sparse *d = (const sparse *)it->dataset;
  TD_TRY(td_archive_int(a, &p->row, 0, TD_DATA(d->shape, int64_t)[0]));
  return td_archive_int(a, &p->at, 0, d->values->count);
}

static int64_t sparse_cardinality(const td_dataset *d) { return TD_DATA(((const sparse *)d)->shape, int64_t)[0]; }

static const td_dataset_ops sparse_ops = {.name = "SparseTensorSlice",
                                          .iterator_size = sizeof(sparse_iterator),
                                          .advance = sparse_advance,
                                          .archive = sparse_archive,
                                          .destroy = sparse_destroy,
                                          .cardinality = sparse_cardinality};

static td_status check_sparse(const td_tensor *indices, const td_tensor *values, const td_tensor *shape) {
  if (indices->rank != 2) return td_invalid_argument("Input indices must be a matrix. Got: rank %d", indices->rank);
  if (values->rank != 1) return td_invalid_argument("Input values must be a vector. Got: rank %d", values->rank);
  if (shape->rank != 1) return td_invalid_argument("Input shape must be a vector. Got: rank %d", shape->rank);
  if (values->dims[0] != indices->dims[0])
    return td_invalid_argument("Number of values must match first dimension of indices. Got %lld values, %lld indices",
                               (long long)values->dims[0], (long long)indices->dims[0]);
  if (shape->dims[0] != indices->dims[1] || !shape->dims[0])
    return td_invalid_argument("Number of dimensions must match second dimension of indices. Got %lld and %lld",
                               (long long)shape->dims[0], (long long)indices->dims[1]);
  int64_t rank = shape->dims[0], rows = TD_DATA(shape, int64_t)[0], before = 0;
  if (rows < 0) return td_invalid_argument("Input shape has a negative dimension: %lld", (long long)rows);
  for (int64_t i = 0; i < values->count; i++) {
    int64_t row = TD_DATA(indices, int64_t)[i * rank];
    if (row < before && row >= 0)
      return td_unimplemented(
          "The SparseTensor must be ordered in the batch dimension; handling arbitrarily ordered input is not "
          "currently supported.");
    if (row < 0 || row >= rows)
      return td_invalid_argument("Index %lld is out of range: [0, %lld)", (long long)row, (long long)rows);
    before = row;
  }
  return TD_STATUS_OK;
}

static td_status compute_sparse(td_kernel_ctx *ctx) {
  td_tensor *indices = td_in(ctx, 0), *values = td_in(ctx, 1), *shape = td_in(ctx, 2);
  TD_TRY(check_sparse(indices, values, shape));
  int64_t rank = shape->dims[0] - 1;
  td_dtype types[3] = {TD_INT64, values->dtype, TD_INT64};
  int64_t dims[3] = {-1, rank, rank};
  td_partial_shape shapes[3] = {{2, dims}, {1, dims}, {1, dims + 1}};
  td_dataset *d;
  TD_TRY(td_dataset_create(&sparse_ops, sizeof(sparse), &(td_data_spec){3, types, shapes}, NULL, 0, &d));
  sparse *s = (sparse *)d;
  s->indices = td_tensor_retain(indices);
  s->values = td_tensor_retain(values);
  s->shape = td_tensor_retain(shape);
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

static const td_op_spec ops[] = {
    {"RangeDataset", "start: int64; stop: int64; step: int64", "handle: variant",
     TD_DATASET_TYPES TD_DATASET_META "; replicate_on_split: bool = false", TD_OP_STATEFUL},
    {"SparseTensorSliceDataset", "indices: int64; values: Tvalues; dense_shape: int64", "handle: variant",
     "Tvalues: type", TD_OP_STATEFUL},
    {"TensorDataset", "components: Toutput_types", "handle: variant",
     "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1" TD_DATASET_META, TD_OP_STATEFUL},
    {"TensorSliceDataset", "components: Toutput_types", "handle: variant",
     "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1; is_files: bool = false" TD_DATASET_META
     "; replicate_on_split: bool = false",
     TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    TD_DATASET_KERNEL("RangeDataset", td_dataset_kernel_create, compute_range),
    {.op = "SparseTensorSliceDataset", .cost = TD_COST_CHEAP, .compute = compute_sparse},
    TD_DATASET_KERNEL("TensorDataset", create_tensors, compute_tensor),
    TD_DATASET_KERNEL("TensorSliceDataset", create_tensors, compute_slice),
};

TD_FAMILY(data_sources, ops, kernels);

/* Sparse tensors in strings or variants (SerializeSparse and its kin): three messages, of indices, values and shape.
 * SparseReorder. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/sparse_batch.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

/* ---- a tensor in a variant ---- */

static const char tensor_type_name[] = "tensorflow::Tensor";

typedef struct boxed {
  td_variant variant;
  td_tensor *tensor; /* retained */
} boxed;

static void boxed_destroy(td_variant *v) {
  td_tensor_release(((boxed *)v)->tensor);
  td_free(v);
}

static td_status boxed_encode(const td_variant *v, td_strbuf *out) {
  td_strbuf part = {0};
  td_status s = td_tensor_encode(((const boxed *)v)->tensor, &part);
  td_wire_put_bytes(out, 1, td_str_of(tensor_type_name));
  td_wire_put_bytes(out, 3, td_strbuf_view(&part));
  td_strbuf_deinit(&part);
  return s;
}

static const td_variant_ops boxed_ops = {
    .type_name = tensor_type_name, .destroy = boxed_destroy, .encode = boxed_encode};

static td_variant *box(td_tensor *t) {
  boxed *b = td_new(boxed);
  b->variant.ops = &boxed_ops;
  atomic_init(&b->variant.refs, 1);
  b->tensor = td_tensor_retain(t);
  return &b->variant;
}

/* One reference. */
static td_status unbox(const td_variant *v, td_tensor **out) {
  td_wire_field f;
  bool bad = false;
  const td_opaque_variant *o = td_variant_as_opaque(v);
  if (v && v->ops == &boxed_ops) {
    *out = td_tensor_retain(((const boxed *)v)->tensor);
    return TD_STATUS_OK;
  }
  if (o && !strcmp(o->type_name, tensor_type_name))
    for (td_wire in = td_wire_of(td_str_n(o->bytes, o->size)); td_wire_next(&in, &f, &bad);)
      if (f.number == 3 && f.type == TD_WIRE_BYTES) return td_tensor_decode(f.bytes, out);
  return td_invalid_argument("Could not get a tensor from the variant: it holds %s", o ? o->type_name : "no tensor");
}

/* ---- writing ---- */

static td_status put_part(td_tensor *out, int64_t i, td_tensor *part) {
  if (out->dtype == TD_VARIANT) {
    TD_DATA(out, td_variant *)[i] = box(part);
    return TD_STATUS_OK;
  }
  td_strbuf bytes = {0};
  td_status s = td_tensor_encode(part, &bytes);
  if (!s) s = td_string_set(TD_DATA(out, td_string) + i, td_strbuf_view(&bytes));
  td_strbuf_deinit(&bytes);
  return s;
}

static td_status put_sparse(td_tensor *out, int64_t row, const td_sparse *s) {
  TD_TRY(put_part(out, row * 3, s->indices));
  TD_TRY(put_part(out, row * 3 + 1, s->values));
  return put_part(out, row * 3 + 2, s->shape);
}

static td_status serialize(td_kernel_ctx *ctx) {
  td_sparse s;
  td_shape shape;
  td_tensor *out;
  TD_TRY(td_in_sparse(ctx, &s, &shape));
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, (int64_t[]){3}, &out));
  return put_sparse(out, 0, &s);
}

static td_status serialize_rows(td_kernel_ctx *ctx, const td_sparse *batch, const td_sparse_rows *rows) {
  td_tensor *out, *shape;
  TD_TRY(td_out_alloc_dims(ctx, 0, 2, (int64_t[]){rows->n, 3}, &out));
  TD_TRY(td_sparse_row_shape(batch, &shape));
  td_status s = TD_STATUS_OK;
  for (int64_t i = 0; i < rows->n && !s; i++) {
    td_sparse row = {0};
    s = td_sparse_row(batch, rows, i, shape, &row);
    if (!s) s = put_sparse(out, i, &row);
    td_sparse_release(&row);
  }
  td_tensor_release(shape);
  return s;
}

static td_status serialize_many(td_kernel_ctx *ctx) {
  td_sparse batch;
  td_sparse_rows rows;
  td_status s = td_in_sparse_rows(ctx, &batch, &rows);
  if (!s) s = serialize_rows(ctx, &batch, &rows);
  td_sparse_rows_deinit(&rows);
  return s;
}

/* ---- reading ---- */

static td_status get_part(const td_tensor *t, int64_t i, td_tensor **out) {
  if (t->dtype == TD_VARIANT) return unbox(TD_DATA(t, td_variant *)[i], out);
  td_status s = td_tensor_decode(td_string_view(TD_DATA(t, td_string) + i), out);
  if (!s) return s;
  td_status_free(s);
  return td_invalid_argument("Could not parse serialized proto: serialized_sparse[%lld, %lld]", (long long)i / 3,
                             (long long)i % 3);
}

static td_status get_sparse(const td_tensor *t, int64_t row, td_sparse *out) {
  td_shape shape;
  TD_TRY(get_part(t, row * 3, &out->indices));
  TD_TRY(get_part(t, row * 3 + 1, &out->values));
  TD_TRY(get_part(t, row * 3 + 2, &out->shape));
  return td_sparse_check(out, &shape);
}

static td_status deserialize_all(td_kernel_ctx *ctx, int lead_rank) {
  const td_tensor *t = td_in(ctx, 0);
  int64_t n = t->count / 3;
  if (!n) return td_invalid_argument("Must have at least 1 serialized SparseTensor, but input matrix has 0 rows");
  td_sparse *all = td_try_malloc((size_t)n * sizeof *all);
  if (!all) return td_resource_exhausted("No memory for %lld sparse tensors", (long long)n);
  memset(all, 0, (size_t)n * sizeof *all);
  td_status s = TD_STATUS_OK;
  for (int64_t i = 0; i < n && !s; i++) {
    s = get_sparse(t, i, &all[i]);
    if (!s && all[i].shape->count != all[0].shape->count)
      s = td_invalid_argument(
          "Inconsistent shape across SparseTensors: rank prior to SparseTensor[%lld] was: %lld but rank of "
          "SparseTensor[%lld] is: %lld",
          (long long)i, (long long)all[0].shape->count, (long long)i, (long long)all[i].shape->count);
  }
  if (!s) s = td_out_sparse_joined(ctx, all, n, lead_rank, t->dims);
  for (int64_t i = 0; i < n; i++) td_sparse_release(&all[i]);
  td_free(all);
  return s;
}

static td_status deserialize(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  if (!t->rank)
    return td_invalid_argument("Serialized sparse should have non-zero rank but received shape %s", TD_SHOW(t));
  if (t->dims[t->rank - 1] != 3)
    return td_invalid_argument("Serialized sparse should have 3 as the last dimension but received shape %s",
                               TD_SHOW(t));
  return deserialize_all(ctx, t->rank - 1);
}

static td_status deserialize_many(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  if (t->rank != 2)
    return td_invalid_argument("Serialized sparse should be a matrix but received shape %s", TD_SHOW(t));
  if (t->dims[1] != 3)
    return td_invalid_argument("Serialized sparse should have 3 columns but received shape %s", TD_SHOW(t));
  return deserialize_all(ctx, 1);
}

/* ---- SparseReorder ---- */

typedef struct order {
  const int64_t *index;
  int64_t rank, at;
} order;

/* Lexicographic; entries of one index stay in order. */
static int compare(const void *x, const void *y) {
  const order *a = x, *b = y;
  for (int64_t d = 0; d < a->rank; d++)
    if (a->index[d] != b->index[d]) return a->index[d] < b->index[d] ? -1 : 1;
  return a->at < b->at ? -1 : a->at > b->at;
}

static td_status out_in_order(td_kernel_ctx *ctx, const td_sparse *s, const order *entries) {
  td_tensor *indices, *values;
  int64_t n = s->values->count, rank = s->indices->dims[1];
  TD_TRY(td_out_alloc_like(ctx, 0, s->indices, &indices));
  TD_TRY(td_out_alloc_like(ctx, 1, s->values, &values));
  for (int64_t i = 0; i < n; i++) {
    memcpy(TD_DATA(indices, int64_t) + i * rank, entries[i].index, (size_t)rank * sizeof(int64_t));
    td_tensor_copy_elements(values, i, s->values, entries[i].at, 1);
  }
  return TD_STATUS_OK;
}

static td_status reorder(td_kernel_ctx *ctx) {
  td_sparse s;
  td_shape shape;
  TD_TRY(td_in_sparse(ctx, &s, &shape));
  int64_t n = s.values->count, rank = s.indices->dims[1];
  size_t bytes;
  if (!td_mul_size((size_t)n + 1, sizeof(order), &bytes)) return td_resource_exhausted("Too many entries");
  order *entries = td_try_malloc(bytes);
  if (!entries) return td_resource_exhausted("No memory for the order of %lld entries", (long long)n);
  bool in_order = true;
  for (int64_t i = 0; i < n; i++) {
    entries[i] = (order){TD_DATA(s.indices, int64_t) + i * rank, rank, i};
    if (i && compare(&entries[i - 1], &entries[i]) > 0) in_order = false;
  }
  if (!in_order) qsort(entries, (size_t)n, sizeof *entries, compare);
  td_status status = TD_STATUS_OK;
  if (in_order) {
    td_out_forward(ctx, 0, 0);
    td_out_forward(ctx, 1, 1);
  } else {
    status = out_in_order(ctx, &s, entries);
  }
  td_free(entries);
  return status;
}

/* ---- tables ---- */

#define SPARSE_IN  "sparse_indices: int64; sparse_values: T; sparse_shape: int64"
#define SPARSE_OUT "sparse_indices: int64; sparse_values: dtype; sparse_shape: int64"
#define OUT_ATTRS  "T: type; out_type: type in {string, variant} = string"

static const td_op_spec ops[] = {
    {"DeserializeManySparse", "serialized_sparse: string", SPARSE_OUT, "dtype: type", 0},
    {"DeserializeSparse", "serialized_sparse: Tserialized", SPARSE_OUT,
     "dtype: type; Tserialized: type in {string, variant} = string", 0},
    {"SerializeManySparse", SPARSE_IN, "serialized_sparse: out_type", OUT_ATTRS, 0},
    {"SerializeSparse", SPARSE_IN, "serialized_sparse: out_type", OUT_ATTRS, 0},
    {"SparseReorder", "input_indices: int64; input_values: T; input_shape: int64",
     "output_indices: int64; output_values: T", "T: type", 0},
};

static const td_kernel_def kernels[] = {
    {.op = "DeserializeManySparse", .compute = deserialize_many},
    {.op = "DeserializeSparse", .compute = deserialize},
    {.op = "SerializeManySparse", .compute = serialize_many},
    {.op = "SerializeSparse", .compute = serialize},
    {.op = "SparseReorder", .compute = reorder},
};

TD_FAMILY(sparse_serialize, ops, kernels);

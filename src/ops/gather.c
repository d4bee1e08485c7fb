/* Gather, GatherV2, GatherNd and their forms on resource variables: rows of a table picked by index. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "ops/move.h"

/* An index of any type that gathers take. Indices may lie in a ref variable that another step is writing: each is
 * read exactly once, then checked. */
static inline int64_t index_at(const td_tensor *t, int64_t i) {
  switch (t->dtype) {
    case TD_INT64:
      return *(volatile const int64_t *)(TD_DATA(t, int64_t) + i);
    case TD_INT16:
      return *(volatile const int16_t *)(TD_DATA(t, int16_t) + i);
    default:
      return *(volatile const int32_t *)(TD_DATA(t, int32_t) + i);
  }
}

/* ---- one gather: out[b, o, i, :] = params[b, o, indices[b, i], :] ---- */

typedef struct gather {
  const td_tensor *params, *indices;
  td_tensor *out;
  int64_t batch, outer, dim, n, row; /* sizes; row: elements of the innermost part */
  _Atomic int64_t bad;               /* the first position of a bad index that was met, or -1 */
} gather;

static inline void copy_row(const gather *g, int64_t to, int64_t from, size_t size, size_t bytes) {
  char *d = (char *)g->out->data + (size_t)to * size;
  const char *s = (const char *)g->params->data + (size_t)from * size;
  switch (bytes) {
    case 4:
      memcpy(d, s, 4);
      break;
    case 8:
      memcpy(d, s, 8);
      break;
    case 16:
      memcpy(d, s, 16);
      break;
    case 64:
      memcpy(d, s, 64);
      break;
    case 128:
      memcpy(d, s, 128);
      break;
    default:
      memcpy(d, s, bytes);
  }
}

/* The table rarely fits the cache; to its second level more lines can be under way. */
static inline void fetch_ahead(const char *row, size_t bytes) {
  __builtin_prefetch(row, 0, 2);
  __builtin_prefetch(row + TD_MIN(bytes, (size_t)128) - 1, 0, 2); /* rows need not begin with a line */
}

/* Rows [begin, end) of the batch x outer x n rows of the result. */
static void gather_rows(void *arg, int64_t begin, int64_t end) {
  enum { AHEAD = 16 };
  gather *g = arg;
  size_t size = td_dtype_size((td_dtype)g->params->dtype), bytes = (size_t)g->row * size;
  bool pod = td_dtype_is_pod((td_dtype)g->params->dtype);
  for (int64_t k = begin, block = begin / g->n; k < end; block++) { /* a division may take as long as a row */
    int64_t block_end = (block + 1) * g->n, stop = TD_MIN(end, block_end), from = block * g->dim;
    int64_t to_index = block / g->outer * g->n - block * g->n; /* from a row of the result to its index */
    const char *table = (const char *)g->params->data + (size_t)from * bytes;
    for (; k < stop; k++) {
      int64_t index = index_at(g->indices, to_index + k);
      if (index < 0 || index >= g->dim) {
        int64_t none = -1;
        atomic_compare_exchange_strong(&g->bad, &none, to_index + k);
        return;
      }
      if (!pod) {
        td_tensor_copy_elements(g->out, k * g->row, g->params, (from + index) * g->row, g->row);
        continue;
      }
      if (k + AHEAD < block_end) {
        uint64_t next = (uint64_t)index_at(g->indices, to_index + k + AHEAD);
        if (next < (uint64_t)g->dim) fetch_ahead(table + next * bytes, bytes);
      }
      copy_row(g, k * g->row, (from + index) * g->row, size, bytes);
    }
  }
}

static td_status bad_index(const td_tensor *indices, int64_t at, int64_t dim) {
  td_show_buf b;
  return td_invalid_argument("indices%s = %lld is not in [0, %lld)",
                             td_show_index(&b, indices->rank, indices->dims, at), (long long)index_at(indices, at),
                             (long long)dim);
}

static td_status gather_run(td_kernel_ctx *ctx, gather *g) {
  atomic_init(&g->bad, -1);
  if (!g->out->count) return TD_STATUS_OK; /* TensorFlow does not look at the indices then */
  int64_t total = g->batch * g->outer * g->n;
  double bytes = (double)g->row * (double)td_dtype_size((td_dtype)g->params->dtype);
  if (bytes * (double)total < (1 << 17) || !td_dtype_is_pod((td_dtype)g->params->dtype)) {
    gather_rows(g, 0, total);
  } else {
    td_ctx_parallel_for(ctx, total, 5 + bytes / 6, gather_rows, g);
  }
  int64_t bad = atomic_load(&g->bad);
  return bad < 0 ? TD_STATUS_OK : bad_index(g->indices, bad, g->dim);
}

/* Checks, allocates output 0 and gathers along `axis` (valid) with `batch` leading dimensions shared. */
static td_status gather_axis(td_kernel_ctx *ctx, const td_tensor *params, const td_tensor *indices, int axis,
                             int batch) {
  for (int d = 0; d < batch; d++) {
    if (params->dims[d] != indices->dims[d]) {
      return td_invalid_argument("params.shape[%d]: %lld should be equal to indices.shape[%d]: %lld", d,
                                 (long long)params->dims[d], d, (long long)indices->dims[d]);
    }
  }
  td_shape shape;
  shape.rank = 0;
  for (int d = 0; d < axis; d++) TD_TRY(td_shape_append(&shape, params->dims[d]));
  for (int d = batch; d < indices->rank; d++) TD_TRY(td_shape_append(&shape, indices->dims[d]));
  for (int d = axis + 1; d < params->rank; d++) TD_TRY(td_shape_append(&shape, params->dims[d]));
  gather g = {.params = params, .indices = indices, .dim = params->dims[axis]};
  TD_TRY(td_out_alloc(ctx, 0, &shape, &g.out));
  g.batch = td_dims_product(params->dims, 0, batch);
  g.outer = td_dims_product(params->dims, batch, axis);
  g.n = td_dims_product(indices->dims, batch, indices->rank);
  g.row = td_dims_product(params->dims, axis + 1, params->rank);
  return gather_run(ctx, &g);
}

typedef struct batching {
  int64_t batch_dims;
} batching;
static td_status batching_create(td_kernel_builder *b, void *state) {
  return td_attr_int(b->node, "batch_dims", &((batching *)state)->batch_dims);
}

static td_status gather_compute(td_kernel_ctx *ctx) {
  const td_tensor *params = td_in(ctx, 0), *indices = td_in(ctx, 1);
  if (!params->rank) return td_invalid_argument("params must be at least 1 dimensional");
  return gather_axis(ctx, params, indices, 0, 0);
}

static td_status gather_v2_compute(td_kernel_ctx *ctx) {
  const td_tensor *params = td_in(ctx, 0), *indices = td_in(ctx, 1), *axis_in = td_in(ctx, 2);
  int64_t batch = ((const batching *)ctx->state)->batch_dims;
  if (!params->rank) return td_invalid_argument("params must be at least 1 dimensional");
  if (axis_in->rank) return td_invalid_argument("axis must be scalar");
  int64_t axis = td_tensor_int_at(axis_in, 0);
  if (axis < -params->rank || axis >= params->rank) {
    return td_invalid_argument("Expected axis in the range [%d, %d), but got %lld", -params->rank, params->rank,
                               (long long)axis);
  }
  if (axis < 0) axis += params->rank;
  if (batch) {
    if (batch < -indices->rank || batch > indices->rank) {
      return td_invalid_argument("Expected batch_dims in the range [%d, %d], but got %lld", -indices->rank,
                                 indices->rank, (long long)batch);
    }
    if (batch < 0) batch += indices->rank;
    if (batch >= params->rank) {
      return td_invalid_argument("batch_dims (%lld) must be less than rank(params) (%d).", (long long)batch,
                                 params->rank);
    }
    if (axis < batch) {
      return td_invalid_argument("batch_dims (%lld) must be less than or equal to axis (%lld).", (long long)batch,
                                 (long long)axis);
    }
  }
  return gather_axis(ctx, params, indices, (int)axis, (int)batch);
}

/* ---- GatherNd ---- */

typedef struct nd_gather {
  const td_tensor *params, *indices;
  td_tensor *out;
  int nd;
  int64_t row;
  const int64_t *strides; /* in elements, of the first nd dimensions */
  bool skip_bad;          /* rows of bad indices become zero instead of an error */
  _Atomic int64_t bad;
} nd_gather;

static void gather_nd_rows(void *arg, int64_t begin, int64_t end) {
  nd_gather *g = arg;
  size_t size = td_dtype_size((td_dtype)g->params->dtype), bytes = (size_t)g->row * size;
  bool pod = td_dtype_is_pod((td_dtype)g->params->dtype);
  for (int64_t i = begin; i < end; i++) {
    int64_t from = 0;
    for (int d = 0; d < g->nd; d++) {
      int64_t index = index_at(g->indices, i * g->nd + d);
      if (index < 0 || index >= g->params->dims[d]) {
        if (g->skip_bad) {
          from = -1;
          break;
        }
        int64_t none = -1;
        atomic_compare_exchange_strong(&g->bad, &none, i);
        return;
      }
      from += index * g->strides[d];
    }
    if (from < 0) {
      td_zero_elements(g->out, i * g->row, g->row);
    } else if (pod) {
      memcpy((char *)g->out->data + (size_t)(i * g->row) * size, (const char *)g->params->data + (size_t)from * size,
             bytes);
    } else {
      td_tensor_copy_elements(g->out, i * g->row, g->params, from, g->row);
    }
  }
}

static td_status bad_nd_index(const nd_gather *g, int64_t at) {
  td_show_buf b;
  td_strbuf text = {0};
  for (int d = 0; d < g->nd; d++)
    td_strbuf_printf(&text, "%s%lld", d ? ", " : "", (long long)index_at(g->indices, at * g->nd + d));
  td_status s = td_invalid_argument("indices%s = [%s] does not index into param shape %s",
                                    td_show_index(&b, g->indices->rank - 1, g->indices->dims, at),
                                    td_strbuf_cstr(&text), TD_SHOW(g->params));
  td_strbuf_deinit(&text);
  return s;
}

static td_status gather_nd(td_kernel_ctx *ctx, const td_tensor *params, const td_tensor *indices, bool skip_bad) {
  if (!params->rank) return td_invalid_argument("params must be at least a vector");
  if (!indices->rank) return td_invalid_argument("indices must be at least a vector");
  int64_t nd = indices->dims[indices->rank - 1];
  if (nd > params->rank) {
    return td_invalid_argument("index innermost dimension length must be <= params rank; saw: %lld vs. %d",
                               (long long)nd, params->rank);
  }
  td_shape shape;
  shape.rank = 0;
  for (int d = 0; d + 1 < indices->rank; d++) TD_TRY(td_shape_append(&shape, indices->dims[d]));
  for (int d = (int)nd; d < params->rank; d++) TD_TRY(td_shape_append(&shape, params->dims[d]));
  int64_t n = td_dims_product(indices->dims, 0, indices->rank - 1);
  if (n > 0 && !params->count) {
    return td_invalid_argument("Requested more than 0 entries, but params is empty.  Params shape: %s",
                               TD_SHOW(params));
  }
  int64_t strides[TD_MAX_RANK];
  td_strides(params->rank, params->dims, strides);
  nd_gather g = {.params = params, .indices = indices, .nd = (int)nd, .strides = strides, .skip_bad = skip_bad};
  TD_TRY(td_out_alloc(ctx, 0, &shape, &g.out));
  if (!n) return TD_STATUS_OK;
  atomic_init(&g.bad, -1);
  g.row = td_dims_product(params->dims, (int)nd, params->rank);
  double bytes = (double)g.out->size;
  if (bytes < (1 << 17) || !td_dtype_is_pod((td_dtype)params->dtype)) {
    gather_nd_rows(&g, 0, n);
  } else {
    td_ctx_parallel_for(ctx, n, 5 + 2 * (double)nd + bytes / (double)n / 6, gather_nd_rows, &g);
  }
  int64_t bad = atomic_load(&g.bad);
  return bad < 0 ? TD_STATUS_OK : bad_nd_index(&g, bad);
}

typedef struct policy {
  bool skip_bad;
} policy;
static td_status policy_create(td_kernel_builder *b, void *state) {
  td_str name;
  TD_TRY(td_attr_str(b->node, "bad_indices_policy", &name));
  ((policy *)state)->skip_bad = td_str_is(name, "IGNORE");
  if (!name.size || td_str_is(name, "IGNORE") || td_str_is(name, "ERROR") || td_str_is(name, "DEFAULT")) {
    return TD_STATUS_OK;
  }
  return td_invalid_argument("Unknown bad indices handling attribute: %.*s", TD_STR_ARG(name));
}

static td_status gather_nd_compute(td_kernel_ctx *ctx) {
  return gather_nd(ctx, td_in(ctx, 0), td_in(ctx, 1), ((const policy *)ctx->state)->skip_bad);
}

/* ---- on resource variables: under the variable's shared lock, so that the table need not be copied ---- */

static td_status gather_variable(td_kernel_ctx *ctx, const td_tensor *params) {
  const td_tensor *indices = td_in(ctx, 1);
  int64_t batch = ((const batching *)ctx->state)->batch_dims;
  if (!params->rank) return td_invalid_argument("params must be at least 1 dimensional");
  if (batch < 0 || batch >= params->rank) {
    return td_invalid_argument("params must have at least %lld (batch_dims) dimensions but it has shape %s",
                               (long long)((uint64_t)batch + 1), TD_SHOW(params));
  }
  if (batch > indices->rank) {
    return td_invalid_argument("indices must have at least %lld (batch_dims) dimensions but it has shape %s",
                               (long long)batch, TD_SHOW(indices));
  }
  return gather_axis(ctx, params, indices, (int)batch, (int)batch);
}

static td_status gather_nd_variable(td_kernel_ctx *ctx, const td_tensor *params) {
  return gather_nd(ctx, params, td_in(ctx, 1), false);
}

static td_status with_variable(td_kernel_ctx *ctx, td_status (*fn)(td_kernel_ctx *ctx, const td_tensor *params)) {
  td_variable *v;
  TD_TRY(td_handle_lookup(td_in(ctx, 0), ctx->device, &td_resource_variable_type, (void **)&v));
  td_status status;
  if (v->dtype != td_out_type(ctx, 0)) {
    status = td_invalid_argument("Trying to read variable with wrong dtype. Expected %s got %s",
                                 td_dtype_name(v->dtype), td_dtype_name(td_out_type(ctx, 0)));
  } else {
    pthread_rwlock_rdlock(&v->lock);
    status = v->value ? fn(ctx, v->value)
                      : td_failed_precondition(
                            "Error while reading resource variable %s from Container: %s. This could "
                            "mean that the variable was uninitialized.",
                            v->name, "");
    pthread_rwlock_unlock(&v->lock);
  }
  td_variable_release(v);
  return status;
}

static td_status resource_gather_compute(td_kernel_ctx *ctx) { return with_variable(ctx, gather_variable); }
static td_status resource_gather_nd_compute(td_kernel_ctx *ctx) { return with_variable(ctx, gather_nd_variable); }

/* ---- what a run costs: what is picked, not what it is picked from ---- */

static const double ROW_NS = 20; /* a row that no cache holds, beside its bytes */

static double gather_work_ns(const td_kernel *k, const td_value *in) {
  const td_tensor *params = in[0].tensor, *indices = in[1].tensor;
  const td_tensor *axis_in = k->input_count > 2 ? in[2].tensor : NULL;
  if (!params->rank || !params->count) return 0;
  int64_t axis = axis_in && axis_in->count ? td_tensor_int_at(axis_in, 0) : 0;
  if (axis < 0) axis += params->rank;
  if (axis < 0 || axis >= params->rank) return 0;
  double elements = (double)params->count / (double)params->dims[axis] * (double)indices->count;
  double rows = elements / (double)td_dims_product(params->dims, (int)axis + 1, params->rank);
  if (!td_dtype_is_pod((td_dtype)params->dtype)) return rows * ROW_NS + elements * ROW_NS;
  return rows * ROW_NS + elements * (double)td_dtype_size((td_dtype)params->dtype) / 10;
}

/* The variable is not known here; its rows are taken for short. */
static double resource_gather_work_ns(const td_kernel *k, const td_value *in) {
  return (double)in[1].tensor->count * ROW_NS;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {"Gather", "params: Tparams; indices: Tindices", "output: Tparams",
     "validate_indices: bool = true; Tparams: type; Tindices: type in {int32, int64}", 0},
    {"GatherNd", "params: Tparams; indices: Tindices", "output: Tparams",
     "Tparams: type; Tindices: type in {int16, int32, int64}; bad_indices_policy: string = ''", 0},
    {"GatherV2", "params: Tparams; indices: Tindices; axis: Taxis", "output: Tparams",
     "batch_dims: int = 0; Tparams: type; Tindices: type in {int16, int32, int64}; Taxis: type in {int32, int64}", 0},
    {"ResourceGather", "resource: resource; indices: Tindices", "output: dtype",
     "batch_dims: int = 0; validate_indices: bool = true; dtype: type; Tindices: type in {int32, int64}",
     TD_OP_STATEFUL},
    {"ResourceGatherNd", "resource: resource; indices: Tindices", "output: dtype",
     "dtype: type; Tindices: type in {int32, int64}", TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "Gather", .work_ns = gather_work_ns, .compute = gather_compute},
    {.op = "GatherNd", .state_size = sizeof(policy), .create = policy_create, .compute = gather_nd_compute},
    {.op = "GatherV2",
     .work_ns = gather_work_ns,
     .state_size = sizeof(batching),
     .create = batching_create,
     .compute = gather_v2_compute},
    {.op = "ResourceGather",
     .work_ns = resource_gather_work_ns,
     .state_size = sizeof(batching),
     .create = batching_create,
     .compute = resource_gather_compute},
    {.op = "ResourceGatherNd", .work_ns = resource_gather_work_ns, .compute = resource_gather_nd_compute},
};

TD_FAMILY(gather, ops, kernels);

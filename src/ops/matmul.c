/* MatMul, its batched forms and _FusedMatMul. */
#include <stdio.h>

#include "base/mem.h"
#include "ops/epilogue.h"
#include "ops/families.h"
#include "ops/gemm.h"

#define MATMUL_TYPES \
  "{bfloat16, half, float, double, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}"
#define BATCH_TYPES \
  "{bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}"
#define MIXED_TYPES "{bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}"

static const td_op_spec ops[] = {
    {"MatMul", "a: T; b: T", "product: T",
     "transpose_a: bool = false; transpose_b: bool = false; T: type in " MATMUL_TYPES
     "; grad_a: bool = false; grad_b: bool = false",
     0},
    {"BatchMatMul", "x: T; y: T", "output: T",
     "T: type in " BATCH_TYPES "; adj_x: bool = false; adj_y: bool = false; grad_x: bool = false; grad_y: bool = false",
     0},
    {"BatchMatMulV2", "x: T; y: T", "output: T",
     "T: type in " BATCH_TYPES "; adj_x: bool = false; adj_y: bool = false; grad_x: bool = false; grad_y: bool = false",
     0},
    {"BatchMatMulV3", "x: Ta; y: Tb", "output: Tout",
     "Ta: type in " MIXED_TYPES "; Tb: type in " MIXED_TYPES
     "; Tout: type in {bfloat16, half, float, double, int16, int32, int64, complex64, complex128}; adj_x: bool = "
     "false; "
     "adj_y: bool = false; grad_x: bool = false; grad_y: bool = false",
     0},
    {"_FusedMatMul", "a: T; b: T; args: num_args * T", "product: T",
     "transpose_a: bool = false; transpose_b: bool = false; T: type in {bfloat16, half, float}; num_args: int >= 0; "
     "fused_ops: list(string) = []; epsilon: float = 9.999999747378752e-05; leakyrelu_alpha: float = "
     "0.20000000298023224",
     0},
    /* What a TensorFlow 2.x master makes of a scaled and masked product (attention). */
    {"_MklFusedBatchMatMulV2", "x: T; y: T; args: num_args * T", "output: T",
     "T: type in {bfloat16, float, half}; adj_x: bool = false; adj_y: bool = false; num_args: int >= 0; fused_ops: "
     "list(string) = []; epsilon: float = 9.999999747378752e-05; leakyrelu_alpha: float = 0.20000000298023224",
     0},
};

typedef struct state {
  const td_heavy_ops *heavy;
  char ta, tb; /* as td_gemm's */
  bool broadcast;
  td_fusion fusion;
  bool scaled, masked; /* a batched product times in[2], then plus the last input */
} state;

static td_status flag(td_kernel_builder *b, const char *name, char set, char *out) {
  bool value;
  TD_TRY(td_attr_bool(b->node, name, &value));
  *out = value ? set : 'N';
  return TD_STATUS_OK;
}

static td_status matmul_create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  TD_TRY(flag(b, "transpose_a", 'T', &s->ta));
  TD_TRY(flag(b, "transpose_b", 'T', &s->tb));
  s->heavy = td_gemm_heavy_for(td_dtype_base(b->output_types[0]));
  return TD_STATUS_OK;
}

static td_status fused_create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  TD_TRY(matmul_create(b, s));
  TD_TRY(td_fusion_parse(b->node, &s->fusion));
  if (!s->fusion.bias || b->input_count != (s->fusion.add ? 4 : 3))
    return td_invalid_argument("_FusedMatMul with %d extra inputs and without BiasAdd is not supported",
                               b->input_count - 2);
  return TD_STATUS_OK;
}

static td_status batch_create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  TD_TRY(flag(b, "adj_x", 'C', &s->ta));
  TD_TRY(flag(b, "adj_y", 'C', &s->tb));
  s->broadcast = !td_str_is(b->node->op, "BatchMatMul");
  s->heavy = td_gemm_heavy_for(td_dtype_base(b->output_types[0]));
  return TD_STATUS_OK;
}

static td_status scaled_create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  const Pb__AttrValue__ListValue *list;
  TD_TRY(batch_create(b, s));
  TD_TRY(td_attr_list(b->node, "fused_ops", &list));
  for (size_t i = 0; i < list->n_s; i++) {
    td_str name = {(const char *)list->s[i].data, list->s[i].len};
    if (i == 0 && td_str_is(name, "Mul"))
      s->scaled = true;
    else if (i + 1 == list->n_s && td_str_is(name, "Add"))
      s->masked = true;
    else
      return td_unimplemented("Fusion is not implemented: %.*s", TD_STR_ARG(name));
  }
  if (b->input_count != 2 + s->scaled + s->masked)
    return td_invalid_argument("fused batch product with %d extra inputs", b->input_count - 2);
  return TD_STATUS_OK;
}

/* An error about both shapes. */
static td_status shapes_error(const td_tensor *a, const td_tensor *b, const char *before, const char *between) {
  char *at = td_tensor_shape_text(a), *bt = td_tensor_shape_text(b);
  td_status s = td_invalid_argument("%s%s%s%s", before, at, between, bt);
  td_free(at);
  td_free(bt);
  return s;
}

/* Takes m, n, k and row lengths from the last two dimensions. */
static td_status fill(td_gemm *g, const td_tensor *a, const td_tensor *b) {
  const int64_t *ad = a->dims + a->rank - 2, *bd = b->dims + b->rank - 2;
  g->lda = ad[1];
  g->ldb = bd[1];
  g->m = g->ta == 'N' ? ad[0] : ad[1];
  g->k = g->ta == 'N' ? ad[1] : ad[0];
  g->n = g->tb == 'N' ? bd[1] : bd[0];
  g->ldc = g->n;
  if (g->k != (g->tb == 'N' ? bd[0] : bd[1]))
    return shapes_error(a, b, "Matrix size-incompatible: In[0]: ", ", In[1]: ");
  return TD_STATUS_OK;
}

/* ---- one matrix ---- */

static td_status not_a_matrix(const td_tensor *t, int which) {
  char *text = td_tensor_shape_text(t);
  td_status s = td_invalid_argument("In[%d] is not a matrix. Instead it has shape %s", which, text);
  td_free(text);
  return s;
}

static td_status bias_check(const td_tensor *bias, int64_t n) {
  if (bias->rank == 1 && bias->dims[0] == n) return TD_STATUS_OK;
  char *text = td_tensor_shape_text(bias);
  td_status s = td_invalid_argument("Must provide as many biases as the last dimension of the product: %s vs. %lld",
                                    text, (long long)n);
  td_free(text);
  return s;
}

static td_status matmul(td_kernel_ctx *ctx) {
  const state *s = ctx->state;
  td_tensor *a0 = td_in(ctx, 0), *b0 = td_in(ctx, 1), *a = NULL, *b = NULL, *bias = NULL, *side = NULL, *work = NULL;
  bool fused = s->fusion.bias;
  if (a0->rank != 2) return not_a_matrix(a0, 0);
  if (b0->rank != 2) return not_a_matrix(b0, 1);
  td_gemm g = {.dtype = td_compute_type(td_out_type(ctx, 0)), .ta = s->ta, .tb = s->tb};
  TD_TRY(fill(&g, a0, b0));
  if (fused) TD_TRY(bias_check(td_in(ctx, 2), g.n));
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 2, (const int64_t[]){g.m, g.n}, &work));
  TD_TRY_GOTO(td_floats_of(a0, &a));
  TD_TRY_GOTO(td_floats_of(b0, &b));
  if (fused) TD_TRY_GOTO(td_floats_of(td_in(ctx, 2), &bias));
  if (s->fusion.add) TD_TRY_GOTO(td_epilogue_side(td_in(ctx, 3), work, &side));
  g.a = a->data;
  g.b = b->data;
  g.c = work->data;
  td_epilogue e = {.dtype = g.dtype,
                   .data = work->data,
                   .row_step = g.n,
                   .add = bias ? bias->data : NULL,
                   .side = side ? side->data : NULL,
                   .activation = s->fusion.activation,
                   .alpha = s->fusion.alpha};
  td_gemm_parallel(ctx, s->heavy, &g, fused ? td_epilogue_run : NULL, &e);
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  td_tensor_release(a);
  td_tensor_release(b);
  td_tensor_release(bias);
  td_tensor_release(side);
  td_tensor_release(work);
  return status;
}

/* ---- batches ---- */

/* The batch part of the output's shape; V1 wants equal dimensions. */
static td_status batch_shape(const state *s, const td_tensor *a, const td_tensor *b, td_shape *out) {
  int ar = a->rank - 2, br = b->rank - 2, rank = TD_MAX(ar, br);
  if (!s->broadcast) {
    if (a->rank != b->rank) return shapes_error(a, b, "In[0] and In[1] has different ndims: ", " vs. ");
    for (int i = 0; i < ar; i++) {
      if (a->dims[i] != b->dims[i]) {
        char before[96];
        snprintf(before, sizeof before, "In[0].dim(%d) and In[1].dim(%d) must be the same: ", i, i);
        return shapes_error(a, b, before, " vs ");
      }
    }
  }
  out->rank = rank;
  for (int i = 0; i < rank; i++) {
    int64_t x = i < rank - ar ? 1 : a->dims[i - (rank - ar)], y = i < rank - br ? 1 : b->dims[i - (rank - br)];
    if (x != y && x != 1 && y != 1)
      return shapes_error(a, b, "In[0] and In[1] must have compatible batch dimensions: ", " vs. ");
    out->dims[i] = x == 1 ? y : x;
  }
  return TD_STATUS_OK;
}

/* Where each of `count` products of the broadcast shape finds its operand, in elements. */
static void offsets(const td_shape *batch, const td_tensor *t, int64_t count, int64_t *at) {
  int own = t->rank - 2;
  int64_t step[TD_MAX_RANK], size = t->dims[own] * t->dims[own + 1], index[TD_MAX_RANK];
  for (int i = batch->rank - 1; i >= 0; i--) {
    int j = i - (batch->rank - own);
    step[i] = j < 0 || t->dims[j] == 1 ? 0 : size;
    if (j >= 0) size *= t->dims[j];
    index[i] = 0;
  }
  int64_t offset = 0;
  for (int64_t n = 0; n < count; n++) {
    at[n] = offset;
    for (int i = batch->rank - 1; i >= 0; i--) {
      offset += step[i];
      if (++index[i] < batch->dims[i]) break;
      offset -= step[i] * batch->dims[i];
      index[i] = 0;
    }
  }
}

/* Operands of BatchMatMulV3 may have another type than the output: converts (integers only). */
static td_status widen(td_tensor *t, td_dtype to, td_tensor **out) {
  if (td_compute_type((td_dtype)t->dtype) == td_compute_type(to)) return td_floats_of(t, out);
  if (!td_dtype_in((td_dtype)t->dtype, TD_SET(TD_INT8) | TD_SET(TD_UINT8)) || to != TD_INT32)
    return td_unimplemented("BatchMatMulV3 of %s to %s is not supported", td_dtype_name(t->dtype), td_dtype_name(to));
  TD_TRY(td_tensor_create_dims(TD_INT32, t->rank, t->dims, out));
  int32_t *x = TD_DATA(*out, int32_t);
  for (int64_t i = 0; i < t->count; i++) x[i] = t->dtype == TD_INT8 ? TD_DATA(t, int8_t)[i] : TD_DATA(t, uint8_t)[i];
  return TD_STATUS_OK;
}

/* out = out * factor + mask, the mask (NULL: none) broadcast to out. */
static td_status scale_and_mask(td_tensor *out, float factor, const td_tensor *mask) {
  float *x = TD_DATA(out, float);
  for (int64_t i = 0; i < out->count; i++) x[i] *= factor;
  if (!mask) return TD_STATUS_OK;
  int64_t step[TD_MAX_RANK], index[TD_MAX_RANK] = {0}, size = 1, at = 0;
  if (mask->rank > out->rank) return shapes_error(mask, out, "cannot add shape ", " to a product of shape ");
  for (int i = out->rank - 1; i >= 0; i--) {
    int j = i - (out->rank - mask->rank);
    int64_t dim = j < 0 ? 1 : mask->dims[j];
    if (dim != 1 && dim != out->dims[i]) return shapes_error(mask, out, "cannot add shape ", " to a product of shape ");
    step[i] = dim == 1 ? 0 : size;
    size *= dim;
  }
  for (int64_t n = 0; n < out->count; n++) {
    x[n] += TD_DATA(mask, float)[at];
    for (int i = out->rank - 1; i >= 0; i--) {
      at += step[i];
      if (++index[i] < out->dims[i]) break;
      at -= step[i] * out->dims[i];
      index[i] = 0;
    }
  }
  return TD_STATUS_OK;
}

static td_status finish_scaled(td_kernel_ctx *ctx, td_tensor *work) {
  const state *s = ctx->state;
  td_tensor *factor = NULL, *mask = NULL;
  td_status status = TD_STATUS_OK;
  if (s->scaled && td_in(ctx, 2)->count != 1)
    return td_invalid_argument("the factor of a fused batch product must be one value, got %lld",
                               (long long)td_in(ctx, 2)->count);
  if (s->scaled) TD_TRY_GOTO(td_floats_of(td_in(ctx, 2), &factor));
  if (s->masked) TD_TRY_GOTO(td_floats_of(td_in(ctx, 2 + s->scaled), &mask));
  status = scale_and_mask(work, factor ? TD_DATA(factor, float)[0] : 1, mask);
cleanup:
  td_tensor_release(factor);
  td_tensor_release(mask);
  return status;
}

static td_status batch_run(td_kernel_ctx *ctx, td_gemm *g, const td_shape *batch, int64_t count) {
  const state *s = ctx->state;
  td_tensor *a = NULL, *b = NULL, *work = NULL, *at = NULL;
  td_shape shape;
  td_shape_copy(&shape, batch);
  TD_TRY(td_shape_append(&shape, g->m));
  TD_TRY(td_shape_append(&shape, g->n));
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, shape.rank, shape.dims, &work));
  if (!work->count) {
    td_floats_finish(ctx, 0, work);
    return TD_STATUS_OK;
  }
  TD_TRY_GOTO(widen(td_in(ctx, 0), td_out_type(ctx, 0), &a));
  TD_TRY_GOTO(widen(td_in(ctx, 1), td_out_type(ctx, 0), &b));
  TD_TRY_GOTO(td_tensor_create_dims(TD_INT64, 2, (const int64_t[]){2, count}, &at));
  int64_t *a_at = TD_DATA(at, int64_t), *b_at = a_at + count;
  offsets(batch, a, count, a_at);
  offsets(batch, b, count, b_at);
  g->a = a->data;
  g->b = b->data;
  g->c = work->data;
  td_gemm_batch(ctx, s->heavy, g, count, a_at, b_at, g->m * g->n);
  if (s->scaled || s->masked) TD_TRY_GOTO(finish_scaled(ctx, work));
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  td_tensor_release(a);
  td_tensor_release(b);
  td_tensor_release(at);
  td_tensor_release(work);
  return status;
}

static td_status batch_matmul(td_kernel_ctx *ctx) {
  const state *s = ctx->state;
  td_tensor *a = td_in(ctx, 0), *b = td_in(ctx, 1);
  for (int i = 0; i < 2; i++) {
    if (td_in(ctx, i)->rank < 2) return td_invalid_argument("In[%d] ndims must be >= 2: %d", i, td_in(ctx, i)->rank);
  }
  td_shape batch;
  TD_TRY(batch_shape(s, a, b, &batch));
  td_gemm g = {.dtype = td_compute_type(td_out_type(ctx, 0)), .ta = s->ta, .tb = s->tb};
  TD_TRY(fill(&g, a, b));
  int64_t count;
  TD_TRY(td_shape_count(&batch, &count));
  return batch_run(ctx, &g, &batch, count);
}

/* Multiplications at a rate that one core of today reaches, whatever it has. */
static double work_ns(const td_kernel *k, const td_value *in) {
  const state *s = k->state;
  const td_tensor *a = in[0].tensor, *b = in[1].tensor;
  if (b->rank < 2) return 0;
  double columns = (double)b->dims[b->rank - (s->tb ? 2 : 1)];
  return (double)a->count * columns * (double)td_dtype_size((td_dtype)a->dtype) * 0.0125;
}

#define KERNEL(op_name, make, run)                                                                             \
  {                                                                                                            \
    .op = op_name, .cost = TD_COST_EXPENSIVE, .work_ns = work_ns, .state_size = sizeof(state), .create = make, \
    .compute = run                                                                                             \
  }

static const td_kernel_def kernels[] = {
    KERNEL("MatMul", matmul_create, matmul),
    KERNEL("BatchMatMul", batch_create, batch_matmul),
    KERNEL("BatchMatMulV2", batch_create, batch_matmul),
    KERNEL("BatchMatMulV3", batch_create, batch_matmul),
    KERNEL("_FusedMatMul", fused_create, matmul),
    KERNEL("_MklFusedBatchMatMulV2", scaled_create, batch_matmul),
};

TD_FAMILY(matmul, ops, kernels);

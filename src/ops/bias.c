/* BiasAdd and its gradient. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/gemm.h"

#define TYPES                                                                                                         \
  "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, " \
  "quint16, uint16, complex128, half, uint32, uint64}"
#define FORMAT "; data_format: string in {'NHWC', 'NCHW'} = 'NHWC'"

static const td_op_spec ops[] = {
    {"BiasAdd", "value: T; bias: T", "output: T", TYPES FORMAT, 0},
    {"BiasAddV1", "value: T; bias: T", "output: T", TYPES, 0},
    {"BiasAddGrad", "out_backprop: T", "output: T", TYPES FORMAT, 0},
};

typedef struct state {
  bool channels_first;
} state;

static td_status create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  if (!td_attr_find(b->node, "data_format")) return TD_STATUS_OK;
  td_str format;
  TD_TRY(td_attr_str(b->node, "data_format", &format));
  s->channels_first = td_str_is(format, "NCHW");
  return TD_STATUS_OK;
}

static td_status shape_error(const char *text, const td_tensor *t) {
  char *shape = td_tensor_shape_text(t);
  td_status s = td_invalid_argument("%s%s", text, shape);
  td_free(shape);
  return s;
}

/* The value seen as outer x channels x inner. */
typedef struct view {
  int64_t outer, channels, inner;
} view;

static td_status view_of(const state *s, const td_tensor *t, view *v) {
  if (t->rank < 2) return shape_error("Input tensor must be at least 2D: ", t);
  int axis = s->channels_first ? 1 : t->rank - 1;
  *v = (view){1, t->dims[axis], 1};
  if (!t->count) return TD_STATUS_OK;
  for (int i = 0; i < axis; i++) v->outer *= t->dims[i];
  for (int i = axis + 1; i < t->rank; i++) v->inner *= t->dims[i];
  return TD_STATUS_OK;
}

/* ---- forward ---- */

typedef struct job {
  view v;
  const void *value, *bias;
  void *out;
} job;

#define ADD(name, type)                                                                                \
  static void add_##name(void *arg, int64_t begin, int64_t end) {                                      \
    const job *j = arg;                                                                                \
    int64_t c = j->v.channels, inner = j->v.inner;                                                     \
    const type *bias = j->bias;                                                                        \
    for (int64_t o = begin; o < end; o++) {                                                            \
      const type *from = (const type *)j->value + o * c * inner;                                       \
      type *to = (type *)j->out + o * c * inner;                                                       \
      if (inner == 1) {                                                                                \
        for (int64_t i = 0; i < c; i++) to[i] = (type)(from[i] + bias[i]);                             \
        continue;                                                                                      \
      }                                                                                                \
      for (int64_t i = 0; i < c; i++) {                                                                \
        for (int64_t k = 0; k < inner; k++) to[i * inner + k] = (type)(from[i * inner + k] + bias[i]); \
      }                                                                                                \
    }                                                                                                  \
  }
ADD(f32, float)
ADD(f64, double)
ADD(c64, td_complex64)
ADD(c128, td_complex128)
ADD(u8, uint8_t)
ADD(u16, uint16_t)
ADD(u32, uint32_t)
ADD(u64, uint64_t)

#define ADD_SHORT(name, type, to_float, from_float)                                                    \
  static void add_##name(void *arg, int64_t begin, int64_t end) {                                      \
    const job *j = arg;                                                                                \
    int64_t c = j->v.channels, inner = j->v.inner;                                                     \
    const type *bias = j->bias;                                                                        \
    for (int64_t o = begin; o < end; o++) {                                                            \
      for (int64_t i = 0; i < c; i++) {                                                                \
        const type *from = (const type *)j->value + (o * c + i) * inner;                               \
        type *to = (type *)j->out + (o * c + i) * inner;                                               \
        for (int64_t k = 0; k < inner; k++) to[k] = from_float(to_float(from[k]) + to_float(bias[i])); \
      }                                                                                                \
    }                                                                                                  \
  }
ADD_SHORT(half, td_half, td_half_to_float, td_half_from_float)
ADD_SHORT(bfloat16, td_bfloat16, td_bfloat16_to_float, td_bfloat16_from_float)

static void (*adder(td_dtype t))(void *, int64_t, int64_t) {
  switch (t) {
    case TD_FLOAT:
      return add_f32;
    case TD_DOUBLE:
      return add_f64;
    case TD_COMPLEX64:
      return add_c64;
    case TD_COMPLEX128:
      return add_c128;
    case TD_HALF:
      return add_half;
    case TD_BFLOAT16:
      return add_bfloat16;
    default:
      break;
  }
  switch (td_dtype_size(t)) {
    case 1:
      return add_u8;
    case 2:
      return add_u16;
    case 4:
      return add_u32;
    default:
      return add_u64;
  }
}

static td_status bias_add(td_kernel_ctx *ctx) {
  td_tensor *value = td_in(ctx, 0), *bias = td_in(ctx, 1), *out;
  job j = {0};
  TD_TRY(view_of(ctx->state, value, &j.v));
  if (bias->rank != 1) return shape_error("Biases must be 1D: ", bias);
  if (bias->dims[0] != j.v.channels) {
    char *b = td_tensor_shape_text(bias), *v = td_tensor_shape_text(value);
    td_status s =
        td_invalid_argument("Must provide as many biases as the last dimension of the input tensor: %s vs. %s", b, v);
    td_free(b);
    td_free(v);
    return s;
  }
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &out));
  if (!out->count) return TD_STATUS_OK;
  j.value = value->data;
  j.bias = bias->data;
  j.out = out->data;
  td_ctx_parallel_for(ctx, j.v.outer, (double)(j.v.channels * j.v.inner) / 4 + 1, adder(td_in_type(ctx, 0)), &j);
  return TD_STATUS_OK;
}

/* ---- gradient ---- */

/* Sums of a channel are taken in pieces of rows, whose sums are then added: errors grow slowly, results do not depend
 * on threads. */
enum { PIECE_ROWS = 512 };

#define SUM(name, type, acc)                                                         \
  static void rows_##name(const type *from, int64_t rows, int64_t c, acc *sums) {    \
    for (int64_t i = 0; i < c; i++) sums[i] = 0;                                     \
    for (int64_t r = 0; r < rows; r++, from += c) {                                  \
      for (int64_t i = 0; i < c; i++) sums[i] += from[i];                            \
    }                                                                                \
  }                                                                                  \
  static void sum_##name(void *arg, int64_t begin, int64_t end) {                    \
    const job *j = arg; /* value: what is summed; out: a row of sums per piece */    \
    int64_t c = j->v.channels, inner = j->v.inner;                                   \
    for (int64_t p = begin; p < end; p++) {                                          \
      acc *sums = (acc *)j->out + p * c;                                             \
      int64_t from = p * PIECE_ROWS, rows = TD_MIN(PIECE_ROWS, j->v.outer - from);   \
      const type *x = (const type *)j->value + from * c * inner;                     \
      if (inner == 1) {                                                              \
        rows_##name(x, rows, c, sums);                                               \
        continue;                                                                    \
      }                                                                              \
      for (int64_t i = 0; i < c; i++) sums[i] = 0;                                   \
      for (int64_t r = 0; r < rows; r++) {                                           \
        for (int64_t i = 0; i < c; i++) {                                            \
          acc s = 0;                                                                 \
          for (int64_t k = 0; k < inner; k++) s += *x++;                             \
          sums[i] += s;                                                              \
        }                                                                            \
      }                                                                              \
    }                                                                                \
  }                                                                                  \
  static void fold_##name(const void *parts, int64_t pieces, int64_t c, void *out) { \
    for (int64_t i = 0; i < c; i++) {                                                \
      acc s = 0;                                                                     \
      for (int64_t p = 0; p < pieces; p++) s += ((const acc *)parts)[p * c + i];     \
      ((type *)out)[i] = (type)s;                                                    \
    }                                                                                \
  }
SUM(f32, float, float)
SUM(f64, double, double)
SUM(c64, td_complex64, td_complex64)
SUM(c128, td_complex128, td_complex128)
SUM(u8, uint8_t, uint32_t)
SUM(u16, uint16_t, uint32_t)
SUM(u32, uint32_t, uint32_t)
SUM(u64, uint64_t, uint64_t)

typedef struct summer {
  void (*sum)(void *, int64_t, int64_t);
  void (*fold)(const void *, int64_t, int64_t, void *);
  td_dtype acc;
} summer;

static summer summer_of(td_dtype t) {
  switch (t) {
    case TD_FLOAT:
      return (summer){sum_f32, fold_f32, TD_FLOAT};
    case TD_DOUBLE:
      return (summer){sum_f64, fold_f64, TD_DOUBLE};
    case TD_COMPLEX64:
      return (summer){sum_c64, fold_c64, TD_COMPLEX64};
    case TD_COMPLEX128:
      return (summer){sum_c128, fold_c128, TD_COMPLEX128};
    default:
      break;
  }
  switch (td_dtype_size(t)) {
    case 1:
      return (summer){sum_u8, fold_u8, TD_UINT32};
    case 2:
      return (summer){sum_u16, fold_u16, TD_UINT32};
    case 4:
      return (summer){sum_u32, fold_u32, TD_UINT32};
    default:
      return (summer){sum_u64, fold_u64, TD_UINT64};
  }
}

static td_status bias_grad(td_kernel_ctx *ctx) {
  td_tensor *value = td_in(ctx, 0), *from = NULL, *work = NULL, *parts = NULL;
  td_status status;
  job j = {0};
  TD_TRY(view_of(ctx->state, value, &j.v));
  TD_TRY_GOTO(td_floats_out(ctx, 0, 1, &j.v.channels, &work));
  if (!value->count) {
    memset(work->data, 0, work->size);
  } else {
    TD_TRY_GOTO(td_floats_of(value, &from));
    summer s = summer_of((td_dtype)from->dtype);
    int64_t pieces = (j.v.outer + PIECE_ROWS - 1) / PIECE_ROWS;
    TD_TRY_GOTO(td_tensor_create_dims(s.acc, 2, (const int64_t[]){pieces, j.v.channels}, &parts));
    j.value = from->data;
    j.out = parts->data;
    td_ctx_parallel_for(ctx, pieces, (double)TD_MIN(PIECE_ROWS, j.v.outer) * (double)(j.v.channels * j.v.inner) / 4,
                        s.sum, &j);
    s.fold(parts->data, pieces, j.v.channels, work->data);
  }
  td_floats_finish(ctx, 0, work);
  work = NULL;
  status = TD_STATUS_OK;
cleanup:
  td_tensor_release(from);
  td_tensor_release(parts);
  td_tensor_release(work);
  return status;
}

#define KERNEL(op_name, run) \
  { .op = op_name, .state_size = sizeof(state), .create = create, .compute = run }

static const td_kernel_def kernels[] = {
    KERNEL("BiasAdd", bias_add),
    KERNEL("BiasAddV1", bias_add),
    KERNEL("BiasAddGrad", bias_grad),
};

TD_FAMILY(bias, ops, kernels);

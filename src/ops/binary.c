/* Element-wise ops of two operands, with broadcasting. */
#include <stdatomic.h>

#include "base/mem.h"
#include "ops/bcast.h"
#include "ops/families.h"
#include "ops/loops/loops.h"

static const td_op_spec ops[] = {
    {"Add", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, string}", 0},
    {"AddV2", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, int64, "
     "complex64, complex128}",
     TD_OP_COMMUTATIVE | TD_OP_AGGREGATE},
    {"Sub", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, complex64, complex128, "
     "uint32, uint64}",
     0},
    {"Mul", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     TD_OP_COMMUTATIVE},
    {"MulNoNan", "x: T; y: T", "z: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Div", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     0},
    {"DivNoNan", "x: T; y: T", "z: T", "T: type in {half, float, bfloat16, double, complex64, complex128}", 0},
    {"RealDiv", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     0},
    {"TruncateDiv", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     0},
    {"FloorDiv", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     0},
    {"Mod", "x: T; y: T", "z: T", "T: type in {int32, int64, half, half, bfloat16, float, double}", 0},
    {"FloorMod", "x: T; y: T", "z: T",
     "T: type in {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, double}", 0},
    {"TruncateMod", "x: T; y: T", "z: T", "T: type in {int32, int64, bfloat16, half, float, double}", 0},
    {"Pow", "x: T; y: T", "z: T",
     "T: type in {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}", 0},
    {"Maximum", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}", 0},
    {"Minimum", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}", 0},
    {"SquaredDifference", "x: T; y: T", "z: T",
     "T: type in {bfloat16, half, float, double, int32, int64, complex64, complex128}", TD_OP_COMMUTATIVE},
    {"Atan2", "y: T; x: T", "z: T", "T: type in {bfloat16, half, float, double}", 0},
    {"NextAfter", "x1: T; x2: T", "output: T", "T: type in {double, float} = float", 0},
    {"Xdivy", "x: T; y: T", "z: T", "T: type in {half, bfloat16, float, double, complex64, complex128}", 0},
    {"Xlogy", "x: T; y: T", "z: T", "T: type in {half, bfloat16, float, double, complex64, complex128}", 0},
    {"Xlog1py", "x: T; y: T", "z: T", "T: type in {half, bfloat16, float, double, complex64, complex128}", 0},
    {"Complex", "real: T; imag: T", "out: Tout",
     "T: type in {float, double} = float; Tout: type in {complex64, complex128} = complex64", 0},
    {"BitwiseAnd", "x: T; y: T", "z: T", "T: type in {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     TD_OP_COMMUTATIVE},
    {"BitwiseOr", "x: T; y: T", "z: T", "T: type in {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     TD_OP_COMMUTATIVE},
    {"BitwiseXor", "x: T; y: T", "z: T", "T: type in {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     TD_OP_COMMUTATIVE},
    {"LeftShift", "x: T; y: T", "z: T", "T: type in {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", 0},
    {"RightShift", "x: T; y: T", "z: T", "T: type in {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", 0},
    {"Igamma", "a: T; x: T", "z: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Igammac", "a: T; x: T", "z: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Zeta", "x: T; q: T", "z: T", "T: type in {float, double}", 0},
    {"Polygamma", "a: T; x: T", "z: T", "T: type in {float, double}", 0},
    {"LogicalAnd", "x: bool; y: bool", "z: bool", NULL, TD_OP_COMMUTATIVE},
    {"LogicalOr", "x: bool; y: bool", "z: bool", NULL, TD_OP_COMMUTATIVE},
    {"Equal", "x: T; y: T", "z: bool", "T: type; incompatible_shape_error: bool = true", TD_OP_COMMUTATIVE},
    {"NotEqual", "x: T; y: T", "z: bool", "T: type; incompatible_shape_error: bool = true", TD_OP_COMMUTATIVE},
    {"Less", "x: T; y: T", "z: bool",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}", 0},
    {"LessEqual", "x: T; y: T", "z: bool",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}", 0},
    {"Greater", "x: T; y: T", "z: bool",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}", 0},
    {"GreaterEqual", "x: T; y: T", "z: bool",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}", 0},
    {"ApproximateEqual", "x: T; y: T", "z: bool",
     "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
     "qint16, quint16, uint16, complex128, half, uint32, uint64}; tolerance: float = 9.999999747378752e-06",
     TD_OP_COMMUTATIVE},
    {"SigmoidGrad", "y: T; dy: T", "z: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"TanhGrad", "y: T; dy: T", "z: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"SqrtGrad", "y: T; dy: T", "z: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"RsqrtGrad", "y: T; dy: T", "z: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"InvGrad", "y: T; dy: T", "z: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"ReciprocalGrad", "y: T; dy: T", "z: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"ReluGrad", "gradients: T; features: T", "backprops: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}", 0},
    {"Relu6Grad", "gradients: T; features: T", "backprops: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}", 0},
    {"EluGrad", "gradients: T; outputs: T", "backprops: T", "T: type in {half, bfloat16, float, double}", 0},
    {"SeluGrad", "gradients: T; outputs: T", "backprops: T", "T: type in {half, bfloat16, float, double}", 0},
    {"LeakyReluGrad", "gradients: T; features: T", "backprops: T",
     "alpha: float = 0.20000000298023224; T: type in {half, bfloat16, float, double} = float", 0},
    {"SoftplusGrad", "gradients: T; features: T", "backprops: T", "T: type in {half, bfloat16, float, double}", 0},
    {"SoftsignGrad", "gradients: T; features: T", "backprops: T", "T: type in {half, bfloat16, float, double}", 0},
};

/* ---- which loop an op runs ---- */

enum {
  SWAP = 1,       /* operands change places */
  SAME_SHAPE = 2, /* no broadcasting */
  SHAPE_TEST = 4, /* has incompatible_shape_error */
};

typedef struct op_info {
  const char *name;
  uint8_t loop, flags;
  float unit_ns;
  const char *parameter; /* a float attribute */
} op_info;

static const op_info infos[] = {
    {"Add", TD_BIN_Add, 0, 0.3f, NULL},
    {"AddV2", TD_BIN_Add, 0, 0.3f, NULL},
    {"Sub", TD_BIN_Sub, 0, 0.3f, NULL},
    {"Mul", TD_BIN_Mul, 0, 0.3f, NULL},
    {"MulNoNan", TD_BIN_MulNoNan, 0, 0.4f, NULL},
    {"Div", TD_BIN_Div, 0, 0.6f, NULL},
    {"DivNoNan", TD_BIN_DivNoNan, 0, 0.6f, NULL},
    {"RealDiv", TD_BIN_Div, 0, 0.6f, NULL},
    {"TruncateDiv", TD_BIN_TruncateDiv, 0, 2, NULL},
    {"FloorDiv", TD_BIN_FloorDiv, 0, 2, NULL},
    {"Mod", TD_BIN_TruncateMod, 0, 5, NULL},
    {"FloorMod", TD_BIN_FloorMod, 0, 5, NULL},
    {"TruncateMod", TD_BIN_TruncateMod, 0, 5, NULL},
    {"Pow", TD_BIN_Pow, 0, 5, NULL},
    {"Maximum", TD_BIN_Maximum, 0, 0.3f, NULL},
    {"Minimum", TD_BIN_Minimum, 0, 0.3f, NULL},
    {"SquaredDifference", TD_BIN_SquaredDifference, 0, 0.3f, NULL},
    {"Atan2", TD_BIN_Atan2, 0, 15, NULL},
    {"NextAfter", TD_BIN_NextAfter, 0, 3, NULL},
    {"Xdivy", TD_BIN_Xdivy, 0, 0.6f, NULL},
    {"Xlogy", TD_BIN_Xlogy, 0, 5, NULL},
    {"Xlog1py", TD_BIN_Xlog1py, 0, 10, NULL},
    {"Complex", TD_BIN_Complex, 0, 0.5f, NULL},
    {"BitwiseAnd", TD_BIN_And, 0, 0.3f, NULL},
    {"BitwiseOr", TD_BIN_Or, 0, 0.3f, NULL},
    {"BitwiseXor", TD_BIN_Xor, 0, 0.3f, NULL},
    {"LeftShift", TD_BIN_LeftShift, 0, 0.5f, NULL},
    {"RightShift", TD_BIN_RightShift, 0, 0.5f, NULL},
    {"Igamma", TD_BIN_Igamma, 0, 300, NULL},
    {"Igammac", TD_BIN_Igammac, 0, 300, NULL},
    {"Zeta", TD_BIN_Zeta, 0, 300, NULL},
    {"Polygamma", TD_BIN_Polygamma, 0, 400, NULL},
    {"LogicalAnd", TD_BIN_And, 0, 0.1f, NULL},
    {"LogicalOr", TD_BIN_Or, 0, 0.1f, NULL},
    {"Equal", TD_BIN_Equal, SHAPE_TEST, 0.3f, NULL},
    {"NotEqual", TD_BIN_NotEqual, SHAPE_TEST, 0.3f, NULL},
    {"Less", TD_BIN_Less, 0, 0.3f, NULL},
    {"LessEqual", TD_BIN_LessEqual, 0, 0.3f, NULL},
    {"Greater", TD_BIN_Less, SWAP, 0.3f, NULL},
    {"GreaterEqual", TD_BIN_LessEqual, SWAP, 0.3f, NULL},
    {"ApproximateEqual", TD_BIN_ApproximateEqual, SAME_SHAPE, 0.3f, "tolerance"},
    {"SigmoidGrad", TD_BIN_SigmoidGrad, SAME_SHAPE, 0.3f, NULL},
    {"TanhGrad", TD_BIN_TanhGrad, SAME_SHAPE, 0.3f, NULL},
    {"SqrtGrad", TD_BIN_SqrtGrad, SAME_SHAPE, 0.5f, NULL},
    {"RsqrtGrad", TD_BIN_RsqrtGrad, SAME_SHAPE, 0.4f, NULL},
    {"InvGrad", TD_BIN_InvGrad, SAME_SHAPE, 0.3f, NULL},
    {"ReciprocalGrad", TD_BIN_InvGrad, SAME_SHAPE, 0.3f, NULL},
    {"ReluGrad", TD_BIN_ReluGrad, SAME_SHAPE, 0.3f, NULL},
    {"Relu6Grad", TD_BIN_Relu6Grad, SAME_SHAPE, 0.3f, NULL},
    {"EluGrad", TD_BIN_EluGrad, SAME_SHAPE, 0.3f, NULL},
    {"SeluGrad", TD_BIN_SeluGrad, SAME_SHAPE, 0.3f, NULL},
    {"LeakyReluGrad", TD_BIN_LeakyReluGrad, SAME_SHAPE, 0.3f, "alpha"},
    {"SoftplusGrad", TD_BIN_SoftplusGrad, SAME_SHAPE, 1, NULL},
    {"SoftsignGrad", TD_BIN_SoftsignGrad, SAME_SHAPE, 0.5f, NULL},
};

typedef struct binary_state {
  td_map map;
  const op_info *info;
  bool tolerates_shapes; /* Equal and NotEqual: other shapes are an answer, not an error */
  bool is_uniform[2];    /* by input: one value, as often as it has elements */
} binary_state;

static const op_info *find_info(td_str op) {
  for (size_t i = 0; i < TD_COUNT(infos); i++)
    if (td_str_is(op, infos[i].name)) return &infos[i];
  return NULL;
}

static td_status binary_create(td_kernel_builder *b, void *state) {
  binary_state *s = state;
  s->info = find_info(b->node->op);
  if (!s->info) return td_internal("no loop for %.*s", TD_STR_ARG(b->node->op));
  if (s->info->unit_ns >= 50) b->cost = TD_COST_EXPENSIVE;
  float p = 0;
  if (s->info->parameter) TD_TRY(td_attr_float(b->node, s->info->parameter, &p));
  if (s->info->flags & SHAPE_TEST) {
    bool fails = true;
    TD_TRY(td_attr_bool(b->node, "incompatible_shape_error", &fails));
    s->tolerates_shapes = !fails;
  }
  td_dtype t = td_dtype_base(b->input_types[0]), out = td_dtype_base(b->output_types[0]);
  if (t == TD_STRING) return TD_STATUS_OK;
  if (!td_map_init_binary(&s->map, (td_binary)s->info->loop, t, out, p))
    return td_internal("no loop for %.*s of %s", TD_STR_ARG(b->node->op), td_dtype_name(t));
  return TD_STATUS_OK;
}

/* Such an operand needs no memory to be read, as gradients of means, which are large constants. */
static void binary_learn_constant(void *state, int in, const td_tensor *t) {
  ((binary_state *)state)->is_uniform[in] = td_tensor_repeats_a_value(t);
}

/* ---- running ---- */

typedef struct work {
  const td_map *map;
  const td_bcast *b; /* NULL: same shape */
  const char *x, *y;
  char *z;
  int sx, sy;
  atomic_int bad;
} work;

static void run_flat(void *arg, int64_t begin, int64_t end) {
  work *w = arg;
  const td_map *m = w->map;
  int bad = td_map_binary(m, w->x + begin * w->sx * m->in_size, w->sx, w->y + begin * w->sy * m->in_size, w->sy,
                          w->z + begin * m->out_size, end - begin);
  if (bad) atomic_fetch_or(&w->bad, bad);
}

static void run_row(void *arg, const int64_t offsets[TD_BCAST_OPERANDS], int64_t at, int64_t n) {
  work *w = arg;
  const td_map *m = w->map;
  int bad = td_map_binary(m, w->x + offsets[0] * m->in_size, w->sx, w->y + offsets[1] * m->in_size, w->sy,
                          w->z + at * m->out_size, n);
  if (bad) atomic_fetch_or(&w->bad, bad);
}

static void run_rows(void *arg, int64_t begin, int64_t end) {
  work *w = arg;
  td_bcast_run(w->b, begin, end, run_row, w);
}

static td_status loop_error(int bad) {
  if (bad & TD_LOOP_DIVIDES_BY_ZERO) return td_invalid_argument("Integer division by zero");
  if (bad & TD_LOOP_NEGATIVE_POWER) return td_invalid_argument("Integers to negative integer powers are not allowed");
  return TD_STATUS_OK;
}

static td_status shapes_differ(td_kernel_ctx *ctx) {
  char *a = td_tensor_shape_text(td_in(ctx, 0)), *b = td_tensor_shape_text(td_in(ctx, 1));
  td_status s = td_invalid_argument(
      "Inputs to operation %.*s of type %.*s must have the same size and shape.  "
      "Input 0: %s != input 1: %s",
      TD_STR_ARG(ctx->kernel->name), TD_STR_ARG(ctx->kernel->op), a, b);
  td_free(a);
  td_free(b);
  return s;
}

/* The output, in the place of an operand where that is possible. */
static td_status output(td_kernel_ctx *ctx, const td_shape *shape, int64_t count, td_tensor **out) {
  const td_tensor *x = td_in(ctx, 0);
  int in = x->count == count && td_tensor_is_exclusive(x) ? 0 : 1;
  return td_out_reuse(ctx, in, 0, shape, out);
}

static td_status run_same_shape(td_kernel_ctx *ctx) {
  binary_state *s = ctx->state;
  td_tensor *x = td_in(ctx, 0), *y = td_in(ctx, 1), *z;
  TD_TRY(td_out_reuse_like(ctx, td_tensor_is_exclusive(x) ? 0 : 1, 0, &z));
  work w = {.map = &s->map, .x = x->data, .y = y->data, .z = z->data, .sx = !s->is_uniform[0], .sy = !s->is_uniform[1]};
  if (s->info->flags & SWAP) w.x = y->data, w.y = x->data, w.sx = !s->is_uniform[1], w.sy = !s->is_uniform[0];
  td_ctx_parallel_for(ctx, z->count, s->info->unit_ns, run_flat, &w);
  return loop_error(atomic_load(&w.bad));
}

static td_status run_broadcast(td_kernel_ctx *ctx) {
  binary_state *s = ctx->state;
  const td_tensor *in[2] = {td_in(ctx, 0), td_in(ctx, 1)};
  td_bcast b;
  TD_TRY(td_bcast_init(&b, 2, in));
  td_tensor *z;
  TD_TRY(output(ctx, &b.shape, b.count, &z));
  work w = {.map = &s->map, .b = &b, .x = in[0]->data, .y = in[1]->data, .z = z->data};
  w.sx = td_bcast_inner_stride(&b, 0);
  w.sy = td_bcast_inner_stride(&b, 1);
  if (s->info->flags & SWAP) {
    w.x = in[1]->data, w.y = in[0]->data;
    int64_t *t = b.strides[0];
    b.strides[0] = b.strides[1], b.strides[1] = t;
    int k = w.sx;
    w.sx = w.sy, w.sy = k;
  }
  td_ctx_parallel_for(ctx, z->count, s->info->unit_ns, run_rows, &w);
  return loop_error(atomic_load(&w.bad));
}

/* Equal and NotEqual of shapes that do not fit: one answer for the whole. */
static td_status answer_shapes(td_kernel_ctx *ctx) {
  binary_state *s = ctx->state;
  td_tensor *z;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &z));
  *TD_DATA(z, uint8_t) = s->info->loop == TD_BIN_NotEqual;
  return TD_STATUS_OK;
}

static bool shapes_fit(const td_tensor *x, const td_tensor *y) {
  for (int i = 1; i <= x->rank && i <= y->rank; i++) {
    int64_t a = x->dims[x->rank - i], b = y->dims[y->rank - i];
    if (a != b && a != 1 && b != 1) return false;
  }
  return true;
}

static td_status binary_compute(td_kernel_ctx *ctx) {
  binary_state *s = ctx->state;
  const td_tensor *x = td_in(ctx, 0), *y = td_in(ctx, 1);
  if (td_tensor_same_shape(x, y)) return run_same_shape(ctx);
  if (s->info->flags & SAME_SHAPE) return shapes_differ(ctx);
  if (s->tolerates_shapes && !shapes_fit(x, y)) return answer_shapes(ctx);
  return run_broadcast(ctx);
}

/* ---- strings ---- */

typedef struct string_work {
  const td_string *x, *y;
  td_tensor *z;
  int sx, sy;
  bool negate;
  td_status status;
} string_work;

static void add_strings(void *arg, const int64_t offsets[TD_BCAST_OPERANDS], int64_t at, int64_t n) {
  string_work *w = arg;
  td_string *z = TD_DATA(w->z, td_string);
  for (int64_t i = 0; i < n && !w->status; i++) {
    const td_string *a = &w->x[offsets[0] + i * w->sx], *b = &w->y[offsets[1] + i * w->sy];
    size_t size = a->size + b->size;
    if (!size) continue;
    char *text = td_try_malloc(size);
    if (!text) {
      w->status = td_resource_exhausted("no memory for a string of %zu bytes", size);
      return;
    }
    if (a->size) memcpy(text, a->data, a->size);
    if (b->size) memcpy(text + a->size, b->data, b->size);
    td_string_take(&z[at + i], text, size);
  }
}

static void compare_strings(void *arg, const int64_t offsets[TD_BCAST_OPERANDS], int64_t at, int64_t n) {
  string_work *w = arg;
  uint8_t *z = TD_DATA(w->z, uint8_t);
  for (int64_t i = 0; i < n; i++) {
    const td_string *a = &w->x[offsets[0] + i * w->sx], *b = &w->y[offsets[1] + i * w->sy];
    z[at + i] = td_str_eq(td_string_view(a), td_string_view(b)) != w->negate;
  }
}

static td_status run_strings(td_kernel_ctx *ctx, td_bcast_fn fn) {
  binary_state *s = ctx->state;
  const td_tensor *in[2] = {td_in(ctx, 0), td_in(ctx, 1)};
  if (s->tolerates_shapes && !shapes_fit(in[0], in[1])) return answer_shapes(ctx);
  td_bcast b;
  TD_TRY(td_bcast_init(&b, 2, in));
  string_work w = {.x = in[0]->data, .y = in[1]->data, .negate = s->info->loop == TD_BIN_NotEqual};
  TD_TRY(td_out_alloc(ctx, 0, &b.shape, &w.z));
  w.sx = td_bcast_inner_stride(&b, 0);
  w.sy = td_bcast_inner_stride(&b, 1);
  td_bcast_run(&b, 0, b.count, fn, &w);
  return w.status;
}

static td_status string_add_compute(td_kernel_ctx *ctx) { return run_strings(ctx, add_strings); }
static td_status string_compare_compute(td_kernel_ctx *ctx) { return run_strings(ctx, compare_strings); }

#define BINARY(op_name, set)                                                                           \
  {                                                                                                    \
    .op = op_name, .types = {{"T", set}}, .state_size = sizeof(binary_state), .create = binary_create, \
    .learn_constant = binary_learn_constant, .compute = binary_compute                                 \
  }
#define BINARY_BOOL(op_name) \
  { .op = op_name, .state_size = sizeof(binary_state), .create = binary_create, .compute = binary_compute }
#define STRING(op_name, fn)                                                                                          \
  {                                                                                                                  \
    .op = op_name, .types = {{"T", TD_SET(TD_STRING)}}, .state_size = sizeof(binary_state), .create = binary_create, \
    .compute = fn                                                                                                    \
  }
#define FLOATS_AND_COMPLEX (TD_SET_FLOATING | TD_SET_COMPLEX)
#define FLOAT_DOUBLE       (TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE))

static const td_kernel_def kernels[] = {
    BINARY("Add", TD_SET_NUMBER),
    STRING("Add", string_add_compute),
    BINARY("AddV2", TD_SET_NUMBER),
    BINARY("Sub", TD_SET_NUMBER),
    BINARY("Mul", TD_SET_NUMBER),
    BINARY("MulNoNan", FLOATS_AND_COMPLEX),
    BINARY("Div", TD_SET_NUMBER),
    BINARY("DivNoNan", FLOATS_AND_COMPLEX),
    BINARY("RealDiv", FLOATS_AND_COMPLEX),
    BINARY("TruncateDiv", TD_SET_REAL),
    BINARY("FloorDiv", TD_SET_REAL),
    BINARY("Mod", TD_SET_FLOATING | TD_SET(TD_INT32) | TD_SET(TD_INT64)),
    BINARY("FloorMod", TD_SET_REAL),
    BINARY("TruncateMod", TD_SET_FLOATING | TD_SET(TD_INT32) | TD_SET(TD_INT64)),
    BINARY("Pow", FLOATS_AND_COMPLEX | TD_SET_SIGNED),
    BINARY("Maximum", TD_SET_REAL),
    BINARY("Minimum", TD_SET_REAL),
    BINARY("SquaredDifference", FLOATS_AND_COMPLEX | TD_SET(TD_INT32) | TD_SET(TD_INT64)),
    BINARY("Atan2", TD_SET_FLOATING),
    BINARY("NextAfter", FLOAT_DOUBLE),
    BINARY("Xdivy", FLOATS_AND_COMPLEX),
    BINARY("Xlogy", FLOATS_AND_COMPLEX),
    BINARY("Xlog1py", FLOATS_AND_COMPLEX),
    {.op = "Complex",
     .types = {{"T", TD_SET(TD_FLOAT)}, {"Tout", TD_SET(TD_COMPLEX64)}},
     .state_size = sizeof(binary_state),
     .create = binary_create,
     .compute = binary_compute},
    {.op = "Complex",
     .types = {{"T", TD_SET(TD_DOUBLE)}, {"Tout", TD_SET(TD_COMPLEX128)}},
     .state_size = sizeof(binary_state),
     .create = binary_create,
     .compute = binary_compute},
    BINARY("BitwiseAnd", TD_SET_INTEGER),
    BINARY("BitwiseOr", TD_SET_INTEGER),
    BINARY("BitwiseXor", TD_SET_INTEGER),
    BINARY("LeftShift", TD_SET_INTEGER),
    BINARY("RightShift", TD_SET_INTEGER),
    BINARY("Igamma", TD_SET_FLOATING),
    BINARY("Igammac", TD_SET_FLOATING),
    BINARY("Zeta", FLOAT_DOUBLE),
    BINARY("Polygamma", FLOAT_DOUBLE),
    BINARY_BOOL("LogicalAnd"),
    BINARY_BOOL("LogicalOr"),
    BINARY("Equal", TD_SET_NUMBER | TD_SET_QUANTIZED | TD_SET(TD_BOOL)),
    STRING("Equal", string_compare_compute),
    BINARY("NotEqual", TD_SET_NUMBER | TD_SET_QUANTIZED | TD_SET(TD_BOOL)),
    STRING("NotEqual", string_compare_compute),
    BINARY("Less", TD_SET_REAL),
    BINARY("LessEqual", TD_SET_REAL),
    BINARY("Greater", TD_SET_REAL),
    BINARY("GreaterEqual", TD_SET_REAL),
    BINARY("ApproximateEqual", FLOAT_DOUBLE),
    BINARY("SigmoidGrad", FLOATS_AND_COMPLEX),
    BINARY("TanhGrad", FLOATS_AND_COMPLEX),
    BINARY("SqrtGrad", FLOATS_AND_COMPLEX),
    BINARY("RsqrtGrad", FLOATS_AND_COMPLEX),
    BINARY("InvGrad", FLOATS_AND_COMPLEX),
    BINARY("ReciprocalGrad", FLOATS_AND_COMPLEX),
    BINARY("ReluGrad", TD_SET_REAL),
    BINARY("Relu6Grad", TD_SET_REAL),
    BINARY("EluGrad", TD_SET_FLOATING),
    BINARY("SeluGrad", TD_SET_FLOATING),
    BINARY("LeakyReluGrad", TD_SET_FLOATING),
    BINARY("SoftplusGrad", TD_SET_FLOATING),
    BINARY("SoftsignGrad", TD_SET_FLOATING),
};

TD_FAMILY(binary, ops, kernels);

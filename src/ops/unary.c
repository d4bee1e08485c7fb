/* Element-wise ops of one operand: mathematics, activations, clipping, checks of numbers. */
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/loops/loops.h"

static const td_op_spec ops[] = {
    {"Abs", "x: T", "y: T", "T: type in {bfloat16, half, float, double, int8, int16, int32, int64}", 0},
    {"ComplexAbs", "x: T", "y: Tout",
     "T: type in {complex64, complex128} = complex64; Tout: type in {float, double} = float", 0},
    {"Neg", "x: T", "y: T",
     "T: type in {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}", 0},
    {"Inv", "x: T", "y: T",
     "T: type in {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}", 0},
    {"Reciprocal", "x: T", "y: T",
     "T: type in {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}", 0},
    {"Square", "x: T", "y: T",
     "T: type in {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
     "complex64, complex128}",
     0},
    {"Sqrt", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Rsqrt", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Exp", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Expm1", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Log", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Log1p", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Sin", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Cos", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Tan", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Sinh", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Cosh", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Tanh", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Asin", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Acos", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Atan", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Asinh", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Acosh", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Atanh", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Sigmoid", "x: T", "y: T", "T: type in {bfloat16, half, float, double, complex64, complex128}", 0},
    {"Sign", "x: T", "y: T",
     "T: type in {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}", 0},
    {"Floor", "x: T", "y: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Ceil", "x: T", "y: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Round", "x: T", "y: T",
     "T: type in {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}", 0},
    {"Rint", "x: T", "y: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Erf", "x: T", "y: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Erfc", "x: T", "y: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Erfinv", "x: T", "y: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Ndtri", "x: T", "y: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Lgamma", "x: T", "y: T", "T: type in {bfloat16, half, float, double}", 0},
    {"Digamma", "x: T", "y: T", "T: type in {bfloat16, half, float, double}", 0},
    {"IsNan", "x: T", "y: bool", "T: type in {bfloat16, half, float, double}", 0},
    {"IsInf", "x: T", "y: bool", "T: type in {bfloat16, half, float, double}", 0},
    {"IsFinite", "x: T", "y: bool", "T: type in {bfloat16, half, float, double}", 0},
    {"LogicalNot", "x: bool", "y: bool", NULL, 0},
    {"Invert", "x: T", "y: T", "T: type in {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", 0},
    {"PopulationCount", "x: T", "y: uint8", "T: type in {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", 0},
    {"Conj", "input: T", "output: T", "T: type in {complex64, complex128, variant} = complex64", 0},
    {"Real", "input: T", "output: Tout",
     "T: type in {complex64, complex128} = complex64; Tout: type in {float, double} = float", 0},
    {"Imag", "input: T", "output: Tout",
     "T: type in {complex64, complex128} = complex64; Tout: type in {float, double} = float", 0},
    {"Angle", "input: T", "output: Tout",
     "T: type in {complex64, complex128} = complex64; Tout: type in {float, double} = float", 0},
    {"Relu", "features: T", "activations: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8}", 0},
    {"Relu6", "features: T", "activations: T",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}", 0},
    {"Elu", "features: T", "activations: T", "T: type in {half, bfloat16, float, double}", 0},
    {"Selu", "features: T", "activations: T", "T: type in {half, bfloat16, float, double}", 0},
    {"LeakyRelu", "features: T", "activations: T",
     "alpha: float = 0.20000000298023224; T: type in {half, bfloat16, float, double} = float", 0},
    {"Softplus", "features: T", "activations: T", "T: type in {half, bfloat16, float, double}", 0},
    {"Softsign", "features: T", "activations: T", "T: type in {half, bfloat16, float, double}", 0},
    {"_UnaryOpsComposition", "x: T", "y: T", "T: type in {float, half, double}; op_names: list(string)", 0},
    {"ClipByValue", "t: T; clip_value_min: T; clip_value_max: T", "output: T",
     "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
     "qint16, quint16, uint16, complex128, half, uint32, uint64}",
     0},
    {"CheckNumerics", "tensor: T", "output: T", "T: type in {bfloat16, half, float, double}; message: string",
     TD_OP_STATEFUL},
    {"CheckNumericsV2", "tensor: T", "output: T", "T: type in {bfloat16, half, float, double}; message: string",
     TD_OP_STATEFUL},
};

/* ---- which loop an op runs ---- */

typedef struct op_info {
  const char *name;
  uint8_t loop;
  float unit_ns;
  const char *parameter; /* a float attribute */
} op_info;

static const op_info infos[] = {
    {"Abs", TD_UN_Abs, 0.3f, NULL},
    {"ComplexAbs", TD_UN_Abs, 0.3f, NULL},
    {"Neg", TD_UN_Neg, 0.3f, NULL},
    {"Inv", TD_UN_Inv, 1, NULL},
    {"Reciprocal", TD_UN_Inv, 1, NULL},
    {"Square", TD_UN_Square, 0.3f, NULL},
    {"Sqrt", TD_UN_Sqrt, 1, NULL},
    {"Rsqrt", TD_UN_Rsqrt, 1, NULL},
    {"Exp", TD_UN_Exp, 1, NULL},
    {"Expm1", TD_UN_Expm1, 1, NULL},
    {"Log", TD_UN_Log, 1, NULL},
    {"Log1p", TD_UN_Log1p, 1, NULL},
    {"Sin", TD_UN_Sin, 1, NULL},
    {"Cos", TD_UN_Cos, 1, NULL},
    {"Tan", TD_UN_Tan, 15, NULL},
    {"Sinh", TD_UN_Sinh, 15, NULL},
    {"Cosh", TD_UN_Cosh, 15, NULL},
    {"Tanh", TD_UN_Tanh, 1, NULL},
    {"Asin", TD_UN_Asin, 15, NULL},
    {"Acos", TD_UN_Acos, 15, NULL},
    {"Atan", TD_UN_Atan, 15, NULL},
    {"Asinh", TD_UN_Asinh, 15, NULL},
    {"Acosh", TD_UN_Acosh, 15, NULL},
    {"Atanh", TD_UN_Atanh, 15, NULL},
    {"Sigmoid", TD_UN_Sigmoid, 1, NULL},
    {"Sign", TD_UN_Sign, 0.3f, NULL},
    {"Floor", TD_UN_Floor, 0.3f, NULL},
    {"Ceil", TD_UN_Ceil, 0.3f, NULL},
    {"Round", TD_UN_Rint, 0.3f, NULL},
    {"Rint", TD_UN_Rint, 0.3f, NULL},
    {"Erf", TD_UN_Erf, 15, NULL},
    {"Erfc", TD_UN_Erfc, 15, NULL},
    {"Erfinv", TD_UN_Erfinv, 15, NULL},
    {"Ndtri", TD_UN_Ndtri, 15, NULL},
    {"Lgamma", TD_UN_Lgamma, 15, NULL},
    {"Digamma", TD_UN_Digamma, 15, NULL},
    {"IsNan", TD_UN_IsNan, 0.3f, NULL},
    {"IsInf", TD_UN_IsInf, 0.3f, NULL},
    {"IsFinite", TD_UN_IsFinite, 0.3f, NULL},
    {"LogicalNot", TD_UN_LogicalNot, 0.3f, NULL},
    {"Invert", TD_UN_Invert, 0.3f, NULL},
    {"PopulationCount", TD_UN_PopulationCount, 1, NULL},
    {"Conj", TD_UN_Conj, 0.3f, NULL},
    {"Real", TD_UN_Real, 0.3f, NULL},
    {"Imag", TD_UN_Imag, 0.3f, NULL},
    {"Angle", TD_UN_Angle, 15, NULL},
    {"Relu", TD_UN_Relu, 0.3f, NULL},
    {"Relu6", TD_UN_Relu6, 0.3f, NULL},
    {"Elu", TD_UN_Elu, 1, NULL},
    {"Selu", TD_UN_Selu, 1, NULL},
    {"LeakyRelu", TD_UN_LeakyRelu, 0.3f, "alpha"},
    {"Softplus", TD_UN_Softplus, 1, NULL},
    {"Softsign", TD_UN_Softsign, 1, NULL},
};

static const op_info *find_info(td_str op) {
  for (size_t i = 0; i < TD_COUNT(infos); i++)
    if (td_str_is(op, infos[i].name)) return &infos[i];
  return NULL;
}

typedef struct unary_state {
  td_map map;
  float unit_ns;
} unary_state;

static td_status unary_create(td_kernel_builder *b, void *state) {
  unary_state *s = state;
  const op_info *info = find_info(b->node->op);
  if (!info) return td_internal("no loop for %.*s", TD_STR_ARG(b->node->op));
  float p = 0;
  if (info->parameter) TD_TRY(td_attr_float(b->node, info->parameter, &p));
  s->unit_ns = info->unit_ns;
  td_dtype t = td_dtype_base(b->input_types[0]), out = td_dtype_base(b->output_types[0]);
  if (!td_map_init_unary(&s->map, (td_unary)info->loop, t, out, p))
    return td_internal("no loop for %.*s of %s", TD_STR_ARG(b->node->op), td_dtype_name(t));
  return TD_STATUS_OK;
}

/* ---- running ---- */

typedef struct work {
  const void *state;
  const char *x;
  char *z;
} work;

static void run(void *arg, int64_t begin, int64_t end) {
  work *w = arg;
  const td_map *m = &((const unary_state *)w->state)->map;
  td_map_unary(m, w->x + begin * m->in_size, w->z + begin * m->out_size, end - begin);
}

static td_status unary_compute(td_kernel_ctx *ctx) {
  unary_state *s = ctx->state;
  td_tensor *x = td_in(ctx, 0), *z;
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &z));
  work w = {s, x->data, z->data};
  td_ctx_parallel_for(ctx, z->count, s->unit_ns, run, &w);
  return TD_STATUS_OK;
}

/* Ops that change nothing for some types. */
static td_status forward_compute(td_kernel_ctx *ctx) {
  td_out_forward(ctx, 0, 0);
  return TD_STATUS_OK;
}

/* ---- compositions (what TensorFlow's rewriter makes of chains) ---- */

enum { COMPOSITION_BLOCK = 512, COMPOSITION_MAX = 1024 };

typedef struct composition_state {
  td_unary_fn *fns;
  size_t count;
  td_convert_fn widen, narrow;
  int size; /* bytes of an element */
} composition_state;

static td_status composition_create(td_kernel_builder *b, void *state) {
  composition_state *s = state;
  const Pb__AttrValue__ListValue *list;
  TD_TRY(td_attr_list(b->node, "op_names", &list));
  if (!list->n_s || list->n_s > COMPOSITION_MAX)
    return td_invalid_argument("Unary op composition must have at least one op and at most %d, not %zu",
                               COMPOSITION_MAX, list->n_s);
  td_dtype t = td_dtype_base(b->input_types[0]);
  s->size = (int)td_dtype_size(t);
  if (t == TD_HALF) {
    s->widen = td_half_loops_get()->half_to_float;
    s->narrow = td_half_loops_get()->float_to_half;
    t = TD_FLOAT;
  }
  s->fns = td_new_array(td_unary_fn, list->n_s);
  for (size_t i = 0; i < list->n_s; i++) {
    td_str name = {(const char *)list->s[i].data, list->s[i].len};
    const op_info *info = find_info(name);
    td_unary_fn fn = info && !info->parameter && strncmp(info->name, "Is", 2) ? td_unary_loop(info->loop, t) : NULL;
    if (!fn) return td_invalid_argument("Do not have a compute function registered for op: %.*s", TD_STR_ARG(name));
    s->fns[s->count++] = fn;
  }
  return TD_STATUS_OK;
}

static void composition_destroy(void *state) { td_free(((composition_state *)state)->fns); }

static void run_composition(void *arg, int64_t begin, int64_t end) {
  work *w = arg;
  const composition_state *s = w->state;
  _Alignas(64) float block[COMPOSITION_BLOCK];
  for (int64_t at = begin; at < end; at += COMPOSITION_BLOCK) {
    int64_t n = TD_MIN(end - at, COMPOSITION_BLOCK);
    const void *x = w->x + at * s->size;
    void *z = w->z + at * s->size;
    void *to = s->widen ? (void *)block : z;
    if (s->widen) {
      s->widen(x, block, n);
      x = block;
    }
    for (size_t i = 0; i < s->count; i++) {
      s->fns[i](x, to, n, 0);
      x = to;
    }
    if (s->narrow) s->narrow(block, z, n);
  }
}

static td_status composition_compute(td_kernel_ctx *ctx) {
  composition_state *s = ctx->state;
  td_tensor *x = td_in(ctx, 0), *z;
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &z));
  work w = {s, x->data, z->data};
  td_ctx_parallel_for(ctx, z->count, (double)s->count * 2, run_composition, &w);
  return TD_STATUS_OK;
}

/* ---- ClipByValue ---- */

typedef struct clip_state {
  td_map lower, upper; /* max with the minimum, then min with the maximum */
} clip_state;

static td_status clip_create(td_kernel_builder *b, void *state) {
  clip_state *s = state;
  td_dtype t = td_dtype_base(b->input_types[0]);
  if (!td_map_init_binary(&s->lower, TD_BIN_Maximum, t, t, 0) ||
      !td_map_init_binary(&s->upper, TD_BIN_Minimum, t, t, 0))
    return td_internal("no loop for ClipByValue of %s", td_dtype_name(t));
  return TD_STATUS_OK;
}

typedef struct clip_work {
  clip_state *s;
  const char *t, *lo, *hi;
  char *z;
  int lo_stride, hi_stride;
} clip_work;

static void run_clip(void *arg, int64_t begin, int64_t end) {
  enum { BLOCK = 2048 }; /* small enough that the second pass finds the first one's results in the cache */
  clip_work *w = arg;
  int size = w->s->lower.in_size;
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t n = TD_MIN(end - at, BLOCK), from = at * size;
    td_map_binary(&w->s->lower, w->t + from, 1, w->lo + from * w->lo_stride, w->lo_stride, w->z + from, n);
    td_map_binary(&w->s->upper, w->z + from, 1, w->hi + from * w->hi_stride, w->hi_stride, w->z + from, n);
  }
}

static td_status clip_compute(td_kernel_ctx *ctx) {
  td_tensor *t = td_in(ctx, 0), *lo = td_in(ctx, 1), *hi = td_in(ctx, 2), *z;
  bool lo_full = td_tensor_same_shape(lo, t), hi_full = td_tensor_same_shape(hi, t);
  if ((lo->rank && !lo_full) || (hi->rank && !hi_full)) {
    char *a = td_tensor_shape_text(t), *b = td_tensor_shape_text(lo), *c = td_tensor_shape_text(hi);
    td_status s = td_invalid_argument(
        "clip_value_min and clip_value_max must be either of the same shape as input, or "
        "a scalar. input shape: %sclip_value_min shape: %sclip_value_max shape: %s",
        a, b, c);
    td_free(a);
    td_free(b);
    td_free(c);
    return s;
  }
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &z));
  clip_work w = {ctx->state, t->data, lo->data, hi->data, z->data, lo->rank != 0, hi->rank != 0};
  td_ctx_parallel_for(ctx, z->count, 0.6, run_clip, &w);
  return TD_STATUS_OK;
}

/* ---- CheckNumerics ---- */

enum { HAS_NAN = 1, HAS_PLUS_INF = 2, HAS_MINUS_INF = 4 };

typedef struct check_state {
  char *message;
  bool signs; /* the second version tells +Inf from -Inf */
} check_state;

static td_status check_create(td_kernel_builder *b, void *state) {
  check_state *s = state;
  td_str message;
  TD_TRY(td_attr_str(b->node, "message", &message));
  s->message = td_strndup(message.data, message.size);
  s->signs = td_str_is(b->node->op, "CheckNumericsV2");
  return TD_STATUS_OK;
}

static void check_destroy(void *state) { td_free(((check_state *)state)->message); }

typedef struct check_work {
  const td_tensor *t;
  atomic_int found;
} check_work;

/* Exponent all ones: infinite, or with a fraction NaN. */
#define CHECK(type, exponent, sign)                                                               \
  {                                                                                               \
    const type *x = w->t->data;                                                                   \
    for (int64_t i = begin; i < end; i++) {                                                       \
      type magnitude = x[i] & (type) ~(sign);                                                     \
      if (__builtin_expect(magnitude >= (exponent), 0))                                           \
        found |= magnitude > (exponent) ? HAS_NAN : x[i] & (sign) ? HAS_MINUS_INF : HAS_PLUS_INF; \
    }                                                                                             \
  }

static void run_check(void *arg, int64_t begin, int64_t end) {
  check_work *w = arg;
  int found = 0;
  switch ((int)w->t->dtype) {
    case TD_HALF:
      CHECK(uint16_t, 0x7c00u, 0x8000u) break;
    case TD_BFLOAT16:
      CHECK(uint16_t, 0x7f80u, 0x8000u) break;
    case TD_FLOAT:
      CHECK(uint32_t, 0x7f800000u, 0x80000000u) break;
    default:
      CHECK(uint64_t, 0x7ff0000000000000u, 0x8000000000000000u) break;
  }
  if (found) atomic_fetch_or(&w->found, found);
}

static td_status check_compute(td_kernel_ctx *ctx) {
  check_state *s = ctx->state;
  check_work w = {.t = td_in(ctx, 0)};
  td_ctx_parallel_for(ctx, w.t->count, 0.5, run_check, &w);
  int found = atomic_load(&w.found);
  if (!found) return forward_compute(ctx);
  bool inf = found & (HAS_PLUS_INF | HAS_MINUS_INF), nan = found & HAS_NAN;
  if (!s->signs)
    return td_invalid_argument("%s : Tensor had %s values", s->message,
                               inf && nan ? "Inf and NaN"
                               : inf      ? "Inf"
                                          : "NaN");
  const char *parts[3];
  int n = 0;
  if (found & HAS_MINUS_INF) parts[n++] = "-Inf";
  if (found & HAS_PLUS_INF) parts[n++] = "+Inf";
  if (nan) parts[n++] = "NaN";
  return td_invalid_argument("%s : Tensor had %s%s%s%s%s values", s->message, parts[0],
                             n == 3   ? ", "
                             : n == 2 ? " and "
                                      : "",
                             n > 1 ? parts[1] : "", n == 3 ? ", and " : "", n > 2 ? parts[2] : "");
}

#define UNARY(op_name, set)                                                                          \
  {                                                                                                  \
    .op = op_name, .types = {{"T", set}}, .state_size = sizeof(unary_state), .create = unary_create, \
    .compute = unary_compute                                                                         \
  }
#define TO_REAL(op_name, from, to)                                                                          \
  {                                                                                                         \
    .op = op_name, .types = {{"T", TD_SET(from)}, {"Tout", TD_SET(to)}}, .state_size = sizeof(unary_state), \
    .create = unary_create, .compute = unary_compute                                                        \
  }
#define FORWARD(op_name, set) \
  { .op = op_name, .types = {{"T", set}}, .cost = TD_COST_CHEAP, .compute = forward_compute }
#define FLOATS_AND_COMPLEX (TD_SET_FLOATING | TD_SET_COMPLEX)
#define CHECK_NUMERICS(op_name)                                                                                  \
  {                                                                                                              \
    .op = op_name, .types = {{"T", TD_SET_FLOATING}}, .state_size = sizeof(check_state), .create = check_create, \
    .destroy = check_destroy, .compute = check_compute                                                           \
  }

static const td_kernel_def kernels[] = {
    UNARY("Abs", TD_SET_FLOATING | TD_SET_SIGNED),
    UNARY("Neg", FLOATS_AND_COMPLEX | TD_SET_SIGNED),
    UNARY("Sign", FLOATS_AND_COMPLEX | TD_SET_SIGNED),
    UNARY("Square", TD_SET_NUMBER),
    UNARY("Round", TD_SET_FLOATING),
    UNARY("Invert", TD_SET_INTEGER),
    UNARY("PopulationCount", TD_SET_INTEGER),
    UNARY("Relu", TD_SET_FLOATING | TD_SET_SIGNED),
    UNARY("Relu6", TD_SET_REAL),
    UNARY("Inv", FLOATS_AND_COMPLEX),
    UNARY("Reciprocal", FLOATS_AND_COMPLEX),
    UNARY("Sqrt", FLOATS_AND_COMPLEX),
    UNARY("Rsqrt", FLOATS_AND_COMPLEX),
    UNARY("Exp", FLOATS_AND_COMPLEX),
    UNARY("Expm1", FLOATS_AND_COMPLEX),
    UNARY("Log", FLOATS_AND_COMPLEX),
    UNARY("Log1p", FLOATS_AND_COMPLEX),
    UNARY("Sin", FLOATS_AND_COMPLEX),
    UNARY("Cos", FLOATS_AND_COMPLEX),
    UNARY("Tan", FLOATS_AND_COMPLEX),
    UNARY("Sinh", FLOATS_AND_COMPLEX),
    UNARY("Cosh", FLOATS_AND_COMPLEX),
    UNARY("Tanh", FLOATS_AND_COMPLEX),
    UNARY("Asin", FLOATS_AND_COMPLEX),
    UNARY("Acos", FLOATS_AND_COMPLEX),
    UNARY("Atan", FLOATS_AND_COMPLEX),
    UNARY("Asinh", FLOATS_AND_COMPLEX),
    UNARY("Acosh", FLOATS_AND_COMPLEX),
    UNARY("Atanh", FLOATS_AND_COMPLEX),
    UNARY("Sigmoid", FLOATS_AND_COMPLEX),
    UNARY("Floor", TD_SET_FLOATING),
    UNARY("Ceil", TD_SET_FLOATING),
    UNARY("Rint", TD_SET_FLOATING),
    UNARY("Erf", TD_SET_FLOATING),
    UNARY("Erfc", TD_SET_FLOATING),
    UNARY("Erfinv", TD_SET_FLOATING),
    UNARY("Ndtri", TD_SET_FLOATING),
    UNARY("Lgamma", TD_SET_FLOATING),
    UNARY("Digamma", TD_SET_FLOATING),
    UNARY("IsNan", TD_SET_FLOATING),
    UNARY("IsInf", TD_SET_FLOATING),
    UNARY("IsFinite", TD_SET_FLOATING),
    UNARY("Elu", TD_SET_FLOATING),
    UNARY("Selu", TD_SET_FLOATING),
    UNARY("LeakyRelu", TD_SET_FLOATING),
    UNARY("Softplus", TD_SET_FLOATING),
    UNARY("Softsign", TD_SET_FLOATING),
    TO_REAL("ComplexAbs", TD_COMPLEX64, TD_FLOAT),
    TO_REAL("ComplexAbs", TD_COMPLEX128, TD_DOUBLE),
    TO_REAL("Real", TD_COMPLEX64, TD_FLOAT),
    TO_REAL("Real", TD_COMPLEX128, TD_DOUBLE),
    TO_REAL("Imag", TD_COMPLEX64, TD_FLOAT),
    TO_REAL("Imag", TD_COMPLEX128, TD_DOUBLE),
    TO_REAL("Angle", TD_COMPLEX64, TD_FLOAT),
    TO_REAL("Angle", TD_COMPLEX128, TD_DOUBLE),
    {.op = "LogicalNot", .state_size = sizeof(unary_state), .create = unary_create, .compute = unary_compute},
    FORWARD("Round", TD_SET_SIGNED),
    FORWARD("Relu", TD_SET_UNSIGNED),
    UNARY("Conj", TD_SET_COMPLEX),
    FORWARD("Conj", TD_SET(TD_VARIANT)),
    {.op = "_UnaryOpsComposition",
     .types = {{"T", TD_SET_FLOATING}},
     .state_size = sizeof(composition_state),
     .create = composition_create,
     .destroy = composition_destroy,
     .compute = composition_compute},
    {.op = "ClipByValue",
     .types = {{"T", TD_SET_REAL}},
     .state_size = sizeof(clip_state),
     .create = clip_create,
     .compute = clip_compute},
    CHECK_NUMERICS("CheckNumerics"),
    CHECK_NUMERICS("CheckNumericsV2"),
};

TD_FAMILY(unary, ops, kernels);

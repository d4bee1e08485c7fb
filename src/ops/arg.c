/* Where the largest or smallest element of a dimension is: ArgMax, ArgMin. */
#include <math.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/loops/reduce.h"
#include "ops/ordered.h"

static const td_op_spec ops[] = {
    {"ArgMax", "input: T; dimension: Tidx", "output: output_type",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, "
     "quint8, qint32, qint16, quint16, bool}; Tidx: type in {int16, int32, int64} = int32; output_type: type in "
     "{int16, uint16, int32, int64} = int64",
     0},
    {"ArgMin", "input: T; dimension: Tidx", "output: output_type",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, "
     "quint8, qint32, qint16, quint16, bool}; Tidx: type in {int32, int64} = int32; output_type: type in {int32, "
     "int64} = int64",
     0},
};

/* Index of the first best of n elements, `stride` apart. A NaN is never better than anything; like TensorFlow, a
 * search among nothing but NaN and the worst infinity ends at 0. */
typedef int64_t (*search_fn)(const void *x, int64_t n, int64_t stride);

#define SEARCH(tag, c, key, conv)                                       \
  static int64_t max_##tag(const void *xv, int64_t n, int64_t stride) { \
    const c *x = xv;                                                    \
    int64_t best = 0;                                                   \
    key v = conv(x[0]);                                                 \
    for (int64_t i = 1; i < n; i++) {                                   \
      key k = conv(x[i * stride]);                                      \
      if (k > v || (v != v && k == k)) v = k, best = i;                 \
    }                                                                   \
    return best;                                                        \
  }                                                                     \
  static int64_t min_##tag(const void *xv, int64_t n, int64_t stride) { \
    const c *x = xv;                                                    \
    int64_t best = 0;                                                   \
    key v = conv(x[0]);                                                 \
    for (int64_t i = 1; i < n; i++) {                                   \
      key k = conv(x[i * stride]);                                      \
      if (k < v || (v != v && k == k)) v = k, best = i;                 \
    }                                                                   \
    return best;                                                        \
  }
#pragma GCC diagnostic ignored "-Wtautological-compare"
TD_ORDERED_TYPES(SEARCH)

static search_fn find_search(td_dtype t, bool largest) {
  switch ((int)t) {
#define CASE(tag, c, key, conv) \
  case TD_##tag:                \
    return largest ? max_##tag : min_##tag;
    TD_ORDERED_TYPES(CASE)
    case TD_BOOL:
      return largest ? max_UINT8 : min_UINT8;
    default:
      return NULL;
  }
}

/* The same for contiguous elements: the best value by a vector loop, then where it first is. False when that value
 * does not tell (a NaN among the elements, or nothing better than infinity). */
#define FIND(name, c, member)                                                    \
  static bool name(const td_reducer *r, const c *x, int64_t n, int64_t *out) {   \
    td_wide best = r->identity;                                                  \
    td_reducer_inner(r, x, 1, 0, n, &best);                                      \
    c v = (c)best.member;                                                        \
    if (!(v > (c)r->identity.member || v < (c)r->identity.member)) return false; \
    int64_t at = 0;                                                              \
    for (; at + 64 <= n; at += 64) {                                             \
      int found = 0;                                                             \
      for (int i = 0; i < 64; i++) found |= x[at + i] == v;                      \
      if (found) break;                                                          \
    }                                                                            \
    while (at < n && x[at] != v) at++;                                           \
    *out = at;                                                                   \
    return at < n;                                                               \
  }
FIND(find_float, float, d)
FIND(find_double, double, d)
FIND(find_int32, int32_t, i)
FIND(find_int64, int64_t, i)

enum { FIND_FROM = 64 }; /* elements; fewer are searched one by one */

typedef struct arg_state {
  search_fn search;
  td_reducer best;
} arg_state;

static int64_t search_row(const arg_state *s, const void *x, int64_t n, int64_t stride) {
  int64_t found;
  bool known = false;
  if (stride == 1 && n >= FIND_FROM) switch ((int)s->best.type) {
      case TD_FLOAT:
        known = find_float(&s->best, x, n, &found);
        break;
      case TD_DOUBLE:
        known = find_double(&s->best, x, n, &found);
        break;
      case TD_INT32:
        known = find_int32(&s->best, x, n, &found);
        break;
      case TD_INT64:
        known = find_int64(&s->best, x, n, &found);
        break;
    }
  return known ? found : s->search(x, n, stride);
}

static td_status arg_create(td_kernel_builder *b, void *state) {
  arg_state *s = state;
  td_dtype t = td_dtype_base(b->input_types[0]);
  bool largest = td_str_is(b->node->op, "ArgMax");
  s->search = find_search(t, largest);
  if (!td_reducer_init(&s->best, largest ? TD_RED_MAX : TD_RED_MIN, t)) s->best.type = TD_INVALID;
  return s->search ? TD_STATUS_OK : td_internal("no search in %s", td_dtype_name(b->input_types[0]));
}

typedef struct work {
  const arg_state *s;
  const td_tensor *x;
  td_tensor *z;
  int64_t n, inner;
} work;

static void run(void *arg, int64_t begin, int64_t end) {
  work *w = arg;
  int64_t size = (int64_t)td_dtype_size((td_dtype)w->x->dtype);
  for (int64_t i = begin; i < end; i++) {
    int64_t at = i / w->inner * w->inner * w->n + i % w->inner;
    int64_t found = search_row(w->s, TD_DATA(w->x, char) + at * size, w->n, w->inner);
    switch ((int)w->z->dtype) {
      case TD_INT16:
        TD_DATA(w->z, int16_t)[i] = (int16_t)found;
        break;
      case TD_UINT16:
        TD_DATA(w->z, uint16_t)[i] = (uint16_t)found;
        break;
      case TD_INT32:
        TD_DATA(w->z, int32_t)[i] = (int32_t)found;
        break;
      default:
        TD_DATA(w->z, int64_t)[i] = found;
        break;
    }
  }
}

static td_status arg_compute(td_kernel_ctx *ctx) {
  td_tensor *x = td_in(ctx, 0), *dim = td_in(ctx, 1);
  work w = {.s = ctx->state, .x = x, .inner = 1};
  if (dim->rank) {
    char *text = td_tensor_shape_text(dim);
    td_status s = td_invalid_argument("dim must be a scalar, but received tensor of shape: %s", text);
    td_free(text);
    return s;
  }
  int64_t axis = dim->dtype == TD_INT16 ? *TD_DATA(dim, int16_t) : td_tensor_int_at(dim, 0);
  if (axis < -x->rank || axis >= x->rank)
    return td_invalid_argument("Expected dimension in the range [%d, %d), but got %lld", -x->rank, x->rank,
                               (long long)axis);
  if (axis < 0) axis += x->rank;
  w.n = x->dims[axis];
  if (!w.n) {
    char *text = td_tensor_shape_text(x);
    td_status s = td_invalid_argument("Reduction axis %lld is empty in shape %s", (long long)axis, text);
    td_free(text);
    return s;
  }
  td_shape shape;
  shape.rank = 0;
  for (int d = 0; d < x->rank; d++)
    if (d != axis) shape.dims[shape.rank++] = x->dims[d];
  TD_TRY(td_out_alloc(ctx, 0, &shape, &w.z));
  if (!w.z->count) return TD_STATUS_OK;
  for (int d = (int)axis + 1; d < x->rank; d++) w.inner *= x->dims[d];
  td_ctx_parallel_for(ctx, w.z->count, 3 + 0.8 * (double)w.n, run, &w);
  return TD_STATUS_OK;
}

#define ARG(op_name)                                                                                 \
  {                                                                                                  \
    .op = op_name, .types = {{"T", TD_SET_REAL | TD_SET(TD_BOOL)}}, .state_size = sizeof(arg_state), \
    .create = arg_create, .compute = arg_compute                                                     \
  }
static const td_kernel_def kernels[] = {ARG("ArgMax"), ARG("ArgMin")};

TD_FAMILY(arg, ops, kernels);

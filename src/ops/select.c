/* Choices between elements: Select, SelectV2, and Where, which lists the places of true elements. */
#include <string.h>

#include "base/mem.h"
#include "ops/bcast.h"
#include "ops/families.h"

static const td_op_spec ops[] = {
    {"Select", "condition: bool; t: T; e: T", "output: T", "T: type", 0},
    {"SelectV2", "condition: bool; t: T; e: T", "output: T", "T: type", 0},
    {"Where", "input: T", "index: int64",
     "T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
     "qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = bool",
     0},
};

/* ---- element by element, by element size ---- */

typedef struct wide {
  uint64_t a, b;
} wide;

typedef struct select_work {
  const td_tensor *c, *t, *e;
  td_tensor *z;
  const td_bcast *b;
  int64_t row; /* Select by row: elements a row */
  int sc, st, se;
} select_work;

#define CHOOSE(type)                                                                           \
  {                                                                                            \
    const type *t = (const type *)w->t->data + ot, *e = (const type *)w->e->data + oe;         \
    type *z = (type *)w->z->data + at;                                                         \
    if (sc && st && se) {                                                                      \
      for (int64_t i = 0; i < n; i++) { /* both are read, so that it can be done by vectors */ \
        type yes = t[i], no = e[i];                                                            \
        z[i] = c[i] ? yes : no;                                                                \
      }                                                                                        \
    } else if (!sc) {                                                                          \
      const type *from = *c ? t : e;                                                           \
      int step = *c ? st : se;                                                                 \
      if (step)                                                                                \
        memcpy(z, from, (size_t)n * sizeof(type));                                             \
      else                                                                                     \
        for (int64_t i = 0; i < n; i++) z[i] = *from;                                          \
    } else {                                                                                   \
      for (int64_t i = 0; i < n; i++) z[i] = c[i] ? t[i * st] : e[i * se];                     \
    }                                                                                          \
  }

static void choose(const select_work *w, int64_t oc, int sc, int64_t ot, int st, int64_t oe, int se, int64_t at,
                   int64_t n) {
  const uint8_t *c = (const uint8_t *)w->c->data + oc;
  if (!td_dtype_is_pod((td_dtype)w->t->dtype)) {
    for (int64_t i = 0; i < n; i++) {
      if (c[i * sc])
        td_tensor_copy_elements(w->z, at + i, w->t, ot + i * st, 1);
      else
        td_tensor_copy_elements(w->z, at + i, w->e, oe + i * se, 1);
    }
    return;
  }
  switch (td_dtype_size((td_dtype)w->t->dtype)) {
    case 1:
      CHOOSE(uint8_t) break;
    case 2:
      CHOOSE(uint16_t) break;
    case 4:
      CHOOSE(uint32_t) break;
    case 8:
      CHOOSE(uint64_t) break;
    default:
      CHOOSE(wide) break;
  }
}

static void run_same(void *arg, int64_t begin, int64_t end) {
  choose(arg, begin, 1, begin, 1, begin, 1, begin, end - begin);
}

static void run_rows(void *arg, int64_t begin, int64_t end) {
  const select_work *w = arg;
  for (int64_t i = begin; i < end; i++) choose(w, i, 0, i * w->row, 1, i * w->row, 1, i * w->row, w->row);
}

static void run_run(void *arg, const int64_t offsets[TD_BCAST_OPERANDS], int64_t at, int64_t n) {
  const select_work *w = arg;
  choose(w, offsets[0], w->sc, offsets[1], w->st, offsets[2], w->se, at, n);
}

static void run_broadcast(void *arg, int64_t begin, int64_t end) {
  select_work *w = arg;
  td_bcast_run(w->b, begin, end, run_run, w);
}

/* ---- Select ---- */

static td_status shapes_error(const char *text, const td_tensor *a, const td_tensor *b) {
  char *x = td_tensor_shape_text(a), *y = td_tensor_shape_text(b);
  td_status s = td_invalid_argument("%s %s vs. %s", text, x, y);
  td_free(x);
  td_free(y);
  return s;
}

static td_status inputs_differ(td_kernel_ctx *ctx, int i) {
  char *x = td_tensor_shape_text(td_in(ctx, 0)), *y = td_tensor_shape_text(td_in(ctx, i));
  td_status s = td_invalid_argument(
      "Inputs to operation %.*s of type %.*s must have the same size and shape.  "
      "Input 0: %s != input %d: %s",
      TD_STR_ARG(ctx->kernel->name), TD_STR_ARG(ctx->kernel->op), x, i, y);
  td_free(x);
  td_free(y);
  return s;
}

static td_status select_compute(td_kernel_ctx *ctx) {
  td_tensor *c = td_in(ctx, 0), *t = td_in(ctx, 1), *e = td_in(ctx, 2);
  if (c->rank == 0 || (c->rank == 1 && t->rank != 1)) {
    if (!td_tensor_same_shape(t, e))
      return shapes_error("'then' and 'else' must have the same size.  but received:", t, e);
  } else {
    if (!td_tensor_same_shape(c, t)) return inputs_differ(ctx, 1);
    if (!td_tensor_same_shape(c, e)) return inputs_differ(ctx, 2);
  }
  if (td_tensor_is_scalar(c)) {
    td_out_forward(ctx, *TD_DATA(c, uint8_t) ? 1 : 2, 0);
    return TD_STATUS_OK;
  }
  select_work w = {.c = c, .t = t, .e = e};
  if (td_tensor_same_shape(c, t)) {
    TD_TRY(td_out_alloc_like(ctx, 0, t, &w.z));
    td_ctx_parallel_for(ctx, t->count, 0.4, run_same, &w);
    return TD_STATUS_OK;
  }
  if (!t->rank) return shapes_error("'then' must be at least a vector, but saw shape:", t, c);
  if (c->count != t->dims[0])
    return td_invalid_argument("Number of batches of 'then' must match size of 'cond', but saw: %lld vs. %lld",
                               (long long)t->dims[0], (long long)c->count);
  TD_TRY(td_out_alloc_like(ctx, 0, t, &w.z));
  if (!t->count) return TD_STATUS_OK;
  w.row = t->count / c->count;
  td_ctx_parallel_for(ctx, c->count, 5 + 0.1 * (double)w.row, run_rows, &w);
  return TD_STATUS_OK;
}

static td_status select_v2_compute(td_kernel_ctx *ctx) {
  const td_tensor *in[3] = {td_in(ctx, 0), td_in(ctx, 1), td_in(ctx, 2)};
  select_work w = {.c = in[0], .t = in[1], .e = in[2]};
  if (td_tensor_same_shape(w.t, w.e)) {
    if (td_tensor_is_scalar(w.c)) {
      td_out_forward(ctx, *TD_DATA(w.c, uint8_t) ? 1 : 2, 0);
      return TD_STATUS_OK;
    }
    if (td_tensor_same_shape(w.c, w.t)) {
      TD_TRY(td_out_alloc_like(ctx, 0, w.t, &w.z));
      td_ctx_parallel_for(ctx, w.t->count, 0.4, run_same, &w);
      return TD_STATUS_OK;
    }
  }
  td_bcast b;
  td_status failed = td_bcast_init(&b, 3, in);
  if (failed) return td_status_prepend(failed, "condition, then and else must be broadcastable: ");
  TD_TRY(td_out_alloc(ctx, 0, &b.shape, &w.z));
  w.b = &b;
  w.sc = td_bcast_inner_stride(&b, 0);
  w.st = td_bcast_inner_stride(&b, 1);
  w.se = td_bcast_inner_stride(&b, 2);
  td_ctx_parallel_for(ctx, b.count, 0.5, run_broadcast, &w);
  return TD_STATUS_OK;
}

/* ---- Where ---- */

/* Nonzero test on bits: `mask` removes the sign of floats, so that -0 is zero. */
#define NONZERO(type, mask)                                                \
  {                                                                        \
    const type *v = (const type *)x->data + begin;                         \
    for (int64_t i = 0; i < n; i++) flags[i] = (v[i] & (type)(mask)) != 0; \
  }

static void nonzero(const td_tensor *x, int64_t begin, int64_t n, uint8_t *flags) {
  td_dtype t = (td_dtype)x->dtype;
  bool floating = td_dtype_in(t, TD_SET_FLOATING);
  switch (td_dtype_size(t)) {
    case 1:
      NONZERO(uint8_t, 0xff) break;
    case 2:
      NONZERO(uint16_t, floating ? 0x7fff : 0xffff) break;
    case 4:
      NONZERO(uint32_t, floating ? 0x7fffffff : 0xffffffff) break;
    case 8:
      NONZERO(uint64_t, t == TD_COMPLEX64 ? 0x7fffffff7fffffff : floating ? 0x7fffffffffffffff : 0xffffffffffffffff)
      break;
    default: {
      const wide *v = (const wide *)x->data + begin;
      for (int64_t i = 0; i < n; i++) flags[i] = ((v[i].a | v[i].b) << 1) != 0;
    }
  }
}

enum { WHERE_BLOCK = 4096 };

static int64_t count_nonzero(const td_tensor *x) {
  uint8_t flags[WHERE_BLOCK];
  int64_t found = 0;
  for (int64_t at = 0; at < x->count; at += WHERE_BLOCK) {
    int64_t n = TD_MIN(x->count - at, WHERE_BLOCK), in_block = 0;
    nonzero(x, at, n, flags);
    for (int64_t i = 0; i < n; i++) in_block += flags[i];
    found += in_block;
  }
  return found;
}

/* Both writers return where they stopped: a variable's elements may have changed since they were counted. */

/* For a vector, without a branch that random elements would mispredict. */
static int64_t *write_indices(const td_tensor *x, int64_t *out, const int64_t *end) {
  uint8_t flags[WHERE_BLOCK];
  for (int64_t at = 0; at < x->count && out < end; at += WHERE_BLOCK) {
    int64_t n = TD_MIN(x->count - at, WHERE_BLOCK);
    nonzero(x, at, n, flags);
    for (int64_t i = 0; i < n && out < end; i++) {
      *out = at + i;
      out += flags[i];
    }
  }
  return out;
}

static int64_t *write_places(const td_tensor *x, int64_t *out, const int64_t *end) {
  uint8_t flags[WHERE_BLOCK];
  int rank = x->rank;
  for (int64_t at = 0; at < x->count && out < end; at += WHERE_BLOCK) {
    int64_t n = TD_MIN(x->count - at, WHERE_BLOCK);
    nonzero(x, at, n, flags);
    for (int64_t i = 0; i < n && out < end; i++) {
      if (!flags[i]) continue;
      int64_t rest = at + i;
      for (int d = rank - 1; d >= 0; d--) {
        out[d] = rest % x->dims[d];
        rest /= x->dims[d];
      }
      out += rank;
    }
  }
  return out;
}

static td_status where_compute(td_kernel_ctx *ctx) {
  td_tensor *x = td_in(ctx, 0), *z;
  if (!x->rank) return td_invalid_argument("WhereOp : Unhandled input dimensions: 0");
  int64_t dims[2] = {count_nonzero(x), x->rank};
  TD_TRY(td_out_alloc_dims(ctx, 0, 2, dims, &z));
  if (!z->count) return TD_STATUS_OK;
  int64_t *out = TD_DATA(z, int64_t), *end = out + z->count;
  out = x->rank == 1 ? write_indices(x, out, end) : write_places(x, out, end);
  memset(out, 0, (size_t)(end - out) * sizeof *out);
  return TD_STATUS_OK;
}

static const td_kernel_def kernels[] = {
    {.op = "Select", .compute = select_compute},
    {.op = "SelectV2", .compute = select_v2_compute},
    {.op = "Where", .types = {{"T", TD_SET_NUMBER | TD_SET(TD_BOOL)}}, .compute = where_compute},
};

TD_FAMILY(select, ops, kernels);

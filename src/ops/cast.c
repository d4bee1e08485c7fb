/* Conversions: Cast, and Bitcast, which keeps the bytes. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/loops/cast.h"

static const td_op_spec ops[] = {
    {"Cast", "x: SrcT", "y: DstT", "SrcT: type; DstT: type; Truncate: bool = false", 0},
    {"_HostCast", "x: SrcT", "y: DstT", "SrcT: type; DstT: type; Truncate: bool = false", 0},
    {"Bitcast", "input: T", "output: type",
     "T: type in {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, "
     "complex64, complex128, qint8, quint8, qint16, quint16, qint32}; type: type in {bfloat16, half, float, "
     "double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, complex128, qint8, quint8, "
     "qint16, quint16, qint32}",
     0},
};

/* ---- Cast ---- */

typedef struct cast_state {
  td_cast cast;
  bool same; /* nothing to do */
} cast_state;

static td_status cast_create(td_kernel_builder *b, void *state) {
  cast_state *s = state;
  td_dtype from, to;
  bool truncate;
  TD_TRY(td_attr_type(b->node, "SrcT", &from));
  TD_TRY(td_attr_type(b->node, "DstT", &to));
  TD_TRY(td_attr_bool(b->node, "Truncate", &truncate));
  if (from == to) {
    s->same = true;
    return TD_STATUS_OK;
  }
  if (!td_cast_init(&s->cast, from, to, truncate))
    return td_unimplemented("Cast %s to %s is not supported", td_dtype_name(from), td_dtype_name(to));
  return TD_STATUS_OK;
}

typedef struct cast_work {
  const td_cast *c;
  const char *x;
  char *z;
} cast_work;

static void run_cast(void *arg, int64_t begin, int64_t end) {
  cast_work *w = arg;
  td_cast_run(w->c, w->x + begin * w->c->in_size, w->z + begin * w->c->out_size, end - begin);
}

static td_status cast_compute(td_kernel_ctx *ctx) {
  cast_state *s = ctx->state;
  if (s->same) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *x = td_in(ctx, 0), *z;
  TD_TRY(td_out_alloc_like(ctx, 0, x, &z));
  cast_work w = {&s->cast, x->data, z->data};
  td_ctx_parallel_for(ctx, z->count, 0.5, run_cast, &w);
  return TD_STATUS_OK;
}

/* ---- Bitcast ---- */

static td_status cannot_bitcast(td_kernel_ctx *ctx) {
  char *shape = td_tensor_shape_text(td_in(ctx, 0));
  td_status s = td_invalid_argument("Cannot bitcast from %s to %s: shape %s", td_dtype_name(td_in_type(ctx, 0)),
                                    td_dtype_name(td_out_type(ctx, 0)), shape);
  td_free(shape);
  return s;
}

static td_status bitcast_compute(td_kernel_ctx *ctx) {
  td_tensor *x = td_in(ctx, 0), *z;
  td_dtype out = td_out_type(ctx, 0);
  int64_t from = (int64_t)td_dtype_size((td_dtype)x->dtype), to = (int64_t)td_dtype_size(out);
  if (from == to) {
    td_out_set(ctx, 0, td_tensor_bitcast(x, out, x->rank, x->dims));
    return TD_STATUS_OK;
  }
  td_shape shape;
  td_tensor_shape(x, &shape);
  if (from > to) {
    if (from % to) return cannot_bitcast(ctx);
    TD_TRY(td_shape_append(&shape, from / to));
  } else {
    if (to % from || !shape.rank || shape.dims[shape.rank - 1] != to / from) return cannot_bitcast(ctx);
    shape.rank--;
  }
  TD_TRY(td_out_alloc(ctx, 0, &shape, &z));
  if (x->size) memcpy(z->data, x->data, x->size);
  return TD_STATUS_OK;
}

#define BITCASTABLE (TD_SET_NUMBER | TD_SET_QUANTIZED)
static const td_kernel_def kernels[] = {
    {.op = "Cast", .state_size = sizeof(cast_state), .create = cast_create, .compute = cast_compute},
    {.op = "_HostCast", .state_size = sizeof(cast_state), .create = cast_create, .compute = cast_compute},
    {.op = "Bitcast", .types = {{"T", BITCASTABLE}, {"type", BITCASTABLE}}, .compute = bitcast_compute},
};

TD_FAMILY(cast, ops, kernels);

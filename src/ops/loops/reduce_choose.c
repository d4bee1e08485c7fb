#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/loops/reduce.h"

/* The accumulator before the first element. */
static td_wide identity(td_reduce op, td_dtype t) {
  td_wide w = {.pair = {0, 0}};
  bool floating = t == TD_FLOAT || t == TD_DOUBLE, is_complex = td_dtype_in(t, TD_SET_COMPLEX);
  bool is_signed = td_dtype_in(t, TD_SET_SIGNED);
  switch (op) {
    case TD_RED_PROD:
      if (floating || is_complex)
        w.d = 1;
      else
        w.u = 1;
      break;
    case TD_RED_MAX:
      if (floating)
        w.d = -INFINITY;
      else if (is_signed)
        w.i = INT64_MIN >> (64 - 8 * td_dtype_size(t));
      break;
    case TD_RED_MIN:
      if (floating)
        w.d = INFINITY;
      else if (is_signed)
        w.i = INT64_MAX >> (64 - 8 * td_dtype_size(t));
      else
        w.u = UINT64_MAX >> (64 - 8 * td_dtype_size(t));
      break;
    default:
      break;
  }
  return w;
}

bool td_reducer_init(td_reducer *r, td_reduce op, td_dtype t) {
  *r = (td_reducer){.op = op, .type = t, .size = (uint8_t)td_dtype_size(t)};
  const td_half_loops *h = td_half_loops_get();
  if (t == TD_HALF) r->widen = h->half_to_float, t = TD_FLOAT;
  if (t == TD_BFLOAT16) r->widen = h->bfloat16_to_float, t = TD_FLOAT;
  if (t == TD_BOOL || t == TD_QUINT8) t = TD_UINT8;
  if (t == TD_QINT8) t = TD_INT8;
  if (t == TD_QINT16) t = TD_INT16;
  if (t == TD_QUINT16) t = TD_UINT16;
  if (t == TD_QINT32) t = TD_INT32;
  if (op != TD_RED_MAX && op != TD_RED_MIN) {
    if (t == TD_INT8) t = TD_UINT8;
    if (t == TD_INT16) t = TD_UINT16;
    if (t == TD_INT32) t = TD_UINT32;
    if (t == TD_INT64) t = TD_UINT64;
  }
  r->loop_type = t;
  r->identity = identity(op, t);
  int isa = td_isa_best();
  r->inner = td_reduce_inner_loop_base((int)op, t);
  r->outer = td_reduce_outer_loop_base((int)op, t);
#ifdef TD_HAVE_ISA_X86
  if (isa == 2) r->inner = td_reduce_inner_loop_avx512((int)op, t), r->outer = td_reduce_outer_loop_avx512((int)op, t);
  if (isa == 1) r->inner = td_reduce_inner_loop_avx2((int)op, t), r->outer = td_reduce_outer_loop_avx2((int)op, t);
#endif
  (void)isa;
  return r->inner != NULL;
}

enum { BLOCK = 2048 };

void td_reducer_inner(const td_reducer *r, const void *x, int64_t rows, int64_t stride, int64_t n, td_wide *acc) {
  if (!r->widen) {
    r->inner(x, rows, stride, n, acc);
    return;
  }
  _Alignas(64) float wide[BLOCK];
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t at = 0; at < n; at += BLOCK) {
      int64_t k = TD_MIN(n - at, BLOCK);
      r->widen((const char *)x + (row * stride + at) * r->size, wide, k);
      r->inner(wide, 1, k, k, &acc[row]);
    }
  }
}

void td_reducer_outer(const td_reducer *r, const void *x, int64_t rows, int64_t stride, int64_t n, td_wide *acc) {
  if (!r->widen) {
    r->outer(x, rows, stride, n, acc);
    return;
  }
  _Alignas(64) float wide[16 * TD_REDUCE_COLUMNS];
  for (int64_t at = 0; at < rows; at += 16) {
    int64_t k = TD_MIN(rows - at, 16);
    for (int64_t i = 0; i < k; i++) r->widen((const char *)x + (at + i) * stride * r->size, wide + i * n, n);
    r->outer(wide, k, n, n, acc);
  }
}

#define MERGE(member)                                                                                 \
  switch (r->op) {                                                                                    \
    case TD_RED_PROD:                                                                                 \
      acc->member *= other->member;                                                                   \
      break;                                                                                          \
    case TD_RED_MAX:                                                                                  \
      if (!(other->member <= acc->member) && acc->member == acc->member) acc->member = other->member; \
      break;                                                                                          \
    case TD_RED_MIN:                                                                                  \
      if (!(other->member >= acc->member) && acc->member == acc->member) acc->member = other->member; \
      break;                                                                                          \
    default:                                                                                          \
      acc->member += other->member;                                                                   \
      break;                                                                                          \
  }

void td_reducer_merge(const td_reducer *r, td_wide *acc, const td_wide *other) {
  if (td_dtype_in(r->loop_type, TD_SET_COMPLEX)) {
    double p = acc->pair[0], q = acc->pair[1], a = other->pair[0], b = other->pair[1];
    bool product = r->op == TD_RED_PROD;
    acc->pair[0] = product ? p * a - q * b : p + a;
    acc->pair[1] = product ? p * b + q * a : q + b;
  } else if (r->loop_type == TD_FLOAT || r->loop_type == TD_DOUBLE) {
    MERGE(d)
  } else if (td_dtype_in(r->loop_type, TD_SET_SIGNED)) {
    MERGE(i)
  } else {
    MERGE(u)
  }
}

/* The choice of a loop: by instruction set, by element type, with conversions for half and bfloat16. */
#include <string.h>

#include "base/mem.h"
#include "ops/loops/loops.h"

int td_isa_best(void) {
#ifdef TD_HAVE_ISA_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return 2;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
  return 0;
}

/* Where wrapping arithmetic and bits do not depend on the sign, the unsigned loop serves both. */
static td_dtype unsigned_of(td_dtype t) {
  switch ((int)t) {
    case TD_INT8:
    case TD_QINT8:
    case TD_QUINT8:
    case TD_BOOL:
      return TD_UINT8;
    case TD_INT16:
    case TD_QINT16:
    case TD_QUINT16:
      return TD_UINT16;
    case TD_INT32:
    case TD_QINT32:
      return TD_UINT32;
    case TD_INT64:
      return TD_UINT64;
    default:
      return t;
  }
}

/* Quantised types as the integers that they are. */
static td_dtype plain_of(td_dtype t) {
  switch ((int)t) {
    case TD_QINT8:
      return TD_INT8;
    case TD_QUINT8:
      return TD_UINT8;
    case TD_QINT16:
      return TD_INT16;
    case TD_QUINT16:
      return TD_UINT16;
    case TD_QINT32:
      return TD_INT32;
    default:
      return t;
  }
}

td_unary_fn td_unary_loop(td_unary op, td_dtype t) {
  t = plain_of(t);
  if (op == TD_UN_Square || op == TD_UN_Invert || op == TD_UN_PopulationCount) t = unsigned_of(t);
  td_unary_fn fn = NULL;
#ifdef TD_HAVE_ISA_X86
  int isa = td_isa_best();
  if (isa == 2) fn = td_unary_loop_avx512(op, t);
  if (isa == 1) fn = td_unary_loop_avx2(op, t);
#endif
  if (!fn) fn = td_unary_loop_base(op, t);
  return fn ? fn : td_unary_loop_plain(op, t);
}

td_binary_fn td_binary_loop(td_binary op, td_dtype t) {
  t = plain_of(t);
  if (op == TD_BIN_TruncateDiv && t != TD_FLOAT && t != TD_DOUBLE) op = TD_BIN_Div;
  switch ((int)op) {
    case TD_BIN_SquaredDifference:
    case TD_BIN_Add:
    case TD_BIN_Sub:
    case TD_BIN_Mul:
    case TD_BIN_And:
    case TD_BIN_Or:
    case TD_BIN_Xor:
    case TD_BIN_Equal:
    case TD_BIN_NotEqual:
      if (t != TD_BOOL || op == TD_BIN_Equal || op == TD_BIN_NotEqual) t = unsigned_of(t);
      break;
    default:
      break;
  }
  td_binary_fn fn = NULL;
#ifdef TD_HAVE_ISA_X86
  int isa = td_isa_best();
  if (isa == 2) fn = td_binary_loop_avx512(op, t);
  if (isa == 1) fn = td_binary_loop_avx2(op, t);
#endif
  if (!fn) fn = td_binary_loop_base(op, t);
  return fn ? fn : td_binary_loop_plain(op, t);
}

td_sum_fn td_sum_loop(td_dtype t) {
#ifdef TD_HAVE_ISA_X86
  int isa = td_isa_best();
  if (isa == 2) return td_sum_loop_avx512(t);
  if (isa == 1) return td_sum_loop_avx2(t);
#endif
  return td_sum_loop_base(t);
}

const td_half_loops *td_half_loops_get(void) {
#ifdef TD_HAVE_ISA_X86
  if (td_isa_best() == 2) return &td_half_loops_avx512;
  if (td_isa_best() == 1) return &td_half_loops_avx2;
#endif
  return &td_half_loops_base;
}

static td_dtype map_init(td_map *m, td_dtype t, td_dtype out, double p) {
  *m = (td_map){.p = p, .in_size = (uint8_t)td_dtype_size(t), .out_size = (uint8_t)td_dtype_size(out)};
  if (t != TD_HALF && t != TD_BFLOAT16) return t;
  const td_half_loops *h = td_half_loops_get();
  m->widen = t == TD_HALF ? h->half_to_float : h->bfloat16_to_float;
  if (out == t) m->narrow = t == TD_HALF ? h->float_to_half : h->float_to_bfloat16;
  return TD_FLOAT;
}

bool td_map_init_unary(td_map *m, td_unary op, td_dtype t, td_dtype out, double p) {
  t = map_init(m, t, out, p);
  return (m->unary = td_unary_loop(op, t)) != NULL;
}

bool td_map_init_binary(td_map *m, td_binary op, td_dtype t, td_dtype out, double p) {
  t = map_init(m, t, out, p);
  if (op == TD_BIN_FloorDiv && m->narrow) { /* the quotient is rounded to the element's type before it is floored */
    m->then = td_unary_loop(TD_UN_Floor, t);
    op = TD_BIN_Div;
  }
  return (m->binary = td_binary_loop(op, t)) != NULL;
}

enum { BLOCK = 512 }; /* elements; a block of three operands stays in the first-level cache */

void td_map_unary(const td_map *m, const void *x, void *z, int64_t n) {
  if (!m->widen) {
    m->unary(x, z, n, m->p);
    return;
  }
  _Alignas(64) float in[BLOCK], out[BLOCK];
  const char *xp = x;
  char *zp = z;
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t k = TD_MIN(n - at, BLOCK);
    m->widen(xp + at * m->in_size, in, k);
    if (m->narrow) {
      m->unary(in, out, k, m->p);
      m->narrow(out, zp + at * m->out_size, k);
    } else {
      m->unary(in, zp + at * m->out_size, k, m->p);
    }
  }
}

/* Fills `block` with `n` copies of one element of `size` bytes. */
static void splat(void *block, const void *element, int size, int64_t n) {
#define SPLAT(type)                           \
  {                                           \
    type v, *b = block;                       \
    memcpy(&v, element, sizeof v);            \
    for (int64_t i = 0; i < n; i++) b[i] = v; \
  }
  switch (size) {
    case 1:
      memset(block, *(const unsigned char *)element, (size_t)n);
      break;
    case 2:
      SPLAT(uint16_t) break;
    case 4:
      SPLAT(uint32_t) break;
    case 8:
      SPLAT(uint64_t) break;
    default: {
      typedef struct wide {
        uint64_t a, b;
      } wide;
      SPLAT(wide)
    }
  }
#undef SPLAT
}

/* One operand, block by block: as it lies, repeated, or widened. */
typedef struct operand {
  const char *data;
  int stride;
  _Alignas(64) char block[BLOCK * 16];
} operand;

static void operand_init(operand *o, const td_map *m, const void *data, int stride, int64_t n) {
  o->data = data;
  o->stride = stride;
  if (stride) return;
  int64_t k = TD_MIN(n, BLOCK);
  if (m->widen) {
    float f;
    m->widen(data, &f, 1);
    splat(o->block, &f, 4, k);
  } else {
    splat(o->block, data, m->in_size, k);
  }
}

static const void *operand_at(operand *o, const td_map *m, int64_t at, int64_t k) {
  if (!o->stride) return o->block;
  if (!m->widen) return o->data + at * m->in_size;
  m->widen(o->data + at * m->in_size, o->block, k);
  return o->block;
}

int td_map_binary(const td_map *m, const void *x, int sx, const void *y, int sy, void *z, int64_t n) {
  if (!m->widen && ((sx && sy) || n == 1)) return m->binary(x, y, z, n, m->p);
  operand a, b;
  operand_init(&a, m, x, sx, n);
  operand_init(&b, m, y, sy, n);
  _Alignas(64) float out[BLOCK];
  char *zp = z;
  int bad = 0;
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t k = TD_MIN(n - at, BLOCK);
    const void *xa = operand_at(&a, m, at, k), *ya = operand_at(&b, m, at, k);
    bad |= m->binary(xa, ya, m->narrow ? (void *)out : zp + at * m->out_size, k, m->p);
    if (m->narrow) m->narrow(out, zp + at * m->out_size, k);
    if (m->then) {
      m->widen(zp + at * m->out_size, out, k);
      m->then(out, out, k, m->p);
      m->narrow(out, zp + at * m->out_size, k);
    }
  }
  return bad;
}

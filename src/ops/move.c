#include "ops/move.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Rows of a loop nest's two innermost loops, elements of one size. */
typedef struct plane {
  int64_t p, q;           /* counts */
  int64_t from_p, from_q; /* distances in elements */
  int64_t to_p, to_q;
} plane;

typedef struct run {
  const td_move *m;
  const td_tensor *src;
  td_tensor *dst;
  int64_t src_at, dst_at;
  int outer; /* loops [0, outer) are walked; then comes the plane */
  plane plane;
  void (*copy)(const struct run *r, int64_t src_at, int64_t dst_at, int64_t begin, int64_t end); /* rows of the plane */
} run;

typedef struct e16 {
  uint64_t a, b;
} e16;

/* ---- rows: both sides contiguous ---- */

static inline void copy_short(char *restrict d, const char *restrict s, size_t n) {
  if (n >= 16) { /* 16..32: two overlapping halves */
    memcpy(d, s, 16);
    memcpy(d + n - 16, s + n - 16, 16);
  } else if (n >= 8) {
    memcpy(d, s, 8);
    memcpy(d + n - 8, s + n - 8, 8);
  } else if (n >= 4) {
    memcpy(d, s, 4);
    memcpy(d + n - 4, s + n - 4, 4);
  } else {
    for (size_t i = 0; i < n; i++) d[i] = s[i];
  }
}

/* More than 32 bytes, not worth a call either; the last ones may overlap those before. */
static inline void copy_medium(char *d, const char *s, size_t n) {
  for (size_t i = 0; i + 32 < n; i += 32) memcpy(d + i, s + i, 32);
  memcpy(d + n - 32, s + n - 32, 32);
}

static void copy_rows(const run *r, int64_t src_at, int64_t dst_at, int64_t begin, int64_t end) {
  size_t size = td_dtype_size((td_dtype)r->src->dtype), bytes = (size_t)r->plane.q * size;
  ptrdiff_t from = r->plane.from_p * (ptrdiff_t)size, to = r->plane.to_p * (ptrdiff_t)size;
  const char *s = (const char *)r->src->data + src_at * (ptrdiff_t)size + begin * from;
  char *d = (char *)r->dst->data + dst_at * (ptrdiff_t)size + begin * to;
  if (bytes <= 32) {
    for (int64_t i = begin; i < end; i++, s += from, d += to) copy_short(d, s, bytes);
  } else if (bytes <= 256) {
    for (int64_t i = begin; i < end; i++, s += from, d += to) copy_medium(d, s, bytes);
  } else {
    for (int64_t i = begin; i < end; i++, s += from, d += to) memcpy(d, s, bytes);
  }
}

/* ---- strided elements ---- */

#define STRIDED(name, type)                                                                              \
  static void strided_##name(const run *r, int64_t src_at, int64_t dst_at, int64_t begin, int64_t end) { \
    const plane *g = &r->plane;                                                                          \
    int64_t q = g->q, fq = g->from_q, tq = g->to_q;                                                      \
    for (int64_t i = begin; i < end; i++) {                                                              \
      const type *s = (const type *)r->src->data + src_at + i * g->from_p;                               \
      type *d = (type *)r->dst->data + dst_at + i * g->to_p;                                             \
      if (fq == 0 && tq == 1) {                                                                          \
        type v = *s;                                                                                     \
        for (int64_t j = 0; j < q; j++) d[j] = v;                                                        \
      } else if (fq == -1 && tq == 1) {                                                                  \
        for (int64_t j = 0; j < q; j++) d[j] = s[-j];                                                    \
      } else {                                                                                           \
        for (int64_t j = 0; j < q; j++) d[j * tq] = s[j * fq];                                           \
      }                                                                                                  \
    }                                                                                                    \
  }
STRIDED(1, uint8_t)
STRIDED(2, uint16_t)
STRIDED(4, uint32_t)
STRIDED(8, uint64_t)
STRIDED(16, e16)

/* ---- transposes: the source is contiguous along p, the destination along q ---- */

enum { LINE = 64, WORTH_TRANSPOSING = 4 };

/* Vectors of 16 bytes, which every machine has, and the interleaving of two of them. */
typedef uint8_t v1 __attribute__((vector_size(16)));
typedef uint16_t v2 __attribute__((vector_size(16)));
typedef uint32_t v4 __attribute__((vector_size(16)));
typedef uint64_t v8 __attribute__((vector_size(16)));
#define LOW_1(a, b)  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_1(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW_2(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_2(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_4(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_8(a, b)  __builtin_shufflevector(a, b, 0, 2)
#define HIGH_8(a, b) __builtin_shufflevector(a, b, 1, 3)

/* A tile of as many rows as a vector has elements. Interleaving the upper half of the rows with the lower half, as
 * often as their number can be halved, transposes them. */
#define TILE(name, type)                                                                                \
  enum { TILE_##name = 16 / sizeof(type) };                                                             \
  static inline __attribute__((always_inline)) void tile_##name(const type *restrict s, ptrdiff_t from, \
                                                                type *restrict d, ptrdiff_t to) {       \
    enum { N = TILE_##name };                                                                           \
    v##name row[N], mixed[N];                                                                           \
    _Pragma("GCC unroll 16") for (int j = 0; j < N; j++) memcpy(&row[j], s + j * from, 16);             \
    _Pragma("GCC unroll 4") for (int half = N; half > 1; half /= 2) {                                   \
      _Pragma("GCC unroll 8") for (int i = 0; i < N / 2; i++) {                                         \
        mixed[2 * i] = LOW_##name(row[i], row[i + N / 2]);                                              \
        mixed[2 * i + 1] = HIGH_##name(row[i], row[i + N / 2]);                                         \
      }                                                                                                 \
      _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) row[i] = mixed[i];                           \
    }                                                                                                   \
    _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) memcpy(d + i * to, &row[i], 16);               \
  }
TILE(1, uint8_t)
TILE(2, uint16_t)
TILE(4, uint32_t)
TILE(8, uint64_t)
enum { TILE_16 = 1 };
static inline void tile_16(const e16 *s, ptrdiff_t from, e16 *d, ptrdiff_t to) { *d = *s; }

/* Blocks of a cache line's width and height: each line of both sides is touched once, in full, so that strides which
 * map all rows to one cache set (powers of two) cost nothing. */
#define TRANSPOSE(name, type)                                                                                          \
  enum { BLOCK_##name = LINE / sizeof(type) };                                                                         \
  static void block_##name(const type *restrict s, ptrdiff_t from, type *restrict d, ptrdiff_t to) {                   \
    enum { N = BLOCK_##name, STEP = TILE_##name };                                                                     \
    type buffer[N * N];                                                                                                \
    for (int j = 0; j < N; j += STEP)                                                                                  \
      for (int i = 0; i < N; i += STEP) tile_##name(s + i + j * from, from, buffer + i * N + j, N);                    \
    for (int i = 0; i < N; i++) memcpy(d + i * to, buffer + i * N, N * sizeof(type));                                  \
  }                                                                                                                    \
  /* rows [i, end), columns [j, q): d[i, j] = s[j, i] */                                                               \
  static void edge_##name(const plane *g, const type *s, type *d, int64_t i, int64_t end, int64_t j) {                 \
    enum { STEP = TILE_##name };                                                                                       \
    for (; i + STEP <= end; i += STEP) {                                                                               \
      int64_t k = j;                                                                                                   \
      for (; k + STEP <= g->q; k += STEP) tile_##name(s + i + k * g->from_q, g->from_q, d + i * g->to_p + k, g->to_p); \
      for (; k < g->q; k++)                                                                                            \
        for (int64_t r = i; r < i + STEP; r++) d[r * g->to_p + k] = s[r + k * g->from_q];                              \
    }                                                                                                                  \
    for (; i < end; i++)                                                                                               \
      for (int64_t k = j; k < g->q; k++) d[i * g->to_p + k] = s[i + k * g->from_q];                                    \
  }                                                                                                                    \
  static void plane_##name(const plane *g, const type *s, type *d, int64_t begin, int64_t end) {                       \
    enum { N = BLOCK_##name };                                                                                         \
    int64_t i = begin;                                                                                                 \
    for (; i + N <= end; i += N) {                                                                                     \
      int64_t j = 0;                                                                                                   \
      for (; j + N <= g->q; j += N) block_##name(s + i + j * g->from_q, g->from_q, d + i * g->to_p + j, g->to_p);      \
      if (j < g->q) edge_##name(g, s, d, i, i + N, j);                                                                 \
    }                                                                                                                  \
    edge_##name(g, s, d, i, end, 0);                                                                                   \
  }                                                                                                                    \
  static void transpose_##name(const run *r, int64_t src_at, int64_t dst_at, int64_t begin, int64_t end) {             \
    plane_##name(&r->plane, (const type *)r->src->data + src_at, (type *)r->dst->data + dst_at, begin, end);           \
  }
TRANSPOSE(1, uint8_t)
TRANSPOSE(2, uint16_t)
TRANSPOSE(4, uint32_t)
TRANSPOSE(8, uint64_t)
TRANSPOSE(16, e16)

void td_transpose_floats(const float *src, int64_t from, float *dst, int64_t to, int64_t rows, int64_t columns) {
  plane g = {.q = columns, .from_q = from, .to_p = to};
  plane_4(&g, (const uint32_t *)(const void *)src, (uint32_t *)(void *)dst, 0, rows);
}

/* ---- strings, resources, variants ---- */

static void copy_managed(const run *r, int64_t src_at, int64_t dst_at, int64_t begin, int64_t end) {
  const plane *g = &r->plane;
  for (int64_t i = begin; i < end; i++) {
    int64_t s = src_at + i * g->from_p, d = dst_at + i * g->to_p;
    if (g->from_q == 1 && g->to_q == 1) {
      td_tensor_copy_elements(r->dst, d, r->src, s, g->q);
    } else {
      for (int64_t j = 0; j < g->q; j++) td_tensor_copy_elements(r->dst, d + j * g->to_q, r->src, s + j * g->from_q, 1);
    }
  }
}

/* ---- the loop nest ---- */

/* Drops loops of one turn and merges neighbours that walk both sides without a gap. */
static void simplify(td_move *m) {
  int n = 0;
  for (int i = 0; i < m->rank; i++) {
    if (m->dims[i] == 1) continue;
    if (n && m->from[n - 1] == m->dims[i] * m->from[i] && m->to[n - 1] == m->dims[i] * m->to[i]) {
      m->dims[n - 1] *= m->dims[i];
    } else {
      m->dims[n] = m->dims[i];
      n++;
    }
    m->from[n - 1] = m->from[i];
    m->to[n - 1] = m->to[i];
  }
  m->rank = n;
}

/* Moves loop `i` to position `at` > i, the ones between move up. */
static void sink(td_move *m, int i, int at) {
  int64_t dim = m->dims[i], from = m->from[i], to = m->to[i];
  for (; i < at; i++) {
    m->dims[i] = m->dims[i + 1];
    m->from[i] = m->from[i + 1];
    m->to[i] = m->to[i + 1];
  }
  m->dims[at] = dim;
  m->from[at] = from;
  m->to[at] = to;
}

/* Puts the loop that is contiguous in the destination last and, if the source is contiguous along another one, that
 * one before it. True: the two form a transpose. */
static bool order(td_move *m) {
  int last = m->rank - 1;
  for (int i = 0; i < last && m->to[last] != 1; i++)
    if (m->to[i] == 1) sink(m, i, last);
  if (m->from[last] == 1 || m->to[last] != 1 || m->from[last] == 0 || m->dims[last] < WORTH_TRANSPOSING) return false;
  for (int i = last - 1; i >= 0; i--) {
    if (m->from[i] == 1 && m->dims[i] >= WORTH_TRANSPOSING) {
      sink(m, i, last - 1);
      return true;
    }
  }
  return false;
}

static void walk(void *arg, int64_t begin, int64_t end) {
  const run *r = arg;
  const td_move *m = r->m;
  int64_t rows = r->plane.p, at[TD_MOVE_MAX_RANK], src = r->src_at, dst = r->dst_at;
  int64_t block = begin / rows, row = begin % rows;
  for (int i = r->outer - 1; i >= 0; i--) {
    at[i] = block % m->dims[i];
    block /= m->dims[i];
    src += at[i] * m->from[i];
    dst += at[i] * m->to[i];
  }
  while (begin < end) {
    int64_t n = TD_MIN(rows - row, end - begin);
    r->copy(r, src, dst, row, row + n);
    begin += n;
    row = 0;
    for (int i = r->outer - 1; i >= 0; i--) {
      src += m->from[i];
      dst += m->to[i];
      if (++at[i] < m->dims[i]) break;
      src -= m->dims[i] * m->from[i];
      dst -= m->dims[i] * m->to[i];
      at[i] = 0;
    }
  }
}

typedef struct flat {
  const char *src;
  char *dst;
  size_t size;
} flat;
enum { FLAT_BLOCK = 1 << 16 };

static void flat_blocks(void *arg, int64_t begin, int64_t end) {
  const flat *f = arg;
  size_t from = (size_t)begin * FLAT_BLOCK, to = TD_MIN((size_t)end * FLAT_BLOCK, f->size);
  memcpy(f->dst + from, f->src + from, to - from);
}

void td_move_flat(td_kernel_ctx *ctx, const td_tensor *src, int64_t src_at, td_tensor *dst, int64_t dst_at, int64_t n) {
  if (n <= 0) return;
  if (!td_dtype_is_pod((td_dtype)src->dtype)) {
    td_tensor_copy_elements(dst, dst_at, src, src_at, n);
    return;
  }
  size_t size = td_dtype_size((td_dtype)src->dtype);
  flat f = {(const char *)src->data + (size_t)src_at * size, (char *)dst->data + (size_t)dst_at * size,
            (size_t)n * size};
  if (!ctx || f.size < (1 << 20)) {
    memcpy(f.dst, f.src, f.size);
  } else {
    td_ctx_parallel_for(ctx, (int64_t)((f.size + FLAT_BLOCK - 1) / FLAT_BLOCK), 8000, flat_blocks, &f);
  }
}

static void choose(run *r, bool transposed) {
  size_t size = td_dtype_size((td_dtype)r->src->dtype);
  if (!td_dtype_is_pod((td_dtype)r->src->dtype)) {
    r->copy = copy_managed;
  } else if (r->plane.from_q == 1 && r->plane.to_q == 1) {
    r->copy = copy_rows;
  } else {
    switch (size) {
      case 1:
        r->copy = transposed ? transpose_1 : strided_1;
        break;
      case 2:
        r->copy = transposed ? transpose_2 : strided_2;
        break;
      case 4:
        r->copy = transposed ? transpose_4 : strided_4;
        break;
      case 8:
        r->copy = transposed ? transpose_8 : strided_8;
        break;
      default:
        assert(size == 16);
        r->copy = transposed ? transpose_16 : strided_16;
    }
  }
}

void td_move_run(td_kernel_ctx *ctx, td_move *m, const td_tensor *src, int64_t src_at, td_tensor *dst, int64_t dst_at) {
  assert(src->dtype == dst->dtype);
  for (int i = 0; i < m->rank; i++)
    if (m->dims[i] <= 0) return;
  simplify(m);
  if (m->rank == 0 || (m->rank == 1 && m->from[0] == 1 && m->to[0] == 1)) {
    td_move_flat(ctx, src, src_at, dst, dst_at, m->rank ? m->dims[0] : 1);
    return;
  }
  bool pod = td_dtype_is_pod((td_dtype)src->dtype);
  bool transposed = pod && order(m);
  run r = {.m = m, .src = src, .dst = dst, .src_at = src_at, .dst_at = dst_at};
  int last = m->rank - 1;
  r.plane = (plane){.p = 1, .q = m->dims[last], .from_q = m->from[last], .to_q = m->to[last]};
  r.outer = last;
  if (m->rank > 1) {
    r.outer = last - 1;
    r.plane.p = m->dims[last - 1];
    r.plane.from_p = m->from[last - 1];
    r.plane.to_p = m->to[last - 1];
  }
  choose(&r, transposed);
  int64_t units = r.plane.p;
  for (int i = 0; i < r.outer; i++) units *= m->dims[i];
  double row_bytes = (double)r.plane.q * (double)td_dtype_size((td_dtype)src->dtype);
  if (!ctx || !pod || row_bytes * (double)units < (1 << 18)) {
    walk(&r, 0, units);
  } else {
    td_ctx_parallel_for(ctx, units, r.copy == copy_rows ? 4 + row_bytes / 8 : 4 + (double)r.plane.q, walk, &r);
  }
}

/* `n` times the 4 bytes `v`. Above a vector or so the processor's own loop is the fastest: it does not read first what
 * it overwrites. */
static void fill_words(uint32_t *d, uint32_t v, size_t n) {
  size_t i = 0;
#if defined(__x86_64__)
  if (n >= 256) {
    uint64_t pair = v | (uint64_t)v << 32, *to = (uint64_t *)d;
    size_t pairs = n / 2;
    i = pairs * 2;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(pairs) : "a"(pair) : "memory");
  }
#endif
  for (; i < n; i++) d[i] = v;
}

void td_fill_elements(td_tensor *dst, int64_t at, int64_t n, const td_tensor *value, int64_t index) {
  if (n <= 0) return;
  if (!td_dtype_is_pod((td_dtype)dst->dtype)) {
    for (int64_t i = 0; i < n; i++) td_tensor_copy_elements(dst, at + i, value, index, 1);
    return;
  }
  size_t size = td_dtype_size((td_dtype)dst->dtype);
  const unsigned char *v = (const unsigned char *)value->data + (size_t)index * size;
  char *d = (char *)dst->data + (size_t)at * size;
  size_t same = 1;
  while (same < size && v[same] == v[0]) same++;
  if (same == size) {
    memset(d, v[0], (size_t)n * size);
    return;
  }
  switch (size) {
#define FILL(bytes, type)                               \
  case bytes: {                                         \
    type e;                                             \
    memcpy(&e, v, sizeof e);                            \
    for (int64_t i = 0; i < n; i++) ((type *)d)[i] = e; \
    break;                                              \
  }
    FILL(2, uint16_t)
    case 4: {
      uint32_t e;
      memcpy(&e, v, sizeof e);
      fill_words((uint32_t *)d, e, (size_t)n);
      break;
    }
      FILL(8, uint64_t)
      FILL(16, e16)
#undef FILL
    default:
      assert(false);
  }
}

void td_zero_elements(td_tensor *dst, int64_t at, int64_t n) {
  if (n <= 0 || !td_dtype_is_pod((td_dtype)dst->dtype)) return;
  size_t size = td_dtype_size((td_dtype)dst->dtype);
  memset((char *)dst->data + (size_t)at * size, 0, (size_t)n * size);
}

void td_strides(int rank, const int64_t *dims, int64_t *out) {
  uint64_t n = 1;
  for (int i = rank - 1; i >= 0; i--) {
    out[i] = (int64_t)n;
    n *= (uint64_t)dims[i];
  }
}

td_status td_out_rows(td_kernel_ctx *ctx, int in, int i, int64_t begin, int64_t end, int rank, const int64_t *dims) {
  td_tensor *t = td_in(ctx, in);
  int64_t row = t->dims[0] ? t->count / t->dims[0] : 0;
  size_t size = td_dtype_size((td_dtype)t->dtype), bytes = (size_t)((end - begin) * row) * size;
  /* a view of a few bytes would cost as much as the copy and keep the whole tensor alive */
  if (bytes >= 256 && ((uintptr_t)t->data + (size_t)(begin * row) * size) % 64 == 0) {
    td_tensor *rows = td_tensor_slice(t, begin, end);
    td_out_set(ctx, i, td_tensor_reshape(rows, rank, dims));
    td_tensor_release(rows);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, i, rank, dims, &out));
  td_move_flat(ctx, t, begin * row, out, 0, (end - begin) * row);
  return TD_STATUS_OK;
}

void td_out_reshaped(td_kernel_ctx *ctx, int in, int i, int rank, const int64_t *dims) {
  td_tensor *t = td_in(ctx, in);
  td_out_set(ctx, i, td_dims_eq(t->rank, t->dims, rank, dims) ? td_tensor_retain(t) : td_tensor_reshape(t, rank, dims));
}

const char *td_show_dims(td_show_buf *b, int rank, const int64_t *dims) {
  char *text = td_dims_text(rank, dims);
  snprintf(b->text, sizeof b->text, "%s", text);
  td_free(text);
  return b->text;
}

const char *td_show_index(td_show_buf *b, int rank, const int64_t *dims, int64_t i) {
  int64_t at[TD_MAX_RANK];
  b->text[0] = 0;
  if (!rank) return b->text;
  for (int d = rank - 1; d >= 0; d--) {
    at[d] = dims[d] ? i % dims[d] : 0;
    i = dims[d] ? i / dims[d] : 0;
  }
  return td_show_dims(b, rank, at);
}

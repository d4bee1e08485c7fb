/* Reductions over contiguous elements and over rows. Compiled once per instruction set. */
#include "ops/loops/reduce.h"

#include <complex.h>
#include <string.h>

/* Vectors of the machine's size. */
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX2__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
#define VECTOR(type) typedef type v_##type __attribute__((vector_size(VECTOR_BYTES)))
typedef float f32;
typedef double f64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
VECTOR(f32);
VECTOR(f64);
VECTOR(i8);
VECTOR(i16);
VECTOR(i32);
VECTOR(i64);
VECTOR(u8);
VECTOR(u16);
VECTOR(u32);
VECTOR(u64);

/* One lane, and the same on vectors. MAX and MIN keep a NaN once they have met one. */
#define ADD1(c, a, b)          (a = (c)(a + b))
#define MUL1(c, a, b)          (a = (c)((wide_##c)a * b))
#define SQ1(c, a, b)           (a = (c)(a + (c)((wide_##c)b * b)))
#define MAX1(c, a, b)          (a = (b > a || b != b) ? b : a)
#define MIN1(c, a, b)          (a = (b < a || b != b) ? b : a)
#define ADDV(c, m, a, b)       (a += b)
#define MULV(c, m, a, b)       (a *= b)
#define SQV(c, m, a, b)        (a += b * b)
#define PICK(c, m, mask, a, b) (a = (__typeof__(a))(((m)(b) & (m)(mask)) | ((m)(a) & ~(m)(mask))))
#define MAXV(c, m, a, b)       PICK(c, m, ((b > a) | (b != b)), a, b)
#define MINV(c, m, a, b)       PICK(c, m, ((b < a) | (b != b)), a, b)
/* what a narrow product is computed in: short integers promote to int, which may overflow */
typedef f32 wide_f32;
typedef f64 wide_f64;
typedef u32 wide_u8;
typedef u32 wide_u16;
typedef u32 wide_u32;
typedef u64 wide_u64;
/* Blocks are combined exactly like elements, in the wide type. Squares are summed by then. */
#define ADDW(a, b) (a += b)
#define MULW(a, b) (a *= b)
#define SQW(a, b)  (a += b)
#define MAXW(a, b) (a = (b > a || b != b) ? b : a)
#define MINW(a, b) (a = (b < a || b != b) ? b : a)

#define LOAD(v, p) memcpy(&v, p, sizeof v)

/* The halves of a vector, combined until 16 bytes are left. Shuffled: through memory, the loops' accumulator would live
 * there. */
typedef i64 words_16 __attribute__((vector_size(16)));
typedef i64 words_32 __attribute__((vector_size(32)));
#define HALVE(c, vec, bytes, words, from, low, top, out)                                                 \
  typedef c out##_type __attribute__((vector_size(bytes)));                                              \
  out##_type out = (out##_type)__builtin_shufflevector((words)(from), (words)(from), LANES_##low);       \
  out##_type out##_top = (out##_type)__builtin_shufflevector((words)(from), (words)(from), LANES_##top); \
  vec(c, __typeof__(out > out), out, out##_top)
#define LANES_0_1 0, 1
#define LANES_2_3 2, 3
#define LANES_0_3 0, 1, 2, 3
#define LANES_4_7 4, 5, 6, 7
#if defined(__AVX512F__)
#define TO_16_BYTES(c, vec, from, out)             \
  HALVE(c, vec, 32, v_i64, from, 0_3, 4_7, upper); \
  HALVE(c, vec, 16, words_32, upper, 0_1, 2_3, out)
#elif defined(__AVX2__)
#define TO_16_BYTES(c, vec, from, out) HALVE(c, vec, 16, words_32, from, 0_1, 2_3, out)
#else
#define TO_16_BYTES(c, vec, from, out) v_##c out = from
#endif

/* How a vector's lanes join the total: sums in the wide type, those of float by vectors of double; what is exact
 * whatever the order by halves. */
#define BY_LANES(c, from, total, vec_merge, wide)                                          \
  c lanes[LANES];                                                                          \
  memcpy(lanes, &from, sizeof lanes);                                                      \
  __typeof__(total) even = (__typeof__(total))lanes[0], odd = (__typeof__(total))lanes[1]; \
  for (int k = 2; k < LANES; k += 2) {                                                     \
    wide(even, (__typeof__(total))lanes[k]);                                               \
    wide(odd, (__typeof__(total))lanes[k + 1]);                                            \
  }                                                                                        \
  wide(even, odd);                                                                         \
  wide(total, even)
#define BY_DOUBLES(c, from, total, vec_merge, wide)                                                 \
  typedef c narrow __attribute__((vector_size(VECTOR_BYTES / 2)));                                  \
  narrow low, high;                                                                                 \
  memcpy(&low, &from, sizeof low);                                                                  \
  memcpy(&high, (const char *)&from + sizeof low, sizeof high);                                     \
  v_f64 doubles = __builtin_convertvector(low, v_f64), more = __builtin_convertvector(high, v_f64); \
  vec_merge(f64, v_i64, doubles, more);                                                             \
  TO_16_BYTES(f64, vec_merge, doubles, last);                                                       \
  f64 sum = last[0];                                                                                \
  wide(sum, last[1]);                                                                               \
  wide(total, sum)
typedef i32 fours __attribute__((vector_size(16)));
typedef i16 twos __attribute__((vector_size(16)));
typedef i8 ones __attribute__((vector_size(16)));
#define ALL_4(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
/* The vector's second unit joins its first. */
#define JOIN(c, vec, v, units, ...)                                                                     \
  do {                                                                                                  \
    __typeof__(v) second = (__typeof__(v))__builtin_shufflevector((units)(v), (units)(v), __VA_ARGS__); \
    vec(c, __typeof__(v > v), v, second);                                                               \
  } while (0)
/* Without a branch down to the last lane: which of two is larger nobody can foretell. */
#define BY_HALVES(c, from, total, vec_merge, wide)                       \
  TO_16_BYTES(c, vec_merge, from, last);                                 \
  JOIN(c, vec_merge, last, words_16, 1, 1);                              \
  if (sizeof(c) <= 4) JOIN(c, vec_merge, last, fours, ALL_4(1));         \
  if (sizeof(c) <= 2) JOIN(c, vec_merge, last, twos, ALL_4(1, 1));       \
  if (sizeof(c) == 1) JOIN(c, vec_merge, last, ones, ALL_4(1, 1, 1, 1)); \
  wide(total, (__typeof__(total))last[0])

/* `first` makes an accumulator of the first element (squares: the square; otherwise the element). */
#define SAME(c, a)   (a)
#define SQUARE(c, a) ((c)((wide_##c)(a) * (a)))

#define REDUCE(op, t, c, m, member, one, vec, vec_merge, wide, first, fold)                           \
  static inline void op##_row_##t(const void *xv, int64_t n, td_wide *acc) {                          \
    enum { LANES = VECTOR_BYTES / sizeof(c), BLOCK = 4096 / sizeof(c) };                              \
    const c *x = xv;                                                                                  \
    __typeof__(acc->member) total = acc->member;                                                      \
    while (n >= LANES) {                                                                              \
      int64_t size = n < BLOCK ? n / LANES * LANES : BLOCK, i = LANES;                                \
      v_##c a0, a1, a2, a3, b0, b1, b2, b3;                                                           \
      LOAD(a0, x);                                                                                    \
      a0 = first(v_##c, a0);                                                                          \
      if (size >= 4 * LANES) {                                                                        \
        LOAD(a1, x + LANES);                                                                          \
        LOAD(a2, x + 2 * LANES);                                                                      \
        LOAD(a3, x + 3 * LANES);                                                                      \
        a1 = first(v_##c, a1), a2 = first(v_##c, a2), a3 = first(v_##c, a3);                          \
        for (i = 4 * LANES; i + 4 * LANES <= size; i += 4 * LANES) {                                  \
          LOAD(b0, x + i);                                                                            \
          LOAD(b1, x + i + LANES);                                                                    \
          LOAD(b2, x + i + 2 * LANES);                                                                \
          LOAD(b3, x + i + 3 * LANES);                                                                \
          vec(c, m, a0, b0);                                                                          \
          vec(c, m, a1, b1);                                                                          \
          vec(c, m, a2, b2);                                                                          \
          vec(c, m, a3, b3);                                                                          \
        }                                                                                             \
        vec_merge(c, m, a0, a1);                                                                      \
        vec_merge(c, m, a2, a3);                                                                      \
        vec_merge(c, m, a0, a2);                                                                      \
      }                                                                                               \
      for (; i < size; i += LANES) {                                                                  \
        LOAD(b0, x + i);                                                                              \
        vec(c, m, a0, b0);                                                                            \
      }                                                                                               \
      n -= size, x += size;                                                                           \
      fold(c, a0, total, vec_merge, wide);                                                            \
    }                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                 \
      __typeof__(total) b = (__typeof__(total))first(c, x[i]);                                        \
      wide(total, b);                                                                                 \
    }                                                                                                 \
    acc->member = total;                                                                              \
  }                                                                                                   \
  static void op##_inner_##t(const void *xv, int64_t rows, int64_t stride, int64_t n, td_wide *acc) { \
    for (int64_t r = 0; r < rows; r++) op##_row_##t((const c *)xv + r * stride, n, &acc[r]);          \
  }                                                                                                   \
  static void op##_outer_##t(const void *xv, int64_t rows, int64_t stride, int64_t n, td_wide *acc) { \
    enum { BLOCK = 64 };                                                                              \
    c part[TD_REDUCE_COLUMNS];                                                                        \
    for (const c *x = xv; rows > 0; rows -= BLOCK, x += BLOCK * stride) {                             \
      int64_t k = rows < BLOCK ? rows : BLOCK;                                                        \
      for (int64_t i = 0; i < n; i++) part[i] = first(c, x[i]);                                       \
      for (int64_t r = 1; r < k; r++) {                                                               \
        const c *row = x + r * stride;                                                                \
        TD_VECTOR_LOOP                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                             \
          c b = row[i];                                                                               \
          one(c, part[i], b);                                                                         \
        }                                                                                             \
      }                                                                                               \
      for (int64_t i = 0; i < n; i++) {                                                               \
        __typeof__(acc->member) b = (__typeof__(acc->member))part[i];                                 \
        wide(acc[i].member, b);                                                                       \
      }                                                                                               \
    }                                                                                                 \
  }

/* Signed integers add and multiply as unsigned. */
#define ARITHMETIC(X, t, c, m, member, fold)                   \
  X(SUM, t, c, m, member, ADD1, ADDV, ADDV, ADDW, SAME, fold)  \
  X(PROD, t, c, m, member, MUL1, MULV, MULV, MULW, SAME, fold) \
  X(SQUARES, t, c, m, member, SQ1, SQV, ADDV, SQW, SQUARE_OF, fold)
#define SQUARE_OF(c, a) ((c)((a) * (a)))
#define ORDER(X, t, c, m, member)                                  \
  X(MAX, t, c, m, member, MAX1, MAXV, MAXV, MAXW, SAME, BY_HALVES) \
  X(MIN, t, c, m, member, MIN1, MINV, MINV, MINW, SAME, BY_HALVES)
#define LOOPS(X)                                  \
  ARITHMETIC(X, FLOAT, f32, v_i32, d, BY_DOUBLES) \
  ORDER(X, FLOAT, f32, v_i32, d)                  \
  ARITHMETIC(X, DOUBLE, f64, v_i64, d, BY_LANES)  \
  ORDER(X, DOUBLE, f64, v_i64, d)                 \
  ARITHMETIC(X, UINT8, u8, v_u8, u, BY_LANES)     \
  ARITHMETIC(X, UINT16, u16, v_u16, u, BY_LANES)  \
  ARITHMETIC(X, UINT32, u32, v_u32, u, BY_LANES)  \
  ARITHMETIC(X, UINT64, u64, v_u64, u, BY_LANES)  \
  ORDER(X, UINT8, u8, v_u8, u)                    \
  ORDER(X, UINT16, u16, v_u16, u)                 \
  ORDER(X, UINT32, u32, v_u32, u)                 \
  ORDER(X, UINT64, u64, v_u64, u)                 \
  ORDER(X, INT8, i8, v_i8, i)                     \
  ORDER(X, INT16, i16, v_i16, i)                  \
  ORDER(X, INT32, i32, v_i32, i)                  \
  ORDER(X, INT64, i64, v_i64, i)

/* x != x is how NaN is found; on integers it is plainly false. uint16 squared promotes to int. */
#pragma GCC diagnostic ignored "-Wtautological-compare"
#undef SQUARE_OF
#define SQUARE_OF(c, a) SQUARE_##c(a)
#define SQUARE_f32(a)   ((a) * (a))
#define SQUARE_f64(a)   ((a) * (a))
#define SQUARE_u8(a)    ((u8)((u32)(a) * (a)))
#define SQUARE_u16(a)   ((u16)((u32)(a) * (a)))
#define SQUARE_u32(a)   ((a) * (a))
#define SQUARE_u64(a)   ((a) * (a))
#define SQUARE_v_f32(a) ((a) * (a))
#define SQUARE_v_f64(a) ((a) * (a))
#define SQUARE_v_u8(a)  ((a) * (a))
#define SQUARE_v_u16(a) ((a) * (a))
#define SQUARE_v_u32(a) ((a) * (a))
#define SQUARE_v_u64(a) ((a) * (a))
LOOPS(REDUCE)

/* Complex numbers: one by one, in double. */
#define COMPLEX(op, t, c, re, im, ...)                                                                \
  static inline void op##_row_##t(const void *xv, int64_t n, td_wide *acc) {                          \
    const c *x = xv;                                                                                  \
    double p = acc->pair[0], q = acc->pair[1];                                                        \
    for (int64_t i = 0; i < n; i++) {                                                                 \
      double a = re(x[i]), b = im(x[i]);                                                              \
      __VA_ARGS__;                                                                                    \
    }                                                                                                 \
    acc->pair[0] = p, acc->pair[1] = q;                                                               \
  }                                                                                                   \
  static void op##_inner_##t(const void *xv, int64_t rows, int64_t stride, int64_t n, td_wide *acc) { \
    for (int64_t r = 0; r < rows; r++) op##_row_##t((const c *)xv + r * stride, n, &acc[r]);          \
  }                                                                                                   \
  static void op##_outer_##t(const void *xv, int64_t rows, int64_t stride, int64_t n, td_wide *acc) { \
    for (int64_t r = 0; r < rows; r++)                                                                \
      for (int64_t i = 0; i < n; i++) op##_row_##t((const c *)xv + r * stride + i, 1, &acc[i]);       \
  }
#define COMPLEXES(X, t, c, re, im)                                          \
  X(SUM, t, c, re, im, p += a, q += b)                                      \
  X(PROD, t, c, re, im, double s = p * a - q * b; q = p * b + q * a; p = s) \
  X(SQUARES, t, c, re, im, p += a * a + b * b)
COMPLEXES(COMPLEX, COMPLEX64, td_complex64, crealf, cimagf)
COMPLEXES(COMPLEX, COMPLEX128, td_complex128, creal, cimag)

#define CASES(kind)                   \
  switch (op * 32 + (int)t) {         \
    LOOPS(kind)                       \
    COMPLEXES(kind, COMPLEX64, , , )  \
    COMPLEXES(kind, COMPLEX128, , , ) \
    default:                          \
      return NULL;                    \
  }
#define INNER_CASE(op, t, ...)    \
  case TD_RED_##op * 32 + TD_##t: \
    return op##_inner_##t;
#define OUTER_CASE(op, t, ...)    \
  case TD_RED_##op * 32 + TD_##t: \
    return op##_outer_##t;

td_reduce_inner_fn TD_ISA_NAME(td_reduce_inner_loop)(int op, td_dtype t){CASES(INNER_CASE)} td_reduce_outer_fn
    TD_ISA_NAME(td_reduce_outer_loop)(int op, td_dtype t) {
  CASES(OUTER_CASE)
}

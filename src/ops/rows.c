#include "ops/rows.h"

#include <string.h>

typedef struct b16 {
  uint64_t w[2];
} b16;

#define SAME(x)    (x)
#define TO_HALF(x) td_half_from_float(x)
#define OF_HALF(x) td_half_to_float(x)
#define TO_BF16(x) td_bfloat16_from_float(x)
#define OF_BF16(x) td_bfloat16_to_float(x)

/* One update of elements of type T, computed in C. */
#define ROWS(ATTR, NAME, T, C, OF, TO, EXPR)                                  \
  ATTR static void NAME(void *dst, const void *src, int64_t n, bool scalar) { \
    T *restrict d = dst;                                                      \
    const T *restrict s = src;                                                \
    if (scalar) {                                                             \
      const C b = OF(s[0]);                                                   \
      for (int64_t i = 0; i < n; i++) {                                       \
        const C a = OF(d[i]);                                                 \
        (void)a;                                                              \
        d[i] = TO(EXPR);                                                      \
      }                                                                       \
      return;                                                                 \
    }                                                                         \
    for (int64_t i = 0; i < n; i++) {                                         \
      const C a = OF(d[i]), b = OF(s[i]);                                     \
      (void)a;                                                                \
      d[i] = TO(EXPR);                                                        \
    }                                                                         \
  }

/* Integers are computed in an unsigned type U of at least 32 bits, so that nothing overflows. */
#define INT_ROWS(A, P, T, U, SIGNED)                                                                      \
  ROWS(A, P##add_##T, T, T, SAME, (T), ((U)a + (U)b))                                                     \
  ROWS(A, P##sub_##T, T, T, SAME, (T), ((U)a - (U)b))                                                     \
  ROWS(A, P##mul_##T, T, T, SAME, (T), ((U)a * (U)b))                                                     \
  ROWS(A, P##div_##T, T, T, SAME, (T), (b == 0 ? (U)0 : SIGNED && b == (T)-1 ? (U)0 - (U)a : (U)(a / b))) \
  ROWS(A, P##min_##T, T, T, SAME, (T), (b < a ? b : a))                                                   \
  ROWS(A, P##max_##T, T, T, SAME, (T), (a < b ? b : a))

#define FLOAT_ARITHMETIC(A, P, T, C, OF, TO) \
  ROWS(A, P##add_##T, T, C, OF, TO, (a + b)) \
  ROWS(A, P##sub_##T, T, C, OF, TO, (a - b)) \
  ROWS(A, P##mul_##T, T, C, OF, TO, (a * b)) \
  ROWS(A, P##div_##T, T, C, OF, TO, (a / b))
#define FLOAT_ROWS(A, P, T, C, OF, TO)               \
  FLOAT_ARITHMETIC(A, P, T, C, OF, TO)               \
  ROWS(A, P##min_##T, T, C, OF, TO, (b < a ? b : a)) \
  ROWS(A, P##max_##T, T, C, OF, TO, (a < b ? b : a))

#define ALL_ROWS(A, P)                                             \
  INT_ROWS(A, P, int8_t, uint32_t, true)                           \
  INT_ROWS(A, P, int16_t, uint32_t, true)                          \
  INT_ROWS(A, P, int32_t, uint32_t, true)                          \
  INT_ROWS(A, P, int64_t, uint64_t, true)                          \
  INT_ROWS(A, P, uint8_t, uint32_t, false)                         \
  INT_ROWS(A, P, uint16_t, uint32_t, false)                        \
  INT_ROWS(A, P, uint32_t, uint32_t, false)                        \
  INT_ROWS(A, P, uint64_t, uint64_t, false)                        \
  FLOAT_ROWS(A, P, float, float, SAME, SAME)                       \
  FLOAT_ROWS(A, P, double, double, SAME, SAME)                     \
  FLOAT_ROWS(A, P, td_half, float, OF_HALF, TO_HALF)               \
  FLOAT_ROWS(A, P, td_bfloat16, float, OF_BF16, TO_BF16)           \
  FLOAT_ARITHMETIC(A, P, td_complex64, td_complex64, SAME, SAME)   \
  FLOAT_ARITHMETIC(A, P, td_complex128, td_complex128, SAME, SAME) \
  ROWS(A, P##add_bool, bool, bool, SAME, SAME, (a | b))            \
  ROWS(A, P##sub_bool, bool, bool, SAME, SAME, (a ^ b))            \
  ROWS(A, P##set_1, uint8_t, uint8_t, SAME, SAME, b)               \
  ROWS(A, P##set_2, uint16_t, uint16_t, SAME, SAME, b)             \
  ROWS(A, P##set_4, uint32_t, uint32_t, SAME, SAME, b)             \
  ROWS(A, P##set_8, uint64_t, uint64_t, SAME, SAME, b)             \
  ROWS(A, P##set_16, b16, b16, SAME, SAME, b)

#define ARITHMETIC_OF(P, DT, T)                                                                   \
  [TD_ROWS_ADD][DT] = P##add_##T, [TD_ROWS_SUB][DT] = P##sub_##T, [TD_ROWS_MUL][DT] = P##mul_##T, \
  [TD_ROWS_DIV][DT] = P##div_##T
#define ROWS_OF(P, DT, T) ARITHMETIC_OF(P, DT, T), [TD_ROWS_MIN][DT] = P##min_##T, [TD_ROWS_MAX][DT] = P##max_##T
#define ROWS_TABLE(P)                                                                                      \
  {                                                                                                        \
    ROWS_OF(P, TD_INT8, int8_t), ROWS_OF(P, TD_INT16, int16_t), ROWS_OF(P, TD_INT32, int32_t),             \
        ROWS_OF(P, TD_INT64, int64_t), ROWS_OF(P, TD_UINT8, uint8_t), ROWS_OF(P, TD_UINT16, uint16_t),     \
        ROWS_OF(P, TD_UINT32, uint32_t), ROWS_OF(P, TD_UINT64, uint64_t), ROWS_OF(P, TD_FLOAT, float),     \
        ROWS_OF(P, TD_DOUBLE, double), ROWS_OF(P, TD_HALF, td_half), ROWS_OF(P, TD_BFLOAT16, td_bfloat16), \
        ARITHMETIC_OF(P, TD_COMPLEX64, td_complex64), ARITHMETIC_OF(P, TD_COMPLEX128, td_complex128),      \
        [TD_ROWS_ADD][TD_BOOL] = P##add_bool, [TD_ROWS_SUB][TD_BOOL] = P##sub_bool                         \
  }

/* clang-format off */
ALL_ROWS(, plain_)
static td_rows_fn *const plain_table[TD_ROWS_MAX + 1][TD_DTYPE_LIMIT] = ROWS_TABLE(plain_);
#if TD_TSAN
/* memcpy() is watched wherever it is called: keep the compiler from making calls of loops */
#if defined(__clang__)
#define RACY_LOOPS TD_RACY __attribute__((no_builtin("memcpy", "memset", "memmove")))
#else
#define RACY_LOOPS TD_RACY __attribute__((optimize("no-tree-loop-distribute-patterns")))
#endif
ALL_ROWS(RACY_LOOPS, td_racy_)
static td_rows_fn *const racy_table[TD_ROWS_MAX + 1][TD_DTYPE_LIMIT] = ROWS_TABLE(td_racy_);
#endif
/* clang-format on */

static td_rows_fn *set_of(td_rows_fn *const by_log_size[5], td_dtype t) {
  if (!td_dtype_is_pod(t)) return NULL;
  switch (td_dtype_size(t)) {
    case 1:
      return by_log_size[0];
    case 2:
      return by_log_size[1];
    case 4:
      return by_log_size[2];
    case 8:
      return by_log_size[3];
    case 16:
      return by_log_size[4];
    default:
      return NULL;
  }
}

td_rows_fn *td_rows(td_rows_op op, td_dtype t) {
  static td_rows_fn *const sets[] = {plain_set_1, plain_set_2, plain_set_4, plain_set_8, plain_set_16};
  if ((unsigned)t >= TD_DTYPE_LIMIT) return NULL;
  return op == TD_ROWS_SET ? set_of(sets, t) : plain_table[op][t];
}

td_rows_fn *td_racy_rows(td_rows_op op, td_dtype t) {
#if TD_TSAN
  static td_rows_fn *const sets[] = {td_racy_set_1, td_racy_set_2, td_racy_set_4, td_racy_set_8, td_racy_set_16};
  if ((unsigned)t >= TD_DTYPE_LIMIT) return NULL;
  return op == TD_ROWS_SET ? set_of(sets, t) : racy_table[op][t];
#else
  return td_rows(op, t);
#endif
}

static bool is_zero(const td_tensor *t, int64_t i) {
  switch ((td_dtype)t->dtype) {
    case TD_FLOAT:
      return TD_DATA(t, float)[i] == 0;
    case TD_DOUBLE:
      return TD_DATA(t, double)[i] == 0;
    case TD_HALF:
      return !(TD_DATA(t, td_half)[i].bits & 0x7fff);
    case TD_BFLOAT16:
      return !(TD_DATA(t, td_bfloat16)[i].bits & 0x7fff);
    case TD_COMPLEX64:
      return TD_DATA(t, td_complex64)[i] == 0;
    case TD_COMPLEX128:
      return TD_DATA(t, td_complex128)[i] == 0;
    default:
      break;
  }
  static const char zeros[16];
  size_t size = td_dtype_size((td_dtype)t->dtype);
  return size <= sizeof zeros && !memcmp((const char *)t->data + (size_t)i * size, zeros, size);
}

bool td_rows_has_zero(const td_tensor *t) {
  for (int64_t i = 0; i < t->count; i++)
    if (is_zero(t, i)) return true;
  return false;
}

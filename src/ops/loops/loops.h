/* Inner loops of the element-wise ops: plain loops over contiguous elements that the compiler vectorises.
 *
 * The files of this folder are compiled once per instruction set (cmake/ops.cmake), with TD_ISA naming the copy;
 * td_unary_loop() and its kin choose the best copy that this CPU runs. A loop may run in place (output = an input).
 * half and bfloat16 have no loops of their own: td_map_unary() and td_map_binary() convert blocks to float, run the
 * float loop and round once.
 *
 * Thread-safety: loops have no state. Every function here may be called from any thread.
 */
#ifndef TD_OPS_LOOPS_LOOPS_H_
#define TD_OPS_LOOPS_LOOPS_H_

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* z[i] = f(x[i]). `p` is the op's one float attribute, if it has any. */
typedef void (*td_unary_fn)(const void *x, void *z, int64_t n, double p);
/* z[i] = f(x[i], y[i]). Returns an or of TD_LOOP_*. */
typedef int (*td_binary_fn)(const void *x, const void *y, void *z, int64_t n, double p);

enum { TD_LOOP_OK = 0, TD_LOOP_DIVIDES_BY_ZERO = 1, TD_LOOP_NEGATIVE_POWER = 2 };

typedef enum td_unary {
/* clang-format off */
#define TD_UNARY_NAMES(X) \
  X(Abs) X(Neg) X(Inv) X(Square) X(Sqrt) X(Rsqrt) X(Exp) X(Expm1) X(Log) X(Log1p) X(Sin) X(Cos) X(Tan) X(Sinh) \
  X(Cosh) X(Tanh) X(Asin) X(Acos) X(Atan) X(Asinh) X(Acosh) X(Atanh) X(Sigmoid) X(Sign) X(Floor) X(Ceil) X(Rint) \
  X(Erf) X(Erfc) X(Erfinv) X(Ndtri) X(Lgamma) X(Digamma) X(IsNan) X(IsInf) X(IsFinite) X(LogicalNot) X(Invert) \
  X(Conj) X(Real) X(Imag) X(Angle) X(Relu) X(Relu6) X(Elu) X(Selu) X(LeakyRelu) X(Softplus) X(Softsign) \
  X(PopulationCount)
/* clang-format on */
#define TD_UNARY_ENUM(name) TD_UN_##name,
  TD_UNARY_NAMES(TD_UNARY_ENUM)
#undef TD_UNARY_ENUM
      TD_UN_COUNT,
} td_unary;

typedef enum td_binary {
/* clang-format off */
#define TD_BINARY_NAMES(X) \
  X(Add) X(Sub) X(Mul) X(MulNoNan) X(Div) X(DivNoNan) X(FloorDiv) X(TruncateDiv) X(TruncateMod) X(FloorMod) X(Pow) \
  X(Maximum) X(Minimum) X(SquaredDifference) X(Atan2) X(NextAfter) X(Xdivy) X(Xlogy) X(Xlog1py) X(Complex) X(And) \
  X(Or) X(Xor) X(LeftShift) X(RightShift) X(Igamma) X(Igammac) X(Zeta) X(Polygamma) X(Equal) X(NotEqual) X(Less) \
  X(LessEqual) X(ApproximateEqual) X(SigmoidGrad) X(TanhGrad) X(SqrtGrad) X(RsqrtGrad) X(InvGrad) X(ReluGrad) \
  X(Relu6Grad) X(EluGrad) X(SeluGrad) X(LeakyReluGrad) X(SoftplusGrad) X(SoftsignGrad)
/* clang-format on */
#define TD_BINARY_ENUM(name) TD_BIN_##name,
  TD_BINARY_NAMES(TD_BINARY_ENUM)
#undef TD_BINARY_ENUM
      TD_BIN_COUNT,
} td_binary;

/* The loop for elements of type `t`; NULL when there is none (half and bfloat16 never have one). */
td_unary_fn td_unary_loop(td_unary op, td_dtype t);
td_binary_fn td_binary_loop(td_binary op, td_dtype t);

/* z[i] = x[0][i] + x[1][i] + …, from left to right, of 3 or 4 arrays: each is read once, and z written once. NULL where
 * there is no such loop. */
enum { TD_MOST_SUMMED = 4 };
typedef void (*td_sum_fn)(const void *const *x, int count, void *z, int64_t n);
td_sum_fn td_sum_loop(td_dtype t);

/* Block conversions, n elements. */
typedef void (*td_convert_fn)(const void *x, void *z, int64_t n);
typedef struct td_half_loops {
  td_convert_fn half_to_float, float_to_half, bfloat16_to_float, float_to_bfloat16;
} td_half_loops;
const td_half_loops *td_half_loops_get(void);

/* A loop with its conversions, for any element type: choose once, run often. */
typedef struct td_map {
  td_unary_fn unary;
  td_binary_fn binary;
  td_unary_fn then;            /* NULL, or a second step on narrowed results */
  td_convert_fn widen, narrow; /* NULL: elements are the loop's own */
  double p;
  uint8_t in_size, out_size;
} td_map;
/* False when there is no such loop. `out_size`: bytes of an output element. */
bool td_map_init_unary(td_map *m, td_unary op, td_dtype t, td_dtype out, double p);
bool td_map_init_binary(td_map *m, td_binary op, td_dtype t, td_dtype out, double p);
void td_map_unary(const td_map *m, const void *x, void *z, int64_t n);
/* Strides sx, sy in {0, 1}: 0 repeats the first element. */
int td_map_binary(const td_map *m, const void *x, int sx, const void *y, int sy, void *z, int64_t n);

/* ---- for the files of this folder ---- */
#define TD_ISA_PASTE2(name, isa) name##_##isa
#define TD_ISA_PASTE(name, isa)  TD_ISA_PASTE2(name, isa)
#define TD_ISA_NAME(name)        TD_ISA_PASTE(name, TD_ISA)

/* Elements may be read and written in place, and never otherwise overlap. */
#ifdef __clang__
#define TD_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TD_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

#define TD_ISA_DECLARE(isa)                              \
  td_unary_fn td_unary_loop_##isa(int op, td_dtype t);   \
  td_binary_fn td_binary_loop_##isa(int op, td_dtype t); \
  td_sum_fn td_sum_loop_##isa(td_dtype t);               \
  extern const td_half_loops td_half_loops_##isa;
TD_ISA_DECLARE(base)
TD_ISA_DECLARE(avx2)
TD_ISA_DECLARE(avx512)
#undef TD_ISA_DECLARE
/* Ops that no instruction set speeds up, compiled once. */
td_unary_fn td_unary_loop_plain(int op, td_dtype t);
td_binary_fn td_binary_loop_plain(int op, td_dtype t);

/* The best instruction set here: 0 base, 1 AVX2 + FMA, 2 AVX-512. */
int td_isa_best(void);

#endif /* TD_OPS_LOOPS_LOOPS_H_ */

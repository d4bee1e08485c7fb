#include "ops/training_rules.h"

#include <complex.h>
#include <math.h>

#include "base/mem.h"
#include "ops/loops/loops.h"
#include "ops/rows.h"
#ifdef __x86_64__
#include "ops/loops/rsqrt.h"
#endif

typedef enum rule_index {
  GRADIENT_DESCENT,
  MOMENTUM,
  KERAS_MOMENTUM,
  ADAM,
  ADAGRAD,
  ADAGRAD_V2,
  ADADELTA,
  RMSPROP,
  CENTERED_RMSPROP,
  AMSGRAD,
  ADAMAX,
  ADAGRAD_DA,
  PROXIMAL_GRADIENT_DESCENT,
  PROXIMAL_ADAGRAD,
  ADD_SIGN,
  POWER_SIGN,
  FTRL,
  FTRL_V2,
  RULE_COUNT,
} rule_index;

static const td_rule_info rules[RULE_COUNT] = {
    [GRADIENT_DESCENT] = {"GradientDescent", 1, 1, 0.1},
    [MOMENTUM] = {"Momentum", 2, 2, 0.15},
    [KERAS_MOMENTUM] = {"KerasMomentum", 2, 2, 0.15},
    [ADAM] = {"Adam", 3, 6, 0.3},
    [ADAGRAD] = {"Adagrad", 2, 1, 0.3},
    [ADAGRAD_V2] = {"AdagradV2", 2, 2, 0.3},
    [ADADELTA] = {"Adadelta", 3, 3, 0.5},
    [RMSPROP] = {"RMSProp", 3, 4, 0.3},
    [CENTERED_RMSPROP] = {"CenteredRMSProp", 4, 4, 0.4},
    [AMSGRAD] = {"AdamWithAmsgrad", 4, 6, 0.35},
    [ADAMAX] = {"AdaMax", 3, 5, 0.3},
    [ADAGRAD_DA] = {"AdagradDA", 3, 3, 0.4},
    [PROXIMAL_GRADIENT_DESCENT] = {"ProximalGradientDescent", 1, 3, 0.2},
    [PROXIMAL_ADAGRAD] = {"ProximalAdagrad", 2, 3, 0.4},
    [ADD_SIGN] = {"AddSign", 2, 4, 0.3},
    [POWER_SIGN] = {"PowerSign", 2, 4, 0.3},
    [FTRL] = {"Ftrl", 3, 4, 0.7},
    [FTRL_V2] = {"FtrlV2", 3, 5, 0.7},
};

const td_rule_info *td_rule_find(td_str name) {
  for (int i = 0; i < RULE_COUNT; i++)
    if (td_str_is(name, rules[i].name)) return &rules[i];
  return NULL;
}

#define COMMON_TABLE(R)                                                                                     \
  [GRADIENT_DESCENT] = R(gradient_descent), [MOMENTUM] = R(momentum), [KERAS_MOMENTUM] = R(keras_momentum), \
  [ADAM] = R(adam), [ADAGRAD] = R(adagrad), [ADAGRAD_V2] = R(adagrad_v2), [ADADELTA] = R(adadelta),         \
  [RMSPROP] = R(rmsprop), [CENTERED_RMSPROP] = R(centered_rmsprop)
#define REAL_TABLE(R)                                                                                                \
  COMMON_TABLE(R), [AMSGRAD] = R(amsgrad), [ADAMAX] = R(adamax), [ADAGRAD_DA] = R(adagrad_da),                       \
                   [PROXIMAL_GRADIENT_DESCENT] = R(proximal_gradient_descent),                                       \
                   [PROXIMAL_ADAGRAD] = R(proximal_adagrad), [ADD_SIGN] = R(add_sign), [POWER_SIGN] = R(power_sign), \
                   [FTRL] = R(ftrl), [FTRL_V2] = R(ftrl_v2)

/* Bytes of an array that a rule works on before it turns to the next stretch, and how far ahead it fetches. */
enum { LINE = 64, STRETCH = 8 * LINE, AHEAD = 8 * LINE };

/* The end of the stretch that begins at element `at` of n. What lies ahead is fetched into the cache: a rule reads up
 * to nine arrays at once, more than the processor's own prefetching follows, and that stops at the end of every page.
 */
__attribute__((always_inline)) static inline int64_t stretch_end(void *const *vars, const void *const *old, int arrays,
                                                                 const void *gradient, size_t size, int64_t begin,
                                                                 int64_t at, int64_t n) {
  if (n - at <= (AHEAD + STRETCH) / (int64_t)size) return n;
  for (size_t line = 0; line < STRETCH; line += LINE) {
    size_t next = (size_t)at * size + AHEAD + line, from = (size_t)begin * size + next;
    __builtin_prefetch((const char *)gradient + next);
    for (int k = 0; k < arrays; k++) {
      __builtin_prefetch((char *)vars[k] + from, 1);
      if (old[k] != vars[k]) __builtin_prefetch((const char *)old[k] + from);
    }
  }
  return at + STRETCH / (int64_t)size;
}

#define ATTR
#define REAL 1
#define P(i) ((T)creal(args->params[i]))

#define T          float
#define SQRT       sqrtf
#define POW        powf
#define EXP        expf
#define ABS        fabsf
#define RULE(name) name##_float
#include "ops/training_rules.inc"
static td_rule_fn *const float_rules[RULE_COUNT] = {REAL_TABLE(RULE)};
#undef RULE
#if TD_TSAN
#undef ATTR
#define ATTR       TD_RACY
#define RULE(name) td_racy_##name##_float
#include "ops/training_rules.inc"
static td_rule_fn *const racy_float_rules[RULE_COUNT] = {REAL_TABLE(RULE)};
#undef RULE
#undef ATTR
#define ATTR
#elif defined(__x86_64__)
#undef ATTR
#define ATTR       __attribute__((target("avx2,fma")))
#define RULE(name) name##_float_avx2
#include "ops/training_rules.inc"
static td_rule_fn *const float_rules_avx2[RULE_COUNT] = {REAL_TABLE(RULE)};
#undef RULE
#undef ATTR
#define ATTR
#endif
#undef T
#undef SQRT
#undef POW
#undef EXP
#undef ABS

#define T          double
#define SQRT       sqrt
#define POW        pow
#define EXP        exp
#define ABS        fabs
#define RULE(name) name##_double
#include "ops/training_rules.inc"
static td_rule_fn *const double_rules[RULE_COUNT] = {REAL_TABLE(RULE)};
#undef RULE
#undef T
#undef SQRT
#undef POW
#undef EXP
#undef ABS
#undef P
#undef REAL

#define REAL       0
#define P(i)       ((T)args->params[i])
#define T          td_complex64
#define SQRT       csqrtf
#define RULE(name) name##_complex64
#include "ops/training_rules.inc"
static td_rule_fn *const complex64_rules[RULE_COUNT] = {COMMON_TABLE(RULE)};
#undef RULE
#undef T
#undef SQRT
#define T          td_complex128
#define SQRT       csqrt
#define RULE(name) name##_complex128
#include "ops/training_rules.inc"
static td_rule_fn *const complex128_rules[RULE_COUNT] = {COMMON_TABLE(RULE)};

#if defined(__x86_64__) && !TD_TSAN
/* Division and root are most of this rule. */
__attribute__((target("avx512f"))) static void adagrad_float_avx512(void *const *vars, const void *const *old,
                                                                    const void *gradient, int64_t begin, int64_t end,
                                                                    const td_rule_args *args) {
  if (!args->update_slots) {
    float_rules_avx2[ADAGRAD](vars, old, gradient, begin, end, args);
    return;
  }
  float *var = (float *)vars[0] + begin, *accum = (float *)vars[1] + begin;
  const float *old_var = (const float *)old[0] + begin, *old_accum = (const float *)old[1] + begin, *grad = gradient;
  const __m512 lr = _mm512_set1_ps((float)creal(args->params[0]));
  const int64_t n = end - begin;
  for (int64_t at = 0, to; at < (to = stretch_end(vars, old, 2, gradient, sizeof(float), begin, at, n)); at = to)
    for (int64_t i = at; i < to; i += 16) {
      __mmask16 some = to - i < 16 ? (__mmask16)((1u << (to - i)) - 1) : (__mmask16)-1;
      __m512 g = _mm512_maskz_loadu_ps(some, grad + i);
      __m512 a = _mm512_fmadd_ps(g, g, _mm512_maskz_loadu_ps(some, old_accum + i));
      __m512 v = _mm512_maskz_loadu_ps(some, old_var + i);
      _mm512_mask_storeu_ps(accum + i, some, a);
      _mm512_mask_storeu_ps(var + i, some, _mm512_fnmadd_ps(_mm512_mul_ps(g, lr), td_rsqrt_16(a), v));
    }
}
#endif

static td_rule_fn *best_float_rule(rule_index rule, bool racy) {
#if TD_TSAN
  if (racy) return racy_float_rules[rule];
#elif defined(__x86_64__)
  if (rule == ADAGRAD && __builtin_cpu_supports("avx512f")) return adagrad_float_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return float_rules_avx2[rule];
#endif
  return float_rules[rule];
}

/* ---- 16 bits: blocks of float ---- */

enum { BLOCK = 256 };

#define DEFINE_NARROW(NAME, E, TO_FLOAT, OF_FLOAT)                                                                    \
  TD_RACY static void narrow_##NAME(rule_index rule, void *const *vars, const void *const *old, const void *gradient, \
                                    int64_t begin, int64_t end, const td_rule_args *args) {                           \
    float wide[TD_RULE_VARS][BLOCK], g[BLOCK];                                                                        \
    void *at[TD_RULE_VARS] = {wide[0], wide[1], wide[2], wide[3]};                                                    \
    const void *from_at[TD_RULE_VARS] = {wide[0], wide[1], wide[2], wide[3]};                                         \
    td_rule_fn *fn = best_float_rule(rule, false);                                                                    \
    for (int64_t from = begin; from < end; from += BLOCK) {                                                           \
      int n = (int)TD_MIN(end - from, (int64_t)BLOCK);                                                                \
      for (int i = 0; i < n; i++) g[i] = TO_FLOAT(((const E *)gradient)[from - begin + i]);                           \
      for (int k = 0; k < rules[rule].vars; k++)                                                                      \
        for (int i = 0; i < n; i++) wide[k][i] = TO_FLOAT(((const E *)old[k])[from + i]);                             \
      fn(at, from_at, g, 0, n, args);                                                                                 \
      for (int k = 0; k < rules[rule].vars; k++)                                                                      \
        for (int i = 0; i < n; i++) ((E *)vars[k])[from + i] = OF_FLOAT(wide[k][i]);                                  \
    }                                                                                                                 \
  }
DEFINE_NARROW(half, td_half, td_half_to_float, td_half_from_float)
DEFINE_NARROW(bfloat16, td_bfloat16, td_bfloat16_to_float, td_bfloat16_from_float)

/* One function a rule, since a rule's function knows only its arguments. */
/* clang-format off */
#define NARROW_RULES(X) \
  X(gradient_descent, GRADIENT_DESCENT) X(momentum, MOMENTUM) X(keras_momentum, KERAS_MOMENTUM) X(adam, ADAM) \
  X(adagrad, ADAGRAD) X(adagrad_v2, ADAGRAD_V2) X(adadelta, ADADELTA) X(rmsprop, RMSPROP) \
  X(centered_rmsprop, CENTERED_RMSPROP) X(amsgrad, AMSGRAD) X(adamax, ADAMAX) X(adagrad_da, ADAGRAD_DA) \
  X(proximal_gradient_descent, PROXIMAL_GRADIENT_DESCENT) X(proximal_adagrad, PROXIMAL_ADAGRAD) \
  X(add_sign, ADD_SIGN) X(power_sign, POWER_SIGN) X(ftrl, FTRL) X(ftrl_v2, FTRL_V2)
/* clang-format on */
#define DEFINE_NARROW_RULE(name, index)                                                                             \
  static void name##_half(void *const *vars, const void *const *old, const void *g, int64_t begin, int64_t end,     \
                          const td_rule_args *args) {                                                               \
    narrow_half(index, vars, old, g, begin, end, args);                                                             \
  }                                                                                                                 \
  static void name##_bfloat16(void *const *vars, const void *const *old, const void *g, int64_t begin, int64_t end, \
                              const td_rule_args *args) {                                                           \
    narrow_bfloat16(index, vars, old, g, begin, end, args);                                                         \
  }
NARROW_RULES(DEFINE_NARROW_RULE)
#define HALF_ENTRY(name, index)     [index] = name##_half,
#define BFLOAT16_ENTRY(name, index) [index] = name##_bfloat16,
static td_rule_fn *const half_rules[RULE_COUNT] = {NARROW_RULES(HALF_ENTRY)};
static td_rule_fn *const bfloat16_rules[RULE_COUNT] = {NARROW_RULES(BFLOAT16_ENTRY)};

td_rule_fn *td_rule_get(const td_rule_info *rule, td_dtype t, bool racy) {
  size_t i = (size_t)(rule - rules);
  switch (t) {
    case TD_FLOAT:
      return best_float_rule((rule_index)i, racy);
    case TD_DOUBLE:
      return double_rules[i];
    case TD_COMPLEX64:
      return complex64_rules[i];
    case TD_COMPLEX128:
      return complex128_rules[i];
    case TD_HALF:
      return half_rules[i];
    case TD_BFLOAT16:
      return bfloat16_rules[i];
    default:
      return NULL;
  }
}

#include "ops/random_fill.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { CHUNK = 128 /* groups made at a time */, WORDS = CHUNK * TD_PHILOX_WORDS, TRUNCATED_STEPS = 256 };

static const float least_uniform = 1.0e-7f;

bool td_random_supported(td_random_kind kind, td_dtype dtype) {
  bool integer = dtype == TD_INT32 || dtype == TD_INT64 || dtype == TD_UINT32 || dtype == TD_UINT64;
  return kind == TD_RANDOM_INT || kind == TD_RANDOM_FULL_INT ? integer : td_dtype_in(dtype, TD_SET_FLOATING);
}

int td_random_group_size(const td_random_spec *s) { return td_dtype_size(s->dtype) == 8 ? 2 : 4; }

/* ---- Box-Muller ---- */

void td_random_normal_pair(uint32_t x0, uint32_t x1, float out[2]) {
  float u = td_philox_float(x0);
  if (u < least_uniform) u = least_uniform;
  float angle = (float)(2.0f * M_PI * td_philox_float(x1));
  float radius = sqrtf(-2.0f * logf(u));
  out[0] = sinf(angle) * radius;
  out[1] = cosf(angle) * radius;
}

void td_random_normal_pair_double(const uint32_t x[4], double out[2]) {
  double u = td_philox_double(x[0], x[1]);
  if (u < 1.0e-7) u = 1.0e-7;
  double angle = 2 * M_PI * td_philox_double(x[2], x[3]);
  double radius = sqrt(-2.0 * log(u));
  out[0] = sin(angle) * radius;
  out[1] = cos(angle) * radius;
}

/* Natural logarithm of a normal number in (0, 1], within 1 ulp (polynomial of the Cephes library). Branch-free, for
 * the vectoriser. */
static inline __attribute__((always_inline)) float fast_log(float u) {
  uint32_t bits;
  memcpy(&bits, &u, sizeof bits);
  /* mantissa in [sqrt(1/2), sqrt(2)) and the exponent that goes with it */
  uint32_t shifted = bits - 0x3f3504f3u;
  float e = (float)((int32_t)shifted >> 23);
  uint32_t mantissa = (shifted & 0x7fffffu) + 0x3f3504f3u;
  float x;
  memcpy(&x, &mantissa, sizeof x);
  x -= 1.0f;
  float z = x * x;
  float y = 7.0376836292e-2f;
  y = y * x - 1.1514610310e-1f;
  y = y * x + 1.1676998740e-1f;
  y = y * x - 1.2420140846e-1f;
  y = y * x + 1.4249322787e-1f;
  y = y * x - 1.6668057665e-1f;
  y = y * x + 2.0000714765e-1f;
  y = y * x - 2.4999993993e-1f;
  y = y * x + 3.3333331174e-1f;
  y = y * x * z;
  y += e * -2.12194440e-4f;
  y -= 0.5f * z;
  return x + y + e * 0.693359375f;
}

/* Sine and cosine of an angle in [0, 2 pi] (polynomials of the Cephes library). */
static inline __attribute__((always_inline)) void fast_sincos(float a, float *sine, float *cosine) {
  int32_t octant = ((int32_t)(a * 1.27323954473516f) + 1) & ~1;
  float y = (float)octant;
  float x = ((a - y * 0.78515625f) - y * 2.4187564849853515625e-4f) - y * 3.77489497744594108e-8f;
  float z = x * x;
  float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
  bool swap = octant & 2;
  float sin_part = swap ? c : s, cos_part = swap ? s : c;
  *sine = octant & 4 ? -sin_part : sin_part;
  *cosine = (octant + 2) & 4 ? -cos_part : cos_part;
}

static inline __attribute__((always_inline)) void normals_loop(float *restrict out, const uint32_t *restrict words,
                                                               int pairs) {
  for (int i = 0; i < pairs; i++) {
    float u = td_philox_float(words[2 * i]);
    u = u < least_uniform ? least_uniform : u;
    float angle = (float)(2.0f * M_PI * td_philox_float(words[2 * i + 1]));
    float radius = sqrtf(-2.0f * fast_log(u)), s, c;
    fast_sincos(angle, &s, &c);
    out[2 * i] = s * radius;
    out[2 * i + 1] = c * radius;
  }
}

typedef void normals_fn(float *out, const uint32_t *words, int pairs);
static void normals_plain(float *out, const uint32_t *words, int pairs) { normals_loop(out, words, pairs); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void normals_avx2(float *out, const uint32_t *words, int pairs) {
  normals_loop(out, words, pairs);
}
#ifdef __clang__ /* knows no such target */
#define WIDE ""
#else
#define WIDE ",prefer-vector-width=512"
#endif
__attribute__((target("avx512f,avx512dq,avx512vl" WIDE))) static void normals_avx512(float *out, const uint32_t *words,
                                                                                     int pairs) {
  normals_loop(out, words, pairs);
}
#endif

static normals_fn *choose_normals(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) return normals_avx512;
  if (__builtin_cpu_supports("avx2")) return normals_avx2;
#endif
  return normals_plain;
}

/* ---- words to elements; n elements (normals: n may be odd, words are there for the pair) ---- */

static void uniform_elements(td_dtype t, void *out, const uint32_t *w, int n) {
  switch (t) {
    case TD_FLOAT:
      for (int i = 0; i < n; i++) ((float *)out)[i] = td_philox_float(w[i]);
      break;
    case TD_DOUBLE:
      for (int i = 0; i < n; i++) ((double *)out)[i] = td_philox_double(w[2 * i], w[2 * i + 1]);
      break;
    case TD_HALF:
      for (int i = 0; i < n; i++) ((td_half *)out)[i] = td_half_from_float((float)(w[i] & 0x3ff) * (1.0f / 1024));
      break;
    case TD_BFLOAT16:
      for (int i = 0; i < n; i++) ((td_bfloat16 *)out)[i] = td_bfloat16_from_float((float)(w[i] & 0x7f) * (1.0f / 128));
      break;
    default:
      break;
  }
}

static void from_floats(td_dtype t, void *out, const float *f, int n) {
  if (t == TD_FLOAT) {
    memcpy(out, f, (size_t)n * sizeof *f);
  } else if (t == TD_HALF) {
    for (int i = 0; i < n; i++) ((td_half *)out)[i] = td_half_from_float(f[i]);
  } else {
    for (int i = 0; i < n; i++) ((td_bfloat16 *)out)[i] = td_bfloat16_from_float(f[i]);
  }
}

static void normal_elements(td_dtype t, void *out, const uint32_t *w, int n) {
  if (t == TD_DOUBLE) {
    for (int i = 0; i < n; i += 2) {
      double pair[2];
      td_random_normal_pair_double(w + 2 * i, pair);
      memcpy((double *)out + i, pair, (size_t)TD_MIN(n - i, 2) * sizeof *pair);
    }
    return;
  }
  normals_fn *normals = choose_normals();
  if (t == TD_FLOAT && n % 2 == 0) {
    normals(out, w, n / 2);
    return;
  }
  float f[WORDS];
  normals(f, w, (n + 1) / 2);
  from_floats(t, out, f, n);
}

static void int_elements(const td_random_spec *s, void *out, const uint32_t *w, int n) {
  bool full = s->kind == TD_RANDOM_FULL_INT;
  if (td_dtype_size(s->dtype) == 4) {
    uint32_t *o = out, range = (uint32_t)s->range, low = (uint32_t)s->low;
    for (int i = 0; i < n; i++) o[i] = full ? w[i] : low + w[i] % range;
    return;
  }
  uint64_t *o = out;
  for (int i = 0; i < n; i++) {
    uint64_t bits = w[2 * i] | (uint64_t)w[2 * i + 1] << 32;
    o[i] = full ? bits : s->low + bits % s->range;
  }
}

/* ---- truncated normals: a group has a stretch of the stream of its own and draws until it is full ---- */

/* With the C library's functions: what is rejected must not hang on a last digit. */
static void truncated_group(td_dtype t, void *out, td_philox stream, int n) {
  td_philox_words words = td_philox_words_of(stream);
  for (int i = 0; i < n;) {
    if (t == TD_DOUBLE) {
      uint32_t x[4];
      double pair[2];
      for (int k = 0; k < 4; k++) x[k] = td_philox_word(&words);
      td_random_normal_pair_double(x, pair);
      for (int k = 0; k < 2 && i < n; k++)
        if (fabs(pair[k]) < 2.0) ((double *)out)[i++] = pair[k];
      continue;
    }
    uint32_t x0 = td_philox_word(&words), x1 = td_philox_word(&words);
    float pair[2];
    td_random_normal_pair(x0, x1, pair);
    size_t size = td_dtype_size(t);
    for (int k = 0; k < 2 && i < n; k++)
      if (fabsf(pair[k]) < 2.0f) from_floats(t, (char *)out + (size_t)i++ * size, &pair[k], 1);
  }
}

/* The fast functions are off by less than 1e-6: which of their numbers they cannot tell from 2. */
static const float surely_below = 1.99999f, surely_above = 2.00001f;

static bool is_doubtful(float x) { return fabsf(x) >= surely_below && fabsf(x) <= surely_above; }

/* Adds what a group takes of a step's four numbers to the `have` it has; how many it has then. */
static int take(float *group, int have, float made[4], const uint32_t words[4]) {
  float most = TD_MAX(TD_MAX(fabsf(made[0]), fabsf(made[1])), TD_MAX(fabsf(made[2]), fabsf(made[3])));
  if (!have && most < surely_below) {
    memcpy(group, made, 4 * sizeof *made);
    return 4;
  }
  for (int k = 0; k < 4; k += 2) {
    if (is_doubtful(made[k]) || is_doubtful(made[k + 1])) td_random_normal_pair(words[k], words[k + 1], made + k);
    for (int i = k; i < k + 2 && have < 4; i++)
      if (fabsf(made[i]) < 2.0f) group[have++] = made[i];
  }
  return have;
}

/* `groups` (at most CHUNK) full groups of four floats from where `from` stands: a step for all of them, then one more
 * for those that rejected any, until there are none. */
static void truncated_chunk(const td_philox *from, float *out, int groups) {
  uint32_t at[CHUNK], words[WORDS];
  float made[WORDS];
  uint8_t waiting[CHUNK], have[CHUNK] = {0};
  normals_fn *normals = choose_normals();
  for (int i = 0; i < groups; i++) {
    waiting[i] = (uint8_t)i;
    at[i] = (uint32_t)i * TRUNCATED_STEPS;
  }
  while (groups) {
    int left = 0;
    td_philox_fill_at(from, at, words, (size_t)groups);
    normals(made, words, 2 * groups);
    for (int i = 0; i < groups; i++) {
      int g = waiting[i];
      have[g] = (uint8_t)take(out + 4 * g, have[g], made + 4 * i, words + 4 * i);
      waiting[left] = (uint8_t)g;
      at[left] = at[i] + 1;
      left += have[g] < 4;
    }
    groups = left;
  }
}

static void fill_truncated(const td_random_spec *s, const td_philox *stream, char *out, int64_t count, int64_t begin,
                           int64_t end) {
  int group = td_random_group_size(s);
  size_t size = td_dtype_size(s->dtype);
  /* TensorFlow's reservation: 256 samples of 32 bits an element, four of them a step */
  uint64_t steps = (uint64_t)group * TRUNCATED_STEPS / TD_PHILOX_WORDS;
  int64_t g = begin, full = s->dtype == TD_DOUBLE ? begin : TD_MIN(end, count / group);
  while (g < full) {
    float values[WORDS];
    int groups = (int)TD_MIN(full - g, (int64_t)CHUNK);
    td_philox from = td_philox_at(stream, (uint64_t)g * steps);
    char *at = out + (size_t)(g * group) * size;
    truncated_chunk(&from, s->dtype == TD_FLOAT ? (float *)at : values, groups);
    if (s->dtype != TD_FLOAT) from_floats(s->dtype, at, values, groups * group);
    g += groups;
  }
  for (; g < end; g++)
    truncated_group(s->dtype, out + (size_t)(g * group) * size, td_philox_at(stream, (uint64_t)g * steps),
                    (int)TD_MIN(count - g * group, (int64_t)group));
}

void td_random_fill(const td_random_spec *s, const td_philox *stream, void *out, int64_t count, int64_t begin,
                    int64_t end) {
  if (s->kind == TD_RANDOM_TRUNCATED) {
    fill_truncated(s, stream, out, count, begin, end);
    return;
  }
  int group = td_random_group_size(s);
  size_t size = td_dtype_size(s->dtype);
  td_philox p = td_philox_at(stream, (uint64_t)begin);
  uint32_t words[WORDS];
  for (int64_t g = begin; g < end; g += CHUNK) {
    int64_t groups = TD_MIN(end - g, (int64_t)CHUNK);
    int n = (int)TD_MIN(count - g * group, groups * group);
    void *at = (char *)out + (size_t)(g * group) * size;
    td_philox_fill(&p, words, (size_t)groups);
    if (s->kind == TD_RANDOM_UNIFORM)
      uniform_elements(s->dtype, at, words, n);
    else if (s->kind == TD_RANDOM_NORMAL)
      normal_elements(s->dtype, at, words, n);
    else
      int_elements(s, at, words, n);
  }
}

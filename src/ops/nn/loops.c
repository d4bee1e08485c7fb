/* Compiled once per instruction set: TD_ISA names the copy, TD_VECTOR is the bytes of its vectors. */
#include "ops/nn/loops.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)

typedef float lanes_f32 __attribute__((vector_size(TD_VECTOR)));
typedef int32_t mask_f32 __attribute__((vector_size(TD_VECTOR)));
typedef double lanes_f64 __attribute__((vector_size(TD_VECTOR)));
typedef int64_t mask_f64 __attribute__((vector_size(TD_VECTOR)));

/* ---- softmax ---- */

/* exp for float, within 2 ULP, in a form that vectorises: 2^n times a polynomial of the rest. NaN stays. */
static inline float exp_f32(float x) {
  float limited = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  float shifted = limited * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer in the low bits */
  float n = shifted - 12582912.0f;
  float r = limited - n * 0.693359375f;
  r -= n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1;
  int32_t bits;
  memcpy(&bits, &shifted, 4);
  /* 2^n as two factors, so that tiny results go through the denormals */
  uint32_t low, high;
  int32_t whole = (int32_t)((uint32_t)bits - 0x4b400000u), half = whole >> 1;
  low = (uint32_t)(half + 127) << 23;
  high = (uint32_t)(whole - half + 127) << 23;
  float a, b;
  memcpy(&a, &low, 4);
  memcpy(&b, &high, 4);
  return x != x ? x : p * a * b;
}
static inline double exp_f64(double x) { return exp(x); }

/* Rows that are taken at a time: few enough to stay in the nearest cache. */
enum { ROWS = 64 };
static int64_t block_rows(int64_t n) { return n >= 1024 ? 1 : TD_MIN(ROWS, 1024 / n); }

#define LANES(name) ((int64_t)(sizeof(lanes_##name) / sizeof(((lanes_##name){0})[0])))

#define ROW_EXPS(name, type, exponential)                                                                       \
  static type max_##name(const type *x, int64_t n) { /* of those that are not NaN */                            \
    lanes_##name lane, v;                                                                                       \
    for (int k = 0; k < (int)LANES(name); k++) lane[k] = -INFINITY;                                             \
    int64_t i = 0;                                                                                              \
    for (; i + LANES(name) <= n; i += LANES(name)) {                                                            \
      memcpy(&v, x + i, sizeof v);                                                                              \
      mask_##name more = (mask_##name)(v > lane);                                                               \
      lane = (lanes_##name)(((mask_##name)v & more) | ((mask_##name)lane & ~more));                             \
    }                                                                                                           \
    type best = -INFINITY;                                                                                      \
    for (; i < n; i++) best = x[i] > best ? x[i] : best;                                                        \
    for (int k = 0; k < (int)LANES(name); k++) best = lane[k] > best ? lane[k] : best;                          \
    return best;                                                                                                \
  }                                                                                                             \
  static type sum_##name(const type *x, int64_t n) {                                                            \
    lanes_##name lane = {0}, v;                                                                                 \
    int64_t i = 0;                                                                                              \
    for (; i + LANES(name) <= n; i += LANES(name)) {                                                            \
      memcpy(&v, x + i, sizeof v);                                                                              \
      lane += v;                                                                                                \
    }                                                                                                           \
    type total = 0;                                                                                             \
    for (; i < n; i++) total += x[i];                                                                           \
    for (int k = 0; k < (int)LANES(name); k++) total += lane[k];                                                \
    return total;                                                                                               \
  }                                                                                                             \
  /* to[i] = exp(x[i] - max), to may be x; returns the sum. NaN in x makes it NaN. */                           \
  static type exps_##name(const type *x, type max, type *to, int64_t n) {                                       \
    if (x == to) {                                                                                              \
      for (int64_t i = 0; i < n; i++) to[i] = exponential(to[i] - max);                                         \
    } else {                                                                                                    \
      const type *restrict from = x;                                                                            \
      type *restrict out = to;                                                                                  \
      for (int64_t i = 0; i < n; i++) out[i] = exponential(from[i] - max);                                      \
    }                                                                                                           \
    return sum_##name(to, n);                                                                                   \
  }                                                                                                             \
  /* to = exp(x - max) of `rows` rows of n; each row's greatest value and its sum. Rows that are shorter than a \
     vector are taken together. */                                                                              \
  static void row_exps_##name(const type *x, type *to, int64_t rows, int64_t n, type *max, type *sum) {         \
    if (n >= LANES(name)) {                                                                                     \
      for (int64_t r = 0; r < rows; r++, x += n, to += n) {                                                     \
        max[r] = max_##name(x, n);                                                                              \
        sum[r] = exps_##name(x, max[r], to, n);                                                                 \
      }                                                                                                         \
      return;                                                                                                   \
    }                                                                                                           \
    for (int64_t r = 0; r < rows; r++) {                                                                        \
      type best = -INFINITY;                                                                                    \
      for (int64_t i = 0; i < n; i++) best = x[r * n + i] > best ? x[r * n + i] : best;                         \
      for (int64_t i = 0; i < n; i++) to[r * n + i] = x[r * n + i] - best;                                      \
      max[r] = best;                                                                                            \
    }                                                                                                           \
    for (int64_t i = 0; i < rows * n; i++) to[i] = exponential(to[i]);                                          \
    for (int64_t r = 0; r < rows; r++) {                                                                        \
      type total = 0;                                                                                           \
      for (int64_t i = 0; i < n; i++) total += to[r * n + i];                                                   \
      sum[r] = total;                                                                                           \
    }                                                                                                           \
  }                                                                                                             \
  /* The same of the rows from `begin` on, as many as are worth taking together: how many. */                   \
  static int64_t block_exps_##name(const td_softmax_job *j, int64_t begin, int64_t end, type *max, type *sum) { \
    int64_t n = j->columns, rows = TD_MIN(end - begin, block_rows(n));                                          \
    row_exps_##name((const type *)j->logits + begin * n, (type *)j->out + begin * n, rows, n, max, sum);        \
    return rows;                                                                                                \
  }

#define SOFTMAXES(name, type, logarithm)                                                              \
  static void softmax_##name(void *arg, int64_t begin, int64_t end) {                                 \
    const td_softmax_job *j = arg;                                                                    \
    int64_t n = j->columns;                                                                           \
    for (int64_t rows; begin < end; begin += rows) {                                                  \
      type max[ROWS], sum[ROWS], *to = (type *)j->out + begin * n;                                    \
      const type *x = (const type *)j->logits + begin * n;                                            \
      rows = block_exps_##name(j, begin, end, max, sum);                                              \
      for (int64_t r = 0; r < rows; r++, x += n, to += n) {                                           \
        type log_sum = j->log ? logarithm(sum[r]) : 0, scale = 1 / sum[r], most = max[r];             \
        if (j->log)                                                                                   \
          for (int64_t i = 0; i < n; i++) to[i] = x[i] - most - log_sum;                              \
        else                                                                                          \
          for (int64_t i = 0; i < n; i++) to[i] *= scale;                                             \
      }                                                                                               \
    }                                                                                                 \
  }                                                                                                   \
  static void dense_##name(void *arg, int64_t begin, int64_t end) {                                   \
    const td_softmax_job *j = arg;                                                                    \
    int64_t n = j->columns;                                                                           \
    for (int64_t rows; begin < end; begin += rows) {                                                  \
      type *to = (type *)j->out + begin * n, max[ROWS], sum[ROWS];                                    \
      rows = TD_MIN(end - begin, block_rows(n));                                                      \
      for (int64_t r = 0; r < rows; r++) {                                                            \
        const type *x = (const type *)j->logits + (begin + r) * j->logits_step[0];                    \
        for (int64_t i = 0; i < n; i++) to[r * n + i] = x[i * j->logits_step[1]];                     \
      }                                                                                               \
      row_exps_##name(to, to, rows, n, max, sum);                                                     \
      for (int64_t r = 0; r < rows; r++, to += n) {                                                   \
        const type *x = (const type *)j->logits + (begin + r) * j->logits_step[0];                    \
        const type *y = (const type *)j->labels + (begin + r) * j->labels_step[0];                    \
        type most = max[r], loss = 0, log_sum = logarithm(sum[r]), scale = 1 / sum[r];                \
        for (int64_t i = 0; i < n; i++) {                                                             \
          type label = y[i * j->labels_step[1]], value = x[i * j->logits_step[1]];                    \
          loss += label == 0 ? 0 : label * (log_sum - (value - most));                                \
          to[i] = to[i] * scale - label;                                                              \
        }                                                                                             \
        ((type *)j->loss)[begin + r] = loss;                                                          \
      }                                                                                               \
    }                                                                                                 \
  }                                                                                                   \
  static void sparse_##name(void *arg, int64_t begin, int64_t end) {                                  \
    const td_softmax_job *j = arg;                                                                    \
    int64_t n = j->columns;                                                                           \
    for (int64_t rows; begin < end; begin += rows) {                                                  \
      type max[ROWS], sum[ROWS], *to = (type *)j->out + begin * n;                                    \
      const type *x = (const type *)j->logits + begin * n;                                            \
      rows = block_exps_##name(j, begin, end, max, sum);                                              \
      for (int64_t r = 0; r < rows; r++, x += n, to += n) {                                           \
        int64_t at = begin + r, label = j->label_type == TD_INT64 ? ((const int64_t *)j->labels)[at]  \
                                                                  : ((const int32_t *)j->labels)[at]; \
        type scale = 1 / sum[r];                                                                      \
        for (int64_t i = 0; i < n; i++) to[i] *= scale;                                               \
        to[label] -= 1;                                                                               \
        ((type *)j->loss)[at] = logarithm(sum[r]) - (x[label] - max[r]);                              \
      }                                                                                               \
    }                                                                                                 \
  }
ROW_EXPS(f32, float, exp_f32)
ROW_EXPS(f64, double, exp_f64)
SOFTMAXES(f32, float, logf)
SOFTMAXES(f64, double, log)

/* ---- max pooling ---- */

static void max_pool(void *arg, int64_t begin, int64_t end) {
  const td_pool_job *j = arg;
  int64_t depth = j->depth;
  for (int64_t r = begin; r < end; r++) {
    const float *image = (const float *)j->input + r / j->dim[0].out * j->image;
    float *restrict out = (float *)j->out + r * j->dim[1].out * depth;
    td_pool_range rows = td_pool_clip(&j->dim[0], r % j->dim[0].out);
    for (int64_t x = 0; x < j->dim[1].out; x++, out += depth) {
      td_pool_range columns = td_pool_clip(&j->dim[1], x);
      for (int64_t d = 0; d < depth; d++) out[d] = -FLT_MAX; /* so NaN and -inf never win, as in TensorFlow */
      for (int64_t y = rows.from; y < rows.to; y++) {
        const float *p = image + (y * j->dim[1].in + columns.from) * depth;
        for (int64_t c = columns.from; c < columns.to; c++, p += depth) {
          for (int64_t d = 0; d < depth; d++) out[d] = out[d] < p[d] ? p[d] : out[d];
        }
      }
    }
  }
}

/* One window of float to the input's gradient, a vector of channels at a time: the first largest pixel, then each
 * pixel of the window takes the gradient where it is the one. `n`: channels, at most a vector. */
static inline __attribute__((always_inline)) void window_grad_f32(const td_pool_job *j, const float *image,
                                                                  const float *g, float *to, td_pool_range rows,
                                                                  td_pool_range columns, int64_t from, size_t n) {
  int64_t depth = j->depth, width = j->dim[1].in;
  lanes_f32 best = {0}, v = {0};
  mask_f32 at = {0};
  int32_t pixel = 0;
  memcpy(&best, image + (rows.from * width + columns.from) * depth + from, n);
  for (int64_t y = rows.from; y < rows.to; y++) {
    const float *p = image + (y * width + columns.from) * depth + from;
    for (int64_t c = columns.from; c < columns.to; c++, p += depth, pixel++) {
      memcpy(&v, p, n);
      mask_f32 more = (mask_f32)(best < v);
      best = (lanes_f32)(((mask_f32)v & more) | ((mask_f32)best & ~more));
      at = (pixel & more) | (at & ~more);
    }
  }
  lanes_f32 grad = {0};
  memcpy(&grad, g + from, n);
  pixel = 0;
  for (int64_t y = rows.from; y < rows.to; y++) {
    float *p = to + (y * width + columns.from) * depth + from;
    for (int64_t c = columns.from; c < columns.to; c++, p += depth, pixel++) {
      memcpy(&v, p, n);
      v += (lanes_f32)((mask_f32)grad & (mask_f32)(at == pixel));
      memcpy(p, &v, n);
    }
  }
}

/* As images_f32 with TO_INPUT, for small windows and whole groups of channels. */
static void images_grad_f32(void *arg, int64_t begin, int64_t end) {
  const td_pool_job *j = arg;
  int64_t windows = j->dim[0].out * j->dim[1].out;
  for (int64_t b = begin; b < end; b++) {
    const float *image = (const float *)j->input + b * j->image, *g = (const float *)j->grad + b * windows * j->depth;
    float *to = (float *)j->out + b * j->image;
    memset(to, 0, (size_t)j->image * sizeof(float));
    for (int64_t w = 0; w < windows; w++, g += j->depth) {
      td_pool_range rows = td_pool_clip(&j->dim[0], w / j->dim[1].out),
                    columns = td_pool_clip(&j->dim[1], w % j->dim[1].out);
      if (rows.from >= rows.to || columns.from >= columns.to) continue;
      int64_t from = 0;
      for (; from + LANES(f32) <= j->depth; from += LANES(f32))
        window_grad_f32(j, image, g, to, rows, columns, from, sizeof(lanes_f32));
      if (from < j->depth)
        window_grad_f32(j, image, g, to, rows, columns, from, (size_t)(j->depth - from) * sizeof(float));
    }
  }
}

const td_nn_loops PASTE(td_nn_loops_, TD_ISA) = {
    .softmax = {softmax_f32, softmax_f64},
    .dense = {dense_f32, dense_f64},
    .sparse = {sparse_f32, sparse_f64},
    .max_pool = max_pool,
    .pool_grad = images_grad_f32,
};

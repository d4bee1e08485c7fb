#include "base/philox.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/mem.h"

#define M0 0xD2511F53u
#define M1 0xCD9E8D57u
#define W0 0x9E3779B9u
#define W1 0xBB67AE85u

enum { ROUNDS = 10, LANES = 16 };

td_philox td_philox_from_seeds(uint64_t seed, uint64_t seed2) {
  return (td_philox){.counter = {0, 0, (uint32_t)seed2, (uint32_t)(seed2 >> 32)},
                     .key = {(uint32_t)seed, (uint32_t)(seed >> 32)}};
}

td_philox td_philox_from_key_counter(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  return (td_philox){.counter = {(uint32_t)counter_low, (uint32_t)(counter_low >> 32), (uint32_t)counter_high,
                                 (uint32_t)(counter_high >> 32)},
                     .key = {(uint32_t)key, (uint32_t)(key >> 32)}};
}

td_philox td_philox_from_stateless_seeds(uint64_t seed, uint64_t seed2) {
  td_philox scramble = td_philox_from_key_counter(UINT64_C(0x02461e293ec8f720), seed, seed2);
  uint32_t mix[TD_PHILOX_WORDS];
  td_philox_next(&scramble, mix);
  return (td_philox){.counter = {0, 0, mix[2], mix[3]}, .key = {mix[0], mix[1]}};
}

void td_philox_skip(td_philox *p, uint64_t steps) {
  uint64_t low = (uint64_t)p->counter[1] << 32 | p->counter[0];
  uint64_t high = (uint64_t)p->counter[3] << 32 | p->counter[2];
  uint64_t sum = low + steps;
  if (sum < low) high++;
  p->counter[0] = (uint32_t)sum;
  p->counter[1] = (uint32_t)(sum >> 32);
  p->counter[2] = (uint32_t)high;
  p->counter[3] = (uint32_t)(high >> 32);
}

void td_philox_next(td_philox *p, uint32_t out[TD_PHILOX_WORDS]) {
  uint32_t c0 = p->counter[0], c1 = p->counter[1], c2 = p->counter[2], c3 = p->counter[3];
  uint32_t k0 = p->key[0], k1 = p->key[1];
  for (int round = 0; round < ROUNDS; round++, k0 += W0, k1 += W1) {
    uint64_t a = (uint64_t)M0 * c0, b = (uint64_t)M1 * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)a;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
  td_philox_skip(p, 1);
}

/* The steps `at[i]` further on, i < LANES, whose counters differ in the lowest word alone. The words stand in 64-bit
 * lanes, as the vector multiply of two 32-bit words wants them. */
static inline __attribute__((always_inline)) void lanes(const td_philox *p, const uint32_t *at, uint32_t *out) {
  uint64_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
  for (int i = 0; i < LANES; i++) {
    c0[i] = p->counter[0] + at[i];
    c1[i] = p->counter[1];
    c2[i] = p->counter[2];
    c3[i] = p->counter[3];
  }
  uint32_t k0 = p->key[0], k1 = p->key[1];
  for (int round = 0; round < ROUNDS; round++, k0 += W0, k1 += W1)
    for (int i = 0; i < LANES; i++) {
      uint64_t a = (c0[i] & 0xffffffffu) * M0, b = (c2[i] & 0xffffffffu) * M1;
      c0[i] = (b >> 32) ^ c1[i] ^ k0;
      c1[i] = b & 0xffffffffu;
      c2[i] = (a >> 32) ^ c3[i] ^ k1;
      c3[i] = a & 0xffffffffu;
    }
  for (int i = 0; i < LANES; i++) {
    uint64_t pair[2] = {c0[i] | c1[i] << 32, c2[i] | c3[i] << 32}; /* little-endian words 0, 1 and 2, 3 */
    memcpy(out + 4 * i, pair, sizeof pair);
  }
}

typedef void block_fn(const td_philox *p, const uint32_t *at, uint32_t *out);

static void plain_block(const td_philox *p, const uint32_t *at, uint32_t *out) { lanes(p, at, out); }

#if defined(__x86_64__)

/* The same with the vector multiply of two 32-bit words by name, which compilers do not find by themselves. VECTORS
 * registers of N 64-bit lanes run abreast to hide its latency. */
#define DEFINE_FILL(NAME, TARGET, N, VECTORS, MULTIPLY, LOW, HIGH)                                                  \
  typedef uint64_t NAME##_lanes __attribute__((vector_size(8 * (N))));                                              \
  typedef uint32_t NAME##_words __attribute__((vector_size(4 * (N))));                                              \
  __attribute__((target(TARGET))) static void NAME##_block(const td_philox *p, const uint32_t *at, uint32_t *out) { \
    NAME##_lanes c0[VECTORS], c1[VECTORS], c2[VECTORS], c3[VECTORS];                                                \
    const NAME##_lanes zero = {0}, word = zero + 0xffffffffu, m0 = zero + M0, m1 = zero + M1;                       \
    for (int v = 0; v < (VECTORS); v++) {                                                                           \
      NAME##_words from;                                                                                            \
      memcpy(&from, at + v * (N), sizeof from);                                                                     \
      c0[v] = __builtin_convertvector(from + p->counter[0], NAME##_lanes);                                          \
      c1[v] = zero + p->counter[1];                                                                                 \
      c2[v] = zero + p->counter[2];                                                                                 \
      c3[v] = zero + p->counter[3];                                                                                 \
    }                                                                                                               \
    uint32_t k0 = p->key[0], k1 = p->key[1];                                                                        \
    for (int round = 0; round < ROUNDS; round++, k0 += W0, k1 += W1)                                                \
      for (int v = 0; v < (VECTORS); v++) {                                                                         \
        NAME##_lanes a = (NAME##_lanes)MULTIPLY(c0[v], m0), b = (NAME##_lanes)MULTIPLY(c2[v], m1);                  \
        c0[v] = (b >> 32) ^ c1[v] ^ (zero + k0);                                                                    \
        c1[v] = b & word;                                                                                           \
        c2[v] = (a >> 32) ^ c3[v] ^ (zero + k1);                                                                    \
        c3[v] = a & word;                                                                                           \
      }                                                                                                             \
    for (int v = 0; v < (VECTORS); v++) {                                                                           \
      NAME##_lanes first = (c0[v] & word) | c1[v] << 32, second = (c2[v] & word) | c3[v] << 32;                     \
      NAME##_lanes low = __builtin_shufflevector(first, second, LOW),                                               \
                   high = __builtin_shufflevector(first, second, HIGH);                                             \
      memcpy(out + 4 * (N)*v, &low, sizeof low);                                                                    \
      memcpy(out + 4 * (N)*v + 2 * (N), &high, sizeof high);                                                        \
    }                                                                                                               \
  }
#define COMMA                 ,
#define MULTIPLY_AVX2(a, b)   _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#define MULTIPLY_AVX512(a, b) _mm512_mul_epu32((__m512i)(a), (__m512i)(b))
DEFINE_FILL(avx2, "avx2", 4, 4, MULTIPLY_AVX2, 0 COMMA 4 COMMA 1 COMMA 5, 2 COMMA 6 COMMA 3 COMMA 7)
DEFINE_FILL(avx512, "avx512f", 8, 2, MULTIPLY_AVX512, 0 COMMA 8 COMMA 1 COMMA 9 COMMA 2 COMMA 10 COMMA 3 COMMA 11,
            4 COMMA 12 COMMA 5 COMMA 13 COMMA 6 COMMA 14 COMMA 7 COMMA 15)
#endif

static block_fn *choose_block(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512_block;
  if (__builtin_cpu_supports("avx2")) return avx2_block;
#endif
  return plain_block;
}

void td_philox_fill(td_philox *p, uint32_t *out, size_t steps) {
  static const uint32_t next[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  block_fn *block = steps >= LANES ? choose_block() : NULL;
  while (steps) {
    size_t done = 1;
    if (steps >= LANES && p->counter[0] <= UINT32_MAX - LANES) {
      block(p, next, out);
      p->counter[0] += done = LANES;
    } else { /* few are left, or a carry is near */
      td_philox_next(p, out);
    }
    out += 4 * done;
    steps -= done;
  }
}

void td_philox_fill_at(const td_philox *p, const uint32_t *at, uint32_t *out, size_t count) {
  block_fn *block = choose_block();
  for (size_t i = 0; i < count; i += LANES, out += 4 * LANES) {
    uint32_t block_at[LANES] = {0}, block_out[4 * LANES], last = 0;
    size_t n = TD_MIN(count - i, (size_t)LANES);
    memcpy(block_at, at + i, n * sizeof *at);
    for (size_t k = 0; k < n; k++) last = TD_MAX(last, block_at[k]);
    if (last <= UINT32_MAX - p->counter[0]) {
      block(p, block_at, n == LANES ? out : block_out);
      if (n < LANES) memcpy(out, block_out, 4 * n * sizeof *out);
      continue;
    }
    for (size_t k = 0; k < n; k++) { /* a carry out of the lowest word */
      td_philox q = td_philox_at(p, block_at[k]);
      td_philox_next(&q, out + 4 * k);
    }
  }
}

/* Philox 4x32-10: the counter-based random generator of TensorFlow's seeded random operations (Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", 2011).
 *
 * One step of the generator turns the 128-bit counter into four 32-bit words and raises the counter by one, so any
 * part of the stream can be computed alone: results never depend on how work is split. Plain values, no ownership;
 * a generator that several threads advance needs a lock of its owner's.
 */
#ifndef TD_BASE_PHILOX_H_
#define TD_BASE_PHILOX_H_

#include <stddef.h>
#include <stdint.h>

enum { TD_PHILOX_WORDS = 4 }; /* 32-bit words of one step */

typedef struct td_philox {
  uint32_t counter[4]; /* little-endian words */
  uint32_t key[2];
} td_philox;

/* The stream of a stateful random op: `seed` is the key, `seed2` the upper half of the counter. */
td_philox td_philox_from_seeds(uint64_t seed, uint64_t seed2);
/* The stream of a stateless random op for its two seeds: both are scrambled by one step of a fixed generator. */
td_philox td_philox_from_stateless_seeds(uint64_t seed, uint64_t seed2);
/* The generator of raw key and counter words, as the V2 stateless ops carry them. */
td_philox td_philox_from_key_counter(uint64_t key, uint64_t counter_low, uint64_t counter_high);

/* Raises the counter by `steps`. */
void td_philox_skip(td_philox *p, uint64_t steps);
static inline td_philox td_philox_at(const td_philox *p, uint64_t steps) { /* a copy, `steps` further on */
  td_philox q = *p;
  td_philox_skip(&q, steps);
  return q;
}

/* One step. */
void td_philox_next(td_philox *p, uint32_t out[TD_PHILOX_WORDS]);
/* `steps` steps at once, 4 * steps words in the order of td_philox_next(); vectorised. */
void td_philox_fill(td_philox *p, uint32_t *out, size_t steps);

/* The single steps `at[i]` further on than `p`, in that order: 4 * count words; vectorised. */
void td_philox_fill_at(const td_philox *p, const uint32_t *at, uint32_t *out, size_t count);

/* Words to numbers in [0, 1): the mantissa's bits are the words' low bits. */
static inline float td_philox_float(uint32_t x) {
  uint32_t bits = (x & 0x7fffffu) | 127u << 23;
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f - 1.0f;
}
static inline double td_philox_double(uint32_t x0, uint32_t x1) {
  uint64_t bits = (uint64_t)(x0 & 0xfffffu) << 32 | x1 | UINT64_C(1023) << 52;
  double d;
  __builtin_memcpy(&d, &bits, sizeof d);
  return d - 1.0;
}

/* Words drawn one after the other. */
typedef struct td_philox_words {
  td_philox generator;
  uint32_t buffer[TD_PHILOX_WORDS];
  int used; /* words of the buffer already handed out */
} td_philox_words;

static inline td_philox_words td_philox_words_of(td_philox generator) {
  return (td_philox_words){.generator = generator, .used = TD_PHILOX_WORDS};
}
static inline uint32_t td_philox_word(td_philox_words *w) {
  if (w->used == TD_PHILOX_WORDS) {
    td_philox_next(&w->generator, w->buffer);
    w->used = 0;
  }
  return w->buffer[w->used++];
}

#endif /* TD_BASE_PHILOX_H_ */

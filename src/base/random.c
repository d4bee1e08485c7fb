#include "base/random.h"

#include <stdbool.h>
#include <sys/random.h>

#include "base/clock.h"

uint64_t td_random_u64(void) {
  uint64_t v;
  if (getrandom(&v, sizeof v, 0) != (long)sizeof v) v = td_now_ns() * 0x9E3779B97F4A7C15ull;
  return v;
}

uint64_t td_random_u64_nonzero(void) {
  uint64_t v;
  do v = td_random_u64();
  while (!v);
  return v;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t td_random_fast_u64(void) {
  static _Thread_local uint64_t state;
  static _Thread_local bool seeded;
  if (!seeded) {
    state = td_random_u64();
    seeded = true;
  }
  uint64_t z = (state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/* Time. */
#ifndef TD_BASE_CLOCK_H_
#define TD_BASE_CLOCK_H_

#include <stdint.h>
#include <time.h>

static inline uint64_t td_clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Monotonic, for intervals and deadlines. */
static inline uint64_t td_now_ns(void) { return td_clock_ns(CLOCK_MONOTONIC); }
/* The same to about 4 ms, in a few nanoseconds: for what is only looked at when it has lasted. */
static inline uint64_t td_now_coarse_ns(void) { return td_clock_ns(CLOCK_MONOTONIC_COARSE); }
/* Wall clock, microseconds since the epoch, for the wire and logs. */
static inline int64_t td_wall_us(void) { return (int64_t)(td_clock_ns(CLOCK_REALTIME) / 1000); }

#define TD_NO_DEADLINE UINT64_MAX /* a deadline that never comes, on td_now_ns()'s clock */

#endif /* TD_BASE_CLOCK_H_ */

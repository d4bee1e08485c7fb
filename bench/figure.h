/* What the benchmark programs share: how long something is run, and the line that says what came out.
 *
 * A figure is one line of JSON on stdout: {"name": "crc32c/64KB", "value": 21.4, "best": 21.9, "unit": "GB/s",
 * "better": "higher"}. "value" is the median of the repetitions, "best" the best of them.
 */
#ifndef TD_BENCH_FIGURE_H_
#define TD_BENCH_FIGURE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads --seconds S (for each figure; default 0.5) and --only TEXT (names that hold it); takes both out of argv and
 * returns the new argc. */
int bench_options(int argc, char **argv);
double bench_seconds(void);
bool bench_is_wanted(const char *name);

typedef enum bench_scale {
  BENCH_NS,       /* nanoseconds a unit */
  BENCH_MILLIONS, /* million units a second */
  BENCH_GB,       /* gigabytes a second; a unit is a byte */
} bench_scale;

typedef struct bench_case {
  const char *name;
  void (*run)(void *arg); /* one call of what is measured */
  void *arg;
  double units; /* of a call */
  bench_scale scale;
} bench_case;

/* Calls run() until bench_seconds() are over, in repetitions of about a millisecond or one call, after a tenth of that
 * time to warm up; prints the figure. Nothing if the name is not wanted. */
void bench_measure(const bench_case *c);

/* Prints a figure that was measured otherwise. */
void bench_print(const char *name, double value, double best, const char *unit, bool higher_is_better);

/* The element of rank `q` (0 to 1) of `count` samples, which are sorted for it; 0 of none. */
uint64_t bench_quantile(uint64_t *samples, size_t count, double q);

#endif /* TD_BENCH_FIGURE_H_ */

#include "figure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { REPETITION_NS = 1000000, FEWEST = 5 };

static struct {
  double seconds;
  const char *only;
} options = {.seconds = 0.5};

int bench_options(int argc, char **argv) {
  int kept = 0;
  for (int i = 0; i < argc; i++) {
    if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
      options.seconds = atof(argv[++i]);
    else if (!strcmp(argv[i], "--only") && i + 1 < argc)
      options.only = argv[++i];
    else
      argv[kept++] = argv[i];
  }
  return kept;
}

double bench_seconds(void) { return options.seconds; }

bool bench_is_wanted(const char *name) { return !options.only || strstr(name, options.only); }

void bench_print(const char *name, double value, double best, const char *unit, bool higher_is_better) {
  printf("{\"name\": \"%s\", \"value\": %.6g, \"best\": %.6g, \"unit\": \"%s\", \"better\": \"%s\"}\n", name, value,
         best, unit, higher_is_better ? "higher" : "lower");
  fflush(stdout);
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

uint64_t bench_quantile(uint64_t *samples, size_t count, double q) {
  qsort(samples, count, sizeof *samples, compare);
  return count ? samples[(size_t)((double)(count - 1) * q)] : 0;
}

static uint64_t repeat(const bench_case *c, size_t calls) {
  uint64_t began = td_now_ns();
  for (size_t i = 0; i < calls; i++) c->run(c->arg);
  return TD_MAX(td_now_ns() - began, (uint64_t)1);
}

/* How many calls last a repetition, found by doubling; as long as it takes to warm up. */
static size_t warm_up(const bench_case *c) {
  size_t calls = 1;
  uint64_t until = td_now_ns() + (uint64_t)(options.seconds * 1e8);
  do {
    if (repeat(c, calls) < REPETITION_NS / 2) calls *= 2;
  } while (td_now_ns() < until);
  return calls;
}

static double value_of(const bench_case *c, double ns_a_call) {
  double ns_a_unit = ns_a_call / c->units;
  return c->scale == BENCH_NS ? ns_a_unit : c->scale == BENCH_MILLIONS ? 1e3 / ns_a_unit : 1 / ns_a_unit;
}

void bench_measure(const bench_case *c) {
  static const char *const UNITS[] = {"ns", "M/s", "GB/s"};
  if (!bench_is_wanted(c->name)) return;
  size_t calls = warm_up(c), count = 0, capacity = 0;
  uint64_t *samples = NULL, until = td_now_ns() + (uint64_t)(options.seconds * 1e9);
  while (count < FEWEST || td_now_ns() < until) {
    TD_GROW(samples, count, capacity);
    samples[count++] = repeat(c, calls);
  }
  double median = (double)bench_quantile(samples, count, 0.5) / (double)calls;
  double best = (double)bench_quantile(samples, count, 0) / (double)calls;
  bench_print(c->name, value_of(c, median), value_of(c, best), UNITS[c->scale], c->scale != BENCH_NS);
  td_free(samples);
}

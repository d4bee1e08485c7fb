/* Random numbers: the generator's words, and what the random ops make of them. One thread. */
#include "base/mem.h"
#include "base/philox.h"
#include "figure.h"
#include "ops/random_fill.h"

enum { WORDS = 64 << 10 };

typedef struct stream {
  td_philox generator;
  td_random_spec spec;
  uint32_t *out;
} stream;

static void next(void *arg) {
  stream *s = arg;
  for (int i = 0; i < WORDS; i += TD_PHILOX_WORDS) td_philox_next(&s->generator, s->out + i);
}

static void fill(void *arg) {
  stream *s = arg;
  td_philox_fill(&s->generator, s->out, WORDS / TD_PHILOX_WORDS);
}

static void distribution(void *arg) {
  stream *s = arg;
  td_random_fill(&s->spec, &s->generator, s->out, WORDS, 0, WORDS / td_random_group_size(&s->spec));
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    td_random_spec spec;
  } KINDS[] = {{"philox/uniform float", {TD_RANDOM_UNIFORM, TD_FLOAT, 0, 0}},
               {"philox/normal float", {TD_RANDOM_NORMAL, TD_FLOAT, 0, 0}},
               {"philox/truncated float", {TD_RANDOM_TRUNCATED, TD_FLOAT, 0, 0}},
               {"philox/int32 of a range", {TD_RANDOM_INT, TD_INT32, 3, 1000003}}};
  bench_options(argc, argv);
  stream s = {.generator = td_philox_from_seeds(1, 2), .out = td_new_array(uint32_t, WORDS)};
  bench_measure(&(bench_case){"philox/word by word", next, &s, WORDS, BENCH_MILLIONS});
  bench_measure(&(bench_case){"philox/words", fill, &s, WORDS, BENCH_MILLIONS});
  for (size_t i = 0; i < TD_COUNT(KINDS); i++) {
    s.spec = KINDS[i].spec;
    bench_measure(&(bench_case){KINDS[i].name, distribution, &s, WORDS, BENCH_MILLIONS});
  }
  td_free(s.out);
  return 0;
}

/* Random numbers by distribution and element type from a Philox stream, as TensorFlow's CPU kernels make them.
 *
 * Elements come in groups of td_random_group_size(); group g depends on the stream and on g alone, so any range of
 * groups can be made anywhere. Uniform numbers and integers are TensorFlow's to the bit; normal ones differ by the
 * last digits of log, sine and cosine.
 */
#ifndef TD_OPS_RANDOM_FILL_H_
#define TD_OPS_RANDOM_FILL_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/philox.h"
#include "tensor/dtype.h"

typedef enum td_random_kind {
  TD_RANDOM_UNIFORM,   /* [0, 1): floating types */
  TD_RANDOM_NORMAL,    /* mean 0, deviation 1: floating types */
  TD_RANDOM_TRUNCATED, /* the same, within 2 deviations */
  TD_RANDOM_INT,       /* [low, low + range): int32, int64, uint32, uint64 */
  TD_RANDOM_FULL_INT,  /* all bits random: the same types */
} td_random_kind;

typedef struct td_random_spec {
  td_random_kind kind;
  td_dtype dtype;
  uint64_t low, range; /* TD_RANDOM_INT; range > 0 */
} td_random_spec;

bool td_random_supported(td_random_kind kind, td_dtype dtype);
int td_random_group_size(const td_random_spec *s); /* elements: 4, or 2 of 64 bits */
/* Makes groups [begin, end) of an array of `count` elements at `out`; the last group may be incomplete. */
void td_random_fill(const td_random_spec *s, const td_philox *stream, void *out, int64_t count, int64_t begin,
                    int64_t end);

/* Two normal numbers from two words, with the C library's functions: to the bit as TensorFlow on the same one. */
void td_random_normal_pair(uint32_t x0, uint32_t x1, float out[2]);
void td_random_normal_pair_double(const uint32_t x[4], double out[2]);

#endif /* TD_OPS_RANDOM_FILL_H_ */

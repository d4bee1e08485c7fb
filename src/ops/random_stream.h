/* What the kernels of random ops share: the stream that goes on from run to run, ranges of integers, filling a tensor,
 * and running where the size of the output asks for it. */
#ifndef TD_OPS_RANDOM_STREAM_H_
#define TD_OPS_RANDOM_STREAM_H_

#include <pthread.h>

#include "base/philox.h"
#include "framework/kernel.h"
#include "ops/random_fill.h"

enum { TD_RANDOM_STEPS_PER_OUTPUT = 256 /* what TensorFlow reserves for an output element */ };

/* The stream of a node with the attributes `seed` and `seed2`; both zero: a random one. Thread-safe. */
typedef struct td_random_stream {
  bool is_open;
  pthread_mutex_t lock;
  td_philox next; /* guarded by lock */
} td_random_stream;
td_status td_random_stream_init(td_random_stream *s, const td_kernel_builder *b) TD_MUST_USE;
void td_random_stream_deinit(td_random_stream *s);                       /* zeroes are fine */
td_philox td_random_stream_reserve(td_random_stream *s, uint64_t steps); /* takes the next `steps` */

/* minval and maxval of the integer ops, inputs `at` and `at` + 1. INVALID_ARGUMENT "Need minval < maxval, got …". */
td_status td_random_read_range(td_kernel_ctx *ctx, int at, td_random_spec *spec) TD_MUST_USE;
void td_random_fill_tensor(td_kernel_ctx *ctx, const td_random_spec *spec, const td_philox *stream, td_tensor *out);
/* Ends the run with what run(ctx) returns, on the pool if the shape in input `shape` is large. */
void td_random_run(td_kernel_ctx *ctx, int shape, td_compute_fn run);

#endif /* TD_OPS_RANDOM_STREAM_H_ */

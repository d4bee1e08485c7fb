/* Hot loops of neural-network families that are compiled once per instruction set (src/ops/nn/loops.c). */
#ifndef TD_OPS_NN_LOOPS_H_
#define TD_OPS_NN_LOOPS_H_

#include "base/mem.h"
#include "ops/window.h"

typedef struct td_softmax_job {
  const void *logits, *labels;
  void *out, *loss;
  int64_t columns;
  bool log;
  td_dtype label_type;
  int64_t logits_step[2], labels_step[2]; /* elements between rows, between columns: 0 where broadcast */
} td_softmax_job;

typedef enum td_pool_wanted { TD_POOL_ARGMAX, TD_POOL_GRAD, TD_POOL_GRAD_GRAD } td_pool_wanted;

typedef struct td_pool_job {
  const void *input, *grad;
  void *out, *argmax;
  bool argmax_wide, batch_in_index;
  td_pool_wanted what;
  int64_t batch, depth, depth_window, image; /* image: elements of an input image */
  td_window_dim dim[2];
} td_pool_job;

/* The part of a window that lies inside the image. */
typedef struct td_pool_range {
  int64_t from, to;
} td_pool_range;

static inline td_pool_range td_pool_clip(const td_window_dim *d, int64_t o) {
  int64_t from = o * d->stride - d->before, to = from + d->filter;
  return (td_pool_range){TD_MAX(from, 0), TD_MIN(to, d->in)};
}

typedef void (*td_range_fn)(void *job, int64_t begin, int64_t end);

typedef struct td_nn_loops {
  td_range_fn softmax[2], dense[2], sparse[2]; /* rows of a td_softmax_job; [0]: float, [1]: double */
  td_range_fn max_pool;                        /* output rows of a td_pool_job of float */
  td_range_fn pool_grad;                       /* its images, TD_POOL_GRAD, for small windows */
} td_nn_loops;

const td_nn_loops *td_nn_loops_get(void); /* the best for this machine */

#endif /* TD_OPS_NN_LOOPS_H_ */

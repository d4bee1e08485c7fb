/* What fused ops do to each value of a product or convolution: scale and shift per column, then an activation. */
#ifndef TD_OPS_EPILOGUE_H_
#define TD_OPS_EPILOGUE_H_

#include "framework/kernel.h"

typedef enum td_activation {
  TD_ACT_NONE,
  TD_ACT_RELU,
  TD_ACT_RELU6,
  TD_ACT_ELU,
  TD_ACT_LEAKY_RELU,
  TD_ACT_TANH,
  TD_ACT_SIGMOID,
  TD_ACT_GELU_APPROXIMATE,
  TD_ACT_GELU_EXACT,
} td_activation;

/* What a node's fused_ops attribute asks for. */
typedef struct td_fusion {
  bool bias;       /* args[0]: added to each column */
  bool batch_norm; /* args[0..3]: scale, offset, mean, variance */
  bool add;        /* args[1], of the output's shape, is added after the bias */
  td_activation activation;
  float alpha, epsilon;
} td_fusion;

/* Reads fused_ops, leakyrelu_alpha and epsilon. UNIMPLEMENTED for a combination nobody emits. */
td_status td_fusion_parse(const td_node_def *n, td_fusion *out) TD_MUST_USE;

/* Over a row-major matrix of float or double. mul, add: one entry per column or NULL, of the same type. */
typedef struct td_epilogue {
  td_dtype dtype; /* TD_FLOAT or TD_DOUBLE */
  void *data;
  int64_t row_step;
  const void *mul, *add;
  const void *side; /* a matrix of the output's shape that is added too, or NULL */
  td_activation activation;
  float alpha;
} td_epilogue;

/* Applies it to rows [row_begin, row_end) and columns [from, to). Fits td_gemm_after_fn. */
void td_epilogue_run(void *epilogue, int64_t row_begin, int64_t row_end, int64_t from, int64_t to);

/* The added input of a fused op as floats (or itself): it must have the output's shape. One reference. */
td_status td_epilogue_side(td_tensor *side, const td_tensor *out, td_tensor **floats) TD_MUST_USE;

/* mul and add of an inference batch normalisation over `n` channels (float). */
void td_epilogue_batch_norm(const float *scale, const float *offset, const float *mean, const float *variance,
                            float epsilon, int64_t n, float *mul, float *add);

#endif /* TD_OPS_EPILOGUE_H_ */

/* Sliding windows over images: the attributes and the arithmetic that convolutions and pooling share. */
#ifndef TD_OPS_WINDOW_H_
#define TD_OPS_WINDOW_H_

#include "framework/kernel.h"

typedef enum td_padding { TD_PAD_VALID, TD_PAD_SAME, TD_PAD_EXPLICIT } td_padding;
typedef enum td_format { TD_NHWC, TD_NCHW } td_format;

/* One spatial dimension of a window. */
typedef struct td_window_dim {
  int64_t in, filter, stride, dilation, out, before, after; /* before, after: padding */
} td_window_dim;

/* padding, data_format, strides, dilations and explicit_paddings of a node. Lists that the op lacks are 1 (or no
 * padding). Rows are index 0, columns index 1. */
typedef struct td_window_attrs {
  td_padding padding;
  td_format format;
  int64_t stride[2], dilation[2], ksize[2], explicit_pad[2][2]; /* ksize: pooling's */
  int64_t stride_depth, ksize_depth, stride_batch, ksize_batch; /* pooling's */
} td_window_attrs;

/* Reads a convolution's, a pooling's node. INVALID_ARGUMENT in TensorFlow's words; UNIMPLEMENTED for pooling over
 * batches. */
td_status td_window_parse_conv(const td_node_def *n, td_window_attrs *out) TD_MUST_USE;
td_status td_window_parse_pool(const td_node_def *n, td_window_attrs *out) TD_MUST_USE;
/* Four entries of ksize or strides (in the order of a->format) into `a`. `what`: "ksize" or "strides". */
td_status td_window_set_ksize(td_window_attrs *a, const int64_t values[4]) TD_MUST_USE;
td_status td_window_set_strides(td_window_attrs *a, const int64_t values[4]) TD_MUST_USE;
const char *td_format_name(td_format f);

/* From in, filter, stride, dilation (and before, after for explicit padding): out and the padding.
 * INVALID_ARGUMENT for a filter that does not fit. */
td_status td_window_compute(td_padding padding, td_window_dim *d) TD_MUST_USE;

#endif /* TD_OPS_WINDOW_H_ */

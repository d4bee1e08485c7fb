#include "ops/window.h"

#include <limits.h>

const char *td_format_name(td_format f) { return f == TD_NHWC ? "NHWC" : "NCHW"; }

static td_status ints(const td_node_def *n, const char *name, size_t want, const char *complaint, const int64_t **out) {
  const Pb__AttrValue__ListValue *list;
  TD_TRY(td_attr_list(n, name, &list));
  if (list->n_i != want) return td_invalid_argument("%s", complaint);
  *out = list->i;
  for (size_t i = 0; i < want; i++) {
    if (list->i[i] > INT_MAX || list->i[i] < INT_MIN)
      return td_invalid_argument("%s[%zu] = %lld is out of range", name, i, (long long)list->i[i]);
  }
  return TD_STATUS_OK;
}

static td_status parse_padding_and_format(const td_node_def *n, td_window_attrs *a) {
  td_str text = TD_STR("NHWC");
  TD_TRY(td_attr_str(n, "padding", &text));
  if (td_str_is(text, "SAME"))
    a->padding = TD_PAD_SAME;
  else if (td_str_is(text, "VALID"))
    a->padding = TD_PAD_VALID;
  else if (td_str_is(text, "EXPLICIT"))
    a->padding = TD_PAD_EXPLICIT;
  else
    return td_invalid_argument("Unknown padding type: %.*s", TD_STR_ARG(text));
  if (td_attr_find(n, "data_format"))
    TD_TRY(td_attr_str(n, "data_format", &text));
  else
    text = TD_STR("NHWC");
  if (td_str_is(text, "NHWC"))
    a->format = TD_NHWC;
  else if (td_str_is(text, "NCHW"))
    a->format = TD_NCHW;
  else
    return td_invalid_argument("Invalid data format: %.*s", TD_STR_ARG(text));
  return TD_STATUS_OK;
}

/* Index of rows; columns come next; depth: */
static int rows_at(td_format f) { return f == TD_NHWC ? 1 : 2; }
static int depth_at(td_format f) { return f == TD_NHWC ? 3 : 1; }

static td_status parse_explicit(const td_node_def *n, td_window_attrs *a) {
  if (!td_attr_find(n, "explicit_paddings")) {
    if (a->padding == TD_PAD_EXPLICIT) return td_invalid_argument("padding EXPLICIT without explicit_paddings");
    return TD_STATUS_OK;
  }
  const Pb__AttrValue__ListValue *list;
  TD_TRY(td_attr_list(n, "explicit_paddings", &list));
  if (a->padding != TD_PAD_EXPLICIT) {
    if (!list->n_i) return TD_STATUS_OK;
    return td_invalid_argument("explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT");
  }
  if (list->n_i != 8)
    return td_invalid_argument("explicit_paddings attribute must contain 8 values, but got: %zu", list->n_i);
  for (int i = 0; i < 8; i++) {
    if (list->i[i] < 0)
      return td_invalid_argument("All elements of explicit_paddings must be nonnegative, but got %lld",
                                 (long long)list->i[i]);
    if (list->i[i] > INT_MAX)
      return td_invalid_argument("filter too large: explicit padding %lld", (long long)list->i[i]);
  }
  int depth = depth_at(a->format), rows = rows_at(a->format);
  if (list->i[0] || list->i[1] || list->i[2 * depth] || list->i[2 * depth + 1])
    return td_invalid_argument("Nonzero explicit padding in the batch or depth dimensions is not supported");
  for (int i = 0; i < 4; i++) a->explicit_pad[i / 2][i % 2] = list->i[2 * rows + i];
  return TD_STATUS_OK;
}

td_status td_window_parse_conv(const td_node_def *n, td_window_attrs *a) {
  static const int64_t ones[4] = {1, 1, 1, 1};
  const int64_t *strides = ones, *dilations = ones;
  TD_TRY(parse_padding_and_format(n, a));
  TD_TRY(ints(n, "strides", 4, "Sliding window strides field must specify 4 dimensions", &strides));
  if (td_attr_find(n, "dilations"))
    TD_TRY(ints(n, "dilations", 4, "Sliding window dilations field must specify 4 dimensions", &dilations));
  int rows = rows_at(a->format), depth = depth_at(a->format);
  if (strides[0] != 1 || strides[depth] != 1)
    return td_invalid_argument(
        "Current implementation does not yet support strides in the batch and depth dimensions.");
  if (strides[rows] <= 0 || strides[rows + 1] <= 0)
    return td_invalid_argument("Row and column strides should be larger than 0.");
  if (dilations[0] != 1 || dilations[depth] != 1)
    return td_invalid_argument(
        "Current implementation does not yet support dilations in the batch and depth dimensions.");
  if (dilations[rows] <= 0 || dilations[rows + 1] <= 0)
    return td_invalid_argument("Dilated rates should be larger than 0.");
  for (int i = 0; i < 2; i++) {
    a->stride[i] = strides[rows + i];
    a->dilation[i] = dilations[rows + i];
  }
  return parse_explicit(n, a);
}

td_status td_window_set_ksize(td_window_attrs *a, const int64_t v[4]) {
  for (int i = 0; i < 4; i++) {
    if (v[i] <= 0 || v[i] > INT_MAX)
      return td_invalid_argument("Sliding window ksize for dimension %d must be positive, got %lld", i,
                                 (long long)v[i]);
  }
  a->ksize_batch = v[0];
  a->ksize_depth = v[depth_at(a->format)];
  for (int i = 0; i < 2; i++) a->ksize[i] = v[rows_at(a->format) + i];
  return TD_STATUS_OK;
}

td_status td_window_set_strides(td_window_attrs *a, const int64_t v[4]) {
  for (int i = 0; i < 4; i++) {
    if (v[i] <= 0 || v[i] > INT_MAX)
      return td_invalid_argument("Sliding window stride for dimension %d must be positive, got %lld", i,
                                 (long long)v[i]);
  }
  a->stride_batch = v[0];
  a->stride_depth = v[depth_at(a->format)];
  for (int i = 0; i < 2; i++) a->stride[i] = v[rows_at(a->format) + i];
  return TD_STATUS_OK;
}

td_status td_window_parse_pool(const td_node_def *n, td_window_attrs *a) {
  TD_TRY(parse_padding_and_format(n, a));
  for (int i = 0; i < 2; i++) a->dilation[i] = a->stride[i] = a->ksize[i] = 1;
  a->stride_depth = a->ksize_depth = a->stride_batch = a->ksize_batch = 1;
  const int64_t *list = NULL;
  if (td_attr_find(n, "ksize")) {
    TD_TRY(ints(n, "ksize", 4, "Sliding window ksize field must specify 4 dimensions", &list));
    TD_TRY(td_window_set_ksize(a, list));
  }
  if (td_attr_find(n, "strides")) {
    TD_TRY(ints(n, "strides", 4, "Sliding window stride field must specify 4 dimensions", &list));
    TD_TRY(td_window_set_strides(a, list));
  }
  if (a->ksize_batch != 1 || a->stride_batch != 1)
    return td_unimplemented("Pooling is not yet supported on the batch dimension.");
  return parse_explicit(n, a);
}

td_status td_window_compute(td_padding padding, td_window_dim *d) {
  int64_t reach, padded; /* of the filter; of the input */
  if (__builtin_mul_overflow(d->filter - 1, d->dilation, &reach) || __builtin_add_overflow(reach, 1, &reach) ||
      reach > (int64_t)1 << 60)
    return td_invalid_argument("filter too large: %lld with dilation %lld", (long long)d->filter,
                               (long long)d->dilation);
  if (padding == TD_PAD_SAME) {
    d->out = d->in / d->stride + (d->in % d->stride != 0);
    int64_t last = (d->out - 1) * d->stride, needed = last - d->in + reach;
    if (needed < 0) needed = 0;
    d->before = needed / 2;
    d->after = needed - d->before;
  } else {
    if (padding == TD_PAD_VALID) d->before = d->after = 0;
    if (__builtin_add_overflow(d->in, d->before + d->after, &padded)) return td_invalid_argument("padding too large");
    d->out = (padded - reach + d->stride) / d->stride; /* rounds towards zero, as TensorFlow does */
  }
  if (d->out < 0)
    return td_invalid_argument(
        "Computed output size would be negative: %lld [input_size: %lld, effective_filter_size: %lld, "
        "stride: %lld]",
        (long long)d->out, (long long)d->in, (long long)reach, (long long)d->stride);
  return TD_STATUS_OK;
}

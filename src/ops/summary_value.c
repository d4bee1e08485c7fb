#include "ops/summary_value.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "proto/wire.h"
#include "tensor/number.h"
#include "tensor/tensor_proto.h"

/* Fields of HistogramProto. */
enum { HISTO_MIN = 1, HISTO_MAX, HISTO_NUM, HISTO_SUM, HISTO_SQUARES, HISTO_LIMITS, HISTO_COUNTS };

void td_summary_put_value(td_strbuf *summary, td_str tag, uint32_t field, td_str message) {
  size_t size = (tag.size ? td_wire_header_size(TD_VALUE_TAG, tag.size) + tag.size : 0) +
                td_wire_header_size(field, message.size) + message.size;
  td_wire_put_header(summary, TD_SUMMARY_VALUE, size);
  if (tag.size) td_wire_put_bytes(summary, TD_VALUE_TAG, tag);
  td_wire_put_bytes(summary, field, message);
}

static void put_double(td_strbuf *b, uint32_t number, double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  if (bits) td_wire_put_fixed64(b, number, bits);
}

/* ---- scalars ---- */

void td_summary_put_scalar(td_strbuf *summary, td_str tag, const td_tensor *t, int64_t i) {
  float simple = (float)td_tensor_real_at(t, i);
  uint32_t bits;
  td_strbuf value = {0};
  memcpy(&bits, &simple, 4);
  if (tag.size) td_wire_put_bytes(&value, TD_VALUE_TAG, tag);
  td_wire_put_fixed32(&value, TD_VALUE_SIMPLE, bits);
  td_wire_put_bytes(summary, TD_SUMMARY_VALUE, td_strbuf_view(&value));
  td_strbuf_deinit(&value);
}

/* ---- histograms ---- */

enum { HALF_BUCKETS = 776, BUCKETS = 2 * HALF_BUCKETS + 1 };

/* Upper ends of the buckets: they grow by a tenth from 1e-12 up to 1e20, both ways, around 0. */
static int make_limits(double *limits) {
  double positive[HALF_BUCKETS];
  int n = 0, at = 0;
  for (double v = 1.0e-12; v < 1.0e20 && n < HALF_BUCKETS - 1; v *= 1.1) positive[n++] = v;
  positive[n++] = DBL_MAX;
  for (int i = n; i--;) limits[at++] = -positive[i];
  limits[at++] = 0;
  for (int i = 0; i < n; i++) limits[at++] = positive[i];
  return at;
}

typedef struct histogram {
  int count; /* of buckets */
  double limits[BUCKETS], counts[BUCKETS];
  double min, max, num, sum, squares;
} histogram;

static void histogram_add(histogram *h, double v) {
  int low = 0, high = h->count - 1; /* the first limit above v; the last bucket takes the rest */
  while (low < high) {
    int middle = (low + high) / 2;
    if (h->limits[middle] > v) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  h->counts[low]++;
  h->num++;
  h->min = fmin(h->min, v);
  h->max = fmax(h->max, v);
  h->sum += v;
  h->squares += v * v;
}

/* Runs of empty buckets become one. */
static void histogram_encode(const histogram *h, td_strbuf *out) {
  td_strbuf limits = {0}, counts = {0};
  put_double(out, HISTO_MIN, h->min);
  put_double(out, HISTO_MAX, h->max);
  put_double(out, HISTO_NUM, h->num);
  put_double(out, HISTO_SUM, h->sum);
  put_double(out, HISTO_SQUARES, h->squares);
  for (int i = 0; i < h->count; i++) {
    while (h->counts[i] <= 0 && i + 1 < h->count && h->counts[i + 1] <= 0) i++;
    td_strbuf_append(&limits, td_str_n(&h->limits[i], 8));
    td_strbuf_append(&counts, td_str_n(&h->counts[i], 8));
  }
  td_wire_put_bytes(out, HISTO_LIMITS, td_strbuf_view(&limits));
  td_wire_put_bytes(out, HISTO_COUNTS, td_strbuf_view(&counts));
  td_strbuf_deinit(&limits);
  td_strbuf_deinit(&counts);
}

static td_status histogram_fill(histogram *h, const td_tensor *values, td_str what) {
  *h = (histogram){.min = DBL_MAX, .max = -DBL_MAX};
  h->count = make_limits(h->limits);
  for (int64_t i = 0; i < values->count; i++) {
    double v = td_tensor_real_at(values, i);
    if (isnan(v))
      return td_invalid_argument("Nan in summary histogram for: %.*s", (int)TD_MIN(what.size, (size_t)512), what.data);
    if (isinf(v))
      return td_invalid_argument("Infinity in summary histogram for: %.*s", (int)TD_MIN(what.size, (size_t)512),
                                 what.data);
    histogram_add(h, v);
  }
  return TD_STATUS_OK;
}

td_status td_summary_put_histogram(td_strbuf *summary, td_str tag, const td_tensor *t, td_str what) {
  histogram *h = td_malloc(sizeof *h);
  td_strbuf message = {0};
  td_status status = histogram_fill(h, t, what);
  if (!status) {
    histogram_encode(h, &message);
    td_summary_put_value(summary, tag, TD_VALUE_HISTOGRAM, td_strbuf_view(&message));
  }
  td_strbuf_deinit(&message);
  td_free(h);
  return status;
}

/* ---- tensors ---- */

td_status td_summary_put_tensor(td_strbuf *summary, td_str tag, const td_tensor *t, td_str metadata) {
  td_strbuf value = {0}, message = {0};
  td_status status = TD_STATUS_OK;
  if (t->dtype == TD_STRING) {
    td_tensor_encode_strings(t, &message);
  } else {
    status = td_tensor_encode(t, &message);
  }
  if (!status) {
    if (tag.size) td_wire_put_bytes(&value, TD_VALUE_TAG, tag);
    td_wire_put_bytes(&value, TD_VALUE_TENSOR, td_strbuf_view(&message));
    if (metadata.data) td_wire_put_bytes(&value, TD_VALUE_METADATA, metadata);
    td_wire_put_bytes(summary, TD_SUMMARY_VALUE, td_strbuf_view(&value));
  }
  td_strbuf_deinit(&value);
  td_strbuf_deinit(&message);
  return status;
}

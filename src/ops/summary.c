/* Summaries for event files: ScalarSummary, HistogramSummary, MergeSummary, TensorSummary, TensorSummaryV2. Each gives
 * a serialized Summary. */
#include <float.h>
#include <math.h>

#include "base/map.h"
#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

/* Fields of Summary, Summary.Value, HistogramProto. */
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_HISTOGRAM = 5, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { HISTO_MIN = 1, HISTO_MAX, HISTO_NUM, HISTO_SUM, HISTO_SQUARES, HISTO_LIMITS, HISTO_COUNTS };

static td_str string_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }

/* The output: a scalar string; takes `message`. */
static td_status set_output(td_kernel_ctx *ctx, td_strbuf *message) {
  td_tensor *out;
  td_status status = td_out_alloc_dims(ctx, 0, 0, NULL, &out);
  if (!status) status = td_string_set(TD_DATA(out, td_string), td_strbuf_view(message));
  td_strbuf_deinit(message);
  return status;
}

static double real_at(const td_tensor *t, int64_t i) {
  switch ((td_dtype)t->dtype) {
    case TD_FLOAT:
      return TD_DATA(t, float)[i];
    case TD_DOUBLE:
      return TD_DATA(t, double)[i];
    case TD_HALF:
      return td_half_to_float(TD_DATA(t, td_half)[i]);
    case TD_BFLOAT16:
      return td_bfloat16_to_float(TD_DATA(t, td_bfloat16)[i]);
    case TD_INT8:
      return TD_DATA(t, int8_t)[i];
    case TD_UINT8:
      return TD_DATA(t, uint8_t)[i];
    case TD_INT16:
      return TD_DATA(t, int16_t)[i];
    case TD_UINT16:
      return TD_DATA(t, uint16_t)[i];
    case TD_INT32:
      return TD_DATA(t, int32_t)[i];
    case TD_UINT32:
      return TD_DATA(t, uint32_t)[i];
    case TD_INT64:
      return (double)TD_DATA(t, int64_t)[i];
    default:
      return (double)TD_DATA(t, uint64_t)[i];
  }
}

static void put_double(td_strbuf *b, uint32_t number, double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  if (bits) td_wire_put_fixed64(b, number, bits);
}

/* ---- ScalarSummary ---- */

static td_status scalar_compute(td_kernel_ctx *ctx) {
  const td_tensor *tags = td_in(ctx, 0), *values = td_in(ctx, 1);
  if (!td_tensor_same_shape(tags, values) && !(td_is_legacy_scalar(tags) && td_is_legacy_scalar(values))) {
    if (tags->count != 1) {
      return td_invalid_argument("tags and values not the same shape: %s != %s", TD_SHOW(tags), TD_SHOW(values));
    }
    return td_invalid_argument("tags and values not the same shape: %s != %s (tag '%.*s')", TD_SHOW(tags),
                               TD_SHOW(values), TD_STR_ARG(string_at(tags, 0)));
  }
  td_strbuf out = {0}, value = {0};
  for (int64_t i = 0; i < tags->count; i++) {
    float simple = (float)real_at(values, i);
    uint32_t bits;
    memcpy(&bits, &simple, 4);
    value.size = 0;
    if (string_at(tags, i).size) td_wire_put_bytes(&value, VALUE_TAG, string_at(tags, i));
    td_wire_put_fixed32(&value, VALUE_SIMPLE, bits);
    td_wire_put_bytes(&out, SUMMARY_VALUE, td_strbuf_view(&value));
  }
  td_strbuf_deinit(&value);
  return set_output(ctx, &out);
}

/* ---- HistogramSummary ---- */

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

static td_status histogram_fill(histogram *h, const td_tensor *values, td_str node) {
  *h = (histogram){.min = DBL_MAX, .max = -DBL_MAX};
  h->count = make_limits(h->limits);
  for (int64_t i = 0; i < values->count; i++) {
    double v = real_at(values, i);
    if (isnan(v)) return td_invalid_argument("Nan in summary histogram for: %.*s", TD_STR_ARG(node));
    if (isinf(v)) return td_invalid_argument("Infinity in summary histogram for: %.*s", TD_STR_ARG(node));
    histogram_add(h, v);
  }
  return TD_STATUS_OK;
}

static td_status histogram_compute(td_kernel_ctx *ctx) {
  const td_tensor *tag = td_in(ctx, 0);
  if (!td_is_legacy_scalar(tag)) return td_invalid_argument("tags must be scalar");
  histogram *h = td_malloc(sizeof *h);
  td_strbuf out = {0}, value = {0}, message = {0};
  td_status status = histogram_fill(h, td_in(ctx, 1), ctx->kernel->name);
  if (!status) {
    histogram_encode(h, &message);
    if (string_at(tag, 0).size) td_wire_put_bytes(&value, VALUE_TAG, string_at(tag, 0));
    td_wire_put_bytes(&value, VALUE_HISTOGRAM, td_strbuf_view(&message));
    td_wire_put_bytes(&out, SUMMARY_VALUE, td_strbuf_view(&value));
    status = set_output(ctx, &out);
  }
  td_strbuf_deinit(&value);
  td_strbuf_deinit(&message);
  td_free(h);
  return status;
}

/* ---- MergeSummary ---- */

static td_status bad_summary(void) { return td_invalid_argument("Could not parse one of the summary inputs"); }

/* The tag of a Summary.Value; false when that is malformed. */
static bool tag_of(td_str value, td_str *tag) {
  td_wire w = td_wire_of(value);
  td_wire_field f;
  bool bad = false;
  *tag = TD_STR("");
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == VALUE_TAG && f.type == TD_WIRE_BYTES) *tag = f.bytes;
  }
  return !bad;
}

static td_status merge_one(td_str summary, td_map *tags, td_strbuf *out) {
  td_wire w = td_wire_of(summary);
  td_wire_field f;
  bool bad = false;
  td_str tag;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number != SUMMARY_VALUE || f.type != TD_WIRE_BYTES) continue;
    if (!tag_of(f.bytes, &tag)) return bad_summary();
    if (tag.size && td_map_insert(tags, tag, tags)) {
      return td_invalid_argument("Duplicate tag %.*s found in summary inputs", (int)TD_MIN(tag.size, (size_t)512),
                                 tag.data);
    }
    td_wire_put_bytes(out, SUMMARY_VALUE, f.bytes);
  }
  return bad ? bad_summary() : TD_STATUS_OK;
}

static td_status merge_compute(td_kernel_ctx *ctx) {
  td_map tags = {0};
  td_strbuf out = {0};
  td_status status = TD_STATUS_OK;
  for (int k = 0; k < ctx->kernel->input_count && !status; k++) {
    const td_tensor *t = td_in(ctx, k);
    for (int64_t i = 0; i < t->count && !status; i++) status = merge_one(string_at(t, i), &tags, &out);
  }
  td_map_deinit(&tags);
  if (!status) return set_output(ctx, &out);
  td_strbuf_deinit(&out);
  return status;
}

/* ---- TensorSummary ---- */

/* A Value of a tensor, with a tag and serialized metadata or without. */
static td_status put_tensor(td_kernel_ctx *ctx, const td_tensor *t, td_str tag, td_str metadata) {
  td_strbuf out = {0}, value = {0}, message = {0};
  td_status status = TD_STATUS_OK;
  if (t->dtype == TD_STRING) {
    td_tensor_encode_strings(t, &message);
  } else {
    status = td_tensor_encode(t, &message);
  }
  if (!status) {
    if (tag.size) td_wire_put_bytes(&value, VALUE_TAG, tag);
    td_wire_put_bytes(&value, VALUE_TENSOR, td_strbuf_view(&message));
    if (metadata.data) td_wire_put_bytes(&value, VALUE_METADATA, metadata);
    td_wire_put_bytes(&out, SUMMARY_VALUE, td_strbuf_view(&value));
    status = set_output(ctx, &out);
  }
  td_strbuf_deinit(&value);
  td_strbuf_deinit(&message);
  return status;
}

static td_status tensor_compute(td_kernel_ctx *ctx) { return put_tensor(ctx, td_in(ctx, 0), TD_STR(""), (td_str){0}); }

static td_status tensor_v2_compute(td_kernel_ctx *ctx) {
  const td_tensor *tag = td_in(ctx, 0), *metadata = td_in(ctx, 2);
  if (tag->rank) return td_invalid_argument("tag must be scalar");
  if (metadata->rank) return td_invalid_argument("serialized_summary_metadata must be scalar");
  return put_tensor(ctx, td_in(ctx, 1), string_at(tag, 0), string_at(metadata, 0));
}

/* ---- tables ---- */

#define REAL "{float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"

static const td_op_spec ops[] = {
    {"HistogramSummary", "tag: string; values: T", "summary: string", "T: type in " REAL " = float", 0},
    {"MergeSummary", "inputs: N * string", "summary: string", "N: int >= 1", 0},
    {"ScalarSummary", "tags: string; values: T", "summary: string", "T: type in " REAL, 0},
    {"TensorSummary", "tensor: T", "summary: string",
     "T: type; description: string = ''; labels: list(string) = []; display_name: string = ''", 0},
    {"TensorSummaryV2", "tag: string; tensor: T; serialized_summary_metadata: string", "summary: string", "T: type", 0},
};

static const td_kernel_def kernels[] = {
    {.op = "HistogramSummary", .types = {{"T", TD_SET_REAL}}, .cost = TD_COST_EXPENSIVE, .compute = histogram_compute},
    {.op = "MergeSummary", .compute = merge_compute},
    {.op = "ScalarSummary", .types = {{"T", TD_SET_REAL}}, .compute = scalar_compute},
    {.op = "TensorSummary", .compute = tensor_compute},
    {.op = "TensorSummaryV2", .compute = tensor_v2_compute},
};

TD_FAMILY(summary, ops, kernels);

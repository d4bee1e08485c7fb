/* Summaries for event files: ScalarSummary, HistogramSummary, TensorSummary, TensorSummaryV2, ImageSummary,
 * AudioSummary, AudioSummaryV2, MergeSummary. Each gives a serialized Summary. */
#include "base/map.h"
#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/summary_value.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

static td_str string_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }

/* The output: a scalar string; takes `message`. An error goes before. */
static td_status set_output(td_kernel_ctx *ctx, td_strbuf *message, td_status status) {
  td_tensor *out;
  size_t size = message->size;
  if (!status) status = td_out_alloc_dims(ctx, 0, 0, NULL, &out);
  if (!status) td_string_take(TD_DATA(out, td_string), td_strbuf_take(message), size);
  td_strbuf_deinit(message);
  return status;
}

/* ---- ScalarSummary, HistogramSummary ---- */

static td_status scalar_compute(td_kernel_ctx *ctx) {
  const td_tensor *tags = td_in(ctx, 0), *values = td_in(ctx, 1);
  if (!td_tensor_same_shape(tags, values) && !(td_is_legacy_scalar(tags) && td_is_legacy_scalar(values))) {
    if (tags->count != 1) {
      return td_invalid_argument("tags and values not the same shape: %s != %s", TD_SHOW(tags), TD_SHOW(values));
    }
    return td_invalid_argument("tags and values not the same shape: %s != %s (tag '%.*s')", TD_SHOW(tags),
                               TD_SHOW(values), TD_STR_ARG(string_at(tags, 0)));
  }
  td_strbuf out = {0};
  for (int64_t i = 0; i < tags->count; i++) td_summary_put_scalar(&out, string_at(tags, i), values, i);
  return set_output(ctx, &out, TD_STATUS_OK);
}

static td_status histogram_compute(td_kernel_ctx *ctx) {
  const td_tensor *tag = td_in(ctx, 0);
  td_strbuf out = {0};
  if (!td_is_legacy_scalar(tag)) return td_invalid_argument("tags must be scalar");
  return set_output(ctx, &out, td_summary_put_histogram(&out, string_at(tag, 0), td_in(ctx, 1), ctx->kernel->name));
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
    if (f.number == TD_VALUE_TAG && f.type == TD_WIRE_BYTES) *tag = f.bytes;
  }
  return !bad;
}

static td_status merge_one(td_str summary, td_map *tags, td_strbuf *out) {
  td_wire w = td_wire_of(summary);
  td_wire_field f;
  bool bad = false;
  td_str tag;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number != TD_SUMMARY_VALUE || f.type != TD_WIRE_BYTES) continue;
    if (!tag_of(f.bytes, &tag)) return bad_summary();
    if (tag.size && td_map_insert(tags, tag, tags)) {
      return td_invalid_argument("Duplicate tag %.*s found in summary inputs", (int)TD_MIN(tag.size, (size_t)512),
                                 tag.data);
    }
    td_wire_put_bytes(out, TD_SUMMARY_VALUE, f.bytes);
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
  return set_output(ctx, &out, status);
}

/* ---- TensorSummary ---- */

static td_status put_tensor(td_kernel_ctx *ctx, const td_tensor *t, td_str tag, td_str metadata) {
  td_strbuf out = {0};
  return set_output(ctx, &out, td_summary_put_tensor(&out, tag, t, metadata));
}

static td_status tensor_compute(td_kernel_ctx *ctx) { return put_tensor(ctx, td_in(ctx, 0), TD_STR(""), (td_str){0}); }

static td_status tensor_v2_compute(td_kernel_ctx *ctx) {
  const td_tensor *tag = td_in(ctx, 0), *metadata = td_in(ctx, 2);
  if (tag->rank) return td_invalid_argument("tag must be scalar");
  if (metadata->rank) return td_invalid_argument("serialized_summary_metadata must be scalar");
  return put_tensor(ctx, td_in(ctx, 1), string_at(tag, 0), string_at(metadata, 0));
}

/* ---- ImageSummary ---- */

typedef struct image_state {
  int64_t most;
  td_tensor *bad_color;
} image_state;

static td_status image_create(td_kernel_builder *b, void *state) {
  image_state *st = state;
  const Pb__TensorProto *color;
  TD_TRY(td_attr_int(b->node, "max_images", &st->most));
  TD_TRY(td_attr_tensor(b->node, "bad_color", &color));
  if (color->dtype != TD_UINT8)
    return td_invalid_argument("bad_color must be uint8, got %s", td_dtype_name((td_dtype)color->dtype));
  TD_TRY(td_tensor_from_proto(color, &st->bad_color));
  return st->bad_color->rank == 1
             ? TD_STATUS_OK
             : td_invalid_argument("bad_color must be a vector, got shape %s", TD_SHOW(st->bad_color));
}

static void image_destroy(void *state) { td_tensor_release(((image_state *)state)->bad_color); }

static td_status image_compute(td_kernel_ctx *ctx) {
  const image_state *st = ctx->state;
  const td_tensor *tag = td_in(ctx, 0);
  td_strbuf out = {0};
  if (!td_is_legacy_scalar(tag)) return td_invalid_argument("Tags must be a scalar");
  return set_output(ctx, &out, td_summary_put_images(&out, string_at(tag, 0), td_in(ctx, 1), st->most, st->bad_color));
}

/* ---- AudioSummary ---- */

typedef struct audio_state {
  int64_t most;
  float rate; /* V1's */
  bool has_rate;
} audio_state;

static td_status audio_create(td_kernel_builder *b, void *state) {
  audio_state *st = state;
  TD_TRY(td_attr_int(b->node, "max_outputs", &st->most));
  st->has_rate = b->input_count == 2;
  return st->has_rate ? td_attr_float(b->node, "sample_rate", &st->rate) : TD_STATUS_OK;
}

static td_status audio_compute(td_kernel_ctx *ctx) {
  const audio_state *st = ctx->state;
  const td_tensor *tag = td_in(ctx, 0);
  float rate = st->rate;
  td_strbuf out = {0};
  if (!td_is_legacy_scalar(tag)) return td_invalid_argument("Tag must be a scalar");
  if (!st->has_rate) {
    if (td_in(ctx, 2)->count != 1)
      return td_invalid_argument("sample_rate must be a scalar, got shape %s", TD_SHOW(td_in(ctx, 2)));
    rate = TD_DATA(td_in(ctx, 2), float)[0];
  }
  return set_output(ctx, &out, td_summary_put_audio(&out, string_at(tag, 0), td_in(ctx, 1), st->most, rate));
}

/* ---- tables ---- */

#define REAL "{float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"

static const td_op_spec ops[] = {
    {"AudioSummary", "tag: string; tensor: float", "summary: string", "sample_rate: float; max_outputs: int >= 1 = 3",
     0},
    {"AudioSummaryV2", "tag: string; tensor: float; sample_rate: float", "summary: string", "max_outputs: int >= 1 = 3",
     0},
    {"HistogramSummary", "tag: string; values: T", "summary: string", "T: type in " REAL " = float", 0},
    {"ImageSummary", "tag: string; tensor: T", "summary: string",
     "max_images: int >= 1 = 3; T: type in {uint8, float, half, double} = float; "
     "bad_color: tensor = uint8 [255, 0, 0, 255]",
     0},
    {"MergeSummary", "inputs: N * string", "summary: string", "N: int >= 1", 0},
    {"ScalarSummary", "tags: string; values: T", "summary: string", "T: type in " REAL, 0},
    {"TensorSummary", "tensor: T", "summary: string",
     "T: type; description: string = ''; labels: list(string) = []; display_name: string = ''", 0},
    {"TensorSummaryV2", "tag: string; tensor: T; serialized_summary_metadata: string", "summary: string", "T: type", 0},
};

#define AUDIO(name)                                                                                   \
  {                                                                                                   \
    .op = name, .cost = TD_COST_EXPENSIVE, .state_size = sizeof(audio_state), .create = audio_create, \
    .compute = audio_compute                                                                          \
  }

static const td_kernel_def kernels[] = {
    AUDIO("AudioSummary"),
    AUDIO("AudioSummaryV2"),
    {.op = "HistogramSummary", .types = {{"T", TD_SET_REAL}}, .cost = TD_COST_EXPENSIVE, .compute = histogram_compute},
    {.op = "ImageSummary",
     .types = {{"T", TD_SET(TD_UINT8) | TD_SET(TD_FLOAT) | TD_SET(TD_HALF) | TD_SET(TD_DOUBLE)}},
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(image_state),
     .create = image_create,
     .destroy = image_destroy,
     .compute = image_compute},
    {.op = "MergeSummary", .compute = merge_compute},
    {.op = "ScalarSummary", .types = {{"T", TD_SET_REAL}}, .compute = scalar_compute},
    {.op = "TensorSummary", .compute = tensor_compute},
    {.op = "TensorSummaryV2", .compute = tensor_v2_compute},
};

TD_FAMILY(summary, ops, kernels);

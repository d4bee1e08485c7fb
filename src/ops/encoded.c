/* Tensors in strings: ParseTensor, SerializeTensor, DecodeCompressed, DecodePaddedRaw. */
#include <string.h>

#include "base/mem.h"
#include "checkpoint/input.h"
#include "framework/cancellation.h"
#include "ops/families.h"
#include "ops/move.h"
#include "tensor/tensor_proto.h"

enum { MOST_INFLATED = 1 << 30 }; /* of one string */

static td_str text_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }

/* ---- ParseTensor, SerializeTensor ---- */

static td_status parse_compute(td_kernel_ctx *ctx) {
  const td_tensor *in = td_in(ctx, 0);
  td_tensor *t;
  if (in->rank) return td_invalid_argument("Expected `serialized` to be a scalar, got shape: %s", TD_SHOW(in));
  td_str bytes = text_at(in, 0);
  td_status s = td_tensor_decode(bytes, &t);
  if (s) {
    return td_status_prepend(
        s, "Could not parse `serialized` as TensorProto: '%.*s': ", (int)TD_MIN(bytes.size, (size_t)256), bytes.data);
  }
  if ((td_dtype)t->dtype != td_out_type(ctx, 0)) {
    s = td_invalid_argument("Type mismatch between parsed tensor (%s) and dtype (%s)", td_dtype_name(t->dtype),
                            td_dtype_name(td_out_type(ctx, 0)));
    td_tensor_release(t);
    return s;
  }
  td_out_set(ctx, 0, t);
  return TD_STATUS_OK;
}

static td_status serialize_compute(td_kernel_ctx *ctx) {
  const td_tensor *in = td_in(ctx, 0);
  td_strbuf b = {0};
  td_tensor *out;
  td_status status = TD_STATUS_OK;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  if (in->dtype == TD_STRING)
    td_tensor_encode_strings(in, &b); /* as a list, which other programs read, too */
  else
    status = td_tensor_encode(in, &b);
  size_t size = b.size;
  if (!status) td_string_take(TD_DATA(out, td_string), td_strbuf_take(&b), size);
  td_strbuf_deinit(&b);
  return status;
}

/* ---- DecodeCompressed ---- */

static td_status compressed_create(td_kernel_builder *b, void *state) {
  td_str name;
  TD_TRY(td_attr_str(b->node, "compression_type", &name));
  if (td_compression_parse(name, state)) return TD_STATUS_OK;
  return td_invalid_argument("Only ZLIB, GZIP or NONE are supported compressions");
}

static td_status compressed_compute(td_kernel_ctx *ctx) {
  const td_tensor *in = td_in(ctx, 0);
  td_compression compression = *(const td_compression *)ctx->state;
  td_tensor *out;
  if (!compression) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  TD_TRY(td_out_alloc_like(ctx, 0, in, &out));
  for (int64_t i = 0; i < in->count; i++) {
    td_strbuf b = {0};
    if (td_cancellation_is_cancelled(ctx->step->cancellation)) return td_cancelled("The step was cancelled");
    td_status status = td_inflate_bytes(text_at(in, i), compression, MOST_INFLATED, &b);
    size_t size = b.size;
    if (!status) td_string_take(TD_DATA(out, td_string) + i, td_strbuf_take(&b), size);
    td_strbuf_deinit(&b);
    TD_TRY(status);
  }
  return TD_STATUS_OK;
}

/* ---- DecodePaddedRaw ---- */

static td_status padded_create(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "little_endian", state);
}

static void swap(char *p, size_t size, size_t width) {
  for (size_t i = 0; i < size; i += width)
    for (size_t k = 0; k < width / 2; k++) {
      char c = p[i + k];
      p[i + k] = p[i + width - 1 - k];
      p[i + width - 1 - k] = c;
    }
}

static td_status padded_compute(td_kernel_ctx *ctx) {
  const td_tensor *in = td_in(ctx, 0), *length = td_in(ctx, 1);
  size_t width = td_dtype_size(td_out_type(ctx, 0));
  td_shape shape;
  td_tensor *out;
  TD_TRY(td_check_scalar(length, "fixed_length"));
  int32_t fixed = TD_DATA(length, int32_t)[0];
  if (fixed <= 0) return td_invalid_argument("fixed_length (%d) must be greater than zero", fixed);
  if ((size_t)fixed % width) {
    return td_invalid_argument("fixed_length (%d) must be a multiple of the size of out_type (%zu)", fixed, width);
  }
  td_tensor_shape(in, &shape);
  TD_TRY(td_shape_append(&shape, (int64_t)((size_t)fixed / width)));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  for (int64_t i = 0; i < in->count; i++) {
    td_str s = text_at(in, i);
    char *to = (char *)out->data + (size_t)i * (size_t)fixed;
    size_t n = TD_MIN(s.size, (size_t)fixed);
    memcpy(to, s.data, n);
    memset(to + n, 0, (size_t)fixed - n);
    if (!*(const bool *)ctx->state) swap(to, (size_t)fixed, width);
  }
  return TD_STATUS_OK;
}

static const td_op_spec ops[] = {
    {"DecodeCompressed", "bytes: string", "output: string", "compression_type: string = ''", 0},
    {"DecodePaddedRaw", "input_bytes: string; fixed_length: int32", "output: out_type",
     "out_type: type in {half, float, double, int32, uint16, uint8, int16, int8, int64, bfloat16}; "
     "little_endian: bool = true",
     0},
    {"ParseTensor", "serialized: string", "output: out_type", "out_type: type", 0},
    {"SerializeTensor", "tensor: T", "serialized: string", "T: type", 0},
};

#define PADDED_TYPES                                                                                                  \
  (TD_SET(TD_HALF) | TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE) | TD_SET(TD_INT32) | TD_SET(TD_UINT16) | TD_SET(TD_UINT8) | \
   TD_SET(TD_INT16) | TD_SET(TD_INT8) | TD_SET(TD_INT64) | TD_SET(TD_BFLOAT16))

static const td_kernel_def kernels[] = {
    {.op = "DecodeCompressed",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(td_compression),
     .create = compressed_create,
     .compute = compressed_compute},
    {.op = "DecodePaddedRaw",
     .types = {{"out_type", PADDED_TYPES}},
     .state_size = sizeof(bool),
     .create = padded_create,
     .compute = padded_compute},
    {.op = "ParseTensor", .compute = parse_compute},
    {.op = "SerializeTensor", .compute = serialize_compute},
};

TD_FAMILY(encoded, ops, kernels);

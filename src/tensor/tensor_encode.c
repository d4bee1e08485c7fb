/* Tensor → TensorProto. */
#include <assert.h>

#include "base/mem.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

/* Bytes of one TensorShapeProto.Dim: its size always written, zero too, as TensorFlow's fast encoder does. */
static size_t dim_size(int64_t size) { return 1 + td_wire_varint_size((uint64_t)size); }

static size_t shape_size(int rank, const int64_t *dims) {
  size_t size = 0;
  for (int i = 0; i < rank; i++) size += 2 + dim_size(dims[i]);
  return size;
}

static uint8_t *write_shape(int rank, const int64_t *dims, uint8_t *to) {
  for (int i = 0; i < rank; i++) {
    *to++ = 0x12; /* dim */
    *to++ = (uint8_t)dim_size(dims[i]);
    *to++ = 0x08; /* size */
    to = td_wire_write_varint(to, (uint64_t)dims[i]);
  }
  return to;
}

/* dtype and tensor_shape; the latter also when empty: without it TensorFlow's parser takes the slow way. */
static uint8_t *write_head(const td_tensor *t, uint8_t *to) {
  *to++ = 0x08;
  *to++ = t->dtype;
  *to++ = 0x12;
  to = td_wire_write_varint(to, shape_size(t->rank, t->dims));
  return write_shape(t->rank, t->dims, to);
}

/* 2 + 1 + 2 for the head, 13 a dimension, 1 + 10 for the content's header */
_Static_assert(5 + 13 * TD_MAX_RANK + 11 <= TD_TENSOR_HEADER_MAX, "room for every header");

size_t td_tensor_proto_header(const td_tensor *t, uint8_t *to) {
  assert(td_dtype_is_pod(t->dtype));
  uint8_t *end = write_head(t, to);
  *end++ = 0x22; /* tensor_content */
  end = td_wire_write_varint(end, t->size);
  return (size_t)(end - to);
}

void td_shape_encode(int rank, const int64_t *dims, td_strbuf *out) {
  uint8_t bytes[TD_TENSOR_HEADER_MAX];
  assert(rank <= TD_MAX_RANK);
  td_strbuf_append(out, td_str_n(bytes, (size_t)(write_shape(rank, dims, bytes) - bytes)));
}

void td_resource_handle_encode(const td_resource_handle *h, td_strbuf *out) {
  if (!h) return;
  const char *names[] = {h->device, h->container, h->name};
  for (uint32_t i = 0; i < 3; i++) {
    if (*names[i]) td_wire_put_bytes(out, i + 1, td_str_of(names[i]));
  }
  td_wire_put_uint(out, 4, h->hash_code);
  if (*h->type_name) td_wire_put_bytes(out, 5, td_str_of(h->type_name));
  if (h->extra_size) td_strbuf_append(out, td_str_n(h->extra, h->extra_size));
}

td_status td_variant_encode(const td_variant *v, td_strbuf *out) {
  if (!v) return TD_STATUS_OK;
  if (!v->ops->encode) return td_unimplemented("A variant of type %s cannot be sent", v->ops->type_name);
  return v->ops->encode(v, out);
}

static td_status encode_object(const td_tensor *t, int64_t i, td_strbuf *out) {
  if (t->dtype == TD_RESOURCE) {
    td_resource_handle_encode(TD_DATA(t, td_resource_handle *)[i], out);
    return TD_STATUS_OK;
  }
  return td_variant_encode(TD_DATA(t, td_variant *)[i], out);
}

/* Sizes into `sizes`, bytes into `bytes`. Strings are not copied here: only their sizes. */
static td_status encode_objects(const td_tensor *t, td_strbuf *sizes, td_strbuf *bytes, size_t *total) {
  *total = 0;
  for (int64_t i = 0; i < t->count; i++) {
    size_t size;
    if (t->dtype == TD_STRING) {
      size = TD_DATA(t, td_string)[i].size;
    } else {
      size_t before = bytes->size;
      TD_TRY(encode_object(t, i, bytes));
      size = bytes->size - before;
    }
    td_wire_put_varint(sizes, size);
    *total += size;
    if (*total + sizes->size >= (size_t)1 << 31) {
      return td_resource_exhausted("A tensor of type %s with more than 2 GiB cannot be sent", td_dtype_name(t->dtype));
    }
  }
  return TD_STATUS_OK;
}

td_status td_tensor_encode(const td_tensor *t, td_strbuf *out) {
  uint8_t head[TD_TENSOR_HEADER_MAX];
  if (td_dtype_is_pod(t->dtype)) {
    if (t->size >= (size_t)1 << 31) {
      return td_resource_exhausted("A tensor of %zu bytes cannot be sent: more than 2 GiB", t->size);
    }
    td_strbuf_append(out, td_str_n(head, td_tensor_proto_header(t, head)));
    td_strbuf_append(out, td_str_n(t->data, t->size));
    return TD_STATUS_OK;
  }
  td_strbuf sizes = {0}, bytes = {0};
  size_t total;
  td_status status = encode_objects(t, &sizes, &bytes, &total);
  if (!status) {
    td_strbuf_append(out, td_str_n(head, (size_t)(write_head(t, head) - head)));
    if (t->count) td_wire_put_header(out, 4, sizes.size + total);
    td_strbuf_append(out, td_strbuf_view(&sizes));
    td_strbuf_append(out, td_strbuf_view(&bytes));
    for (int64_t i = 0; t->dtype == TD_STRING && i < t->count; i++) {
      td_strbuf_append(out, td_string_view(&TD_DATA(t, td_string)[i]));
    }
  }
  td_strbuf_deinit(&sizes);
  td_strbuf_deinit(&bytes);
  return status;
}

void td_tensor_encode_strings(const td_tensor *t, td_strbuf *out) {
  uint8_t head[TD_TENSOR_HEADER_MAX];
  td_strbuf_append(out, td_str_n(head, (size_t)(write_head(t, head) - head)));
  for (int64_t i = 0; i < t->count; i++) td_wire_put_bytes(out, 8, td_string_view(TD_DATA(t, td_string) + i));
}

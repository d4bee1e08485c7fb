#include "tensor/tensor_stream.h"

#include <assert.h>

#include "base/mem.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

/* A header that has not ended by then is none of the usual form. */
enum { LONGEST_HEADER = TD_TENSOR_HEADER_MAX, PIECE = 256, SMALLEST = 4096 };

void td_tensor_stream_init(td_tensor_stream *s, size_t size) {
  /* what is small is gathered and decoded: no gain from landing it */
  *s = (td_tensor_stream){.left = size, .plain = size < SMALLEST};
}

void td_tensor_stream_deinit(td_tensor_stream *s) {
  td_strbuf_deinit(&s->gathered);
  td_tensor_release(s->tensor);
  s->tensor = NULL;
}

typedef struct head {
  int64_t dtype;
  td_str shape;
  bool has_shape;
  uint64_t content; /* announced size */
} head;

/* Reads dtype, tensor_shape and version_number up to the content's header. True: `in` stands at the content. Else
 * *other: the message has another form; or more bytes are needed. */
static bool read_head(td_wire *in, head *h, bool *other) {
  *h = (head){0};
  *other = false;
  while (in->next < in->end) {
    td_wire start = *in;
    uint8_t tag = *in->next++;
    uint64_t value;
    if (tag != 0x08 && tag != 0x12 && tag != 0x18 && tag != 0x22) {
      *other = true;
      return false;
    }
    if (!td_wire_read_varint(in, &value)) {
      *other = td_wire_left(in) >= TD_WIRE_MAX_VARINT;
      return false;
    }
    if (tag == 0x22) {
      h->content = value;
      return true;
    }
    if (tag == 0x08) h->dtype = (int64_t)value;
    if (tag != 0x12) continue;
    if (h->has_shape || value > LONGEST_HEADER) {
      *other = true;
      return false;
    }
    if (value > td_wire_left(in)) {
      *in = start;
      return false;
    }
    h->has_shape = true;
    h->shape = td_str_n(in->next, (size_t)value);
    in->next += value;
  }
  return false;
}

/* Allocates the tensor if the header is whole, plain, and all of it agrees. */
static td_status try_start(td_tensor_stream *s) {
  td_wire in = td_wire_of(td_strbuf_view(&s->gathered));
  head h;
  bool other;
  if (!read_head(&in, &h, &other)) {
    s->plain = other || s->gathered.size >= LONGEST_HEADER;
    return TD_STATUS_OK;
  }
  s->plain = true; /* unless all that follows holds; the decoder finds the error */
  if (h.dtype <= 0 || h.dtype >= TD_DTYPE_LIMIT || !td_dtype_is_pod((td_dtype)h.dtype)) return TD_STATUS_OK;
  if (!h.content || h.content != td_wire_left(&in) + s->left) return TD_STATUS_OK;
  td_shape shape = {.rank = 0};
  bool unknown_rank = false;
  int64_t count;
  size_t size;
  TD_TRY(td_shape_decode(h.shape, &shape, &unknown_rank));
  TD_TRY(td_shape_count(&shape, &count));
  if (unknown_rank || !td_mul_size((size_t)count, td_dtype_size((td_dtype)h.dtype), &size) || size != h.content) {
    return TD_STATUS_OK;
  }
  TD_TRY(td_tensor_create((td_dtype)h.dtype, &shape, &s->tensor));
  s->filled = td_wire_left(&in);
  memcpy(s->tensor->data, in.next, s->filled);
  td_strbuf_deinit(&s->gathered);
  return TD_STATUS_OK;
}

td_status td_tensor_stream_feed(td_tensor_stream *s, const void *data, size_t size) {
  assert(size <= s->left);
  const char *next = data;
  while (size && !s->tensor) {
    size_t n = s->plain ? size : TD_MIN(size, (size_t)PIECE);
    td_strbuf_append(&s->gathered, td_str_n(next, n));
    next += n;
    size -= n;
    s->left -= n;
    if (!s->plain) TD_TRY(try_start(s));
  }
  if (!size) return TD_STATUS_OK;
  memcpy((char *)s->tensor->data + s->filled, next, size);
  td_tensor_stream_landed(s, size);
  return TD_STATUS_OK;
}

void *td_tensor_stream_window(td_tensor_stream *s, size_t *size) {
  *size = s->tensor ? s->left : 0;
  return *size ? (char *)s->tensor->data + s->filled : NULL;
}

void td_tensor_stream_landed(td_tensor_stream *s, size_t size) {
  assert(s->tensor && size <= s->left);
  s->filled += size;
  s->left -= size;
}

td_status td_tensor_stream_finish(td_tensor_stream *s, td_tensor **out) {
  if (s->left) return td_invalid_argument("TensorProto ends %zu bytes too early", s->left);
  if (!s->tensor) return td_tensor_decode(td_strbuf_view(&s->gathered), out);
  assert(s->filled == s->tensor->size);
  *out = s->tensor;
  s->tensor = NULL;
  return TD_STATUS_OK;
}

/* Reads a RecvTensorResponse as it comes. */
#include <stdatomic.h>

#include "base/mem.h"
#include "cluster/messages.h"
#include "proto/wire.h"
#include "tensor/tensor_stream.h"

struct td_recv_tensor_receiver {
  td_receiver base;
  atomic_uint refs;
  /* The head of the next field while it is incomplete: tag and varint. */
  uint8_t head[2 * TD_WIRE_MAX_VARINT];
  size_t head_size;
  size_t skip; /* bytes of an uninteresting field still to come */
  enum { BETWEEN, IN_TENSOR } state;
  td_tensor_stream stream;
  bool is_dead, has_tensor;
  int64_t sent_us;
  td_tensor *tensor;
};

typedef td_recv_tensor_receiver receiver;

td_receiver *td_recv_tensor_receiver_base(receiver *r) { return &r->base; }

void td_recv_tensor_receiver_release(receiver *r) {
  /* acq_rel: the last owner sees what the other wrote */
  if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  if (r->state == IN_TENSOR) td_tensor_stream_deinit(&r->stream);
  td_tensor_release(r->tensor);
  td_free(r);
}

static void destroy(td_receiver *base) { td_recv_tensor_receiver_release((receiver *)base); }

static td_status end_tensor(receiver *r) {
  td_tensor *t = NULL;
  td_status s = td_tensor_stream_finish(&r->stream, &t);
  td_tensor_stream_deinit(&r->stream);
  r->state = BETWEEN;
  td_tensor_release(r->tensor);
  r->tensor = t;
  return s;
}

static td_status begin_field(receiver *r, uint32_t number, td_wire_type type, uint64_t value) {
  if (type == TD_WIRE_VARINT) {
    if (number == 2) r->is_dead = value;
    if (number == 3) r->sent_us = (int64_t)value;
    return TD_STATUS_OK;
  }
  if (value > INT32_MAX)
    return td_invalid_argument("malformed RecvTensorResponse: field %u of %llu bytes", number,
                               (unsigned long long)value);
  if (number != 1) {
    r->skip = (size_t)value;
    return TD_STATUS_OK;
  }
  td_tensor_stream_init(&r->stream, (size_t)value);
  r->state = IN_TENSOR;
  r->has_tensor = true;
  return value ? TD_STATUS_OK : end_tensor(r);
}

/* Takes bytes into the head until a field's tag and number are complete. */
static td_status feed_head(receiver *r, uint8_t byte) {
  if (r->head_size == sizeof r->head) return td_invalid_argument("malformed RecvTensorResponse: endless field head");
  r->head[r->head_size++] = byte;
  td_wire w = {r->head, r->head + r->head_size};
  uint32_t number;
  td_wire_type type;
  uint64_t value;
  if (!td_wire_read_tag(&w, &number, &type)) {
    bool complete = r->head_size >= 5 || !(byte & 0x80);
    return complete ? td_invalid_argument("malformed RecvTensorResponse: bad field tag") : TD_STATUS_OK;
  }
  if (type == TD_WIRE_FIXED32 || type == TD_WIRE_FIXED64) {
    r->head_size = 0;
    r->skip = type == TD_WIRE_FIXED32 ? 4 : 8;
    return TD_STATUS_OK;
  }
  if (!td_wire_read_varint(&w, &value)) return TD_STATUS_OK; /* more to come */
  r->head_size = 0;
  return begin_field(r, number, type, value);
}

static td_status bytes(td_receiver *base, const void *data, size_t size) {
  receiver *r = (receiver *)base;
  const uint8_t *p = data;
  while (size) {
    if (r->state == IN_TENSOR) {
      size_t n = TD_MIN(size, td_tensor_stream_left(&r->stream));
      TD_TRY(td_tensor_stream_feed(&r->stream, p, n));
      p += n, size -= n;
      if (!td_tensor_stream_left(&r->stream)) TD_TRY(end_tensor(r));
    } else if (r->skip) {
      size_t n = TD_MIN(size, r->skip);
      r->skip -= n;
      p += n, size -= n;
    } else {
      TD_TRY(feed_head(r, *p));
      p++, size--;
    }
  }
  return TD_STATUS_OK;
}

static void *window(td_receiver *base, size_t *size) {
  receiver *r = (receiver *)base;
  return r->state == IN_TENSOR ? td_tensor_stream_window(&r->stream, size) : NULL;
}

static td_status landed(td_receiver *base, size_t size) {
  receiver *r = (receiver *)base;
  td_tensor_stream_landed(&r->stream, size);
  return td_tensor_stream_left(&r->stream) ? TD_STATUS_OK : end_tensor(r);
}

td_recv_tensor_receiver *td_recv_tensor_receiver_create(void) {
  static const td_receiver_ops ops = {.bytes = bytes, .window = window, .landed = landed, .destroy = destroy};
  receiver *r = td_new(receiver);
  r->base.ops = &ops;
  atomic_init(&r->refs, 2);
  return r;
}

int64_t td_recv_tensor_receiver_sent_us(const receiver *r) { return r->sent_us; }

td_status td_recv_tensor_receiver_take(receiver *r, td_tensor **out, bool *is_dead) {
  if (r->state == IN_TENSOR || r->skip || r->head_size)
    return td_invalid_argument("malformed RecvTensorResponse: it ends in the middle of a field");
  if (!r->has_tensor && !r->is_dead) return td_invalid_argument("malformed RecvTensorResponse: it holds no tensor");
  *is_dead = r->is_dead;
  *out = NULL;
  if (!r->is_dead) {
    *out = r->tensor;
    r->tensor = NULL;
  }
  return TD_STATUS_OK;
}

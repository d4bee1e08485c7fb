/* Reads a RecvTensorResponse as it comes. */
#include <stdatomic.h>

#include "base/mem.h"
#include "cluster/messages.h"
#include "proto/wire.h"
#include "tensor/tensor_stream.h"

struct td_recv_tensor_receiver {
  td_receiver base;
  atomic_uint refs;
  td_wire_head head; /* of the next field */
  size_t skip;       /* bytes of an uninteresting field still to come */
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

static td_status begin_field(receiver *r, const td_wire_field *f) {
  if (f->type == TD_WIRE_FIXED32 || f->type == TD_WIRE_FIXED64) r->skip = f->type == TD_WIRE_FIXED32 ? 4 : 8;
  if (f->type == TD_WIRE_VARINT) {
    if (f->number == 2) r->is_dead = f->value;
    if (f->number == 3) r->sent_us = (int64_t)f->value;
  }
  if (f->type != TD_WIRE_BYTES) return TD_STATUS_OK;
  if (f->value > INT32_MAX)
    return td_invalid_argument("malformed RecvTensorResponse: field %u of %llu bytes", f->number,
                               (unsigned long long)f->value);
  if (f->number != 1) {
    r->skip = (size_t)f->value;
    return TD_STATUS_OK;
  }
  td_tensor_stream_init(&r->stream, (size_t)f->value);
  r->state = IN_TENSOR;
  r->has_tensor = true;
  return f->value ? TD_STATUS_OK : end_tensor(r);
}

static td_status bytes(td_receiver *base, const void *data, size_t size) {
  receiver *r = (receiver *)base;
  td_wire w = td_wire_of(td_str_n(data, size));
  while (w.next < w.end) {
    size_t left = td_wire_left(&w), n;
    td_wire_field f;
    if (r->state == IN_TENSOR) {
      n = TD_MIN(left, td_tensor_stream_left(&r->stream));
      TD_TRY(td_tensor_stream_feed(&r->stream, w.next, n));
      w.next += n;
      if (!td_tensor_stream_left(&r->stream)) TD_TRY(end_tensor(r));
    } else if (r->skip) {
      n = TD_MIN(left, r->skip);
      r->skip -= n;
      w.next += n;
    } else {
      td_wire_head_state state = td_wire_head_read(&r->head, &w, &f);
      if (state == TD_WIRE_HEAD_BAD) return td_invalid_argument("malformed RecvTensorResponse: bad field head");
      if (state == TD_WIRE_HEAD_WHOLE) TD_TRY(begin_field(r, &f));
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
  if (r->state == IN_TENSOR || r->skip || r->head.size)
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

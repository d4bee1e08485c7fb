#include "cluster/recv_batch_reply.h"

#include "base/mem.h"
#include "cluster/recv_batch.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"
#include "tensor/tensor_stream.h"

struct td_recv_batch_reply {
  td_receiver base;
  int refs;
  bool in_tensor;        /* of which only a part has come: the rest goes to `stream` */
  size_t skip;           /* bytes of an uninteresting field still to come */
  td_wire_head head;     /* of the next field */
  uint64_t place;        /* of what comes next */
  td_lender *lender;     /* retained; NULL: none */
  td_borrowed *borrowed; /* the last loan that was taken: the next tensor may lie there too */
  td_loan loan;          /* what was told of the one that is lent */
  td_dtype lent_type;
  td_shape lent_shape;
  td_recv_batch_head in; /* what stood before the tensors */
  td_recv_batch_entry *entries;
  size_t count, capacity, most;
  td_tensor_stream stream;
};

typedef td_recv_batch_reply reply;

td_receiver *td_recv_batch_reply_receiver(reply *r) { return &r->base; }

void td_recv_batch_reply_release(reply *r) {
  if (--r->refs) return;
  if (r->in_tensor) td_tensor_stream_deinit(&r->stream);
  for (size_t i = 0; i < r->count; i++) td_tensor_release(r->entries[i].tensor);
  td_borrowed_release(r->borrowed);
  td_lender_release(r->lender);
  td_free(r->entries);
  td_free(r);
}

static void destroy(td_receiver *base) { td_recv_batch_reply_release((reply *)base); }

/* Takes the tensor. */
static td_status add(reply *r, td_tensor *t, uint64_t number) {
  if (r->count == r->most) {
    td_tensor_release(t);
    return td_internal("RecvTensors answered with more than the %zu tensors that it was asked for", r->most);
  }
  TD_GROW(r->entries, r->count, r->capacity);
  r->entries[r->count++] = (td_recv_batch_entry){r->place, t, number};
  return TD_STATUS_OK;
}

static td_status end_tensor(reply *r) {
  td_tensor *t = NULL;
  TD_TRY(td_tensor_stream_finish(&r->stream, &t));
  td_tensor_stream_deinit(&r->stream);
  r->in_tensor = false;
  return add(r, t, 0);
}

/* A TensorProto of `size` bytes begins: whole, as most do, it is decoded from where it lies. */
static td_status begin_tensor(reply *r, td_wire *w, size_t size) {
  td_tensor *t = NULL;
  if (size > td_wire_left(w)) {
    td_tensor_stream_init(&r->stream, size);
    r->in_tensor = true;
    return TD_STATUS_OK;
  }
  TD_TRY(td_tensor_decode(td_str_n(w->next, size), &t));
  w->next += size;
  return add(r, t, 0);
}

/* The last field of a tensor that is lent. */
static td_status take_loan(reply *r) {
  td_tensor *t = NULL;
  if (!r->lender) return td_internal("RecvTensors lends a tensor to a task that cannot borrow");
  if (!r->borrowed || !td_borrowed_is(r->borrowed, &r->loan)) {
    td_borrowed_release(r->borrowed);
    r->borrowed = NULL;
    TD_TRY(td_lender_take(r->lender, &r->loan, &r->borrowed));
  }
  TD_TRY(td_borrowed_tensor(r->borrowed, r->loan.offset, r->lent_type, r->lent_shape.rank, r->lent_shape.dims, &t));
  r->lent_shape.rank = 0;
  r->lent_type = 0;
  r->loan = (td_loan){0};
  return add(r, t, 0);
}

static td_status add_lent_size(reply *r, int64_t size) {
  if (r->lent_shape.rank == TD_MAX_RANK)
    return td_internal("RecvTensors lends a tensor of more than %d dimensions", TD_MAX_RANK);
  r->lent_shape.dims[r->lent_shape.rank++] = size;
  return TD_STATUS_OK;
}

static td_status begin_lent(reply *r, const td_wire_field *f) {
  switch (f->number) {
    case TD_LENT_SIZE:
      return add_lent_size(r, (int64_t)f->value);
    case TD_LENT_TYPE:
      r->lent_type = (td_dtype)TD_MIN(f->value, (uint64_t)INT32_MAX);
      return TD_STATUS_OK;
    case TD_LENT_OFFSET:
      r->loan.offset = f->value;
      return TD_STATUS_OK;
    case TD_LENT_SLOT:
      r->loan.slot = (uint32_t)TD_MIN(f->value, (uint64_t)UINT32_MAX);
      return TD_STATUS_OK;
    case TD_LENT_TICKET:
      r->loan.ticket = (uint32_t)f->value;
      return take_loan(r);
  }
  return TD_STATUS_OK; /* unknown: of later versions */
}

static td_status begin_field(reply *r, const td_wire_field *f, td_wire *w) {
  switch (f->type) {
    case TD_WIRE_FIXED32:
    case TD_WIRE_FIXED64:
      r->skip = f->type == TD_WIRE_FIXED32 ? 4 : 8;
      return TD_STATUS_OK;
    case TD_WIRE_BYTES:
      if (f->value > INT32_MAX) return td_internal("malformed reply of RecvTensors: a field too long");
      if (f->number == 2) return begin_tensor(r, w, (size_t)f->value);
      r->skip = (size_t)f->value;
      return TD_STATUS_OK;
    case TD_WIRE_VARINT:
      break;
  }
  if (f->number == 1) r->place = f->value;
  if (f->number == 3) return add(r, NULL, f->value);
  if (f->number == 4) r->in.sent_us = (int64_t)f->value;
  if (f->number == 5) r->in.rest = f->value;
  if (f->number == 6) r->in.number = f->value;
  if (f->number == 8) r->in.is_unknown = f->value;
  return f->number >= TD_LENT_SIZE ? begin_lent(r, f) : TD_STATUS_OK;
}

static td_status bytes(td_receiver *base, const void *data, size_t size) {
  reply *r = (reply *)base;
  td_wire w = td_wire_of(td_str_n(data, size));
  while (w.next < w.end) {
    size_t left = td_wire_left(&w);
    if (r->in_tensor) {
      size_t n = TD_MIN(left, td_tensor_stream_left(&r->stream));
      TD_TRY(td_tensor_stream_feed(&r->stream, w.next, n));
      w.next += n;
      if (!td_tensor_stream_left(&r->stream)) TD_TRY(end_tensor(r));
    } else if (r->skip) {
      size_t n = TD_MIN(left, r->skip);
      r->skip -= n;
      w.next += n;
    } else {
      td_wire_field f;
      td_wire_head_state state = td_wire_head_read(&r->head, &w, &f);
      if (state == TD_WIRE_HEAD_BAD) return td_internal("malformed reply of RecvTensors");
      if (state == TD_WIRE_HEAD_WHOLE) TD_TRY(begin_field(r, &f, &w));
    }
  }
  return TD_STATUS_OK;
}

td_recv_batch_reply *td_recv_batch_reply_create(size_t most, td_lender *lender) {
  static const td_receiver_ops ops = {.bytes = bytes, .destroy = destroy};
  reply *r = td_new(reply);
  r->base.ops = &ops;
  r->refs = 2;
  r->most = most;
  if (lender) r->lender = td_lender_retain(lender);
  r->place = UINT64_MAX;
  return r;
}

td_status td_recv_batch_reply_end(reply *r, td_recv_batch_head *head, td_recv_batch_entry **entries, size_t *count) {
  if (r->in_tensor || r->skip || r->head.size)
    return td_internal("malformed reply of RecvTensors: it ends in the middle of a field");
  td_borrowed_release(r->borrowed);
  r->borrowed = NULL;
  *head = r->in;
  *entries = r->entries;
  *count = r->count;
  return TD_STATUS_OK;
}

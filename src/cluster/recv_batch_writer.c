#include "cluster/recv_batch_writer.h"

#include <string.h>

#include "base/mem.h"
#include "cluster/messages.h"
#include "cluster/recv_batch.h"
#include "proto/wire.h"
#include "tensor/memory.h"

/* The socket would copy small tensors twice, by way of fresh pages; a parcel copies them once. All are of one size, so
 * that their buffers find each other again while they are in the cache. */
enum {
  PARCEL = 128 << 10,
  PARCEL_MIN = 32 << 10,   /* bytes that are worth one */
  PARCEL_TENSOR = 1 << 10, /* of a tensor that is worth its place */
};

typedef td_recv_batch_writer writer;

static void flush(writer *w, td_strbuf *fields) {
  td_payload_copy(&w->message, fields->data, fields->size);
  fields->size = 0;
}

static void put_place(td_strbuf *fields, uint64_t place) {
  td_wire_put_tag(fields, 1, TD_WIRE_VARINT);
  td_wire_put_varint(fields, place);
}

void td_recv_batch_writer_init(writer *w, const td_recv_batch_head *head, pid_t borrower, const void *step) {
  *w = (writer){.borrower = borrower, .step = step};
  td_wire_put_uint(&w->fields, 4, (uint64_t)head->sent_us);
  td_wire_put_uint(&w->fields, 5, head->rest);
  td_wire_put_uint(&w->fields, 6, head->number);
  flush(w, &w->fields);
}

/* ---- loans ---- */

static void put_loan(writer *w, td_strbuf *fields, uint64_t place, const td_tensor *t, const td_loan *loan) {
  put_place(fields, place);
  for (int i = 0; i < t->rank; i++) {
    td_wire_put_tag(fields, TD_LENT_SIZE, TD_WIRE_VARINT);
    td_wire_put_varint(fields, (uint64_t)t->dims[i]);
  }
  td_wire_put_uint(fields, TD_LENT_TYPE, t->dtype);
  td_wire_put_uint(fields, TD_LENT_OFFSET, loan->offset);
  td_wire_put_uint(fields, TD_LENT_SLOT, loan->slot);
  td_wire_put_tag(fields, TD_LENT_TICKET, TD_WIRE_VARINT);
  td_wire_put_varint(fields, loan->ticket);
  w->lends = true;
}

static bool lend(writer *w, uint64_t place, td_tensor *t) {
  td_loan loan;
  if (!w->borrower || !td_loan_offer(t, w->borrower, w->step, &loan)) return false;
  put_loan(w, &w->fields, place, t, &loan);
  return true;
}

/* 0: it goes in the message. */
static size_t room_for(const td_tensor *t) {
  bool suits = t->size >= PARCEL_TENSOR && t->size <= TD_RECV_SHARED_MAX && td_dtype_is_pod((td_dtype)t->dtype);
  return suits ? (t->size + TD_MEMORY_ALIGN - 1) / TD_MEMORY_ALIGN * TD_MEMORY_ALIGN : 0;
}

void td_recv_batch_writer_announce(writer *w, const td_tensor *t) {
  if (w->borrower) w->due += room_for(t);
}

static bool open_parcel(writer *w) {
  flush(w, &w->packed);
  w->room = w->due >= PARCEL_MIN ? td_loan_offer_parcel(PARCEL, w->borrower, w->step, &w->loan) : NULL;
  w->left = w->room ? PARCEL : 0;
  if (!w->room) w->due = 0; /* the rest goes in the message */
  return w->room;
}

static bool put_in_parcel(writer *w, uint64_t place, const td_tensor *t) {
  size_t room = w->due ? room_for(t) : 0;
  if (!room || (room > w->left && !open_parcel(w))) return false;
  memcpy(w->room, t->data, t->size);
  put_loan(w, &w->packed, place, t, &w->loan);
  w->room += room;
  w->loan.offset += room;
  w->left -= room;
  w->due -= room;
  return true;
}

/* ---- tensors ---- */

static void put_number(writer *w, uint64_t place, uint64_t number) {
  put_place(&w->fields, place);
  td_wire_put_uint(&w->fields, 3, number);
}

td_status td_recv_batch_writer_put(writer *w, uint64_t place, td_tensor *t, bool *is_left) {
  bool is_large = t->size > TD_RECV_SHARED_MAX;
  bool is_lent = is_large ? lend(w, place, t) : put_in_parcel(w, place, t);
  *is_left = is_large && !is_lent;
  if (*is_left) put_number(w, place, TD_BATCH_TOO_LARGE);
  if (is_large || is_lent) return TD_STATUS_OK;
  put_place(&w->fields, place);
  flush(w, &w->fields);
  return td_payload_add_tensor(&w->message, 2, t);
}

void td_recv_batch_writer_put_dead(writer *w, uint64_t place) { put_number(w, place, TD_BATCH_DEAD); }

void td_recv_batch_writer_end(writer *w) {
  flush(w, &w->fields);
  flush(w, &w->packed);
  td_strbuf_deinit(&w->fields);
  td_strbuf_deinit(&w->packed);
}

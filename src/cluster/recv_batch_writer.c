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

static void flush_fields(writer *w) {
  td_payload_copy(&w->message, w->fields.data, w->fields.size);
  w->fields.size = 0;
}

static void put_place(writer *w, uint64_t place) {
  td_wire_put_tag(&w->fields, 1, TD_WIRE_VARINT);
  td_wire_put_varint(&w->fields, place);
}

void td_recv_batch_writer_init(writer *w, const td_recv_batch_head *head, pid_t borrower, const void *step) {
  *w = (writer){.borrower = borrower, .step = step};
  td_wire_put_uint(&w->fields, 4, (uint64_t)head->sent_us);
  td_wire_put_uint(&w->fields, 5, head->rest);
  td_wire_put_uint(&w->fields, 6, head->number);
}

/* ---- loans ---- */

static void put_loan(writer *w, const td_tensor *t, const td_loan *loan) {
  for (int i = 0; i < t->rank; i++) {
    td_wire_put_tag(&w->fields, TD_LENT_SIZE, TD_WIRE_VARINT);
    td_wire_put_varint(&w->fields, (uint64_t)t->dims[i]);
  }
  td_wire_put_uint(&w->fields, TD_LENT_TYPE, t->dtype);
  td_wire_put_uint(&w->fields, TD_LENT_OFFSET, loan->offset);
  td_wire_put_uint(&w->fields, TD_LENT_SLOT, loan->slot);
  td_wire_put_tag(&w->fields, TD_LENT_TICKET, TD_WIRE_VARINT);
  td_wire_put_varint(&w->fields, loan->ticket);
  w->lends = true;
}

static bool lend(writer *w, td_tensor *t) {
  td_loan loan;
  if (!w->borrower || !td_loan_offer(t, w->borrower, w->step, &loan)) return false;
  put_loan(w, t, &loan);
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
  w->room = w->due >= PARCEL_MIN ? td_loan_offer_parcel(PARCEL, w->borrower, w->step, &w->loan) : NULL;
  w->left = w->room ? PARCEL : 0;
  if (!w->room) w->due = 0; /* the rest goes in the message */
  return w->room;
}

static bool put_in_parcel(writer *w, const td_tensor *t) {
  size_t room = w->due ? room_for(t) : 0;
  if (!room || (room > w->left && !open_parcel(w))) return false;
  memcpy(w->room, t->data, t->size);
  put_loan(w, t, &w->loan);
  w->room += room;
  w->loan.offset += room;
  w->left -= room;
  w->due -= room;
  return true;
}

/* ---- tensors ---- */

td_status td_recv_batch_writer_put(writer *w, uint64_t place, td_tensor *t, bool *is_left) {
  bool is_large = t->size > TD_RECV_SHARED_MAX;
  put_place(w, place);
  bool is_lent = is_large ? lend(w, t) : put_in_parcel(w, t);
  *is_left = is_large && !is_lent;
  if (*is_left) td_wire_put_uint(&w->fields, 3, TD_BATCH_TOO_LARGE);
  flush_fields(w);
  return is_large || is_lent ? TD_STATUS_OK : td_payload_add_tensor(&w->message, 2, t);
}

void td_recv_batch_writer_put_dead(writer *w, uint64_t place) {
  put_place(w, place);
  td_wire_put_uint(&w->fields, 3, TD_BATCH_DEAD);
  flush_fields(w);
}

void td_recv_batch_writer_end(writer *w) {
  flush_fields(w);
  td_strbuf_deinit(&w->fields);
}

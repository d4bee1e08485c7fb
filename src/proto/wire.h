/* Protobuf's wire format by hand, for the messages that carry tensors.
 *
 * Reading never copies and never goes past the bytes given: a field's bytes point into them. Writing appends to a
 * td_strbuf. A reader belongs to one thread; nothing here allocates but the td_strbuf.
 */
#ifndef TD_PROTO_WIRE_H_
#define TD_PROTO_WIRE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef enum td_wire_type {
  TD_WIRE_VARINT = 0,
  TD_WIRE_FIXED64 = 1,
  TD_WIRE_BYTES = 2,
  TD_WIRE_FIXED32 = 5, /* groups (3, 4) are malformed input here */
} td_wire_type;

enum { TD_WIRE_MAX_VARINT = 10, TD_WIRE_MAX_DEPTH = 100 };

/* ---- reading ---- */

typedef struct td_wire {
  const uint8_t *next, *end;
} td_wire;

typedef struct td_wire_field {
  uint32_t number;
  td_wire_type type;
  uint64_t value; /* of a varint or fixed field; the size of a bytes field */
  td_str bytes;   /* of a bytes field */
} td_wire_field;

static inline td_wire td_wire_of(td_str s) {
  const uint8_t *data = s.data ? (const uint8_t *)s.data : (const uint8_t *)""; /* no arithmetic on a null pointer */
  return (td_wire){data, data + s.size};
}
static inline size_t td_wire_left(const td_wire *w) { return (size_t)(w->end - w->next); }

/* A varint of at most 10 bytes; false (nothing consumed) when it is cut off or longer. */
bool td_wire_read_varint(td_wire *w, uint64_t *out);
bool td_wire_read_fixed32(td_wire *w, uint32_t *out);
bool td_wire_read_fixed64(td_wire *w, uint64_t *out);
/* A field's number (1 … 2^29-1) and type. */
bool td_wire_read_tag(td_wire *w, uint32_t *number, td_wire_type *type);

/* The next field with its value: true; at the end, or at malformed bytes (then *bad is set and w->next stands
 * there): false. */
bool td_wire_next(td_wire *w, td_wire_field *out, bool *bad);

/* The head of a field, tag and number or length, of bytes that come in pieces. All zero before the first. */
typedef struct td_wire_head {
  uint8_t bytes[2 * TD_WIRE_MAX_VARINT];
  uint8_t size; /* of what came before the piece at hand; 0: between heads */
} td_wire_head;
typedef enum td_wire_head_state { TD_WIRE_HEAD_CUT, TD_WIRE_HEAD_WHOLE, TD_WIRE_HEAD_BAD } td_wire_head_state;

/* Reads on in `w`. Whole: *out has number and type, and a varint's value or the length of bytes, which are still to
 * come, as is the value of a fixed field. Cut: all of `w` was taken, and the next piece goes on. */
td_wire_head_state td_wire_head_read(td_wire_head *h, td_wire *w, td_wire_field *out);

static inline float td_wire_float(const td_wire_field *f) {
  uint32_t u = (uint32_t)f->value;
  float value;
  memcpy(&value, &u, 4);
  return value;
}

/* ---- writing ---- */

size_t td_wire_varint_size(uint64_t value);
/* Writes at `to` (room for td_wire_varint_size()); returns the end. */
uint8_t *td_wire_write_varint(uint8_t *to, uint64_t value);

void td_wire_put_varint(td_strbuf *b, uint64_t value);
void td_wire_put_tag(td_strbuf *b, uint32_t number, td_wire_type type);
/* A whole field. The _put_uint form leaves zero out, as proto3 does; signed values are cast to uint64_t. */
void td_wire_put_uint(td_strbuf *b, uint32_t number, uint64_t value);
void td_wire_put_fixed32(td_strbuf *b, uint32_t number, uint32_t value);
void td_wire_put_fixed64(td_strbuf *b, uint32_t number, uint64_t value);
void td_wire_put_bytes(td_strbuf *b, uint32_t number, td_str value); /* also an empty one */
/* Only the tag and length: `size` bytes must follow. */
void td_wire_put_header(td_strbuf *b, uint32_t number, size_t size);
/* Bytes that td_wire_put_header() appends. */
static inline size_t td_wire_header_size(uint32_t number, size_t size) {
  return td_wire_varint_size((uint64_t)number << 3) + td_wire_varint_size(size);
}

#endif /* TD_PROTO_WIRE_H_ */

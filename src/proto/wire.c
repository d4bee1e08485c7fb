#include "proto/wire.h"

#include <string.h>

bool td_wire_read_varint(td_wire *w, uint64_t *out) {
  const uint8_t *p = w->next;
  if (p < w->end && *p < 0x80) {
    *out = *p;
    w->next = p + 1;
    return true;
  }
  uint64_t value = 0;
  for (int shift = 0; shift < 70 && p < w->end; shift += 7) {
    uint8_t byte = *p++;
    if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte & 0x80) continue;
    *out = value;
    w->next = p;
    return true;
  }
  return false;
}

bool td_wire_read_fixed32(td_wire *w, uint32_t *out) {
  if (td_wire_left(w) < 4) return false;
  memcpy(out, w->next, 4); /* little-endian machines only, as the whole program */
  w->next += 4;
  return true;
}

bool td_wire_read_fixed64(td_wire *w, uint64_t *out) {
  if (td_wire_left(w) < 8) return false;
  memcpy(out, w->next, 8);
  w->next += 8;
  return true;
}

bool td_wire_read_tag(td_wire *w, uint32_t *number, td_wire_type *type) {
  const uint8_t *start = w->next;
  uint64_t tag;
  if (!td_wire_read_varint(w, &tag)) return false;
  unsigned wire = tag & 7;
  bool known = wire == TD_WIRE_VARINT || wire == TD_WIRE_FIXED64 || wire == TD_WIRE_BYTES || wire == TD_WIRE_FIXED32;
  if (!known || tag > UINT32_MAX || tag >> 3 == 0) {
    w->next = start;
    return false;
  }
  *number = (uint32_t)(tag >> 3);
  *type = (td_wire_type)wire;
  return true;
}

static bool read_value(td_wire *w, td_wire_field *f) {
  uint32_t fixed;
  switch (f->type) {
    case TD_WIRE_VARINT:
      return td_wire_read_varint(w, &f->value);
    case TD_WIRE_FIXED64:
      return td_wire_read_fixed64(w, &f->value);
    case TD_WIRE_FIXED32:
      if (!td_wire_read_fixed32(w, &fixed)) return false;
      f->value = fixed;
      return true;
    case TD_WIRE_BYTES:
      if (!td_wire_read_varint(w, &f->value) || f->value > td_wire_left(w)) return false;
      f->bytes = td_str_n(w->next, (size_t)f->value);
      w->next += f->value;
      return true;
  }
  return false;
}

bool td_wire_next(td_wire *w, td_wire_field *out, bool *bad) {
  *bad = false;
  if (w->next >= w->end) return false;
  const uint8_t *start = w->next;
  out->bytes = (td_str){"", 0};
  if (td_wire_read_tag(w, &out->number, &out->type) && read_value(w, out)) return true;
  w->next = start;
  *bad = true;
  return false;
}

/* Whether a varint begins here that is all there, or too long. */
static bool has_end(const td_wire *w, size_t longest) {
  size_t n = td_wire_left(w);
  for (size_t i = 0; i < n && i < longest; i++)
    if (!(w->next[i] & 0x80)) return true;
  return n >= longest;
}

static td_wire_head_state read_head(td_wire *w, td_wire_field *f) {
  td_wire in = *w;
  f->value = 0;
  f->bytes = (td_str){"", 0};
  if (!td_wire_read_tag(&in, &f->number, &f->type)) return has_end(&in, 5) ? TD_WIRE_HEAD_BAD : TD_WIRE_HEAD_CUT;
  bool has_value = f->type == TD_WIRE_VARINT || f->type == TD_WIRE_BYTES;
  if (has_value && !td_wire_read_varint(&in, &f->value))
    return has_end(&in, TD_WIRE_MAX_VARINT) ? TD_WIRE_HEAD_BAD : TD_WIRE_HEAD_CUT;
  w->next = in.next;
  return TD_WIRE_HEAD_WHOLE;
}

td_wire_head_state td_wire_head_read(td_wire_head *h, td_wire *w, td_wire_field *out) {
  td_wire_head_state state = h->size ? TD_WIRE_HEAD_CUT : read_head(w, out);
  while (state == TD_WIRE_HEAD_CUT && w->next < w->end) { /* byte by byte: at most 15, then it is whole or bad */
    h->bytes[h->size++] = *w->next++;
    state = read_head(&(td_wire){h->bytes, h->bytes + h->size}, out);
  }
  if (state != TD_WIRE_HEAD_CUT) h->size = 0;
  return state;
}

size_t td_wire_varint_size(uint64_t value) { return value ? (size_t)(70 - __builtin_clzll(value)) / 7 : 1; }

uint8_t *td_wire_write_varint(uint8_t *to, uint64_t value) {
  while (value >= 0x80) {
    *to++ = (uint8_t)(value | 0x80);
    value >>= 7;
  }
  *to++ = (uint8_t)value;
  return to;
}

void td_wire_put_varint(td_strbuf *b, uint64_t value) {
  uint8_t bytes[TD_WIRE_MAX_VARINT];
  td_strbuf_append(b, td_str_n(bytes, (size_t)(td_wire_write_varint(bytes, value) - bytes)));
}

void td_wire_put_tag(td_strbuf *b, uint32_t number, td_wire_type type) {
  td_wire_put_varint(b, (uint64_t)number << 3 | type);
}

void td_wire_put_uint(td_strbuf *b, uint32_t number, uint64_t value) {
  if (!value) return;
  td_wire_put_tag(b, number, TD_WIRE_VARINT);
  td_wire_put_varint(b, value);
}

void td_wire_put_fixed32(td_strbuf *b, uint32_t number, uint32_t value) {
  td_wire_put_tag(b, number, TD_WIRE_FIXED32);
  td_strbuf_append(b, td_str_n(&value, 4));
}

void td_wire_put_fixed64(td_strbuf *b, uint32_t number, uint64_t value) {
  td_wire_put_tag(b, number, TD_WIRE_FIXED64);
  td_strbuf_append(b, td_str_n(&value, 8));
}

void td_wire_put_header(td_strbuf *b, uint32_t number, size_t size) {
  td_wire_put_tag(b, number, TD_WIRE_BYTES);
  td_wire_put_varint(b, size);
}

void td_wire_put_bytes(td_strbuf *b, uint32_t number, td_str value) {
  td_wire_put_header(b, number, value.size);
  td_strbuf_append(b, value);
}

#include "checkpoint/slice.h"

#include "base/mem.h"
#include "proto/wire.h"

void td_slice_copy_extents(td_slice *to, const td_slice *from) {
  to->rank = from->rank;
  memcpy(to->start, from->start, (size_t)from->rank * sizeof from->start[0]);
  memcpy(to->length, from->length, (size_t)from->rank * sizeof from->length[0]);
}

void td_slice_full(td_slice *s, int rank) {
  s->rank = rank;
  for (int i = 0; i < rank; i++) {
    s->start[i] = 0;
    s->length[i] = -1;
  }
}

bool td_slice_is_full(const td_slice *s) {
  for (int i = 0; i < s->rank; i++)
    if (s->length[i] >= 0) return false;
  return true;
}

bool td_slice_eq(const td_slice *a, const td_slice *b) {
  return td_dims_eq(a->rank, a->start, b->rank, b->start) && td_dims_eq(a->rank, a->length, b->rank, b->length);
}

void td_slice_text(const td_slice *s, td_strbuf *out) {
  for (int i = 0; i < s->rank; i++) {
    if (i) td_strbuf_putc(out, ':');
    if (s->length[i] < 0) {
      td_strbuf_putc(out, '-');
    } else {
      td_strbuf_printf(out, "%lld,%lld", (long long)s->start[i], (long long)s->length[i]);
    }
  }
}

/* ---- text ---- */

enum { SHOWN = 512 }; /* bytes of a text that an error repeats */

static td_status parse_extent(td_str item, td_str text, int64_t *start, int64_t *length) {
  int shown = (int)TD_MIN(text.size, (size_t)SHOWN);
  td_str rest = item, first = td_str_split(&rest, ',');
  *start = 0;
  *length = -1;
  if (td_str_is(item, "-")) return TD_STATUS_OK;
  if (!td_str_to_i64(first, start) || !rest.data || !td_str_to_i64(rest, length)) {
    return td_invalid_argument("Expected a pair of numbers or '-' but got '%.*s': string = %.*s",
                               (int)TD_MIN(item.size, (size_t)SHOWN), item.data, shown, text.data);
  }
  int64_t end;
  if (*start < 0 || *length <= 0) {
    return td_invalid_argument(
        "Expected non-negative start and positive length but got start = %lld, length = %lld: string = %.*s",
        (long long)*start, (long long)*length, shown, text.data);
  }
  if (__builtin_add_overflow(*start, *length, &end)) {
    return td_invalid_argument("Extent end exceeds the maximum possible size: start = %lld, length = %lld",
                               (long long)*start, (long long)*length);
  }
  return TD_STATUS_OK;
}

td_status td_slice_parse(td_str text, td_slice *out) {
  td_str rest = text;
  out->rank = 0;
  while (rest.size) {
    td_str item = td_str_split(&rest, ':');
    if (!item.size) continue;
    if (out->rank == TD_MAX_RANK) return td_invalid_argument("A slice of more than %d dimensions", TD_MAX_RANK);
    TD_TRY(parse_extent(item, text, &out->start[out->rank], &out->length[out->rank]));
    out->rank++;
  }
  return TD_STATUS_OK;
}

td_status td_slice_shape(const td_slice *s, const td_shape *full, td_shape *out) {
  td_strbuf text = {0};
  td_status status = TD_STATUS_OK;
  td_slice_text(s, &text);
  char *shape = td_shape_text(full);
  if (s->rank != full->rank) {
    status = td_internal("Mismatching ranks: shape = %s, slice = %s", shape, td_strbuf_cstr(&text));
  }
  out->rank = s->rank;
  for (int i = 0; i < s->rank && !status; i++) {
    out->dims[i] = s->length[i] < 0 ? full->dims[i] : s->length[i];
    /* the sum fits: whoever makes a slice has checked it */
    if (s->length[i] >= 0 && s->start[i] + s->length[i] > full->dims[i]) {
      status =
          td_internal("Extent in dimension %d out of bounds: shape = %s, slice = %s", i, shape, td_strbuf_cstr(&text));
    }
  }
  td_free(shape);
  td_strbuf_deinit(&text);
  return status;
}

td_status td_shape_and_slice_parse(td_str text, td_shape *full, td_slice *slice, td_shape *part) {
  int shown = (int)TD_MIN(text.size, (size_t)SHOWN);
  const char *blank = text.size ? memrchr(text.data, ' ', text.size) : NULL;
  if (!blank) {
    return td_invalid_argument("Need least two elements in shape_and_slice specification: %.*s", shown, text.data);
  }
  TD_TRY(td_slice_parse(td_str_n(blank + 1, (size_t)(text.data + text.size - blank - 1)), slice));
  td_str dims = td_str_n(text.data, (size_t)(blank - text.data));
  full->rank = 0;
  do {
    int64_t dim;
    if (!td_str_to_i64(td_str_split(&dims, ' '), &dim)) {
      return td_invalid_argument("Non numerical dimension in shape_and_slice: %.*s", shown, text.data);
    }
    TD_TRY(td_shape_append(full, dim));
  } while (dims.data);
  int64_t count;
  TD_TRY(td_shape_count(full, &count));
  return td_slice_shape(slice, full, part);
}

/* ---- messages and keys ---- */

static td_status decode_extent(td_str bytes, int64_t *start, int64_t *length) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  int64_t end;
  *start = 0;
  *length = -1;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.type != TD_WIRE_VARINT) continue;
    if (f.number == 1) *start = (int64_t)f.value;
    if (f.number == 2) *length = (int64_t)f.value;
  }
  if (bad) return td_invalid_argument("A slice's extent is malformed");
  if (*length == -1 && !*start) return TD_STATUS_OK;
  if (*start < 0 || *length <= 0 || __builtin_add_overflow(*start, *length, &end)) {
    return td_invalid_argument("Expected non-negative start and positive length but got start = %lld, length = %lld",
                               (long long)*start, (long long)*length);
  }
  return TD_STATUS_OK;
}

td_status td_slice_decode(td_str bytes, td_slice *out) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  out->rank = 0;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number != 1 || f.type != TD_WIRE_BYTES) continue;
    if (out->rank == TD_MAX_RANK) return td_invalid_argument("A slice of more than %d dimensions", TD_MAX_RANK);
    TD_TRY(decode_extent(f.bytes, &out->start[out->rank], &out->length[out->rank]));
    out->rank++;
  }
  return bad ? td_invalid_argument("A slice is malformed") : TD_STATUS_OK;
}

void td_slice_encode(const td_slice *s, td_strbuf *out) {
  for (int i = 0; i < s->rank; i++) {
    td_strbuf extent = {0};
    if (s->length[i] >= 0) {
      td_wire_put_uint(&extent, 1, (uint64_t)s->start[i]);
      td_wire_put_tag(&extent, 2, TD_WIRE_VARINT); /* of a oneof: also a zero is written */
      td_wire_put_varint(&extent, (uint64_t)s->length[i]);
    }
    td_wire_put_bytes(out, 1, td_strbuf_view(&extent));
    td_strbuf_deinit(&extent);
  }
}

/* Numbers and strings in a form that sorts bytewise as they do. */
static void put_ordered_uint(td_strbuf *b, uint64_t v) {
  int n = 0;
  for (uint64_t rest = v; rest; rest >>= 8) n++;
  td_strbuf_putc(b, (char)n);
  while (n--) td_strbuf_putc(b, (char)(v >> 8 * n));
}

static void put_ordered_string(td_strbuf *b, td_str s) {
  for (size_t i = 0; i < s.size; i++) {
    td_strbuf_putc(b, s.data[i]);
    if (!s.data[i]) td_strbuf_putc(b, (char)0xff);
    if ((uint8_t)s.data[i] == 0xff) td_strbuf_putc(b, 0);
  }
  td_strbuf_append(b, td_str_n("\0\1", 2));
}

static void put_ordered_int(td_strbuf *b, int64_t v) {
  uint64_t magnitude = v < 0 ? ~(uint64_t)v : (uint64_t)v;
  int n = 1; /* bytes: n hold a signed number of 7n bits */
  while (n < 10 && magnitude >> (7 * n - 1)) n++;
  uint8_t bytes[10];
  for (int i = 0; i < n; i++) {
    int shift = 8 * (n - 1 - i);
    bytes[i] = shift < 64 ? (uint8_t)(v >> shift) : v < 0 ? 0xff : 0;
  }
  bytes[0] ^= (uint8_t)(n < 8 ? 0xff << (8 - n) : 0xff); /* n ones lead */
  if (n >= 8) bytes[1] ^= (uint8_t)(0xff << (16 - n));
  td_strbuf_append(b, td_str_n(bytes, (size_t)n));
}

void td_slice_key(td_str name, const td_slice *s, td_strbuf *out) {
  put_ordered_uint(out, 0);
  put_ordered_string(out, name);
  put_ordered_uint(out, (uint64_t)s->rank);
  for (int i = 0; i < s->rank; i++) {
    put_ordered_int(out, s->start[i]);
    put_ordered_int(out, s->length[i]);
  }
}

/* ---- copying ---- */

bool td_slice_intersect(const td_slice *a, const td_slice *b, const td_shape *full, td_slice *out) {
  out->rank = full->rank;
  for (int i = 0; i < full->rank; i++) {
    int64_t a_end = a->length[i] < 0 ? full->dims[i] : a->start[i] + a->length[i];
    int64_t b_end = b->length[i] < 0 ? full->dims[i] : b->start[i] + b->length[i];
    out->start[i] = TD_MAX(a->start[i], b->start[i]);
    out->length[i] = TD_MIN(a_end, b_end) - out->start[i];
    if (out->length[i] <= 0) return false;
  }
  return true;
}

void td_slice_copy(const td_slice *part, const td_tensor *from, const td_slice *from_slice, td_tensor *to,
                   const td_slice *to_slice) {
  int64_t at[TD_MAX_RANK] = {0};
  int inner = part->rank - 1;
  int64_t run = inner < 0 ? 1 : part->length[inner];
  for (;;) {
    int64_t source = 0, target = 0;
    for (int i = 0; i < part->rank; i++) {
      source = source * from->dims[i] + part->start[i] + at[i] - from_slice->start[i];
      target = target * to->dims[i] + part->start[i] + at[i] - to_slice->start[i];
    }
    td_tensor_copy_elements(to, target, from, source, run);
    int d = inner - 1;
    while (d >= 0 && ++at[d] == part->length[d]) at[d--] = 0;
    if (d < 0) return;
  }
}

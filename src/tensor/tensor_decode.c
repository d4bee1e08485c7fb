/* TensorProto → tensor. */
#include <assert.h>
#include <inttypes.h>

#include "base/mem.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

/* What a list with fewer values than elements may grow to: what could have been sent in full. */
static const size_t MAX_EXPANDED = (size_t)2 << 30;

/* Fields of TensorProto. */
enum {
  DTYPE = 1,
  SHAPE = 2,
  CONTENT = 4,
  FLOAT_VAL,
  DOUBLE_VAL,
  INT_VAL,
  STRING_VAL,
  SCOMPLEX_VAL,
  INT64_VAL,
  BOOL_VAL,
  DCOMPLEX_VAL,
  HALF_VAL,
  RESOURCE_VAL,
  VARIANT_VAL,
  UINT32_VAL,
  UINT64_VAL,
  FLOAT8_VAL
};

/* The list that holds a type's values, and the bytes of one value of it in memory (half of a complex element). */
static uint32_t list_field(td_dtype t, size_t *unit) {
  *unit = td_dtype_size(t);
  switch (t) {
    case TD_FLOAT:
      return FLOAT_VAL;
    case TD_DOUBLE:
      return DOUBLE_VAL;
    case TD_STRING:
      return STRING_VAL;
    case TD_COMPLEX64:
      *unit = 4;
      return SCOMPLEX_VAL;
    case TD_COMPLEX128:
      *unit = 8;
      return DCOMPLEX_VAL;
    case TD_INT64:
      return INT64_VAL;
    case TD_BOOL:
      return BOOL_VAL;
    case TD_HALF:
    case TD_BFLOAT16:
      return HALF_VAL;
    case TD_RESOURCE:
      return RESOURCE_VAL;
    case TD_VARIANT:
      return VARIANT_VAL;
    case TD_UINT32:
      return UINT32_VAL;
    case TD_UINT64:
      return UINT64_VAL;
    case TD_FLOAT8_E5M2:
    case TD_FLOAT8_E4M3FN:
      return FLOAT8_VAL;
    default:
      return INT_VAL;
  }
}

static td_wire_type list_wire_type(uint32_t field) {
  switch (field) {
    case FLOAT_VAL:
    case SCOMPLEX_VAL:
      return TD_WIRE_FIXED32;
    case DOUBLE_VAL:
    case DCOMPLEX_VAL:
      return TD_WIRE_FIXED64;
    case STRING_VAL:
    case RESOURCE_VAL:
    case VARIANT_VAL:
    case FLOAT8_VAL:
      return TD_WIRE_BYTES;
    default:
      return TD_WIRE_VARINT;
  }
}

static td_status malformed(const char *what, td_str whole, const void *at) {
  return td_invalid_argument("Malformed %s at byte %td", what, (const char *)at - whole.data);
}

static td_status decode_dim(td_str bytes, td_shape *shape) {
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  int64_t size = 0;
  while (td_wire_next(&in, &f, &bad)) {
    if (f.number == 1 && f.type == TD_WIRE_VARINT) size = (int64_t)f.value;
  }
  if (bad) return malformed("TensorShapeProto.Dim", bytes, in.next);
  if (size < -1) return td_invalid_argument("Shape has a dimension of size %" PRId64, size);
  if (shape->rank >= TD_MAX_RANK) return td_invalid_argument("Shape has more than %d dimensions", TD_MAX_RANK);
  shape->dims[shape->rank++] = size;
  return TD_STATUS_OK;
}

/* Adds to what is there already, as merged messages do. */
static td_status add_dims(td_str bytes, td_shape *shape, bool *unknown_rank) {
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  while (td_wire_next(&in, &f, &bad)) {
    if (f.number == 2 && f.type == TD_WIRE_BYTES) TD_TRY(decode_dim(f.bytes, shape));
    if (f.number == 3 && f.type == TD_WIRE_VARINT) *unknown_rank = f.value != 0;
  }
  if (bad) return malformed("TensorShapeProto", bytes, in.next);
  if (*unknown_rank && shape->rank) return td_invalid_argument("An unknown shape must not have any dimensions set.");
  return TD_STATUS_OK;
}

td_status td_shape_decode(td_str bytes, td_shape *out, bool *unknown_rank) {
  out->rank = 0;
  *unknown_rank = false;
  return add_dims(bytes, out, unknown_rank);
}

td_status td_shape_from_proto(const Pb__TensorShapeProto *proto, td_shape *out, bool *unknown_rank) {
  out->rank = 0;
  *unknown_rank = proto && proto->unknown_rank;
  if (!proto) return TD_STATUS_OK;
  if (proto->n_dim > TD_MAX_RANK) return td_invalid_argument("Shape has %zu dimensions", proto->n_dim);
  if (*unknown_rank && proto->n_dim) {
    return td_invalid_argument("An unknown shape must not have any dimensions set.");
  }
  for (size_t i = 0; i < proto->n_dim; i++) {
    int64_t size = proto->dim[i]->size;
    if (size < -1) return td_invalid_argument("Shape has a dimension of size %" PRId64, size);
    out->dims[out->rank++] = size;
  }
  return TD_STATUS_OK;
}

/* ---- values ---- */

/* Fills the elements from `filled` on with the one before it. */
static void repeat_last(td_tensor *t, int64_t filled) {
  size_t size = td_dtype_size(t->dtype), done = size;
  if (filled >= t->count) return;
  char *from = (char *)t->data + (size_t)(filled - 1) * size;
  size_t total = (size_t)(t->count - filled + 1) * size;
  for (size_t n; done < total; done += n) {
    n = TD_MIN(done, total - done);
    memcpy(from + done, from, n);
  }
}

typedef struct values {
  char *next, *end; /* room in the tensor */
  size_t unit;
  bool is_bool;
} values;

static void put_value(values *v, uint64_t value) {
  if (v->next == v->end) return; /* values past the last element are ignored */
  if (v->is_bool) value = value != 0;
  memcpy(v->next, &value, v->unit); /* the low bytes */
  v->next += v->unit;
}

static bool put_packed(values *v, td_wire_type type, td_str bytes) {
  if (type != TD_WIRE_VARINT) {
    if (bytes.size % v->unit) return false;
    size_t n = TD_MIN(bytes.size, (size_t)(v->end - v->next));
    if (n) memcpy(v->next, bytes.data, n);
    v->next += n;
    return true;
  }
  td_wire in = td_wire_of(bytes);
  for (uint64_t value; in.next < in.end;) {
    if (!td_wire_read_varint(&in, &value)) return false;
    put_value(v, value);
  }
  return true;
}

/* The list's values into a tensor of a plain type. */
static td_status read_list(td_str bytes, uint32_t field, size_t unit, td_tensor *t) {
  values v = {t->data, (char *)t->data + t->size, unit, t->dtype == TD_BOOL};
  td_wire_type type = list_wire_type(field);
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  while (td_wire_next(&in, &f, &bad)) {
    if (f.number != field) continue;
    if (f.type == TD_WIRE_BYTES) {
      if (!put_packed(&v, type, f.bytes)) return malformed("list of values in TensorProto", bytes, f.bytes.data);
    } else if (f.type == type) {
      put_value(&v, f.value);
    } else {
      return malformed("value in TensorProto", bytes, in.next);
    }
  }
  size_t element = td_dtype_size(t->dtype);
  int64_t filled = (int64_t)((size_t)(v.next - (char *)t->data) / element); /* whole ones */
  if (filled) {
    repeat_last(t, filled);
  } else {
    memset(t->data, 0, t->size);
  }
  return TD_STATUS_OK;
}

/* One element that owns memory. */
static td_status set_element(td_tensor *t, int64_t i, td_str bytes) {
  switch (t->dtype) {
    case TD_STRING:
      return td_string_set(&TD_DATA(t, td_string)[i], bytes);
    case TD_RESOURCE:
      return td_resource_handle_decode(bytes, &TD_DATA(t, td_resource_handle *)[i]);
    default:
      return td_opaque_variant_decode(bytes, &TD_DATA(t, td_variant *)[i]);
  }
}

/* string_val, resource_handle_val, variant_val: only strings repeat their last. */
static td_status read_objects(td_str bytes, uint32_t field, td_tensor *t) {
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  int64_t i = 0;
  td_str last = {"", 0};
  while (i < t->count && td_wire_next(&in, &f, &bad)) {
    if (f.number != field) continue;
    if (f.type != TD_WIRE_BYTES) return malformed("value in TensorProto", bytes, in.next);
    TD_TRY(set_element(t, i++, f.bytes));
    last = f.bytes;
  }
  if (t->dtype != TD_STRING || !last.size || i == t->count) return TD_STATUS_OK;
  size_t total;
  if (!td_mul_size((size_t)(t->count - i), last.size, &total) || total > MAX_EXPANDED) {
    return td_resource_exhausted("A TensorProto repeats a string of %zu bytes %" PRId64 " times", last.size,
                                 t->count - i);
  }
  for (; i < t->count; i++) TD_TRY(set_element(t, i, last));
  return TD_STATUS_OK;
}

/* tensor_content of elements that own memory: their sizes as varints, then their bytes, and nothing else. */
static td_status read_object_content(td_str content, td_tensor *t) {
  td_wire sizes = td_wire_of(content);
  uint64_t size, total = 0;
  for (int64_t i = 0; i < t->count; i++) {
    if (!td_wire_read_varint(&sizes, &size) || size > UINT32_MAX) {
      return malformed("sizes in tensor_content", content, sizes.next);
    }
    total += size; /* at most content.size numbers of 32 bits: no overflow */
  }
  if (total != td_wire_left(&sizes)) {
    return td_invalid_argument("tensor_content has %zu bytes for elements of %" PRIu64 " bytes in all",
                               td_wire_left(&sizes), total);
  }
  td_wire again = td_wire_of(content);
  const char *next = (const char *)sizes.next;
  for (int64_t i = 0; i < t->count; i++) {
    bool ok = td_wire_read_varint(&again, &size);
    assert(ok);
    (void)ok;
    TD_TRY(set_element(t, i, td_str_n(next, size)));
    next += size;
  }
  return TD_STATUS_OK;
}

/* ---- the message ---- */

typedef struct parts {
  td_str bytes;
  int64_t dtype;
  td_shape shape;
  int64_t count;
  size_t size; /* of the elements in memory */
  td_str content;
  uint32_t seen; /* bit n: field n came */
} parts;

static td_status read_parts(td_str bytes, parts *p) {
  p->bytes = bytes;
  p->dtype = 0;
  p->shape.rank = 0;
  p->content = (td_str){"", 0};
  p->seen = 0;
  bool bad, unknown_rank = false;
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  while (td_wire_next(&in, &f, &bad)) {
    if (f.number < 32) p->seen |= 1u << f.number;
    if (f.number == DTYPE && f.type == TD_WIRE_VARINT) p->dtype = (int64_t)f.value;
    if (f.number == CONTENT && f.type == TD_WIRE_BYTES) p->content = f.bytes;
    if (f.number == SHAPE && f.type == TD_WIRE_BYTES) TD_TRY(add_dims(f.bytes, &p->shape, &unknown_rank));
  }
  if (bad) return malformed("TensorProto", bytes, in.next);
  if (p->dtype <= 0 || p->dtype >= TD_DTYPE_LIMIT || !td_dtype_valid((int)p->dtype)) {
    return td_invalid_argument("TensorProto of unknown type %" PRId64, p->dtype);
  }
  if (unknown_rank) return td_invalid_argument("TensorProto of unknown rank");
  TD_TRY(td_shape_count(&p->shape, &p->count));
  if (!td_mul_size((size_t)p->count, td_dtype_size((td_dtype)p->dtype), &p->size)) p->size = SIZE_MAX;
  return TD_STATUS_OK;
}

static td_status wrong_content(const parts *p) {
  char *text = td_shape_text(&p->shape);
  td_status s = td_invalid_argument("tensor_content of %zu bytes does not fit shape %s and type %s", p->content.size,
                                    text, td_dtype_name((int)p->dtype));
  td_free(text);
  return s;
}

/* Before any memory is taken: that the bytes at hand are worth it. */
static td_status check_size(const parts *p) {
  bool pod = td_dtype_is_pod((td_dtype)p->dtype);
  if (p->content.size && p->count) {
    bool fits = pod ? p->content.size == p->size : p->content.size >= (size_t)p->count;
    return fits ? TD_STATUS_OK : wrong_content(p);
  }
  if (p->size <= MAX_EXPANDED) return TD_STATUS_OK;
  char *text = td_shape_text(&p->shape);
  td_status s = td_resource_exhausted("TensorProto of %zu bytes has shape %s and type %s", p->bytes.size, text,
                                      td_dtype_name((int)p->dtype));
  td_free(text);
  return s;
}

static td_status read_elements(const parts *p, td_tensor *t) {
  size_t unit;
  uint32_t field = list_field(t->dtype, &unit);
  bool pod = td_dtype_is_pod(t->dtype);
  if (!t->count) return TD_STATUS_OK;
  if (p->content.size && pod) {
    memcpy(t->data, p->content.data, p->content.size);
    return TD_STATUS_OK;
  }
  if (p->content.size) return read_object_content(p->content, t);
  if (!(p->seen >> field & 1)) return TD_STATUS_OK; /* created as zeros */
  return pod ? read_list(p->bytes, field, unit, t) : read_objects(p->bytes, field, t);
}

td_status td_tensor_decode(td_str bytes, td_tensor **out) {
  parts p;
  TD_TRY(read_parts(bytes, &p));
  TD_TRY(check_size(&p));
  size_t unit;
  bool zeros = !p.content.size && !(p.seen >> list_field((td_dtype)p.dtype, &unit) & 1);
  td_tensor *t;
  TD_TRY(zeros ? td_tensor_create_zeros((td_dtype)p.dtype, &p.shape, &t)
               : td_tensor_create((td_dtype)p.dtype, &p.shape, &t));
  td_status status = read_elements(&p, t);
  if (status) {
    td_tensor_release(t);
  } else {
    *out = t;
  }
  return status;
}

td_status td_tensor_from_proto(const Pb__TensorProto *proto, td_tensor **out) {
  const ProtobufCBinaryData *content = &proto->tensor_content;
  if (proto->dtype > 0 && proto->dtype < TD_DTYPE_LIMIT && td_dtype_is_pod((td_dtype)proto->dtype) && content->len) {
    td_shape shape; /* large constants come this way: no detour */
    bool unknown_rank;
    int64_t count;
    TD_TRY(td_shape_from_proto(proto->tensor_shape, &shape, &unknown_rank));
    TD_TRY(td_shape_count(&shape, &count));
    if (!unknown_rank && count && content->len % (size_t)count == 0 &&
        content->len / (size_t)count == td_dtype_size((td_dtype)proto->dtype)) {
      TD_TRY(td_tensor_create((td_dtype)proto->dtype, &shape, out));
      memcpy((*out)->data, content->data, content->len);
      return TD_STATUS_OK;
    }
  }
  size_t size = protobuf_c_message_get_packed_size(&proto->base);
  uint8_t *bytes = td_try_malloc(size);
  if (!bytes) return td_resource_exhausted("No memory for a TensorProto of %zu bytes", size);
  protobuf_c_message_pack(&proto->base, bytes);
  td_status status = td_tensor_decode(td_str_n(bytes, size), out);
  td_free(bytes);
  return status;
}

/* ---- handles and variants ---- */

static td_status check_name(const td_wire_field *f) {
  if (!f->bytes.size || !memchr(f->bytes.data, 0, f->bytes.size)) return TD_STATUS_OK;
  return td_invalid_argument("NUL in field %u of a resource handle or variant", f->number);
}

td_status td_resource_handle_decode(td_str bytes, td_resource_handle **out) {
  *out = NULL;
  if (!bytes.size) return TD_STATUS_OK;
  td_str names[6] = {{"", 0}, {"", 0}, {"", 0}, {"", 0}, {"", 0}, {"", 0}};
  uint64_t hash_code = 0;
  td_strbuf extra = {0};
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  td_status status = TD_STATUS_OK;
  const uint8_t *start = in.next;
  for (; !status && td_wire_next(&in, &f, &bad); start = in.next) {
    if (f.number <= 5 && f.number != 4 && f.type == TD_WIRE_BYTES) {
      status = check_name(&f);
      names[f.number] = f.bytes;
    } else if (f.number == 4 && f.type == TD_WIRE_VARINT) {
      hash_code = f.value;
    } else {
      td_strbuf_append(&extra, td_str_n(start, (size_t)(in.next - start)));
    }
  }
  if (!status && bad) status = malformed("ResourceHandleProto", bytes, in.next);
  if (!status) {
    td_resource_handle *h = td_resource_handle_create(names[1], names[2], names[3], names[5], hash_code);
    h->extra_size = extra.size;
    h->extra = td_strbuf_take(&extra);
    *out = h;
  }
  td_strbuf_deinit(&extra);
  return status;
}

static void opaque_destroy(td_variant *v) {
  td_opaque_variant *o = (td_opaque_variant *)v;
  td_free(o->type_name);
  td_free(o->bytes);
  td_free(o);
}

static td_status opaque_encode(const td_variant *v, td_strbuf *out) {
  const td_opaque_variant *o = (const td_opaque_variant *)v;
  td_strbuf_append(out, td_str_n(o->bytes, o->size));
  return TD_STATUS_OK;
}

static const td_variant_ops opaque_ops = {"", opaque_destroy, opaque_encode};

td_status td_opaque_variant_decode(td_str bytes, td_variant **out) {
  *out = NULL;
  if (!bytes.size) return TD_STATUS_OK;
  td_str type_name = {"", 0};
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  while (td_wire_next(&in, &f, &bad)) {
    if (f.number != 1 || f.type != TD_WIRE_BYTES) continue;
    TD_TRY(check_name(&f));
    type_name = f.bytes;
  }
  if (bad) return malformed("VariantTensorDataProto", bytes, in.next);
  char *copy = td_try_malloc(bytes.size);
  if (!copy) return td_resource_exhausted("No memory for a variant of %zu bytes", bytes.size);
  memcpy(copy, bytes.data, bytes.size);
  td_opaque_variant *o = td_new(td_opaque_variant);
  o->variant.ops = &opaque_ops;
  atomic_init(&o->variant.refs, 1);
  o->type_name = td_strndup(type_name.data, type_name.size);
  o->bytes = copy;
  o->size = bytes.size;
  *out = &o->variant;
  return TD_STATUS_OK;
}

const td_opaque_variant *td_variant_as_opaque(const td_variant *v) {
  return v && v->ops == &opaque_ops ? (const td_opaque_variant *)v : NULL;
}

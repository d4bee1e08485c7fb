#include "ops/tensor_list_data.h"

#include <string.h>

#include "base/mem.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

static const char type_name[] = "tensorflow::TensorList";

static void destroy(td_variant *v) {
  td_tensor_list *l = (td_tensor_list *)v;
  for (int64_t i = 0; i < l->count; i++) td_tensor_release(l->items[i]);
  td_free(l->items);
  td_partial_shape_deinit(&l->shape);
  td_free(l);
}

/* ---- the encoding: a VariantTensorDataProto whose metadata are varints (how many elements are unset, which, dtype,
 * maximum), then the element shape; and the elements that are set ---- */

static void put_varint(td_strbuf *b, uint64_t v) {
  for (; v >= 0x80; v >>= 7) td_strbuf_putc(b, (char)(v | 0x80));
  td_strbuf_putc(b, (char)v);
}

static void put_bytes(td_strbuf *b, int field, td_str bytes) {
  put_varint(b, (uint64_t)field << 3 | 2);
  put_varint(b, bytes.size);
  td_strbuf_append(b, bytes);
}

static void put_metadata(const td_tensor_list *l, td_strbuf *b) {
  uint64_t unset = 0;
  for (int64_t i = 0; i < l->count; i++) unset += !l->items[i];
  put_varint(b, unset);
  for (int64_t i = 0; i < l->count; i++)
    if (!l->items[i]) put_varint(b, (uint64_t)i);
  put_varint(b, l->dtype);
  put_varint(b, (uint64_t)(int64_t)l->max_count);
  if (l->shape.rank >= 0) {
    td_shape_encode(l->shape.rank, l->shape.dims, b);
  } else { /* unknown_rank: true */
    put_varint(b, 3 << 3);
    put_varint(b, 1);
  }
}

static td_status encode(const td_variant *v, td_strbuf *out) {
  const td_tensor_list *l = (const td_tensor_list *)v;
  td_strbuf part = {0};
  td_status s = TD_STATUS_OK;
  put_bytes(out, 1, td_str_of(type_name));
  put_metadata(l, &part);
  put_bytes(out, 2, td_strbuf_view(&part));
  td_strbuf_deinit(&part);
  for (int64_t i = 0; i < l->count && !s; i++) {
    if (!l->items[i]) continue;
    s = td_tensor_encode(l->items[i], &part);
    if (!s) put_bytes(out, 3, td_strbuf_view(&part));
    td_strbuf_deinit(&part);
  }
  return s;
}

static const td_variant_ops list_ops = {.type_name = type_name, .destroy = destroy, .encode = encode};

static td_status malformed(void) { return td_invalid_argument("A TensorList is malformed"); }

/* Elements arrive in order; those that metadata names are left out. */
static td_status read_elements(td_tensor_list *l, td_wire *meta, td_str bytes) {
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  uint64_t unset, next = 0;
  if (!td_wire_read_varint(meta, &unset)) return malformed();
  for (;; unset--) {
    if (unset && !td_wire_read_varint(meta, &next)) return malformed();
    while (!unset || (uint64_t)l->count < next) {
      do {
        if (!td_wire_next(&in, &f, &bad)) return unset || bad ? malformed() : TD_STATUS_OK;
      } while (f.number != 3 || f.type != TD_WIRE_BYTES);
      td_tensor *t;
      TD_TRY(td_tensor_decode(f.bytes, &t));
      td_status s = td_tensor_list_push(l, t);
      td_tensor_release(t);
      if (s) return s;
    }
    if ((uint64_t)l->count != next) return malformed();
    TD_TRY(td_tensor_list_push(l, NULL));
  }
}

static td_status read_kind(td_tensor_list *l, td_wire *meta) {
  uint64_t dtype, max;
  td_shape shape;
  bool unknown;
  if (!td_wire_read_varint(meta, &dtype) || !td_wire_read_varint(meta, &max) || dtype >= TD_DTYPE_LIMIT ||
      !td_dtype_valid((int)dtype))
    return malformed();
  TD_TRY(td_shape_decode(td_str_n((const char *)meta->next, td_wire_left(meta)), &shape, &unknown));
  l->dtype = (td_dtype)dtype;
  l->max_count = (int32_t)max;
  l->shape = td_partial_shape_make(unknown ? -1 : shape.rank, shape.dims);
  for (int64_t i = 0; i < l->count; i++)
    if (l->items[i] &&
        (l->items[i]->dtype != l->dtype || !td_partial_shape_fits(&l->shape, l->items[i]->rank, l->items[i]->dims)))
      return malformed();
  return TD_STATUS_OK;
}

static td_status decode(td_str bytes, td_tensor_list **out) {
  td_wire in = td_wire_of(bytes);
  td_wire_field f;
  bool bad;
  td_str metadata = {"", 0};
  while (td_wire_next(&in, &f, &bad))
    if (f.number == 2 && f.type == TD_WIRE_BYTES) metadata = f.bytes;
  td_tensor_list *l = td_tensor_list_create(TD_FLOAT, &TD_PARTIAL_SHAPE_UNKNOWN, -1);
  td_wire meta = td_wire_of(metadata);
  td_status s = read_elements(l, &meta, bytes);
  if (!s) s = read_kind(l, &meta);
  if (s)
    td_tensor_list_release(l);
  else
    *out = l;
  return s;
}

td_status td_tensor_list_of(td_variant *v, td_tensor_list **out) {
  *out = NULL;
  if (v && v->ops == &list_ops) {
    *out = (td_tensor_list *)td_variant_retain(v);
    return TD_STATUS_OK;
  }
  const td_opaque_variant *o = td_variant_as_opaque(v);
  if (!o || strcmp(o->type_name, type_name)) return TD_STATUS_OK;
  return decode((td_str){o->bytes, o->size}, out);
}

/* ---- elements ---- */

td_tensor_list *td_tensor_list_create(td_dtype dtype, const td_partial_shape *shape, int32_t max_count) {
  td_tensor_list *l = td_new(td_tensor_list);
  l->variant.ops = &list_ops;
  atomic_init(&l->variant.refs, 1);
  l->dtype = dtype;
  l->shape = td_partial_shape_make(shape->rank, shape->dims);
  l->max_count = max_count;
  return l;
}

td_status td_tensor_list_resize(td_tensor_list *l, int64_t count) {
  if (count > TD_TENSOR_LIST_MAX) return td_resource_exhausted("A list of %lld elements is too long", (long long)count);
  if (count > l->capacity) {
    l->capacity = TD_MAX(count, TD_MIN(l->capacity * 2, (int64_t)TD_TENSOR_LIST_MAX));
    l->items = td_realloc(l->items, (size_t)l->capacity * sizeof *l->items);
  }
  while (l->count > count) td_tensor_release(l->items[--l->count]);
  while (l->count < count) l->items[l->count++] = NULL;
  return TD_STATUS_OK;
}

void td_tensor_list_set(td_tensor_list *l, int64_t i, td_tensor *t) {
  td_tensor *old = l->items[i];
  l->items[i] = t ? td_tensor_retain(t) : NULL;
  td_tensor_release(old);
}

td_status td_tensor_list_push(td_tensor_list *l, td_tensor *t) {
  TD_TRY(td_tensor_list_resize(l, l->count + 1));
  td_tensor_list_set(l, l->count - 1, t);
  return TD_STATUS_OK;
}

td_tensor_list *td_tensor_list_copy(const td_tensor_list *l) {
  td_tensor_list *c = td_tensor_list_create(l->dtype, &l->shape, l->max_count);
  c->items = td_new_array(td_tensor *, (size_t)l->count + 1);
  c->capacity = l->count + 1;
  for (; c->count < l->count; c->count++)
    c->items[c->count] = l->items[c->count] ? td_tensor_retain(l->items[c->count]) : NULL;
  return c;
}

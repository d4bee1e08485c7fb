#include <stdlib.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/mem.h"
#include "checkpoint/checkpoint_v1.h"
#include "checkpoint/file.h"
#include "checkpoint/table.h"
#include "proto/wire.h"
#include "tensor/number.h"
#include "tensor/tensor_proto.h"

enum { SHOWN = 512 };
#define MESSAGE_LIMIT ((uint64_t)INT32_MAX) /* what a protobuf message may have */

typedef struct tensor_info {
  td_str name, shape;
  int dtype;
  td_strbuf meta; /* SavedSliceMeta; slices come last in it */
} tensor_info;

typedef struct item {
  td_strbuf key, value;
} item;

struct td_v1_writer {
  td_arena arena;
  char *path;
  td_sync when;
  td_map by_name, by_key;
  tensor_info **tensors;
  size_t tensor_count, tensor_capacity;
  item **items;
  size_t item_count, item_capacity;
};

td_status td_v1_writer_create(td_str path, td_sync when, td_v1_writer **out) {
  td_v1_writer *w = td_new(td_v1_writer);
  w->when = when;
  td_status status = td_file_path(path, &w->path);
  if (status) {
    td_v1_writer_destroy(w);
  } else {
    *out = w;
  }
  return status;
}

void td_v1_writer_destroy(td_v1_writer *w) {
  if (!w) return;
  for (size_t i = 0; i < w->tensor_count; i++) td_strbuf_deinit(&w->tensors[i]->meta);
  for (size_t i = 0; i < w->item_count; i++) {
    td_strbuf_deinit(&w->items[i]->key);
    td_strbuf_deinit(&w->items[i]->value);
  }
  td_free(w->tensors);
  td_free(w->items);
  td_free(w->path);
  td_map_deinit(&w->by_name);
  td_map_deinit(&w->by_key);
  td_arena_deinit(&w->arena);
  td_free(w);
}

/* ---- elements as typed lists: old readers know no other form ---- */

enum { FLOAT_VAL = 5, DOUBLE_VAL, INT_VAL, STRING_VAL, SCOMPLEX_VAL, INT64_VAL, BOOL_VAL, DCOMPLEX_VAL, HALF_VAL };
enum { UINT32_VAL = 16, UINT64_VAL = 17 };

static void put_integers(td_strbuf *out, uint32_t field, const td_tensor *t) {
  size_t size = 0;
  for (int64_t i = 0; i < t->count; i++) size += td_wire_varint_size((uint64_t)td_tensor_integer_at(t, i));
  td_wire_put_header(out, field, size);
  for (int64_t i = 0; i < t->count; i++) td_wire_put_varint(out, (uint64_t)td_tensor_integer_at(t, i));
}

static void put_elements(td_strbuf *out, const td_tensor *t) {
  td_str bytes = td_str_n(t->data, t->size);
  if (!t->count) return;
  switch ((td_dtype)t->dtype) {
    case TD_FLOAT:
      td_wire_put_bytes(out, FLOAT_VAL, bytes);
      break;
    case TD_DOUBLE:
      td_wire_put_bytes(out, DOUBLE_VAL, bytes);
      break;
    case TD_COMPLEX64:
      td_wire_put_bytes(out, SCOMPLEX_VAL, bytes);
      break;
    case TD_COMPLEX128:
      td_wire_put_bytes(out, DCOMPLEX_VAL, bytes);
      break;
    case TD_STRING:
      for (int64_t i = 0; i < t->count; i++)
        td_wire_put_bytes(out, STRING_VAL, td_string_view(TD_DATA(t, td_string) + i));
      break;
    case TD_HALF:
    case TD_BFLOAT16:
      put_integers(out, HALF_VAL, t);
      break;
    case TD_INT64:
      put_integers(out, INT64_VAL, t);
      break;
    case TD_BOOL:
      put_integers(out, BOOL_VAL, t);
      break;
    case TD_UINT32:
      put_integers(out, UINT32_VAL, t);
      break;
    case TD_UINT64:
      put_integers(out, UINT64_VAL, t);
      break;
    default:
      put_integers(out, INT_VAL, t);
  }
}

/* The most that put_elements() appends. */
static uint64_t estimate(const td_tensor *t) {
  if (t->dtype != TD_STRING) return (uint64_t)t->count * TD_MAX(td_dtype_size((td_dtype)t->dtype), (size_t)10);
  uint64_t size = 0;
  for (int64_t i = 0; i < t->count; i++) size += TD_DATA(t, td_string)[i].size + 10;
  return size;
}

/* ---- adding ---- */

static td_status tensor_of(td_v1_writer *w, td_str name, const td_shape *full, const td_tensor *t, tensor_info **out) {
  td_strbuf shape = {0};
  td_status status = TD_STATUS_OK;
  td_shape_encode(full->rank, full->dims, &shape);
  tensor_info *info = td_map_get(&w->by_name, name);
  if (!info) {
    info = td_arena_new(&w->arena, tensor_info);
    *info = (tensor_info){.name = td_arena_str(&w->arena, name),
                          .shape = td_arena_str(&w->arena, td_strbuf_view(&shape)),
                          .dtype = t->dtype};
    td_wire_put_bytes(&info->meta, 1, info->name);
    td_wire_put_bytes(&info->meta, 2, info->shape);
    td_wire_put_uint(&info->meta, 3, t->dtype);
    TD_GROW(w->tensors, w->tensor_count, w->tensor_capacity);
    w->tensors[w->tensor_count++] = info;
    td_map_put(&w->by_name, info->name, info);
  } else if (info->dtype != t->dtype || !td_str_eq(info->shape, td_strbuf_view(&shape))) {
    status = td_invalid_argument("Mismatching shapes or types: existing tensor %.*s",
                                 (int)TD_MIN(name.size, (size_t)SHOWN), name.data);
  }
  td_strbuf_deinit(&shape);
  *out = info;
  return status;
}

td_status td_v1_writer_add(td_v1_writer *w, td_str name, const td_shape *full, const td_slice *slice,
                           const td_tensor *t) {
  tensor_info *info;
  uint64_t size = estimate(t);
  if (!td_dtype_is_pod((td_dtype)t->dtype) && t->dtype != TD_STRING) {
    return td_unimplemented("Saving data type %s not yet supported", td_dtype_name(t->dtype));
  }
  if (size > MESSAGE_LIMIT) {
    return td_invalid_argument("Tensor slice is too large to serialize (conservative estimate: %llu bytes)",
                               (unsigned long long)size);
  }
  TD_TRY(tensor_of(w, name, full, t, &info));
  item *x = td_arena_new(&w->arena, item);
  TD_GROW(w->items, w->item_count, w->item_capacity);
  w->items[w->item_count++] = x;
  td_slice_key(name, slice, &x->key);
  if (td_map_put(&w->by_key, td_strbuf_view(&x->key), x)) {
    return td_invalid_argument("Tensor slice of %.*s was added before", (int)TD_MIN(name.size, (size_t)SHOWN),
                               name.data);
  }
  td_strbuf message = {0}, elements = {0}, body = {0};
  td_slice_encode(slice, &message);
  td_wire_put_bytes(&info->meta, 4, td_strbuf_view(&message));
  put_elements(&elements, t);
  td_wire_put_bytes(&body, 1, info->name);
  td_wire_put_bytes(&body, 2, td_strbuf_view(&message));
  td_wire_put_bytes(&body, 3, td_strbuf_view(&elements));
  td_strbuf_deinit(&elements);
  td_wire_put_bytes(&x->value, 2, td_strbuf_view(&body));
  td_strbuf_deinit(&message);
  td_strbuf_deinit(&body);
  return TD_STATUS_OK;
}

/* ---- the end ---- */

static int by_key(const void *a, const void *b) {
  return td_str_cmp(td_strbuf_view(&(*(item *const *)a)->key), td_strbuf_view(&(*(item *const *)b)->key));
}

static void put_meta(const td_v1_writer *w, td_strbuf *out) {
  td_strbuf meta = {0};
  for (size_t i = 0; i < w->tensor_count; i++) td_wire_put_bytes(&meta, 1, td_strbuf_view(&w->tensors[i]->meta));
  td_wire_put_bytes(&meta, 2, TD_STR("\x08\x01")); /* versions: producer 1 */
  td_wire_put_bytes(out, 1, td_strbuf_view(&meta));
  td_strbuf_deinit(&meta);
}

td_status td_v1_writer_finish(td_v1_writer *w) {
  td_new_file file = {0};
  td_table_builder b = {0};
  td_strbuf meta = {0};
  td_status status;
  TD_TRY_GOTO(td_new_file_open(&file, w->path, w->when));
  td_table_builder_init(&b, &file);
  put_meta(w, &meta);
  TD_TRY_GOTO(td_table_builder_add(&b, TD_STR(""), td_strbuf_view(&meta)));
  if (w->item_count) qsort(w->items, w->item_count, sizeof *w->items, by_key);
  for (size_t i = 0; i < w->item_count; i++) {
    TD_TRY_GOTO(td_table_builder_add(&b, td_strbuf_view(&w->items[i]->key), td_strbuf_view(&w->items[i]->value)));
  }
  TD_TRY_GOTO(td_table_builder_finish(&b));
  TD_TRY_GOTO(td_new_file_sync(&file));
  TD_TRY_GOTO(td_new_file_publish(&file));
  td_file_sync_dir(td_file_dir(td_str_of(w->path)), w->when);
cleanup:
  td_new_file_deinit(&file);
  td_table_builder_deinit(&b);
  td_strbuf_deinit(&meta);
  return status;
}

#include <errno.h>
#include <glob.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/mem.h"
#include "checkpoint/checkpoint_v1.h"
#include "checkpoint/file.h"
#include "checkpoint/table.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

enum { SHOWN = 512 };
/* Fields of SavedTensorSlices, SavedTensorSliceMeta, SavedSliceMeta, SavedSlice, TensorProto. */
enum { ALL_META = 1, ALL_DATA = 2, META_TENSOR = 1, TENSOR_NAME = 1, TENSOR_SHAPE, TENSOR_TYPE, TENSOR_SLICE };
enum { SLICE_DATA = 3, PROTO_DTYPE = 1, PROTO_SHAPE = 2 };

typedef struct stored {
  td_table *table;
  td_str slice; /* a TensorSliceProto */
} stored;

typedef struct tensor_info {
  td_str name, shape; /* shape: a TensorShapeProto */
  td_dtype dtype;
  stored *slices;
  size_t count, capacity;
} tensor_info;

struct td_v1_reader {
  td_arena arena;
  td_map tensors;
  td_table **tables;
  size_t count, capacity;
};

/* ---- opening ---- */

/* A SavedSliceMeta. */
static td_status take_tensor(td_v1_reader *r, td_table *table, const char *path, td_str bytes) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false, unknown;
  td_str name = TD_STR(""), shape = TD_STR("");
  uint64_t type = 0;
  td_shape checked;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == TENSOR_NAME && f.type == TD_WIRE_BYTES) name = f.bytes;
    if (f.number == TENSOR_SHAPE && f.type == TD_WIRE_BYTES) shape = f.bytes;
    if (f.number == TENSOR_TYPE && f.type == TD_WIRE_VARINT) type = f.value;
  }
  int64_t elements;
  td_status status = bad ? td_invalid_argument("malformed") : td_shape_decode(shape, &checked, &unknown);
  if (!status) status = td_shape_count(&checked, &elements);
  if (status || type >= TD_DTYPE_LIMIT || !td_dtype_valid((int)type)) {
    td_status_free(status);
    return td_error(TD_DATA_LOSS, "%s: the entry of tensor %.*s is malformed", path,
                    (int)TD_MIN(name.size, (size_t)SHOWN), name.data);
  }
  tensor_info *t = td_map_get(&r->tensors, name);
  if (!t) {
    t = td_arena_new(&r->arena, tensor_info);
    *t = (tensor_info){
        .name = td_arena_str(&r->arena, name), .shape = td_arena_str(&r->arena, shape), .dtype = (td_dtype)type};
    td_map_put(&r->tensors, t->name, t);
  } else if (t->dtype != (td_dtype)type || !td_str_eq(t->shape, shape)) {
    return td_error(TD_DATA_LOSS, "%s: files disagree in type or shape of tensor %.*s", path,
                    (int)TD_MIN(name.size, (size_t)SHOWN), name.data);
  }
  w = td_wire_of(bytes);
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number != TENSOR_SLICE || f.type != TD_WIRE_BYTES) continue;
    TD_GROW(t->slices, t->count, t->capacity);
    t->slices[t->count++] = (stored){table, td_arena_str(&r->arena, f.bytes)};
  }
  return TD_STATUS_OK;
}

static td_status take_meta(td_v1_reader *r, td_table *table, const char *path, td_str bytes) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number == META_TENSOR && f.type == TD_WIRE_BYTES) TD_TRY(take_tensor(r, table, path, f.bytes));
  }
  return bad ? td_error(TD_DATA_LOSS, "%s: its list of tensors is malformed", path) : TD_STATUS_OK;
}

/* The submessage `number` of `bytes`; false when there is none. */
static bool submessage(td_str bytes, uint32_t number, td_str *out) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number != number || f.type != TD_WIRE_BYTES) continue;
    *out = f.bytes;
    return true;
  }
  return false;
}

static td_status take_file(td_v1_reader *r, const char *path) {
  td_table *table;
  td_str value = TD_STR(""), meta;
  bool found = false;
  td_status status = td_table_open(path, false, &table);
  if (status) {
    return td_status_prepend(
        status,
        "Unable to open table file %s: perhaps your file is in a different file format and you need to use a "
        "different restore operator? ",
        path);
  }
  TD_GROW(r->tables, r->count, r->capacity);
  r->tables[r->count++] = table;
  TD_TRY(td_table_get(table, TD_STR(""), &value, &found));
  if (!found || !submessage(value, ALL_META, &meta)) {
    return td_error(TD_DATA_LOSS, "%s: failed to find the saved tensor slices at the beginning of the checkpoint file",
                    path);
  }
  return take_meta(r, table, path, meta);
}

static td_status no_files(td_str pattern, const char *path) {
  td_str dir = td_file_dir(td_str_of(path));
  char *folder = td_strndup(dir.data, dir.size);
  bool lacks_folder = dir.size && access(folder, F_OK);
  int shown = (int)TD_MIN(pattern.size, (size_t)SHOWN);
  td_status status =
      lacks_folder
          ? td_invalid_argument(
                "Unsuccessful TensorSliceReader constructor: Failed to get matching files on %.*s: Not found: "
                "%s; No such file or directory",
                shown, pattern.data, folder)
          : td_not_found("Unsuccessful TensorSliceReader constructor: Failed to find any matching files for %.*s",
                         shown, pattern.data);
  td_free(folder);
  return status;
}

td_status td_v1_reader_open(td_str pattern, td_v1_reader **out) {
  char *path = NULL;
  glob_t found = {0};
  td_v1_reader *r = td_new(td_v1_reader);
  td_status status = td_file_path(pattern, &path);
  if (!status) {
    if (glob(path, 0, NULL, &found) || !found.gl_pathc) status = no_files(pattern, path);
    for (size_t i = 0; !status && i < found.gl_pathc; i++) status = take_file(r, found.gl_pathv[i]);
    globfree(&found);
  }
  td_free(path);
  if (status) {
    td_v1_reader_close(r);
  } else {
    *out = r;
  }
  return status;
}

void td_v1_reader_close(td_v1_reader *r) {
  if (!r) return;
  void *value;
  td_str name;
  for (size_t i = 0; td_map_next(&r->tensors, &i, &name, &value);) td_free(((tensor_info *)value)->slices);
  for (size_t i = 0; i < r->count; i++) td_table_close(r->tables[i]);
  td_free(r->tables);
  td_map_deinit(&r->tensors);
  td_arena_deinit(&r->arena);
  td_free(r);
}

/* ---- tensors ---- */

td_status td_v1_reader_lookup(td_v1_reader *r, td_str name, td_dtype *dtype, td_shape *shape, bool *found) {
  tensor_info *t = td_map_get(&r->tensors, name);
  bool unknown;
  *found = t != NULL;
  if (!t) return TD_STATUS_OK;
  *dtype = t->dtype;
  return td_shape_decode(t->shape, shape, &unknown);
}

/* The elements of one stored slice, of shape `shape`. They are a TensorProto without type and shape. */
static td_status read_slice(const tensor_info *t, td_table *table, const td_slice *slice, const td_shape *shape,
                            td_tensor **out) {
  td_strbuf key = {0}, message = {0}, dims = {0};
  td_str value, data, proto;
  bool found;
  td_slice_key(t->name, slice, &key);
  td_status status = td_table_get(table, td_strbuf_view(&key), &value, &found);
  if (!status && (!found || !submessage(value, ALL_DATA, &data))) {
    status = td_error(TD_DATA_LOSS, "A slice of tensor %.*s is not in the file that lists it", SHOWN, t->name.data);
  }
  if (!status) {
    if (!submessage(data, SLICE_DATA, &proto)) proto = TD_STR("");
    td_shape_encode(shape->rank, shape->dims, &dims);
    td_strbuf_append(&message, proto);
    td_wire_put_uint(&message, PROTO_DTYPE, t->dtype); /* the later field counts */
    td_wire_put_bytes(&message, PROTO_SHAPE, td_strbuf_view(&dims));
    status = td_tensor_decode(td_strbuf_view(&message), out);
  }
  td_strbuf_deinit(&key);
  td_strbuf_deinit(&message);
  td_strbuf_deinit(&dims);
  return status;
}

static td_status copy_slice(const tensor_info *t, const stored *s, const td_shape *full, const td_slice *wanted,
                            td_tensor *to, int64_t *covered) {
  td_slice slice, part;
  td_shape shape;
  td_tensor *from;
  TD_TRY(td_slice_decode(s->slice, &slice));
  td_status status = td_slice_shape(&slice, full, &shape);
  if (status) {
    td_status_free(status);
    return td_error(TD_DATA_LOSS, "A slice of tensor %.*s lies outside of it", SHOWN, t->name.data);
  }
  if (!td_slice_intersect(&slice, wanted, full, &part)) return TD_STATUS_OK;
  TD_TRY(read_slice(t, s->table, &slice, &shape, &from));
  if (from->dtype != to->dtype || !td_dims_eq(shape.rank, shape.dims, from->rank, from->dims)) {
    td_tensor_release(from);
    return td_error(TD_DATA_LOSS, "A slice of tensor %.*s is malformed", SHOWN, t->name.data);
  }
  td_slice_copy(&part, from, &slice, to, wanted);
  td_tensor_release(from);
  int64_t count = 1;
  for (int i = 0; i < part.rank; i++) count *= part.length[i];
  return __builtin_add_overflow(*covered, count, covered) ? td_invalid_argument("Error copying slice data")
                                                          : TD_STATUS_OK;
}

td_status td_v1_reader_read(td_v1_reader *r, td_str name, const td_slice *slice, td_tensor **out) {
  tensor_info *t = td_map_get(&r->tensors, name);
  td_shape full, shape;
  td_tensor *to;
  bool unknown;
  int64_t covered = 0;
  if (!t) return td_not_found("Tensor name \"%.*s\" not found", (int)TD_MIN(name.size, (size_t)SHOWN), name.data);
  TD_TRY(td_shape_decode(t->shape, &full, &unknown));
  TD_TRY(td_slice_shape(slice, &full, &shape));
  TD_TRY(td_tensor_create_zeros(t->dtype, &shape, &to));
  td_status status = TD_STATUS_OK;
  for (size_t i = 0; i < t->count && to->count && !status; i++) {
    status = copy_slice(t, &t->slices[i], &full, slice, to, &covered);
  }
  if (!status && covered != to->count) {
    status =
        td_invalid_argument("Error copying slice data: %lld of %lld elements of tensor %.*s are stored",
                            (long long)covered, (long long)to->count, (int)TD_MIN(name.size, (size_t)SHOWN), name.data);
  }
  if (status) {
    td_tensor_release(to);
  } else {
    *out = to;
  }
  return status;
}

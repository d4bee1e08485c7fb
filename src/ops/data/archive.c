#include "ops/data/archive.h"

#include <string.h>

#include "base/mem.h"
#include "ops/data/ahead.h"
#include "ops/data/held.h"
#include "tensor/tensor_proto.h"

enum { MAX_NESTED = 64, MAX_CODE = 16 };
enum { NOTHING, TENSOR, DATASET }; /* what a value is */

td_status td_archive_invalid(const char *what) {
  return td_error(TD_DATA_LOSS, "The saved state of an iterator is not valid: %s", what);
}

/* ---- numbers and bytes ---- */

static td_status number(td_archive *a, uint64_t *value) {
  if (a->is_writing)
    td_wire_put_varint(&a->out, *value);
  else if (!td_wire_read_varint(&a->in, value))
    return td_archive_invalid("it is cut off");
  return TD_STATUS_OK;
}

/* Signed numbers zigzag, so that small ones are short. */
td_status td_archive_int(td_archive *a, int64_t *value, int64_t least, int64_t most) {
  uint64_t u = (uint64_t)*value << 1 ^ (*value < 0 ? UINT64_MAX : 0);
  TD_TRY(number(a, &u));
  if (a->is_writing) return TD_STATUS_OK;
  int64_t v = (int64_t)(u >> 1 ^ (0 - (u & 1)));
  if (v < least || v > most) return td_archive_invalid("a number is out of range");
  *value = v;
  return TD_STATUS_OK;
}

td_status td_archive_size(td_archive *a, size_t *value, size_t most) {
  uint64_t u = *value;
  TD_TRY(number(a, &u));
  if (!a->is_writing && u > most) return td_archive_invalid("a number is out of range");
  *value = (size_t)u;
  return TD_STATUS_OK;
}

td_status td_archive_count(td_archive *a, size_t *count) {
  return td_archive_size(a, count, a->is_writing ? SIZE_MAX : td_wire_left(&a->in));
}

td_status td_archive_bool(td_archive *a, bool *value) {
  size_t n = *value;
  TD_TRY(td_archive_size(a, &n, 1));
  *value = n;
  return TD_STATUS_OK;
}

td_status td_archive_words(td_archive *a, td_philox_words *words) {
  td_philox_words w = *words;
  uint32_t *parts[] = {w.generator.counter,
                       w.generator.counter + 1,
                       w.generator.counter + 2,
                       w.generator.counter + 3,
                       w.generator.key,
                       w.generator.key + 1,
                       w.buffer,
                       w.buffer + 1,
                       w.buffer + 2,
                       w.buffer + 3};
  for (size_t i = 0; i < TD_COUNT(parts); i++) {
    size_t n = *parts[i];
    TD_TRY(td_archive_size(a, &n, UINT32_MAX));
    *parts[i] = (uint32_t)n;
  }
  size_t used = (size_t)w.used;
  TD_TRY(td_archive_size(a, &used, TD_PHILOX_WORDS));
  w.used = (int)used;
  *words = w;
  return TD_STATUS_OK;
}

/* Reading: the bytes where they lie. */
static td_status view(td_archive *a, td_str *bytes) {
  size_t n = bytes->size;
  TD_TRY(td_archive_count(a, &n));
  if (a->is_writing) {
    td_strbuf_append(&a->out, *bytes);
    return TD_STATUS_OK;
  }
  *bytes = td_str_n(a->in.next, n);
  a->in.next += n;
  return TD_STATUS_OK;
}

td_status td_archive_bytes(td_archive *a, td_strbuf *bytes) {
  td_str v = td_strbuf_view(bytes);
  TD_TRY(view(a, &v));
  if (a->is_writing) return TD_STATUS_OK;
  bytes->size = 0;
  if (!td_strbuf_try_reserve(bytes, v.size)) return td_resource_exhausted("No memory for %zu bytes", v.size);
  td_strbuf_append(bytes, v);
  return TD_STATUS_OK;
}

td_status td_archive_error(td_archive *a, td_status *status) {
  size_t code = (size_t)td_status_code(*status);
  td_str message = td_str_of(td_status_message(*status));
  TD_TRY(td_archive_size(a, &code, MAX_CODE));
  if (code) TD_TRY(view(a, &message));
  if (a->is_writing) return TD_STATUS_OK;
  td_status_free(*status);
  *status = code ? td_error_bytes((td_code)code, message.data, message.size) : NULL;
  return TD_STATUS_OK;
}

/* ---- elements ---- */

static td_status shape(td_archive *a, td_partial_shape *p) {
  int64_t rank = p->rank, dims[TD_MAX_RANK];
  TD_TRY(td_archive_int(a, &rank, -1, TD_MAX_RANK));
  for (int64_t i = 0; i < rank; i++) {
    if (a->is_writing) dims[i] = p->dims[i];
    TD_TRY(td_archive_int(a, &dims[i], -1, INT64_MAX));
  }
  if (!a->is_writing) *p = td_partial_shape_make((int)rank, dims);
  return TD_STATUS_OK;
}

/* Reading: into a zeroed one, to be deinitialised also after a failure. */
static td_status data_spec(td_archive *a, td_data_spec *s) {
  size_t width = (size_t)s->width;
  TD_TRY(td_archive_count(a, &width));
  if (!a->is_writing) {
    if (width > INT32_MAX) return td_archive_invalid("a dataset has too many components");
    s->types = td_new_array(td_dtype, width + 1);
    s->shapes = td_new_array(td_partial_shape, width + 1);
  }
  for (size_t i = 0; i < width; i++) {
    int64_t type = s->types[i];
    TD_TRY(td_archive_int(a, &type, 1, INT32_MAX));
    if (!td_dtype_valid((int)type)) return td_archive_invalid("an unknown type");
    s->types[i] = (td_dtype)type;
    TD_TRY(shape(a, &s->shapes[i]));
    s->width = (int)i + 1;
  }
  return TD_STATUS_OK;
}

static td_status write_tensor(td_archive *a, const td_tensor *t) {
  td_strbuf bytes = {0};
  td_status s = td_tensor_encode(t, &bytes);
  td_str v = td_strbuf_view(&bytes);
  if (!s) s = view(a, &v);
  td_strbuf_deinit(&bytes);
  return s;
}

static td_status read_tensor(td_archive *a, td_tensor **out) {
  td_str bytes = {0};
  TD_TRY(view(a, &bytes));
  return td_tensor_decode(bytes, out);
}

static td_status write_dataset(td_archive *a, td_dataset *d) {
  td_element *const *elements;
  size_t count, capacity = 0;
  if (!td_held_elements(d, &elements, &count))
    return td_unimplemented("An iterator that holds a dataset of kind %s in its buffers cannot be saved", d->ops->name);
  TD_TRY(data_spec(a, &d->spec));
  return td_archive_elements(a, &d->spec, (td_element ***)&elements, &count, &capacity);
}

static td_status read_dataset(td_archive *a, td_tensor **out) {
  td_data_spec spec = {0};
  td_element **elements = NULL;
  size_t count = 0, capacity = 0;
  td_dataset *d;
  td_status s = data_spec(a, &spec);
  if (!s) s = td_archive_elements(a, &spec, &elements, &count, &capacity);
  if (s)
    td_elements_free(elements, count);
  else
    s = td_held_create(&spec, elements, count, &d);
  if (!s) s = td_dataset_tensor(d, out);
  td_data_spec_deinit(&spec);
  return s;
}

static td_status value(td_archive *a, td_tensor **t) {
  td_dataset *d;
  size_t kind = NOTHING;
  if (a->is_writing && *t) {
    td_status none = td_dataset_of(*t, &d);
    kind = none ? TENSOR : DATASET;
    td_status_free(none);
  }
  TD_TRY(td_archive_size(a, &kind, DATASET));
  if (kind == NOTHING) return TD_STATUS_OK;
  if (kind == TENSOR) return a->is_writing ? write_tensor(a, *t) : read_tensor(a, t);
  if (++a->depth > MAX_NESTED) return td_resource_exhausted("Datasets within elements are nested too deeply");
  TD_TRY(a->is_writing ? write_dataset(a, d) : read_dataset(a, t));
  a->depth--;
  return TD_STATUS_OK;
}

static td_status check_types(const td_data_spec *spec, const td_element *e) {
  if (e->count != spec->width) return td_archive_invalid("an element has another number of components");
  for (int i = 0; i < e->count; i++)
    if (!e->values[i] || e->values[i]->dtype != spec->types[i])
      return td_archive_invalid("an element has other types than its dataset");
  return TD_STATUS_OK;
}

td_status td_archive_element(td_archive *a, const td_data_spec *spec, td_element **e) {
  bool is_there = *e;
  size_t count = *e ? (size_t)(*e)->count : 0;
  TD_TRY(td_archive_bool(a, &is_there));
  if (!a->is_writing) {
    td_element_free(*e);
    *e = NULL;
  }
  if (!is_there) return TD_STATUS_OK;
  TD_TRY(td_archive_count(a, &count));
  if (!a->is_writing) {
    if (count > INT32_MAX) return td_archive_invalid("an element has too many components");
    *e = td_element_create((int)count);
  }
  td_status s = TD_STATUS_OK;
  for (size_t i = 0; i < count && !s; i++) s = value(a, &(*e)->values[i]);
  if (!s && !a->is_writing) {
    for (size_t i = 0; i < count && !s; i++)
      if (!(*e)->values[i]) s = td_archive_invalid("a component is missing");
    if (!s && spec) s = check_types(spec, *e);
  }
  if (s && !a->is_writing) {
    td_element_free(*e);
    *e = NULL;
  }
  return s;
}

td_status td_archive_elements(td_archive *a, const td_data_spec *spec, td_element ***elements, size_t *count,
                              size_t *capacity) {
  size_t n = *count;
  TD_TRY(td_archive_count(a, &n));
  if (!a->is_writing) {
    for (size_t i = 0; i < *count; i++) td_element_free((*elements)[i]);
    *count = 0;
  }
  for (size_t i = 0; i < n; i++) {
    td_element *e = a->is_writing ? (*elements)[i] : NULL;
    TD_TRY(td_archive_element(a, spec, &e));
    if (a->is_writing) continue;
    if (!e) return td_archive_invalid("an element is missing");
    TD_GROW(*elements, *count, *capacity);
    (*elements)[(*count)++] = e;
  }
  return TD_STATUS_OK;
}

/* ---- iterators ---- */

td_status td_archive_iterator(td_archive *a, td_iterator *it) {
  const td_dataset_ops *ops = it->dataset->ops;
  td_str name = td_str_of(ops->name);
  if (!ops->archive) return td_unimplemented("%sDataset does not support checkpointing.", ops->name);
  TD_TRY(view(a, &name));
  if (!td_str_is(name, ops->name))
    return td_invalid_argument("The saved iterator has a dataset of kind %.*s where this one has %s",
                               (int)TD_MIN(name.size, (size_t)64), name.data, ops->name);
  return ops->archive(it, a);
}

td_status td_archive_input(td_archive *a, td_iterator *it, int index, td_iterator **input) {
  bool is_there = *input;
  TD_TRY(td_archive_bool(a, &is_there));
  if (!is_there) {
    if (!a->is_writing) {
      td_iterator_destroy(*input);
      *input = NULL;
    }
    return TD_STATUS_OK;
  }
  if (!*input) TD_TRY(td_iterator_create_input(it, index, input));
  return td_archive_iterator(a, *input);
}

td_status td_archive_later(td_archive *a, td_iterator *it, td_strbuf *bytes) {
  if (!a->is_writing || !it) return td_archive_bytes(a, bytes);
  td_strbuf outer = a->out;
  a->out = (td_strbuf){0};
  td_status s = td_archive_iterator(a, it);
  td_strbuf inner = a->out;
  a->out = outer;
  if (!s) s = td_archive_bytes(a, &inner);
  td_strbuf_deinit(&inner);
  return s;
}

td_status td_archive_apply(td_strbuf *bytes, td_iterator *it) {
  td_archive a = {.in = td_wire_of(td_strbuf_view(bytes))};
  td_status s = td_archive_iterator(&a, it);
  if (!s && td_wire_left(&a.in)) s = td_archive_invalid("something follows it");
  td_strbuf_deinit(bytes);
  return s;
}

void td_archive_deinit(td_archive *a) {
  for (size_t i = 0; i < a->paused_count; i++) td_ahead_resume(a->paused[i]);
  td_free(a->paused);
  td_strbuf_deinit(&a->out);
  *a = (td_archive){0};
}

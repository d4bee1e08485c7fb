#include "ops/tensor_array_data.h"

#include <string.h>

#include "base/mem.h"

enum { PAGE = 256 };

static void clear_pages(td_tensor_array *a) {
  for (int64_t p = 0; p < a->page_count; p++) {
    for (int i = 0; a->pages[p] && i < PAGE; i++) {
      td_tensor_release(a->pages[p][i].value);
      td_free(a->pages[p][i].shape.dims);
    }
    td_free(a->pages[p]);
  }
  td_free(a->pages);
  a->pages = NULL;
  a->page_count = a->size = 0;
}

static void destroy(td_resource *r) {
  td_tensor_array *a = (td_tensor_array *)r;
  clear_pages(a);
  td_partial_shape_deinit(&a->element_shape);
  pthread_mutex_destroy(&a->lock);
  td_free(a->name);
  td_free(a);
}

const td_resource_type td_tensor_array_type = {.name = "N10tensorflow11TensorArrayE", .destroy = destroy};

static td_status resize(td_tensor_array *a, int64_t size) {
  if (size > TD_TENSOR_ARRAY_MAX)
    return td_resource_exhausted("TensorArray %s: %lld elements are too many", a->name, (long long)size);
  int64_t pages = (size + PAGE - 1) / PAGE;
  if (pages > a->page_count) {
    int64_t room = a->size ? TD_MAX(pages, a->page_count * 2) : pages;
    a->pages = td_realloc(a->pages, (size_t)room * sizeof *a->pages);
    memset(a->pages + a->page_count, 0, (size_t)(room - a->page_count) * sizeof *a->pages);
    a->page_count = room;
  }
  a->size = TD_MAX(a->size, size);
  return TD_STATUS_OK;
}

static td_tensor_slot *slot(td_tensor_array *a, int64_t i) {
  td_tensor_slot **page = &a->pages[i / PAGE];
  if (!*page) *page = td_new_array(td_tensor_slot, PAGE);
  return &(*page)[i % PAGE];
}

td_status td_tensor_array_create(const td_tensor_array_options *o, td_tensor_array **out) {
  td_tensor_array *a = td_new(td_tensor_array);
  td_resource_init(&a->resource, &td_tensor_array_type);
  pthread_mutex_init(&a->lock, NULL);
  a->name = td_strndup(o->name.data, o->name.size);
  a->dtype = o->dtype;
  a->can_add = td_dtype_in(o->dtype, TD_SET_NUMBER) && td_map_init_binary(&a->add, TD_BIN_Add, o->dtype, o->dtype, 0);
  a->sums_writes = a->is_grad = o->is_grad;
  a->clear_after_read = o->clear_after_read;
  a->identical_shapes = o->identical_shapes;
  a->is_dynamic = o->is_dynamic;
  a->marked_size = o->marked_size;
  a->element_shape = td_partial_shape_make(o->element_shape->rank, o->element_shape->dims);
  td_status s = resize(a, o->size);
  if (s)
    td_resource_release(a);
  else
    *out = a;
  return s;
}

static td_status closed(const td_tensor_array *a) {
  return a->is_closed ? td_invalid_argument("TensorArray %s has already been closed.", a->name) : TD_STATUS_OK;
}

/* ---- writing ---- */

static td_status check_shape(td_tensor_array *a, int64_t index, const td_tensor *value) {
  if (td_partial_shape_fits(&a->element_shape, value->rank, value->dims)) {
    if (a->identical_shapes && !td_partial_shape_is_full(&a->element_shape)) {
      td_partial_shape_deinit(&a->element_shape);
      a->element_shape = td_partial_shape_make(value->rank, value->dims);
    }
    return TD_STATUS_OK;
  }
  char *got = td_tensor_shape_text(value), *want = td_partial_shape_text(&a->element_shape);
  td_status s = td_invalid_argument(
      "TensorArray %s: Could not write to TensorArray index %lld because the value shape is %s which is incompatible "
      "with the TensorArray's inferred element shape: %s (consider setting infer_shape=False).",
      a->name, (long long)index, got, want);
  td_free(got);
  td_free(want);
  return s;
}

static td_status add_to(td_tensor_array *a, int64_t index, td_tensor_slot *t, td_tensor *value) {
  if (!td_partial_shape_fits(&t->shape, value->rank, value->dims)) {
    char *have = td_partial_shape_text(&t->shape), *got = td_tensor_shape_text(value);
    td_status s = td_invalid_argument(
        "TensorArray %s: Could not aggregate to TensorArray index %lld because the existing shape is %s but the new "
        "input shape is %s.",
        a->name, (long long)index, have, got);
    td_free(have);
    td_free(got);
    return s;
  }
  if (!t->value || !t->value->count) { /* virtual zeros */
    td_tensor_release(t->value);
    t->value = td_tensor_retain(value);
    return TD_STATUS_OK;
  }
  if (!a->can_add)
    return td_invalid_argument("tensor_array::AddToTensor type not supported: %s", td_dtype_name(a->dtype));
  td_tensor *sum = t->value;
  if (!t->is_sum || !td_tensor_is_exclusive(sum))
    TD_TRY(td_tensor_create_dims(a->dtype, value->rank, value->dims, &sum));
  td_map_binary(&a->add, t->value->data, 1, value->data, 1, sum->data, value->count);
  if (sum != t->value) {
    td_tensor_release(t->value);
    t->value = sum;
    t->is_sum = true;
  }
  a->gradients_disallowed = true;
  return TD_STATUS_OK;
}

static td_status write_locked(td_tensor_array *a, int64_t index, td_tensor *value) {
  TD_TRY(closed(a));
  if (index < 0 || (!a->is_dynamic && index >= a->size))
    return td_invalid_argument(
        "TensorArray %s: Tried to write to index %lld but array is not resizeable and size is: %lld", a->name,
        (long long)index, (long long)a->size);
  TD_TRY(resize(a, index + 1));
  td_tensor_slot *t = slot(a, index);
  if (value->dtype != a->dtype)
    return td_invalid_argument(
        "TensorArray %s: Could not write to TensorArray index %lld because the value dtype is %s but TensorArray dtype "
        "is %s.",
        a->name, (long long)index, td_dtype_name(value->dtype), td_dtype_name(a->dtype));
  TD_TRY(check_shape(a, index, value));
  if (t->is_read || (t->is_written && !a->sums_writes))
    return td_invalid_argument(
        "TensorArray %s: Could not write to TensorArray index %lld because it has already been %s.", a->name,
        (long long)index, t->is_read ? "read" : "written to");
  if (t->is_written) return add_to(a, index, t, value);
  t->value = td_tensor_retain(value);
  t->shape = td_partial_shape_make(value->rank, value->dims);
  t->is_written = true;
  return TD_STATUS_OK;
}

td_status td_tensor_array_write(td_tensor_array *a, int64_t index, td_tensor *value) {
  pthread_mutex_lock(&a->lock);
  td_status s = write_locked(a, index, value);
  pthread_mutex_unlock(&a->lock);
  return s;
}

/* ---- reading ---- */

/* An element that nobody wrote reads as zeros where its shape is known. */
static td_status declare_zeros(td_tensor_array *a, int64_t index) {
  if (a->is_grad && index < a->size && slot(a, index)->is_written) return TD_STATUS_OK;
  td_tensor_slot *t = index < a->size ? slot(a, index) : NULL;
  const td_partial_shape *shape = a->is_grad && t && t->shape.rank > 0 ? &t->shape : &a->element_shape;
  if (!td_partial_shape_is_full(shape)) {
    char *text = td_partial_shape_text(&a->element_shape);
    td_status s = td_invalid_argument(
        "TensorArray %s: Could not read from TensorArray index %lld.  Furthermore, the element shape is not fully "
        "defined: %s.  It is possible you are working with a resizeable TensorArray and stop_gradients is not allowing "
        "the gradients to be written.  If you set the full element_shape property on the forward TensorArray, the "
        "proper all-zeros tensor will be returned instead of incurring this error.",
        a->name, (long long)index, text);
    td_free(text);
    return s;
  }
  int64_t from = TD_MIN(a->size, index);
  TD_TRY(resize(a, index + 1));
  for (int64_t i = from; i <= index; i++) {
    t = slot(a, i);
    if (&t->shape != shape) {
      td_free(t->shape.dims);
      t->shape = td_partial_shape_make(shape->rank, shape->dims);
    }
    t->is_written = true;
  }
  return TD_STATUS_OK;
}

static td_status read_locked(td_tensor_array *a, int64_t index, td_tensor **out) {
  TD_TRY(closed(a));
  if (index < 0 || (!a->is_grad && index >= a->size))
    return td_invalid_argument("Tried to read from index %lld but array size is: %lld", (long long)index,
                               (long long)a->size);
  if (index >= a->size || !slot(a, index)->is_written) TD_TRY(declare_zeros(a, index));
  td_tensor_slot *t = slot(a, index);
  if (t->is_cleared)
    return td_invalid_argument(
        "TensorArray %s: Could not read index %lld twice because it was cleared after a previous read (perhaps try "
        "setting clear_after_read = false?).",
        a->name, (long long)index);
  if (!t->value) {
    td_shape shape;
    td_shape_set(&shape, t->shape.rank, t->shape.dims);
    TD_TRY(td_tensor_create_zeros(a->dtype, &shape, &t->value));
  }
  *out = td_tensor_retain(t->value);
  if (a->clear_after_read) {
    td_tensor_release(t->value);
    t->value = NULL;
    t->is_cleared = true;
  }
  t->is_read = true;
  return TD_STATUS_OK;
}

td_status td_tensor_array_read(td_tensor_array *a, int64_t index, td_tensor **out) {
  return td_tensor_array_read_many(a, &(int32_t){(int32_t)index}, 1, out);
}

td_status td_tensor_array_read_many(td_tensor_array *a, const int32_t *indices, int64_t n, td_tensor **out) {
  td_status s = TD_STATUS_OK;
  int64_t i = 0;
  pthread_mutex_lock(&a->lock);
  for (; i < n && !s; i++) s = read_locked(a, indices ? indices[i] : i, &out[i]);
  pthread_mutex_unlock(&a->lock);
  if (s)
    for (int64_t k = 0; k < i - 1; k++) td_tensor_release(out[k]);
  return s;
}

/* ---- sizes ---- */

static td_status get_size(td_tensor_array *a, bool for_pack, int32_t *out) {
  pthread_mutex_lock(&a->lock);
  td_status s = closed(a);
  *out = for_pack && a->is_grad ? TD_MAX(a->marked_size, 0) : (int32_t)a->size;
  pthread_mutex_unlock(&a->lock);
  return s;
}

td_status td_tensor_array_size(td_tensor_array *a, int32_t *out) { return get_size(a, false, out); }
td_status td_tensor_array_pack_size(td_tensor_array *a, int32_t *out) { return get_size(a, true, out); }

td_status td_tensor_array_mark_size(td_tensor_array *a, int32_t size) {
  pthread_mutex_lock(&a->lock);
  td_status s = closed(a);
  if (!s && !a->is_grad) a->marked_size = size;
  pthread_mutex_unlock(&a->lock);
  return s;
}

bool td_tensor_array_is_dynamic(td_tensor_array *a) {
  pthread_mutex_lock(&a->lock);
  bool yes = a->is_dynamic;
  pthread_mutex_unlock(&a->lock);
  return yes;
}

td_status td_tensor_array_merge_shape(td_tensor_array *a, const td_partial_shape *shape) {
  pthread_mutex_lock(&a->lock);
  td_status s = td_partial_shape_merge(&a->element_shape, shape->rank, shape->dims);
  pthread_mutex_unlock(&a->lock);
  return s;
}

void td_tensor_array_close(td_tensor_array *a) {
  pthread_mutex_lock(&a->lock);
  clear_pages(a);
  a->is_closed = true;
  pthread_mutex_unlock(&a->lock);
}

/* ---- gradients ---- */

/* `prepend` and then `shape`; of unknown rank when that is. */
static td_status prepended(const td_shape *prepend, const td_partial_shape *shape, td_partial_shape *out) {
  *out = TD_PARTIAL_SHAPE_UNKNOWN;
  if (shape->rank < 0) return TD_STATUS_OK;
  if (prepend->rank + shape->rank > TD_MAX_RANK)
    return td_invalid_argument("A shape of rank %d is too large", prepend->rank + shape->rank);
  td_shape all;
  td_shape_set(&all, prepend->rank, prepend->dims);
  for (int i = 0; i < shape->rank; i++) all.dims[all.rank++] = shape->dims[i];
  *out = td_partial_shape_make(all.rank, all.dims);
  return TD_STATUS_OK;
}

static td_status copy_shapes(td_tensor_array *of, const td_shape *prepend, td_tensor_array *to) {
  for (int64_t i = 0; i < of->size; i++) {
    if (!of->pages[i / PAGE]) {
      i += PAGE - 1 - i % PAGE;
      continue;
    }
    td_tensor_slot *from = slot(of, i);
    if (!from->is_written) continue;
    TD_TRY(prepended(prepend, &from->shape, &slot(to, i)->shape));
    slot(to, i)->is_written = true;
  }
  return TD_STATUS_OK;
}

td_status td_tensor_array_create_grad(td_tensor_array *of, td_str name, const td_shape *prepend,
                                      td_tensor_array **out) {
  td_partial_shape shape = TD_PARTIAL_SHAPE_UNKNOWN;
  td_tensor_array *a = NULL;
  pthread_mutex_lock(&of->lock);
  of->is_dynamic = false;
  td_status s = closed(of);
  if (!s && of->gradients_disallowed)
    s = td_invalid_argument(
        "Unable to create a gradients TensorArray for %s.  Perhaps you used the multiple_writes_aggregate flag on a "
        "previous write?  Gradient calculation is impossible when multiple writes are performed to the same index.",
        of->name);
  if (!s) s = prepended(prepend, &of->element_shape, &shape);
  if (!s)
    s = td_tensor_array_create(&(td_tensor_array_options){.name = name,
                                                          .dtype = of->dtype,
                                                          .size = of->size,
                                                          .element_shape = &shape,
                                                          .identical_shapes = of->identical_shapes,
                                                          .clear_after_read = true,
                                                          .is_grad = true,
                                                          .marked_size = of->marked_size},
                               &a);
  if (!s) s = copy_shapes(of, prepend, a);
  pthread_mutex_unlock(&of->lock);
  td_partial_shape_deinit(&shape);
  if (s)
    td_resource_release(a);
  else
    *out = a;
  return s;
}

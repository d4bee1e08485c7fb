/* Datasets that regroup elements: Window, Unbatch. */
#include <string.h>

#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/data/held.h"
#include "ops/families.h"

/* ---- Window ---- */

typedef struct windowed {
  td_dataset base;
  int64_t size, shift, stride, span; /* span: from a window's first element to its last, both counted */
  bool drops_remainder;
} windowed;

typedef struct window_iterator {
  td_iterator base;
  td_iterator *input;
  bool input_ended, is_asked;
  int64_t skip;       /* elements to drop before the next window */
  td_element **items; /* [first, first + count) */
  size_t first, count, capacity;
} window_iterator;

static td_status window_start(td_iterator *it) {
  return td_iterator_create_input(it, 0, &((window_iterator *)it)->input);
}

static void drop_items(window_iterator *w, size_t n) {
  for (size_t i = 0; i < n; i++) td_element_free(w->items[w->first + i]);
  w->first += n;
  w->count -= n;
}

static void window_stop(td_iterator *it) {
  window_iterator *w = (window_iterator *)it;
  drop_items(w, w->count);
  td_free(w->items);
  td_iterator_destroy(w->input);
}

static void push_item(window_iterator *w, td_element *e) {
  if (w->first + w->count == w->capacity && w->first > w->count) {
    memmove(w->items, w->items + w->first, w->count * sizeof *w->items);
    w->first = 0;
  }
  size_t end = w->first + w->count;
  TD_GROW(w->items, end, w->capacity);
  w->items[end] = e;
  w->count++;
}

/* The window's elements of one component, as a dataset. */
static td_status make_view(td_iterator *it, int component, td_tensor **out) {
  window_iterator *w = (window_iterator *)it;
  const windowed *d = (const windowed *)it->dataset;
  const td_data_spec *from = &it->dataset->inputs[0]->spec;
  td_dataset *v;
  size_t n = (size_t)(((int64_t)w->count - 1) / d->stride + 1);
  td_element **elements = td_new_array(td_element *, n);
  for (size_t i = 0; i < n; i++) {
    td_tensor *t = td_tensor_retain(w->items[w->first + i * (size_t)d->stride]->values[component]);
    elements[i] = td_element_of(1, &t);
  }
  TD_TRY(td_held_create(&(td_data_spec){1, &from->types[component], &from->shapes[component]}, elements, n, &v));
  return td_dataset_tensor(v, out);
}

static td_next give_window(td_iterator *it) {
  window_iterator *w = (window_iterator *)it;
  const windowed *d = (const windowed *)it->dataset;
  int width = it->dataset->inputs[0]->spec.width;
  td_element *e = td_element_create(width);
  td_status s = TD_STATUS_OK;
  for (size_t k = 0; k < w->count && !s; k++)
    if (w->items[w->first + k]->count != width) s = td_internal("An element has not the %d components declared", width);
  for (int i = 0; i < width && !s; i++) s = make_view(it, i, &e->values[i]);
  int64_t goes = TD_MIN(d->shift, (int64_t)w->count);
  w->skip = d->shift - goes;
  drop_items(w, (size_t)goes);
  if (!s) return td_iterator_give(it, e);
  td_element_free(e);
  return td_iterator_fail(it, s);
}

static td_next window_advance(td_iterator *it) {
  window_iterator *w = (window_iterator *)it;
  const windowed *d = (const windowed *)it->dataset;
  if (w->is_asked) {
    w->is_asked = false;
    if (w->input->status) return td_iterator_pass(it, w->input);
    td_element *e = td_iterator_take(w->input);
    if (!e) {
      w->input_ended = true;
    } else if (w->skip) {
      w->skip--;
      td_element_free(e);
    } else {
      push_item(w, e);
    }
  }
  if (!w->input_ended && (w->skip || (int64_t)w->count < d->span)) {
    w->is_asked = true;
    return td_iterator_pull(it, w->input);
  }
  if (!w->count || (d->drops_remainder && (int64_t)w->count < d->span)) return td_iterator_give(it, NULL);
  return give_window(it);
}

static td_status window_archive(td_iterator *it, td_archive *a) {
  window_iterator *w = (window_iterator *)it;
  const windowed *d = (const windowed *)it->dataset;
  const td_data_spec *spec = &it->dataset->inputs[0]->spec;
  TD_TRY(td_archive_bool(a, &w->input_ended));
  TD_TRY(td_archive_int(a, &w->skip, 0, INT64_MAX));
  /* those at the front are gone; a new iterator has none of these */
  td_element **items = w->first ? w->items + w->first : w->items;
  td_status s = td_archive_elements(a, spec, &items, &w->count, &w->capacity);
  if (!a->is_writing) w->items = items;
  if (s) return s;
  if ((int64_t)w->count > d->span) return td_archive_invalid("a window has too many elements");
  return td_archive_input(a, it, 0, &w->input);
}

static int64_t window_cardinality(const td_dataset *base) {
  const windowed *d = (const windowed *)base;
  int64_t n = td_dataset_input_cardinality(base);
  if (n < 0) return n;
  if (d->drops_remainder) return n < d->span ? 0 : (n - d->span) / d->shift + 1;
  return n / d->shift + (n % d->shift != 0);
}

static const td_dataset_ops window_ops = {.name = "Window",
                                          .iterator_size = sizeof(window_iterator),
                                          .start = window_start,
                                          .advance = window_advance,
                                          .stop = window_stop,
                                          .archive = window_archive,
                                          .cardinality = window_cardinality};

static td_status in_positive(td_kernel_ctx *ctx, int i, const char *name, const char *shown, int64_t *out) {
  TD_TRY(td_in_int(ctx, i, name, out));
  return *out > 0 ? TD_STATUS_OK : td_invalid_argument("Window %s must be greater than zero.", shown);
}

static td_status compute_window(td_kernel_ctx *ctx) {
  int64_t size, shift, stride, span;
  bool drops;
  td_dataset *input, *d;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(in_positive(ctx, 1, "size", "size", &size));
  TD_TRY(in_positive(ctx, 2, "shift", "shift", &shift));
  TD_TRY(in_positive(ctx, 3, "stride", "stride", &stride));
  TD_TRY(td_in_bool(ctx, 4, "drop_remainder", &drops));
  if (size > INT32_MAX || __builtin_mul_overflow(size - 1, stride, &span) || span == INT64_MAX)
    return td_invalid_argument("A window of size %lld and stride %lld is too large", (long long)size,
                               (long long)stride);
  TD_TRY(td_dataset_create(&window_ops, sizeof(windowed), &((td_dataset_kernel *)ctx->state)->spec, &input, 1, &d));
  windowed *w = (windowed *)d;
  w->size = size;
  w->shift = shift;
  w->stride = stride;
  w->span = span + 1;
  w->drops_remainder = drops;
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

/* ---- Unbatch ---- */

typedef struct unbatch_iterator {
  td_iterator base;
  td_iterator *input;
  td_element *batch;
  int64_t next, count; /* rows of it */
  bool is_asked;
} unbatch_iterator;

static td_status unbatch_start(td_iterator *it) {
  return td_iterator_create_input(it, 0, &((unbatch_iterator *)it)->input);
}

static void unbatch_stop(td_iterator *it) {
  td_element_free(((unbatch_iterator *)it)->batch);
  td_iterator_destroy(((unbatch_iterator *)it)->input);
}

static td_status check_batch(const td_element *e) {
  for (int i = 0; i < e->count; i++) {
    if (!e->values[i]->rank)
      return td_invalid_argument("Input element must have a non-scalar value in each component.");
    if (e->values[i]->dims[0] != e->values[0]->dims[0])
      return td_invalid_argument(
          "Input element must have the same batch size in each component. Component 0 had size %lld but component %d "
          "had size, %lld.",
          (long long)e->values[0]->dims[0], i, (long long)e->values[i]->dims[0]);
  }
  return TD_STATUS_OK;
}

static td_next unbatch_advance(td_iterator *it) {
  unbatch_iterator *u = (unbatch_iterator *)it;
  if (u->is_asked) {
    u->is_asked = false;
    if (td_iterator_ended(u->input)) return td_iterator_pass(it, u->input);
    td_element_free(u->batch);
    u->batch = td_iterator_take(u->input);
    u->next = u->count = 0;
    td_status s = check_batch(u->batch);
    if (s) return td_iterator_fail(it, s);
    u->count = u->batch->count ? u->batch->values[0]->dims[0] : 0;
  }
  if (u->next >= u->count) {
    u->is_asked = true;
    return td_iterator_pull(it, u->input);
  }
  td_element *e = td_element_create(u->batch->count);
  for (int i = 0; i < e->count; i++) e->values[i] = td_tensor_row(u->batch->values[i], u->next);
  u->next++;
  return td_iterator_give(it, e);
}

static td_status unbatch_archive(td_iterator *it, td_archive *a) {
  unbatch_iterator *u = (unbatch_iterator *)it;
  TD_TRY(td_archive_element(a, &it->dataset->inputs[0]->spec, &u->batch));
  if (!a->is_writing && u->batch) {
    td_status s = check_batch(u->batch);
    if (s) {
      td_status_free(s);
      return td_archive_invalid("a batch is none");
    }
    u->count = u->batch->count ? u->batch->values[0]->dims[0] : 0;
  }
  TD_TRY(td_archive_int(a, &u->next, 0, u->count));
  return td_archive_input(a, it, 0, &u->input);
}

static int64_t unbatch_cardinality(const td_dataset *d) {
  int64_t n = td_dataset_input_cardinality(d), all;
  const td_partial_shape *shape = &d->inputs[0]->spec.shapes[0];
  if (!n || n == TD_CARDINALITY_INFINITE) return n;
  if (n < 0 || shape->rank < 1 || shape->dims[0] < 0) return TD_CARDINALITY_UNKNOWN;
  return __builtin_mul_overflow(n, shape->dims[0], &all) ? TD_CARDINALITY_INFINITE : all;
}

static const td_dataset_ops unbatch_ops = {.name = "Unbatch",
                                           .iterator_size = sizeof(unbatch_iterator),
                                           .start = unbatch_start,
                                           .advance = unbatch_advance,
                                           .stop = unbatch_stop,
                                           .archive = unbatch_archive,
                                           .cardinality = unbatch_cardinality};

/* ---- IgnoreErrors ---- */

static td_next ignore_advance(td_iterator *it) {
  unbatch_iterator *u = (unbatch_iterator *)it;
  if (u->is_asked && !u->input->status) {
    u->is_asked = false;
    return td_iterator_pass(it, u->input);
  }
  u->is_asked = true;
  return td_iterator_pull(it, u->input); /* drops the error that may be there */
}

static td_status ignore_archive(td_iterator *it, td_archive *a) {
  return td_archive_input(a, it, 0, &((unbatch_iterator *)it)->input);
}

static const td_dataset_ops ignore_ops = {.name = "IgnoreErrors",
                                          .iterator_size = sizeof(unbatch_iterator),
                                          .start = unbatch_start,
                                          .advance = ignore_advance,
                                          .stop = unbatch_stop,
                                          .archive = ignore_archive};

static td_status make_plain(td_kernel_ctx *ctx, const td_dataset_ops *ops) {
  td_dataset *input, *d;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_dataset_create(ops, sizeof(td_dataset), &((td_dataset_kernel *)ctx->state)->spec, &input, 1, &d));
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

static td_status compute_unbatch(td_kernel_ctx *ctx) { return make_plain(ctx, &unbatch_ops); }
static td_status compute_ignore(td_kernel_ctx *ctx) { return make_plain(ctx, &ignore_ops); }

#define UNBATCH(name) \
  { name, "input_dataset: variant", "handle: variant", TD_DATASET_TYPES TD_DATASET_META, 0 }
#define IGNORE(name) \
  { name, "input_dataset: variant", "handle: variant", TD_DATASET_TYPES "; log_warning: bool = false", 0 }

static const td_op_spec ops[] = {
    IGNORE("ExperimentalIgnoreErrorsDataset"),
    {"ExperimentalUnbatchDataset", "input_dataset: variant", "handle: variant", TD_DATASET_TYPES, 0},
    IGNORE("IgnoreErrorsDataset"),
    UNBATCH("UnbatchDataset"),
    {"WindowDataset", "input_dataset: variant; size: int64; shift: int64; stride: int64; drop_remainder: bool",
     "handle: variant", TD_DATASET_TYPES TD_DATASET_META, 0},
};

static const td_kernel_def kernels[] = {
    TD_DATASET_KERNEL("ExperimentalIgnoreErrorsDataset", td_dataset_kernel_create, compute_ignore),
    TD_DATASET_KERNEL("ExperimentalUnbatchDataset", td_dataset_kernel_create, compute_unbatch),
    TD_DATASET_KERNEL("IgnoreErrorsDataset", td_dataset_kernel_create, compute_ignore),
    TD_DATASET_KERNEL("UnbatchDataset", td_dataset_kernel_create, compute_unbatch),
    TD_DATASET_KERNEL("WindowDataset", td_dataset_kernel_create, compute_window),
};

TD_FAMILY(data_window, ops, kernels);

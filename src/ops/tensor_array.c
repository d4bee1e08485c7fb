/* TensorArrays of all three generations: creation, gradients, writing, reading, packing (TensorFlow's
 * tensor_array_ops). */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "ops/families.h"
#include "ops/handles.h"
#include "ops/tensor_array_data.h"

#define ARRAYS     TD_STR("_tensor_arrays")
#define GRADS      TD_STR("_tensor_array_grads")
#define BAD_HANDLE "Tensor array handle must be 2-element vector"

/* ---- attributes ---- */

typedef struct array_state {
  char *name; /* creation: of the array; gradients: the source */
  td_dtype dtype;
  td_partial_shape shape;
  bool is_dynamic, clear_after_read, identical_shapes;
} array_state;

static void destroy_state(void *state) {
  array_state *st = state;
  td_free(st->name);
  td_partial_shape_deinit(&st->shape);
}

static td_status create_array_kernel(td_kernel_builder *b, void *state) {
  array_state *st = state;
  td_str name;
  st->shape = TD_PARTIAL_SHAPE_UNKNOWN;
  TD_TRY(td_attr_type(b->node, "dtype", &st->dtype));
  TD_TRY(td_attr_bool(b->node, "dynamic_size", &st->is_dynamic));
  TD_TRY(td_attr_bool(b->node, "clear_after_read", &st->clear_after_read));
  if (td_attr_find(b->node, "identical_element_shapes"))
    TD_TRY(td_attr_bool(b->node, "identical_element_shapes", &st->identical_shapes));
  TD_TRY(td_attr_str(b->node, "tensor_array_name", &name));
  if (!name.size) name = b->node->name;
  st->name = td_strndup(name.data, name.size);
  return td_partial_shape_attr(b->node, "element_shape", &st->shape);
}

static td_status create_grad_kernel(td_kernel_builder *b, void *state) {
  array_state *st = state;
  td_str source;
  st->shape = TD_PARTIAL_SHAPE_UNKNOWN;
  TD_TRY(td_attr_str(b->node, "source", &source));
  st->name = td_strndup(source.data, source.size);
  return TD_STATUS_OK;
}

/* Reading all elements: the shape that they are said to have. */
static td_status create_pack_kernel(td_kernel_builder *b, void *state) {
  array_state *st = state;
  st->shape = TD_PARTIAL_SHAPE_UNKNOWN;
  bool is_concat = td_attr_find(b->node, "element_shape_except0");
  TD_TRY(td_attr_type(b->node, "dtype", &st->dtype));
  return td_partial_shape_attr(b->node, is_concat ? "element_shape_except0" : "element_shape", &st->shape);
}

/* ---- finding ---- */

static td_status find(td_kernel_ctx *ctx, td_tensor_array **out) {
  void *found;
  TD_TRY(td_in_handle(ctx, ctx->step->step_resources, true, BAD_HANDLE, &td_tensor_array_type, &found));
  *out = found;
  return TD_STATUS_OK;
}

static td_status check_read_type(const td_tensor_array *a, td_dtype t) {
  if (a->dtype == t) return TD_STATUS_OK;
  return td_invalid_argument("TensorArray dtype is %s but Op requested dtype %s.", td_dtype_name(a->dtype),
                             td_dtype_name(t));
}

static td_status check_write_type(const td_tensor_array *a, const td_tensor *t) {
  if (a->dtype == t->dtype) return TD_STATUS_OK;
  return td_invalid_argument("TensorArray dtype is %s but Op is trying to write dtype %s.", td_dtype_name(a->dtype),
                             td_dtype_name(t->dtype));
}

/* "<before><shape><after>" */
static td_status shape_error(const char *before, const td_tensor *t, const char *after) {
  char *text = td_tensor_shape_text(t);
  td_status s = td_invalid_argument("%s%s%s", before, text, after);
  td_free(text);
  return s;
}

/* ---- TensorArray, TensorArrayGrad ---- */

static td_status out_flow(td_kernel_ctx *ctx) {
  td_tensor *flow;
  if (ctx->kernel->output_count < 2) return TD_STATUS_OK;
  TD_TRY(td_out_alloc_dims(ctx, 1, 0, NULL, &flow));
  *TD_DATA(flow, float) = 0;
  return TD_STATUS_OK;
}

/* Under a name that no other array of the step has. */
static td_status add_array(td_kernel_ctx *ctx, int64_t size, td_strbuf *name) {
  array_state *st = ctx->state;
  for (;;) {
    td_tensor_array *a;
    td_strbuf_deinit(name);
    td_strbuf_printf(name, "%s_%" PRIu64, st->name, td_random_fast_u64() >> 20);
    TD_TRY(td_tensor_array_create(&(td_tensor_array_options){.name = td_strbuf_view(name),
                                                             .dtype = st->dtype,
                                                             .size = size,
                                                             .element_shape = &st->shape,
                                                             .identical_shapes = st->identical_shapes,
                                                             .is_dynamic = st->is_dynamic,
                                                             .clear_after_read = st->clear_after_read,
                                                             .marked_size = -1},
                                  &a));
    td_strbuf key = {0};
    td_strbuf_append(&key, ARRAYS);
    td_strbuf_append(&key, td_strbuf_view(name));
    td_status s = td_resource_add(ctx->step->step_resources, (td_str){0}, td_strbuf_view(&key), &a->resource);
    td_strbuf_deinit(&key);
    td_resource_release(a);
    if (td_status_code(s) != TD_ALREADY_EXISTS) return s;
    td_status_free(s);
  }
}

static td_status compute_array(td_kernel_ctx *ctx) {
  td_tensor *size = td_in(ctx, 0);
  if (!ctx->step->step_resources) return td_internal("No resource manager.");
  if (size->rank) return shape_error("TensorArray size must be scalar, but had shape: ", size, "");
  if (*TD_DATA(size, int32_t) < 0) return td_invalid_argument("Size should be >= 0.");
  td_strbuf name = {0};
  td_status s = add_array(ctx, *TD_DATA(size, int32_t), &name);
  if (!s)
    s = td_out_handle(ctx, 0,
                      &(td_handle_parts){.m = ctx->step->step_resources,
                                         .prefix = ARRAYS,
                                         .name = td_strbuf_view(&name),
                                         .type = &td_tensor_array_type});
  td_strbuf_deinit(&name);
  return s ? s : out_flow(ctx);
}

typedef struct grad_request {
  td_tensor_array *of;
  td_str name;
  td_shape prepend;
} grad_request;

static td_status make_grad(void *arg, td_resource **out) {
  grad_request *g = arg;
  td_tensor_array *a;
  TD_TRY(td_tensor_array_create_grad(g->of, g->name, &g->prepend, &a));
  *out = &a->resource;
  return TD_STATUS_OK;
}

/* The array's name without the part that all arrays share; td_free()d by the caller. */
static td_status forward_name(td_kernel_ctx *ctx, char **out) {
  *out = NULL;
  if (ctx->kernel->input_types[0] == TD_RESOURCE) {
    td_resource_handle *h;
    TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
    if (!td_str_starts(td_str_of(h->name), ARRAYS)) return td_invalid_argument("Wrong input container. %s", h->name);
    *out = td_strdup(h->name + ARRAYS.size);
    return TD_STATUS_OK;
  }
  char *container;
  TD_TRY(td_in_string_handle(ctx, BAD_HANDLE, &container, out));
  td_status s = TD_STATUS_OK;
  if (!td_str_eq(td_str_of(container), ARRAYS))
    s = td_invalid_argument("Input container should be '_tensor_arrays',  but received '%s'", container);
  td_free(container);
  return s;
}

static td_status find_grad(td_kernel_ctx *ctx, const char *of_name, td_strbuf *name) {
  array_state *st = ctx->state;
  grad_request g = {0};
  if (ctx->kernel->input_count > 2) TD_TRY(td_shape_from_tensor(td_in(ctx, 2), false, &g.prepend));
  TD_TRY(find(ctx, &g.of));
  td_strbuf_printf(name, "%s@%s", of_name, st->name);
  g.name = td_strbuf_view(name);
  td_strbuf key = {0};
  td_strbuf_append(&key, GRADS);
  td_strbuf_append(&key, g.name);
  void *a;
  td_status s = td_resource_lookup_or_create(ctx->step->step_resources, (td_str){0}, td_strbuf_view(&key),
                                             &td_tensor_array_type, make_grad, &g, &a);
  td_strbuf_deinit(&key);
  td_resource_release(g.of);
  if (!s) td_resource_release(a);
  return s;
}

static td_status compute_grad(td_kernel_ctx *ctx) {
  char *of_name = NULL;
  td_strbuf name = {0};
  td_status s = forward_name(ctx, &of_name);
  if (!s) s = find_grad(ctx, of_name, &name);
  if (!s)
    s = td_out_handle(ctx, 0,
                      &(td_handle_parts){.m = ctx->step->step_resources,
                                         .prefix = GRADS,
                                         .name = td_strbuf_view(&name),
                                         .type = &td_tensor_array_type});
  td_strbuf_deinit(&name);
  td_free(of_name);
  return s ? s : out_flow(ctx);
}

/* ---- one element ---- */

static td_status check_index(const td_tensor *index) {
  return index->rank ? shape_error("TensorArray index must be scalar, but had shape: ", index, "") : TD_STATUS_OK;
}

static td_status compute_write(td_kernel_ctx *ctx) {
  td_tensor_array *a;
  TD_TRY(check_index(td_in(ctx, 1)));
  TD_TRY(find(ctx, &a));
  td_status s = check_write_type(a, td_in(ctx, 2));
  if (!s) s = td_tensor_array_write(a, *TD_DATA(td_in(ctx, 1), int32_t), td_in(ctx, 2));
  td_resource_release(a);
  if (!s) td_out_forward(ctx, 3, 0);
  return s;
}

static td_status compute_read(td_kernel_ctx *ctx) {
  td_tensor_array *a;
  td_tensor *value;
  TD_TRY(check_index(td_in(ctx, 1)));
  TD_TRY(find(ctx, &a));
  td_status s = check_read_type(a, td_out_type(ctx, 0));
  if (!s) s = td_tensor_array_read(a, *TD_DATA(td_in(ctx, 1), int32_t), &value);
  td_resource_release(a);
  if (!s) td_out_set(ctx, 0, value);
  return s;
}

/* ---- Pack, Gather, Concat ---- */

/* What they read: either `indices`, or the first `count`. */
typedef struct many {
  const int32_t *indices;
  int64_t count;
  td_tensor **values;
} many;

static td_status read_all(td_tensor_array *a, many *m) {
  m->values = td_try_malloc((size_t)m->count * sizeof *m->values);
  if (!m->values) return td_resource_exhausted("No memory to read %lld elements", (long long)m->count);
  td_status s = td_tensor_array_read_many(a, m->indices, m->count, m->values);
  if (s) {
    td_free(m->values);
    m->values = NULL;
  }
  return s;
}

static void many_deinit(many *m) {
  for (int64_t i = 0; m->values && i < m->count; i++) td_tensor_release(m->values[i]);
  td_free(m->values);
}

/* No element: the output has no rows, and only the attribute can tell how wide they would be. */
static td_status out_empty(td_kernel_ctx *ctx, const char *what, const char *verb) {
  array_state *st = ctx->state;
  td_tensor *out;
  if (!td_partial_shape_is_full(&st->shape)) {
    char *text = td_partial_shape_text(&st->shape);
    td_status s =
        td_error(TD_UNIMPLEMENTED,
                 "TensorArray has size zero, but %s %s is not fully defined. Currently only static shapes are "
                 "supported when %s zero-size TensorArrays.",
                 what, text, verb);
    td_free(text);
    return s;
  }
  td_shape shape;
  td_shape_vector(&shape, 0);
  for (int i = 0; i < st->shape.rank; i++) TD_TRY(td_shape_append(&shape, st->shape.dims[i]));
  return td_out_alloc(ctx, 0, &shape, &out);
}

static td_status pack(td_kernel_ctx *ctx, const many *m) {
  array_state *st = ctx->state;
  td_tensor *first = m->values[0], *out;
  if (!td_partial_shape_fits(&st->shape, first->rank, first->dims)) {
    char *want = td_partial_shape_text(&st->shape), *got = td_tensor_shape_text(first);
    td_status s = td_invalid_argument(
        "TensorArray was passed element_shape %s which does not match the Tensor at index 0: %s", want, got);
    td_free(want);
    td_free(got);
    return s;
  }
  for (int64_t i = 1; i < m->count; i++) {
    if (td_tensor_same_shape(first, m->values[i])) continue;
    char *want = td_tensor_shape_text(first), *got = td_tensor_shape_text(m->values[i]);
    td_status s =
        td_invalid_argument("TensorArray has inconsistent shapes.  Index 0 has shape: %s but index %lld has shape: %s",
                            want, (long long)i, got);
    td_free(want);
    td_free(got);
    return s;
  }
  td_shape shape;
  td_shape_vector(&shape, m->count);
  for (int i = 0; i < first->rank; i++) TD_TRY(td_shape_append(&shape, first->dims[i]));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  for (int64_t i = 0; i < m->count && first->count; i++)
    td_tensor_copy_elements(out, i * first->count, m->values[i], 0, first->count);
  return TD_STATUS_OK;
}

static td_status gather_from(td_kernel_ctx *ctx, td_tensor_array *a, bool is_pack) {
  array_state *st = ctx->state;
  many m = {0};
  TD_TRY(check_read_type(a, st->dtype));
  TD_TRY(td_tensor_array_merge_shape(a, &st->shape));
  if (is_pack) {
    int32_t n;
    TD_TRY(td_tensor_array_pack_size(a, &n));
    m.count = n;
  } else {
    td_tensor *indices = td_in(ctx, 1);
    if (indices->rank != 1) return shape_error("Expected indices to be a vector, but received shape: ", indices, "");
    m.indices = TD_DATA(indices, int32_t);
    m.count = indices->count;
  }
  if (!m.count) return out_empty(ctx, "element shape", "packing");
  td_status s = read_all(a, &m);
  if (!s) s = pack(ctx, &m);
  many_deinit(&m);
  return s;
}

static td_status with_array(td_kernel_ctx *ctx, td_status (*run)(td_kernel_ctx *ctx, td_tensor_array *a, bool flag),
                            bool flag) {
  td_tensor_array *a;
  TD_TRY(find(ctx, &a));
  td_status s = run(ctx, a, flag);
  td_resource_release(a);
  return s;
}

static td_status compute_pack(td_kernel_ctx *ctx) { return with_array(ctx, gather_from, true); }
static td_status compute_gather(td_kernel_ctx *ctx) { return with_array(ctx, gather_from, false); }

/* Checks that the values are rows of one width, and counts the rows. */
static td_status concat_shape(td_kernel_ctx *ctx, const many *m, td_shape *shape, int64_t *lengths) {
  array_state *st = ctx->state;
  td_tensor *first = m->values[0];
  for (int64_t i = 0; i < m->count; i++) {
    td_tensor *t = m->values[i];
    if (!t->rank)
      return td_invalid_argument(
          "Concat saw a scalar shape at index %lld but requires at least vectors.  Did you mean to call pack?",
          (long long)i);
    lengths[i] = t->dims[0];
    bool ok = i ? td_dims_eq(first->rank - 1, first->dims + 1, t->rank - 1, t->dims + 1)
                : td_partial_shape_fits(&st->shape, t->rank - 1, t->dims + 1);
    if (!ok) {
      char *want = i ? td_dims_text(first->rank - 1, first->dims + 1) : td_partial_shape_text(&st->shape);
      char *got = td_dims_text(t->rank - 1, t->dims + 1);
      td_status s = i ? td_invalid_argument(
                            "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) "
                            "shape: %s but index %lld has (excepting dimension 0) shape: %s",
                            want, (long long)i, got)
                      : td_invalid_argument(
                            "TensorArray was passed element_shape_except0 %s but index 0 has (excepting "
                            "dimension 0) shape: %s which does not match.",
                            want, got);
      td_free(want);
      td_free(got);
      return s;
    }
    if (!i)
      td_shape_set(shape, t->rank, t->dims);
    else if (__builtin_add_overflow(shape->dims[0], t->dims[0], &shape->dims[0]))
      return td_invalid_argument("The concatenation of %lld elements is too large", (long long)m->count);
  }
  return TD_STATUS_OK;
}

static td_status concat(td_kernel_ctx *ctx, const many *m) {
  td_tensor *lengths, *out;
  td_shape shape;
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &m->count, &lengths));
  TD_TRY(concat_shape(ctx, m, &shape, TD_DATA(lengths, int64_t)));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  int64_t at = 0;
  for (int64_t i = 0; i < m->count; i++) {
    if (m->values[i]->count) td_tensor_copy_elements(out, at, m->values[i], 0, m->values[i]->count);
    at += m->values[i]->count;
  }
  return TD_STATUS_OK;
}

static td_status concat_from(td_kernel_ctx *ctx, td_tensor_array *a, bool unused) {
  array_state *st = ctx->state;
  many m = {0};
  int32_t n;
  TD_TRY(check_read_type(a, st->dtype));
  TD_TRY(td_tensor_array_pack_size(a, &n));
  m.count = n;
  if (!n) {
    td_tensor *lengths;
    int64_t none = 0;
    TD_TRY(out_empty(ctx, "element_shape_except0", "concatenating"));
    return td_out_alloc_dims(ctx, 1, 1, &none, &lengths);
  }
  td_status s = read_all(a, &m);
  if (!s) s = concat(ctx, &m);
  many_deinit(&m);
  return s;
}

static td_status compute_concat(td_kernel_ctx *ctx) { return with_array(ctx, concat_from, false); }

/* ---- Unpack, Scatter, Split: parts of a value; views of it, nothing is copied ---- */

static td_status write_rows(td_tensor_array *a, td_tensor *value, const int32_t *indices, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    td_tensor *element = td_tensor_row(value, i);
    td_status s = td_tensor_array_write(a, indices ? indices[i] : i, element);
    td_tensor_release(element);
    if (s) return s;
  }
  return TD_STATUS_OK;
}

static td_status scatter_to(td_kernel_ctx *ctx, td_tensor_array *a, bool is_unpack) {
  td_tensor *value = td_in(ctx, is_unpack ? 1 : 2), *indices = is_unpack ? NULL : td_in(ctx, 1);
  int32_t size;
  TD_TRY(check_write_type(a, value));
  if (!value->rank)
    return shape_error("Input value for unpack must be at least a vector but received shape: ", value, "");
  int64_t n = value->dims[0], last = n - 1;
  if (n >= INT32_MAX) return td_invalid_argument("tensor dim0 too large to unpack");
  TD_TRY(td_tensor_array_size(a, &size));
  if (indices) {
    if (indices->rank != 1) return shape_error("Expected indices to be a vector, but received shape: ", indices, "");
    if (indices->count != n)
      return td_invalid_argument("Expected len(indices) == values.shape[0], but saw: %lld vs. %lld",
                                 (long long)indices->count, (long long)n);
    last = -1;
    for (int64_t i = 0; i < n; i++) last = TD_MAX(last, (int64_t)TD_DATA(indices, int32_t)[i]);
  }
  int64_t room = td_tensor_array_is_dynamic(a) ? TD_MAX((int64_t)size, last + 1) : size;
  if (is_unpack && n != room)
    return td_invalid_argument("Input value must have first dimension equal to the array size (%lld vs. %lld)",
                               (long long)n, (long long)room);
  if (last >= room)
    return td_invalid_argument("Max scatter index must be < array size (%lld vs. %lld)", (long long)last,
                               (long long)room);
  if (is_unpack) TD_TRY(td_tensor_array_mark_size(a, (int32_t)room));
  TD_TRY(write_rows(a, value, indices ? TD_DATA(indices, int32_t) : NULL, n));
  td_out_forward(ctx, is_unpack ? 2 : 3, 0);
  return TD_STATUS_OK;
}

static td_status compute_unpack(td_kernel_ctx *ctx) { return with_array(ctx, scatter_to, true); }
static td_status compute_scatter(td_kernel_ctx *ctx) { return with_array(ctx, scatter_to, false); }

/* Lengths are not negative and add up to the rows of the value. */
static td_status check_lengths(const td_tensor *value, const td_tensor *lengths) {
  int64_t total = 0;
  if (lengths->rank != 1) return shape_error("Expected lengths to be a vector, received shape: ", lengths, "");
  if (lengths->count >= INT32_MAX) return td_invalid_argument("Expected lengths to have < max int32 entries");
  for (int64_t i = 0; i < lengths->count; i++) {
    int64_t n = TD_DATA(lengths, int64_t)[i];
    if (n < 0 || __builtin_add_overflow(total, n, &total))
      return td_invalid_argument("Expected lengths to be non-negative, but lengths[%lld] is %lld", (long long)i,
                                 (long long)n);
  }
  if (!value->rank) return shape_error("Expected value to be at least a vector, but received shape: ", value, "");
  if (total == value->dims[0]) return TD_STATUS_OK;
  char *text = td_tensor_shape_text(value);
  td_status s = td_invalid_argument(
      "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is %lld and value's shape is: %s",
      (long long)total, text);
  td_free(text);
  return s;
}

static td_status split_to(td_kernel_ctx *ctx, td_tensor_array *a, bool unused) {
  td_tensor *value = td_in(ctx, 1), *lengths = td_in(ctx, 2);
  int32_t size;
  TD_TRY(check_lengths(value, lengths));
  TD_TRY(td_tensor_array_size(a, &size));
  int64_t n = lengths->count, room = td_tensor_array_is_dynamic(a) ? TD_MAX((int64_t)size, n) : size, at = 0;
  if (room != n)
    return td_invalid_argument(
        "TensorArray's size is not equal to the size of lengths (%lld vs. %lld), and the TensorArray is not marked as "
        "dynamically resizeable",
        (long long)room, (long long)n);
  TD_TRY(check_write_type(a, value));
  TD_TRY(td_tensor_array_mark_size(a, (int32_t)n));
  for (int64_t i = 0; i < n; i++) {
    int64_t length = TD_DATA(lengths, int64_t)[i];
    td_tensor *part = td_tensor_slice(value, at, at + length);
    td_status s = td_tensor_array_write(a, i, part);
    td_tensor_release(part);
    if (s) return s;
    at += length;
  }
  td_out_forward(ctx, 3, 0);
  return TD_STATUS_OK;
}

static td_status compute_split(td_kernel_ctx *ctx) { return with_array(ctx, split_to, false); }

/* ---- Size, Close ---- */

static td_status size_of(td_kernel_ctx *ctx, td_tensor_array *a, bool unused) {
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  return td_tensor_array_size(a, TD_DATA(out, int32_t));
}

static td_status close_it(td_kernel_ctx *ctx, td_tensor_array *a, bool unused) {
  td_tensor_array_close(a);
  return TD_STATUS_OK;
}

static td_status compute_size(td_kernel_ctx *ctx) { return with_array(ctx, size_of, false); }
static td_status compute_close(td_kernel_ctx *ctx) { return with_array(ctx, close_it, false); }

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {.name = "TensorArray",
     .inputs = "size: int32",
     .outputs = "handle: Ref(string)",
     .attrs = "dtype: type; dynamic_size: bool = false; clear_after_read: bool = true; tensor_array_name: "
              "string = ''; element_shape: shape = unknown",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayClose", .inputs = "handle: Ref(string)"},
    {.name = "TensorArrayCloseV2", .inputs = "handle: string"},
    {.name = "TensorArrayCloseV3", .inputs = "handle: resource", .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayConcat",
     .inputs = "handle: Ref(string); flow_in: float",
     .outputs = "value: dtype; lengths: int64",
     .attrs = "dtype: type; element_shape_except0: shape = unknown"},
    {.name = "TensorArrayConcatV2",
     .inputs = "handle: string; flow_in: float",
     .outputs = "value: dtype; lengths: int64",
     .attrs = "dtype: type; element_shape_except0: shape = unknown"},
    {.name = "TensorArrayConcatV3",
     .inputs = "handle: resource; flow_in: float",
     .outputs = "value: dtype; lengths: int64",
     .attrs = "dtype: type; element_shape_except0: shape = unknown",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayGather",
     .inputs = "handle: Ref(string); indices: int32; flow_in: float",
     .outputs = "value: dtype",
     .attrs = "dtype: type; element_shape: shape = unknown"},
    {.name = "TensorArrayGatherV2",
     .inputs = "handle: string; indices: int32; flow_in: float",
     .outputs = "value: dtype",
     .attrs = "dtype: type; element_shape: shape = unknown"},
    {.name = "TensorArrayGatherV3",
     .inputs = "handle: resource; indices: int32; flow_in: float",
     .outputs = "value: dtype",
     .attrs = "dtype: type; element_shape: shape = unknown",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayGrad",
     .inputs = "handle: string; flow_in: float",
     .outputs = "grad_handle: Ref(string)",
     .attrs = "source: string",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayGradV2",
     .inputs = "handle: string; flow_in: float",
     .outputs = "grad_handle: string",
     .attrs = "source: string",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayGradV3",
     .inputs = "handle: resource; flow_in: float",
     .outputs = "grad_handle: resource; flow_out: float",
     .attrs = "source: string",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayGradWithShape",
     .inputs = "handle: resource; flow_in: float; shape_to_prepend: int32",
     .outputs = "grad_handle: resource; flow_out: float",
     .attrs = "source: string",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayPack",
     .inputs = "handle: Ref(string); flow_in: float",
     .outputs = "value: dtype",
     .attrs = "dtype: type; element_shape: shape = unknown"},
    {.name = "TensorArrayRead",
     .inputs = "handle: Ref(string); index: int32; flow_in: float",
     .outputs = "value: dtype",
     .attrs = "dtype: type"},
    {.name = "TensorArrayReadV2",
     .inputs = "handle: string; index: int32; flow_in: float",
     .outputs = "value: dtype",
     .attrs = "dtype: type"},
    {.name = "TensorArrayReadV3",
     .inputs = "handle: resource; index: int32; flow_in: float",
     .outputs = "value: dtype",
     .attrs = "dtype: type",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayScatter",
     .inputs = "handle: Ref(string); indices: int32; value: T; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type"},
    {.name = "TensorArrayScatterV2",
     .inputs = "handle: string; indices: int32; value: T; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type"},
    {.name = "TensorArrayScatterV3",
     .inputs = "handle: resource; indices: int32; value: T; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArraySize", .inputs = "handle: Ref(string); flow_in: float", .outputs = "size: int32"},
    {.name = "TensorArraySizeV2", .inputs = "handle: string; flow_in: float", .outputs = "size: int32"},
    {.name = "TensorArraySizeV3",
     .inputs = "handle: resource; flow_in: float",
     .outputs = "size: int32",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArraySplit",
     .inputs = "handle: Ref(string); value: T; lengths: int64; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type"},
    {.name = "TensorArraySplitV2",
     .inputs = "handle: string; value: T; lengths: int64; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type"},
    {.name = "TensorArraySplitV3",
     .inputs = "handle: resource; value: T; lengths: int64; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayUnpack",
     .inputs = "handle: Ref(string); value: T; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type"},
    {.name = "TensorArrayV2",
     .inputs = "size: int32",
     .outputs = "handle: string",
     .attrs = "dtype: type; element_shape: shape = unknown; dynamic_size: bool = false; clear_after_read: "
              "bool = true; tensor_array_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayV3",
     .inputs = "size: int32",
     .outputs = "handle: resource; flow: float",
     .attrs = "dtype: type; element_shape: shape = unknown; dynamic_size: bool = false; clear_after_read: "
              "bool = true; identical_element_shapes: bool = false; tensor_array_name: string = ''",
     .flags = TD_OP_STATEFUL},
    {.name = "TensorArrayWrite",
     .inputs = "handle: Ref(string); index: int32; value: T; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type"},
    {.name = "TensorArrayWriteV2",
     .inputs = "handle: string; index: int32; value: T; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type"},
    {.name = "TensorArrayWriteV3",
     .inputs = "handle: resource; index: int32; value: T; flow_in: float",
     .outputs = "flow_out: float",
     .attrs = "T: type",
     .flags = TD_OP_STATEFUL},
};

#define STATE(fn) .cost = TD_COST_CHEAP, .state_size = sizeof(array_state), .create = fn, .destroy = destroy_state
#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }

static const td_kernel_def kernels[] = {
    {.op = "TensorArray", STATE(create_array_kernel), .compute = compute_array},
    {.op = "TensorArrayV2", STATE(create_array_kernel), .compute = compute_array},
    {.op = "TensorArrayV3", STATE(create_array_kernel), .compute = compute_array},
    {.op = "TensorArrayGrad", STATE(create_grad_kernel), .compute = compute_grad},
    {.op = "TensorArrayGradV2", STATE(create_grad_kernel), .compute = compute_grad},
    {.op = "TensorArrayGradV3", STATE(create_grad_kernel), .compute = compute_grad},
    {.op = "TensorArrayGradWithShape", STATE(create_grad_kernel), .compute = compute_grad},
    PLAIN("TensorArrayWrite", compute_write),
    PLAIN("TensorArrayWriteV2", compute_write),
    PLAIN("TensorArrayWriteV3", compute_write),
    PLAIN("TensorArrayRead", compute_read),
    PLAIN("TensorArrayReadV2", compute_read),
    PLAIN("TensorArrayReadV3", compute_read),
    {.op = "TensorArrayPack", STATE(create_pack_kernel), .compute = compute_pack},
    {.op = "TensorArrayGather", STATE(create_pack_kernel), .compute = compute_gather},
    {.op = "TensorArrayGatherV2", STATE(create_pack_kernel), .compute = compute_gather},
    {.op = "TensorArrayGatherV3", STATE(create_pack_kernel), .compute = compute_gather},
    {.op = "TensorArrayConcat", STATE(create_pack_kernel), .compute = compute_concat},
    {.op = "TensorArrayConcatV2", STATE(create_pack_kernel), .compute = compute_concat},
    {.op = "TensorArrayConcatV3", STATE(create_pack_kernel), .compute = compute_concat},
    PLAIN("TensorArrayUnpack", compute_unpack),
    PLAIN("TensorArrayScatter", compute_scatter),
    PLAIN("TensorArrayScatterV2", compute_scatter),
    PLAIN("TensorArrayScatterV3", compute_scatter),
    PLAIN("TensorArraySplit", compute_split),
    PLAIN("TensorArraySplitV2", compute_split),
    PLAIN("TensorArraySplitV3", compute_split),
    PLAIN("TensorArraySize", compute_size),
    PLAIN("TensorArraySizeV2", compute_size),
    PLAIN("TensorArraySizeV3", compute_size),
    PLAIN("TensorArrayClose", compute_close),
    PLAIN("TensorArrayCloseV2", compute_close),
    PLAIN("TensorArrayCloseV3", compute_close),
};

TD_FAMILY(tensor_array, ops, kernels);

#include "tensor/tensor.h"

#include <assert.h>
#include <inttypes.h>

#include "base/mem.h"
#include "tensor/memory.h"
#include "tensor/shared_memory.h"

_Static_assert(sizeof(td_string) == 16, "dtype.c's size of a string element");
_Static_assert(sizeof(td_tensor) == 40, "a header of rank 3 fills one cache line");

/* Larger tensors do not move to where they can be lent: that would take their memory twice for a while. */
static const size_t MOVABLE_MAX = 32 << 20;

/* Bytes before the elements of a tensor whose elements lie in its block. */
static size_t header_size(int rank) {
  return (sizeof(td_tensor) + (size_t)rank * sizeof(int64_t) + TD_MEMORY_ALIGN - 1) & ~(size_t)(TD_MEMORY_ALIGN - 1);
}

static td_status out_of_memory(td_dtype dtype, int rank, const int64_t *dims) {
  char *text = td_dims_text(rank, dims);
  td_status status =
      td_resource_exhausted("OOM when allocating tensor with shape%s and type %s", text, td_dtype_name(dtype));
  td_free(text);
  return status;
}

static td_status check_count(td_dtype dtype, int rank, const int64_t *dims, int64_t *count, size_t *size) {
  if (!td_dtype_valid(dtype)) return td_invalid_argument("No tensor can be of type %d", (int)dtype);
  if (rank < 0 || rank > TD_MAX_RANK) return td_invalid_argument("Too many dimensions in tensor: %d", rank);
  int64_t n = 1;
  for (int i = 0; i < rank; i++) {
    if (dims[i] >= 0 && !__builtin_mul_overflow(n, dims[i], &n)) continue;
    td_shape shape; /* the slow way writes the error */
    td_shape_set(&shape, rank, dims);
    return td_shape_count(&shape, count);
  }
  *count = n;
  if (!td_mul_size((size_t)n, td_dtype_size(dtype), size) || *size > INT64_MAX / 2) {
    return out_of_memory(dtype, rank, dims);
  }
  return TD_STATUS_OK;
}

static td_tensor *init_header(void *block, td_dtype dtype, int rank, const int64_t *dims, int64_t count, size_t size) {
  td_tensor *t = block;
  atomic_init(&t->refs, 1);
  t->dtype = (uint8_t)dtype;
  t->rank = (uint8_t)rank;
  t->count = count;
  t->size = size;
  t->base = NULL;
  t->has_value = 1;
  t->is_private = 0;
  if (rank) memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
  return t;
}

static bool may_be_lent(td_dtype dtype, size_t size) {
  return size > TD_MEMORY_LARGEST_BLOCK && td_dtype_is_pod(dtype);
}

/* Elements of a size that does not fit into a block. */
static void *alloc_elements(td_dtype dtype, size_t size, bool *zeroed) {
  bool lends = may_be_lent(dtype, size) && td_shared_memory_control();
  void *data = lends ? td_memory_lendable_alloc(size, zeroed) : NULL;
  return data ? data : td_memory_buffer_alloc(size, zeroed);
}

/* `zeroes` elements of plain types too. */
static td_status create(td_dtype dtype, int rank, const int64_t *dims, bool zeroes, td_tensor **out) {
  int64_t count;
  size_t size;
  TD_TRY(check_count(dtype, rank, dims, &count, &size));
  size_t header = header_size(rank);
  bool in_block = size <= TD_MEMORY_LARGEST_BLOCK - header, zeroed = false;
  void *block = td_memory_block_alloc(in_block ? header + size : header), *data = NULL;
  if (block) data = in_block ? (char *)block + header : alloc_elements(dtype, size, &zeroed);
  if (!data) {
    if (block) td_memory_block_free(block, header);
    return out_of_memory(dtype, rank, dims);
  }
  td_tensor *t = init_header(block, dtype, rank, dims, count, size);
  t->origin = in_block ? TD_TENSOR_IN_BLOCK : TD_TENSOR_IN_BUFFER;
  t->data = data;
  if ((zeroes || !td_dtype_is_pod(dtype)) && !zeroed) memset(data, 0, size);
  *out = t;
  return TD_STATUS_OK;
}

td_status td_tensor_create(td_dtype dtype, const td_shape *shape, td_tensor **out) {
  return create(dtype, shape->rank, shape->dims, false, out);
}

td_status td_tensor_create_dims(td_dtype dtype, int rank, const int64_t *dims, td_tensor **out) {
  return create(dtype, rank, dims, false, out);
}

td_status td_tensor_create_zeros(td_dtype dtype, const td_shape *shape, td_tensor **out) {
  return create(dtype, shape->rank, shape->dims, true, out);
}

td_status td_tensor_create_valueless(td_dtype dtype, int rank, const int64_t *dims, td_tensor **out) {
  TD_TRY(create(dtype, rank, dims, true, out));
  (*out)->has_value = 0;
  return TD_STATUS_OK;
}

bool td_tensor_is_lendable(const td_tensor *t) {
  return may_be_lent((td_dtype)t->dtype, t->size) && !td_tensor_is_private(t) && td_shared_memory_holds(t->data);
}

bool td_tensor_could_be_lendable(const td_tensor *t) {
  return may_be_lent((td_dtype)t->dtype, t->size) && t->size <= MOVABLE_MAX && td_shared_memory_control() &&
         !td_tensor_is_lendable(t);
}

void td_tensor_keep_private(td_tensor *t) {
  assert(td_tensor_is_exclusive(t));
  td_tensor *owner = t->base ? t->base : t;
  owner->is_private = 1;
  if (owner == t && td_shared_memory_holds(t->data)) t->data = td_memory_buffer_unshare(t->data, t->size);
}

/* A foreign tensor's owner lies behind its sizes. */
static void *place_of_owner(td_tensor *t) { return &t->dims[t->rank]; }

td_status td_tensor_create_foreign(td_dtype dtype, int rank, const int64_t *dims, const void *data, size_t room,
                                   td_foreign_memory *m, td_tensor **out) {
  int64_t count;
  size_t size;
  TD_TRY(check_count(dtype, rank, dims, &count, &size));
  if (size > room || !td_dtype_is_pod(dtype)) {
    char *text = td_dims_text(rank, dims);
    td_status s =
        td_invalid_argument("%zu bytes hold no tensor of shape%s and type %s", room, text, td_dtype_name(dtype));
    td_free(text);
    return s;
  }
  void *block = td_memory_block_alloc(header_size(rank + 1));
  if (!block) td_malloc(SIZE_MAX / 2); /* a header is control data: ends the process */
  td_tensor *t = init_header(block, dtype, rank, dims, count, size);
  t->origin = TD_TENSOR_FOREIGN;
  t->data = (void *)data;
  memcpy(place_of_owner(t), &m, sizeof m);
  *out = t;
  return TD_STATUS_OK;
}

static void destroy_foreign(td_tensor *t) {
  td_foreign_memory *m;
  memcpy(&m, place_of_owner(t), sizeof m);
  td_memory_block_free(t, header_size(t->rank + 1));
  m->release(m);
}

static void destroy_elements(td_tensor *t) {
  switch (t->dtype) {
    case TD_STRING:
      for (int64_t i = 0; i < t->count; i++) td_free(TD_DATA(t, td_string)[i].data);
      break;
    case TD_RESOURCE:
      for (int64_t i = 0; i < t->count; i++) td_resource_handle_release(TD_DATA(t, td_resource_handle *)[i]);
      break;
    case TD_VARIANT:
      for (int64_t i = 0; i < t->count; i++) td_variant_release(TD_DATA(t, td_variant *)[i]);
      break;
  }
}

void td_tensor_destroy_(td_tensor *t) {
  size_t header = header_size(t->rank);
  if (t->origin == TD_TENSOR_IN_BASE) {
    td_tensor *base = t->base;
    td_memory_block_free(t, header);
    td_tensor_release(base);
    return;
  }
  if (t->origin == TD_TENSOR_FOREIGN) {
    destroy_foreign(t);
    return;
  }
  if (!td_dtype_is_pod(t->dtype)) destroy_elements(t);
  if (t->origin == TD_TENSOR_IN_BUFFER) {
    td_memory_buffer_free(t->data, t->size);
    td_memory_block_free(t, header);
  } else {
    td_memory_block_free(t, header + t->size);
  }
}

/* ---- views ---- */

static td_tensor *view(td_tensor *t, td_dtype dtype, int rank, const int64_t *dims, int64_t count, void *data) {
  assert(rank >= 0 && rank <= TD_MAX_RANK);
  void *block = td_memory_block_alloc(header_size(rank));
  if (!block) td_malloc(SIZE_MAX / 2); /* a header is control data: ends the process */
  td_tensor *v = init_header(block, dtype, rank, dims, count, (size_t)count * td_dtype_size(dtype));
  v->origin = TD_TENSOR_IN_BASE;
  v->data = data;
  v->base = td_tensor_retain(t->base ? t->base : t);
  return v;
}

static int64_t count_of(int rank, const int64_t *dims) {
  int64_t n = 1;
  for (int i = 0; i < rank; i++) n *= dims[i];
  return n;
}

td_tensor *td_tensor_reshape(td_tensor *t, int rank, const int64_t *dims) {
  assert(count_of(rank, dims) == t->count);
  return view(t, t->dtype, rank, dims, t->count, t->data);
}

td_tensor *td_tensor_slice(td_tensor *t, int64_t begin, int64_t end) {
  assert(t->rank >= 1 && 0 <= begin && begin <= end && end <= t->dims[0]);
  int64_t dims[TD_MAX_RANK];
  memcpy(dims, t->dims, t->rank * sizeof *dims);
  dims[0] = end - begin;
  int64_t row = t->dims[0] ? t->count / t->dims[0] : 0;
  size_t offset = (size_t)(begin * row) * td_dtype_size(t->dtype);
  return view(t, t->dtype, t->rank, dims, row * dims[0], (char *)t->data + offset);
}

td_tensor *td_tensor_row(td_tensor *t, int64_t i) {
  td_tensor *rows = td_tensor_slice(t, i, i + 1), *row = td_tensor_reshape(rows, t->rank - 1, t->dims + 1);
  td_tensor_release(rows);
  return row;
}

td_tensor *td_tensor_bitcast(td_tensor *t, td_dtype dtype, int rank, const int64_t *dims) {
  assert(td_dtype_is_pod(t->dtype) && td_dtype_is_pod(dtype) && td_dtype_size(dtype) == td_dtype_size(t->dtype));
  assert(count_of(rank, dims) == t->count);
  return view(t, dtype, rank, dims, t->count, t->data);
}

/* ---- elements ---- */

bool td_tensor_repeats_a_value(const td_tensor *t) {
  size_t size = td_dtype_size(t->dtype);
  const char *bytes = t->data;
  return td_dtype_is_pod(t->dtype) && t->count && !memcmp(bytes, bytes + size, t->size - size);
}

static td_status copy_strings(td_string *to, const td_string *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) TD_TRY(td_string_set(&to[i], td_string_view(&from[i])));
  return TD_STATUS_OK;
}

static void copy_handles(td_resource_handle **to, td_resource_handle *const *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    td_resource_handle *old = to[i];
    to[i] = from[i] ? td_resource_handle_retain(from[i]) : NULL;
    td_resource_handle_release(old);
  }
}

static void copy_variants(td_variant **to, td_variant *const *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    td_variant *old = to[i];
    to[i] = from[i] ? td_variant_retain(from[i]) : NULL;
    td_variant_release(old);
  }
}

static td_status copy_elements(td_tensor *dst, int64_t to, const td_tensor *src, int64_t from, int64_t n) {
  assert(dst->dtype == src->dtype && n >= 0 && to >= 0 && from >= 0 && n <= dst->count - to && n <= src->count - from);
  size_t size = td_dtype_size(dst->dtype);
  void *target = (char *)dst->data + (size_t)to * size;
  const void *source = (const char *)src->data + (size_t)from * size;
  switch (dst->dtype) {
    case TD_STRING:
      return copy_strings(target, source, n);
    case TD_RESOURCE:
      copy_handles(target, source, n);
      break;
    case TD_VARIANT:
      copy_variants(target, source, n);
      break;
    default:
      memmove(target, source, (size_t)n * size);
  }
  return TD_STATUS_OK;
}

void td_tensor_copy_elements(td_tensor *dst, int64_t to, const td_tensor *src, int64_t from, int64_t n) {
  td_status status = copy_elements(dst, to, src, from, n);
  if (!status) return;
  td_status_free(status);
  td_malloc(SIZE_MAX / 2); /* no memory for a copy of strings that are in memory already: ends the process */
}

td_status td_tensor_copy(const td_tensor *t, td_tensor **out) {
  td_tensor *copy;
  TD_TRY(create(t->dtype, t->rank, t->dims, false, &copy));
  td_status status = copy_elements(copy, 0, t, 0, t->count);
  if (status) {
    td_tensor_release(copy);
  } else {
    *out = copy;
  }
  return status;
}

void td_tensor_shape(const td_tensor *t, td_shape *out) { td_shape_set(out, t->rank, t->dims); }

char *td_tensor_shape_text(const td_tensor *t) { return td_dims_text(t->rank, t->dims); }

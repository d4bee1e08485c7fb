/* Tensor: an immutable dtype and shape, and elements.
 *
 * A tensor is one reference-counted object; passing it on is td_tensor_retain(). Its elements lie behind the
 * header (small ones) or in a pooled buffer, 64-byte aligned; a view shares the elements of another tensor, which
 * it retains. Whoever holds the only reference may write the elements (td_tensor_is_exclusive()); a shared tensor
 * is read-only.
 *
 * Elements of TD_STRING are td_string, of TD_RESOURCE td_resource_handle *, of TD_VARIANT td_variant *: they are
 * destroyed with the tensor that owns them. A new tensor of these types holds empty strings / NULLs; one of a plain
 * type holds whatever was in memory.
 *
 * Thread-safety: the reference count is atomic; elements are the business of who holds the tensor.
 */
#ifndef TD_TENSOR_TENSOR_H_
#define TD_TENSOR_TENSOR_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

/* Where the elements lie. */
typedef enum td_tensor_origin {
  TD_TENSOR_IN_BLOCK,  /* behind the header */
  TD_TENSOR_IN_BUFFER, /* in a buffer of their own */
  TD_TENSOR_IN_BASE,   /* in another tensor: a view */
  TD_TENSOR_FOREIGN,   /* in somebody else's memory, for reading only */
} td_tensor_origin;

typedef struct td_tensor td_tensor;
struct td_tensor {
  _Atomic uint32_t refs;
  uint8_t dtype; /* a td_dtype */
  uint8_t rank;
  uint8_t origin;         /* a td_tensor_origin */
  uint8_t has_value : 1;  /* 0 only for what stands for an uninitialised variable (its elements are zero) */
  uint8_t is_private : 1; /* never lent: its elements may be written while others hold it */
  int64_t count;          /* elements */
  size_t size;            /* bytes of the elements */
  void *data;             /* never NULL, 64-byte aligned unless a view */
  td_tensor *base;        /* a view's owner of the elements, retained; NULL: they are this tensor's own */
  int64_t dims[];         /* rank entries */
};

/* A tensor of `dtype` and `shape` with one reference. RESOURCE_EXHAUSTED (with shape and type) when there is no
 * memory, INVALID_ARGUMENT for a bad type or shape. */
td_status td_tensor_create(td_dtype dtype, const td_shape *shape, td_tensor **out) TD_MUST_USE;
td_status td_tensor_create_dims(td_dtype dtype, int rank, const int64_t *dims, td_tensor **out) TD_MUST_USE;
/* The same, every element zero (empty string). */
td_status td_tensor_create_zeros(td_dtype dtype, const td_shape *shape, td_tensor **out) TD_MUST_USE;

/* The same, standing for a variable of that shape that has no value yet: has_value is 0. For the debugger's ops. */
td_status td_tensor_create_valueless(td_dtype dtype, int rank, const int64_t *dims, td_tensor **out) TD_MUST_USE;

/* Where neighbours may borrow (loan.h), elements that fill more than a block lie in memory that other processes can
 * map: whether these do, and can be lent. */
bool td_tensor_is_lendable(const td_tensor *t);
/* Whether it is worth a copy of it that is lendable, though it is not. */
bool td_tensor_could_be_lendable(const td_tensor *t);
/* For an exclusive tensor whose elements will be written while others hold it, here and there: it is not lendable any
 * more, and moves to memory of huge pages. */
void td_tensor_keep_private(td_tensor *t);
static inline bool td_tensor_is_private(const td_tensor *t) { return (t->base ? t->base : t)->is_private; }

/* Memory that is not this room's; embed it. `release` runs once, on any thread, when nothing needs the elements. */
typedef struct td_foreign_memory td_foreign_memory;
struct td_foreign_memory {
  void (*release)(td_foreign_memory *m);
};
/* A tensor (of a plain type) over elements at `data`, which is read-only: never exclusive. INVALID_ARGUMENT for a bad
 * type or shape, or if the elements would take more than the `room` bytes there; then `m` stays the caller's, else it
 * passes. */
td_status td_tensor_create_foreign(td_dtype dtype, int rank, const int64_t *dims, const void *data, size_t room,
                                   td_foreign_memory *m, td_tensor **out) TD_MUST_USE;

/* Another shape over the same elements (count must match: asserted). Consumes nothing. */
td_tensor *td_tensor_reshape(td_tensor *t, int rank, const int64_t *dims);
/* Rows [begin, end) of the first dimension over the same elements; rank >= 1, range valid: asserted. The data may
 * be less aligned than 64 bytes. */
td_tensor *td_tensor_slice(td_tensor *t, int64_t begin, int64_t end);
/* Row `i` of it without that dimension, a view. */
td_tensor *td_tensor_row(td_tensor *t, int64_t i);
/* The same bytes as another type of the same element size (both plain). */
td_tensor *td_tensor_bitcast(td_tensor *t, td_dtype dtype, int rank, const int64_t *dims);
/* A deep copy (own elements). */
td_status td_tensor_copy(const td_tensor *t, td_tensor **out) TD_MUST_USE;

static inline td_tensor *td_tensor_retain(td_tensor *t) {
  /* relaxed: a new reference is made from one that is held; nothing is published by it */
  atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  return t;
}
void td_tensor_destroy_(td_tensor *t); /* the last reference is gone */
static inline void td_tensor_release(td_tensor *t) {
  if (!t) return;
  /* acquire, acq_rel: the last owner sees all writes made through other references. A count of one is the caller's own
   * and cannot change under it, which spares the locked instruction where it is needed most. */
  if (atomic_load_explicit(&t->refs, memory_order_acquire) == 1 ||
      atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1)
    td_tensor_destroy_(t);
}

/* Its elements are somebody else's, who cannot use that memory otherwise before the tensor goes. */
static inline bool td_tensor_is_foreign(const td_tensor *t) {
  return (t->base ? t->base : t)->origin == TD_TENSOR_FOREIGN;
}

/* The caller, holding one reference, is the only one who can reach these elements, and may write them. */
static inline bool td_tensor_is_exclusive(const td_tensor *t) {
  return atomic_load_explicit(&t->refs, memory_order_acquire) == 1 &&
         (!t->base || atomic_load_explicit(&t->base->refs, memory_order_acquire) == 1) && !td_tensor_is_foreign(t);
}

static inline bool td_tensor_same_shape(const td_tensor *a, const td_tensor *b) {
  return td_dims_eq(a->rank, a->dims, b->rank, b->dims);
}
void td_tensor_shape(const td_tensor *t, td_shape *out);
char *td_tensor_shape_text(const td_tensor *t); /* "[2,3]"; td_free()d by the caller */
/* Elements as TensorFlow's SummarizeValue prints them, at most `max` (for Print, Assert, errors); td_free()d. */
char *td_tensor_summarize(const td_tensor *t, int64_t max);

/* It has elements (of a plain type), and they are all the same, bit by bit. */
bool td_tensor_repeats_a_value(const td_tensor *t);

#define TD_DATA(t, type) ((type *)(t)->data)

static inline bool td_tensor_is_scalar(const td_tensor *t) { return t->rank == 0; }
static inline bool td_tensor_is_vector(const td_tensor *t) { return t->rank == 1; }

/* An integer element of an int32 or int64 tensor (indices, shapes, axes). */
static inline int64_t td_tensor_int_at(const td_tensor *t, int64_t i) {
  return t->dtype == TD_INT64 ? TD_DATA(t, int64_t)[i] : TD_DATA(t, int32_t)[i];
}

/* Copies elements [from, from+n) of `src` to position `to` of `dst` (same dtype), whatever their type. */
void td_tensor_copy_elements(td_tensor *dst, int64_t to, const td_tensor *src, int64_t from, int64_t n);

/* ---- strings ---- */
typedef struct td_string {
  char *data; /* td_malloc()ed, or NULL when empty */
  size_t size;
} td_string;
static inline td_str td_string_view(const td_string *s) { return (td_str){s->data ? s->data : "", s->size}; }
/* Replaces the element by a copy of `value`; RESOURCE_EXHAUSTED when there is no memory. */
td_status td_string_set(td_string *s, td_str value) TD_MUST_USE;
/* Replaces it by `data` (td_malloc()ed), which it takes. */
void td_string_take(td_string *s, char *data, size_t size);

/* ---- resource handles ---- */
typedef struct td_resource_handle {
  _Atomic uint32_t refs;
  char *device, *container, *name, *type_name; /* own copies */
  uint64_t hash_code;
  /* dtypes_and_shapes as it came, kept for a round trip (serialized sub-messages, field tags included) */
  char *extra;
  size_t extra_size;
} td_resource_handle;
td_resource_handle *td_resource_handle_create(td_str device, td_str container, td_str name, td_str type_name,
                                              uint64_t hash_code);
td_resource_handle *td_resource_handle_retain(td_resource_handle *h);
void td_resource_handle_release(td_resource_handle *h);

/* ---- variants ---- */
typedef struct td_variant td_variant;
typedef struct td_variant_ops {
  const char *type_name; /* as TensorFlow names it on the wire: "tensorflow::TensorList" */
  void (*destroy)(td_variant *v);
  td_status (*encode)(const td_variant *v, td_strbuf *out); /* a VariantTensorDataProto; NULL: cannot travel */
} td_variant_ops;
struct td_variant { /* immutable, reference-counted; embed it first */
  const td_variant_ops *ops;
  _Atomic uint32_t refs;
};
td_variant *td_variant_retain(td_variant *v);
void td_variant_release(td_variant *v);

#endif /* TD_TENSOR_TENSOR_H_ */

/* The array behind TensorArray ops: elements of one type that a step writes once and reads back, or, for an array of
 * gradients, sums up. Lives in the step's resources; thread-safe. */
#ifndef TD_OPS_TENSOR_ARRAY_DATA_H_
#define TD_OPS_TENSOR_ARRAY_DATA_H_

#include <pthread.h>

#include "framework/resource.h"
#include "ops/loops/loops.h"
#include "ops/partial_shape.h"

enum { TD_TENSOR_ARRAY_MAX = 1 << 26 }; /* elements */

typedef struct td_tensor_slot {
  td_tensor *value;                             /* NULL though written: zeros of `shape`, or cleared */
  td_partial_shape shape;                       /* full; what was written */
  bool is_written, is_read, is_cleared, is_sum; /* is_sum: `value` is the array's own */
} td_tensor_slot;

typedef struct td_tensor_array {
  td_resource resource;
  char *name; /* what errors call it */
  td_dtype dtype;
  td_map add;
  bool can_add, sums_writes, is_grad, clear_after_read, identical_shapes;
  pthread_mutex_t lock;
  /* guarded by lock */
  bool is_closed, is_dynamic, gradients_disallowed;
  int32_t marked_size;
  td_partial_shape element_shape;
  td_tensor_slot **pages; /* made on first use: a size says little about how many will be used */
  int64_t size, page_count;
} td_tensor_array;

extern const td_resource_type td_tensor_array_type;

typedef struct td_tensor_array_options {
  td_str name;
  td_dtype dtype;
  int64_t size;
  const td_partial_shape *element_shape; /* copied */
  bool identical_shapes, is_dynamic, clear_after_read;
  bool is_grad; /* sums writes; holds virtual zeros */
  int32_t marked_size;
} td_tensor_array_options;
td_status td_tensor_array_create(const td_tensor_array_options *o, td_tensor_array **out) TD_MUST_USE;
/* The array of gradients for `of`: elements of the shapes written there, with `prepend` before each. */
td_status td_tensor_array_create_grad(td_tensor_array *of, td_str name, const td_shape *prepend,
                                      td_tensor_array **out) TD_MUST_USE;

/* INVALID_ARGUMENT in TensorFlow's words. Retains `value`. */
td_status td_tensor_array_write(td_tensor_array *a, int64_t index, td_tensor *value) TD_MUST_USE;
/* One reference. */
td_status td_tensor_array_read(td_tensor_array *a, int64_t index, td_tensor **out) TD_MUST_USE;
/* Elements `indices[0..n)`, or the first n for NULL; one reference each. */
td_status td_tensor_array_read_many(td_tensor_array *a, const int32_t *indices, int64_t n, td_tensor **out) TD_MUST_USE;
td_status td_tensor_array_size(td_tensor_array *a, int32_t *out) TD_MUST_USE;
td_status td_tensor_array_pack_size(td_tensor_array *a, int32_t *out) TD_MUST_USE; /* what Pack and Concat read */
td_status td_tensor_array_mark_size(td_tensor_array *a, int32_t size) TD_MUST_USE; /* after Unpack and Split */
bool td_tensor_array_is_dynamic(td_tensor_array *a);
td_status td_tensor_array_merge_shape(td_tensor_array *a, const td_partial_shape *s) TD_MUST_USE;
void td_tensor_array_close(td_tensor_array *a);

#endif /* TD_OPS_TENSOR_ARRAY_DATA_H_ */

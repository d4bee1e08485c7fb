/* Shapes: rank and dimensions. */
#ifndef TD_TENSOR_SHAPE_H_
#define TD_TENSOR_SHAPE_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

enum { TD_MAX_RANK = 254 };

/* Only the first `rank` entries of dims mean anything: assignment of the whole struct copies 2 KiB, so pass
 * pointers and copy with td_shape_copy(). */
typedef struct td_shape {
  int rank;
  int64_t dims[TD_MAX_RANK];
} td_shape;

static inline void td_shape_copy(td_shape *to, const td_shape *from) {
  to->rank = from->rank;
  __builtin_memcpy(to->dims, from->dims, (size_t)from->rank * sizeof from->dims[0]);
}
static inline void td_shape_scalar(td_shape *s) { s->rank = 0; }
static inline void td_shape_vector(td_shape *s, int64_t n) {
  s->rank = 1;
  s->dims[0] = n;
}
void td_shape_set(td_shape *s, int rank, const int64_t *dims);
bool td_shape_eq(const td_shape *a, const td_shape *b);
bool td_dims_eq(int rank_a, const int64_t *a, int rank_b, const int64_t *b);

/* Appends a dimension: INVALID_ARGUMENT past TD_MAX_RANK or for a negative size. */
td_status td_shape_append(td_shape *s, int64_t dim) TD_MUST_USE;

/* Number of elements; INVALID_ARGUMENT when a dimension is negative or the product does not fit an int64. */
td_status td_shape_count(const td_shape *s, int64_t *out) TD_MUST_USE;

/* "[2,3]" as TensorFlow prints it; "?" for -1. The text is td_free()d by the caller. */
char *td_dims_text(int rank, const int64_t *dims);
static inline char *td_shape_text(const td_shape *s) { return td_dims_text(s->rank, s->dims); }

#endif /* TD_TENSOR_SHAPE_H_ */

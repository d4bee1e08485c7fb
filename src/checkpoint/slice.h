/* Slices of partitioned tensors: one extent per dimension.
 *
 * A slice is 4 KiB: pass pointers. Thread-safe: no state.
 */
#ifndef TD_CHECKPOINT_SLICE_H_
#define TD_CHECKPOINT_SLICE_H_

#include "base/status.h"
#include "base/str.h"
#include "tensor/tensor.h"

typedef struct td_slice {
  int rank;
  int64_t start[TD_MAX_RANK], length[TD_MAX_RANK]; /* length -1 (then start is 0): the whole dimension */
} td_slice;

/* Only the first `rank` extents mean anything: assignment would copy 4 KiB. */
void td_slice_copy_extents(td_slice *to, const td_slice *from);
void td_slice_full(td_slice *s, int rank);
/* Every extent is given as whole. */
bool td_slice_is_full(const td_slice *s);
bool td_slice_eq(const td_slice *a, const td_slice *b);

/* "0,2:-" and so on. INVALID_ARGUMENT in TensorFlow's words. */
td_status td_slice_parse(td_str text, td_slice *out) TD_MUST_USE;
/* What SaveV2 and RestoreV2 get: "4 3 0,2:-". The full shape, the slice, and the slice's shape. INVALID_ARGUMENT for a
 * bad text; INTERNAL, as TensorFlow, for a slice that the shape does not hold. */
td_status td_shape_and_slice_parse(td_str text, td_shape *full, td_slice *slice, td_shape *part) TD_MUST_USE;
/* The shape of a slice of `full`. */
td_status td_slice_shape(const td_slice *s, const td_shape *full, td_shape *out) TD_MUST_USE;
void td_slice_text(const td_slice *s, td_strbuf *out);

/* TensorSliceProto. INVALID_ARGUMENT for bytes that are none. */
td_status td_slice_decode(td_str bytes, td_slice *out) TD_MUST_USE;
void td_slice_encode(const td_slice *s, td_strbuf *out);

/* The key under which the slice of the tensor `name` is stored. */
void td_slice_key(td_str name, const td_slice *s, td_strbuf *out);

/* What two slices of a tensor of shape `full` (which must hold both) have in common: false for nothing. All extents of
 * *out are explicit. */
bool td_slice_intersect(const td_slice *a, const td_slice *b, const td_shape *full, td_slice *out);
/* Copies `part` (explicit extents, within both) from `from`, which holds the slice `from_slice`, to `to`. */
void td_slice_copy(const td_slice *part, const td_tensor *from, const td_slice *from_slice, td_tensor *to,
                   const td_slice *to_slice);

#endif /* TD_CHECKPOINT_SLICE_H_ */

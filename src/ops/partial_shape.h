/* Shapes of which parts are unknown, as data structures that live across steps keep them. Plain values: the owner
 * guards them. */
#ifndef TD_OPS_PARTIAL_SHAPE_H_
#define TD_OPS_PARTIAL_SHAPE_H_

#include "framework/op.h"
#include "tensor/tensor.h"

/* Of unknown rank when rank is -1. */
typedef struct td_partial_shape {
  int rank;
  int64_t *dims; /* own; -1: unknown */
} td_partial_shape;

#define TD_PARTIAL_SHAPE_UNKNOWN ((td_partial_shape){.rank = -1})

td_partial_shape td_partial_shape_make(int rank, const int64_t *dims); /* a copy; -1: unknown rank */
void td_partial_shape_deinit(td_partial_shape *s);
/* INVALID_ARGUMENT for more than TD_MAX_RANK dimensions. *out is set only on success. */
td_status td_partial_shape_of(const Pb__TensorShapeProto *p, td_partial_shape *out) TD_MUST_USE;
td_status td_partial_shape_attr(const td_node_def *n, const char *name, td_partial_shape *out) TD_MUST_USE;
bool td_partial_shape_is_full(const td_partial_shape *s);
/* Whether both could be one shape. */
bool td_partial_shape_fits(const td_partial_shape *s, int rank, const int64_t *dims);
bool td_partial_shape_eq(const td_partial_shape *a, const td_partial_shape *b);
/* Fills in what `s` lacks. INVALID_ARGUMENT "Incompatible shapes (ranks) during merge: <a> vs. <b>". */
td_status td_partial_shape_merge(td_partial_shape *s, int rank, const int64_t *dims) TD_MUST_USE;
char *td_partial_shape_text(const td_partial_shape *s); /* "[?,2]", "<unknown>"; td_free()d by the caller */

#endif /* TD_OPS_PARTIAL_SHAPE_H_ */

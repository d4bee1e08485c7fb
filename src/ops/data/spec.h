/* What a dataset's elements look like: how many components, their types and partial shapes. Plain values. */
#ifndef TD_OPS_DATA_SPEC_H_
#define TD_OPS_DATA_SPEC_H_

#include "framework/op.h"
#include "ops/partial_shape.h"

typedef struct td_data_spec {
  int width; /* components */
  td_dtype *types;
  td_partial_shape *shapes;
} td_data_spec;

/* From a node's attributes `types` (a list of types) and "output_shapes". INVALID_ARGUMENT if their lengths differ.
 * What was acquired is released by td_data_spec_deinit() also after a failure. */
td_status td_data_spec_attr(const td_node_def *n, const char *types, td_data_spec *out) TD_MUST_USE;
void td_data_spec_copy(const td_data_spec *from, td_data_spec *to);
/* One component of a full or partial shape. */
void td_data_spec_init_one(td_data_spec *s, td_dtype type, int rank, const int64_t *dims);
void td_data_spec_deinit(td_data_spec *s);
/* Whether something of `got` may stand where `want` is expected; INVALID_ARGUMENT in TensorFlow's words. */
td_status td_data_spec_check(const td_data_spec *want, const td_data_spec *got) TD_MUST_USE;

#endif /* TD_OPS_DATA_SPEC_H_ */

/* Optionals: a variant that holds some tensors or none. Immutable; travels in TensorFlow's encoding. */
#ifndef TD_OPS_DATA_OPTIONAL_H_
#define TD_OPS_DATA_OPTIONAL_H_

#include "tensor/tensor.h"

typedef struct td_optional {
  td_variant variant;
  bool has_value;
  int count;
  td_tensor *values[]; /* one reference each */
} td_optional;

/* One reference; takes over the references in `values`, not the array. */
td_optional *td_optional_create(int count, td_tensor **values);
td_optional *td_optional_create_none(void);
/* A scalar variant tensor that holds `o`, whose reference it takes, also on failure. */
td_status td_optional_tensor(td_optional *o, td_tensor **out) TD_MUST_USE;
/* The optional that `v` is or, after a journey, encodes: one reference. NULL without an error if it is none. */
td_status td_optional_of(td_variant *v, td_optional **out) TD_MUST_USE;

/* Zeros of all values, the sum of two; `depth` as in ops/variant_math.h. One reference. */
td_status td_optional_zeros_like(const td_optional *o, int depth, td_optional **out) TD_MUST_USE;
td_status td_optional_add(const td_optional *a, const td_optional *b, int depth, td_optional **out) TD_MUST_USE;

#endif /* TD_OPS_DATA_OPTIONAL_H_ */

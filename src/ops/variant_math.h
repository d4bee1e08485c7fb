/* Zeros and sums of tensors whose elements may be variants: lists and optionals, nested in each other. Behind AddN and
 * ZerosLike of variants. */
#ifndef TD_OPS_VARIANT_MATH_H_
#define TD_OPS_VARIANT_MATH_H_

#include "tensor/tensor.h"

enum { TD_VARIANT_MAX_DEPTH = 64 }; /* of variants in variants */

/* Zeros of the shape and type of `t`, one reference. `depth`: how many variants `t` lies in; RESOURCE_EXHAUSTED past
 * the limit. INVALID_ARGUMENT for a variant without zeros, UNIMPLEMENTED for resources. */
td_status td_variant_zeros_like(const td_tensor *t, int depth, td_tensor **out) TD_MUST_USE;
/* The sum of two tensors, one reference. INVALID_ARGUMENT unless types and shapes agree and can be added. */
td_status td_variant_add(td_tensor *a, td_tensor *b, int depth, td_tensor **out) TD_MUST_USE;

#endif /* TD_OPS_VARIANT_MATH_H_ */

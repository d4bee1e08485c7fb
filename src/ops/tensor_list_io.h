/* Inputs and outputs of ops on TensorLists; errors in TensorFlow's words. */
#ifndef TD_OPS_TENSOR_LIST_IO_H_
#define TD_OPS_TENSOR_LIST_IO_H_

#include "ops/tensor_list_data.h"

/* Element `i` of a variant tensor, as a list: one reference. INVALID_ARGUMENT for anything else. */
td_status td_list_at(const td_tensor *t, int64_t i, td_tensor_list **out) TD_MUST_USE;
/* The list that the scalar on input `i` holds: one reference. */
td_status td_in_list(td_kernel_ctx *ctx, int i, td_tensor_list **out) TD_MUST_USE;
/* The list on input 0, whose elements must be of that type: one reference. */
td_status td_in_typed_list(td_kernel_ctx *ctx, td_dtype t, td_tensor_list **out) TD_MUST_USE;
td_status td_list_check_dtype(const td_tensor_list *l, td_dtype t) TD_MUST_USE;
/* A list to change, in place of `l`, whose reference it takes: the same where only input 0 and the caller hold it, else
 * a copy. */
td_tensor_list *td_list_own(td_kernel_ctx *ctx, td_tensor_list *l);
/* Sets output 0 to the list, which it takes; sets nothing when `s` is an error, which it hands on. */
td_status td_out_list(td_kernel_ctx *ctx, td_tensor_list *l, td_status s) TD_MUST_USE;

/* A scalar int32. INVALID_ARGUMENT, naming it as `what`. */
td_status td_in_int32(td_kernel_ctx *ctx, int i, const char *what, int32_t *out) TD_MUST_USE;

/* An element shape from a tensor: a vector with -1 for unknown sizes, or the scalar -1 for an unknown rank. The caller
 * deinits it. */
td_status td_list_shape_from(const td_tensor *t, td_partial_shape *out) TD_MUST_USE;
/* What input `i` says of the elements' shape, together with what the list knows. The caller deinits it. */
td_status td_list_merged_shape(td_kernel_ctx *ctx, int i, const td_tensor_list *l, td_partial_shape *out) TD_MUST_USE;
/* INVALID_ARGUMENT "<before><shape><between><partial shape>" */
td_status td_list_shape_error(const char *before, const char *shape, const char *between,
                              const td_partial_shape *p) TD_MUST_USE;
/* Zeros of a shape that is known in full: one reference. */
td_status td_list_zeros(td_dtype dtype, const td_partial_shape *p, td_tensor **out) TD_MUST_USE;

#endif /* TD_OPS_TENSOR_LIST_IO_H_ */

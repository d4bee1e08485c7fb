/* Tensors as TensorProto messages, in bytes.
 *
 * Every encoding that TensorFlow's programs send is read: tensor_content, typed lists (packed or not, the last
 * value standing for all that follow), strings, resource handles and variants in both forms. Written is always
 * tensor_content, in the layout that TensorFlow's fast parser takes.
 *
 * Shapes and sizes are checked before anything is allocated. Errors: INVALID_ARGUMENT for bytes that are no
 * TensorProto, for a bad type or shape, for content that does not fit them; RESOURCE_EXHAUSTED for what is too
 * large. Thread-safe: no state.
 */
#ifndef TD_TENSOR_TENSOR_PROTO_H_
#define TD_TENSOR_TENSOR_PROTO_H_

#include "base/status.h"
#include "base/str.h"
#include "proto/framework.pb-c.h"
#include "tensor/tensor.h"

/* Room for the header of any tensor, in bytes (rank 254, every dimension large). */
enum { TD_TENSOR_HEADER_MAX = 4096 };

/* A tensor with one reference from the bytes of a TensorProto, which are copied. A list that is shorter than the
 * shape may not stand for more than 2 GiB. */
td_status td_tensor_decode(td_str bytes, td_tensor **out) TD_MUST_USE;
/* The same from a decoded message (an attribute's value). */
td_status td_tensor_from_proto(const Pb__TensorProto *proto, td_tensor **out) TD_MUST_USE;

/* For a tensor of a plain type: all of its TensorProto but the elements, `t->size` bytes at `t->data`, which must
 * follow. Writes at most TD_TENSOR_HEADER_MAX bytes at `to` and returns how many. */
size_t td_tensor_proto_header(const td_tensor *t, uint8_t *to);

/* Appends the whole TensorProto of any tensor. UNIMPLEMENTED for a variant that cannot travel. */
td_status td_tensor_encode(const td_tensor *t, td_strbuf *out) TD_MUST_USE;
/* Appends a string tensor with its elements as a list (string_val), the only form that other programs read. */
void td_tensor_encode_strings(const td_tensor *t, td_strbuf *out);

/* dtype, dims and so on of a message that names no content, from the bytes of a TensorShapeProto. Unknown sizes are
 * -1; *unknown_rank with no dims for an unknown rank. INVALID_ARGUMENT for sizes below -1 or too many. */
td_status td_shape_decode(td_str bytes, td_shape *out, bool *unknown_rank) TD_MUST_USE;
td_status td_shape_from_proto(const Pb__TensorShapeProto *proto, td_shape *out, bool *unknown_rank) TD_MUST_USE;
/* Appends a TensorShapeProto (no tag or length before it). */
void td_shape_encode(int rank, const int64_t *dims, td_strbuf *out);

/* ---- handles and variants ---- */

/* A handle with one reference from the bytes of a ResourceHandleProto; NULL for no bytes. */
td_status td_resource_handle_decode(td_str bytes, td_resource_handle **out) TD_MUST_USE;
void td_resource_handle_encode(const td_resource_handle *h, td_strbuf *out);

/* A variant as it came from a peer: the bytes of its VariantTensorDataProto. Who knows the type (type_name) decodes
 * them when the value is used. It travels on unchanged. */
typedef struct td_opaque_variant {
  td_variant variant;
  char *type_name;
  char *bytes;
  size_t size;
} td_opaque_variant;

/* Appends a VariantTensorDataProto, nothing for NULL. UNIMPLEMENTED when it cannot travel. */
td_status td_variant_encode(const td_variant *v, td_strbuf *out) TD_MUST_USE;
/* NULL for no bytes. */
td_status td_opaque_variant_decode(td_str bytes, td_variant **out) TD_MUST_USE;
/* `v` as an opaque variant; NULL when it is something else. */
const td_opaque_variant *td_variant_as_opaque(const td_variant *v);

#endif /* TD_TENSOR_TENSOR_PROTO_H_ */

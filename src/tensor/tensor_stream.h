/* A TensorProto that arrives in pieces, its elements straight into the tensor.
 *
 * The stream is told how long the message is and fed its bytes, in order, in pieces of any size. As soon as type,
 * shape and the content's length have come and agree with each other and with the message's length, the tensor is
 * allocated and window() says where the content's next bytes belong; until then, or for a message in another form
 * (lists, strings), bytes are gathered as they come and decoded at the end. A message that is only announced costs
 * nothing; one whose header came takes address space, and memory page by page as its content comes.
 *
 *   td_tensor_stream s;
 *   td_tensor_stream_init(&s, size);
 *   … feed() or window() + landed() until td_tensor_stream_left(&s) is 0 …
 *   status = td_tensor_stream_finish(&s, &tensor);
 *   td_tensor_stream_deinit(&s);
 *
 * Embedded, one owner, not thread-safe. Errors as td_tensor_decode(); after one only deinit() is allowed.
 */
#ifndef TD_TENSOR_TENSOR_STREAM_H_
#define TD_TENSOR_TENSOR_STREAM_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/tensor.h"

typedef struct td_tensor_stream {
  size_t left;        /* bytes of the message still to come */
  td_strbuf gathered; /* the message so far, unless its content goes to the tensor */
  bool plain;         /* it is known that no content goes straight to a tensor */
  td_tensor *tensor;  /* being filled */
  size_t filled;      /* bytes of it */
} td_tensor_stream;

/* For a TensorProto of `size` bytes, none of which has come yet. Nothing is reserved. */
void td_tensor_stream_init(td_tensor_stream *s, size_t size);
static inline size_t td_tensor_stream_left(const td_tensor_stream *s) { return s->left; }

/* The message's next `size` bytes, at most what is left (asserted). */
td_status td_tensor_stream_feed(td_tensor_stream *s, const void *data, size_t size) TD_MUST_USE;

/* Where the next bytes belong and how many of them; NULL: they must go through feed(). */
void *td_tensor_stream_window(td_tensor_stream *s, size_t *size);
/* `size` bytes were written at the window's start. */
void td_tensor_stream_landed(td_tensor_stream *s, size_t size);

/* All bytes came: the tensor, with one reference. INVALID_ARGUMENT when some are missing. */
td_status td_tensor_stream_finish(td_tensor_stream *s, td_tensor **out) TD_MUST_USE;
void td_tensor_stream_deinit(td_tensor_stream *s);

#endif /* TD_TENSOR_TENSOR_STREAM_H_ */

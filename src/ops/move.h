/* Moving elements between tensors: one strided copy serves most array ops.
 *
 * A td_move says how elements are walked: `rank` loops, each with a count and the distance, in elements, that one
 * turn advances in the source and in the destination. Distances may be zero (repeat) or negative (reverse). The
 * copy merges loops, picks the innermost ones by their distances (rows by memcpy, blocked transposes, strided
 * element loops) and spreads large moves over the step's pool. It works by element size; strings, resources and
 * variants are copied as such. Source and destination must not overlap.
 */
#ifndef TD_OPS_MOVE_H_
#define TD_OPS_MOVE_H_

#include "framework/kernel.h"

enum { TD_MOVE_MAX_RANK = 2 * TD_MAX_RANK + 4 };

/* Large (12 KB): lives on the stack, never initialised as a whole. Set rank = 0 and add loops, outermost first. */
typedef struct td_move {
  int rank;
  int64_t dims[TD_MOVE_MAX_RANK], from[TD_MOVE_MAX_RANK], to[TD_MOVE_MAX_RANK];
} td_move;

static inline void td_move_add(td_move *m, int64_t dim, int64_t from, int64_t to) {
  assert(m->rank < TD_MOVE_MAX_RANK);
  m->dims[m->rank] = dim;
  m->from[m->rank] = from;
  m->to[m->rank++] = to;
}

/* Copies, starting at element `src_at` of `src` and `dst_at` of `dst` (same dtype). Every index that the loops reach
 * must be valid: the caller checked the shapes. `ctx` may be NULL (everything inline). Changes `m`. */
void td_move_run(td_kernel_ctx *ctx, td_move *m, const td_tensor *src, int64_t src_at, td_tensor *dst, int64_t dst_at);

/* Copies `n` elements in order; large ones on the pool. */
void td_move_flat(td_kernel_ctx *ctx, const td_tensor *src, int64_t src_at, td_tensor *dst, int64_t dst_at, int64_t n);

/* dst[i * to + j] = src[j * from + i] for i < rows, j < columns; on this thread. */
void td_transpose_floats(const float *src, int64_t from, float *dst, int64_t to, int64_t rows, int64_t columns);

/* Sets elements [at, at + n) of `dst` to element `index` of `value` (same dtype). */
void td_fill_elements(td_tensor *dst, int64_t at, int64_t n, const td_tensor *value, int64_t index);
/* Sets them to zero (plain types only; a fresh tensor of another type is empty already). */
void td_zero_elements(td_tensor *dst, int64_t at, int64_t n);

/* Row-major strides. They mean something only if the tensor has elements. */
void td_strides(int rank, const int64_t *dims, int64_t *out);

/* The product of dims [begin, end); wraps silently only when another dimension is 0. */
static inline int64_t td_dims_product(const int64_t *dims, int begin, int end) {
  uint64_t n = 1;
  for (int i = begin; i < end; i++) n *= (uint64_t)dims[i];
  return (int64_t)n;
}

/* Rows [begin, end) of `t` with another shape: a view where that pays (large and 64-byte aligned), else a copy into a
 * fresh tensor. Becomes output `i`. `dims` must have the same count. */
td_status td_out_rows(td_kernel_ctx *ctx, int in, int i, int64_t begin, int64_t end, int rank,
                      const int64_t *dims) TD_MUST_USE;
/* Input `in` under another shape as output `i`, without a copy. */
void td_out_reshaped(td_kernel_ctx *ctx, int in, int i, int rank, const int64_t *dims);

/* Shape texts inside error messages: TD_SHOW(t) lives until the end of the enclosing block. */
typedef struct td_show_buf {
  char text[512];
} td_show_buf;
const char *td_show_dims(td_show_buf *b, int rank, const int64_t *dims);
#define TD_SHOW(t) td_show_dims(&(td_show_buf){.text = ""}, (t)->rank, (t)->dims)

/* "[1,2]" position of flat element `i` in a tensor of that shape, for error messages; "" for a scalar. */
const char *td_show_index(td_show_buf *b, int rank, const int64_t *dims, int64_t i);

/* A scalar or one-element tensor where old graphs may carry a one-element vector. */
static inline bool td_is_legacy_scalar(const td_tensor *t) { return t->rank == 0 || (t->rank == 1 && t->dims[0] == 1); }

#endif /* TD_OPS_MOVE_H_ */

#include "ops/bcast.h"

#include <string.h>

#include "base/mem.h"

static td_status incompatible(int n, const int *ranks, const int64_t *const *dims) {
  char *text[TD_BCAST_OPERANDS] = {0};
  for (int k = 0; k < n; k++) text[k] = td_dims_text(ranks[k], dims[k]);
  td_status s =
      n == 2 ? td_invalid_argument("Incompatible shapes: %s vs. %s", text[0], text[1])
             : td_invalid_argument("Incompatible shapes: %s vs. %s vs. %s", text[0], text[1], n > 2 ? text[2] : "");
  for (int k = 0; k < n; k++) td_free(text[k]);
  return s;
}

/* Size of operand k in output dimension d (both counted from the innermost). */
static int64_t dim_at(const int *ranks, const int64_t *const *dims, int k, int from_end) {
  return from_end < ranks[k] ? dims[k][ranks[k] - 1 - from_end] : 1;
}

static td_status output_shape(td_bcast *b, int n, const int *ranks, const int64_t *const *dims) {
  int rank = 0;
  for (int k = 0; k < n; k++) rank = TD_MAX(rank, ranks[k]);
  b->shape.rank = rank;
  for (int i = 0; i < rank; i++) {
    int64_t size = 1;
    for (int k = 0; k < n; k++) {
      int64_t d = dim_at(ranks, dims, k, i);
      if (d == 1 || d == size) continue;
      if (size != 1) return incompatible(n, ranks, dims);
      size = d;
    }
    b->shape.dims[rank - 1 - i] = size;
  }
  return td_shape_count(&b->shape, &b->count);
}

/* Which operands are repeated along a dimension, as bits. */
static unsigned pattern_at(const td_bcast *b, const int *ranks, const int64_t *const *dims, int from_end) {
  unsigned repeated = 0;
  for (int k = 0; k < b->operands; k++)
    if (dim_at(ranks, dims, k, from_end) == 1) repeated |= 1u << k;
  return repeated;
}

td_status td_bcast_init_shapes(td_bcast *b, int n, const int *ranks, const int64_t *const *dims) {
  b->operands = n;
  b->rank = 0;
  TD_TRY(output_shape(b, n, ranks, dims));
  b->dims = b->memory;
  for (int k = 0; k < n; k++) b->strides[k] = b->memory + (1 + k) * TD_MAX_RANK;
  if (!b->count) { /* nothing to walk; other dimensions might overflow when multiplied */
    b->dims[0] = 0;
    for (int k = 0; k < n; k++) b->strides[k][0] = 1;
    b->rank = 1;
    return TD_STATUS_OK;
  }
  /* merge from the innermost outwards, filling the arrays backwards */
  int64_t span[TD_BCAST_OPERANDS]; /* elements of each operand below the current dimension */
  for (int k = 0; k < n; k++) span[k] = 1;
  unsigned last = ~0u;
  int rank = 0;
  for (int i = 0; i < b->shape.rank; i++) {
    int64_t size = b->shape.dims[b->shape.rank - 1 - i];
    if (size == 1) continue;
    unsigned pattern = pattern_at(b, ranks, dims, i);
    if (pattern == last) {
      b->dims[rank - 1] *= size;
    } else {
      b->dims[rank] = size;
      for (int k = 0; k < n; k++) b->strides[k][rank] = pattern >> k & 1 ? 0 : span[k];
      last = pattern;
      rank++;
    }
    for (int k = 0; k < n; k++)
      if (!(pattern >> k & 1)) span[k] *= size;
  }
  if (!rank) {
    b->dims[0] = 1;
    for (int k = 0; k < n; k++) b->strides[k][0] = 0;
    rank = 1;
  }
  b->rank = rank;
  /* outermost first */
  for (int i = 0; i < rank / 2; i++) {
    int64_t t = b->dims[i];
    b->dims[i] = b->dims[rank - 1 - i];
    b->dims[rank - 1 - i] = t;
    for (int k = 0; k < n; k++) {
      t = b->strides[k][i];
      b->strides[k][i] = b->strides[k][rank - 1 - i];
      b->strides[k][rank - 1 - i] = t;
    }
  }
  return TD_STATUS_OK;
}

td_status td_bcast_init(td_bcast *b, int n, const td_tensor *const *operands) {
  int ranks[TD_BCAST_OPERANDS];
  const int64_t *dims[TD_BCAST_OPERANDS];
  for (int k = 0; k < n; k++) {
    ranks[k] = operands[k]->rank;
    dims[k] = operands[k]->dims;
  }
  return td_bcast_init_shapes(b, n, ranks, dims);
}

void td_bcast_run(const td_bcast *b, int64_t begin, int64_t end, td_bcast_fn fn, void *arg) {
  if (begin >= end) return;
  int64_t at[TD_MAX_RANK], offsets[TD_BCAST_OPERANDS] = {0};
  int inner = b->rank - 1;
  int64_t rest = begin;
  for (int d = inner; d >= 0; d--) {
    at[d] = rest % b->dims[d];
    rest /= b->dims[d];
    for (int k = 0; k < b->operands; k++) offsets[k] += at[d] * b->strides[k][d];
  }
  for (int64_t pos = begin; pos < end;) {
    int64_t n = TD_MIN(b->dims[inner] - at[inner], end - pos);
    fn(arg, offsets, pos, n);
    pos += n;
    /* back to the start of the row, then on to the next */
    for (int k = 0; k < b->operands; k++) offsets[k] -= at[inner] * b->strides[k][inner];
    at[inner] = 0;
    for (int d = inner - 1; d >= 0; d--) {
      at[d]++;
      for (int k = 0; k < b->operands; k++) offsets[k] += b->strides[k][d];
      if (at[d] < b->dims[d]) break;
      for (int k = 0; k < b->operands; k++) offsets[k] -= at[d] * b->strides[k][d];
      at[d] = 0;
    }
  }
}

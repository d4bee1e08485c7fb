#include "tensor/shape.h"

#include <assert.h>
#include <inttypes.h>

#include "base/mem.h"

void td_shape_set(td_shape *s, int rank, const int64_t *dims) {
  assert(rank >= 0 && rank <= TD_MAX_RANK);
  s->rank = rank;
  if (rank) memcpy(s->dims, dims, (size_t)rank * sizeof *dims);
}

bool td_dims_eq(int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
  return rank_a == rank_b && (rank_a == 0 || !memcmp(a, b, (size_t)rank_a * sizeof *a));
}

bool td_shape_eq(const td_shape *a, const td_shape *b) { return td_dims_eq(a->rank, a->dims, b->rank, b->dims); }

td_status td_shape_append(td_shape *s, int64_t dim) {
  if (s->rank >= TD_MAX_RANK) return td_invalid_argument("Too many dimensions in tensor: more than %d", TD_MAX_RANK);
  if (dim < 0) return td_invalid_argument("Dimension %" PRId64 " must be >= 0", dim);
  s->dims[s->rank++] = dim;
  return TD_STATUS_OK;
}

td_status td_shape_count(const td_shape *s, int64_t *out) {
  int64_t count = 1;
  for (int i = 0; i < s->rank; i++) {
    bool negative = s->dims[i] < 0;
    if (!negative && !__builtin_mul_overflow(count, s->dims[i], &count)) continue;
    char *text = td_shape_text(s);
    td_status status = negative ? td_invalid_argument("Shape %s is not fully defined", text)
                                : td_invalid_argument("Shape %s is too large (more than 2**63 - 1 entries)", text);
    td_free(text);
    return status;
  }
  *out = count;
  return TD_STATUS_OK;
}

char *td_dims_text(int rank, const int64_t *dims) {
  td_strbuf b = {0};
  td_strbuf_putc(&b, '[');
  for (int i = 0; i < rank; i++) {
    if (i) td_strbuf_putc(&b, ',');
    if (dims[i] == -1) {
      td_strbuf_putc(&b, '?');
    } else {
      td_strbuf_printf(&b, "%" PRId64, dims[i]);
    }
  }
  td_strbuf_putc(&b, ']');
  return td_strbuf_take(&b);
}

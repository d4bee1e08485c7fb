#include "ops/partial_shape.h"

#include <string.h>

#include "base/mem.h"

td_partial_shape td_partial_shape_make(int rank, const int64_t *dims) {
  td_partial_shape s = {.rank = rank};
  if (rank <= 0) return s;
  s.dims = td_new_array(int64_t, (size_t)rank);
  memcpy(s.dims, dims, (size_t)rank * sizeof *dims);
  return s;
}

void td_partial_shape_deinit(td_partial_shape *s) {
  td_free(s->dims);
  *s = TD_PARTIAL_SHAPE_UNKNOWN;
}

td_status td_partial_shape_of(const Pb__TensorShapeProto *p, td_partial_shape *out) {
  if (p->unknown_rank) {
    *out = TD_PARTIAL_SHAPE_UNKNOWN;
    return TD_STATUS_OK;
  }
  if (p->n_dim > TD_MAX_RANK) return td_invalid_argument("A shape of rank %zu is too large", p->n_dim);
  *out = (td_partial_shape){.rank = (int)p->n_dim, .dims = p->n_dim ? td_new_array(int64_t, p->n_dim) : NULL};
  for (size_t i = 0; i < p->n_dim; i++) out->dims[i] = p->dim[i]->size < 0 ? -1 : p->dim[i]->size;
  return TD_STATUS_OK;
}

td_status td_partial_shape_attr(const td_node_def *n, const char *name, td_partial_shape *out) {
  const Pb__TensorShapeProto *p;
  TD_TRY(td_attr_shape(n, name, &p));
  return td_partial_shape_of(p, out);
}

bool td_partial_shape_is_full(const td_partial_shape *s) {
  for (int i = 0; i < s->rank; i++)
    if (s->dims[i] < 0) return false;
  return s->rank >= 0;
}

bool td_partial_shape_fits(const td_partial_shape *s, int rank, const int64_t *dims) {
  if (s->rank < 0 || rank < 0) return true;
  if (s->rank != rank) return false;
  for (int i = 0; i < rank; i++)
    if (s->dims[i] >= 0 && dims[i] >= 0 && s->dims[i] != dims[i]) return false;
  return true;
}

bool td_partial_shape_eq(const td_partial_shape *a, const td_partial_shape *b) {
  return a->rank == b->rank && (a->rank <= 0 || !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims));
}

td_status td_partial_shape_merge(td_partial_shape *s, int rank, const int64_t *dims) {
  if (rank < 0) return TD_STATUS_OK;
  if (s->rank >= 0 && s->rank != rank)
    return td_invalid_argument("Incompatible ranks during merge: %d vs. %d", s->rank, rank);
  if (!td_partial_shape_fits(s, rank, dims)) {
    char *a = td_partial_shape_text(s), *b = td_dims_text(rank, dims);
    td_status status = td_invalid_argument("Incompatible shapes during merge: %s vs. %s", a, b);
    td_free(a);
    td_free(b);
    return status;
  }
  if (s->rank < 0) {
    *s = td_partial_shape_make(rank, dims);
    return TD_STATUS_OK;
  }
  for (int i = 0; i < rank; i++)
    if (s->dims[i] < 0) s->dims[i] = dims[i];
  return TD_STATUS_OK;
}

char *td_partial_shape_text(const td_partial_shape *s) {
  return s->rank < 0 ? td_strdup("<unknown>") : td_dims_text(s->rank, s->dims);
}

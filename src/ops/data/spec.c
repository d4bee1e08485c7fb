#include "ops/data/spec.h"

#include "base/mem.h"

static void alloc(td_data_spec *s, int width) {
  s->width = width;
  s->types = td_new_array(td_dtype, (size_t)width + 1);
  s->shapes = td_new_array(td_partial_shape, (size_t)width + 1);
}

td_status td_data_spec_attr(const td_node_def *n, const char *types, td_data_spec *out) {
  const Pb__AttrValue__ListValue *t, *shapes;
  TD_TRY(td_attr_list(n, types, &t));
  TD_TRY(td_attr_list(n, "output_shapes", &shapes));
  if (t->n_type != shapes->n_shape)
    return td_invalid_argument("`%s` and `output_shapes` must be the same length: %zu and %zu", types, t->n_type,
                               shapes->n_shape);
  alloc(out, (int)t->n_type);
  for (int i = 0; i < out->width; i++) {
    out->types[i] = (td_dtype)t->type[i];
    TD_TRY(td_partial_shape_of(shapes->shape[i], &out->shapes[i]));
  }
  return TD_STATUS_OK;
}

void td_data_spec_copy(const td_data_spec *from, td_data_spec *to) {
  alloc(to, from->width);
  for (int i = 0; i < from->width; i++) {
    to->types[i] = from->types[i];
    to->shapes[i] = td_partial_shape_make(from->shapes[i].rank, from->shapes[i].dims);
  }
}

void td_data_spec_init_one(td_data_spec *s, td_dtype type, int rank, const int64_t *dims) {
  alloc(s, 1);
  s->types[0] = type;
  s->shapes[0] = td_partial_shape_make(rank, dims);
}

void td_data_spec_deinit(td_data_spec *s) {
  for (int i = 0; i < s->width; i++) td_partial_shape_deinit(&s->shapes[i]);
  td_free(s->shapes);
  td_free(s->types);
  *s = (td_data_spec){0};
}

td_status td_data_spec_check(const td_data_spec *want, const td_data_spec *got) {
  if (want->width != got->width)
    return td_invalid_argument("Number of components does not match: expected %d types but got %d.", want->width,
                               got->width);
  for (int i = 0; i < want->width; i++)
    if (want->types[i] != got->types[i])
      return td_invalid_argument("Data type mismatch at component %d: expected %s but got %s.", i,
                                 td_dtype_name(want->types[i]), td_dtype_name(got->types[i]));
  for (int i = 0; i < want->width; i++) {
    if (td_partial_shape_fits(&want->shapes[i], got->shapes[i].rank, got->shapes[i].dims)) continue;
    char *a = td_partial_shape_text(&want->shapes[i]), *b = td_partial_shape_text(&got->shapes[i]);
    td_status s = td_invalid_argument("Incompatible shapes at component %d: expected %s but got %s.", i, a, b);
    td_free(a);
    td_free(b);
    return s;
  }
  return TD_STATUS_OK;
}

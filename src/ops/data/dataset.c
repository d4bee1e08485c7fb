#include "ops/data/dataset.h"

#include "base/mem.h"
#include "ops/data/captured.h"

/* ---- kernels ---- */

td_status td_dataset_kernel_init(td_kernel_builder *b, td_dataset_kernel *k, const char *types) {
  return types ? td_data_spec_attr(b->node, types, &k->spec) : TD_STATUS_OK;
}

td_status td_dataset_kernel_create(td_kernel_builder *b, void *state) {
  return td_dataset_kernel_init(b, state, "output_types");
}

void td_dataset_kernel_destroy(void *state) {
  td_dataset_kernel *k = state;
  for (int i = 0; i < k->function_count; i++) td_data_function_deinit(&k->functions[i]);
  td_free(k->functions);
  td_data_spec_deinit(&k->spec);
}

/* ---- datasets ---- */

static void destroy(td_variant *v) {
  td_dataset *d = (td_dataset *)v;
  if (d->ops->destroy) d->ops->destroy(d);
  for (int i = 0; i < d->input_count; i++) td_dataset_release(d->inputs[i]);
  td_free(d->inputs);
  td_data_spec_deinit(&d->spec);
  td_free(d);
}

static const td_variant_ops dataset_ops = {.type_name = "tensorflow::DatasetVariantWrapper", .destroy = destroy};

td_status td_dataset_create(const td_dataset_ops *ops, size_t size, const td_data_spec *spec, td_dataset *const *inputs,
                            int input_count, td_dataset **out) {
  int depth = 1;
  for (int i = 0; i < input_count; i++) depth = TD_MAX(depth, inputs[i]->depth + 1);
  if (depth > TD_DATASET_MAX_DEPTH)
    return td_invalid_argument("Datasets are nested more than %d deep", TD_DATASET_MAX_DEPTH);
  td_dataset *d = td_calloc(1, size);
  d->variant.ops = &dataset_ops;
  atomic_init(&d->variant.refs, 1);
  d->ops = ops;
  d->depth = depth;
  td_data_spec_copy(spec, &d->spec);
  d->inputs = td_new_array(td_dataset *, (size_t)input_count + 1);
  for (; d->input_count < input_count; d->input_count++)
    d->inputs[d->input_count] = td_dataset_retain(inputs[d->input_count]);
  *out = d;
  return TD_STATUS_OK;
}

td_status td_dataset_of(const td_tensor *t, td_dataset **out) {
  if (t->dtype != TD_VARIANT || t->rank)
    return td_invalid_argument("Dataset tensor must be a scalar of dtype DT_VARIANT.");
  td_variant *v = TD_DATA(t, td_variant *)[0];
  if (!v || v->ops != &dataset_ops) return td_invalid_argument("Tensor must be a Dataset object.");
  *out = (td_dataset *)v;
  return TD_STATUS_OK;
}

td_status td_dataset_tensor(td_dataset *d, td_tensor **out) {
  td_status s = td_tensor_create_dims(TD_VARIANT, 0, NULL, out);
  if (s)
    td_dataset_release(d);
  else
    TD_DATA(*out, td_variant *)[0] = &d->variant;
  return s;
}

td_status td_out_dataset(td_kernel_ctx *ctx, td_status s, td_dataset *d) {
  td_tensor *t;
  if (s) {
    td_dataset_release(d);
    return s;
  }
  TD_TRY(td_dataset_tensor(d, &t));
  td_out_set(ctx, 0, t);
  return TD_STATUS_OK;
}

int64_t td_dataset_input_cardinality(const td_dataset *d) { return td_dataset_cardinality(d->inputs[0]); }

/* ---- arguments ---- */

static td_status check_scalar(const td_tensor *t, const char *name) {
  return t->rank ? td_invalid_argument("%s must be a scalar", name) : TD_STATUS_OK;
}

td_status td_in_int(td_kernel_ctx *ctx, int i, const char *name, int64_t *out) {
  TD_TRY(check_scalar(td_in(ctx, i), name));
  *out = td_tensor_int_at(td_in(ctx, i), 0);
  return TD_STATUS_OK;
}

td_status td_in_bool(td_kernel_ctx *ctx, int i, const char *name, bool *out) {
  TD_TRY(check_scalar(td_in(ctx, i), name));
  *out = *TD_DATA(td_in(ctx, i), uint8_t);
  return TD_STATUS_OK;
}

td_status td_in_text(td_kernel_ctx *ctx, int i, const char *name, td_str *out) {
  TD_TRY(check_scalar(td_in(ctx, i), name));
  *out = td_string_view(TD_DATA(td_in(ctx, i), td_string));
  return TD_STATUS_OK;
}

/* ---- elements ---- */

td_element *td_element_create(int count) {
  td_element *e = td_calloc(1, sizeof *e + (size_t)count * sizeof e->values[0]);
  e->count = count;
  return e;
}

td_element *td_element_of(int count, td_tensor *const *values) {
  td_element *e = td_element_create(count);
  for (int i = 0; i < count; i++) e->values[i] = values[i];
  return e;
}

td_element *td_element_copy(const td_element *from) {
  td_element *e = td_element_create(from->count);
  for (int i = 0; i < e->count; i++) e->values[i] = td_tensor_retain(from->values[i]);
  return e;
}

void td_element_free(td_element *e) {
  if (!e) return;
  for (int i = 0; i < e->count; i++) td_tensor_release(e->values[i]);
  td_free(e);
}

td_status td_out_element(td_kernel_ctx *ctx, td_element *e, const char *what) {
  td_status s = TD_STATUS_OK;
  if (e->count != ctx->kernel->output_count)
    s = td_internal("The %s gives %d components, %d are expected", what, e->count, ctx->kernel->output_count);
  for (int i = 0; i < e->count && !s; i++) {
    td_out_set(ctx, i, e->values[i]);
    e->values[i] = NULL;
  }
  td_element_free(e);
  return s;
}

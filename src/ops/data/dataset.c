#include "ops/data/dataset.h"

#include "base/mem.h"
#include "ops/data/captured.h"
#include "proto/message.h"
#include "proto/wire.h"

/* ---- where datasets come from ---- */

static void node_release(td_data_node *n) {
  /* acq_rel: the last owner sees every use before it frees */
  if (!n || atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1) return;
  td_strbuf_deinit(&n->attrs);
  td_free(n);
}

static td_status node_create(const td_node_def *def, td_data_node **out) {
  td_data_node *n = td_new(td_data_node);
  atomic_init(&n->refs, 1);
  td_status s = TD_STATUS_OK;
  for (size_t i = 0; i < def->attr_count && !s; i++) {
    td_strbuf entry = {0};
    td_wire_put_bytes(&entry, 1, def->attrs[i].name);
    s = td_message_encode_field(&def->attrs[i].value->base, 2, &entry);
    td_wire_put_bytes(&n->attrs, 5, td_strbuf_view(&entry));
    td_strbuf_deinit(&entry);
  }
  if (s)
    node_release(n);
  else
    *out = n;
  return s;
}

static void origin_free(td_data_origin *o) {
  if (!o) return;
  for (int i = 0; i < o->input_count; i++) td_tensor_release(o->inputs[i]);
  td_free(o->inputs);
  td_free(o->op);
  node_release(o->node);
  if (o->runtime) o->runtime->ops->release(o->runtime);
  td_free(o);
}

static void remember_origin(td_kernel_ctx *ctx, td_dataset *d) {
  int n = ctx->kernel->input_count;
  if (d->origin) return; /* the kernel hands one of its inputs on */
  td_data_origin *o = td_new(td_data_origin);
  o->op = td_strndup(ctx->kernel->op.data, ctx->kernel->op.size);
  o->inputs = td_new_array(td_tensor *, (size_t)n + 1);
  for (; o->input_count < n; o->input_count++) o->inputs[o->input_count] = td_tensor_retain(td_in(ctx, o->input_count));
  if (ctx->kernel->def->destroy == td_dataset_kernel_destroy) { /* its state begins with a td_dataset_kernel */
    const td_dataset_kernel *k = ctx->state;
    o->node = k->node;
    if (o->node) atomic_fetch_add_explicit(&o->node->refs, 1, memory_order_relaxed);
    if (k->function_count) {
      o->runtime = k->functions[0].runtime;
      o->runtime->ops->retain(o->runtime);
    }
  }
  d->origin = o;
}

/* ---- kernels ---- */

td_status td_dataset_kernel_init(td_kernel_builder *b, td_dataset_kernel *k, const char *types) {
  TD_TRY(node_create(b->node, &k->node));
  return types ? td_data_spec_attr(b->node, types, &k->spec) : TD_STATUS_OK;
}

td_status td_dataset_kernel_create(td_kernel_builder *b, void *state) {
  return td_dataset_kernel_init(b, state, "output_types");
}

void td_dataset_kernel_destroy(void *state) {
  td_dataset_kernel *k = state;
  for (int i = 0; i < k->function_count; i++) td_data_function_deinit(&k->functions[i]);
  td_free(k->functions);
  node_release(k->node);
  td_data_spec_deinit(&k->spec);
}

/* ---- datasets ---- */

static void destroy(td_variant *v) {
  td_dataset *d = (td_dataset *)v;
  if (d->ops->destroy) d->ops->destroy(d);
  for (int i = 0; i < d->input_count; i++) td_dataset_release(d->inputs[i]);
  td_free(d->inputs);
  origin_free(d->origin);
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
  remember_origin(ctx, d);
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

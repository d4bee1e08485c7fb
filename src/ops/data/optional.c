/* Optionals and their ops (TensorFlow's optional_ops). */
#include "ops/data/optional.h"

#include <string.h>

#include "base/mem.h"
#include "ops/data/spec.h"
#include "ops/families.h"
#include "ops/variant_math.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

static const char type_name[] = "tensorflow::data::Optional";
enum { MAX_VALUES = 65536 };

static void destroy(td_variant *v) {
  td_optional *o = (td_optional *)v;
  for (int i = 0; i < o->count; i++) td_tensor_release(o->values[i]);
  td_free(o);
}

/* A VariantTensorDataProto: metadata is one byte that says whether there is a value. */
static td_status encode(const td_variant *v, td_strbuf *out) {
  const td_optional *o = (const td_optional *)v;
  td_strbuf part = {0};
  td_status s = TD_STATUS_OK;
  td_wire_put_bytes(out, 1, td_str_of(type_name));
  td_wire_put_bytes(out, 2, td_str_n(o->has_value ? "\1" : "\0", 1));
  for (int i = 0; i < o->count && !s; i++) {
    s = td_tensor_encode(o->values[i], &part);
    if (!s) td_wire_put_bytes(out, 3, td_strbuf_view(&part));
    td_strbuf_deinit(&part);
  }
  return s;
}

static const td_variant_ops optional_ops = {.type_name = type_name, .destroy = destroy, .encode = encode};

static td_optional *make(bool has_value, int count) {
  td_optional *o = td_calloc(1, sizeof *o + (size_t)count * sizeof o->values[0]);
  o->variant.ops = &optional_ops;
  atomic_init(&o->variant.refs, 1);
  o->has_value = has_value;
  return o;
}

td_optional *td_optional_create(int count, td_tensor **values) {
  td_optional *o = make(true, count);
  for (; o->count < count; o->count++) o->values[o->count] = values[o->count];
  return o;
}

td_optional *td_optional_create_none(void) { return make(false, 0); }

td_status td_optional_tensor(td_optional *o, td_tensor **out) {
  td_status s = td_tensor_create_dims(TD_VARIANT, 0, NULL, out);
  if (s)
    td_variant_release(&o->variant);
  else
    TD_DATA(*out, td_variant *)[0] = &o->variant;
  return s;
}

static td_status decode(td_str bytes, td_optional **out) {
  int count = 0, at = 0;
  td_wire_field f;
  bool bad = false, has_value = false;
  for (td_wire in = td_wire_of(bytes); td_wire_next(&in, &f, &bad);) {
    if (f.type != TD_WIRE_BYTES) continue;
    if (f.number == 2) has_value = f.bytes.size && f.bytes.data[0];
    count += f.number == 3;
  }
  if (bad || count > MAX_VALUES || (count && !has_value)) return td_invalid_argument("An optional is malformed");
  td_optional *o = make(has_value, count);
  td_status s = TD_STATUS_OK;
  for (td_wire in = td_wire_of(bytes); at < count && !s && td_wire_next(&in, &f, &bad);) {
    if (f.number != 3 || f.type != TD_WIRE_BYTES) continue;
    s = td_tensor_decode(f.bytes, &o->values[at++]);
    if (!s) o->count = at;
  }
  if (s)
    td_variant_release(&o->variant);
  else
    *out = o;
  return s;
}

td_status td_optional_of(td_variant *v, td_optional **out) {
  *out = NULL;
  if (v && v->ops == &optional_ops) {
    *out = (td_optional *)td_variant_retain(v);
    return TD_STATUS_OK;
  }
  const td_opaque_variant *o = td_variant_as_opaque(v);
  if (!o || strcmp(o->type_name, type_name)) return TD_STATUS_OK;
  return decode(td_str_n(o->bytes, o->size), out);
}

/* ---- zeros and sums ---- */

td_status td_optional_zeros_like(const td_optional *o, int depth, td_optional **out) {
  td_optional *zeros = make(o->has_value, o->count);
  td_status s = TD_STATUS_OK;
  for (int i = 0; i < o->count && !s; i++) {
    s = td_variant_zeros_like(o->values[i], depth + 1, &zeros->values[i]);
    if (!s) zeros->count++;
  }
  if (s)
    td_variant_release(&zeros->variant);
  else
    *out = zeros;
  return s;
}

td_status td_optional_add(const td_optional *a, const td_optional *b, int depth, td_optional **out) {
  if (a->has_value != b->has_value)
    return td_invalid_argument("Cannot add optionals because one has a value and the other doesn't.");
  if (a->count != b->count)
    return td_invalid_argument("Cannot add optionals because they have different numbers of components (%d vs. %d).",
                               a->count, b->count);
  td_optional *sum = make(a->has_value, a->count);
  td_status s = TD_STATUS_OK;
  for (int i = 0; i < a->count && !s; i++) {
    s = td_variant_add(a->values[i], b->values[i], depth + 1, &sum->values[i]);
    if (!s) sum->count++;
  }
  if (s)
    td_variant_release(&sum->variant);
  else
    *out = sum;
  return s;
}

/* ---- ops ---- */

static td_status out_optional(td_kernel_ctx *ctx, td_optional *o) {
  td_tensor *t;
  TD_TRY(td_optional_tensor(o, &t));
  td_out_set(ctx, 0, t);
  return TD_STATUS_OK;
}

static td_status compute_none(td_kernel_ctx *ctx) { return out_optional(ctx, td_optional_create_none()); }

static td_status compute_from_value(td_kernel_ctx *ctx) {
  int n = ctx->kernel->input_count;
  td_optional *o = make(true, n);
  for (; o->count < n; o->count++) {
    o->values[o->count] = td_in(ctx, o->count);
    ctx->in[o->count].tensor = NULL;
  }
  return out_optional(ctx, o);
}

static td_status in_optional(td_kernel_ctx *ctx, const char *op, td_optional **out) {
  const td_tensor *t = td_in(ctx, 0);
  *out = NULL;
  if (t->rank == 0) TD_TRY(td_optional_of(TD_DATA(t, td_variant *)[0], out));
  if (*out) return TD_STATUS_OK;
  return td_invalid_argument("Input to %s must be a scalar tensor containing an OptionalVariant object.", op);
}

static td_status compute_has_value(td_kernel_ctx *ctx) {
  td_optional *o;
  td_tensor *out;
  TD_TRY(in_optional(ctx, "OptionalHasValue", &o));
  bool has_value = o->has_value;
  td_variant_release(&o->variant);
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  *TD_DATA(out, uint8_t) = has_value;
  return TD_STATUS_OK;
}

static td_status check_values(const td_optional *o, const td_data_spec *spec) {
  if (!o->has_value) return td_invalid_argument("The given optional does not have a value.");
  if (o->count != spec->width)
    return td_invalid_argument("The given optional has %d components, expected %d.", o->count, spec->width);
  for (int i = 0; i < o->count; i++) {
    const td_tensor *t = o->values[i];
    if (t->dtype != spec->types[i])
      return td_invalid_argument(
          "The given optional does not match the expected type for component %d. Expected: %s. Actual: %s.", i,
          td_dtype_name(spec->types[i]), td_dtype_name(t->dtype));
    if (td_partial_shape_fits(&spec->shapes[i], t->rank, t->dims)) continue;
    char *want = td_partial_shape_text(&spec->shapes[i]), *got = td_tensor_shape_text(t);
    td_status s = td_invalid_argument(
        "The given optional does not match the expected shape for component %d. Expected: %s. Actual: %s.", i, want,
        got);
    td_free(want);
    td_free(got);
    return s;
  }
  return TD_STATUS_OK;
}

static td_status compute_get_value(td_kernel_ctx *ctx) {
  td_optional *o;
  TD_TRY(in_optional(ctx, "OptionalGetValue", &o));
  td_status s = check_values(o, ctx->state);
  for (int i = 0; !s && i < o->count; i++) td_out_set(ctx, i, td_tensor_retain(o->values[i]));
  td_variant_release(&o->variant);
  return s;
}

static td_status create_get_value(td_kernel_builder *b, void *state) {
  return td_data_spec_attr(b->node, "output_types", state);
}
static void destroy_get_value(void *state) { td_data_spec_deinit(state); }

static const td_op_spec ops[] = {
    {"OptionalFromValue", "components: Toutput_types", "optional: variant", "Toutput_types: list(type) >= 1", 0},
    {"OptionalGetValue", "optional: variant", "components: output_types",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", 0},
    {"OptionalHasValue", "optional: variant", "has_value: bool", NULL, 0},
    {"OptionalNone", NULL, "optional: variant", NULL, 0},
};

static const td_kernel_def kernels[] = {
    {.op = "OptionalFromValue", .cost = TD_COST_CHEAP, .compute = compute_from_value},
    {.op = "OptionalGetValue",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(td_data_spec),
     .create = create_get_value,
     .destroy = destroy_get_value,
     .compute = compute_get_value},
    {.op = "OptionalHasValue", .cost = TD_COST_CHEAP, .compute = compute_has_value},
    {.op = "OptionalNone", .cost = TD_COST_CHEAP, .compute = compute_none},
};

TD_FAMILY(optional, ops, kernels);

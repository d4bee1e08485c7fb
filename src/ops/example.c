/* Examples into tensors: ParseExample, ParseExampleV2, ParseSingleExample (TensorFlow's example_parsing_ops).
 *
 * One walk over each example notes where the features that are asked for begin; values are copied once, from the
 * example into the output. Results of varying size note their runs first and are copied at the end.
 */
#include <stdio.h>

#include "base/map.h"
#include "base/mem.h"
#include "framework/cancellation.h"
#include "ops/example_wire.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/partial_shape.h"

typedef enum form { SPARSE, DENSE, VARIABLE, RAGGED } form; /* VARIABLE: dense, as many strides as there are */

/* A feature as the node asks for it. */
typedef struct feature_spec {
  form form;
  td_dtype type, split_type;
  td_partial_shape shape; /* of dense ones */
  int64_t stride;         /* dense: elements of an example, or of one stride */
  td_str key;             /* ParseSingleExample: own */
} feature_spec;

typedef struct parser {
  feature_spec *specs; /* sparse ones, dense ones, ragged ones */
  int sparse, dense, ragged;
  bool is_single, is_v2;
} parser;

static td_str text_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }
static int spec_count(const parser *p) { return p->sparse + p->dense + p->ragged; }

/* ---- what the node asks for ---- */

static td_status read_shape(const Pb__TensorShapeProto *proto, int d, feature_spec *s) {
  TD_TRY(td_partial_shape_of(proto, &s->shape));
  int64_t *dims = s->shape.dims;
  bool known = s->shape.rank >= 0;
  s->stride = 1;
  for (int i = 0; known && i < s->shape.rank; i++) {
    if (!i && dims[0] < 0) {
      s->form = VARIABLE;
    } else {
      known = dims[i] >= 0;
      if (known && __builtin_mul_overflow(s->stride, dims[i], &s->stride))
        return td_invalid_argument("dense_shapes[%d] has too many elements", d);
    }
  }
  if (known) return TD_STATUS_OK;
  char *text = td_partial_shape_text(&s->shape);
  td_status status = td_invalid_argument("dense_shapes[%d] has unknown rank or unknown inner dimensions: %s", d, text);
  td_free(text);
  return status;
}

static td_status add_specs(parser *p, const td_node_def *n) {
  const Pb__AttrValue__ListValue *sparse, *dense, *shapes, *ragged = NULL, *splits = NULL;
  TD_TRY(td_attr_list(n, "sparse_types", &sparse));
  TD_TRY(td_attr_list(n, "Tdense", &dense));
  TD_TRY(td_attr_list(n, "dense_shapes", &shapes));
  if (p->is_v2) TD_TRY(td_attr_list(n, "ragged_value_types", &ragged));
  if (p->is_v2) TD_TRY(td_attr_list(n, "ragged_split_types", &splits));
  size_t ragged_count = ragged ? ragged->n_type : 0;
  p->specs = td_new_array(feature_spec, sparse->n_type + dense->n_type + ragged_count + 1);
  feature_spec *s = p->specs;
  for (size_t i = 0; i < sparse->n_type; i++, s++, p->sparse++) s->type = (td_dtype)sparse->type[i];
  if (shapes->n_shape != dense->n_type) return td_invalid_argument("len(dense_keys) != len(dense_shapes)");
  for (size_t i = 0; i < dense->n_type; i++, s++) {
    s->type = (td_dtype)dense->type[i];
    s->form = DENSE;
    p->dense++;
    TD_TRY(read_shape(shapes->shape[i], (int)i, s));
  }
  if (ragged && splits->n_type != ragged_count)
    return td_invalid_argument("len(ragged_value_types) != len(ragged_split_types)");
  for (size_t i = 0; i < ragged_count; i++, s++, p->ragged++) {
    *s = (feature_spec){.form = RAGGED, .type = (td_dtype)ragged->type[i], .split_type = (td_dtype)splits->type[i]};
  }
  return TD_STATUS_OK;
}

static td_status read_keys(parser *p, const td_node_def *n) {
  const Pb__AttrValue__ListValue *sparse, *dense;
  TD_TRY(td_attr_list(n, "sparse_keys", &sparse));
  TD_TRY(td_attr_list(n, "dense_keys", &dense));
  if (sparse->n_s != (size_t)p->sparse) return td_invalid_argument("len(sparse_keys) != len(sparse_types)");
  if (dense->n_s != (size_t)p->dense) return td_invalid_argument("len(dense_keys) != len(dense_types)");
  for (int i = 0; i < p->sparse + p->dense; i++) {
    ProtobufCBinaryData k = i < p->sparse ? sparse->s[i] : dense->s[i - p->sparse];
    p->specs[i].key = td_str_n(td_strndup((const char *)k.data, k.len), k.len);
  }
  return TD_STATUS_OK;
}

static td_status parser_create(td_kernel_builder *b, void *state) {
  parser *p = state;
  p->is_single = td_str_is(b->node->op, "ParseSingleExample");
  p->is_v2 = td_str_is(b->node->op, "ParseExampleV2");
  TD_TRY(add_specs(p, b->node));
  int64_t sparse;
  TD_TRY(td_attr_int(b->node, p->is_single || p->is_v2 ? "num_sparse" : "Nsparse", &sparse));
  if (sparse != p->sparse) return td_invalid_argument("len(sparse_keys) != len(sparse_types)");
  if (p->is_single) return read_keys(p, b->node);
  if (p->is_v2) return TD_STATUS_OK;
  int64_t dense;
  TD_TRY(td_attr_int(b->node, "Ndense", &dense));
  return dense == p->dense ? TD_STATUS_OK : td_invalid_argument("len(dense_keys) != len(dense_types)");
}

static void parser_destroy(void *state) {
  parser *p = state;
  for (int i = 0; p->specs && i < spec_count(p); i++) {
    td_partial_shape_deinit(&p->specs[i].shape);
    td_free((char *)p->specs[i].key.data);
  }
  td_free(p->specs);
}

/* ---- one run ---- */

/* Values of one example for a result of varying size. */
typedef struct values {
  int64_t example;
  td_feature feature;
} values;

/* A feature during a run. */
typedef struct column {
  const feature_spec *spec;
  td_str key;
  const td_tensor *fallback; /* dense ones */
  struct column *same;       /* another of the same key */
  td_str bytes;              /* the feature of the current example, if seen_in says that it has one */
  int64_t seen_in;           /* example + 1 */
  values *runs;              /* without empty ones */
  size_t run_count, run_capacity;
  int64_t total, most; /* values of all runs, of the longest */
  td_tensor *out;      /* fixed dense ones; borrowed */
} column;

typedef struct batch {
  td_kernel_ctx *ctx;
  const parser *parser;
  const td_tensor *serialized, *names;
  bool is_scalar;
  column *columns;
  td_map by_key;
  int64_t example; /* now */
} batch;

static td_status check_key_counts(const parser *p, td_kernel_ctx *ctx) {
  const struct {
    int have, input;
    const char *what;
  } lists[] = {{p->dense, 3, "len(dense_keys) == len(dense_types)"},
               {p->sparse, 2, "len(sparse_keys) == num_sparse"},
               {p->ragged, 4, "len(ragged_keys) == len(ragged_value_types)"}};
  for (int i = 0; i < 3; i++) {
    int64_t keys = td_in(ctx, lists[i].input)->count;
    if (keys != lists[i].have)
      return td_invalid_argument("Expected %s but got: %lld vs. %d", lists[i].what, (long long)keys, lists[i].have);
  }
  return TD_STATUS_OK;
}

static td_status check_inputs(batch *b) {
  const parser *p = b->parser;
  const td_tensor *s = b->serialized;
  if (p->is_single && s->rank)
    return td_invalid_argument("Expected serialized to be a scalar, got shape: %s", TD_SHOW(s));
  if (p->is_single) return TD_STATUS_OK;
  if (p->is_v2 ? s->rank > 1 : s->rank != 1)
    return td_invalid_argument("Expected serialized to be a %svector, got shape: %s", p->is_v2 ? "scalar or " : "",
                               TD_SHOW(s));
  if (b->names->count && !td_tensor_same_shape(b->names, s))
    return td_invalid_argument("Expected names have the same shape as serialized: name.shape=%s, serialized.shape=%s",
                               TD_SHOW(b->names), TD_SHOW(s));
  return p->is_v2 ? check_key_counts(p, b->ctx) : TD_STATUS_OK;
}

static td_status key_of(const batch *b, int i, td_str *key) {
  const parser *p = b->parser;
  const td_tensor *t;
  int64_t at = 0;
  if (p->is_single) {
    *key = p->specs[i].key;
    return TD_STATUS_OK;
  }
  if (p->is_v2) {
    int list = i < p->sparse ? 0 : i < p->sparse + p->dense ? 1 : 2;
    t = td_in(b->ctx, 2 + list);
    at = i - (list > 0 ? p->sparse : 0) - (list > 1 ? p->dense : 0);
  } else {
    t = td_in(b->ctx, 2 + i);
    if (t->count != 1) return td_invalid_argument("A key must be a scalar, got shape: %s", TD_SHOW(t));
  }
  *key = text_at(t, at);
  return TD_STATUS_OK;
}

static td_status check_fallback(const feature_spec *s, int d, const td_tensor *t) {
  if (s->form == VARIABLE ? t->count == 1 : !t->count || td_partial_shape_fits(&s->shape, t->rank, t->dims))
    return TD_STATUS_OK;
  char *text = td_partial_shape_text(&s->shape);
  td_status status =
      s->form == VARIABLE
          ? td_invalid_argument(
                "dense_shape[%d] is a variable length shape: %s, therefore def_value[%d] must contain a "
                "single element (the padding element).  But its shape is: %s",
                d, text, d, TD_SHOW(t))
          : td_invalid_argument("def_value[%d].shape() == %s is not compatible with dense_shapes_[%d] == %s", d,
                                TD_SHOW(t), d, text);
  td_free(text);
  return status;
}

static td_status make_columns(batch *b) {
  const parser *p = b->parser;
  int defaults = b->ctx->kernel->input_count - p->dense;
  for (int i = 0; i < spec_count(p); i++) {
    column *c = &b->columns[i];
    c->spec = &p->specs[i];
    TD_TRY(key_of(b, i, &c->key));
    c->same = td_map_put(&b->by_key, c->key, c);
    if (c->spec->form != DENSE && c->spec->form != VARIABLE) continue;
    int d = i - p->sparse;
    c->fallback = td_in(b->ctx, defaults + d);
    TD_TRY(check_fallback(c->spec, d, c->fallback));
  }
  return TD_STATUS_OK;
}

/* ---- the walk ---- */

static td_status feature_error(const batch *b, td_str key, const char *what) {
  int key_size = (int)TD_MIN(key.size, (size_t)512);
  if (b->is_scalar) return td_invalid_argument("Key: %.*s.  %s", key_size, key.data, what);
  td_str name = b->names->count ? text_at(b->names, b->example) : TD_STR("<unknown>");
  return td_invalid_argument("Name: %.*s, Key: %.*s, Index: %lld.  %s", (int)TD_MIN(name.size, (size_t)512), name.data,
                             key_size, key.data, (long long)b->example, what);
}

static td_status wrong_type(const batch *b, const column *c, td_dtype got) {
  char text[160];
  bool is_dense = c->fallback;
  snprintf(text, sizeof text,
           is_dense ? "Data types don't match. Data type: %s but expected type: %s"
                    : "Data types don't match. Expected type: %s, Actual type: %s",
           td_dtype_name(is_dense ? got : c->spec->type), td_dtype_name(is_dense ? c->spec->type : got));
  return feature_error(b, c->key, text);
}

static const char *values_name(td_dtype type) {
  return type == TD_STRING ? "bytes" : type == TD_FLOAT ? "float" : "int64";
}

static td_status wrong_count(const batch *b, const column *c, int64_t count) {
  char *shape = td_partial_shape_text(&c->spec->shape);
  char *text =
      c->spec->form == VARIABLE
          ? td_asprintf(
                "Number of %s values is not a multiple of stride length. Saw %lld values but output shape is: %s",
                values_name(c->spec->type), (long long)count, shape)
          : td_asprintf("Number of %s values != expected.  Values size: %lld but output shape: %s",
                        values_name(c->spec->type), (long long)count, shape);
  td_status s = feature_error(b, c->key, text);
  td_free(shape);
  td_free(text);
  return s;
}

static td_status missing(const batch *b, const column *c) {
  int key_size = (int)TD_MIN(c->key.size, (size_t)512);
  const char *type = td_dtype_name(c->spec->type);
  if (b->is_scalar)
    return td_invalid_argument("Feature: %.*s (data type: %s) is required but could not be found.", key_size,
                               c->key.data, type);
  td_str name = b->names->count ? text_at(b->names, b->example) : TD_STR("<unknown>");
  return td_invalid_argument("Name: %.*s, Feature: %.*s (data type: %s) is required but could not be found.",
                             (int)TD_MIN(name.size, (size_t)512), name.data, key_size, c->key.data, type);
}

static bool note_feature(void *arg, td_str key, td_str value) {
  batch *b = arg;
  for (column *c = td_map_get(&b->by_key, key); c; c = c->same) {
    c->bytes = value;
    c->seen_in = b->example + 1;
  }
  return true;
}

static td_status take_feature(batch *b, column *c) {
  td_feature f = {.type = TD_INVALID};
  const feature_spec *s = c->spec;
  if (c->seen_in == b->example + 1 && !td_feature_parse(c->bytes, &f))
    return feature_error(b, c->key, "Can't parse serialized Example.");
  if (f.type == TD_INVALID) {
    if (s->form != DENSE) return TD_STATUS_OK;
    if (!c->fallback->count) return missing(b, c);
    td_tensor_copy_elements(c->out, b->example * s->stride, c->fallback, 0, s->stride);
    return TD_STATUS_OK;
  }
  if (f.type != s->type) return wrong_type(b, c, f.type);
  if (s->form == DENSE)
    return f.count == s->stride ? td_feature_copy(&f, c->out, b->example * s->stride) : wrong_count(b, c, f.count);
  if (s->form == VARIABLE && (s->stride ? f.count % s->stride : f.count)) return wrong_count(b, c, f.count);
  if (!f.count) return TD_STATUS_OK;
  TD_GROW(c->runs, c->run_count, c->run_capacity);
  c->runs[c->run_count++] = (values){b->example, f};
  c->total += f.count;
  c->most = TD_MAX(c->most, f.count);
  return TD_STATUS_OK;
}

static td_status read_examples(batch *b) {
  enum { FEATURES = 1 };
  for (b->example = 0; b->example < b->serialized->count; b->example++) {
    td_str bytes = text_at(b->serialized, b->example);
    if (b->example % 64 == 63 && td_cancellation_is_cancelled(b->ctx->step->cancellation))
      return td_cancelled("The step was cancelled");
    if (!td_feature_map_walk(bytes, FEATURES, note_feature, b))
      return td_invalid_argument("Could not parse example input, value: '%.*s'", (int)TD_MIN(bytes.size, (size_t)512),
                                 bytes.data);
    for (int i = 0; i < spec_count(b->parser); i++) TD_TRY(take_feature(b, &b->columns[i]));
  }
  return TD_STATUS_OK;
}

/* ---- outputs ---- */

/* The batch's dimension if it has one, `first` if it is not negative, and the shape of a dense feature. */
static td_status shape_of(const batch *b, const feature_spec *s, int64_t first, td_shape *shape) {
  shape->rank = 0;
  if (!b->is_scalar) TD_TRY(td_shape_append(shape, b->serialized->count));
  if (first >= 0) TD_TRY(td_shape_append(shape, first));
  for (int i = first >= 0; i < s->shape.rank; i++) TD_TRY(td_shape_append(shape, s->shape.dims[i]));
  return TD_STATUS_OK;
}

static td_status alloc_dense(batch *b) {
  for (int i = 0; i < b->parser->dense; i++) {
    column *c = &b->columns[b->parser->sparse + i];
    td_shape shape;
    if (c->spec->form == VARIABLE) continue;
    TD_TRY(shape_of(b, c->spec, -1, &shape));
    TD_TRY(td_out_alloc(b->ctx, 3 * b->parser->sparse + i, &shape, &c->out));
  }
  return TD_STATUS_OK;
}

static td_status copy_runs(const column *c, td_tensor *out) {
  int64_t at = 0;
  for (size_t i = 0; i < c->run_count; i++) {
    TD_TRY(td_feature_copy(&c->runs[i].feature, out, at));
    at += c->runs[i].feature.count;
  }
  return TD_STATUS_OK;
}

static td_status put_sparse(batch *b, int i) {
  const column *c = &b->columns[i];
  int n = b->parser->sparse, rank = b->is_scalar ? 1 : 2;
  td_tensor *indices, *values, *shape;
  TD_TRY(td_out_alloc_dims(b->ctx, i, 2, (int64_t[]){c->total, rank}, &indices));
  TD_TRY(td_out_alloc_dims(b->ctx, n + i, 1, &c->total, &values));
  TD_TRY(td_out_alloc_dims(b->ctx, 2 * n + i, 1, &(int64_t){rank}, &shape));
  if (rank == 2) TD_DATA(shape, int64_t)[0] = b->serialized->count;
  TD_DATA(shape, int64_t)[rank - 1] = c->most;
  int64_t *index = TD_DATA(indices, int64_t);
  for (size_t r = 0; r < c->run_count; r++) {
    for (int64_t k = 0; k < c->runs[r].feature.count; k++) {
      if (rank == 2) *index++ = c->runs[r].example;
      *index++ = k;
    }
  }
  return copy_runs(c, values);
}

static td_status put_variable(batch *b, int i) {
  const column *c = &b->columns[b->parser->sparse + i];
  td_shape shape;
  td_tensor *out;
  TD_TRY(shape_of(b, c->spec, c->spec->stride ? c->most / c->spec->stride : 0, &shape));
  TD_TRY(td_out_alloc(b->ctx, 3 * b->parser->sparse + i, &shape, &out));
  int64_t example = 0;
  for (size_t r = 0; r < c->run_count; r++) {
    const td_feature *f = &c->runs[r].feature;
    int64_t at = c->runs[r].example * c->most;
    td_fill_elements(out, example * c->most, at - example * c->most, c->fallback, 0);
    TD_TRY(td_feature_copy(f, out, at));
    td_fill_elements(out, at + f->count, c->most - f->count, c->fallback, 0);
    example = c->runs[r].example + 1;
  }
  if (out->count > example * c->most)
    td_fill_elements(out, example * c->most, out->count - example * c->most, c->fallback, 0);
  return TD_STATUS_OK;
}

static void set_split(td_tensor *splits, int64_t i, int64_t value) {
  if (splits->dtype == TD_INT32)
    TD_DATA(splits, int32_t)[i] = (int32_t)value;
  else
    TD_DATA(splits, int64_t)[i] = value;
}

static td_status put_ragged(batch *b, int i) {
  const parser *p = b->parser;
  const column *c = &b->columns[p->sparse + p->dense + i];
  int first = 3 * p->sparse + p->dense;
  int64_t rows = b->is_scalar ? 0 : b->serialized->count + 1, at = 0;
  td_tensor *values, *splits;
  if (c->spec->split_type == TD_INT32 && c->total > INT32_MAX)
    return td_invalid_argument("%lld values of a ragged feature do not fit row splits of type int32",
                               (long long)c->total);
  TD_TRY(td_out_alloc_dims(b->ctx, first + i, 1, &c->total, &values));
  TD_TRY(td_out_alloc_dims(b->ctx, first + p->ragged + i, 1, &rows, &splits));
  for (int64_t row = 0, r = 0; row < rows; row++) {
    set_split(splits, row, at);
    if (r < (int64_t)c->run_count && c->runs[r].example == row) at += c->runs[r++].feature.count;
  }
  return copy_runs(c, values);
}

static td_status put_outputs(batch *b) {
  const parser *p = b->parser;
  for (int i = 0; i < p->sparse; i++) TD_TRY(put_sparse(b, i));
  for (int i = 0; i < p->dense; i++)
    if (p->specs[p->sparse + i].form == VARIABLE) TD_TRY(put_variable(b, i));
  for (int i = 0; i < p->ragged; i++) TD_TRY(put_ragged(b, i));
  return TD_STATUS_OK;
}

static td_status parse_compute(td_kernel_ctx *ctx) {
  const parser *p = ctx->state;
  batch b = {.ctx = ctx, .parser = p, .serialized = td_in(ctx, 0), .names = p->is_single ? NULL : td_in(ctx, 1)};
  td_status status;
  TD_TRY(check_inputs(&b));
  b.is_scalar = !b.serialized->rank;
  b.columns = td_new_array(column, (size_t)spec_count(p) + 1);
  TD_TRY_GOTO(make_columns(&b));
  TD_TRY_GOTO(alloc_dense(&b));
  TD_TRY_GOTO(read_examples(&b));
  status = put_outputs(&b);
cleanup:
  for (int i = 0; i < spec_count(p); i++) td_free(b.columns[i].runs);
  td_free(b.columns);
  td_map_deinit(&b.by_key);
  return status;
}

/* ---- tables ---- */

#define TYPES "list(type) in {float, int64, string} >= 0"

static const td_op_spec ops[] = {
    {"ParseExample",
     "serialized: string; names: string; sparse_keys: Nsparse * string; dense_keys: Ndense * string; "
     "dense_defaults: Tdense",
     "sparse_indices: Nsparse * int64; sparse_values: sparse_types; sparse_shapes: Nsparse * int64; "
     "dense_values: Tdense",
     "Nsparse: int >= 0; Ndense: int >= 0; sparse_types: " TYPES "; Tdense: " TYPES "; dense_shapes: list(shape) >= 0",
     0},
    {"ParseExampleV2",
     "serialized: string; names: string; sparse_keys: string; dense_keys: string; ragged_keys: string; "
     "dense_defaults: Tdense",
     "sparse_indices: num_sparse * int64; sparse_values: sparse_types; sparse_shapes: num_sparse * int64; "
     "dense_values: Tdense; ragged_values: ragged_value_types; ragged_row_splits: ragged_split_types",
     "Tdense: " TYPES "; num_sparse: int >= 0; sparse_types: " TYPES "; ragged_value_types: " TYPES
     "; ragged_split_types: list(type) in {int32, int64} >= 0; dense_shapes: list(shape) >= 0",
     0},
    {"ParseSingleExample", "serialized: string; dense_defaults: Tdense",
     "sparse_indices: num_sparse * int64; sparse_values: sparse_types; sparse_shapes: num_sparse * int64; "
     "dense_values: Tdense",
     "num_sparse: int >= 0; sparse_keys: list(string) >= 0; dense_keys: list(string) >= 0; sparse_types: " TYPES
     "; Tdense: " TYPES "; dense_shapes: list(shape) >= 0",
     0},
};

#define PARSER(name)                                                                              \
  {                                                                                               \
    .op = name, .cost = TD_COST_EXPENSIVE, .state_size = sizeof(parser), .create = parser_create, \
    .destroy = parser_destroy, .compute = parse_compute                                           \
  }

static const td_kernel_def kernels[] = {
    PARSER("ParseExample"),
    PARSER("ParseExampleV2"),
    PARSER("ParseSingleExample"),
};

TD_FAMILY(example, ops, kernels);

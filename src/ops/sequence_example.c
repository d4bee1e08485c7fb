/* SequenceExamples into tensors: ParseSequenceExample, ParseSingleSequenceExample (TensorFlow's example_parsing_ops).
 *
 * As in example.c: one walk over an example notes where its features and feature lists begin, values are copied once.
 */
#include "base/map.h"
#include "base/mem.h"
#include "framework/cancellation.h"
#include "ops/example_wire.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/partial_shape.h"

typedef enum part { CONTEXT_SPARSE, CONTEXT_DENSE, LIST_SPARSE, LIST_DENSE, PARTS } part;

/* What the node asks for. */
typedef struct wanted {
  part part;
  td_dtype type;
  td_partial_shape shape; /* of dense ones: fully known */
  int64_t stride;         /* of dense ones: elements of a feature */
  td_str key;             /* the batch's op: own */
  bool may_lack;          /* the batch's op: a list that is not there is empty */
} wanted;

typedef struct parser {
  wanted *wanted; /* in the order of part */
  int count[PARTS], total;
  bool is_single;
} parser;

static td_str text_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }
static bool is_list(part p) { return p >= LIST_SPARSE; }
static bool is_dense(part p) { return p == CONTEXT_DENSE || p == LIST_DENSE; }

/* ---- attributes ---- */

static td_status add_part(parser *p, const td_node_def *n, part which, const char *types_attr, const char *shapes_attr,
                          const char *count_attr) {
  const Pb__AttrValue__ListValue *types, *shapes = NULL;
  int64_t count;
  TD_TRY(td_attr_list(n, types_attr, &types));
  if (shapes_attr) TD_TRY(td_attr_list(n, shapes_attr, &shapes));
  count = (int64_t)types->n_type;
  if (count_attr) TD_TRY(td_attr_int(n, count_attr, &count));
  if (count != (int64_t)types->n_type || (shapes && shapes->n_shape != types->n_type))
    return td_invalid_argument("%s, %s and keys must be of one length", types_attr,
                               shapes_attr ? shapes_attr : count_attr);
  p->wanted = td_realloc(p->wanted, ((size_t)p->total + types->n_type + 1) * sizeof *p->wanted);
  for (size_t i = 0; i < types->n_type; i++) {
    wanted *w = &p->wanted[p->total++];
    *w = (wanted){.part = which, .type = (td_dtype)types->type[i], .stride = 1};
    p->count[which]++;
    if (!shapes) continue;
    TD_TRY(td_partial_shape_of(shapes->shape[i], &w->shape));
    if (!td_partial_shape_is_full(&w->shape))
      return td_invalid_argument("%s[%zu] is not fully defined", shapes_attr, i);
    for (int d = 0; d < w->shape.rank; d++)
      if (__builtin_mul_overflow(w->stride, w->shape.dims[d], &w->stride))
        return td_invalid_argument("%s[%zu] has too many elements", shapes_attr, i);
  }
  return TD_STATUS_OK;
}

static td_str own(ProtobufCBinaryData d) { return td_str_n(td_strndup((const char *)d.data, d.len), d.len); }

static td_status read_keys(parser *p, const td_node_def *n) {
  static const char *const names[] = {"context_sparse_keys", "context_dense_keys", "feature_list_sparse_keys",
                                      "feature_list_dense_keys"};
  const Pb__AttrValue__ListValue *keys, *may_lack;
  wanted *w = p->wanted;
  TD_TRY(td_attr_list(n, "feature_list_dense_missing_assumed_empty", &may_lack));
  for (part i = 0; i < PARTS; i++) {
    TD_TRY(td_attr_list(n, names[i], &keys));
    if (keys->n_s != (size_t)p->count[i])
      return td_invalid_argument("len(%s) is %zu, but there are %d types", names[i], keys->n_s, p->count[i]);
    for (size_t k = 0; k < keys->n_s; k++, w++) {
      w->key = own(keys->s[k]);
      for (size_t m = 0; i == LIST_DENSE && m < may_lack->n_s; m++)
        w->may_lack |= td_str_eq(w->key, td_str_n(may_lack->s[m].data, may_lack->s[m].len));
    }
  }
  return TD_STATUS_OK;
}

static td_status parser_create(td_kernel_builder *b, void *state) {
  parser *p = state;
  const td_node_def *n = b->node;
  p->is_single = td_str_is(n->op, "ParseSingleSequenceExample");
  TD_TRY(add_part(p, n, CONTEXT_SPARSE, "context_sparse_types", NULL, "Ncontext_sparse"));
  TD_TRY(add_part(p, n, CONTEXT_DENSE, "Tcontext_dense", "context_dense_shapes",
                  p->is_single ? "Ncontext_dense" : NULL)); /* the batch's clients may leave that one 0 */
  TD_TRY(add_part(p, n, LIST_SPARSE, "feature_list_sparse_types", NULL, "Nfeature_list_sparse"));
  TD_TRY(add_part(p, n, LIST_DENSE, "feature_list_dense_types", "feature_list_dense_shapes", "Nfeature_list_dense"));
  return p->is_single ? TD_STATUS_OK : read_keys(p, n);
}

static void parser_destroy(void *state) {
  parser *p = state;
  for (int i = 0; i < p->total; i++) {
    td_partial_shape_deinit(&p->wanted[i].shape);
    td_free((char *)p->wanted[i].key.data);
  }
  td_free(p->wanted);
}

/* ---- one run ---- */

/* A feature that has values, and where it goes. */
typedef struct values {
  int64_t example, step;
  td_feature feature;
} values;

typedef struct column {
  const wanted *wanted;
  td_str key;
  bool may_lack;
  const td_tensor *fallback; /* of the dense context */
  struct column *same;       /* another of that key */
  td_str bytes;              /* in the current example, if seen_in says that it has it */
  int64_t seen_in;           /* example + 1 */
  values *runs;
  size_t run_count, run_capacity;
  int64_t total, most, most_steps; /* values; of one feature; features of one list */
  td_tensor *out;                  /* of the dense context; borrowed */
  int64_t *lengths;                /* of dense lists, by example; borrowed from the output; NULL for one example */
} column;

typedef struct batch {
  td_kernel_ctx *ctx;
  const parser *parser;
  const td_tensor *serialized, *names;
  column *columns;
  td_map contexts, lists;
  int64_t example; /* now */
} batch;

static td_str name_now(const batch *b) {
  td_str name = b->names->count ? text_at(b->names, b->parser->is_single ? 0 : b->example) : TD_STR("");
  if (!name.size) return TD_STR("<unknown>");
  return td_str_n(name.data, TD_MIN(name.size, (size_t)512));
}

static td_str short_key(const column *c) { return td_str_n(c->key.data, TD_MIN(c->key.size, (size_t)512)); }

static td_status wrong_type(const batch *b, const column *c, int64_t step, td_dtype got) {
  const char *kind = got == TD_STRING  ? "bytes_list"
                     : got == TD_FLOAT ? "float_list"
                     : got == TD_INT64 ? "int64_list"
                                       : "";
  const char *want = td_dtype_name(c->wanted->type);
  if (!is_list(c->wanted->part))
    return td_invalid_argument(
        "Name: %.*s, Context feature: %.*s.  Data types don't match. Expected type: %s  Feature is: %s",
        TD_STR_ARG(name_now(b)), TD_STR_ARG(short_key(c)), want, kind);
  return td_invalid_argument(
      "Name: %.*s, Feature list: %.*s, Index: %lld.  Data types don't match. Expected type: %s  Feature is: %s",
      TD_STR_ARG(name_now(b)), TD_STR_ARG(short_key(c)), (long long)step, want, kind);
}

static td_status wrong_count(const batch *b, const column *c, int64_t index, int64_t count) {
  char *shape = td_partial_shape_text(&c->wanted->shape);
  const char *what = c->wanted->type == TD_STRING ? "bytes" : c->wanted->type == TD_FLOAT ? "float" : "int64";
  td_status s = td_invalid_argument(
      "Name: %.*s, Key: %.*s, Index: %lld.  Number of %s values != expected.  values size: %lld but output shape: %s",
      TD_STR_ARG(name_now(b)), TD_STR_ARG(short_key(c)), (long long)index, what, (long long)count, shape);
  td_free(shape);
  return s;
}

static td_status malformed(const batch *b, td_str bytes) {
  return td_invalid_argument("Could not parse example input, value: '%.*s'", (int)TD_MIN(bytes.size, (size_t)512),
                             bytes.data);
}

static void add_run(column *c, int64_t example, int64_t step, td_feature f) {
  TD_GROW(c->runs, c->run_count, c->run_capacity);
  c->runs[c->run_count++] = (values){example, step, f};
  c->total += f.count;
  c->most = TD_MAX(c->most, f.count);
}

static td_status take_context(batch *b, column *c) {
  const wanted *w = c->wanted;
  td_feature f = {.type = TD_INVALID};
  if (c->seen_in == b->example + 1 && !td_feature_parse(c->bytes, &f)) return malformed(b, c->bytes);
  if (f.type != TD_INVALID && f.type != w->type) return wrong_type(b, c, 0, f.type);
  if (!is_dense(w->part)) {
    if (f.count) add_run(c, b->example, 0, f);
    return TD_STATUS_OK;
  }
  if (f.type != TD_INVALID) {
    if (f.count != w->stride) return wrong_count(b, c, b->example, f.count);
    return td_feature_copy(&f, c->out, b->example * w->stride);
  }
  if (!c->fallback->count)
    return td_invalid_argument("Name: %.*s, Context feature '%.*s' is required but could not be found.",
                               TD_STR_ARG(name_now(b)), TD_STR_ARG(short_key(c)));
  td_tensor_copy_elements(c->out, b->example * w->stride, c->fallback, 0, w->stride);
  return TD_STATUS_OK;
}

static td_status take_list(batch *b, column *c) {
  const wanted *w = c->wanted;
  td_wire reader = td_wire_of(c->seen_in == b->example + 1 ? c->bytes : TD_STR(""));
  td_wire_field field;
  bool bad = false;
  int64_t step = 0;
  if (is_dense(w->part) && !c->may_lack && c->seen_in != b->example + 1)
    return td_invalid_argument(
        "Name: %.*s, Feature list '%.*s' is required but could not be found.  Did you mean to include it in "
        "feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?",
        TD_STR_ARG(name_now(b)), TD_STR_ARG(short_key(c)));
  while (td_wire_next(&reader, &field, &bad)) {
    td_feature f;
    if (field.number != 1) continue;
    if (field.type != TD_WIRE_BYTES || !td_feature_parse(field.bytes, &f)) return malformed(b, c->bytes);
    if (f.type != w->type && (f.type != TD_INVALID || is_dense(w->part))) return wrong_type(b, c, step, f.type);
    if (is_dense(w->part) && f.count != w->stride) return wrong_count(b, c, step, f.count);
    if (f.count || is_dense(w->part)) add_run(c, b->example, step, f);
    step++;
  }
  if (bad) return malformed(b, c->bytes);
  c->most_steps = TD_MAX(c->most_steps, step);
  if (c->lengths) c->lengths[b->example] = step;
  return TD_STATUS_OK;
}

static bool note(td_map *m, int64_t example, td_str key, td_str value) {
  for (column *c = td_map_get(m, key); c; c = c->same) {
    c->bytes = value;
    c->seen_in = example + 1;
  }
  return true;
}

static bool note_context(void *arg, td_str key, td_str value) {
  batch *b = arg;
  return note(&b->contexts, b->example, key, value);
}

static bool note_list(void *arg, td_str key, td_str value) {
  batch *b = arg;
  return note(&b->lists, b->example, key, value);
}

static td_status read_examples(batch *b) {
  enum { CONTEXT = 1, LISTS = 2 };
  for (b->example = 0; b->example < b->serialized->count; b->example++) {
    td_str bytes = text_at(b->serialized, b->example);
    if (b->example % 64 == 63 && td_cancellation_is_cancelled(b->ctx->step->cancellation))
      return td_cancelled("The step was cancelled");
    if (!td_feature_map_walk(bytes, CONTEXT, note_context, b) || !td_feature_map_walk(bytes, LISTS, note_list, b))
      return malformed(b, bytes);
    for (int i = 0; i < b->parser->total; i++) {
      column *c = &b->columns[i];
      TD_TRY(is_list(c->wanted->part) ? take_list(b, c) : take_context(b, c));
    }
  }
  return TD_STATUS_OK;
}

/* ---- inputs ---- */

static td_status check_inputs(const batch *b) {
  const td_tensor *s = b->serialized;
  if (b->parser->is_single && s->rank)
    return td_invalid_argument("Expected serialized to be a scalar, got shape: %s", TD_SHOW(s));
  if (!b->parser->is_single && s->rank != 1)
    return td_invalid_argument("Expected serialized to be a vector, got shape: %s", TD_SHOW(s));
  if (b->parser->is_single ? b->names->count > 1 : b->names->count && !td_tensor_same_shape(b->names, s))
    return td_invalid_argument("Expected debug_name to have the shape of serialized, got %s and %s", TD_SHOW(b->names),
                               TD_SHOW(s));
  return TD_STATUS_OK;
}

static td_status key_of(const batch *b, int i, column *c) {
  if (!b->parser->is_single) {
    c->key = c->wanted->key;
    c->may_lack = c->wanted->may_lack;
    return TD_STATUS_OK;
  }
  const td_tensor *t = td_in(b->ctx, 2 + i), *may_lack = td_in(b->ctx, 1);
  if (t->count != 1) return td_invalid_argument("Expected a key to be a scalar, got shape: %s", TD_SHOW(t));
  c->key = text_at(t, 0);
  for (int64_t k = 0; k < may_lack->count && c->wanted->part == LIST_DENSE; k++)
    c->may_lack |= td_str_eq(c->key, text_at(may_lack, k));
  return TD_STATUS_OK;
}

static td_status make_columns(batch *b) {
  const parser *p = b->parser;
  int defaults = 2 + (p->is_single ? p->total : 0);
  for (int i = 0; i < p->total; i++) {
    column *c = &b->columns[i];
    c->wanted = &p->wanted[i];
    TD_TRY(key_of(b, i, c));
    c->same = td_map_put(is_list(c->wanted->part) ? &b->lists : &b->contexts, c->key, c);
    if (c->wanted->part != CONTEXT_DENSE) continue;
    int d = i - p->count[CONTEXT_SPARSE];
    c->fallback = td_in(b->ctx, defaults + d);
    if (c->fallback->count && c->fallback->count != c->wanted->stride)
      return td_invalid_argument("def_value[%d] of shape %s is not compatible with context_dense_shapes[%d]", d,
                                 TD_SHOW(c->fallback), d);
  }
  return TD_STATUS_OK;
}

/* ---- outputs: for each part its own, one after the other ---- */

static int first_output(const parser *p, part which) {
  int first = 0;
  for (part i = 0; i < which; i++) first += (is_dense(i) ? 1 : 3) * p->count[i];
  return first;
}

static td_status dense_shape(const batch *b, const column *c, int64_t steps, td_shape *shape) {
  shape->rank = 0;
  if (!b->parser->is_single) TD_TRY(td_shape_append(shape, b->serialized->count));
  if (steps >= 0) TD_TRY(td_shape_append(shape, steps));
  for (int i = 0; i < c->wanted->shape.rank; i++) TD_TRY(td_shape_append(shape, c->wanted->shape.dims[i]));
  return TD_STATUS_OK;
}

/* What is written while the examples are read. */
static td_status alloc_outputs(batch *b) {
  const parser *p = b->parser;
  column *c = b->columns + p->count[CONTEXT_SPARSE];
  for (int i = 0; i < p->count[CONTEXT_DENSE]; i++, c++) {
    td_shape shape;
    TD_TRY(dense_shape(b, c, -1, &shape));
    TD_TRY(td_out_alloc(b->ctx, first_output(p, CONTEXT_DENSE) + i, &shape, &c->out));
  }
  c += p->count[LIST_SPARSE];
  for (int i = 0; i < p->count[LIST_DENSE] && !p->is_single; i++, c++) {
    td_tensor *lengths;
    TD_TRY(td_out_alloc_dims(b->ctx, first_output(p, LIST_DENSE) + p->count[LIST_DENSE] + i, 1, &b->serialized->count,
                             &lengths));
    c->lengths = TD_DATA(lengths, int64_t);
  }
  return TD_STATUS_OK;
}

static td_status put_sparse(const batch *b, const column *c, int first, int n) {
  bool single = b->parser->is_single, list = is_list(c->wanted->part);
  int64_t rank = 1 + !single + list, at = 0;
  td_tensor *indices, *values, *shape;
  TD_TRY(td_out_alloc_dims(b->ctx, first, 2, (int64_t[]){c->total, rank}, &indices));
  TD_TRY(td_out_alloc_dims(b->ctx, first + n, 1, &c->total, &values));
  TD_TRY(td_out_alloc_dims(b->ctx, first + 2 * n, 1, &rank, &shape));
  int64_t *index = TD_DATA(indices, int64_t), *dims = TD_DATA(shape, int64_t);
  for (size_t r = 0; r < c->run_count; r++) {
    for (int64_t k = 0; k < c->runs[r].feature.count; k++) {
      if (!single) *index++ = c->runs[r].example;
      if (list) *index++ = c->runs[r].step;
      *index++ = k;
    }
    TD_TRY(td_feature_copy(&c->runs[r].feature, values, at));
    at += c->runs[r].feature.count;
  }
  if (!single) *dims++ = b->serialized->count;
  if (list) *dims++ = c->most_steps;
  *dims = c->most;
  return TD_STATUS_OK;
}

static td_status put_dense_list(const batch *b, const column *c, int i) {
  td_shape shape;
  td_tensor *out;
  TD_TRY(dense_shape(b, c, c->most_steps, &shape));
  TD_TRY(td_out_alloc(b->ctx, i, &shape, &out));
  if (td_dtype_is_pod((td_dtype)out->dtype)) td_zero_elements(out, 0, out->count);
  for (size_t r = 0; r < c->run_count; r++) {
    int64_t at = (c->runs[r].example * c->most_steps + c->runs[r].step) * c->wanted->stride;
    TD_TRY(td_feature_copy(&c->runs[r].feature, out, at));
  }
  return TD_STATUS_OK;
}

static td_status put_outputs(const batch *b) {
  const parser *p = b->parser;
  const column *c = b->columns;
  for (part which = 0; which < PARTS; which++) {
    int first = first_output(p, which);
    for (int i = 0; i < p->count[which]; i++, c++) {
      if (!is_dense(which)) TD_TRY(put_sparse(b, c, first + i, p->count[which]));
      if (which == LIST_DENSE) TD_TRY(put_dense_list(b, c, first + i));
    }
  }
  return TD_STATUS_OK;
}

static td_status parse_compute(td_kernel_ctx *ctx) {
  const parser *p = ctx->state;
  int names = p->is_single ? ctx->kernel->input_count - 1 : 1;
  batch b = {.ctx = ctx, .parser = p, .serialized = td_in(ctx, 0), .names = td_in(ctx, names)};
  td_status status;
  TD_TRY(check_inputs(&b));
  b.columns = td_new_array(column, (size_t)p->total + 1);
  TD_TRY_GOTO(make_columns(&b));
  TD_TRY_GOTO(alloc_outputs(&b));
  TD_TRY_GOTO(read_examples(&b));
  status = put_outputs(&b);
cleanup:
  for (int i = 0; i < p->total; i++) td_free(b.columns[i].runs);
  td_free(b.columns);
  td_map_deinit(&b.contexts);
  td_map_deinit(&b.lists);
  return status;
}

/* ---- tables ---- */

#define TYPES "list(type) in {float, int64, string} >= 0 = []; "
#define COUNTS                                                                                        \
  "Ncontext_sparse: int >= 0 = 0; Ncontext_dense: int >= 0 = 0; Nfeature_list_sparse: int >= 0 = 0; " \
  "Nfeature_list_dense: int >= 0 = 0; "
#define SHAPES                                                                               \
  "context_sparse_types: " TYPES "Tcontext_dense: " TYPES "feature_list_dense_types: " TYPES \
  "context_dense_shapes: list(shape) >= 0 = []; feature_list_sparse_types: " TYPES           \
  "feature_list_dense_shapes: list(shape) >= 0 = []"
#define OUTPUTS                                                                                    \
  "context_sparse_indices: Ncontext_sparse * int64; context_sparse_values: context_sparse_types; " \
  "context_sparse_shapes: Ncontext_sparse * int64; context_dense_values: Tcontext_dense; "         \
  "feature_list_sparse_indices: Nfeature_list_sparse * int64; "                                    \
  "feature_list_sparse_values: feature_list_sparse_types; "                                        \
  "feature_list_sparse_shapes: Nfeature_list_sparse * int64; feature_list_dense_values: feature_list_dense_types"

static const td_op_spec ops[] = {
    {"ParseSequenceExample", "serialized: string; debug_name: string; context_dense_defaults: Tcontext_dense",
     OUTPUTS "; feature_list_dense_lengths: Nfeature_list_dense * int64",
     "feature_list_dense_missing_assumed_empty: list(string) >= 0; context_sparse_keys: list(string) >= 0; "
     "context_dense_keys: list(string) >= 0; feature_list_sparse_keys: list(string) >= 0; "
     "feature_list_dense_keys: list(string) >= 0; " COUNTS SHAPES,
     0},
    {"ParseSingleSequenceExample",
     "serialized: string; feature_list_dense_missing_assumed_empty: string; "
     "context_sparse_keys: Ncontext_sparse * string; context_dense_keys: Ncontext_dense * string; "
     "feature_list_sparse_keys: Nfeature_list_sparse * string; "
     "feature_list_dense_keys: Nfeature_list_dense * string; context_dense_defaults: Tcontext_dense; "
     "debug_name: string",
     OUTPUTS, COUNTS SHAPES, 0},
};

#define PARSER(name)                                                                              \
  {                                                                                               \
    .op = name, .cost = TD_COST_EXPENSIVE, .state_size = sizeof(parser), .create = parser_create, \
    .destroy = parser_destroy, .compute = parse_compute                                           \
  }

static const td_kernel_def kernels[] = {
    PARSER("ParseSequenceExample"),
    PARSER("ParseSingleSequenceExample"),
};

TD_FAMILY(sequence_example, ops, kernels);

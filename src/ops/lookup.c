/* Lookup tables (TensorFlow's lookup_table_op, lookup_table_init_op): the kernels; table.c has the tables.
 *
 * The first generation of these ops passes tables as Ref(string): a variable with two strings, container and name. */
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/blocking.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/table.h"

/* ---- tables as inputs ---- */

/* The table behind input 0, one reference. */
static td_status find_table(td_kernel_ctx *ctx, td_table **out) {
  void *found = NULL;
  td_tensor *names = NULL;
  if (!td_dtype_is_ref(ctx->kernel->input_types[0])) {
    TD_TRY(td_handle_lookup(td_in(ctx, 0), ctx->device, &td_table_type, &found));
    *out = found;
    return TD_STATUS_OK;
  }
  TD_TRY(td_variable_read(td_in_ref(ctx, 0), &names));
  if (!names) return td_failed_precondition("Attempting to use uninitialized value %s", td_in_ref(ctx, 0)->name);
  td_status s;
  if (names->dtype != TD_STRING || names->count != 2) {
    s = td_invalid_argument("Lookup table handle must be scalar, but had shape: %s", TD_SHOW(names));
  } else {
    const td_string *n = TD_DATA(names, td_string);
    s = td_resource_lookup(ctx->device->resources, td_string_view(n), td_string_view(n + 1), &td_table_type, &found);
  }
  td_tensor_release(names);
  *out = found;
  return s;
}

/* Inputs from 1 on, and outputs, are key and value in this order. */
static td_status check_signature(td_kernel_ctx *ctx, const td_table *t) {
  const td_kernel *k = ctx->kernel;
  int want[3] = {k->input_types[0], t->key_type, t->value_type}, want_out[1] = {t->value_type};
  return td_check_signature(ctx, want, TD_MIN(k->input_count, 3), want_out, TD_MIN(k->output_count, 1));
}

/* ---- shapes ---- */

static td_status check_key_shape(const td_table *t, const td_tensor *keys) {
  if (!t->key_rank || (keys->rank && keys->dims[keys->rank - 1] == t->key_size)) return TD_STATUS_OK;
  return td_invalid_argument("Input key shape %s must end with the table's key shape [%lld]", TD_SHOW(keys),
                             (long long)t->key_size);
}

/* The shape of the values of `keys`; `import`: as dense tables export them, where scalars are vectors of one. */
static td_status value_shape(const td_table *t, const td_tensor *keys, bool import, td_shape *out) {
  int key_rank = t->key_rank, value_rank = t->value_rank;
  if (import && t->kind == TD_TABLE_DENSE) key_rank = value_rank = 1;
  td_shape_set(out, TD_MAX(keys->rank - key_rank, 0), keys->dims);
  return value_rank ? td_shape_append(out, t->value_size) : TD_STATUS_OK;
}

static td_status check_pairs(const td_table *t, const td_tensor *keys, const td_tensor *values, bool import) {
  td_shape want;
  TD_TRY(check_key_shape(t, keys));
  TD_TRY(value_shape(t, keys, import, &want));
  if (td_dims_eq(want.rank, want.dims, values->rank, values->dims)) return TD_STATUS_OK;
  return td_invalid_argument("Expected shape %s for value, got %s",
                             td_show_dims(&(td_show_buf){.text = ""}, want.rank, want.dims), TD_SHOW(values));
}

/* ---- find, insert, remove, size, export, import ---- */

static td_status find_in(td_kernel_ctx *ctx, td_table *t) {
  const td_tensor *keys = td_in(ctx, 1), *default_value = td_in(ctx, 2);
  td_shape shape;
  td_tensor *out;
  TD_TRY(check_signature(ctx, t));
  TD_TRY(check_key_shape(t, keys));
  if (!td_dims_eq(t->value_rank, &t->value_size, default_value->rank, default_value->dims)) {
    return td_invalid_argument("Expected shape %s for default value, got %s",
                               td_show_dims(&(td_show_buf){.text = ""}, t->value_rank, &t->value_size),
                               TD_SHOW(default_value));
  }
  TD_TRY(value_shape(t, keys, false, &shape));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  return td_table_find(t, keys, default_value, out);
}

static td_status insert_in(td_kernel_ctx *ctx, td_table *t) {
  TD_TRY(check_signature(ctx, t));
  TD_TRY(check_pairs(t, td_in(ctx, 1), td_in(ctx, 2), false));
  return td_table_insert(t, td_in(ctx, 1), td_in(ctx, 2));
}

static td_status remove_in(td_kernel_ctx *ctx, td_table *t) {
  TD_TRY(check_signature(ctx, t));
  TD_TRY(check_key_shape(t, td_in(ctx, 1)));
  return td_table_remove(t, td_in(ctx, 1));
}

static td_status size_of(td_kernel_ctx *ctx, td_table *t) {
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_DATA(out, int64_t)[0] = td_table_size(t);
  return TD_STATUS_OK;
}

static td_status export_of(td_kernel_ctx *ctx, td_table *t) {
  td_tensor *keys, *values;
  if (td_out_type(ctx, 0) != t->key_type || td_out_type(ctx, 1) != t->value_type) {
    return td_invalid_argument("Table of %s and %s cannot be exported as %s and %s", td_dtype_name(t->key_type),
                               td_dtype_name(t->value_type), td_dtype_name(td_out_type(ctx, 0)),
                               td_dtype_name(td_out_type(ctx, 1)));
  }
  TD_TRY(td_table_export(t, &keys, &values));
  td_out_set(ctx, 0, keys);
  td_out_set(ctx, 1, values);
  return TD_STATUS_OK;
}

static td_status import_in(td_kernel_ctx *ctx, td_table *t) {
  TD_TRY(check_signature(ctx, t));
  TD_TRY(check_pairs(t, td_in(ctx, 1), td_in(ctx, 2), true));
  return td_table_import(t, td_in(ctx, 1), td_in(ctx, 2));
}

static td_status if_initializable(td_kernel_ctx *ctx, td_status (*fn)(td_kernel_ctx *, td_table *), td_table *t) {
  return t->kind == TD_TABLE_HASH ? fn(ctx, t) : td_invalid_argument("Table is not initializable");
}

static td_status initialize_in(td_kernel_ctx *ctx, td_table *t) {
  const td_tensor *keys = td_in(ctx, 1), *values = td_in(ctx, 2);
  TD_TRY(check_signature(ctx, t));
  if (keys->rank != 1) return td_invalid_argument("Keys must be a vector, but received shape%s", TD_SHOW(keys));
  if (values->rank != 1) return td_invalid_argument("Values must be a vector, but received shape%s", TD_SHOW(values));
  if (keys->count != values->count) {
    return td_invalid_argument("Keys and values must have the same size %lld vs %lld", (long long)keys->count,
                               (long long)values->count);
  }
  return td_table_import(t, td_in(ctx, 1), td_in(ctx, 2));
}

static td_status with_table(td_kernel_ctx *ctx, td_status (*fn)(td_kernel_ctx *, td_table *), bool initializable) {
  td_table *t = NULL;
  TD_TRY(find_table(ctx, &t));
  td_status s = initializable ? if_initializable(ctx, fn, t) : fn(ctx, t);
  td_resource_release(t);
  return s;
}

static td_status compute_find(td_kernel_ctx *ctx) { return with_table(ctx, find_in, false); }
static td_status compute_insert(td_kernel_ctx *ctx) { return with_table(ctx, insert_in, false); }
static td_status compute_remove(td_kernel_ctx *ctx) { return with_table(ctx, remove_in, false); }
static td_status compute_size(td_kernel_ctx *ctx) { return with_table(ctx, size_of, false); }
static td_status compute_export(td_kernel_ctx *ctx) { return with_table(ctx, export_of, false); }
static td_status compute_import(td_kernel_ctx *ctx) { return with_table(ctx, import_in, false); }
static td_status compute_initialize(td_kernel_ctx *ctx) { return with_table(ctx, initialize_in, true); }

/* ---- InitializeTableFromTextFile ---- */

static td_status create_file(td_kernel_builder *b, void *state) {
  td_table_file_options *o = state;
  td_str delimiter;
  TD_TRY(td_attr_int(b->node, "vocab_size", &o->vocab_size));
  TD_TRY(td_attr_int(b->node, "key_index", &o->key_index));
  TD_TRY(td_attr_int(b->node, "value_index", &o->value_index));
  TD_TRY(td_attr_int(b->node, "offset", &o->offset));
  TD_TRY(td_attr_str(b->node, "delimiter", &delimiter));
  if (delimiter.size != 1) return td_invalid_argument("delimiter should be only 1 char");
  o->delimiter = delimiter.data[0];
  if (o->vocab_size >= -1 && o->key_index >= -2 && o->value_index >= -2) return TD_STATUS_OK;
  return td_invalid_argument("vocab_size %lld, key_index %lld or value_index %lld is too small",
                             (long long)o->vocab_size, (long long)o->key_index, (long long)o->value_index);
}

static td_status initialize_from_file(td_kernel_ctx *ctx, td_table *t) {
  const td_tensor *name = td_in(ctx, 1);
  if (name->rank) return td_invalid_argument("filename should be a single string, but got %s", TD_SHOW(name));
  td_str path = td_string_view(TD_DATA(name, td_string));
  if (!path.size) return td_invalid_argument("filename cannot be empty.");
  if (memchr(path.data, 0, path.size)) return td_invalid_argument("filename contains a NUL byte");
  char *text = td_strndup(path.data, path.size);
  td_status s = td_table_init_from_file(t, text, ctx->state);
  td_free(text);
  return s;
}

static td_status initialize_file(td_kernel_ctx *ctx) { return with_table(ctx, initialize_from_file, true); }
TD_BLOCKING(initialize_file)

/* ---- the tables themselves ---- */

typedef struct table_state {
  td_table_options options;
  char *container, *name;
  td_device *device;
  bool is_private;     /* to this kernel: it goes with it */
  bool no_deleted_key; /* MutableDenseHashTable */
  td_tensor *handle;   /* what this kernel hands out, one of the two */
  td_variable *ref;
} table_state;

static td_status read_value_shape(const td_node_def *n, table_state *st) {
  const Pb__TensorShapeProto *p;
  td_table_options *o = &st->options;
  o->value_size = 1;
  if (td_str_starts(n->op, TD_STR("HashTable")) || !td_attr_find(n, "value_shape")) return TD_STATUS_OK;
  bool tensors = o->kind == TD_TABLE_MUTABLE;
  TD_TRY(td_attr_shape(n, "value_shape", &p));
  td_shape shape = {.rank = 0};
  for (size_t i = 0; i < p->n_dim; i++) TD_TRY(td_shape_append(&shape, p->dim[i]->size));
  if (p->unknown_rank || shape.rank > 1 || (tensors && !shape.rank)) {
    return td_invalid_argument("%s, got shape %s",
                               tensors ? "Default value must be a vector" : "Empty value must be a scalar or a vector",
                               td_show_dims(&(td_show_buf){.text = ""}, shape.rank, shape.dims));
  }
  o->value_rank = shape.rank;
  if (shape.rank) o->value_size = shape.dims[0];
  return TD_STATUS_OK;
}

static td_status make_ref(table_state *st) {
  td_tensor *names;
  TD_TRY(td_tensor_create_dims(TD_STRING, 1, (int64_t[]){2}, &names));
  st->ref = td_variable_create(&td_ref_variable_type, TD_STRING, td_str_of(st->name));
  td_variable_set(st->ref, names);
  TD_TRY(td_string_set(TD_DATA(names, td_string), td_str_of(st->container)));
  return td_string_set(TD_DATA(names, td_string) + 1, td_str_of(st->name));
}

static td_status create_table(td_kernel_builder *b, void *state) {
  table_state *st = state;
  td_table_options *o = &st->options;
  td_str container, name, key_container, key_name;
  bool use_node_name;
  TD_TRY(td_attr_str(b->node, "container", &container));
  TD_TRY(td_attr_str(b->node, "shared_name", &name));
  TD_TRY(td_attr_bool(b->node, "use_node_name_sharing", &use_node_name));
  TD_TRY(td_attr_type(b->node, "key_dtype", &o->key_type));
  TD_TRY(td_attr_type(b->node, "value_dtype", &o->value_type));
  if (td_str_starts(b->node->op, TD_STR("MutableDense"))) {
    o->kind = TD_TABLE_DENSE;
    TD_TRY(td_attr_int(b->node, "initial_num_buckets", &o->initial_buckets));
    TD_TRY(td_attr_float(b->node, "max_load_factor", &o->max_load_factor));
    st->no_deleted_key = b->input_count < 2;
  } else {
    o->kind = td_str_starts(b->node->op, TD_STR("Mutable")) ? TD_TABLE_MUTABLE : TD_TABLE_HASH;
  }
  TD_TRY(read_value_shape(b->node, st));
  TD_TRY(td_container_info(b->device->resources, container, name, b->node->name, &key_container, &key_name));
  st->container = td_strndup(key_container.data, key_container.size);
  st->is_private = !name.size && !use_node_name;
  st->name = st->is_private ? td_asprintf("_%016llx_%.*s", (unsigned long long)td_random_u64(), TD_STR_ARG(key_name))
                            : td_strndup(key_name.data, key_name.size);
  st->device = td_device_retain(b->device);
  if (td_dtype_is_ref(b->output_types[0])) return make_ref(st);
  return td_handle_create(b->device, td_str_of(st->container), td_str_of(st->name), &td_table_type, &st->handle);
}

static void destroy_table(void *state) {
  table_state *st = state;
  if (st->is_private && st->device) { /* it may have gone with its container */
    td_status_free(
        td_resource_delete(st->device->resources, td_str_of(st->container), td_str_of(st->name), &td_table_type));
  }
  if (st->device) td_device_release(st->device);
  td_tensor_release(st->handle);
  if (st->ref) td_variable_release(st->ref);
  td_free(st->container);
  td_free(st->name);
}

static td_status use_made(void *arg, td_resource **out) {
  *out = td_resource_retain(arg);
  return TD_STATUS_OK;
}

/* Looks the table up, or makes it: outside of the manager's lock, since a dense one is large. */
static td_status get_table(td_kernel_ctx *ctx, const table_state *st, void **out) {
  td_resource_mgr *m = ctx->device->resources;
  td_table_options o = st->options;
  td_table *made;
  td_status s = td_resource_lookup(m, td_str_of(st->container), td_str_of(st->name), &td_table_type, out);
  if (td_status_code(s) != TD_NOT_FOUND) return s;
  td_status_free(s);
  if (st->no_deleted_key) return td_invalid_argument("No input name: deleted_key");
  if (o.kind == TD_TABLE_DENSE) {
    o.empty_key = td_in(ctx, 0);
    o.deleted_key = td_in(ctx, 1);
  }
  TD_TRY(td_table_create(&o, &made));
  s = td_resource_lookup_or_create(m, td_str_of(st->container), td_str_of(st->name), &td_table_type, use_made, made,
                                   out);
  td_resource_release(made);
  return s;
}

static td_status compute_table(td_kernel_ctx *ctx) {
  const table_state *st = ctx->state;
  void *found = NULL;
  TD_TRY(get_table(ctx, st, &found));
  td_table *t = found;
  td_status s = TD_STATUS_OK;
  if (t->key_type != st->options.key_type || t->value_type != st->options.value_type) {
    s = td_invalid_argument("Conflicting key/value dtypes %s->%s with %s-%s for table %s",
                            td_dtype_name(st->options.key_type), td_dtype_name(st->options.value_type),
                            td_dtype_name(t->key_type), td_dtype_name(t->value_type), st->name);
  }
  td_resource_release(t);
  TD_TRY(s);
  if (st->ref)
    td_out_set_ref(ctx, 0, td_variable_retain(st->ref));
  else
    td_out_set(ctx, 0, td_tensor_retain(st->handle));
  return TD_STATUS_OK;
}

/* ---- registration ---- */

#define NAMES   "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
#define TYPES   "key_dtype: type; value_dtype: type"
#define TENSORS TYPES "; value_shape: shape = []"
#define DENSE   TENSORS "; initial_num_buckets: int = 131072; max_load_factor: float = 0.800000011920929"
#define IN_OUT  "Tin: type; Tout: type"
#define FILE_ATTRS                                                                                        \
  "key_index: int >= -2; value_index: int >= -2; vocab_size: int >= -1 = -1; delimiter: string = '\\t'; " \
  "offset: int = 0"

static const td_op_spec ops[] = {
    {"HashTable", NULL, "table_handle: Ref(string)", NAMES TYPES, TD_OP_STATEFUL},
    {"HashTableV2", NULL, "table_handle: resource", NAMES TYPES, TD_OP_STATEFUL},
    {"InitializeTable", "table_handle: Ref(string); keys: Tkey; values: Tval", NULL, "Tkey: type; Tval: type", 0},
    {"InitializeTableFromTextFile", "table_handle: Ref(string); filename: string", NULL, FILE_ATTRS, 0},
    {"InitializeTableFromTextFileV2", "table_handle: resource; filename: string", NULL, FILE_ATTRS, TD_OP_STATEFUL},
    {"InitializeTableV2", "table_handle: resource; keys: Tkey; values: Tval", NULL, "Tkey: type; Tval: type",
     TD_OP_STATEFUL},
    {"LookupTableExport", "table_handle: Ref(string)", "keys: Tkeys; values: Tvalues", "Tkeys: type; Tvalues: type", 0},
    {"LookupTableExportV2", "table_handle: resource", "keys: Tkeys; values: Tvalues", "Tkeys: type; Tvalues: type",
     TD_OP_STATEFUL},
    {"LookupTableFind", "table_handle: Ref(string); keys: Tin; default_value: Tout", "values: Tout", IN_OUT, 0},
    {"LookupTableFindV2", "table_handle: resource; keys: Tin; default_value: Tout", "values: Tout", IN_OUT,
     TD_OP_STATEFUL},
    {"LookupTableImport", "table_handle: Ref(string); keys: Tin; values: Tout", NULL, IN_OUT, 0},
    {"LookupTableImportV2", "table_handle: resource; keys: Tin; values: Tout", NULL, IN_OUT, TD_OP_STATEFUL},
    {"LookupTableInsert", "table_handle: Ref(string); keys: Tin; values: Tout", NULL, IN_OUT, 0},
    {"LookupTableInsertV2", "table_handle: resource; keys: Tin; values: Tout", NULL, IN_OUT, TD_OP_STATEFUL},
    {"LookupTableRemoveV2", "table_handle: resource; keys: Tin", NULL, "Tin: type", TD_OP_STATEFUL},
    {"LookupTableSize", "table_handle: Ref(string)", "size: int64", NULL, 0},
    {"LookupTableSizeV2", "table_handle: resource", "size: int64", NULL, TD_OP_STATEFUL},
    {"MutableDenseHashTable", "empty_key: key_dtype", "table_handle: Ref(string)", NAMES DENSE, TD_OP_STATEFUL},
    {"MutableDenseHashTableV2", "empty_key: key_dtype; deleted_key: key_dtype", "table_handle: resource", NAMES DENSE,
     TD_OP_STATEFUL},
    {"MutableHashTable", NULL, "table_handle: Ref(string)", NAMES TYPES, TD_OP_STATEFUL},
    {"MutableHashTableOfTensors", NULL, "table_handle: Ref(string)", NAMES TENSORS, TD_OP_STATEFUL},
    {"MutableHashTableOfTensorsV2", NULL, "table_handle: resource", NAMES TENSORS, TD_OP_STATEFUL},
    {"MutableHashTableV2", NULL, "table_handle: resource", NAMES TYPES, TD_OP_STATEFUL},
};

#define FLOATS       (TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE))
#define INT32_VALUES (FLOATS | TD_SET(TD_INT32))
#define INT64_VALUES (INT32_VALUES | TD_SET(TD_INT64))

#define TABLE(name, key, value_set)                                                                               \
  {                                                                                                               \
    .op = name, .types = {{"key_dtype", TD_SET(key)}, {"value_dtype", value_set}}, .cost = TD_COST_CHEAP,         \
    .state_size = sizeof(table_state), .create = create_table, .destroy = destroy_table, .compute = compute_table \
  }
#define TABLES(name, int32_values, int64_values, string_values)                                                    \
  TABLE(name, TD_INT32, int32_values), TABLE(name, TD_INT64, int64_values), TABLE(name, TD_STRING, string_values), \
      TABLE(name "V2", TD_INT32, int32_values), TABLE(name "V2", TD_INT64, int64_values),                          \
      TABLE(name "V2", TD_STRING, string_values)
#define BOTH(name, fn) \
  {.op = name, .cost = TD_COST_EXPENSIVE, .compute = fn}, { .op = name "V2", .cost = TD_COST_EXPENSIVE, .compute = fn }
#define FROM_FILE(name)                                                             \
  {                                                                                 \
    .op = name, .state_size = sizeof(td_table_file_options), .create = create_file, \
    .compute_async = initialize_file_async                                          \
  }

static const td_kernel_def kernels[] = {
    TABLES("HashTable", INT32_VALUES | TD_SET(TD_STRING), INT64_VALUES | TD_SET(TD_STRING),
           INT64_VALUES | TD_SET(TD_BOOL) | TD_SET(TD_STRING)),
    TABLES("MutableHashTable", INT32_VALUES, INT64_VALUES | TD_SET(TD_STRING) | TD_SET(TD_VARIANT),
           INT64_VALUES | TD_SET(TD_BOOL)),
    TABLES("MutableHashTableOfTensors", INT32_VALUES, INT64_VALUES | TD_SET(TD_STRING), INT64_VALUES | TD_SET(TD_BOOL)),
    TABLES("MutableDenseHashTable", INT32_VALUES, INT64_VALUES | TD_SET(TD_BOOL) | TD_SET(TD_VARIANT),
           INT64_VALUES | TD_SET(TD_BOOL)),
    BOTH("InitializeTable", compute_initialize),
    BOTH("LookupTableExport", compute_export),
    BOTH("LookupTableFind", compute_find),
    BOTH("LookupTableImport", compute_import),
    BOTH("LookupTableInsert", compute_insert),
    BOTH("LookupTableSize", compute_size),
    {.op = "LookupTableRemoveV2", .cost = TD_COST_EXPENSIVE, .compute = compute_remove},
    FROM_FILE("InitializeTableFromTextFile"),
    FROM_FILE("InitializeTableFromTextFileV2"),
};

TD_FAMILY(lookup, ops, kernels);

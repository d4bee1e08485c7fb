/* Datasets as graphs (DatasetToGraph) and back (DatasetFromGraph), so that they can go to other devices and tasks: the
 * nodes that made them, constants for what these were given, the functions they call, and a _Retval that names the
 * dataset. */
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "ops/data/dataset_graph.h"
#include "ops/families.h"
#include "proto/message.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

enum { GRAPH_NODE = 1, GRAPH_LIBRARY = 2, GRAPH_VERSIONS = 4, PRODUCER = 134 /* TensorFlow 1.15's */ };
enum { NODE_NAME = 1, NODE_OP = 2, NODE_INPUT = 3, NODE_ATTR = 5, ATTR_INT = 3, ATTR_TYPE = 6, ATTR_TENSOR = 8 };

/* ---- writing ---- */

typedef struct writer {
  td_arena arena;
  td_strbuf out;
  td_map names; /* of nodes, by the address of their dataset */
  size_t node_count;
  /* calls of functions, each with the runtime that knows it */
  const Pb__NameAttrList **calls;
  td_function_runtime **runtimes;
  size_t call_count, call_capacity, runtime_capacity;
} writer;

static void put_attr(td_strbuf *node, const char *name, td_str value) {
  td_strbuf entry = {0};
  td_wire_put_bytes(&entry, 1, td_str_of(name));
  td_wire_put_bytes(&entry, 2, value);
  td_wire_put_bytes(node, NODE_ATTR, td_strbuf_view(&entry));
  td_strbuf_deinit(&entry);
}

static void put_number_attr(td_strbuf *node, const char *name, uint32_t kind, uint64_t number) {
  td_strbuf value = {0};
  td_wire_put_tag(&value, kind, TD_WIRE_VARINT);
  td_wire_put_varint(&value, number);
  put_attr(node, name, td_strbuf_view(&value));
  td_strbuf_deinit(&value);
}

/* Begins a node; its name lies in the arena. */
static const char *begin_node(writer *w, td_strbuf *node, td_str op) {
  char name[32];
  snprintf(name, sizeof name, "node_%zu", w->node_count++);
  td_wire_put_bytes(node, NODE_NAME, td_str_of(name));
  td_wire_put_bytes(node, NODE_OP, op);
  return td_arena_strndup(&w->arena, name, strlen(name));
}

static void end_node(writer *w, td_strbuf *node) {
  td_wire_put_bytes(&w->out, GRAPH_NODE, td_strbuf_view(node));
  td_strbuf_deinit(node);
}

static td_status put_constant(writer *w, const td_tensor *t, const char **name) {
  td_strbuf node = {0}, value = {0}, tensor = {0};
  if (td_dtype_in(t->dtype, TD_SET(TD_RESOURCE) | TD_SET(TD_VARIANT)))
    return td_failed_precondition("A dataset that holds a %s cannot be made a graph", td_dtype_name(t->dtype));
  td_status s = td_tensor_encode(t, &tensor);
  *name = begin_node(w, &node, TD_STR("Const"));
  td_wire_put_bytes(&value, ATTR_TENSOR, td_strbuf_view(&tensor));
  put_number_attr(&node, "dtype", ATTR_TYPE, t->dtype);
  put_attr(&node, "value", td_strbuf_view(&value));
  end_node(w, &node);
  td_strbuf_deinit(&value);
  td_strbuf_deinit(&tensor);
  return s;
}

static void add_call(writer *w, td_function_runtime *r, const Pb__NameAttrList *call) {
  size_t count = w->call_count;
  TD_GROW(w->runtimes, count, w->runtime_capacity);
  TD_GROW(w->calls, w->call_count, w->call_capacity);
  w->runtimes[w->call_count] = r;
  w->calls[w->call_count++] = call;
}

/* Remembers the functions among a node's attributes. */
static td_status add_calls(writer *w, const td_data_origin *o) {
  ProtobufCMessage *m;
  TD_TRY(td_message_decode(&pb__node_def__descriptor, td_strbuf_view(&o->node->attrs), &w->arena, &m));
  const Pb__NodeDef *n = (const Pb__NodeDef *)m;
  for (size_t i = 0; i < n->n_attr; i++) {
    const Pb__AttrValue *v = n->attr[i]->value;
    if (!v || !o->runtime) continue;
    if (v->value_case == PB__ATTR_VALUE__VALUE_FUNC && v->func) add_call(w, o->runtime, v->func);
    if (v->value_case == PB__ATTR_VALUE__VALUE_LIST && v->list)
      for (size_t k = 0; k < v->list->n_func; k++) add_call(w, o->runtime, v->list->func[k]);
  }
  return TD_STATUS_OK;
}

static td_str key_of(td_dataset *const *d) { return td_str_n(d, sizeof *d); }

/* As deep as the DAG: TD_DATASET_MAX_DEPTH. */
static td_status put_dataset(writer *w, td_dataset *d, const char **name) {
  const td_data_origin *o = d->origin;
  td_strbuf node = {0};
  *name = td_map_get(&w->names, key_of(&d));
  if (*name) return TD_STATUS_OK;
  if (!o) return td_unimplemented("A dataset of kind %s cannot be made a graph", d->ops->name);
  const char **inputs = td_arena_array(&w->arena, const char *, (size_t)o->input_count + 1);
  for (int i = 0; i < o->input_count; i++) {
    td_dataset *input;
    td_status none = td_dataset_of(o->inputs[i], &input);
    TD_TRY(none ? put_constant(w, o->inputs[i], &inputs[i]) : put_dataset(w, input, &inputs[i]));
    td_status_free(none);
  }
  *name = begin_node(w, &node, td_str_of(o->op));
  for (int i = 0; i < o->input_count; i++) td_wire_put_bytes(&node, NODE_INPUT, td_str_of(inputs[i]));
  if (o->node) td_strbuf_append(&node, td_strbuf_view(&o->node->attrs));
  end_node(w, &node);
  td_dataset **key = td_arena_new(&w->arena, td_dataset *);
  *key = d;
  td_map_put(&w->names, key_of(key), (void *)*name);
  return o->node ? add_calls(w, o) : TD_STATUS_OK;
}

static void put_result(writer *w, const char *dataset) {
  td_strbuf node = {0}, versions = {0};
  begin_node(w, &node, TD_STR("_Retval"));
  td_wire_put_bytes(&node, NODE_INPUT, td_str_of(dataset));
  put_number_attr(&node, "T", ATTR_TYPE, TD_VARIANT);
  put_number_attr(&node, "index", ATTR_INT, 0);
  end_node(w, &node);
  td_wire_put_uint(&versions, 1, PRODUCER);
  td_wire_put_bytes(&w->out, GRAPH_VERSIONS, td_strbuf_view(&versions));
  td_strbuf_deinit(&versions);
}

/* ---- functions with state ---- */

/* Ops that have the flag, but whose state does not matter to who runs the function elsewhere. */
static bool is_harmless(td_str op, const Pb__AttrValue__ListValue *whitelist) {
  static const char *const names[] = {"Assert",    "FakeParam",  "If",    "PartitionedCall",
                                      "Print",     "PrintV2",    "While", "StatefulPartitionedCall",
                                      "HashTable", "HashTableV2"};
  for (size_t i = 0; i < TD_COUNT(names); i++)
    if (td_str_is(op, names[i])) return true;
  for (size_t i = 0; whitelist && i < whitelist->n_s; i++)
    if (td_str_eq(op, td_str_n(whitelist->s[i].data, whitelist->s[i].len))) return true;
  return td_str_starts(op, TD_STR("LookupTable")) || td_str_ends(op, TD_STR("Dataset")) ||
         td_str_ends(op, TD_STR("DatasetV2")) || td_str_ends(op, TD_STR("DatasetV3"));
}

static td_status check_function(const Pb__FunctionDef *f, const Pb__AttrValue__ListValue *whitelist) {
  for (size_t i = 0; i < f->n_node_def; i++) {
    td_str name = td_str_of(f->node_def[i]->op);
    const td_op_def *op = td_op_find(name);
    if (op && op->flags & TD_OP_STATEFUL && !is_harmless(name, whitelist))
      return td_failed_precondition("%s is stateful: op %s of function %s", f->node_def[i]->name, f->node_def[i]->op,
                                    f->signature ? f->signature->name : "");
  }
  return TD_STATUS_OK;
}

/* The functions that the calls of one runtime reach, for each runtime. */
static td_status put_library(writer *w, bool check, const Pb__AttrValue__ListValue *whitelist) {
  for (size_t i = 0; i < w->call_count; i++) {
    td_function_runtime *r = w->runtimes[i];
    size_t n = 0;
    if (!r) continue;
    const Pb__NameAttrList **calls = td_arena_array(&w->arena, const Pb__NameAttrList *, w->call_count);
    for (size_t k = i; k < w->call_count; k++) {
      if (w->runtimes[k] != r) continue;
      calls[n++] = w->calls[k];
      w->runtimes[k] = NULL;
    }
    const Pb__FunctionDefLibrary *library = r->ops->reach(r, calls, n, &w->arena);
    if (!library) continue;
    for (size_t k = 0; check && k < library->n_function; k++) TD_TRY(check_function(library->function[k], whitelist));
    TD_TRY(td_message_encode_field(&library->base, GRAPH_LIBRARY, &w->out));
  }
  return TD_STATUS_OK;
}

td_status td_dataset_graph(td_dataset *d, bool check, const Pb__AttrValue__ListValue *whitelist, td_strbuf *out) {
  writer w = {0};
  const char *name;
  td_status s = put_dataset(&w, d, &name);
  if (!s) s = put_library(&w, check, whitelist);
  if (!s) put_result(&w, name);
  if (s)
    td_strbuf_deinit(&w.out);
  else
    *out = w.out;
  td_free(w.calls);
  td_free(w.runtimes);
  td_map_deinit(&w.names);
  td_arena_deinit(&w.arena);
  return s;
}

typedef struct to_graph {
  const Pb__AttrValue__ListValue *whitelist; /* the node's */
  bool checks;
} to_graph;

enum { POLICY_FAIL = 2 };

static td_status create_to_graph(td_kernel_builder *b, void *state) {
  to_graph *g = state;
  int64_t policy;
  if (td_str_ends(b->node->op, TD_STR("V2"))) {
    TD_TRY(td_attr_int(b->node, "external_state_policy", &policy));
    g->checks = policy == POLICY_FAIL;
    return TD_STATUS_OK;
  }
  bool allows = false;
  TD_TRY(td_attr_bool(b->node, "allow_stateful", &allows));
  g->checks = !allows;
  return td_attr_list(b->node, "stateful_whitelist", &g->whitelist);
}

static td_status compute_to_graph(td_kernel_ctx *ctx) {
  const to_graph *g = ctx->state;
  td_dataset *d;
  td_strbuf bytes = {0};
  td_tensor *out;
  TD_TRY(td_in_dataset(ctx, 0, &d));
  TD_TRY(td_dataset_graph(d, g->checks, g->whitelist, &bytes));
  td_status s = td_out_alloc_dims(ctx, 0, 0, NULL, &out);
  if (!s) s = td_string_set(TD_DATA(out, td_string), td_strbuf_view(&bytes));
  td_strbuf_deinit(&bytes);
  return s;
}

/* ---- reading: the graph becomes a function, in a library of its own ---- */

typedef struct from_graph {
  td_function_runtime *runtime; /* borrowed */
  td_device *device;            /* retained */
} from_graph;

static td_status create_from_graph(td_kernel_builder *b, void *state) {
  from_graph *f = state;
  if (!b->functions) return td_internal("No function library is provided.");
  f->runtime = b->functions;
  f->device = td_device_retain(b->device);
  return TD_STATUS_OK;
}

static void destroy_from_graph(void *state) {
  from_graph *f = state;
  if (f->device) td_device_release(f->device);
}

static const Pb__NodeDef *find_node(const td_map *nodes, td_str name) { return td_map_get(nodes, name); }

/* "node:2" as functions write it: "node:output:0"; controls stay. */
static td_status function_input(const td_map *nodes, const char *input, td_arena *arena, char **out) {
  td_str name = td_str_of(input);
  const char *colon = strrchr(input, ':');
  int64_t slot = 0;
  if (*input == '^') {
    *out = td_arena_strndup(arena, input, name.size);
    return TD_STATUS_OK;
  }
  if (colon) {
    if (!td_str_to_i64(td_str_of(colon + 1), &slot)) return td_invalid_argument("Malformed input %s", input);
    name.size = (size_t)(colon - input);
  }
  const Pb__NodeDef *n = find_node(nodes, name);
  const td_op_def *op = n ? td_op_find(td_str_of(n->op)) : NULL;
  if (!op) return td_invalid_argument("Input %s of a dataset's graph is no node of a known op", input);
  td_node_def def = {.name = td_str_of(n->name), .op = td_str_of(n->op)};
  def.attrs = td_arena_array(arena, td_attr, n->n_attr + op->attr_count);
  for (; def.attr_count < n->n_attr; def.attr_count++)
    def.attrs[def.attr_count] = (td_attr){td_str_of(n->attr[def.attr_count]->key), n->attr[def.attr_count]->value};
  for (size_t i = 0; i < op->output_count; i++) {
    int begin, end;
    char *arg = td_arena_strndup(arena, op->outputs[i].name.data, op->outputs[i].name.size);
    TD_TRY(td_node_output_range(&def, op, arg, &begin, &end));
    if (slot < begin || slot >= end) continue;
    size_t size = name.size + strlen(arg) + 32;
    *out = td_arena_alloc(arena, size);
    snprintf(*out, size, "%.*s:%s:%lld", TD_STR_ARG(name), arg, (long long)slot - begin);
    return TD_STATUS_OK;
  }
  return td_invalid_argument("Input %s of a dataset's graph: there is no such output", input);
}

static td_status rewrite_inputs(Pb__GraphDef *g, td_map *nodes, td_arena *arena, const char **dataset) {
  for (size_t i = 0; i < g->n_node; i++)
    if (td_map_put(nodes, td_str_of(g->node[i]->name), g->node[i]))
      return td_invalid_argument("A dataset's graph has two nodes %s", g->node[i]->name);
  for (size_t i = 0; i < g->n_node; i++) {
    Pb__NodeDef *n = g->node[i];
    char **inputs = td_arena_array(arena, char *, n->n_input + 1);
    for (size_t k = 0; k < n->n_input; k++) TD_TRY(function_input(nodes, n->input[k], arena, &inputs[k]));
    n->input = inputs;
    if (!strcmp(n->op, "_Retval") && n->n_input) *dataset = inputs[0];
  }
  return *dataset ? TD_STATUS_OK : td_not_found("Failed to find a _Retval op in the given dataset.");
}

/* A function of no arguments that returns the dataset, together with the graph's functions. */
static td_status make_library(Pb__GraphDef *g, td_arena *arena, const char *name, Pb__FunctionDefLibrary *out) {
  td_map nodes = {0};
  const char *dataset = NULL;
  td_status s = rewrite_inputs(g, &nodes, arena, &dataset);
  td_map_deinit(&nodes);
  if (s) return s;
  Pb__FunctionDef *f = td_arena_new(arena, Pb__FunctionDef);
  pb__function_def__init(f);
  f->node_def = td_arena_array(arena, Pb__NodeDef *, g->n_node);
  for (size_t i = 0; i < g->n_node; i++)
    if (strcmp(g->node[i]->op, "_Retval") != 0) f->node_def[f->n_node_def++] = g->node[i];
  Pb__OpDef *signature = td_arena_new(arena, Pb__OpDef);
  Pb__OpDef__ArgDef *arg = td_arena_new(arena, Pb__OpDef__ArgDef), **args = td_arena_new(arena, Pb__OpDef__ArgDef *);
  pb__op_def__init(signature);
  pb__op_def__arg_def__init(arg);
  signature->name = (char *)name;
  arg->name = "dataset";
  arg->type = TD_VARIANT;
  args[0] = arg;
  signature->output_arg = args;
  signature->n_output_arg = 1;
  f->signature = signature;
  Pb__StringEntry *ret = td_arena_new(arena, Pb__StringEntry), **rets = td_arena_new(arena, Pb__StringEntry *);
  pb__string_entry__init(ret);
  ret->key = "dataset";
  ret->value = (char *)dataset;
  rets[0] = ret;
  f->ret = rets;
  f->n_ret = 1;
  pb__function_def_library__init(out);
  size_t n = g->library ? g->library->n_function : 0;
  out->function = td_arena_array(arena, Pb__FunctionDef *, n + 1);
  for (; out->n_function < n; out->n_function++) out->function[out->n_function] = g->library->function[out->n_function];
  out->function[out->n_function++] = f;
  if (g->library) {
    out->gradient = g->library->gradient;
    out->n_gradient = g->library->n_gradient;
  }
  return TD_STATUS_OK;
}

typedef struct building {
  td_function_call call;
  td_kernel_ctx *ctx;
  td_function_runtime *runtime; /* one reference: the dataset holds others */
} building;

static void built(td_function_call *call, td_status s, td_tensor **results, int count) {
  building *b = TD_CONTAINER_OF(call, building, call);
  td_dataset *d;
  td_kernel_ctx *ctx = b->ctx;
  td_function_runtime *r = b->runtime;
  td_free(b);
  if (!s) s = count == 1 ? td_dataset_of(results[0], &d) : td_internal("A dataset's graph gave %d results", count);
  if (!s) td_out_set(ctx, 0, td_tensor_retain(results[0]));
  for (int i = 0; i < count; i++) td_tensor_release(results[i]);
  td_kernel_done(ctx, s);
  r->ops->release(r);
}

static td_status derive(td_kernel_ctx *ctx, td_function_runtime **out, td_function_handle *handle) {
  static const char name[] = "__dataset_from_graph";
  const from_graph *f = ctx->state;
  td_arena arena = {0};
  ProtobufCMessage *m;
  Pb__FunctionDefLibrary library;
  Pb__NameAttrList function;
  pb__name_attr_list__init(&function);
  function.name = (char *)name;
  td_status s = td_check_scalar(td_in(ctx, 0), "graph_def");
  if (!s) {
    s = td_message_decode(&pb__graph_def__descriptor, td_string_view(TD_DATA(td_in(ctx, 0), td_string)), &arena, &m);
    if (s) s = td_status_prepend(s, "Could not parse GraphDef: ");
  }
  if (!s) s = make_library((Pb__GraphDef *)m, &arena, name, &library);
  if (!s) s = f->runtime->ops->derive(f->runtime, &library, out);
  td_arena_deinit(&arena);
  if (s) return s;
  s = (*out)->ops->instantiate(*out, &function, f->device, handle);
  if (s) (*out)->ops->release(*out);
  return s;
}

static void compute_from_graph(td_kernel_ctx *ctx) {
  td_function_runtime *r;
  td_function_handle handle;
  td_status s = derive(ctx, &r, &handle);
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  building *b = td_new(building);
  b->ctx = ctx;
  b->runtime = r;
  b->call = (td_function_call){.function = handle, .step = ctx->step, .done = built};
  r->ops->run(r, &b->call);
}

static const td_op_spec ops[] = {
    {"DatasetFromGraph", "graph_def: string", "handle: variant", NULL, 0},
    {"DatasetToGraph", "input_dataset: variant", "graph: string",
     "stateful_whitelist: list(string) >= 0 = []; allow_stateful: bool = false; strip_device_assignment: bool = false",
     0},
    {"DatasetToGraphV2", "input_dataset: variant", "graph: string",
     "external_state_policy: int = 0; strip_device_assignment: bool = false", 0},
};

#define TO_GRAPH(name) \
  { .op = name, .state_size = sizeof(to_graph), .create = create_to_graph, .compute = compute_to_graph }

static const td_kernel_def kernels[] = {
    {.op = "DatasetFromGraph",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(from_graph),
     .create = create_from_graph,
     .destroy = destroy_from_graph,
     .compute_async = compute_from_graph},
    TO_GRAPH("DatasetToGraph"),
    TO_GRAPH("DatasetToGraphV2"),
};

TD_FAMILY(dataset_graph, ops, kernels);

#include "graph/testing.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "framework/kernel.h"
#include "graph/import.h"

static td_status nothing(td_kernel_ctx *ctx) {
  (void)ctx;
  return TD_STATUS_OK;
}

#define COMM                                                                                      \
  "tensor_name: string; send_device: string; send_device_incarnation: int; recv_device: string; " \
  "client_terminated: bool = false"
#define LOOP "T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10"

/* X(name, inputs, outputs, attrs, flags): signatures as in TensorFlow. */
#define OPS(X)                                                                                                        \
  X(Add, "x: T; y: T", "z: T", "T: type", 0)                                                                          \
  X(AddV2, "x: T; y: T", "z: T", "T: type", 0)                                                                        \
  X(Sub, "x: T; y: T", "z: T", "T: type", 0)                                                                          \
  X(Mul, "x: T; y: T", "z: T", "T: type", 0)                                                                          \
  X(RealDiv, "x: T; y: T", "z: T", "T: type", 0)                                                                      \
  X(FloorDiv, "x: T; y: T", "z: T", "T: type", 0)                                                                     \
  X(Maximum, "x: T; y: T", "z: T", "T: type", 0)                                                                      \
  X(Neg, "x: T", "y: T", "T: type", 0)                                                                                \
  X(Square, "x: T", "y: T", "T: type", 0)                                                                             \
  X(Less, "x: T; y: T", "z: bool", "T: type", 0)                                                                      \
  X(LogicalAnd, "x: bool; y: bool", "z: bool", NULL, 0)                                                               \
  X(MatMul, "a: T; b: T", "product: T", "transpose_a: bool = false; transpose_b: bool = false; T: type", 0)           \
  X(Const, NULL, "output: dtype", "value: tensor; dtype: type", 0)                                                    \
  X(Identity, "input: T", "output: T", "T: type", 0)                                                                  \
  X(IdentityN, "input: T", "output: T", "T: list(type) >= 1", 0)                                                      \
  X(NoOp, NULL, NULL, NULL, 0)                                                                                        \
  X(Placeholder, NULL, "output: dtype", "dtype: type; shape: shape = unknown", 0)                                     \
  X(Shape, "input: T", "output: out_type", "T: type; out_type: type in {int32, int64} = int32", 0)                    \
  X(Size, "input: T", "output: out_type", "T: type; out_type: type in {int32, int64} = int32", 0)                     \
  X(Reshape, "tensor: T; shape: Tshape", "output: T", "T: type; Tshape: type in {int32, int64} = int32", 0)           \
  X(Tile, "input: T; multiples: Tmultiples", "output: T", "T: type; Tmultiples: type in {int32, int64} = int32", 0)   \
  X(Fill, "dims: index_type; value: T", "output: T", "T: type; index_type: type in {int32, int64} = int32", 0)        \
  X(Cast, "x: SrcT", "y: DstT", "SrcT: type; DstT: type; Truncate: bool = false", 0)                                  \
  X(Mean, "input: T; reduction_indices: Tidx", "output: T",                                                           \
    "keep_dims: bool = false; T: type; Tidx: type in {int32, int64} = int32", 0)                                      \
  X(Sum, "input: T; reduction_indices: Tidx", "output: T",                                                            \
    "keep_dims: bool = false; T: type; Tidx: type in {int32, int64} = int32", 0)                                      \
  X(Prod, "input: T; reduction_indices: Tidx", "output: T",                                                           \
    "keep_dims: bool = false; T: type; Tidx: type in {int32, int64} = int32", 0)                                      \
  X(BroadcastGradientArgs, "s0: T; s1: T", "r0: T; r1: T", "T: type in {int32, int64} = int32", 0)                    \
  X(VariableV2, NULL, "ref: Ref(dtype)",                                                                              \
    "shape: shape; dtype: type; container: string = ''; shared_name: string = ''", TD_OP_STATEFUL)                    \
  X(Assign, "ref: Ref(T); value: T", "output_ref: Ref(T)",                                                            \
    "T: type; validate_shape: bool = true; use_locking: bool = true", TD_OP_ALLOWS_UNINITIALIZED)                     \
  X(AssignAdd, "ref: Ref(T); value: T", "output_ref: Ref(T)", "T: type; use_locking: bool = false", 0)                \
  X(ApplyGradientDescent, "var: Ref(T); alpha: T; delta: T", "out: Ref(T)", "T: type; use_locking: bool = false", 0)  \
  X(VarHandleOp, NULL, "resource: resource",                                                                          \
    "container: string = ''; shared_name: string = ''; dtype: type; shape: shape", TD_OP_STATEFUL)                    \
  X(ReadVariableOp, "resource: resource", "value: dtype", "dtype: type", TD_OP_STATEFUL)                              \
  X(AssignVariableOp, "resource: resource; value: dtype", NULL, "dtype: type", TD_OP_STATEFUL)                        \
  X(VarIsInitializedOp, "resource: resource", "is_initialized: bool", NULL, TD_OP_STATEFUL)                           \
  X(Switch, "data: T; pred: bool", "output_false: T; output_true: T", "T: type", 0)                                   \
  X(Merge, "inputs: N * T", "output: T; value_index: int32", "T: type; N: int >= 1", 0)                               \
  X(RefMerge, "inputs: Ref(N * T)", "output: Ref(T); value_index: int32", "T: type; N: int >= 1", 0)                  \
  X(Enter, "data: T", "output: T", LOOP, 0)                                                                           \
  X(RefEnter, "data: Ref(T)", "output: Ref(T)", LOOP, 0)                                                              \
  X(Exit, "data: T", "output: T", "T: type", 0)                                                                       \
  X(NextIteration, "data: T", "output: T", "T: type", 0)                                                              \
  X(LoopCond, "input: bool", "output: bool", NULL, 0)                                                                 \
  X(ControlTrigger, NULL, NULL, NULL, 0)                                                                              \
  X(_Send, "tensor: T", NULL, "T: type; " COMM, TD_OP_STATEFUL)                                                       \
  X(_Recv, NULL, "tensor: tensor_type", "tensor_type: type; " COMM, TD_OP_STATEFUL)                                   \
  X(_Arg, NULL, "output: T", "T: type; index: int >= 0", TD_OP_STATEFUL)                                              \
  X(_Retval, "input: T", NULL, "T: type; index: int >= 0", TD_OP_STATEFUL)                                            \
  X(_SwitchN, "data: T; output_index: int32", "outputs: num_outs * T", "num_outs: int >= 1; T: type", 0)              \
  X(AddN, "inputs: N * T", "sum: T", "N: int >= 1; T: type", 0)                                                       \
  X(ZerosLike, "x: T", "y: T", "T: type", 0)                                                                          \
  X(Effect, "x: T", "y: T", "T: type", TD_OP_STATEFUL)                                                                \
  X(SymbolicGradient, "input: Tin", "output: Tout", "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func", 0)        \
  X(If, "cond: Tcond; input: Tin", "output: Tout",                                                                    \
    "Tcond: type; Tin: list(type) >= 0; Tout: list(type) >= 0; then_branch: func; else_branch: func", TD_OP_STATEFUL) \
  X(Case, "branch_index: int32; input: Tin", "output: Tout",                                                          \
    "Tin: list(type) >= 0; Tout: list(type) >= 0; branches: list(func) >= 1", TD_OP_STATEFUL)                         \
  X(While, "input: T", "output: T", "T: list(type) >= 0; cond: func; body: func; parallel_iterations: int = 10",      \
    TD_OP_STATEFUL)                                                                                                   \
  X(StatefulPartitionedCall, "args: Tin", "output: Tout",                                                             \
    "Tin: list(type) >= 0; Tout: list(type) >= 0; f: func; executor_type: string = ''", TD_OP_STATEFUL)               \
  X(PartitionedCall, "args: Tin", "output: Tout",                                                                     \
    "Tin: list(type) >= 0; Tout: list(type) >= 0; f: func; config: string = ''; config_proto: string = ''; "          \
    "executor_type: string = ''",                                                                                     \
    0)                                                                                                                \
  X(Split, "split_dim: int32; value: T", "output: num_split * T", "num_split: int >= 1; T: type", 0)                  \
  X(Pair, NULL, "a: T; b: T", "T: type", 0)

#define SPEC(n, i, o, a, f)   {.name = #n, .inputs = i, .outputs = o, .attrs = a, .flags = f},
#define KERNEL(n, i, o, a, f) {.op = #n, .compute = nothing},

#define DEBUG \
  "device_name: string = ''; tensor_name: string = ''; debug_urls: list(string) = []; gated_grpc: bool = false"

static const td_op_spec op_specs[] = {
    OPS(SPEC){.name = "NoCpu", .inputs = "x: T", .outputs = "y: T", .attrs = "T: type"},
    {.name = "FloatOnly", .inputs = "x: T", .outputs = "y: T", .attrs = "T: type"},
    {"Copy", "input: T", "output: T", "T: type; tensor_name: string = ''; debug_ops_spec: list(string) = []", 0},
    {"DebugIdentity", "input: T", "output: T", "T: type; " DEBUG, 0},
    {"DebugNumericSummary", "input: T", "output: double",
     "T: type; " DEBUG "; lower_bound: float = -inf; mute_if_healthy: bool = false", 0},
};
static const td_kernel_def kernels[] = {
    OPS(KERNEL){.op = "FloatOnly", .types = {{"T", TD_SET(TD_FLOAT)}}, .compute = nothing},
    {.op = "Copy", .compute = nothing},
    {.op = "DebugIdentity", .compute = nothing},
    {.op = "DebugNumericSummary", .types = {{"T", TD_SET(TD_FLOAT)}}, .compute = nothing},
};
static const td_op_family family = {"graph_test", op_specs, TD_COUNT(op_specs), kernels, TD_COUNT(kernels)};

static void die(const char *what, const char *text) {
  fprintf(stderr, "graph test: %s: %s\n", what, text);
  abort();
}

void td_graph_test_register(void) {
  if (td_op_find(TD_STR("NoCpu"))) return;
  td_status s = td_family_register(&family);
  if (s) die("register", td_status_message(s));
}

/* ---- graphs from text ---- */

static td_str token(td_str *rest, char end) { return td_str_trim(td_str_split(rest, end)); }

static char *cstr(td_arena *a, td_str s) { return td_arena_strndup(a, s.data, s.size); }

static ProtobufCBinaryData bytes(td_arena *a, td_str quoted) {
  char *text = td_arena_strndup(a, quoted.data + 1, quoted.size - 2);
  return (ProtobufCBinaryData){quoted.size - 2, (uint8_t *)text};
}

static Pb__AttrValue *parse_list(td_arena *a, td_str text) {
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  Pb__AttrValue__ListValue *l = td_arena_new(a, Pb__AttrValue__ListValue);
  pb__attr_value__init(v);
  pb__attr_value__list_value__init(l);
  l->s = td_arena_array(a, ProtobufCBinaryData, text.size);
  l->type = td_arena_array(a, int32_t, text.size);
  for (td_str rest = td_str_n(text.data + 1, text.size - 2); rest.data && rest.size;) {
    td_str item = token(&rest, ',');
    if (item.size && item.data[0] == '\'')
      l->s[l->n_s++] = bytes(a, item);
    else if (item.size)
      l->type[l->n_type++] = td_dtype_parse(item);
  }
  v->value_case = PB__ATTR_VALUE__VALUE_LIST;
  v->list = l;
  return v;
}

static Pb__AttrValue *parse_value(td_arena *a, td_str text) {
  int64_t i;
  td_dtype type = td_dtype_parse(text);
  if (type) return td_attr_value_type(a, type);
  if (td_str_to_i64(text, &i)) return td_attr_value_int(a, i);
  if (td_str_is(text, "true") || td_str_is(text, "false")) return td_attr_value_bool(a, text.data[0] == 't');
  if (text.size >= 2 && text.data[0] == '\'') return td_attr_value_str(a, td_str_n(text.data + 1, text.size - 2));
  if (text.size >= 2 && text.data[0] == '[') return parse_list(a, text);
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  pb__attr_value__init(v);
  if (td_str_is(text, "empty")) {
    v->value_case = PB__ATTR_VALUE__VALUE_TENSOR;
    v->tensor = td_arena_new(a, Pb__TensorProto);
    pb__tensor_proto__init(v->tensor);
    v->tensor->dtype = TD_FLOAT;
  } else if (td_str_is(text, "unknown")) {
    v->value_case = PB__ATTR_VALUE__VALUE_SHAPE;
    v->shape = td_arena_new(a, Pb__TensorShapeProto);
    pb__tensor_shape_proto__init(v->shape);
    v->shape->unknown_rank = true;
  } else if (text.size > 5 && !memcmp(text.data, "func ", 5)) {
    v->value_case = PB__ATTR_VALUE__VALUE_FUNC;
    v->func = td_arena_new(a, Pb__NameAttrList);
    pb__name_attr_list__init(v->func);
    v->func->name = cstr(a, td_str_n(text.data + 5, text.size - 5));
  } else {
    die("no value", cstr(a, text));
  }
  return v;
}

static void parse_attrs(td_arena *a, td_str text, Pb__NodeDef *n) {
  n->attr = td_arena_array(a, Pb__AttrEntry *, text.size);
  while (text.data && text.size) {
    td_str value = token(&text, ';'), key = token(&value, ':');
    Pb__AttrEntry *e = td_arena_new(a, Pb__AttrEntry);
    pb__attr_entry__init(e);
    e->key = cstr(a, key);
    e->value = parse_value(a, td_str_trim(value));
    n->attr[n->n_attr++] = e;
  }
}

static Pb__NodeDef *parse_node(td_arena *a, td_str line) {
  Pb__NodeDef *n = td_arena_new(a, Pb__NodeDef);
  pb__node_def__init(n);
  td_str rest = line;
  n->name = cstr(a, token(&rest, '='));
  if (!rest.data) die("no '='", cstr(a, line));
  n->op = cstr(a, token(&rest, '('));
  td_str inputs = token(&rest, ')');
  n->input = td_arena_array(a, char *, inputs.size + 1);
  while (inputs.data && inputs.size) n->input[n->n_input++] = cstr(a, token(&inputs, ','));
  td_str device = token(&rest, '{');
  if (device.size) n->device = cstr(a, td_str_n(device.data + 1, device.size - 1));
  parse_attrs(a, token(&rest, '}'), n);
  return n;
}

Pb__GraphDef *td_graph_test_def(td_arena *a, const char *text) {
  Pb__GraphDef *def = td_arena_new(a, Pb__GraphDef);
  pb__graph_def__init(def);
  def->node = td_arena_array(a, Pb__NodeDef *, strlen(text));
  for (td_str rest = td_str_of(text); rest.data;) {
    td_str line = token(&rest, '\n');
    if (line.size && line.data[0] != '#') def->node[def->n_node++] = parse_node(a, line);
  }
  return def;
}

td_graph *td_graph_test_graph(const char *text) {
  td_arena a = {0};
  td_graph *g = NULL;
  td_graph_test_register();
  Pb__GraphDef *def = td_graph_test_def(&a, text);
  td_status s = td_graph_import(def, &a, NULL, &g);
  if (s) die("import", td_status_message(s));
  return g;
}

/* ---- printing ---- */

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

char *td_graph_test_print(const td_graph *g, td_arena *arena) {
  char **lines = td_arena_array(arena, char *, g->node_count);
  size_t count = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node *n = g->nodes[i];
    td_strbuf b = {0};
    if (n->is_removed) continue;
    td_strbuf_printf(&b, "%.*s = %.*s(", TD_STR_ARG(n->def.name), TD_STR_ARG(n->def.op));
    for (const td_edge *e = n->in_edges; e; e = e->next_in) {
      td_strbuf_printf(&b, "%s%s%.*s", e == n->in_edges ? "" : ", ", e->src_slot < 0 ? "^" : "",
                       TD_STR_ARG(e->src->def.name));
      if (e->src_slot > 0) td_strbuf_printf(&b, ":%d", e->src_slot);
    }
    td_strbuf_puts(&b, ")");
    if (n->device.size) td_strbuf_printf(&b, " @%.*s", TD_STR_ARG(n->device));
    lines[count++] = td_arena_strdup(arena, td_strbuf_cstr(&b));
    td_strbuf_deinit(&b);
  }
  qsort(lines, count, sizeof *lines, by_text);
  td_strbuf all = {0};
  for (size_t i = 0; i < count; i++) td_strbuf_printf(&all, "%s\n", lines[i]);
  char *text = td_arena_strdup(arena, td_strbuf_cstr(&all));
  td_strbuf_deinit(&all);
  return text;
}

/* ---- devices ---- */

td_graph_test_cluster td_graph_test_devices(td_arena *a, const char *job, int tasks, int devices_per_task) {
  td_graph_test_cluster c = {.count = (size_t)(tasks * devices_per_task)};
  c.devices = td_arena_array(a, td_place_device, c.count);
  for (size_t i = 0; i < c.count; i++) {
    td_place_device *d = &c.devices[i];
    d->name = td_str_of(td_arena_printf(a, "/job:%s/replica:0/task:%d/device:CPU:%d", job, (int)i / devices_per_task,
                                        (int)i % devices_per_task));
    if (!td_device_name_parse(d->name, &d->parsed)) die("device", d->name.data);
    d->type = TD_STR("CPU");
    d->incarnation = i + 1;
  }
  return c;
}

uint64_t td_graph_test_incarnation(void *cluster, td_str device) {
  const td_graph_test_cluster *c = cluster;
  for (size_t i = 0; i < c->count; i++)
    if (td_str_eq(c->devices[i].name, device)) return c->devices[i].incarnation;
  return 0;
}

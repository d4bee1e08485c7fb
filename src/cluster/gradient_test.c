/* Every rule of graph/gradient_rules.c against differences of the op itself, with the real kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "framework/device.h"
#include "graph/gradient.h"
#include "ops/families.h"
#include "ops/testing.h"
#include "runtime/executor.h"

enum { MOST = 8 };

/* Inputs are "<type> <shape> <values>"; those of type double are differentiated. `attrs` as in op definitions, with the
 * values as defaults. */
typedef struct example {
  const char *op, *attrs, *inputs[4];
} example;

#define U(op, values)                                \
  {                                                  \
    op, "T: type = double", { "double [4] " values } \
  }
#define B(op)                                                                          \
  {                                                                                    \
    op, "T: type = double", { "double [2,3] 1 2 3 4 5 6.5", "double [3] 0.5 2.5 3.5" } \
  }
#define M  "double [2,3] 1 -2 3 0.5 5 -6", "double [3,2] 0.1 0.2 -0.3 0.4 0.5 1"
#define MT "double [3,2] 1 -2 3 0.5 5 -6", "double [3,2] 0.1 0.2 -0.3 0.4 0.5 1"
#define TM "double [2,3] 1 -2 3 0.5 5 -6", "double [2,3] 0.1 0.2 -0.3 0.4 0.5 1"
#define TT "double [2,3] 1 -2 3 0.5 5 -6", "double [4,2] 0.1 0.2 -0.3 0.4 0.5 1 2 3"
#define REDUCTION(op)                                                        \
  {                                                                          \
    op, "T: type = double", { "double [2,3] 1 2 3 4 5 6.5", "int32 [1] -1" } \
  }
#define FLAGS(x, a, b) "T: type = double; " x "a: bool = " a "; " x "b: bool = " b
#define BATCH(a, b)    "T: type = double; adj_x: bool = " a "; adj_y: bool = " b
#define SQUARE         "double [1,2,2] 1 2 3 4", "double [1,2,2] 0.5 -1 2 1"

static const example examples[] = {
    {"BroadcastTo", "T: type = double", {"double [1,3] 1 2 3", "int32 [2] 2 3"}},
    {"Concat", "T: type = double; N: int = 2", {"int32 [] 1", "double [2,1] 1 2", "double [2,2] 3 4 5 6"}},
    {"ConcatV2", "T: type = double; N: int = 2", {"double [2,1] 1 2", "double [2,2] 3 4 5 6", "int32 [] 1"}},
    {"ConjugateTranspose", "T: type = double", {"double [2,3] 1 2 3 4 5 6", "int32 [2] 1 0"}},
    {"ExpandDims", "T: type = double", {"double [3] 1 2 3", "int32 [] 0"}},
    {"Fill", "T: type = double", {"int32 [2] 2 3", "double [] 1.5"}},
    {"GatherNd", "Tparams: type = double; Tindices: type = int32", {"double [3] 1 2 3", "int32 [2,1] 2 0"}},
    U("Identity", "1 2 3 4"),
    {"Pack", "T: type = double; N: int = 2; axis: int = 1", {"double [2] 1 2", "double [2] 3 4"}},
    {"Reshape", "T: type = double", {"double [2,3] 1 2 3 4 5 6", "int32 [2] 3 2"}},
    {"Reverse", "T: type = double", {"double [2,3] 1 2 3 4 5 6", "bool [2] 1 0"}},
    {"ReverseV2", "T: type = double", {"double [2,3] 1 2 3 4 5 6", "int32 [1] 1"}},
    {"Slice", "T: type = double; Index: type = int32", {"double [4] 1 2 3 4", "int32 [1] 1", "int32 [1] -1"}},
    {"Split", "T: type = double; num_split: int = 2", {"int32 [] 1", "double [2,4] 1 2 3 4 5 6 7 8"}},
    {"SplitV",
     "T: type = double; num_split: int = 2; Tlen: type = int32",
     {"double [2,3] 1 2 3 4 5 6", "int32 [2] 1 2", "int32 [] 1"}},
    {"Squeeze", "T: type = double", {"double [1,3] 1 2 3"}},
    {"StridedSlice",
     "T: type = double; Index: type = int32; shrink_axis_mask: int = 1",
     {"double [2,4] 1 2 3 4 5 6 7 8", "int32 [2] 1 1", "int32 [2] 2 3", "int32 [2] 1 1"}},
    {"Transpose", "T: type = double", {"double [2,3] 1 2 3 4 5 6", "int32 [2] 1 0"}},
    {"Unpack", "T: type = double; num: int = 2; axis: int = 1", {"double [3,2] 1 2 3 4 5 6"}},
    {"_ArrayToList",
     "T: type = double; N: int = 2; out_types: list(type) = [double, double]",
     {"double [2] 1 2", "double [1] 3"}},
    {"_ListToArray",
     "T: type = double; N: int = 2; Tin: list(type) = [double, double]",
     {"double [2] 1 2", "double [1] 3"}},
    U("Abs", "1 -2 3 -4"),
    U("Acos", "0.1 -0.5 0.7 0"),
    U("Acosh", "1.5 2 3 4"),
    U("Asin", "0.1 -0.5 0.7 0"),
    U("Asinh", "1 -2 3 -4"),
    U("Atan", "1 -2 3 -4"),
    U("Atanh", "0.1 -0.5 0.7 0"),
    {"Cast", "SrcT: type = double; DstT: type = double", {"double [2] 1 2"}},
    U("Cos", "1 -2 3 -4"),
    U("Cosh", "1 -2 0.3 -1"),
    U("Exp", "1 -2 0.3 -1"),
    U("Expm1", "1 -2 0.3 -1"),
    U("Inv", "1 -2 0.3 -1"),
    U("Log", "1 2 0.3 4"),
    U("Log1p", "1 2 0.3 4"),
    U("Neg", "1 2 0.3 4"),
    U("Reciprocal", "1 -2 0.3 -1"),
    U("Rsqrt", "1 2 0.3 4"),
    U("Sigmoid", "1 -2 0.3 -1"),
    U("Sign", "1 -2 0.3 -1"),
    U("Sin", "1 -2 3 -4"),
    U("Sinh", "1 -2 0.3 -1"),
    U("Sqrt", "1 2 0.3 4"),
    U("Square", "1 -2 0.3 -1"),
    U("Tan", "1 -1 0.3 0.5"),
    U("Tanh", "1 -1 0.3 0.5"),
    B("Add"),
    B("AddV2"),
    B("Div"),
    B("DivNoNan"),
    B("Maximum"),
    B("Minimum"),
    B("Mul"),
    B("MulNoNan"),
    B("Pow"),
    B("RealDiv"),
    {"Select", "T: type = double", {"bool [3] 1 0 1", "double [3] 1 2 3", "double [3] 4 5 6"}},
    B("SquaredDifference"),
    B("Sub"),
    B("Xdivy"),
    B("Xlog1py"),
    B("Xlogy"),
    {"BatchMatMul", BATCH("false", "false"), {SQUARE}},
    {"BatchMatMul", BATCH("false", "true"), {SQUARE}},
    {"BatchMatMul", BATCH("true", "false"), {SQUARE}},
    {"BatchMatMul", BATCH("true", "true"), {SQUARE}},
    {"BatchMatMulV2", BATCH("false", "true"), {"double [2,1,2] 1 2 3 4", "double [1,2] 0.5 -1"}},
    {"MatMul", FLAGS("transpose_", "false", "false"), {M}},
    {"MatMul", FLAGS("transpose_", "false", "true"), {TM}},
    {"MatMul", FLAGS("transpose_", "true", "false"), {MT}},
    {"MatMul", FLAGS("transpose_", "true", "true"), {TT}},
    REDUCTION("Max"),
    REDUCTION("Mean"),
    REDUCTION("Min"),
    REDUCTION("Sum"),
    {"Sum", "T: type = double; keep_dims: bool = true", {"double [2,3] 1 2 3 4 5 6.5", "int32 [] 0"}},
    {"BiasAdd", "T: type = double", {"double [2,2] 1 2 3 4", "double [2] 0.5 1"}},
    U("LogSoftmax", "1 -1 0.3 0.5"),
    U("Relu", "1 -1 0.3 0.5"),
    U("Relu6", "1 -1 7 0.5"),
    U("Softmax", "1 -1 0.3 0.5"),
};

/* Differences say nothing about these: complex, float only, variables, or themselves gradients. They have to expand. */
static const struct {
  const char *op, *attrs;
} others[] = {
    {"Angle", "T: type = complex128; Tout: type = double"},
    {"AvgPool",
     "T: type = float; ksize: list(int) = [1, 2, 2, 1]; strides: list(int) = [1, 1, 1, 1];"
     "padding: string = 'SAME'"},
    {"Complex", "T: type = double; Tout: type = complex128"},
    {"Conj", "T: type = complex64"},
    {"Conv2D", "T: type = float; strides: list(int) = [1, 1, 1, 1]; padding: string = 'SAME'"},
    {"Imag", "T: type = complex128; Tout: type = double"},
    {"MaxPool",
     "T: type = float; ksize: list(int) = [1, 2, 2, 1]; strides: list(int) = [1, 1, 1, 1];"
     "padding: string = 'SAME'"},
    {"MaxPoolGrad",
     "T: type = float; ksize: list(int) = [1, 2, 2, 1]; strides: list(int) = [1, 1, 1, 1];"
     "padding: string = 'SAME'"},
    {"Mul", "T: type = complex64"},
    {"Pow", "T: type = complex64"},
    {"ReadVariableOp", "dtype: type = float"},
    {"Real", "T: type = complex128; Tout: type = double"},
    {"StridedSliceGrad", "T: type = float; Index: type = int64"},
};

static td_library *no_functions;
static td_device *device;
static td_resource_mgr *resources;

/* ---- graphs ---- */

/* Attributes written as an op's with defaults. */
static const td_op_def *parse_attrs(td_arena *a, const char *op, const char *text) {
  td_op_spec spec = {.name = op, .attrs = text};
  const td_op_def *def;
  td_status s = td_op_parse(&spec, a, &def);
  if (s) fail_msg("%s: %s", op, td_status_message(s));
  return def;
}

static Pb__NameAttrList *function_of(td_arena *a, const char *op, const char *attrs) {
  const td_op_def *def = parse_attrs(a, op, attrs);
  td_attr *list = td_arena_array(a, td_attr, def->attr_count);
  for (size_t i = 0; i < def->attr_count; i++) list[i] = (td_attr){def->attrs[i].name, def->attrs[i].default_value};
  return td_attr_value_func(a, td_str_of(op), list, def->attr_count)->func;
}

static td_graph *forward_graph(const Pb__NameAttrList *f, td_tensor **inputs, int count) {
  td_graph *g = td_graph_create(no_functions);
  td_output args[MOST];
  td_node *n, *end;
  td_attr *attrs = td_arena_array(&g->arena, td_attr, f->n_attr);
  for (size_t i = 0; i < f->n_attr; i++) attrs[i] = (td_attr){td_str_of(f->attr[i]->key), f->attr[i]->value};
  td_status s = TD_STATUS_OK;
  for (int i = 0; i < count && !s; i++) {
    td_str name = td_graph_new_name(g, TD_STR("arg"));
    s = td_function_body_add_end(g, "_Arg", name, (int)inputs[i]->dtype, i, &args[i].node);
    args[i].slot = 0;
  }
  td_new_node spec = {.name = TD_STR("op"),
                      .op = td_str_of(f->name),
                      .inputs = args,
                      .input_count = (size_t)count,
                      .attrs = attrs,
                      .attr_count = f->n_attr};
  if (!s) s = td_graph_build_node(g, &spec, &n);
  for (int i = 0; !s && i < n->output_count; i++) {
    s = td_function_body_add_end(g, "_Retval", td_graph_new_name(g, TD_STR("ret")), n->output_types[i], i, &end);
    if (!s) td_graph_add_edge(g, n, i, end, 0);
  }
  if (s) fail_msg("%s: %s", f->name, td_status_message(s));
  return g;
}

/* ---- runs ---- */

typedef struct result {
  td_tensor *values[MOST];
  int count;
  bool is_done;
  td_status status;
} result;

static void done(void *arg, td_status status, td_tensor **results, int count) {
  result *r = arg;
  assert_true(count <= MOST);
  r->status = status;
  r->count = count;
  for (int i = 0; i < count; i++) r->values[i] = results[i];
  r->is_done = true;
}

static void run(td_program *p, td_tensor **args, int count, result *out) {
  td_step step = {.id = 1};
  td_run_options o = {.step = &step, .args = args, .arg_count = count, .done = done, .arg = out};
  *out = (result){0};
  td_executor_run(p, &o);
  assert_true(out->is_done); /* no pool */
  if (out->status) fail_msg("%s", td_status_message(out->status));
}

static void drop(result *r) {
  for (int i = 0; i < r->count; i++) td_tensor_release(r->values[i]);
}

static td_program *compile(td_graph *g) {
  td_program *p;
  td_program_options o = {.device = device};
  must(td_program_create(g, &o, &p));
  td_graph_release(g);
  return p;
}

/* A weighted sum of all outputs: element k of output i counts w(i, k). */
static double weight(int i, int64_t k) { return 0.3 + 0.1 * i + 0.07 * (double)(k % 5); }

static double loss(td_program *p, td_tensor **inputs, int count) {
  result r;
  double sum = 0;
  run(p, inputs, count, &r);
  for (int i = 0; i < r.count; i++)
    for (int64_t k = 0; k < r.values[i]->count; k++) sum += weight(i, k) * TD_DATA(r.values[i], double)[k];
  drop(&r);
  return sum;
}

static td_tensor *copy(const td_tensor *t) {
  td_tensor *out;
  td_status s = td_tensor_create_dims(t->dtype, t->rank, t->dims, &out);
  assert_null(s);
  memcpy(TD_DATA(out, char), TD_DATA(t, char), (size_t)t->count * sizeof(double));
  return out;
}

static double difference(td_program *p, td_tensor **inputs, int count, int which, int64_t k) {
  double h = 1e-5, sides[2];
  td_tensor *own = inputs[which];
  for (int side = 0; side < 2; side++) {
    inputs[which] = copy(own);
    TD_DATA(inputs[which], double)[k] += side ? h : -h;
    sides[side] = loss(p, inputs, count);
    td_tensor_release(inputs[which]);
  }
  inputs[which] = own;
  return (sides[1] - sides[0]) / (2 * h);
}

/* ---- tests ---- */

static int read_inputs(const example *e, td_tensor **out) {
  int count = 0;
  for (; count < 4 && e->inputs[count]; count++) {
    td_str rest = td_str_of(e->inputs[count]), type = td_str_split(&rest, ' '), shape = td_str_split(&rest, ' ');
    char text[64];
    snprintf(text, sizeof text, "%.*s", TD_STR_ARG(shape));
    out[count] = td_test_tensor(td_dtype_parse(type), text, rest.data);
  }
  return count;
}

static void check(const example *e) {
  td_arena arena = {0};
  td_tensor *args[2 * MOST];
  int count = read_inputs(e, args);
  Pb__NameAttrList *f = function_of(&arena, e->op, e->attrs);
  td_program *forward = compile(forward_graph(f, args, count));
  td_function_body body;
  td_status s = td_gradient_body_create(no_functions, f, &body);
  if (s) fail_msg("%s: %s", e->op, td_status_message(s));
  td_program *backward = compile(body.graph);
  result y, dx;
  run(forward, args, count, &y);
  for (int i = 0; i < y.count; i++) {
    args[count + i] = copy(y.values[i]);
    for (int64_t k = 0; k < y.values[i]->count; k++) TD_DATA(args[count + i], double)[k] = weight(i, k);
  }
  run(backward, args, count + y.count, &dx);
  assert_int_equal(dx.count, count);
  for (int i = 0; i < count; i++) {
    assert_int_equal(dx.values[i]->count, args[i]->count);
    for (int64_t k = 0; args[i]->dtype == TD_DOUBLE && k < args[i]->count; k++) {
      double want = difference(forward, args, count, i, k), got = TD_DATA(dx.values[i], double)[k];
      if (fabs(want - got) > 1e-4 * (1 + fabs(want)))
        fail_msg("%s: gradient of input %d, element %d: %g, by differences %g", e->op, i, (int)k, got, want);
    }
  }
  for (int i = 0; i < count + y.count; i++) td_tensor_release(args[i]);
  drop(&y);
  drop(&dx);
  td_program_release(forward);
  td_program_release(backward);
  td_arena_deinit(&arena);
}

static void test_examples(void **state) {
  for (size_t i = 0; i < TD_COUNT(examples); i++) check(&examples[i]);
}

static void test_others_expand(void **state) {
  for (size_t i = 0; i < TD_COUNT(others); i++) {
    td_arena arena = {0};
    td_function_body body;
    td_status s = td_gradient_body_create(no_functions, function_of(&arena, others[i].op, others[i].attrs), &body);
    if (s) fail_msg("%s: %s", others[i].op, td_status_message(s));
    td_program_release(compile(body.graph));
    td_arena_deinit(&arena);
  }
}

static void test_all_rules_are_tried(void **state) {
  const td_gradient_rule *rule;
  for (size_t i = 0; td_gradient_rule_next(&i, &rule);) {
    bool is_tried = !rule->args;
    for (size_t k = 0; k < TD_COUNT(examples); k++) is_tried |= !strcmp(examples[k].op, rule->op);
    for (size_t k = 0; k < TD_COUNT(others); k++) is_tried |= !strcmp(others[k].op, rule->op);
    if (!is_tried) fail_msg("the rule for %s has no example", rule->op);
  }
}

static void test_no_gradient(void **state) {
  td_arena arena = {0};
  td_function_body body;
  td_status s = td_gradient_body_create(no_functions, function_of(&arena, "Shape", "T: type = float"), &body);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  td_status_free(s);
  s = td_gradient_body_create(no_functions, function_of(&arena, "NoOp", ""), &body);
  assert_int_equal(td_status_code(s), TD_NOT_FOUND);
  assert_string_equal(td_status_message(s), "No gradient defined for op: NoOp");
  td_status_free(s);
  td_arena_deinit(&arena);
}

static int set_up(void **state) {
  td_device_name name;
  td_status s = td_ops_register();
  if (s || !td_device_name_parse(TD_STR("/job:w/replica:0/task:0/device:CPU:0"), &name)) return -1;
  no_functions = td_library_create();
  resources = td_resource_mgr_create(TD_STR("w"));
  device = td_device_create(&name, 1, resources);
  return 0;
}

static int tear_down(void **state) {
  td_device_release(device);
  td_resource_mgr_release(resources);
  td_library_release(no_functions);
  return 0;
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_examples),
      cmocka_unit_test(test_others_expand),
      cmocka_unit_test(test_all_rules_are_tried),
      cmocka_unit_test(test_no_gradient),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

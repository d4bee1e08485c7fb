#include "runtime/testing/graphs.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "framework/cancellation.h"
#include "ops/families.h"
#include "runtime/local_rendezvous.h"

/* ---- ops ---- */

static td_status int_out(td_kernel_ctx *ctx, int i, int32_t v) {
  td_tensor *t;
  TD_TRY(td_out_alloc_dims(ctx, i, 0, NULL, &t));
  *TD_DATA(t, int32_t) = v;
  return TD_STATUS_OK;
}

static int32_t int_in(td_kernel_ctx *ctx, int i) { return *TD_DATA(td_in(ctx, i), int32_t); }

static int32_t wrapped_sum(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }

static td_status add_compute(td_kernel_ctx *ctx) {
  return int_out(ctx, 0, wrapped_sum(int_in(ctx, 0), int_in(ctx, 1)));
}

/* Writes into its first input, where nobody else can see that. */
static td_status add_in_place_compute(td_kernel_ctx *ctx) {
  td_tensor *t;
  TD_TRY(td_out_reuse_like(ctx, 0, 0, &t));
  *TD_DATA(t, int32_t) = wrapped_sum(int_in(ctx, 0), int_in(ctx, 1));
  return TD_STATUS_OK;
}

static td_status pass_compute(td_kernel_ctx *ctx) {
  td_out_forward(ctx, 0, 0);
  return TD_STATUS_OK;
}

static td_status sum_compute(td_kernel_ctx *ctx) {
  int32_t sum = 0;
  for (int i = 0; i < ctx->kernel->input_count; i++) sum = wrapped_sum(sum, int_in(ctx, i));
  return int_out(ctx, 0, sum);
}

static td_status less_compute(td_kernel_ctx *ctx) {
  td_tensor *t;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &t));
  *TD_DATA(t, bool) = int_in(ctx, 0) < int_in(ctx, 1);
  return TD_STATUS_OK;
}

static void *finish_later(void *arg) {
  td_kernel_ctx *ctx = arg;
  usleep(200);
  td_status s = int_out(ctx, 0, int_in(ctx, 0));
  td_kernel_done(ctx, s);
  return NULL;
}

static void async_compute(td_kernel_ctx *ctx) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, finish_later, ctx)) {
    td_kernel_done(ctx, td_internal("no thread"));
    return;
  }
  pthread_detach(thread);
}

static void now_compute(td_kernel_ctx *ctx) { /* asynchronous, but done at once */
  td_kernel_done(ctx, int_out(ctx, 0, int_in(ctx, 0)));
}

typedef struct slow {
  int64_t us;
} slow;
static td_status slow_create(td_kernel_builder *b, void *state) {
  bool costly;
  TD_TRY(td_attr_bool(b->node, "costly", &costly));
  if (!costly) b->cost = TD_COST_CHEAP;
  return td_attr_int(b->node, "us", &((slow *)state)->us);
}
static td_status slow_compute(td_kernel_ctx *ctx) {
  usleep((useconds_t)((slow *)ctx->state)->us);
  return int_out(ctx, 0, int_in(ctx, 0));
}

/* Passes once two of its kind run at the same time. */
static td_status meet_compute(td_kernel_ctx *ctx) {
  static _Atomic int inside;
  int mine = atomic_fetch_add(&inside, 1);
  for (int i = 0; inside < (mine | 1) + 1; i++) {
    if (i == 60000) return td_internal("TestMeet: nobody came");
    usleep(1000);
  }
  return int_out(ctx, 0, int_in(ctx, 0));
}

static td_status wide_compute(td_kernel_ctx *ctx) {
  td_tensor *t;
  int64_t n = 1000;
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &n, &t));
  for (int64_t i = 0; i < n; i++) TD_DATA(t, int32_t)[i] = int_in(ctx, 0);
  return TD_STATUS_OK;
}

static td_status thread_compute(td_kernel_ctx *ctx) { return int_out(ctx, 0, td_pool_current() != NULL); }

/* A thousand elements are worth a hand-over, ten are not. */
static double estimate_ns(const td_kernel *k, const td_value *in) { return (double)in[0].tensor->count * 20; }

typedef struct failure {
  char *message;
} failure;
static td_status fail_create(td_kernel_builder *b, void *state) {
  td_str text;
  TD_TRY(td_attr_str(b->node, "message", &text));
  ((failure *)state)->message = td_strndup(text.data, text.size);
  return td_str_is(text, "at creation") ? td_invalid_argument("no such kernel") : TD_STATUS_OK;
}
static void fail_destroy(void *state) { td_free(((failure *)state)->message); }
static td_status fail_compute(td_kernel_ctx *ctx) {
  return td_error(TD_OUT_OF_RANGE, "%s", ((failure *)ctx->state)->message);
}

static td_status wrong_type_compute(td_kernel_ctx *ctx) {
  td_tensor *t;
  TD_TRY(td_tensor_create_dims(TD_FLOAT, 0, NULL, &t));
  *TD_DATA(t, float) = 0;
  td_out_set(ctx, 0, t);
  return TD_STATUS_OK;
}

static td_status missing_compute(td_kernel_ctx *ctx) { return TD_STATUS_OK; }

typedef struct blocked {
  td_cancel_callback callback;
  td_kernel_ctx *ctx;
} blocked;
static void blocked_cancelled(td_cancel_callback *c) {
  blocked *b = TD_CONTAINER_OF(c, blocked, callback);
  td_kernel_ctx *ctx = b->ctx;
  td_free(b);
  td_kernel_done(ctx, td_cancelled("blocked operation was cancelled"));
}
static void block_compute(td_kernel_ctx *ctx) {
  blocked *b = td_new(blocked);
  b->callback.cancelled = blocked_cancelled;
  b->ctx = ctx;
  if (td_cancellation_register(ctx->step->cancellation, &b->callback)) return;
  blocked_cancelled(&b->callback);
}

typedef struct variable_state {
  td_variable *variable;
} variable_state;
static td_status variable_create(td_kernel_builder *b, void *state) {
  ((variable_state *)state)->variable = td_variable_create(&td_ref_variable_type, TD_INT32, b->node->name);
  return TD_STATUS_OK;
}
static void variable_destroy(void *state) { td_variable_release(((variable_state *)state)->variable); }
static td_status variable_compute(td_kernel_ctx *ctx) {
  td_out_set_ref(ctx, 0, td_variable_retain(((variable_state *)ctx->state)->variable));
  return TD_STATUS_OK;
}

static td_status assign_compute(td_kernel_ctx *ctx) {
  td_variable *v = td_in_ref(ctx, 0);
  pthread_rwlock_wrlock(&v->lock);
  td_tensor *old = v->value;
  v->value = td_tensor_retain(td_in(ctx, 1));
  pthread_rwlock_unlock(&v->lock);
  td_tensor_release(old);
  td_out_set_ref(ctx, 0, td_variable_retain(v));
  return TD_STATUS_OK;
}

typedef struct counter {
  _Atomic int32_t runs;
} counter;
static td_status count_compute(td_kernel_ctx *ctx) {
  return int_out(ctx, 0, atomic_fetch_add(&((counter *)ctx->state)->runs, 1) + 1);
}

static const td_op_spec ops[] = {
    {.name = "TestAdd", .inputs = "x: int32; y: int32", .outputs = "z: int32"},
    {.name = "TestAddInPlace", .inputs = "x: int32; y: int32", .outputs = "z: int32"},
    {.name = "TestPass", .inputs = "x: int32", .outputs = "y: int32"},
    {.name = "TestSum", .inputs = "x: N * int32", .outputs = "z: int32", .attrs = "N: int >= 1"},
    {.name = "TestLess", .inputs = "x: int32; y: int32", .outputs = "z: bool"},
    {.name = "TestAsync", .inputs = "x: int32", .outputs = "y: int32"},
    {.name = "TestNow", .inputs = "x: int32", .outputs = "y: int32"},
    {.name = "TestMeet", .inputs = "x: int32", .outputs = "y: int32"},
    {.name = "TestSlow", .inputs = "x: int32", .outputs = "y: int32", .attrs = "us: int = 0; costly: bool = true"},
    {.name = "TestWide", .inputs = "x: int32", .outputs = "y: int32"},
    {.name = "TestThread", .inputs = "x: int32", .outputs = "y: int32"},
    {.name = "TestCheapThread", .inputs = "x: int32", .outputs = "y: int32"},
    {.name = "TestEstimated", .inputs = "x: int32", .outputs = "y: int32"},
    {.name = "TestFail", .inputs = "x: int32", .outputs = "y: int32", .attrs = "message: string = 'failed'"},
    {.name = "TestWrongType", .outputs = "y: int32"},
    {.name = "TestMissing", .outputs = "y: int32"},
    {.name = "TestBlock", .outputs = "y: int32"},
    {.name = "TestVariable", .outputs = "ref: Ref(int32)", .flags = TD_OP_STATEFUL},
    {.name = "TestAssign",
     .inputs = "ref: Ref(int32); x: int32",
     .outputs = "out: Ref(int32)",
     .flags = TD_OP_ALLOWS_UNINITIALIZED},
    {.name = "TestCount", .outputs = "y: int32", .flags = TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "TestAdd", .cost = TD_COST_CHEAP, .compute = add_compute},
    {.op = "TestAddInPlace", .compute = add_in_place_compute},
    {.op = "TestPass", .cost = TD_COST_CHEAP, .compute = pass_compute},
    {.op = "TestSum", .cost = TD_COST_CHEAP, .compute = sum_compute},
    {.op = "TestLess", .cost = TD_COST_CHEAP, .compute = less_compute},
    {.op = "TestAsync", .compute_async = async_compute},
    {.op = "TestNow", .compute_async = now_compute},
    {.op = "TestSlow",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(slow),
     .create = slow_create,
     .compute = slow_compute},
    {.op = "TestMeet", .cost = TD_COST_EXPENSIVE, .compute = meet_compute},
    {.op = "TestWide", .cost = TD_COST_CHEAP, .compute = wide_compute},
    {.op = "TestThread", .cost = TD_COST_EXPENSIVE, .compute = thread_compute},
    {.op = "TestCheapThread", .cost = TD_COST_CHEAP, .compute = thread_compute},
    {.op = "TestEstimated", .work_ns = estimate_ns, .compute = thread_compute},
    {.op = "TestFail",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(failure),
     .create = fail_create,
     .destroy = fail_destroy,
     .compute = fail_compute},
    {.op = "TestWrongType", .compute = wrong_type_compute},
    {.op = "TestMissing", .compute = missing_compute},
    {.op = "TestBlock", .compute_async = block_compute},
    {.op = "TestVariable",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(variable_state),
     .create = variable_create,
     .destroy = variable_destroy,
     .compute = variable_compute},
    {.op = "TestAssign", .cost = TD_COST_CHEAP, .compute = assign_compute},
    {.op = "TestCount", .cost = TD_COST_CHEAP, .state_size = sizeof(counter), .compute = count_compute},
};

TD_FAMILY(runtime_test, ops, kernels);

static void register_all(void) {
  extern const td_op_family td_family_const, td_family_control_flow, td_family_function_args, td_family_functional,
      td_family_sendrecv;
  const td_op_family *families[] = {&td_family_runtime_test,  &td_family_const,      &td_family_control_flow,
                                    &td_family_function_args, &td_family_functional, &td_family_sendrecv};
  for (size_t i = 0; i < TD_COUNT(families); i++) {
    td_status s = td_family_register(families[i]);
    if (s) {
      fprintf(stderr, "%s\n", td_status_message(s));
      abort();
    }
  }
}

void test_register(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_all);
}

/* ---- graphs ---- */

static Pb__AttrValue *tensor_value(td_arena *a, td_str text) {
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  pb__attr_value__init(v);
  Pb__TensorProto *t = td_arena_new(a, Pb__TensorProto);
  pb__tensor_proto__init(t);
  Pb__TensorShapeProto *shape = td_arena_new(a, Pb__TensorShapeProto);
  pb__tensor_shape_proto__init(shape);
  t->tensor_shape = shape;
  int64_t number = 0;
  if (td_str_to_i64(text, &number)) {
    t->dtype = TD_INT32;
    t->n_int_val = 1;
    t->int_val = td_arena_array(a, int32_t, 1);
    t->int_val[0] = (int32_t)number;
  } else {
    t->dtype = TD_BOOL;
    t->n_bool_val = 1;
    t->bool_val = td_arena_array(a, protobuf_c_boolean, 1);
    t->bool_val[0] = td_str_is(text, "true");
  }
  v->value_case = PB__ATTR_VALUE__VALUE_TENSOR;
  v->tensor = t;
  return v;
}

static Pb__AttrValue *new_value(td_arena *a, Pb__AttrValue__ValueCase kind) {
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  pb__attr_value__init(v);
  v->value_case = kind;
  return v;
}

static char *c_string(td_arena *a, td_str s) { return td_arena_strndup(a, s.data, s.size); }

static Pb__NameAttrList *func_value(td_arena *a, td_str name) {
  Pb__NameAttrList *f = td_arena_new(a, Pb__NameAttrList);
  pb__name_attr_list__init(f);
  f->name = c_string(a, name);
  return f;
}

static Pb__AttrValue *list_value(td_arena *a, const td_attr_def *def, td_str text) {
  Pb__AttrValue *v = new_value(a, PB__ATTR_VALUE__VALUE_LIST);
  v->list = td_arena_new(a, Pb__AttrValue__ListValue);
  pb__attr_value__list_value__init(v->list);
  v->list->type = td_arena_array(a, int32_t, 16);
  v->list->func = td_arena_array(a, Pb__NameAttrList *, 16);
  while (text.size) {
    td_str item = td_str_split(&text, '+');
    if (def->kind == TD_ATTR_TYPE) v->list->type[v->list->n_type++] = (int32_t)td_dtype_parse(item);
    if (def->kind == TD_ATTR_FUNC) v->list->func[v->list->n_func++] = func_value(a, item);
  }
  return v;
}

static Pb__AttrValue *attr_value(td_arena *a, const td_op_def *op, td_str name, td_str text) {
  const td_attr_def *def = td_op_attr(op, name);
  if (!def) fail_msg("no attribute %.*s", TD_STR_ARG(name));
  if (text.size && text.data[0] == '$') {
    Pb__AttrValue *v = new_value(a, PB__ATTR_VALUE__VALUE_PLACEHOLDER);
    v->placeholder = c_string(a, td_str_n(text.data + 1, text.size - 1));
    return v;
  }
  if (def->is_list) return list_value(a, def, text);
  if (def->kind == TD_ATTR_FUNC) {
    Pb__AttrValue *v = new_value(a, PB__ATTR_VALUE__VALUE_FUNC);
    v->func = func_value(a, text);
    return v;
  }
  int64_t number = 0;
  switch (def->kind) {
    case TD_ATTR_INT:
      assert_true(td_str_to_i64(text, &number));
      return td_attr_value_int(a, number);
    case TD_ATTR_BOOL:
      return td_attr_value_bool(a, td_str_is(text, "true"));
    case TD_ATTR_TYPE:
      return td_attr_value_type(a, td_dtype_parse(text));
    case TD_ATTR_STRING:
      return td_attr_value_str(a, td_arena_str(a, text));
    case TD_ATTR_TENSOR:
      return tensor_value(a, text);
    default:
      fail_msg("attribute %.*s", TD_STR_ARG(name));
  }
  return NULL;
}

static void add_line(td_graph *g, td_str line) {
  td_str rest = line;
  td_str name = td_str_trim(td_str_split(&rest, '='));
  td_str op_name = td_str_trim(td_str_split(&rest, '('));
  td_str_split(&rest, ')'); /* inputs come in the second pass */
  td_node_def def = {.name = td_arena_str(&g->arena, name), .op = td_arena_str(&g->arena, op_name)};
  const td_op_def *op = td_library_op(g->library, def.op);
  if (!op) fail_msg("no op %.*s in %.*s", TD_STR_ARG(op_name), TD_STR_ARG(line));
  def.attrs = td_arena_array(&g->arena, td_attr, 16);
  rest = td_str_trim(rest);
  while (rest.size) {
    td_str item = td_str_split(&rest, ' ');
    td_str attr = td_str_split(&item, ':');
    def.attrs[def.attr_count++] = (td_attr){td_arena_str(&g->arena, attr), attr_value(&g->arena, op, attr, item)};
    rest = td_str_trim(rest);
  }
  td_node_add_defaults(&def, op, &g->arena);
  td_node *n;
  td_status s = td_graph_add_node(g, &def, op, &n);
  if (s) fail_msg("%s", td_status_message(s));
}

static void add_inputs(td_graph *g, td_str line) {
  td_str rest = line;
  td_node *n = td_graph_find(g, td_str_trim(td_str_split(&rest, '=')));
  td_str_split(&rest, '(');
  td_str inputs = td_str_split(&rest, ')');
  int slot = 0;
  while (inputs.size) {
    td_str item = td_str_trim(td_str_split(&inputs, ','));
    if (item.data[0] == '^') {
      td_graph_add_control_edge(g, td_graph_find(g, td_str_n(item.data + 1, item.size - 1)), n);
      continue;
    }
    td_str src = td_str_split(&item, ':');
    int64_t k = 0;
    if (item.size) td_str_to_i64(item, &k);
    td_node *from = td_graph_find(g, src);
    if (!from) fail_msg("no node %.*s", TD_STR_ARG(src));
    td_graph_add_edge(g, from, (int)k, n, slot++);
  }
}

td_graph *test_graph(const char *text) { return test_graph_with(NULL, text); }

td_graph *test_graph_with(td_library *library, const char *text) {
  test_register();
  td_graph *g = td_graph_create(library);
  for (int pass = 0; pass < 2; pass++) {
    td_str rest = td_str_of(text);
    while (rest.size) {
      td_str line = td_str_trim(td_str_split(&rest, '\n'));
      if (!line.size) continue;
      if (pass)
        add_inputs(g, line);
      else
        add_line(g, line);
    }
  }
  return g;
}

/* ---- functions ---- */

static void add_args(td_arena *a, td_str text, Pb__OpDef__ArgDef ***args, size_t *count) {
  *args = td_arena_array(a, Pb__OpDef__ArgDef *, 16);
  while (text.size) {
    td_str type = td_str_trim(td_str_split(&text, ','));
    td_str name = td_str_split(&type, ':');
    Pb__OpDef__ArgDef *arg = td_arena_new(a, Pb__OpDef__ArgDef);
    pb__op_def__arg_def__init(arg);
    arg->name = c_string(a, name);
    arg->type = (int32_t)td_dtype_parse(type);
    if (!arg->type) arg->type_attr = c_string(a, type);
    (*args)[(*count)++] = arg;
  }
}

static Pb__FunctionDef *begin_function(td_arena *a, td_str line) {
  Pb__FunctionDef *f = td_arena_new(a, Pb__FunctionDef);
  pb__function_def__init(f);
  f->signature = td_arena_new(a, Pb__OpDef);
  pb__op_def__init(f->signature);
  f->signature->name = c_string(a, td_str_trim(td_str_split(&line, '(')));
  add_args(a, td_str_split(&line, ')'), &f->signature->input_arg, &f->signature->n_input_arg);
  td_str_split(&line, '(');
  add_args(a, td_str_split(&line, ')'), &f->signature->output_arg, &f->signature->n_output_arg);
  f->signature->attr = td_arena_array(a, Pb__OpDef__AttrDef *, 4);
  line = td_str_trim(line);
  if (td_str_starts(line, TD_STR("attr:"))) {
    Pb__OpDef__AttrDef *attr = td_arena_new(a, Pb__OpDef__AttrDef);
    pb__op_def__attr_def__init(attr);
    attr->name = c_string(a, td_str_n(line.data + 5, line.size - 5));
    attr->type = "type";
    f->signature->attr[f->signature->n_attr++] = attr;
  }
  f->node_def = td_arena_array(a, Pb__NodeDef *, 64);
  f->ret = td_arena_array(a, Pb__StringEntry *, 16);
  f->control_ret = td_arena_array(a, Pb__StringEntry *, 16);
  return f;
}

static Pb__StringEntry *entry(td_arena *a, td_str key, td_str value) {
  Pb__StringEntry *e = td_arena_new(a, Pb__StringEntry);
  pb__string_entry__init(e);
  e->key = c_string(a, td_str_trim(key));
  e->value = c_string(a, td_str_trim(value));
  return e;
}

static Pb__NodeDef *function_node(td_arena *a, td_str line) {
  Pb__NodeDef *n = td_arena_new(a, Pb__NodeDef);
  pb__node_def__init(n);
  n->name = c_string(a, td_str_trim(td_str_split(&line, '=')));
  n->op = c_string(a, td_str_trim(td_str_split(&line, '(')));
  n->input = td_arena_array(a, char *, 16);
  n->attr = td_arena_array(a, Pb__AttrEntry *, 16);
  for (td_str inputs = td_str_split(&line, ')'); inputs.size;)
    n->input[n->n_input++] = c_string(a, td_str_trim(td_str_split(&inputs, ',')));
  const td_op_def *op = td_op_find(td_str_of(n->op)); /* NULL: a function; its attributes are types */
  for (line = td_str_trim(line); line.size; line = td_str_trim(line)) {
    td_str value = td_str_split(&line, ' '), name = td_str_split(&value, ':');
    Pb__AttrEntry *e = td_arena_new(a, Pb__AttrEntry);
    pb__attr_entry__init(e);
    e->key = c_string(a, name);
    e->value = op ? attr_value(a, op, name, value) : td_attr_value_type(a, td_dtype_parse(value));
    n->attr[n->n_attr++] = e;
  }
  return n;
}

td_library *test_library(const char *text) {
  test_register();
  td_arena a = {0};
  Pb__FunctionDefLibrary proto;
  pb__function_def_library__init(&proto);
  proto.function = td_arena_array(&a, Pb__FunctionDef *, 4096);
  Pb__FunctionDef *f = NULL;
  for (td_str rest = td_str_of(text); rest.size;) {
    td_str line = td_str_trim(td_str_split(&rest, '\n'));
    if (td_str_starts(line, TD_STR("func "))) {
      f = begin_function(&a, td_str_n(line.data + 5, line.size - 5));
      proto.function[proto.n_function++] = f;
    } else if (td_str_starts(line, TD_STR("ret "))) {
      td_str value = td_str_n(line.data + 4, line.size - 4), key = td_str_split(&value, '=');
      f->ret[f->n_ret++] = entry(&a, key, value);
    } else if (td_str_starts(line, TD_STR("control "))) {
      td_str name = td_str_n(line.data + 8, line.size - 8);
      f->control_ret[f->n_control_ret++] = entry(&a, name, name);
      f->signature->control_output = td_arena_array(&a, char *, 1);
      f->signature->control_output[f->signature->n_control_output++] = c_string(&a, name);
    } else if (line.size && !td_str_is(line, "end")) {
      f->node_def[f->n_node_def++] = function_node(&a, line);
    }
  }
  td_library *out;
  td_status s = td_library_merge(NULL, &proto, &out);
  if (s) fail_msg("%s", td_status_message(s));
  td_arena_deinit(&a);
  return out;
}

/* ---- runs ---- */

void test_fresh_step(test_env *e) {
  td_rendezvous_release(e->rendezvous);
  td_cancellation_release(e->cancellation);
  e->step.rendezvous = e->rendezvous = td_local_rendezvous_create();
  e->step.cancellation = e->cancellation = td_cancellation_create();
}

void test_env_init(test_env *e, int threads) {
  test_register();
  *e = (test_env){0};
  td_device_name name;
  assert_true(td_device_name_parse(TD_STR("/job:worker/replica:0/task:0/device:CPU:0"), &name));
  e->resources = td_resource_mgr_create(TD_STR("worker"));
  e->device = td_device_create(&name, 1, e->resources);
  if (threads) e->pool = td_pool_create("test", NULL, threads);
  e->step.pool = e->pool;
  test_fresh_step(e);
}

void test_env_deinit(test_env *e) {
  td_pool_destroy(e->pool);
  td_rendezvous_release(e->rendezvous);
  td_cancellation_release(e->cancellation);
  td_device_release(e->device);
  td_resource_mgr_release(e->resources);
}

td_program *test_program(test_env *e, const char *text) { return test_program_with(e, NULL, text, NULL); }

td_program *test_program_with(test_env *e, td_library *library, const char *text, td_status *error) {
  td_graph *g = test_graph_with(library, text);
  td_program_options o = {.device = e->device, .functions = e->step.functions};
  td_program *p = NULL;
  td_status s = td_program_create(g, &o, &p);
  if (s && !error) fail_msg("%s", td_status_message(s));
  if (error) *error = s;
  td_graph_release(g);
  return p;
}

typedef struct waiter {
  pthread_mutex_t lock;
  pthread_cond_t cond;
  bool done;
  test_result *out;
} waiter;

static void run_done(void *arg, td_status status, td_tensor **results, int result_count) {
  waiter *w = arg;
  pthread_mutex_lock(&w->lock);
  assert(!w->done);
  w->done = true;
  w->out->status = status;
  w->out->count = result_count;
  for (int i = 0; i < result_count && i < (int)TD_COUNT(w->out->values); i++) w->out->values[i] = results[i];
  pthread_cond_signal(&w->cond);
  pthread_mutex_unlock(&w->lock);
}

void test_run(test_env *e, td_program *p, td_tensor **args, int arg_count, test_result *out) {
  *out = (test_result){0};
  waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .out = out};
  td_run_options o = {.step = &e->step, .args = args, .arg_count = arg_count, .done = run_done, .arg = &w};
  td_executor_run(p, &o);
  pthread_mutex_lock(&w.lock);
  for (int left = 200; !w.done; left--) { /* a second at a time: the whole machine may stand still for minutes */
    struct timespec until;
    if (!left) {
      fprintf(stderr, "a run did not end\n");
      abort();
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&w.cond, &w.lock, &until);
  }
  pthread_mutex_unlock(&w.lock);
}

void test_result_deinit(test_result *r) {
  td_status_free(r->status);
  for (int i = 0; i < r->count; i++) td_tensor_release(r->values[i]);
}

void test_expect(test_env *e, const char *text, int count, const int32_t *values) {
  td_program *p = test_program(e, text);
  for (int round = 0; round < 2; round++) { /* twice: the second run uses the first one's memory */
    test_result r;
    test_fresh_step(e);
    test_run(e, p, NULL, 0, &r);
    if (r.status) fail_msg("%s", td_status_message(r.status));
    assert_int_equal(r.count, count);
    for (int i = 0; i < count; i++) {
      assert_int_equal(r.values[i]->dtype, TD_INT32);
      assert_int_equal(*TD_DATA(r.values[i], int32_t), values[i]);
    }
    test_result_deinit(&r);
  }
  td_program_release(p);
}

void test_expect_error(test_env *e, const char *text, td_code code, const char *message) {
  td_program *p = test_program(e, text);
  test_result r;
  test_fresh_step(e);
  test_run(e, p, NULL, 0, &r);
  assert_int_equal(td_status_code(r.status), code);
  if (!strstr(td_status_message(r.status), message)) fail_msg("%s", td_status_message(r.status));
  test_result_deinit(&r);
  td_program_release(p);
}

td_tensor *test_vector(int32_t v, int64_t n) {
  td_tensor *t;
  td_status s = td_tensor_create_dims(TD_INT32, 1, &n, &t);
  if (s) fail_msg("%s", td_status_message(s));
  for (int64_t i = 0; i < n; i++) TD_DATA(t, int32_t)[i] = v;
  return t;
}

td_tensor *test_int(int32_t v) {
  td_tensor *t;
  td_status s = td_tensor_create_dims(TD_INT32, 0, NULL, &t);
  if (s) fail_msg("%s", td_status_message(s));
  *TD_DATA(t, int32_t) = v;
  return t;
}

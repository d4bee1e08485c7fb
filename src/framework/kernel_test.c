#include "framework/kernel.h"
#include "base/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

/* ---- a family of test ops ---- */

typedef struct state_of {
  int *freed;
  int64_t n;
} state_of;

static int freed;

static td_status compute(td_kernel_ctx *ctx) { return TD_STATUS_OK; }
static td_status compute_other(td_kernel_ctx *ctx) { return TD_STATUS_OK; }

static td_status create(td_kernel_builder *b, void *state) {
  state_of *s = state;
  assert_true(!s->freed && !s->n); /* zeroed */
  s->freed = &freed;
  TD_TRY(td_attr_int(b->node, "n", &s->n));
  if (s->n < 0) return td_invalid_argument("n is %lld", (long long)s->n);
  if (s->n == 5) b->compute = compute_other;
  return TD_STATUS_OK;
}

static void destroy(void *state) {
  state_of *s = state;
  if (s->freed) ++*s->freed;
}

static td_status create_empty(td_kernel_builder *b, void *state) { return TD_STATUS_OK; }

static const td_op_spec ops[] = {
    {"TestUnary", "x: T", "y: T", "T: type; n: int = 0", TD_OP_STATEFUL},
    {.name = "TestList", .inputs = "x: L", .outputs = "y: int32", .attrs = "L: list(type)"},
    {.name = "TestNoKernel"},
    {.name = "TestEmpty"},
};
static const td_kernel_def kernels[] = {
    {.op = "TestUnary",
     .types = {{"T", TD_SET(TD_FLOAT) | TD_SET(TD_INT32)}},
     .compute = compute,
     .create = create,
     .destroy = destroy,
     .state_size = sizeof(state_of)},
    {.op = "TestUnary", .types = {{"T", TD_SET(TD_FLOAT)}}, .priority = 1, .compute = compute_other},
    {.op = "TestUnary", .device_type = "GPU", .compute = compute},
    {.op = "TestList", .types = {{"L", TD_SET(TD_FLOAT) | TD_SET(TD_BOOL)}}, .compute = compute},
    {.op = "TestEmpty", .create = create_empty},
};
static const td_op_family family = {"test", ops, TD_COUNT(ops), kernels, TD_COUNT(kernels)};

static int register_once(void **state) {
  assert_null(td_family_register(&family));
  return 0;
}

static Pb__AttrValue values[2];
static td_attr attrs[2];

static td_node_def node(const char *op, int type, int64_t n) {
  pb__attr_value__init(&values[0]);
  pb__attr_value__init(&values[1]);
  values[0].value_case = PB__ATTR_VALUE__VALUE_TYPE;
  values[0].type = type;
  values[1].value_case = PB__ATTR_VALUE__VALUE_I;
  values[1].i = n;
  attrs[0] = (td_attr){TD_STR("T"), &values[0]};
  attrs[1] = (td_attr){TD_STR("n"), &values[1]};
  return (td_node_def){.name = TD_STR("node"), .op = td_str_of(op), .attrs = attrs, .attr_count = 2};
}

/* ---- registry ---- */

static void *find_op(void *arg) {
  for (int i = 0; i < 100; i++)
    if (!td_op_find(TD_STR("TestUnary")) || !td_op_find(TD_STR("TestList"))) abort();
  return (void *)td_op_find(TD_STR("TestUnary"));
}

static void test_find(void **state) {
  pthread_t threads[4];
  void *def;
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, find_op, NULL), 0);
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], &def); /* parsed once, whoever came first */
    assert_ptr_equal(def, td_op_find(TD_STR("TestUnary")));
  }
  assert_null(td_op_find(TD_STR("TestUnary\0")));
  assert_null(td_op_find((td_str){NULL, 0}));
  assert_true(td_kernel_any_for_op(TD_STR("TestList")));
  assert_false(td_kernel_any_for_op(TD_STR("TestNoKernel")) || td_kernel_any_for_op(TD_STR("nope")));
  td_node_def n = node("TestUnary", TD_FLOAT, 0);
  assert_ptr_equal(td_kernel_find(&n, TD_STR("CPU")), &kernels[1]); /* the higher priority */
  assert_ptr_equal(td_kernel_find(&n, TD_STR("GPU")), &kernels[2]);
  assert_null(td_kernel_find(&n, TD_STR("TPU")));
  n = node("TestUnary", TD_INT32, 0);
  assert_ptr_equal(td_kernel_find(&n, TD_STR("CPU")), &kernels[0]);
  static const int types[] = {TD_STRING, 0, -1, 31, 64, 77, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < TD_COUNT(types); i++) {
    n = node("TestUnary", types[i], 0);
    assert_null(td_kernel_find(&n, TD_STR("CPU")));
  }
  assert_null(td_registry_check());
  size_t count = 0;
  td_str op;
  for (size_t i = 0; td_registry_next(&i, &op);) count++;
  assert_int_equal(count, TD_COUNT(ops));
}

static void test_list_constraint(void **state) {
  td_node_def n = node("TestList", 0, 0);
  Pb__AttrValue__ListValue list = PB__ATTR_VALUE__LIST_VALUE__INIT;
  int32_t types[2] = {TD_FLOAT, TD_BOOL};
  list.type = types;
  list.n_type = 2;
  values[0].value_case = PB__ATTR_VALUE__VALUE_LIST;
  values[0].list = &list;
  attrs[0].name = TD_STR("L");
  assert_non_null(td_kernel_find(&n, TD_STR("CPU")));
  types[1] = TD_INT32;
  assert_null(td_kernel_find(&n, TD_STR("CPU")));
}

/* ---- kernels ---- */

static td_status make(const char *op, int type, int64_t n, td_kernel **out) {
  td_node_def def = node(op, type, n);
  const td_kernel_options options = {.node = &def};
  return td_kernel_create(&options, out);
}

static void test_create(void **state) {
  td_kernel *k = NULL;
  freed = 0;
  assert_null(make("TestUnary", TD_INT32, 5, &k));
  assert_ptr_equal(k->compute, compute_other); /* create() chose */
  assert_true(k->input_count == 1 && k->output_count == 1 && k->input_types[0] == TD_INT32 && k->is_stateful);
  assert_true(td_str_is(k->name, "node") && td_str_is(k->op, "TestUnary"));
  assert_int_equal(k->arena.allocated, 0); /* all of it is one block, with what runs read side by side */
  assert_in_range((uintptr_t)k->output_types - (uintptr_t)k, sizeof *k, sizeof *k + 64);
  assert_in_range((uintptr_t)k->state - (uintptr_t)k, sizeof *k, sizeof *k + 64);
  td_kernel_release(td_kernel_retain(k));
  assert_int_equal(freed, 0);
  td_kernel_release(k);
  assert_int_equal(freed, 1);
  must_fail(make("TestUnary", TD_INT32, -3, &k), TD_INVALID_ARGUMENT, "n is -3");
  assert_int_equal(freed, 2); /* destroy() runs after a failed create() */
  must_fail(make("TestUnary", TD_STRING, 0, &k), TD_NOT_FOUND,
            "No OpKernel was registered to support Op 'TestUnary' used by {{node node}} with these attrs: [T=string]");
  must_fail(make("TestNoKernel", TD_INT32, 0, &k), TD_NOT_FOUND,
            "No OpKernel was registered to support Op 'TestNoKernel'");
  must_fail(make("TestEmpty", TD_INT32, 0, &k), TD_NOT_FOUND, "No OpKernel was registered");
  must_fail(make("Nope", TD_INT32, 0, &k), TD_NOT_FOUND, "Op type not registered 'Nope' in binary running on ");
  td_kernel_release(NULL);
}

/* ---- inputs and outputs ---- */

typedef struct run {
  td_kernel *kernel;
  td_kernel_ctx ctx;
  td_value in[1], out[1];
} run;

static void begin(run *r, td_dtype type, int rank, const int64_t *dims) {
  *r = (run){0};
  assert_null(make("TestUnary", TD_FLOAT, 0, &r->kernel));
  r->ctx = (td_kernel_ctx){.kernel = r->kernel, .in = r->in, .out = r->out};
  assert_null(td_tensor_create_dims(type, rank, dims, &r->in[0].tensor));
}

static void end(run *r) {
  td_tensor_release(r->in[0].tensor);
  td_tensor_release(r->out[0].tensor);
  td_kernel_release(r->kernel);
}

/* Whether an output of `dims` in place of the input shares its elements. */
static bool shares(run *r, int rank, const int64_t *dims) {
  td_tensor *t = NULL;
  td_shape shape = {.rank = rank};
  for (int i = 0; i < rank; i++) shape.dims[i] = dims[i];
  assert_null(td_out_reuse(&r->ctx, 0, 0, &shape, &t));
  assert_ptr_equal(t, r->out[0].tensor);
  assert_int_equal(t->dtype, TD_FLOAT);
  assert_true(td_dims_eq(t->rank, t->dims, rank, dims));
  bool shared = t->data == r->in[0].tensor->data;
  td_tensor_release(t);
  r->out[0].tensor = NULL;
  return shared;
}

static void test_reuse(void **state) {
  run r;
  const int64_t dims[] = {2, 3}, flat[] = {6}, other[] = {7}, zero[] = {0, 5};
  begin(&r, TD_FLOAT, 2, dims);
  assert_true(shares(&r, 2, dims));
  assert_true(shares(&r, 1, flat)); /* another shape over the same elements */
  assert_false(shares(&r, 1, other));
  assert_false(shares(&r, 0, NULL));
  td_tensor_retain(r.in[0].tensor); /* somebody else can see it */
  assert_false(shares(&r, 2, dims));
  td_tensor_release(r.in[0].tensor);
  assert_true(shares(&r, 2, dims));
  td_tensor *view = td_tensor_reshape(r.in[0].tensor, 1, flat), *own = r.in[0].tensor; /* the input is a view, */
  r.in[0].tensor = view;
  assert_false(shares(&r, 1, flat)); /* its owner still held elsewhere */
  td_tensor_release(own);
  assert_true(shares(&r, 1, flat)); /* now not */
  td_tensor *t;
  assert_null(td_out_reuse_like(&r.ctx, 0, 0, &t));
  assert_ptr_equal(t->data, r.in[0].tensor->data);
  end(&r);
  begin(&r, TD_INT32, 2, dims); /* another type of one size */
  assert_true(shares(&r, 2, dims));
  end(&r);
  begin(&r, TD_DOUBLE, 2, dims);
  assert_false(shares(&r, 2, dims));
  end(&r);
  begin(&r, TD_STRING, 2, dims); /* elements that own memory */
  assert_false(shares(&r, 2, dims));
  end(&r);
  begin(&r, TD_FLOAT, 2, zero); /* nothing to share */
  (void)shares(&r, 2, zero);
  end(&r);
  begin(&r, TD_FLOAT, 0, NULL); /* an input that was taken already */
  td_tensor *taken = r.in[0].tensor;
  r.in[0].tensor = NULL;
  td_shape scalar = {.rank = 0};
  assert_null(td_out_reuse(&r.ctx, 0, 0, &scalar, &t));
  assert_ptr_not_equal(t, taken);
  td_tensor_release(taken);
  end(&r);
}

/* Sizes that no tensor has end as a status, whatever their product. */
static void test_reuse_hostile(void **state) {
  static const int64_t bad[][2] = {{-2, -3},       {-1, -6}, {INT64_MIN, 2}, {-1, 0}, {INT64_MAX, INT64_MAX},
                                   {INT64_MIN, -1}};
  run r;
  begin(&r, TD_FLOAT, 2, (int64_t[]){2, 3});
  for (size_t i = 0; i < TD_COUNT(bad); i++) {
    td_tensor *t;
    td_shape shape = {.rank = 2, .dims = {bad[i][0], bad[i][1]}};
    td_status s = td_out_reuse(&r.ctx, 0, 0, &shape, &t);
    assert_non_null(s);
    assert_null(r.out[0].tensor);
    td_status_free(s);
  }
  end(&r);
}

static void test_shape_from_tensor(void **state) {
  td_tensor *t;
  td_shape shape;
  assert_null(td_tensor_create_dims(TD_INT64, 1, (int64_t[]){3}, &t));
  static const struct {
    int64_t dims[3];
    bool known, unknown; /* accepted */
  } cases[] = {
      {{2, 0, 3}, true, true},           {{-1, 2, 3}, false, true},         {{-2, 1, 1}, false, false},
      {{INT64_MIN, 1, 1}, false, false}, {{INT64_MAX, 2, 1}, false, false}, {{1ll << 32, 1ll << 32, 1}, false, false},
  };
  for (size_t i = 0; i < TD_COUNT(cases); i++) {
    memcpy(t->data, cases[i].dims, sizeof cases[i].dims);
    for (int allow = 0; allow < 2; allow++) {
      td_status s = td_shape_from_tensor(t, allow, &shape);
      assert_int_equal(!s, allow ? cases[i].unknown : cases[i].known);
      if (!s) assert_true(td_dims_eq(shape.rank, shape.dims, 3, cases[i].dims));
      td_status_free(s);
    }
  }
  td_tensor_release(t);
  assert_null(td_tensor_create_dims(TD_INT32, 1, (int64_t[]){100000}, &t));
  must_fail(td_shape_from_tensor(t, true, &shape), TD_INVALID_ARGUMENT, "got 100000");
  td_tensor_release(t);
  assert_null(td_tensor_create_dims(TD_INT32, 0, NULL, &t));
  must_fail(td_shape_from_tensor(t, true, &shape), TD_INVALID_ARGUMENT, "shape must be a vector, got shape []");
  assert_null(td_check_scalar(t, "x"));
  td_tensor_release(t);
  assert_null(td_tensor_create_dims(TD_FLOAT, 1, (int64_t[]){2}, &t));
  must_fail(td_shape_from_tensor(t, true, &shape), TD_INVALID_ARGUMENT, "shape must be int32 or int64, got float");
  must_fail(td_check_scalar(t, "x"), TD_INVALID_ARGUMENT, "x must be a scalar, got shape [2]");
  td_tensor_release(t);
}

/* ---- what a registration refuses; last: nothing is taken back ---- */

static void test_register_refuses(void **state) {
  static const td_op_spec again[] = {{.name = "TestList"}}, nameless[] = {{.name = NULL}},
                          fine[] = {{.name = "TestA", .inputs = "x: T", .attrs = "T: type"}};
  static const td_kernel_def unknown[] = {{.op = "Nope", .compute = compute}}, idle[] = {{.op = "TestList"}};
  static const td_kernel_def stateless[] = {{.op = "TestList", .compute = compute, .destroy = destroy}},
                             none[] = {{.compute = NULL}};
  must_fail(td_family_register(&(td_op_family){.name = "f", .ops = again, .op_count = 1}), TD_ALREADY_EXISTS,
            "TestList");
  must_fail(td_family_register(&(td_op_family){.name = "f", .ops = nameless, .op_count = 1}), TD_INTERNAL, "no name");
  const td_kernel_def *const bad[] = {unknown, idle, stateless, none};
  for (size_t i = 0; i < TD_COUNT(bad); i++)
    must_fail(td_family_register(&(td_op_family){.name = "f", .kernels = bad[i], .kernel_count = 1}), TD_INTERNAL,
              "f: ");
  static const td_kernel_def twice[] = {
      {.op = "TestA", .types = {{"T", TD_SET(TD_FLOAT) | TD_SET(TD_INT32)}}, .compute = compute},
      {.op = "TestA", .types = {{"T", TD_SET(TD_DOUBLE)}}, .compute = compute},
      {.op = "TestA", .types = {{"T", TD_SET(TD_FLOAT)}}, .compute = compute, .device_type = "GPU"},
      {.op = "TestA", .types = {{"T", TD_SET(TD_INT32)}}, .compute = compute},
  };
  assert_null(td_family_register(
      &(td_op_family){.name = "f", .ops = fine, .op_count = 1, .kernels = twice, .kernel_count = 3}));
  assert_null(td_registry_check());
  assert_null(td_family_register(&(td_op_family){.name = "f", .kernels = twice + 3, .kernel_count = 1}));
  must_fail(td_registry_check(), TD_ALREADY_EXISTS, "op TestA: kernels 0 and 3 of priority 0 fit one case");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_find),
      cmocka_unit_test(test_list_constraint),
      cmocka_unit_test(test_create),
      cmocka_unit_test(test_reuse),
      cmocka_unit_test(test_reuse_hostile),
      cmocka_unit_test(test_shape_from_tensor),
      cmocka_unit_test(test_register_refuses),
  };
  return cmocka_run_group_tests(tests, register_once, NULL);
}

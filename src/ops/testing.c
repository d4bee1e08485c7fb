#include "ops/testing.h"

#include <complex.h>
#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/testing.h"
#include "framework/cancellation.h"
#include "framework/device.h"
#include "framework/resource.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "tensor/number.h"

/* ---- attributes from text ---- */

/* Cuts the next "name: value" at a ';' outside quotes and brackets. */
static bool next_attr(const char **p, td_str *name, td_str *value) {
  while (isspace((unsigned char)**p) || **p == ';') (*p)++;
  if (!**p) return false;
  const char *colon = strchr(*p, ':');
  assert_non_null(colon);
  *name = td_str_trim(td_str_n(*p, (size_t)(colon - *p)));
  const char *q = colon + 1;
  int depth = 0;
  bool quoted = false;
  for (; *q && (*q != ';' || depth || quoted); q++) {
    quoted ^= *q == '\'';
    depth += !quoted && (*q == '[' || *q == '{');
    depth -= !quoted && (*q == ']' || *q == '}');
  }
  *value = td_str_trim(td_str_n(colon + 1, (size_t)(q - colon - 1)));
  *p = q;
  return true;
}

/* Turns a value into the definition notation's default and lets td_op_parse() read it. */
static const Pb__AttrValue *parse_value(td_arena *a, const td_attr_def *def, td_str value) {
  static const char *const kinds[] = {"string", "int", "float", "bool", "type", "shape", "tensor", "func"};
  char *text =
      td_arena_printf(a, def->is_list ? "a: list(%s) = %.*s" : "a: %s = %.*s", kinds[def->kind], TD_STR_ARG(value));
  td_op_spec spec = {.name = "attribute in a test", .attrs = text};
  const td_op_def *op;
  must(td_op_parse(&spec, a, &op));
  return op->attrs[0].default_value;
}

static const td_op_def *make_node(const td_op_run *run, td_arena *a, td_node_def *n) {
  const td_op_def *op = td_op_find(td_str_of(run->op));
  if (!op) fail_msg("no op %s", run->op);
  n->name = td_str_of(run->name ? run->name : "node");
  n->op = td_str_of(run->op);
  n->attrs = td_arena_array(a, td_attr, 64);
  const char *p = run->attrs ? run->attrs : "";
  for (td_str name, value; next_attr(&p, &name, &value);) {
    const td_attr_def *def = td_op_attr(op, name);
    if (!def) fail_msg("op %s has no attribute %.*s", run->op, TD_STR_ARG(name));
    n->attrs[n->attr_count++] = (td_attr){name, parse_value(a, def, value)};
  }
  td_node_add_defaults(n, op, a);
  return op;
}

/* ---- running ---- */

typedef struct waiter {
  td_kernel_ctx ctx;
  pthread_mutex_t lock;
  pthread_cond_t cond;
  bool done;
  td_status status;
} waiter;

static void async_done(td_kernel_ctx *ctx, td_status status) {
  waiter *w = TD_CONTAINER_OF(ctx, waiter, ctx);
  pthread_mutex_lock(&w->lock);
  w->done = true;
  w->status = status;
  pthread_cond_signal(&w->cond);
  pthread_mutex_unlock(&w->lock);
}

static td_status compute(td_kernel *k, waiter *w) {
  if (k->compute) return k->compute(&w->ctx);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->cond, NULL);
  w->ctx.done = async_done;
  k->compute_async(&w->ctx);
  pthread_mutex_lock(&w->lock);
  while (!w->done) pthread_cond_wait(&w->cond, &w->lock);
  pthread_mutex_unlock(&w->lock);
  return w->status;
}

static td_status run_kernel(td_op_run *run, td_kernel *k, td_device *device, td_step *step) {
  if (k->input_count != run->in_count)
    return td_invalid_argument("op %s takes %d inputs, the test gives %d", run->op, k->input_count, run->in_count);
  td_value in[64] = {0}, out[64] = {0};
  for (int i = 0; i < run->in_count; i++) {
    if (run->is_ref || td_dtype_is_ref(k->input_types[i])) {
      in[i].ref = td_variable_retain(run->refs[i]);
    } else if (run->in[i]->dtype != k->input_types[i]) {
      return td_invalid_argument("input %d of op %s is %s, the test gives %s", i, run->op,
                                 td_dtype_name(k->input_types[i]), td_dtype_name(run->in[i]->dtype));
    } else {
      in[i].tensor = td_tensor_retain(run->in[i]);
    }
  }
  waiter w = {.ctx = {.kernel = k, .state = k->state, .step = step, .device = device, .in = in, .out = out}};
  w.ctx.is_ref = run->is_ref;
  td_status s = compute(k, &w);
  for (int i = 0; i < run->in_count; i++) {
    if (run->is_ref || td_dtype_is_ref(k->input_types[i]))
      td_variable_release(in[i].ref);
    else
      td_tensor_release(in[i].tensor);
  }
  run->out_count = k->output_count;
  memset(run->out, 0, sizeof run->out);
  memset(run->out_refs, 0, sizeof run->out_refs);
  for (int i = 0; i < k->output_count; i++) {
    if (td_dtype_is_ref(k->output_types[i])) {
      if (s || i >= (int)TD_COUNT(run->out_refs))
        td_variable_release(out[i].ref);
      else
        run->out_refs[i] = out[i].ref;
      continue;
    }
    if (!s && out[i].tensor && out[i].tensor->dtype != k->output_types[i])
      s = td_internal("Output %d of type %s does not match declared output type %s", i,
                      td_dtype_name(out[i].tensor->dtype), td_dtype_name(k->output_types[i]));
    if (!s) run->out[i] = out[i].tensor;
  }
  for (int i = 0; s && i < k->output_count; i++) {
    if (!td_dtype_is_ref(k->output_types[i])) td_tensor_release(out[i].tensor);
    run->out[i] = NULL;
  }
  return s;
}

td_device *td_test_device(void) {
  td_device_name name;
  assert_true(td_device_name_parse(TD_STR("/job:test/replica:0/task:0/device:CPU:0"), &name));
  td_resource_mgr *resources = td_resource_mgr_create(TD_STR("test"));
  td_device *device = td_device_create(&name, 1, resources);
  td_resource_mgr_release(resources);
  return device;
}

td_status td_op_test_run(td_op_run *run) {
  TD_TRY(td_ops_register());
  td_arena arena = {0};
  td_device *device = run->device ? td_device_retain(run->device) : td_test_device();
  td_step own_step = {.id = 1}, *step = run->step ? run->step : &own_step;
  if (!run->step) {
    own_step.cancellation = td_cancellation_create();
    own_step.step_resources = td_resource_mgr_create(TD_STR("__per_step_1"));
  }
  td_node_def node = {0};
  td_kernel *k = run->kernel ? *run->kernel : NULL;
  td_status status = TD_STATUS_OK;
  if (!k) {
    const td_op_def *op = make_node(run, &arena, &node);
    TD_TRY_GOTO(td_node_validate(&node, op, false));
    TD_TRY_GOTO(td_kernel_create(
        &(td_kernel_options){
            .node = &node, .device = device, .op = op, .functions = run->functions, .session = TD_STR("s")},
        &k));
  }
  status = run_kernel(run, k, device, step);
cleanup:
  if (run->kernel)
    *run->kernel = k;
  else
    td_kernel_release(k);
  td_cancellation_release(own_step.cancellation);
  td_resource_mgr_release(own_step.step_resources);
  td_device_release(device);
  td_arena_deinit(&arena);
  return status;
}

/* ---- literals ---- */

static void parse_dims(const char *text, td_shape *out) {
  out->rank = 0;
  for (const char *p = text; *p;) {
    if (!isdigit((unsigned char)*p)) {
      p++;
      continue;
    }
    char *end;
    out->dims[out->rank++] = strtoll(p, &end, 10);
    p = end;
  }
}

static void set_element(td_tensor *t, int64_t i, const char *word) {
  double d = strtod(word, NULL), imaginary = 0;
  const char *comma = strchr(word, ',');
  if (comma) imaginary = strtod(comma + 1, NULL);
  int64_t n = t->dtype == TD_UINT64 ? (int64_t)strtoull(word, NULL, 0) : strtoll(word, NULL, 0);
  switch (t->dtype) {
    case TD_FLOAT:
    case TD_DOUBLE:
    case TD_HALF:
    case TD_BFLOAT16:
    case TD_COMPLEX64:
    case TD_COMPLEX128:
      td_tensor_set_complex(t, i, d, imaginary);
      break;
    case TD_BOOL:
      TD_DATA(t, bool)[i] = !strcmp(word, "true") || !strcmp(word, "1");
      break;
    case TD_STRING: {
      td_status s =
          td_string_set(&TD_DATA(t, td_string)[i], td_str_is(td_str_of(word), "''") ? TD_STR("") : td_str_of(word));
      assert_null(s);
      break;
    }
    default:
      assert_true(td_dtype_is_pod((td_dtype)t->dtype));
      memcpy((char *)t->data + (size_t)i * td_dtype_size((td_dtype)t->dtype), &n, td_dtype_size((td_dtype)t->dtype));
  }
}

td_tensor *td_test_tensor(td_dtype dtype, const char *shape, const char *values) {
  td_shape s;
  td_tensor *t;
  parse_dims(shape, &s);
  must(td_tensor_create(dtype, &s, &t));
  char *copy = td_strdup(values), *save = NULL;
  int64_t i = 0;
  for (char *w = strtok_r(copy, " \n\t", &save); w; w = strtok_r(NULL, " \n\t", &save)) {
    assert_true(i < t->count);
    set_element(t, i++, w);
  }
  if (i == 1)
    for (; i < t->count; i++) td_tensor_copy_elements(t, i, t, 0, 1);
  assert_true(i == t->count);
  td_free(copy);
  return t;
}

static bool near(double a, double b, double tolerance) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  if (isinf(a) || isinf(b)) return a == b;
  return fabs(a - b) <= tolerance * fmax(1, fabs(b));
}

static bool near_complex(td_complex128 a, td_complex128 b, double tolerance) {
  return near(creal(a), creal(b), tolerance) && near(cimag(a), cimag(b), tolerance);
}

void td_assert_tensor(const td_tensor *t, td_dtype dtype, const char *shape, const char *values, double tolerance) {
  assert_non_null(t);
  assert_string_equal(td_dtype_name(t->dtype), td_dtype_name(dtype));
  td_tensor *e = td_test_tensor(dtype, shape, values);
  char *got = td_tensor_shape_text(t), *want = td_tensor_shape_text(e);
  assert_string_equal(got, want);
  td_free(got);
  td_free(want);
  got = td_tensor_summarize(t, 64);
  for (int64_t i = 0; i < t->count; i++) {
    bool same;
    if (td_dtype_in(dtype, TD_SET_FLOATING))
      same = near(td_tensor_real_at(t, i), td_tensor_real_at(e, i), tolerance);
    else if (td_dtype_in(dtype, TD_SET_COMPLEX))
      same = near_complex(td_tensor_complex_at(t, i), td_tensor_complex_at(e, i), tolerance);
    else if (dtype == TD_STRING)
      same = td_str_eq(td_string_view(&TD_DATA(t, td_string)[i]), td_string_view(&TD_DATA(e, td_string)[i]));
    else
      same = !memcmp((char *)t->data + (size_t)i * td_dtype_size(dtype),
                     (char *)e->data + (size_t)i * td_dtype_size(dtype), td_dtype_size(dtype));
    if (!same) fail_msg("element %lld differs: got %s, want %s", (long long)i, got, values);
  }
  td_free(got);
  td_tensor_release(e);
}

void td_assert_runs(td_op_run *run) {
  td_status s = td_op_test_run(run);
  if (s) fail_msg("%s: %s", run->op, td_status_message(s));
}

void td_assert_run_fails(td_op_run *run, td_code code, const char *text) {
  td_status s = td_op_test_run(run);
  if (!s) fail_msg("op %s with %s should fail", run->op, run->attrs ? run->attrs : "no attributes");
  if (td_status_code(s) != code || !strstr(td_status_message(s), text))
    fail_msg("op %s: got %s: %s; want %s: …%s…", run->op, td_code_name(td_status_code(s)), td_status_message(s),
             td_code_name(code), text);
  td_status_free(s);
}

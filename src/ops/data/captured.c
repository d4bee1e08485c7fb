#include "ops/data/captured.h"

#include "base/mem.h"
#include "base/random.h"
#include "framework/cancellation.h"
#include "framework/resource.h"

/* ---- functions of kernels ---- */

void td_data_function_deinit(td_data_function *f) { (void)f; }

td_status td_dataset_kernel_add_function(td_kernel_builder *b, td_dataset_kernel *k, const char *attr,
                                         const char *captures) {
  const Pb__NameAttrList *function;
  td_data_function f = {.runtime = b->functions};
  if (!f.runtime) return td_internal("No function library is provided.");
  TD_TRY(td_attr_func(b->node, attr, &function));
  if (captures) TD_TRY(td_node_input_range(b->node, b->op, captures, &f.begin, &f.end));
  TD_TRY(f.runtime->ops->instantiate(f.runtime, function, b->device, &f.handle));
  k->functions = td_realloc(k->functions, ((size_t)k->function_count + 1) * sizeof *k->functions);
  k->functions[k->function_count++] = f;
  return TD_STATUS_OK;
}

td_status td_dataset_kernel_create_f(td_kernel_builder *b, void *state) {
  TD_TRY(td_dataset_kernel_create(b, state));
  return td_dataset_kernel_add_function(b, state, "f", "other_arguments");
}

td_status td_dataset_kernel_create_predicate(td_kernel_builder *b, void *state) {
  TD_TRY(td_dataset_kernel_create(b, state));
  return td_dataset_kernel_add_function(b, state, "predicate", "other_arguments");
}

/* ---- captured values ---- */

void td_captured_init(td_captured *c, td_kernel_ctx *ctx, int which) {
  const td_data_function *f = &((td_dataset_kernel *)ctx->state)->functions[which];
  *c = (td_captured){.runtime = f->runtime, .handle = f->handle};
  f->runtime->ops->retain(f->runtime);
  c->session = td_strndup(ctx->step->session.data ? ctx->step->session.data : "", ctx->step->session.size);
  c->values = td_new_array(td_tensor *, (size_t)(f->end - f->begin) + 1);
  for (int i = f->begin; i < f->end; i++) c->values[c->count++] = td_tensor_retain(td_in(ctx, i));
}

void td_captured_deinit(td_captured *c) {
  if (!c->runtime) return;
  for (int i = 0; i < c->count; i++) td_tensor_release(c->values[i]);
  td_free(c->values);
  td_free(c->session);
  c->runtime->ops->release(c->runtime);
  c->runtime = NULL;
}

/* ---- calls ---- */

enum { STARTED, RETURNED, ENDED };

static void call_done(td_function_call *fc, td_status status, td_tensor **results, int count) {
  td_data_call *c = TD_CONTAINER_OF(fc, td_data_call, call);
  for (int i = 0; i < c->call.arg_count; i++) td_tensor_release(c->call.args[i]);
  td_free(c->call.args);
  td_resource_mgr_release(c->step.step_resources);
  c->status = status;
  c->results = status ? NULL : td_element_of(count, results);
  for (int i = 0; status && i < count; i++) td_tensor_release(results[i]);
  /* acq_rel: whoever comes second sees what the first did */
  if (atomic_exchange_explicit(&c->state, ENDED, memory_order_acq_rel) == RETURNED) c->ended(c);
}

bool td_data_call_start(td_data_call *c, const td_captured *captured, td_pool *pool, td_element *e) {
  if (!c->cancellation) c->cancellation = td_cancellation_create();
  int given = e ? e->count : 0, count = given + captured->count;
  td_tensor **args = td_new_array(td_tensor *, (size_t)count + 1);
  for (int i = 0; i < given; i++) args[i] = td_tensor_retain(e->values[i]);
  for (int i = 0; i < captured->count; i++) args[given + i] = td_tensor_retain(captured->values[i]);
  td_element_free(e);
  c->status = NULL;
  c->results = NULL;
  c->step = (td_step){.id = (int64_t)(td_random_fast_u64() >> 1),
                      .cancellation = c->cancellation,
                      .step_resources = td_resource_mgr_create(TD_STR("__per_call")),
                      .pool = pool,
                      .functions = captured->runtime,
                      .session = td_str_of(captured->session)};
  c->call = (td_function_call){
      .function = captured->handle, .step = &c->step, .args = args, .arg_count = count, .done = call_done};
  atomic_store_explicit(&c->state, STARTED, memory_order_relaxed);
  captured->runtime->ops->run(captured->runtime, &c->call);
  return atomic_exchange_explicit(&c->state, RETURNED, memory_order_acq_rel) == ENDED;
}

td_element *td_data_call_take(td_data_call *c, td_status *status) {
  td_element *e = c->results;
  *status = c->status;
  c->status = NULL;
  c->results = NULL;
  return e;
}

void td_data_call_deinit(td_data_call *c) {
  td_status_free(c->status);
  td_element_free(c->results);
  td_cancellation_release(c->cancellation);
  *c = (td_data_call){0};
}

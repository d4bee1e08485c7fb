#include "runtime/evaluator.h"

#include "base/mem.h"
#include "framework/cancellation.h"
#include "framework/kernel.h"

typedef struct evaluator {
  td_evaluator base;
  td_device *device;
  td_step step;
} evaluator;

/* What came out must be what the node says, and small: kernels that make tensors on their own know no limit. */
static td_status check_outputs(const td_kernel *k, const td_value *out, size_t max_bytes) {
  for (int i = 0; i < k->output_count; i++) {
    if (!out[i].tensor) return td_internal("Missing %d-th output from %.*s", i, TD_STR_ARG(k->name));
    if (out[i].tensor->dtype != k->output_types[i])
      return td_internal("Output %d of %.*s has type %s", i, TD_STR_ARG(k->name), td_dtype_name(out[i].tensor->dtype));
    if (out[i].tensor->size > max_bytes)
      return td_resource_exhausted("output %d of %.*s takes %zu bytes", i, TD_STR_ARG(k->name), out[i].tensor->size);
  }
  return TD_STATUS_OK;
}

static td_status run(evaluator *e, td_kernel *k, td_tensor *const *in, size_t max_bytes, td_tensor **out) {
  td_value *inputs = td_new_array(td_value, (size_t)k->input_count + 1);
  td_value *outputs = td_new_array(td_value, (size_t)k->output_count + 1);
  for (int i = 0; i < k->input_count; i++) inputs[i].tensor = td_tensor_retain(in[i]);
  td_kernel_ctx ctx = {
      .kernel = k, .state = k->state, .step = &e->step, .device = e->device, .in = inputs, .out = outputs};
  td_status s = k->compute(&ctx);
  if (!s && (ctx.out_dead || ctx.out_live_mask)) s = td_unimplemented("%.*s makes dead values", TD_STR_ARG(k->name));
  if (!s) s = check_outputs(k, outputs, max_bytes);
  for (int i = 0; i < k->input_count; i++) td_tensor_release(inputs[i].tensor);
  for (int i = 0; i < k->output_count; i++) {
    if (s)
      td_tensor_release(outputs[i].tensor);
    else
      out[i] = outputs[i].tensor;
  }
  td_free(inputs);
  td_free(outputs);
  return s;
}

static bool has_refs(const td_kernel *k) {
  for (int i = 0; i < k->input_count; i++)
    if (td_dtype_is_ref(k->input_types[i])) return true;
  for (int i = 0; i < k->output_count; i++)
    if (td_dtype_is_ref(k->output_types[i])) return true;
  return false;
}

static td_status compute(td_evaluator *base, const td_node *n, td_tensor *const *in, size_t max_bytes,
                         td_tensor **out) {
  evaluator *e = TD_CONTAINER_OF(base, evaluator, base);
  td_kernel *k;
  td_kernel_options o = {.node = &n->def, .device = e->device, .op = n->op};
  TD_TRY(td_kernel_create(&o, &k));
  e->step.max_output_bytes = max_bytes;
  td_status s;
  if (!k->compute || k->is_stateful || has_refs(k) || k->input_count != n->input_count ||
      k->output_count != n->output_count)
    s = td_unimplemented("%.*s is computed in a step only", TD_STR_ARG(n->def.name));
  else
    s = run(e, k, in, max_bytes, out);
  td_kernel_release(k);
  return s;
}

td_evaluator *td_evaluator_create(td_device *device) {
  evaluator *e = td_new(evaluator);
  e->base.compute = compute;
  e->device = td_device_retain(device);
  e->step.cancellation = td_cancellation_create();
  e->step.step_resources = td_resource_mgr_create(TD_STR("constants"));
  return &e->base;
}

void td_evaluator_destroy(td_evaluator *base) {
  if (!base) return;
  evaluator *e = TD_CONTAINER_OF(base, evaluator, base);
  td_cancellation_release(e->step.cancellation);
  td_resource_mgr_release(e->step.step_resources);
  td_device_release(e->device);
  td_free(e);
}

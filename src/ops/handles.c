#include "ops/handles.h"

#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "tensor/tensor_proto.h"

static td_status string_handle(td_str first, td_str second, td_tensor **out) {
  int64_t two = 2;
  td_tensor *t;
  TD_TRY(td_tensor_create_dims(TD_STRING, 1, &two, &t));
  td_status s = td_string_set(&TD_DATA(t, td_string)[0], first);
  if (!s) s = td_string_set(&TD_DATA(t, td_string)[1], second);
  if (s)
    td_tensor_release(t);
  else
    *out = t;
  return s;
}

td_status td_out_handle(td_kernel_ctx *ctx, int i, const td_handle_parts *p) {
  td_str container = p->container.size ? p->container : td_resource_mgr_default_container(p->m);
  td_tensor *t;
  if (td_out_type(ctx, i) == TD_RESOURCE) {
    td_strbuf key = {0};
    td_strbuf_append(&key, p->prefix);
    td_strbuf_append(&key, p->name);
    td_status s = td_handle_create(ctx->device, container, td_strbuf_view(&key), p->type, &t);
    td_strbuf_deinit(&key);
    if (!s) td_out_set(ctx, i, t);
    return s;
  }
  TD_TRY(string_handle(p->prefix.size ? p->prefix : container, p->name, &t));
  if (!td_dtype_is_ref(ctx->kernel->output_types[i])) {
    td_out_set(ctx, i, t);
    return TD_STATUS_OK;
  }
  td_variable *v = td_variable_create(&td_ref_variable_type, TD_STRING, p->name);
  v->value = t;
  td_out_set_ref(ctx, i, v);
  return TD_STATUS_OK;
}

static td_status string_handle_at(td_kernel_ctx *ctx, int i, const char *what, char **first, char **second) {
  td_tensor *t = NULL;
  *first = *second = NULL;
  if (td_dtype_is_ref(ctx->kernel->input_types[i])) {
    TD_TRY(td_variable_read(td_in_ref(ctx, i), &t));
    if (!t) return td_failed_precondition("Attempting to use uninitialized value %s", td_in_ref(ctx, i)->name);
  } else {
    t = td_tensor_retain(td_in(ctx, i));
  }
  td_status s = TD_STATUS_OK;
  if (t->dtype != TD_STRING || t->count != 2) {
    char *shape = td_tensor_shape_text(t);
    s = td_invalid_argument("%s, but had shape: %s", what, shape);
    td_free(shape);
  } else {
    td_str a = td_string_view(&TD_DATA(t, td_string)[0]), b = td_string_view(&TD_DATA(t, td_string)[1]);
    *first = td_strndup(a.data, a.size);
    *second = td_strndup(b.data, b.size);
  }
  td_tensor_release(t);
  return s;
}

td_status td_in_string_handle(td_kernel_ctx *ctx, const char *what, char **first, char **second) {
  return string_handle_at(ctx, 0, what, first, second);
}

td_status td_in_handle(td_kernel_ctx *ctx, td_resource_mgr *m, bool per_step, const char *what,
                       const td_resource_type *type, void **out) {
  return td_in_handle_at(ctx, 0, m, per_step, what, type, out);
}

td_status td_in_handle_at(td_kernel_ctx *ctx, int i, td_resource_mgr *m, bool per_step, const char *what,
                          const td_resource_type *type, void **out) {
  if (!m) return td_internal("No step container.");
  if (ctx->kernel->input_types[i] == TD_RESOURCE) {
    if (!per_step) return td_handle_lookup(td_in(ctx, i), ctx->device, type, out);
    td_resource_handle *h;
    TD_TRY(td_handle_of(td_in(ctx, i), ctx->device, &h));
    return td_resource_lookup(m, td_str_of(h->container), td_str_of(h->name), type, out);
  }
  char *first, *second;
  TD_TRY(string_handle_at(ctx, i, what, &first, &second));
  td_status s;
  if (per_step) {
    td_strbuf key = {0};
    td_strbuf_printf(&key, "%s%s", first, second);
    s = td_resource_lookup(m, (td_str){0}, td_strbuf_view(&key), type, out);
    td_strbuf_deinit(&key);
  } else {
    s = td_resource_lookup(m, td_str_of(first), td_str_of(second), type, out);
  }
  td_free(first);
  td_free(second);
  return s;
}

/* ---- handles as text ---- */

td_status td_out_handle_text(td_kernel_ctx *ctx, int i, const td_resource_handle *h) {
  td_tensor *out;
  td_strbuf text = {0};
  TD_TRY(td_out_alloc_dims(ctx, i, 0, NULL, &out));
  td_resource_handle_encode(h, &text);
  td_status s = td_string_set(TD_DATA(out, td_string), td_strbuf_view(&text));
  td_strbuf_deinit(&text);
  return s;
}

td_status td_in_handle_text(td_kernel_ctx *ctx, int i, td_tensor **out) {
  td_resource_handle *h = NULL;
  if (td_in(ctx, i)->rank) return td_invalid_argument("string_handle must be a scalar");
  td_status s = td_resource_handle_decode(td_string_view(TD_DATA(td_in(ctx, i), td_string)), &h);
  if (s || !h) {
    td_status_free(s);
    return td_invalid_argument("Could not parse string_handle as a valid ResourceHandle");
  }
  s = td_tensor_create_dims(TD_RESOURCE, 0, NULL, out);
  if (s)
    td_resource_handle_release(h);
  else
    TD_DATA(*out, td_resource_handle *)[0] = h;
  return s;
}

/* ---- constant handles ---- */

td_status td_constant_handle_create(td_kernel_builder *b, const td_resource_type *type, td_constant_handle *out) {
  td_str container, name, key_container, key_name;
  TD_TRY(td_attr_str(b->node, "container", &container));
  TD_TRY(td_attr_str(b->node, "shared_name", &name));
  TD_TRY(td_container_info(b->device->resources, container, name, b->node->name, &key_container, &key_name));
  return td_handle_create(b->device, key_container, key_name, type, &out->handle);
}

void td_constant_handle_destroy(void *state) { td_tensor_release(((td_constant_handle *)state)->handle); }

td_status td_constant_handle_compute(td_kernel_ctx *ctx) {
  td_out_set(ctx, 0, td_tensor_retain(((td_constant_handle *)ctx->state)->handle));
  return TD_STATUS_OK;
}

/* Elements that own memory: strings, resource handles, variants. */
#include "base/mem.h"
#include "tensor/tensor.h"

td_status td_string_set(td_string *s, td_str value) {
  char *data = NULL;
  if (value.size) {
    data = td_try_malloc(value.size);
    if (!data) return td_resource_exhausted("OOM when allocating a string of %zu bytes", value.size);
    memcpy(data, value.data, value.size);
  }
  td_string_take(s, data, value.size);
  return TD_STATUS_OK;
}

void td_string_take(td_string *s, char *data, size_t size) {
  td_free(s->data);
  if (!size) {
    td_free(data);
    data = NULL;
  }
  *s = (td_string){data, size};
}

/* Handles are reference-counted and immutable once they are shared. */
td_resource_handle *td_resource_handle_create(td_str device, td_str container, td_str name, td_str type_name,
                                              uint64_t hash_code) {
  td_resource_handle *h = td_new(td_resource_handle);
  atomic_init(&h->refs, 1);
  h->device = td_strndup(device.data, device.size);
  h->container = td_strndup(container.data, container.size);
  h->name = td_strndup(name.data, name.size);
  h->type_name = td_strndup(type_name.data, type_name.size);
  h->hash_code = hash_code;
  return h;
}

td_resource_handle *td_resource_handle_retain(td_resource_handle *h) {
  /* relaxed: made from a reference that is held */
  atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
  return h;
}

void td_resource_handle_release(td_resource_handle *h) {
  /* acq_rel: pairs with itself, as in td_tensor_release() */
  if (!h || atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) != 1) return;
  td_free(h->device);
  td_free(h->container);
  td_free(h->name);
  td_free(h->type_name);
  td_free(h->extra);
  td_free(h);
}

td_variant *td_variant_retain(td_variant *v) {
  /* relaxed: made from a reference that is held */
  atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
  return v;
}

void td_variant_release(td_variant *v) {
  /* acq_rel: pairs with itself, as in td_tensor_release() */
  if (v && atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1) v->ops->destroy(v);
}

#include "ops/data/iterator_resource.h"

#include "base/mem.h"
#include "framework/device.h"

static void destroy(td_resource *base) {
  td_iterator_resource *r = (td_iterator_resource *)base;
  td_driver_release(r->driver);
  td_data_spec_deinit(&r->spec);
  pthread_mutex_destroy(&r->lock);
  td_free(r);
}

const td_resource_type td_iterator_resource_type = {.name = "N10tensorflow4data16IteratorResourceE",
                                                    .destroy = destroy};

td_iterator_resource *td_iterator_resource_create(const td_data_spec *spec) {
  td_iterator_resource *r = td_new(td_iterator_resource);
  td_resource_init(&r->resource, &td_iterator_resource_type);
  td_data_spec_copy(spec, &r->spec);
  pthread_mutex_init(&r->lock, NULL);
  return r;
}

td_status td_iterator_resource_set(td_iterator_resource *r, td_dataset *dataset, td_pool *pool) {
  TD_TRY(td_data_spec_check(&r->spec, &dataset->spec));
  td_driver *d = td_driver_create(pool);
  td_status s = td_driver_set_root(d, dataset, NULL);
  if (s) {
    td_driver_release(d);
    return s;
  }
  td_iterator_resource_replace(r, d);
  return TD_STATUS_OK;
}

void td_iterator_resource_replace(td_iterator_resource *r, td_driver *d) {
  pthread_mutex_lock(&r->lock);
  td_driver *old = r->driver;
  r->driver = d;
  pthread_mutex_unlock(&r->lock);
  td_driver_release(old);
}

td_status td_iterator_resource_driver(td_iterator_resource *r, const char *call, const char *what, td_driver **out) {
  pthread_mutex_lock(&r->lock);
  *out = r->driver ? td_driver_retain(r->driver) : NULL;
  pthread_mutex_unlock(&r->lock);
  if (*out) return TD_STATUS_OK;
  return td_failed_precondition(
      "%s() failed because the iterator has not been initialized. Ensure that you have run the initializer operation "
      "for this iterator before %s.",
      call, what);
}

td_status td_iterator_resource_find(const td_tensor *handle, td_device *device, td_iterator_resource **out) {
  void *found;
  TD_TRY(td_handle_lookup(handle, device, &td_iterator_resource_type, &found));
  *out = found;
  return TD_STATUS_OK;
}

/* ---- places ---- */

td_status td_iterator_place_init(td_kernel_builder *b, td_iterator_place *p) {
  td_str container, shared_name, key_container, key_name;
  p->m = td_resource_mgr_retain(b->device->resources);
  pthread_mutex_init(&p->lock, NULL);
  TD_TRY(td_data_spec_attr(b->node, "output_types", &p->spec));
  TD_TRY(td_attr_str(b->node, "container", &container));
  TD_TRY(td_attr_str(b->node, "shared_name", &shared_name));
  TD_TRY(td_container_info(p->m, container, shared_name, b->node->name, &key_container, &key_name));
  p->is_private = !shared_name.size;
  p->container = td_strndup(key_container.data, key_container.size);
  p->name = td_strndup(key_name.data, key_name.size);
  return TD_STATUS_OK;
}

void td_iterator_place_deinit(td_iterator_place *p) {
  if (!p->m) return;
  if (p->resource && p->is_private) /* it may have been dropped with its container */
    td_status_free(td_resource_delete(p->m, td_str_of(p->container), td_str_of(p->key), &td_iterator_resource_type));
  td_resource_release(p->resource);
  td_data_spec_deinit(&p->spec);
  td_free(p->key);
  td_free(p->container);
  td_free(p->name);
  pthread_mutex_destroy(&p->lock);
  td_resource_mgr_release(p->m);
}

/* Under the first of the names _0_<node>, _1_<node>, … that is free: other sessions have nodes of that name, too. */
static td_status add_private(td_iterator_place *p) {
  for (int64_t k = 0;; k++) {
    td_free(p->key);
    p->key = td_asprintf("_%lld_%s", (long long)k, p->name);
    td_iterator_resource *r = td_iterator_resource_create(&p->spec);
    td_status s = td_resource_add(p->m, td_str_of(p->container), td_str_of(p->key), &r->resource);
    if (!s) {
      p->resource = r;
      return s;
    }
    td_resource_release(r);
    if (td_status_code(s) != TD_ALREADY_EXISTS) return s;
    td_status_free(s);
  }
}

static td_status make_shared(void *arg, td_resource **out) {
  *out = &td_iterator_resource_create(&((td_iterator_place *)arg)->spec)->resource;
  return TD_STATUS_OK;
}

static td_status find_shared(td_iterator_place *p) {
  void *found;
  TD_TRY(td_resource_lookup_or_create(p->m, td_str_of(p->container), td_str_of(p->name), &td_iterator_resource_type,
                                      make_shared, p, &found));
  td_iterator_resource *r = found;
  td_status s = td_data_spec_check(&p->spec, &r->spec);
  if (s) {
    td_resource_release(r);
    return s;
  }
  td_free(p->key);
  p->key = td_strdup(p->name);
  p->resource = r;
  return TD_STATUS_OK;
}

td_status td_iterator_place_open(td_iterator_place *p) {
  td_status s = TD_STATUS_OK;
  pthread_mutex_lock(&p->lock);
  if (!p->resource) s = p->is_private ? add_private(p) : find_shared(p);
  pthread_mutex_unlock(&p->lock);
  return s;
}

td_status td_iterator_place_out(td_iterator_place *p, td_kernel_ctx *ctx) {
  td_tensor *handle;
  TD_TRY(
      td_handle_create(ctx->device, td_str_of(p->container), td_str_of(p->key), &td_iterator_resource_type, &handle));
  td_out_set(ctx, 0, handle);
  return TD_STATUS_OK;
}

#include "ops/named.h"

#include "base/mem.h"
#include "framework/device.h"

td_status td_named_init(td_named *n, const td_kernel_builder *b, const td_resource_type *type) {
  td_str container, shared_name, key_container, key_name;
  n->m = td_resource_mgr_retain(b->device->resources);
  n->type = type;
  pthread_mutex_init(&n->lock, NULL);
  TD_TRY(td_attr_str(b->node, "container", &container));
  TD_TRY(td_attr_str(b->node, "shared_name", &shared_name));
  TD_TRY(td_container_info(n->m, container, shared_name, b->node->name, &key_container, &key_name));
  n->is_private = !shared_name.size;
  n->container = td_strndup(key_container.data, key_container.size);
  n->name = td_strndup(key_name.data, key_name.size);
  return TD_STATUS_OK;
}

void td_named_deinit(td_named *n) {
  if (!n->m) return;                /* never initialised */
  if (n->resource && n->is_private) /* it may have been dropped with its container */
    td_status_free(td_resource_delete(n->m, td_str_of(n->container), td_str_of(n->key), n->type));
  td_resource_release(n->resource);
  td_free(n->key);
  td_free(n->container);
  td_free(n->name);
  pthread_mutex_destroy(&n->lock);
  td_resource_mgr_release(n->m);
}

typedef struct making {
  const td_named *named;
  td_named_make_fn make;
  void *arg;
} making;

static td_status make_shared(void *arg, td_resource **out) {
  const making *m = arg;
  return m->make(m->arg, td_str_of(m->named->name), out);
}

static td_status find_shared(td_named *n, making *m, td_named_matches_fn matches) {
  void *found;
  TD_TRY(
      td_resource_lookup_or_create(n->m, td_str_of(n->container), td_str_of(n->name), n->type, make_shared, m, &found));
  td_status s = matches ? matches(m->arg, found) : TD_STATUS_OK;
  if (s) {
    td_resource_release(found);
    return s;
  }
  n->resource = found;
  n->key = td_strdup(n->name);
  return TD_STATUS_OK;
}

/* Under the first of the names _0_<node>, _1_<node>, … that is free: other sessions have nodes of that name, too. */
static td_status add_private(td_named *n, const making *m) {
  for (int64_t k = 0;; k++) {
    td_resource *made;
    char *key = td_asprintf("_%lld_%s", (long long)k, n->name);
    td_status s = m->make(m->arg, td_str_of(key), &made);
    if (!s) {
      s = td_resource_add(n->m, td_str_of(n->container), td_str_of(key), made);
      if (!s) {
        n->key = key;
        n->resource = made;
        return s;
      }
      td_resource_release(made);
    }
    td_free(key);
    if (td_status_code(s) != TD_ALREADY_EXISTS) return s;
    td_status_free(s);
  }
}

td_status td_named_out(td_named *n, td_kernel_ctx *ctx, td_named_make_fn make, td_named_matches_fn matches, void *arg) {
  td_status s = TD_STATUS_OK;
  making m = {n, make, arg};
  pthread_mutex_lock(&n->lock);
  if (!n->resource) s = n->is_private ? add_private(n, &m) : find_shared(n, &m, matches);
  pthread_mutex_unlock(&n->lock);
  if (s) return s;
  return td_out_handle(
      ctx, 0,
      &(td_handle_parts){.m = n->m, .container = td_str_of(n->container), .name = td_str_of(n->key), .type = n->type});
}

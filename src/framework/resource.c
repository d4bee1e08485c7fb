#include "framework/resource.h"

#include <ctype.h>
#include <pthread.h>

#include "base/map.h"
#include "base/mem.h"
#include "framework/device.h"

void *td_resource_retain(void *resource) {
  td_resource *r = resource;
  atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
  return resource;
}

void td_resource_release(void *resource) {
  td_resource *r = resource;
  /* acq_rel: the last owner sees every use before it destroys */
  if (r && atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1) r->type->destroy(r);
}

/* A resource in the table; its key is "container\0name\0type name". */
typedef struct entry {
  td_resource *resource;
  td_str container, name, key; /* within `text` */
  char text[];
} entry;

struct td_resource_mgr {
  atomic_uint refs;
  char *default_container;
  pthread_rwlock_t lock;
  td_map entries; /* guarded by lock: key -> entry */
};

td_resource_mgr *td_resource_mgr_create(td_str default_container) {
  td_resource_mgr *m = td_new(td_resource_mgr);
  atomic_init(&m->refs, 1);
  m->default_container = td_strndup(default_container.data, default_container.size);
  pthread_rwlock_init(&m->lock, NULL);
  return m;
}

td_resource_mgr *td_resource_mgr_retain(td_resource_mgr *m) {
  atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
  return m;
}

td_str td_resource_mgr_default_container(const td_resource_mgr *m) { return td_str_of(m->default_container); }

static td_str container_of(const td_resource_mgr *m, td_str container) {
  return container.size ? container : td_str_of(m->default_container);
}

enum { KEY_ON_STACK = 512 };

static void write_key(char *p, td_str container, td_str name, td_str type) {
  memcpy(p, container.data, container.size);
  p[container.size] = '\0';
  if (name.size) memcpy(p + container.size + 1, name.data, name.size);
  p[container.size + 1 + name.size] = '\0';
  memcpy(p + container.size + name.size + 2, type.data, type.size);
}

/* Builds a lookup key; `stack` serves short ones, longer ones are allocated (then *heap is to be freed). */
static td_str make_key(td_str container, td_str name, td_str type, char *stack, char **heap) {
  size_t size = container.size + name.size + type.size + 2;
  char *p = size <= KEY_ON_STACK ? stack : (*heap = td_malloc(size));
  write_key(p, container, name, type);
  return (td_str){p, size};
}

static entry *find(td_resource_mgr *m, td_str container, td_str name, td_str type) {
  char stack[KEY_ON_STACK], *heap = NULL;
  entry *e = td_map_get(&m->entries, make_key(container, name, type, stack, &heap));
  td_free(heap);
  return e;
}

static void add(td_resource_mgr *m, td_str container, td_str name, td_resource *r) {
  td_str type = td_str_of(r->type->name);
  size_t size = container.size + name.size + type.size + 2;
  entry *e = td_malloc(sizeof *e + size);
  write_key(e->text, container, name, type);
  e->key = (td_str){e->text, size};
  e->container = (td_str){e->text, container.size};
  e->name = (td_str){e->text + container.size + 1, name.size};
  e->resource = r;
  td_map_put(&m->entries, e->key, e);
}

static td_status missing(td_resource_mgr *m, td_str container, td_str name, const char *type) {
  void *v;
  bool have_container = false;
  for (size_t i = 0; !have_container && td_map_next(&m->entries, &i, NULL, &v);)
    have_container = td_str_eq(((entry *)v)->container, container);
  if (!have_container)
    return td_not_found("Container %.*s does not exist. (Could not find resource: %.*s/%.*s)", TD_STR_ARG(container),
                        TD_STR_ARG(container), TD_STR_ARG(name));
  return td_not_found("Resource %.*s/%.*s/%s does not exist.", TD_STR_ARG(container), TD_STR_ARG(name), type);
}

td_status td_resource_lookup(td_resource_mgr *m, td_str container, td_str name, const td_resource_type *type,
                             void **out) {
  container = container_of(m, container);
  td_status s = TD_STATUS_OK;
  pthread_rwlock_rdlock(&m->lock);
  entry *e = find(m, container, name, td_str_of(type->name));
  if (e)
    *out = td_resource_retain(e->resource);
  else
    s = missing(m, container, name, type->name);
  pthread_rwlock_unlock(&m->lock);
  return s;
}

td_status td_resource_lookup_or_create(td_resource_mgr *m, td_str container, td_str name, const td_resource_type *type,
                                       td_status (*create)(void *arg, td_resource **out), void *arg, void **out) {
  container = container_of(m, container);
  pthread_rwlock_rdlock(&m->lock);
  entry *e = find(m, container, name, td_str_of(type->name));
  if (e) *out = td_resource_retain(e->resource);
  pthread_rwlock_unlock(&m->lock);
  if (e) return TD_STATUS_OK;
  td_status s = TD_STATUS_OK;
  pthread_rwlock_wrlock(&m->lock);
  e = find(m, container, name, td_str_of(type->name));
  td_resource *r = e ? e->resource : NULL;
  if (!e) {
    s = create(arg, &r);
    if (!s) add(m, container, name, r);
  }
  if (!s) *out = td_resource_retain(r);
  pthread_rwlock_unlock(&m->lock);
  return s;
}

td_status td_resource_add(td_resource_mgr *m, td_str container, td_str name, td_resource *r) {
  container = container_of(m, container);
  td_status s = TD_STATUS_OK;
  pthread_rwlock_wrlock(&m->lock);
  if (find(m, container, name, td_str_of(r->type->name)))
    s = td_error(TD_ALREADY_EXISTS, "Resource %.*s/%.*s/%s", TD_STR_ARG(container), TD_STR_ARG(name), r->type->name);
  else
    add(m, container, name, td_resource_retain(r));
  pthread_rwlock_unlock(&m->lock);
  return s;
}

td_status td_resource_delete_by_type_name(td_resource_mgr *m, td_str container, td_str name, td_str type_name) {
  container = container_of(m, container);
  td_status s = TD_STATUS_OK;
  pthread_rwlock_wrlock(&m->lock);
  entry *e = find(m, container, name, type_name);
  if (e) {
    td_map_remove(&m->entries, e->key);
  } else {
    char *type = td_strndup(type_name.data, type_name.size);
    s = missing(m, container, name, type);
    td_free(type);
  }
  pthread_rwlock_unlock(&m->lock);
  if (e) { /* outside the lock: destroying may take others */
    td_resource_release(e->resource);
    td_free(e);
  }
  return s;
}

td_status td_resource_delete(td_resource_mgr *m, td_str container, td_str name, const td_resource_type *type) {
  return td_resource_delete_by_type_name(m, container, name, td_str_of(type->name));
}

/* Takes every entry of a container (NULL: all) out of the table, then releases them without the lock. */
static void clear(td_resource_mgr *m, const td_str *container) {
  entry **gone = NULL;
  size_t count = 0, capacity = 0;
  void *v;
  pthread_rwlock_wrlock(&m->lock);
  for (size_t i = 0; td_map_next(&m->entries, &i, NULL, &v);) {
    entry *e = v;
    if (container && !td_str_eq(e->container, *container)) continue;
    TD_GROW(gone, count, capacity);
    gone[count++] = e;
  }
  for (size_t i = 0; i < count; i++) td_map_remove(&m->entries, gone[i]->key);
  pthread_rwlock_unlock(&m->lock);
  for (size_t i = 0; i < count; i++) {
    td_resource_release(gone[i]->resource);
    td_free(gone[i]);
  }
  td_free(gone);
}

void td_resource_mgr_cleanup(td_resource_mgr *m, td_str container) {
  container = container_of(m, container);
  clear(m, &container);
}

void td_resource_mgr_clear(td_resource_mgr *m) { clear(m, NULL); }

void td_resource_mgr_release(td_resource_mgr *m) {
  /* acq_rel: the last owner sees every change before it frees */
  if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) return;
  clear(m, NULL);
  td_map_deinit(&m->entries);
  pthread_rwlock_destroy(&m->lock);
  td_free(m->default_container);
  td_free(m);
}

/* [A-Za-z0-9.][A-Za-z0-9_.\-/]*, and no '_' where `underscore` is false. */
static bool valid_name(td_str s, bool underscore) {
  for (size_t i = 0; i < s.size; i++) {
    char c = s.data[i];
    if (isalnum((unsigned char)c) || c == '.') continue;
    if (i && (c == '-' || c == '/' || (underscore && c == '_'))) continue;
    return false;
  }
  return s.size > 0;
}

td_status td_container_info(td_resource_mgr *m, td_str container, td_str shared_name, td_str node_name,
                            td_str *out_container, td_str *out_name) {
  if (container.size && !valid_name(container, false))
    return td_invalid_argument("container contains invalid characters: %.*s", TD_STR_ARG(container));
  if (shared_name.size && shared_name.data[0] == '_')
    return td_invalid_argument("shared_name cannot start with '_':%.*s", TD_STR_ARG(shared_name));
  *out_container = container_of(m, container);
  *out_name = shared_name.size ? shared_name : node_name;
  return TD_STATUS_OK;
}

td_status td_handle_of(const td_tensor *t, const td_device *device, td_resource_handle **out) {
  if (!t || t->dtype != TD_RESOURCE || t->count < 1 || !TD_DATA(t, td_resource_handle *)[0])
    return td_invalid_argument("Input is not a resource handle");
  td_resource_handle *h = TD_DATA(t, td_resource_handle *)[0];
  if (strcmp(h->device, device->name))
    return td_invalid_argument("Trying to access resource %s located in device %s from device %s", h->name, h->device,
                               device->name);
  *out = h;
  return TD_STATUS_OK;
}

td_status td_handle_lookup(const td_tensor *t, td_device *device, const td_resource_type *type, void **out) {
  td_resource_handle *h;
  TD_TRY(td_handle_of(t, device, &h));
  if (h->type_name[0] && strcmp(h->type_name, type->name))
    return td_invalid_argument(
        "Trying to access a handle's resource using the wrong type: Type mismatch: expected %s, handle %s has type %s",
        type->name, h->name, h->type_name);
  return td_resource_lookup(device->resources, td_str_of(h->container), td_str_of(h->name), type, out);
}

td_status td_handle_create(td_device *device, td_str container, td_str name, const td_resource_type *type,
                           td_tensor **out) {
  td_tensor *t;
  TD_TRY(td_tensor_create_dims(TD_RESOURCE, 0, NULL, &t));
  TD_DATA(t, td_resource_handle *)
  [0] = td_resource_handle_create(td_str_of(device->name), container_of(device->resources, container), name,
                                  td_str_of(type->name), td_hash64(type->name, strlen(type->name)));
  *out = t;
  return TD_STATUS_OK;
}
